"""Turns a directory of plain Parquet files, or one that Databricks wrote (DBIO), into a dbio table: `Table.adopt`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CommitConflictError,
    CorruptMarkerError,
    InvalidInputError,
    StoreError,
    TableExistsError,
    TransactionStateError,
    UnsupportedStoreError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.base.progress import Progress, silent
from dbio_commit.base.texts import command
from dbio_commit.commit.begin import create_descriptor
from dbio_commit.commit.checkpoints import put_parts, withdraw_parts
from dbio_commit.commit.file_checks import columns_inside
from dbio_commit.commit.probe import create
from dbio_commit.commit.provenance import NO_NOTE, Note, provenance_of
from dbio_commit.commit.tids import new_tid, new_uuid
from dbio_commit.data.fitting import Alike, respelled, unite, without
from dbio_commit.data.footers import Footer
from dbio_commit.data.parquet import not_parquet
from dbio_commit.log.opening import outer_table, read_snapshot, refuse_inside
from dbio_commit.log.schema_drift import look_at_all
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import Commit, Decided, count_rows
from dbio_commit.protocol.directory import Directory, parse_directories
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import REFUSAL, parse_log
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker
from dbio_commit.protocol.markers.descriptor import ADOPTED
from dbio_commit.protocol.markers.files import FileInfo, pack_files
from dbio_commit.protocol.markers.provenance import Provenance
from dbio_commit.protocol.markers.schema import pack_schema, refuse_large
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import Metadata
from dbio_commit.protocol.types import is_partition
from dbio_commit.store import Store

_log = get_logger(__name__)

_TICK = timedelta(microseconds=1)  # earlier commits are older than the adoption, even in the same second

_MOST_NAMED = 10
"""How many files one message names."""


def adopt(store: Store, clock: Clock, *, looks: bool, progress: Progress = silent, note: Note = NO_NOTE) -> Commit:
    """Turns a plain or DBIO directory into a dbio table: writes a checkpoint of the visible files, then the descriptor.

    Moves and deletes nothing. Files that are hidden now count as removed. `looks` reads the footers of all files, by
    one request each, and records the columns of the table. `note` has the message and labels of the commit.

    Raises TransactionStateError if a transaction is pending, TableExistsError if it is a table already,
    InvalidInputError if its files lie in different partition columns, if some cannot be read by all readers, or if it
    lies in a table, SchemaMismatchError if their columns do not fit together, CommitConflictError if another process
    wrote meanwhile.
    """
    refuse_inside(store, outer_table(store))
    entries = store.list_files()  # before the snapshot: files that it does not show have been hidden since
    snapshot = read_snapshot(store, clock)
    if snapshot.scope is Scope.TABLE:
        raise TableExistsError(f"{store.url} is a dbio table already; there is nothing to do")
    snapshot.refuse_patterns()
    directories = parse_directories(entries)
    _refuse_pending(store, directories)
    hidden = _hidden(store, snapshot, directories)
    visible = [file.path for file in snapshot.files]
    _refuse_names(store, [*visible, *hidden])
    _refuse_escapes(store, visible)
    columns = _partition_columns(store, snapshot)
    at = max(entry.modified for entry in entries)
    found = _look(store, snapshot, entries, progress) if looks else _Found()
    provenance = provenance_of(note, None)
    commit = _adoption(clock, snapshot, hidden, found, at=at, provenance=provenance)
    # The log as of that listing: if another process adopts at the same time, later commits must not count as covered.
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
    of_table = replace(snapshot, first_layout=columns)
    checkpoint, body = put_parts(store, of_table, checkpoint, created=clock.now(), is_first=True)
    name = names.checkpoint(checkpoint.number)
    try:
        is_created = create(store, name, body)
    except UnsupportedStoreError:  # the checkpoint is deleted again
        withdraw_parts(store, checkpoint)
        raise
    if not is_created:
        if checkpoint.parts and store.get(name) != body:  # else this process has created it, and the answer was lost
            withdraw_parts(store, checkpoint)
        raise CommitConflictError(f"another process is adopting {store.url}; see `dbio check`")
    _refuse_change(store, entries, checkpoint)
    properties = {} if found.schema is None else {ADOPTED: commit.tid}
    created = create_descriptor(store, clock, table_id, columns, properties)
    _warn_of_late_writers(store, entries)
    if not created:
        raise TableExistsError(f"{store.url} was just made a table by another process; see `dbio check`")
    for sentence in found.notes:
        _log.warning("%s: %s", store.url, sentence)
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
            f"{len(pending)} transactions are pending in {store.url}, first {pending[0]}: the files that they "
            "write would be lost. Wait until they end, abort them with `dbio abort`, or run `dbio vacuum`, which "
            "aborts those that are pending for longer than its retention"
        )


def _refuse_names(store: Store, paths: Iterable[str]) -> None:
    """Raises InvalidInputError for files whose paths no marker can hold."""
    odd: list[str] = []
    for path in sorted(paths):
        try:
            names.check_path(path, where="the adoption")
        except CorruptMarkerError:
            odd.append(f"{path[:300]!r}")
    if odd:
        raise InvalidInputError(
            f"{store.url} cannot become a table because of the names of {len(odd)} files, and nothing has changed: "
            f"{_some(odd)}. The path of a file in a table has no control character (such as a tab), no backslash and "
            "nothing outside Unicode, and at most 4,096 characters. Rename these files or their directories, then "
            "adopt the directory again"
        )


def _refuse_escapes(store: Store, paths: Iterable[str]) -> None:
    """Raises InvalidInputError for directories whose names escape UTF-8: dbio would read other values than were meant.

    A later overwrite of the meant partition would leave their rows.
    """
    components = {component for path in paths for component in names.split(path)[0].split("/") if "=" in component}
    if odd := sorted(filter(names.escapes_utf8, components)):
        raise InvalidInputError(
            f"{store.url} cannot become a table because of {len(odd)} names of directories, and nothing has changed: "
            f"{_some([*map(_misread, odd)])}. Spark, and so dbio, reads each %XX as one character, and writes none "
            "above %7F; pandas, pyarrow and others write one for each byte of UTF-8. Rename these directories, if the "
            "store can do that, and adopt again; or read the rows with the tool that wrote them, and write them to a "
            "new path with `dbio.Table(path).write(rows)`"
        )


def _misread(component: str) -> str:
    """What Spark would read, and what was probably meant."""
    refusal = f"{component!r} would be {names.unescape(component)!r} to Spark"
    meant = [names.unescape_utf8(part) for part in component.split("=", 1)]
    texts = [text for text in meant if text is not None]
    if len(texts) < len(meant):
        return refusal
    return f"{refusal}, but is probably {'='.join(texts)!r}, whose directory is {'='.join(map(names.escape, texts))}"


def _partition_columns(store: Store, snapshot: Snapshot) -> tuple[str, ...]:
    columns = names.common_partition_columns(names.split(file.path)[0] for file in snapshot.files)
    if columns is None:
        raise InvalidInputError(
            f"the files of {store.url} do not all have the same partition columns, as the files of a table must: "
            f"{_layouts([file.path for file in snapshot.files])}. First move those that belong elsewhere"
        )
    return names.check_partition_columns(columns)


def _layouts(paths: Sequence[str]) -> str:
    """How many files lie in which partition columns; of all layouts but the most frequent, with names of files."""
    by_layout: dict[tuple[str, ...], list[str]] = {}
    for path in sorted(paths):
        by_layout.setdefault(tuple(names.parse_partition(names.split(path)[0])), []).append(path)
    first, *others = sorted(by_layout.items(), key=lambda it: -len(it[1]))
    return "; ".join(
        f"{len(own)} files lie in {', '.join(layout) or 'no partition column'}{named}"
        for layout, own, named in [(*first, ""), *((*it, f": {_some(it[1])}") for it in others[:_MOST_NAMED])]
    )


def _hidden(store: Store, snapshot: Snapshot, directories: Mapping[str, Directory]) -> list[str]:
    """The paths of the Parquet files that readers do not see."""
    seen = {file.path for file in snapshot.files} | set(snapshot.foreign)
    entries = (entry for directory in directories.values() for entry in directory.files.values())
    hidden = {entry.path: entry.size for entry in entries if entry.path not in seen}
    other = set(not_parquet(store, hidden.items()))
    return [path for path in hidden if path not in other]


# --- what is in the files -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """The facts from the footers of the files. Empty if they were not read."""

    schema: Mapping[str, Any] | None = None
    rows: Mapping[str, int | None] = field(default_factory=dict)
    """The number of rows of each file, by its path."""
    notes: Sequence[str] = ()
    """Messages about some of the files."""


def _look(store: Store, snapshot: Snapshot, entries: Sequence[Entry], progress: Progress) -> _Found:
    """Reads all footers. Raises InvalidInputError, SchemaMismatchError, CommitConflictError."""
    ages = {entry.path: number for number, entry in enumerate(sorted(entries, key=lambda it: (it.modified, it.path)))}
    newest_first = sorted((file.path for file in snapshot.files), key=lambda path: -ages.get(path, len(ages)))
    rows: dict[str, int | None] = {}
    groups: dict[str, Alike] = {}
    wrong: list[str] = []
    before, group = None, Alike([], {})
    parts = snapshot.partition_columns
    for path, footer in look_at_all(store, newest_first, progress, total=len(newest_first), bounds_of=parts):
        if footer is None:
            raise CommitConflictError(
                f"{store.url_of(path)} was removed while {store.url} was adopted; nothing has changed: stop the "
                "writers, and try again"
            )
        if refusal := footer.refusal(store.url_of(path)) or _contradiction(footer, parts, store.url):
            wrong.append(refusal)
        elif footer.columns is not None:
            if footer.columns is not before:  # files that were recognized have the same object
                before, inside = footer.columns, without(footer.columns, parts)
                group = groups.setdefault(json.dumps(inside), Alike([], inside))
            group.files.append(path)
        rows[path] = footer.rows
    if wrong:
        raise InvalidInputError(
            f"{store.url} cannot become a table because of {len(wrong)} files, and nothing has changed: "
            f"{_some(wrong)}. Write these files again, or move files that are no data elsewhere, then adopt the "
            "directory again"
        )
    if not groups:
        return _Found(rows=rows)
    columns = unite([*groups.values()], where=store.url)
    notes = [
        f"in {_some(paths)}, {why}: readers of what is published would read nulls there, until "
        f"`{command('dbio', 'compact', store.url)}` has rewritten these files"
        for why, paths in _respelled([*groups.values()], columns).items()
    ]
    partition, texts = _partition_fields(snapshot)
    schema = {**columns, "fields": [*columns["fields"], *partition]}
    return _Found(schema=schema, rows=rows, notes=[*notes, *texts])


def _contradiction(footer: Footer, columns: Sequence[str], url: str) -> str:
    """Why a commit would refuse the file because of a partition column in it, as text; empty if it would not."""
    if footer.statistics is None:  # no partition column is in it
        return ""
    partition = names.parse_partition(names.split(footer.path)[0])
    file = FileInfo(
        path=footer.path, size=footer.size, rows=footer.rows, partition=partition, statistics=footer.statistics
    )
    return columns_inside(file, footer, columns, url=url)


def _respelled(groups: Sequence[Alike], columns: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Files that spell columns in another way than the table, by a text that says which columns and how."""
    found: dict[str, list[str]] = {}
    for group in groups:
        if why := respelled(group.columns, columns):
            found.setdefault(why, []).extend(group.files)
    return found


