"""Reads objects of publications: exactly their listed size, and large ones in parts."""

import io
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

from dbio_commit.base.errors import CorruptMarkerError, ObjectNotFoundError
from dbio_commit.maintenance.publish.bounds import MOST_BYTES, MOST_LINE_BYTES, refuse_large, too_much
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.store import Store
from dbio_commit.store.contract import cut_short

_BUFFER_BYTES = 8 * 1024**2

_HEAD_BYTES = 256 * 1024
"""The first line of a version names at most a thousand transactions: 25 kB."""


def read_whole(store: Store, entry: Entry) -> bytes:
    """The body. Raises CorruptMarkerError if it is larger than the limit or than listed, StoreError if smaller.

    Raises ObjectNotFoundError if it is another object than was listed: an erasure makes numbers free again.
    """
    refuse_large([entry], where=store.url_of(entry.path), most=MOST_BYTES)
    try:
        body = store.get(entry.path, limit_bytes=entry.size)
    except CorruptMarkerError:
        _refuse_replaced(store, entry)
        raise
    if len(body) < entry.size:
        _refuse_replaced(store, entry)
        raise cut_short(store.url_of(entry.path), len(body), entry.size)
    return body


def _refuse_replaced(store: Store, entry: Entry) -> None:
    if store.stat(entry.path) != entry:
        raise ObjectNotFoundError(f"{store.url_of(entry.path)} was replaced since it was listed; look again")


def read_lines(store: Store, entry: Entry) -> Iterator[bytes]:
    """The lines, with their ends. Raises as `read_whole` does, and CorruptMarkerError for a line that is too long."""
    where, left = store.url_of(entry.path), entry.size
    with _open(store, entry) as stream:
        while line := stream.readline(MOST_LINE_BYTES + 1):
            left -= len(line)
            if left < 0 or len(line) > MOST_LINE_BYTES:
                _refuse_replaced(store, entry)
                raise too_much(where)
            yield line
    if left:  # without the missing lines, some files would seem not to be published
        _refuse_replaced(store, entry)
        raise cut_short(where, entry.size - left, entry.size)


def read_head(store: Store, entry: Entry) -> Iterator[bytes]:
    """The first complete lines of a version or list, by one request."""
    head = store.get_range(entry.path, 0, min(entry.size, _HEAD_BYTES)) if entry.size else b""
    whole, end, _ = head.rpartition(b"\n")
    return io.BytesIO(head if entry.size <= _HEAD_BYTES else whole + end)


def _open(store: Store, entry: Entry) -> io.BufferedIOBase:
    """The body in parts. A small object takes one request; one larger than a marker is never in memory as a whole."""
    if entry.size <= MAX_BYTES:
        return io.BytesIO(read_whole(store, entry))
    refuse_large([entry], where=store.url_of(entry.path), most=MOST_BYTES)
    return io.BufferedReader(cast(io.RawIOBase, store.open_read(entry.path)), _BUFFER_BYTES)


def is_there(store: Store, path: str, body: bytes) -> bool:
    """Whether the object has exactly this body. If so, this process wrote it, and the store's answer was lost."""
    with suppress(CorruptMarkerError):  # the object is larger
        return store.get(path, limit_bytes=len(body)) == body
    return False
