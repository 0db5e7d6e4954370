"""What a stream reads: each commit once and in order, whatever its limits, however often it is started again.

Pure: the histories are put together by hand. How they are read from a store is in `test_follow`.
Rules: PROTOCOL.md 8.4; NOTES.md, Positions of streams.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dbio_commit.base.errors import ChangedRowsError, CorruptMarkerError, HistoryLostError, InvalidInputError
from dbio_commit.feed import position
from dbio_commit.feed.feed import ALL, BatchLimits, Feed, FeedOptions, Lag
from dbio_commit.feed.position import Position, Start, decode_position, encode_position
from dbio_commit.protocol.as_of import in_order
from dbio_commit.protocol.commits import Decided, Forgotten
from dbio_commit.protocol.history import FileChange, History
from dbio_commit.protocol.markers.descriptor import Origin
from dbio_commit.protocol.markers.files import AddedFiles
from dbio_commit.protocol.state import NO_METADATA, live_files
from tests.builders import NOW, data, marker

STATE = Start()
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FROM_THE_FIRST = Start(begin="time", time=NOW - 400 * DAY)
PLAIN, CHANGES, SKIP, IGNORE = (
    FeedOptions(),
    FeedOptions(changes=True),
    FeedOptions(skip_change_commits=True),
    FeedOptions(ignore_changes=True),
)


@dataclass
class Books:
    """The commits of a table, as they come."""

    commits: list[Decided] = field(default_factory=list)
    now: datetime = NOW
    known_since: datetime | None = None
    turn: int = 0
    last: int = 999

    def add(
        self,
        files: Sequence[int] = (5,),
        removed: Sequence[str] = (),
        *,
        at: datetime | None = None,
        tid: str | None = None,
        **info: Any,
    ) -> list[str]:
        """A commit of files of these sizes, a minute after the last; their paths."""
        self.now = self.now + MINUTE if at is None else at
        self.last += 1
        tid = tid or str(self.last)
        added = [data(tid, number) for number in range(len(files))]
        if removed:
            self.turn += 1
            info = {"operation": "overwrite", "turn": self.turn, **info}
        body = marker(added, removed, files=AddedFiles(size=[*files], rows=[1] * len(files)), **info)
        self.commits.append(Decided(self.now, tid, body))
        return added

    def forget(self, tid: str, *, added: Sequence[str] = (), removed: Sequence[str] = ()) -> None:
        """As a checkpoint leaves files out that are vacuumed."""
        i = next(i for i, commit in enumerate(self.commits) if commit.tid == tid)
        before = self.commits[i]
        left = [path for path in before.marker.added if path not in added]
        sizes = AddedFiles(size=[5] * len(left), rows=[1] * len(left))
        info = before.marker.dbio_commit
        assert info
        self.commits[i] = before._replace(
            marker=structs.replace(
                before.marker,
                added=left,
                removed=[path for path in before.marker.removed if path not in removed],
                dbio_commit=structs.replace(info, files=sizes),
            ),
            forgotten=Forgotten(len(added), len(removed)),
        )

    def feed(self, wanted: FeedOptions | None = None, **changed: Any) -> Feed:
        history = History(
            url="memory://table",
            origin=Origin("t"),
            redated_until=None,
            layouts=frozenset({()}),
            commits=in_order(self.commits),
            known_since=self.known_since,
            metadata=NO_METADATA,
            now=self.now,
        )
        return Feed(replace(history, **changed), wanted or FeedOptions())


@pytest.fixture
def books() -> Books:
    return Books()


def reloaded(at: Position | Start) -> Position | Start:
    """As a stream finds it that was started again."""
    return decode_position(json.loads(json.dumps(encode_position(at))))


def paths(changes: Sequence[FileChange]) -> list[str]:
    return [change.file.path for change in changes]


@dataclass
class Stream:
    """A query, whose end offset is logged before a batch is read."""

    books: Books
    wanted: FeedOptions = PLAIN
    most: BatchLimits = ALL
    at: Position | Start = STATE
    target: Position | None = None
    got: list[FileChange] = field(default_factory=list)

    def batch(self) -> list[FileChange]:
        """The next one; nothing where there is nothing new."""
        feed = self.books.feed(self.wanted)
        end = reloaded(feed.after(self.at, self.most, target=self.target))
        found = feed.between(self.at, end) if isinstance(end, Position) and end != self.at else []
        self.at = end
        self.got += found
        return found

    def drain(self) -> list[list[FileChange]]:
        """All batches until there is nothing new."""
        found, before = list[list[FileChange]](), None
        while before != self.at:
            before = self.at
            found.append(self.batch())
            assert len(found) < 10_000
        return found[:-1]


# --- once, in order -----------------------------------------------------------------------------------------------


def test_a_stream_has_first_the_state_of_the_table_and_then_each_commit(books: Books) -> None:
    first, second = books.add([5, 6]), books.add([7])
    stream = Stream(books)
    assert [paths(batch) for batch in stream.drain()] == [first + second]
    third = books.add([8])
    assert [paths(batch) for batch in stream.drain()] == [third]
    assert [(it.kind, it.tid, it.committed) for it in stream.got] == [
        ("insert", "1000", NOW + MINUTE),
        ("insert", "1000", NOW + MINUTE),
        ("insert", "1001", NOW + 2 * MINUTE),
        ("insert", "1002", NOW + 3 * MINUTE),
    ]
    assert [it.file.size for it in stream.got] == [5, 6, 7, 8]


def test_the_state_has_no_files_that_were_removed_before(books: Books) -> None:
    gone, stays = books.add(), books.add()
    new = books.add([5], gone)
    stream = Stream(books)
    stream.drain()
    assert paths(stream.got) == stays + new


def test_an_empty_table_is_waited_for(books: Books) -> None:
    stream = Stream(books)
    assert stream.drain() == []
    assert stream.at == STATE
    added = books.add()
    stream.drain()
    assert paths(stream.got) == added


def test_a_table_of_commits_without_files_is_passed_once(books: Books) -> None:
    books.add([])
    stream = Stream(books)
    assert stream.drain() == [[]]
    books.add([])
    assert stream.drain() == [[]]
    assert paths(stream.got) == []


def test_a_commit_with_an_older_tid_that_comes_late_is_read(books: Books) -> None:
    books.add(tid="5")
    stream = Stream(books)
    stream.drain()
    late = books.add(tid="3")
    assert [paths(it) for it in stream.drain()] == [late]


def test_a_commit_with_an_older_time_that_appears_late_is_read(books: Books) -> None:
    books.add()
    stream = Stream(books)
    stream.drain()
    late = books.add(at=books.now - 59 * MINUTE)
    assert [paths(it) for it in stream.drain()] == [late]


def test_commits_of_the_same_time_are_told_apart(books: Books) -> None:
    stream = Stream(books, at=FROM_THE_FIRST)
    for tid in "527":
        books.add(tid=tid, at=NOW)
        stream.drain()
    assert [it.tid for it in stream.got] == ["5", "2", "7"]


TIMES = st.sampled_from([0, 0, 1, 10, 59, 61, 300, 5000, -1, -10, -59])
FILES = st.lists(st.integers(0, 9), max_size=4)
COMMITS = st.tuples(st.just("commit"), TIMES, FILES)
LIMITS = st.builds(BatchLimits, files=st.none() | st.integers(1, 4), size_bytes=st.none() | st.integers(1, 20))
STEPS = st.lists(COMMITS | st.sampled_from([("read",), ("killed",)]), max_size=40)
STARTS = st.sampled_from([STATE, FROM_THE_FIRST])


@given(STEPS, LIMITS, STARTS, st.sampled_from([1, 3, 500]))
def test_each_file_is_read_once_whatever_the_times_the_limits_and_the_restarts(
    steps: list[Any], most: BatchLimits, start: Start, most_tids: int
) -> None:
    """Clocks step back by less than the margin, which is a minute where offsets would be large."""
    books, unit = Books(), MINUTE if most_tids == 500 else timedelta(seconds=1)
    stream = Stream(books, most=most, at=start)
    newest = NOW
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(position, "MOST_TIDS", most_tids)
        for step in steps:
            if step[0] == "commit":
                time = newest + step[1] * unit
                books.add(step[2], at=time)
                newest = max(newest, time)
            elif step[0] == "read":
                stream.batch()
            else:  # it has planned a batch, and makes it again
                end = books.feed().after(stream.at, most)
                if isinstance(end, Position):
                    books.feed().between(stream.at, end)
        stream.drain()
    assert sorted(paths(stream.got)) == sorted(path for it in books.commits for path in it.marker.added)


@given(STEPS, LIMITS, STARTS)
def test_a_batch_has_the_same_files_whenever_it_is_made_again(
    steps: list[Any], most: BatchLimits, start: Start
) -> None:
    books = Books()
    made = list[tuple[Position | Start, Position, list[FileChange]]]()
    at: Position | Start = start
    newest = NOW
    for step in steps:
        if step[0] == "commit":
            time = newest + step[1] * MINUTE
            books.add(step[2], at=time)
            newest = max(newest, time)
        else:
            end = reloaded(books.feed().after(at, most))
            if isinstance(end, Position):
                made.append((at, end, books.feed().between(at, end)))
            at = end
    for begin, end, found in made:
        assert books.feed().between(begin, end) == found


@given(st.lists(st.tuples(st.sampled_from([0, 1, 10, 61]), FILES), max_size=20), LIMITS, STARTS)
def test_what_is_read_is_in_the_order_of_the_history(commits: list[Any], most: BatchLimits, start: Start) -> None:
    books = Books()
    for minutes, files in commits:
        books.add(files, at=books.now + minutes * MINUTE)
    stream = Stream(books, most=most, at=start)
    stream.drain()
    assert paths(stream.got) == [path for it in in_order(books.commits) for path in it.marker.added]


FAR = st.sampled_from([1, 61, 3000, -59, -61, -3000, -12_000, -60_000])


@given(st.lists(st.tuples(FAR, FILES, st.booleans()), max_size=25), LIMITS, STARTS)
def test_whatever_the_clock_does_nothing_is_passed_over_in_silence(
    steps: list[Any], most: BatchLimits, start: Start
) -> None:
    """Set back by an hour, a day, a week or a month: either it is read, or the stream fails."""
    books = Books()
    stream = Stream(books, most=most, at=start)
    try:
        for minutes, files, reads in steps:
            books.add(files, at=books.now + minutes * MINUTE)
            if reads:
                stream.batch()
        stream.drain()
    except HistoryLostError:
        return
    assert sorted(paths(stream.got)) == sorted(path for it in books.commits for path in it.marker.added)


@pytest.mark.parametrize("back", [61 * MINUTE, DAY, 8 * DAY, 40 * DAY, 20_000 * DAY])
def test_a_commit_behind_the_back_of_a_stream_makes_it_fail(books: Books, back: timedelta) -> None:
    """By 20,000 days: the machine of a disk began with the time of 1970."""
    books.add()
    stream = Stream(books)
    stream.drain()
    books.add(at=books.now - back)
    with pytest.raises(HistoryLostError, match="1 commits of memory://table have come with times before"):
        stream.batch()
    told = Stream(books, FeedOptions(fail_on_data_loss=False), at=stream.at)
    feed = books.feed(told.wanted)
    assert feed.after(told.at) == told.at
    assert "the store's clock was set back" in feed.warnings[0]
    after = books.add(at=NOW + DAY)
    assert [paths(it) for it in told.drain()] == [after]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_marker_that_was_brought_back_is_not_read_twice(books: Books, which: int) -> None:
    for _ in range(4):
        books.add(at=books.now + 2 * HOUR)
    stream = Stream(books)
    stream.drain()
    before = [*books.commits]
    for lost in (before[:which] + before[which + 1 :], [*before[:which], *before[which + 1 :], before[which]]):
        books.commits = lost
        if lost[-1] == before[which]:
            books.commits[-1] = before[which]._replace(modified=books.now + DAY)
        with pytest.raises(HistoryLostError, match="1 commits of memory://table that this stream has read have gone"):
            stream.batch()
    books.commits = before  # with the time that it had
    after = books.add(at=books.now + DAY)
    assert [paths(it) for it in stream.drain()] == [after]


def test_a_marker_that_was_brought_back_within_the_margin_is_not_read_twice(books: Books) -> None:
    for _ in range(4):
        books.add(at=books.now + MINUTE)
    stream = Stream(books)
    stream.drain()
    books.commits[1] = books.commits[1]._replace(modified=books.now + 10 * MINUTE)
    after = books.add(at=books.now + DAY)
    assert [paths(it) for it in stream.drain()] == [after]


def test_commits_that_a_checkpoint_may_have_forgotten_are_not_missed(books: Books) -> None:
    for _ in range(4):
        books.add(at=books.now + 2 * HOUR)
    stream = Stream(books)
    stream.drain()
    books.now += 25 * DAY
    del books.commits[0]
    after = books.add(at=books.now)
    assert [paths(it) for it in stream.drain()] == [after]


def test_a_batch_that_was_planned_fails_where_a_commit_came_behind_its_back(books: Books) -> None:
    books.add()
    end = books.feed().after(STATE)
    assert isinstance(end, Position)
    books.add(at=books.now - 2 * HOUR)
    with pytest.raises(HistoryLostError, match=r"1 commits of .* have come with times before"):
        books.feed().between(STATE, end)


def test_a_batch_that_is_read_again_has_a_commit_that_came_behind_its_back_and_no_other_batch_has(books: Books) -> None:
    """NOTES.md, Positions of streams, step 2: with `fail_on_data_loss=False` it goes on, and the warning says that."""
    first = books.add()
    start = books.feed().after(STATE)
    second = books.add(at=books.now + DAY)
    end = books.feed().after(start)
    assert isinstance(end, Position)
    late = books.add(at=books.now - 2 * HOUR)
    feed = books.feed(FeedOptions(fail_on_data_loss=False))
    assert sorted(paths(feed.between(start, end))) == sorted([*second, *late])
    assert "A batch that covers the time of such a commit has its rows" in feed.warnings[0]
    earlier = books.add(at=NOW - DAY)
    assert not {*first, *earlier} & {*paths(feed.between(start, end))}
    assert feed.after(end) == end
    assert "no other batch has them" in feed.warnings[-1]


# --- limits -------------------------------------------------------------------------------------------------------


def sizes_of_batches(books: Books, most: BatchLimits, at: Start = STATE) -> list[list[int]]:
    return [[it.file.size for it in batch] for batch in Stream(books, most=most, at=at).drain()]


@pytest.mark.parametrize("start", [STATE, FROM_THE_FIRST], ids=["state", "commits"])
@pytest.mark.parametrize(
    ("most", "batches"),
    [
        (ALL, [[1, 2, 3, 4, 5]]),
        (BatchLimits(files=1), [[1], [2], [3], [4], [5]]),
        (BatchLimits(files=2), [[1, 2], [3, 4], [5]]),
        (BatchLimits(files=4), [[1, 2, 3, 4], [5]]),
        (BatchLimits(size_bytes=3), [[1, 2], [3], [4], [5]]),
        (BatchLimits(size_bytes=1), [[1], [2], [3], [4], [5]]),
        (BatchLimits(size_bytes=100, files=3), [[1, 2, 3], [4, 5]]),
    ],
    ids=str,
)
def test_a_batch_ends_at_its_limit_also_inside_of_a_commit(
    books: Books, start: Start, most: BatchLimits, batches: list[list[int]]
) -> None:
    books.add([1, 2, 3])
    books.add([4, 5])
    assert sizes_of_batches(books, most, start) == batches


@given(st.lists(FILES, max_size=8), LIMITS, STARTS)
def test_a_batch_is_not_larger_than_its_limits_by_more_than_one_file(
    commits: list[list[int]], most: BatchLimits, start: Start
) -> None:
    books = Books()
    for files in commits:
        books.add(files)
    for batch in sizes_of_batches(books, most, start):
        assert most.files is None or len(batch) <= most.files
        assert most.size_bytes is None or len(batch) <= 1 or sum(batch[:-1]) <= most.size_bytes


def test_a_part_of_a_commit_goes_on_before_all_that_came_before_it_meanwhile(books: Books) -> None:
    books.add()
    stream = Stream(books, most=BatchLimits(files=1))
    stream.drain()
    large = books.add([1, 2, 3])
    stream.batch()
    late = books.add([4], at=books.now - 10 * MINUTE)
    stream.drain()
    assert paths(stream.got)[1:] == large + late


def test_a_file_of_unknown_size_weighs_nothing(books: Books) -> None:
    for tid in "12":
        books.commits.append(Decided(NOW, tid, marker([data(tid)])))
    assert sizes_of_batches(books, BatchLimits(size_bytes=1)) == [[-1, -1]]


# --- where a stream begins ----------------------------------------------------------------------------------------


def test_the_state_is_read_in_pieces_beside_commits_that_come_meanwhile(books: Books) -> None:
    first = books.add([1, 2, 3])
    stream = Stream(books, most=BatchLimits(files=2))
    stream.batch()
    more = books.add([4])
    late = books.add([5], at=books.now - 30 * MINUTE)
    assert [paths(it) for it in stream.drain()] == [first[2:], late + more]


def test_a_state_of_which_files_were_removed_meanwhile_is_still_read_to_its_end(books: Books) -> None:
    first = books.add([1, 2, 3])
    stream = Stream(books, SKIP, most=BatchLimits(files=2))
    stream.batch()
    books.add([4], first)
    stream.drain()
    assert paths(stream.got) == first


def test_a_state_of_which_files_were_vacuumed_before_they_were_read_is_lost(books: Books) -> None:
    first = books.add([1, 2, 3])
    stream = Stream(books, SKIP, most=BatchLimits(files=2))
    stream.batch()
    books.add([4], first)
    books.forget("1000", added=first)
    books.forget("1001", removed=first)
    with pytest.raises(HistoryLostError, match=r"of 3 files that were live .* 3 were removed, and vacuumed"):
        stream.batch()


def test_a_stream_can_begin_with_a_commit_or_with_a_time(books: Books) -> None:
    books.add()
    second, third = books.add(tid="77"), books.add()
    for start in (Start(begin="tid", tid="77"), Start(begin="time", time=NOW + 2 * MINUTE)):
        stream = Stream(books, at=start)
        stream.drain()
        assert paths(stream.got) == second + third
    fourth = books.add()
    stream.drain()
    assert paths(stream.got) == second + third + fourth


def test_a_time_to_come_is_waited_for(books: Books) -> None:
    books.add()
    stream = Stream(books, at=Start(begin="time", time=books.now + HOUR))
    assert stream.drain() == []
    books.add()
    later = books.add(at=NOW + 3 * HOUR)
    stream.drain()
    assert paths(stream.got) == later


def test_a_commit_to_begin_with_that_is_not_known_is_refused(books: Books) -> None:
    books.add()
    with pytest.raises(InvalidInputError, match=r"has no commit '99' to begin with; `dbio log` lists"):
        books.feed().after(Start(begin="tid", tid="99"))


def test_an_adopted_directory_is_read_as_what_its_adoption_found(books: Books) -> None:
    """What was hidden in it was never in the table, and so nothing was taken away."""
    old = [data("9", 1), data("9", 2)]
    books.commits.append(
        Decided(NOW, "77", marker(old, [data("9", 0)], operation="adopt", files=AddedFiles(size=[5, 5], rows=[1, 1])))
    )
    new = books.add()
    for wanted in (FeedOptions(), CHANGES):
        for start in (STATE, FROM_THE_FIRST):
            stream = Stream(books, wanted, at=start)
            stream.drain()
            assert paths(stream.got) == old + new


# --- rows that went -----------------------------------------------------------------------------------------------


@pytest.fixture
def changed(books: Books) -> tuple[Books, list[str], list[str], list[str]]:
    """An append, an overwrite of it, an append."""
    first = books.add([1, 2])
    second = books.add([3], first)
    return books, first, second, books.add([4])


def test_what_comes_before_a_commit_that_took_rows_away_is_still_read(changed: Any) -> None:
    books, first, *_ = changed
    stream = Stream(books, at=FROM_THE_FIRST)
    assert paths(stream.batch()) == first
    for _ in range(2):
        with pytest.raises(ChangedRowsError, match=r"1001 .*overwrite.* skipChangeCommits=true .* ignoreChanges=true"):
            stream.batch()
    assert paths(stream.got) == first


def test_commits_that_took_rows_away_are_passed_over_on_request(changed: Any) -> None:
    books, first, _, third = changed
    stream = Stream(books, SKIP, at=FROM_THE_FIRST)
    stream.drain()
    assert paths(stream.got) == first + third


def test_what_they_add_is_read_on_request(changed: Any) -> None:
    books, first, second, third = changed
    stream = Stream(books, IGNORE, at=FROM_THE_FIRST)
    stream.drain()
    assert paths(stream.got) == first + second + third


def test_a_feed_of_changes_has_the_rows_that_went_before_those_that_came(changed: Any) -> None:
    books, first, second, third = changed
    stream = Stream(books, CHANGES, most=BatchLimits(files=1), at=FROM_THE_FIRST)
    stream.drain()
    assert [(it.kind, it.file.path) for it in stream.got] == [
        *(("insert", path) for path in first),
        *(("delete", path) for path in first),
        *(("insert", path) for path in second + third),
    ]
    removed = stream.got[2]
    assert (removed.file.size, removed.file.tid, removed.tid) == (1, "1000", "1001")


def test_a_file_that_two_commits_remove_goes_once(books: Books) -> None:
    """DBIO's writers may do so."""
    first = books.add()
    for tid in "78":
        books.commits.append(Decided(NOW + HOUR, tid, marker([], first)))
    stream = Stream(books, CHANGES, at=FROM_THE_FIRST)
    stream.drain()
    assert [(it.kind, it.tid) for it in stream.got] == [("insert", "1000"), ("delete", "7")]


