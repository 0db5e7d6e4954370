"""Finds what is at a path: a table, whose descriptor and log decide, or a directory, whose markers do."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    AccessDeniedError,
    InvalidInputError,
    ObjectNotFoundError,
    TableNotFoundError,
    UnsupportedTableError,
)
from dbio_commit.base.texts import command
from dbio_commit.log.directory_log import DirectoryLog
from dbio_commit.log.joint import refuse_half
from dbio_commit.log.listing import refuse_dropped, refuse_lost_descriptor, until_quiet
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.table_log import TableLog
from dbio_commit.log.table_state import table_snapshot
from dbio_commit.log.together import read_together
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf
from dbio_commit.protocol.directory import is_empty, parse_directories
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.store import Store


@dataclass(frozen=True, slots=True)
class Nothing:
    """No data file, and no marker that decides anything: a table may be created here."""

    log: Log
    entries: Sequence[Entry]


def find_log(
    store: Store, clock: Clock, *, even_dropped: bool = False, at_once: bool = False
) -> TableLog | DirectoryLog | Nothing:
    """Returns what is at the root. `at_once` lists all files together with the log, for a caller that has just found no
    table.

    Raises TableNotFoundError if the table was dropped (unless `even_dropped`), UnsupportedTableError,
    InvalidInputError.
    """
    looked, entries = clock.moment(), None
    if at_once:
        log, entries = store.together(lambda: _list_log(store, even_dropped=even_dropped), store.list_files)
    else:
        log = _list_log(store, even_dropped=even_dropped)
    if log.descriptor is not None:
        return TableLog(store, clock, log, looked=looked)
    if entries is None:
        entries = store.list_files()
    if entries:
        log = _look_again(store, log, even_dropped=even_dropped)
    if log.descriptor is not None:
        return TableLog(store, clock, log, looked=looked)
    refuse_lost_descriptor(store, log)
    check_directories(store, (entry.path for entry in entries))
    if is_empty(parse_directories(entries)):
        return Nothing(log, entries)
    return DirectoryLog(store, clock, entries, log)


def open_log(store: Store, clock: Clock, *, even_dropped: bool = False) -> TableLog | DirectoryLog:
    """As `find_log`. Raises TableNotFoundError if nothing is there."""
    found = find_log(store, clock, even_dropped=even_dropped)
    if isinstance(found, Nothing):
        raise TableNotFoundError(
            f"there is no table at {store.url}: no descriptor, no Parquet file and no marker; check the path"
        )
    return found


def read_snapshot(
    store: Store, clock: Clock, *, as_of: AsOf = None, ignore_corrupt_markers: bool = False, even_dropped: bool = False
) -> Snapshot:
    """The table's state now, or as of a time or tid. `even_dropped` is for the drop itself.

    Raises TableNotFoundError if nothing is there, UnsupportedTableError, InvalidInputError for an impossible `as_of`.
    Raises CorruptMarkerError unless `ignore_corrupt_markers`: then transactions with corrupt markers count as pending.
    """

    def read() -> Snapshot:
        found = open_log(store, clock, even_dropped=even_dropped)
        return found.snapshot(as_of=as_of, ignore_corrupt=ignore_corrupt_markers)

    return until_quiet(store, read)


def read_snapshots(stores: Sequence[Store], clock: Clock, *, as_of: AsOf = None) -> list[Snapshot]:
    """The states of several tables at one moment of this call, or as of a time or a joint transaction, in this order
    (PROTOCOL.md 8.5).

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
            if isinstance(open_log(store, clock), DirectoryLog):
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
        snapshots = first.ask_each(lambda it: table_snapshot(*it, as_of=as_of), found)
        if isinstance(as_of, datetime):
            refuse_half(snapshots, settled, as_of)
        return snapshots

    return until_quiet(first, read)


def _list_log(store: Store, *, even_dropped: bool) -> Log:
    log = parse_log(store.list_log())
    if not even_dropped:
        refuse_dropped(store, log)
    return log


def _look_again(store: Store, log: Log, *, even_dropped: bool) -> Log:
    """Lists the log again if there are files: a descriptor comes before all other objects of its table (I1)."""
    return _list_log(store, even_dropped=even_dropped)


# --- tables in tables ----


_FOREIGN = {
    "_delta_log": "a Delta table",
    ".hoodie": "a Hudi table",
    "_spark_metadata": "the output of a Spark stream",
}


def check_directories(store: Store, paths: Iterable[str]) -> None:
    """Raises UnsupportedTableError for a table of another format, InvalidInputError if a dbio table lies further down.

    Paths of directories end with "/".
    """
    for path in paths:
        first, slash, _ = path.partition("/")
        if slash and first in _FOREIGN:
            raise UnsupportedTableError(
                f"{store.url} holds {first}/, so it is {_FOREIGN[first]}, whose own log decides which files are live; "
                "read and write it with the tool that it belongs to"
            )
        refuse_nested(store, path)


def refuse_nested(store: Store, path: str) -> None:
    """Raises InvalidInputError if the path is that of a table's descriptor below the root."""
    directory, name = names.split(path)
    if directory and name == names.DESCRIPTOR:
        inner = store.url_of(directory)
        drop = command("dbio", "drop", inner, "--everything")
        raise InvalidInputError(
            f"{store.url} holds another table, {inner}; use that table's own path, and keep tables apart from one "
            f"another: `{command('dbio', 'copy', inner, 'PATH')}` and then `{drop}` move it"
        )


def outer_table(store: Store) -> Store | None:
    """The table in which the root lies, if any. A directory that may not be read counts as no table."""

    def is_table(outer: Store) -> bool:
        with suppress(ObjectNotFoundError, AccessDeniedError):
            return bool(outer.stat(names.DESCRIPTOR))
        return False

    around = store.around()
    found = store.in_parallel(is_table, around)
    return next((outer for outer, is_one in zip(around, found, strict=True) if is_one), None)


def refuse_inside(store: Store, outer: Store | None) -> None:
    """Raises InvalidInputError if there is an outer table."""
    if outer is not None:
        raise InvalidInputError(
            f"{store.url} lies in the table {outer.url}, whose vacuum would delete files that it does not know; "
            "nothing was written: write to that table, or give a path outside of it"
        )
