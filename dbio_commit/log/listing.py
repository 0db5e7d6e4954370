"""Reads the objects of a log: descriptor, markers, checkpoints, turns. Finds out which are missing. Writes nothing."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import accumulate, chain, groupby
from sys import getsizeof
from typing import NamedTuple, Protocol, Self, TypeVar, cast

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.errors import (
    CheckpointLostError,
    CommitConflictError,
    CorruptMarkerError,
    ObjectNotFoundError,
    StoreError,
    TableNotFoundError,
    UnsupportedTableError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.base.texts import command
from dbio_commit.log.collector import collector_paused
from dbio_commit.log.object_cache import find, is_cached, keep, read_cached, read_last_cached
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint, decode_checkpoint, is_of_adoption
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.footprint import checkpoint_bytes, marker_bytes, start_bytes
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.bodies import INSPECT, MAX_BYTES
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker, decode_commit, is_lean, lean
from dbio_commit.protocol.markers.descriptor import Descriptor, Origin, decode_descriptor
from dbio_commit.protocol.markers.purge import Purge, decode_purge
from dbio_commit.protocol.markers.schema import Schemas
from dbio_commit.protocol.markers.start import StartMarker, decode_start
from dbio_commit.protocol.markers.tombstone import decode_tombstone
from dbio_commit.protocol.markers.turn import Turn, decode_turn
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import LiveFiles
from dbio_commit.store import Store

_log = get_logger(__name__)

_T = TypeVar("_T")

_ATTEMPTS = 100
"""How often a read starts again, because others changed the log meanwhile, before it gives up."""

_MOST_STRANGE = 20
"""The most checkpoints, and purge records, of other tables. Each comes from a process that slept while the table was
created again."""

STATISTICS_BYTES = 256 * 1024**2
"""If the uncovered commit markers of a state are larger than this together, their statistics are not kept in memory.
Vacuum and writers make checkpoints that keep the uncovered markers smaller."""

_ROOT_BYTES, _ROOT_PATHS = 32 * 1024**2, 100_000
"""A checkpoint that follows one with parts covers about so many bytes of markers at most, and so many paths in them:
then it takes less memory. With 8 MiB, checkpoints of wide statistics merged parts so often that they wrote 12 times
what is new."""

SAME_SECOND = timedelta(seconds=2)
"""If a descriptor was older than this when it was read, a later one at this path has another time, even in whole
seconds."""

UNDROPPED_S = 50.0
"""A drop waits longer than this, in s, before it deletes anything of a table that exists (PROTOCOL.md 12)."""

_PATH_BYTES = 100
"""About the least that a path takes in a marker."""

_SOON = 4
"""A writer writes a checkpoint at once if the uncovered markers are larger than STATISTICS_BYTES divided by this."""

_AT_ONCE_BYTES = 128 * 1024**2
"""The most bytes of markers whose bodies are in memory at the same time."""


class DecodeCheckpoint(Protocol):
    """Makes a checkpoint of its body, as `decode_checkpoint`."""

    def __call__(self, body: bytes, *, number: int, where: str) -> Checkpoint: ...


def until_quiet(store: Store, read: Callable[[], _T]) -> _T:
    """The result of `read`, which is repeated until it finds every marker that it lists: vacuum may purge one in
    between."""
    for _ in range(_ATTEMPTS):
        with suppress(ObjectNotFoundError):
            return read()
    raise StoreError(f"{store.url} changed under each of {_ATTEMPTS} attempts to read it; try again when it is quieter")


def is_dropped(store: Store, log: Log) -> bool:
    """Whether the table in this listing was dropped: there is a tombstone, and it is not strange.

    If another table is here by now, a drop whose request came late put the tombstone, which drops nothing. Nothing is
    read but beside a tombstone. True also if the drop ends meanwhile.
    """
    if log.dropped is None or log.descriptor is None:
        return log.dropped is not None
    with suppress(ObjectNotFoundError, CorruptMarkerError):
        found = decode_tombstone(store.get(names.DROPPED), where=store.url_of(names.DROPPED))
        if not found.is_of(read_descriptor(store, log).id):
            return not _is_unchanged(store, log)
    return True


def _is_unchanged(store: Store, log: Log) -> bool:
    """Whether the descriptor is the one that was listed, so that what was read of it since is of the same table."""
    return store.stat_log(names.DESCRIPTOR).get(names.DESCRIPTOR) == log.descriptor


def refuse_dropped(store: Store, log: Log) -> None:
    """Raises TableNotFoundError if the table was dropped: its remains are no table."""
    if is_dropped(store, log):
        raise TableNotFoundError(
            f"the table at {store.url} was dropped, and its remains are still to be deleted; finish that with "
            "`dbio drop`, as somebody who may delete there"
        )


def has_commits(store: Store) -> bool:
    """Whether anything was committed to the table. Cheaper than a snapshot: one listing, and mostly one marker or none.

    False for a table whose first write is pending or was aborted, and for one that was dropped. A table with a
    checkpoint counts as one with commits, and so does one with a corrupt marker.
    """
    log = parse_log(store.list_log(names.Kind.CHECKPOINT, names.Kind.COMMITTED, "_d"))
    if is_dropped(store, log):
        return False
    if log.checkpoints:
        return True
    for entry in sorted(log.committed.values(), key=lambda it: -it.size):  # markers of aborts are among the smallest
        read = read_markers(store, [entry], scope=Scope.TABLE)
        if read.corrupt or any(not marker.is_abort for marker in read.valid.values()):
            return True
    return False


def refuse_lost_descriptor(store: Store, log: Log) -> None:
    """Raises CorruptMarkerError if the descriptor is missing, and turns or a checkpoint show that there was a table.

    An adoption writes a checkpoint before the descriptor, so such a checkpoint alone shows no table. Raises
    ObjectNotFoundError if a creation or a drop has overtaken the listing.
    """
    if log.descriptor is not None or log.dropped is not None:
        return
    if log.turns or (log.is_being_adopted and not is_of_adoption(read_checkpoint(store, log))):
        what = names.turn(log.last_turn) if log.turns else names.checkpoint(log.last_checkpoint)
        descriptor, dropped, witness = store.stat_many([names.DESCRIPTOR, names.DROPPED, what])
        if descriptor or dropped or not witness:
            raise ObjectNotFoundError(f"{store.url} was created or dropped while it was listed; look again")
        raise CorruptMarkerError(
            f"{store.url_of(names.DESCRIPTOR)} is missing, and {what} shows that there is a table: a copy may have "
            "left it out, or somebody deleted it. Its markers and files record all else: bring that object back, from "
            "where the table was copied or from a backup, before anything reads, writes or deletes here"
        )


def read_checkpoint(
    store: Store,
    log: Log,
    *,
    table_id: str | None = None,
    passing_over: Collection[int] = (),
    decode: DecodeCheckpoint | None = None,
) -> Checkpoint:
    """The newest checkpoint of the table with this id. With an id, its contents are remembered. Without an id, the
    newest checkpoint of any table counts. `passing_over` has the numbers that the log leaves out on purpose. What
    `decode` makes of a body takes the place of its contents, and is not remembered.

    Raises ObjectNotFoundError if a purge has overtaken the listing. Raises CheckpointLostError if the checkpoint cannot
    be read, or if markers were purged and all checkpoints that cover them are missing.
    """
    found = NO_CHECKPOINT
    for place, number in enumerate(sorted(log.checkpoints, reverse=True)):
        checkpoint = read_numbered_checkpoint(store, log, number, table_id=table_id, decode=decode)
        if is_of_table(checkpoint.table_id, table_id):
            # Those above it are other tables' checkpoints, and do not make it an older one.
            found = _with_parts(store, log, checkpoint, table_id, newest=log.last_checkpoint)
            break
        if place >= _MOST_STRANGE:
            raise CorruptMarkerError(
                f"{store.url} has over {_MOST_STRANGE} checkpoints of other tables, and no writer leaves so many: "
                f"inspect {log.checkpoints[number].path} and those above it"
            )
    _refuse_lost(store, log, found.number, table_id, passing_over)
    return found


def covered_commits(store: Store, tids: Collection[str]) -> dict[str, CommitMarker]:
    """The commits of these transactions that the newest checkpoint records, by tid."""

    def read() -> dict[str, CommitMarker]:
        front = parse_log(store.list_log("_d", names.Kind.PURGE))
        if front.descriptor is None:
            return {}  # in the directory scope checkpoints do not count
        log = replace(front, checkpoints=parse_log(store.list_log(names.Kind.CHECKPOINT)).checkpoints)
        if not log.checkpoints and not log.purges:
            return {}
        checkpoint = read_checkpoint(store, log, table_id=read_descriptor(store, front).id)
        return {commit.tid: commit.marker for commit in checkpoint.whole(tids) if not commit.marker.is_abort}

    return until_quiet(store, read)


def read_last_erasure(store: Store, table_id: str | None) -> str:
    """The id of the table's last erasure; "" for none. One listing, as long as there is no new checkpoint."""

    def read() -> str:
        log = parse_log(store.list_log(names.Kind.CHECKPOINT))
        return read_checkpoint(store, log, table_id=table_id).last_erasure or ""

    return until_quiet(store, read)


