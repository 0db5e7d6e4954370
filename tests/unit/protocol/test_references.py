"""Overwrites that name transactions, since the paths of what they remove would not fit into one marker.

Rules: PROTOCOL.md 7.5.
"""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dbio_commit import CorruptMarkerError, UnsupportedTableError
from dbio_commit.commit.checkpoints import checkpoint_now
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.inspect import inspect_transaction
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.markers.commit import CommitInfo, decode_commit
from dbio_commit.protocol.references import refer, resolve
from dbio_commit.protocol.state import live_files
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import NOW, OLD, World, data, marker
from tests.writers import contents, data_files, live, stage, write, write_days
from vacuum import VacuumOptions, vacuum_table


@pytest.fixture(autouse=True)
def nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableRoot, "refer_above", 0)


def body(store: MemoryStore, tid: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.get(names.committed(tid)))
    return found


def test_an_overwrite_names_the_transactions_whose_files_it_replaces(table: Table, store: MemoryStore) -> None:
    tids = [write(table, bodies=[b"old", b"old"]).tid for _ in range(3)]
    before, last = live(table), table.snapshot().tids[-1]
    commit = write(table, "overwrite", bodies=[b"new"])
    marker = body(store, commit.tid)
    assert marker["removed"] == []
    assert marker["dbio_commit"]["removed_tids"] == sorted(tids)
    assert marker["dbio_commit"]["version"] == 2
    assert set(commit.removed) == before
    assert contents(table) == [b"new"]
    told = table.history()[0]
    assert (set(told.removed), told.removed_files, told.marker.removed_tids) == (before, 6, ())
    assert len(table.snapshot(as_of=last).files) == 6
    assert table.check().ok


def test_what_an_earlier_commit_removed_is_not_removed_again(table: Table, store: MemoryStore) -> None:
    first = write(table, bodies=[b"1", b"2"])
    rewrite = table.begin("rewrite")
    rewrite.remove([first.added[0]])
    stage(table, rewrite, b"3")
    rewrite.commit()
    second = write(table, "overwrite", bodies=[b"4"])
    assert set(second.removed) == {first.added[1], *rewrite_added(table, rewrite.tid)}
    assert set(table.history()[0].removed) == set(second.removed)
    third = write(table, "overwrite", bodies=[b"5"])
    assert body(store, third.tid)["dbio_commit"]["removed_tids"] == [second.tid]
    assert contents(table) == [b"5"]


def rewrite_added(table: Table, tid: str) -> list[str]:
    return next(list(commit.added) for commit in table.history() if commit.tid == tid)


def test_of_a_transaction_that_stays_in_part_the_paths_are_named(table: Table, store: MemoryStore) -> None:
    both = write_days(table, d1=b"1", d2=b"2")
    one = write_days(table, d1=b"3")
    commit = write_days(table, "overwrite_partitions", d1=b"4")
    marker = body(store, commit.tid)
    assert marker["dbio_commit"]["removed_tids"] == [one.tid]
    assert marker["removed"] == [path for path in both.added if path.startswith("day=d1/")]
    assert contents(table) == [b"2", b"4"]


