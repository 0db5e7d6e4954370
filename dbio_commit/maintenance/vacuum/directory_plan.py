"""Decides what vacuum deletes from a directory of the directory scope, and in which order, as DBIO does.

Pure except for reading. Rules: PROTOCOL.md section 11.4. A data file is deleted while its markers still hide it. A
marker is deleted after everything that it hides is gone: it is put into a queue, from which the next vacuum deletes it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.log.listing import read_marker, read_markers
from dbio_commit.maintenance.vacuum.plan import ABORTS_KEPT, Candidate, Horizons, checksums, lost_checksums
from dbio_commit.protocol import names
from dbio_commit.protocol.directory import Directory, commits_in, parse_directories, visible_files
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import FileStates, Reason
from dbio_commit.protocol.markers.bodies import INSPECT
from dbio_commit.protocol.markers.commit import CommitMarker, decode_commit
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

MOST_QUEUED = 100_000
"""The most markers that one queue lists: a queue is a marker, and has at most 64 MiB."""


@dataclass(frozen=True)
class DbioDirectory:
    """One directory with its markers read."""

    path: str
    entries: Mapping[str, Entry]
    """All objects in the directory by name, markers included."""
    directory: Directory
    markers: Mapping[str, CommitMarker]
    """The commit markers, by tid."""
    queues: Mapping[str, Sequence[str]]
    """The markers that each `_committed_vacuum<id>` lists, by its name."""

    @cached_property
    def files_by_tid(self) -> Mapping[str, Set[str]]:
        """The paths of the data files, by the tid in their names."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for name, entry in self.directory.files.items():
            if tid := names.parse_data_file(name):
                found[tid].add(entry.path)
        return found

    def hidden_by(self, tid: str) -> Set[str]:
        """The paths of the data files that readers would see without this commit marker."""
        marker = self.markers[tid]
        shown = (name for name in marker.removed if name in self.entries and not names.is_hidden(name))
        removed = {self.entries[name].path for name in shown}
        return removed | (self.files_by_tid.get(tid, set()) - {names.join(self.path, name) for name in marker.added})


def read_directories(store: Store, entries: Iterable[Entry]) -> list[DbioDirectory]:
    """The directories with their markers.

    Raises CorruptMarkerError for the first marker that cannot be read, ObjectNotFoundError for one that has gone.
    """
    entries = list(entries)
    parsed = parse_directories(entries)
    by_directory: defaultdict[str, dict[str, Entry]] = defaultdict(dict)
    for entry in entries:
        directory, name = names.split(entry.path)
        by_directory[directory][name] = entry
    committed = [entry for directory in parsed.values() for entry in directory.log.committed.values()]
    markers, corrupt, *_ = read_markers(store, committed, scope=Scope.DIRECTORY).refuse_gone()
    if corrupt:
        raise next(iter(corrupt.values()))
    queues = _read_queues(store, entries)
    return [
        DbioDirectory(
            path=path,
            entries=by_directory[path],
            directory=directory,
            markers={tid: markers[entry.path] for tid, entry in directory.log.committed.items()},
            queues={name: queues[entry.path] for name, entry in by_directory[path].items() if entry.path in queues},
        )
        for path, directory in parsed.items()
    ]


def _read_queues(store: Store, entries: Iterable[Entry]) -> dict[str, list[str]]:
    queues: dict[str, list[str]] = {}
    found = [entry for entry in entries if entry.size and _kind(entry) is Kind.VACUUM]
    for (path, _, _), body in zip(found, store.ask_each(partial(read_marker, store), found), strict=True):
        listed = decode_commit(body, where=store.url_of(path)).removed
        if strange := next((name for name in listed if "/" in name), None):
            raise CorruptMarkerError(f"{store.url_of(path)} names {strange[:200]!r} in another directory; {INSPECT}")
        queues[path] = listed
    return queues


def _kind(entry: Entry) -> Kind | None:
    parsed = names.parse_log_name(names.split(entry.path)[1])
    return parsed.kind if parsed else None


def is_marker(entry: Entry) -> bool:
    return _kind(entry) is not None


# --- the steps, in their order; `gone` are the paths that earlier steps have deleted ------------------------------


def data_files(it: DbioDirectory, horizons: Horizons) -> list[Candidate]:
    """The files that no reader sees. Their age counts by the modification times of markers, not of files."""
    visible = {file.path for file in visible_files(it.directory, it.markers)}
    known = FileStates.of(commits_in(it.directory, it.markers), live=visible, log=it.directory.log)
    found: list[Candidate] = []
    for name, entry in it.entries.items():
        why = None if names.is_hidden(name) else known.why_not_live(entry)
        if why is None or why.reason in (Reason.UNTRACKED, Reason.UNKNOWN):
            continue  # it is live here, or not a data file
        is_dated = why.reason in (Reason.REMOVED, Reason.PENDING)
        due = why.since < horizons.data if is_dated else why.reason is not Reason.NOT_DATA
        found.append(Candidate.of(entry, why, due=due))
    entries = it.entries.values()
    return found + checksums(entries, found) + lost_checksums(entries, frozenset(), horizons)


