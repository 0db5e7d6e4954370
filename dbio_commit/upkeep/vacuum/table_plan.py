"""What vacuum deletes from a table of ours, when and why. Pure: PROTOCOL.md 10.2 to 10.4."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Known, Reason, Why, find_strangers
from dbio_commit.protocol.log import Log
from dbio_commit.upkeep.vacuum.plan import ABORTS_KEPT, Candidate, Horizons, checksums, lost_checksums
from dbio_commit.upkeep.vacuum.report import VacuumOptions


def timed_out(snapshot: Snapshot, horizons: Horizons) -> list[str]:
    """The pending transactions that began before the data horizon: to be aborted before their files go (I5)."""
    log, covered = snapshot.log, snapshot.checkpoint.covered
    return [tid for tid in log.pending if tid not in covered and log.started[tid].modified < horizons.data]


IsSame = Callable[[str, str], bool]
"""Whether two spellings of a path lead to one file."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Says of each file of a table whether it is garbage, and due. Its snapshot is not older than the aborts."""

    known: Known
    horizons: Horizons
    untracked: bool
    is_same: IsSame | None = None
    named: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Live and removed files that the store may list by another name: as `names.fold` has them -> their names."""
    keep_unknown: bool = False
    """Somebody may have purged the markers of transactions that were committed."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        horizons: Horizons,
        *,
        untracked: bool,
        assume_aborted: Iterable[str] = (),
        is_same: IsSame | None = None,
        may_respell: Callable[[str], bool] = lambda path: False,
    ) -> "Judge":
        """`assume_aborted`: what a dry run would have aborted; `is_same` and `may_respell` are the store's."""
        known = Known.of(
            snapshot.decided,
            live={file.path for file in snapshot.files},
            log=snapshot.log,
            assume_aborted=assume_aborted,
            layouts=snapshot.layouts,
        )
        named: dict[str, list[str]] = {}
        for path in filter(may_respell, (*known.removed, *known.live)):
            named.setdefault(names.fold(path), []).append(path)
        return cls(known=known, horizons=horizons, untracked=untracked, is_same=is_same, named=named)

    def garbage(self, entries: Sequence[Entry]) -> list[Candidate]:
        """Of the entries of one directory, or of several whole ones, with their markers; live files may be left out."""
        entries = [self._as_named(entry) for entry in entries] if self.named else entries
        strangers = find_strangers(entries)
        files = (entry for entry in entries if names.is_data_file(entry.path))
        found = [it for entry in files if (it := self._judge(entry, strangers))]
        lost = [
            it
            for it in lost_checksums(entries, self.known.live, self.horizons)
            if self.known.is_partition(names.split(it.path)[0]) and (names.split(it.path)[0], it.tid) not in strangers
        ]
        return found + checksums(entries, found) + lost

    def _judge(self, entry: Entry, strangers: Collection[tuple[str, str]]) -> Candidate | None:
        why = self.known.why_not_live(entry, strangers)
        return Candidate.of(entry, why, due=self._is_due(entry, why)) if why else None

    def _is_due(self, entry: Entry, why: Why) -> bool:
        match why.reason:
            case Reason.REMOVED:
                return why.since < self.horizons.data
            case Reason.ABORTED | Reason.FAILED_ATTEMPT:
                return True
            case Reason.UNTRACKED:
                return self.untracked and entry.modified < self.horizons.data
            case Reason.UNKNOWN:
                # Of another suffix it may be what was there, and no Parquet, when the directory was adopted.
                is_ours = names.is_parquet(entry.path) and not self.keep_unknown
                return is_ours and entry.modified < self.horizons.data
        return False

    def _as_named(self, entry: Entry) -> Entry:
        """Under the name that a marker has for it: a disk that ignores case lists files by their directory's first."""
        if self.is_same and self.named and entry.path not in self.known.live and entry.path not in self.known.removed:
            for path in self.named.get(names.fold(entry.path), ()):
                if self.is_same(entry.path, path):
                    return entry._replace(path=path)
        return entry

    def still_unknown(self, garbage: Iterable[Candidate]) -> list[Candidate]:
        """Of the files of unknown transactions those that this later snapshot does not know either."""
        known = self.known.aborted | self.known.committed | self.known.pending.keys()
        return [
            it
            for it in garbage
            if it.reason is Reason.UNKNOWN and it.tid not in known and it.path not in self.known.live
        ]


