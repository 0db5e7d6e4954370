"""A table whose commit markers are too large together for their statistics: everybody reads it, without these. A
checkpoint brings them back, and writers keep it from that.

The limit is small here. Rules: PROTOCOL.md 7.5, 8.1, 9.7.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit import checkpoints
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.log import listing
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.vacuum.table import TableVacuum
from dbio_commit.protocol import names
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import NOW, OLD, World, columns, data
from tests.faults import calls_to, once
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
        write(table, bodies=[f"{number} {part}".encode() for part in range(3)], statistics={"id": Bounds(1, 2, 0)})
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
    monkeypatch.setattr(listing, "STATISTICS_BYTES", most)


UNKEPT = "were not kept in memory"


def unkept(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings that statistics were not kept."""
    return [it.getMessage() for it in caplog.records if UNKEPT in it.getMessage()]


def statistics(table: Table) -> dict[str, object]:
    """The statistics that a reader has, by the path of the file."""
    return {it.path: it.statistics for commit in table.snapshot().history() for it in commit.files if it.statistics}


MENDS: dict[str, Callable[[Table], object]] = {
    "checkpoint": lambda table: table.checkpoint(),
    "vacuum": lambda table: vacuum_table(table, VacuumOptions()),
    "a writer": lambda table: checkpoints.checkpoint_by_chance(table.store, table.clock, every=1, written=1),
}


