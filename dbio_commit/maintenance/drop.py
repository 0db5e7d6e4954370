"""Drops a table: `Table.drop`, `dbio drop`. First writes one object, the tombstone, then deletes files and markers.

As soon as the tombstone exists, there is no table for readers and writers. If a drop is killed, the next one finishes
it. Rules: PROTOCOL.md section 12.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CommitConflictError,
    CorruptMarkerError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
    TableNotFoundError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.base.shown import Shown
from dbio_commit.commit.decision import abort_all, carry_out_everywhere
from dbio_commit.commit.probe import prove_store
from dbio_commit.commit.turns import SETTLE_S
from dbio_commit.log.lazy import Lazy
from dbio_commit.log.listing import (
    in_groups,
    is_dropped,
    read_checkpoint,
    read_descriptor,
    read_markers,
    refuse_lost_descriptor,
)
from dbio_commit.log.opening import check_directories, read_snapshot, refuse_nested
from dbio_commit.log.snapshot import Snapshot, Source
from dbio_commit.maintenance.publish import find_own
from dbio_commit.maintenance.publish.places import DIRECTORIES
from dbio_commit.maintenance.walk import each_object, walk
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.directory import is_empty, parse_directories
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import find_markers_below
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import lean
from dbio_commit.protocol.markers.tombstone import Tombstone, decode_tombstone
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import layout_of
from dbio_commit.store import Store

_ROUNDS = 10
"""How often a drop repeats its steps because of late writers."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DropReport(Shown):
    """The result of `Table.drop`."""

    url: str
    """The root of the table."""
    deleted: int
    """How many objects were deleted: data files and markers."""
    size: int
    """The size of these objects, in bytes."""
    aborted: Sequence[str]
    """The tids of the transactions that were pending."""
    left: Sequence[str]
    """Paths of files that are still there.

    No transaction of the table wrote or named them, or another tool wrote them beside a publication."""


def drop(store: Store, clock: Clock, *, everything: bool = False) -> DropReport:
    """Removes a table that has no commits; with `everything`, any dbio table. Takes a minute, to wait for writers.

    Called again after a failure, it continues. Raises InvalidInputError if there are commits (without `everything`), or
    if it is not a dbio table. Raises TableNotFoundError, and StoreError if something could not be deleted.
    """
    _end_copy(store, clock)
    own: str | None = None
    for _ in range(_ROUNDS):
        if dropped := _find_dropped(store, everything=everything):
            break
        with suppress(ObjectNotFoundError):  # another drop was faster: look again
            own = _bury(store, clock, everything=everything, own=own)
    else:
        raise CommitConflictError(
            f"{store.url_of(names.DROPPED)}, which dbio creates, is not in listings, or other processes delete it: "
            "find out why, then run `dbio drop` again"
        )
    buried = _read_if_there(store, names.DESCRIPTOR), _read_if_there(store, names.DROPPED)
    known: set[str] = set()
    aborted: list[str] = []
    deleted = size = 0
    emptied: set[str] = set()
    for _ in range(_ROUNDS):
        aborted += _end_writers(store, clock, dropped, known)
        if not everything:
            _refuse_commits(store, clock, dropped)
        left: set[str] = set()
        try:
            for step in filter(None, _sort(store, left)):
                _require(store, dropped)
                _delete(store, step, same=buried)
                deleted, size = deleted + len(step), size + sum(entry.size for entry in step)
                emptied.update(names.split(entry.path)[0] for entry in step)
        except ObjectNotFoundError:
            continue  # another drop, or a request that came late, has deleted a marker since it was listed
        if not _left_in_log(store):
            _delete_tombstone(store, dropped, same=buried)
            store.remove_directories(emptied - {""})
            _log.info("%s: dropped, %d objects deleted", store.url, deleted)
            return DropReport(
                url=store.url, deleted=deleted, size=size, aborted=tuple(aborted), left=tuple(sorted(left))
            )
    raise CommitConflictError(
        f"{store.url} was dropped, but others keep writing to it: stop the writers, then run `dbio drop` again"
    )


# --- the tombstone ------------------------------------------------------------------------------------------------


