"""Reads filters of Polars as conditions that leave out files and row groups; see `data/conditions/pruning`.

Polars shows an expression as JSON, whose form may change with its version. A part is read only if it has exactly the
fields and values below, and its types are known. Any other part may hold in any row. Polars filters the rows itself
afterwards.
"""

import io
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dbio_commit.data.conditions.tree import (
    MIRRORED,
    UNKNOWN,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    IsNull,
    OneOf,
    Operator,
)

if TYPE_CHECKING:
    import polars

_OPERATORS: Mapping[str, Operator] = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_JOINS: Mapping[str, type[AllOf | AnyOf]] = {"And": AllOf, "LogicalAnd": AllOf, "Or": AnyOf, "LogicalOr": AnyOf}


def outline(predicate: "polars.Expr", schema: Mapping[str, Any]) -> Condition:
    """The predicate as a condition; parts that are not understood are UNKNOWN. `schema` has Polars' types."""
    import polars as pl

    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError, RecursionError):
        return UNKNOWN
    return _Reader(schema).condition(tree)


class _Reader:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    def condition(self, tree: Any) -> Condition:
        if found := _fields(tree, "BinaryExpr", "left", "op", "right"):
            return self._of_two(*found)
        if found := _fields(tree, "Function", "input", "function"):
            return self._of_function(*found)
        column = self._column(tree)
        is_flag = column is not None and self._schema[column] == _boolean()
        return Comparison(str(column), "=", True, True) if is_flag else UNKNOWN

    def _of_two(self, left: Any, name: Any, right: Any) -> Condition:
        if not isinstance(name, str):
            return UNKNOWN
        if name in _JOINS:
            return _JOINS[name]((self.condition(left), self.condition(right)))
        operator = _OPERATORS.get(name)
        if operator is None:
            return UNKNOWN
        if (column := self._column(left)) is not None:
            return self._compare(column, operator, right)
        column = self._column(right)
        return UNKNOWN if column is None else self._compare(column, MIRRORED[operator], left)

    def _of_function(self, inputs: Any, function: Any) -> Condition:
        """A function is compared as a whole, because a field that is not expected may change the meaning."""
        if not isinstance(inputs, list):
            return UNKNOWN
        if function == {"Boolean": "Not"} and len(inputs) == 1:
            return self.condition(inputs[0]).negated()
        column = self._column(inputs[0]) if inputs else None
        if column is None:
            return UNKNOWN
        if function in _NULLS and len(inputs) == 1:
            return IsNull(column, function == _NULLS[0])
        if function == {"Boolean": {"IsIn": {"nulls_equal": False}}} and len(inputs) == 2:
            return self._one_of(column, inputs[1])
        for closed, (least, most) in _BOUNDS.items():
            if function == {"Boolean": {"IsBetween": {"closed": closed}}} and len(inputs) == 3:
                return AllOf((self._compare(column, least, inputs[1]), self._compare(column, most, inputs[2])))
        return UNKNOWN

    def _column(self, tree: Any) -> str | None:
        """The name, if it is a column that the table has."""
        is_column = isinstance(tree, dict) and tree.keys() == {"Column"} and isinstance(tree["Column"], str)
        return tree["Column"] if is_column and tree["Column"] in self._schema else None

    def _compare(self, column: str, operator: Operator, literal: Any) -> Condition:
        found = _literal(literal)
        if found is None or found.dtype != self._schema.get(column):
            return UNKNOWN
        value = _plain(found)
        return UNKNOWN if value is None else Comparison(column, operator, value[0], value[0])

    def _one_of(self, column: str, literal: Any) -> Condition:
        found = _literal(literal)
        if found is None or found.dtype not in (_list_of(self._schema.get(column)), self._schema.get(column)):
            return UNKNOWN
        inside = found.explode() if found.dtype != self._schema.get(column) else found
        values = _plain(inside)
        return UNKNOWN if values is None else OneOf(column, tuple(sorted(set(values))))


def _fields(tree: Any, name: str, *fields: str) -> list[Any] | None:
    """The values of a node's fields; None if it is another node, or has not exactly these fields."""
    inside = tree[name] if isinstance(tree, dict) and tree.keys() == {name} else None
    return [inside[field] for field in fields] if isinstance(inside, dict) and inside.keys() == {*fields} else None


_NULLS = ({"Boolean": "IsNull"}, {"Boolean": "IsNotNull"})
_BOUNDS: Mapping[str, tuple[Operator, Operator]] = {
    "Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<"),
}  # fmt: skip


def _boolean() -> Any:
    import polars as pl

    return pl.Boolean()


def _list_of(kind: Any) -> Any:
    import polars as pl

    return None if kind is None else pl.List(kind)


def _literal(tree: Any) -> "polars.Series | None":
    """The value, with its type, as Polars reads its own JSON."""
    import polars as pl

    if not isinstance(tree, dict) or tree.keys() != {"Literal"}:
        return None
    try:
        expression = pl.Expr.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")
        return pl.select(expression).to_series()
    except (pl.exceptions.PolarsError, ValueError):
        return None


def _plain(series: "polars.Series") -> list[Any] | None:
    """The values as `pruning` compares them; None if one of them has no order there, such as null and NaN."""
    if not isinstance(series.dtype, _ordered()) or series.len() == 0:
        return None
    values = series.to_list()
    is_odd = any(it is None or (isinstance(it, float) and not math.isfinite(it)) for it in values)
    return None if is_odd else values


def _ordered() -> tuple[Any, ...]:
    import polars as pl

    whole = (pl.Int8, pl.Int16, pl.Int32, pl.Int64)
    return (*whole, pl.Float32, pl.Float64, pl.Decimal, pl.String, pl.Boolean, pl.Date, pl.Datetime)
