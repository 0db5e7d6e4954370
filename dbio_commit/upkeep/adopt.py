"""Makes a table of a plain or DBIO directory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CommitConflictError,
    InvalidInputError,
    StoreError,
    TableExistsError,
    TransactionStateError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.base.texts import command
from dbio_commit.commit.begin import create_descriptor
from dbio_commit.commit.probe import create
from dbio_commit.commit.roots import read_snapshot
from dbio_commit.commit.tids import new_tid, new_uuid
from dbio_commit.data.fitting import Alike, respelled, unite, without
from dbio_commit.data.parquet import not_parquet
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.unlike import Progress, look_at_all, silent
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint, encode_checkpoint
from dbio_commit.protocol.commits import Commit, Decided, count_rows
from dbio_commit.protocol.directory import Directory, parse_directories
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import REFUSAL, parse_log
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker
from dbio_commit.protocol.markers.descriptor import ADOPTED
from dbio_commit.protocol.markers.files import FileInfo, pack_files
from dbio_commit.protocol.markers.schema import pack_schema
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import Metadata
from dbio_commit.protocol.types import is_partition
from dbio_commit.store import Store

_log = get_logger(__name__)

_TICK = timedelta(microseconds=1)  # what was committed before an adoption is older than it, also in the same second

_MOST_NAMED = 10
"""Files, in one message."""


def adopt(store: Store, clock: Clock, *, looks: bool, progress: Progress = silent) -> Commit:
    """Makes a table of a plain or DBIO directory: a checkpoint of what is visible now, then the descriptor.

    Moves and deletes nothing; what is hidden now counts as removed. `looks` at the footers of all files, by a request
    for each: they say which columns the table has. Raises TransactionStateError while a transaction is pending,
    TableExistsError where it is a table already, InvalidInputError where its files lie in different partition columns
    or some are what not all readers can read, SchemaMismatchError where their columns do not fit together,
    CommitConflictError where somebody wrote meanwhile.
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
    found = _look(store, snapshot, entries, progress) if looks else _Found()
    commit = _adoption(clock, snapshot, _hidden(store, snapshot, directories), found, at=at)
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
        metadata=Metadata(found.schema, 0),
    )
    name, body = names.checkpoint(checkpoint.number), encode_checkpoint(checkpoint, created=clock.now())
    if not create(store, name, body):
        raise CommitConflictError(f"somebody else is adopting {store.url}; look at it with `dbio check`")
    _refuse_change(store, entries, number=checkpoint.number)
    properties = {} if found.schema is None else {ADOPTED: commit.tid}
    created = create_descriptor(store, clock, table_id, columns, properties)
    _warn_of_late_writers(store, entries)
    if not created:
        raise TableExistsError(f"{store.url} was made a table by somebody else just now; look at it with `dbio check`")
    for note in found.notes:
        _log.warning("%s: %s", store.url, note)
    return Commit(
        tid=commit.tid,
        timestamp=commit.modified,
        marker=commit.marker,
        foreign=snapshot.foreign,
        notes=tuple(found.notes),
    )


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


# --- what is in the files -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """What the footers of the files say; nothing where nobody looked."""

    schema: Mapping[str, Any] | None = None
    rows: Mapping[str, int | None] = field(default_factory=dict)
    """Of each file, by its path."""
    notes: Sequence[str] = ()
    """What is to be known of some files, and which."""


def _look(store: Store, snapshot: Snapshot, entries: Sequence[Entry], progress: Progress) -> _Found:
    """Raises InvalidInputError, SchemaMismatchError."""
    ages = {entry.path: number for number, entry in enumerate(sorted(entries, key=lambda it: (it.modified, it.path)))}
    newest_first = sorted((file.path for file in snapshot.files), key=lambda path: -ages.get(path, len(ages)))
    rows: dict[str, int | None] = {}
    groups: dict[str, Alike] = {}
    wrong: list[str] = []
    for path, footer in look_at_all(store, newest_first, progress):
        if footer is None:
            raise CommitConflictError(
                f"{store.url_of(path)} was removed while {store.url} was adopted; nothing has changed: stop the "
                "writers, and try again"
            )
        if refusal := footer.refusal(store.url_of(path)):
            wrong.append(refusal)
        elif footer.columns is not None:
            inside = without(footer.columns, snapshot.partition_columns)
            groups.setdefault(json.dumps(inside), Alike([], inside)).files.append(path)
        rows[path] = footer.rows
    if wrong:
        raise InvalidInputError(
            f"{store.url} cannot be a table for {len(wrong)} of its files, and nothing has changed: {_some(wrong)}. "
            "Write these anew, or move what is no data elsewhere, then adopt it again"
        )
    if not groups:
        return _Found(rows=rows)
    columns = unite([*groups.values()], where=store.url)
    notes = [
        f"in {_some(paths)}, {why}: readers of what is published would take it for null, until "
        f"`{command('dbio', 'compact', store.url)}` has written these files anew"
        for why, paths in _respelled([*groups.values()], columns).items()
    ]
    partition, texts = _partition_fields(snapshot)
    schema = {**columns, "fields": [*columns["fields"], *partition]}
    return _Found(schema=schema, rows=rows, notes=[*notes, *texts])


def _respelled(groups: Sequence[Alike], columns: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """By what is spelled otherwise, the files."""
    found: dict[str, list[str]] = {}
    for group in groups:
        if why := respelled(group.columns, columns):
            found.setdefault(why, []).extend(group.files)
    return found


def _partition_fields(snapshot: Snapshot) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The partition columns, of the types that Spark infers, and notes on those that are not taken so."""
    from dbio_commit.data import columns as kinds  # which needs pyarrow, as whoever knows columns of files has it

    fields: list[Mapping[str, Any]] = []
    notes: list[str] = []
    for column in snapshot.partition_columns:
        values = {file.partition[column] for file in snapshot.files}
        kind = kinds.narrowest(values)
        if not is_partition(kind):
            told = sorted(value for value in values if value is not None)
            notes.append(
                f"the values of the partition column {column!r} look like numbers with a fraction, which no write can "
                f"partition by; the column holds texts: {_some(told)}"
            )
            kind = "string"
        fields.append(kinds.field(column, kind))
    return fields, notes


def _some(texts: Sequence[str]) -> str:
    more = f", and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more


# --- what is written ----------------------------------------------------------------------------------------------


def _adoption(clock: Clock, snapshot: Snapshot, hidden: list[str], found: _Found, *, at: datetime) -> Decided:
    """A commit that adds all that is visible, and removes all that is hidden."""
    files = [
        FileInfo(path=file.path, size=file.size, rows=found.rows.get(file.path), partition=file.partition)
        for file in snapshot.files
    ]
    rows = count_rows((file.path for file in files), found.rows) if found.rows else None
    info = CommitInfo(
        operation="adopt",
        commit_id=new_uuid(clock),
        timestamp=clock.now(),
        metrics={
            "numFiles": len(files),
            "numOutputBytes": sum(file.size for file in files),
            **({} if rows is None else {"numOutputRows": rows}),
        },
        files=pack_files(files),
        schema=pack_schema(found.schema),
        schema_turn=None if found.schema is None else 0,  # before any
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
