"""Where the keys of a merge's source are: so that files in which they cannot be are left out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import pairwise

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import SchemaMismatchError
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.sql.conditions import NOTHING, SOURCE, all_of, any_of, equal_columns

_BUCKETS = 1024
_RANGES = 32
"""At most: each is asked of the statistics of each file."""

_KEY_BYTES = 64
"""Of a row's keys, as Spark keeps them in memory, beside their text; guessed high."""
_FEW_BYTES = 64 * 1024 * 1024
_FEW = 4
"""So many rows of the table for one of the source, at least, make it worth while to send the source everywhere."""


@dataclass(frozen=True, slots=True)
class _Key:
    """A column of the table that must be equal to one of the source."""

    name: str
    kind: t.DataType
    value: Column
    """Of the source."""
    given: t.DataType
    """The source's."""

    @property
    def ordered(self) -> bool:
        """Whether equal values lie between the least and the greatest of either side, as texts tell them."""
        if isinstance(self.kind, t.IntegralType) and isinstance(self.given, t.IntegralType):
            return True
        is_told = (
            isinstance(self.kind, t.DateType | t.DecimalType) or self.kind.simpleString() == "string"
        )  # no collation
        return is_told and self.kind.simpleString() == self.given.simpleString()


@dataclass(frozen=True)
class Keys:
    """The keys of a source, which is read for them at most twice."""

    source: DataFrame
    each: Sequence[_Key]

    @classmethod
    def of(cls, on: str, schema: t.StructType, source: DataFrame) -> "Keys":
        """`schema`: the table's columns; `on` is a merge's condition."""
        source = source.alias(SOURCE)
        given = {field.name: field.dataType for field in source.schema.fields}
        return cls(
            source=source,
            each=[
                _Key(name, schema[name].dataType, f.col(f"{SOURCE}.{schemas.quoted(other)}"), given[other])
                for name, other in equal_columns(on, schema.fieldNames(), source.columns)
            ],
        )

    @property
    def names(self) -> set[str]:
        """Of the table's columns."""
        return {it.name for it in self.each}

    def refuse_inexact(self) -> None:
        """Raises SchemaMismatchError for keys that Spark makes others of before it compares them."""
        for it in self.each:
            if not _is_exact(it.kind, it.given):
                kinds = it.kind.simpleString(), it.given.simpleString()
                raise SchemaMismatchError(
                    f"the key {it.name!r} of the table has the type {kinds[0]}, and that of the source the type "
                    f"{kinds[1]}: Spark would compare them by a cast that takes different keys for equal ones; cast "
                    f"that of the source to {kinds[0]}, and look at what becomes null or another value by it"
                )

    @cached_property
    def _counted(self) -> Row:
        """How many rows there are, about how many bytes their keys take, and the bounds of those that have an order."""
        texts = [it.value for it in self.each if isinstance(it.given, t.StringType | t.BinaryType)]
        width = sum((f.coalesce(f.octet_length(text), f.lit(0)) for text in texts), f.lit(_KEY_BYTES))
        # As texts: Python knows fewer dates than Spark.
        bounds = [bound(it.value).cast("string") for it in self.each if it.ordered for bound in (f.min, f.max)]
        return self.source.agg(f.count(f.lit(1)), f.sum(width), *bounds).collect()[0]

    @property
    def count(self) -> int:
        """Of the source's rows."""
        return int(self._counted[0])

    def are_few(self, rows: int | None) -> bool:
        """Whether each of Spark's executors should have all keys, to look for them in so many rows of the table."""
        never = str(self.source.sparkSession.conf.get("spark.sql.autoBroadcastJoinThreshold")).startswith("-")
        if never or not self.each:
            return False
        few = (self._counted[1] or 0) <= _FEW_BYTES
        return few and (rows is None or self.count * _FEW <= rows)

    def between(self) -> str | None:
        """Where they are, as a condition on the table's columns; NOTHING for none at all, None where nothing tells."""
        ordered = [it for it in self.each if it.ordered]
        if not ordered:
            return None
        _, _, *bounds = self._counted
        if None in bounds:
            return NOTHING  # is equal to null
        pairs = list(zip(ordered, bounds[::2], bounds[1::2], strict=True))
        wide = next((key for key, low, high in pairs if _span(key, low, high)), None)  # for one more job, not many
        conditions = []
        for key, low, high in pairs:
            ranges = self._ranges(key, low, high) if key is wide else [(low, high)]
            conditions.append(any_of([_within(key, *bounds) for bounds in ranges]))
        return all_of([condition for condition in conditions if condition])

    def _ranges(self, key: _Key, low: str, high: str) -> list[tuple[str, str]]:
        """At most _RANGES that hold each key, apart where the keys are farthest apart: such of old and of new days."""
        first, span = _number(key.kind, low), _span(key, low, high)
        number = f.unix_date(key.value) if isinstance(key.kind, t.DateType) else key.value
        bucket = ((number.cast("double") - float(first)) * (_BUCKETS / span)).cast("int")
        told = [bound(key.value).cast("string") for bound in (f.min, f.max)]
        found = self.source.where(key.value.isNotNull()).groupBy(bucket).agg(*told).collect()
        ranges = sorted(((it[1], it[2]) for it in found), key=lambda it: _number(key.kind, it[0]))
        gaps = [_number(key.kind, after[0]) - _number(key.kind, before[1]) for before, after in pairwise(ranges)]
        cut = sorted(sorted(range(len(gaps)), key=lambda i: -gaps[i])[: _RANGES - 1])
        starts, ends = [0, *(i + 1 for i in cut)], [*cut, len(ranges) - 1]
        return [(ranges[start][0], ranges[end][1]) for start, end in zip(starts, ends, strict=True)]


