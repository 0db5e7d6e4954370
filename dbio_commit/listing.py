"""Lists the log and reads what is in it: descriptor, markers, checkpoints, turns. Writes nothing."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import TypeVar

from dbio_commit.clock import Clock
from dbio_commit.errors import CorruptMarkerError, ObjectNotFoundError, StoreError, TableNotFoundError
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint, decode_checkpoint
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers import (
    INSPECT,
    MAX_BYTES,
    CommitMarker,
    Descriptor,
    decode_commit,
    decode_descriptor,
    decode_turn,
)
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

_T = TypeVar("_T")

_ATTEMPTS = 100
"""How often a read starts again because commits or vacuum overtook it, before it gives up."""

_VACUUM_S = 1.0
"""No two vacuums come and go in less: the first to make a checkpoint, the second to purge what it covers."""

MAX_TOTAL_BYTES = 1024**3
"""Of the commit markers that one state is read from. Vacuum's checkpoints keep it at some twenty markers."""


def until_quiet(store: Store, read: Callable[[], _T]) -> _T:
    """What `read` returns once it finds every marker that it had listed: vacuum may purge one in between."""
    for _ in range(_ATTEMPTS):
        with suppress(ObjectNotFoundError):
            return read()
    raise StoreError(f"{store.url} changed under each of {_ATTEMPTS} attempts to read it; try again when it is quieter")


def refuse_dropped(store: Store, log: Log) -> None:
    """Raises TableNotFoundError where there is a tombstone: what is left of the table is no table."""
    if log.dropped is not None:
        raise TableNotFoundError(
            f"the table at {store.url} was dropped, and what is left of it is still to be deleted; end that with "
            "`dbio drop`, by whoever may delete there"
        )


def agreed_log(store: Store, log: Log, clock: Clock) -> tuple[Log, Checkpoint]:
    """Lists until two listings in a row agree: the state is then the one between the two (I6).

    It is what the newest checkpoint covers, and the commit markers that it does not cover.
    """
    checkpoint = read_checkpoint(store, log)
    for _ in range(_ATTEMPTS):
        since_s = clock.monotonic()
        again = parse_log(store.list_log())
        if again.agrees_with(log, covered=checkpoint.covered):
            if clock.monotonic() - since_s < _VACUUM_S:
                return again, checkpoint
            # Long enough for vacuum to make a checkpoint and to purge by it: both listings may have missed a commit.
            log, again = again, parse_log(store.list_log())
            if again.last_checkpoint == checkpoint.number:
                return log, checkpoint
        if again.last_checkpoint != checkpoint.number:
            checkpoint = read_checkpoint(store, again)
        log = again
    raise StoreError(f"{store.url} had new commits in each of {_ATTEMPTS} listings; try again when it is quieter")


def read_checkpoint(store: Store, log: Log, number: int | None = None) -> Checkpoint:
    """The newest checkpoint of the log, or one of its others; 0 is none.

    Raises ObjectNotFoundError where vacuum has purged it since.
    """
    if number is None:
        number = log.last_checkpoint
    if not number:
        return NO_CHECKPOINT
    entry = log.checkpoints[number]
    where = store.url_of(entry.path)
    if number >= names.LAST_NUMBER:
        raise CorruptMarkerError(f"{where} is a checkpoint that no writer reaches; {INSPECT}")
    checkpoint = decode_checkpoint(read_marker(store, entry), number=number, where=where)
    for commit in checkpoint.commits:
        _check_visible(commit.marker, where=where)
    return checkpoint


def read_descriptor(store: Store, log: Log) -> Descriptor:
    """The table's descriptor. Raises UnsupportedTableError where a later version wrote it."""
    if log.descriptor is None:
        raise ObjectNotFoundError(f"{store.url_of(names.DESCRIPTOR)} has gone; somebody deleted the table")
    return decode_descriptor(read_marker(store, log.descriptor), where=store.url_of(names.DESCRIPTOR))


def read_marker(store: Store, entry: Entry) -> bytes:
    """The body of a marker that was listed; none that could not be a marker's takes our memory."""
    if entry.size > MAX_BYTES:
        raise CorruptMarkerError(
            f"{store.url_of(entry.path)} has {entry.size} bytes, and no writer writes over {MAX_BYTES}; {INSPECT}"
        )
    return store.get(entry.path)


def read_markers(
    store: Store, entries: Iterable[Entry], *, scope: Scope
) -> tuple[dict[str, CommitMarker], dict[str, CorruptMarkerError]]:
    """The commit markers, and what is wrong with those that are corrupt, by path; read in parallel."""
    entries = list(entries)
    check_scope = _check_visible if scope is Scope.TABLE else _check_local
    if (size := sum(min(entry.size, MAX_BYTES) for entry in entries)) > MAX_TOTAL_BYTES:
        raise CorruptMarkerError(
            f"the {len(entries)} commit markers of {store.url} have {size} bytes together, and {MAX_TOTAL_BYTES} are "
            "read at most; inspect the largest, and remove those that no writer wrote"
        )

    def read(entry: Entry) -> CommitMarker | CorruptMarkerError:
        where = store.url_of(entry.path)
        try:
            marker = decode_commit(read_marker(store, entry), where=where)
            check_scope(marker, where=where)
        except CorruptMarkerError as error:
            return error
        return marker

    found = dict(zip((entry.path for entry in entries), store.in_parallel(read, entries), strict=True))
    return (
        {path: marker for path, marker in found.items() if isinstance(marker, CommitMarker)},
        {path: error for path, error in found.items() if isinstance(error, CorruptMarkerError)},
    )


def _check_visible(marker: CommitMarker, *, where: str) -> None:
    """In the table scope, markers add only what readers take for data, and for one file."""
    if names.is_pattern("\n".join(marker.added)):
        pattern = next(filter(names.is_pattern, marker.added))
        raise CorruptMarkerError(f"{where} adds {pattern[:200]!r}, which other tools take for a pattern. Inspect it")
    visible = cache(names.is_data_file)
    for path in marker.added:
        directory, _, name = path.rpartition("/")
        if (name[0] in "._" and names.is_hidden(name)) or (directory and not visible(directory)):
            raise CorruptMarkerError(f"{where} adds {path[:200]!r}, which readers skip by its name. Inspect it")


def _check_local(marker: CommitMarker, *, where: str) -> None:
    """In the directory scope, markers name files of their own directory only."""
    for name in (*marker.added, *marker.removed):
        if "/" in name:
            raise CorruptMarkerError(
                f"{where} names {name[:200]!r}, which lies in another directory; without a {names.DESCRIPTOR} at the "
                "root a marker speaks of its own directory only. Inspect it"
            )


def read_valid(
    store: Store, entries: Iterable[Entry], *, scope: Scope, ignore_corrupt: bool
) -> dict[str, CommitMarker]:
    markers, corrupt = read_markers(store, entries, scope=scope)
    if corrupt and not ignore_corrupt:
        raise next(iter(corrupt.values()))
    return markers


def read_last_turn(store: Store, log: Log) -> int:
    """The highest turn that was taken. Raises CorruptMarkerError for one that no writer reaches."""
    if log.last_turn >= names.LAST_NUMBER:
        raise CorruptMarkerError(
            f"{store.url_of(names.turn(log.last_turn))} is a turn that no writer reaches; inspect it"
        )
    return log.last_turn


def read_turn(store: Store, log: Log) -> str | None:
    """The tid that holds the last turn; None where vacuum has purged it since it was listed."""
    entry = log.turns[log.last_turn]
    with suppress(ObjectNotFoundError):
        return decode_turn(read_marker(store, entry), where=store.url_of(entry.path)).tid
    return None
