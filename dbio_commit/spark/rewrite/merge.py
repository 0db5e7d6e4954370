"""`merge`: what becomes of a table's rows, and of those of a source, by whether they match."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark import schema as schemas
from dbio_commit.spark.conditions import (
    NOTHING,
    SOURCE,
    TARGET,
    all_of,
    any_of,
    check,
    equal_columns,
    holds,
    target_part,
)
from dbio_commit.spark.constraints import with_defaults
from dbio_commit.spark.rewrite.base import RESERVED, Rewrite
from dbio_commit.spark.rewrite.by_condition import columns_named, misfits
from dbio_commit.spark.rewrite.find import find_matches, find_unmatched
from dbio_commit.spark.values import Assigned, assign
from dbio_commit.spark.written import FATE, Fate, Writing, fate, with_images

# --- what is asked for --------------------------------------------------------------------------------------------

Rows = Literal["matched", "not_matched", "not_matched_by_source"]
"""Pairs of a row of the table and one of the source; rows of the source alone; rows of the table alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """What becomes of some rows: one clause of a merge. The first that holds for a row counts."""

    rows: Rows
    where: str | None
    """None: it holds for all of them."""
    action: Literal["update", "delete", "insert"]
    values: Mapping[str, str] | None = None
    """By column; None: each has that of the source's column of the same name."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Of the rows of the table that match one of the source."""

    where: str | None

    def update(self, values: Mapping[str, str] | None = None) -> Clause:
        """Gives columns the values of expressions in Spark's SQL; without any, all columns those of the source."""
        return Clause(rows="matched", where=self.where, action="update", values=values)

    def delete(self) -> Clause:
        return Clause(rows="matched", where=self.where, action="delete")


@dataclass(frozen=True, slots=True)
class NotMatched:
    """Of the rows of the source that match none of the table."""

    where: str | None

    def insert(self, values: Mapping[str, str] | None = None) -> Clause:
        """As rows of these values, and of nulls; without any, with those of the source in all columns."""
        return Clause(rows="not_matched", where=self.where, action="insert", values=values)


@dataclass(frozen=True, slots=True)
class NotMatchedBySource:
    """Of the rows of the table that match none of the source."""

    where: str | None

    def update(self, values: Mapping[str, str]) -> Clause:
        """Gives columns the values of expressions in Spark's SQL."""
        return Clause(rows="not_matched_by_source", where=self.where, action="update", values=values)

    def delete(self) -> Clause:
        return Clause(rows="not_matched_by_source", where=self.where, action="delete")


def when_matched(where: str | None = None) -> Matched:
    """Rows of the table that match one of the source; `where`, in Spark's SQL, may ask `target.` and `source.`."""
    return Matched(where)


def when_not_matched(where: str | None = None) -> NotMatched:
    """Rows of the source that match none of the table; `where`, in Spark's SQL, may ask `source.`."""
    return NotMatched(where)


def when_not_matched_by_source(where: str | None = None) -> NotMatchedBySource:
    """Rows of the table that match none of the source; `where`, in Spark's SQL, may ask `target.`."""
    return NotMatchedBySource(where)


UPSERT = (Matched(None).update(), NotMatched(None).insert())

# --- what is done -------------------------------------------------------------------------------------------------


def merge_rows(rewrite: Rewrite, source: DataFrame, on: str | Sequence[str], clauses: Sequence[Clause]) -> Commit:
    """Merges the source into the table, as one commit.

    Raises InvalidInputError for what cannot be asked for, for rows of the table that match more than one of the source,
    and for values that do not fit; SchemaMismatchError, CommitConflictError, and as a write does.
    """
    merge = _Merge(rewrite, source, on, _checked(clauses))
    files, where = merge.find()
    with rewrite.begin(files, where) as rewriting:
        counts = rewriting.write(merge.rows(files))
        merge.check_counts(rewriting, counts, files)
        return rewriting.commit(
            {
                "numTargetRowsInserted": counts[Fate.INSERTED],
                "numTargetRowsUpdated": counts[Fate.UPDATED],
                "numTargetRowsDeleted": counts[Fate.DELETED],
                "numTargetRowsCopied": counts[Fate.KEPT],
            }
        )