def is_of_table(recorded: str | None, table_id: str | None) -> bool:
    """Whether an object that records the id `recorded` belongs to the table. Earlier versions recorded none."""
    return recorded is None or table_id is None or recorded == table_id


def _refuse_lost(store: Store, log: Log, number: int, table_id: str | None, passing_over: Collection[int]) -> None:
    """Raises CheckpointLostError if markers were purged that this checkpoint does not cover.

    Raises ObjectNotFoundError if a checkpoint that covers them exists: the listing took so long that vacuum has purged
    the checkpoints in it, and it showed none of the newer ones.
    """
    above = sorted((purged for purged in log.purges if purged > number), reverse=True)
    if len(above) > _MOST_STRANGE:
        raise CorruptMarkerError(
            f"{store.url} has {len(above)} purge records such as {log.purges[above[0]].path} and no checkpoint with "
            f"their numbers, and no writer leaves so many; {INSPECT}"
        )
    for purged in above:
        entry = log.purges[purged]
        if is_of_table(_read_purge(store, entry, table_id).table_id, table_id):
            now = parse_log(store.list_log(names.Kind.CHECKPOINT)).checkpoints.keys()
            if max(now - log.checkpoints.keys() - log.refusals.keys() - {*passing_over}, default=0) >= purged:
                raise ObjectNotFoundError(f"{store.url} had other checkpoints when it was listed; look again")
            raise CheckpointLostError(
                f"{store.url_of(names.checkpoint(purged))} is gone, and so is every later checkpoint. Vacuum has "
                f"purged commit markers that only these checkpoints cover, as {entry.path} records, so it is not known "
                "which files are live. Stop vacuum, and bring the newest of these checkpoints back, from a version of "
                "the bucket or from a backup"
            )


