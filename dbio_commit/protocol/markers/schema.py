"""The columns of a table as a commit marker records them: JSON that is kept as text until it is needed. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Raw

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.protocol.column_metadata import keep_known
from dbio_commit.protocol.markers.bodies import INSPECT, decode_as, pack_json

NO_SCHEMA: Final = Raw()

Schemas = dict[bytes, Raw]
"""The schemas of markers that are read together. Tens of thousands of markers share a few, of some kilobytes each."""

FieldPath = tuple[str, ...]
"""A column, or a field inside columns, by the names from outside to inside. Arrays and maps have the fields `element`,
`key` and `value`, as Spark names them."""

MOST_NESTED = 190
"""The most levels of JSON in a schema that is written."""

MOST_NESTED_READ = 200
"""The most levels in a schema that is read. Earlier versions wrote slightly more."""


MOST_SCHEMA_BYTES = 16 * 1024**2
"""No writer changes the columns of a table to more bytes of JSON: the first line of a checkpoint has them, too."""


def refuse_large(schema: Mapping[str, Any] | None) -> None:
    """Raises InvalidInputError for new columns that take too many bytes."""
    if (size := memoryview(pack_schema(schema)).nbytes) > MOST_SCHEMA_BYTES:
        raise InvalidInputError(
            f"these columns take {size} bytes as JSON, and a table records at most {MOST_SCHEMA_BYTES}; nothing was "
            "committed: write fewer columns, or shorter names and comments"
        )


def pack_schema(schema: Mapping[str, Any] | None) -> Raw:
    """The text of a `CommitInfo`'s schema. Raises InvalidInputError for what is no JSON, or is nested too deeply."""
    if schema is None:
        return NO_SCHEMA
    if _is_nested_deeper(schema, MOST_NESTED):
        raise InvalidInputError(f"a schema that is nested deeper than {MOST_NESTED} levels of JSON cannot be recorded")
    return pack_json(schema, what="columns")


def _is_nested_deeper(value: Any, levels: int) -> bool:
    """Whether the value is nested deeper than `levels`. Goes level by level, since the caller's stack may be deep
    already."""
    level = [value]
    while level and levels >= 0:
        level = [inner for it in level for inner in _values_in(it)]
        levels -= 1
    return bool(level)


def _values_in(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()


def decode_schema(schema: bytes | Raw | None) -> dict[str, Any] | None:
    """The columns as Spark's JSON, with only known metadata; None if none are recorded."""
    return keep_known(decode_as(dict[str, Any], schema)) if schema else None


def check_schema(schema: bytes | Raw, *, where: str) -> None:
    """Raises CorruptMarkerError for text that cannot be read as a schema."""
    try:
        found = decode_as(dict[str, Any], schema)
        if _is_nested_deeper(found, MOST_NESTED_READ):
            raise ValueError(f"it has more than {MOST_NESTED_READ} levels")
        if found.get("type") != "struct":
            raise ValueError("it is no struct")
        _check_types(found)
    except ValueError as error:
        raise CorruptMarkerError(f"{where} has a schema that cannot be read: {error}; {INSPECT}") from None


def _check_types(schema: Any) -> None:
    """Raises ValueError if a part of the schema has not the form of Spark's JSON. A type may have any name."""
    waiting = [schema]
    while waiting:  # no recursion: a schema may be deeper than what is left of Python's stack
        match waiting.pop():
            case {"type": "struct", "fields": [*fields]}:
                for field in fields:
                    match field:
                        case {"name": str(), "type": kind}:
                            waiting.append(kind)
                        case _:
                            raise ValueError("a field has no name or no type")
            case {"type": "array", "elementType": element}:
                waiting.append(element)
            case {"type": "map", "keyType": key, "valueType": value}:
                waiting += [key, value]
            case str():
                pass
            case {"type": str(kind)} if kind not in ("struct", "array", "map"):  # such as a type of a user
                pass
            case _:
                raise ValueError("a type is none of Spark's")


def type_text(kind: Any, leaf: Callable[[str], str] = str) -> str:
    """A type in Spark's JSON as text, such as `struct<id:long>`. `leaf` gives the name of a type that is not nested."""
    match kind:
        case str():
            return leaf(kind)
        case {"type": "array", "elementType": element}:
            return f"array<{type_text(element, leaf)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{type_text(key, leaf)},{type_text(value, leaf)}>"
        case {"type": "struct", "fields": [*fields]} if all(isinstance(field, Mapping) for field in fields):
            each = (f"{field.get('name')}:{type_text(field.get('type'), leaf)}" for field in fields)
            return f"struct<{','.join(each)}>"
        case {"type": "udt"}:
            return "udt"
    return json.dumps(kind)
