"""The tombstone, `_dropped`: the table has been dropped. Pure."""

from datetime import datetime
from typing import Literal

from dbio_commit.protocol.markers.bodies import VERSION, Body, TableId, decode_body, in_utc_of_a_clock, written


class Tombstone(Body, frozen=True, kw_only=True):
    """The body of `_dropped`: while it exists, there is no table, unless the descriptor is of another one."""

    version: Literal[1] = written(VERSION)
    everything: bool
    """Whether commits may be deleted; otherwise the table must have none."""
    created: datetime
    table_id: TableId | None = None
    """The id of the table. None if an earlier version wrote the tombstone."""
    copy_of: TableId | None = None
    """As `table_id`, if the table is a copy that is not complete yet. A drop leaves this out."""
    run: TableId | None = None
    """A random UUID of the process that copies."""

    def __post_init__(self) -> None:
        in_utc_of_a_clock(self, "created")

    def is_of(self, table_id: str) -> bool:
        """Whether it says that this table is dropped, or not copied completely."""
        return self.table_id in (None, table_id)


def decode_tombstone(body: bytes, *, where: str) -> Tombstone:
    """Raises CorruptMarkerError, and UnsupportedTableError for a later version of the protocol."""
    return decode_body(Tombstone, body, where=where)
