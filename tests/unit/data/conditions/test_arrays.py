"""Conditions on arrays of bounds keep each file that they keep when it is judged alone, and hardly any other."""

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.data.conditions.arrays import Ends, Spread, as_numpy, may_hold_each
from dbio_commit.data.conditions.pruning import value_of
from dbio_commit.data.conditions.tree import AllOf, AnyOf, AtMost, Comparison, Condition, Facts, IsNull, OneOf

VALUES: dict[str, list[Any]] = {
    "long": [-(1 << 63), -3, 0, 1, 2, (1 << 63) - 1],
    "string": ["", "a", "ab", "b", "\U0001f40d"],
    "date": [date(1, 1, 1), date(2026, 1, 1), date(2026, 1, 2)],
    "decimal(5,2)": [Decimal("-1.5"), Decimal("0"), Decimal("2.25")],
    "boolean": [False, True],
}
BOUNDS: dict[str, tuple[list[Any], pa.DataType]] = {
    "long": ([*VALUES["long"], None], pa.int64()),
    "string": ([*VALUES["string"], None], pa.string()),
    "date": (["0001-01-01", "2026-01-01", "2026-01-02", "no date", None], pa.string()),
    "decimal(5,2)": (["-1.50", "0.00", "2.25", "0", "none", None], pa.string()),
    "boolean": ([False, True, None], pa.bool_()),
}
MORE = {"long": [Decimal("0.5"), 1e300, 1 << 70, -(1 << 70)], "decimal(5,2)": [1, Decimal("2.249")]}
"""Values that conditions on such columns may have, too."""


def leaves(column: str) -> st.SearchStrategy[Condition]:
    values = [*VALUES[column], *MORE.get(column, [])]
    one = st.sampled_from(values)
    compared = st.tuples(one, one).map(sorted)
    some = st.sets(one, min_size=1).map(lambda it: tuple(sorted(it)))
    return st.one_of(
        st.builds(
            lambda operator, ends: Comparison(column, operator, *ends),
            st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
            compared,
        ),
        st.builds(OneOf, st.just(column), some, st.booleans()),
        st.builds(IsNull, st.just(column), st.booleans()),
    )


def joined(parts: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    some = st.lists(parts, max_size=3).map(tuple)
    return st.one_of(st.builds(AllOf, some), st.builds(AnyOf, some), st.builds(AtMost, parts))


CONDITIONS = st.recursive(st.one_of(*map(leaves, VALUES)), joined, max_leaves=5)


@given(st.data(), CONDITIONS, st.integers(0, 6))
def test_no_file_is_ruled_out_that_may_have_such_a_row(data: st.DataObject, condition: Condition, count: int) -> None:
    bounds: dict[str, tuple[list[Any], list[Any]]] = {
        column: tuple(data.draw(st.lists(st.sampled_from(it), min_size=count, max_size=count)) for _ in range(2))  # type: ignore[misc]
        for column, (it, _) in BOUNDS.items()
        if data.draw(st.booleans())
    }
    read = {column: None if column == "long" else (lambda it, of=column: value_of(it, of)) for column in bounds}
    spread = {
        column: Spread(*(Ends(pa.array(it, BOUNDS[column][1]), read[column]) for it in both))
        for column, both in bounds.items()
    }
    found = may_hold_each(condition, spread, count)
    for i in range(count):
        facts = {
            column: Facts(value_of(low[i], column), value_of(high[i], column)) for column, (low, high) in bounds.items()
        }
        may = condition.may_hold(lambda column: facts.get(column, Facts()))  # noqa: B023
        assert found[i] or not may
        if not {*map(type, parts_of(condition))} & {IsNull} and not any(map(is_negative, parts_of(condition))):
            assert found[i] == may


def parts_of(condition: Condition) -> list[Condition]:
    match condition:
        case AllOf(parts) | AnyOf(parts):
            return [it for part in parts for it in parts_of(part)]
        case AtMost(bound):
            return parts_of(bound)
    return [condition]


def is_negative(condition: Condition) -> bool:
    match condition:
        case Comparison(_, "!=") | OneOf(_, _, False):
            return True
    return False


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64()])
def test_integers_of_a_slice_are_the_numbers_of_it(kind: pa.DataType) -> None:
    numbers = pa.array([1, 2, 3, 4], kind)
    assert as_numpy(numbers.slice(1, 2)).tolist() == [2, 3]
    assert as_numpy(numbers.slice(4)).tolist() == as_numpy(pa.array([], kind)).tolist() == []
