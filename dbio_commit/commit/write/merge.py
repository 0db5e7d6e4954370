"""Merges the rows of a frame into a table without Spark, by columns that must be equal: `Table.merge`.

The rows of the frame are in memory. Those of the table are read file by file: first the key columns of the files that
may have matching rows, then the files with rows that change.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.commit.write.changes import DELETE, INSERT
from dbio_commit.commit.write.clauses import Clause, check_clauses
from dbio_commit.commit.write.options import CommitOptions, WriteOptions, no_commit
from dbio_commit.commit.write.place import Place
from dbio_commit.commit.write.plan import plan_write
from dbio_commit.commit.write.rewrite import EVERY_ROW, Changes, Rewrite, Rows, Setting, exchanged, snapshot_to_rewrite
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.frames import Frame, fitted, read_frame
from dbio_commit.data.mapping import field_names
from dbio_commit.data.pruning import AllOf, AnyOf, Comparison, Condition
from dbio_commit.data.row_checks import RowChecks
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.state import DataFile


def merge_frame(
    place: Place, frame: Any, on: Sequence[str], clauses: Sequence[Clause], *, commit: CommitOptions
) -> Commit:
    """Merges the rows by these columns. Raises what `Table.merge` raises."""
    check_clauses(clauses)
    for clause in clauses:
        if clause.where is not None or (clause.values is not None and clause.rows != "not_matched_by_source"):
            raise InvalidInputError(
                "a clause of when= with a condition, or with values, is evaluated by Spark only: without it, give "
                "when_matched().update() or .delete(), when_not_matched().insert() and "
                "when_not_matched_by_source().delete() or .update(values). Nothing was changed"
            )
    source = read_frame(frame)
    if source.is_stream:
        batches = list(source.batches())
        schema = batches[0].schema if batches else arrow_schema(source.columns, where="the source")
        source = read_frame(pa.Table.from_batches(batches, schema=schema))
    return commit.attempt(place.store, place.clock, lambda: _Merge(place, source, on, clauses, commit).run())


class _Merge:
    def __init__(
        self, place: Place, source: Frame, on: Sequence[str], clauses: Sequence[Clause], commit: CommitOptions
    ) -> None:
        snapshot, own_columns = snapshot_to_rewrite(place)
        self._on = _keys(on, own_columns, source)
        self._clauses = {clause.rows: clause for clause in clauses}
        own = {name.lower() for name in field_names(own_columns)}
        fields = source.columns["fields"]
        chosen = [i for i, field in enumerate(fields) if field["name"].lower() in own]
        columns = {**source.columns, "fields": [fields[i] for i in chosen]}
        constraints = Constraints.of(snapshot.settings)
        self._refuse_lacking(own_columns, columns, constraints)
        plan = plan_write(place, columns, mode="append", partition_by=None, options=WriteOptions(), commit=commit)
        self._rewrite = rewrite = Rewrite.of(plan, snapshot)
        batches = (pa.RecordBatch.from_arrays([it.column(i) for i in chosen], names=field_names(columns))
                   for it in source.batches())  # fmt: skip
        target = pa.schema([rewrite.target.field(name) for _, name in plan.mapping.columns])
        self._source = pa.Table.from_batches(fitted(batches, plan.mapping, target), schema=target).combine_chunks()
        now = place.clock.now()
        computed = {name for name in plan.filled if name.lower() in {it.lower() for it in constraints.generated}}
        self._given = [name for name in field_names(rewrite.schema) if name not in plan.filled]
        self._new_checks = rewrite.checks()
        self._changed_checks = RowChecks.of(constraints, rewrite.schema, lacks=computed, where=place.url, now=now)
        self._computed = computed
        self._keys = KeyIndex(self._source.select(self._on))
        self._seen = np.zeros(self._keys.count, np.bool_)
        by_source = self._clauses.get("not_matched_by_source")
        is_setting = by_source is not None and by_source.action == "update"
        self._setting = Setting.of(rewrite, by_source.values or {}) if by_source and is_setting else None

    def _refuse_lacking(self, table: Mapping[str, Any], columns: Mapping[str, Any], constraints: Constraints) -> None:
        """Raises SchemaMismatchError if the source lacks a column that a clause gives to rows."""
        given = {name.lower() for name in field_names(columns)}
        generated = {name.lower() for name in constraints.generated}
        for rows, filled in (("matched", generated), ("not_matched", constraints.filled)):
            clause = self._clauses.get(rows)  # type: ignore[call-overload]
            lacking = [it for it in field_names(table) if it.lower() not in given | filled]
            if clause is not None and clause.action != "delete" and lacking:
                raise SchemaMismatchError(
                    f"the source has no column {lacking[0]!r}, so {clause.action}() cannot set all columns; give it "
                    "all columns of the table"
                )

    def run(self) -> Commit:
        rewrite, commit = self._rewrite, self._rewrite.plan.commit
        is_idle = not self._source.num_rows and "not_matched_by_source" not in self._clauses
        if is_idle and not commit.app and commit.if_match is None:
            return no_commit(rewrite.plan.place.store, rewrite.plan.place.clock, None)
        condition = EVERY_ROW if "not_matched_by_source" in self._clauses else self._near_keys()
        files = rewrite.files(condition)
        keys = pa.schema([rewrite.target.field(name) for name in self._on])
        known = rewrite.rows_of(files)

        def looked_at(file: DataFile) -> bool:
            """Whether rows of the file change."""
            changes = False
            for batch in rewrite.read(file, keys, rows=known.get(file.path), anew=False):
                codes = self._keys.find(batch.select(self._on))
                matching = codes >= 0
                self._seen[codes[matching]] = True
                changes |= "matched" in self._clauses and bool(matching.any())
                changes |= "not_matched_by_source" in self._clauses and not matching.all()
            return changes

        found = rewrite.plan.place.store.in_parallel(looked_at, files, at_once=4)
        partial = [file for file, changes in zip(files, found, strict=True) if changes]
        return rewrite.commit(condition, self._change, partial=partial, new_rows=self._new_rows, metrics=_metrics)

    def _near_keys(self) -> Condition:
        """A condition that holds for all rows of the table that can match."""
        parts: list[Condition] = []
        for name in self._on:
            column = self._source.column(name).drop_null()
            if not len(column):
                return AnyOf(())  # nothing is equal to null
            if not types.is_boolean(column.type):
                bounds: Any = pc.min_max(column)
                low, high = bounds["min"].as_py(), bounds["max"].as_py()
                parts += [Comparison(name, ">=", low, low), Comparison(name, "<=", high, high)]
        return AllOf(tuple(parts))

    # --- rows -----------------------------------------------------------------------------------------------------

    def _change(self, batch: Rows, changes: Changes) -> Rows:
        codes = self._keys.find(batch.select(self._on))
        matching = codes >= 0
        by_source, matched = self._clauses.get("not_matched_by_source"), self._clauses.get("matched")
        if self._setting is not None:
            batch = self._setting.change(batch, pa.array(~matching), changes)
            changes.counts["copied"] -= int(matching.sum())
        if matched is None:
            changes.counts["copied"] += int(matching.sum())
        elif matched.action != "delete" and self._keys.has_twice(codes[matching]):
            raise InvalidInputError(
                f"rows of the table match more than one row of the source by on={self._on!r:.200}, so it is not clear "
                "which of them counts: give the source one row for each row of the table; nothing was committed"
            )
        elif matched.action == "update" and matching.any():
            mask = pa.array(matching)
            before = batch.filter(mask)
            new = self._source.take(pa.array(self._keys.first[codes[matching]]))
            after = _with(before, new, self._given)
            after = self._changed_checks.checked(after)
            copied = changes.counts["copied"]
            batch = exchanged(batch, mask, before, after, changes, sets={*self._given, *self._computed})
            changes.counts["copied"] = copied
        gone = np.zeros(len(codes), np.bool_)
        if matched is not None and matched.action == "delete":
            gone |= matching
        if by_source is not None and by_source.action == "delete":
            gone |= ~matching
        elif by_source is None:
            changes.counts["copied"] += int((~matching).sum())
        if not gone.any():
            return batch
        changes.counts["deleted"] += int(gone.sum())
        changes.record(batch.filter(pa.array(gone)), DELETE)
        return batch.filter(pa.array(~gone))

    def _new_rows(self, changes: Changes) -> Iterator[Rows]:
        if "not_matched" not in self._clauses:
            return
        codes = self._keys.own
        new = np.ones(len(codes), np.bool_)
        new[codes >= 0] = ~self._seen[codes[codes >= 0]]
        for batch in self._source.filter(pa.array(new)).to_batches(max_chunksize=64 * 1024):
            rows = self._new_checks.checked(batch.select(field_names(self._rewrite.schema)))
            changes.counts["inserted"] += rows.num_rows
            changes.record(rows, INSERT)
            yield rows


def _metrics(counts: Counter[str]) -> Mapping[str, int]:
    return {
        "numTargetRowsInserted": counts["inserted"],
        "numTargetRowsUpdated": counts["updated"],
        "numTargetRowsDeleted": counts["deleted"],
        "numTargetRowsCopied": counts["copied"],
    }


def _with(rows: Rows, new: pa.Table, columns: Sequence[str]) -> Rows:
    """The rows, with these columns taken from `new`, which has as many rows in the same order."""
    for name in columns:
        at = rows.schema.get_field_index(name)
        values: Any = new.column(name).combine_chunks()
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


# --- keys ---------------------------------------------------------------------------------------------------------


def _keys(on: Sequence[str], schema: Mapping[str, Any], source: Frame) -> list[str]:
    """The columns of `on`, as the table spells them. Raises InvalidInputError."""
    if isinstance(on, str):
        raise InvalidInputError(
            f"on={on!r:.100} is a text: without Spark, give a list of columns that must be equal, such as ['id']"
        )
    if not isinstance(on, Sequence) or not on or not all(isinstance(name, str) for name in on):
        raise InvalidInputError(f"on={on!r:.200} is no list of columns, such as ['id']")
    found: list[str] = []
    for columns, whose in ((schema, "table"), (source.columns, "source")):
        own = {it["name"].lower(): it for it in columns["fields"]}
        if missing := [name for name in on if name.lower() not in own]:
            raise InvalidInputError(f"on={list(on)!r:.200}: the {whose} has no column {missing[0]!r}")
        kinds = {name: own[name.lower()]["type"] for name in on}
        found = found or [own[name.lower()]["name"] for name in on]
        for name, kind in kinds.items():
            if not isinstance(kind, str) or kind in ("float", "double", "variant", "binary"):
                raise InvalidInputError(
                    f"the key {name!r} of the {whose} is {kind!s:.100}, which only Spark compares: match rows by whole "
                    "numbers, decimals, texts, days, times or booleans"
                )
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Column:
    values: Any
    """The distinct values of a key column; no null."""

    def codes(self, column: Any) -> Any:
        """For each value its place among the distinct ones; -1 if it is none of them, or null."""
        found = pc.index_in(column, value_set=self.values, skip_nulls=True)
        return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)


class KeyIndex:
    """The keys of a source: numbers each distinct key, and finds the numbers for rows of the table.

    A key with a null is equal to no other, and has the number -1.
    """

    def __init__(self, keys: pa.Table) -> None:
        self._columns = [_Column(_hashed(column).unique().drop_null()) for column in keys.columns]
        self._steps: list[Any] = []
        """For each column after the first: the distinct pairs of a number so far and a place, as one number."""
        codes = self._columns[0].codes(_whole(keys.column(0))) if keys.num_rows else np.zeros(0, np.int64)
        for column, values in zip(self._columns[1:], keys.columns[1:], strict=True):
            pairs = self._paired(codes, column, _whole(values))
            self._steps.append(np.unique(pairs[pairs >= 0]))
            codes = self._placed(pairs, self._steps[-1])
        self.own = codes
        """For each row of the source, the number of its key."""
        self.count = int(codes.max()) + 1 if len(codes) else 0
        known = np.nonzero(codes >= 0)[0]
        self.first = np.zeros(self.count, np.int64)
        self.first[codes[known][::-1]] = known[::-1]
        self._times = np.bincount(codes[known], minlength=self.count)

    def find(self, rows: pa.RecordBatch) -> Any:
        codes = self._columns[0].codes(_whole(rows.column(0)))
        for column, values, step in zip(self._columns[1:], rows.columns[1:], self._steps, strict=True):
            codes = self._placed(self._paired(codes, column, _whole(values)), step)
        return codes

    def has_twice(self, codes: Any) -> bool:
        """Whether several rows of the source have one of these keys."""
        return bool((self._times[codes] > 1).any())

    @staticmethod
    def _paired(codes: Any, column: _Column, values: Any) -> Any:
        places = column.codes(values)
        return np.where((codes >= 0) & (places >= 0), codes * max(len(column.values), 1) + places, -1)

    @staticmethod
    def _placed(pairs: Any, step: Any) -> Any:
        if not len(step):
            return np.full(len(pairs), -1, np.int64)
        at = np.minimum(np.searchsorted(step, pairs), len(step) - 1)
        return np.where(step[at] == pairs, at, -1)


def _whole(column: Any) -> Any:
    return _hashed(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def _hashed(column: Any) -> Any:
    """The column, with a type that Arrow hashes."""
    kind = column.type
    if types.is_decimal(kind) and kind.bit_width != 128:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column