@pytest.mark.parametrize("mend", MENDS.values(), ids=MENDS)
def test_what_is_too_large_is_read_and_covered_part_by_part_with_its_statistics(
    full: Table,
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mend: Callable[[Table], object],
) -> None:
    before, known = told(full), statistics(full)
    assert len(known) > 20
    limit(monkeypatch, sum(sizes(store, Kind.COMMITTED)) // 4)
    caplog.clear()
    assert told(full) == before
    assert not statistics(full)
    assert unkept(caplog)
    mend(full)
    caplog.clear()
    assert told(full) == before
    assert statistics(full) == known
    assert not unkept(caplog)
    assert len(sizes(store, Kind.CHECKPOINT)) > 2
    write(full, "overwrite", bodies=[b"new"])
    assert contents(full) == [b"new"]
    assert full.check().ok


def test_a_read_without_statistics_warns_once_with_numbers_and_the_next_step(
    full: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    markers = sizes(store, Kind.COMMITTED)
    limit(monkeypatch, sum(markers))
    full.snapshot()
    assert not unkept(caplog)
    limit(monkeypatch, sum(markers) - 1)
    full.snapshot()
    [warning] = unkept(caplog)
    for fact in (f"{len(markers)} commit markers", f"{sum(markers)} bytes", f"at most {sum(markers) - 1}:"):
        assert fact in warning
    assert f"`dbio checkpoint {full.url}`" in warning
    assert {it.levelname for it in caplog.records if UNKEPT in it.getMessage()} == {"WARNING"}


def test_large_markers_without_statistics_are_no_reason_to_warn(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        write(table)
    limit(monkeypatch, 10)
    assert len(table.snapshot().files) == 3
    assert not unkept(caplog)


def test_check_says_that_readers_keep_no_statistics_and_that_nothing_is_wrong(
    full: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not full.check().unkept_statistics
    limit(monkeypatch, 100)
    report = full.check()
    assert UNKEPT in report.unkept_statistics
    assert report.ok
    assert not report.without_statistics  # nothing was left out of the markers themselves
    full.checkpoint()
    assert not full.check().unkept_statistics


def test_what_was_remembered_without_statistics_is_read_again_by_who_needs_them(
    full: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a process that has read the table once would write checkpoints without statistics."""
    known = statistics(full)
    again = Table.over(store.seen_by("another"), full.clock)
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, 100)
        assert not statistics(again)
        with calls_to(store) as calls:
            assert not statistics(again)
        assert not [path for operation, path in calls if operation == "get" and path.startswith(Kind.COMMITTED)]
    assert statistics(again) == known


def test_of_the_bodies_of_markers_only_a_few_are_in_memory(full: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    ask_each = MemoryStore.ask_each

    def ask(self: MemoryStore, function: Any, items: Any) -> Any:
        batches.append(sum(getattr(it, "size", 0) for it in items))
        return ask_each(self, function, items)

    before = told(full)
    monkeypatch.setattr(listing, "_AT_ONCE_BYTES", 5000)
    monkeypatch.setattr(MemoryStore, "ask_each", ask)
    other = Table.over(full.store, full.clock)
    listing.read_markers(full.store, full.store.list_log(Kind.COMMITTED), scope=Scope.TABLE)
    assert len(batches) > 3
    assert max(batches) <= 5000
    assert told(other) == before


def test_each_part_alone_changes_nothing_of_what_is_read(full: Table, store: MemoryStore) -> None:
    """Whatever is covered: no reader sees another state beside a checkpoint that was made in part."""
    before = told(full)
    total = sum(sizes(store, Kind.COMMITTED))
    for most in range(total // 10, total, total // 10):
        with pytest.MonkeyPatch.context() as patch:
            limit(patch, most)
            state = checkpoints._read_oldest(store, full.clock, {})
        if state is not None:
            assert checkpoints.write_checkpoint(store, full.clock, state)
            assert told(full) == before


@pytest.mark.parametrize("skew_s", [9, 30])
@pytest.mark.parametrize("seed", range(8))
def test_no_part_has_a_turn_without_those_before_it_whatever_the_stores_clock_says(
    monkeypatch: pytest.MonkeyPatch, seed: int, skew_s: int
) -> None:
    """Appends know of turns by the columns that they have. R3: PROTOCOL.md 8.1."""
    chance = random.Random(36 + seed)
    world, turns = World(), dict[str, int]()
    for number in range(30):
        takes = chance.random() < 0.6
        turns[str(number)] = known = max(turns.values(), default=0) + takes
        turn: dict[str, Any] = {"turn": known, "operation": "overwrite"}
        if not takes:
            turn = {"schema_turn": known, "schema": {"type": "struct", "fields": []}}
        at = NOW + timedelta(seconds=number + chance.uniform(-skew_s, skew_s))
        world.commit(str(number), [data(str(number))], at=at, **(turn if known else {}))
    own = {turns[tid]: tid for tid in sorted(turns, key=int, reverse=True)}  # the first that knows of a turn took it
    limit(monkeypatch, 2000)
    while (state := checkpoints._read_oldest(world, world.clock, {})) is not None:
        assert {own[turn] for tid in state.tids for turn in range(1, turns[tid] + 1)} <= {*state.tids}
        assert checkpoints.write_checkpoint(world, world.clock, state)
        assert len(world.snapshot().tids) == 30
    assert len(sizes(world, Kind.CHECKPOINT)) > 1


AGAIN = "_checkpoint_ _committed_"


def test_a_turn_that_only_the_last_listing_shows_is_in_the_part_that_knows_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    for number in range(20):
        world.commit(str(number), [data(str(number))], at=NOW + timedelta(seconds=number))
    late = NOW + timedelta(hours=1)
    takes = [
        once("list_log", AGAIN, lambda: world.commit("t2", at=NOW, operation="overwrite", turn=2)),
        once("list_log", "_committed_", lambda: world.commit("t1", at=late, operation="overwrite", turn=1)),
    ]

    def before(operation: str, path: str) -> None:
        for take in takes:
            take(operation, path)

    world.before = before
    limit(monkeypatch, 400)
    state = checkpoints._read_oldest(world, world.clock, {})
    assert state is not None
    assert {"t1", "t2"} <= {*state.tids}


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("files", [1, 1000])
def test_markers_of_another_table_are_in_no_part(monkeypatch: pytest.MonkeyPatch, parts: bool, files: int) -> None:
    """A writer that slept while the table was made anew may leave one, however large. No checkpoint covers it."""
    world = World()
    table = world.table()
    for number in range(30):
        world.commit(str(number), [data(str(number))], at=NOW + timedelta(seconds=number))
    if parts:
        monkeypatch.setattr(checkpoints, "LARGE_BYTES", 0)
        table.checkpoint()
    for number in range(30, 60):
        world.commit(str(number), [data(str(number))], at=NOW + timedelta(seconds=number))
    world.mark(
        "strange", [data(f"x{i}") for i in range(files)], at=OLD, table_id="another", turn=1000, operation="overwrite"
    )
    limit(monkeypatch, 3000)
    table.checkpoint()
    covered = table.snapshot().checkpoint.covered
    assert covered == {str(number) for number in range(60)}
    assert vacuum_table(table, VacuumOptions()).ok


@pytest.mark.parametrize("by_paths", [False, True])
@pytest.mark.parametrize("are_wide", [False, True])
def test_a_table_with_parts_gets_checkpoints_of_few_markers_each(
    full: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, are_wide: bool, by_paths: bool
) -> None:
    """So that a process which makes them needs little memory. Without parts, each checkpoint costs as much as all."""
    if are_wide:
        monkeypatch.setattr(checkpoints, "LARGE_BYTES", 0)
        full.checkpoint()
    before, covered = len(sizes(store, Kind.CHECKPOINT)), full.snapshot().checkpoint.covered
    for number in range(20):
        full.clock.sleep(1)
        write(full, bodies=[f"later {number}".encode()])
    new = [entry.size for entry in parse_log(store.list_log()).uncovered(covered).values()]
    if by_paths:
        monkeypatch.setattr(listing, "_ROOT_PATHS", 4)
    else:
        monkeypatch.setattr(listing, "_ROOT_BYTES", sum(new) // 4)
    full.clock.sleep(20)
    then = told(full)
    full.checkpoint()
    assert len(sizes(store, Kind.CHECKPOINT)) - before == (5 if are_wide else 1)
    assert told(full) == then


@pytest.mark.parametrize("most", [4, 100])
def test_a_vacuum_that_must_cover_markers_first_covers_all_of_them(
    table: Table, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """What is not covered is in memory as long as it deletes files."""
    monkeypatch.setattr(checkpoints, "LARGE_BYTES", 0)
    write(table)
    table.checkpoint()
    for _ in range(10):
        clock.sleep(1)
        write(table)
    clock.sleep(20)
    monkeypatch.setattr(listing, "_ROOT_PATHS", most)
    monkeypatch.setattr(listing, "_ROOT_BYTES", 10_000)
    news: list[int] = []
    delete = TableVacuum._delete_files

    def counted(self: TableVacuum, snapshot: Snapshot) -> object:
        news.append(len(snapshot.news))
        return delete(self, snapshot)

    monkeypatch.setattr(TableVacuum, "_delete_files", counted)
    assert vacuum_table(table, VacuumOptions()).ok
    assert news == [0 if most == 4 else 10]


def test_a_dry_run_makes_no_checkpoint_and_finds_what_a_vacuum_does(
    full: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    full.clock.sleep(30 * 24 * 3600)
    limit(monkeypatch, 2000)
    objects = dict(store.objects)
    dry = vacuum_table(full, VacuumOptions(), dry_run=True)
    assert store.objects == objects
    assert {it.path for it in dry.deleted} == {it.path for it in vacuum_table(full, VacuumOptions()).deleted}


def test_a_vacuum_goes_on_if_no_checkpoint_of_a_part_fits(
    full: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    full.clock.sleep(30 * 24 * 3600)
    limit(monkeypatch, 2000)
    removed = {path for commit in full.snapshot().decided for path in commit.marker.removed}

    def refuse(*args: object, **options: object) -> NoReturn:
        raise InvalidInputError("the checkpoint would be too large")

    for encode in ("encode_checkpoint", "encode_root"):
        monkeypatch.setattr(checkpoints, encode, refuse)
    report = vacuum_table(full, VacuumOptions())
    assert [it.message for it in report.failed] == ["the checkpoint would be too large"]
    assert removed.isdisjoint(store.objects)


@pytest.mark.parametrize("is_covered", [True, False])
def test_a_table_with_ever_so_many_markers_can_be_dropped(
    full: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, is_covered: bool
) -> None:
    if is_covered:
        full.checkpoint()
    limit(monkeypatch, 4 * max(sizes(store, Kind.COMMITTED)))
    full.drop(everything=True)
    assert not store.objects


def test_a_writer_makes_a_checkpoint_before_statistics_are_not_kept_whatever_the_last_one_was(
    table: Table,
    store: MemoryStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
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
    assert not unkept(caplog)
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
