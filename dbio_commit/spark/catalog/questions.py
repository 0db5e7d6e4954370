"""The questions of `Questions.java`, and what answers each: about tables in SQL, and queries that read them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import compress
from typing import Any, get_type_hints

import msgspec
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dbio_commit.base.errors import AccessDeniedError, InvalidInputError, TableNotFoundError
from dbio_commit.base.options import Mode
from dbio_commit.log.listing import has_commits
from dbio_commit.protocol import names
from dbio_commit.spark.catalog import creation, procedures
from dbio_commit.spark.catalog.changes import NAME as CHANGES
from dbio_commit.spark.catalog.changes import arguments_of, changed_rows
from dbio_commit.spark.catalog.feeds import AskedStream, SqlFeeds
from dbio_commit.spark.catalog.roots import path_of
from dbio_commit.spark.catalog.statements import Analysed, MergeClause, NewValue, SqlStatements
from dbio_commit.spark.catalog.tables import SqlTables, as_of, rows_as_table
from dbio_commit.spark.session.conf import open_table
from dbio_commit.spark.session.other_formats import advice_for_statement
from dbio_commit.spark.sql.planned import Planned
from dbio_commit.store import open_store
from dbio_commit.table import Table


class Questions:
    """Each method is a question: after the session that asks, it has the parameters of the method in Java.

    `Questions.java` says what each answer is. A `JavaObject` is an object of the JVM.
    """

    def __init__(self) -> None:
        self.roots: dict[str, str] = {}
        self.tables = SqlTables()
        self.statements = SqlStatements(self.tables)
        self.feeds = SqlFeeds()

    # --- tables by their names ---

    def load(
        self,
        spark: SparkSession,
        shown: str,
        namespace: Sequence[str],
        name: str,
        version: str | None,
        micros: int | None,
    ) -> JavaObject | None:
        if (given := arguments_of(name)) is not None:
            table, start, end, net = [*given, *("", "false")[len(given) - 2 :]]
            own = procedures.table_of(spark, self.roots, shown.partition(".")[0], table)
            return rows_as_table(spark, CHANGES, name, changed_rows(spark, own, start, end or None, net == "true"))
        path = path_of(self.roots, [*namespace, name])
        if path is None:
            return None
        with suppress(TableNotFoundError):
            return self.tables.load(spark, shown, path, as_of(version, micros))
        return None

    def exists(self, spark: SparkSession, namespace: Sequence[str], name: str) -> bool:
        path = path_of(self.roots, [*namespace, name])
        with suppress(TableNotFoundError):
            if path is not None:
                found = open_table(spark, path, None).snapshot()
                return found.tid is not None or bool(found.files)  # a failed first write leaves no table
        return False

    def drop(self, spark: SparkSession, namespace: Sequence[str], name: str, everything: bool) -> bool:
        path = path_of(self.roots, [*namespace, name])
        if path is None:
            return False
        try:
            open_table(spark, path, None).drop(everything=everything)
        except TableNotFoundError:
            return False
        except InvalidInputError as error:
            hint = "" if everything else "; DROP TABLE … PURGE removes a table with all of its rows"
            raise InvalidInputError(f"{error}{hint}") from error
        return True

    def create(
        self,
        spark: SparkSession,
        namespace: Sequence[str],
        name: str,
        columns: StructType,
        by: Sequence[str],
        settings: Mapping[str, str],
        mode: Mode,
    ) -> None:
        creation.create(spark, self._path(namespace, name), columns, by, settings, mode)

    def stage(
        self,
        spark: SparkSession,
        namespace: Sequence[str],
        name: str,
        by: Sequence[str],
        settings: Mapping[str, str],
        mode: Mode,
    ) -> str:
        return creation.staged(self._path(namespace, name), mode, by, settings)

    def alter(
        self,
        spark: SparkSession,
        namespace: Sequence[str],
        name: str,
        added: StructType,
        settings: Mapping[str, str],
        comments: Mapping[str, str],
    ) -> None:
        creation.alter(spark, self._path(namespace, name), added, settings, comments)

    def check_named(
        self, spark: SparkSession, namespace: Sequence[str], name: str, by: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        creation.check_named(spark, self._path(namespace, name), by, settings)

    def location(self, spark: SparkSession, shown: str, given: str | None, known: str | None) -> str:
        return creation.location_of(shown, given, known)

    def tables_in(self, spark: SparkSession, namespace: Sequence[str]) -> Sequence[str]:
        root, tables, _ = self._below(spark, namespace)
        return [*_committed(root, tables)] if root else []

    def namespaces_in(self, spark: SparkSession, namespace: Sequence[str]) -> Sequence[str]:
        return self._below(spark, namespace)[2] if namespace else sorted(self.roots)

    def place_of(self, spark: SparkSession, namespace: Sequence[str]) -> str | None:
        return self.roots.get(namespace[0]) if len(namespace) == 1 else path_of(self.roots, namespace)

    def _path(self, namespace: Sequence[str], name: str) -> str:
        parts = [*namespace, name]
        path = path_of(self.roots, parts)
        if path is None:
            raise InvalidInputError(
                f"{'.'.join(parts)!r:.200} is below no root; name the root in dbio.enable(spark, roots={{…}}), or name "
                "the table by its path"
            )
        return path

    def _below(self, spark: SparkSession, namespace: Sequence[str]) -> tuple[Table | None, list[str], list[str]]:
        """The directory of the namespace; the names of the tables, and of the other directories, directly in it."""
        path = self.place_of(spark, namespace) if namespace else None
        if path is None:
            return None, [], []
        root = open_table(spark, path, None)
        inside = sorted(it for it in root.store.list_directory().directories if not names.is_hidden(it))
        found = root.store.stat_many([names.join(it, names.DESCRIPTOR) for it in inside])
        tables = [name for name, descriptor in zip(inside, found, strict=True) if descriptor]
        return root, tables, [name for name in inside if name not in {*tables}]

    # --- reads ---

    def load_for_files(self, spark: SparkSession, root: str) -> JavaObject | None:
        return self.tables.load_for_files(spark, root)

    def rows(self, spark: SparkSession, token: str) -> JavaObject | DataFrame:
        return self.tables.rows(spark, token)

    def rows_as(self, spark: SparkSession, token: str, columns: StructType, options: Mapping[str, str]) -> JavaObject:
        return self.tables.rows_as(spark, token, columns, options)

    def files(self, spark: SparkSession, token: str, below: Sequence[str]) -> JavaObject:
        return self.tables.files(spark, token, below)

    def directory(self, spark: SparkSession, root: str) -> JavaObject | None:
        return self.tables.directory(spark, root)

    def skip(self, spark: SparkSession, token: str, condition: str) -> Sequence[str]:
        return self.tables.skip(spark, token, condition)

    def extremes(self, spark: SparkSession, token: str, least: Sequence[str], greatest: Sequence[str]) -> Sequence[str]:
        return self.tables.extremes(spark, token, least, greatest)

    def counts(self, spark: SparkSession, token: str, columns: Sequence[str]) -> JavaObject | None:
        return self.tables.counts(spark, token, columns)

    def partitions(self, spark: SparkSession, token: str) -> Sequence[str]:
        return self.tables.partitions(spark, token)

    def facts(self, spark: SparkSession, token: str) -> Sequence[str]:
        return self.tables.facts(spark, token)

    # --- statements that write ---

    def truncate(self, spark: SparkSession, token: str) -> None:
        self.statements.truncate(spark, token)

    def drop_partitions(self, spark: SparkSession, token: str, partitions: Sequence[Sequence[str]]) -> None:
        self.tables.drop_partitions(spark, token, partitions)

    def delete(self, spark: SparkSession, token: str, statement: Analysed, where: Planned) -> None:
        self.statements.delete(spark, token, statement, where)

    def update(
        self, spark: SparkSession, token: str, statement: Analysed, where: Planned, values: Sequence[NewValue]
    ) -> None:
        self.statements.update(spark, token, statement, where, values)

    def merge(
        self,
        spark: SparkSession,
        token: str,
        statement: Analysed,
        columns: JavaObject,
        source: DataFrame,
        on: Planned,
        clauses: Sequence[MergeClause],
    ) -> None:
        self.statements.merge(spark, token, statement, columns, source, on, clauses)

    def insert(
        self,
        spark: SparkSession,
        token: str,
        statement: Analysed,
        mode: Mode,
        where: Planned | None,
        rows: DataFrame,
        options: Mapping[str, str],
    ) -> None:
        self.statements.insert(spark, token, statement, mode, where, rows, options)

    def constrain(self, spark: SparkSession, token: str, settings: Mapping[str, str]) -> None:
        self.statements.constrain(spark, token, settings)

    # --- streams ---

    def feed_check(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self.feeds.check(options)

    def feed_newest(self, spark: SparkSession, stream: AskedStream) -> str:
        return self.feeds.newest(spark, stream)

    def feed_next(
        self, spark: SparkSession, stream: AskedStream, start: str, unlimited: bool, target: str
    ) -> str | None:
        return self.feeds.next_end(spark, stream, start, unlimited, target)

    def feed_behind(self, spark: SparkSession, stream: AskedStream, end: str) -> str:
        return self.feeds.behind(spark, stream, end)

    def feed_rows(self, spark: SparkSession, stream: AskedStream, start: str, end: str) -> JavaObject:
        return self.feeds.rows(spark, stream, start, end)

    def feed_end(self, spark: SparkSession, stream: AskedStream) -> None:
        self.feeds.end(stream)

    def write_batch(
        self,
        spark: SparkSession,
        token: str,
        rows: DataFrame,
        query: str,
        batch: int,
        is_complete: bool,
        options: Mapping[str, str],
    ) -> None:
        self.feeds.write(spark, token, rows, query, batch, is_complete, options)

    # --- procedures and errors ---

    def procedures(self, spark: SparkSession) -> Sequence[str]:
        return [*procedures.PROCEDURES]

    def procedure(self, spark: SparkSession, name: str) -> Sequence[str]:
        return procedures.named(name).described()

    def call(self, spark: SparkSession, catalog: str, name: str, arguments: Sequence[Any]) -> DataFrame:
        first, *more = arguments
        return procedures.named(name).call(
            spark, lambda text: procedures.table_of(spark, self.roots, catalog, text), first, more
        )

    def advice(self, spark: SparkSession, statement: str) -> str | None:
        return advice_for_statement(statement)


def _committed(root: Table, tables: Sequence[str]) -> Iterator[str]:
    """Those of the tables in this directory that a query finds. The first write of others is pending, or has failed."""
    own = root.location
    assert own is not None, "it was opened by its path"

    def is_found(name: str) -> bool:
        try:
            return has_commits(open_store(replace(own, prefix=own.key_prefix + name), root.storage_options))
        except AccessDeniedError:
            return True  # a query of it says so

    return compress(tables, root.store.in_parallel(is_found, tables))


@cache
def kinds(question: str) -> dict[str, Any]:
    """The types of its parameters after the session, by their names, and of its answer as `return`.

    Raises KeyError if there is no such question.
    """
    found = get_type_hints(_QUESTIONS[question])
    del found["spark"]
    return found


_QUESTIONS = {name: method for name, method in vars(Questions).items() if not name.startswith("_")}


def answered(questions: Questions, spark: SparkSession, question: str, given: Sequence[Any], objects: Any) -> Any:
    """The answer. `given` are the arguments as `Asking.java` writes them: objects by their places in `objects`.

    Raises msgspec.ValidationError for an argument of another type than that of its parameter.
    """

    def taken(kind: type, value: Any) -> Any:
        if kind is StructType:
            return creation.schema_of_json(value)
        found = objects[value]
        if kind is DataFrame:
            return DataFrame(found, spark)
        return Planned(spark, found) if kind is Planned else found

    *parameters, _ = kinds(question).values()
    arguments = [msgspec.convert(it, kind, dec_hook=taken) for it, kind in zip(given, parameters, strict=True)]
    return getattr(questions, question)(spark, *arguments)
