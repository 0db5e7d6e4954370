"""Rows with the number of their file, and with their place in it."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import StoreError
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.scan import ReadSpec, files_in_workers, files_natively, files_root, whole
from dbio_commit.spark.session.schema import quoted
from dbio_commit.spark.sql.sight import read_as
from dbio_commit.table import Table

FILE, PLACE = "_dbio_file", "_dbio_place"
"""The number of a row's file, which is a hash of its path as Spark writes it; and how many rows stand before it."""
_PATH = "_dbio_path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Rows of some files, with the columns FILE and PLACE."""

    table: Table
    schema: t.StructType
    """The table's columns."""
    frame: DataFrame
    files: Mapping[int, DataFile]
    """By their numbers, as `number_files` has them."""
    rows: Mapping[int, int] = field(default_factory=dict)
    """How many their writers wrote to them, where they said so."""

    @classmethod
    def of(cls, spark: SparkSession, table: Table, files: Sequence[DataFile], schema: t.StructType) -> "Located":
        """`schema`: the table's columns. There must be files."""
        root = metadata_root(spark, table, files, schema)
        frame = _frame(spark, root, table, files, schema)
        numbers = number_files(spark, frame, root, files)
        return cls(table=table, schema=schema, frame=frame, files=numbers)

    def read(self, *texts: str) -> list[Column]:
        """Texts of those who see the table's columns, as columns of the frame."""
        return read_as(self.frame, [quoted(name) for name in self.schema.fieldNames()], texts)

    def only(self, numbers: Collection[int]) -> "Located":
        """The rows of these files; there must be some."""
        files, spark = {number: self.files[number] for number in numbers}, self.frame.sparkSession
        some = [*files.values()]
        root = metadata_root(spark, self.table, some, self.schema)
        return replace(self, frame=_frame(spark, root, self.table, some, self.schema), files=files)


def refuse_other_rows(where: str, recorded: int | None, found: int) -> None:
    """Raises StoreError where a file, at this URL, holds another number of rows than its writer wrote to it."""
    if recorded not in (None, found):
        raise StoreError(
            f"{where} holds {found} rows for a reader here, and its writer recorded {recorded}: somebody changed it in "
            "its place, or not all of it was read; nothing was committed. Run `dbio check`"
        )


def metadata_root(spark: SparkSession, table: Table, files: Sequence[DataFile], schema: t.StructType) -> str | None:
    """As `scan.files_root`; None also where a column hides what Spark knows of files, or FILE would hide a column."""
    is_clear = {"_metadata", FILE}.isdisjoint(map(str.lower, schema.fieldNames()))
    return files_root(spark, table, files) if is_clear else None


def with_file(frame: DataFrame) -> DataFrame:
    """Rows that Spark reads itself, and the number of their file."""
    return frame.withColumn(FILE, f.xxhash64("_metadata.file_path"))


def number_files(
    spark: SparkSession, frame: DataFrame, root: str | None, files: Sequence[DataFile]
) -> Mapping[int, DataFile]:
    """The files by their numbers among these rows, which have them; those without rows may be left out.

    Spark reads them below this root, or they are read in workers.
    """
    named = {file.path if root is None else _as_spark_writes(f"{root}/{file.path}"): file for file in files}
    if root is None or all(map(_IS_PLAIN, named)):
        told = spark.createDataFrame(pa.table({"name": [*named]}))  # which takes no job
        return {number: named[name] for number, name in told.select(f.xxhash64("name"), "name").collect()}
    first = frame.where("_metadata.row_index = 0").select(FILE, "_metadata.file_path")
    # How Spark escapes others, it alone knows.
    return {number: named[_as_spark_writes(unquote(url))] for number, url in first.collect()}


_IS_PLAIN = re.compile(r"[\w./:@=-]+", re.ASCII).fullmatch


def _as_spark_writes(url: str) -> str:
    """The URL of a file, but for what is escaped in it."""
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
    """The batches of a file, whose last two columns say where their rows are."""
    start = 0
    for batch in batches:
        end = start + batch.num_rows
        paths = pa.repeat(pa.scalar(file.path, pa.string()), batch.num_rows)
        arrays = [*batch.columns[:-2], paths, pa.array(range(start, end), pa.int64())]
        yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        start = end
