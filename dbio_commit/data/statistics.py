"""Reads the statistics of a file's columns from its footer (PROTOCOL.md 7.3). Pure.

Which columns get statistics when a task writes them is in `encoding`. What else a footer has is in `footers`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from dbio_commit.data.columns import own_name
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.types import type_of
from dbio_commit.protocol.types.bounds import Scalar


def bounds(schema: pa.Schema, footer: pq.FileMetaData, *, nulls: Sequence[int | None]) -> dict[str, Bounds]:
    """The bounds of each column: the min and max in the footer, and the count of nulls that the caller gives."""
    found: dict[str, Bounds] = {}
    leaf = 0
    for field, count in zip(schema, nulls, strict=True):
        found[field.name] = Bounds(*_min_max(field.type, footer, leaf), count)
        leaf += len(list(leaf_types(field.name, field.type)))
    return found


def bounds_in_group(kind: pa.DataType, footer: pq.FileMetaData, number: int, leaf: int) -> Bounds:
    """The bounds of one leaf column of this type in one row group."""
    recorded: Any = footer.row_group(number).column(leaf).statistics
    nulls = recorded.null_count if recorded is not None and recorded.has_null_count else None
    return Bounds(*_min_max(kind, footer, leaf, [number]), nulls)


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


def _min_max(
    kind: pa.DataType, footer: pq.FileMetaData, leaf: int, numbers: Sequence[int] | None = None
) -> tuple[Scalar, Scalar]:
    """The min and max in these row groups; by default, in all."""
    name = own_name(pa.string() if types.is_large_string(kind) else kind)
    row = type_of(name)
    if name is None or row is None or row.bound is None:
        return None, None
    numbers = range(footer.num_row_groups) if numbers is None else numbers
    groups: list[Any] = [footer.row_group(i).column(leaf).statistics for i in numbers]
    groups = [
        group for group in groups if group is None or group.num_values
    ]  # a row group with only nulls has no bounds
    if not groups or any(group is None or not group.has_min_max for group in groups):
        return None, None
    lows, highs = zip(*((_order(kind, g.min_raw), _order(kind, g.max_raw)) for g in groups), strict=True)
    return row.bound.from_parquet(min(lows), name, False), row.bound.from_parquet(max(highs), name, True)


def _order(kind: pa.DataType, raw: Any) -> Any:
    """Parquet's value as one that Python orders rightly: large decimals are big-endian bytes."""
    return int.from_bytes(raw, "big", signed=True) if types.is_decimal(kind) and isinstance(raw, bytes) else raw
