"""Texts of SQL are read by sqlglot in a bounded number of steps."""

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.conditions.sql import parse, parse_where

SLOW = [f"{name}(" * 40 + "1" + ")" * 40 for name in ("struct", "date", "timestamp", "decimal")]
"""For each level, sqlglot does twice as much: it looks for a type first."""


@pytest.mark.parametrize("sql", SLOW, ids=lambda sql: sql.partition("(")[0])
def test_what_would_take_for_ever_is_given_up(sql: str) -> None:
    with pytest.raises(ValueError, match="would take too long"):
        parse(sql)
    with pytest.raises(InvalidInputError, match="cannot be read as a condition: it nests"):
        parse_where(f"{sql} = 1", {"fields": []}, zone=None)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("id =", "a part is missing at 'id ='"),
        ("id = 1 AND", "a part is missing at 'id = 1 AND'"),
        ("(id = 1", r"expecting \) at '\(id = 1'"),
        ("id = 'a", "a quote or a comment may have no end"),
        ("(" * 3000, "nested too deeply"),
        ("map(map(map(1)))", "the parser of SQL fails"),
    ],
)
def test_what_is_wrong_with_a_text_is_said_without_the_words_of_sqlglot(sql: str, said: str) -> None:
    with pytest.raises(
        InvalidInputError, match=f"cannot be read as a condition: .*{said}.*; give one in Spark"
    ) as error:
        parse_where(sql, {"fields": []}, zone=None)
    assert "sqlglot" not in str(error.value)


@pytest.mark.parametrize(
    "sql", ["", " ", ";", "a; b", "a AND", "(" * 5000 + "1" + ")" * 5000, "map(map(1))", "k = '\ud800'"]
)
def test_what_is_no_single_expression_is_refused(sql: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse(sql)


def test_a_long_condition_is_read_whole() -> None:
    ids = [f"id = {i}" for i in range(5000)]
    assert len([*parse(" OR ".join(ids)).flatten()]) == 5000
    assert len(parse(f"id IN ({', '.join(map(str, range(5000)))})").expressions) == 5000
