"""Takes turns: transactions that depend on the table's state are decided one after the other (I7).

The holder of a turn is the transaction that took it.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    AccessDeniedError,
    CorruptMarkerError,
    ObjectNotFoundError,
    StoreError,
    TransactionStateError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.decision import PUT_ATTEMPTS, abort_all, abort_transaction, carry_out
from dbio_commit.log.listing import has_start, read_last_turn, read_markers, read_start, read_turn, refuse_other_table
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.descriptor import Origin
from dbio_commit.protocol.markers.turn import Turn, encode_turn
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

LEASE_S = 60.0
"""The least time, in s, for which a waiter watches an undecided holder before it aborts the holder."""

MOST_LEASES = 16
"""The longest lease, as a multiple of LEASE_S, after holders were aborted (`_lease_s`). It is shorter than the half
hour after which vacuum purges the turns that show these aborts."""

_UNSEEN_S = 1.0
"""The pause before the next attempt, if a turn is taken and a listing of a disk has missed it."""

_TURNS_BACK = 20
"""The most earlier turns that a waiter looks at."""

TRUST_S = 50.0
"""How long a transaction trusts what it read of the table before it claimed its tid."""

SETTLE_S = TRUST_S + 11.0
"""After this time, a writer that read the table before a change has claimed its tid, or reads the table again."""

LOOK_S = LEASE_S / 30
"""The most that one look counts toward the lease, in s. A waiter that slept did not watch. If a look takes long, so
does the holder's own work."""

_log = get_logger(__name__)


def take_turn(
    store: Store,
    clock: Clock,
    tid: str,
    *,
    origin: Origin | None = None,
    new_layout: bool = False,
    new_columns: bool = False,
    tables: int = 1,
    free: int | None = None,
    read_ahead: Callable[[Log], None] = lambda log: None,
) -> int | None:
    """Waits until all earlier turns are decided, takes the next one, and returns its number (I7).

    None if the transaction `tid` is decided already. The turn ends when the transaction is decided. A holder that stays
    undecided for the lease is aborted. While a turn with `new_layout` is undecided, no transaction begins; while one
    with `new_columns` is undecided, no blind append commits.

    - `tables` is the number of tables in which a joint transaction takes turns.
    - `free` is the next turn, if all earlier ones were seen decided within TRUST_S. It is taken without a look: the
      caller's look in the turn shows whether the table is still there.
    - `read_ahead` is called with the log before the turn is taken, and with each listing while another transaction
      holds the turn. What it reads need not be read in the turn.

    Raises CommitConflictError if the table of this `origin` is gone.
    """
    table_id = origin.table_id if origin else None
    body = encode_turn(Turn(tid=tid, table_id=table_id, new_layout=new_layout, new_columns=new_columns, tables=tables))
    failures, is_ahead, lost = 0, False, 0
    while True:
        if free is None:
            log = parse_log(store.list_log(*([] if is_ahead else [Kind.CHECKPOINT, Kind.COMMITTED]), "_d", Kind.TURN))
            refuse_other_table(store, log, origin)
            last = read_last_turn(store, log, table_id)
            holder = read_turn(store, log, last, table_id=table_id) if last else None
            if not is_ahead:
                read_ahead(log)
                is_ahead = True
            is_decided = holder is not None and holder.tid in log.committed and tid not in log.committed
            if not is_decided and _wait_for(store, clock, holder, tid, read_ahead):
                return None
            if holder and holder.tid == tid:
                return last  # taken by a request whose answer was lost
            if lost > last and lost not in log.turns:
                failures += 1
                if failures >= PUT_ATTEMPTS:
                    raise StoreError(
                        f"{store.url_of(names.turn(lost))} exists, but no listing shows it; check what this object is, "
                        "and whether listings of the store show objects that were written before"
                    )
                clock.sleep(_UNSEEN_S)
            free = log.turn_after(last)
        number, free = free, None
        try:
            if store.put_if_absent(names.turn(number), body):
                return number
            lost = number
        except AccessDeniedError:
            raise
        except StoreError:
            failures += 1
            if failures >= PUT_ATTEMPTS:
                raise


def wait_for_layout(store: Store, clock: Clock, holder: Turn) -> None:
    """Waits until the holder is decided, so that the table's layout is known and a transaction can begin."""
    _log.info("%s: waits for %s, which changes the partition columns", store.url, holder.tid)
    _wait_for(store, clock, holder, None)


