"""Runs a vacuum of a path or a table, and returns the report. `table` and `directory` have the steps for each scope."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dbio_commit.base.errors import StoreError
from dbio_commit.base.logs import get_logger
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from dbio_commit.upkeep.vacuum import plan
from dbio_commit.upkeep.vacuum.directory import DirectoryVacuum
from dbio_commit.upkeep.vacuum.hands import Hands
from dbio_commit.upkeep.vacuum.report import HISTORY_DAYS, Control, VacuumOptions, VacuumReport
from dbio_commit.upkeep.vacuum.table import TableVacuum
from dbio_commit.upkeep.vacuum.work import Stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = get_logger(__name__)


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
    """Deletes files that no reader needs any more from the table, or DBIO directory, at the path.

    Files that a commit removed stay for `retention_hours`, for readers that still use them. A transaction that is
    pending for longer is aborted, so that its writer gets an error instead of committing deleted files. A dry run
    reports the same, and changes nothing. `untracked` also deletes old files that no transaction wrote and no commit
    names. After `checkpoint_after` commits since the last checkpoint, a new one is written. It keeps commits without
    files for `history_days`. With `spark`, its executors list and delete.

    Raises RetentionError for a retention of less than 1 h without `force`, or a history of less than 30 days;
    TableNotFoundError; CorruptMarkerError and StoreError if the table cannot be read. Files that cannot be deleted are
    reported, and do not stop the rest.
    """
    options = VacuumOptions(
        retention_hours=retention_hours,
        force=force,
        untracked=untracked,
        checkpoint_after=checkpoint_after,
        history_days=history_days,
    )
    if spark is None:
        table = Table(path, storage_options)
    else:
        from dbio_commit.spark.session.conf import open_table

        table = open_table(spark, path, storage_options)
    return vacuum_table(table, options, dry_run=dry_run, spark=spark)


def vacuum_table(
    table: Table,
    options: VacuumOptions,
    *,
    dry_run: bool = False,
    spark: "SparkSession | None" = None,
    control: Control | None = None,
) -> VacuumReport:
    """As `vacuum`, for a Table, and with all options."""
    options.check()
    table.refuse_partition()
    hands = Hands(table.store, table.clock, options, dry_run=dry_run, spark=spark, control=control or Control())
    try:
        _run(hands)
    except Stopped:
        hands.stopped = True
    except StoreError as error:
        if not hands.has_changed:
            raise
        hands.fail(error)  # the report still has what was done
    report = hands.report()
    if report.deleted:
        report = replace(report, keeps_versions=table.store.keeps_versions())
    for warning in report.warnings:
        _log.warning("%s: %s", table.url, warning)
    _log.info(
        "%s: vacuum %s %d objects, %d failed, %d transactions aborted", table.url,
        "would delete" if dry_run else "deleted", len(report.deleted), len(report.failed), len(report.aborted),
    )  # fmt: skip
    return report


def _run(hands: Hands) -> None:
    # Before any listing, so that a file that is newer than the listing does not look old.
    hands.set_time()
    log = parse_log(hands.store.list_log())
    hands.scope = Scope.DIRECTORY
    if log.descriptor is not None or not DirectoryVacuum(hands).run():
        hands.scope = Scope.TABLE
        TableVacuum(hands).run()
    hands.delete(plan.lost_clocks(log, hands.horizons))
