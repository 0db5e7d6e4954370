"""Counts of rows by what writers recorded: of all files, or none."""

from typing import Any

import pytest

from dbio_commit.data.counts import count_rows
from tests.builders import DESCRIPTOR, World, data


def counts(rows: list[Any], nulls: list[Any], *columns: str, removed: bool = False) -> Any:
    """Of a table with two files in two days."""
    world = World(descriptor=False)
    world.put_json("_dbio_table", {**DESCRIPTOR, "partition_columns": ["day"]})
    days: list[str | None] = ["2026-11-20", None]
    paths = [f"day={day or '__HIVE_DEFAULT_PARTITION__'}/{data('1')}" for day in days]
    bounds = {"ID": {"min": [None, None], "max": [None, None], "nulls": nulls}} if nulls else {}
    files = {"size": [5, 6], "rows": rows, "partition": {"day": days}, "statistics": bounds}
    world.commit("1", paths, files=files)
    if removed:
        world.commit("2", [], removed=paths[:1])
    snapshot = world.snapshot()
    return count_rows(snapshot.files, snapshot.of_files, columns)


@pytest.mark.parametrize(
    ("rows", "nulls", "columns", "expected"),
    [
        ([3, 4], [], [], {("2026-11-20",): [3], (None,): [4]}),
        ([3, 0], [1, 0], ["id"], {("2026-11-20",): [3, 2], (None,): [0, 0]}),
        ([3, None], [1, 0], [], None),
        ([3, 4], [1, None], ["id"], None),
        ([3, 4], [1, 5], ["id"], None),  # more nulls than rows: one of the two is wrong
        ([3, 4], [1, 0], ["id", "other"], None),
        ([3, 4], [], ["id"], None),
    ],
)
def test_counts_are_those_of_all_files_or_none(
    rows: list[Any], nulls: list[Any], columns: list[str], expected: Any
) -> None:
    assert counts(rows, nulls, *columns) == expected


def test_files_that_are_not_live_do_not_count() -> None:
    assert counts([None, 4], [], removed=True) == {(None,): [4]} == counts([3, 4], [], removed=True)
