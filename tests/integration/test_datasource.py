"""The data source "dbio" and the SQL functions, as `enable` registers them, on a local disk.

What a write does once it runs is in test_spark_write.py: both take the same way from there.
"""

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StringType, StructField, StructType

import dbio_commit as dbio
from dbio_commit.spark.datasource import DbioDataSource
from tests.integration.test_spark_schema import COLUMNS
from tests.spark_tables import SPARK_ERRORS, data_files, ids, numbers, objects, rows


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture(autouse=True)
def enabled(spark: SparkSession) -> None:
    dbio.enable(spark)


def save(frame: DataFrame, path: str, mode: str = "append", **options: str) -> None:
    frame.write.format("dbio").mode(mode).options(**options).save(path)


def load(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("dbio").options(**options).load(path)


# --- writing ------------------------------------------------------------------------------------------------------


def test_append_and_overwrite_commit_as_write_does(spark: SparkSession, path: str) -> None:
    save(numbers(spark, 0, 4), path)
    save(numbers(spark, 4, 6), path)
    assert ids(load(spark, path)) == ids(dbio.read(spark, path)) == list(range(6))
    save(numbers(spark, 10, 13), path, "overwrite")
    assert ids(load(spark, path)) == ids(dbio.read(spark, path)) == [10, 11, 12]
    newest = dbio.Table(path).history()[0]
    assert (newest.operation, newest.metrics["numOutputRows"], newest.metrics["numFiles"]) == ("overwrite", 3, 2)
    assert newest.files[0].statistics


def test_options_do_what_they_say(spark: SparkSession, path: str) -> None:
    frame = numbers(spark, 0, 20, tasks=1).selectExpr("*", "1 AS hour")
    save(frame, path, partitionBy="hour, DAY", compression="zstd", maxRecordsPerFile="4")
    files = dbio.Table(path).history()[0].files
    assert sorted(file.rows or 0 for file in files) == [2, 2, 4, 4, 4, 4]
    assert {file.path.rpartition("/")[0] for file in files} == {"hour=1/day=d0", "hour=1/day=d1"}
    assert pq.ParquetFile(Path(path, files[0].path)).metadata.row_group(0).column(0).compression == "ZSTD"
    save(numbers(spark, 21, 22).selectExpr("*", "1 AS hour"), path, "overwrite", partitionOverwriteMode="DYNAMIC")
    assert ids(load(spark, path)) == [*range(0, 20, 2), 21]
    with pytest.raises(SPARK_ERRORS, match="extra is not in the table"):
        save(frame.selectExpr("*", "2 AS extra"), path)
    save(frame.selectExpr("*", "2 AS extra"), path, mergeSchema="true")
    assert load(spark, path).where("extra = 2").count() == 20


def test_a_version_of_an_application_is_committed_at_most_once(spark: SparkSession, path: str) -> None:  # I8
    for _ in range(2):
        save(numbers(spark, 0, 4), path, txnAppId="job", txnVersion="3")
    save(numbers(spark, 4, 6), path, txnAppId="job", txnVersion="4")
    assert ids(load(spark, path)) == list(range(6))
    assert [commit.app for commit in dbio.Table(path).history()] == [("job", 4), ("job", 3)]
    assert len(dbio.Table(path).snapshot().files) == len(data_files(path)) == 4


def test_an_option_may_name_a_day_or_a_time(spark: SparkSession, path: str) -> None:  # I8
    for version in ("2026-11-20", "2026-11-19", "2026-11-20", "2026-11-20T13:00:00"):
        save(numbers(spark, 0, 1), path, txnAppId="nightly", txnVersion=version)
    versions = [commit.app[1] for commit in reversed(dbio.Table(path).history()) if commit.app]
    assert versions == [20261120, 20261119, 20261120130000]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"compresion": "zstd"}, "no option compresion here"),
        ({"asOf": "1"}, "no option asof here"),
        ({"compression": "lzo"}, "lzo"),
        ({"maxRecordsPerFile": "-1"}, "maxRecordsPerFile"),
        ({"mergeSchema": "yes"}, "mergeSchema"),
        ({"partitionOverwriteMode": "all"}, "partitionOverwriteMode"),
        ({"txnAppId": "job"}, "go together"),
        ({"txnAppId": "job", "txnVersion": "x"}, "txnVersion"),
        ({"txnAppId": "job", "txnVersion": "2026-11-31"}, "txnVersion"),
        ({"secretStorageOptions": "[1]"}, "secretStorageOptions"),
        ({"secretStorageOptions": '{"key": "hush-hush"}'}, "storage_options"),
        ({"partitionBy": "hour"}, "hour"),
        ({"partitionBy": " ,"}, "names no column"),
        ({"replaceWhere": "id > 3"}, "replace_where="),
        ({"overwriteSchema": "true"}, "mode overwrite always takes the columns"),
    ],
)
def test_an_option_that_means_nothing_is_refused_and_nothing_is_written(
    path: str, options: dict[str, str], named: str
) -> None:
    """As Spark's Python asks for a writer: after each error Spark would start another Python, for half a second."""
    schema = StructType([StructField("id", LongType()), StructField("day", StringType())])
    with pytest.raises(dbio.InvalidInputError, match=named) as caught:
        DbioDataSource(CaseInsensitiveDict({"path": path, **options})).writer(schema, overwrite=False)
    assert "hush" not in str(caught.value)
    assert not Path(path).exists()


