"""What `check` finds: each thing that can be wrong, pending or garbage, in both scopes."""

import json
from datetime import timedelta
from typing import Any

import pytest

from dbio_commit.base.errors import CorruptMarkerError, TableNotFoundError
from dbio_commit.maintenance.check import CheckReport, WrongSize
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.scope import Scope
from tests import builders
from tests.builders import NOW, OLD, data

SCOPES = pytest.mark.parametrize("scope", list(Scope))


class World(builders.World):
    """A table to damage; in either scope its markers are at the root."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(descriptor=scope is Scope.TABLE)

    def check(self) -> CheckReport:
        return self.table().check()


def told(*sizes: int) -> dict[str, Any]:
    """What a commit of ours says of its files."""
    return {"size": sizes, "rows": [None] * len(sizes)}


def paths(report: CheckReport) -> dict[Reason, list[str]]:
    return {reason: [entry.path for entry in entries] for reason, entries in report.garbage.items()}


@SCOPES
def test_a_table_in_good_order_has_nothing_to_report(scope: Scope) -> None:
    world = World(scope)
    world.mark("1", [world.data(data("1"), 5), world.data(data("1", 1), 7)], files=told(5, 7))
    report = world.check()
    assert report.ok
    assert (report.url, report.scope) == ("memory://table", scope)
    assert (report.live_files, report.live_size) == (2, 12)
    assert [report.missing, report.wrong_size, report.corrupt, report.pending, report.garbage] == [[], [], {}, [], {}]


@SCOPES
def test_live_files_that_are_not_there_are_missing(scope: Scope) -> None:
    world = World(scope)
    world.mark("1", [data("1", 1), data("1"), world.data(data("1", 2))], files=told(5, 5, 5))
    report = world.check()
    assert report.missing == [data("1"), data("1", 1)]
    assert not report.ok
    assert report.live_size == 5


@SCOPES
def test_a_file_that_a_later_commit_removed_may_be_gone(scope: Scope) -> None:
    world = World(scope)
    world.mark("1", [data("1")])
    world.mark("2", [], [data("1")])
    assert world.check().missing == []
    assert world.check().ok


@SCOPES
def test_a_live_file_of_another_length_than_its_marker_says_is_reported_with_both(scope: Scope) -> None:
    world = World(scope)
    world.mark("1", [world.data(data("1"), 4), world.data(data("1", 1), 0)], files=told(5, 9))
    world.mark("2", [world.data(data("2"), 1)])  # a stranger's, who tells no size
    world.mark("3", [world.data(data("3"), 1)], files=told(2))
    world.mark("4", [], [data("3")])  # nobody reads that one any more
    report = world.check()
    assert report.wrong_size == [
        WrongSize(path=data("1"), expected=5, found=4),
        WrongSize(path=data("1", 1), expected=9, found=0),
    ]
    assert not report.missing
    assert not report.ok


@SCOPES
def test_corrupt_markers_are_reported_each_with_what_is_wrong(scope: Scope) -> None:
    world = World(scope)
    world.mark("1", [world.data(data("1"))])
    world.put("_committed_2", b"{", modified=OLD)
    world.put("_committed_3", json.dumps({"added": ["../x"], "removed": []}).encode(), modified=OLD)
    world.start("2", at=NOW - timedelta(days=1))
    world.data(data("2"))
    report = world.check()
    assert set(report.corrupt) == {"_committed_2", "_committed_3"}
    assert "memory://table/_committed_2" in report.corrupt["_committed_2"]
    assert "../x" in report.corrupt["_committed_3"]
    assert not report.ok
    assert report.live_files == 1


@SCOPES
def test_a_marker_too_large_to_read_is_corrupt(scope: Scope) -> None:
    class Vast(World):
        def _entries(self, prefix: str) -> list[Entry]:
            found = super()._entries(prefix)
            return [e._replace(size=MAX_BYTES + 1) if e.path == "_committed_1" else e for e in found]

    world = Vast(scope)
    world.mark("1", [world.data(data("1"))])
    world.data("untracked.parquet")
    assert set(world.check().corrupt) == {"_committed_1"}


@pytest.mark.parametrize(
    ("scope", "path"),
    [(Scope.TABLE, "_hidden"), (Scope.TABLE, "day=1/.hidden"), (Scope.DIRECTORY, "day=1/a")],
)
def test_a_marker_whose_paths_do_not_fit_its_scope_is_corrupt(scope: Scope, path: str) -> None:
    world = World(scope)
    world.mark("1", [world.data(data("1"))])
    world.mark("2", [path])
    report = world.check()
    assert set(report.corrupt) == {"_committed_2"}
    assert repr(path) in report.corrupt["_committed_2"]
    assert report.missing == []
    assert report.live_files == 1


def test_a_marker_that_adds_a_file_outside_of_the_tables_partitions_is_corrupt_since_no_reader_reads_the_table() -> (
    None
):
    world = World(Scope.TABLE)
    world.mark("1", [world.data(data("1"))])
    world.mark("2", [world.data(f"day=1/{data('2')}")])
    report = world.check()
    assert set(report.corrupt) == {"_committed_2"}
    assert "lies in no such partition" in report.corrupt["_committed_2"]
    world.mark("3", [], [f"day=1/{data('2')}"])  # what is live no more harms nobody
    assert world.check().ok


@SCOPES
def test_pending_transactions_are_reported_oldest_first_with_age_files_and_bytes(scope: Scope) -> None:
    world = World(scope)
    world.start("5", at=NOW - timedelta(hours=1))
    world.start("6", at=NOW - timedelta(hours=3))
    world.start("7", at=NOW - timedelta(hours=2))
    world.mark("7", [world.data(data("7"))])
    world.data(data("5"), 10)
    second = f"day=1/{data('5')}" if scope is Scope.TABLE else data("5", 1)
    world.data(second, 20)
    directory, name = names.split(second)
    world.data(names.join(directory, f".{name}.crc"), 12)  # which Hadoop leaves beside it on a disk
    report = world.check()
    assert [(p.tid, p.age, p.started, p.files, p.size) for p in report.pending] == [
        ("6", timedelta(hours=3), NOW - timedelta(hours=3), 0, 0),
        ("5", timedelta(hours=1), NOW - timedelta(hours=1), 2, 30),
    ]
    assert report.ok  # a writer at work is nothing wrong


def test_a_transaction_with_many_start_markers_is_pending_once_from_the_first_on() -> None:
    world = World(Scope.DIRECTORY)
    for hours, place in enumerate(["day=1", "day=2", "day=3"], start=1):
        world.put(f"{place}/_started_5", modified=NOW - timedelta(hours=hours))
        world.data(f"{place}/{data('5')}")
    [pending] = world.check().pending
    assert (pending.tid, pending.age, pending.files, pending.size) == ("5", timedelta(hours=3), 3, 15)


@SCOPES
def test_a_start_marker_of_the_future_has_no_age_below_zero(scope: Scope) -> None:
    world = World(scope)
    world.start("5", at=NOW - timedelta(hours=-1))
    [pending] = world.check().pending
    assert pending.age == timedelta()


def test_garbage_of_a_table_is_told_by_kind() -> None:
    world = World(Scope.TABLE)
    world.mark("1", [world.data(data("1")), world.data(data("1", 1)), world.data("by-name")])
    world.mark("2", [], [data("1", 1)])
    world.data(data("1", 2))
    world.mark("3", operation="abort")
    world.data(data("3"))
    world.start("4", at=NOW - timedelta(minutes=1))
    world.data(data("4"), 50)
    world.data(data("5"))
    world.data("day=2/copied.parquet")
    world.data(f"day=2/{data('3')}")  # as if it had been to change the layout
    world.data(f"day=2/{data('1')}")  # a copy, since the table has no partitions
    world.data("day=3/_started_6", 0)
    world.data(f"day=3/{data('6')}")
    for hidden in ("_SUCCESS", "_temporary/0/x", f"day=1/.{data('5')}", f"day=1/_started_{'1'}"):
        world.data(hidden)
    report = world.check()
    assert paths(report) == {
        Reason.REMOVED: [data("1", 1)],
        Reason.FAILED_ATTEMPT: [data("1", 2)],
        Reason.ABORTED: [f"day=2/{data('3')}", data("3")],
        Reason.PENDING: [data("4")],
        Reason.UNKNOWN: [data("5")],
        Reason.UNTRACKED: ["day=2/copied.parquet", f"day=2/{data('1')}"],
        Reason.FOREIGN: [f"day=3/{data('6')}"],
    }
    assert sum(entry.size for entry in report.garbage[Reason.PENDING]) == 50
    assert (report.live_files, report.live_size) == (2, 10)
    assert report.ok


def test_garbage_of_a_directory_is_told_by_kind_and_what_no_marker_knows_is_live() -> None:
    world = World(Scope.DIRECTORY)
    world.mark("1", [world.data(data("1")), world.data(data("1", 1))])
    world.mark("2", [], [data("1", 1), world.data("old.parquet")])
    world.data(data("1", 2))
    world.mark("3", operation="abort")
    world.data(data("3"))
    world.start("4", at=NOW - timedelta(minutes=1))
    world.data(data("4"))
    live = [data("1"), world.data(data("5")), world.data("copied.parquet"), world.data(f"day=1/{data('1', 2)}")]
    report = world.check()
    assert paths(report) == {
        Reason.REMOVED: ["old.parquet", data("1", 1)],
        Reason.FAILED_ATTEMPT: [data("1", 2)],
        Reason.ABORTED: [data("3")],
        Reason.PENDING: [data("4")],
    }
    assert (report.live_files, report.live_size) == (len(live), 5 * len(live))


def test_in_directories_each_name_is_garbage_where_its_own_markers_say_so() -> None:
    world = World(Scope.DIRECTORY)
    for place in ("day=1", "day=2"):
        world.data(f"{place}/{data('1')}")
        world.put(f"{place}/_committed_1", json.dumps({"added": [data("1")], "removed": []}).encode(), modified=OLD)
    world.put("day=2/_committed_2", json.dumps({"added": [], "removed": [data("1")]}).encode(), modified=OLD)
    world.put("day=3/_committed_2", json.dumps({"added": [data("2")], "removed": []}).encode(), modified=OLD)
    report = world.check()
    assert paths(report) == {Reason.REMOVED: [f"day=2/{data('1')}"]}
    assert report.missing == [f"day=3/{data('2')}"]
    assert report.live_files == 1


def test_files_that_a_corrupt_marker_speaks_of_count_as_pending_while_their_start_marker_is_there() -> None:
    world = World(Scope.TABLE)
    world.start("1", at=NOW - timedelta(hours=1))
    world.put("_committed_1", b"{", modified=OLD)
    world.data(data("1"))
    assert paths(world.check()) == {Reason.PENDING: [data("1")]}


@SCOPES
@pytest.mark.parametrize("overtaken", [("list_files", ""), ("list_log", ""), ("get", "_committed_1")])
def test_a_commit_that_lands_during_the_check_is_neither_missing_nor_garbage(
    scope: Scope, overtaken: tuple[str, str]
) -> None:
    """Otherwise somebody would delete live files because `check` called them garbage."""
    world = World(scope)
    world.mark("1", [world.data(data("1"))])

    def land() -> None:
        world.start("2", at=NOW - timedelta())
        world.mark("2", [world.data(data("2"))], [data("1")])

    world.when(*overtaken, land)
    report = world.check()
    assert report.ok
    reported = {path for found in paths(report).values() for path in found}
    assert data("2") not in reported
    assert reported <= {data("1")}


def test_a_listing_of_the_log_that_misses_a_commit_makes_no_garbage_of_its_files() -> None:
    class Overtaken(World):
        listings = 0

        def list_log(self, *prefixes: str) -> list[Entry]:
            self.listings += 1
            return [e for e in super().list_log(*prefixes) if self.listings > 1 or e.path != "_committed_1"]

    world = Overtaken(Scope.TABLE)
    world.mark("1", [world.data(data("1"))])
    report = world.check()
    assert (report.live_files, paths(report)) == (1, {})


def test_a_file_that_the_listing_missed_is_looked_for_before_it_is_called_missing() -> None:
    """A listing goes by name: "Day=1/..." is passed before "_committed_1" is there, which is then seen."""

    class Overtaken(World):
        def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
            return [e for e in super().list_files(under) if e.path != f"Day=1/{data('1')}"]

    world = Overtaken(Scope.TABLE)
    world.mark("1", [world.data(f"Day=1/{data('1')}")], files=told(5))
    report = world.check()
    assert report.missing == []
    assert (report.live_files, report.live_size) == (1, 5)


@SCOPES
def test_a_marker_that_vacuum_purges_during_the_check_is_no_error(scope: Scope) -> None:
    world = World(scope)
    world.mark("1", [world.data(data("1"))])
    world.mark("2", [], [data("1")])

    def purge() -> None:
        for path in ("_committed_1", data("1")):
            world.objects.pop(path, None)

    world.when("get", "_committed_1", purge)
    assert world.check().ok


@SCOPES
def test_a_check_changes_nothing(scope: Scope) -> None:
    world = World(scope)
    world.start("1", at=NOW - timedelta(days=30))
    world.data(data("1"))
    world.put("_committed_2", b"{", modified=OLD)
    before = dict(world.objects)
    world.check()
    assert world.objects == before


def test_a_check_of_nothing_and_of_a_corrupt_descriptor_raises_as_reading_does() -> None:
    with pytest.raises(TableNotFoundError):
        World(Scope.DIRECTORY).check()
    world = World(Scope.TABLE)
    world.put("_dbio_table", b"{", modified=OLD)
    with pytest.raises(CorruptMarkerError, match="_dbio_table"):
        world.check()
