"""DELETE, UPDATE, MERGE and INSERT in SQL: what the functions of these names do, with analysed expressions."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.options import Isolation, Mode
from dbio_commit.commit.options import NOTE_OPTIONS, CommitOptions, note_options
from dbio_commit.commit.write.clauses import Clause
from dbio_commit.commit.write.options import write_options
from dbio_commit.protocol.commits import Commit
from dbio_commit.spark.catalog.creation import is_staged, new_checks, write_staged
from dbio_commit.spark.catalog.tables import SqlTables
from dbio_commit.spark.committer.writes import app_of, note_of
from dbio_commit.spark.read.states import Reads, attempt, identity_of
from dbio_commit.spark.rewrite.base import Rewrite
from dbio_commit.spark.rewrite.by_condition import replace_rows, update_rows
from dbio_commit.spark.rewrite.frame import write_frame
from dbio_commit.spark.rewrite.merge import merge_rows
from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.sql.planned import Named, Planned
from dbio_commit.spark.sql.values import InFields, SqlValue
from dbio_commit.spark.write.constraints import constrain

RETRIES, ISOLATION = "spark.dbio.retries", "spark.dbio.isolation"
"""Settings with the options of these names, as `dbio.delete` has them."""


class SqlStatements:
    """Runs statements on the tables that queries have loaded."""

    def __init__(self, tables: SqlTables) -> None:
        self._tables = tables

    def truncate(self, spark: SparkSession, token: str) -> None:
        table = self._tables.find(spark, token).table
        options = commit_options(spark)
        attempt(spark, options, table, lambda: replace_rows(Rewrite.of_rows(spark, table, options), "true", None))

    def delete(self, spark: SparkSession, token: str, given: Any, where: Any) -> None:
        condition = Planned(spark, where)
        self._run(spark, token, given, lambda rewrite: replace_rows(rewrite, condition, None))

    def insert(
        self, spark: SparkSession, token: str, given: Any, mode: Mode, where: Any, data: Any, options: str
    ) -> None:
        rows, reads = DataFrame(data, spark), _reads(spark, given)
        if is_staged(token):
            options_of_rows = write_options(_pairs(options, also={"path"}))  # with which Spark has named the place
            write_staged(spark, token, rows, options_of_rows, reads)
            return
        pairs = _pairs(options)
        read = self._tables.find(spark, token)
        write_frame(
            rows,
            read.table,
            mode=mode,
            partition_by=None,
            options=write_options(pairs),
            commit=replace(commit_options(spark), app=app_of(spark, pairs), **note_options(pairs)),
            replaced=None if where is None else Planned(spark, where),
            named=_named(spark, given),
            snapshot=read.snapshot if reads.of_table(identity_of(read.snapshot)) else None,
            reads=reads,
            fills_nulls=True,  # Spark gives null for DEFAULT, and for a column that is not named
        )

    def update(self, spark: SparkSession, token: str, given: Any, where: Any, values: Any) -> None:
        condition, new = Planned(spark, where), _values(spark, values)
        self._run(spark, token, given, lambda rewrite: update_rows(rewrite, new, condition))

    def merge(
        self, spark: SparkSession, token: str, given: Any, source_columns: Any, source: Any, on: Any, clauses: Any
    ) -> None:
        frame, match = DataFrame(source, spark), Planned(spark, on)
        when = [_clause(spark, *clause) for clause in clauses]
        frames = java_class(spark._jvm, "dbio_commit.Frames")

        def named(rows: DataFrame) -> DataFrame:
            return DataFrame(frames.inOrder(spark._jsparkSession, rows._jdf, source_columns), spark)

        self._run(spark, token, given, lambda rewrite: merge_rows(rewrite, frame, match, when, named=named))

    def constrain(self, spark: SparkSession, token: str, settings: Any) -> None:
        table = self._tables.find(spark, token).table
        constrain(spark, table, new_checks(table.settings(), dict(settings)), note=table.note(**note_of(spark)))

    def _run(self, spark: SparkSession, token: str, given: Any, run: Callable[[Rewrite], Commit]) -> None:
        """Runs a rewrite of the state with which Spark has analysed the statement, and of a newer state if it retries.

        A rewrite that reads its table in a subquery does not retry: Spark would have to analyse the statement again.
        """
        read, reads = self._tables.find(spark, token), _reads(spark, given)
        named, options = _named(spark, given), commit_options(spark)
        states = chain([read.snapshot], repeat(None))

        def once() -> Commit:
            return run(Rewrite.of_rows(spark, read.table, options, named=named, snapshot=next(states), reads=reads))

        attempt(spark, options, read.table, once)


def _reads(spark: SparkSession, given: Any) -> Reads:
    """What the analysed statement reads. `given` is the statement, its target, and the columns of the target."""
    statement, target, _ = given
    return Reads.of_statement(spark, statement, target)


def _named(spark: SparkSession, given: Any) -> Named:
    """Gives rows the ids of the columns of the statement's target."""
    frames, columns = java_class(spark._jvm, "dbio_commit.Frames"), given[2]
    return lambda rows: DataFrame(frames.named(spark._jsparkSession, rows._jdf, columns), spark)


