"""The columns of a table whose writers recorded none: from the footer of a file, and from directory names."""

import re
from collections.abc import Iterable

import pyarrow.parquet as pq
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

from dbio_commit.errors import InvalidInputError
from dbio_commit.snapshot import Snapshot
from dbio_commit.spark import schema as schemas
from dbio_commit.store import Store

_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"


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
        try:
            footer = pq.ParquetFile(stream).schema_arrow
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"{store.url_of(newest.path)} cannot be read as Parquet: {error!s:.200}; `dbio check` looks further"
            ) from error
    recorded = (footer.metadata or {}).get(_ROW_METADATA)
    data = t.StructType.fromJson(_json(recorded)) if recorded else from_arrow_schema(footer)
    partition = [
        t.StructField(column, _narrowest(file.partition.get(column) for file in snapshot.files))
        for column in snapshot.partition_columns
    ]
    inside = [field for field in data.fields if field.name not in snapshot.partition_columns]
    return t.StructType([schemas.nullable(field) for field in (*inside, *partition)])


def _json(text: bytes) -> dict[str, object]:
    import json

    parsed: dict[str, object] = json.loads(text)
    return parsed


_NARROWEST: tuple[tuple[re.Pattern[str], t.DataType], ...] = (
    (re.compile(r"-?[0-9]{1,9}"), t.IntegerType()),
    (re.compile(r"-?[0-9]{1,18}"), t.LongType()),
    (re.compile(r"-?[0-9]+(\.[0-9]+)?"), t.DoubleType()),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), t.DateType()),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"), t.TimestampType()),
)


def _narrowest(values: Iterable[str | None]) -> t.DataType:
    """As Spark infers the type of a partition column from its directories."""
    present = {value for value in values if value is not None}
    for grammar, kind in _NARROWEST if present else ():
        if all(map(grammar.fullmatch, present)):
            return kind
    return t.StringType()
