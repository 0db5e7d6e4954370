"""A copy of a table: by `Table.copy`, which keeps the times of its commits, and by tools that do not.

Rules: PROTOCOL.md 8.3; NOTES.md, Copies.
"""

import json
import os
import random
import shutil
import subprocess
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from dbio_commit.base.errors import (
    CheckpointLostError,
    CommitConflictError,
    DbioError,
    HistoryLostError,
    InvalidInputError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
)
from dbio_commit.feed.feed import Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Position, Start
from dbio_commit.maintenance.copy import copy_state, copy_table
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import Killed, Killer, fail_with, heal, once
from tests.writers import contents, live, stage, write, write_days

DAY = timedelta(days=1)


@pytest.fixture
def days(table: Table, clock: ManualClock) -> list[str]:
    """The tids of six commits, a day apart; the fifth is an overwrite."""
    tids = []
    for day in range(6):
        tids.append(write(table, "overwrite" if day == 4 else "append", bodies=[str(day).encode()]).tid)
        clock.advance(DAY)
    return tids


def redated(store: MemoryStore, clock: ManualClock, *, seed: int = 1) -> Table:
    """A copy as tools make it: the same bodies under new times, in any order."""
    copy = MemoryStore(clock, url=f"memory://copy-{seed}")
    paths = sorted(store.objects)
    random.Random(seed).shuffle(paths)
    for path in paths:
        clock.advance(timedelta(milliseconds=300))
        copy.put(path, store.objects[path][0])
    clock.advance(timedelta(minutes=1))
    return Table.over(copy, clock)


def feed(table: Table) -> Feed:
    return Feed(Follower(table.store, table.clock).history(), FeedOptions())


# --- by a tool that gives objects new times ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_with_other_times_reads_the_same_now(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], seed: int
) -> None:
    copy = redated(store, clock, seed=seed)
    assert contents(copy) == contents(table)
    assert copy.snapshot().schema == table.snapshot().schema
    assert {commit.tid for commit in copy.history()} == set(days)
    assert copy.check().ok
    assert copy.check().redated_until == copy.snapshot().redated_until is not None


@pytest.mark.parametrize("covered", [False, True], ids=["", "checkpointed since"])
def test_no_state_of_before_the_copy_is_made_up(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], covered: bool
) -> None:
    copied_at = clock.now()
    copy = redated(store, clock)
    if covered:
        copy.checkpoint()
        vacuum_table(copy, VacuumOptions(checkpoint_after=0))
    last = copy.history()[0].tid
    states: list[str | datetime] = [*(tid for tid in days if tid != last), clock.now() - 2 * DAY, copied_at]
    for as_of in states:
        with pytest.raises(InvalidInputError, match="it was copied"):
            copy.snapshot(as_of)
        with pytest.raises(InvalidInputError, match="it was copied"):
            copy.restore(as_of)
    assert live(copy) == {file.path for file in copy.snapshot(clock.now()).files}


def test_what_is_committed_after_the_copy_can_be_told_and_restored(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str]
) -> None:
    copy = redated(store, clock)
    before, at = contents(copy), clock.now()
    clock.advance(DAY)
    tid = write(copy, bodies=[b"more"]).tid
    clock.advance(DAY)
    write(copy, "overwrite", bodies=[b"bad"])
    clock.advance(DAY)
    assert len(copy.snapshot(at).files) == len(before)
    copy.restore(tid)
    assert contents(copy) == sorted([*before, b"more"])


@pytest.mark.parametrize("covered", [False, True], ids=["", "checkpointed since"])
def test_a_stream_on_the_original_does_not_go_on_with_the_copy(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], covered: bool
) -> None:
    end = feed(table).newest()
    copy = redated(store, clock)
    if covered:
        copy.checkpoint()
    write(copy)
    with pytest.raises(HistoryLostError, match="was copied"):
        feed(copy).after(end)
    for start in (Start(begin="tid", tid=days[1]), Start(begin="time", time=clock.now() - 3 * DAY)):
        with pytest.raises(HistoryLostError, match="was copied"):
            feed(copy).after(start)


