"""How a transaction is decided: the first marker wins, and commits that depend on one another take turns.

What is committed is put together in `transaction`. Rules: PROTOCOL.md 3.1 (I3, I7), 3.2 step 4, 3.3.
"""

import logging
from contextlib import suppress
from uuid import UUID

from dbio_commit import names
from dbio_commit.clock import Clock
from dbio_commit.errors import (
    AccessDeniedError,
    CommitStateUnknownError,
    CorruptMarkerError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.markers import CommitMarker, Turn, abort_marker, decode_commit, encode
from dbio_commit.snapshot import read_checkpoint, read_last_turn, read_turn, until_quiet
from dbio_commit.state import Log, parse_directories, parse_log
from dbio_commit.store import Store

LEASE_S = 60.0
"""How long a waiter watches an undecided transaction hold the turn before it aborts it."""

_PUT_ATTEMPTS = 5

_log = logging.getLogger(__name__)


def decide(store: Store, path: str, body: bytes, *, commit_id: str) -> None:
    """Creates the commit marker: whoever creates it first decides the transaction (I3).

    Returns once our own is there. Raises TransactionAbortedError where somebody else's is, CommitStateUnknownError
    where the store does not tell, AccessDeniedError where it refused.
    """
    failure: StoreError | None = None
    for _ in range(_PUT_ATTEMPTS):
        try:
            if store.put_if_absent(path, body):
                return
        except StoreError as error:
            if isinstance(error, AccessDeniedError) and failure is None:
                raise  # refused, so it has not landed
            failure = error
        try:
            read_own(store, path, commit_id=commit_id)
        except ObjectNotFoundError:
            continue  # it had not landed: put again
        except StoreError as error:
            raise _unknown(store, path, error) from error
        return
    raise _unknown(store, path, failure) from failure


def read_own(store: Store, path: str, *, commit_id: str) -> CommitMarker:
    """The commit marker that is there, if it is ours. Raises TransactionAbortedError where somebody else's is."""
    found = decode_commit(store.get(path), where=store.url_of(path))
    if found.dbio_commit and found.dbio_commit.commit_id == commit_id:
        return found
    raise _lost(store, path, found)


def _lost(store: Store, path: str, found: CommitMarker) -> Exception:
    if found.is_abort:
        when = found.dbio_commit.timestamp.isoformat() if found.dbio_commit else "?"
        return TransactionAbortedError(
            f"{store.url_of(path)}: this transaction was aborted at {when} by somebody else (vacuum, `dbio abort`, or "
            "a writer that waited too long for it); nothing was committed: begin again"
        )
    return CorruptMarkerError(
        f"{store.url_of(path)} commits files of another writer under this transaction's tid; nothing of ours was "
        "committed. Inspect it with `dbio show`, then begin again"
    )


def _unknown(store: Store, path: str, cause: Exception | None) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        f"whether {store.url_of(path)} was created is not known: {cause}; look for the tid with `dbio log` before you "
        "write the same data again"
    )


def abort_transaction(store: Store, clock: Clock, tid: str, *, directory: str = "") -> None:
    """Decides a pending transaction against its writer, whoever that is (I3). Done already is fine.

    Raises TransactionStateError where it is committed, StoreError where the store does not tell.
    """
    path = names.join(directory, names.committed(tid))
    body = encode(abort_marker(commit_id=str(UUID(int=clock.random_bits(128), version=4)), timestamp=clock.now()))
    for _ in range(_PUT_ATTEMPTS):
        if store.put_if_absent(path, body):
            if not directory:
                _refuse_covered(store, tid)
            return
        with suppress(ObjectNotFoundError):
            if decode_commit(store.get(path), where=store.url_of(path)).is_abort:
                return
            raise TransactionStateError(f"transaction {tid} of {store.url} is committed; it cannot be aborted")
    raise StoreError(f"{store.url_of(path)} comes and goes; try again")


