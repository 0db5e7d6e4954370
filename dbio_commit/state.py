"""What the objects of a table add up to: live files, pending transactions, garbage. Pure.

Listings and decoded markers come in, in either scope; nothing is read here. Rules: PROTOCOL.md 2 (directory scope)
and 3.1 to 3.5 (table scope).
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from itertools import accumulate, groupby, pairwise, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from dbio_commit import names
from dbio_commit.errors import InvalidInputError
from dbio_commit.markers import CommitMarker, FileInfo, unpack_files
from dbio_commit.names import Kind, Partition

UNSETTLED = timedelta(days=1, minutes=5)
"""A directory of the directory scope that changed within this time is listed again where a listing looks torn.

Minutes for the listing, and a day for a reader whose clock is ahead.
"""


class Entry(NamedTuple):
    """An object as a store lists it. `path` is relative to the root; `modified` is aware, by the store's clock."""

    path: str
    size: int
    modified: datetime


UNKNOWN_SIZE = -1
"""Of a file whose writer recorded no size: another DBIO writer's in a table of ours."""


class DataFile(NamedTuple):
    """A live file."""

    path: str
    """Relative to the root of the table."""
    size: int
    """In bytes; UNKNOWN_SIZE where no marker says."""
    tid: str | None
    """The transaction that wrote it; None for an untracked file."""
    partition: Partition


class Forgotten(NamedTuple):
    """How many paths a checkpoint left out of a commit, because their files were removed and are gone."""

    added: int = 0
    removed: int = 0


class Decided(NamedTuple):
    """A transaction with its commit marker, and that marker's modification time."""

    modified: datetime
    tid: str
    marker: CommitMarker
    forgotten: Forgotten = Forgotten()
    place: int | None = None
    """In a checkpoint, whose order says what forgotten paths do not say any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A decided transaction, as users see it: the result of a write, or an entry of a table's history."""

    tid: str
    timestamp: datetime
    """When it was committed: in a history by the store's clock, in the result of a write by the writer's."""
    marker: CommitMarker = field(repr=False)
    skipped: bool = False
    """True for the result of a write that found its (application id, version) committed already."""
    forgotten: Forgotten = field(default=Forgotten(), repr=False)
    """What `added` and `removed` lack, because vacuum has deleted it since."""
    foreign: Sequence[str] = field(default=(), repr=False)
    """In the result of an adoption, or of an overwrite in the directory scope: what is no Parquet, and was left alone.

    Paths relative to the root."""

    def __repr__(self) -> str:
        rows = self.metrics.get("numOutputRows")
        told = f"{self.added_files:,} files added" + (f" with {rows:,} rows" if rows is not None else "")
        what = "skipped" if self.skipped else f"{told}, {self.removed_files:,} removed"
        return f"<Commit {self.tid or 'of nothing'}: {self.operation}, {self.timestamp:%Y-%m-%d %H:%M:%S%z}, {what}>"

    @property
    def operation(self) -> str:
        """One of "append", "overwrite", "replace_partitions", "rewrite", "adopt" or "abort".

        "unknown" for another DBIO writer.
        """
        return self.marker.dbio_commit.operation if self.marker.dbio_commit else "unknown"

    @property
    def added(self) -> Sequence[str]:
        """Paths relative to the root of the table."""
        return self.marker.added

    @property
    def removed(self) -> Sequence[str]:
        """Paths relative to the root of the table."""
        return self.marker.removed

    @property
    def added_files(self) -> int:
        """How many files it added, those included that `added` does not list any more."""
        return len(self.marker.added) + self.forgotten.added

    @property
    def removed_files(self) -> int:
        """How many files it removed, those included that `removed` does not list any more."""
        return len(self.marker.removed) + self.forgotten.removed

    @property
    def files(self) -> list[FileInfo]:
        """What its writer recorded about each added file."""
        return unpack_files(self.marker)

    @property
    def metrics(self) -> Mapping[str, int]:
        """numFiles, numOutputBytes, numOutputRows, numParts and jobCommitTime, as far as its writer knew them.

        jobCommitTime is in milliseconds: of the whole commit in the result of a write; in a history it ends where the
        marker was put together.
        """
        return self.marker.dbio_commit.metrics if self.marker.dbio_commit else {}

    @property
    def app(self) -> tuple[str, int] | None:
        """The application id and version that it was committed for."""
        app = self.marker.dbio_commit.app if self.marker.dbio_commit else None
        return (app.id, app.version) if app else None

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The table's columns after it, as Spark's JSON."""
        return self.marker.dbio_commit.table_schema if self.marker.dbio_commit else None


# --- the log ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Log:
    """The markers of one directory, as listed. Zero-length commit markers count as absent."""

    descriptor: Entry | None = None
    started: Mapping[str, Entry] = field(default_factory=dict)
    committed: Mapping[str, Entry] = field(default_factory=dict)
    checkpoints: Mapping[int, Entry] = field(default_factory=dict)
    turns: Mapping[int, Entry] = field(default_factory=dict)
    queues: Mapping[str, Entry] = field(default_factory=dict)
    """DBIO's vacuum markers."""
    dropped: Entry | None = None
    """The tombstone of a table that is being removed."""
    clocks: Mapping[str, Entry] = field(default_factory=dict)
    """What vacuums asked for the time with."""
    refusals: Mapping[int, Entry] = field(default_factory=dict)
    """By number, which is higher by one than that of the checkpoint which a refused adoption has put out of use."""

    @property
    def pending(self) -> list[str]:
        """The tids that are not decided, oldest first."""
        return sorted(self.started.keys() - self.committed.keys())

    @property
    def last_turn(self) -> int:
        """The highest turn that was ever taken; 0 for none."""
        return max(self.turns, default=0)

    @property
    def last_checkpoint(self) -> int:
        """The highest number of a checkpoint; 0 for none. Each covers all that those before it cover."""
        return max(self.checkpoints, default=0)

    def checkpoint_after(self, number: int) -> int:
        """The next number that nobody has had."""
        return max(number, max(self.refusals, default=0)) + 1

    @property
    def is_being_adopted(self) -> bool:
        """Whether an adoption has begun and neither come to its end nor been refused: the descriptor may come."""
        return self.descriptor is None and self.last_checkpoint > max(self.refusals, default=0)

    def uncovered(self, covered: Collection[str]) -> dict[str, Entry]:
        """The commit markers of other transactions than these, by tid."""
        return {tid: entry for tid, entry in self.committed.items() if tid not in covered}

    def agrees_with(self, other: "Log", *, covered: Collection[str] = ()) -> bool:
        """Whether both listings show the same decided transactions (PROTOCOL.md 3.4).

        `covered` are those of the newest checkpoint in both: whether their markers are purged makes no difference.
        """
        return (
            self.last_checkpoint == other.last_checkpoint
            and self.uncovered(covered).keys() == other.uncovered(covered).keys()
        )


