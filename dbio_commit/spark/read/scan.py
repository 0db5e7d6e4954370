"""Reads a snapshot as a DataFrame: by Spark's own Parquet reader, or by Python workers if Spark cannot reach the store.

Spark gets the exact list of files, so that it lists no directory of the table.
"""

import atexit
import heapq
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.types import StructType

from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError
from dbio_commit.base.logs import get_logger
from dbio_commit.data.arrow import fitted
from dbio_commit.data.rows import naming_vacuum, open_file, open_parquet, read_rows
from dbio_commit.log.found_columns import no_columns
from dbio_commit.log.listing import with_sizes
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish.sink_log import encode_list
from dbio_commit.protocol import names
from dbio_commit.protocol.column_metadata import keep_known
from dbio_commit.protocol.partitions import partition_types, refuse_unread
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import DataFile, FilesInParts, LiveFiles, total_size
from dbio_commit.spark.read.file_index import is_case_sensitive, read_by_index, takes_index
from dbio_commit.spark.read.infer import table_schema
from dbio_commit.spark.read.states import mark
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.session.conf import is_connect, native_root, parallelism
from dbio_commit.spark.session.worker import ForWorkers, spare_imports
from dbio_commit.spark.versions import error_condition
from dbio_commit.table import Table

_logger = get_logger(__name__)


def scan(
    spark: SparkSession, table: Table, snapshot: Snapshot, *, where: str | None = None, is_now: bool = False
) -> DataFrame:
    """The rows of the snapshot's files, or those for which the condition `where` is true.

    `is_now`: the caller has asked for the current state. A write of these rows into the same table is then refused if
    the table has changed since. Raises InvalidInputError if the columns are neither recorded nor can be inferred.
    """
    if where is not None:
        check_condition(where)
    rows = _scan(spark, table, snapshot if where is None else prune(spark, snapshot, where))
    if is_now and snapshot.scope is Scope.TABLE:  # other directories do not record what was committed since
        mark(spark, rows, snapshot)
    return rows if where is None else _filtered(rows, where)


def _filtered(rows: DataFrame, where: str) -> DataFrame:
    """The rows for which the condition is true."""
    from dbio_commit.spark.sql.conditions import uses_only  # imports a parser of SQL, which workers do not need

    floats = {field.name for field in rows.schema.fields if _holds_floats(field.dataType)}
    if uses_only(where, [name for name in rows.columns if name not in floats], floats):
        return rows.where(where)
    return whole(rows).where(where)


def whole(rows: DataFrame) -> DataFrame:
    """The same rows, with columns of floats hidden from the filters of Spark's Parquet reader.

    The reader skips row groups by their dictionaries and bounds. It then also skips rows with -0.0 or NaN that satisfy
    the condition in Spark, where -0.0 equals 0.0 and NaN is the greatest value. So columns of floats are wrapped in a
    function here. Spark does not push conditions on the function to the reader, not even those that it infers for a
    join. Filters on other columns are pushed as usual.
    """
    fields = rows.schema.fields
    if not any(_holds_floats(field.dataType) for field in fields):
        return rows
    return rows.select(*map(_opaque, fields))


def _holds_floats(kind: t.DataType) -> bool:
    """Whether Spark may push conditions on floats of the column to its reader. It pushes none on arrays and maps."""
    if isinstance(kind, t.StructType):
        return any(_holds_floats(field.dataType) for field in kind.fields)
    return isinstance(kind, t.FloatType | t.DoubleType) or kind.typeName() == "variant"


def _opaque(field: t.StructField) -> Column:
    """The column, or if it holds floats, the same values as the result of a function."""
    value = f.col(schemas.quoted(field.name))
    if not _holds_floats(field.dataType):
        return value
    is_float = isinstance(field.dataType, t.FloatType | t.DoubleType)
    same = f.nanvl(value, value) if is_float else f.element_at(f.array(value), 1)
    return same.alias(field.name, metadata=field.metadata)


def check_condition(where: str) -> None:
    """Raises InvalidInputError if the condition is not a text."""
    if not isinstance(where, str) or not where.strip():
        raise InvalidInputError(f'where={where!r:.200} is no condition; give it as text in Spark SQL, such as "id > 5"')


def prune(spark: SparkSession, snapshot: Snapshot, where: str) -> Snapshot:
    """The snapshot without files that cannot have a row for which the condition is true."""
    if odd := next((name for name in _ODD_SETTINGS if spark.conf.get(name, "false") == "true"), None):
        _logger.info("%s: no file was left out by the condition, because %s is true", snapshot.url, odd)
        return snapshot
    try:
        pruned = snapshot.where(where, time_zone=spark.conf.get("spark.sql.session.timeZone"))
    except InvalidInputError as error:  # Spark may understand it: it gets the condition next
        _logger.info("%s: no file was left out by the condition: %s", snapshot.url, error)
        return snapshot
    if not _logger.isEnabledFor(logging.INFO):  # adding up the sizes of a million files takes a second
        return pruned
    all_bytes, kept_bytes = (total_size(it.files) for it in (snapshot, pruned))
    _logger.info("%s: %d of %d files may hold such rows, %d of %d bytes; %d files were left out by the condition",
                 snapshot.url, len(pruned.files), len(snapshot.files), kept_bytes, all_bytes,
                 len(snapshot.files) - len(pruned.files))  # fmt: skip
    return pruned


