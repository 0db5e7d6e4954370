"""The start marker, `_started_<tid>`: a transaction has begun. Pure."""

from typing import Annotated, Literal

from msgspec import Meta

from dbio_commit.protocol.markers.bodies import VERSION, Body, Count, TableId, decode_body, written
from dbio_commit.protocol.markers.joint import HERE, OtherTable, check_other
from dbio_commit.protocol.markers.provenance import Provenance


class App(Body, frozen=True, kw_only=True):
    """The application id and version that a write was given: committed at most once (I8)."""

    id: Annotated[str, Meta(min_length=1, max_length=1000)]
    version: Count
    any_order: bool = False
    """Whether it may commit after a higher version: then it names a run, and does not count up."""

    def is_run_of(self, other: "App") -> bool:
        """Whether both are the same version of the same application."""
        return (self.id, self.version) == (other.id, other.version)


class StartMarker(Body, frozen=True, kw_only=True):
    """The body of `_started_<tid>`. It may be empty in the directory scope, and if an earlier version wrote it."""

    version: Literal[1] = written(VERSION)
    table_id: TableId | None = None
    """The id in the descriptor of the table in which it began."""
    app: App | None = None
    """The application and version that the transaction commits."""
    takes_turn: bool = False
    """Whether it commits only under a turn. False also if an earlier version wrote the marker."""
    provenance: Provenance | None = None
    """Who began it."""
    home: OtherTable | None = None
    """Of a joint transaction: the table in which it is decided."""
    job: str
    """The transaction's own id. Another transaction that drew the same tid has another."""

    @property
    def decided_in(self) -> OtherTable | None:
        """The table that decides it, if that is another one."""
        return None if self.home is None or self.home.path == HERE else self.home


def decode_start(body: bytes, *, where: str) -> StartMarker | None:
    """The body; None if it is empty. Raises CorruptMarkerError, and UnsupportedTableError for a later version."""
    found = decode_body(StartMarker, body, where=where) if body else None
    if found and found.home:
        check_other(found.home.path, where=where)
    return found
