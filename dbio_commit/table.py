"""`Table`: a directory of data files with transactions, by its path. A thin face on `snapshot` and `transaction`."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Self

from dbio_commit.base.clock import SYSTEM_CLOCK, Clock
from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError
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
from dbio_commit.upkeep.copy import CopyReport, copy_table
from dbio_commit.upkeep.drop import DropReport, drop
from dbio_commit.upkeep.inspect import TransactionReport, inspect_transaction
from dbio_commit.upkeep.publish import Published, parse_formats, publish, publish_as_set
from dbio_commit.upkeep.rebuild import rebuild_checkpoint
from dbio_commit.upkeep.restore import RestorePlan, plan_restore, restore
from dbio_commit.upkeep.settings import change_settings


class Table:
    """A table at a path: `s3://`, `s3a://`, `az://`, `abfs[s]://`, `gs://`, `file:` or a plain path. No I/O until used.

    `storage_options` are fsspec's for the store (s3fs, adlfs, gcsfs); what they leave out comes from the environment.
    """

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> None:
        self.location: Location | None = parse_location(path)
        self.storage_options: Mapping[str, Any] = dict(storage_options or {})
        self.store: Store = open_store(self.location, self.storage_options)
        self.clock: Clock = SYSTEM_CLOCK
        self.inspector: Inspector | None = inspect_files

    @classmethod
    def over(cls, store: Store, clock: Clock = SYSTEM_CLOCK, *, inspector: Inspector | None = None) -> Self:
        """A table on a store of the caller's making; for tests, with `dbio_commit.testing`.

        `inspector` looks at files of `Transaction.new_file` when they are committed; by default any bytes will do.
        """
        table = cls.__new__(cls)
        table.location, table.storage_options, table.store, table.clock = None, {}, store, clock
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

    def snapshot(self, as_of: AsOf = None, ignore_corrupt_markers: bool = False) -> Snapshot:
        """The live files now; or as of a time (aware, or ISO 8601 text), or as of the commit with a tid.

        Raises TableNotFoundError, CorruptMarkerError (unless told to ignore: then such a transaction counts as
        pending), InvalidInputError, StoreError.
        """
        self.refuse_partition()
        return read_snapshot(self.store, self.clock, as_of=as_of, ignore_corrupt_markers=ignore_corrupt_markers)

    def changes(self, start: datetime | str, end: AsOf = None) -> list[CommitChanges]:
        """What came and went with the commits from `start` to `end`, both included, oldest first.

        Each is a time (aware, or ISO 8601 text) or a tid; without an `end`, up to now. Raises HistoryLostError where
        vacuum has deleted what it takes, InvalidInputError, and as `snapshot` does.
        """
        self.refuse_partition()
        return list_changes(self.store, self.clock, start, end)

    def lag(self, checkpoint: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> StreamLag:
        """How far the stream with this checkpointLocation, which reads this table, is behind it.

        `storage_options` are those of the checkpoint; by default, of this table. Raises InvalidInputError where that is
        no checkpoint of such a stream, HistoryLostError.
        """
        self.refuse_partition()
        options = self.storage_options if storage_options is None else storage_options
        return find_lag(self.store, self.clock, open_store(parse_location(checkpoint), options))

    def history(self) -> list[Commit]:
        """The commits, newest first. Raises as `snapshot` does."""
        return self.snapshot().history()

    def schema(self) -> Mapping[str, Any]:
        """The columns now, as Spark's JSON: those that writers recorded, else those of the newest file.

        Raises InvalidInputError where there is neither, UnsupportedStoreError where pyarrow is needed and missing.
        """
        snapshot = self.snapshot()
        if snapshot.schema is not None:
            return snapshot.schema
        from dbio_commit.log.found_columns import table_columns

        return table_columns(self.store, snapshot)

    def settings(self) -> Mapping[str, str]:
        """The settings now, by name. Raises as `snapshot` does."""
        return self.snapshot().settings

    def set(self, settings: Mapping[str, str]) -> Commit:
        """Changes these settings, and leaves the others; an empty text removes one. The commit has them all.

        `publish` lists forms for other tools: delta, spark, symlink. Raises TableNotFoundError, InvalidInputError for
        what cannot be set and where this is no table of ours, TransactionAbortedError, CommitStateUnknownError.
        """
        self.refuse_partition()
        return change_settings(self.store, self.clock, settings)

    def begin(
        self,
        operation: Operation = "append",
        partition_by: Sequence[str] | None = None,
        app: AppVersion | None = None,
        *,
        must_be_empty: bool = False,
        data_change: bool = True,
        if_tid: str | None = None,
    ) -> Transaction:
        """Begins a transaction: "append", "overwrite", "replace_partitions" or "rewrite".

        Creates the table where the path holds nothing; `partition_by` are then its partition columns. An overwrite with
        others changes them ([] for none): its commit takes a minute more, and aborts whatever else is pending. `app` is
        an (application id, version) that is committed at most once; a number counts up, a day or a time may come in any
        order. `must_be_empty` refuses a table that has commits already. With `if_tid`, the `Snapshot.tid` that the
        write goes by, the commit fails with CommitConflictError where anything was committed since. `data_change=False`
        says of a rewrite that the files which it adds hold the rows of those that it removes, and no others: streams
        and change feeds pass it over.
        Raises SchemaMismatchError for other partition columns, TableExistsError, AppVersionError,
        UnsupportedStoreError.
        """
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
            if_tid=if_tid,
            inspector=self.inspector,
            skipped=has_committed(self.store, self.clock, app),
        )

    def resume(self, terms: Terms) -> Transaction:
        """A transaction that began in another process of this machine, to stage, commit or abort it here."""
        return Transaction(self.store, self.clock, terms, follow_up=publish_as_set, inspector=self.inspector)

    def abort(self, tid: str) -> None:
        """Decides a pending transaction against its writer. Raises TransactionStateError where it is committed."""
        self.refuse_partition()
        with suppress(ObjectNotFoundError):  # no table: the directory scope
            prove_store(self.store)
        until_quiet(self.store, lambda: open_root(self.store, self.clock, even_dropped=True).abort_pending(tid))

    def check(self, files: bool = False, *, progress: Progress = silent) -> CheckReport:
        """What is wrong, pending or garbage; reads every marker and lists every file.

        With `files` it also looks at the footer of each live file, which takes a request for each.
        """
        self.refuse_partition()
        return check_table(self.store, self.clock, files=files, progress=progress)

    def checkpoint(self, rebuild: bool = False) -> str | None:
        """Writes what the log says into one object, for faster reads; returns its name, None where nothing is new.

        Vacuum does so by itself, and purges what it covers. With `rebuild`, it takes the place of a checkpoint that
        cannot be read, where an older one and the markers tell the same. Raises InvalidInputError where this is no
        table of ours, or where there is nothing to rebuild, CheckpointLostError.
        """
        self.refuse_partition()
        if rebuild:
            return rebuild_checkpoint(self.store, self.clock)
        return until_quiet(self.store, lambda: checkpoint_now(self.store, self.clock))

    def publish(self, to: str | Sequence[str]) -> list[Published]:
        """Publishes the table as it is now for other engines: to "delta", "spark" or "symlink", or to several of them.

        What they read then is exactly one snapshot of it, until the next publication. Writes nothing where nothing has
        changed. Raises InvalidInputError where this is no table of ours or has what a format cannot hold,
        UnsupportedTableError where somebody else wrote to the publication, CommitConflictError, StoreError.
        """
        self.refuse_partition()
        return publish(self.store, self.clock, parse_formats(to))

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
        """Puts small files together to files of about `target_size` bytes, in each partition; the rows stay the same.

        `where` chooses files, as `Snapshot.where` does, and never rows. `sort_by` are columns by which the rows of each
        new file are sorted; `z_order`, instead, columns along whose Z-curve they lie, so that each stretch of a file
        has few values of each. Fewer than `min_files` that would become one stay as they are. Appends go on beside it;
        files that somebody else removed meanwhile are left, and the report says so. Raises InvalidInputError where this
        is no table of ours, TableNotFoundError, TransactionAbortedError, CommitStateUnknownError, StoreError,
        UnsupportedStoreError without pyarrow.
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

    def adopt(self, *, progress: Progress = silent) -> Commit:
        """Makes a table of a plain or DBIO directory, of the files that are visible now; moves and deletes nothing.

        Looks at the footers of all files, and records their columns. The result's `notes` name files that a compaction
        should write anew. Raises TransactionStateError while a transaction is pending, TableExistsError,
        InvalidInputError where the files lie in different partition columns or some are empty, no Parquet or what not
        all readers can read, SchemaMismatchError where their columns do not fit together, CommitConflictError where
        somebody wrote meanwhile.
        """
        self.refuse_partition()
        return adopt(self.store, self.clock, looks=self.inspector is not None, progress=progress)

    def restore(self, as_of: AsOf | RestorePlan) -> Commit:
        """Brings the files and the columns back as they were as of a time or a tid, by one commit; settings stay.

        Raises InvalidInputError where vacuum has deleted what was live then, and where the table had no commit yet;
        CommitConflictError where anything is committed meanwhile (nothing was restored: do it again), HistoryLostError,
        StoreError.
        """
        plan = as_of if isinstance(as_of, RestorePlan) else self.plan_restore(as_of)
        return restore(self.store, self.clock, plan)

    def plan_restore(self, as_of: AsOf) -> RestorePlan:
        """What `restore` would do, which takes the plan, too. Changes nothing; raises as `restore` does."""
        self.refuse_partition()
        return plan_restore(self.store, self.clock, as_of)

    def copy(self, path: str, storage_options: Mapping[str, Any] | None = None) -> CopyReport:
        """Copies the table as it is now to another path, where nothing is: files, history, columns and settings.

        The times of its commits stay, so that time travel and streams go on there; a tool that copies objects gives
        them new ones. `storage_options` are the other store's; by default, of this table. Commits that come meanwhile
        are not copied. Raises InvalidInputError where this is no table of ours, TableExistsError, HistoryLostError
        where vacuum deletes a live file meanwhile, StoreError.
        """
        self.refuse_partition()
        other = Table(path, self.storage_options if storage_options is None else storage_options)
        other.refuse_partition()
        return copy_table(self.store, other.store, self.clock)

    def drop(self, everything: bool = False) -> DropReport:
        """Removes a table that has no commits, such as a first write that failed leaves; or `everything`.

        It is gone for everybody at once; then its files and markers are deleted, which takes a minute or more, so that
        no writer is left. What no transaction wrote stays. A drop that failed half-way is ended by another. Raises
        InvalidInputError where it has commits or is no table of ours, TableNotFoundError, StoreError.
        """
        self.refuse_partition()
        return drop(self.store, self.clock, everything=everything)

    def inspect(self, tid: str) -> TransactionReport:
        """What is known of one transaction, whatever its state. Raises InvalidInputError where it has no marker."""
        self.refuse_partition()
        return inspect_transaction(self.store, self.clock, tid)

    def refuse_partition(self) -> None:
        """A partition's directory is no table: the markers that decide about its files lie further up."""
        parent = self.location
        while parent and "=" in names.split(parent.prefix)[1]:
            parent = replace(parent, prefix=names.split(parent.prefix)[0])
            with suppress(ObjectNotFoundError):
                open_store(parent, self.storage_options).stat(names.DESCRIPTOR)
                raise InvalidInputError(
                    f"{self.url} is a partition of the table {parent.url}; read and write that, with a filter"
                )
