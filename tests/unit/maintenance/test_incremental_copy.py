"""Incremental copies: `Table.copy(incremental=True)`. Rules: NOTES.md, Copies."""

import os
import random
from datetime import timedelta
from pathlib import Path

import pytest

from dbio_commit.base.errors import (
    CommitConflictError,
    DbioError,
    HistoryLostError,
    InvalidInputError,
    StoreError,
    TableExistsError,
)
from dbio_commit.feed.feed import Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Position
from dbio_commit.maintenance.copy import CopyReport, copy_table
from dbio_commit.maintenance.incremental_copy import update_copy
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names, settings
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import Killer, calls_to, count_calls, fail_with, heal, once
from tests.writers import contents, live, stage, write, write_days

DAY = timedelta(days=1)


@pytest.fixture
def target(clock: ManualClock) -> Table:
    return Table.over(MemoryStore(clock, url="memory://target"), clock)


def update(table: Table, target: Table, as_of: str | None = None) -> CopyReport:
    return update_copy(table.store, target.store, table.clock, as_of)


def copies_made(target: Table) -> list[str]:
    """The data files that lie at the target, live or not."""
    return [it.path for it in target.store.list_files() if not it.path.startswith("_")]


def is_copy(table: Table, target: Table) -> bool:
    ours, theirs = table.snapshot(), target.snapshot()
    same = (ours.schema, ours.settings, ours.partition_columns) == (
        theirs.schema,
        theirs.settings,
        theirs.partition_columns,
    )
    where = [sorted(names.split(file.path)[0] for file in it.files) for it in (ours, theirs)]
    return same and contents(table) == contents(target) and where[0] == where[1]


# --- what a copy has ------------------------------------------------------------------------------------------------


def test_the_first_copy_makes_a_table_of_its_own_and_the_next_copies_only_what_is_new(
    table: Table, target: Table
) -> None:
    for number in range(3):
        write(table, bodies=[b"%d" % number], schema=columns("a"))
    first = update(table, target)
    assert (first.files, first.copied_files, first.commits, first.is_new) == (3, 3, 1, True)
    assert is_copy(table, target)
    assert target.snapshot().table_id != table.snapshot().table_id
    had = live(target)
    write(table, bodies=[b"new"], schema=columns("a"))
    second = update(table, target)
    assert (second.files, second.copied_files, second.copied_size, second.removed_files) == (4, 1, 3, 0)
    assert second.tid == target.snapshot().tid
    assert is_copy(table, target)
    assert had < live(target)


def test_if_nothing_is_new_nothing_is_written(table: Table, target: Table) -> None:
    write(table)
    update(table, target)
    assert isinstance(target.store, MemoryStore)
    before = dict(target.store.objects)
    report = update(table, target)
    assert (report.is_new, report.copied_files, report.files, report.tid) == (False, 0, 1, target.snapshot().tid)
    assert target.store.objects == before


def test_columns_settings_and_partition_columns_follow(table: Table, clock: ManualClock, target: Table) -> None:
    write(table, bodies=[b"1"], schema=columns("a"))
    table.set({"provenance": "off", "change_data": "true"})
    update(table, target)
    assert is_copy(table, target)
    had = live(target)
    write(table, bodies=[b"2"], schema=columns("a", "b"))
    table.set({"provenance": "", "check.positive": "a > 0"})
    update(table, target)
    assert is_copy(table, target)
    assert had < live(target)
    transaction = table.begin("overwrite", partition_by=["day"])
    stage(table, transaction, partition={"day": "7"})
    transaction.vouch_for_rows()
    transaction.commit(columns("a", "b", "day"))
    report = update(table, target)
    assert (report.copied_files, report.removed_files) == (1, 2)
    assert target.snapshot().partition_columns == ("day",)
    assert is_copy(table, target)
    table.set({"check.positive": ""})
    assert update(table, target).copied_files == 0
    assert is_copy(table, target)


def test_both_spellings_of_a_setting_that_an_earlier_version_has_recorded_follow(
    table: Table, target: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, schema=columns("a"))
    for changes in ({"default.a": "1"}, {"default.A": "2"}):
        with monkeypatch.context() as patch:
            patch.setattr(settings, "_without_case", str)
            table.set(changes)
        update(table, target)
        assert is_copy(table, target)
    table.set({"default.A": "3"})
    update(table, target)
    assert target.settings() == {"default.A": "3"}


