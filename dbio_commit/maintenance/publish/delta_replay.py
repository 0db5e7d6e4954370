"""Reads the state of a Delta log from its versions and checkpoints, and refuses those of other tools and tables."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile

from dbio_commit.base.errors import CorruptMarkerError, UnsupportedTableError
from dbio_commit.maintenance.publish.bounds import MOST_BYTES_TOGETHER, refuse_large
from dbio_commit.maintenance.publish.delta_log import (
    DIRECTORY,
    SAVE,
    DeltaListing,
    DeltaState,
    Mark,
    Version,
    decode_version,
    version_path,
)
from dbio_commit.maintenance.publish.places import in_sequence
from dbio_commit.maintenance.publish.reading import read_head, read_lines, read_whole
from dbio_commit.maintenance.publish.remembered import TableKey, find, keep
from dbio_commit.protocol.entry import Entry
from dbio_commit.store import Store


def mark_of_last(store: Store, listing: DeltaListing, table_id: str) -> Mark | None:
    """The mark of the last version; None if there is no version. Raises as `replay`."""
    if not _versions_since(store, listing, max(listing.last_checkpoint, 0)):
        return None
    key, entry = TableKey.of(store, table_id), listing.versions[listing.last]
    match find(key, entry):
        case Mark() as mark:
            return mark
        case DeltaState(mark=Mark() as mark):
            return mark
    return _read_head(store, listing, listing.last, table_id).mark


def replay(store: Store, listing: DeltaListing, table_id: str) -> DeltaState:
    """The state of the log, from what this process remembers, or from the last checkpoint, or from the start.

    Raises UnsupportedTableError if a version was written by another tool, or for another table; CorruptMarkerError.
    """
    last, start = listing.last, listing.last_checkpoint
    if last < 0:
        return DeltaState()
    known, state = _remembered(store, listing, table_id)
    wanted = _versions_since(store, listing, max(start, 0) if state is None else known + 1)
    if state is None and start >= 0:
        state, wanted = read_checkpoint(store, listing, start, table_id), wanted[1:]
    entries = [listing.versions[number] for number in wanted]
    versions = _read_versions(store, wanted, entries, table_id)
    state = (state or DeltaState()).then(versions, where=store.url_of(DIRECTORY))
    if known != last:
        keep(TableKey.of(store, table_id), listing.versions[last], state, bytes=state.memory_bytes)
    return state


def _versions_since(store: Store, listing: DeltaListing, first: int) -> list[int]:
    """The versions from this number on. Raises CorruptMarkerError if one of them is missing, or if they are too large
    together."""
    if listing.last < 0:
        return []
    if listing.last not in listing.versions:
        raise torn(store, listing.last)
    found, missing = in_sequence(listing.versions, first=first)
    if missing is not None:
        raise torn(store, missing)
    where = f"{store.url_of(DIRECTORY)} since its last checkpoint"
    refuse_large([listing.versions[number] for number in found], most=MOST_BYTES_TOGETHER, where=where)
    return found


def _remembered(store: Store, listing: DeltaListing, table_id: str) -> tuple[int, DeltaState | None]:
    """The last version since the checkpoint that this process remembers, and the state of the log as of it."""
    key, versions = TableKey.of(store, table_id), listing.versions
    for number in sorted(versions, reverse=True):
        if number < listing.last_checkpoint:
            break
        state = find(key, versions[number])
        if isinstance(state, DeltaState):
            return number, state
    return -1, None


_READ_AT_ONCE_BYTES = 64 * 1024**2


def _read_versions(store: Store, numbers: Sequence[int], entries: Sequence[Entry], table_id: str) -> Iterator[Version]:
    """The versions one after the other, all of this table. Small ones are read together."""

    def read(entry: Entry) -> Version:
        return decode_version(read_lines(store, entry), where=store.url_of(entry.path))

    start = 0
    while start < len(entries):
        sizes = accumulate(entry.size for entry in entries[start:])
        end = start + max(1, sum(1 for _ in takewhile(lambda size: size <= _READ_AT_ONCE_BYTES, sizes)))
        versions = store.ask_each(read, entries[start:end])
        for number, version in zip(numbers[start:end], versions, strict=True):
            _refuse_others(store, number, version, table_id)
            yield version
        start = end


def read_checkpoint(store: Store, listing: DeltaListing, number: int, table_id: str) -> DeltaState:
    """The state in a checkpoint. Raises CorruptMarkerError if it is none, or of another table; else as `replay`.

    The first line of a version records who wrote it. If another tool did, the checkpoint need not be read.
    """
    head, entry = _read_head(store, listing, number, table_id), listing.checkpoints[number]
    from dbio_commit.maintenance.publish.delta_checkpoint import decode_checkpoint

    where = store.url_of(entry.path)
    state = decode_checkpoint(read_whole(store, entry), where=where)
    if state.metadata.get("id") != table_id:
        raise CorruptMarkerError(f"{where} is of another table than {table_id}; {SAVE}")
    return replace(state, mark=head.mark)


def _read_head(store: Store, listing: DeltaListing, number: int, table_id: str) -> Version:
    """The beginning of a version, with its mark. Raises UnsupportedTableError if it is not of this table."""
    version = listing.versions[number]
    head = decode_version(read_head(store, version), where=store.url_of(version.path))
    _refuse_others(store, number, head, table_id)
    return head


def torn(store: Store, number: int) -> CorruptMarkerError:
    """The error for a version that is missing."""
    return CorruptMarkerError(
        f"{store.url_of(version_path(number))} is missing, so that the state of the Delta log is not known; {SAVE}"
    )


def _refuse_others(store: Store, number: int, version: Version, table_id: str) -> None:
    where = f"version {number} of {store.url_of(DIRECTORY)}"
    if version.mark is None:
        raise UnsupportedTableError(
            f"{where} was written by {version.engine!r}, not by dbio: its rows are in no commit of this table, and "
            f"nothing is published after it. {SAVE[0].upper()}{SAVE[1:]}; only dbio may write here"
        )
    if version.mark.table_id != table_id:
        raise UnsupportedTableError(
            f"{where} is of the table {version.mark.table_id[:100]!r}, which was here before {table_id}; {SAVE}"
        )
