"""What this process has read of the logs of tables: commit markers, turns and checkpoints never change.

So whatever reads a table again and again (a `Table`, a stream, the service) reads only what is new.
"""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import NamedTuple, TypeVar, cast

from cachetools import LRUCache

from dbio_commit.protocol.entry import Entry
from dbio_commit.store import Store

_T = TypeVar("_T")

LIMIT_BYTES = 128 * 1024**2
"""Of memory; what has not been asked for longest goes first."""

_AT_LEAST = 1024
"""Of memory, of each key and what comes with it."""


class Key(NamedTuple):
    """One object of one table. A name alone does not tell it: somebody may delete a table, or restore it."""

    service: str
    principal: str
    """As whom it was read: another may have no right to read it."""
    url: str
    table_id: str
    """Its descriptor's; every table made anew has another."""
    entry: Entry


class _Recalled(NamedTuple):
    value: object
    bytes: int


class Memory:
    """Keeps what was read, by key, in bounded memory. Threads may share it."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._kept: LRUCache[Hashable, _Recalled] = LRUCache(limit_bytes, getsizeof=lambda it: it.bytes)
        self._lock = Lock()

    def recall(self, key: Hashable, read: Callable[[], _T], *, bytes: Callable[[_T], int]) -> _T:
        """What `read` returns, now or when it was called for this key. `bytes` says what that takes in memory."""
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                return cast(_T, kept.value)
        value = read()
        self.keep(key, value, bytes=bytes(value))
        return value

    def find(self, key: Hashable) -> object:
        """What is kept for the key; None where nothing is."""
        with self._lock:
            kept = self._kept.get(key)
        return kept.value if kept is not None else None

    def keep(self, key: Hashable, value: object, *, bytes: int) -> None:
        """Keeps what the caller knows without reading it."""
        with self._lock:
            if bytes <= self._kept.maxsize:
                self._kept[key] = _Recalled(value, bytes)


MEMORY = Memory()
"""Of this process: every write opens a store of its own."""


def recall(
    store: Store, table_id: str | None, entry: Entry, read: Callable[[], _T], *, bytes: Callable[[_T], int]
) -> _T:
    """What the object says, which `read` reads where it is not remembered; without a `table_id`, nothing is."""
    if table_id is None:
        return read()
    key = Key(store.identity, store.principal, store.url, table_id, entry)
    return MEMORY.recall(key, read, bytes=lambda value: bytes(value) + _AT_LEAST)
