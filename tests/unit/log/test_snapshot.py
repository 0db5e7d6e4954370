"""Reading a table from a store that others change meanwhile, and every way in which a read is refused.

Rules: PROTOCOL.md 8.1.
"""

import gzip
import json
import pickle
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dbio_commit.base.errors import (
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    TableNotFoundError,
    UnsupportedTableError,
)
from dbio_commit.cli.snapshot import snapshot_json
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import UNKNOWN_SIZE
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import DESCRIPTOR, NOW, OLD, World, columns, data, versions_of
from tests.faults import PagedLog, calls_to, once
from tests.writers import live, stage, write_days
from vacuum import VacuumOptions, vacuum_table

CHECKPOINT = f"_checkpoint_{1:020d}"


# --- table scope: one state from listings that commits overtake (R1 to R3) ----------------------------------------


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_commit_during_a_read_is_seen_whole_or_not_at_all(nth: int) -> None:
    world = World()
    world.commit("1", [data("1")])
    world.when("list_log", "*", lambda: world.commit("2", [data("2"), data("2", 1)], [data("1")]), nth=nth)
    assert world.seen() == ({data("2"), data("2", 1)} if nth < 3 else {data("1")})


def test_what_vacuum_purged_before_it_could_be_listed_is_read_from_the_checkpoint_which_is_listed_last() -> None:  # I6
    """A commit comes behind the cursor of listing 1, another ahead of it. Listing 2 is suspended for half an hour
    after its first page: a checkpoint comes behind the cursor, and the marker of the first commit goes, ahead of it.
    """
    clock = ManualClock()
    store = MemoryStore(clock)
    table = Table.over(store, clock)
    table.begin(partition_by=["day"]).abort()  # a marker that stays for 30 days
    clock.sleep(1)
    first = table.begin()
    stage(table, first, partition={"day": "1"})
    clock.sleep(1)
    write_days(table, "append", b=b"old")
    second = table.begin("overwrite_partitions")  # its marker stays as long as the file that it removes
    stage(table, second, partition={"day": "b"})

    def commit() -> None:
        first.commit()
        second.commit()

    def vacuum_twice() -> None:
        for _ in range(2):
            vacuum_table(table, VacuumOptions(checkpoint_after=0))
            clock.advance(timedelta(minutes=31))

    seen = live(Table.over(PagedLog(store, {(1, 2): commit, (2, 1): vacuum_twice}), clock))
    assert names.committed(first.tid) not in store.objects
    assert seen == live(table)


def test_a_listing_that_shows_a_later_commit_without_an_earlier_one_is_not_believed() -> None:
    class Overtaken(World):
        listings = 0

        """Its first listing passes the place of `_committed_1` before that is created, and of `_committed_2` after."""

        def list_log(self, *prefixes: str) -> list[Entry]:
            self.listings += 1
            return [e for e in super().list_log(*prefixes) if self.listings > 1 or e.path != "_committed_1"]

    world = Overtaken(descriptor=True)
    world.commit("1", [data("1")])
    world.commit("2", [data("2")])
    assert world.seen() == {data("1"), data("2")}


def before_listings(world: World, second: Callable[[], None], third: Callable[[], None]) -> None:
    """What others do right before the second, and the third, listing of commit markers."""
    steps = [once("list_log", "_checkpoint_ _committed_", second), once("list_log", "_committed_", third)]

    def before(operation: str, path: str) -> None:
        for step in steps:
            step(operation, path)

    world.before = before


READ = [
    ("list_log", ""),
    ("get", "_dbio_table"),
    ("get", "_committed_1"),
    ("list_log", "_checkpoint_ _committed_"),
]
"""All but the first call may be made at the same time."""


def test_a_reader_lists_the_log_once_and_commit_markers_and_checkpoints_once_more_and_no_data_file() -> None:
    world = World()
    world.commit("1", [data("1")], files={"size": [5], "rows": [1]})
    with calls_to(world) as calls:
        world.seen()
    assert calls == READ


