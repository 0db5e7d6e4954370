"""Spark schemas: which can be written, and how a DataFrame's columns map to those of a table. No I/O, no session.

A table's schema is recorded with all columns nullable, data columns first and partition columns last, as Spark returns
it from a read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.data import columns
from dbio_commit.data.widen import widens
from dbio_commit.protocol.types import Family, Type, type_of


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """How a DataFrame's columns become a table's."""

    columns: tuple[tuple[int | None, str], ...]
    """For each column of the table: the position of the DataFrame's column, and the table's name for it. None: the data
    lacks the column, which is null then."""
    schema: t.StructType
    """The table's columns after the write: nullable, partition columns last."""
    partition_columns: tuple[str, ...]
    casts: tuple[str, ...] = ()
    """The table's columns whose type differs from that of the data."""

    @property
    def data_schema(self) -> t.StructType:
        """The columns in the files: all except the partition columns."""
        return t.StructType([field for field in self.schema.fields if field.name not in self.partition_columns])


def check_writable(schema: t.StructType, partition_by: Sequence[str], *, allow_void: bool = False) -> None:
    """Raises InvalidInputError for a schema whose values would not be equal after a write and a read.

    `allow_void`: allows columns of bare NULLs, for data that may go to a table which has a type for the column.
    """
    by_name: dict[str, t.StructField] = {}
    for field in schema.fields:
        if field.name.lower() in by_name:
            raise InvalidInputError(
                f"two columns are named {field.name!r} (case makes no difference to Spark); rename one of them"
            )
        by_name[field.name.lower()] = field
        _check_type(plain(field.dataType), field.name, allow_void=allow_void)
    for column in partition_by:
        partition = by_name.get(column.lower())
        if partition is None:
            raise InvalidInputError(f"partition column {column!r} is none of the columns {schema.fieldNames()}")
        row = row_of(plain(partition.dataType))
        if not (row and (row.is_partition or (allow_void and row.family is Family.NOTHING))):
            raise InvalidInputError(
                f"partition column {column!r} is {partition.dataType.simpleString()}, which a directory name does not "
                "give back equal; partition by string, integer, boolean, decimal, date or timestamp"
            )
    if len(partition_by) >= len(schema.fields):
        raise InvalidInputError(f"no column is left for the files: {schema.fieldNames()} are all partition columns")


def respell(columns: Sequence[str], schema: t.StructType) -> tuple[str, ...]:
    """The columns, spelled as in the schema, which has all of them."""
    spelling = {field.name.lower(): field.name for field in schema.fields}
    return tuple(spelling[column.lower()] for column in columns)


def _check_type(kind: t.DataType, where: str, *, allow_void: bool) -> None:
    match kind:
        case t.StructType():
            if not kind.fields:
                raise InvalidInputError(f"{where!r} is a struct without fields, which Parquet cannot hold; drop it")
            if len({field.name.lower() for field in kind.fields}) < len(kind.fields):
                raise InvalidInputError(f"two fields of {where!r} have the same name; rename one of them")
            for field in kind.fields:
                _check_type(field.dataType, f"{where}.{field.name}", allow_void=allow_void)
        case t.ArrayType():
            _check_type(kind.elementType, f"{where}.element", allow_void=allow_void)
        case t.MapType():
            _check_type(kind.keyType, f"{where}.key", allow_void=allow_void)
            _check_type(kind.valueType, f"{where}.value", allow_void=allow_void)
        case t.NullType():
            if not allow_void:
                raise InvalidInputError(
                    f"column {where!r} is void: it has only NULLs, and the table has no such column to take its type "
                    "from; cast it, as in CAST(NULL AS string)"
                )
        case _:
            if not _is_written(kind) or _has_collation(kind):
                raise InvalidInputError(
                    f"column {where!r} is {kind.simpleString()}, which would not come back equal from Parquet; "
                    "cast it to a type that does, such as string, bigint or a struct"
                )


def row_of(kind: t.DataType) -> Type | None:
    """The row of a Spark type in the table of types; None for one that is nested or unknown."""
    return None if isinstance(kind, t.UserDefinedType) else type_of(kind.jsonValue())


def _is_written(kind: t.DataType) -> bool:
    row = row_of(kind)
    return row is not None and row.is_written


def _has_collation(kind: t.DataType) -> bool:
    return getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"


