"""Lists and deletes files of a vacuum on Spark's executors. A vacuum without a session does not import this module."""

import pickle
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from dbio_commit.maintenance.vacuum.workers import Spread
from dbio_commit.spark.session.conf import open_table, settle_workers
from dbio_commit.spark.session.errors import errors_of_workers
from dbio_commit.spark.session.worker import ForWorkers
from dbio_commit.spark.transfer.items import ForItems

__all__ = ["on_executors", "open_table"]

_T = TypeVar("_T")
_R = TypeVar("_R")


def on_executors(spark: SparkSession) -> Spread:
    """A function that calls another one for each item, on the session's executors. Items and results are pickled."""
    return partial(_on_executors, spark)


def _on_executors(spark: SparkSession, function: Callable[[_T], _R], items: Sequence[_T]) -> Iterable[_R]:
    if not items:
        return []
    settle_workers(spark)
    rows = [(pickle.dumps(item),) for item in items]
    frame = spark.createDataFrame(rows, "item binary").repartition(min(len(rows), _TASKS))
    with errors_of_workers():
        results = frame.mapInArrow(ForWorkers(ForItems(function)), "result binary").collect()
    return [pickle.loads(row.result) for row in results]


_TASKS = 200
"""At most so many tasks: more would only wait for one another."""
