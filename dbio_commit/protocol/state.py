"""What the commits of a table add up to: live files, columns, settings, versions of applications (PROTOCOL.md 8)."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, Self, overload

from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.settings import Layout, Settings, layout_of

UNKNOWN_SIZE = -1
"""The size of a file whose writer recorded none: another DBIO writer in a dbio table."""


class DataFile(NamedTuple):
    """A live file of a table."""

    path: str
    """Relative to the root of the table."""
    size: int
    """In bytes; -1 if no marker records it."""
    tid: str | None
    """The transaction that wrote it; None for an untracked file."""
    partition: Partition
    """The values of the partition columns, as texts; None is null."""


class Added(NamedTuple):
    """The live files that one transaction added."""

    tid: str | None
    paths: Sequence[str]
    sizes: Sequence[int]


def live_among(files: Sequence[DataFile], paths: Collection[str]) -> set[str]:
    """Those of these paths that are live."""
    if isinstance(files, FilesInParts):
        return {*files.find(paths)}
    return {file.path for file in files if file.path in paths}


def total_size(files: Sequence[DataFile]) -> int:
    """The size in bytes of all files whose size is known."""
    return files.size if isinstance(files, FilesInParts) else sum(max(file.size, 0) for file in files)


MayMatch = Callable[[Partition, Mapping[str, Bounds], int | None], bool]
"""Whether a file may have wanted rows, by its partition, the recorded bounds of columns, and its number of rows."""


MayMatchEach = Callable[[Mapping[str, tuple[Any, Any]], int], Any]
"""Which of so many files may have wanted rows: a NumPy array of truth values, by Arrow arrays of the lowest and the
highest recorded values of columns, which are in lower case."""

TOGETHER = 256
"""The bounds of so many files together are asked before those of each: in a clustered table, files whose names follow
one another have similar values."""


def in_slices(count: int) -> list[tuple[int, slice]]:
    """Slices of the places of so many files, TOGETHER at once, each with its first place."""
    return [(start, slice(start, start + TOGETHER)) for start in range(0, count, TOGETHER)]


class _Files(Sequence[DataFile]):
    """Live files, which are equal to any sequence of the same files in the same order."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self):,} live files>"


CountsByDirectory = dict[str, list[int]]
"""For each directory, the number of rows, and of nulls in each of some columns, of all of its files."""


class FilesInParts(_Files):
    """The live files of a table whose checkpoint has parts, which are read when they are needed."""

    @abstractmethod
    def choose(
        self,
        may: Callable[[Partition], bool],
        columns: Collection[str],
        holds: MayMatch | None,
        in_each: MayMatchEach | None = None,
    ) -> "LiveFiles":
        """The files in partitions for which `may` is true, and for which `holds` is true, if it is given.

        If `in_each` is false for a file, `holds` is false for it, and is not asked. `columns` are those whose bounds
        both get, in lower case. Reads only what may have such files.
        """

    @abstractmethod
    def find(self, paths: Collection[str]) -> Mapping[str, int | None]:
        """Those of these paths that are live, each with its number of rows, or None if that is not known."""

    @abstractmethod
    def whole(self) -> "LiveFiles":
        """All live files, in memory."""

    @abstractmethod
    def arrow(self) -> Iterator[Any]:
        """All live files as Arrow tables with the columns directory, name and size, some files at a time.

        Directories are a dictionary. The size is -1 if it is not known.
        """

    @abstractmethod
    def counts(self, columns: Sequence[str]) -> "CountsByDirectory | None":
        """The numbers of rows, and of nulls in these columns, which are given in lower case, as writers recorded them.

        None if a writer did not record one of them, or recorded what cannot be true.
        """

    @property
    @abstractmethod
    def unknown(self) -> int:
        """How many files have no known size."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The size in bytes of all files whose size is known."""


