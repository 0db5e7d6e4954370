"""What listings and markers add up to, against naive models. No store: reading is in `test_snapshot`.

Rules: PROTOCOL.md 8.1, 8.3.
"""

import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import _no_older, committed_by, in_order, parse_utc_time, time_at
from dbio_commit.protocol.commits import Decided, Forgotten
from dbio_commit.protocol.directory import (
    UNSETTLED,
    Directory,
    is_empty,
    looks_torn,
    merge_directories,
    parse_directories,
    settle,
    visible_files,
)
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import newest_of, parse_log
from dbio_commit.protocol.log import settle as settle_log
from dbio_commit.protocol.markers.commit import CommitMarker, abort_marker
from dbio_commit.protocol.state import Added, LiveFiles, current_metadata, live_files
from tests.builders import NOW, OLD, data, marker


def listed(*paths: str, size: int = 1, modified: datetime = OLD) -> list[Entry]:
    return [Entry(path, size, modified) for path in paths]


def directory(*found: str, modified: datetime = OLD) -> Directory:
    return parse_directories(listed(*found, modified=modified))[""]


def seen(found: Directory, markers: Mapping[str, CommitMarker]) -> set[str]:
    return {file.path for file in visible_files(found, markers)}


# --- table scope --------------------------------------------------------------------------------------------------

PATHS = [f"{place}{data(tid)}" for place in ("", "day=1/", "day=1/hour=2/") for tid in ("1", "2")]
SOME_PATHS = st.lists(st.sampled_from(PATHS), max_size=4, unique=True)
TIDS = [str(number) for number in range(5)]


@st.composite
def histories(draw: st.DrawFn) -> list[Decided]:
    """Commits in any order, several at the same time, aborts among them."""
    tids = draw(st.lists(st.sampled_from(TIDS), unique=True))
    bodies = st.builds(marker, SOME_PATHS, SOME_PATHS) | st.just(abort_marker(commit_id="c", timestamp=NOW))
    return [Decided(OLD + timedelta(minutes=draw(st.integers(0, 3))), tid, draw(bodies)) for tid in tids]


@given(histories())
def test_live_files_are_all_added_less_all_removed_in_whatever_order_they_come(history: list[Decided]) -> None:
    added = {path for commit in history for path in commit.marker.added}
    removed = {path for commit in history for path in commit.marker.removed}
    live = [file.path for file in live_files(history)]
    assert sorted(live) == sorted(added - removed)  # each of them once
    assert live_files(list(reversed(history))) == live_files(history)


def rests_on(commit: Decided, history: Sequence[Decided]) -> list[Decided]:
    """The commit, who added what it removes, and so on."""
    found = [commit]
    for it in found:
        found += (other for other in history if other not in found and {*other.marker.added} & {*it.marker.removed})
    return found


@given(histories(), st.data())
def test_as_of_counts_what_was_committed_by_then_and_all_that_it_rests_on(
    history: list[Decided], choice: st.DataObject
) -> None:
    time = OLD + timedelta(minutes=choice.draw(st.integers(-1, 4)))
    ordered, seen = in_order(history), committed_by(history, time)
    assert sorted(ordered, key=lambda commit: commit[:2]) == sorted(history, key=lambda commit: commit[:2])
    assert committed_by(history, time.isoformat()) == seen == ordered[: len(seen)]
    assert all(commit.modified <= time for commit in seen)
    assert all(any(it.modified > time for it in rests_on(commit, history)) for commit in ordered[len(seen) :])
    for named in history:
        assert committed_by(history, named.tid) == ordered[: ordered.index(named) + 1]


@pytest.mark.parametrize("is_covered", [False, True])
def test_a_state_of_the_past_is_a_prefix_of_the_turns_also_where_the_stores_clock_stepped_back(
    is_covered: bool,
) -> None:
    def at(seconds: int, place: int) -> dict[str, Any]:
        return {"modified": OLD + timedelta(seconds=seconds), "place": place if is_covered else None}

    old = Decided(tid="1", marker=marker(["old"]), **at(0, 0))
    new = Decided(tid="2", marker=marker(["new"], ["old"], operation="overwrite", turn=1), **at(10, 1))
    more = Decided(tid="3", marker=marker(["more"], turn=2), **at(8, 2))
    small = Decided(tid="4", marker=marker(["small"]), **at(60, 3))
    big = Decided(tid="5", marker=marker(["big"], ["small"], operation="rewrite", turn=3), **at(58, 4))
    history = [big, more, new, old, small]
    assert in_order(history) == [old, new, more, small, big]
    assert committed_by(history, OLD + timedelta(seconds=9)) == [old]
    assert committed_by(history, OLD + timedelta(seconds=10)) == committed_by(history, "3") == [old, new, more]
    assert committed_by(history, OLD + timedelta(seconds=59)) == [old, new, more]


