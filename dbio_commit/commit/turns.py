"""Turns: transactions whose commits depend on one another are decided one after the other (I7)."""

from collections.abc import Callable, Mapping
from contextlib import suppress

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import AccessDeniedError, StoreError, TransactionStateError
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.decision import PUT_ATTEMPTS, abort_all, abort_transaction, has_start
from dbio_commit.log.listing import read_last_turn, read_markers, read_turn, refuse_other_table
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.turn import Turn
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.origin import Origin
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

LEASE_S = 60.0
"""How long a waiter watches an undecided transaction hold the turn before it aborts it, at the least."""

MOST_LEASES = 16
"""So many times as long it waits at the most, after others were aborted in their turns. That is less than the half hour
after which vacuum purges the turns that tell so."""

_UNSEEN_S = 1.0
"""The pause before a turn is asked for again that is taken, and that a listing of a disk has missed."""

_TURNS_BACK = 20
"""How many earlier turns a waiter asks about at the most."""

TRUST_S = 50.0
"""How long a transaction trusts what it saw of the table before it claimed its tid."""

SETTLE_S = TRUST_S + 11.0
"""After so long, whoever looked at the table before a change has claimed its tid by then, or looks again."""

LOOK_S = LEASE_S / 30
"""One look counts for so much of that at the most: a waiter that slept has watched nothing, and where a look takes
long, so does what the holder has to do."""

_log = get_logger(__name__)


def take_turn(
    store: Store,
    clock: Clock,
    tid: str,
    *,
    origin: Origin | None = None,
    new_layout: bool = False,
    read_ahead: Callable[[Log], None] = lambda log: None,
) -> int | None:
    """Waits for all turns before ours to be decided, and takes the next one; returns its number (I7).

    The turn ends when our transaction is decided. A holder that stays undecided for the lease is aborted. None where
    our transaction is decided already. While one of a `new_layout` is undecided, nobody begins. `read_ahead` is given
    the commit markers before the turn is taken, and whenever they are listed while another holds it: what it reads
    need not be read in the turn. Raises CommitConflictError where the table of this `origin` is there no more.
    """
    table_id = origin.table_id if origin else None
    body = encode(Turn(tid=tid, table_id=table_id, new_layout=new_layout))
    failures, is_ahead, lost = 0, False, 0
    while True:
        log = parse_log(store.list_log(*([] if is_ahead else [Kind.CHECKPOINT, Kind.COMMITTED]), "_d", Kind.TURN))
        refuse_other_table(store, log, origin)
        last = read_last_turn(store, log)
        holder = read_turn(store, log, table_id=table_id) if last else None
        if not is_ahead:
            read_ahead(log)
            is_ahead = True
        if _wait_for(store, clock, holder, tid, read_ahead):
            return None
        if holder and holder.tid == tid:
            return last  # taken by a request whose answer was lost
        if lost > last:
            failures += 1
            if failures >= PUT_ATTEMPTS:
                raise StoreError(
                    f"{store.url_of(names.turn(lost))} is there, and no listing shows it; see what it is, and whether "
                    "the store lists what was written before"
                )
            clock.sleep(_UNSEEN_S)
        try:
            if store.put_if_absent(names.turn(last + 1), body):
                return last + 1
            lost = last + 1
        except AccessDeniedError:
            raise
        except StoreError:
            failures += 1
            if failures >= PUT_ATTEMPTS:
                raise


def wait_for_layout(store: Store, clock: Clock, holder: Turn) -> None:
    """Until it is decided which layout the table has, so that a transaction can begin."""
    _log.info("%s: waits for %s, which changes the partition columns", store.url, holder.tid)
    _wait_for(store, clock, holder, None)


