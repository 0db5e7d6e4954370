"""Reads one consistent state of a table from listings of its log, however many commits come meanwhile (PROTOCOL.md
8.1)."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.errors import DbioError, ObjectNotFoundError, StoreError
from dbio_commit.log.listing import (
    Brief,
    CheckpointLimit,
    DecodeCheckpoint,
    Markers,
    are_too_large,
    cached_descriptor,
    in_groups,
    is_of_one_table,
    is_still_there,
    read_briefs,
    read_checkpoint,
    read_descriptor,
    read_markers,
    remember_descriptor,
    remember_markers,
    unread,
)
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import Doubt, add_doubts, find_doubts, redated_until
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import Decided, latest
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, newest_of, parse_log, settle
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.markers.descriptor import Descriptor, Origin
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.references import resolve
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Layout, layout_of
from dbio_commit.protocol.state import Metadata, current_metadata, known_layouts
from dbio_commit.store import Store

_COARSE_S = 2.0
"""The pause, in s, on a disk whose times have whole seconds, or every second one."""

_AHEAD_BYTES = 1024**2
"""The most bytes of markers that are read before it is known that they count."""

_ATTEMPTS = 10
"""The most attempts of a read. An attempt fails if a listed object is purged before it is read. Vacuum purges objects
only half an hour after a checkpoint that covers them."""


@dataclass(frozen=True, slots=True)
class Settled:
    """One consistent state of the log."""

    log: Log
    """The markers in `committed` count; those in `later` came too late for this state."""
    descriptor: Descriptor
    checkpoint: Checkpoint
    """The newest checkpoint."""
    markers: Markers
    """The markers of transactions that the checkpoint does not cover."""

    @property
    def origin(self) -> Origin:
        """Which table this is."""
        return Origin(self.descriptor.id, self.log.descriptor.modified if self.log.descriptor else None)

    @property
    def strange(self) -> list[str]:
        """Paths of commit markers, checkpoints and purge records of another table, as far as they were read."""
        above = (*self.log.checkpoints.items(), *self.log.purges.items())
        return sorted([*self.markers.strange, *(it.path for number, it in above if number > self.checkpoint.number)])

    @property
    def redated_until(self) -> datetime | None:
        """The time until which a copy has given commits new times, so that their order is not known; None if no copy
        has."""
        return latest(self.checkpoint.redated_until, redated_until(self._of_markers, self.origin.dated))

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Periods in which it is not known whether some commit had been made, since its marker has another time."""
        found = find_doubts(self._of_markers, self.log.started)
        return add_doubts(self.checkpoint.doubts, found, known_since=self.checkpoint.known_since)

    def metadata(self, decided: Iterable[Decided]) -> Metadata:
        """The columns and settings of the table, by all decided transactions."""
        return current_metadata((commit.marker for commit in decided), before=self.checkpoint.metadata)

    def layout(self, metadata: Metadata) -> Layout:
        """The partition columns of the table with these columns and settings."""
        return layout_of(metadata.settings, self.descriptor.partition_columns)

    def layouts(self, decided: Iterable[Decided]) -> frozenset[Layout]:
        """The current layout, and earlier ones as far as the markers and the checkpoint record them."""
        markers = (commit.marker for commit in decided)
        return known_layouts(markers, self.descriptor.partition_columns, before=self.checkpoint.metadata)

    @property
    def decided(self) -> list[Decided]:
        """All decided transactions, as far as they can be read."""
        return resolve([*self.checkpoint.commits, *self.news])

    @property
    def news(self) -> list[Decided]:
        """The transactions that the checkpoint does not cover. If a copy has given some new times, all up to the newest
        of these get that time."""
        found = self._of_markers
        until = redated_until(found, self.origin.dated)
        if until is None:
            return found
        return [it._replace(modified=until) if it.modified < until else it for it in found]

    @property
    def _of_markers(self) -> list[Decided]:
        """The transactions of the markers, with the markers' times on the store."""
        new, valid = self.log.uncovered(self.checkpoint.covered), self.markers.valid
        return [Decided(it.modified, tid, valid[it.path]) for tid, it in new.items() if it.path in valid]


@dataclass(frozen=True, slots=True)
class Oldest:
    """Chooses the oldest markers that no checkpoint covers, and no turn without the turns before it.

    None of them is another table's: no checkpoint ever covers those.
    """

    most: CheckpointLimit
    """The most that they are together, unless only one is chosen."""
    briefs: dict[str, Brief | None]
    """The markers that were read before, in brief, as by `read_briefs`. `read` adds others."""

    def read(self, store: Store, markers: Mapping[str, Entry], *, table_id: str) -> dict[str, Brief]:
        """The markers that are not another table's, in brief, by tid."""
        new = {tid: entry for tid, entry in markers.items() if tid not in self.briefs}
        self.briefs.update(read_briefs(store, new, table_id=table_id, remembers=False))
        return {tid: brief for tid in markers if (brief := self.briefs[tid]) is not None}