def test_a_copy_follows_through_restores_compactions_and_vacuums(
    table: Table, clock: ManualClock, target: Table
) -> None:
    chance = random.Random(7)
    for number in range(12):
        write(table, "overwrite" if chance.random() < 0.3 else "append", bodies=[b"%d" % number] * 2)
        clock.advance(DAY)
        if chance.random() < 0.4:
            with table.begin("rewrite") as transaction:
                transaction.remove(sorted(live(table))[:2])
                stage(table, transaction, body=b"compacted %d" % number)
        if chance.random() < 0.3:
            table.restore(table.history()[0].tid)
        if chance.random() < 0.5:
            assert vacuum_table(table, VacuumOptions(checkpoint_after=0)).ok
        if number and chance.random() < 0.5:
            assert vacuum_table(target, VacuumOptions(checkpoint_after=0)).ok
        update(table, target)
        assert is_copy(table, target)
        assert not update(table, target).is_new
    assert target.check().ok


def test_a_copy_can_be_brought_to_an_earlier_state(table: Table, clock: ManualClock, target: Table) -> None:
    tid = write(table, bodies=[b"1"]).tid
    clock.advance(DAY)
    write(table, "overwrite", bodies=[b"2"])
    update(table, target)
    clock.advance(DAY)
    update(table, target, as_of=tid)
    assert contents(target) == [b"1"]
    update(table, target)
    assert contents(target) == [b"2"]


def test_a_copy_keeps_its_rows_if_the_state_is_before_the_first_commit(
    table: Table, clock: ManualClock, target: Table
) -> None:
    before = (clock.now() - DAY).isoformat()
    write(table, bodies=[b"1"])
    update(table, target)
    clock.advance(DAY)
    with pytest.raises(InvalidInputError, match=r"had no commit as of .* nothing was copied: `dbio log`"):
        update(table, target, as_of=before)
    assert contents(target) == [b"1"]


def test_a_copy_keeps_the_states_that_it_had(table: Table, clock: ManualClock, target: Table) -> None:
    write(table, bodies=[b"1"])
    first = update(table, target)
    clock.advance(DAY)
    write(table, "overwrite", bodies=[b"2"])
    update(table, target)
    assert first.tid
    back = Table.over(MemoryStore(clock, url="memory://back"), clock)
    update(target, back, as_of=first.tid)
    assert contents(back) == [b"1"]


def test_a_stream_on_a_copy_sees_new_files_and_stops_at_removed_ones(
    table: Table, clock: ManualClock, target: Table
) -> None:
    write(table)
    update(table, target)
    end = feed(target).newest()
    clock.advance(DAY)
    write(table, bodies=[b"new"])
    update(table, target)
    clock.advance(DAY)
    then = feed(target).after(end)
    assert isinstance(then, Position)
    had = [change.file.path for change in feed(target).between(end, then)]
    assert had == [*target.history()[0].added]
    write(table, "overwrite", bodies=[b"other"])
    update(table, target)
    clock.advance(DAY)
    with pytest.raises(DbioError, match="has removed rows"):
        feed(target).after(then)


def feed(table: Table) -> Feed:
    return Feed(Follower(table.store, table.clock).history(), FeedOptions())


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_table_that_is_no_copy_or_a_copy_of_another_is_refused(
    table: Table, clock: ManualClock, target: Table
) -> None:
    write(table)
    write(target, app=("job", 1))
    with pytest.raises(TableExistsError, match="which no incremental copy of"):
        update(table, target)
    whole = Table.over(MemoryStore(clock, url="memory://whole"), clock)
    copy_table(table.store, whole.store, clock)
    with pytest.raises(TableExistsError, match="no incremental copy of"):
        update(table, whole)
    other = Table.over(MemoryStore(clock, url="memory://other"), clock)
    write(other)
    copy = Table.over(MemoryStore(clock, url="memory://copy"), clock)
    update(other, copy)
    with pytest.raises(TableExistsError, match="a copy of another table"):
        update(table, copy)
    directory = Table.over(MemoryStore(clock, url="memory://directory"), clock)
    assert isinstance(directory.store, MemoryStore)
    directory.store.put("notes.txt", b"mine")
    with pytest.raises(TableExistsError):
        update(table, directory)


