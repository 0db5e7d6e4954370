"""Computes the field ids by which readers of Iceberg find columns in files. Pure. Rules: NOTES.md, Iceberg.

An id follows from a column's name and type alone. So no writer has to know which ids others gave, and a file's ids are
right in each table that has such a column.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from hashlib import sha256
from typing import Any

from dbio_commit.protocol.markers.schema import FieldPath
from dbio_commit.protocol.types import Family, decimal_digits, type_of


class FieldIds(Enum):
    """The field ids of a file."""

    NONE = auto()
    """No column has one: readers of Iceberg find columns by names."""
    OWN = auto()
    """Each column has the id that follows from its name and type."""
    OTHER = auto()
    """Some columns have another id or none: readers of Iceberg would find other columns, or nulls."""


_BITS = 30
"""Iceberg's ids have 31 bits, and it reserves the highest ones."""


def field_id(path: FieldPath, kind: Any) -> int | None:
    """The id of the field at this path, with a type of a recorded schema; None if Iceberg lacks the type."""
    widest = _widest(kind)
    if widest is None:
        return None
    text = json.dumps([*(name.lower() for name in path), widest], ensure_ascii=False, separators=(",", ":"))
    return 1 + (int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:4]) >> (32 - _BITS))


def field_ids(columns: Mapping[str, Any]) -> dict[FieldPath, int] | None:
    """The ids of all columns, and of the fields inside them, by their paths in lower case. `columns` is a recorded
    schema. None if Iceberg lacks a type, or if two fields would have the same id.
    """
    found: dict[FieldPath, int] = {}
    for path, kind in fields_inside(columns):
        if (number := field_id(path, kind)) is None:
            return None
        found[tuple(name.lower() for name in path)] = number
    return found if len({*found.values()}) == len(found) else None


def fields_inside(kind: Any) -> Iterator[tuple[FieldPath, Any]]:
    """Each field inside a type of a recorded schema, or each column of a schema, with its type, from outside to
    inside."""
    for name, inner in _parts(kind):
        yield (name,), inner
        yield from (((name, *path), kind) for path, kind in fields_inside(inner))


def _parts(kind: Any) -> Sequence[tuple[str, Any]]:
    match kind:
        case {"type": "struct", "fields": [*fields]}:
            return [(it["name"], it["type"]) for it in fields]
        case {"type": "array", "elementType": element}:
            return [("element", element)]
        case {"type": "map", "keyType": key, "valueType": value}:
            return [("key", key), ("value", value)]
    return ()


def _widest(kind: Any) -> str | None:
    """The widest type to which Iceberg widens this one. Fields inside a struct do not count: they have ids."""
    match kind:
        case {"type": "struct"}:
            return "struct"
        case {"type": "array", "elementType": element}:
            inner = _widest(element)
            return inner and f"list<{inner}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            one, other = _widest(key), _widest(value)
            return one and other and f"map<{one},{other}>"
    row = type_of(kind)
    if row is None or row.iceberg is None:
        return None
    if row.family is Family.DECIMAL:
        digits = decimal_digits(kind)
        return digits and f"decimal({digits[1]})"
    return _WIDER.get(row.iceberg, row.iceberg)


_WIDER: Mapping[str, str] = {"int": "long", "float": "double"}
