"""Finds what is wrong with a table, what is pending in it, and what is garbage: the report of `dbio check`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CheckpointLostError,
    CorruptMarkerError,
    DbioError,
)
from dbio_commit.base.progress import Progress, silent
from dbio_commit.base.shown import Shown
from dbio_commit.base.texts import command
from dbio_commit.data.footers import look_at
from dbio_commit.data.parquet import not_parquet
from dbio_commit.log import lost_markers
from dbio_commit.log.directory_log import DirectoryLog
from dbio_commit.log.joint import home_of
from dbio_commit.log.listing import Markers, read_markers, read_starts, until_quiet
from dbio_commit.log.opening import open_log
from dbio_commit.log.schema_drift import find_wrong
from dbio_commit.log.table_log import TableLog, table_now
from dbio_commit.log.table_state import check_partitions, table_snapshot
from dbio_commit.maintenance.check_files import FoundFiles, compare_table, live_paths
from dbio_commit.maintenance.compact.spread import Clustering, SpreadCount
from dbio_commit.maintenance.other_vacuum import find_signs
from dbio_commit.maintenance.packed import Entries
from dbio_commit.maintenance.publish import find_problems
from dbio_commit.maintenance.publish.engines import decimal_columns, find_limits, limited_directories, limits_of_iceberg
from dbio_commit.maintenance.publish.places import DIRECTORIES
from dbio_commit.maintenance.rebuild import plan_rebuild, refuse_losses
from dbio_commit.protocol import names
from dbio_commit.protocol.applications import Application, list_applications
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.directory import commits_in, visible_files
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import FileStates, Reason, useless_parts
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.markers.commit import CommitMarker, check_statistics, is_lean
from dbio_commit.protocol.markers.provenance import Provenance
from dbio_commit.protocol.markers.start import StartMarker
from dbio_commit.protocol.partitions import find_unread, partition_types
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Format
from dbio_commit.protocol.state import UNKNOWN_SIZE, Added, LiveFiles
from dbio_commit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransaction:
    """A transaction that is neither committed nor aborted. Its writer is at work, or dead."""

    tid: str
    """The id of the transaction."""
    started: datetime
    """When it began, by the store's clock."""
    age: timedelta
    """How long ago that was."""
    files: int
    """How many files it has written so far."""
    size: int
    """The size of its files so far, in bytes."""
    app: tuple[str, int] | None = None
    """The (application id, version) that it commits; None if its start marker records none."""
    provenance: Provenance | None = None
    """Who began it; None if its start marker does not record it."""
    whole: bool | None = None
    """Whether its files are readable Parquet files: all, or the first 20. None if it has none. None also if its newest
    file is younger than an hour and nothing shows that it was decided: then its files were not read."""
    home: str | None = None
    """The URL of the table that decides it, if that is another one: then it is a joint transaction."""
    lost_marker: str = ""
    """The sign that it was committed, and that somebody deleted its commit marker: certain, or probable. Empty if there
    is none. An abort would make the loss final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongSize:
    """A live file whose size is not the one that its marker records. Both are in bytes."""

    path: str
    """Relative to the root."""
    expected: int
    """The recorded size, in bytes."""
    found: int
    """The size of the file, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckReport(Shown):
    """What `Table.check` found. Paths are relative to the root, sizes are in bytes."""

    _first: ClassVar = ("ok",)

    url: str
    """The root of the table."""
    scope: Scope
    """`table`, or `directory` for a directory without a descriptor."""
    live_files: int
    """How many files are live."""
    live_size: int
    """Their size."""
    missing: Sequence[str]
    """Live files that do not exist."""
    missing_size: int
    """The size of the missing files, without those whose size no marker records."""
    wrong_size: Sequence[WrongSize]
    """Live files with another size than the recorded one."""
    corrupt: Mapping[str, str]
    """Commit markers that cannot be read, or for which readers refuse the table: path -> what is wrong."""
    pending: Sequence[PendingTransaction]
    """The pending transactions, oldest first."""
    garbage: Mapping[Reason, Sequence[Entry]]
    """Objects that vacuum deletes, now or later, by the reason."""
    foreign: Sequence[Entry]
    """Files that are not hidden and not Parquet: they are no part of the table, and are left alone."""
    applications: Sequence[Application] = ()
    """The applications that have committed, by id."""
    another_vacuum: Sequence[str] = ()
    """Signs that another tool's vacuum has run on a dbio table: it may have deleted commit markers."""
    publications: Sequence[str] = ()
    """Why other engines read something else than the table, or why new commits cannot be published."""
    unread_by: Sequence[str] = ()
    """Which engines cannot read the published Delta log because of the names of the path, of columns or of directories.
    The table itself is right."""
    useless_statistics: Mapping[str, str] = field(default_factory=dict)
    """Commit markers whose statistics cannot be read, so that they do not help to skip files: path -> what is wrong.

    Readers still get all rows. The next checkpoint leaves such statistics out."""

    without_statistics: Mapping[str, int] = field(default_factory=dict)
    """Commits whose statistics a commit marker or checkpoint left out, because it would have been too large with them:
    path of the commit marker -> number of files that the commit added.

    Readers get all rows, and skip none of these files by their values. A compaction records statistics of the files
    that it writes."""

    unkept_statistics: str = ""
    """If readers do not keep the statistics in commit markers, because these are too large together: why, and what
    helps."""

    misread: Mapping[str, str] = field(default_factory=dict)
    """Live files that some reader cannot read, or reads as something else: path -> what is wrong.

    If footers were not read, only the files that are empty."""

    refused_settings: Sequence[str] = ()
    """Settings with expressions that no writer evaluates, and why. Until they are changed, every write fails."""

    strange: Sequence[str] = ()
    """Markers and checkpoints with the id of another table. They decide nothing. While they exist, vacuum keeps unknown
    files."""

    redated_until: datetime | None = None
    """A copy has given the commits until then new times, so no earlier state can be read. Current rows are right."""
    clustering: Clustering | None = None
    """How well a table with `cluster_by` is clustered. Nothing of this is wrong."""
    unread_values: Mapping[str, str] = field(default_factory=dict)
    """Live files for whose directories readers find different partition values: path -> what is wrong."""
    keeps_versions: bool = False
    """The store keeps versions: what vacuum deletes takes up space until a lifecycle rule removes the versions."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong for readers and writers. Garbage is not wrong, nor is a pending transaction, unless
        its commit marker is probably lost."""
        lost = [it for it in self.pending if it.lost_marker]
        wrong = (lost, self.missing, self.wrong_size, self.corrupt, self.another_vacuum, self.publications)
        return not any((*wrong, self.misread, self.refused_settings, self.strange, self.unread_values))


