"""Vacuum of a directory that DBIO wrote: each rule with its boundary.

PROTOCOL.md 11.2 and 11.4. On a disk: `test_directory_disk`; random directories, against a model:
`test_directory_random`; killed and disturbed vacuums: `test_directory_crash_points`.
"""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from dbio_commit.base.errors import (
    CorruptMarkerError,
    InvalidInputError,
    RetentionError,
    TableNotFoundError,
    UnsupportedTableError,
)
from dbio_commit.protocol import names
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore
from tests.faults import KeyStore, OneByOne, calls_to
from tests.unit.dbio_model import (
    ABORT,
    DAY,
    EVER,
    HOUR,
    MINUTE,
    NOW,
    OLD,
    SECOND,
    A,
    B,
    C,
    World,
    at,
    commit,
    committed,
    deleted,
    file_of,
    pending,
    queue,
    queues,
)
from vacuum import Control, Reason, VacuumOptions, VacuumReport, vacuum, vacuum_table

DATA = [(48 * HOUR, False), (48 * HOUR + SECOND, True)]
"""Ages around the data horizon, and whether it has passed."""
METADATA = [(30 * MINUTE, False), (30 * MINUTE + SECOND, True)]


@pytest.fixture
def world() -> World:
    world = World()
    world.put("live.parquet")
    return world


def reasons(report: VacuumReport) -> dict[str, Reason]:
    return {it.path: it.reason for it in report.deleted}


# --- data files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", ["", "day=1", "year=2026/day=1"])
def test_a_file_that_its_committed_transaction_does_not_list_goes_at_once(world: World, directory: str) -> None:
    good = committed(world, directory=directory, age=NOW)
    failed = at(directory, file_of(A, attempt=7))
    world.put(failed, age=NOW)
    report = world.vacuum()
    assert reasons(report) == {failed: Reason.FAILED_ATTEMPT}
    assert good in world.paths


def test_a_file_of_an_aborted_transaction_goes_at_once(world: World) -> None:
    aborted = pending(world, age=NOW)
    world.put(f"_committed_{B}", ABORT, age=NOW)
    assert reasons(world.vacuum()) == {aborted: Reason.ABORTED}


@pytest.mark.parametrize("age_of_file", [NOW, OLD])
@pytest.mark.parametrize(("age", "goes"), DATA)
def test_a_removed_file_goes_by_the_time_of_the_commit_that_removed_it(
    world: World, age_of_file: timedelta, age: timedelta, goes: bool
) -> None:
    removed = committed(world, age=age_of_file)
    world.put(f"_committed_{B}", commit(removed=[removed]), age=age)
    report = world.vacuum()
    assert (removed in deleted(report)) is goes
    assert ([it.path for it in report.kept] == [removed]) is not goes
    if goes:
        assert reasons(report)[removed] is Reason.REMOVED


@pytest.mark.parametrize("name", ["plain.parquet", file_of(A)])
def test_a_file_that_several_commits_removed_goes_by_the_first(world: World, name: str) -> None:
    world.put(name, age=NOW)
    world.put(f"_committed_{B}", commit(removed=[name]), age=NOW)
    world.put(f"_committed_{C}", commit(removed=[name]), age=49 * HOUR)
    assert deleted(world.vacuum()) == {name}


@pytest.mark.parametrize("age_of_file", [NOW, OLD])
@pytest.mark.parametrize(("age", "goes"), DATA)
def test_a_file_of_a_transaction_that_never_committed_goes_by_the_time_of_its_start_marker(
    world: World, age_of_file: timedelta, age: timedelta, goes: bool
) -> None:
    world.put(file_of(B), age=age_of_file)
    world.put(f"_started_{B}", b"", age=age)
    report = world.vacuum()
    assert reasons(report) == ({file_of(B): Reason.PENDING} if goes else {})
    assert [it.reason for it in report.kept] == ([] if goes else [Reason.PENDING])


