"""The transactions that a root covers, read from its parts when they are first needed."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import timedelta
from functools import cached_property
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.log.collector import collector_paused
from dbio_commit.log.parts import rows
from dbio_commit.log.parts.bounds import PartStatistics
from dbio_commit.log.parts.parquet import release
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.log.parts.slices import SlicedNews
from dbio_commit.log.parts.windows import FileRows
from dbio_commit.protocol import names
from dbio_commit.protocol.brief import BriefInfo, brief_marker
from dbio_commit.protocol.checkpoint import CommitsInParts
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.footprint import commits_bytes
from dbio_commit.protocol.markers.bodies import decode_as
from dbio_commit.protocol.markers.commit import CommitInfo, check_marker
from dbio_commit.protocol.parts import Part
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.subtrees import Subtrees

Remember = Callable[[str, Callable[[], Any], Callable[[Any], int]], Any]
"""A cache. Takes a name, a function that reads the value, and one for its size in bytes. Returns the value."""


class _Keys(dict[str, rows.Key]):
    """Places of transactions. Raises CheckpointLostError for a transaction that no part with commits has."""

    def __init__(self, known: Mapping[str, rows.Key], reader: PartReader) -> None:
        super().__init__(known)
        self._reader = reader

    def __missing__(self, tid: str) -> rows.Key:
        raise self._reader.unreadable(_unknown(tid))


def _unknown(tid: str) -> ValueError:
    return ValueError(f"there are files of transaction {tid}, which the parts do not have")


class StoredCommits(CommitsInParts):
    """The transactions that a root covers, read from its parts when they are first needed."""

    def __init__(self, reader: PartReader, parts: Sequence[Part], remember: Remember | None = None) -> None:
        """`remember` caches what is read, for other readers of the same root, in bounded memory."""
        self.reader, self._parts = reader, parts
        self._remember = remember or (lambda what, read, bytes: read())

    @cached_property
    def table(self) -> pa.Table:
        """The rows of the transactions, in their order."""
        found: pa.Table = self._remember("rows", self._read_table, lambda table: table.nbytes)
        return found

    def _read_table(self) -> pa.Table:
        parts = sorted((part for part in self._parts if part.kind == "commits"), key=lambda part: part.since)
        tables = self.reader.tables(parts)  # in the order of their rows, most often
        found = rows.latest_commits(pa.concat_tables([rows.empty(rows.COMMITS), *tables]), keep_forgotten=False)
        release()
        return found

    @cached_property
    def tids(self) -> Set[str]:
        return frozenset(rows.listed(self.table["tid"]))

    @cached_property
    def keys(self) -> Mapping[str, rows.Key]:
        """The place of each transaction."""
        at = rows.listed(self.table["at"].cast(pa.int64()))
        each = zip(rows.listed(self.table["tid"]), at, rows.listed(self.table["rank"]), strict=True)
        return _Keys({tid: rows.Key(at, rank) for tid, at, rank in each}, self.reader)

    @cached_property
    def firsts(self) -> Mapping[str, int | None]:
        """The number of the checkpoint that covered each transaction first; None if that is not known."""
        return dict(zip(rows.listed(self.table["tid"]), rows.listed(self.table["first"]), strict=True))

    @cached_property
    def files(self) -> FileRows:
        """The rows of files."""
        return FileRows(self.reader, [part for part in self._parts if part.kind == "files"])

    @cached_property
    def statistics(self) -> PartStatistics:
        """The statistics of the rows of files."""
        return PartStatistics(self.reader, self.files.parts)

    def outlines(self, removed: Mapping[str, Collection[str]]) -> Sequence[Decided]:
        found = self._outlines
        return [
            it._replace(
                marker=replace(
                    it.marker, added=sorted(removed[it.tid]), dbio_commit=without_files(it.marker.dbio_commit)
                )
            )
            if it.tid in removed
            else it
            for it in found
        ]

    def in_brief(self, removed: Mapping[str, Collection[str]]) -> list[Decided]:
        """As `outlines`, with no more of their markers than decides their order."""
        modified = rows.listed(self.table["modified"].cast(pa.int64()))
        told = zip(rows.listed(self.table["tid"]), modified, rows.listed(self.table["info"]), strict=True)
        try:
            return [
                Decided(
                    rows.EPOCH + timedelta(microseconds=at),
                    tid,
                    brief_marker(
                        None if info is None else decode_as(BriefInfo, info.encode()),
                        added=sorted(removed.get(tid, ())),
                        removed=[],
                    ),
                    place=place,
                )
                for place, (tid, at, info) in enumerate(told)
            ]
        except ValueError as error:
            raise self.reader.unreadable(error) from None

    def outlines_of(self, tids: Collection[str]) -> list[Decided]:
        """The transactions with these tids, without their paths. No other is decoded."""
        some = self.table.filter(pc.is_in(self.table["tid"], value_set=rows.texts(tids)))
        return self._decode(self._rows_of(some), rows.together([]))

    @cached_property
    def _outlines(self) -> Sequence[Decided]:
        return self._decode(self._rows, rows.together([]))

    @cached_property
    def _rows(self) -> Sequence[rows.CommitRow]:
        """The rows of the transactions. They are decoded once, since each slice has most transactions."""
        return self._rows_of(self.table)

    def _rows_of(self, table: pa.Table) -> Sequence[rows.CommitRow]:
        try:
            with collector_paused():
                return rows.commit_rows(table)
        except (ValueError, CorruptMarkerError) as error:
            raise self.reader.unreadable(error) from None

    def _decode(self, commits: Iterable[rows.CommitRow], files: pa.Table) -> list[Decided]:
        """The transactions in these rows, with those of their paths that are in the rows of files.

        All other paths count as forgotten. Raises CheckpointLostError for rows that no writer makes.
        """
        try:
            with collector_paused():
                of = rows.slices(files)
                if strange := of.ranges.keys() - self.tids:
                    raise _unknown(min(strange))
                found = rows.decode_commits(commits, of, bounds=self.statistics.of)
                for commit in found:
                    check_marker(commit.marker, where=f"the part with {commit.tid}", scope=Scope.TABLE)
        except (ValueError, CorruptMarkerError) as error:
            raise self.reader.unreadable(error) from None
        return found

    def whole(self, tids: Collection[str]) -> list[Decided]:
        wanted = {tid: self.firsts[tid] or 0 for tid in tids if tid in self.tids}
        return self._decode([it for it in self._rows if it.tid in wanted], self.files.of_transactions(wanted))

    def change_files(self, tids: Collection[str]) -> Mapping[str, int]:
        recorded = {
            tid: 0
            for tid, it in zip(*map(rows.listed, (self.table["tid"], self.table["has_whole"])), strict=True)
            if it and tid in tids
        }
        for table in self.files.since(self.first_of(recorded)).tables() if recorded else ():
            changes = table.filter(pc.and_(pc.is_valid(table["added"]), pc.is_valid(table["removed"])))
            for tid in rows.listed(changes["tid"]):
                if tid in recorded:
                    recorded[tid] += 1
        return {tid: count for tid, count in recorded.items() if count}

    def first_of(self, tids: Iterable[str]) -> int:
        """The lowest number of a checkpoint that may have been the first with one of these transactions."""
        return min((self.firsts[tid] or 0 for tid in tids), default=0)

    def slices(self, news: Sequence[Decided]) -> Iterator[list[Decided]]:
        sliced = SlicedNews(news)
        for window in self.files.windows():
            yield [*self.some(window.table), *sliced.within(window.low, window.high)]

    def below(self, news: Sequence[Decided], each: Iterable[Subtrees]) -> Iterator[list[Decided]]:
        sliced = SlicedNews(news)
        for within in each:
            yield [*self._some_below(within), *sliced.inside(within.__contains__)]

    def _some_below(self, within: Subtrees) -> list[Decided]:
        found = self.some(rows.together(self.files.below(within)))
        release()
        return found

    def weigh(self, tops: Sequence[str]) -> list[float]:
        return self.files.weigh(tops)

    def among(self, news: Sequence[Decided], paths: Collection[str], *, hides: bool) -> list[Decided]:
        stored = set(paths)
        if not hides:  # then the parts have no path that the news add under the tid in its name
            stored.difference_update(path for it in news for path in it.marker.added if names.is_of(path, it.tid))
        tables = (rows.of_paths(table, stored) for table in self.files.of_paths(stored)) if stored else ()
        files = rows.together(tables)
        return [*self.some(files), *SlicedNews(news).among(paths)]

    @cached_property
    def columns(self) -> Mapping[str, Collection[str]]:
        return dict(zip(rows.listed(self.table["tid"]), rows.listed(self.table["columns"]), strict=True))

    def named(self, files: pa.Table) -> list[Decided]:
        """The transactions of these rows of files, with those of their paths that are in the rows."""
        tids = {*rows.listed(rows.dictionary(files["tid"]).unique())}
        return self._decode([it for it in self._rows if it.tid in tids], files)

    def some(self, files: pa.Table) -> list[Decided]:
        """All transactions, with those of their paths that are in these rows of files."""
        found = [*self._outlines]
        for commit in self.named(files):
            at = self._at[commit.tid]
            found[at] = commit._replace(place=found[at].place)
        return found

    @cached_property
    def _at(self) -> Mapping[str, int]:
        """The place of each transaction among the outlines."""
        return {it.tid: at for at, it in enumerate(self._outlines)}

    @cached_property
    def all(self) -> tuple[Decided, ...]:
        """The transactions, oldest first."""
        found: tuple[Decided, ...] = self._remember("commits", self._read_all, commits_bytes)
        return found

    def _read_all(self) -> tuple[Decided, ...]:
        tables = self.reader.tables(self.files.parts)
        located = [rows.located(table, number) for number, table in enumerate(tables)]
        return tuple(self._decode(self._rows, rows.together(located)))

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


def without_files(info: CommitInfo | None) -> CommitInfo | None:
    """`dbio_commit` of a marker, without what it records of each file."""
    return replace(info, files=None) if info else None
