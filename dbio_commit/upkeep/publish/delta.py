"""Publishes a table as a Delta log: a version for all commits since the last one, and sometimes a checkpoint.

Each version shows exactly one snapshot of the table. It adds and removes the difference between the snapshot and the
version before. If that version records what it shows, the commits since make the difference. Otherwise the snapshot is
compared with the whole state of the log, which also repairs what an earlier version left wrong. Rules: PROTOCOL.md
section 14.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate, compress, islice, takewhile
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
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.unlike import find_respelled
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import removed_files
from dbio_commit.protocol.names import split
from dbio_commit.protocol.settings import Format
from dbio_commit.store import Store
from dbio_commit.upkeep.publish.bounds import MOST_BYTES, MOST_BYTES_TOGETHER, refuse_large, refuse_unreadable
from dbio_commit.upkeep.publish.delta_log import (
    DIRECTORY,
    LAST_CHECKPOINT,
    SAVE,
    DeltaChange,
    DeltaFile,
    DeltaListing,
    DeltaShown,
    DeltaState,
    Mark,
    Version,
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
from dbio_commit.upkeep.publish.delta_schema import DeltaSchema, delta_schema, partition_values, statistics
from dbio_commit.upkeep.publish.difference import DifferencePart, UnknownError, changes_data, compared, made_by
from dbio_commit.upkeep.publish.live import Live, columns_of, describe
from dbio_commit.upkeep.publish.places import Own, Published, in_sequence
from dbio_commit.upkeep.publish.reading import is_there, read_head, read_lines, read_whole
from dbio_commit.upkeep.publish.remembered import TableKey, find, keep, keep_new

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
    metadata = metadata_of(live.table_id, columns)
    collect = partial(_collect, store, live, known, columns, metadata)
    mark = _mark_of_last(store, listing, live.table_id)
    shown, found = mark and mark.shown, None
    if mark and shown and (news := shown.unseen(snapshot.tids)) is not None:
        with suppress(UnknownError):
            before = _Before(mark.tid, shown.metadata, to_builtins(shown.protocol))
            found = collect(before, made_by(snapshot, news), is_whole=False)
    if found is None:
        state = replay(store, listing, live.table_id)
        before = _Before(state.mark and state.mark.tid, digest_of_metadata(state.metadata), state.protocol)
        found = collect(before, compared(snapshot, state.paths), is_whole=True)
    change, protocol = found.change, found.protocol
    last, number = listing.last, listing.last + 1
    published = partial(live.published, Format.DELTA, added=len(change.added), removed=len(change.removed))
    if not change and not anew:
        return published(last, is_new=False)
    shown, path = DeltaShown.of(snapshot.tids, metadata, protocol), version_path(number)
    mark = Mark(live.table_id, snapshot.tid, shown)
    encode = partial(
        encode_version, mark=mark, tids=_since(snapshot, found.before.tid), engine=_engine(), now=clock.now()
    )
    body = encode(change)
    if len(body) > MOST_BYTES:
        body = encode(replace(change, added=[file._replace(statistics=None) for file in change.added]))
    refuse_unreadable(body, beside=sum(it.size for it in listing.since_checkpoint), where=store.url_of(path))
    if not store.put_if_absent(path, body) and not is_there(store, path, body):
        return None
    keep_new(store, TableKey.of(store, live.table_id), path, mark, bytes=shown.memory_bytes)
    if anew or checkpoint_is_due(listing, number, len(body)):
        try:
            _write_checkpoint(store, clock, number, snapshot, columns, metadata=metadata, protocol=protocol)
        except DbioError as error:
            if anew:
                raise
            _log.info("%s: no Delta checkpoint was made after version %d: %s", store.url, number, error)
    return published(number, is_new=True)


def forget(store: Store, clock: Clock, listing: DeltaListing, live: Live) -> Sequence[str] | None:
    """Puts a version and a checkpoint, which show the same. Returns the paths of all older objects, which may go now.

    None if another publisher was faster: then look again. Raises what `put` raises.
    """
    published = put(store, clock, listing, live, anew=True)
    if published is None:
        return None
    found = look(store)
    older = [*found.versions.items(), *found.checkpoints.items()]
    return [entry.path for number, entry in older if number < published.number]


class _Before(NamedTuple):
    """What the last version shows besides files."""

    tid: str | None
    """The newest commit."""
    metadata: str
    """The digest of the metadata."""
    protocol: Mapping[str, Any]


class _Found(NamedTuple):
    """What the next version has."""

    before: _Before
    change: DeltaChange
    protocol: Mapping[str, Any]
    """The protocol as of the next version."""


def _collect(
    store: Store,
    live: Live,
    known: Mapping[str, Any],
    columns: DeltaSchema,
    metadata: Mapping[str, Any],
    before: _Before,
    differences: Iterable[DifferencePart],
    *,
    is_whole: bool,
) -> _Found:
    """The next version, by the parts of the difference. `is_whole` checks the files that are published already, too."""
    is_other = before.metadata != digest_of_metadata(metadata)
    protocol = protocol_of(columns.features, before.protocol)
    if is_other or is_whole:
        live.refuse_unread()
    added, removed, writers, unlike = list[DeltaFile](), list[str](), set[str | None](), dict[str, str]()
    for come, gone in differences:
        if come.files:
            live.refuse_unread(come.files)
            unlike |= find_respelled(store, come, known)
            added += delta_files(come, columns)
            writers |= {file.tid for file in come.files}
        removed += gone
    _refuse_respelled(store, unlike)
    change = DeltaChange(
        added=added,
        removed=sorted(removed),
        metadata=metadata if is_other else None,
        protocol=None if is_same_protocol(before.protocol, protocol) else protocol,
        data_change=changes_data(live.snapshot, writers, removed),
    )
    return _Found(before, change, protocol)


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
    """The newest commits, from the one after the last published commit on."""
    tids = list(snapshot.tids)
    start = tids.index(before) + 1 if before in tids else 0
    return tids[start:][-_TIDS_NAMED:]


def delta_files(part: Snapshot, columns: DeltaSchema) -> list[DeltaFile]:
    """The files of a slice in Delta's terms, with what the markers record of them."""
    found: list[DeltaFile] = []
    partitions: dict[str, Mapping[str, str | None]] = {}
    for it in describe(part):
        directory = split(it.file.path)[0]
        if directory not in partitions:
            partitions[directory] = partition_values(it.file.partition, columns)
        stats = statistics(it.rows, it.bounds, columns)
        found.append(DeltaFile(it.file.path, it.file.size, to_ms(it.modified), partitions[directory], stats))
    return found


