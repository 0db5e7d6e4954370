"""A table with parts is checked, dropped and copied share by share, with the same result as the same table
with one body."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.checkpoints import write_checkpoint
from dbio_commit.log.table_log import TableLog, table_now
from dbio_commit.log.table_state import table_snapshot
from dbio_commit.maintenance import walk as walks
from dbio_commit.maintenance.check import CheckReport
from dbio_commit.maintenance.copy import CopyReport, copy_table
from dbio_commit.maintenance.incremental_copy import key_in, key_of, update_copy
from dbio_commit.protocol import names
from dbio_commit.protocol.garbage import Reason
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore
from tests import builders
from tests.builders import NOW, OLD, columns, data
from tests.faults import once
from tests.tiers import long
from tests.tiny_parts import in_parts, in_slices
from tests.unit.log.parts.chains import said

SEEDS = 15


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "SHARE_ROWS", 5)
    monkeypatch.setattr(walks, "_PAGE", 1)
    monkeypatch.setattr(walks, "CONCURRENCY", 2)  # with so many directories, no more levels are listed


class World(builders.World):
    """A table by region and day whose files and markers are put by hand."""

    def __init__(self, seed: int, *, healthy: bool = False) -> None:
        super().__init__(descriptor=False)
        self.healthy = healthy
        """Whether all live files are as their markers record them."""
        self.put_json("_dbio_table", {**builders.DESCRIPTOR, "partition_columns": ["region", "day"]})
        self.chance, self.count = random.Random(seed), 0
        self.live: list[str] = []

    def directory(self) -> str:
        return f"region={self.chance.choice('abcde')}/day={self.chance.choice(['1', '2', '3', 'x'])}"

    def act(self) -> None:
        """A commit, mostly."""
        self.count += 1
        tid, chance = str(self.count), self.chance
        at = OLD + timedelta(minutes=self.count)
        paths = [f"{self.directory()}/{data(tid, number)}" for number in range(chance.randint(0, 6))]
        told: dict[str, Any]
        match chance.choice(["commit", "commit", "commit", "plain", "lean", "abort", "pending", "app", "misplaced"]):
            case "pending":
                self.start(tid, at=at)
                self.files(*paths)
                return
            case "abort":
                self.files(*paths[:1])
                self.mark(tid, at=at, operation="abort")
                return
            case "plain":
                paths, told = [*paths, f"{self.directory()}/export {tid}.parquet"], {}
            case "misplaced" if not self.healthy and chance.random() < 0.3:
                paths, told = [*paths, f"region=a/{data(tid)}"], {"turn": self.count}
            case "app":
                told = {"app": {"id": "job", "version": self.count}, "turn": self.count}
            case "lean":
                told = {"files": {**self.told(paths), "statistics_left_out": True}}
            case _:
                told = {"files": self.told(paths), "schema": columns("id", "day"), "schema_turn": 1}
        removed = chance.sample(self.live, min(len(self.live), chance.randint(0, 4)))
        self.mark(tid, paths, removed, at=at, **told)
        for path in paths:
            if self.healthy or chance.random() < 0.9:
                self.data(path, 5 if self.healthy else chance.choice([5, 5, 5, 5, 0, 6]))
        self.data(f"{self.directory()}/{data(tid, 99)}")  # of a failed attempt
        self.live = [path for path in (*self.live, *paths) if path not in removed]
        for path in removed:
            if chance.random() < 0.5:  # vacuum has deleted it
                self.objects.pop(path, None)

    def told(self, paths: list[str]) -> dict[str, Any]:
        day = {"min": [0] * len(paths), "max": [self.count] * len(paths), "nulls": [0] * len(paths)}
        return {"size": [5] * len(paths), "rows": [1] * len(paths), "statistics": {"id": day}}

    def strangers(self) -> None:
        """What others leave."""
        for path in (
            *(f"{self.directory()}/{name}" for name in ("notes.txt", "untracked.parquet", data("777"), ".hidden")),
            *("README.txt", "x.parquet", f"region=a/{data('9')}", "region=b/day=1/_committed_5", "_other/_dbio_table"),
            *(f"region=zz/day=1/{data('888')}", f"region=b/day=1/{data('5', 50)}"),
        ):
            self.data(path)


def some_world(seed: int, *, healthy: bool = False) -> World:
    """A table with some checkpoints, newer markers, and what others have left."""
    world = World(seed, healthy=healthy)
    for _ in range(world.chance.randint(1, 25)):
        world.act()
        if world.chance.random() < 0.2:
            checkpoint(world)
    checkpoint(world)
    for _ in range(world.chance.randint(0, 5)):
        world.act()
    world.strangers()
    return world


def checkpoint(world: World) -> None:
    """A misplaced file hinders no checkpoint here."""
    snapshot = table_snapshot(
        world, table_now(world, world.clock, TableLog.settled), ignore_corrupt=True, unchecked=True
    )
    write_checkpoint(world, world.clock, snapshot, again=True)


def in_any_order(report: CheckReport) -> CheckReport:
    """Shares are listed one after the other. Of several misplaced files of a commit, one is named."""
    return replace(
        report,
        garbage={reason: sorted(entries) for reason, entries in report.garbage.items()},
        foreign=sorted(report.foreign),
        corrupt=dict.fromkeys(report.corrupt, ""),
    )


@pytest.mark.parametrize("seed", [*range(6), *long(*range(6, SEEDS))])
def test_a_table_with_parts_has_the_same_report(seed: int) -> None:
    table = some_world(seed).table()
    large = in_parts(table)
    with in_slices():
        found = large.check()
    assert in_any_order(found) == in_any_order(table.check())


def test_a_random_table_has_several_shares() -> None:
    table = in_parts(some_world(1).table())
    assert len([*walks.walk(table.store, table.snapshot())]) > 3


def test_the_random_tables_have_all_that_can_be_wrong() -> None:
    reports = [some_world(seed).table().check() for seed in range(SEEDS)]
    assert {reason for it in reports for reason in it.garbage} >= {
        *(Reason.REMOVED, Reason.FAILED_ATTEMPT, Reason.ABORTED, Reason.PENDING, Reason.UNKNOWN),
        *(Reason.UNTRACKED, Reason.FOREIGN),
    }
    for what in ("missing", "wrong_size", "corrupt", "pending", "foreign", "applications", "without_statistics"):
        assert any(getattr(it, what) for it in reports), what
    assert any(it.misread for it in reports)
    assert any(it.unread_values for it in reports)


def test_footers_are_read_slice_by_slice() -> None:
    table = some_world(3).table()
    large = in_parts(table)
    progress: list[tuple[str, int, int | None]] = []
    with in_slices():
        report = large.check(files=True, progress=lambda *it: progress.append(it))
    assert report.misread == table.check(files=True).misread != {}
    present = report.live_files - len(report.missing)
    assert progress == [("files looked at", 0, present), ("files looked at", present, present)]


@pytest.mark.parametrize("overtaken", ["list_directory", "list_files"])
def test_a_commit_that_lands_during_the_listing_is_neither_missing_nor_garbage(overtaken: str) -> None:
    world = World(0)
    for number in range(8):
        path = f"region={'abcde'[number % 5]}/day={number}/{data(str(number))}"
        world.commit(str(number), [path], at=OLD + timedelta(minutes=number))
    checkpoint(world)
    large = in_parts(world.table())
    store = large.store
    assert isinstance(store, MemoryStore)
    gone, new = [f"region=b/day={number}/{data(str(number))}" for number in (1, 6)], f"region=b/day=1/{data('20')}"

    def land() -> None:
        other = builders.World(descriptor=False)
        other.objects = store.objects
        other.start("20")
        other.commit("20", [new], gone, at=NOW)
        other.start("21", at=NOW)
        other.data(f"region=e/day=4/{data('21')}")
        other.delete(*gone)

    store.before = once(overtaken, "region=b" if overtaken == "list_files" else "", land)
    with in_slices():
        report = large.check()
    assert new in store.objects
    assert report.ok
    assert report.live_files == 8
    assert {reason: [it.path for it in found] for reason, found in report.garbage.items()} in (
        {Reason.PENDING: [f"region=e/day=4/{data('21')}"]},
        {},
    )


# --- drop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_drop_of_a_table_with_parts_deletes_and_leaves_the_same(seed: int) -> None:
    world = some_world(seed)
    world.delete("_other/_dbio_table")
    world.files("_delta_log/notes.txt", "_delta_log/00000000000000000007.json")
    table = world.table()
    large = in_parts(table)
    assert isinstance(large.store, MemoryStore)
    with in_slices():
        found = large.drop(everything=True)
    report = table.drop(everything=True)
    assert large.store.objects.keys() == world.objects.keys()
    parts = found.deleted - report.deleted
    assert found == replace(report, deleted=report.deleted + parts, size=found.size)
    assert parts > 0
    assert report.left


def test_lost_parts_hide_only_names_without_tids() -> None:
    world = some_world(2)
    world.delete("_other/_dbio_table", "region=b/day=1/_committed_5")
    world.commit("500", ["region=b/day=2/export.parquet"], at=NOW - timedelta(hours=1))
    checkpoint(world)
    large = in_parts(world.table())
    store, root = large.store, large.snapshot().checkpoint
    assert isinstance(store, MemoryStore)
    lost = [part.name for part in root.parts if part.kind == "files"]
    for path in (*lost, *(names.committed(tid) for tid in root.covered)):
        store.objects.pop(path, None)
    left = large.drop(everything=True).left
    assert "region=b/day=2/export.parquet" in left
    assert not any(names.parse_data_file(names.split(path)[1]) for path in left)
    assert not any(names.parse_log_name(path) for path in store.objects)


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("path", ["_other", "region=b/_other", "region=b/day=1", "region=b/day=1/_x/y", "new"])
def test_a_table_below_a_large_one_is_found_before_anything_is_deleted(
    path: str, is_flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = some_world(4)
    world.delete("_other/_dbio_table")
    world.data(f"{path}/_dbio_table")
    large = in_parts(world.table())
    assert isinstance(large.store, MemoryStore)
    monkeypatch.setattr(type(large.store), "has_directories", not is_flat)
    before = {**large.store.objects}
    with in_slices(), pytest.raises(InvalidInputError, match=f"holds another table, memory://table/{path}"):
        large.drop(everything=True)
    assert large.store.objects == before


# --- copy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [*range(6), *long(*range(6, SEEDS))])
def test_a_copy_of_a_table_with_parts_has_the_same_history(seed: int) -> None:
    world = some_world(seed, healthy=True)
    copies: list[Table] = []
    reports: list[CopyReport] = []
    for table in (world.table(), in_parts(world.table())):
        target = MemoryStore(world.clock, url="memory://copy")
        with in_slices():
            report = copy_table(table.store, target, world.clock)
        copies.append(Table.over(target, world.clock))
        reports.append(report)
    assert reports[0] == reports[1]
    one, other = (it.snapshot() for it in copies)
    assert other.checkpoint.is_root
    assert [*map(said, other.decided)] == [*map(said, one.decided)]
    assert sorted(other.files, key=str) == sorted(one.files, key=str)
    assert (other.schema, other.settings, other.app_versions) == (one.schema, one.settings, one.app_versions)
    assert other.checkpoint.known_since == one.checkpoint.known_since
    data_of = [{path: it for path, it in as_memory(table).objects.items() if "/" in path} for table in copies]
    assert data_of[0].keys() == data_of[1].keys()
    assert replace(copies[1].check(), garbage={}) == replace(copies[0].check(), garbage={})


@pytest.mark.parametrize("seed", range(3))
def test_an_incremental_copy_of_a_table_with_parts_copies_only_what_is_new(seed: int) -> None:
    world = some_world(seed, healthy=True)
    copy = Table.over(MemoryStore(world.clock, url="memory://copy"), world.clock)
    original = in_parts(world.table())
    before = {file.path for file in original.snapshot().files}
    with in_slices():
        update_copy(original.store, copy.store, world.clock)
    copy.checkpoint()
    copy = in_parts(copy)
    for _ in range(5):
        world.act()
    checkpoint(world)
    original = in_parts(world.table())
    with in_slices():
        report = update_copy(original.store, copy.store, world.clock)
        assert not update_copy(original.store, copy.store, world.clock).is_new
    now, has = original.snapshot(), copy.snapshot()
    after = {file.path for file in now.files}
    assert (report.copied_files, report.removed_files) == (len(after - before), len(before - after))
    assert sorted(map(key_of, now.files)) == sorted(filter(None, (key_in(file.path) for file in has.files)))
    assert (has.schema, has.settings, has.partition_columns) == (now.schema, now.settings, now.partition_columns)


def as_memory(table: Table) -> MemoryStore:
    assert isinstance(table.store, MemoryStore)
    return table.store
