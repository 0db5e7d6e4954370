"""The catalog `dbio` of a session, and the way of the questions that `Asking.java` asks to `questions`."""

import json
from typing import Any

from cachetools import LRUCache
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession

from dbio_commit.base.forks import ProcessLock
from dbio_commit.base.logs import get_logger
from dbio_commit.spark.catalog.questions import State, answered
from dbio_commit.spark.catalog.roots import Roots, named_roots
from dbio_commit.spark.session.bridge import bridge_of
from dbio_commit.spark.session.conf import is_connect, java_class
from dbio_commit.spark.session.errors import errors_of_jvm, errors_of_server
from dbio_commit.spark.session.jvm import CATALOG, SNAPSHOT_FILE_INDEX, is_ready

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
        self.state = State()
        self._lock = ProcessLock()
        self._sessions: LRUCache[str, SparkSession] = LRUCache(_MOST_SESSIONS)

    def answer(self, text: str, asked: Any) -> str:
        """The question is as `Asking.java` writes it.

        An answer that is no text is put into `asked[0]`; and so is an error of Spark, which Java then throws.
        """
        try:
            question, uuid, given = json.loads(text)
            found = answered(self.session(uuid, asked), self.state, question, given, asked)
        except Py4JJavaError as error:
            found = error.java_exception
        except CapturedException as error:
            if error._origin is None:
                raise
            found = error._origin
        match found:
            case None:
                return ""
            case str():
                return found
            case list() | tuple():
                return "\0".join(found)
        asked[0] = found._jdf if isinstance(found, DataFrame) else found
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
    _answers.state.roots |= named
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
