"""Merges of parts with files: piece by piece, in little memory and few requests."""

from typing import Any

import pytest

from dbio_commit.commit import parts as writers
from dbio_commit.log.parts import merging, parquet, windows
from dbio_commit.log.parts.merging import Piece
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.log.parts.rows import FileRow, KeysOf, files_table, listed
from dbio_commit.protocol.parts import Merge, Part
from dbio_commit.testing import MemoryStore
from tests.builders import data

EACH, DAYS = 40, 20


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 5)
    monkeypatch.setattr(windows, "WINDOW_ROWS", 10)
    return MemoryStore()


def part_of(store: MemoryStore, number: int) -> Part:
    tid = f"{number:019}"
    rows = [FileRow(f"day={i % DAYS:02}", data(tid, i), tid, tid, added=i, size=i) for i in range(EACH)]
    [part] = writers.PartWriter(store, number).write("files", [Piece([files_table(rows)])])
    return part


def test_a_merge_has_few_rows_in_memory_and_cuts_them_evenly(store: MemoryStore) -> None:
    parts = [part_of(store, number) for number in (1, 2, 3)]
    pieces, cuts = merging.merge(PartReader(store, 9), Merge(parts, True, pieces=3))
    found: list[list[Any]] = []
    for piece in pieces:
        found.append([])
        for table in piece.tables:
            assert table.num_rows < EACH
            keys = KeysOf(table)
            found[-1] += zip([keys[i] for i in range(len(keys))], listed(table["name"]), strict=True)
    rows = [row for some in found for row in some]
    assert rows == sorted(rows)
    assert len(rows) == 3 * EACH
    assert [round(len(some) / EACH) for some in found] == [1, 1, 1]
    assert cuts == [some[0][0] for some in found[1:]]


def test_a_merge_fetches_each_part_once(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [part_of(store, number) for number in (1, 2)]
    asked: list[str] = []
    get = store.get

    def noted(path: str, **how: Any) -> bytes:
        asked.append(path)
        return get(path, **how)

    monkeypatch.setattr(store, "get", noted)
    monkeypatch.setattr(store, "get_range", None)
    pieces, _ = merging.merge(PartReader(store, 9), Merge(parts, True))
    assert sum(table.num_rows for piece in pieces for table in piece.tables) == 2 * EACH
    assert sorted(asked) == sorted(part.name for part in parts)