# --- what the log says so far -------------------------------------------------------------------------------------


def _mark_of_last(store: Store, listing: DeltaListing, table_id: str) -> Mark | None:
    """The mark of the last version; None if there is no version. Raises as `replay`."""
    if not _versions_since(store, listing, max(listing.last_checkpoint, 0)):
        return None
    key, entry = TableKey.of(store, table_id), listing.versions[listing.last]
    match find(key, entry):
        case Mark() as mark:
            return mark
        case DeltaState(mark=Mark() as mark):
            return mark
    return _read_head(store, listing, listing.last, table_id).mark


def replay(store: Store, listing: DeltaListing, table_id: str) -> DeltaState:
    """The state of the log, from what this process remembers, or from the last checkpoint, or from the start.

    Raises UnsupportedTableError if a version was written by another tool, or for another table; CorruptMarkerError.
    """
    last, start = listing.last, listing.last_checkpoint
    if last < 0:
        return DeltaState()
    known, state = _remembered(store, listing, table_id)
    wanted = _versions_since(store, listing, max(start, 0) if state is None else known + 1)
    if state is None and start >= 0:
        state, wanted = _read_checkpoint(store, listing, start, table_id), wanted[1:]
    told = [listing.versions[number] for number in wanted]
    versions = _read_versions(store, wanted, told, table_id)
    state = (state or DeltaState()).then(versions, where=store.url_of(DIRECTORY))
    if known != last:
        keep(TableKey.of(store, table_id), listing.versions[last], state, bytes=state.memory_bytes)
    return state


def _versions_since(store: Store, listing: DeltaListing, first: int) -> list[int]:
    """The versions from this number on. Raises CorruptMarkerError if one of them is missing, or if they are too large
    together."""
    if listing.last < 0:
        return []
    if listing.last not in listing.versions:
        raise _torn(store, listing.last)
    found, missing = in_sequence(listing.versions, first=first)
    if missing is not None:
        raise _torn(store, missing)
    where = f"{store.url_of(DIRECTORY)} since its last checkpoint"
    refuse_large([listing.versions[number] for number in found], most=MOST_BYTES_TOGETHER, where=where)
    return found


