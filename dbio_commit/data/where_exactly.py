"""Reads conditions in Spark's SQL exactly: which rows fulfil them? Pure.

`where` reads the same conditions to exclude files, and may understand a part of them only. Here, each part that is not
certain is refused by name. `exact` makes expressions of the result, which tools evaluate on rows.
"""

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.literals import as_double
from dbio_commit.data.predicates import ColumnPair, Like
from dbio_commit.data.pruning import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    IsNull,
    OneOf,
    Operator,
    column_types,
)
from dbio_commit.data.where import READ_BY_SETTINGS, Names, Reader, names_of, parsed, refusing_depth
from dbio_commit.protocol.types import decimal_digits, is_integer


def parse_exactly(
    sql: str, schema: Mapping[str, Any], *, zone: str | None, instead: str, names: Names | None = None
) -> Condition:
    """The condition that holds for exactly those rows that Spark's WHERE keeps; `exact` makes expressions of it.

    `names` are the names of columns in the SQL, if they are not those of the schema. Raises InvalidInputError as
    `parse_where` does, and for a part whose rows are not certain without Spark. `instead` is the end of that message:
    what the caller can do.
    """
    names = names_of(schema) if names is None else names
    tree = parsed(sql, names)
    if found := READ_BY_SETTINGS.search(sql):
        raise InvalidInputError(_refusal(sql, found["odd"], "its meaning depends on Spark's settings", instead))
    with refusing_depth(sql):
        return _ExactReader(sql, column_types(schema), names, zone, instead).condition(tree)


def _refusal(sql: str, part: str, why: str, instead: str) -> str:
    where = f"the condition {sql!r:.200}: {part!r:.200}"
    return f"{where} is not evaluated row by row without Spark, since {why}. {instead}"


class _ExactReader(Reader):
    """Refuses each part that does not say exactly which rows fulfil it."""

    def __init__(self, sql: str, types: Mapping[str, str], names: Names, zone: str | None, instead: str) -> None:
        super().__init__(types, names, zone)
        self._sql, self._instead = sql, instead

    def condition(self, tree: Any) -> Condition:
        if isinstance(tree, exp.Boolean):
            return ALWAYS if tree.this else NEVER
        found = super().condition(tree)
        if not _is_exact(found):
            is_local = self.zone is None and any(self.types.get(it) == "timestamp" for it in found.columns())
            why = "a time without a zone needs time_zone='…'" if is_local else "not every Spark reads it alike"
            raise InvalidInputError(_refusal(self._sql, tree.sql(dialect="spark"), why, self._instead))
        return found

    def is_alike(self, tree: exp.In) -> bool:
        """A day and its text are alike: Spark makes the one of the other."""
        return self.types.get(self.column(tree.this) or "") == "date" or super().is_alike(tree)

    def compare(self, operator: Operator, left: Any, right: Any) -> Condition:
        column, other = self.column(left), self.column(right)
        if column and other and self._compare_alike(column, other):
            return ColumnPair(column, operator, other)
        if column and (value := as_double(right.unnest(), self.types.get(column, ""))):
            return Comparison(column, operator, *value)
        return super().compare(operator, left, right)

    def _compare_alike(self, column: str, other: str) -> bool:
        kinds = self.types.get(column, ""), self.types.get(other, "")
        if kinds[0] != kinds[1]:
            return all(map(is_integer, kinds)) or all(kind in ("float", "double") for kind in kinds)
        return is_integer(kinds[0]) or kinds[0] in _ORDERED or decimal_digits(kinds[0]) is not None


_ORDERED = ("string", "date", "timestamp", "timestamp_ntz", "float", "double")


def _is_exact(condition: Condition) -> bool:
    match condition:
        case AllOf() | AnyOf():
            return all(map(_is_exact, condition.parts))
        case Comparison():
            return bool(condition.low == condition.high)
    return isinstance(condition, OneOf | IsNull | Like | ColumnPair)
