"""Publishes a table as a Delta log: a version for all that has come since the last, and checkpoints now and then.

Each version shows exactly one snapshot of ours: what it adds and removes is the difference between the snapshot and
what the log adds up to, so a publication mends whatever an earlier one left. Rules: PROTOCOL.md section 14.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

from dbio_commit.clock import Clock
from dbio_commit.errors import CorruptMarkerError, DbioError, UnsupportedStoreError, UnsupportedTableError
from dbio_commit.logs import get_logger
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import removed_files
from dbio_commit.protocol.markers import Bounds, bounds_in
from dbio_commit.protocol.settings import Format
from dbio_commit.publish.delta_log import (
    DIRECTORY,
    LAST_CHECKPOINT,
    Change,
    DeltaFile,
    DeltaListing,
    DeltaState,
    Mark,
    Version,
    checkpoint_is_due,
    checkpoint_path,
    decode_version,
    encode_version,
    is_same_metadata,
    is_same_protocol,
    metadata_of,
    protocol_of,
    to_ms,
    version_path,
)
from dbio_commit.publish.delta_schema import DeltaSchema, delta_schema, partition_values, statistics
from dbio_commit.publish.live import Live
from dbio_commit.publish.places import MOST_BYTES, Published
from dbio_commit.publish.remembered import Place, find, keep, keep_new
from dbio_commit.store import Store

_log = get_logger(__name__)

_REMOVALS_KEPT = timedelta(days=7)
"""Delta's own default: so long a checkpoint tells of removals, and Delta's vacuum leaves the files."""

_TIDS_NAMED = 1000


def look(store: Store) -> DeltaListing:
    """What lies in the log. The next version's number is taken from it, before our snapshot is read."""
    return DeltaListing.of(store.list_directory(DIRECTORY).entries)


def put(store: Store, clock: Clock, listing: DeltaListing, live: Live) -> Published | None:
    """Creates the next version, if there is anything new. None where somebody else was faster: look again.

    Raises UnsupportedTableError where a version is not ours, CorruptMarkerError, InvalidInputError for columns that
    Delta cannot hold.
    """
    snapshot, before = live.snapshot, replay(store, listing, live.table_id)
    columns = delta_schema(_columns(store, live), snapshot.partition_columns, where=store.url)
    metadata, protocol = metadata_of(live.table_id, columns), protocol_of(columns.features, before.protocol)
    gone = before.paths - live.files.keys()
    change = Change(
        added=delta_files(live, live.files.keys() - before.paths, columns),
        removed=sorted(gone),
        metadata=None if is_same_metadata(before.metadata, metadata) else metadata,
        protocol=None if is_same_protocol(before.protocol, protocol) else protocol,
        data_change=_changes_data(live, live.files.keys() - before.paths, gone),
    )
    last, number = listing.last, listing.last + 1
    published = partial(live.published, Format.DELTA, added=len(change.added), removed=len(change.removed))
    if not change:
        return published(last, is_new=False)
    mark = Mark(live.table_id, live.tid)
    body = encode_version(change, mark, tids=_since(live, before.mark), engine=_engine(), now=clock.now())
    path = version_path(number)
    if not store.put_if_absent(path, body) and store.get(path, limit_bytes=MOST_BYTES) != body:
        return None
    after = DeltaState(frozenset(live.files), metadata, protocol, mark)
    place = Place.of(store, live.table_id)
    keep_new(place, path, len(body), listing.versions.get(last), after, paths=len(after.paths))
    if checkpoint_is_due(listing, number, len(body)):
        _write_checkpoint(store, clock, number, live, columns, after)
    return published(number, is_new=True)


def _changes_data(live: Live, added: Collection[str], gone: Collection[str]) -> bool:
    """Whether the rows may be others: unless all that came rewrote what went, and all of that, with the same rows."""
    writers = {live.files[path].tid for path in added}
    markers = [commit.marker for commit in live.snapshot.decided if commit.tid in writers]
    if not markers or any(marker.is_data_change for marker in markers) or len(markers) < len(writers):
        return True
    return {path for marker in markers for path in marker.removed} != set(gone)


def _columns(store: Store, live: Live) -> Mapping[str, Any]:
    if live.snapshot.schema is not None:
        return live.snapshot.schema
    columns: Mapping[str, Any] = _with_pyarrow("dbio_commit.data.frames").table_columns(live.snapshot, store)
    return columns


