"""The facts about a table that a page shows: what they add up to, and that they stay few."""

from array import array
from datetime import timedelta
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit import Table
from dbio_commit.feed.streams import StreamLag
from dbio_commit.maintenance.report import health as health_module
from dbio_commit.maintenance.report.health import (
    ABORTED,
    MOST,
    MOST_PERIODS,
    MOST_TEXT,
    Amount,
    TableHealth,
    Vacuumed,
    _nth,
    look,
)
from dbio_commit.maintenance.vacuum.report import in_short
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.scope import Scope
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import World, data, marker
from tests.reports import busy_table
from tests.tiny_parts import in_parts, in_slices
from tests.writers import stage, write, write_days
from vacuum import VacuumOptions, vacuum_table

NOTHING = Vacuumed(retention_hours=48, dry_run=True)


def health(table: Table, *, checked: bool = True, vacuumed: Vacuumed | str = NOTHING) -> TableHealth:
    check = table.check() if checked else None
    return look(table.snapshot(ignore_corrupt_markers=True), at=table.clock.now(), vacuumed=vacuumed, check=check)


def test_live_data_is_told_by_partition_with_the_largest_first(table: Table) -> None:
    write_days(table, "append", **{"1": b"x" * 10, "2": b"x" * 30})
    write_days(table, "append", **{"1": b"x" * 25})
    found = health(table)
    assert (found.live_files, found.live_size, found.partition_columns) == (3, 65, ("day",))
    assert [(it.name, it.files, it.size) for it in found.partitions] == [("day=1", 2, 35), ("day=2", 1, 30)]
    assert found.other_partitions == 0


def test_of_many_partitions_the_largest_are_named_and_the_rest_is_counted(table: Table) -> None:
    write_days(table, "append", **{str(number): b"x" * number for number in range(1, MOST + 6)})
    found = health(table)
    assert [it.size for it in found.partitions] == list(range(MOST + 5, 5, -1))
    assert (found.other_partitions, found.other_files, found.other_size) == (5, 5, 15)


def test_sizes_of_files_are_in_classes_without_gaps(table: Table) -> None:
    write(table, bodies=[b"", bytes(999), bytes(1000), bytes(4999), bytes(5000)])
    found = health(table)
    assert [(it.below, it.files, it.size) for it in found.size_classes] == [
        (1000, 2, 999), (2000, 1, 1000), (5000, 1, 4999), (10_000, 1, 5000),
    ]  # fmt: skip
    assert found.median_size == 1000


def test_a_file_whose_size_nobody_told_is_counted_without_one(clock: ManualClock) -> None:
    world = World()
    world.put_json("_committed_1", {"added": [data("1")], "removed": []})
    table = Table.over(world, clock)
    found = look(table.snapshot(), at=clock.now(), vacuumed=NOTHING)
    assert found.live_files == 1
    assert found.unknown_sizes + len(found.size_classes) == 1


def test_commits_are_counted_by_operation_in_periods_up_to_now(table: Table, clock: ManualClock) -> None:
    write(table)
    table.begin().abort()
    clock.advance(timedelta(hours=1))
    write(table, "overwrite")
    clock.advance(timedelta(hours=2))
    activity = health(table).activity
    assert activity
    assert activity.length == timedelta(minutes=5)
    told = [it.decided for it in activity.periods]
    assert told[0] == {"append": 1, ABORTED: 1}
    assert told[12] == {"overwrite": 1}
    assert sum(map(len, told)) == 3
    assert activity.periods[-1].begins == clock.now()
    assert health(table).commits == 2


@pytest.mark.parametrize("days", [0, 0.001, 1, 40, 400, 4000, 100_000])
def test_however_long_a_table_is_there_its_commits_are_in_a_bounded_number_of_periods(
    table: Table, clock: ManualClock, days: float
) -> None:
    write(table)
    at = clock.now() + timedelta(days=days)
    activity = look(table.snapshot(), at=at, vacuumed=NOTHING).activity
    assert activity
    assert 1 <= len(activity.periods) <= MOST_PERIODS
    assert activity.periods[0].decided == {"append": 1}
    assert activity.periods[-1].begins <= at < activity.periods[-1].begins + activity.length


def test_a_commit_that_the_stores_clock_has_in_the_future_is_counted(table: Table, clock: ManualClock) -> None:
    write(table)
    at = clock.now() - timedelta(hours=5)
    activity = look(table.snapshot(), at=at, vacuumed=NOTHING).activity
    assert activity
    assert sum(sum(it.decided.values()) for it in activity.periods) == 1


def test_pending_transactions_are_told_with_and_without_a_check(table: Table, clock: ManualClock) -> None:
    old = table.begin()
    stage(table, old, b"12345")
    clock.advance(timedelta(days=8))
    young = table.begin()
    for checked, files in ((True, [1, 0]), (False, [None, None])):
        found = health(table, checked=checked)
        assert found.pending
        assert [(it.tid, it.too_old) for it in found.pending] == [(old.tid, True), (young.tid, False)]
        assert [it.files for it in found.pending] == files


