"""Runs a vacuum, from a store to the report. `table` and `directory` have the rules of the two scopes."""

from dataclasses import replace

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import StoreError
from dbio_commit.base.logs import get_logger
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.vacuum import plan
from dbio_commit.maintenance.vacuum.directory import DirectoryVacuum
from dbio_commit.maintenance.vacuum.executor import Executor
from dbio_commit.maintenance.vacuum.idle import Idle
from dbio_commit.maintenance.vacuum.report import Control, VacuumOptions, VacuumReport, found_nothing
from dbio_commit.maintenance.vacuum.table import TableVacuum
from dbio_commit.maintenance.vacuum.table_plan import next_due
from dbio_commit.maintenance.vacuum.workers import Spread, Stopped
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

_log = get_logger(__name__)


def run_vacuum(
    store: Store,
    clock: Clock,
    options: VacuumOptions,
    *,
    dry_run: bool = False,
    control: Control | None = None,
    spread: Spread | None = None,
) -> VacuumReport:
    """Vacuums the table, or the DBIO directory, in the store. `spread` lists and deletes on other machines.

    Raises what `dbio_commit.vacuum` raises.
    """
    options.check()
    executor = Executor(store, clock, options, dry_run=dry_run, control=control or Control(), spread=spread)
    snapshot = None
    try:
        snapshot = _run(executor)
    except Stopped:
        executor.stopped = True
    except StoreError as error:
        if not executor.has_changed:
            raise
        executor.fail(error)  # the report still has what was done
    report = executor.report()
    if snapshot and found_nothing(report):
        executor.control.idle(Idle(snapshot, next_due(snapshot, executor.horizons, waiting=executor.waiting())))
    if report.deleted:
        report = replace(report, keeps_versions=store.keeps_versions())
    for warning in report.warnings:
        _log.warning("%s: %s", store.url, warning)
    _log.info(
        "%s: vacuum %s %d objects, %d failed, %d transactions aborted", store.url,
        "would delete" if dry_run else "deleted", len(report.deleted), len(report.failed), len(report.aborted),
    )  # fmt: skip
    return report


def _run(executor: Executor) -> Snapshot | None:
    """Runs the vacuum. Returns the table's snapshot if it has the log that was listed first: then all that the vacuum
    did follows from this log, and from the files."""
    # Before any listing, so that a file that is newer than the listing does not look old.
    executor.set_time()
    log = parse_log(executor.store.list_log())
    executor.scope = Scope.DIRECTORY
    snapshot = None
    if log.descriptor is not None or not DirectoryVacuum(executor).run():
        executor.scope = Scope.TABLE
        snapshot = TableVacuum(executor).run()
    executor.delete(plan.lost_clocks(log, executor.horizons))
    return snapshot if snapshot and snapshot.log == log else None
