"""Writes a DataFrame as one transaction, for `dbio.write` and for INSERT."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql.types import NullType

from dbio_commit.base.options import Mode
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.write.options import WriteOptions, no_commit
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.settings import Settings
from dbio_commit.spark.read.states import NO_READS, Reads, attempt, once
from dbio_commit.spark.rewrite.base import Rewrite
from dbio_commit.spark.rewrite.by_condition import replace_rows
from dbio_commit.spark.session.held import holding
from dbio_commit.spark.session.schema import quoted
from dbio_commit.spark.sql.planned import Named, Sql, as_they_are
from dbio_commit.spark.versions import rebalanced
from dbio_commit.spark.write.constraints import check_settings, rows_to_write
from dbio_commit.spark.write.plan import WritePlan, plan_write
from dbio_commit.spark.write.run import Writing
from dbio_commit.table import Table


def write_frame(
    data: DataFrame,
    table: Table,
    *,
    mode: Mode,
    partition_by: str | Sequence[str] | None,
    options: WriteOptions,
    commit: CommitOptions,
    replaced: Sql | None = None,
    named: Named = as_they_are,
    snapshot: Snapshot | None = None,
    reads: Reads | None = None,
    sets: Settings | None = None,
    only_rows: bool = False,
    fills_nulls: bool = False,
) -> Commit:
    """Writes the rows in this mode. With a condition `replaced`, they replace the rows for which it holds.

    `named` and `snapshot` are as in `Rewrite.of`, `sets` as in `plan_write`, and `fills_nulls` as in `rows_to_write`.
    With `only_rows`, data without rows makes no commit, and the result is `skipped`.

    `reads` has the states that the data and the condition read; by default, those that the data reads. If the table
    itself is among them, the write commits only if the table has not changed since, or if the write is an append.
    Raises what `dbio.write` raises.
    """
    spark = data.sparkSession
    if mode == "append":
        reads = NO_READS
    elif reads is None:
        reads = Reads.of(data)

    def write() -> Commit:
        plan = plan_write(
            table,
            data.schema,
            mode=mode if replaced is None else "append",
            partition_by=partition_by,
            options=options,
            commit=commit,
            rewrites=replaced is not None,
            sets=sets,
        )
        if sets:
            check_settings(spark, plan)
        if replaced is not None:
            with _balanced(data, plan) as rows:
                rewrite = Rewrite.of(spark, plan, named=named, snapshot=snapshot, reads=reads)
                return replace_rows(rewrite, replaced, rows, fills_nulls=fills_nulls)
        etags = reads.of_table(plan.table_id)
        with once(etags), plan.based_on(etags).begin() as transaction:
            writing = Writing(plan, transaction)
            checked = rows_to_write(data, plan, fills_nulls=fills_nulls) if plan.constraints else data
            with _balanced(checked, plan) as rows:
                if plan.constraints:
                    writing.write(rows)
                else:
                    writing.write_all(rows)
            if only_rows and not writing.has_files:
                transaction.abort()
                return no_commit(table.store, table.clock, None)
            return writing.commit({})

    return attempt(spark, commit, table, write)


_SHUFFLED = 3
"""Bytes of a shuffle for each byte of Parquet: 1.2 were measured for random numbers, 1.5 for numbers, 4 and more for
texts that repeat. The value is high, as a task cuts a file that would be too large, and nothing joins small files."""


@contextmanager
def _balanced(df: DataFrame, plan: WritePlan) -> Iterator[DataFrame]:
    """The rows to write within the block, in which the session balances shuffles for files of `target_file_size`.

    A task gets rows of a partition for about one file, and cuts them if they make more. Spark measures a shuffle in
    bytes of its own format, which differ much from those of Parquet. Without `target_file_size`, rows are not shuffled.
    """
    target = plan.options.target_file_size
    if target is None:
        yield df
        return
    partition = {name.lower() for name in plan.mapping.partition_columns}
    columns = [
        quoted(field.name)
        for field in df.schema.fields
        if field.name.lower() in partition and not isinstance(field.dataType, NullType)
    ]
    with holding(df.sparkSession, {**_BALANCED, _SIZE: _SHUFFLED * target}):
        yield rebalanced(df, columns)  # Spark drops the hint at once in a session that is not adaptive


_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_BALANCED = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",  # else there is a task for each core
    "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "true",
}