def test_a_reader_that_commits_overtake_without_end_lists_once_more_and_sees_all_that_came_before_it() -> None:  # R1
    world = World()
    world.commit("0", [data("0")])
    came: list[str] = []

    def always(operation: str, path: str) -> None:
        calls.append((operation, path))
        if operation == "list_log":
            came.append(str(len(came) + 1))
            world.commit(came[-1], [data(came[-1])])

    calls: list[tuple[str, str]] = []
    world.before = always
    seen = world.seen()
    listings = [path for operation, path in calls if operation == "list_log"]
    assert listings == ["", "_checkpoint_ _committed_", "_committed_", "_checkpoint_"]
    assert {data("0")} <= seen < {data(tid) for tid in ("0", *came)}


def test_a_reader_leaves_out_what_came_after_the_newest_that_it_had_listed_and_says_so() -> None:  # R3
    world = World()
    world.commit("1", [data("1")])
    before_listings(
        world,
        lambda: world.commit("2", [data("2")], at=NOW),
        lambda: world.commit("3", [data("3")], at=NOW + timedelta(seconds=9)),
    )
    snapshot = world.snapshot()
    assert snapshot.tids == ("1", "2")
    assert set(snapshot.log.later) == {"3"}
    assert not snapshot.log.pending


def test_a_reader_takes_the_turns_before_one_that_it_saw_whatever_the_stores_clock_said() -> None:  # R3
    world = World()
    late = NOW + timedelta(seconds=9)
    world.commit("1", [data("1")])

    def turns_1_and_3() -> None:
        world.commit("2", [data("2")], at=late, operation="overwrite", turn=1)
        world.commit("4", [data("4")], at=late, operation="overwrite", turn=3)

    before_listings(world, lambda: world.commit("3", [data("3")], at=NOW, operation="overwrite", turn=2), turns_1_and_3)
    snapshot = world.snapshot()
    assert set(snapshot.tids) == {"1", "2", "3"}
    assert set(snapshot.log.later) == {"4"}


def test_what_a_reader_has_read_it_does_not_read_again() -> None:
    world = World()
    sized = {"size": [5], "rows": [1]}
    world.commit("1", [data("1")], files=sized)
    table = world.table()
    table.snapshot()
    world.commit("2", [data("2")], files=sized)
    with calls_to(world) as calls:
        assert table.snapshot().tids == ("1", "2")
    assert calls == [READ[0], ("get", "_committed_2"), READ[-1]]


def test_a_marker_that_was_withdrawn_while_it_was_read_counts_as_absent() -> None:
    """It decided nothing: no checkpoint covers it, though it is gone."""
    world = World()
    world.commit("1", [data("1")])
    world.commit("2", [data("2")])
    world.when("get", "_committed_1", lambda: world.delete("_committed_1"))
    assert world.seen() == {data("2")}


@pytest.mark.parametrize("descriptor", [True, False])
def test_a_marker_that_vacuum_purges_before_it_is_read_restarts_the_read(descriptor: bool) -> None:
    world = World(descriptor=descriptor)
    world.commit("1", [data("1")])
    world.commit("2", [data("2")])
    world.when("get", "_committed_1", lambda: world.delete("_committed_1", data("1")))
    assert world.seen() == {data("2")}


def test_a_table_that_is_deleted_under_the_read_is_not_found() -> None:
    world = World()
    world.commit("1", [data("1")])
    world.when("get", "_dbio_table", world.objects.clear)
    with pytest.raises(TableNotFoundError):
        world.snapshot()


