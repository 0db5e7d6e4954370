"""The functions for Spark that `dbio_commit` exports, with their signatures and docstrings.

This module can be imported without PySpark. Each function imports what it needs when it is called, and raises
MissingPackageError if PySpark is not installed.
"""

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack

from dbio_commit.base.arguments import check_flags
from dbio_commit.base.errors import AccessDeniedError, InvalidInputError, TableExistsError
from dbio_commit.base.logs import warn_caller
from dbio_commit.base.options import Mode, check_replaced, plain_mode
from dbio_commit.base.packages import is_of, needs
from dbio_commit.commit.begin import look
from dbio_commit.commit.options import (
    CommitKeywords,
    CommitOptions,
    NoteKeywords,
    RetryKeywords,
    note_texts,
    takes_options,
)
from dbio_commit.commit.write.clauses import UPSERT, Clause, check_clauses, refuse_unknown
from dbio_commit.commit.write.options import (
    StreamKeywords,
    WriteKeywords,
    checked,
    no_commit,
    takes_write_options,
    with_retries,
)
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.streams import end_at, start_at
from dbio_commit.maintenance.compact.options import TARGET_BYTES, CompactOptions, column_names
from dbio_commit.maintenance.compact.report import CompactReport
from dbio_commit.protocol.commits import AsOf, Commit
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.names import check_partition_columns
from dbio_commit.spark.catalog.roots import Path
from dbio_commit.store import parse_location
from dbio_commit.table import Table, snapshots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from dbio_commit.data.conditions.terms import Where
    from dbio_commit.maintenance.erase.report import EraseReport
    from dbio_commit.spark.read.states import Reads
    from dbio_commit.spark.rewrite.base import Rewrite

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _takes_session(without: str = "") -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """For a function whose first arguments are the session and mostly a path: it says so if it gets others. `without`
    is the call that needs no Spark."""

    def wrap(function: Callable[_P, _R]) -> Callable[_P, _R]:
        name, (_, second, *_) = f"dbio.{function.__name__}", inspect.signature(function).parameters
        call = f"{name}(spark)" if second == "parquet" else f"{name}(spark, {second}, …)"

        @functools.wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            given: Any = args[0] if args else kwargs.get("spark")
            is_other = is_of("pyspark", given) and not _is_session(given)
            is_none = given is None and sys.modules.get("pyspark") is not None  # else the package is what is missing
            if is_none or is_other or isinstance(given, str | os.PathLike | Table):
                advice = f"; without Spark, call {without}" if without else ""
                raise InvalidInputError(f"{name} takes the Spark session first: {call}{advice}")
            if second == "path" and is_of("pyspark", args[1] if len(args) > 1 else None):
                raise InvalidInputError(f"{name} takes the path after the Spark session: {call}")
            return function(*args, **kwargs)

        return wrapper

    return wrap


def _is_session(value: object) -> bool:
    """By the name of its class: over Connect, a DataFrame seems to have each attribute, as a column."""
    return is_of("pyspark", value) and any(kind.__name__ == "SparkSession" for kind in type(value).__mro__)


