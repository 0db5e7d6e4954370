"""Merges parts: reads them, and makes the rows of the parts that replace them.

A *cut* is a key that divides the rows of files into ranges.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.base.logs import get_logger
from dbio_commit.log.parts import parquet, rows
from dbio_commit.log.parts.parquet import DamagedPart, OpenStatistics
from dbio_commit.log.parts.reader import HeldParts, PartReader
from dbio_commit.log.parts.windows import FileRows
from dbio_commit.protocol.parts import Cut, Key, Merge

_log = get_logger(__name__)


class Piece(NamedTuple):
    """The rows of a new part."""

    tables: Iterable[pa.Table]
    """The rows, some at a time. They can be read only once."""
    statistics: Callable[[], Iterator[pa.Table]] | None = None
    """Returns the statistics, some rows at a time, after `tables` was read. None if there are none."""


def pieces_of_news(files: pa.Table, statistics: pa.Table | None, cut: Cut) -> tuple[list[Piece], list[Key]]:
    """The pieces of new rows of files with their statistics, and the new cuts between them."""
    starts, cuts = _cut(files, cut)
    bounds = [*pairwise([*starts, files.num_rows])]
    return [_piece_of_news(files, statistics, start, stop - start) for start, stop in bounds], cuts


def _piece_of_news(files: pa.Table, statistics: pa.Table | None, start: int, rows: int) -> Piece:
    if statistics is None:
        return Piece([files.slice(start, rows)])
    own, step = statistics.slice(start, rows), parquet.STATISTICS_ROWS
    return Piece([files.slice(start, rows)], lambda: (own.slice(at, step) for at in range(0, rows, step)))


def _cut(table: pa.Table, cut: Cut) -> tuple[list[int], list[Key]]:
    """The number of the first row of each piece, and the new cuts."""
    keys = rows.KeysOf(table)
    starts = {0, *(keys.first_from(key) for key in cut.cuts)}
    cuts: list[Key] = []
    for i in range(1, cut.pieces if table.num_rows else 1):
        key = keys[table.num_rows * i // cut.pieces]
        place = keys.first_from(key)
        if place and key not in cuts:
            cuts.append(key)
            starts.add(place)
    return sorted(starts - {table.num_rows}), cuts


def merge(reader: PartReader, wanted: Merge) -> tuple[Iterator[Piece], list[Key]]:
    """The pieces that replace the parts of `wanted`, and the new cuts between them. Pieces without rows are left out.

    Each piece must be read before the next one.
    """
    if wanted.parts[0].kind == "files":
        cuts = _new_cuts(wanted)
        return _merge_files(reader, wanted, sorted([*wanted.cuts, *cuts])), cuts
    table = pa.concat_tables([reader.table(part) for part in wanted.parts])
    found = rows.latest_commits(table, keep_forgotten=not wanted.is_whole)
    return iter([Piece([found])] if found.num_rows else []), []


def _new_cuts(wanted: Merge) -> list[Key]:
    """The first keys of some row groups, so that about the same number of rows is between two cuts."""
    starts = sorted(((*group.first,), group.rows) for part in wanted.parts for group in part.groups)
    total, first = sum(count for _, count in starts), starts[0][0]
    cuts: list[Key] = []
    before = 0
    for key, count in starts:
        if before * wanted.pieces >= total * (len(cuts) + 1) and key != first and [*key] not in cuts:
            cuts.append([*key])
        before += count
    return cuts


def _merge_files(reader: PartReader, wanted: Merge, cuts: Sequence[Key]) -> Iterator[Piece]:
    """Merges one window of keys after the other, so that parts of any size take the same memory."""
    parts = wanted.parts
    inputs = _Inputs([reader.statistics(part) for part in parts])

    def tables() -> Iterator[tuple[int, pa.Table]]:
        """The rows in order, some at a time, with the number of the piece that they are in."""
        for window in FileRows(HeldParts(reader, parts), parts).windows(keep_gone=not wanted.is_whole):
            table = window.table.unify_dictionaries()
            table = table.take(rows.order_of(table))
            keys = rows.KeysOf(table)
            starts = [0, *(keys.first_from(key) for key in cuts), table.num_rows]
            for number, (start, stop) in enumerate(pairwise(starts)):
                if start < stop:
                    yield number, table.slice(start, stop - start)

    for _, some in groupby(tables(), key=itemgetter(0)):
        places = _Places()
        yield Piece(map(places.note, map(itemgetter(1), some)), inputs.of(places))


class _Places:
    """The part, and the row in it, from which each row of a new part comes."""

    def __init__(self) -> None:
        self.parts, self.places = array("q"), array("q")
        """The number of the part of each row, and the number of the row in it."""

    def note(self, located: pa.Table) -> pa.Table:
        """Records where these rows come from, and returns them without the columns that say so."""
        self.parts.extend(rows.integers(located["part"]))
        self.places.extend(rows.integers(located["place"]))
        return located.drop_columns(["part", "place"])


_MOST_KEPT_BYTES = parquet.STATISTICS_BYTES
"""A larger row group of statistics is not kept as a whole: its columns are read one after the other."""


class _Inputs:
    """The statistics of the merged parts. The caller asks for the rows of each part in their order."""

    def __init__(self, each: Sequence[OpenStatistics | None]) -> None:
        self._each = each
        self._groups: dict[int, tuple[int, pa.Table]] = {}
        schemas = [it.schema for it in each if it]
        self.schema: Any = pa.unify_schemas(schemas) if schemas else None
        """The columns of all; None if no part has statistics."""

    def of(self, rows: "_Places") -> Callable[[], Iterator[pa.Table]] | None:
        """A function that returns the statistics of these rows, some at a time; None if no part has statistics."""
        if self.schema is None:
            return None
        step = self._step()
        return lambda: (
            self._at(rows.parts[start : start + step], rows.places[start : start + step])
            for start in range(0, len(rows.places), step)
        )

    def _step(self) -> int:
        """How many rows are in memory at a time: as many as a row group may have."""
        sizes = ((it.unpacked_bytes(i), rows) for it in self._each if it for i, rows in enumerate(it.group_rows))
        per_row = max((size / max(rows, 1) for size, rows in sizes), default=0)
        return max(min(parquet.STATISTICS_ROWS, int(parquet.STATISTICS_BYTES / max(per_row, 1))), 1)

    def _at(self, parts: Sequence[int], places: Sequence[int]) -> pa.Table:
        by_input: dict[int, list[int]] = {}
        for i, part in enumerate(parts):
            by_input.setdefault(part, []).append(i)
        pieces: list[pa.Table] = []
        order: list[int] = []
        for k, mine in by_input.items():
            mine.sort(key=places.__getitem__)  # rows of a part from outside may be in any order
            order += mine
            pieces += self._of_input(k, [places[i] for i in mine])
        table = pa.concat_tables([rows.empty(self.schema), *pieces], promote_options="default")
        return table.take(pc.array_sort_indices(rows.numbers(order)))

    def _of_input(self, k: int, local: Sequence[int]) -> Iterator[pa.Table]:
        source = self._each[k]
        if source is None:
            yield self._nothing(len(local))
            return
        ends = [*accumulate(source.group_rows)]
        i = 0
        while i < len(local):
            group = bisect_right(ends, local[i])
            j = i
            while j < len(local) and local[j] < ends[group]:
                j += 1
            base = ends[group] - source.group_rows[group]
            yield self._rows_of(k, source, group, rows.numbers(it - base for it in local[i:j]))
            i = j

    def _rows_of(self, k: int, source: OpenStatistics, group: int, places: Any) -> pa.Table:
        if k in self._groups and self._groups[k][0] == group:
            return self._groups[k][1].take(places)
        if source.unpacked_bytes(group) > _MOST_KEPT_BYTES:
            each = (self._read(source, some, group) for some in source.batches(source.columns, group))
            return rows.beside([table.take(places) for table in each])
        table = self._read(source, source.columns, group)
        self._groups[k] = group, table
        return table.take(places)

    def _read(self, source: OpenStatistics, columns: Sequence[str], group: int) -> pa.Table:
        """The columns of a row group. A column that cannot be read is all null, with a WARNING."""
        try:
            return source.read(columns, group)
        except DamagedPart as error:
            if len(columns) > 1:
                half = len(columns) // 2
                first, second = (self._read(source, some, group) for some in (columns[:half], columns[half:]))
                return rows.beside([first, second])
            count = source.group_rows[group]
            _log.warning("%s of %d files is not known any more, and no file is skipped by it: %s; dbio compact records "
                         "statistics again", columns[0], count, error)  # fmt: skip
            return pa.table({columns[0]: pa.nulls(count, source.schema.field(columns[0]).type)})

    def _nothing(self, rows: int) -> pa.Table:
        first = self.schema.field(0)
        return pa.table({first.name: pa.nulls(rows, first.type)})
