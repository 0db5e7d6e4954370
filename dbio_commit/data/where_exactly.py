"""Reads conditions in Spark's SQL exactly: which rows fulfil them? Pure.

`where` reads the same conditions to exclude files, and may understand a part of them only. Here, each part that is not
certain is refused by name. `exact` makes expressions of the result, which tools evaluate on rows.
"""

import re
from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from dbio_commit.base.errors import InvalidInputError
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
from dbio_commit.data.where import READ_BY_SETTINGS, Reader, parsed, refusing_depth


def parse_exactly(sql: str, schema: Mapping[str, Any], *, zone: str | None, instead: str) -> Condition:
    """The condition that holds for exactly those rows that Spark's WHERE keeps; `exact` makes expressions of it.

    Raises InvalidInputError as `parse_where` does, and for a part whose rows are not certain without Spark. `instead`
    is the end of that message: what the caller can do.
    """
    tree, names = parsed(sql, schema)
    if found := READ_BY_SETTINGS.search(sql):
        raise InvalidInputError(_refusal(sql, found[0], "its meaning depends on Spark's settings", instead))
    with refusing_depth(sql):
        return _ExactReader(sql, column_types(schema), names, zone, instead).condition(tree)


def _refusal(sql: str, part: str, why: str, instead: str) -> str:
    where = f"the condition {sql!r:.200}: {part!r:.200}"
    return f"{where} is not evaluated row by row without Spark, since {why}. {instead}"


class _ExactReader(Reader):
    """Refuses each part that does not say exactly which rows fulfil it."""

    def __init__(
        self, sql: str, types: Mapping[str, str], names: Mapping[str, str], zone: str | None, instead: str
    ) -> None:
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
        found = super().compare(operator, left, right)
        column, right = self.column(left), right.unnest()
        kind = self.types.get(column or "", "")
        if column and kind in ("float", "double") and (value := _as_double(right)) is not None:
            return Comparison(column, operator, value, value)
        return found


def _is_exact(condition: Condition) -> bool:
    match condition:
        case AllOf() | AnyOf():
            return all(map(_is_exact, condition.parts))
        case Comparison():
            return bool(condition.low == condition.high)
    return isinstance(condition, OneOf | IsNull)


def _as_double(tree: Any) -> float | None:
    """The double that Spark makes of a number with a point or an exponent beside a column of such numbers."""
    sign = ""
    if isinstance(tree, exp.Neg):
        sign, tree = "-", tree.this
    if not isinstance(tree, exp.Literal) or tree.is_string:
        return None
    found = re.fullmatch(r"([0-9]{0,15})\.?([0-9]{0,15})(?:[eE][+-]?[0-9]{1,2})?", tree.this)
    is_whole = tree.this.isdigit()
    return float(sign + tree.this) if found and found[1] + found[2] and not is_whole else None
