"""Joint transactions: all of their tables have them, or none. Rules: PROTOCOL.md 15."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dbio_commit as dbio
from dbio_commit import (
    AppVersionError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    Snapshot,
    StoreError,
    Table,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.commit.decision import carry_out_everywhere
from dbio_commit.commit.joint import JointCommit
from dbio_commit.data.footers import inspect_files
from dbio_commit.maintenance.copy import copy_table
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.store import local
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import Killed, fail_with, heal, once
from vacuum import vacuum_table

NAMES = ("orders", "customers", "rates")


@dataclass
class Lake:
    """Tables beside one another, each with one row."""

    count: int = 2
    clock: ManualClock = field(default_factory=ManualClock)
    stores: dict[str, MemoryStore] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in NAMES[: self.count]:
            MemoryStore(self.clock, url=f"s3://lake/{name}", lake=self.stores)
            self[name].write(pa.table({"id": [0]}))
        self.clock.sleep(300)

    @property
    def tables(self) -> list[Table]:
        return [self[name] for name in NAMES[: self.count]]

    def __getitem__(self, name: str) -> Table:
        return Table.over(self.stores[f"s3://lake/{name}"], self.clock, inspector=inspect_files)

    def watch(self, before: Callable[[str, str], None], after: Callable[[str, str], None] | None = None) -> None:
        """Calls these around each call to any of the stores."""
        for store in self.stores.values():
            store.before, store.after = before, after or store.after

    def heal(self) -> None:
        for store in self.stores.values():
            heal(store)

    def rows(self) -> list[list[int]]:
        return [ids(it) for it in self.tables]

    def cut(self) -> list[list[int]]:
        found = dbio.snapshots(self.tables)
        return [ids(it) for it in found]

    def vacuum(self, tables: Sequence[Table] | None = None, *, times: int = 1) -> None:
        for table in self.tables if tables is None else tables:
            for _ in range(times):
                vacuum_table(table, VacuumOptions(checkpoint_after=0))

    def pending(self) -> list[str]:
        return [tid for it in self.tables for tid in it.snapshot().log.pending]


def write(lake: Lake, id: int = 1, **options: Any) -> dbio.JointTransaction:
    """Puts a row into each table."""
    with dbio.transaction(**options) as tx:
        for table in lake.tables:
            tx.write(pa.table({"id": [id]}), table)
    return tx


def together(*steps: Callable[[dbio.JointTransaction], object], **options: Any) -> None:
    """A joint transaction of these steps."""
    with dbio.transaction(**options) as tx:
        for step in steps:
            step(tx)


def fail(tx: dbio.JointTransaction) -> None:
    raise ZeroDivisionError


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids})


def ids(of: Table | Snapshot) -> list[int]:
    """The rows of a table, or of one state of it."""
    found: list[Any] = of.to_arrow()["id"].to_pylist()
    return sorted(found)


@dataclass
class Death:
    """The process dies before or after its call of this number, and makes none thereafter."""

    number: int
    after: bool
    calls: int = 0
    is_dead: bool = False

    def before(self, operation: str, path: str) -> None:
        self.calls += 1
        if self.is_dead or (self.calls > self.number and not self.after):
            self.die()

    def then(self, operation: str, path: str) -> None:
        if self.calls > self.number:
            self.die()

    def die(self) -> None:
        self.is_dead = True
        raise Killed


def calls_of(build: Callable[[], Lake], act: Callable[[Lake], object]) -> int:
    lake, death = build(), Death(10**9, after=False)
    lake.watch(death.before)
    act(lake)
    return death.calls


# --- the use --------------------------------------------------------------------------------------------------------


def test_all_tables_get_the_commit_with_one_tid() -> None:
    lake = Lake(3)
    tx = write(lake, message="a batch")
    assert lake.rows() == [[0, 1]] * 3
    (tid,) = {commit.tid for commit in tx.commits.values()}
    assert list(tx.commits) == [it.url for it in lake.tables] or {*tx.commits} == {it.url for it in lake.tables}
    for table in lake.tables:
        newest = table.history()[0]
        assert (newest.tid, newest.message) == (tid, "a batch")
        assert table.check().ok


def test_an_operation_of_each_kind_is_part_of_it() -> None:
    lake = Lake(3)
    orders, customers, rates = lake.tables
    with dbio.transaction() as tx:
        tx.delete(orders, "id = 0")
        tx.merge(pa.table({"id": [0, 7]}), customers, on="id")
        tx.update(rates, {"id": "id + 5"})
    assert lake.rows() == [[], [0, 7], [5]]
    with dbio.transaction() as tx:
        tx.replace(pa.table({"id": [9]}), rates, "id > 4")
        tx.write(pa.table({"id": [3]}), customers, "overwrite")
    assert lake.rows() == [[], [3], [9]]


def test_a_block_that_raises_commits_nothing_and_leaves_nothing_pending() -> None:
    lake = Lake()
    orders, customers = lake.tables
    with pytest.raises(ZeroDivisionError):
        together(lambda tx: tx.write(rows(1), orders), lambda tx: tx.write(rows(1), customers), fail)
    assert lake.rows() == [[0], [0]]
    assert not lake.pending()


def test_a_conflict_in_one_table_aborts_all() -> None:
    lake = Lake()
    orders, customers = lake.tables
    with pytest.raises(CommitConflictError, match="customers"):
        together(
            lambda tx: tx.write(rows(1), orders),
            lambda tx: tx.delete(customers, "id = 0"),
            lambda tx: customers.update({"id": "id + 5"}),
        )
    assert lake.rows() == [[0], [5]]
    assert not lake.pending()


def test_a_function_is_called_again_after_a_conflict() -> None:
    lake, called = Lake(), list[int]()
    orders, customers = lake.tables

    def move(tx: dbio.JointTransaction) -> None:
        called.append(1)
        rows = customers.to_arrow()
        tx.write(rows, orders)
        tx.delete(customers, "id >= 0")
        if len(called) == 1:
            customers.update({"id": "id + 5"})

    commits = dbio.transact(move, retries=3)
    assert len(commits) == 2
    assert len(called) == 2
    assert lake.rows() == [[0, 5], []]


@pytest.mark.parametrize("order", [1, -1])
def test_a_table_that_is_left_as_it_is_has_no_version_of_the_application(order: int) -> None:
    lake = Lake()
    tables = lake.tables[::order]
    for expected in (1, 0):
        with dbio.transaction(app=("job", 1)) as tx:
            tx.write(rows(1), tables[0])
            tx.write(rows(1), tables[1], "ignore")
        assert len(tx.commits) == expected
    assert [ids(it) for it in tables] == [[0, 1], [0]]
    assert not lake.pending()


def test_what_was_read_elsewhere_can_be_required() -> None:
    lake = Lake(3)
    orders, customers, rates = lake.tables
    seen = rates.snapshot()
    with dbio.transaction() as tx:
        tx.write(rows(1), orders)
        tx.write(rows(1), customers)
        tx.require(rates, seen)
    assert rates.history()[0].added_files == 0
    seen = rates.snapshot()
    rates.write(pa.table({"id": [2]}))
    with pytest.raises(CommitConflictError, match="rates"):
        together(lambda tx: tx.write(pa.table({"id": [9]}), orders), lambda tx: tx.require(rates, seen))
    assert lake.rows() == [[0, 1], [0, 1], [0, 2]]


def test_an_application_commits_its_version_to_all_tables_once() -> None:
    lake = Lake()
    assert len(write(lake, app=("job", 1)).commits) == 2
    assert write(lake, app=("job", 1)).commits == {}
    assert lake.rows() == [[0, 1], [0, 1]]
    assert not lake.pending()
    lake["orders"].write(pa.table({"id": [5]}), app=("job", 2))
    with pytest.raises(AppVersionError, match=r"version 2 to s3://lake/orders, and not to s3://lake/customers"):
        write(lake, app=("job", 2))
    assert lake.rows() == [[0, 1, 5], [0, 1]]
    assert not lake.pending()


def test_what_cannot_be_joined_is_refused() -> None:
    lake = Lake()
    orders, customers = lake.tables
    other = Table.over(MemoryStore(lake.clock, url="s3://other/t"), lake.clock)
    for match, step in {
        "one operation for each table": lambda tx: tx.delete(orders, "id = 0"),
        "different stores": lambda tx: tx.write(rows(1), other),
        "changes the partition columns": lambda tx: tx.write(
            pa.table({"id": [1], "day": ["x"]}), customers, "overwrite", partition_by=["day"]
        ),
    }.items():
        with pytest.raises(InvalidInputError, match=match):
            together(lambda tx: tx.write(rows(1), orders), step)
    assert not other.store.list_log()
    with pytest.raises(TransactionStateError, match="within its block"):
        dbio.transaction().write(rows(1), orders)
    assert lake.rows() == [[0], [0]]
    assert not lake.pending()


def test_a_write_by_itself_does_not_join() -> None:
    lake = Lake()
    orders, customers = lake.tables
    with pytest.raises(ZeroDivisionError):
        together(lambda tx: tx.write(rows(1), orders), lambda tx: customers.write(rows(2)), fail)
    assert lake.rows() == [[0], [0, 2]]


# --- deaths ---------------------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[Lake], object]] = {
    "vacuums": lambda lake: lake.vacuum(),
    "vacuums, the other way": lambda lake: lake.vacuum(lake.tables[::-1]),
    "writers": lambda lake: [it.update({"id": "id"}) for it in lake.tables],
    "aborts": lambda lake: _abort_all(lake.tables[::-1]),
}
"""Who ends what a dead writer has left."""


def _write_one(table: Table, tx: dbio.JointTransaction) -> None:
    tx.write(rows(1), table)


def _abort_pending(table: Table, tx: dbio.JointTransaction) -> None:
    (tid,) = table.snapshot().log.pending
    table.abort(tid)


def _abort_all(tables: Sequence[Table]) -> None:
    for table in tables:
        for tid in table.snapshot().log.pending:
            with suppress(TransactionStateError):
                table.abort(tid)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_all_tables_have_it_or_none_whenever_its_writer_dies(end: str, after: bool) -> None:
    ends = set[bool]()
    for number in range(calls_of(Lake, write)):
        lake, death = Lake(), Death(number, after)
        lake.watch(death.before, death.then)
        with pytest.raises(Killed):
            write(lake)
        lake.heal()
        assert lake.cut() in ([[0], [0]], [[0, 1], [0, 1]]), number
        seen = lake.cut()
        lake.clock.sleep(8 * 24 * 3600 if "vacuum" in end else 600)
        ENDS[end](lake)
        assert lake.rows() == lake.cut() == seen, number
        assert all(it.check().ok for it in lake.tables), number
        ends.add(seen == [[0, 1], [0, 1]])
        for _ in range(3):
            lake.clock.sleep(40 * 24 * 3600)
            lake.vacuum(times=2)
        assert lake.rows() == lake.cut() == seen, number
        assert not lake.pending(), number
    assert ends == {False, True}


@pytest.mark.parametrize("lost", [False, True], ids=["not applied", "answer lost"])
def test_all_tables_have_it_or_none_whichever_call_fails(lost: bool) -> None:
    for number in range(calls_of(Lake, write)):
        lake, calls = Lake(), [0]

        def fail(operation: str, path: str, number: int = number, calls: list[int] = calls) -> None:
            calls[0] += 1
            if calls[0] == number + 1:
                raise dbio.StoreError("the store is away")

        lake.watch(*((lambda o, p: None, fail) if lost else (fail,)))
        outcome: bool | None = None
        try:
            write(lake)
            outcome = True
        except CommitStateUnknownError:
            pass
        except DbioError:
            outcome = False
        lake.heal()
        lake.clock.sleep(8 * 24 * 3600)
        lake.vacuum(times=2)
        assert lake.rows() in ([[0], [0]], [[0, 1], [0, 1]]), number
        if outcome is not None:
            assert (lake.rows() == [[0, 1], [0, 1]]) == outcome, number
        assert not lake.pending(), number


def test_a_reader_sees_all_or_nothing_between_any_two_calls_of_a_writer() -> None:
    for number in range(calls_of(Lake, write)):
        lake, cuts, calls = Lake(), list[list[list[int]]](), [0]

        def look(operation: str, path: str, lake: Lake = lake, cuts: Any = cuts, calls: Any = calls) -> None:
            calls[0] += 1
            if calls[0] == number + 1:  # noqa: B023
                lake.heal()
                cuts.append(lake.cut())
                lake.watch(look)

        lake.watch(look)
        write(lake)
        assert cuts[0] in ([[0], [0]], [[0, 1], [0, 1]]), number


def test_a_writer_sees_all_or_nothing_between_any_two_calls_of_a_cut() -> None:
    """The writer acts as a whole within the cut, and dies at any call of its own."""
    most = calls_of(Lake, lambda lake: lake.cut())
    for number in range(most):
        for dies in range(0, calls_of(Lake, write), 3):
            lake, calls, death = Lake(), [0], Death(dies, after=False)

            def act(operation: str, path: str, lake: Lake = lake, calls: Any = calls, death: Death = death) -> None:
                calls[0] += 1
                if calls[0] == number + 1:  # noqa: B023
                    lake.heal()
                    lake.watch(death.before, death.then)
                    with suppress(Killed):
                        write(lake)
                    lake.heal()

            lake.watch(act)
            assert lake.cut() in ([[0], [0]], [[0, 1], [0, 1]]), (number, dies)


def test_a_table_that_cannot_show_the_commit_yet_is_named() -> None:
    lake = Lake()
    customers = lake.stores["s3://lake/customers"]
    customers.before = fail_with(dbio.StoreError("away"), "put_if_absent", "_committed_*", times=None)
    with pytest.raises(CommitStateUnknownError, match=r"is committed, and s3://lake/customers does not show it yet"):
        write(lake)
    lake.heal()
    assert lake.cut() == [[0, 1], [0, 1]]
    lake.vacuum([lake["customers"]])
    assert lake.rows() == [[0, 1], [0, 1]]


def test_a_table_in_which_it_was_aborted_alone_under_way_is_named_as_one_that_lacks_it() -> None:
    lake = Lake()

    def abort() -> None:
        (tid,) = {*lake.pending()}
        lake["customers"].abort(tid, alone=True)

    lake.stores["s3://lake/orders"].before = once("put_if_absent", "_committed_*", abort)
    with pytest.raises(CommitStateUnknownError, match=r"is committed, and s3://lake/customers lacks it for good"):
        write(lake)
    assert lake.rows() == [[0, 1], [0]]


def test_a_commit_that_is_refused_like_its_abort_is_of_unknown_state() -> None:
    lake = Lake()
    refuse = fail_with(dbio.AccessDeniedError("403"), "put_if_absent", "_committed_*", times=None)
    lake.stores["s3://lake/orders"].before = refuse
    with pytest.raises(CommitStateUnknownError, match=r"refused, and so was its abort.*dbio abort s3://lake/orders"):
        write(lake)
    lake.heal()
    lake.stores["s3://lake/orders"].before = fail_with(dbio.AccessDeniedError("403"), "put_if_absent", "_committed_*")
    with pytest.raises(dbio.AccessDeniedError):
        write(lake)


# --- what is left of a dead writer ----------------------------------------------------------------------------------


def decided_at_home(count: int = 2) -> tuple[Lake, str]:
    """The writer has died when it had decided, before it put any other marker. Also the tid."""
    lake, death = Lake(count), Death(10**9, after=False)

    def die(operation: str, path: str) -> None:
        if operation == "put_if_absent" and names.is_joint(path.removeprefix("_committed_")):
            death.die()

    lake.watch(death.before, die)
    with pytest.raises(Killed):
        write(lake)
    lake.heal()
    (tid,) = {*lake.pending()}
    assert lake.rows() == [[0, 1]] + [[0]] * (count - 1)
    return lake, tid


def test_a_cut_has_what_its_home_has_decided() -> None:
    lake, tid = decided_at_home(3)
    assert lake.cut() == [[0, 1]] * 3
    _, customers, rates = lake.tables
    assert [it.tids[-1] for it in dbio.snapshots([customers, rates])] != [tid] * 2  # none of these has it
    lake.clock.sleep(600)
    lake.vacuum([customers])
    assert [ids(it) for it in dbio.snapshots([rates, customers])] == [[0, 1]] * 2


def test_a_cut_has_nothing_of_what_one_table_has_aborted_and_another_not_yet() -> None:
    lake, death = Lake(), Death(10**9, after=False)
    lake.watch(death.before)
    with pytest.raises(Killed):
        together(*(partial(_write_one, it) for it in lake.tables), lambda tx: death.die())
    lake.heal()
    (tid,) = {*lake.pending()}
    lake["orders"].abort(tid)
    assert lake.pending() == [tid]
    assert lake.cut() == [[0], [0]]


def test_a_cut_that_stands_still_while_markers_are_purged_begins_again() -> None:
    lake, _ = decided_at_home()
    store = lake.stores["s3://lake/customers"]

    def purge(operation: str, path: str) -> None:
        if (operation, path) != ("list_log", "_committed_ _started_"):
            return
        lake.heal()
        for _ in range(4):
            lake.clock.sleep(3 * 24 * 3600)
            lake.vacuum()
        assert not any(names.is_joint(it.removeprefix("_committed_")) for it in store.objects)

    store.before = purge
    assert lake.cut() == [[0, 1], [0, 1]]


def test_a_start_marker_is_taken_for_its_own_if_the_second_attempt_of_its_request_found_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = Lake()
    for store in lake.stores.values():
        put = store.put_if_absent

        def put_twice(path: str, body: bytes, put: Callable[[str, bytes], bool] = put) -> bool:
            return put(path, body) and not path.startswith("_started_")

        monkeypatch.setattr(store, "put_if_absent", put_twice)
    write(lake)
    assert lake.rows() == [[0, 1], [0, 1]]
    assert not lake.pending()


def test_a_cut_as_of_a_time_between_is_refused_and_as_of_its_tid_is_not() -> None:
    lake, tid = decided_at_home()
    lake.clock.sleep(600)
    lake.vacuum()
    between = lake.clock.now() - timedelta(seconds=300)
    with pytest.raises(InvalidInputError, match=rf"joint transaction {tid} was being committed: .*customers did not"):
        dbio.snapshots(lake.tables, as_of=between)
    found = dbio.snapshots(lake.tables, as_of=tid)
    assert [ids(it) for it in found] == [[0, 1]] * 2
    before = dbio.snapshots(lake.tables, as_of=between - timedelta(seconds=400))
    assert [ids(it) for it in before] == [[0]] * 2
    with pytest.raises(InvalidInputError, match="a tid belongs to one table"):
        dbio.snapshots(lake.tables, as_of=lake["orders"].history()[-1].tid)


def test_a_transaction_that_is_decided_cannot_be_aborted_anywhere() -> None:
    for table in (0, 1):
        lake, tid = decided_at_home()
        with pytest.raises(TransactionStateError, match="is committed"):
            lake.tables[table].abort(tid)
        lake.vacuum()
        assert lake.rows() == [[0, 1], [0, 1]]


def test_an_abort_in_one_table_aborts_it_in_all() -> None:
    for table in (0, 1):
        lake = Lake()
        orders, customers = lake.tables
        aborts = partial(_abort_pending, lake.tables[table])
        with pytest.raises(TransactionAbortedError):
            together(partial(_write_one, orders), partial(_write_one, customers), aborts)
        assert lake.rows() == [[0], [0]]
        assert not lake.pending()


def test_the_home_keeps_its_markers_until_all_tables_have_the_commit() -> None:
    lake, tid = decided_at_home()
    orders, customers = lake.tables
    closed = fail_with(dbio.AccessDeniedError("no"), "put_if_absent", "_committed_*", times=None)
    lake.stores[customers.url].before = closed
    for _ in range(4):
        lake.clock.sleep(40 * 24 * 3600)
        report = vacuum_table(orders, VacuumOptions(checkpoint_after=0))
    assert ["another table needs its decision" in it.message for it in report.failed] == [True]
    assert names.committed(tid) in lake.stores[orders.url].objects
    lake.heal()
    lake.vacuum([orders])
    assert lake.rows() == [[0, 1], [0, 1]]
    assert names.committed(tid) not in lake.stores[orders.url].objects


def test_a_home_that_forgets_while_it_is_asked_has_done_what_it_decided() -> None:
    lake, tid = decided_at_home()
    orders, customers = lake.tables

    def forget(operation: str, path: str) -> None:
        if (operation, path) == ("get", names.committed(tid)):
            lake.heal()
            for _ in range(4):
                lake.clock.sleep(3 * 24 * 3600)
                lake.vacuum([orders])
            assert not any(names.is_joint(it.removeprefix("_committed_")) for it in lake.stores[orders.url].objects)

    lake.stores[orders.url].before = forget
    with pytest.raises(TransactionStateError, match="is committed"):
        customers.abort(tid)
    assert lake.rows() == [[0, 1], [0, 1]]


def test_a_dropped_table_needs_no_decision() -> None:
    lake, tid = decided_at_home()
    orders, customers = lake.tables
    customers.drop(everything=True)
    for _ in range(4):
        lake.clock.sleep(40 * 24 * 3600)
        lake.vacuum([orders])
    assert names.committed(tid) not in lake.stores[orders.url].objects
    assert orders.check().ok


def test_a_home_that_is_dropped_commits_first_what_it_has_decided() -> None:
    lake, _ = decided_at_home()
    orders, customers = lake.tables
    orders.drop(everything=True)
    assert ids(customers) == [0, 1]
    assert not customers.snapshot().log.pending


def test_what_is_decided_in_a_table_needs_no_home_any_more() -> None:
    lake = Lake()
    tid = next(iter(write(lake).commits.values())).tid
    lake.stores["s3://lake/orders"].objects.clear()
    with pytest.raises(TransactionStateError, match="is committed"):
        lake["customers"].abort(tid)


def test_a_writer_whose_home_is_dropped_as_it_commits_does_not_report_that_nothing_was_committed() -> None:
    lake = Lake()
    orders = lake.stores["s3://lake/orders"]

    def stand_still(operation: str, path: str) -> None:
        if operation == "put_if_absent" and names.is_joint(path.removeprefix("_committed_")):
            lake.heal()
            lake.clock.sleep(3600)
            lake["orders"].drop(everything=True)
            lake["orders"].write(pa.table({"id": [7]}))

    orders.after = stand_still
    with pytest.raises(CommitStateUnknownError):
        write(lake)
    assert lake.rows() == [[7], [0, 1]]


@pytest.mark.parametrize("turns", [0, 1, 2], ids=["in the block", "in the first turn", "in the last turn"])
def test_a_writer_whose_home_is_dropped_before_it_commits_leaves_nothing_pending(turns: int) -> None:
    """Nobody else could end it: only this process knows that its home has decided nothing."""
    lake = Lake()
    orders, customers = lake.tables

    taken = list[str]()

    def drop(*arguments: object) -> None:
        lake.heal()
        orders.drop(everything=True)

    def drop_in_turns(operation: str, path: str) -> None:
        if (operation, path[:8]) == ("put_if_absent", "_serial_"):
            taken.append(path)
            if len(taken) == turns:
                drop()

    lake.watch(lambda operation, path: None, drop_in_turns)
    with pytest.raises((CommitConflictError, TransactionAbortedError)):
        together(partial(_write_one, orders), partial(_write_one, customers), *([] if turns else [drop]))
    assert not customers.snapshot().log.pending
    customers.update({"id": "id + 5"})
    assert ids(customers) == [5]


def test_a_home_that_is_gone_is_named_and_can_be_done_without() -> None:
    lake, tid = decided_at_home()
    orders, customers = lake.tables
    kept = dict(lake.stores[orders.url].objects)
    lake.stores[orders.url].objects.clear()
    lake.clock.sleep(8 * 24 * 3600)
    report = vacuum_table(customers, VacuumOptions())
    assert any("s3://lake/orders decides, and that table is gone" in it.message for it in report.failed)
    with pytest.raises(CorruptMarkerError, match=rf"dbio abort s3://lake/customers {tid} --alone"):
        customers.abort(tid)
    lake.stores[orders.url].objects.update(kept)
    lake.vacuum([customers])
    assert lake.rows() == [[0, 1], [0, 1]]

    lake, tid = decided_at_home()
    lake.stores["s3://lake/orders"].objects.clear()
    lake["customers"].abort(tid, alone=True)
    assert not lake["customers"].snapshot().log.pending


def test_a_copy_of_a_whole_lake_decides_by_itself() -> None:
    lake, _ = decided_at_home()
    copy = Lake(0, clock=lake.clock)
    for name in NAMES[:2]:
        store = MemoryStore(lake.clock, url=f"s3://lake/copy/{name}", lake=copy.stores)
        store.objects.update(lake.stores[f"s3://lake/{name}"].objects)
    copied = Table.over(copy.stores["s3://lake/copy/customers"], lake.clock, inspector=inspect_files)
    vacuum_table(copied, VacuumOptions())
    assert ids(copied) == [0, 1]


def test_a_home_that_is_reached_by_a_link_commits_to_its_other_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its vacuum would purge the decision otherwise, and the other table would abort."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    orders, customers = (Table(tmp_path / "real" / name) for name in NAMES[:2])
    (tid,) = {it.tid for it in _die_when_decided(orders, customers, monkeypatch)}
    carry_out_everywhere(Table(tmp_path / "link" / "orders").store, tid)
    assert ids(customers) == [1]


def test_a_table_that_is_not_mounted_beside_the_home_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that sees the home only. Its vacuum would purge the decision."""
    orders, customers = (Table(tmp_path / name) for name in NAMES[:2])
    (tid,) = {it.tid for it in _die_when_decided(orders, customers, monkeypatch)}
    away = (tmp_path / "customers").rename(tmp_path / "away")
    with monkeypatch.context() as patch:
        patch.setattr(local, "find_mount", lambda path: path)
        with pytest.raises(StoreError, match="lie on two mounts"):
            carry_out_everywhere(orders.store, tid)
    carry_out_everywhere(orders.store, tid)  # on one mount, it is gone
    away.rename(tmp_path / "customers")
    carry_out_everywhere(orders.store, tid)
    assert ids(customers) == [1]


