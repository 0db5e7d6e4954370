"""In which files the rows are that a rewrite changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import InvalidOperation
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.data.conform import parse_value
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark import schema as schemas
from dbio_commit.spark.conditions import goes_by_alone, holds
from dbio_commit.spark.scan import KEY, PATH, ReadSpec, files_in_workers, files_natively, files_root, key_of
from dbio_commit.table import Table

if TYPE_CHECKING:
    from dbio_commit.spark.rewrite.base import Rewrite


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where the rows are that fulfil a condition."""

    whole: Sequence[DataFile] = ()
    """All of whose rows do."""
    partial: Sequence[DataFile] = ()
    """Some of whose rows do."""
    rows: int | None = 0
    """How many do; None where no writer said how many are in a file."""
    kept_rows: int = 0
    """How many rows of `partial` do not."""


def find(rewrite: "Rewrite", where: str) -> Found:
    """By the partitions alone, where the condition asks for nothing else; else by reading what may fulfil it."""
    files = rewrite.files(where)
    if not files:
        return Found()
    by_partition = _by_partition(rewrite, files, where)
    if by_partition is not None:
        return Found(whole=by_partition, rows=rewrite.known_rows(by_partition))
    counts = _count(rewrite.locate(files), files, where)
    partial = [file for file in files if 0 < counts[file.path][1] < counts[file.path][0]]
    return Found(
        whole=[file for file in files if 0 < counts[file.path][1] == counts[file.path][0]],
        partial=partial,
        rows=sum(matching for _, matching in counts.values()),
        kept_rows=sum(counts[file.path][0] - counts[file.path][1] for file in partial),
    )


def find_matches(rows: "Located", source: DataFrame, on: str, changes: Column) -> dict[str, bool]:
    """By the path of each file with rows that match one of the source: whether `changes` holds for such a pair.

    Both frames have their aliases.
    """
    by_file = rows.frame.join(source, f.expr(on)).groupBy(PATH).agg(f.max(changes)).collect()
    return {rows.path_of(row[0]): row[1] for row in by_file}


def find_unmatched(rows: "Located", source: DataFrame, on: str, where: Column) -> set[str]:
    """The paths of the files with rows that match none of the source, and for which the condition holds."""
    alone = rows.frame.join(source, f.expr(on), "left_anti")
    # As an aggregate: Spark would ask a filter of rows that match, too, which it need not be made for.
    return {rows.path_of(path) for path, holds in alone.groupBy(PATH).agg(f.max(where)).collect() if holds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Rows with a column PATH, which tells their file."""

    frame: DataFrame
    paths: Mapping[str, str]
    """By what is in that column: the path of the file."""

    @classmethod
    def read(
        cls,
        spark: SparkSession,
        table: Table,
        files: Sequence[DataFile],
        schema: t.StructType,
    ) -> "Located":
        is_clear = "_metadata" not in map(str.lower, schema.fieldNames())
        root = files_root(spark, table, files) if is_clear else None
        if root is not None:
            frame = files_natively(spark, root, table, files, schema).withColumn(PATH, f.expr(KEY))
            return cls(frame=frame, paths={key_of(f"{root}/{file.path}"): file.path for file in files})
        spec = ReadSpec.of(table, t.StructType([*schema.fields, t.StructField(PATH, t.StringType())]))
        frame = files_in_workers(spark, [it._replace(partition={**it.partition, PATH: it.path}) for it in files], spec)
        return cls(frame=frame, paths={file.path: file.path for file in files})

    def alias(self, name: str) -> "Located":
        return replace(self, frame=self.frame.alias(name))

    def path_of(self, told: str) -> str:
        if told not in self.paths:
            raise AssertionError(f"rows of {told} are in no file that was read")  # they must not get lost in silence
        return self.paths[told]


def _by_partition(rewrite: "Rewrite", files: Sequence[DataFile], where: str) -> list[DataFile] | None:
    """The files for whose partition the condition holds; None where it goes by more than that."""
    columns, schema = rewrite.columns, rewrite.schema
    if not goes_by_alone(where, columns, set(schema.fieldNames()) - {*columns}):
        return None
    fields = [schema[column] for column in columns]
    partitions = list(dict.fromkeys(tuple(file.partition.values()) for file in files))
    try:
        values = [
            (i, *(parse_value(text, schemas.arrow_type(it.dataType)) for text, it in zip(texts, fields, strict=True)))
            for i, texts in enumerate(partitions)
        ]
    except (ValueError, InvalidOperation, KeyError):  # a directory of an adopted table, named in another way
        return None
    numbered = rewrite.spark.createDataFrame(values, t.StructType([t.StructField(PATH, t.IntegerType()), *fields]))
    wanted = {partitions[row[0]] for row in numbered.where(where).select(PATH).collect()}
    return [file for file in files if tuple(file.partition.values()) in wanted]


def _count(rows: Located, files: Sequence[DataFile], where: str) -> Mapping[str, tuple[int, int]]:
    """For each file by its path: how many rows it has, and how many of them fulfil the condition."""
    counted = rows.frame.groupBy(PATH).agg(f.count(f.lit(1)), f.count_if(holds(where))).collect()
    return {file.path: (0, 0) for file in files} | {rows.path_of(row[0]): (row[1], row[2]) for row in counted}
