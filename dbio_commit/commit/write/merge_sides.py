"""Names the columns of both sides of a merge without Spark, the table and the source, and finds matching rows. Pure.

Expressions see columns of the table by their own names, and those of the source with a prefix (`SOURCE`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.commit.write.clauses import RowKind
from dbio_commit.commit.write.rewrite import EVERY_ROW, INSTEAD, WITH_SPARK, Rows
from dbio_commit.commit.write.update import SeenColumns
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.conditions import expressions
from dbio_commit.data.conditions.terms import read_condition
from dbio_commit.data.conditions.tree import AllOf, AnyOf, ColumnPair, Comparison, Condition
from dbio_commit.data.frames import Frame, fitted
from dbio_commit.data.mapping import ColumnMapping, Schema, field_names
from dbio_commit.data.widen import fit
from dbio_commit.protocol.types import is_integer, widens

SOURCE, GIVEN = "source.", "given."
"""Prefixes of a column of the source: as it is, and with the type of the table's column of its name."""


def as_numpy(values: Any) -> Any:
    return values.to_numpy(zero_copy_only=False)


class MergeSides:
    """The columns of the table and of the source, and their names in expressions."""

    def __init__(self, table: Schema, source: Schema) -> None:
        self._table, self._source = table, source
        self.own = {name.lower(): name for name in field_names(table)}
        self.other = {name.lower(): name for name in field_names(source)}
        if odd := [name for name in self.own if name.startswith((SOURCE, GIVEN))]:
            raise InvalidInputError(f"without Spark, no rows are merged into a table with a column {odd[0]!r:.100}")
        if len(self.other) < len(source["fields"]):
            raise InvalidInputError("two columns of the source differ in case only, or not at all; rename one of them")
        renamed = [{**field, "name": SOURCE + field["name"]} for field in source["fields"]]
        self.schema = {**table, "fields": [*table["fields"], *renamed]}
        self.kinds = {field["name"]: field["type"] for field in self.schema["fields"]}
        self.arrow = arrow_schema(self.schema, where="the source")

    @property
    def common(self) -> Schema:
        """The columns of the source that the table has, too."""
        return {**self._source, "fields": [it for it in self._source["fields"] if it["name"].lower() in self.own]}

    def given(self) -> Mapping[str, Any]:
        """For each column of `common`, a function that takes it, with the table's type, from rows of the source."""
        names = [self.own[name.lower()] for name in field_names(self.common)]
        return {name: lambda rows, name=name: rows.column(GIVEN + name) for name in names}

    def scope(self, rows: RowKind) -> SeenColumns:
        return SeenColumns(kinds=self.kinds, names=self.names(rows))

    def names(self, rows: RowKind) -> Mapping[tuple[str, str], str]:
        own = {} if rows == "not_matched" else self.own
        other = {} if rows == "not_matched_by_source" else {key: SOURCE + name for key, name in self.other.items()}
        alone = {key: (own | other)[key] for key in own.keys() ^ other.keys()}
        sides = {"target": own, "source": other, "": alone}
        return {(side, key): name for side, names in sides.items() for key, name in names.items()}

    def condition(self, sql: str, rows: RowKind) -> Condition:
        """The parsed condition. Raises InvalidInputError if only Spark can evaluate it."""
        return read_condition(sql, self.schema, zone=None, instead=INSTEAD, names=self.names(rows))

    def read(self, source: Frame, given: ColumnMapping | None, target: pa.Schema) -> pa.Table:
        """The rows of the source; with `given`, also its columns with the table's types."""
        names = field_names(self._source)
        as_they_are = ColumnMapping(tuple(enumerate(names)), self._source, ())
        schema = arrow_schema(self._source, where="the source")
        rows = pa.Table.from_batches(fitted(source.batches(), as_they_are, schema), schema=schema).combine_chunks()
        found = rows.rename_columns([SOURCE + name for name in names])
        if given is not None:
            own = pa.schema([target.field(name) for position, name in given.columns if position is not None])
            taken = rows.select(field_names(self.common))
            mapping = ColumnMapping(tuple(it for it in given.columns if it[0] is not None), given.schema, ())
            with_types = pa.Table.from_batches(fitted(taken.to_batches(), mapping, own), schema=own)
            names_of_both = [*found.column_names, *(GIVEN + name for name in own.names)]
            found = pa.Table.from_arrays([*found.columns, *with_types.columns], names=names_of_both)
        return found.combine_chunks()