def _die_when_decided(home: Table, other: Table, monkeypatch: pytest.MonkeyPatch) -> list[Commit]:
    """The commits of the home, whose writer has died before it put the marker of the other table."""
    with monkeypatch.context() as patch:
        patch.setattr(JointCommit, "_carry_out", _die)
        with pytest.raises(Killed):
            together(partial(_write_one, home), partial(_write_one, other))
    return home.history()


def _die(*arguments: object) -> None:
    raise Killed


@pytest.mark.parametrize("name", ["back\\slash", "line\nbreak"])
@pytest.mark.parametrize("is_home", [True, False])
def test_a_name_that_no_marker_of_another_table_can_hold_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, is_home: bool
) -> None:
    tables = [Table(tmp_path / name), Table(tmp_path / "plain")]
    for table in tables:
        table.write(rows(0))
    with pytest.raises(InvalidInputError, match="cannot be written in one joint transaction"):
        together(*(partial(_write_one, it) for it in (tables if is_home else tables[::-1])))
    assert [ids(it) for it in tables] == [[0], [0]]
    assert not any(it.snapshot().log.pending for it in tables)


def test_waiters_give_a_joint_transaction_a_lease_for_each_of_its_tables() -> None:
    lake = Lake(3)
    death = Death(10**9, after=False)

    def die(operation: str, path: str) -> None:
        death.is_dead |= path.startswith("_committed_") and operation == "put_if_absent"
        death.before(operation, path)

    lake.watch(die)
    with pytest.raises(Killed):
        write(lake)
    lake.heal()
    began = lake.clock.monotonic()
    lake["customers"].delete("id = 99", isolation="serializable")
    lake["customers"].update({"id": "id"})
    assert 180 <= lake.clock.monotonic() - began < 260
    assert lake.rows() == [[0]] * 3


