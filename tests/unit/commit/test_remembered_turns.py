"""What a process remembers of a table's turns is no older than the table, whatever became of their objects.

Rules: PROTOCOL.md 8.1.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dbio_commit.base.errors import DbioError, StoreError
from dbio_commit.commit.turns import take_turn
from dbio_commit.log import listing
from dbio_commit.log import seen as memory
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.store.local import LocalStore
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import fail_with, heal, once
from tests.writers import live, stage, write, write_days

HOUR = timedelta(hours=1)


class OtherMachine(ManualClock):
    """Of a process that remembers for itself: memory is kept by machine."""

    def boot(self) -> str:
        return "another"


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    memory._SEEN.clear()
    yield
    memory._SEEN.clear()


@pytest.fixture
def other(store: MemoryStore, clock: ManualClock) -> Table:
    """The same table, as a process on another machine sees it."""
    theirs = OtherMachine(clock.now())
    theirs.__dict__ = clock.__dict__  # one time for both
    return Table.over(store, theirs)


def turns(store: MemoryStore) -> list[str]:
    return sorted(path for path in store.objects if path.startswith("_serial_"))


def remember_a_turn(table: Table) -> str:
    """The table has the partition columns `day`, and this process knows so as of a turn; its object's name."""
    write_days(table, a=b"1")
    table.clock.sleep(10)
    write_days(table, "overwrite", a=b"2")
    (seen,) = memory._SEEN.values()
    assert seen.layout == ("day",)
    return names.turn(seen.metadata.turn)


def move(table: Table) -> None:
    """Two more turns, of which the last changes the partition columns."""
    write_days(table, "overwrite", a=b"3")
    transaction = table.begin("overwrite", partition_by=["hour"])
    stage(table, transaction, b"4", {"hour": "1"})
    transaction.commit()


def test_a_purge_that_leaves_a_gap_among_the_turns_hides_none_after_it(
    table: Table, store: MemoryStore, clock: ManualClock, other: Table
) -> None:
    mine = remember_a_turn(table)
    move(other)
    clock.advance(50 * HOUR)
    store.before = fail_with(StoreError("503 Slow Down"), "delete", mine, times=None)
    for _ in range(2):
        vacuum_table(other, VacuumOptions(checkpoint_after=0))
        clock.advance(HOUR)
    heal(store)
    assert turns(store) == [mine, names.turn(int(mine[-20:]) + 2)], "one between is gone, and this one is not"
    transaction = table.begin()
    assert transaction.terms.partition_columns == ("hour",)
    stage(table, transaction, b"5", {"hour": "2"})
    transaction.commit()
    assert len(live(table)) == 2


def test_a_setting_that_came_with_a_purged_turn_is_known(
    table: Table, store: MemoryStore, clock: ManualClock, other: Table
) -> None:
    write(table, schema=columns("a"))
    clock.advance(HOUR)
    write(table, "overwrite", schema=columns("a"))
    (seen,) = memory._SEEN.values()
    mine = names.turn(seen.metadata.turn)
    for text in ("true", "", "true"):
        other.set({"change_data": text})
    clock.advance(2 * HOUR)
    store.before = fail_with(StoreError("503 Slow Down"), "delete", mine, times=None)
    for _ in range(2):
        vacuum_table(other, VacuumOptions(checkpoint_after=0))
        clock.advance(HOUR)
    heal(store)
    assert table.begin().terms.metadata.settings == {"change_data": "true"}


def test_a_turn_that_was_taken_anew_after_a_backup_came_back_is_another(
    table: Table, store: MemoryStore, clock: ManualClock, other: Table
) -> None:
    remember_a_turn(table)
    backup = dict(store.objects)  # as `cp -a` and snapshots of a disk make one
    clock.advance(HOUR)
    write_days(table, "overwrite", a=b"3")
    (seen,) = memory._SEEN.values()
    store.objects = dict(backup)
    clock.advance(HOUR)
    transaction = other.begin("overwrite", partition_by=["hour"])
    stage(other, transaction, b"4", {"hour": "1"})
    transaction.commit()
    assert names.turn(seen.metadata.turn) in store.objects, "of the number that this process remembers"
    assert table.begin().terms.partition_columns == ("hour",)