_ODD_SETTINGS = ("spark.sql.legacy.typeCoercion.datetimeToString.enabled", "spark.sql.caseSensitive")
"""Settings of Spark that change the meaning of conditions."""


def _scan(spark: SparkSession, table: Table, snapshot: Snapshot) -> DataFrame:
    if not snapshot.files:
        return spark.createDataFrame([], known_schema(table_schema(table.store, snapshot), snapshot))
    refuse_unread(snapshot.files, partition_types(snapshot.schema, snapshot.partition_columns), where=snapshot.url)
    root = files_root(spark, table, snapshot.files)
    if root is None:
        schema = known_schema(table_schema(table.store, snapshot), snapshot)
        return files_in_workers(spark, snapshot.files, ReadSpec(table, schema))
    if snapshot.schema:
        return _scan_natively(spark, root, table, snapshot, table_schema(table.store, snapshot))
    # No writer recorded the columns: Spark infers them, as for any directory.
    inferred = _scan_natively(spark, root, table, snapshot, None)
    known = schemas.from_json(keep_known(json.loads(inferred.schema.json())), where=snapshot.url)
    return inferred if known == inferred.schema else _scan_natively(spark, root, table, snapshot, known)


def scan_files(spark: SparkSession, table: Table, files: Sequence[DataFile], schema: StructType) -> DataFrame:
    """The rows of these files of a dbio table. The schema includes the partition columns."""
    root = files_root(spark, table, files)
    if root is None:
        return files_in_workers(spark, files, ReadSpec(table, schema))
    return union([files_natively(spark, root, table, some, schema) for some in by_layout(files)])


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all the frames, which have the same columns. There must be at least one frame."""
    return reduce(lambda some, more: some.unionByName(more), frames)


def by_layout(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """The files, grouped by the partition columns of their directories. Spark's reader needs the same in all files."""
    found: dict[Layout, list[DataFile]] = {}
    for file in files:
        found.setdefault(tuple(file.partition), []).append(file)
    return list(found.values())


