"""Compacts a table before its vacuum, and makes a summary of the compaction for the log and the metrics.

The compaction itself is in `dbio_commit.maintenance.compact`, which is imported when it runs, since it needs pyarrow.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dbio_commit.base.figures import count_text
from dbio_commit.maintenance.compact.options import CompactOptions
from dbio_commit.maintenance.compact.report import STOPPED, CompactReport, LeftFiles
from dbio_commit.maintenance.figures import files_text
from dbio_commit.table import Table

MIN_FILES = 2
"""The default of `min_files`. With 1, a compaction that sorts rows would rewrite each single file each night."""

MOST_LEFT = 100
_MOST_REASON = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Files that were to become one file, but stay as they are."""

    first: str
    """Relative to the root of the table."""
    files: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSummary:
    """A compaction in short, for the log and the metrics. Its size is bounded, however large the table is."""

    dry_run: bool = False
    files: int = 0
    """The files that were compacted; in a dry run, those that would be."""
    size: int = 0
    new_files: int = 0
    new_size: int = 0
    commits: int = 0
    left: tuple[Left, ...] = ()
    left_files: int = 0
    stopped: bool = False
    """Whether it was stopped before it was done. The next run does the rest."""

    @classmethod
    def of(cls, report: CompactReport, *, clean: Callable[[str], str] = str) -> "CompactionSummary":
        """`clean` removes secrets from a message, before it is cut."""
        problems = [it for it in report.left if it.reason != STOPPED]
        return cls(
            dry_run=report.dry_run,
            files=report.files_before,
            size=report.bytes_before,
            new_files=report.files_after,
            new_size=report.bytes_after,
            commits=len(report.commits),
            left=tuple(_left(it, clean) for it in problems[:MOST_LEFT]),
            left_files=sum(len(it.paths) for it in report.left),
            stopped=len(problems) < len(report.left),
        )

    @property
    def text(self) -> str:
        """The summary in words, on one line."""
        would = "would be " if self.dry_run else ""
        parts = [
            f"{files_text(self.files, self.size)}, {would}compacted into {count_text(self.new_files, 'file')}"
            if self.files
            else "nothing to compact",
            f"{count_text(self.left_files, 'file')} left" if self.left_files else "",
            "compaction stopped before the end" if self.stopped else "",
        ]
        return ", ".join(filter(None, parts))


def compact_table(table: Table, options: CompactOptions, *, dry_run: bool, stop: Callable[[], bool]) -> CompactReport:
    """Compacts the table. Once `stop` returns true, ends after the files that are being written.

    Raises as `Table.compact`.
    """
    table.refuse_partition()
    from dbio_commit.maintenance.compact.run import compact, in_threads

    # The process has a bound on its memory, and sorting needs all rows of a new file in memory.
    rewriter = in_threads(table.store, stop=stop, sorts=1)
    return compact(table.store, table.clock, options, dry_run=dry_run, rewriter=rewriter, stop=stop)


def _left(it: LeftFiles, clean: Callable[[str], str]) -> Left:
    return Left(first=it.paths[0], files=len(it.paths), reason=clean(it.reason)[:_MOST_REASON])
