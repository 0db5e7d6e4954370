"""Compaction by Spark's tasks: Python code in each task writes new files, without a shuffle.

Only the rows of several new files of a table with `cluster_by` need a shuffle (`clustering`).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from dbio_commit.commit.provenance import NO_NOTE, Note
from dbio_commit.maintenance.compact.options import MOST_BYTES_IN_SPARK, CompactOptions
from dbio_commit.maintenance.compact.plan import Bin
from dbio_commit.maintenance.compact.reading import Work
from dbio_commit.maintenance.compact.report import CompactReport
from dbio_commit.maintenance.compact.rewrite import BinOutcome, decode_outcome, encode_outcome, rewrite
from dbio_commit.maintenance.compact.run import Rewriter, compact
from dbio_commit.spark.rewrite.clustering import cluster_in_tasks
from dbio_commit.spark.session.conf import parallelism
from dbio_commit.spark.session.errors import errors_of_workers
from dbio_commit.spark.session.worker import ForWorkers
from dbio_commit.table import Table

_TASKS = 8
"""At most so many tasks for each core: a new file takes about a second, and a task a few milliseconds."""


def compact_in_tasks(
    spark: SparkSession, table: Table, options: CompactOptions, *, dry_run: bool, note: Note = NO_NOTE
) -> CompactReport:
    """Compacts the table, as `Table.compact` does, with Spark's tasks. Raises what that raises."""
    table.refuse_partition()
    return compact(
        table.store,
        table.clock,
        options,
        dry_run=dry_run,
        time_zone=spark.conf.get("spark.sql.session.timeZone"),
        rewriter=in_tasks(spark, table),
        note=note,
        most=MOST_BYTES_IN_SPARK,
    )


def in_tasks(spark: SparkSession, table: Table) -> Rewriter:
    """A function that rewrites bins in Spark's tasks. Each task opens the table."""

    def rewriter(work: Work, bins: Sequence[Bin]) -> Sequence[BinOutcome]:
        def rewrite_some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None, "runs in Spark's workers only"
            store, attempt = table.store, context.taskAttemptId()
            for batch in batches:
                places: list[Any] = batch.column(0).to_pylist()
                given = [alone[it] for it in places]
                outcomes = [rewrite(store, work, bins[it], number=it, attempt=attempt) for it in given]
                yield pa.record_batch([pa.array(map(encode_outcome, outcomes), pa.string())], names=["outcome"])

        alone = [number for number, bin in enumerate(bins) if bin.pieces == 1]
        rows: list[Any] = []
        if alone:
            with errors_of_workers():
                numbers = spark.range(0, len(alone), 1, min(len(alone), _TASKS * parallelism(spark)))
                rows = numbers.mapInArrow(ForWorkers(rewrite_some), "outcome string").collect()
        return [
            *(decode_outcome(row.outcome) for row in rows),
            *(
                cluster_in_tasks(spark, table, work, bin, number=number)
                for number, bin in enumerate(bins)
                if bin.pieces > 1
            ),
        ]

    return rewriter