def _refuse_covered(store: Store, tid: str) -> None:
    """Where vacuum had purged the commit marker, putting another one decides nothing: a checkpoint says what is.

    Raises TransactionStateError where the transaction was committed, and its files are live.
    """

    def read() -> bool:
        log = parse_log(store.list_log())
        if log.descriptor is None:
            return False
        commits = read_checkpoint(store, log).commits
        return any(commit.tid == tid and not commit.marker.is_abort for commit in commits)

    if until_quiet(store, read):
        raise TransactionStateError(f"transaction {tid} of {store.url} was committed long ago; it cannot be aborted")


def abort_timed_out(store: Store, clock: Clock, tid: str) -> None:
    """As `abort_transaction`, for vacuum: a commit marker without content, left by a disk that failed, is in the way.

    It counts as absent, and nobody who created it is at work any more. Raises the same.
    """
    try:
        abort_transaction(store, clock, tid)
    except CorruptMarkerError:
        path = names.committed(tid)
        (found,) = store.stat_many([path])
        if found is not None and not found.size:
            for failure in store.delete_many([path]).values():
                raise failure from None
        abort_transaction(store, clock, tid)  # where another vacuum was faster, that is fine; else it raises anew


def abort_pending(store: Store, clock: Clock, tid: str) -> None:
    """Aborts a transaction by its tid, in either scope: in every directory where it is not decided yet.

    Raises InvalidInputError where nothing is known of the tid, TransactionStateError where it is committed.
    """
    until_quiet(store, lambda: _abort_pending(store, clock, tid))


def _abort_pending(store: Store, clock: Clock, tid: str) -> None:
    log = parse_log(store.list_log())
    if log.descriptor is not None:
        logs = {"": log}
        if tid in read_checkpoint(store, log).covered and tid not in log.committed:
            raise TransactionStateError(f"transaction {tid} of {store.url} was decided long ago; it cannot be aborted")
    else:
        logs = {path: directory.log for path, directory in parse_directories(store.list_files()).items()}
    known = {path: log for path, log in logs.items() if tid in log.started or tid in log.committed}
    if not known:
        raise InvalidInputError(
            f"{store.url} has no marker of a transaction {tid!r}; `dbio check` lists what is pending"
        )
    pending = [path for path, log in known.items() if tid not in log.committed]
    for directory in pending or known:
        abort_transaction(store, clock, tid, directory=directory)


# --- turns --------------------------------------------------------------------------------------------------------


def take_turn(store: Store, clock: Clock, tid: str) -> int | None:
    """Waits for all turns before ours to be decided, and takes the next one; returns its number (I7).

    The turn ends when our transaction is decided. A holder that stays undecided for the lease is aborted. None where
    our transaction is decided already.
    """
    watched, since_s, pause_s = -1, 0.0, 0.02
    failures = 0
    while True:
        log = parse_log(store.list_log())
        if tid in log.committed:
            return None
        last = read_last_turn(store, log)
        if last:
            holder = read_turn(store, log)
            if holder == tid:
                return last  # taken by a request whose answer was lost
            if holder is not None and _is_undecided(store, log, holder):
                if last != watched:
                    watched, since_s, pause_s = last, clock.monotonic(), 0.02
                elif clock.monotonic() - since_s >= LEASE_S:
                    _end_lease(store, clock, holder)
                    continue
                clock.sleep(pause_s)
                pause_s = min(pause_s * 1.5, 1.0)
                continue
        try:
            if store.put_if_absent(names.turn(last + 1), encode(Turn(tid=tid))):
                return last + 1
        except AccessDeniedError:
            raise
        except StoreError:
            failures += 1
            if failures >= _PUT_ATTEMPTS:
                raise


def _is_undecided(store: Store, log: Log, tid: str) -> bool:
    """A listing that was overtaken may show a turn, and not the start marker that came before it."""
    if tid in log.committed:
        return False
    return tid in log.started or store.stat_many([names.started(tid)]) != [None]


def _end_lease(store: Store, clock: Clock, holder: str) -> None:
    with suppress(TransactionStateError):  # it committed at the last moment: just as good
        abort_transaction(store, clock, holder)
        _log.warning("%s: aborted %s, which held the turn undecided for %.0f s", store.url, holder, LEASE_S)
