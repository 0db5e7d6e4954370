"""The order of a table's commits, and which of them an earlier state has. Pure."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from itertools import accumulate, chain, groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf, Decided
from dbio_commit.protocol.entry import Entry

# --- the order ----------------------------------------------------------------------------------------------------


def in_order(commits: Iterable[Decided]) -> list[Decided]:
    """The commits, oldest first: by the times of their markers, but each after the turn before its own and after the
    commits it depends on.

    A store's clock may step back, and some stores give whole seconds. Therefore a commit counts as no older than the
    turn before its own, and than the commits that added what it removes. Commits of the same time are ordered by tid.
    """
    listed = sorted(commits, key=itemgetter(0, 1))
    edges = _dependencies(listed)
    if all(earlier < later for earlier, later in edges):
        return listed
    at = _no_older(edges, [commit.modified for commit in listed])
    after: dict[int, set[int]] = {}
    for earlier, later in edges:
        if at[earlier] == at[later]:
            after.setdefault(later, set()).add(earlier)
    if not after:
        return listed
    order = sorted(range(len(listed)), key=lambda i: (at[i], listed[i].tid))
    return [listed[i] for _, same in groupby(order, key=at.__getitem__) for i in _untangled(list(same), after)]


def _no_older(edges: Sequence[tuple[int, int]], times: Sequence[datetime]) -> Sequence[datetime]:
    """For each commit, the latest of its own time and of those that must come before it, by edges from earlier to later
    ones.

    The search begins at the latest time and follows each edge once, even in a circle, which no writer makes.
    """
    if all(times[earlier] <= times[later] for earlier, later in edges):
        return times
    after: dict[int, list[int]] = {}
    for earlier, later in edges:
        after.setdefault(earlier, []).append(later)
    found: list[datetime | None] = [None] * len(times)
    for latest in sorted(range(len(times)), key=times.__getitem__, reverse=True):
        waiting = [latest]
        while waiting:
            if found[i := waiting.pop()] is None:
                found[i] = times[latest]
                waiting += after.get(i, ())
    return [time for time in found if time is not None]


def _dependencies(commits: Sequence[Decided]) -> list[tuple[int, int]]:
    """Pairs of indices: the first came before the second, whatever the times of their markers are."""
    turns = sorted(
        (info.turn, i) for i, commit in enumerate(commits) if (info := commit.marker.dbio_commit) and info.turn
    )
    places = sorted((commit.place, i) for i, commit in enumerate(commits) if commit.place is not None)
    edges = [(earlier, later) for ranks in (turns, places) for (_, earlier), (_, later) in pairwise(ranks)]
    referred = [(*commit.referred, *commit.marker.removed_tids) for commit in commits]
    if any(referred):
        number = {commit.tid: i for i, commit in enumerate(commits)}
        edges += ((number[tid], i) for i, tids in enumerate(referred) for tid in tids if tid in number)
    removed = {path for commit in commits for path in commit.marker.removed}
    if not removed:
        return edges
    adder = {path: i for i, commit in enumerate(commits) for path in commit.marker.added if path in removed}
    for i, commit in enumerate(commits):
        edges += ((other, i) for other in {adder[path] for path in commit.marker.removed if path in adder} - {i})
    return edges


def _untangled(same: list[int], after: Mapping[int, Collection[int]]) -> list[int]:
    """Commits of the same time, each after those in `after`; otherwise in the order given."""
    if len(same) == 1:
        return same
    rank = {i: place for place, i in enumerate(same)}
    sorter = TopologicalSorter[int]({rank[i]: [rank[other] for other in after.get(i, ())] for i in same})
    try:
        sorter.prepare()
    except CycleError:  # a cycle, which no writer makes
        return same
    order: list[int] = []
    ready = list(sorter.get_ready())
    heapify(ready)
    while ready:
        order.append(same[heappop(ready)])
        sorter.done(rank[order[-1]])
        for place in sorter.get_ready():
            heappush(ready, place)
    return order


# --- markers with other times --------------------------------------------------------------------------------------


class Doubt(NamedTuple):
    """A period in which it is not known whether some commit had been made yet."""

    since: datetime
    until: datetime


_TOLERANCE = timedelta(hours=1)
"""The longest time from the making of a marker to the marker's own time."""

