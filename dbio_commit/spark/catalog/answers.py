"""Answers what `Asking.java` asks: about tables in the catalog `dbio`, and about the queries that read them."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import compress
from typing import Any

from cachetools import LRUCache
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from dbio_commit.base.errors import AccessDeniedError, InvalidInputError, TableNotFoundError
from dbio_commit.base.forks import ProcessLock
from dbio_commit.base.logs import get_logger
from dbio_commit.base.options import Mode
from dbio_commit.log.listing import has_commits
from dbio_commit.protocol import names
from dbio_commit.spark.catalog import creation, procedures
from dbio_commit.spark.catalog.changes import NAME as CHANGES
from dbio_commit.spark.catalog.changes import arguments_of, changed_rows
from dbio_commit.spark.catalog.feeds import SqlFeeds
from dbio_commit.spark.catalog.roots import Roots, named_roots, path_of
from dbio_commit.spark.catalog.statements import SqlStatements
from dbio_commit.spark.catalog.tables import SqlTables, as_of, rows_as_table
from dbio_commit.spark.session.bridge import bridge_of
from dbio_commit.spark.session.conf import is_connect, java_class, open_table
from dbio_commit.spark.session.errors import errors_of_jvm, errors_of_server
from dbio_commit.spark.session.jvm import CATALOG, SNAPSHOT_FILE_INDEX, is_ready
from dbio_commit.spark.session.other_formats import advice_for_statement
from dbio_commit.store import open_store
from dbio_commit.table import Table

_BRIDGE, _TOPIC = "dbio_commit.catalog", "catalog"
"""As `Asking.java` has them."""
_SETTING = "spark.sql.catalog.dbio"
_SESSION_SETTING, _SESSION_CATALOG = "spark.sql.catalog.spark_catalog", "dbio_commit.SessionCatalog"
_OWN_OR_NONE = (None, "builtin", _SESSION_CATALOG)
"""If the setting has another value, Spark's own catalog belongs to another table format, and stays as it is."""
_MOST_SESSIONS = 64

_log = get_logger(__name__)


