"""The committed versions of an application, in ranges, so that years of them fit into a checkpoint. Pure.

A version that is an int counts up. One that is a day or a time names a run, and runs may commit in any order
(PROTOCOL.md 9.5).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.json import encode as encode_text

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.markers.bodies import Body, Count
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.markers.start import App

AppVersion = tuple[str, int | date]
"""An application id and a version of it, as callers give them."""

MOST_RANGES = 10_000
"""At most this many ranges for each application: more than a year of hours, each of which is a range. The lowest are
forgotten first."""

MOST_RANGES_IN_ALL = 300_000
"""At most this many ranges for all applications of a table together. The lowest ranges of the applications that have
the most are forgotten first."""

MOST_ID_BYTES = 24 * 1024**2
"""The most bytes that the application ids of a table may take in a checkpoint. Ids are never forgotten, so a writer
refuses a new one (`refuse_new_id`). With all ranges, a schema and the settings they fit into one object."""

_ID_BYTES = 120
"""Bytes of an application besides its id, which a checkpoint has twice: three numbers, and the names of keys."""

VersionOutcome = Literal["new", "committed", "passed", "unknown"]
"""Whether a version is to be committed, was committed, is lower than one that counted up, or is not known."""


class Versions(Body, frozen=True, kw_only=True):
    """The committed versions of one application, as a checkpoint records them."""

    ranges: Annotated[tuple[tuple[Count, Count], ...], Meta(min_length=1)]
    """The first and last version of each range. All versions of a range are committed. Ascending, with gaps between."""
    known_from: Count = 0
    """Of other versions below this one, it is not known whether they were committed."""

    def __post_init__(self) -> None:
        if any(first > last for first, last in self.ranges) or any(a[1] >= b[0] - 1 for a, b in pairwise(self.ranges)):
            raise ValueError("ranges of versions ascend, with gaps between")

    @property
    def highest(self) -> int:
        return self.ranges[-1][1]

    def __contains__(self, version: int) -> bool:
        at = bisect_right(self.ranges, version, key=lambda it: it[0]) - 1
        return at >= 0 and version <= self.ranges[at][1]

    def adding(self, versions: Iterable[int]) -> "Versions":
        return _joined([*self.ranges, *((it, it) for it in versions)], self.known_from)


def only_highest(version: int) -> Versions:
    """The versions in a checkpoint of an earlier version of this software: only the highest, and nothing about lower
    ones."""
    return Versions(ranges=((version, version),), known_from=version)


def add_up(markers: Iterable[CommitMarker], *, before: Mapping[str, Versions]) -> dict[str, Versions]:
    """The versions by application id. `before` has those in a checkpoint."""
    new: dict[str, set[int]] = {}
    for marker in markers:
        if not marker.is_abort and marker.dbio_commit and (app := marker.dbio_commit.app):
            new.setdefault(app.id, set()).add(app.version)
    added = {id: before[id].adding(it) if id in before else _joined((v, v) for v in it) for id, it in new.items()}
    return _bounded({**before, **added})


def _bounded(versions: dict[str, Versions]) -> dict[str, Versions]:
    """The versions with as many ranges in all as a checkpoint keeps. Each application keeps its highest."""
    counts = [len(it.ranges) for it in versions.values()]
    if sum(counts) <= MOST_RANGES_IN_ALL:
        return versions
    left, most = MOST_RANGES_IN_ALL, 0
    for place, count in enumerate(sorted(counts)):
        most = max(left // (len(counts) - place), 1)  # for each of those that are left
        if count > most:
            break
        left -= count
    return {id: it if len(it.ranges) <= most else _highest(it, most) for id, it in versions.items()}


def _highest(versions: Versions, most: int) -> Versions:
    kept = versions.ranges[-most:]
    return Versions(ranges=kept, known_from=max(versions.known_from, kept[0][0]))


def refuse_new_id(app: App, committed: Mapping[str, Versions], *, where: str) -> None:
    """Raises InvalidInputError if this application id is new, and the table has no room for its id."""
    if app.id in committed:
        return
    used = sum(map(_bytes_of, committed))
    if used + _bytes_of(app.id) > MOST_ID_BYTES:
        raise InvalidInputError(
            f"{where} has {len(committed)} application ids, which take {used} bytes in a checkpoint: there is no room "
            f"for a new one, {app.id[:100]!r}, since a table keeps at most {MOST_ID_BYTES} bytes of them, for good. "
            "Nothing was committed. Use one id for each job, and put what distinguishes its runs into the version, "
            "such as a day. Ids that the table has go on working"
        )


def _bytes_of(id: str) -> int:
    return 2 * len(encode_text(id)) + _ID_BYTES


def outcome_of(app: App, committed: Mapping[str, Versions]) -> VersionOutcome:
    """What happens to a commit of this application and version."""
    versions = committed.get(app.id)
    if versions is None or app.version > versions.highest:
        return "new"
    if app.version in versions:
        return "committed"
    if app.version < versions.known_from:
        return "unknown"
    return "new" if app.any_order else "passed"


def why_refused(app: App, versions: Versions, *, where: str) -> str:
    """The error message for a version whose outcome is "passed" or "unknown", with the next step."""
    other = f"If no job of yours committed {versions.highest}, see `dbio check`."
    it, own = f"version {app.version} of application {app.id!r}", f"{app.id}-{app.version}"[-100:]
    if outcome_of(app, {app.id: versions}) == "unknown":
        return (
            f"whether {it} is committed to {where} is not known: versions are remembered from {versions.known_from} "
            f"on, and {versions.highest} is the highest. Nothing was committed. Look whether its rows are there; if "
            f"not, write them as an application of its own, such as {own!r}. {other}"
        )
    day = as_day(app.version)
    also = f"give a day, which may come in any order, here {day!r} (txnVersion: {day}), or " if day else ""
    return (
        f"{it} was never committed to {where}, but {versions.highest} was, and numbers count up. Nothing was "
        f"committed. If it may come after later ones, {also}write it as an application of its own, such as {own!r}. "
        f"{other}"
    )


def _joined(ranges: Iterable[tuple[int, int]], known_from: int = 0) -> Versions:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    all_ranges = Versions(ranges=tuple(found), known_from=known_from)
    return _highest(all_ranges, MOST_RANGES) if len(found) > MOST_RANGES else all_ranges


# --- as callers write them ----------------------------------------------------------------------------------------


def version_number(version: object) -> tuple[object, bool]:
    """The number of a version, and whether it may commit in any order.

    The number of a day has its digits, 20261120. That of a time has its digits in UTC, 20261120130000. Any other value
    comes back unchanged. Raises ValueError for a time with fractions of seconds.
    """
    if isinstance(version, datetime):
        if version.microsecond or getattr(version, "nanosecond", 0):  # pandas' timestamps have it
            raise ValueError("a time with fractions of a second")
        at = version if version.tzinfo is None else version.astimezone(UTC)
        return int(f"{at.year:04}{at:%m%d%H%M%S}"), True
    if isinstance(version, date):
        return int(f"{version.year:04}{version:%m%d}"), True
    return version, False


def parse_version(text: str) -> int | date:
    """The version in a text: digits, a day (2026-11-20) or a time (2026-11-20T13:00:00). Raises ValueError."""
    if text.isascii() and text.isdigit():
        return int(text)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return date.fromisoformat(text)
    if re.match(r"\d{4}-\d\d-\d\d[T ]", text, re.ASCII):
        return datetime.fromisoformat(text)
    raise ValueError("neither a number, nor a day, nor a time")


def as_day(version: int) -> date | None:
    """The day that has this number; None if there is none."""
    text = str(version)
    try:
        return date(int(text[:4]), int(text[4:6]), int(text[6:])) if len(text) == 8 else None
    except ValueError:
        return None