REFUSAL = b"refused\n"
"""Under the name of a checkpoint: the one before it counts no more. No checkpoint is as short."""


def parse_log(entries: Iterable[Entry]) -> Log:
    """The log in a listing of one directory; whatever is not a marker is passed over."""
    descriptor: Entry | None = None
    dropped: Entry | None = None
    found: dict[Kind, dict[str, Entry]] = {kind: {} for kind in Kind}
    for entry in entries:
        name = names.split(entry.path)[1]
        if name == names.DESCRIPTOR:
            descriptor = entry
        elif name == names.DROPPED:
            dropped = entry
        elif (parsed := names.parse_log_name(name)) and (entry.size or parsed.kind is not Kind.COMMITTED):
            found[parsed.kind][parsed.id] = entry
    numbered = {int(number): entry for number, entry in found[Kind.CHECKPOINT].items()}
    return Log(
        descriptor=descriptor,
        started=found[Kind.STARTED],
        committed=found[Kind.COMMITTED],
        checkpoints={number: entry for number, entry in numbered.items() if entry.size != len(REFUSAL)},
        refusals={number: entry for number, entry in numbered.items() if entry.size == len(REFUSAL)},
        turns={int(number): entry for number, entry in found[Kind.TURN].items()},
        queues=found[Kind.VACUUM],
        dropped=dropped,
        clocks=found[Kind.CLOCK],
    )


# --- table scope --------------------------------------------------------------------------------------------------


