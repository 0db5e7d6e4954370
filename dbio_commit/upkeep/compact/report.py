"""What a compaction did, or would do. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Files of one directory that became one."""

    directory: str
    """Of their partition, relative to the root."""
    files: int
    size: int
    """Of the files before, in bytes."""
    path: str | None
    """Of the file that they became; None in a dry run."""
    new_size: int | None
    rows: int | None


STOPPED = "the compaction was told to stop"
"""A reason why files are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFiles:
    """Files of one directory that were to become one, and stay as they are."""

    paths: Sequence[str]
    size: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """What a compaction did; in a dry run, what it would do."""

    url: str
    dry_run: bool
    compacted: Sequence[Compacted] = ()
    commits: Sequence[str] = ()
    """Their tids."""
    left: Sequence[LeftFiles] = ()

    @property
    def files_before(self) -> int:
        """How many files were compacted."""
        return sum(it.files for it in self.compacted)

    @property
    def bytes_before(self) -> int:
        return sum(it.size for it in self.compacted)

    @property
    def files_after(self) -> int:
        """How many took their place."""
        return len(self.compacted)

    @property
    def bytes_after(self) -> int:
        """In a dry run, at most about so many."""
        return sum(it.size if it.new_size is None else it.new_size for it in self.compacted)
