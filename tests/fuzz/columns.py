"""Schemas that somebody has recorded: Spark's JSON in a marker, and the footer of a Parquet file. No session."""

import io
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.infer import infer_schema
from dbio_commit.spark.session import schema as schemas
from dbio_commit.testing import MemoryStore
from tests.fuzz.bodies import SCHEMA
from tests.spark_columns import check_writable, map_columns

WHERE = "s3://bucket/t"
TEXT = t.StructType([t.StructField("id", t.StringType())])


def recorded(schema: Any) -> t.StructType | None:
    """Spark's types for the recorded JSON, or None where it was refused; what passes can be compared and shown."""
    try:
        found = schemas.from_json(schema, where=WHERE)
    except InvalidInputError as error:
        assert WHERE in str(error)
        assert len(str(error)) < 1000
        return None
    assert isinstance(found, t.StructType)
    schemas.plain(found)
    assert found.simpleString()
    with suppress(InvalidInputError):
        check_writable(found, ["day"])
        check_writable(found, [])
    for merge in (False, True):
        with suppress(InvalidInputError):
            map_columns(TEXT, partition_columns=[], table=found, merge=merge, where=WHERE)
    return found


def footer(file: bytes, partitions: Sequence[str] = ("day=1", "day=__HIVE_DEFAULT_PARTITION__")) -> t.StructType | None:
    """The columns that are inferred from a file in these partitions, or None where it was refused."""
    store = MemoryStore()
    files = [DataFile(f"{directory}/f.parquet", len(file), None, {"day": value}) for directory, value in
             ((directory, directory.partition("=")[2]) for directory in partitions)]  # fmt: skip
    for path, *_ in files:
        store.put(path, file, modified=datetime(2026, 11, 20, tzinfo=UTC))
    snapshot = Snapshot(
        url=store.url, scope=Scope.DIRECTORY, files=tuple(files), partition_columns=("day",), decided=()
    )
    try:
        found = infer_schema(store, snapshot)
    except InvalidInputError as error:
        assert store.url in str(error)
        return None
    assert found is not None
    assert found.fieldNames()[-1] == "day"
    return recorded(found.jsonValue())


def parquet(metadata: bytes | None = None) -> bytes:
    """A small file with many types, and Spark's record of its columns."""
    columns: dict[str, Any] = {
        "id": pa.array([1, None], pa.int64()),
        "u": pa.array([1, 2], pa.uint32()),
        "price": pa.array([None, None], pa.decimal128(20, 2)),
        "at": pa.array([0, 1], pa.timestamp("us", "UTC")),
        "on": pa.array([0, 1], pa.date32()),
        "tags": pa.array([["a"], []], pa.list_(pa.string())),
        "of": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
        "s": pa.array([{"a": 1}, None], pa.struct([("a", pa.int8())])),
        "raw": pa.array([b"x", b""], pa.binary()),
    }
    data = pa.table(columns)
    if metadata is not None:
        data = data.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": metadata})
    out = io.BytesIO()
    pq.write_table(data, out, compression="none", store_schema=metadata is None)
    return out.getvalue()


TYPES: list[Any] = [
    "string", "long", "integer", "short", "byte", "double", "float", "boolean", "binary", "date", "timestamp",
    "timestamp_ntz", "decimal", "decimal(10,2)", "decimal(38,38)", "decimal(39,0)", "decimal(1,2)", "decimal(-1,2)",
    "decimal(10,-2)", "decimal(" + "9" * 5000 + ",0)", "decimal(²,1)", "decimal( 1 , 1 )", "char(5)", "varchar(5)",
    "char(" + "9" * 5000 + ")", "char(0)", "varchar(-1)", "interval", "interval day to second", "interval year",
    "interval x to y", "void", "null", "variant", "udt", "struct", "array", "map", "object", "string collate UNICODE",
    "string collate x", "calendarinterval", "time", "time(6)", "time(99)", "geometry(4326)", "geography(4326, )", "",
    "geometry(any)", "geometry(" + "9" * 5000 + ")", "geography(OGC:CRS84, SPHERICAL)", "STRING", " string", "a" * 5000,
]  # fmt: skip
FIELDS: list[Any] = [*SCHEMA["fields"]]
