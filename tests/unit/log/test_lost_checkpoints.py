"""A checkpoint that cannot be read, or is gone (PROTOCOL.md 9.7, 10.4): nobody takes what is left for the table."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from dbio_commit.base.errors import CheckpointLostError, InvalidInputError
from dbio_commit.log.object_cache import CACHE
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import once
from tests.writers import contents, data_files, live, write

HOUR = timedelta(hours=1)


def checkpoints(store: MemoryStore) -> list[str]:
    return sorted(path for path in store.objects if path.startswith("_checkpoint_"))


def break_off(store: MemoryStore, path: str) -> None:
    body, modified = store.objects[path]
    store.put(path, body[:-20], modified=modified)


@pytest.fixture(params=[3, 40], ids=["days", "weeks"])
def purged(table: Table, store: MemoryStore, clock: ManualClock, request: pytest.FixtureRequest) -> Table:
    """A table whose markers are purged, but for its last commit. Its last turn is so many days old."""
    write(table, schema=columns("a"))
    clock.advance(timedelta(days=request.param))
    for _ in range(30):
        write(table, schema=columns("a"))
        clock.advance(timedelta(minutes=10))
    vacuum_table(table, VacuumOptions())
    clock.advance(HOUR)
    vacuum_table(table, VacuumOptions())
    write(table, schema=columns("a"))
    clock.advance(timedelta(days=3))
    assert len([path for path in store.objects if path.startswith("_committed_")]) == 1
    assert len(live(table)) == 32
    return table


def test_what_is_purged_is_told_by_two_checkpoints(purged: Table, store: MemoryStore) -> None:
    assert checkpoints(store) == [names.checkpoint(1), names.checkpoint(2)]
    assert names.purge(1) in store.objects


@pytest.mark.parametrize("mixed", [False, True], ids=["before its second listing", "within its first listing"])
def test_a_reader_of_a_table_that_is_dropped_and_made_anew_meanwhile_finds_the_new_one(
    purged: Table, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, mixed: bool
) -> None:
    def anew() -> None:
        Table.over(store, clock).drop(everything=True)
        clock.advance(HOUR)
        write(Table.over(store, clock), schema=columns("a"), bodies=[b"new"])

    CACHE.forget()
    if mixed:  # a disk lists in any order
        old = next(it for it in store.list_log() if it.path == names.purge(1))
        anew()
        listings = iter([[old]])
        list_log = store.list_log
        monkeypatch.setattr(store, "list_log", lambda *prefixes: [*next(listings, []), *list_log(*prefixes)])
    else:
        store.before = once("list_log", "_checkpoint_*", anew)
    assert contents(purged) == [b"new"]


@pytest.mark.parametrize("lost", [1, 2])
def test_the_loss_of_one_checkpoint_harms_nobody(
    purged: Table, store: MemoryStore, clock: ManualClock, lost: int
) -> None:
    files = live(purged)
    del store.objects[names.checkpoint(lost)]
    for _ in range(4):
        assert live(purged) == files
        assert vacuum_table(purged, VacuumOptions(checkpoint_after=1)).ok
        files |= set(write(purged, schema=columns("a")).added)
        clock.advance(HOUR)
    assert live(purged) == files == data_files(store)
    assert purged.check().ok


@pytest.mark.parametrize(
    "use",
    [
        lambda table: table.snapshot(),
        lambda table: table.history(),
        lambda table: table.check(),
        lambda table: table.checkpoint(),
        lambda table: table.checkpoint(rebuild=True),
        lambda table: write(table, "overwrite"),
        lambda table: vacuum_table(table, VacuumOptions()),
        lambda table: vacuum_table(table, VacuumOptions(), dry_run=True),
    ],
)
def test_the_loss_of_all_that_tell_what_was_purged_is_an_error_for_everybody(
    purged: Table, store: MemoryStore, use: Callable[[Table], object]
) -> None:
    files = data_files(store)
    for path in checkpoints(store):
        del store.objects[path]
    with pytest.raises(CheckpointLostError, match="is gone, and so is every later checkpoint"):
        use(purged)
    assert data_files(store) >= files


def test_the_error_goes_away_when_the_checkpoint_is_brought_back(purged: Table, store: MemoryStore) -> None:
    files, kept = live(purged), {path: store.objects[path] for path in checkpoints(store)}
    for path in kept:
        del store.objects[path]
    store.objects[names.checkpoint(1)] = kept[names.checkpoint(1)]
    assert live(purged) == files


def test_a_checkpoint_that_cannot_be_read_is_made_anew_of_the_one_before(
    purged: Table, store: MemoryStore, clock: ManualClock
) -> None:
    files, history = live(purged), purged.history()
    break_off(store, names.checkpoint(2))
    with pytest.raises(CheckpointLostError, match="is cut off"):
        purged.snapshot()
    with pytest.raises(CheckpointLostError, match=rf"{names.checkpoint(1)} and the markers hold the same") as caught:
        purged.check()
    assert "dbio checkpoint memory://table --rebuild" in str(caught.value)
    assert purged.checkpoint(rebuild=True) == names.checkpoint(3)
    assert live(purged) == files
    assert purged.history() == history
    assert purged.check().ok
    with pytest.raises(InvalidInputError, match="nothing to rebuild"):
        purged.checkpoint(rebuild=True)
    for _ in range(3):
        assert vacuum_table(purged, VacuumOptions()).ok
        assert live(purged) == files
        clock.advance(HOUR)
    assert names.checkpoint(2) not in store.objects


def test_a_checkpoint_that_cannot_be_read_is_made_anew_of_the_markers_where_nothing_was_purged(
    table: Table, store: MemoryStore
) -> None:
    for body in (b"a", b"b"):
        write(table, bodies=[body])
    table.checkpoint()
    break_off(store, names.checkpoint(1))
    with pytest.raises(CheckpointLostError, match="The markers hold the same"):
        table.check()
    assert table.checkpoint(rebuild=True) == names.checkpoint(2)
    assert contents(table) == [b"a", b"b"]


def test_nothing_is_made_anew_where_files_are_of_transactions_that_nobody_knows(
    table: Table, store: MemoryStore
) -> None:
    """A vacuum of earlier software has purged by the one checkpoint, and has said so nowhere."""
    commits = [write(table, bodies=[body]) for body in (b"a", b"b")]
    table.checkpoint()
    for commit in commits:
        store.delete_many([names.started(commit.tid), names.committed(commit.tid)])
    write(table, bodies=[b"c"])
    break_off(store, names.checkpoint(1))
    with pytest.raises(CheckpointLostError, match="2 data files"):
        table.checkpoint(rebuild=True)
    with pytest.raises(CheckpointLostError, match="cannot be rebuilt"):
        table.check()


def test_both_checkpoints_that_tell_what_was_purged_cannot_be_read(purged: Table, store: MemoryStore) -> None:
    for path in checkpoints(store):
        break_off(store, path)
    with pytest.raises(CheckpointLostError, match="cannot be rebuilt"):
        purged.check()
    with pytest.raises(CheckpointLostError):
        purged.checkpoint(rebuild=True)


def test_a_table_whose_checkpoints_are_lost_can_still_be_dropped(purged: Table, store: MemoryStore) -> None:
    for path in checkpoints(store):
        del store.objects[path]
    purged.drop(everything=True)
    assert not store.objects


def test_the_record_of_a_purge_stays_until_another_is_there(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    for commits in (25, 0, 3, 25, 0, 30):
        for _ in range(commits):
            write(table)
        assert vacuum_table(table, VacuumOptions()).ok
        clock.advance(timedelta(days=1))
        purged = [commit for commit in table.history() if names.committed(commit.tid) not in store.objects]
        assert any(path.startswith("_purged_") for path in store.objects) == bool(purged)
    kept = dict(store.objects)
    for path in checkpoints(store):
        del store.objects[path]
    with pytest.raises(CheckpointLostError):
        table.snapshot()
    store.objects = kept
    assert len(live(table)) == 83


def test_nothing_is_purged_by_a_number_of_which_another_table_has_the_record(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    for _ in range(30):
        write(table)
    body = b'{"version": 1, "table_id": "another", "created": "2026-11-20T00:00:00Z"}'
    store.put(names.purge(1), body)
    for _ in range(2):
        vacuum_table(table, VacuumOptions())
        clock.advance(HOUR)
    for path in checkpoints(store):
        del store.objects[path]
    assert len(live(table)) == 30


def test_a_purge_record_that_cannot_be_read_is_no_reason_to_remove_it(purged: Table, store: MemoryStore) -> None:
    store.put(names.purge(9), b"{")
    with pytest.raises(CheckpointLostError, match="do not remove it"):
        purged.snapshot()
    purged.drop(everything=True)
    assert not store.objects


def test_a_checkpoint_is_not_made_anew_where_a_file_of_the_state_without_it_is_gone(
    table: Table, store: MemoryStore
) -> None:
    first = write(table)
    write(table, "overwrite")
    table.checkpoint()
    write(table)
    overwrite = table.history()[1]
    store.delete_many([*first.added, names.started(overwrite.tid), names.committed(overwrite.tid)])
    store.delete_many([*overwrite.added])
    break_off(store, names.checkpoint(1))
    with pytest.raises(CheckpointLostError, match="do not exist, first"):
        table.checkpoint(rebuild=True)
