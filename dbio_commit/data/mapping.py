"""Maps the columns of new rows to a table's: which can be written, names and order, wider types, comments. Pure.

Schemas are Spark's JSON. A table's schema is recorded with all columns nullable, data columns first and partition
columns last, as Spark returns it from a read. `spark/session/schema` does the same for PySpark's types. `fitting` is
for the columns of files that other tools wrote.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.data.physical import problem_of_name
from dbio_commit.protocol.markers.schema import type_text
from dbio_commit.protocol.types import Family, decimal_digits, is_integer, is_number, leaf_types, type_of, widens

Schema = Mapping[str, Any]
"""Spark's JSON of a struct."""

_COLLATIONS = "__COLLATIONS"
"""The key in a column's metadata by which Spark says that texts have another order than that of their bytes."""


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """How the columns of the data become a table's."""

    columns: tuple[tuple[int | None, str], ...]
    """For each column of the table: the position of the data's column, and the table's name for it. None: the data
    lacks the column, which is null then."""
    schema: Schema
    """The table's columns after the write: nullable, partition columns last."""
    partition_columns: tuple[str, ...]
    casts: tuple[str, ...] = ()
    """The table's columns whose type differs from that of the data."""

    @property
    def data_schema(self) -> Schema:
        """The columns in the files: all except the partition columns."""
        return _struct([it for it in self.schema["fields"] if it["name"] not in self.partition_columns])


def field_names(schema: Schema) -> list[str]:
    return [it["name"] for it in schema["fields"]]


def respell(columns: Sequence[str], schema: Schema) -> tuple[str, ...]:
    """The columns, spelled as in the schema, which has all of them."""
    spelling = {name.lower(): name for name in field_names(schema)}
    return tuple(spelling[column.lower()] for column in columns)


# --- which columns can be written ---------------------------------------------------------------------------------


def check_writable(schema: Schema, partition_by: Sequence[str], *, allow_void: bool = False) -> None:
    """Raises InvalidInputError for a schema whose values would not be equal after a write and a read.

    `allow_void`: allows columns of bare NULLs, for data that may go to a table which has a type for the column.
    """
    by_name: dict[str, Schema] = {}
    for field in schema["fields"]:
        name = field["name"]
        if name.lower() in by_name:
            raise InvalidInputError(
                f"two columns are named {name!r} (case makes no difference to Spark); rename one of them"
            )
        _check_name(name, f"column {name!r}")
        by_name[name.lower()] = field
        _check_type(_plain_in(field), name, allow_void=allow_void)
    for column in partition_by:
        partition = by_name.get(column.lower())
        if partition is None:
            raise InvalidInputError(f"partition column {column!r} is none of the columns {field_names(schema)}")
        row = type_of(_plain_in(partition))
        if not (row and (row.is_partition or (allow_void and row.family is Family.NOTHING))):
            raise InvalidInputError(
                f"partition column {column!r} is {simple_name(partition['type'])}, which a directory name does not "
                "give back equal; partition by string, integer, boolean, decimal, date or timestamp"
            )
    if not schema["fields"]:
        raise InvalidInputError("there are no columns, and a table needs one that is no partition column; give columns")
    if len(partition_by) >= len(schema["fields"]):
        raise InvalidInputError(f"no column is left for the files: {field_names(schema)} are all partition columns")


def _check_type(kind: Any, where: str, *, allow_void: bool) -> None:
    match kind:
        case {"type": "struct", "fields": fields}:
            if not fields:
                raise InvalidInputError(f"{where!r} is a struct without fields, which Parquet cannot hold; drop it")
            if len({field["name"].lower() for field in fields}) < len(fields):
                raise InvalidInputError(f"two fields of {where!r} have the same name; rename one of them")
            for field in fields:
                _check_name(field["name"], f"field {field['name']!r} of {where!r}")
                _check_type(field["type"], f"{where}.{field['name']}", allow_void=allow_void)
        case {"type": "array", "elementType": element}:
            _check_type(element, f"{where}.element", allow_void=allow_void)
        case {"type": "map", "keyType": key, "valueType": value}:
            _check_type(key, f"{where}.key", allow_void=allow_void)
            _check_type(value, f"{where}.value", allow_void=allow_void)
        case "void":
            if not allow_void:
                raise InvalidInputError(
                    f"column {where!r} is void: it has only NULLs, and the table has no such column to take its type "
                    "from; cast it, as in CAST(NULL AS string)"
                )
        case _:
            if not _is_written(kind):
                raise InvalidInputError(
                    f"column {where!r} is {simple_name(kind)}, which would not come back equal from Parquet; "
                    "cast it to a type that does, such as string, bigint or a struct"
                )


