"""Answers the requests of `CommitProtocol.java`, which arrive over the bridge.

A request is a text of fields with NUL between them, which no path contains: the verb, the path, Spark's id of the job,
whether the write overwrites the partitions that it writes to, the id of the query, and more. An answer is such a text,
too.
"""

import os
from collections.abc import Iterator, Sequence
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
        match verb, more:
            case "whose", [table, deletes]:
                is_own = writes.is_transaction(path, table, self.roots, deletes=deletes == "true")
                return "" if is_own else self.other
            case "setup", deleted:
                return "\0".join(self._setup(path, job, execution, dynamic=dynamic == "true", replaces=any(deleted)))
            case "commit", lines:
                writes.commit(self._open[job], filter(None, lines))
                del self._open[job]
                return ""
            case "abort", []:
                if write := self._open.pop(job, None):
                    writes.abort(write)
                return ""
        raise LookupError(f"no such request: {verb!r:.100}")

    def _setup(self, path: str, job: str, execution: str, *, dynamic: bool, replaces: bool) -> Iterator[str]:
        """Begins the write. Gives the parts of the names of its files, then settings and their values in turns."""
        assert self.context is not None
        query = running_query(self.context, execution)
        command = find_command(self.context, query, path)
        spark = SparkSession(self.context, query.sparkSession())
        write = self._open[job] = writes.begin(spark, command, path, dynamic=dynamic, replaces=replaces)
        return chain(["part", write.mark], *writes.MICROS.items())


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
