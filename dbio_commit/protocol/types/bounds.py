"""The bounds of a column's values as markers record them, by kind of type (PROTOCOL.md 7.3). Pure.

A type gets its form from the table of types. `data/statistics` reads Parquet's bounds from footers, and
`data/conditions/pruning` compares bounds with conditions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from dbio_commit.protocol.types.texts import decimal_digits

Scalar = bool | int | float | str | None
"""A value as JSON holds it: dates and timestamps in ISO 8601, decimals as text."""

TEXT_LENGTH = 64
"""The most characters of a bound that is a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundForm:
    """How the bounds of a type are written into a marker, and read from it."""

    from_parquet: Callable[[Any, str, bool], Scalar]
    """(Parquet's value, the type's full name, whether it is an upper bound) -> the bound as JSON. None if it has no
    form that all readers order alike. Decimals are given as whole numbers."""
    value: Callable[[Any], Any]
    """The bound in a marker as a value that Python compares. None for what is no value of the type."""


def _only(kind: type) -> Callable[[Any], Any]:
    return lambda bound: bound if type(bound) is kind else None


def _parsed(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    def value(bound: Any) -> Any:
        try:
            return parse(str(bound)) if type(bound) in (str, int) else None
        except (ValueError, InvalidOperation):
            return None

    return value


# --- numbers ------------------------------------------------------------------------------------------------------


def _float(bound: Any) -> float | int | None:
    if type(bound) is int:
        return bound if abs(bound) < _TOO_LARGE else None
    return bound if type(bound) is float and math.isfinite(bound) else None


_TOO_LARGE = 1 << 1023


def _decimal(text: str) -> Decimal | None:
    value = Decimal(text)
    return value if value.is_finite() and abs(value.adjusted()) < 100 else None


BOOLEAN = BoundForm(from_parquet=lambda raw, kind, up: raw, value=_only(bool))
INTEGER = BoundForm(from_parquet=lambda raw, kind, up: raw, value=_only(int))
FLOAT = BoundForm(from_parquet=lambda raw, kind, up: raw if math.isfinite(raw) else None, value=_float)
DECIMAL = BoundForm(
    from_parquet=lambda raw, kind, up: format(Decimal(f"{raw}E{-decimal_digits(kind)[1]}"), "f"),
    value=_parsed(_decimal),
)

# --- dates and times ----------------------------------------------------------------------------------------------

_DAY = 24 * 60 * 60 * 1_000_000


def _moment(microseconds: int, length: int | None, zone: str = "") -> str | None:
    """ISO 8601. None outside the years 1 to 9999: such texts have no common form, and do not sort."""
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=microseconds)).isoformat()[:length] + zone
    except OverflowError:
        return None


def _instant(text: str) -> datetime | None:
    value = datetime.fromisoformat(text)
    return value if value.tzinfo else None


def _local_time(text: str) -> datetime | None:
    value = datetime.fromisoformat(text)
    return None if value.tzinfo else value


DATE = BoundForm(from_parquet=lambda raw, kind, up: _moment(raw * _DAY, 10), value=_parsed(date.fromisoformat))
INSTANT = BoundForm(from_parquet=lambda raw, kind, up: _moment(raw, None, "Z"), value=_parsed(_instant))
LOCAL_TIME = BoundForm(from_parquet=lambda raw, kind, up: _moment(raw, None), value=_parsed(_local_time))

# --- text ---------------------------------------------------------------------------------------------------------


def shorten_min(raw: bytes) -> str | None:
    """A short text that is not greater than the text; None for bytes that are no text."""
    try:
        return raw.decode()[:TEXT_LENGTH]
    except UnicodeDecodeError:
        return None


def shorten_max(raw: bytes) -> str | None:
    """A short text that is not less than the text, by code points; None if there is none."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if len(text) <= TEXT_LENGTH:
        return text
    kept = text[:TEXT_LENGTH].rstrip(chr(_LAST_CODE_POINT))
    return kept[:-1] + _after(kept[-1]) if kept else None


_LAST_CODE_POINT = 0x10FFFF


def _after(char: str) -> str:
    return "\ue000" if char == "\ud7ff" else chr(ord(char) + 1)  # surrogates lie between; no text holds them


TEXT = BoundForm(from_parquet=lambda raw, kind, up: (shorten_max if up else shorten_min)(raw), value=_only(str))
