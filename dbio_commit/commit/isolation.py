"""Whether what others committed since a rewrite read the table could have changed what it does (PROTOCOL.md 9.9).

A rewrite that finds a file gone which it would remove fails anyway. This is about files that came.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.base.options import Isolation
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.state import DataFile


def check_isolation(isolation: str) -> None:
    """Raises InvalidInputError."""
    if isolation not in get_args(Isolation):
        raise InvalidInputError(f"isolation {isolation!r:.100} is none of {', '.join(get_args(Isolation))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a rewrite depends on, for `Transaction.goes_by`."""

    tids: frozenset[str]
    """The tids of the commits that it has seen."""
    may_match: Callable[[Snapshot], Sequence[DataFile]]
    """Returns the files of a snapshot that may hold rows which it would have changed, or on which it depends."""
    isolation: Isolation
    """What it does about rows that others append meanwhile."""

    def __post_init__(self) -> None:
        check_isolation(self.isolation)


def refuse_news(table: Snapshot, read: Read, *, tid: str) -> None:
    """Of the table as it stands when the rewrite `tid` is decided.

    Raises CommitConflictError where rows came since which would have made a difference.
    """
    news = _bring_news(table.decided, read)
    came = [file for file in table.files if file.tid in news] if news else []
    if matching := read.may_match(replace(table, files=came)) if came else ():
        raise CommitConflictError(
            f"{len(matching)} files were committed to {table.url} since transaction {tid} read it, whose rows it might "
            f"have changed, first {matching[0].path}; nothing was committed: do it again, or let `retries=` do so"
        )


def _bring_news(decided: Sequence[Decided], read: Read) -> set[str]:
    """Of commits, oldest first: those that came since and have rows of which the rewrite should have known."""
    found = set[str]()
    for commit in decided:
        if commit.tid in read.tids or commit.marker.is_abort:
            continue
        if not commit.marker.is_data_change:  # its rows are those of others
            # What it is known no longer to have removed may have been of any of them.
            is_news = bool(found and commit.forgotten.removed)
            is_news |= any(_writer_of(path) in found for path in commit.marker.removed)
        else:
            is_news = read.isolation == "serializable" or not _is_blind(commit)
        if is_news:
            found.add(commit.tid)
    return found


def _is_blind(commit: Decided) -> bool:
    info = commit.marker.dbio_commit
    return info.operation == "append" if info else not (commit.marker.removed or commit.forgotten.removed)


def _writer_of(path: str) -> str | None:
    return names.parse_data_file(names.split(path)[1])
