"""Merges parts: reads them, and makes the rows of the parts that replace them."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.base.logs import get_logger
from dbio_commit.log.parts import parquet, rows
from dbio_commit.log.parts.parquet import DamagedPart, OpenStatistics
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.protocol.parts import Cut, Key, Merge

_log = get_logger(__name__)


class Piece(NamedTuple):
    """The rows of a new part."""

    table: pa.Table
    statistics: Callable[[], Iterator[pa.Table]] | None = None
    """The statistics of the rows, some rows at a time; None if there are none."""


def pieces_of_news(files: pa.Table, statistics: pa.Table | None, cut: Cut) -> tuple[list[Piece], list[Key]]:
    """New rows of files with their statistics, and the new cuts between them."""
    starts, cuts = _cut(files, cut)
    bounds = [*pairwise([*starts, files.num_rows])]
    return [_piece_of_news(files, statistics, start, stop - start) for start, stop in bounds], cuts


def _piece_of_news(files: pa.Table, statistics: pa.Table | None, start: int, rows: int) -> Piece:
    if statistics is None:
        return Piece(files.slice(start, rows))
    own, step = statistics.slice(start, rows), parquet.STATISTICS_ROWS
    return Piece(files.slice(start, rows), lambda: (own.slice(at, step) for at in range(0, rows, step)))


def merge(reader: PartReader, wanted: Merge) -> tuple[list[Piece], list[Key]]:
    """The rows of the parts that replace these, and the new cuts between them. Pieces without rows are left out."""
    if wanted.parts[0].kind == "files":
        return _merge_files(reader, wanted)
    table = pa.concat_tables([reader.table(part) for part in wanted.parts])
    found = rows.latest_commits(table, keep_forgotten=not wanted.is_whole)
    return ([Piece(found)] if found.num_rows else []), []


def _merge_files(reader: PartReader, wanted: Merge) -> tuple[list[Piece], list[Key]]:
    tables = [reader.table(part) for part in wanted.parts]
    table = pa.concat_tables(tables)
    table = table.append_column("place", rows.numbers(range(table.num_rows)))
    table = rows.without_gone(table, keep_gone=not wanted.is_whole).unify_dictionaries()
    table = table.take(rows.order_of(table))
    inputs = _Inputs([reader.statistics(part) for part in wanted.parts], [it.num_rows for it in tables])
    starts, cuts = _cut(table, Cut(wanted.pieces, wanted.cuts))
    pieces: list[Piece] = []
    for start, stop in pairwise([*starts, table.num_rows]):
        some = table.slice(start, stop - start)
        if some.num_rows:
            pieces.append(Piece(some.drop_columns(["place"]), inputs.of(rows.integers(some["place"]))))
    return pieces, cuts


def _cut(table: pa.Table, cut: Cut) -> tuple[list[int], list[Key]]:
    """Where the pieces begin, and the new cuts."""
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


class _Inputs:
    """The statistics of the merged parts. Rows of each part are asked for in their order."""

    def __init__(self, each: Sequence[OpenStatistics | None], counts: Sequence[int]) -> None:
        self._each = each
        self._ends = [*accumulate(counts)]
        self._starts = [end - count for end, count in zip(self._ends, counts, strict=True)]
        self._groups: dict[int, tuple[int, pa.Table]] = {}
        schemas = [it.schema for it in each if it]
        self.schema: Any = pa.unify_schemas(schemas) if schemas else None
        """The columns of all; None if no part has statistics."""

    def of(self, places: Sequence[int]) -> Callable[[], Iterator[pa.Table]] | None:
        """The statistics of the rows at these places among those of all inputs, some rows at a time."""
        step = parquet.STATISTICS_ROWS
        if self.schema is None:
            return None
        return lambda: (self._at(places[start : start + step]) for start in range(0, len(places), step))

    def _at(self, places: Sequence[int]) -> pa.Table:
        by_input: dict[int, list[int]] = {}
        for i, place in enumerate(places):
            by_input.setdefault(bisect_right(self._ends, place), []).append(i)
        pieces: list[pa.Table] = []
        order: list[int] = []
        for k, mine in by_input.items():
            order += mine
            pieces += self._of_input(k, [places[i] - self._starts[k] for i in mine])
        table = pa.concat_tables([self.schema.empty_table(), *pieces], promote_options="default")
        return table.take(pc.array_sort_indices(rows.numbers(order)))

    def _read(self, source: OpenStatistics, group: int, rows: int) -> pa.Table:
        try:
            return source.read(source.columns, group)
        except DamagedPart as error:
            _log.warning("%d files of a damaged row group of statistics are not skipped any more: %s", rows, error)
            return self._nothing(rows)

    def _nothing(self, rows: int) -> pa.Table:
        first = self.schema.field(0)
        return pa.table({first.name: pa.nulls(rows, first.type)})

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
            if k not in self._groups or self._groups[k][0] != group:
                self._groups[k] = (group, self._read(source, group, source.group_rows[group]))
            yield self._groups[k][1].take(rows.numbers(it - base for it in local[i:j]))
            i = j
