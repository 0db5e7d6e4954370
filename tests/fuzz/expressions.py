"""Texts of settings, and recorded columns: what a writer evaluates has no query, whichever other way it is read."""

import re
from typing import Any

from sqlglot import exp

from dbio_commit.data.conditions.sql import parse
from dbio_commit.protocol import expressions

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|`(?:[^`]|``)*`""", re.DOTALL)
_CALL = re.compile(r"([\w.`\"]+)\s*\(")
_NO_FUNCTIONS = {
    "and",
    "or",
    "not",
    "in",
    "cast",
    "try_cast",
    "extract",
    "case",
    "when",
    "then",
    "else",
    "between",
    "is",
}
_NO_FUNCTIONS |= {"like", "ilike", "rlike", "div", "from", "distinct", "decimal", "dec", "numeric", "char", "varchar"}
_NO_FUNCTIONS |= {"character", "both", "leading", "trailing", "escape", "interval"}


def expression(text: str) -> str | None:
    """The text, or None where it was refused."""
    problem = expressions.problem_of(text)
    if problem is not None:
        assert 0 < len(problem) < 300, problem
        return None
    assert len(text) <= 4096
    assert "${" not in text
    plain = _QUOTED.sub("'q'", text)
    assert not re.search(r"--|/\*|;|\"", plain), text
    assert plain.isascii(), text
    assert not re.search(r"(?<![\w.])[\d.]+[eE][+-]?\d{4}", plain), text
    assert not re.search(r"\b(select|values|table|with|using|union)\b", plain, re.IGNORECASE), text
    called = {name.lower() for name in _CALL.findall(_QUOTED.sub("''", text))}
    assert called <= expressions.FUNCTIONS | _NO_FUNCTIONS, text
    try:
        tree = parse(text)
    except ValueError:  # in a bounded number of steps, too
        return text
    assert not tree.find(exp.Query, exp.Subquery, exp.Table, exp.Window), text
    return text


def assert_known_metadata(schema: Any) -> None:
    """Of columns and fields, at any depth, nothing but comments."""
    match schema:
        case dict():
            if "metadata" in schema:
                assert set(schema["metadata"]) <= {"comment"}, schema
                assert all(isinstance(it, str) for it in schema["metadata"].values()), schema
            for part in schema.values():
                assert_known_metadata(part)
        case list():
            for part in schema:
                assert_known_metadata(part)
