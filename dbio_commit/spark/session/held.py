"""Changes settings of a session within a `with` block, also if several threads do so at once.

Works on classic sessions and over Spark Connect.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from dbio_commit.base.forks import ProcessLock
from dbio_commit.spark.session.conf import is_connect

ConfValue = str | int

_lock = ProcessLock()
_asked: dict[tuple[str, str], list[ConfValue]] = {}
"""By session and name: the values that the current blocks ask for."""
_before: dict[tuple[str, str], str | None] = {}
"""By session and name: the value before the first of these blocks; None: not set."""


@contextmanager
def holding(spark: SparkSession, settings: Mapping[str, ConfValue]) -> Iterator[None]:
    """Within the block, the session has these settings; afterwards, it has again those that it had before.

    Threads share the settings of a session. If several blocks ask for a number, the smallest holds until the last of
    them ends.
    """
    held: list[str] = []
    session = id_of(spark)
    try:
        with _lock:
            for name, value in settings.items():
                key = session, name
                if key not in _asked:
                    _before[key], _asked[key] = spark.conf.get(name, None), []
                _asked[key].append(value)
                held.append(name)
                _set(spark, name, _least(_asked[key]))
        yield
    finally:
        with _lock:
            for name in held:
                key = session, name
                _asked[key].remove(settings[name])
                if _asked[key]:
                    _set(spark, name, _least(_asked[key]))
                else:
                    del _asked[key]
                    _set(spark, name, _before.pop(key))


@contextmanager
def without_case(spark: SparkSession) -> Iterator[None]:
    """Within the block, the session ignores the case of column names, as tables do."""
    if spark.conf.get(CASE, "false") == "false":
        yield
        return
    with holding(spark, {CASE: "false"}):
        yield


CASE = "spark.sql.caseSensitive"


def own(spark: SparkSession, name: str) -> str | None:
    """The session's value of a setting outside of all `holding` blocks; None if it is not set."""
    session = id_of(spark)
    with _lock:
        key = session, name
        return _before[key] if key in _before else spark.conf.get(name, None)


def id_of(spark: SparkSession) -> str:
    """The id of the session, for which Python may have several objects."""
    session: Any = spark
    return str(session.session_id if is_connect(spark) else session._jsparkSession.sessionUUID())


def _least(values: Sequence[ConfValue]) -> str:
    numbers = [value for value in values if isinstance(value, int)]
    return str(min(numbers)) if numbers else str(values[0])


def _set(spark: SparkSession, name: str, value: str | None) -> None:
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)
