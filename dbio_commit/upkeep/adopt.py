"""Makes a table of a plain or DBIO directory."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from dbio_commit.begin import create_descriptor
from dbio_commit.clock import Clock
from dbio_commit.data.parquet import not_parquet
from dbio_commit.errors import (
    CommitConflictError,
    InvalidInputError,
    StoreError,
    TableExistsError,
    TransactionStateError,
)
from dbio_commit.probe import create
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint, encode_checkpoint
from dbio_commit.protocol.commits import Commit, Decided
from dbio_commit.protocol.directory import Directory, parse_directories
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import REFUSAL, parse_log
from dbio_commit.protocol.markers import CommitInfo, CommitMarker, FileInfo, pack_files
from dbio_commit.protocol.scope import Scope
from dbio_commit.roots import read_snapshot
from dbio_commit.snapshot import Snapshot
from dbio_commit.store import Store
from dbio_commit.tids import new_tid, new_uuid

_TICK = timedelta(microseconds=1)  # what was committed before an adoption is older than it, also in the same second


def adopt(store: Store, clock: Clock) -> Commit:
    """Makes a table of a plain or DBIO directory: a checkpoint of what is visible now, then the descriptor.

    Moves and deletes nothing; what is hidden now counts as removed. Raises TransactionStateError while a transaction
    is pending, TableExistsError where it is a table already, InvalidInputError where its files lie in different
    partition columns, CommitConflictError where somebody wrote meanwhile.
    """
    entries = store.list_files()  # before the snapshot: what is not visible in that has been hidden since
    snapshot = read_snapshot(store, clock)
    if snapshot.scope is Scope.TABLE:
        raise TableExistsError(f"{store.url} is a table of ours already; there is nothing to do")
    snapshot.refuse_patterns()
    directories = parse_directories(entries)
    _refuse_pending(store, directories)
    columns = _partition_columns(store, snapshot)
    at = max(entry.modified for entry in entries)
    commit = _adoption(clock, snapshot, _hidden(store, snapshot, directories), at=at)
    # As it was then: where somebody else adopts at the same time, nothing that came later may count as covered.
    log = parse_log(entry for entry in entries if "/" not in entry.path)
    covered = [
        Decided(min(entry.modified, at - _TICK), tid, CommitMarker(added=[], removed=[]))
        for tid, entry in log.committed.items()
    ]
    table_id = new_uuid(clock)
    checkpoint = Checkpoint(
        number=log.checkpoint_after(log.last_checkpoint),
        table_id=table_id,
        commits=(*covered, commit),
        known_since=commit.modified,
    )
    name, body = names.checkpoint(checkpoint.number), encode_checkpoint(checkpoint, created=clock.now())
    if not create(store, name, body):
        raise CommitConflictError(f"somebody else is adopting {store.url}; look at it with `dbio check`")
    _refuse_change(store, entries, number=checkpoint.number)
    created = create_descriptor(store, clock, table_id, columns)
    _warn_of_late_writers(store, entries)
    if not created:
        raise TableExistsError(f"{store.url} was made a table by somebody else just now; look at it with `dbio check`")
    return Commit(tid=commit.tid, timestamp=commit.modified, marker=commit.marker, foreign=snapshot.foreign)


def _refuse_pending(store: Store, directories: Mapping[str, Directory]) -> None:
    pending = sorted({tid for directory in directories.values() for tid in directory.log.pending})
    if pending:
        raise TransactionStateError(
            f"{len(pending)} transactions are pending in {store.url}, first {pending[0]}: what they write would be "
            "lost; wait for them, or end them with `dbio abort`, or run `dbio vacuum` once they have timed out"
        )


def _partition_columns(store: Store, snapshot: Snapshot) -> tuple[str, ...]:
    columns = names.common_partition_columns(names.split(file.path)[0] for file in snapshot.files)
    if columns is None:
        raise InvalidInputError(
            f"the files of {store.url} do not all lie in the same partition columns; a table has the same for all "
            "of its files: move those that belong elsewhere first"
        )
    return names.check_partition_columns(columns)


def _hidden(store: Store, snapshot: Snapshot, directories: Mapping[str, Directory]) -> list[str]:
    """The Parquet files that readers do not see, by their paths."""
    seen = {file.path for file in snapshot.files} | set(snapshot.foreign)
    entries = (entry for directory in directories.values() for entry in directory.files.values())
    hidden = {entry.path: entry.size for entry in entries if entry.path not in seen}
    other = set(not_parquet(store, hidden.items()))
    return [path for path in hidden if path not in other]


def _adoption(clock: Clock, snapshot: Snapshot, hidden: list[str], *, at: datetime) -> Decided:
    """A commit that adds all that is visible, and removes all that is hidden."""
    files = [FileInfo(path=file.path, size=file.size, partition=file.partition) for file in snapshot.files]
    info = CommitInfo(
        operation="adopt",
        commit_id=new_uuid(clock),
        timestamp=clock.now(),
        metrics={"numFiles": len(files), "numOutputBytes": sum(file.size for file in files)},
        files=pack_files(files),
    )
    marker = CommitMarker(added=[file.path for file in files], removed=hidden, dbio_commit=info)
    return Decided(at, new_tid(clock), marker)


def _refuse_change(store: Store, before: Sequence[Entry], *, number: int) -> None:
    """Of data files and markers; the checkpoint itself is new, and put out of use, since nobody may commit beside it.

    It is not deleted: a request to delete it may land late, when another adoption has a checkpoint of that name.
    """
    now = store.list_files()
    if _written(before) != _written(now):
        if all(entry.path != names.DESCRIPTOR for entry in now):
            store.put_if_absent(names.checkpoint(number + 1), REFUSAL)
        raise CommitConflictError(
            f"somebody wrote to {store.url} while it was adopted; nothing has changed: stop the writers, and try again"
        )


def _written(entries: Sequence[Entry]) -> set[Entry]:
    return {e for e in entries if not names.split(e.path)[1].startswith(names.Kind.CHECKPOINT)}


def _warn_of_late_writers(store: Store, before: Sequence[Entry]) -> None:
    known = {entry.path for entry in before}
    late = sorted(e.path for e in store.list_files() if e.path not in known and _is_late(e.path))
    if late:
        raise StoreError(
            f"{store.url} is a table now, but {len(late)} files or markers, first {late[0]}, came in that moment by "
            "the rules that held before: what they add or remove is not in the table; write it again"
        )


def _is_late(path: str) -> bool:
    """Whether somebody put it there who did not know of the table. Markers at the root count as before."""
    directory, name = names.split(path)
    if names.parse_log_name(name):
        return bool(directory)
    return names.is_data_file(path) and names.counts_as_data(name) and names.parse_data_file(name) is None