def _checked(clauses: Sequence[Clause]) -> Sequence[Clause]:
    if not isinstance(clauses, Sequence) or not clauses or not all(isinstance(it, Clause) for it in clauses):
        raise InvalidInputError(
            f"when={clauses!r:.200} are no clauses: give a list such as [dbio.when_matched().update(), "
            "dbio.when_not_matched().insert()]"
        )
    ended = set[Rows]()
    for clause in clauses:
        if clause.rows in ended:
            raise InvalidInputError(
                f"a clause of when= for rows that are {clause.rows} comes after one that holds for all of them: it "
                "would never count; put the one without a condition last"
            )
        if clause.where is None:
            ended.add(clause.rows)
    return clauses


_IS_TARGET, _IS_SOURCE, _CLAUSE = "_dbio_target", "_dbio_source", "_dbio_clause"
_NO_CLAUSE = -1


class _Merge:
    """A merge whose clauses were checked against the columns of both sides."""

    def __init__(self, rewrite: Rewrite, source: DataFrame, on: str | Sequence[str], clauses: Sequence[Clause]) -> None:
        if clash := set(RESERVED).intersection(map(str.lower, source.columns)):
            raise InvalidInputError(f"a source with a column {min(clash)} cannot be merged; rename it")
        self._rewrite, self._clauses = rewrite, clauses
        if any(clause.action == "insert" for clause in clauses):
            source = with_defaults(source, rewrite.plan, {name: _default(name) for name in rewrite.with_default})
        no_target = rewrite.no_rows().alias(TARGET)
        no_source = rewrite.spark.createDataFrame([], source.schema).alias(SOURCE)
        both = no_target.crossJoin(no_source)
        self._scopes: Mapping[Rows, DataFrame] = {
            "matched": both,
            "not_matched": no_source,
            "not_matched_by_source": no_target,
        }
        self._on = _condition(on, rewrite.schema, source)
        check(both, self._on, name="on")
        for clause in clauses:
            if clause.where is not None:
                for rows in dict.fromkeys(
                    (clause.rows, "matched")
                ):  # it may ask its own side alone, and is asked of both together
                    check(self._scopes[rows], clause.where, name=f"when_{clause.rows}")
        self._values = [self._assign(clause, source) for clause in clauses]
        # Read once: what it holds must not change between looking for matches and writing them.
        self._source = source.localCheckpoint(eager=False)

    def _assign(self, clause: Clause, source: DataFrame) -> dict[str, Assigned]:
        """By column: its value by this clause, and whether that does not fit."""
        if clause.action == "delete":
            return {}
        schema = self._rewrite.schema
        filled: dict[str, str | None] = dict.fromkeys(self._rewrite.generated)
        if clause.action == "insert":
            filled |= {it: f"{SOURCE}.{schemas.quoted(_default(it))}" for it in self._rewrite.with_default}
        given = clause.values
        if given is None:
            known = {name.lower(): name for name in source.columns} | {name: name for name in source.columns}
            lacking = [name for name in schema.fieldNames() if not known.keys() & {name, name.lower()}]
            if missing := [name for name in lacking if name not in filled]:
                raise SchemaMismatchError(
                    f"the source has no column {missing[0]!r}, so that {clause.action}() cannot set all columns; "
                    "name those that it shall set, and their values"
                )
            given = {
                name: f"{SOURCE}.{schemas.quoted(known.get(name) or known[name.lower()])}"
                for name in schema.fieldNames()
                if name not in lacking
            }
        fields = columns_named(schema, given)
        named = {field.name for field in fields.values()}
        for name, sql in filled.items():
            if sql is not None and name not in named:
                fields[name], given = schema[name], {**given, name: sql}
        values = assign(self._scopes[clause.rows], [(given[name], field) for name, field in fields.items()])
        if clause.rows != "matched":
            self._scopes["matched"].select(*(value for value, _ in values.values())).schema  # noqa: B018  (as in `check`)
        return values

    def _has(self, *rows: Rows) -> bool:
        return any(clause.rows in rows for clause in self._clauses)

    # --- which files ----------------------------------------------------------------------------------------------

    def find(self) -> tuple[Sequence[DataFile], str | None]:
        """The files that are rewritten; and a condition for the table's rows by which it went, None is all of them."""
        rewrite, source = self._rewrite, self._source.alias(SOURCE)
        where, found = self._matching, set[str]()
        if self._has("matched") or (self._has("not_matched") and self._has("not_matched_by_source")):
            changes = _any([clause.where for clause in self._clauses if clause.rows == "matched"])
            matches = find_matches(rewrite.locate(rewrite.files(where)).alias(TARGET), source, self._on, changes)
            # What is not read again would look as if it matched nothing, and what it matches be inserted.
            found |= {path for path, changed in matches.items() if changed or self._has("not_matched")}
        if self._has("not_matched_by_source"):
            conditions = [clause.where for clause in self._clauses if clause.rows == "not_matched_by_source"]
            own = any_of([it and target_part(it, self._names, ()) for it in conditions])
            rows = rewrite.locate(rewrite.files(own)).alias(TARGET)
            found |= find_unmatched(rows, source, self._on, _any(conditions))
            where = any_of([own, where])
        return [file for file in rewrite.files(None) if file.path in found] if found else [], where

    @property
    def _names(self) -> list[str]:
        return self._rewrite.schema.fieldNames()

    @cached_property
    def _matching(self) -> str | None:
        """A condition for the table's rows that holds for all that match one of the source; None is all of them."""
        asked, between = target_part(self._on, self._names, self._source.columns), self._between()
        return NOTHING if between == NOTHING else all_of(it for it in (asked, between) if it)

    def _between(self) -> str | None:
        """Where the keys of the source are, as a condition on the table's columns."""
        schema, source = self._rewrite.schema, self._source.alias(SOURCE)
        given = {field.name: field.dataType for field in source.schema.fields}
        pairs = [
            (name, f.col(f"{SOURCE}.{schemas.quoted(other)}"))
            for name, other in equal_columns(self._on, self._names, source.columns)
            if _are_alike(schema[name].dataType, given[other])
        ]
        if not pairs or self._rewrite.snapshot is None:
            return None
        # As texts: Python knows fewer dates than Spark.
        bounds = [bound(value).cast("string") for _, value in pairs for bound in (f.min, f.max)]
        row = source.agg(*bounds).collect()[0]
        parts = []
        for i, (name, _) in enumerate(pairs):
            if row[2 * i] is None:
                return NOTHING  # is equal to null
            low, high = (_literal(text, schema[name].dataType) for text in row[2 * i : 2 * i + 2])
            column = schemas.quoted(name)
            parts += [f"{column} >= {low} AND {column} <= {high}"] if low and high else []
        return all_of(parts)

    # --- which rows -----------------------------------------------------------------------------------------------

    def rows(self, files: Sequence[DataFile]) -> DataFrame:
        """What becomes of the rows of these files, and of the source's."""
        rewrite, source = self._rewrite, self._source.withColumn(_IS_SOURCE, f.lit(True)).alias(SOURCE)
        if not self._has("matched", "not_matched_by_source"):
            known = rewrite.scan(rewrite.files(self._matching)).alias(TARGET)
            source = source.join(known, f.expr(self._on), "left_anti").alias(SOURCE)
        target = rewrite.scan(files).withColumn(_IS_TARGET, f.lit(True)).alias(TARGET)
        both = target.join(source, f.expr(self._on), "full_outer" if self._has("not_matched") else "left_outer")
        in_target, in_source = f.col(_IS_TARGET).isNotNull(), f.col(_IS_SOURCE).isNotNull()
        kinds: Mapping[Rows, Column] = {
            "matched": in_target & in_source,
            "not_matched": ~in_target,
            "not_matched_by_source": ~in_source,
        }
        numbers = f.lit(_NO_CLAUSE)
        for i, clause in reversed([*enumerate(self._clauses)]):
            is_it = kinds[clause.rows] if clause.where is None else kinds[clause.rows] & holds(clause.where)
            numbers = f.when(is_it, i).otherwise(numbers)
        both = both.withColumn(_CLAUSE, numbers)
        by_clause = {i: f.col(_CLAUSE) == i for i in range(len(self._clauses))}
        fates = f.when(in_target, int(Fate.KEPT)).otherwise(int(Fate.LEFT_OUT))
        for i, clause in enumerate(self._clauses):
            fates = f.when(by_clause[i], int(_FATES[clause.action])).otherwise(fates)
        for i, values in enumerate(self._values):
            for _, misfit in values.values():
                if misfit is not None:
                    fates = f.when(by_clause[i] & misfit, int(Fate.WRONG)).otherwise(fates)
        both = both.withColumn(FATE, fates)
        if rewrite.plan.tells_changes:
            both = with_images(both)
        changes = f.col(FATE).isin(int(Fate.UPDATED), int(Fate.INSERTED))
        columns = []
        for field in rewrite.schema.fields:
            value = f.col(f"{TARGET}.{schemas.quoted(field.name)}")
            for i, values in enumerate(self._values):
                if field.name in values:
                    value = f.when(changes & by_clause[i], values[field.name][0]).otherwise(value)
            columns.append(value.alias(field.name))
        written = [(i, values) for i, values in enumerate(self._values) if self._clauses[i].action != "delete"]
        computed = {
            name: f.col(_CLAUSE).isin([i for i, values in written if name not in values]) for name in rewrite.generated
        }
        return rewrite.checked(both.select(*columns, _CLAUSE, fate(f.col(FATE)).alias(FATE)), computed).drop(_CLAUSE)

    def check_counts(self, rewriting: Writing, counts: Counter[Fate], files: Sequence[DataFile]) -> None:
        """Raises InvalidInputError for values that do not fit, and where rows would get lost or come twice."""
        if wrong := counts[Fate.WRONG]:
            names = {name for values in self._values for name, (_, misfit) in values.items() if misfit is not None}
            rewriting.refuse(misfits(wrong, names))
        expected = self._rewrite.count_rows(files)
        seen = counts[Fate.KEPT] + counts[Fate.UPDATED] + counts[Fate.DELETED]
        if seen > expected:
            rewriting.refuse(
                f"rows of the table match more than one row of the source by on={self._on!r:.200} ({expected} rows, "
                f"and {seen} pairs), so that it is not clear what becomes of them: give the source one row for each"
            )
        if seen < expected:
            rewriting.refuse(
                f"the files to be rewritten hold {expected} rows, but {seen} were found when they were merged: "
                f"on={self._on!r:.200} must go by the rows alone"
            )


