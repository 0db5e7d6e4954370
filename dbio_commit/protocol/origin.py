"""Which table an object belongs to."""

from datetime import datetime
from typing import NamedTuple


class Origin(NamedTuple):
    """Which table it is."""

    table_id: str
    """The descriptor's: a table that is made anew in the same place has another."""
    dated: datetime | None = None
    """The descriptor's time on the store: a copy has another. None where the writer has not seen it."""