_SKEW = timedelta(days=1)
"""How far a writer's clock may be from the store's, if no start marker shows it."""

_MOST_DOUBTS = 100

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def find_doubts(commits: Iterable[Decided], started: Mapping[str, Entry]) -> list[Doubt]:
    """For each commit whose marker is much younger than its `timestamp`: the time between.

    A marker that somebody deleted and brought back has a new time, so the history has the commit in a wrong place. The
    writer's clock may be wrong, too. The start marker shows by how much: its tid has the time of the begin by that
    clock.
    """
    found: list[Doubt] = []
    for commit in commits:
        info = commit.marker.dbio_commit
        if info is None or commit.marker.is_abort:
            continue
        start, began = started.get(commit.tid), names.parse_tid_time(commit.tid)
        made, skew, tolerance = max(info.timestamp, _EPOCH), timedelta(), _TOLERANCE + _SKEW
        if start and began and abs(start.modified - began) <= _SKEW:
            skew, tolerance = start.modified - began, _TOLERANCE
        if commit.modified - made - skew > tolerance:
            found.append(Doubt(made + skew - tolerance, commit.modified))
    return found


def add_doubts(*each: Iterable[Doubt], known_since: datetime | None = None) -> tuple[Doubt, ...]:
    """All doubts, without those that end by `known_since`. Overlapping doubts are joined, and so are those beyond
    100."""
    found: list[Doubt] = []
    for doubt in sorted({*chain(*each)}):
        if known_since and doubt.until <= known_since:
            continue
        if found and (doubt.since <= found[-1].until or len(found) == _MOST_DOUBTS):
            found[-1] = Doubt(found[-1].since, max(found[-1].until, doubt.until))
        else:
            found.append(doubt)
    return tuple(found)


# --- an earlier state ---------------------------------------------------------------------------------------------


class CommitsAsOf(NamedTuple):
    """The commits of an earlier state, and those that came later; oldest first."""

    counted: list[Decided]
    later: list[Decided]


def committed_by(
    commits: Iterable[Decided],
    as_of: AsOf,
    *,
    known_since: datetime | None = None,
    erased_until: datetime | None = None,
    redated_until: datetime | None = None,
    doubts: Sequence[Doubt] = (),
) -> list[Decided]:
    """The commits of the table in an earlier state, oldest first.

    Raises InvalidInputError as `cut_at` does, and if removed files of that state are forgotten.
    """
    if as_of is None:
        return in_order(commits)
    counted, later = cut_at(
        commits, as_of, known_since=known_since, erased_until=erased_until, redated_until=redated_until, doubts=doubts
    )
    if any(commit.forgotten.removed for commit in later):
        raise not_known(as_of, known_since, is_erased=erased_until is not None and erased_until == known_since)
    return counted


def cut_at(
    commits: Iterable[Decided],
    as_of: datetime | str,
    *,
    known_since: datetime | None = None,
    erased_until: datetime | None = None,
    redated_until: datetime | None = None,
    doubts: Sequence[Doubt] = (),
) -> CommitsAsOf:
    """Divides the commits into those of the state `as_of` and the later ones. They may lack their paths.

    States before `known_since` are incomplete, and those before `erased_until` were erased. States before
    `redated_until` are not known, since a copy has given commits new times until then. Nor are those within a doubt.
    Raises InvalidInputError for these, and if `as_of` is neither a time with a zone nor the tid of a commit.
    """
    ordered = in_order(commits)
    tids = [commit.tid for commit in ordered]
    times = list(accumulate((commit.modified for commit in ordered), max))  # the times that `in_order` used
    is_commit = False
    if isinstance(as_of, str) and as_of in tids:
        is_commit = True
        count = tids.index(as_of) + 1
        time = times[count - 1]
    else:
        time = parse_time(as_of, what="as_of")
        count = bisect_right(times, time)
    if redated_until and (time < redated_until or bisect_right(times, redated_until) > count):
        raise InvalidInputError(
            f"the table as of {as_of} is not known: it was copied, and its objects got new times until "
            f"{redated_until.isoformat()}, so that the order of the commits before that time is not known; ask for a "
            "time from then on, or read the original table. Copy tables with `dbio copy`, which keeps their history"
        )
    for doubt in doubts:  # a commit at the end of a doubt is the one in doubt, or comes after it by its turn only
        if doubt.since <= time < doubt.until or (is_commit and time == doubt.until):
            since, until = (it.isoformat(timespec="seconds") for it in doubt)
            raise InvalidInputError(
                f"the table as of {as_of} is not known: a commit of about {since} has a marker of {until}, so somebody "
                "may have brought the marker back, or its writer slept; ask for a time before the former, or from the "
                "latter on"
            )
    if known_since and time < known_since:
        raise not_known(as_of, known_since, is_erased=bool(erased_until and time < erased_until))
    return CommitsAsOf(ordered[:count], ordered[count:])


