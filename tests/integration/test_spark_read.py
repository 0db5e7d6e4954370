"""`dbio.read` on a local disk: what a snapshot shows, partition columns, odd names, and that nothing is listed.

Stores are in test_spark_stores.py, the golden directories in test_golden_spark.py.
"""

import json
import os
import shutil
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests.spark_tables import SPARK_ERRORS, data_files, ids, numbers, rows
from tests.tiers import long

TIME_ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


# --- snapshots ----------------------------------------------------------------------------------------------------


def test_a_dataframe_is_pinned_to_the_snapshot_that_it_was_read_from(spark: SparkSession, path: str) -> None:  # I6
    dbio.write(numbers(spark, 0, 2), path)
    frame = dbio.read(spark, path)
    unused = dbio.read(spark, path)
    assert ids(frame) == [0, 1]
    dbio.write(numbers(spark, 2, 4), path)
    assert ids(frame) == ids(unused) == [0, 1]
    dbio.write(numbers(spark, 4, 6), path, mode="overwrite")
    assert ids(frame) == ids(unused) == ids(frame.where("id < 9")) == [0, 1]
    assert ids(dbio.read(spark, path)) == [4, 5]


def test_two_snapshots_of_a_table_can_be_joined(spark: SparkSession, path: str) -> None:
    before = dbio.write(numbers(spark, 0, 4), path)
    dbio.write(numbers(spark, 2, 6), path, mode="overwrite")
    old, new = dbio.read(spark, path, as_of=before.tid), dbio.read(spark, path)
    assert ids(old.join(new, "id", "left_anti")) == [0, 1]
    assert ids(new.join(old, "id", "left_anti")) == [4, 5]


def test_a_pinned_dataframe_whose_files_were_deleted_fails_and_names_the_file(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 2, tasks=1), path)
    frame = dbio.read(spark, path)
    commit = dbio.write(numbers(spark, 2, 4), path, mode="overwrite")
    for removed in commit.removed:
        Path(path, removed).unlink()  # as vacuum does, after the retention
    with pytest.raises(SPARK_ERRORS, match=commit.removed[0].removesuffix(".snappy.parquet")):
        frame.collect()


def test_a_table_is_read_as_of_a_commit_and_as_of_a_time(spark: SparkSession, path: str) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    commits = [dbio.write(numbers(spark, i, i + 1), path, mode=mode) for i, mode in enumerate(MODES)]  # type: ignore[arg-type]
    for hours, commit in enumerate(commits):
        stamp = (began + timedelta(hours=hours)).timestamp()
        os.utime(Path(path, f"_committed_{commit.tid}"), (stamp, stamp))
    assert [ids(dbio.read(spark, path, commit.tid)) for commit in commits] == [[0], [0, 1], [2]]
    assert ids(dbio.read(spark, path, began + timedelta(minutes=90))) == [0, 1]
    assert ids(dbio.read(spark, path, "2026-01-01T01:30:00+00:00")) == [0, 1]
    assert ids(dbio.read(spark, path, "2026-01-01T03:30:00+02:00")) == [0, 1]
    with pytest.raises(dbio.InvalidInputError, match=r"had no commit as of .*: read it as of then or later"):
        dbio.read(spark, path, began - timedelta(seconds=1))  # it has no columns to be empty with
    for wrong in ("yesterday", "2026-01-01T01:30:00", datetime(2026, 1, 1), "1234567890123456789"):
        with pytest.raises(dbio.InvalidInputError, match="as_of"):
            dbio.read(spark, path, wrong)


MODES = ("append", "append", "overwrite")


def test_a_snapshot_of_an_earlier_schema_has_that_schema(spark: SparkSession, path: str) -> None:
    first = dbio.write(spark.sql("SELECT 1 AS id, 'x' AS text"), path)
    dbio.write(spark.sql("SELECT double(2) AS amount"), path, mode="overwrite")
    assert dbio.read(spark, path, first.tid).collect() == [(1, "x")]
    assert dbio.read(spark, path).dtypes == [("amount", "double")]


def test_what_is_not_there_is_a_clear_error(spark: SparkSession, path: str) -> None:
    with pytest.raises(dbio.TableNotFoundError, match=path):
        dbio.read(spark, path)
    Path(path).mkdir()
    with pytest.raises(dbio.TableNotFoundError, match=path):
        dbio.read(spark, path)


def test_a_table_without_files_and_columns_is_a_clear_error(spark: SparkSession, path: str) -> None:
    dbio.Table(path).begin().abort()
    with pytest.raises(dbio.InvalidInputError, match="no recorded columns: write to the table first"):
        dbio.read(spark, path)