def _read_purge(store: Store, entry: Entry, table_id: str | None) -> Purge:
    def read() -> Purge:
        return decode_purge(read_marker(store, entry), where=store.url_of(entry.path))

    try:
        return read_cached(store, table_id, entry, read, bytes=lambda it: getsizeof(it.table_id))
    except CorruptMarkerError as error:
        raise CheckpointLostError(
            f"{error.args[0]}. This purge record shows that commit markers were purged, and the checkpoint with its "
            "number is gone: do not remove it, but bring the checkpoint back, from a version of the bucket or from a "
            "backup"
        ) from None


def read_numbered_checkpoint(
    store: Store, log: Log, number: int, *, table_id: str | None = None, decode: DecodeCheckpoint | None = None
) -> Checkpoint:
    """The checkpoint of the log with this number, of any table. `decode` and what it raises: see `read_checkpoint`."""
    entry = log.checkpoints[number]
    where = store.url_of(entry.path)
    if number >= names.LAST_NUMBER - 1:
        raise CorruptMarkerError(f"{where} has a number that no writer reaches; {INSPECT}")

    def read() -> Checkpoint:
        body = read_marker(store, entry)
        try:
            with collector_paused():
                return (decode or decode_checkpoint)(body, number=number, where=where)
        except CorruptMarkerError as error:
            raise CheckpointLostError(str(error)) from None

    found = read() if decode else read_cached(store, table_id, entry, read, bytes=checkpoint_bytes)
    return _with_parts(store, log, found, table_id, newest=number)


def _with_parts(store: Store, log: Log, root: Checkpoint, table_id: str | None, *, newest: int) -> Checkpoint:
    """The checkpoint, which reads its transactions from its parts if it has some. `newest` is for `PartReader`."""
    if not root.is_root:
        return root
    from dbio_commit.log.parts.commits import StoredCommits  # imports pyarrow, which small tables do without
    from dbio_commit.log.parts.reader import PartReader

    def remember(what: str, read: Callable[[], _T], bytes: Callable[[_T], int]) -> _T:
        return read_last_cached(store, table_id, what, log.checkpoints[root.number], read, bytes=bytes)

    reader = PartReader(store, root.number, newest=newest)
    return replace(root, commits=StoredCommits(reader, root.parts, remember))


