"""An earlier state of a table with parts: which transactions counted then, and what later ones removed."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, overload

from dbio_commit.log.parts.rows import Key
from dbio_commit.protocol.checkpoint import CommitsInParts
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.subtrees import Subtrees


class Past(NamedTuple):
    """The transactions that counted in an earlier state."""

    keys: Mapping[str, Key]
    """The place of each in the order of the times of their markers, by tid."""
    absent: frozenset[str]
    """The tids of transactions of which these remove all files by reference."""

    @classmethod
    def of(cls, counted: Iterable[Decided]) -> "Past":
        """`counted` may be outlines: transactions without their paths."""
        counted = sorted(counted, key=lambda it: (it.modified, it.tid))
        keys = {commit.tid: Key(place, 0) for place, commit in enumerate(counted)}
        return cls(keys, frozenset(tid for commit in counted for tid in commit.marker.removed_tids))


class Later(NamedTuple):
    """What the transactions after an earlier state removed."""

    removals: Mapping[str, int]
    """The number of paths that each transaction in parts removed, by tid, if it removed any."""
    removed: Set[str]
    """The paths that transactions outside of the parts removed."""
    removed_tids: Set[str]
    """The tids of transactions of which all files were removed by reference."""

    @classmethod
    def of(cls, later: Collection[Decided], in_parts: Collection[str]) -> "Later":
        """`later` has outlines of the transactions in parts, and the other transactions with their paths."""
        return cls(
            {it.tid: it.forgotten.removed for it in later if it.tid in in_parts and it.forgotten.removed},
            {path for it in later if it.tid not in in_parts for path in it.marker.removed},
            {tid for it in later for tid in it.marker.removed_tids},
        )


class Since(NamedTuple):
    """Which files of an earlier state have been lost since."""

    forgets: bool = False
    """Whether some paths that later transactions removed are forgotten."""
    gone: int = 0
    """How many files do not exist any more."""
    first: str | None = None
    """The first of these files."""


class PastCommits(CommitsInParts):
    """The transactions in parts that counted in an earlier state."""

    def __init__(self, stored: CommitsInParts, counted: Collection[str]) -> None:
        self._stored, self._counted = stored, counted

    def outlines(self, removed: Mapping[str, Collection[str]]) -> Sequence[Decided]:
        return self._of(self._stored.outlines(removed))

    @property
    def tids(self) -> Set[str]:
        return self._stored.tids & {*self._counted}

    def whole(self, tids: Collection[str]) -> list[Decided]:
        return self._stored.whole([tid for tid in tids if tid in self._counted])

    def change_files(self, tids: Collection[str]) -> Mapping[str, int]:
        return self._stored.change_files(tids)

    def slices(self, news: Sequence[Decided]) -> Iterator[list[Decided]]:
        return map(self._of, self._stored.slices(news))

    def below(self, news: Sequence[Decided], each: Iterable[Subtrees]) -> Iterator[list[Decided]]:
        return map(self._of, self._stored.below(news, each))

    def weigh(self, tops: Sequence[str]) -> list[float]:
        return self._stored.weigh(tops)

    def among(self, news: Sequence[Decided], paths: Collection[str], *, hides: bool) -> list[Decided]:
        return self._of(self._stored.among(news, paths, hides=hides))

    @property
    def columns(self) -> Mapping[str, Collection[str]]:
        return self._stored.columns

    def _of(self, commits: Iterable[Decided]) -> list[Decided]:
        return [commit for commit in commits if commit.tid in self._counted]

    def __len__(self) -> int:
        return len(self.tids)

    @overload
    def __getitem__(self, index: int) -> Decided: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Decided]: ...
    def __getitem__(self, index: int | slice) -> Decided | Sequence[Decided]:
        return self._of(self._stored)[index]

    def __iter__(self) -> Iterator[Decided]:
        return iter(self._of(self._stored))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)