@pytest.mark.parametrize("wanted", [FeedOptions(), SKIP, IGNORE, CHANGES], ids=["plain", "skip", "ignore", "changes"])
def test_a_rewrite_that_changes_no_rows_is_passed_over(books: Books, wanted: FeedOptions) -> None:
    first, second = books.add(), books.add()
    books.add([10], first + second, operation="rewrite", data_change=False)
    third = books.add()
    stream = Stream(books, wanted, at=FROM_THE_FIRST)
    stream.drain()
    assert [(it.kind, it.file.path) for it in stream.got] == [("insert", path) for path in first + second + third]


def test_a_stream_that_begins_after_a_rewrite_has_what_it_wrote(books: Books) -> None:
    first = books.add()
    compact = books.add([5], first, operation="rewrite", data_change=False)
    stream = Stream(books)
    stream.drain()
    assert paths(stream.got) == compact


ROWS = st.lists(st.tuples(st.sampled_from(["append", "overwrite", "compact"]), FILES), max_size=12)


@given(ROWS, LIMITS)
def test_the_changes_of_a_feed_add_up_to_the_table(steps: list[Any], most: BatchLimits) -> None:
    """But for what a compaction carried over, which no feed tells."""
    books, live, carried = Books(), list[str](), set[str]()
    for operation, files in steps:
        if operation == "append":
            live += books.add(files)
        else:
            is_change = operation == "overwrite"
            added = books.add(files, live or [data("0")], data_change=None if is_change else False)
            carried = carried if is_change else carried | {*live, *added}
            live = added
    stream = Stream(books, CHANGES, most, at=FROM_THE_FIRST)
    stream.drain()
    told = set[str]()
    for change in stream.got:
        (told.add if change.kind == "insert" else told.discard)(change.file.path)
    assert told - carried == {*live} - carried


