"""Overwrites that change a table's partition columns: alone, beside writers of all sorts, killed, vacuumed (I10).

Rules: PROTOCOL.md 9.11.
"""

import json
from contextlib import suppress
from datetime import timedelta
from itertools import count

import pytest

from dbio_commit import (
    CommitConflictError,
    InvalidInputError,
    SchemaMismatchError,
    StoreError,
    Table,
    TableExistsError,
    Transaction,
    TransactionAbortedError,
)
from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.commit.begin import Intent, begin, look
from dbio_commit.commit.operations import RULES
from dbio_commit.commit.turns import LEASE_S, SETTLE_S, TRUST_S, take_turn
from dbio_commit.maintenance.publish import context_of
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.commit import decode_commit
from dbio_commit.protocol.settings import MAX_TEXT, layout_of, layout_text
from dbio_commit.testing import MemoryStore
from tests.faults import Killed, Killer, fail_with, give_up_after, heal
from tests.garbage import AT_ONCE, DAY, file_of
from tests.unit.checkpointed import purge
from tests.writers import WakingClock, WakingWorld, contents, data_files, live, stage, write_days
from vacuum import Reason, vacuum_table


class World(WakingWorld):
    """A table that is partitioned by day."""

    def __init__(self) -> None:
        super().__init__()
        write_days(self.table, one=b"1", two=b"2")
        self.clock.sleep(10)

    def begin_change(self, *columns: str, body: bytes = b"new") -> Transaction:
        """One that has staged a file; all that is missing is its commit."""
        transaction = self.table.begin("overwrite", partition_by=columns)
        stage(self.table, transaction, body, dict.fromkeys(columns, "x"))
        return transaction

    def change(self, *columns: str, body: bytes = b"new") -> str:
        transaction = self.begin_change(*columns, body=body)
        transaction.commit()
        return transaction.tid

    def append(self, body: bytes = b"more") -> str:
        transaction = self.table.begin()
        columns = transaction.terms.partition_columns
        stage(self.table, transaction, body, dict.fromkeys(columns, "x"))
        transaction.commit()
        return transaction.tid

    @property
    def layout(self) -> tuple[str, ...]:
        return self.table.snapshot().partition_columns


class ElsewhereClock(WakingClock):
    """Of another machine, which remembers nothing of what this one has seen."""

    def boot(self) -> str:
        return "elsewhere"


@pytest.fixture
def world() -> World:
    return World()


# --- alone --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [("country",), ("country", "day"), ("Day", "hour"), ()])
def test_an_overwrite_changes_the_partition_columns(world: World, columns: tuple[str, ...]) -> None:
    world.change(*columns)
    assert world.layout == columns
    assert contents(world.table) == [b"new"]
    world.append()
    assert contents(world.table) == [b"more", b"new"]
    assert {tuple(file.partition) for file in world.table.snapshot().files} == {columns}
    assert world.table.check().ok


def test_the_state_before_is_read_as_it_was(world: World) -> None:
    before = world.table.snapshot()
    world.change("country")
    then = world.table.snapshot(as_of=before.tid)
    assert (then.partition_columns, then.files) == (("day",), before.files)


def test_a_change_back_is_one_like_any_other(world: World) -> None:
    world.change("country")
    world.change("day")
    assert world.layout == ("day",)
    world.append()
    assert world.table.check().ok


def test_the_same_columns_in_another_case_are_no_change(world: World) -> None:
    began = world.clock.monotonic()
    world.table.begin("overwrite", partition_by=["DAY"]).commit()
    assert (world.layout, world.table.settings()) == (("day",), {})
    assert world.clock.monotonic() - began < SETTLE_S


def test_a_warning_says_what_changes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.begin_change("country").abort()
    assert "partitioned by ['day']: this overwrite changes that to ['country']" in caplog.text


@pytest.mark.parametrize("operation", sorted(RULES.keys() - {"overwrite"}))
def test_nothing_but_an_overwrite_changes_them(world: World, operation: str) -> None:
    with pytest.raises(SchemaMismatchError, match=r"by \['day'\], not by \['country'\].*overwrite"):
        begin(context_of(world.store, world.clock), Intent(operation=operation, partition_by=["country"]))  # type: ignore[arg-type]


