"""Adds to the sessions that `newSession()` makes what `dbio.enable` added to the session that makes them."""

import functools
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from dbio_commit.spark.session.held import id_of

Add = Callable[[SparkSession], None]


def add_to_later_sessions(spark: SparkSession, add: Add) -> None:
    """Calls `add` for each session that `spark.newSession()` makes from now on, and for those that these make.

    The session that is active in the thread stays active.
    """
    kind: Any = type(spark)  # Connect has another class
    if not hasattr(kind.newSession, "__wrapped__"):
        kind.newSession = _adding(kind.newSession)
    _adds[id_of(spark)] = add


_adds: dict[str, Add] = {}
"""By id of a session: the function to call for its new sessions."""


def _adding(new_session: Callable[[Any], SparkSession]) -> Callable[[Any], SparkSession]:
    @functools.wraps(new_session)
    def wrapper(spark: Any) -> SparkSession:
        made = new_session(spark)
        if add := _adds.get(id_of(spark)):
            active = SparkSession.getActiveSession()
            add(made)
            if active is not None:
                active.createDataFrame([], "id int")  # makes it the active session again
            add_to_later_sessions(made, add)
        return made

    return wrapper