def read_start(store: Store, entry: Entry, *, table_id: str | None) -> StartMarker | None:
    """A transaction's start marker; None if it is empty, or another table's."""

    def read() -> StartMarker | None:
        return decode_start(read_marker(store, entry), where=store.url_of(entry.path))

    begun = read_cached(store, table_id, entry, read, bytes=start_bytes)
    return begun if begun and is_of_table(begun.table_id, table_id) else None


def read_starts(store: Store, started: Mapping[str, Entry], *, table_id: str | None) -> dict[str, StartMarker]:
    """These start markers, by tid, without those that are empty, that cannot be read, or that have gone."""

    def read(entry: Entry) -> StartMarker | None:
        with suppress(CorruptMarkerError, ObjectNotFoundError, UnsupportedTableError):  # it only says who began
            return read_start(store, entry, table_id=table_id)
        return None

    some = {tid: entry for tid, entry in started.items() if entry.size}
    found = store.in_parallel(read, [*some.values()])
    return {tid: begun for tid, begun in zip(some, found, strict=True) if begun}


def read_descriptor(store: Store, log: Log) -> Descriptor:
    """The table's descriptor. Raises UnsupportedTableError if a later version wrote it."""
    if log.descriptor is None:
        raise ObjectNotFoundError(f"{store.url_of(names.DESCRIPTOR)} is missing; somebody deleted the table")
    return decode_descriptor(read_marker(store, log.descriptor), where=store.url_of(names.DESCRIPTOR))


def cached_descriptor(store: Store, log: Log) -> Descriptor | None:
    """The descriptor that the log shows, if this process remembers it."""
    return cast(Descriptor | None, log.descriptor and find(store, "", log.descriptor))


def is_of_one_table(log: Log, at: datetime) -> bool:
    """Whether the descriptor's entry identifies one table, if the descriptor is read at this time or later."""
    return log.descriptor is not None and at - log.descriptor.modified >= SAME_SECOND


def is_still_there(store: Store, clock: Clock, log: Log, looked: Moment | None) -> bool:
    """Whether the descriptor that was read since is that of the log. The log was listed after `looked`.

    A drop waits longer before it deletes anything, so only a process that stood still asks the store. Otherwise it
    could take the time of one descriptor and the body of the next.
    """
    if looked is not None and clock.is_within(looked, UNDROPPED_S):
        return True
    return _is_unchanged(store, log)


def remember_descriptor(store: Store, log: Log, found: Descriptor) -> None:
    """Remembers the descriptor of the log, which `is_of_one_table`."""
    assert log.descriptor
    keep(store, "", log.descriptor, found, bytes=getsizeof(found.partition_columns) + getsizeof(found.properties))


def refuse_other_table(store: Store, log: Log, origin: Origin | None) -> None:
    """Raises CommitConflictError if the listing has no descriptor any more, or another table's."""
    found = log.descriptor
    if origin is None or (found is not None and found.modified == origin.dated):
        return
    with suppress(ObjectNotFoundError):  # a drop may delete it after it was listed
        if read_descriptor(store, log).id == origin.table_id:
            return
    raise CommitConflictError(
        f"the table at {store.url} was removed, moved or replaced since this transaction began; nothing was committed: "
        "check the path, and begin again"
    )


def read_marker(store: Store, entry: Entry) -> bytes:
    """The body of a marker that was listed. Objects too large for a marker are not read into memory."""
    if entry.size > MAX_BYTES:
        raise CorruptMarkerError(
            f"{store.url_of(entry.path)} has {entry.size} bytes, and no writer writes more than {MAX_BYTES}; {INSPECT}"
        )
    return store.get(entry.path)


def has_start(store: Store, tid: str, directory: str = "") -> bool:
    """Whether the start marker is there. If it is gone, the transaction is decided: vacuum purges it first."""
    return store.stat_many([names.join(directory, names.started(tid))]) != [None]


def read_commit(store: Store, path: str, *, may_be_empty: bool = False) -> CommitMarker | None:
    """The commit marker; None if it is absent, or empty and `may_be_empty`.

    Raises CorruptMarkerError.
    """
    with suppress(ObjectNotFoundError):
        body = store.get(path)
        return decode_commit(body, where=store.url_of(path)) if body or not may_be_empty else None
    return None


