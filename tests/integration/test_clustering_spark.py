"""Clustering with Spark: one shuffle, and the same rows in the same files as without Spark."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests.histories import History, in_order

TARGET = 8_000


def files_of(table: dbio.Table) -> list[list[str]]:
    """The rows of each file, in their order."""
    files: list[list[Any]] = [pq.read_table(f"{table.url}/{it.path}").to_pylist() for it in table.snapshot().files]
    return sorted([*map(repr, rows)] for rows in files)


def test_rows_of_all_types_come_to_the_same_files_as_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    history = History(dbio.Table(tmp_path / "table"), 3)
    for operation in ["append"] * 20 + ["widen", "append", "append"]:
        history.commit(operation)
    history.table.set({"cluster_by": "price,name,day"})
    before = history.table.snapshot()
    shutil.copytree(tmp_path / "table", tmp_path / "other")
    table, other = history.table, dbio.Table(tmp_path / "other")
    report = dbio.compact(spark, str(tmp_path / "table"), target_size=TARGET)
    assert (report.left, report.cluster_by) == ((), ("price", "name", "day"))
    assert report.files_after > 3
    other.compact(TARGET)
    assert files_of(table) == files_of(other)
    assert in_order(table.snapshot().to_arrow()) == in_order(before.to_arrow())
    assert table.check().ok
    assert dbio.compact(spark, str(tmp_path / "table"), target_size=TARGET).compacted == ()


def test_spark_reads_few_files_of_rows_that_spark_clustered(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    rows = spark.range(20_000).selectExpr(
        "id", "pmod(hash(id), 1000) AS day", "cast(pmod(hash(id, 1), 1000) AS string) AS p"
    )
    dbio.write(rows.repartition(4), path, partition_by=())
    dbio.Table(path).set({"cluster_by": "day,p"})
    before = sorted(dbio.read(spark, path).collect())
    report = dbio.compact(spark, path, target_size=30_000)
    assert report.files_after >= 6
    assert sorted(dbio.read(spark, path).collect()) == before
    found = dbio.read(spark, path, where="day = 500 AND p = '500'").inputFiles()
    assert len(found) <= report.files_after / 3


def test_a_file_that_cannot_be_read_leaves_its_group(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    dbio.write(spark.range(4000).repartition(2), path)
    table = dbio.Table(path)
    table.set({"cluster_by": "id"})
    (tmp_path / "table" / table.snapshot().files[0].path).write_bytes(b"no parquet")
    (left,) = dbio.compact(spark, path, target_size=3000).left
    assert "cannot be read as Parquet" in left.reason
