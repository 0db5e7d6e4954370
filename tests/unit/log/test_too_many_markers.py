"""A table with more commit markers than any reader reads: it is mended, and writers keep it from that.

The limit is small here. Rules: PROTOCOL.md 8.1, 9.7.
"""

from collections.abc import Callable

import pytest

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.commit import checkpoints
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.log import listing
from dbio_commit.protocol import names
from dbio_commit.protocol.names import Kind
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.unit.remembering import memory  # noqa: F401  (a fixture)
from tests.writers import contents, live, stage, write
from vacuum import VacuumOptions, vacuum_table


def sizes(store: MemoryStore, kind: Kind) -> list[int]:
    return [len(body) for path, (body, _) in store.objects.items() if path.startswith(kind)]


@pytest.fixture(params=["by paths", "by reference"])
def full(request: pytest.FixtureRequest, table: Table, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Appends, overwrites, applications, settings and columns that changed; and all that in ten parts."""
    if request.param == "by reference":
        monkeypatch.setattr(TableRoot, "refer_above", 0)
    clock = table.clock
    for number in range(12):
        clock.sleep(1)
        write(table, bodies=[f"{number} {part}".encode() for part in range(3)])
        if number % 4 == 1:
            clock.sleep(1)
            write(table, "overwrite", bodies=[b"kept", b"too"], schema=columns("id", f"c{number}"))
            clock.sleep(1)
            write(table, app=("job", number))
            clock.sleep(1)
            table.begin().abort()
    table.set({"change_data": "true"})
    write(table, bodies=[b"last"])
    return table


def told(table: Table) -> object:
    """All that a reader is told, also of the past."""
    now = table.snapshot()
    past = {tid: sorted(file.path for file in table.snapshot(tid).files) for tid in now.tids}
    return now.tids, past, now.schema, now.settings, now.app_versions


def limit(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(listing, "MAX_TOTAL_BYTES", most)


MENDS: dict[str, Callable[[Table], object]] = {
    "checkpoint": lambda table: table.checkpoint(),
    "vacuum": lambda table: vacuum_table(table, VacuumOptions()),
    "a writer": lambda table: checkpoints.checkpoint_by_chance(table.store, table.clock, every=1, written=1),
}


@pytest.mark.parametrize("mend", MENDS.values(), ids=MENDS)
def test_what_readers_refuse_is_covered_part_by_part_and_is_the_same_state(
    full: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, mend: Callable[[Table], object]
) -> None:
    before = told(full)
    limit(monkeypatch, sum(sizes(store, Kind.COMMITTED)) // 2)
    with pytest.raises(CorruptMarkerError, match="`dbio checkpoint` and `dbio vacuum` read them part by part"):
        full.snapshot()
    mend(full)
    assert told(full) == before
    assert len(sizes(store, Kind.CHECKPOINT)) > 2
    write(full, "overwrite", bodies=[b"new"])
    assert contents(full) == [b"new"]
    assert full.check().ok


def test_each_part_alone_changes_nothing_of_what_is_read(full: Table, store: MemoryStore) -> None:
    """Whatever is covered: no reader sees another state beside a checkpoint that was made in part."""
    before = told(full)
    total = sum(sizes(store, Kind.COMMITTED))
    for most in range(total // 10, total, total // 10):
        with pytest.MonkeyPatch.context() as patch:
            limit(patch, most)
            state = checkpoints._read_oldest(store, full.clock)
        if state is not None:
            assert checkpoints.write_checkpoint(store, full.clock, state)
            assert told(full) == before


def test_a_dry_run_makes_no_checkpoint_and_says_what_does(
    full: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 2000)
    objects = dict(store.objects)
    with pytest.raises(CorruptMarkerError, match="part by part"):
        vacuum_table(full, VacuumOptions(), dry_run=True)
    assert store.objects == objects


@pytest.mark.parametrize("is_covered", [True, False])
def test_a_table_with_ever_so_many_markers_can_be_dropped(
    full: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, is_covered: bool
) -> None:
    if is_covered:
        full.checkpoint()
    limit(monkeypatch, 4 * max(sizes(store, Kind.COMMITTED)))
    full.drop(everything=True)
    assert not store.objects


def test_a_writer_makes_a_checkpoint_before_readers_refuse_whatever_the_last_one_was(
    table: Table, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a stream into a table that nobody vacuums: its checkpoints are large, and its markers are not."""
    monkeypatch.setenv("DBIO_CHECKPOINT_EVERY", "4")
    monkeypatch.setattr(checkpoints, "MOST_BYTES", 10)
    limit(monkeypatch, 40_000)
    for _ in range(300):
        write(table)
        clock.sleep(20)
        assert table.snapshot()
    assert len(live(table)) == 300
    assert sum(sizes(store, Kind.COMMITTED)) > 1.5 * 40_000


def test_a_writer_of_large_markers_looks_more_often(
    table: Table, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than twenty of them are too many."""
    monkeypatch.setenv("DBIO_CHECKPOINT_EVERY", "64")
    monkeypatch.setattr(checkpoints, "LOOK_BYTES", 10_000)
    limit(monkeypatch, 160_000)
    for _ in range(40):
        with table.begin() as transaction:
            for _ in range(60):
                stage(table, transaction)
        clock.sleep(20)
        assert table.snapshot()
    assert sum(sizes(store, Kind.COMMITTED)) > 1.5 * 160_000
    assert (
        max(int(path.removeprefix(Kind.CHECKPOINT)) for path in store.objects if path.startswith(Kind.CHECKPOINT)) > 4
    )


def test_vacuum_makes_a_checkpoint_of_few_markers_that_are_large(
    table: Table, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 20_000)
    for _ in range(30):
        with table.begin() as transaction:
            for _ in range(12):
                stage(table, transaction)
        clock.sleep(20)
        assert vacuum_table(table, VacuumOptions()).ok
        assert table.snapshot()
    assert sum(sizes(store, Kind.COMMITTED)) > 1.5 * 20_000


def test_who_wants_no_checkpoints_of_writers_gets_none(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBIO_CHECKPOINT_EVERY", "0")
    limit(monkeypatch, 100)
    for _ in range(5):
        write(table)
    assert not sizes(store, Kind.CHECKPOINT)
    assert names.DESCRIPTOR in store.objects