def test_an_option_that_is_refused_fails_the_write_and_nothing_is_written(spark: SparkSession, path: str) -> None:
    for options, named in (
        ({"asOf": "1"}, "no option asof here"),
        ({"secretStorageOptions": '{"key": "hush-hush"}'}, "storage_options"),
    ):
        with pytest.raises(SPARK_ERRORS, match=named) as caught:
            save(numbers(spark, 0, 2), path, **options)
        assert "hush" not in str(caught.value)
        assert not Path(path).exists()


@pytest.mark.parametrize(
    "write",
    [
        lambda frame, path: frame.write.format("dbio").partitionBy("day").mode("append").save(path),
        lambda frame, path: frame.write.format("dbio").save(path),
        lambda frame, path: frame.write.format("dbio").mode("ignore").save(path),
        lambda frame, path: frame.write.format("dbio").mode("append").save(),
    ],
)
def test_what_spark_does_not_let_a_python_data_source_do_is_an_error_and_writes_nothing(
    spark: SparkSession, path: str, write: Callable[[DataFrame, str], None]
) -> None:
    """Spark changes: should one of these begin to work, the data source must learn what it means."""
    with pytest.raises(SPARK_ERRORS):
        write(numbers(spark, 0, 2), path)
    assert not Path(path).exists()


def test_columns_are_checked_before_anything_is_written(spark: SparkSession, path: str) -> None:
    with pytest.raises(SPARK_ERRORS, match="would not come back equal"):
        save(spark.sql("SELECT 1 AS id, INTERVAL '1' DAY AS odd"), path)
    assert not Path(path).exists()
    save(numbers(spark, 0, 2), path)
    before = objects(path)
    with pytest.raises(SPARK_ERRORS, match=r"(?s)day is missing.*<id:bigint,day:string>.*<id:bigint>"):
        save(spark.range(2), path)
    assert objects(path) == before


def test_a_failed_task_commits_nothing_and_its_transaction_is_aborted(spark: SparkSession, path: str) -> None:
    save(numbers(spark, 0, 2), path)
    before = data_files(path)
    with pytest.raises(SPARK_ERRORS, match="no further"):
        save(spark.sql("SELECT id, IF(id = 3, raise_error('no further'), 'x') AS day FROM range(0, 4, 1, 2)"), path)
    assert ids(load(spark, path)) == [0, 1]
    assert not dbio.Table(path).check().pending
    assert dbio.Table(path).snapshot().decided[-1].marker.is_abort
    assert len(data_files(path) - before) <= 1  # the other task's, where it had not come back yet


def test_an_empty_dataframe_commits_an_empty_transaction_with_its_schema(spark: SparkSession, path: str) -> None:
    save(numbers(spark, 0, 0), path, partitionBy="day")
    assert load(spark, path).dtypes == [("id", "bigint"), ("day", "string")]
    assert load(spark, path).collect() == []


# --- reading ------------------------------------------------------------------------------------------------------


