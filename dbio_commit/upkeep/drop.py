"""Drops a table: `Table.drop`, `dbio drop`. First writes one object, the tombstone, then deletes files and markers.

As soon as the tombstone exists, there is no table for readers and writers. If a drop is killed, the next one finishes
it. Rules: PROTOCOL.md section 12.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

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
from dbio_commit.commit.decision import abort_all
from dbio_commit.commit.directory_root import check_directories, refuse_nested
from dbio_commit.commit.probe import prove_store
from dbio_commit.commit.roots import read_snapshot
from dbio_commit.commit.turns import SETTLE_S
from dbio_commit.log.listing import in_parts, read_checkpoint, read_descriptor, read_markers, refuse_lost_descriptor
from dbio_commit.protocol import names
from dbio_commit.protocol.directory import is_empty, parse_directories
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import find_markers_below
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.tombstone import Tombstone, decode_tombstone
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store
from dbio_commit.upkeep.publish import find_own, is_published

_ROUNDS = 10
"""How often a drop repeats its steps because of late writers."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropReport:
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
    for _ in range(_ROUNDS):
        if (tombstone := _find_tombstone(store, everything=everything)) is not None:
            break
        _bury(store, clock, everything=everything)
    else:
        raise CommitConflictError(
            f"{store.url_of(names.DROPPED)}, which dbio creates, is not in listings, or other processes delete it: "
            "find out why, then run `dbio drop` again"
        )
    buried = _read_if_there(store, names.DESCRIPTOR), _read_if_there(store, names.DROPPED)
    known: set[str] = set()
    aborted: list[str] = []
    deleted: dict[str, int] = {}
    for _ in range(_ROUNDS):
        aborted += _end_writers(store, clock, tombstone, known)
        if not everything:
            _refuse_commits(store, clock, tombstone)
        found, left = _sort(store)
        for batch in found:
            _require(store, tombstone)
            _delete(store, batch, same=buried)
            deleted |= {entry.path: entry.size for entry in batch}
        if not _left_in_log(store):
            _delete(store, [tombstone], same=buried)
            store.remove_directories({names.split(path)[0] for path in deleted} - {""})
            _log.info("%s: dropped, %d objects deleted", store.url, len(deleted))
            return DropReport(
                url=store.url,
                deleted=len(deleted),
                size=sum(deleted.values()),
                aborted=tuple(aborted),
                left=tuple(left),
            )
    raise CommitConflictError(
        f"{store.url} was dropped, but others keep writing to it: stop the writers, then run `dbio drop` again"
    )


# --- the tombstone ------------------------------------------------------------------------------------------------


def _find_tombstone(store: Store, *, everything: bool) -> Entry | None:
    """The tombstone of this or an earlier drop; None if there is none.

    With `everything`, a tombstone that does not allow the removal of commits is deleted, and the result is None.
    """
    log = parse_log(store.list_log())
    if log.dropped is None or not everything or log.descriptor is None or _read_tombstone(store).everything:
        return log.dropped
    _delete(store, [log.dropped], same=[store.get(names.DROPPED)])  # no commit may be deleted, or was deleted, with it
    return None


def _read_tombstone(store: Store) -> Tombstone:
    return decode_tombstone(store.get(names.DROPPED), where=store.url_of(names.DROPPED))


def _bury(store: Store, clock: Clock, *, everything: bool) -> None:
    """Creates the tombstone. From then on there is no table."""
    log = parse_log(store.list_log())
    _refuse_others(store, log)
    read_descriptor(store, log)  # refuses what a later version wrote
    prove_store(store)
    if not everything and read_snapshot(store, clock).tids:
        raise InvalidInputError(has_commits(store))
    store.put_if_absent(names.DROPPED, encode(Tombstone(everything=everything, created=clock.now())))


def _refuse_others(store: Store, log: Log) -> None:
    entries = store.list_files()
    if log.descriptor is None:
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
    for entry in entries:
        refuse_nested(store, entry.path)


