"""Where a stream is: offsets that come back as they were, stay small, and are refused where they are no stream's.

Rules: NOTES.md, Positions of streams.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.feed import position
from dbio_commit.feed.position import (
    LEAST_MARGIN,
    MARGIN,
    MOST_TIDS,
    WATCHED,
    CommitPart,
    Position,
    Start,
    decode_position,
    encode_position,
)
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.timeline import Had, Timeline
from tests.builders import NOW, marker

DAY = timedelta(days=1)


def decided(number: int, at: datetime) -> Decided:
    return Decided(at, f"{3764747105670909148 + number}", marker())


def spread(count: int, over: timedelta) -> list[Decided]:
    return [decided(i, NOW + over * i / count) for i in range(count)]


def position_of(had: Sequence[Decided], rest: Sequence[Decided], *, table_id: str, **more: Any) -> Position:
    """Also checks that it does not matter how `Had` says which commits those are."""
    some = Timeline([*had, *rest]).none().plus(had)
    found = position.position_of(some, table_id=table_id, **more)
    same = Had(some.timeline, 0, {commit.tid for commit in had})
    assert found == position.position_of(same, table_id=table_id, **more)
    return found


def size(at: Position | Start) -> int:
    return len(json.dumps(encode_position(at)))


# --- offsets ------------------------------------------------------------------------------------------------------

TIMES = st.datetimes(min_value=datetime(1, 1, 2), timezones=st.just(UTC))
COUNTS = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"))
PARTS = st.builds(CommitPart, tid=st.none() | TEXTS, done=COUNTS, files=COUNTS)
POSITIONS = st.builds(
    Position,
    table=TEXTS,
    until=TIMES,
    commits=COUNTS,
    older=COUNTS,
    tids=st.lists(TEXTS),
    part=st.none() | PARTS,
)
STARTS = st.builds(
    Start, begin=st.sampled_from(["state", "time", "tid"]), time=st.none() | TIMES, tid=st.none() | TEXTS
)


@given(POSITIONS | STARTS)
def test_an_offset_comes_back_as_it_was(at: Position | Start) -> None:
    assert decode_position(json.loads(json.dumps(encode_position(at)))) == at


def test_an_offset_says_the_same_whatever_the_order_of_what_it_is_made_of() -> None:
    """Spark compares offsets as text: one that says the same otherwise would be a batch."""
    commits = spread(20, MARGIN)
    told = {json.dumps(encode_position(position_of(it, [], table_id="t"))) for it in (commits, commits[::-1])}
    assert len(told) == 1


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"logOffset": 3},
        {"events": {"0": 17, "1": 4}},
        {"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 3, "index": 0, "isStartingVersion": False},
        {"version": 2, "table": "t"},
        {"version": 2, "begin": "state"},
        {"begin": "end"},
        {"begin": None},
        {"begin": "time", "time": "2026-11-20"},
        {"begin": "time", "time": "2026-11-20T00:00:00"},
        {"begin": "tid", "tid": 7},
        {"table": 7},
        {"table": "t", "until": "2026-11-20T00:00:00"},
        {"table": "t", "until": 0},
        {"table": "t", "until": "0001-01-01T00:00:00+14:00"},
        {"table": "t", "until": "never"},
        {"table": "t", "commits": -1},
        {"table": "t", "commits": 1 << 63},
        {"table": "t", "commits": 1.5},
        {"table": "t", "commits": True},
        {"table": "t", "commits": float("nan")},
        {"table": "t", "older": "3"},
        {"table": "t", "tids": "3764747105670909148"},
        {"table": "t", "tids": [3764747105670909148]},
        {"table": "t", "tids": [1] * 10_000},
        {"table": "t", "part": {"done": 1}},
        {"table": "t", "part": {"done": -1, "files": 1}},
        {"table": "t" * 10_000, "tids": {}},
        12,
        None,
        True,
        1.5,
        "begin",
        "x" * 10_000,
        ["begin"],
        [],
        {"table": b"t"},
    ],
    ids=lambda offset: f"{offset!s:.40}",
)
def test_what_no_stream_has_written_is_refused_in_few_words(offset: Any) -> None:
    with pytest.raises(InvalidInputError, match="begin with a new checkpoint") as caught:
        decode_position(offset)
    assert len(str(caught.value)) < 700


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["begin", "table", "tids"]), inner),
    max_leaves=10,
)
KEYS = ("version", "table", "until", "commits", "older", "tids", "part", "begin", "time", "tid")


@given(st.dictionaries(st.sampled_from(KEYS), JSON | st.sampled_from(["t", "state", "2026-11-20T00:00:00Z"])) | JSON)
def test_whatever_lies_in_a_checkpoint_is_an_offset_or_refused(offset: Any) -> None:
    try:
        at = decode_position(offset)
    except InvalidInputError:
        return
    assert decode_position(encode_position(at)) == at


def test_keys_of_a_later_version_that_says_so_nowhere_are_passed_over() -> None:
    offset = {**encode_position(Position(table="t")), "more": 1}
    assert decode_position(offset) == Position(table="t")


@pytest.mark.parametrize("until", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_the_ends_of_time_can_be_told(until: str) -> None:
    at = decode_position({"table": "t", "until": until})
    assert isinstance(at, Position)
    assert at.had(decided(1, NOW)) == (until[0] == "9")
    assert at.count_watched([NOW]) == (0, int(until[0] == "9"))


# --- how large they are -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [DAY, timedelta(hours=1), 365 * DAY])
def test_ten_thousand_commits_fit_in_an_offset_of_twenty_kilobytes(over: timedelta) -> None:
    """Spark writes one into its log for each batch."""
    commits = spread(10_000, over)
    for had in (1, 600, 5_000, 9_999, 10_000):
        at = position_of(commits[:had], commits[had:], table_id="0871d97c-6616-410e-8932-f4421b82696e")
        assert size(at) <= 20_000


def test_the_margin_is_an_hour_where_that_takes_few_tids() -> None:
    commits = spread(MOST_TIDS, 2 * MARGIN)
    at = position_of(commits, [], table_id="t")
    assert at.until == commits[-1].modified - MARGIN
    assert len(at.tids) == MOST_TIDS // 2


def test_the_margin_is_a_minute_at_the_least_however_many_tids_that_takes() -> None:
    commits = spread(3 * MOST_TIDS, LEAST_MARGIN / 2)
    at = position_of(commits, [], table_id="t")
    assert at.until == commits[-1].modified - LEAST_MARGIN
    assert len(at.tids) == len(commits)


# --- what they say ------------------------------------------------------------------------------------------------

MINUTES = st.lists(st.integers(0, 300), max_size=30)


@given(MINUTES, st.data())
def test_a_position_tells_what_was_had_from_what_was_not(minutes: list[int], data: st.DataObject) -> None:
    """Whatever was had: not only the oldest."""
    commits = [decided(i, NOW + timedelta(minutes=it)) for i, it in enumerate(minutes)]
    is_had = data.draw(st.tuples(*(st.booleans() for _ in commits)))
    had = [commit for commit, it in zip(commits, is_had, strict=True) if it]
    rest = [commit for commit in commits if commit not in had]
    most = data.draw(st.sampled_from([1, 3, MOST_TIDS]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(position, "MOST_TIDS", most)
        at = position_of(had, rest, table_id="t")
    assert [commit for commit in commits if at.had(commit)] == had
    assert decode_position(encode_position(at)) == at


@given(MINUTES, st.integers(0, 59))
def test_what_comes_up_to_an_hour_late_was_not_had(minutes: list[int], late: int) -> None:
    commits = [decided(i, NOW + timedelta(minutes=it)) for i, it in enumerate(minutes)]
    newest = max((commit.modified for commit in commits), default=NOW)
    at = position_of(commits, [], table_id="t")
    assert not at.had(decided(999, newest - timedelta(minutes=late)))


def test_who_has_had_nothing_has_had_no_time() -> None:
    at = position_of([], spread(3, DAY), table_id="t")
    assert at == Position(table="t")
    assert not any(map(at.had, spread(3, DAY)))


def test_a_position_never_goes_back_behind_what_was_told() -> None:
    """Of commits before it some may be forgotten, and then nobody could tell them from late ones."""
    commits = spread(3, MARGIN / 2)
    assert position_of(commits, [], table_id="t", at_least=NOW).until == NOW


def test_commits_are_counted_within_a_week_before_the_position_and_before_that() -> None:
    times = [NOW - WATCHED, NOW - WATCHED - DAY, NOW - WATCHED + DAY, NOW, NOW + MARGIN]
    at = position_of([decided(i, time) for i, time in enumerate(times)], [], table_id="t")
    assert (at.until, at.commits, at.older, len(at.tids)) == (NOW, 2, 2, 1)


def test_times_are_the_same_in_every_zone() -> None:
    at = Position(table="t", until=NOW)
    there = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert at.had(decided(1, there))
    assert not at.had(decided(1, there + timedelta(microseconds=1)))
