"""Compaction of real Parquet files: the rows stay the same, whatever lies in them and whoever writes beside it.

Rules: PROTOCOL.md 7.2.
"""

import io
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import DbioError, InvalidInputError, ObjectNotFoundError, StoreError, Table
from dbio_commit.data import rows
from dbio_commit.data.conform import conform
from dbio_commit.data.footers import SPARK_VERSION, inspect_files
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.feed.feed import Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Position, Start
from dbio_commit.maintenance.compact import rewrite, run
from dbio_commit.maintenance.compact.options import CompactOptions
from dbio_commit.maintenance.compact.report import STOPPED
from dbio_commit.protocol import names
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import Killed, Killer, act_before_call, calls_to, heal, once
from tests.histories import PARTITIONS, History, columns, in_order
from vacuum import VacuumOptions, vacuum_table

Partition = Mapping[str, str | None]


@pytest.fixture
def table(store: MemoryStore, clock: ManualClock) -> Table:
    return Table.over(store, clock, inspector=inspect_files)


def put(table: Table, rows: pa.Table, partition: Partition | None = None, operation: Any = "append", **how: Any) -> str:
    """A commit of one file, by pyarrow; its path."""
    with table.begin(operation, partition_by=list(partition or {})) as transaction:
        path = transaction.new_file(partition=partition).removeprefix(f"{table.url}/")
        with table.store.open_write(path) as stream:
            pq.write_table(rows, stream, **how)
    return path


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def adopt_as_before(table: Table) -> None:
    """As earlier versions did, which looked into no file and recorded no columns."""
    inspector, table.inspector = table.inspector, None
    table.adopt()
    table.inspector = inspector


def rows_of(table: Table) -> list[int]:
    found: list[Any] = table.snapshot().to_arrow().column("id").to_pylist()
    return sorted(found)


def paths(table: Table) -> set[str]:
    return {file.path for file in table.snapshot().files}


# --- the rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_all_types_and_partitions_are_the_same_afterwards(seed: int, tmp_path: Path) -> None:
    by = list(PARTITIONS)[seed : seed + 1]
    history = History(Table(tmp_path / "table"), seed, partition_by=by)
    for operation in ["append"] * 8 + ["widen", "rewrite", "append", "widen", "overwrite_partitions", "append"]:
        history.commit(operation)
    table = history.table
    before, columns_before = table.snapshot(), table.schema()
    report = table.compact()
    after = table.snapshot()
    assert in_order(after.to_arrow()) == in_order(before.to_arrow())
    assert after.to_arrow().schema == before.to_arrow().schema
    assert table.schema() == columns_before
    assert len(after.files) == len({names.split(file.path)[0] for file in before.files})
    assert len(before.files) - len(after.files) == report.files_before - report.files_after
    assert report.left == ()
    assert table.check().ok
    assert table.compact().compacted == ()


def test_each_new_file_has_its_rows_and_statistics_in_the_marker(table: Table) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(3):
        put(table, pa.table({"n": pa.array([number, None], pa.int32()), "at": pa.array([at, at + timedelta(number)]),
                             "price": pa.array([Decimal(number), Decimal(-1)], pa.decimal128(10, 2))}))  # fmt: skip
    table.compact()
    commit = table.history()[0]
    (file,) = commit.files
    assert file.rows == 6
    assert file.statistics is not None
    assert file.statistics["n"] == (0, 2, 3)
    assert file.statistics["price"] == ("-1.00", "2.00", 0)
    assert commit.metrics["numOutputRows"] == 6
    assert file.size == table.store.stat(file.path).size


def test_a_column_with_nan_has_no_bounds_and_others_have(table: Table) -> None:
    put(table, pa.table({"a": [1.5], "b": [1.5]}))
    put(table, pa.table({"a": [2.5], "b": [math.nan]}))
    table.compact()
    (file,) = table.history()[0].files
    assert file.statistics is not None
    assert file.statistics["a"] == (1.5, 2.5, 0)
    assert file.statistics["b"] == (None, None, 0)
    found: list[Any] = table.snapshot().to_arrow()["b"].to_pylist()
    assert sorted(map(math.isnan, found)) == [False, True]
    assert len(table.snapshot().where("b > 100").files) == 1  # NaN is the largest value
    assert len(table.snapshot().where("a > 100").files) == 0


