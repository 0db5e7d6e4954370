"""Streams in and out of tables: what the data source "dbio" is to `writeStream` and `readStream`."""

import pyspark

from dbio_commit.base.errors import UnsupportedStoreError

_SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def require_sink(url: str) -> None:
    """Raises UnsupportedStoreError where this Spark hands no Arrow to a stream sink."""
    if _SPARK < (4, 1):
        raise UnsupportedStoreError(
            f"a stream to {url} needs Spark 4.1 or later, which hands it Arrow, and this is {pyspark.__version__}; "
            "use stream.writeStream.foreachBatch(dbio.batch_writer(path, app_id))"
        )


def require_source(url: str) -> None:
    """Raises UnsupportedStoreError where this Spark asks a stream source for batches without a limit."""
    if _SPARK < (4, 2):
        raise UnsupportedStoreError(
            f"a stream from {url} needs Spark 4.2 or later, whose sources can limit a batch, and this is "
            f"{pyspark.__version__}; read it in batches, with dbio.read or dbio.changes"
        )
