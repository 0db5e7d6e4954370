"""The report of an erasure: what it did, and what it could not reach. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dbio_commit.base.shown import Shown
from dbio_commit.maintenance.vacuum.report import Deletion, Failure
from dbio_commit.protocol.settings import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A transaction that began before the rows were deleted and is not decided: its files may hold such rows."""

    tid: str
    """Its tid."""
    since: datetime
    """When it began."""
    until: datetime
    """When a vacuum with the default retention aborts it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EraseReport(Shown):
    """What `Table.erase` did, or in a dry run would do. Paths are relative to the root of the table."""

    url: str
    """The root of the table."""
    where: str
    """The condition."""
    dry_run: bool
    """Whether nothing was changed."""
    tid: str | None = None
    """The commit that deleted the rows; None if no live file had any."""
    rows: int | None = None
    """How many rows it deleted; None if the writer of a file did not record it."""
    files: int = 0
    """How many live files the commit removed. In a dry run: how many live files may hold such rows."""
    deleted: Sequence[Deletion] = ()
    """The objects that were deleted: files with rows, change files, markers, checkpoints with parts, publications."""
    failed: Sequence[Failure] = ()
    """What could not be done. Another `erase` tries it again."""
    pending: Sequence[Pending] = ()
    """Transactions that may still hold such rows. Run `erase` again after they have ended."""
    published: Sequence[Format] = ()
    """The formats in which the table was published anew."""
    remains: Sequence[str] = ()
    """What may still have the values, in sentences: what an erasure cannot reach."""

    @property
    def ok(self) -> bool:
        """Whether no value of the rows is left below the root, except what `remains` names."""
        return not self.failed and not self.pending
