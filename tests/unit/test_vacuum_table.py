"""What vacuum does to a table of ours, and what it leaves, on a store in memory. Numbers I1 to I9: PROTOCOL.md 5.

What is garbage, rule by rule: `test_vacuum_plan`. Kills, faults, readers beside a vacuum: `test_vacuum_crash_points`.
"""

import gzip
import json
import os
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dbio_commit import (
    CorruptMarkerError,
    FileInfo,
    InvalidInputError,
    RetentionError,
    StoreError,
    Table,
    TableExistsError,
    TableNotFoundError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.protocol import names
from dbio_commit.protocol.state import DataFile
from dbio_commit.snapshot import Scope
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import FlatStore, act_before_call, calls_to, count_calls, fail_with, heal, once
from tests.garbage import (
    ALL,
    DAY,
    HOUR,
    LATE,
    LIVE,
    STRANGER,
    YOUNG,
    Scene,
    abort_with_leftovers,
    begin_writing,
    empty,
    empty_partition,
    everything,
    file_of,
    leave,
    unfinished,
)
from tests.writers import contents, data_files, live, stage, write, write_days
from vacuum import Control, Reason, VacuumOptions, VacuumReport, vacuum, vacuum_table

DEFAULTS = VacuumOptions()
AT_ONCE = VacuumOptions(checkpoint_after=0)
"""Writes a checkpoint whenever there is anything new."""


def run(scene: Scene, options: VacuumOptions = DEFAULTS, *, dry_run: bool = False) -> VacuumReport:
    return vacuum_table(scene.table, options, dry_run=dry_run)


def paths(report: VacuumReport, *reasons: Reason) -> set[str]:
    return {it.path for it in report.deleted if not reasons or it.reason in reasons}


def kept(report: VacuumReport, *reasons: Reason) -> set[str]:
    return {it.path for it in report.kept if not reasons or it.reason in reasons}


def overwritten() -> Scene:
    """A table of one live file, and one that was removed just now."""
    scene = empty()
    write(scene.table, bodies=[b"old"])
    write(scene.table, "overwrite", bodies=[b"new"])
    return scene


@pytest.mark.parametrize("name", ["README.txt", "secret.key", "part-0.parquet.bak"])
@pytest.mark.parametrize("untracked", [False, True])
def test_what_is_no_parquet_and_no_transaction_wrote_stays_though_a_marker_removes_it(
    name: str, untracked: bool
) -> None:
    scene = empty()
    write(scene.table, bodies=[b"live"])
    tid = write(scene.table).tid
    leave(scene, name, b"mine")
    leave(scene, "old.PARQUET")
    leave(scene, names.committed(tid), json.dumps({"added": [], "removed": [name, "old.PARQUET"]}).encode())
    for _ in range(4):
        scene.clock.advance(3 * DAY)
        report = run(scene, VacuumOptions(untracked=untracked, checkpoint_after=0))
        assert kept(report, Reason.NOT_DATA) == {name}
        assert report.oldest_garbage is None
    assert scene.store.objects[name][0] == b"mine"
    assert names.committed(tid) in scene.names  # DBIO's readers would take it for data
    assert "old.PARQUET" not in scene.names


# --- what stays the same ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "busy"])
def test_a_vacuum_changes_nothing_that_users_see(busy: bool) -> None:  # I4
    scene = everything(busy=busy)
    before, check, history = scene.table.snapshot(), scene.table.check(), scene.table.history()
    assert run(scene, ALL).deleted
    after = scene.table.snapshot()
    assert sorted(after.files, key=path_of) == sorted(before.files, key=path_of)
    assert (after.tids, after.app_versions, after.table_schema) == (
        before.tids,
        before.app_versions,
        before.table_schema,
    )
    assert [(it.tid, it.timestamp, it.operation, it.added_files, it.removed_files) for it in scene.table.history()] == [
        (it.tid, it.timestamp, it.operation, it.added_files, it.removed_files) for it in history
    ]
    left = scene.table.check()
    assert left.ok
    assert (left.live_files, left.live_size) == (check.live_files, check.live_size)
    assert contents(scene.table) == LIVE


def path_of(file: DataFile) -> str:
    return file.path


@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "busy"])
@pytest.mark.parametrize(
    "options",
    [DEFAULTS, ALL, AT_ONCE, VacuumOptions(checkpoint_after=5), VacuumOptions(retention_hours=0, force=True)],
    ids=["defaults", "all", "checkpoint", "with the aborted", "forced"],
)
def test_a_dry_run_says_what_will_be_done_and_changes_nothing(options: VacuumOptions, busy: bool) -> None:
    scene = everything(busy=busy)
    objects, uploads = dict(scene.store.objects), list(scene.store.unfinished)
    dry = run(scene, options, dry_run=True)
    assert dry.dry_run
    assert scene.store.objects == objects
    assert scene.store.unfinished == uploads
    real = run(scene, options)
    assert not real.dry_run
    assert dry.deleted == real.deleted
    assert (dry.kept, dry.aborted, dry.checkpoint, dry.failed) == (real.kept, real.aborted, real.checkpoint, [])
    assert set(objects) - scene.names <= paths(real)


def test_a_dry_run_makes_no_call_that_could_change_anything() -> None:
    scene = everything()
    calls: set[str] = set()
    scene.store.before = lambda operation, path: calls.add(operation)
    run(scene, ALL, dry_run=True)
    assert calls == {"list_log", "list_directory", "list_unfinished", "get"}


@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "busy"])
def test_a_second_run_finds_nothing_to_do(busy: bool) -> None:
    scene = everything(busy=busy)
    run(scene, ALL)
    objects = dict(scene.store.objects)
    report = run(scene, ALL)
    assert (report.deleted, report.failed, report.aborted, report.checkpoint) == ([], [], [], None)
    assert scene.store.objects == objects


