"""Records which commits a publication shows, so that the next one can be made of the commits since. Pure.

Rules: NOTES.md, Delta.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Self

from msgspec import Struct

from dbio_commit.maintenance.publish.bounds import memory_of


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