def _with_pyarrow(module: str) -> Any:
    """The module of ours. Raises UnsupportedStoreError where pyarrow is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedStoreError(
            f"Delta's checkpoints, and columns that nobody recorded, need the package {error.name}; run `pip install "
            f"{error.name}`"
        ) from error


def _engine() -> str:
    from dbio_commit import __version__  # which imports us

    return f"dbio-commit/{__version__}"


def _since(live: Live, before: Mark | None) -> list[str]:
    """The newest commits, from the one after that which was published last."""
    tids = list(live.snapshot.tids)
    start = tids.index(before.tid) + 1 if before and before.tid in tids else 0
    return tids[start:][-_TIDS_NAMED:]


def delta_files(live: Live, paths: Collection[str], columns: DeltaSchema) -> list[DeltaFile]:
    """These of the live files as Delta has them, with what our markers tell of them."""
    found: dict[str, DeltaFile] = {}
    for commit in live.snapshot.decided if paths else ():
        info = commit.marker.dbio_commit
        files = info.files if info else None
        told = bounds_in(commit.marker) if any(path in paths for path in commit.marker.added) else {}
        modified_ms = to_ms(commit.modified)
        for i, path in enumerate(commit.marker.added):
            if path in paths:
                bounds = {name: Bounds(it.min[i], it.max[i], it.nulls[i]) for name, it in told.items()}
                file = live.files[path]
                values = partition_values(file.partition, columns)
                stats = statistics(files.rows[i] if files else None, bounds, columns)
                found[path] = DeltaFile(path, file.size, modified_ms, values, stats)
    return list(found.values())


# --- what the log says so far -------------------------------------------------------------------------------------


def replay(store: Store, listing: DeltaListing, table_id: str) -> DeltaState:
    """What the log adds up to: from what this process remembers, else from the last checkpoint, else from the start.

    Raises UnsupportedTableError where a version is somebody else's, or of another table; CorruptMarkerError.
    """
    last, start = listing.last, listing.last_checkpoint
    if last < 0:
        return DeltaState()
    if last not in listing.versions:
        raise _torn(store, last)
    known, state = _remembered(store, listing, table_id)
    if state is not None:
        wanted = range(known + 1, last + 1)
    else:
        state = _read_checkpoint(store, start) if start >= 0 else DeltaState()
        wanted = range(max(start, 0), last + 1)  # that of the checkpoint too: only a version says whose it is
    missing = next((number for number in wanted if number not in listing.versions), None)
    if missing is not None:
        raise _torn(store, missing)
    for number, version in zip(wanted, store.ask_each(lambda it: _read(store, it), wanted), strict=True):
        _refuse_others(store, number, version, table_id)
        state = state.then(version if number != start else Version(version.mark, version.engine))
    if wanted:
        entry, before = listing.versions[last], listing.versions.get(last - 1)
        keep(Place.of(store, table_id), entry, before, state, paths=len(state.paths))
    return state


def _remembered(store: Store, listing: DeltaListing, table_id: str) -> tuple[int, DeltaState | None]:
    """The last version since the checkpoint that this process remembers, and what the log added up to then."""
    place, versions = Place.of(store, table_id), listing.versions
    for number in range(listing.last, listing.last_checkpoint - 1, -1):
        if number in versions:
            state = find(place, versions[number], versions.get(number - 1))
            if isinstance(state, DeltaState):
                return number, state
    return -1, None


def _read(store: Store, number: int) -> Version:
    path = version_path(number)
    return decode_version(store.get(path, limit_bytes=MOST_BYTES), where=store.url_of(path))


def _read_checkpoint(store: Store, number: int) -> DeltaState:
    path, checkpoints = checkpoint_path(number), _with_pyarrow(_CHECKPOINTS)
    state: DeltaState = checkpoints.decode_checkpoint(store.get(path, limit_bytes=MOST_BYTES), where=store.url_of(path))
    return state


_CHECKPOINTS = "dbio_commit.publish.delta_checkpoint"


def _torn(store: Store, number: int) -> CorruptMarkerError:
    return CorruptMarkerError(
        f"{store.url_of(version_path(number))} is missing, so nobody can tell what the Delta log says; {_BEGIN_ANEW}"
    )


_BEGIN_ANEW = f"save what you need of it, delete {DIRECTORY}, and publish again"


def _refuse_others(store: Store, number: int, version: Version, table_id: str) -> None:
    where = f"version {number} of {store.url_of(DIRECTORY)}"
    if version.mark is None:
        raise UnsupportedTableError(
            f"{where} was written by {version.engine[:200]!r}, not by us: its rows are in no commit of this table, and "
            f"nothing is published after it. {_BEGIN_ANEW[0].upper()}{_BEGIN_ANEW[1:]}; only dbio_commit may write here"
        )
    if version.mark.table_id != table_id:
        raise UnsupportedTableError(
            f"{where} is of the table {version.mark.table_id[:100]}, which was here before {table_id}; {_BEGIN_ANEW}"
        )


# --- checkpoints --------------------------------------------------------------------------------------------------


def _write_checkpoint(
    store: Store, clock: Clock, number: int, live: Live, columns: DeltaSchema, state: DeltaState
) -> None:
    """A failure is logged, and nothing else: the version stands."""
    since = clock.now() - _REMOVALS_KEPT
    removed = {
        path: to_ms(at)
        for path, at in removed_files(live.snapshot.decided).items()
        if at > since and path not in live.files
    }
    files = delta_files(live, live.files.keys(), columns)
    try:
        encode = _with_pyarrow(_CHECKPOINTS).encode_checkpoint
        body: bytes = encode(files, removed, metadata=state.metadata, protocol=state.protocol)
        store.put_if_absent(checkpoint_path(number), body)
        count = 2 + len(files) + len(removed)
        store.replace(LAST_CHECKPOINT, f'{{"version":{number},"size":{count},"sizeInBytes":{len(body)}}}'.encode())
    except DbioError as error:
        _log.info("%s: no Delta checkpoint was made after version %d: %s", store.url, number, error)


# --- what is wrong ------------------------------------------------------------------------------------------------


def problems(store: Store, entries: Iterable[Entry], table_id: str) -> list[str]:
    """What keeps the log from being published on; `entries` are those of the table."""
    listing = DeltaListing.of(entries)
    try:
        replay(store, listing, table_id)
    except (UnsupportedTableError, CorruptMarkerError) as error:
        return [str(error)]
    return []
