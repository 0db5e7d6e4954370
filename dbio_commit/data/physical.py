"""Finds in Parquet files what some reader of a table cannot read, or reads as something else. Pure.

The readers are Spark, dbio in Python, and those of published tables: delta-rs, Polars, DuckDB, Trino. Whether columns
fit a table is in `fitting`.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.data.variants import with_variants
from dbio_commit.protocol.types import MOST_DIGITS, TYPES

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_PLAIN = {"Map", "List"} | {logical for row in TYPES for logical in row.parquet}
"""Logical types that all readers have, in most of their forms."""

_AS_TEXT = "write it as a string"
_INSTEAD: Mapping[str, str] = {
    "Time": "write it as a string, or as a timestamp",
    "UUID": _AS_TEXT,
    "JSON": _AS_TEXT,
    "Enum": _AS_TEXT,
    "Float16": "write it as float32",
    "Interval": "write a number, such as its microseconds",
}

_INTERVAL = "write a number, such as its microseconds"
_UNSIGNED = "write it as int64, or as decimal128(20, 0)"
_MICROSECONDS = "write it in microseconds, as with pandas' and pyarrow's coerce_timestamps=\"us\""
_ONLY_NULLS = "give it the type that it has in the table, or leave it out"
_PLAIN_TYPE = "cast it to the plain type"
_IN_UTC = 'write it in UTC, as with pandas\' tz_convert("UTC")'
_OFFSET = re.compile(r"Z|(?:UTC?|GMT)?[+-]?[0-9:]+")
_NO_OFFSETS = {"+00:00", "GMT0", "GMT+0", "GMT-0"}
"""Names of zones that Polars knows."""
_POLARS_ENUM = b"_PL_ENUM_VALUES"
"""The beginning of the key in a field's metadata that makes Polars read the column as an Enum."""


def problems(file: "pq.ParquetFile") -> list[str]:
    """The problems in words: what some reader cannot read, or reads as something else. Each has the column, and what to
    write instead."""
    if not len(file.schema):
        return ["it has no columns, which Spark does not read: write the table's columns, even if there are no rows"]
    return [*_of_leaves(file), *_of_arrow(file), *_of_spark(file), *_of_names(file)]


def problem_of_name(name: str) -> str | None:
    """Why some reader cannot name a column or field; None if all can. DuckDB has no empty name, and names that pass
    through Arrow end at a zero character."""
    if not name:
        return "an empty name"
    return "a zero character in its name" if "\0" in name else None


def _of_leaves(file: "pq.ParquetFile") -> Iterator[str]:
    """Problems of Parquet's own types, which all readers see."""
    for leaf in map(file.schema.column, range(len(file.schema))):
        problem = _of_leaf(json.loads(leaf.logical_type.to_json()))
        if problem is not None:
            yield f"column {leaf.path!r:.200} {problem[0]}: {problem[1]}"


def _of_leaf(details: Mapping[str, Any]) -> tuple[str, str] | None:
    match details:
        case {"Type": "Timestamp", "timeUnit": "nanoseconds"}:
            return "is a timestamp in nanoseconds, which Spark does not read", _MICROSECONDS
        case {"Type": "Int", "bitWidth": 64, "isSigned": False}:
            return "is an unsigned number of 64 bits, which not all readers have", _UNSIGNED
        case {"Type": "Decimal", "precision": digits} if digits > MOST_DIGITS:
            return f"is a decimal of {digits} digits, and readers have {MOST_DIGITS}", _AS_TEXT
        case {"Type": "Null"}:
            return "holds only nulls, without a type, and Spark reads it as no other type", _ONLY_NULLS
        case {"Type": kind} if kind in _PLAIN:
            return None
    kind = str(details.get("Type"))
    return f"is of Parquet's type {kind}, which not all readers have", _INSTEAD.get(kind, "write another type")


def _of_arrow(file: "pq.ParquetFile") -> Iterator[str]:
    """Problems of the types that Arrow's writers record in the file. Other readers based on Arrow use them."""
    for column in _footer_schema(file):
        for path, field in _fields(column.name, column):
            if (why := _of_kind(field.type)) is not None:
                yield f"column {path!r:.200} is {field.type}, which {why[0]}: {why[1]}"
            if any(key.startswith(_POLARS_ENUM) for key in field.metadata or ()):
                yield f"column {path!r:.200} is Polars' Enum, which Polars does not take for text: cast it to String"


