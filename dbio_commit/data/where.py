"""Reads conditions in Spark's SQL, as far as they can exclude files; see `pruning`. Pure.

A part that is not fully understood may hold in any row. Spark filters the rows afterwards, so an extra file costs only
time. `where_exactly` is for rows, and refuses such a part. A literal means what Spark casts it to when it compares it
with a column of that type (`AnsiTypeCoercion` and `TypeCoercion` in Spark).
"""

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.pruning import (
    UNKNOWN,
    AllOf,
    AnyOf,
    AtMost,
    Comparison,
    Condition,
    IsNull,
    OneOf,
    Operator,
    column_types,
)
from dbio_commit.data.sql import parse
from dbio_commit.protocol.types import TYPES, decimal_digits, is_integer, type_of


def parse_where(sql: str, schema: Mapping[str, Any], *, zone: str | None) -> Condition:
    """The condition. `zone` is the time zone of times without a zone; None if it is not known.

    Raises InvalidInputError for what is no condition, or names no column of the schema (Spark's JSON).
    """
    tree, names = parsed(sql, schema)
    if READ_BY_SETTINGS.search(sql):
        return UNKNOWN
    with refusing_depth(sql):
        return Reader(column_types(schema), names, zone).condition(tree)


@contextmanager
def refusing_depth(sql: str) -> Iterator[None]:
    """Raises InvalidInputError if the block finds that the condition is nested too deeply."""
    try:
        yield
    except RecursionError:
        raise InvalidInputError(f"the condition {sql!r:.100}… is nested too deeply; write it flat") from None


