"""A writer is killed before or after each of its calls to the store, one by one: nothing is lost, and life goes on.

I1, I2, I9 of PROTOCOL.md 5. A killed writer makes no call any more; whoever comes after it is another process.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import pytest

from dbio_commit.base.errors import TransactionAbortedError, TransactionStateError
from dbio_commit.commit import probe as probe_module
from dbio_commit.commit.transaction import Transaction
from dbio_commit.commit.turns import LEASE_S
from dbio_commit.protocol.directory import parse_directories
from dbio_commit.protocol.log import parse_log
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import Killed, Killer, fail_with, heal
from tests.writers import contents, live, stage

MOST_CALLS = 100


# --- the work ----------------------------------------------------------------------------------------------------

Work = Callable[[Table], Transaction]
"""Begins, stages and commits; or stages and aborts."""

NEW = {"1": b"new 1", "3": b"new 3"}


def stage_new(table: Table, transaction: Transaction) -> None:
    for day, body in NEW.items():
        stage(table, transaction, body, {"day": day})


def append(table: Table) -> Transaction:
    transaction = table.begin("append", partition_by=["day"])
    stage_new(table, transaction)
    transaction.commit()
    return transaction


def append_once(table: Table) -> Transaction:
    transaction = table.begin("append", partition_by=["day"], app=("job", 1))
    stage_new(table, transaction)
    transaction.commit()
    return transaction


def append_new_schema(table: Table) -> Transaction:
    transaction = table.begin("append", partition_by=["day"], app=("job", 1))
    stage_new(table, transaction)
    transaction.commit({"type": "struct", "fields": []})
    return transaction


def overwrite(table: Table) -> Transaction:
    transaction = table.begin("overwrite", partition_by=["day"])
    stage_new(table, transaction)
    transaction.commit()
    return transaction


def overwrite_if_same(table: Table) -> Transaction:
    transaction = table.begin("overwrite", partition_by=["day"], if_match=table.snapshot().etag)
    stage_new(table, transaction)
    transaction.commit()
    return transaction


def replace_partitions(table: Table) -> Transaction:
    transaction = table.begin("overwrite_partitions", partition_by=["day"])
    stage_new(table, transaction)
    transaction.commit()
    return transaction


def rewrite(table: Table) -> Transaction:
    transaction = table.begin("rewrite", partition_by=["day"])
    transaction.remove(sorted(path for path in live(table) if path.startswith("day=1/")))
    stage_new(table, transaction)
    transaction.commit()
    return transaction


def create(table: Table) -> Transaction:
    transaction = table.begin(partition_by=["day"], must_be_empty=True)
    stage_new(table, transaction)
    transaction.commit()
    return transaction


def give_up(table: Table) -> Transaction:
    transaction = table.begin(partition_by=["day"])
    stage_new(table, transaction)
    transaction.abort()
    return transaction


OLD = [b"old 1", b"old 2"]
BOTH = sorted([*OLD, *NEW.values()])

ON_A_TABLE = {
    "append": (append, BOTH),
    "append_once": (append_once, BOTH),
    "append_new_schema": (append_new_schema, BOTH),
    "overwrite": (overwrite, sorted(NEW.values())),
    "overwrite_if_same": (overwrite_if_same, sorted(NEW.values())),
    "overwrite_partitions": (replace_partitions, [b"new 1", b"new 3", b"old 2"]),
    "rewrite": (rewrite, [b"new 1", b"new 3", b"old 2"]),
    "give_up": (give_up, OLD),
}
ON_NOTHING = {
    "append": (append, sorted(NEW.values())),
    "append_once": (append_once, sorted(NEW.values())),
    "overwrite": (overwrite, sorted(NEW.values())),
    "create": (create, sorted(NEW.values())),
}
IDEMPOTENT = {"append_once", "append_new_schema", "overwrite", "overwrite_if_same", "overwrite_partitions", "give_up"}


class RecordingTable(Table):
    """Keeps the transactions that began, for when their writers come back from the dead."""

    def begin(self, *args: Any, **options: Any) -> Transaction:
        transaction = super().begin(*args, **options)
        self.begun.append(transaction)
        return transaction

    @cached_property
    def begun(self) -> list[Transaction]:
        return []


@dataclass
class Scene:
    """A table, the work that a writer is killed at, and what a reader may see of it."""

    name: str
    table: Table
    clock: ManualClock
    work: Work
    old: list[bytes]
    new: list[bytes]

    @property
    def store(self) -> MemoryStore:
        store = self.table.store
        assert isinstance(store, MemoryStore)
        return store

    def kill(self, at: int, *, after: bool) -> bool:
        """Whether the writer was killed: it had that many calls."""
        killer = Killer(self.store, at, after)
        try:
            self.work(self.table)
        except Killed:
            return True
        finally:
            heal(self.store)
        assert not killer.dead
        return False

    @property
    def pending(self) -> list[str]:
        return parse_log(self.store.list_log()).pending

    @property
    def begun(self) -> list[Transaction]:
        assert isinstance(self.table, RecordingTable)
        return list(self.table.begun)

    def zombies(self) -> list[Transaction]:
        """The killed writer's transaction as it would go on, where it is pending."""
        return [transaction for transaction in self.begun if transaction.tid in self.pending]


