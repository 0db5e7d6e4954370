"""What the tests of streams share: a source that can be replayed, and a query that takes all that is there."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

needs_sink = pytest.mark.skipif(SPARK < (4, 1), reason="Spark 4.1 hands Arrow to a stream sink")
needs_source = pytest.mark.skipif(SPARK < (4, 2), reason="Spark 4.2 has stream sources with limits")

_FIRST_S = 1_767_225_600

ALL: dict[str, Any] = {"availableNow": True}


class Files:
    """A directory that Spark's own file source reads, a file a batch: each batch can be made again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, ids: Iterable[int]) -> None:
        """With columns id (bigint) and day (string, of two values)."""
        ids = list(ids)
        days = [f"d{id % 2}" for id in ids]
        table = pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array(days, pa.string())})
        self.count += 1
        hidden = self.directory / f"_{self.count:05}"
        pq.write_table(table, hidden)
        os.utime(hidden, (_FIRST_S + self.count, _FIRST_S + self.count))  # Spark takes them in the order of their times
        hidden.rename(self.directory / f"{self.count:05}.parquet")  # at once, for a query that is running

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema("id bigint, day string").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.directory))


def sink(
    frame: DataFrame, path: str | Path, checkpoint: Path, mode: str = "append", **options: str
) -> DataStreamWriter:
    writer = frame.writeStream.format("dbio").outputMode(mode).options(**options)
    return writer.option("path", str(path)).option("checkpointLocation", str(checkpoint))


def finish(query: StreamingQuery) -> StreamingQuery:
    """Until it has had everything, or fails. Raises Spark's StreamingQueryException."""
    query.awaitTermination()
    return query


def run(writer: DataStreamWriter) -> StreamingQuery:
    """Everything that is there; its errors are StreamingQueryException."""
    return finish(writer.trigger(**ALL).start())
