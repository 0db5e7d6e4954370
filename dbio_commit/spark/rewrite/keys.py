"""The keys of a merge's source: their bounds, by which files are left out, and whether they are few."""

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
"""At most so many ranges: each is compared with the statistics of each file."""

_KEY_BYTES = 64
"""The size of a row's keys in Spark's memory, without the bytes of texts; a high estimate."""
_FEW_BYTES = 64 * 1024 * 1024
_FEW = 4
"""A broadcast of the source pays if the table has at least so many rows for each row of the source."""


@dataclass(frozen=True, slots=True)
class _Key:
    """A column of the table that `on` compares with a column of the source, by equality."""

    name: str
    kind: t.DataType
    value: Column
    """The source's column."""
    given: t.DataType
    """The type of the source's column."""

    @property
    def ordered(self) -> bool:
        """Whether the source's minimum and maximum, as texts, bound all values of the table that can be equal.

        They do not for a string with a collation, which makes different texts equal.
        """
        if isinstance(self.kind, t.IntegralType) and isinstance(self.given, t.IntegralType):
            return True
        has_text = isinstance(self.kind, t.DateType | t.DecimalType) or self.kind.simpleString() == "string"
        return has_text and self.kind.simpleString() == self.given.simpleString()


@dataclass(frozen=True)
class Keys:
    """The keys of a source. At most two jobs read the source for them."""

    source: DataFrame
    each: Sequence[_Key]

    @classmethod
    def of(cls, on: str, schema: t.StructType, source: DataFrame) -> "Keys":
        """`on`: the merge's condition; `schema`: the table's columns."""
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
        """The names of the table's columns."""
        return {it.name for it in self.each}

    def refuse_inexact(self) -> None:
        """Raises SchemaMismatchError for keys that Spark compares by a cast which takes different keys for equal."""
        for it in self.each:
            if not _is_exact(it.kind, it.given):
                kinds = it.kind.simpleString(), it.given.simpleString()
                raise SchemaMismatchError(
                    f"the key {it.name!r} of the table has the type {kinds[0]}, and that of the source the type "
                    f"{kinds[1]}: Spark would compare them by a cast that takes different keys for equal ones; cast "
                    f"the source's key to {kinds[0]}, and check which values the cast makes null or changes"
                )

    @cached_property
    def _counted(self) -> Row:
        """The number of rows, about how many bytes their keys take, and the bounds of each ordered key."""
        texts = [it.value for it in self.each if isinstance(it.given, t.StringType | t.BinaryType)]
        width = sum((f.coalesce(f.octet_length(text), f.lit(0)) for text in texts), f.lit(_KEY_BYTES))
        # As texts: Python has no dates before year 1 or after 9999, and Spark has.
        bounds = [bound(it.value).cast("string") for it in self.each if it.ordered for bound in (f.min, f.max)]
        return self.source.agg(f.count(f.lit(1)), f.sum(width), *bounds).collect()[0]

    @property
    def count(self) -> int:
        """The number of the source's rows."""
        return int(self._counted[0])

    def are_few(self, rows: int | None) -> bool:
        """Whether to broadcast the source, for a join with so many rows of the table; None: their number is unknown."""
        never = str(self.source.sparkSession.conf.get("spark.sql.autoBroadcastJoinThreshold")).startswith("-")
        if never or not self.each:
            return False
        few = (self._counted[1] or 0) <= _FEW_BYTES
        return few and (rows is None or self.count * _FEW <= rows)

    def between(self) -> str | None:
        """A condition on the table's columns that holds for all rows that can match; None if no key has an order."""
        ordered = [it for it in self.each if it.ordered]
        if not ordered:
            return None
        _, _, *bounds = self._counted
        if None in bounds:
            return NOTHING  # the source has no value, and nothing is equal to null
        pairs = list(zip(ordered, bounds[::2], bounds[1::2], strict=True))
        wide = next((key for key, low, high in pairs if _span(key, low, high)), None)  # one key only: each takes a job
        conditions = []
        for key, low, high in pairs:
            ranges = self._ranges(key, low, high) if key is wide else [(low, high)]
            conditions.append(any_of([_within(key, *bounds) for bounds in ranges]))
        return all_of([condition for condition in conditions if condition])

    def _ranges(self, key: _Key, low: str, high: str) -> list[tuple[str, str]]:
        """Up to _RANGES ranges that contain all keys, divided at the widest gaps: such as between old and new days."""
        first, span = _number(key.kind, low), _span(key, low, high)
        number = f.unix_date(key.value) if isinstance(key.kind, t.DateType) else key.value
        bucket = ((number.cast("double") - float(first)) * (_BUCKETS / span)).cast("int")
        bounds = [bound(key.value).cast("string") for bound in (f.min, f.max)]
        found = self.source.where(key.value.isNotNull()).groupBy(bucket).agg(*bounds).collect()
        ranges = sorted(((it[1], it[2]) for it in found), key=lambda it: _number(key.kind, it[0]))
        gaps = [_number(key.kind, after[0]) - _number(key.kind, before[1]) for before, after in pairwise(ranges)]
        cut = sorted(sorted(range(len(gaps)), key=lambda i: -gaps[i])[: _RANGES - 1])
        starts, ends = [0, *(i + 1 for i in cut)], [*cut, len(ranges) - 1]
        return [(ranges[start][0], ranges[end][1]) for start, end in zip(starts, ends, strict=True)]


def _is_exact(kind: t.DataType, other: t.DataType) -> bool:
    """Whether Spark takes values of these types for equal only if they are the same value."""
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
    """The digits before and after the point, of the decimal to which Spark converts the type."""
    if isinstance(kind, t.DecimalType):
        return kind.precision - kind.scale, kind.scale
    return {8: 3, 16: 5, 32: 10, 64: 20}[_BITS[kind.typeName()]], 0


def _span(key: _Key, low: str, high: str) -> int:
    """How many values the range has; 0 if they are fewer than the buckets, or cannot be counted."""
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
    """The value in Spark's SQL; None for a text that needs escapes, and for a date or a number in another format."""
    if isinstance(kind, t.StringType):
        return f"'{text}'" if text.isprintable() and not {"'", "\\", '"'} & {*text} else None
    if isinstance(kind, t.DateType):
        return f"DATE '{text}'" if _is_day(text) else None
    return text if re.fullmatch(r"-?\d+(\.\d+)?", text, re.ASCII) else None
