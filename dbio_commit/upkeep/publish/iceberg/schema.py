"""A table's columns and partitions in the form of Iceberg's specification, version 2, with stable ids. Pure.

A column keeps its id as long as Iceberg allows that: while its type stays, or is widened as Iceberg widens types. An id
is never given to another column. Values are in `values`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import json

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.column_metadata import known
from dbio_commit.protocol.markers.schema import FieldPath
from dbio_commit.protocol.types import Family, decimal_digits, type_of

Field = Mapping[str, Any]
"""A field of an Iceberg schema, or of a partition spec, as JSON."""

Spellings = Mapping[FieldPath, Collection[str]]
"""How files spell columns and fields, besides the table. The paths are in lower case."""

FIRST_PARTITION_ID = 1000
"""Ids of partition fields begin here, by Iceberg's specification."""


@dataclass(frozen=True, slots=True)
class IcebergSchema:
    """The columns of a table in Iceberg's form."""

    fields: tuple[Field, ...]
    last_id: int
    """The highest id that was ever given."""
    kinds: Mapping[str, str]
    """Name of each column -> its type in Spark's JSON; only columns that are not nested."""

    def find(self, column: str) -> Field | None:
        """The column, in any case."""
        return next((it for it in self.fields if it["name"].lower() == column.lower()), None)


# --- types --------------------------------------------------------------------------------------------------------


def iceberg_type(kind: Any) -> str | None:
    """Iceberg's name for a type of Spark's JSON that is not nested; None if Iceberg has no such type."""
    row = type_of(kind)
    if row is None or row.iceberg is None:
        return None
    if row.family is not Family.DECIMAL:
        return row.iceberg
    digits = decimal_digits(kind)
    return f"decimal({digits[0]}, {digits[1]})" if digits else None


def is_read_as(narrow: str, wide: str) -> bool:
    """Whether readers of Iceberg read values of the one type, in Iceberg's words, as the other."""
    if narrow == wide or (narrow, wide) in (("int", "long"), ("float", "double")):
        return True
    digits, more = decimal_digits(narrow.replace(" ", "")), decimal_digits(wide.replace(" ", ""))
    return bool(digits and more and digits[1] == more[1] and digits[0] <= more[0])


def fits_iceberg(found: str, wanted: str) -> bool:
    """Whether readers of Iceberg read a file's type as the table's. Both are types of Spark's JSON, not nested."""
    one, other = iceberg_type(found), iceberg_type(wanted)
    return one is not None and other is not None and is_read_as(one, other)


# --- columns ------------------------------------------------------------------------------------------------------


def iceberg_schema(
    columns: Mapping[str, Any], before: Sequence[Field] = (), last_id: int = 0, *, where: str
) -> IcebergSchema:
    """Converts the columns, which are Spark's JSON. `before` are the columns as they were published last.

    Raises InvalidInputError, with the column, for a type that Iceberg cannot hold. `where` is the table's URL.
    """
    converter = _Converter(last_id, where)
    fields = tuple(converter.fields(columns["fields"], before, ""))
    kinds = {it["name"]: it["type"] for it in columns["fields"] if isinstance(it["type"], str)}
    return IcebergSchema(fields, converter.last_id, kinds)


class _Converter:
    def __init__(self, last_id: int, where: str) -> None:
        self.last_id, self._where = last_id, where

    def _id(self, before: int | None) -> int:
        if before is not None:
            return before
        self.last_id += 1
        return self.last_id

    def fields(self, fields: Sequence[Any], before: Sequence[Field], above: str) -> Iterator[Field]:
        same = {it["name"].lower(): it for it in before}
        for field in fields:
            old, column = same.get(field["name"].lower()), f"{above}{field['name']}"
            if old and not _stays(old["type"], field["type"]):
                old = None
            comment = known(field.get("metadata")).get("comment")
            yield {
                "id": self._id(old["id"] if old else None),
                "name": field["name"],
                "required": False,
                "type": self._type(field["type"], old and old["type"], column),
                **({"doc": comment} if comment is not None else {}),
            }

    def _type(self, kind: Any, old: Any, column: str) -> Any:
        """`old` is the same type as it was before, or None."""
        match kind:
            case {"type": "struct", "fields": [*fields]}:
                before = old["fields"] if old else ()
                return {"type": "struct", "fields": [*self.fields(fields, before, f"{column}.")]}
            case {"type": "array", "elementType": element}:
                return {
                    "type": "list",
                    "element-id": self._id(old and old["element-id"]),
                    "element": self._type(element, old and old["element"], f"{column}.element"),
                    "element-required": False,
                }
            case {"type": "map", "keyType": key, "valueType": value}:
                return {
                    "type": "map",
                    "key-id": self._id(old and old["key-id"]),
                    "key": self._type(key, old and old["key"], f"{column}.key"),
                    "value-id": self._id(old and old["value-id"]),
                    "value": self._type(value, old and old["value"], f"{column}.value"),
                    "value-required": False,
                }
            case str() if name := iceberg_type(kind):
                return name
        raise InvalidInputError(
            f"column {column!r:.200} of {self._where} is {kind!s:.100}, which version 2 of Iceberg has no type for; "
            "publish the table in another format, or overwrite it without the column"
        )