def test_a_table_that_is_created_while_an_empty_place_is_read_shows_nothing_uncommitted() -> None:
    """The first listing finds no descriptor; what is there at the second is in the table scope (I1)."""
    world = World(descriptor=False)

    def create() -> None:
        world.put_json("_dbio_table", {**DESCRIPTOR, "partition_columns": ["day"]}, at=NOW)
        world.put("_started_1", modified=NOW)
        world.files(f"day=1/{data('1')}", at=NOW)

    world.when("list_files", "", create)
    snapshot = world.snapshot()
    assert (snapshot.scope, snapshot.files, snapshot.partition_columns) == (Scope.TABLE, (), ("day",))


# --- directory scope: torn listings -------------------------------------------------------------------------------


class Torn(World):
    """The objects are those of the second listing; the first one shows others."""

    first: Sequence[Entry] = ()
    listings = 0

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        self.listings += 1
        return list(self.first) if self.listings == 1 else super().list_files(under)

    def remember(self, *, without: Sequence[str] = ()) -> None:
        """The first listing is of what is there now."""
        self.first = [entry for entry in super().list_files() if entry.path not in without]


def test_what_commits_between_two_listings_of_a_directory_stays_hidden() -> None:
    world = Torn(descriptor=False)
    world.files(data("1"), data("2"), at=NOW)
    world.commit("1", [data("1")], at=NOW)
    world.remember()  # with the file of 2, and none of its markers
    world.put("_started_2", modified=NOW)
    world.commit("2", [data("2")], [data("1")], at=NOW)
    assert world.seen() == {data("1")}
    assert world.listings == 2


def test_a_pending_transaction_whose_start_marker_was_missed_stays_hidden() -> None:
    world = Torn(descriptor=False)
    world.put("_started_2", modified=NOW)
    world.files(data("1"), data("2"), at=NOW)
    world.remember(without=["_started_2"])
    assert world.seen() == {data("1")}


def test_an_added_file_that_a_listing_missed_is_found_by_the_next() -> None:
    world = Torn(descriptor=False)
    world.commit("1", [data("1"), data("1", 1)], at=NOW)
    world.remember(without=[data("1", 1)])
    assert world.seen() == {data("1"), data("1", 1)}


def test_a_file_that_vacuum_deletes_between_two_listings_is_not_seen() -> None:
    world = Torn(descriptor=False)
    world.files(data("1"), data("2"), at=NOW)
    world.commit("3", [data("3")], at=NOW)
    world.remember()
    world.delete(data("1"))
    assert world.seen() == {data("2"), data("3")}


def test_markers_that_vacuum_purges_between_two_listings_still_decide() -> None:
    world = Torn(descriptor=False)
    world.files(data("1"), data("1", 7), data("2"), at=NOW)  # 1: a winner and a failed attempt; 2: purged long ago
    world.commit("1", [data("1")], at=NOW)
    world.remember()
    world.delete(data("1", 7))
    assert world.seen() == {data("1"), data("2")}


def test_a_directory_that_goes_between_two_listings_shows_nothing() -> None:
    world = Torn(descriptor=False)
    world.files(f"day=1/{data('1')}", "day=2/untracked.parquet", at=NOW)
    world.remember()
    world.delete(f"day=1/{data('1')}")
    assert world.seen() == {"day=2/untracked.parquet"}


def test_only_young_directories_are_listed_again() -> None:
    world = Torn(descriptor=False)
    world.files(f"day=1/{data('1')}", at=OLD - timedelta(hours=1))
    world.remember()
    assert world.seen() == {f"day=1/{data('1')}"}
    assert world.listings == 1


def test_a_reader_whose_clock_is_a_day_ahead_sees_no_uncommitted_file() -> None:
    world = Torn(descriptor=False)
    world.files(data("1"), at=NOW - timedelta(days=1))  # which is now, by the store's clock
    world.remember()  # it was overtaken: the start marker is there, and not in this listing
    world.put("_started_1", modified=NOW - timedelta(days=1))
    assert world.seen() == set()


def test_what_lies_behind_a_slash_in_a_bucket_is_hidden_also_directly_below_the_root() -> None:
    world = World(descriptor=False)
    world.files(data("1"), "/x.parquet", "a//x.parquet")
    world.put_json("/_committed_1", {"added": [], "removed": []})
    assert world.seen() == {data("1")}


