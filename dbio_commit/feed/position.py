"""Which commits of a table a stream has had: its offset, as JSON. Pure. What comes next is in `feed`.

Tids do not tell: a transaction that began early may commit late. Nor do times alone: of two markers the one with the
older time may appear last. So a position tells a time up to which all was had, and the tids that were had after it;
the time stays so far behind the newest commit that none can appear before it any more. Rules: PROTOCOL.md 8.4.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from msgspec.structs import replace

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.bodies import Body, Count, decode_as, encode, in_utc, written

MARGIN = timedelta(hours=1)
"""How far `until` stays behind the newest commit, if that takes no more than MOST_TIDS."""

LEAST_MARGIN = timedelta(minutes=1)
"""How far in any case: longer than any store's settling time."""

MOST_TIDS = 500
"""About 11 kB."""

WATCHED = timedelta(days=7)
"""No transaction commits later than so long after it began, so that none appears before then by a clock that is right.

And no checkpoint forgets what is younger, so that a stream which is no older than weeks can count."""

_NEVER = datetime.min.replace(tzinfo=UTC)


class Start(Body, frozen=True, kw_only=True):
    """Where a stream begins: with the state of the table, or with the commits from a time or a tid on.

    It says the same whenever it is asked, so that a first batch that is made again is the same.
    """

    version: Literal[1] = written(1)
    begin: Literal["state", "time", "tid"] = written("state")
    time: datetime | None = None
    tid: str | None = None

    def __post_init__(self) -> None:
        in_utc(self, "time")


class Part(Body, frozen=True, kw_only=True):
    """How many files a stream has had of what comes next, and how many that has."""

    tid: str | None = None
    """The commit; None for the state that the stream begins with."""
    done: Count
    files: Count


class Position(Body, frozen=True, kw_only=True, dict=True, gc=True):
    """The commits that a stream has had."""

    version: Literal[1] = written(1)
    table: str
    """The id of the table's descriptor."""
    redated_until: datetime | None = None
    """As the history had it: where another copy was made, or a commit of before came late, the times are others."""
    until: datetime = written(_NEVER)
    """Every commit whose marker is not younger was had."""
    commits: Count = written(0)
    """How many of these there were in the last WATCHED before `until`: more, and one came behind the stream's back."""
    older: Count = written(0)
    """How many before that. They are forgotten some day; but more can only come where a clock was set far back."""
    tids: Sequence[str] = written([])
    """Those after `until` that were had."""
    part: Part | None = None
    """Of one commit that is not among these; or of the state that all of them add up to, until a commit follows."""

    def __post_init__(self) -> None:
        in_utc(self, "until", "redated_until")

    def had(self, commit: Decided) -> bool:
        return commit.modified <= self.until or commit.tid in self._tids

    @cached_property
    def _tids(self) -> frozenset[str]:
        return frozenset(self.tids)

    def count_watched(self, commits: Iterable[Decided]) -> tuple[int, int]:
        """Of these, how many are as old as `commits` tells, and how many as old as `older` does."""
        since = _before(self.until, WATCHED)
        times = [commit.modified for commit in commits if commit.modified <= self.until]
        older = sum(time <= since for time in times)
        return len(times) - older, older


def position_of(
    had: Collection[Decided],
    rest: Iterable[Decided],
    *,
    table_id: str,
    redated_until: datetime | None = None,
    part: Part | None = None,
    at_least: datetime = _NEVER,
) -> Position:
    """The position of who has had these commits, and not the rest. All until `at_least` must be among them."""
    times = sorted((commit.modified for commit in had), reverse=True)
    if not times:
        return Position(table=table_id, redated_until=redated_until, part=part)
    until = _before(times[0], MARGIN)
    if len(times) > MOST_TIDS:
        until = max(until, min(times[MOST_TIDS], _before(times[0], LEAST_MARGIN)))
    until = min([until, *(_before(commit.modified, timedelta.resolution) for commit in rest)])
    until = max(until, at_least)
    position = Position(table=table_id, redated_until=redated_until, part=part, until=until)
    commits, older = position.count_watched(had)
    tids = sorted(commit.tid for commit in had if commit.modified > position.until)
    return replace(position, commits=commits, older=older, tids=tids)


def _before(time: datetime, duration: timedelta) -> datetime:
    return time - duration if time - _NEVER > duration else _NEVER


def encode_position(position: Position | Start) -> dict[str, Any]:
    offset: dict[str, Any] = json.loads(encode(position))
    return offset


def decode_position(offset: Mapping[str, Any]) -> Position | Start:
    """Raises InvalidInputError for what no stream of this software has written."""
    try:
        text = json.dumps(offset).encode()
        if "begin" in offset:
            return decode_as(Start, text)
        return decode_as(Position, text)
    except (ValueError, TypeError) as error:  # some sources' offsets are numbers
        raise InvalidInputError(
            f"the offset {str(offset)!r:.200} is none that this version of dbio-commit reads ({error!s:.200}): the "
            "checkpoint is another source's, or a later version's; upgrade, or begin with a new checkpoint"
        ) from None
