"""Reads rows with the number of their file and their position in the file, for rewrites that need both."""

import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.scan import ReadSpec, files_in_workers, files_natively, files_root, whole
from dbio_commit.spark.session.schema import quoted
from dbio_commit.spark.sql.planned import Named, Sql, as_they_are, read
from dbio_commit.table import Table

FILE, PLACE = "_dbio_file", "_dbio_place"
"""Columns: the number of a row's file, which is a hash of its path; and the row's position in the file, from 0."""
_PATH = "_dbio_path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Rows of some files of a table, with the columns FILE and PLACE."""

    table: Table
    schema: t.StructType
    """The table's columns."""
    frame: DataFrame
    files: Mapping[int, DataFile]
    """By their numbers, see `number_files`."""
    rows: Mapping[int, int] = field(default_factory=dict)
    """The number of rows in each file, as far as it is recorded."""
    named: Named = as_they_are
    """Gives the columns of the frame the ids that `Planned` expressions use."""

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        table: Table,
        files: Sequence[DataFile],
        schema: t.StructType,
        named: Named = as_they_are,
    ) -> "Located":
        """`schema` are the table's columns. There must be at least one file."""
        root = metadata_root(spark, table, files, schema)
        frame = _frame(spark, root, table, files, schema)
        numbers = number_files(frame, root, files)
        return cls(table=table, schema=schema, frame=named(frame), files=numbers, named=named)

    def read(self, *given: Sql) -> list[Column]:
        """Expressions on the table's columns, as columns of the frame. FILE and PLACE are not visible to texts."""
        return read(self.frame, [quoted(name) for name in self.schema.fieldNames()], given)

    def only(self, numbers: Collection[int]) -> "Located":
        """The rows of the files with these numbers, of which there must be at least one."""
        files, spark = {number: self.files[number] for number in numbers}, self.frame.sparkSession
        some = [*files.values()]
        root = metadata_root(spark, self.table, some, self.schema)
        return replace(self, frame=self.named(_frame(spark, root, self.table, some, self.schema)), files=files)


def metadata_root(spark: SparkSession, table: Table, files: Sequence[DataFile], schema: t.StructType) -> str | None:
    """As `scan.files_root`. None also if the table has a column with the name FILE, or that of Spark's `_metadata`."""
    is_clear = {"_metadata", FILE}.isdisjoint(map(str.lower, schema.fieldNames()))
    return files_root(spark, table, files) if is_clear else None


def with_file(frame: DataFrame) -> DataFrame:
    """Rows that Spark reads natively, with the number of their file."""
    return frame.withColumn(FILE, f.xxhash64("_metadata.file_path"))


def number_files(frame: DataFrame, root: str | None, files: Sequence[DataFile]) -> Mapping[int, DataFile]:
    """The files by the numbers that the rows of `frame` have in FILE. Files without rows may be absent.

    `root` is the URL below which Spark reads the files, or None if Python workers read them.
    """
    named = {file.path if root is None else _as_spark_writes(f"{root}/{file.path}"): file for file in files}
    if root is None or all(map(_IS_PLAIN, named)):
        return {xxhash64(name): file for name, file in named.items()}
    # Only Spark knows how it escapes other names: so read the number and the path of each file.
    first = frame.where("_metadata.row_index = 0").select(FILE, "_metadata.file_path")
    return {number: named[_as_spark_writes(unquote(url))] for number, url in first.collect()}


_IS_PLAIN = re.compile(r"[\w./:@=-]+", re.ASCII).fullmatch


def _as_spark_writes(url: str) -> str:
    """The URL of a file as Spark writes it, except for escapes."""
    return re.sub("^file:/+", "file:/", url)


def _frame(
    spark: SparkSession, root: str | None, table: Table, files: Sequence[DataFile], schema: t.StructType
) -> DataFrame:
    if root is not None:
        rows = with_file(files_natively(spark, root, table, files, schema))
        return whole(rows.withColumn(PLACE, f.col("_metadata.row_index")))
    located = [t.StructField(_PATH, t.StringType()), t.StructField(PLACE, t.LongType())]
    spec = ReadSpec(table, t.StructType([*schema.fields, *located]))
    return files_in_workers(spark, files, spec, _located).withColumn(FILE, f.xxhash64(_PATH)).drop(_PATH)


def _located(file: DataFile, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a file, with the path and the position of each row in the last two columns."""
    start = 0
    for batch in batches:
        end = start + batch.num_rows
        paths = pa.repeat(pa.scalar(file.path, pa.string()), batch.num_rows)
        arrays = [*batch.columns[:-2], paths, pa.array(range(start, end), pa.int64())]
        yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        start = end


# --- Spark's `xxhash64` of a text: the driver knows without a query what tasks compute -------------------------------


_ONE, _TWO, _THREE = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_FOUR, _FIVE = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_ALL = (1 << 64) - 1
_SEED = 42


def xxhash64(text: str) -> int:
    """XXH64 of the text in UTF-8, with Spark's seed, as a signed number."""
    data = text.encode()
    stripes, words = len(data) // 32 * 32, len(data) // 8 * 8
    found = _striped(data[:stripes]) if stripes else _SEED + _FIVE
    found = (found + len(data)) & _ALL
    for (word,) in struct.iter_unpack("<Q", data[stripes:words]):
        found = (_turned(found ^ _round(0, word), 27) * _ONE + _FOUR) & _ALL
    rest = data[words:]
    if len(rest) >= 4:
        found = (_turned(found ^ (int.from_bytes(rest[:4], "little") * _ONE & _ALL), 23) * _TWO + _THREE) & _ALL
        rest = rest[4:]
    for byte in rest:
        found = _turned(found ^ (byte * _FIVE & _ALL), 11) * _ONE & _ALL
    found = (found ^ found >> 33) * _TWO & _ALL
    found = (found ^ found >> 29) * _THREE & _ALL
    found ^= found >> 32
    return found - (1 << 64) if found >> 63 else found


def _striped(data: bytes) -> int:
    lanes = [_SEED + _ONE + _TWO, _SEED + _TWO, _SEED, _SEED - _ONE]
    for stripe in struct.iter_unpack("<4Q", data):
        lanes = [_round(lane, word) for lane, word in zip(lanes, stripe, strict=True)]
    found = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
    for lane in lanes:
        found = ((found ^ _round(0, lane)) * _ONE + _FOUR) & _ALL
    return found


def _round(before: int, word: int) -> int:
    return _turned((before + word * _TWO) & _ALL, 31) * _ONE & _ALL


def _turned(number: int, by: int) -> int:
    """The 64 bits, rotated to the left."""
    return (number << by | number >> 64 - by) & _ALL