# --- as of --------------------------------------------------------------------------------------------------------


def three_commits(*, descriptor: bool) -> World:
    """1 adds; 2 replaces what 1 added; 3 adds. An hour apart, 1 at OLD."""
    world = World(descriptor=descriptor)
    world.commit("1", [data("1")], at=OLD)
    world.commit("2", [data("2")], [data("1")], at=OLD + timedelta(hours=1))
    world.commit("3", [data("3")], at=OLD + timedelta(hours=2))
    return world


@pytest.mark.parametrize("descriptor", [True, False])
def test_a_table_is_read_as_of_a_time_a_text_or_a_tid(descriptor: bool) -> None:
    world = three_commits(descriptor=descriptor)
    assert world.seen(as_of="1") == {data("1")}
    assert world.seen(as_of="2") == {data("2")}
    assert world.seen(as_of="3") == world.seen() == {data("2"), data("3")}
    assert world.seen(as_of=OLD) == {data("1")}
    assert world.seen(as_of=OLD - timedelta(microseconds=1)) == set()
    assert world.seen(as_of=(OLD + timedelta(hours=1)).isoformat()) == {data("2")}
    assert world.seen(as_of=NOW + timedelta(days=9)) == {data("2"), data("3")}


@pytest.mark.parametrize("state_form", ["one body", "tiny parts"], indirect=True)
def test_a_read_of_a_time_before_the_first_commit_names_the_time_and_the_first_commit(
    table: Table, state_form: str
) -> None:
    before = "2020-01-01T00:00:00+00:00"
    first = write_days(table, a=b"1")
    table.checkpoint()
    state = table.snapshot(before)
    assert state.count() == 0
    for ask in (state.to_arrow, state.to_pandas, state.to_batches):
        with pytest.raises(
            InvalidInputError,
            match=rf"had no commit as of {re.escape(before)}; the first in its history is {first.tid}, of",
        ):
            ask()
    assert table.snapshot(first.tid).too_early == table.snapshot().too_early == ""


def test_a_read_of_a_directory_of_before_its_first_commit_names_that_commit() -> None:
    world = three_commits(descriptor=False)
    with pytest.raises(InvalidInputError, match=r"had no commit as of .*; the first in its history is 1, of"):
        world.snapshot(as_of=OLD - timedelta(hours=1)).to_arrow()


@pytest.mark.parametrize("descriptor", [True, False])
@pytest.mark.parametrize("as_of", ["4", "yesterday", "2026-11-20T12:00:00", datetime(2026, 11, 20), ""])
def test_an_unknown_tid_and_a_time_without_zone_are_refused(descriptor: bool, as_of: datetime | str) -> None:
    with pytest.raises(InvalidInputError):
        three_commits(descriptor=descriptor).snapshot(as_of=as_of)


def test_as_of_leaves_alone_what_no_transaction_wrote_and_what_is_still_pending() -> None:
    world = three_commits(descriptor=False)
    world.files("untracked.parquet", data("purged"), data("4"))
    world.put("_started_4", modified=OLD)
    assert world.seen(as_of="1") == {data("1"), "untracked.parquet", data("purged")}


def test_as_of_counts_a_transaction_over_several_directories_from_its_last_marker_on() -> None:
    world = World(descriptor=False)
    for hour, place in enumerate(["day=1", "day=2"]):
        world.files(f"{place}/{data('1')}")
        world.put_json(f"{place}/_committed_1", {"added": [data("1")], "removed": []}, at=OLD + timedelta(hours=hour))
    assert world.seen(as_of=OLD) == set()
    assert len(world.seen(as_of=OLD + timedelta(hours=1))) == len(world.seen(as_of="1")) == 2


# --- what a snapshot knows ----------------------------------------------------------------------------------------


