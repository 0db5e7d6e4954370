"""Adds field ids to the schemas of new Parquet files, and checks those of other files. Pure.

`protocol/field_ids` decides which id a column has.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from dbio_commit.protocol.field_ids import FieldIds, field_ids
from dbio_commit.protocol.markers.schema import FieldPath

_KEY = b"PARQUET:field_id"
"""The key in the metadata of Arrow's fields under which pyarrow reads and writes ids."""


def with_field_ids(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Schema:
    """The schema of a new file with ids. Without ids if not all of its columns have distinct ones.

    `columns` is a recorded schema, which has the columns of the file and may have more.
    """
    ids = field_ids(columns)
    if ids is None or any(path not in ids for path, _ in _all_in(schema)):
        return schema
    return pa.schema([_with_ids(field, (field.name.lower(),), ids) for field in schema])


def _with_ids(field: "pa.Field[Any]", path: FieldPath, ids: Mapping[FieldPath, int]) -> "pa.Field[Any]":
    kind: Any = field.type
    inside = [_with_ids(it, (*path, name), ids) for name, it in _fields_in(kind)]
    if types.is_struct(kind):
        kind = pa.struct(inside)
    elif types.is_map(kind):
        kind = pa.map_(*inside)
    elif types.is_large_list(kind):
        kind = pa.large_list(*inside)
    elif types.is_list(kind):
        kind = pa.list_(*inside)
    return field.with_type(kind).with_metadata({_KEY: _text(ids[path])})


def field_ids_in(schema: pa.Schema, columns: Mapping[str, Any] | None) -> FieldIds:
    """The ids of a file. `columns` are its own, as a recorded schema; None if they are not known."""
    found = {path: (field.metadata or {}).get(_KEY) for path, field in _all_in(schema)}
    if not any(found.values()):
        return FieldIds.NONE
    ids = None if columns is None else field_ids(columns)
    is_own = ids is not None and {path: _text(number) for path, number in ids.items()} == found
    return FieldIds.OWN if is_own else FieldIds.OTHER


def _text(number: int) -> bytes:
    return str(number).encode()


def _all_in(schema: pa.Schema) -> Iterator[tuple[FieldPath, "pa.Field[Any]"]]:
    """Each column, and each field inside one, by its path in lower case."""
    for field in schema:
        yield from _with_inner((field.name.lower(),), field)


def _with_inner(path: FieldPath, field: "pa.Field[Any]") -> Iterator[tuple[FieldPath, "pa.Field[Any]"]]:
    yield path, field
    for name, it in _fields_in(field.type):
        yield from _with_inner((*path, name), it)


def _fields_in(kind: Any) -> Sequence[tuple[str, "pa.Field[Any]"]]:
    if types.is_struct(kind):
        return [(it.name.lower(), it) for it in kind]
    if types.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    if types.is_list(kind) or types.is_large_list(kind):
        return [("element", kind.value_field)]
    return ()
