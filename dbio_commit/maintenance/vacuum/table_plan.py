"""Decides what vacuum deletes from a dbio table, when and why (PROTOCOL.md 10.2 to 10.5). Pure."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.vacuum.idle import each_entry
from dbio_commit.maintenance.vacuum.plan import ABORTS_KEPT, Candidate, Horizons, checksums, lost_checksums
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import FileStates, Reason, Why, find_markers_below, removed_files, useless_parts
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.state import live_among


def timed_out(snapshot: Snapshot, horizons: Horizons) -> list[str]:
    """The pending transactions that began before the data horizon. They must be aborted before their files go (I5)."""
    log, covered = snapshot.log, snapshot.checkpoint.covered
    return [tid for tid in log.pending if tid not in covered and log.started[tid].modified < horizons.data]


IsSame = Callable[[str, str], bool]
"""Whether two spellings of a path lead to one file."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Decides for each file of a table, or of a share of it, whether it is garbage, and whether it is due.

    Its snapshot must not be older than the aborts.
    """

    known: FileStates
    horizons: Horizons
    untracked: bool
    is_same: IsSame | None = None
    may_respell: Callable[[str], bool] = lambda path: False
    named: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Live and removed files that the store may list under another name, by their names in `names.fold`."""
    keep_unknown: bool = False
    """Whether markers of committed transactions may have been purged, so that unknown files must stay."""

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
        """`assume_aborted`: the tids that a dry run would have aborted. `is_same` and `may_respell` are the store's."""
        known = FileStates.of(
            snapshot.decided,
            live={file.path for file in snapshot.files},
            log=snapshot.log,
            assume_aborted=assume_aborted,
            layouts=snapshot.layouts,
        )
        return cls(
            known=known,
            horizons=horizons,
            untracked=untracked,
            is_same=is_same,
            may_respell=may_respell,
            named=_named(known, may_respell),
        )

    def within(self, share: Snapshot) -> "Judge":
        """The judge for the files in another share of the table."""
        live = {file.path for file in share.files}
        known = replace(self.known, live=live, removed=removed_files(share.decided))
        return replace(self, known=known, named=_named(known, self.may_respell))

    def without_files(self) -> "Judge":
        """The judge without files, in little memory. `within` makes the judge of another share of it."""
        return replace(self, known=replace(self.known, live=frozenset(), removed={}), named={})

    def garbage(self, entries: Sequence[Entry]) -> list[Candidate]:
        """The garbage among the entries of whole directories, with their markers. Live files may be left out."""
        entries = [self._as_named(entry) for entry in entries] if self.named else entries
        strangers = find_markers_below(entries)
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
                # With another suffix it may be a file that was not Parquet when the directory was adopted.
                may_go = names.is_parquet(entry.path) and not self.keep_unknown
                return may_go and entry.modified < self.horizons.data
        return False

    def _as_named(self, entry: Entry) -> Entry:
        """The entry by the path in its marker. A disk that ignores case lists directories by their first spelling."""
        if self.is_same and self.named and entry.path not in self.known.live and entry.path not in self.known.removed:
            for path in self.named.get(names.fold(entry.path), ()):
                if self.is_same(entry.path, path):
                    return entry._replace(path=path)
        return entry


