"""Reads what a transaction needs to begin: the table's descriptor, and its columns and settings as of a decided turn.

The cost does not depend on the length of the log. Turns are numbered and never change, so a process that remembers one
looks only for the next. A disk cannot list from a name on: there, a process that looked not long ago looks for the next
turn by its name. While the last turn is undecided, columns and settings are as of the turn before it.
"""

from dataclasses import replace
from functools import partial

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.log.listing import (
    has_start,
    is_of_one_table,
    is_still_there,
    read_commit,
    read_front,
    read_last_turn,
    read_turn,
    refuse_dropped,
)
from dbio_commit.log.seen import Seen, find_seen, remember
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.table_log import TableLog, table_now
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.markers.descriptor import Origin
from dbio_commit.protocol.markers.turn import Turn
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.settings import Settings
from dbio_commit.protocol.state import NO_METADATA, Metadata
from dbio_commit.store import Store

UNPURGED_S = 20 * 60.0
"""Vacuum purges no marker that is younger, in s. For so long, a holder without a commit marker counts as undecided, and
none of the turns that came since a look is missing."""


def look_at_table(store: Store, clock: Clock) -> Seen | None:
    """The table, or None if there is none. It includes every turn that was decided before this call.

    Raises TableNotFoundError if it was dropped.
    """
    looked, seen = clock.moment(), find_seen(store, clock)
    if seen is not None:
        front, turns = store.together(partial(_stat_front, store), partial(_turns_from, store, clock, seen))
        refuse_dropped(store, front)
        if seen.entry == front.descriptor:
            seen = replace(_go_on(store, clock, seen, at=looked, turns=turns), looked=looked)
            remember(store, clock, seen)
            return seen
    now, front = clock.now(), parse_log(store.list_log("_d", Kind.TURN))
    refuse_dropped(store, front)
    if front.descriptor is None:
        return None
    fresh = Seen(front.descriptor, read_front(store, front), NO_METADATA)
    if not is_still_there(store, clock, front, looked):
        return look_at_table(store, clock)
    seen = replace(_look_anew(store, clock, fresh, front), looked=looked)
    if is_of_one_table(front, now):
        remember(store, clock, seen)
    return seen


def _stat_front(store: Store) -> Log:
    return parse_log(store.stat_log(names.DESCRIPTOR, names.DROPPED).values())


def look_at_turns(store: Store, clock: Clock, origin: Origin) -> Seen | None:
    """The table of this origin, as `look_at_table`. None if it has gone.

    If this process remembers the table, only later turns are looked for, and not the descriptor.
    """
    seen = find_seen(store, clock)
    if seen is None or seen.descriptor.id != origin.table_id:
        found = look_at_table(store, clock)
        return found if found and found.descriptor.id == origin.table_id else None
    looked = clock.moment()
    turns = _turns_from(store, clock, seen)
    seen = replace(_go_on(store, clock, seen, at=looked, turns=turns), looked=looked)
    remember(store, clock, seen)
    return seen


def _go_on(store: Store, clock: Clock, seen: Seen, *, at: Moment, turns: Log) -> Seen:
    """Continues from the turn in `seen`, turn by turn. `turns` has this turn and later ones, and was listed after
    `at`."""
    while True:
        turn, found = seen.metadata.turn, turns
        if turn not in found.turns or found.turns[turn] != seen.turn:
            break  # purged, since there are later ones; or it is another turn of this number
        if found.last_turn == turn or (not store.lists_all_names and _are_strange(store, found, seen)):
            return seen.as_of(seen.metadata, found)
        if turn + 1 not in found.turns:
            break  # purged before the turn that was seen
        holder = read_turn(store, found, turn + 1, table_id=seen.descriptor.id)
        marker = _marker_of(store, holder)
        if marker is None:
            is_watched = holder == seen.holder and seen.at is not None and clock.is_within(seen.at, UNPURGED_S)
            if holder is None or not (is_watched or _precedes(_start_of(store, holder), found.turns[turn + 1])):
                break
            return seen if is_watched else seen.as_of(seen.metadata, found, holder, at)
        if (metadata := _metadata_after(marker, seen.metadata, turn + 1, is_next=True)) is None:
            break
        seen = seen.as_of(metadata, found)
        at, turns = clock.moment(), _turns_from(store, clock, seen)
    return _look_anew(store, clock, seen, parse_log(store.list_log(Kind.TURN)))


def _are_strange(store: Store, turns: Log, seen: Seen) -> bool:
    """Whether all turns after the one in `seen` are strange. A disk may have looked for the next one only."""
    return read_last_turn(store, turns, seen.descriptor.id, above=seen.metadata.turn) == seen.metadata.turn


