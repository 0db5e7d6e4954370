"""Publishes a table as a Delta log: a version for all commits since the last one, and sometimes a checkpoint.

Each version shows exactly one snapshot of the table. It adds and removes the difference between the snapshot and the
version before. If that version records which commits it shows, the difference follows from the commits since.
Otherwise the snapshot is compared with the whole state of the log, which also repairs errors of earlier versions.
Rules: NOTES.md, Delta.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import compress, islice
from typing import Any, NamedTuple

from msgspec import to_builtins

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    ObjectNotFoundError,
    UnsupportedTableError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.base.texts import command
from dbio_commit.log.schema_drift import find_respelled
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish.bounds import MOST_BYTES, refuse_unreadable
from dbio_commit.maintenance.publish.delta_log import (
    DIRECTORY,
    LAST_CHECKPOINT,
    DeltaChange,
    DeltaFile,
    DeltaListing,
    DeltaShown,
    Mark,
    checkpoint_is_due,
    checkpoint_path,
    decode_version,
    digest_of_metadata,
    encode_version,
    is_same_protocol,
    is_version,
    metadata_of,
    protocol_of,
    superseded,
    to_ms,
    version_of_checkpoint,
    version_path,
)
from dbio_commit.maintenance.publish.delta_replay import mark_of_last, read_checkpoint, replay, torn
from dbio_commit.maintenance.publish.delta_schema import DeltaSchema, delta_schema, partition_values, statistics
from dbio_commit.maintenance.publish.difference import DifferencePart, UnknownError, changes_data, compared, made_by
from dbio_commit.maintenance.publish.live import Live, columns_of, describe, withdraw_if_dropped
from dbio_commit.maintenance.publish.lookout import Lookout
from dbio_commit.maintenance.publish.places import Own, Published
from dbio_commit.maintenance.publish.reading import is_there, read_head
from dbio_commit.maintenance.publish.remembered import TableKey, keep_new
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import removed_files
from dbio_commit.protocol.names import split
from dbio_commit.protocol.settings import Format
from dbio_commit.store import Store

_log = get_logger(__name__)

_REMOVALS_KEPT = timedelta(days=7)
"""Delta's own default: how long a checkpoint records removals, and Delta's vacuum keeps the files."""

_TIDS_NAMED = 1000


def look(store: Store) -> DeltaListing:
    """The contents of the log. The next version's number follows from it, before the snapshot is read."""
    return DeltaListing.of(store.list_directory(DIRECTORY).entries, root=store.url)


def put(store: Store, clock: Clock, listing: DeltaListing, live: Live, *, anew: bool = False) -> Published | None:
    """Creates the next version, if anything is new. None if another publisher was faster: then look again.

    With `anew` it creates one even if nothing is new, and its checkpoint, or raises what prevents that.

    Raises UnsupportedTableError if a version was not written by dbio, CorruptMarkerError, and InvalidInputError for
    columns that Delta cannot hold.
    """
    snapshot = live.snapshot
    known = columns_of(store, live)
    columns = delta_schema(known, snapshot.partition_columns, where=store.url)
    collect = partial(_collect, store, live, known, columns)
    mark = mark_of_last(store, listing, live.table_id)
    shown, found = mark and mark.shown, None
    bounded = shown.bounded if shown else None
    if mark and shown and bounded is not None and (news := shown.unseen(snapshot.tids)) is not None:
        with suppress(UnknownError):
            before = _Before(mark.tid, shown.metadata, to_builtins(shown.protocol), bounded)
            found = collect(before, made_by(snapshot, news), is_whole=False)
    if found is None:
        state = replay(store, listing, live.table_id)
        digest = digest_of_metadata(state.metadata)
        before = _Before(state.mark and state.mark.tid, digest, state.protocol, bounded or ())
        again = state.paths if bounded is None else frozenset()
        found = collect(before, compared(snapshot, state.paths), is_whole=True, again=again)
    change = found.change
    last, number = listing.last, listing.last + 1
    published = partial(live.published, Format.DELTA, added=len(change.added), removed=len(change.removed))
    if not change and not anew:
        return published(last, is_new=False)
    path, shown, body = version_path(number), *_encoded(clock, live, found)
    if len(body) > MOST_BYTES and change.again:
        found = found.with_nothing_again(metadata_of(live.table_id, columns, ()))
        shown, body = _encoded(clock, live, found)
    if len(body) > MOST_BYTES:
        shown, body = _encoded(clock, live, found._replace(change=found.change.without_statistics()))
    refuse_unreadable(body, beside=sum(it.size for it in listing.since_checkpoint), where=store.url_of(path))
    lookout = Lookout(clock, live.looked)
    with lookout.creating(
        lambda: look(store).last > last,
        is_useless=lambda: look(store).lacks_before(number),
        undo=lambda: store.delete_many([path]),
        is_erased=partial(live.is_erased, store) if last < 0 else None,
    ):
        if not store.put_if_absent(path, body) and not is_there(store, path, body):
            return None
    mark = Mark(live.table_id, snapshot.tid, shown)
    store.together(
        lambda: withdraw_if_dropped(store, live, {path: body}),
        lambda: keep_new(store, TableKey.of(store, live.table_id), path, mark, bytes=shown.memory_bytes),
    )
    if anew or checkpoint_is_due(listing, number, len(body)):
        try:
            _write_checkpoint(
                store, clock, lookout, number, snapshot, columns, metadata=found.metadata, protocol=found.protocol
            )
        except DbioError as error:
            if anew:
                raise
            _log.info("%s: no Delta checkpoint was made after version %d: %s", store.url, number, error)
    return published(number, is_new=True)