def test_a_snapshot_knows_its_transactions_and_its_urls() -> None:
    world = three_commits(descriptor=True)
    world.put_json(
        "_committed_4",
        {
            "added": [],
            "removed": [],
            "dbio_commit": {"version": 1, "operation": "abort", "commit_id": "x", "timestamp": "2026-11-20T00:00:00Z"},
        },
        at=NOW,
    )
    snapshot = world.snapshot()
    assert snapshot.tids == ("1", "2", "3")
    assert snapshot.urls() == [f"memory://table/{data('2')}", f"memory://table/{data('3')}"]
    assert [(commit.tid, commit.timestamp, commit.operation) for commit in snapshot.history()] == [
        ("3", OLD + timedelta(hours=2), "unknown"),
        ("2", OLD + timedelta(hours=1), "unknown"),
        ("1", OLD, "unknown"),
    ]
    assert [commit.tid for commit in world.table().history()] == ["3", "2", "1"]
    assert snapshot.history()[1].removed == [data("1")]


def test_the_tables_schema_and_application_versions_are_those_of_the_snapshot() -> None:
    world = World()
    narrow, wide = columns("id"), columns("id", "more")
    world.commit("1", at=OLD, schema=narrow, schema_turn=1, app={"id": "job", "version": 7})
    world.commit("3", at=OLD + timedelta(hours=1), schema=wide, schema_turn=2, app={"id": "job", "version": 9})
    world.commit("2", at=OLD + timedelta(hours=2), schema=narrow, schema_turn=1, app={"id": "job", "version": 8})
    assert world.snapshot().schema == wide
    assert world.snapshot().app_versions == {"job": versions_of(7, 8, 9)}
    before = world.snapshot(as_of="1")
    assert (before.schema, before.app_versions) == (narrow, {"job": versions_of(7)})


def test_the_schema_is_decoded_once_for_a_snapshot_and_not_pickled_twice() -> None:
    world = World()
    world.commit("1", [data("1")], schema=columns("id"), schema_turn=1)
    snapshot = world.snapshot()
    before = len(pickle.dumps(snapshot))
    assert snapshot.schema is not None
    assert snapshot.schema is snapshot.schema
    assert len(pickle.dumps(snapshot)) == before
    assert pickle.loads(pickle.dumps(snapshot)).schema == snapshot.schema


def test_sizes_that_no_marker_tells_are_looked_up_and_a_missing_file_is_still_named() -> None:
    world = World()
    world.commit("1", [data("1")], files={"size": [77], "rows": [None]})
    world.commit("2", [data("2"), data("2", 1)])
    world.delete(data("2", 1))
    sizes = {file.path: file.size for file in world.snapshot().files}
    assert sizes == {data("1"): 77, data("2"): 5, data("2", 1): UNKNOWN_SIZE}


def test_a_directory_snapshot_has_sizes_and_partitions_of_the_listing() -> None:
    world = World(descriptor=False)
    world.files(f"day=1/{data('1')}", "day=__HIVE_DEFAULT_PARTITION__/a%2Fb.parquet")
    snapshot = world.snapshot()
    assert snapshot.scope is Scope.DIRECTORY
    assert snapshot.partition_columns == ("day",)
    assert [(f.path, f.size, f.tid, f.partition) for f in snapshot.files] == [
        (f"day=1/{data('1')}", 5, "1", {"day": "1"}),
        ("day=__HIVE_DEFAULT_PARTITION__/a%2Fb.parquet", 5, None, {"day": None}),
    ]


# --- transactions over several directories ------------------------------------------------------------------------


