"""A compaction on the schedule: what is asked for, one table's, and what the service says of it.

How files are put together is in `dbio_commit.upkeep.compact`, which needs pyarrow and is imported only when it runs.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dbio_commit.table import Table
from dbio_commit.upkeep.compact.plan import TARGET_BYTES
from dbio_commit.upkeep.compact.report import STOPPED, CompactReport, LeftFiles
from dbio_commit.upkeep.figures import count_text, files_text

MIN_FILES = 2
"""Also where rows are ordered, so that no file that lies alone is written again each night."""

MOST_LEFT = 100
_MOST_REASON = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """As those of `Table.compact`."""

    target_size: int = TARGET_BYTES
    where: str | None = None
    sort_by: tuple[str, ...] = ()
    z_order: tuple[str, ...] = ()
    min_files: int = MIN_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Files that were to become one, and stay as they are."""

    first: str
    """Relative to the root of the table."""
    files: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSummary:
    """What the log and the metrics say of a compaction: of a bounded size, however large the table is."""

    dry_run: bool = False
    files: int = 0
    """That were put together; in a dry run, that would be."""
    size: int = 0
    new_files: int = 0
    new_size: int = 0
    commits: int = 0
    left: tuple[Left, ...] = ()
    left_files: int = 0
    stopped: bool = False
    """It was told to stop before it was done; the next run does the rest."""

    @classmethod
    def of(cls, report: CompactReport) -> "CompactionSummary":
        problems = [it for it in report.left if it.reason != STOPPED]
        return cls(
            dry_run=report.dry_run,
            files=report.files_before,
            size=report.bytes_before,
            new_files=report.files_after,
            new_size=report.bytes_after,
            commits=len(report.commits),
            left=tuple(map(_left, problems[:MOST_LEFT])),
            left_files=sum(len(it.paths) for it in report.left),
            stopped=len(problems) < len(report.left),
        )

    @property
    def text(self) -> str:
        """The same in words, on one line."""
        would = "would be " if self.dry_run else ""
        parts = [
            f"{files_text(self.files, self.size)}, {would}compacted into {count_text(self.new_files, 'file')}"
            if self.files
            else "nothing to compact",
            f"{count_text(self.left_files, 'file')} left" if self.left_files else "",
            "compaction stopped before the end" if self.stopped else "",
        ]
        return ", ".join(filter(None, parts))


def compact_table(
    table: Table, options: CompactOptions, *, dry_run: bool, stop: Callable[[], bool]
) -> CompactionSummary:
    """Puts the table's small files together. `stop` ends that after the files that are being written.

    Raises as `Table.compact`.
    """
    table.refuse_partition()
    from dbio_commit.upkeep.compact.run import compact, in_threads

    ordered = bool(options.sort_by or options.z_order)
    threads = {"at_once": 1} if ordered else {}  # a process has a bound on its memory, and all rows of a file are in it
    report = compact(
        table.store,
        table.clock,
        target_size=options.target_size,
        where=options.where,
        sort_by=options.sort_by,
        z_order=options.z_order,
        min_files=options.min_files,
        dry_run=dry_run,
        hands=in_threads(table.store, stop=stop, **threads),
        stop=stop,
    )
    return CompactionSummary.of(report)


def _left(it: LeftFiles) -> Left:
    return Left(first=it.paths[0], files=len(it.paths), reason=it.reason[:_MOST_REASON])