def test_an_append_need_not_name_them(world: World) -> None:
    assert world.table.begin(partition_by=None).terms.partition_columns == ("day",)
    assert world.table.begin(partition_by=[]).terms.partition_columns == ("day",)


def test_settings_stay_and_the_columns_are_shown_among_them(world: World) -> None:
    world.table.set({"publish": "symlink"})
    world.change("country")
    assert world.table.settings() == {"publish": "symlink", "partition_columns": '["country"]'}
    world.table.set({"publish": ""})
    assert world.layout == ("country",)


@pytest.mark.parametrize("text", ['["hour"]', ""])
def test_nobody_sets_them_as_a_setting(world: World, text: str) -> None:
    with pytest.raises(InvalidInputError, match="overwrite the table with partition_by"):
        world.table.set({"partition_columns": text})


def test_columns_that_no_setting_holds_are_refused_before_anything_is_written(world: World) -> None:
    before = set(world.store.objects)
    with pytest.raises(InvalidInputError, match=str(MAX_TEXT)):
        world.table.begin("overwrite", partition_by=[f"c{i:089}" for i in range(50)])
    assert set(world.store.objects) == before


@pytest.mark.parametrize("columns", [("month",), ("day", "region"), ()])
@pytest.mark.parametrize("must_be_empty", [True, False])
def test_a_first_write_that_failed_fixes_no_partition_columns(columns: tuple[str, ...], must_be_empty: bool) -> None:
    table = WakingWorld().table
    table.begin(partition_by=["day"]).abort()
    with table.begin(partition_by=columns, must_be_empty=must_be_empty) as transaction:
        layout = columns if columns or must_be_empty else ("day",)  # a write to a table need not repeat its columns
        stage(table, transaction, b"rows", dict.fromkeys(layout, "x"))
    assert (contents(table), table.snapshot().partition_columns) == ([b"rows"], layout)
    assert table.history()[0].operation == ("append" if layout == ("day",) else "overwrite")
    with pytest.raises(SchemaMismatchError):
        table.begin(partition_by=["other"])


def test_another_first_write_fixes_the_partition_columns_until_it_fails() -> None:
    table = WakingWorld().table
    pending = table.begin(partition_by=["day"])
    with pytest.raises(SchemaMismatchError, match="dbio drop --everything"):
        table.begin(partition_by=["month"])
    pending.abort()
    change, late = table.begin(partition_by=["month"]), table.begin()
    stage(table, late, b"first", {"day": "x"})
    late.commit()
    stage(table, change, b"second", {"month": "x"})
    with pytest.raises(TableExistsError):  # nothing is overwritten
        change.commit()
    assert contents(table) == [b"first"]


def test_a_table_without_rows_is_changed_too(world: World) -> None:
    world.table.begin("overwrite").commit()
    world.table.begin("overwrite", partition_by=[]).commit()
    assert (world.layout, contents(world.table)) == ((), [])


def test_a_plain_directory_keeps_its_columns() -> None:
    clock = WakingClock()
    store = MemoryStore(clock)
    store.put("day=1/a.parquet", b"PAR1PAR1")
    with pytest.raises(SchemaMismatchError):
        Table.over(store, clock).begin("overwrite", partition_by=["country"])


@pytest.mark.parametrize(
    "text", ["", "x", "{}", '"day"', "[1]", '["a", "A"]', '["_a"]', '[""]', "[" * 4000, "1" * 4096]
)
def test_a_marker_that_tells_no_columns_is_corrupt(text: str) -> None:
    info = {"operation": "append", "commit_id": "c", "timestamp": "2026-11-20T00:00:00Z"}
    told = {**info, "settings": {"partition_columns": text}}
    with pytest.raises(CorruptMarkerError):
        decode_commit(json.dumps({"added": [], "removed": [], "dbio_commit": told}).encode(), where="here")


