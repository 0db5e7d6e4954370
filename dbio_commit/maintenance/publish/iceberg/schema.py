"""Converts a table's columns and partitions to the form of Iceberg's specification, version 2. Pure.

The ids of columns are those of `protocol/field_ids`, which files have, too. `values` converts values.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, json
from msgspec import field as struct_field

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.column_metadata import known
from dbio_commit.protocol.field_ids import field_id, fields_inside
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


def iceberg_schema(columns: Mapping[str, Any], last_id: int = 0, *, where: str) -> IcebergSchema:
    """Converts the columns, which are a recorded schema. `last_id` is the highest id that was published before.

    Raises InvalidInputError, with the column, for a type that Iceberg cannot hold. `where` is the table's URL.
    """
    converter = _Converter(where)
    fields = tuple(converter.fields(columns["fields"], ()))
    kinds = {it["name"]: it["type"] for it in columns["fields"] if isinstance(it["type"], str)}
    return IcebergSchema(fields, max(last_id, *converter.given, 0), kinds)


class _Converter:
    def __init__(self, where: str) -> None:
        self._where = where
        self.given: dict[int, FieldPath] = {}

    def fields(self, fields: Sequence[Any], above: FieldPath) -> Iterator[Field]:
        for field in fields:
            path = (*above, field["name"])
            comment = known(field.get("metadata")).get("comment")
            kind = self._type(field["type"], path)
            yield {
                "id": self._id(path, field["type"]),
                "name": field["name"],
                "required": False,
                "type": kind,
                **({"doc": comment} if comment is not None else {}),
            }

    def _type(self, kind: Any, path: FieldPath) -> Any:
        match kind:
            case {"type": "struct", "fields": [*fields]}:
                return {"type": "struct", "fields": [*self.fields(fields, path)]}
            case {"type": "array", "elementType": element}:
                inside = (*path, "element")
                return {
                    "type": "list",
                    "element": self._type(element, inside),
                    "element-id": self._id(inside, element),
                    "element-required": False,
                }
            case {"type": "map", "keyType": key, "valueType": value}:
                one, other = (*path, "key"), (*path, "value")
                return {
                    "type": "map",
                    "key": self._type(key, one),
                    "key-id": self._id(one, key),
                    "value": self._type(value, other),
                    "value-id": self._id(other, value),
                    "value-required": False,
                }
            case str() if name := iceberg_type(kind):
                return name
        raise InvalidInputError(
            f"column {'.'.join(path)!r:.200} of {self._where} is {kind!s:.100}, which version 2 of Iceberg has no type "
            "for; publish the table in another format, or overwrite it without the column"
        )

    def _id(self, path: FieldPath, kind: Any) -> int:
        number = field_id(path, kind)
        assert number is not None  # since Iceberg has the types inside
        if other := self.given.get(number):
            raise InvalidInputError(
                f"the columns {'.'.join(other)!r:.200} and {'.'.join(path)!r:.200} of {self._where} have the same "
                f"field id, {number}, which follows from their names, and Iceberg needs two; publish the table in "
                "another format, or overwrite it with another name for one of them"
            )
        self.given[number] = path
        return number


def has_other_types(old: Sequence[Field], new: Sequence[Field]) -> bool:
    """Whether a column or a field inside it that is in both has another type or id than before."""
    return _differ(_leaves(old), _leaves(new))


def has_other_ids(old: Sequence[Field], new: Sequence[Field]) -> bool:
    """Whether a name that is in both has another id than before. Files without ids have the current id of the name."""
    one, other = ({path: number for path, (number, _) in _leaves(it).items()} for it in (old, new))
    return _differ(one, other)


def _differ(before: Mapping[FieldPath, Any], after: Mapping[FieldPath, Any]) -> bool:
    return any(before[path] != found for path, found in after.items() if path in before)


def _leaves(fields: Sequence[Field]) -> dict[FieldPath, tuple[int, str]]:
    """The id and the type of each column, and of all fields inside, by its path in lower case."""
    return dict(leaf for it in fields for leaf in _leaves_of((), *_as_inside(it)))


def _as_inside(field: Field) -> tuple[int, str, Any]:
    return field["id"], field["name"], field["type"]


def _leaves_of(above: FieldPath, number: int, name: str, kind: Any) -> Iterator[tuple[FieldPath, tuple[int, str]]]:
    path = (*above, name.lower())
    yield path, (number, kind if isinstance(kind, str) else kind["type"])
    for it in _inside(kind):
        yield from _leaves_of(path, *it)


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


def check_published(fields: Sequence[Field], mapping: str | None) -> None:
    """Raises TypeError, KeyError or MsgspecError if these are not columns and a name mapping as `name_mapping` makes
    them."""
    waiting = [*map(_as_inside, fields)]
    while waiting:
        number, name, kind = waiting.pop()
        is_nested = isinstance(kind, dict) and kind["type"] in ("struct", "list", "map")
        if type(number) is not int or not isinstance(name, str) or not (isinstance(kind, str) or is_nested):
            raise TypeError("a field has no id, no name or no type")
        waiting += _inside(kind)
    if mapping:
        json.decode(mapping, type=list[_Mapped])


class _Mapped(Struct, rename="kebab"):
    field_id: int
    names: list[str]
    fields: list["_Mapped"] = struct_field(default_factory=list)


def _collect_names(mapping: Any, names: dict[int, set[str]]) -> None:
    for it in mapping:
        names.setdefault(it["field-id"], set()).update(it["names"])
        _collect_names(it.get("fields", ()), names)


def spellings_in(columns: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    """Each column and field of a file, whose columns are a recorded schema, with its name in the file."""
    return ((tuple(name.lower() for name in path), path[-1]) for path, _ in fields_inside(columns))
