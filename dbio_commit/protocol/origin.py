"""Identifies the table that an object belongs to."""

from datetime import datetime
from typing import NamedTuple


class Origin(NamedTuple):
    """Identifies a table."""

    table_id: str
    """The id in the descriptor. A table that is created again at the same place has another."""
    dated: datetime | None = None
    """The descriptor's time on the store. A copy has another. None if the writer has not seen it."""
