"""Whether rows may fulfil a condition, by their values: `pruning` decides the same by statistics. Uses pyarrow.

Conservative, as `pruning` is: a part of a condition that is not understood may hold in any row.
"""

import pyarrow as pa

from dbio_commit.data.exact import for_arrow
from dbio_commit.data.predicates import ColumnPair, Like
from dbio_commit.data.pruning import ALWAYS, AllOf, AnyOf, AtMost, Comparison, Condition, IsNaN, IsNull, OneOf


def may_match(batch: pa.RecordBatch, condition: Condition) -> bool:
    """Whether some row may fulfil the condition. The batch has the columns of the condition, with the table's types."""
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
