"""Clustering with Spark: one shuffle, and the same rows in the same files as without Spark."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests import spark35
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


def clustered_by(path: Path) -> str | None:
    return dbio.Table(path).settings().get("cluster_by")


def test_sql_says_by_what_a_table_is_clustered_in_properties(spark: SparkSession, tmp_path: Path) -> None:
    dbio.enable(spark)
    path, name = tmp_path / "table", f"dbio.`{tmp_path / 'table'}`"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, Day DATE, m INT) PARTITIONED BY (m) TBLPROPERTIES ('cluster_by' = 'day')"
    )
    assert clustered_by(path) == '["Day"]'
    with pytest.raises(dbio.InvalidInputError, match="cannot be clustered by 'm': it is a partition column"):
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('cluster_by' = 'id,m')")
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('cluster_by')")
    assert clustered_by(path) is None


@pytest.mark.skipif(spark35.IS_USED, reason="CLUSTER BY of a table is there since Spark 4.0")
def test_sql_clusters_a_table_by_columns_and_by_none(spark: SparkSession, tmp_path: Path) -> None:
    dbio.enable(spark)
    path, name = tmp_path / "table", f"dbio.`{tmp_path / 'table'}`"
    spark.sql(
        f'CREATE TABLE {name} (id BIGINT, Day DATE, `a "b` STRING, inner STRUCT<x: INT>) CLUSTER BY (day, `a "b`)'
    )
    assert clustered_by(path) == '["Day", "a \\"b"]'
    assert dbio.Table(path).snapshot().partition_columns == ()
    spark.sql(f"ALTER TABLE {name} CLUSTER BY (ID)")
    assert clustered_by(path) == '["id"]'
    with pytest.raises(dbio.InvalidInputError, match=r"cannot be clustered by 'inner': it is nested \(struct\)"):
        spark.sql(f"ALTER TABLE {name} CLUSTER BY (inner)")
    spark.sql(f"ALTER TABLE {name} CLUSTER BY NONE")
    assert clustered_by(path) is None
    spark.sql(f"CREATE OR REPLACE TABLE {name} CLUSTER BY (k) AS SELECT id, hash(id) AS k FROM range(3000)")
    assert clustered_by(path) == '["k"]'
    spark.range(2000).selectExpr("id", "hash(id) AS k").writeTo(name).clusterBy("id").createOrReplace()
    assert clustered_by(path) == '["id"]'
    call = f"CALL dbio.system.compact(table => '{name}', target_size => 3000, full => true, most => 1000000)"
    (done,) = spark.sql(call).collect()
    assert done.files_after > done.files_before
    assert dbio.Table(path).count() == 2000
