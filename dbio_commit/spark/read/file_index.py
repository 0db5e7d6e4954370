"""Reads a snapshot with Spark's own Parquet reader: a Java class lists the files for Spark, and takes little memory.

For classic sessions whose JVM accepts the class, and for tables whose columns are known.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish.sink_log import PLAIN, needs_no_quotes, quoted
from dbio_commit.protocol import names
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import DataFile, FilesInParts
from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.session.held import CASE
from dbio_commit.spark.session.jvm import SNAPSHOT_FILE_INDEX, is_ready

if TYPE_CHECKING:
    import pyarrow

_SLOWER = "reads of many files are slower"


def read_by_index(
    spark: SparkSession, root: str, snapshot: Snapshot, schema: StructType, options: Mapping[str, str]
) -> DataFrame | None:
    """The rows of the files, with partition columns last. None if Spark does not accept the class.

    `root` is the absolute URL of the table as Hadoop writes it, not escaped. `options` are options of Spark's reader.
    """
    if not takes_index(spark):
        return None
    relation = relation_by_index(spark, root, snapshot, schema, options)
    return None if relation is None else DataFrame(spark._jsparkSession.baseRelationToDataFrame(relation), spark)


def relation_by_index(
    spark: SparkSession,
    root: str,
    snapshot: Snapshot,
    schema: StructType,
    options: Mapping[str, str],
    around: Callable[[Any], Any] = lambda index: index,
) -> Any:
    """As `read_by_index`, as a HadoopFsRelation of Spark. `around` may wrap the index, which is a FileIndex of Spark.

    None if a partition column is not in the schema. The session must accept the class: see `takes_index`.
    """
    by_name = {field.name.lower(): field for field in schema.fields}
    partition = [by_name[column.lower()] for column in snapshot.partition_columns if column.lower() in by_name]
    if len(partition) < len(snapshot.partition_columns):
        return None
    jvm: Any = spark._jvm
    others = [field for field in schema.fields if field not in partition]
    zone = "UTC" if snapshot.scope is Scope.TABLE else spark.conf.get("spark.sql.session.timeZone")
    index = index_of(spark, root, snapshot.files, partition, zone)
    datasources = "org.apache.spark.sql.execution.datasources"
    given: Any = getattr(java_class(jvm, "scala.collection.immutable.Map$"), "MODULE$").empty()
    for name, value in options.items():
        given = given.updated(name, value)
    return java_class(jvm, f"{datasources}.HadoopFsRelation")(
        around(index),
        index.partitionSchema(),
        nullable(spark, others),
        java_class(jvm, "scala.Option").empty(),
        java_class(jvm, f"{datasources}.parquet.ParquetFileFormat")(),
        given,
        _without_case(spark),
    )


def index_of(
    spark: SparkSession, root: str, files: Iterable[DataFile], partition: Sequence[StructField], zone: str | None
) -> Any:
    """A `SnapshotFileIndex` of these files, with these partition columns. Timestamps in them are in the time zone."""
    with tempfile.NamedTemporaryFile(prefix="dbio-files-") as listed:
        write_files(listed, files)
        listed.flush()
        kind = java_class(spark._jvm, SNAPSHOT_FILE_INDEX.name)
        return kind(quoted(root), listed.name, nullable(spark, partition), zone)


def takes_index(spark: SparkSession) -> bool:
    return is_ready(spark, SNAPSHOT_FILE_INDEX, without=_SLOWER)


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether this session is case-sensitive: Spark's reader misses a column that a file spells in another case."""
    return spark.conf.get(CASE, "false") == "true"


def _without_case(spark: SparkSession) -> Any:
    """A JVM session that reads files without regard to the case of column names."""
    session: Any = spark._jsparkSession
    if not is_case_sensitive(spark):
        return session
    copy = session.cloneSession()
    copy.conf().set(CASE, "false")
    return copy


def nullable(spark: SparkSession, fields: Sequence[StructField]) -> Any:
    """The fields as a StructType of the JVM, in which all values may be null."""
    return spark._jsparkSession.parseDataType(StructType([*fields]).json()).asNullable()


def write_files(out: IO[bytes], files: Iterable[DataFile]) -> None:
    """Writes the files in the form that `SnapshotFileIndex.java` describes. All have the same partition columns."""
    if isinstance(files, FilesInParts):
        for table in files.arrow():
            for piece in _encode_table(table):
                out.write(piece)
    else:
        out.write(encode_files(files))


def encode_files(files: Iterable[DataFile]) -> bytes:
    """The files as bytes in this form."""
    heads: dict[str, list[str]] = {}
    directories: dict[str, list[str]] = {}
    for path, size, _, partition in files:
        if size == 0:  # Spark skips empty files in any directory
            continue
        directory, _, name = path.rpartition("/")
        if directory not in directories:
            heads[directory] = _head(directory, partition)
            directories[directory] = []
        directories[directory] += name, str(size)
    texts: list[str] = []
    for directory, listed in directories.items():
        is_plain = needs_no_quotes("".join(listed))  # as dbio's names; one check for all, as files may be a million
        texts += [*heads[directory], str(len(listed) // 2), *(listed if is_plain else map(quoted, listed))]
    return "\0".join([*texts, ""]).encode()


def _head(directory: str, partition: Partition) -> list[str]:
    values = (names.HIVE_NULL if value is None else names.escape(value) for value in partition.values())
    return [quoted(directory), *values]


def _encode_table(table: "pyarrow.Table") -> Iterator[bytes | memoryview]:
    """As `encode_files`, for files in an Arrow table, without Python values."""
    import pyarrow as pa
    import pyarrow.compute

    from dbio_commit.log.parts import rows

    pc: Any = pyarrow.compute
    table = table.filter(pc.not_equal(table["size"], 0))
    if not table.num_rows:
        return
    table = table.take(pc.sort_indices(rows.dictionary(table["directory"]).indices))
    directory, name = rows.dictionary(table["directory"]), table["name"].combine_chunks()
    if rows.body_of(name).translate(None, PLAIN):
        name = rows.texts(map(quoted, rows.listed(name)))
    zero, nothing = rows.texts(["\0"])[0], rows.texts([""])[0]
    lines = pc.binary_join_element_wise(name, table["size"].cast(pa.string()).combine_chunks(), nothing, zero)
    ends, text = memoryview(lines.buffers()[1]).cast("i"), memoryview(lines.buffers()[2])
    texts, runs = rows.listed(directory.dictionary), pc.run_end_encode(directory.indices)
    start = 0
    for code, stop in zip(rows.listed(runs.values), rows.listed(runs.run_ends), strict=True):
        head = _head(texts[code], names.parse_partition(texts[code]))
        yield "\0".join([*head, str(stop - start), ""]).encode()
        yield text[ends[start] : ends[stop]]
        start = stop
