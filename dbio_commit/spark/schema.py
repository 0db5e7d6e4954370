"""Columns: which Spark schemas can be written, and how a DataFrame's columns map to a table's. No I/O, no session.

Parquet itself is in `arrow` and `task`. A table's schema is recorded with every column nullable, data columns first and
partition columns last, as Spark gives it back when it reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import types as t

from dbio_commit.errors import InvalidInputError, SchemaMismatchError

_ATOMIC: tuple[type[t.DataType], ...] = (
    t.BooleanType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.FloatType,
    t.DoubleType,
    t.DecimalType,
    t.StringType,
    t.BinaryType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)
_PARTITION: tuple[type[t.DataType], ...] = (
    t.BooleanType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.DecimalType,
    t.StringType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a DataFrame's columns become a table's."""

    columns: tuple[tuple[int, str], ...]
    """For each column of the table: the DataFrame's column at this position, and the table's name for it."""
    schema: t.StructType
    """The table's columns after the write: nullable, partition columns last."""
    partition_columns: tuple[str, ...]

    @property
    def data_schema(self) -> t.StructType:
        """What is in the files: all but the partition columns."""
        return t.StructType([field for field in self.schema.fields if field.name not in self.partition_columns])


def check_writable(schema: t.StructType, partition_by: Sequence[str]) -> None:
    """Raises InvalidInputError for whatever Parquet files in partition directories would not give back equal."""
    by_name: dict[str, t.StructField] = {}
    for field in schema.fields:
        if field.name.lower() in by_name:
            raise InvalidInputError(
                f"two columns are named {field.name!r} (case makes no difference to Spark); rename one of them"
            )
        by_name[field.name.lower()] = field
        _check_type(field.dataType, field.name)
    for column in partition_by:
        partition = by_name.get(column.lower())
        if partition is None:
            raise InvalidInputError(f"partition column {column!r} is none of the columns {schema.fieldNames()}")
        if not isinstance(partition.dataType, _PARTITION):
            raise InvalidInputError(
                f"partition column {column!r} is {partition.dataType.simpleString()}, which a directory name does not "
                "give back equal; partition by string, integer, boolean, decimal, date or timestamp"
            )
    if len(partition_by) >= len(schema.fields):
        raise InvalidInputError(f"no column is left for the files: {schema.fieldNames()} are all partition columns")


def respell(columns: Sequence[str], schema: t.StructType) -> tuple[str, ...]:
    """The columns as the schema, which has them, spells them."""
    spelling = {field.name.lower(): field.name for field in schema.fields}
    return tuple(spelling[column.lower()] for column in columns)


def _check_type(kind: t.DataType, where: str) -> None:
    match kind:
        case t.StructType():
            if not kind.fields:
                raise InvalidInputError(f"{where!r} is a struct without fields, which Parquet cannot hold; drop it")
            if len({field.name.lower() for field in kind.fields}) < len(kind.fields):
                raise InvalidInputError(f"two fields of {where!r} have the same name; rename one of them")
            for field in kind.fields:
                _check_type(field.dataType, f"{where}.{field.name}")
        case t.ArrayType():
            _check_type(kind.elementType, f"{where}.element")
        case t.MapType():
            _check_type(kind.keyType, f"{where}.key")
            _check_type(kind.valueType, f"{where}.value")
        case _:
            if not isinstance(kind, _ATOMIC) or _has_collation(kind):
                raise InvalidInputError(
                    f"column {where!r} is {kind.simpleString()}, which would not come back equal from Parquet; "
                    "cast it to a type that does, such as string, bigint or a struct"
                )


def _has_collation(kind: t.DataType) -> bool:
    return getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"


def layout(
    schema: t.StructType,
    *,
    partition_columns: Sequence[str],
    table: t.StructType | None,
    merge: bool,
    where: str,
) -> Layout:
    """The layout of a write. `table` is the schema to fit, None where the write sets its own; `where` the table's URL.

    Columns are matched by name without regard to case and take the table's spelling and order. Raises
    SchemaMismatchError, with both schemas, for missing, extra (unless `merge`) or differently typed columns.
    """
    position = {field.name.lower(): i for i, field in enumerate(schema.fields)}
    if table is None:
        own = {column.lower(): column for column in partition_columns}  # as the directories are named already
        renamed = (t.StructField(own.get(f.name.lower(), f.name), f.dataType) for f in schema.fields)
        fields = {field.name: nullable(field) for field in renamed}
    else:
        fields = {field.name: nullable(field) for field in table.fields}
        known = {name.lower() for name in fields}
        extra = [field for field in schema.fields if field.name.lower() not in known]
        problems = [*_mismatches(schema, table), *(() if merge else (f"{f.name} is not in the table" for f in extra))]
        if problems:
            raise SchemaMismatchError(
                _describe(schema, table, problems, where=where, only_extra=not _mismatches(schema, table))
            )
        fields |= {field.name: nullable(field) for field in extra}
    ordered = [name for name in fields if name not in partition_columns] + list(partition_columns)
    return Layout(
        columns=tuple((position[name.lower()], name) for name in ordered),
        schema=t.StructType([fields[name] for name in ordered]),
        partition_columns=tuple(partition_columns),
    )


def _mismatches(schema: t.StructType, table: t.StructType) -> list[str]:
    given = {field.name.lower(): field for field in schema.fields}
    found: list[str] = []
    for field in table.fields:
        match = given.get(field.name.lower())
        if match is None:
            found.append(f"{field.name} is missing")
        elif plain(match.dataType) != plain(field.dataType):
            found.append(f"{field.name} is {match.dataType.simpleString()}, not {field.dataType.simpleString()}")
    return found


def _describe(
    schema: t.StructType, table: t.StructType, problems: Sequence[str], *, where: str, only_extra: bool
) -> str:
    advice = "pass merge_schema=True to add columns" if only_extra else "cast or select to fit"
    return (
        f"the data does not fit the table {where}: {'; '.join(problems)}. Nothing was written: {advice}.\n"
        f"  table: {table.simpleString()}\n   data: {schema.simpleString()}"
    )


def nullable(field: t.StructField) -> t.StructField:
    """The field as the table records it: everything read from a file may be null."""
    return t.StructField(field.name, plain(field.dataType), True)


def plain(kind: t.DataType) -> t.DataType:
    """The type with everything in it nullable and without metadata: what a Parquet file gives back."""
    match kind:
        case t.StructType():
            return t.StructType([nullable(field) for field in kind.fields])
        case t.ArrayType():
            return t.ArrayType(plain(kind.elementType), True)
        case t.MapType():
            return t.MapType(plain(kind.keyType), plain(kind.valueType), True)
        case _:
            return kind


def from_json(schema: Any, *, where: str) -> t.StructType:
    """The schema that `where` records. Raises InvalidInputError for one that this Spark does not know."""
    try:
        if _loads_code(schema):
            raise ValueError("it names a class to load")
        return t.StructType.fromJson(dict(schema))
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError, PySparkException) as error:
        raise InvalidInputError(
            f"the recorded schema of {where} is none that this Spark knows: {error!r:.300}"
        ) from None


def _loads_code(part: Any) -> bool:
    """Whether Spark would import a module to make sense of this part of a schema: that of a user-defined type."""
    if isinstance(part, Mapping):
        return "pyClass" in part or any(map(_loads_code, part.values()))
    return isinstance(part, list) and any(map(_loads_code, part))
