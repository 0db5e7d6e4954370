"""Remembers tables in this process, each as a transaction saw it when it began, as of a decided turn.

Turns are numbered and never change, so a process that remembers one looks only for the next (`metadata`).
"""

from dataclasses import dataclass, replace

from cachetools import LRUCache

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.forks import ProcessLock
from dbio_commit.log.listing import is_of_one_table
from dbio_commit.log.settled import Settled
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.markers.descriptor import Descriptor, Origin
from dbio_commit.protocol.markers.turn import Turn
from dbio_commit.protocol.settings import Layout, layout_of
from dbio_commit.protocol.state import NO_METADATA, Metadata
from dbio_commit.store import Store

_TABLES = 1000
"""How many tables a process remembers."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A table as a transaction saw it when it began."""

    entry: Entry
    """The descriptor as it is listed."""
    descriptor: Descriptor
    metadata: Metadata
    """As of a decided turn."""
    turn: Entry | None = None
    """The object of that turn. None if it was not listed. Its number is not enough: if the table was restored from a
    backup, another transaction may have taken a turn of the same number."""
    holder: Turn | None = None
    """The turn after `turn`, if it is taken and was undecided."""
    at: Moment | None = None
    """When the holder was undecided. None if there is no holder."""
    looked: Moment | None = None
    """At this moment or later, the last turn was `turn`, an earlier one, or that of `holder`."""

    @property
    def layout(self) -> Layout:
        """The partition columns."""
        return layout_of(self.metadata.settings, self.descriptor.partition_columns)

    @property
    def origin(self) -> Origin:
        return Origin(self.descriptor.id, self.entry.modified)

    @property
    def new_layout_by(self) -> Turn | None:
        """The turn of a transaction that is changing the layout, if any. Until it is decided, no other may begin."""
        return self.holder if self.holder and self.holder.new_layout else None

    def as_of(self, metadata: Metadata, log: Log, holder: Turn | None = None, at: Moment | None = None) -> "Seen":
        """The same table with these columns and settings, by the turns of the log. `holder` was undecided `at` that
        moment."""
        return replace(self, metadata=metadata, turn=log.turns.get(metadata.turn), holder=holder, at=at)


_SEEN: LRUCache[tuple[str, ...], Seen] = LRUCache(_TABLES)


def _begin_anew() -> None:
    global _SEEN
    _SEEN = LRUCache(_TABLES)


_LOCK = ProcessLock(_begin_anew)


def _key(store: Store, clock: Clock) -> tuple[str, ...]:
    return store.identity, store.principal, store.url, clock.boot()


def find_seen(store: Store, clock: Clock) -> Seen | None:
    with _LOCK:
        return _SEEN.get(_key(store, clock))


def remember(store: Store, clock: Clock, seen: Seen) -> None:
    with _LOCK:
        _SEEN[_key(store, clock)] = seen


def remember_metadata(store: Store, clock: Clock, metadata: Metadata, log: Log) -> None:
    """Remembers the metadata that this process has committed in a turn that the log shows, if it remembers the
    table."""
    seen = find_seen(store, clock)
    if seen is not None and seen.entry == log.descriptor and seen.metadata.turn < metadata.turn:
        remember(store, clock, seen.as_of(metadata, log))


def remember_state(store: Store, clock: Clock, settled: Settled, metadata: Metadata, looked: Moment) -> None:
    """Remembers the table as it was read, in a state that has this metadata, by listings that began at `looked`.

    So a transaction that begins now looks only for later turns.
    """
    entry, seen = settled.log.descriptor, find_seen(store, clock)
    is_known = seen is not None and seen.entry == entry and seen.metadata.turn >= metadata.turn
    if entry is None or is_known or metadata.turn != settled.log.last_turn or not metadata.turn:
        return
    if is_of_one_table(settled.log, looked.wall):
        fresh = Seen(entry, settled.descriptor, NO_METADATA, looked=looked)
        remember(store, clock, fresh.as_of(metadata, settled.log))


def free_turn(store: Store, clock: Clock, origin: Origin | None, *, within_s: float) -> int | None:
    """The turn after the last one, if this process saw that all turns were decided, not longer ago than `within_s`."""
    seen = find_seen(store, clock)
    if seen is None or seen.turn is None or seen.holder or origin is None or seen.descriptor.id != origin.table_id:
        return None
    return seen.metadata.turn + 1 if seen.looked and clock.is_within(seen.looked, within_s) else None


def forget_holder(store: Store, clock: Clock) -> None:
    """Forgets the undecided holder, so that the next look asks the store what became of it."""
    if (seen := find_seen(store, clock)) is not None:
        remember(store, clock, replace(seen, holder=None, at=None))


def remembered_id(store: Store, clock: Clock) -> str | None:
    """The id of the table that this process remembers at this root. None if it remembers none."""
    seen = find_seen(store, clock)
    return seen.descriptor.id if seen else None
