"""What is remembered of logs, for how long, and by which key. The module's own memory is replaced for each test."""

import random
import sys
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest

from dbio_commit.base.errors import ObjectNotFoundError
from dbio_commit.log import object_cache
from dbio_commit.log.object_cache import LIMIT_BYTES, ObjectCache, ObjectKey, read_cached, read_last_cached
from dbio_commit.protocol.entry import Entry
from dbio_commit.testing import MemoryStore

ENTRY = Entry("_committed_1", 10, datetime(2026, 11, 20, tzinfo=UTC))


class Reader:
    """Reads another value each time, so that who recalls is told from who reads."""

    times = 0

    def __call__(self) -> int:
        self.times += 1
        return self.times


def of(size: int) -> Callable[[object], int]:
    """Whatever was read takes so many bytes."""
    return lambda value: size


@pytest.fixture
def read() -> Reader:
    return Reader()


def is_kept(memory: ObjectCache, key: Hashable) -> bool:
    """Whether nobody needs to read it. Asks with a size that is never kept, so that it is no memory afterwards."""
    missing = object()
    return memory.get_or_read(key, lambda: missing, bytes=of(LIMIT_BYTES + 1)) is not missing


# --- a memory -----------------------------------------------------------------------------------------------------


def test_what_was_read_is_kept_by_its_key(read: Reader) -> None:
    memory = ObjectCache()
    assert [memory.get_or_read(key, read, bytes=of(1)) for key in ("a", "b", "a", "b", "a")] == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("value", [None, 0, "", ()])
def test_what_is_false_or_none_is_kept_too(value: object) -> None:
    memory = ObjectCache()
    assert memory.get_or_read("a", lambda: value, bytes=of(1)) == value
    assert memory.get_or_read("a", lambda: "another", bytes=of(1)) == value


def test_while_a_table_is_held_nothing_of_it_is_forgotten_and_afterwards_it_is(read: Reader) -> None:
    memory = ObjectCache(limit_bytes=0)
    key, other = ObjectKey("s3", "me", "s3://b/t", "id", ENTRY), ObjectKey("s3", "me", "s3://b/other", "id", ENTRY)
    with memory.holding("s3", "me", "s3://b/t"):
        with memory.holding("s3", "me", "s3://b/t"):
            assert [memory.get_or_read(key, read, bytes=of(10)) for _ in range(2)] == [1, 1]
        assert memory.get_or_read(key, read, bytes=of(10)) == 1
        assert [memory.get_or_read(other, read, bytes=of(10)) for _ in range(2)] == [2, 3]
    assert memory.find(key) is None


def test_what_has_not_been_asked_for_longest_is_forgotten_first(read: Reader) -> None:
    memory = ObjectCache(limit_bytes=30)
    for key in ("a", "b", "c", "a", "d"):  # to ask for "a" again makes "b" the oldest
        memory.get_or_read(key, read, bytes=of(10))
    assert [key for key in "abcd" if is_kept(memory, key)] == ["a", "c", "d"]


def test_what_is_large_makes_as_many_be_forgotten_as_it_takes(read: Reader) -> None:
    memory = ObjectCache(limit_bytes=30)
    for key, size in [("a", 10), ("b", 10), ("c", 10), ("large", 15)]:
        memory.get_or_read(key, read, bytes=of(size))
    assert [key for key in ("a", "b", "c", "large") if is_kept(memory, key)] == ["c", "large"]


def test_what_is_larger_than_the_limit_is_not_kept_and_nothing_is_forgotten_for_it(read: Reader) -> None:
    memory = ObjectCache(limit_bytes=30)
    memory.get_or_read("a", read, bytes=of(10))
    assert [memory.get_or_read("large", read, bytes=of(31)) for _ in range(2)] == [2, 3]
    assert is_kept(memory, "a")


def test_what_is_as_large_as_the_limit_is_kept(read: Reader) -> None:
    memory = ObjectCache(limit_bytes=30)
    assert [memory.get_or_read("a", read, bytes=of(30)) for _ in range(2)] == [1, 1]


def test_an_error_is_raised_and_not_kept(read: Reader) -> None:
    memory = ObjectCache()

    def fail() -> int:
        raise ObjectNotFoundError("gone")

    for _ in range(2):
        with pytest.raises(ObjectNotFoundError, match="gone"):
            memory.get_or_read("a", fail, bytes=of(1))
    assert memory.get_or_read("a", read, bytes=of(1)) == 1
    assert memory.get_or_read("a", fail, bytes=of(1)) == 1


