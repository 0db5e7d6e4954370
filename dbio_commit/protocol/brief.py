"""What decides the place of a transaction in the history. It is decoded several times faster than the whole. Pure."""

from datetime import UTC, datetime

from msgspec import Struct

from dbio_commit.protocol.markers.bodies import REFERRING, VERSION, Body, Count, in_utc_of_a_clock
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker, RecordedOperation


class BriefInfo(Struct, frozen=True):
    """Some of `CommitInfo`."""

    operation: RecordedOperation
    turn: Count | None = None
    removed_tids: list[str] | None = None


class BriefMarker(Struct, frozen=True):
    """Some of `CommitMarker`."""

    added: list[str]
    removed: list[str]
    dbio_commit: BriefInfo | None = None


class BriefLine(Body, frozen=True, kw_only=True):
    """Some of a line of a checkpoint."""

    tid: str
    modified: datetime
    marker: BriefMarker

    def __post_init__(self) -> None:
        in_utc_of_a_clock(self, "modified")


_ANY_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def brief_marker(info: BriefInfo | None, *, added: list[str], removed: list[str]) -> CommitMarker:
    """A marker with what is known of it. Raises ValueError for one that no writer makes."""
    if info is None or not (info.turn or info.removed_tids or info.operation == "abort"):
        return CommitMarker(added=added, removed=removed)
    known = CommitInfo(
        version=REFERRING if info.removed_tids else VERSION,
        recorded=info.operation,
        commit_id="",
        timestamp=_ANY_TIME,
        turn=info.turn,
        removed_tids=info.removed_tids,
    )
    return CommitMarker(added=added, removed=removed, dbio_commit=known)
