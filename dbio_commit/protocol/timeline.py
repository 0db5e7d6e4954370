"""The commits of a history by their times, and which of them a stream has read. Pure.

A timeline is made once for a history. After that, most answers take the same time, however many commits were read or
are left.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from dbio_commit.protocol.commits import Decided


class Timeline:
    """Each commit has a *place* in the order of the history, and a *rank* in the order of times."""

    def __init__(self, commits: Sequence[Decided]) -> None:
        self.commits = commits
        self.order = sorted(range(len(commits)), key=lambda place: commits[place].modified)
        """The places, by rank."""
        self.times = [commits[place].modified for place in self.order]
        """By rank."""
        self.places = {commit.tid: place for place, commit in enumerate(commits)}
        self.ranks = [0] * len(commits)
        """By place."""
        for rank, place in enumerate(self.order):
            self.ranks[place] = rank
        self.first = [*accumulate(reversed(self.order), min, initial=len(commits))][::-1]
        """For each rank: the first place of a commit that has this rank or a higher one."""
        self.last = [*accumulate(self.order, max, initial=-1)]
        """For each rank: the last place of a commit that has a lower one."""

    def until(self, time: datetime, tids: Iterable[str] = ()) -> "Had":
        """The commits until this time, inclusive, and those with these tids, if the history has them."""
        oldest = bisect_right(self.times, time)
        known = (tid for tid in tids if tid in self.places)
        return Had.of(self, oldest, {tid for tid in known if self.rank(tid) >= oldest})

    def before(self, time: datetime) -> "Had":
        """The commits before this time."""
        return Had(self, bisect_left(self.times, time))

    def before_place(self, place: int) -> "Had":
        """The commits that come before this place."""
        oldest = next((rank for rank, it in enumerate(self.order) if it >= place), len(self.order))
        return Had.of(self, oldest, {self.commits[it].tid for it in self.order[oldest:] if it < place})

    def none(self) -> "Had":
        return Had(self, 0)

    def all(self) -> "Had":
        return Had(self, len(self.commits))

    def rank(self, tid: str) -> int:
        return self.ranks[self.places[tid]]

    def ranked(self, start: int, stop: int) -> list[Decided]:
        """The commits from one rank to another."""
        return [self.commits[place] for place in self.order[start:stop]]


@dataclass(frozen=True, slots=True, eq=False)
class Had:
    """The commits that a stream has read: the oldest of a timeline, and a few others."""

    timeline: Timeline
    oldest: int
    """All commits with a rank below this one are among them."""
    more: Set[str] = frozenset()
    """The tids of the others."""

    @classmethod
    def of(cls, timeline: Timeline, oldest: int, more: Set[str]) -> "Had":
        """All commits with a rank below `oldest`, and some with higher ones."""
        order, left = timeline.order, {*more}
        while oldest < len(order) and (tid := timeline.commits[order[oldest]].tid) in left:
            oldest += 1
            left.remove(tid)
        return cls(timeline, oldest, frozenset(left))

    def __len__(self) -> int:
        return self.oldest + len(self.more)

    def has(self, commit: Decided) -> bool:
        return commit.tid in self.more or self.timeline.rank(commit.tid) < self.oldest

    def plus(self, commits: Iterable[Decided]) -> "Had":
        """The same, with these commits added."""
        return Had.of(self.timeline, self.oldest, self.more | {it.tid for it in commits if not self.has(it)})

    def commits(self) -> list[Decided]:
        """These commits, in the order of the history. Takes longer for more."""
        return [commit for commit in self.timeline.commits if self.has(commit)]

    def newest(self) -> datetime | None:
        """The latest time of these commits; None without any."""
        return max(self.later_times(), default=self.timeline.times[self.oldest - 1] if self.oldest else None)

    def later_times(self) -> list[datetime]:
        """The times of the commits in `more`, ascending."""
        return sorted(self.timeline.times[self.timeline.rank(tid)] for tid in self.more)

    def last_place(self) -> int:
        """The place of the last of these commits in the order of the history; -1 if there is none."""
        return max(self.timeline.last[self.oldest], *(self.timeline.places[tid] for tid in self.more), -1)

    # --- the others -----------------------------------------------------------------------------------------------

    def rest(self) -> Iterator[Decided]:
        """The commits that were not read, in the order of the history."""
        commits = self.timeline.commits
        others = (commits[place] for place in range(self.timeline.first[self.oldest], len(commits)))
        return (commit for commit in others if not self.has(commit))

    def rest_count(self) -> int:
        return len(self.timeline.commits) - len(self)

    def rest_since(self) -> datetime | None:
        """The earliest time of the commits that were not read; None without any."""
        timeline = self.timeline
        others = (timeline.commits[timeline.order[rank]] for rank in range(self.oldest, len(timeline.order)))
        return next((it.modified for it in others if it.tid not in self.more), None)
