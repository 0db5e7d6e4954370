"""The two scopes of markers: at the root of a table, or in each directory."""

from enum import StrEnum


class Scope(StrEnum):
    """Where the markers are that decide about a path (PROTOCOL.md 2.1)."""

    TABLE = "table"
    """At the root, for a whole dbio table, which has a descriptor."""
    DIRECTORY = "directory"
    """In each directory, for that directory, as in DBIO."""