def test_columns_whose_statistics_are_off_have_none_in_markers_footers_and_pages(table: Table) -> None:
    put(table, pa.table({"n": [1], "who": ["ann"]}))
    with pytest.raises(InvalidInputError, match="no column 'whom'"):
        table.set({"statistics.whom": "off"})
    table.set({"statistics.Who": "off"})
    put(table, pa.table({"n": [2], "who": ["bob"]}))
    (of_another_writer,) = table.history()[0].files
    assert of_another_writer.statistics is not None
    assert of_another_writer.statistics.keys() == {"n"}
    table.compact()
    (file,) = table.history()[0].files
    assert file.statistics == {"n": (1, 2, 0)}
    parquet = pq.ParquetFile(io.BytesIO(table.store.get(file.path)))
    columns = {(it := parquet.metadata.row_group(0).column(i)).path_in_schema: it for i in range(2)}
    assert columns["n"].is_stats_set
    assert not columns["who"].is_stats_set
    assert not columns["who"].has_column_index


def test_narrower_older_types_are_widened_and_absent_columns_null(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    with table.begin() as transaction:
        pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), transaction.new_file())
        transaction.commit(columns(id="integer"))
    with table.begin() as transaction:
        pq.write_table(pa.table({"id": pa.array([2], pa.int64()), "x": ["new"]}), transaction.new_file())
        transaction.commit(columns(id="long", x="string"))
    table.compact()
    (file,) = table.snapshot().files
    found = pq.read_table(Path(table.url, file.path))
    assert found.schema.field("id").type == pa.int64()
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [{"id": 1, "x": None}, {"id": 2, "x": "new"}]