def test_a_stream_that_begins_on_the_copy_reads_each_file_once(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str]
) -> None:
    copy = redated(store, clock)
    end = feed(copy).after(Start())
    assert isinstance(end, Position)
    had = [change.file.path for change in feed(copy).between(Start(), end)]
    assert sorted(had) == sorted(live(copy))
    for _ in range(3):
        clock.advance(DAY)
        new = write(copy).added
        then = feed(copy).after(end)
        assert isinstance(then, Position)
        assert [change.file.path for change in feed(copy).between(end, then)] == [*new]
        end = then


def test_a_write_that_goes_by_a_state_of_the_original_fails_on_the_copy(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str]
) -> None:
    for seed in range(6):
        copy = redated(store, clock, seed=seed)
        with pytest.raises(CommitConflictError), copy.begin("overwrite", if_match=days[2]) as transaction:
            transaction.commit()
        with copy.begin("overwrite", if_match=copy.snapshot().etag) as transaction:
            transaction.commit()


def test_a_copy_of_a_copy_is_noticed_again(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str]
) -> None:
    copy = redated(store, clock)
    clock.advance(DAY)
    write(copy)
    at = clock.now()
    clock.advance(DAY)
    assert isinstance(copy.store, MemoryStore)
    again = redated(copy.store, clock, seed=2)
    with pytest.raises(InvalidInputError, match="it was copied"):
        again.snapshot(at)