def start_markers(it: DbioDirectory, horizons: Horizons) -> list[Candidate]:
    """The start markers of committed transactions, and empty commit markers, which count as absent."""
    log = it.directory.log
    found = [
        Candidate.marker(start, Reason.START_MARKER)
        for tid, start in log.started.items()
        if tid in it.markers and start.modified < horizons.metadata
    ]
    found += [
        Candidate.marker(entry, Reason.EMPTY_MARKER)
        for entry in it.entries.values()
        if not entry.size and _kind(entry) in (Kind.COMMITTED, Kind.VACUUM) and entry.modified < horizons.data
    ]
    return found + checksums(it.entries.values(), found)


def queued_markers(it: DbioDirectory, horizons: Horizons, gone: Set[str]) -> list[Candidate]:
    """The queued markers that hide nothing. That is checked again, since any process may have written the queue."""
    found: dict[str, Candidate] = {}
    for queue, listed in it.queues.items():
        entry = it.entries.get(queue)
        if entry is None or not entry.modified < horizons.metadata:
            continue
        for name in listed:
            marker = it.entries.get(name)
            if marker is not None and _may_go(it, name, marker, horizons, gone):
                found[name] = Candidate.marker(marker, Reason.QUEUED)
    return [*found.values(), *checksums(it.entries.values(), found.values())]


def without_the_last(
    directories: Iterable[DbioDirectory], queued: Sequence[Candidate], gone: Set[str]
) -> Sequence[Candidate]:
    """The queued markers without the newest commit marker, if no data file and no other marker would be left.

    Otherwise readers, which see an empty table, would find nothing there afterwards.
    """
    left = {
        names.join(it.path, name): entry
        for it in directories
        for name, entry in it.entries.items()
        if names.is_data_file(name) or _may_be_queued(name)
    }
    leaving = {candidate.path for candidate in queued}
    if left.keys() - gone - leaving:
        return queued
    committed = [path for path in left.keys() & leaving if _kind(left[path]) is Kind.COMMITTED]
    last = max(committed, key=lambda path: (left[path].modified, path), default=None)
    return [candidate for candidate in queued if candidate.path != last]


def queues(it: DbioDirectory, horizons: Horizons, gone: Set[str]) -> list[Candidate]:
    """The queues whose listed markers are all gone."""
    found: list[Candidate] = []
    for queue, listed in it.queues.items():
        entry = it.entries.get(queue)
        left = [name for name in listed if _may_be_queued(name) and _exists(it, name, gone)]
        if entry is not None and entry.modified < horizons.metadata and not left:
            found.append(Candidate.marker(entry, Reason.QUEUED))
    return found


def to_queue(it: DbioDirectory, horizons: Horizons, gone: Set[str]) -> list[str]:
    """The names of the markers that the next vacuum may delete: at most MOST_QUEUED. The next one queues the others."""
    waiting = {name for queue, listed in it.queues.items() if _exists(it, queue, gone) for name in listed}
    log = it.directory.log
    candidates = {names.started(tid): entry for tid, entry in log.started.items() if tid not in it.markers}
    for tid, entry in log.committed.items():
        removes_data = any(map(names.is_data_file, it.markers[tid].removed))
        if entry.modified < (horizons.data if removes_data else horizons.metadata):
            candidates[names.committed(tid)] = entry
    found = (
        name
        for name, entry in sorted(candidates.items())
        if name not in waiting and _exists(it, name, gone) and _may_go(it, name, entry, horizons, gone)
    )
    return [*islice(found, MOST_QUEUED)]


def _may_go(it: DbioDirectory, name: str, marker: Entry, horizons: Horizons, gone: Set[str]) -> bool:
    """Whether nothing changes for readers if the marker is deleted."""
    parsed = names.parse_log_name(name)
    if parsed is None or not _may_be_queued(name):
        return False
    tid = parsed.id
    if parsed.kind is Kind.STARTED:
        return tid in it.markers or (marker.modified < horizons.data and gone >= it.files_by_tid.get(tid, set()))
    if tid not in it.markers or _exists(it, names.started(tid), gone):
        return False  # the start marker alone would make the transaction look pending
    if it.markers[tid].is_abort and not marker.modified < horizons.now - ABORTS_KEPT:
        return False
    return gone >= it.hidden_by(tid)


def _exists(it: DbioDirectory, name: str, gone: Set[str]) -> bool:
    return it.entries.get(name) is not None and names.join(it.path, name) not in gone


def _may_be_queued(name: str) -> bool:
    parsed = names.parse_log_name(name)
    return parsed is not None and parsed.kind in (Kind.STARTED, Kind.COMMITTED)
