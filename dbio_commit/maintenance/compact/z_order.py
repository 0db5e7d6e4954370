"""Sorts rows along a Z-curve (Morton order) of several columns: neighbours have similar values in each column. Pure.

Uses the rank of a value among all values, not the value itself. So columns of all types with an order can be combined,
and a few extreme values do not matter.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_CODE_BITS = 64
_KEY_BITS = 16
"""The bits of each column, if there are few columns: 65,536 steps, more than any file has row groups."""
_TABLE_BITS = 8


def z_order(table: pa.Table, columns: Sequence[str]) -> Any:
    """The positions of the rows in the order of the curve. The sort is stable."""
    return pc.array_sort_indices(z_codes([table.column(name) for name in columns]))


def z_codes(columns: Sequence[Any]) -> Any:
    """The place of each row of chunked arrays on the curve: the bits of its keys by turns, from the first column on."""
    bits = min(_KEY_BITS, _CODE_BITS // len(columns))
    spread = pa.array([_spread(value, len(columns)) for value in range(1 << _TABLE_BITS)], pa.uint64())
    codes: Any = None
    for position, column in enumerate(reversed(columns)):
        key = keys(column, bits=bits)
        places = pc.take(spread, pc.bit_wise_and(key, (1 << _TABLE_BITS) - 1))
        if bits > _TABLE_BITS:
            high = pc.take(spread, pc.shift_right(key, _TABLE_BITS))
            places = pc.bit_wise_or(places, pc.shift_left(high, _uint64(_TABLE_BITS * len(columns))))
        places = pc.shift_left(places, _uint64(position))
        codes = places if codes is None else pc.bit_wise_or(codes, places)
    return codes


def keys(column: Any, *, bits: int) -> Any:
    """The rank of each value among all values, scaled to so many bits. Nulls are least, NaN is greatest.

    Equal values have the middle of their ranks. So the first bit divides the rows as evenly as possible, and separates
    two values if there are only two.
    """
    if pa.types.is_null(column.type) or not len(column):  # Arrow's rank does not accept these
        return pa.repeat(pa.scalar(0, pa.uint32()), len(column))
    ranks = dense_ranks(column)
    in_order: Any = pc.take(ranks, pc.array_sort_indices(ranks))
    differs: Any = pc.not_equal(in_order[1:], in_order[:-1])
    inner: Any = pc.add(pc.cast(pc.indices_nonzero(differs), pa.uint64()), _uint64(1))
    edges = pa.concat_arrays([pa.array([0], pa.uint64()), inner, pa.array([len(column)], pa.uint64())])
    middles: Any = pc.add(edges[1:], edges[:-1])  # twice the middle of each, so that it is an integer
    each = pc.cast(pc.divide(pc.shift_left(middles, _uint64(bits)), _uint64(2 * len(column))), pa.uint32())
    return pc.take(each, ranks if column.null_count else pc.subtract(ranks, _uint64(1)))


def dense_ranks(column: Any) -> Any:
    """The rank of each value of a chunked array among its different values, from 1; NaN is greatest. A null has 0."""
    nulls: Any = pc.is_null(column)
    ranks: Any = pc.rank(column, "ascending", tiebreaker="dense")
    return pc.if_else(nulls.combine_chunks(), _uint64(0), ranks)


def _uint64(value: int) -> Any:
    return pa.scalar(value, pa.uint64())


def _spread(value: int, apart: int) -> int:
    """The number with its bits moved `apart` places from each other."""
    return sum((value >> bit & 1) << bit * apart for bit in range(_TABLE_BITS))