def test_new_tables_can_be_made_by_it() -> None:
    lake = Lake(0)
    stores = [MemoryStore(lake.clock, url=f"s3://lake/{name}", lake=lake.stores) for name in NAMES]
    tables = [Table.over(it, lake.clock, inspector=inspect_files) for it in stores]
    with dbio.transaction() as tx:
        for table in tables:
            tx.write(pa.table({"id": [1], "day": ["a"]}), table, partition_by=["day"])
    assert [it.to_arrow()["id"].to_pylist() for it in tables] == [[1]] * 3


# --- what comes from outside ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/etc", "../../../../x", "a", "../a/../b", "..", "../", "../a//b", "s3://other/t", ""]
)
def test_a_home_that_lies_nowhere_beside_the_table_is_refused(path: str) -> None:
    lake, tid = decided_at_home()
    customers = lake["customers"]
    name, (body, time) = next(it for it in lake.stores[customers.url].objects.items() if it[0] == names.started(tid))
    lake.stores[customers.url].objects[name] = (body.replace(b'"../orders"', f'"{path}"'.encode()), time)
    with pytest.raises(CorruptMarkerError):
        customers.abort(tid)
    assert tid in customers.snapshot().log.pending


def test_a_table_that_was_moved_by_itself_to_where_no_home_can_be_is_still_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, customers = (Table(tmp_path / name) for name in NAMES[:2])
    (tid,) = {it.tid for it in _die_when_decided(orders, customers, monkeypatch)}
    out = f"{'../' * 40}orders"
    marker = tmp_path / "customers" / names.started(tid)
    marker.chmod(0o644)
    marker.write_bytes(marker.read_bytes().replace(b"../orders", out.encode()))
    assert [it.home for it in customers.check().pending] == [out]
    assert customers.show(tid).home == out
    with pytest.raises(CorruptMarkerError, match="out of the container or disk"):
        customers.abort(tid)


