"""What removals by reference break."""

from datetime import timedelta

import pytest

from dbio_commit.roots.table import TableRoot
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from dbio_commit.upkeep.checkpoints import checkpoint_now
from dbio_commit.upkeep.inspect import inspect_transaction
from tests.builders import OLD, World, data
from tests.writers import write


@pytest.fixture(autouse=True)
def nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableRoot, "refer_above", 0)


def test_what_a_later_commit_removes_again_does_not_come_back_in_the_past() -> None:
    """DBIO's own writers know no references: they take the files for live, and remove them by path."""
    world = World()
    world.commit("1", [data("1")])
    at = OLD + timedelta(minutes=1)
    world.commit("2", [data("2")], operation="overwrite", turn=1, version=2, removed_tids=["1"], at=at)
    assert world.seen(as_of="2") == {data("2")}
    world.commit("3", [data("3")], [data("1"), data("2")], at=OLD + timedelta(minutes=2))
    assert world.seen(as_of="2") == {data("2")}
    assert {it.tid: list(it.removed) for it in world.table().history()}["2"] == [data("1")]


def test_show_names_what_went(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    write(table, bodies=[b"old", b"old"])
    commit = write(table, "overwrite", bodies=[b"new"])
    shown = inspect_transaction(store, clock, commit.tid).commit
    assert shown is not None
    assert set(shown.removed) == set(commit.removed)
    assert shown.removed_files == 2


def test_a_tid_that_is_named_twice_removes_once() -> None:
    """A marker of 64 MiB may name one transaction of many files three million times."""
    world = World()
    world.commit("1", [data("1", i) for i in range(100)])
    world.commit("2", [data("2")], operation="overwrite", turn=1, version=2, removed_tids=["1"] * 1000)
    assert world.table().history()[0].removed_files == 100


def test_a_file_that_another_commit_adds_too_does_not_go_with_a_transaction() -> None:
    world = World()
    world.commit("1", [data("1"), data("1", 1)])
    world.commit("2", [data("1")], at=OLD + timedelta(minutes=1))
    rewrite = world.table().begin("rewrite")
    rewrite.remove([data("1", 1)])
    rewrite.commit()
    assert world.seen() == {data("1")}
    checkpoint_now(world, world.clock)
    assert world.seen() == {data("1")}
