"""Conditions as expressions of Arrow, Polars and DuckDB: all three keep the rows that Python's own rule keeps."""

import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from dbio_commit.data.conditions.expressions import TERMS, for_arrow, for_duckdb, for_polars, term
from dbio_commit.data.conditions.tree import UNKNOWN, AllOf, AnyOf, Comparison, Condition, IsNull, OneOf

NAN, INFINITY = math.nan, math.inf
MORNING = datetime(2020, 1, 1, 7, tzinfo=UTC)
COLUMNS: Mapping[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "tiny": (pa.int8(), [1, 2, None, -5, 127, 0], [1, 300, -129, Decimal("1.5"), Decimal("126.9"), 127]),
    "single": (pa.float32(), [0.0, -0.0, NAN, None, 0.5, INFINITY], [0.0, 0.1, NAN, 1, -INFINITY, Decimal("0.5")]),
    "number": (pa.float64(), [0.0, -0.0, NAN, None, 0.1, -INFINITY], [0, 0.1, NAN, INFINITY]),
    "flag": (pa.bool_(), [True, False, None, True, False, None], [True, False]),
    "day": (pa.date32(), [date(2020, 1, 1), None, date(1, 1, 1), date(9999, 12, 31), date(2020, 1, 2), None],
            [date(2020, 1, 1)]),
    "at": (pa.timestamp("us", "UTC"), [MORNING, None, MORNING.replace(year=1900), MORNING, None, None], [MORNING]),
    "local": (pa.timestamp("us"), [MORNING.replace(tzinfo=None), None, *[datetime(1, 1, 1)] * 4], [datetime(1, 1, 1)]),
    "price": (pa.decimal128(5, 2), [*map(Decimal, ("1.50", "-1.5", "999.99", "0", "1.51")), None],
              [Decimal("1.5"), Decimal("1.505"), 1, 10_000, Decimal("999.999"), Decimal("-0.001")]),
    "name": (pa.string(), ["a", "b", None, "", "ä", "\U0001f600"], ["a", "ä", "\uffff", "it's"]),
    "raw": (pa.binary(), [b"a", b"\xff", None, b"", b"c", b"d"], [b"a", b"\xff"]),
}  # fmt: skip
TABLE = pa.table(
    {"id": pa.array(range(6), pa.int64()), **{name: pa.array(it[1], it[0]) for name, it in COLUMNS.items()}}
)
RELATION = duckdb.connect().from_arrow(TABLE)
PYTHON: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


def ordered(value: Any) -> tuple[bool, Any]:
    """As Spark orders numbers: NaN is one value, after all others."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, 0 if is_nan else value


def found_by_all(condition: Condition) -> list[int]:
    """The ids that all three find."""
    arrow: Any = TABLE.filter(for_arrow(condition, TABLE.schema))["id"].to_pylist()
    lazy = pl.DataFrame(pl.from_arrow(TABLE)).lazy().filter(for_polars(condition, TABLE.schema))
    relation = RELATION.filter(for_duckdb(condition, TABLE.schema)).select("id")
    assert arrow == lazy.collect()["id"].to_list() == sorted(row[0] for row in relation.fetchall()), condition
    found: list[int] = arrow
    return found


@pytest.mark.parametrize("column", COLUMNS)
def test_all_find_the_rows_that_spark_finds(column: str) -> None:
    _, values, given = COLUMNS[column]
    for value in given:
        for name, compare in PYTHON.items():
            expected = [i for i, own in enumerate(values) if own is not None and compare(ordered(own), ordered(value))]
            not_null = [i for i, own in enumerate(values) if own is not None]
            assert found_by_all(term(column, name, value)) == expected, (name, value)
            assert found_by_all(term(column, name, value).negated()) == [i for i in not_null if i not in expected]


@pytest.mark.parametrize("column", COLUMNS)
def test_lists_of_values_may_have_nulls(column: str) -> None:
    _, values, given = COLUMNS[column]
    equal = [i for i, own in enumerate(values) if own is not None and any(ordered(own) == ordered(it) for it in given)]
    nulls = [i for i, own in enumerate(values) if own is None]
    assert found_by_all(term(column, "in", given)) == equal
    assert found_by_all(term(column, "in", [*given, None])) == sorted(equal + nulls)
    assert found_by_all(term(column, "not in", [*given, None])) == [i for i in range(6) if i not in equal + nulls]
    assert found_by_all(term(column, "in", [])) == []
    assert found_by_all(term(column, "not in", [])) == [i for i in range(6) if i not in nulls]


def test_null_is_compared_only_by_equality() -> None:
    found = {name: found_by_all(term("tiny", name, None)) for name in TERMS if not name.endswith("in")}
    assert found == {"=": [2], "==": [2], "!=": [0, 1, 3, 4, 5], "<": [], "<=": [], ">": [], ">=": []}


def test_conditions_are_joined_as_in_sql_and_may_be_many() -> None:
    some = AnyOf((IsNull("tiny"), AllOf((term("tiny", ">", 0), term("name", "!=", "b")))))
    assert found_by_all(some) == [0, 2, 4]
    assert found_by_all(some.negated()) == [1, 3, 5]
    assert found_by_all(AllOf(())) == [0, 1, 2, 3, 4, 5]
    assert found_by_all(AnyOf(())) == []
    many = AnyOf(tuple(Comparison("id", "=", number, number) for number in range(5, 2000)))
    assert TABLE.filter(for_arrow(many, TABLE.schema))["id"].to_pylist() == [5]
    assert found_by_all(OneOf("id", tuple(range(4, 5000)))) == [4, 5]


@pytest.mark.parametrize("condition", [UNKNOWN, AllOf((UNKNOWN,)), Comparison("id", "=", 1, 2)])
def test_what_is_not_certain_has_no_expression(condition: Condition) -> None:
    with pytest.raises(ValueError, match="is not known"):
        for_arrow(condition, TABLE.schema)