def _named(known: FileStates, may_respell: Callable[[str], bool]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for path in filter(may_respell, chain(known.removed, known.live)):
        named.setdefault(names.fold(path), []).append(path)
    return named


def still_unknown(snapshot: Snapshot, garbage: Iterable[Candidate]) -> list[Candidate]:
    """The files of unknown transactions that this later snapshot does not know, either."""
    unknown = [it for it in garbage if it.reason is Reason.UNKNOWN]
    log = snapshot.log
    known = {it.tid for it in snapshot.transactions} | log.later.keys() | log.committed.keys() | log.started.keys()
    live = live_among(snapshot.files, {it.path for it in unknown})
    return [it for it in unknown if it.tid not in known and it.path not in live]


def checkpoint_is_due(snapshot: Snapshot, options: VacuumOptions, *, assume_aborted: int = 0) -> bool:
    """Whether to write a checkpoint. `assume_aborted`: how many transactions a dry run would have aborted."""
    uncovered, strange = snapshot.log.uncovered(snapshot.checkpoint.covered), {*snapshot.strange}
    new = sum(entry.path not in strange for entry in uncovered.values())
    return new + assume_aborted >= max(options.checkpoint_after, 1)


def gone_files(snapshot: Snapshot, left: Container[str]) -> set[str]:
    """The removed files that are deleted. `left` are the non-live files that a listing after the snapshot found."""
    return {path for commit in snapshot.decided for path in commit.marker.removed if path not in left}


def checkpoints_to_purge_by(log: Log, newest: int, horizons: Horizons) -> list[int]:
    """The numbers of checkpoints before the purge horizon, up to the table's newest, the highest first."""
    old = (number for number, entry in log.checkpoints.items() if entry.modified < horizons.purge)
    return sorted((number for number in old if number <= newest), reverse=True)


class PurgeBy(NamedTuple):
    """The checkpoint by which markers are purged."""

    number: int
    covered: Collection[str]
    """The tids of transactions that this checkpoint and the newest one cover: all, or those with markers in the log."""


def purge(
    log: Log,
    checkpoint: PurgeBy,
    commits: Sequence[Decided],
    horizons: Horizons,
    *,
    needed: Collection[str],
    last_turn: int,
) -> list[list[Candidate]]:
    """The markers that are no longer needed, in steps. Each step must be deleted before the next one begins.

    Start markers come first, so that no listing shows a decided transaction as pending. `needed` are the transactions
    whose commit markers show that files are garbage that still exist: these stay. A commit marker whose start marker
    could not be deleted stays, too: `TableVacuum._purge` ensures that, by their common tid. `last_turn` is this table's
    last: it stays, since the next one has the number after it.
    """
    covered = checkpoint.covered
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
    recorded = min(checkpoint.number, max(log.purges, default=0))  # the last stays until a later one exists
    older = [
        Candidate.marker(entry, Reason.CHECKPOINT)
        for entries, before in (
            (log.checkpoints, checkpoint.number),
            (log.refusals, checkpoint.number),
            (log.purges, recorded),
        )
        for number, entry in sorted(entries.items())
        if number < before
    ]
    turns: list[Candidate] = []
    if last_turn and log.turns[last_turn].modified < horizons.purge:
        turns = [
            Candidate.marker(entry, Reason.TURN) for number, entry in sorted(log.turns.items()) if number < last_turn
        ]
    # Queues from before the directory was adopted, which only a vacuum of the directory scope would need. Younger ones
    # stay: they show that another tool's vacuum has run (`other_vacuum`).
    since = log.descriptor.modified if log.descriptor else horizons.purge
    old = (entry for entry in log.queues.values() if entry.modified <= since and entry.modified < horizons.purge)
    queues = [Candidate.marker(entry, Reason.QUEUED) for entry in old]
    return [starts, decisions, older + turns + queues]


def parts(log: Log, newest: Checkpoint, horizons: Horizons, *, taken: int = 0) -> list[Candidate]:
    """The useless parts of checkpoints. Those from before the data horizon are due, since no reader reads them.

    A part of a checkpoint that may still come is never due. `taken` is the number of a checkpoint that this vacuum has
    written, or in a dry run would have written: no other process can create a checkpoint with that number.
    """
    return [
        Candidate.marker(it.entry, Reason.PART)._replace(
            since=it.since, due=it.since < horizons.data and (it.number is None or it.number <= taken)
        )
        for it in useless_parts(log, newest)
    ]


def takes_number(log: Log, newest: Checkpoint, horizons: Horizons) -> bool:
    """Whether to write a checkpoint so that its number is taken.

    A writer has left old parts, and it may be alive. Once the number is taken, it can create no checkpoint that names
    them, and they can be deleted.
    """
    number = log.checkpoint_after(newest.number)
    return any(it.number and it.number <= number and it.since < horizons.data for it in useless_parts(log, newest))


def superseded(entries: Iterable[Entry]) -> list[Candidate]:
    """The objects of a publication that later ones, from before the data horizon, have made useless."""
    return [Candidate.marker(entry, Reason.PUBLISHED) for entry in entries]


def next_due(snapshot: Snapshot, horizons: Horizons, *, waiting: Iterable[datetime]) -> datetime | None:
    """The time until which a vacuum changes nothing, if one with these horizons changed nothing and nothing is written.

    `waiting`: since when objects outside of the log wait for the retention. The result may be too early. None if no
    object becomes old enough for anything. Covers each comparison of a time with a horizon in this module.
    """
    log, retention, metadata = snapshot.log, horizons.now - horizons.data, horizons.now - horizons.purge
    aborted = {it.tid for it in snapshot.transactions if it.marker.is_abort}
    aborts = (entry.modified for tid, entry in log.committed.items() if tid in aborted)
    from_log = (entry.modified for entry in (*log.started.values(), *log.parts.values()))
    times = chain(
        (entry.modified + metadata for entry in each_entry(log)),
        (since + retention for since in chain(from_log, waiting)),
        (since + ABORTS_KEPT for since in aborts),
    )
    return min((it for it in times if it >= horizons.now), default=None)


class NeededMarkers:
    """The transactions whose markers show that existing files are garbage.

    The checkpoint shows that, too, but DBIO's readers of an unpartitioned table read only markers.
    """

    def __init__(self) -> None:
        self._needed: set[str] = set()
        self._with_paths: set[str] = set()
        self._is_left_by_adoption = False

    def note(self, commits: Iterable[Decided], left: Iterable[Candidate]) -> None:
        """Records a share of the table: the garbage that is left in it, and all transactions with their paths in it."""
        paths = {it.path: it.tid for it in left if it.reason not in (Reason.UNTRACKED, Reason.FOREIGN)}
        self._needed.update(tid for tid in paths.values() if tid)
        for commit in commits:
            marker = commit.marker
            if marker.added or marker.removed:
                self._with_paths.add(commit.tid)
            if not paths.keys().isdisjoint(marker.removed):
                self._needed.add(commit.tid)
                self._is_left_by_adoption |= bool(marker.dbio_commit and marker.dbio_commit.operation == "adopt")

    def among(self, commits: Iterable[Decided]) -> set[str]:
        """The needed ones among all transactions. All shares of the table must have been recorded."""
        if not self._is_left_by_adoption:
            return self._needed
        # The adoption removed files that earlier commits had hidden. Which commit hid which file is not recorded.
        return self._needed | {it.tid for it in commits if it.tid not in self._with_paths}