def check_table(store: Store, clock: Clock, *, files: bool = False, progress: Progress = silent) -> CheckReport:
    """Reads every marker and lists every file. Changes nothing. Raises as `read_snapshot` does.

    With `files` it reads the footer of each live file, by one request each. If a checkpoint is lost, the error says
    whether it can be rebuilt.
    """
    try:
        report, found = until_quiet(store, lambda: _check(store, clock))
        if not files:
            return report
        present, count = found.present({*report.missing}), report.live_files - len(report.missing)
        wrong = find_wrong(store, present, found.schema, found.partition_columns, progress, total=count)
        return replace(report, misread=wrong)
    except CheckpointLostError as error:
        raise CheckpointLostError(*error.args, *_say_how_to_rebuild(store, clock)) from None


def _say_how_to_rebuild(store: Store, clock: Clock) -> list[str]:
    """Sentences: what is lost, what is intact, and the objects from which it can be rebuilt."""
    try:
        plan = plan_rebuild(store, clock)
    except DbioError as error:
        first, *lines = map(str, error.args)
        return [f"The checkpoint cannot be rebuilt from what is there: {first}", *lines]
    if plan is None:
        return ["The checkpoint can be read again: check the table once more"]
    run = command("dbio", "checkpoint", store.url, "--rebuild")
    if not plan.lost:
        by = names.checkpoint(plan.base) + " and the markers" if plan.base else "The markers"
        return [f"{by} hold the same: `{run}` rebuilds the checkpoint, and loses nothing"]
    return [
        *(f"Lost: {loss}" for loss in plan.lost),
        f"Intact: {plan.intact} other objects of the same parts",
        *(f"Can be replaced by: {used}" for used in plan.used),
        f"`{run}` rebuilds the checkpoint, and loses {'; '.join(plan.loses) or 'nothing'}",
    ]