class LiveFiles(_Files):
    """Live files in memory, in the order of their commits' times.

    Each `DataFile` is made when it is asked for, since a million of them take much memory. A caller that goes over them
    repeatedly should keep what it needs. Files of one directory share their `partition`.
    """

    def __init__(self, added: Sequence[Added], partitions: Mapping[str, Partition] | None = None) -> None:
        """Each path must occur once. `partitions` are those of the directories that are parsed already."""
        self._added = added
        self._ends = list(accumulate(len(it.paths) for it in added))
        if partitions is None:
            directories = {path.rpartition("/")[0] for it in added for path in it.paths}
            partitions = {directory: names.parse_partition(directory) for directory in directories}
        self._partitions = partitions

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[DataFile]:
        partitions = self._partitions
        for tid, paths, sizes in self._added:
            for path, size in zip(paths, sizes, strict=True):
                yield DataFile(path, size, tid, partitions[path.rpartition("/")[0]])

    @overload
    def __getitem__(self, index: int) -> DataFile: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[DataFile, ...]: ...
    def __getitem__(self, index: int | slice) -> DataFile | tuple[DataFile, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        number = range(len(self))[index]  # or IndexError
        place = bisect_right(self._ends, number)
        tid, paths, sizes = self._added[place]
        i = number - self._ends[place]  # negative: counted from the end
        return DataFile(paths[i], sizes[i], tid, self._partitions[paths[i].rpartition("/")[0]])

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> Self:
        """These files, which may be a plain sequence."""
        if isinstance(files, cls):
            return files
        if isinstance(files, FilesInParts):
            return cls(files.whole()._added)
        each = ((tid, [*some]) for tid, some in groupby(files, key=attrgetter("tid")))
        return cls([Added(tid, [it.path for it in some], [it.size for it in some]) for tid, some in each])

    @property
    def partitions(self) -> Mapping[str, Partition]:
        """The partitions of the files' directories, and perhaps of others."""
        return self._partitions

    @property
    def by_transaction(self) -> Sequence[Added]:
        """The files of each transaction."""
        return self._added

    def paths(self) -> Iterator[str]:
        return chain.from_iterable(it.paths for it in self._added)

    def partition_of(self, path: str) -> Partition:
        """The partition of one of these files."""
        return self._partitions[path.rpartition("/")[0]]

    def in_partitions(self, may: Callable[[Partition], bool]) -> "LiveFiles":
        """The files in partitions for which the function is true."""
        wrong = {directory for directory, partition in self._partitions.items() if not may(partition)}
        if not wrong:
            return self
        return self.select(lambda it: [path for path in it.paths if path.rpartition("/")[0] not in wrong])

    def select(self, choose: Callable[[Added], Collection[str]]) -> "LiveFiles":
        """The files whose paths the function chooses from those of each transaction."""
        chosen = [(it, choose(it)) for it in self._added]
        whole = [it if len(paths) == len(it.paths) else _only(it, {*paths}) for it, paths in chosen if paths]
        return LiveFiles(whole, self._partitions)

    def outside(self, columns: tuple[str, ...]) -> DataFile | None:
        """A file that is in no partition by these columns; None if there is none."""
        wrong = {directory for directory, partition in self._partitions.items() if tuple(partition) != columns}
        return next((file for file in self if file.path.rpartition("/")[0] in wrong), None) if wrong else None

    def of_unknown_size(self) -> list[str]:
        """The paths of files whose writers recorded no size."""
        return [
            path
            for it in self._added
            if UNKNOWN_SIZE in it.sizes
            for path, size in zip(it.paths, it.sizes, strict=True)
            if size == UNKNOWN_SIZE
        ]

    def with_sizes(self, sizes: Mapping[str, int]) -> "LiveFiles":
        """The same files, with the sizes that `sizes` gives by path."""
        return LiveFiles(
            [
                Added(it.tid, it.paths, [sizes.get(path, size) for path, size in zip(it.paths, it.sizes, strict=True)])
                if UNKNOWN_SIZE in it.sizes
                else it
                for it in self._added
            ],
            self._partitions,
        )


def files_in(files: Sequence[DataFile], may: Callable[[Partition], bool]) -> LiveFiles:
    """The live files in partitions for which the function is true. Of a large table, reads only those."""
    return files.choose(may, (), None) if isinstance(files, FilesInParts) else LiveFiles.of(files).in_partitions(may)


def added_sizes(marker: CommitMarker) -> Sequence[int]:
    """The size of each file that the marker adds."""
    files = marker.dbio_commit.files if marker.dbio_commit else None
    return files.size if files else [UNKNOWN_SIZE] * len(marker.added)


def live_files(commits: Iterable[Decided]) -> LiveFiles:
    """All added files except the removed ones, in the order of their commits' times. A file that was added twice counts
    once."""
    commits = [it for it in commits if it.marker.added or it.marker.removed]  # in a slice of a table, most have none
    commits.sort(key=itemgetter(0, 1))
    removed = {path for commit in commits for path in commit.marker.removed}
    added: list[Added] = []
    for _, tid, marker, *_ in commits:
        it = Added(tid, marker.added, added_sizes(marker))
        added.append(_only(it, {*it.paths} - removed) if removed and not removed.isdisjoint(it.paths) else it)
    if not _is_each_once(added):
        latest = {path: i for i, it in enumerate(added) for path in it.paths}
        added = [_only(it, {path for path in it.paths if latest[path] == i}) for i, it in enumerate(added)]
    return LiveFiles([it for it in added if it.paths])


def _is_each_once(added: Sequence[Added]) -> bool:
    """Whether no path occurs twice. Paths with their writers' tids need no set of all paths, which would be large."""
    writers = {it.tid for it in added}
    if len(writers) == len(added) and all(it.tid and names.are_marked(it.paths, it.tid) for it in added):
        return all(len(set(it.paths)) == len(it.paths) for it in added)
    return len(set(chain.from_iterable(it.paths for it in added))) == sum(len(it.paths) for it in added)


def _only(added: Added, paths: Collection[str]) -> Added:
    """The files of a transaction that have these paths, each once."""
    kept = {path: size for path, size in zip(added.paths, added.sizes, strict=True) if path in paths}
    return Added(added.tid, list(kept), list(kept.values()))


class Metadata(NamedTuple):
    """The columns and settings of a table, and the last decided turn as of which they are known."""

    schema: Mapping[str, Any] | None
    """The columns, as Spark's JSON; None if no writer recorded any."""
    turn: int
    settings: Settings | None = None
    """The settings; None if no marker has ever recorded any."""


NO_METADATA = Metadata(None, 0)


def current_metadata(markers: Iterable[CommitMarker], *, before: Metadata = NO_METADATA) -> Metadata:
    """The columns and settings that were set last. `before` has those that a checkpoint remembers.

    Changes take turns, so that the highest turn is the last change. Writers of an earlier version record no settings,
    and so change none: for settings, the highest turn with recorded settings counts.
    """
    recorded: list[tuple[int, CommitInfo | Metadata]] = [
        (info.schema_turn, info)
        for marker in markers
        if (info := marker.dbio_commit) and not marker.is_abort and info.schema_turn is not None
    ]
    recorded.append((before.turn, before))
    turn, last = max(recorded, key=itemgetter(0))
    recorded_settings = (it for it in recorded if it[1].settings is not None)
    _, change = max(recorded_settings, key=itemgetter(0), default=(0, NO_METADATA))
    return Metadata(last.schema if isinstance(last, Metadata) else last.table_schema, turn, change.settings)


def known_layouts(markers: Iterable[CommitMarker], first: Sequence[str], *, before: Metadata) -> frozenset[Layout]:
    """The layouts that a table has, and had. `first` is the descriptor's, `before` the one in a checkpoint."""
    changed = (info.settings for marker in markers if (info := marker.dbio_commit) and info.settings)
    return frozenset({tuple(first), layout_of(before.settings, first), *(layout_of(it, first) for it in changed)})
