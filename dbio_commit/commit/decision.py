"""Decides transactions: the first commit marker wins (I3). Only this module finds out whether one was decided already.

Three objects show that: a checkpoint, the start marker and the commit marker. Vacuum purges the start marker first and
then the commit marker, both only after a checkpoint covers the transaction. So:

- What a checkpoint records as committed was committed.
- If the start marker is gone, the transaction was decided long ago: a commit marker that no checkpoint covers came too
  late.
- If the start marker is there, the commit marker alone decides.
"""

from collections.abc import Callable, Iterator, Sequence

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    AccessDeniedError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    ObjectNotFoundError,
    StoreError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.base.texts import command
from dbio_commit.commit.tids import new_uuid
from dbio_commit.log.joint import ABORTED, find_home, get_if_there, table_id_at
from dbio_commit.log.listing import covered_commits, has_start, read_commit
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import INSPECT, encode
from dbio_commit.protocol.markers.commit import CommitMarker, abort_marker, decode_commit, read_parts
from dbio_commit.protocol.markers.joint import HERE
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

PUT_ATTEMPTS = 5

_log = get_logger(__name__)


# --- was it decided? ----------------------------------------------------------------------------------------------


def find_decision(store: Store, tid: str, *, commit_id: str, is_known: bool) -> CommitMarker | None:
    """The commit marker of a transaction that was committed, however long ago; None if its start marker is there.

    Then the commit marker alone decides, once it comes. `is_known`: the transaction was seen to be decided, or is too
    old to commit. Then the commit marker is read even if the start marker is there.

    A commit marker that differs from what a checkpoint records is removed. An identical one is kept, even if this
    writer just put it. A writer may sleep for days after its PUT, and vacuum may have kept the marker because of the
    files that it removes. Otherwise vacuum deletes it.

    Raises TransactionAbortedError if the transaction was aborted, CorruptMarkerError if another writer has its tid,
    CommitStateUnknownError if a marker that decides nothing cannot be removed.
    """
    path = names.committed(tid)
    is_purged = not has_start(store, tid)
    if not is_purged and not is_known:
        return None
    covered = _covered_commit(store, tid)
    found = read_commit(store, path)
    if found is None and covered is None:
        covered = _covered_commit(store, tid)  # vacuum has just purged the commit marker
    if covered is not None:
        if found is not None and not covered.is_of(found.data_files):
            withdraw(store, path)
        return covered
    if found is None:
        raise _aborted_long_ago(store, tid)
    mine = _own(store, path, found, commit_id=commit_id)
    if is_purged:
        _withdraw_late(store, tid)
    return mine


def read_own(store: Store, path: str, *, commit_id: str) -> CommitMarker:
    """The commit marker at this path, if this transaction put it. Raises ObjectNotFoundError if there is none.

    Raises TransactionAbortedError or CorruptMarkerError if another process put it.
    """
    return _own(store, path, decode_commit(store.get(path), where=store.url_of(path)), commit_id=commit_id)


def _own(store: Store, path: str, found: CommitMarker, *, commit_id: str) -> CommitMarker:
    if found.dbio_commit and found.dbio_commit.commit_id == commit_id:
        store.make_durable([path])  # the call that created it may have failed before it was durable
        return found
    marker = names.parse_log_name(path)
    if found.is_abort and marker and (covered := _covered_commit(store, marker.id)):
        return covered  # the abort came after vacuum had purged the commit marker, and decides nothing
    raise _lost(store, path, found)


def _covered_commit(store: Store, tid: str) -> CommitMarker | None:
    """The commit that a checkpoint records of the transaction, else None. It is final: then no marker counts."""
    return covered_commits(store, [tid]).get(tid)


def withdraw(store: Store, path: str) -> bool:
    """Removes a commit marker that decides nothing, but that readers may believe. False if it cannot be deleted."""
    failures = store.delete_many([path])
    for failure in failures.values():
        _log.warning("%s decides nothing, but readers may believe it; delete it: %s", store.url_of(path), failure)
    return not failures


def _withdraw_late(store: Store, tid: str) -> None:
    """Removes a commit marker that came after the abort was purged, and raises TransactionAbortedError.

    Raises CommitStateUnknownError if it cannot be removed.
    """
    path = names.committed(tid)
    if not withdraw(store, path):
        raise CommitStateUnknownError(
            f"{store.url_of(path)} came after its transaction was aborted and vacuumed, and cannot be deleted: "
            "delete it, since it names files that are gone; then write again"
        )
    raise _aborted_long_ago(store, tid)


