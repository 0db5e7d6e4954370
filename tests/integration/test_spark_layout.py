"""Overwrites with other partition columns, on real Spark. What the protocol does for them is in unit/test_layout.py.

Rules: PROTOCOL.md 9.11.
"""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import dbio_commit as dbio
from dbio_commit.commit import turns
from tests.spark_tables import ids, numbers, rows


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a table")


@pytest.fixture(autouse=True)
def at_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else is at work, so that there is nobody to wait for."""
    dbio.enable(spark)
    monkeypatch.setattr(turns, "SETTLE_S", 0.1)


def by_kind(spark: SparkSession, start: int, end: int) -> DataFrame:
    return numbers(spark, start, end).withColumn("kind", f.expr("concat('k', id % 3)"))


@pytest.fixture
def moved(spark: SparkSession, path: str) -> str:
    """Ten rows by day, which an overwrite put by kind, and two more."""
    dbio.write(by_kind(spark, 0, 10), path, partition_by="day")
    dbio.write(dbio.read(spark, path), path, "overwrite", partition_by="kind")
    dbio.write(by_kind(spark, 10, 12), path)
    return path


def test_rows_stay_the_same_in_other_partitions(spark: SparkSession, moved: str) -> None:
    snapshot = dbio.Table(moved).snapshot()
    assert {tuple(file.partition) for file in snapshot.files} == {("kind",)}
    expected = rows(by_kind(spark, 0, 12))
    assert rows(dbio.read(spark, moved).select("id", "day", "kind")) == expected
    assert rows(spark.read.format("dbio").load(moved).select("id", "day", "kind")) == expected
    assert dbio.Table(moved).check().ok


def test_the_state_before_is_read_in_its_own_partitions(spark: SparkSession, moved: str) -> None:
    first = dbio.Table(moved).history()[-1].tid
    assert ids(dbio.read(spark, moved, as_of=first)) == list(range(10))
    assert ids(spark.read.format("dbio").option("asOf", first).load(moved)) == list(range(10))
    assert set(dbio.Table(moved).snapshot(first).to_arrow(["id"]).column(0).to_pylist()) == set(range(10))


def test_a_condition_leaves_out_files_by_the_new_columns(spark: SparkSession, moved: str) -> None:
    snapshot = dbio.Table(moved).snapshot()
    left = snapshot.where("kind = 'k1'").files
    assert {file.partition["kind"] for file in left} == {"k1"}
    assert len(left) < len(snapshot.files)
    assert ids(dbio.read(spark, moved, where="kind = 'k1'")) == [1, 4, 7, 10]


@pytest.mark.long
def test_changes_are_read_across_it_natively_and_in_workers(spark: SparkSession, moved: str) -> None:
    tids = [commit.tid for commit in reversed(dbio.Table(moved).history())]
    native = dbio.changes(spark, moved, tids[0])
    in_workers = spark.read.format("dbio").options(readChangeFeed="true", startingTid=tids[0]).load(moved)
    assert rows(native) == rows(in_workers)
    told = [(row._commit_tid, row._change_type) for row in native.collect()]
    counts = [told.count((tid, kind)) for tid in tids for kind in ("insert", "delete")]
    assert counts == [10, 0, 10, 10, 2, 0]
    only_new = dbio.changes(spark, moved, tids[0], net=True).where("_change_type = 'insert'")
    assert ids(only_new) == list(range(12))


@pytest.mark.long
def test_rows_change_in_the_new_partitions(spark: SparkSession, moved: str) -> None:
    dbio.update(spark, moved, {"kind": "'k9'"}, "id < 2")
    dbio.delete(spark, moved, "kind = 'k2'")
    dbio.compact(spark, moved)
    found = {(row.id, row.kind) for row in dbio.read(spark, moved).collect()}
    assert found == {(0, "k9"), (1, "k9"), *((id, f"k{id % 3}") for id in range(2, 12) if id % 3 != 2)}
    assert dbio.Table(moved).check().ok


def test_a_restore_brings_the_old_partitions_back(spark: SparkSession, moved: str) -> None:
    table = dbio.Table(moved)
    table.restore(table.history()[-1].tid)
    assert table.snapshot().partition_columns == ("day",)
    assert ids(dbio.read(spark, moved)) == list(range(10))


@pytest.mark.long
def test_the_data_source_changes_them_by_its_option(spark: SparkSession, moved: str) -> None:
    """Its commit is in another process, which waits a minute indeed."""
    rewritten = by_kind(spark, 0, 5).write.format("dbio").mode("overwrite").option("partitionBy", "day,kind")
    rewritten.save(moved)
    assert dbio.Table(moved).snapshot().partition_columns == ("day", "kind")
    assert ids(dbio.read(spark, moved)) == list(range(5))


@pytest.mark.long
def test_published_tables_follow(spark: SparkSession, path: str) -> None:
    table = dbio.Table(path)
    dbio.write(by_kind(spark, 0, 10), path, partition_by="day")
    table.set({"publish": "delta,spark,symlink"})
    dbio.write(by_kind(spark, 0, 12), path, "overwrite", partition_by=["kind"])
    assert ids(spark.read.parquet(path)) == list(range(12))
    found = list((Path(path) / "_symlink_format_manifest").rglob("manifest"))
    assert {file.parent.name for file in found} == {"kind=k0", "kind=k1", "kind=k2"}
    delta = DeltaTable(path)
    assert delta.metadata().partition_columns == ["kind"]
    assert set(delta.to_pyarrow_table().column("id").to_pylist()) == set(range(12))
    assert table.check().ok


def test_unchanged_code_is_told_how_instead_of_moving_all_rows(
    enabled: SparkSession, moved: str, tmp_path: Path
) -> None:
    dbio.enable(enabled, parquet=True, roots=[tmp_path])
    for writer in (by_kind(enabled, 0, 2).write, by_kind(enabled, 0, 2).write.partitionBy("day")):
        with pytest.raises(dbio.SchemaMismatchError, match=r"mode='overwrite', partition_by="):
            writer.mode("overwrite").parquet(moved)
    assert ids(dbio.read(enabled, moved)) == list(range(12))