# --- what is lost -------------------------------------------------------------------------------------------------


def test_files_of_a_commit_that_were_vacuumed_before_it_was_read_are_lost(changed: Any) -> None:
    books, first, second, third = changed
    books.forget("1000", added=first[:1])
    stream = Stream(books, SKIP, at=FROM_THE_FIRST)
    with pytest.raises(HistoryLostError, match=r"1 files of commit 1000 .* vacuumed or erased, .* longer retention"):
        stream.batch()
    stream = Stream(books, replace(IGNORE, fail_on_data_loss=False), at=FROM_THE_FIRST)
    stream.drain()
    assert paths(stream.got) == first[1:] + second + third


def test_what_comes_before_lost_files_is_still_read(books: Books) -> None:
    zero = books.add()
    first = books.add()
    books.add([3], first)
    books.forget("1001", added=first)
    stream = Stream(books, SKIP, at=FROM_THE_FIRST)
    assert paths(stream.batch()) == zero
    with pytest.raises(HistoryLostError):
        stream.batch()


def test_files_that_went_and_were_vacuumed_are_lost_to_a_feed_of_changes_only(changed: Any) -> None:
    books, first, second, third = changed
    stream = Stream(books, CHANGES, most=BatchLimits(files=2), at=FROM_THE_FIRST)
    stream.batch()
    books.forget("1000", added=first)
    books.forget("1001", removed=first)
    with pytest.raises(HistoryLostError, match="2 files of commit 1001"):
        stream.drain()
    plain = Stream(books, IGNORE, at=stream.at)
    plain.drain()
    assert paths(plain.got) == second + third


