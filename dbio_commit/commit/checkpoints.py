"""Writes checkpoints. A checkpoint records what the markers in the log record."""

import logging
from collections.abc import Container, Iterable, Set
from dataclasses import replace
from datetime import datetime, timedelta

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, ObjectNotFoundError
from dbio_commit.base.logs import best_effort, get_logger
from dbio_commit.commit.probe import prove_store
from dbio_commit.log.listing import (
    Brief,
    CheckpointLimit,
    are_large,
    is_dropped,
    read_checkpoint,
    read_descriptor,
    until_quiet,
)
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.settled import Oldest, read_settled
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.table_state import snapshot_of_parts, state_of
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import committed_by
from dbio_commit.protocol.checkpoint import HISTORY, Checkpoint, condense, encode_checkpoint, encode_root
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.commit import check_marker
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import FilesInParts
from dbio_commit.store import Store

_log = get_logger(__name__)


def write_checkpoint(
    store: Store,
    clock: Clock,
    snapshot: Snapshot,
    *,
    gone: Container[str] | None = None,
    history: timedelta = HISTORY,
    again: bool = False,
    erasure: str | None = None,
) -> str | None:
    """Writes the next checkpoint from a snapshot of the newest state; returns its name.

    None if there is nothing new, if another process was faster, or if an erasure came meanwhile, which purged the
    number: then nothing is left of the checkpoint.

    - `gone` has the removed files that are deleted: only removed files are looked up in it. Without it, a checkpoint
      with parts forgets nothing, so that it need not read what it covers already.
    - `again`: one is written even if there is nothing new.
    - `erasure` is the id of an erasure: no object that the new checkpoint names has anything of the forgotten paths,
      and states before now count as erased.

    Raises InvalidInputError if it would not fit into one object.
    """
    now = clock.now()
    keep_since = now - history
    if snapshot.checkpoint.is_root and isinstance(snapshot.files, FilesInParts):  # a rebuild has read all rows already
        made = _next_root(store, snapshot, gone=gone, keep_since=keep_since, again=again, erasure=erasure, now=now)
    else:
        lost = gone or frozenset()
        made = _next_of_all(store, snapshot, gone=lost, keep_since=keep_since, again=again, erasure=erasure, now=now)
    if made is None:
        return None
    written, body = made
    name = names.checkpoint(written.number)
    try:
        is_there = store.put_if_absent(name, body) or store.get(name) == body  # or the answer was lost
    except ObjectNotFoundError:  # an erasure has purged a checkpoint with this number
        _withdrawn_as_late(store, written)
        return None
    if not is_there:
        withdraw_parts(store, written)
        return None
    return None if _withdrawn_as_late(store, written) else name


def _withdrawn_as_late(store: Store, written: Checkpoint) -> bool:
    """Deletes the checkpoint again if it came after an erasure that had purged its number: it may name what is erased.
    Returns whether that is so.

    Then there is a checkpoint with a higher number, from this erasure or a later one. It records all that this one
    does.
    """
    log = parse_log(store.list_log(Kind.CHECKPOINT))
    if log.last_checkpoint <= written.number:
        return False
    try:
        newest = read_checkpoint(store, log, table_id=written.table_id)
    except (CorruptMarkerError, ObjectNotFoundError) as error:  # the next reader reports it
        _log.info("%s: %s stays, after which others were written: %s", store.url, written.number, error)
        return False
    if newest.last_erasure in (None, written.last_erasure):
        return False
    for path, failure in store.delete_many([names.checkpoint(written.number)]).items():
        _log.warning("%s came late, and is left for vacuum: %s", store.url_of(path), failure)
    withdraw_parts(store, written, but={name for part in newest.parts for name in part.objects})
    return True


Made = tuple[Checkpoint, bytes]
"""A checkpoint, and its body, which is not written yet."""


def _next_of_all(
    store: Store,
    snapshot: Snapshot,
    *,
    gone: Container[str],
    keep_since: datetime,
    again: bool,
    erasure: str | None,
    now: datetime,
) -> Made | None:
    """The next checkpoint, from all transactions with all of their paths."""
    before, decided = snapshot.checkpoint, snapshot.decided
    has_news = bool(snapshot.news) if before.is_root else len(decided) != len(before.commits)
    lost = {path for commit in decided for path in commit.marker.removed if path in gone}
    if not again and not ((has_news or lost) and decided):
        return None
    commits, known_since = condense(
        decided, gone=lost, noted=_noted(snapshot), keep_since=keep_since, known_since=before.known_since
    )
    checkpoint = replace(_next(snapshot, erasure), commits=commits, known_since=known_since)
    if erasure and lost:
        checkpoint = replace(checkpoint, erased_until=known_since)
    return put_parts(store, snapshot, checkpoint, created=now)