def checkpoint_is_due(snapshot: Snapshot, options: VacuumOptions, *, assume_aborted: int = 0) -> bool:
    """`assume_aborted`: how many transactions a dry run would have aborted."""
    new = len(snapshot.log.uncovered(snapshot.checkpoint.covered)) - len(snapshot.strange) + assume_aborted
    return new >= max(options.checkpoint_after, 1)


def gone_files(snapshot: Snapshot, left: Collection[str]) -> set[str]:
    """The removed files that are deleted; `left` are the non-live files that a listing after the snapshot found."""
    return {path for commit in snapshot.decided for path in commit.marker.removed if path not in left}


def checkpoints_to_purge_by(log: Log, newest: int, horizons: Horizons) -> list[int]:
    """The highest first: those that are older than the purge horizon, up to the newest one of the table."""
    old = (number for number, entry in log.checkpoints.items() if entry.modified < horizons.purge)
    return sorted((number for number in old if number <= newest), reverse=True)


def purge(
    log: Log, checkpoint: Checkpoint, commits: Sequence[Decided], horizons: Horizons, *, left: Iterable[Candidate]
) -> list[list[Candidate]]:
    """The markers that are needed no more, in steps: each is to be deleted before the next is begun.

    Start markers come first, so that no listing shows a decided transaction as pending. `left` is the garbage that is
    still there: the commit markers that say so stay. A commit marker whose start marker could not be deleted stays too
    (`run` sees to that by their common tid).
    """
    covered = checkpoint.covered
    needed = _needed_markers(commits, left)
    starts = [
        Candidate.marker(entry, Reason.START_MARKER, tid)
        for tid, entry in sorted(log.started.items())
        if tid in covered
    ]
    aborted = {commit.tid for commit in commits if commit.marker.is_abort}
    decisions: list[Candidate] = []
    for tid, entry in sorted(log.committed.items()):
        if tid not in covered or tid in needed:
            continue
        if tid not in aborted:
            decisions.append(Candidate.marker(entry, Reason.COMMIT_MARKER, tid))
        elif entry.modified < horizons.now - ABORTS_KEPT:
            decisions.append(Candidate.marker(entry, Reason.ABORT_MARKER, tid))
    said = min(checkpoint.number, max(log.purges, default=0))  # the last record stays until a later one is there
    older = [
        Candidate.marker(entry, Reason.CHECKPOINT)
        for entries, before in (
            (log.checkpoints, checkpoint.number),
            (log.refusals, checkpoint.number),
            (log.purges, said),
        )
        for number, entry in sorted(entries.items())
        if number < before
    ]
    turns: list[Candidate] = []
    if log.turns and log.turns[log.last_turn].modified < horizons.purge:
        turns = [
            Candidate.marker(entry, Reason.TURN)
            for number, entry in sorted(log.turns.items())
            if number < log.last_turn
        ]
    # Of the time before the directory was adopted; the directory scope's vacuum would have needed them. Younger ones
    # show that another vacuum has been here (`other_vacuum`), and are to go on showing it.
    since = log.descriptor.modified if log.descriptor else horizons.purge
    old = (entry for entry in log.queues.values() if entry.modified <= since and entry.modified < horizons.purge)
    queues = [Candidate.marker(entry, Reason.QUEUED) for entry in old]
    return [starts, decisions, older + turns + queues]


def superseded(entries: Iterable[Entry]) -> list[Candidate]:
    """Of a published Delta log, what a checkpoint of before the data horizon has made useless."""
    return [Candidate.marker(entry, Reason.PUBLISHED) for entry in entries]


def _needed_markers(commits: Sequence[Decided], left: Iterable[Candidate]) -> set[str]:
    """The tids whose markers tell that something which is still there is garbage.

    We know it from the checkpoint too, but DBIO's own readers, of an unpartitioned table, know the markers only.
    """
    paths = {it.path: it.tid for it in left if it.reason not in (Reason.UNTRACKED, Reason.FOREIGN)}
    needed = {tid for tid in paths.values() if tid}
    for commit in commits:
        if not paths.keys().isdisjoint(commit.marker.removed):
            needed.add(commit.tid)
            if commit.marker.dbio_commit and commit.marker.dbio_commit.operation == "adopt":
                # It removed what the commits before it had hidden; what each of them hid, nobody remembers.
                needed.update(it.tid for it in commits if not it.marker.added and not it.marker.removed)
    return needed
