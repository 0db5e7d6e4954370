"""Answers the requests of `CommitProtocol.java`, which arrive over the bridge.

A request is a text of fields with NUL between them, which no path contains: the verb, the path, Spark's id of the job,
whether the write overwrites the partitions that it writes to, the id of the query, and more. An answer is such a text,
too.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from pyspark import SparkContext
from pyspark.sql import SparkSession

from dbio_commit.spark.committer import writes
from dbio_commit.spark.committer.command import find_command, running_query
from dbio_commit.spark.session.bridge import bridge_of
from dbio_commit.spark.session.conf import java_class, locate
from dbio_commit.spark.session.errors import errors_of_jvm
from dbio_commit.store import Location

_HANDLER, _TOPIC = "dbio_commit.handler", "commit protocol"
"""As `CommitProtocol.java` has them."""
_DEFAULT = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    path: str
    job: str
    dynamic: bool
    execution: str
    more: Sequence[str]


class Handler:
    """Answers the requests of all sessions of an application."""

    def __init__(self) -> None:
        self.context: SparkContext | None = None
        self.roots: list[Location] = []
        self.other = _DEFAULT
        """The commit protocol of writes that are no transactions."""
        self._open: dict[str, writes.Write] = {}

    def answer(self, text: str, _: object) -> str:
        verb, path, job, dynamic, execution, *more = text.split("\0")
        verbs: dict[str, Callable[[_Request], str]] = {
            "whose": self._whose,
            "setup": self._setup,
            "commit": self._commit,
            "abort": self._abort,
        }
        return verbs[verb](_Request(path=path, job=job, dynamic=dynamic == "true", execution=execution, more=more))

    def _whose(self, request: _Request) -> str:
        table, deletes = request.more
        return "" if writes.is_transaction(request.path, table, self.roots, deletes=deletes == "true") else self.other

    def _setup(self, request: _Request) -> str:
        assert self.context is not None
        query = running_query(self.context, request.execution)
        command = find_command(self.context, query, request.path)
        spark = SparkSession(self.context, query.sparkSession())
        write = writes.begin(spark, command, request.path, dynamic=request.dynamic, replaces=any(request.more))
        self._open[request.job] = write
        settings = chain.from_iterable(writes.MICROS.items())
        return "\0".join(["part", write.mark, *settings])

    def _commit(self, request: _Request) -> str:
        writes.commit(self._open[request.job], filter(None, request.more))
        del self._open[request.job]
        return ""

    def _abort(self, request: _Request) -> str:
        if write := self._open.pop(request.job, None):
            writes.abort(write)
        return ""


_handler = Handler()


def handle(spark: SparkSession, roots: Sequence[str | os.PathLike[str]], *, other: str | None) -> None:
    """Answers the requests of this session's JVM from now on. `other` is the commit protocol that the session had."""
    places = [locate(spark, root) for root in roots]
    bridge = bridge_of(spark)
    bridge.answer(_TOPIC, _handler.answer)
    _handler.context = spark.sparkContext
    _handler.roots += [place for place in places if place not in _handler.roots]
    _handler.other = other or _handler.other
    java_class(spark._jvm, "java.lang.System").getProperties().put(_HANDLER, bridge.channel)
    errors_of_jvm()
