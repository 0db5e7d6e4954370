"""Caches what this process has read of logs: commit markers, turns and checkpoints never change.

Therefore a `Table`, a stream or the service reads only new objects when it reads a table again.
"""

from collections.abc import Callable, Container, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar, cast

from cachetools import LRUCache

from dbio_commit.base.forks import ProcessLock
from dbio_commit.protocol.entry import Entry
from dbio_commit.store import Store

_T = TypeVar("_T")

LIMIT_BYTES = 128 * 1024**2
"""The most memory for all; the object that was not used for the longest time is forgotten first."""

_AT_LEAST = 1024
"""The memory for each key and its bookkeeping, in bytes."""


class ObjectKey(NamedTuple):
    """Identifies one object of one table. The name is not enough: a table may be deleted or restored."""

    service: str
    principal: str
    """The principal that read it: another may have no right to read it."""
    url: str
    table_id: str
    """The id in the descriptor; a table that is created again has another."""
    entry: Entry
    is_lean: bool = False
    """Whether a part was left out that most readers do not need: the statistics of a commit marker."""

    @property
    def table(self) -> tuple[str, str, str, str]:
        return self[:4]


class _Cached(NamedTuple):
    value: object
    bytes: int


class _Kept(LRUCache[Hashable, _Cached]):
    """Also knows which keys are of each table. A search in all keys takes longer the more tables there are, and counts
    as a use of each."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes, getsizeof=lambda it: it.bytes)
        self.of_table: dict[tuple[str, ...], dict[ObjectKey, None]] = {}
        """By `ObjectKey.table`, in the order in which they came: of two for one path, the later one counts."""

    def __setitem__(self, key: Hashable, value: _Cached) -> None:
        super().__setitem__(key, value)
        if isinstance(key, ObjectKey):
            self.of_table.setdefault(key.table, {})[key] = None

    def __delitem__(self, key: Hashable) -> None:
        super().__delitem__(key)
        if isinstance(key, ObjectKey):
            del self.of_table[key.table][key]
            if not self.of_table[key.table]:
                del self.of_table[key.table]


class ObjectCache:
    """Keeps what was read, by key, in bounded memory. Threads may share it."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._lock = ProcessLock(self._begin_anew)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._kept = _Kept(self._limit_bytes)
        self._held: list[tuple[tuple[str, ...], dict[Hashable, _Cached]]] = []

    def forget(self) -> None:
        """Forgets all that is kept."""
        with self._lock:
            self._begin_anew()

    def get_or_read(self, key: Hashable, read: Callable[[], _T], *, bytes: Callable[[_T], int]) -> _T:
        """The result of `read`, now or from an earlier call with this key. `bytes` gives its size in memory."""
        if (kept := self._find(key)) is not None:
            return cast(_T, kept.value)
        value = read()
        self.keep(key, value, bytes=bytes(value))
        return value

    def find(self, key: Hashable) -> object:
        """What is kept for the key; None if nothing is."""
        kept = self._find(key)
        return kept.value if kept is not None else None

    def _find(self, key: Hashable) -> _Cached | None:
        with self._lock:
            kept: _Cached | None = self._kept.get(key)
            return kept or next((held[key] for _, held in self._held if key in held), None)

    def find_objects(self, table: tuple[str, str, str, str], paths: Container[str]) -> dict[str, object]:
        """What is kept of these objects of a table, by path, whatever their times and sizes are. `table` is as in
        `ObjectKey`."""
        with self._lock:
            found = {key: self._kept[key] for key in self._kept.of_table.get(table, ()) if key.entry.path in paths}
            for _, held in self._held:
                for key, it in held.items():
                    if isinstance(key, ObjectKey) and key.table == table and key.entry.path in paths:
                        found[key] = it
        return {key.entry.path: it.value for key, it in found.items()}

    def keep(self, key: Hashable, value: object, *, bytes: int) -> None:
        """Keeps a value that the caller has."""
        kept = _Cached(value, bytes)
        with self._lock:
            if bytes <= self._kept.maxsize:
                self._kept[key] = kept
            for place, held in self._held:
                if isinstance(key, ObjectKey) and key[: len(place)] == place:
                    held[key] = kept

    @contextmanager
    def holding(self, service: str, principal: str, url: str) -> Iterator[None]:
        """Within this context, all that is read of the table is kept, whatever its size. That is no more than its
        snapshot."""
        held = (service, principal, url), dict[Hashable, _Cached]()
        with self._lock:
            self._held.append(held)
        try:
            yield
        finally:
            with self._lock:
                self._held = [other for other in self._held if other is not held]


CACHE = ObjectCache()
"""Shared by all stores of this process: every write opens a store of its own."""


def read_cached(
    store: Store,
    table_id: str | None,
    entry: Entry,
    read: Callable[[], _T],
    *,
    bytes: Callable[[_T], int],
    lean: Callable[[_T], _T] | None = None,
) -> _T:
    """The contents of the object, remembered or by `read`. Without a `table_id`, nothing is remembered.

    With `lean`, the result is `lean` of the contents, and only that is remembered. Callers without `lean` never get it.
    """
    own = read if lean is None else lambda: lean(read())
    if table_id is None:
        return own()
    key = _key(store, table_id, entry)
    if lean is not None:
        whole = CACHE.find(key)
        if whole is not None:
            return lean(cast(_T, whole))
        key = key._replace(is_lean=True)
    return CACHE.get_or_read(key, own, bytes=lambda value: bytes(value) + _AT_LEAST)


def keep(store: Store, table_id: str, entry: Entry, value: object, *, bytes: int) -> None:
    """Remembers the contents of an object for `read_cached` and `find`."""
    CACHE.keep(_key(store, table_id, entry), value, bytes=bytes + _AT_LEAST)


def find(store: Store, table_id: str, entry: Entry) -> object:
    """The contents of the object, if they are remembered as a whole; else None."""
    return CACHE.find(_key(store, table_id, entry))


def read_last_cached(
    store: Store, table_id: str | None, what: str, entry: Entry, read: Callable[[], _T], *, bytes: Callable[[_T], int]
) -> _T:
    """As `read_cached`, for what `read` makes of an object that newer ones replace, such as a checkpoint.

    Of each table, and for each `what`, only the result for the last object is remembered.
    """
    if table_id is None:
        return read()
    key = _key(store, table_id, entry._replace(path=what, size=0, modified=_ANY_TIME))
    kept = cast("tuple[Entry, _T] | None", CACHE.find(key))
    if kept is not None and kept[0] == entry:
        return kept[1]
    value = read()
    CACHE.keep(key, (entry, value), bytes=bytes(value) + _AT_LEAST)
    return value


_ANY_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def _key(store: Store, table_id: str, entry: Entry) -> ObjectKey:
    return ObjectKey(store.identity, store.principal, store.url, table_id, entry)


def is_cached(store: Store, table_id: str, entry: Entry) -> bool:
    """Whether this process remembers the contents of the object, or what `lean` left of them."""
    key = _key(store, table_id, entry)
    return any(CACHE.find(it) is not None for it in (key, key._replace(is_lean=True)))


def remembered(store: Store, table_id: str, paths: Container[str]) -> dict[str, object]:
    """What this process remembers of these objects, by path, also of objects that do not exist any more."""
    return CACHE.find_objects((store.identity, store.principal, store.url, table_id), paths)


def holding(store: Store) -> AbstractContextManager[None]:
    """Within this context, this process forgets nothing that it reads of the table."""
    return CACHE.holding(store.identity, store.principal, store.url)