def test_a_part_for_another_table_or_with_paths_outside_is_refused() -> None:
    for wrong in (b'"table_id":"0', b'"added":["../../x'):
        lake, tid = decided_at_home()
        home = lake.stores["s3://lake/orders"]
        body, time = home.objects[names.committed(tid)]
        right = wrong.split(b"0" if wrong.endswith(b"0") else b"../../x")[0]
        start = body.rindex(right) + len(right)
        changed = body[:start] + wrong[len(right) :] + body[start + (1 if wrong.endswith(b"0") else 0) :]
        home.objects[names.committed(tid)] = (changed, time)
        with pytest.raises(CorruptMarkerError):
            lake["customers"].abort(tid)
        assert lake.rows()[1] == [0]


def test_a_table_that_no_start_marker_names_as_its_home_decides_nothing() -> None:
    """A right to write to one table is none to commit to another."""
    lake, tid = decided_at_home()
    evil = MemoryStore(lake.clock, url="s3://lake/evil", lake=lake.stores)
    for name in (names.DESCRIPTOR, names.started(tid), names.committed(tid)):
        body, time = lake.stores["s3://lake/orders"].objects[name]
        evil.objects[name] = (body + b" ", time)
    carry_out_everywhere(evil, tid)
    assert lake.rows() == [[0, 1], [0]]
    carry_out_everywhere(lake.stores["s3://lake/orders"], tid)
    assert lake.rows() == [[0, 1], [0, 1]]


