"""Decides which files of a table with `cluster_by` are rewritten together (ADR 0107). Pure.

A *run* is the live files of one transaction in one partition, among which it divided its rows by the same columns. All
other files are *loose*. Loose files are rewritten, with those files of runs among which they would have to lie.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from dbio_commit.data.conditions.tree import Facts
from dbio_commit.maintenance.compact.options import is_small
from dbio_commit.maintenance.compact.plan import COMMIT_FILES, Bin
from dbio_commit.protocol import names
from dbio_commit.protocol.state import DataFile

WHOLE_TIMES = 1.5
"""A whole run is rewritten if it has at most so many times as many rows as the files that are rewritten already. So
each rewrite of a row makes its run at least 1.67 times larger. Equal appends make runs of 1, 2, 4, … times as many
rows; 1.5 is far from each ratio of these."""
PART_TIMES = 0.5
"""As WHOLE_TIMES, for a part of a run. No bound is proven for these rewrites; 1.5 rewrote up to two thirds more."""

Edge = tuple[Any, ...]
"""A value that all columns can compare: (0,) is null, (1, value) any other."""

_NULL: Edge = (0,)


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest value of a column in a file."""

    low: Edge
    high: Edge


def range_of(facts: Facts) -> Range | None:
    """The range of the values that have these facts; None if it is not known."""
    if not facts.has_values:
        return Range(_NULL, _NULL)
    if facts.low is None or facts.high is None:
        return None
    return Range((1, facts.low) if facts.nulls == 0 else _NULL, (1, facts.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFile:
    """A live file, and where its rows are."""

    file: DataFile
    rows: int | None
    """The number of rows; None if it is not known."""
    ranges: tuple[Range | None, ...]
    """The range of each column of `cluster_by`; None if it is not known."""
    run: str | None = None
    """The transaction of its run; None if it is loose."""
    is_other: bool = False
    """Whether other columns have clustered it. Then it has no run."""

    @property
    def size(self) -> int:
        """In bytes; 0 if it is not known."""
        return max(self.file.size, 0)


def plan_groups(
    files: Iterable[PlacedFile], *, target_size: int, most: int, min_files: int = 1, full: bool = False
) -> list[Bin]:
    """The groups of files to rewrite, each within one partition. A partition without loose files stays as it is.

    New files have about `target_size` bytes. At most `most` bytes and COMMIT_FILES files are rewritten together. If
    fewer than `min_files` files of a partition are loose, they stay as they are, as files do that other columns have
    clustered. `full`: all files are rewritten, as if they were loose.
    """
    by_directory: dict[str, list[PlacedFile]] = {}
    for it in files:
        if full or not it.is_other:
            by_directory.setdefault(names.split(it.file.path)[0], []).append(it)
    groups: list[list[PlacedFile]] = []
    for _, own in sorted(by_directory.items()):
        loose = [it for it in own if full or it.run is None]
        if not loose or len(loose) < min_files:
            continue
        if _size(loose) > most or len(loose) > COMMIT_FILES:
            groups += _in_order(loose, most)
        else:
            groups.append(loose if full else [*loose, *_joined(own, target_size=target_size, most=most)])
    return [_bin(group, target_size) for group in groups]


def _size(files: Iterable[PlacedFile]) -> int:
    return sum(it.size for it in files)


def _bin(group: Sequence[PlacedFile], target_size: int) -> Bin:
    rows = _row_counter(group)
    return Bin(
        tuple(it.file for it in group),
        pieces=max(1, round(_size(group) / target_size)),
        rows=tuple(map(rows, group)),
    )


def _row_counter(files: Sequence[PlacedFile]) -> Callable[[PlacedFile], int]:
    """A function that returns how many rows a file has. If that is not known, it estimates them by the file's size."""
    known = [it for it in files if it.rows is not None]
    each = sum(it.rows or 0 for it in known) / max(_size(known), 1) if known else 1.0
    return lambda it: round(it.size * each) if it.rows is None else it.rows


def _in_order(files: Sequence[PlacedFile], most: int) -> Iterator[list[PlacedFile]]:
    """The files in groups of at most `most` bytes, or of one file, and COMMIT_FILES: by the least value of the first
    column."""

    def least(it: PlacedFile) -> tuple[Edge, str]:
        return (it.ranges[0].low if it.ranges[0] else _NULL, it.file.path)

    group: list[PlacedFile] = []
    size = 0
    for it in sorted(files, key=least):
        if group and (size + it.size > most or len(group) == COMMIT_FILES):
            yield group
            group, size = [], 0
        group.append(it)
        size += it.size
    yield group


def _joined(files: Sequence[PlacedFile], *, target_size: int, most: int) -> list[PlacedFile]:
    """The files of runs that are rewritten with the loose files: of one run after the other, the fewest rows first."""
    rows = _row_counter(files)
    taken = [it for it in files if it.run is None]
    loose = len(taken)
    count, size = sum(map(rows, taken)), _size(taken)
    runs: dict[str, list[PlacedFile]] = {}
    for it in files:
        if it.run is not None:
            runs.setdefault(it.run, []).append(it)
    while runs:
        overlaps = _overlaps_one_of(taken)
        shares = {
            run: [it for it in own if is_small(it.file.size, target_size) or overlaps(it)] for run, own in runs.items()
        }
        worth = [
            (own, run)
            for run, share in shares.items()
            if 0 < (own := sum(map(rows, share))) <= count * (WHOLE_TIMES if share == runs[run] else PART_TIMES)
            and size + _size(share) <= most
            and len(taken) + len(share) <= COMMIT_FILES
        ]
        if not worth:
            break
        own, fewest = min(worth)
        del runs[fewest]
        taken += shares[fewest]
        count, size = count + own, size + _size(shares[fewest])
    return taken[loose:]


def _overlaps_one_of(taken: Sequence[PlacedFile]) -> Callable[[PlacedFile], bool]:
    """A function: whether a file has values of some column between those of a taken file. Equal ends do not count."""
    columns = [_Ranges([it.ranges[i] for it in taken]) for i in range(len(taken[0].ranges))]
    return lambda it: any(column.overlap(range) for column, range in zip(columns, it.ranges, strict=True))


class _Ranges:
    """The ranges of a column in several files."""

    def __init__(self, ranges: Sequence[Range | None]) -> None:
        known = sorted((it.low, it.high) for it in ranges if it is not None)
        self._all_known = len(known) == len(ranges)
        self._lows = [low for low, _ in known]
        self._highs = list(accumulate((high for _, high in known), max))
        self._points = {low for low, high in known if low == high}

    def overlap(self, own: Range | None) -> bool:
        if own is None or not self._all_known:
            return True
        if own.low == own.high and own.low in self._points:
            return True
        before = bisect_left(self._lows, own.high)  # the number of ranges that begin below the end of this one
        return bool(before) and self._highs[before - 1] > own.low
