"""Merges the rows of a frame into a table without Spark, by columns that must be equal: `Table.merge`.

The frame is the source, and its rows are in memory. The table is read file by file: first the columns of keys and
conditions, in files that may have matching rows, then the whole files with rows that change.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.commit.context import WriteContext
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.write.changes import DELETE, INSERT
from dbio_commit.commit.write.clauses import UPSERT, Clause, RowKind, check_clauses, refuse_unknown
from dbio_commit.commit.write.merge_sides import MergeMatch, MergeSides, as_numpy
from dbio_commit.commit.write.options import WriteOptions, no_commit, with_retries
from dbio_commit.commit.write.plan import plan_write
from dbio_commit.commit.write.rewrite import EVERY_ROW, Changes, Rewrite, Rows, snapshot_to_rewrite
from dbio_commit.commit.write.update import Setting, new_values
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.conditions import expressions
from dbio_commit.data.conditions.tree import AnyOf, Condition
from dbio_commit.data.frames import Frame, read_frame
from dbio_commit.data.mapping import Schema, field_names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.state import DataFile


def merge_frame(
    context: WriteContext,
    frame: Any,
    on: str | Sequence[str],
    clauses: Sequence[Clause] | None,
    *,
    commit: CommitOptions,
) -> Commit:
    """Merges the rows by these columns, or by a condition. Raises what `Table.merge` raises."""
    if clauses is not None:
        check_clauses(clauses)
    source = read_frame(frame)
    if source.is_stream:
        batches = list(source.batches())
        schema = batches[0].schema if batches else arrow_schema(source.columns, where="the source")
        source = read_frame(pa.Table.from_batches(batches, schema=schema))
    return with_retries(
        commit, context.store, context.clock, lambda: _Merge(context, source, on, clauses, commit).run()
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A clause, bound to the columns that it may use."""

    clause: Clause
    condition: Condition
    holds: expressions.RowTest | None
    """None: it always holds."""
    setting: Setting | None
    """None for a delete."""

    @classmethod
    def of(cls, clause: Clause, rewrite: Rewrite, sides: "MergeSides") -> Self:
        scope = sides.scope(clause.rows)
        condition = EVERY_ROW if clause.where is None else sides.condition(clause.where, clause.rows)
        setting = None
        if clause.action != "delete":
            values = sides.given() if clause.values is None else new_values(clause.values, None)
            setting = Setting.of(rewrite, values, scope=scope, inserts=clause.action == "insert")
        holds = None if clause.where is None else expressions.bound(condition, sides.arrow)
        return cls(clause, condition, holds, setting)


