"""Finds the states of dbio tables from which a write reads its rows, so that the write undoes no later commit.

`Reads.java` finds the states in the plan: of tables of the catalog, of frames of `dbio.read`, and of changes up to now.
It does not find states of rows that were collected or stored in between, nor of frames of Spark Connect.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dbio_commit.base.errors import CommitConflictError
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.write.options import with_retries
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.etag import etag_of
from dbio_commit.protocol.history import History
from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.session.jvm import CATALOG, SNAPSHOT_FILE_INDEX, is_ready, was_ready
from dbio_commit.table import Table


def identity_of(snapshot: Snapshot) -> str:
    """The id of the table, or the URL of a directory without a descriptor."""
    return snapshot.table_id or snapshot.url


def state_text(path: str, snapshot: Snapshot, root: str | None = None) -> str:
    """The text for a state in plans, by which `SqlTables` finds the state again. `root`: that of `SqlSnapshot`."""
    return json.dumps([path, snapshot.tid, snapshot.etag, identity_of(snapshot), root])


def mark(spark: SparkSession, rows: DataFrame, state: Snapshot | History) -> None:
    """Tags the rows with the state that they are read from, if Spark accepts the class. Of a history: the last one."""
    if is_ready(spark, SNAPSHOT_FILE_INDEX, without="a write does not know that its rows come from its own table"):
        if isinstance(state, History):
            text = json.dumps([state.url, None, etag_of(state.commits), state.origin.table_id, None])
        else:
            text = state_text(state.url, state)
        plan: Any = rows
        java_class(spark._jvm, _READS).mark(plan._jdf, text)


_READS = "dbio_commit.Reads"


@dataclass(frozen=True, slots=True)
class Reads:
    """The states of tables that a write reads as their current states."""

    etags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By the identity of a table: the etags of its states."""
    floating: frozenset[str] = frozenset()
    """The identities of the tables of which Spark may read a later state than those in `etags`."""

    @classmethod
    def of(cls, rows: DataFrame) -> "Reads":
        spark = rows.sparkSession
        if not was_ready(spark, SNAPSHOT_FILE_INDEX):  # then no frame has a mark
            return NO_READS
        plan: Any = rows
        return cls._parse(java_class(spark._jvm, _READS).of(plan._jdf))

    @classmethod
    def of_statement(cls, spark: SparkSession, statement: Any, target: Any) -> "Reads":
        """Those of an analysed statement of the JVM. `target`: the part that names the table to change, if any."""
        if not was_ready(spark, SNAPSHOT_FILE_INDEX):
            return NO_READS
        return cls._parse(java_class(spark._jvm, _READS).ofStatement(statement, target))

    @classmethod
    def _parse(cls, texts: str) -> "Reads":
        found: dict[str, frozenset[str]] = {}
        floating = set()
        for text in texts.split("\0") if texts else ():
            _, _, etag, identity, _ = json.loads(text.removeprefix("~"))
            found[identity] = found.get(identity, frozenset()) | {etag}
            if text.startswith("~"):
                floating.add(identity)
        return cls(found, frozenset(floating))

    def of_table(self, identity: str | None) -> frozenset[str]:
        """The etags of the states of this table that the write reads; none if it does not read the table."""
        return self.etags.get(identity or "", frozenset())


NO_READS = Reads()


class _NotAgainError(Exception):
    """A conflict that no retry with the same rows can resolve."""

    def __init__(self, error: CommitConflictError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def once(etags: frozenset[str]) -> Iterator[None]:
    """For use in `attempt`: if the write reads its own table in these states, a conflict is final."""
    try:
        with explained(etags):
            yield
    except CommitConflictError as error:
        if etags:
            raise _NotAgainError(error) from error
        raise


@contextmanager
def explained(etags: frozenset[str]) -> Iterator[None]:
    """If the write reads its own table in these states, adds advice to the message of a conflict."""
    try:
        yield
    except CommitConflictError as error:
        if not etags:
            raise
        raise CommitConflictError(
            f"{error}. This write reads the table that it changes: run the statement again, or make the DataFrame "
            "again and write that; if CACHE TABLE has stored the table, run REFRESH TABLE first"
        ) from error


def attempt(spark: SparkSession, commit: CommitOptions, table: Table, write: Callable[[], Commit]) -> Commit:
    """As `with_retries`, for a write that may read its own table (`once`); refreshes what Spark has cached."""
    try:
        done = with_retries(commit, table.store, table.clock, write)
    except _NotAgainError as final:
        raise final.error from final.error.__cause__
    refresh_cached(spark, table)
    return done


def refresh_cached(spark: SparkSession, table: Table) -> None:
    """After a commit: has Spark read again, at the next use, what CACHE TABLE has stored of it under any name."""
    if was_ready(spark, CATALOG):
        java_class(spark._jvm, "dbio_commit.Cached").refresh(spark._jsparkSession, table.url)


def only_state(etags: frozenset[str], *, where: str) -> str | None:
    """The etag, or None if there is none. Raises CommitConflictError for several: some of the rows are old."""
    if len(etags) > 1:
        raise CommitConflictError(
            f"the rows come from {len(etags)} states of {where}, one after the other; nothing was written"
        )
    return next(iter(etags), None)