def _find_dropped(store: Store, *, everything: bool) -> Log | None:
    """The log with the tombstone of this or an earlier drop; None if there is none.

    Deletes the tombstone of an earlier table at this place; and, with `everything`, one that does not allow the removal
    of commits. Then the result is None, too.
    """
    log = parse_log(store.list_log())
    body = _read_if_there(store, names.DROPPED) if log.dropped else None
    if body is None:
        return None
    is_enough = not everything or log.descriptor is None or _decoded(store, body).everything
    if is_enough and is_dropped(store, log):
        return log
    _delete_tombstone(store, log, same=[body])
    return None


def _delete_tombstone(store: Store, log: Log, *, same: Sequence[bytes | None]) -> None:
    _delete(store, [log.dropped] if log.dropped else [], same=same)


def _end_copy(store: Store, clock: Clock) -> None:
    """Replaces the tombstone of an unfinished copy, so that no process continues that copy."""
    body = _read_if_there(store, names.DROPPED) if parse_log(store.list_log()).dropped else None
    if body and (found := _decoded(store, body)).copy_of:
        store.replace(names.DROPPED, _encoded(clock, found.copy_of, everything=found.everything))


def _encoded(clock: Clock, table_id: str, *, everything: bool) -> bytes:
    return encode(Tombstone(everything=everything, created=clock.now(), table_id=table_id))


def _decoded(store: Store, body: bytes) -> Tombstone:
    return decode_tombstone(body, where=store.url_of(names.DROPPED))


def _bury(store: Store, clock: Clock, *, everything: bool, own: str | None) -> str:
    """Creates the tombstone. From then on there is no table. Returns the table's id.

    `own` is the id of the table for which this drop has created a tombstone before; no other table is dropped.
    """
    log = _find_table(store)
    table_id = read_descriptor(store, log).id  # refuses a descriptor of a later version of dbio
    if own not in (None, table_id):
        raise _ended(store)
    prove_store(store)
    if not everything and read_snapshot(store, clock).tids:
        raise InvalidInputError(has_commits(store))
    store.put_if_absent(names.DROPPED, _encoded(clock, table_id, everything=everything))
    return table_id


def _find_table(store: Store) -> Log:
    """The log of the table. Raises TableNotFoundError, and InvalidInputError if this is no dbio table."""
    log = parse_log(store.list_log())
    if log.descriptor is None:
        entries = store.list_files()
        log = parse_log(store.list_log())  # the descriptor comes before all else of its table
        if log.descriptor is None:
            refuse_lost_descriptor(store, log)
            check_directories(store, (entry.path for entry in entries))
            if is_empty(parse_directories(entries)):
                raise TableNotFoundError(f"there is no table at {store.url}; check the path")
            raise InvalidInputError(
                f"{store.url} has no {names.DESCRIPTOR}: it is a plain directory, not a dbio table, and nothing was "
                "deleted; delete it with the tools of its store"
            )
    checkpoint = NO_CHECKPOINT
    with suppress(ObjectNotFoundError):  # a vacuum was faster
        checkpoint = _checkpoint(store, log)
    for entry in each_object(store, _state(store, log, checkpoint)):
        refuse_nested(store, entry.path)
    return log


def _refuse_commits(store: Store, clock: Clock, dropped: Log) -> None:
    """If a writer committed before it could be aborted: deletes the tombstone, and raises InvalidInputError."""
    body = _read_if_there(store, names.DROPPED)
    if body is None:
        raise _ended(store)
    if _decoded(store, body).everything or parse_log(store.list_log()).descriptor is None:
        return  # the tombstone allows the deletion of commits, or an earlier drop has checked this
    if read_snapshot(store, clock, even_dropped=True).tids:
        _delete_tombstone(store, dropped, same=[body])
        raise InvalidInputError(has_commits(store))


def has_commits(store: Store) -> str:
    return (
        f"{store.url} has commits, and nothing was deleted; to remove it with all of its rows, pass everything=True "
        "(`dbio drop --everything`)"
    )


def _require(store: Store, dropped: Log) -> None:
    """Raises CommitConflictError if the tombstone of this log is gone, or another table is here."""
    now = parse_log(store.stat_log(names.DESCRIPTOR, names.DROPPED).values())
    if now.dropped != dropped.dropped or now.descriptor not in (None, dropped.descriptor):
        raise _ended(store)