@pytest.mark.parametrize("columns", [(), ("day",), ("a b", "é,x", '"quoted"')])
def test_columns_are_told_as_they_were_given(columns: tuple[str, ...]) -> None:
    assert layout_of({"partition_columns": layout_text(columns)}, ("first",)) == columns


# --- beside others ------------------------------------------------------------------------------------------------


def test_who_began_before_cannot_commit_in_the_old_layout(world: World) -> None:
    others = [world.table.begin(operation) for operation in RULES]
    for other in others:
        stage(world.table, other, b"old", {"day": "three"})
    world.change("country")
    for other in others:
        with pytest.raises(TransactionAbortedError):
            other.commit()
    assert (contents(world.table), world.table.check().ok) == ([b"new"], True)


def test_who_commits_while_the_overwrite_waits_is_overwritten(world: World) -> None:
    other = world.table.begin()
    stage(world.table, other, b"old", {"day": "three"})
    world.clock.at(world.clock.monotonic() + 30, other.commit)
    world.change("country")
    assert other.tid in world.table.snapshot().tids
    assert contents(world.table) == [b"new"]


def hold(world: World, *columns: str) -> Transaction:
    """A change that holds its turn, and has not committed."""
    transaction = world.begin_change(*columns)
    assert take_turn(world.store, world.clock, transaction.tid, new_layout=True)
    return transaction


def test_who_looked_before_and_claims_soon_is_aborted_with_the_others(world: World) -> None:
    """By the time that the overwrite aborts all others its start marker is there."""
    target = look(world.store, world.clock)
    change = hold(world, "country")
    world.clock.advance(timedelta(seconds=TRUST_S - 1))
    other = begin(context_of(world.store, world.clock), Intent(), target=target)
    stage(world.table, other, b"old", {"day": "three"})
    change.commit()
    with pytest.raises(TransactionAbortedError):
        other.commit()
    assert contents(world.table) == [b"new"]


def test_who_looked_before_and_claims_late_looks_again_and_writes_nothing(world: World) -> None:
    target = look(world.store, world.clock)
    hold(world, "country")
    world.clock.advance(timedelta(seconds=TRUST_S + 1))
    before = set(world.store.objects)
    with pytest.raises(CommitConflictError, match="partition columns"):
        begin(context_of(world.store, world.clock), Intent(), target=target)
    assert set(world.store.objects) == before


def test_who_looked_before_and_claims_an_hour_later_writes_nothing(world: World) -> None:
    target = look(world.store, world.clock)
    world.change("country")
    world.clock.advance(timedelta(hours=1))
    with pytest.raises(CommitConflictError, match="partition columns"):
        begin(context_of(world.store, world.clock), Intent(), target=target)
    assert len([path for path in world.store.objects if path.startswith("_started_")]) == 2


def test_a_task_that_claims_late_writes_nothing_in_the_old_layout(world: World) -> None:
    terms = begin(context_of(world.store, world.clock), Intent(), claims=False).terms
    world.change("country")
    with pytest.raises(CommitConflictError, match="partition columns"):
        stage(world.table, world.table.resume(terms), b"old", {"day": "three"})
    assert names.started(terms.tid) not in world.store.objects
    assert contents(world.table) == [b"new"]


def test_who_remembers_a_table_without_turns_hears_of_a_change_whose_turn_was_purged(world: World) -> None:
    """The first turn is gone then, as if there had never been one."""
    assert not [path for path in world.store.objects if path.startswith("_serial_")]
    world.append()
    other = Table.over(world.store, ElsewhereClock())
    with other.begin("overwrite", partition_by=["country"]):
        pass
    other.set({"publish": "symlink"})
    other.checkpoint()
    purge(world.store)
    world.append(b"late")
    assert (world.layout, contents(world.table)) == (("country",), [b"late"])


