"""Which of many files may hold rows that fulfil a condition, by arrays of their bounds? Pure.

Decides for all files at once. A file in doubt is kept: `pruning` judges each file that is left.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dbio_commit.data.conditions.tree import AllOf, AnyOf, AtMost, Comparison, Condition, OneOf

Numbers = np.ndarray[Any, Any]


def as_numpy(numbers: "pa.Array[Any]") -> Numbers:
    """The integers of an array, with any number in the place of a null. pyarrow's own function would import pandas,
    which takes 0.5 s."""
    kind = np.dtype(str(numbers.type))
    body: Any = numbers.buffers()[1]
    found: Numbers = np.frombuffer(body or b"", kind, len(numbers), numbers.offset * kind.itemsize)
    return found


class Ends:
    """One value of each file, such as the lowest one of a column."""

    def __init__(self, bounds: "pa.Array[Any]", read: Callable[[Any], Any] | None) -> None:
        """`read` makes a value that can be compared of a bound. It returns None if that is not known. Without it, the
        bounds are integers of 64 bits and their own values."""
        self._bounds, self._read = bounds, read

    def are(self, compare: Callable[[Any, Any], Any], value: Any) -> Numbers:
        """For each file, whether its value compares with this one like that: true if the value is not known."""
        if self._read is None and type(value) is int and -(1 << 63) <= value < 1 << 63:
            found: Numbers = compare(as_numpy(self._bounds), value)
            return found | self._unknown
        return self._each(lambda it: bool(compare(it, value)), True)

    def places(self, bisect: Callable[[Any, Any], int], values: Sequence[Any], *, unknown: int) -> Numbers:
        """For each file, the place of its value among sorted values."""
        return self._each(lambda it: bisect(values, it), unknown)

    def _each(self, of: Callable[[Any], Any], unknown: Any) -> Numbers:
        """What `of` makes of each value. It sees each distinct value once."""
        values, places = self._distinct
        return np.array([*(unknown if it is None else of(it) for it in values), unknown])[places]

    @cached_property
    def _unknown(self) -> Numbers:
        return as_numpy(self._bounds.is_null().cast(pa.int8())).astype(bool)

    @cached_property
    def _distinct(self) -> tuple[Sequence[Any], Numbers]:
        """The distinct values, and the place among them of each file's value, which is their number if it is null."""
        distinct: Any = self._bounds.dictionary_encode()
        values = distinct.dictionary.to_pylist()
        places = np.where(self._unknown, len(values), as_numpy(distinct.indices))
        return [*map(self._read, values)] if self._read else values, places


class Spread(NamedTuple):
    """The bounds of a column in many files."""

    low: Ends
    high: Ends


def may_hold_each(condition: Condition, spread: Mapping[str, Spread], count: int) -> Numbers:
    """For each of so many files, whether it may have a row that fulfils the condition. `spread` is by column."""
    match condition:
        case AllOf(parts):
            return reduce(np.logical_and, (may_hold_each(it, spread, count) for it in parts), np.ones(count, bool))
        case AnyOf(parts):
            return reduce(np.logical_or, (may_hold_each(it, spread, count) for it in parts), np.zeros(count, bool))
        case AtMost(bound):
            return may_hold_each(bound, spread, count)
        case Comparison(column, operator, lowest, highest) if column in spread and operator != "!=":
            low, high = spread[column]
            match operator:
                case "=":
                    return low.are(le, highest) & high.are(ge, lowest)
                case "<":
                    return low.are(lt, highest)
                case "<=":
                    return low.are(le, highest)
                case ">":
                    return high.are(gt, lowest)
                case ">=":
                    return high.are(ge, lowest)
        case OneOf(column, values, True) if column in spread:
            low, high = spread[column]
            return low.places(bisect_left, values, unknown=0) < high.places(bisect_right, values, unknown=len(values))
    return np.ones(count, bool)
