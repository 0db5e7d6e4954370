"""The purge record, `_purged_<number>`: which checkpoint replaces markers that vacuum deletes. Pure."""

from datetime import datetime
from typing import Literal

from dbio_commit.protocol.markers.bodies import VERSION, Body, TableId, decode_body, in_utc_of_a_clock, written


class Purge(Body, frozen=True, kw_only=True):
    """The body of `_purged_<number>`: markers were purged that only checkpoints from this number on cover."""

    version: Literal[1] = written(VERSION)
    table_id: TableId
    """The id in the descriptor of the table that was purged."""
    created: datetime

    def __post_init__(self) -> None:
        in_utc_of_a_clock(self, "created")


def decode_purge(body: bytes, *, where: str) -> Purge:
    """Raises CorruptMarkerError, and UnsupportedTableError for a later version of the protocol."""
    return decode_body(Purge, body, where=where)