def _default(column: str) -> str:
    """The column of the source for the default of one of the table's."""
    return f"_dbio_default_{column}"


_FATES = {"update": Fate.UPDATED, "delete": Fate.DELETED, "insert": Fate.INSERTED}


def _condition(on: str | Sequence[str], schema: t.StructType, source: DataFrame) -> str:
    """`on` as a condition: columns that both sides have must be equal."""
    if isinstance(on, str):
        if on.strip().lower() in {*map(str.lower, schema.fieldNames())} & {*map(str.lower, source.columns)}:
            raise InvalidInputError(
                f"on={on!r:.100} is no condition; for rows that are equal in it, give [{on!r:.100}]"
            )
        return on
    if not isinstance(on, Sequence) or not on or not all(isinstance(name, str) for name in on):
        raise InvalidInputError(
            f'on={on!r:.200} is neither a condition, such as "target.id = source.id", nor a list of columns'
        )
    for columns, whose in ((schema.fieldNames(), "table"), (source.columns, "source")):
        if missing := {name.lower() for name in on} - {name.lower() for name in columns}:
            raise InvalidInputError(f"on={list(on)!r:.200}: the {whose} has no column {min(missing)!r}")
    return " AND ".join(f"{TARGET}.{schemas.quoted(it)} = {SOURCE}.{schemas.quoted(it)}" for it in on)


def _any(conditions: Sequence[str | None]) -> Column:
    """Whether one of them holds; one that is None always does."""
    found = f.lit(False)
    for condition in conditions:
        found = found | (f.lit(True) if condition is None else holds(condition))
    return found


def _are_alike(own: t.DataType, other: t.DataType) -> bool:
    """Whether equal values of these types lie between the least and the greatest of either, as texts tell them."""
    if isinstance(own, t.IntegralType) and isinstance(other, t.IntegralType):
        return True
    is_told = isinstance(own, t.DateType | t.DecimalType) or own.simpleString() == "string"  # of no collation
    return is_told and own.simpleString() == other.simpleString()


def _literal(text: str, kind: t.DataType) -> str | None:
    """The value in Spark's SQL; None where that takes escapes, or is far off."""
    if isinstance(kind, t.StringType):
        return f"'{text}'" if text.isprintable() and not {"'", "\\", '"'} & {*text} else None
    if isinstance(kind, t.DateType):
        return f"DATE '{text}'" if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else None
    return text if re.fullmatch(r"-?\d+(\.\d+)?", text, re.ASCII) else None
