"""Reads literals in Spark's SQL: what one means beside a column, in a condition or as its new value. Pure.

A literal means what Spark casts it to when it compares it with a column of that type (`AnsiTypeCoercion` and
`TypeCoercion` in Spark). If that is certain, and a value of the type, INSERT stores the same value.
"""

import math
import re
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp

from dbio_commit.protocol.types import TYPES, decimal_digits, is_integer, type_of

Interval = tuple[Any, Any]
"""The bounds between which the value lies."""


def compared(tree: Any, kind: str, zone: str | None) -> Interval | None:
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


def as_double(tree: Any, kind: str) -> Interval | None:
    """The double that Spark makes of a number with a point or an exponent beside a column of such numbers."""
    sign = ""
    if isinstance(tree, exp.Neg):
        sign, tree = "-", tree.this
    if kind not in ("float", "double") or not isinstance(tree, exp.Literal) or tree.is_string or tree.this.isdigit():
        return None
    found = re.fullmatch(r"([0-9]{0,15})\.?([0-9]{0,15})(?:[eE][+-]?[0-9]{1,2})?", tree.this)
    value = float(sign + tree.this) if found and found[1] + found[2] else None
    return None if value is None else (value, value)


def _number(text: str, kind: str) -> Interval | None:
    """The value of a number without an exponent beside a column of numbers. With a point, it is a decimal."""
    return _exact(text, _digits(text), kind)


def _exact(text: str, digits: tuple[int, int] | None, kind: str) -> Interval | None:
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
    return (value, value) if fits(kind, [digits]) else None


def _cast_number(text: str, type_name: str, kind: str) -> Interval | None:
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


def _about(value: float, like: float | Decimal) -> Interval:
    """An interval with all decimals that a cast makes this number of, or that it makes of this number."""
    low, high = value, value
    for _ in range(2):
        low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
    return type(like)(low), type(like)(high)


_BITS = {row.sql[0].upper(): row.whole_bits for row in TYPES if row.whole_bits}
"""For each type of numbers in SQL: the power of 2 up to which it has all whole numbers."""


def fits(kind: str, numbers: Sequence[tuple[int, int] | None]) -> bool:
    """Whether one decimal type holds the column's values, and numbers of so many digits, without rounding."""
    own = (_LONG_DIGITS, 0) if is_integer(kind) else _around_point(kind)
    each = [own, *numbers]
    known = [digits for digits in each if digits is not None]
    return len(known) == len(each) and max(it[0] for it in known) + max(it[1] for it in known) <= _DIGITS


def digits_of(value: Any) -> tuple[int, int] | None:
    """The digits of the decimal that Spark takes a number in a list for; None for a number that is none: then Spark
    rounds all."""
    cast = value.find(exp.Cast)
    if cast is None:
        return _digits(value.name)
    type_name = cast.to.sql(dialect="spark")
    if type_name in ("FLOAT", "DOUBLE"):
        return None
    return (_LONG_DIGITS, 0) if type_name in _BITS else _around_point(type_name.lower())


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


def has_whole(kind: str, value: int) -> bool:
    """Whether a column of whole numbers can have the value."""
    row = type_of(kind)
    return row is not None and -(1 << row.whole_bits) <= value < 1 << row.whole_bits


def _time(text: str, type_name: str | None, kind: str, zone: str | None) -> Interval | None:
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
    if value.tzinfo and type_name not in (None, "TIMESTAMP_LTZ"):  # a cast to TIMESTAMP_NTZ drops the zone
        return None
    return (value, value) if value.tzinfo else _instants(value, zone)


_BESIDE: Mapping[str, tuple[str | None, ...]] = {
    "date": (None, "DATE"),
    "timestamp": (None, "DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"),
    "timestamp_ntz": (None, "DATE", "TIMESTAMP_NTZ"),
}
"""For each type of a column: literals of these types (None: text) are converted to it in a comparison."""

_FARTHEST = timedelta(hours=18)
"""The largest distance of a time zone from UTC, in Java."""


def _instants(local: datetime, zone: str | None) -> Interval | None:
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


# --- the other way ------------------------------------------------------------------------------------------------


def written(value: Any) -> str:
    """A value of a column as a literal that every Spark reads as this value, whatever its settings are."""
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(value).lower()
        case str():
            return f"CAST(X'{value.encode().hex()}' AS STRING)"
        case bytes():
            return f"X'{value.hex()}'"
        case Decimal():
            return f"{value:f}BD"
        case float() if math.isfinite(value):
            text = repr(value)
            return text if "e" in text else f"{text}D"
        case datetime() if value.tzinfo:
            return f"TIMESTAMP_LTZ '{value.astimezone(UTC).replace(tzinfo=None).isoformat(' ')}Z'"
        case datetime():
            return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
    return f"CAST('{value}' AS DOUBLE)"  # nan, inf
