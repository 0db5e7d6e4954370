"""Computes a table's columns and settings after a commit. Refuses commits with an outdated view of them. Pure."""

from collections.abc import Collection, Mapping
from typing import Any

from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.base.texts import command
from dbio_commit.commit.operations import RULES
from dbio_commit.commit.request import CommitRequest
from dbio_commit.data.fitting import lost, misfit, respelled, without
from dbio_commit.data.mapping import Schema, field_names
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.markers.schema import refuse_large
from dbio_commit.protocol.partitions import find_problem, find_unread, partition_types
from dbio_commit.protocol.settings import CHANGE_DATA, CHANGE_TYPE, Layout, Settings, change
from dbio_commit.protocol.state import NO_METADATA, Metadata


def metadata_after(request: CommitRequest, before: Metadata, turn: int, *, where: str) -> Metadata:
    """The table's columns and settings after the commit. `turn` is the commit's own, or that of `before` if it takes
    none.

    Raises CommitConflictError if another commit has changed what the transaction depends on since it began,
    InvalidInputError if new columns take too many bytes, or if one has a name that change files use.
    """
    _refuse_other_constraints(request, before, where=where)
    schema = _schema_after(request, before.schema, where=where)
    _refuse_misfit(request, schema, where=where)
    if schema != before.schema:
        refuse_large(schema)
    settings = change(before.settings, request.terms.sets)
    if before.schema or before.settings:  # a copy gives a new table what the original has
        refuse_change_type(schema, settings, before=before, where=where)
    return Metadata(schema, turn, settings)


def refuse_change_type(
    schema: Schema | None, settings: Settings | None, *, before: Metadata = NO_METADATA, where: str
) -> None:
    """Raises InvalidInputError if the table would record changes of rows (the setting `change_data`), and would have a
    column of a name that change files use. A table with both, which an earlier version made, may keep them."""
    if _has_change_type(schema, settings) and not _has_change_type(before.schema, before.settings):
        raise InvalidInputError(
            f"{where} cannot have a column {CHANGE_TYPE} and the setting {CHANGE_DATA}, because the files that record "
            "changes have a column of this name; nothing was written: write the column by another name, or do without "
            f"the setting (`{command('dbio', 'set', where, f'{CHANGE_DATA}=')}` removes it)"
        )


def _has_change_type(schema: Schema | None, settings: Settings | None) -> bool:
    records_changes = (settings or {}).get(CHANGE_DATA) == "true"
    return records_changes and schema is not None and CHANGE_TYPE in map(str.lower, field_names(schema))


def _refuse_other_constraints(request: CommitRequest, current: Metadata, *, where: str) -> None:
    """Raises CommitConflictError if the rows were checked against other constraints than the table has now."""
    terms = request.terms
    is_checked = terms.changes_rows and request.files
    if is_checked and Constraints.of(current.settings) != Constraints.of(terms.metadata.settings):
        raise CommitConflictError(
            f"the constraints of {where} were changed by another commit since transaction {terms.tid} began; nothing "
            "was committed: write again"
        )


def _schema_after(request: CommitRequest, current: Mapping[str, Any] | None, *, where: str) -> Mapping[str, Any] | None:
    """The columns after the commit. Some operations set them; the others change the columns that they have seen, and
    keep what the table's files have."""
    if request.schema is None:
        return current
    if RULES[request.terms.operation].sets_schema:
        is_as_seen = has_new_columns(request) or not gives_other_columns(request, current)
    elif request.changes_schema:
        is_as_seen = current in (None, request.terms.metadata.schema, request.schema)
    else:
        return current
    if not is_as_seen:
        raise CommitConflictError(
            f"the schema of {where} was changed by another commit since transaction {request.terms.tid} began; nothing "
            "was committed: read the table again, and write again"
        )
    if not RULES[request.terms.operation].sets_schema and (
        why := find_misfit(current, request.schema, request.terms.partition_columns)
    ):
        raise InvalidInputError(
            f"{where} has files that do not fit the columns of this commit: {why}. Values would be lost, and nothing "
            "was committed: pass all columns of the table, with its types or wider ones. Only an overwrite drops some"
        )
    return request.schema


def _refuse_misfit(request: CommitRequest, after: Mapping[str, Any] | None, *, where: str) -> None:
    """Raises CommitConflictError if the files were written for columns that the table no longer has (6.4)."""
    terms = request.terms
    written = terms.metadata.schema if request.schema is None else request.schema
    why = find_misfit(written, after, terms.partition_columns) if request.files else None
    if why is None:
        types = partition_types(after, terms.partition_columns)
        problem = find_problem((file.partition for file in request.data_files), types) if after != written else None
        why = problem and problem[1]
    if why is not None:
        raise CommitConflictError(
            f"the schema of {where} was changed by another commit since transaction {terms.tid} began, and its files "
            f"do not fit any more: {why}; nothing was committed: read the table again, and write again"
        )


def find_misfit(written: Schema | None, table: Schema | None, layout: Layout) -> str | None:
    """Why files that were written for some columns do not fit the columns of a table, as text; None if they fit.

    Both are Spark's JSON; None is unknown, and fits. Partition columns are in no file.
    """
    if written is None or table is None or written == table:
        return None
    inside, wanted = without(written, layout), without(table, layout)
    if other := respelled(inside, wanted):
        return other
    if gone := lost(inside, wanted):
        return f"the table lacks {gone:.200}"
    wrong = misfit(inside, wanted)
    return wrong and f"the files have {wrong}"


def has_new_columns(request: CommitRequest) -> bool:
    """Whether earlier files may not fit the columns that the commit gives the table. Its turn records this
    (`Turn.new_columns`)."""
    known = request.terms.metadata.schema
    return gives_other_columns(request, known) or (
        known is None and request.schema is not None and RULES[request.terms.operation].sets_schema
    )


def ends_appends(request: CommitRequest, current: Schema | None) -> bool:
    """Whether the commit must first abort blind appends that have begun. It fails if its turn does not record this."""
    return has_new_columns(request) and gives_other_columns(request, current)


def gives_other_columns(request: CommitRequest, before: Schema | None) -> bool:
    """Whether files that fit the columns `before` may not fit those after the commit. True only for an overwrite."""
    after, layout = request.schema, request.terms.partition_columns
    if before is None or after is None or not RULES[request.terms.operation].sets_schema:
        return False
    return bool(find_misfit(before, after, layout)) or partition_types(before, layout) != partition_types(after, layout)


def refuse_unread(table: Snapshot, removed: Collection[str], after: Metadata, *, layout: Layout) -> None:
    """Raises InvalidInputError if a partition column gets a type that cannot hold the values of files that stay."""
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