@dataclass(frozen=True, slots=True)
class MergeMatch:
    """Which rows of the table match which rows of the source."""

    keys: Sequence[tuple[str, str]]
    """Pairs of columns that must be equal: of the table, and of the source with its prefix."""
    target: Condition
    """A condition that rows of the table must fulfil besides."""
    source: Condition
    """A condition that rows of the source must fulfil besides."""
    of_target: expressions.RowTest
    of_source: expressions.RowTest

    @classmethod
    def of(cls, on: str | Sequence[str], sides: MergeSides) -> Self:
        """The match by these columns, or this condition. Raises InvalidInputError; SchemaMismatchError for columns
        whose values are not compared."""
        if isinstance(on, str):
            name = on.strip("`")
            if name.isidentifier() or name.lower() in sides.own.keys() & sides.other.keys():
                on = [name]
        keys, parts = ([], _flat(sides.condition(on, "matched"))) if isinstance(on, str) else (_keys(on, sides), [])
        of_sides: tuple[list[Condition], list[Condition]] = [], []
        for part in parts:
            used = {*part.columns()}
            of_source = {name for name in used if name.startswith(SOURCE)}
            if isinstance(part, ColumnPair) and part.operator == "=" and len(of_source) == 1:
                pair = (part.column, part.other)
                if sides.kinds[part.column] in ("float", "double"):
                    raise InvalidInputError(f"on={on!r:.200} compares floating-point keys, which only Spark does")
                keys.append(pair if part.other in of_source else (pair[1], pair[0]))
            elif of_source not in (set(), used):
                raise InvalidInputError(
                    f"on={on!r:.200} compares the two sides by more than = of single columns, which only Spark does: "
                    f"put this into a condition of when_matched(…), or {WITH_SPARK}"
                )
            else:
                of_sides[bool(of_source)].append(part)
        if not keys:
            raise InvalidInputError(
                f"on={on!r:.200} has no columns that must be equal: give a list of columns, such as ['id'], or a "
                "condition such as 'target.id = source.id'"
            )
        target, source = (AllOf(tuple(it)) for it in of_sides)
        return cls(keys, target, source, expressions.bound(target, sides.arrow), expressions.bound(source, sides.arrow))

    @property
    def columns_of_keys(self) -> list[str]:
        return [name for name, _ in self.keys]

    @property
    def columns(self) -> list[str]:
        """The columns of the table that decide whether a row matches."""
        return [*self.columns_of_keys, *self.target.columns()]

    def kept(self, codes: Any, rows: Rows) -> Any:
        """The numbers of keys in `codes`; -1 for rows of the table that do not fulfil `target`."""
        return codes if self.target == EVERY_ROW else np.where(as_numpy(self.of_target(rows)), codes, -1)

    def index(self, source: pa.Table, sides: MergeSides) -> "KeyIndex":
        """The keys of the source. Rows that do not fulfil `source` match nothing, as null does."""
        columns = [_as_key(source.column(other), sides.arrow.field(own).type) for own, other in self.keys]
        if self.source != EVERY_ROW:
            holds = pa.chunked_array([self.of_source(it) for it in source.to_batches()], pa.bool_())
            columns = [pc.if_else(holds, column, pa.scalar(None, column.type)) for column in columns]
        return KeyIndex(pa.table(columns, names=self.columns_of_keys))

    def near(self, source: pa.Table) -> Condition:
        """A condition that holds for all rows of the table that can match."""
        parts: list[Condition] = [self.target]
        for own, other in self.keys:
            column = source.column(other).drop_null()
            if not len(column):
                return AnyOf(())  # nothing is equal to null
            if not types.is_boolean(column.type):
                bounds: Any = pc.min_max(column)
                low, high = bounds["min"].as_py(), bounds["max"].as_py()
                parts += [Comparison(own, ">=", low, low), Comparison(own, "<=", high, high)]
        return AllOf(tuple(parts))


def _flat(condition: Condition) -> list[Condition]:
    """The parts that must all hold."""
    return [it for part in condition.parts for it in _flat(part)] if isinstance(condition, AllOf) else [condition]


def _as_key(column: Any, kind: Any) -> Any:
    return column if types.is_integer(column.type) else pa.chunked_array([fit(it, kind) for it in column.chunks], kind)


def _keys(on: Sequence[str], sides: MergeSides) -> list[tuple[str, str]]:
    """The columns of a list, as the two sides spell them. Raises InvalidInputError, SchemaMismatchError."""
    if not isinstance(on, Sequence) or not on or not all(isinstance(name, str) for name in on):
        raise InvalidInputError(f"on={on!r:.100} is no list of columns, such as ['id']")
    found: list[tuple[str, str]] = []
    for name in on:
        for names, whose in ((sides.own, "table"), (sides.other, "source")):
            if name.lower() not in names:
                raise InvalidInputError(f"on={list(on)!r:.200}: the {whose} has no column {name!r}")
        own, other = sides.own[name.lower()], SOURCE + sides.other[name.lower()]
        kind, given = sides.kinds[own], sides.kinds[other]
        for it, whose in ((kind, "table"), (given, "source")):
            if not isinstance(it, str) or it in ("float", "double", "variant", "binary"):
                raise InvalidInputError(
                    f"the key {name!r} of the {whose} is {it!s:.100}, which only Spark compares: match rows by whole "
                    "numbers, decimals, texts, days, times or booleans"
                )
        if kind != given != "void" and not (is_integer(kind) and is_integer(given)) and not widens(given, kind):
            raise SchemaMismatchError(
                f"the key {name!r} is {kind} in the table, and {given} in the source; nothing was written: cast it"
            )
        found.append((own, other))
    return list(dict.fromkeys(found))


# --- keys -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    values: Any
    """The distinct values of a key column, without null."""

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
        """For each column after the first: its distinct pairs, as one number each. A pair has the number of the columns
        before, and the place of the value."""
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
    """The column, with a type that Arrow hashes; one type for all whole numbers."""
    kind = column.type
    if types.is_integer(kind):
        return column.cast(pa.int64())
    if types.is_decimal(kind) and kind.bit_width != 128:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column
