"""Changes the comments of columns, by a commit without files in a turn."""

import copy
from collections.abc import Mapping
from typing import Any

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.begin import Intent, begin, look
from dbio_commit.commit.provenance import NO_NOTE, Note
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.markers.schema import FieldPath
from dbio_commit.store import Store
from dbio_commit.upkeep.publish import place_of


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
    with begin(place_of(store, clock), Intent(operation="rewrite", note=note), target=target) as transaction:
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