@takes_write_options
def write(
    df: Any,
    path: Path,
    mode: Mode = "append",
    partition_by: str | Sequence[str] | None = None,
    *,
    replace_where: "Where | None" = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[WriteKeywords],
) -> Commit:
    """Writes the DataFrame as one atomic transaction, and returns its commit.

    `df` is a DataFrame of PySpark. It may also be any frame that `Table.write` takes, such as one of pandas, Polars or
    Arrow: that is written in this process, without Spark.

    - `mode`: "append" adds the rows; "overwrite" replaces all rows; "overwrite_partitions" replaces the rows of the
      partitions that the data falls into; "error" (or "errorifexists") refuses a table that has commits, and
      "ignore" leaves it as it is.
    - `partition_by`: the partition columns, needed only when the table is created. An overwrite with other columns
      changes them ([] for none). Such a commit takes a minute more, and aborts every pending transaction.
    - `replace_where`: a condition in Spark's SQL. With mode "overwrite", only rows for which it holds are replaced. It
      must hold for all rows of the data. Without Spark, it is as in `Table.delete`, in SQL or as a list.
    - `storage_options`: options of fsspec for the store, instead of the session's settings. Without a session, what
      they leave out comes from the environment.

    If rows of the DataFrame are read from the table itself, as it is now, and the mode replaces rows, nothing is
    committed if others have changed the table since: make the DataFrame again. `retries` does not help then.

    Options of the files and of the commit: `WriteKeywords`.

    Raises InvalidInputError and SchemaMismatchError before anything is written; AppVersionError for a number lower
    than a committed one; TableExistsError; CommitConflictError and TransactionAbortedError if nothing was committed:
    write again; CommitStateUnknownError: look for the tid first; StoreError; MissingPackageError.

        commit = dbio.write(df, "s3://lake/events", partition_by=["day"], app=("nightly", date(2026, 11, 20)))
    """
    if isinstance(df, str | os.PathLike):
        raise InvalidInputError("dbio.write takes the rows first: dbio.write(frame, path)")
    if _is_session(df):
        raise InvalidInputError("dbio.write takes no Spark session: dbio.write(df, path)")
    if not is_of("pyspark", df):
        return Table(path, storage_options).write(df, mode, partition_by, replace_where=replace_where, **options)
    with needs("dbio.write", extra="spark"):
        from dbio_commit.spark.rewrite.frame import write_frame
        from dbio_commit.spark.session.conf import open_table

    _refuse_stream(df)
    check_replaced(mode, replace_where)
    if not isinstance(replace_where, str | None):
        raise InvalidInputError(
            f"replace_where={replace_where!r:.100} is no text: for a DataFrame of PySpark, give Spark's SQL"
        )
    mode = plain_mode(mode)
    files, commit = checked(options)
    spark = df.sparkSession
    table = open_table(spark, path, storage_options)

    try:
        with _explained(spark, table):
            return write_frame(
                df,
                table,
                mode=mode,
                partition_by=partition_by,
                options=files,
                commit=commit,
                replaced=replace_where,
            )
    except TableExistsError:
        if mode != "ignore":
            raise
        return no_commit(table.store, table.clock, None)


@_takes_session("dbio.Table(path).delete(where)")
@takes_options
def delete(
    spark: "SparkSession",
    path: Path,
    where: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **commit: Unpack[CommitKeywords],
) -> Commit:
    """Deletes the rows for which a condition in Spark's SQL holds; rows for which it is null stay.

    One commit. Files without such rows stay as they are, files with only such rows are removed, and other files are
    written again without those rows. If the condition is about partition columns alone, no data is read. The metric
    `numDeletedRows` of the commit counts the rows.

    Options of the commit: `CommitKeywords`.

    Raises InvalidInputError; TableNotFoundError; CommitConflictError, also if a file with such rows was rewritten or
    removed meanwhile (nothing was committed: delete again); and what `write` raises.

        dbio.delete(spark, "s3://lake/events", "day < '2025-01-01'", retries=3)
    """
    with needs("dbio.delete", extra="spark"):
        from dbio_commit.spark.rewrite.by_condition import replace_rows

    options = CommitOptions(**commit)
    return _rewrite(spark, path, storage_options, options, lambda rewrite: replace_rows(rewrite, where, None))


@_takes_session("dbio.Table(path).update(…)")
@takes_options
def update(
    spark: "SparkSession",
    path: Path,
    updates: Mapping[str, Any] | None = None,
    where: str = "true",
    *,
    values: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **commit: Unpack[CommitKeywords],
) -> Commit:
    """Gives columns new values in the rows for which a condition in Spark's SQL holds.

    - `updates`: by column, a text with an expression in Spark's SQL, or a value of Python that is no text.
    - `values`: by column, a value of Python. Here a text is the value itself.
    - `where`: a condition; by default, all rows change.

    One commit: files without such rows stay as they are, and other files are written again. An expression is fitted to
    its column as Spark's INSERT does. If a value cannot be fitted, such as a number that is too large, nothing is
    written. The metrics `numUpdatedRows` and `numCopiedRows` of the commit
    count the rows that changed, and the rows that were written again without a change.

    Options of the commit: `CommitKeywords`.

    Raises what `delete` raises, and SchemaMismatchError for a value of another type.

        dbio.update(spark, "s3://lake/events", {"kind": "upper(kind)", "share": 0.5}, "kind = 'click'")
        dbio.update(spark, "s3://lake/events", values={"kind": "click"}, where="kind = 'clik'")
    """
    with needs("dbio.update", extra="spark"):
        from dbio_commit.commit.write.update import as_sql, new_values
        from dbio_commit.spark.rewrite.by_condition import update_rows

    options = CommitOptions(**commit)
    new = new_values(updates, values)
    return _rewrite(
        spark,
        path,
        storage_options,
        options,
        lambda rewrite: update_rows(rewrite, as_sql(new, rewrite.plan.mapping.schema), where),
    )


