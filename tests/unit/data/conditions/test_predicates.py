"""Patterns and pairs of columns: all tools, and statistics, decide as Python's own rule does."""

import itertools
import math
import operator
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.columns import spark_schema
from dbio_commit.data.conditions.expressions import MOST_PARTS, for_arrow, for_duckdb, for_polars, may_match
from dbio_commit.data.conditions.terms import read_condition
from dbio_commit.data.conditions.tree import ColumnPair, Condition, Facts, like

NAN = math.nan


def found_by_all(condition: Condition, rows: pa.Table) -> list[int]:
    """The rows that Arrow, Polars and DuckDB find."""
    numbered = rows.append_column("row", pa.array(range(rows.num_rows)))
    found: list[Any] = numbered.filter(for_arrow(condition, rows.schema))["row"].to_pylist()
    frame = pl.DataFrame(pl.from_arrow(numbered)).filter(for_polars(condition, rows.schema))
    relation = duckdb.connect().from_arrow(numbered).filter(for_duckdb(condition, rows.schema)).select('"row"')
    assert found == frame["row"].to_list() == sorted(row for (row,) in relation.fetchall()), condition
    return found


TEXTS = ["", "a", "A", "ab", "a.b", "a_b", "a%b", "äb", "a\nb", "\U0001f600", "\U0001f600b", "[a]", "a\\b", "é"]
TEXT_ROWS = pa.table({"s": pa.array([*TEXTS, None])})


def is_like(text: str, pattern: str) -> bool:
    """The definition, by recursion."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(is_like(text[i:], pattern[1:]) for i in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and is_like(text[1:], pattern[1:])


PATTERNS = ["", "%", "_", "__", "a%", "%b", "a_b", "%.%", "[a]", "\U0001f600_", "A", "_%_", "a\n%", "%%", "*", "^a$"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_matched_by_all_tools_character_by_character(pattern: str) -> None:
    condition = like("s", pattern, None)
    assert condition is not None
    wanted = [i for i, text in enumerate(TEXTS) if is_like(text, pattern)]
    assert found_by_all(condition, TEXT_ROWS) == wanted
    assert found_by_all(condition.negated(), TEXT_ROWS) == [i for i in range(len(TEXTS)) if i not in wanted]


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "other"),
    [("a!_b", "!", "a_b", "aab"), ("!%%", "!", "%x", "x"), ("!!", "!", "!", "!!"), ("a\\%", "\\", "a%", "ab")],
)
def test_a_character_after_the_escape_means_itself(pattern: str, escape: str, text: str, other: str) -> None:
    condition = like("s", pattern, escape)
    assert condition is not None
    assert found_by_all(condition, pa.table({"s": [text, other]})) == [0]


@pytest.mark.parametrize(("pattern", "escape"), [("a!", "!"), ("a!b", "!"), ("a", "!!"), ("a", ""), ("a" * 1001, None)])
def test_what_spark_refuses_or_is_too_long_is_no_pattern(pattern: str, escape: str | None) -> None:
    assert like("s", pattern, escape) is None


@given(st.text("ab_%", max_size=4), st.lists(st.text("abc", max_size=3) | st.none(), min_size=1, max_size=4))
def test_bounds_leave_out_no_text_that_is_like_a_pattern(pattern: str, texts: list[str | None]) -> None:
    own = [text for text in texts if text is not None]
    facts = Facts(min(own, default=None), max(own, default=None), len(texts) - len(own), len(texts))
    condition = like("s", pattern, None)
    assert condition is not None
    for it, wanted in ((condition, True), (condition.negated(), False)):
        found = [is_like(text, pattern) == wanted for text in own]
        assert it.may_hold(lambda _: facts) or not any(found)
        assert not it.must_hold(lambda _: facts) or (all(found) and len(found) == len(texts))
    if facts.low == facts.high and own:
        assert condition.may_hold(lambda _: facts) == is_like(own[0], pattern)


COMPARE = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
NUMBERS = [None, NAN, -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf]


def ordered(value: Any) -> Any:
    """As Spark orders numbers: NaN is one value, after all others."""
    return (value != value, 0 if value != value else value)


@pytest.mark.parametrize("how", COMPARE)
@pytest.mark.parametrize(
    ("kinds", "values"),
    [
        ((pa.int8(), pa.int64()), [None, -1, 0, 127]),
        ((pa.string(), pa.string()), [None, "", "a", "ä"]),
        ((pa.float64(), pa.float64()), NUMBERS),
        ((pa.float32(), pa.float64()), NUMBERS),
    ],
)
def test_two_columns_are_compared_by_all_tools_and_statistics(how: Any, kinds: Any, values: list[Any]) -> None:
    pairs = list(itertools.product(values, values))
    rows = pa.table([pa.array([it[i] for it in pairs], kinds[i]) for i in (0, 1)], names=["a", "b"])
    condition = ColumnPair("a", how, "b")
    wanted = [None not in it and COMPARE[how](ordered(it[0]), ordered(it[1])) for it in pairs]
    assert found_by_all(condition, rows) == [i for i, it in enumerate(wanted) if it]
    opposite = [i for i, it in enumerate(pairs) if None not in it and not wanted[i]]
    assert found_by_all(condition.negated(), rows) == opposite
    for pair, holds, batch in zip(pairs, wanted, rows.to_batches(max_chunksize=1), strict=True):
        facts = {name: _facts(value) for name, value in zip("ab", pair, strict=True)}.__getitem__
        assert condition.may_hold(facts) or not holds
        assert holds or not condition.must_hold(facts)
        assert may_match(batch, condition) or not holds


def _facts(value: Any) -> Facts:
    if value is None:
        return Facts(nulls=1, rows=1)
    return Facts(nulls=0, rows=1) if value != value else Facts(value, value, 0, 1)


ROWS = pa.table({"id": pa.array([1, 2, 3_000], pa.int64())})
SCHEMA = spark_schema(ROWS.schema, where="it")


def test_many_alternatives_for_one_column_are_one_list_and_other_long_chains_are_refused() -> None:
    """Arrow would end the process."""
    many = " OR ".join(f"id = {number}" for number in range(MOST_PARTS * 2))
    assert found_by_all(read_condition(many, SCHEMA, zone=None, instead=""), ROWS) == [0, 1, 2]
    chain = " OR ".join(f"id < {number}" for number in range(MOST_PARTS + 1))
    terms: Any = [[("id", "<", number)] for number in range(MOST_PARTS + 1)]
    for where in (chain, terms):
        with pytest.raises(InvalidInputError, match=r"joins 2,001 parts, and at most 2,000 .* by 'in'"):
            read_condition(where, SCHEMA, zone=None, instead="")
