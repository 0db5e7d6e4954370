"""A stream over a table as it lies on a store: beside checkpoints, vacuums, adoptions and drops; and what a look costs.

What a stream reads of a history is in `test_feed`. Numbers I1 to I10: PROTOCOL.md section 5. Rules: PROTOCOL.md 8.4.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit import Table
from dbio_commit.base.errors import (
    ChangedRowsError,
    CorruptMarkerError,
    HistoryLostError,
    InvalidInputError,
    StoreError,
    TableNotFoundError,
)
from dbio_commit.feed.feed import ALL, BatchLimits, Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Position, Start, decode_position, encode_position
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import calls_to, fail_with, heal, once
from tests.tiny_parts import in_both_forms
from tests.unit.checkpointed import purge
from tests.writers import live, stage, write, write_days
from vacuum import VacuumOptions, vacuum_table

pytestmark = in_both_forms

DAY = timedelta(days=1)
FROM_THE_FIRST = Start(begin="time", time=ManualClock().now() - DAY)
SKIP = FeedOptions(skip_change_commits=True)


class Stream:
    """A query. `restart` leaves of it what is in its checkpoint: the offset, as text."""

    def __init__(
        self,
        table: Table,
        at: Position | Start | None = None,
        *,
        wanted: FeedOptions | None = None,
        most: BatchLimits = ALL,
    ) -> None:
        self.table, self.wanted, self.most = table, wanted or FeedOptions(), most
        self.at: Position | Start = at or Start()
        self.got: list[str] = []
        self.warnings: list[str] = []
        self.restart()

    def restart(self) -> None:
        self.follower = Follower(self.table.store, self.table.clock)
        self.at = decode_position(json.loads(json.dumps(encode_position(self.at))))

    def batch(self) -> list[str]:
        feed = Feed(self.follower.history(), self.wanted)
        end = feed.after(self.at, self.most)
        found = list[str]()
        if isinstance(end, Position) and end != self.at:
            changes = self.follower.without_deleted(feed, feed.between(self.at, end))
            found = [change.file.path for change in changes]
        self.at = end
        self.got += found
        self.warnings += feed.warnings
        return found

    def drain(self) -> list[str]:
        before, count = None, len(self.got)
        while before != self.at:
            before = self.at
            self.batch()
        return self.got[count:]


def append(table: Table) -> str:
    """A commit of one file, a minute after the last; its path."""
    later(table, minutes=1)
    (path,) = write(table).added
    return path


def overwrite(table: Table) -> str:
    later(table, minutes=1)
    (path,) = write(table, "overwrite").added
    return path


def compact(table: Table) -> None:
    """A rewrite of all that is live, whose rows stay the same."""
    later(table, minutes=1)
    with table.begin("rewrite", data_change=False) as transaction:
        transaction.remove(live(table))
        stage(table, transaction)


def later(table: Table, **by: float) -> None:
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(timedelta(**by))


def vacuum(table: Table, *, retention_hours: float = 1, **options: Any) -> None:
    told = VacuumOptions(retention_hours=retention_hours, checkpoint_after=1, **options)
    assert not vacuum_table(table, told).failed


# --- what a look costs --------------------------------------------------------------------------------------------


def test_where_nothing_is_new_one_listing_tells_so(table: Table, store: MemoryStore) -> None:
    for _ in range(3):
        append(table)
    stream = Stream(table)
    stream.drain()
    with calls_to(store) as calls:
        assert stream.batch() == []
    assert [operation for operation, _ in calls] == ["list_log"]


def test_a_new_commit_costs_no_marker_that_was_read_before(table: Table, store: MemoryStore) -> None:
    for _ in range(5):
        append(table)
    later(table, hours=1)
    stream = Stream(table)
    stream.drain()
    append(table)
    with calls_to(store) as calls:
        stream.batch()
    assert len([path for operation, path in calls if operation == "get" and path.startswith("_committed_")]) == 1
    assert sum(operation == "list_log" for operation, _ in calls) <= 5


def test_files_that_no_commit_removed_are_not_looked_for(table: Table, store: MemoryStore) -> None:
    append(table)
    stream = Stream(table)
    with calls_to(store) as calls:
        assert len(stream.drain()) == 1
    assert not [path for _, path in calls if path.startswith("part-")]


def test_what_could_not_be_read_is_read_the_next_time(table: Table, store: MemoryStore) -> None:
    path = append(table)
    stream = Stream(table)
    for operation, where in (("list_log", "_c*"), ("list_log", "*"), ("get", "_committed_*")):
        store.before = fail_with(StoreError("503"), operation, where, times=None)
        with pytest.raises(StoreError):
            stream.batch()
        heal(store)
    assert stream.batch() == [path]


def test_a_commit_that_comes_between_two_looks_of_a_batch_is_of_the_next(table: Table, store: MemoryStore) -> None:
    first = append(table)
    stream = Stream(table)
    feed = Feed(stream.follower.history(), FeedOptions())
    end = feed.after(stream.at)
    assert isinstance(end, Position)
    second = append(table)
    again = Feed(Follower(store, table.clock).history(), FeedOptions())
    assert [it.file.path for it in again.between(stream.at, end)] == [first]
    stream.at = end
    assert stream.batch() == [second]


# --- what is no table ---------------------------------------------------------------------------------------------


def test_where_nothing_is_there_is_nothing_to_follow(table: Table) -> None:
    with pytest.raises(TableNotFoundError):
        Stream(table).batch()


def test_a_directory_of_the_directory_scope_is_refused_until_it_is_adopted(table: Table, store: MemoryStore) -> None:
    store.put("a.parquet", b"PAR1....PAR1")
    with pytest.raises(InvalidInputError, match="`dbio adopt`"):
        Stream(table).batch()
    table.adopt()
    streams = [Stream(table), Stream(table, FROM_THE_FIRST)]
    assert [stream.drain() for stream in streams] == [["a.parquet"], ["a.parquet"]]
    path = append(table)
    assert [stream.drain() for stream in streams] == [[path], [path]]


def test_a_table_that_was_dropped_under_a_stream_and_made_anew_is_lost(table: Table) -> None:
    append(table)
    stream = Stream(table)
    stream.drain()
    table.drop(everything=True)
    with pytest.raises(TableNotFoundError):
        stream.batch()
    append(table)
    with pytest.raises(HistoryLostError, match="was removed; begin again with another checkpoint"):
        stream.batch()


@pytest.mark.parametrize("is_running", [True, False])
def test_a_stream_of_a_table_that_was_dropped_says_so_also_while_the_markers_are_still_there(
    table: Table, store: MemoryStore, is_running: bool
) -> None:
    append(table)
    stream = Stream(table)
    stream.drain()
    store.before = fail_with(KeyboardInterrupt(), "delete", "*")
    with pytest.raises(KeyboardInterrupt):
        table.drop(everything=True)
    heal(store)
    if not is_running:
        stream.restart()
    with pytest.raises(TableNotFoundError, match="was dropped"):
        stream.batch()


def test_a_stream_reads_anew_where_the_descriptor_is_another_and_all_markers_have_the_same_names(
    table: Table, store: MemoryStore
) -> None:
    append(table)
    stream = Stream(table)
    stream.drain()
    body, _ = store.objects["_dbio_table"]
    store.put("_dbio_table", json.dumps(json.loads(body) | {"id": "another"}).encode())
    with pytest.raises(HistoryLostError, match="which was removed; begin again"):
        stream.batch()


def test_a_corrupt_marker_ends_a_stream_and_loses_nothing(table: Table, store: MemoryStore) -> None:
    stream = Stream(table, FROM_THE_FIRST)
    first = append(table)
    stream.drain()
    store.put("_committed_77", b"{")
    second = append(table)
    with pytest.raises(CorruptMarkerError):
        stream.batch()
    store.delete_many(["_committed_77"])
    assert stream.drain() == [second]
    assert stream.got == [first, second]


# --- checkpoints, vacuums, and time -------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_checkpoints_and_purges_under_a_stream_change_nothing(table: Table, restarts: bool) -> None:
    stream = Stream(table, most=BatchLimits(files=1))
    expected = []
    for _ in range(8):
        expected.append(append(table))
        stream.batch()
        later(table, hours=2)
        vacuum(table)
        if restarts:
            stream.restart()
    stream.drain()
    assert stream.got == expected


def test_a_commit_whose_marker_was_purged_before_a_stream_looked_is_read(table: Table, store: MemoryStore) -> None:
    """Beside a marker that stays, as for the files that it removes: the same markers do not say the same history."""
    append(table)
    kept = overwrite(table)
    stream = Stream(table)
    assert stream.drain() == [kept]
    before = {path for path in store.objects if path.startswith("_committed_")}
    path = append(table)
    table.checkpoint()
    (marker,) = {path for path in store.objects if path.startswith("_committed_")} - before
    store.delete_many([marker, marker.replace("_committed_", "_started_")])
    assert stream.drain() == [path]


@pytest.mark.parametrize("deleted", [False, True])
def test_files_that_were_removed_are_read_while_they_are_there(table: Table, store: MemoryStore, deleted: bool) -> None:
    first = append(table)
    overwrite(table)
    if deleted:
        store.delete_many([first])
    stream = Stream(table, FROM_THE_FIRST)
    if not deleted:
        assert stream.batch() == [first]
        with pytest.raises(ChangedRowsError):
            stream.batch()
        return
    with pytest.raises(HistoryLostError, match=f"1 files .* were removed, and vacuumed, .*{first}"):
        stream.batch()


def test_a_stream_that_does_not_want_to_fail_passes_over_deleted_files_and_says_so(
    table: Table, store: MemoryStore
) -> None:
    first = append(table)
    second = append(table)
    overwrite(table)
    third = append(table)
    store.delete_many([first])
    stream = Stream(table, FROM_THE_FIRST, wanted=FeedOptions(skip_change_commits=True, fail_on_data_loss=False))
    assert stream.drain() == [second, third]
    assert ["were removed, and vacuumed" in warning for warning in stream.warnings] == [True]


@pytest.mark.parametrize("forgets", [True, False])
def test_changes_whose_files_a_vacuum_took_advise_another_start_and_nothing_of_streams(
    table: Table, store: MemoryStore, forgets: bool
) -> None:
    first = append(table)
    tid = table.history()[0].tid
    overwrite(table)
    later(table, hours=2)
    if forgets:
        vacuum(table)
        append(table)
    else:
        store.delete_many([first])
    with pytest.raises(HistoryLostError, match="begin with a later commit") as caught:
        Follower(store, table.clock).changes(Start(begin="tid", tid=tid), None)
    assert not [word for word in ("stream", "checkpoint", "failOnDataLoss") if word in str(caught.value)]


@pytest.mark.parametrize("fails", [True, False])
def test_what_a_vacuum_took_before_a_stream_read_it_is_lost(table: Table, fails: bool) -> None:
    append(table)
    overwrite(table)
    later(table, hours=2)
    vacuum(table)
    last = append(table)
    stream = Stream(table, FROM_THE_FIRST, wanted=FeedOptions(skip_change_commits=True, fail_on_data_loss=fails))
    if fails:
        with pytest.raises(HistoryLostError):
            stream.drain()
    else:
        assert stream.drain() == [last]
        assert stream.warnings


def test_a_compaction_and_the_vacuum_after_it_are_nothing_to_a_stream_that_keeps_up(table: Table) -> None:
    stream = Stream(table)
    expected = [append(table), append(table)]
    stream.drain()
    compact(table)
    assert stream.drain() == []
    later(table, hours=2)
    vacuum(table)
    expected.append(append(table))
    stream.drain()
    assert stream.got == expected


def test_a_stream_that_stood_for_months_goes_on_where_nothing_was_forgotten(table: Table) -> None:
    stream = Stream(table)
    append(table)
    stream.drain()
    expected = []
    for _ in range(3):
        later(table, days=40)
        expected.append(append(table))
        vacuum(table)
    assert stream.drain() == expected


def test_a_stream_that_stood_while_commits_were_forgotten_fails(table: Table) -> None:
    append(table)
    stream = Stream(table, wanted=SKIP)
    stream.drain()
    later(table, days=1)
    append(table)
    overwrite(table)  # of which the stream has had nothing
    for _ in range(3):
        later(table, days=20)
        vacuum(table)
        append(table)
    assert len(table.history()) < 6
    with pytest.raises(HistoryLostError):
        stream.drain()


ACTIONS = st.lists(
    st.sampled_from(
        ["append", "append", "late", "read", "read", "restart", "checkpoint", "purge", "vacuum", "day", "abort"]
    ),
    max_size=25,
)


@given(ACTIONS, st.builds(BatchLimits, files=st.none() | st.integers(1, 3)))
def test_each_file_is_read_once_beside_checkpoints_vacuums_and_late_commits(
    actions: list[str], most: BatchLimits
) -> None:
    """I9 of a stream: what is appended is never removed here, so nothing may be lost."""
    clock = ManualClock()
    store = MemoryStore(clock)
    table = Table.over(store, clock)
    expected, slow = [append(table)], list[Any]()
    stream = Stream(table, most=most)
    deeds: dict[str, Callable[[], object]] = {
        "append": lambda: expected.append(append(table)),
        "read": stream.batch,
        "restart": stream.restart,
        "checkpoint": table.checkpoint,
        "purge": lambda: purge(store),
        "vacuum": lambda: vacuum(table, retention_hours=48),
        "day": lambda: later(table, days=1),
        "abort": lambda: table.begin().abort(),
    }
    for action in actions:
        if action == "late":  # what began before others commits after them
            if slow:
                transaction = slow.pop()
                expected.append(stage(table, transaction))
                transaction.commit()
            else:
                slow.append(table.begin())
        else:
            deeds[action]()
        if slow and slow[0].tid in table.snapshot().log.committed:
            slow.clear()  # vacuum gave it up
    stream.drain()
    assert sorted(stream.got) == sorted(expected)


def test_partitions_come_with_the_files(table: Table) -> None:
    write_days(table, d1=b"1")
    stream = Stream(table)
    feed = Feed(stream.follower.history(), FeedOptions())
    end = feed.after(stream.at)
    assert isinstance(end, Position)
    assert [it.file.partition for it in feed.between(stream.at, end)] == [{"day": "d1"}]


def test_a_stream_that_a_purge_overtakes_reads_what_a_later_look_finds(table: Table, store: MemoryStore) -> None:
    expected = [append(table) for _ in range(3)]

    def overtake() -> None:
        table.checkpoint()
        purge(store)

    store.before = once("get", "_committed_*", overtake)
    stream = Stream(table)
    assert sorted(stream.drain()) == sorted(expected)
