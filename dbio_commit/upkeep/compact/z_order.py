"""Rows along a Z-curve (Morton order) of several columns, so that any stretch of them is narrow in each. Pure.

Values count by where they stand among the others, not by what they are: so all kinds that have an order can be mixed,
and a few far-off values do not push the rest together.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_CODE_BITS = 64
_KEY_BITS = 16
"""Of each column, where there are few: 65,536 steps, more than any file has row groups."""
_TABLE_BITS = 8


def z_order(table: pa.Table, columns: Sequence[str]) -> Any:
    """The positions of the rows in their order along the curve; rows at one place of it stay as they come."""
    return pc.array_sort_indices(z_codes([table.column(name) for name in columns]))


def z_codes(columns: Sequence[Any]) -> Any:
    """For each row of chunked arrays, its place on the curve: the bits of its keys by turns, the first foremost."""
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
    """For each value, its place among all as a number of so many bits; nulls are least, NaN is greatest.

    Of equal values, it is the middle of their places. So the first bit divides the rows as evenly as it can, and tells
    apart two values that are all there is.
    """
    if pa.types.is_null(column.type) or not len(column):  # which Arrow does not rank
        return pa.repeat(pa.scalar(0, pa.uint32()), len(column))
    nulls: Any = pc.is_null(column)
    ranks: Any = pc.if_else(nulls.combine_chunks(), _uint64(0), pc.rank(column, "ascending", tiebreaker="dense"))
    in_order: Any = pc.take(ranks, pc.array_sort_indices(ranks))
    differs: Any = pc.not_equal(in_order[1:], in_order[:-1])
    inner: Any = pc.add(pc.cast(pc.indices_nonzero(differs), pa.uint64()), _uint64(1))
    edges = pa.concat_arrays([pa.array([0], pa.uint64()), inner, pa.array([len(column)], pa.uint64())])
    middles: Any = pc.add(edges[1:], edges[:-1])  # twice each, to be whole
    each = pc.cast(pc.divide(pc.shift_left(middles, _uint64(bits)), _uint64(2 * len(column))), pa.uint32())
    return pc.take(each, ranks if column.null_count else pc.subtract(ranks, _uint64(1)))


def _uint64(value: int) -> Any:
    return pa.scalar(value, pa.uint64())


def _spread(value: int, apart: int) -> int:
    """Its bits, each so many places from the next."""
    return sum((value >> bit & 1) << bit * apart for bit in range(_TABLE_BITS))
