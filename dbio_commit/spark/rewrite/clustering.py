"""Divides the rows of files among several new files by the values of `cluster_by`, with Spark's tasks and one shuffle.

The steps are those of `maintenance/compact/cluster`. Tasks take the sample, and the driver decides where to cut. Tasks
read each file once and send the rows of each new file to the task that writes it. Rows are sent as packed bytes of
Arrow, so that Spark converts no type.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.write.spill import pack_batch, unpack_batch
from dbio_commit.maintenance.compact.cluster import divided, piece_name, sampling, take_sample, write_piece
from dbio_commit.maintenance.compact.cut import Tree, cut_rows
from dbio_commit.maintenance.compact.plan import Bin
from dbio_commit.maintenance.compact.reading import SourceFacts, Work
from dbio_commit.maintenance.compact.rewrite import (
    BinOutcome,
    check_rows,
    decode_outcome,
    encode_outcome,
    outcome_of,
)
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.spark.session.conf import parallelism
from dbio_commit.spark.session.errors import errors_of_workers
from dbio_commit.spark.session.worker import ForWorkers
from dbio_commit.table import Table

_TASKS = 4
"""At most so many tasks for each core read files."""

ArrowBatches = Iterator[pa.RecordBatch]


def cluster_in_tasks(spark: SparkSession, table: Table, work: Work, bin: Bin, *, number: int) -> BinOutcome:
    """As `maintenance.compact.cluster.cluster`, with Spark's tasks. Spark keeps rows on the disks of its executors."""

    def write() -> Sequence[FileInfo]:
        with errors_of_workers():
            sample, known = _sample(spark, table, work, bin)
            tree = cut_rows(sample, bin.pieces)
            files = _write(spark, table, work, bin, number, tree, known)
        check_rows(table.store, bin, files, known.rows)
        return files

    return outcome_of(number, write)


def _over_files(spark: SparkSession, bin: Bin, run: Callable[[ArrowBatches], ArrowBatches], columns: str) -> DataFrame:
    """Runs the function in tasks. Each task gets the places of some files in the bin, and returns `columns`."""
    tasks = min(len(bin.files), _TASKS * parallelism(spark))
    return spark.range(0, len(bin.files), 1, tasks).mapInArrow(ForWorkers(run), columns)


def _places(batches: ArrowBatches) -> list[int]:
    """The places of a task's files in the bin."""
    found: list[Any] = [*chain.from_iterable(batch.column(0).to_pylist() for batch in batches)]
    return found


def _sample(spark: SparkSession, table: Table, work: Work, bin: Bin) -> tuple[pa.Table, SourceFacts]:
    stride, starts = sampling(bin)

    def sample_some(batches: ArrowBatches) -> ArrowBatches:
        if places := _places(batches):
            files, own = [bin.files[it] for it in places], [starts[it] for it in places]
            found, known = take_sample(table.store, work, files, own, stride)
            packed = [pack_batch(batch) for batch in found.combine_chunks().to_batches()]
            yield pa.record_batch(
                [
                    pa.array([packed], pa.list_(pa.binary())),
                    pa.array([msgspec.json.encode(known).decode()], pa.string()),
                ],
                names=["sample", "known"],
            )

    rows = _over_files(spark, bin, sample_some, "sample array<binary>, known string").collect()
    full = work.schema(table.url)
    schema = pa.schema([full.field(name) for name in work.cluster_by])
    found = [unpack_batch(bytes(it), schema) for row in rows for it in row.sample]
    known = sum((msgspec.json.decode(row.known, type=SourceFacts) for row in rows), SourceFacts())
    return pa.Table.from_batches(found, schema=schema), known


def _write(
    spark: SparkSession, table: Table, work: Work, bin: Bin, number: int, tree: Tree, known: SourceFacts
) -> list[FileInfo]:
    routes = _routes(spark, bin.pieces)
    pieces = {route: piece for piece, route in enumerate(routes)}

    def read_some(batches: ArrowBatches) -> ArrowBatches:
        places = _places(batches)
        files = [bin.files[it] for it in places]
        for i, (piece, rows) in enumerate(divided(table.store, work, files, tree) if files else ()):
            packed = [pack_batch(batch) for batch in rows.combine_chunks().to_batches()]
            count = len(packed)
            yield pa.record_batch(
                [
                    pa.array([routes[piece]] * count, pa.int64()),
                    pa.array([places[0]] * count, pa.int64()),
                    pa.array([i] * count, pa.int64()),
                    pa.array(packed, pa.binary()),
                ],
                names=["route", "first", "step", "packed"],
            )

    def write_some(batches: ArrowBatches) -> ArrowBatches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "runs in Spark's workers only"
        schema = work.schema(table.url)
        rows = (pair for batch in batches for pair in zip(batch.column(0).to_pylist(), batch.column(3), strict=True))
        for route, own in groupby(rows, key=itemgetter(0)):
            piece = pieces[route]
            found = pa.Table.from_batches([unpack_batch(it.as_py(), schema) for _, it in own], schema=schema)
            name = piece_name(work, bin, number, piece, attempt=context.taskAttemptId())
            outcome = outcome_of(piece, partial(write_piece, table.store, work, found, name, known))
            yield pa.record_batch([pa.array([encode_outcome(outcome)], pa.string())], names=["outcome"])

    rows = _over_files(spark, bin, read_some, "route bigint, first bigint, step bigint, packed binary")
    sent = rows.repartition(bin.pieces, "route").sortWithinPartitions("route", "first", "step")
    done = [decode_outcome(row.outcome) for row in sent.mapInArrow(ForWorkers(write_some), "outcome string").collect()]
    files = [file for it in done for file in it.files]
    if problem := next((it.problem for it in done if it.problem), ""):
        table.store.delete_many([file.path for file in files])
        raise InvalidInputError(problem)
    return sorted(files, key=lambda file: file.path)


def _routes(spark: SparkSession, pieces: int) -> list[int]:
    """For each new file, a number that Spark's shuffle sends to a task of its own, if a few tries find such a number.

    Spark's shuffle hashes the number. Before 4.1, it has no other way to give each file a task of its own. A task may
    also write several files, which takes longer.
    """
    rows = spark.range(10 * pieces + 50).selectExpr("id", f"pmod(hash(id), {pieces}) AS task").collect()
    by_task: dict[int, int] = {}
    for row in rows:
        by_task.setdefault(row.task, row.id)
    others = (row.id for row in rows if by_task[row.task] != row.id)
    return [by_task[task] if task in by_task else next(others) for task in range(pieces)]
