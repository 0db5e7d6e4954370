"""Writes checkpoints: what the log says, in one object."""

from collections.abc import Collection
from datetime import timedelta

from dbio_commit.clock import Clock
from dbio_commit.errors import (
    InvalidInputError,
)
from dbio_commit.probe import prove_store
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import HISTORY, Checkpoint, condense, encode_checkpoint
from dbio_commit.protocol.scope import Scope
from dbio_commit.roots import read_snapshot
from dbio_commit.snapshot import Snapshot
from dbio_commit.store import Store


def write_checkpoint(
    store: Store,
    clock: Clock,
    snapshot: Snapshot,
    *,
    gone: Collection[str] = (),
    history: timedelta = HISTORY,
) -> str | None:
    """Writes what the snapshot, of now, counted as the next checkpoint; returns its name.

    `gone` are removed files that are deleted. None where somebody else was faster, or where there is nothing new.
    Raises InvalidInputError where it would not fit into one object.
    """
    before = snapshot.checkpoint
    if not snapshot.decided or (len(snapshot.decided) == len(before.commits) and not gone):
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
        commits=tuple(commits),
        apps=snapshot.app_versions,
        schema=snapshot.table_schema,
        known_since=known_since,
    )
    name = names.checkpoint(checkpoint.number)
    body = encode_checkpoint(checkpoint, created=now)
    if store.put_if_absent(name, body) or store.get(name) == body:  # an answer of our own that was lost
        return name
    return None


def checkpoint_now(store: Store, clock: Clock) -> str | None:
    """As `write_checkpoint`, of the table as it is now. Raises InvalidInputError where it is no table of ours."""
    snapshot = read_snapshot(store, clock)
    if snapshot.scope is not Scope.TABLE:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so it has no checkpoints; `dbio adopt` makes it a table"
        )
    prove_store(store)
    return write_checkpoint(store, clock, snapshot)