def test_turns_that_a_copy_redated_stay_in_their_order(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    for number in range(8):
        write(table, "overwrite", bodies=[str(number).encode()], schema=columns(f"c{number}"))
        clock.advance(DAY)
    order = [commit.tid for commit in table.history()]
    for seed in range(5):
        copy = redated(store, clock, seed=seed)
        assert [commit.tid for commit in copy.history()] == order
        assert contents(copy) == [b"7"]


@pytest.mark.parametrize(
    ("how", "keeps_times"),
    [("cp -r {0} {1}", False), ("cp -a {0} {1}", True), ("mkdir {1} && tar -C {0} -cf - . | tar -C {1} -xf -", False)],
)
def test_copies_on_a_disk_are_told_by_their_times(tmp_path: Path, how: str, keeps_times: bool) -> None:
    table = Table.over(Table(tmp_path / "table").store)
    tids = [write(table, "overwrite" if i == 8 else "append", bodies=[b"%d" % i]).tid for i in range(12)]
    time.sleep(0.01)
    subprocess.run(how.format(table.url, tmp_path / "copy"), shell=True, check=True)
    copy = Table.over(Table(tmp_path / "copy").store)
    assert contents(copy) == contents(table)
    for tid in tids[:-1]:
        if keeps_times:
            assert {it.path for it in copy.snapshot(tid).files} == {it.path for it in table.snapshot(tid).files}
        else:
            with pytest.raises(InvalidInputError, match="it was copied"):
                copy.snapshot(tid)
    os.rename(copy.url, tmp_path / "moved")
    moved = Table.over(Table(tmp_path / "moved").store)
    assert contents(moved) == contents(table)


def test_a_commit_that_began_before_the_copy_and_comes_late_makes_no_stream_read_twice(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table)
    late = table.begin()
    stage(table, late)
    clock.advance(timedelta(minutes=10))
    for path in list(store.objects):
        store.put(path, store.objects[path][0])
        clock.advance(timedelta(milliseconds=10))
    end = feed(table).after(Start())
    had = [change.file.path for change in feed(table).between(Start(), end)]  # type: ignore[arg-type]
    for _ in range(5):
        write(table)
        clock.advance(timedelta(minutes=40))
        then = feed(table).after(end)
        had += [change.file.path for change in feed(table).between(end, then)]  # type: ignore[arg-type]
        end = then
    late.commit()
    with pytest.raises(HistoryLostError):
        feed(table).after(end)
    assert len(had) == len(set(had))


def test_what_older_software_committed_has_no_order_in_a_copy_either(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    for number in range(4):
        write(table, bodies=[b"%d" % number])
        clock.advance(DAY)
    last = names.committed(table.history()[0].tid)
    marker = json.loads(store.get(last))
    del marker["dbio_commit"]["dated"], marker["dbio_commit"]["table_id"]
    store.put(last, json.dumps(marker).encode())
    for seed in range(6):
        copy = redated(store, clock, seed=seed)
        for commit in copy.history()[1:]:
            with pytest.raises(InvalidInputError, match="it was copied"):
                copy.snapshot(commit.tid)


# --- by Table.copy --------------------------------------------------------------------------------------------------


@pytest.fixture
def target(clock: ManualClock) -> Table:
    return Table.over(MemoryStore(clock, url="memory://target"), clock)


def test_a_copied_table_has_the_files_the_history_and_all_that_is_set(
    table: Table, clock: ManualClock, days: list[str], target: Table
) -> None:
    write(table, app=("job", 7), schema=columns("a"))
    table.set({"publish": ""})
    table.set({"change_data": "true"})
    clock.advance(DAY)
    report = copy_table(table.store, target.store, clock)
    assert (report.commits, report.files, report.tid) == (9, 7, table.snapshot().tid)
    assert report.size == sum(file.size for commit in table.history() for file in commit.files)
    assert contents(target) == contents(table)
    assert target.history() == table.history()
    assert (target.settings(), target.snapshot().schema) == (table.settings(), columns("a"))
    assert target.snapshot().table_id == table.snapshot().table_id
    for tid in days:
        assert {it.path for it in target.snapshot(tid).files} == {it.path for it in table.snapshot(tid).files}
    assert target.check().ok
    assert write(target, app=("job", 7)).skipped
    assert names.DROPPED not in {entry.path for entry in target.store.list_files()}


def test_life_goes_on_in_a_copied_table(table: Table, clock: ManualClock, days: list[str], target: Table) -> None:
    for number in range(3):
        write(table, "overwrite", bodies=[b"turn"], schema=columns(f"c{number}"))
    end = feed(table).newest()
    copy_table(table.store, target.store, clock)
    clock.advance(DAY)
    write(target, "overwrite", bodies=[b"new"], schema=columns("last"))
    assert target.snapshot().schema == columns("last")
    assert target.begin().terms.metadata.schema == columns("last")
    clock.advance(DAY)
    new = write(target, bodies=[b"more"], schema=columns("last")).added
    with pytest.raises(Exception, match="has removed rows"):
        feed(target).after(end)
    clock.advance(5 * DAY)
    for _ in range(3):
        assert vacuum_table(target, VacuumOptions(checkpoint_after=0)).ok
        clock.advance(DAY)
    assert contents(target) == [b"more", b"new"]
    assert set(new) < live(target)
    target.restore(target.history()[1].tid)
    assert contents(target) == [b"new"]


def test_a_stream_goes_on_with_a_copied_table(table: Table, clock: ManualClock, target: Table) -> None:
    for _ in range(5):
        write(table)
        clock.advance(DAY)
    end = feed(table).newest()
    copy_table(table.store, target.store, clock)
    new = write(target).added
    then = feed(target).after(end)
    assert isinstance(then, Position)
    assert [change.file.path for change in feed(target).between(end, then)] == [*new]


def test_a_copy_that_is_killed_anywhere_is_no_table_or_the_whole_table(
    table: Table, clock: ManualClock, days: list[str]
) -> None:
    wanted = contents(table)
    for call in range(1, 60):
        store = MemoryStore(clock, url=f"memory://target-{call}")
        target = Table.over(store, clock)
        calls = iter(range(1, 1000))
        store.before = lambda operation, path, calls=calls, call=call: _die(next(calls) == call)  # type: ignore[misc]
        try:
            copy_table(table.store, store, clock)
        except Killed:
            heal(store)
            assert contents(target) in ([], wanted)
            if not contents(target):
                if store.objects:
                    with pytest.raises(TableNotFoundError):
                        target.begin()
                    target.drop(everything=True)
                assert not store.objects
                copy_table(table.store, store, clock)
        heal(store)
        assert contents(target) == wanted


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
def test_a_copy_that_is_killed_at_any_call_goes_on(
    table: Table, clock: ManualClock, days: list[str], after: bool
) -> None:
    states = [sorted(file.path for file in table.snapshot(tid).files) for tid in days]
    call, is_killed, resumed = 0, True, set[int]()
    while is_killed:
        store = MemoryStore(clock, url=f"memory://target-{after}-{call}")
        killer = Killer(store, call, after)
        with suppress(BaseException):
            copy_table(table.store, store, clock)
        is_killed = killer.dead
        heal(store)
        target = Table.over(store, clock)
        if is_killed and not contents(target):
            clock.advance(timedelta(minutes=1))
            resumed.add(copy_table(table.store, store, clock).resumed_files)
        assert [sorted(file.path for file in target.snapshot(tid).files) for tid in days] == states
        assert contents(target) == contents(table)
        assert target.history() == table.history()
        assert target.check().ok
        assert names.DROPPED not in store.objects
        call += 1
    assert call > 15
    assert resumed == {0, 1, 2, 3, 4, 5, 6}


def interrupt(table: Table, target: Table, *, at: str = names.DESCRIPTOR) -> None:
    """A copy that is killed just before it creates this object."""
    assert isinstance(target.store, MemoryStore)
    target.store.before = fail_with(Killed(), "put_if_absent", at)
    with pytest.raises(Killed):
        copy_table(table.store, target.store, table.clock)
    heal(target.store)


def test_an_interrupted_copy_goes_on_with_the_table_as_it_is_by_then(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], target: Table
) -> None:
    interrupt(table, target)
    write(table, "overwrite", bodies=[b"new"])
    clock.advance(10 * DAY)
    assert vacuum_table(table, VacuumOptions(checkpoint_after=0)).ok
    write(table, bodies=[b"newer"])
    report = copy_table(store, target.store, clock)
    assert (report.copied_files, report.copied_size) == (2, 8)
    assert contents(target) == [b"new", b"newer"]
    assert target.history() == table.history()
    for _ in range(2):
        clock.advance(10 * DAY)
        assert vacuum_table(target, VacuumOptions(checkpoint_after=0)).ok
    assert {it.path for it in target.store.list_files() if not it.path.startswith("_")} == live(table)


@pytest.mark.parametrize("wrong", ["shorter", "gone"])
def test_a_copied_file_of_the_wrong_size_is_copied_again(tmp_path: Path, wrong: str) -> None:
    table, target = (Table.over(Table(tmp_path / name).store) for name in ("table", "target"))
    for number in range(3):
        write(table, bodies=[b"body %d" % number])
    with patch("dbio_commit.maintenance.copy._write_history", side_effect=Killed), pytest.raises(Killed):
        table.copy(target.url)
    path = Path(target.url, min(live(table)))
    path.write_bytes(b"bo") if wrong == "shorter" else path.unlink()
    report = table.copy(target.url)
    assert (report.copied_files, report.copied_size, report.resumed_files, report.files) == (1, 6, 2, 3)
    assert contents(target) == contents(table)


def test_a_file_whose_copy_is_not_whole_is_copied_again_whatever_its_size(
    table: Table, clock: ManualClock, days: list[str], target: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(table, target)
    assert isinstance(target.store, MemoryStore)
    path = min(live(table))
    target.store.put(path, bytes(target.store.stat(path).size))
    monkeypatch.setattr(target.store, "unfinished_copies", lambda: {path})
    report = copy_table(table.store, target.store, clock)
    assert (report.copied_files, report.resumed_files) == (1, 5)
    assert contents(target) == contents(table)


def test_nothing_goes_on_with_a_copy_of_another_table_or_with_a_dropped_one(
    table: Table, clock: ManualClock, days: list[str], target: Table
) -> None:
    interrupt(table, target)
    other = Table.over(MemoryStore(clock, url="memory://other"), clock)
    write(other)
    with pytest.raises(TableExistsError, match="unfinished copy of the table"):
        copy_table(other.store, target.store, clock)
    assert isinstance(target.store, MemoryStore)
    target.store.before = fail_with(Killed(), "delete", "part*")
    with pytest.raises(Killed):
        target.drop(everything=True)
    heal(target.store)
    with pytest.raises(TableExistsError, match="a table that was dropped"):
        copy_table(table.store, target.store, clock)
    target.drop(everything=True)
    assert not target.store.objects
    copy_table(table.store, target.store, clock)
    assert contents(target) == contents(table)


def test_a_copy_that_only_lacks_its_end_is_checked_before_it_is_a_table(
    table: Table, clock: ManualClock, days: list[str], target: Table
) -> None:
    assert isinstance(target.store, MemoryStore)
    target.store.before = fail_with(Killed(), "delete", names.DROPPED)
    with pytest.raises(Killed):
        copy_table(table.store, target.store, clock)
    heal(target.store)
    path = max(live(table))
    body = target.store.objects.pop(path)
    with pytest.raises(HistoryLostError, match="is missing, or has another size"):
        copy_table(table.store, target.store, clock)
    assert contents(target) == []
    target.store.objects[path] = body
    report = copy_table(table.store, target.store, clock)
    assert (report.files, report.copied_files, report.resumed_files) == (6, 0, 6)
    assert contents(target) == contents(table)


@pytest.mark.parametrize("at", [names.checkpoint(1), names.checkpoint(2), names.purge(1), names.DESCRIPTOR])
@pytest.mark.parametrize("dies_at", ["delete", "put_if_absent", "write"])
def test_a_process_that_was_taken_for_dead_completes_no_copy_that_another_has_begun_again(
    table: Table, clock: ManualClock, days: list[str], target: Table, at: str, dies_at: str
) -> None:
    """The other dies, too, at its first such call."""
    store = target.store
    assert isinstance(store, MemoryStore)

    def take_over() -> None:
        store.before = fail_with(Killed(), dies_at, "*" if dies_at != "write" else "part*")
        with suppress(Killed):
            copy_table(table.store, store, clock)
        heal(store)

    store.before = once("put_if_absent", at, take_over)
    with suppress(CommitConflictError):
        copy_table(table.store, store, clock)
    heal(store)
    assert contents(target) in ([], contents(table))
    if not contents(target):
        copy_table(table.store, store, clock)
    assert contents(target) == contents(table)
    assert target.history() == table.history()
    assert target.check().ok


def test_of_two_copies_to_one_place_the_later_one_counts(
    table: Table, clock: ManualClock, days: list[str], target: Table
) -> None:
    for operation, pattern in [("write", "part*"), ("put_if_absent", "_*"), ("delete", names.DROPPED)]:
        for nth in (1, 2, 4):
            store = MemoryStore(clock, url=f"memory://{operation}-{nth}")
            done: list[object] = []
            store.before = once(
                operation,
                pattern,
                lambda store=store, done=done: done.append(copy_table(table.store, store, clock)),  # type: ignore[misc]
                nth=nth,
            )
            with suppress(DbioError):
                done.append(copy_table(table.store, store, clock))
            heal(store)
            assert done
            assert contents(Table.over(store, clock)) == contents(table)
            assert Table.over(store, clock).check().ok


def _die(now: bool) -> None:
    if now:
        raise Killed


def test_nothing_is_copied_over_what_is_there(table: Table, clock: ManualClock, days: list[str], target: Table) -> None:
    assert isinstance(target.store, MemoryStore)
    target.store.put("notes.txt", b"mine")
    with pytest.raises(TableExistsError):
        copy_table(table.store, target.store, clock)
    del target.store.objects["notes.txt"]
    write(target)
    with pytest.raises(TableExistsError):
        copy_table(table.store, target.store, clock)
    assert len(target.history()) == 1


def test_nothing_is_copied_into_the_table_itself(tmp_path: Path) -> None:
    table = Table.over(Table(tmp_path / "table").store)
    write(table)
    os.symlink(table.url, tmp_path / "link")
    through_link = Table(tmp_path / "link")
    for source, path in (
        (table, f"{table.url}/backup"),
        (table, through_link.url + "/it"),
        (through_link, f"{table.url}/it"),
    ):
        with pytest.raises(InvalidInputError, match="lies in the table"):
            source.copy(path)
    assert table.check().ok


def test_a_table_is_copied_to_the_same_url_of_another_service(table: Table, clock: ManualClock) -> None:
    write(table, bodies=[b"1"])
    for other in (MemoryStore(clock, url=table.url), MemoryStore(clock, url=f"{table.url}/below")):
        copy_table(table.store, other, clock)
        assert contents(Table.over(other, clock)) == contents(table)


def test_a_table_that_is_made_anew_while_it_is_copied_ends_the_copy(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], target: Table
) -> None:
    def make_anew() -> None:
        table.drop(everything=True)
        write(table, "overwrite", bodies=[b"new"])

    assert isinstance(target.store, MemoryStore)
    target.store.before = once("put_if_absent", names.checkpoint(1), make_anew)
    with pytest.raises(DbioError):
        copy_table(store, target.store, clock)
    assert contents(target) == []


def test_a_writer_at_the_target_keeps_what_it_commits(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], target: Table
) -> None:
    assert isinstance(target.store, MemoryStore)
    target.store.before = once("put_if_absent", names.DROPPED, lambda: write(target, bodies=[b"mine"]))
    with pytest.raises(TableExistsError):
        copy_table(store, target.store, clock)
    assert contents(target) == [b"mine"]


