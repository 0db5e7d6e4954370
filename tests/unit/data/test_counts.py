"""What follows from counts and bounds that writers recorded: numbers of rows, and where extremes may be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.data.counts import Extreme, count_rows, may_hold_extremes
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


VALUES = st.lists(st.none() | st.integers(-9, 9), max_size=4)
FILES = st.lists(
    st.tuples(VALUES, st.integers(0, 3), st.integers(0, 3), st.sets(st.sampled_from(["min", "max", "nulls"])))
)


@given(FILES)
def test_extremes_are_in_the_files_that_may_hold_them_however_loose_the_bounds_are(files: list[Any]) -> None:
    """Each file has values, how much its bounds are looser than these, and which facts are not recorded."""
    facts: dict[str, list[Any]] = {"min": [], "max": [], "nulls": []}
    for values, below, above, unknown in files:
        some = [it for it in values if it is not None]
        told = {"min": min(some) - below if some else None, "max": max(some) + above if some else None}
        told["nulls"] = values.count(None)
        for name, known in facts.items():
            known.append(None if name in unknown else told[name])
    world = World(descriptor=False)
    world.put_json("_dbio_table", {**DESCRIPTOR, "partition_columns": []})
    paths = [data("1", number) for number in range(len(files))]
    rows = [len(values) for values, *_ in files]
    world.commit(
        "1", paths, files={"size": [5] * len(files), "rows": rows, "partition": {}, "statistics": {"ID": facts}}
    )
    snapshot = world.snapshot()
    for is_greatest, of in ((True, max), (False, min)):
        wanted = [Extreme("id", "long", is_greatest)]
        kept = {file.path for file in may_hold_extremes(snapshot.files, snapshot.of_files, wanted)}
        every = [it for values, *_ in files for it in values if it is not None]
        if every:
            found = [it for path, (values, *_) in zip(paths, files, strict=True) if path in kept for it in values]
            assert of(it for it in found if it is not None) == of(every)


def test_files_that_overlap_in_no_value_are_left_out() -> None:
    world = World(descriptor=False)
    world.put_json("_dbio_table", {**DESCRIPTOR, "partition_columns": []})
    paths, facts = [data("1", number) for number in range(4)], {"min": [0, 5, 3, None], "max": [4, 9, 5, None]}
    statistics = {"id": {**facts, "nulls": [0, 0, 0, 2]}}
    world.commit("1", paths, files={"size": [5] * 4, "rows": [2] * 4, "partition": {}, "statistics": statistics})
    snapshot = world.snapshot()
    for is_greatest, kept in ((True, [1, 2]), (False, [0, 2])):
        files = may_hold_extremes(snapshot.files, snapshot.of_files, [Extreme("id", "long", is_greatest)])
        assert [file.path for file in files] == [paths[it] for it in kept]
