"""What a commit makes of the table, as the table is in the commit's turn: its columns and settings. Pure."""

from collections.abc import Collection, Mapping
from typing import Any

from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.commit.draft import Draft
from dbio_commit.commit.operations import RULES
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.markers.schema import refuse_large
from dbio_commit.protocol.partitions import find_unread, partition_types
from dbio_commit.protocol.settings import Layout, change
from dbio_commit.protocol.state import Metadata


def metadata_after(draft: Draft, before: Metadata, turn: int, *, where: str) -> Metadata:
    """The table's columns and settings after the commit. `before` is as of its turn.

    Raises CommitConflictError if another commit has changed what the transaction depends on since it began,
    InvalidInputError if new columns take too many bytes.
    """
    _refuse_other_constraints(draft, before, where=where)
    schema = _schema_after(draft, before.schema, where=where)
    if schema != before.schema:
        refuse_large(schema)
    return Metadata(schema, turn, change(before.settings, draft.terms.sets))


def _refuse_other_constraints(draft: Draft, current: Metadata, *, where: str) -> None:
    """Raises CommitConflictError if the rows were checked against other constraints than the table has now."""
    terms = draft.terms
    is_checked = terms.changes_rows and draft.files
    if is_checked and Constraints.of(current.settings) != Constraints.of(terms.metadata.settings):
        raise CommitConflictError(
            f"the constraints of {where} were changed by another commit since transaction {terms.tid} began; nothing "
            "was committed: write again"
        )


def _schema_after(draft: Draft, current: Mapping[str, Any] | None, *, where: str) -> Mapping[str, Any] | None:
    """The columns after the commit: some operations set their own, the others change those that they have seen."""
    if draft.schema is not None and RULES[draft.terms.operation].sets_schema:
        return draft.schema
    if draft.schema is None or not draft.changes_schema:
        return current
    if current not in (None, draft.terms.metadata.schema, draft.schema):
        raise CommitConflictError(
            f"the schema of {where} was changed by another commit since transaction {draft.terms.tid} began; nothing "
            "was committed: read the table again, and write again"
        )
    return draft.schema


def refuse_unread(table: Snapshot, removed: Collection[str], after: Metadata, *, layout: Layout) -> None:
    """Raises InvalidInputError if a partition column gets a type that the values of files that stay do not have."""
    types = partition_types(after.schema, layout)
    if types == partition_types(table.schema, layout) or len(removed) == len(table.files):
        return
    gone = set(removed)
    for it in find_unread(table.files, types):
        if it.path not in gone:
            raise InvalidInputError(
                f"partition column {it.column!r} of {table.url} cannot be {types[it.column]} after this commit: "
                f"{it.path!r} would stay, and {it.why}; nothing was committed: keep the type of the column, or "
                "overwrite the partition of that file, too"
            )