def test_a_home_marker_that_names_more_tables_than_a_writer_does_is_corrupt() -> None:
    """Each of them would cost requests."""
    lake, tid = decided_at_home()
    home = lake.stores["s3://lake/orders"]
    body, time = home.objects[names.committed(tid)]
    marker = json.loads(body)
    marker["dbio_commit"]["joint"]["tables"] *= 51
    home.objects[names.committed(tid)] = (json.dumps(marker).encode(), time)
    with pytest.raises(CorruptMarkerError, match=r"tables"):
        carry_out_everywhere(home, tid)


def test_a_table_that_is_not_the_home_is_not_made_to_abort() -> None:
    """A right to write to one table is none to tear a transaction of others apart."""
    lake, tid = decided_at_home()
    evil = MemoryStore(lake.clock, url="s3://lake/evil", lake=lake.stores)
    customers = lake.stores["s3://lake/customers"]
    evil.objects[names.DESCRIPTOR] = lake.stores["s3://lake/orders"].objects[names.DESCRIPTOR]
    body, time = customers.objects[names.started(tid)]
    own_id, home_id = (Table.over(it, lake.clock).snapshot().table_id for it in (customers, evil))
    assert own_id
    assert home_id
    forged = body.replace(home_id.encode(), own_id.encode()).replace(b"../orders", b"../customers")
    evil.objects[names.started(tid)] = (forged, time)
    with pytest.raises(CorruptMarkerError):
        Table.over(evil, lake.clock).abort(tid)
    lake.vacuum()
    assert lake.rows() == [[0, 1], [0, 1]]