# --- nothing is listed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [[], ["day"]])
def test_nothing_but_the_snapshots_files_is_looked_at(spark: SparkSession, path: str, partition_by: list[str]) -> None:
    """Each of what lies here beside them would break or change a read that lists the table."""
    commit = dbio.write(numbers(spark, 0, 4), path, partition_by=partition_by)
    before = dbio.read(spark, path).schema
    Path(path, "part-00000-not-parquet.snappy.parquet").write_text("garbage")
    Path(path, Path(commit.added[0]).parent, "part-00001-not-parquet.snappy.parquet").write_text("garbage")
    numbers(spark, 90, 95).write.parquet(f"{path}/foreign/hour=1/other=2")
    shutil.copy(Path(path, commit.added[0]), Path(path, commit.added[0].replace("c000", "c001")))
    frame = dbio.read(spark, path)
    assert ids(frame) == [0, 1, 2, 3]
    assert frame.schema == before
    assert sorted(os.path.relpath(file.removeprefix("file://"), path) for file in frame.inputFiles()) == sorted(
        commit.added
    )


def test_reads_leave_no_manifests_behind(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dbio.write(numbers(spark, 0, 4), path)
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 3]
    assert sorted(os.listdir(tmp_path)) == ["table"]


def test_a_filter_on_a_partition_reads_only_its_files(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 4), path, partition_by="day")
    for file in data_files(path):
        if file.startswith("day=d1/"):
            Path(path, file).unlink()
    frame = dbio.read(spark, path)
    assert ids(frame.where("day = 'd0'")) == [0, 2]
    assert frame.where("day = 'd0'").count() == 2
    with pytest.raises(SPARK_ERRORS):
        frame.collect()


def test_columns_are_pruned_by_spark(spark: SparkSession, path: str) -> None:
    dbio.write(spark.sql("SELECT 1 AS id, 'x' AS wide, named_struct('a', 1, 'b', 2) AS nested"), path)
    plan = dbio.read(spark, path).where("id = 1").select("id", "nested.a")._jdf.queryExecution().toString()
    assert "ReadSchema: struct<id:int,nested:struct<a:int>>" in plan
    assert "EqualTo(id,1)" in plan


# --- partition columns --------------------------------------------------------------------------------------------

PARTITION_VALUES: dict[str, list[Any]] = {
    "string": ["01", "1", "1e3", "2026-01-01", "true", "null", " a b ", "a/b=c%41", "é漢😀", "A", "a", ".", "..", None],
    "boolean": [True, False, None],
    "tinyint": [-1, 1, None],
    "smallint": [-300, 300, None],
    "int": [-70000, 70000, None],
    "bigint": [-(2**40), 1, None],
    "decimal(10,3)": [Decimal("1.500"), Decimal("-0.001"), Decimal("2.000"), None],
    "date": [date(1, 1, 1), date(2026, 3, 29), None],
    "timestamp": [datetime(2026, 3, 29, 1, 30), datetime(2026, 10, 25, 1, 0, 0, 120), datetime(1990, 1, 1), None],
    "timestamp_ntz": [datetime(2026, 3, 29, 2, 30), datetime(2026, 1, 1), datetime(1, 1, 1, 0, 0, 0, 5), None],
}


@pytest.mark.parametrize("kind", PARTITION_VALUES)
def test_partition_columns_come_back_with_the_type_and_value_that_was_written(
    spark: SparkSession, path: str, kind: str
) -> None:
    frame = spark.createDataFrame(list(enumerate(PARTITION_VALUES[kind])), f"id int, value {kind}")
    dbio.write(frame, path, partition_by="value")
    read = dbio.read(spark, path)
    assert read.dtypes == frame.dtypes
    assert rows(read) == rows(frame)
    assert read.where("value IS NULL").count() == (None in PARTITION_VALUES[kind])


@pytest.mark.parametrize("kind", ["timestamp", *long("timestamp_ntz")])
def test_partitions_by_time_mean_the_same_in_every_session_time_zone(spark: SparkSession, path: str, kind: str) -> None:
    frame = spark.createDataFrame(list(enumerate(PARTITION_VALUES[kind])), f"id int, value {kind}")
    try:
        for zone in ("America/New_York", "Asia/Kolkata"):
            spark.conf.set(TIME_ZONE, zone)
            dbio.write(frame, f"{path}-{zone[:4]}", partition_by="value")
        for zone in ("UTC", "Asia/Kolkata", "America/New_York"):
            spark.conf.set(TIME_ZONE, zone)
            for written in ("Amer", "Asia"):
                read = dbio.read(spark, f"{path}-{written}")
                assert rows(read.where("value > '1980-01-01'")) == rows(frame.where("value > '1980-01-01'"))
                assert read.exceptAll(frame).count() == 0
    finally:
        spark.conf.set(TIME_ZONE, "UTC")