def _check(store: Store, clock: Clock) -> tuple[CheckReport, "_Found"]:
    root = open_log(store, clock)
    found = _look_at_table(root) if isinstance(root, TableLog) else _look_at_directories(root)
    files, now = found.files, clock.now()
    report = CheckReport(
        url=store.url,
        scope=root.scope,
        live_files=files.live,
        live_size=files.size,
        missing=sorted(files.missing),
        missing_size=sum(size for size in files.missing.values() if size != UNKNOWN_SIZE),
        wrong_size=[WrongSize(path=path, expected=size, found=other) for path, size, other in sorted(files.wrong_size)],
        corrupt={path: str(error) for path, error in found.corrupt.items()},
        pending=[
            PendingTransaction(
                tid=tid,
                started=at,
                age=now - at,
                files=written.files,
                size=written.size,
                app=(begun.app.id, begun.app.version) if begun and begun.app else None,
                provenance=begun.provenance if begun else None,
                whole=found.whole.get(tid),
                home=home_of(root.store, begun),
                lost_marker=found.lost_markers.get(tid, ""),
            )
            for tid, at in sorted(found.pending.items(), key=lambda item: item[1])
            for written, begun in [(files.written[tid], found.begun.get(tid))]
        ],
        garbage=files.garbage,
        foreign=files.foreign,
        applications=found.applications,
        another_vacuum=found.another_vacuum,
        publications=found.publications,
        unread_by=found.unread_by,
        useless_statistics=found.useless_statistics,
        without_statistics=found.without_statistics,
        unkept_statistics=found.unkept_statistics,
        refused_settings=found.refused_settings,
        clustering=found.clustering,
        strange=found.strange,
        redated_until=found.redated_until,
        unread_values=found.unread_values,
        keeps_versions=store.keeps_versions(),
        misread=dict.fromkeys(sorted(files.empty), "it is empty"),
    )
    return report, found


@dataclass(slots=True)
class _Found:
    """What the markers record, in either scope, and what the listings show."""

    pending: Mapping[str, datetime]
    """When each pending transaction began, by its tid."""
    files: FoundFiles
    present: Callable[[Set[str]], Iterator[str]]
    """Returns the paths of the live files, except the missing ones, which are given."""
    corrupt: dict[str, CorruptMarkerError] = field(default_factory=dict)
    begun: Mapping[str, StartMarker] = field(default_factory=dict)
    """The start markers of pending transactions, by tid, without those that cannot be read."""
    whole: Mapping[str, bool] = field(default_factory=dict)
    """For each pending transaction whose files were read, whether they are readable."""
    lost_markers: Mapping[str, str] = field(default_factory=dict)
    """Pending transactions that were probably committed, with the sign of it."""
    applications: Sequence[Application] = ()
    another_vacuum: Sequence[str] = ()
    publications: Sequence[str] = ()
    unread_by: Sequence[str] = ()
    useless_statistics: dict[str, str] = field(default_factory=dict)
    without_statistics: dict[str, int] = field(default_factory=dict)
    unkept_statistics: str = ""
    refused_settings: Sequence[str] = ()
    clustering: Clustering | None = None
    strange: Sequence[str] = ()
    redated_until: datetime | None = None
    unread_values: dict[str, str] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    """The table's columns, as Spark's JSON, if a writer recorded them."""
    partition_columns: Sequence[str] = ()

    def look_for_statistics(
        self, store: Store, read: Markers, commits: Mapping[str, CommitMarker], *, checked: Set[str] = frozenset()
    ) -> None:
        """Finds which statistics are missing. `commits` are by the path of the marker, `read` are the markers that were
        read. The statistics of the `checked` can be read."""
        self.useless_statistics |= _useless(store, {path: it for path, it in commits.items() if path not in checked})
        for path, marker in commits.items():
            if is_lean(marker) and marker.added and not (read.unkept and path in read.valid):
                self.without_statistics[path] = self.without_statistics.get(path, 0) + len(marker.added)