# --- commit -------------------------------------------------------------------------------------------------------


def decide(store: Store, path: str, body: bytes, *, commit_id: str) -> CommitMarker | None:
    """Creates the commit marker: the process that creates it first decides the transaction (I3).

    Returns None, or the marker if this transaction had created it before. Raises
    TransactionAbortedError if another process has created it, CommitStateUnknownError if the store does not say whether
    it was created, AccessDeniedError if the store refused.
    """
    failure: StoreError | None = None
    for _ in range(PUT_ATTEMPTS):
        is_first = failure is None
        try:
            if store.put_if_absent(path, body):
                return None
        except StoreError as error:
            failure = error
        try:
            return read_own(store, path, commit_id=commit_id)
        except ObjectNotFoundError:
            # A refusal may answer the client's own second attempt. Only this read shows that the first did not succeed,
            # and only if nobody has deleted the markers since: a drop deletes the start marker first.
            if isinstance(failure, AccessDeniedError) and is_first:
                if not _has_start_of(store, path):
                    raise unknown(store, path, failure) from failure
                raise failure from None
            continue  # it was not created: put again
        except StoreError as error:
            raise unknown(store, path, error) from error
    raise unknown(store, path, failure) from failure


def _has_start_of(store: Store, path: str) -> bool:
    """Whether the start marker beside this commit marker is there."""
    directory, name = names.split(path)
    marker = names.parse_log_name(name)
    return marker is not None and has_start(store, marker.id, directory)


def commit_once(
    store: Store, tid: str, body: bytes, *, commit_id: str, is_young: Callable[[], bool]
) -> CommitMarker | None:
    """As `decide`, for a transaction of a table. If it `is_young`, vacuum cannot have purged an earlier decision."""
    path = names.committed(tid)
    found = decide(store, path, body, commit_id=commit_id)
    if is_young():
        return found
    try:
        return find_decision(store, tid, commit_id=commit_id, is_known=False) or found
    except StoreError as error:
        raise unknown(store, path, error) from error


def _lost(store: Store, path: str, found: CommitMarker) -> Exception:
    if found.is_abort:
        when = found.dbio_commit.timestamp.isoformat() if found.dbio_commit else "?"
        return TransactionAbortedError(
            f"{store.url_of(path)}: this transaction was aborted at {when} by another process (vacuum, `dbio abort`, "
            "or a writer that had waited too long for it); nothing was committed: begin again"
        )
    return CorruptMarkerError(
        f"{store.url_of(path)} commits files of another writer under this transaction's tid; nothing of this "
        "transaction was committed. Inspect it with `dbio show`, then begin again"
    )


def unknown(store: Store, path: str, cause: Exception | None) -> CommitStateUnknownError:
    """The error for a commit marker if it is not known whether it was created, or whether it counts."""
    return CommitStateUnknownError(
        f"whether {store.url_of(path)} was created is not known: {cause}; look for the tid with `dbio log` before you "
        "write the same data again"
    )


def refused(store: Store, tid: str, cause: Exception) -> CommitStateUnknownError:
    """The error for a commit that the store refused, and its abort, too."""
    return CommitStateUnknownError(
        f"the commit of {tid} to {store.url} was refused, and so was its abort; a request that is still under way may "
        f"be applied: with valid credentials, run `{command('dbio', 'abort', store.url, tid)}` before you write the "
        f"same data again. {cause}"
    )


def _aborted_long_ago(store: Store, tid: str) -> TransactionAbortedError:
    return TransactionAbortedError(
        f"transaction {tid} of {store.url} was aborted long ago; nothing was committed: begin again"
    )


# --- abort --------------------------------------------------------------------------------------------------------


def abort_transaction(store: Store, clock: Clock, tid: str) -> None:
    """Aborts a pending transaction of a table, of any writer (I3). It may be aborted already.

    Raises TransactionStateError if it is committed, or was decided so long ago that its markers are purged. Raises
    StoreError if the outcome is unknown.
    """
    if failure := _try_abort(store, tid, _new_abort(clock)):
        raise failure
    if _covered_commit(store, tid) is not None:
        withdraw(store, names.committed(tid))
        raise decided_long_ago(store, tid)


