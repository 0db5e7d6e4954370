"""The options of a vacuum, and the report of what it did. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from dbio_commit.base.errors import RetentionError
from dbio_commit.protocol.checkpoint import HISTORY
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.scope import Scope
from dbio_commit.upkeep.report.health import Amount, TableHealth, Vacuumed

LEAST_RETENTION_HOURS = 1.0
MOST_HOURS = 876_000
"""A hundred years."""

HISTORY_DAYS = HISTORY / timedelta(days=1)
"""How long abort markers and the history in checkpoints are kept, in days. No transaction lives longer than 7 days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumOptions:
    """What to keep, and for how long."""

    retention_hours: float = 48.0
    """How long removed files stay for readers, and after which time a pending transaction is aborted."""
    force: bool = False
    """Allows a retention below an hour, which can break readers and writers that are at work."""
    untracked: bool = False
    """Also deletes files, older than the retention, that no transaction wrote and no commit names (table scope)."""
    checkpoint_after: int = 20
    """After how many commits the next checkpoint is due. 0 writes one if there is any new commit."""
    history_days: float = HISTORY_DAYS
    """How long the history keeps commits of which no file is left, in days."""

    def check(self) -> None:
        """Raises RetentionError for options that could delete what is still needed."""
        if not 0 <= self.retention_hours <= MOST_HOURS:
            raise RetentionError(
                f"a retention of {self.retention_hours:g} h is not possible; give 48, and from 1 to {MOST_HOURS:,}"
            )
        if self.retention_hours < LEAST_RETENTION_HOURS and not self.force:
            raise RetentionError(
                f"a retention of {self.retention_hours:g} h deletes what readers and writers of this hour still need; "
                "give at least 1 h, or force it when nobody is at work"
            )
        if not HISTORY_DAYS <= self.history_days <= MOST_HOURS / 24:
            raise RetentionError(
                f"history_days={self.history_days:g} would forget transactions that a late writer must still find, or "
                f"is not possible; give from {HISTORY_DAYS:g} to {MOST_HOURS / 24:,.0f}"
            )
        if self.checkpoint_after < 0:
            raise RetentionError(f"checkpoint_after={self.checkpoint_after} is no number of commits; give 0 or more")


_STAYS = (Reason.UNTRACKED, Reason.NOT_DATA, Reason.FOREIGN)
"""Never deleted, or only if the options say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """An object that was deleted, or in a dry run would be. The size is in bytes, and 0 for an emptied directory."""

    path: str
    """Relative to the root of the table."""
    size: int
    age: timedelta
    """Since it became useless if that is known, else since it was written. By the store's clock."""
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that could not be done. The next vacuum tries again."""

    path: str
    """Relative to the root of the table. "" if the rest of the vacuum failed."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """What a vacuum did, or in a dry run would do. Paths are relative to the root of the table."""

    url: str
    scope: Scope
    dry_run: bool
    retention_hours: float
    deleted: Sequence[Deletion] = ()
    failed: Sequence[Failure] = ()
    aborted: Sequence[str] = ()
    """The tids of the pending transactions that it aborted."""
    postponed: Sequence[str] = ()
    """The tids of the timed-out transactions that were too many for one run. The next run continues with them."""
    checkpoint: str | None = None
    """The checkpoint that was written."""
    queued: Sequence[str] = ()
    """In the directory scope: the markers that the next vacuum may delete."""
    kept: Sequence[Deletion] = ()
    """Garbage that is not old enough, or never deleted: other tools' files, and untracked ones without `untracked`."""
    undeleted: Sequence[Deletion] = ()
    """Garbage that was due and could not be deleted. `failed` has the reasons."""
    stopped: bool = False
    """Whether the caller stopped it before the end. The next vacuum does the rest."""
    warnings: Sequence[str] = ()
    """Messages about what is not a failure, but should be known."""
    keeps_versions: bool = False
    """Something was deleted, and the store keeps versions, so that the deletion alone freed no space."""

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def oldest_garbage(self) -> timedelta | None:
        """The age of the oldest garbage that is left and will be deleted. None if there is none."""
        left = (*self.undeleted, *(it for it in self.kept if it.reason not in _STAYS))
        return max((it.age for it in left), default=None)


