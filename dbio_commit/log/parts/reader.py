"""Reads parts from the store, and makes of them the transactions that a checkpoint covers."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import cached_property, partial
from typing import Any, overload

import pyarrow as pa
from cachetools import LRUCache
from msgspec.structs import replace

from dbio_commit.base.errors import CheckpointLostError, CorruptMarkerError, ObjectNotFoundError
from dbio_commit.base.logs import get_logger
from dbio_commit.log.collector import collector_paused
from dbio_commit.log.parts import rows
from dbio_commit.log.parts.parquet import DamagedPart, OpenStatistics, decode_groups
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import BRING_BACK, CommitsInParts
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.footprint import commits_bytes
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.commit import CommitInfo, check_marker
from dbio_commit.protocol.markers.files import ColumnBounds, StoredBounds
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.parts import Part
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

_log = get_logger(__name__)

_SCHEMAS = {"files": rows.FILES, "commits": rows.COMMITS}

MOST_BYTES_AT_ONCE = 64 * 1024**2
"""The most bytes of neighbouring row groups that one request fetches."""


class PartReader:
    """Reads the parts of the root with this number."""

    def __init__(self, store: Store, number: int, *, newest: int | None = None) -> None:
        """`newest` is the highest number of a checkpoint that was listed when the root was chosen. A checkpoint with a
        higher number than the root's may be another table's."""
        self._store, self._number = store, number
        self._newest = number if newest is None else newest

    def table(self, part: Part, groups: Collection[int] | None = None) -> pa.Table:
        """The rows of a part, or of some of its row groups.

        Raises CheckpointLostError if the part is gone or damaged, ObjectNotFoundError if there is a newer root.
        """
        wanted = range(len(part.groups)) if groups is None else sorted(groups)
        try:
            footer, bodies = self._fetch(part, wanted)
            return decode_groups(part, footer, bodies, _SCHEMAS[part.kind])
        except DamagedPart as error:
            raise self._lost(part, f"is damaged: {error}") from None
        except ObjectNotFoundError:
            raise self._absent(part) from None

    def _fetch(self, part: Part, wanted: Sequence[int]) -> tuple[bytes, dict[int, memoryview]]:
        end = part.bytes - part.footer
        bodies: dict[int, memoryview] = {}
        if len(wanted) == len(part.groups) and part.bytes <= MOST_BYTES_AT_ONCE:
            whole = self._store.get(part.name, limit_bytes=MOST_BYTES_AT_ONCE)
            view = memoryview(whole)
            bodies = {i: view[part.groups[i].at :][: part.groups[i].bytes] for i in wanted}
            return whole[end:], bodies
        for first, last in _runs(part, wanted):
            start = part.groups[first].at
            stop = part.groups[last].at + part.groups[last].bytes
            view = memoryview(self._store.get_range(part.name, start, stop - start))
            for i in range(first, last + 1):
                group = part.groups[i]
                bodies[i] = view[group.at - start :][: group.bytes]
        return self._store.get_range(part.name, end, part.footer), bodies

    def statistics(self, part: Part) -> OpenStatistics | None:
        """The statistics of a part; None if it has none, or if they are lost. They are hints: a WARNING says so."""
        try:
            return self.open_statistics(part)
        except (CheckpointLostError, ObjectNotFoundError) as error:
            _log.warning("no file of %s is skipped by its values: %s", part.name, error)
            return None

    def open_statistics(self, part: Part) -> OpenStatistics | None:
        """The statistics of a part; None if it has none. Raises as `table`."""
        told = part.statistics
        if told is None:
            return None
        try:
            footer = self._store.get_range(told.name, told.bytes - told.footer, told.footer)
            return OpenStatistics(told, footer, partial(self._store.get_range, told.name))
        except DamagedPart as error:
            raise self._lost(part, f"has damaged statistics: {error}") from None
        except ObjectNotFoundError:
            raise self._absent(part) from None

    def tables(self, parts: Sequence[Part]) -> list[pa.Table]:
        """The rows of parts, part by part."""
        return list(self._store.in_parallel(self.table, parts))

    def _absent(self, part: Part) -> Exception:
        newest = parse_log(self._store.list_log(Kind.CHECKPOINT)).last_checkpoint
        if newest > self._newest:
            return ObjectNotFoundError(
                f"{self._store.url_of(part.name)} does not exist any more: it is a part of "
                f"{names.checkpoint(self._number)}, and there is a newer checkpoint, {newest}; take a new snapshot"
            )
        return self._lost(part, "does not exist")

    def _lost(self, part: Part, what: str) -> CheckpointLostError:
        return CheckpointLostError(
            f"{self._store.url_of(part.name)}, a part of {names.checkpoint(self._number)}, {what}; {BRING_BACK}"
        )

    def unreadable(self, error: Exception) -> CheckpointLostError:
        """The error for rows that no writer makes."""
        return CheckpointLostError(
            f"the parts of {self._store.url_of(names.checkpoint(self._number))} contradict each other: {error}; "
            f"{BRING_BACK}"
        )


def _runs(part: Part, wanted: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and last of neighbouring row groups that are fetched together."""
    first = last = wanted[0]
    for i in wanted[1:]:
        size = part.groups[i].at + part.groups[i].bytes - part.groups[first].at
        if i != last + 1 or size > MOST_BYTES_AT_ONCE:
            yield first, last
            first = i
        last = i
    yield first, last