def abort_in_directory(store: Store, clock: Clock, tid: str, directory: str) -> None:
    """As `abort_transaction`, in one directory of the directory scope.

    There are no checkpoints, but vacuum purges the start marker before the commit marker.
    """
    path = names.join(directory, names.committed(tid))
    is_ours = _put_abort(store, path, tid, _new_abort(clock), may_put=lambda: has_start(store, tid, directory))
    if not has_start(store, tid, directory):
        if is_ours:  # the marker of another process may be an old one that vacuum keeps
            withdraw(store, path)
        raise decided_long_ago(store, tid)


def abort_many(store: Store, clock: Clock, tids: Sequence[str], *, alone: bool = False) -> dict[str, DbioError | None]:
    """As `abort_transaction`, for many transactions at once. Returns why each is not aborted, or None if it is.

    With `alone`, joint transactions are aborted in this table without a look at their homes.

    The caller saw in a listing, perhaps long ago, that they are pending. So this first looks for their markers by name.
    Then it puts all abort markers, and reads the log once to find those that decide nothing.
    """
    outcomes = _find_ended(store, tids)
    left = [tid for tid in tids if tid not in outcomes]
    markers = [_new_abort(clock) for _ in left]
    failures = store.ask_each(lambda put: _try_abort(store, *put, alone=alone), [*zip(left, markers, strict=True)])
    outcomes |= zip(left, failures, strict=True)
    aborted = [tid for tid, failure in outcomes.items() if failure is None]
    if not aborted:
        return outcomes
    try:
        covered = covered_commits(store, {*aborted})
    except DbioError as error:
        return outcomes | dict.fromkeys(aborted, error)
    for tid in aborted:
        if tid in covered:
            withdraw(store, names.committed(tid))
            outcomes[tid] = decided_long_ago(store, tid)
    return outcomes


def abort_all(store: Store, clock: Clock, tids: Sequence[str]) -> Iterator[str]:
    """As `abort_many`, for a caller that needs all transactions decided. Yields the tids that it aborted.

    The others are committed, or were decided long ago. Raises the error that left a transaction undecided.
    """
    for tid, failure in abort_many(store, clock, tids).items():
        if failure is None:
            yield tid
        elif not isinstance(failure, TransactionStateError):
            raise failure


def _find_ended(store: Store, tids: Sequence[str]) -> dict[str, DbioError | None]:
    """The results of `abort_many` for the transactions that are decided already, by tid.

    Vacuum purges the start marker first. So if it is gone, and no commit marker is there, the transaction was decided
    long ago: a checkpoint may have forgotten it, and an abort marker would decide it again.
    """
    commits = store.stat_many([*map(names.committed, tids)])
    starts = store.stat_many([*map(names.started, tids)])  # after: if a start is there, its commit was not purged
    ended: dict[str, DbioError | None] = {}
    for tid, decided, started in zip(tids, commits, starts, strict=True):
        if decided and decided.size:
            ended[tid] = _try_abort(store, tid, None)
        elif started is None and decided is None:
            ended[tid] = decided_long_ago(store, tid)
    return ended


def _new_abort(clock: Clock) -> CommitMarker:
    return abort_marker(commit_id=new_uuid(clock), timestamp=clock.now())


def _put_abort(
    store: Store, path: str, tid: str, marker: CommitMarker | None, *, may_put: Callable[[], bool] = lambda: True
) -> bool:
    """Puts this abort marker if no commit marker is there; None only looks. Returns whether the one there is this one.

    Raises TransactionStateError if the transaction is committed, or was decided so long ago that it has no marker.
    """
    for _ in range(PUT_ATTEMPTS):
        if not may_put():
            raise decided_long_ago(store, tid)
        if marker and store.put_if_absent(path, encode(marker)):
            return True
        found = read_commit(store, path)
        if found is None and marker is None:
            raise decided_long_ago(store, tid)
        if found is None:
            continue
        if not found.is_abort:
            raise TransactionStateError(f"transaction {tid} of {store.url} is committed; it cannot be aborted")
        return found == marker  # the answer to an earlier attempt of this very request was lost
    raise StoreError(f"{store.url_of(path)} appears and disappears; try again")