@pytest.mark.parametrize("after", range(1, 14))
def test_nobody_spins_where_a_holder_is_gone_who_was_to_change_the_partition_columns(
    table: Table, store: MemoryStore, clock: ManualClock, other: Table, after: int
) -> None:
    remember_a_turn(table)
    clock.advance(HOUR)
    backup = dict(store.objects)
    holder = other.begin("overwrite", partition_by=["hour"])
    take_turn(store, other.clock, holder.tid, origin=holder.terms.origin, new_layout=True)
    calls = 0

    def step(operation: str, path: str) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            store.objects = dict(backup)
        assert calls < 100, "it asks on and on"

    store.before = step
    assert table.begin().terms.partition_columns == ("day",)


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table of which this process remembers a turn."""
    monkeypatch.setattr(listing, "SAME_SECOND", timedelta(0))  # so that what is there is remembered at once
    table = Table.over(Table(tmp_path / "table").store)
    write(table, schema=columns("a"))
    write(table, "overwrite", schema=columns("a"))
    return table


def elsewhere(table: Table, *names: str) -> int:
    """Another process makes a turn for each of these columns. Returns the turn that this process remembers."""
    (seen,) = memory._SEEN.values()
    kept = dict(memory._SEEN)
    for name in names:
        write(table, "overwrite", schema=columns(name))
    memory._SEEN.clear()
    memory._SEEN.update(kept)
    return seen.metadata.turn


def look_long_ago() -> None:
    ((key, seen),) = memory._SEEN.items()
    assert seen.looked is not None
    looked = replace(seen.looked, monotonic_s=seen.looked.monotonic_s - 20 * 60)
    memory._SEEN[key] = replace(seen, looked=looked)


def test_on_a_disk_a_purge_between_two_looks_hides_no_turn(on_disk: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = elsewhere(on_disk, "b", "c")
    look_long_ago()  # a purge leaves the turns of the last half hour alone
    listed = LocalStore.list_log_from

    def purge_first(self: LocalStore, name: str, prefix: str) -> object:
        self.delete_many([names.turn(number) for number in range(1, mine + 2) if number != mine])
        return listed(self, name, prefix)

    monkeypatch.setattr(LocalStore, "list_log_from", purge_first)
    assert on_disk.begin().terms.metadata.schema == columns("c")
    assert not on_disk.store.stat_log(names.turn(mine + 1)), "the purge took place"


@pytest.mark.parametrize("others", [(), ("b",), ("b", "c")])
def test_on_a_disk_a_process_that_has_looked_not_long_ago_lists_nothing(
    on_disk: Table, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    elsewhere(on_disk, *others)
    listings: list[str] = []

    def noted(_: LocalStore, *prefixes: str) -> list[Entry]:
        listings.extend(prefixes)
        return []

    monkeypatch.setattr(LocalStore, "list_log", noted)
    assert on_disk.begin().terms.metadata.schema == columns(*(others or ("a",))[-1:])
    assert listings == []


def test_on_a_disk_a_process_that_has_not_looked_for_long_lists_the_turns(
    on_disk: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_long_ago()
    listed, listings = LocalStore.list_log, list[str]()

    def list_log(self: LocalStore, *prefixes: str) -> object:
        listings.extend(prefixes)
        return listed(self, *prefixes)

    monkeypatch.setattr(LocalStore, "list_log", list_log)
    on_disk.begin()
    on_disk.begin()
    assert listings == ["_serial_"]


def test_a_turn_that_was_purged_and_taken_again_says_nothing_of_the_columns(
    store: MemoryStore, clock: ManualClock
) -> None:
    """A writer that stood still takes it, whose listing showed no turn. It aborts, and changes nothing."""
    table = Table.over(store, clock)
    write(table, "overwrite", schema=columns("a"))
    holder, late = table.begin("overwrite"), table.begin("overwrite")
    stage(table, holder)

    def take_again() -> None:
        clock.advance(HOUR)
        turn = store.get(names.turn(2)).replace(holder.tid.encode(), late.tid.encode())
        store.put(names.turn(1), turn)
        late.abort()
        memory._SEEN.clear()
        assert table.begin().terms.metadata.schema == columns("a")

    store.before = once("put_if_absent", names.committed(holder.tid), take_again)
    with suppress(DbioError):
        holder.commit()
    assert table.snapshot().schema == columns("a")


def test_a_writer_that_took_a_purged_turn_again_is_not_called_decided(store: MemoryStore, clock: ManualClock) -> None:
    """It dies before it takes another turn. Vacuum aborts it, as all others."""
    table = Table.over(store, clock)
    write(table)
    dead = table.begin("overwrite")
    store.before = fail_with(StoreError(), "put_if_absent", names.committed(dead.tid), times=None)
    with suppress(DbioError):
        dead.commit()
    heal(store)
    table.abort(dead.tid)
    own = write(table, "overwrite").tid
    late = table.begin("overwrite")
    clock.advance(HOUR)
    store.put(names.turn(1), store.get(names.turn(2)).replace(own.encode(), late.tid.encode()))
    clock.advance(timedelta(days=8))
    assert vacuum_table(table, VacuumOptions()).aborted == [late.tid]
