"""`data/mapping` for PySpark's types, in which its tests are shorter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as t

from dbio_commit.data import mapping
from dbio_commit.spark.session.schema import from_json, to_json


@dataclass(frozen=True)
class Layout:
    """`mapping.ColumnMapping` with PySpark's types."""

    columns: tuple[tuple[int | None, str], ...]
    schema: t.StructType
    partition_columns: tuple[str, ...]
    casts: tuple[str, ...]
    data_schema: t.StructType


def map_columns(
    schema: t.StructType, *, table: t.StructType | None, replaced: t.StructType | None = None, **options: Any
) -> Layout:
    own, others = _or_none(table), _or_none(replaced)
    found = mapping.map_columns(to_json(schema), table=own, replaced=others, **options)
    kinds = [from_json(it, where="it") for it in (found.schema, found.data_schema)]
    return Layout(found.columns, kinds[0], found.partition_columns, found.casts, kinds[1])


def check_writable(schema: t.StructType, partition_by: Sequence[str], *, allow_void: bool = False) -> None:
    mapping.check_writable(to_json(schema), partition_by, allow_void=allow_void)


def with_comments(schema: t.StructType, given: t.StructType, own: t.StructType | None, *, new: bool) -> t.StructType:
    return from_json(mapping.with_comments(to_json(schema), to_json(given), _or_none(own), new=new), where="it")


def _or_none(schema: t.StructType | None) -> mapping.Schema | None:
    return None if schema is None else to_json(schema)