@pytest.mark.parametrize("what", ["write", "set", "compact", "late"])
def test_a_copy_with_a_commit_of_its_own_is_refused(table: Table, clock: ManualClock, target: Table, what: str) -> None:
    write(table)
    update(table, target)
    if what == "write":
        write(target, app=("job", 1))
    elif what == "set":
        target.set({"change_data": "true"})
    elif what == "compact":
        with target.begin("rewrite") as transaction:
            transaction.remove(live(target))
            stage(target, transaction)
    else:
        write(table)
        update(table, target)
        write(target)
        clock.advance(3 * DAY)
        assert vacuum_table(target, VacuumOptions(checkpoint_after=0)).ok
    had = contents(target)
    with pytest.raises(TableExistsError, match="has a commit of its own"):
        update(table, target)
    assert contents(target) == had


def test_a_commit_to_the_copy_meanwhile_ends_the_copy(table: Table, target: Table) -> None:
    write(table)
    update(table, target)
    write(table)
    assert isinstance(target.store, MemoryStore)
    target.store.before = once("put_if_absent", "_serial_*", lambda: write(target, bodies=[b"mine"]))
    with pytest.raises(CommitConflictError):
        update(table, target)
    assert b"mine" in contents(target)
    assert len(target.history()) == 2


def test_nothing_is_copied_into_the_table_itself(tmp_path: Path) -> None:
    table = Table.over(Table(tmp_path / "table").store)
    write(table)
    os.symlink(table.url, tmp_path / "link")
    for path in (f"{table.url}/backup", table.url, str(tmp_path / "link" / "backup")):
        with pytest.raises(InvalidInputError, match="lies in the table"):
            table.copy(path, incremental=True)


def test_a_file_of_another_size_than_recorded_is_not_copied(table: Table, target: Table) -> None:
    write(table, bodies=[b"1"])
    (path,) = live(table)
    assert isinstance(table.store, MemoryStore)
    table.store.put(path, b"longer")
    with pytest.raises(StoreError, match="records 1 bytes, but its copy has 6"):
        update(table, target)
    assert contents(target) == []


# --- interrupted ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "further"])
def test_a_copy_that_is_killed_at_any_call_goes_on(
    table: Table, clock: ManualClock, is_first: bool, after: bool
) -> None:
    first = write_days(table, d1=b"1").tid
    write_days(table, d2=b"2")
    call, is_killed = 0, True
    while is_killed:
        store = MemoryStore(clock, url=f"memory://target-{is_first}-{after}-{call}")
        copy = Table.over(store, clock)
        if not is_first:
            update(table, copy, as_of=first)
        had = contents(copy)
        killer = Killer(store, call, after)
        try:
            update(table, copy)
        except BaseException:
            assert killer.dead
        is_killed = killer.dead
        heal(store)
        assert contents(copy) in (had, contents(table))
        clock.advance(timedelta(minutes=2))
        update(table, copy)
        assert is_copy(table, copy)
        assert len(copy.history()) <= 2
        call += 1
    assert call > 8


def test_what_an_interrupted_run_has_copied_is_not_copied_again(
    table: Table, clock: ManualClock, target: Table
) -> None:
    write(table, bodies=[b"%d" % number for number in range(6)])
    assert isinstance(table.store, MemoryStore)
    table.store.before = fail_with(StoreError("503"), "get", max(live(table)))
    with pytest.raises(StoreError, match="503"):
        update(table, target)
    heal(table.store)
    assert contents(target) == []
    copied = copies_made(target)
    assert copied
    report = update(table, target)
    assert (report.copied_files, report.resumed_files) == (6 - len(copied), len(copied))
    assert contents(target) == contents(table)
    assert {*copied} <= live(target)
    assert not target.snapshot().log.pending


def test_what_changed_since_the_interrupted_run_is_taken_as_it_is_now(
    table: Table, clock: ManualClock, target: Table
) -> None:
    write(table, bodies=[b"1", b"2"])
    update(table, target)
    write(table, bodies=[b"3", b"4"])
    interrupt(table, target)
    clock.advance(timedelta(hours=2))
    write(table, "overwrite", bodies=[b"5", b"6"])
    update(table, target)
    assert contents(target) == [b"5", b"6"]
    clock.advance(9 * DAY)
    assert vacuum_table(target, VacuumOptions(checkpoint_after=0)).ok
    assert {*copies_made(target)} == live(target)


