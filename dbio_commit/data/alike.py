"""Decides whether a file has a table's columns as they are, so that any Parquet reader finds the table's rows. Pure.

`conform` converts the columns of other files.
"""

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from dbio_commit.data.widen import fit


class Match(Enum):
    """How a file's columns are read as those of a table."""

    SAME = auto()
    """The file has all columns, with the table's names and types."""
    CAST = auto()
    """Some columns are absent, or of a type that Arrow casts to the table's, as `conform` does."""
    OTHER = auto()
    """Only `conform` converts the file's columns to the table's."""


def match(parquet: pq.ParquetFile, target: pa.Schema, *, partition: Collection[str]) -> tuple[Match, str]:
    """How the file matches the target without the partition columns, and a text: why pyarrow's own reader would not
    find the table's rows in it. The text is empty if it would.
    """
    leaves = parquet.schema
    is_old = any(leaves.column(leaf).physical_type == "INT96" for leaf in range(len(leaves)))
    own = {field.name: field.type for field in parquet.schema_arrow}
    spelled = {name.lower(): name for name in own}
    outside = {name.lower() for name in partition}
    found, why = Match.CAST if is_old else Match.SAME, ""
    for field in target:
        lower = field.name.lower()
        if lower in outside:
            why = f"it has the partition column {field.name!r:.100}, too" if lower in spelled else why
        elif lower not in spelled:
            found = Match.CAST
        elif spelled[lower] != field.name:
            return Match.OTHER, f"it spells the column {field.name!r:.100} as {spelled[lower]!r:.100}"
        elif not is_same(own[field.name], field.type):
            if not _is_cast(own[field.name], field.type):
                return Match.OTHER, f"its column {field.name!r:.100} is {own[field.name]}, not {field.type}"
            found = Match.CAST
    return found, why


def is_same(own: Any, wanted: Any) -> bool:
    """Whether all readers find the same values of the same type. Nullability does not count, nor do large offsets."""
    if types.is_struct(own) and types.is_struct(wanted):
        return [field.name for field in own] == [field.name for field in wanted] and all(
            is_same(one.type, other.type) for one, other in zip(own, wanted, strict=True)
        )
    if types.is_map(own) and types.is_map(wanted):
        return is_same(own.key_type, wanted.key_type) and is_same(own.item_type, wanted.item_type)
    if (types.is_list(own) or types.is_large_list(own)) and types.is_list(wanted):
        return is_same(own.value_type, wanted.value_type)
    return bool(_PLAIN.get(own, own) == wanted)


_PLAIN: Mapping[Any, Any] = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def _is_cast(own: Any, wanted: Any) -> bool:
    """Whether Arrow's own cast gives what `fit` gives."""
    if types.is_nested(own) or types.is_nested(wanted):
        return False
    try:
        fit(pa.array([], own), wanted)
        pa.array([], own).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        return False
    return True