def test_all_types_come_back_equal_in_every_session_time_zone(spark: SparkSession, path: str) -> None:
    length = max(map(len, COLUMNS.values()))
    values = [tuple(column[row % len(column)] for column in COLUMNS.values()) for row in range(length)]
    frame = spark.createDataFrame(values, ", ".join(f"c{number} {kind}" for number, kind in enumerate(COLUMNS)))
    save(frame, path)
    try:
        for zone in ("UTC", "Asia/Kolkata"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            assert rows(load(spark, path)) == rows(frame)
            assert load(spark, path).schema == frame.schema
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_partition_columns_come_back_with_their_types(spark: SparkSession, path: str) -> None:
    frame = spark.sql(
        "SELECT id, IF(id = 0, NULL, date'2026-01-01' + int(id)) day, IF(id = 0, NULL, '01') text, id = 1 AS flag, "
        "decimal(id) / 2 AS half, timestamp'2026-03-29 01:30:00' AS at, timestamp_ntz'2026-03-29 02:30:00' AS ntz "
        "FROM range(3)"
    )
    save(frame, path, partitionBy="day,text,flag,half,at,ntz")
    assert load(spark, path).dtypes == frame.dtypes
    assert rows(load(spark, path)) == rows(frame)
    assert rows(dbio.read(spark, path)) == rows(frame)


def test_odd_names_of_columns_and_paths_are_written_and_read(spark: SparkSession, path: str) -> None:
    frame = spark.range(2).toDF("a.b `c` é=%41").selectExpr("*", "'x' AS text")
    odd = f"{path} x=1 %41"
    save(frame, odd)
    assert rows(load(spark, odd)) == rows(frame)


def test_a_filter_does_not_stick_to_a_dataframe(spark: SparkSession, path: str) -> None:
    save(numbers(spark, 0, 15), path)
    frame = load(spark, path)
    assert frame.where("id < 5").count() == 5
    assert frame.count() == 15
    assert ids(frame.where("day = 'd1'")) == list(range(1, 15, 2))
    assert frame.select("day").distinct().count() == 2


def test_a_dataframe_is_pinned_to_the_snapshot_that_it_was_loaded_from(spark: SparkSession, path: str) -> None:  # I6
    save(numbers(spark, 0, 2), path)
    frame = load(spark, path)
    save(numbers(spark, 2, 4), path)
    assert ids(frame) == [0, 1]
    save(numbers(spark, 4, 6), path, "overwrite")
    assert ids(frame) == ids(frame.where("id >= 0")) == [0, 1]
    first = dbio.Table(path).history()[-1]
    assert ids(load(spark, path, asOf=first.tid)) == [0, 1]
    assert ids(load(spark, path)) == [4, 5]


def test_asking_for_columns_reads_these_and_absent_ones_as_null(spark: SparkSession, path: str) -> None:
    save(numbers(spark, 0, 2), path, partitionBy="day")
    frame = spark.read.format("dbio").schema("day string, ID bigint, other double").load(path)
    assert sorted(map(tuple, frame.collect())) == [("d0", 0, None), ("d1", 1, None)]
    assert ids(spark.read.format("dbio").schema("DAY string").load(path).selectExpr("int(right(DAY, 1)) AS id")) == [
        0,
        1,
    ]


def test_asking_for_a_type_that_cannot_hold_what_is_there_is_refused(spark: SparkSession, path: str) -> None:
    save(numbers(spark, 0, 2), path)
    with pytest.raises(SPARK_ERRORS, match="does not fit the table's int32: int64"):
        spark.read.format("dbio").schema("id int").load(path).collect()


@pytest.mark.parametrize(
    ("options", "named"),
    [({"partitionBy": "day"}, "no option partitionby here"), ({"asOf": "yesterday"}, "as_of='yesterday'")],
)
def test_a_read_option_that_means_nothing_is_refused(
    spark: SparkSession, path: str, options: dict[str, str], named: str
) -> None:
    save(numbers(spark, 0, 2), path)
    with pytest.raises(SPARK_ERRORS, match=named):
        load(spark, path, **options).collect()


def test_what_is_not_there_is_a_clear_error(spark: SparkSession, path: str) -> None:
    with pytest.raises(SPARK_ERRORS, match="there is no table at"):
        load(spark, path)


# --- SQL ----------------------------------------------------------------------------------------------------------


def test_sql_reads_and_writes_through_a_view(spark: SparkSession, path: str) -> None:
    save(numbers(spark, 0, 2), path)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW dbio_view USING dbio OPTIONS (path '{path}')")
    spark.sql("INSERT INTO dbio_view SELECT id + 10, day FROM dbio_view")
    assert ids(load(spark, path)) == [0, 1, 10, 11]
    spark.catalog.dropTempView("dbio_view")


def test_dbio_files_shows_the_live_files(spark: SparkSession, path: str) -> None:
    save(numbers(spark, 0, 2), path)
    save(numbers(spark, 0, 4), f"{path}-2", partitionBy="day")
    for root in (path, f"{path}-2"):
        shown = spark.sql("SELECT path, size, tid, partition FROM dbio_files(:path)", {"path": root}).collect()
        files = dbio.Table(root).snapshot().files
        assert sorted(map(tuple, shown)) == sorted((f.path, f.size, f.tid, dict(f.partition)) for f in files)


def test_dbio_history_shows_the_commits_newest_first(spark: SparkSession, path: str) -> None:
    save(numbers(spark, 0, 4), path, txnAppId="job", txnVersion="3")
    save(numbers(spark, 4, 6), path, "overwrite")
    shown = spark.sql("SELECT * FROM dbio_history(:path)", {"path": path}).collect()
    assert [(row.operation, row.added, row.removed, row.app_id, row.app_version) for row in shown] == [
        ("overwrite", 2, 2, None, None),
        ("append", 2, 0, "job", 3),
    ]
    for row, commit in zip(shown, dbio.Table(path).history(), strict=True):
        assert (row.tid, row.metrics) == (commit.tid, dict(commit.metrics))
        assert row.timestamp.timestamp() == pytest.approx(commit.timestamp.timestamp(), abs=1e-5)


# --- threads ------------------------------------------------------------------------------------------------------


def test_a_thread_that_enables_the_session_may_use_the_data_source(spark: SparkSession, path: str) -> None:
    """Spark looks for data sources in the session that is active in the thread."""
    failures: list[Any] = []

    def work() -> None:
        try:
            dbio.enable(spark)
            save(numbers(spark, 0, 2), path)
            assert ids(load(spark, path)) == [0, 1]
        except Exception as error:
            failures.append(error)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
    assert ids(dbio.read(spark, path)) == [0, 1]
