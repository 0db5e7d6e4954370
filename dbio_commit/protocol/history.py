"""The commits of a table in their order, and the files that each added and removed. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal, NamedTuple

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided, recorded_rows
from dbio_commit.protocol.files_in_order import FilesInMemory, FilesInOrder, Totals
from dbio_commit.protocol.markers.descriptor import Origin
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import UNKNOWN_SIZE, DataFile, Metadata, added_sizes, live_files
from dbio_commit.protocol.timeline import Had, Timeline

ChangeKind = Literal["insert", "delete", "recorded"]


class FileChange(NamedTuple):
    """A file whose rows were all added or removed by a commit; or, if it is `recorded`, a change file whose rows say
    which."""

    file: DataFile
    kind: ChangeKind
    tid: str
    """The tid of the commit."""
    committed: datetime
    """When it was committed, by the store's clock."""


PATHS_AT_ONCE = 100_000
"""About how many paths of a large table's commits are in memory at once."""


class AddedPath(NamedTuple):
    """The recorded size and rows of an added path."""

    size: int
    rows: int | None


class PathInParts(NamedTuple):
    """The transactions in parts that add or remove a path."""

    added: Mapping[str, AddedPath]
    """The transactions that add it."""
    removed: Collection[str]
    """The transactions by which it is removed."""


NOTHING_SAID = PathInParts({}, ())


class HistoryInParts(ABC):
    """Reads what the commits of a large table leave out: the paths that are in parts of its checkpoint."""

    @property
    @abstractmethod
    def tids(self) -> Set[str]:
        """The transactions in parts."""

    @abstractmethod
    def whole(self, tid: str) -> Decided:
        """A transaction with all of its paths. Transactions that follow in the history are read with it."""

    @abstractmethod
    def is_at_hand(self, tid: str) -> bool:
        """Whether `whole` has the transaction in memory."""

    @abstractmethod
    def find(self, paths: Collection[str]) -> Mapping[str, PathInParts]:
        """The transactions in parts that add or remove each of these paths."""

    @abstractmethod
    def removed_among(self, paths: Collection[str]) -> Set[str]:
        """Those of these paths that a transaction in parts removes."""

    @property
    @abstractmethod
    def hides(self) -> bool:
        """Whether transactions in parts remove a path that none of them adds."""

    @abstractmethod
    def totals(self, tids: Collection[str]) -> Totals:
        """The number and size of the data files that these transactions added."""

    @abstractmethod
    def state(self, had: Sequence[Decided]) -> FilesInOrder:
        """The files that are live after exactly these commits."""


