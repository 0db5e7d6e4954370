"""Decides whether the Python objects in one pandas column are all of one kind. Pure.

Arrow silently converts other values to the first value's type: the number 45292 beside a day becomes a day in 2094.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np


def refuse_mixed(values: Iterable[Any]) -> None:
    """Raises ValueError, with the first two that differ, for values of two kinds, also inside lists and dictionaries.

    Missing values, such as None, NaN and pandas' NA, are ignored. Whole numbers are of one kind with floating-point
    numbers, and with decimals: Arrow refuses those that it would change.
    """
    values = list(values)
    first: Any = None
    known: str | None = None
    seen: set[type] = set()
    for value in values:
        if type(value) in seen:
            continue
        kind = _kind(value)
        if kind is None:
            continue
        if not isinstance(value, datetime):  # of which each may have a zone or none
            seen.add(type(value))
        if kind == known:
            continue
        if known is None or (known == _WHOLE and kind in _WITH_WHOLE):
            first, known = value, kind
        elif not (kind == _WHOLE and known in _WITH_WHOLE):
            raise ValueError(f"{_shown(first)} is {known}, and {_shown(value)} is {kind}")
    if known == _LIST:
        refuse_mixed(_elements(it for it in values if _kind(it)))
    elif known == _DICTIONARY:
        rows = [it for it in values if _kind(it)]
        for key in dict.fromkeys(key for row in rows for key in row):
            refuse_mixed(row.get(key) for row in rows)


_WHOLE, _FLOAT, _DECIMAL, _LIST, _DICTIONARY = (
    "a whole number", "a floating-point number", "a decimal", "a list", "a dictionary",
)  # fmt: skip
_WITH_WHOLE = (_FLOAT, _DECIMAL)
_KINDS: tuple[tuple[Any, str], ...] = (
    (bool | np.bool_, "a boolean"),
    (int | np.integer, _WHOLE),
    (float | np.floating, _FLOAT),
    (Decimal, _DECIMAL),
    (str, "a text"),
    (bytes | bytearray | memoryview, "bytes"),
    (date, "a day"),
    (time, "a time of day"),
    (timedelta | np.timedelta64, "a duration"),
    (Mapping, _DICTIONARY),
    (Iterable, _LIST),
)


def _kind(value: Any) -> str | None:
    """The kind in words; None for a missing value. Raises ValueError for a time that is finer than microseconds."""
    if value is None or _is_missing(value):
        return None
    if isinstance(value, datetime):
        if getattr(value, "nanosecond", 0):
            raise ValueError(f"{_shown(value)} is finer than microseconds; round it first")
        return "a time with a zone" if value.tzinfo else "a time without a zone"
    return next((kind for types, kind in _KINDS if isinstance(value, types)), f"a {type(value).__name__}")


def _is_missing(value: Any) -> bool:
    try:
        return bool(value != value)  # NaN, NaT
    except (TypeError, ValueError):  # pandas' NA, arrays
        return type(value).__name__ == "NAType"


def _elements(lists: Iterable[Any]) -> Iterator[Any]:
    """The elements of the lists; for an array of one type, one value of the type."""
    for it in lists:
        is_array = isinstance(it, np.ndarray) and it.dtype != object
        yield from it[:0] if is_array and not len(it) else np.zeros(1, it.dtype) if is_array else it


def _shown(value: Any) -> str:
    return f"{value!r:.60}"
