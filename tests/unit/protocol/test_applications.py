"""`check` lists applications with their versions, and names those that no writer can have brought about."""

import json
from datetime import timedelta

import pytest

from dbio_commit.protocol.applications import Application
from dbio_commit.protocol.checkpoint import Checkpoint, encode_checkpoint
from dbio_commit.protocol.versions import only_highest
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.writers import write


def only(table: Table) -> Application:
    (found,) = table.check().applications
    return found


def forge(store: MemoryStore, clock: ManualClock, tid: str, version: int, *, turn: int | None) -> None:
    """A commit of no file, put there by hand."""
    clock.advance(timedelta(seconds=1))
    info = {"version": 1, "operation": "append", "commit_id": "c", "timestamp": clock.now().isoformat(), "turn": turn,
            "app": {"id": "nightly", "version": version}}  # fmt: skip
    store.put(f"_committed_{tid}", json.dumps({"added": [], "removed": [], "dbio_commit": info}).encode())


@pytest.mark.parametrize("versions", [[0], [1, 2, 3], [20260101, 20260102], [7, 20260101], [1_790_000_000_000_000_000]])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_writers_do_is_listed_and_not_odd(
    table: Table, clock: ManualClock, versions: list[int], checkpoint: bool
) -> None:
    for version in versions:
        tid = write(table, app=("nightly", version)).tid
        clock.advance(timedelta(days=1))
    if checkpoint:
        table.checkpoint()
    found = only(table)
    assert (found.id, found.version, found.tid, found.odd) == ("nightly", versions[-1], tid, "")
    assert found.committed == clock.now() - timedelta(days=1)


def test_a_version_that_only_the_checkpoint_remembers_is_not_odd(table: Table, clock: ManualClock) -> None:
    write(table, app=("nightly", 5))
    write(table, "overwrite", bodies=[])
    table.checkpoint()
    clock.advance(timedelta(days=40))
    write(table, app=("nightly", 6))
    write(table, "overwrite", bodies=[])
    assert only(table).odd == ""


def test_a_version_next_to_the_highest_there_can_be_is_odd(table: Table) -> None:
    write(table, app=("nightly", 20260101))
    write(table, app=("nightly", (1 << 63) - 1))
    assert "no writer counts up to 9223372036854775807" in only(table).odd


def test_a_commit_without_a_turn_is_odd(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    write(table, app=("nightly", 1))
    forge(store, clock, "77", 99, turn=None)
    assert "version 99 was committed without a turn" in only(table).odd
    assert "77" in only(table).odd


def test_a_lower_version_after_a_higher_one_is_odd(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    write(table, app=("nightly", 20260101))
    forge(store, clock, "77", 7, turn=2)
    assert "version 7 was committed after 20260101" in only(table).odd


def test_a_version_in_a_checkpoint_that_no_commit_supports_is_odd(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table, app=("nightly", 20260101))
    snapshot = table.snapshot()
    forged = Checkpoint(
        number=1, commits=snapshot.decided, apps={"nightly": only_highest(20990101)}, metadata=snapshot.metadata
    )
    store.put("_checkpoint_00000000000000000001", encode_checkpoint(forged, created=clock.now()))
    found = only(table)
    assert (found.version, found.tid) == (20990101, None)
    assert "the checkpoint says 20990101, but no commit does, and 20260101 was committed since" in found.odd


def test_a_table_without_applications_lists_none(table: Table) -> None:
    write(table)
    assert table.check().applications == []