def test_conditions_leave_out_the_same_partitions_afterwards(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for number in range(8):
        with table.begin(partition_by=["day"]) as transaction:
            pq.write_table(ids(number), transaction.new_file(partition={"day": str(number % 2)}))
            transaction.commit(columns(id="long", day="integer"))
    table.compact()
    assert len(table.snapshot().files) == 2
    assert len(table.snapshot().where("day = 1").files) == 1
    assert len(table.snapshot().where("id = 0").files) == 1
    assert len(table.snapshot().where("id > 7").files) == 0


def test_where_chooses_files_and_never_rows(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for number in range(8):
        with table.begin(partition_by=["day"]) as transaction:
            pq.write_table(ids(number), transaction.new_file(partition={"day": str(number % 2)}))
            transaction.commit(columns(id="long", day="integer"))
    report = table.compact(where="day = 1")
    assert [it.directory for it in report.compacted] == ["day=1"]
    assert len(table.snapshot().files) == 5
    assert rows_of(table) == list(range(8))
    with pytest.raises(InvalidInputError):
        table.compact(where="nothing = 1")


def test_a_condition_is_refused_where_nobody_recorded_the_columns_it_is_about(tmp_path: Path) -> None:
    pq.write_table(ids(1), tmp_path / "a.parquet")
    table = Table(tmp_path)
    adopt_as_before(table)
    with pytest.raises(InvalidInputError, match="recorded"):
        table.compact(where="id = 1")


def test_rows_are_sorted_where_that_is_asked_for(table: Table) -> None:
    for values in ([5, 1], [4, 2], [3]):
        put(table, ids(*values))
    table.compact(sort_by=["ID"])
    assert table.snapshot().to_arrow()["id"].to_pylist() == [1, 2, 3, 4, 5]


def test_row_groups_along_a_curve_are_narrow_in_each_of_its_columns(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "ROW_GROUP_ROWS", 64 * rewrite.Z_PARTS)
    points = [(x, y) for x in range(32) for y in range(32)]
    Random(1).shuffle(points)
    for start in range(0, len(points), 100):
        some = points[start : start + 100]
        put(table, pa.table({"x": [x for x, _ in some], "y": [f"{y:02}" for _, y in some], "n": [0] * len(some)}))
    table.compact(z_order=["X", "y"])
    (path,) = paths(table)
    file = pq.ParquetFile(pa.BufferReader(table.store.get(path)))
    groups = [file.read_row_group(i).to_pylist() for i in range(file.metadata.num_row_groups)]
    assert sorted((row["x"], int(row["y"])) for group in groups for row in group) == sorted(points)
    assert len(groups) == 16
    for group in groups:  # a square of 8 by 8 each
        x, y = ({row["x"] for row in group}, {row["y"] for row in group})
        assert max(x) - min(x) == 7
        assert int(max(y)) - int(min(y)) == 7
    bounds: Any = file.metadata.row_group(3).column(0).statistics
    assert bounds.max - bounds.min == 7


def test_rows_of_all_types_lie_along_a_curve_and_are_the_same(tmp_path: Path) -> None:
    table, day = Table(tmp_path / "table"), date(2026, 1, 1)
    kinds: dict[str, list[Any]] = {
        "flag": [True, None, False], "n": [3, 1, None], "x": [math.inf, None, -0.5], "text": ["b", None, ""],
        "raw": [b"b", b"", None], "price": [Decimal("1.50"), None, Decimal(-1)], "day": [day, None, day],
        "at": [datetime(2026, 1, 1), None, datetime(1969, 1, 1)], "more": [["a"], None, []],
    }  # fmt: skip
    for _ in range(3):
        put(table, pa.table(kinds))
    before = table.snapshot().to_arrow().to_pylist()
    for column in kinds.keys() - {"more"}:
        table.compact(z_order=column)
    table.compact(z_order=["flag", "n", "x", "text", "raw", "price", "day", "at"])
    assert sorted(table.snapshot().to_arrow().to_pylist(), key=str) == sorted(before, key=str)


@pytest.mark.parametrize("wrong", [{"sort_by": ["x"]}, {"sort_by": ["tags"]}, {"target_size": 0}, {"target_size": "1"},
                                   {"z_order": ["id", "x"]}, {"z_order": "tags"}, {"z_order": ["id"] * 9},
                                   {"min_files": 0}, {"min_files": "2"},
                                   {"z_order": ["id"], "sort_by": "id"}])  # fmt: skip
def test_what_cannot_be_done_is_refused_before_anything_is_written(wrong: dict[str, Any], table: Table) -> None:
    for _ in range(2):
        put(table, pa.table({"id": [1], "tags": [["a"]]}))
    log = table.history()
    with pytest.raises(InvalidInputError):
        table.compact(**wrong)
    assert [it.tid for it in table.history()] == [it.tid for it in log]


def test_a_file_with_other_rows_than_its_writer_recorded_is_left(table: Table) -> None:
    first, second = put(table, ids(1, 2)), put(table, ids(3))
    with table.store.open_read(second) as stream:
        other = stream.read()
    table.store.delete_many([first])
    with table.store.open_write(first) as stream:
        stream.write(other)
    report = table.compact()
    assert [left.reason.partition(":")[0] for left in report.left] == ["they have 2 rows, but their writers recorded 3"]
    assert paths(table) == {first, second}
    assert len([entry for entry in table.store.list_files("") if entry.path.startswith("part-")]) == 2


def test_the_codec_of_the_old_files_stays(table: Table) -> None:
    for number in range(2):
        put(table, ids(number), compression="zstd")
    (new,) = table.compact().compacted
    assert new.path is not None
    assert new.path.endswith(".zstd.parquet")


def test_row_groups_of_many_small_files_are_bounded(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "ROW_GROUP_ROWS", 10)
    for number in range(8):
        put(table, ids(*range(4 * number, 4 * number + 4)))
    table.compact()
    (path,) = paths(table)
    footer = pq.ParquetFile(pa.BufferReader(table.store.get(path))).metadata
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [12, 12, 8]
    assert rows_of(table) == list(range(32))


def test_files_without_rows_become_one(table: Table) -> None:
    for _ in range(3):
        put(table, ids())
    table.compact()
    assert len(paths(table)) == 1
    assert rows_of(table) == []


def test_columns_that_nobody_recorded_are_those_of_the_newest_file(tmp_path: Path) -> None:
    for number in range(2):
        part = tmp_path / "old" / f"m=0{number}"
        part.mkdir(parents=True)
        for name in "ab":
            pq.write_table(ids(number), part / f"{name}.parquet")
    table = Table(tmp_path / "old")
    with pytest.raises(InvalidInputError, match="dbio adopt"):
        table.compact()
    table.adopt()
    before = table.snapshot().to_arrow()
    assert table.compact().files_before == 4
    assert {names.split(path)[0] for path in paths(table)} == {"m=00", "m=01"}
    assert table.snapshot().to_arrow().schema == before.schema
    assert sorted(table.snapshot().to_arrow().to_pylist(), key=str) == sorted(before.to_pylist(), key=str)


def test_spark_timestamps_of_the_old_kind_stay_instants_of_any_year(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    told = {"type": "struct", "fields": [{"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}]}
    for name, year in {"a": 1600, "b": 9000}.items():
        data = pa.table({"at": pa.array([datetime(year, 1, 1)], pa.timestamp("us"))})
        data = data.replace_schema_metadata({ROW_METADATA: json.dumps(told), SPARK_VERSION: "3.5.1"})
        pq.write_table(data, tmp_path / "old" / f"{name}.parquet", use_deprecated_int96_timestamps=True)
    table = Table(tmp_path / "old")
    table.adopt()
    table.compact()
    (file,) = table.snapshot().files
    footer = pq.ParquetFile(tmp_path / "old" / file.path)
    assert footer.schema_arrow.field("at").type == pa.timestamp("us", "UTC")
    found: list[Any] = footer.read()["at"].to_pylist()
    assert sorted(it.year for it in found) == [1600, 9000]
    assert footer.metadata.metadata
    assert footer.metadata.metadata[b"org.apache.spark.version"] == b"3.5.1"


# --- what is left -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [{"org.apache.spark.legacyDateTime": ""}, {"org.apache.spark.version": "2.4.5"}])
def test_files_whose_calendar_only_spark_knows_are_left(told: dict[str, str], table: Table) -> None:
    for number in range(2):
        put(table, ids(number).replace_schema_metadata(told))
    before = paths(table)
    report = table.compact()
    assert "calendar" in report.left[0].reason
    assert paths(table) == before
    assert not report.commits


def test_a_file_with_a_column_that_the_table_lacks_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    pq.write_table(pa.table({"id": [1], "more": [2]}), tmp_path / "old" / "a.parquet")
    pq.write_table(ids(2), tmp_path / "old" / "b.parquet")
    table = Table(tmp_path / "old")
    adopt_as_before(table)
    before = paths(table)
    report = table.compact()
    assert "'more'" in report.left[0].reason
    assert paths(table) == before


def test_a_damaged_file_is_left_and_others_are_compacted(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for day in ("1", "2"):
        for number in range(2):
            path = put(table, ids(number), {"day": day})
    Path(table.url, path).write_bytes(b"PAR1" + b"x" * 20 + b"PAR1")
    report = table.compact()
    assert [it.directory for it in report.compacted] == ["day=1"]
    assert [set(it.paths) <= paths(table) for it in report.left] == [True]


def test_a_live_file_that_is_missing_is_an_error(table: Table, store: MemoryStore) -> None:
    paths = [put(table, ids(number)) for number in range(2)]
    store.delete_many(paths[:1])
    with pytest.raises(ObjectNotFoundError, match="dbio check"):
        table.compact()
    assert len(table.snapshot().files) == 2


# --- others at work -----------------------------------------------------------------------------------------------


def test_told_to_stop_it_commits_what_is_done_and_leaves_the_rest(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = ["1", "2", "3", "4"]
    for day in days:
        for number in range(2):
            put(table, ids(number), {"day": day})
    monkeypatch.setattr(run, "in_commits", lambda bins: [bins[:3], bins[3:]])
    done = 0

    def executor(work: Any, bins: Any) -> Any:
        return run.in_threads(table.store, at_once=1, stop=stop)(work, bins)

    def stop() -> bool:
        nonlocal done
        done += 1
        return done > 3  # asked before the first commit, and before each of its files

    report = run.compact(table.store, table.clock, CompactOptions(), rewriter=executor, stop=stop)
    assert [it.directory for it in report.compacted] == ["day=1", "day=2"]
    assert [it.reason for it in report.left] == [STOPPED, STOPPED]
    assert len(report.commits) == 1
    assert rows_of(table) == sorted([0, 1] * 4)
    assert not table.check().pending
    assert table.compact().files_after == 2


def test_an_append_beside_it_stays(table: Table, store: MemoryStore) -> None:
    for number in range(3):
        put(table, ids(number))
    store.before = once("put_if_absent", "_committed_*", lambda: put(table, ids(100)))
    report = table.compact()
    heal(store)
    assert report.files_before == 3
    assert report.left == ()
    assert rows_of(table) == [0, 1, 2, 100]
    assert len(paths(table)) == 2


@pytest.mark.parametrize("moment", [("write", "part-*"), ("put_if_absent", "_serial_*")])
def test_an_overwrite_beside_it_wins_and_the_files_are_left(
    moment: tuple[str, str], table: Table, store: MemoryStore
) -> None:
    for number in range(3):
        put(table, ids(number))
    store.before = once(*moment, lambda: put(table, ids(100), operation="overwrite"))
    report = table.compact()
    heal(store)
    assert report.compacted == ()
    assert report.commits == ()
    assert "meanwhile" in report.left[0].reason
    assert rows_of(table) == [100]
    assert not table.check().pending


def test_what_somebody_else_rewrites_is_left_and_the_other_partitions_are_compacted(
    table: Table, store: MemoryStore
) -> None:
    for day in ("1", "2"):
        for number in range(2):
            put(table, ids(number), {"day": day})
    store.before = once("write", "day=*", lambda: put(table, ids(7), {"day": "2"}, operation="overwrite_partitions"))
    report = table.compact()
    heal(store)
    assert [it.directory for it in report.compacted] == ["day=1"]
    assert [len(it.paths) for it in report.left] == [2]
    assert rows_of(table) == [0, 1, 7]


def test_of_several_commits_one_that_conflicts_leaves_the_others(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "in_commits", lambda bins: [[bin] for bin in bins])
    for day in ("1", "2", "3"):
        for number in range(2):
            put(table, ids(number), {"day": day})
    overwrite: Callable[[], object] = lambda: put(table, ids(7), {"day": "2"}, operation="overwrite_partitions")  # noqa: E731
    store.before = once("put_if_absent", "_serial_*", overwrite, nth=2)
    report = table.compact()
    heal(store)
    assert [it.directory for it in report.compacted] == ["day=1", "day=3"]
    assert len(report.commits) == 2
    assert [set(map(names.split, it.paths)) != set() for it in report.left] == [True]
    assert rows_of(table) == [0, 0, 1, 1, 7]


def test_a_table_that_is_gone_at_any_call_does_not_come_back(clock: ManualClock) -> None:
    for number in count():
        store = MemoryStore(clock)
        table = Table.over(store, clock, inspector=inspect_files)
        for value in range(2):
            put(table, ids(value))
        act_before_call(store, number, store.objects.clear)
        with suppress(DbioError):
            if table.compact().commits and "_dbio_table" in store.objects:  # it was done before
                assert number > 20
                return
        assert "_dbio_table" not in store.objects, number


def test_a_vacuum_beside_it_deletes_nothing_that_is_live(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    for number in range(4):
        put(table, ids(number))
    options = VacuumOptions(retention_hours=1, checkpoint_after=1)
    store.before = once("put_if_absent", "_committed_*", lambda: vacuum_table(table, options))
    table.compact()
    heal(store)
    clock.advance(timedelta(days=3))
    vacuum_table(table, options)
    assert rows_of(table) == [0, 1, 2, 3]
    assert len([path for path in store.objects if path.endswith(".parquet")]) == 1


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_call_it_leaves_the_rows_as_they_were(after: bool, clock: ManualClock) -> None:
    for calls in count():
        store = MemoryStore(clock)
        table = Table.over(store, clock, inspector=inspect_files)
        for number in range(3):
            put(table, ids(number))
        killer = Killer(store, calls, after)
        with suppress(Killed):
            table.compact()
        heal(store)
        assert rows_of(table) == [0, 1, 2], calls
        table.compact()
        assert rows_of(table) == [0, 1, 2], calls
        assert len(paths(table)) == 1
        if not killer.dead:
            assert calls > 20
            return


def test_fewer_rows_than_the_footers_say_are_never_committed(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        put(table, ids(number, number))
    before = paths(table)
    monkeypatch.setattr(rows, "conform", lambda batch, *args, **how: conform(batch, *args, **how).slice(1))
    with pytest.raises(StoreError, match="6 rows"):
        table.compact()
    assert paths(table) == before
    assert {path for path in store.objects if path.endswith(".parquet")} == before
    assert not table.check().pending


# --- what others see ----------------------------------------------------------------------------------------------


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(table: Table, store: MemoryStore) -> None:
    for number in range(3):
        put(table, ids(number))
    before = dict(store.objects)
    with calls_to(store) as calls:
        report = table.compact(dry_run=True)
    assert store.objects == before
    assert not {operation for operation, _ in calls} & {"put_if_absent", "write", "delete"}
    assert (report.dry_run, report.files_before, report.files_after, report.commits) == (True, 3, 1, ())


@pytest.mark.parametrize("wanted", [FeedOptions(), FeedOptions(changes=True)], ids=["rows", "changes"])
def test_streams_pass_it_over(wanted: FeedOptions, table: Table, clock: ManualClock) -> None:
    first = [put(table, ids(number)) for number in range(3)]
    clock.advance(timedelta(minutes=1))
    table.compact()
    assert not table.history()[0].marker.is_data_change
    clock.advance(timedelta(minutes=1))
    first.append(put(table, ids(3)))
    feed = Feed(Follower(table.store, table.clock).history(), wanted)
    start: Position | Start = Start(begin="time", time=clock.now() - timedelta(days=1))
    got: list[str] = []
    while isinstance(end := feed.after(start), Position) and end != start:
        got += [change.file.path for change in feed.between(start, end)]
        start = end
    assert got == first


def test_settings_and_columns_are_carried_on(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for number in range(3):
        put(table, ids(number))
    table.set({"publish": "delta"})
    before = table.snapshot().metadata
    table.compact()
    after = table.snapshot().metadata
    assert (after.schema, after.settings) == (before.schema, before.settings)
    assert table.publish("delta")[0].is_new is False  # the compaction was published already


@pytest.mark.parametrize("operation", ["append", "overwrite", "overwrite_partitions"])
def test_only_a_rewrite_can_say_that_it_changes_no_rows(operation: Any, table: Table, store: MemoryStore) -> None:
    with pytest.raises(InvalidInputError, match="rewrite"):
        table.begin(operation, data_change=False)
    assert not store.objects


# --- other types --------------------------------------------------------------------------------------------------


def put_widened(table: Table) -> None:
    """Three large files: one of narrower types, one with a narrower field inside a column, one with the table's."""
    inside: Any = {"type": "struct", "fields": columns(a="long")["fields"]}
    schema = columns(id="long", price="decimal(12,2)", inside=inside, name="varchar(9)")
    wide = pa.struct([("a", pa.int64())])
    files: list[dict[str, Any]] = [
        {"id": pa.array([1], pa.int32()), "price": pa.array([Decimal("1.5")], pa.decimal128(5, 1))},
        {"id": pa.array([2]), "inside": pa.array([{"a": 7}], pa.struct([("a", pa.int32())]))},
        {"id": pa.array([3]), "inside": pa.array([{"a": 8}], wide), "name": ["x"]},
    ]
    for file in files:
        transaction = table.begin()
        path = transaction.new_file().removeprefix(f"{table.url}/")
        with table.store.open_write(path) as stream:
            pq.write_table(pa.table(file), stream)
        transaction.commit(schema)


def test_files_of_other_types_are_rewritten_whatever_their_size(table: Table) -> None:
    put_widened(table)
    rows_before = in_order(table.snapshot().to_arrow())
    assert table.compact(1).files_before == 0
    planned = table.compact(1, rewrite_types=True, dry_run=True)
    assert (planned.other_types, planned.files_before, planned.files_after) == (2, 2, 2)
    done = table.compact(1, rewrite_types=True, min_files=9)
    assert (done.other_types, done.files_before, done.files_after, done.left) == (2, 2, 2, ())
    assert in_order(table.snapshot().to_arrow()) == rows_before
    schemas = [pq.read_schema(pa.BufferReader(table.store.get(file.path))) for file in table.snapshot().files]
    assert {schema.field("id").type for schema in schemas} == {pa.int64()}
    again = table.compact(1, rewrite_types=True)
    assert (again.other_types, again.files_before) == (0, 0)
    assert table.compact(1).other_types is None


def test_only_files_that_the_condition_chooses_are_looked_at(table: Table) -> None:
    put_widened(table)
    assert table.compact(1, "id = 2", rewrite_types=True).other_types == 1


def test_an_empty_table_has_no_file_of_other_types(table: Table) -> None:
    table.begin().commit(columns(id="long"))
    assert table.compact(rewrite_types=True).other_types == 0
    with pytest.raises(InvalidInputError, match="rewrite_types"):
        table.compact(rewrite_types="yes")  # type: ignore[arg-type]
