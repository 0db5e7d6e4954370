"""Reads the statistics of files in parts, row group by row group, and finds them by the place of each file's row."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache

from dbio_commit.log.parts import rows
from dbio_commit.log.parts.parquet import DamagedPart, OpenStatistics
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.protocol.markers.files import ColumnBounds, StoredBounds
from dbio_commit.protocol.parts import Part

MOST_KEPT_BYTES = 64 * 1024**2
"""The most bytes of statistics that stay in memory, for the next files of the same row groups."""

_Numbers = Sequence[int] | np.ndarray[Any, Any]

BoundsByFact = Mapping[rows.Fact, list[Any]]
"""For each fact of a column (min, max, nulls), its value in each of some files."""


class PartStatistics:
    """The statistics of the files in some parts.

    The place of a file's row is (number of the part among these, number of the row in the part).
    """

    def __init__(self, reader: PartReader, parts: Sequence[Part]) -> None:
        self._reader, self._parts = reader, parts
        self._open: dict[int, OpenStatistics | None] = {}
        self._chunks: LRUCache[tuple[int, int, str], Any] = LRUCache(MOST_KEPT_BYTES, getsizeof=_size_of)

    def of(self, columns: Sequence[str], parts: Sequence[int], places: Sequence[int]) -> StoredBounds:
        """The statistics of these columns, for the rows at these places. They are read on demand."""
        return _Bounds(self, columns, parts, places)

    def facts(self, may: Callable[[str], bool], parts: _Numbers, places: _Numbers) -> dict[str, BoundsByFact]:
        """The statistics of the columns for which `may` is true, by column, for the rows at these places.

        Raises DamagedPart if the statistics are not those that were written.
        """
        found: dict[str, BoundsByFact] = {}
        for (fact, kind, column), stored in self._stored(may, parts, places):
            values = found.setdefault(column, {it: [None] * len(places) for it in rows.FACTS})[fact]
            for i, value in enumerate(rows.listed(stored)):
                if value is not None:
                    values[i] = int(value) if kind == "big" else value
        return found

    def ends(self, columns: Collection[str], parts: _Numbers, places: _Numbers) -> dict[str, tuple[Any, Any]]:
        """The lowest and the highest values of these columns, in lower case, for the rows at these places.

        A column without them is left out, and one whose values have several types. Raises as `facts`.
        """
        found: dict[tuple[str, str], list[tuple[str, Any]]] = {}
        for (fact, kind, column), stored in self._stored(lambda it: it.lower() in columns, parts, places):
            found.setdefault((column.lower(), fact), []).append((kind, stored))
        one = {key: it[0][1] for key, it in found.items() if len(it) == 1 and it[0][0] != "big"}
        return {it: (one[it, "min"], one[it, "max"]) for it in columns if (it, "min") in one and (it, "max") in one}

    def _stored(
        self, may: Callable[[str], bool], parts: _Numbers, places: _Numbers
    ) -> Iterator[tuple[tuple[rows.Fact, str, str], Any]]:
        """For each fact, kind and column that the statistics have: the values, or null for a row without one."""
        parts, places = np.asarray(parts), np.asarray(places)
        found: dict[str, list[tuple[Any, Any]]] = {}
        for part in np.unique(parts).tolist():
            if (source := self._source(part)) is None:
                continue
            ends = np.cumsum(source.group_rows)
            mine = np.flatnonzero(parts == part)
            groups = np.searchsorted(ends, places[mine], side="right")
            names = [name for name in source.columns if may(name.split(".", 2)[2])]
            for group in np.unique(groups).tolist():
                own = mine[groups == group]
                at = rows.numbers(places[own] - (ends[group] - source.group_rows[group]))
                for name, chunk in zip(names, self._read(part, source, group, names), strict=True):
                    found.setdefault(name, []).append((own, chunk.take(at)))
        for name, pieces in found.items():
            fact, kind, column = name.split(".", 2)
            yield (cast(rows.Fact, fact), kind, column), _in_order(pieces, len(places))

    def group_rows(self, part: int) -> Sequence[int]:
        """How many rows each row group has in the statistics of a part; none if it has no statistics."""
        source = self._source(part)
        return source.group_rows if source else ()

    def nulls(self, columns: Sequence[str], part: int, group: int, places: Any) -> list[Any]:
        """The number of nulls in each column, for the rows at these places of a row group: one array per column.

        An unknown number is null. The columns are given in lower case. Raises DamagedPart if the statistics are not
        those that were written.
        """
        source = self._source(part)
        assert source
        of: dict[str, list[str]] = {column: [] for column in columns}
        for name in source.columns:
            fact, kind, column = name.split(".", 2)
            if (
                (fact, kind) == ("nulls", "int")
                and column.lower() in of
                and pa.types.is_int64(source.schema.field(name).type)
            ):
                of[column.lower()].append(name)
        names = [name for spelled in of.values() for name in spelled]
        read = dict(zip(names, self._read(part, source, group, names), strict=True))
        unknown = pa.nulls(len(places), pa.int64())
        each = ([read[name].take(places) for name in spelled] for spelled in of.values())
        return [pc.coalesce(unknown, *found) for found in each]

    def _source(self, part: int) -> OpenStatistics | None:
        if part not in self._open:
            self._open[part] = self._reader.statistics(self._parts[part])
        return self._open[part]

    def _read(self, part: int, source: OpenStatistics, group: int, names: Sequence[str]) -> list[Any]:
        found = {name: self._chunks.get((part, group, name)) for name in names}
        if missing := [name for name, chunk in found.items() if chunk is None]:
            table = source.read(missing, group)
            for name in missing:
                found[name] = chunk = rows.joined(table[name])
                if chunk.nbytes <= MOST_KEPT_BYTES:
                    self._chunks[part, group, name] = chunk
        return [*found.values()]


def _in_order(pieces: Sequence[tuple[Any, Any]], count: int) -> Any:
    """One array of so many values, of pieces that have the values at some places."""
    own = np.concatenate([it for it, _ in pieces])
    order = np.full(count, len(own))  # the place of a null
    order[own] = np.arange(len(own))
    values = [it for _, it in pieces]
    return pa.concat_arrays([*values, pa.nulls(1, values[0].type)]).take(rows.numbers(order))


def _size_of(chunk: Any) -> int:
    size: int = chunk.nbytes
    return size


class _Bounds(StoredBounds):
    """The statistics of some files of one transaction."""

    def __init__(
        self, statistics: PartStatistics, columns: Sequence[str], parts: Sequence[int], places: Sequence[int]
    ) -> None:
        self._statistics, self._columns, self._parts, self._places = statistics, columns, parts, places

    def columns(self) -> Collection[str]:
        return self._columns

    def bounds(self, lower: Collection[str] | None = None) -> dict[str, ColumnBounds]:
        wanted = {column for column in self._columns if lower is None or column.lower() in lower}
        try:
            found = self._statistics.facts(wanted.__contains__, self._parts, self._places)
        except DamagedPart as error:
            raise ValueError(str(error)) from None
        nothing: BoundsByFact = dict.fromkeys(rows.FACTS, [None] * len(self._places))
        each = {column: found.get(column, nothing) for column in self._columns if column in wanted}
        return {column: ColumnBounds(min=it["min"], max=it["max"], nulls=it["nulls"]) for column, it in each.items()}

    def select(self, kept: Sequence[int]) -> StoredBounds:
        return _Bounds(self._statistics, self._columns, [self._parts[i] for i in kept], [self._places[i] for i in kept])
