"""Evaluates values that users write in Spark's SQL, on Arrow's batches: defaults, generated columns, updates. Pure.

Only what surely has Spark's value, whatever the settings of a session are: literals, columns, arithmetic on numbers
without overflow, parts of dates, and a few functions of texts. All else is refused.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from dbio_commit.data.columns import arrow_type
from dbio_commit.data.conditions.literals import as_double, compared
from dbio_commit.data.conditions.sql import READ_BY_SETTINGS, Names, column_of, parse
from dbio_commit.data.constants import scalar
from dbio_commit.data.widen import fit
from dbio_commit.protocol.types import decimal_digits, is_integer, type_of, widens


class Unsure(ValueError):
    """Spark may give another value; the text says why."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value of an expression for each row."""

    kind: Any
    """Its type, as Spark's JSON."""
    of: Callable[[pa.RecordBatch], Any]
    """Takes rows with the columns that the expression uses. Raises ArrowInvalid if a number is too large."""


def read_value(
    sql: str,
    columns: Mapping[str, Any],
    *,
    now: datetime | None,
    kind: Any = None,
    zone: str | None = None,
    names: Names | None = None,
) -> Value:
    """The value; for a column of the type `kind`, as Spark's INSERT stores it.

    `columns` are the types of the columns that it may use, and `names` what it calls them; None: by their own names.
    `now` is the value of `current_timestamp()`; None if the expression may not use it. `zone` is the time zone of times
    without a zone. `of` raises ArrowInvalid for a value that the column cannot hold. Raises Unsure.
    """
    if found := READ_BY_SETTINGS.search(sql):
        raise Unsure(f"what {found['odd']!r:.40} means depends on settings of Spark")
    try:
        tree = parse(sql)
    except ValueError as error:
        raise Unsure(str(error)) from None
    names = {("", name.lower()): name for name in columns} if names is None else names
    reader = _Reader(columns, names, now, zone)
    if kind is None:
        return reader.value(tree)
    return reader.literal(tree, kind) or _assigned(reader.value(tree), kind)


_INTEGERS = ("byte", "short", "integer", "long")