def test_commits_are_ordered_by_the_time_of_their_marker_then_by_tid() -> None:
    first, second, third = Decided(OLD, "2", marker()), Decided(OLD, "3", marker()), Decided(NOW, "1", marker())
    assert committed_by([third, second, first], None) == [first, second, third]


def test_overwrites_within_one_second_are_ordered_by_their_turns() -> None:
    """Found by the demo on S3, where times are whole seconds: `as_of` gave a state that never was (I6, I7)."""
    begun_first = Decided(OLD, "1", marker(["a"], ["b", "c"], operation="overwrite", turn=2))
    committed_first = Decided(OLD, "2", marker(["b"], operation="overwrite", turn=1))
    append = Decided(OLD, "3", marker(["c"]))
    assert in_order([begun_first, append, committed_first]) == [committed_first, append, begun_first]
    assert [file.path for file in live_files(committed_by([begun_first, append, committed_first], "2"))] == ["b"]


def test_commits_that_contradict_one_another_are_still_put_in_an_order() -> None:
    one, other = Decided(OLD, "1", marker(["a"], ["b"])), Decided(OLD, "2", marker(["b"], ["a"]))
    assert in_order([other, one]) == [one, other]


def test_a_path_that_two_commits_add_is_live_once() -> None:
    commits = [Decided(OLD, "1", marker([data("1"), data("1")])), Decided(NOW, "2", marker([data("1")]))]
    assert [file.path for file in live_files(commits)] == [data("1")]


@pytest.mark.parametrize(
    "as_of",
    ["", "yesterday", "2026-11-20", "2026-11-20T10:00:00", "20261120", NOW.replace(tzinfo=None), "7", "1" * 19],
)
def test_as_of_must_be_a_tid_of_a_commit_or_a_time_with_a_zone(as_of: datetime | str) -> None:
    with pytest.raises(InvalidInputError):
        committed_by([Decided(OLD, "1", marker())], as_of)


@pytest.mark.parametrize(("as_of", "seen"), [("9999-12-31T23:59:59-12:00", 1), ("0001-01-01T00:00:00+12:00", 0)])
def test_as_of_takes_times_that_utc_cannot_hold(as_of: str, seen: int) -> None:
    assert len(committed_by([Decided(OLD, "1", marker())], as_of)) == seen


@pytest.mark.parametrize("micros", [-(2**62), -62198755200 * 10**6, 253402300800 * 10**6, 2**62])
def test_a_time_that_python_does_not_have_is_an_input_that_is_refused(micros: int) -> None:
    with pytest.raises(InvalidInputError, match="TIMESTAMP AS OF is a time that is not in the years 1 to 9999"):
        time_at(micros, what="TIMESTAMP AS OF")
    assert time_at(10**6, what="it") == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_utc_does_not_have_is_refused_where_utc_is_needed(time: str) -> None:
    with pytest.raises(InvalidInputError, match=r"start=.* is not in the years 1 to 9999 in UTC"):
        parse_utc_time(time, what="start")
    assert parse_utc_time("2026-11-20T10:00:00+01:00", what="start") == datetime(2026, 11, 20, 9, tzinfo=UTC)


GRAPHS = st.integers(2, 8).flatmap(
    lambda count: st.tuples(
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=12),
        st.lists(st.integers(1, 9), min_size=count, max_size=count),
    )
)


@given(GRAPHS)
def test_a_commit_is_no_older_than_those_before_it_also_in_a_circle(
    graph: tuple[list[tuple[int, int]], list[int]],
) -> None:
    edges, days = graph
    want = [datetime(2026, 11, day, tzinfo=UTC) for day in days]
    for _ in want:
        for earlier, later in edges:
            want[later] = max(want[later], want[earlier])
    assert [*_no_older(edges, [datetime(2026, 11, day, tzinfo=UTC) for day in days])] == want


