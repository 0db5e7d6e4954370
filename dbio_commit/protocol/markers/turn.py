"""The turn, `_serial_<number>`: the transaction that commits next of those that depend on the table's state. Pure."""

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import INSPECT, REFERRING, VERSION, Body, TableId, decode_body, encode
from dbio_commit.protocol.markers.joint import MOST_TABLES


class Turn(Body, frozen=True, kw_only=True):
    """The body of `_serial_<number>`: the transaction that holds the turn."""

    NEWEST = REFERRING

    version: Literal[1, 2] = VERSION
    """2 for a joint transaction: software that does not know these would abort it without a look at its home."""
    tid: str = ""
    """The holder."""
    holder: str | None = None
    """The key of `tid` in a body of version 2, which earlier software refuses since it lacks `tid`."""
    table_id: TableId | None = None
    """The id in the descriptor of the table in which it was taken; None if an earlier version took it."""
    new_layout: bool = False
    """Whether it changes the partition columns: then no transaction begins before it is decided."""
    new_columns: bool = False
    """Whether it gives the table columns that earlier files may not fit: then a blind append waits for its decision."""
    tables: Annotated[int, Meta(ge=1, le=MOST_TABLES)] = 1
    """In how many tables the holder takes turns. Waiters give it as many leases."""


def encode_turn(turn: Turn) -> bytes:
    if names.is_joint(turn.tid):
        turn = replace(turn, version=REFERRING, tid="", holder=turn.tid)
    return encode(turn)


def decode_turn(body: bytes, *, where: str) -> Turn:
    """Raises CorruptMarkerError, and UnsupportedTableError for a later version."""
    turn = decode_body(Turn, body, where=where)
    if turn.holder is not None:
        turn = replace(turn, tid=turn.holder, holder=None)
    if not names.is_tid(turn.tid):
        raise CorruptMarkerError(f"{where} names {turn.tid[:100]!r}, which is not a tid; {INSPECT}")
    return turn
