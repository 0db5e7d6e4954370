"""Finds the columns of a table: the recorded ones, or else those of its newest file and of its directories.

Every part of the code that needs columns of a table asks here, so that all give the same answer. An adoption records
columns, and looks at all files for that: `maintenance/adopt`.
"""

from collections.abc import Mapping
from typing import Any

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.columns import field, footer_columns, narrowest
from dbio_commit.data.fitting import without
from dbio_commit.data.rows import open_footer
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.store import Store


def table_columns(store: Store, snapshot: Snapshot) -> Mapping[str, Any]:
    """The columns as Spark's JSON. Raises `no_columns` for an empty table that has no recorded columns, and raises as
    `find_columns` does.
    """
    found = snapshot.schema or find_columns(store, snapshot)
    if found is None:
        raise no_columns(snapshot)
    return found


def no_columns(snapshot: Snapshot) -> InvalidInputError:
    """The error for a read of an empty state that has no columns."""
    if snapshot.too_early:
        return InvalidInputError(f"{snapshot.url} {snapshot.too_early}: read it as of then or later")
    return InvalidInputError(
        f"{snapshot.url} holds no files and no recorded columns: write to the table first, or read a later state"
    )


def find_columns(store: Store, snapshot: Snapshot) -> Mapping[str, Any] | None:
    """The columns if none are recorded, as Spark's JSON: those of the newest file, and the partition columns with the
    narrowest type that holds all values in names of directories. None for an empty table.

    Raises InvalidInputError for a file that cannot be read, or has a type that Spark does not have.
    """
    if not snapshot.files:
        return None
    newest = max(snapshot.files, key=lambda file: (file.tid or "", file.path))
    where = store.url_of(newest.path)
    inside = without(footer_columns(open_footer(store, newest.path), where=where), snapshot.partition_columns)
    partition = [
        field(column, narrowest(file.partition.get(column) for file in snapshot.files))
        for column in snapshot.partition_columns
    ]
    return {"type": "struct", "fields": [*inside["fields"], *partition]}