def _check_name(name: str, what: str) -> None:
    if why := problem_of_name(name):
        raise InvalidInputError(f"{what} has {why}, and not all readers can name it; rename it")


def _is_written(kind: Any) -> bool:
    row = type_of(kind)
    return row is not None and row.is_written


def has_void(kind: Any) -> bool:
    """Whether the type, or a type inside it, is that of a bare NULL."""
    return any(it == "void" for it in leaf_types(kind))


def has_variant(kind: Any) -> bool:
    """Whether the type, or a type inside it, is a variant."""
    rows = map(type_of, leaf_types(kind))
    return any(row is not None and row.family is Family.VARIANT for row in rows)


# --- how the data becomes the table's -----------------------------------------------------------------------------


def map_columns(
    schema: Schema,
    *,
    partition_columns: Sequence[str],
    table: Schema | None,
    merge: bool,
    where: str,
    widen: bool = True,
    replaced: Schema | None = None,
    may_lack: bool = False,
    by_value: bool = False,
) -> ColumnMapping:
    """How the columns of a write become those of the table.

    `table` is the schema to fit; None: the write sets its own. `where` is the table's URL.

    Columns, and fields of structs, are matched by name without regard to case, and take the table's spelling and order.
    Narrower data is cast to the table's type. `merge` lets the data have new columns and lack old ones, and, with
    `widen`, makes the table's types as wide as the data's. With `may_lack`, the data may lack columns, which are null
    then, but no partition columns. With `by_value`, whole numbers fit each column of numbers: the caller refuses those
    that would change. `replaced` are the columns that an overwrite replaces: void columns take their type. Raises
    SchemaMismatchError, with both schemas, for any other difference.
    """
    if table is None:
        own = {column.lower(): column for column in partition_columns}  # spelled as the existing directories are
        known = {it["name"].lower(): it["type"] for it in replaced["fields"]} if replaced else {}
        fields: dict[str, Schema] = {}
        for field in schema["fields"]:
            name = own.get(field["name"].lower(), field["name"])
            fields[name] = _field(name, plain(_filled(_plain_in(field), known.get(field["name"].lower()))))
    else:
        fields, problems = _fitted(
            schema, table, partition_columns, merge=merge, widen=widen, may_lack=may_lack or merge, by_value=by_value
        )
        if problems:
            advice = ""
            if not merge and not _fitted(schema, table, partition_columns, merge=True, widen=widen, may_lack=True)[1]:
                advice = ", or pass merge_schema=True (the option mergeSchema) to let the table's columns change"
            elif merge and not _fitted(schema, table, partition_columns, merge=True, widen=True, may_lack=True)[1]:
                advice = "; types widen in a table with a descriptor only, and with Spark 4.0 or later"
            raise SchemaMismatchError(*_describe(schema, table, problems, where=where, advice=advice))
    if lost := [name for name in partition_columns if name not in fields]:
        raise SchemaMismatchError(
            f"{where} is partitioned by {', '.join(lost)}, which its recorded columns do not have; `dbio log` shows "
            "which commit recorded them, and no dbio writer does that: restore an earlier state, or overwrite the table"
        )
    position = {name.lower(): i for i, name in enumerate(field_names(schema))}
    given = {field["name"].lower(): _plain_in(field) for field in schema["fields"]}
    ordered = [name for name in fields if name not in partition_columns] + list(partition_columns)
    return ColumnMapping(
        columns=tuple((position.get(name.lower()), name) for name in ordered),
        schema=_struct([fields[name] for name in ordered]),
        partition_columns=tuple(partition_columns),
        casts=tuple(name for name in ordered if given.get(name.lower()) != fields[name]["type"]),
    )


