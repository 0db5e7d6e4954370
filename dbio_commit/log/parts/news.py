"""Finds the rows that a checkpoint adds to the parts of the checkpoint before it. No input or output."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa

from dbio_commit.log.parts import rows
from dbio_commit.log.parts.rows import Counts, FileRow, Key, News
from dbio_commit.protocol.commits import Decided

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def find_news(
    before: Sequence[Decided],
    after: Sequence[Decided],
    keys: Mapping[str, Key],
    *,
    number: int,
    firsts: Mapping[str, int | None],
) -> News:
    """The rows that turn parts with the transactions `before` into parts with the transactions `after`.

    Both are in the order of the history. `keys` has the places of the transactions before, and `firsts` the number of
    the checkpoint that covered each first. A transaction in both with the same marker object has not changed, so it
    may lack its paths.
    """
    old = {commit.tid: commit for commit in before}
    placed = places(after, keys)
    commits: list[tuple[Decided, Key, Counts]] = []
    moved: dict[str, Key] = {}
    described: list[Decided] = []
    left = sorted(old.keys() - {commit.tid for commit in after})

    def files() -> Iterator[FileRow]:
        """Yields one commit's rows after the other: as Python objects, the rows take most of the memory."""
        for commit in after:
            known, key = old.get(commit.tid), placed[commit.tid]
            if known is not None and known.marker is commit.marker:
                if key != keys[commit.tid]:
                    moved[commit.tid] = key
                continue
            change = changes(known, commit)
            described.append(commit)
            is_known = known is not None and key == keys[commit.tid] and not change.new
            if known is None or not is_known or rows.info_text(commit) != rows.info_text(known):
                commits.append((commit, key, rows.counts_of(commit, change.now)))
            yield from change.gone
            yield from change.new if known is None else map(_at_the_end(commit), change.new)
        for tid in left:
            yield from (rows.gone_row(path, tid) for path in rows.file_rows(old[tid]))

    table = rows.files_table(files())
    return News(
        files=table,
        statistics=rows.statistics_table(table, described),
        commits=pa.concat_tables([rows.commits_table(commits, number, firsts), rows.forgotten_commits(left, number)]),
        moved=moved,
    )


class Changes(NamedTuple):
    """How the rows of files of one transaction change."""

    now: Mapping[str, FileRow]
    """All rows after the change, by path."""
    gone: list[FileRow]
    """Rows that mark paths as forgotten."""
    new: list[FileRow]
    """Rows of paths that had no row before."""


def changes(before: Decided | None, after: Decided) -> Changes:
    """How the rows of a transaction change from `before` to `after`. `before` is None if it has no rows yet."""
    now = rows.file_rows(after)
    had = rows.file_rows(before) if before else {}
    gone = [rows.gone_row(path, after.tid) for path in had.keys() - now.keys()]
    return Changes(now, gone, [now[path] for path in now.keys() - had.keys()])


def _at_the_end(commit: Decided) -> Callable[[FileRow], FileRow]:
    """A function that moves a new removal of a known transaction behind its known removals, also forgotten ones."""
    gone = min(commit.forgotten.removed, 1 << 30)
    return lambda row: row if row.removed is None else row._replace(removed=row.removed + gone)


def places(commits: Sequence[Decided], keys: Mapping[str, Key]) -> dict[str, Key]:
    """A place for each commit, by tid, in the order of the commits. A commit keeps its old place if possible."""
    found: dict[str, Key] = {}
    last = Key(-(1 << 62), 0)
    for commit in commits:
        at = (commit.modified - _EPOCH) // timedelta(microseconds=1)
        key = keys.get(commit.tid) or Key(at, 0)
        if key <= last:
            key = Key(last.at, last.rank + 1)
        found[commit.tid] = last = key
    return found
