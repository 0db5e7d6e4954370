"""A new checkpoint in the place of one that cannot be read: `dbio checkpoint --rebuild`.

Vacuum keeps two checkpoints that tell of each transaction whose markers it purges, and says in an object by which one
it has purged. So where that one can be read, all later ones can be made anew.
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
    """How a table is read without the checkpoints that cannot be."""

    unreadable: list[int]
    """Their numbers, the highest first."""
    base: int
    """The checkpoint that takes their place, together with the markers; 0: the markers alone."""
    snapshot: Snapshot = field(repr=False)


def rebuild_checkpoint(store: Store, clock: Clock) -> str | None:
    """Writes a checkpoint that tells all that those which cannot be read told; returns its name.

    None where somebody else was faster. Raises InvalidInputError where all can be read, CheckpointLostError where
    nothing that can be read tells what was purged.
    """
    plan = plan_rebuild(store, clock)
    if plan is None:
        raise InvalidInputError(f"the checkpoints of {store.url} can be read, so that there is nothing to rebuild")
    prove_store(store)
    return write_checkpoint(store, clock, plan.snapshot, again=True)


def plan_rebuild(store: Store, clock: Clock) -> Rebuild | None:
    """Looks, and changes nothing; None where there is nothing to rebuild. Raises as `rebuild_checkpoint`."""
    return until_quiet(store, lambda: _plan(store, clock))


def _plan(store: Store, clock: Clock) -> Rebuild | None:
    entries = store.list_files()  # before the log, so that none of a transaction that begins now is taken for unknown
    log = parse_log(store.list_log())
    table_id = read_descriptor(store, log).id
    unreadable = _find_unreadable(store, log, table_id)
    if not unreadable:
        read_checkpoint(store, log, table_id=table_id)  # or CheckpointLostError: all are gone that tell what was purged
        return None
    snapshot = TableRoot(store, clock, log, passing_over=frozenset(unreadable)).snapshot()
    files = [entry for entry in entries if names.is_data_file(entry.path)]
    known = Known.of(
        snapshot.decided, live={file.path for file in snapshot.files}, log=snapshot.log, layouts=snapshot.layouts
    )
    strangers = find_strangers(entries)
    unknown = [it.path for it in files if (why := known.why_not_live(it, strangers)) and why.reason is Reason.UNKNOWN]
    which = f"{store.url_of(names.checkpoint(unreadable[0]))} cannot be read, and "
    bring = " It may have told what became of them: bring it back, from a version of the bucket or from a backup"
    if unknown:
        raise CheckpointLostError(
            f"{which}{len(unknown)} data files, first {unknown[0]}, are of transactions of which nothing else tells."
            f"{bring}. If no transaction committed these files, move them out of the table, and rebuild it then"
        )
    if missing := sorted({file.path for file in snapshot.files} - {entry.path for entry in files}):
        raise CheckpointLostError(
            f"{which}{len(missing)} files of the state without it are gone, first {missing[0]}.{bring}"
        )
    known_tids = {commit.tid for commit in snapshot.decided} | {*snapshot.log.started}
    for number in sorted(snapshot.log.turns):
        turn = read_turn(store, snapshot.log, number, table_id=table_id)
        if turn and turn.tid not in known_tids:
            raise CheckpointLostError(f"{which}nothing tells what transaction {turn.tid} did in turn {number}.{bring}")
    return Rebuild(unreadable=unreadable, base=snapshot.checkpoint.number, snapshot=snapshot)


def _find_unreadable(store: Store, log: Log, table_id: str) -> list[int]:
    """Those that are newer than the newest of the table that can be read."""
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
