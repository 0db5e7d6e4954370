"""The turn, `_serial_<number>`: the transaction that commits next of those that depend on the table's state. Pure."""

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import INSPECT, Body, TableId, decode_body


class Turn(Body, frozen=True, kw_only=True):
    """The body of `_serial_<number>`: the transaction that holds the turn."""

    tid: str
    table_id: TableId | None = None
    """The id in the descriptor of the table in which it was taken; None if an earlier version took it."""
    new_layout: bool = False
    """Whether it changes the partition columns: then no transaction begins before it is decided."""
    new_columns: bool = False
    """Whether it gives the table columns that earlier files may not fit: then a blind append waits for its decision."""


def decode_turn(body: bytes, *, where: str) -> Turn:
    """Raises CorruptMarkerError."""
    turn = decode_body(Turn, body, where=where)
    if not names.is_tid(turn.tid):
        raise CorruptMarkerError(f"{where} names {turn.tid[:100]!r}, which is not a tid; {INSPECT}")
    return turn