def test_the_sizes_and_ages_of_a_report_are_those_of_the_objects() -> None:
    scene = overwritten()
    (old,) = data_files(scene.store) - live(scene.table)
    scene.clock.advance(3 * DAY)
    (deletion,) = [it for it in run(scene).deleted if it.reason is Reason.REMOVED]
    assert (deletion.path, deletion.size, deletion.age) == (old, 3, 3 * DAY)


def test_the_oldest_garbage_is_what_will_be_deleted_one_day() -> None:
    scene = overwritten()
    leave(scene, "export.csv")
    scene.clock.advance(DAY)
    begin_writing_to(scene)
    scene.clock.advance(HOUR)
    assert run(scene).oldest_garbage == DAY + HOUR
    assert run(empty_table()).oldest_garbage is None


def begin_writing_to(scene: Scene) -> str:
    return stage(scene.table, scene.table.begin())


def empty_table() -> Scene:
    scene = empty()
    scene.table.begin().commit()
    return scene


# --- retention: I4 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [1, 5, 48, 100])
def test_a_reader_finds_all_files_of_its_snapshot_for_as_long_as_the_retention(hours: int) -> None:  # I4
    scene = overwritten()
    write(scene.table, bodies=[b"more"])
    options = VacuumOptions(retention_hours=hours, checkpoint_after=0)
    pinned = scene.table.snapshot()
    for operation in ("overwrite", "append", "overwrite"):
        write(scene.table, operation, bodies=[b"later"])
        scene.clock.advance(HOUR / 3)
        run(scene, options)
    scene.clock.advance(hours * HOUR - HOUR)
    run(scene, options)
    assert {file.path for file in pinned.files} <= scene.names
    scene.clock.advance(HOUR)
    run(scene, options)
    assert not {file.path for file in pinned.files} & scene.names


def test_what_was_removed_less_than_the_retention_ago_is_kept_and_reported() -> None:  # I4
    scene = overwritten()
    old = data_files(scene.store) - live(scene.table)
    scene.clock.advance(2 * DAY)
    assert kept(run(scene), Reason.REMOVED) == old
    scene.clock.advance(timedelta(microseconds=1))
    assert paths(run(scene), Reason.REMOVED) == old


@pytest.mark.parametrize("hours", [0, 0.99, -1, float("nan"), float("inf"), 1e300])
def test_a_retention_that_could_hurt_is_refused_before_anything_is_read(hours: float) -> None:
    scene = everything()
    with calls_to(scene.store) as calls, pytest.raises(RetentionError, match="retention"):
        run(scene, VacuumOptions(retention_hours=hours))
    assert not calls


# --- pending transactions: I5 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_added", [False, True], ids=["new_file", "add"])
@pytest.mark.parametrize("operation", ["append", "overwrite", "replace_partitions"])
def test_a_writer_that_was_silent_for_too_long_gets_an_error_and_the_table_is_as_it_was(  # I5
    operation: str, is_added: bool
) -> None:
    scene = overwritten()
    transaction = scene.table.begin(operation)  # type: ignore[arg-type]
    path = stage(scene.table, transaction, b"late")
    if is_added:
        terms, transaction = transaction.terms, scene.table.resume(transaction.terms)
        transaction.add([FileInfo(path=path, size=4)])
        assert terms == transaction.terms
    scene.clock.advance(2 * DAY + timedelta(seconds=1))
    report = run(scene)
    assert report.aborted == [transaction.tid]
    assert path in paths(report, Reason.ABORTED)
    assert path not in scene.names
    before = scene.table.snapshot()
    with pytest.raises(TransactionAbortedError, match=names.committed(transaction.tid)):
        transaction.commit()
    assert scene.table.snapshot().files == before.files
    assert contents(scene.table) == [b"new"]
    assert scene.table.check().ok


def test_a_writer_within_the_retention_commits() -> None:  # I5
    scene = overwritten()
    transaction = scene.table.begin()
    path = stage(scene.table, transaction, b"slow")
    scene.clock.advance(2 * DAY)
    report = run(scene)
    assert not report.aborted
    assert kept(report, Reason.PENDING) == {path}
    transaction.commit()
    assert contents(scene.table) == [b"new", b"slow"]


def test_what_a_dead_writers_task_writes_after_the_abort_goes_with_the_next_vacuum_however_late() -> None:
    scene = overwritten()
    transaction = scene.table.begin()
    scene.clock.advance(3 * DAY)
    assert run(scene, AT_ONCE).aborted == [transaction.tid]
    for days in (1, 40, 40, 40):
        zombie = leave(scene, file_of(transaction.tid))
        scene.clock.advance(3 * DAY)
        assert zombie in paths(run(scene, AT_ONCE), Reason.ABORTED, Reason.UNKNOWN)
        write(scene.table)
        scene.clock.advance(days * DAY)
        run(scene, AT_ONCE)
    assert names.committed(transaction.tid) not in scene.names
    assert transaction.tid not in {commit.tid for commit in scene.table.snapshot().commits}


def test_a_commit_marker_of_zero_length_is_none_and_its_transaction_is_aborted() -> None:  # I3, I5
    scene = overwritten()
    transaction = scene.table.begin()
    path = stage(scene.table, transaction)
    leave(scene, names.committed(transaction.tid), b"")
    assert not run(scene).aborted  # young still
    scene.clock.advance(3 * DAY)
    assert run(scene).aborted == [transaction.tid]
    assert path not in scene.names
    with pytest.raises(TransactionAbortedError):
        transaction.commit()
    assert contents(scene.table) == [b"new"]


