"""How a transaction is decided: the first marker wins, and commits that depend on one another take turns.

What is committed is put together in `transaction`. Rules: PROTOCOL.md 3.1 (I3, I7), 3.2 step 4, 3.3.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from dbio_commit.clock import SYSTEM_CLOCK, Clock
from dbio_commit.errors import (
    AccessDeniedError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.protocol import names
from dbio_commit.protocol.directory import parse_directories
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers import CommitMarker, Turn, abort_marker, decode_commit, encode
from dbio_commit.snapshot import agreed_log, read_checkpoint, read_last_turn, read_turn, until_quiet
from dbio_commit.store import Store

LEASE_S = 60.0
"""How long a waiter watches an undecided transaction hold the turn before it aborts it."""

LOOK_S = LEASE_S / 30
"""One look counts for so much of that at the most: a waiter that slept has watched nothing, and where a look takes
long, so does what the holder has to do."""

_PUT_ATTEMPTS = 5

_log = logging.getLogger(__name__)


def decide(store: Store, path: str, body: bytes, *, commit_id: str) -> CommitMarker | None:
    """Creates the commit marker: whoever creates it first decides the transaction (I3).

    Returns once our own is there; what it says, where it was there before. Raises TransactionAbortedError where
    somebody else's is, CommitStateUnknownError where the store does not tell, AccessDeniedError where it refused.
    """
    failure: StoreError | None = None
    for _ in range(_PUT_ATTEMPTS):
        is_first = failure is None
        try:
            if store.put_if_absent(path, body):
                return None
        except StoreError as error:
            failure = error
        try:
            return read_own(store, path, commit_id=commit_id)
        except ObjectNotFoundError:
            # A refusal may be the answer to the client's own second attempt: only now it is clear that none landed.
            if isinstance(failure, AccessDeniedError) and is_first:
                raise failure from None
            continue  # it had not landed: put again
        except StoreError as error:
            raise _unknown(store, path, error) from error
    raise _unknown(store, path, failure) from failure


def read_own(store: Store, path: str, *, commit_id: str) -> CommitMarker:
    """The commit marker that is there, if it is ours. Raises TransactionAbortedError where somebody else's is."""
    found = decode_commit(store.get(path), where=store.url_of(path))
    if found.dbio_commit and found.dbio_commit.commit_id == commit_id:
        store.make_durable([path])  # the call that created it may have failed before that
        return found
    marker = names.parse_log_name(path)
    if found.is_abort and marker and (covered := _covered_commit(store, marker.id)):
        return covered  # the abort came after vacuum had purged ours, and decided nothing
    raise _lost(store, path, found)


def read_decided(store: Store, tid: str, *, commit_id: str) -> CommitMarker:
    """As `read_own`, of a transaction that is decided, however long ago: its markers may be purged.

    A checkpoint tells more than a marker, which a copy of the transaction may have put since.
    """
    path, is_purged = names.committed(tid), not has_start(store, tid)
    if covered := _covered_commit(store, tid):
        with suppress(ObjectNotFoundError):
            if not covered.is_of(decode_commit(store.get(path), where=store.url_of(path)).added):
                _withdraw(store, path)
        return covered
    try:
        found = read_own(store, path, commit_id=commit_id)
    except ObjectNotFoundError:
        if covered := _covered_commit(store, tid):
            return covered  # purged in this moment
        raise _aborted_long_ago(store, tid) from None
    if is_purged:
        _withdraw_late(store, tid)
    return found


def find_purged(store: Store, tid: str, found: CommitMarker | None) -> CommitMarker | None:
    """After the commit marker was put: None where the transaction's markers are not purged, so that it is committed.

    Where its start marker is gone, which vacuum purges first, it was decided long ago: to what is returned, or else it
    was aborted. The marker that was put just now decides nothing then, and goes again; one that was `found` only if it
    says something else, since vacuum may have kept it. Raises TransactionAbortedError, CommitStateUnknownError.
    """
    path = names.committed(tid)
    try:
        if has_start(store, tid):
            return None
        covered = _covered_commit(store, tid)
    except StoreError as error:
        raise _unknown(store, path, error) from error
    if covered is None:
        _withdraw_late(store, tid)
    elif found is None or not covered.is_of(found.added):
        _withdraw(store, path)
    return covered


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