def forget(store: Store, clock: Clock, listing: DeltaListing, live: Live) -> Sequence[str] | None:
    """Creates a version and a checkpoint of it. Returns the paths of all older objects, which may be deleted now.

    None if another publisher was faster: then look again. None also if there was something new, since a version that
    removes files names them. Raises what `put` raises.
    """
    published = put(store, clock, listing, live)
    if published is None or published.is_new:
        return None
    published = put(store, clock, listing, live, anew=True)
    if published is None:
        return None
    found = look(store)
    older = [*found.versions.items(), *found.checkpoints.items()]
    return [entry.path for number, entry in older if number < published.number]


class _Before(NamedTuple):
    """The content of the last version, without files."""

    tid: str | None
    """The newest commit."""
    metadata: str
    """The digest of the metadata."""
    protocol: Mapping[str, Any]
    bounded: Collection[str]
    """The columns of which each file has bounds."""


class _Found(NamedTuple):
    """The content of the next version."""

    before: _Before
    change: DeltaChange
    protocol: Mapping[str, Any]
    """The protocol as of the next version; so are `metadata` and `bounded`."""
    metadata: Mapping[str, Any]
    bounded: Collection[str]

    def with_nothing_again(self, metadata: Mapping[str, Any]) -> "_Found":
        """The content without `again`, in fewer bytes. The metadata names no column with bounds, so that no reader uses
        statistics."""
        change = replace(self.change, again=(), metadata=metadata)
        return self._replace(change=change, metadata=metadata, bounded=())


def _encoded(clock: Clock, live: Live, found: _Found) -> tuple[DeltaShown, bytes]:
    """The record of what the version shows, and its body."""
    snapshot = live.snapshot
    shown = DeltaShown.of(snapshot.tids, found.metadata, found.protocol, found.bounded)
    mark, tids = Mark(live.table_id, snapshot.tid, shown), _since(snapshot, found.before.tid)
    return shown, encode_version(found.change, mark, tids=tids, engine=_engine(), now=clock.now())


def _collect(
    store: Store,
    live: Live,
    known: Mapping[str, Any],
    columns: DeltaSchema,
    before: _Before,
    differences: Iterable[DifferencePart],
    *,
    is_whole: bool,
    again: Collection[str] = (),
) -> _Found:
    """The next version, by the parts of the difference. `is_whole` checks the files that are published already, too;
    those of the paths `again` get new statistics."""
    protocol = protocol_of(columns.features, before.protocol)
    if is_whole:
        live.refuse_unread()
    added, removed, writers, unlike = DeltaFiles(columns), list[str](), set[str | None](), dict[str, str]()
    for come, gone in differences:
        if come.files:
            live.refuse_unread(come.files)
            unlike |= find_respelled(store, come, known)
            added.add(come)
            writers |= {file.tid for file in come.files}
        removed += gone
    _refuse_respelled(store, unlike)
    stated = DeltaFiles(columns)
    for part in live.snapshot.slices() if again else ():
        stated.add(replace(part, files=[file for file in part.files if file.path in again]))
    is_all = len(added.files) + len(stated.files) == len(live.snapshot.files)
    bounded = added.bounded & stated.bounded & (columns.ordered if is_all else frozenset(before.bounded))
    metadata = metadata_of(live.table_id, columns, bounded)
    is_other = before.metadata != digest_of_metadata(metadata)
    if is_other and not is_whole:
        live.refuse_unread()
    change = DeltaChange(
        added=added.files,
        removed=sorted(removed),
        metadata=metadata if is_other else None,
        protocol=None if is_same_protocol(before.protocol, protocol) else protocol,
        data_change=changes_data(live.snapshot, writers, removed),
        again=stated.files,
    )
    return _Found(before, change, protocol, metadata, bounded)


def _refuse_respelled(store: Store, unlike: Mapping[str, str]) -> None:
    """Raises InvalidInputError for new files in which readers would take a column for null.

    Files that are published already are not checked again.
    """
    if unlike:
        path, problem = min(unlike.items())
        raise InvalidInputError(
            f"readers of Delta would take a column for null in {len(unlike)} files of {store.url}, first {path}: "
            f"{problem}. Run `{command('dbio', 'compact', store.url)}`, which writes them anew, then publish again"
        )


