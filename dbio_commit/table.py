"""`Table`: a table by its path. Its methods hand their arguments to the rooms that do the work."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, Unpack

from dbio_commit.base import shown
from dbio_commit.base.arguments import check_flags
from dbio_commit.base.clock import SYSTEM_CLOCK, Clock
from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError
from dbio_commit.base.internal import internal
from dbio_commit.base.options import Mode, check_replaced, plain_mode
from dbio_commit.base.packages import is_of
from dbio_commit.base.progress import Progress, silent
from dbio_commit.commit.begin import Intent, begin, has_committed
from dbio_commit.commit.checkpoints import checkpoint_now
from dbio_commit.commit.context import WriteContext, path_limits
from dbio_commit.commit.operations import RULES
from dbio_commit.commit.options import BeginKeywords, CommitKeywords, CommitOptions, NoteKeywords, takes_options
from dbio_commit.commit.probe import prove_store
from dbio_commit.commit.provenance import Note, SparkRun
from dbio_commit.commit.request import Terms
from dbio_commit.commit.roots import abort_pending
from dbio_commit.commit.transaction import Transaction
from dbio_commit.commit.write.options import WriteKeywords, checked, takes_write_options
from dbio_commit.data.footers import Inspector, inspect_files
from dbio_commit.feed.streams import CommitChanges, StreamLag, find_lag, list_changes
from dbio_commit.log.listing import until_quiet
from dbio_commit.log.opening import read_snapshot, read_snapshots
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.adopt import adopt
from dbio_commit.maintenance.check import CheckReport, check_table
from dbio_commit.maintenance.chosen import by_values
from dbio_commit.maintenance.compact.options import TARGET_BYTES, CompactOptions, column_names
from dbio_commit.maintenance.compact.report import CompactReport
from dbio_commit.maintenance.copy import CopyReport, copy_state, copy_table
from dbio_commit.maintenance.diff import Difference, compare_states
from dbio_commit.maintenance.drop import DropReport, drop
from dbio_commit.maintenance.incremental_copy import update_copy
from dbio_commit.maintenance.inspect import TransactionReport, inspect_transaction
from dbio_commit.maintenance.publish import context_of, publish
from dbio_commit.maintenance.publish.places import Published, parse_formats
from dbio_commit.maintenance.rebuild import rebuild_checkpoint
from dbio_commit.maintenance.restore import RestorePlan, plan_restore, restore
from dbio_commit.maintenance.settings import change_settings
from dbio_commit.maintenance.trace import FileTrace, commits_in_partitions, trace_file
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import parse_time
from dbio_commit.protocol.commits import AsOf, Commit
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.partition_values import Given
from dbio_commit.store import Location, Store, open_store, parse_location

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from dbio_commit.commit.write.clauses import Clause
    from dbio_commit.data.conditions.terms import Filter, Where
    from dbio_commit.log.frames.pandas_frame import TypesMapper
    from dbio_commit.log.frames.scan import Scan
    from dbio_commit.maintenance.erase.report import EraseReport
    from dbio_commit.maintenance.vacuum.report import Control, VacuumOptions, VacuumReport


_SEE = "snapshot(), history(), settings(), check()"


@internal("clock", "inspector", "location", "note", "context", "refuse_partition", "run", "store")
class Table:
    """A table at a path. Nothing is read or written before a method is called.

    `path` is `s3://`, `s3a://`, `az://`, `abfs[s]://`, `gs://`, `file:` or a plain path. `storage_options` are options
    of fsspec for the store (s3fs, adlfs, gcsfs); what they leave out comes from the environment.

        table = dbio.Table("s3://lake/events")
        frame = table.to_pandas()

    Functions for Spark are also methods, without the path. `read` takes the Spark session first.
    """

    location: Location | None
    """The path, parsed; None for a table made by `over`."""
    storage_options: Mapping[str, Any]
    """The options that it was made with. They may hold secrets."""
    store: Store
    """The store that holds its objects."""
    clock: Clock
    """Its source of time."""
    inspector: Inspector | None
    """What looks at new files when they are committed."""
    run: SparkRun | None
    """The Spark session that uses it; None without Spark."""

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> None:
        """Raises InvalidInputError for an impossible path, MissingPackageError if the store's extra is missing."""
        self._path: str | os.PathLike[str] | None = path
        self.location = parse_location(path)
        self.store = open_store(self.location, storage_options)
        self.storage_options = dict(storage_options or {})
        self.clock = SYSTEM_CLOCK
        self.inspector = inspect_files
        self.run = None

    @classmethod
    def over(cls, store: Store, clock: Clock = SYSTEM_CLOCK, *, inspector: Inspector | None = None) -> Self:
        """A table on a store that the caller made: for tests, with `dbio_commit.testing`.

        `inspector` looks at files of `Transaction.new_file` when they are committed; by default, any bytes are allowed.
        """
        table = cls.__new__(cls)
        table._path, table.location, table.storage_options, table.store, table.clock = None, None, {}, store, clock
        table.inspector, table.run = inspector, None
        return table

    def __repr__(self) -> str:
        return f"Table({self.url!r})"  # without storage_options: they hold secrets

    def _repr_html_(self) -> str:
        """What a notebook shows. Reads nothing: a store that cannot be reached would hold up the notebook.

        Of the storage options it has the names. The values may be secrets.
        """
        told = {"root": self.url, "storage options": tuple(self.storage_options) or "none", "see": _SEE}
        return shown.facts("Table", told)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the URL and the storage_options: the process that loads it opens the table anew."""
        if self.location is None:
            raise TypeError(f"{self!r} is over a store of the caller, which another process cannot open")
        return type(self), (self.url, self.storage_options), {"run": self.run}

    @property
    def url(self) -> str:
        """The root: a plain path on a local disk, else scheme://container/prefix."""
        return self.store.url

    # --- read -----------------------------------------------------------------------------------------------------

    def snapshot(
        self,
        as_of: AsOf = None,
        ignore_corrupt_markers: bool = False,
        *,
        where: str | None = None,
        time_zone: str | None = None,
    ) -> Snapshot:
        """The committed state now; or as of a time (aware, or ISO 8601 text), or as of the commit with a tid.

        With `where`, a condition in Spark's SQL, it has only the files that may hold rows which fulfil the condition:
        `snapshot(where=condition, time_zone=zone)` is `snapshot().where(condition, time_zone=zone)`. With
        `ignore_corrupt_markers`, a transaction whose marker is corrupt counts as pending.

        The files of a large table are read when they are needed, and are in the order of their directories. A snapshot
        can read them for the retention of vacuum; after that, take a new one.

        Raises TableNotFoundError, CorruptMarkerError, InvalidInputError for a state that is not known any more,
        StoreError, and what `Snapshot.where` raises.

            table.snapshot(where="day = '2026-11-20'").urls()
        """
        check_flags(ignore_corrupt_markers=ignore_corrupt_markers)
        self.refuse_partition()
        if time_zone is not None and where is None:
            raise InvalidInputError(f"time_zone={time_zone!r:.100} is for times in `where`, and there is no `where`")
        found = read_snapshot(self.store, self.clock, as_of=as_of, ignore_corrupt_markers=ignore_corrupt_markers)
        return found if where is None else found.where(where, time_zone=time_zone)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: "Filter | None" = None,
        *,
        where: "Where | None" = None,
        as_of: AsOf = None,
        time_zone: str | None = None,
        types_mapper: "TypesMapper | None" = None,
    ) -> "pandas.DataFrame":
        """The rows of `snapshot(as_of)`, by `Snapshot.to_pandas`, which explains the other parameters.

        `scan` gives the same rows to Polars, DuckDB and pyarrow. Raises what these methods raise.

            frame = table.to_pandas(["id", "amount"], filter=[("day", "=", "2026-11-20")])
        """
        found = self.snapshot(as_of)
        return found.to_pandas(columns, filter, where=where, time_zone=time_zone, types_mapper=types_mapper)

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: "Where | None" = None,
        as_of: AsOf = None,
        time_zone: str | None = None,
    ) -> "polars.DataFrame":
        """The rows of `snapshot(as_of)` as a Polars DataFrame in memory: see `Snapshot.to_polars`.

        frame = table.to_polars(["id", "amount"], where=("day", "=", "2026-11-20"))
        """
        return self.snapshot(as_of).to_polars(columns, where=where, time_zone=time_zone)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: "Where | None" = None,
        as_of: AsOf = None,
        time_zone: str | None = None,
    ) -> "pyarrow.Table":
        """The rows of `snapshot(as_of)` as an Arrow table in memory: see `Snapshot.to_arrow`."""
        return self.snapshot(as_of).to_arrow(columns, where=where, time_zone=time_zone)

    def count(self, where: "Where | None" = None, *, as_of: AsOf = None, time_zone: str | None = None) -> int:
        """How many rows `snapshot(as_of)` has, or how many of them fulfil a condition: see `Snapshot.count`.

        table.count("day = '2026-11-20'")
        """
        return self.snapshot(as_of).count(where, time_zone=time_zone)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: "Where | None" = None,
        *,
        as_of: AsOf = None,
        time_zone: str | None = None,
    ) -> "Scan":
        """Some rows and columns of `snapshot(as_of)`, for pandas, Polars, DuckDB or pyarrow, in memory or lazily.

        `Snapshot.scan` explains `columns`, `where` and `time_zone`. Raises what it and `snapshot` raise.

            table.scan(["id", "amount"], "day = '2026-11-20'").to_lazy()
        """
        return self.snapshot(as_of).scan(columns, where, time_zone=time_zone)

    def read(self, spark: "SparkSession", as_of: AsOf = None, *, where: str | None = None) -> "DataFrame":
        """The rows as a DataFrame of Spark: see `dbio.read`."""
        from dbio_commit.spark import api

        return api.read(spark, self._path_for_spark(), as_of, where=where, storage_options=self.storage_options or None)

    def history(self, *, partition: Mapping[str, Given | None] | None = None) -> list[Commit]:
        """The commits, newest first, without the aborted transactions. Raises what `snapshot` raises.

        With `partition`, values of partition columns, only those that added or removed files there, as far as the
        history still names these files.

            table.history(partition={"day": "2026-11-20"})
        """
        snapshot = self.snapshot()
        if partition is None:
            return snapshot.history()
        chooses = by_values(partition, snapshot.partition_columns, snapshot.schema, where=self.url)
        return commits_in_partitions(snapshot, chooses)

    def trace(self, path: str) -> FileTrace:
        """Which commits added and removed a data file, by its path from the root, or by its URL in any spelling.

        The URL may be that of Spark's `input_file_name()`.

        Raises InvalidInputError if no commit names it, also for a name without its directories, and what `snapshot`
        raises. If no commit names it any more, and files of the commit that wrote it were deleted since, `added` and
        `removed` are None: whether it was one of these files is not known.
        """
        if not isinstance(path, str):
            raise InvalidInputError(f"path={path!r:.200} is no text: give a file's path below the root, or its URL")
        self.refuse_partition()
        return trace_file(self.store, self.clock, path)

    def changes(self, start: datetime | str, end: AsOf = None) -> list[CommitChanges]:
        """What the commits from `start` to `end`, both included, added and removed, oldest first.

        Each end is a time (aware, or ISO 8601 text) or a tid; without `end`, up to now. `dbio.changes` has the rows.
        Raises HistoryLostError if vacuum has deleted files that it needs, InvalidInputError, and what `snapshot`
        raises.
        """
        self.refuse_partition()
        return list_changes(self.store, self.clock, start, end)

    def lag(self, checkpoint: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> StreamLag:
        """How far the stream with this checkpointLocation, which reads this table, is behind it.

        `storage_options` are those of the checkpoint's store; by default those of this table. Raises InvalidInputError
        if the path is no checkpoint of such a stream, HistoryLostError.
        """
        self.refuse_partition()
        options = self.storage_options if storage_options is None else storage_options
        return find_lag(self.store, self.clock, open_store(parse_location(checkpoint), options))

    def schema(self) -> Mapping[str, Any]:
        """The columns now, as Spark's JSON: the recorded columns, else those of the newest file.

        Raises InvalidInputError if there are neither.
        """
        snapshot = self.snapshot()
        if snapshot.schema is not None:
            return snapshot.schema
        from dbio_commit.log.found_columns import table_columns

        return table_columns(self.store, snapshot)

    def settings(self) -> Mapping[str, str]:
        """The settings now, by name. Raises what `snapshot` raises."""
        return self.snapshot().settings

    # --- write ----------------------------------------------------------------------------------------------------

    @takes_options
    def begin(
        self,
        operation: Operation = "append",
        partition_by: Sequence[str] | None = None,
        *,
        must_be_empty: bool = False,
        data_change: bool = True,
        **commit: Unpack[BeginKeywords],
    ) -> Transaction:
        """Begins a transaction, to write files without Spark.

        - `operation`: "append"; "overwrite" removes all live files; "overwrite_partitions" removes the live files of
          the partitions that get new files, or that `Transaction.overwrite_partition` names; "rewrite" removes the
          files that `Transaction.remove` names.
        - `partition_by`: the partition columns, if this creates the table. An overwrite with other columns changes them
          ([] for none). Such a commit takes a minute more, and aborts every pending transaction.
        - `must_be_empty`: refuses a table that has commits.
        - `data_change`: False for a rewrite whose new files hold exactly the rows of the files that it removes. Streams
          and change feeds pass over such a commit.

        Options of the commit: `BeginKeywords`.

        Raises SchemaMismatchError for other partition columns, TableExistsError, AppVersionError, InvalidInputError,
        CommitConflictError, UnsupportedStoreError.

            with table.begin(partition_by=["day"]) as transaction:
                frame.to_parquet(transaction.new_file(partition={"day": date(2026, 11, 20)}))
        """
        if operation not in RULES:
            raise InvalidInputError(f"operation {operation!r} is none of {', '.join(map(repr, RULES))}")
        check_flags(must_be_empty=must_be_empty, data_change=data_change)
        options = CommitOptions(**commit)
        self.refuse_partition()
        intent = Intent(
            operation=operation,
            partition_by=partition_by,
            app=options.app,
            must_be_empty=must_be_empty,
            changes_rows=data_change,
            if_match=options.if_match,
            note=options.note(self.run),
        )
        return begin(self.context, intent, skipped=has_committed(self.store, self.clock, options.app))

    @takes_write_options
    def write(
        self,
        frame: Any,
        mode: Mode = "append",
        partition_by: str | Sequence[str] | None = None,
        *,
        replace_where: "Where | None" = None,
        **options: Unpack[WriteKeywords],
    ) -> Commit:
        """Writes a frame as one atomic transaction, and returns its commit.

        `frame` is a DataFrame of pandas or Polars, a LazyFrame, a table, batch or RecordBatchReader of Arrow, a
        relation of DuckDB, anything with `__arrow_c_stream__`, or a DataFrame of PySpark. Only the last needs Spark.
        The others are written in this process, batch by batch, in bounded memory:

        - `mode` and `partition_by` are those of `dbio.write`.
        - `replace_where` is a condition as in `delete`, in SQL or as a list.
        - An index of pandas is left out, unless it has a name. Dictionaries become their values. Nanoseconds become
          microseconds, or are refused if they would lose.
        - A constraint, a generated column or a default that only Spark can evaluate is refused.
        - `retries` needs a frame that can be read again.
        - An error while the frame is read aborts the transaction, and deletes its files.

        Options of the files and of the commit: `WriteKeywords`.

        Raises what `dbio.write` raises.

            table.write(frame, partition_by=["day"], app=("nightly", date(2026, 11, 20)))
        """
        if is_of("pyspark", frame):
            from dbio_commit.spark import api

            spark: Any = {"replace_where": replace_where, "storage_options": self.storage_options or None}
            return api.write(frame, self._path_for_spark(), mode, partition_by, **spark, **options)
        check_replaced(mode, replace_where)
        from dbio_commit.commit.write.frames import write_frame

        self.refuse_partition()
        files, commit = checked(options)
        return write_frame(
            self.context,
            frame,
            mode=plain_mode(mode),
            partition_by=partition_by,
            options=files,
            commit=commit,
            replaced=replace_where,
        )

    def resume(self, terms: Terms) -> Transaction:
        """The transaction with these `terms`, which began in another process of this machine.

        It can stage, commit or abort here. `Transaction.terms` can be pickled.
        """
        return Transaction(self.context, terms)

    def abort(self, tid: str, *, alone: bool = False) -> None:
        """Aborts a pending transaction of any writer. Raises TransactionStateError if it is committed.

        A joint transaction is aborted in its home first, and so in all its tables. `alone` aborts it in this table
        without that, for a home that is gone for good: look first whether another of its tables has the commit.
        """
        check_flags(alone=alone)
        self.refuse_partition()
        with suppress(ObjectNotFoundError):  # no table: the directory scope
            prove_store(self.store)
        abort_pending(self.store, self.clock, tid, alone=alone)

    @takes_options
    def delete(
        self,
        where: "Where",
        *,
        time_zone: str | None = None,
        spark: "SparkSession | None" = None,
        **commit: Unpack[CommitKeywords],
    ) -> Commit:
        """Deletes the rows for which a condition in Spark's SQL holds: see `dbio.delete`.

        With a session, `spark`, Spark does this. Without one, this process reads and writes the files. The condition
        may then also be a list of (column, operator, value), as in `scan`. SQL must surely mean the same without Spark:
        comparisons of columns with values of their types, or with each other, LIKE, IS NULL, IN, BETWEEN, AND, OR and
        NOT. Other SQL is refused. Times without a zone are in `time_zone`. The commit is the same as that with Spark.

        Options of the commit: `CommitKeywords`.

            table.delete("day < '2025-01-01'")
            table.delete([("id", "in", [17, 18])])
        """
        if spark is not None:
            from dbio_commit.spark import api

            condition, path = _sql(where, time_zone), self._path_for_spark()
            return api.delete(spark, path, condition, storage_options=self.storage_options or None, **commit)
        from dbio_commit.commit.write.rewrite import delete_rows

        self.refuse_partition()
        return delete_rows(self.context, where, time_zone=time_zone, commit=CommitOptions(**commit))

    @takes_options
    def update(
        self,
        updates: Mapping[str, Any] | None = None,
        where: "Where" = "true",
        *,
        values: Mapping[str, Any] | None = None,
        time_zone: str | None = None,
        spark: "SparkSession | None" = None,
        **commit: Unpack[CommitKeywords],
    ) -> Commit:
        """Gives columns new values in the rows for which a condition holds: see `dbio.update`.

        - `updates`: by column, a text with an expression in Spark's SQL, or a value of Python that is no text.
        - `values`: by column, a value of Python. Here a text is the value itself.
        - `where`: a condition; by default, all rows change.
        - `spark`: a session that does this.

        Without one, this process reads and writes the files, and the condition is as in `delete`. Expressions are
        literals, columns, sums, products and remainders of whole numbers, parts of days and of texts, and
        `current_timestamp()`. Others are refused. Times without a zone in SQL are in `time_zone`. The commit is the
        same as that with Spark.

        Options of the commit: `CommitKeywords`.

            table.update({"tries": "tries + 1", "share": 0.5}, "id = 17")
            table.update(values={"kind": "click"}, where="id = 17")
        """
        if isinstance(where, Mapping):
            raise InvalidInputError("update takes the new values first: table.update({'n': 'n + 1'}, \"id = 17\")")
        if spark is not None:
            from dbio_commit.spark import api

            condition, path, store = _sql(where, time_zone), self._path_for_spark(), self.storage_options or None
            return api.update(spark, path, updates, condition, values=values, storage_options=store, **commit)
        from dbio_commit.commit.write.update import new_values, update_rows

        self.refuse_partition()
        new = new_values(updates, values)
        return update_rows(self.context, new, where, time_zone=time_zone, commit=CommitOptions(**commit))

    @takes_options
    def merge(
        self,
        source: Any,
        on: str | Sequence[str],
        when: "Sequence[Clause] | None" = None,
        **commit: Unpack[CommitKeywords],
    ) -> Commit:
        """Merges rows into the table: see `dbio.merge`, which this calls if `source` is a DataFrame of PySpark.

        Any other frame that `write` takes is merged by this process, and is in its memory as a whole. Then conditions
        and values are as in `delete` and `update`, with columns of `target.` and `source.`, and `on` has columns that
        must be equal. The commit is the same as that with Spark.

        Options of the commit: `CommitKeywords`.

            table.merge(changes, on="id")
            table.merge(changes, "target.id = source.id", [dbio.when_matched().update({"n": "source.n"})])
        """
        if isinstance(source, str | list | tuple) and not isinstance(on, str | list | tuple):
            raise InvalidInputError("merge takes the rows first: table.merge(frame, on=['id'])")
        if is_of("pyspark", source):
            from dbio_commit.spark import api

            path, store = self._path_for_spark(), self.storage_options or None
            return api.merge(source.sparkSession, path, source, on, when, storage_options=store, **commit)
        from dbio_commit.commit.write.merge import merge_frame

        self.refuse_partition()
        return merge_frame(self.context, source, on, when, commit=CommitOptions(**commit))

    @takes_options
    def set(self, settings: Mapping[str, str], **note: Unpack[NoteKeywords]) -> Commit:
        """Changes these settings, and leaves the others as they are; an empty text removes one.

        The commit has all the settings. Raises TableNotFoundError, InvalidInputError for a setting that cannot be set
        and for a directory that is no dbio table, TransactionAbortedError, CommitStateUnknownError.

        Options of the commit: `NoteKeywords`.

            table.set({"publish": "delta,symlink"})
        """
        self.refuse_partition()
        return change_settings(self.store, self.clock, settings, note=self.note(**note))

    # --- maintenance ----------------------------------------------------------------------------------------------

    def vacuum(
        self,
        retention_hours: float = 48.0,
        dry_run: bool = False,
        force: bool = False,
        spark: "SparkSession | None" = None,
        *,
        untracked: bool = False,
        checkpoint_after: int = 20,
        history_days: float = 30.0,
    ) -> "VacuumReport":
        """Deletes what no reader needs any more: see `dbio.vacuum`. `spark` spreads the work over its executors."""
        from dbio_commit.maintenance.vacuum.report import VacuumOptions

        options = VacuumOptions(
            retention_hours=retention_hours,
            force=force,
            untracked=untracked,
            checkpoint_after=checkpoint_after,
            history_days=history_days,
        )
        return vacuum_table(self, options, dry_run=dry_run, spark=spark)

    def erase(
        self,
        where: str,
        spark: "SparkSession | None" = None,
        *,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> "EraseReport":
        """Erases the rows for which a condition in Spark's SQL holds, for good: a person may have demanded that.

        One commit deletes the rows. A minute later, everything that the table still has of them is deleted, whatever
        its age: files that held them, also those that earlier commits removed, change files, statistics in markers and
        checkpoints, and publications. Readers of earlier states then fail, as do streams that are behind, and time
        travel to states before the commit. If an erasure is interrupted, another one finishes it.

        - `spark`: the session that deletes the rows. By default, this process deletes them if `delete` can do that
          without Spark, or else a local session does.
        - `dry_run`: reports what would go, and changes nothing.
        - `progress`: called as the type `Progress` says.

        Restores and copies that have read the files before fail then. `EraseReport.ok` is whether nothing of them is
        left, and `EraseReport.remains` names what an erasure cannot reach, such as copies. Raises InvalidInputError,
        also if this is no dbio table; MissingPackageError; CommitConflictError (erase again); TableNotFoundError,
        CorruptMarkerError, StoreError.

            report = dbio.Table("s3://lake/events").erase("user_id = 17")
        """
        check_flags(dry_run=dry_run)
        self.refuse_partition()
        from dbio_commit.maintenance.erase.run import RETRIES, erase

        def delete(condition: str) -> Commit:
            if spark is None:
                with suppress(InvalidInputError):  # only Spark evaluates the condition, or reads a file
                    return self.delete(condition, retries=RETRIES)
            from dbio_commit.spark import api

            return self.delete(condition, spark=spark or api.local_session("erase"), retries=RETRIES)

        zone = None if spark is None else spark.conf.get("spark.sql.session.timeZone")
        return erase(self.store, self.clock, where, delete=delete, time_zone=zone, dry_run=dry_run, progress=progress)

    def check(self, files: bool = False, *, progress: Progress = silent) -> CheckReport:
        """Finds what is wrong, pending or garbage: reads every marker, and lists every file.

        With `files`, it also reads the footer of each live file, one request for each. `progress` is called as
        the type `Progress` says. Raises TableNotFoundError, InvalidInputError, StoreError.
        """
        check_flags(files=files)
        self.refuse_partition()
        return check_table(self.store, self.clock, files=files, progress=progress)

    def show(self, tid: str) -> TransactionReport:
        """What is known of one transaction, in any state. Raises InvalidInputError if it has no marker."""
        self.refuse_partition()
        return inspect_transaction(self.store, self.clock, tid)

    @takes_options
    def compact(
        self,
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
        **note: Unpack[NoteKeywords],
    ) -> CompactReport:
        """Replaces small files by files of about `target_size` bytes, within each partition; the rows stay the same.

        - `where`: which files to compact, as in `Snapshot.where`; it never leaves out rows of a file.
        - `sort_by`: columns by which the rows of each new file are sorted.
        - `z_order`: instead, columns along whose Z-curve the rows lie, so that each part of a file has few values of
          each of them.
        - `min_files`: fewer files than this, that would become one, stay as they are.
        - `rewrite_types`: also rewrites files, of any size, with columns of other types than the table, which was
          widened since: not all readers convert them. The report says how many there were (`other_types`). Looks at
          the footer of each file.
        - `full`, `most`: of a table with the setting `cluster_by`, below.
        - `dry_run`: reports the same, and changes nothing.

        If the table has the setting `cluster_by`, rows are divided among new files by the values of its columns, and
        within each file along a Z-curve. Files that are not divided so yet are rewritten, with those clustered files
        whose values lie among theirs, if they are not many. `full` rewrites all files. At most `most` bytes of a
        partition are rewritten together (16 GB, with Spark 256 GB): the more, the fewer files a condition reads.
        Without Spark, rows wait in the system's directory for temporary files, which needs 1.5 times as many bytes; if
        it has less, files are left, and reported.

        Options of the commit: `NoteKeywords`.

        Appends may go on meanwhile. Files that another commit removed meanwhile are left out, and reported. Raises
        InvalidInputError if this is no dbio table, TableNotFoundError, TransactionAbortedError,
        CommitStateUnknownError, StoreError.
        """
        check_flags(dry_run=dry_run)
        self.refuse_partition()
        from dbio_commit.maintenance.compact.run import compact

        options = CompactOptions(
            target_size=target_size,
            where=where,
            sort_by=column_names(sort_by),
            z_order=column_names(z_order),
            min_files=min_files,
            rewrite_types=rewrite_types,
            full=full,
            most=most,
        )
        return compact(self.store, self.clock, options, dry_run=dry_run, note=self.note(**note))

    def checkpoint(self, rebuild: bool = False) -> str | None:
        """Writes the state of the log into one object, for faster reads; returns its name, or None if nothing is new.

        Vacuum writes checkpoints, too, and purges the markers that they cover. With `rebuild`, the new checkpoint
        replaces one that cannot be read, or whose parts are lost, if other objects have the same content. Raises
        InvalidInputError if this is no dbio table, or if there is nothing to rebuild; CheckpointLostError.
        """
        check_flags(rebuild=rebuild)
        self.refuse_partition()
        if rebuild:
            return rebuild_checkpoint(self.store, self.clock).name
        return until_quiet(self.store, lambda: checkpoint_now(self.store, self.clock))

    def publish(self, to: str | Sequence[str]) -> list[Published]:
        """Publishes the table as it is now for other engines: to "delta", "iceberg", "spark", "symlink", or several of
        them.

        Other engines then read exactly one snapshot, until the next publication. Writes nothing if nothing has changed.
        Raises InvalidInputError if this is no dbio table, or has columns that a format cannot hold;
        UnsupportedTableError if another tool wrote to the publication; CommitConflictError; MissingPackageError without
        the package of a format; StoreError.
        """
        self.refuse_partition()
        return publish(self.store, self.clock, parse_formats(to))

    @takes_options
    def adopt(self, *, progress: Progress = silent, **note: Unpack[NoteKeywords]) -> Commit:
        """Turns a plain directory, or one that Databricks wrote (DBIO), into a dbio table of the files visible now.

        Moves and deletes nothing. Reads the footers of all files, and records their columns. `Commit.notes` names files
        that a compaction should write again. `progress` is called as the type `Progress` says.

        Options of the commit: `NoteKeywords`.

        Raises TransactionStateError while a transaction is pending; TableExistsError; InvalidInputError if the files
        lie in different partition columns, or some are empty, no Parquet, or not readable by all readers;
        SchemaMismatchError if their columns do not fit together; CommitConflictError if anything was written meanwhile.
        """
        self.refuse_partition()
        looks, said = self.inspector is not None, self.note(**note)
        return adopt(self.store, self.clock, looks=looks, progress=progress, note=said)

    @takes_options
    def restore(
        self,
        as_of: AsOf | RestorePlan,
        *,
        partition: Mapping[str, Given | None] | None = None,
        where: str | None = None,
        time_zone: str | None = None,
        **note: Unpack[NoteKeywords],
    ) -> Commit:
        """Brings back the files and the columns as of a time or a tid, by one commit; settings stay as they are.

        With `partition` or `where`, it brings back only some partitions, and the columns stay as they are, too.

        - `partition`: values of partition columns; values for some of the columns choose all partitions that have them.
        - `where`: a condition in Spark's SQL on partition columns alone. Times without a zone are in `time_zone`.

        Options of the commit: `NoteKeywords`.

        Raises InvalidInputError if vacuum has deleted files that were live then, if the table had no commit yet, and
        for a condition of which dbio cannot say for which partitions it holds; SchemaMismatchError if files of a
        partition do not fit the current columns; CommitConflictError if anything is committed meanwhile (nothing was
        restored: restore again); HistoryLostError; StoreError.

            table.restore("2026-11-20T06:00:00Z", partition={"day": "2026-11-19"})
        """
        said = self.note(**note)
        if isinstance(as_of, RestorePlan):
            if partition is not None or where is not None:
                raise InvalidInputError("a plan has its partitions already: give them to plan_restore")
            return restore(self.store, self.clock, as_of, inspector=self.inspector, note=said)
        plan = self.plan_restore(as_of, partition=partition, where=where, time_zone=time_zone)
        return restore(self.store, self.clock, plan, inspector=self.inspector, note=said)

    def plan_restore(
        self,
        as_of: AsOf,
        *,
        partition: Mapping[str, Given | None] | None = None,
        where: str | None = None,
        time_zone: str | None = None,
    ) -> RestorePlan:
        """What `restore` would do; `restore` takes the plan, too. Changes nothing. Raises what `restore` raises."""
        self.refuse_partition()
        return plan_restore(self.store, self.clock, as_of, partition=partition, where=where, time_zone=time_zone)

    def diff(self, first: AsOf, second: AsOf = None) -> Difference:
        """How two states differ: files, rows, partitions, columns and settings.

        Each is a time (aware, or ISO 8601 text) or the tid of a commit; without `second`, it is the state now. Raises
        InvalidInputError for a state that is not known any more, CommitConflictError, and what `snapshot` raises.

            table.diff("2026-11-20T06:00:00Z").total_after.rows
        """
        self.refuse_partition()
        return compare_states(self.store, self.clock, first, second)

    def copy(
        self,
        path: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        as_of: AsOf = None,
        incremental: bool = False,
    ) -> CopyReport:
        """Copies the table as it is now to another, empty path: files, history, columns and settings.

        The times of the commits stay, so that time travel and streams go on with the copy; a tool that copies objects
        would give them new times. Commits that come meanwhile are not copied. `storage_options` are those of the other
        store; by default those of this table.

        With `as_of`, a time or a tid, it makes another table of the rows, columns and settings of that state: with its
        own id, and with one commit, before which it has no history.

        With `incremental`, it makes such a table, too; and the next call brings this copy to that state, or to
        the current one, by one commit: it copies only files that the copy lacks, and removes those that are gone.
        Columns, partition columns and settings follow. If nothing differs, it commits nothing (`is_new`). Only these
        calls may write to the copy.

        After an interrupted call, the same call goes on with the files that were copied. Raises InvalidInputError if
        this is no dbio table, or if the state has no commit, or is not known any more; TableExistsError, also for a
        table that is no incremental copy of this one, or has commits of its own; HistoryLostError if vacuum deletes a
        file meanwhile; CommitConflictError if another process writes to the copy; StoreError.

            dbio.Table("s3://lake/events").copy("s3://backup/events", incremental=True)
        """
        check_flags(incremental=incremental)
        self.refuse_partition()
        other = Table(path, self.storage_options if storage_options is None else storage_options)
        other.refuse_partition()
        if incremental:
            return update_copy(self.store, other.store, self.clock, as_of)
        if as_of is not None:
            return copy_state(self.store, other.store, self.clock, as_of)
        return copy_table(self.store, other.store, self.clock)

    def drop(self, everything: bool = False) -> DropReport:
        """Removes a table without commits, such as a failed first write leaves; with `everything`, any table.

        The table is gone at once for all readers. Then its files and markers are deleted, which takes a minute or more,
        so that no writer is left. Files that no transaction wrote stay. Another drop finishes one that failed.
        Raises InvalidInputError if the table has commits, or if this is no dbio table; TableNotFoundError; StoreError.
        """
        check_flags(everything=everything)
        self.refuse_partition()
        return drop(self.store, self.clock, everything=everything)

    # --- internal -------------------------------------------------------------------------------------------------

    def note(self, **note: Unpack[NoteKeywords]) -> Note:
        """What a commit of this process records of its caller. Raises InvalidInputError."""
        return Note(**note, run=self.run)

    @property
    def context(self) -> WriteContext:
        """What a write needs of the table."""
        is_disk = self.location is not None and self.location.scheme == "file"
        limits = path_limits(is_disk=is_disk, root=self.location.prefix if self.location else "")
        return replace(context_of(self.store, self.clock, self.inspector), limits=limits, run=self.run)

    def refuse_partition(self) -> None:
        """Raises InvalidInputError for the directory of a partition.

        That is no table: the markers that decide about its files are in a directory above.
        """
        parent = self.location
        while parent and "=" in names.split(parent.prefix)[1]:
            parent = replace(parent, prefix=names.split(parent.prefix)[0])
            with suppress(ObjectNotFoundError):
                open_store(parent, self.storage_options).stat(names.DESCRIPTOR)
                raise InvalidInputError(
                    f"{self.url} is a partition of the table {parent.url}; read and write the table, with a filter"
                )

    def _path_for_spark(self) -> str | os.PathLike[str]:
        if self._path is None:
            raise InvalidInputError(
                f"{self.url} is a table on a store of a test, which Spark cannot reach: give a path"
            )
        return self._path


def vacuum(
    path: str | os.PathLike[str],
    retention_hours: float = 48.0,
    dry_run: bool = False,
    force: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    spark: "SparkSession | None" = None,
    *,
    untracked: bool = False,
    checkpoint_after: int = 20,
    history_days: float = 30.0,
) -> "VacuumReport":
    """Deletes what no reader needs any more from the table, or from the DBIO directory, at the path.

    - `retention_hours`: the files that a commit removed stay for so long, for readers that still use them. A
      transaction that is pending for longer is aborted, so that its writer gets an error. At least 1 hour, unless
      `force` is given.
    - `dry_run`: reports the same, and changes nothing.
    - `untracked`: also deletes old files that no transaction wrote and that no commit names.
    - `checkpoint_after`: after so many commits since the last checkpoint, the next one is written.
    - `history_days`: for so many days, at least 30, the history remembers commits of which no file is left.
    - `spark`: with a session, its executors list and delete, and its settings for the store apply.

    What cannot be deleted is in the report, and does not stop the rest. Raises RetentionError, and, if the table
    cannot be read, TableNotFoundError, CorruptMarkerError or StoreError.

        report = dbio.vacuum("s3://lake/events", dry_run=True)
        print(len(report.deleted))
    """
    if spark is None:
        table = Table(path, storage_options)
    else:
        from dbio_commit.spark.vacuum import open_table

        table = open_table(spark, path, storage_options)
    return table.vacuum(
        retention_hours,
        dry_run,
        force,
        spark,
        untracked=untracked,
        checkpoint_after=checkpoint_after,
        history_days=history_days,
    )


def vacuum_table(
    table: Table,
    options: "VacuumOptions",
    *,
    dry_run: bool = False,
    spark: "SparkSession | None" = None,
    control: "Control | None" = None,
) -> "VacuumReport":
    """As `vacuum`, of a `Table`. `control` follows the vacuum, and can stop it between two batches."""
    from dbio_commit.maintenance.vacuum.run import run_vacuum

    check_flags(dry_run=dry_run)
    options.check()
    table.refuse_partition()
    spread = None
    if spark is not None:
        from dbio_commit.spark.vacuum import on_executors

        spread = on_executors(spark)
    return run_vacuum(table.store, table.clock, options, dry_run=dry_run, control=control, spread=spread)


def snapshots(
    tables: Sequence[Table | str | os.PathLike[str]],
    as_of: datetime | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> list[Snapshot]:
    """The committed states of several tables at one moment: now, as of a time (aware, or ISO 8601 text), or as of a tid
    of a joint transaction.

    The moment is within this call. A commit that was reported before the call began is in its snapshot. If a snapshot
    has a commit, then each commit that was reported before this one was made is in the snapshot of its own table. A
    joint transaction is in all snapshots of its tables, or in none. The tables are read side by side, each with the
    requests of `Table.snapshot`.

    A table is a `Table`, or the path of one, which is opened with `storage_options`. All of them lie in one store. The
    snapshots come in the order of the tables. Raises InvalidInputError for tables in several stores, for a
    directory without a descriptor, and for the tid of a commit; and what `Table.snapshot` raises.

        orders, customers = dbio.snapshots(["s3://lake/orders", "s3://lake/customers"])
        frame = orders.to_pandas().merge(customers.to_pandas(), on="customer")
    """
    if isinstance(tables, str | os.PathLike | Table):
        raise InvalidInputError("dbio.snapshots takes a list of tables; of one table, Table(path).snapshot() has it")
    opened = [it if isinstance(it, Table) else Table(it, storage_options) for it in tables]
    if not opened:
        return []
    tid = as_of if isinstance(as_of, str) and names.is_joint(as_of) else None
    if isinstance(as_of, str) and names.is_tid(as_of) and tid is None:
        raise InvalidInputError(
            f"as_of={as_of!r:.200} is no time, and a tid belongs to one table; give a time, or the tid of a joint "
            "transaction"
        )
    for table in opened:
        table.refuse_partition()
    point = as_of if as_of is None or tid else parse_time(as_of, what="as_of")
    return read_snapshots([table.store for table in opened], opened[0].clock, as_of=point)


def _sql(where: "Where", time_zone: str | None) -> str:
    """A condition for a session of Spark. Raises InvalidInputError for what only a call without a session takes."""
    if time_zone is not None:
        raise InvalidInputError("time_zone= is for a call without a Spark session: a session has its own time zone")
    if not isinstance(where, str):
        raise InvalidInputError(f"{where!r:.200} is no text: with a Spark session, give a condition in Spark's SQL")
    return where