class _Merge:
    def __init__(
        self,
        context: WriteContext,
        source: Frame,
        on: str | Sequence[str],
        clauses: Sequence[Clause] | None,
        commit: CommitOptions,
    ) -> None:
        snapshot, own = snapshot_to_rewrite(context)
        if clauses is None:
            refuse_unknown(field_names(source.columns), field_names(own), where=context.url)
        clauses = UPSERT if clauses is None else clauses
        sides = MergeSides(own, source.columns)
        match = MergeMatch.of(on, sides)
        takes_all = [it for it in clauses if it.values is None and it.action != "delete"]
        _refuse_lacking(takes_all, own, source.columns, Constraints.of(snapshot.settings))
        columns = sides.common if takes_all else own
        plan = plan_write(
            context,
            columns,
            mode="append",
            partition_by=None,
            options=WriteOptions(),
            commit=commit,
            rewrites=True,
            by_value=True,
        )
        self._rewrite = rewrite = Rewrite.of(plan, snapshot)
        self._on, self._match = on, match
        self._source = sides.read(source, plan.mapping if takes_all else None, rewrite.target)
        self._parts = [_Part.of(clause, rewrite, sides) for clause in clauses]
        self._keys = match.index(self._source, sides)
        self._seen = np.zeros(self._keys.count, np.bool_)
        matched = [it for it in clauses if it.rows == "matched"]
        self._may_match_twice = [(it.action, it.where) for it in matched] in ([], [("delete", None)])
        used = {*match.columns, *(name for it in self._parts for name in it.condition.columns())}
        self._looks_at = pa.schema([field for field in rewrite.target if field.name in used])

    def run(self) -> Commit:
        rewrite, commit = self._rewrite, self._rewrite.plan.commit
        by_source = [it.condition for it in self._parts if it.clause.rows == "not_matched_by_source"]
        if not self._source.num_rows and not by_source and not commit.app and commit.if_match is None:
            return no_commit(rewrite.plan.context.store, rewrite.plan.context.clock, None)
        near = self._match.near(self._source)
        condition = EVERY_ROW if EVERY_ROW in by_source else AnyOf((*by_source, near)) if by_source else near
        files = rewrite.files(condition)
        known = rewrite.rows_of(files)

        def looked_at(file: DataFile) -> bool:
            """Whether rows of the file change."""
            changes = False
            for batch in rewrite.read(file, self._looks_at, rows=known.get(file.path)):
                codes = self._codes(batch)
                self._seen[codes[codes >= 0]] = True
                changes |= bool((self._actions(batch, codes) >= 0).any())
            return changes

        found = rewrite.look_at(looked_at, files)
        partial = [file for file, changes in zip(files, found, strict=True) if changes]
        return rewrite.commit(condition, self._change, partial=partial, new_rows=self._new_rows, metrics=_metrics)

    # --- rows -----------------------------------------------------------------------------------------------------

    def _codes(self, batch: Rows) -> Any:
        """For each row of the table, the number of the key that it matches, or -1."""
        return self._match.kept(self._keys.find(batch.select(self._match.columns_of_keys)), batch)

    def _seen_by(self, rows: RowKind, batch: Rows, codes: Any, mask: Any) -> Rows:
        """The rows of the table under the mask; if they match, with the columns of their rows of the source."""
        own = batch.filter(pa.array(mask))
        if rows != "matched":
            return own
        other = self._source.take(pa.array(self._keys.first[codes[mask]]))
        columns = [it.combine_chunks() for it in other.columns]
        columns = [it.combine_chunks() if isinstance(it, pa.ChunkedArray) else it for it in columns]
        names = [*own.schema.names, *other.column_names]
        return pa.RecordBatch.from_arrays([*own.columns, *columns], names=names)

    def _actions(self, batch: Rows, codes: Any) -> Any:
        """For each row of the table, the number of the clause that applies to it, or -1."""
        matching = codes >= 0
        if not self._may_match_twice and self._keys.has_twice(codes[matching]):
            raise InvalidInputError(
                f"rows of the table match more than one row of the source by on={self._on!r:.200}, so it is not clear "
                "which of them counts: give the source one row for each row of the table; nothing was committed"
            )
        actions = np.full(len(codes), -1)
        self._decide("matched", actions, matching, lambda: self._seen_by("matched", batch, codes, matching))
        self._decide("not_matched_by_source", actions, ~matching, lambda: batch.filter(pa.array(~matching)))
        return actions

    def _decide(self, rows: RowKind, actions: Any, mask: Any, seen: Any) -> None:
        """Sets the actions of the rows under the mask, which `seen` returns, to the numbers of their clauses."""
        asked = [(i, part) for i, part in enumerate(self._parts) if part.clause.rows == rows]
        if not asked or not mask.any():
            return
        own = np.full(int(mask.sum()), -1)
        scope: Any = seen() if any(part.holds for _, part in asked) else None
        for i, part in asked:
            is_left = own < 0
            own[is_left if part.holds is None else is_left & as_numpy(part.holds(scope))] = i
        actions[mask] = own

    def _change(self, batch: Rows, changes: Changes) -> Rows:
        codes = self._codes(batch)
        actions = self._actions(batch, codes)
        changed, gone = batch, np.zeros(len(codes), np.bool_)
        for i, part in enumerate(self._parts):
            mask = actions == i
            if part.setting is None:
                gone |= mask
            elif mask.any():
                seen = self._seen_by(part.clause.rows, batch, codes, mask)
                changed = part.setting.change(changed, pa.array(mask), seen, changes)
        changes.counts["copied"] += int((actions < 0).sum())
        if not gone.any():
            return changed
        changes.counts["deleted"] += int(gone.sum())
        changes.record(batch.filter(pa.array(gone)), DELETE)
        return changed.filter(pa.array(~gone))

    def _new_rows(self, changes: Changes) -> Iterator[Rows]:
        codes = self._keys.own
        new = np.ones(len(codes), np.bool_)
        new[codes >= 0] = ~self._seen[codes[codes >= 0]]
        for batch in self._source.filter(pa.array(new)).to_batches(max_chunksize=64 * 1024):
            actions = np.full(batch.num_rows, -1)
            self._decide("not_matched", actions, np.ones(batch.num_rows, np.bool_), lambda it=batch: it)
            for i, part in enumerate(self._parts):
                if part.setting is not None and (actions == i).any():
                    rows = part.setting.rows(batch.filter(pa.array(actions == i)))
                    changes.counts["inserted"] += rows.num_rows
                    changes.record(rows, INSERT)
                    yield rows


def _refuse_lacking(clauses: Sequence[Clause], table: Schema, source: Schema, constraints: Constraints) -> None:
    """Raises SchemaMismatchError if the source lacks a column that one of these clauses gives to rows."""
    given = {name.lower() for name in field_names(source)}
    for clause in clauses:
        filled = constraints.filled if clause.action == "insert" else {it.lower() for it in constraints.generated}
        if lacking := [it for it in field_names(table) if it.lower() not in given | filled]:
            raise SchemaMismatchError(
                f"the source has no column {lacking[0]!r}, so {clause.action}() cannot set all columns; give "
                f"{clause.action}() values for those that it shall set, such as {{'{_other(lacking, table)}': "
                f"'source.{_other(lacking, table)}'}}"
            )


def _other(lacking: Sequence[str], table: Schema) -> str:
    return next((name for name in field_names(table) if name not in lacking), "name")


def _metrics(counts: Counter[str]) -> Mapping[str, int]:
    return {
        "numTargetRowsInserted": counts["inserted"],
        "numTargetRowsUpdated": counts["updated"],
        "numTargetRowsDeleted": counts["deleted"],
        "numTargetRowsCopied": counts["copied"],
    }