def live_files(commits: Iterable[Decided]) -> tuple[DataFile, ...]:
    """All that was added less all that was removed, in the order of time."""
    commits = sorted(commits, key=itemgetter(0, 1))
    removed = {path for commit in commits for path in commit.marker.removed}
    live: dict[str, DataFile] = {}
    partition_of = cache(names.parse_partition)
    for _, tid, marker, *_ in commits:
        files = marker.dbio_commit.files if marker.dbio_commit else None
        for path, size in zip(marker.added, files.size if files else repeat(UNKNOWN_SIZE), strict=False):
            if path not in removed:
                live[path] = DataFile(path, size, tid, partition_of(path.rpartition("/")[0]))
    return tuple(live.values())


class TableSchema(NamedTuple):
    """The columns of a table, as Spark's JSON, and the last decided turn as of which they are known to be these."""

    json: Mapping[str, Any] | None
    """None where no writer recorded any."""
    turn: int


NO_SCHEMA = TableSchema(None, 0)


def current_schema(markers: Iterable[CommitMarker]) -> TableSchema:
    """The schema that was set last. Changes of schema take turns, so the highest turn is the last."""
    schemas = (
        TableSchema(info.table_schema, info.schema_turn)
        for marker in markers
        if (info := marker.dbio_commit) and not marker.is_abort and info.schema_turn is not None
    )
    return max(schemas, key=lambda schema: schema.turn, default=NO_SCHEMA)


def app_versions(markers: Iterable[CommitMarker], *, before: Mapping[str, int] | None = None) -> dict[str, int]:
    """The highest version that each application has committed (I8); `before` is what a checkpoint remembers."""
    versions = dict(before or {})
    for marker in markers:
        if not marker.is_abort and marker.dbio_commit and (app := marker.dbio_commit.app):
            versions[app.id] = max(app.version, versions.get(app.id, app.version))
    return versions


AsOf = datetime | str | None
"""A time (aware, or ISO 8601 text with a zone), or the tid of a commit as text; None is now."""


def committed_by(commits: Iterable[Decided], as_of: AsOf, *, known_since: datetime | None = None) -> list[Decided]:
    """The commits that were there by then, oldest first. States before `known_since` cannot be told any more.

    Raises InvalidInputError where `as_of` is neither a time with a zone nor the tid of a commit, or where files that
    were live then have been vacuumed.
    """
    ordered = in_order(commits)
    if as_of is None:
        return ordered
    tids = [commit.tid for commit in ordered]
    times = list(accumulate((commit.modified for commit in ordered), max))  # what `in_order` went by
    if isinstance(as_of, str) and as_of in tids:
        count = tids.index(as_of) + 1
        time = times[count - 1]
    else:
        time = _time(as_of)
        count = bisect_right(times, time)
    if (known_since and time < known_since) or any(commit.forgotten.removed for commit in ordered[count:]):
        since = known_since.isoformat() if known_since else "the commits after it"
        raise InvalidInputError(
            f"the table as of {as_of} cannot be told: files that were live then were removed, and vacuumed since; ask "
            f"for a time from {since}"
        )
    return ordered[:count]


def _time(as_of: datetime | str) -> datetime:
    try:
        time = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
        if not isinstance(time, datetime):  # nor is a date one moment
            raise ValueError("no time")
    except ValueError:
        raise InvalidInputError(
            f"as_of={as_of!r:.200} is neither the tid of a commit of this table nor a time in ISO 8601; "
            "both as text, or the time as a datetime with a zone; `dbio log` lists them"
        ) from None
    if time.tzinfo is None:
        raise InvalidInputError(f"as_of={time.isoformat()} has no time zone; add one, such as +00:00")
    return time  # in its own zone: UTC cannot hold the ends of others' years 1 and 9999


def in_order(commits: Iterable[Decided]) -> list[Decided]:
    """Oldest first: by the time of their markers, but after the turn before, and after what they rest on.

    A store's clock may step back, and some give whole seconds: so a commit counts as no older than the turn before its
    own, and than who added what it removes. Where that says nothing, by tid.
    """
    listed = sorted(commits, key=itemgetter(0, 1))
    edges = _dependencies(listed)
    at = [commit.modified for commit in listed]
    while late := [(earlier, later) for earlier, later in edges if at[later] < at[earlier]]:
        for earlier, later in late:
            at[later] = max(at[later], at[earlier])
    after: dict[int, set[int]] = {}
    for earlier, later in edges:
        if at[earlier] == at[later]:
            after.setdefault(later, set()).add(earlier)
    if not after:
        return listed
    order = sorted(range(len(listed)), key=lambda i: (at[i], listed[i].tid))
    return [listed[i] for _, same in groupby(order, key=at.__getitem__) for i in _untangled(list(same), after)]


