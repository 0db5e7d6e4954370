"""The Z-curve: rows by the bits of their ranks by turns, whatever the values are."""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.maintenance.compact.options import MOST_Z_COLUMNS
from dbio_commit.maintenance.compact.z_order import keys, z_codes, z_order

NUMBERS = st.one_of(st.none(), st.floats(width=32), st.sampled_from([0.0, -0.0, math.nan, math.inf]))
TEXTS = st.one_of(st.none(), st.text(max_size=3))
FLAGS = st.one_of(st.none(), st.booleans())
ROWS = st.lists(st.tuples(NUMBERS, TEXTS, FLAGS), max_size=40)


def column(values: list[Any], kind: Any = None, *, chunks: int = 3) -> Any:
    """In some chunks, as rows of several files come."""
    size = len(values) // chunks + 1
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    arrays: list[Any] = [pa.array(part, kind) for part in parts]
    return pa.chunked_array(arrays, kind or arrays[0].type)


def place(value: Any) -> tuple[int, Any]:
    """Where a value stands: nulls first, NaN last."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def expected_keys(values: list[Any], bits: int) -> list[int]:
    places = [place(value) for value in values]
    less = [sum(other < own for other in places) for own in places]
    same = [places.count(own) for own in places]
    return [(2 * lower + equal << bits) // (2 * len(values)) for lower, equal in zip(less, same, strict=True)]


def expected_code(row: tuple[int, ...], bits: int) -> int:
    """The bits by turns, the highest first."""
    digits = "".join(f"{key:0{bits}b}"[bit] for bit in range(bits) for key in row)
    return int(digits, 2)


@given(ROWS)
def test_rows_lie_in_the_order_of_the_morton_codes_of_their_ranks(rows: list[tuple[Any, ...]]) -> None:
    kinds: dict[str, Any] = {"number": pa.float32(), "text": pa.string(), "flag": pa.bool_()}
    values = [list(it) for it in zip(*rows, strict=True)] or [[], [], []]
    columns = [column(some, kind) for some, kind in zip(values, kinds.values(), strict=True)]
    codes = [expected_code(row, 16) for row in zip(*(expected_keys(some, 16) for some in values), strict=True)]
    assert z_codes(columns).to_pylist() == codes
    order = z_order(pa.table(dict(zip(kinds, columns, strict=True))), list(kinds)).to_pylist()
    assert order == sorted(range(len(rows)), key=lambda i: codes[i])  # which keeps equal ones as they come


@pytest.mark.parametrize(("columns", "bits"), [(1, 16), (2, 16), (4, 16), (5, 12), (7, 9), (8, 8)])
def test_any_number_of_columns_shares_the_bits_of_a_code(columns: int, bits: int) -> None:
    values = [[(i * (2 * j + 1) + j) % 97 for i in range(97)] for j in range(columns)]
    rows = zip(*(expected_keys(some, bits) for some in values), strict=True)
    assert z_codes([column(some) for some in values]).to_pylist() == [expected_code(row, bits) for row in rows]
    assert columns <= MOST_Z_COLUMNS


def test_two_values_differ_in_the_first_bit_however_few_rows_have_one() -> None:
    for few in (1, 50, 99):
        low, high = set(keys(column([False] * few + [True] * (100 - few)), bits=16).to_pylist())
        assert low >> 15 != high >> 15


@pytest.mark.parametrize("values", [[], [None], [None, None, None]])
def test_columns_without_a_value_have_one_place(values: list[None]) -> None:
    for kind in (pa.null(), pa.int64(), pa.string(), pa.decimal128(10, 2)):
        assert len(set(keys(column(values, kind), bits=16).to_pylist())) <= 1
        assert len(z_codes([column(values, kind)])) == len(values)


def test_a_stretch_of_rows_spans_little_of_either_column() -> None:
    points = [(x, Decimal(10) ** y) for x in range(16) for y in range(16)]  # however far apart the values are
    table = pa.table({"x": [x for x, _ in points], "y": [y for _, y in points]})
    rows = table.take(z_order(table, ["x", "y"])).to_pylist()
    for start in range(0, 256, 16):
        stretch = rows[start : start + 16]
        assert len({row["x"] for row in stretch}) == 4
        assert len({row["y"] for row in stretch}) == 4
