"""Rewrites files without Spark: `delete`, and `write` with `replace_where`; `update` and `merge` build on it.

A file with rows that change is written again, row group by row group, and the commit replaces the old file. Conditions
are only those that surely mean the same without Spark (`data/conditions/sql`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.context import WriteContext
from dbio_commit.commit.isolation import Read
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.state_after import refuse_change_type
from dbio_commit.commit.write.changes import DELETE, INSERT, ChangedRows, of_changes
from dbio_commit.commit.write.options import WriteOptions, with_retries
from dbio_commit.commit.write.parallel import write_rows
from dbio_commit.commit.write.plan import WritePlan, plan_write, refuse_directory, refuse_other_columns
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.conditions import expressions
from dbio_commit.data.conditions.pruning import column_types, facts_of_file, prune
from dbio_commit.data.conditions.terms import Where, read_condition
from dbio_commit.data.conditions.tree import ALWAYS, Condition
from dbio_commit.data.footers import has_old_calendar
from dbio_commit.data.frames import Frame, fitted
from dbio_commit.data.row_checks import RowChecks
from dbio_commit.data.rows import (
    WHOLE_BYTES,
    ReadTwice,
    held_bytes,
    open_parquet,
    opened_ahead,
    read_rows,
    refuse_loss,
    refuse_other_rows,
)
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.commits import Commit, count_rows
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.state import DataFile

EVERY_ROW = ALWAYS
WITH_SPARK = "do this with Spark (dbio.delete, dbio.update, dbio.merge)"
INSTEAD = f"Nothing was changed: compare columns with values of their types, or {WITH_SPARK}"
"""The end of messages about conditions that only Spark evaluates."""
_AT_ONCE = 4
"""How many large files are looked at side by side."""

_T = TypeVar("_T")

Rows = pa.RecordBatch
ChangeRows = Callable[[Rows, "Changes"], Rows]
"""Returns the rows that the table has in the place of these rows of a file, and reports what it changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a rewrite has changed so far."""

    counts: Counter[str]
    record: Callable[[Rows, str], None]
    """Takes rows with the type of their change; for a table that records no changes, it does nothing."""


def snapshot_to_rewrite(context: WriteContext) -> tuple[Snapshot, Mapping[str, Any]]:
    """The table now, and its columns. Raises TableNotFoundError; InvalidInputError if no columns are recorded."""
    snapshot = read_snapshot(context.store, context.clock)
    refuse_directory(snapshot.scope, context.url)
    if snapshot.schema is None:
        raise InvalidInputError(f"{context.url} holds no files and no recorded columns: there are no rows to change")
    return snapshot, snapshot.schema


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A planned rewrite: the snapshot that it reads, and the plan by which it writes."""

    plan: WritePlan
    snapshot: Snapshot | None
    """None if there is no table yet."""
    _files: ReadTwice = field(default_factory=ReadTwice, init=False, repr=False, compare=False)

    @classmethod
    def of_rows(cls, context: WriteContext, commit: CommitOptions) -> Self:
        """A rewrite whose rows have the table's columns. Raises TableNotFoundError, InvalidInputError."""
        snapshot, columns = snapshot_to_rewrite(context)
        options = WriteOptions()
        plan = plan_write(
            context, columns, mode="append", partition_by=None, options=options, commit=commit, rewrites=True
        )
        return cls.of(plan, snapshot)

    @classmethod
    def of(cls, plan: WritePlan, snapshot: Snapshot | None) -> Self:
        """The rewrite of this plan, which was made with the new rows' columns. Raises InvalidInputError,
        CommitConflictError."""
        refuse_directory(plan.target.scope, plan.context.url)
        refuse_change_type(plan.mapping.schema, plan.target.metadata.settings, where=plan.context.url)
        if snapshot is not None:
            refuse_other_columns(plan, snapshot)
        return cls(plan=plan, snapshot=snapshot)

    @property
    def where(self) -> str:
        return self.plan.context.url

    @property
    def schema(self) -> Mapping[str, Any]:
        return self.plan.mapping.schema

    @cached_property
    def target(self) -> pa.Schema:
        return arrow_schema(self.schema, where=self.where)

    @cached_property
    def _types(self) -> Mapping[str, str]:
        return column_types(self.schema)

    # --- conditions -----------------------------------------------------------------------------------------------

    def condition(self, where: Where, time_zone: str | None) -> Condition:
        """The parsed condition. Raises InvalidInputError if it is none, or if only Spark can evaluate it."""
        return read_condition(where, self.schema, zone=time_zone, instead=INSTEAD)

    def test(self, condition: Condition) -> expressions.RowTest:
        """A function that says for which rows, with the table's columns, the condition holds."""
        return expressions.bound(condition, self.target)

    def files(self, condition: Condition, snapshot: Snapshot | None = None) -> Sequence[DataFile]:
        """The files that may hold rows for which the condition holds."""
        state = snapshot or self.snapshot
        if state is None or condition == EVERY_ROW:
            return list(state.files) if state else []
        return list(prune(state.files, state.of_files, condition, self._types))

    def holds_in(self, file: DataFile, condition: Condition) -> bool:
        """Whether the condition holds for all rows of the file, judged by its partition."""
        info = FileInfo(path=file.path, size=file.size, partition=file.partition)
        return condition.must_hold(facts_of_file(info, list(condition.columns()), self._types))

    # --- files ----------------------------------------------------------------------------------------------------

    def read(self, file: DataFile, target: pa.Schema, *, rows: int | None) -> Iterator[Rows]:
        """The rows of the file with these columns, for a first look. `rows` is the number that its writer recorded.

        Raises InvalidInputError for a file that cannot be read, or not without a loss; StoreError if it has changed.
        """
        with self._files.first(self.plan.context.store, file) as source:
            yield from self._read(source, file, target, rows=rows, anew=False)

    def _read(self, source: Any, file: DataFile, target: pa.Schema, *, rows: int | None, anew: bool) -> Iterator[Rows]:
        """The rows of the file with these columns. `anew`: all of them are to be written again."""
        where, count = self.plan.context.store.url_of(file.path), 0
        parquet = open_parquet(source, where)
        if has_old_calendar(parquet.metadata):
            raise InvalidInputError(
                f"{where} was written by an old version of Spark with another calendar, and only Spark reads its "
                f"days; nothing was changed: {WITH_SPARK}"
            )
        if anew:
            refuse_loss(parquet, target, partition=file.partition, where=where)
        for batch in read_rows(parquet, target, partition=file.partition, where=where):
            count += batch.num_rows
            yield batch
        refuse_other_rows(where, rows, count)

    def look_at(self, look: Callable[[DataFile], _T], files: Sequence[DataFile]) -> list[_T]:
        """What `look` returns for each file, which it reads. Many small files, or a few large ones, are read side by
        side."""
        store = self.plan.context.store
        return list(store.ahead(look, files, held_bytes(files), size_bytes=WHOLE_BYTES, at_once=_AT_ONCE))

    def rows_of(self, files: Sequence[DataFile]) -> Mapping[str, int | None]:
        """The numbers of rows of the files, by path, as far as their writers recorded them."""
        return self.snapshot.rows_of(files) if self.snapshot else {}

    def counted(self, files: Sequence[DataFile], condition: Condition) -> list[tuple[int, int]]:
        """For each file: how many rows it has, and for how many of them the condition holds."""
        names = set(condition.columns())
        fields = [it for it in self.target if it.name in names]
        target, known = pa.schema(fields or list(self.target)[:1]), self.rows_of(files)
        holds = expressions.bound(condition, target)

        def count(file: DataFile) -> tuple[int, int]:
            rows = matching = 0
            for batch in self.read(file, target, rows=known.get(file.path)):
                rows += batch.num_rows
                matching += pc.sum(holds(batch)).as_py() or 0
            return rows, matching

        return self.look_at(count, files)

    @contextmanager
    def _changes(self) -> Iterator[tuple[Changes, ChangedRows | None]]:
        if not self.plan.records_changes:
            yield Changes(counts=Counter(), record=lambda rows, change: None), None
            return
        with ChangedRows() as changed:
            yield Changes(counts=Counter(), record=changed.add), changed

    def commit(
        self,
        depends_on: Condition,
        change: ChangeRows,
        *,
        partial: Sequence[DataFile],
        whole: Sequence[DataFile] = (),
        new_rows: Callable[[Changes], Iterable[Rows]] = lambda changes: (),
        metrics: Callable[[Counter[str]], Mapping[str, int]],
    ) -> Commit:
        """Writes the files `partial` again, with changed rows, removes the files `whole`, and adds new rows.

        The commit is refused if meanwhile rows came for which `depends_on` may hold.
        """
        context, target, known = self.plan.context, self.target, self.rows_of(partial)
        with self.plan.begin() as transaction, self._changes() as (changes, changed):
            transaction.remove(file.path for file in (*whole, *partial))
            transaction.depends_on(
                Read(
                    tids=frozenset(self.snapshot.tids if self.snapshot else ()),
                    may_match=lambda now: self.files(depends_on, now),
                    isolation=self.plan.commit.isolation,
                )
            )
            if changed is not None and (whole or partial):
                transaction.record_changes(file.path for file in whole)

            def rows(opened: Iterable[Any]) -> Iterator[Rows]:
                for file, source in zip(partial, opened, strict=True):
                    with source:
                        for batch in self._read(source, file, target, rows=known.get(file.path), anew=True):
                            yield change(batch, changes)
                yield from new_rows(changes)

            written: list[FileInfo] = []
            try:
                with closing(opened_ahead(context.store, partial, self._files.again)) as opened:
                    written += write_rows(self.plan, transaction, rows(opened))
                if changed is not None and changed.any and (whole or partial):
                    files = write_rows(self.plan, transaction, changed.batches(), of_changes)
                    # No reader skips change files by statistics.
                    written += [replace(info, statistics=None) for info in files]
            except BaseException:
                context.store.delete_many([info.path for info in written])
                raise
            transaction.add(written, looked_at=True)
            transaction.vouch_for_rows()
            return transaction.commit(schema=self.plan.schema_to_record, metrics=metrics(changes.counts))

    def checks(self) -> RowChecks:
        """The constraints, for rows that change or are new."""
        return RowChecks.of(
            self.plan.constraints,
            self.schema,
            lacks=self.plan.filled,
            where=self.where,
            now=self.plan.context.clock.now(),
        )