def test_nobody_waits_while_another_reads() -> None:
    """Each read ends only when both have begun."""
    memory, both = ObjectCache(), Barrier(2, timeout=30)

    def read(key: str) -> str:
        both.wait()
        return key

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda key: memory.get_or_read(key, lambda: read(key), bytes=of(1)), "ab")) == ["a", "b"]


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_threads_share_a_memory_that_keeps_forgetting() -> None:
    memory = ObjectCache(limit_bytes=100)

    def ask(seed: int) -> bool:
        chance = random.Random(seed)
        keys = [chance.randrange(30) for _ in range(3000)]
        return all(memory.get_or_read(key, lambda key=key: key, bytes=of(10)) == key for key in keys)  # type: ignore[misc]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
    assert sum(is_kept(memory, key) for key in range(30)) == 10


# --- objects of tables --------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "CACHE", ObjectCache())


def test_without_a_table_id_each_time_is_a_read(store: MemoryStore, read: Reader) -> None:
    assert [read_cached(store, None, ENTRY, read, bytes=of(1)) for _ in range(3)] == [1, 2, 3]
    assert [read_cached(store, "id", ENTRY, read, bytes=of(1)) for _ in range(2)] == [4, 4]
    assert read_cached(store, None, ENTRY, read, bytes=of(1)) == 5


@pytest.mark.parametrize(
    "other",
    [
        ENTRY._replace(path="_committed_2"),
        ENTRY._replace(size=11),
        ENTRY._replace(modified=ENTRY.modified + timedelta(microseconds=1)),
    ],
    ids=["name", "size", "time"],
)
def test_an_object_of_another_name_size_or_time_is_another(store: MemoryStore, read: Reader, other: Entry) -> None:
    entries = (ENTRY, other, ENTRY._replace(), other)
    assert [read_cached(store, "id", entry, read, bytes=of(1)) for entry in entries] == [1, 2, 1, 2]


def test_a_search_for_objects_of_a_table_uses_nothing_else(store: MemoryStore) -> None:
    memory = ObjectCache(limit_bytes=40)
    mine = ObjectKey(store.identity, store.principal, store.url, "id", ENTRY)
    others = [mine._replace(url=f"s3://other/{number}") for number in range(3)]
    for key in (mine, *others):
        memory.keep(key, key.url, bytes=10)
    memory.find(others[0])
    assert memory.find_objects(mine.table, {ENTRY.path}) == {ENTRY.path: store.url}
    assert memory.find_objects(mine.table, {"_committed_9"}) == {}
    memory.keep("more", "", bytes=10)  # makes what was not used for the longest time be forgotten
    assert [memory.find(key) for key in (mine, *others)] == [store.url, others[0].url, None, others[2].url]
    again = mine._replace(entry=ENTRY._replace(size=11))
    memory.keep(again, "again", bytes=10)
    assert memory.find_objects(mine.table, {ENTRY.path}) == {ENTRY.path: "again"}
    memory.keep("most", "", bytes=40)
    assert memory.find_objects(mine.table, {ENTRY.path}) == {}


def test_a_table_of_another_id_is_another(store: MemoryStore, read: Reader) -> None:
    assert [read_cached(store, table, ENTRY, read, bytes=of(1)) for table in ("a", "b", "a", "b")] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("opened", "expected"),
    [
        (lambda store: store, [1, 1]),
        (lambda store: MemoryStore(url=store.url), [1, 2]),  # another service
        (lambda store: twin(store, url=store.url), [1, 1]),
        (lambda store: twin(store, url="memory://other"), [1, 2]),
    ],
    ids=["the same", "another service", "opened again", "another root"],
)
def test_every_store_of_one_root_recalls_the_same(
    store: MemoryStore, read: Reader, opened: Callable[[MemoryStore], MemoryStore], expected: list[int]
) -> None:
    assert [read_cached(it, "id", ENTRY, read, bytes=of(1)) for it in (store, opened(store))] == expected


def twin(store: MemoryStore, *, url: str) -> MemoryStore:
    """Another store on the same service."""
    other = MemoryStore(url=url)
    other._identity = store.identity
    return other


def test_of_checkpoints_only_what_was_made_of_the_last_is_remembered(read: Reader) -> None:
    store = MemoryStore()
    first, second = (ENTRY._replace(path=f"_checkpoint_{number}") for number in (1, 2))

    def last(entry: Entry, what: str = "rows", table_id: str | None = "id") -> int:
        return read_last_cached(store, table_id, what, entry, read, bytes=of(1))

    assert [last(it) for it in (first, first, second, second, first)] == [1, 1, 2, 2, 3]
    assert [last(first, "commits"), last(first), last(first, "commits")] == [4, 3, 4]
    assert [last(first, table_id="another"), last(first)] == [5, 3]
    assert [last(first, table_id=None), last(first)] == [6, 3]
    assert last(first._replace(modified=first.modified + timedelta(seconds=1))) == 7
