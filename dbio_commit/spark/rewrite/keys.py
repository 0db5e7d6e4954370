"""Looks at the keys of a merge's source: finds their bounds, to leave out files, and whether they are few."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import SchemaMismatchError
from dbio_commit.spark.rewrite import ranges
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.sql.conditions import NOTHING, SOURCE, all_of, any_of, equal_columns
from dbio_commit.spark.transfer.batches import in_tasks

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
    other: str
    """The source's column."""
    given: t.DataType
    """The type of the source's column."""

    @property
    def value(self) -> Column:
        return f.col(f"{SOURCE}.{schemas.quoted(self.other)}")

    @property
    def ordered(self) -> bool:
        """Whether the source's least and greatest values bound all values of the table that can be equal.

        They do not for a string with a collation, which makes different texts equal.
        """
        if isinstance(self.kind, t.IntegralType) and isinstance(self.given, t.IntegralType):
            return True
        has_text = isinstance(self.kind, t.DateType | t.DecimalType) or self.kind.simpleString() == "string"
        return has_text and self.kind.simpleString() == self.given.simpleString()


@dataclass(frozen=True)
class Keys:
    """The keys of a source. One job reads the source for them."""

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
                _Key(name, schema[name].dataType, other, given[other])
                for name, other in equal_columns(on, schema.fieldNames(), source.columns)
            ],
        )

    @property
    def names(self) -> set[str]:
        """The names of the keys in the table."""
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
    def _summary(self) -> ranges.KeySummary:
        texts = [it.value for it in self.each if isinstance(it.given, t.StringType | t.BinaryType)]
        width = sum((f.coalesce(f.octet_length(text), f.lit(0)) for text in texts), f.lit(_KEY_BYTES))
        values = [it.value.alias(str(i)) for i, it in enumerate(self._ordered)]
        rows = self.source.select(width.cast("long").alias("bytes"), *values)
        count = len(values)  # a number can be sent to tasks, and columns cannot
        lines = in_tasks(rows, lambda unpack: lambda batches: ranges.summarize(unpack(batches), count), ranges.SCHEMA)
        return ranges.add_up(lines, [_value_type(it.kind) for it in self._ordered], most=_RANGES)

    @property
    def _ordered(self) -> list[_Key]:
        return [it for it in self.each if it.ordered]

    @property
    def count(self) -> int:
        """The number of the source's rows."""
        return self._summary.rows

    def are_few(self, rows: int | None) -> bool:
        """Whether to broadcast the source, for a join with so many rows of the table; None: their number is unknown."""
        never = str(self.source.sparkSession.conf.get("spark.sql.autoBroadcastJoinThreshold")).startswith("-")
        if never or not self.each:
            return False
        few = self._summary.size <= _FEW_BYTES
        return few and (rows is None or self.count * _FEW <= rows)

    def between(self) -> str | None:
        """A condition on the table's columns that holds for all rows that can match; None if no key bounds them."""
        conditions = []
        for key, found in zip(self._ordered, self._summary.keys, strict=True):
            if found.is_unbounded:
                continue
            if not found.pairs:
                return NOTHING  # the source has no value, and nothing is equal to null
            conditions.append(any_of([_within(key, *pair) for pair in found.pairs]))
        return all_of([condition for condition in conditions if condition])


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


def _within(key: _Key, low: ranges.KeyValue, high: ranges.KeyValue) -> str | None:
    column, bounds = schemas.quoted(key.name), [_literal(value, key.kind) for value in (low, high)]
    return f"{column} >= {bounds[0]} AND {column} <= {bounds[1]}" if all(bounds) else None


def _literal(value: ranges.KeyValue, kind: t.DataType) -> str | None:
    """The value in Spark's SQL; None for a text that needs escapes, and for a date that Python does not know."""
    if isinstance(value, str):
        return f"'{value}'" if value.isprintable() and not {"'", "\\", '"'} & {*value} else None
    if isinstance(kind, t.DateType):
        day = _EPOCH + int(value)
        return f"DATE '{date.fromordinal(day)}'" if date.min.toordinal() <= day <= date.max.toordinal() else None
    return format(value, "f") if isinstance(value, Decimal) else str(value)


_EPOCH = date(1970, 1, 1).toordinal()


def _value_type(kind: t.DataType) -> type[int] | type[Decimal] | type[str]:
    if isinstance(kind, t.StringType):
        return str
    return Decimal if isinstance(kind, t.DecimalType) else int