def parsed(sql: str, schema: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
    """The tree, and the table's names of columns by their names in lower case."""
    try:
        tree = parse(sql)
    except ValueError as error:
        raise InvalidInputError(f"where={sql!r:.200} cannot be read as a condition: {error}") from None
    names = {field["name"].lower(): field["name"] for field in schema.get("fields", ())}
    for column in tree.find_all(exp.Column):
        if not column.table and column.name.lower() not in names and not tree.find(exp.Lambda):
            raise InvalidInputError(
                f"where={sql!r:.200} names {column.name!r:.100}, which is no column of the table; it has "
                f"{', '.join(names.values())[:1000]}"
            )
    return tree, names


READ_BY_SETTINGS = re.compile(r"""\\|"|''|--|/\*|\$\{""")
"""Escapes, double quotes, two texts side by side, comments, variables: their meaning depends on Spark's settings."""


class Reader:
    """Makes a condition of sqlglot's tree."""

    def __init__(self, types: Mapping[str, str], names: Mapping[str, str], zone: str | None) -> None:
        self.types, self.names, self.zone = types, names, zone

    def condition(self, tree: Any) -> Condition:
        """The condition of a tree, or of a part of it."""
        match tree:
            case exp.Paren():
                return self.condition(tree.this)
            case exp.And():
                return AllOf(tuple(map(self.condition, _terms(tree, exp.And))))
            case exp.Or():
                return AnyOf(tuple(map(self.condition, _terms(tree, exp.Or))))
            case exp.Not():
                return self.condition(tree.this).negated()
            case exp.Column():
                return self.compare("=", tree, exp.true())
            case exp.Is(expression=exp.Null()):
                column = self.column(tree.this)
                return IsNull(column) if column else UNKNOWN
            case exp.Between() if not tree.args.get("symmetric"):
                low = self.compare(">=", tree.this, tree.args["low"])
                return AllOf((low, self.compare("<=", tree.this, tree.args["high"])))
            case exp.In() if tree.expressions and not tree.args.get("query"):
                found = self._one_of(tree)
                return found if self.is_alike(tree) else AtMost(found)
        operator = _OPERATORS.get(type(tree))
        if operator is None:
            return UNKNOWN
        if self.column(tree.left):
            return self.compare(operator, tree.left, tree.right)
        return self.compare(_MIRRORED[operator], tree.right, tree.left)

    def _one_of(self, tree: exp.In) -> Condition:
        """Spark casts the column and all values to one type, and rounds the values if that type has too few digits."""
        kind = self.types.get(self.column(tree.this) or "", "")
        values = [it.unnest() for it in tree.expressions]
        if is_integer(kind) or decimal_digits(kind):
            digits = [_digits_of(it) for it in values if it.is_number or it.find(exp.Cast)]
            if not _fits(kind, digits):
                return UNKNOWN
        elif kind not in ("float", "double") and any(it.is_number for it in values):
            return UNKNOWN
        parts = [self.compare("=", tree.this, value) for value in tree.expressions]
        exact = [part for part in parts if isinstance(part, Comparison) and part.low == part.high]
        if len(exact) < len(parts):
            return AnyOf(tuple(parts))
        return OneOf(exact[0].column, tuple(sorted({part.low for part in exact})))

    def is_alike(self, tree: exp.In) -> bool:
        """Whether Spark compares the column with the list in the column's own type, and not all of them as texts."""
        texts = [value.unnest().is_string for value in tree.expressions]
        return all(texts) if self.types.get(self.column(tree.this) or "") == "string" else not any(texts)

    def column(self, tree: Any) -> str | None:
        """The table's name of a column; None for a field inside a column."""
        tree = tree.unnest()
        return self.names.get(tree.name.lower()) if isinstance(tree, exp.Column) and not tree.table else None

    def compare(self, operator: Operator, left: Any, right: Any) -> Condition:
        column = self.column(left)
        kind = self.types.get(column or "")
        if column is None or kind is None:
            return UNKNOWN
        found = _literal(right.unnest(), kind, self.zone)
        if found is None or (is_integer(kind) and right.unnest().is_string and not _holds(kind, found[0])):
            return UNKNOWN  # Spark's cast of a text may give null
        return Comparison(column, operator, *found)


def _digits_of(value: Any) -> tuple[int, int] | None:
    """The digits of the decimal that Spark takes a number in a list for; None for a number that is none: then Spark
    rounds all."""
    cast = value.find(exp.Cast)
    if cast is None:
        return _digits(value.name)
    type_name = cast.to.sql(dialect="spark")
    if type_name in ("FLOAT", "DOUBLE"):
        return None
    return (_LONG_DIGITS, 0) if type_name in _BITS else _around_point(type_name.lower())


def _terms(tree: Any, kind: type[exp.Connector]) -> list[Any]:
    """The operands of a chain of AND, or of OR. A chain may be longer than Python's stack is deep."""
    waiting: list[Any] = [tree]
    found: list[Any] = []
    while waiting:
        it = waiting.pop()
        if isinstance(it, kind):
            waiting += [it.right, it.left]
        else:
            found.append(it)
    return found


_OPERATORS: Mapping[type, Operator] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_MIRRORED: Mapping[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

# --- values -------------------------------------------------------------------------------------------------------

_Interval = tuple[Any, Any]
"""The bounds between which the value lies."""


def _literal(tree: Any, kind: str, zone: str | None) -> _Interval | None:
    """The literal's value in a comparison with a column of the type; None if that is not certain."""
    sign, type_name, is_cast = "", None, False
    if isinstance(tree, exp.Neg):
        sign, tree = "-", tree.this
    if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal):
        is_cast = isinstance(tree, exp.TryCast)  # and not a function: a session may have redefined it
        type_name, tree = tree.to.sql(dialect="spark"), tree.this
    if isinstance(tree, exp.Boolean):
        return (tree.this, tree.this) if kind == "boolean" and not sign else None
    if not isinstance(tree, exp.Literal):
        return None
    text = sign + str(tree.this)
    if is_cast and type_name and (type_name in _BITS or decimal_digits(type_name.lower())):
        return _cast_number(text, type_name, kind)
    if type_name and not tree.is_string:
        return None
    if sign and tree.is_string:
        return None
    if not tree.is_string:
        return _number(text, kind)
    if is_cast and type_name == "BOOLEAN" and kind == "boolean":
        return {"true": (True, True), "false": (False, False)}.get(text)
    if kind == "string" and (type_name is None or (is_cast and type_name == "STRING")):
        value: int | str | None = text
    elif type_name is None and is_integer(kind) and re.fullmatch(r"-?[0-9]{1,18}", text):
        value = int(text)
    else:
        return _time(text, type_name, kind, zone)
    return value, value


def _number(text: str, kind: str) -> _Interval | None:
    """The value of a number without an exponent beside a column of numbers. With a point, it is a decimal."""
    return _exact(text, _digits(text), kind)


def _exact(text: str, digits: tuple[int, int] | None, kind: str) -> _Interval | None:
    """The value of a number that Spark takes for a decimal of so many digits."""
    if digits is None or sum(digits) > _DIGITS:
        return None
    is_whole = "." not in text
    value = int(Decimal(text)) if is_whole else Decimal(text)
    if kind in ("float", "double"):
        if not is_whole and (kind == "float" or sum(digits) > _EXACT_DIGITS):
            return _about(float(text), 0.0)
        if not is_whole:  # the quotient of two whole numbers that doubles have, so that any cast rounds it alike
            return float(text), float(text)
        return (
            (value, value) if -(1 << 24) < value < 1 << 24 else None
        )  # exact, whether Spark casts to float or to double
    if is_integer(kind) and not -_LONGS <= value < _LONGS:
        return None  # Spark takes `column < value` for true then, also if the column is null
    return (value, value) if _fits(kind, [digits]) else None


def _cast_number(text: str, type_name: str, kind: str) -> _Interval | None:
    """The value of a number without an exponent that is cast to a type of numbers, such as `33L` and `33.5BD`."""
    if not re.fullmatch(r"-?[0-9]{1,38}(\.[0-9]{1,38})?", text):
        return None
    decimal = _around_point(type_name.lower())
    if decimal:
        whole, _, fraction = text.lstrip("-").lstrip("0").partition(".")
        return _exact(text, decimal, kind) if len(whole) <= decimal[0] and len(fraction) <= decimal[1] else None
    bits = _BITS[type_name]
    if type_name not in ("FLOAT", "DOUBLE"):
        return _number(text, kind) if "." not in text and -(1 << bits) <= int(text) < 1 << bits else None
    value = float(text)
    if type_name == "FLOAT":
        (value,) = struct.unpack("<f", struct.pack("<f", value))
    if kind in ("float", "double"):
        return value, value
    if is_integer(kind):  # Spark casts the column to this type, too, which is exact up to there
        return (value, value) if abs(value) < 1 << bits else None
    return _about(value, Decimal(0)) if decimal_digits(kind) else None


def _about(value: float, like: float | Decimal) -> _Interval:
    """An interval with all decimals that a cast makes this number of, or that it makes of this number."""
    low, high = value, value
    for _ in range(2):
        low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
    return type(like)(low), type(like)(high)


_BITS = {row.sql[0].upper(): row.whole_bits for row in TYPES if row.whole_bits}
"""For each type of numbers in SQL: the power of 2 up to which it has all whole numbers."""


def _fits(kind: str, numbers: Sequence[tuple[int, int] | None]) -> bool:
    """Whether one decimal type holds the column's values, and numbers of so many digits, without rounding."""
    own = (_LONG_DIGITS, 0) if is_integer(kind) else _around_point(kind)
    each = [own, *numbers]
    known = [digits for digits in each if digits is not None]
    return len(known) == len(each) and max(it[0] for it in known) + max(it[1] for it in known) <= _DIGITS


def _around_point(kind: str) -> tuple[int, int] | None:
    """The digits before and after the point of a type of decimals; None for another type."""
    digits = decimal_digits(kind)
    return (digits[0] - digits[1], digits[1]) if digits else None


def _digits(text: str) -> tuple[int, int] | None:
    """The digits before and after the point. A whole number counts as a long, since Spark may make one of it."""
    found = re.fullmatch(r"-?([0-9]*)(\.?)([0-9]*)", text)
    if not found or not found[1] + found[3]:
        return None
    whole, fraction = len(found[1].lstrip("0")), len(found[3])
    return (whole, fraction) if found[2] else (max(whole, _LONG_DIGITS), 0)


_EXACT_DIGITS = 15
"""A double has each whole number of so many digits, and 10 to that power."""
_DIGITS = 38
"""The most digits of Spark's decimals. If both sides of a comparison need more, Spark rounds."""
_LONGS = 2**63
_LONG_DIGITS = 20
"""The digits of the decimal that Spark takes a long for."""

_DAY = r"(?:19[7-9]|2[0-9]{2})[0-9]-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_TIME = re.compile(rf"({_DAY})(?:[ T]{_CLOCK}(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})?)?")
"""From 1970 on: for earlier times, Java's and Python's time zones differ."""