def test_the_order_of_commits_that_depend_on_each_other_follows_each_dependency_once() -> None:
    """Each removes what the next one has added. By passes over all dependencies, this would take minutes."""
    commits = [
        Decided(OLD + timedelta(seconds=i), f"{i:019}", CommitMarker(added=[f"a{i}"], removed=[f"a{i + 1}"]))
        for i in range(20_000)
    ]
    assert [it.tid for it in in_order(commits)] == [it.tid for it in reversed(commits)]


def test_commits_whose_times_and_tids_are_in_order_need_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As most of all logs, also on a store with whole seconds."""
    commits = [Decided(OLD, f"{i:019}", marker([f"a{i}"], [f"a{i - 1}"]), place=i) for i in range(100)]
    monkeypatch.setattr("dbio_commit.protocol.as_of._no_older", None)
    assert in_order(commits[::-1]) == commits


def test_a_zone_of_as_of_counts() -> None:
    commit = Decided(datetime(2026, 11, 20, 10, tzinfo=UTC), "1", marker())
    assert committed_by([commit], "2026-11-20T11:00:00+01:00") == [commit]
    assert committed_by([commit], "2026-11-20T10:59:59+01:00") == []


def test_the_schema_of_the_highest_turn_is_the_tables_whenever_it_was_committed() -> None:
    old, new = {"type": "struct", "fields": [1]}, {"type": "struct", "fields": [1, 2]}
    late_append = marker(schema=old, schema_turn=1)
    overwrite = marker(schema=new, schema_turn=2)
    for order in ([late_append, overwrite], [overwrite, late_append], [overwrite, late_append, marker()]):
        assert current_metadata(order) == (new, 2, None)
    assert current_metadata([marker(), marker(operation="append")]) == (None, 0, None)


# --- the log ------------------------------------------------------------------------------------------------------


def test_a_commit_marker_of_no_length_is_no_marker_but_a_start_marker_is() -> None:
    log = parse_log(listed("_committed_1", "_started_1", "_started_2", size=0) + listed("_committed_2"))
    assert set(log.committed) == {"2"}
    assert log.pending == ["1"]


def test_commit_markers_count_up_to_the_newest_that_was_listed_before_the_pause() -> None:
    def markers(**seconds: int) -> dict[str, Entry]:
        return {tid: Entry(f"_committed_{tid}", 9, NOW + timedelta(seconds=at)) for tid, at in seconds.items()}

    base = markers(a=1, b=5)
    committed, later = settle_log(base, markers(b=5, c=3, d=5, e=6), newest_of(base))
    assert (set(committed), set(later)) == ({"a", "b", "c", "d"}, {"e"})
    assert newest_of({}, markers(a=7), base) == NOW + timedelta(seconds=7)  # of several tables


def test_the_newest_checkpoint_has_the_highest_number() -> None:
    log = parse_log(listed(names.checkpoint(9), names.checkpoint(10), "_checkpoint_7", f"_checkpoint_{'9' * 19}"))
    assert (set(log.checkpoints), log.last_checkpoint, parse_log([]).last_checkpoint) == ({9, 10}, 10, 0)


def test_the_order_of_a_checkpoint_holds_within_one_second() -> None:
    """Whatever the paths that it has left out would have said, or the tids say."""
    adds, removes = Decided(OLD, "2", marker(["b"]), place=0), Decided(OLD, "1", marker(["c"]), place=1)
    new = Decided(OLD, "0", marker(["d"], ["c"]))
    assert in_order([removes, adds]) == [adds, removes]
    assert in_order([new, removes, adds]) == [adds, removes, new]


def test_states_that_lack_files_which_are_gone_are_refused() -> None:
    forgetful = Decided(NOW, "2", marker(["b"]), Forgotten(removed=1))
    commits = [Decided(OLD, "1", marker(["a"])), forgetful, Decided(NOW + timedelta(days=1), "3", marker())]
    for as_of in (OLD, "1", NOW - timedelta(microseconds=1)):
        for known_since in (NOW, None):
            with pytest.raises(InvalidInputError, match="vacuumed since"):
                committed_by(commits, as_of, known_since=known_since)
    for told in (NOW, "2", "3", None):
        assert forgetful in committed_by(commits, told, known_since=NOW)
    with pytest.raises(InvalidInputError, match="vacuumed since"):  # all that said so is forgotten
        committed_by(commits[:1], OLD, known_since=NOW)


def test_what_is_no_marker_is_passed_over() -> None:
    log = parse_log(listed("_SUCCESS", "_started_", "_committed_A", "_serial_7", "_checkpoint_7", "a", "_dbio_tables"))
    assert log == parse_log([])


def test_a_vacuum_marker_of_dbio_is_no_commit() -> None:
    log = parse_log(listed("_committed_vacuum1"))
    assert (set(log.queues), log.committed, log.pending) == ({"1"}, {}, [])


# --- directory scope ----------------------------------------------------------------------------------------------


def naive_visible(found: Collection[str], commits: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> set[str]:
    """PROTOCOL.md 11.2, sentence by sentence; `commits` are those with a marker that can be read."""
    visible = set()
    for name in found:
        if name.startswith(("_", ".")):
            continue
        hidden = False
        for _, removed in commits.values():
            if name in removed:
                hidden = True
        tid = name.split("-tid-")[1].split("-")[0] if "-tid-" in name else None
        if tid is not None:
            if tid in commits and name not in commits[tid][0]:
                hidden = True
            if f"_started_{tid}" in found and tid not in commits:
                hidden = True
        if not hidden:
            visible.add(name)
    return visible


LOCAL = [data(tid, number) for tid in ("1", "2", "x9") for number in (0, 1)] + ["untracked.parquet"]
SOME_LOCAL = st.lists(st.sampled_from([*LOCAL, "part-missing-tid-1-job"]), max_size=4, unique=True)


@given(
    files=st.sets(st.sampled_from([*LOCAL, "_SUCCESS", ".hidden.parquet"])),
    started=st.sets(st.sampled_from(["1", "2", "x9", "77"])),
    commits=st.dictionaries(st.sampled_from(["1", "2", "x9", "88"]), st.tuples(SOME_LOCAL, SOME_LOCAL)),
    unreadable=st.sets(st.sampled_from(["1", "2"])),
    recent=st.booleans(),
)
def test_a_directory_shows_what_section_2_says(
    files: set[str],
    started: set[str],
    commits: dict[str, tuple[list[str], list[str]]],
    unreadable: set[str],
    recent: bool,
) -> None:
    log = [*(f"_started_{tid}" for tid in started), *(f"_committed_{tid}" for tid in commits.keys() | unreadable)]
    found = parse_directories(listed(*files, *log, modified=NOW if recent else OLD)).get("")
    if found is None:
        return
    readable = {tid: body for tid, body in commits.items() if tid not in unreadable}
    markers = {tid: marker(*body) for tid, body in readable.items()}
    expected = naive_visible({*files, *log}, readable)
    assert seen(found, markers) == expected
    assert seen(settle(found, found), markers) == expected  # a second listing of what did not change


def test_directories_that_readers_skip_are_left_out_and_partitions_named_like_them_are_not() -> None:
    found = parse_directories(listed("a", "_temporary/0/b", ".x/c", "_day=1/d", "day=1/_x/e"))
    assert set(found) == {"", "_day=1"}


@pytest.mark.parametrize("path", ["_SUCCESS", "_temporary/a.parquet", ".x", f"_serial_{1:020d}"])
def test_what_no_reader_sees_leaves_a_path_empty(path: str) -> None:
    assert is_empty(parse_directories(listed(path)))
    assert is_empty({})


@pytest.mark.parametrize(
    "path", ["a.parquet", "day=1/a.parquet", data("1"), "_started_1", "_committed_1", "day=1/_started_1", "_dbio_table"]
)
def test_a_file_or_marker_anywhere_makes_a_path_one_that_is_not_empty(path: str) -> None:
    assert not is_empty(parse_directories(listed(path)))


# --- torn listings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", [timedelta(), UNSETTLED])
def test_a_young_listing_is_torn_where_a_file_has_no_marker_or_an_added_file_is_missing(age: timedelta) -> None:
    at = NOW - age
    assert looks_torn(directory(data("1"), modified=at), {}, now=NOW)
    assert looks_torn(directory("_committed_1", modified=at), {"1": marker([data("1")])}, now=NOW)


def test_a_listing_is_whole_where_every_file_has_a_marker_and_every_marker_its_files() -> None:
    whole = directory(data("1"), data("2"), "untracked.parquet", "_started_1", "_committed_2", modified=NOW)
    assert not looks_torn(whole, {"2": marker([data("2")])}, now=NOW)
    removed = {"2": marker([data("2")]), "3": marker([data("3")]), "4": marker([], [data("3")])}
    assert not looks_torn(whole, removed, now=NOW)  # what a later commit removed may well be gone


def test_an_old_directory_is_not_listed_again_and_a_single_young_object_makes_it_young() -> None:
    just_old = directory(data("1"), modified=NOW - UNSETTLED - timedelta(seconds=1))
    assert not looks_torn(just_old, {}, now=NOW)
    young = parse_directories([*listed(data("1")), *listed("other", modified=NOW)])[""]
    assert looks_torn(young, {}, now=NOW)


def test_what_commits_during_the_second_listing_stays_hidden_and_removes_nothing() -> None:
    first = directory(data("1"), "_committed_1", data("2"))
    second = directory(data("1"), "_committed_1", data("2"), "_committed_2", data("3"), "_committed_3")
    assert seen(settle(first, second), {"1": marker([data("1")])}) == {data("1")}


def test_the_second_listing_brings_an_added_file_that_the_first_had_missed() -> None:
    first, second = directory("_committed_1"), directory("_committed_1", data("1"))
    assert seen(settle(first, second), {"1": marker([data("1")])}) == {data("1")}


def test_a_purged_transactions_file_stays_visible_though_the_listing_was_repeated() -> None:
    first = directory(data("1"), modified=NOW)
    assert seen(settle(first, directory(data("1"), "_started_2", data("2"))), {}) == {data("1")}


def test_a_zombies_file_that_turns_up_does_not_hide_the_files_of_its_purged_transaction() -> None:
    first, second = directory(data("1")), directory(data("1"), data("1", 1))
    assert seen(settle(first, second), {}) == {data("1")}


def test_a_pending_transactions_file_stays_hidden_though_its_start_marker_goes_meanwhile() -> None:
    listed_again = directory(data("1"), "untracked.parquet")
    assert seen(settle(directory(data("1"), "_started_1"), listed_again), {}) == {"untracked.parquet"}


def test_a_directory_that_has_gone_shows_nothing() -> None:
    assert seen(settle(directory(data("1")), None), {}) == set()


@dataclass(frozen=True)
class World:
    """A directory over time: names with the step at which each appeared, and the steps that two listings look at."""

    appeared: Mapping[str, int]
    bodies: Mapping[str, CommitMarker]
    first: Mapping[str, int]
    """For each name, when the first listing passed its place."""
    second: int

    def listing(self, passed: Mapping[str, int] | int) -> list[Entry]:
        at = {name: passed if isinstance(passed, int) else passed[name] for name in self.appeared}
        return listed(*(name for name, step in self.appeared.items() if step <= at[name]), modified=NOW)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two or three writers, step by step, and a listing in the order of names that they overtake."""
    appeared = {data("9"): 0, "old.parquet": 0}  # purged, untracked
    bodies: dict[str, CommitMarker] = {}
    steps = 0
    left = {tid: ["started", "file", "file", "commit"] for tid in ("1", "2", "3")[: draw(st.integers(1, 3))]}
    while any(left.values()):
        tid = draw(st.sampled_from([tid for tid, todo in left.items() if todo]))
        step, steps = left[tid].pop(0), steps + 1
        if step == "file":
            appeared[data(tid, len(left[tid]))] = steps
        elif step == "commit":
            others = [path for other, body in bodies.items() if other != tid for path in body.added]
            candidates = [*others, data("9"), "old.parquet"]
            removed = draw(st.lists(st.sampled_from(candidates), unique=True, max_size=2))
            added = draw(st.sets(st.sampled_from([data(tid, 2), data(tid, 1)]), min_size=1))
            appeared[f"_committed_{tid}"], bodies[tid] = steps, marker(sorted(added), removed)
        else:
            appeared[f"_started_{tid}"] = steps
        if draw(st.booleans()) and not any(left.values()):
            break
    times = sorted(draw(st.lists(st.integers(0, steps), min_size=len(appeared), max_size=len(appeared))))
    in_order = sorted(appeared) if draw(st.booleans()) else draw(st.permutations(sorted(appeared)))
    return World(appeared, bodies, dict(zip(in_order, times, strict=True)), draw(st.integers(times[-1], steps)))


