"""Converts schemas of Arrow to Spark's JSON and back, without Spark. Pure.

`spark/session/schema` decides which Spark schemas can be written. `conform` converts a file's columns to the table's.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as types

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.data.variants import has_variants, with_variants
from dbio_commit.protocol.column_metadata import keep_known
from dbio_commit.protocol.types import MOST_DIGITS, TYPES, Family, Type, type_of

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def _arrow(row: Type, kind: str) -> Any:
    """Arrow's type for a row of the table of types. A decimal's parameters are those of `kind`."""
    constructor, *arguments = row.arrow
    if row.arrow_fields:
        return pa.struct([_part(*part) for part in row.arrow_fields])
    digits = re.findall(r"-?\d+", kind) if row.family is Family.DECIMAL else ()
    return getattr(pa, constructor)(*arguments, *map(int, digits))


def _part(name: str, kind: str) -> Any:
    """A field of a variant, with the mark by which Spark knows a variant in Arrow."""
    mark = {b"variant": b"true"} if name == "metadata" else None
    return pa.field(name, getattr(pa, kind)(), nullable=False, metadata=mark)


_OWN: Mapping[pa.DataType, str] = {
    _arrow(row, row.name): row.name for row in TYPES if not (row.parameters or row.arrow_fields)
}
_ALSO: Mapping[pa.DataType, str] = {
    **{getattr(pa, other)(): row.name for row in TYPES if not row.parameters for other in row.arrow_also},
    pa.uint64(): "decimal(20,0)",  # Spark has no unsigned numbers
}


def arrow_schema(schema: Mapping[str, Any], *, where: str) -> pa.Schema:
    """Spark's JSON as an Arrow schema, instants in UTC. Raises InvalidInputError if it is no such schema."""
    try:
        return pa.schema([pa.field(field["name"], arrow_type(field["type"])) for field in schema["fields"]])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"the recorded schema of {where} cannot be converted to Arrow: {error!r:.300}"
        ) from None


def arrow_type(kind: Any) -> Any:
    """Arrow's type for one type of Spark's JSON. Raises ValueError, KeyError or TypeError if it is no such type."""
    match kind:
        case {"type": "struct", "fields": [*fields]}:
            return pa.struct([pa.field(field["name"], arrow_type(field["type"])) for field in fields])
        case {"type": "array", "elementType": element}:
            return pa.list_(pa.field("element", arrow_type(element)))
        case {"type": "map", "keyType": key, "valueType": value}:
            return pa.map_(arrow_type(key), arrow_type(value))
        case str() if row := type_of(kind):
            return _arrow(row, kind)
    raise ValueError(f"unknown type {kind!r:.100}")


def file_schema(file: "pq.ParquetFile") -> pa.Schema:
    """The columns of a file as Spark reads them: INT96 columns are instants, which have no time zone in Arrow."""
    parquet, schema = file.schema, file.schema_arrow
    old = [parquet.column(leaf).physical_type == "INT96" for leaf in range(len(parquet))]
    if not any(old):
        return schema
    leaves = iter(old)
    for number, column in enumerate(schema):
        schema = schema.set(number, column.with_type(_with_instants(column.type, leaves)))
    return schema


def _with_instants(kind: Any, leaves: Iterator[bool]) -> Any:
    """The type with instants for INT96. `leaves` yields, for each leaf column that follows in the file, whether it is
    INT96."""
    if types.is_map(kind):
        key = _with_instants(kind.key_type, leaves)
        return pa.map_(key, _with_instants(kind.item_type, leaves))
    if types.is_struct(kind):
        return pa.struct([inside.with_type(_with_instants(inside.type, leaves)) for inside in kind])
    if types.is_nested(kind):
        return pa.list_(kind.field(0).with_type(_with_instants(kind.field(0).type, leaves)))
    return pa.timestamp("us", "UTC") if next(leaves, False) else kind


def spark_schema(schema: pa.Schema, *, where: str) -> dict[str, Any]:
    """An Arrow schema as Spark's JSON, all columns nullable. Raises InvalidInputError for types that Spark does not
    have."""
    return {"type": "struct", "fields": [field(it.name, _spark_type(it.type, it.name, where)) for it in schema]}


def type_name(kind: pa.DataType) -> str:
    """Spark's name of an Arrow type that is not nested. Raises ValueError for a type that Spark does not have."""
    try:
        return str(_spark_type(kind, "", ""))
    except InvalidInputError:
        raise ValueError(f"{kind} is no type of Spark's") from None


