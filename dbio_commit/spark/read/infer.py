"""The columns of a table whose writers recorded none: inferred from the newest file and from directory names."""

from collections.abc import Iterable
from typing import BinaryIO

import pyarrow.parquet as pq
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.texts import Cause
from dbio_commit.data import columns
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.spark.session import schema as schemas
from dbio_commit.store import Store


def table_schema(store: Store, snapshot: Snapshot) -> t.StructType | None:
    """The columns of a table: recorded, or else inferred. None if none are recorded and the table is empty."""
    if snapshot.schema is not None:
        return schemas.from_json(snapshot.schema, where=snapshot.url)
    return infer_schema(store, snapshot)


def infer_schema(store: Store, snapshot: Snapshot) -> t.StructType | None:
    """The columns of the newest file, and the partition columns with the narrowest types that fit all their values."""
    if not snapshot.files:
        return None
    newest = max(snapshot.files, key=lambda file: (file.tid or "", file.path))
    with store.open_read(newest.path) as stream:
        data = _columns_of_file(stream, where=store.url_of(newest.path))
    partition = [
        t.StructField(column, _partition_type(file.partition.get(column) for file in snapshot.files))
        for column in snapshot.partition_columns
    ]
    lower = {column.lower() for column in snapshot.partition_columns}
    inside = [field for field in data.fields if field.name.lower() not in lower]
    return t.StructType([schemas.nullable(field) for field in (*inside, *partition)])


def _columns_of_file(stream: BinaryIO, *, where: str) -> t.StructType:
    try:
        return schemas.from_json(columns.told_columns(pq.ParquetFile(stream), where=where), where=where)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{where} cannot be read as Parquet: {error!s:.200}; run `dbio check` to find out more"
        ) from Cause.of(error)


def _partition_type(values: Iterable[str | None]) -> t.DataType:
    one = {"type": "struct", "fields": [columns.field("value", columns.narrowest(values))]}
    return t.StructType.fromJson(one).fields[0].dataType
