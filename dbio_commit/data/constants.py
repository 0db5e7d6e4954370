"""Converts Python values to Arrow without pandas, which pyarrow imports to convert any Python value. Pure.

That import takes longer than all other work of a small change. So arrays of common types are made of their bytes.
"""

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.types as types


def scalar(value: Any, kind: pa.DataType) -> Any:
    """As `pa.scalar`."""
    nulls: Any = pa.nulls
    return nulls(1, kind)[0] if value is None else array([value], kind)[0]


def array(values: Sequence[Any], kind: pa.DataType) -> Any:
    """As `pa.array`."""
    buffers = _buffers(values, kind) if len(values) <= _MOST else None
    if buffers is None:
        return pa.array(values, kind)
    return pa.Array.from_buffers(kind, len(values), [None, *map(pa.py_buffer, buffers)])


_MOST = 100
"""For more values, pyarrow is faster, also with pandas."""


def _buffers(values: Sequence[Any], kind: pa.DataType) -> list[bytes] | None:
    """The buffers of an array without nulls, after the validity bitmap; None for values that pyarrow must convert."""
    kinds = {type(it) for it in values}
    if kinds == {bool} and types.is_boolean(kind):
        return [sum(it << at for at, it in enumerate(values)).to_bytes(len(values) // 8 + 1, "little")]
    if kinds == {float} and types.is_float64(kind):
        return [struct.pack(f"={len(values)}d", *values)]
    if kinds == {str} and types.is_string(kind):
        try:
            texts = [it.encode() for it in values]
        except UnicodeEncodeError:
            return None
        return [struct.pack(f"={len(values) + 1}i", 0, *accumulate(map(len, texts))), b"".join(texts)]
    numbers = [_number(it, kind) for it in values]
    half = 1 << (kind.bit_width - 1) if numbers and None not in numbers else 0
    if not all(it is not None and -half <= it < half for it in numbers) or not half:
        return None
    return [b"".join(it.to_bytes(kind.bit_width // 8, "little", signed=True) for it in numbers if it is not None)]


def _number(value: Any, kind: Any) -> int | None:
    """The whole number that stands for the value in Arrow; None if pyarrow must convert the value."""
    if type(value) is int and types.is_signed_integer(kind):
        return value
    if type(value) is date and types.is_date32(kind):
        return (value - date(1970, 1, 1)).days
    if type(value) is datetime and types.is_timestamp(kind) and (kind.unit, kind.tz) == ("us", value.tzinfo and "UTC"):
        return (value - datetime(1970, 1, 1, tzinfo=kind.tz and UTC)) // timedelta(microseconds=1)
    if type(value) is Decimal and types.is_decimal128(kind) and value.is_finite():
        found = value.scaleb(kind.scale, EXACT)
        return int(found) if found == int(found) and abs(found) < 10**kind.precision else None
    return None


EXACT = Context(prec=1000)
