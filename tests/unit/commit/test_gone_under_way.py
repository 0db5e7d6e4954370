"""The table's directory is moved, or deleted by another tool, while somebody commits to it: nobody hears of success.

Rules: PROTOCOL.md 9.3.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dbio_commit.base.errors import CommitConflictError, CommitStateUnknownError, DbioError, StoreError
from dbio_commit.commit.transaction import Transaction
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import fail_with, heal, once
from tests.writers import contents, stage, write

OVERWRITTEN = "part-00000-0a1b2c3d-0000-4000-8000-000000000000-c000.snappy.parquet"
"""As Spark's own writer names a file."""


def as_tasks_do(table: Table, transaction: Transaction) -> str:
    """A file that tasks have written and handed over: nobody else looks at it."""
    path = f"part-00000-tid-{transaction.tid}-{transaction.terms.job}-0-0-c000.snappy.parquet"
    Path(table.url, path).write_bytes(b"PAR1 rows PAR1")
    transaction.add([FileInfo(path=path, size=14, rows=1)], looked_at=True)
    return path


def move(root: Path) -> None:
    os.rename(root, f"{root}-moved")


def remove(root: Path) -> None:
    shutil.rmtree(root)


def overwrite(root: Path) -> None:
    """What Spark's own overwrite of the path does."""
    shutil.rmtree(root)
    root.mkdir()
    (root / OVERWRITTEN).write_bytes(b"PAR1 other rows PAR1")


def move_after_the_marker(monkeypatch: pytest.MonkeyPatch, table: Table, root: Path) -> None:
    """The next commit marker is there, and then the table is elsewhere."""
    put = type(table.store).put_if_absent

    def put_and_move(self: Any, path: str, body: bytes) -> bool:
        found = put(self, path, body)
        if path.startswith("_committed_"):
            move(root)
        return found

    monkeypatch.setattr(type(table.store), "put_if_absent", put_and_move)


@pytest.mark.parametrize("operation", ["append", "overwrite"])
@pytest.mark.parametrize("disturb", [move, remove, overwrite])
def test_a_commit_to_a_table_that_is_gone_fails_and_leaves_nothing_there(
    tmp_path: Path, disturb: Callable[[Path], None], operation: Any
) -> None:
    root = tmp_path / "table"
    table = Table(root)
    first = table.begin()
    as_tasks_do(table, first)
    first.commit()
    transaction = table.begin(operation)
    as_tasks_do(table, transaction)
    disturb(root)
    left = sorted(os.listdir(root)) if root.exists() else []
    with pytest.raises(DbioError, match=r"removed, moved or replaced"):
        transaction.commit()
    with suppress(DbioError):
        transaction.abort()
    assert (sorted(os.listdir(root)) if root.exists() else []) == left
    if disturb is move:
        moved = Table(f"{root}-moved")
        assert len(moved.snapshot().files) == 1
        assert transaction.tid not in moved.snapshot().tids


@pytest.mark.parametrize("table_is", ["dropped", "made anew"])
def test_a_commit_of_a_written_file_to_a_dropped_table_is_a_conflict(
    table: Table, clock: ManualClock, table_is: str
) -> None:
    write(table, bodies=[b"1"])
    transaction = table.begin()
    stage(table, transaction)
    Table.over(table.store, clock).drop(everything=True)
    if table_is == "made anew":
        write(Table.over(table.store, clock), bodies=[b"2"])
    with pytest.raises(CommitConflictError, match="was removed, moved or replaced"):
        transaction.commit()
    assert contents(table) == [b"2"] if table_is == "made anew" else table.store.list_log() == []


@pytest.mark.parametrize("disturb", [move, remove, overwrite])
def test_a_commit_to_a_plain_directory_that_is_gone_is_not_reported_as_done(
    tmp_path: Path, disturb: Callable[[Path], None]
) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    (root / OVERWRITTEN).write_bytes(b"PAR1 rows PAR1")
    table = Table(root)
    transaction = table.begin()
    transaction.inspector = None
    path = Path(transaction.new_file())
    path.write_bytes(b"PAR1 rows PAR1")
    disturb(root)
    with pytest.raises(DbioError):
        transaction.commit()


