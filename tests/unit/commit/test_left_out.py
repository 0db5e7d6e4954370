"""Statistics that do not fit into one object: the commit and the checkpoint stand, and a warning says what is missing.

Rules: PROTOCOL.md 7.5.
"""

from collections.abc import Callable

import pytest

from dbio_commit.commit import checkpoints
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import encode_checkpoint
from dbio_commit.protocol.markers.commit import encode_commit
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore
from tests.writers import live, write

STATISTICS = {"id": Bounds(1, 2, 0), "name": Bounds("a" * 60, "b" * 60, 0)}


def limit(monkeypatch: pytest.MonkeyPatch, function: Callable[..., object], most: int) -> None:
    assert function.__kwdefaults__
    monkeypatch.setitem(function.__kwdefaults__, "limit_bytes", most)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]


def size(store: MemoryStore, path: str) -> int:
    return len(store.objects[path][0])


def test_a_commit_without_statistics_is_logged_and_found_by_a_check(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = write(table, bodies=[b"rows"] * 20, statistics=STATISTICS)
    assert not warnings(caplog)
    limit(monkeypatch, encode_commit, size(store, names.committed(first.tid)) - 500)
    second = write(table, bodies=[b"rows"] * 20, statistics=STATISTICS)
    [warning] = warnings(caplog)
    assert warning.startswith(f"{table.url}: transaction {second.tid}: the statistics of 2 columns in 20 files")
    report = table.check()
    assert report.without_statistics == {names.committed(second.tid): 20}
    assert report.ok
    assert len(live(table)) == 40


def test_a_commit_in_a_directory_is_logged_too(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("part-0.parquet", b"rows")
    limit(monkeypatch, encode_commit, 5000)
    commit = write(table, bodies=[b"rows"] * 20, statistics=STATISTICS)
    assert any(f"transaction {commit.tid}: the statistics of 2 columns" in it for it in warnings(caplog))
    assert table.check().without_statistics == {names.committed(commit.tid): 20}


def test_a_marker_that_names_transactions_keeps_its_statistics_and_warns_of_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(TableRoot, "refer_above", 2000)
    write(table, bodies=[b"rows"] * 20)
    write(table, "overwrite", bodies=[b"rows"], statistics=STATISTICS)
    assert not warnings(caplog)


def test_statistics_for_which_one_object_has_no_room_are_put_into_parts(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commits = [write(table, bodies=[b"rows"] * 20, statistics=STATISTICS) for _ in range(3)]
    first = table.checkpoint()
    assert first
    assert not warnings(caplog)
    assert not table.check().without_statistics
    write(table)
    limit(monkeypatch, encode_checkpoint, size(store, first) - 1)
    assert checkpoints.checkpoint_now(store, table.clock)
    assert not warnings(caplog)
    assert not table.check().without_statistics
    assert table.snapshot().checkpoint.is_root
    described = {commit.tid: commit.files for commit in table.history()}
    assert all(file.statistics for commit in commits for file in described[commit.tid])