def _fitted(
    schema: Schema,
    table: Schema,
    partition_columns: Sequence[str],
    *,
    merge: bool,
    widen: bool,
    may_lack: bool,
    by_value: bool = False,
) -> tuple[dict[str, Schema], list[str]]:
    """The table's columns after the write, and a sentence for each column that does not fit."""
    given = {field["name"].lower(): field for field in schema["fields"]}
    fields: dict[str, Schema] = {}
    problems: list[str] = []
    for field in table["fields"]:
        name, own = field["name"], _plain_in(field)
        match = given.pop(name.lower(), None)
        kind = own
        if match is not None:
            kind = merged(_plain_in(match), own, merge=merge, widen=widen, by_value=by_value)
            if kind is None or (name in partition_columns and _scale(kind) != _scale(own)):
                problems.append(f"{name} is {simple_name(match['type'])}, not {simple_name(field['type'])}")
        elif not may_lack or name in partition_columns:
            problems.append(f"{name} is missing")
        fields[name] = _field(name, own if kind is None else kind)
    for field in given.values():
        if not merge:
            problems.append(f"{field['name']} is not in the table")
        fields[field["name"]] = _field(field["name"], _plain_in(field))
    return fields, problems


def merged(data: Any, table: Any, *, merge: bool, widen: bool, by_value: bool = False) -> Any:
    """The table's type after a write of data of this type; None if the data does not fit. See `map_columns`."""
    inside = partial(merged, merge=merge, widen=widen, by_value=by_value)
    data, table = plain(data), plain(table)
    if data in (table, "void"):
        return table
    match data, table:
        case {"type": "struct"}, {"type": "struct"}:
            fields, problems = _fitted(data, table, (), merge=merge, widen=widen, may_lack=merge, by_value=by_value)
            return None if problems else _struct([*fields.values()])
        case {"type": "array"}, {"type": "array"}:
            element = inside(data["elementType"], table["elementType"])
            return element and _array(element)
        case {"type": "map"}, {"type": "map"}:
            key, value = (inside(data[part], table[part]) for part in ("keyType", "valueType"))
            return key and value and _map(key, value)
    if not _is_written(data) or not _is_written(table):
        return None
    if widens(data, table):
        return table
    if merge and widen and widens(table, data):
        return data
    return table if by_value and is_integer(data) and is_number(table) else None


def _filled(data: Any, replaced: Any) -> Any:
    """The type, with void parts replaced by those of the replaced column."""
    if replaced is None or data == "void":
        return data if replaced is None else replaced
    match data, replaced:
        case {"type": "struct"}, {"type": "struct"}:
            known = {field["name"].lower(): field["type"] for field in replaced["fields"]}
            return _struct(
                [_field(it["name"], _filled(it["type"], known.get(it["name"].lower()))) for it in data["fields"]]
            )
        case {"type": "array"}, {"type": "array"}:
            return _array(_filled(data["elementType"], replaced["elementType"]))
        case {"type": "map"}, {"type": "map"}:
            return _map(
                _filled(data["keyType"], replaced["keyType"]), _filled(data["valueType"], replaced["valueType"])
            )
    return data


def _scale(kind: Any) -> int:
    """How many digits the names of partition directories have after the point. Another scale makes other names."""
    digits = decimal_digits(kind) if isinstance(kind, str) else None
    return digits[1] if digits else 0


def _describe(schema: Schema, table: Schema, problems: Sequence[str], *, where: str, advice: str) -> tuple[str, ...]:
    """The lines of the message."""
    return (
        f"the data does not fit the table {where}: {'; '.join(problems)}. Nothing was written: cast or select to fit"
        f"{advice}.",
        f"  table: {simple_name(table)}",
        f"   data: {simple_name(schema)}",
    )


