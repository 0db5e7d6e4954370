"""The values of partition columns as texts in the names of directories: one form for each type (PROTOCOL.md 6.2). Pure.

A type is one of Spark's JSON. Texts are not escaped, and null has none: both are in `names`. Three questions are asked
of a text: is it the canonical text, which writers write; is it one that all readers take for the same value, as adopted
directories may have others; and what is it meant as, for messages, and for values in filters.
"""

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from math import inf, isfinite, isnan
from numbers import Integral
from typing import Any

from dbio_commit.base.errors import InvalidInputError

Value = bool | int | float | Decimal | date | datetime | str | bytes
"""Of a column. An instant has the zone UTC, a timestamp without a zone has none."""

Given = Any
"""What a user may give for a value: its text, or a value of Python's or NumPy's, whose type the column's decides."""

INTEGER_BITS: Mapping[str, int] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
WRITTEN = frozenset(
    (*INTEGER_BITS, "boolean", "decimal", "date", "timestamp", "timestamp_ntz", "string", "char", "varchar")
)
"""By these types tables are partitioned, without what is in parentheses. By others only adopted directories may be."""


# --- texts -> values ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def read(text: str, kind: str) -> Value:
    """The value that all readers take the text for. Raises ValueError, with the reason, where they do not agree."""
    parse = _READ.get(base_of(kind))
    if parse is None:
        raise ValueError(f"{kind} is no type that directories are named by")
    try:
        value: Value = parse(text, kind)
    except (ValueError, OverflowError):
        hint = _hint(text, kind, "it may be meant as")
        raise ValueError(f"{text!r:.200} is no {kind} that all readers take alike{hint}") from None
    return value


def write(value: Value, kind: str) -> str:
    """The canonical text of a value of the type. Raises ValueError where the type has no such value."""
    try:
        return _WRITE[base_of(kind)](value, kind)
    except OverflowError as error:  # in UTC it is before the year 1, or after 9999
        raise ValueError(str(error)) from None


def canonical(text: str, kind: str) -> str:
    """The canonical text of the same value. Raises ValueError as `read` does."""
    return write(read(text, kind), kind)


def problem(text: str, kind: str) -> str | None:
    """Why no writer may write the text for a column of the type, and what to write; None where it is canonical."""
    try:
        own = canonical(text, kind)
    except ValueError:
        own = None
    if own == text:
        return None
    hint = _hint(text, kind, "write")
    if own is not None:
        return f"{text!r:.200} is no canonical text of type {kind}{hint}"
    like = "" if hint else f"; {kind} is written like {_EXAMPLES.get(base_of(kind), '')!r}"
    return f"{text!r:.200} is no {kind}{hint}{like}"


def meant(text: str, kind: str) -> Value:
    """What a text can only be meant as, though readers may not take it so. Raises ValueError where nothing says it."""
    for parse, given in ((_READ.get(base_of(kind)), text), (_MEANT.get(base_of(kind)), text.strip())):
        with suppress(ValueError, OverflowError, InvalidOperation):
            value: Value = parse(given, kind) if parse else _none()
            write(value, kind)
            return value
    raise ValueError(f"{text!r:.200} is no {kind}")


def _hint(text: str, kind: str, word: str) -> str:
    try:
        return f"; {word} {write(meant(text, kind), kind)!r}"
    except ValueError:
        return ""


def base_of(kind: str) -> str:
    """The type without what is in parentheses."""
    return kind.partition("(")[0]


def _integer(text: str, kind: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,1000}", text):
        raise ValueError
    return _in_range(int(text), kind)


def _in_range(value: int, kind: str) -> int:
    most = 1 << INTEGER_BITS[kind] - 1
    if not -most <= value < most:
        raise ValueError(f"{value} is out of the range of type {kind}")
    return value


def _boolean(text: str, kind: str) -> bool:
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _none()


def _none() -> Any:
    raise ValueError


