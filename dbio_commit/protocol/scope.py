"""The two scopes: at the root of a table, or in each directory."""

from enum import StrEnum


class Scope(StrEnum):
    """Where the markers that decide are (PROTOCOL.md 2.1)."""

    TABLE = "table"
    """At the root, for the whole table. The root has a descriptor."""
    DIRECTORY = "directory"
    """In each directory, for that directory, as in DBIO."""