def _look_at_table(root: TableLog) -> _Found:
    store, now = root.store, root.clock.now()
    settled = root.settled()
    refuse_losses(store, settled.log, settled.checkpoint)  # also those that no reader has needed yet
    snapshot = table_snapshot(store, settled, ignore_corrupt=True, unchecked=True)
    log, checkpoint, metadata, layout = snapshot.log, snapshot.checkpoint, snapshot.metadata, snapshot.partition_columns
    # A late task may have put the purged start marker of a covered transaction again.
    undecided = {tid: entry for tid, entry in log.started.items() if tid not in checkpoint.covered}
    pending = _pending([replace(log, started=undecided)], now)
    found = _Found(pending, FoundFiles.of(pending), partial(live_paths, snapshot), dict(settled.markers.corrupt))
    types = partition_types(metadata.schema, layout)
    odd_directories, decimals = list[str](), decimal_columns(types)
    removers: dict[str, str] = {}
    # `refuse_losses` has read the statistics in parts
    checked = {names.committed(tid) for tid in checkpoint.covered} if checkpoint.is_root else frozenset[str]()
    spread = SpreadCount(metadata.settings, metadata.schema, layout, where=store.url)
    for some in compare_table(store, snapshot, found.files):
        spread.add(some)
        files = LiveFiles.of(some.files)
        found.unread_values |= {it.path: f"{it.column}: {it.why}" for it in find_unread(files, types)}
        own = {commit.tid: commit.marker for commit in some.decided}
        removers |= lost_markers.removers(some.decided, pending.keys())
        odd_directories += limited_directories(files.paths(), decimals)
        if files.outside(layout):
            found.corrupt |= _misplaced(store, own, live={*files.paths()}, columns=layout)
        by_path = {names.committed(tid): marker for tid, marker in own.items()}
        found.look_for_statistics(store, settled.markers, by_path, checked=checked)
    if found.files.is_doubtful():
        again = table_now(store, root.clock, TableLog.settled)
        found.files.judge_again(table_snapshot(store, again, ignore_corrupt=True, unchecked=True))
    found.unkept_statistics = _unkept(store, root.scope, settled.markers)
    if parts := Entries(it.entry for it in useless_parts(log, checkpoint)):
        found.files.garbage[Reason.PART] = parts
    found.applications = list_applications(snapshot.transactions, remembered=checkpoint.apps, now=now)
    found.another_vacuum = find_signs(
        store, log, checkpoint.covered, table_id=settled.descriptor.id, now=now
    ).in_words()
    found.publications = find_problems(store, found.files.published, settled.descriptor.id)
    published = {entry.path.partition("/")[0] for entry in found.files.published}
    if DIRECTORIES[Format.DELTA] in published:
        found.unread_by = find_limits(
            store.url,
            is_disk=store.is_disk,
            partition_columns=layout,
            directories=odd_directories,
            decimals=decimals,
        )
    if DIRECTORIES[Format.ICEBERG].partition("/")[0] in published:
        found.unread_by = [*found.unread_by, *limits_of_iceberg(types)]
    begun_by = {tid: log.started[tid] for tid in pending}
    found.begun = read_starts(store, begun_by, table_id=settled.descriptor.id)
    certain = {tid: f"transaction {by} removed a file of it" for tid, by in removers.items()}
    certain |= lost_markers.find_decided(store, snapshot, pending.keys())
    newest = {tid: written.newest for tid, written in found.files.written.items()}
    probable = lost_markers.find_probable(snapshot, found.begun, newest)
    _look_for_lost_markers(store, found, certain, probable, now)
    found.clustering = spread.result()
    found.strange, found.redated_until = settled.strange, settled.redated_until
    found.schema, found.partition_columns = metadata.schema, layout
    unsafe = Constraints.of(metadata.settings).unsafe()
    found.refused_settings = [f"{setting}={sql!r:.200}: {problem}" for setting, (sql, problem) in unsafe.items()]
    return found


_QUIET = timedelta(hours=1)
"""If a pending transaction has written no file for so long, its writer is probably not at work."""


