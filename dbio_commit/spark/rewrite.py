"""Rows that fulfil a condition go, and others may come in their place: `delete`, and `write` with `replace_where`.

A commit names files, so a file that holds such rows and others is written again without them. What is read is told by a
snapshot; the commit fails where one of its files is gone by then. Rows that others append meanwhile stay.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dbio_commit.data.conform import parse_value
from dbio_commit.errors import CommitConflictError, InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit, count_rows, recorded_files
from dbio_commit.protocol.state import DataFile
from dbio_commit.snapshot import Snapshot
from dbio_commit.spark import schema as schemas
from dbio_commit.spark.batches import arrow_batches, pack
from dbio_commit.spark.job import WritePlan, commit_files, errors_of_workers
from dbio_commit.spark.scan import (
    KEY,
    PATH,
    ReadSpec,
    check_condition,
    files_in_workers,
    files_natively,
    files_root,
    key_of,
    prune,
    scan_files,
)
from dbio_commit.spark.task import TaskSpec, encode_file_info, run_task
from dbio_commit.table import Table


def replace_rows(spark: SparkSession, table: Table, plan: WritePlan, where: str, data: DataFrame | None) -> Commit:
    """Replaces the rows that fulfil the condition by those of `data`, which must fulfil it, too; None is no rows.

    `plan` is that of an append of rows like these. Raises InvalidInputError for a condition that cannot be, and with
    their number for rows that do not fulfil it; CommitConflictError, and as a write does.
    """
    check_condition(where)
    if plan.target.scope and not plan.target.is_table:
        raise InvalidInputError(
            f"{table.url} has no {names.DESCRIPTOR}: of such a directory no single rows can be replaced; make it a "
            "table with `dbio adopt` first"
        )
    schema = plan.layout.schema
    _refuse_odd(spark, schema, where)
    found = _find(spark, table, _snapshot(table, plan), schema, where) if plan.target.scope else _Found()
    job = replace(plan, operation="rewrite").begin()
    with job.transaction() as transaction:
        transaction.remove(file.path for file in (*found.whole, *found.partial))
        files = list[str]()
        if found.partial:
            rows = scan_files(spark, table, found.partial, schema, plan.layout.partition_columns)
            files, _ = _write(spark, rows.withColumn(_FITS, ~_holds(where)).where(_FITS), _as_it_is(job.spec, schema))
            if sum(json.loads(file)["rows"] for file in files) != found.kept_rows:
                job.abort(transaction, files)
                raise InvalidInputError(
                    f"where={where!r:.200} held for other rows of {table.url} when they were read again; nothing was "
                    "committed: give a condition that goes by the rows alone"
                )
        if data is not None:
            written, wrong = _write(spark, _fitted(data, plan).withColumn(_FITS, _holds(where)), job.spec)
            files += written
            if wrong:
                job.abort(transaction, files)
                raise InvalidInputError(
                    f"{wrong} rows do not fulfil replace_where={where!r:.200}; nothing was committed: leave them out, "
                    "or widen the condition"
                )
        metrics = {} if found.rows is None else {"numDeletedRows": found.rows}
        return commit_files(transaction, files, job.schema, metrics=metrics)


def _snapshot(table: Table, plan: WritePlan) -> Snapshot:
    """What is read, with the columns that the plan knows: what it did not know would get lost."""
    snapshot = table.snapshot()
    if snapshot.schema is None and snapshot.files:
        raise InvalidInputError(
            f"no writer recorded the columns of {table.url}, so that no single rows can be replaced; write to it with "
            "this software first"
        )
    if snapshot.schema != plan.target.metadata.schema:
        raise CommitConflictError(
            f"the schema of {table.url} was changed by another commit just now; nothing was written: try again"
        )
    return snapshot


def _refuse_odd(spark: SparkSession, schema: t.StructType, where: str) -> None:
    """Raises InvalidInputError for what holds for other rows each time, and Spark's errors for what is wrong."""
    if clash := {PATH, _FITS}.intersection(name.lower() for name in schema.fieldNames()):
        raise InvalidInputError(f"single rows of a table with a column {min(clash)} cannot be replaced; rename it")
    if (tree := _parse(where)) is not None and tree.find(exp.Query):
        raise InvalidInputError(
            f"where={where!r:.200} asks other tables, which may change while rows are replaced; look there first, and "
            "give the values"
        )
    rows = spark.createDataFrame([], schema)
    rows.where(where).schema  # noqa: B018  (over Connect, asking for it is what looks for errors)
    try:
        rows.join(spark.createDataFrame([], f"{PATH} string"), f.expr(where)).schema  # noqa: B018
    except AnalysisException as error:
        if "NON_DETERMINISTIC" not in str(error.getCondition()):
            raise
        raise InvalidInputError(
            f"where={where!r:.200} does not go by the rows alone: it holds for others each time; nothing was written"
        ) from None


def _parse(where: str) -> Any:
    try:
        return sqlglot.parse_one(where, dialect="spark")
    except (SqlglotError, RecursionError):
        return None  # Spark knows more of its SQL


def _holds(where: str) -> Column:
    """True, or false: a condition that is null does not hold."""
    return f.coalesce(f.expr(where), f.lit(False))


# --- which files --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Where the rows are that fulfil a condition."""

    whole: Sequence[DataFile] = ()
    """All of whose rows do."""
    partial: Sequence[DataFile] = ()
    """Some of whose rows do."""
    rows: int | None = 0
    """How many do; None where no writer said how many are in a file."""
    kept_rows: int = 0
    """How many rows of `partial` do not."""


