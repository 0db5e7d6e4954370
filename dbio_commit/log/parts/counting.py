"""Counts the rows, and the nulls of some columns, of a large table's live files, by directory, on columns of Arrow."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.log.parts import rows
from dbio_commit.log.parts.bounds import PartStatistics
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.state import CountsByDirectory, DataFile

UNKNOWN = -1
"""Stands for a number that no writer recorded."""

_MOST: Any = 1 << 40
"""No file has more rows. So sums over a window fit into 64 bits."""


class Counting:
    """Adds up the recorded numbers of rows and nulls by directory, some files at a time."""

    def __init__(self) -> None:
        self.found: CountsByDirectory = {}

    def add(self, directory: Any, counts: Sequence[Any]) -> bool:
        """Adds files, with the directory, the number of rows and the numbers of nulls of each.

        Returns False if one of the numbers is unknown, or cannot be true.
        """
        counts = [it.fill_null(UNKNOWN) for it in counts]
        if not all(_are_between(it, counts[0]) for it in counts):
            return False
        directory = rows.dictionary(directory)
        columns = [*map(str, range(len(counts)))]
        table = pa.table([directory.indices, *counts], names=["directory", *columns])
        sums = table.group_by("directory", use_threads=False).aggregate([(name, "sum") for name in columns])
        totals = directory.dictionary.take(rows.joined(sums["directory"])), *(sums[f"{it}_sum"] for it in columns)
        for text, *each in zip(*map(rows.listed, totals), strict=True):
            so_far = self.found.setdefault(text, [0] * len(counts))
            self.found[text] = [one + other for one, other in zip(so_far, each, strict=True)]
        return True

    def add_new(self, files: Iterable[DataFile], infos: Mapping[str, FileInfo], columns: Sequence[str]) -> bool:
        """As `add`, for files whose numbers are in `infos`, by path."""
        directories: list[str] = []
        each: list[list[int | None]] = []
        for file in files:
            info = infos.get(file.path)
            known = {name.lower(): it.nulls for name, it in (info.statistics or {}).items()} if info else {}
            directories.append(names.split(file.path)[0])
            each.append([info.rows if info else None, *map(known.get, columns)])
        counts = [rows.numbers(UNKNOWN if it is None else it for it in column) for column in zip(*each, strict=True)]
        return not each or self.add(pa.chunked_array([rows.texts(directories).dictionary_encode()]), counts)


def _are_between(counts: Any, of_rows: Any) -> bool:
    """Whether all numbers are at least 0, and at most the numbers of rows."""
    at_least_0 = pc.greater_equal(counts, pa.scalar(0))
    ok = pc.and_(pc.and_(at_least_0, pc.less_equal(counts, of_rows)), pc.less_equal(counts, pa.scalar(_MOST)))
    return pc.all(ok).as_py() is not False


def with_nulls(
    statistics: PartStatistics, table: pa.Table, columns: Sequence[str]
) -> Iterator[tuple[pa.Table, Sequence[Any]]]:
    """Some of these rows at a time, with the number of nulls of each column in each row's file.

    `columns` are in lower case. The rows are as `rows.located` returns them, and the rows of a part are near each
    other. Raises DamagedPart.
    """
    if not columns:
        yield table, ()
        return
    for part in rows.listed(pc.unique(table["part"])):
        of_part = table.filter(pc.equal(table["part"], part))
        ends = [*accumulate(statistics.group_rows(part))]
        starts = [0, *ends]
        low, high = (bisect_right(ends, it.as_py()) for it in pc.min_max(of_part["place"]).values())
        for group in range(low, high + 1):
            some = of_part.filter(pc.greater_equal(of_part["place"], pa.scalar(starts[group])))
            if group == len(ends):
                yield some, [_unknown(some)] * len(columns)
                continue
            some = some.filter(pc.less(some["place"], pa.scalar(ends[group])))
            places = rows.joined(pc.subtract(some["place"], starts[group]))
            yield some, statistics.nulls(columns, part, group, places)


def _unknown(table: pa.Table) -> Any:
    return pa.nulls(table.num_rows, pa.int64())
