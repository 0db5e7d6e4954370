"""The texts of partition values, by kind of type: parse, format, and what a caller may give (PROTOCOL.md 6.2). Pure.

A type gets its form from the table of types. Callers use `partition_values`.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from math import inf, isfinite, isnan
from typing import Any, NoReturn

TypedValue = bool | int | float | Decimal | date | datetime | str | bytes
"""The value of a column. An instant has the zone UTC, a timestamp without a zone has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForm:
    """How the values of a type become texts, and back. Each function gets the type's full name as second argument."""

    read: Callable[[str, str], Any]
    """The value that all readers take the text for. Raises ValueError or OverflowError if they do not agree."""
    write: Callable[[Any, str], str]
    """The canonical text. Raises ValueError or OverflowError if the type has no such value."""
    guess: Callable[[str, str], Any] | None = None
    """The only value that a text can mean if not all readers agree on it; None if there is no such rule. Raises
    ValueError, OverflowError or InvalidOperation."""
    example: str = ""
    """A canonical text, for error messages."""
    takes: frozenset[str] = frozenset()
    """The types of Python values (see `partition_values.kind_of`, without parameters) that a caller may give."""


def _refuse() -> NoReturn:
    raise ValueError


# --- booleans and whole numbers -----------------------------------------------------------------------------------


def _boolean(text: str, kind: str) -> bool:
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse()


BOOLEAN = TextForm(
    read=_boolean,
    write=lambda value, kind: "true" if value else "false",
    guess=_boolean,
    example="true",
    takes=frozenset({"boolean"}),
)


def integers(bits: int) -> TextForm:
    """The form of signed whole numbers with this many bits."""
    most = 1 << bits - 1

    def in_range(value: int, kind: str) -> int:
        if not -most <= value < most:
            raise ValueError(f"{value} is out of the range of type {kind}")
        return value

    def read(text: str, kind: str) -> int:
        return in_range(int(text), kind) if re.fullmatch(r"[+-]?[0-9]{1,1000}", text) else _refuse()

    return TextForm(
        read=read,
        write=lambda value, kind: str(in_range(int(value), kind)),
        guess=lambda text, kind: in_range(int(_scaled(Decimal(text), "decimal(38,0)")), kind),
        example="7",
        takes=frozenset({"long"}),
    )


# --- decimals -----------------------------------------------------------------------------------------------------

DECIMAL_PARAMETERS = r"\(\s*(\d{1,2})\s*,\s*(-?\d{1,2})\s*\)"


def decimal_digits(kind: str) -> tuple[int, int]:
    """Precision and scale of `decimal(10,2)`. Raises ValueError for any other type."""
    found = re.fullmatch(f"decimal{DECIMAL_PARAMETERS}", kind)
    if not found or int(found[2]) < 0:
        raise ValueError(f"{kind} is no type of decimals")
    return int(found[1]), int(found[2])


def _decimal(text: str, kind: str) -> Decimal:
    """The text must have the column's scale: Spark reads all its digits as those of a value with that scale."""
    _, scale = decimal_digits(kind)
    grammar = rf"[+-]?[0-9]{{0,1000}}\.[0-9]{{{scale}}}" if scale else r"[+-]?[0-9]{1,1000}"
    return _scaled(Decimal(text), kind) if re.fullmatch(grammar, text) else _refuse()


_EXACT = Context(prec=2000)


def _scaled(value: Decimal, kind: str) -> Decimal:
    precision, scale = decimal_digits(kind)
    if not value.is_finite() or abs(value.adjusted()) > 1000 or value.copy_abs() >= Decimal(10) ** (precision - scale):
        raise ValueError(f"{value!s:.100} is out of the range of {kind}")
    found = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if found != value:
        raise ValueError(f"{value!s:.100} has more digits after the point than {kind}")
    return found if found else found.copy_abs()  # there is no negative zero


DECIMAL = TextForm(
    read=_decimal,
    write=lambda value, kind: f"{_scaled(Decimal(value), kind):f}",
    guess=lambda text, kind: _scaled(Decimal(text), kind),
    example="1.50",
    takes=frozenset({"long", "decimal"}),
)

# --- dates and times ----------------------------------------------------------------------------------------------