def _next_root(
    store: Store,
    snapshot: Snapshot,
    *,
    gone: Container[str] | None,
    keep_since: datetime,
    again: bool,
    erasure: str | None,
    now: datetime,
) -> Made | None:
    """The next root. Never reads at once all that the parts of the root before it hold."""
    from dbio_commit.commit.parts import only_adds, write_changes, write_parts

    is_due = again or bool(snapshot.news)
    checkpoint: Checkpoint | None
    if gone is None and only_adds(snapshot) and not erasure:
        adds = replace(_next(snapshot, None), commits=snapshot.transactions)
        checkpoint = write_parts(store, snapshot, adds) if is_due else None
    else:
        checkpoint = write_changes(
            store,
            snapshot,
            _next(snapshot, erasure),
            gone=frozenset() if gone is None else gone,
            noted=_noted(snapshot),
            keep_since=keep_since,
            is_due=is_due,
            erases=erasure is not None,
        )
    return (checkpoint, encode_root(checkpoint, created=now)) if checkpoint else None


def _next(snapshot: Snapshot, erasure: str | None) -> Checkpoint:
    """The next checkpoint, without transactions. `erasure` is the id of an erasure that it completes."""
    before = snapshot.checkpoint
    return Checkpoint(
        number=snapshot.log.checkpoint_after(before.number),
        table_id=snapshot.table_id,
        apps=snapshot.app_versions,
        metadata=snapshot.metadata,
        known_since=before.known_since,
        erased_until=before.erased_until,
        last_erasure=erasure or before.last_erasure,
        redated_until=snapshot.redated_until,
        doubts=snapshot.doubts,
    )


def _noted(snapshot: Snapshot) -> Set[str]:
    """The transactions that have markers in the log."""
    return snapshot.log.started.keys() | snapshot.log.committed.keys()


LARGE_FILES = 50_000
"""A checkpoint with at least this many paths puts its transactions into parts."""

LARGE_BYTES = 2 * 1024**2
"""A checkpoint whose body has more bytes puts its transactions into parts. A table stays with parts once it has
them."""


def put_parts(
    store: Store, snapshot: Snapshot, checkpoint: Checkpoint, *, created: datetime, is_first: bool = False
) -> tuple[Checkpoint, bytes]:
    """If the table is large, writes the parts of a new checkpoint, which hold its transactions.

    Returns the checkpoint, and its body, which the caller writes. The checkpoint follows that of the snapshot. With
    `is_first` it is the first one of a table that is made from the snapshot.
    """
    if (is_first or not snapshot.checkpoint.is_root) and _count_paths(checkpoint.commits) < LARGE_FILES:
        try:
            body = encode_checkpoint(checkpoint, created=created, complete=True)
            if len(body) <= LARGE_BYTES:
                return checkpoint, body
        except InvalidInputError:  # it does not fit into one object, or a marker in it is invalid
            _refuse_invalid(checkpoint.commits)
    from dbio_commit.commit.parts import write_parts  # imports pyarrow, which small tables do without

    root = write_parts(store, snapshot, checkpoint, is_first=is_first)
    return root, encode_root(root, created=created)


def _refuse_invalid(commits: Iterable[Decided]) -> None:
    """Raises InvalidInputError for a marker that no reader would accept."""
    try:
        for commit in commits:
            check_marker(commit.marker, where="the checkpoint", scope=Scope.TABLE)
    except CorruptMarkerError as error:
        raise InvalidInputError(f"no checkpoint was written, because no reader could read it: {error}") from None


def _count_paths(commits: Iterable[Decided]) -> int:
    return sum(len(commit.marker.added) + len(commit.marker.removed) for commit in commits)


def withdraw_parts(store: Store, lost: Checkpoint, *, but: Container[str] = ()) -> None:
    """Deletes the parts of a checkpoint that was not created, or was put out of use. No other checkpoint names them,
    except those in `but`."""
    parts = [*lost.parts, *(it.part for it in lost.dropped if it.by == lost.number)]
    own = [
        name for part in parts for name in part.objects if names.part_number(name) == lost.number and name not in but
    ]
    for path, failure in store.delete_many(own).items():
        _log.info("%s is left for vacuum: %s", store.url_of(path), failure)


MOST_BYTES = 8 * 1024**2
"""If the last checkpoint was larger, a writer leaves the next one to vacuum, since writing it takes seconds. It writes
one all the same if the markers that it would cover are large together."""