def test_a_stream_goes_on_with_a_copy_of_a_copy_that_another_tool_made_long_ago(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], target: Table
) -> None:
    copy = redated(store, clock)
    write(copy)
    end = feed(copy).newest()
    copy_table(copy.store, target.store, clock)
    new = write(target).added
    then = feed(target).after(end)
    assert [change.file.path for change in feed(target).between(end, then)] == [*new]  # type: ignore[arg-type]


def test_a_live_file_that_vacuum_deletes_meanwhile_ends_the_copy(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], target: Table
) -> None:
    store.delete_many([max(live(table))])
    with pytest.raises(HistoryLostError, match="copy again"):
        copy_table(store, target.store, clock)
    with pytest.raises(TableNotFoundError):
        target.snapshot()


def test_a_removed_file_that_is_gone_is_told_as_vacuum_tells_it(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], target: Table
) -> None:
    (gone,) = table.history()[-1].added
    store.delete_many([gone])
    copy_table(store, target.store, clock)
    assert contents(target) == contents(table)
    with pytest.raises(InvalidInputError, match="is not known: files that were live"):
        target.snapshot(days[1])


def test_a_copy_on_a_disk_by_its_path(tmp_path: Path) -> None:
    table = Table.over(Table(tmp_path / "table").store)
    tids = [write(table, "overwrite" if i == 3 else "append", bodies=[b"%d" % i]).tid for i in range(5)]
    report = table.copy(str(tmp_path / "copy"))
    copy = Table.over(Table(tmp_path / "copy").store)
    assert report.url == copy.url
    for tid in tids:
        assert {it.path for it in copy.snapshot(tid).files} == {it.path for it in table.snapshot(tid).files}
    shutil.rmtree(table.url)
    assert contents(copy) == [b"3", b"4"]


