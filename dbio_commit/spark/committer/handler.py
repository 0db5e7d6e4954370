"""Takes the requests of `CommitProtocol.java`, which come from threads of the JVM through py4j, and answers them.

A request is what to do, the path, Spark's id of the job, whether partitions are replaced as they come, the id of the
query, and more, with NUL between them, which no path has. So is an answer, unless it is "!" and an error.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyspark import SparkContext
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from dbio_commit.errors import DbioError
from dbio_commit.logs import get_logger
from dbio_commit.spark.committer import writes
from dbio_commit.spark.committer.command import find_command, running_query
from dbio_commit.spark.job import find_error
from dbio_commit.spark.session import java_class
from dbio_commit.store import Location, parse_location

_HANDLER = "dbio_commit.handler"
_DEFAULT = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    path: str
    job: str
    dynamic: bool
    execution: str
    more: Sequence[str]


class Handler:
    """Answers for all sessions of an application."""

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self) -> None:
        self.context: SparkContext | None = None
        self.roots: list[Location] = []
        self.other = _DEFAULT
        """The commit protocol of writes that are not ours."""
        self._open: dict[str, writes.Write] = {}

    def apply(self, text: str) -> str:
        verb, path, job, dynamic, execution, *more = text.split("\0")
        request = _Request(path=path, job=job, dynamic=dynamic == "true", execution=execution, more=more)
        verbs: dict[str, Callable[[_Request], str]] = {
            "whose": self._whose,
            "setup": self._setup,
            "commit": self._commit,
            "abort": self._abort,
        }
        try:
            return verbs[verb](request)
        except DbioError as error:
            return f"!{type(error).__module__}.{type(error).__name__}: {error}"
        except Exception as error:  # py4j would tell the JVM of no more than that there was one
            _log.exception("%s of the write to %s failed", verb, path)
            return f"!{type(error).__name__}: {error}"

    def toString(self) -> str:
        return "dbio_commit"

    def _whose(self, request: _Request) -> str:
        table, deletes = request.more
        return "" if writes.is_ours(request.path, table, self.roots, deletes=deletes == "true") else self.other

    def _setup(self, request: _Request) -> str:
        assert self.context is not None
        query = running_query(self.context, request.execution)
        command = find_command(self.context, query, request.path)
        spark = SparkSession(self.context, query.sparkSession())
        write = writes.begin(spark, command, request.path, dynamic=request.dynamic, replaces=any(request.more))
        self._open[request.job] = write
        settings = chain.from_iterable(writes.MICROS.items())
        return "\0".join(["part", f"tid-{write.transaction.tid}-{write.job.spec.job}", *settings])

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
    """Answers this JVM's requests from now on. `other` is the commit protocol that the session had."""
    places = [parse_location(root) for root in roots]
    context = spark.sparkContext
    gateway: Any = context._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    _handler.context = context
    _handler.roots += [place for place in places if place not in _handler.roots]
    _handler.other = other or _handler.other
    java_class(spark._jvm, "java.lang.System").getProperties().put(_HANDLER, _handler)
    setattr(captured, _convert.__name__, _convert_exception)  # PySpark's own calls go by this name


# --- errors of ours arrive as ours --------------------------------------------------------------------------------

_convert = captured.convert_exception


def _convert_exception(error: Any) -> Any:
    """As PySpark makes a Python exception of a JVM's; an error of ours that is behind it is that."""
    for text in _messages(error):
        if (text.startswith(_OURS) or _RAISED in text) and (found := find_error(text)):
            return found
    return _convert(error)


_OURS = "dbio_commit.errors."
_RAISED = f"java.lang.IllegalStateException: {_OURS}"
"""By `CommitProtocol.java` in a task. What else names our errors, such as the data source, stays Spark's own."""


def _messages(error: Any) -> Iterator[str]:
    while error is not None:
        yield str(error.getMessage())
        error = error.getCause()
