"""Changes rows of a table without Spark: `delete` and `update`; `merge` builds on it.

A file with rows that change is written again, row group by row group, and the commit exchanges it. Conditions and
values are only those that surely mean the same without Spark (`data/where_exactly`, `data/values`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.packages import needs
from dbio_commit.base.texts import Cause
from dbio_commit.commit.isolation import Read
from dbio_commit.commit.roots import read_snapshot
from dbio_commit.commit.write.changes import AFTER, BEFORE, CHANGE_TYPE, DELETE, ChangedRows, of_changes
from dbio_commit.commit.write.frames import write_rows
from dbio_commit.commit.write.options import CommitOptions, WriteOptions
from dbio_commit.commit.write.place import Place
from dbio_commit.commit.write.plan import WritePlan, plan_write, refuse_directory, refuse_other_columns
from dbio_commit.data import arrow, evaluate
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.footers import has_old_calendar
from dbio_commit.data.mapping import field_names
from dbio_commit.data.pruning import AllOf, Condition, column_types, facts_of_file, prune
from dbio_commit.data.row_checks import RowChecks
from dbio_commit.data.rows import open_file, open_parquet, read_rows, refuse_loss, refuse_other_rows
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.commits import Commit, count_rows
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.state import DataFile

EVERY_ROW = AllOf(())
_AT_ONCE = 4
"""How many files are read at the same time. Each may be in memory as a whole, if it is small."""

Rows = pa.RecordBatch
ChangeRows = Callable[[Rows, "Changes"], Rows]
"""Makes of rows of a file those that the table has afterwards, and reports what it changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a rewrite has changed so far."""

    counts: Counter[str]
    record: Callable[[Rows, str], None]
    """Takes rows with the type of their change; for a table that records no changes, it does nothing."""


def snapshot_to_rewrite(place: Place) -> tuple[Snapshot, Mapping[str, Any]]:
    """The table now, and its columns. Raises TableNotFoundError; InvalidInputError if they are not recorded."""
    snapshot = read_snapshot(place.store, place.clock)
    refuse_directory(snapshot.scope, place.url)
    if snapshot.schema is None:
        raise InvalidInputError(f"{place.url} holds no files and no recorded columns: there are no rows to change")
    return snapshot, snapshot.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A planned rewrite: the snapshot that it reads, and the plan by which it writes."""

    plan: WritePlan
    snapshot: Snapshot

    @classmethod
    def of_rows(cls, place: Place, commit: CommitOptions) -> Self:
        """A rewrite whose rows have the table's columns. Raises TableNotFoundError, InvalidInputError."""
        snapshot, columns = snapshot_to_rewrite(place)
        plan = plan_write(place, columns, mode="append", partition_by=None, options=WriteOptions(), commit=commit)
        return cls.of(plan, snapshot)

    @classmethod
    def of(cls, plan: WritePlan, snapshot: Snapshot) -> Self:
        """`plan` is the plan of an append with the new rows' columns. Raises InvalidInputError, CommitConflictError."""
        refuse_directory(plan.target.scope, plan.place.url)
        if plan.records_changes and CHANGE_TYPE in map(str.lower, field_names(plan.mapping.schema)):
            raise InvalidInputError(
                f"{plan.place.url} has a column {CHANGE_TYPE}, a name that dbio uses itself in a rewrite; rename the "
                "column"
            )
        refuse_other_columns(plan, snapshot)
        return cls(plan=plan, snapshot=snapshot)

    @property
    def where(self) -> str:
        return self.plan.place.url

    @property
    def schema(self) -> Mapping[str, Any]:
        return self.plan.mapping.schema

    @property
    def target(self) -> pa.Schema:
        return arrow_schema(self.schema, where=self.where)

    # --- conditions -----------------------------------------------------------------------------------------------

    def condition(self, sql: str, time_zone: str | None) -> Condition:
        """Raises InvalidInputError for what is no condition, or one that only Spark can evaluate."""
        if not isinstance(sql, str):
            raise InvalidInputError(f"where={sql!r:.200} is no text with a condition in Spark's SQL")
        if sql.strip().lower() == "true":
            return EVERY_ROW
        with needs("a condition in SQL", extra="cli"):
            from dbio_commit.data.where_exactly import parse_exactly
        return parse_exactly(
            sql,
            self.schema,
            zone=time_zone,
            instead="Nothing was changed: compare columns with values of their types, or pass a Spark session",
        )

    def files(self, condition: Condition, snapshot: Snapshot | None = None) -> Sequence[DataFile]:
        """The files that may hold rows for which the condition holds."""
        state = snapshot or self.snapshot
        if condition == EVERY_ROW:
            return list(state.files)
        return list(prune(state.files, state.of_files, condition, column_types(self.schema)))

    def holds_in(self, file: DataFile, condition: Condition) -> bool:
        """Whether the condition holds for all rows of the file, judged by its partition."""
        info = FileInfo(path=file.path, size=file.size, partition=file.partition)
        return condition.must_hold(facts_of_file(info, list(condition.columns()), column_types(self.schema)))

    # --- files ----------------------------------------------------------------------------------------------------

    def read(self, file: DataFile, target: pa.Schema, *, rows: int | None, anew: bool) -> Iterator[Rows]:
        """The rows with these columns. `rows` is how many its writer recorded. `anew`: to write all of them again.

        Raises InvalidInputError for a file that cannot be read, or not without a loss; StoreError if it has changed.
        """
        store, count = self.plan.place.store, 0
        where = store.url_of(file.path)
        with open_file(store, file) as source:
            parquet = open_parquet(source, where)
            if has_old_calendar(parquet.metadata):
                raise InvalidInputError(
                    f"{where} was written by an old version of Spark with another calendar, and only Spark reads its "
                    "days; nothing was changed: pass a Spark session"
                )
            if anew:
                refuse_loss(parquet, target, partition=file.partition, where=where)
            for batch in read_rows(parquet, target, partition=file.partition, where=where):
                count += batch.num_rows
                yield batch
        refuse_other_rows(where, rows, count)

    def rows_of(self, files: Sequence[DataFile]) -> Mapping[str, int | None]:
        """How many rows the files have, as far as their writers recorded it."""
        return self.snapshot.rows_of(files)

    def counted(self, files: Sequence[DataFile], condition: Condition) -> list[tuple[int, int]]:
        """For each file: how many rows it has, and for how many of them the condition holds."""
        names = set(condition.columns())
        fields = [it for it in self.target if it.name in names]
        target, known = pa.schema(fields or list(self.target)[:1]), self.rows_of(files)

        def count(file: DataFile) -> tuple[int, int]:
            rows = matching = 0
            for batch in self.read(file, target, rows=known.get(file.path), anew=False):
                rows += batch.num_rows
                matching += pc.sum(evaluate.holds(condition, batch)).as_py() or 0
            return rows, matching

        return self.plan.place.store.in_parallel(count, files, at_once=_AT_ONCE)

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
        place, target, known = self.plan.place, self.target, self.rows_of(partial)
        plan = replace(self.plan, operation="rewrite")
        with plan.begin() as transaction, self._changes() as (changes, changed):
            transaction.remove(file.path for file in (*whole, *partial))
            transaction.goes_by(
                Read(
                    tids=frozenset(self.snapshot.tids),
                    may_match=lambda now: self.files(depends_on, now),
                    isolation=self.plan.commit.isolation,
                )
            )
            if changed is not None and (whole or partial):
                transaction.record_changes(file.path for file in whole)

            def rows() -> Iterator[Rows]:
                for file in partial:
                    for batch in self.read(file, target, rows=known.get(file.path), anew=True):
                        yield change(batch, changes)
                yield from new_rows(changes)

            written: list[FileInfo] = []
            try:
                written += write_rows(plan, transaction, rows())
                if changed is not None and changed.any and (whole or partial):
                    files = write_rows(plan, transaction, changed.batches(), of_changes)
                    # No reader skips change files by statistics.
                    written += [replace(info, statistics=None) for info in files]
            except BaseException:
                place.store.delete_many([info.path for info in written])
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
            now=self.plan.place.clock.now(),
        )