def _is_exact(kind: t.DataType, other: t.DataType) -> bool:
    """Whether values of these types are equal for Spark only where they are the same value."""
    both = sorted((kind, other), key=lambda it: isinstance(it, t.FractionalType))
    match both:
        case t.StringType() | t.CharType() | t.VarcharType(), t.StringType() | t.CharType() | t.VarcharType():
            return True
        case t.FloatType() | t.DoubleType(), t.FloatType() | t.DoubleType():
            return True
        case t.IntegralType(), t.FloatType() | t.DoubleType():
            most = 16 if isinstance(both[1], t.FloatType) else 32
            return _BITS[both[0].typeName()] <= most
        case t.IntegralType() | t.DecimalType(), t.DecimalType():
            each = [_digits(it) for it in both]
            return max(it[0] for it in each) + max(it[1] for it in each) <= 38
        case t.IntegralType(), t.IntegralType():
            return True
    is_time = [isinstance(it, t.DateType | t.TimestampType | t.TimestampNTZType) for it in both]
    return all(is_time) or type(kind) is type(other)


_BITS = {"byte": 8, "tinyint": 8, "short": 16, "smallint": 16, "integer": 32, "int": 32, "long": 64, "bigint": 64}


def _digits(kind: t.DataType) -> tuple[int, int]:
    """Before and after the point, of the decimal that the type counts as."""
    if isinstance(kind, t.DecimalType):
        return kind.precision - kind.scale, kind.scale
    return {8: 3, 16: 5, 32: 10, 64: 20}[_BITS[kind.typeName()]], 0


def _span(key: _Key, low: str, high: str) -> int:
    """How many values may lie between, at least as many as there are buckets; else 0, and where nobody can count."""
    is_counted = isinstance(key.kind, t.IntegralType) or (isinstance(key.kind, t.DateType) and _is_day(low, high))
    span = _number(key.kind, high) - _number(key.kind, low) + 1 if is_counted else 0
    return span if span >= _BUCKETS else 0


def _number(kind: t.DataType, text: str) -> int:
    return date.fromisoformat(text).toordinal() - _EPOCH if isinstance(kind, t.DateType) else int(text)


_EPOCH = date(1970, 1, 1).toordinal()


def _is_day(*texts: str) -> bool:
    return all(re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) and text > "0001" for text in texts)


def _within(key: _Key, low: str, high: str) -> str | None:
    column, bounds = schemas.quoted(key.name), [_literal(text, key.kind) for text in (low, high)]
    return f"{column} >= {bounds[0]} AND {column} <= {bounds[1]}" if all(bounds) else None


def _literal(text: str, kind: t.DataType) -> str | None:
    """The value in Spark's SQL; None where that takes escapes, or is far off."""
    if isinstance(kind, t.StringType):
        return f"'{text}'" if text.isprintable() and not {"'", "\\", '"'} & {*text} else None
    if isinstance(kind, t.DateType):
        return f"DATE '{text}'" if _is_day(text) else None
    return text if re.fullmatch(r"-?\d+(\.\d+)?", text, re.ASCII) else None
