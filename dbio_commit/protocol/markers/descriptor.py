"""The descriptor, `_dbio_table`: what makes a directory a dbio table, and identifies it. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import VERSION, Body, decode_body, in_utc_of_a_clock, written

ADOPTED = "adopted"
"""The property of a descriptor whose table was adopted with its columns. Its value is the tid of the adoption."""


class Descriptor(Body, frozen=True, kw_only=True):
    """The body of `_dbio_table`, which makes a directory a dbio table. It never changes."""

    version: Literal[1] = written(VERSION)
    id: str
    """Random: a table that is created again at the same path has another id."""
    created: datetime
    partition_columns: Sequence[str] = written([])
    properties: Mapping[str, str] = written({})

    def __post_init__(self) -> None:
        in_utc_of_a_clock(self, "created")

    @property
    def records_columns(self) -> bool:
        """Whether an adoption has recorded the columns. They are in its checkpoint, from before any turn."""
        return ADOPTED in self.properties


class Origin(NamedTuple):
    """Identifies a table."""

    table_id: str
    """The id in the descriptor. A table that is created again at the same place has another."""
    dated: datetime | None = None
    """The descriptor's time on the store. A copy has another. None if the writer has not seen it."""


def decode_descriptor(body: bytes, *, where: str) -> Descriptor:
    """Raises CorruptMarkerError, and UnsupportedTableError for a later version of the protocol."""
    descriptor = decode_body(Descriptor, body, where=where, mend=_MEND_DESCRIPTOR)
    try:
        names.check_partition_columns(descriptor.partition_columns)
    except InvalidInputError as error:
        raise CorruptMarkerError(f"{where}: {error!s:.500}; {_MEND_DESCRIPTOR}") from None
    return descriptor


_MEND_DESCRIPTOR = (
    "bring back what its writer wrote, from where the table was copied or from a backup. Do not remove it: the other "
    "objects of the table are still there, and nobody can read them as a table without it"
)