def read_settled(
    store: Store,
    clock: Clock,
    first: Log,
    *,
    oldest: Oldest | None = None,
    passing_over: Collection[int] = (),
    base: Checkpoint | None = None,
    decode: DecodeCheckpoint | None = None,
    looked: Moment | None = None,
) -> Settled:
    """The state as of the listing `first`, or later. Lists commit markers and checkpoints once more, and both again if
    there are new commits.

    With `oldest`, the state is an earlier one, for a checkpoint only: see `Oldest`. `passing_over` has the numbers of
    checkpoints that do not count, since they cannot be read. `base` takes the place of the newest checkpoint, whose
    parts cannot all be read. `decode`: see `read_checkpoint`. `looked` is a moment before `first` was listed.

    The checkpoints are listed after each listing whose markers count. If that listing missed a marker, since vacuum had
    purged it, a checkpoint from before the purge covers the transaction. Checkpoints are listed again only if one of
    them, or a marker, is gone when it is read. The commit markers are listed again only if a checkpoint has come since
    `first`: what this process remembers of a marker does not show that the marker is still there.
    """
    descriptor, second = look_again(store, clock, first, looked, reads_ahead=oldest is None)
    log, seen = _list_commits(store, clock, first, second.committed)
    checkpoints = second if log is first else None
    gone: set[str] = set()
    for _ in range(_ATTEMPTS):
        log = _with_checkpoints(log, checkpoints or parse_log(store.list_log(Kind.CHECKPOINT)), passing_over)
        checkpoints = None
        try:
            checkpoint = base or read_checkpoint(
                store, log, table_id=descriptor.id, passing_over=passing_over, decode=decode
            )
        except ObjectNotFoundError:
            _require_same_table(store, first)
            continue
        # A marker that is not covered and was gone before the checkpoints were listed was withdrawn: it decided nothing
        counts = {tid: it for tid, it in log.committed.items() if it.path not in gone or tid in checkpoint.covered}
        log = replace(log, committed=counts)
        read = partial(read_in_brief if oldest is None else oldest.read, store, table_id=descriptor.id)
        log = with_earlier_turns(log, checkpoint, read)
        if oldest is not None:
            log = _only_oldest(log, checkpoint, oldest.most, read)
        new = log.uncovered(checkpoint.covered)
        if not seen.shows(checkpoint.number, new):
            seen = _Seen(frozenset(log.checkpoints), list_committed(store).keys())
            if purged := new.keys() - seen.tids:
                gone |= {new[tid].path for tid in purged}
                _require_same_table(store, first)
                continue
        markers = read_markers(store, new.values(), scope=Scope.TABLE, table_id=descriptor.id, remembers=oldest is None)
        if not markers.gone:
            markers.warn_of_unkept(store, Scope.TABLE)
            return Settled(log, descriptor, checkpoint, markers)
        gone |= markers.gone.keys()
        _require_same_table(store, first)
    raise StoreError(
        f"checkpoints or markers of {store.url} were deleted during each of {_ATTEMPTS} attempts to read it, and "
        "vacuum deletes none before a checkpoint that covers it is half an hour old; find out what else deletes there"
    )


def look_again(
    store: Store, clock: Clock, first: Log, looked: Moment | None, *, reads_ahead: bool = True
) -> tuple[Descriptor, Log]:
    """The descriptor, and the checkpoints and commit markers as they are listed now. Reads markers ahead at the same
    time. `looked` is a moment before `first` was listed."""
    known, is_of_one = cached_descriptor(store, first), is_of_one_table(first, clock.now())
    descriptor, ahead, listed = store.together(
        lambda: known or read_descriptor(store, first),
        lambda: _read_ahead(store, first, known.id if known else None) if is_of_one and reads_ahead else (),
        lambda: store.list_log(Kind.CHECKPOINT, Kind.COMMITTED),
    )
    if not known and not is_still_there(store, clock, first, looked):
        raise ObjectNotFoundError(f"the table at {store.url} was dropped while it was read; look again")
    if is_of_one:
        remember_descriptor(store, first, descriptor)
    remember_markers(store, descriptor.id, ahead)
    return descriptor, parse_log(listed)


