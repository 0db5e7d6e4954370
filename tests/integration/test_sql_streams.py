"""Streams by the names of tables: `readStream.table` by Spark's own reader, and `toTable`, each batch exactly once.

What comes next is decided in feed/feed.py, which has unit tests; killed queries are in test_streams_killed.py.
Rules: PROTOCOL.md 8.4, 9.1.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import dbio_commit as dbio
from dbio_commit.spark.read import scan
from tests.later import vacuum_later
from tests.spark_tables import SPARK_ERRORS, ids, numbers
from tests.streams import ALL, SPARK, finish
from vacuum import VacuumOptions


@pytest.fixture(autouse=True)
def enabled(spark: SparkSession) -> Iterator[None]:
    dbio.enable(spark)
    yield
    for query in spark.streams.active:
        query.stop()


class Copying:
    """A query from one table to another, with a checkpoint of its own. Each run takes all that is new."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.source, self.target, self.checkpoint = (str(directory / it) for it in ("a täble", "target", "checkpoint"))

    def write(self, start: int, end: int, mode: Any = "append", **options: Any) -> dbio.Commit:
        frame = numbers(self.spark, start, end).selectExpr("id", "struct(id AS a, id AS b) AS inner_", "day")
        return dbio.write(frame, self.source, mode, partition_by="day", **options)

    def stream(self, **options: Any) -> DataFrame:
        return self.spark.readStream.options(**options).table(f"dbio.`{self.source}`")

    def run(self, rows: DataFrame, mode: str = "append", **options: Any) -> StreamingQuery:
        writer = rows.writeStream.outputMode(mode).options(**options).option("checkpointLocation", self.checkpoint)
        return finish(writer.partitionBy("day").trigger(**ALL).toTable(f"dbio.`{self.target}`"))

    def copied(self) -> list[int]:
        return ids(dbio.read(self.spark, self.target))

    def apps(self) -> list[Any]:
        return [commit.app for commit in reversed(dbio.Table(self.target).history()) if commit.app]


@pytest.fixture
def copying(spark: SparkSession, tmp_path: Path) -> Copying:
    return Copying(spark, tmp_path)


def plan_of(query: StreamingQuery) -> str:
    running: Any = query
    return str(running._jsq.streamingQuery().lastExecution().executedPlan().toString())


def test_each_batch_is_read_by_sparks_reader_and_committed_once(copying: Copying) -> None:  # I8
    copying.write(0, 10)
    copying.write(10, 20)
    query = copying.run(copying.stream(maxFilesPerTrigger=4).where("id > 3").selectExpr("id", "inner_.a", "day"))
    assert copying.copied() == list(range(4, 20))
    assert [it["numInputRows"] for it in query.recentProgress] == [8, 10]  # one file has 1 and 3 only
    assert copying.apps() == [(str(query.id), batch) for batch in (0, 1)]
    assert dbio.Table(copying.target).snapshot().partition_columns == ("day",)
    plan = plan_of(query)
    assert "FileScan parquet" in plan
    assert "GreaterThan(id,3)" in plan
    assert "ReadSchema: struct<id:bigint,inner_:struct<a:bigint>>" in plan
    assert query.lastProgress
    left = str(query.lastProgress["sources"][0]["latestOffset"])
    assert json.loads(left.replace("'", '"')) == {"behind": {"commits": 0, "files": 0, "bytes": 0}}  # 4.0 shows a dict
    for name in ("1", ".1.crc"):  # as if Spark was killed before it has recorded the batch
        Path(copying.checkpoint, "commits", name).unlink()
    copying.write(20, 22)
    again = copying.run(copying.stream().selectExpr("id", "inner_.a", "day"))
    assert again.id == query.id
    assert Counter(copying.copied()) == Counter(range(4, 22))
    assert copying.apps() == [(str(query.id), batch) for batch in range(3)]
    copying.write(0, 2)
    copying.run(copying.stream().where("id > 3").selectExpr("id", "inner_.a", "day"))  # a batch without rows
    assert copying.apps() == [(str(query.id), batch) for batch in range(3)]
    copying.write(22, 24)
    copying.run(copying.stream().where("id > 3").selectExpr("id", "inner_.a", "day"))
    assert Counter(copying.copied()) == Counter(range(4, 24))
    assert copying.apps() == [(str(query.id), batch) for batch in (0, 1, 2, 4)]