def test_several_partition_columns_come_back_each_with_its_own(spark: SparkSession, path: str) -> None:
    frame = spark.sql("SELECT id, date'2026-01-01' + int(id) AS day, id % 2 = 0 AS even, '01' AS hour FROM range(4)")
    dbio.write(frame, path, partition_by=["hour", "day", "even"])
    read = dbio.read(spark, path)
    assert read.columns == ["id", "hour", "day", "even"]
    assert rows(read.select(frame.columns)) == rows(frame)
    assert read.where("day = date'2026-01-02' AND NOT even AND hour = '01'").count() == 1


# --- odd names ----------------------------------------------------------------------------------------------------

ODD_NAMES = ["a b", "a.b", "a`b.c`", "a=b", "a%41", "é漢😀", "a/b", "a,b;{}()\t", " x ", "_metadata", "DAY?#"]
ODD_PATHS = ["é漢😀", "x=1/y=%32", "q?#*{[1]}", "back\\slash", *long("a b", "%41", "x=1", "a:b", "_under", "new\nline")]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_column_names_come_back_as_data_and_as_partition_columns(spark: SparkSession, path: str, name: str) -> None:
    frame = spark.range(3).toDF(name).selectExpr("*", "'x' AS text")
    commit = dbio.write(frame, path)
    assert rows(dbio.read(spark, path)) == rows(frame)
    assert {column for file in commit.files for column in file.statistics or ()} == {name, "text"}
    if name[0] == "_":
        return
    dbio.write(frame, f"{path}-2", partition_by=[name])
    read = dbio.read(spark, f"{path}-2")
    assert read.columns == ["text", name]
    assert sorted(row[1] for row in read.collect()) == [0, 1, 2]


@pytest.mark.parametrize("name", ODD_PATHS)
def test_a_table_may_lie_at_an_odd_path(spark: SparkSession, tmp_path: Path, name: str) -> None:
    for number, partition_by in enumerate(([], ["day"])):
        path = tmp_path / str(number) / name
        dbio.write(numbers(spark, 0, 4), path, partition_by=partition_by)
        dbio.write(numbers(spark, 4, 6), path)
        read = dbio.read(spark, path)
        assert ids(read) == list(range(6))
        assert read.columns == ["id", "day"]


def test_a_path_may_be_relative_or_a_file_url(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dbio.write(numbers(spark, 0, 2), "relative/table")
    assert ids(dbio.read(spark, tmp_path / "relative" / "table")) == [0, 1]
    assert ids(dbio.read(spark, f"file://{tmp_path}/relative/table")) == [0, 1]
    assert ids(dbio.read(spark, "./relative/../relative/table/")) == [0, 1]


# --- others' directories ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [[], ["day"]])
def test_a_directory_without_markers_reads_as_it_is(spark: SparkSession, path: str, partition_by: list[str]) -> None:
    frame = numbers(spark, 0, 4)
    frame.write.partitionBy(*partition_by).parquet(path)
    assert rows(dbio.read(spark, path)) == rows(frame)


def test_a_directory_without_markers_has_the_types_that_spark_infers(spark: SparkSession, path: str) -> None:
    columns = "id, '2026-01-01' AS day, '7' AS n, '99999999999' AS big, '1.5' AS x, 'b' AS text"
    spark.sql(f"SELECT {columns} FROM range(3)").write.partitionBy("day", "n", "big", "x", "text").parquet(path)
    assert rows(dbio.read(spark, path)) == rows(spark.read.parquet(path))
    assert dbio.read(spark, path).dtypes == spark.read.parquet(path).dtypes


def test_of_a_directory_of_dbio_only_what_is_committed_is_read(spark: SparkSession, path: str) -> None:
    Path(path).mkdir()
    for tid in (1, 2, 3):
        numbers(spark, tid * 10, tid * 10 + 2).toPandas().to_parquet(f"{path}/part-00000-tid-{tid}-x-0-0-c000.parquet")
        Path(path, f"_started_{tid}").touch()
    Path(path, "_committed_1").write_text(json.dumps({"added": ["part-00000-tid-1-x-0-0-c000.parquet"], "removed": []}))
    removed = {"added": ["part-00000-tid-2-x-0-0-c000.parquet"], "removed": ["part-00000-tid-1-x-0-0-c000.parquet"]}
    Path(path, "_committed_2").write_text(json.dumps(removed))
    assert ids(dbio.read(spark, path)) == [20, 21]


def test_a_corrupt_marker_is_a_clear_error(spark: SparkSession, path: str) -> None:
    commit = dbio.write(numbers(spark, 0, 2), path)
    Path(path, f"_committed_{commit.tid}").write_text("{")
    with pytest.raises(dbio.CorruptMarkerError, match=commit.tid):
        dbio.read(spark, path)


def test_a_file_that_is_no_parquet_is_a_clear_error(spark: SparkSession, path: str) -> None:
    Path(path).mkdir()
    Path(path, "data.parquet").write_text("no Parquet")
    with pytest.raises(SPARK_ERRORS, match=r"data\.parquet"):
        dbio.read(spark, path).collect()
