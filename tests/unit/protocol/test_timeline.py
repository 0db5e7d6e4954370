"""A timeline answers as a look at each commit would."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.timeline import Had, Timeline
from tests.builders import NOW, marker


def timeline_of(minutes: list[int]) -> Timeline:
    """Commits at these minutes. The order of the history may differ from that of the times."""
    return Timeline([Decided(NOW + timedelta(minutes=it), str(i), marker()) for i, it in enumerate(minutes)])


MINUTES = st.lists(st.integers(0, 20), max_size=12)


def check(had: Had, expected: list[Decided]) -> None:
    """All answers, by the commits that were had."""
    commits = had.timeline.commits
    rest = [commit for commit in commits if commit not in expected]
    assert had.commits() == expected
    assert [commit for commit in commits if had.has(commit)] == expected
    assert [*had.rest()] == rest
    assert (len(had), had.rest_count()) == (len(expected), len(rest))
    assert had.rest_since() == min((commit.modified for commit in rest), default=None)
    assert had.newest() == max((commit.modified for commit in expected), default=None)
    assert had.last_place() == max((commits.index(commit) for commit in expected), default=-1)


@given(MINUTES, st.integers(-1, 21), st.sets(st.integers(0, 12)))
def test_what_was_had_until_a_time_and_of_some_tids(minutes: list[int], until: int, some: set[int]) -> None:
    timeline, time = timeline_of(minutes), NOW + timedelta(minutes=until)
    tids = {str(it) for it in some}
    check(timeline.until(time, tids), [it for it in timeline.commits if it.modified <= time or it.tid in tids])
    check(timeline.before(time), [it for it in timeline.commits if it.modified < time])
    more = [it for it in timeline.commits if it.tid in tids]
    check(timeline.before(time).plus(more), [it for it in timeline.commits if it.modified < time or it in more])


@given(MINUTES, st.integers(0, 12))
def test_what_comes_before_a_place(minutes: list[int], place: int) -> None:
    timeline = timeline_of(minutes)
    check(timeline.before_place(place), [*timeline.commits[:place]])


@given(MINUTES)
def test_all_and_none(minutes: list[int]) -> None:
    timeline = timeline_of(minutes)
    check(timeline.all(), [*timeline.commits])
    check(timeline.none(), [])
