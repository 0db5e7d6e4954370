"""Erases rows: deletes them by a commit, and then deletes all objects that still have values of them.

The order keeps the table safe at every moment, and another run finishes what a killed one has left: NOTES.md, Erasures.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CommitConflictError, DbioError, InvalidInputError, ObjectNotFoundError
from dbio_commit.base.logs import get_logger
from dbio_commit.base.progress import Progress, silent
from dbio_commit.commit.checkpoints import catch_up, write_checkpoint
from dbio_commit.commit.probe import prove_store
from dbio_commit.commit.tids import new_uuid
from dbio_commit.commit.turns import SETTLE_S
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.erase.find import (
    Doomed,
    ErasureJudge,
    Finder,
    forgetful_markers,
    look_into,
    refuse_dropped,
    removed_files,
)
from dbio_commit.maintenance.erase.remains import remains_of
from dbio_commit.maintenance.erase.report import EraseReport, Pending
from dbio_commit.maintenance.publish import find_formats, forget_published, publish_each, try_to_publish
from dbio_commit.maintenance.publish.places import DIRECTORIES
from dbio_commit.maintenance.vacuum.executor import Executor
from dbio_commit.maintenance.vacuum.packed import Paths
from dbio_commit.maintenance.vacuum.plan import Candidate
from dbio_commit.maintenance.vacuum.report import Control, VacuumOptions
from dbio_commit.maintenance.vacuum.table import AllBut, Left, TableVacuum
from dbio_commit.maintenance.vacuum.table_plan import Judge, PurgeBy
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.garbage import Reason, useless_parts
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Format
from dbio_commit.store import Store

Delete = Callable[[str], Commit]
"""Deletes the rows for which a condition holds, with one commit, as `dbio.delete` does."""

WAIT_S = SETTLE_S
"""How long other processes may act on an earlier state, in s: a young transaction commits without a look at its
markers, and a publisher creates what it has prepared."""

RETRIES = 3
"""How often `delete` tries again if another commit was in the way."""

_WAITING = f"waiting {SETTLE_S:.0f} s for others"

_ROUNDS = 10
"""How often an erasure tries again if other writers of checkpoints were faster."""

_log = get_logger(__name__)


def erase(
    store: Store,
    clock: Clock,
    where: str,
    *,
    delete: Delete,
    time_zone: str | None = None,
    dry_run: bool = False,
    progress: Progress = silent,
) -> EraseReport:
    """Erases the rows for which the condition holds. `time_zone` is that of times without a zone in the condition.

    Raises InvalidInputError if this is no dbio table with recorded columns, or no condition on them; what `delete`
    raises; CommitConflictError, TableNotFoundError, CorruptMarkerError, StoreError.
    """
    executor = Executor(store, clock, VacuumOptions(), dry_run=dry_run, control=Control(progress=progress), spread=None)
    if not dry_run:
        catch_up(store, clock)
    snapshot = read_snapshot(store, clock)
    if snapshot.scope is not Scope.TABLE or snapshot.schema is None:
        why = f"has no {names.DESCRIPTOR}" if snapshot.scope is not Scope.TABLE else "has no recorded columns"
        raise InvalidInputError(
            f"{store.url} {why}, so that no rows of it can be erased; `dbio adopt` makes a directory a table with "
            "columns"
        )
    try:
        finder = Finder(store, snapshot.schema, where, time_zone)
    except InvalidInputError:
        refuse_dropped(snapshot, where, time_zone)
        raise
    live, commit = finder.by_facts(snapshot.files, snapshot.of_files), None
    if not dry_run and any(look_into(finder, live, progress, "looking for rows")):
        progress("looking for rows", len(live), len(live))
        progress("deleting rows", 0, None)
        try:
            commit = delete(where)
        except ObjectNotFoundError:
            _refuse_overtaken(read_snapshot(store, clock), {file.path for file in live})
            raise
        progress("deleting rows", 1, 1)
    erasure = _Erasure(executor, finder)
    published = erasure.run()
    if not dry_run:
        erasure.look_for_late_rows({*snapshot.tids, *([commit.tid] if commit else [])})
    for failure in executor.failed.values():
        _log.warning("%s: %s", store.url, failure)
    is_new = commit is not None and not commit.skipped
    return EraseReport(
        url=store.url,
        where=where,
        dry_run=dry_run,
        tid=commit.tid if commit and is_new else None,
        rows=(commit.metrics.get("numDeletedRows") if is_new else 0) if commit else 0,
        files=commit.removed_files if commit and is_new else len(live) if dry_run else 0,
        deleted=executor.deleted,
        failed=executor.report().failed,
        pending=erasure.pending,
        published=published,
        remains=remains_of(store, executor, erasure.state, finder, erasure.below),
    )


def _refuse_overtaken(now: Snapshot, files: Collection[str]) -> None:
    """Raises CommitConflictError if some of the files that were to be read are no longer live."""
    if not {file.path for file in now.files}.issuperset(files):
        raise CommitConflictError(
            f"another process removed or erased rows of {now.url} while this one read them; run `dbio erase` again"
        )


class _Erasure(TableVacuum):
    """A vacuum that deletes the objects that an erasure has found, whatever their age. Other removed files stay."""

    def __init__(self, executor: Executor, finder: Finder) -> None:
        super().__init__(executor)
        self._finder = finder
        self._doomed = Doomed()
        self._decided: Collection[str] = ()
        """The transactions that were decided when the files were looked for."""
        self._begun: Collection[str] = ()
        """The transactions that had begun when the files were deleted: they may have read them."""
        self._published: Mapping[Format, Collection[str]] = {}
        """The objects of publications from before the wait, by format. If a format is missing, all are from before."""
        self._removed_before: Collection[str] = ()
        """The transactions that later publications show. Those do not name the files that these removed."""
        self._may_be_named = False
        """Whether later publications may name erased files."""
        self._first = 0
        """The number of the first checkpoint that names no erased file."""
        self.below: list[str] = []
        """Markers below the root."""
        self.state: Snapshot
        self.pending: Sequence[Pending] = ()

    def run(self) -> Sequence[Format]:  # type: ignore[override]
        """Deletes files, then markers, then publications of earlier states; returns the formats of these."""
        if self._executor.dry_run:
            self._erase()
            self.state = read_snapshot(self._store, self._clock)
            self._begun = self.state.log.started.keys()
            self.pending = self._still_pending(self.state.log)
            return find_formats(self._store, str(self.state.table_id))
        self._publish()
        self._wait()  # so that what was pending has ended, or is reported, and no old publication comes any more
        for _ in range(_ROUNDS):
            if self._erase():
                break
        else:
            raise CommitConflictError(
                f"other processes wrote checkpoints of {self._store.url} {_ROUNDS} times meanwhile; run `dbio erase` "
                "again"
            )
        published, old = self._forget_published()
        self._executor.delete(old)
        if {*parse_log(self._store.list_log()).pending} & {*self._begun}:
            self._wait()  # most transactions end by then, and need no other erasure
        log = parse_log(self._store.list_log())  # before the snapshot, which has all that is decided in this listing
        self.state = read_snapshot(self._store, self._clock)
        self.pending = self._still_pending(log)
        self._look_for_late_objects()
        return published

    def _wait(self) -> None:
        self._executor.workers.report(_WAITING, 0, None)
        self._clock.sleep(WAIT_S)
        self._executor.workers.report(_WAITING, 1, 1)

    def _erase(self) -> bool:
        """One attempt. False if another process was faster to write or to purge a checkpoint: then nothing is lost, but
        markers or checkpoints may be left, and another attempt is needed."""
        self._executor.set_time()  # before any listing
        snapshot = read_snapshot(self._store, self._clock)
        self._decided = {it.tid for it in snapshot.transactions}
        self._doomed = self._find(snapshot)
        if not self._executor.dry_run:
            self._wait_for(snapshot)
            # Before files are deleted that an outdated publication may name.
            try_to_publish(self._store, self._clock, snapshot.settings)
        left = self._delete_files(snapshot)
        if self._executor.dry_run:
            self._executor.delete(self._markers_of(snapshot))
            return True
        log = parse_log(self._store.list_log())
        self._begun = log.started.keys() | log.committed.keys()
        self._executor.workers.report("writing checkpoints", 0, None)
        for path in left.unseen:
            if path in self._doomed.paths:
                self._executor.failed[path] = (
                    "is, or lies behind, a symbolic link, and may hold such rows: delete it yourself"
                )
        prove_store(self._store)
        erasure = new_uuid(self._clock)
        first = write_checkpoint(
            self._store, self._clock, snapshot, gone=AllBut(left.paths), again=True, erasure=erasure
        )
        if first is None or not self._purge_before(first, left):
            return False
        if snapshot.checkpoint.is_root or self._newest().checkpoint.is_root:
            # the root names the parts that it has dropped, with their directories, until their objects are gone
            again = write_checkpoint(self._store, self._clock, self._newest(), again=True)
            if again is None or not self._purge_before(again, left):
                return False
        self._executor.workers.report("writing checkpoints", 1, 1)
        self._executor.abort_unfinished()
        if not self._is_pending(snapshot):
            self._executor.remove_directories(left.tree, left.deleted)
        elif self._finder.names_values(snapshot.layouts):
            self._executor.warnings.append(
                "emptied directories stay, whose names may have values, since a transaction is pending: a vacuum after "
                "its end removes them"
            )
        return True

    # --- find -----------------------------------------------------------------------------------------------------

    def _find(self, snapshot: Snapshot) -> Doomed:
        paths, flagged = Paths(), forgetful_markers(self._store, snapshot, self._finder)
        names_values = self._finder.names_values(snapshot.layouts)
        for share in snapshot.slices():
            live = {file.path for file in share.files}
            gone = removed_files(share.decided, live)
            likely = self._finder.by_facts(gone, share.decided)
            found = [*look_into(self._finder, likely, self._executor.workers.report, "looking into removed files")]
            own = {file.path for file in found}
            paths.update(own)
            late = (it for it in share.decided if it.tid not in self._removed_before)
            self._may_be_named |= any(not own.isdisjoint(it.marker.removed) for it in late)
            flagged.update(file.tid for file in found if file.tid)
            if names_values:
                flagged.update(it.tid for it in share.decided if not own.isdisjoint(it.marker.removed))
        return Doomed(paths, frozenset(flagged))

    def _markers_of(self, snapshot: Snapshot) -> list[Candidate]:
        """The markers that the erasure would delete."""
        log = snapshot.log
        return [
            *(
                Candidate.marker(log.started[tid], Reason.START_MARKER)
                for tid in self._doomed.flagged & log.started.keys()
            ),
            *(
                Candidate.marker(log.committed[tid], Reason.COMMIT_MARKER)
                for tid in self._doomed.flagged & log.committed.keys()
            ),
            *(Candidate.marker(entry, Reason.CHECKPOINT) for entry in log.checkpoints.values()),
        ]

    def _wait_for(self, snapshot: Snapshot) -> None:
        """Waits until the markers that are to be deleted are old enough."""
        log = snapshot.log
        each = [*self._doomed.flagged & log.committed.keys()]
        if each:
            youngest = max(log.committed[tid].modified for tid in each)
            wait = youngest + timedelta(seconds=WAIT_S) - self._executor.now()
            if wait > timedelta(0):
                self._clock.sleep(min(wait.total_seconds(), WAIT_S))

    # --- delete ---------------------------------------------------------------------------------------------------

    def _judge(self, snapshot: Snapshot) -> Judge:
        self.below = []
        return ErasureJudge.made_of(super()._judge(snapshot), self._doomed, snapshot, self.below)

    def _newest(self) -> Snapshot:
        return read_snapshot(self._store, self._clock)

    def _purge_before(self, first: str, left: Left) -> bool:
        """Deletes what the log has of earlier states, once a second checkpoint records what the first does.

        False if another process has purged the first one: then something may be left.
        """
        self._first = int(first.rpartition("_")[2])
        write_checkpoint(self._store, self._clock, self._newest(), again=True)
        self._executor.checkpoint = first
        snapshot = self._newest()
        if self._first not in snapshot.log.checkpoints:
            return False
        if snapshot.checkpoint.number <= self._first:
            raise CommitConflictError(f"{self._store.url} has no second checkpoint; run `dbio erase` again")
        purged = self._purge(snapshot, left)
        horizons = self._executor.horizons
        # No retention for readers, whatever clocks show: a part that was dropped just now is deleted, too.
        self._executor.horizons = replace(horizons, data=datetime.max.replace(tzinfo=UTC))
        try:
            self._delete_parts(snapshot, purged)
        finally:
            self._executor.horizons = horizons
        marked = self._doomed.flagged & parse_log(self._store.list_log(Kind.COMMITTED)).committed.keys()
        return not marked or bool(self._executor.failed)

    def _plan_purge(self, snapshot: Snapshot, left: Left) -> tuple[PurgeBy, list[list[Candidate]]]:
        """The markers of flagged transactions, and all checkpoints before the first that names no erased file."""
        log = snapshot.log
        marked = self._doomed.flagged & (log.started.keys() | log.committed.keys()) & snapshot.checkpoint.covered
        covered = self._also_covered_by(self._first, snapshot, marked) or set()
        needed = left.markers.among(snapshot.transactions)
        checkpoint = PurgeBy(self._first, covered)
        return checkpoint, self._steps(snapshot, checkpoint, needed)

    # --- publications, and what is left -----------------------------------------------------------------------------

    def _publish(self) -> None:
        """Publishes in all formats, so that no later version of a log names erased files."""
        before = read_snapshot(self._store, self._clock)
        self._removed_before = {*before.tids}
        formats = find_formats(self._store, str(before.table_id))
        self._executor.workers.report("publishing", 0, None)
        for it, problem in publish_each(self._store, self._clock, formats).items():
            self._executor.failed[DIRECTORIES[it]] = f"old publications may still have values: {problem}"
        self._published = {it: {file.path for file in self._store.list_files(DIRECTORIES[it])} for it in formats}
        self._executor.workers.report("publishing", 1, 1)

    def _forget_published(self) -> tuple[Sequence[Format], list[Candidate]]:
        """The formats that were published anew, and the objects with values of earlier states, which may be deleted."""
        store, done, old = self._store, list[Format](), list[Candidate]()
        for it in find_formats(store, str(read_snapshot(store, self._clock).table_id)):
            self._executor.workers.report(f"publishing as {it}", 0, None)
            try:
                paths = forget_published(store, self._clock, it)
            except DbioError as error:
                self._executor.failed[DIRECTORIES[it]] = f"old publications still have values: {error}"
                continue
            before = [path for path in paths if path in self._published.get(it, paths)]
            old += [Candidate(path, 0, self._executor.horizons.now, Reason.PUBLISHED, True) for path in before]
            # Other publishers may be about to create the objects between, by a number that a deletion would free.
            for path in set(paths).difference(before) if self._may_be_named else ():
                self._executor.failed[path] = "was published meanwhile, and may name files with such rows: erase again"
            done.append(it)
            self._executor.workers.report(f"publishing as {it}", 1, 1)
        return done, old

    def look_for_late_rows(self, known: Collection[str]) -> None:
        """Reports files of other commits than these that may hold, or have held, such rows: others wrote them while the
        rows were deleted. Files that are removed again count, too, unless the erasure has found them. Another erasure
        that has deleted such a file may have left a marker that names it."""
        others = {it.tid for it in self.state.transactions if not (it.tid in known and it.tid in self._decided)}
        if not others:
            return
        for tid in forgetful_markers(self._store, self.state, self._finder, among=others):
            self._executor.failed[names.committed(tid)] = (
                "may name files with such rows, which another commit wrote meanwhile: erase again"
            )
        for share in self.state.slices():
            live = [file for file in share.files if file.tid not in known]
            gone = removed_files(share.decided, {file.path for file in share.files})
            late = (it for it in gone if it.tid in others)
            new = [*live, *(file for file in late if file.path not in self._doomed.paths)]
            for file in self._finder.by_rows([*self._finder.by_facts(new, share.decided)]):
                self._executor.failed[file.path] = (
                    "may hold such rows, which another commit wrote meanwhile: erase again"
                )

    def _still_pending(self, log: Log) -> Sequence[Pending]:
        """The transactions that had begun when the files were deleted, may have read them before, and are pending.

        One that was aborted since then may have left files, which are reported.
        """
        for commit in self.state.transactions:
            if commit.marker.is_abort and commit.tid in self._begun and commit.tid not in self._decided:
                self._executor.failed[names.committed(commit.tid)] = (
                    "the transaction was aborted meanwhile, and files of it may be left with such rows: erase again"
                )
        retention = timedelta(hours=self._executor.options.retention_hours)
        return [
            Pending(tid=tid, since=log.started[tid].modified, until=log.started[tid].modified + retention)
            for tid in log.pending
            if tid in self._begun and tid not in self.state.checkpoint.covered
        ]

    def _look_for_late_objects(self) -> None:
        """Reports checkpoints and parts that a process wrote late, after it had stood still."""
        log, newest = self.state.log, self.state.checkpoint
        late = [names.checkpoint(number) for number in log.checkpoints if number < self._first]
        clean = {name for it in newest.dropped if it.by > self._first for name in it.part.objects}
        useless = {it.entry.path for it in useless_parts(log, newest)} - clean
        late += [path for path in sorted(useless) if (names.part_number(path) or 0) <= self._first]
        for path in late:
            self._executor.failed[path] = (
                "another process wrote it late, and it may have values of such rows: erase again"
            )
