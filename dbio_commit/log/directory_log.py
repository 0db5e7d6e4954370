"""Reads a directory without a descriptor, where each directory decides about itself, as in DBIO (PROTOCOL.md 11)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dbio_commit.base.clock import Clock
from dbio_commit.data.parquet import not_parquet
from dbio_commit.log.listing import read_markers
from dbio_commit.log.snapshot import Snapshot, Source
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import before_first, committed_by
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint
from dbio_commit.protocol.commits import AsOf, Decided
from dbio_commit.protocol.directory import (
    Directory,
    is_used,
    looks_torn,
    merge_directories,
    parse_directories,
    settle,
    visible_files,
)
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store


class DirectoryLog:
    """The files and markers of all directories, as they were listed."""

    scope = Scope.DIRECTORY

    def __init__(self, store: Store, clock: Clock, entries: Sequence[Entry], root: Log | None = None) -> None:
        """`entries` are all files. `root` is the log of the root, as it was listed after them."""
        self.store, self.clock, self.root = store, clock, root or Log()
        self.directories: Mapping[str, Directory] = parse_directories(entries)
        """By path."""

    def logs(self) -> tuple[Mapping[str, Log], Checkpoint]:
        """The logs, by the directory that each decides about, and no checkpoint."""
        return {path: directory.log for path, directory in self.directories.items()}, NO_CHECKPOINT

    def snapshot(self, *, as_of: AsOf = None, ignore_corrupt: bool = False) -> Snapshot:
        store, directories = self.store, self.directories
        committed = [entry for directory in directories.values() for entry in directory.log.committed.values()]
        read = read_markers(store, committed, scope=self.scope)
        markers = read.only_valid(ignore_corrupt=ignore_corrupt)
        read.warn_of_unkept(store, self.scope)
        decided = _decided(directories, markers)
        commits = committed_by(decided, as_of)
        counted = {commit.tid for commit in commits}
        files: list[DataFile] = []
        for directory in directories.values():
            own = {tid: markers[entry.path] for tid, entry in directory.log.committed.items() if entry.path in markers}
            if looks_torn(directory, own, now=self.clock.now()):
                directory = settle(directory, parse_directories(store.list_files(directory.path)).get(directory.path))
            if as_of is not None:
                directory = replace(directory, uncommitted=directory.uncommitted | (own.keys() - counted))
            files += visible_files(directory, {tid: marker for tid, marker in own.items() if tid in counted})
        other = set(not_parquet(store, ((file.path, file.size) for file in files)))
        files = [file for file in files if file.path not in other]
        used = {names.split(file.path)[0] for file in files}
        written = used or {path for path, directory in directories.items() if is_used(directory)}
        return Snapshot(
            url=store.url,
            scope=self.scope,
            files=tuple(files),
            partition_columns=names.common_partition_columns(written) or (),
            decided=tuple(commits),
            foreign=tuple(sorted({*other, *(entry.path for it in directories.values() for entry in it.foreign)})),
            too_early=before_first(as_of, commits, decided),
            source=Source(store),
        )


def _decided(directories: Mapping[str, Directory], markers: Mapping[str, CommitMarker]) -> Sequence[Decided]:
    """The transactions with a commit marker in any directory, with the time of the last of their markers."""
    parts: dict[str, dict[str, Entry]] = {}
    for path, directory in directories.items():
        for tid, entry in directory.log.committed.items():
            if entry.path in markers:
                parts.setdefault(tid, {})[path] = entry
    return [
        Decided(
            max(entry.modified for entry in entries.values()),
            tid,
            merge_directories({path: markers[entry.path] for path, entry in entries.items()}),
        )
        for tid, entries in parts.items()
    ]
