"""The statistics of a file's columns, min and max from its footer (PROTOCOL.md 7.3). Pure.

Which columns a task writes statistics of is in `encoding`; what else a footer tells is in `footers`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from dbio_commit.protocol.markers import Bounds, Scalar

TEXT_LENGTH = 64


def bounds(schema: pa.Schema, footer: pq.FileMetaData, *, nulls: Sequence[int | None]) -> dict[str, Bounds]:
    """The statistics of a file's columns, min and max from its footer."""
    found: dict[str, Bounds] = {}
    leaf = 0
    for field, count in zip(schema, nulls, strict=True):
        found[field.name] = Bounds(*_min_max(field.type, footer, leaf), count)
        leaf += len(list(leaf_types(field.name, field.type)))
    return found


def leaf_types(path: str, kind: Any) -> Iterator[tuple[str, Any]]:
    if types.is_struct(kind):
        for field in kind:
            yield from leaf_types(f"{path}.{field.name}", field.type)
    elif types.is_map(kind):
        yield from leaf_types(f"{path}.key_value.key", kind.key_type)
        yield from leaf_types(f"{path}.key_value.value", kind.item_type)
    elif types.is_nested(kind):
        yield from leaf_types(f"{path}.list.element", kind.field(0).type)
    else:
        yield path, kind


def _min_max(kind: pa.DataType, footer: pq.FileMetaData, leaf: int) -> tuple[Scalar, Scalar]:
    convert = _scalar(kind)
    if convert is None:
        return None, None
    groups: list[Any] = [footer.row_group(i).column(leaf).statistics for i in range(footer.num_row_groups)]
    groups = [group for group in groups if group is None or group.num_values]  # of nulls alone there is no bound
    if not groups or any(group is None or not group.has_min_max for group in groups):
        return None, None
    lows, highs = zip(*((_order(kind, g.min_raw), _order(kind, g.max_raw)) for g in groups), strict=True)
    if types.is_string(kind) or types.is_large_string(kind):
        return shorten_min(min(lows)), shorten_max(max(highs))
    return convert(min(lows)), convert(max(highs))


def _order(kind: pa.DataType, raw: Any) -> Any:
    """Parquet's value as one that Python orders rightly: large decimals are big-endian bytes."""
    return int.from_bytes(raw, "big", signed=True) if types.is_decimal(kind) and isinstance(raw, bytes) else raw


def _scalar(kind: Any) -> Callable[[Any], Scalar] | None:
    """From Parquet's value to the one in JSON; None for types without order, or whose order readers do not share."""
    if types.is_boolean(kind) or types.is_integer(kind):
        return lambda raw: raw
    if types.is_floating(kind) and not types.is_float16(kind):
        return lambda raw: raw if math.isfinite(raw) else None
    if types.is_string(kind) or types.is_large_string(kind):
        return bytes.decode
    if types.is_decimal(kind):
        return lambda raw: format(Decimal(f"{raw}E{-kind.scale}"), "f")
    if types.is_date32(kind):
        return lambda raw: _moment(raw * _DAY, 10)
    if types.is_timestamp(kind) and kind.unit == "us":
        zone = "Z" if kind.tz else ""
        return lambda raw: _moment(raw, None, zone)
    return None


_DAY = 24 * 60 * 60 * 1_000_000


def _moment(microseconds: int, length: int | None, zone: str = "") -> str | None:
    """ISO 8601; None outside the years 1 to 9999, where such texts have no common form and no order."""
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=microseconds)).isoformat()[:length] + zone
    except OverflowError:
        return None


def shorten_min(raw: bytes) -> str | None:
    """A short text that is not greater than the text; None for bytes that are no text."""
    try:
        return raw.decode()[:TEXT_LENGTH]
    except UnicodeDecodeError:
        return None


def shorten_max(raw: bytes) -> str | None:
    """A short text that is not less than the text, by code points; None where there is none."""
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
    return "\ue000" if char == "\ud7ff" else chr(ord(char) + 1)  # no text holds the surrogates in between