def test_abort_markers_stay_for_30_days_so_that_no_late_writer_misses_them() -> None:  # I5
    scene = overwritten()
    scene.table.abort(scene.table.begin().tid)
    marker = next(name for name in scene.names if scene.store.objects[name][0].find(b'"abort"') > 0)
    scene.clock.advance(HOUR)
    run(scene, AT_ONCE)
    scene.clock.advance(30 * DAY - HOUR)
    run(scene, AT_ONCE)
    assert marker in scene.names
    scene.clock.advance(timedelta(seconds=1))
    assert paths(run(scene, AT_ONCE), Reason.ABORT_MARKER) == {marker}


# --- others act between any two calls of a vacuum -----------------------------------------------------------------

Act = Callable[[Scene], object]


def commit_late(scene: Scene) -> None:
    """The writer that is pending for too long: all of it, or an error and nothing (I5)."""
    before = contents(scene.table)
    try:
        scene.late_writer().commit()
    except TransactionAbortedError:
        assert contents(scene.table) == before
    else:
        assert contents(scene.table) == sorted([*before, LATE])


def commit_young(scene: Scene) -> None:
    before = contents(scene.table)
    scene.young_writer().commit()
    assert contents(scene.table) == sorted([*before, YOUNG])


def write_on(scene: Scene) -> None:
    """Some who begin now, some of whom are done."""
    write_days(scene.table, a=b"a3", new=b"new")
    write_days(scene.table, "replace_partitions", c=b"c2")
    abort_with_leftovers(scene, {"day": "a"})
    begin_writing(scene.table, b"not yet", "other")


def stall(scene: Scene) -> None:
    """The vacuum hangs for days, in which others work on and vacuum, until all that it knows is purged."""
    commit_late(scene)
    for _ in range(2):
        write_on(scene)
        scene.clock.advance(2 * DAY)
        assert run(scene, VacuumOptions(checkpoint_after=0)).ok
    assert run(scene, VacuumOptions(retention_hours=0, force=True, checkpoint_after=0)).ok