def test_what_the_lost_checkpoint_of_a_copy_told_is_missed(
    table: Table, clock: ManualClock, days: list[str], target: Table
) -> None:
    copy_table(table.store, target.store, clock)
    target.store.delete_many([names.checkpoint(2)])
    assert contents(target) == contents(table)
    target.store.delete_many([names.checkpoint(1)])
    with pytest.raises(CheckpointLostError):
        target.snapshot()


# --- an earlier state ------------------------------------------------------------------------------------------------


def test_a_copy_of_an_earlier_state_is_another_table_with_its_rows_columns_and_settings(
    table: Table, clock: ManualClock, days: list[str], target: Table
) -> None:
    table.set({"publish": "delta"})
    report = copy_state(table.store, target.store, clock, days[2])
    assert contents(target) == [b"0", b"1", b"2"]
    assert (report.commits, report.files, report.size) == (1, 3, 3)
    assert target.snapshot().table_id != table.snapshot().table_id
    assert target.snapshot().partition_columns == table.snapshot().partition_columns
    assert target.settings() == {}
    assert target.check().ok
    now = Table.over(MemoryStore(clock, url="memory://now"), clock)
    copy_state(table.store, now.store, clock, table.history()[0].tid)
    assert (contents(now), now.settings()) == (contents(table), {"publish": "delta"})


