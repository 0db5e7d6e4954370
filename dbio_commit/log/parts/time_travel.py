"""An earlier state of a table with parts: which of its transactions counted then, and what came later."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, overload

from dbio_commit.log.parts.rows import Key
from dbio_commit.protocol.checkpoint import CommitsInParts
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.subtrees import Subtrees


class Past(NamedTuple):
    """The transactions that counted."""

    keys: Mapping[str, Key]
    """Their places in the order of the times of their markers."""
    absent: frozenset[str]
    """Transactions all of whose files they remove by reference."""

    @classmethod
    def of(cls, counted: Iterable[Decided]) -> "Past":
        """`counted` may be outlines."""
        counted = sorted(counted, key=lambda it: (it.modified, it.tid))
        keys = {commit.tid: Key(place, 0) for place, commit in enumerate(counted)}
        return cls(keys, frozenset(tid for commit in counted for tid in commit.marker.removed_tids))


class Later(NamedTuple):
    """The transactions that came later."""

    removals: Mapping[str, int]
    """How many paths each transaction in parts removed, without those that removed none."""
    removed: Set[str]
    """The paths that transactions removed which are in no part."""
    removed_tids: Set[str]
    """Transactions all of whose files others removed by reference."""

    @classmethod
    def of(cls, later: Collection[Decided], in_parts: Collection[str]) -> "Later":
        """`later` has outlines of those in parts, and the others with their paths."""
        return cls(
            {it.tid: it.forgotten.removed for it in later if it.tid in in_parts and it.forgotten.removed},
            {path for it in later if it.tid not in in_parts for path in it.marker.removed},
            {tid for it in later for tid in it.marker.removed_tids},
        )


class Since(NamedTuple):
    """What became of the files of an earlier state."""

    forgets: bool = False
    """Whether paths are forgotten that transactions removed which came later."""
    gone: int = 0
    """How many files do not exist any more."""
    first: str | None = None
    """The first of these files."""


class PastCommits(CommitsInParts):
    """The transactions in parts that counted."""

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