def _look_for_lost_markers(
    store: Store, found: _Found, certain: Mapping[str, str], probable: Mapping[str, str], now: datetime
) -> None:
    """Reads some footers of pending transactions that are not at work. Records which were probably committed."""
    whole: dict[str, bool] = {}
    for tid, written in found.files.written.items():
        is_quiet = written.newest is not None and now - written.newest >= _QUIET
        if written.some and (is_quiet or tid in certain or tid in probable):
            footers = store.in_parallel(partial(look_at, store, statistics=False), written.some)
            whole[tid] = all(footer is not None and not footer.broken for footer in footers)
    found.whole = whole
    found.lost_markers = {tid: why for tid, why in probable.items() if whole.get(tid)} | dict(certain)


def _look_at_directories(root: DirectoryLog) -> _Found:
    store, directories = root.store, root.directories
    logs = [it.log for it in directories.values()]
    committed = [entry for log in logs for entry in log.committed.values()]
    read = read_markers(store, committed, scope=root.scope).refuse_gone()
    markers = read.valid
    pending = _pending(logs, root.clock.now())
    files, live, expected = FoundFiles.of(pending), set[str](), dict[str, int]()
    found = _Found(pending, files, lambda missing: iter(sorted(live - missing)), read.corrupt)
    found.look_for_statistics(store, read, markers)
    found.unkept_statistics = _unkept(store, root.scope, read)
    foreign = {entry.path for it in directories.values() for entry in it.foreign}
    for path, directory in directories.items():
        decided = directory.log.committed
        own = {tid: markers[entry.path] for tid, entry in decided.items() if entry.path in markers}
        expected |= _expected(path, own.values())
        visible = {file.path: file.size for file in visible_files(directory, own)}
        other = set(not_parquet(store, visible.items()))
        foreign |= other
        live |= visible.keys() - other
        known = FileStates.of(commits_in(directory, own), live=live, log=directory.log)
        files.judge(known, directory.files.values(), foreign=foreign)
    entries = (entry for it in directories.values() for entry in (*it.files.values(), *it.foreign))
    files.compare(store, entries, expected=expected, live=live, foreign=foreign)
    return found


def _unkept(store: Store, scope: Scope, read: Markers) -> str:
    return read.unkept.say(store.url, scope) if read.unkept else ""


def _useless(store: Store, markers: Mapping[str, CommitMarker]) -> dict[str, str]:
    """See `CheckReport.useless_statistics`."""
    useless = {}
    for path, marker in markers.items():
        try:
            check_statistics(marker, where=store.url_of(path))
        except CheckpointLostError:
            raise
        except CorruptMarkerError as error:
            useless[path] = str(error)
    return useless


def _misplaced(
    store: Store, markers: Mapping[str, CommitMarker], *, live: Set[str], columns: tuple[str, ...]
) -> dict[str, CorruptMarkerError]:
    """The commit markers, by path, that add files outside of the partitions, so that readers refuse the table."""
    corrupt = {}
    for tid, marker in markers.items():
        added = [path for path in marker.added if path in live]
        try:
            check_partitions(store, LiveFiles([Added(tid, added, [UNKNOWN_SIZE] * len(added))]), columns)
        except CorruptMarkerError as error:
            corrupt[names.committed(tid)] = error
    return corrupt


def _expected(directory: str, markers: Iterable[CommitMarker]) -> dict[str, int]:
    """The live files by all markers together, with their recorded sizes, or UNKNOWN_SIZE."""
    markers = list(markers)
    removed = {path for marker in markers for path in marker.removed}
    return {
        names.join(directory, path): size for marker in markers for path, size in _sized(marker) if path not in removed
    }


def _sized(marker: CommitMarker) -> Iterator[tuple[str, int]]:
    files = marker.dbio_commit.files if marker.dbio_commit else None
    return zip(marker.added, files.size if files else [UNKNOWN_SIZE] * len(marker.added), strict=True)


def _pending(logs: Iterable[Log], now: datetime) -> dict[str, datetime]:
    """When each pending transaction began, by its tid."""
    started: dict[str, datetime] = {}
    for log in logs:
        for tid in log.pending:
            started[tid] = min(log.started[tid].modified, started.get(tid, now))
    return started