def test_each_directory_is_judged_by_its_own_markers(world: World) -> None:
    for day in ("day=1", "day=2", "day=3"):
        world.put(f"{day}/{file_of(A)}")
    world.put(f"day=1/_committed_{A}", commit())
    world.put(f"day=2/_started_{A}", b"")
    report = world.vacuum()
    assert deleted(report) == {f"day=1/{file_of(A)}", f"day=2/{file_of(A)}"}
    assert f"day=3/{file_of(A)}" in world.visible()


def test_untracked_files_and_files_without_markers_are_never_deleted() -> None:
    world = World()
    for name in ("a.parquet", "part-00000-5f8a2c1e-c000.snappy.parquet", "PART.csv", file_of(A), "_SUCCESS", ".a.crc"):
        world.put(name)
        world.put(f"day=1/{name}")
    before = dict(world.store.objects)
    report = vacuum_table(world.table, VacuumOptions(retention_hours=0, force=True, untracked=True))
    world.clock.advance(EVER)
    world.vacuum()
    assert (report.scope, report.deleted, report.failed, report.queued) == (Scope.DIRECTORY, [], [], [])
    assert world.store.objects == before


NOT_DATA = ["README.txt", "secret.key", "data.csv", "part-0.parquet.bak"]


@pytest.mark.parametrize("name", NOT_DATA)
def test_what_is_no_parquet_and_no_transaction_wrote_stays_though_a_marker_removes_it(world: World, name: str) -> None:
    world.put(name, b"mine")
    world.put("old.PARQUET")
    world.put(f"_committed_{A}", commit([], [name, "old.PARQUET"]))
    for _ in range(4):
        report = world.vacuum()
        assert {it.path: it.reason for it in report.kept} == {name: Reason.NOT_DATA}
        assert report.oldest_garbage is None
        world.clock.advance(DAY)
    assert name in world.paths
    assert f"_committed_{A}" in world.paths  # DBIO's readers would take it for data
    assert "old.PARQUET" not in world.paths


@pytest.mark.parametrize("retention_hours", [48.0, 3.0])
def test_retention_moves_the_data_horizon(world: World, retention_hours: float) -> None:
    retention = timedelta(hours=retention_hours)
    old, young = pending(world, B, age=retention + SECOND), pending(world, C, age=retention)
    assert deleted(world.vacuum(retention_hours)) == {old}
    assert young in world.paths


def test_a_retention_below_an_hour_is_refused_before_anything_is_read(world: World) -> None:
    with calls_to(world.store) as calls, pytest.raises(RetentionError):
        vacuum_table(world.table, VacuumOptions(retention_hours=0.99))
    assert not calls


# --- markers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "goes"), METADATA)
def test_the_start_marker_of_a_committed_transaction_goes_after_the_metadata_horizon(
    world: World, age: timedelta, goes: bool
) -> None:
    committed(world, age=NOW)
    world.put(f"_started_{A}", b"", age=age)
    assert reasons(world.vacuum()) == ({f"_started_{A}": Reason.START_MARKER} if goes else {})


def test_the_metadata_horizon_is_never_earlier_than_the_data_horizon(world: World) -> None:
    committed(world, A, age=NOW)
    committed(world, B, age=NOW)
    world.put(f"_started_{A}", b"", age=7 * MINUTE)
    world.put(f"_started_{B}", b"", age=6 * MINUTE)
    assert deleted(world.vacuum(retention_hours=0.1)) == {f"_started_{A}"}


@pytest.mark.parametrize(("age", "goes"), METADATA)
@pytest.mark.parametrize("removed", [[], [f"_started_{B}", "_metadata"]])
def test_a_commit_marker_that_removed_no_data_file_is_queued_after_the_metadata_horizon(
    world: World, age: timedelta, goes: bool, removed: list[str]
) -> None:
    world.put(file_of(A), age=OLD)
    world.put(f"_committed_{A}", commit([file_of(A)], removed), age=age)
    assert world.vacuum().queued == ([f"_committed_{A}"] if goes else [])


