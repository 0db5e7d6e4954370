"""Writes a DataFrame as one transaction, for `dbio.write` and for INSERT."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from dbio_commit.base.options import Mode
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.write.options import WriteOptions, no_commit
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.settings import Settings
from dbio_commit.spark.read.states import NO_READS, Reads, attempt, once
from dbio_commit.spark.rewrite.base import Rewrite
from dbio_commit.spark.rewrite.by_condition import replace_rows
from dbio_commit.spark.sql.planned import Named, Sql, as_they_are
from dbio_commit.spark.write.constraints import check_settings, rows_to_write
from dbio_commit.spark.write.file_sizes import balanced
from dbio_commit.spark.write.plan import plan_write
from dbio_commit.spark.write.written import Writing
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
    """Writes the rows in this mode; or with `replaced`, a condition, in the place of the rows for which it holds.

    `named` and `snapshot` are as in `Rewrite.of`, `sets` as in `plan_write`, and `fills_nulls` as in `rows_to_write`,
    without `replaced`. With `only_rows`, data without rows is no commit, and the result is `skipped`.

    `reads` is what the data and the condition read; by default what the data reads. If that is the table itself, and
    the write is no append, it commits only if the table has not changed since. Raises what `dbio.write` raises.
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
            sets=sets,
        )
        if sets:
            check_settings(spark, plan)
        if replaced is not None:
            with balanced(data, plan) as rows:
                rewrite = Rewrite.of(spark, plan, named=named, snapshot=snapshot, reads=reads)
                return replace_rows(rewrite, replaced, rows)
        etags = reads.of_table(plan.table_id)
        with once(etags), plan.based_on(etags).begin() as transaction:
            writing = Writing(plan, transaction)
            checked = rows_to_write(data, plan, fills_nulls=fills_nulls) if plan.constraints else data
            with balanced(checked, plan) as rows:
                if plan.constraints:
                    writing.write(rows)
                else:
                    writing.write_all(rows)
            if only_rows and not writing.has_files:
                transaction.abort()
                return no_commit(table.store, table.clock, None)
            return writing.commit({})

    return attempt(spark, commit, table, write)
