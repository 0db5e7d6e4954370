"""What anybody's Spark sees of a table that is published as Spark's list of files, and what manifests name.

Rules: NOTES.md, Spark and Manifests.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import dbio_commit as dbio
from dbio_commit import Table
from tests.histories import History, columns

LAYOUTS = {"flat": (), "by-text": ("kind",), "by-number-and-day": ("number", "date")}


def small(table: Table, seed: int, layout: str) -> History:
    history = History(table, seed, partition_by=LAYOUTS[layout])
    history.kinds = {"id": "long", "name": "string"}
    return history


def ids(rows: Any) -> list[int]:
    return sorted(row["id"] for row in rows.select("id").collect())


def ours(table: Table) -> list[int]:
    found: Any = table.snapshot().to_arrow(["id"])["id"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_plain_spark_sees_the_rows_of_each_commit_once_it_is_published(
    layout: str, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "a b ä" / "table"
    table = Table(path)
    history = small(table, 3, layout)
    name = f"published_{layout.replace('-', '_')}"
    try:
        for number in range(6):
            history.commit("append" if number == 0 else None)
            table.publish("spark")
            if not table.snapshot().files:
                continue
            assert ids(spark.read.parquet(str(path))) == ours(table)
            assert ids(spark.sql(f"SELECT * FROM parquet.`{path}`")) == ours(table)
            if number == 0:
                spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{path}'")
            spark.sql(f"REFRESH TABLE {name}")
            assert ids(spark.sql(f"SELECT * FROM {name}")) == ours(table)
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    if layout == "by-text":
        rows = {(row["id"], row["kind"]) for row in spark.read.parquet(str(path)).collect()}
        assert rows == {(row["id"], row["kind"]) for row in table.snapshot().to_arrow(["id", "kind"]).to_pylist()}


def test_spark_sees_no_file_that_is_not_committed_and_none_that_was_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(tmp_path / "table")
    history = small(table, 1, "by-text")
    history.commit("append")
    history.commit("overwrite")
    history.commit("append")
    table.publish("spark")
    pending = table.begin(partition_by=["kind"])
    rows = pa.table({"id": pa.array([-1], pa.int64()), "name": ["x"]})
    pq.write_table(rows, pending.new_file(partition={"kind": "a"}))
    assert ids(spark.read.parquet(table.url)) == ours(table)
    pending.commit()
    assert -1 not in ids(spark.read.parquet(table.url))  # it lags
    table.publish("spark")
    assert -1 in ids(spark.read.parquet(table.url))


def test_an_emptied_table_has_no_rows_for_who_knows_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    small(table, 1, "flat").commit("append")
    table.begin("overwrite").commit(columns(id="long"))
    table.publish("spark")
    assert spark.read.schema("id long").parquet(table.url).collect() == []
    with pytest.raises(AnalysisException, match=r"(?i)unable.to.infer.schema"):
        spark.read.parquet(table.url)


def test_a_copied_table_reads_the_old_place_until_it_is_published_again(spark: SparkSession, tmp_path: Path) -> None:
    old = Table(tmp_path / "old")
    small(old, 1, "by-text").commit("append")
    old.publish("spark")
    shutil.copytree(old.url, tmp_path / "new")
    new = Table(tmp_path / "new")
    transaction = new.begin(partition_by=["kind"])
    rows = pa.table({"id": pa.array([-1], pa.int64()), "name": ["x"]})
    pq.write_table(rows, transaction.new_file(partition={"kind": "a"}))
    transaction.commit()
    assert ids(spark.read.parquet(new.url)) == ours(old)
    (problem,) = new.check().publications
    assert str(tmp_path / "old") in problem
    new.publish("spark")
    assert new.check().ok
    assert ids(spark.read.parquet(new.url)) == ours(new) != ours(old)


def test_our_own_reader_and_writer_take_no_notice_of_publications(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    dbio.write(spark.range(5), path)
    table = Table(path)
    table.publish(["delta", "spark", "symlink"])
    dbio.write(spark.range(5, 8), path)
    assert ids(dbio.read(spark, path)) == list(range(8)) == ours(table)
    assert ids(spark.read.parquet(path)) == list(range(5))
    table.publish(["delta", "spark", "symlink"])
    assert ids(spark.read.parquet(path)) == list(range(8))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_manifests_name_exactly_the_live_files_of_each_partition(layout: str, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = small(table, 4, layout)
    for _ in range(6):
        history.commit()
        table.publish("symlink")
        named: list[str] = []
        for directory, _, files in os.walk(tmp_path / "table/_symlink_format_manifest"):
            if "manifest" in files:
                partition = os.path.relpath(directory, tmp_path / "table/_symlink_format_manifest")
                lines = Path(directory, "manifest").read_text().splitlines()
                assert lines or layout == "flat"
                start = f"file://{table.url}/" + ("" if partition == "." else f"{partition}/")
                assert all(line.startswith(f"{start}part-") for line in lines)
                named += [line.removeprefix("file://") for line in lines]
        assert sorted(named) == sorted(table.snapshot().urls())
        rows: list[Any] = [row for path in named for row in pq.read_table(path, partitioning=None)["id"].to_pylist()]
        assert sorted(rows) == ours(table)
    assert table.check().ok