def test_in_a_directory_nobody_knows_what_is_pending_without_a_check() -> None:
    world = World(descriptor=False)
    world.files("a.parquet")
    found = health(Table.over(world, world.clock), checked=False)
    assert (found.scope, found.pending, found.activity, found.last_commit) == (Scope.DIRECTORY, None, None, None)
    assert found.live_files == 1


def test_applications_that_committed_last_come_first(table: Table, clock: ManualClock) -> None:
    for id in ("a", "c", "b"):
        clock.advance(timedelta(seconds=1))
        write(table, app=(id, 3))
    assert [(it.id, it.version, it.odd) for it in health(table).applications] == [
        ("b", 3, False), ("c", 3, False), ("a", 3, False),
    ]  # fmt: skip


def test_what_a_check_finds_is_told_with_its_first_cases(table: Table, store: MemoryStore) -> None:
    write(table, bodies=[b"x"] * (MOST + 2))
    for file in table.snapshot().files:
        del store.objects[file.path]
    bad = write(table).tid
    store.put(f"_committed_{bad}", b"{")
    found = health(table)
    assert found.ok is False
    missing, corrupt = found.problems
    assert (missing.what, missing.count, len(missing.first)) == ("missing live files", MOST + 2, MOST)
    assert corrupt.count == 1
    assert health(Table.over(World(), table.clock)).problems == []


def test_what_vacuum_would_free_and_keeps_is_told_by_reason(table: Table, clock: ManualClock) -> None:
    write(table, bodies=[b"123", b"4567"])
    write(table, "overwrite")
    clock.advance(timedelta(days=3))
    write(table, "overwrite", bodies=[b"1"])
    report = vacuum_table(table, VacuumOptions(), dry_run=True)
    found = in_short(report)
    assert found.dry_run
    assert found.freed[Reason.REMOVED] == Amount(objects=2, size=7, oldest=timedelta(days=3))
    assert found.kept[Reason.REMOVED] == Amount(objects=1, size=4, oldest=timedelta(0))


def test_the_facts_of_a_large_table_are_few_and_their_texts_are_cut() -> None:
    world = World()
    for number in range(100):
        added = [f"a={number}/{data(f'{number}', i)}" for i in range(20)]
        app = {"id": f"{number}-" + "x" * 900, "version": 1}
        info = marker(added=added, app=app, turn=number + 1)
        world.put_body(f"_committed_{number}", info)
    table = Table.over(world, world.clock)
    world.put_json("_dbio_table", {"version": 1, "id": "t", "created": "2026-11-20T00:00:00Z",
                                   "partition_columns": ["a"]})  # fmt: skip
    found = health(table, checked=False)
    assert (found.live_files, len(found.partitions), found.other_partitions) == (2000, MOST, 100 - MOST)
    assert (len(found.applications), found.other_applications) == (MOST, 100 - MOST)
    assert max(len(it.id) for it in found.applications) == MOST_TEXT + 1
    assert len(repr(found)) < 20_000


def test_names_that_are_no_utf8_can_be_encoded() -> None:
    world = World(descriptor=False)
    world.files("dir\udc80/a.parquet")
    found = health(Table.over(world, world.clock), checked=False)
    assert [it.name for it in found.partitions] == ["dir\\udc80"]


def test_the_lag_of_streams_is_handed_on(table: Table, clock: ManualClock) -> None:
    write(table)
    lag = StreamLag(query="copy", batch=1, commits=1, files=1, size_bytes=4, oldest=clock.now())
    found = look(table.snapshot(), at=clock.now(), vacuumed="nobody asked", streams=[lag])
    assert list(found.streams) == [lag]
    assert found.vacuumed == "nobody asked"


def test_a_busy_table_adds_up() -> None:
    table = busy_table(days=5)
    found = health(table)
    assert found.activity
    decided = sum(sum(it.decided.values()) for it in found.activity.periods)
    aborted = sum(it.decided.get(ABORTED, 0) for it in found.activity.periods)
    assert decided - aborted == found.commits == len(table.history())
    assert sum(it.files for it in found.partitions) + found.other_files == found.live_files
    assert sum(it.size for it in found.partitions) + found.other_size == found.live_size
    assert sum(it.files for it in found.size_classes) == found.live_files


def test_a_table_whose_state_is_in_parts_looks_the_same_and_is_never_read_as_a_whole() -> None:
    table = busy_table(days=5)
    table.checkpoint()
    write_days(table, "overwrite_partitions", **{"2026-11-02": b"x" * 500})
    table.begin(partition_by=["day"]).abort()
    large = in_parts(table)
    with in_slices():
        assert health(large, checked=False) == health(table, checked=False)


@given(st.lists(st.integers(0, 9) | st.integers(0, (1 << 63) - 1), min_size=1, max_size=50), st.data())
def test_the_nth_size_is_found_without_sorting_all(sizes: list[int], choice: st.DataObject) -> None:
    n = choice.draw(st.integers(0, len(sizes) - 1))
    with patch.object(health_module, "_FEW_SIZES", 2):
        assert _nth(array("q", sizes), n) == sorted(sizes)[n]