def simple_name(kind: Any) -> str:
    """A type as Spark's messages show it, such as `struct<id:bigint>`."""
    return type_text(kind, _name_in_sql)


def _name_in_sql(kind: str) -> str:
    row = type_of(kind)
    return f"{row.sql[0]}{kind[len(row.name) :]}" if row and row.sql else kind


# --- plain types --------------------------------------------------------------------------------------------------


def plain_schema(schema: Schema) -> Schema:
    return _struct([_field(field["name"], _plain_in(field)) for field in schema["fields"]])


def plain(kind: Any) -> Any:
    """The type with everything in it nullable, without metadata and lengths, as a read of Parquet returns it."""
    match kind:
        case {"type": "struct"}:
            return plain_schema(kind)
        case {"type": "array", "elementType": element}:
            return _array(plain(element))
        case {"type": "map", "keyType": key, "valueType": value}:
            return _map(plain(key), plain(value))
    row = type_of(kind)
    return "string" if row is not None and row.family is Family.TEXT else kind


def _plain_in(field: Schema) -> Any:
    """The plain type of a field. Texts with a collation have a type of their own, which cannot be written."""
    collations = (field.get("metadata") or {}).get(_COLLATIONS)
    return f"string collate {collations!s:.100}" if collations else plain(field["type"])


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _struct(fields: Sequence[Schema]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def _array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def _map(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


# --- comments -----------------------------------------------------------------------------------------------------


def with_comments(schema: Schema, given: Schema, own: Schema | None, *, new: bool) -> Schema:
    """The plain schema with the comments of its columns and fields.

    A column that the table has, as `own` says, keeps its comment, and a column that it lacks gets that of the data,
    `given`. With `new`, the write sets the columns, and the comments of the data come first.
    """
    found: Schema = _commented(schema, [given, own] if new else [own, given], any_of=new)
    return found


def _commented(kind: Any, known: Sequence[Any], *, any_of: bool) -> Any:
    """The type with comments. A field gets that of the first type in `known` that has the field, or with `any_of`, that
    has a comment for it."""
    match kind:
        case {"type": "struct", "fields": fields}:
            by_name = [{field["name"].lower(): field for field in it["fields"]} for it in _like(known, "struct")]
            found = []
            for field in fields:
                same = [it[field["name"].lower()] for it in by_name if field["name"].lower() in it]
                comments = [comment_of(it) for it in same]
                comment = next(filter(None, comments), None) if any_of else next(iter(comments), None)
                inner = _commented(field["type"], [it["type"] for it in same], any_of=any_of)
                found.append({**_field(field["name"], inner), "metadata": {"comment": comment} if comment else {}})
            return _struct(found)
        case {"type": "array", "elementType": element}:
            elements = [it["elementType"] for it in _like(known, "array")]
            return _array(_commented(element, elements, any_of=any_of))
        case {"type": "map", "keyType": key, "valueType": value}:
            maps = [*_like(known, "map")]
            return _map(
                _commented(key, [it["keyType"] for it in maps], any_of=any_of),
                _commented(value, [it["valueType"] for it in maps], any_of=any_of),
            )
    return kind


def _like(known: Sequence[Any], name: str) -> Iterator[Any]:
    return (it for it in known if isinstance(it, Mapping) and it.get("type") == name)


def comment_of(field: Schema) -> str | None:
    comment = (field.get("metadata") or {}).get("comment")
    return comment if isinstance(comment, str) and comment else None


def same_schema(one: Schema, other: Schema) -> bool:
    """Whether two schemas differ only in how they are written, such as by keys that have their default."""
    return bool(_whole(one) == _whole(other))


def _whole(kind: Any) -> Any:
    match kind:
        case {"type": "struct", "fields": fields}:
            return [
                (it["name"], _whole(it["type"]), it.get("nullable", True), it.get("metadata") or {}) for it in fields
            ]
        case {"type": "array", "elementType": element}:
            return ("array", _whole(element), kind.get("containsNull", True))
        case {"type": "map", "keyType": key, "valueType": value}:
            return ("map", _whole(key), _whole(value), kind.get("valueContainsNull", True))
    return kind