@given(worlds())
def test_a_torn_listing_never_shows_a_part_of_a_commit(world: World) -> None:
    """Whatever overtook it: exactly the transactions whose commit markers the first listing had seen count."""
    first = parse_directories(world.listing(world.first)).get("")
    if first is None:
        return
    counted = {tid: world.bodies[tid] for tid in first.log.committed}
    settled = first
    if looks_torn(first, counted, now=NOW):
        settled = settle(first, parse_directories(world.listing(world.second))[""])
    removed = {path for body in counted.values() for path in body.removed}
    added = {path for body in counted.values() for path in body.added}
    purged = {data("9"), "old.parquet"}  # visible from the start, and there all the time
    assert seen(settled, counted) == (added | purged) - removed


# --- transactions over several directories ------------------------------------------------------------------------


def test_the_markers_of_one_transaction_become_one_with_paths_from_the_root() -> None:
    whole = merge_directories({"": marker(["a"], ["b"]), "day=1": marker(["a"], operation="overwrite")})
    assert (whole.added, whole.removed) == (["a", "day=1/a"], ["b"])
    assert whole.dbio_commit is not None
    assert whole.dbio_commit.operation == "overwrite"


def test_a_transaction_that_was_aborted_in_one_directory_and_committed_in_another_is_committed() -> None:
    """A writer died between two commit markers, and somebody aborted what was left of it."""
    aborted = abort_marker(commit_id="other", timestamp=NOW)
    for committed in (marker(["x"]), marker(["x"], operation="append")):
        for parts in ({"a": aborted, "b": committed}, {"b": committed, "z": aborted}):
            whole = merge_directories(parts)
            assert not whole.is_abort
            assert whole.added == ["b/x"]
    assert merge_directories({"a": aborted, "b": aborted}).is_abort