@pytest.mark.parametrize("columns", [("country",), ("day",)])
def test_a_late_task_of_the_last_turn_does_not_bring_back_what_was_before_it(
    world: World, columns: tuple[str, ...]
) -> None:
    """Its start marker comes back when vacuum has purged both markers: the holder looks undecided, and is not.

    The marker of the turn before is still there, since a file that it removed is.
    """
    write_days(world.table, "overwrite", one=b"1")
    before = world.table.history()[0].tid
    kept = {path: world.store.objects[path] for path in (names.turn(1), names.started(before), names.committed(before))}
    last = world.change(*columns)
    world.table.checkpoint()
    purge(world.store)
    world.store.objects |= kept
    world.clock.advance(timedelta(hours=2))
    world.store.put(names.started(last), b"")
    clock = ElsewhereClock()
    fresh = Table.over(world.store, clock)  # so that nothing is remembered

    def give_up() -> None:
        raise AssertionError("waits for a transaction that was decided long ago")

    clock.at(clock.monotonic() + 600, give_up)
    with fresh.begin() as transaction:
        stage(fresh, transaction, b"late", dict.fromkeys(columns, "x"))
    assert transaction.terms.metadata.turn == 2
    assert (world.layout, contents(world.table)) == (columns, [b"late", b"new"])


def test_an_overwrite_that_claims_late_changes_them_all_the_same(world: World) -> None:
    terms = begin(
        context_of(world.store, world.clock), Intent(operation="overwrite", partition_by=["country"]), claims=False
    ).terms
    world.change("hour", body=b"other")
    transaction = world.table.resume(terms)
    stage(world.table, transaction, b"late", {"country": "x"})
    transaction.commit()
    assert (world.layout, contents(world.table)) == (("country",), [b"late"])


def test_who_begins_meanwhile_waits_and_writes_in_the_new_layout(world: World) -> None:
    change = hold(world, "country")
    world.clock.at(world.clock.monotonic() + 5, change.commit)
    world.append()
    assert (world.layout, contents(world.table)) == (("country",), [b"more", b"new"])


def test_who_begins_meanwhile_goes_on_in_the_old_layout_where_the_change_is_given_up(world: World) -> None:
    change = hold(world, "country")
    world.clock.at(world.clock.monotonic() + 5, change.abort)
    world.append()
    assert (world.layout, contents(world.table)) == (("day",), [b"1", b"2", b"more"])


def test_who_dies_in_a_change_keeps_others_for_two_minutes_only(world: World) -> None:
    change, began = hold(world, "country"), world.clock.monotonic()
    world.append()
    assert LEASE_S + SETTLE_S <= world.clock.monotonic() - began < LEASE_S + SETTLE_S + 10
    assert world.layout == ("day",)
    with pytest.raises(TransactionAbortedError):
        change.commit()
    assert contents(world.table) == [b"1", b"2", b"more"]


@pytest.mark.parametrize("with_turn", [False, True])
def test_who_waits_for_a_change_of_which_all_traces_go_goes_on_in_the_old_layout(world: World, with_turn: bool) -> None:
    """The table was put back from a copy of before; or somebody removed the start marker."""
    change = hold(world, "country")
    gone = [names.started(change.tid), *([names.turn(1)] if with_turn else [])]
    world.clock.at(world.clock.monotonic() + 5, lambda: [world.store.objects.pop(path) for path in gone])
    world.store.before = give_up_after(200)
    began = world.clock.monotonic()
    world.append()
    assert world.clock.monotonic() - began < 10
    assert (world.layout, contents(world.table)) == (("day",), [b"1", b"2", b"more"])


def test_who_waits_for_the_turn_of_a_change_gives_it_the_minute_that_it_takes(world: World) -> None:
    other = world.table.begin("overwrite")
    change = hold(world, "country")
    world.clock.at(world.clock.monotonic() + LEASE_S + 5, change.commit)
    with pytest.raises(TransactionAbortedError):
        other.commit()
    assert (world.layout, contents(world.table)) == (("country",), [b"new"])


def test_of_two_changes_at_once_the_first_commit_aborts_the_other(world: World) -> None:
    first, second = world.begin_change("country"), world.begin_change("hour")
    second.commit()
    with pytest.raises(TransactionAbortedError):
        first.commit()
    assert world.layout == ("hour",)