def _refuse_commits(store: Store, clock: Clock, tombstone: Entry) -> None:
    """If a writer committed before it could be aborted: deletes the tombstone, and raises InvalidInputError."""
    if _read_tombstone(store).everything or parse_log(store.list_log()).descriptor is None:
        return  # of an earlier drop that may delete commits, or that has checked this before
    body = store.get(names.DROPPED)
    if read_snapshot(store, clock, even_dropped=True).tids:
        _delete(store, [tombstone], same=[body])
        raise InvalidInputError(has_commits(store))


def has_commits(store: Store) -> str:
    return (
        f"{store.url} has commits, and nothing was deleted; to remove it with all of its rows, pass everything=True "
        "(`dbio drop --everything`)"
    )


def _require(store: Store, tombstone: Entry) -> None:
    with suppress(ObjectNotFoundError):
        if store.stat(names.DROPPED) == tombstone:
            return
    raise _ended(store)


def _ended(store: Store) -> CommitConflictError:
    return CommitConflictError(f"another drop of {store.url} has finished; check what is there now")


# --- writers ------------------------------------------------------------------------------------------------------


def _end_writers(store: Store, clock: Clock, tombstone: Entry, known: set[str]) -> list[str]:
    """Aborts all pending transactions, and waits until their writers must notice (`SETTLE_S`). Returns the tids.

    After the wait, none is so young that it would commit without looking for its start marker (PROTOCOL.md 9.3).
    `known` are the transactions that were waited for. Those that it waits for now are added.
    """
    aborted: list[str] = []
    has_waited = bool(known)
    while True:
        _require(store, tombstone)
        log = parse_log(store.list_log())
        aborted += abort_all(store, clock, log.pending)  # those that have committed count as committed before the drop
        if has_waited and log.started.keys() <= known:
            return aborted
        known |= log.started.keys()
        clock.sleep(SETTLE_S)
        has_waited = True


def _left_in_log(store: Store) -> bool:
    return any(_is_of_log(entry.path) and entry.path != names.DROPPED for entry in store.list_log())


# --- what goes ----------------------------------------------------------------------------------------------------


def _sort(store: Store) -> tuple[list[list[Entry]], list[str]]:
    """What to delete, step by step, and the paths of the files that stay, since they do not belong to the table.

    Start markers are deleted before commit markers. So at every moment a late writer finds an abort marker, or no start
    marker, and gives up.
    """
    entries = store.list_files(links=False)
    named = _named(store)
    strangers = _strangers(entries, named)
    data = [entry for entry in entries if _belongs(entry.path, named, strangers)]
    below = [entry for entry in entries if _marker(entry.path, strangers)]
    log = [entry for entry in store.list_log() if _is_of_log(entry.path) and entry.path != names.DROPPED]
    published = find_own(store, entries, table_id) if (table_id := _table_id(store)) else []
    steps: list[list[Entry]] = [*published, data, below]
    for kind in (Kind.STARTED, Kind.COMMITTED, None):
        step = [entry for entry in log if kind is None or _kind(entry.path) is kind]
        log = [entry for entry in log if entry not in step]
        steps.append(step)
    going = {entry.path for step in (*published, data, below) for entry in step}
    left = [
        it.path for it in entries if it.path not in going and (names.is_data_file(it.path) or is_published(it.path))
    ]
    return [step for step in steps if step], sorted(left)


def _table_id(store: Store) -> str | None:
    """The table's id. None if the descriptor is gone, which is deleted after all publications."""
    log = parse_log(store.list_log())
    return read_descriptor(store, log).id if log.descriptor else None


def _named(store: Store) -> set[str]:
    """The paths that any commit added or removed. The markers that name them are deleted after these files."""
    log = parse_log(store.list_log())
    named, covered = set[str](), frozenset[str]()
    with suppress(CorruptMarkerError):  # its files are found by the tids in their names
        checkpoint = read_checkpoint(store, log)
        named = {path for commit in checkpoint.commits for path in (*commit.marker.added, *commit.marker.removed)}
        covered = frozenset(checkpoint.covered)
    for part in in_parts(log.uncovered(covered)):
        markers = read_markers(store, part.values(), scope=Scope.TABLE).refuse_gone().valid
        named |= {path for marker in markers.values() for path in (*marker.added, *marker.removed)}
    return named


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