class _Reader:
    def __init__(self, columns: Mapping[str, Any], names: Names, now: datetime | None, zone: str | None) -> None:
        self._columns, self._names, self._now, self._zone = columns, names, now, zone

    def literal(self, tree: Any, kind: Any) -> Value | None:
        """The value of a literal beside a column of the type; None if that is not certain, or no value of the type.

        A text is a value of columns of texts only.
        """
        tree = tree.unnest()
        if not isinstance(kind, str) or (tree.is_string and kind != "string"):
            return None
        low, high = as_double(tree, kind) or compared(tree, kind, self._zone) or (None, None)
        if low is None or low != high:
            return None
        try:
            found = scalar(Decimal(low) if decimal_digits(kind) else low, arrow_type(kind)).as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
        return _constant(found, kind) if found == low else None

    def value(self, tree: Any) -> Value:
        match tree:
            case exp.Paren():
                return self.value(tree.this)
            case exp.Null():
                return Value("void", lambda rows: pa.nulls(rows.num_rows))
            case exp.Boolean():
                return _constant(tree.this, "boolean")
            case exp.Literal():
                return _constant(tree.this, "string") if tree.is_string else _number(tree.this)
            case exp.Neg(this=exp.Literal() as literal) if not literal.is_string:
                return _number(f"-{literal.this}")
            case exp.Column() if (name := column_of(tree, self._names)) is not None:
                return Value(self._columns[name], lambda rows: rows.column(name))
            case exp.Cast():
                return self._cast(tree)
            case exp.CurrentTimestamp() if not tree.this and self._now:
                return _constant(self._now, "timestamp")
            case exp.Anonymous() if str(tree.this).lower() == "now" and not tree.expressions and self._now:
                return _constant(self._now, "timestamp")
            case exp.Anonymous() if str(tree.this).lower() == "pmod" and len(tree.expressions) == 2:
                return self._remainder(*tree.expressions, positive=True)
            case exp.Mod():
                return self._remainder(tree.this, tree.expression, positive=False)
            case exp.Add() | exp.Sub() | exp.Mul():
                return self._arithmetic(tree)
            case exp.Year() | exp.Month() | exp.Day():
                return self._part_of_day(tree)
            case exp.TsOrDsToDate() if not tree.args.get("format"):
                return self._day(tree.this)
            case exp.Concat() | exp.DPipe():
                return self._joined(tree)
            case exp.Coalesce():
                return self._first([tree.this, *tree.expressions])
            case exp.Length():
                text = self._text(tree.this)
                return Value("integer", lambda rows: pc.utf8_length(text.of(rows)).cast(pa.int32()))
            case exp.Substring():
                return self._part_of_text(tree.this, tree.args.get("start"), tree.args.get("length"))
            case exp.Left():
                return self._part_of_text(tree.this, exp.Literal.number(1), tree.expression)
            case exp.Column() if not tree.table:
                raise Unsure(f"{tree.name!r:.100} is no column of the table")
        raise Unsure(f"dbio evaluates no {_said(tree)} without Spark")

    # --- numbers

    def _arithmetic(self, tree: Any) -> Value:
        left, right = self.value(tree.this), self.value(tree.expression)
        how = {exp.Add: "add_checked", exp.Sub: "subtract_checked", exp.Mul: "multiply_checked"}[type(tree)]
        kinds = {str(left.kind), str(right.kind)}
        if kinds <= {*_INTEGERS}:
            kind = max(kinds, key=_INTEGERS.index)
        elif "double" in kinds and kinds <= {"double", "byte", "short", "integer"}:
            kind = "double"
        else:
            raise Unsure(f"the result of {_said(tree)} of {left.kind} and {right.kind} depends on Spark's rules")
        common = arrow_type(kind)

        def of(rows: pa.RecordBatch) -> Any:
            return pc.call_function(how, [left.of(rows).cast(common), right.of(rows).cast(common)])

        return Value(kind, of)

    def _remainder(self, left: Any, right: Any, *, positive: bool) -> Value:
        value, by = self.value(left), self.value(right)
        number = right.unnest()
        if value.kind not in _INTEGERS or by.kind not in _INTEGERS or not isinstance(number, exp.Literal):
            raise Unsure("dbio computes a remainder only of whole numbers, divided by a literal")
        divisor = int(number.this)
        if divisor == 0:
            raise Unsure("it divides by zero")
        kind = max((value.kind, by.kind), key=_INTEGERS.index)

        def of(rows: pa.RecordBatch) -> Any:
            numbers = value.of(rows).cast(pa.int64())
            rest: Any = pc.subtract(
                numbers, pc.multiply(pc.divide(numbers, divisor), divisor)
            )  # has the sign of the number
            if positive:
                rest = pc.if_else(pc.less(rest, pa.scalar(0)), pc.add(rest, divisor), rest)
            return rest.cast(arrow_type(kind))

        return Value(kind, of)

    # --- days

    def _day(self, tree: Any) -> Value:
        value = self.value(tree)
        if value.kind == "date":
            return value
        if value.kind == "timestamp_ntz":
            return Value("date", lambda rows: pc.floor_temporal(value.of(rows), unit="day").cast(pa.date32()))
        raise Unsure(f"the day of a {value.kind} depends on the time zone of Spark's session")

    def _part_of_day(self, tree: Any) -> Value:
        inner = tree.this
        day = self._day(inner.this if isinstance(inner, exp.TsOrDsToDate) else inner)
        part = {exp.Year: "year", exp.Month: "month", exp.Day: "day"}[type(tree)]
        return Value("integer", lambda rows: pc.call_function(part, [day.of(rows)]).cast(pa.int32()))

    def _cast(self, tree: Any) -> Value:
        name = tree.to.sql(dialect="spark")
        kind = _TYPES.get(name) or (name.lower().replace(" ", "") if name.startswith("DECIMAL(") else None)
        literal = tree.this
        if kind is not None and (found := self.literal(tree, kind)):
            return found
        if kind == "date":
            return self._day(literal)
        value = self.value(literal)
        if kind is not None and (value.kind == kind or widens(value.kind, kind)):
            return Value(kind, lambda rows: fit(value.of(rows), arrow_type(kind)))
        if kind == "string" and value.kind in _INTEGERS:
            return Value("string", lambda rows: value.of(rows).cast(pa.string()))
        raise Unsure(f"the cast of {value.kind} to {tree.to.sql(dialect='spark')} depends on Spark's rules")

    # --- texts and others

    def _text(self, tree: Any) -> Value:
        value = self.value(tree)
        if value.kind != "string":
            raise Unsure(f"a function of texts is applied to a {value.kind}")
        return value

    def _joined(self, tree: Any) -> Value:
        parts = tree.expressions if isinstance(tree, exp.Concat) else [tree.this, tree.expression]
        if any(isinstance(part, exp.Binary) and not isinstance(part, exp.DPipe) for part in parts):
            raise Unsure("it is not certain what belongs to each side of ||; put brackets around the sides")
        texts = [self._text(part) for part in parts]
        join: Any = pc.binary_join_element_wise
        return Value("string", lambda rows: join(*(it.of(rows) for it in texts), pa.scalar("")))

    def _part_of_text(self, text: Any, start: Any, length: Any) -> Value:
        value = self._text(text)
        numbers = [it.this for it in (start, length) if isinstance(it, exp.Literal) and not it.is_string]
        if len(numbers) != 2 or not all(re.fullmatch(r"[0-9]{1,9}", it) for it in numbers) or int(numbers[0]) < 1:
            raise Unsure("dbio takes a part of a text only if its first place, from 1 on, and its length are literals")
        first, count = int(numbers[0]) - 1, int(numbers[1])
        return Value("string", lambda rows: pc.utf8_slice_codeunits(value.of(rows), first, first + count))

    def _first(self, trees: list[Any]) -> Value:
        values = [self.value(tree) for tree in trees]
        kinds = {it.kind for it in values if isinstance(it.kind, str)} - {"void"}
        if len(kinds) != 1 or any(not isinstance(it.kind, str) for it in values):
            raise Unsure("dbio evaluates coalesce only if its values have one type")
        [kind] = kinds
        arrow = arrow_type(kind)
        first: Any = pc.coalesce
        return Value(kind, lambda rows: first(*(fit(it.of(rows), arrow) for it in values)))


