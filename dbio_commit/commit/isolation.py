"""Refuses a rewrite if other commits, made after it read the table, could have changed its result (PROTOCOL.md 9.9).

This module is about files that were added since. If a file that the rewrite removes is gone, the rewrite fails anyway.
News are commits with rows that the rewrite should have seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.base.options import Isolation
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.state import DataFile, FilesInParts, live_files


def check_isolation(isolation: str) -> None:
    """Raises InvalidInputError if this is no isolation level."""
    if isolation not in get_args(Isolation):
        raise InvalidInputError(f"isolation {isolation!r:.100} is none of {', '.join(get_args(Isolation))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a rewrite depends on, for `Transaction.goes_by`."""

    tids: frozenset[str]
    """The tids of the commits that the rewrite has seen."""
    may_match: Callable[[Snapshot], Sequence[DataFile]]
    """Returns the files of a snapshot that may hold rows which the rewrite would have changed, or on which it
    depends."""
    isolation: Isolation
    """What the rewrite does about rows that others append meanwhile."""
    check: Callable[[Snapshot], None] = lambda table: None
    """Raises CommitConflictError if the table in the rewrite's turn has changed otherwise than the rewrite allows."""

    def __post_init__(self) -> None:
        check_isolation(self.isolation)


def last_erasure_of(table: Snapshot) -> str:
    """The id of the table's last erasure; "" for none. `table` is its current state."""
    return table.checkpoint.last_erasure or ""


def refuse_erased(last_erasure: str, *, since: str, where: str, then: str) -> None:
    """Raises CommitConflictError if `last_erasure` of a table differs from `since`, the one of an earlier state.

    So copies of files of that state bring no erased rows back. `where` is the table, and `then` is the end of the
    message.
    """
    if last_erasure != since:
        raise CommitConflictError(
            f"rows of {where} were erased (`dbio erase`) since its files were read, and some of these may have "
            f"held such rows; {then}"
        )


def refuse_news(table: Snapshot, read: Read, *, tid: str) -> None:
    """Raises CommitConflictError if rows came that the rewrite `tid` has not read, and might have changed or used.

    `table` is the table in the rewrite's turn.
    """
    read.check(table)
    unseen = _with_paths(table, [it for it in table.transactions if it.tid not in read.tids and not it.marker.is_abort])
    news = _bring_news(unseen, read)
    came = _live_of(table, [commit for commit in unseen if commit.tid in news])
    if matching := read.may_match(came) if came.files else ():
        raise CommitConflictError(
            f"{len(matching)} files, first {matching[0].path}, were committed to {table.url} after transaction {tid} "
            "had read it, and the transaction might have changed their rows; nothing was committed: repeat it, or set "
            "`retries=`"
        )


def _with_paths(table: Snapshot, commits: Sequence[Decided]) -> list[Decided]:
    """The commits with the paths that are needed here. A commit that changes rows may still name transactions that it
    removes."""
    known = {commit.tid for commit in table.news if commit.marker.is_data_change}
    whole = {commit.tid: commit for commit in table.whole([it.tid for it in commits if it.tid not in known])}
    return [whole.get(commit.tid, commit) for commit in commits]


def _live_of(table: Snapshot, commits: Sequence[Decided]) -> Snapshot:
    """The table with only the live files that these commits added. Of a large table, reads only what may have them."""
    if not isinstance(table.files, FilesInParts):
        tids = {commit.tid for commit in commits}
        return replace(table, files=[file for file in table.files if file.tid in tids] if tids else [])
    live = table.files.find({path for commit in commits for path in commit.marker.data_files})
    files = [file for file in live_files(commits) if file.path in live]
    return replace(table, files=files, decided=commits)


def _bring_news(commits: Sequence[Decided], read: Read) -> set[str]:
    """The tids of the news among `commits`, which came after the rewrite's read, and are sorted, oldest first."""
    found = set[str]()
    for commit in commits:
        if not commit.marker.is_data_change:  # such as a compaction: its rows come from the files that it removed
            # Removals that are no longer recorded may have been of any of these commits.
            is_news = bool(found and commit.forgotten.removed)
            is_news |= any(_writer_of(path) in found for path in commit.marker.removed)
        else:
            is_news = read.isolation == "serializable" or not is_blind(commit)
        if is_news:
            found.add(commit.tid)
    return found


def is_blind(commit: Decided) -> bool:
    """Whether the commit only appends rows, whatever the table holds."""
    info = commit.marker.dbio_commit
    return info.operation == "append" if info else not (commit.marker.removed or commit.forgotten.removed)


def _writer_of(path: str) -> str | None:
    return names.parse_data_file(names.split(path)[1])
