"""The report of a compaction: what it did, or would do. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dbio_commit.base.shown import Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Files of one directory that became one file, or several of a table with `cluster_by`."""

    directory: str
    """The directory of their partition, relative to the root."""
    files: int
    """How many files there were before."""
    size: int
    """The size of these files, in bytes."""
    path: str | None
    """The path of the new file, or of the first of several; None in a dry run."""
    new_size: int | None
    """The size of the new files, in bytes; None in a dry run."""
    rows: int | None
    """How many rows they have; None in a dry run."""
    new_files: int = 1
    """How many new files there are; in a dry run, about how many there would be."""


STOPPED = "the compaction was stopped"
"""A reason why files are left as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFiles:
    """Files of one directory that were to be rewritten together, and stay as they are."""

    paths: Sequence[str]
    """Their paths, relative to the root."""
    size: int
    """Their size, in bytes."""
    reason: str
    """Why they stay, in words."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompactReport(Shown):
    """What a compaction did; in a dry run, what it would do."""

    _first: ClassVar = ("files_before", "bytes_before", "files_after", "bytes_after")

    url: str
    """The root of the table."""
    dry_run: bool
    """Whether nothing was changed."""
    compacted: Sequence[Compacted] = ()
    """The new files, with what they replace."""
    commits: Sequence[str] = ()
    """The tids of its commits."""
    left: Sequence[LeftFiles] = ()
    """Files that stay as they are."""
    other_types: int | None = None
    """How many files had columns of other types, or other spellings, than the table; None without `rewrite_types`.
    Those of them that could not be rewritten are in `left`."""

    cluster_by: Sequence[str] = ()
    """The columns by which the table is clustered; none if it is not."""

    @property
    def files_before(self) -> int:
        """The number of files that were compacted."""
        return sum(it.files for it in self.compacted)

    @property
    def bytes_before(self) -> int:
        """The size of these files, in bytes."""
        return sum(it.size for it in self.compacted)

    @property
    def files_after(self) -> int:
        """How many files replace them."""
        return sum(it.new_files for it in self.compacted)

    @property
    def bytes_after(self) -> int:
        """The size of the new files, in bytes; in a dry run, at most about this."""
        return sum(it.size if it.new_size is None else it.new_size for it in self.compacted)
