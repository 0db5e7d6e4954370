"""Turns: transactions whose commits depend on one another are decided one after the other (I7)."""

import logging
from contextlib import suppress

from dbio_commit.clock import Clock
from dbio_commit.decision import PUT_ATTEMPTS, abort_transaction, has_start
from dbio_commit.errors import AccessDeniedError, StoreError, TransactionStateError
from dbio_commit.listing import read_last_turn, read_turn
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers import Turn, encode
from dbio_commit.protocol.names import Kind
from dbio_commit.store import Store

LEASE_S = 60.0
"""How long a waiter watches an undecided transaction hold the turn before it aborts it."""

LOOK_S = LEASE_S / 30
"""One look counts for so much of that at the most: a waiter that slept has watched nothing, and where a look takes
long, so does what the holder has to do."""

_log = logging.getLogger(__name__)


def take_turn(store: Store, clock: Clock, tid: str) -> int | None:
    """Waits for all turns before ours to be decided, and takes the next one; returns its number (I7).

    The turn ends when our transaction is decided. A holder that stays undecided for the lease is aborted. None where
    our transaction is decided already.
    """
    failures = 0
    while True:
        log = parse_log(store.list_log(Kind.TURN))
        last = read_last_turn(store, log)
        holder = read_turn(store, log) if last else None
        if _wait_for(store, clock, holder, tid):
            return None
        if holder == tid:
            return last  # taken by a request whose answer was lost
        try:
            if store.put_if_absent(names.turn(last + 1), encode(Turn(tid=tid))):
                return last + 1
        except AccessDeniedError:
            raise
        except StoreError:
            failures += 1
            if failures >= PUT_ATTEMPTS:
                raise


def _wait_for(store: Store, clock: Clock, holder: str | None, tid: str) -> bool:
    """Until the holder of the last turn is decided; whether our own transaction is."""
    is_over, is_free = _look(store, tid, holder)
    watched_s, looked_s, pause_s = 0.0, clock.monotonic(), 0.02
    while holder is not None and holder != tid and not is_over and not is_free:
        clock.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 1.0)
        # As the holder lists them: where that takes long, it gets the time.
        committed = parse_log(store.list_log(Kind.COMMITTED)).committed
        is_over, is_free = tid in committed, holder in committed or not has_start(store, holder)
        now_s = clock.monotonic()
        watched_s, looked_s = watched_s + min(now_s - looked_s, LOOK_S), now_s
        if not is_free and watched_s >= LEASE_S:
            _end_lease(store, clock, holder)
            is_over, _ = _look(store, tid, holder)
            is_free = True  # also where its markers say otherwise: a late task may have put a purged one again
    return is_over


def _look(store: Store, tid: str, holder: str | None) -> tuple[bool, bool]:
    """Whether our transaction is decided, and whether the last holder's is; all by the names of their markers.

    A holder's start marker came before its turn: where it is gone, vacuum has purged it as decided.
    """
    if holder is None:
        (ours,) = store.stat_many([names.committed(tid)])
        return _decides(ours), True
    ours, committed, started = store.stat_many([names.committed(tid), names.committed(holder), names.started(holder)])
    return _decides(ours), started is None or _decides(committed)


def _decides(marker: Entry | None) -> bool:
    return marker is not None and marker.size > 0


def _end_lease(store: Store, clock: Clock, holder: str) -> None:
    """The holder is decided then."""
    with suppress(TransactionStateError):  # it committed at the last moment, or long ago: just as good
        abort_transaction(store, clock, holder)
        _log.warning("%s: aborted %s, which held the turn undecided for %.0f s", store.url, holder, LEASE_S)
