"""Changes between two commits, on real Spark: by `dbio.changes`, and by the data source with `readChangeFeed`.

Which commits and files they are is protocol/feed.py's, with unit tests; as a stream: test_stream_source.py.
Rules: PROTOCOL.md 8.4.
"""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import dbio_commit as dbio
from tests.conftest import Root
from tests.later import vacuum_later
from tests.spark_tables import SPARK_ERRORS, configured, numbers, rows
from vacuum import VacuumOptions

FEED = ["_change_type", "_commit_tid", "_commit_timestamp"]
BEGINNING = "1970-01-01T00:00:00Z"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a table")


@pytest.fixture(autouse=True)
def enabled(spark: SparkSession) -> None:
    dbio.enable(spark)


def write(spark: SparkSession, path: str, start: int, end: int, mode: Any = "append") -> dbio.Commit:
    return dbio.write(numbers(spark, start, end), path, mode, partition_by="day")


def load(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("dbio").options(readChangeFeed="true", **options).load(path)


def told(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((row._change_type, row.id) for row in frame.collect())


def inserts(ids: Iterable[int]) -> list[tuple[str, int]]:
    return [("insert", id) for id in ids]


def deletes(ids: Iterable[int]) -> list[tuple[str, int]]:
    return [("delete", id) for id in ids]


@pytest.mark.parametrize("name", ["_metadata", "_dbio_file"])
def test_columns_with_names_of_spark_or_of_ours_are_told_as_they_are(spark: SparkSession, path: str, name: str) -> None:
    dbio.write(spark.range(3).selectExpr("id", f"id + 10 AS `{name}`"), path)
    found = dbio.changes(spark, path, dbio.Table(path).history()[0].tid)
    assert sorted(map(tuple, found.select("id", name).collect())) == [(0, 10), (1, 11), (2, 12)]


@pytest.mark.long
def test_files_of_a_writer_who_records_no_sizes_are_read_and_miss_no_row(spark: SparkSession, path: str) -> None:
    """Of a commit by Databricks in a table of ours; to Spark, a file of unknown size would be empty."""
    first = dbio.write(spark.range(3), path)
    other = str(int(first.tid) + 1)
    name = f"part-00000-tid-{other}-6def5b7b-0608-4299-b0fd-163011e8c988-1-0-c000.snappy.parquet"
    Path(path, f"_started_{other}").touch()
    pq.write_table(pa.table({"id": [100, 101]}), f"{path}/{name}")
    Path(path, f"_committed_{other}").write_text(json.dumps({"added": [name], "removed": []}))
    assert told(dbio.changes(spark, path, BEGINNING)) == inserts([0, 1, 2, 100, 101])
    dbio.write(spark.range(9, 10), path, "overwrite")
    assert told(dbio.changes(spark, path, BEGINNING)) == sorted(
        [*inserts([0, 1, 2, 9, 100, 101]), *deletes([0, 1, 2, 100, 101])]
    )
    Path(path, name).unlink()
    with pytest.raises(dbio.HistoryLostError, match=f"vacuumed.*{other}"):
        dbio.changes(spark, path, BEGINNING)


def test_both_ends_are_included_and_each_row_tells_its_commit(spark: SparkSession, path: str) -> None:
    tids = [write(spark, path, start, start + 2).tid for start in (0, 2, 4)]
    tids.append(write(spark, path, 10, 11, "overwrite_partitions").tid)
    history = {commit.tid: commit.timestamp for commit in dbio.Table(path).history()}
    whole = dbio.changes(spark, path, tids[0])
    assert whole.columns == ["id", "day", *FEED]
    assert told(whole) == sorted([*inserts([*range(6), 10]), *deletes((0, 2, 4))])
    for row in whole.collect():
        assert row._commit_timestamp.replace(tzinfo=UTC) == history[row._commit_tid]
    by_tid: dict[str, list[int]] = dict(whole.groupBy("_commit_tid").agg(f.collect_list("id")).collect())
    assert {tid: sorted(found) for tid, found in by_tid.items()} == {
        tids[0]: [0, 1],
        tids[1]: [2, 3],
        tids[2]: [4, 5],
        tids[3]: [0, 2, 4, 10],
    }
    at = [history[tid] for tid in tids]
    moment = timedelta(microseconds=1)
    between = [
        dbio.changes(spark, path, tids[1], tids[2]),
        dbio.changes(spark, path, at[1], at[2]),
        dbio.changes(spark, path, at[1].isoformat(), tids[2]),
        dbio.changes(spark, path, at[0] + moment, at[3] - moment),
        load(spark, path, startingTid=tids[1], endingTid=tids[2]),
        load(spark, path, startingTime=at[1].isoformat(), endingTime=at[2].isoformat()),
    ]
    assert [told(frame) for frame in between] == [inserts((2, 3, 4, 5))] * len(between)
    assert rows(load(spark, path, startingTid=tids[0])) == rows(whole)
    nothing = dbio.changes(spark, path, datetime(2999, 1, 1, tzinfo=UTC))
    assert (nothing.columns, nothing.collect()) == (whole.columns, [])


def test_net_leaves_out_the_rows_that_a_rewrite_carried_over_as_often_as_they_were_there(
    spark: SparkSession, path: str
) -> None:
    doubled = numbers(spark, 0, 6).unionAll(numbers(spark, 4, 6))
    dbio.write(doubled, path)
    dbio.write(dbio.read(spark, path).where("id > 1").unionAll(numbers(spark, 5, 8)), path, "overwrite")
    appended = write_flat(spark, path, 20)
    plain = Counter(told(dbio.changes(spark, path, BEGINNING)))
    assert plain["insert", 5] == 2 + 3
    assert plain["delete", 5] == 2
    net = dbio.changes(spark, path, BEGINNING, net=True)
    second = net.where(f"_commit_tid = '{dbio.Table(path).history()[1].tid}'")
    assert told(second) == sorted([*deletes((0, 1)), *inserts((5, 6, 7))])
    assert told(net.where(f"_commit_tid = '{appended}'")) == inserts([20])
    assert net.columns == ["id", "day", *FEED]


def write_flat(spark: SparkSession, path: str, id: int) -> str:
    return dbio.write(numbers(spark, id, id + 1, tasks=1), path).tid


def test_columns_that_came_later_are_null_in_what_is_older(spark: SparkSession, path: str) -> None:
    dbio.write(spark.sql("SELECT 1 AS id"), path)
    dbio.write(spark.sql("SELECT 5000000000 AS id, 'x' AS new"), path, merge_schema=True)
    found = dbio.changes(spark, path, BEGINNING)
    assert sorted(tuple(row)[:2] for row in found.collect()) == [(1, None), (5_000_000_000, "x")]
    assert rows(load(spark, path, startingTime=BEGINNING)) == rows(found)


ODD = (
    "id",
    "CASE id % 4 WHEN 0 THEN 'a b+c' WHEN 1 THEN '100%=/x' WHEN 2 THEN 'übergröße 雪' END AS `the day`",
    "timestamp'2026-03-29 01:30:00' AS at",
    "decimal(id) / 4 AS `a.b c`",
    "IF(id = 0, NULL, array(named_struct('x', timestamp'2026-01-01 01:00:00', 'y', map('k', id)))) AS nested",
)


def test_all_columns_and_odd_partitions_come_back_in_every_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "x=1 %41+ü")
    dbio.write(spark.range(0, 8, 1, 2).selectExpr(*ODD), path, partition_by=["the day", "at"])
    for zone in ("UTC", "America/St_Johns"):
        with configured(spark, {"spark.sql.session.timeZone": zone}):
            expected = rows(dbio.read(spark, path))
            assert rows(dbio.changes(spark, path, BEGINNING).drop(*FEED)) == expected
            assert rows(load(spark, path, startingTime=BEGINNING).drop(*FEED)) == expected
            stamps = {row.at for row in dbio.changes(spark, path, BEGINNING).selectExpr(f"{FEED[2]} AS at").collect()}
            assert stamps == {
                row.at for row in load(spark, path, startingTime=BEGINNING).selectExpr(f"{FEED[2]} AS at").collect()
            }


def test_rows_are_read_by_spark_itself_and_only_the_columns_and_files_that_are_asked_for(
    spark: SparkSession, path: str
) -> None:
    write(spark, path, 0, 4)
    plan = dbio.changes(spark, path, BEGINNING).where("day = 'd1'").select("id", "_change_type")
    shown = plan._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet" in shown
    assert "BatchScan" not in shown
    assert told(plan) == inserts((1, 3))


def test_what_vacuum_has_deleted_is_a_clear_error_and_what_is_left_can_be_asked_for(
    spark: SparkSession, path: str
) -> None:
    table = dbio.Table(path)
    write(spark, path, 0, 2)
    overwrite = write(spark, path, 2, 4, "overwrite")
    last = write(spark, path, 4, 5)
    assert vacuum_later(table, VacuumOptions(retention_hours=1, checkpoint_after=1000), by=timedelta(days=2)).ok
    for start in (BEGINNING, overwrite.tid):  # also before a checkpoint has forgotten the paths
        with pytest.raises(dbio.HistoryLostError, match="vacuumed"):
            dbio.changes(spark, path, start)
    table.checkpoint()
    for start in (BEGINNING, overwrite.tid):
        with pytest.raises(dbio.HistoryLostError, match="vacuumed"):
            dbio.changes(spark, path, start)
        with pytest.raises(SPARK_ERRORS, match=r"HistoryLostError.*vacuumed"):
            load(spark, path, startingTime=BEGINNING).collect()
    assert told(dbio.changes(spark, path, last.tid)) == inserts([4])


def test_what_cannot_be_asked_is_refused_by_name(spark: SparkSession, path: str) -> None:
    write(spark, path, 0, 2)
    (tid,) = (commit.tid for commit in dbio.Table(path).history())
    with pytest.raises(dbio.InvalidInputError, match="has no commit '12'"):
        dbio.changes(spark, path, "12")
    with pytest.raises(dbio.InvalidInputError, match="has no commit '12'"):
        dbio.changes(spark, path, tid, "12")
    with pytest.raises(dbio.InvalidInputError, match="has no time zone"):
        dbio.changes(spark, path, "2026-01-01")
    for options, named in (
        ({}, "needs a start"),
        ({"startingTid": tid, "startingTime": BEGINNING}, "set only one of them"),
        ({"startingTid": tid, "endingTid": tid, "endingTime": BEGINNING}, "set only one of them"),
        ({"startingTid": tid, "asOf": tid}, "no option asof here"),
        ({"startingTid": tid, "net": "true"}, "no option net here"),
    ):
        with pytest.raises(SPARK_ERRORS, match=named):
            load(spark, path, **options).collect()
    with pytest.raises(SPARK_ERRORS, match="no option startingtid here"):
        spark.read.format("dbio").option("startingTid", tid).load(path).collect()
    taken = f"{path}-taken"
    dbio.write(spark.sql("SELECT 1 AS id, 'x' AS _Change_Type"), taken)
    with pytest.raises(dbio.SchemaMismatchError, match="has a column '_change_type'"):
        dbio.changes(spark, taken, BEGINNING)
    with pytest.raises(dbio.TableNotFoundError):
        dbio.changes(spark, f"{path}-none", BEGINNING)


def make_commits(path: str, count: int) -> list[str]:
    """Each of one row, the id of which is its number."""
    table = dbio.Table(path)
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    tids = []
    for number in range(count):
        transaction = table.begin()
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), transaction.new_file())
        tids.append(transaction.commit(schema=schema).tid)
    return tids


