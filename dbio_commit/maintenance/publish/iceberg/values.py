"""Converts bounds of columns, and partition values, to the form of Iceberg's specification. Pure.

A value of a partition is what Avro's encoder takes, and what its decoder gives after `plain`: whole numbers for dates
and times, `Decimal` for decimals. Bounds have Iceberg's single-value serialization.
"""

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact
from math import isfinite, isnan
from typing import Any, NamedTuple

from dbio_commit.protocol.partition_values import read
from dbio_commit.protocol.types import type_of
from dbio_commit.protocol.types.bounds import Scalar

_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")
_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1), date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def digits_of(kind: str) -> tuple[int, int] | None:
    """Precision and scale of Iceberg's `decimal(9, 2)`; None for another type."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


# --- single values as bytes ---------------------------------------------------------------------------------------


def to_bytes(value: Any, kind: str) -> bytes:
    """A plain value of a type, in Iceberg's words, as Iceberg's single-value serialization."""
    if digits := digits_of(kind):
        whole = int(value.scaleb(digits[1], _EXACT))
        return whole.to_bytes((whole + (whole < 0)).bit_length() // 8 + 1, "big", signed=True)
    return _BYTES[kind](value)


_EXACT = Context(prec=100, traps=[Inexact])

_BYTES: Mapping[str, Callable[[Any], bytes]] = {
    "boolean": lambda value: b"\1" if value else b"\0",
    "int": struct.Struct("<i").pack,
    "date": struct.Struct("<i").pack,
    "long": struct.Struct("<q").pack,
    "timestamp": struct.Struct("<q").pack,
    "timestamptz": struct.Struct("<q").pack,
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "string": lambda value: value.encode(),
    "binary": bytes,
}


# --- bounds -------------------------------------------------------------------------------------------------------


def bound_bytes(bound: Scalar, kind: str, spark_kind: str, *, up: bool) -> bytes | None:
    """A bound of a marker as Iceberg's bytes; None if it is no value of the type, or might leave out values.

    `kind` is Iceberg's type, `spark_kind` the same in Spark's JSON. Bounds come from outside.
    """
    row = type_of(spark_kind)
    if row is None or row.bound is None or bound is None:
        return None
    value = row.bound.value(bound)
    if value is None:
        return None
    try:
        value = plain(value)
        if kind in ("float", "double"):
            return _float_bytes(float(value), kind, up=up)
        if digits := digits_of(kind):
            return _decimal_bytes(value, *digits, kind)
        return to_bytes(value, kind)
    except (struct.error, ArithmeticError, ValueError):
        return None


def _float_bytes(value: float, kind: str, *, up: bool) -> bytes | None:
    if not isfinite(value):
        return None
    packed = to_bytes(value or (0.0 if up else -0.0), kind)  # Iceberg orders -0.0 before 0.0
    return packed if kind == "double" or struct.unpack("<f", packed)[0] == value else None


def _decimal_bytes(value: Decimal, precision: int, scale: int, kind: str) -> bytes | None:
    exact = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    return to_bytes(exact, kind) if abs(exact) < Decimal(10) ** (precision - scale) else None


def scale_of(bound: Scalar) -> int | None:
    """How many digits a decimal bound has after the point, which are those of the file's column; None for no bound."""
    return len(bound.partition(".")[2]) if isinstance(bound, str) else None


# --- partition values ---------------------------------------------------------------------------------------------


def partition_value(text: str | None, spark_kind: str) -> Any:
    """The plain value of a text in a directory's name. Raises ValueError if readers do not agree on it."""
    return None if text is None else plain(read(text, spark_kind))


def plain(value: Any) -> Any:
    """Dates as days, and times as microseconds, since 1970; other values as they are."""
    match value:
        case datetime():
            moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return (moment - _EPOCH) // _MICROSECOND
        case date():
            return (value - _EPOCH_DAY).days
    return value


def avro_type(kind: str) -> Any:
    """The type of Avro for a partition value of Iceberg's type."""
    if digits := digits_of(kind):
        size = ((10 ** digits[0]).bit_length() + 8) // 8
        name = f"decimal_{digits[0]}_{digits[1]}"
        logical = {"logicalType": "decimal", "precision": digits[0], "scale": digits[1]}
        return {"type": "fixed", "name": name, "size": size, **logical}
    return _AVRO.get(kind, kind)


_AVRO: Mapping[str, Any] = {
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    "binary": "bytes",
}


class Summary(NamedTuple):
    """The values of one partition column in the files of a manifest."""

    contains_null: bool
    contains_nan: bool
    lower_bound: bytes | None
    upper_bound: bytes | None


def summarize(values: Iterable[Any], kind: str) -> Summary:
    """Summarizes partition values, which are plain, and of Iceberg's type `kind`."""
    found = {*values}
    ordered = [it for it in found if it is not None and not (isinstance(it, float) and isnan(it))]
    least, most = (min(ordered), max(ordered)) if ordered else (None, None)
    return Summary(
        None in found,
        any(isinstance(it, float) and isnan(it) for it in found),
        None if least is None else to_bytes(least, kind),
        None if most is None else to_bytes(most, kind),
    )
