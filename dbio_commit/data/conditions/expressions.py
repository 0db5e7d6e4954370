"""Conditions as expressions of Arrow, Polars or DuckDB, which keep exactly the rows that Spark's WHERE keeps. Pure.

The three compare some values differently from Spark, and from one another. So a condition is first made one that all
evaluate alike: each value fits its column's type, and NaN is asked for by name. Spark orders NaN after all other
numbers, and takes it for equal to itself.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dbio_commit.data import constants
from dbio_commit.data.conditions.tree import (
    ALWAYS,
    AllOf,
    AnyOf,
    AtMost,
    ColumnPair,
    Comparison,
    Condition,
    IsNaN,
    IsNull,
    Like,
    OneOf,
)
from dbio_commit.protocol.types import decimal_digits

if TYPE_CHECKING:
    import duckdb
    import polars


@dataclass(frozen=True, slots=True)
class _Language:
    """What differs between the three. Their expressions share the operators of Python."""

    column: Callable[[str], Any]
    value: Callable[[Any, Any], Any]
    """A value of a type of Arrow."""
    constant: Callable[[bool], Any]
    is_null: Callable[[Any], Any]
    is_nan: Callable[[Any], Any]
    is_one: Callable[[Any, Sequence[Any], Any], Any]
    """Whether a column has one of the values of a type of Arrow."""
    as_double: Callable[[Any], Any]
    is_like: Callable[[Any, str], Any]
    """Whether a column of texts matches a regular expression as a whole."""


def for_arrow(condition: Condition, schema: pa.Schema) -> pc.Expression:
    """The condition as an expression of Arrow. `schema` has the table's columns.

    Raises ValueError for a condition of which a part is not known, and for one of more than MOST_PARTS.
    """
    if count_parts(condition) > MOST_PARTS:
        raise ValueError(f"it joins more than {MOST_PARTS:,} parts")
    found: pc.Expression = _express(condition, schema, _ARROW)
    return found


MOST_PARTS = 2000
"""Of a condition. Arrow makes a chain of them, goes through it by recursion, and ends the process at 20,000."""


def count_parts(condition: Condition) -> int:
    """How many conditions it joins. A list of values is one."""
    return sum(map(count_parts, condition.parts)) if isinstance(condition, AllOf | AnyOf) else 1


def for_polars(condition: Condition, schema: pa.Schema) -> "polars.Expr":
    """As `for_arrow`, for Polars."""
    found: polars.Expr = _express(condition, schema, _polars())
    return found


def for_duckdb(condition: Condition, schema: pa.Schema) -> "duckdb.Expression":
    """As `for_arrow`, for DuckDB."""
    found: duckdb.Expression = _express(condition, schema, _duckdb())
    return found


def polars_column(name: str) -> "polars.Expr":
    """The column of this name. Polars takes `*`, and a name between `^` and `$`, for a pattern of names."""
    import polars as pl
    import polars.selectors as cs

    return cs.by_name(name).as_expr() if name == "*" or name.startswith("^") else pl.col(name)


def duckdb_column(name: str) -> "duckdb.Expression":
    """The column of this name. DuckDB takes `*` for all columns."""
    import duckdb

    return duckdb.SQLExpression('"*"') if name == "*" else duckdb.ColumnExpression(name)


_ARROW = _Language(
    column=pc.field,
    value=constants.scalar,
    constant=lambda value: pc.scalar(constants.scalar(value, pa.bool_())),
    is_null=lambda column: column.is_null(),
    is_nan=pc.is_nan,
    is_one=lambda column, values, kind: column.isin(constants.array(values, kind)),
    as_double=lambda column: column.cast(pa.float64()),
    is_like=lambda column, expression: pc.match_substring_regex(column, rf"\A{expression}\z"),
)


def _polars() -> _Language:
    import polars as pl

    def type_of(kind: Any) -> Any:
        return pl.Series(pl.from_arrow(pa.array([], kind))).dtype

    return _Language(
        column=polars_column,
        value=lambda value, kind: pl.lit(value, dtype=type_of(kind)),
        constant=pl.lit,
        is_null=lambda column: column.is_null(),
        is_nan=lambda column: column.is_nan(),
        is_one=lambda column, values, kind: column.is_in(pl.Series(pl.from_arrow(pa.array(values, kind))).implode()),
        as_double=lambda column: column.cast(pl.Float64),
        is_like=lambda column, expression: column.str.contains(rf"\A{expression}\z"),
    )


def _duckdb() -> _Language:
    import duckdb

    constant = duckdb.ConstantExpression

    return _Language(
        column=duckdb_column,
        value=lambda value, kind: constant(value),
        constant=constant,
        is_null=lambda column: column.isnull(),
        is_nan=lambda column: duckdb.FunctionExpression("isnan", column),
        is_one=lambda column, values, kind: column.isin(*map(constant, values)),
        as_double=lambda column: column.cast("DOUBLE"),
        is_like=lambda column, expression: duckdb.FunctionExpression("regexp_full_match", column, constant(expression)),
    )


# --- the tree -----------------------------------------------------------------------------------------------------


def _express(condition: Condition, schema: pa.Schema, to: _Language) -> Any:
    match condition:
        case AllOf():
            return _joined(operator.and_, [_express(it, schema, to) for it in condition.parts], to.constant(True))
        case AnyOf():
            return _joined(operator.or_, [_express(it, schema, to) for it in condition.parts], to.constant(False))
        case IsNull():
            found = to.is_null(to.column(condition.column))
            return found if condition.is_null else ~found
        case IsNaN():
            found = to.is_nan(to.column(condition.column))
            return found if condition.is_nan else ~found
        case Like():
            found = to.is_like(to.column(condition.column), condition.expression)
            return found if condition.is_like else ~found
        case ColumnPair():
            return _pair(condition, schema, to)
        case OneOf():
            return _one_of(condition, schema.field(condition.column).type, to)
        case Comparison() if condition.low == condition.high:
            return _comparison(condition, schema.field(condition.column).type, to)
    raise ValueError(f"which rows fulfil {condition!r:.200} is not known")


def _joined(join: Callable[[Any, Any], Any], parts: Sequence[Any], of_none: Any) -> Any:
    """The parts, joined as a balanced tree: the tools recurse over it."""
    if len(parts) <= 1:
        return parts[0] if parts else of_none
    half = len(parts) // 2
    return join(_joined(join, parts[:half], of_none), _joined(join, parts[half:], of_none))


def _comparison(condition: Comparison, kind: Any, to: _Language) -> Any:
    column, value, compare = to.column(condition.column), condition.low, _COMPARE[condition.operator]
    if types.is_boolean(kind):
        accepted = [it for it in (False, True) if compare(it, value)]
        return _constant(bool(accepted), column, to) if len(accepted) != 1 else column if accepted[0] else ~column
    if types.is_floating(kind):
        wide = column if types.is_float64(kind) else to.as_double(column)
        found = compare(wide, to.value(float(value), pa.float64()))
        return found | to.is_nan(column) if condition.operator in (">", ">=") else found
    if types.is_integer(kind) or types.is_decimal(kind):
        return _of_steps(condition.operator, column, Decimal(value), kind, to)
    return compare(column, to.value(value, kind))


def _pair(condition: ColumnPair, schema: pa.Schema, to: _Language) -> Any:
    names = (condition.column, condition.other)
    columns, kinds = [to.column(name) for name in names], [schema.field(name).type for name in names]
    if not types.is_floating(kinds[0]):
        return _COMPARE[condition.operator](*columns)
    one, other = (it if types.is_float64(kind) else to.as_double(it) for it, kind in zip(columns, kinds, strict=True))
    nan, other_nan, found = to.is_nan(one), to.is_nan(other), _COMPARE[condition.operator](one, other)
    match condition.operator:
        case "=":
            found = found | (nan & other_nan)
        case "!=":
            found = found & ~(nan & other_nan)
        case "<" | "<=":
            found = found & ~nan | other_nan & (~nan if condition.operator == "<" else other_nan)
        case ">" | ">=":
            found = found & ~other_nan | nan & (~other_nan if condition.operator == ">" else nan)
    return found & ~to.is_null(one) & ~to.is_null(other)


def _of_steps(name: str, column: Any, value: Decimal, kind: Any, to: _Language) -> Any:
    """A comparison with any number, as a comparison with one that the type has."""
    low, high = _range(kind)
    down, up = (_rounded(value, kind, rounding) for rounding in (ROUND_FLOOR, ROUND_CEILING))
    if name in ("=", "!="):
        if down == up and low <= down <= high:
            return _COMPARE[name](column, _number(down, kind, to))
        return _constant(name == "!=", column, to)
    bound = {"<": up, ">=": up, "<=": down, ">": down}[name]
    if low <= bound <= high:
        return _COMPARE[name](column, _number(bound, kind, to))
    return _constant((bound > high) == (name in ("<", "<=")), column, to)


def _one_of(condition: OneOf, kind: Any, to: _Language) -> Any:
    column, values = to.column(condition.column), list(condition.values)
    if types.is_boolean(kind):
        parts = [Comparison(condition.column, "=", it, it) for it in values]
        any_of = AnyOf(tuple(parts)) if condition.is_one else AnyOf(tuple(parts)).negated()
        return _express(AllOf((IsNull(condition.column, False), any_of)), pa.schema([(condition.column, kind)]), to)
    if types.is_floating(kind):
        values = [float(it) for it in values] + ([0.0, -0.0] if any(it == 0 for it in values) else [])
        column, kind = (column if types.is_float64(kind) else to.as_double(column)), pa.float64()
    elif types.is_integer(kind) or types.is_decimal(kind):
        low, high = _range(kind)
        fitting = [Decimal(it) for it in values if _rounded(Decimal(it), kind, ROUND_FLOOR) == it]
        values = [int(it) if types.is_integer(kind) else it for it in fitting if low <= it <= high]
    found = to.is_one(column, values, kind) if values else to.constant(False)
    return found if condition.is_one else ~found & ~to.is_null(column)


def _constant(value: bool, column: Any, to: _Language) -> Any:
    """The same for all values that are not null."""
    return ~to.is_null(column) if value else to.constant(False)


def _number(value: Decimal, kind: Any, to: _Language) -> Any:
    return to.value(int(value) if types.is_integer(kind) else value, kind)


def _range(kind: Any) -> tuple[Decimal, Decimal]:
    if types.is_integer(kind):
        half = 1 << (kind.bit_width - 1)
        return Decimal(-half), Decimal(half - 1)
    most = Decimal(10**kind.precision - 1).scaleb(-kind.scale, constants.EXACT)
    return most.copy_negate(), most


def _rounded(value: Decimal, kind: Any, rounding: str) -> Decimal:
    scale = kind.scale if types.is_decimal(kind) else 0
    return value.quantize(Decimal(1).scaleb(-scale, constants.EXACT), rounding=rounding, context=constants.EXACT)


_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


# --- lists of terms -----------------------------------------------------------------------------------------------


def term(column: str, name: str, value: Any) -> Condition:
    """The condition of one term of a list, such as ("day", ">=", value). Values are of the column's type, or null.

    `name` is one of TERMS. "in" and "not in" take a list of values.
    """
    if name in ("in", "not in"):
        plain = [it for it in value if it is not None and not _is_nan(it)]
        parts = [OneOf(column, tuple(sorted(set(plain))))] if plain else []
        odd = [term(column, "=", it) for it in value if it is None or _is_nan(it)]
        found = AnyOf((*parts, *odd))
        return found if name == "in" else AllOf((IsNull(column, False), found.negated()))
    if value is None:
        return {"=": IsNull(column), "==": IsNull(column), "!=": IsNull(column, False)}.get(name, AnyOf(()))
    if _is_nan(value):
        return _OF_NAN[name](column)
    comparison: Any = "=" if name == "==" else name
    return Comparison(column, comparison, value, value)


TERMS = ("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in")
_OF_NAN: Mapping[str, Callable[[str], Condition]] = {
    "=": IsNaN,
    "==": IsNaN,
    ">=": IsNaN,
    ">": lambda column: AllOf((IsNaN(column), IsNaN(column, False))),
    "<=": lambda column: AnyOf((IsNaN(column), IsNaN(column, False))),
    "<": lambda column: IsNaN(column, False),
    "!=": lambda column: IsNaN(column, False),
}


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


# --- whether rows may fulfil a condition that is not known exactly ----------------------------------------------------


def may_match(batch: pa.RecordBatch, condition: Condition) -> bool:
    """Whether some row may fulfil the condition, by their values: `pruning` decides the same by statistics.

    A part of a condition that is not understood may hold in any row. The batch has the columns of the condition, with
    the table's types.
    """
    try:
        found = for_arrow(_weakened(condition), batch.schema)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):  # a value that its column's type does not have
        return batch.num_rows > 0
    return bool(pa.Table.from_batches([batch]).filter(found).num_rows)


def _weakened(condition: Condition) -> Condition:
    """A condition that is known exactly, and that holds for all rows for which this one may hold."""
    match condition:
        case AllOf(parts):
            return AllOf(tuple(map(_weakened, parts)))
        case AnyOf(parts):
            return AnyOf(tuple(map(_weakened, parts)))
        case AtMost(bound):
            return _weakened(bound)
        case Comparison(column, operator, low, high) if low != high:
            match operator:
                case "=":
                    return AllOf((Comparison(column, ">=", low, low), Comparison(column, "<=", high, high)))
                case "!=":
                    return IsNull(column, False)
                case "<" | "<=":
                    return Comparison(column, operator, high, high)
                case ">" | ">=":
                    return Comparison(column, operator, low, low)
        case Comparison() | OneOf() | IsNull() | IsNaN() | Like() | ColumnPair():
            return condition
    return ALWAYS


# --- for which rows of Arrow's batches does it hold, and which rows have the same value? ------------------------------


_FALSE = constants.scalar(False, pa.bool_())

RowTest = Callable[[pa.RecordBatch], Any]
"""For each row, whether a condition is true."""


def bound(condition: Condition, schema: pa.Schema) -> RowTest:
    """A function that says for each row whether the condition is true; false if it is null.

    The condition is one of `sql.parse_exactly`. Rows have the columns of the condition, with the types of the schema.
    """
    # The classes of pyarrow.acero, which also imports pyarrow.dataset, and so pandas.
    from pyarrow._acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions  # type: ignore[import-untyped]

    project = ProjectNodeOptions([for_arrow(condition, schema)], ["holds"])

    def of(rows: pa.RecordBatch) -> Any:
        source = Declaration("table_source", TableSourceNodeOptions(pa.Table.from_batches([rows])))
        found: Any = Declaration("project", project, [source]).to_table(use_threads=False)["holds"]
        return pc.fill_null(found, _FALSE).combine_chunks()

    return of


def holds(condition: Condition, rows: pa.RecordBatch) -> Any:
    """For each row, whether the condition is true; see `bound`."""
    return bound(condition, rows.schema)(rows)


def is_same(kind: str) -> bool:
    """Whether `same` compares values of the type, given in Spark's JSON, as Spark does."""
    return kind in _SAME or decimal_digits(kind) is not None


_SAME = {
    "boolean", "byte", "short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz", "binary",
}  # fmt: skip


def same(one: Any, other: Any) -> Any:
    """For each row, whether two arrays of one type have the same value, or both null."""
    found = pc.fill_null(pc.equal(one, other), _FALSE)
    return pc.or_(found, pc.and_(one.is_null(), other.is_null()))
