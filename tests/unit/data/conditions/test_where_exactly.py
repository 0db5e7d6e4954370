"""Conditions in SQL that are read exactly, and those that are refused. `test_spark_where_rows` asks Spark."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.conditions.sql import parse_exactly
from dbio_commit.data.conditions.tree import AllOf, AnyOf, ColumnPair, Comparison, IsNull, Like, OneOf
from tests.histories import columns

SCHEMA = columns(
    id="integer", tiny="byte", name="string", day="date", at="timestamp", local="timestamp_ntz", x="double",
    f="float", price="decimal(10,2)", flag="boolean", tags={"type": "array", "elementType": "string"}, raw="binary",
)  # fmt: skip


def is_(column: str, operator: Any, value: Any) -> Comparison:
    return Comparison(column, operator, value, value)


@pytest.mark.parametrize(
    ("sql", "condition"),
    [
        ("ID = 1", is_("id", "=", 1)),
        ("1.5 < id", is_("id", ">", Decimal("1.5"))),
        ("id IN (1, 2)", OneOf("id", (1, 2))),
        ("day IN ('2026-11-20')", OneOf("day", (date(2026, 11, 20),))),
        ("x > 0.1", is_("x", ">", 0.1)),
        ("f <= -1e-6", is_("f", "<=", -1e-6)),
        ("tiny = '5'", is_("tiny", "=", 5)),
        ("price BETWEEN 1 AND 2.5", AllOf((is_("price", ">=", 1), is_("price", "<=", Decimal("2.5"))))),
        ("NOT (id = 1 OR name = 'x')", AllOf((is_("id", "!=", 1), is_("name", "!=", "x")))),
        ("flag AND tags IS NOT NULL", AllOf((is_("flag", "=", True), IsNull("tags", False)))),
        ("at < '2026-11-20T07:00:00Z'", is_("at", "<", datetime(2026, 11, 20, 7, tzinfo=UTC))),
        ("true", AllOf(())),
        ("name = ''", is_("name", "=", "")),
        ("name NOT IN ('', 'it -- is')", OneOf("name", ("", "it -- is"), False)),
        ("id <= TINY", ColumnPair("id", "<=", "tiny")),
        ("name LIKE 'a_b%'", Like("name", "a", "(?s:a.b.*)")),
        ("name NOT LIKE 'a!_.%' ESCAPE '!'", Like("name", "a_.", r"(?s:a\x5f\x2e.*)", False)),
        ("at = TIMESTAMP_LTZ '2026-11-20 07:00:00Z'", is_("at", "=", datetime(2026, 11, 20, 7, tzinfo=UTC))),
        ("false OR id = 1", AnyOf((AnyOf(()), is_("id", "=", 1)))),
    ],
)
def test_a_condition_is_read_exactly(sql: str, condition: Any) -> None:
    assert parse_exactly(sql, SCHEMA, zone=None, instead="") == condition


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("id = 1 AND name ILIKE 'a%'", "name ILIKE 'a%'"),
        ("id LIKE '1%'", "id LIKE '1%'"),
        ("name LIKE 'a!' ESCAPE '!'", "name LIKE 'a!'"),
        ("name LIKE 'a!b' ESCAPE '!'", "name LIKE 'a!b'"),
        ("name LIKE name", "name LIKE name"),
        ("name LIKE ANY ('a', 'b')", "name LIKE ANY"),
        ("tiny = price", "tiny = price"),
        ("x < id", "x < id"),
        ("local = at", "local = at"),
        ("id + 1 = 2", "id + 1 = 2"),
        ("name = 1", "name = 1"),
        ("tiny = '300'", "tiny = '300'"),
        ("id IN (1, NULL)", "id IN"),
        ("id IN ('1')", "id IN"),
        ("x = 16777217", "x = 16777217"),
        ("id = 1 OR raw = 'a'", "raw = 'a'"),
        ("day < '1969-01-01'", "day <"),
        ("day < '2026-02-30'", "day <"),
        ('name = "a"', '"'),
        ("rand() < 0.5", "RAND"),
        ("local = '2026-11-20 07:00:00Z'", "local ="),
    ],
)
def test_a_part_that_is_not_certain_is_refused_by_name(sql: str, part: str) -> None:
    with pytest.raises(InvalidInputError, match="is not evaluated row by row without Spark") as caught:
        parse_exactly(sql, SCHEMA, zone="UTC", instead="Use Spark")
    assert part in str(caught.value).partition("row by row")[0].removeprefix(f"the condition {sql!r}")
    assert str(caught.value).endswith(". Use Spark")


def test_a_time_without_a_zone_needs_one() -> None:
    sql = "at >= '2026-11-20 07:00:00'"
    with pytest.raises(InvalidInputError, match="time_zone="):
        parse_exactly(sql, SCHEMA, zone=None, instead="")
    found = parse_exactly(sql, SCHEMA, zone="Europe/Berlin", instead="")
    assert found == is_("at", ">=", datetime(2026, 11, 20, 6, tzinfo=UTC))
    with pytest.raises(InvalidInputError, match="row by row"):  # this hour comes twice
        parse_exactly("at >= '2026-10-25 02:30:00'", SCHEMA, zone="Europe/Berlin", instead="")


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(InvalidInputError, match="'nope', which is no column"):
        parse_exactly("nope = 1", SCHEMA, zone=None, instead="")