def map_columns(
    schema: t.StructType,
    *,
    partition_columns: Sequence[str],
    table: t.StructType | None,
    merge: bool,
    where: str,
    widen: bool = True,
    replaced: t.StructType | None = None,
) -> ColumnMapping:
    """How the columns of a write become those of the table.

    `table` is the schema to fit; None: the write sets its own. `where` is the table's URL.

    Columns, and fields of structs, are matched by name without regard to case, and take the table's spelling and order.
    Narrower data is cast to the table's type. `merge` lets the data have new columns and lack old ones, and, with
    `widen`, makes the table's types as wide as the data's. `replaced` are the columns that an overwrite replaces: void
    columns take their type. Raises SchemaMismatchError, with both schemas, for any other difference.
    """
    if table is None:
        own = {column.lower(): column for column in partition_columns}  # spelled as the existing directories are
        known = {field.name.lower(): field.dataType for field in replaced.fields} if replaced else {}
        renamed = (
            t.StructField(own.get(f.name.lower(), f.name), _filled(f.dataType, known.get(f.name.lower())))
            for f in schema.fields
        )
        fields = {field.name: nullable(field) for field in renamed}
    else:
        fields, problems = _fitted(schema, table, partition_columns, merge=merge, widen=widen)
        if problems:
            advice = ""
            if not merge and not _fitted(schema, table, partition_columns, merge=True, widen=widen)[1]:
                advice = ", or pass merge_schema=True to let the table's columns change"
            elif merge and not _fitted(schema, table, partition_columns, merge=True, widen=True)[1]:
                advice = "; types widen in a table with a descriptor only, and with Spark 4.0 or later"
            raise SchemaMismatchError(*_describe(schema, table, problems, where=where, advice=advice))
    position = {field.name.lower(): i for i, field in enumerate(schema.fields)}
    given = {field.name.lower(): plain(field.dataType) for field in schema.fields}
    ordered = [name for name in fields if name not in partition_columns] + list(partition_columns)
    return ColumnMapping(
        columns=tuple((position.get(name.lower()), name) for name in ordered),
        schema=t.StructType([fields[name] for name in ordered]),
        partition_columns=tuple(partition_columns),
        casts=tuple(name for name in ordered if given.get(name.lower()) != fields[name].dataType),
    )


def _fitted(
    schema: t.StructType, table: t.StructType, partition_columns: Sequence[str], *, merge: bool, widen: bool
) -> tuple[dict[str, t.StructField], list[str]]:
    """The table's columns after the write, and a sentence for each column that does not fit."""
    given = {field.name.lower(): field for field in schema.fields}
    fields: dict[str, t.StructField] = {}
    problems: list[str] = []
    for field in table.fields:
        match = given.pop(field.name.lower(), None)
        kind: t.DataType | None = field.dataType
        if match is not None:
            kind = merged(match.dataType, field.dataType, merge=merge, widen=widen)
            if kind is None or (field.name in partition_columns and _scale(kind) != _scale(field.dataType)):
                problems.append(f"{field.name} is {match.dataType.simpleString()}, not {field.dataType.simpleString()}")
        elif not merge or field.name in partition_columns:
            problems.append(f"{field.name} is missing")
        fields[field.name] = nullable(t.StructField(field.name, kind or field.dataType))
    for field in given.values():
        if not merge:
            problems.append(f"{field.name} is not in the table")
        fields[field.name] = nullable(field)
    return fields, problems


def merged(data: t.DataType, table: t.DataType, *, merge: bool, widen: bool) -> t.DataType | None:
    """The table's type after a write of data of this type; None if the data does not fit."""
    data, table = plain(data), plain(table)
    if data == table or isinstance(data, t.NullType):
        return table
    match data, table:
        case t.StructType(), t.StructType():
            fields, problems = _fitted(data, table, (), merge=merge, widen=widen)
            return None if problems else t.StructType(list(fields.values()))
        case t.ArrayType(), t.ArrayType():
            element = merged(data.elementType, table.elementType, merge=merge, widen=widen)
            return element and t.ArrayType(element, True)
        case t.MapType(), t.MapType():
            key = merged(data.keyType, table.keyType, merge=merge, widen=widen)
            value = merged(data.valueType, table.valueType, merge=merge, widen=widen)
            return key and value and t.MapType(key, value, True)
    if not _is_written(data) or not _is_written(table):
        return None
    if widens(arrow_type(data), arrow_type(table)):
        return table
    return data if merge and widen and widens(arrow_type(table), arrow_type(data)) else None


def _filled(data: t.DataType, replaced: t.DataType | None) -> t.DataType:
    """The type, with void parts replaced by those of the replaced column."""
    if replaced is None:
        return data
    match data, replaced:
        case t.NullType(), _:
            return replaced
        case t.StructType(), t.StructType():
            known = {field.name.lower(): field.dataType for field in replaced.fields}
            fields = (t.StructField(f.name, _filled(f.dataType, known.get(f.name.lower()))) for f in data.fields)
            return t.StructType(list(fields))
        case t.ArrayType(), t.ArrayType():
            return t.ArrayType(_filled(data.elementType, replaced.elementType))
        case t.MapType(), t.MapType():
            return t.MapType(_filled(data.keyType, replaced.keyType), _filled(data.valueType, replaced.valueType))
    return data


def has_void(kind: t.DataType) -> bool:
    """Whether the type, or a type inside it, is that of a bare NULL."""
    match kind:
        case t.StructType():
            return any(has_void(field.dataType) for field in kind.fields)
        case t.ArrayType():
            return has_void(kind.elementType)
        case t.MapType():
            return has_void(kind.keyType) or has_void(kind.valueType)
    return isinstance(kind, t.NullType)


def has_variant(kind: t.DataType) -> bool:
    """Whether the type, or a type inside it, is a variant."""
    match kind:
        case t.StructType():
            return any(has_variant(field.dataType) for field in kind.fields)
        case t.ArrayType():
            return has_variant(kind.elementType)
        case t.MapType():
            return has_variant(kind.keyType) or has_variant(kind.valueType)
    row = row_of(kind)
    return row is not None and row.family is Family.VARIANT


