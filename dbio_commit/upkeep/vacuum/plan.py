"""Horizons and candidates for deletion, which the plans of both scopes use. Pure."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import HISTORY
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason, Why
from dbio_commit.protocol.log import Log
from dbio_commit.upkeep.vacuum.report import Deletion, VacuumOptions

METADATA_RETENTION = timedelta(minutes=30)
"""The age of a checkpoint before the markers that it covers are purged. DBIO's writers use the same for markers."""

ABORTS_KEPT = HISTORY
"""The age at which abort markers are purged. No transaction lives that long, so that a late writer finds its abort."""


@dataclass(frozen=True, slots=True)
class Horizons:
    """The times before which objects may be deleted. They count from the time before the first listing."""

    now: datetime
    data: datetime
    metadata: datetime
    """For markers in the directory scope, as in DBIO."""
    purge: datetime
    """For markers in the table scope: does not depend on the retention, as readers and writers rely on it."""

    @classmethod
    def at(cls, now: datetime, options: VacuumOptions) -> "Horizons":
        data, metadata = now - timedelta(hours=options.retention_hours), now - METADATA_RETENTION
        return cls(now=now, data=data, metadata=max(metadata, data), purge=metadata)


class Candidate(NamedTuple):
    """An object that no reader needs now, or will not need once it is due for deletion."""

    path: str
    size: int
    since: datetime
    """When it became useless, or if that is not known, when it was written."""
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
    """Hadoop's checksum files `.name.crc` of garbage, which are deleted with it."""
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
    """Checksum files whose data file or marker is gone. `live` are live files that may be absent from the entries."""
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
    """The number of objects in a directory when it was listed, and the directories directly below."""

    objects: int
    directories: Sequence[str]


def emptied(tree: Mapping[str, Contents], deleted: Iterable[str]) -> list[str]:
    """The directories that are empty now, deepest first; never the root.

    A directory that was empty before counts only if its name is that of a partition: somebody may have made others on
    purpose.
    """
    lost: dict[str, int] = {}
    for path in deleted:
        directory = names.split(path)[0]
        lost[directory] = lost.get(directory, 0) + 1
    empty: set[str] = set()
    for directory in sorted(tree, key=lambda path: path.count("/"), reverse=True):
        contents = tree[directory]
        is_ours = directory in lost or not empty.isdisjoint(contents.directories) or _is_partition(directory)
        if directory and is_ours and contents.objects == lost.get(directory, 0) and empty >= set(contents.directories):
            empty.add(directory)
    return sorted(empty, key=lambda path: (-path.count("/"), path))


def _is_partition(directory: str) -> bool:
    return all("=" in component for component in directory.split("/"))
