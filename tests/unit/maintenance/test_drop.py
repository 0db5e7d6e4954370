"""Removing a table: `Table.drop`, alone, beside readers and writers, and killed at any call; on a store in memory.

Rules: PROTOCOL.md 12.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from dbio_commit.base.errors import (
    CommitConflictError,
    DbioError,
    InvalidInputError,
    StoreError,
    TableNotFoundError,
    TransactionAbortedError,
)
from dbio_commit.commit.begin import Intent, begin, look
from dbio_commit.commit.turns import SETTLE_S, TRUST_S
from dbio_commit.maintenance.publish import context_of
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from tests.faults import Killed, Killer, fail_with, give_up_after, heal, once
from tests.writers import WakingClock, WakingWorld, contents, live, stage, write, write_days


class World(WakingWorld):
    """A table that is dropped."""

    def fail_first_write(self) -> None:
        with suppress(ZeroDivisionError), self.table.begin(partition_by=["day"]) as transaction:
            stage(self.table, transaction, b"rows", {"day": "1"})
            raise ZeroDivisionError

    def fill(self) -> None:
        """Commits, an abort, a pending transaction, a checkpoint and files of all sorts."""
        write_days(self.table, one=b"1", two=b"2")
        write_days(self.table, "overwrite", one=b"3")
        self.table.checkpoint()
        self.table.begin().abort()
        stage(self.table, self.table.begin(), b"pending", {"day": "two"})
        write_days(self.table, three=b"4")

    @property
    def paths(self) -> set[str]:
        return set(self.store.objects)


@pytest.fixture
def world() -> World:
    return World()


# --- alone --------------------------------------------------------------------------------------------------------


def test_a_table_that_a_failed_first_write_left_is_removed_and_the_path_is_free(world: World) -> None:
    world.fail_first_write()
    report = world.table.drop()
    assert world.paths == set()
    assert (report.aborted, report.left) == ((), ())
    assert report.deleted == 3
    write(world.table)
    assert world.table.snapshot().partition_columns == ()


def test_a_failed_first_write_says_that_it_left_a_table(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fail_first_write()
    assert "is a table now, partitioned by ['day'], without any rows" in caplog.text
    assert "dbio drop" in caplog.text
    caplog.clear()
    world.table.begin().abort()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_table_with_commits_is_removed_only_with_everything(world: World) -> None:
    world.fill()
    before = dict(world.store.objects)
    with pytest.raises(InvalidInputError, match="--everything"):
        world.table.drop()
    assert world.store.objects == before
    (pending,) = world.table.check().pending
    report = world.table.drop(everything=True)
    assert world.paths == set()
    assert report.aborted == (pending.tid,)
    assert report.deleted == len(before) + 1  # the abort marker
    with pytest.raises(TableNotFoundError):
        world.table.snapshot()
    write(world.table)
    assert contents(world.table) == [b"rows"]
    assert len(world.table.history()) == 1


def test_what_no_transaction_wrote_is_left_and_named(world: World) -> None:
    world.fill()
    left = {"README.txt", "day=one/copied.parquet", "export.csv"}
    for path in left:
        world.store.put(path, b"mine")
    assert world.table.drop(everything=True).left == tuple(sorted(left))
    assert world.paths == left


def test_a_table_whose_markers_are_corrupt_is_removed(world: World) -> None:
    world.fill()
    world.store.put("_committed_1", b"no JSON")
    world.store.put("_committed_2")
    world.table.drop(everything=True)
    assert world.paths == set()


def test_an_adopted_directory_is_removed_with_the_markers_that_it_had(world: World) -> None:
    tid = "1187324659120348471"
    names_of = [f"part-0-tid-{tid}-job-{attempt}-0-c000.parquet" for attempt in (0, 1)]
    for name in (*names_of, "copied.parquet"):
        world.store.put(f"day=1/{name}", b"rows")
    world.store.put(f"day=1/_started_{tid}")
    world.store.put(f"day=1/_committed_{tid}", f'{{"added": ["{names_of[0]}"], "removed": []}}'.encode())
    world.table.adopt()
    world.table.drop(everything=True)
    assert world.paths == set()


def test_a_strangers_files_and_markers_below_the_root_are_left(world: World) -> None:
    world.fill()
    stranger = {"day=one/_started_77", "day=one/part-0-tid-77-job-0-0-c000.parquet"}
    for path in stranger:
        world.store.put(path, b"")
    assert world.table.drop(everything=True).left == ("day=one/part-0-tid-77-job-0-0-c000.parquet",)
    assert world.paths == stranger


def test_nothing_but_a_table_of_ours_is_removed(world: World, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        world.table.drop(everything=True)
    world.store.put("old.parquet", b"rows")
    with pytest.raises(InvalidInputError, match="plain directory"):
        world.table.drop(everything=True)
    assert world.paths == {"old.parquet"}
    write_days(Table(tmp_path), one=b"1")
    with pytest.raises(InvalidInputError, match="partition of the table"):
        Table(tmp_path / "day=one").drop(everything=True)


def test_a_table_that_holds_another_is_not_removed(world: World) -> None:
    write(world.table)
    world.store.put("below/_dbio_table", b"{}")
    with pytest.raises(InvalidInputError, match="another table"):
        world.table.drop(everything=True)
    assert names.DROPPED not in world.paths


def test_what_could_not_be_deleted_is_deleted_by_the_next(world: World) -> None:
    world.fill()
    world.store.before = fail_with(StoreError("refused"), "delete", "day=*")
    with pytest.raises(StoreError, match="run `dbio drop` again"):
        world.table.drop(everything=True)
    heal(world.store)
    with pytest.raises(TableNotFoundError, match="was dropped"):
        world.table.snapshot()
    world.table.drop()  # it need not be told again how much may go
    assert world.paths == set()


def test_emptied_directories_of_a_disk_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path / "table")
    table.clock = WakingClock()
    write_days(table, one=b"1")
    table.drop(everything=True)
    assert list((tmp_path / "table").iterdir()) == []


def test_a_tombstone_that_no_listing_shows_is_an_error_and_no_loop(world: World) -> None:
    world.fill()
    world.store.put(names.DROPPED)
    listed = world.store.list_log

    def list_log(*prefixes: str) -> list[Entry]:
        return [entry for entry in listed(*prefixes) if entry.path != names.DROPPED]

    world.store.before = give_up_after(200)
    with patch.object(world.store, "list_log", list_log), pytest.raises(CommitConflictError, match="not in listings"):
        world.table.drop(everything=True)


# --- beside others ------------------------------------------------------------------------------------------------


def test_a_listing_that_a_creation_has_overtaken_is_made_again(world: World) -> None:
    """It shows what was created after the descriptor, and not the descriptor."""
    world.fill()
    listed, torn = world.store.list_log, [True, False, False]  # from the end: the third one is torn

    def list_log(*prefixes: str) -> list[Entry]:
        found = listed(*prefixes)
        return [entry for entry in found if entry.path != names.DESCRIPTOR] if torn and torn.pop() else found

    with patch.object(world.store, "list_log", list_log):
        world.table.drop(everything=True)
    assert not world.paths


def test_a_drop_ends_when_another_one_was_faster(world: World) -> None:
    world.fill()
    world.store.before = once(
        "get", names.DESCRIPTOR, lambda: Table.over(world.store, world.clock).drop(everything=True)
    )
    with pytest.raises(TableNotFoundError, match="no table at"):
        world.table.drop(everything=True)
    assert not world.paths


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_drop_ends_when_another_one_ends_before_it_reads_the_tombstone(
    world: World, everything: bool, nth: int
) -> None:
    world.fill()
    world.store.after = fail_with(Killed(), "put_if_absent", names.DROPPED)
    with pytest.raises(Killed):
        world.table.drop(everything=True)
    heal(world.store)
    world.store.before = once("get", names.DROPPED, world.store.objects.clear, nth=nth)
    with suppress(CommitConflictError, TableNotFoundError):
        world.table.drop(everything=everything)
    assert not world.paths


def test_a_drop_goes_on_if_a_late_request_deletes_a_marker(world: World) -> None:
    """An earlier drop asked for it, and gave up."""
    world.fill()
    doomed = min(path for path in world.paths if path.startswith("_committed_"))
    world.store.before = once("get", doomed, lambda: world.store.objects.pop(doomed))
    world.table.drop(everything=True)
    assert not world.paths


def test_readers_see_the_whole_table_or_none_at_each_call_of_a_drop(world: World) -> None:
    world.fill()
    whole = live(world.table)
    seen: list[set[str] | None] = []
    other = Table.over(world.store, world.clock)

    def read(operation: str, path: str) -> None:
        world.store.before = lambda operation, path: None
        try:
            seen.append(live(other))
        except TableNotFoundError:
            seen.append(None)
        world.store.before = read

    world.store.before = read
    world.table.drop(everything=True)
    gone = seen.index(None)
    assert seen == [whole] * gone + [None] * (len(seen) - gone)
    assert gone >= 3


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_a_drop_that_is_killed_at_any_call_is_ended_by_the_next(everything: bool, after: bool) -> None:
    def prepared() -> World:
        world = World()
        if everything:
            world.fill()
        else:
            world.fail_first_write()
        return world

    def run(world: World, limit: int) -> None:
        Killer(world.store, limit, after=after)
        try:
            world.table.drop(everything=everything)
        finally:
            heal(world.store)

    for limit in range(10_000):
        world = prepared()
        before = live(world.table)
        try:
            run(world, limit)
            break
        except Killed:
            buried = names.DROPPED in world.paths
        with suppress(TableNotFoundError):
            assert live(world.table) == before
            assert not buried
        if world.paths:
            world.table.drop(everything=everything)
        assert world.paths == set()
    assert limit > 15


def test_a_pending_writer_gets_an_error_and_its_files_go(world: World) -> None:
    write(world.table)
    transaction = world.table.begin()
    stage(world.table, transaction)
    errors: list[BaseException] = []

    def commit() -> None:
        try:
            transaction.commit()
        except DbioError as error:
            errors.append(error)

    world.clock.at(world.clock.monotonic() + 1, commit)
    world.table.drop(everything=True)
    assert isinstance(errors[0], TransactionAbortedError)
    assert world.paths == set()


def test_nobody_begins_in_a_table_that_is_being_dropped(world: World) -> None:
    write(world.table)
    errors: list[DbioError] = []

    def try_all() -> None:
        actions: list[Callable[[], object]] = [
            world.table.begin, world.table.snapshot, world.table.check, world.table.checkpoint, world.table.adopt,
            lambda: world.table.show("1"),
        ]  # fmt: skip
        for action in actions:
            try:
                action()
            except DbioError as error:
                errors.append(error)

    world.clock.at(world.clock.monotonic() + 1, try_all)
    world.table.drop(everything=True)
    assert [type(error) for error in errors] == [TableNotFoundError] * 6


def test_whoever_looked_before_and_begins_meanwhile_is_waited_for(world: World) -> None:
    write(world.table)
    began = world.clock.monotonic()
    target = look(world.store, world.clock)
    later = timedelta(seconds=SETTLE_S - TRUST_S + 1)  # than it really was: the clock jumps over the whole wait
    looked = replace(world.clock.moment(), monotonic_s=began + later.total_seconds(), wall=world.clock.now() + later)
    target = replace(target, looked=looked)

    def begin_late() -> None:
        transaction = begin(context_of(world.store, world.clock), Intent(), target=target)
        stage(world.table, transaction)

    world.clock.at(began + 1, begin_late)
    report = world.table.drop(everything=True)
    assert len(report.aborted) == 1
    assert world.clock.monotonic() - began >= 2 * SETTLE_S
    assert world.paths == set()


def test_whoever_looked_before_and_begins_after_is_refused(world: World) -> None:
    write(world.table)
    target = look(world.store, world.clock)
    world.table.drop(everything=True)
    with pytest.raises(CommitConflictError, match="was dropped"):
        begin(context_of(world.store, world.clock), Intent(), target=target)
    assert world.paths == set()
    write_days(world.table, one=b"1")
    before = world.paths
    with pytest.raises(CommitConflictError, match="was dropped"):
        begin(context_of(world.store, world.clock), Intent(), target=target)
    assert world.paths == before


def test_a_first_commit_that_comes_just_before_the_tombstone_stays(world: World) -> None:
    transaction = world.table.begin()
    stage(world.table, transaction)
    world.store.before = once("put_if_absent", names.DROPPED, transaction.commit)
    with pytest.raises(InvalidInputError, match="has commits"):
        world.table.drop()
    assert contents(world.table) == [b"rows"]
    assert names.DROPPED not in world.paths
    assert world.table.snapshot().scope is Scope.TABLE


def test_everything_goes_where_a_smaller_drop_was_killed_and_was_too_late(world: World) -> None:
    transaction = world.table.begin()
    stage(world.table, transaction)
    world.store.before = once("put_if_absent", names.DROPPED, transaction.commit)
    world.clock.at(world.clock.monotonic() + 1, kill)
    with pytest.raises(Killed):
        world.table.drop()
    world.store.before = fail_with(StoreError("refused"), "delete", "_committed_*")
    with pytest.raises(StoreError):
        world.table.drop(everything=True)
    heal(world.store)
    world.table.drop()
    assert world.paths == set()


def kill() -> None:
    raise Killed


def test_of_two_drops_at_once_one_may_fail_and_the_table_is_gone(world: World) -> None:
    write(world.table)
    other = Table.over(world.store, world.clock)
    world.clock.at(world.clock.monotonic() + 1, lambda: other.drop(everything=True))
    with pytest.raises(CommitConflictError, match="another drop"):
        world.table.drop(everything=True)
    assert world.paths == set()


def test_a_table_that_is_made_anew_meanwhile_is_left_alone(world: World) -> None:
    write(world.table)
    other = Table.over(world.store, world.clock)

    def replace() -> None:
        other.drop(everything=True)
        write(other, bodies=[b"new"])

    world.clock.at(world.clock.monotonic() + 1, replace)
    with pytest.raises(CommitConflictError):
        world.table.drop(everything=True)
    assert contents(world.table) == [b"new"]


def test_writers_that_never_stop_are_named(world: World) -> None:
    write(world.table)

    def begin_again(operation: str, path: str) -> None:
        if operation == "delete" and path.startswith("_started_"):
            world.store.put(f"{path}0")

    world.store.after = begin_again
    with pytest.raises(CommitConflictError, match="stop the writers"):
        world.table.drop(everything=True)


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_writer_that_commits_when_all_is_gone_gets_an_error_and_leaves_nothing(world: World, made_anew: bool) -> None:
    write(world.table)
    transaction = world.table.begin()
    stage(world.table, transaction, b"late")
    world.table.drop(everything=True)
    if made_anew:
        write(world.table, bodies=[b"new"])
    before = world.paths
    path = transaction.new_file().removeprefix(f"{world.table.url}/")
    for staged in [path, *transaction._staged]:
        world.store.put(staged, b"late")  # it has written them since
    with pytest.raises(TransactionAbortedError):
        transaction.commit()
    assert world.paths == before