def _ended(store: Store) -> CommitConflictError:
    return CommitConflictError(f"another drop of {store.url} has finished; check what is there now")


# --- writers ------------------------------------------------------------------------------------------------------


def _end_writers(store: Store, clock: Clock, dropped: Log, known: set[str]) -> list[str]:
    """Aborts all pending transactions, and waits until their writers must notice (`SETTLE_S`). Returns the tids.

    After the wait, none is so young that it would commit without looking for its start marker (PROTOCOL.md 9.3).
    `known` are the transactions that were waited for. Those that it waits for now are added.
    """
    aborted: list[str] = []
    has_waited = bool(known)
    while True:
        _require(store, dropped)
        log = parse_log(store.list_log())
        aborted += abort_all(store, clock, log.pending)  # those that have committed count as committed before the drop
        if has_waited and log.started.keys() <= known:
            for tid in sorted(filter(names.is_joint, {*log.started, *log.committed})):
                carry_out_everywhere(store, tid)  # afterwards, nobody knows any more what this table decided
            return aborted
        known |= log.started.keys()
        clock.sleep(SETTLE_S)
        has_waited = True


def _left_in_log(store: Store) -> bool:
    return any(_is_of_log(entry.path) and entry.path != names.DROPPED for entry in store.list_log())


# --- what goes ----------------------------------------------------------------------------------------------------


def _sort(store: Store, left: set[str]) -> Iterator[list[Entry]]:
    """The objects to delete, step by step. Adds to `left` the files that stay: they do not belong to the table.

    Start markers are deleted before commit markers. So at every moment a late writer finds an abort marker, or no start
    marker, and gives up. Markers that came after the first listing stay, so that the next round finds their files.
    """
    listed = [entry for entry in store.list_log() if _is_of_log(entry.path)]
    log = parse_log(listed)
    yield from _sort_published(store, log, left)
    for entries, named in _shares(store, log):
        yield from _sort_files(entries, named, left)
    rest = [entry for entry in listed if entry.path != names.DROPPED]
    first = (Kind.STARTED, Kind.COMMITTED)
    yield from ([entry for entry in rest if _kind(entry.path) is kind] for kind in first)
    yield [entry for entry in rest if _kind(entry.path) not in first]


def _sort_published(store: Store, log: Log, left: set[str]) -> list[list[Entry]]:
    """The publications. The descriptor, whose id shows which are the table's own, is deleted after them."""
    listings = store.ask_each(partial(store.list_files, links=False), [*DIRECTORIES.values()])
    entries = [entry for found in listings for entry in found]
    steps = find_own(store, entries, read_descriptor(store, log).id) if log.descriptor else []
    left.update({entry.path for entry in entries} - {entry.path for step in steps for entry in step})
    return steps


def _sort_files(entries: Sequence[Entry], named: Collection[str], left: set[str]) -> list[list[Entry]]:
    """The data files of some directories, and the markers there. `named` are the paths that commits added or removed.

    The markers that name them, at the root, are deleted after them.
    """
    strangers = _strangers(entries, named)
    data = [entry for entry in entries if _belongs(entry.path, named, strangers)]
    below = [entry for entry in entries if _marker(entry.path, strangers)]
    going = {entry.path for step in (data, below) for entry in step}
    left.update(it.path for it in entries if it.path not in going and names.is_data_file(it.path))
    return [data, below]


def _shares(store: Store, log: Log) -> Iterator[tuple[Sequence[Entry], set[str]]]:
    """All files, some directories (a share) at a time, with the paths there that commits added or removed. A small
    table is one share."""
    try:
        yield from _list_shares(store, log, _checkpoint(store, log))
    except CorruptMarkerError:  # a part is lost: the files in it are found by the tids in their names
        yield from _list_shares(store, log, NO_CHECKPOINT)


def _list_shares(store: Store, log: Log, checkpoint: Checkpoint) -> Iterator[tuple[Sequence[Entry], set[str]]]:
    state = _state(store, log, checkpoint, [*_read_news(store, log, checkpoint.covered)])
    if not checkpoint.is_root:
        yield store.list_files(links=False), _named(state)
        return
    for share, entries in walk(store, state):
        yield entries, _named(share.snapshot)


