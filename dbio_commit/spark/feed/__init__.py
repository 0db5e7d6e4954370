"""Streams to and from tables: the data source "dbio" for `writeStream` and `readStream`, and change feeds."""

import pyspark

from dbio_commit.base.errors import UnsupportedStoreError

_SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def require_sink(url: str) -> None:
    """Raises UnsupportedStoreError if this Spark does not pass Arrow batches to a stream sink."""
    if _SPARK < (4, 1):
        raise UnsupportedStoreError(
            f"a stream to {url} needs Spark 4.1 or later, and this is {pyspark.__version__}; "
            "use stream.writeStream.foreachBatch(dbio.batch_writer(path, app_id))"
        )


def require_source(url: str) -> None:
    """Raises UnsupportedStoreError if stream sources of this Spark cannot limit the size of a batch."""
    if _SPARK < (4, 2):
        raise UnsupportedStoreError(
            f"a stream from {url} needs Spark 4.2 or later, and this is {pyspark.__version__}; "
            "read the table with dbio.read, or its changes with dbio.changes"
        )
