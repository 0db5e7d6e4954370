"""The common part of the plans of both scopes: horizons, candidates for deletion, checksums, directories. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from dbio_commit.maintenance.vacuum.report import Deletion, VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import HISTORY
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason, Why
from dbio_commit.protocol.log import Log

METADATA_RETENTION = timedelta(minutes=30)
"""How old a checkpoint must be before markers that it covers are purged. DBIO uses the same time for its markers."""

ABORTS_KEPT = HISTORY
"""How long abort markers are kept: longer than any transaction lives, so that a late writer finds its own."""


@dataclass(frozen=True, slots=True)
class Horizons:
    """Times before which objects may be deleted. They count from a time before the listing."""

    now: datetime
    data: datetime
    metadata: datetime
    """For markers in the directory scope, as in DBIO."""
    purge: datetime
    """For markers in the table scope. Always METADATA_RETENTION ago, since readers and writers rely on it."""

    @classmethod
    def at(cls, now: datetime, options: VacuumOptions) -> "Horizons":
        data, metadata = now - timedelta(hours=options.retention_hours), now - METADATA_RETENTION
        return cls(now=now, data=data, metadata=max(metadata, data), purge=metadata)


class Candidate(NamedTuple):
    """A candidate for deletion: an object that no reader needs, or that none will need when it is due."""

    path: str
    size: int
    since: datetime
    """When it became useless if that is known, else when it was written."""
    reason: Reason
    due: bool
    tid: str | None = None
    """The transaction whose markers must stay as long as this file does."""

    @classmethod
    def of(cls, entry: Entry, why: Why, *, due: bool) -> Self:
        return cls(entry.path, entry.size, why.since, why.reason, due, why.tid)

    @classmethod
    def marker(cls, entry: Entry, reason: Reason, tid: str | None = None) -> Self:
        return cls(entry.path, entry.size, entry.modified, reason, True, tid)

    def deletion(self, now: datetime) -> Deletion:
        return Deletion(path=self.path, size=self.size, age=now - self.since, reason=self.reason)


def checksums(entries: Iterable[Entry], garbage: Iterable[Candidate]) -> list[Candidate]:
    """Hadoop's checksums (`.name.crc`) of the garbage, which are deleted with it."""
    present = {entry.path: entry for entry in entries if entry.path.endswith(".crc")}
    if not present:
        return []
    found: list[Candidate] = []
    for it in garbage:
        directory, name = names.split(it.path)
        if entry := present.get(names.join(directory, f".{name}.crc")):
            found.append(it._replace(path=entry.path, size=entry.size))
    return found


def lost_checksums(entries: Iterable[Entry], live: Set[str], horizons: Horizons) -> list[Candidate]:
    """Checksums whose file or marker is gone. `live` files need not be among the entries."""
    entries = list(entries)
    present = {entry.path for entry in entries}
    found: list[Candidate] = []
    for entry in entries:
        directory, name = names.split(entry.path)
        if not (name.startswith(".") and name.endswith(".crc")) or entry.modified >= horizons.data:
            continue
        of = name[1:-4]
        path = names.join(directory, of)
        tid = names.parse_data_file(of)
        if (tid or names.parse_log_name(of)) and path not in present and path not in live:
            found.append(Candidate(entry.path, entry.size, entry.modified, Reason.CHECKSUM, True, tid))
    return found


def lost_clocks(log: Log, horizons: Horizons) -> list[Candidate]:
    """The objects with which killed vacuums had asked the store for its time."""
    return [Candidate.marker(entry, Reason.CLOCK) for entry in log.clocks.values() if entry.modified < horizons.purge]


class Contents(NamedTuple):
    """How many objects a directory held when it was listed, and the directories directly in it."""

    objects: int
    directories: Sequence[str]


def by_directory(paths: Iterable[str]) -> Counter[str]:
    """How many paths are in each directory."""
    return Counter(names.split(path)[0] for path in paths)


def emptied(tree: Mapping[str, Contents], lost: Mapping[str, int]) -> list[str]:
    """The directories that are empty after deletions, the deepest first, without the root.

    `lost` has the number of objects that were deleted in each directory. A directory that was empty before counts only
    if it has the form of a partition: users may have made others on purpose.
    """
    empty: set[str] = set()
    for directory in sorted(tree, key=lambda path: path.count("/"), reverse=True):
        contents = tree[directory]
        may_go = directory in lost or not empty.isdisjoint(contents.directories) or _is_partition(directory)
        if directory and may_go and contents.objects == lost.get(directory, 0) and empty >= set(contents.directories):
            empty.add(directory)
    return sorted(empty, key=lambda path: (-path.count("/"), path))


def _is_partition(directory: str) -> bool:
    return all("=" in component for component in directory.split("/"))