def test_names_of_the_log_parse_to_what_they_say() -> None:
    log = parse_log(listed(names.DESCRIPTOR, names.started("1"), names.committed("1"), names.turn(12)))
    assert log.descriptor is not None
    assert (set(log.started), set(log.committed), log.last_turn) == ({"1"}, {"1"}, 12)


# --- live files, put together when they are asked for -------------------------------------------------------------


def added(*groups: tuple[str, list[str]]) -> LiveFiles:
    return LiveFiles([Added(tid, paths, list(range(len(paths)))) for tid, paths in groups])


def test_live_files_are_a_sequence() -> None:
    files = added(("1", ["day=1/a", "day=2/b"]), ("2", ["day=1/c"]))
    told = [("day=1/a", 0, "1"), ("day=2/b", 1, "1"), ("day=1/c", 0, "2")]
    assert [file[:3] for file in files] == [files[i][:3] for i in range(3)] == told
    assert [files[i][:3] for i in (-3, -2, -1)] == told
    assert files[1:] == tuple(files)[1:]
    assert files[::-1] == tuple(files)[::-1]
    assert (len(files), files == tuple(files), files == tuple(files)[1:]) == (3, True, False)
    assert files[0].partition is files[2].partition
    assert pickle.loads(pickle.dumps(files)) == files
    assert LiveFiles.of(files) == files
    for i in (3, -4):
        with pytest.raises(IndexError):
            files[i]
    empty = added()
    assert (list(empty), len(empty), empty == (), bool(empty)) == ([], 0, True, False)


def test_of_live_files_some_are_selected() -> None:
    files = added(("1", ["day=1/a", "day=2/b"]), ("2", ["day=1/c"]))
    assert [file.path for file in files.in_partitions(lambda it: it["day"] == "1")] == ["day=1/a", "day=1/c"]
    kept = files.select(lambda it: [] if it.tid == "2" else [it.paths[1]])
    assert [file[:3] for file in kept] == [("day=2/b", 1, "1")]
    assert files.outside(("day",)) is None
    assert files.outside(("hour",)) == files[0]


def test_what_two_transactions_add_counts_once_for_the_later() -> None:
    early, late = (datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (1, 2))
    commits = [Decided(late, "1", marker(["a", "b"])), Decided(early, "2", marker(["a", "c", "c"]))]
    assert sorted((file.path, file.tid) for file in live_files(commits)) == [("a", "1"), ("b", "1"), ("c", "2")]
