"""Finds all facts about one transaction: the report of `dbio show`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, ObjectNotFoundError, UnsupportedTableError
from dbio_commit.base.shown import Shown
from dbio_commit.log.joint import home_of
from dbio_commit.log.listing import read_descriptor, read_markers, read_start, until_quiet
from dbio_commit.log.opening import open_log
from dbio_commit.log.table_log import TableLog
from dbio_commit.log.table_state import table_snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit, Decided
from dbio_commit.protocol.directory import merge_directories
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.commit import CommitMarker, unpack_files
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.markers.provenance import Provenance
from dbio_commit.protocol.markers.start import StartMarker
from dbio_commit.protocol.state import UNKNOWN_SIZE
from dbio_commit.store import Store


class TransactionState(StrEnum):
    """The state of a transaction."""

    PENDING = "pending"
    """Neither committed nor aborted: its writer is at work, or dead."""
    COMMITTED = "committed"
    """Its files are, or were, part of the table."""
    ABORTED = "aborted"
    """Its abort was decided: it commits nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TransactionReport(Shown):
    """The facts about one transaction. Times are by the store's clock."""

    url: str
    """The root of the table."""
    tid: str
    """The id of the transaction."""
    state: TransactionState
    """In the directory scope: committed if it is committed in any directory, else pending if it is pending in any."""
    started: datetime | None
    """When it began; None if vacuum has purged the start marker and the tid has no time."""
    decided: datetime | None
    """When it was committed or aborted; None if it is pending."""
    commit: Commit | None
    """The content of its commit marker, also of an abort; None if there is none yet."""
    files: Sequence[FileInfo]
    """The files that it added; if it is not committed, its files that exist."""
    provenance: Provenance | None
    """Who made it, by its commit marker, or else by its start marker; None if nobody recorded that."""
    undecided: Sequence[str]
    """In the directory scope: the directories in which it has begun and is not decided."""
    home: str | None = None
    """For a pending joint transaction that another table decides: the URL of that table."""


def inspect_transaction(store: Store, clock: Clock, tid: str) -> TransactionReport:
    """Reads the markers of one transaction, and lists its files if no marker records them. Changes nothing.

    Raises InvalidInputError if it has no marker, TableNotFoundError, CorruptMarkerError.
    """
    return until_quiet(store, lambda: _inspect(store, clock, tid))


def _inspect(store: Store, clock: Clock, tid: str) -> TransactionReport:
    root = open_log(store, clock)
    logs, checkpoint = root.logs()
    for covered in checkpoint.whole([tid]):
        return _of_checkpoint(store, covered)
    started = {path: log.started[tid] for path, log in logs.items() if tid in log.started}
    decided = {path: log.committed[tid] for path, log in logs.items() if tid in log.committed}
    if not started and not decided:
        raise InvalidInputError(
            f"{store.url} has no marker of a transaction {tid!r}; `dbio log` lists what is committed, `dbio check` "
            "what is pending"
        )
    table_id = read_descriptor(store, logs[""]).id if isinstance(root, TableLog) else None
    read = read_markers(store, decided.values(), scope=root.scope, table_id=table_id)
    if read.strange:
        raise InvalidInputError(
            f"the marker {store.url_of(names.committed(tid))} has the id of another table, so this table ignores it; "
            "`dbio check` names all such objects"
        )
    found = read.only_valid(ignore_corrupt=False)
    markers = {path: found[entry.path] for path, entry in decided.items()}
    if isinstance(root, TableLog) and any(marker.removed_tids for marker in markers.values()):
        snapshot = table_snapshot(store, root.settled(), ignore_corrupt=True, unchecked=True)
        markers |= {"": it.marker for it in snapshot.whole([tid])}  # noqa: B035  (one, or too new)
    effective = {path: marker for path, marker in markers.items() if not marker.is_abort}
    undecided = sorted(started.keys() - decided.keys())
    infos = [it.dbio_commit for it in markers.values() if it.dbio_commit]
    provenance = next((it.provenance for it in infos if it.provenance), None)
    begun = None if provenance else _begun(store, started, table_id=table_id)
    when = max((entry.modified for entry in decided.values()), default=None)
    return TransactionReport(
        url=store.url,
        tid=tid,
        state=_state(committed=bool(effective), pending=bool(undecided)),
        started=min((entry.modified for entry in started.values()), default=None),
        decided=when,
        commit=Commit(tid=tid, timestamp=when, marker=merge_directories(markers)) if when else None,
        files=_added(store, effective) if effective else _written(store, tid),
        provenance=provenance or (begun.provenance if begun else None),
        undecided=undecided,
        home=home_of(store, begun) if undecided else None,
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
        provenance=commit.marker.dbio_commit.provenance if commit.marker.dbio_commit else None,
        undecided=(),
    )


def _begun(store: Store, started: Mapping[str, Entry], *, table_id: str | None) -> StartMarker | None:
    """The start marker in a table, if it can be read."""
    if table_id is not None and "" in started and started[""].size:
        with suppress(CorruptMarkerError, ObjectNotFoundError, UnsupportedTableError):  # a start marker decides nothing
            return read_start(store, started[""], table_id=table_id)
    return None


def _state(*, committed: bool, pending: bool) -> TransactionState:
    if committed:
        return TransactionState.COMMITTED
    return TransactionState.PENDING if pending else TransactionState.ABORTED


def _added(store: Store, markers: Mapping[str, CommitMarker]) -> list[FileInfo]:
    """The files that the markers add. Sizes that their writers left out are looked up."""
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