def _dependencies(commits: Sequence[Decided]) -> list[tuple[int, int]]:
    """Pairs of indices: the first came before the second, whatever the times of their markers say."""
    turns = sorted(
        (info.turn, i) for i, commit in enumerate(commits) if (info := commit.marker.dbio_commit) and info.turn
    )
    places = sorted((commit.place, i) for i, commit in enumerate(commits) if commit.place is not None)
    edges = [(earlier, later) for ranks in (turns, places) for (_, earlier), (_, later) in pairwise(ranks)]
    removed = {path for commit in commits for path in commit.marker.removed}
    adder = {path: i for i, commit in enumerate(commits) for path in commit.marker.added if path in removed}
    for i, commit in enumerate(commits):
        edges += ((other, i) for other in {adder[path] for path in commit.marker.removed if path in adder} - {i})
    return edges


def _untangled(same: list[int], after: Mapping[int, Collection[int]]) -> list[int]:
    """Commits of the same time, each behind those that it comes `after`; else in the order given."""
    if len(same) == 1:
        return same
    rank = {i: place for place, i in enumerate(same)}
    sorter = TopologicalSorter[int]({rank[i]: [rank[other] for other in after.get(i, ())] for i in same})
    try:
        sorter.prepare()
    except CycleError:  # not what writers wrote
        return same
    order: list[int] = []
    ready = list(sorter.get_ready())
    heapify(ready)
    while ready:
        order.append(same[heappop(ready)])
        sorter.done(rank[order[-1]])
        for place in sorter.get_ready():
            heappush(ready, place)
    return order


# --- directory scope ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Directory:
    """One directory as DBIO sees it: its data files by name, and its markers."""

    path: str
    """Relative to the root; "" is the root."""
    files: Mapping[str, Entry]
    log: Log
    uncommitted: frozenset[str]
    """The tids whose files are hidden as long as no commit marker lists them."""
    foreign: tuple[Entry, ...] = ()
    """What lies there in the open and is no data by its name: nobody's but its owner's."""


def parse_directories(entries: Iterable[Entry]) -> dict[str, Directory]:
    """The directories in a recursive listing, by path; directories that readers skip are left out."""
    children: dict[str, list[Entry]] = {}
    visible = cache(names.is_data_file)
    for entry in entries:
        directory, name = names.split(entry.path)
        if visible(directory) if directory else entry.path == name:  # in a bucket, "/name" lies in no directory
            children.setdefault(directory, []).append(entry)
    return {path: _parse_directory(path, children[path]) for path in sorted(children)}


def _parse_directory(path: str, entries: list[Entry]) -> Directory:
    by_name = ((names.split(entry.path)[1], entry) for entry in entries)
    log = parse_log(entries)
    shown = {name: entry for name, entry in by_name if not names.is_hidden(name)}
    files = {name: entry for name, entry in shown.items() if names.counts_as_data(name)}
    foreign = tuple(entry for name, entry in shown.items() if name not in files)
    return Directory(path, files, log, uncommitted=frozenset(log.started), foreign=foreign)


def is_empty(directories: Mapping[str, Directory]) -> bool:
    """Whether there is neither a data file nor a marker anywhere: the root of a table may be created here."""
    return not any(map(is_used, directories.values()))


def is_used(directory: Directory) -> bool:
    """Whether it holds a data file or a marker."""
    log = directory.log
    return bool(directory.files or log.started or log.committed or log.descriptor)


def looks_torn(directory: Directory, markers: Mapping[str, CommitMarker], *, now: datetime) -> bool:
    """Whether the listing may have missed markers or files of a commit that it overlapped, and so must be repeated.

    `markers` are the directory's decoded commit markers by tid.
    """
    times = [entry.modified for entry in (*directory.files.values(), *directory.log.committed.values())]
    if max(times, default=now) < now - UNSETTLED:
        return False
    known = directory.log.started.keys() | directory.log.committed.keys()
    removed = {name for marker in markers.values() for name in marker.removed}
    return any((tid := names.parse_data_file(name)) and tid not in known for name in directory.files) or any(
        name not in directory.files and name not in removed for marker in markers.values() for name in marker.added
    )


