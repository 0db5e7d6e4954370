"""Spark: batches, streams and changes of tables, by functions; the data source, SQL and unchanged code by `enable`.

A write goes from `write`, or the data source, to `job`, to `task` in the workers, and back to `job`, which commits.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dbio_commit.base.errors import AccessDeniedError, InvalidInputError, TableExistsError
from dbio_commit.base.options import Compression, Mode
from dbio_commit.commit.begin import look
from dbio_commit.commit.isolation import Isolation
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.streams import end_at, start_at
from dbio_commit.protocol.commits import AsOf, Commit
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.names import check_partition_columns
from dbio_commit.protocol.versions import AppVersion
from dbio_commit.spark import feed as streaming
from dbio_commit.spark.catalog import create_catalog_table
from dbio_commit.spark.committer import enable_parquet
from dbio_commit.spark.datasource import ChangedFiles, DbioDataSource, register_source, register_sources
from dbio_commit.spark.feed.changed_rows import changes_between, columns_of
from dbio_commit.spark.read.scan import scan
from dbio_commit.spark.rewrite.base import Rewrite
from dbio_commit.spark.rewrite.by_condition import replace_rows, update_rows
from dbio_commit.spark.rewrite.clauses import (
    UPSERT,
    Clause,
    Matched,
    NotMatched,
    NotMatchedBySource,
    when_matched,
    when_not_matched,
    when_not_matched_by_source,
)
from dbio_commit.spark.rewrite.compaction import in_tasks
from dbio_commit.spark.rewrite.merge import merge_rows
from dbio_commit.spark.session.conf import is_connect, open_table, raise_explained, store_settings
from dbio_commit.spark.session.errors import errors_of_workers
from dbio_commit.spark.ship.batches import Packing, arrow_batches, pack
from dbio_commit.spark.write.constraints import constrain as change_constraints
from dbio_commit.spark.write.constraints import rows_to_write
from dbio_commit.spark.write.file_sizes import balanced
from dbio_commit.spark.write.options import CommitOptions, WriteOptions, no_commit
from dbio_commit.spark.write.plan import plan_write
from dbio_commit.spark.write.written import Writing
from dbio_commit.store import parse_location
from dbio_commit.upkeep.compact.options import TARGET_BYTES, CompactOptions, column_names
from dbio_commit.upkeep.compact.report import CompactReport
from dbio_commit.upkeep.compact.run import compact as run_compaction

__all__ = [
    "Clause",
    "Matched",
    "NotMatched",
    "NotMatchedBySource",
    "batch_writer",
    "changes",
    "compact",
    "constrain",
    "delete",
    "enable",
    "for_each_batch",
    "merge",
    "read",
    "register",
    "update",
    "when_matched",
    "when_not_matched",
    "when_not_matched_by_source",
    "write",
    "write_stream",
]

Path = str | os.PathLike[str]


def write(
    df: DataFrame,
    path: Path,
    mode: Mode = "append",
    partition_by: str | Sequence[str] | None = None,
    app: AppVersion | None = None,
    *,
    if_tid: str | None = None,
    replace_where: str | None = None,
    isolation: Isolation = "write_serializable",
    retries: int = 0,
    compression: Compression = "snappy",
    max_records_per_file: int = 0,
    target_file_size: int | None = None,
    merge_schema: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Commit:
    """Writes the DataFrame as one atomic transaction, and returns its commit.

    `mode`: "append"; "overwrite" replaces all files; "overwrite_partitions" those of the partitions that the data falls
    into; "error" refuses a table that has commits, "ignore" leaves it as it is. `partition_by` is needed only when the
    table is created; an overwrite with others changes them ([] for none), which takes a minute more, and aborts
    whatever is pending. `app`, an (application id, version), is committed at most once: the result of a second write
    says `skipped`. A version that is a day or a time may come in any order; a number counts up, and one that was passed
    over raises AppVersionError. `if_tid`, the `Snapshot.tid` that the write goes by, is what nothing must have been
    committed since: else it fails with CommitConflictError. `replace_where`, a condition in Spark's SQL, makes an
    overwrite replace the rows for which it holds, and no others; it must hold for all of the data, and `isolation` is
    as in `delete`. `retries`: how often to write again, after a pause, where a commit of others was in the way.
    `target_file_size`, in bytes: the rows are shuffled, so that files of about that size come out, and one for each
    partition that has less.

    Without `merge_schema`, the data must have the table's columns, or narrower ones, which are cast; with it, it may
    also bring new columns and fields and wider types, and lack old ones, which are null in it.

    Raises InvalidInputError and SchemaMismatchError before anything is written, TableExistsError,
    CommitConflictError and TransactionAbortedError (nothing was committed: write again), CommitStateUnknownError
    (look for the tid first), StoreError.
    """
    _check_frame(df)
    if replace_where is not None and mode != "overwrite":
        raise InvalidInputError(f"replace_where goes with mode='overwrite', not with mode={mode!r:.100}")
    options = WriteOptions(
        compression=compression,
        max_records_per_file=max_records_per_file,
        merge_schema=merge_schema,
        target_file_size=target_file_size,
    )
    beside = CommitOptions(app=app, if_tid=if_tid, isolation=isolation, retries=retries)
    spark = df.sparkSession
    table = open_table(spark, path, storage_options)

    def attempt() -> Commit:
        plan = plan_write(
            table,
            df.schema,
            mode=mode if replace_where is None else "append",
            partition_by=partition_by,
            options=options,
            commit=beside,
        )
        if replace_where is not None:
            with balanced(df, plan) as rows:
                return replace_rows(Rewrite.of(spark, plan), replace_where, rows)
        with plan.begin() as transaction:
            writing = Writing(plan, transaction)
            with balanced(rows_to_write(df, plan) if plan.constraints else df, plan) as rows:
                if plan.constraints:
                    writing.write(rows)
                else:
                    writing.write_all(rows)
            return writing.commit({})

    try:
        return beside.attempt(table, attempt)
    except TableExistsError:
        if mode != "ignore":
            raise
        return no_commit(table, None)
    except AccessDeniedError as error:
        raise_explained(error, table, withheld=is_connect(spark))


def delete(
    spark: SparkSession,
    path: Path,
    where: str,
    *,
    app: AppVersion | None = None,
    if_tid: str | None = None,
    isolation: Isolation = "write_serializable",
    retries: int = 0,
    storage_options: Mapping[str, Any] | None = None,
) -> Commit:
    """Deletes the rows for which a condition in Spark's SQL holds; rows for which it is null stay.

    One commit: files without such rows stay as they are, files with nothing else go, the others are written again
    without those rows. Where the condition goes by partition columns alone, no data is read. Its metric
    `numDeletedRows` says how many rows went.

    Rows that others append meanwhile stay, unless `isolation` is "serializable": then they are a conflict where they
    may fulfil the condition, as what other rewrites and overwrites bring is always. `app` and `if_tid` are as in
    `write`. `retries`: how often to do it again, after a pause, where others were faster.

    Raises InvalidInputError, TableNotFoundError, CommitConflictError also where a file with such rows was rewritten or
    removed meanwhile (nothing was committed: delete again), and as `write`.
    """
    options = CommitOptions(app=app, if_tid=if_tid, isolation=isolation, retries=retries)
    return _rewrite(spark, path, storage_options, options, lambda rewrite: replace_rows(rewrite, where, None))


def update(
    spark: SparkSession,
    path: Path,
    values: Mapping[str, str],
    where: str = "true",
    *,
    app: AppVersion | None = None,
    if_tid: str | None = None,
    isolation: Isolation = "write_serializable",
    retries: int = 0,
    storage_options: Mapping[str, Any] | None = None,
) -> Commit:
    """Gives columns new values, expressions in Spark's SQL, in the rows for which a condition holds.

    One commit: files without such rows stay as they are, the others are written again. A value is fitted to its column
    as Spark's INSERT does; where one cannot be, such as a number that is too large, nothing is written. The metrics
    `numUpdatedRows` and `numCopiedRows` say how many rows changed, and how many were written again as they were.

    The options are those of `delete`, and so is what it raises; and SchemaMismatchError for a value of another type.
    """
    options = CommitOptions(app=app, if_tid=if_tid, isolation=isolation, retries=retries)
    return _rewrite(spark, path, storage_options, options, lambda rewrite: update_rows(rewrite, values, where))


def merge(
    spark: SparkSession,
    path: Path,
    source: DataFrame,
    on: str | Sequence[str],
    when: Sequence[Clause] = UPSERT,
    *,
    app: AppVersion | None = None,
    if_tid: str | None = None,
    isolation: Isolation = "write_serializable",
    retries: int = 0,
    storage_options: Mapping[str, Any] | None = None,
) -> Commit:
    """Merges the rows of `source` into the table: what matches is updated or deleted, what is new inserted.

    `on` is a condition in Spark's SQL on `target.` and `source.`, or a list of columns that must be equal. `when` says
    what becomes of rows, by `when_matched`, `when_not_matched` and `when_not_matched_by_source`; the first clause that
    holds for a row counts, and a row for which none does stays, or is left out. Without `when`, what matches is updated
    and the rest inserted. A row of the table that matches more than one of the source is refused, where its file is to
    be written again. The source is read once.

    One commit: files none of whose rows are changed stay as they are. Its metrics are `numTargetRowsInserted`,
    `numTargetRowsUpdated`, `numTargetRowsDeleted` and `numTargetRowsCopied`. Values are fitted as in `update`.

    The options are those of `delete`, and so is what it raises; and SchemaMismatchError for values of other types. With
    `app`, a merge of a stream's batch (`foreachBatch`) happens exactly once.
    """
    if not isinstance(source, DataFrame) or source.isStreaming:
        raise InvalidInputError(
            "dbio.merge takes a Spark DataFrame of a batch as its source; of a stream, merge each batch in foreachBatch"
        )
    options = CommitOptions(app=app, if_tid=if_tid, isolation=isolation, retries=retries)
    return _rewrite(spark, path, storage_options, options, lambda rewrite: merge_rows(rewrite, source, on, when))


def constrain(
    spark: SparkSession,
    path: Path,
    changes: Mapping[str, str],
    *,
    retries: int = 0,
    storage_options: Mapping[str, Any] | None = None,
) -> Commit:
    """Changes constraints, generated columns and defaults of a table; an empty text removes one.

    These are settings, such as `check.positive`, `not_null.id`, `generated.day` and `default.kind`, and other settings
    can be changed with them. What `Table.set` takes as it is, is tried out here: that Spark can ask it of the table's
    columns, and that the rows which are there keep it; files whose statistics tell so are not read.

    Raises InvalidInputError for what cannot be asked, and for rows that violate a constraint, with the number of these
    and an example; CommitConflictError where anything is committed meanwhile (`retries`: how often to do it again); and
    as `Table.set`.
    """
    options = CommitOptions(retries=retries)
    table = open_table(spark, path, storage_options)
    try:
        return options.attempt(table, lambda: change_constraints(spark, table, changes))
    except AccessDeniedError as error:
        raise_explained(error, table, withheld=is_connect(spark))


def _rewrite(
    spark: SparkSession,
    path: Path,
    storage_options: Mapping[str, Any] | None,
    options: CommitOptions,
    rewrite: Callable[[Rewrite], Commit],
) -> Commit:
    table = open_table(spark, path, storage_options)
    try:
        return options.attempt(table, lambda: rewrite(Rewrite.of_rows(spark, table, options)))
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


def write_stream(
    df: DataFrame,
    path: Path,
    checkpoint: Path,
    mode: Literal["append", "complete"] = "append",
    partition_by: str | Sequence[str] | None = None,
    app_id: str | None = None,
    *,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    compression: Compression = "snappy",
    max_records_per_file: int = 0,
    merge_schema: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Writes the stream to the table, each batch as one transaction, exactly once, and returns the query.

    As `df.writeStream.format("dbio")`, with the fastest settings for it. `checkpoint` is where Spark keeps how far the
    query is, `trigger` what `DataStreamWriter.trigger` takes, such as {"availableNow": True}. `app_id` names the stream
    in the table; without one, the query id in the checkpoint does. Mode "complete" replaces all rows with each batch.

    Raises InvalidInputError, and UnsupportedStoreError before Spark 4.1. What a batch raises ends the query.
    """
    if not isinstance(df, DataFrame) or not df.isStreaming:
        raise InvalidInputError(
            "dbio.write_stream takes a DataFrame of spark.readStream; write a batch with dbio.write"
        )
    if mode not in _MODES:
        raise InvalidInputError(f"mode {mode!r} is neither 'append' nor 'complete'")
    streaming.require_sink(os.fspath(path))
    spark = df.sparkSession
    register_source(spark, DbioDataSource, store_settings(spark))
    table = open_table(spark, path, storage_options)
    rows, settings = df, look(table.store, table.clock).metadata.settings
    if Constraints.of(settings):
        files = WriteOptions(merge_schema=merge_schema)
        commit = CommitOptions()
        plan = plan_write(table, df.schema, mode=_MODES[mode], partition_by=partition_by, options=files, commit=commit)
        rows = rows_to_write(df, plan)
    frame, packing = pack(rows, None if rows is df else settings)
    options: dict[str, Any] = {
        **({} if partition_by is None else {"partitionBy": ",".join(check_partition_columns(partition_by))}),
        "compression": compression,
        "maxRecordsPerFile": max_records_per_file,
        "mergeSchema": merge_schema,
        Packing.OPTION: packing.to_option(),
        **({"txnAppId": app_id} if app_id is not None else {}),
        **_secret(storage_options),
    }
    writer = frame.writeStream.format("dbio").outputMode(mode).options(**options)
    with arrow_batches(spark, rows.schema):  # the query keeps the settings that it starts with
        return _start(writer, checkpoint, trigger, name, path=_for_workers(path))