ACTS: dict[str, Act] = {
    "append": lambda scene: write_days(scene.table, new=b"new"),
    "overwrite": lambda scene: write_days(scene.table, "overwrite", a=b"new"),
    "write on": write_on,
    "commit late": commit_late,
    "commit young": commit_young,
    "abort": lambda scene: scene.table.abort(scene.young_writer().tid),
    "vacuum": lambda scene: run(scene, ALL),
    "checkpoint": lambda scene: scene.table.checkpoint(),
    "stall": stall,
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_whoever_acts_between_two_calls_of_a_vacuum_loses_nothing(act: Act) -> None:  # I4, I5, I6, I9
    scene = everything()
    calls = count_calls(scene.store, partial(run, scene, ALL))
    assert calls > 50
    for number in range(calls):
        scene = everything()
        seen: list[list[bytes]] = []

        def act_and_look(scene: Scene = scene, seen: list[list[bytes]] = seen) -> None:
            act(scene)
            seen.append(contents(scene.table))

        act_before_call(scene.store, number, act_and_look)
        assert run(scene, ALL).ok
        heal(scene.store)
        assert [contents(scene.table)] == seen
        assert scene.table.check().ok
        scene.clock.advance(3 * DAY)
        assert run(scene, ALL).ok
        assert [contents(scene.table)] == seen
        assert scene.table.check().ok


def test_a_vacuum_whose_clock_is_days_ahead_deletes_no_file_that_is_live_or_will_be() -> None:  # I4, I5
    def ahead(scene: Scene) -> Table:
        clock = ManualClock(scene.clock.now() + 10 * DAY)
        return Table.over(scene.store, clock)

    scene = everything(busy=False)
    calls = count_calls(scene.store, partial(vacuum_table, ahead(scene), ALL))
    for number in range(calls):
        scene = everything(busy=False)
        new: list[Callable[[], object]] = []

        def act(scene: Scene = scene, new: list[Callable[[], object]] = new) -> None:
            write_days(scene.table, new=b"new")
            new.append(begin_writing(scene.table, YOUNG, "y").transaction(scene.table).commit)

        act_before_call(scene.store, number, act)
        vacuum_table(ahead(scene), ALL)
        heal(scene.store)
        assert contents(scene.table) == sorted([*LIVE, b"new"])
        try:
            new[0]()
        except TransactionAbortedError:
            assert contents(scene.table) == sorted([*LIVE, b"new"])
        else:
            assert contents(scene.table) == sorted([*LIVE, b"new", YOUNG])
        assert scene.table.check().ok


def test_databricks_readers_of_an_unpartitioned_table_see_the_same_at_every_moment() -> None:
    """They know the markers, and neither descriptor nor checkpoints."""
    scene = empty()
    write(scene.table, bodies=[b"1", b"2"])
    failed = write(scene.table, bodies=[b"3"])
    leave(scene, file_of(failed.tid))
    write(scene.table, "overwrite", bodies=[b"4"])
    scene.table.checkpoint()
    scene.clock.advance(40 * DAY)
    abort_with_leftovers(scene, {})
    begin_writing_to(scene)
    write(scene.table, "overwrite", bodies=[b"5"])
    scene.table.checkpoint()
    scene.clock.advance(3 * DAY)
    write(scene.table, "overwrite", bodies=[b"6"])
    begin_writing_to(scene)
    scene.clock.advance(DAY)
    looks: list[list[bytes]] = []

    def look(operation: str, path: str) -> None:
        theirs = Scene(Table.over(MemoryStore(scene.clock), scene.clock))
        theirs.store.objects = {
            path: it
            for path, it in list(scene.store.objects.items())
            if path != names.DESCRIPTOR and not path.startswith(("_checkpoint_", "_serial_"))
        }
        assert theirs.table.snapshot().scope is Scope.DIRECTORY
        looks.append(contents(theirs.table))

    scene.store.before = scene.store.after = look
    for pattern in ("_started_*", "part-*", "_committed_*", ""):
        heal(scene.store)
        failures = fail_with(StoreError("no"), "delete", pattern, times=None)

        def step(operation: str, path: str, failures: Callable[[str, str], None] = failures) -> None:
            look(operation, path)
            failures(operation, path)

        scene.store.before, scene.store.after = step, look
        run(scene, AT_ONCE)
    assert len(looks) > 100
    assert all(seen == [b"6"] for seen in looks)


# --- what a vacuum refuses ----------------------------------------------------------------------------------------


def test_a_corrupt_commit_marker_stops_a_vacuum_before_it_deletes_anything() -> None:
    scene = everything()
    bad = leave(scene, names.committed(write_days(scene.table, bad=b"bad").tid), b"{")
    objects = dict(scene.store.objects)
    for dry_run in (True, False):
        with pytest.raises(CorruptMarkerError, match=bad):
            run(scene, ALL, dry_run=dry_run)
    assert scene.store.objects == objects


def test_a_corrupt_marker_that_a_checkpoint_covers_says_nothing_and_is_purged() -> None:
    scene = overwritten()
    scene.table.checkpoint()
    bad = leave(scene, names.committed(scene.table.history()[0].tid), b"{")
    scene.clock.advance(3 * DAY)
    assert bad in paths(run(scene), Reason.COMMIT_MARKER)
    assert contents(scene.table) == [b"new"]


def test_a_checkpoint_that_cannot_be_read_stops_a_vacuum_before_it_deletes_anything() -> None:
    scene = everything()
    leave(scene, names.checkpoint(99), b"this is not gzip")
    objects = dict(scene.store.objects)
    with pytest.raises(CorruptMarkerError, match=names.checkpoint(99)):
        run(scene, ALL)
    assert scene.store.objects == objects


@pytest.mark.parametrize("directory", ["day=a", "stray", "day=a/deeper=1", "new"])
def test_a_table_inside_a_table_is_refused_and_nothing_is_deleted(directory: str) -> None:
    scene = everything()
    nested = Table.over(MemoryStore(scene.clock), scene.clock)
    write(nested)
    assert isinstance(nested.store, MemoryStore)
    scene.store.objects |= {f"{directory}/{path}": it for path, it in nested.store.objects.items()}
    before = scene.names
    for dry_run in (True, False):
        with pytest.raises(InvalidInputError, match=f"another table, .*/{directory}"):
            run(scene, ALL, dry_run=dry_run)
    assert scene.names >= before


@pytest.mark.parametrize("kind", [MemoryStore, FlatStore])
@pytest.mark.parametrize("days", [1, 50])
def test_what_lies_in_directories_that_readers_skip_is_not_looked_at(kind: type[MemoryStore], days: int) -> None:
    scene = empty(kind)
    write_days(scene.table, **{f"d{day}": b"rows" for day in range(days)})  # type: ignore[arg-type]
    strange = {leave(scene, f"{d}/{names.DESCRIPTOR}") for d in ("_attic", "day=d0/_attic", "day=d0/.x/y", "a/_b/c=1")}
    scene.clock.advance(3 * DAY)
    with calls_to(scene.store) as calls:
        assert not run(scene, ALL).deleted
    assert not [path for _, path in calls if "_attic" in path or ".x" in path or "_b" in path]
    assert scene.names >= strange


def test_nothing_at_the_path_is_no_table() -> None:
    scene = empty()
    with pytest.raises(TableNotFoundError):
        run(scene)
    assert not scene.names


# --- failures, stopping, progress ---------------------------------------------------------------------------------


def test_a_file_that_cannot_be_deleted_is_reported_stops_nothing_and_keeps_its_markers() -> None:
    scene = empty()
    tids = [write(scene.table, bodies=[b"old"]).tid for _ in range(3)]
    remover = write(scene.table, "overwrite", bodies=[b"new"]).tid
    old = {tid: path for path in data_files(scene.store) for tid in tids if tid in path}
    scene.table.checkpoint()
    scene.clock.advance(3 * DAY)
    scene.store.before = fail_with(StoreError("locked"), "delete", old[tids[1]], times=None)
    report = run(scene)
    heal(scene.store)
    assert [(it.path, it.message) for it in report.failed] == [(old[tids[1]], "locked")]
    assert not report.ok
    assert paths(report, Reason.REMOVED) == {old[tids[0]], old[tids[2]]}
    markers = {names.committed(tid) for tid in (*tids, remover)}
    assert markers & scene.names == {names.committed(tids[1]), names.committed(remover)}
    again = run(scene)
    assert again.ok
    assert paths(again, Reason.REMOVED) == {old[tids[1]]}
    assert not markers & scene.names
    assert contents(scene.table) == [b"new"]


def test_a_commit_marker_stays_while_its_start_marker_cannot_be_deleted() -> None:
    scene = overwritten()
    scene.table.checkpoint()
    scene.clock.advance(3 * DAY)
    stuck, other = (commit.tid for commit in scene.table.history())
    scene.store.before = fail_with(StoreError("locked"), "delete", names.started(stuck), times=None)
    report = run(scene)
    heal(scene.store)
    assert [it.path for it in report.failed] == [names.started(stuck)]
    assert {names.started(stuck), names.committed(stuck)} <= scene.names
    assert not {names.started(other), names.committed(other)} & scene.names
    assert paths(run(scene)) == {names.started(stuck), names.committed(stuck)}


@pytest.mark.parametrize("seed", range(10))
def test_whatever_cannot_be_deleted_the_next_vacuum_deletes(seed: int) -> None:
    undisturbed, scene = everything(busy=False), everything(busy=False)
    run(undisturbed, ALL)
    chance = random.Random(seed)

    def refuse(operation: str, path: str) -> None:
        is_clock = path.startswith(names.Kind.CLOCK)
        if operation in ("delete", "abort_unfinished") and not is_clock and chance.random() < 0.5:
            raise StoreError(f"no luck with {path}")

    scene.store.before = refuse
    report = run(scene, ALL)
    heal(scene.store)
    assert report.failed
    assert all("no luck" in it.message for it in report.failed)
    assert not {it.path for it in report.failed} & paths(report)
    assert {it.path for it in report.failed} <= scene.names | {"day=a/large.parquet"}
    assert contents(scene.table) == LIVE
    assert run(scene, ALL).ok
    assert scene.names == undisturbed.names
    assert scene.store.unfinished == undisturbed.store.unfinished


def test_a_vacuum_that_is_told_to_stop_ends_after_the_batch_and_the_next_one_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryStore, "delete_batch", 1)
    scene = empty()
    for _ in range(100):
        write(scene.table, bodies=[b"old"])
    write(scene.table, "overwrite", bodies=[b"new"])
    scene.clock.advance(3 * DAY)
    wishes = count()
    control = Control(stop=lambda: next(wishes) == 2)  # once after the listing, then after each few batches
    report = vacuum_table(scene.table, DEFAULTS, control=control)
    assert report.stopped
    assert report.ok
    assert 0 < len(report.deleted) < 100
    assert len(data_files(scene.store)) == 101 - len(report.deleted)
    assert not paths(report) & scene.names
    assert not report.checkpoint
    assert contents(scene.table) == [b"new"]
    assert scene.table.check().ok
    rest = run(scene)
    assert not rest.stopped
    assert len(paths(rest, Reason.REMOVED)) == 100 - len(report.deleted)
    assert rest.checkpoint