def scene(name: str, on: str) -> Scene:
    clock = ManualClock()
    table = RecordingTable.over(MemoryStore(clock), clock)
    work, new = (ON_A_TABLE if on == "table" else ON_NOTHING)[name]
    if on == "table":
        with table.begin(partition_by=["day"]) as transaction:
            stage(table, transaction, b"old 1", {"day": "1"})
            stage(table, transaction, b"old 2", {"day": "2"})
        table.begun.clear()
    return Scene(name, table, clock, work, contents(table), new)


CASES = [pytest.param(name, "table", id=f"{name} to a table") for name in ON_A_TABLE]
CASES += [pytest.param(name, "nothing", id=f"{name} to nothing") for name in ON_NOTHING]
every_case = pytest.mark.parametrize(("name", "on"), CASES)


def scenes_of_a_kill(name: str, on: str, *, least_calls: int = 8) -> Iterator[Scene]:
    """A scene of its own for a kill before, and after, each call that the work makes."""
    for at in range(MOST_CALLS):
        for after in (False, True):
            probe_module._PROBED.clear()
            found = scene(name, on)
            if not found.kill(at, after=after):
                assert at >= least_calls
                return
            yield found
    raise AssertionError(f"{name} has over {MOST_CALLS} calls")


def check_consistent(scene: Scene) -> None:
    """What markers name is there, and no file of a transaction that is not committed is live (I1)."""
    if scene.store.list_log():
        report = scene.table.check()
        assert report.ok
        tids = set(scene.table.snapshot().tids)
        assert {file.tid for file in scene.table.snapshot().files} <= tids


# --- after the kill ----------------------------------------------------------------------------------------------


@every_case
def test_a_reader_sees_exactly_the_old_or_the_new_state(name: str, on: str) -> None:  # I1, I2, I9
    seen = []
    for scene in scenes_of_a_kill(name, on):
        seen.append(contents(scene.table))
        assert seen[-1] in (scene.old, scene.new)
        check_consistent(scene)
    changes = sum(a != b for a, b in pairwise(seen))
    assert changes == (0 if name == "give_up" else 1)  # one call commits, all before it change nothing


@every_case
def test_the_same_work_succeeds_when_it_is_done_again(name: str, on: str) -> None:  # I8, I9
    for scene in scenes_of_a_kill(name, on):
        landed = contents(scene.table) == scene.new != scene.old
        if landed and name not in IDEMPOTENT:
            continue  # somebody who reads back first does not do it again
        started_s = scene.clock.monotonic()
        scene.work(scene.table)
        assert contents(scene.table) == scene.new
        assert scene.clock.monotonic() - started_s < 62  # at most the lease of the dead one
        check_consistent(scene)


@every_case
def test_anybody_may_abort_what_is_pending(name: str, on: str) -> None:  # I3, I5
    for scene in scenes_of_a_kill(name, on):
        before = contents(scene.table)
        for tid in scene.pending:
            scene.table.abort(tid)
        assert not scene.pending
        assert contents(scene.table) == before
        check_consistent(scene)
        started_s = scene.clock.monotonic()
        overwrite(scene.table)
        assert scene.clock.monotonic() == started_s  # no turn is held any more
        assert contents(scene.table) == sorted(NEW.values())


@every_case
def test_a_dead_writer_that_comes_back_after_its_abort_commits_nothing(name: str, on: str) -> None:  # I3, I5
    comebacks = 0
    for scene in scenes_of_a_kill(name, on):
        for zombie in scene.zombies():
            before = contents(scene.table)
            scene.table.abort(zombie.tid)
            with pytest.raises((TransactionAbortedError, TransactionStateError)):
                zombie.commit()
            assert contents(scene.table) == before == scene.old
            check_consistent(scene)
            comebacks += 1
    assert comebacks


@every_case
def test_a_dead_writer_that_comes_back_first_is_decided_once(name: str, on: str) -> None:  # I2, I3, I9
    committed = 0
    for scene in scenes_of_a_kill(name, on):
        for zombie in scene.zombies():
            try:
                added = set(zombie.commit().added)
            except TransactionStateError:  # it was killed between taking a file and writing it
                assert contents(scene.table) == scene.old
                continue
            assert added <= live(scene.table)
            with pytest.raises(TransactionStateError, match="is committed"):
                scene.table.abort(zombie.tid)
            check_consistent(scene)
            committed += 1
    assert committed


