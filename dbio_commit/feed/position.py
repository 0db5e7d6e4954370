"""The position of a stream: which commits of a table it has read. As JSON it is the stream's offset. Pure.

`feed` decides what comes next. Tids alone do not define a position: a transaction that began early may commit late.
Times alone do not, either: of two markers, the one with the older time may appear last. Therefore a position has a time
up to which all commits were read, and the tids that were read after it. The time stays so far behind the newest commit
that no commit can still appear before it. Rules: NOTES.md, Positions of streams.
"""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from msgspec.structs import replace

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.bodies import Body, Count, decode_as, encode, in_utc, written
from dbio_commit.protocol.timeline import Had

MARGIN = timedelta(hours=1)
"""How far `until` stays behind the newest commit, if that takes at most MOST_TIDS."""

LEAST_MARGIN = timedelta(minutes=1)
"""How far `until` always stays behind: longer than any store's settling time."""

MOST_TIDS = 500
"""The most tids in a position: about 11 kB."""

WATCHED = timedelta(days=7)
"""No transaction commits later than this after it began. So no commit appears before this period, if the clock is
right. No checkpoint forgets younger commits, so a stream that is at most weeks old can count them."""

_NEVER = datetime.min.replace(tzinfo=UTC)


class Start(Body, frozen=True, kw_only=True):
    """The start of a stream: the state of the table, or the commits from a time or a tid on.

    A start gives the same result for each call, so that a first batch that is repeated is the same.
    """

    version: Literal[1] = written(1)
    begin: Literal["state", "time", "tid"] = written("state")
    time: datetime | None = None
    tid: str | None = None

    def __post_init__(self) -> None:
        in_utc(self, "time")


class CommitPart(Body, frozen=True, kw_only=True):
    """How many files of the next commit a stream has read, and how many files that commit has."""

    tid: str | None = None
    """The commit; None for the state at which the stream begins."""
    done: Count
    files: Count


class Position(Body, frozen=True, kw_only=True, dict=True, gc=True):
    """The commits that a stream has read."""

    version: Literal[1] = written(1)
    table: str
    """The id of the table's descriptor."""
    redated_until: datetime | None = None
    """`redated_until` of the history. It differs if the table was copied again, or if an earlier commit came late."""
    until: datetime = written(_NEVER)
    """All commits up to this time were read."""
    commits: Count = written(0)
    """How many of these commits are from the 7 days before `until` (WATCHED). If a later history has more, a commit
    came late."""
    older: Count = written(0)
    """How many of these commits are older. Checkpoints forget them in time. More can only appear if a clock was set far
    back."""
    tids: Sequence[str] = written([])
    """The tids of the commits after `until` that were read."""
    part: CommitPart | None = None
    """How much was read of one further commit, or of the state at the start."""

    def __post_init__(self) -> None:
        in_utc(self, "until", "redated_until")

    def had(self, commit: Decided) -> bool:
        return commit.modified <= self.until or commit.tid in self._tids

    @cached_property
    def _tids(self) -> frozenset[str]:
        return frozenset(self.tids)

    def count_watched(self, times: Sequence[datetime], count: int | None = None) -> tuple[int, int]:
        """Of commits with the first `count` of these ascending times: the number that `commits` counts, and the number
        that `older` counts."""
        older = bisect_right(times, _before(self.until, WATCHED), 0, count)
        return bisect_right(times, self.until, 0, count) - older, older


def position_of(
    had: Had,
    *,
    table_id: str,
    redated_until: datetime | None = None,
    part: CommitPart | None = None,
    at_least: datetime = _NEVER,
) -> Position:
    """The position of a stream that has read exactly these commits. All commits until `at_least` must be among them."""
    if not len(had):
        return Position(table=table_id, redated_until=redated_until, part=part)
    timeline, later = had.timeline, had.later_times()
    newest = sorted([*timeline.times[max(had.oldest - MOST_TIDS - 1, 0) : had.oldest], *later], reverse=True)
    until = _before(newest[0], MARGIN)
    if len(had) > MOST_TIDS:
        until = max(until, min(newest[MOST_TIDS], _before(newest[0], LEAST_MARGIN)))
    if (first := had.rest_since()) is not None:
        until = min(until, _before(first, timedelta.resolution))
    position = Position(table=table_id, redated_until=redated_until, part=part, until=max(until, at_least))
    both = position.count_watched(timeline.times, had.oldest), position.count_watched(later)
    commits, older = map(sum, zip(*both, strict=True))
    since = bisect_right(timeline.times, position.until)
    tids = {commit.tid for commit in timeline.ranked(since, had.oldest)}
    tids |= {tid for tid in had.more if timeline.rank(tid) >= since}
    return replace(position, commits=commits, older=older, tids=sorted(tids))


def _before(time: datetime, duration: timedelta) -> datetime:
    return time - duration if time - _NEVER > duration else _NEVER


def encode_position(position: Position | Start) -> dict[str, Any]:
    offset: dict[str, Any] = json.loads(encode(position))
    return offset


def decode_position(offset: Mapping[str, Any]) -> Position | Start:
    """The position in an offset. Raises InvalidInputError for an offset that no stream of this software has written."""
    try:
        text = json.dumps(offset).encode()
        if "begin" in offset:
            return decode_as(Start, text)
        return decode_as(Position, text)
    except (ValueError, TypeError) as error:  # offsets of some sources are numbers
        raise InvalidInputError(
            f"this version of dbio-commit cannot read the offset {str(offset)!r:.200} ({error!s:.200}): the "
            "checkpoint is another source's, or a later version's; upgrade, or begin with a new checkpoint"
        ) from None