class Answers:
    """Answers for all sessions of an application."""

    def __init__(self) -> None:
        self.context: SparkContext | None = None
        self.roots: dict[str, str] = {}
        self.tables = SqlTables()
        self.statements = SqlStatements(self.tables)
        self.feeds = SqlFeeds()
        self._lock = ProcessLock()
        self._sessions: LRUCache[str, SparkSession] = LRUCache(_MOST_SESSIONS)

    def answer(self, question: str, asked: Any) -> str:
        """The question is as `Asking.java` writes it.

        An answer that is no text is put into `asked[0]`; and so is an error of Spark, which Java then throws.
        """
        verbs: dict[str, Callable[..., Any]] = {
            "load": self._load,
            "exists": self._exists,
            "rows": self.tables.rows,
            "load_for_files": self.tables.load_for_files,
            "rows_as": self.tables.rows_as,
            "files": self.tables.files,
            "directory": self.tables.directory,
            "skip": self.tables.skip,
            "counts": self.tables.counts,
            "extremes": self.tables.extremes,
            "tables": self._tables,
            "namespaces": self._namespaces,
            "place": self._place,
            "drop": self._drop,
            "create": self._create,
            "stage": self._stage,
            "alter": self._alter,
            "name": self._name,
            "location": self._location,
            "partitions": self.tables.partitions,
            "drop_partitions": self.tables.drop_partitions,
            "facts": self.tables.facts,
            "advice": lambda _, statement: advice_for_statement(statement) or "",
            "procedures": lambda _: "\0".join(procedures.PROCEDURES),
            "procedure": lambda _, name: procedures.named(name).described(),
            "call": self._call,
            "truncate": self.statements.truncate,
            "delete": self.statements.delete,
            "update": self.statements.update,
            "merge": self.statements.merge,
            "constrain": self.statements.constrain,
            "insert": self.statements.insert,
            "feed": self.feeds.check,
            "feed_newest": self.feeds.newest,
            "feed_next": self.feeds.next_end,
            "feed_behind": self.feeds.behind,
            "feed_rows": self.feeds.rows,
            "feed_end": self.feeds.end,
            "write_batch": self.feeds.write,
        }
        try:
            verb, uuid, given = json.loads(question)
            found = verbs[verb](self.session(uuid, asked), *_taken(given, asked))
        except Py4JJavaError as error:
            found = error.java_exception
        except CapturedException as error:
            if error._origin is None:
                raise
            found = error._origin
        if isinstance(found, str):
            return found
        if found is not None:
            asked[0] = found
        return ""

    def session(self, uuid: str, asked: Any) -> SparkSession:
        """The session of Python for the one with this id that asks in the JVM, which is `asked[1]`."""
        with self._lock:
            if (found := self._sessions.get(uuid)) is None:
                assert self.context is not None
                found = self._sessions[uuid] = SparkSession(self.context, asked[1])
            return found

    def know(self, spark: SparkSession) -> None:
        """Answers for this session with this object, rather than with another one for the same session."""
        session: Any = spark._jsparkSession
        with self._lock:
            self._sessions[str(session.sessionUUID())] = spark

    # --- tables ---

    def _load(
        self, spark: SparkSession, shown: str, namespace: Any, name: str, version: str | None, micros: int | None
    ) -> Any:
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

    def _exists(self, spark: SparkSession, namespace: Any, name: str) -> Any:
        path = path_of(self.roots, [*namespace, name])
        with suppress(TableNotFoundError):
            if path is not None:
                found = open_table(spark, path, None).snapshot()
                return True if found.tid is not None or found.files else None  # a failed first write leaves no table
        return None

    def _drop(self, spark: SparkSession, namespace: Any, name: str, everything: bool) -> bool:
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

    def _create(
        self, spark: SparkSession, namespace: Any, name: str, schema: Any, by: str, properties: Any, mode: Mode
    ) -> None:
        creation.create(spark, self._path(namespace, name), creation.schema_of(schema), by, dict(properties), mode)

    def _stage(
        self, spark: SparkSession, namespace: Any, name: str, schema: Any, by: str, properties: Any, mode: Mode
    ) -> str:
        return creation.staged(self._path(namespace, name), mode, by, dict(properties))

    def _alter(self, spark: SparkSession, namespace: Any, name: str, added: Any, settings: Any, comments: Any) -> None:
        path = self._path(namespace, name)
        creation.alter(spark, path, creation.schema_of(added), dict(settings), dict(comments))

    def _name(
        self, spark: SparkSession, namespace: Any, name: str, schema: Any, by: str, properties: Any, mode: Mode
    ) -> None:
        creation.give_name(spark, self._path(namespace, name), by, dict(properties))

    def _location(self, spark: SparkSession, name: str, given: str | None, known: str | None) -> str:
        return creation.location_of(name, given, known)

    def _path(self, namespace: Any, name: str) -> str:
        parts = [*namespace, name]
        path = path_of(self.roots, parts)
        if path is None:
            raise InvalidInputError(
                f"{'.'.join(parts)!r:.200} is below no root; name the root in dbio.enable(spark, roots={{…}}), or name "
                "the table by its path"
            )
        return path

    # --- procedures ---

    def _call(self, spark: SparkSession, catalog: str, name: str, arguments: Any) -> Any:
        first, *more = arguments
        found: Any = procedures.named(name).call(
            spark, lambda text: procedures.table_of(spark, self.roots, catalog, text), first, more
        )
        return found._jdf

    # --- namespaces ---

    def _place(self, spark: SparkSession, namespace: Any) -> str | None:
        parts = [*namespace]
        return self.roots.get(parts[0]) if len(parts) == 1 else path_of(self.roots, parts)

    def _tables(self, spark: SparkSession, namespace: Any) -> str:
        root, tables, _ = self._below(spark, [*namespace])
        return "\0".join(_committed(root, tables) if root else ())

    def _namespaces(self, spark: SparkSession, namespace: Any) -> str:
        parts = [*namespace]
        return "\0".join(self._below(spark, parts)[2] if parts else sorted(self.roots))

    def _below(self, spark: SparkSession, namespace: Sequence[str]) -> tuple[Table | None, list[str], list[str]]:
        """The directory of the namespace; the names of the tables, and of the other directories, directly in it."""
        path = self._place(spark, namespace) if namespace else None
        if path is None:
            return None, [], []
        root = open_table(spark, path, None)
        inside = sorted(it for it in root.store.list_directory().directories if not names.is_hidden(it))
        found = root.store.stat_many([names.join(it, names.DESCRIPTOR) for it in inside])
        tables = [name for name, descriptor in zip(inside, found, strict=True) if descriptor]
        return root, tables, [name for name in inside if name not in {*tables}]


