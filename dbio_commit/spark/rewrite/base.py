"""Does what all rewrites need: reads a snapshot, begins a transaction, and commits the new files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.isolation import Read, only_appends
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.state_after import refuse_change_type
from dbio_commit.commit.write.options import WriteOptions
from dbio_commit.commit.write.plan import refuse_directory, refuse_other_columns
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.commits import Commit, count_rows
from dbio_commit.protocol.etag import refuse_changed
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.infer import table_schema
from dbio_commit.spark.read.located import FILE, PLACE, Located
from dbio_commit.spark.read.scan import prune
from dbio_commit.spark.read.states import NO_READS, Reads, identity_of, once
from dbio_commit.spark.sql.conditions import NOTHING
from dbio_commit.spark.sql.planned import Named, as_they_are
from dbio_commit.spark.write.actions import ACTION
from dbio_commit.spark.write.constraints import checked
from dbio_commit.spark.write.plan import WritePlan, plan_write
from dbio_commit.spark.write.run import Writing
from dbio_commit.table import Table

RESERVED = (
    "_dbio_path",
    "_dbio_other",
    ACTION,
    FILE,
    PLACE,
    "_dbio_slot",
    "_dbio_slot_of",
    "_dbio_partition",
    "_dbio_source",
    "_dbio_clause",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A planned rewrite: the snapshot that it reads, and the plan by which it writes."""

    spark: SparkSession
    plan: WritePlan
    snapshot: Snapshot | None
    """The snapshot that it reads; None if there is no table yet."""
    named: Named = as_they_are
    """Gives rows of the table the column ids that `Planned` expressions use."""
    reads: Reads = NO_READS
    """The states of tables that its rows and expressions read besides."""

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        plan: WritePlan,
        *,
        named: Named = as_they_are,
        snapshot: Snapshot | None = None,
        reads: Reads = NO_READS,
    ) -> "Rewrite":
        """A rewrite of `snapshot`, by default a new one. `plan` is that of a rewrite with the new rows' columns.

        Raises InvalidInputError, CommitConflictError.
        """
        table = plan.table
        refuse_directory(plan.target.scope, table.url)
        refuse_change_type(plan.schema.jsonValue(), plan.target.metadata.settings, where=table.url)
        if clash := set(RESERVED).intersection(name.lower() for name in plan.schema.fieldNames()):
            raise InvalidInputError(
                f"{table.url} has a column {min(clash)}, a name that dbio uses itself in a rewrite; rename the column"
            )
        read = (snapshot or table.snapshot()) if plan.target.scope else None
        if read is not None:
            refuse_other_columns(plan, read)
        return cls(spark=spark, plan=plan, snapshot=read, named=named, reads=reads)

    @classmethod
    def of_rows(
        cls,
        spark: SparkSession,
        table: Table,
        options: CommitOptions,
        *,
        named: Named = as_they_are,
        snapshot: Snapshot | None = None,
        reads: Reads = NO_READS,
    ) -> "Rewrite":
        """A rewrite whose new rows have the table's columns; `named`, `snapshot` and `reads` are as in `of`.

        Raises TableNotFoundError, InvalidInputError, CommitConflictError.
        """
        read = snapshot or table.snapshot()
        schema = table_schema(table.store, read)
        if schema is None:
            raise InvalidInputError(f"{table.url} holds no files and no recorded columns: there are no rows to change")
        plan = plan_write(
            table,
            schema,
            mode="append",
            partition_by=None,
            options=WriteOptions(),
            commit=options,
            rewrites=True,
        )
        return cls.of(spark, plan, named=named, snapshot=read, reads=reads)

    @property
    def table(self) -> Table:
        return self.plan.table

    @property
    def schema(self) -> t.StructType:
        return self.plan.schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns."""
        return self.plan.mapping.partition_columns

    def checked(self, rows: DataFrame, computed: Mapping[str, Column]) -> DataFrame:
        """The rows, checked against the table's constraints; `computed` is as in `constraints.checked`."""
        return checked(rows, self.plan.constraints, self.schema, computed, where=self.table.url)

    @property
    def generated(self) -> Sequence[str]:
        """The generated columns."""
        return self._among(self.plan.constraints.generated)

    @property
    def with_default(self) -> Sequence[str]:
        """The columns that have a default."""
        return self._among(self.plan.constraints.defaults)

    def _among(self, columns: Iterable[str]) -> Sequence[str]:
        own = {column.lower() for column in columns}
        return [name for name in self.schema.fieldNames() if name.lower() in own]

    def no_rows(self) -> DataFrame:
        return self.named(self.spark.createDataFrame([], self.schema))

    def files(self, where: str | None) -> Sequence[DataFile]:
        """The files that may hold rows for which the condition holds; without a condition, all files."""
        return self._files_of(self.snapshot, where) if self.snapshot else ()

    def _files_of(self, snapshot: Snapshot, where: str | None) -> Sequence[DataFile]:
        if where == NOTHING:
            return ()
        return list((snapshot if where is None else prune(self.spark, snapshot, where)).files)

    def locate(self, files: Sequence[DataFile]) -> Located:
        """The rows of these files, of which there must be at least one."""
        located = Located.of(self.spark, self.table, files, self.schema, self.named)
        recorded = self.snapshot.rows_of(files) if self.snapshot else {}
        known = {number: rows for number, it in located.files.items() if (rows := recorded.get(it.path)) is not None}
        return replace(located, rows=known)

    def known_rows(self, files: Sequence[DataFile]) -> int | None:
        """How many rows these files hold; None if the writer of one did not record it."""
        recorded = self.snapshot.rows_of(files) if self.snapshot else {}
        return count_rows((file.path for file in files), recorded)

    @contextmanager
    def begin(self, where: str | None, *, whole: Sequence[DataFile] = (), changes: bool = True) -> Iterator[Writing]:
        """Begins the transaction, which removes the files `whole` with all of their rows.

        `where` must hold for each row on which the result depends: the commit uses it to find conflicts. Without
        `changes`, the rewrite changes no existing row.
        """
        with once(self._own_etags), self.plan.begin() as transaction:
            transaction.remove(file.path for file in whole)
            transaction.depends_on(
                Read(
                    tids=frozenset(self.snapshot.tids if self.snapshot else ()),
                    may_match=lambda now: self._files_of(now, where),
                    isolation=self.plan.commit.isolation,
                    check=self._refuse_changed,
                )
            )
            records = self.plan.records_changes and changes  # else the new files hold all that changes
            if records:
                transaction.record_changes(file.path for file in whole)
            yield Writing(self.plan, transaction, records_changes=records)

    @property
    def _own_etags(self) -> frozenset[str]:
        """The etags of the states of the table itself that the rewrite's rows and expressions read."""
        return self.reads.of_table(identity_of(self.snapshot)) if self.snapshot else frozenset()

    def _refuse_changed(self, now: Snapshot) -> None:
        """Raises CommitConflictError if the table has changed since the rewrite's rows and expressions were read.

        A blind append after the snapshot does not count, since the rewrite leaves its rows as they are. But it counts
        if the new rows may come from a later state (`Reads.floating`), or if the isolation is "serializable".
        """
        if self.snapshot is None or not self._own_etags:
            return
        is_certain = identity_of(self.snapshot) not in self.reads.floating
        may_append, seen = is_certain and self.plan.commit.isolation != "serializable", {*self.snapshot.tids}
        for etag in self._own_etags:
            refuse_changed(
                now.transactions,
                etag,
                moment_s=self.table.store.settle_s,
                known_since=now.checkpoint.known_since,
                where=self.table.url,
                but=lambda commit: may_append and commit.tid not in seen and only_appends(commit),
            )

    def commit_nothing(self, metrics: Mapping[str, int]) -> Commit:
        """Ends a rewrite that changes no row.

        It commits only if an application must find its version later. Else it commits nothing, and the result has the
        newest tid and `skipped`. Raises CommitConflictError if there are commits since `if_match`.
        """
        if self.plan.commit.app is not None:
            with self.begin(NOTHING, changes=False) as writing:
                return writing.commit(metrics)
        if self.plan.commit.if_match is not None:
            refuse_changed(
                self.snapshot.transactions if self.snapshot else (),
                self.plan.commit.if_match,
                moment_s=self.table.store.settle_s,
                known_since=self.snapshot.checkpoint.known_since if self.snapshot else None,
                where=self.table.url,
            )
        tids, now = self.snapshot.tids if self.snapshot else (), self.table.clock.now()
        info = CommitInfo(recorded="rewrite", commit_id="", timestamp=now, metrics=metrics)
        marker = CommitMarker(added=[], removed=[], dbio_commit=info)
        return Commit(tid=tids[-1] if tids else "", timestamp=now, marker=marker, skipped=True)
