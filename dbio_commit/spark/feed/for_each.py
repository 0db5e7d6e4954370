"""For `for_each_batch`: calls the user's function with each batch of a stream, as rows that Spark itself reads.

Spark runs a stream of file names (`datasource.ChangedFiles`), and keeps the offsets of this stream. The function gets
a scan of these files.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.feed import columns as feeds
from dbio_commit.spark.feed.changed_rows import frame_of
from dbio_commit.spark.read.scan import scan_files
from dbio_commit.spark.session.bridge import bridge_of
from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.session.jvm import ASKED_BATCHES, is_ready
from dbio_commit.table import Table

Function = Callable[[DataFrame, int], None]
"""Called for each batch, with its rows and its number."""


def with_rows(
    function: Function, path: str, storage_options: Mapping[str, Any], schema: StructType, *, changes: bool
) -> Function:
    """A function for Spark's `foreachBatch`. It gets names of files, and calls `function` with their rows."""

    def call(listed: DataFrame, batch: int) -> None:
        spark, table = listed.sparkSession, Table(path, storage_options)
        files = [DataFile(*json.loads(row.file)) for row in listed.collect()]
        found = [feeds.from_partition(file) for file in files]
        if changes:
            rows = frame_of(spark, table, schema, found)
        else:
            rows = scan_files(spark, table, [change.file for change in found], schema)
        function(rows, batch)

    return call


_PORT = "PySpark's foreachBatch opens a port, on which any local user can call this process"


def start_each(
    spark: SparkSession,
    writer: DataStreamWriter,
    function: Function,
    start: Callable[[DataStreamWriter], StreamingQuery],
) -> StreamingQuery:
    """Starts a query that calls the function for each batch, like `foreachBatch` of the writer, but over the bridge."""
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
"""The queries that were started, by topic. The start of a query forgets the functions of those that have ended."""


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except (Py4JError, OSError):  # the JVM has ended
        return False