# --- delete -------------------------------------------------------------------------------------------------------


def delete_rows(place: Place, where: str, *, time_zone: str | None, commit: CommitOptions) -> Commit:
    """Deletes the rows for which the condition holds. Raises what `Table.delete` raises."""

    def attempt() -> Commit:
        rewrite = Rewrite.of_rows(place, commit)
        condition = rewrite.condition(where, time_zone)
        files = rewrite.files(condition)
        whole = [file for file in files if rewrite.holds_in(file, condition)]
        known = {file.path for file in whole}
        read = [file for file in files if file.path not in known]
        rows = count_rows(known, rewrite.rows_of(whole))
        counts = list(zip(read, rewrite.counted(read, condition), strict=True))
        partial = [file for file, (count, matching) in counts if 0 < matching < count]
        whole += [file for file, (count, matching) in counts if 0 < matching == count]
        deleted = None if rows is None else rows + sum(matching for _, (_, matching) in counts)

        def change(batch: Rows, changes: Changes) -> Rows:
            matching = evaluate.holds(condition, batch)
            changes.record(batch.filter(matching), DELETE)
            return batch.filter(pc.invert(matching))

        return rewrite.commit(
            condition,
            change,
            partial=partial,
            whole=whole,
            metrics=lambda counts: {} if deleted is None else {"numDeletedRows": deleted},
        )

    return commit.attempt(place.store, place.clock, attempt)