@pytest.mark.parametrize("count", [200, pytest.param(3000, marks=pytest.mark.long)])
def test_changes_of_very_many_commits_are_told_apart(spark: SparkSession, path: str, count: int) -> None:
    tids = make_commits(path, count)
    found = dbio.changes(spark, path, tids[1], tids[-2])
    assert sorted((row.id, row._commit_tid) for row in found.collect()) == [*enumerate(tids)][1:-1]
    assert found.count() == count - 2


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Spark cannot read:UserWarning")
def test_changes_come_from_a_bucket_by_way_of_workers(spark: SparkSession, s3_root: Root) -> None:
    url, options = s3_root
    for start, mode in ((0, "append"), (10, "overwrite")):
        dbio.write(numbers(spark, start, start + 2), url, mode=mode, partition_by="day", storage_options=options)  # type: ignore[arg-type]
    found = dbio.changes(spark, url, BEGINNING, storage_options=options)
    assert found.columns == ["id", "day", *FEED]
    assert told(found) == sorted([*inserts((0, 1, 10, 11)), *deletes((0, 1))])
    assert told(dbio.changes(spark, url, BEGINNING, net=True, storage_options=options)) == told(found)


# --- columns that an overwrite changed ----------------------------------------------------------------------------


OVERWRITES = {
    "dropped": "SELECT 9 id",
    "renamed": "SELECT 9 id, 'z' w, 1 n",
    "retyped": "SELECT '9' id, 'z' v, 1 n",
    "narrowed": "SELECT 9 id, 'z' v, CAST(1 AS SMALLINT) n",
    "narrowed within": "SELECT 9 id, 'z' v, 1 n, NAMED_STRUCT('x', CAST(1 AS SMALLINT)) s",
}