@pytest.mark.parametrize("wanted", [IGNORE, replace(IGNORE, fail_on_data_loss=False)], ids=["fails", "warns"])
def test_a_part_of_a_commit_that_has_other_files_now_is_lost(books: Books, wanted: FeedOptions) -> None:
    """Nobody knows any more which of them were read."""
    first = books.add([1, 2, 3])
    stream = Stream(books, wanted, most=BatchLimits(files=2), at=FROM_THE_FIRST)
    stream.batch()
    books.add([4], first)
    books.forget("1000", added=first[:1])
    with pytest.raises(HistoryLostError):
        stream.batch()


def test_a_part_that_was_planned_of_a_commit_that_has_other_files_now_is_lost(books: Books) -> None:
    first = books.add([1, 2, 3])
    wanted = replace(IGNORE, fail_on_data_loss=False)
    end = books.feed(wanted).after(FROM_THE_FIRST, BatchLimits(files=2))
    assert isinstance(end, Position)
    books.add([4], first)
    books.forget("1000", added=first[:1])
    with pytest.raises(HistoryLostError, match="had 3 files when this stream had read 2 of them, and has 2 now"):
        books.feed(wanted).between(FROM_THE_FIRST, end)


def test_a_table_that_was_made_anew_is_another(books: Books) -> None:
    books.add()
    stream = Stream(books)
    stream.drain()
    feed = books.feed(origin=Origin("other"))
    assert isinstance(stream.at, Position)
    with pytest.raises(HistoryLostError, match="another table than the one that this stream began to read"):
        feed.after(stream.at)
    with pytest.raises(HistoryLostError, match="another table"):
        feed.between(STATE, stream.at)