# --- update -------------------------------------------------------------------------------------------------------


def update_rows(
    place: Place, values: Mapping[str, str], where: str, *, time_zone: str | None, commit: CommitOptions
) -> Commit:
    """Gives columns new values in the rows for which the condition holds. Raises what `Table.update` raises."""

    def attempt() -> Commit:
        rewrite = Rewrite.of_rows(place, commit)
        condition = rewrite.condition(where, time_zone)
        setting = Setting.of(rewrite, values)
        files = rewrite.files(condition)
        read = [file for file in files if not rewrite.holds_in(file, condition)]
        counts = zip(read, rewrite.counted(read, condition), strict=True)
        unlike = {file.path for file, (_, matching) in counts if not matching}
        partial = [file for file in files if file.path not in unlike]

        def change(batch: Rows, changes: Changes) -> Rows:
            return setting.change(batch, evaluate.holds(condition, batch), changes)

        return rewrite.commit(
            condition,
            change,
            partial=partial,
            metrics=lambda counts: {"numUpdatedRows": counts["updated"], "numCopiedRows": counts["copied"]},
        )

    return commit.attempt(place.store, place.clock, attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """New values for columns of a table."""

    values: Mapping[str, Callable[[Rows], Any]]
    checks: RowChecks

    @classmethod
    def of(cls, rewrite: Rewrite, values: Mapping[str, str]) -> Self:
        """Raises InvalidInputError for other columns than the table's, and for values that only Spark can evaluate."""
        kinds = {it["name"]: it["type"] for it in rewrite.schema["fields"]}
        by_lower = {name.lower(): name for name in kinds}
        if not isinstance(values, Mapping) or not values:
            raise InvalidInputError(
                f"values={values!r:.200} name no column: give {{column: expression in Spark's SQL}}"
            )
        with needs("a value in SQL", extra="cli"):
            from dbio_commit.data.values import Unsure, assigned, read_value
        found: dict[str, Callable[[Rows], Any]] = {}
        for given, sql in values.items():
            name = by_lower.get(given.lower()) if isinstance(given, str) else None
            if name is None or name in found:
                why = "twice" if name else "which is no column of the table"
                raise InvalidInputError(f"the values name {given!r:.100}, {why}; it has {', '.join(kinds)[:1000]}")
            if not isinstance(sql, str):
                raise InvalidInputError(
                    f"the value of {name!r} is {sql!r:.100}, no text: give an expression in Spark's SQL, such as "
                    "'1' or \"'text'\""
                )
            try:
                value = assigned(read_value(sql, kinds, now=rewrite.plan.place.clock.now()), kinds[name])
            except Unsure as error:
                raise InvalidInputError(
                    f"the value {sql!r:.200} of column {name!r} is evaluated by Spark only: {error!s:.300}. Nothing "
                    "was changed: change it, or pass a Spark session"
                ) from None
            found[name] = _fitting(value.of, name, sql)
        constraints = rewrite.plan.constraints
        computed = {by_lower[column.lower()] for column in constraints.generated} - found.keys()
        checks = RowChecks.of(
            constraints, rewrite.schema, lacks=computed, where=rewrite.where, now=rewrite.plan.place.clock.now()
        )
        return cls(values=found, checks=checks)

    def change(self, batch: Rows, matching: Any, changes: Changes) -> Rows:
        """The rows, with the new values in those that match."""
        if not pc.any(matching).as_py():
            changes.counts["copied"] += batch.num_rows
            return batch
        before = batch.filter(matching)
        after = before
        for name, value in self.values.items():  # each sees the old values
            at = batch.schema.get_field_index(name)
            after = after.set_column(at, batch.schema.field(at), value(before))
        sets = {*self.values, *self.checks.fills}
        return exchanged(batch, matching, before, self.checks.checked(after), changes, sets=sets)


def exchanged(
    batch: Rows, matching: Any, before: Rows, after: Rows, changes: Changes, *, sets: Collection[str]
) -> Rows:
    """The rows of a batch, with those that match, `before`, replaced by the rows `after`; counts and records them.

    `sets` are the columns that may differ.
    """
    changes.counts["updated"] += after.num_rows
    changes.counts["copied"] += batch.num_rows - after.num_rows
    changes.record(before, BEFORE)
    changes.record(after, AFTER)
    columns = [
        arrow.replaced(own, matching, new) if name in sets else own
        for name, own, new in zip(batch.schema.names, batch.columns, after.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _fitting(value: Callable[[Rows], Any], name: str, sql: str) -> Callable[[Rows], Any]:
    def of(rows: Rows) -> Any:
        try:
            found = value(rows)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"the value {sql!r:.200} does not fit column {name!r} in some row: {error!s:.200}; nothing was "
                "committed: change the expression, or the condition"
            ) from Cause.of(error)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    return of