@pytest.mark.parametrize(("age", "goes"), DATA)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_marker_that_removed_a_data_file_is_queued_after_the_data_horizon(
    world: World, age: timedelta, goes: bool, is_there: bool
) -> None:
    world.put(f"_committed_{A}", commit(removed=["gone.parquet"]), age=age)
    if is_there:
        world.put("gone.parquet")
    assert world.vacuum().queued == ([f"_committed_{A}"] if goes else [])


@pytest.mark.parametrize(("age", "goes"), DATA)
@pytest.mark.parametrize("has_file", [True, False])
def test_the_start_marker_of_a_transaction_that_timed_out_is_queued(
    world: World, age: timedelta, goes: bool, has_file: bool
) -> None:
    world.put(f"_started_{B}", b"", age=age)
    if has_file:
        world.put(file_of(B))
    report = world.vacuum()
    assert report.queued == ([f"_started_{B}"] if goes else [])
    assert f"_started_{B}" in world.paths


def test_a_queue_lists_in_removed_what_is_queued_and_itself(world: World) -> None:
    committed(world, A, "day=1")
    pending(world, B, "day=1")
    committed(world, C, "day=2")
    report = world.vacuum()
    assert report.queued == [f"day=1/_committed_{A}", f"day=1/_started_{B}", f"day=2/_committed_{C}"]
    first, second = sorted(queues(world.paths))
    assert json.loads(world.store.get(first)) == {
        "added": [],
        "removed": [f"_committed_{A}", f"_started_{B}", first.removeprefix("day=1/")],
    }
    assert json.loads(world.store.get(second))["removed"] == [f"_committed_{C}", second.removeprefix("day=2/")]


@pytest.mark.parametrize(("age", "goes"), METADATA)
def test_what_is_queued_goes_with_the_queue_after_the_metadata_horizon(
    world: World, age: timedelta, goes: bool
) -> None:
    committed(world, A)
    pending(world, B)
    world.vacuum()
    queued = {f"_committed_{A}", f"_started_{B}"} | queues(world.paths)
    world.clock.advance(age)
    report = world.vacuum()
    assert deleted(report) == (queued if goes else set())
    assert not report.queued  # what waits in a queue is not queued once more
    assert {it.reason for it in report.deleted} <= {Reason.QUEUED}


def test_abort_markers_of_ours_are_kept_for_30_days(world: World) -> None:
    world.put(f"_committed_{B}", ABORT, age=30 * DAY)
    assert not world.vacuum().queued
    world.clock.advance(SECOND)
    assert world.vacuum().queued == [f"_committed_{B}"]


def test_a_directory_of_old_transactions_ends_with_its_live_files_only(world: World) -> None:
    live = {committed(world, A, "day=1"), "live.parquet"}
    removed, failed = committed(world, B, "day=1"), f"day=1/{file_of(C, attempt=3)}"
    world.put(failed)
    world.put(f"day=1/_committed_{C}", commit(removed=[file_of(B)]))
    world.put(f"day=1/_started_{C}", b"")
    assert {removed, failed} < deleted(world.vacuum())
    world.clock.advance(HOUR)
    world.vacuum()
    assert world.paths == live


def test_of_a_directory_of_which_all_was_removed_one_marker_stays_so_that_readers_find_it_empty() -> None:
    world = World()
    removed = committed(world, A, "day=1")
    world.put(f"day=1/_committed_{B}", commit(removed=[names.split(removed)[1]]))
    for _ in range(4):
        world.vacuum()
        world.clock.advance(31 * DAY)
    assert [path for path in world.paths if "_vacuum" not in path] == [f"day=1/_committed_{B}"]
    assert not Table.over(world.store, world.clock).snapshot().files


# --- markers that are not what they should be --------------------------------------------------------------------

CORRUPT = [
    b"{",
    b"[]",
    b"{}",
    b" ",
    b"\xff\xfe",
    b'{"added": []}',
    b'{"added": [], "removed": null}',
    b'{"added": [], "removed": [1]}',
    commit(removed=["../a.parquet"]),
    commit(removed=["day=2/a.parquet"]),
    commit(removed=["/a.parquet"]),
    commit(removed=["a\\b"]),
    commit(removed=[""]),
]