def test_a_stream_that_stood_for_longer_than_the_history_is_kept_is_lost(books: Books) -> None:
    books.add()
    stream = Stream(books)
    stream.drain()
    last = books.now
    books.known_since = last + 5 * DAY
    kept = books.add(at=last + 28 * DAY)
    assert [paths(it) for it in stream.drain()] == [kept]
    books.known_since = last + 32 * DAY
    books.now = last + 62 * DAY
    with pytest.raises(HistoryLostError, match="has forgotten commits since"):
        stream.batch()


def test_a_stream_that_stood_is_not_lost_where_nothing_was_forgotten(books: Books) -> None:
    books.add()
    stream = Stream(books)
    stream.drain()
    new = books.add(at=NOW + 400 * DAY)
    assert [paths(it) for it in stream.drain()] == [new]


def test_a_start_before_what_the_history_knows_is_lost(books: Books) -> None:
    books.add(at=NOW + 90 * DAY)
    books.known_since = NOW + 30 * DAY
    with pytest.raises(HistoryLostError, match="of commits that are older than 30 days"):
        books.feed().after(FROM_THE_FIRST)
    assert isinstance(books.feed().after(STATE), Position)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=15), st.integers(1, 500))
def test_commits_that_are_forgotten_are_never_missed_in_silence(steps: list[Any], most_tids: int) -> None:
    """A checkpoint forgets whole commits, whose files were overwritten and vacuumed, a month after them."""
    books, live = Books(), list[str]()
    expected, forgotten = list[str](), set[str]()
    stream = Stream(books, SKIP, at=FROM_THE_FIRST)
    reads = iter([reads for _, reads in steps])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(position, "MOST_TIDS", most_tids)
        try:
            for weeks, _ in steps:
                at = books.now + MINUTE + weeks * 10 * DAY
                if len(live) < 3:
                    new = books.add(at=at)
                    expected += new
                    live += new
                else:
                    books.add([], live, at=at)
                    live = []
                gone = {path for it in books.commits for path in it.marker.removed}
                old = [it for it in books.commits if it.modified < books.now - 30 * DAY]
                old = [it for it in old if {*it.marker.added} <= gone and it.modified != books.known_since]
                old = [it for it in old if {*it.marker.removed} <= gone]
                if old:
                    last = max(it.modified for it in books.commits if it.marker.removed)
                    books.known_since = last
                    forgotten |= {it.tid for it in old}
                    books.commits = [it for it in books.commits if it not in old]
                if next(reads):
                    stream.drain()
            stream.drain()
        except HistoryLostError:
            return
    assert paths(stream.got) == expected


