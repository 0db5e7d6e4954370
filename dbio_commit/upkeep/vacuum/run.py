"""Vacuum: from a store to the report. `table` and `directory` have the rules of the two scopes."""

from dataclasses import replace

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import StoreError
from dbio_commit.base.logs import get_logger
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store
from dbio_commit.upkeep.vacuum import plan
from dbio_commit.upkeep.vacuum.directory import DirectoryVacuum
from dbio_commit.upkeep.vacuum.hands import Hands
from dbio_commit.upkeep.vacuum.idle import Idle
from dbio_commit.upkeep.vacuum.report import Control, VacuumOptions, VacuumReport, found_nothing
from dbio_commit.upkeep.vacuum.table import TableVacuum
from dbio_commit.upkeep.vacuum.table_plan import next_due
from dbio_commit.upkeep.vacuum.work import Spread, Stopped

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
    hands = Hands(store, clock, options, dry_run=dry_run, control=control or Control(), spread=spread)
    snapshot = None
    try:
        snapshot = _run(hands)
    except Stopped:
        hands.stopped = True
    except StoreError as error:
        if not hands.has_changed:
            raise
        hands.fail(error)  # the report still has what was done
    report = hands.report()
    if snapshot and found_nothing(report):
        hands.control.idle(Idle(snapshot, next_due(snapshot, hands.horizons, waiting=hands.waiting())))
    if report.deleted:
        report = replace(report, keeps_versions=store.keeps_versions())
    for warning in report.warnings:
        _log.warning("%s: %s", store.url, warning)
    _log.info(
        "%s: vacuum %s %d objects, %d failed, %d transactions aborted", store.url,
        "would delete" if dry_run else "deleted", len(report.deleted), len(report.failed), len(report.aborted),
    )  # fmt: skip
    return report


def _run(hands: Hands) -> Snapshot | None:
    """Returns a snapshot of the table if all that it did follows from the log in this snapshot, and from the files."""
    # Before any listing, so that a file that is newer than the listing does not look old.
    hands.set_time()
    log = parse_log(hands.store.list_log())
    hands.scope = Scope.DIRECTORY
    snapshot = None
    if log.descriptor is not None or not DirectoryVacuum(hands).run():
        hands.scope = Scope.TABLE
        snapshot = TableVacuum(hands).run()
    hands.delete(plan.lost_clocks(log, hands.horizons))
    return snapshot if snapshot and snapshot.log == log else None
