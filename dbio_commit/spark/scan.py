"""A snapshot as a DataFrame: through Spark's own Parquet reader, or through Python workers where Spark cannot reach it.

Spark is handed the exact files (in the form in which its own file sink lists them), so it lists nothing of the table.
"""

import atexit
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from dbio_commit.conform import conform
from dbio_commit.errors import InvalidInputError
from dbio_commit.snapshot import Scope, Snapshot
from dbio_commit.spark import arrow
from dbio_commit.spark.infer import table_schema
from dbio_commit.spark.session import native_root, parallelism
from dbio_commit.state import DataFile
from dbio_commit.table import Table

_WHOLE_BYTES = 64 * 1024 * 1024
_BATCH_ROWS = 64 * 1024


def scan(spark: SparkSession, table: Table, snapshot: Snapshot) -> DataFrame:
    """The rows of the snapshot's files. Raises InvalidInputError where nothing says what the columns are."""
    if not snapshot.files:
        return spark.createDataFrame([], _known(table_schema(table.store, snapshot), snapshot))
    root = _native_root(spark, table, snapshot)
    if root is None:
        return _scan_in_workers(spark, table, snapshot, _known(table_schema(table.store, snapshot), snapshot))
    # Where no writer recorded the columns, Spark infers them, as it does for everybody else.
    return _scan_natively(spark, root, snapshot, table_schema(table.store, snapshot) if snapshot.schema else None)


def _native_root(spark: SparkSession, table: Table, snapshot: Snapshot) -> str | None:
    if table.location is None:
        return None
    account = table.storage_options.get("account_name")
    return native_root(spark, table.location, account=account, file=snapshot.files[0].path)


def _known(schema: StructType | None, snapshot: Snapshot) -> StructType:
    if schema is None:
        raise InvalidInputError(
            f"{snapshot.url} holds no files and no recorded columns: write to it first, or read a later one"
        )
    return schema


# --- Spark's own reader -------------------------------------------------------------------------------------------


def _scan_natively(spark: SparkSession, root: str, snapshot: Snapshot, schema: StructType | None) -> DataFrame:
    reader = spark.read
    if schema is not None:
        reader = reader.schema(schema)
    if snapshot.scope is Scope.TABLE:
        reader = reader.option("timeZone", "UTC")  # in which our timestamp partitions are named
    directory = Path(tempfile.mkdtemp(prefix="dbio-manifest-"))
    connect = not hasattr(spark, "_jsparkSession")
    try:
        write_manifest(directory, root, snapshot.files)
        flat = str(not snapshot.partition_columns).lower()  # or Spark finds no rows in a table without partitions
        frame = reader.option("recursiveFileLookup", flat).parquet(directory.as_uri())
        columns = frame.columns  # over Connect, asking for them is what looks for the manifest
    except AnalysisException as error:
        if not connect or error.getCondition() != "PATH_NOT_FOUND":
            raise
        # The server of this session is on another machine. It then looks at every file once, and expands patterns.
        snapshot.refuse_patterns()
        frame = reader.option("basePath", root).parquet(*(f"{root}/{file.path}" for file in snapshot.files))
        columns = frame.columns
    finally:
        if connect:
            atexit.register(shutil.rmtree, directory, ignore_errors=True)  # every action plans, and reads it, anew
        else:
            shutil.rmtree(directory)
    expected = schema.fieldNames() if schema else columns
    return frame if columns == expected else frame.select(*(_quoted(column) for column in expected))


def write_manifest(directory: Path, root: str, files: Iterable[DataFile]) -> None:
    """The list of files that Spark's file sink leaves in its output, and its reader takes instead of a listing."""
    parent = quote(root, safe=":/@")
    lines = ["v1"]
    for path, size, *_ in files:
        name = path if _NEEDS_NO_QUOTES(path) else quote(path, safe="/=")
        lines.append(
            f'{{"path":"{parent}/{name}","size":{size},"isDir":false,"modificationTime":0,"blockReplication":1,'
            '"blockSize":134217728,"action":"add"}'
        )
    (directory / "_spark_metadata").mkdir()
    (directory / "_spark_metadata" / "0").write_text("\n".join(lines))


_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9/=._-]*").fullmatch


def _quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


# --- Python workers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpec:
    """What a worker needs to read files of a table."""

    path: str
    storage_options: Mapping[str, Any] = field(repr=False)  # secrets
    schema: StructType
    partition_columns: tuple[str, ...]


def read_files(spec: ReadSpec, files: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    """The rows of the files, with the table's columns: in its order, absent ones null, partition columns filled in."""
    store = Table(spec.path, spec.storage_options).store
    target = arrow.plain_schema(to_arrow_schema(spec.schema, timezone="UTC"))
    columns = {name.lower() for name in target.names} - {name.lower() for name in spec.partition_columns}
    for file in files:
        small = file.size <= _WHOLE_BYTES
        source = pa.BufferReader(store.get(file.path)) if small else store.open_read(file.path)
        with source:
            parquet = pq.ParquetFile(source)
            wanted = [name for name in parquet.schema_arrow.names if name.lower() in columns]
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=wanted):
                yield conform(batch, target, partition=file.partition, where=store.url_of(file.path))


def _scan_in_workers(spark: SparkSession, table: Table, snapshot: Snapshot, schema: StructType) -> DataFrame:
    spec = read_spec(table, snapshot, schema)
    groups = group_files(snapshot.files, parallelism(spark))
    rows = [(json.dumps([list(file) for file in group]),) for group in groups]
    listed = spark.createDataFrame(rows, "files string").repartition(len(groups))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from read_files(spec, [DataFile(*values) for values in json.loads(text or "[]")])

    return listed.mapInArrow(read, schema)


def read_spec(table: Table, snapshot: Snapshot, schema: StructType) -> ReadSpec:
    return ReadSpec(
        path=table.url,
        storage_options=table.storage_options,
        schema=schema,
        partition_columns=snapshot.partition_columns,
    )


def group_files(files: Sequence[DataFile], groups: int) -> list[list[DataFile]]:
    """The files in so many groups (at most) of about the same size, the largest files first."""
    found: list[list[DataFile]] = [[] for _ in range(max(1, min(groups, len(files))))]
    sizes = [0] * len(found)
    for file in sorted(files, key=lambda file: -file.size):
        smallest = sizes.index(min(sizes))
        found[smallest].append(file)
        sizes[smallest] += file.size
    return found