Remember = Callable[[str, Callable[[], Any], Callable[[Any], int]], Any]
"""Returns what the function reads, now or earlier. Takes a name for it, the function, and its size in memory."""


class StoredCommits(CommitsInParts):
    """The transactions that a root covers, read from its parts when they are first needed."""

    def __init__(self, reader: PartReader, parts: Sequence[Part], remember: Remember | None = None) -> None:
        """`remember` keeps what is read for other readers of the same root, in bounded memory."""
        self.reader, self._parts = reader, parts
        self._remember = remember or (lambda what, read, bytes: read())

    @cached_property
    def table(self) -> pa.Table:
        """Their rows, in their order."""
        found: pa.Table = self._remember("rows", self._read_table, lambda table: table.nbytes)
        return found

    def _read_table(self) -> pa.Table:
        tables = self.reader.tables([part for part in self._parts if part.kind == "commits"])
        return rows.latest_commits(pa.concat_tables([rows.empty(rows.COMMITS), *tables]), keep_forgotten=False)

    @cached_property
    def tids(self) -> Set[str]:
        return frozenset(rows.listed(self.table["tid"]))

    @cached_property
    def keys(self) -> dict[str, rows.Key]:
        """The place of each transaction."""
        at = rows.listed(self.table["at"].cast(pa.int64()))
        told = zip(rows.listed(self.table["tid"]), at, rows.listed(self.table["rank"]), strict=True)
        return {tid: rows.Key(at, rank) for tid, at, rank in told}

    def outlines(self, removed: Mapping[str, Collection[str]]) -> Sequence[Decided]:
        try:
            found = rows.decode_commits(self.table, rows.slices(rows.empty(rows.FILES)), bounds=_no_bounds)
        except (ValueError, CorruptMarkerError) as error:
            raise self.reader.unreadable(error) from None
        return [
            it._replace(marker=replace(it.marker, added=sorted(removed[it.tid]), dbio_commit=_without_files(it)))
            if it.tid in removed
            else it
            for it in found
        ]

    @cached_property
    def all(self) -> tuple[Decided, ...]:
        """The transactions, oldest first."""
        found: tuple[Decided, ...] = self._remember("commits", self._read_all, commits_bytes)
        return found

    def _read_all(self) -> tuple[Decided, ...]:
        reader = self.reader
        parts = [part for part in self._parts if part.kind == "files"]
        tables, known = reader.tables(parts), self.tids
        statistics = _Statistics(reader, parts)
        try:
            with collector_paused():
                of = rows.slices(pa.concat_tables([rows.empty(rows.FILES), *tables]))
                if strange := of.ranges.keys() - known:
                    raise ValueError(f"there are files of transaction {min(strange)}, which the parts do not have")
                found = rows.decode_commits(self.table, of, bounds=statistics.of)
                for commit in found:
                    check_marker(commit.marker, where=f"the part with {commit.tid}", scope=Scope.TABLE)
        except (ValueError, CorruptMarkerError) as error:
            raise reader.unreadable(error) from None
        return tuple(found)

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> Decided: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Decided]: ...
    def __getitem__(self, index: int | slice) -> Decided | Sequence[Decided]:
        return self.all[index]

    def __iter__(self) -> Iterator[Decided]:
        return iter(self.all)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self.all,)


