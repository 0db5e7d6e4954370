"""What is wrong with a table, what is pending in it, and what is garbage: the reports of `dbio check` and `show`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache

from dbio_commit import names
from dbio_commit.applications import Application, list_applications
from dbio_commit.checkpoint import NO_CHECKPOINT, Checkpoint
from dbio_commit.clock import Clock
from dbio_commit.errors import CorruptMarkerError, InvalidInputError, TableNotFoundError
from dbio_commit.markers import CommitMarker, FileInfo, unpack_files
from dbio_commit.other_vacuum import find_signs
from dbio_commit.parquet import not_parquet
from dbio_commit.snapshot import (
    Scope,
    agreed_log,
    check_directories,
    check_partitions,
    read_checkpoint,
    read_descriptor,
    read_markers,
    refuse_dropped,
    until_quiet,
)
from dbio_commit.state import (
    UNKNOWN_SIZE,
    Commit,
    DataFile,
    Decided,
    Directory,
    Entry,
    Garbage,
    Log,
    classify,
    is_empty,
    is_foreign,
    merge_directories,
    parse_directories,
    parse_log,
    visible_files,
)
from dbio_commit.store import Store


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


# --- one transaction ----------------------------------------------------------------------------------------------


class TransactionState(StrEnum):
    PENDING = "pending"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionReport:
    """What is known of one transaction. Times are by the store's clock."""

    url: str
    tid: str
    state: TransactionState
    """In the directory scope: committed where any directory is, else pending where any directory is."""
    started: datetime | None
    """None where vacuum has purged the start marker and the tid does not tell."""
    decided: datetime | None
    commit: Commit | None
    """What its commit marker says, aborts included; None where there is none yet."""
    files: Sequence[FileInfo]
    """What it added; of a transaction that is not committed, its files that are there."""
    undecided: Sequence[str]
    """In the directory scope: the directories where it has started and is not decided."""


def inspect_transaction(store: Store, tid: str) -> TransactionReport:
    """Reads the markers of one transaction, and lists its files where no marker tells them; changes nothing.

    Raises InvalidInputError where there is no marker of it, TableNotFoundError, CorruptMarkerError.
    """
    return until_quiet(store, lambda: _inspect(store, tid))


def _inspect(store: Store, tid: str) -> TransactionReport:
    scope, logs, checkpoint = _logs(store)
    if covered := next((commit for commit in checkpoint.commits if commit.tid == tid), None):
        return _of_checkpoint(store, covered)
    started = {path: log.started[tid] for path, log in logs.items() if tid in log.started}
    decided = {path: log.committed[tid] for path, log in logs.items() if tid in log.committed}
    if not started and not decided:
        raise InvalidInputError(
            f"{store.url} has no marker of a transaction {tid!r}; `dbio log` lists what is committed, `dbio check` "
            "what is pending"
        )
    found, corrupt = read_markers(store, decided.values(), scope=scope)
    if corrupt:
        raise next(iter(corrupt.values()))
    markers = {path: found[entry.path] for path, entry in decided.items()}
    effective = {path: marker for path, marker in markers.items() if not marker.is_abort}
    undecided = sorted(started.keys() - decided.keys())
    when = max((entry.modified for entry in decided.values()), default=None)
    return TransactionReport(
        url=store.url,
        tid=tid,
        state=_state(committed=bool(effective), pending=bool(undecided)),
        started=min((entry.modified for entry in started.values()), default=None),
        decided=when,
        commit=Commit(tid=tid, timestamp=when, marker=merge_directories(markers)) if when else None,
        files=_added(store, effective) if effective else _written(store, tid),
        undecided=undecided,
    )


def _of_checkpoint(store: Store, commit: Decided) -> TransactionReport:
    return TransactionReport(
        url=store.url,
        tid=commit.tid,
        state=TransactionState.ABORTED if commit.marker.is_abort else TransactionState.COMMITTED,
        started=names.parse_tid_time(commit.tid),
        decided=commit.modified,
        commit=Commit(tid=commit.tid, timestamp=commit.modified, marker=commit.marker, forgotten=commit.forgotten),
        files=_written(store, commit.tid) if commit.marker.is_abort else _added(store, {"": commit.marker}),
        undecided=(),
    )


def _logs(store: Store) -> tuple[Scope, dict[str, Log], Checkpoint]:
    """The logs that decide, by the directory that they decide about."""
    log = parse_log(store.list_log())
    refuse_dropped(store, log)
    if log.descriptor is not None:
        read_descriptor(store, log)  # refuses what a later version wrote
        return Scope.TABLE, {"": log}, read_checkpoint(store, log)
    directories = parse_directories(store.list_files())
    if is_empty(directories):
        raise TableNotFoundError(f"there is no table at {store.url}; check the path")
    return Scope.DIRECTORY, {path: directory.log for path, directory in directories.items()}, NO_CHECKPOINT


def _state(*, committed: bool, pending: bool) -> TransactionState:
    if committed:
        return TransactionState.COMMITTED
    return TransactionState.PENDING if pending else TransactionState.ABORTED


def _added(store: Store, markers: Mapping[str, CommitMarker]) -> list[FileInfo]:
    """The files that the markers add, with the sizes that their writers left out."""
    files: list[FileInfo] = []
    for directory, marker in markers.items():
        described = [replace(file, path=names.join(directory, file.path)) for file in unpack_files(marker)]
        files += described or [_unknown(names.join(directory, path)) for path in marker.added]
    unknown = [file.path for file in files if file.size == UNKNOWN_SIZE]
    sizes = {entry.path: entry.size for entry in store.stat_many(unknown) if entry}
    return [replace(file, size=sizes[file.path]) if file.path in sizes else file for file in files]


def _unknown(path: str) -> FileInfo:
    return FileInfo(path=path, size=UNKNOWN_SIZE, partition=names.parse_partition(names.split(path)[0]))


def _written(store: Store, tid: str) -> list[FileInfo]:
    return [
        replace(_unknown(entry.path), size=entry.size)
        for entry in store.list_files()
        if names.is_data_file(entry.path) and names.parse_data_file(names.split(entry.path)[1]) == tid
    ]
