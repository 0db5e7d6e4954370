"""Decides why an object is garbage: the only such rule for data files, in both scopes, and for parts of checkpoints."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Self

from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.settings import Layout


class Reason(StrEnum):
    """Why vacuum deletes an object, or keeps it as garbage: the first eight are about data files."""

    REMOVED = "removed by a commit"
    FAILED_ATTEMPT = "left by a failed task attempt"
    ABORTED = "its transaction was aborted"
    PENDING = "its transaction is pending"
    UNKNOWN = "its transaction left no marker"
    UNTRACKED = "no transaction wrote it"
    NOT_DATA = "removed by a commit, but neither Parquet nor written by a transaction"
    FOREIGN = "written by another tool's transaction in its directory"
    CHECKSUM = "checksum of a file that is gone"
    START_MARKER = "start marker of a decided transaction"
    COMMIT_MARKER = "commit marker, covered by a checkpoint"
    ABORT_MARKER = "abort marker of a transaction that cannot come back"
    EMPTY_MARKER = "commit marker without content"
    QUEUED = "marker that an earlier vacuum queued"
    CHECKPOINT = "older than the newest checkpoint"
    PART = "part that no checkpoint needs"
    TURN = "turn before the last one"
    PUBLISHED = "of a publication, which later ones made useless"
    CLOCK = "left by a vacuum that asked for the time"
    UPLOAD = "upload that nobody finished"
    DIRECTORY = "emptied directory"


OF_FILES = tuple(Reason)[:8]
"""The reasons why a data file is not live."""


class Why(NamedTuple):
    """Why a data file is not live."""

    reason: Reason
    since: datetime
    """When it became garbage, if that is known; otherwise when it was written."""
    tid: str | None
    """The tid of the transaction that wrote it."""


@dataclass(frozen=True, slots=True)
class FileStates:
    """What is known of the files of a table, or of a directory in the directory scope. Paths are from the root."""

    live: Set[str]
    removed: Mapping[str, datetime]
    """Path -> when the first commit that removed it was made."""
    committed: Set[str]
    aborted: Set[str]
    pending: Mapping[str, datetime]
    """Tid -> when it began: of pending transactions, of those decided too late to count here, and of those of another
    table."""
    layouts: Set[Layout] | None = None
    """The partition columns by which the table's transactions write, or wrote; None if they may write into any
    directory."""

    @classmethod
    def of(
        cls,
        commits: Iterable[Decided],
        *,
        live: Set[str],
        log: Log,
        assume_aborted: Iterable[str] = (),
        layouts: Set[Layout] | None = None,
    ) -> Self:
        """`assume_aborted` has pending transactions to be treated as if they had been aborted."""
        commits = list(commits)
        # Files of later commits are not garbage of this state, and neither are files of commits to another table.
        begun = {**log.later, **log.committed, **log.started}
        aborted = {commit.tid for commit in commits if commit.marker.is_abort} | set(assume_aborted)
        committed = {commit.tid for commit in commits} - aborted
        return cls(
            live=live,
            removed=removed_files(commits),
            committed=committed,
            aborted=aborted,
            pending={tid: begun[tid].modified for tid in begun.keys() - committed - aborted},
            layouts=layouts,
        )

    def why_not_live(self, entry: Entry, others: Collection[tuple[str, str]] = ()) -> Why | None:
        """Why the file is not live; None if it is. `others` is the result of `find_markers_below` for the entries of a
        table."""
        path = entry.path
        if path in self.live:
            return None
        directory, name = names.split(path)
        tid = names.parse_data_file(name)
        if (at := self.removed.get(path)) is not None:
            return Why(Reason.REMOVED if names.counts_as_data(name) else Reason.NOT_DATA, at, tid)
        if (directory, tid) in others:
            return Why(Reason.FOREIGN, entry.modified, tid)
        if tid is None or not self.is_partition(directory, tid):
            return Why(Reason.UNTRACKED, entry.modified, tid)
        if tid in self.aborted:
            return Why(Reason.ABORTED, entry.modified, tid)
        if tid in self.committed:
            return Why(Reason.FAILED_ATTEMPT, entry.modified, tid)
        if tid in self.pending:
            return Why(Reason.PENDING, self.pending[tid], tid)
        return Why(Reason.UNKNOWN, entry.modified, tid)

    def is_partition(self, directory: str, tid: str | None = None) -> bool:
        """Whether transactions of the table write into this directory, or the transaction `tid` may have.

        A file with a tid in another directory is a copy, and no garbage. A pending or aborted transaction may have
        meant to change the partition columns, and its new ones are not known. So for its tid any partition counts.
        """
        if self.layouts is None:
            return True
        depth, columns = directory.count("/") + 1 if directory else 0, tuple(names.parse_partition(directory))
        is_known = columns in self.layouts or tid in self.aborted or tid in self.pending
        return depth == len(columns) and is_known


def removed_files(commits: Iterable[Decided]) -> dict[str, datetime]:
    """Path -> when it was first removed."""
    removed: dict[str, datetime] = {}
    for commit in commits:
        for path in commit.marker.removed:
            removed[path] = min(commit.modified, removed.get(path, commit.modified))
    return removed


def find_markers_below(entries: Iterable[Entry]) -> set[tuple[str, str]]:
    """The (directory, tid) of each marker below a table's root. Another tool writes there by the rules of the directory
    scope."""
    found: set[tuple[str, str]] = set()
    for entry in entries:
        directory, name = names.split(entry.path)
        marker = names.parse_log_name(name) if directory else None
        if marker and marker.kind in (Kind.STARTED, Kind.COMMITTED):
            found.add((directory, marker.id))
    return found


def is_foreign(path: str) -> bool:
    """Whether the file is not hidden and, by its name, not data: only its owner may remove it."""
    return names.is_data_file(path) and not names.counts_as_data(names.split(path)[1])


class UselessPart(NamedTuple):
    """A part of a checkpoint that neither the table's newest checkpoint nor an older one needs."""

    entry: Entry
    since: datetime
    """When it became useless, if a checkpoint records that; otherwise when it was written."""
    number: int | None = None
    """The number of the checkpoint that may still come and name it; None if none will come."""


def useless_parts(log: Log, newest: Checkpoint) -> Iterator[UselessPart]:
    """The parts in the listing that are useless by the table's newest checkpoint (PROTOCOL.md 10.5).

    The parts must have been listed before the checkpoints: then the newest checkpoint names all listed parts that it
    needs.
    """
    needed = {name for part in newest.parts for name in part.objects}
    dropped = {name: it for it in newest.dropped for name in it.part.objects}
    for name, entry in sorted(log.parts.items()):
        number = names.part_number(name)
        if name in needed or number is None:
            continue
        if (drop := dropped.get(name)) is not None:
            if not any(older < drop.by for older in log.checkpoints):  # each of these checkpoints may name it
                yield UselessPart(entry, drop.at or _time_of(newest, log))
        elif number <= newest.number:
            yield UselessPart(entry, entry.modified)
        else:
            yield UselessPart(entry, entry.modified, number)


def _time_of(checkpoint: Checkpoint, log: Log) -> datetime:
    return log.checkpoints[checkpoint.number].modified