def _without_files(commit: Decided) -> CommitInfo | None:
    info = commit.marker.dbio_commit
    return replace(info, files=None) if info else None


def _no_bounds(columns: Sequence[str], places: Sequence[int]) -> StoredBounds:
    raise ValueError("a transaction without files has no statistics")


MOST_COLUMNS = 24
"""How many columns of statistics stay in memory, with one number or text for each file."""


class _Statistics:
    """The statistics of all files in some parts, each column read once."""

    def __init__(self, reader: PartReader, parts: Sequence[Part]) -> None:
        self._reader, self._parts = reader, parts
        self._open: list[OpenStatistics | None] | None = None
        self._columns: LRUCache[str, Any] = LRUCache(MOST_COLUMNS)

    def of(self, columns: Sequence[str], places: Sequence[int]) -> StoredBounds:
        return _Bounds(self, columns, places)

    def facts(self, column: str, fact: str, places: Sequence[int]) -> list[Any]:
        """One fact of a column, for the rows at these places among those of all parts."""
        found: list[Any] = [None] * len(places)
        for kind in rows.KINDS:
            values = self._column(f"{fact}.{kind}.{column}")
            if values is not None:
                each = values.take(rows.numbers(places)).to_pylist()
                told = (None if it is None else int(it) for it in each) if kind == "big" else each
                found = [old if new is None else new for old, new in zip(found, told, strict=True)]
        return found

    def _column(self, name: str) -> Any:
        if self._open is None:
            self._open = [self._reader.statistics(part) for part in self._parts]
        if not any(it and name in it.columns for it in self._open):
            return None
        if name not in self._columns:
            chunks = [it.read([name])[name] if it and name in it.columns else None for it in self._open]
            kind = next(it.type for it in chunks if it is not None)
            arrays = [
                pa.chunked_array([pa.nulls(part.rows, kind)]) if it is None else it
                for it, part in zip(chunks, self._parts, strict=True)
            ]
            self._columns[name] = pa.chunked_array([chunk for it in arrays for chunk in it.chunks], kind)
        return self._columns[name]


class _Bounds(StoredBounds):
    """The statistics of some files of one transaction."""

    def __init__(self, all_: _Statistics, columns: Sequence[str], places: Sequence[int]) -> None:
        self._all, self._columns, self._places = all_, columns, places

    def columns(self) -> Collection[str]:
        return self._columns

    def bounds(self, lower: Collection[str] | None = None) -> dict[str, ColumnBounds]:
        wanted = [column for column in self._columns if lower is None or column.lower() in lower]
        try:
            return {
                column: ColumnBounds(
                    min=self._all.facts(column, "min", self._places),
                    max=self._all.facts(column, "max", self._places),
                    nulls=self._all.facts(column, "nulls", self._places),
                )
                for column in wanted
            }
        except DamagedPart as error:
            raise ValueError(str(error)) from None

    def select(self, kept: Sequence[int]) -> StoredBounds:
        return _Bounds(self._all, self._columns, [self._places[i] for i in kept])
