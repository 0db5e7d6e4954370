"""Makes `df.write.parquet`, `INSERT` and `CREATE TABLE … AS SELECT` transactions: `dbio.enable(spark, parquet=True)`.

Spark runs such a write under a `FileCommitProtocol`. `CommitProtocol.java` is that of dbio: it gives files their final
paths, and leaves all decisions to this process. `handler` answers its requests, `command` finds out what the
running query writes, and `writes` begins and commits, with the same `plan_write` and `Transaction` as `dbio.write`.
"""

import os
from collections.abc import Sequence

from pyspark.sql import SparkSession

from dbio_commit.base.errors import UnsupportedStoreError
from dbio_commit.spark.committer.handler import handle
from dbio_commit.spark.session.conf import is_connect
from dbio_commit.spark.session.jvm import COMMIT_PROTOCOL, install

__all__ = ["enable_parquet"]

_PROTOCOL = "spark.sql.sources.commitProtocolClass"
_STREAM_PROTOCOL = "spark.sql.streaming.commitProtocolClass"
_STREAM_DEFAULT = "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol"


def enable_parquet(spark: SparkSession, roots: Sequence[str | os.PathLike[str]]) -> None:
    """Makes transactions of the session's Parquet writes to tables and to paths below the roots.

    This holds for the session, and for all sessions that the application makes from now on. The roots of several calls
    add up. Raises UnsupportedStoreError over Connect, and if the JVM takes no class; InvalidInputError for bad roots.
    """
    if is_connect(spark):
        raise UnsupportedStoreError(
            "over Spark Connect, Parquet is written by a server that cannot ask this process: write with dbio.write"
        )
    install(spark, COMMIT_PROTOCOL)
    context = spark.sparkContext
    before = spark.conf.get(_PROTOCOL, None)
    handle(spark, roots, other=before if before != COMMIT_PROTOCOL.name else None)
    settings = {_PROTOCOL: COMMIT_PROTOCOL.name}
    if spark.conf.get(_STREAM_PROTOCOL, _STREAM_DEFAULT) == _STREAM_DEFAULT:
        settings[_STREAM_PROTOCOL] = f"{COMMIT_PROTOCOL.name}$Stream"
    for name, value in settings.items():
        spark.conf.set(name, value)
        context._jsc.sc().conf().set(name, value)  # later sessions begin with these