def test_a_change_that_cannot_abort_the_others_does_not_commit_and_may_be_tried_again(world: World) -> None:
    other = world.table.begin()
    stage(world.table, other, b"old", {"day": "three"})
    change = world.begin_change("country")
    world.store.before = fail_with(StoreError("503"), "put_if_absent", names.committed(other.tid))
    with pytest.raises(StoreError, match="503"):
        change.commit()
    assert world.layout == ("day",)
    heal(world.store)
    change.commit()
    assert (world.layout, contents(world.table)) == (("country",), [b"new"])


def test_a_change_that_rests_on_a_commit_fails_where_others_came(world: World) -> None:
    seen = world.table.snapshot().etag
    change = world.table.begin("overwrite", partition_by=["country"], if_match=seen)
    world.append()
    other = world.table.begin()
    with pytest.raises(CommitConflictError):
        change.commit()
    other.commit()  # a change that fails anyway aborts nobody
    assert world.layout == ("day",)


def test_a_change_whose_version_is_committed_already_aborts_nobody(world: World) -> None:
    change = world.table.begin("overwrite", partition_by=["country"], app=("nightly", 3))
    world.table.begin(app=("nightly", 3)).commit()
    other = world.table.begin()
    assert change.commit().skipped
    other.commit()
    assert world.layout == ("day",)


# --- killed -------------------------------------------------------------------------------------------------------


def test_killed_at_any_call_the_table_has_one_layout_and_others_go_on() -> None:
    """Before the marker nothing has happened, after it all has; an append comes next, and vacuum leaves no garbage."""
    seen = set[tuple[str, ...]]()
    for number in count():
        world = World()
        change = world.begin_change("country")
        killer = Killer(world.store, number // 2, after=number % 2 == 1)
        with suppress(Killed):
            change.commit()
        died = killer.dead
        heal(world.store)
        world.append()
        seen.add(world.layout)
        is_done = world.layout == ("country",)
        assert contents(world.table) == sorted([b"more", *([b"new"] if is_done else [b"1", b"2"])])
        assert world.table.check().ok
        world.clock.advance(20 * DAY)
        vacuum_table(world.table, AT_ONCE)
        world.clock.advance(20 * DAY)
        vacuum_table(world.table, AT_ONCE)
        assert data_files(world.store) == live(world.table)
        if not died:
            break
    assert seen == {("day",), ("country",)}


# --- afterwards ---------------------------------------------------------------------------------------------------


def test_vacuum_deletes_what_was_written_in_any_layout_and_nothing_else(world: World) -> None:
    before = live(world.table)
    old = world.append()
    change = world.change("country")
    left = {file_of(old, {"day": "two"}), file_of(change, {"country": "y"})}
    foreign = {file_of(old, {"hour": "1"}), f"copy/{file_of(change)}"}
    for path in left | foreign:
        world.store.put(path, b"left")
    assert {entry.path for entry in world.table.check().garbage[Reason.FAILED_ATTEMPT]} == left
    world.clock.advance(20 * DAY)
    vacuum_table(world.table, AT_ONCE)
    assert data_files(world.store) == live(world.table) | foreign
    assert not before & data_files(world.store)


@pytest.mark.parametrize("days", [0, 100])
def test_a_checkpoint_tells_the_layout(world: World, days: int) -> None:
    world.change("country")
    world.clock.advance(days * DAY)
    world.table.checkpoint()
    purge(world.store)
    fresh = Table.over(world.store, WakingClock())  # so that nothing is remembered
    assert fresh.snapshot().partition_columns == ("country",)
    world.append()
    assert contents(world.table) == [b"more", b"new"]


def test_a_restore_brings_the_columns_back_with_the_rows(world: World) -> None:
    before = world.table.snapshot()
    world.change("country")
    world.table.restore(before.tid)
    assert (world.layout, contents(world.table)) == (("day",), [b"1", b"2"])
    assert not live(world.table) & {file.path for file in before.files}
    world.append()
    assert world.table.check().ok


def test_changes_are_told_across_it(world: World) -> None:
    first = world.table.snapshot().tids[0]
    change = world.change("country")
    _, told = world.table.changes(first)
    assert (told.tid, len(told.inserted), len(told.deleted)) == (change, 1, 2)