@pytest.mark.parametrize("body", CORRUPT)
@pytest.mark.parametrize("name", [f"_committed_{C}", f"day=1/_committed_{C}", "day=1/_committed_vacuum1"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_corrupt_marker_or_queue_is_an_error_and_nothing_is_deleted(
    world: World, name: str, body: bytes, dry_run: bool
) -> None:
    pending(world, B)
    pending(world, B, "day=2")
    world.put(name, body)
    before = dict(world.store.objects)
    with pytest.raises(CorruptMarkerError, match=name.rpartition("/")[2]):
        vacuum_table(world.table, VacuumOptions(), dry_run=dry_run)
    assert world.store.objects == before


def test_a_marker_of_a_later_version_is_an_error_and_nothing_is_deleted(world: World) -> None:
    pending(world, B)
    world.put(f"_committed_{C}", json.dumps({"added": [], "removed": [], "dbio_commit": {"version": 4}}).encode())
    before = dict(world.store.objects)
    with pytest.raises(UnsupportedTableError):
        vacuum_table(world.table, VacuumOptions())
    assert world.store.objects == before


@pytest.mark.parametrize(("age", "goes"), DATA)
def test_a_commit_marker_of_zero_length_counts_as_absent(world: World, age: timedelta, goes: bool) -> None:
    file = pending(world, B, age=age)
    world.put(f"_committed_{B}", b"", age=age)
    assert file not in world.visible()
    report = world.vacuum()
    assert reasons(report) == ({file: Reason.PENDING, f"_committed_{B}": Reason.EMPTY_MARKER} if goes else {})
    assert report.queued == ([f"_started_{B}"] if goes else [])


def test_a_commit_marker_of_zero_length_without_a_start_marker_hides_nothing(world: World) -> None:
    world.put(file_of(A))
    world.put(f"_committed_{A}", b"")
    assert deleted(world.vacuum()) == {f"_committed_{A}"}
    assert world.visible() == {"live.parquet", file_of(A)}


def test_names_that_are_almost_markers_are_left_alone(world: World) -> None:
    names = [
        "_committed_ABC",
        "_committed_",
        "_started_",
        "_started_a-b",
        "_committed_vacuum",
        "_serial_1",
        "_commit_1",
    ]
    for name in names:
        world.put(name)
        world.put(f"_committed_vacuum{names.index(name)}", queue(name))
    report = world.vacuum()
    assert deleted(report) == queues(deleted(report))
    assert world.paths == {"live.parquet", *names}


# --- queues that no vacuum of ours wrote -------------------------------------------------------------------------


def test_a_queue_cannot_make_vacuum_delete_what_is_no_marker(world: World) -> None:
    names = ["live.parquet", file_of(A), "_SUCCESS", "_dbio_tabel", "_metadata", ".a.crc", "_temporary"]
    for name in names:
        world.put(name)
    world.put("_committed_vacuum1", queue(*names, "_committed_vacuum1", "_dbio_table", "_committed_9", "nobody"))
    assert deleted(world.vacuum()) == {"_committed_vacuum1"}


def test_a_queue_cannot_make_vacuum_delete_a_marker_that_hides_something(world: World) -> None:
    pending(world, A, age=HOUR)  # its writer is at work
    committed(world, B)
    world.put(f"_committed_{C}", commit(removed=[file_of(B)]), age=HOUR)  # for readers of yesterday's snapshot
    world.put("_committed_vacuum1", queue(f"_started_{A}", f"_committed_{C}", "_committed_vacuum1"))
    report = world.vacuum()
    assert not report.deleted
    assert not world.vacuum().deleted
    assert world.settle().keys() == {"live.parquet"}


def test_a_queue_cannot_make_vacuum_delete_a_commit_marker_before_its_start_marker(world: World) -> None:
    live = committed(world, A, age=NOW)
    world.put(f"_started_{A}", b"", age=NOW)
    world.put("_committed_vacuum1", queue(f"_committed_{A}", f"_started_{A}"))
    assert f"_committed_{A}" not in deleted(world.vacuum())
    assert live in world.visible()


def test_a_queue_says_nothing_of_markers_in_other_directories(world: World) -> None:
    committed(world, A, "day=1", age=NOW)
    world.put("_committed_vacuum1", queue(f"_committed_{A}"))
    assert deleted(world.vacuum()) == {"_committed_vacuum1"}


def test_a_queue_hides_no_file(world: World) -> None:
    world.put("_committed_vacuum1", queue("live.parquet"), age=NOW)
    assert world.visible() == {"live.parquet"}
    assert not world.vacuum().deleted


@pytest.mark.parametrize("listed", ["_committed_vacuum2", f"_serial_{1:020}", "_checkpoint_00000000000000000001"])
def test_queues_that_list_one_another_or_no_marker_of_dbio_go_all_the_same(world: World, listed: str) -> None:
    world.put("_committed_vacuum1", queue("_committed_vacuum1", listed))
    world.put("_committed_vacuum2", queue("_committed_vacuum2", "_committed_vacuum1"))
    assert deleted(world.vacuum()) == {"_committed_vacuum1", "_committed_vacuum2"}


@pytest.mark.parametrize("name", ["_committed_vacuum1", f"_committed_{A}", f"_started_{A}"])
def test_a_marker_that_is_alone_in_the_directory_goes(name: str) -> None:
    world = World()
    world.put(name, b"" if name != "_committed_vacuum1" else queue("_committed_vacuum1", f"_started_{A}"))
    report = vacuum_table(world.table, VacuumOptions())
    world.clock.advance(HOUR)
    if world.paths:
        report = vacuum_table(world.table, VacuumOptions())
    assert report.ok
    assert not world.paths


# --- what is no directory of DBIO's ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["_delta_log/0.json", ".hoodie/hoodie.properties", "_spark_metadata/0"])
def test_a_table_of_another_format_is_refused(world: World, path: str) -> None:
    pending(world)
    world.put(path)
    before = dict(world.store.objects)
    with pytest.raises(UnsupportedTableError):
        vacuum_table(world.table, VacuumOptions())
    assert world.store.objects == before


@pytest.mark.parametrize("directory", ["inner", "day=1", "a/b=1/c"])
def test_a_directory_that_holds_a_table_further_down_is_refused(world: World, directory: str) -> None:
    pending(world)
    world.put(f"{directory}/_dbio_table", b"{}")
    before = dict(world.store.objects)
    with pytest.raises(InvalidInputError, match=directory):
        vacuum_table(world.table, VacuumOptions())
    assert world.store.objects == before


@pytest.mark.parametrize("path", ["_SUCCESS", "_tmp/part-1.parquet", ".a.crc"])
def test_a_directory_without_files_or_markers_is_no_table(path: str) -> None:
    world = World()
    with pytest.raises(TableNotFoundError):
        vacuum_table(world.table, VacuumOptions())
    world.put(path)
    with pytest.raises(TableNotFoundError):
        vacuum_table(world.table, VacuumOptions())
    assert world.paths == {path}


def test_a_missing_path_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        vacuum(tmp_path / "missing")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("hidden", ["_tmp", ".staging", "day=1/_tmp", "_tmp/day=1", "day=1._COPYING_"])
def test_directories_that_readers_skip_are_left_alone(world: World, hidden: str) -> None:
    pending(world, B, hidden)
    world.put(f"{hidden}/_committed_{C}", b"corrupt")
    world.put(f"{hidden}/_committed_vacuum1", queue(f"_started_{B}"))
    world.put(f"{hidden}/_committed_vacuum2", b"corrupt")
    before = dict(world.store.objects)
    assert not world.vacuum().deleted
    assert world.store.objects == before


def test_a_directory_whose_name_starts_with_an_underscore_is_a_partition_where_it_holds_a_value(world: World) -> None:
    old = pending(world, B, "_day=1")
    assert deleted(world.vacuum()) == {old}


# --- checksums ---------------------------------------------------------------------------------------------------


def test_the_checksum_of_a_file_or_marker_goes_with_it(world: World) -> None:
    live, dead = committed(world, A, age=NOW), pending(world, B)
    young = pending(world, C, age=NOW)
    world.put(f"_started_{A}", b"")
    for path in (live, dead, young, f"_started_{A}", f"_started_{B}", f"_committed_{A}", "live.parquet"):
        world.put(f".{path}.crc", age=NOW)
    assert deleted(world.vacuum()) == {dead, f".{dead}.crc", f"_started_{A}", f"._started_{A}.crc"}
    world.clock.advance(HOUR)
    assert {f"_started_{B}", f"._started_{B}.crc"} < deleted(world.vacuum())
    world.settle()
    assert world.paths == {live, f".{live}.crc", "live.parquet", ".live.parquet.crc"}


@pytest.mark.parametrize(("age", "goes"), DATA)
@pytest.mark.parametrize("of", [file_of(A), f"_started_{A}", f"_committed_{A}", "_committed_vacuum1"])
def test_a_checksum_that_outlived_what_it_is_about_goes_after_the_data_horizon(
    world: World, of: str, age: timedelta, goes: bool
) -> None:
    world.put(f".{of}.crc", age=age)
    assert reasons(world.vacuum()) == ({f".{of}.crc": Reason.CHECKSUM} if goes else {})


# --- many directories, and reports -------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [MemoryStore, KeyStore])
def test_many_directories_are_all_vacuumed(store: type[MemoryStore]) -> None:
    world = World(store)
    days = [f"year={year}/day={day}" for year in range(9) for day in range(9)]
    for day in days:
        committed(world, A, day)
        pending(world, B, day)
        pending(world, B, f"{day}/_tmp")
        world.put(f"{day}/_tmp/_committed_vacuum1", b"corrupt")
    report = world.vacuum()
    assert deleted(report) == {f"{day}/{file_of(B)}" for day in days}
    assert set(report.queued) == {f"{day}/{name}" for day in days for name in (f"_committed_{A}", f"_started_{B}")}
    world.settle()
    left = {f"{day}/{file_of(A)}" for day in days} | {
        f"{day}/_tmp/{name}" for day in days for name in (file_of(B), f"_started_{B}", "_committed_vacuum1")
    }
    assert world.paths == left


def test_the_report_says_size_and_age(world: World) -> None:
    dead = pending(world, B, age=3 * DAY)
    young = pending(world, C, age=HOUR)
    report = world.vacuum()
    assert [(it.path, it.size, it.age, it.reason) for it in report.deleted] == [(dead, 4, 3 * DAY, Reason.PENDING)]
    assert [(it.path, it.size, it.age, it.reason) for it in report.kept] == [(young, 4, HOUR, Reason.PENDING)]
    assert report.oldest_garbage == HOUR
    assert (report.aborted, report.checkpoint, report.stopped) == ([], None, False)


def test_a_vacuum_that_is_stopped_leaves_the_rest_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbio_commit.maintenance.vacuum.workers._BATCHES_AT_ONCE", 1)
    world = World(OneByOne)
    live = {committed(world, A, "day=1"), committed(world, C)}
    before = world.paths
    garbage = {pending(world, B, f"day={day}") for day in range(3)}
    phases: list[str] = []
    control = Control(progress=lambda phase, done, total: phases.append(phase), stop=lambda: phases[-1] == "deleting")
    for left in (2, 1, 0):
        report = vacuum_table(world.table, VacuumOptions(), control=control)
        assert report.stopped
        assert len(report.deleted) == 1
        assert len(garbage & world.paths) == left
        assert world.visible() == live
    assert before < world.paths
    assert world.settle().keys() == live
