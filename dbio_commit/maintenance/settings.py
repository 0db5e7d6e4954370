"""Changes the settings of a table, or the comments of its columns, by a commit without files."""

import copy
from collections.abc import Mapping
from typing import Any

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import InvalidInputError, TableNotFoundError
from dbio_commit.commit.begin import Intent, begin, look
from dbio_commit.commit.provenance import NO_NOTE, Note
from dbio_commit.commit.state_after import refuse_change_type
from dbio_commit.data.clustering import with_own_spelling
from dbio_commit.maintenance.publish import context_of
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.markers.schema import FieldPath
from dbio_commit.protocol.settings import Settings, bare_columns, change, check_changes
from dbio_commit.protocol.state import Metadata
from dbio_commit.store import Store


def change_settings(
    store: Store, clock: Clock, changes: Mapping[str, str], *, if_match: str | None = None, note: Note = NO_NOTE
) -> Commit:
    """Changes these settings. An empty text removes a setting; the others stay as they are. With `if_match`, nothing
    may have been committed since. `note` has the message and labels of the commit.

    Raises InvalidInputError for what cannot be set and if it is not a dbio table, TableNotFoundError,
    TransactionAbortedError, CommitStateUnknownError, StoreError.
    """
    sets = check_changes(changes)
    target = look(store, clock)
    if target.scope is None:
        raise TableNotFoundError(f"there is no table at {store.url} whose settings could change; check the path")
    if not target.records_columns:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so it has no settings; `dbio adopt` makes it a table"
        )
    _refuse_unfit(sets, target.metadata, where=store.url)
    sets = with_own_spelling(
        sets, target.metadata.settings, target.metadata.schema, target.partition_columns or (), where=store.url
    )
    intent = Intent(operation="rewrite", sets=sets, if_match=if_match, note=note)
    with begin(context_of(store, clock), intent, target=target) as transaction:
        return transaction.commit()


def _refuse_unfit(sets: Settings, before: Metadata, *, where: str) -> None:
    """Raises InvalidInputError for settings that the table's columns do not fit: a misspelled name, for example."""
    if before.schema is None:
        return
    columns, new = [field["name"] for field in before.schema["fields"]], {it: sql for it, sql in sets.items() if sql}
    if unknown := bare_columns(new) - {name.lower() for name in columns}:
        raise InvalidInputError(f"{where} has no column {min(unknown)!r:.100}, of which to write no statistics")
    refuse_change_type(before.schema, change(before.settings, sets), before=before, where=where)
    Constraints.of(new).refuse_lost(columns, where=where)
    Constraints.of(change(before.settings, sets)).refuse_names(new, columns, where=where)


# --- comments of columns ----------------------------------------------------------------------------------------------


def change_comments(store: Store, clock: Clock, comments: Mapping[FieldPath, str], *, note: Note = NO_NOTE) -> Commit:
    """Changes these comments. An empty text removes a comment.

    Raises InvalidInputError if there is no such column or field, and if the columns are not recorded;
    CommitConflictError if another commit changes the columns at the same time.
    """
    target = look(store, clock)
    if target.metadata.schema is None:
        raise InvalidInputError(
            f"{store.url} has no recorded columns, so they have no comments: write to the table first"
        )
    schema = copy.deepcopy(dict(target.metadata.schema))
    for path, comment in comments.items():
        field = _field(schema, path)
        if field is None:
            raise InvalidInputError(f"{store.url} has no column {'.'.join(path)!r:.200}; nothing was changed")
        field["metadata"] = {"comment": comment} if comment else {}
    with begin(context_of(store, clock), Intent(operation="rewrite", note=note), target=target) as transaction:
        return transaction.commit(schema)


def _field(kind: Any, path: FieldPath) -> dict[str, Any] | None:
    """The field of this path in a type of Spark's JSON, whatever case the names have."""
    for position, name in enumerate(path):
        if not isinstance(kind, dict):
            return None
        if kind.get("type") == "struct":
            found = [field for field in kind["fields"] if field["name"].lower() == name.lower()]
            if not found:
                return None
            if position == len(path) - 1:
                field: dict[str, Any] = found[0]
                return field
            kind = found[0]["type"]
        else:
            inner = {"element": "elementType", "key": "keyType", "value": "valueType"}.get(name.lower(), "")
            kind = kind.get(inner)
    return None