def settle(first: Directory, second: Directory | None) -> Directory:
    """The directory as of the first listing, with the second's help: what has committed since stays hidden.

    A file without markers is an old one, whose markers vacuum has purged, only if the first listing had it too.
    `second` is None where the directory has gone.
    """
    if second is None:
        return replace(first, files={})
    committed = first.log.committed.keys()

    def is_later(name: str) -> bool:
        return name not in first.files and (tid := names.parse_data_file(name)) is not None and tid not in committed

    return replace(
        second,
        files={name: entry for name, entry in second.files.items() if not is_later(name)},
        log=first.log,
        uncommitted=first.uncommitted | second.uncommitted | (second.log.committed.keys() - committed),
    )


def visible_files(directory: Directory, markers: Mapping[str, CommitMarker]) -> tuple[DataFile, ...]:
    """What a reader should see of the directory; `markers` are its decoded commit markers by tid.

    A commit whose marker is not among them counts as not committed: its start marker decides (as DBIO has it, for
    markers that are corrupt and to be ignored).
    """
    removed = {name for marker in markers.values() for name in marker.removed}
    added = {tid: frozenset(marker.added) for tid, marker in markers.items()}
    partition = names.parse_partition(directory.path)

    def is_visible(name: str, tid: str | None) -> bool:
        if name in removed:
            return False
        if tid in added:
            return name in added[tid]
        return tid is None or tid not in directory.uncommitted

    return tuple(
        DataFile(entry.path, entry.size, tid, partition)
        for name, entry in directory.files.items()
        if is_visible(name, tid := names.parse_data_file(name))
    )


def merge_directories(markers: Mapping[str, CommitMarker]) -> CommitMarker:
    """One marker, with paths from the root, for a transaction that has a marker in each of several directories."""
    # Aborted in some directories only: committed all the same.
    markers = {directory: marker for directory, marker in markers.items() if not marker.is_abort} or markers
    infos = [marker.dbio_commit for marker in markers.values() if marker.dbio_commit]
    return CommitMarker(
        added=[names.join(directory, name) for directory, marker in markers.items() for name in marker.added],
        removed=[names.join(directory, name) for directory, marker in markers.items() for name in marker.removed],
        dbio_commit=infos[0].model_copy(update={"files": None}) if infos else None,
    )


# --- garbage ------------------------------------------------------------------------------------------------------


class Garbage(StrEnum):
    """Why a data file is not live."""

    REMOVED = "removed by a commit"
    FAILED_ATTEMPT = "left by a failed task attempt"
    ABORTED = "its transaction was aborted"
    PENDING = "its transaction is pending"
    UNKNOWN = "its transaction left no marker"
    UNTRACKED = "no transaction wrote it"


def classify(
    entries: Iterable[Entry], *, live: Collection[str], log: Log, markers: Mapping[str, CommitMarker]
) -> dict[Garbage, list[Entry]]:
    """The data files in a listing of a table (table scope) that are not live, by reason."""
    removed = {path for marker in markers.values() for path in marker.removed}
    garbage: dict[Garbage, list[Entry]] = {}
    for entry in entries:
        if entry.path in live or is_foreign(entry.path) or not names.is_data_file(entry.path):
            continue
        reason = _reason(entry.path, removed, log, markers)
        garbage.setdefault(reason, []).append(entry)
    return garbage


def is_foreign(path: str) -> bool:
    """Whether what lies there in the open is no data by its name: nobody's but its owner's."""
    return names.is_data_file(path) and not names.counts_as_data(names.split(path)[1])


def _reason(path: str, removed: Collection[str], log: Log, markers: Mapping[str, CommitMarker]) -> Garbage:
    tid = names.parse_data_file(names.split(path)[1])
    if path in removed:
        return Garbage.REMOVED
    if tid is None:
        return Garbage.UNTRACKED
    if tid in markers:
        return Garbage.ABORTED if markers[tid].is_abort else Garbage.FAILED_ATTEMPT
    return Garbage.PENDING if tid in log.started else Garbage.UNKNOWN
