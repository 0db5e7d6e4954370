"""What is wrong with a table, what is pending in it, and what is garbage: the report of `dbio check`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from dbio_commit.clock import Clock
from dbio_commit.data.parquet import not_parquet
from dbio_commit.errors import CorruptMarkerError, TableNotFoundError
from dbio_commit.listing import agreed_log, read_descriptor, read_markers, refuse_dropped, until_quiet
from dbio_commit.protocol import names
from dbio_commit.protocol.applications import Application, list_applications
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.directory import Directory, is_empty, merge_directories, parse_directories, visible_files
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Garbage, classify, is_foreign
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers import CommitMarker
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import UNKNOWN_SIZE, DataFile
from dbio_commit.roots.directory import check_directories
from dbio_commit.roots.table import check_partitions
from dbio_commit.store import Store
from dbio_commit.upkeep.other_vacuum import find_signs


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransaction:
    """A transaction that is neither committed nor aborted: at work, or dead."""

    tid: str
    started: datetime
    """By the store's clock."""
    age: timedelta
    files: int
    size: int
    """Of its files so far, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongSize:
    """A live file that is not as long as its marker says; both sizes in bytes."""

    path: str
    expected: int
    found: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What `check` found. Paths are relative to the root, sizes in bytes."""

    url: str
    scope: Scope
    live_files: int
    live_size: int
    missing: Sequence[str]
    """Live files that are not there."""
    missing_size: int
    """Of those, as far as their markers say."""
    wrong_size: Sequence[WrongSize]
    corrupt: Mapping[str, str]
    """Commit markers that cannot be read, or that make the table unreadable: path -> what is wrong."""
    pending: Sequence[PendingTransaction]
    """Oldest first."""
    garbage: Mapping[Garbage, Sequence[Entry]]
    foreign: Sequence[Entry]
    """What lies there in the open and is no Parquet: no part of the table, and nobody touches it."""
    applications: Sequence[Application] = ()
    """That have committed, by id."""
    another_vacuum: Sequence[str] = ()
    """What shows that another tool's vacuum has been at a table of ours: markers of commits may be gone."""

    @property
    def ok(self) -> bool:
        """Whether all that readers are promised is there. What is pending, and garbage, is nothing wrong."""
        return not (self.missing or self.wrong_size or self.corrupt or self.another_vacuum)


def check_table(store: Store, clock: Clock) -> CheckReport:
    """Reads every marker and lists every file; changes nothing. Raises as `read_snapshot` does."""
    return until_quiet(store, lambda: _check(store, clock))


def _check(store: Store, clock: Clock) -> CheckReport:
    entries = store.list_files()
    scope, directories, checkpoint, columns = _directories(store, clock, entries)
    logs = [directory.log for directory in directories.values()]
    told = [entry for log in logs for entry in log.uncovered(checkpoint.covered).values()]
    markers, corrupt = read_markers(store, told, scope=scope)
    live: set[str] = set()
    foreign = {entry.path for entry in entries if is_foreign(entry.path)}
    expected: dict[str, int] = {}
    garbage: dict[Garbage, list[Entry]] = {}
    for path, directory in directories.items():
        log = directory.log
        own = {commit.tid: commit.marker for commit in checkpoint.commits}
        own |= {tid: markers[entry.path] for tid, entry in log.committed.items() if entry.path in markers}
        named = _expected(path, own.values())
        expected |= named
        if scope is Scope.TABLE:
            live |= named.keys()
        else:
            visible = {file.path: file.size for file in visible_files(directory, own)}
            other = not_parquet(store, visible.items())
            live |= visible.keys() - set(other)
            foreign |= set(other)
        if columns is not None:
            corrupt |= _misplaced(store, own, live=live, columns=columns)
        from_root = {tid: merge_directories({path: marker}) for tid, marker in own.items()}
        files = (entry for entry in directory.files.values() if entry.path not in foreign)
        for reason, useless in classify(files, live=live, log=log, markers=from_root).items():
            garbage.setdefault(reason, []).extend(useless)
    found = {entry.path: entry.size for entry in entries}
    overlooked = store.stat_many([path for path in expected if path not in found])  # committed since that listing
    found |= {entry.path: entry.size for entry in overlooked if entry}
    return CheckReport(
        url=store.url,
        scope=scope,
        live_files=len(live),
        live_size=sum(found.get(path, 0) for path in live),
        missing=sorted(expected.keys() - found.keys()),
        missing_size=sum(size for path, size in expected.items() if path not in found and size != UNKNOWN_SIZE),
        wrong_size=[
            WrongSize(path=path, expected=size, found=found[path])
            for path, size in sorted(expected.items())
            if size != UNKNOWN_SIZE and found.get(path, size) != size
        ],
        corrupt={path: str(error) for path, error in corrupt.items()},
        pending=_pending(logs, entries, clock.now()),
        garbage=garbage,
        foreign=[entry for entry in entries if entry.path in foreign and entry.path not in live],
        applications=_applications(logs, checkpoint, markers, clock.now()) if scope is Scope.TABLE else [],
        another_vacuum=_another_vacuum(store, scope, logs, checkpoint, now=clock.now()),
    )