def _holds(kind: str, value: int) -> bool:
    """Whether a column of whole numbers can have the value."""
    row = type_of(kind)
    return row is not None and -(1 << row.whole_bits) <= value < 1 << row.whole_bits


def _time(text: str, type_name: str | None, kind: str, zone: str | None) -> _Interval | None:
    found = _TIME.fullmatch(text)
    if not found or type_name not in _BESIDE.get(kind, ()):
        return None
    try:
        if kind == "date":
            day = date.fromisoformat(found[1])
            return (day, day) if text == found[1] else None
        if type_name == "DATE" and text != found[1]:
            return None
        value = datetime.fromisoformat(text)
    except ValueError:  # 30 February
        return None
    if kind == "timestamp_ntz":
        return None if value.tzinfo else (value, value)
    if value.tzinfo and type_name:  # a cast to TIMESTAMP_NTZ drops the zone
        return None
    return (value, value) if value.tzinfo else _instants(value, zone)


_BESIDE: Mapping[str, tuple[str | None, ...]] = {
    "date": (None, "DATE"),
    "timestamp": (None, "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
    "timestamp_ntz": (None, "DATE", "TIMESTAMP_NTZ"),
}
"""For each type of a column: literals of these types (None: text) are converted to it in a comparison."""

_FARTHEST = timedelta(hours=18)
"""The largest distance of a time zone from UTC, in Java."""


def _instants(local: datetime, zone: str | None) -> _Interval | None:
    """The instants that a local time may be: two if clocks are set back, an interval if the zone is not known."""
    try:
        if zone is None:
            raise ZoneInfoNotFoundError
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        utc = local.replace(tzinfo=UTC)
        return utc - _FARTHEST, utc + _FARTHEST
    both = sorted(local.replace(tzinfo=known, fold=fold).astimezone(UTC) for fold in (0, 1))
    return both[0], both[1]
