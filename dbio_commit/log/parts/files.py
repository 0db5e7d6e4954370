"""Finds the live files of a table with parts: reads row groups that may have some, and finds their live rows.

Rows are read on demand, one range of keys after the other, so that a table of any size takes the same memory. The
*news* are the transactions that the root does not cover.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.data.conditions.arrays import as_numpy
from dbio_commit.log.listing import with_sizes
from dbio_commit.log.parts import rows
from dbio_commit.log.parts.bounds import BoundsByFact
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.parts.counting import Counting, with_nulls
from dbio_commit.log.parts.parquet import DamagedPart
from dbio_commit.log.parts.time_travel import Later, Past, Since
from dbio_commit.log.table_state import check_partitions
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import unpack_files
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.references import resolve
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import (
    UNKNOWN_SIZE,
    Added,
    CountsByDirectory,
    DataFile,
    FilesInParts,
    LiveFiles,
    MayMatch,
    MayMatchEach,
    live_files,
)
from dbio_commit.store import Store

CHECKED_AT_ONCE = 16_384
"""How many paths are checked as one text. Several copies of the text are in memory meanwhile."""


class PathsByDirectory(Collection[str]):
    """A set of paths with an index by directory, since each slice asks for the paths in a few directories."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = paths if isinstance(paths, set | frozenset) else {*paths}

    @cached_property
    def _each(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for path in self._paths:
            found.setdefault(names.split(path)[0], []).append(path)
        return found

    def inside(self, directories: Iterable[str]) -> list[str]:
        """The paths in these directories, and not below them."""
        return [path for directory in directories for path in self._each.get(directory, ())]

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class PartFiles(FilesInParts):
    """The live files, from the parts of a root and from the transactions that it does not cover (`news`)."""

    def __init__(
        self, store: Store, root: Checkpoint, news: Sequence[Decided], layout: Layout, *, past: Past | None = None
    ) -> None:
        """With `past`, the files are those of an earlier state, and `news` has only transactions that counted then."""
        assert root.state
        self._store, self._root, self._layout, self._past = store, root, layout, past
        self._state = root.state
        self._absent = frozenset(root.state.absent) if past is None else past.absent
        assert isinstance(root.commits, StoredCommits)
        self._commits, self._rows, self._statistics = root.commits, root.commits.files, root.commits.statistics
        self._news = resolve(news)
        self._removed = {path for commit in self._news for path in commit.marker.removed}
        self._removed_tids = {tid for commit in self._news for tid in commit.marker.removed_tids}

    # --- as a sequence --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[DataFile]:
        for table in self._live():
            yield from self._files(table)
        yield from self._new

    def __len__(self) -> int:
        return self._left.files + len(self._new)

    @property
    def size(self) -> int:
        return self._left.bytes + sum(max(file.size, 0) for file in self._new)

    @property
    def unknown(self) -> int:
        return self._left.unknown + len(self._new.of_unknown_size())

    @property
    def hides(self) -> bool:
        """Whether a path is removed that no transaction adds, by what is known without a read of all parts."""
        return self._state.hides or self._lost.hides

    @overload
    def __getitem__(self, index: int) -> DataFile: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[DataFile, ...]: ...
    def __getitem__(self, index: int | slice) -> DataFile | tuple[DataFile, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = index if index >= 0 else len(self) + index
        found = next(islice(self, place, None), None) if place >= 0 else None
        if found is None:
            raise IndexError(index)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return LiveFiles, (self.whole()._added,)

    # --- some of them ---------------------------------------------------------------------------------------------

    def whole(self) -> LiveFiles:
        return _collected(chain(*map(self._files, self._live(None)), self._new))

    def arrow(self) -> Iterator[pa.Table]:
        for table in self._live():
            yield self._checked(table).select(["directory", "name", "size"])
        for start in range(0, len(self._new), CHECKED_AT_ONCE):
            some = list(islice(self._new, start, start + CHECKED_AT_ONCE))
            directories, listed = zip(*(names.split(file.path) for file in some), strict=True)
            columns = rows.texts(directories).dictionary_encode(), rows.texts(listed)
            yield pa.table([*columns, rows.numbers(file.size for file in some)], names=["directory", "name", "size"])

    def choose(
        self,
        may: Callable[[Partition], bool],
        columns: Collection[str],
        holds: MayMatch | None,
        in_each: MayMatchEach | None = None,
    ) -> LiveFiles:
        columns = {*columns} - {column.lower() for column in self._layout}
        holds = holds if columns else None  # `may` decides by partition columns
        chosen: list[DataFile] = []
        for table in self._live(self._rows.tables(lambda text: may(names.parse_partition(text)))):
            if holds and in_each:
                table = self._hopeful(table, columns, in_each)
            files = self._files(table)
            if holds:
                told = zip(files, self._bounds(table, columns), rows.listed(table["rows"]), strict=True)
                files = (file for file, own, count in told if holds(file.partition, own, count))
            chosen += files
        infos = {info.path: info for commit in self._news for info in unpack_files(commit.marker)} if holds else {}
        for file in self._new:
            info = infos.get(file.path)
            if may(file.partition) and (
                holds is None or info is None or holds(file.partition, info.statistics or {}, info.rows)
            ):
                chosen.append(file)
        return _collected(chosen)

    def counts(self, columns: Sequence[str]) -> CountsByDirectory | None:
        counting = Counting()
        try:
            for table in self._live():
                self._check_partitions(table)
                self._check(table)
                for some, nulls in with_nulls(self._statistics, table, columns):
                    if not counting.add(some["directory"], [some["rows"], *nulls]):
                        return None
        except DamagedPart:
            return None
        infos = {info.path: info for commit in self._news for info in unpack_files(commit.marker)}
        return counting.found if counting.add_new(self.new, infos, columns) else None

    def find(self, paths: Collection[str]) -> Mapping[str, int | None]:
        found: dict[str, int | None] = {}
        if stored := {*paths} - self._only_new:
            for table in self._live(self._rows.of_paths(stored)):
                found |= {row["path"]: row["rows"] for row in _dicts(table, stored)}
        counts = {info.path: info.rows for commit in self._news for info in unpack_files(commit.marker)}
        return found | {file.path: counts.get(file.path) for file in self._new if file.path in paths}

    # --- rows -----------------------------------------------------------------------------------------------------

    @cached_property
    def _new(self) -> LiveFiles:
        """The live files that the news add. Raises CorruptMarkerError for a file outside of all partitions."""
        check_partitions(self._store, self.new, self._layout)
        return with_sizes(self._store, self.new)

    @cached_property
    def new(self) -> LiveFiles:
        """As `_new`, with recorded sizes and without a check of partitions."""
        live = live_files(self._news)
        absent = self._absent
        is_odd = any(names.parse_data_file(names.split(file.path)[1]) != file.tid for file in live)
        if not absent and not self._state.hides and not is_odd:
            return live
        hidden = self._hidden_among({file.path for file in live})
        return live.select(lambda it: [path for path in it.paths if it.tid not in absent and path not in hidden])

    @cached_property
    def _left(self) -> "_Totals":
        """The number and size of the live files in parts."""
        if self._past is None and not self._removed_tids:
            lost, state = self._lost, self._state
            if state.files < lost.files:
                raise self._commits.reader.unreadable(ValueError("more files are removed than the root counts"))
            return _Totals(state.files - lost.files, state.bytes - lost.bytes, state.unknown)
        found = _Totals()
        for table in self._live():
            found = found.plus(table)
        return found if self._past else found._replace(unknown=self._state.unknown)

    @cached_property
    def _lost(self) -> "_Lost":
        """The number and size of the live files of the parts that the news remove or replace."""
        files = bytes = 0
        earlier = self._removed.difference(path for commit in self._news for path in commit.marker.added)
        for table in map(self._counted, self._rows.of_paths(self._superseded)) if self._superseded else ():
            for row in _dicts(_live_rows(table, self._commit_keys), self._superseded):
                files += 1
                bytes += row["size"] or 0
                earlier.discard(row["path"])
        return _Lost(files, bytes, hides=bool(earlier))

    @cached_property
    def _superseded(self) -> "PathsByDirectory":
        """The paths that the news remove or replace."""
        return PathsByDirectory(self._removed | self._replaced if self._replaced else self._removed)

    @cached_property
    def _replaced(self) -> set[str]:
        """Paths that the news add and the parts may have, too: they count once. A name with its writer's tid is new."""
        return {file.path for file in self.new} - self._only_new

    @cached_property
    def _only_new(self) -> set[str]:
        """Paths that the news add and the parts surely lack."""
        return {file.path for file in self.new if file.tid and names.is_of(file.path, file.tid)}

    def _hidden_among(self, paths: Collection[str]) -> set[str]:
        """The paths among these that transactions in the parts remove."""
        found: set[str] = set()
        wanted = PathsByDirectory(paths)
        for table in map(self._counted, self._rows.of_paths(wanted)):
            found.update(row["path"] for row in _dicts(table.filter(pc.is_valid(table["removed"])), wanted))
        return found

    def _commit_keys(self) -> Mapping[str, rows.Key]:
        return self._commits.keys if self._past is None else self._past.keys

    def _counted(self, table: pa.Table) -> pa.Table:
        return table if self._past is None else table.filter(rows.is_among(table["tid"], self._past.keys))

    def _live(self, tables: Iterable[pa.Table] | None = None) -> Iterator[pa.Table]:
        """The rows of live files in these tables, which have all rows of each path; by default in all."""
        for table in self._rows.tables() if tables is None else tables:
            live = self._live_among(self._counted(table))
            if live.num_rows:
                yield live

    def _live_among(self, table: pa.Table) -> pa.Table:
        """The rows of live files among rows that count."""
        live = _live_rows(table, self._commit_keys)
        if self._superseded:
            live = _without(live, self._superseded)
        if self._removed_tids:
            live = live.filter(pc.invert(rows.is_among(live["tid"], self._removed_tids)))
        return live

    # --- in the past ----------------------------------------------------------------------------------------------

    def since(self, later: Later) -> Since:
        """Which of these files are gone. Reads all rows if later transactions in parts removed some.

        Only files that later transactions removed are looked up on the store.
        """
        assert self._past
        keys, here = self._past.keys, dict.fromkeys(later.removals, 0)
        directories = None if here or later.removed_tids else {names.split(path)[0] for path in later.removed}
        if directories is not None and not directories:
            return Since()
        new = {file.path: (keys[str(file.tid)], place) for place, file in enumerate(self._new)}
        doubtful = {
            it.path: new[it.path] for it in self._new if it.path in later.removed or it.tid in later.removed_tids
        }
        gone, later_removed = _Gone(self._store), PathsByDirectory(later.removed)
        for table in self._rows.tables(None if directories is None else directories.__contains__):
            removals = table.filter(pc.and_(pc.is_valid(table["removed"]), rows.is_among(table["tid"], here)))
            for tid in rows.listed(removals["tid"]):
                here[tid] += 1
            removed = {*_paths(removals)}
            doubtful |= {path: new[path] for path in removed & new.keys()}
            live = self._live_among(self._counted(table))
            _, some = _with_names(live, removed.union(later_removed.inside(_directories(live))))
            named = live.filter(rows.is_among(live["tid"], later.removed_tids))
            for path, tid, place in _places_of(some):
                if path in removed or path in later.removed:
                    doubtful[path] = keys[tid], place
            doubtful |= {path: (keys[tid], place) for path, tid, place in _places_of(named)}
            gone.add(doubtful)
            doubtful = {}
        gone.add(doubtful)
        return Since(here != later.removals, gone.count, gone.first)

    def live_rows(self) -> Iterator[pa.Table]:
        """The rows of live files in parts, table by table."""
        return self._live()

    # --- files ----------------------------------------------------------------------------------------------------

    def as_recorded(self, table: pa.Table) -> Iterator[DataFile]:
        """The files in these rows, with recorded sizes and without a check of partitions."""
        directory = rows.dictionary(table["directory"])
        partitions = [*map(names.parse_partition, rows.listed(directory.dictionary))]
        paths, tids = rows.listed(rows.paths_of(table)), rows.listed(table["tid"])
        sizes = [UNKNOWN_SIZE if size is None else size for size in rows.listed(table["size"])]
        self._check(table)
        return map(DataFile, paths, sizes, tids, map(partitions.__getitem__, rows.listed(directory.indices)))

    def _files(self, table: pa.Table) -> Iterator[DataFile]:
        """The files in these rows."""
        table = self._checked(table)
        directory, tid = rows.dictionary(table["directory"]), rows.dictionary(table["tid"])
        texts, tids = rows.listed(directory.dictionary), rows.listed(tid.dictionary)
        partitions = {code: names.parse_partition(texts[code]) for code in rows.listed(pc.unique(directory.indices))}
        for start in range(0, table.num_rows, CHECKED_AT_ONCE):
            columns = (it.slice(start, CHECKED_AT_ONCE) for it in (table["size"], directory.indices, tid.indices))
            sizes, codes, of = map(rows.listed, columns)
            paths = rows.listed(rows.paths_of(table.slice(start, CHECKED_AT_ONCE)))
            yield from map(DataFile, paths, sizes, map(tids.__getitem__, of), map(partitions.__getitem__, codes))

    def _checked(self, table: pa.Table) -> pa.Table:
        """The rows, with unknown sizes filled in. Raises CorruptMarkerError for a path that readers may not read."""
        self._check_partitions(table)
        self._check(table)
        sizes = table["size"]
        if sizes.null_count:
            unknown = rows.listed(rows.paths_of(table.filter(pc.is_null(sizes))))
            found = iter([entry.size if entry else UNKNOWN_SIZE for entry in self._store.stat_many(unknown)])
            sizes = rows.numbers(next(found) if size is None else size for size in rows.listed(sizes))
        return table.set_column(table.column_names.index("size"), "size", sizes)

    def _check_partitions(self, table: pa.Table) -> None:
        directory = rows.dictionary(table["directory"])
        texts = rows.listed(directory.dictionary)
        for code in rows.listed(pc.unique(directory.indices)):
            if tuple(names.parse_partition(texts[code])) != self._layout:
                raise self._misplaced(texts[code])

    def _check(self, table: pa.Table) -> None:
        """Raises CorruptMarkerError for a path that readers may not read as data."""
        directory, name = rows.dictionary(table["directory"]), rows.joined(table["name"])
        length_of: Any = pc.binary_length
        if not table.num_rows or names.are_surely_visible(
            rows.listed(directory.dictionary.take(pc.unique(directory.indices))),
            rows.body_of(name),
            letters=rows.listed(pc.unique(pc.utf8_slice_codeunits(name, 0, 1))),
            longest=pc.max(length_of(name)).as_py(),
        ):
            return
        where = self._store.url_of(names.checkpoint(self._root.number))
        for start in range(0, table.num_rows, CHECKED_AT_ONCE):
            names.check_visible(rows.listed(rows.paths_of(table.slice(start, CHECKED_AT_ONCE))), where=where)

    def _misplaced(self, directory: str) -> CorruptMarkerError:
        return CorruptMarkerError(
            f"{self._store.url_of(names.checkpoint(self._root.number))} has live files in {directory!r:.200}, and the "
            f"table is partitioned by {list(self._layout)}; inspect the commits that added them with `dbio log`"
        )

    def _hopeful(self, table: pa.Table, columns: Collection[str], in_each: MayMatchEach) -> pa.Table:
        """The rows that `in_each` does not rule out; all if the statistics are damaged."""
        self._check_partitions(table)
        self._check(table)
        with suppress(DamagedPart):
            may = in_each(self._statistics.ends(columns, *_places_in(table)), table.num_rows)
            return table if may.all() else table.take(rows.numbers(np.flatnonzero(may)))
        return table

    def _bounds(self, table: pa.Table, columns: Collection[str]) -> Iterator[Mapping[str, Bounds]]:
        """The statistics of these columns, in lower case, for each row; empty if they are damaged."""
        facts: Mapping[str, BoundsByFact] = {}
        with suppress(DamagedPart):
            facts = self._statistics.facts(lambda column: column.lower() in columns, *_places_in(table))
        for i in range(table.num_rows):
            yield {column: Bounds(it["min"][i], it["max"][i], it["nulls"][i]) for column, it in facts.items()}


def _places_in(table: pa.Table) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
    """The part and the place of each row."""
    return as_numpy(rows.joined(table["part"])), as_numpy(rows.joined(table["place"]))


class _Totals(NamedTuple):
    """The number and size of some files."""

    files: int = 0
    bytes: int = 0
    """Without files of unknown size."""
    unknown: int = 0
    """How many files have no known size."""

    def plus(self, table: pa.Table) -> "_Totals":
        """These numbers, with the files in these rows added."""
        size = table["size"]
        return _Totals(
            self.files + table.num_rows, self.bytes + (pc.sum(size).as_py() or 0), self.unknown + size.null_count
        )


class _Lost(NamedTuple):
    """What the news remove from the parts."""

    files: int
    """How many live files of the parts."""
    bytes: int
    """Their size, without files of unknown size."""
    hides: bool
    """Whether the news remove a path that was not live before, and that they do not add."""


class _Gone:
    """Counts files that do not exist any more."""

    def __init__(self, store: Store) -> None:
        self._store, self.count = store, 0
        self._first: tuple[tuple[rows.Key, int], str] | None = None

    def add(self, places: Mapping[str, tuple[rows.Key, int]]) -> None:
        """Looks up these files on the store. They are given with their places in the order of the state."""
        paths = [*places]
        for path, entry in zip(paths, self._store.stat_many(paths), strict=True):
            if entry is None:
                self.count += 1
                self._first = min(filter(None, (self._first, (places[path], path))))

    @property
    def first(self) -> str | None:
        return self._first[1] if self._first else None


def _collected(files: Any) -> LiveFiles:
    """The files, with those of one transaction together."""
    by_tid: dict[str | None, tuple[list[str], list[int]]] = {}
    partitions: dict[str, Partition] = {}
    for path, size, tid, partition in files:
        paths, sizes = by_tid.setdefault(tid, ([], []))
        paths.append(path)
        sizes.append(size)
        partitions.setdefault(path.rpartition("/")[0], partition)
    return LiveFiles([Added(tid, *it) for tid, it in by_tid.items()], partitions)


def _live_rows(table: pa.Table, keys: Callable[[], Mapping[str, rows.Key]]) -> pa.Table:
    """The rows that add a live path. The table has all rows of each path."""
    removed = table.filter(pc.is_valid(table["removed"]))
    live = table.filter(pc.is_valid(table["added"]))
    if removed.num_rows:
        live = _without(live, set(_paths(removed)))
    odd = live.filter(pc.is_valid(live["writer"]))  # a path with the tid of the transaction that adds it is added once
    if odd.num_rows:
        live = _each_once(live, set(_paths(odd)), keys)
    return live


def _each_once(live: pa.Table, paths: Collection[str], keys: Callable[[], Mapping[str, rows.Key]]) -> pa.Table:
    """The rows, with only the latest transaction's row for each of these paths."""
    latest: dict[str, tuple[rows.Key, int]] = {}
    several: list[int] = []
    places, some = _with_names(live, paths)
    for place, path, tid in zip(places, _paths(some), rows.listed(some["tid"]), strict=True):
        if path in paths:
            several.append(place)
            latest[path] = max(latest.get(path, (rows.Key(-(1 << 62), 0), -1)), (keys()[tid], place))
    lost = set(several) - {place for _, place in latest.values()}
    return live.filter(_all_but(live.num_rows, lost)) if lost else live


def _without(table: pa.Table, paths: Collection[str]) -> pa.Table:
    """The rows without those of these paths."""
    places, some = _with_names(table, paths)
    lost = {place for place, path in zip(places, _paths(some), strict=True) if path in paths}
    return table.filter(_all_but(table.num_rows, lost)) if lost else table


def _with_names(table: pa.Table, paths: Collection[str]) -> tuple[list[int], pa.Table]:
    """The numbers of the rows with the file name of one of these paths, and these rows."""
    if isinstance(paths, PathsByDirectory):
        paths = paths.inside(_directories(table))
    wanted = rows.texts({names.split(path)[1] for path in paths})
    places = rows.places_in(pc.is_in(table["name"], value_set=wanted))
    return rows.listed(places), table.take(places)


def _directories(table: pa.Table) -> list[str]:
    return rows.listed(rows.dictionary(table["directory"]).unique())


def _paths(table: pa.Table) -> list[str]:
    return rows.listed(rows.paths_of(table))


def _places_of(table: pa.Table) -> Iterator[tuple[str, str, int]]:
    """The path, the transaction and the place in its marker, of rows that add a path."""
    return zip(_paths(table), rows.listed(table["tid"]), rows.listed(table["added"]), strict=True)


def _dicts(table: pa.Table, paths: Collection[str]) -> Iterator[dict[str, Any]]:
    """The path, size and rows of the rows of these paths."""
    _, some = _with_names(table, paths)
    for path, size, count in zip(_paths(some), rows.listed(some["size"]), rows.listed(some["rows"]), strict=True):
        if path in paths:
            yield {"path": path, "size": size, "rows": count}


def _all_but(count: int, lost: Collection[int]) -> Any:
    mask = bytearray(b"\x01") * count
    for place in lost:
        mask[place] = 0
    return pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(mask)]).cast(pa.bool_())