def _applications(
    logs: Iterable[Log], checkpoint: Checkpoint, markers: Mapping[str, CommitMarker], now: datetime
) -> list[Application]:
    told = [
        Decided(entry.modified, tid, markers[entry.path])
        for log in logs
        for tid, entry in log.uncovered(checkpoint.covered).items()
        if entry.path in markers
    ]
    return list_applications([*checkpoint.commits, *told], remembered=checkpoint.apps, now=now)


def _directories(
    store: Store, clock: Clock, entries: Sequence[Entry]
) -> tuple[Scope, dict[str, Directory], Checkpoint, tuple[str, ...] | None]:
    """By the directory whose markers decide: the files that they decide about, and those markers; partition columns.

    The log of a table is read after its files were listed, so that no commit in between makes them look like garbage.
    """
    log = parse_log(store.list_log())
    refuse_dropped(store, log)
    if log.descriptor is not None:
        log, checkpoint = agreed_log(store, log, clock)
        columns = tuple(read_descriptor(store, log).partition_columns)
        files = {entry.path: entry for entry in entries if names.is_data_file(entry.path)}
        return Scope.TABLE, {"": Directory("", files, log, uncommitted=frozenset())}, checkpoint, columns
    directories = parse_directories(entries)
    check_directories(store, (entry.path for entry in entries))
    if is_empty(directories):
        raise TableNotFoundError(f"there is no table at {store.url}; check the path")
    return Scope.DIRECTORY, directories, NO_CHECKPOINT, None


def _misplaced(
    store: Store, markers: Mapping[str, CommitMarker], *, live: Set[str], columns: tuple[str, ...]
) -> dict[str, CorruptMarkerError]:
    """The commit markers, by path, for which readers refuse the table: they add files outside of its partitions."""
    corrupt = {}
    partition_of = cache(names.parse_partition)
    for tid, marker in markers.items():
        added = [path for path in marker.added if path in live]
        files = [DataFile(path, UNKNOWN_SIZE, tid, partition_of(names.split(path)[0])) for path in added]
        try:
            check_partitions(store, files, columns)
        except CorruptMarkerError as error:
            corrupt[names.committed(tid)] = error
    return corrupt


def _expected(directory: str, markers: Iterable[CommitMarker]) -> dict[str, int]:
    """The files that the markers together say are live, with their sizes as far as they say."""
    markers = list(markers)
    removed = {path for marker in markers for path in marker.removed}
    return {
        names.join(directory, path): size for marker in markers for path, size in _sized(marker) if path not in removed
    }


def _sized(marker: CommitMarker) -> Iterator[tuple[str, int]]:
    files = marker.dbio_commit.files if marker.dbio_commit else None
    return zip(marker.added, files.size if files else [UNKNOWN_SIZE] * len(marker.added), strict=True)


def _another_vacuum(
    store: Store, scope: Scope, logs: Iterable[Log], checkpoint: Checkpoint, *, now: datetime
) -> Sequence[str]:
    if scope is not Scope.TABLE:
        return ()  # there it is welcome
    return [text for log in logs for text in find_signs(store, log, checkpoint.covered, now=now).in_words()]


def _pending(logs: Iterable[Log], entries: Sequence[Entry], now: datetime) -> list[PendingTransaction]:
    started: dict[str, datetime] = {}
    for log in logs:
        for tid in log.pending:
            started[tid] = min(log.started[tid].modified, started.get(tid, now))
    sizes: dict[str, list[int]] = {tid: [] for tid in started}
    for entry in entries:
        writer = names.parse_data_file(names.split(entry.path)[1])
        if writer in sizes:
            sizes[writer].append(entry.size)
    return [
        PendingTransaction(tid=tid, started=at, age=now - at, files=len(sizes[tid]), size=sum(sizes[tid]))
        for tid, at in sorted(started.items(), key=lambda item: item[1])
    ]