def test_a_half_committed_transaction_whose_other_half_was_aborted_can_still_be_read() -> None:
    world = World(descriptor=False)
    for place in ("day=1", "day=2"):
        world.put(f"{place}/_started_1", modified=OLD)
        world.files(f"{place}/{data('1')}")
    world.put_json("day=2/_committed_1", {"added": [data("1")], "removed": []})
    world.table().abort("1")
    assert world.seen() == {f"day=2/{data('1')}"}
    assert world.snapshot().tids == ("1",)


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("descriptor", [True, False])
def test_a_marker_larger_than_any_writers_is_refused_before_it_is_read(descriptor: bool) -> None:
    class Vast(World):
        """Says of one marker, which really is tiny, that it has more than 64 MiB."""

        def _entries(self, prefix: str) -> list[Entry]:
            entries = super()._entries(prefix)
            return [e._replace(size=MAX_BYTES + 1) if e.path == "_committed_2" else e for e in entries]

    world = Vast(descriptor=descriptor)
    world.commit("1", [data("1")])
    world.put("_started_2", modified=OLD)
    world.commit("2", [data("2")])
    read: list[str] = []
    world.before = lambda operation, path: read.append(path) if operation == "get" else None
    with pytest.raises(CorruptMarkerError, match=str(MAX_BYTES)):
        world.snapshot()
    assert world.seen(ignore_corrupt_markers=True) == {data("1")}
    assert "_committed_1" in read
    assert "_committed_2" not in read


def test_a_live_file_outside_of_the_layout_is_an_error_that_nobody_can_ignore() -> None:
    """PROTOCOL.md 8.1, rule 4 of the state."""
    world = World()
    world.commit("1", [data("1")])
    world.commit("2", [f"day=1/{data('2')}"])
    for ignored in (False, True):
        with pytest.raises(CorruptMarkerError, match=r"_committed_2 adds .* lies in no such partition"):
            world.snapshot(ignore_corrupt_markers=ignored)


HOSTILE = ["../x", "/x", "a/../../x", "a//b", "./a", "a/", "", "a\0b", "a\nb", "a\x1bb", "..\\x", "x" * 5000, "\ud800"]


@pytest.mark.parametrize("descriptor", [True, False])
@pytest.mark.parametrize("key", ["added", "removed"])
@pytest.mark.parametrize("path", HOSTILE)
def test_a_marker_with_a_hostile_path_is_refused_and_can_be_ignored(descriptor: bool, key: str, path: str) -> None:
    world = World(descriptor=descriptor)
    world.commit("1", [data("1")])
    world.put_json("_committed_2", {"added": [], "removed": [], key: [path]})
    with pytest.raises(CorruptMarkerError, match="_committed_2"):
        world.snapshot()
    assert world.seen(ignore_corrupt_markers=True) == {data("1")}


@pytest.mark.parametrize("path", ["_x", ".x", "_temporary/a", "day=1/_x", "day=1/.x/a"])
def test_a_commit_that_adds_what_readers_skip_is_refused_in_a_table_and_can_be_ignored(path: str) -> None:
    world = World()
    world.commit("1", [data("1")])
    world.put_json("_committed_2", {"added": [path], "removed": []})
    with pytest.raises(CorruptMarkerError, match="_committed_2"):
        world.snapshot()
    assert world.seen(ignore_corrupt_markers=True) == {data("1")}


def test_a_marker_of_another_directory_is_refused_and_can_be_ignored() -> None:
    world = World(descriptor=False)
    world.commit("1", [data("1")])
    world.put_json("_committed_2", {"added": [], "removed": ["day=1/a"]})
    with pytest.raises(CorruptMarkerError, match="another directory"):
        world.snapshot()
    assert world.seen(ignore_corrupt_markers=True) == {data("1")}


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"added": [1], "removed": []}'])
def test_a_body_that_is_no_marker_is_refused_by_name(body: bytes) -> None:
    world = World()
    world.put("_committed_1", body, modified=OLD)
    with pytest.raises(CorruptMarkerError, match="memory://table/_committed_1"):
        world.snapshot()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHECKPOINT, gzip.compress(b'{"version": 3}\n', mtime=0)),
        ("_committed_5", b'{"added": [], "removed": [], "dbio_commit": {"version": 4}}'),
        ("_dbio_table", json.dumps({**DESCRIPTOR, "version": 2}).encode()),
    ],
)
def test_ignoring_corrupt_markers_ignores_no_later_version(path: str, body: bytes) -> None:
    world = World()
    world.put(path, body)
    with pytest.raises(UnsupportedTableError, match=path):
        world.snapshot(ignore_corrupt_markers=True)