def _pairs(options: str, *, also: Collection[str] = ()) -> dict[str, str]:
    """The options of a write, by their names in lower case. Raises InvalidInputError for one that INSERT has not.

    `also` are options that are ignored.
    """
    each = iter(options.split("\0") if options else ())
    found = {name.lower(): value for name, value in zip(each, each, strict=True)}
    if unknown := sorted(found.keys() - _OPTIONS - {*also}):
        raise InvalidInputError(
            f"a write to the catalog dbio knows no option {', '.join(unknown)}; it knows {', '.join(sorted(_OPTIONS))}"
        )
    return found


_OPTIONS = NOTE_OPTIONS | {"txnappid", "txnversion", "compression", "maxrecordsperfile"}


def commit_options(spark: SparkSession) -> CommitOptions:
    """The options of the session's statements. Raises InvalidInputError."""
    retries = spark.conf.get(RETRIES, None) or "0"
    if not (retries.isascii() and retries.isdigit()):
        raise InvalidInputError(f"{RETRIES} is {retries!r:.100}, not a number from 0; nothing was written")
    isolation = cast(Isolation, spark.conf.get(ISOLATION, None) or "write_serializable")
    return CommitOptions(isolation=isolation, retries=int(retries), **note_of(spark))


def _clause(spark: SparkSession, rows: str, action: str, where: Any, values: Any) -> Clause:
    given: Any = {
        "rows": rows,
        "action": action,
        "where": None if where is None else Planned(spark, where),
        "values": None if values is None else _values(spark, values),
    }
    return Clause(**given)


def _values(spark: SparkSession, assigned: Iterable[Any]) -> dict[str, SqlValue]:
    """The values by column. Raises InvalidInputError if one is set twice."""
    found: dict[str, SqlValue] = {}
    fields: dict[str, tuple[Planned, dict[tuple[str, ...], Planned]]] = {}
    each = iter(assigned)
    for key, value, own in zip(each, each, each, strict=True):
        name, *path = key.split("\0")
        inside = fields.get(name, (None, {}))[1]
        if name in found or _overlap(tuple(path), inside) or (not path and name in fields):
            raise InvalidInputError(f"{'.'.join((name, *path))!r:.200} is set twice; nothing was written")
        if path:
            fields.setdefault(name, (Planned(spark, own), {}))[1][tuple(path)] = Planned(spark, value)
        else:
            found[name] = Planned(spark, value)
    return found | {name: InFields(own, values) for name, (own, values) in fields.items()}


def _overlap(path: tuple[str, ...], others: Iterable[Sequence[str]]) -> bool:
    return any(path[: len(it)] == it or it[: len(path)] == path for it in others)
