"""Joint transactions with Spark: DataFrames to several tables, changes of rows, batches of streams (PROTOCOL.md 15)."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit import CommitConflictError, Table
from tests.spark_tables import ids


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> list[Table]:
    dbio.enable(spark)
    found = [Table(tmp_path / name) for name in ("orders", "customers", "rates")]
    for table in found:
        table.write(spark.range(3))
    return found


def rows(spark: SparkSession, tables: list[Table]) -> list[list[int]]:
    return [ids(dbio.read(spark, table.url)) for table in tables]


def test_dataframes_and_changes_of_rows_are_committed_together(spark: SparkSession, tables: list[Table]) -> None:
    orders, customers, rates = tables
    with dbio.transaction(spark, message="nightly") as tx:
        tx.write(spark.range(3, 5), orders)
        tx.delete(customers, "id + 1 = 2")
        tx.update(rates, {"id": "id * 10"}, "id > 0")
        assert rows(spark, tables) == [[0, 1, 2]] * 3
    assert rows(spark, tables) == [[0, 1, 2, 3, 4], [0, 2], [0, 10, 20]]
    assert len({it.tid for it in tx.commits.values()}) == 1
    with dbio.transaction(spark) as tx:
        tx.merge(spark.range(2, 4), customers, on="id")
        tx.replace(spark.range(50, 51), rates, "id > 5")
    assert rows(spark, tables) == [[0, 1, 2, 3, 4], [0, 2, 3], [0, 50]]
    assert all(it.check().ok for it in tables)


def test_a_task_that_fails_in_one_table_leaves_the_others_as_they_are(spark: SparkSession, tables: list[Table]) -> None:
    orders, customers, _ = tables

    def write_both() -> None:
        with dbio.transaction(spark) as tx:
            tx.write(spark.range(3, 5), orders)
            tx.write(spark.range(3, 5).selectExpr("if(id = 4, raise_error('no'), id) as id"), customers)

    with pytest.raises(Exception, match="no"):
        write_both()
    assert rows(spark, tables) == [[0, 1, 2]] * 3
    assert not [it for table in tables for it in table.snapshot().log.pending]


def test_a_conflict_is_tried_again_with_what_is_there_now(spark: SparkSession, tables: list[Table]) -> None:
    orders, customers, _ = tables
    calls = list[int]()

    def move(tx: dbio.JointTransaction) -> None:
        calls.append(1)
        moved = dbio.read(spark, customers.url)
        tx.write(moved, orders)
        tx.delete(customers, "true")
        if len(calls) == 1:
            dbio.update(spark, customers.url, {"id": "id + 100"})

    with pytest.raises(CommitConflictError):
        dbio.transact(move, spark, retries=0)
    calls.clear()
    dbio.transact(move, spark, retries=2)
    assert rows(spark, tables[:2]) == [[0, 1, 2, 200, 201, 202], []]


def test_a_batch_of_a_stream_is_written_to_several_tables_once(
    spark: SparkSession, tables: list[Table], tmp_path: Path
) -> None:
    orders, customers, rates = tables
    fails = [True]

    def write_batch(batch: DataFrame, number: int) -> None:
        with dbio.transaction(spark, app=("etl", number)) as tx:
            tx.write(batch.where("id % 2 = 0"), customers)
            tx.write(batch.where("id % 2 = 1"), rates)
        if fails.pop() if fails else False:
            raise RuntimeError("died after the commit")

    def run() -> None:
        source = spark.readStream.format("dbio").load(orders.url)
        query = source.writeStream.foreachBatch(write_batch).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="died after the commit"):
        run()
    orders.write(spark.range(3, 6))
    run()
    assert rows(spark, tables[1:]) == [[0, 0, 1, 2, 2, 4], [0, 1, 1, 2, 3, 5]]
