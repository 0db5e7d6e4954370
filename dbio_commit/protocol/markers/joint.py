"""What markers of a joint transaction record of its other tables. Pure. Rules: PROTOCOL.md, Joint transactions."""

import re
from typing import Annotated

from msgspec import Meta, Raw

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.protocol.markers.bodies import INSPECT, Body, TableId

HERE = "."
"""The path of a table from itself."""

MOST_TABLES = 100
"""The most tables of a joint transaction."""


class OtherTable(Body, frozen=True, kw_only=True):
    """A table that takes part in a joint transaction."""

    path: str
    """The root of the table, relative to that of the table whose marker this is."""
    id: TableId
    """The id in its descriptor."""


class Part(Body, frozen=True, kw_only=True):
    """What a joint transaction commits to a table that is not its home."""

    id: TableId
    """The id in the descriptor of the table."""
    marker: Raw
    """The body of its commit marker."""


class Joint(Body, frozen=True, kw_only=True):
    """The key `joint` of a commit marker."""

    home: OtherTable
    """The table in which the transaction is decided."""
    tables: Annotated[list[OtherTable], Meta(max_length=MOST_TABLES)]
    """All tables of the transaction, with the home first."""
    parts: Annotated[list[Part], Meta(max_length=MOST_TABLES)] | None = None
    """In the home: what the other tables commit. It is read by `read_parts` only."""


def is_other(path: str) -> bool:
    """Whether this is the path of another table: ".." steps, and plain names after them."""
    return len(path) <= _MAX_PATH and _PATH.fullmatch(path) is not None


def check_other(path: str, *, where: str) -> str:
    """The path of another table. Raises CorruptMarkerError for anything else."""
    if is_other(path):
        return path
    raise CorruptMarkerError(f"{where} names the table {path[:200]!r}, which is no path beside this one; {INSPECT}")


_MAX_PATH = 4096
_NAME = r"(?!\.{1,2}(?:/|$))[^/\\\x00-\x1f\x7f\ud800-\udfff]+"
_PATH = re.compile(rf"\.|(?:\.\./)+{_NAME}(?:/{_NAME})*")
