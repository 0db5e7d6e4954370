"""Streams to and from tables: the data source "dbio" for `writeStream` and `readStream`, and change feeds."""

from dbio_commit.base.errors import UnsupportedStoreError
from dbio_commit.spark.versions import HAS_STREAM_SINKS, HAS_STREAM_SOURCES, SPARK


def require_sink(url: str) -> None:
    """Raises UnsupportedStoreError if this Spark does not pass Arrow batches to a stream sink."""
    if not HAS_STREAM_SINKS:
        raise UnsupportedStoreError(
            f"a stream to {url} needs Spark 4.1 or later, and this is {SPARK}; "
            "use stream.writeStream.foreachBatch(dbio.batch_writer(path, app_id)), or toTable of the catalog dbio"
        )


def require_source(url: str) -> None:
    """Raises UnsupportedStoreError if stream sources of this Spark cannot limit the size of a batch."""
    if not HAS_STREAM_SOURCES:
        raise UnsupportedStoreError(
            f"a stream from {url} needs Spark 4.2 or later, and this is {SPARK}; "
            "use spark.readStream.table with its name in the catalog dbio, or read its changes with dbio.changes"
        )