@_takes_session("dbio.Table(path).merge(frame, on)")
@takes_options
def merge(
    spark: "SparkSession",
    path: Path,
    source: "DataFrame",
    on: str | Sequence[str],
    when: Sequence[Clause] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **commit: Unpack[CommitKeywords],
) -> Commit:
    """Merges the rows of `source` into the table: updates or deletes rows that match, and inserts new rows.

    `on` is a column, or a list of columns, that must be equal; or a condition in Spark's SQL on `target.` and
    `source.`. `when` is a list of clauses, made by `when_matched`, `when_not_matched` and `when_not_matched_by_source`.
    The first clause that holds for a row counts. If no clause holds, a row of the table stays, and a row of the source
    is left out. Without `when`, rows that match are updated, and the others are inserted; then the source may have no
    columns that the table lacks. If a row of the table matches more than one row of the source, and its file must be
    written again, the merge fails, unless the only clause for rows that match is a `delete` without a condition. The
    source is read once.

    One commit: files without changed rows stay as they are. Its metrics are `numTargetRowsInserted`,
    `numTargetRowsUpdated`, `numTargetRowsDeleted` and `numTargetRowsCopied`. Values are fitted as in `update`. With
    `app`, the merge of a batch of a stream (`foreachBatch`) happens exactly once.

    Options of the commit: `CommitKeywords`.

    Raises what `delete` raises, and SchemaMismatchError for values of other types.

        dbio.merge(spark, "s3://lake/users", changes, on=["id"], when=[
            dbio.when_matched("source.deleted").delete(),
            dbio.when_matched().update(),
            dbio.when_not_matched().insert(),
        ])
    """
    with needs("dbio.merge", extra="spark"):
        from dbio_commit.commit.write.update import as_sql, new_values
        from dbio_commit.spark.read.states import Reads
        from dbio_commit.spark.rewrite.merge import merge_rows
        from dbio_commit.spark.versions import is_frame, require_merge

    if not is_frame(source) or source.isStreaming:
        raise InvalidInputError(
            "dbio.merge takes a Spark DataFrame of a batch as its source; of a stream, merge each batch in foreachBatch"
        )
    require_merge(source)
    options = CommitOptions(**commit)
    if isinstance(on, str) and on.lower() in map(str.lower, source.columns):
        on = [on]

    def run(rewrite: "Rewrite") -> Commit:
        if when is None:
            refuse_unknown(source.columns, rewrite.schema.fieldNames(), where=rewrite.table.url)
        clauses = [
            it
            if it.values is None
            else replace(it, values=as_sql(new_values(it.values, None), rewrite.plan.mapping.schema))
            for it in check_clauses(UPSERT if when is None else when)
        ]
        return merge_rows(rewrite, source, on, clauses)

    return _rewrite(spark, path, storage_options, options, run, Reads.of(source))


