"""What becomes of rows: a column of what a write hands over to its tasks, after those of the table."""

from enum import IntEnum

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

FATE = "_dbio_fate"
"""The column, a `Fate`; no column of the table."""


class Fate(IntEnum):
    """What becomes of a row; numbered without gaps."""

    KEPT = 0
    UPDATED = 1
    INSERTED = 2
    DELETED = 3
    WRONG = 4
    """It may not be written, so that nothing may."""
    WAS = 5
    """What an updated row was before; only where changes are told."""


CHANGE_TYPE = "_change_type"
"""The column of change files, and of change feeds, that says how a row changed. Delta has the same name."""

CHANGE_TYPES = {
    Fate.UPDATED: "update_postimage",
    Fate.INSERTED: "insert",
    Fate.DELETED: "delete",
    Fate.WAS: "update_preimage",
}
"""The values of that column, by fate. Delta has the same values."""

STAYS = (Fate.KEPT, Fate.UPDATED, Fate.INSERTED)

VIOLATES = 20
"""From here on, a fate is the number of a constraint that the row violates: nothing may be written either."""


def fate(of: Fate | Column) -> Column:
    return (of if isinstance(of, Column) else f.lit(int(of))).cast(t.ByteType())