def _footer_schema(file: "pq.ParquetFile") -> "pa.Schema":
    """The schema that the writer recorded. The schema that pyarrow makes of it hides some types."""
    import pyarrow as pa

    if recorded := (file.metadata.metadata or {}).get(b"ARROW:schema"):
        with suppress(ValueError, OSError, pa.ArrowException):  # then no reader uses it
            return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(recorded)))
    return file.schema_arrow


def _of_kind(kind: Any) -> tuple[str, str] | None:
    import pyarrow.types as types

    if types.is_duration(kind) or types.is_interval(kind):
        return "other readers take for a plain number", _INTERVAL
    if types.is_date64(kind):
        return "Polars takes for instants", "write it as date32"
    if types.is_fixed_size_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return "Polars does not read as a list", "write it as a plain list"
    if types.is_dictionary(kind):
        inside = kind.value_type
        if types.is_decimal(inside) or types.is_boolean(inside) or types.is_fixed_size_binary(inside):
            return "delta-rs does not read", _PLAIN_TYPE
    if types.is_timestamp(kind) and kind.tz not in _NO_OFFSETS and _OFFSET.fullmatch(kind.tz or ""):
        return "has a zone that Polars does not know", _IN_UTC
    return None


def _of_spark(file: "pq.ParquetFile") -> Iterator[str]:
    """Problems of types that only Spark has: others read intervals as plain numbers, and variants as structs."""
    recorded = (file.metadata.metadata or {}).get(ROW_METADATA.encode(), b"")
    for kind in sorted(set(_SPARK_INTERVAL.findall(recorded))):
        yield f"a column is Spark's {kind.decode()}, which other readers take for a plain number: {_INTERVAL}"
    if _VARIANT.search(str(file.schema)) or (
        _SPARK_VARIANT.search(recorded) and not _has_plain_variants(file, recorded)
    ):
        yield (
            "a column is a variant that is not just a struct of the binaries value and metadata, such as Spark's own "
            f"writer makes, and not all readers read it: write it with dbio.write, or {_AS_TEXT}"
        )


def _has_plain_variants(file: "pq.ParquetFile", recorded: bytes) -> bool:
    from dbio_commit.data.columns import file_schema, spark_schema

    try:
        schema = file_schema(file)
        with_variants(spark_schema(schema, where="it"), schema, recorded)
    except (ValueError, InvalidInputError):
        return False
    return True


_SPARK_INTERVAL = re.compile(rb'"(?:type|elementType|keyType|valueType)":"(interval [a-z ]{1,40})"')
_SPARK_VARIANT = re.compile(rb'"(?:type|elementType|keyType|valueType)":"variant"')
_VARIANT = re.compile(r" \(Variant(?:\(\d+\))?\) \{$", re.MULTILINE)


def _fields(path: str, field: Any) -> Iterator[tuple[str, Any]]:
    """The field and all fields inside it. The values of a dictionary count as a field with the same path."""
    import pyarrow as pa
    import pyarrow.types as types

    yield path, field
    kind = field.type
    if types.is_map(kind):
        yield from _fields(f"{path}.key", kind.key_field)
        yield from _fields(f"{path}.value", kind.item_field)
    elif types.is_struct(kind):
        for inside in kind:
            yield from _fields(f"{path}.{inside.name}", inside)
    elif types.is_dictionary(kind):
        yield from _fields(path, pa.field(field.name, kind.value_type))
    elif types.is_nested(kind) and kind.num_fields == 1:
        yield from _fields(f"{path}.element", kind.field(0))


def _of_names(file: "pq.ParquetFile") -> Iterator[str]:
    """Names that differ only in case, which are one name to some readers; and names that some readers do not have."""
    import pyarrow.types as types

    above = [("the file", list(file.schema_arrow))]
    for column in file.schema_arrow:
        structs = ((path, field.type) for path, field in _fields(column.name, column) if types.is_struct(field.type))
        above += ((f"column {path!r:.200}", list(kind)) for path, kind in structs)
    for where, fields in above:
        seen: dict[str, str] = {}
        for name in (field.name for field in fields):
            if name.lower() in seen:
                yield f"{where} has {seen[name.lower()]!r:.100} and {name!r:.100}, which are one to Spark: rename one"
            seen[name.lower()] = name
            if why := problem_of_name(name):
                yield f"{where} has {name!r:.100}, with {why}, and not all readers can name it: rename it"
