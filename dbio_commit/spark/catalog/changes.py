"""Change feeds in SQL: the rows of the table function `dbio_changes`, and of CALL dbio.system.changes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.feed.streams import end_at, start_at
from dbio_commit.protocol.as_of import time_at
from dbio_commit.protocol.names import is_tid
from dbio_commit.spark.feed.changed_rows import changes_between
from dbio_commit.spark.session.conf import java_class
from dbio_commit.table import Table

NAME = "dbio_changes"
"""As `Changes.java` has it."""


def arguments_of(name: str) -> Sequence[str] | None:
    """The arguments in a name that `Changes.java` made; None for another name. Raises InvalidInputError."""
    found, *given = name.split("\0")
    if found != NAME:
        return None
    if not 2 <= len(given) <= 4 or (len(given) == 4 and given[3] not in ("true", "false")):
        raise InvalidInputError(
            f"{NAME} takes the name or the path of a table and the start, and perhaps the end, and true for net changes"
        )
    return given


def changed_rows(spark: SparkSession, table: Table, start: str | None, end: str | None, net: bool) -> DataFrame:
    """The rows of `dbio.changes`, with texts for times: a time without a zone is one in the zone of the session."""
    first = moment(spark, start, "start")
    last = None if end is None else moment(spark, end, "end")
    return changes_between(spark, table, start_at(first), end_at(last), net=net)


def moment(spark: SparkSession, text: str | None, what: str) -> datetime | str:
    """The tid or the time in a text. Raises InvalidInputError."""
    if text is not None and is_tid(text):
        return text
    utils: Any = java_class(spark._jvm, "org.apache.spark.sql.catalyst.util.DateTimeUtils")
    zone = utils.getZoneId(spark.conf.get("spark.sql.session.timeZone"))
    micros = utils.stringToTimestamp(
        java_class(spark._jvm, "org.apache.spark.unsafe.types.UTF8String").fromString(text or ""), zone
    )
    if micros.isEmpty():
        raise InvalidInputError(
            f"{what} is {text!r:.200}, which is neither a tid nor a time, such as '2026-11-20 12:00:00'; `dbio log` "
            "and CALL dbio.system.history list the tids of a table"
        )
    return time_at(int(micros.get()), what=what)