# --- delete and replace -------------------------------------------------------------------------------------------


def delete_rows(context: WriteContext, where: Where, *, time_zone: str | None, commit: CommitOptions) -> Commit:
    """Deletes the rows for which the condition holds. Raises what `Table.delete` raises."""

    def attempt() -> Commit:
        rewrite = Rewrite.of_rows(context, commit)
        return _replace(rewrite, rewrite.condition(where, time_zone))

    return with_retries(commit, context.store, context.clock, attempt)


def replace_rows(plan: WritePlan, where: Where, frame: Frame) -> Commit:
    """Replaces the rows for which the condition holds by those of the frame, for which it must hold, too.

    `plan` is that of a rewrite with the columns of the frame. Raises what `Table.write` raises.
    """
    snapshot = read_snapshot(plan.context.store, plan.context.clock) if plan.target.scope else None
    rewrite = Rewrite.of(plan, snapshot)
    condition = rewrite.condition(where, None)
    return _replace(rewrite, condition, lambda: _that_match(rewrite, where, rewrite.test(condition), frame))


def _that_match(rewrite: Rewrite, where: Where, holds: expressions.RowTest, frame: Frame) -> Iterator[Rows]:
    """The rows of the frame, as the table stores them. Raises InvalidInputError if the condition fails for one."""
    for batch in rewrite.checks().apply(fitted(frame.batches(), rewrite.plan.mapping, rewrite.target)):
        if wrong := batch.num_rows - (pc.sum(holds(batch)).as_py() or 0):
            raise InvalidInputError(
                f"replace_where={where!r:.200} does not hold for at least {wrong} rows of the data; nothing was "
                "committed: leave these rows out, or widen the condition"
            )
        yield batch