def files_root(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> str | None:
    """The URL of the table's root for Spark. None if Spark cannot reach it, or if there are no files.

    None also if Spark's reader would miss columns that a file spells in another case.
    """
    if table.location is None or not files or (is_case_sensitive(spark) and not takes_index(spark)):
        return None
    account = table.storage_options.get("account_name")
    return native_root(spark, table.location, account=account, file=files[0].path)


def files_natively(
    spark: SparkSession,
    root: str,
    table: Table,
    files: Sequence[DataFile],
    schema: StructType,
) -> DataFrame:
    """As `scan_files`, by Spark's own reader, for one or more files with the same partition columns."""
    layout = tuple(files[0].partition)
    refuse_unread(files, partition_types(json.loads(schema.json()), layout), where=table.url)
    as_if_live = Snapshot(url=table.url, scope=Scope.TABLE, files=files, partition_columns=layout, decided=())
    return _scan_natively(spark, root, table, as_if_live, schema, options=STRICT)


STRICT: Mapping[str, str] = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""Options of Spark's reader for reads that need all rows of files. They override the session's settings: rows that
cannot be read are an error, and old dates are read as by readers in Python."""


def known_schema(schema: StructType | None, snapshot: Snapshot) -> StructType:
    if schema is None:
        raise no_columns(snapshot)
    return schema


# --- Spark's own reader -------------------------------------------------------------------------------------------


def _scan_natively(
    spark: SparkSession,
    root: str,
    table: Table,
    snapshot: Snapshot,
    schema: StructType | None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """`options` are options of Spark's reader, which override the session's settings."""
    snapshot = replace(snapshot, files=sized(table, snapshot.files))
    frame = None if schema is None else read_by_index(spark, root, snapshot, schema, options or {})
    if frame is None:
        frame = _read_by_reader(spark, root, snapshot, schema, options or {})
    expected = schema.fieldNames() if schema else frame.columns
    return frame if frame.columns == expected else frame.select(*map(schemas.quoted, expected))


def sized(table: Table, files: Sequence[DataFile]) -> Sequence[DataFile]:
    """The files with their sizes: Spark would skip a file of unknown size as empty.

    Raises ObjectNotFoundError if a file of unknown size does not exist.
    """
    if isinstance(files, FilesInParts) and not files.unknown:
        return files
    live = LiveFiles.of(files)
    known = with_sizes(table.store, live)
    if gone := known.of_unknown_size():
        raise ObjectNotFoundError(
            f"{len(gone)} files whose sizes are not recorded do not exist, first {table.store.url_of(gone[0])}; "
            "run `dbio check`, or, if vacuum deleted them before a read of changes, read later changes"
        )
    return files if known is live else known


def _read_by_reader(
    spark: SparkSession, root: str, snapshot: Snapshot, schema: StructType | None, options: Mapping[str, str]
) -> DataFrame:
    reader = spark.read.options(**options, **_AS_GIVEN)
    if schema is not None:
        reader = reader.schema(schema)
    if snapshot.scope is Scope.TABLE:
        reader = reader.option("timeZone", "UTC")  # the time zone in names of timestamp partitions
    if snapshot.partition_columns and _names_columns(root, schema):
        return _read_by_path(reader, root, snapshot)
    return _read_by_manifest(spark, reader, root, snapshot)


_AS_GIVEN: Mapping[str, str] = {"dbio.read": "seen"}
"""An option of Spark's reader, for which the rules for unchanged code (`ParquetRead.MARK`) replace no files."""


def _names_columns(root: str, schema: StructType | None) -> bool:
    """Whether Spark would infer a partition column from the path of the root itself, such as `.../country=de`."""
    above = takewhile(lambda component: "=" in component, reversed(root.split("/")))
    named = {names.unescape(component.partition("=")[0]).lower() for component in above}
    return bool(named) and (schema is None or not named.isdisjoint(map(str.lower, schema.fieldNames())))


def _read_by_path(reader: DataFrameReader, root: str, snapshot: Snapshot) -> DataFrame:
    """Gives Spark the paths of all files, and a base path. Spark then sends at least one request for each file."""
    snapshot.refuse_patterns()  # Spark would expand them
    return reader.option("basePath", root).parquet(*(f"{root}/{file.path}" for file in snapshot.files))


def _read_by_manifest(spark: SparkSession, reader: DataFrameReader, root: str, snapshot: Snapshot) -> DataFrame:
    directory = Path(tempfile.mkdtemp(prefix="dbio-manifest-"))
    connect = is_connect(spark)
    try:
        write_manifest(directory, root, snapshot.files)
        flat = str(not snapshot.partition_columns).lower()  # needed for a table without partitions: else no rows
        frame = reader.option("recursiveFileLookup", flat).parquet(directory.as_uri())
        frame.columns  # noqa: B018  (Spark Connect looks for the manifest only now)
        return frame
    except AnalysisException as error:
        if not connect or error_condition(error) != "PATH_NOT_FOUND":
            raise
        return _read_by_path(reader, root, snapshot)  # the Connect server is on another machine
    finally:
        if connect:
            atexit.register(shutil.rmtree, directory, ignore_errors=True)  # each action plans again, and reads it
        else:
            shutil.rmtree(directory)


def write_manifest(directory: Path, root: str, files: Iterable[DataFile]) -> None:
    """Writes the list of files as Spark's file sink does. Spark's reader uses it instead of listing the directory."""
    (directory / "_spark_metadata").mkdir()
    (directory / "_spark_metadata" / "0").write_text(encode_list(root, files))


# --- Python workers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """What a Python worker needs to read files of a table."""

    table: Table
    schema: StructType


Look = Callable[[DataFile, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Changes the batches of a file. Their columns stay the same."""


def read_files(spec: ReadSpec, files: Iterable[DataFile], look: Look | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of the files with the table's columns, in its order. Absent columns are null, and partition columns have
    the values of the directories."""
    store = spec.table.store
    target = schemas.arrow_schema(spec.schema)
    variants = schemas.variants_of(spec.schema)
    for file in files:
        with naming_vacuum(), open_file(store, file) as source:
            where = store.url_of(file.path)
            batches = read_rows(open_parquet(source, where), target, partition=file.partition, where=where)
            for batch in look(file, batches) if look else batches:
                yield fitted(batch, variants)
    spare_imports("read")


def files_in_workers(
    spark: SparkSession, files: Sequence[DataFile], spec: ReadSpec, look: Look | None = None
) -> DataFrame:
    """The rows of these files, read by Python workers."""
    if not files:
        return spark.createDataFrame([], spec.schema)
    groups = group_files(files, parallelism(spark))
    rows = [(json.dumps([list(file) for file in group]),) for group in groups]
    listed = spark.createDataFrame(rows, "files string").repartition(len(groups))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from read_files(spec, [DataFile(*values) for values in json.loads(text or "[]")], look)

    return listed.mapInArrow(ForWorkers(read), spec.schema)


def group_files(files: Sequence[DataFile], groups: int) -> list[list[DataFile]]:
    """The files in at most so many groups of about the same size. Assigns the largest files first."""
    found: list[list[DataFile]] = [[] for _ in range(max(1, min(groups, len(files))))]
    sizes = [(0, number) for number in range(len(found))]  # a heap
    for file in sorted(files, key=lambda file: -file.size):
        size, smallest = sizes[0]
        found[smallest].append(file)
        heapq.heapreplace(sizes, (size + file.size, smallest))
    return found
