"""`df.write.parquet`, `INSERT` and `CREATE TABLE … AS SELECT` as transactions, in a session that asked for it.

Spark runs such a write under a `FileCommitProtocol`. Ours (`CommitProtocol` of `spark.java`) names the files in their
final place and asks everything else of this process: `handler` takes its requests, `command` reads what the running
query is about, and `writes` decides, with the same `plan_write` and `Transaction` as `dbio.write`.
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
    """Makes transactions of the session's Parquet writes to tables, and to whatever lies below the roots.

    It holds for this session and for those that its application makes from now on; the roots of several calls add up.
    Raises UnsupportedStoreError over Connect and in a JVM that takes no class, InvalidInputError for impossible roots.
    """
    if is_connect(spark):
        raise UnsupportedStoreError(
            "over Spark Connect, the writer is in a server that cannot ask this process: write with dbio.write, or "
            'with df.write.format("dbio") after dbio.enable(spark)'
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
        context._jsc.sc().conf().set(name, value)  # which later sessions begin with