def test_a_vacuum_that_is_told_to_stop_at_once_has_changed_nothing() -> None:
    scene = everything(busy=False)
    before = scene.names
    report = vacuum_table(scene.table, ALL, control=Control(stop=lambda: True))
    assert report.stopped
    assert not report.deleted
    assert scene.names == before | {names.committed(tid) for tid in report.aborted}


def test_progress_counts_up_to_all_that_there_is_to_delete() -> None:
    scene = overwritten()
    for _ in range(50):
        write(scene.table, "overwrite")
    scene.clock.advance(3 * DAY)
    said: list[tuple[str, int, int | None]] = []
    report = vacuum_table(scene.table, DEFAULTS, control=Control(progress=lambda *it: said.append(it)))
    removed = len(paths(report, Reason.REMOVED))
    assert removed == 51
    assert said[0][0] == "listing"
    assert ("deleting", removed, removed) in said
    assert all(total is None or done <= total for _, done, total in said)


def test_uploads_that_nobody_finished_are_given_up_after_the_retention() -> None:
    scene = overwritten()
    unfinished(scene, "old.parquet")
    scene.clock.advance(timedelta(seconds=1))
    unfinished(scene, "young.parquet")
    scene.clock.advance(2 * DAY)
    assert paths(run(scene, dry_run=True), Reason.UPLOAD) == {"old.parquet"}
    assert len(scene.store.unfinished) == 2
    assert paths(run(scene), Reason.UPLOAD) == {"old.parquet"}
    assert [it.path for it in scene.store.unfinished] == ["young.parquet"]


def test_a_right_to_list_uploads_that_is_missing_is_reported_and_stops_nothing() -> None:
    scene = everything(busy=False)
    scene.store.before = fail_with(StoreError("denied"), "list_unfinished", "*")
    report = run(scene, ALL)
    assert [it.message for it in report.failed] == ["denied"]
    assert paths(report, Reason.COMMIT_MARKER)
    assert paths(report, Reason.DIRECTORY)


# --- checkpoints and purge ----------------------------------------------------------------------------------------


def test_a_checkpoint_is_written_once_so_many_commits_have_come_since_the_last() -> None:
    scene = empty()
    options = VacuumOptions(checkpoint_after=5)
    written = []
    for _ in range(13):
        write(scene.table)
        written.append(run(scene, options).checkpoint)
    assert [number for number, name in enumerate(written, 1) if name] == [5, 10]
    assert written[9] == names.checkpoint(2)
    assert not run(empty_table(), VacuumOptions()).checkpoint


def test_what_a_checkpoint_covers_is_purged_once_the_checkpoint_is_half_an_hour_old() -> None:
    scene = empty()
    tids = [write(scene.table).tid for _ in range(3)]
    run(scene, AT_ONCE)
    later = write(scene.table).tid
    scene.clock.advance(timedelta(minutes=30))
    assert not run(scene).deleted
    scene.clock.advance(timedelta(seconds=1))
    report = run(scene)
    assert paths(report, Reason.START_MARKER) == {names.started(tid) for tid in tids}
    assert paths(report, Reason.COMMIT_MARKER) == {names.committed(tid) for tid in tids}
    assert scene.names - data_files(scene.store) == {
        names.DESCRIPTOR,
        names.checkpoint(1),
        names.started(later),
        names.committed(later),
    }
    assert len(contents(scene.table)) == 4


