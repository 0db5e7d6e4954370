"""`dbio.enable(spark, parquet=True)` at its edges: odd paths and roots, other writers of Spark's, and interrupts.

What it does as a rule is in test_spark_committer.py.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import dbio_commit as dbio
from dbio_commit.protocol import names
from dbio_commit.spark.committer import handler
from dbio_commit.spark.committer.writes import is_transaction
from dbio_commit.store import parse_location
from tests import spark35
from tests.spark_tables import SPARK_ERRORS, ids, numbers, objects
from tests.tiers import long


@pytest.fixture
def lake(enabled: SparkSession, tmp_path: Path) -> Path:
    root = tmp_path / "lake"
    dbio.enable(enabled, parquet=True, roots=root)
    return root


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


# --- paths and roots ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a b", "ä/ü€", "p%20q/t%2F", "a:b", "a#b?c", "g[1]/{t}*", "k=v", "a\nb"])
def test_a_table_may_have_any_name(spark: SparkSession, lake: Path, name: str) -> None:
    spark.range(2).write.parquet(str(lake / name))
    spark.range(2, 3).write.mode("append").parquet(str(lake / name) + "/")
    assert ids(dbio.read(spark, lake / name)) == [0, 1, 2]
    assert len(dbio.Table(lake / name).history()) == 2


def test_a_path_with_a_line_break_that_is_not_ours_is_left_alone(
    spark: SparkSession, lake: Path, tmp_path: Path
) -> None:
    spark.range(2).write.parquet(str(tmp_path / "a\nb"))
    assert "_SUCCESS" in os.listdir(tmp_path / "a\nb")


@pytest.mark.parametrize("spelling", ["{}/", "file:{}", "file://{}"])
def test_a_root_may_be_spelt_in_any_way(enabled: SparkSession, tmp_path: Path, spelling: str) -> None:
    dbio.enable(enabled, parquet=True, roots=spelling.format(tmp_path / "lake"))
    enabled.range(2).write.parquet(str(tmp_path / "lake" / "table"))
    assert names.DESCRIPTOR in os.listdir(tmp_path / "lake" / "table")


def test_links_to_a_root_and_of_a_root_are_followed(enabled: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    (tmp_path / "other").mkdir()
    (tmp_path / "other link").symlink_to(tmp_path / "other")
    dbio.enable(enabled, parquet=True, roots=[tmp_path / "lake", tmp_path / "other link"])
    for name in ("link/a", "other/b"):
        enabled.range(2).write.parquet(str(tmp_path / name))
        assert names.DESCRIPTOR in os.listdir(tmp_path / name)


@pytest.mark.parametrize("root", ["/", "file:///", "/lake/.."])
def test_all_of_a_disk_may_be_a_root(root: str) -> None:
    assert is_transaction("file:/lake/table", "", [parse_location(root)])


def test_an_overwrite_does_not_delete_a_root(spark: SparkSession, lake: Path) -> None:
    spark.range(2).write.parquet(str(lake / "table"))
    with pytest.raises(dbio.InvalidInputError, match="would delete"):
        spark.range(2, 4).write.mode("overwrite").parquet(str(lake.parent))
    assert ids(dbio.read(spark, lake / "table")) == [0, 1]
    spark.range(2, 4).write.mode("append").parquet(str(lake.parent))
    assert ids(dbio.read(spark, lake / "table")) == [0, 1], "an append leaves it alone"


# --- other ways in which Spark writes -----------------------------------------------------------------------------


def stream(spark: SparkSession, target: Path, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    spark.range(4).write.parquet(source)
    rows = spark.readStream.schema("id bigint").parquet(source)
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(target)).awaitTermination()


@pytest.mark.parametrize("exists", [True, False], ids=["table", "below a root"])
def test_the_file_sink_of_streams_is_refused(spark: SparkSession, lake: Path, tmp_path: Path, exists: bool) -> None:
    if exists:
        spark.range(2).write.parquet(str(lake / "table"))
    with pytest.raises((dbio.InvalidInputError, StreamingQueryException), match="foreachBatch"):
        stream(spark, lake / "table", tmp_path)
    assert not {file for file in objects(lake / "table") if file.endswith(".parquet") and "tid-" not in file}


def test_the_file_sink_of_streams_writes_elsewhere(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    stream(spark, tmp_path / "elsewhere", tmp_path)
    assert "_spark_metadata" in os.listdir(tmp_path / "elsewhere")
    assert ids(spark.read.parquet(str(tmp_path / "elsewhere"))) == [0, 1, 2, 3]


def test_hives_own_writer_is_refused() -> None:
    staging = "file:/table/.hive-staging_hive_2026-11-22_17-02-08_926_7553870182836478285-1/-ext-10000"
    with pytest.raises(dbio.InvalidInputError, match="convertMetastoreParquet"):
        is_transaction(staging, "/table", [])


def test_insert_overwrite_directory_is_a_transaction(spark: SparkSession, lake: Path) -> None:
    spark.range(2).write.parquet(str(lake / "table"))
    spark.sql(f"INSERT OVERWRITE DIRECTORY '{lake / 'table'}' USING parquet SELECT 7L AS id")
    assert ids(dbio.read(spark, lake / "table")) == [7]
    assert len(dbio.Table(lake / "table").history()) == 2


def test_one_insert_may_write_to_many_tables_but_once_to_each(spark: SparkSession, lake: Path) -> None:
    for name in ("one", "two"):
        spark.sql(f"CREATE TABLE {name} (id bigint) USING parquet LOCATION '{lake / name}'")
    try:
        spark.sql("FROM range(2) INSERT INTO one SELECT id INSERT INTO two SELECT id + 10")
        assert ids(dbio.read(spark, lake / "one")) == [0, 1]
        assert ids(dbio.read(spark, lake / "two")) == [10, 11]
        twice = "FROM range(2) INSERT INTO one SELECT id INSERT INTO one SELECT id + 10"
        if spark35.IS_USED:  # which runs one after the other
            spark.sql(twice)
            assert ids(dbio.read(spark, lake / "one")) == [0, 0, 1, 1, 10, 11]
            assert len(dbio.Table(lake / "one").history()) == 3
            return
        with pytest.raises(dbio.InvalidInputError, match="2 commands"):
            spark.sql(twice)
        assert ids(dbio.read(spark, lake / "one")) == [0, 1]
    finally:
        for name in ("one", "two"):
            spark.sql(f"DROP TABLE {name}")


def test_with_merge_schema_columns_may_be_lacking(spark: SparkSession, lake: Path) -> None:
    spark.sql("SELECT 1 AS id, named_struct('a', 1) AS s, 'x' AS text").write.parquet(str(lake / "table"))
    spark.sql("SELECT 2 AS id").write.mode("append").option("mergeSchema", "true").parquet(str(lake / "table"))
    for frame in (dbio.read(spark, lake / "table"), dbio.read(spark, lake / "table", where="id < 9")):
        assert sorted(map(tuple, frame.collect()))[1] == (2, None, None)
    assert dbio.read(spark, lake / "table", where="text IS NULL").count() == 1
    assert dbio.Table(lake / "table").snapshot().to_arrow().num_rows == 2


def test_no_checksums_of_hadoops_outlive_the_files(spark: SparkSession, lake: Path) -> None:
    for rows in (0, 4):
        numbers(spark, 0, rows).write.mode("append").partitionBy("day").parquet(str(lake / "table"))
    assert not {file for file in objects(lake / "table") if file.endswith(".crc")}


# --- interrupts ---------------------------------------------------------------------------------------------------


INTERRUPTED = (KeyboardInterrupt, Py4JError, *SPARK_ERRORS)
"""Before 4.2, Spark takes Ctrl+C for a lost connection."""


def test_many_writes_leave_no_threads(spark: SparkSession, lake: Path) -> None:
    spark.range(1).write.parquet(str(lake / "table"))
    before = threading.active_count()
    for _ in range(5):
        spark.range(1).write.mode("append").parquet(str(lake / "table"))
    assert threading.active_count() <= before + 1


@pytest.mark.parametrize("by", ["Ctrl+C", *long("cancelAllJobs")])
def test_a_write_that_is_interrupted_is_decided(spark: SparkSession, lake: Path, by: str) -> None:
    table, path = dbio.Table(lake / "table"), str(lake / "table")
    spark.range(2).write.parquet(path)

    @udf("bigint")
    def sleep(id):  # type: ignore[no-untyped-def]  # Spark takes hints for orders
        time.sleep(5)
        return id

    def interrupt() -> None:
        wait_until(lambda: bool(table.check().pending))
        time.sleep(1)
        if by == "Ctrl+C":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            spark.sparkContext.cancelAllJobs()

    timer = threading.Timer(0, interrupt)
    timer.start()
    with pytest.raises(INTERRUPTED):
        spark.range(2, 3, 1, 1).select(sleep("id").alias("id")).write.mode("append").parquet(path)
    timer.join()
    wait_until(lambda: not handler._handler._open)
    assert not table.check().pending
    assert ids(dbio.read(spark, path)) in ([0, 1], [0, 1, 2]), "PySpark's Ctrl+C may leave the job running"
    spark.range(3, 4).write.mode("append").parquet(path)
    assert ids(dbio.read(spark, path))[-1] == 3


def test_a_commit_that_is_under_way_when_ctrl_c_comes_is_made(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, commit = str(lake / "table"), dbio.Transaction.commit

    def interrupted(transaction: dbio.Transaction, **kwargs: object) -> dbio.Commit:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        return commit(transaction, **kwargs)  # type: ignore[arg-type]

    spark.range(2).write.parquet(path)
    monkeypatch.setattr("dbio_commit.commit.transaction.Transaction.commit", interrupted)
    with pytest.raises(INTERRUPTED):
        spark.range(2, 3).write.mode("append").parquet(path)
    wait_until(lambda: not handler._handler._open)
    monkeypatch.undo()
    assert ids(dbio.read(spark, path)) == [0, 1, 2]
    assert not dbio.Table(path).check().pending