@dataclass(frozen=True)
class History:
    """The commits of a table."""

    url: str
    origin: Origin
    """The id of the table."""
    layouts: Set[Layout]
    """The layouts (partition columns) that the table has, and had before."""
    commits: Sequence[Decided]
    """The commits, oldest first, without aborted transactions. Those in parts have no paths: see `whole`."""
    known_since: datetime | None
    redated_until: datetime | None
    """A copy gave the commits until this time new times. Their order is not known, nor what a stream has read of
    them."""
    metadata: Metadata
    now: datetime
    parts: HistoryInParts | None = None
    """Of a large table: reads the paths that `commits` leave out."""

    # --- paths ----------------------------------------------------------------------------------------------------

    def whole(self, commit: Decided) -> Decided:
        """The commit with all of its paths."""
        if self.parts and (commit.tid in self.parts.tids or commit.marker.removed_tids):
            return self.parts.whole(commit.tid)
        return commit

    @cached_property
    def _own(self) -> Sequence[Decided]:
        """The commits that are not in parts."""
        parts = self.parts
        return self.commits if parts is None else [commit for commit in self.commits if commit.tid not in parts.tids]

    @cached_property
    def timeline(self) -> Timeline:
        """The commits by their times."""
        return Timeline(self.commits)

    @property
    def _places(self) -> Mapping[str, int]:
        return self.timeline.places

    @cached_property
    def _removers(self) -> Mapping[str, str]:
        """The first commit of `_own` that removed each path."""
        found: dict[str, str] = {}
        for commit in self._own:
            for path in commit.marker.removed:
                found.setdefault(path, commit.tid)
        return found

    @cached_property
    def _adders(self) -> Mapping[str, "_Adder"]:
        """For each path that `_own` removes: the last commit of `_own` that added it."""
        return self._adders_of(self._removers.keys())

    def _adders_of(self, paths: Collection[str]) -> dict[str, "_Adder"]:
        found: dict[str, _Adder] = {}
        for commit in self._own if paths else ():
            info = commit.marker.dbio_commit
            counts = info.files.rows if info and info.files else [None] * len(commit.marker.added)
            for path, size, rows in zip(commit.marker.added, added_sizes(commit.marker), counts, strict=True):
                if path in paths:
                    found[path] = _Adder(commit.tid, AddedPath(size, rows))
        return found

    @cached_property
    def _referring(self) -> Mapping[str, str]:
        """For each transaction whose files are removed by reference (`references`): the first commit that does so."""
        found: dict[str, str] = {}
        for commit in self.commits if self.parts else ():
            for tid in commit.marker.removed_tids:
                found.setdefault(tid, commit.tid)
        return found

    def _find(self, paths: Collection[str]) -> Mapping[str, "_Path"]:
        """What the commits record of each of these paths."""
        in_parts = self.parts.find(paths) if self.parts and paths else {}
        others = self._adders_of({path for path in paths if path not in self._removers})
        found: dict[str, _Path] = {}
        for path in paths:
            said, own = in_parts.get(path, NOTHING_SAID), self._adders.get(path) or others.get(path)
            added = {**said.added, **({own.tid: own.path} if own else {})}
            removers = [*said.removed, *([self._removers[path]] if path in self._removers else [])]
            removers += [self._referring[tid] for tid in added if tid in self._referring]
            last = max(added, key=self._places.__getitem__, default=None)
            last_added = AddedPath(UNKNOWN_SIZE, None) if last is None else added[last]
            found[path] = _Path(min(removers, key=self._places.__getitem__, default=None), *last_added)
        return found

    def _found_with(self, commit: Decided, paths: Sequence[str]) -> Mapping[str, "_Path"]:
        """What the commits record of the paths that a commit removes.

        In parts, it also looks for paths that later commits remove, if these are in memory. So a caller that goes from
        commit to commit looks few times.
        """
        if self.parts is None:
            return self._find({*paths})
        kept = self._kept
        if not kept.keys() >= {*paths}:
            wanted = {*paths}
            for later in self.commits[self._places[commit.tid] + 1 :]:
                if len(wanted) > PATHS_AT_ONCE:
                    break
                if takes_rows(later) and self._is_at_hand(later):
                    wanted.update(self.whole(later).marker.removed_data_files)
            found = self._find(wanted)
            kept.clear()
            kept.update(found)
        return kept

    @cached_property
    def _kept(self) -> "dict[str, _Path]":
        """The last result of `_found_with`."""
        return {}

    def _is_at_hand(self, commit: Decided) -> bool:
        """Whether its paths are in memory."""
        assert self.parts
        is_own = commit.tid not in self.parts.tids and not commit.marker.removed_tids
        return is_own or self.parts.is_at_hand(commit.tid)

    def removed_among(self, changes: Iterable[FileChange]) -> list[str]:
        """The paths of these changes that some commit has removed, in their order."""
        changes = [*changes]
        removed = {change.file.path for change in changes if self._is_surely_removed(change)}
        if self.parts:
            doubtful = {it.file.path for it in changes if it.file.path not in removed and not self._is_surely_new(it)}
            removed |= self.parts.removed_among(doubtful) if doubtful else set()
        return [change.file.path for change in changes if change.file.path in removed]

    def _is_surely_removed(self, change: FileChange) -> bool:
        path = change.file.path
        return change.kind != "insert" or path in self._removers or change.tid in self._referring

    def _is_surely_new(self, change: FileChange) -> bool:
        """Whether no transaction in parts names the path: its name has the tid of one that is not in parts."""
        assert self.parts
        tid = change.tid
        is_own = names.parse_data_file(names.split(change.file.path)[1]) == tid
        return is_own and tid not in self.parts.tids and not self.parts.hides

    def rows(self, commit: Decided, changes: Iterable[FileChange]) -> Mapping[str, int | None]:
        """How many rows the files of these changes of a commit have, by path; None if that is not recorded."""
        paths = {change.file.path for change in changes}
        whole = self.whole(commit)
        plain = {path for path in paths if names.parse_data_file(names.split(path)[1]) == commit.tid}
        known = dict.fromkeys(plain & {*whole.marker.added}) | {
            path: rows for path, rows in recorded_rows([whole]).items() if path in plain
        }
        return known | {path: it.rows for path, it in self._find(paths - known.keys()).items()}

    # --- states ---------------------------------------------------------------------------------------------------

    def state(self, had: Had) -> FilesInOrder:
        """The files that are live after exactly these commits. The last result is kept in memory."""
        key = had.oldest, had.more
        if key not in self._states:
            self._states.clear()
            commits = had.commits()
            self._states[key] = self.parts.state(commits) if self.parts else FilesInMemory(live_files(commits))
        return self._states[key]

    @cached_property
    def _states(self) -> dict[tuple[int, Set[str]], FilesInOrder]:
        return {}

    def totals(self, commits: Iterable[Decided]) -> Totals:
        """The number and size of the data files that these commits added, as far as the history still has them."""
        found, stored = Totals(), list[str]()
        for commit in commits:
            if self.parts and commit.tid in self.parts.tids:
                stored.append(commit.tid)
            else:
                sizes = [it.file.size for it in self.added(commit)]
                found = found.plus(Totals(len(sizes), sum(max(size, 0) for size in sizes)))
        return found.plus(self.parts.totals(stored)) if self.parts and stored else found

    def totals_without(self, had: Had) -> Totals:
        """The totals of all other commits. The result is kept: the next call only adds or subtracts what differs."""
        rank, since = self._totals_since.get("last", (len(self.commits), Totals()))
        if rank <= had.oldest:
            since = since.less(self.totals(self.timeline.ranked(rank, had.oldest)))
        else:
            since = since.plus(self.totals(self.timeline.ranked(had.oldest, rank)))
        self._totals_since["last"] = had.oldest, since
        places = self.timeline.places
        return since.less(self.totals(self.commits[places[tid]] for tid in had.more))

    @cached_property
    def _totals_since(self) -> dict[Literal["last"], tuple[int, Totals]]:
        """A rank, and the totals of the commits of that rank and of higher ones."""
        return {}

    # --- changes --------------------------------------------------------------------------------------------------

    def added(self, commit: Decided) -> list[FileChange]:
        """The files that a commit added, as far as the history still has them."""
        return self._added(commit, are_changes=False)

    def recorded(self, commit: Decided) -> list[FileChange]:
        """The change files of a commit."""
        return self._added(commit, are_changes=True)

    def _added(self, commit: Decided, *, are_changes: bool) -> list[FileChange]:
        commit = self.whole(commit)
        changes = set(commit.marker.change_files)
        return [
            FileChange(
                self._file(path, size, commit.tid), "recorded" if are_changes else "insert", commit.tid, commit.modified
            )
            for path, size in zip(commit.marker.added, added_sizes(commit.marker), strict=True)
            if (path in changes) == are_changes
        ]

    def all_changes(self, commit: Decided) -> list[FileChange]:
        """The files that a commit added and removed. If it has change files: these, and the files in its `whole`."""
        commit = self.whole(commit)
        both = [*self.removed(commit), *self.added(commit)]
        info = commit.marker.dbio_commit
        if info is None or info.whole is None:
            return both
        whole = set(info.whole)
        return [*(change for change in both if change.file.path in whole), *self.recorded(commit)]

    def removed(self, commit: Decided) -> list[FileChange]:
        """The files that a commit removed, without those that an earlier commit removed."""
        if not takes_rows(commit):
            return []
        paths = self.whole(commit).marker.removed_data_files
        found = self._found_with(commit, paths)
        return [
            FileChange(self._file(path, found[path].size, None), "delete", commit.tid, commit.modified)
            for path in paths
            if found[path].remover == commit.tid
        ]

    def _file(self, path: str, size: int, tid: str | None) -> DataFile:
        directory, name = names.split(path)
        partition = names.parse_partition(directory)
        if tuple(partition) not in self.layouts:
            raise CorruptMarkerError(
                f"a commit of {self.url} names {path!r:.300}, which lies in no partition by "
                f"{' or '.join(str(list(layout)) for layout in sorted(self.layouts))}; `dbio check` says which"
            )
        return DataFile(path, size, tid if tid is not None else names.parse_data_file(name), partition)


class _Adder(NamedTuple):
    tid: str
    path: AddedPath


class _Path(NamedTuple):
    """What the commits record of a path."""

    remover: str | None
    """The first commit that removes it."""
    size: int
    """By the last commit that adds it."""
    rows: int | None


def recorded_operation(commit: Decided) -> str | None:
    return commit.marker.dbio_commit.operation if commit.marker.dbio_commit else None


def takes_rows(commit: Decided) -> bool:
    """Whether the commit removed files of the table. An adoption hides files that were never in the table."""
    marker = commit.marker
    return recorded_operation(commit) != "adopt" and bool(
        marker.removed or commit.forgotten.removed or marker.removed_tids
    )
