"""Conditions on rows in memory: nulls, NaN, numbers of other types; and which conditions are left to Spark."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.columns import spark_schema
from dbio_commit.data.evaluate import holds, same
from dbio_commit.data.where_exactly import parse_exactly

NAN = float("nan")
COLUMNS: Any = (
    {
        "id": pa.array([1, 2, None, -(2**63)], pa.int64()),
        "small": pa.array([1, -128, 127, None], pa.int8()),
        "text": pa.array(["a", "", None, "ä"]),
        "flag": pa.array([True, False, None, True]),
        "x": pa.array([1.5, NAN, None, -0.0]),
        "money": pa.array([Decimal("1.50"), Decimal("-2.25"), None, Decimal("0.00")], pa.decimal128(10, 2)),
        "day": pa.array([date(2026, 11, 20), date(1970, 1, 1), None, date(2026, 11, 21)]),
        "at": pa.array([datetime(2026, 11, 20, 12, tzinfo=UTC), None, None, datetime(1970, 1, 1, tzinfo=UTC)],
                       pa.timestamp("us", "UTC")),
    }
)  # fmt: skip
ROWS = pa.record_batch(COLUMNS)
SCHEMA = spark_schema(ROWS.schema, where="it")


def which(sql: str) -> list[int]:
    condition = parse_exactly(sql, SCHEMA, zone=None, instead="")
    return [i for i, it in enumerate(holds(condition, ROWS).to_pylist()) if it]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("id = 1", [0]),
        ("id != 1", [1, 3]),
        ("NOT (id = 1)", [1, 3]),
        ("small <= 1000", [0, 1, 2]),
        ("small > -1000", [0, 1, 2]),
        ("small = 1000", []),
        ("id < 1.5", [0, 3]),
        ("id IS NULL", [2]),
        ("id IS NOT NULL AND id > 1", [1]),
        ("id > 1 OR text = 'ä'", [1, 3]),
        ("NOT (id > 1 AND text = 'a')", [0, 1, 3]),
        ("text IN ('a', 'ä')", [0, 3]),
        ("text NOT IN ('a', 'ä')", [1]),
        ("text > 'a'", [3]),
        ("flag", [0, 3]),
        ("NOT flag", [1]),
        ("x > 1", [0, 1]),
        ("x <= 0", [3]),
        ("x = 0", [3]),
        ("x != 0", [0, 1]),
        ("x >= 1.5", [0, 1]),
        ("x < 1.5", [3]),
        ("money > 1.234", [0]),
        ("money = 0", [3]),
        ("money BETWEEN -3 AND 1.5", [0, 1, 3]),
        ("money IN (1.5, 7)", [0]),
        ("day = '2026-11-20'", [0]),
        ("day >= DATE '2026-11-20'", [0, 3]),
        ("at > '2026-11-20T11:00:00Z'", [0]),
    ],
)
def test_a_condition_holds_for_the_rows_for_which_it_is_true_in_spark(sql: str, rows: list[int]) -> None:
    assert which(sql) == rows


@pytest.mark.parametrize(
    "sql",
    ["upper(text) = 'A'", "id + 1 = 2", "text = 1", "id = text", "id IN (1, NULL)", "at > '2026-11-20 11:00:00'",
     "text LIKE 'a%'", "id = 1 OR length(text) = 1", "text = 'it''s'", "id = 1e3", "id <=> 1",
     "id < 99999999999999999999", "small >= -9223372036854775809"],
)  # fmt: skip
def test_what_is_not_certain_is_not_evaluated(sql: str) -> None:
    with pytest.raises(InvalidInputError, match="Pass a session"):
        parse_exactly(sql, SCHEMA, zone=None, instead="Pass a session")


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)


@given(
    values=st.lists(NUMBERS | st.none(), max_size=20),
    bound=NUMBERS,
    how=st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
)
def test_whole_numbers_compare_as_in_python(values: list[Any], bound: int, how: str) -> None:
    rows = pa.record_batch({"id": pa.array(values, pa.int64())})
    try:
        condition = parse_exactly(f"id {how} {bound}", spark_schema(rows.schema, where="it"), zone=None, instead="")
    except InvalidInputError:  # a number that Spark may read in several ways
        return
    python = {"=": "==", "!=": "!="}.get(how, how)
    want = [value is not None and eval(f"{value} {python} {bound}") for value in values]
    assert holds(condition, rows).to_pylist() == want


def test_values_are_the_same_if_both_are_null() -> None:
    one, other = pa.array([1, None, 2, None]), pa.array([1, None, 3, 4])
    assert same(one, other).to_pylist() == [True, True, False, False]
