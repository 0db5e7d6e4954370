"""Converts Spark schemas to JSON and to Arrow, and compares their types. No I/O, no session.

Which schemas can be written, and how columns map to those of a table, is in `data/mapping`, on Spark's JSON.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data import columns, mapping
from dbio_commit.protocol.types import Type, type_of


def to_json(schema: t.StructType) -> mapping.Schema:
    """The schema as Spark's JSON. Texts with a collation have a type of their own, which cannot be written."""
    found: mapping.Schema = _to_json(schema)
    return found


def _to_json(kind: t.DataType) -> Any:
    match kind:
        case t.StructType():
            return {"type": "struct", "fields": [_field_to_json(field) for field in kind.fields]}
        case t.ArrayType():
            element = _to_json(kind.elementType)
            return {"type": "array", "elementType": element, "containsNull": kind.containsNull}
        case t.MapType():
            key, value = _to_json(kind.keyType), _to_json(kind.valueType)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": kind.valueContainsNull}
        case t.UserDefinedType():
            return "udt"  # without the class, which would have to be imported
    return kind.simpleString() if getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY" else kind.jsonValue()


def _field_to_json(field: t.StructField) -> Mapping[str, Any]:
    kind = _to_json(field.dataType)
    return {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": field.metadata or {}}


def _of_json(kind: Any) -> t.DataType:
    found: t.DataType = t.StructType.fromJson({"fields": [columns.field("value", kind)]}).fields[0].dataType
    return found


def row_of(kind: t.DataType) -> Type | None:
    """The row of a Spark type in `protocol.types`; None for a nested or unknown type."""
    return None if isinstance(kind, t.UserDefinedType) else type_of(kind.jsonValue())


def merged(data: t.DataType, table: t.DataType, *, merge: bool, widen: bool) -> t.DataType | None:
    """`mapping.merged` for PySpark's types."""
    if plain(data) == plain(table):
        return plain(table)
    found = mapping.merged(_to_json(data), _to_json(table), merge=merge, widen=widen)
    return None if found is None else _of_json(found)


def has_variant(kind: t.DataType) -> bool:
    """Whether the type, or a type inside it, is a variant."""
    return mapping.has_variant(_to_json(kind))


def nullable(field: t.StructField) -> t.StructField:
    """The field as the table records it: nullable, since a read may find null."""
    return t.StructField(field.name, plain(field.dataType), True)


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