def _decimal(text: str, kind: str) -> Decimal:
    """Spark takes the digits of a text for those of a value of the column's scale: so it must have that scale."""
    _, scale = decimal_digits(kind)
    grammar = rf"[+-]?[0-9]{{0,1000}}\.[0-9]{{{scale}}}" if scale else r"[+-]?[0-9]{1,1000}"
    return _scaled(Decimal(text), kind) if re.fullmatch(grammar, text) else _none()


def decimal_digits(kind: str) -> tuple[int, int]:
    """Precision and scale. Raises ValueError for what is no decimal."""
    found = re.fullmatch(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", kind)
    if not found:
        raise ValueError(f"{kind} is no type of decimals")
    return int(found[1]), int(found[2])


_EXACT = Context(prec=2000)


def _scaled(value: Decimal, kind: str) -> Decimal:
    precision, scale = decimal_digits(kind)
    if not value.is_finite() or abs(value.adjusted()) > 1000 or value.copy_abs() >= Decimal(10) ** (precision - scale):
        raise ValueError(f"{value!s:.100} is out of the range of {kind}")
    found = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if found != value:
        raise ValueError(f"{value!s:.100} has more digits after the point than {kind}")
    return found if found else found.copy_abs()  # there is no negative zero


def _date(text: str, kind: str) -> date:
    found = re.fullmatch(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})", text)
    return date(*map(int, found.groups())) if found else _none()


_CLOCK = (
    r"(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6}0{0,3})?"  # pandas writes nanoseconds, of which none count
)
_LOCAL = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:[ T]{_CLOCK})?")


