"""For which rows does a condition hold, and which rows have the same value? On Arrow's batches. Pure."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.data.exact import for_arrow
from dbio_commit.data.pruning import Condition
from dbio_commit.protocol.types import decimal_digits


def holds(condition: Condition, rows: pa.RecordBatch) -> Any:
    """For each row, whether the condition is true; false if it is null.

    The condition is one of `where_exactly`. Rows have the columns of the condition, with the types of the table.
    """
    from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

    source = Declaration("table_source", TableSourceNodeOptions(pa.Table.from_batches([rows])))
    project = Declaration("project", ProjectNodeOptions([for_arrow(condition, rows.schema)], ["holds"]), [source])
    found: Any = project.to_table(use_threads=False)["holds"]
    return pc.fill_null(found, False).combine_chunks()


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