def in_short(report: VacuumReport) -> Vacuumed:
    """The report as the page about the table shows it."""
    return Vacuumed(
        retention_hours=report.retention_hours,
        dry_run=report.dry_run,
        freed=_by_reason(report.deleted),
        kept=_by_reason(report.kept),
        aborted=len(report.aborted),
        failed=len(report.failed),
    )


def _by_reason(deletions: Iterable[Deletion]) -> dict[Reason, Amount]:
    found: dict[Reason, list[Deletion]] = {}
    for it in deletions:
        found.setdefault(it.reason, []).append(it)
    return {
        reason: Amount(objects=len(its), size=sum(it.size for it in its), oldest=max(it.age for it in its))
        for reason, its in sorted(found.items())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """How many objects, and their size in bytes."""

    objects: int = 0
    size: int = 0


MOST_FAILURES = 100
"""How many failures a summary names. The others are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run as the log and the metrics report it: bounded in size, however large the table is."""

    dry_run: bool = False
    deleted: Mapping[Reason, Total] = field(default_factory=dict)
    """In a dry run, what would be deleted."""
    failures: tuple[Failure, ...] = ()
    failed: int = 0
    """How many failures there were."""
    aborted: int = 0
    postponed: int = 0
    checkpoint: str | None = None
    queued: int = 0
    kept: int = 0
    oldest_garbage_s: float | None = None
    """As `VacuumReport.oldest_garbage`."""
    stopped: bool = False
    warnings: tuple[str, ...] = ()
    health: TableHealth | None = None
    """The health of the table after the run. None if it was not computed."""

    @classmethod
    def of(cls, report: VacuumReport) -> "RunSummary":
        objects, sizes = Counter[Reason](), Counter[Reason]()
        for it in report.deleted:
            objects[it.reason] += 1
            sizes[it.reason] += it.size
        oldest = report.oldest_garbage
        return cls(
            dry_run=report.dry_run,
            deleted={reason: Total(objects=objects[reason], size=sizes[reason]) for reason in sorted(objects)},
            failures=tuple(
                Failure(path=it.path, message=it.message[:MOST_MESSAGE]) for it in report.failed[:MOST_FAILURES]
            ),
            failed=len(report.failed),
            aborted=len(report.aborted),
            postponed=len(report.postponed),
            checkpoint=report.checkpoint,
            queued=len(report.queued),
            kept=len(report.kept),
            oldest_garbage_s=None if oldest is None else oldest.total_seconds(),
            stopped=report.stopped,
            warnings=tuple(report.warnings),
        )

    @property
    def text(self) -> str:
        """The summary as a text of one line."""
        would = "would be " if self.dry_run else ""
        objects = sum(total.objects for total in self.deleted.values())
        size = sum(total.size for total in self.deleted.values())
        parts = [
            f"{objects:,} {'object' if objects == 1 else 'objects'} {would}deleted, {size:,} bytes",
            f"{self.failed:,} could not be deleted" if self.failed else "",
            f"{self.aborted:,} {'transaction' if self.aborted == 1 else 'transactions'} {would}aborted"
            if self.aborted
            else "",
            f"{self.checkpoint} {would}written" if self.checkpoint else "",
            f"{self.queued:,} markers {would}queued" if self.queued else "",
            f"{self.kept:,} kept" if self.kept else "",
            "stopped before the end" if self.stopped else "",
        ]
        start = "dry run, nothing was changed: " if self.dry_run else ""
        return start + "; ".join(filter(None, parts))


MOST_MESSAGE = 2000
"""Characters."""


Progress = Callable[[str, int, int | None], None]
"""Called with the current step ("aborting", "listing", "deleting"), how much is done, and how much there is, if
known.
"""


def _silent(phase: str, done: int, total: int | None) -> None:
    pass


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """How the caller follows a vacuum, and stops it."""

    progress: Progress = field(default=_silent)
    stop: Callable[[], bool] = field(default=_never)
    """Called between batches. If it returns True, the vacuum ends after the current batch, in good order."""