def end_others(store: Store, clock: Clock, tid: str) -> None:
    """Of who holds the turn of a new layout: aborts all others that are pending, and go by the old one.

    Takes a minute, so that whoever looked at the table before this turn is among them. Raises StoreError.
    """
    clock.sleep(SETTLE_S)
    others = [other for other in parse_log(store.list_log()).pending if other != tid]
    for other in abort_all(store, clock, others):  # who has committed is overwritten
        _log.warning("%s: aborted %s, which began by partition columns that %s changes", store.url, other, tid)


def _wait_for(
    store: Store, clock: Clock, holder: Turn | None, own: str | None, read_ahead: Callable[[Log], None] | None = None
) -> bool:
    """Until the holder of the last turn is decided; whether our own transaction is."""
    if holder is None or holder.tid == own:
        return own is not None and _look(store, own, None)[0]
    is_over, is_free = _look(store, own, holder.tid)
    watched_s, looked_s, pause_s = 0.0, clock.monotonic(), 0.02
    settle_s = SETTLE_S if holder.new_layout else 0.0
    lease_s = LEASE_S + settle_s
    while not is_over and not is_free:
        clock.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 1.0)
        # As the holder lists and reads them: where that takes long, it gets the time.
        log = parse_log(store.list_log(Kind.COMMITTED))
        is_over, is_free = own in log.committed, holder.tid in log.committed or not has_start(store, holder.tid)
        if read_ahead and not is_over and not is_free:
            read_ahead(log)
        now_s = clock.monotonic()
        watched_s, looked_s = watched_s + min(now_s - looked_s, LOOK_S), now_s
        if not is_free and watched_s >= lease_s:
            if watched_s < (lease_s := _lease_s(store, log.committed) + settle_s):
                continue
            _end_lease(store, clock, holder.tid, lease_s)
            is_over, _ = _look(store, own, holder.tid)
            is_free = True  # also where its markers say otherwise: a late task may have put a purged one again
    return is_over


def _lease_s(store: Store, committed: Mapping[str, Entry]) -> float:
    """The lease of the last turn: twice as long for each of the turns right before it that was given up.

    So where the work in a turn takes long, one holder gets through in the end. A holder that aborted itself, as on a
    conflict, did so soon: it says nothing, and is passed over. Where a turn ended in a commit, or nothing tells, the
    count begins.
    """
    log = parse_log(store.list_log(Kind.TURN))
    last, lease_s = read_last_turn(store, log), LEASE_S
    for number in range(last - 1, max(last - 1 - _TURNS_BACK, 0), -1):
        turn = read_turn(store, log, number) if number in log.turns else None
        marker = committed.get(turn.tid) if turn else None
        found = read_markers(store, [marker], scope=Scope.TABLE).valid if marker else {}
        if marker is None or marker.path not in found or not found[marker.path].is_abort:
            break
        if (marker.modified - log.turns[number].modified).total_seconds() >= LEASE_S / 2:
            lease_s = min(lease_s * 2, LEASE_S * MOST_LEASES)
    return lease_s


def _look(store: Store, own: str | None, holder: str | None) -> tuple[bool, bool]:
    """Whether our transaction is decided, and whether the last holder's is; all by the names of their markers.

    A holder's start marker came before its turn: where it is gone, vacuum has purged it as decided.
    """
    ours = [names.committed(own)] if own else []
    others = [names.committed(holder), names.started(holder)] if holder else []
    found = store.stat_many([*ours, *others])
    is_over = own is not None and _decides(found[0])
    if holder is None:
        return is_over, True
    *_, committed, started = found
    return is_over, started is None or _decides(committed)


def _decides(marker: Entry | None) -> bool:
    return marker is not None and marker.size > 0


def _end_lease(store: Store, clock: Clock, holder: str, lease_s: float) -> None:
    """The holder is decided then."""
    with suppress(TransactionStateError):  # it committed at the last moment, or long ago: just as good
        abort_transaction(store, clock, holder)
        _log.warning("%s: aborted %s, which held the turn undecided for %.0f s", store.url, holder, lease_s)
