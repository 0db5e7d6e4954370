"""Runs one vacuum of a dbio table: reads the table, lets `table_plan` decide, and `executor` act.

The order of the steps keeps the table safe at every moment, even if the vacuum is killed: PROTOCOL.md 10.2.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from dbio_commit.base.errors import (
    CheckpointLostError,
    CorruptMarkerError,
    DbioError,
    MissingPackageError,
    ObjectNotFoundError,
    TransactionStateError,
    UnsupportedTableError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.checkpoints import catch_up, write_checkpoint
from dbio_commit.commit.decision import abort_many, carry_out, carry_out_everywhere
from dbio_commit.commit.probe import prove_store
from dbio_commit.log.listing import (
    are_large,
    is_dropped,
    is_of_table,
    read_checkpoint,
    read_last_turn,
    read_numbered_checkpoint,
    read_starts,
)
from dbio_commit.log.lost_markers import BRING_BACK, find_decided, find_probable
from dbio_commit.log.opening import read_snapshot, refuse_nested
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.other_vacuum import Signs, find_signs
from dbio_commit.maintenance.publish import SUPERSEDING, find_superseded, try_to_publish
from dbio_commit.maintenance.publish.places import DIRECTORIES
from dbio_commit.maintenance.vacuum import table_plan as plan
from dbio_commit.maintenance.vacuum.executor import Executor
from dbio_commit.maintenance.vacuum.packed import Paths
from dbio_commit.maintenance.vacuum.plan import Candidate, Contents, by_directory
from dbio_commit.maintenance.vacuum.table_plan import Judge, NeededMarkers, PurgeBy
from dbio_commit.maintenance.vacuum.workers import chunks
from dbio_commit.maintenance.walk import Levels, Share, divide
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.purge import Purge, decode_purge
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.settings import Format, published_forms

_log = get_logger(__name__)

ABORT_BATCH = 1000
"""How many transactions are aborted with one read of the checkpoint. The caller may stop the vacuum between batches."""

MOST_ABORTS = 10_000
"""The most transactions that one run aborts. Jobs do not leave more start markers between two runs."""

_MOST_STARTS = 100
"""The most start markers that are read, for warnings, of transactions to abort. The oldest are read."""

MOST_UNKNOWN = 100_000
"""How many files of unknown transactions are judged by one later snapshot."""

MOST_ABORT_S = 300.0
"""How long after the first batch of aborts another one may begin, in s."""


class Left:
    """The findings of a vacuum, and the garbage that is left, in little memory."""

    def __init__(self) -> None:
        self.paths = Paths()
        """The paths of the garbage that is left."""
        self.markers = NeededMarkers()
        self.deleted = Counter[str]()
        """How many files were deleted in each directory, on a store that has directories."""
        self.tree: dict[str, Contents] = {}
        self.unknown: list[Candidate] = []
        """Files of unknown transactions, which are due unless a later snapshot knows them."""
        self.unseen: list[str] = []
        """Removed files that are, or lie behind, symbolic links."""
        self.published: set[Format] = set()

    def note(self, commits: Iterable[Decided], left: Sequence[Candidate], gone: Iterable[str]) -> None:
        """Records a share of the table: its transactions, what is left of its garbage, and what was deleted."""
        self.paths.update(garbage.path for garbage in left)
        self.markers.note(commits, left)
        self.deleted.update(by_directory(gone))


class AllBut(Container[str]):
    """All paths except some."""

    def __init__(self, paths: Container[str]) -> None:
        self._paths = paths

    def __contains__(self, path: object) -> bool:
        return path not in self._paths


class TableVacuum:
    def __init__(self, executor: Executor) -> None:
        self._executor, self._store, self._clock = executor, executor.store, executor.clock

    def run(self) -> Snapshot | None:
        """Runs the vacuum. Returns the snapshot that decided all of it; None if a publication decided some."""
        if not self._executor.dry_run:
            # To the end, since uncovered transactions are in memory during the whole vacuum.
            self._executor.checkpoint = catch_up(self._store, self._clock, to_the_end=True)
        snapshot = read_snapshot(self._store, self._clock)
        if not self._executor.dry_run and self._carry_out(snapshot):
            snapshot = read_snapshot(self._store, self._clock)
        late = self._without_lost(snapshot, plan.timed_out(snapshot, self._executor.horizons))
        if snapshot.log.dropped and not self._executor.dry_run:
            self._remove_strange_tombstone(snapshot.log)
        if self._executor.dry_run:
            self._executor.aborted, self._executor.postponed = late[:MOST_ABORTS], late[MOST_ABORTS:]
        elif late:
            self._abort(late)
            # After the aborts: a transaction that committed just before its abort is live in this snapshot (I4, I5).
            snapshot = read_snapshot(self._store, self._clock)
        if not self._executor.dry_run:
            # Before files are deleted that an outdated publication still names.
            self._executor.behind = try_to_publish(self._store, self._clock, snapshot.settings)
        left = self._delete_files(snapshot)
        assumed = len(self._executor.aborted) if self._executor.dry_run else 0
        is_due = plan.checkpoint_is_due(snapshot, self._executor.options, assume_aborted=assumed)
        takes_number = plan.takes_number(snapshot.log, snapshot.checkpoint, self._executor.horizons)
        if is_due or takes_number or are_large(snapshot.log.uncovered(snapshot.checkpoint.covered).values()):
            self._write_checkpoint(snapshot, left, again=takes_number)
        purged = self._purge(snapshot, left)
        self._delete_parts(snapshot, purged)
        for it in sorted(left.published):
            self._delete_superseded(snapshot, it)
        self._executor.abort_unfinished()
        if not self._is_pending(snapshot):
            self._executor.remove_directories(left.tree, left.deleted)
        return None if left.published or published_forms(snapshot.settings) else snapshot

    def _remove_strange_tombstone(self, log: Log) -> None:
        """Removes a tombstone that came late, from a drop of an earlier table. Each read looks into it."""
        with suppress(ObjectNotFoundError):
            body = self._store.get(names.DROPPED)
            if not is_dropped(self._store, log):
                self._store.delete_same(names.DROPPED, body)

    def _carry_out(self, snapshot: Snapshot) -> bool:
        """Commits joint transactions that are pending here, and that their homes have committed. Returns whether there
        are any."""
        found = [self._follows_home(tid) for tid in snapshot.log.pending if names.is_joint(tid)]
        return any(found)

    def _follows_home(self, tid: str) -> bool:
        try:
            return carry_out(self._store, tid)
        except DbioError as error:
            self._executor.failed[names.started(tid)] = str(error)  # it stays pending, so its files stay
            return False

    def _open(self, steps: Iterable[Iterable[Candidate]]) -> Iterator[str]:
        """The joint transactions among these that this table has committed as their home, and that could not be
        committed in all their tables. Only the markers here have the decision."""
        found = {it.tid for step in steps for it in step if it.tid and names.is_joint(it.tid)}
        for tid in sorted(found):
            try:
                carry_out_everywhere(self._store, tid)
            except DbioError as error:
                self._executor.failed[names.committed(tid)] = f"stays, since another table needs its decision: {error}"
                yield tid

    def _without_lost(self, snapshot: Snapshot, late: Sequence[str]) -> list[str]:
        """The transactions to abort: all but those that were certainly decided. Warns of what may be lost."""
        lost = find_decided(self._store, snapshot, late)
        due = [tid for tid in late if tid not in lost]
        started = {tid: snapshot.log.started[tid] for tid in due[:_MOST_STARTS]}
        found = find_probable(snapshot, read_starts(self._store, started, table_id=snapshot.table_id))
        warnings = [
            f"{names.committed(tid)} is gone, and the transaction was decided: {why}. It is not aborted, and its files "
            f"stay. {BRING_BACK[0].upper()}{BRING_BACK[1:]}"
            for tid, why in lost.items()
        ]
        warnings += [
            f"{tid} is pending since {snapshot.log.started[tid].modified.isoformat(timespec='seconds')}, and is "
            f"aborted, but {why}. If its writer had reported a commit, somebody has deleted "
            f"{names.committed(tid)}: bring it and the files back, see docs/OPERATIONS.md"
            for tid, why in found.items()
        ]
        for warning in warnings:  # before files are deleted
            _log.warning("%s: %s", self._store.url, warning)
        self._executor.warnings += warnings
        return due

    def _delete_files(self, snapshot: Snapshot) -> Left:
        """Deletes the files that are due, one share of the table after the other. Returns the garbage that is left."""
        left = Left()
        levels = self._executor.workers.list_levels(snapshot)
        files = len(snapshot.files)
        judge: Judge | None = None
        for share in divide(snapshot, levels.below):
            judge = judge.within(share.snapshot) if judge else self._judge(share.snapshot)
            self._delete_share(share, judge, levels, left, files=files)
            judge = judge.without_files()
            del share  # before the next one is read
        self._delete_unknown(left)
        if left.unseen:
            self._executor.warnings.append(
                f"{len(left.unseen):,} removed files are, or lie behind, symbolic links, first {min(left.unseen)}; "
                "they are left alone, and stay recorded as removed"
            )
        return left

    def _delete_share(self, share: Share, judge: Judge, levels: Levels, left: Left, *, files: int) -> None:
        due: list[Candidate] = []
        kept: list[Candidate] = []
        for listed in self._executor.workers.list_share(levels, share, live=judge.known.live, files=files):
            self._executor.note(left.tree, listed)
            left.published |= {it for it in SUPERSEDING if DIRECTORIES[it] in listed.directories}
            for entry in listed.entries:
                refuse_nested(self._store, entry.path)
            for garbage in judge.garbage(listed.entries):
                (due if garbage.due else kept).append(garbage)
        if len(share.directories) < len(levels.below):
            # One later snapshot judges the unknown files of many shares, since most shares have none.
            left.unknown += [garbage for garbage in due if garbage.reason is Reason.UNKNOWN]
            due = [garbage for garbage in due if garbage.reason is not Reason.UNKNOWN]
            if len(left.unknown) >= MOST_UNKNOWN:
                self._delete_unknown(left)
        else:
            due, newborn = self._without_newborn(due)
            kept += newborn
        gone = self._executor.delete(due)
        self._executor.keep(kept)
        stays = [*kept, *(garbage for garbage in due if garbage.path not in gone)]
        unseen = self._unseen(plan.gone_files(share.snapshot, {garbage.path for garbage in stays}) - gone)
        left.unseen += [garbage.path for garbage in unseen]
        left.note(share.snapshot.decided, [*stays, *unseen], gone)

    def _delete_unknown(self, left: Left) -> None:
        due, newborn = self._without_newborn(left.unknown)
        gone = self._executor.delete(due)
        self._executor.keep(newborn)
        left.note((), [*newborn, *(garbage for garbage in due if garbage.path not in gone)], gone)
        left.unknown = []

    def _judge(self, snapshot: Snapshot) -> Judge:
        """The judge of the first share, from which the others are made."""
        judge = Judge.of(
            snapshot,
            self._executor.horizons,
            untracked=self._executor.options.untracked,
            assume_aborted=self._executor.aborted if self._executor.dry_run else (),
            is_same=self._store.is_same,
            may_respell=self._store.may_respell,
        )
        log, covered, now = snapshot.log, snapshot.checkpoint.covered, self._executor.horizons.now
        if signs := find_signs(self._store, log, covered, table_id=snapshot.table_id, now=now):
            judge = replace(judge, keep_unknown=True)
            self._executor.warnings.append(_another_vacuum(signs))
        if snapshot.strange:
            judge = replace(judge, keep_unknown=True)
            self._executor.warnings.append(
                f"{len(snapshot.strange)} objects of the log belong to another table, first {snapshot.strange[0]}: "
                "files of unknown transactions are kept. `dbio check` names them all"
            )
        return judge

    def _unseen(self, absent: Collection[str]) -> list[Candidate]:
        """The removed files that the listing did not show, but that may exist: they are behind symbolic links."""
        now = self._executor.horizons.now
        return [
            Candidate(path, 0, now, Reason.REMOVED, due=False, tid=names.parse_data_file(names.split(path)[1]))
            for path in sorted(self._store.behind_links(absent))
        ]

    def _delete_superseded(self, snapshot: Snapshot, format: Format) -> None:
        """Deletes useless objects of a publication. Nothing if it cannot be read, or is not this table's."""
        try:
            old = find_superseded(self._store, format, snapshot.table_id or "", self._executor.horizons.data)
        except ObjectNotFoundError:  # another vacuum was faster
            return
        except (UnsupportedTableError, CorruptMarkerError, MissingPackageError) as error:
            self._executor.warnings.append(f"nothing of {DIRECTORIES[format]} is deleted: {error}")
            return
        self._executor.delete(plan.superseded(old))

    def _without_newborn(self, due: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
        """The due files without those of transactions that began after the snapshot, and the latter. They look old if
        this machine's clock is wrong.

        Their start markers or decisions came before the files, so a new snapshot shows them.
        """
        unknown = {garbage.path for garbage in due if garbage.reason is Reason.UNKNOWN}
        if not unknown:
            return list(due), []
        later = read_snapshot(self._store, self._clock)
        newborn = unknown - {garbage.path for garbage in plan.still_unknown(later, due)}
        return (
            [garbage for garbage in due if garbage.path not in newborn],
            [garbage._replace(due=False) for garbage in due if garbage.path in newborn],
        )

    def _is_pending(self, snapshot: Snapshot) -> bool:
        """Whether a pending transaction may have just made a directory, for a file that is not there yet."""
        if not self._store.has_directories:
            return False
        log = snapshot.log if self._executor.dry_run else parse_log(self._store.list_log())
        return bool(set(log.pending) - snapshot.checkpoint.covered - set(self._executor.aborted))

    def _abort(self, tids: Sequence[str]) -> None:
        """Aborts as many as one run may. The others stay pending, and are reported."""
        self._executor.postponed = list(tids)
        since_s = self._clock.monotonic()
        for batch in chunks(tids[:MOST_ABORTS], ABORT_BATCH):
            if self._clock.monotonic() - since_s > MOST_ABORT_S:
                break
            for tid, failure in self._abort_batch(batch).items():
                if failure is None:
                    self._executor.aborted.append(tid)
                elif not isinstance(failure, TransactionStateError):  # else it has just committed
                    self._executor.failed[names.started(tid)] = str(failure)  # still pending, so its files stay
            del self._executor.postponed[: len(batch)]
            self._executor.workers.report("aborting", len(tids) - len(self._executor.postponed), len(tids))

    def _abort_batch(self, tids: Sequence[str]) -> Mapping[str, DbioError | None]:
        try:
            prove_store(self._store)
        except DbioError as error:
            return dict.fromkeys(tids, error)
        return abort_many(self._store, self._clock, tids)

    def _write_checkpoint(self, snapshot: Snapshot, left: Left, *, again: bool = False) -> None:
        name = names.checkpoint(snapshot.log.checkpoint_after(snapshot.checkpoint.number))
        if self._executor.dry_run:
            self._executor.checkpoint = name
            return
        try:
            prove_store(self._store)
            written = write_checkpoint(
                self._store,
                self._clock,
                snapshot,
                gone=AllBut(left.paths),
                history=timedelta(days=self._executor.options.history_days),
                again=again,
            )
            self._executor.checkpoint = written or self._executor.checkpoint
        except DbioError as error:
            self._executor.failed[name] = str(error)

    def _purge(self, snapshot: Snapshot, left: Left) -> set[str]:
        """Purges the markers that a checkpoint covers, if it is old enough and another checkpoint covers them, too.

        Returns the paths that are gone.
        """
        purged: set[str] = set()
        try:
            checkpoint, steps = self._plan_purge(snapshot, left)
        except ObjectNotFoundError:
            return purged  # another vacuum has purged the checkpoint, and what it covers
        if _purges_transactions(steps) and not self._prepare_purge(snapshot, checkpoint.number, left):
            return purged
        undecided: set[str | None] = set() if self._executor.dry_run else {*self._open(steps)}
        for step in steps:
            if any(marker.tid is None for marker in step) and not self._is_still_there(snapshot):
                return purged
            wanted = [marker for marker in step if marker.tid is None or marker.tid not in undecided]
            gone = self._executor.delete(wanted)
            undecided |= {marker.tid for marker in wanted if marker.path not in gone}
            purged |= gone
        return purged

    def _delete_parts(self, snapshot: Snapshot, purged: Collection[str]) -> None:
        """Deletes the parts of checkpoints that no reader needs, by the newest checkpoint.

        That checkpoint is looked up only if there is such a part by the snapshot.
        """
        horizons, newest = self._executor.horizons, snapshot.checkpoint
        taken = snapshot.log.checkpoint_after(newest.number) if self._executor.checkpoint else 0
        left = {number: it for number, it in snapshot.log.checkpoints.items() if it.path not in purged}
        log = replace(snapshot.log, checkpoints=left)
        found = plan.parts(log, newest, horizons, taken=taken)
        if not self._executor.dry_run and any(part.due for part in found):
            if not self._is_still_there(snapshot):
                return
            # After the listing of the parts: this checkpoint names all of them that current readers need.
            log = replace(log, checkpoints=parse_log(self._store.list_log(Kind.CHECKPOINT)).checkpoints)
            try:
                newest = read_checkpoint(self._store, log, table_id=snapshot.table_id)
            except ObjectNotFoundError:
                return  # another vacuum has purged it, and deletes the parts
            except CorruptMarkerError as error:
                self._executor.failed[names.checkpoint(log.last_checkpoint)] = str(error)
                return
            found = plan.parts(log, newest, horizons)
        self._executor.keep(part for part in found if not part.due)
        self._executor.delete([part for part in found if part.due])

    def _is_still_there(self, snapshot: Snapshot) -> bool:
        """Whether the root still has the same table: turns and checkpoints of another table have the same names."""
        found = parse_log(self._store.stat_log(names.DESCRIPTOR).values()).descriptor
        if found != snapshot.log.descriptor:
            self._executor.failed[names.DESCRIPTOR] = (
                "the table was dropped, or another table created, while it was vacuumed"
            )
        return found == snapshot.log.descriptor

    def _plan_purge(self, snapshot: Snapshot, left: Left) -> tuple[PurgeBy, list[list[Candidate]]]:
        """The checkpoint to purge by, and the markers to delete. The newest is used only if older ones cover less."""
        newest, log, horizons = snapshot.checkpoint, snapshot.log, self._executor.horizons
        # Only these tids count. If there are none, the transactions of an older checkpoint are not read.
        marked = newest.covered & (log.started.keys() | log.committed.keys())
        needed = left.markers.among(snapshot.transactions)
        for number in plan.checkpoints_to_purge_by(log, newest.number, horizons):
            covered = marked if number == newest.number else self._also_covered_by(number, snapshot, marked)
            if covered is None:
                continue
            checkpoint = PurgeBy(number, covered)
            steps = self._steps(snapshot, checkpoint, needed)
            if number != newest.number or self._executor.checkpoint or _purges_transactions(steps):
                return checkpoint, steps
        checkpoint = PurgeBy(NO_CHECKPOINT.number, ())
        return checkpoint, self._steps(snapshot, checkpoint, needed)

    def _steps(self, snapshot: Snapshot, checkpoint: PurgeBy, needed: Collection[str]) -> list[list[Candidate]]:
        """The markers to delete if this checkpoint is the one to purge by."""
        log, commits, horizons = snapshot.log, snapshot.transactions, self._executor.horizons
        # A single turn is the last one, and stays.
        last_turn = read_last_turn(self._store, log, snapshot.table_id) if len(log.turns) > 1 else 0
        return plan.purge(log, checkpoint, commits, horizons, needed=needed, last_turn=last_turn)

    def _also_covered_by(self, number: int, snapshot: Snapshot, marked: Set[str]) -> Set[str] | None:
        """The transactions among `marked` that this older checkpoint covers, too. None if it cannot be used.

        Readers use the newest checkpoint. Whatever wrote the older one, markers that the newest does not cover must
        stay. Raises ObjectNotFoundError if another vacuum has purged the checkpoint.
        """
        # As if the log had no newer checkpoint: then the newer ones explain why a part of this one does not exist.
        log = replace(snapshot.log, checkpoints={number: snapshot.log.checkpoints[number]})
        try:
            older = read_numbered_checkpoint(self._store, log, number)
            if not is_of_table(older.table_id, snapshot.table_id):
                return None
            with suppress(ObjectNotFoundError):  # a late writer may have created it, after its parts were deleted
                return marked & older.covered if marked else marked
            return None
        except CheckpointLostError as error:  # the newest holds more
            self._executor.warnings.append(f"an older checkpoint, which is not needed, cannot be read: {error}")
            return None

    def _prepare_purge(self, snapshot: Snapshot, number: int, left: Left) -> bool:
        """Before markers are purged by the checkpoint with this number: ensures that two checkpoints cover them, and
        writes the purge record.

        So the loss of one checkpoint does no harm, and the loss of both is noticed. False if there is only one
        checkpoint: then the next vacuum continues.
        """
        if number == snapshot.checkpoint.number and not self._executor.checkpoint:
            self._write_checkpoint(snapshot, left, again=True)
            if not self._executor.checkpoint:
                return False
        if self._executor.dry_run:
            return True
        name, body = names.purge(number), Purge(table_id=str(snapshot.table_id), created=self._clock.now())
        try:
            if not self._store.put_if_absent(name, encode(body)):
                recorded = decode_purge(self._store.get(name), where=self._store.url_of(name))
                if recorded.table_id != snapshot.table_id:
                    self._executor.warnings.append(
                        f"{name} has the id of another table, so no marker is purged by that number"
                    )
                    return False
        except DbioError as error:
            self._executor.failed[name] = str(error)
            return False
        return True


def _purges_transactions(steps: Iterable[Iterable[Candidate]]) -> bool:
    return any(marker.tid for step in steps for marker in step)


def _another_vacuum(signs: Signs) -> str:
    return (
        "another tool's vacuum has run here, as DBIO's writers run it after their commits; it may have purged commit "
        f"markers ({'; '.join(signs.in_words())}). Files of unknown transactions are kept. See "
        '"Databricks vacuumed the table" in docs/OPERATIONS.md'
    )