def _remembered(store: Store, listing: DeltaListing, table_id: str) -> tuple[int, DeltaState | None]:
    """The last version since the checkpoint that this process remembers, and the state of the log as of it."""
    key, versions = TableKey.of(store, table_id), listing.versions
    for number in sorted(versions, reverse=True):
        if number < listing.last_checkpoint:
            break
        state = find(key, versions[number])
        if isinstance(state, DeltaState):
            return number, state
    return -1, None


_READ_AT_ONCE_BYTES = 64 * 1024**2


def _read_versions(store: Store, numbers: Sequence[int], entries: Sequence[Entry], table_id: str) -> Iterator[Version]:
    """The versions one after the other, all of this table. Small ones are read together."""

    def read(entry: Entry) -> Version:
        return decode_version(read_lines(store, entry), where=store.url_of(entry.path))

    start = 0
    while start < len(entries):
        sizes = accumulate(entry.size for entry in entries[start:])
        end = start + max(1, sum(1 for _ in takewhile(lambda size: size <= _READ_AT_ONCE_BYTES, sizes)))
        versions = store.ask_each(read, entries[start:end])
        for number, version in zip(numbers[start:end], versions, strict=True):
            _refuse_others(store, number, version, table_id)
            yield version
        start = end


def _read_checkpoint(store: Store, listing: DeltaListing, number: int, table_id: str) -> DeltaState:
    """Raises CorruptMarkerError if the checkpoint is none, or of another table; and as `replay`, for its version.

    The first line of a version records who wrote it. If another tool did, the checkpoint need not be read.
    """
    head, entry = _read_head(store, listing, number, table_id), listing.checkpoints[number]
    from dbio_commit.upkeep.publish.delta_checkpoint import decode_checkpoint

    where = store.url_of(entry.path)
    state = decode_checkpoint(read_whole(store, entry), where=where)
    if state.metadata.get("id") != table_id:
        raise CorruptMarkerError(f"{where} is of another table than {table_id}; {SAVE}")
    return replace(state, mark=head.mark)


def _read_head(store: Store, listing: DeltaListing, number: int, table_id: str) -> Version:
    """The beginning of a version, with its mark. Raises UnsupportedTableError if it is not of this table."""
    version = listing.versions[number]
    head = decode_version(read_head(store, version), where=store.url_of(version.path))
    _refuse_others(store, number, head, table_id)
    return head


def _torn(store: Store, number: int) -> CorruptMarkerError:
    return CorruptMarkerError(
        f"{store.url_of(version_path(number))} is missing, so that the state of the Delta log is not known; {SAVE}"
    )


def _refuse_others(store: Store, number: int, version: Version, table_id: str) -> None:
    where = f"version {number} of {store.url_of(DIRECTORY)}"
    if version.mark is None:
        raise UnsupportedTableError(
            f"{where} was written by {version.engine!r}, not by dbio: its rows are in no commit of this table, and "
            f"nothing is published after it. {SAVE[0].upper()}{SAVE[1:]}; only dbio may write here"
        )
    if version.mark.table_id != table_id:
        raise UnsupportedTableError(
            f"{where} is of the table {version.mark.table_id[:100]!r}, which was here before {table_id}; {SAVE}"
        )


# --- checkpoints --------------------------------------------------------------------------------------------------


def _write_checkpoint(
    store: Store,
    clock: Clock,
    number: int,
    snapshot: Snapshot,
    columns: DeltaSchema,
    *,
    metadata: Mapping[str, Any],
    protocol: Mapping[str, Any],
) -> None:
    since = clock.now() - _REMOVALS_KEPT
    from dbio_commit.upkeep.publish.delta_checkpoint import CheckpointWriter

    writer = CheckpointWriter(metadata=metadata, protocol=protocol)
    for part in snapshot.slices():
        live = {file.path for file in part.files}
        removed = ((path, at) for path, at in removed_files(part.decided).items() if path not in live)
        writer.add(delta_files(part, columns), {path: to_ms(at) for path, at in removed if at > since})
    count, body = writer.finish()
    store.put_if_absent(checkpoint_path(number), body)
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
        _mark_of_last(store, listing, table_id)
        for number in sorted({checkpoint, listing.last_checkpoint}):
            if number not in listing.versions:
                raise _torn(store, number)
            _read_checkpoint(store, listing, number, table_id)
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
