"""Where the markers that decide are."""

from enum import StrEnum


class Scope(StrEnum):
    """Where the markers that decide are (PROTOCOL.md 2.1)."""

    TABLE = "table"
    """At the root, for the whole table: it carries a descriptor."""
    DIRECTORY = "directory"
    """In each directory, for that directory, as DBIO has it."""