@pytest.mark.long
def test_operators_with_state_go_on_and_a_complete_output_replaces_the_table(
    copying: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts() -> dict[str, int]:
        return {row.day: row["count"] for row in dbio.read(copying.spark, copying.target).collect()}

    copying.write(0, 4)
    copying.run(copying.stream().groupBy("day").count(), "complete", txnAppId="counts")
    copying.write(4, 10)
    copying.run(copying.stream().groupBy("day").count(), "complete", txnAppId="counts")
    assert counts() == {"d0": 5, "d1": 5}
    monkeypatch.setattr(scan, "native_root", lambda *_, **__: None)  # Spark has no connector: Python workers read
    copying.write(10, 13)
    query = copying.run(copying.stream().groupBy("day").count(), "complete", txnAppId="counts")
    assert counts() == {"d0": 7, "d1": 6}
    assert copying.apps() == [("counts", batch) for batch in range(3)]
    assert SPARK < (4, 1) or (query.lastProgress and query.lastProgress["numInputRows"] == 3)
    copying.write(13, 14)
    with pytest.raises(SPARK_ERRORS, match=r"(?i)update"):
        copying.run(copying.stream().groupBy("day").count(), "update")


@pytest.mark.long
@pytest.mark.skipif(SPARK < (4, 2), reason="Spark 4.2 has stream sources in Python with limits")
def test_a_checkpoint_of_the_data_source_goes_on_by_name_and_back(copying: Copying) -> None:
    by_source = copying.spark.readStream.format("dbio")
    found = []
    for start in (0, 2, 4, 6):
        copying.write(start, start + 2)
        stream = copying.stream() if start % 4 else by_source.load(copying.source)
        found.append(copying.run(stream.select("id", "day")).id)
    assert copying.copied() == list(range(8))
    assert len({*found}) == 1
    assert len(copying.apps()) == 4


@pytest.mark.long
def test_a_stream_goes_on_after_a_vacuum_or_fails_by_name(copying: Copying) -> None:
    def run(**options: Any) -> list[int]:
        before = copying.copied()
        copying.run(copying.stream(**options).select("id", "day"))
        return [id for id in copying.copied() if id not in before]

    def vacuum(days: int) -> None:
        assert vacuum_later(dbio.Table(copying.source), VacuumOptions(retention_hours=1), by=timedelta(days=days)).ok

    copying.write(0, 2)
    dbio.write(numbers(copying.spark, 0, 0).select("id", "day"), copying.target, partition_by="day")
    assert run() == [0, 1]
    copying.write(10, 12, "overwrite")
    vacuum(2)
    with pytest.raises(dbio.ChangedRowsError, match="skipChangeCommits=true"):
        run()
    assert run(ignoreChanges=True) == [10, 11]  # the files of the batch before it are gone, and not read again
    copying.write(20, 22)
    removed = copying.write(30, 32, "overwrite")
    vacuum(4)
    with pytest.raises(dbio.HistoryLostError, match=r"vacuumed.*failOnDataLoss=false"):
        run(skipChangeCommits=True)
    assert run(ignoreChanges=True, failOnDataLoss=False) == [30, 31]
    copying.checkpoint = f"{copying.checkpoint}-late"
    assert run(startingTid=removed.tid, ignoreChanges=True) == []
    loaded = copying.stream().select("id", "day")
    dbio.write(numbers(copying.spark, 40, 41).selectExpr("*", "7 AS new"), copying.source, merge_schema=True)
    with pytest.raises(dbio.SchemaMismatchError, match="have changed since this stream was planned"):
        copying.run(loaded)
    assert run(ignoreChanges=True) == [40]


@pytest.mark.parametrize(
    ("reading", "writing", "named"),
    [
        ({"readChangeFeed": "true"}, {}, r'the columns of the table.*format\("dbio"\)'),
        ({"maxFiles": "1"}, {}, "no option maxfiles; it knows failondataloss"),
        ({"startingTid": "1", "startingTime": "2026-01-01T00:00:00Z"}, {}, "set only one of them"),
        ({}, {"compresion": "zstd"}, "no option compresion; it knows compression"),
    ],
)
def test_options_that_a_stream_does_not_have_are_refused(
    copying: Copying, reading: dict[str, str], writing: dict[str, str], named: str
) -> None:
    copying.write(0, 1)
    with pytest.raises(dbio.InvalidInputError, match=named):
        copying.run(copying.stream(**reading), **writing)