def unread(store: Store, log: Log, table_id: str | None) -> set[Entry]:
    """The objects that this process has not read yet: the newest checkpoint, and commit markers that it does not cover.

    If the process has not read the checkpoint, all markers may be among them.
    """
    newest = log.checkpoints.get(log.last_checkpoint)
    is_known = newest is None or (table_id is not None and is_cached(store, table_id, newest))
    covered = read_checkpoint(store, log, table_id=table_id).covered if is_known else ()
    found = {*log.uncovered(covered).values(), *([newest] if newest and not is_known else [])}
    return {entry for entry in found if table_id is None or not is_cached(store, table_id, entry)}


class Unkept(NamedTuple):
    """The reason why the statistics of commit markers were not kept in memory."""

    markers: int
    bytes: int
    """The size of the markers on the store."""

    def say(self, url: str, scope: Scope) -> str:
        """One sentence with the reason, and one with the next step. `url` is the table's."""
        step = {
            Scope.TABLE: f"`{command('dbio', 'checkpoint', url)}` writes checkpoints that cover them",
            Scope.DIRECTORY: f"`{command('dbio', 'vacuum', url)}` deletes those that no reader needs",
        }
        return (
            f"the statistics in {self.markers} commit markers were not kept in memory, because these markers have "
            f"{self.bytes} bytes together, and statistics are kept of at most {STATISTICS_BYTES}: no file is skipped "
            f"by its values. All files and rows are read. {step[scope]}"
        )


class Markers(NamedTuple):
    """Commit markers by path, sorted by what reading them gave."""

    valid: dict[str, CommitMarker]
    corrupt: dict[str, CorruptMarkerError]
    gone: dict[str, ObjectNotFoundError]
    """Markers that do not exist any more."""
    strange: dict[str, CommitMarker]
    """Markers of another table, which was here before: they decide nothing of this one."""
    unkept: Unkept | None = None
    """If the valid markers lack their statistics: why."""

    def refuse_gone(self) -> Self:
        """Raises ObjectNotFoundError if a marker does not exist any more: others have changed the log since the
        listing."""
        for error in self.gone.values():
            raise error
        return self

    def only_valid(self, *, ignore_corrupt: bool) -> dict[str, CommitMarker]:
        """The valid markers. Raises CorruptMarkerError unless `ignore_corrupt`, and as `refuse_gone`."""
        for error in self.refuse_gone().corrupt.values():
            if not ignore_corrupt:
                raise error
        return self.valid

    def warn_of_unkept(self, store: Store, scope: Scope) -> Self:
        """Logs a WARNING if the statistics were not kept."""
        if self.unkept:
            _log.warning("%s: %s", store.url, self.unkept.say(store.url, scope))
        return self


def are_too_large(markers: Iterable[Entry]) -> bool:
    """Whether these markers have so many bytes together that readers do not keep their statistics."""
    return _total_bytes(markers) > STATISTICS_BYTES


