"""The live files of a table with parts: which row groups may have some, and which of their rows are live.

Rows are read range by range of their keys, so that a table of any size takes the same memory, and only if somebody
asks for them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple, overload

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.log.listing import with_sizes
from dbio_commit.log.parts import rows
from dbio_commit.log.parts.bounds import Facts
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.parts.parquet import DamagedPart
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import unpack_files
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.references import resolve
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import UNKNOWN_SIZE, Added, DataFile, FilesInParts, Holds, LiveFiles, live_files
from dbio_commit.store import Store

CHECKED_AT_ONCE = 16_384
"""How many paths are checked as one text, of which there are several copies meanwhile."""


class PartFiles(FilesInParts):
    """The live files by the parts of a root and by the transactions that it does not cover (`news`)."""

    def __init__(self, store: Store, root: Checkpoint, news: Sequence[Decided], layout: Layout) -> None:
        assert root.state
        self._store, self._root, self._layout = store, root, layout
        self._state = root.state
        assert isinstance(root.commits, StoredCommits)
        self._commits, self._rows, self._statistics = root.commits, root.commits.files, root.commits.statistics
        self._news = resolve(news)
        self._removed = {path for commit in self._news for path in commit.marker.removed}
        self._removed_tids = {tid for commit in self._news for tid in commit.marker.removed_tids}

    # --- as a sequence --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[DataFile]:
        for table in self._live(None):
            yield from self._files(table)
        yield from self._new

    def __len__(self) -> int:
        return self._state.files - self._lost[0] + len(self._new)

    @property
    def size(self) -> int:
        return self._state.bytes - self._lost[1] + sum(max(file.size, 0) for file in self._new)

    @property
    def unknown(self) -> int:
        return self._state.unknown + len(self._new.of_unknown_size())

    @property
    def hides(self) -> bool:
        """Whether a path is removed that no transaction adds, as far as that is known without reading all parts."""
        added = {path for commit in self._news for path in commit.marker.added}
        return self._state.hides or not self._removed - added <= self._gone.keys()

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

    def choose(self, may: Callable[[Partition], bool], columns: Collection[str], holds: Holds | None) -> LiveFiles:
        columns = {*columns} - {column.lower() for column in self._layout}
        holds = holds if columns else None  # `may` has answered it
        chosen: list[DataFile] = []
        for table in self._live(lambda text: may(names.parse_partition(text))):
            files = self._files(table)
            if holds:
                bounds = self._bounds(table, columns)
                files = (file for file, told, count in zip(files, bounds, rows.listed(table["rows"]), strict=True)
                         if holds(file.partition, told, count))  # fmt: skip
            chosen += files
        told = {info.path: info for commit in self._news for info in unpack_files(commit.marker)} if holds else {}
        for file in self._new:
            info = told.get(file.path)
            if may(file.partition) and (
                holds is None or info is None or holds(file.partition, info.statistics or {}, info.rows)
            ):
                chosen.append(file)
        return _collected(chosen)

    def find(self, paths: Collection[str]) -> Mapping[str, int | None]:
        found: dict[str, int | None] = {}
        directories = {names.split(path)[0] for path in paths}
        for table in self._live(lambda text: text in directories):
            found |= {row["path"]: row["rows"] for row in _dicts(table, paths)}
        told = {info.path: info.rows for commit in self._news for info in unpack_files(commit.marker)}
        return found | {file.path: told.get(file.path) for file in self._new if file.path in paths}

    # --- rows -----------------------------------------------------------------------------------------------------

    @cached_property
    def _new(self) -> LiveFiles:
        """The live files that the news add."""
        live = with_sizes(self._store, live_files(self._news))
        absent = set(self._state.absent)
        is_odd = any(names.parse_data_file(names.split(file.path)[1]) != file.tid for file in live)
        if not absent and not self._state.hides and not is_odd:
            return live
        known = self._find({file.path for file in live})
        return live.select(lambda it: [path for path in it.paths if it.tid not in absent and path not in known.hidden])

    @cached_property
    def _lost(self) -> tuple[int, int]:
        """How many files of the parts' live ones are not live any more by the news, and their size."""
        if self._removed_tids:
            count = size = 0
            for table in self._live(None):
                count += table.num_rows
                size += pc.sum(table["size"]).as_py() or 0
            return self._state.files - count, self._state.bytes - size
        return len(self._gone), sum(size or 0 for size in self._gone.values())

    @cached_property
    def _gone(self) -> dict[str, int | None]:
        """The live paths of the parts that the news remove or replace, with their sizes."""
        paths = self._removed | self._replaced
        return self._find(paths).live if paths else {}

    @cached_property
    def _replaced(self) -> set[str]:
        """Paths that the news add, and perhaps the parts, too: they count once. A name with its writer's tid is new."""
        return {file.path for file in self._new if names.parse_data_file(names.split(file.path)[1]) != file.tid}

    def _find(self, paths: Collection[str]) -> "_Found":
        """What the parts alone say of some paths."""
        directories = {names.split(path)[0] for path in paths}
        found = _Found({}, set())
        for table in self._rows.tables(lambda directory: directory in directories):
            live = _live_rows(table, self._commit_keys)
            for row in _dicts(live, paths):
                found.live[row["path"]] = row["size"]
            found.hidden.update(row["path"] for row in _dicts(table.filter(pc.is_valid(table["removed"])), paths))
        return found

    def _commit_keys(self) -> Mapping[str, rows.Key]:
        return self._commits.keys

    def _live(self, may: Callable[[str], bool] | None) -> Iterator[pa.Table]:
        """The rows of live files in directories for which the function is true, table by table."""
        removed, replaced = self._removed, self._replaced
        for table in self._rows.tables(may):
            live = _live_rows(table, self._commit_keys)
            if removed or replaced:
                live = _without(live, removed | replaced)
            if self._removed_tids:
                gone = rows.texts(sorted(self._removed_tids))
                live = live.filter(pc.invert(pc.is_in(live["tid"].cast(pa.string()), value_set=gone)))
            if live.num_rows:
                yield live

    # --- files ----------------------------------------------------------------------------------------------------

    def _files(self, table: pa.Table) -> Iterator[DataFile]:
        """The files in these rows."""
        directory = rows.dictionary(table["directory"])
        texts = rows.listed(directory.dictionary)
        used = rows.listed(pc.unique(directory.indices))
        partitions: dict[int, Partition] = {code: names.parse_partition(texts[code]) for code in used}
        for code, partition in partitions.items():
            if tuple(partition) != self._layout:
                raise self._misplaced(texts[code])
        tid = rows.dictionary(table["tid"])
        tids = rows.listed(tid.dictionary)
        sizes, codes, of = (rows.listed(it) for it in (table["size"], directory.indices, tid.indices))
        paths = rows.listed(rows.paths_of(table))
        where = self._store.url_of(names.checkpoint(self._root.number))
        for start in range(0, len(paths), CHECKED_AT_ONCE):
            names.check_visible(paths[start : start + CHECKED_AT_ONCE], where=where)
        if unknown := [path for path, size in zip(paths, sizes, strict=True) if size is None]:
            known = {entry.path: entry.size for entry in self._store.stat_many(unknown) if entry}
            sizes = [
                known.get(path, UNKNOWN_SIZE) if size is None else size for path, size in zip(paths, sizes, strict=True)
            ]
        return map(DataFile, paths, sizes, map(tids.__getitem__, of), map(partitions.__getitem__, codes))

    def _misplaced(self, directory: str) -> CorruptMarkerError:
        return CorruptMarkerError(
            f"{self._store.url_of(names.checkpoint(self._root.number))} has live files in {directory!r:.200}, and the "
            f"table is partitioned by {list(self._layout)}; inspect the commits that added them with `dbio log`"
        )

    def _bounds(self, table: pa.Table, columns: Collection[str]) -> Iterator[Mapping[str, Bounds]]:
        """What is recorded of these columns, given in lower case, for each of these rows. Nothing if damaged."""
        parts, places = rows.listed(table["part"]), rows.listed(table["place"])
        facts: Mapping[str, Facts] = {}
        with suppress(DamagedPart):
            facts = self._statistics.facts(lambda column: column.lower() in columns, parts, places)
        for i in range(table.num_rows):
            yield {column: Bounds(it["min"][i], it["max"][i], it["nulls"][i]) for column, it in facts.items()}


class _Found(NamedTuple):
    """What the parts say of some paths."""

    live: dict[str, int | None]
    """The live ones, with their sizes."""
    hidden: set[str]
    """Those that are removed."""


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
    """The rows that add a live path, by these rows alone, which have all rows of each path."""
    removed = table.filter(pc.is_valid(table["removed"]))
    live = table.filter(pc.is_valid(table["added"]))
    if removed.num_rows:
        live = _without(live, set(_paths(removed)))
    odd = live.filter(pc.is_valid(live["writer"]))  # a path with the tid of the transaction that adds it is added once
    if odd.num_rows:
        live = _each_once(live, set(_paths(odd)), keys)
    return live


def _each_once(live: pa.Table, paths: Collection[str], keys: Callable[[], Mapping[str, rows.Key]]) -> pa.Table:
    """Of rows that add one of these paths, the one of the latest transaction."""
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
    """The rows that may be of these paths, by their names, and where they are."""
    wanted = rows.texts({names.split(path)[1] for path in paths})
    places = pc.indices_nonzero(pc.is_in(table["name"], value_set=wanted))
    return rows.listed(places), table.take(places)


def _paths(table: pa.Table) -> list[str]:
    return rows.listed(rows.paths_of(table))


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