def _replace(rewrite: Rewrite, condition: Condition, data: Callable[[], Iterable[Rows]] | None = None) -> Commit:
    """Removes the rows for which the condition holds, and adds those of `data`."""
    files = rewrite.files(condition)
    whole = [file for file in files if rewrite.holds_in(file, condition)]
    known = {file.path for file in whole}
    read = [file for file in files if file.path not in known]
    rows = count_rows(known, rewrite.rows_of(whole))
    counts = list(zip(read, rewrite.counted(read, condition), strict=True))
    partial = [file for file, (count, matching) in counts if 0 < matching < count]
    whole += [file for file, (count, matching) in counts if 0 < matching == count]
    deleted = None if rows is None else rows + sum(matching for _, (_, matching) in counts)
    holds = rewrite.test(condition)

    def change(batch: Rows, changes: Changes) -> Rows:
        matching = holds(batch)
        changes.record(batch.filter(matching), DELETE)
        left: Any = pc.invert(matching)
        return batch.filter(left)

    def new_rows(changes: Changes) -> Iterator[Rows]:
        for batch in data() if data else ():
            changes.counts["inserted"] += batch.num_rows
            changes.record(batch, INSERT)
            yield batch

    def metrics(counts: Counter[str]) -> Mapping[str, int]:
        deletions = {} if deleted is None else {"numDeletedRows": deleted}
        return deletions | ({"numInsertedRows": counts["inserted"]} if data else {})

    return rewrite.commit(condition, change, partial=partial, whole=whole, new_rows=new_rows, metrics=metrics)
