"""Batches of a stream for a function of the user's, with native reads: what `for_each_batch` calls.

Spark keeps the offsets, as for any stream; but the stream that it runs is of names of files, and what the function gets
is a scan of those.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StringType, StructField, StructType

from dbio_commit.protocol.history import Change
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.datasource import DbioDataSource
from dbio_commit.spark.feed import columns as feeds
from dbio_commit.spark.feed.changed_rows import frame_of
from dbio_commit.spark.feed.source import DbioStreamReader, Group
from dbio_commit.spark.read.scan import scan_files
from dbio_commit.spark.session.bridge import bridge_of
from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.session.jvm import ASKED_BATCHES, is_ready
from dbio_commit.table import Table

Function = Callable[[DataFrame, int], None]
"""What Spark calls for each batch, with its rows and its number."""

_SCHEMA = StructType([StructField("file", StringType())])


class ChangedFiles(DbioDataSource):
    """The files that a stream is to read, one a row; options are those of the stream source."""

    @classmethod
    def name(cls) -> str:
        return "dbio_changed_files"

    def schema(self) -> StructType:
        _ = super().schema()  # takes the snapshot whose columns the stream is planned with
        return _SCHEMA

    def streamReader(self, schema: StructType) -> Any:
        return self._stream_reader(_FileLister, schema)


class _FileLister(DbioStreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Group)
        yield pa.record_batch([pa.array([json.dumps(file) for file in partition.files])], names=["file"])

    def _file_of(self, change: Change) -> DataFile:
        return feeds.as_partition(change)


def with_rows(
    function: Function, path: str, storage_options: Mapping[str, Any], schema: StructType, *, changes: bool
) -> Function:
    """What `foreachBatch` is to call on files: calls the function on their rows."""

    def call(listed: DataFrame, batch: int) -> None:
        spark, table = listed.sparkSession, Table(path, storage_options)
        files = [DataFile(*json.loads(row.file)) for row in listed.collect()]
        told = [feeds.from_partition(file) for file in files]
        if changes:
            rows = frame_of(spark, table, schema, told)
        else:
            plain = [change.file for change in told]
            rows = scan_files(spark, table, plain, schema)
        function(rows, batch)

    return call


_PORT = "batches of streams come by the port of PySpark's foreachBatch, on which any local user can call this process"


def start_each(
    spark: SparkSession,
    writer: DataStreamWriter,
    function: Function,
    start: Callable[[DataStreamWriter], StreamingQuery],
) -> StreamingQuery:
    """Starts a query that calls the function for each batch: as `foreachBatch` of the writer, over the bridge."""
    if not is_ready(spark, ASKED_BATCHES, without=_PORT):
        return start(writer.foreachBatch(function))

    def answer(number: str, rows: Any) -> str:
        session = SparkSession(spark.sparkContext, rows.sparkSession())
        function(DataFrame(rows, session), int(number))
        return ""

    bridge, topic = bridge_of(spark), f"batches {uuid4()}"
    for ended in [it for it, query in [*_queries.items()] if not _is_active(query)]:
        bridge.forget(ended)
        _queries.pop(ended, None)
    bridge.answer(topic, answer)
    asked = java_class(spark._jvm, ASKED_BATCHES.name)(bridge.channel, topic)
    writer._jwrite = writer._jwrite.foreachBatch(asked)
    try:
        _queries[topic] = query = start(writer)
    except BaseException:
        bridge.forget(topic)
        raise
    return query


_queries: dict[str, StreamingQuery] = {}
"""By topic, those that were started: the function of one that has ended is forgotten with the next."""


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except (Py4JError, OSError):  # of a JVM that has ended
        return False