def test_an_operation_that_failed_in_the_block_ends_all() -> None:
    lake = Lake()
    orders, customers = lake.tables

    def half(tx: dbio.JointTransaction) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from rows(1).to_batches()
            raise ZeroDivisionError

        reader = pa.RecordBatchReader.from_batches(rows(1).schema, batches())
        with suppress(Exception):
            tx.write(reader, orders)

    with pytest.raises(TransactionStateError, match="an operation on s3://lake/orders failed"):
        together(half, lambda tx: tx.write(rows(1), customers))
    assert lake.rows() == [[0], [0]]
    assert not lake.pending()


def test_an_empty_commit_marker_at_the_home_does_not_count() -> None:
    """A disk that failed may leave one."""
    lake, tid = decided_at_home()
    home = lake.stores["s3://lake/orders"]
    home.objects[names.committed(tid)] = (b"", lake.clock.now())
    lake["customers"].abort(tid)
    assert lake.rows() == [[0], [0]]
    assert not lake.pending()


def test_what_a_frame_of_the_caller_writes_while_it_is_read_does_not_join() -> None:
    lake = Lake()
    orders, customers = lake.tables

    def batches() -> Iterator[pa.RecordBatch]:
        customers.write(rows(7))
        yield from rows(1).to_batches()

    def write_and_fail() -> None:
        together(lambda tx: tx.write(pa.RecordBatchReader.from_batches(rows(1).schema, batches()), orders), fail)

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert lake.rows() == [[0], [0, 7]]


