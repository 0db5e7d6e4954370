"""Finds how a snapshot differs from the last publication, by the commits that this shows. Rules: NOTES.md, Delta."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple, Self

from msgspec import Struct

from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish.bounds import memory_of
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.state import live_files

_PATHS_AT_ONCE = 100_000
"""If the commits since the last version have more paths, these are looked up slice by slice."""


class DifferencePart(NamedTuple):
    """A part of the difference. No path is in two parts."""

    come: Snapshot
    """A slice of the snapshot, whose files are only those that the version does not show."""
    gone: Sequence[str]
    """Paths that the version shows, and that are not live."""


class UnknownError(Exception):
    """The commits do not record any more what they removed."""


def compared(snapshot: Snapshot, paths: Collection[str]) -> Iterator[DifferencePart]:
    """The difference between the snapshot and these live paths of the log."""
    left = set(paths)
    for part in snapshot.slices():
        files = list(part.files)
        left.difference_update(file.path for file in files)
        yield DifferencePart(replace(part, files=[file for file in files if file.path not in paths]), ())
    yield DifferencePart(replace(snapshot, files=()), [*left])


def made_by(snapshot: Snapshot, news: Collection[str]) -> Iterator[DifferencePart]:
    """The difference between the snapshot and its state without these commits.

    Reads only slices that may have their paths. Raises UnknownError if a vacuum has made the log forget some of the
    paths, also after some parts of the difference.
    """
    commits = [commit for commit in snapshot.transactions if commit.tid in news]
    if any(commit.marker.removed_tids for commit in commits):
        raise UnknownError
    left = Counter({commit.tid: _removed(commit) + commit.forgotten.removed for commit in commits})
    for part in _with_paths_of(snapshot, commits):
        before = [commit for commit in part.decided if commit.tid not in news]
        shown, files = {*live_files(before).paths()}, list(part.files)
        known = {path for commit in part.decided for path in commit.marker.added}
        for commit in part.decided:
            if commit.tid in news:
                left[commit.tid] -= _removed(commit)
                if not known.issuperset(commit.marker.removed):  # it may have been live
                    raise UnknownError
        come = [file for file in files if file.path not in shown]
        yield DifferencePart(replace(part, files=come), [*(shown - {file.path for file in files})])
    if any(left.values()):
        raise UnknownError


def _with_paths_of(snapshot: Snapshot, commits: Sequence[Decided]) -> Iterator[Snapshot]:
    """Slices of the snapshot that have all paths of these commits."""
    counts = {it.tid: len(it.marker.added) + len(it.marker.removed) + sum(it.forgotten) for it in commits}
    if sum(counts.values()) > _PATHS_AT_ONCE:
        yield from snapshot.slices()
        return
    whole = snapshot.whole({tid for tid, count in counts.items() if count})
    if paths := {path for it in whole for path in (*it.marker.added, *it.marker.removed)}:
        yield snapshot.among(paths)


def _removed(commit: Decided) -> int:
    return len({*commit.marker.removed})


def changes_data(snapshot: Snapshot, writers: Collection[str | None], gone: Collection[str]) -> bool:
    """Whether rows may have changed. They have not if all added files were made by rewrites that keep rows, and if
    these rewrites removed exactly the files that are gone. `writers` made the added files."""
    commits = [commit for commit in snapshot.transactions if commit.tid in writers]
    if not commits or any(it.marker.is_data_change for it in commits) or len(commits) < len(writers):
        return True
    whole = snapshot.whole({it.tid for it in commits})
    return {path for commit in whole for path in commit.marker.removed} != set(gone)


# --- which commits a publication shows ------------------------------------------------------------------------------


class ShownCommits(Struct, frozen=True):
    """The commits that a publication shows: the newest by name, and the others by their number and digest."""

    newest: list[str]
    """The tids of the newest of the commits."""
    older: int
    """How many other commits there are."""
    digest: str
    """The SHA-256 of the tids of these others, sorted, one in a line."""

    @classmethod
    def of_tids(cls, tids: Sequence[str]) -> Self:
        """`tids` are those of all commits, oldest first."""
        cut = max(len(tids) - _NEWEST, 0)
        return cls([*tids[cut:]], cut, digest_of(sorted(tids[:cut])))

    def unseen(self, tids: Sequence[str]) -> frozenset[str] | None:
        """The tids that the publication does not show, among `tids`, which are given oldest first. None if it shows
        others, or if a commit came late among the older ones: then the difference is not known.
        """
        newest = frozenset(self.newest)
        others = [tid for tid in tids if tid not in newest]
        if len(tids) - len(others) != len(self.newest) or len(others) < self.older:
            return None
        if digest_of(sorted(others[: self.older])) != self.digest:
            return None
        return frozenset(others[self.older :])

    @property
    def memory_bytes(self) -> int:
        """The memory that this record takes."""
        return memory_of(self.newest)


_NEWEST = 100
"""How many commits may be out of order: a late commit has an earlier time than commits that were seen before."""


def digest_of(texts: Iterable[str]) -> str:
    """The SHA-256 of the texts, one in a line."""
    return sha256("\n".join(texts).encode()).hexdigest()
