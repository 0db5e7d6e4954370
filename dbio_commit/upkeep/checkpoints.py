"""Writes checkpoints: what the log says, in one object."""

import logging
from collections.abc import Collection
from datetime import timedelta

from dbio_commit.clock import Clock
from dbio_commit.courtesies import courtesy
from dbio_commit.errors import InvalidInputError
from dbio_commit.logs import get_logger
from dbio_commit.probe import prove_store
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import HISTORY, Checkpoint, condense, encode_checkpoint
from dbio_commit.protocol.scope import Scope
from dbio_commit.roots import read_snapshot
from dbio_commit.snapshot import Snapshot
from dbio_commit.store import Store

_log = get_logger(__name__)


def write_checkpoint(
    store: Store,
    clock: Clock,
    snapshot: Snapshot,
    *,
    gone: Collection[str] = (),
    history: timedelta = HISTORY,
    again: bool = False,
) -> str | None:
    """Writes what the snapshot, of now, counted as the next checkpoint; returns its name.

    `gone` are removed files that are deleted. None where somebody else was faster, or where there is nothing new; with
    `again`, another says the same then. Raises InvalidInputError where it would not fit into one object.
    """
    before = snapshot.checkpoint
    has_news = len(snapshot.decided) != len(before.commits) or gone
    if not snapshot.decided or not (has_news or again):
        return None
    now = clock.now()
    commits, known_since = condense(
        snapshot.decided,
        gone=gone,
        noted=snapshot.log.started.keys() | snapshot.log.committed.keys(),
        keep_since=now - history,
        known_since=before.known_since,
    )
    checkpoint = Checkpoint(
        number=snapshot.log.checkpoint_after(before.number),
        table_id=snapshot.table_id,
        commits=tuple(commits),
        apps=snapshot.app_versions,
        metadata=snapshot.metadata,
        known_since=known_since,
        redated_until=snapshot.redated_until,
    )
    name = names.checkpoint(checkpoint.number)
    body = encode_checkpoint(checkpoint, created=now)
    if store.put_if_absent(name, body) or store.get(name) == body:  # an answer of our own that was lost
        return name
    return None


MOST_BYTES = 8 * 1024**2
"""A writer makes none where the last was larger: it would take seconds, and is left to vacuum."""


def checkpoint_by_chance(store: Store, clock: Clock, *, every: int) -> None:
    """For writers, after a commit: in one of `every` cases, makes a checkpoint where more commits are not covered.

    Of many that are covered, more must not be, so that all of them together write not much more than is committed. A
    failure is logged, and nothing else: the commit stands. Only vacuum purges.
    """
    if not every or clock.random_bits(31) % every:
        return
    with courtesy(_log, "%s: no checkpoint was made after a commit", store.url, level=logging.INFO):
        snapshot = read_snapshot(store, clock)
        covered = snapshot.checkpoint.covered
        last = snapshot.log.checkpoints.get(snapshot.checkpoint.number)
        is_due = len(snapshot.log.uncovered(covered)) > max(every, len(covered) // every)
        if is_due and (last is None or last.size <= MOST_BYTES):
            prove_store(store)
            write_checkpoint(store, clock, snapshot)


def checkpoint_now(store: Store, clock: Clock) -> str | None:
    """As `write_checkpoint`, of the table as it is now. Raises InvalidInputError where it is no table of ours."""
    snapshot = read_snapshot(store, clock)
    if snapshot.scope is not Scope.TABLE:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so it has no checkpoints; `dbio adopt` makes it a table"
        )
    prove_store(store)
    return write_checkpoint(store, clock, snapshot)