class CheckpointLimit(NamedTuple):
    """The most that one checkpoint covers, unless it covers only one marker."""

    bytes: int
    """The size of the markers."""
    paths: int | None = None
    """The paths that the markers add and remove. None: any number."""

    @classmethod
    def after(cls, *, is_root: bool) -> Self:
        """The limit of the next checkpoint. `is_root`: whether the one before it has parts."""
        return cls(min(_ROOT_BYTES, STATISTICS_BYTES), _ROOT_PATHS) if is_root else cls(STATISTICS_BYTES)

    def may_be_less_than(self, markers: Iterable[Entry]) -> bool:
        """Whether the markers may be more than this, judged by their sizes alone."""
        least = self.bytes if self.paths is None else min(self.bytes, self.paths * _PATH_BYTES)
        return _total_bytes(markers) > least

    def weigh(self, markers: Iterable[tuple[Entry, "Brief"]]) -> int:
        """The size of these markers in bytes; more if they have many paths. Its limit is `bytes`."""
        size = paths = 0
        for entry, brief in markers:
            size, paths = size + _total_bytes([entry]), paths + brief.paths
        return size if self.paths is None else max(size, paths * self.bytes // self.paths)


def are_large(markers: Iterable[Entry]) -> bool:
    """Whether the markers are so large together that they will soon be too many."""
    return _total_bytes(markers) > STATISTICS_BYTES // _SOON


def _total_bytes(markers: Iterable[Entry]) -> int:
    return sum(min(entry.size, MAX_BYTES) for entry in markers)  # a marker that is too large is not read


class Brief(NamedTuple):
    """A commit marker in brief: what decides which checkpoint covers it."""

    turn: int = 0
    """Its own turn; 0 for none."""
    known: int = 0
    """The highest turn that had been taken, as far as the marker records that."""
    paths: int = 0
    """How many paths it adds and removes."""

    @classmethod
    def of(cls, marker: CommitMarker) -> Self:
        info = marker.dbio_commit
        turn = (info and info.turn) or 0
        known = max(turn, (info and info.schema_turn) or 0)
        return cls(turn, known, len(marker.added) + len(marker.removed))


def in_groups(
    markers: Mapping[str, Entry], most: CheckpointLimit | None = None, *, briefs: Mapping[str, Brief] | None = None
) -> list[dict[str, Entry]]:
    """Divides commit markers, by tid, into groups of at most `most`, by default STATISTICS_BYTES, the oldest first.

    Markers of the same time are in one group unless they are `are_too_large`, since the markers among them define their
    order. A marker with a turn comes in no later group than those that know of this turn; `briefs` has them by tid.
    """
    most, known = most or CheckpointLimit(STATISTICS_BYTES), briefs or {}
    times = _in_turn(markers, known)

    def order(tid: str) -> tuple[datetime, int, bool, str]:
        it = known.get(tid, Brief())
        return times[tid], it.turn or it.known, not it.turn, tid

    listed = sorted(markers.items(), key=lambda it: order(it[0]))
    together = [list(same) for _, same in groupby(listed, key=lambda it: times[it[0]])]
    units = [unit for same in together for unit in ([[it] for it in same] if are_too_large(_entries(same)) else [same])]
    parts = _pack(units, lambda unit: most.weigh((entry, known.get(tid, Brief())) for tid, entry in unit), most.bytes)
    return [dict(chain.from_iterable(part)) for part in parts]


def _in_turn(markers: Mapping[str, Entry], briefs: Mapping[str, Brief]) -> Mapping[str, datetime]:
    """The times of the markers, by tid; that of a marker with a turn is not later than those that know of the turn."""
    times = {tid: entry.modified for tid, entry in markers.items()}
    known = sorted(((briefs[tid].known, times[tid]) for tid in times.keys() & briefs.keys()), reverse=True)
    numbers = [-number for number, _ in known]
    earliest = [*accumulate((time for _, time in known), min)]  # of the markers that know of at least this turn
    for tid in times.keys() & briefs.keys():
        if turn := briefs[tid].turn:
            times[tid] = earliest[bisect_right(numbers, -turn) - 1]
    return times


def _entries(markers: Iterable[tuple[str, Entry]]) -> Iterator[Entry]:
    return (entry for _, entry in markers)


def _pack(items: Iterable[_T], size: Callable[[_T], int], most: int) -> Iterator[list[_T]]:
    """The items in order, in lists of at most this size together. An item that is larger has a list of its own."""
    some: list[_T] = []
    left = most
    for item in items:
        taken = size(item)
        if some and taken > left:
            yield some
            some, left = [], most
        some.append(item)
        left -= taken
    if some:
        yield some


def read_briefs(
    store: Store, markers: Mapping[str, Entry], *, table_id: str | None, remembers: bool
) -> dict[str, Brief | None]:
    """The commit markers of a table in brief, by tid; None if a marker is another table's. Markers that cannot be read
    have no turns and no paths. Few markers are in memory at a time; `remembers`: see `read_markers`."""
    found: dict[str, Brief | None] = {}
    for some in _pack(markers.items(), lambda it: _total_bytes([it[1]]), _ROOT_BYTES):
        entries = [entry for _, entry in some]
        read = read_markers(store, entries, scope=Scope.TABLE, table_id=table_id, remembers=remembers)
        for tid, entry in some:
            brief = Brief.of(read.valid[entry.path]) if entry.path in read.valid else Brief()
            found[tid] = None if entry.path in read.strange else brief
    return found


def read_markers(
    store: Store, entries: Iterable[Entry], *, scope: Scope, table_id: str | None = None, remembers: bool = True
) -> Markers:
    """Reads commit markers in parallel, of any number and size: the bodies of a few are in memory at a time.

    If the markers are very large together, their statistics are not kept. With a `table_id`, another table's markers
    are `strange`, and the markers are remembered if `remembers`.
    """
    entries = list(entries)
    leaves_out = are_too_large(entries)
    schemas: Schemas = {}

    def read(entry: Entry) -> CommitMarker:
        where = store.url_of(entry.path)
        return decode_commit(read_marker(store, entry), where=where, scope=scope, schemas=schemas)

    def find(entry: Entry) -> CommitMarker | CorruptMarkerError | ObjectNotFoundError:
        try:
            shorten = lean if leaves_out else None
            kept_for = table_id if remembers else None
            return read_cached(store, kept_for, entry, lambda: read(entry), bytes=marker_bytes, lean=shorten)
        except (CorruptMarkerError, ObjectNotFoundError) as error:
            return error

    markers = Markers({}, {}, {}, {})
    with collector_paused():
        for some in _pack(entries, lambda entry: _total_bytes([entry]), _AT_ONCE_BYTES):
            for entry, found in zip(some, store.ask_each(find, some), strict=True):
                match found:
                    case CommitMarker(dbio_commit=CommitInfo(table_id=id)) if not is_of_table(id, table_id):
                        markers.strange[entry.path] = found
                    case CommitMarker():
                        markers.valid[entry.path] = found
                    case CorruptMarkerError():
                        markers.corrupt[entry.path] = found
                    case ObjectNotFoundError():
                        markers.gone[entry.path] = found
    if leaves_out and any(map(is_lean, markers.valid.values())):
        return markers._replace(unkept=Unkept(len(entries), _total_bytes(entries)))
    return markers


def remember_markers(store: Store, table_id: str, found: Iterable[tuple[Entry, CommitMarker]]) -> None:
    """Remembers markers that were read before the table's id was known."""
    for entry, marker in found:
        keep(store, table_id, entry, marker, bytes=marker_bytes(marker))


def read_last_turn(store: Store, log: Log, table_id: str | None, *, above: int = 0) -> int:
    """The number of this table's last turn; 0 if there is none.

    Higher turns are strange: late writers of an earlier table at this place took them. This reads turns from the
    highest down to the last one, but no turn up to `above`, which is of this table. Raises CorruptMarkerError for a
    number that no writer reaches.
    """
    for last in sorted((number for number in log.turns if number > above), reverse=True):
        turn = _turn_at(store, log, last, table_id)
        if turn is not None and not is_of_table(turn.table_id, table_id):
            continue
        if last >= names.LAST_NUMBER - 1:
            raise CorruptMarkerError(f"{store.url_of(names.turn(last))} has a number that no writer reaches; {INSPECT}")
        return last
    return above


def read_turn(store: Store, log: Log, number: int, *, table_id: str | None = None) -> Turn | None:
    """The holder of the turn. None if vacuum has purged it since the listing.

    Also None if a writer of an earlier table at this place took the turn: then nobody holds it in this table.
    """
    turn = _turn_at(store, log, number, table_id)
    return turn if turn is not None and is_of_table(turn.table_id, table_id) else None


def _turn_at(store: Store, log: Log, number: int, table_id: str | None) -> Turn | None:
    entry = log.turns[number]
    with suppress(ObjectNotFoundError):
        return _cached_turn(store, table_id, entry, lambda: _get_turn(store, entry))
    return None


def read_front(store: Store, log: Log) -> Descriptor:
    """The descriptor, as `read_descriptor`. Reads the last turn, if any, at the same time, and remembers it."""

    def get_last_turn() -> Turn | None:
        with suppress(ObjectNotFoundError):
            return _get_turn(store, log.turns[log.last_turn])
        return None

    if not log.turns:
        return read_descriptor(store, log)
    descriptor, turn = store.together(lambda: read_descriptor(store, log), get_last_turn)
    if turn:
        _cached_turn(store, descriptor.id, log.turns[log.last_turn], lambda: turn)
    return descriptor


def _get_turn(store: Store, entry: Entry) -> Turn:
    return decode_turn(read_marker(store, entry), where=store.url_of(entry.path))


def _cached_turn(store: Store, table_id: str | None, entry: Entry, read: Callable[[], Turn]) -> Turn:
    return read_cached(store, table_id, entry, read, bytes=lambda turn: getsizeof(turn.tid))


def with_sizes(store: Store, files: LiveFiles) -> LiveFiles:
    """The files, with sizes from the store for files whose writers recorded none, such as other DBIO writers."""
    unknown = files.of_unknown_size()
    if not unknown:
        return files
    return files.with_sizes({entry.path: entry.size for entry in store.stat_many(unknown) if entry})
