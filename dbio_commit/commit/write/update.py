"""Gives columns new values without Spark: `Table.update`, and the clauses of a merge that set values.

A text is an expression in Spark's SQL. Only expressions that surely mean the same without Spark are evaluated
(`data/conditions/values`). Any other value is a value of Python.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.packages import needs
from dbio_commit.base.texts import Cause
from dbio_commit.commit.context import WriteContext
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.write.changes import AFTER, BEFORE
from dbio_commit.commit.write.options import with_retries
from dbio_commit.commit.write.rewrite import WITH_SPARK, Changes, Rewrite, Rows
from dbio_commit.data import arrow
from dbio_commit.data.columns import arrow_type
from dbio_commit.data.conditions.terms import Where, new_value
from dbio_commit.data.constants import scalar
from dbio_commit.data.row_checks import RowChecks
from dbio_commit.protocol.commits import Commit


@dataclass(frozen=True, slots=True)
class Plain:
    """A value of Python, also if it is a text."""

    value: Any


def new_values(updates: Mapping[str, Any] | None, values: Mapping[str, Any] | None) -> dict[str, Any]:
    """By column: an expression in SQL, or a Plain. In `updates`, texts are SQL; in `values`, all are values.

    Raises InvalidInputError if no column gets a value, or if one gets two.
    """
    given = [{} if it is None else it for it in (updates, values)]
    if not all(isinstance(it, Mapping) for it in given) or not any(given):
        raise InvalidInputError(
            f"{updates!r:.200} gives no column a value: give a dict first, such as table.update({{'n': 'n + 1'}}, "
            "where) with expressions in Spark's SQL, or table.update(values={'name': 'ann'}, where=…) with values"
        )
    first, second = given
    if twice := {str(name).lower() for name in first} & {str(name).lower() for name in second}:
        raise InvalidInputError(f"the column {min(twice)!r:.100} gets an expression and a value: give one of them")
    found = {name: it if isinstance(it, str) else Plain(it) for name, it in first.items()}
    return found | {name: Plain(it) for name, it in second.items()}


def update_rows(
    context: WriteContext, values: Mapping[str, Any], where: Where, *, time_zone: str | None, commit: CommitOptions
) -> Commit:
    """Gives columns new values in the rows for which the condition holds. `values` is a result of `new_values`.

    Raises what `Table.update` raises.
    """

    def attempt() -> Commit:
        rewrite = Rewrite.of_rows(context, commit)
        condition = rewrite.condition(where, time_zone if isinstance(where, str) else None)
        setting = Setting.of(rewrite, values, time_zone=time_zone)
        holds = rewrite.test(condition)
        files = rewrite.files(condition)
        read = [file for file in files if not rewrite.holds_in(file, condition)]
        counts = zip(read, rewrite.counted(read, condition), strict=True)
        unlike = {file.path for file, (_, matching) in counts if not matching}
        partial = [file for file in files if file.path not in unlike]

        def change(batch: Rows, changes: Changes) -> Rows:
            matching = holds(batch)
            changed = setting.change(batch, matching, batch.filter(matching), changes)
            changes.counts["copied"] += batch.num_rows - (pc.sum(matching).as_py() or 0)
            return changed

        return rewrite.commit(
            condition,
            change,
            partial=partial,
            metrics=lambda counts: {"numUpdatedRows": counts["updated"], "numCopiedRows": counts["copied"]},
        )

    return with_retries(commit, context.store, context.clock, attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenColumns:
    """The columns that expressions may use."""

    kinds: Mapping[str, Any]
    """Their types, in Spark's JSON, by the names that the columns have in rows."""
    names: Mapping[tuple[str, str], str]
    """Their names in SQL, as for `read_value`."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """New values for columns of a table."""

    target: pa.Schema
    values: Mapping[str, Callable[[Rows], Any]]
    """By column: computes the new values from rows that have the columns of the scope."""
    checks: RowChecks

    @classmethod
    def of(
        cls,
        rewrite: Rewrite,
        values: Mapping[str, Any],
        *,
        scope: SeenColumns | None = None,
        time_zone: str | None = None,
        inserts: bool = False,
    ) -> Self:
        """`values` are those of `new_values`, or functions as in `Setting.values`. By default, expressions use the
        table's own columns. With `inserts`, columns without a value get their defaults, and else nulls.

        Raises InvalidInputError for other columns than the table's, and for values that only Spark can evaluate.
        """
        kinds = {it["name"]: it["type"] for it in rewrite.schema["fields"]}
        by_lower = {name.lower(): name for name in kinds}
        scope = scope or SeenColumns(kinds=kinds, names={("", key): name for key, name in by_lower.items()})
        found: dict[str, Callable[[Rows], Any]] = {}
        for given, value in values.items():
            name = by_lower.get(given.lower()) if isinstance(given, str) else None
            if name is None or name in found:
                why = "twice" if name else "which is no column of the table"
                raise InvalidInputError(f"the values name {given!r:.100}, {why}; it has {', '.join(kinds)[:1000]}")
            found[name] = value if callable(value) else _value_of(rewrite, value, name, kinds[name], scope, time_zone)
        constraints = rewrite.plan.constraints
        filled = constraints.filled if inserts else {column.lower() for column in constraints.generated}
        lacks = {by_lower[column] for column in filled} - found.keys()
        now = rewrite.plan.context.clock.now()
        checks = RowChecks.of(constraints, rewrite.schema, lacks=lacks, where=rewrite.where, now=now)
        return cls(target=rewrite.target, values=found, checks=checks)

    @cached_property
    def sets(self) -> Collection[str]:
        """The columns that may differ afterwards."""
        return {*self.values, *self.checks.fills}

    def rows(self, seen: Rows, before: Rows | None = None) -> Rows:
        """The rows with the new values, computed from `seen`; other columns are those of `before`, or null."""
        columns = [
            self.values[field.name](seen)
            if field.name in self.values
            else pa.nulls(seen.num_rows, field.type)
            if before is None
            else before.column(at)
            for at, field in enumerate(self.target)
        ]
        return self.checks.checked(pa.RecordBatch.from_arrays(columns, schema=self.target))

    def change(self, batch: Rows, matching: Any, seen: Rows, changes: Changes) -> Rows:
        """The rows of the batch, with new values in those that match. `seen` has the latter with the scope's columns.

        Counts and records the rows that change.
        """
        if not seen.num_rows:
            return batch
        before = batch.filter(matching)
        after = self.rows(seen, before)
        changes.counts["updated"] += after.num_rows
        changes.record(before, BEFORE)
        changes.record(after, AFTER)
        columns = [
            arrow.replaced(own, matching, new) if name in self.sets else own
            for name, own, new in zip(batch.schema.names, batch.columns, after.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _value_of(
    rewrite: Rewrite, given: Any, name: str, kind: Any, scope: SeenColumns, time_zone: str | None
) -> Callable[[Rows], Any]:
    if isinstance(given, Plain):
        constant = scalar(new_value(given.value, kind, column=name), arrow_type(kind))
        return lambda rows: pa.repeat(constant, rows.num_rows)
    with needs("a value in SQL", extra="cli"):
        from dbio_commit.data.conditions.values import Unsure, read_value
    try:
        now = rewrite.plan.context.clock.now()
        value = read_value(given, scope.kinds, names=scope.names, now=now, kind=kind, zone=time_zone)
    except Unsure as error:
        raise InvalidInputError(
            f"the value {given!r:.200} of column {name!r} is evaluated by Spark only: {error!s:.300}. Nothing was "
            f"changed: change it, or {WITH_SPARK}. If the text itself is the value, give values={{{name!r}: …}}"
        ) from None

    def of(rows: Rows) -> Any:
        try:
            found = value.of(rows)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"the value {given!r:.200} does not fit column {name!r} in some row: {error!s:.200}; nothing was "
                "committed: change the expression, or the condition"
            ) from Cause.of(error)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    return of


def as_sql(values: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, str]:
    """The values of `new_values` as expressions in Spark's SQL, for Spark.

    Names of other columns stay, for Spark to refuse. Raises InvalidInputError for a value that its column cannot have.
    """
    from dbio_commit.data.conditions.literals import written

    kinds = {it["name"].lower(): it["type"] for it in schema["fields"]}
    found: dict[str, str] = {}
    for name, it in values.items():
        if isinstance(it, Plain):
            kind = kinds.get(str(name).lower())
            it = "NULL" if kind is None else written(new_value(it.value, kind, column=name))
        found[name] = it
    return found