_MODES: Mapping[str, Mode] = {"append": "append", "complete": "overwrite"}


def batch_writer(path: Path, app_id: str, mode: Mode = "append", **options: Any) -> Callable[[DataFrame, int], None]:
    """For `df.writeStream.foreachBatch(…)`: writes each batch to the table exactly once, on any Spark.

    `app_id` names the stream in the table, for as long as its checkpoint lives: the number of a batch is its version.
    `options` are those of `write`.
    """

    def write_batch(df: DataFrame, batch: int) -> None:
        write(df, path, mode, app=(app_id, batch), **options)

    return write_batch


def for_each_batch(
    spark: SparkSession,
    path: Path,
    function: Callable[[DataFrame, int], None],
    checkpoint: Path,
    *,
    changes: bool = False,
    starting_tid: str | None = None,
    starting_time: datetime | str | None = None,
    max_files: int | None = None,
    max_bytes: int | None = None,
    skip_change_commits: bool = False,
    ignore_changes: bool = False,
    fail_on_data_loss: bool = True,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Calls the function with the new rows of the table, batch by batch, and with the batch's number.

    What a stream of `spark.readStream.format("dbio")` and `foreachBatch` would do, with rows that Spark itself reads,
    without the columns that are not used. With `changes`, the rows are those of a change feed. After a crash the
    function may be called again with the same rows and the same number: let it write with `app=(…, number)`.

    Raises as `read` does, and UnsupportedStoreError before Spark 4.2. What the function raises ends the query.
    """
    table = open_table(spark, path, storage_options)
    streaming.require_source(table.url)
    from dbio_commit.spark.feed.for_each import start_each, with_rows

    register_source(spark, ChangedFiles, store_settings(spark))
    options = {
        "startingTid": starting_tid,
        "startingTime": starting_time.isoformat() if isinstance(starting_time, datetime) else starting_time,
        "maxFilesPerTrigger": max_files,
        "maxBytesPerTrigger": max_bytes,
        "readChangeFeed": changes,
        "skipChangeCommits": skip_change_commits,
        "ignoreChanges": ignore_changes,
        "failOnDataLoss": fail_on_data_loss,
        **_secret(storage_options),
    }
    given = {option: value for option, value in options.items() if value is not None}
    with errors_of_workers():
        listed = spark.readStream.format(ChangedFiles.name()).options(**given).load(_for_workers(path))
    try:
        # After the load: were the columns changed in between, the stream would find that.
        schema = columns_of(Follower(table.store, table.clock).history())
    except AccessDeniedError as error:
        raise_explained(error, table, withheld=is_connect(spark))
    call = with_rows(function, table.url, table.storage_options, schema, changes=changes)
    return start_each(spark, listed.writeStream, call, lambda writer: _start(writer, checkpoint, trigger, name))


def changes(
    spark: SparkSession,
    path: Path,
    start: datetime | str,
    end: AsOf = None,
    *,
    net: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The rows that came and went with the commits from `start` to `end`, both included, each a time or a tid.

    With the columns that the table had at the end, and `_change_type` ("insert" or "delete"; "update_preimage" and
    "update_postimage" of rewrites with the setting `change_data`), `_commit_tid` and `_commit_timestamp`. A commit that
    rewrites files takes rows away and brings most of them back; with `net`, those are left out. Raises
    HistoryLostError where vacuum has deleted what it takes, InvalidInputError also where an overwrite in between made a
    type another one, StoreError.
    """
    table = open_table(spark, path, storage_options)
    try:
        return changes_between(spark, table, start_at(start), end_at(end), net=net)
    except AccessDeniedError as error:
        raise_explained(error, table, withheld=is_connect(spark))


def compact(
    spark: SparkSession,
    path: Path,
    target_size: int = TARGET_BYTES,
    where: str | None = None,
    sort_by: str | Sequence[str] = (),
    dry_run: bool = False,
    *,
    z_order: str | Sequence[str] = (),
    min_files: int = 1,
    storage_options: Mapping[str, Any] | None = None,
) -> CompactReport:
    """As `Table.compact`, by Spark's tasks: each writes new files, of the rows of small ones in the same partition."""
    table = open_table(spark, path, storage_options)
    table.refuse_partition()
    compact_options = CompactOptions(
        target_size=target_size,
        where=where,
        sort_by=column_names(sort_by),
        z_order=column_names(z_order),
        min_files=min_files,
    )
    try:
        return run_compaction(
            table.store,
            table.clock,
            compact_options,
            dry_run=dry_run,
            time_zone=spark.conf.get("spark.sql.session.timeZone"),
            hands=in_tasks(spark, table),
        )
    except AccessDeniedError as error:
        raise_explained(error, table, withheld=is_connect(spark))


def _for_workers(path: Path) -> str:
    """The path for processes that are at work in other directories than ours, with a scheme: it is known what it is."""
    location = parse_location(path)
    return location.hadoop_url() if location.scheme == "file" else os.fspath(path)


def _secret(storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    return {"secretStorageOptions": json.dumps(dict(storage_options))} if storage_options else {}


def _start(
    writer: DataStreamWriter, checkpoint: Path, trigger: Mapping[str, Any] | None, name: str | None, **options: str
) -> StreamingQuery:
    writer = writer.option("checkpointLocation", os.fspath(checkpoint))
    if trigger:
        writer = writer.trigger(**trigger)
    if name is not None:
        writer = writer.queryName(name)
    return writer.start(**options)


def enable(spark: SparkSession, *, parquet: bool = False, roots: Path | Sequence[Path] = ()) -> None:
    """Registers the data source "dbio" and the table functions `dbio_files` and `dbio_history` with the session.

    The session's credentials for object stores are taken along as they are now. Spark looks for data sources in the
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
            "dbio.write takes a batch, and this DataFrame is a stream: use dbio.write_stream(stream, path, checkpoint)"
        )
