"""A table whose checkpoint has parts, with Spark: what users do with it gives the same as with a small table.

Parts are tiny here, so that there are many of them, and they are merged. The log of the table has a checkpoint after
each commit.
"""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit import Table
from dbio_commit.protocol.state import FilesInParts
from tests.later import vacuum_later
from tests.tiny_parts import tiny_parts
from vacuum import VacuumOptions

Rows = set[tuple[int, str]]

pytestmark = pytest.mark.usefixtures("tiny_parts")


@pytest.fixture(autouse=True)
def enabled(spark: SparkSession) -> None:
    dbio.enable(spark)


def frame(spark: SparkSession, rows: Rows) -> DataFrame:
    return spark.createDataFrame(sorted(rows), "id long, day string").repartition(2, "day")


def rows_of(read: DataFrame) -> Rows:
    return {(row.id, row.day) for row in read.collect()}


FIRST: Rows = {(number, f"d{number % 4}") for number in range(40)}


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("original") / "table"
    with tiny_parts():
        dbio.write(frame(spark, FIRST), place, partition_by=["day"])
        for number in range(40, 52):
            dbio.write(frame(spark, {(number, f"d{number % 4}")}), place)
            Table(place).checkpoint()
    return place


@pytest.fixture
def table(original: Path, tmp_path: Path) -> Table:
    """A copy with the same times."""
    return Table(shutil.copytree(original, tmp_path / "table"))


ALL = FIRST | {(number, f"d{number % 4}") for number in range(40, 52)}

ACTS: dict[str, tuple[Callable[[SparkSession, Table], object], Rows]] = {
    "append": (lambda spark, it: dbio.write(frame(spark, {(99, "d1")}), it.url), ALL | {(99, "d1")}),
    "overwrite": (lambda spark, it: dbio.write(frame(spark, {(99, "d1")}), it.url, mode="overwrite"), {(99, "d1")}),
    "overwrite of a partition": (
        lambda spark, it: dbio.write(frame(spark, {(99, "d1")}), it.url, mode="overwrite_partitions"),
        {row for row in ALL if row[1] != "d1"} | {(99, "d1")},
    ),
    "delete": (lambda spark, it: dbio.delete(spark, it.url, "id < 5"), {row for row in ALL if row[0] >= 5}),
    "delete of a partition": (
        lambda spark, it: dbio.delete(spark, it.url, "day = 'd2'"),
        {row for row in ALL if row[1] != "d2"},
    ),
    "update": (
        lambda spark, it: dbio.update(spark, it.url, {"id": "id + 100"}, "day = 'd3'"),
        {(id + 100 if day == "d3" else id, day) for id, day in ALL},
    ),
    "merge": (
        lambda spark, it: dbio.merge(spark, it.url, frame(spark, {(1, "d1"), (77, "d1")}), on=["id", "day"]),
        ALL | {(77, "d1")},
    ),
    "compact": (lambda spark, it: dbio.compact(spark, it.url, where="day = 'd0'"), ALL),
    "conditional write": (
        lambda spark, it: dbio.write(frame(spark, {(99, "d1")}), it.url, if_match=it.snapshot().etag),
        ALL | {(99, "d1")},
    ),
}


@pytest.mark.long_for("overwrite", "delete", "update", "conditional write")
@pytest.mark.parametrize("name", ACTS)
def test_a_table_with_parts_is_written_and_read_as_any_other(spark: SparkSession, table: Table, name: str) -> None:
    act, expected = ACTS[name]
    before = table.snapshot()
    assert isinstance(before.files, FilesInParts)
    act(spark, table)
    for _ in range(2):  # with the commit in its marker, and in a part
        assert rows_of(dbio.read(spark, table.url)) == expected
        for where in ("day = 'd1'", "id > 45", "day IN ('d0', 'd2') AND id < 30"):
            assert rows_of(dbio.read(spark, table.url, where=where)) == rows_of(
                dbio.read(spark, table.url).where(where)
            )
        table.checkpoint()
    assert rows_of(dbio.read(spark, table.url, as_of=before.tid)) == ALL
    assert {file.path for file in table.snapshot().files} == {file.path for file in table.snapshot().files.whole()}  # type: ignore[attr-defined]
    assert table.check().ok


@pytest.mark.long
def test_a_table_with_parts_is_vacuumed_restored_streamed_and_published(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    old = table.snapshot()
    dbio.delete(spark, table.url, "id < 20")
    table.checkpoint()
    table.restore(old.tid)
    assert rows_of(dbio.read(spark, table.url)) == ALL
    seen = tmp_path / "seen"
    stream = spark.readStream.format("dbio").option("ignoreChanges", "true").load(table.url)
    query = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start(str(seen)).awaitTermination()
    assert rows_of(spark.read.parquet(str(seen))) == ALL
    dbio.delete(spark, table.url, "id >= 45")
    left = {row for row in ALL if row[0] < 45}
    vacuum_later(table, VacuumOptions(), by=timedelta(days=8))
    assert rows_of(dbio.read(spark, table.url)) == left
    assert table.check().ok
    table.publish("delta")
    assert {(it["id"], it["day"]) for it in DeltaTable(table.url).to_pyarrow_table().to_pylist()} == left