def test_a_waiter_without_rights_in_the_home_waits_for_the_lease() -> None:
    lake, _ = decided_at_home()
    lake.stores["s3://lake/orders"].before = fail_with(dbio.AccessDeniedError("no"), "get", "*", times=None)
    began = lake.clock.monotonic()
    with pytest.raises(dbio.AccessDeniedError):
        lake["customers"].update({"id": "id + 1"})
    assert lake.clock.monotonic() - began >= 120
    lake.heal()
    lake["customers"].update({"id": "id + 1"})
    assert lake.rows() == [[0, 1], [1, 1]]  # it came after, and is serializable as a write


# --- beside what else a table has -------------------------------------------------------------------------------------


def test_an_erasure_in_the_home_commits_it_everywhere_before_its_markers_go() -> None:
    lake, tid = decided_at_home()
    lake.clock.sleep(600)
    report = lake["orders"].erase("id = 1")
    assert report.ok
    assert any("parts of joint transactions" in it for it in report.remains)
    assert names.committed(tid) not in lake.stores["s3://lake/orders"].objects
    assert lake.rows() == [[0], [0, 1]]
    assert lake["customers"].erase("id = 1").ok
    assert lake.rows() == [[0], [0]]


def test_an_erasure_in_another_table_reports_what_is_still_pending_there() -> None:
    lake, tid = decided_at_home()
    lake.clock.sleep(600)
    report = lake["customers"].erase("id = 1")
    assert [it.tid for it in report.pending] == [tid]
    lake.vacuum([lake["customers"]])
    assert lake["customers"].erase("id = 1").ok
    assert lake.rows() == [[0, 1], [0]]