def _stays(old: Any, kind: Any) -> bool:
    """Whether a column of Iceberg's type `old` may become this type of Spark's JSON under the same id."""
    match old, kind:
        case {"type": "struct"}, {"type": "struct"}:
            return True
        case {"type": "list"}, {"type": "array"}:
            return _stays(old["element"], kind["elementType"])
        case {"type": "map"}, {"type": "map"}:
            return _stays(old["key"], kind["keyType"]) and _stays(old["value"], kind["valueType"])
        case str(), str():
            name = iceberg_type(kind)
            return name is not None and is_read_as(old, name)
    return False


def has_other_types(old: Sequence[Field], new: Sequence[Field]) -> bool:
    """Whether a column or a field inside it that is in both has another type or id than before."""
    before = {path: told for it in old for path, told in _leaves((), *_as_inside(it))}
    after = {path: told for it in new for path, told in _leaves((), *_as_inside(it))}
    return any(before[path] != told for path, told in after.items() if path in before)


def _as_inside(field: Field) -> tuple[int, str, Any]:
    return field["id"], field["name"], field["type"]


def _leaves(above: FieldPath, field_id: int, name: str, kind: Any) -> Iterator[tuple[FieldPath, tuple[int, str]]]:
    """The id and the type of a field, and of all fields in it."""
    path = (*above, name.lower())
    yield path, (field_id, kind if isinstance(kind, str) else kind["type"])
    for it in _inside(kind):
        yield from _leaves(path, *it)


# --- partitions ---------------------------------------------------------------------------------------------------


def partition_fields(
    schema: IcebergSchema, columns: Sequence[str], before: Sequence[Field], last_id: int, *, where: str
) -> tuple[tuple[Field, ...], int]:
    """The fields of the partition spec, and the highest id that was ever given to one. `before` are the last ones.

    Raises InvalidInputError for a partition column that the recorded columns lack.
    """
    known_ids = {it["source-id"]: it["field-id"] for it in before}
    fields: list[Field] = []
    for column in columns:
        source = schema.find(column)
        if source is None:
            raise InvalidInputError(
                f"the recorded columns of {where} lack the partition column {column!r:.100}; overwrite the table with "
                "all of its columns"
            )
        if not isinstance(source["type"], str):
            raise InvalidInputError(
                f"the partition column {column!r:.100} of {where} is nested, which Iceberg does not partition by; "
                "publish the table in another format"
            )
        if (number := known_ids.get(source["id"])) is None:
            number = last_id = last_id + 1
        fields.append({"name": source["name"], "transform": "identity", "source-id": source["id"], "field-id": number})
    return tuple(fields), last_id


# --- names in files -----------------------------------------------------------------------------------------------


def name_mapping(schema: IcebergSchema, before: str | None, spellings: Spellings) -> str:
    """The text of `schema.name-mapping.default`: for each field its id and all names that files have for it.

    `before` is the last such text, whose names are kept.
    """
    names: dict[int, set[str]] = {}
    _collect_names(json.decode(before) if before else [], names)

    def mapped(field_id: int, name: str, kind: Any, path: FieldPath) -> dict[str, Any]:
        others = {*names.get(field_id, ()), *spellings.get(path, ())} - {name}
        found = {"field-id": field_id, "names": [name, *sorted(others)]}
        inner = [mapped(*it, (*path, it[1].lower())) for it in _inside(kind)]
        return {**found, "fields": inner} if inner else found

    top = [mapped(*_as_inside(it), (it["name"].lower(),)) for it in schema.fields]
    return json.encode(top).decode()


def _inside(kind: Any) -> list[tuple[int, str, Any]]:
    """The id, the name and the type of each field of a type."""
    match kind:
        case {"type": "struct"}:
            return [(it["id"], it["name"], it["type"]) for it in kind["fields"]]
        case {"type": "list"}:
            return [(kind["element-id"], "element", kind["element"])]
        case {"type": "map"}:
            return [(kind["key-id"], "key", kind["key"]), (kind["value-id"], "value", kind["value"])]
    return []


def _collect_names(mapping: Any, names: dict[int, set[str]]) -> None:
    for it in mapping:
        names.setdefault(it["field-id"], set()).update(it["names"])
        _collect_names(it.get("fields", ()), names)


def spellings_in(columns: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    """Each column and field of a file, whose columns are Spark's JSON, with its name in the file."""

    def inside(kind: Any, above: FieldPath) -> Iterator[tuple[FieldPath, str]]:
        match kind:
            case {"type": "struct", "fields": [*fields]}:
                for field in fields:
                    path = (*above, field["name"].lower())
                    yield path, field["name"]
                    yield from inside(field["type"], path)
            case {"type": "array"}:
                yield from inside(kind["elementType"], (*above, "element"))
            case {"type": "map"}:
                yield from inside(kind["keyType"], (*above, "key"))
                yield from inside(kind["valueType"], (*above, "value"))

    return inside(columns, ())
