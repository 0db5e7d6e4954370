"""The commits of a table in their order, and the files that each added and removed. Pure."""

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal, NamedTuple

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.origin import Origin
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import UNKNOWN_SIZE, DataFile, Metadata, added_sizes

Kind = Literal["insert", "delete", "recorded"]


class Change(NamedTuple):
    """A file whose rows were all added or removed by a commit; or, if it is `recorded`, a change file whose rows say
    which."""

    file: DataFile
    kind: Kind
    tid: str
    """The tid of the commit."""
    committed: datetime
    """When it was committed, by the store's clock."""


@dataclass(frozen=True)
class History:
    """The commits of a table, as of now."""

    url: str
    origin: Origin
    """The id of the table."""
    layouts: Set[Layout]
    """All partition columns that the table has, and had before they changed."""
    commits: Sequence[Decided]
    """The commits, oldest first, without aborted transactions."""
    known_since: datetime | None
    redated_until: datetime | None
    """A copy has given the commits until then new times: their order is not known, nor what was read before."""
    metadata: Metadata
    now: datetime

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """The partitions of removed files, by path."""
        removed = self.removers.keys()
        found: dict[str, int] = {}
        for commit in self.commits:
            for path, size in zip(commit.marker.added, added_sizes(commit.marker), strict=True):
                if path in removed:
                    found[path] = size
        return found

    @cached_property
    def removers(self) -> dict[str, str]:
        """The commit that removed each file first."""
        found: dict[str, str] = {}
        for commit in self.commits:
            for path in commit.marker.removed:
                found.setdefault(path, commit.tid)
        return found

    def added(self, commit: Decided) -> list[Change]:
        """The files that a commit added, as far as the history still has them."""
        return self._added(commit, set(commit.marker.change_files), are_changes=False)

    def recorded(self, commit: Decided) -> list[Change]:
        """The change files of a commit."""
        return self._added(commit, set(commit.marker.change_files), are_changes=True)

    def _added(self, commit: Decided, changes: Collection[str], *, are_changes: bool) -> list[Change]:
        return [
            Change(
                self._file(path, size, commit.tid), "recorded" if are_changes else "insert", commit.tid, commit.modified
            )
            for path, size in zip(commit.marker.added, added_sizes(commit.marker), strict=True)
            if (path in changes) == are_changes
        ]

    def all_changes(self, commit: Decided) -> list[Change]:
        """The files that a commit added and removed. For a commit with change files, those, and no file that only keeps
        rows."""
        both = [*self.removed(commit), *self.added(commit)]
        info = commit.marker.dbio_commit
        if info is None or info.whole is None:
            return both
        whole = set(info.whole)
        return [*(change for change in both if change.file.path in whole), *self.recorded(commit)]

    def removed(self, commit: Decided) -> list[Change]:
        """The files that a commit removed, without those that an earlier commit removed."""
        if not takes_rows(commit):
            return []
        paths = [path for path in commit.marker.removed_data_files if self.removers[path] == commit.tid]
        return [
            Change(self._file(path, self._sizes.get(path, UNKNOWN_SIZE), None), "delete", commit.tid, commit.modified)
            for path in paths
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


def recorded_operation(commit: Decided) -> str | None:
    return commit.marker.dbio_commit.operation if commit.marker.dbio_commit else None


def takes_rows(commit: Decided) -> bool:
    """Whether it removed files of the table. An adoption hides files that were never in the table."""
    marker = commit.marker
    return recorded_operation(commit) != "adopt" and bool(
        marker.removed or commit.forgotten.removed or marker.removed_tids
    )
