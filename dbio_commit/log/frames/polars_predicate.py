"""Reads filters of Polars as conditions that leave out files and row groups; see `data/pruning`.

Polars shows an expression as JSON, whose form may change with its version. A part whose form or types are not those
below may hold in any row. Polars filters the rows itself afterwards.
"""

import io
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dbio_commit.data.pruning import UNKNOWN, AllOf, AnyOf, Comparison, Condition, IsNull, OneOf, Operator

if TYPE_CHECKING:
    import polars

_OPERATORS: Mapping[str, Operator] = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_MIRRORED: Mapping[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def outline(predicate: "polars.Expr", schema: Mapping[str, Any]) -> Condition:
    """The condition. `schema` has Polars' types of the columns."""
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
        match tree:
            case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
                return AllOf((self.condition(left), self.condition(right)))
            case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
                return AnyOf((self.condition(left), self.condition(right)))
            case {"BinaryExpr": {"left": {"Column": column}, "op": str(name), "right": {"Literal": _} as value}}:
                return self._compare(column, _OPERATORS.get(name), value)
            case {"BinaryExpr": {"left": {"Literal": _} as value, "op": str(name), "right": {"Column": column}}}:
                operator = _OPERATORS.get(name)
                return self._compare(column, operator and _MIRRORED[operator], value)
            case {"Function": {"input": [inside], "function": {"Boolean": "Not"}}}:
                return self.condition(inside).negated()
            case {"Function": {"input": [{"Column": column}], "function": {"Boolean": "IsNull"}}}:
                return IsNull(column) if column in self._schema else UNKNOWN
            case {"Function": {"input": [{"Column": column}], "function": {"Boolean": "IsNotNull"}}}:
                return IsNull(column, False) if column in self._schema else UNKNOWN
            case {"Function": {"input": [{"Column": column}, low, high], "function": {"Boolean": {"IsBetween": how}}}}:
                least, most = _BOUNDS.get(how.get("closed"), (None, None))
                return AllOf((self._compare(column, least, low), self._compare(column, most, high)))
            case {"Function": {"input": [{"Column": column}, values], "function": {"Boolean": {"IsIn": _}}}}:
                return self._one_of(column, values)
            case {"Column": column} if self._schema.get(column) == _boolean():
                return Comparison(column, "=", True, True)
        return UNKNOWN

    def _compare(self, column: str, operator: Operator | None, literal: Any) -> Condition:
        found = _literal(literal)
        if operator is None or found is None or found.dtype != self._schema.get(column):
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
