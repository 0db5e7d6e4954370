"""`Table`: a table by its path. Its methods hand their arguments to the rooms that do the work."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from dbio_commit.base.clock import SYSTEM_CLOCK, Clock
from dbio_commit.base.deprecated import deprecate, takes_if_tid
from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError
from dbio_commit.base.internal import internal
from dbio_commit.base.options import Isolation
from dbio_commit.commit.begin import begin, has_committed
from dbio_commit.commit.checkpoints import checkpoint_now
from dbio_commit.commit.draft import Terms
from dbio_commit.commit.operations import RULES
from dbio_commit.commit.probe import prove_store
from dbio_commit.commit.roots import open_root, read_snapshot
from dbio_commit.commit.transaction import Transaction
from dbio_commit.data.footers import Inspector, inspect_files
from dbio_commit.feed.streams import CommitChanges, StreamLag, find_lag, list_changes
from dbio_commit.log.listing import until_quiet
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.unlike import Progress, silent
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf, Commit
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.versions import AppVersion
from dbio_commit.store import Location, Store, open_store, parse_location
from dbio_commit.upkeep.adopt import adopt
from dbio_commit.upkeep.check import CheckReport, check_table
from dbio_commit.upkeep.compact.options import TARGET_BYTES, CompactOptions, column_names
from dbio_commit.upkeep.compact.report import CompactReport
from dbio_commit.upkeep.copy import CopyReport, copy_state, copy_table
from dbio_commit.upkeep.drop import DropReport, drop
from dbio_commit.upkeep.inspect import TransactionReport, inspect_transaction
from dbio_commit.upkeep.publish import Published, parse_formats, publish, publish_as_set
from dbio_commit.upkeep.rebuild import rebuild_checkpoint
from dbio_commit.upkeep.restore import RestorePlan, plan_restore, restore
from dbio_commit.upkeep.settings import change_settings

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession

    from dbio_commit.log.frames import Filter
    from dbio_commit.spark.rewrite.clauses import Clause
    from dbio_commit.upkeep.erase.report import EraseReport
    from dbio_commit.upkeep.vacuum.report import VacuumReport


@internal("clock", "inspector", "location", "refuse_partition", "store")
class Table:
    """A table at a path. Nothing is read or written before a method is called.

    `path` is `s3://`, `s3a://`, `az://`, `abfs[s]://`, `gs://`, `file:` or a plain path. `storage_options` are options
    of fsspec for the store (s3fs, adlfs, gcsfs); what they leave out comes from the environment.

        table = dbio.Table("s3://lake/events")
        frame = table.to_pandas()

    Methods that take a Spark session are the functions of the same names, without the path.
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

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> None:
        """Raises InvalidInputError for an impossible path, MissingPackageError if the store's extra is missing."""
        self._path: str | os.PathLike[str] | None = path
        self.location = parse_location(path)
        self.storage_options = dict(storage_options or {})
        self.store = open_store(self.location, self.storage_options)
        self.clock = SYSTEM_CLOCK
        self.inspector = inspect_files

    @classmethod
    def over(cls, store: Store, clock: Clock = SYSTEM_CLOCK, *, inspector: Inspector | None = None) -> Self:
        """A table on a store that the caller made: for tests, with `dbio_commit.testing`.

        `inspector` looks at files of `Transaction.new_file` when they are committed; by default, any bytes are allowed.
        """
        table = cls.__new__(cls)
        table._path, table.location, table.storage_options, table.store, table.clock = None, None, {}, store, clock
        table.inspector = inspector
        return table

    def __repr__(self) -> str:
        return f"Table({self.url!r})"  # without storage_options: they hold secrets

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the URL and the storage_options: the process that loads it opens the table anew."""
        if self.location is None:
            raise TypeError(f"{self!r} is over a store of the caller, which another process cannot open")
        return type(self), (self.url, self.storage_options)

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
        self.refuse_partition()
        if time_zone is not None and where is None:
            raise InvalidInputError(f"time_zone={time_zone!r:.100} is for times in `where`, and there is no `where`")
        found = read_snapshot(self.store, self.clock, as_of=as_of, ignore_corrupt_markers=ignore_corrupt_markers)
        return found if where is None else found.where(where, time_zone=time_zone)

    def to_pandas(
        self, columns: Sequence[str] | None = None, filter: "Filter | None" = None, *, as_of: AsOf = None
    ) -> "pandas.DataFrame":
        """The rows of `snapshot(as_of)`, by `Snapshot.to_pandas`, which explains `columns` and `filter`.

        A snapshot also has `to_arrow`, `to_polars` and `to_duckdb`. Raises what these methods raise.

            frame = table.to_pandas(["id", "amount"], filter=[("day", "=", "2026-11-20")])
        """
        return self.snapshot(as_of).to_pandas(columns, filter)

    def read(self, spark: "SparkSession", as_of: AsOf = None, *, where: str | None = None) -> "DataFrame":
        """The rows as a DataFrame of Spark: see `dbio.read`."""
        from dbio_commit.spark import api

        return api.read(spark, self._path_for_spark(), as_of, where=where, storage_options=self.storage_options or None)

    def history(self) -> list[Commit]:
        """The commits, newest first, without the aborted transactions. Raises what `snapshot` raises."""
        return self.snapshot().history()

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

    @takes_if_tid
    def begin(
        self,
        operation: Operation | Literal["replace_partitions"] = "append",
        partition_by: Sequence[str] | None = None,
        app: AppVersion | None = None,
        *,
        must_be_empty: bool = False,
        data_change: bool = True,
        if_match: str | None = None,
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

        Options of the commit:

        - `app`: an (application id, version), committed at most once: the result of a second write is `skipped`. A
          version that is a number counts up; a version that is a day or a time may come in any order.
        - `if_match`: the `Snapshot.etag` of a state. If data has changed since that state, nothing is committed.

        Raises SchemaMismatchError for other partition columns, TableExistsError, AppVersionError, InvalidInputError,
        CommitConflictError, UnsupportedStoreError.

            with table.begin(partition_by=["day"]) as transaction:
                frame.to_parquet(transaction.new_file(partition={"day": date(2026, 11, 20)}))
        """
        if operation == "replace_partitions":
            deprecate('the operation "replace_partitions"', '"overwrite_partitions"')
            operation = "overwrite_partitions"
        if operation not in RULES:
            raise InvalidInputError(f"operation {operation!r} is none of {', '.join(map(repr, RULES))}")
        self.refuse_partition()
        return begin(
            self.store,
            self.clock,
            follow_up=publish_as_set,
            operation=operation,
            partition_by=partition_by,
            app=app,
            must_be_empty=must_be_empty,
            changes_rows=data_change,
            if_match=if_match,
            inspector=self.inspector,
            skipped=has_committed(self.store, self.clock, app),
        )

    def resume(self, terms: Terms) -> Transaction:
        """The transaction with these `terms`, which began in another process of this machine.

        It can stage, commit or abort here. `Transaction.terms` can be pickled.
        """
        return Transaction(self.store, self.clock, terms, follow_up=publish_as_set, inspector=self.inspector)

    def abort(self, tid: str) -> None:
        """Aborts a pending transaction of any writer. Raises TransactionStateError if it is committed."""
        self.refuse_partition()
        with suppress(ObjectNotFoundError):  # no table: the directory scope
            prove_store(self.store)
        until_quiet(self.store, lambda: open_root(self.store, self.clock, even_dropped=True).abort_pending(tid))

    def delete(
        self,
        spark: "SparkSession",
        where: str,
        *,
        app: AppVersion | None = None,
        if_match: str | None = None,
        isolation: Isolation = "write_serializable",
        retries: int = 0,
    ) -> Commit:
        """Deletes rows, with Spark: see `dbio.delete`."""
        from dbio_commit.spark import api

        return api.delete(
            spark,
            self._path_for_spark(),
            where,
            app=app,
            if_match=if_match,
            isolation=isolation,
            retries=retries,
            storage_options=self.storage_options or None,
        )

    def update(
        self,
        spark: "SparkSession",
        values: Mapping[str, str],
        where: str = "true",
        *,
        app: AppVersion | None = None,
        if_match: str | None = None,
        isolation: Isolation = "write_serializable",
        retries: int = 0,
    ) -> Commit:
        """Changes rows, with Spark: see `dbio.update`."""
        from dbio_commit.spark import api

        return api.update(
            spark,
            self._path_for_spark(),
            values,
            where,
            app=app,
            if_match=if_match,
            isolation=isolation,
            retries=retries,
            storage_options=self.storage_options or None,
        )

    def merge(
        self,
        spark: "SparkSession",
        source: "DataFrame",
        on: str | Sequence[str],
        when: "Sequence[Clause] | None" = None,
        *,
        app: AppVersion | None = None,
        if_match: str | None = None,
        isolation: Isolation = "write_serializable",
        retries: int = 0,
    ) -> Commit:
        """Merges rows into the table, with Spark: see `dbio.merge`."""
        from dbio_commit.spark import api

        return api.merge(
            spark,
            self._path_for_spark(),
            source,
            on,
            when,
            app=app,
            if_match=if_match,
            isolation=isolation,
            retries=retries,
            storage_options=self.storage_options or None,
        )

    def set(self, settings: Mapping[str, str]) -> Commit:
        """Changes these settings, and leaves the others as they are; an empty text removes one.

        The commit has all the settings. Raises TableNotFoundError, InvalidInputError for a setting that cannot be set
        and for a directory that is no dbio table, TransactionAbortedError, CommitStateUnknownError.

            table.set({"publish": "delta,symlink"})
        """
        self.refuse_partition()
        return change_settings(self.store, self.clock, settings)

    # --- upkeep ---------------------------------------------------------------------------------------------------

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
        from dbio_commit.spark.vacuum import vacuum_table
        from dbio_commit.upkeep.vacuum.report import VacuumOptions

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

        One commit deletes the rows. A minute later, all that the table still has of them goes, whatever its age: files
        that held them, also those that earlier commits removed, change files, statistics in markers and checkpoints,
        and publications. Readers of earlier states then fail, as do streams that are behind, and time travel to states
        before the commit. If an erasure is interrupted, another one finishes it.

        - `spark`: the session that deletes the rows; by default a local one, which starts only if a live file may hold
          such rows.
        - `dry_run`: reports what would go, and changes nothing.
        - `progress`: called as the type `Progress` says.

        `EraseReport.ok` is whether nothing of them is left, and `EraseReport.remains` names what an erasure cannot
        reach, such as copies. Raises InvalidInputError, also if this is no dbio table; MissingPackageError;
        CommitConflictError (erase again); TableNotFoundError, CorruptMarkerError, StoreError.

            report = dbio.Table("s3://lake/events").erase("user_id = 17")
        """
        self.refuse_partition()
        from dbio_commit.upkeep.erase.run import RETRIES, erase

        def delete(condition: str) -> Commit:
            from dbio_commit.spark import api

            return self.delete(spark or api.local_session("erase"), condition, retries=RETRIES)

        zone = None if spark is None else spark.conf.get("spark.sql.session.timeZone")
        return erase(self.store, self.clock, where, delete=delete, time_zone=zone, dry_run=dry_run, progress=progress)

    def check(self, files: bool = False, *, progress: Progress = silent) -> CheckReport:
        """Finds what is wrong, pending or garbage: reads every marker, and lists every file.

        With `files`, it also reads the footer of each live file, one request for each. `progress` is called as
        the type `Progress` says. Raises TableNotFoundError, InvalidInputError, StoreError.
        """
        self.refuse_partition()
        return check_table(self.store, self.clock, files=files, progress=progress)

    def show(self, tid: str) -> TransactionReport:
        """What is known of one transaction, in any state. Raises InvalidInputError if it has no marker."""
        self.refuse_partition()
        return inspect_transaction(self.store, self.clock, tid)

    def inspect(self, tid: str) -> TransactionReport:
        """The old word for `show`."""
        deprecate("Table.inspect", "Table.show")
        return self.show(tid)

    def compact(
        self,
        target_size: int = TARGET_BYTES,
        where: str | None = None,
        sort_by: str | Sequence[str] = (),
        dry_run: bool = False,
        *,
        z_order: str | Sequence[str] = (),
        min_files: int = 1,
    ) -> CompactReport:
        """Replaces small files by files of about `target_size` bytes, within each partition; the rows stay the same.

        - `where`: which files to compact, as in `Snapshot.where`; it never leaves out rows of a file.
        - `sort_by`: columns by which the rows of each new file are sorted.
        - `z_order`: instead, columns along whose Z-curve the rows lie, so that each part of a file has few values of
          each of them.
        - `min_files`: fewer files than this, that would become one, stay as they are.
        - `dry_run`: reports the same, and changes nothing.

        Appends may go on meanwhile. Files that another commit removed meanwhile are left out, and reported. Raises
        InvalidInputError if this is no dbio table, TableNotFoundError, TransactionAbortedError,
        CommitStateUnknownError, StoreError.
        """
        self.refuse_partition()
        from dbio_commit.upkeep.compact.run import compact

        options = CompactOptions(
            target_size=target_size,
            where=where,
            sort_by=column_names(sort_by),
            z_order=column_names(z_order),
            min_files=min_files,
        )
        return compact(self.store, self.clock, options, dry_run=dry_run)

    def checkpoint(self, rebuild: bool = False) -> str | None:
        """Writes the state of the log into one object, for faster reads; returns its name, or None if nothing is new.

        Vacuum writes checkpoints, too, and purges the markers that they cover. With `rebuild`, the new checkpoint
        replaces one that cannot be read, or whose parts are lost, if other objects have the same content. Raises
        InvalidInputError if this is no dbio table, or if there is nothing to rebuild; CheckpointLostError.
        """
        self.refuse_partition()
        if rebuild:
            return rebuild_checkpoint(self.store, self.clock).name
        return until_quiet(self.store, lambda: checkpoint_now(self.store, self.clock))

    def publish(self, to: str | Sequence[str]) -> list[Published]:
        """Publishes the table as it is now for other engines: to "delta", "spark" or "symlink", or to several of them.

        Other engines then read exactly one snapshot, until the next publication. Writes nothing if nothing has changed.
        Raises InvalidInputError if this is no dbio table, or has columns that a format cannot hold;
        UnsupportedTableError if another tool wrote to the publication; CommitConflictError; StoreError.
        """
        self.refuse_partition()
        return publish(self.store, self.clock, parse_formats(to))

    def adopt(self, *, progress: Progress = silent) -> Commit:
        """Turns a plain directory, or one that Databricks wrote (DBIO), into a dbio table of the files visible now.

        Moves and deletes nothing. Reads the footers of all files, and records their columns. `Commit.notes` names files
        that a compaction should write again. `progress` is called as the type `Progress` says.

        Raises TransactionStateError while a transaction is pending; TableExistsError; InvalidInputError if the files
        lie in different partition columns, or some are empty, no Parquet, or not readable by all readers;
        SchemaMismatchError if their columns do not fit together; CommitConflictError if anything was written meanwhile.
        """
        self.refuse_partition()
        return adopt(self.store, self.clock, looks=self.inspector is not None, progress=progress)

    def restore(self, as_of: AsOf | RestorePlan) -> Commit:
        """Brings back the files and the columns as of a time or a tid, by one commit; settings stay as they are.

        Raises InvalidInputError if vacuum has deleted files that were live then, or if the table had no commit yet;
        CommitConflictError if anything is committed meanwhile (nothing was restored: restore again);
        HistoryLostError; StoreError.
        """
        plan = as_of if isinstance(as_of, RestorePlan) else self.plan_restore(as_of)
        return restore(self.store, self.clock, plan)

    def plan_restore(self, as_of: AsOf) -> RestorePlan:
        """What `restore` would do; `restore` takes the plan, too. Changes nothing. Raises what `restore` raises."""
        self.refuse_partition()
        return plan_restore(self.store, self.clock, as_of)

    def copy(self, path: str, storage_options: Mapping[str, Any] | None = None, *, as_of: AsOf = None) -> CopyReport:
        """Copies the table as it is now to another, empty path: files, history, columns and settings.

        The times of the commits stay, so that time travel and streams go on with the copy; a tool that copies objects
        would give them new times. Commits that come meanwhile are not copied. `storage_options` are those of the other
        store; by default those of this table.

        With `as_of`, a time or a tid, it makes another table of the rows, columns and settings as of then: with an id
        of its own, and with one commit, before which it has no history.

        Raises InvalidInputError if this is no dbio table, or if the state is not known any more; TableExistsError;
        HistoryLostError if vacuum deletes a file meanwhile; StoreError.

            dbio.Table("s3://lake/events").copy("s3://backup/events", as_of="2026-11-20T00:00:00Z")
        """
        self.refuse_partition()
        other = Table(path, self.storage_options if storage_options is None else storage_options)
        other.refuse_partition()
        if as_of is not None:
            return copy_state(self.store, other.store, self.clock, as_of)
        return copy_table(self.store, other.store, self.clock)

    def drop(self, everything: bool = False) -> DropReport:
        """Removes a table without commits, such as a failed first write leaves; with `everything`, any table.

        The table is gone at once for all readers. Then its files and markers are deleted, which takes a minute or more,
        so that no writer is left. Files that no transaction wrote stay. Another drop finishes one that failed.
        Raises InvalidInputError if the table has commits, or if this is no dbio table; TableNotFoundError; StoreError.
        """
        self.refuse_partition()
        return drop(self.store, self.clock, everything=everything)

    # --- internal -------------------------------------------------------------------------------------------------

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