# --- ends, lags, spans --------------------------------------------------------------------------------------------


def test_a_stream_that_is_to_end_reads_what_was_there_when_it_began(books: Books) -> None:
    first = books.add([1, 2])
    stream = Stream(books, most=BatchLimits(files=1), target=books.feed().newest())
    stream.batch()
    books.add([3])
    books.add([4], at=NOW)  # which came late, too
    stream.drain()
    assert paths(stream.got) == first
    stream.target = None
    stream.drain()
    assert [it.file.size for it in stream.got] == [1, 2, 4, 3]


def test_a_stream_that_is_to_end_at_an_empty_table_reads_nothing(books: Books) -> None:
    target = books.feed().newest()
    books.add()
    assert Stream(books, target=target).drain() == []
    assert Stream(books, target=target, at=FROM_THE_FIRST).drain() == []


@given(st.lists(FILES, max_size=8), LIMITS, STARTS, st.integers(0, 8))
def test_what_a_stream_lags_behind_is_what_it_has_not_read(
    commits: list[list[int]], most: BatchLimits, start: Start, batches: int
) -> None:
    books = Books()
    for files in commits:
        books.add(files)
    stream = Stream(books, most=most, at=start)
    for _ in range(batches):
        stream.batch()
    lag = books.feed().lag(stream.at)
    done = {*paths(stream.got)}
    rest = [it.file for commit in books.commits for it in books.feed()._changes(commit) if it.file.path not in done]
    assert (lag.files, lag.size_bytes) == (len(rest), sum(file.size for file in rest))
    stream.drain()
    assert books.feed().lag(stream.at) == Lag(0, 0, 0, None) or not commits