def _named(state: Snapshot) -> set[str]:
    return {path for commit in state.decided for path in (*commit.marker.added, *commit.marker.removed)}


def _checkpoint(store: Store, log: Log) -> Checkpoint:
    """The newest checkpoint. NO_CHECKPOINT if it cannot be read: then files are found by the tids in their names."""
    with suppress(CorruptMarkerError):
        return read_checkpoint(store, log)
    return NO_CHECKPOINT


def _read_news(store: Store, log: Log, covered: Collection[str]) -> Iterator[Decided]:
    """The transactions that no checkpoint covers, if their markers can be read."""
    for part in in_groups(log.uncovered(covered)):
        markers = read_markers(store, part.values(), scope=Scope.TABLE).refuse_gone().valid
        for tid, entry in part.items():
            if entry.path in markers:
                yield Decided(entry.modified, tid, lean(markers[entry.path]))


def _state(store: Store, log: Log, checkpoint: Checkpoint, news: Sequence[Decided] = ()) -> Snapshot:
    """The state of a table that may be dropped already, and whose log may be damaged. Has no live files."""
    first = read_descriptor(store, log).partition_columns if log.descriptor else ()
    return Snapshot(
        url=store.url,
        scope=Scope.TABLE,
        files=(),
        partition_columns=layout_of(checkpoint.metadata.settings, first),
        decided=() if checkpoint.is_root else (*checkpoint.commits, *news),
        news=tuple(news),
        outlines=Lazy(lambda: [*checkpoint.outlines(news), *news]) if checkpoint.is_root else None,
        checkpoint=checkpoint,
        log=log,
        source=Source(store),
    )


def _strangers(entries: Iterable[Entry], named: Collection[str]) -> set[tuple[str, str]]:
    """(directory, tid) of writers below the root that used the directory scope. Their files are not the table's."""
    places = [names.split(entry.path) for entry in entries]
    written = {
        (directory, tid)
        for directory, name in places
        if (tid := names.parse_data_file(name)) and names.join(directory, name) not in named
    }
    return find_markers_below(entries) & written


def _belongs(path: str, named: Collection[str], strangers: Collection[tuple[str, str]]) -> bool:
    directory, name = names.split(path)
    if not names.is_data_file(path) or not names.counts_as_data(name):
        return False
    tid = names.parse_data_file(name)
    return path in named or (tid is not None and (directory, tid) not in strangers)


def _marker(path: str, strangers: Collection[tuple[str, str]]) -> bool:
    """Whether this is a marker below the root: the table ignores it, but a directory that is no table would not."""
    directory, name = names.split(path)
    marker = names.parse_log_name(name)
    if not directory or marker is None or not names.is_data_file(directory):
        return False
    return marker.kind in (Kind.STARTED, Kind.COMMITTED, Kind.VACUUM) and (directory, marker.id) not in strangers


def _is_of_log(path: str) -> bool:
    return path in (names.DESCRIPTOR, names.DROPPED) or _kind(path) is not None


def _kind(path: str) -> Kind | None:
    marker = names.parse_log_name(path)
    return marker.kind if marker else None


_FIXED = (names.DESCRIPTOR, names.DROPPED)
"""Names that every table at this root has."""


def _read_if_there(store: Store, path: str) -> bytes | None:
    with suppress(ObjectNotFoundError):
        return store.get(path)
    return None


def _delete(store: Store, entries: Sequence[Entry], *, same: Collection[bytes | None] = ()) -> None:
    """Deletes the objects. With `same`, a descriptor or tombstone is deleted only if it has one of these bodies.

    Raises CommitConflictError if another drop has finished, and another table may exist, while this process slept.
    Raises StoreError.
    """
    for entry in entries if same else ():
        if entry.path in _FIXED and not any(body and store.delete_same(entry.path, body) for body in same):
            raise _ended(store)
    failures = store.delete_many([entry.path for entry in entries if not (same and entry.path in _FIXED)])
    if failures:
        path, error = next(iter(failures.items()))
        raise StoreError(
            f"{len(failures)} objects of {store.url}, which was dropped, could not be deleted, first {path!r:.200}: "
            f"{error}; run `dbio drop` again"
        )
