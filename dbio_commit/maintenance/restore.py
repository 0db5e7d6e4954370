"""Restores an earlier state of a table, by one commit: `Table.restore`.

A path is never used twice, so a file that was removed since is copied to a new name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.base.shown import Shown
from dbio_commit.commit.begin import Intent, begin, look
from dbio_commit.commit.isolation import last_erasure_of
from dbio_commit.commit.provenance import NO_NOTE, Note
from dbio_commit.data.footers import Inspector
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.chosen import Chooses, by_condition, by_values
from dbio_commit.maintenance.diff import slices_of_both
from dbio_commit.maintenance.publish import context_of
from dbio_commit.maintenance.staged_copies import refuse_before_first, stage_copies
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf, Commit, recorded_files
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.partition_values import Given
from dbio_commit.protocol.partitions import find_unread, partition_types
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import DataFile, files_in
from dbio_commit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestorePlan(Shown):
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
    is_part: bool = False
    """Whether only some partitions are restored. Then the table keeps its columns."""

    @property
    def joint(self) -> Sequence[str]:
        """The joint transactions since that state. A restore undoes them in this table only: the other tables keep
        them."""
        then = {*self.then.tids}
        return [it.tid for it in self.now.history() if it.joint and it.tid not in then]

    @property
    def has_its_columns(self) -> bool:
        """Whether the table had its current columns then. If not, the restore is an overwrite."""
        return self.then.schema in (None, self.now.schema) and self.then.partition_columns == self.now.partition_columns


def plan_restore(
    store: Store,
    clock: Clock,
    as_of: AsOf,
    *,
    partition: Mapping[str, Given | None] | None = None,
    where: str | None = None,
    time_zone: str | None = None,
) -> RestorePlan:
    """Plans a restore; with `partition` or `where`, of these partitions only. Changes nothing.

    Raises InvalidInputError if vacuum has deleted files that were live then, if the table had no commit yet, or if it
    is not a dbio table. Raises it also if dbio cannot decide for which partitions a condition holds, and for partitions
    in which neither state has files.
    """
    if partition is not None and where is not None:
        raise InvalidInputError("partition and where do not go together: each chooses the partitions to restore")
    if as_of is None:
        raise InvalidInputError("a table is restored to an earlier state: give a time or a tid; `dbio log` lists them")
    now = read_snapshot(store, clock)
    if now.scope is not Scope.TABLE:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so it cannot be restored; `dbio adopt` makes it a table"
        )
    then = read_snapshot(store, clock, as_of=as_of)
    refuse_before_first(
        then,
        as_of,
        why="restoring that would remove all rows, as an overwrite without rows does; nothing was restored",
    )
    if not {*then.tids} <= {*now.tids}:  # a commit came in between
        now = read_snapshot(store, clock)
    if not {*then.tids} <= {*now.tids}:
        raise CommitConflictError(f"{store.url} was changed meanwhile; nothing was restored: restore again")
    plan = RestorePlan(url=store.url, back=(), goes=(), now=now, then=then)
    if partition is not None or where is not None:
        _refuse_other_columns(plan)
        layout, columns = now.partition_columns, now.schema
        if where is not None:
            return _plan_part(plan, by_condition(where, layout, columns, where=store.url, time_zone=time_zone))
        return _plan_part(plan, by_values({} if partition is None else partition, layout, columns, where=store.url))
    if not plan.has_its_columns:
        return replace(plan, back=[*then.files], goes=[*now.files])
    back, goes = list[DataFile](), list[DataFile]()
    for part in slices_of_both(store, then, now):
        back += part.gone
        goes += part.came
    return replace(plan, back=back, goes=goes)


def _refuse_other_columns(plan: RestorePlan) -> None:
    """Raises InvalidInputError if the table had partition columns, or columns, then that it does not have now."""
    now, then, url = plan.now, plan.then, plan.url
    if then.partition_columns != now.partition_columns:
        raise InvalidInputError(
            f"{url} was partitioned by {list(then.partition_columns)} then, and is by {list(now.partition_columns)} "
            "now, so that no single partition can be restored: restore the whole table"
        )
    known = {field["name"].lower() for field in (now.schema or then.schema or {}).get("fields", ())}
    if lost := [it["name"] for it in (then.schema or {}).get("fields", ()) if it["name"].lower() not in known]:
        raise InvalidInputError(
            f"{url} had the column {lost[0]!r:.100} then, which it has no more, so that no single partition can be "
            "restored: restore the whole table"
        )


def _plan_part(plan: RestorePlan, chooses: Chooses) -> RestorePlan:
    """The plan for the chosen partitions. Reads only what may have files of them."""
    had, has = files_in(plan.then.files, chooses), files_in(plan.now.files, chooses)
    types = partition_types(plan.now.schema or plan.then.schema, plan.now.partition_columns)
    for it in find_unread(had, types):
        directory = names.split(it.path)[0]
        raise InvalidInputError(
            f"the partition {directory!r:.300} of {plan.url} cannot come back: the column {it.column!r} is "
            f"{types[it.column]} now, and {names.parse_partition(directory)[it.column]!r:.200} is no such value; "
            "nothing was restored: restore the whole table, or write these rows with a value of that type"
        )
    if not (had or has):
        raise InvalidInputError(
            f"{plan.url} has no files in such a partition now, and had none then; nothing was restored: `dbio files` "
            "lists the partitions"
        )
    live, of_then = {*has.paths()}, {*had.paths()}
    back = [file for file in had if file.path not in live]
    goes = [file for file in has if file.path not in of_then]
    return replace(plan, back=back, goes=goes, is_part=True)


def restore(
    store: Store, clock: Clock, plan: RestorePlan, *, inspector: Inspector | None = None, note: Note = NO_NOTE
) -> Commit:
    """Restores the files and columns of the plan's state. The settings stay. `note` is for the new commit.

    If the columns were the same, files that are still live stay. Otherwise all files are copied, since only an
    overwrite may set columns. A restore that changes partition columns takes a minute, and aborts all pending
    transactions. If only some partitions are restored, the columns stay as they are, and the footers of the files,
    which `inspector` reads, must fit them.

    Raises SchemaMismatchError if they do not, HistoryLostError if vacuum deletes a file of that state meanwhile,
    CommitConflictError if anything was committed, or rows were erased, since the plan was made.
    """
    now, then, has_its_columns = plan.now, plan.then, plan.has_its_columns
    keeps_columns = has_its_columns or plan.is_part
    operation: Operation = "rewrite" if keeps_columns else "overwrite"
    target = look(store, clock)
    if target.partition_columns != now.partition_columns:
        raise CommitConflictError(
            f"the partition columns of {store.url} were changed meanwhile; nothing was restored: restore again"
        )
    columns = None if keeps_columns else then.partition_columns
    intent = Intent(
        operation=operation, partition_by=columns, if_match=now.etag, last_erasure=last_erasure_of(now), note=note
    )
    with begin(context_of(store, clock, inspector), intent, target=target) as transaction:
        transaction.keep_partitions()
        if keeps_columns:
            transaction.remove(file.path for file in plan.goes)
        tids = {*then.tids}
        decided = now.among({file.path for file in plan.back}).decided
        known = recorded_files(commit for commit in decided if commit.tid in tids)
        stage_copies(store, store, transaction, plan.back, known, looked_at=has_its_columns or not keeps_columns)
        transaction.vouch_for_rows()  # they are rows of an earlier state, whatever the constraints are now
        transaction.record_copies(restored=len(plan.back))
        return transaction.commit(None if keeps_columns else then.schema)
