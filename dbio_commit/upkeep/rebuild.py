"""Rebuilds a checkpoint that cannot be read: `dbio checkpoint --rebuild`.

Before vacuum purges markers of a transaction, two checkpoints cover it, and a purge record names the checkpoint by
which it purges. If that checkpoint can be read, all later ones can be rebuilt.
"""

from dataclasses import dataclass, field

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CheckpointLostError, InvalidInputError
from dbio_commit.commit.checkpoints import write_checkpoint
from dbio_commit.commit.probe import prove_store
from dbio_commit.commit.roots import TableRoot
from dbio_commit.log.listing import (
    is_of_table,
    read_checkpoint,
    read_descriptor,
    read_numbered_checkpoint,
    read_turn,
    until_quiet,
)
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.garbage import Known, Reason, find_markers_below
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """How a table is read without its unreadable checkpoints."""

    unreadable: list[int]
    """The numbers of the unreadable checkpoints, the highest first."""
    base: int
    """The number of the checkpoint that replaces them, together with the markers. 0: the markers alone."""
    snapshot: Snapshot = field(repr=False)


def rebuild_checkpoint(store: Store, clock: Clock) -> str | None:
    """Writes a checkpoint with all that the unreadable ones held. Returns its name.

    None if another process was faster. Raises InvalidInputError if all checkpoints can be read, CheckpointLostError if
    nothing readable holds what was purged.
    """
    plan = plan_rebuild(store, clock)
    if plan is None:
        raise InvalidInputError(f"the checkpoints of {store.url} can be read, so there is nothing to rebuild")
    prove_store(store)
    return write_checkpoint(store, clock, plan.snapshot, again=True)


def plan_rebuild(store: Store, clock: Clock) -> Rebuild | None:
    """Plans a rebuild, and changes nothing. None if there is nothing to rebuild. Raises as `rebuild_checkpoint`."""
    return until_quiet(store, lambda: _plan(store, clock))


def _plan(store: Store, clock: Clock) -> Rebuild | None:
    entries = store.list_files()  # before the log, so that files of a transaction that begins now are not unknown
    log = parse_log(store.list_log())
    table_id = read_descriptor(store, log).id
    unreadable = _find_unreadable(store, log, table_id)
    if not unreadable:
        read_checkpoint(store, log, table_id=table_id)  # or CheckpointLostError: all that held it are gone
        return None
    snapshot = TableRoot(store, clock, log, passing_over=frozenset(unreadable)).snapshot()
    files = [entry for entry in entries if names.is_data_file(entry.path)]
    known = Known.of(
        snapshot.decided, live={file.path for file in snapshot.files}, log=snapshot.log, layouts=snapshot.layouts
    )
    strangers = find_markers_below(entries)
    unknown = [it.path for it in files if (why := known.why_not_live(it, strangers)) and why.reason is Reason.UNKNOWN]
    which = f"{store.url_of(names.checkpoint(unreadable[0]))} cannot be read, and "
    bring = " The checkpoint may have recorded that: restore it, from a version of the bucket or from a backup"
    if unknown:
        raise CheckpointLostError(
            f"{which}{len(unknown)} data files, first {unknown[0]}, belong to transactions that nothing else records."
            f"{bring}. If no transaction committed these files, move them out of the table, and then rebuild it"
        )
    if missing := sorted({file.path for file in snapshot.files} - {entry.path for entry in files}):
        raise CheckpointLostError(
            f"{which}{len(missing)} files that are live by the other markers do not exist, first {missing[0]}.{bring}"
        )
    known_tids = {commit.tid for commit in snapshot.decided} | {*snapshot.log.started}
    for number in sorted(snapshot.log.turns):
        turn = read_turn(store, snapshot.log, number, table_id=table_id)
        if turn and turn.tid not in known_tids:
            raise CheckpointLostError(
                f"{which}nothing records what transaction {turn.tid} did in turn {number}.{bring}"
            )
    return Rebuild(unreadable=unreadable, base=snapshot.checkpoint.number, snapshot=snapshot)


def _find_unreadable(store: Store, log: Log, table_id: str) -> list[int]:
    """The numbers of the checkpoints that are newer than the newest readable one of the table."""
    found: list[int] = []
    for number in sorted(log.checkpoints, reverse=True):
        try:
            checkpoint = read_numbered_checkpoint(store, log, number)
        except CheckpointLostError:
            found.append(number)
            continue
        if is_of_table(checkpoint.table_id, table_id):
            break
    return found