def _read_ahead(store: Store, first: Log, table_id: str | None) -> Sequence[tuple[Entry, CommitMarker]]:
    """The markers that the caller will read in any case, by what `first` shows, if they are few enough to be kept.

    Empty if a checkpoint must be read first to find out which these are. Markers that the caller will refuse are left
    out.
    """
    with suppress(DbioError):
        new = unread(store, first, table_id)
        is_little = sum(entry.size for entry in new) <= _AHEAD_BYTES and not are_too_large(new)
        if is_little and new.isdisjoint(first.checkpoints.values()):
            found = read_markers(store, new, scope=Scope.TABLE).valid
            return [(entry, found[entry.path]) for entry in new if entry.path in found]
    return ()


def _require_same_table(store: Store, first: Log) -> None:
    """Raises ObjectNotFoundError if the table was dropped since the first listing, or while it was made."""
    now = parse_log(store.stat_log(names.DESCRIPTOR, *(it.path for it in first.purges.values())).values())
    if (now.descriptor, now.purges) != (first.descriptor, first.purges):
        raise ObjectNotFoundError(f"the table at {store.url} was dropped while it was read; look again")


def _only_oldest(log: Log, checkpoint: Checkpoint, most: CheckpointLimit, read: "_ReadBriefs") -> Log:
    new = log.uncovered(checkpoint.covered)
    briefs = read(new)
    parts = in_groups({tid: new[tid] for tid in briefs}, most, briefs=briefs)
    first = parts[0] if parts else {}
    later = {tid: entry for tid, entry in new.items() if tid not in first}
    counts = {tid: entry for tid, entry in log.committed.items() if tid not in later}
    return replace(log, committed=counts, later={**log.later, **later})


@dataclass(frozen=True, slots=True)
class _Seen:
    """Records which commit markers were listed after which checkpoints had been written."""

    checkpoints: Set[int]
    """The numbers of checkpoints that were listed before the markers."""
    tids: Set[str]
    """The tids of commit markers in a listing that began after that."""

    def shows(self, newest: int, uncovered: Mapping[str, Entry]) -> bool:
        """Whether these markers, which the newest checkpoint does not cover, were listed after it: then it has not
        forgotten their transactions."""
        return not uncovered or (newest in {0, *self.checkpoints} and uncovered.keys() <= self.tids)


def _list_commits(store: Store, clock: Clock, first: Log, second: Mapping[str, Entry]) -> tuple[Log, _Seen]:
    """The log with the commit markers that count, and with those that came too late; and what was seen. The log is
    `first` if exactly its markers count."""
    checkpoints = frozenset(first.checkpoints)
    if second.keys() <= first.committed.keys():
        return first, _Seen(checkpoints, second.keys())  # then the state is as of a time between the two listings
    base = {**second, **first.committed}
    clock.sleep(pause_s(store, base))
    third = list_committed(store)
    committed, later = settle(base, third, newest_of(base))
    return replace(first, committed=committed, later=later), _Seen(checkpoints, second.keys() | third.keys())


def pause_s(store: Store, listed: Mapping[str, Entry]) -> float:
    """The longest time, in s, from an object's own time until it is listed. `listed` shows how exact the times are."""
    is_coarse = store.has_directories and not any(entry.modified.microsecond for entry in listed.values())
    return max(store.settle_s, _COARSE_S) if is_coarse else store.settle_s


def list_committed(store: Store) -> Mapping[str, Entry]:
    """The commit markers, as they are listed now."""
    return parse_log(store.list_log(Kind.COMMITTED)).committed


def _with_checkpoints(log: Log, found: Log, passing_over: Collection[int]) -> Log:
    count = {number: entry for number, entry in found.checkpoints.items() if number not in passing_over}
    taken = {number: entry for number, entry in found.checkpoints.items() if number in passing_over}
    return replace(log, checkpoints=count, refusals={**found.refusals, **taken})


_ReadBriefs = Callable[[Mapping[str, Entry]], Mapping[str, Brief]]
"""Reads markers in brief, by tid, except for another table's."""


def read_in_brief(store: Store, markers: Mapping[str, Entry], *, table_id: str) -> Mapping[str, Brief]:
    found = read_briefs(store, markers, table_id=table_id, remembers=True)
    return {tid: brief for tid, brief in found.items() if brief is not None}


def with_earlier_turns(log: Log, checkpoint: Checkpoint, read: _ReadBriefs) -> Log:
    """The log with all turns that the counted markers depend on by their bodies, whatever the store's clock says."""
    if not log.later:
        return log
    last = max((it.known for it in read(log.uncovered(checkpoint.covered)).values()), default=0)
    earlier = {tid for tid, it in read(log.later).items() if 0 < it.turn <= last} if last else set[str]()
    return replace(
        log,
        committed={**log.committed, **{tid: log.later[tid] for tid in earlier}},
        later={tid: entry for tid, entry in log.later.items() if tid not in earlier},
    )
