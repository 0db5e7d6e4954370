"""Rows are divided among files: each row has one file, and no two files have boxes that overlap (ADR 0106)."""

import math
import pickle
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.maintenance.compact.cut import Box, RowCut, Tree, cut_rows, divide

NUMBERS = st.one_of(st.none(), st.floats(width=32), st.sampled_from([0.0, -0.0, math.nan, math.inf]))
TEXTS = st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["x" * 64, "x" * 64 + "a", "x" * 63 + "y"]))
FEW = st.sampled_from([None, 1, 1, 1, 1, 1, 1, 2, 3])
ROWS = st.lists(st.tuples(NUMBERS, TEXTS, FEW), max_size=60)
TYPES: Mapping[str, Any] = {"number": pa.float64(), "text": pa.string(), "few": pa.int16()}


def table_of(rows: Sequence[Any], names: Sequence[str] = tuple(TYPES)) -> pa.Table:
    columns = [*zip(*rows, strict=True)] or [()] * len(TYPES)
    every = {name: pa.array(columns[i], TYPES[name]) for i, name in enumerate(TYPES)}
    return pa.table({"row": pa.array(range(len(rows)), pa.int64()), **{name: every[name] for name in names}})


def place(value: Any) -> tuple[int, Any]:
    """Where a value is in the order of a column: nulls first, NaN last, and of a text what its bounds have."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value[:64] if isinstance(value, str) else value)


def files_of(tree: Tree, table: pa.Table, *, at_once: int | None = None) -> dict[int, list[dict[str, Any]]]:
    """The rows of each file, by its number."""
    found: dict[int, list[dict[str, Any]]] = {}
    step = at_once or max(table.num_rows, 1)
    for start in range(0, table.num_rows, step):
        for number, rows in divide(tree, table.slice(start, step)):
            found.setdefault(number, []).extend(rows.to_pylist())
    return found


def are_apart(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bool:
    for name in names:
        a, b = ([place(row[name]) for row in rows] for rows in (one, other))
        if max(a) < min(b) or max(b) < min(a):
            return True
    return False


@given(ROWS, st.integers(1, 9), st.sampled_from([["number"], ["text", "few"], ["few", "number", "text"]]))
def test_each_row_has_one_file_and_boxes_do_not_overlap(rows: list[Any], pieces: int, names: list[str]) -> None:
    table = table_of(rows, names)
    tree = pickle.loads(pickle.dumps(cut_rows(table.select(names), pieces)))
    files = files_of(tree, table)
    assert sorted(row["row"] for own in files.values() for row in own) == list(range(len(rows)))
    assert not files or 0 <= min(files) <= max(files) < pieces
    for a, one in files.items():
        for b, other in files.items():
            alike = {tuple(place(row[name]) for name in names) for row in (*one, *other)}
            assert a == b or len(alike) == 1 or are_apart(one, other, names)


@given(ROWS, st.integers(1, 9), st.integers(1, 20))
def test_the_file_of_a_row_does_not_depend_on_the_rows_beside_it(rows: list[Any], pieces: int, step: int) -> None:
    table = table_of(rows)
    tree = cut_rows(table.select([*TYPES]), pieces)
    files, others = files_of(tree, table), files_of(tree, table, at_once=step)

    def values(found: dict[int, list[dict[str, Any]]]) -> set[tuple[Any, ...]]:
        return {(number, repr(tuple(map(place, [*row.values()][1:])))) for number, own in found.items() for row in own}

    if not any(leaf.count > 1 for leaf in leaves(tree)):
        assert values(files) == values(others)


def leaves(tree: Tree) -> list[Box]:
    return [tree] if isinstance(tree, Box) else [*leaves(tree.below), *leaves(tree.rest)]


@pytest.mark.parametrize("pieces", [2, 3, 7, 10, 64])
def test_files_have_about_as_many_rows_as_each_other(pieces: int) -> None:
    rows = pa.table({"a": [i * 7919 % 10007 for i in range(6400)], "b": [i * 104729 % 6421 for i in range(6400)]})
    sizes = [len(own) for own in files_of(cut_rows(rows, pieces), rows).values()]
    assert len(sizes) == pieces
    assert max(sizes) <= 1.1 * 6400 / pieces + 1
    assert min(sizes) >= 0.9 * 6400 / pieces - 1


def test_a_column_whose_texts_are_alike_in_64_characters_is_not_cut() -> None:
    rows = pa.table({"long": ["x" * 64 + str(i) for i in range(100)], "id": list(range(100))})
    tree = cut_rows(rows, 4)
    assert isinstance(tree, RowCut)
    assert {tree.column, *(it.column for it in (tree.below, tree.rest) if isinstance(it, RowCut))} == {"id"}


def test_rows_that_are_all_alike_make_files_of_equal_sizes() -> None:
    rows = pa.table({"id": [7] * 100})
    assert [len(own) for _, own in sorted(files_of(cut_rows(rows, 4), rows).items())] == [25] * 4


def test_a_value_in_nearly_all_rows_is_cut_off_from_the_rare_ones() -> None:
    rows = pa.table({"id": [*range(50), *[500] * 900, *range(1000, 1050)]})
    files = files_of(cut_rows(rows, 8), rows)
    rare = [number for number, own in files.items() if any(row["id"] != 500 for row in own)]
    assert all(500 not in {row["id"] for row in files[number]} for number in rare)


VALUES: Mapping[str, tuple[Any, list[Any]]] = {
    "boolean": (pa.bool_(), [False, True]),
    "byte": (pa.int8(), [-128, 127]),
    "decimal": (pa.decimal128(38, 2), [Decimal(-5), Decimal("0.01"), Decimal(10**30)]),
    "double": (pa.float64(), [-math.inf, -0.5, 1e300, math.nan]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
    "timestamp_ntz": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(2026, 1, 1) + timedelta(microseconds=1)]),
    "string": (pa.string(), ["", "a", "\U0010ffff"]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_rows_are_cut_between_values_of_each_type_with_bounds(kind: str) -> None:
    arrow, values = VALUES[kind]
    rows = pa.table({"c": pa.array([None, *values] * 5, arrow)})
    files = files_of(cut_rows(rows, len(values) + 1), rows)
    assert len(files) == len(values) + 1
    assert all(len({place(row["c"]) for row in own}) == 1 for own in files.values())
