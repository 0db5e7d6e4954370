"""The options of a vacuum, and the report of what it did. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from typing import ClassVar

from dbio_commit.base.arguments import check_flags, check_numbers
from dbio_commit.base.errors import RetentionError
from dbio_commit.base.progress import Progress, silent
from dbio_commit.base.shown import Shown
from dbio_commit.maintenance.report.health import Amount, TableHealth, Vacuumed
from dbio_commit.maintenance.vacuum.idle import Idle, LastLook
from dbio_commit.protocol.checkpoint import HISTORY
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Format

LEAST_RETENTION_HOURS = 1.0
MOST_HOURS = 876_000
"""A hundred years."""

HISTORY_DAYS = HISTORY / timedelta(days=1)
"""How long abort markers and the history in checkpoints are kept, in days. No transaction lives longer than 7 days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumOptions:
    """The options of a vacuum: what it keeps, and for how long."""

    retention_hours: float = 48.0
    """How long the files that a commit removed stay for readers, and how long a transaction may be pending."""
    force: bool = False
    """Allows a retention below an hour, which can break readers and writers that are at work."""
    untracked: bool = False
    """Whether to delete files, older than the retention, that no transaction wrote and no commit names."""
    checkpoint_after: int = 20
    """After so many commits the next checkpoint is due; 0 writes one if there is any commit."""
    history_days: float = HISTORY_DAYS
    """For how many days the history remembers commits of which no file is left."""

    def check(self) -> None:
        """Raises RetentionError for options that could delete files that are still needed, InvalidInputError for values
        of other types."""
        check_flags(force=self.force, untracked=self.untracked)
        check_numbers(
            retention_hours=self.retention_hours,
            history_days=self.history_days,
            checkpoint_after=self.checkpoint_after,
        )
        if not 0 <= self.retention_hours <= MOST_HOURS:
            raise RetentionError(
                f"a retention of {self.retention_hours:g} h is not possible; give from 1 to {MOST_HOURS:,}, such as 48"
            )
        if self.retention_hours < LEAST_RETENTION_HOURS and not self.force:
            raise RetentionError(
                f"a retention of {self.retention_hours:g} h deletes what readers and writers of this hour still need; "
                "give at least 1 h, or pass force=True (--force) while no reader and no writer is at work"
            )
        if not HISTORY_DAYS <= self.history_days <= MOST_HOURS / 24:
            raise RetentionError(
                f"history_days={self.history_days:g} would forget transactions that a late writer must still find, or "
                f"is not possible; give from {HISTORY_DAYS:g} to {MOST_HOURS / 24:,.0f}"
            )
        if self.checkpoint_after < 0:
            raise RetentionError(f"checkpoint_after={self.checkpoint_after} is no number of commits; give 0 or more")