@pytest.mark.long_for("retyped", "narrowed within")
@pytest.mark.parametrize("change", OVERWRITES)
def test_changes_have_the_columns_of_their_end_and_numbers_are_never_cut_off(
    spark: SparkSession, path: str, change: str
) -> None:
    before = "SELECT {} id, 'a' v, {} n, NAMED_STRUCT('x', {}) s"
    first, second = (dbio.write(spark.sql(before.format(i, 70_000 + i, 70_000 + i)), path) for i in (1, 2))
    dbio.write(spark.sql(OVERWRITES[change]), path, "overwrite")
    for found in (
        dbio.changes(spark, path, first.tid, second.tid),
        dbio.changes(spark, path, first.tid, dbio.Table(path).history()[1].timestamp),
        load(spark, path, startingTid=first.tid, endingTid=second.tid),
    ):
        assert found.columns == ["id", "v", "n", "s", *FEED]
        assert sorted((row.id, row.n, row.s.x) for row in found.collect()) == [
            (i, 70_000 + i, 70_000 + i) for i in (1, 2)
        ]
    if change in ("dropped", "renamed"):
        assert dbio.changes(spark, path, first.tid).count() == 5
        assert load(spark, path, startingTid=first.tid).count() == 5
        return
    column = {"retyped": "id as integer, not string", "narrowed": "n as integer, not short"}.get(
        change, "s.x as integer"
    )
    with pytest.raises(dbio.InvalidInputError, match=f"wrote column {column}.*end the feed before that overwrite"):
        dbio.changes(spark, path, first.tid)
    with pytest.raises(SPARK_ERRORS, match=f"wrote column {column}"):
        load(spark, path, startingTid=first.tid).collect()