def test_files_that_went_are_none_that_a_feed_of_changes_lags_behind(changed: Any) -> None:
    books, *_ = changed
    stream = Stream(books, CHANGES, most=BatchLimits(files=3), at=FROM_THE_FIRST)
    stream.batch()  # both files that were added first, and one of them as it went
    assert books.feed(CHANGES).lag(stream.at)[:2] == (2, 2)


def test_a_span_has_each_commit_from_one_to_another_both_included(changed: Any) -> None:
    books, first, second, third = changed
    feed = books.feed(CHANGES)

    def told(start: Start, end: datetime | str | None) -> list[tuple[str, list[str]]]:
        return [(commit.tid, paths(changes)) for commit, changes in feed.span(start, end)]

    everything = [("1000", first), ("1001", first + second), ("1002", third)]
    assert told(FROM_THE_FIRST, None) == everything
    assert told(Start(begin="tid", tid="1001"), "1001") == everything[1:2]
    assert told(Start(begin="time", time=NOW + 2 * MINUTE), NOW + 2 * MINUTE) == everything[1:2]
    assert told(Start(begin="time", time=NOW + 2 * MINUTE), NOW + MINUTE) == []
    with pytest.raises(InvalidInputError, match="has no commit '1000' at or after the start"):
        told(Start(begin="tid", tid="1001"), "1000")


def test_a_file_outside_of_the_partitions_makes_its_marker_corrupt(books: Books) -> None:
    books.add()
    with pytest.raises(CorruptMarkerError, match="which lies in no partition by"):
        books.feed(layouts=frozenset({("day",)})).after(FROM_THE_FIRST)


def test_files_that_commits_removed_are_doubtful(changed: Any) -> None:
    books, first, *_ = changed
    feed = books.feed(IGNORE)
    end = feed.after(FROM_THE_FIRST)
    assert isinstance(end, Position)
    assert feed.doubtful(feed.between(FROM_THE_FIRST, end)) == first


# --- commits that tell what they changed --------------------------------------------------------------------------


def told(changes: Sequence[FileChange]) -> list[tuple[str, str]]:
    return [(change.kind, change.file.path) for change in changes]


OLD, GONE, NEW, CAME, CDC = data("a", 0), data("a", 1), data("b", 0), data("b", 1), data("b", 2)
SINCE_B = Start(begin="tid", tid="b")


def rewrite(books: Books, *, whole: Sequence[str]) -> None:
    """Of two files; one goes whole, of the other some rows change."""
    books.add([5, 5], tid="a")
    books.add([5, 5, 5], [OLD, GONE, CDC], tid="b", operation="rewrite", whole=[*whole])