def _scale(kind: t.DataType) -> int:
    """How many digits the names of partition directories have after the point. Another scale makes other names."""
    return kind.scale if isinstance(kind, t.DecimalType) else 0


def _describe(
    schema: t.StructType, table: t.StructType, problems: Sequence[str], *, where: str, advice: str
) -> tuple[str, ...]:
    """The lines of the message."""
    return (
        f"the data does not fit the table {where}: {'; '.join(problems)}. Nothing was written: cast or select to fit"
        f"{advice}.",
        f"  table: {table.simpleString()}",
        f"   data: {schema.simpleString()}",
    )


def nullable(field: t.StructField) -> t.StructField:
    """The field as the table records it: nullable, since a read may find null."""
    return t.StructField(field.name, plain(field.dataType), True)


def with_comments(schema: t.StructType, given: t.StructType, own: t.StructType | None, *, new: bool) -> t.StructType:
    """The plain schema with the comments of its columns and fields.

    A column that the table has, as `own` says, keeps its comment, and a column that it lacks gets that of the data,
    `given`. With `new`, the write sets the columns, and the comments of the data come first.
    """
    found = _commented(schema, [given, own] if new else [own, given], any_of=new)
    assert isinstance(found, t.StructType)
    return found


def _commented(kind: t.DataType, known: Sequence[t.DataType | None], *, any_of: bool) -> t.DataType:
    """The type with comments: of the first of the `known` that has the field; with `any_of`, that has a comment."""
    match kind:
        case t.StructType():
            structs = [it for it in known if isinstance(it, t.StructType)]
            by_name = [{field.name.lower(): field for field in it.fields} for it in structs]
            fields = []
            for field in kind.fields:
                same = [it[field.name.lower()] for it in by_name if field.name.lower() in it]
                comments = [comment_of(it) for it in same]
                comment = next(filter(None, comments), None) if any_of else next(iter(comments), None)
                inner = _commented(field.dataType, [it.dataType for it in same], any_of=any_of)
                fields.append(t.StructField(field.name, inner, True, {"comment": comment} if comment else None))
            return t.StructType(fields)
        case t.ArrayType():
            elements = [it.elementType for it in known if isinstance(it, t.ArrayType)]
            return t.ArrayType(_commented(kind.elementType, elements, any_of=any_of), True)
        case t.MapType():
            maps = [it for it in known if isinstance(it, t.MapType)]
            key = _commented(kind.keyType, [it.keyType for it in maps], any_of=any_of)
            return t.MapType(key, _commented(kind.valueType, [it.valueType for it in maps], any_of=any_of), True)
    return kind


def comment_of(field: t.StructField) -> str | None:
    comment = (field.metadata or {}).get("comment")
    return comment if isinstance(comment, str) and comment else None


def quoted(column: str) -> str:
    """The name quoted for SQL, whatever characters it has."""
    return f"`{column.replace('`', '``')}`"


def plain_schema(schema: t.StructType) -> t.StructType:
    return t.StructType([nullable(field) for field in schema.fields])


def plain(kind: t.DataType) -> t.DataType:
    """The type with everything in it nullable, without metadata and lengths, as a read of Parquet returns it."""
    match kind:
        case t.StructType():
            return t.StructType([nullable(field) for field in kind.fields])
        case t.ArrayType():
            return t.ArrayType(plain(kind.elementType), True)
        case t.MapType():
            return t.MapType(plain(kind.keyType), plain(kind.valueType), True)
        case t.CharType() | t.VarcharType():
            return t.StringType()
        case _:
            return kind


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """The schema in Arrow's types: nullable, instants in UTC. Raises InvalidInputError for a type that Arrow lacks."""
    return columns.arrow_schema(json.loads(schema.json()), where="the columns that were asked for")


def arrow_type(kind: t.DataType) -> pa.DataType:
    found: pa.DataType = arrow_schema(t.StructType([t.StructField("value", kind)])).field(0).type
    return found


def variants_of(schema: t.StructType) -> dict[int, pa.DataType]:
    """By the position of each column with a variant: its type in Arrow, which Spark expects from Python."""
    return {i: arrow_type(it.dataType) for i, it in enumerate(schema.fields) if has_variant(it.dataType)}


def from_json(schema: Any, *, where: str) -> t.StructType:
    """The recorded schema of the table `where`. Raises InvalidInputError if this Spark does not know it."""
    try:
        if _loads_code(schema):
            raise ValueError("it names a class to load")
        return t.StructType.fromJson(dict(schema))
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError, PySparkException) as error:
        raise InvalidInputError(f"this Spark does not know the recorded schema of {where}: {error!r:.300}") from None


def _loads_code(part: Any) -> bool:
    """Whether Spark would import a module to load this part of a schema, as for a user-defined type."""
    if isinstance(part, Mapping):
        return "pyClass" in part or any(map(_loads_code, part.values()))
    return isinstance(part, list) and any(map(_loads_code, part))