def test_a_table_that_is_moved_right_after_its_commit_has_it_where_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "table"
    table = Table(root)
    transaction = table.begin()
    as_tasks_do(table, transaction)
    move_after_the_marker(monkeypatch, table, root)
    with pytest.raises(CommitStateUnknownError, match="where the table is now"):
        transaction.commit()
    monkeypatch.undo()
    assert Table(f"{root}-moved").snapshot().tids == (transaction.tid,)


def test_who_gives_up_where_the_table_is_gone_leaves_no_marker(tmp_path: Path) -> None:
    root = tmp_path / "table"
    table = Table(root)
    transaction = table.begin()
    shutil.rmtree(root)
    transaction.abort()
    assert not root.exists() or not os.listdir(root)


def test_a_commit_beside_a_table_that_was_made_anew_in_less_than_a_minute_is_withdrawn(tmp_path: Path) -> None:
    root = tmp_path / "table"
    table = Table(root)
    transaction = table.begin()
    as_tasks_do(table, transaction)
    shutil.rmtree(root)
    other = Table(root).begin()
    as_tasks_do(Table(root), other)
    other.commit()
    as_tasks_do(table, transaction)
    with pytest.raises(CommitConflictError, match="removed, moved or replaced"):
        transaction.commit()
    assert Table(root).snapshot().tids == (other.tid,)
    assert f"_committed_{transaction.tid}" not in os.listdir(root)


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_a_commit_to_a_table_that_is_dropped_between_two_looks_is_a_conflict(operation: Any) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    table = Table.over(store, clock)
    transaction = table.begin(operation)
    stage(table, transaction)
    Table.over(store, clock).drop(everything=True)
    clock.advance(timedelta(hours=1))
    write(Table.over(store, clock))
    drop = Table.over(store, clock).drop
    store.before = once("get", "_dbio_table", lambda: drop(everything=True))
    with pytest.raises(CommitConflictError, match="removed, moved or replaced"):
        transaction.commit()


def test_a_commit_of_which_the_last_look_fails_is_of_unknown_state_and_can_be_asked_again() -> None:
    store = MemoryStore()
    table = Table.over(store)
    transaction = table.begin()
    stage(table, transaction)
    store.before = fail_with(StoreError("503"), "stat_log", "_dbio_table", times=None)
    with pytest.raises(StoreError):
        transaction.commit()  # which has not begun: the first look of who created the table
    heal(store)
    store.before = once("put_if_absent", "_committed_*", lambda: fail_after(store))
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    heal(store)
    assert transaction.commit().tid == transaction.tid
    assert table.snapshot().tids == (transaction.tid,)


def fail_after(store: MemoryStore) -> None:
    store.before = fail_with(StoreError("503"), "stat_log", "_dbio_table", times=None)


def test_a_commit_to_a_table_that_was_made_anew_is_of_unknown_state_if_the_next_look_fails() -> None:
    store = MemoryStore()
    table = Table.over(store)
    transaction = table.begin()
    stage(table, transaction)

    def make_anew() -> None:
        store.objects.clear()
        write(Table.over(store), bodies=[b"another"])
        store.before = fail_with(StoreError("503"), "stat", names.committed(transaction.tid), times=None)

    store.before = once("put_if_absent", "_committed_*", make_anew)
    with pytest.raises(CommitStateUnknownError, match="503"):
        transaction.commit()


def test_a_descriptor_that_is_away_for_a_moment_costs_no_commit() -> None:
    store = MemoryStore()
    table = Table.over(store)
    write(table, bodies=[b"a"])
    transaction = table.begin()
    stage(table, transaction, b"new")
    store.before = once("stat_log", "_dbio_table", lambda: hide(store))
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    heal(store)
    store.objects["_dbio_table"] = store.objects.pop("hidden")
    assert contents(table) == [b"a", b"new"]
    assert table.check().ok


def hide(store: MemoryStore) -> None:
    store.objects["hidden"] = store.objects.pop("_dbio_table")


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_who_commits_again_after_the_table_was_moved_hears_of_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: Any
) -> None:
    root = tmp_path / "table"
    table = Table(root)
    first = table.begin()
    as_tasks_do(table, first)
    first.commit()
    transaction = table.begin(operation)
    as_tasks_do(table, transaction)
    move_after_the_marker(monkeypatch, table, root)
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    monkeypatch.undo()
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    assert transaction.tid in Table(f"{root}-moved").snapshot().tids
