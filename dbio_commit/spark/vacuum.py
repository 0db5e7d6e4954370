"""`vacuum`: with Spark, its executors list and delete; without, threads of this process do.

PySpark is imported only for a call with a Spark session.
"""

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dbio_commit.table import Table
from dbio_commit.upkeep.vacuum.report import HISTORY_DAYS, Control, VacuumOptions, VacuumReport
from dbio_commit.upkeep.vacuum.run import run_vacuum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_R = TypeVar("_R")


def vacuum(
    path: str | os.PathLike[str],
    retention_hours: float = 48.0,
    dry_run: bool = False,
    force: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    spark: "SparkSession | None" = None,
    *,
    untracked: bool = False,
    checkpoint_after: int = 20,
    history_days: float = HISTORY_DAYS,
) -> VacuumReport:
    """Deletes what no reader needs any more from the table, or from the DBIO directory, at the path.

    - `retention_hours`: the files that a commit removed stay for so long, for readers that still use them. A
      transaction that is pending for longer is aborted, so that its writer gets an error. At least 1 hour, unless
      `force` is given.
    - `dry_run`: reports the same, and changes nothing.
    - `untracked`: also deletes old files that no transaction wrote and that no commit names.
    - `checkpoint_after`: after so many commits since the last checkpoint, the next one is written.
    - `history_days`: for so many days, at least 30, the history remembers commits of which no file is left.
    - `spark`: with a session, its executors list and delete, and its settings for the store apply.

    What cannot be deleted is in the report, and does not stop the rest. Raises RetentionError, and, if the table
    cannot be read, TableNotFoundError, CorruptMarkerError or StoreError.

        report = dbio.vacuum("s3://lake/events", dry_run=True)
        print(len(report.deleted))
    """
    if spark is None:
        table = Table(path, storage_options)
    else:
        from dbio_commit.spark.session.conf import open_table

        table = open_table(spark, path, storage_options)
    return table.vacuum(
        retention_hours,
        dry_run,
        force,
        spark,
        untracked=untracked,
        checkpoint_after=checkpoint_after,
        history_days=history_days,
    )


def vacuum_table(
    table: Table,
    options: VacuumOptions,
    *,
    dry_run: bool = False,
    spark: "SparkSession | None" = None,
    control: Control | None = None,
) -> VacuumReport:
    """As `vacuum`, of a `Table`. `control` follows the vacuum, and can stop it between two batches."""
    options.check()
    table.refuse_partition()
    spread = None if spark is None else partial(_on_executors, spark)
    return run_vacuum(table.store, table.clock, options, dry_run=dry_run, control=control, spread=spread)


def _on_executors(spark: "SparkSession", function: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """The function's results for all items, each computed by some executor. Both travel by pickle."""
    if not items:
        return []
    from dbio_commit.spark.session.conf import settle_workers
    from dbio_commit.spark.session.errors import errors_of_workers
    from dbio_commit.spark.session.worker import ForWorkers
    from dbio_commit.spark.ship.items import ForItems

    settle_workers(spark)
    rows = [(pickle.dumps(item),) for item in items]
    frame = spark.createDataFrame(rows, "item binary").repartition(min(len(rows), _TASKS))
    with errors_of_workers():
        results = frame.mapInArrow(ForWorkers(ForItems(function)), "result binary").collect()
    return [pickle.loads(row.result) for row in results]


_TASKS = 200
"""The most tasks: more would only wait for one another."""
