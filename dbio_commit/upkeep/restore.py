"""Restores an earlier state of a table, by one commit: `Table.restore`.

A path is never used twice, so a file that was removed since is copied to a new name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.commit.begin import begin, look
from dbio_commit.commit.roots import read_snapshot
from dbio_commit.log.listing import with_sizes
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf, Commit, recorded_files
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import DataFile, live_files
from dbio_commit.store import Store
from dbio_commit.upkeep.publish import publish_as_set
from dbio_commit.upkeep.staged_copies import stage_copies


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """What `Table.restore` would do, if no other commit comes meanwhile."""

    url: str
    """The root of the table."""
    back: Sequence[DataFile]
    """Files that were live then, and are not live now or have other columns now: they come back as copies."""
    goes: Sequence[DataFile]
    """Files that are live now, and are no part of that state."""
    now: Snapshot = field(repr=False)
    """The current state."""
    then: Snapshot = field(repr=False)
    """The state to restore."""

    @property
    def has_its_columns(self) -> bool:
        """Whether the table had its current columns then. If not, the restore is an overwrite."""
        return self.then.schema in (None, self.now.schema) and self.then.partition_columns == self.now.partition_columns


def plan_restore(store: Store, clock: Clock, as_of: AsOf) -> RestorePlan:
    """Plans a restore. Changes nothing.

    Raises InvalidInputError if vacuum has deleted files that were live then, if the table had no commit yet, and if it
    is not a dbio table.
    """
    if as_of is None:
        raise InvalidInputError("a table is restored to an earlier state: give a time or a tid; `dbio log` lists them")
    now = read_snapshot(store, clock)
    if now.scope is not Scope.TABLE:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so it cannot be restored; `dbio adopt` makes it a table"
        )
    then = read_snapshot(store, clock, as_of=as_of)
    if not then.tids:
        raise InvalidInputError(
            f"{store.url} had no commit as of {as_of}, and restoring that would remove all rows; nothing was restored: "
            "`dbio log` lists the states, and an overwrite without rows empties a table"
        )
    if not {*then.tids} <= {*now.tids}:  # a commit came in between
        now = read_snapshot(store, clock)
    if not {*then.tids} <= {*now.tids}:
        raise CommitConflictError(f"{store.url} was changed meanwhile; nothing was restored: restore again")
    plan = RestorePlan(url=store.url, back=(), goes=(), now=now, then=then)
    if not plan.has_its_columns:
        return replace(plan, back=[*then.files], goes=[*now.files])
    back, goes, tids = list[DataFile](), list[DataFile](), {*then.tids}
    for part in now.slices():
        wanted = with_sizes(store, live_files(commit for commit in part.decided if commit.tid in tids))
        live, of_then = {file.path for file in part.files}, {*wanted.paths()}
        back += (file for file in wanted if file.path not in live)
        goes += (file for file in part.files if file.path not in of_then)
    return replace(plan, back=back, goes=goes)


def restore(store: Store, clock: Clock, plan: RestorePlan) -> Commit:
    """Restores the files and columns as of then. The settings stay as they are.

    If the columns were the same, files that are still live stay. Otherwise all files are copied, since only an
    overwrite may set columns. A restore that changes partition columns takes a minute, and aborts all pending
    transactions.

    Raises HistoryLostError if vacuum deletes a file of that state meanwhile, CommitConflictError if anything was
    committed since the plan was made.
    """
    now, then, has_its_columns = plan.now, plan.then, plan.has_its_columns
    operation: Operation = "rewrite" if has_its_columns else "overwrite"
    target = look(store, clock)
    if target.partition_columns != now.partition_columns:
        raise CommitConflictError(
            f"the partition columns of {store.url} were changed meanwhile; nothing was restored: restore again"
        )
    columns = None if has_its_columns else then.partition_columns
    with begin(
        store,
        clock,
        follow_up=publish_as_set,
        operation=operation,
        partition_by=columns,
        target=target,
        if_match=now.etag,
    ) as transaction:
        transaction.keep_partitions()
        if has_its_columns:
            transaction.remove(file.path for file in plan.goes)
        tids = {*then.tids}
        told = now.among({file.path for file in plan.back}).decided
        known = recorded_files(commit for commit in told if commit.tid in tids)
        stage_copies(store, store, transaction, plan.back, known)
        transaction.vouch_for_rows()  # they are the rows of then, whatever the constraints are now
        metrics = {"numRestoredFiles": len(plan.back)}
        return transaction.commit(None if has_its_columns else then.schema, metrics=metrics)