def _timestamp(text: str, kind: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if _LOCAL.fullmatch(text) else _none()


def _timestamp_ntz(text: str, kind: str) -> datetime:
    return datetime.fromisoformat(text) if _LOCAL.fullmatch(text) else _none()


_FLOAT = re.compile(r"[+-]?(?:(?:[0-9]{1,1000}\.?[0-9]{0,1000}|\.[0-9]{1,1000})(?:[eE][+-]?[0-9]{1,9})?|Infinity)|NaN")


def _float(text: str, kind: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise ValueError
    value = float(text)
    return _as_single(value) if kind == "float" else value


def _as_single(value: float) -> float:
    try:
        single: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return inf if value > 0 else -inf
    return single


def _text(text: str, kind: str) -> str:
    text.encode()  # or ValueError: no store has such a name
    return text


_READ: Mapping[str, Callable[[str, str], Any]] = {
    **dict.fromkeys(INTEGER_BITS, _integer),
    "boolean": _boolean,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "float": _float,
    "double": _float,
    **dict.fromkeys(("string", "char", "varchar"), _text),
    "binary": lambda text, kind: text.encode(),
}


def _meant_integer(text: str, kind: str) -> int:
    return _in_range(int(_scaled(Decimal(text), "decimal(38,0)")), kind)


def _meant_date(text: str, kind: str) -> date:
    value = datetime.fromisoformat(text)
    return value.date() if value.time() == time() and value.tzinfo is None else _none()


def _meant_timestamp(text: str, kind: str) -> datetime:
    value = datetime.fromisoformat(text)
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


def _meant_timestamp_ntz(text: str, kind: str) -> datetime:
    value = datetime.fromisoformat(text)
    return _none() if value.tzinfo else value


_MEANT: Mapping[str, Callable[[str, str], Any]] = {
    **dict.fromkeys(INTEGER_BITS, _meant_integer),
    "boolean": _boolean,
    "decimal": lambda text, kind: _scaled(Decimal(text), kind),
    "date": _meant_date,
    "timestamp": _meant_timestamp,
    "timestamp_ntz": _meant_timestamp_ntz,
    "float": _float,
    "double": _float,
}

# --- values -> texts ----------------------------------------------------------------------------------------------


def _local_text(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    return text.rstrip("0") if value.microsecond else text


def _float_text(value: float, kind: str) -> str:
    """The shortest that gives the number back, as Java writes it."""
    if isnan(value):
        return "NaN"
    if not isfinite(value):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = repr(value) if kind == "double" else _shortest_single(value)
    sign, digits, exponent = Decimal(shortest).as_tuple()
    told = "".join(map(str, digits)).rstrip("0") or "0"
    if len(told) == 1 and told != "0":  # Java has two digits, and so the nearest of two: 4.9E-324
        sign, digits, exponent = Decimal(shortest := f"{value:.1e}").as_tuple()
        told = "".join(map(str, digits)).rstrip("0")
    first = len(digits) + int(exponent) - 1  # the power of ten of the first digit
    minus = "-" if sign else ""
    if told == "0":
        return f"{minus}0.0"
    if -3 <= first < 7:
        plain = f"{Decimal(shortest).normalize():f}"
        return plain if "." in plain else f"{plain}.0"
    return f"{minus}{told[0]}.{told[1:] or '0'}E{first}"


def _shortest_single(value: float) -> str:
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if _as_single(float(text)) == value)


_WRITE: Mapping[str, Callable[[Any, str], str]] = {
    **dict.fromkeys(INTEGER_BITS, lambda value, kind: str(_in_range(int(value), kind))),
    "boolean": lambda value, kind: "true" if value else "false",
    "decimal": lambda value, kind: f"{_scaled(value, kind):f}",
    "date": lambda value, kind: value.isoformat(),
    "timestamp": lambda value, kind: _local_text(value.astimezone(UTC)),
    "timestamp_ntz": lambda value, kind: _local_text(value),
    "float": lambda value, kind: _float_text(_as_single(value), kind),
    "double": _float_text,
    **dict.fromkeys(("string", "char", "varchar"), lambda value, kind: str(value)),
    "binary": lambda value, kind: value.decode(),
}

_EXAMPLES: Mapping[str, str] = {
    **dict.fromkeys(INTEGER_BITS, "7"),
    "boolean": "true",
    "decimal": "1.50",
    "date": "2026-11-20",
    "timestamp": "2026-11-20 07:30:00",
    "timestamp_ntz": "2026-11-20 07:30:00",
    "float": "1.5",
    "double": "1.5",
}


def writer(kind: str) -> Callable[[Any], str]:
    """`write` for many values of one type."""
    text_of = _WRITE[base_of(kind)]
    return lambda value: text_of(value, kind)


# --- what users give ----------------------------------------------------------------------------------------------


def spell(value: Given, kind: str | None) -> str:
    """The canonical text of what a user gave for a column; where its type is not known, None, by the value's own type.

    Raises ValueError, with the reason, for what is no value of the type.
    """
    if isinstance(value, str):
        why = problem(value, kind) if kind is not None else None
        if why is not None:
            raise ValueError(why)
        return value
    value = _plain(value)
    own = kind_of(value)
    if kind is None and base_of(own) not in WRITTEN:
        raise ValueError(f"{value!r:.200} is {own}, by which no table is partitioned; give a text")
    if kind is None or (base_of(kind) in _TEXTS and base_of(own) in _AS_TEXT):
        return write(value, own)
    takes = _TAKES.get(base_of(kind))
    if takes is None or not takes(value, own):
        raise ValueError(f"{value!r:.200} is no {kind}{_ADVICE.get((base_of(kind), base_of(own)), '')}")
    if base_of(kind) == "decimal":
        value = Decimal(value)
    elif kind == "date" and isinstance(value, datetime):
        value = value.date()
    return write(value, kind)


def kind_of(value: Given) -> str:
    """The type of a column that has such values, where nothing else says it. Raises ValueError where there is none."""
    match _plain(value):
        case str():
            return "string"
        case bool():
            return "boolean"
        case int():
            return "long"
        case Decimal() as number if number.is_finite():
            return f"decimal(38,{max(0, -int(number.as_tuple().exponent))})"
        case datetime() as moment:
            return "timestamp" if moment.tzinfo else "timestamp_ntz"
        case date():
            return "date"
        case float():
            return "double"
        case bytes():
            return "binary"
    raise ValueError(f"{value!r:.200} is no value of a partition column; give a text, a number, a date or a datetime")


def _plain(value: Given) -> Any:
    """As Python's own type. Raises ValueError for null, and for times of finer parts than microseconds."""
    try:
        is_none = bool(value != value)  # as of NaN, and of pandas' NaT
    except (TypeError, ValueError):  # pandas' NA, an array
        is_none = True
    if is_none:
        raise ValueError(f"{value!r:.200} is no value of a partition column; None is null")
    if type(value).__module__ == "numpy":
        if type(value).__name__ == "timedelta64":  # also NumPy counts it among the whole numbers
            return value
        value = _of_datetime64(value) if type(value).__name__ == "datetime64" else value.item()
    if getattr(value, "nanosecond", 0):  # of pandas
        raise ValueError(_TOO_FINE.format(value))
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


_TOO_FINE = "{!r:.200} has finer parts than microseconds, which no column has; give one without"


def _of_datetime64(value: Any) -> date | datetime:
    """A date, where it counts days; else a time. NumPy has no value of Python's for what counts nanoseconds."""
    plain = value.item()
    if value.dtype.name == "datetime64[ns]":
        exact = value.astype("datetime64[us]")
        if exact != value:
            raise ValueError(_TOO_FINE.format(value))
        plain = exact.item()
    if not isinstance(plain, date) or value.dtype.name in ("datetime64[Y]", "datetime64[M]", "datetime64[W]"):
        raise ValueError(f"{value!r:.200} is no date or time of a column; give a date or a datetime")
    return plain


_TEXTS = ("string", "char", "varchar")
_AS_TEXT = ("long", "boolean", "decimal", "date")
"""Of these types a column of texts takes the canonical text."""
_TAKES: Mapping[str, Callable[[Any, str], bool]] = {
    **dict.fromkeys(INTEGER_BITS, lambda value, own: own == "long"),
    "boolean": lambda value, own: own == "boolean",
    "decimal": lambda value, own: own == "long" or own.startswith("decimal"),
    "date": lambda value, own: own == "date" or (own == "timestamp_ntz" and value.time() == time()),
    "timestamp": lambda value, own: own == "timestamp",
    "timestamp_ntz": lambda value, own: own == "timestamp_ntz",
    "float": lambda value, own: own in ("long", "double"),
    "double": lambda value, own: own in ("long", "double"),
    "binary": lambda value, own: own == "binary",
}
_ADVICE: Mapping[tuple[str, str], str] = {
    ("timestamp", "timestamp_ntz"): "; give a datetime with a zone",
    ("timestamp_ntz", "timestamp"): "; give a datetime without a zone",
    ("timestamp", "date"): "; give a datetime with a zone",
    ("timestamp_ntz", "date"): "; give a datetime",
    ("date", "timestamp"): "; give a date",
    ("date", "timestamp_ntz"): "; give a date",
}


def common_kind(kinds: Iterable[str]) -> str | None:
    """The type that a new column has by the values given for it; None where they are of several types."""
    found = set(kinds)
    return found.pop() if len(found) == 1 else None


# --- what readers meet --------------------------------------------------------------------------------------------


def unread(url: str, column: str, why: str) -> InvalidInputError:
    """For a file, by its URL, of whose directory not all readers say that it has the same value of the column."""
    return InvalidInputError(
        f"the directory of {url} names no value of the column {column!r} on which readers agree: {why}. Its other "
        "columns can be read. Write its rows into the partition where they belong and remove the file, in one "
        'transaction, as OPERATIONS.md shows under "A partition value that is none"; or restore the state before'
    )