def _partition_fields(snapshot: Snapshot) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The partition columns with the types that Spark infers, and notes on those that get another type."""
    from dbio_commit.data import columns as kinds

    fields: list[Mapping[str, Any]] = []
    notes: list[str] = []
    for column in snapshot.partition_columns:
        values = {file.partition[column] for file in snapshot.files}
        kind = kinds.narrowest(values)
        if not is_partition(kind):
            texts = sorted(value for value in values if value is not None)
            notes.append(
                f"the values of the partition column {column!r} look like floating-point numbers, by which no write "
                f"can partition; so the column is a string column: {_some(texts)}"
            )
            kind = "string"
        fields.append(kinds.field(column, kind))
    return fields, notes


def _some(texts: Sequence[str]) -> str:
    more = f", and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more


# --- what is written ----------------------------------------------------------------------------------------------


def _adoption(
    clock: Clock,
    snapshot: Snapshot,
    hidden: list[str],
    found: _Found,
    *,
    at: datetime,
    provenance: Provenance | None,
) -> Decided:
    """A commit that adds all visible files, and removes all hidden ones."""
    files = [
        FileInfo(path=file.path, size=file.size, rows=found.rows.get(file.path), partition=file.partition)
        for file in snapshot.files
    ]
    rows = count_rows((file.path for file in files), found.rows) if found.rows else None
    refuse_large(found.schema)
    info = CommitInfo(
        recorded="adopt",
        commit_id=new_uuid(clock),
        timestamp=clock.now(),
        provenance=provenance,
        metrics={
            "numFiles": len(files),
            "numOutputBytes": sum(file.size for file in files),
            **({} if rows is None else {"numOutputRows": rows}),
        },
        files=pack_files(files),
        schema=pack_schema(found.schema),
        schema_turn=None if found.schema is None else 0,  # before any turn
    )
    marker = CommitMarker(added=[file.path for file in files], removed=hidden, dbio_commit=info)
    return Decided(at, new_tid(clock), marker)


def _refuse_change(store: Store, before: Sequence[Entry], checkpoint: Checkpoint) -> None:
    """Raises CommitConflictError if data files or markers have changed since `before`, except the new checkpoint.

    Then it puts the checkpoint out of use with a refusal, since nobody may commit while it is in use. It does not
    delete the checkpoint: a late request to delete it might hit a checkpoint of that name of another adoption. It
    deletes the parts, whose names no other checkpoint has.
    """
    now = store.list_files()
    if _written(before) != _written(now):
        is_table = any(entry.path == names.DESCRIPTOR for entry in now)
        if not is_table and store.put_if_absent(names.checkpoint(checkpoint.number + 1), REFUSAL):
            withdraw_parts(store, checkpoint)
        raise CommitConflictError(
            f"another process wrote to {store.url} while it was adopted; nothing has changed: stop the writers, and "
            "try again"
        )


def _written(entries: Sequence[Entry]) -> set[Entry]:
    """The objects, without checkpoints and their parts."""
    return {e for e in entries if not names.split(e.path)[1].startswith((Kind.CHECKPOINT, Kind.PART))}


def _warn_of_late_writers(store: Store, before: Sequence[Entry]) -> None:
    known = {entry.path for entry in before}
    late = sorted(e.path for e in store.list_files() if e.path not in known and _is_late(e.path))
    if late:
        raise StoreError(
            f"{store.url} is a table now, but at that moment writers that did not know this wrote {len(late)} files or "
            f"markers, first {late[0]}. The table ignores what these writers added or removed: write it again"
        )


def _is_late(path: str) -> bool:
    """Whether a writer that did not know of the table wrote this object. Markers at the root still count."""
    directory, name = names.split(path)
    if names.parse_log_name(name):
        return bool(directory)
    return names.is_data_file(path) and names.counts_as_data(name) and names.parse_data_file(name) is None
