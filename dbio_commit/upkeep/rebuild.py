"""Replaces a checkpoint that cannot be read: `dbio checkpoint --rebuild`.

Before vacuum purges markers, two checkpoints have their transactions, and a purge record names the checkpoint that the
purge relied on. So if that checkpoint can be read, all later ones can be rebuilt.
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
from dbio_commit.protocol.garbage import Known, Reason, find_strangers
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """How to read a table without its unreadable checkpoints."""

    unreadable: list[int]
    """The numbers of the unreadable checkpoints, the highest first."""
    base: int
    """The checkpoint that replaces them, together with the markers. 0 means only markers."""
    snapshot: Snapshot = field(repr=False)


def rebuild_checkpoint(store: Store, clock: Clock) -> str | None:
    """Writes a checkpoint with the content of the unreadable ones. Returns its name.

    Returns None if another process has just written it. Raises InvalidInputError if all checkpoints can be read, and
    CheckpointLostError if no readable object has the transactions that were purged.
    """
    plan = plan_rebuild(store, clock)
    if plan is None:
        raise InvalidInputError(f"all checkpoints of {store.url} can be read, so there is nothing to rebuild")
    prove_store(store)
    return write_checkpoint(store, clock, plan.snapshot, again=True)


def plan_rebuild(store: Store, clock: Clock) -> Rebuild | None:
    """Finds out what to rebuild, and changes nothing. None if there is nothing. Raises as `rebuild_checkpoint`."""
    return until_quiet(store, lambda: _plan(store, clock))


def _plan(store: Store, clock: Clock) -> Rebuild | None:
    entries = store.list_files()  # before the log: files of transactions that begin now are not in it
    log = parse_log(store.list_log())
    table_id = read_descriptor(store, log).id
    unreadable = _find_unreadable(store, log, table_id)
    if not unreadable:
        read_checkpoint(store, log, table_id=table_id)  # raises CheckpointLostError if none is left after a purge
        return None
    snapshot = TableRoot(store, clock, log, passing_over=frozenset(unreadable)).snapshot()
    files = [entry for entry in entries if names.is_data_file(entry.path)]
    known = Known.of(
        snapshot.decided, live={file.path for file in snapshot.files}, log=snapshot.log, layouts=snapshot.layouts
    )
    strangers = find_strangers(entries)
    unknown = [it.path for it in files if (why := known.why_not_live(it, strangers)) and why.reason is Reason.UNKNOWN]
    which = f"{store.url_of(names.checkpoint(unreadable[0]))} cannot be read, and "
    bring = " The checkpoint may have recorded it: bring it back, from a version in the bucket or from a backup"
    if unknown:
        raise CheckpointLostError(
            f"{which}the transactions of {len(unknown)} data files, first {unknown[0]}, are recorded nowhere else."
            f"{bring}. If no transaction committed these files, move them out of the table, and then rebuild it"
        )
    if missing := sorted({file.path for file in snapshot.files} - {entry.path for entry in files}):
        raise CheckpointLostError(
            f"{which}{len(missing)} files of the state without it do not exist, first {missing[0]}.{bring}"
        )
    known_tids = {commit.tid for commit in snapshot.decided} | {*snapshot.log.started}
    for number in sorted(snapshot.log.turns):
        turn = read_turn(store, snapshot.log, number, table_id=table_id)
        if turn and turn.tid not in known_tids:
            raise CheckpointLostError(
                f"{which}transaction {turn.tid}, which took turn {number}, is recorded nowhere else.{bring}"
            )
    return Rebuild(unreadable=unreadable, base=snapshot.checkpoint.number, snapshot=snapshot)


def _find_unreadable(store: Store, log: Log, table_id: str) -> list[int]:
    """The checkpoints that are newer than the newest readable one of the table."""
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