def test_a_checkpoint_that_another_vacuum_purges_before_it_is_read_leaves_nothing_to_do() -> None:
    scene = overwritten()
    scene.table.checkpoint()
    scene.clock.advance(HOUR)
    write(scene.table)
    scene.table.checkpoint()

    def later() -> None:
        scene.clock.advance(HOUR)
        assert names.checkpoint(1) in paths(run(scene), Reason.CHECKPOINT)

    scene.store.before = once("get", names.checkpoint(1), later)
    report = run(scene)
    assert names.checkpoint(1) not in scene.names
    assert (report.failed, report.deleted) == ([], [])
    assert contents(scene.table) == [b"new", b"rows"]


def test_start_markers_go_before_commit_markers_and_data_before_both() -> None:
    scene = everything()
    deleted: list[str] = []
    scene.store.before = lambda operation, path: deleted.append(path) if operation == "delete" else None
    run(scene, ALL)
    kinds = [kind for path in deleted if (kind := kind_of(path)) not in (None, "_clock_")]
    empty_marker = kinds.index("_committed_")
    del kinds[empty_marker]  # the one without content, before its transaction is aborted
    assert kinds == sorted(kinds, key=["data", "_started_", "_committed_", "_checkpoint_", "_serial_"].index)
    assert set(kinds) == {"data", "_started_", "_committed_", "_checkpoint_", "_serial_"}


def kind_of(path: str) -> str:
    marker = names.parse_log_name(path)
    return str(marker.kind) if marker else "data"


def test_a_version_of_an_application_is_committed_once_also_when_its_commit_is_forgotten() -> None:  # I8
    scene = empty()
    write(scene.table, app=("nightly", 7))
    for _ in range(3):
        write(scene.table, "overwrite", bodies=[b"kept"])
        scene.clock.advance(40 * DAY)
        run(scene, AT_ONCE)
    assert ("nightly", 7) not in [commit.app for commit in scene.table.history()]
    for version in (6, 7):
        assert write(scene.table, bodies=[b"twice"], app=("nightly", version)).skipped
    assert contents(scene.table) == [b"kept"]
    assert not write(scene.table, bodies=[b"next"], app=("nightly", 8)).skipped


def test_the_schema_stays_when_the_commit_that_set_it_is_forgotten() -> None:
    scene = empty()
    columns = {"type": "struct", "fields": [{"name": "id"}]}
    write(scene.table, schema=columns)
    for _ in range(3):
        write(scene.table, "overwrite")
        scene.clock.advance(40 * DAY)
        run(scene, AT_ONCE)
        write(scene.table)
        assert scene.table.snapshot().schema == columns
        assert scene.table.begin().terms.schema.json == columns


def test_the_schema_of_an_empty_table_stays_when_no_commit_is_remembered() -> None:
    scene = empty()
    columns = {"type": "struct", "fields": [{"name": "id"}]}
    write(scene.table, bodies=[], schema=columns)
    for _ in range(4):
        scene.table.begin().abort()
        run(scene, AT_ONCE)
        scene.clock.advance(20 * DAY)
        run(scene, AT_ONCE)
        assert scene.table.snapshot().schema == columns
        assert scene.table.begin().terms.schema.json == columns
    assert not scene.table.history()


def test_a_table_whose_commit_markers_are_all_purged_is_one_that_exists() -> None:
    scene = overwritten()
    run(scene, AT_ONCE)
    scene.clock.advance(3 * DAY)
    run(scene)
    assert not [name for name in scene.names if name.startswith(("_started_", "_committed_"))]
    with pytest.raises(TableExistsError):
        scene.table.begin(must_create=True)
    for tid in scene.table.snapshot().tids:
        with pytest.raises(TransactionStateError, match="decided long ago"):
            scene.table.abort(tid)
    assert contents(scene.table) == [b"new"]


def test_the_log_of_a_table_stays_small_over_500_commits() -> None:
    scene = empty()
    most = 0
    for day in range(50):
        for hour in range(10):
            write(scene.table, "overwrite" if hour % 5 == 4 else "append", bodies=[f"{day} {hour}".encode()])
            scene.clock.advance(DAY / 10)
        if day % 3 == 0:
            scene.table.begin()  # whose writer dies
        assert run(scene).ok
        most = max(most, len([name for name in scene.names if name.startswith("_")]))
    assert most < 120
    assert len(data_files(scene.store)) < 60
    assert contents(scene.table) == [b"49 9"]
    history = scene.table.history()
    since = scene.clock.now() - 30 * DAY
    assert sum(commit.timestamp >= since for commit in history) == 300
    assert len(history) < 400


def test_the_history_of_what_is_gone_is_kept_for_as_long_as_asked_for() -> None:
    for days, is_known in ((30, False), (60, True)):
        scene = overwritten()
        first = scene.table.history()[-1].tid
        scene.clock.advance(HOUR)
        write(scene.table, "overwrite")
        scene.clock.advance(50 * DAY)
        for _ in range(3):
            run(scene, VacuumOptions(checkpoint_after=0, history_days=days))
            write(scene.table, "overwrite")
            scene.clock.advance(HOUR)
        assert (first in [commit.tid for commit in scene.table.history()]) is is_known