def own_name(kind: Any) -> str | None:
    """The type in Spark's JSON whose values this type of Arrow holds as they are; None for all other types."""
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_timestamp(kind) and kind.tz and kind.unit == "us":
        return "timestamp"  # the values do not depend on the zone
    return _OWN.get(kind)


def footer_columns(file: "pq.ParquetFile", *, where: str) -> dict[str, Any]:
    """The columns of a file as Spark's JSON: as Spark recorded them in the file, or else by the types of Parquet.

    Raises InvalidInputError if the recorded text is no schema, and for types that Spark or Arrow does not have.
    """
    text = (file.metadata.metadata or {}).get(ROW_METADATA.encode())
    if text is None:
        return spark_schema(file_schema(file), where=where)
    try:
        recorded: dict[str, Any] = keep_known(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the schema that Spark recorded in {where} cannot be read: {error!s:.200}") from None
    arrow_schema(recorded, where=where)
    refuse_variants(file, where=where)
    return recorded


def refuse_variants(file: "pq.ParquetFile", *, where: str) -> None:
    """Raises InvalidInputError if Spark has written variants of which parts are in other columns than `value`."""
    recorded = (file.metadata.metadata or {}).get(ROW_METADATA.encode())
    if has_variants(recorded):
        try:
            schema = file_schema(file)
            with_variants(spark_schema(schema, where=where), schema, recorded)
        except ValueError as error:
            raise InvalidInputError(
                f"{where}: {error}, as Spark's own writer makes them, and only Spark reads such files: write variants "
                "with dbio.write, or as texts by to_json"
            ) from None


def field(name: str, kind: Any) -> dict[str, Any]:
    """A nullable column in Spark's JSON."""
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def is_list(kind: Any) -> bool:
    """Whether it is any of Arrow's types of lists."""
    return any(
        is_kind(kind)
        for is_kind in (
            types.is_list,
            types.is_large_list,
            types.is_list_view,
            types.is_large_list_view,
            types.is_fixed_size_list,
        )
    )


def _spark_type(kind: Any, column: str, where: str) -> Any:
    if types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision <= MOST_DIGITS:
        raise InvalidInputError(
            f"column {column!r} of {where} is decimal({kind.precision},{kind.scale}), and Spark's decimals have at "
            f"most {MOST_DIGITS} digits, of which 0 or more are behind the point; write another type"
        )
    if name := own_name(kind) or _ALSO.get(kind):
        return name
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_dictionary(kind):
        return _spark_type(kind.value_type, column, where)
    if types.is_struct(kind):
        return {"type": "struct", "fields": [field(it.name, _spark_type(it.type, column, where)) for it in kind]}
    if types.is_map(kind):
        key, value = (_spark_type(it, column, where) for it in (kind.key_type, kind.item_type))
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if is_list(kind):
        return {"type": "array", "elementType": _spark_type(kind.field(0).type, column, where), "containsNull": True}
    if types.is_fixed_size_binary(kind):
        return "binary"
    raise InvalidInputError(f"column {column!r} of {where} is {kind}, which Spark has no type for; write another type")


# --- partition columns --------------------------------------------------------------------------------------------


def narrowest(values: Iterable[str | None]) -> str:
    """The type, in Spark's JSON, that Spark infers for a partition column from the names of its directories."""
    kinds = {_kind(value) for value in values if value is not None}
    for narrow, wide in _WIDER:
        if wide in kinds and kinds <= {narrow, wide}:
            return wide
    return kinds.pop() if len(kinds) == 1 else "string"


_WIDER = (("integer", "long"), ("integer", "double"), ("date", "timestamp"))


def _kind(text: str) -> str:
    if re.fullmatch(r"[+-]?[0-9]{1,38}", text):
        number = int(text)
        if -(2**31) <= number < 2**31:
            return "integer"
        return "long" if -(2**63) <= number < 2**63 else f"decimal({len(str(abs(number)))},0)"
    if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", text):
        return "double"
    for grammar, parse, kind in _TIMES:
        if grammar.fullmatch(text):
            with suppress(ValueError):  # 30 February
                parse(text)
                return kind
    return "string"


_TIMES: tuple[tuple[re.Pattern[str], Callable[[str], object], str], ...] = (
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), date.fromisoformat, "date"),
    (
        re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"),
        datetime.fromisoformat,
        "timestamp",
    ),
)