LOOK_BYTES = 16 * 1024**2
"""About once for so many bytes of new commit markers, a writer checks whether a checkpoint is due."""


def checkpoint_by_chance(store: Store, clock: Clock, *, every: int, written: int) -> None:
    """After one in `every` commits, writes a checkpoint if more than `every` commits are not covered.

    `written` is the size of the commit marker in bytes: after large markers, it checks more often. If many commits are
    covered, more must be uncovered before the next checkpoint, so that all checkpoints together are not much larger
    than what is committed. If the uncovered markers are so large together that readers would soon read them without
    statistics, it writes one however large the last was. A failure is only logged, since the commit stands. It purges
    nothing: only vacuum does.
    """
    if not every or clock.random_bits(31) % min(every, max(LOOK_BYTES // max(written, 1), 1)):
        return
    with best_effort(_log, "%s: no checkpoint was made after a commit", store.url, level=logging.INFO):
        catch_up(store, clock)
        snapshot = read_snapshot(store, clock)
        covered = snapshot.checkpoint.covered
        last = snapshot.log.checkpoints.get(snapshot.checkpoint.number)
        new = snapshot.log.uncovered(covered)
        if snapshot.checkpoint.is_root:
            is_due = len(new) > every  # a root costs little more than its new rows
        else:
            is_due = len(new) > max(every, len(covered) // every) and (last is None or last.size <= MOST_BYTES)
        if is_due or are_large(new.values()):
            prove_store(store)
            write_checkpoint(store, clock, snapshot)


def checkpoint_now(store: Store, clock: Clock) -> str | None:
    """As `write_checkpoint`, of the table as it is now. Raises InvalidInputError if it is not a dbio table."""
    caught_up = catch_up(store, clock)
    snapshot = read_snapshot(store, clock)
    if snapshot.scope is not Scope.TABLE:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so it has no checkpoints; `dbio adopt` makes it a table"
        )
    prove_store(store)
    return write_checkpoint(store, clock, snapshot) or caught_up


def catch_up(store: Store, clock: Clock, *, to_the_end: bool = False) -> str | None:
    """If the uncovered commit markers are too large together, writes several checkpoints that cover them, oldest first.

    So the checkpoints have the statistics of all markers, and the memory is bounded. If one of them cannot be made,
    that is logged, and ends this: the caller reads the rest without statistics. With `to_the_end`, a last checkpoint
    covers the rest, if there was one before it. Returns the name of the last checkpoint, or None. Raises as
    `read_snapshot` does.
    """
    name = None
    briefs: dict[str, Brief | None] = {}
    is_last = False
    while not is_last:
        state = until_quiet(store, lambda: _read_oldest(store, clock, briefs))
        if state is None:
            if not (to_the_end and name):
                break
            state, is_last = read_snapshot(store, clock), True
        prove_store(store)
        try:
            name = write_checkpoint(store, clock, state) or name
        except InvalidInputError as error:
            _log.warning("%s: the oldest commits have no checkpoint that keeps their statistics: %s", store.url, error)
            break
    return name


def _read_oldest(store: Store, clock: Clock, briefs: dict[str, Brief | None]) -> Snapshot | None:
    """The state after the oldest commits, for a checkpoint of these. None if the next checkpoint can cover all, or if
    this is no table. `briefs`: see `Oldest`."""
    looked, log = clock.moment(), parse_log(store.list_log())
    markers, least = log.committed.values(), CheckpointLimit.after(is_root=True)
    if log.descriptor is None or is_dropped(store, log) or not least.may_be_less_than(markers):
        return None
    table_id = read_descriptor(store, log).id
    checkpoint = read_checkpoint(store, log, table_id=table_id)
    oldest = Oldest(CheckpointLimit.after(is_root=checkpoint.is_root), briefs)
    new = log.uncovered(checkpoint.covered)
    if not oldest.most.may_be_less_than(new.values()):
        return None
    read = oldest.read(store, new, table_id=table_id)
    if oldest.most.weigh((new[tid], brief) for tid, brief in read.items()) <= oldest.most.bytes:
        return None
    settled = read_settled(store, clock, log, oldest=oldest, looked=looked)
    settled.markers.only_valid(ignore_corrupt=False)
    if not settled.news:
        return None  # no checkpoint would cover more
    if settled.checkpoint.is_root:
        return snapshot_of_parts(store, settled)
    decided = tuple(committed_by(settled.decided, None))
    found = state_of(store, settled, (), (), decided=decided, news=settled.news)
    return replace(found, checkpoint=settled.checkpoint)