@_takes_session("dbio.Table(path).set(settings)")
@takes_options
def constrain(
    spark: "SparkSession",
    path: Path,
    changes: Mapping[str, str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    **commit: Unpack[RetryKeywords],
) -> Commit:
    """Changes constraints, generated columns and defaults of a table; an empty text removes one.

    These are settings, such as `check.positive`, `not_null.id`, `generated.day` and `default.kind`. Other settings can
    be changed in the same call. Unlike `Table.set`, this checks that Spark can evaluate each expression on the table's
    columns, and that the existing rows keep each constraint. Files whose statistics prove that are not read.

    Options of the commit: `RetryKeywords`.

    Raises InvalidInputError for an expression that cannot be evaluated, and for rows that violate a constraint, with
    their number and an example; CommitConflictError if anything is committed meanwhile; and what `Table.set` raises.

        dbio.constrain(spark, "s3://lake/events", {"check.positive": "amount > 0", "not_null.id": "true"})
    """
    with needs("dbio.constrain", extra="spark"):
        from dbio_commit.spark.session.conf import open_table
        from dbio_commit.spark.write.constraints import constrain as change_constraints

    options = CommitOptions(**commit)
    table = open_table(spark, path, storage_options)
    with _explained(spark, table):
        return with_retries(
            options,
            table.store,
            table.clock,
            lambda: change_constraints(spark, table, changes, note=options.note(table.run)),
        )


@_takes_session("dbio.Table(path).to_pandas()")
def read(
    spark: "SparkSession",
    path: Path,
    as_of: AsOf = None,
    *,
    where: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> "DataFrame":
    """The committed rows of the table: now, as of a time (aware, or ISO 8601 text), or as of the commit with a tid.

    The DataFrame is pinned to that snapshot: it does not show later commits, however often it is used. `where`, in
    Spark's SQL, has the same result as `.where(…)` on the DataFrame, but files that cannot match, by their partition or
    their recorded statistics, are not given to Spark; the log (INFO) counts them.

    Raises TableNotFoundError, CorruptMarkerError, InvalidInputError, StoreError, MissingPackageError, and Spark's
    errors for a wrong `where`.

        dbio.read(spark, "s3://lake/events", as_of="2026-11-20T00:00:00Z", where="day >= '2026-11-01'")
    """
    with needs("dbio.read", extra="spark"):
        from dbio_commit.spark.read.scan import scan
        from dbio_commit.spark.session.conf import open_table

    table = open_table(spark, path, storage_options)
    with _explained(spark, table):
        return scan(spark, table, table.snapshot(as_of), where=where, is_now=as_of is None)


@_takes_session("dbio.snapshots(paths)")
def read_together(
    spark: "SparkSession",
    paths: Sequence[Path],
    as_of: datetime | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> "list[DataFrame]":
    """The committed rows of several tables at one moment: now, or as of a time (aware, or ISO 8601 text).

    `snapshots` explains the moment. Each DataFrame is pinned to it, as one of `read` is. They come in the order of the
    paths. Raises what `snapshots` and `read` raise.

        orders, customers = dbio.read_together(spark, ["s3://lake/orders", "s3://lake/customers"])
        orders.join(customers, "customer").groupBy("country").count().show()
    """
    with needs("dbio.read_together", extra="spark"):
        from dbio_commit.spark.read.scan import scan
        from dbio_commit.spark.session.conf import open_table

    if isinstance(paths, str | os.PathLike):
        raise InvalidInputError("dbio.read_together takes a list of paths; dbio.read reads one table")
    tables = [open_table(spark, path, storage_options) for path in paths]
    if not tables:
        return []
    with _explained(spark, tables[0]):
        found = snapshots(tables, as_of)
        return [scan(spark, *it, is_now=as_of is None) for it in zip(tables, found, strict=True)]


@takes_write_options
def write_stream(
    df: "DataFrame",
    path: Path,
    checkpoint: Path,
    mode: Literal["append", "complete"] = "append",
    partition_by: str | Sequence[str] | None = None,
    app_id: str | None = None,
    *,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **given: Unpack[StreamKeywords],
) -> "StreamingQuery":
    """Writes the stream to the table, each batch as one transaction, exactly once, and returns the query.

    This is `df.writeStream.format("dbio")` with the fastest settings for it.

    - `checkpoint`: where Spark keeps the progress of the query.
    - `mode`: "append" adds the rows of each batch; "complete" replaces all rows with each batch.
    - `app_id`: the name of the stream in the table; by default the query id in the checkpoint.
    - `trigger`: what `DataStreamWriter.trigger` takes, such as {"availableNow": True}.
    - `name`: the name of the query in Spark.
    - `partition_by` and `storage_options` are as in `write`.

    Options of the files and of the commits: `StreamKeywords`.

    Raises InvalidInputError, MissingPackageError, and UnsupportedStoreError before Spark 4.1. What a batch raises ends
    the query.

        dbio.write_stream(clicks, "s3://lake/clicks", "s3://lake/checkpoints/clicks").awaitTermination()
    """
    with needs("dbio.write_stream", extra="spark"):
        from dbio_commit.spark import feed as streaming
        from dbio_commit.spark.session.conf import open_table, store_settings
        from dbio_commit.spark.transfer.batches import Packing, arrow_batches, pack
        from dbio_commit.spark.versions import is_frame
        from dbio_commit.spark.write.constraints import rows_to_write
        from dbio_commit.spark.write.plan import plan_write

    if not is_frame(df) or not df.isStreaming:
        raise InvalidInputError(
            "dbio.write_stream takes a DataFrame of spark.readStream; write a batch with dbio.write"
        )
    if mode not in _MODES:
        raise InvalidInputError(f"mode {mode!r} is neither 'append' nor 'complete'")
    files, commit = checked(given)
    streaming.require_sink(os.fspath(path))
    from dbio_commit.spark.datasource import DbioDataSource, register_source  # needs Spark 4.0

    spark = df.sparkSession
    register_source(spark, DbioDataSource, store_settings(spark))
    table = open_table(spark, path, storage_options)
    rows, settings = df, look(table.store, table.clock).metadata.settings
    if Constraints.of(settings):
        plan = plan_write(table, df.schema, mode=_MODES[mode], partition_by=partition_by, options=files, commit=commit)
        rows = rows_to_write(df, plan)
    frame, packing = pack(rows, None if rows is df else settings)
    options: dict[str, Any] = {
        **({} if partition_by is None else {"partitionBy": ",".join(check_partition_columns(partition_by))}),
        "compression": files.compression,
        "maxRecordsPerFile": files.max_records_per_file,
        "mergeSchema": files.merge_schema,
        Packing.OPTION: packing.to_option(),
        **({"txnAppId": app_id} if app_id is not None else {}),
        **note_texts(commit.note(None)),
        **_secret(storage_options),
    }
    writer = frame.writeStream.format("dbio").outputMode(mode).options(**options)
    with arrow_batches(spark, rows.schema):  # the query keeps the settings that it starts with
        return _start(writer, checkpoint, trigger, name, path=_for_workers(path))


_MODES: Mapping[str, Mode] = {"append": "append", "complete": "overwrite"}


def batch_writer(path: Path, app_id: str, mode: Mode = "append", **options: Any) -> Callable[["DataFrame", int], None]:
    """A function for `df.writeStream.foreachBatch(…)` that writes each batch exactly once, with any version of Spark.

    `app_id` names the stream in the table, and must stay the same as long as the stream's checkpoint lives: the number
    of a batch is the version of the application. `options` are options of `write`.

        stream.writeStream.foreachBatch(dbio.batch_writer("s3://lake/clicks", "clicks")).start()
    """

    def write_batch(df: "DataFrame", batch: int) -> None:
        write(df, path, mode, app=(app_id, batch), **options)

    return write_batch


@_takes_session()
def for_each_batch(
    spark: "SparkSession",
    path: Path,
    function: Callable[["DataFrame", int], None],
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
) -> "StreamingQuery":
    """Calls the function with the new rows of the table, batch by batch, and with the number of the batch.

    This does what a stream of `spark.readStream.format("dbio")` with `foreachBatch` does, but Spark itself reads the
    rows, and only the columns that are used. After a crash, the function may be called again with the same rows and
    the same number: let it write with `app=(…, number)`.

    - `checkpoint`: where Spark keeps the progress of the query.
    - `changes`: the rows are those of a change feed, with the columns of `changes`.
    - `starting_tid`, `starting_time`: the first commit to read; by default the stream begins with the live rows.
    - `max_files`, `max_bytes`: the most files, and bytes, in a batch.
    - `skip_change_commits`: passes over commits that change or remove rows. `ignore_changes`: reads all the rows that
      such commits add, also unchanged ones. Without either, such a commit ends the query with ChangedRowsError.
    - `fail_on_data_loss`: whether the query fails if vacuum has deleted files that it has not read yet.
    - `trigger` and `name` are as in `write_stream`.

    Raises what `read` raises, and UnsupportedStoreError before Spark 4.2. What the function raises ends the query.
    """
    with needs("dbio.for_each_batch", extra="spark"):
        from dbio_commit.spark import feed as streaming
        from dbio_commit.spark.feed.changed_rows import columns_of
        from dbio_commit.spark.session.conf import open_table, store_settings
        from dbio_commit.spark.session.errors import errors_of_workers

    check_flags(
        changes=changes,
        skip_change_commits=skip_change_commits,
        ignore_changes=ignore_changes,
        fail_on_data_loss=fail_on_data_loss,
    )
    if not callable(function):
        raise InvalidInputError(
            f"{function!r:.100} is no function: give one that takes the rows of a batch and its number, such as "
            "lambda rows, number: …"
        )
    table = open_table(spark, path, storage_options)
    streaming.require_source(table.url)
    from dbio_commit.spark.datasource import ChangedFiles, register_source  # needs Spark 4.0
    from dbio_commit.spark.feed.for_each import start_each, with_rows  # needs Spark 4.2

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
    with _explained(spark, table):
        # After the load: if the columns change in between, the stream finds that.
        schema = columns_of(Follower(table.store, table.clock).history())
    call = with_rows(function, table.url, table.storage_options, schema, changes=changes)
    return start_each(spark, listed.writeStream, call, lambda writer: _start(writer, checkpoint, trigger, name))


@_takes_session("dbio.Table(path).changes(start)")
def changes(
    spark: "SparkSession",
    path: Path,
    start: datetime | str,
    end: AsOf = None,
    *,
    net: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> "DataFrame":
    """The rows that commits inserted and deleted, from the commit `start` to the commit `end`, both included.

    Each end is a time (aware, or ISO 8601 text) or a tid; without `end`, up to now. The DataFrame has the columns of
    the table at the end, and:

    - `_change_type`: "insert" or "delete"; of rewrites in a table with the setting `change_data` also
      "update_preimage" and "update_postimage".
    - `_commit_tid` and `_commit_timestamp`.

    A commit that rewrites files deletes rows and inserts most of them again; with `net`, such pairs are left out.

    Raises HistoryLostError if vacuum has deleted files that it needs; InvalidInputError, also if an overwrite in
    between changed the type of a column; StoreError; MissingPackageError.
    """
    with needs("dbio.changes", extra="spark"):
        from dbio_commit.spark.feed.changed_rows import changes_between
        from dbio_commit.spark.session.conf import open_table

    check_flags(net=net)
    table = open_table(spark, path, storage_options)
    with _explained(spark, table):
        return changes_between(spark, table, start_at(start), end_at(end), net=net)


@_takes_session("dbio.Table(path).compact()")
@takes_options
def compact(
    spark: "SparkSession",
    path: Path,
    target_size: int = TARGET_BYTES,
    where: str | None = None,
    sort_by: str | Sequence[str] = (),
    dry_run: bool = False,
    *,
    z_order: str | Sequence[str] = (),
    min_files: int = 1,
    rewrite_types: bool = False,
    full: bool = False,
    most: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **note: Unpack[NoteKeywords],
) -> CompactReport:
    """As `Table.compact`, with Spark's tasks: each writes one new file, with the rows of small files in one partition.

    The arguments and errors are those of `Table.compact`, and MissingPackageError.

    Options of the commit: `NoteKeywords`.

        dbio.compact(spark, "s3://lake/events", where="day = '2026-11-20'", sort_by="id")
    """
    with needs("dbio.compact", extra="spark"):
        from dbio_commit.spark.rewrite.compaction import compact_in_tasks
        from dbio_commit.spark.session.conf import open_table

    check_flags(dry_run=dry_run)
    table = open_table(spark, path, storage_options)
    compact_options = CompactOptions(
        target_size=target_size,
        where=where,
        sort_by=column_names(sort_by),
        z_order=column_names(z_order),
        min_files=min_files,
        rewrite_types=rewrite_types,
        full=full,
        most=most,
    )
    with _explained(spark, table):
        return compact_in_tasks(spark, table, compact_options, dry_run=dry_run, note=table.note(**note))


@_takes_session("dbio.Table(path).erase(where)")
def erase(
    spark: "SparkSession",
    path: Path,
    where: str,
    *,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> "EraseReport":
    """Erases rows for good, as a person may demand: see `Table.erase`, which explains what goes and what stays.

    The session deletes the rows; times without a zone in the condition are in its time zone. Raises what
    `Table.erase` raises.

        report = dbio.erase(spark, "s3://lake/events", "user_id = 17")
        print(report.ok, report.remains)
    """
    with needs("dbio.erase", extra="spark"):
        from dbio_commit.spark.session.conf import open_table

    return open_table(spark, path, storage_options).erase(where, spark, dry_run=dry_run)


def local_session(what: str) -> "SparkSession":
    """The active session, or a new one on this machine alone, for work that needs Spark only now and then."""
    with needs(what, extra="spark"):
        from pyspark.sql import SparkSession

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    builder = SparkSession.builder.master("local[*]").appName("dbio")
    for name, text in quiet.items():
        builder = builder.config(name, text)
    return SparkSession.getActiveSession() or builder.getOrCreate()


@_takes_session()
def enable(
    spark: "SparkSession", *, parquet: bool = False, roots: Path | Sequence[Path] | Mapping[str, Path] = ()
) -> None:
    """Adds dbio to the session: the catalog `dbio` for SQL, the data source "dbio", and three table functions.

    In SQL, a table is named by its path, as in dbio.`s3://lake/events`, or by a name below one of the `roots`, as in
    `dbio.lake.events`. `roots` are paths, or a dict from names to paths. A root without a name has that of its last
    directory, or of its bucket. The catalog holds for all threads, and for sessions that the application makes later.
    The roots of several calls add up, and a later call may give a name another root. CREATE TABLE … USING dbio LOCATION
    also gives tables names in Spark's own catalog, unless `spark.sql.catalog.spark_catalog` is set already.

    Before Spark 4.0, a data source cannot be in Python: there, this registers no data source, and warns if it gets
    neither `parquet` nor `roots`. The data source and the table functions `dbio_files` and `dbio_history` use the
    session's credentials for object stores as they are now. Spark looks for data sources in the session that is active
    in a thread: call this in each thread that uses them. A session that `newSession()` makes later has them, too.

    With `parquet`, Parquet that the session writes to a dbio table, or to a path below one of the `roots`, becomes a
    transaction: `df.write.parquet`, `saveAsTable`, INSERT, CREATE TABLE … AS SELECT. Parquet that it reads, from a dbio
    table or a directory of DBIO anywhere, is what is committed there: `spark.read.parquet`, SQL on parquet.`path`,
    tables and views of Spark's catalog. That holds for all threads, and for sessions that the application makes later.
    `spark.dbio.reads=off` in a session gives all files.

    Raises InvalidInputError, MissingPackageError, and UnsupportedStoreError if Spark cannot do so, such as `parquet`
    over Connect.

        dbio.enable(spark, roots={"lake": "s3a://bucket/lake"})
        spark.sql("SELECT day, count(*) FROM dbio.lake.events GROUP BY day").show()
    """
    check_flags(parquet=parquet)
    with needs("dbio.enable", extra="spark"):
        from dbio_commit.spark.catalog.answers import enable_catalog
        from dbio_commit.spark.catalog.reads import enable_reads
        from dbio_commit.spark.catalog.roots import paths_of
        from dbio_commit.spark.committer import enable_parquet
        from dbio_commit.spark.session.later import add_to_later_sessions
        from dbio_commit.spark.versions import HAS_DATA_SOURCES, SPARK

    if not (HAS_DATA_SOURCES or parquet or roots):
        warn_caller(
            f'this is Spark {SPARK}, and format("dbio") needs Spark 4.0 or later; use dbio.write, dbio.read and '
            "dbio.batch_writer, the catalog dbio in SQL on a classic session, or dbio.enable(spark, parquet=True)"
        )

    _register_names(spark)
    add_to_later_sessions(spark, _register_names)
    if parquet:
        enable_parquet(spark, paths_of(roots))
    enable_catalog(spark, roots)
    if parquet:
        enable_reads(spark)


def _register_names(spark: "SparkSession") -> None:
    """The data source, where Spark can have it, and the table functions, with the credentials of this session."""
    from dbio_commit.spark.functions import register_functions
    from dbio_commit.spark.session.conf import store_settings
    from dbio_commit.spark.versions import HAS_DATA_SOURCES

    if HAS_DATA_SOURCES:
        from dbio_commit.spark.datasource import DbioDataSource, register_source

        register_source(spark, DbioDataSource, store_settings(spark))
    register_functions(spark)


@_takes_session()
def register(spark: "SparkSession", name: str, path: Path, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Adds the table at the path to Spark's catalog, under a name such as "sales.events", for SQL.

    From then on, each commit to the table is published for Spark, so that SELECT reads committed rows. After
    `enable(parquet=True)`, SELECT sees what this session commits by SQL or `df.write` at once. It sees the commits of
    other writers after REFRESH TABLE.

    Raises TableNotFoundError; InvalidInputError for a directory without a descriptor, and for a table without columns;
    MissingPackageError; and Spark's errors, such as for a name that is taken.
    """
    with needs("dbio.register", extra="spark"):
        from dbio_commit.spark.catalog.register import create_catalog_table
        from dbio_commit.spark.session.conf import open_table

    table = open_table(spark, path, storage_options)
    with _explained(spark, table):
        create_catalog_table(spark, name, table)


def _rewrite(
    spark: "SparkSession",
    path: Path,
    storage_options: Mapping[str, Any] | None,
    options: "CommitOptions",
    rewrite: "Callable[[Rewrite], Commit]",
    reads: "Reads | None" = None,
) -> Commit:
    from dbio_commit.spark.read.states import NO_READS, attempt
    from dbio_commit.spark.rewrite.base import Rewrite
    from dbio_commit.spark.session.conf import open_table

    table = open_table(spark, path, storage_options)

    def run() -> Commit:
        return rewrite(Rewrite.of_rows(spark, table, options, reads=reads or NO_READS))

    with _explained(spark, table):
        return attempt(spark, options, table, run)


@contextmanager
def _explained(spark: "SparkSession", table: Table) -> Iterator[None]:
    """Explains an AccessDeniedError, if a Connect server withheld the session's credentials."""
    from dbio_commit.spark.session.conf import is_connect, raise_explained

    try:
        yield
    except AccessDeniedError as error:
        raise_explained(error, table, withheld=is_connect(spark))


def _for_workers(path: Path) -> str:
    """The path for processes with another working directory: absolute, and with a scheme if it is a local path."""
    location = parse_location(path)
    return location.hadoop_url() if location.scheme == "file" else os.fspath(path)


def _secret(storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    return {"secretStorageOptions": json.dumps(dict(storage_options))} if storage_options else {}


def _start(
    writer: "DataStreamWriter", checkpoint: Path, trigger: Mapping[str, Any] | None, name: str | None, **options: str
) -> "StreamingQuery":
    writer = writer.option("checkpointLocation", os.path.expanduser(os.fspath(checkpoint)))
    if trigger:
        writer = writer.trigger(**trigger)
    if name is not None:
        writer = writer.queryName(name)
    return writer.start(**options)


def _refuse_stream(df: "DataFrame") -> None:
    """Raises InvalidInputError for what is no DataFrame of Spark, such as one of pandas on Spark, and for a stream."""
    from dbio_commit.spark.versions import is_frame

    if not is_frame(df):
        kind = f"{type(df).__module__}.{type(df).__name__}"
        raise InvalidInputError(f"dbio.write takes no {kind}: make a DataFrame of it, such as by df.to_spark()")
    if df.isStreaming:
        raise InvalidInputError(
            "dbio.write takes a batch, and this DataFrame is a stream: use dbio.write_stream(stream, path, checkpoint)"
        )