def abort_transaction(store: Store, clock: Clock, tid: str, *, directory: str | None = None) -> None:
    """Decides a pending transaction against its writer, whoever that is (I3). Done already is fine.

    `directory`: the one to abort it in, in the directory scope. Raises TransactionStateError where it is committed, or
    was decided so long ago that its markers are purged; StoreError where the store does not tell.
    """
    path = names.join(directory or "", names.committed(tid))
    marker = _new_abort(clock)
    for _ in range(_PUT_ATTEMPTS):
        # In the directory scope no checkpoint tells, but vacuum purges the start marker before the commit marker.
        if directory is not None and not has_start(store, tid, directory):
            raise _decided_long_ago(store, tid)
        is_ours = store.put_if_absent(path, encode(marker))
        if not is_ours:
            try:
                found = decode_commit(store.get(path), where=store.url_of(path))
            except ObjectNotFoundError:
                continue
            if not found.is_abort:
                raise TransactionStateError(f"transaction {tid} of {store.url} is committed; it cannot be aborted")
            is_ours = found == marker  # the answer to an earlier attempt of this very request was lost
        if directory is None:
            is_late, may_withdraw = _covered_commit(store, tid, clock) is not None, True
        else:  # another's may be an old one, which vacuum keeps
            is_late, may_withdraw = not has_start(store, tid, directory), is_ours
        if is_late:
            if may_withdraw:
                _withdraw(store, path)
            raise _decided_long_ago(store, tid)
        return
    raise StoreError(f"{store.url_of(path)} comes and goes; try again")


def _new_abort(clock: Clock) -> CommitMarker:
    return abort_marker(commit_id=str(UUID(int=clock.random_bits(128), version=4)), timestamp=clock.now())


def _covered_commit(store: Store, tid: str, clock: Clock = SYSTEM_CLOCK) -> CommitMarker | None:
    """What the transaction committed, where a checkpoint says so: then no marker decides anything any more."""
    return _covered_commits(store, clock).get(tid)


def _covered_commits(store: Store, clock: Clock) -> dict[str, CommitMarker]:
    """The same of all transactions, by tid."""

    def read() -> dict[str, CommitMarker]:
        log = parse_log(store.list_log())
        if log.descriptor is None:
            return {}
        _, checkpoint = agreed_log(store, log, clock)
        return {commit.tid: commit.marker for commit in checkpoint.commits if not commit.marker.is_abort}

    return until_quiet(store, read)


def has_start(store: Store, tid: str, directory: str = "") -> bool:
    """Whether the start marker is there. Once it is not, the transaction is decided: vacuum purges it first."""
    return store.stat_many([names.join(directory, names.started(tid))]) != [None]


def _withdraw(store: Store, path: str) -> bool:
    """Removes a commit marker that decides nothing, but that readers may believe; False where it cannot."""
    failures = store.delete_many([path])
    for failure in failures.values():
        _log.warning("%s decides nothing, but readers may believe it; remove it: %s", store.url_of(path), failure)
    return not failures


def _withdraw_late(store: Store, tid: str) -> None:
    """Raises TransactionAbortedError: a commit marker came after the abort was purged."""
    path = names.committed(tid)
    if not _withdraw(store, path):
        raise CommitStateUnknownError(
            f"{store.url_of(path)} came after its transaction was aborted and vacuumed, and cannot be deleted: "
            "remove it, since it names files that are gone; then write again"
        )
    raise _aborted_long_ago(store, tid)