def test_vacuum_and_checkpoints_see_paths(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    write(table, bodies=[b"old", b"old"])
    before = live(table)
    commit = write(table, "overwrite", bodies=[b"new"])
    checkpoint_now(store, clock)
    clock.advance(timedelta(hours=1))
    assert contents(table) == [b"new"]
    assert set(table.history()[0].removed) == before
    clock.advance(timedelta(days=3))
    vacuum_table(table, VacuumOptions(retention_hours=48, checkpoint_after=0))
    assert data_files(store) == set(commit.added)
    assert table.history()[0].removed_files == 2
    write(table, "overwrite", bodies=[b"newer"])
    assert contents(table) == [b"newer"]


def test_a_checkpoint_of_a_state_that_lacks_an_append_still_removes_its_files() -> None:
    """A read may count an overwrite, and not yet a blind append of the last moments that the overwrite has seen."""
    world = World()
    world.commit("2", [data("2")], operation="overwrite", turn=1, version=2, removed_tids=["1"])
    checkpoint_now(world, world.clock)
    world.commit("1", [data("1")])
    assert world.seen() == {data("2")}
    checkpoint_now(world, world.clock)
    world.delete(names.committed("1"), names.committed("2"))
    assert world.seen() == {data("2")}
    removed = {commit.tid: commit.removed for commit in world.table().history()}
    assert removed["2"] == [data("1")]


def test_a_commit_whose_answer_was_lost_is_told_with_its_paths(table: Table, store: MemoryStore) -> None:
    first = write(table, bodies=[b"old"])
    transaction = table.begin("overwrite")
    stage(table, transaction, b"new")
    commit = transaction.commit()
    again = table.resume(transaction.terms)
    again.add(commit.files)
    assert again.commit().removed == commit.removed == first.added


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


def test_show_of_a_commit_that_is_too_new_for_a_state_of_the_table_shows_its_marker(
    table: Table, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, bodies=[b"old"])
    commit = write(table, "overwrite", bodies=[b"new"])
    monkeypatch.setattr(Snapshot, "whole", lambda self, tids: [])
    shown = inspect_transaction(store, clock, commit.tid).commit
    assert shown is not None
    assert (shown.added, shown.removed) == (commit.added, [])


def test_a_tid_that_is_named_twice_removes_once() -> None:
    """A marker of 64 MiB may name one transaction of many files three million times."""
    world = World()
    world.commit("1", [data("1", i) for i in range(100)])
    world.commit("2", [data("2")], operation="overwrite", turn=1, version=2, removed_tids=["1"] * 1000)
    assert world.table().history()[0].removed_files == 100


def test_what_two_commits_name_goes_with_the_first() -> None:
    """Or thousands of small markers that name one large transaction would take gigabytes."""
    world = World()
    world.commit("1", [data("1"), data("1", 1)])
    for tid, turn in (("3", 1), ("2", 2)):
        world.commit(tid, [data(tid)], operation="overwrite", turn=turn, version=2, removed_tids=["1"])
    assert {it.tid: it.removed_files for it in world.table().history()} == {"1": 0, "2": 0, "3": 2}
    assert world.seen() == {data("2"), data("3")}


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


@given(st.data())
def test_only_transactions_go_of_which_no_file_stays_whoever_has_added_it_too(choice: st.DataObject) -> None:
    paths = [data(tid, number) for tid in "12" for number in range(2)]
    some = st.lists(st.sampled_from(paths), unique=True, max_size=3)
    commits = [
        Decided(OLD + timedelta(seconds=i), tid, marker(choice.draw(some), choice.draw(some) if i == 3 else []))
        for i, tid in enumerate("1234")
    ]
    live = live_files(commits)
    overwrite = marker([], choice.draw(st.lists(st.sampled_from([*live.paths()]), unique=True)) if live else [])
    info = CommitInfo(recorded="overwrite", commit_id="x", timestamp=NOW, turn=9)
    overwrite = replace(overwrite, dbio_commit=info)
    short = refer(overwrite, live=live, whole=lambda tids: [it for it in commits if it.tid in tids])
    after = Decided(NOW, "9", overwrite), Decided(NOW, "9", short)
    whole, referring = (live_files(resolve([*commits, it])) for it in after)
    assert [*referring] == [*whole]
    stays = {*live.paths()} - {*overwrite.removed}
    gone = {it.tid for it in commits if stays.isdisjoint(it.marker.added)}
    assert {*short.removed_tids} == gone & {file.tid for file in live if file.path in overwrite.removed}


def test_the_key_is_refused_where_it_would_be_misread() -> None:
    info: dict[str, Any] = {
        "version": 2,
        "operation": "overwrite",
        "commit_id": "c",
        "timestamp": "2026-11-20T00:00:00Z",
    }

    def decode(**changed: Any) -> object:
        marker = {"added": [], "removed": [], "dbio_commit": info | changed}
        return decode_commit(json.dumps(marker).encode(), where="it")

    decode(removed_tids=["1"])
    wrongs: list[dict[str, Any]] = [
        {"version": 1, "removed_tids": ["1"]}, {"removed_tids": ["../1"]}, {"removed_tids": [1]}, {"removed_tids": []},
        {"removed_tids": "1"}, {}, {"operation": "abort", "removed_tids": ["1"]},
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(CorruptMarkerError):
            decode(**wrong)
    with pytest.raises(UnsupportedTableError, match="version 4 of the protocol, and this software knows 3"):
        decode(version=4, removed_tids=["1"])


def test_in_the_directory_scope_nobody_removes_by_reference() -> None:
    world = World(descriptor=False)
    world.commit("1", [data("1")])
    world.commit("2", [data("2")], version=2, removed_tids=["1"])
    with pytest.raises(CorruptMarkerError, match="removes all files of whole transactions"):
        world.snapshot()


@pytest.mark.long
def test_seven_hundred_thousand_files_are_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableRoot, "refer_above", MAX_BYTES)
    world = World()
    for tid in "123":
        added = [data(tid, number) for number in range(233_334)]
        world.mark(tid, [f"{'x' * 60}{path}" for path in added])
    commit = write(world.table(), "overwrite")
    assert commit.removed_files == 700_002
    assert len(world.snapshot().files) == 1