def end_others(store: Store, clock: Clock, tid: str) -> None:
    """Aborts all other pending transactions for `tid`, whose turn changes the layout: they use the old one.

    Waits SETTLE_S first, so that every writer that read the table before this turn is among them. Raises StoreError.
    """
    clock.sleep(SETTLE_S)
    others = [other for other in parse_log(store.list_log()).pending if other != tid]
    for other in abort_all(store, clock, others):  # what others have committed is overwritten
        _log.warning("%s: aborted %s, which began with partition columns that %s changes", store.url, other, tid)


def end_blind(store: Store, clock: Clock, tid: str, table: Snapshot) -> bool:
    """Aborts transactions that may commit without a look at the columns that `tid` gives the table in its turn.

    These are the transactions that need no turn, and that are undecided in `table`, which was read in the turn. A
    transaction that begins later sees the turn before it commits. Returns whether there were any: then the table must
    be read again, since one may have committed instead. Raises StoreError.
    """
    decided = {it.tid for it in table.transactions} | {tid}
    others = sorted(table.log.started.keys() - decided)
    blind = store.ask_each(lambda other: _is_blind(store, table.log.started[other], table.table_id), others)
    others = [other for other, is_blind in zip(others, blind, strict=True) if is_blind]
    for other in abort_all(store, clock, others):
        _log.warning("%s: aborted %s, which began before %s gave the table other columns", store.url, other, tid)
    return bool(others)


def _is_blind(store: Store, started: Entry, table_id: str | None) -> bool:
    """Whether a transaction may commit without a turn, by its start marker. True if the marker cannot be read."""
    try:
        begun = read_start(store, started, table_id=table_id)
    except ObjectNotFoundError:
        return False  # vacuum has purged it: the transaction was decided
    except CorruptMarkerError:
        return True
    return not (begun and begun.takes_turn)


def _wait_for(
    store: Store, clock: Clock, holder: Turn | None, own: str | None, read_ahead: Callable[[Log], None] | None = None
) -> bool:
    """Waits until the holder of the last turn is decided. Returns whether the transaction `own` is decided."""
    if holder is None or holder.tid == own:
        return own is not None and _look(store, own, None)[0]
    is_over, is_free = _look(store, own, holder.tid)
    watched_s, looked_s, pause_s = 0.0, clock.monotonic(), 0.02
    settle_s = SETTLE_S if holder.new_layout else 0.0
    lease_s = LEASE_S * holder.tables + settle_s
    if not is_over and not is_free:
        with suppress(AccessDeniedError):  # its writer may still be at work; the end of the lease raises this
            is_free = carry_out(store, holder.tid)  # if it is a joint one that its home has committed
    while not is_over and not is_free:
        clock.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 1.0)
        # The holder lists and reads markers, too. If that takes long, so does each look, and the holder gets more time.
        log = parse_log(store.list_log(Kind.COMMITTED))
        is_over, is_free = own in log.committed, holder.tid in log.committed or not has_start(store, holder.tid)
        if read_ahead and not is_over and not is_free:
            read_ahead(log)
        now_s = clock.monotonic()
        watched_s, looked_s = watched_s + min(now_s - looked_s, LOOK_S), now_s
        if not is_free and watched_s >= lease_s:
            if watched_s < (lease_s := _lease_s(store, log.committed, holder.table_id) * holder.tables + settle_s):
                continue
            _end_lease(store, clock, holder.tid, lease_s)
            is_over, _ = _look(store, own, holder.tid)
            is_free = True  # whatever its markers show: a late task may have put a purged start marker again
    return is_over


def _lease_s(store: Store, committed: Mapping[str, Entry], table_id: str | None) -> float:
    """The lease of the last turn, in s. It doubles for each turn right before it whose holder was aborted.

    So if the work in a turn takes long, one holder succeeds in the end. A holder that aborted itself, as on a conflict,
    did so soon: its turn is skipped. The count starts after a turn that ended in a commit, or that was purged.
    """
    log = parse_log(store.list_log(Kind.TURN))
    last, lease_s = read_last_turn(store, log, table_id), LEASE_S
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
    """Whether `own` is decided, and whether the holder is, by the names and sizes of their markers.

    A holder's start marker came before its turn. If the marker is gone, the holder was decided, and vacuum has purged
    it.
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
    """Aborts the holder, unless it is decided."""
    with suppress(TransactionStateError):  # it committed at the last moment, or was decided long ago: both end the turn
        abort_transaction(store, clock, holder)
        _log.warning("%s: aborted %s, which held the turn undecided for %.0f s", store.url, holder, lease_s)