# --- time travel --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_over_months_the_past_is_told_right_or_refused_and_never_refused_within_the_retention(seed: int) -> None:  # I4
    scene = empty()
    chance = random.Random(seed)
    options = VacuumOptions(retention_hours=chance.choice([1, 24, 48, 200]), checkpoint_after=chance.choice([0, 1, 5]))
    states: list[tuple[datetime, str, set[str]]] = []
    told = refused = 0
    for number in range(80):
        commit = act_at_random(scene, chance, number)
        states.append((scene.clock.now(), commit, live(scene.table)))
        scene.clock.advance(chance.choice([timedelta(seconds=1), HOUR, HOUR, DAY, 7 * DAY]))
        if chance.random() < 0.4:
            assert run(scene, options).ok
        for at, tid, files in chance.sample(states, k=min(len(states), 3)) + states[-1:]:
            for as_of in (at, tid):
                try:
                    found = {file.path for file in scene.table.snapshot(as_of=as_of).files}
                except InvalidInputError:
                    refused += 1
                    assert at < scene.clock.now() - timedelta(hours=options.retention_hours)
                else:
                    told += 1
                    assert found == files
                    assert found <= scene.names
    assert told > 50
    assert refused > 50
    assert scene.table.check().ok


def act_at_random(scene: Scene, chance: random.Random, number: int) -> str:
    table, body = scene.table, str(number).encode()
    match chance.randrange(8):
        case 0:
            return write_days(table, "overwrite", a=body).tid
        case 1 | 2:
            return write_days(table, "replace_partitions", **one_day(chance, body)).tid
        case 3:
            abort_with_leftovers(scene, {"day": "a"}) if number else None
        case 4:
            begin_writing(table, body, "p")
        case 5 if number:
            empty_partition(table, chance.choice("abc"))
            return table.history()[0].tid
    return write_days(table, d=body, **one_day(chance, body)).tid


def one_day(chance: random.Random, body: bytes) -> Any:
    return {chance.choice("abc"): body}


def test_the_past_stays_refused_when_what_removed_its_files_is_forgotten() -> None:
    scene = empty()
    first = write(scene.table, bodies=[b"old"]).tid
    at = scene.clock.now()
    scene.clock.advance(HOUR)
    remover = write(scene.table, "overwrite", bodies=[]).tid
    write(scene.table, bodies=[b"live"])
    for _ in range(15):
        scene.clock.advance(5 * DAY)
        run(scene, AT_ONCE)
        for as_of in (at, first):
            with pytest.raises(InvalidInputError):
                scene.table.snapshot(as_of=as_of)
        write(scene.table, bodies=[b"more"])
    assert first not in scene.table.snapshot().tids
    assert len(scene.table.snapshot(as_of=scene.clock.now() - 70 * DAY).files) == 2
    assert remover in scene.table.snapshot().tids  # of one instant with what is live


def test_a_state_within_the_instant_of_a_removal_stays_refused_when_the_removal_is_forgotten() -> None:
    """As on S3, whose times are whole seconds."""
    orders: set[bool] = set()
    for seed in range(8):
        clock = ManualClock(seed=seed)
        scene = Scene(Table.over(MemoryStore(clock), clock))
        write_days(scene.table, a=b"old")
        clock.advance(HOUR)
        append = write_days(scene.table, b=b"live").tid
        empty_partition(scene.table, "a")
        is_first = scene.table.history()[0].tid != append
        orders.add(is_first)
        for _ in range(10):
            clock.advance(5 * DAY)
            run(scene, AT_ONCE)
            write_days(scene.table, c=b"more")
        if is_first:
            with pytest.raises(InvalidInputError):
                scene.table.snapshot(as_of=append)
        else:
            assert len(scene.table.snapshot(as_of=append).files) == 1
    assert orders == {True, False}


def test_commits_of_one_instant_stay_in_their_order() -> None:
    """As on S3, whose times are whole seconds: no vacuum makes a commit come before the one that it depends on."""
    for seed in range(8):
        clock = ManualClock(seed=seed)
        scene = Scene(Table.over(MemoryStore(clock), clock))
        write(scene.table)
        clock.advance(HOUR)
        overwrite = scene.table.begin("overwrite")
        stage(scene.table, overwrite, b"new")
        append = write(scene.table)
        overwrite.commit()
        before = [commit.tid for commit in scene.table.history()]
        clock.advance(3 * DAY)
        run(scene, AT_ONCE)
        assert [commit.tid for commit in scene.table.history()] == before
        with pytest.raises(InvalidInputError, match="vacuumed"):
            scene.table.snapshot(as_of=append.tid)
        assert live(scene.table) == {file.path for file in scene.table.snapshot(as_of=overwrite.tid).files}


def test_a_state_whose_files_are_gone_is_refused_also_before_a_checkpoint_tells_so() -> None:
    scene = overwritten()
    first = scene.table.history()[-1].tid
    scene.clock.advance(3 * DAY)
    assert not run(scene).checkpoint
    with pytest.raises(InvalidInputError, match="vacuumed"):
        scene.table.snapshot(as_of=first)


# --- many directories ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MemoryStore, FlatStore])
@pytest.mark.parametrize("days", [3, 50])
def test_garbage_is_found_in_many_directories_and_live_files_are_not(kind: type[MemoryStore], days: int) -> None:
    scene = empty(kind)
    columns = ["day", "hour", "minute"]
    partitions = [
        {"day": str(day), "hour": str(day % 7), "minute": str(minute)} for day in range(days) for minute in (1, 2)
    ]
    for _ in range(2):
        transaction = scene.table.begin(partition_by=columns)
        for partition in partitions:
            stage(scene.table, transaction, partition=partition)
        transaction.commit()
    failed = {leave(scene, file_of(transaction.tid, partition)) for partition in partitions}
    replacing = scene.table.begin("replace_partitions")
    replacing.replace_partition({"day": "0"})
    removed = set(replacing.commit().removed)
    strange = {leave(scene, f"{directory}/{name}") for directory in ("_old", "day=1/_old", ".x/y") for name in "ab"}
    scene.clock.advance(3 * DAY)
    dry, real = run(scene, dry_run=True), run(scene)
    assert dry.deleted == real.deleted
    assert paths(real, Reason.FAILED_ATTEMPT) == failed
    assert paths(real, Reason.REMOVED) == removed
    assert len(removed) == 4
    assert scene.names >= strange
    assert scene.table.check().ok
    assert data_files(scene.store) - strange == live(scene.table)
    emptied = {"day=0", "day=0/hour=0", "day=0/hour=0/minute=1", "day=0/hour=0/minute=2"}
    assert paths(real, Reason.DIRECTORY) == (emptied if kind.has_directories else set())