def test_a_copy_has_what_its_table_has() -> None:
    lake, _ = decided_at_home()
    for name, expected in (("orders", [0, 1]), ("customers", [0])):
        copy = MemoryStore(lake.clock, url=f"s3://copies/{name}")
        copy_table(lake.stores[f"s3://lake/{name}"], copy, lake.clock)
        copied = Table.over(copy, lake.clock, inspector=inspect_files)
        assert ids(copied) == expected
        lake.clock.sleep(40 * 24 * 3600)
        vacuum_table(copied, VacuumOptions(checkpoint_after=0))
        assert ids(copied) == expected


def test_a_copy_that_takes_the_place_of_the_home_is_not_taken_for_one_that_has_aborted() -> None:
    """A copy has the history, and not the markers. The commit to the other table was in these."""
    lake, tid = decided_at_home()
    orders, customers = lake.tables
    copy, home = MemoryStore(lake.clock, url="s3://copies/orders"), lake.stores[orders.url]
    copy_table(home, copy, lake.clock)
    kept = dict(home.objects)
    home.objects.clear()
    home.objects.update(copy.objects)
    for act in (lambda: customers.abort(tid), lake.cut):
        with pytest.raises(CorruptMarkerError, match="as in a copy of the table"):
            act()
    lake.clock.sleep(8 * 24 * 3600)
    lake.vacuum([customers])
    assert customers.snapshot().log.pending == [tid]
    home.objects.update(kept)
    lake.vacuum([customers])
    assert lake.rows() == [[0, 1], [0, 1]]


def test_each_table_is_published_as_its_own_commits_are() -> None:
    lake = Lake()
    for table in lake.tables:
        table.set({"publish": "delta"})
    write(lake)
    assert not any(it.publish("delta")[0].is_new for it in lake.tables)
    death = Death(10**9, after=False)

    def die(operation: str, path: str) -> None:
        if operation == "put_if_absent" and names.is_joint(path.removeprefix("_committed_")):
            death.die()

    lake.watch(death.before, die)
    with pytest.raises(Killed):
        write(lake, 2)
    lake.heal()
    lake.clock.sleep(600)
    lake.vacuum()
    assert lake.rows() == [[0, 1, 2]] * 2
    assert not any(it.publish("delta")[0].is_new for it in lake.tables)


def test_changes_show_a_joint_commit_once_in_each_table() -> None:
    lake, tid = decided_at_home()
    orders, customers = lake.tables
    first = customers.history()[-1].tid
    assert tid not in [it.tid for it in customers.changes(first)]
    lake.clock.sleep(600)
    lake.vacuum()
    for table in (orders, customers):
        commits = [it.tid for it in table.changes(table.history()[-1].tid)]
        assert commits.count(tid) == 1


def test_a_restore_names_the_joint_transactions_that_it_undoes_here_only() -> None:
    lake = Lake()
    tx = write(lake)
    (tid,) = {it.tid for it in tx.commits.values()}
    orders, _ = lake.tables
    plan = orders.plan_restore(orders.history()[-1].tid)
    assert plan.joint == [tid]
    orders.restore(plan)
    assert lake.rows() == [[0], [0, 1]]


def test_check_and_show_name_the_table_that_decides_and_the_others() -> None:
    lake, tid = decided_at_home()
    orders, customers = lake.tables
    (pending,) = customers.check().pending
    assert (pending.tid, pending.home) == (tid, "s3://lake/orders")
    assert customers.show(tid).home == "s3://lake/orders"
    shown = orders.show(tid)
    assert shown.home is None
    assert shown.commit is not None
    assert shown.commit.joint == ["../customers"]