def test_ignoring_corrupt_markers_ignores_no_corrupt_checkpoint() -> None:
    """What it covers is told nowhere else."""
    world = World()
    world.commit("1", [data("1")])
    world.put(CHECKPOINT, b"{}")
    with pytest.raises(CorruptMarkerError, match=CHECKPOINT):
        world.snapshot(ignore_corrupt_markers=True)


def test_a_directory_whose_checkpoint_cannot_be_read_may_be_a_table_and_is_not_read() -> None:
    world = World(descriptor=False)
    world.commit("1", [data("1")])
    world.put(CHECKPOINT, b"{}")
    with pytest.raises(CorruptMarkerError, match=CHECKPOINT):
        world.seen()


@pytest.mark.parametrize("found", [[], ["_SUCCESS"], ["_temporary/0/a.parquet", ".x"]])
def test_a_path_without_data_and_markers_is_no_table(found: list[str]) -> None:
    world = World(descriptor=False)
    world.files(*found)
    with pytest.raises(TableNotFoundError, match="memory://table"):
        world.snapshot()


def test_a_local_path_that_is_not_there_or_no_directory_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for path in (tmp_path / "nothing", tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(TableNotFoundError, match=path.name):
            Table(path).snapshot()


def test_a_directory_that_holds_a_table_further_down_is_refused() -> None:
    world = World(descriptor=False)
    world.files("a.parquet")
    world.put_json("lake/events/_dbio_table", DESCRIPTOR)
    with pytest.raises(InvalidInputError, match="memory://table/lake/events"):
        world.snapshot()


USES: list[Callable[[Table], object]] = [Table.snapshot, Table.history, Table.begin, Table.check]


@pytest.mark.parametrize("use", USES)
def test_a_partition_of_a_table_is_refused_for_it_is_none_by_itself(
    use: Callable[[Table], object], tmp_path: Path
) -> None:  # 2.1
    partition = tmp_path / "table/day=1/hour=2"
    partition.mkdir(parents=True)
    (tmp_path / "table/_dbio_table").write_text(json.dumps({**DESCRIPTOR, "partition_columns": ["day", "hour"]}))
    (partition / data("1")).write_bytes(b"pending")
    for path in (partition, partition.parent):
        with pytest.raises(InvalidInputError, match="is a partition of the table"):
            use(Table(path))


def test_a_partition_of_a_directory_without_descriptor_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "table/day=1").mkdir(parents=True)
    (tmp_path / "table/day=1/a.parquet").write_bytes(b"x")
    assert [file.path for file in Table(tmp_path / "table/day=1").snapshot().files] == ["a.parquet"]


def test_every_refusal_is_an_error_of_ours() -> None:
    """No traceback of a library, whatever a stranger leaves at the root."""
    for name in ("_dbio_table", "_committed_1", f"_serial_{1:020d}", CHECKPOINT, "_committed_vacuum1"):
        for body in (b"", b"\x00", b"[]", b"{}", b'{"version": "x"}'):
            world = World()
            world.put(name, body, modified=OLD)
            with suppress(DbioError):
                world.snapshot()


def test_a_writer_that_begins_while_another_creates_the_table_is_in_the_table_scope() -> None:
    """In the directory scope its commit would be markers in partitions, which no reader of the table ever sees."""
    world = World(descriptor=False)
    world.when("list_files", "", lambda: world.put_json("_dbio_table", {**DESCRIPTOR, "partition_columns": ["day"]}))
    terms = world.table().begin(partition_by=["day"]).terms
    assert (terms.scope, terms.partition_columns) == (Scope.TABLE, ("day",))


