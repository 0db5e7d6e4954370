"""Whether rows may fulfil a condition, by their values: `pruning` decides the same by statistics. Uses pyarrow.

Conservative, as `pruning` is: a part of a condition that is not understood may hold in any row.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.data.pruning import AllOf, AnyOf, AtMost, Comparison, Condition, IsNull, OneOf


def may_match(batch: pa.RecordBatch, condition: Condition) -> bool:
    """Whether some row may fulfil the condition. The batch has the columns of the condition, with the table's types."""
    table = pa.Table.from_batches([batch])
    return bool(table.filter(_expression(condition, batch.schema)).num_rows)


def _expression(condition: Condition, schema: pa.Schema) -> Any:
    """An expression that is true for each row that may fulfil the condition."""
    match condition:
        case AllOf(parts):
            return reduce(and_, (_expression(part, schema) for part in parts), pc.scalar(True))
        case AnyOf(parts):
            return reduce(or_, (_expression(part, schema) for part in parts), pc.scalar(False))
        case AtMost(bound):
            return _expression(bound, schema)
        case IsNull(column, is_null):
            return pc.field(column).is_null() if is_null else pc.field(column).is_valid()
        case Comparison() | OneOf():
            return _of_values(condition, schema)
    return pc.scalar(True)


_COMPARE: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "=": lambda value, low, high: (value >= low) & (value <= high),
    "!=": lambda value, low, high: value != low,
    "<": lambda value, low, high: value < high,
    "<=": lambda value, low, high: value <= high,
    ">": lambda value, low, high: value > low,
    ">=": lambda value, low, high: value >= low,
}


def _of_values(condition: Comparison | OneOf, schema: pa.Schema) -> Any:
    found: Any
    value, kind = pc.field(condition.column), schema.field(condition.column).type
    try:
        if isinstance(condition, OneOf):
            found = value.isin(pa.array(condition.values, kind))
            found = found if condition.is_one else ~found & value.is_valid()
        elif condition.operator == "!=" and condition.low != condition.high:
            found = value.is_valid()
        else:
            found = _COMPARE[condition.operator](value, pa.scalar(condition.low, kind), pa.scalar(condition.high, kind))
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):  # a value that the type does not have
        return value.is_valid()
    # Spark orders NaN after all numbers
    return found | pc.is_nan(value) if pa.types.is_floating(kind) else found
