"""Tables whose root leaves out the directories of row groups are read and written as others are.

Rules: PROTOCOL.md 9.7.
"""

import pytest

from dbio_commit.commit import checkpoints
from dbio_commit.log.parts import parquet
from dbio_commit.protocol import checkpoint as checkpoint_module
from dbio_commit.protocol.parts import Part
from dbio_commit.table import Table
from tests.writers import stage

Patch = pytest.MonkeyPatch

SCHEMA = {
    "type": "struct",
    "fields": [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", "day")],
}
DAYS = [f"2026-11-{day:02}" for day in range(1, 31)]


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: Patch) -> None:
    monkeypatch.setattr(checkpoints, "LARGE_FILES", 0)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 3)


def write_all(table: Table) -> set[str]:
    """Two files in each day, and a checkpoint after each write. Returns the paths."""
    written = set[str]()
    for _ in range(2):
        transaction = table.begin(partition_by=["day"])
        written |= {stage(table, transaction, partition={"day": day}) for day in DAYS}
        transaction.commit(SCHEMA)
        table.clock.sleep(20)
        assert table.checkpoint()
    return written


def parts_of(table: Table) -> tuple[Part, ...]:
    return tuple(part for part in table.snapshot().checkpoint.parts if part.kind == "files")


def is_listed(parts: tuple[Part, ...]) -> set[bool]:
    return {group.directories is not None for part in parts for group in part.groups}


@pytest.mark.parametrize("why", ["the root would be large", "the lists would be long", "no reason"])
def test_each_day_is_read_with_and_without_lists_of_directories(table: Table, why: str, monkeypatch: Patch) -> None:
    if why == "the root would be large":
        monkeypatch.setattr(checkpoint_module, "MAX_BYTES", 100)
    if why == "the lists would be long":
        monkeypatch.setattr(parquet, "DIRECTORIES_BYTES", 10)
    written = write_all(table)
    parts = parts_of(table)
    assert is_listed(parts) == {why == "no reason"}
    assert sum(len(part.groups) for part in parts) > 10
    seen = table.snapshot()
    assert {file.path for file in seen.files} == written
    for day in DAYS:
        expected = {path for path in written if path.startswith(f"day={day}/")}
        assert {file.path for file in table.snapshot(where=f"day = '{day}'").files} == expected
    transaction = table.begin("overwrite")
    stage(table, transaction, partition={"day": "2026-12-01"})
    transaction.commit()
    assert len(table.snapshot().files) == 1
    assert table.checkpoint()
    assert len(table.snapshot().files) == 1


def test_of_a_dropped_part_the_root_lists_no_directories(table: Table) -> None:
    write_all(table)
    dropped = table.snapshot().checkpoint.dropped
    assert dropped
    assert is_listed(tuple(it.part for it in dropped)) == {False}
