"""Decides which columns a table can be clustered by: those for which writers record bounds. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.texts import command
from dbio_commit.data.conditions.pruning import column_types
from dbio_commit.protocol.settings import (
    CLUSTER_BY,
    STATISTICS,
    Settings,
    bare_columns,
    change,
    cluster_columns,
    cluster_text,
)
from dbio_commit.protocol.types import type_of


def fitted_columns(
    settings: Settings | None, schema: Mapping[str, Any], partition_columns: Collection[str], *, where: str
) -> tuple[str, ...]:
    """The columns of `cluster_by`, as the table spells them.

    Raises InvalidInputError for a column by which this table cannot be clustered.
    """
    bare, partitions = bare_columns(settings), {column.lower() for column in partition_columns}
    fields, found = {field["name"].lower(): field for field in schema["fields"]}, []
    for name in cluster_columns(settings):
        if problem := _problem(
            fields.get(name.lower()), is_bare=name.lower() in bare, in_layout=name.lower() in partitions
        ):
            raise InvalidInputError(
                f"{where} cannot be clustered by {name!r:.100}: {problem}; name other columns with "
                f"`{command('dbio', 'set', where, f'{CLUSTER_BY}=COLUMN,...')}`, or none with "
                f"`{command('dbio', 'set', where, f'{CLUSTER_BY}=')}`"
            )
        found.append(fields[name.lower()]["name"])
    return tuple(found)


def _problem(field: Mapping[str, Any] | None, *, is_bare: bool, in_layout: bool) -> str | None:
    if in_layout:
        return "it is a partition column, of which all rows in a file have the same value"
    if field is None:
        return "the table has no such column"
    if is_bare:
        return f"its statistics are off (setting statistics.{field['name']}), so that no reader skips files by it"
    kind = field["type"]
    if not isinstance(kind, str):
        return f"it is nested ({kind.get('type')}), and has no order"
    if not column_types({"fields": [field]}):
        return "it is CHAR, VARCHAR or has a collation, and not all readers order its texts alike"
    row = type_of(kind)
    return None if row and row.bound else f"it has type {kind}, of which files have no statistics that readers use"


def with_own_spelling(
    changes: Settings,
    before: Settings | None,
    schema: Mapping[str, Any] | None,
    partition_columns: Sequence[str],
    *,
    where: str,
) -> Settings:
    """The changes of settings, with `cluster_by` as the table spells its columns.

    Raises InvalidInputError if a column is not there, or if rows cannot be clustered by it after the changes.
    """
    after = change(before, changes)
    if schema is None or not any(name == CLUSTER_BY or name.startswith(f"{STATISTICS}.") for name in changes):
        return changes
    columns = fitted_columns(after, schema, partition_columns, where=where)
    return {**changes, CLUSTER_BY: cluster_text(columns)} if changes.get(CLUSTER_BY) else changes
