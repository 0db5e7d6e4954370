"""Reads the history of a large table for streams and change feeds: paths of some commits, and files in order of time.

At most about `PATHS_AT_ONCE` paths, or the paths of one commit, are in memory at once.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.log.lazy import Wholes
from dbio_commit.log.parts import rows
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.parts.files import PartFiles
from dbio_commit.log.parts.time_travel import Past
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import history, names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.files_in_order import FilesInOrder, Totals
from dbio_commit.protocol.history import AddedPath, HistoryInParts, PathInParts
from dbio_commit.protocol.state import UNKNOWN_SIZE, DataFile
from dbio_commit.store import Store


class StoredHistory(HistoryInParts):
    """Reads the history from the parts of a root."""

    def __init__(self, store: Store, snapshot: Snapshot, *, before: HistoryInParts | None = None) -> None:
        """`before` is an earlier reader. If it is of the same root, its results are used again."""
        self._store, self._snapshot, self._root = store, snapshot, snapshot.checkpoint
        assert isinstance(self._root.commits, StoredCommits)
        self._stored = self._root.commits
        self._totals: dict[str, Totals] = {}
        self._state: tuple[frozenset[str], FilesInOrder] | None = None
        self._wholes = Wholes(snapshot.transactions, snapshot.whole)
        if isinstance(before, StoredHistory) and before._is_of(self):
            self._totals, self._state = before._totals, before._state
            self._wholes.take_over(before._wholes)

    def _is_of(self, other: "StoredHistory") -> bool:
        one, another = self._snapshot, other._snapshot
        return (one.url, one.table_id, self._root.number) == (another.url, another.table_id, other._root.number)

    # --- paths ----------------------------------------------------------------------------------------------------

    @property
    def tids(self) -> Set[str]:
        return self._stored.tids

    def whole(self, tid: str) -> Decided:
        return self._wholes[tid]

    def is_at_hand(self, tid: str) -> bool:
        return tid in self._wholes

    def find(self, paths: Collection[str]) -> Mapping[str, PathInParts]:
        added: dict[str, dict[str, AddedPath]] = {}
        removed: dict[str, list[str]] = {}
        directories = {names.split(path)[0] for path in paths}
        for table in self._stored.files.tables(directories.__contains__):
            for row in _rows_of(table, paths):
                if row.added is not None:
                    size = UNKNOWN_SIZE if row.size is None else row.size
                    added.setdefault(row.path, {})[row.tid] = AddedPath(size, row.rows)
                if row.removed is not None:
                    removed.setdefault(row.path, []).append(row.tid)
        return {path: PathInParts(added.get(path, {}), removed.get(path, ())) for path in added.keys() | removed.keys()}

    def removed_among(self, paths: Collection[str]) -> Set[str]:
        if self._first_removal is None:
            return set()
        directories = {names.split(path)[0] for path in paths}
        found: set[str] = set()
        for table in self._stored.files.since(self._first_removal).tables(directories.__contains__):
            removals = table.filter(pc.is_valid(table["removed"]))
            found.update(row.path for row in _rows_of(removals, paths))
        return found

    @cached_property
    def _first_removal(self) -> int | None:
        """The lowest number of a checkpoint that may have been the first with a removal; None if there is none."""
        removers = [it.tid for it in self._stored.outlines({}) if it.forgotten.removed]
        return self._stored.first_of(removers) if removers else None

    @property
    def hides(self) -> bool:
        assert self._root.state
        return self._root.state.hides

    def totals(self, tids: Collection[str]) -> Totals:
        if missing := {tid for tid in tids if tid not in self._totals}:
            self._totals |= self._count(missing)
        found = Totals()
        for tid in tids:
            found = found.plus(self._totals[tid])
        return found

    def _count(self, tids: Set[str]) -> dict[str, Totals]:
        recorded = {it.tid for it in self._stored.outlines({}) if it.marker.is_recorded}
        count, size = dict.fromkeys(tids, 0), dict.fromkeys(tids, 0)
        for table in self._stored.files.since(self._stored.first_of(tids)).tables():
            some = table.filter(pc.and_(pc.is_valid(table["added"]), rows.is_among(table["tid"], tids)))
            both = rows.listed(pc.is_valid(some["removed"]))
            for tid, is_both, bytes in zip(rows.listed(some["tid"]), both, rows.listed(some["size"]), strict=True):
                if not (is_both and tid in recorded):  # else it is a change file
                    count[tid] += 1
                    size[tid] += bytes or 0
        return {tid: Totals(count[tid], size[tid]) for tid in tids}

    # --- states ---------------------------------------------------------------------------------------------------

    def state(self, had: Sequence[Decided]) -> FilesInOrder:
        tids = frozenset(commit.tid for commit in had)
        if self._state is None or self._state[0] != tids:
            own = [commit for commit in had if commit.tid not in self.tids]
            past = Past.of(had)
            files = PartFiles(self._store, self._root, own, self._snapshot.partition_columns, past=past)
            self._state = tids, _StateInOrder(files, past, {commit.tid for commit in own})
        return self._state[1]


class _StateInOrder(FilesInOrder):
    """The files of a state, commit by commit. Counts the files of each commit first, then reads some at a time."""

    def __init__(self, files: PartFiles, past: Past, own: Set[str]) -> None:
        self._files, self._past, self._own = files, past, own
        self._kept: tuple[range, list[DataFile]] = range(0), []
        """The places of the files that were read last, and these files."""

    @cached_property
    def _totals(self) -> Mapping[str, Totals]:
        """The number and size of each commit's live files, in the order of the commits."""
        count, size = dict.fromkeys(self._past.keys, 0), dict.fromkeys(self._past.keys, 0)
        for table in self._files.live_rows():
            for tid, bytes in zip(rows.listed(table["tid"]), rows.listed(table["size"]), strict=True):
                count[tid] += 1
                size[tid] += bytes or 0
        for file in self._files.new:
            count[str(file.tid)] += 1
            size[str(file.tid)] += max(file.size, 0)
        return {tid: Totals(count[tid], size[tid]) for tid in self._past.keys}

    @cached_property
    def _tids(self) -> Sequence[str]:
        return [*self._totals]

    @cached_property
    def _ends(self) -> Sequence[int]:
        """For each commit, the place after its last file."""
        return [*accumulate(it.files for it in self._totals.values())]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def some(self, start: int, stop: int | None = None) -> Iterator[DataFile]:
        stop = len(self) if stop is None else min(stop, len(self))
        while start < stop:
            if start not in self._kept[0]:
                self._kept = self._read(start)
            places, files = self._kept
            last = min(stop, places.stop)
            yield from files[start - places.start : last - places.start]
            start = last

    def bytes_from(self, start: int) -> int:
        first = bisect_right(self._ends, start)
        if first == len(self._ends):
            return 0
        begun = self._ends[first - 1] if first else 0
        rest = sum(self._totals[tid].bytes for tid in self._tids[first:])
        return rest - sum(max(file.size, 0) for file in self.some(begun, start))

    def _read(self, start: int) -> tuple[range, list[DataFile]]:
        """About `PATHS_AT_ONCE` files of whole commits, from the commit that has place `start`, and their places."""
        first = bisect_right(self._ends, start)
        begin = self._ends[first - 1] if first else 0
        last = max(bisect_right(self._ends, begin + history.PATHS_AT_ONCE), first + 1)
        wanted = {tid for tid in self._tids[first:last] if self._totals[tid].files}
        found: list[tuple[rows.Key, int, DataFile]] = []
        if wanted - self._own:
            for table in self._files.live_rows():
                some = table.filter(rows.is_among(table["tid"], wanted))
                places = rows.listed(some["added"])
                for place, file in zip(places, self._files.as_recorded(some), strict=True):
                    found.append((self._past.keys[str(file.tid)], place, file))
        for place, file in enumerate(self._files.new):
            if file.tid in wanted:
                found.append((self._past.keys[str(file.tid)], place, file))
        found.sort(key=lambda it: it[:2])
        return range(begin, self._ends[last - 1]), [file for _, _, file in found]


class _Row(NamedTuple):
    """Some columns of a row of files."""

    path: str
    tid: str
    added: int | None
    removed: int | None
    size: int | None
    rows: int | None


def _rows_of(table: pa.Table, paths: Collection[str]) -> Iterator[_Row]:
    """The rows of these paths."""
    wanted = rows.texts({names.split(path)[1] for path in paths})
    some = table.filter(pc.is_in(table["name"], value_set=wanted))
    columns = (rows.listed(some[name]) for name in _Row._fields[1:])
    return (row for row in map(_Row, rows.listed(rows.paths_of(some)), *columns) if row.path in paths)
