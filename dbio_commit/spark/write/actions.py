"""The actions of rows: what a write does with each row. Tasks get the action in a column after the table's columns."""

from enum import IntEnum

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.commit.write.changes import AFTER, BEFORE, DELETE, INSERT

ACTION = "_dbio_action"
"""The name of the column with the `RowAction`. A table that has a column of this name cannot be rewritten."""


class RowAction(IntEnum):
    """What a write does with a row. The numbers have no gaps."""

    KEPT = 0
    UPDATED = 1
    INSERTED = 2
    DELETED = 3
    WRONG = 4
    """The row must not be written, so the whole write is refused."""
    WAS = 5
    """An updated row as it was before; only if the table records changes (`change_data`)."""


CHANGE_TYPES = {
    RowAction.UPDATED: AFTER,
    RowAction.INSERTED: INSERT,
    RowAction.DELETED: DELETE,
    RowAction.WAS: BEFORE,
}
"""The types of changes, by action."""

STAYS = (RowAction.KEPT, RowAction.UPDATED, RowAction.INSERTED)
"""The actions of rows that the table holds afterwards."""

VIOLATES = 20
"""VIOLATES + n: the row violates constraint n, so the whole write is refused."""


def row_action(of: RowAction | Column) -> Column:
    return (f.lit(int(of)) if isinstance(of, RowAction) else of).cast(t.ByteType())
