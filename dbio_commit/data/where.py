"""Reads conditions in Spark's SQL, as far as they can exclude files; see `pruning`. Pure.

A part that is not fully understood may hold in any row. Spark filters the rows afterwards, so an extra file costs only
time. `where_exactly` is for rows, and refuses such a part. What a literal means is in `literals`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlglot import exp

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.literals import compared, digits_of, fits, has_whole
from dbio_commit.data.predicates import like
from dbio_commit.data.pruning import (
    UNKNOWN,
    AllOf,
    AnyOf,
    AtMost,
    Comparison,
    Condition,
    IsNull,
    OneOf,
    Operator,
    column_types,
)
from dbio_commit.data.sql import parse
from dbio_commit.protocol.types import decimal_digits, is_integer


def parse_where(sql: str, schema: Mapping[str, Any], *, zone: str | None) -> Condition:
    """The condition. `zone` is the time zone of times without a zone; None if it is not known.

    Raises InvalidInputError for what is no condition, or names no column of the schema (Spark's JSON).
    """
    names = names_of(schema)
    tree = parsed(sql, names)
    if READ_BY_SETTINGS.search(sql):
        return UNKNOWN
    with refusing_depth(sql):
        return Reader(column_types(schema), names, zone).condition(tree)


@contextmanager
def refusing_depth(sql: str) -> Iterator[None]:
    """Raises InvalidInputError if the block finds that the condition is nested too deeply."""
    try:
        yield
    except RecursionError:
        raise InvalidInputError(f"the condition {sql!r:.100}… is nested too deeply; write it flat") from None


Names = Mapping[tuple[str, str], str]
"""The names of columns, by what SQL may call them in lower case: the side of a merge, or an empty text; and a name."""


def names_of(schema: Mapping[str, Any]) -> Names:
    return {("", field["name"].lower()): field["name"] for field in schema.get("fields", ())}


def column_of(tree: Any, names: Names) -> str | None:
    """The name of a column; None for another expression, and for a field inside a column."""
    is_column = isinstance(tree, exp.Column) and len(tree.parts) <= 2
    return names.get((tree.table.lower(), tree.name.lower())) if is_column else None


def parsed(sql: str, names: Names) -> Any:
    """The tree. Raises InvalidInputError for what is no condition, or names no column."""
    try:
        tree = parse(sql)
    except ValueError as error:
        raise InvalidInputError(f"where={sql!r:.200} cannot be read as a condition: {error}") from None
    sides = {"", *(side for side, _ in names)}
    for column in tree.find_all(exp.Column):
        is_plain = column.table.lower() in sides and len(column.parts) <= 2
        if is_plain and column_of(column, names) is None and not tree.find(exp.Lambda):
            both = [side for side, name in names if name == column.name.lower()]
            why = f"which {' and '.join(both)} have" if both else "which is no column of the table"
            raise InvalidInputError(
                f"where={sql!r:.200} names {column.name!r:.100}, {why}; it has "
                f"{', '.join(dict.fromkeys(names.values()))[:1000]}"
            )
    return tree


READ_BY_SETTINGS = re.compile(
    r"""\A(?:[^\\"'`$/-]+|'(?:[^'\\$]|\$(?!\{))*'(?!\s*')|`[^`$]*`|-(?!-)|/(?!\*)|\$(?!\{))*+"""
    r"""(?P<odd>'[^']*?(?:\\|\$\{|'\s*')|--|/\*|\$\{|.)""",
    re.DOTALL,
)
"""Escapes, double quotes, two texts side by side, comments, variables: their meaning depends on Spark's settings.

The pattern passes over what has one meaning, such as whole texts in single quotes. `odd` is the first part that has
several."""


class Reader:
    """Makes a condition of sqlglot's tree."""

    def __init__(self, types: Mapping[str, str], names: Names, zone: str | None) -> None:
        self.types, self.names, self.zone = types, names, zone

    def condition(self, tree: Any) -> Condition:
        """The condition of a tree, or of a part of it."""
        match tree:
            case exp.Paren():
                return self.condition(tree.this)
            case exp.And():
                return AllOf(tuple(map(self.condition, _terms(tree, exp.And))))
            case exp.Or():
                return any_of(tuple(map(self.condition, _terms(tree, exp.Or))))
            case exp.Not():
                return self.condition(tree.this).negated()
            case exp.Column():
                return self.compare("=", tree, exp.true())
            case exp.Is(expression=exp.Null()):
                column = self.column(tree.this)
                return IsNull(column) if column else UNKNOWN
            case exp.Between() if not tree.args.get("symmetric"):
                low = self.compare(">=", tree.this, tree.args["low"])
                return AllOf((low, self.compare("<=", tree.this, tree.args["high"])))
            case exp.In() if tree.expressions and not tree.args.get("query"):
                found = self._one_of(tree)
                return found if self.is_alike(tree) else AtMost(found)
            case exp.Like() | exp.Escape(this=exp.Like()):
                return self._like(tree)
        operator = _OPERATORS.get(type(tree))
        if operator is None:
            return UNKNOWN
        if self.column(tree.left):
            return self.compare(operator, tree.left, tree.right)
        return self.compare(_MIRRORED[operator], tree.right, tree.left)

    def _one_of(self, tree: exp.In) -> Condition:
        """Spark casts the column and all values to one type, and rounds the values if that type has too few digits."""
        kind = self.types.get(self.column(tree.this) or "", "")
        values = [it.unnest() for it in tree.expressions]
        if is_integer(kind) or decimal_digits(kind):
            digits = [digits_of(it) for it in values if it.is_number or it.find(exp.Cast)]
            if not fits(kind, digits):
                return UNKNOWN
        elif kind not in ("float", "double") and any(it.is_number for it in values):
            return UNKNOWN
        parts = [self.compare("=", tree.this, value) for value in tree.expressions]
        exact = [part for part in parts if isinstance(part, Comparison) and part.low == part.high]
        if len(exact) < len(parts):
            return AnyOf(tuple(parts))
        return OneOf(exact[0].column, tuple(sorted({part.low for part in exact})))

    def _like(self, tree: Any) -> Condition:
        tree, escape = (tree.this, tree.expression) if isinstance(tree, exp.Escape) else (tree, None)
        column, pattern = self.column(tree.this), tree.expression
        is_read = pattern.is_string and (escape is None or escape.is_string)
        if column is None or self.types.get(column) != "string" or not is_read:
            return UNKNOWN
        found = like(column, pattern.this, escape and escape.this) or UNKNOWN
        return found.negated() if tree.args.get("negate") else found

    def is_alike(self, tree: exp.In) -> bool:
        """Whether Spark compares the column with the list in the column's own type, and not all of them as texts."""
        texts = [value.unnest().is_string for value in tree.expressions]
        return all(texts) if self.types.get(self.column(tree.this) or "") == "string" else not any(texts)

    def column(self, tree: Any) -> str | None:
        """The table's name of a column; None for a field inside a column."""
        return column_of(tree.unnest(), self.names)

    def compare(self, operator: Operator, left: Any, right: Any) -> Condition:
        column = self.column(left)
        kind = self.types.get(column or "")
        if column is None or kind is None:
            return UNKNOWN
        found = compared(right.unnest(), kind, self.zone)
        if found is None or (is_integer(kind) and right.unnest().is_string and not has_whole(kind, found[0])):
            return UNKNOWN  # Spark's cast of a text may give null
        return Comparison(column, operator, *found)


def any_of(parts: tuple[Condition, ...]) -> Condition:
    """At least one part holds. If all ask for values of one column, they become one list: tools read that faster."""
    equal = [it for it in parts if isinstance(it, Comparison) and it.operator == "=" and it.low == it.high]
    if len(equal) < max(2, len(parts)) or len({it.column for it in equal}) > 1:
        return AnyOf(parts)
    return OneOf(equal[0].column, tuple(sorted({it.low for it in equal})))


def _terms(tree: Any, kind: type[exp.Connector]) -> list[Any]:
    """The operands of a chain of AND, or of OR. A chain may be longer than Python's stack is deep."""
    waiting: list[Any] = [tree]
    found: list[Any] = []
    while waiting:
        it = waiting.pop()
        if isinstance(it, kind):
            waiting += [it.right, it.left]
        else:
            found.append(it)
    return found


_OPERATORS: Mapping[type, Operator] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_MIRRORED: Mapping[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