def test_what_an_earlier_version_let_a_table_have_is_copied(
    table: Table, clock: ManualClock, target: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dbio_commit.commit.state_after.CHANGE_DATA", "")
        write(table, schema=columns("_change_type"))
        table.set({"change_data": "true"})
    copy_state(table.store, target.store, clock, table.history()[0].tid)
    assert (target.settings(), target.snapshot().schema) == (table.settings(), table.snapshot().schema)


def test_a_copy_of_an_earlier_state_has_its_columns_and_partitions(clock: ManualClock, target: Table) -> None:
    table = Table.over(MemoryStore(clock), clock)
    write_days(table, d1=b"1", d2=b"2")
    first = table.history()[0].tid
    table.begin("overwrite", partition_by=[]).commit(columns("other"))
    report = copy_state(table.store, target.store, clock, first)
    assert target.snapshot().partition_columns == ("day",)
    assert {names.split(path)[0] for path in live(target)} == {"day=d1", "day=d2"}
    assert report.files == 2


def test_a_state_is_copied_only_to_an_empty_place_and_only_if_it_is_known(
    table: Table, clock: ManualClock, days: list[str], target: Table
) -> None:
    with pytest.raises(InvalidInputError):
        copy_state(table.store, target.store, clock, "1")
    copy_state(table.store, target.store, clock, days[0])
    with pytest.raises(TableExistsError):
        copy_state(table.store, target.store, clock, days[0])


def test_a_state_before_the_first_commit_is_not_copied(
    table: Table, clock: ManualClock, days: list[str], target: Table
) -> None:
    before = (clock.now() - timedelta(days=365)).isoformat()
    with pytest.raises(InvalidInputError, match=r"had no commit as of .* nothing was copied: `dbio log`"):
        copy_state(table.store, target.store, clock, before)
    assert target.store.list_files() == []


def test_a_file_of_another_size_than_recorded_ends_the_copy_of_a_state(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], target: Table
) -> None:
    (path,) = table.history()[-1].added
    store.put(path, b"longer than it was", modified=store.objects[path][1])
    with pytest.raises(StoreError, match="records 1 bytes, but its copy has 18"):
        copy_state(table.store, target.store, clock, days[0])
    assert contents(target) == []


def test_a_file_that_vacuum_deletes_meanwhile_ends_the_copy_of_a_state(
    table: Table, store: MemoryStore, clock: ManualClock, days: list[str], target: Table
) -> None:
    (path,) = table.history()[-1].added
    store.before = once("get", path, lambda: store.objects.pop(path))
    with pytest.raises(HistoryLostError, match="take a later state"):
        copy_state(table.store, target.store, clock, days[0])
    assert contents(target) == []
