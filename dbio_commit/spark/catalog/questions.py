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

Texts = Sequence[str]
Pairs = Mapping[str, str]


class State:
    """What all sessions have together."""

    def __init__(self) -> None:
        self.roots: dict[str, str] = {}
        self.tables = SqlTables()
        self.statements = SqlStatements(self.tables)
        self.feeds = SqlFeeds()


class Questions:
    """Each method is a question of a session, and has the parameters of the method in Java.

    `Questions.java` says what each answer is. A `JavaObject` is an object of the JVM.
    """

    def __init__(self, spark: SparkSession, state: State) -> None:
        self._spark, self._roots = spark, state.roots
        self._tables, self._statements, self._feeds = state.tables, state.statements, state.feeds

    # --- tables by their names ---

    def load(
        self, shown: str, namespace: Texts, name: str, version: str | None, micros: int | None
    ) -> JavaObject | None:
        if (given := arguments_of(name)) is not None:
            table, start, end, net = [*given, *("", "false")[len(given) - 2 :]]
            own = procedures.table_of(self._spark, self._roots, shown.partition(".")[0], table)
            return rows_as_table(
                self._spark, CHANGES, name, changed_rows(self._spark, own, start, end or None, net == "true")
            )
        path = path_of(self._roots, [*namespace, name])
        if path is None:
            return None
        with suppress(TableNotFoundError):
            return self._tables.load(self._spark, shown, path, as_of(version, micros))
        return None

    def exists(self, namespace: Texts, name: str) -> bool:
        path = path_of(self._roots, [*namespace, name])
        with suppress(TableNotFoundError):
            if path is not None:
                found = open_table(self._spark, path, None).snapshot()
                return found.tid is not None or bool(found.files)  # a failed first write leaves no table
        return False

    def drop(self, namespace: Texts, name: str, everything: bool) -> bool:
        path = path_of(self._roots, [*namespace, name])
        if path is None:
            return False
        try:
            open_table(self._spark, path, None).drop(everything=everything)
        except TableNotFoundError:
            return False
        except InvalidInputError as error:
            hint = "" if everything else "; DROP TABLE … PURGE removes a table with all of its rows"
            raise InvalidInputError(f"{error}{hint}") from error
        return True

    def create(self, namespace: Texts, name: str, columns: StructType, by: Texts, settings: Pairs, mode: Mode) -> None:
        creation.create(self._spark, self._path(namespace, name), columns, by, settings, mode)

    def stage(self, namespace: Texts, name: str, by: Texts, settings: Pairs, mode: Mode) -> str:
        return creation.staged(self._path(namespace, name), mode, by, settings)

    def alter(self, namespace: Texts, name: str, added: StructType, settings: Pairs, comments: Pairs) -> None:
        creation.alter(self._spark, self._path(namespace, name), added, settings, comments)

    def check_named(self, namespace: Texts, name: str, by: Texts, settings: Pairs) -> None:
        creation.check_named(self._spark, self._path(namespace, name), by, settings)

    def location(self, shown: str, given: str | None, known: str | None) -> str:
        return creation.location_of(shown, given, known)

    def tables_in(self, namespace: Texts) -> Texts:
        root, tables, _ = self._below(namespace)
        return [*_committed(root, tables)] if root else []

    def namespaces_in(self, namespace: Texts) -> Texts:
        return self._below(namespace)[2] if namespace else sorted(self._roots)

    def place_of(self, namespace: Texts) -> str | None:
        return self._roots.get(namespace[0]) if len(namespace) == 1 else path_of(self._roots, namespace)

    def _path(self, namespace: Texts, name: str) -> str:
        parts = [*namespace, name]
        path = path_of(self._roots, parts)
        if path is None:
            raise InvalidInputError(
                f"{'.'.join(parts)!r:.200} is below no root; name the root in dbio.enable(spark, roots={{…}}), or name "
                "the table by its path"
            )
        return path

    def _below(self, namespace: Texts) -> tuple[Table | None, list[str], list[str]]:
        """The directory of the namespace; the names of the tables, and of the other directories, directly in it."""
        path = self.place_of(namespace) if namespace else None
        if path is None:
            return None, [], []
        root = open_table(self._spark, path, None)
        inside = sorted(it for it in root.store.list_directory().directories if not names.is_hidden(it))
        found = root.store.stat_many([names.join(it, names.DESCRIPTOR) for it in inside])
        tables = [name for name, descriptor in zip(inside, found, strict=True) if descriptor]
        return root, tables, [name for name in inside if name not in {*tables}]

    # --- reads ---

    def load_for_files(self, root: str) -> JavaObject | None:
        return self._tables.load_for_files(self._spark, root)

    def rows(self, token: str) -> JavaObject | DataFrame:
        return self._tables.rows(self._spark, token)

    def rows_as(self, token: str, columns: StructType, options: Pairs) -> JavaObject:
        return self._tables.rows_as(self._spark, token, columns, options)

    def files(self, token: str, below: Texts) -> JavaObject:
        return self._tables.files(self._spark, token, below)

    def directory(self, root: str) -> JavaObject | None:
        return self._tables.directory(self._spark, root)

    def skip(self, token: str, condition: str) -> Texts:
        return self._tables.skip(self._spark, token, condition)

    def extremes(self, token: str, least: Texts, greatest: Texts) -> Texts:
        return self._tables.extremes(self._spark, token, least, greatest)

    def counts(self, token: str, columns: Texts) -> JavaObject | None:
        return self._tables.counts(self._spark, token, columns)

    def partitions(self, token: str) -> Texts:
        return self._tables.partitions(self._spark, token)

    def facts(self, token: str) -> Texts:
        return self._tables.facts(self._spark, token)

    # --- statements that write ---

    def truncate(self, token: str) -> None:
        self._statements.truncate(self._spark, token)

    def drop_partitions(self, token: str, partitions: Sequence[Texts]) -> None:
        self._tables.drop_partitions(self._spark, token, partitions)

    def delete(self, token: str, statement: Analysed, where: Planned) -> None:
        self._statements.delete(self._spark, token, statement, where)

    def update(self, token: str, statement: Analysed, where: Planned, values: Sequence[NewValue]) -> None:
        self._statements.update(self._spark, token, statement, where, values)

    def merge(
        self,
        token: str,
        statement: Analysed,
        columns: JavaObject,
        source: DataFrame,
        on: Planned,
        clauses: Sequence[MergeClause],
    ) -> None:
        self._statements.merge(self._spark, token, statement, columns, source, on, clauses)

    def insert(
        self, token: str, statement: Analysed, mode: Mode, where: Planned | None, rows: DataFrame, options: Pairs
    ) -> None:
        self._statements.insert(self._spark, token, statement, mode, where, rows, options)

    def constrain(self, token: str, settings: Pairs) -> None:
        self._statements.constrain(self._spark, token, settings)

    # --- streams ---

    def feed_check(self, options: Pairs) -> None:
        self._feeds.check(options)

    def feed_newest(self, stream: AskedStream) -> str:
        return self._feeds.newest(self._spark, stream)

    def feed_next(self, stream: AskedStream, start: str, unlimited: bool, target: str) -> str | None:
        return self._feeds.next_end(self._spark, stream, start, unlimited, target)

    def feed_behind(self, stream: AskedStream, end: str) -> str:
        return self._feeds.behind(self._spark, stream, end)

    def feed_rows(self, stream: AskedStream, start: str, end: str) -> JavaObject:
        return self._feeds.rows(self._spark, stream, start, end)

    def feed_end(self, stream: AskedStream) -> None:
        self._feeds.end(stream)

    def write_batch(
        self, token: str, rows: DataFrame, query: str, batch: int, is_complete: bool, options: Pairs
    ) -> None:
        self._feeds.write(self._spark, token, rows, query, batch, is_complete, options)

    # --- procedures and errors ---

    def procedures(self) -> Texts:
        return [*procedures.PROCEDURES]

    def procedure(self, name: str) -> Texts:
        return procedures.named(name).described()

    def call(self, catalog: str, name: str, arguments: Sequence[Any]) -> DataFrame:
        first, *more = arguments
        return procedures.named(name).call(
            self._spark, lambda text: procedures.table_of(self._spark, self._roots, catalog, text), first, more
        )

    def advice(self, statement: str) -> str | None:
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
    """The types of its parameters by their names, and then that of its answer. Raises KeyError for no question."""
    return get_type_hints(_QUESTIONS[question])


_QUESTIONS = {name: method for name, method in vars(Questions).items() if not name.startswith("_")}


def answered(spark: SparkSession, state: State, question: str, given: Sequence[Any], objects: Any) -> Any:
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
    return _QUESTIONS[question](Questions(spark, state), *arguments)