def _turns_from(store: Store, clock: Clock, seen: Seen) -> Log:
    """The log with the turn in `seen`, and at least the next one, if they exist."""
    turn = seen.metadata.turn
    if store.lists_all_names and seen.looked is not None and clock.is_within(seen.looked, UNPURGED_S):
        return parse_log(store.stat_log(names.turn(turn), names.turn(turn + 1)).values())
    return parse_log(store.list_log_from(names.turn(turn), Kind.TURN))


def _look_anew(store: Store, clock: Clock, seen: Seen, log: Log) -> Seen:
    """The table as of the last turn; while that is undecided, as of the one before, which is decided."""
    at, last = clock.moment(), read_last_turn(store, log, seen.descriptor.id)
    if not last:
        metadata = _before_turns(seen)
        return seen.as_of(_snapshot(store, clock).metadata if metadata is None else metadata, log)
    holder = read_turn(store, log, last, table_id=seen.descriptor.id)
    marker = _marker_of(store, holder)
    started = _start_of(store, holder) if holder is not None and (marker is None or marker.is_abort) else None
    if _precedes(started, log.turns[last]):
        if (metadata := _metadata_of(store, log, last - 1, seen)) is not None:
            if marker is None:
                return seen.as_of(metadata, log, holder, at)
            return seen.as_of(metadata._replace(turn=last), log)
    elif marker is not None and (metadata := _metadata_after(marker, seen.metadata, last)) is not None:
        return seen.as_of(metadata, log)
    # A snapshot has the answer in any case.
    snapshot = _snapshot(store, clock)
    metadata = snapshot.metadata
    if metadata.turn < last and holder:
        if holder.tid in {commit.tid for commit in snapshot.transactions}:
            return seen.as_of(metadata._replace(turn=last), log)  # that turn ended without a change
        if started is not None and marker is None:
            return seen.as_of(metadata._replace(turn=last - 1), log, holder, at)
    return seen.as_of(metadata, log)


def _start_of(store: Store, holder: Turn) -> Entry | None:
    """The holder's start marker, if it is there."""
    (started,) = store.stat_many([names.started(holder.tid)])
    return started


def _precedes(started: Entry | None, turn: Entry) -> bool:
    """Whether there is a start marker from before the turn. A transaction puts it before it takes a turn.

    A younger start marker may be from a late task, which put it again after vacuum had purged the decision.
    """
    return started is not None and started.modified <= turn.modified


def _metadata_of(store: Store, log: Log, turn: int, seen: Seen) -> Metadata | None:
    """The metadata recorded by the holder of a decided turn, or by the last holder before it that was not aborted.

    None if vacuum has purged it, though somebody took the turn again, or if nothing is recorded.
    """
    for earlier in range(turn, 0, -1):
        if earlier == seen.metadata.turn and log.turns.get(earlier) == seen.turn:
            return seen.metadata._replace(turn=turn)
        if earlier not in log.turns or log.is_taken_again(earlier):
            return None
        holder = read_turn(store, log, earlier, table_id=seen.descriptor.id)
        marker = _marker_of(store, holder)
        if holder is None or marker is None:
            return None
        if not marker.is_abort:
            return _metadata_after(marker, seen.metadata, turn)
        if not has_start(store, holder.tid):
            return None
    first = _before_turns(seen)
    return first and first._replace(turn=turn)


def _before_turns(seen: Seen) -> Metadata | None:
    """Columns and settings before the first turn. None if only a snapshot has them, since the table was adopted."""
    if seen.metadata.turn == 0 and seen.metadata.schema is not None:
        return seen.metadata
    return None if seen.descriptor.records_columns else NO_METADATA


def _metadata_after(marker: CommitMarker, before: Metadata, turn: int, *, is_next: bool = False) -> Metadata | None:
    """Columns and settings after the turn, by its holder's marker. None if the marker does not record them.

    `before` is as of an earlier turn. `is_next`: that turn is the one right before.
    """
    if marker.is_abort:
        return before._replace(turn=turn) if is_next else None
    info = marker.dbio_commit
    if info is None or info.schema_turn is None:
        return None
    settings: Settings | None = info.settings
    if settings is None and before.settings is not None:  # from an earlier version, which changes no settings
        if not is_next:
            return None  # turns in between may have changed them
        settings = before.settings
    return Metadata(info.table_schema, turn, settings)


def _marker_of(store: Store, holder: Turn | None) -> CommitMarker | None:
    """The commit marker of the turn's holder. A marker that a crash left without content decides nothing yet."""
    return read_commit(store, names.committed(holder.tid), may_be_empty=True) if holder else None


def _snapshot(store: Store, clock: Clock) -> Snapshot:
    return table_now(store, clock, TableLog.snapshot)
