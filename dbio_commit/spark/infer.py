"""The columns of a table whose writers recorded none: from the footer of a file, and from directory names."""

import json
from collections.abc import Iterable
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

from dbio_commit.data import columns
from dbio_commit.data.footers import ROW_METADATA
from dbio_commit.errors import InvalidInputError
from dbio_commit.protocol.column_metadata import keep_known
from dbio_commit.snapshot import Snapshot
from dbio_commit.spark import arrow
from dbio_commit.spark import schema as schemas
from dbio_commit.store import Store
from dbio_commit.texts import Cause


def table_schema(store: Store, snapshot: Snapshot) -> t.StructType | None:
    """The columns of a table: those that its writers recorded, or inferred; None for an empty table without any."""
    if snapshot.schema is not None:
        return schemas.from_json(snapshot.schema, where=snapshot.url)
    return infer_schema(store, snapshot)


def infer_schema(store: Store, snapshot: Snapshot) -> t.StructType | None:
    """The columns of the newest file, and the partition columns with the narrowest type that holds all values."""
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
        footer = columns.file_schema(pq.ParquetFile(stream))
        recorded = (footer.metadata or {}).get(ROW_METADATA.encode())
        if recorded is not None:
            return schemas.from_json(keep_known(json.loads(recorded)), where=where)
        signed = pa.schema([_signed(field) for field in arrow.plain_schema(footer)])
        return from_arrow_schema(signed, prefer_timestamp_ntz=True)  # the default from Spark 4.2 on
    except (OSError, ValueError, RecursionError, PySparkException) as error:
        raise InvalidInputError(
            f"{where} cannot be read as Parquet: {error!s:.200}; `dbio check` looks further"
        ) from Cause.of(error)


_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def _signed(field: Any) -> Any:
    """The column as Spark reads it: it has no unsigned numbers."""
    return field.with_type(_SIGNED.get(field.type, field.type))


def _partition_type(values: Iterable[str | None]) -> t.DataType:
    one = {"type": "struct", "fields": [columns.field("value", columns.narrowest(values))]}
    return t.StructType.fromJson(one).fields[0].dataType
