"""What this process has read of the logs of tables: commit markers, turns and checkpoints never change.

So whatever reads a table again and again (a `Table`, a stream, the service) reads only what is new.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, TypeVar, cast

from cachetools import LRUCache

from dbio_commit.base.forks import ProcessLock
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
        self._limit_bytes = limit_bytes
        self._lock = ProcessLock(self._begin_anew)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._kept: LRUCache[Hashable, _Recalled] = LRUCache(self._limit_bytes, getsizeof=lambda it: it.bytes)
        self._held: list[tuple[tuple[str, ...], dict[Hashable, _Recalled]]] = []

    def recall(self, key: Hashable, read: Callable[[], _T], *, bytes: Callable[[_T], int]) -> _T:
        """What `read` returns, now or when it was called for this key. `bytes` says what that takes in memory."""
        if (kept := self._find(key)) is not None:
            return cast(_T, kept.value)
        value = read()
        self.keep(key, value, bytes=bytes(value))
        return value

    def find(self, key: Hashable) -> object:
        """What is kept for the key; None where nothing is."""
        kept = self._find(key)
        return kept.value if kept is not None else None

    def _find(self, key: Hashable) -> _Recalled | None:
        with self._lock:
            kept: _Recalled | None = self._kept.get(key)
            return kept or next((held[key] for _, held in self._held if key in held), None)

    def keep(self, key: Hashable, value: object, *, bytes: int) -> None:
        """Keeps what the caller knows without reading it."""
        kept = _Recalled(value, bytes)
        with self._lock:
            if bytes <= self._kept.maxsize:
                self._kept[key] = kept
            for place, held in self._held:
                if isinstance(key, Key) and key[: len(place)] == place:
                    held[key] = kept

    @contextmanager
    def holding(self, service: str, principal: str, url: str) -> Iterator[None]:
        """Within, all that is read of the table is kept, whatever it takes: no more than a snapshot of it does."""
        held = (service, principal, url), dict[Hashable, _Recalled]()
        with self._lock:
            self._held.append(held)
        try:
            yield
        finally:
            with self._lock:
                self._held = [other for other in self._held if other is not held]


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


def is_recalled(store: Store, table_id: str, entry: Entry) -> bool:
    """Whether `recall` would return what the object says without reading it."""
    return MEMORY.find(Key(store.identity, store.principal, store.url, table_id, entry)) is not None


def holding(store: Store) -> AbstractContextManager[None]:
    """Within, this process forgets nothing that is read of the table."""
    return MEMORY.holding(store.identity, store.principal, store.url)