# --- more than any writer writes ----------------------------------------------------------------------------------


def test_a_marker_that_grew_after_it_was_listed_is_corrupt_and_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.commit("1", [data("1")])
    world.commit("2", [data("2")])
    world.when("get", "_committed_2", lambda: world.put("_committed_2", bytes(MAX_BYTES + 1), modified=OLD))
    table = Table.over(world, ManualClock(NOW))
    with pytest.raises(CorruptMarkerError, match=f"_committed_2 has more than {MAX_BYTES} bytes"):
        table.snapshot()
    found = table.snapshot(ignore_corrupt_markers=True)
    assert {file.path for file in found.files} == {data("1")}


# --- names that other tools take for patterns ---------------------------------------------------------------------

PATTERNS = ["*.parquet", "day=?/a.parquet", "[a].parquet", "{../victim/x,y}", "a]b", "day={1/a.parquet"]


@pytest.mark.parametrize("path", PATTERNS)
def test_a_marker_that_adds_a_pattern_is_corrupt_in_the_table_scope(path: str) -> None:
    """Hadoop would read another table by it, DuckDB a file of an aborted transaction."""
    world = World()
    world.commit("1", [data("1")])
    world.commit("2", [path])
    table = Table.over(world, ManualClock(NOW))
    with pytest.raises(CorruptMarkerError, match=r"_committed_2 adds .*take for a pattern"):
        table.snapshot()
    assert table.check().corrupt.keys() == {"_committed_2"}
    assert {file.path for file in table.snapshot(ignore_corrupt_markers=True).files} == {data("1")}


def test_a_checkpoint_that_adds_a_pattern_is_corrupt() -> None:
    world = World()
    lines = [
        {
            "version": 1,
            "number": 1,
            "created": OLD.isoformat(),
            "commits": 1,
            "apps": {},
            "schemas": [],
            "schema_turn": 0,
        },
        {"tid": "1", "modified": OLD.isoformat(), "marker": {"added": ["a*"], "removed": []}},
    ]
    world.put(CHECKPOINT, gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()), modified=OLD)
    with pytest.raises(CorruptMarkerError, match="pattern"):
        Table.over(world, ManualClock(NOW)).snapshot()


@pytest.mark.parametrize("path", ["data[1].parquet", "k=*/a.parquet", "k={a/b.parquet"])
def test_an_untracked_file_that_is_a_pattern_is_read_and_not_named_to_other_tools(path: str) -> None:
    world = World(descriptor=False)
    world.files(path, "plain.parquet" if "/" not in path else "k=1/plain.parquet")
    table = Table.over(world, ManualClock(NOW))
    snapshot = table.snapshot()
    assert path in {file.path for file in snapshot.files}
    with pytest.raises(InvalidInputError, match=r"pattern.*rename it"):
        snapshot.urls()
    with pytest.raises(InvalidInputError, match=r"pattern.*rename it"):
        table.adopt()
    assert "_dbio_table" not in world.objects
    urls = {file["path"]: file["url"] for file in snapshot_json(snapshot)["files"]}
    assert urls.pop(path) is None
    assert all(urls.values())


def test_a_removed_pattern_is_fine() -> None:
    """An adoption removes what was hidden, whatever its name."""
    world = World()
    world.commit("1", [data("1")], ["a[1].parquet"])
    assert live(Table.over(world, ManualClock(NOW))) == {data("1")}


@pytest.mark.parametrize("suffix", ["*.parquet", ".[a]", "{a,b}"])
@pytest.mark.parametrize("descriptor", [True, False])
def test_no_file_of_ours_is_a_pattern(suffix: str, descriptor: bool) -> None:
    world = World(descriptor=descriptor)
    if not descriptor:
        world.files("plain.parquet")
    transaction = Table.over(world, ManualClock(NOW)).begin()
    with pytest.raises(InvalidInputError, match="pattern"):
        transaction.new_file(suffix)
