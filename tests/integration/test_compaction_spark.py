"""`dbio.compact`: Spark's tasks write the new files, and Spark reads the same rows from them."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

import dbio_commit as dbio


def test_small_files_become_one_for_each_partition_and_the_rows_stay(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    rows = spark.range(60).selectExpr(
        "id", "cast(id as string) as text", "if(id % 7 = 0, double('NaN'), id / 3) as ratio",
        "timestamp_seconds(id * 1e9) as at", "array(id, null) as list", "named_struct('x', id) as inner",
        "nullif(id % 3, 2) as part",
    )  # fmt: skip
    dbio.write(rows.where("id < 30").repartition(4), path, partition_by="part")
    dbio.write(rows.where("id >= 30").repartition(4), path)
    wider = rows.withColumn("more", expr("map('k', id)"))
    dbio.write(wider.where("id = 0"), path, merge_schema=True)
    before = dbio.read(spark, path)
    old = [str(row) for row in before.sort("id", "more.k").collect()]
    assert len(dbio.Table(path).snapshot().files) > 20
    report = dbio.compact(spark, path, sort_by="id")
    assert report.files_after == 3
    assert not report.left
    assert len(dbio.Table(path).snapshot().files) == 3
    after = dbio.read(spark, path)
    assert after.schema == before.schema
    assert [str(row) for row in after.sort("id", "more.k").collect()] == old
    assert after.where("ratio > 1e9").count() == before.where("ratio > 1e9").count() == 10  # NaN is the largest
    assert dbio.Table(path).check().ok


def test_spark_skips_row_groups_along_a_curve_and_reads_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    rows = spark.range(1000).selectExpr("hash(id) as x", "hash(id, 1) as y", "id")
    dbio.write(rows.repartition(8), path)
    assert dbio.compact(spark, path, z_order=["x", "y"]).files_after == 1
    after = dbio.read(spark, path)
    assert sorted(after.collect()) == sorted(rows.collect())
    found = [row.x for row in after.collect()]  # in the order of the file
    low = sorted(found)[: len(found) // 2]
    assert set(found[: len(found) // 4]) <= set(low)
    with pytest.raises(dbio.InvalidInputError):
        dbio.compact(spark, path, z_order=["z"])


def test_a_dry_run_and_errors_come_as_from_the_table(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    dbio.write(spark.range(8).repartition(4), path)
    assert dbio.compact(spark, path, dry_run=True).files_before == 4
    assert len(dbio.Table(path).history()) == 1
    with pytest.raises(dbio.InvalidInputError):
        dbio.compact(spark, path, where="nothing = 1")
    with pytest.raises(dbio.TableNotFoundError):
        dbio.compact(spark, str(tmp_path / "none"))


def test_a_live_file_that_is_missing_is_an_error_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    commit = dbio.write(spark.range(8).repartition(4), path)
    Path(path, commit.added[0]).unlink()
    with pytest.raises(dbio.ObjectNotFoundError, match="dbio check"):
        dbio.compact(spark, path)
    assert len(dbio.Table(path).history()) == 1