def _date(text: str, kind: str) -> date:
    found = re.fullmatch(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})", text)
    return date(*map(int, found.groups())) if found else _refuse()


def _guess_date(text: str, kind: str) -> date:
    value = datetime.fromisoformat(text)
    return value.date() if value.time() == time() and value.tzinfo is None else _refuse()


DATE = TextForm(
    read=_date,
    write=lambda value, kind: value.isoformat(),
    guess=_guess_date,
    example="2026-11-20",
    takes=frozenset({"date", "timestamp_ntz"}),
)

_CLOCK = (
    r"(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6}0{0,3})?"  # pandas writes nanoseconds; these must be zero
)
_LOCAL = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:[ T]{_CLOCK})?")


def _local(text: str, kind: str) -> datetime:
    return datetime.fromisoformat(text) if _LOCAL.fullmatch(text) else _refuse()


def _guess_instant(text: str, kind: str) -> datetime:
    value = datetime.fromisoformat(text)
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


def _guess_local(text: str, kind: str) -> datetime:
    value = datetime.fromisoformat(text)
    return _refuse() if value.tzinfo else value


def _local_text(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    return text.rstrip("0") if value.microsecond else text


INSTANT = TextForm(
    read=lambda text, kind: _local(text, kind).replace(tzinfo=UTC),
    write=lambda value, kind: _local_text(value.astimezone(UTC)),
    guess=_guess_instant,
    example="2026-11-20 07:30:00",
    takes=frozenset({"timestamp"}),
)
LOCAL_TIME = TextForm(
    read=_local,
    write=lambda value, kind: _local_text(value),
    guess=_guess_local,
    example="2026-11-20 07:30:00",
    takes=frozenset({"timestamp_ntz"}),
)

# --- floating point -----------------------------------------------------------------------------------------------

_FLOAT = re.compile(r"[+-]?(?:(?:[0-9]{1,1000}\.?[0-9]{0,1000}|\.[0-9]{1,1000})(?:[eE][+-]?[0-9]{1,9})?|Infinity)|NaN")


def _double(text: str, kind: str) -> float:
    return float(text) if _FLOAT.fullmatch(text) else _refuse()


def _single(text: str, kind: str) -> float:
    return _as_single(_double(text, kind))


def _as_single(value: float) -> float:
    try:
        single: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return inf if value > 0 else -inf
    return single


def _float_text(value: float, shortest_of: Callable[[float], str]) -> str:
    """The shortest text that gives the number back, as Java writes it."""
    if isnan(value):
        return "NaN"
    if not isfinite(value):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = shortest_of(value)
    sign, digits, exponent = Decimal(shortest).as_tuple()
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    if len(shown) == 1 and shown != "0":  # Java writes two digits, and takes the nearest number of two: 4.9E-324
        sign, digits, exponent = Decimal(shortest := f"{value:.1e}").as_tuple()
        shown = "".join(map(str, digits)).rstrip("0")
    first = len(digits) + int(exponent) - 1  # the power of ten of the first digit
    minus = "-" if sign else ""
    if shown == "0":
        return f"{minus}0.0"
    if -3 <= first < 7:
        plain = f"{Decimal(shortest).normalize():f}"
        return plain if "." in plain else f"{plain}.0"
    return f"{minus}{shown[0]}.{shown[1:] or '0'}E{first}"


def _shortest_single(value: float) -> str:
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if _as_single(float(text)) == value)


SINGLE = TextForm(
    read=_single,
    write=lambda value, kind: _float_text(_as_single(value), _shortest_single),
    guess=_single,
    example="1.5",
    takes=frozenset({"long", "double"}),
)
DOUBLE = TextForm(
    read=_double,
    write=lambda value, kind: _float_text(value, repr),
    guess=_double,
    example="1.5",
    takes=frozenset({"long", "double"}),
)

# --- text and bytes -----------------------------------------------------------------------------------------------


def _text(text: str, kind: str) -> str:
    text.encode()  # or ValueError: no store has such a name
    return text


TEXT = TextForm(
    read=_text,
    write=lambda value, kind: str(value),
    takes=frozenset({"long", "boolean", "decimal", "date"}),  # by their own canonical texts
)
BYTES = TextForm(
    read=lambda text, kind: text.encode(),
    write=lambda value, kind: value.decode(),
    takes=frozenset({"binary"}),
)