def _aborted_long_ago(store: Store, tid: str) -> TransactionAbortedError:
    return TransactionAbortedError(
        f"transaction {tid} of {store.url} was aborted long ago; nothing was committed: begin again"
    )


def _decided_long_ago(store: Store, tid: str) -> TransactionStateError:
    return TransactionStateError(f"transaction {tid} of {store.url} was decided long ago; it cannot be aborted")


def abort_many(store: Store, clock: Clock, tids: Sequence[str]) -> dict[str, DbioError | None]:
    """As `abort_transaction`, for vacuum: many transactions of a table at once. Why each is not aborted; None: it is.

    All abort markers are put before the one look at the log that tells whether any of them decides nothing.
    """
    bodies = [encode(_new_abort(clock)) for _ in tids]
    failures = store.in_parallel(lambda put: _put_abort(store, *put), [*zip(tids, bodies, strict=True)])
    outcomes = dict(zip(tids, failures, strict=True))
    aborted = [tid for tid, failure in outcomes.items() if failure is None]
    if not aborted:
        return outcomes
    try:
        covered = _covered_commits(store, clock)
    except DbioError as error:
        return outcomes | dict.fromkeys(aborted, error)
    for tid in aborted:
        if tid in covered:
            _withdraw(store, names.committed(tid))
            outcomes[tid] = _decided_long_ago(store, tid)
    return outcomes


def _put_abort(store: Store, tid: str, body: bytes) -> DbioError | None:
    """What kept the abort marker from being there, if anything did.

    A commit marker without content, left by a disk that failed, counts as absent, and nobody who created it is at work
    any more: it makes room.
    """
    path = names.committed(tid)
    corrupt: CorruptMarkerError | None = None
    for _ in range(_PUT_ATTEMPTS):
        try:
            if store.put_if_absent(path, body) or decode_commit(store.get(path), where=store.url_of(path)).is_abort:
                return None
            return TransactionStateError(f"transaction {tid} of {store.url} is committed; it cannot be aborted")
        except ObjectNotFoundError:
            continue
        except CorruptMarkerError as error:
            if corrupt is not None:
                return error
            corrupt = error
        except DbioError as error:
            return error
        if failure := _remove_empty(store, path):
            return failure
    return StoreError(f"{store.url_of(path)} comes and goes; try again")


def _remove_empty(store: Store, path: str) -> DbioError | None:
    try:
        (found,) = store.stat_many([path])
        empty = [path] if found is not None and not found.size else []
        return next(iter(store.delete_many(empty).values()), None)
    except DbioError as error:
        return error


def abort_pending(store: Store, clock: Clock, tid: str) -> None:
    """Aborts a transaction by its tid, in either scope: in every directory where it is not decided yet.

    Raises InvalidInputError where nothing is known of the tid, TransactionStateError where it is committed.
    """
    until_quiet(store, lambda: _abort_pending(store, clock, tid))


def _abort_pending(store: Store, clock: Clock, tid: str) -> None:
    log = parse_log(store.list_log())
    logs: dict[str | None, Log]
    if log.descriptor is not None:
        logs = {None: log}
        if tid in read_checkpoint(store, log).covered and tid not in log.committed:
            raise _decided_long_ago(store, tid)
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
    watched, watched_s, looked_s, pause_s = -1, 0.0, 0.0, 0.02
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
                now_s = clock.monotonic()
                if last != watched:
                    watched, watched_s, looked_s, pause_s = last, 0.0, now_s, 0.02
                else:
                    watched_s, looked_s = watched_s + min(now_s - looked_s, LOOK_S), now_s
                    if watched_s >= LEASE_S:
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
    return tid in log.started or has_start(store, tid)


def _end_lease(store: Store, clock: Clock, holder: str) -> None:
    with suppress(TransactionStateError):  # it committed at the last moment: just as good
        abort_transaction(store, clock, holder)
        _log.warning("%s: aborted %s, which held the turn undecided for %.0f s", store.url, holder, LEASE_S)