_STAYS = (Reason.UNTRACKED, Reason.NOT_DATA, Reason.FOREIGN)
"""The reasons of objects that are never deleted, or only if the options say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """An object that was deleted; in a dry run, that would be. An emptied directory has no size."""

    path: str
    """Relative to the root of the table."""
    size: int
    """In bytes."""
    age: timedelta
    """How long it has been useless, by the store's clock; if that is not known, how old it is."""
    reason: Reason
    """Why it is garbage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that could not be done. The next vacuum tries again."""

    path: str
    """Relative to the root of the table; "" if the rest of the vacuum failed."""
    message: str
    """The error, in words."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VacuumReport(Shown):
    """What a vacuum did, or in a dry run would do. Paths are relative to the root of the table."""

    _first: ClassVar = ("ok", "oldest_garbage")

    url: str
    """The root of the table."""
    scope: Scope
    """`table`, or `directory` for a directory without a descriptor."""
    dry_run: bool
    """Whether nothing was changed."""
    retention_hours: float
    """The retention that it used, in hours."""
    deleted: Sequence[Deletion] = ()
    """The objects that were deleted."""
    failed: Sequence[Failure] = ()
    """What could not be done."""
    aborted: Sequence[str] = ()
    """The tids of pending transactions that it aborted, because they were too old."""
    postponed: Sequence[str] = ()
    """The tids of old transactions that were too many for one run: the next run aborts them."""
    checkpoint: str | None = None
    """The name of the checkpoint that was written; None if none was due."""
    queued: Sequence[str] = ()
    """In the directory scope: the markers that the next vacuum may delete."""
    kept: Sequence[Deletion] = ()
    """Garbage that stays: not old enough, or of a kind that is deleted never or only on request."""
    undeleted: Sequence[Deletion] = ()
    """Garbage that was due, and could not be deleted: `failed` has the reasons."""
    stopped: bool = False
    """Whether it was asked to stop before it was done; the next vacuum does the rest."""
    warnings: Sequence[str] = ()
    """Sentences about things that are no failures, and that somebody should know."""
    keeps_versions: bool = False
    """Whether the store keeps versions of what was deleted: then this freed nothing by itself."""
    behind: Mapping[Format, str] = field(default_factory=dict)
    """The formats in which the table could not be published, and why. Empty in a dry run, which publishes nothing."""

    @property
    def ok(self) -> bool:
        """Whether everything that was to be done was done."""
        return not self.failed

    @property
    def oldest_garbage(self) -> timedelta | None:
        """The age of the oldest garbage that is left and will be deleted; None if there is none."""
        return garbage_left(self).oldest


def found_nothing(report: VacuumReport) -> bool:
    """Whether the vacuum had nothing to do, and nothing to say."""
    done = (report.deleted, report.failed, report.aborted, report.postponed, report.checkpoint, report.queued)
    return not any((*done, report.undeleted, report.stopped, report.warnings, report.behind))


def garbage_left(report: VacuumReport) -> Amount:
    """The garbage that is left and will be deleted: mostly files that wait for the end of the retention."""
    left = chain(report.undeleted, (it for it in report.kept if it.reason not in _STAYS))
    objects, size, oldest = 0, 0, timedelta.min
    for it in left:
        objects, size, oldest = objects + 1, size + it.size, max(oldest, it.age)
    return Amount(objects=objects, size=size, oldest=oldest if objects else None)


def in_short(report: VacuumReport) -> Vacuumed:
    """The report as the page about the table shows it."""
    return Vacuumed(
        retention_hours=report.retention_hours,
        dry_run=report.dry_run,
        freed=by_reason(report.deleted),
        kept=by_reason(report.kept),
        left=garbage_left(report),
        aborted=len(report.aborted),
        failed=len(report.failed),
    )


def by_reason(deletions: Iterable[Deletion]) -> dict[Reason, Amount]:
    """How many there are for each reason, sorted by its text."""
    found: dict[Reason, Amount] = {}
    for it in deletions:
        so_far = found.get(it.reason, Amount(oldest=it.age))
        found[it.reason] = Amount(
            objects=so_far.objects + 1, size=so_far.size + it.size, oldest=max(so_far.oldest or it.age, it.age)
        )
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectTotal:
    """How many objects, and their size in bytes."""

    objects: int = 0
    size: int = 0


MOST_FAILURES = 100
"""How many failures a summary names. The others are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run as the log and the metrics report it: bounded in size, however large the table is."""

    dry_run: bool = False
    deleted: Mapping[Reason, ObjectTotal] = field(default_factory=dict)
    """In a dry run, what would be deleted."""
    failures: tuple[Failure, ...] = ()
    failed: int = 0
    """How many failures there were."""
    aborted: int = 0
    postponed: int = 0
    checkpoint: str | None = None
    queued: int = 0
    kept: int = 0
    left: ObjectTotal = ObjectTotal()
    """The garbage that is left and will be deleted."""
    oldest_garbage_s: float | None = None
    """As `VacuumReport.oldest_garbage`."""
    stopped: bool = False
    warnings: tuple[str, ...] = ()
    health: TableHealth | None = None
    """The health of the table after the run. None if it was not computed."""
    last_look: LastLook | None = None
    """If the run found nothing to do: what must stay the same for the next run to be left out."""

    @classmethod
    def of(cls, report: VacuumReport, *, clean: Callable[[str], str] = str) -> "RunSummary":
        """`clean` removes secrets from a message, before it is cut."""
        objects, sizes = Counter[Reason](), Counter[Reason]()
        for it in report.deleted:
            objects[it.reason] += 1
            sizes[it.reason] += it.size
        left, others = garbage_left(report), len(report.warnings) - MOST_WARNINGS
        return cls(
            dry_run=report.dry_run,
            deleted={reason: ObjectTotal(objects=objects[reason], size=sizes[reason]) for reason in sorted(objects)},
            failures=tuple(
                Failure(path=it.path, message=clean(it.message)[:MOST_MESSAGE]) for it in report.failed[:MOST_FAILURES]
            ),
            failed=len(report.failed),
            aborted=len(report.aborted),
            postponed=len(report.postponed),
            checkpoint=report.checkpoint,
            queued=len(report.queued),
            kept=len(report.kept),
            left=ObjectTotal(objects=left.objects, size=left.size),
            oldest_garbage_s=None if left.oldest is None else left.oldest.total_seconds(),
            stopped=report.stopped,
            warnings=(*report.warnings[:MOST_WARNINGS], *([_more(others)] if others > 0 else [])),
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
"""The most characters of a failure's message in a summary."""

MOST_WARNINGS = 100
"""How many warnings a summary has. The others are only counted."""


def _more(others: int) -> str:
    return f"there are {others:,} more warnings; `dbio vacuum --dry-run` shows all"


def _never() -> bool:
    return False


def _ignore(idle: Idle) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """How a caller follows a vacuum, and stops it."""

    progress: Progress = field(default=silent)
    """Is called as the type `Progress` says."""
    stop: Callable[[], bool] = field(default=_never)
    """Is asked between batches; True ends the vacuum in good order."""
    idle: Callable[[Idle], None] = field(default=_ignore)
    """Is called at the end if the vacuum of a table changed nothing, failed in nothing, and has no warning."""
