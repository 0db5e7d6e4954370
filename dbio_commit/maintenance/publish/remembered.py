"""Caches the contents of numbered publications that this process has read or written. Publications never change.

A publication is identified by its name, size and time together. In a table that was restored from a backup, another
publication may have the same name and size.
"""

from contextlib import suppress
from typing import NamedTuple

from dbio_commit.base.errors import StoreError
from dbio_commit.log.object_cache import CACHE
from dbio_commit.protocol.entry import Entry
from dbio_commit.store import Store

_AT_LEAST = 1024
"""The most memory for each publication."""


class TableKey(NamedTuple):
    """Identifies a table whose publications are remembered."""

    service: str
    principal: str
    url: str
    table_id: str

    @classmethod
    def of(cls, store: Store, table_id: str) -> "TableKey":
        return cls(store.identity, store.principal, store.url, table_id)


def find(key: TableKey, entry: Entry) -> object:
    """The cached contents of the publication; None if there are none."""
    return CACHE.find((key, entry))


def keep(key: TableKey, entry: Entry, value: object, *, bytes: int) -> None:
    """Caches the contents of the publication, which take `bytes` of memory."""
    CACHE.keep((key, entry), value, bytes=_AT_LEAST + bytes)


def keep_new(store: Store, key: TableKey, path: str, value: object, *, bytes: int) -> None:
    """As `keep`, for a publication that was just created. If the store does not report its time, nothing is kept."""
    with suppress(StoreError):
        keep(key, store.stat(path), value, bytes=bytes)


def find_named(key: TableKey, path: str) -> object:
    """The cached contents of the object at this path; None if there are none."""
    return CACHE.find((key, path))


def keep_named(key: TableKey, path: str, value: object, *, bytes: int) -> None:
    """Caches an object by its path alone: nobody writes it twice, or the caller compares it with the object itself."""
    CACHE.keep((key, path), value, bytes=_AT_LEAST + bytes)
