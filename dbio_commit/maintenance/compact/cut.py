"""Divides rows among files by the values of some columns, so that the values in each file are close together. Pure.

The tree is a k-d tree: it cuts the rows at a median of one column, and each side again, until there are as many parts
as files. So each file has a box of values, and no two boxes overlap (ADR 0106). Nulls are least, and NaN is greatest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.maintenance.compact.z_order import dense_ranks
from dbio_commit.protocol.types.bounds import TEXT_LENGTH


@dataclass(frozen=True, slots=True)
class Box:
    """The rows of one file, or of several if all of its rows have the same values."""

    first: int
    """The number of the file, from 0."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class RowCut:
    """A place at which rows are divided in two."""

    column: str
    bound: Any
    """An Arrow array of one value: the least in `rest`."""
    below: "Tree"
    rest: "Tree"


Tree = Box | RowCut


def cut_rows(sample: pa.Table, pieces: int) -> Tree:
    """Divides rows like these among so many files, in about equal numbers, by all columns of the sample."""
    columns = [(name, column, dense_ranks(_as_known(column))) for name, column in _columns(sample)]
    each = [_Column(name, column, ranks.to_numpy(zero_copy_only=False)) for name, column, ranks in columns]
    return _cut(each, np.arange(sample.num_rows), 0, pieces)


def divide(tree: Tree, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each file, with its number, for the files that get rows of the table."""
    yield from _divide(tree, table, table.select(_names(tree)), None)


def _columns(sample: pa.Table) -> Iterator[tuple[str, Any]]:
    for name in sample.column_names:
        column = sample.column(name)
        if len(column) and not pa.types.is_null(column.type):  # Arrow has no ranks of these
            yield name, column


def _as_known(column: Any) -> Any:
    """The values as bounds in markers have them: only the beginning of a long text."""
    return pc.utf8_slice_codeunits(column, 0, TEXT_LENGTH) if pa.types.is_string(column.type) else column


class _Column:
    """A column of the sample."""

    def __init__(self, name: str, values: Any, ranks: Any) -> None:
        self.name, self._values = name, values
        self.ranks = ranks.astype(np.int64)
        self._up_to = np.cumsum(np.bincount(self.ranks))

    def span(self, ranks: Any) -> int:
        """How many rows of the whole sample lie between the least and the greatest of these ranks."""
        low, high = ranks.min(), ranks.max()
        return int(self._up_to[high] - (self._up_to[low - 1] if low else 0)) if low < high else 0

    def value(self, row: int) -> Any:
        """An array of the value in this row."""
        return _as_known(self._values.take(pa.array([row]))).combine_chunks()


def _cut(columns: Sequence[_Column], rows: Any, first: int, pieces: int) -> Tree:
    if pieces < 2 or not len(rows):
        return Box(first, pieces)
    spans = [column.span(column.ranks[rows]) for column in columns]
    if not any(spans):
        return Box(first, pieces)
    column = columns[spans.index(max(spans))]
    ranks = column.ranks[rows]
    at = _nearest_edge(np.sort(ranks), len(rows) * (pieces // 2) // pieces)
    order = np.argsort(ranks, kind="stable")
    below, rest = np.sort(rows[order[:at]]), np.sort(rows[order[at:]])
    own = min(max(round(pieces * at / len(rows)), 1), pieces - 1)
    return RowCut(
        column.name,
        column.value(int(rows[order[at]])),
        _cut(columns, below, first, own),
        _cut(columns, rest, first + own, pieces - own),
    )


def _nearest_edge(ranks: Any, wanted: int) -> int:
    """The place nearest to `wanted` at which sorted ranks change. There must be one."""
    left, right = (int(np.searchsorted(ranks, ranks[wanted], side)) for side in ("left", "right"))
    return left if left and (right == len(ranks) or wanted - left <= right - wanted) else right


def _names(tree: Tree) -> list[str]:
    if isinstance(tree, Box):
        return []
    return [*dict.fromkeys([tree.column, *_names(tree.below), *_names(tree.rest)])]


def _divide(tree: Tree, table: pa.Table, keys: pa.Table, places: Any) -> Iterator[tuple[int, pa.Table]]:
    """`keys` are the values of the rows at these places of the table; None is all rows."""
    if isinstance(tree, Box):
        count = table.num_rows if places is None else len(places)
        ends = [count * (i + 1) // tree.count for i in range(tree.count)]
        for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if start < end and places is None:
                yield tree.first + i, table.slice(start, end - start)
            elif start < end:
                yield tree.first + i, table.take(places.slice(start, end - start))
        return
    is_below = _is_below(keys.column(tree.column), tree.bound[0])
    for side, mask in ((tree.below, is_below), (tree.rest, pc.invert(is_below))):
        if pc.any(mask).as_py():
            own: Any = pc.indices_nonzero(mask)
            yield from _divide(side, table, keys.take(own), own if places is None else places.take(own))


def _is_below(column: Any, bound: Any) -> Any:
    if pa.types.is_floating(column.type) and pc.is_nan(bound).as_py():
        return pc.fill_null(pc.invert(pc.is_nan(column)), True)
    return pc.fill_null(pc.less(column, bound), True)
