"""For which rows does a condition hold? Evaluates conditions that `where` fully understands, on Arrow's batches. Pure.

The result is exactly Spark's, whatever the settings of a session are, or the condition is refused: `is_exact`.
"""

from collections.abc import Mapping
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dbio_commit.data.pruning import AllOf, AnyOf, Comparison, Condition, IsNull, OneOf, Operator
from dbio_commit.protocol.types import decimal_digits

_DIGITS = 38


def is_exact(condition: Condition) -> bool:
    """Whether `holds` can evaluate the condition."""
    match condition:
        case Comparison():
            return bool(condition.low == condition.high)
        case OneOf() | IsNull():
            return True
        case AllOf() | AnyOf():
            return all(map(is_exact, condition.parts))
    return False


def holds(condition: Condition, rows: pa.RecordBatch) -> Any:
    """For each row, whether the condition is true; false if it is null. The condition must be exact.

    Rows have the columns of the condition, with the types of the table.
    """
    match condition:
        case AllOf():
            return reduce(pc.and_, (holds(it, rows) for it in condition.parts), _all(rows, True))
        case AnyOf():
            return reduce(pc.or_, (holds(it, rows) for it in condition.parts), _all(rows, False))
        case IsNull():
            column = rows.column(condition.column)
            return column.is_null() if condition.is_null else column.is_valid()
        case OneOf():
            column = rows.column(condition.column)
            found = _is_in(column, condition.values)
            if found is None:
                each = (_compared(column, "=", value) for value in condition.values)
                found = reduce(pc.or_, each, _all(rows, False))
            return found if condition.is_one else pc.and_(column.is_valid(), pc.invert(found))
        case Comparison(low=low, high=high) if low == high:
            return _compared(rows.column(condition.column), condition.operator, low)
    raise AssertionError(f"{condition!r:.200} is not exact")


def _all(rows: pa.RecordBatch, value: bool) -> Any:
    return pa.repeat(pa.scalar(value), rows.num_rows)


def _is_in(column: Any, values: tuple[Any, ...]) -> Any:
    """For many values of a type whose values Arrow compares as Spark does; None for other types."""
    kind = column.type
    if not (types.is_string(kind) or types.is_date32(kind) or types.is_timestamp(kind)):
        return None
    return pc.is_in(column, value_set=pa.array(values, kind))


_COMPARE: Mapping[Operator, str] = {
    "=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip


def _compared(column: Any, how: Operator, value: Any) -> Any:
    """The comparison of each value; false for null."""
    column, other = _alike(column, value)
    found: Any = pc.call_function(_COMPARE[how], [column, other])
    if types.is_floating(column.type) and how in (">", ">="):  # NaN is greater than all others
        found = pc.or_(found, pc.is_nan(column))
    return pc.fill_null(found, False)


def _alike(column: Any, value: Any) -> tuple[Any, Any]:
    """The column and the value as one type that holds both."""
    kind = column.type
    if types.is_floating(kind):
        return column.cast(pa.float64()), pa.scalar(float(value), pa.float64())
    if types.is_integer(kind) and isinstance(value, float):
        return column.cast(pa.float64(), safe=False), pa.scalar(value, pa.float64())  # as Spark does
    if types.is_integer(kind) and isinstance(value, int):
        return column.cast(pa.int64()), pa.scalar(value, pa.int64())
    if types.is_integer(kind) or types.is_decimal(kind):
        wanted = Decimal(value)
        own = kind.scale if types.is_decimal(kind) else 0
        scale = max(own, -int(wanted.as_tuple().exponent), 0)
        both = pa.decimal128(_DIGITS, scale)
        if types.is_decimal(kind) and kind.bit_width != 128:
            column = column.cast(pa.decimal128(kind.precision, kind.scale))
        return column.cast(both), pa.scalar(wanted, both)
    return column, pa.scalar(value, kind)


def is_same(kind: str) -> bool:
    """Whether `same` compares values of the type, given in Spark's JSON, as Spark does."""
    return kind in _SAME or decimal_digits(kind) is not None


_SAME = {
    "boolean", "byte", "short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz", "binary",
}  # fmt: skip


def same(one: Any, other: Any) -> Any:
    """For each row, whether two arrays of one type have the same value, or both null."""
    found = pc.fill_null(pc.equal(one, other), False)
    return pc.or_(found, pc.and_(one.is_null(), other.is_null()))