def test_a_feed_of_changes_reads_what_a_commit_tells_and_not_what_it_wrote_again(books: Books) -> None:
    rewrite(books, whole=[GONE, CAME])
    stream = Stream(books, CHANGES, at=SINCE_B)
    assert told(stream.batch()) == [("delete", GONE), ("insert", CAME), ("recorded", CDC)]
    assert stream.batch() == []


def test_a_commit_that_changed_nothing_and_says_so_is_read_as_nothing(books: Books) -> None:
    books.add([5, 5], tid="a")
    books.add([5], [OLD], tid="b", operation="rewrite", whole=[])
    assert Stream(books, CHANGES, at=SINCE_B).batch() == []


def test_no_other_stream_reads_files_of_changes(books: Books) -> None:
    rewrite(books, whole=[])
    assert told(Stream(books, IGNORE, at=SINCE_B).batch()) == [("insert", NEW), ("insert", CAME)]
    assert told(Stream(books).batch()) == [("insert", NEW), ("insert", CAME)], "the state"
    with pytest.raises(ChangedRowsError):
        Stream(books, at=SINCE_B).batch()


def test_a_feed_may_end_within_what_a_commit_tells(books: Books) -> None:
    rewrite(books, whole=[GONE, CAME])
    stream = Stream(books, CHANGES, most=BatchLimits(files=1), at=SINCE_B)
    assert [paths(stream.batch()) for _ in range(4)] == [[GONE], [CAME], [CDC], []]


def test_a_feed_fails_where_files_of_changes_are_forgotten(books: Books) -> None:
    rewrite(books, whole=[])
    books.forget("b", added=[CDC], removed=[CDC, OLD, GONE])
    with pytest.raises(HistoryLostError):
        Stream(books, CHANGES, at=SINCE_B).batch()


def test_files_of_changes_may_be_gone_and_are_looked_for(books: Books) -> None:
    rewrite(books, whole=[CAME])
    feed = books.feed(CHANGES)
    [(_, changes)] = feed.span(SINCE_B, None)
    assert feed.doubtful(changes) == [CDC]


def test_without_whole_a_path_that_is_added_and_removed_is_no_file_of_changes(books: Books) -> None:
    books.add([5], [data("b", 0)], tid="b", operation="rewrite")
    assert books.commits[0].marker.change_files == []


def test_what_a_commit_tells_row_by_row_is_read_at_once(books: Books) -> None:
    books.add([5], tid="a")
    books.add([5, 5, 5], [data("a", 0), data("b", 1), data("b", 2)], tid="b", operation="rewrite", whole=[data("b", 0)])
    stream = Stream(books, CHANGES, most=BatchLimits(files=1), at=SINCE_B)
    assert [paths(stream.batch()) for _ in range(3)] == [[data("b", 0)], [data("b", 1), data("b", 2)], []]


# --- how long it takes ------------------------------------------------------------------------------------------------


class Looked(list[Decided]):
    """Commits, and how many of them were looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)

    def __iter__(self) -> Any:
        for commit in super().__iter__():
            self.looks += 1
            yield commit


@pytest.mark.parametrize("begin", ["the first", "the last"])
def test_a_batch_takes_no_longer_for_more_commits_that_were_read_or_are_left(begin: str) -> None:
    looks = set[int]()
    for count in (2_000, 4_000):
        books = Books()
        for _ in range(count):
            books.add()
        commits = Looked(books.commits)
        history = replace(books.feed()._history, commits=commits)
        start = books.commits[0 if begin == "the first" else -50].tid
        at = Feed(history, PLAIN).after(Start(begin="tid", tid=start), BatchLimits(files=1))
        Feed(history, PLAIN).lag(at)  # this goes through all commits once for each history
        commits.looks = 0
        for _ in range(10):
            feed = Feed(history, PLAIN)
            end = feed.after(at, BatchLimits(files=1))
            assert isinstance(end, Position)
            assert feed.lag(end).commits == feed.lag(at).commits - 1
            assert len(Feed(history, PLAIN).between(at, end)) == 1
            at = end
        looks.add(commits.looks)
    (found,) = looks
    assert found < 10 * 1_500, "the tids of an hour, and the batch"


def test_a_batch_of_the_state_reads_the_state_once(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        books.add([5, 5])
    history, made = books.feed()._history, Mock(wraps=live_files)
    monkeypatch.setattr("dbio_commit.protocol.history.live_files", made)
    at: Position | Start = STATE
    for number in range(10):
        feed = Feed(history, PLAIN)
        end = feed.after(at, BatchLimits(files=4))
        assert isinstance(end, Position)
        assert len(feed.between(at, end)) == 4
        assert feed.lag(end) == Lag(0, 36 - 4 * number, 5 * (36 - 4 * number), None)
        at = end
    made.assert_called_once()