def before_first(as_of: AsOf, counted: Iterable[Decided], known: Iterable[Decided]) -> str:
    """The end of a sentence about a state without commits of a table that has some now; "" for another state.

    `counted` are the transactions of the state, and `known` all that the log has.
    """
    if as_of is None or any(not commit.marker.is_abort for commit in counted):
        return ""
    first = next((commit for commit in in_order(known) if not commit.marker.is_abort), None)
    if first is None:
        return ""
    return f"had no commit as of {as_of}; the first in its history is {first.tid}, of {first.modified.isoformat()}"


def not_known(as_of: AsOf, known_since: datetime | None, *, is_erased: bool = False) -> InvalidInputError:
    """The error for a state whose files are forgotten; `is_erased` if that was done on purpose."""
    since = known_since.isoformat() if known_since else "the commits after it"
    if is_erased:
        return InvalidInputError(
            f"the table as of {as_of} does not exist any more: `dbio erase` has erased rows of the states before "
            f"{since}, with the files that held them; ask for a time from then on"
        )
    return InvalidInputError(
        f"the table as of {as_of} is not known: files that were live then were removed, and vacuumed since; ask "
        f"for a time from {since}"
    )


def parse_time(text: datetime | str, *, what: str) -> datetime:
    """The time in a text. Raises InvalidInputError for a text that is no time, and for a time without a zone.

    `what` is the name of the argument, for the message.
    """
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else text
        if not isinstance(time, datetime):  # a date is not one moment
            raise ValueError("no time")
    except ValueError:
        raise InvalidInputError(
            f"{what}={text!r:.200} is neither the tid of a commit of this table nor a time in ISO 8601; "
            "give a tid or a time as text, or a datetime with a zone; `dbio log` lists the commits"
        ) from None
    if time.tzinfo is None:
        raise InvalidInputError(f"{what}={time.isoformat()} has no time zone; add one, such as +00:00")
    return time  # in its own zone: not all times of the years 1 and 9999 exist in UTC


def parse_utc_time(text: datetime | str, *, what: str) -> datetime:
    """As `parse_time`, in UTC. Raises InvalidInputError also for a time that UTC cannot hold."""
    time = parse_time(text, what=what)
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise InvalidInputError(f"{what}={time.isoformat()} {_NOT_IN_UTC}") from None


def time_at(micros: int, *, what: str) -> datetime:
    """The time `micros` microseconds after 1970 in UTC. Raises InvalidInputError if no datetime can hold it."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        raise InvalidInputError(f"{what} is a time that {_NOT_IN_UTC}") from None


_NOT_IN_UTC = "is not in the years 1 to 9999 in UTC; give a time of one of these"


def redated_until(decided: Iterable[Decided], dated: datetime | None) -> datetime | None:
    """The newest time that a copy has given to one of these markers; None if no copy has changed times.

    Each writer records the time of the descriptor that it saw. `dated` is the descriptor's time now, or None if it is
    not known. A marker whose writer recorded another time got a new time itself. If there is such a marker, those whose
    writers recorded no time got new times, too.
    """
    commits = [(commit.modified, commit.marker.dbio_commit) for commit in decided if not commit.marker.is_abort]
    others = [(at, info and info.dated) for at, info in commits if not (info and info.dated == dated)]
    if dated is None or not any(seen for _, seen in others):
        return None
    return max(at for at, _ in others)
