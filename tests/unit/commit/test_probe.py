"""The proof that a store has put-if-absent: which stores it refuses, what it leaves there, and whom it spares.

Rules: PROTOCOL.md 4.
"""

from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from unittest.mock import patch

import pytest

from dbio_commit.base.errors import AccessDeniedError, StoreError, UnsupportedStoreError
from dbio_commit.commit import probe as probe_module
from dbio_commit.commit.probe import prove_store
from dbio_commit.store.contract import Store
from dbio_commit.store.local import LocalStore
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import WithoutPutIfAbsent, calls_to, fail_with, once
from tests.writers import contents, write


class LooksFirst(MemoryStore):
    """A store that looks whether the object is there, and writes when another caller has looked, too."""

    in_parallel = staticmethod(Store.in_parallel)

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._looked = Barrier(2)

    def put_if_absent(self, path: str, body: bytes) -> bool:
        if path in self.objects:
            return False
        with suppress(BrokenBarrierError):  # there is no other
            self._looked.wait(2)
        self.put(path, body)
        return True


@pytest.fixture
def looks_first(clock: ManualClock) -> LooksFirst:
    return LooksFirst(clock)


def test_a_store_that_ignores_put_if_absent_is_refused_and_nothing_is_left(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module, "_PROBED", set())
    store = WithoutPutIfAbsent(clock)
    for _ in range(2):
        with pytest.raises(UnsupportedStoreError, match="conditional writes"):
            Table.over(store, clock).begin()
    assert not store.objects


def test_a_table_on_a_store_that_ignores_put_if_absent_gets_no_marker(
    table: Table, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table)
    broken = WithoutPutIfAbsent(clock)
    broken.objects = dict(store.objects)
    monkeypatch.setattr(probe_module, "_PROBED", set())
    with pytest.raises(UnsupportedStoreError):
        Table.over(broken, clock).begin()
    assert broken.objects == store.objects


def test_every_store_in_memory_has_an_identity_of_its_own_so_that_each_is_probed() -> None:
    seen = set()
    for _ in range(50):
        seen.add(MemoryStore().identity)  # each is freed before the next is made
    assert len(seen) == 50


def test_a_store_that_looks_first_and_writes_then_is_refused_and_nothing_is_left(
    looks_first: LooksFirst, clock: ManualClock
) -> None:
    with pytest.raises(UnsupportedStoreError, match=r"of 4 calls create _dbio_table.*Nothing was written"):
        Table.over(looks_first, clock).begin()
    assert not looks_first.objects


def test_a_table_that_is_there_on_such_a_store_gets_no_marker(
    table: Table, store: MemoryStore, looks_first: LooksFirst, clock: ManualClock
) -> None:
    write(table)
    looks_first.objects = dict(store.objects)
    with pytest.raises(UnsupportedStoreError, match="create _started_"):
        Table.over(looks_first, clock).begin()
    assert looks_first.objects == store.objects


def test_a_writer_of_the_directory_scope_refuses_such_a_store_too(looks_first: LooksFirst, clock: ManualClock) -> None:
    looks_first.put("part-0.parquet", b"PAR1 PAR1")
    with pytest.raises(UnsupportedStoreError, match="create _started_"):
        Table.over(looks_first, clock).begin().new_file()
    assert list(looks_first.objects) == ["part-0.parquet"]


def test_who_adopts_a_directory_on_such_a_store_leaves_it_as_it_is(looks_first: LooksFirst, clock: ManualClock) -> None:
    looks_first.put("part-0.parquet", b"PAR1 PAR1")
    with pytest.raises(UnsupportedStoreError, match="create _checkpoint_"):
        Table.over(looks_first, clock).adopt()
    assert list(looks_first.objects) == ["part-0.parquet"]


def test_what_cannot_be_deleted_again_is_named(clock: ManualClock) -> None:
    store = WithoutPutIfAbsent(clock)
    store.before = fail_with(AccessDeniedError("no right to delete"), "delete", "_dbio_table")
    with pytest.raises(UnsupportedStoreError, match=r"Only _dbio_table was written, .*no right to delete"):
        Table.over(store, clock).begin()
    assert list(store.objects) == ["_dbio_table"]


def test_who_vacuums_proves_less_than_a_writer_of_the_same_process_needs(
    table: Table, store: MemoryStore, looks_first: LooksFirst, clock: ManualClock
) -> None:
    write(table)
    looks_first.objects = dict(store.objects)
    prove_store(looks_first)
    with calls_to(looks_first) as calls:
        prove_store(looks_first)
    assert not calls
    with pytest.raises(UnsupportedStoreError):
        Table.over(looks_first, clock).begin()


def test_a_writer_has_proved_enough_for_its_vacuum(table: Table, store: MemoryStore) -> None:
    write(table)
    with calls_to(store) as calls:
        prove_store(store)
    assert not calls


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_answers_that_are_lost_in_the_race_cost_an_error_and_no_proof(
    store: MemoryStore, table: Table, lost: int
) -> None:
    """In memory, callers come one after the other, and the first wins."""
    store.after = fail_with(StoreError("the answer was lost"), "put_if_absent", "_dbio_table", times=lost)
    with pytest.raises(StoreError, match="the answer was lost"):
        table.begin()
    assert store.identity not in probe_module._PROBED
    assert write(table)
    assert store.identity in probe_module._PROBED
    assert contents(table)


def test_a_caller_whom_the_store_fails_in_the_race_says_so(store: MemoryStore, table: Table) -> None:
    def fail() -> None:
        raise StoreError("a proxy gave up")

    store.before = once("put_if_absent", "_dbio_table", fail, nth=3)
    with pytest.raises(StoreError, match=r"cannot prove that .* refuses to create _dbio_table twice.*gave up"):
        table.begin()
    assert write(table)


def test_on_a_disk_nobody_races_since_its_link_is_atomic(tmp_path: Path) -> None:
    table, put, calls = Table(tmp_path), LocalStore.put_if_absent, list[str]()

    def counted(self: LocalStore, path: str, body: bytes) -> bool:
        calls.append(path.rstrip("0123456789"))
        return put(self, path, body)

    with patch.object(LocalStore, "put_if_absent", counted):
        table.begin()
    assert calls == ["_dbio_table", "_dbio_table", "_started_"]
