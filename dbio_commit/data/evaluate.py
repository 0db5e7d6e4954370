"""For which rows does a condition hold, and which rows have the same value? On Arrow's batches. Pure."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.data.constants import scalar
from dbio_commit.data.exact import for_arrow
from dbio_commit.data.pruning import Condition
from dbio_commit.protocol.types import decimal_digits

_FALSE = scalar(False, pa.bool_())

RowTest = Callable[[pa.RecordBatch], Any]
"""For each row, whether a condition is true."""


def bound(condition: Condition, schema: pa.Schema) -> RowTest:
    """A function that says for each row whether the condition is true; false if it is null.

    The condition is one of `where_exactly`. Rows have the columns of the condition, with the types of the schema.
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
