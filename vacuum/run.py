"""Vacuum, from the first listing to the report: reads what is there, has `plan` or `dbio` decide, and does it.

The order of the steps is what makes it safe at every moment, also where it is killed: PROTOCOL.md section 10.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dbio_commit.clock import Clock
from dbio_commit.decision import abort_many
from dbio_commit.errors import DbioError, ObjectNotFoundError, StoreError, TableNotFoundError, TransactionStateError
from dbio_commit.listing import read_checkpoint, until_quiet
from dbio_commit.probe import prove_store
from dbio_commit.protocol import names
from dbio_commit.protocol.directory import is_empty, parse_directories
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers import CommitMarker, encode
from dbio_commit.protocol.scope import Scope
from dbio_commit.roots import read_snapshot
from dbio_commit.roots.directory import check_directories, refuse_nested
from dbio_commit.snapshot import Snapshot
from dbio_commit.store import Store
from dbio_commit.store.base import Listing, Unfinished
from dbio_commit.table import Table
from dbio_commit.tids import new_tid
from dbio_commit.upkeep.checkpoints import write_checkpoint
from dbio_commit.upkeep.other_vacuum import Signs, find_signs
from vacuum import dbio, plan
from vacuum.plan import Candidate, Contents, Horizons, Judge
from vacuum.report import HISTORY_DAYS, Control, Deletion, Failure, VacuumOptions, VacuumReport
from vacuum.work import Listed, Stopped, Workers, chunks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

ABORT_BATCH = 1000
"""Transactions that are aborted with one look at the checkpoint; between batches the caller may stop us."""

MOST_ABORTS = 10_000
"""Of one run; more start markers than that, nobody's jobs have left behind since the last."""

MOST_ABORT_S = 300.0
"""No batch of aborts begins later than so long after the first."""

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def vacuum(
    path: str | os.PathLike[str],
    retention_hours: float = 48.0,
    dry_run: bool = False,
    force: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    spark: "SparkSession | None" = None,
    *,
    untracked: bool = False,
    checkpoint_after: int = 20,
    history_days: float = HISTORY_DAYS,
) -> VacuumReport:
    """Deletes what no reader needs any more from the table, or DBIO directory, at the path.

    What a commit removed stays for `retention_hours`, for readers that still use it; a transaction that is pending
    for longer is aborted, so that its writer gets an error rather than a commit of deleted files. A dry run reports
    the same and changes nothing. `untracked` also deletes old files that no transaction wrote and no commit names.
    `checkpoint_after` commits since the last checkpoint make the next one due, which remembers commits of which no
    file is left for `history_days`. With `spark`, its executors list and delete.

    Raises RetentionError for less than 1 h without `force`, or less than 30 days; TableNotFoundError,
    CorruptMarkerError, StoreError where the table cannot be read. What cannot be deleted is reported, and does not
    stop the rest.
    """
    options = VacuumOptions(
        retention_hours=retention_hours,
        force=force,
        untracked=untracked,
        checkpoint_after=checkpoint_after,
        history_days=history_days,
    )
    if spark is None:
        table = Table(path, storage_options)
    else:
        from dbio_commit.spark.session import open_table

        table = open_table(spark, path, storage_options)
    return vacuum_table(table, options, dry_run=dry_run, spark=spark)


def vacuum_table(
    table: Table,
    options: VacuumOptions,
    *,
    dry_run: bool = False,
    spark: "SparkSession | None" = None,
    control: Control | None = None,
) -> VacuumReport:
    """The same for a table in hand, with everything that can be set."""
    options.check()
    table.refuse_partition()
    run = _Run(table.store, table.clock, options, dry_run=dry_run, spark=spark, control=control or Control())
    try:
        run.all()
    except Stopped:
        run.stopped = True
    except StoreError as error:
        if not run.has_changed:
            raise
        run.fail(error)  # what was done is reported all the same
    report = run.report()
    for warning in report.warnings:
        _log.warning("%s: %s", table.url, warning)
    _log.info(
        "%s: vacuum %s %d objects, %d failed, %d transactions aborted", table.url,
        "would delete" if dry_run else "deleted", len(report.deleted), len(report.failed), len(report.aborted),
    )  # fmt: skip
    return report


