"""Spark: `write`, `read`, `enable` and `register`.

A write goes from `write`, or the data source, to `job`, to `task` in the workers, and back to `job`, which commits.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dbio_commit.begin import has_committed
from dbio_commit.errors import AccessDeniedError, InvalidInputError, TableExistsError
from dbio_commit.options import Compression, Mode
from dbio_commit.protocol.commits import AsOf, Commit
from dbio_commit.spark.batches import arrow_batches, pack
from dbio_commit.spark.catalog import create_catalog_table
from dbio_commit.spark.committer import enable_parquet
from dbio_commit.spark.datasource import register_sources
from dbio_commit.spark.job import WriteOptions, errors_of_workers, no_commit, plan_write
from dbio_commit.spark.scan import scan
from dbio_commit.spark.session import is_connect, open_table, raise_explained
from dbio_commit.spark.task import RESULT_SCHEMA, map_in_arrow

__all__ = ["enable", "read", "register", "write"]

Path = str | os.PathLike[str]


def write(
    df: DataFrame,
    path: Path,
    mode: Mode = "append",
    partition_by: str | Sequence[str] = (),
    app: tuple[str, int] | None = None,
    *,
    compression: Compression = "snappy",
    max_records_per_file: int = 0,
    merge_schema: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Commit:
    """Writes the DataFrame as one atomic transaction, and returns its commit.

    `mode`: "append"; "overwrite" replaces all files; "overwrite_partitions" those of the partitions that the data
    falls into; "error" refuses a table that has commits, "ignore" leaves it as it is. `partition_by` is needed only
    when the table is created. `app`, an (application id, version), is committed at most once: the result of a second
    write says `skipped`.

    Without `merge_schema`, the data must have the table's columns, or narrower ones, which are cast; with it, it may
    also bring new columns and fields and wider types, and lack old ones, which are null in it.

    Raises InvalidInputError and SchemaMismatchError before anything is written, TableExistsError,
    CommitConflictError and TransactionAbortedError (nothing was committed: write again), CommitStateUnknownError
    (look for the tid first), StoreError.
    """
    _check_frame(df)
    options = WriteOptions(
        compression=compression, max_records_per_file=max_records_per_file, merge_schema=merge_schema
    )
    spark = df.sparkSession
    table = open_table(spark, path, storage_options)
    try:
        if has_committed(table.store, table.clock, app):
            return no_commit(table, app)
        plan = plan_write(table, df.schema, mode=mode, partition_by=partition_by, app=app, options=options)
        job = plan.begin()
        with job.transaction() as transaction:
            with arrow_batches(spark, df.schema), errors_of_workers():
                frame, packing = pack(df)
                rows = frame.mapInArrow(map_in_arrow(job.spec, packing.unpack), RESULT_SCHEMA).collect()
            return job.commit(transaction, (row.file for row in rows))
    except TableExistsError:
        if mode != "ignore":
            raise
        return no_commit(table, None)
    except AccessDeniedError as error:
        raise_explained(error, table, withheld=is_connect(spark))


def read(
    spark: SparkSession,
    path: Path,
    as_of: AsOf = None,
    *,
    where: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The table's committed rows as of now, or of a time (aware, or ISO 8601 text), or of the commit with a tid.

    The DataFrame is pinned to that snapshot: later commits do not show, however often it is used. `where`, in Spark's
    SQL, is the same as `.where(…)` on the result, but Spark never hears of files that by their partition, or by the
    statistics in the markers, hold no such row; the log (INFO) says how many those are. Raises TableNotFoundError,
    CorruptMarkerError, InvalidInputError, StoreError, and Spark's errors for what is wrong in `where`.
    """
    if isinstance(spark, str | os.PathLike):
        raise InvalidInputError("dbio.read takes the Spark session first: dbio.read(spark, path)")
    table = open_table(spark, path, storage_options)
    try:
        return scan(spark, table, table.snapshot(as_of), where=where)
    except AccessDeniedError as error:
        raise_explained(error, table, withheld=is_connect(spark))


def enable(spark: SparkSession, *, parquet: bool = False, roots: Path | Sequence[Path] = ()) -> None:
    """Registers the data source "dbio" and the table functions `dbio_files` and `dbio_history` with the session.

    The session's credentials for S3 and Azure are taken along as they are now. Spark looks for data sources in the
    session that is active in a thread: call it in each thread that uses this one, and for each `newSession()`.

    With `parquet`, what the session writes as Parquet to a table of ours, or to anything below one of the `roots`, is
    a transaction: `df.write.parquet`, `saveAsTable`, INSERT, CREATE TABLE … AS SELECT. That holds for all threads, and
    for the sessions that the application makes later. Raises UnsupportedStoreError where Spark cannot do so: over
    Connect, for one.
    """
    if roots and not parquet:
        raise InvalidInputError("roots are for what is written as Parquet: call dbio.enable(spark, parquet=True, …)")
    register_sources(spark)
    if parquet:
        enable_parquet(spark, [roots] if isinstance(roots, str | os.PathLike) else roots)


def register(spark: SparkSession, name: str, path: Path, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Makes a table of Spark's catalog over the table at the path, such as "sales.events", for SQL.

    The table is set to be published for Spark after each commit, so SELECT sees what was committed: at once what this
    session commits by SQL or `df.write` after `enable(parquet=True)`, and after REFRESH TABLE what others do. Raises
    TableNotFoundError, InvalidInputError for a directory without a descriptor and for a table without columns, and
    Spark's errors, such as where the name is taken.
    """
    table = open_table(spark, path, storage_options)
    try:
        create_catalog_table(spark, name, table)
    except AccessDeniedError as error:
        raise_explained(error, table, withheld=is_connect(spark))


def _check_frame(df: object) -> None:
    """Raises InvalidInputError for what is no DataFrame of Spark's, or not of a batch."""
    if not isinstance(df, DataFrame):
        kind = f"{type(df).__module__.partition('.')[0]}.{type(df).__name__}"
        raise InvalidInputError(
            f"dbio.write takes a Spark DataFrame, not a {kind}; make one of it with spark.createDataFrame(…), or write "
            "without Spark in a transaction of dbio.Table(path).begin()"
        )
    if df.isStreaming:
        raise InvalidInputError(
            "dbio.write takes a batch, and this DataFrame is a stream; write each of its batches: "
            'stream.writeStream.foreachBatch(lambda df, id: dbio.write(df, path, app=("name of the query", id)))'
        )
