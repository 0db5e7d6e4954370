"""What a compaction did, or would do. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Files of one directory that became one."""

    directory: str
    """The directory of the partition, relative to the root."""
    files: int
    """The number of files before."""
    size: int
    """The bytes of the files before."""
    path: str | None
    """The path of the new file; None in a dry run."""
    new_size: int | None
    """The bytes of the new file; None in a dry run."""
    rows: int | None
    """The rows of the new file; None in a dry run."""


STOPPED = "the compaction was stopped"
"""A reason why files are left as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFiles:
    """Files of one directory that were to become one file, but stay as they are."""

    paths: Sequence[str]
    size: int
    """In bytes."""
    reason: str
    """Why, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """What a compaction did; in a dry run, what it would do."""

    url: str
    dry_run: bool
    compacted: Sequence[Compacted] = ()
    commits: Sequence[str] = ()
    """The tids of its commits."""
    left: Sequence[LeftFiles] = ()

    @property
    def files_before(self) -> int:
        """The number of files that were compacted."""
        return sum(it.files for it in self.compacted)

    @property
    def bytes_before(self) -> int:
        return sum(it.size for it in self.compacted)

    @property
    def files_after(self) -> int:
        """The number of new files."""
        return len(self.compacted)

    @property
    def bytes_after(self) -> int:
        """The bytes of the new files; in a dry run, an approximate upper bound."""
        return sum(it.size if it.new_size is None else it.new_size for it in self.compacted)