class _Run:
    """One vacuum of one table, and what it has done so far."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        options: VacuumOptions,
        *,
        dry_run: bool,
        spark: "SparkSession | None",
        control: Control,
    ) -> None:
        self._store, self._clock, self._options, self._dry_run = store, clock, options, dry_run
        self._workers = Workers(store, control, spark)
        self._horizons = Horizons.at(clock.now(), options)
        self._scope = Scope.TABLE
        self._deleted: list[Deletion] = []
        self._failed: dict[str, str] = {}
        self._kept: list[Candidate] = []
        self._aborted: list[str] = []
        self._postponed: list[str] = []
        self._checkpoint: str | None = None
        self._queued: list[str] = []
        self._warnings: list[str] = []
        self.stopped = False

    def all(self) -> None:
        # Before anything is listed: a file that is younger than this listing must not look old.
        if not self._dry_run:
            self._horizons = Horizons.at(self._now(), self._options)
        log = parse_log(self._store.list_log())
        if log.descriptor is not None:
            self._vacuum_table()
        else:
            self._scope = Scope.DIRECTORY
            self._vacuum_directories()
        self._delete(plan.lost_clocks(log, self._horizons))

    def _now(self) -> datetime:
        """The time by our clock or the store's, whichever is earlier: a clock that is ahead would make all look old."""
        if self._store.list_directory() == Listing([], []):
            return self._clock.now()  # there is nothing here, and nothing is to be left here
        try:
            return min(self._clock.now(), until_quiet(self._store, self._ask_for_the_time))
        except StoreError as error:
            self._failed["time of the store"] = str(error)
            # It was that late at least; most of the garbage will have to wait.
            return max((entry.modified for entry in self._store.list_log()), default=_LONG_AGO)

    def _ask_for_the_time(self) -> datetime:
        """Raises ObjectNotFoundError where we slept, and another vacuum has tidied up."""
        path = names.clock(new_tid(self._clock))
        self._store.put_if_absent(path, b"")
        try:
            return self._store.stat(path).modified
        finally:
            for failure in self._store.delete_many([path]).values():
                self._failed[path] = str(failure)

    @property
    def has_changed(self) -> bool:
        return bool(self._deleted or self._aborted or self._failed) and not self._dry_run

    def fail(self, error: StoreError) -> None:
        self._failed[""] = str(error)

    def report(self) -> VacuumReport:
        return VacuumReport(
            url=self._store.url,
            scope=self._scope,
            dry_run=self._dry_run,
            retention_hours=self._options.retention_hours,
            deleted=self._deleted,
            failed=[Failure(path=path, message=message) for path, message in self._failed.items()],
            aborted=self._aborted,
            postponed=self._postponed,
            checkpoint=self._checkpoint,
            queued=self._queued,
            kept=[garbage.deletion(self._horizons.now) for garbage in self._kept],
            stopped=self.stopped,
            warnings=[*self._warnings, *([_too_many(self._postponed)] if self._postponed else [])],
        )

    # --- table scope ----------------------------------------------------------------------------------------------

    def _vacuum_table(self) -> None:
        snapshot = read_snapshot(self._store, self._clock)
        late = plan.timed_out(snapshot, self._horizons)
        if self._dry_run:
            self._aborted, self._postponed = late[:MOST_ABORTS], late[MOST_ABORTS:]
        elif late:
            self._abort(late)
            # Only now: what was decided otherwise in the last moment is live in this snapshot (I4, I5).
            snapshot = read_snapshot(self._store, self._clock)
        judge = Judge.of(
            snapshot,
            self._horizons,
            untracked=self._options.untracked,
            assume_aborted=self._aborted if self._dry_run else (),
            is_same=self._store.is_same if self._store.has_directories else None,
        )
        if signs := find_signs(self._store, snapshot.log, snapshot.checkpoint.covered, now=self._horizons.now):
            judge = replace(judge, keep_unknown=True)
            self._warnings.append(_another_vacuum(signs))
        tree: dict[str, Contents] = {}
        due: list[Candidate] = []
        for listed in self._workers.list_tree(judge.known.live):
            self._note(tree, listed)
            for entry in listed.entries:
                refuse_nested(self._store, entry.path)
            for garbage in judge.garbage(listed.entries):
                (due if garbage.due else self._kept).append(garbage)
        due = self._without_newborn(due)
        gone = self._delete(due)
        left = [*self._kept, *(garbage for garbage in due if garbage.path not in gone)]
        self._write_checkpoint(snapshot, left)
        self._purge(snapshot, left)
        self._abort_unfinished()
        if not self._is_pending(snapshot):
            self._remove_directories(tree, gone)

    def _without_newborn(self, due: Sequence[Candidate]) -> list[Candidate]:
        """Without files of transactions that began after the snapshot: old by our clock, which may be wrong.

        Their start markers, or what they were decided to, came before the files did: a snapshot of now shows it.
        """
        unknown = {garbage.path for garbage in due if garbage.reason is Reason.UNKNOWN}
        if not unknown:
            return list(due)
        judge = Judge.of(read_snapshot(self._store, self._clock), self._horizons, untracked=self._options.untracked)
        still = {garbage.path for garbage in judge.still_unknown(due)}
        self._kept += [garbage._replace(due=False) for garbage in due if garbage.path in unknown - still]
        return [garbage for garbage in due if garbage.path in still or garbage.path not in unknown]

    def _is_pending(self, snapshot: Snapshot) -> bool:
        """Whether somebody may have made a directory just now, for a file that is still to come."""
        if not self._store.has_directories:
            return False
        log = snapshot.log if self._dry_run else parse_log(self._store.list_log())
        return bool(set(log.pending) - snapshot.checkpoint.covered - set(self._aborted))

    def _abort(self, tids: Sequence[str]) -> None:
        """So many as one run may; what it does not come to stays pending, and is said."""
        self._postponed = list(tids)
        since_s = self._clock.monotonic()
        for batch in chunks(tids[:MOST_ABORTS], ABORT_BATCH):
            if self._clock.monotonic() - since_s > MOST_ABORT_S:
                break
            for tid, failure in self._abort_batch(batch).items():
                if failure is None:
                    self._aborted.append(tid)
                elif not isinstance(failure, TransactionStateError):  # it committed at the last moment: just as good
                    self._failed[names.started(tid)] = str(failure)  # pending still, so its files stay
            del self._postponed[: len(batch)]
            self._workers.report("aborting", len(tids) - len(self._postponed), len(tids))

    def _abort_batch(self, tids: Sequence[str]) -> Mapping[str, DbioError | None]:
        try:
            prove_store(self._store)
        except DbioError as error:
            return dict.fromkeys(tids, error)
        return abort_many(self._store, self._clock, tids)

    def _write_checkpoint(self, snapshot: Snapshot, left: Iterable[Candidate]) -> None:
        assumed = len(self._aborted) if self._dry_run else 0
        if not plan.checkpoint_is_due(snapshot, self._options, assume_aborted=assumed):
            return
        name = names.checkpoint(snapshot.log.checkpoint_after(snapshot.checkpoint.number))
        if self._dry_run:
            self._checkpoint = name
            return
        gone = plan.gone_files(snapshot, {garbage.path for garbage in left})
        try:
            prove_store(self._store)
            self._checkpoint = write_checkpoint(
                self._store,
                self._clock,
                snapshot,
                gone=gone,
                history=timedelta(days=self._options.history_days),
            )
        except DbioError as error:
            self._failed[name] = str(error)

    def _purge(self, snapshot: Snapshot, left: Sequence[Candidate]) -> None:
        log, checkpoint = snapshot.log, snapshot.checkpoint
        number = plan.checkpoint_to_purge_by(log, self._horizons)
        if number != checkpoint.number:
            try:
                older = read_checkpoint(self._store, log, number)
            except ObjectNotFoundError:
                return  # another vacuum has purged it, and what it covers
            # Readers go by the newest: whatever wrote that one, what it does not tell needs its markers.
            told = tuple(commit for commit in older.commits if commit.tid in checkpoint.covered)
            checkpoint = replace(older, commits=told)
        undecided: set[str | None] = set()
        for step in plan.purge(log, checkpoint, snapshot.commits, self._horizons, left=left):
            wanted = [marker for marker in step if marker.tid is None or marker.tid not in undecided]
            gone = self._delete(wanted)
            undecided |= {marker.tid for marker in wanted if marker.path not in gone}

    # --- directory scope ------------------------------------------------------------------------------------------

    def _vacuum_directories(self) -> None:
        found = until_quiet(self._store, self._read_directories)
        if found is None:
            self._scope = Scope.TABLE
            return self._vacuum_table()
        tree, directories = found
        horizons, gone = self._horizons, set[str]()
        files = [garbage for it in directories for garbage in dbio.data_files(it, horizons)]
        self._kept += [garbage for garbage in files if not garbage.due]
        gone |= self._delete(self._still_pending([garbage for garbage in files if garbage.due]))
        # Each step is complete in all directories before the next: a marker goes after what it hides.
        markers = [marker for it in directories for marker in dbio.start_markers(it, horizons)]
        gone |= self._delete(self._still_empty(markers))
        gone |= self._delete([marker for it in directories for marker in dbio.queued_markers(it, horizons, gone)])
        gone |= self._delete([queue for it in directories for queue in dbio.queues(it, horizons, gone)])
        for it in directories:
            self._put_queue(it.path, dbio.to_queue(it, horizons, gone))
        self._abort_unfinished()
        self._remove_directories(tree, gone)
        return None

    def _read_directories(self) -> tuple[dict[str, Contents], list[dbio.DbioDirectory]] | None:
        """None where it has been made a table since we looked."""
        tree: dict[str, Contents] = {}
        entries: list[Entry] = []
        below: list[str] = []
        for listed in self._workers.list_tree():
            self._note(tree, listed)
            entries += listed.entries
            below += (f"{directory}/" for directory in listed.directories)
        check_directories(self._store, [*below, *(entry.path for entry in entries)])
        if is_empty(parse_directories(entries)) and not any(map(dbio.is_marker, entries)):
            raise TableNotFoundError(f"there is no table at {self._store.url}; check the path")
        if parse_log(self._store.list_log()).descriptor is not None:  # its descriptor came before its markers
            return None
        directories = dbio.read_directories(self._store, entries)
        if not self._store.has_directories:
            return tree, directories
        # Readers follow symbolic links, and we do not: where there are any, we cannot say what a marker hides.
        seen = {entry.path for entry in entries}
        unseen = {names.split(entry.path)[0] for entry in self._store.list_files() if entry.path not in seen}
        linked = {directory for directory in unseen if not directory or names.is_data_file(directory)}
        if linked:
            self._warnings.append(f"directories that hold symbolic links are left alone: {len(linked):,}")
        tree = {path: contents for path, contents in tree.items() if path not in linked}
        return tree, [it for it in directories if it.path not in linked]

    def _still_pending(self, due: Sequence[Candidate]) -> list[Candidate]:
        """Without the files of transactions that have committed since they were listed, late as they are."""
        markers = {
            names.join(names.split(it.path)[0], names.committed(it.tid))
            for it in due
            if it.reason is Reason.PENDING and it.tid
        }
        found = {entry.path for entry in self._store.stat_many(sorted(markers)) if entry and entry.size}
        return [it for it in due if names.join(names.split(it.path)[0], names.committed(it.tid or "")) not in found]

    def _still_empty(self, markers: Sequence[Candidate]) -> list[Candidate]:
        """Without the commit markers that have got their content since they were listed."""
        empty = [it.path for it in markers if it.reason is Reason.EMPTY_MARKER and not it.size]
        filled = {entry.path for entry in self._store.stat_many(empty) if entry and entry.size}
        return [it for it in markers if it.path not in filled]

    def _put_queue(self, directory: str, markers: Sequence[str]) -> None:
        self._queued += [names.join(directory, name) for name in markers]
        if self._dry_run or not markers:
            return
        name = names.vacuum_queue(new_tid(self._clock))
        path = names.join(directory, name)
        try:
            self._store.put_if_absent(path, encode(CommitMarker(added=[], removed=[*markers, name])))
        except StoreError as error:
            self._failed[path] = str(error)

    # --- both -----------------------------------------------------------------------------------------------------

    def _note(self, tree: dict[str, Contents], listed: Listed) -> None:
        if self._store.has_directories:
            tree[listed.directory] = Contents(len(listed.entries) + listed.live, listed.directories)

    def _delete(self, due: Sequence[Candidate]) -> set[str]:
        """Deletes and records it; returns the paths that are gone, in a dry run those that would be."""
        by_path = {garbage.path: garbage for garbage in due}
        if self._dry_run:
            self._deleted += [garbage.deletion(self._horizons.now) for garbage in due]
            return set(by_path)
        gone: set[str] = set()
        for tried, failures in self._workers.delete(list(by_path)):
            self._failed |= {path: str(error) for path, error in failures.items()}
            done = [path for path in tried if path not in failures]
            self._deleted += [by_path[path].deletion(self._horizons.now) for path in done]
            gone.update(done)
        return gone

    def _abort_unfinished(self) -> None:
        try:
            late = [it for it in self._store.list_unfinished() if it.started < self._horizons.data]
            failures = {} if self._dry_run else self._store.abort_unfinished(late)
        except StoreError as error:  # a right that vacuum can do without
            self._failed["unfinished uploads"] = str(error)
            return
        self._failed |= {path: str(error) for path, error in failures.items()}
        self._deleted += [_unfinished(it, self._horizons) for it in late if it.path not in failures]

    def _remove_directories(self, tree: Mapping[str, Contents], gone: Iterable[str]) -> None:
        empty = plan.emptied(tree, gone)
        if empty and not self._dry_run:
            try:
                empty = self._store.remove_directories(empty)
            except StoreError as error:
                self._failed[empty[0]] = str(error)
                return
        self._deleted += [Deletion(path=path, size=0, age=timedelta(0), reason=Reason.DIRECTORY) for path in empty]


def _another_vacuum(signs: Signs) -> str:
    return (
        "another tool's vacuum has been here, as DBIO's writers run it after their commits; it may have purged markers "
        f"of commits ({'; '.join(signs.in_words())}). Files of transactions that nobody knows are kept. See "
        '"Another vacuum was here" in docs/OPERATIONS.md'
    )


def _too_many(postponed: Sequence[str]) -> str:
    return (
        f"{len(postponed):,} transactions that timed out are too many for one run, and are still pending, first "
        f"{postponed[0]}; the next run goes on. Look who left so many start markers: `dbio check` shows their times"
    )


def _unfinished(it: Unfinished, horizons: Horizons) -> Deletion:
    return Deletion(path=it.path, size=it.size, age=horizons.now - it.started, reason=Reason.UPLOAD)
