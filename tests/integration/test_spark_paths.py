"""Paths of a session whose default file system is no disk, and executors with disks of their own."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import dbio_commit as dbio
from dbio_commit.commit.request import Terms
from dbio_commit.spark.write.plan import WritePlan
from dbio_commit.spark.write.task import TaskSpec
from tests.spark_tables import SPARK_ERRORS, configured, numbers
from vacuum import vacuum

MEANT = "has no scheme: for Spark it is hdfs://127.0.0.1:9/{path} in the default file system"


@pytest.fixture
def cluster(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that looks for paths without a scheme in HDFS, which is not there."""
    session = spark.newSession()
    with configured(session, {"fs.defaultFS": "hdfs://127.0.0.1:9"}):
        yield session


TAKES: dict[str, Callable[[SparkSession, str], Any]] = {
    "write": lambda spark, path: dbio.write(spark.range(1), path),
    "overwrite": lambda spark, path: dbio.write(spark.range(1), path, "overwrite"),
    "replace_where": lambda spark, path: dbio.write(spark.range(1), path, "overwrite", replace_where="id = 0"),
    "read": dbio.read,
    "delete": lambda spark, path: dbio.delete(spark, path, "id = 0"),
    "update": lambda spark, path: dbio.update(spark, path, {"id": "1"}),
    "merge": lambda spark, path: dbio.merge(spark, path, spark.range(1), ["id"]),
    "constrain": lambda spark, path: dbio.constrain(spark, path, {"not_null.id": "true"}),
    "changes": lambda spark, path: dbio.changes(spark, path, "1"),
    "compact": dbio.compact,
    "vacuum": lambda spark, path: vacuum(path, spark=spark),
    "register": lambda spark, path: dbio.register(spark, "t", path),
    "roots": lambda spark, path: dbio.enable(spark, parquet=True, roots=path),
    "batch_writer": lambda spark, path: dbio.batch_writer(path, "app")(spark.range(1), 0),
    "write_stream": lambda spark, path: dbio.write_stream(
        spark.readStream.format("rate").load(), path, "/nowhere/checkpoint"
    ),
    "for_each_batch": lambda spark, path: dbio.for_each_batch(spark, path, print, "/nowhere/checkpoint"),
}


@pytest.mark.parametrize("take", TAKES)
def test_a_path_without_a_scheme_is_refused_wherever_a_session_is_beside_it(
    cluster: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, take: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, meant in (("/no/such/table", "no/such/table"), ("table", "user/[^/]+/table")):
        with pytest.raises(dbio.InvalidInputError, match=MEANT.format(path=meant)):
            TAKES[take](cluster, path)
    assert not list(tmp_path.iterdir())


def test_the_data_source_and_the_functions_refuse_it_too(cluster: SparkSession, tmp_path: Path) -> None:
    path, meant = str(tmp_path / "table"), MEANT.format(path=str(tmp_path / "table")[1:])
    dbio.enable(cluster)
    with pytest.raises(AnalysisException, match=meant):
        cluster.range(1).write.format("dbio").mode("append").save(path)
    with pytest.raises(AnalysisException, match=meant):
        cluster.read.format("dbio").load(path)
    for function in ("dbio_files", "dbio_history"):
        with pytest.raises((*SPARK_ERRORS, dbio.InvalidInputError), match=meant):
            cluster.sql(f"SELECT * FROM {function}('{path}')").collect()
    assert not Path(path).exists()


def test_a_default_file_system_that_cannot_be_asked_is_named_all_the_same(spark: SparkSession) -> None:
    session = spark.newSession()
    with (
        configured(session, {"fs.defaultFS": "unheard://of"}),
        pytest.raises(
            dbio.InvalidInputError, match=r"for Spark it is a path in the default file system .*\(unheard://of\)"
        ),
    ):
        dbio.read(session, "table")


def test_with_a_scheme_it_is_the_disk_of_all_machines(cluster: SparkSession, tmp_path: Path) -> None:
    path = f"file:{tmp_path}/table"
    dbio.write(cluster.range(4), path)
    dbio.delete(cluster, path, "id = 0")
    dbio.enable(cluster)
    cluster.range(4, 6).write.format("dbio").mode("append").save(path)
    assert sorted(row.id for row in dbio.read(cluster, path).collect()) == [1, 2, 3, 4, 5]
    assert cluster.read.format("dbio").load(path).count() == 5


@pytest.fixture
def other_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks see another disk below the table's path than the driver."""
    task_spec = WritePlan.task_spec

    def task_there(plan: WritePlan, terms: Terms) -> TaskSpec:
        return replace(task_spec(plan, terms), table=dbio.Table(tmp_path / "of the executors"))

    monkeypatch.setattr(WritePlan, "task_spec", task_there)


@pytest.mark.parametrize("mode", ["append", "overwrite", "overwrite_partitions", "error"])
def test_what_executors_wrote_to_a_disk_of_their_own_is_not_committed(
    spark: SparkSession, tmp_path: Path, other_disk: None, mode: Any
) -> None:
    path = str(tmp_path / "table")
    with pytest.raises(dbio.UnsupportedStoreError, match="the executors' disk is not the driver's"):
        dbio.write(numbers(spark, 0, 4), path, mode, partition_by="day")
    assert dbio.Table(path).snapshot().files == ()
    assert not dbio.Table(path).check().pending


def test_rows_that_change_are_written_to_a_disk_that_all_share_or_not_at_all(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = str(tmp_path / "table")
    dbio.write(numbers(spark, 0, 4), path)
    request.getfixturevalue("other_disk")
    changes: list[Callable[[], object]] = [
        lambda: dbio.delete(spark, path, "id = 1"),
        lambda: dbio.update(spark, path, {"day": "'x'"}, "id = 1"),
        lambda: dbio.merge(spark, path, numbers(spark, 1, 6), ["id"]),
        lambda: dbio.write(numbers(spark, 1, 2), path, "overwrite", replace_where="id = 1"),
    ]
    for change in changes:
        with pytest.raises(dbio.UnsupportedStoreError, match="the executors' disk is not the driver's"):
            change()
    assert sorted(row.id for row in dbio.read(spark, path).collect()) == [0, 1, 2, 3]