def _try_abort(
    store: Store, tid: str, marker: CommitMarker | None, *, makes_room: bool = True, alone: bool = False
) -> DbioError | None:
    """Puts an abort marker. Returns the error if that failed.

    A commit marker without content, left by a disk that failed, counts as absent. No writer of it is still at work, so
    it is removed first.
    """
    path = names.committed(tid)
    try:
        if marker is not None and not alone:
            _end_at_home(store, tid, marker)
    except DbioError as error:
        return error
    try:
        _put_abort(store, path, tid, marker)
    except CorruptMarkerError as error:
        if not makes_room:
            return error
        return _remove_empty(store, path) or _try_abort(store, tid, marker, makes_room=False, alone=alone)
    except DbioError as error:
        return error
    return None


def _remove_empty(store: Store, path: str) -> DbioError | None:
    try:
        store.delete_same(path, b"")  # not a marker that another process has put in its place
    except DbioError as error:
        return error
    return None


# --- joint transactions -------------------------------------------------------------------------------------------


def carry_out(store: Store, tid: str) -> bool:
    """Commits a pending joint transaction to this table, if its home has committed it. Returns whether it has.

    Raises CorruptMarkerError if its home is not where the start marker says, StoreError.
    """
    home = find_home(store, tid)
    part = home and home.decision()
    if not home or not part:
        return False
    _put_part(store, tid, part, table_id=home.asker_id, where=home.url)
    return True


def carry_out_everywhere(home: Store, tid: str) -> None:
    """Commits a joint transaction that this table, its home, has committed, to its other tables, as far as it is not
    committed there. Then this table may forget it. A table that was dropped since needs nothing.

    Raises what `carry_out` raises.
    """
    body = get_if_there(home, names.committed(tid))
    where = home.url_of(names.committed(tid))
    info = decode_commit(body, where=where, scope=Scope.TABLE).dbio_commit if body else None
    if not body or info is None or info.joint is None or info.joint.home.path != HERE:
        return
    parts, own_id = read_parts(body, where=where), table_id_at(home)
    for table in info.joint.tables:
        part, other = parts.get(table.id), home.beside(table.path)
        if part is None or get_if_there(other, names.committed(tid)):
            continue
        if table_id_at(other) != table.id:
            if not home.shares_clock(other):  # when it was written, both were on one
                raise StoreError(
                    f"{home.url} and {other.url} lie on two mounts, so the table that {where} names there cannot be "
                    "seen from here; do this where both are mounted together"
                )
            continue
        # Only the table that the other one names decides for it. Its URL may have another spelling: links, letter case.
        asked = find_home(other, tid)
        if asked and asked.id == own_id and get_if_there(asked.store, names.committed(tid)) == body:
            _put_part(other, tid, part, table_id=table.id, where=where)


def _put_part(store: Store, tid: str, part: bytes, *, table_id: str, where: str) -> None:
    """Puts the commit marker that a home has for this table. `where` is the home's marker."""
    info = decode_commit(part, where=where, scope=Scope.TABLE).dbio_commit
    if info is None or info.table_id != table_id:
        raise CorruptMarkerError(f"{where} has a part for {store.url} that is of another table; {INSPECT}")
    commit_once(store, tid, part, commit_id=info.commit_id, is_young=lambda: False)


def _end_at_home(store: Store, tid: str, abort: CommitMarker) -> None:
    """Before a transaction is aborted here: if it is a joint one that another table decides, aborts it there.

    Raises TransactionStateError if its home has committed it: then it is committed here, too.
    """
    home = find_home(store, tid)
    if home is None or read_commit(store, names.committed(tid)) is not None:
        return  # what is decided here needs no home, which may be gone
    for _ in range(PUT_ATTEMPTS):
        decision = home.decision()
        if decision == ABORTED:
            return
        if decision is not None:
            _put_part(store, tid, decision, table_id=home.asker_id, where=home.url)
            raise TransactionStateError(f"transaction {tid} of {store.url} is committed; it cannot be aborted")
        path = names.committed(tid)
        if not home.store.put_if_absent(path, encode(abort)):
            _remove_empty(home.store, path)
        elif not has_start(home.store, tid):
            withdraw(home.store, path)  # the decision was purged meanwhile
    raise StoreError(f"{home.url} appears and disappears; try again")


def decided_long_ago(store: Store, tid: str) -> TransactionStateError:
    return TransactionStateError(f"transaction {tid} of {store.url} was decided long ago; it cannot be aborted")