def _engine() -> str:
    from dbio_commit import __version__

    return f"dbio-commit/{__version__}"


def _since(snapshot: Snapshot, before: str | None) -> list[str]:
    """The tids of the commits after the last published one: at most the newest `_TIDS_NAMED`."""
    tids = list(snapshot.tids)
    start = tids.index(before) + 1 if before in tids else 0
    return tids[start:][-_TIDS_NAMED:]


class DeltaFiles:
    """Collects files in Delta's terms, with what the markers record of them."""

    def __init__(self, columns: DeltaSchema) -> None:
        self.files: list[DeltaFile] = []
        self.bounded = columns.ordered
        """The columns of which each of these files has bounds, or no statistics at all."""
        self._columns = columns

    def add(self, part: Snapshot) -> None:
        """Takes the files of a slice."""
        partitions: dict[str, Mapping[str, str | None]] = {}
        for it in describe(part):
            directory = split(it.file.path)[0]
            if directory not in partitions:
                partitions[directory] = partition_values(it.file.partition, self._columns)
            stats = statistics(it.rows, it.bounds, self._columns)
            if stats is not None:
                self.bounded &= stats.bounded
            text, modified = stats and stats.text, to_ms(it.modified)
            self.files.append(DeltaFile(it.file.path, it.file.size, modified, partitions[directory], text))


# --- checkpoints --------------------------------------------------------------------------------------------------


def _write_checkpoint(
    store: Store,
    clock: Clock,
    lookout: Lookout,
    number: int,
    snapshot: Snapshot,
    columns: DeltaSchema,
    *,
    metadata: Mapping[str, Any],
    protocol: Mapping[str, Any],
) -> None:
    since = clock.now() - _REMOVALS_KEPT
    from dbio_commit.maintenance.publish.delta_checkpoint import CheckpointWriter

    writer = CheckpointWriter(metadata=metadata, protocol=protocol)
    for part in snapshot.slices():
        live = {file.path for file in part.files}
        removed = ((path, at) for path, at in removed_files(part.decided).items() if path not in live)
        files = DeltaFiles(columns)
        files.add(part)
        writer.add(files.files, {path: to_ms(at) for path, at in removed if at > since})
    count, body = writer.finish()
    path = checkpoint_path(number)

    def is_useless() -> bool:
        return number not in look(store).versions

    with lookout.creating(is_useless, is_useless=is_useless, undo=lambda: store.delete_many([path])):
        store.put_if_absent(path, body)
    store.replace(LAST_CHECKPOINT, f'{{"version":{number},"size":{count},"sizeInBytes":{len(body)}}}'.encode())


# --- what is wrong ------------------------------------------------------------------------------------------------


def problems(store: Store, entries: Iterable[Entry], table_id: str) -> list[str]:
    """Problems that prevent further publications to this log. `entries` are those of the table."""
    try:
        replay(store, DeltaListing.of(entries, root=store.url), table_id)
    except (UnsupportedTableError, CorruptMarkerError) as error:
        return [str(error)]
    return []


# --- what goes ----------------------------------------------------------------------------------------------------


def find_superseded(store: Store, table_id: str, horizon: datetime) -> list[Entry]:
    """Objects of the log that are not needed any more, since a checkpoint from before the horizon covers them.

    Raises UnsupportedTableError if part of the log is not this table's, and CorruptMarkerError if something that the
    rest depends on cannot be read. Then no object may be deleted.
    """
    listing = look(store)
    checkpoint, old = superseded(listing, horizon)
    if old:
        mark_of_last(store, listing, table_id)
        for number in sorted({checkpoint, listing.last_checkpoint}):
            if number not in listing.versions:
                raise torn(store, number)
            read_checkpoint(store, listing, number, table_id)
    return old


def own(store: Store, entries: Iterable[Entry], table_id: str) -> Own:
    """Versions that name this table, and checkpoints of these versions. `entries` are those of the table."""
    inside = [entry for entry in entries if split(entry.path)[0] == DIRECTORY]
    versions = [entry for entry in inside if is_version(entry.path)]
    is_own = store.ask_each(lambda entry: _is_own(store, entry, table_id), versions)
    telling = list(compress(versions, is_own))
    paths = {entry.path for entry in telling}
    if telling and all(is_own):
        paths.add(LAST_CHECKPOINT)
    of_them = [entry for entry in inside if entry.path == LAST_CHECKPOINT or version_of_checkpoint(entry.path)]
    return Own(telling, [entry for entry in of_them if (version_of_checkpoint(entry.path) or entry.path) in paths])


def _is_own(store: Store, entry: Entry, table_id: str) -> bool:
    with suppress(CorruptMarkerError, ObjectNotFoundError):
        version = decode_version(islice(read_head(store, entry), 1), where=store.url_of(entry.path))
        return version.mark is not None and version.mark.table_id == table_id
    return False
