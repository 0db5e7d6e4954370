"""Streams over a large table read what they read over the same table in one body, with few paths in memory at once."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from dbio_commit.base.errors import DbioError
from dbio_commit.feed.feed import ALL, BatchLimits, Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Position, Start
from dbio_commit.feed.streams import list_changes
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.log.table_state import table_history
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.history import History
from dbio_commit.protocol.parts import Part
from dbio_commit.table import Table
from tests.tiers import long
from tests.unit.large_tables import ByChance, flat, several_slices, unread

PLAIN = FeedOptions(fail_on_data_loss=False)
WANTED = [
    FeedOptions(),
    PLAIN,
    FeedOptions(changes=True),
    FeedOptions(changes=True, fail_on_data_loss=False),
    FeedOptions(skip_change_commits=True, fail_on_data_loss=False),
    FeedOptions(ignore_changes=True),
]
LIMITS = [
    ALL,
    BatchLimits(files=1),
    BatchLimits(files=3),
    BatchLimits(size_bytes=8),
    BatchLimits(files=4, size_bytes=30),
]


def outcome(call: Callable[..., Any], *given: Any) -> Any:
    try:
        return call(*given)
    except DbioError as error:
        return type(error), str(error)


def spanned(feed: Feed, tid: str) -> list[Any]:
    return [*feed.span(Start(begin="tid", tid=tid), None)]


def batches(feeds: Sequence[Feed], start: Position | Start, most: BatchLimits) -> Position | Start:
    """Goes through both feeds, which must say the same at each step; the position at the end."""
    at = start
    for _ in range(200):
        one, other = (outcome(feed.lag, at) for feed in feeds)
        assert one == other
        one, other = (outcome(feed.after, at, most) for feed in feeds)
        assert one == other
        if not isinstance(one, Position) or one == at:
            return at
        found, expected = (outcome(feed.between, at, one) for feed in feeds)
        assert found == expected
        if isinstance(found, list):
            assert feeds[0].doubtful(found) == feeds[1].doubtful(found)
        at = one
    raise AssertionError("the stream has no end")


def both(made: ByChance, before: History | None = None) -> tuple[History, History]:
    settled = made.settled()
    now = made.clock.now()
    found = table_history(made.store, settled, now=now, before=before)
    return found, table_history(made.store, flat(settled), now=now)


@pytest.mark.parametrize("seed", [0, 5, 7, *long(1, 2, 3, 4, 6)])
def test_a_stream_reads_the_same_whatever_the_form_of_the_table(seed: int) -> None:
    with several_slices():
        made = ByChance(seed)
        made.run(18)
        found, expected = both(made)
        assert [it.tid for it in found.commits] == [it.tid for it in expected.commits]
        starts = [Start(), *(Start(begin="tid", tid=tid) for tid in made.chance.sample(made.tids, 2))]
        starts.append(Start(begin="time", time=expected.commits[0].modified))
        wanted = made.chance.choice(WANTED)
        for start in starts:
            feeds = [Feed(history, wanted) for history in (found, expected)]
            batches(feeds, start, made.chance.choice(LIMITS))
            assert feeds[0].warnings == feeds[1].warnings
        for tid in made.chance.sample(made.tids, 3):
            one, other = (outcome(spanned, Feed(history, wanted), tid) for history in (found, expected))
            if isinstance(one, list):
                one = [(found.whole(commit)._replace(place=None), changes) for commit, changes in one]
                other = [(commit._replace(place=None), changes) for commit, changes in other]
            assert one == other


@pytest.mark.parametrize("seed", range(5))
def test_a_stream_goes_on_while_the_table_grows(seed: int) -> None:
    """What was read of the same checkpoint earlier is used again."""
    with several_slices():
        made = ByChance(seed)
        made.run(8)
        before: History | None = None
        at: Position | Start = Start()
        most = made.chance.choice(LIMITS[1:])
        for _ in range(6):
            found, expected = both(made, before)
            feeds = [
                Feed(history, FeedOptions(ignore_changes=True, fail_on_data_loss=False))
                for history in (found, expected)
            ]
            one, other = (outcome(feed.after, at, most) for feed in feeds)
            assert one == other
            if isinstance(one, Position) and one != at:
                results = [outcome(feed.between, at, one) for feed in feeds]
                assert results[0] == results[1]
                at = one
            before = found
            made.run(made.chance.randint(0, 3))


@pytest.mark.parametrize("seed", range(3))
def test_the_changes_of_commits_are_listed_with_their_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with several_slices():
        made = ByChance(seed)
        made.run(15)
        found, expected = both(made)
        for tid in made.chance.sample(made.tids, 4):
            results = []
            for history in (found, expected):
                monkeypatch.setattr(Follower, "history", lambda self, history=history: history)
                results.append(outcome(list_changes, made.store, made.clock, tid))
            assert results[0] == results[1]


def appended(commits: int) -> Table:
    made = ByChance(3)
    for _ in range(commits):
        made.append()
    made.rewrite()
    made.checkpoint()
    return made.table


def test_a_stream_in_the_middle_reads_the_transactions_after_it_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with several_slices():
        table = appended(30)
        at = Feed(Follower(table.store, table.clock).history(), PLAIN).newest()
        made = ByChance(5)
        made.table, made.store, made.clock = table, table.store, table.clock  # type: ignore[assignment]
        made.append()
        made.checkpoint()
        made.append()
        follower = Follower(table.store, table.clock)
        asked: list[str] = []
        plain = StoredCommits.whole

        def whole(self: StoredCommits, tids: Collection[str]) -> list[Decided]:
            asked.extend(tids)
            return plain(self, tids)

        monkeypatch.setattr(StoredCommits, "whole", whole)
        with unread():
            feed = Feed(follower.history(), PLAIN)
            end = feed.after(at)
            assert isinstance(end, Position)
            changes = follower.without_deleted(feed, feed.between(at, end))
            assert feed.lag(at).files == len(changes)
        assert {change.tid for change in changes} == {*made.tids}
        assert {*asked} <= {*made.tids}


def test_a_stream_that_has_read_all_but_the_news_reads_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    with several_slices():
        table = appended(10)
        at = Feed(Follower(table.store, table.clock).history(), PLAIN).newest()
        made = ByChance(5)
        made.table, made.store, made.clock = table, table.store, table.clock  # type: ignore[assignment]
        made.append()
        follower = Follower(table.store, table.clock)
        kinds: list[str] = []
        plain = PartReader.fetch

        def fetch(self: PartReader, part: Part, *given: Any) -> Any:
            kinds.append(part.kind)
            return plain(self, part, *given)

        monkeypatch.setattr(PartReader, "fetch", fetch)
        feed = Feed(follower.history(), PLAIN)
        end = feed.after(at)
        assert isinstance(end, Position)
        assert follower.without_deleted(feed, feed.between(at, end))
        assert feed.lag(at).commits == 1
        assert {*kinds} <= {"commits"}


def test_a_stream_begins_with_the_state_without_all_transactions() -> None:
    with several_slices():
        table = appended(20)
        follower = Follower(table.store, table.clock)
        live = [file.path for file in table.snapshot().files]
        at: Position | Start = Start()
        got: list[str] = []
        with unread():
            while True:
                feed = Feed(follower.history(), PLAIN)
                end = feed.after(at, BatchLimits(files=4))
                if not isinstance(end, Position) or end == at:
                    break
                got += [change.file.path for change in feed.between(at, end)]
                at = end
        assert sorted(got) == sorted(live)
