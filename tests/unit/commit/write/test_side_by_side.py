"""Files that a change without Spark reads and writes wait for the store side by side, in bounded memory."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbio_commit as dbio
from dbio_commit.commit.write import files as written
from dbio_commit.commit.write import rewrite
from dbio_commit.data import rows
from dbio_commit.store import Store
from dbio_commit.store.many import CONCURRENCY
from dbio_commit.testing import ManualClock, MemoryStore

FILES = 48
WAIT_S = 20.0


class InThreads(MemoryStore):
    """In memory, with the threads of other stores."""

    ahead = staticmethod(Store.ahead)


def table_over(store: MemoryStore) -> dbio.Table:
    """A table with `FILES` files of three rows."""
    table = dbio.Table.over(store, ManualClock())
    ids = range(3 * FILES)
    table.write(pa.table({"p": [i // 3 for i in ids], "id": ids, "v": [i % 3 for i in ids]}), partition_by="p")
    return table


def source(value: int) -> pa.Table:
    ids = range(value, 3 * FILES, 3)
    return pa.table({"p": [i // 3 for i in ids], "id": ids, "v": [value for _ in ids]})


CHANGES: Mapping[str, Callable[[dbio.Table], object]] = {
    "delete": lambda table: table.delete([("v", "=", 1)]),
    "update": lambda table: table.update(values={"id": 7}, where=[("v", "=", 1)]),
    "merge": lambda table: table.merge(source(1), on=["id"]),
    "replace": lambda table: table.write(source(2), mode="overwrite", replace_where=[("v", "=", 2)]),
}


def is_data(path: str) -> bool:
    return path.endswith(".parquet")


# --- calls ahead --------------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(0, 9), max_size=30), few=st.integers(1, 4), size_bytes=st.integers(0, 30))
def test_as_many_calls_run_ahead_as_their_bytes_allow(sizes: list[int], few: int, size_bytes: int) -> None:
    """Those count whose results the caller has not taken."""
    begun: Counter[int] = Counter()
    taken: list[int] = []
    lock = threading.Lock()

    def call(i: int) -> int:
        with lock:
            begun[i] += 1
            left = [sizes[it] for it in begun if it not in taken]
        assert len(left) <= few or sum(left) <= size_bytes
        return i

    for i in Store.ahead(call, range(len(sizes)), sizes, size_bytes=size_bytes, at_once=few):
        with lock:
            taken.append(i)
    assert taken == [*range(len(sizes))]
    assert set(begun.values()) <= {1}


def test_small_calls_run_side_by_side_and_large_ones_one_after_the_other() -> None:
    all_run = threading.Barrier(CONCURRENCY)
    assert [*Store.ahead(lambda i: all_run.wait(WAIT_S) >= 0, range(CONCURRENCY), [1] * CONCURRENCY, size_bytes=100)]
    running: Counter[str] = Counter()

    def alone(i: int) -> int:
        running["now"] += 1
        assert running["now"] == 1
        time.sleep(0.001)
        running["now"] -= 1
        return i

    assert [*Store.ahead(alone, range(5), [60] * 5, size_bytes=100)] == [*range(5)]


def test_after_an_error_no_call_begins_any_more() -> None:
    begun: list[int] = []

    def call(i: int) -> int:
        begun.append(i)
        if i == 3:
            raise ValueError(i)
        return i

    def results() -> Iterator[int]:
        with closing(Store.ahead(call, range(1000), [1] * 1000, size_bytes=4)) as found:
            yield from found

    with pytest.raises(ValueError, match="3"):
        list(results())
    assert len(begun) < 10


# --- changes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_files_of_a_change_are_fetched_side_by_side_and_once(change: str) -> None:
    store = InThreads()
    table = table_over(store)
    expected = table_over(MemoryStore())
    CHANGES[change](expected)
    fetched: Counter[str] = Counter()
    meeting = threading.Barrier(CONCURRENCY)  # passes only if so many wait for the store together

    def before(operation: str, path: str) -> None:
        if operation == "get" and is_data(path):
            fetched[path] += 1
            if sum(fetched.values()) <= CONCURRENCY:
                meeting.wait(WAIT_S)

    store.before = before
    CHANGES[change](table)
    store.before = lambda operation, path: None
    assert len(fetched) == FILES
    assert set(fetched.values()) == {1}
    found, wanted = (it.snapshot().to_arrow().sort_by("id").to_pylist() for it in (table, expected))
    assert sorted(map(str, found)) == sorted(map(str, wanted))


def test_new_files_are_closed_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # one lane
    store = InThreads()
    table = table_over(store)
    meeting = threading.Barrier(written.CLOSING_SMALL)
    count = 0

    def before(operation: str, path: str) -> None:
        nonlocal count
        if operation == "write" and is_data(path) and (count := count + 1) <= written.CLOSING_SMALL:
            meeting.wait(WAIT_S)

    store.before = before
    CHANGES["delete"](table)
    assert count == FILES


@pytest.mark.parametrize("change", CHANGES)
def test_large_files_are_read_a_few_at_a_time(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rows, rewrite):
        monkeypatch.setattr(module, "WHOLE_BYTES", 100)
    store = InThreads()
    table = table_over(store)
    lock, running, most = threading.Lock(), 0, 0

    def step(change: int) -> Callable[[str, str], None]:
        def count(operation: str, path: str) -> None:
            nonlocal running, most
            if operation == "get" and is_data(path):
                with lock:
                    running += change
                    most = max(most, running)
                time.sleep(0.0005)

        return count

    store.before, store.after = step(1), step(-1)
    CHANGES[change](table)
    assert 1 < most <= 4


@pytest.mark.parametrize("failing", [5, FILES + 5])
def test_a_file_that_cannot_be_read_ends_the_change_and_nothing_is_removed(
    failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that are looked at, or of those that are written again."""
    monkeypatch.setattr(rows, "WHOLE_BYTES", 0)  # so that none is kept for the second time
    store = InThreads()
    table = table_over(store)
    before_files = {path for path in store.objects if is_data(path)}
    fetched = 0

    def before(operation: str, path: str) -> None:
        nonlocal fetched
        if operation == "get" and is_data(path):
            fetched += 1
            if fetched >= failing:
                raise dbio.StoreError("the network is down")

    store.before = before
    for change in CHANGES.values():
        fetched = 0
        with pytest.raises(dbio.StoreError, match="the network is down"):
            change(table)
        assert fetched < failing + CONCURRENCY
    store.before = lambda operation, path: None
    assert {path for path in store.objects if is_data(path)} == before_files
    assert table.snapshot().to_arrow().num_rows == 3 * FILES


def test_rows_keep_the_order_of_their_files() -> None:
    found: list[Any] = []
    for store in (InThreads(), MemoryStore()):
        table = dbio.Table.over(store, ManualClock())
        for i in range(20):
            table.write(pa.table({"id": [3 * i, 3 * i + 1, 3 * i + 2]}))
        table.delete([("id", "in", [*range(1, 60, 3)])])
        (file,) = table.snapshot().files
        found.append(table.snapshot().to_arrow().column("id").to_pylist())
        assert file.path in store.objects
    assert found[0] == found[1]
    assert sorted(found[0]) == [i for i in range(60) if i % 3 != 1]
