"""Finds which scope applies at a root: the markers at the root decide about a table, or those of each directory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    TableNotFoundError,
)
from dbio_commit.commit.directory_root import DirectoryRoot, check_directories
from dbio_commit.commit.root import Target
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.log.listing import refuse_dropped, refuse_lost_descriptor, until_quiet
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.table_state import table_snapshot
from dbio_commit.log.together import read_together
from dbio_commit.protocol.commits import AsOf
from dbio_commit.protocol.directory import is_empty, parse_directories
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

__all__ = ["KINDS", "DirectoryRoot", "Nothing", "TableRoot", "Target", "find_root", "open_root", "read_snapshot"]

KINDS: Mapping[Scope, type[TableRoot] | type[DirectoryRoot]] = {
    Scope.TABLE: TableRoot,
    Scope.DIRECTORY: DirectoryRoot,
}


@dataclass(frozen=True, slots=True)
class Nothing:
    """No data file, and no marker that decides anything: a table may be created here."""

    log: Log
    entries: Sequence[Entry]


def find_root(
    store: Store,
    clock: Clock,
    *,
    entries: Sequence[Entry] | None = None,
    even_dropped: bool = False,
    at_once: bool = False,
) -> TableRoot | DirectoryRoot | Nothing:
    """What is at the root. `entries` are all files, if the caller has just listed them. `at_once` lists them together
    with the log, for a caller that has just found no table.

    Raises TableNotFoundError if the table was dropped (unless `even_dropped`), UnsupportedTableError,
    InvalidInputError.
    """
    looked = clock.moment()
    if at_once:
        log, entries = store.together(lambda: _list_log(store, even_dropped=even_dropped), store.list_files)
    else:
        log = _list_log(store, even_dropped=even_dropped)
    if log.descriptor is not None:
        return TableRoot(store, clock, log, looked=looked)
    if entries is None:
        entries = store.list_files()
    if entries:
        log = _look_again(store, log, even_dropped=even_dropped)
    if log.descriptor is not None:
        return TableRoot(store, clock, log, looked=looked)
    refuse_lost_descriptor(store, log)
    check_directories(store, (entry.path for entry in entries))
    if is_empty(parse_directories(entries)):
        return Nothing(log, entries)
    return DirectoryRoot(store, clock, entries, log)


def open_root(
    store: Store, clock: Clock, *, entries: Sequence[Entry] | None = None, even_dropped: bool = False
) -> TableRoot | DirectoryRoot:
    """As `find_root`. Raises TableNotFoundError if nothing is there."""
    root = find_root(store, clock, entries=entries, even_dropped=even_dropped)
    if isinstance(root, Nothing):
        raise TableNotFoundError(
            f"there is no table at {store.url}: no descriptor, no Parquet file and no marker; check the path"
        )
    return root


def read_snapshot(
    store: Store, clock: Clock, *, as_of: AsOf = None, ignore_corrupt_markers: bool = False, even_dropped: bool = False
) -> Snapshot:
    """The table's state now, or as of a time or tid. `even_dropped` is for the drop itself.

    Raises TableNotFoundError if nothing is there, UnsupportedTableError, InvalidInputError for an impossible `as_of`.
    Raises CorruptMarkerError unless `ignore_corrupt_markers`: then transactions with corrupt markers count as pending.
    """

    def read() -> Snapshot:
        root = open_root(store, clock, even_dropped=even_dropped)
        return root.snapshot(as_of=as_of, ignore_corrupt=ignore_corrupt_markers)

    return until_quiet(store, read)


def read_snapshots(stores: Sequence[Store], clock: Clock, *, as_of: datetime | None = None) -> list[Snapshot]:
    """The states of several tables at one moment of this call, or as of a time, in this order (PROTOCOL.md 8.5).

    Raises what `read_snapshot` raises, and InvalidInputError for tables whose stores have separate clocks, and for a
    directory without a descriptor.
    """
    first = stores[0]
    if other := next((it for it in stores if not first.shares_clock(it)), None):
        raise InvalidInputError(
            f"{first.url} and {other.url} lie in stores with separate clocks, so the times of their commits cannot be "
            "compared, and no moment is the same in both; read each store by a call of its own"
        )

    def list_table(store: Store) -> tuple[Store, Log]:
        log = _list_log(store, even_dropped=False)
        if log.descriptor is None:
            if isinstance(open_root(store, clock), DirectoryRoot):
                raise InvalidInputError(
                    f"{store.url} is a directory without a descriptor, so each of its directories is committed by "
                    "itself, and it has no state at one moment; make it a table with `dbio adopt`"
                )
            raise ObjectNotFoundError(f"the table at {store.url} was created while it was listed; look again")
        return store, log

    def read() -> list[Snapshot]:
        began = clock.moment()
        settled = read_together(clock, began, first.ask_each(list_table, stores))
        found = [*zip(stores, settled, strict=True)]
        return first.ask_each(lambda it: table_snapshot(*it, as_of=as_of), found)

    return until_quiet(first, read)


def _list_log(store: Store, *, even_dropped: bool) -> Log:
    log = parse_log(store.list_log())
    if not even_dropped:
        refuse_dropped(store, log)
    return log


def _look_again(store: Store, log: Log, *, even_dropped: bool) -> Log:
    """Lists the log again if there are files: a descriptor comes before all other objects of its table (I1)."""
    return _list_log(store, even_dropped=even_dropped)
