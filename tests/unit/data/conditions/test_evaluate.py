"""Conditions on rows in memory: nulls, NaN, numbers of other types; and which conditions are left to Spark."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.columns import spark_schema
from dbio_commit.data.conditions.expressions import for_duckdb, for_polars, holds, may_match, same
from dbio_commit.data.conditions.sql import parse_exactly, parse_where
from dbio_commit.data.conditions.tree import NOTHING_KNOWN, Facts

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
        ("text = ''", [1]),
        ("text LIKE 'a%'", [0]),
        ("text LIKE '%'", [0, 1, 3]),
        ("text LIKE '_'", [0, 3]),
        ("text NOT LIKE '%a%'", [1, 3]),
        ("NOT (text LIKE '_' AND id = 1)", [1, 3]),
        ("id <= small", [0]),
        ("id != small", [1]),
        ("NOT (id > small)", [0]),
    ],
)
def test_a_condition_holds_for_the_rows_for_which_it_is_true_in_spark(sql: str, rows: list[int]) -> None:
    assert which(sql) == rows


@pytest.mark.parametrize(
    "sql",
    ["upper(text) = 'A'", "id + 1 = 2", "text = 1", "id = text", "id IN (1, NULL)", "at > '2026-11-20 11:00:00'",
     "text RLIKE 'a'", "id LIKE '1'", "text LIKE 'a!b' ESCAPE '!'", "x = id", "flag = flag",
     "id = 1 OR length(text) = 1", "text = 'it''s'", "id = 1e3", "id <=> 1",
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


# --- all who decide about rows ------------------------------------------------------------------------------------

_NUMBERS = [
    "0",
    "-0.0",
    "1",
    "1.5",
    "-2.25",
    "128",
    "'5'",
    "'300'",
    "1e-3",
    "5L",
    "9223372036854775808",
    "0.1D",
    "NULL",
]
_TEXTS = ["'a'", "''", "'ä'", "'a '", "5"]
_TIMES = [
    "'2026-11-20'",
    "DATE '1970-01-01'",
    "'2026-11-20T12:00:00Z'",
    "TIMESTAMP '2026-11-20 13:00:00'",
    "'0001-01-01'",
]
_LITERALS = {"text": _TEXTS, "flag": ["true", "false", "NULL"], "day": _TIMES, "at": _TIMES}


@st.composite
def _atoms(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(list(COLUMNS)))
    literal = st.sampled_from(_LITERALS.get(column, _NUMBERS))
    match draw(st.sampled_from(["compare", "compare", "mirrored", "in", "between", "null", "like", "pair"])):
        case "like":
            return f"text {draw(st.sampled_from(['LIKE', 'NOT LIKE']))} '{draw(st.text('aä%_ .', max_size=3))}'"
        case "pair":
            return f"id {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} small"
        case "in":
            values = ", ".join(draw(st.lists(literal, min_size=1, max_size=3)))
            return f"{column} {draw(st.sampled_from(['IN', 'NOT IN']))} ({values})"
        case "between":
            return f"{column} {draw(st.sampled_from(['BETWEEN', 'NOT BETWEEN']))} {draw(literal)} AND {draw(literal)}"
        case "null":
            return draw(st.sampled_from([f"{column} IS NULL", f"{column} IS NOT NULL", "flag", "true", "false"]))
        case how:
            sides = [column, draw(literal)]
            left, right = sides if how == "compare" else reversed(sides)
            return f"{left} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {right}"


_CONDITIONS = st.recursive(
    _atoms(),
    lambda inside: (
        st.builds("({}) {} ({})".format, inside, st.sampled_from(["AND", "OR"]), inside)
        | st.builds("NOT ({})".format, inside)
    ),
    max_leaves=4,
)
_RELATION = duckdb.connect().from_arrow(pa.table({"row": pa.array(range(4)), **COLUMNS}))


@given(_CONDITIONS)
def test_tools_statistics_and_rows_decide_alike(sql: str) -> None:
    """Each row is also taken for a file whose bounds are its values. `test_spark_where_rows` asks Spark."""
    supposed = parse_where(sql, SCHEMA, zone="Europe/Berlin")
    try:
        condition = parse_exactly(sql, SCHEMA, zone="Europe/Berlin", instead="")
    except InvalidInputError:
        return
    found = holds(condition, ROWS).to_pylist()
    frame = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([ROWS]))).with_row_index("row")
    rows = [i for i, it in enumerate(found) if it]
    assert frame.filter(for_polars(condition, ROWS.schema))["row"].to_list() == rows
    by_duckdb = _RELATION.filter(for_duckdb(condition, ROWS.schema)).select('"row"').fetchall()
    assert sorted(row for (row,) in by_duckdb) == rows
    for i, (values, it) in enumerate(zip(ROWS.to_pylist(), found, strict=True)):
        facts_of = {name: _facts(value) for name, value in values.items()}.__getitem__
        for known in (condition, supposed):
            assert it or not known.must_hold(facts_of)
            assert known.may_hold(facts_of) or not it
            assert may_match(ROWS.slice(i, 1), known) or not it
            assert known.may_hold(lambda column: NOTHING_KNOWN) or not any(found)


def _facts(value: Any) -> Facts:
    if value is None:
        return Facts(nulls=1, rows=1)
    return Facts(nulls=0, rows=1) if value != value else Facts(value, value, 0, 1)