def _taken(given: Any, asked: Any) -> Any:
    """Arguments of a question: the plain ones as they are in its text, and the others out of the array of the JVM."""
    if isinstance(given, list):
        return [_taken(it, asked) for it in given]
    if isinstance(given, dict):
        return given["map"] if "map" in given else asked[given["object"]]
    return given


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


_answers = Answers()


def enable_catalog(spark: SparkSession, roots: Roots) -> None:
    """Adds the catalog `dbio` to the session, and to all sessions that the application makes from now on.

    The roots of several calls add up; a later call may give a name another root. If Spark does not accept the classes,
    it logs a WARNING. Raises InvalidInputError for bad roots.
    """
    named = named_roots(roots)
    if is_connect(spark):
        errors_of_server()
        if spark.conf.get(_SETTING, None) is None:
            spark.conf.set(_SETTING, _NOT_OVER_CONNECT)
        return
    if not all(is_ready(spark, it, without=_WITHOUT) for it in (SNAPSHOT_FILE_INDEX, CATALOG)):
        return
    errors_of_jvm()
    bridge = bridge_of(spark)
    bridge.answer(_TOPIC, _answers.answer)
    _answers.context = spark.sparkContext
    _answers.roots |= named
    _answers.know(spark)
    java_class(spark._jvm, "java.lang.System").getProperties().put(_BRIDGE, bridge.channel)
    own = spark.conf.get(_SETTING, None)
    if own not in (None, CATALOG.name):
        _log.warning("%s is %s, so SQL cannot name dbio tables; unset it, and call dbio.enable again", _SETTING, own)
        return
    java_class(spark._jvm, "dbio_commit.Rules").addTo(spark._jsparkSession)
    set_session_catalog = spark.conf.get(_SESSION_SETTING, None) in _OWN_OR_NONE
    settings = {_SETTING: CATALOG.name} | ({_SESSION_SETTING: _SESSION_CATALOG} if set_session_catalog else {})
    for name, value in settings.items():
        spark.conf.set(name, value)
        spark.sparkContext._jsc.sc().conf().set(name, value)  # later sessions begin with it


def leave_session_catalog(spark: SparkSession) -> None:
    """From now on, new sessions have Spark's own catalog as it is. Those of Thrift load it by a class loader of Hive,
    which has no class of this package."""
    if spark.conf.get(_SESSION_SETTING, None) == _SESSION_CATALOG:
        spark.conf.unset(_SESSION_SETTING)
        spark.sparkContext._jsc.sc().conf().remove(_SESSION_SETTING)


def advise_clients(spark: SparkSession) -> None:
    """From now on, new sessions add to Spark's errors what to type instead of statements of other formats.

    For a server, whose clients get no notes: `errors_of_jvm` adds these in the process of the caller.
    """
    if is_ready(spark, CATALOG, without=_WITHOUT):
        java_class(spark._jvm, "dbio_commit.Advice").addTo(spark._jsparkSession)


_NOT_OVER_CONNECT = (
    "none, because this Spark Connect server was not started with dbio: SQL cannot name dbio tables here, so use "
    "dbio.read, dbio.delete, dbio.update and dbio.merge"
)
"""Spark's error about a catalog names the class that the setting has, and so shows this text."""
_WITHOUT = "SQL cannot read dbio tables, and the functions of dbio_commit work"
