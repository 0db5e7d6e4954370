"""Skips versions that an application has committed to a table, and aborts other attempts at them (I8)."""

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import AppVersionError
from dbio_commit.base.logs import best_effort, get_logger
from dbio_commit.commit.decision import abort_transaction
from dbio_commit.log.listing import read_start
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.versions import outcome_of, refuse_new_id, why_refused
from dbio_commit.store import Store

_log = get_logger(__name__)


def has_version(snapshot: Snapshot, app: App) -> bool:
    """Whether the application has committed this version."""
    return outcome_of(app, snapshot.app_versions) == "committed"


def is_committed(snapshot: Snapshot, app: App) -> bool:
    """Whether the application has committed this version. Then the write must be skipped (I8).

    A WARNING names the commit: a version that was committed by mistake would otherwise stop a job for good without a
    message. Raises AppVersionError if a higher version is committed and this one may not follow it, or if it is not
    known whether this one is committed. Raises InvalidInputError if the application is new, and the table has no room
    for its id.
    """
    committed = snapshot.app_versions
    refuse_new_id(app, committed, where=snapshot.url)
    outcome = outcome_of(app, committed)
    if outcome in ("passed", "unknown"):
        raise AppVersionError(why_refused(app, committed[app.id], where=snapshot.url))
    if outcome == "committed":
        infos = ((commit.tid, commit.marker.dbio_commit) for commit in snapshot.transactions)
        tids = [tid for tid, info in infos if info and info.app and info.app.is_run_of(app)]
        by = f"by transaction {tids[-1]}" if tids else "by a transaction that a checkpoint does not name"
        _log.warning("%s: version %d of application %r is skipped: it is committed, %s; if none of your jobs did "
                     "that, see `dbio check`", snapshot.url, app.version, app.id, by)  # fmt: skip
    return outcome == "committed"


def abort_superseded(store: Store, clock: Clock, table: Snapshot, app: App, *, tid: str) -> None:
    """Aborts pending attempts at versions that the application has committed. Called after transaction `tid` has
    committed.

    Such an attempt would be skipped anyway (I8). If it is not aborted here, vacuum aborts it after the retention. So a
    failure is only logged.
    """
    started = table.log.started
    for other in table.log.pending:
        if other == tid or not started[other].size or other in table.checkpoint.covered:
            continue
        with best_effort(_log, "%s: could not find out whether %s is another attempt", store.url, other):
            begun = read_start(store, started[other], table_id=table.table_id)
            theirs = begun and begun.app
            if theirs and theirs.id == app.id and (theirs.version == app.version or has_version(table, theirs)):
                abort_transaction(store, clock, other)
                _log.info("%s: aborted %s, another attempt at version %d of application %r",
                          store.url, other, theirs.version, app.id)  # fmt: skip
