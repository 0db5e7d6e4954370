"""Tables whose checkpoints have parts are dropped, copied, adopted and checked. Parts are tiny.

Rules: PROTOCOL.md 11.5, 12; NOTES.md, Copies.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from unittest.mock import patch

import pytest

from dbio_commit import Commit, FileInfo
from dbio_commit.base.errors import (
    CommitConflictError,
    InvalidInputError,
    TableNotFoundError,
    UnsupportedStoreError,
)
from dbio_commit.commit import checkpoints as writers
from dbio_commit.commit import probe as probe_module
from dbio_commit.log.listing import read_numbered_checkpoint
from dbio_commit.maintenance.copy import copy_table
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.log import REFUSAL, parse_log
from dbio_commit.protocol.markers.commit import bounds_in
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import Killed, Killer, WithoutPutIfAbsent, heal, once
from tests.tiny_parts import tiny_parts
from tests.unit.adoptions import Place, plain, visible
from tests.writers import WakingWorld, contents, live, stage, write, write_days

DAY = timedelta(days=1)
AT_ONCE = VacuumOptions(checkpoint_after=0)


@pytest.fixture(autouse=True)
def _tiny_parts() -> Iterator[None]:
    with tiny_parts():
        yield


def parts_of(store: MemoryStore) -> set[str]:
    return {path for path in store.objects if path.startswith(Kind.PART)}


def checkpoints(store: MemoryStore) -> dict[int, Checkpoint]:
    log = parse_log(store.list_log())
    return {number: read_numbered_checkpoint(store, log, number) for number in log.checkpoints}


def objects_of(root: Checkpoint) -> set[str]:
    return {name for part in root.parts for name in part.objects}


# --- drop ---------------------------------------------------------------------------------------------------------


class World(WakingWorld):
    """A table that was adopted, so that only its checkpoint has the names of its oldest files."""

    def __init__(self) -> None:
        super().__init__()
        for number in range(7):
            self.store.put(f"day=one/export {number}.parquet", b"rows")
        self.table.adopt()
        self.table.checkpoint()
        write_days(self.table, one=b"1", two=b"2")
        write_days(self.table, "overwrite_partitions", two=b"3")
        self.table.checkpoint()
        write_days(self.table, three=b"4")
        self.store.put("README.txt", b"mine")


def test_a_table_with_parts_is_dropped_as_a_whole() -> None:
    world = World()
    assert len(parts_of(world.store)) > 4
    before = dict(world.store.objects)
    with pytest.raises(InvalidInputError, match="has commits"):
        world.table.drop()
    assert world.store.objects == before
    report = world.table.drop(everything=True)
    assert set(world.store.objects) == {"README.txt"}
    assert (report.deleted, report.left) == (len(before) - 1, ("README.txt",))
    write(world.table)
    assert contents(world.table) == [b"rows"]


def test_a_drop_that_is_killed_after_any_call_is_ended_by_the_next_which_finds_all_files() -> None:
    """The parts go after the files that only they name."""
    for call in range(400):
        world = World()
        before, there = live(world.table), parts_of(world.store)
        killer = Killer(world.store, call, after=True)
        with suppress(Killed):
            world.table.drop(everything=True)
        heal(world.store)
        if not killer.dead:
            assert call > 50
            break
        if not parts_of(world.store) >= there:
            assert not [path for path in world.store.objects if path.startswith("day=")]
        with suppress(TableNotFoundError):
            assert live(world.table) == before
        if set(world.store.objects) != {"README.txt"}:
            assert world.table.drop(everything=True).left == ("README.txt",)
        assert set(world.store.objects) == {"README.txt"}
    else:
        raise AssertionError("a drop has many calls")


def test_a_table_without_commits_whose_checkpoint_has_parts_is_dropped_also_after_a_kill() -> None:
    for call in range(100):
        world = WakingWorld()
        world.table.begin().abort()
        world.table.checkpoint()
        assert parts_of(world.store)
        killer = Killer(world.store, call, after=True)
        with suppress(Killed):
            world.table.drop()
        heal(world.store)
        if not killer.dead:
            assert call > 15
            break
        if world.store.objects:
            world.table.drop()
        assert not world.store.objects
    else:
        raise AssertionError("a drop has many calls")


def test_a_table_whose_parts_are_damaged_is_dropped() -> None:
    world = World()
    for path in parts_of(world.store):
        world.store.put(path, b"damaged")
    report = world.table.drop(everything=True)
    assert set(world.store.objects) == set(report.left)
    assert all(path == "README.txt" or "export" in path for path in report.left)


# --- copy ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def target(clock: ManualClock) -> Table:
    return Table.over(MemoryStore(clock, url="memory://target"), clock)


@pytest.fixture
def grown(table: Table, clock: ManualClock) -> Table:
    """A table with parts, statistics, a version of an application, settings, and files that were vacuumed."""
    for number in range(5):
        transaction = table.begin("overwrite" if number == 2 else "append", app=("job", number))
        for i in range(3):
            path = stage(table, transaction, b"%d %d" % (number, i))
            bounds = {"id": Bounds(min=number, max=number + i, nulls=0), "name": Bounds(min="a", max="z" * i, nulls=1)}
            transaction.add([FileInfo(path=path, size=3, rows=i, statistics=bounds)], looked_at=True)
        transaction.commit(columns("id", "name"))
        clock.advance(DAY)
        table.checkpoint()
    table.set({"change_data": "true"})
    for _ in range(2):
        clock.advance(DAY)
        assert vacuum_table(table, AT_ONCE).ok
    write(table, bodies=[b"uncovered"], schema=columns("id", "name"))
    return table


def test_a_copy_of_a_table_with_parts_has_its_history_and_statistics(grown: Table, target: Table) -> None:
    before = grown.snapshot()
    assert before.checkpoint.parts
    assert before.checkpoint.known_since
    copy_table(grown.store, target.store, grown.clock)
    after = target.snapshot()
    assert contents(target) == contents(grown)
    assert [*map(plain_facts, target.history())] == [*map(plain_facts, grown.history())]
    assert [(it.path, it.size, it.tid) for it in after.files] == [(it.path, it.size, it.tid) for it in before.files]
    told = [[dict(bounds_in(it.marker)) for it in snapshot.decided] for snapshot in (before, after)]
    assert told[0] == told[1]
    assert any(told[0])
    assert after.checkpoint.known_since == before.checkpoint.known_since
    assert after.redated_until is None
    assert (after.settings, after.schema) == (before.settings, before.schema)
    assert target.check().ok
    condition = "id > 3"
    assert live_where(target, condition) == live_where(grown, condition) < live(target)


def plain_facts(commit: Commit) -> tuple[object, ...]:
    counts = (commit.added_files, commit.removed_files)
    facts = (commit.tid, commit.timestamp, commit.operation, commit.app, commit.metrics, counts)
    return (*facts, [(file.path, file.size, file.rows) for file in commit.files], [*commit.removed])


def live_where(table: Table, condition: str) -> set[str]:
    return {file.path for file in table.snapshot().where(condition).files}


def test_the_two_checkpoints_of_a_copy_name_the_same_parts(grown: Table, target: Table) -> None:
    assert isinstance(target.store, MemoryStore)
    copy_table(grown.store, target.store, grown.clock)
    found, last = checkpoints(target.store), grown.snapshot().checkpoint.number
    assert found.keys() == {last + 1, last + 2}
    first, second = found.values()
    assert first.parts == second.parts != ()
    dropped = {name for it in second.dropped for name in it.part.objects}
    assert objects_of(second) | dropped == parts_of(target.store)
    assert [it.tid for it in first.commits] == [it.tid for it in second.commits]


def test_life_goes_on_in_a_copy_with_parts(grown: Table, clock: ManualClock, target: Table) -> None:
    assert isinstance(target.store, MemoryStore)
    copy_table(grown.store, target.store, clock)
    wanted, found = contents(grown), checkpoints(target.store)
    for number in range(5):
        clock.advance(DAY)
        wanted.append(b"%d" % number)
        write(target, bodies=[wanted[-1]])
        assert vacuum_table(target, AT_ONCE).ok
        assert contents(target) == sorted(wanted)
        assert target.check().ok
    assert min(checkpoints(target.store)) > max(found)
    assert vacuum_table(grown, AT_ONCE).ok
    assert contents(grown) != contents(target)


def test_a_small_table_is_copied_without_parts(table: Table, clock: ManualClock, target: Table) -> None:
    assert isinstance(target.store, MemoryStore)
    with patch.object(writers, "LARGE_FILES", 50_000):
        write(table)
        copy_table(table.store, target.store, clock)
        assert not parts_of(target.store)
        assert contents(target) == [b"rows"]
        assert checkpoints(target.store)[1].commits == checkpoints(target.store)[2].commits != ()


def test_a_copy_with_parts_that_is_killed_anywhere_is_no_table_or_the_whole_table(
    grown: Table, clock: ManualClock
) -> None:
    wanted = contents(grown)
    killed = 0
    for call in range(200):
        store = MemoryStore(clock, url=f"memory://target-{call}")
        target = Table.over(store, clock)
        killer = Killer(store, call, after=True)
        with suppress(Killed):
            copy_table(grown.store, store, clock)
        heal(store)
        killed += killer.dead
        assert contents(target) in ([], wanted)
        if not contents(target) and store.objects:
            if call % 2:
                target.drop(everything=True)
                assert not store.objects
            else:
                clock.advance(timedelta(minutes=1))
                copy_table(grown.store, store, clock)
                assert contents(target) == wanted
                assert target.snapshot().tids == grown.snapshot().tids
                assert target.check().ok
        if not killer.dead:
            break
    assert 20 < killed < 200


# --- adopt --------------------------------------------------------------------------------------------------------


def test_a_directory_is_adopted_with_parts() -> None:
    place = plain()
    seen = visible(place.table())
    place.table().adopt()
    assert checkpoints(place)[1].parts
    assert objects_of(checkpoints(place)[1]) == parts_of(place)
    assert visible(place.table()) == seen
    assert place.table().snapshot().scope is Scope.TABLE
    assert place.table().check().ok
    write(place.table())
    place.clock.advance(5 * DAY)
    for _ in range(3):
        assert vacuum_table(place.table(), AT_ONCE).ok
        place.clock.advance(5 * DAY)
    assert len(visible(place.table())) == len(seen) + 1


def test_an_adoption_that_is_refused_leaves_no_parts_and_the_next_succeeds() -> None:
    place = plain()
    place.before = once("put_if_absent", names.checkpoint(1), lambda: place.write("late.parquet"))
    with pytest.raises(CommitConflictError, match="while it was adopted"):
        place.table().adopt()
    heal(place)
    assert place.objects[names.checkpoint(2)][0] == REFUSAL
    assert not parts_of(place)
    assert "late.parquet" in str(visible(place.table()))
    place.table().adopt()
    assert checkpoints(place).keys() == {1, 3}
    assert visible(place.table())
    assert place.table().check().ok
    place.clock.advance(5 * DAY)
    for _ in range(2):
        write(place.table())
        report = vacuum_table(place.table(), AT_ONCE)
        assert (report.failed, report.warnings) == ([], [])
        place.clock.advance(DAY)
    assert 1 not in checkpoints(place)


def test_of_two_adoptions_at_once_the_loser_takes_its_parts_away() -> None:
    place = plain()
    other = Table.over(place, place.clock)
    probe_module._PROBED.add(place.identity)
    place.before = once("put_if_absent", names.checkpoint(1), lambda: other.adopt())
    with pytest.raises(CommitConflictError, match="another process is adopting"):
        place.table().adopt()
    heal(place)
    assert parts_of(place) == objects_of(checkpoints(place)[1])
    assert place.table().check().ok


def test_an_adoption_on_a_store_without_put_if_absent_leaves_no_parts() -> None:
    class Careless(WithoutPutIfAbsent, Place):
        pass

    place = Careless()
    place.write("a.parquet")
    probe_module._PROBED.clear()
    with pytest.raises(UnsupportedStoreError, match="Nothing was written"):
        place.table().adopt()
    assert set(place.objects) == {"a.parquet"}


# --- check --------------------------------------------------------------------------------------------------------


def test_useless_parts_are_garbage_and_nothing_is_wrong(grown: Table, clock: ManualClock) -> None:
    assert isinstance(grown.store, MemoryStore)
    left = names.part(1, "0" * 32)
    grown.store.put(left, b"left by a killed writer")
    report = grown.check()
    assert report.ok
    found = {it.path: it.size for it in report.garbage[Reason.PART]}
    assert found[left] == 23
    newest = max(checkpoints(grown.store).items())[1]
    assert not found.keys() & objects_of(newest)
    clock.advance(5 * DAY)
    for _ in range(2):
        assert vacuum_table(grown, AT_ONCE).ok
        clock.advance(5 * DAY)
    assert not grown.check().garbage.get(Reason.PART)
    assert left not in grown.store.objects


def test_a_part_below_the_root_or_in_a_plain_directory_is_nothing_to_any_reader(table: Table) -> None:
    assert isinstance(table.store, MemoryStore)
    stray = names.part(1, "0" * 32)
    place = plain()
    seen = visible(place.table())
    place.put(stray, b"of a killed adoption")
    place.put(f"day=1/{stray}", b"moved")
    assert visible(place.table()) == seen
    assert vacuum_table(place.table(), VacuumOptions(retention_hours=0, force=True)).ok
    assert stray in place.objects
    write_days(table, one=b"1")
    table.store.put(f"day=one/{stray}", b"moved")
    report = table.check()
    assert report.ok
    assert not report.foreign
    assert Reason.PART not in report.garbage
    assert contents(table) == [b"1"]
