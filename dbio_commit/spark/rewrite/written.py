"""The new files of a rewrite: of rows that say what becomes of them, in their last column."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import reduce
from operator import or_
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.protocol.commits import Commit
from dbio_commit.spark.batches import arrow_batches, pack
from dbio_commit.spark.job import Job, commit_files, errors_of_workers
from dbio_commit.spark.rewrite.conditions import is_deterministic
from dbio_commit.spark.task import TaskSpec, encode_file_info, run_task
from dbio_commit.transaction import Transaction

FATE = "_dbio_fate"
"""The last column of what is written, a `Fate`; no column of the table."""


class Fate(IntEnum):
    """What becomes of a row."""

    KEPT = 0
    UPDATED = 1
    INSERTED = 2
    DELETED = 3
    LEFT_OUT = 4
    """A row of the source for which there is nothing to do."""
    WRONG = 5
    """It may not be written, so that nothing may."""


_GOES = pa.array([Fate.DELETED, Fate.LEFT_OUT, Fate.WRONG], pa.int8())


def fate(of: Fate | Column) -> Column:
    return (of if isinstance(of, Column) else f.lit(int(of))).cast(t.ByteType())


class Rewriting:
    """A rewrite under way."""

    def __init__(self, job: Job, transaction: Transaction) -> None:
        self._job, self._transaction = job, transaction
        self._files: list[str] = []

    def write(self, rows: DataFrame, schema: t.StructType | None = None) -> Counter[Fate]:
        """How many rows had which fate. With a `schema`, that of the rows, they have the table's columns already."""
        spec = self._job.spec
        if schema is not None:
            spec = replace(spec, columns=tuple(enumerate(schema.fieldNames())), casts={})
        with arrow_batches(rows.sparkSession, rows.schema), errors_of_workers():
            packed, packing = pack(rows)
            task = _task(spec, packing.unpack, len(rows.columns) - 1)
            told = packed.mapInArrow(task, "file string, fate byte, rows long").collect()
        self._files += [row.file for row in told if row.file is not None]
        counts = Counter[Fate]()
        for row in told:
            if row.fate is not None:
                counts[Fate(row.fate)] += row.rows
        return counts

    def refuse(self, message: str) -> NoReturn:
        """Raises InvalidInputError; what was written is deleted."""
        self._job.abort(self._transaction, self._files)
        raise InvalidInputError(f"{message}; nothing was committed")

    def commit(self, metrics: Mapping[str, int]) -> Commit:
        return commit_files(self._transaction, self._files, self._job.schema, metrics=metrics)


def _task(
    spec: TaskSpec, unpack: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], position: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """As `task.map_in_arrow`, for rows whose fates are at this position, and with lines that count these."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = Counter[int]()

        def stay() -> Iterator[pa.RecordBatch]:
            for batch in unpack(batches):
                fates = batch.column(position)
                told: Any = pc.value_counts(fates)
                counts.update({entry["values"]: entry["counts"] for entry in told.to_pylist()})
                goes = pc.is_in(fates, value_set=_GOES)
                yield batch.filter(pc.invert(goes)) if pc.any(goes).as_py() else batch

        files = [encode_file_info(info) for info in run_task(spec, stay())]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([*files, *(None for _ in counts)], pa.string()),
                pa.array([*(None for _ in files), *counts], pa.int8()),
                pa.array([*(None for _ in files), *counts.values()], pa.int64()),
            ],
            names=["file", "fate", "rows"],
        )

    return write


# --- values for columns -------------------------------------------------------------------------------------------


Assigned = tuple[Column, Column | None]
"""A value as its column has it, and whether it does not fit, where that can be."""


def assign(rows: DataFrame, values: Sequence[tuple[str, t.StructField]]) -> dict[str, Assigned]:
    """By column, the values in Spark's SQL that these are given.

    `rows` are what the values may go by. Types fit as for Spark's INSERT; whether a number is too large is found by
    row. Raises InvalidInputError, SchemaMismatchError, and Spark's errors for what is wrong in a value.
    """
    for value, field in values:
        if not isinstance(value, str) or not value.strip():
            raise InvalidInputError(
                f"the value {value!r:.200} of column {field.name!r} is no text; give an expression in Spark's SQL, "
                'such as "n + 1" or "\'new\'"'
            )
    try:
        kinds = _kinds(rows, [value for value, _ in values])  # of all at once, since each look takes some milliseconds
    except AnalysisException:
        kinds = [_kind(rows, value, field) for value, field in values]  # which says whose fault it is
    return {field.name: _fit(rows, value, field, kind) for (value, field), kind in zip(values, kinds, strict=True)}


def _kinds(rows: DataFrame, values: Sequence[str]) -> list[t.DataType]:
    given = [f.expr(value) for value in values]
    kinds = [field.dataType for field in rows.select(*(it.alias(str(i)) for i, it in enumerate(given))).schema]
    rows.where(reduce(or_, (it.isNotNull() for it in given))).schema  # noqa: B018  (over Connect, that looks for errors)
    return kinds


def _kind(rows: DataFrame, value: str, field: t.StructField) -> t.DataType:
    kind = rows.select(f.expr(value).alias(FATE)).schema[0].dataType
    try:
        rows.where(f.expr(value).isNotNull()).schema  # noqa: B018  (as above)
    except AnalysisException as error:
        raise InvalidInputError(
            f"the value {value!r:.200} of column {field.name!r} does not go by one row ({error.getCondition()}); "
            "look at the rows first, and give what you find"
        ) from None
    return kind


def _fit(rows: DataFrame, value: str, field: t.StructField, kind: t.DataType) -> Assigned:
    given, own = f.expr(value), field.dataType
    if kind.simpleString() == own.simpleString():
        return given, None
    if isinstance(kind, t.NullType):
        return given.cast(own), None
    numbers = isinstance(kind, t.NumericType) and isinstance(own, t.NumericType)
    times = isinstance(kind, _TIMES) and isinstance(own, _TIMES)
    texts = isinstance(kind, t.AtomicType) and isinstance(own, t.StringType)
    if not (numbers or times or texts):
        raise SchemaMismatchError(
            f"column {field.name!r} has the type {own.simpleString()}, and {value!r:.200} the type "
            f"{kind.simpleString()}, which it does not take; cast it in the expression"
        )
    if not is_deterministic(rows, given.isNotNull()):
        raise InvalidInputError(
            f"the value {value!r:.200} of column {field.name!r} is another each time, and has the type "
            f"{kind.simpleString()}; cast it to {own.simpleString()} in the expression"
        )
    fitted = given.try_cast(own)
    return fitted, given.isNotNull() & fitted.isNull()


_TIMES = (t.DateType, t.TimestampType, t.TimestampNTZType)
