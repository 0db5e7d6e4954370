"""The start marker, `_started_<tid>`: a transaction has begun. Pure."""

from typing import Annotated, Literal

from msgspec import Meta

from dbio_commit.protocol.markers.bodies import VERSION, Body, Count, TableId, decode_body, written


class App(Body, frozen=True, kw_only=True):
    """The application's own name and version of a write: committed at most once (I8)."""

    id: Annotated[str, Meta(min_length=1, max_length=1000)]
    version: Count
    any_order: bool = False
    """Whether it may come after a higher one: it names a run, and does not count up."""

    def is_run_of(self, other: "App") -> bool:
        """Whether both are the same version of the same application."""
        return (self.id, self.version) == (other.id, other.version)


class Begun(Body, frozen=True, kw_only=True):
    """The body of `_started_<tid>`; in the directory scope, and of earlier versions, it may be empty."""

    version: Literal[1] = written(VERSION)
    table_id: TableId | None = None
    """The descriptor's of the table in which it began."""
    app: App | None = None
    """In whose name the transaction is to commit."""
    job: str
    """The transaction's own; tells it from another that drew the same tid."""


def decode_begun(body: bytes, *, where: str) -> Begun | None:
    """None where it is empty. Raises CorruptMarkerError, and UnsupportedTableError for a later version."""
    return decode_body(Begun, body, where=where) if body else None