# --- real directories ---------------------------------------------------------------------------------------------


@pytest.fixture
def local(tmp_path: Path) -> Table:
    """Ten days old: a live file, and others that were removed, from partitions within partitions too."""
    table = Table(tmp_path / "table")
    transaction = table.begin(partition_by=["day", "hour"])
    for day, hour in ("11", "12", "21"):
        stage(table, transaction, partition={"day": day, "hour": hour})
    transaction.commit()
    replacing = table.begin("replace_partitions")
    replacing.replace_partition({"day": "1"})
    replacing.commit()
    for directory in ("day=3/hour=1", "on purpose", "_temporary/0"):
        Path(table.url, directory).mkdir(parents=True)
    age(table, 10 * DAY)
    return table


def age(table: Table, by: timedelta) -> None:
    for path in Path(table.url).rglob("*"):
        then = path.stat().st_mtime - by.total_seconds()
        os.utime(path, (then, then), follow_symlinks=False)


def directories(table: Table) -> set[str]:
    return {str(path.relative_to(table.url)) for path in Path(table.url).rglob("*") if path.is_dir()}


def described(report: VacuumReport) -> list[tuple[str, int, Reason]]:
    return [(it.path, it.size, it.reason) for it in report.deleted]


def test_emptied_directories_are_removed_from_a_disk(local: Table) -> None:
    before = directories(local)
    dry = vacuum(local.url, dry_run=True)
    assert directories(local) == before
    real = vacuum(local.url)
    assert described(dry) == described(real)
    emptied = {"day=1", "day=1/hour=1", "day=1/hour=2", "day=3", "day=3/hour=1"}
    assert paths(real, Reason.DIRECTORY) == emptied
    assert directories(local) == before - emptied
    assert not vacuum(local.url).deleted


def test_no_directory_is_removed_from_a_disk_while_somebody_may_be_about_to_write_there(local: Table) -> None:
    before = directories(local)
    transaction = local.begin()
    transaction.inspector = None  # no Parquet
    path = Path(transaction.new_file(partition={"day": "4", "hour": "1"}))
    dry, real = vacuum(local.url, dry_run=True), vacuum(local.url)
    assert described(dry) == described(real)
    assert paths(real, Reason.REMOVED)
    assert directories(local) == before | {"day=4", "day=4/hour=1"}
    path.write_bytes(b"rows")  # as any tool does, which makes no directory
    transaction.commit()
    assert vacuum(local.url).ok
    assert local.check().ok
    assert directories(local) == before - {"day=1", "day=1/hour=1", "day=1/hour=2", "day=3", "day=3/hour=1"} | {
        "day=4",
        "day=4/hour=1",
    }


def test_a_directory_with_a_file_that_readers_skip_stays_on_a_disk(local: Table) -> None:
    for hidden in ("day=1/hour=1/_note", "day=1/hour=2/.hidden", "day=3/hour=1/_temporary/x"):
        Path(local.url, hidden).parent.mkdir(exist_ok=True)
        Path(local.url, hidden).touch()
    dry, real = vacuum(local.url, dry_run=True), vacuum(local.url)
    assert described(dry) == described(real)
    assert not paths(real, Reason.DIRECTORY)
    assert Path(local.url, "day=3/hour=1/_temporary/x").exists()


def test_nothing_behind_a_symbolic_link_is_deleted_from_a_disk(local: Table, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / file_of(STRANGER)).write_bytes(b"mine")
    os.utime(outside / file_of(STRANGER), (0, 0))
    Path(local.url, "day=2/hour=9").symlink_to(outside)
    Path(local.url, "day=2/hour=1", file_of(STRANGER)).symlink_to(outside / file_of(STRANGER))
    for untracked in (False, True):
        report = vacuum(local.url, untracked=untracked)
        assert report.ok
    assert (outside / file_of(STRANGER)).exists()
    assert Path(local.url, "day=2/hour=9").is_symlink()
    assert local.check().ok


# --- others -------------------------------------------------------------------------------------------------------


def test_a_marker_that_the_newest_checkpoint_does_not_tell_stays_whatever_an_older_one_tells() -> None:  # I4
    clock = ManualClock()
    store = MemoryStore(clock)
    table = Table.over(store, clock)
    write(table)
    before = live(table)
    vacuum_table(table, AT_ONCE)
    clock.advance(timedelta(hours=1))
    foreign = {"version": 1, "number": 2, "created": "2026-11-20T00:00:00Z", "commits": 0, "apps": {}, "schemas": []}
    store.put(names.checkpoint(2), gzip.compress(json.dumps({**foreign, "schema_turn": 0}).encode() + b"\n"))
    assert live(table) == before
    clock.advance(timedelta(minutes=1))
    vacuum_table(table, DEFAULTS)
    assert live(table) == before


def test_a_partitioned_table_that_is_created_while_vacuum_looks_is_not_corrupt() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    table = Table.over(store, clock)
    store.after = once("list_log", "", lambda: write_days(table, a=b"1"))
    assert vacuum_table(table, DEFAULTS).scope is Scope.TABLE
    assert contents(table) == [b"1"]
