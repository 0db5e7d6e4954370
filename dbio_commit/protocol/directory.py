"""The directory scope: which files a reader sees, by the files and markers of each directory, as in DBIO."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache

from msgspec import structs

from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.state import DataFile

UNSETTLED = timedelta(days=1, minutes=5)
"""A directory that changed within this time is listed again if its listing looks torn. A listing takes minutes, and a
reader's clock may be a day ahead.
"""


@dataclass(frozen=True, slots=True)
class Directory:
    """One directory as DBIO sees it: its data files by name, and its markers."""

    path: str
    """Relative to the root; "" is the root."""
    files: Mapping[str, Entry]
    log: Log
    uncommitted: frozenset[str]
    """The tids whose files are hidden until a commit marker lists them."""
    foreign: tuple[Entry, ...] = ()
    """Files that are not hidden and, by their names, not data: only their owner may remove them."""


def parse_directories(entries: Iterable[Entry]) -> dict[str, Directory]:
    """The directories in a recursive listing, by path, without those that readers skip."""
    children: dict[str, list[Entry]] = {}
    visible = cache(names.is_data_file)
    for entry in entries:
        directory, name = names.split(entry.path)
        if visible(directory) if directory else entry.path == name:  # in a bucket, "/name" lies in no directory
            children.setdefault(directory, []).append(entry)
    return {path: _parse_directory(path, children[path]) for path in sorted(children)}


def _parse_directory(path: str, entries: list[Entry]) -> Directory:
    by_name = ((names.split(entry.path)[1], entry) for entry in entries)
    log = parse_log(entries)
    shown = {name: entry for name, entry in by_name if not names.is_hidden(name)}
    files = {name: entry for name, entry in shown.items() if names.counts_as_data(name)}
    foreign = tuple(entry for name, entry in shown.items() if name not in files)
    return Directory(path, files, log, uncommitted=frozenset(log.started), foreign=foreign)


def is_empty(directories: Mapping[str, Directory]) -> bool:
    """Whether there is neither a data file nor a marker in any directory: then a table may be created at the root."""
    return not any(map(is_used, directories.values()))


def is_used(directory: Directory) -> bool:
    """Whether it holds a data file or a marker."""
    log = directory.log
    return bool(directory.files or log.started or log.committed or log.descriptor)


def looks_torn(directory: Directory, markers: Mapping[str, CommitMarker], *, now: datetime) -> bool:
    """Whether the listing may have missed markers or files of a concurrent commit, and so must be repeated.

    `markers` are the directory's decoded commit markers by tid.
    """
    times = [entry.modified for entry in (*directory.files.values(), *directory.log.committed.values())]
    if max(times, default=now) < now - UNSETTLED:
        return False
    known = directory.log.started.keys() | directory.log.committed.keys()
    removed = {name for marker in markers.values() for name in marker.removed}
    return any((tid := names.parse_data_file(name)) and tid not in known for name in directory.files) or any(
        name not in directory.files and name not in removed for marker in markers.values() for name in marker.added
    )


def settle(first: Directory, second: Directory | None) -> Directory:
    """The directory as of the first listing, corrected by the second: later commits stay hidden.

    A file without markers is an old one, whose markers vacuum has purged, only if the first listing had it, too.
    `second` is None if the directory was removed.
    """
    if second is None:
        return replace(first, files={})
    committed = first.log.committed.keys()

    def is_later(name: str) -> bool:
        return name not in first.files and (tid := names.parse_data_file(name)) is not None and tid not in committed

    return replace(
        second,
        files={name: entry for name, entry in second.files.items() if not is_later(name)},
        log=first.log,
        uncommitted=first.uncommitted | second.uncommitted | (second.log.committed.keys() - committed),
    )


def visible_files(directory: Directory, markers: Mapping[str, CommitMarker]) -> tuple[DataFile, ...]:
    """What a reader should see of the directory. `markers` are its decoded commit markers by tid.

    A commit whose marker is not among them counts as not committed, since its start marker decides. DBIO does the same
    for markers that are corrupt and to be ignored.
    """
    removed = {name for marker in markers.values() for name in marker.removed}
    added = {tid: frozenset(marker.added) for tid, marker in markers.items()}
    partition = names.parse_partition(directory.path)

    def is_visible(name: str, tid: str | None) -> bool:
        if name in removed:
            return False
        if tid in added:
            return name in added[tid]
        return tid is None or tid not in directory.uncommitted

    return tuple(
        DataFile(entry.path, entry.size, tid, partition)
        for name, entry in directory.files.items()
        if is_visible(name, tid := names.parse_data_file(name))
    )


def merge_directories(markers: Mapping[str, CommitMarker]) -> CommitMarker:
    """One marker, with paths from the root, for a transaction that has a marker in each of several directories."""
    # If it was aborted in some directories only, it is committed.
    markers = {directory: marker for directory, marker in markers.items() if not marker.is_abort} or markers
    infos = [marker.dbio_commit for marker in markers.values() if marker.dbio_commit]
    return CommitMarker(
        added=[names.join(directory, name) for directory, marker in markers.items() for name in marker.added],
        removed=[names.join(directory, name) for directory, marker in markers.items() for name in marker.removed],
        dbio_commit=structs.replace(infos[0], files=None) if infos else None,
    )


def commits_in(directory: Directory, markers: Mapping[str, CommitMarker]) -> list[Decided]:
    """The transactions decided in one directory, with paths from the root. `markers` are its decoded commit markers by
    tid."""
    return [
        Decided(directory.log.committed[tid].modified, tid, merge_directories({directory.path: marker}))
        for tid, marker in markers.items()
    ]