def _find(spark: SparkSession, table: Table, snapshot: Snapshot, schema: t.StructType, where: str) -> _Found:
    files = list(prune(spark, snapshot, where).files)
    by_partition = _by_partition(spark, files, snapshot.partition_columns, schema, where)
    if by_partition is not None:
        return _Found(whole=by_partition, rows=_count_rows(snapshot, by_partition))
    counts = _count(spark, table, files, schema, snapshot.partition_columns, where)
    partial = [file for file in files if 0 < counts[file.path][1] < counts[file.path][0]]
    return _Found(
        whole=[file for file in files if 0 < counts[file.path][1] == counts[file.path][0]],
        partial=partial,
        rows=sum(matching for _, matching in counts.values()),
        kept_rows=sum(counts[file.path][0] - counts[file.path][1] for file in partial),
    )


def _by_partition(
    spark: SparkSession, files: Sequence[DataFile], columns: Sequence[str], schema: t.StructType, where: str
) -> list[DataFile] | None:
    """The files for whose partition the condition holds; None where it goes by more than that."""
    tree = _parse(where)
    asked = None if tree is None or tree.find(exp.Lambda) else [*tree.find_all(exp.Column)]
    if asked is None or any(it.table or it.name.lower() not in map(str.lower, columns) for it in asked):
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
    numbered = spark.createDataFrame(values, t.StructType([t.StructField(PATH, t.IntegerType()), *fields]))
    wanted = {partitions[row[0]] for row in numbered.where(where).select(PATH).collect()}
    return [file for file in files if tuple(file.partition.values()) in wanted]


def _count_rows(snapshot: Snapshot, files: Sequence[DataFile]) -> int | None:
    tids = {file.tid for file in files}
    known = recorded_files(commit for commit in snapshot.decided if commit.tid in tids)
    return count_rows((file.path for file in files), known)


def _count(
    spark: SparkSession,
    table: Table,
    files: Sequence[DataFile],
    schema: t.StructType,
    columns: tuple[str, ...],
    where: str,
) -> Mapping[str, tuple[int, int]]:
    """For each file by its path: how many rows it has, and how many of them fulfil the condition."""
    is_clear = not {"_metadata", PATH}.intersection(name.lower() for name in schema.fieldNames())
    root = files_root(spark, table, files) if is_clear else None
    if root is None:
        spec = ReadSpec.of(table, t.StructType([*schema.fields, t.StructField(PATH, t.StringType())]), (*columns, PATH))
        frame = files_in_workers(spark, [it._replace(partition={**it.partition, PATH: it.path}) for it in files], spec)
        paths = {file.path: file.path for file in files}
    else:
        frame = files_natively(spark, root, table, files, schema, columns).withColumn(PATH, f.expr(KEY))
        paths = {key_of(f"{root}/{file.path}"): file.path for file in files}
    counted = frame.groupBy(PATH).agg(f.count(f.lit(1)), f.count_if(_holds(where))).collect()
    if unknown := {row[0] for row in counted} - paths.keys():
        raise AssertionError(f"rows of {unknown} are in no file that was read")  # they must not get lost in silence
    return dict.fromkeys(paths.values(), (0, 0)) | {paths[row[0]]: (row[1], row[2]) for row in counted}


# --- writing ------------------------------------------------------------------------------------------------------

_FITS = "_dbio_fits"
"""The last column of what is written, which says whether a row may be; no column of the table."""


def _as_it_is(spec: TaskSpec, schema: t.StructType) -> TaskSpec:
    """For rows that have the table's columns already."""
    return replace(spec, columns=tuple(enumerate(schema.fieldNames())), casts={})


def _fitted(data: DataFrame, plan: WritePlan) -> DataFrame:
    """The rows with those columns as the table has them that a condition may compare; columns stay in their places."""
    given = {field.name.lower(): field for field in data.schema.fields}
    columns = {name.lower(): f.col(schemas.quoted(name)) for name in data.columns}
    for field in plan.layout.schema.fields:
        own = given.get(field.name.lower())
        if own is None:
            columns[field.name.lower()] = f.lit(None).cast(field.dataType)
        elif isinstance(field.dataType, t.AtomicType) and own.dataType != field.dataType:
            columns[own.name.lower()] = columns[own.name.lower()].cast(field.dataType)
    spelling = {field.name.lower(): field.name for field in plan.layout.schema.fields}
    return data.select(*(column.alias(spelling.get(name, name)) for name, column in columns.items()))


def _write(spark: SparkSession, frame: DataFrame, spec: TaskSpec) -> tuple[list[str], int]:
    """The files with the rows, and in how many of these the last column, which is not written, is not true."""
    with arrow_batches(spark, frame.schema), errors_of_workers():
        packed, packing = pack(frame)
        rows = packed.mapInArrow(
            _counting(spec, packing.unpack, len(frame.columns) - 1), "file string, wrong long"
        ).collect()
    return [row.file for row in rows if row.file is not None], sum(row.wrong or 0 for row in rows)


def _counting(
    spec: TaskSpec, unpack: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], position: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """As `task.map_in_arrow`, with a last row that says in how many the column at this position is not true."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wrong = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal wrong
            for batch in unpack(batches):
                wrong += batch.num_rows - (pc.sum(batch.column(position)).as_py() or 0)
                yield batch

        files = [encode_file_info(info) for info in run_task(spec, counted())]
        counts = [*(0 for _ in files), wrong]
        yield pa.RecordBatch.from_arrays(
            [pa.array([*files, None], pa.string()), pa.array(counts, pa.int64())], names=["file", "wrong"]
        )

    return write
