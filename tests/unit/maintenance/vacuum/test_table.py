"""What vacuum does to a table of ours, and what it leaves, on a store in memory. Numbers I1 to I10: PROTOCOL.md 5.

What is garbage, rule by rule: `test_table_plan`. Kills, faults, readers beside a vacuum: `test_crash_points`.
Rules: PROTOCOL.md 10.2.
"""

import gzip
import json
import random
from datetime import timedelta
from itertools import count

import pytest

from dbio_commit import (
    CorruptMarkerError,
    FileInfo,
    InvalidInputError,
    RetentionError,
    StoreError,
    Table,
    TableNotFoundError,
    TransactionAbortedError,
)
from dbio_commit.protocol import names
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import DataFile
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import FlatStore, calls_to, fail_with, heal, once
from tests.garbage import (
    ALL,
    AT_ONCE,
    DAY,
    DEFAULTS,
    HOUR,
    LIVE,
    begin_writing_to,
    empty,
    empty_table,
    everything,
    file_of,
    kept,
    leave,
    overwritten,
    paths,
    run,
    unfinished,
)
from tests.writers import contents, data_files, live, stage, write, write_days
from vacuum import Control, Reason, VacuumOptions, vacuum_table


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
    assert (after.tids, after.app_versions, after.metadata) == (
        before.tids,
        before.app_versions,
        before.metadata,
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
    assert calls == {"list_log", "list_directory", "list_unfinished", "get", "stat_log"}


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
@pytest.mark.parametrize("operation", ["append", "overwrite", "overwrite_partitions"])
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
    assert transaction.tid not in {commit.tid for commit in scene.table.snapshot().decided}


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
def test_a_table_inside_a_table_is_refused_and_nothing_is_deleted(directory: str) -> None:  # 2.1
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
    assert [it.path for it in report.undeleted] == [old[tids[1]]]
    assert report.oldest_garbage == report.undeleted[0].age > timedelta(0)
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
    replacing = scene.table.begin("overwrite_partitions")
    replacing.overwrite_partition({"day": "0"})
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