def test_writers_killed_in_their_turns_hold_up_the_next_for_a_lease_and_then_two(not_probed: None) -> None:  # I7, I9
    found = scene("overwrite", "table")
    for _ in range(2):
        found.store.after = fail_with(Killed(), "put_if_absent", "_serial_*")
        with pytest.raises(Killed):
            overwrite(found.table)
        heal(found.store)
    assert len(found.pending) == 1  # the second has aborted the first
    overwrite(found.table)
    assert 3 * LEASE_S <= found.clock.monotonic() < 3 * LEASE_S + 6
    assert contents(found.table) == sorted(NEW.values())


def test_a_waiter_that_is_killed_while_it_waits_holds_up_nobody(not_probed: None) -> None:  # I9
    found = scene("overwrite", "table")
    found.store.after = fail_with(Killed(), "put_if_absent", "_serial_*")
    with pytest.raises(Killed):
        overwrite(found.table)
    found.store.after = fail_with(Killed(), "get", "_serial_*")
    with pytest.raises(Killed):
        overwrite(found.table)
    heal(found.store)
    overwrite(found.table)
    assert LEASE_S <= found.clock.monotonic() < LEASE_S + 2


# --- in the directory scope --------------------------------------------------------------------------------------


def by_day(table: Table) -> dict[str | None, list[bytes]]:
    days: dict[str | None, list[bytes]] = {}
    for file in table.snapshot().files:
        days.setdefault(file.partition["day"], []).append(table.store.get(file.path))
    return {day: sorted(bodies) for day, bodies in days.items()}


def dbio_scene(name: str) -> Scene:
    clock = ManualClock()
    store = MemoryStore(clock)
    for day in ("1", "2"):
        file = f"part-00000-tid-7000000000000000001-x-{day}-0-c000.snappy.parquet"
        store.put(f"day={day}/_started_7000000000000000001")
        store.put(f"day={day}/{file}", f"old {day}".encode())
        store.put(f"day={day}/_committed_7000000000000000001", f'{{"added": ["{file}"], "removed": []}}'.encode())
    table = RecordingTable.over(store, clock)
    work, new = ON_A_TABLE[name]
    return Scene(name, table, clock, work, contents(table), new)


DIRECTORY_CASES = {
    "append": {"1": [b"new 1", b"old 1"], "2": [b"old 2"], "3": [b"new 3"]},
    "overwrite": {"1": [b"new 1"], "3": [b"new 3"]},
    "overwrite_partitions": {"1": [b"new 1"], "2": [b"old 2"], "3": [b"new 3"]},
    "rewrite": {"1": [b"new 1"], "2": [b"old 2"], "3": [b"new 3"]},
    "give_up": {"1": [b"old 1"], "2": [b"old 2"]},
}
every_directory_case = pytest.mark.parametrize(("name", "new"), list(DIRECTORY_CASES.items()))


def dbio_scenes_of_a_kill(name: str) -> Iterator[Scene]:
    for at in range(MOST_CALLS):
        for after in (False, True):
            found = dbio_scene(name)
            if not found.kill(at, after=after):
                assert at >= 10
                return
            yield found
    raise AssertionError(f"{name} has over {MOST_CALLS} calls")


@every_directory_case
def test_each_directory_of_dbio_shows_its_old_or_its_new_files(name: str, new: dict[str, list[bytes]]) -> None:  # I1
    old = {"1": [b"old 1"], "2": [b"old 2"]}
    for scene in dbio_scenes_of_a_kill(name):
        seen = by_day(scene.table)
        for day in ("1", "2", "3"):
            assert seen.get(day) in (old.get(day), new.get(day))
        if seen.get("2") != old["2"]:  # what only loses files comes last, so that nothing is lost on the way
            assert seen == new
        assert scene.table.check().ok


@every_directory_case
def test_anybody_may_abort_what_is_pending_in_directories_of_dbio(name: str, new: dict[str, list[bytes]]) -> None:
    for scene in dbio_scenes_of_a_kill(name):
        before = by_day(scene.table)
        for tid in pending_anywhere(scene):
            scene.table.abort(tid)
        assert not pending_anywhere(scene)
        assert by_day(scene.table) == before
        assert scene.table.check().ok


@every_directory_case
def test_a_dead_writer_to_directories_of_dbio_that_gives_up_deletes_no_live_file(
    name: str, new: dict[str, list[bytes]]
) -> None:  # I4, I9
    for scene in dbio_scenes_of_a_kill(name):
        before = contents(scene.table)
        for zombie in scene.begun:
            with suppress(TransactionStateError):
                zombie.abort()
        assert contents(scene.table) == before
        assert scene.table.check().ok


def test_an_overwrite_of_directories_of_dbio_succeeds_when_it_is_done_again() -> None:
    for scene in dbio_scenes_of_a_kill("overwrite"):
        overwrite(scene.table)
        assert contents(scene.table) == scene.new


def pending_anywhere(scene: Scene) -> set[str]:
    directories = parse_directories(scene.store.list_files())
    return {tid for directory in directories.values() for tid in directory.log.pending}