def interrupt(table: Table, target: Table) -> None:
    """A copy that dies before its commit."""
    assert isinstance(target.store, MemoryStore)
    target.store.before = fail_with(KeyboardInterrupt(), "put_if_absent", "_serial_*")
    with pytest.raises(KeyboardInterrupt):
        update(table, target)
    heal(target.store)


@pytest.mark.parametrize("wrong", ["shorter", "gone", "not whole"])
def test_a_copy_that_is_not_whole_is_made_again_under_another_name(
    table: Table, clock: ManualClock, target: Table, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, bodies=[b"11", b"22"])
    interrupt(table, target)
    assert isinstance(target.store, MemoryStore)
    one = min(copies_made(target))
    if wrong == "shorter":
        target.store.put(one, b"1")
    elif wrong == "gone":
        target.store.delete_many([one])
    else:
        monkeypatch.setattr(target.store, "unfinished_copies", lambda: {one})
    report = update(table, target)
    assert (report.copied_files, report.resumed_files) == (1, 1)
    assert contents(target) == contents(table)
    assert one not in live(target)


def test_a_run_that_vacuum_has_aborted_begins_again(table: Table, clock: ManualClock, target: Table) -> None:
    write(table, bodies=[b"1", b"2"])
    update(table, target)
    write(table, bodies=[b"3"])
    interrupt(table, target)
    clock.advance(3 * DAY)
    assert vacuum_table(target, VacuumOptions(checkpoint_after=0)).ok
    report = update(table, target)
    assert (report.copied_files, report.resumed_files) == (1, 0)
    assert contents(target) == contents(table)


def test_a_run_that_was_interrupted_long_ago_is_aborted(table: Table, clock: ManualClock, target: Table) -> None:
    write(table, bodies=[b"1"])
    interrupt(table, target)
    clock.advance(4 * DAY)
    assert update(table, target).resumed_files == 0
    assert not target.snapshot().log.pending
    assert contents(target) == [b"1"]


def test_of_two_runs_at_once_one_commits(table: Table, clock: ManualClock, target: Table) -> None:
    write(table, bodies=[b"1", b"2"])
    update(table, target)
    write(table, bodies=[b"3"])
    assert isinstance(table.store, MemoryStore)
    other = once("get", "part*", lambda: update(table, target))
    table.store.before = other
    with pytest.raises(CommitConflictError):
        update(table, target)
    assert contents(target) == contents(table)
    assert len(target.history()) == 2
    assert not update(table, target).is_new
    assert target.check().ok


def test_of_two_runs_that_share_all_files_both_succeed(table: Table, clock: ManualClock, target: Table) -> None:
    write(table, bodies=[b"1"])
    assert isinstance(target.store, MemoryStore)
    target.store.before = once("put_if_absent", "_serial_*", lambda: update(table, target))
    first = update(table, target)
    assert contents(target) == [b"1"]
    assert [first.tid] == [commit.tid for commit in target.history()]


def test_a_file_that_vacuum_deletes_meanwhile_ends_the_copy_which_goes_on_with_a_later_state(
    table: Table, target: Table
) -> None:
    write(table, bodies=[b"1", b"2"])
    assert isinstance(table.store, MemoryStore)
    gone = max(live(table))
    table.store.before = once("get", gone, lambda: table.store.delete_many([gone]))
    with pytest.raises(HistoryLostError):
        update(table, target)
    heal(table.store)
    with table.begin("rewrite") as transaction:
        transaction.remove([gone])
    assert update(table, target).resumed_files == 1
    assert contents(target) == [b"1"] or contents(target) == [b"2"]


def test_a_copy_takes_calls_by_what_is_new(table: Table, target: Table) -> None:
    for number in range(30):
        write(table, bodies=[b"%d" % number])
    update(table, target)
    write(table)
    assert isinstance(table.store, MemoryStore)
    assert isinstance(target.store, MemoryStore)
    with calls_to(target.store) as calls:
        assert count_calls(table.store, lambda: update(table, target)) < 10
    assert len(calls) < 30
    assert sum(operation == "write" for operation, _ in calls) == 1