_TYPES: Mapping[str, str] = {
    "TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long", "FLOAT": "float", "DOUBLE": "double",
    "STRING": "string", "DATE": "date", "TIMESTAMP_NTZ": "timestamp_ntz", "TIMESTAMP_LTZ": "timestamp",
    "BOOLEAN": "boolean",
}  # fmt: skip


def _said(tree: Any) -> str:
    return f"{type(tree).__name__.upper()} in {tree.sql(dialect='spark')!r:.80}"


def _constant(value: Any, kind: str) -> Value:
    constant = scalar(value, arrow_type(kind))
    return Value(kind, lambda rows: pa.repeat(constant, rows.num_rows))


def _number(text: str) -> Value:
    """A number without an exponent, with the type that Spark gives it."""
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        number = int(text)
        return _constant(number, "integer" if -(2**31) <= number < 2**31 else "long")
    if re.fullmatch(r"-?[0-9]{1,15}\.[0-9]{1,15}", text):
        decimal = Decimal(text)
        scale = -int(decimal.as_tuple().exponent)
        digits = max(len(decimal.as_tuple().digits), scale)
        return _constant(decimal, f"decimal({digits},{scale})")
    raise Unsure(f"the type of the number {text:.40} depends on Spark's rules")


# --- into a column ------------------------------------------------------------------------------------------------


def _assigned(value: Value, kind: Any) -> Value:
    """The value as one of a column of this type, as Spark's INSERT stores it. Raises Unsure."""
    own, arrow = value.kind, arrow_type(kind)
    if own == kind:
        return value
    if own == "void":
        return Value(kind, lambda rows: pa.nulls(rows.num_rows, arrow))
    row = type_of(own)
    if row is None or type_of(kind) is None:
        raise Unsure(f"it is a {own}, and the column has another type")
    digits, more = decimal_digits(own), decimal_digits(kind)
    is_sure = (
        widens(own, kind)
        or (is_integer(own) and is_integer(kind))
        or (own in _INTEGERS[:3] and kind == "double")
        or (own == "integer" and more is not None and more[0] - more[1] >= 10)
        or (digits is not None and more is not None and more[1] >= digits[1])
    )
    if is_sure:
        return Value(kind, lambda rows: value.of(rows).cast(arrow))
    raise Unsure(f"it is a {own}, and how Spark makes a {kind} of it depends on its settings")
