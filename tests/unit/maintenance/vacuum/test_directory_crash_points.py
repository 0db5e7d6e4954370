"""A vacuum of a directory that DBIO wrote is killed, fails, or is joined by others at each of its calls, one by one.

PROTOCOL.md 11.2 and 11.4. Listings come in pages, and what happens between two pages counts as between two calls.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbio_commit.base.errors import DbioError, StoreError
from dbio_commit.store.contract import Unfinished
from tests.faults import Killed, Killer, PagedStore, act_before_call, calls_to, count_calls, fail_with, heal
from tests.tiers import long
from tests.unit.dbio_model import ABORT, EVER, World, at, commit, file_of, left_in_the_end, queue, visible
from vacuum import Reason, VacuumOptions, VacuumReport, vacuum_table

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
OLD = 10 * DAY
MOST_CALLS = 500
LISTINGS = {"list_log", "list_directory", "list_files", "list_unfinished"}
LOST = StoreError("the answer was lost")
A, B, C, D, E, F = (f"700000000000000000{n}" for n in range(6))
LIVE = {
    "plain.parquet",
    file_of(A),
    f"day=1/{file_of(A)}",
    f"day=2/{file_of(E)}",
    f"day=2/{file_of(F)}",
    f"day=2/{file_of('gone')}",
}


# --- the scenes --------------------------------------------------------------------------------------------------


def garbage() -> World:
    """Everything that a first vacuum has to do, and some that it has to leave."""
    world = World(PagedStore)
    world.put("plain.parquet")
    world.put("_SUCCESS")
    world.put(f"_tmp/{file_of(B)}")
    world.put(f"_tmp/_started_{B}", b"")
    for directory in ("", "day=1"):  # A committed, and one of its attempts failed; C removed what B added
        world.put(at(directory, file_of(A)))
        world.put(at(directory, file_of(A, attempt=3)))
        world.put(at(directory, file_of(B)))
        world.put(at(directory, f".{file_of(B)}.crc"))
        world.put(at(directory, f"_started_{A}"), b"")
        world.put(at(directory, f"_started_{C}"), b"")
        world.put(at(directory, f"_committed_{A}"), commit([file_of(A)]))
        world.put(at(directory, f"_committed_{B}"), commit([file_of(B)]))
        world.put(at(directory, f"_committed_{C}"), commit(removed=[file_of(B), "gone.parquet"]))
    for directory in ("day=1", "day=3"):  # D timed out
        world.put(at(directory, file_of(D)))
        world.put(at(directory, file_of(D, attempt=1)))
        world.put(at(directory, f"_started_{D}"), b"")
    world.put(f"day=3/_committed_{D}", b"")
    world.put(f"day=2/{file_of('gone')}")
    world.put(f"day=2/{file_of(E)}", age=HOUR)  # E committed an hour ago, and removed what F had added
    world.put(f"day=2/_started_{E}", b"", age=HOUR)
    world.put(f"day=2/{file_of(F)}")
    world.put(f"day=2/{file_of(F, attempt=5)}")
    world.put(f"day=2/_committed_{E}", commit([file_of(E)], [file_of(F, attempt=5)]), age=HOUR)
    world.put(f"day=2/_started_{C}", b"", age=HOUR)  # C has just begun to write here
    world.put(f"day=2/{file_of(C)}", age=HOUR)
    world.put(f"day=2/{file_of(B)}")
    world.put(f"day=2/_committed_{B}", ABORT)
    world.store.unfinished = [Unfinished("day=1/x", "1", 0, world.clock.now() - OLD)]
    assert world.visible() == LIVE
    return world


def queued() -> World:
    """The same an hour after its first vacuum, with a file whose deletion had failed, and queues that others wrote."""
    world = garbage()
    world.store.before = fail_with(LOST, "delete", f"day=1/{file_of(D)}", times=None)
    assert not vacuum_table(world.table, VacuumOptions()).ok
    heal(world.store)
    world.put(f"day=1/{file_of(A, attempt=4)}")
    world.put("_committed_vacuum1", queue("_committed_vacuum1", f"_committed_{B}", "plain.parquet"))
    world.put("day=2/_committed_vacuum1", queue(f"_started_{C}", f"_committed_{E}", f"_started_{E}", file_of(F)))
    world.clock.advance(HOUR)
    return world


SCENES = {"garbage": garbage, "queued": queued}
Scene = Callable[[], World]
each_scene = pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)


def run(world: World) -> VacuumReport:
    return vacuum_table(world.table, VacuumOptions())


def calls_of(scene: Scene) -> int:
    world = scene()
    number = count_calls(world.store, lambda: run(world))
    assert 20 < number < MOST_CALLS
    return number


def each_call(scene: Scene) -> Iterator[tuple[int, World]]:
    for number in range(calls_of(scene)):
        yield number, scene()


def check_the_end(world: World, live: set[str] = LIVE) -> None:
    """Readers see what they saw, and vacuums without trouble leave nothing else."""
    heal(world.store)
    assert world.visible() == live
    run(world)
    assert world.visible() == live
    assert world.settle().keys() == live | {"_SUCCESS", f"_tmp/{file_of(B)}", f"_tmp/_started_{B}"}


@each_scene
def test_a_scene_has_work_of_every_kind(scene: Scene) -> None:
    world = scene()
    assert left_in_the_end(world.store.objects) == LIVE | {"_SUCCESS", f"_tmp/{file_of(B)}", f"_tmp/_started_{B}"}
    found = {it.reason for it in run(world).deleted}
    if scene is garbage:
        assert found == {
            Reason.REMOVED, Reason.FAILED_ATTEMPT, Reason.ABORTED, Reason.PENDING, Reason.START_MARKER,
            Reason.EMPTY_MARKER, Reason.UPLOAD,
        }  # fmt: skip
    else:
        assert found == {Reason.FAILED_ATTEMPT, Reason.PENDING, Reason.QUEUED, Reason.DIRECTORY}
    check_the_end(world)


@each_scene
def test_a_dry_run_says_what_the_real_run_does_and_changes_nothing(scene: Scene) -> None:
    world = scene()
    before, uploads = dict(world.store.objects), list(world.store.unfinished)
    with calls_to(world.store) as calls:
        dry = vacuum_table(world.table, VacuumOptions(), dry_run=True)
    assert {operation for operation, _ in calls} <= {"page", "get", "stat", *LISTINGS}
    assert (world.store.objects, world.store.unfinished) == (before, uploads)
    assert dry.dry_run
    assert dry == replace(run(world), dry_run=True)
    assert dry.deleted


# --- readers -----------------------------------------------------------------------------------------------------


@each_scene
def test_readers_see_the_same_before_and_after_each_call_of_a_vacuum(scene: Scene) -> None:
    world = scene()
    seen: list[set[str]] = []
    reading: list[bool] = []

    def read(operation: str, path: str) -> None:
        if not reading:
            reading.append(True)
            seen.append(world.visible())
            reading.clear()

    world.store.before = world.store.after = read
    run(world)
    heal(world.store)
    assert len(seen) > calls_of(scene)
    assert all(files == LIVE for files in seen)


@each_scene
@pytest.mark.parametrize("pause", [timedelta(0), HOUR, EVER])
def test_a_reader_sees_the_same_where_vacuums_come_between_its_calls(scene: Scene, pause: timedelta) -> None:
    """All of them between two pages of its listing, or before it has read the markers that it has listed."""

    def vacuums() -> None:
        for _ in range(3):
            run(world)
            world.clock.advance(pause)

    world = scene()
    for number in range(count_calls(world.store, world.table.snapshot)):
        world = scene()
        act_before_call(world.store, number, vacuums)
        assert {file.path for file in world.table.snapshot().files} == LIVE, number


# --- failures ----------------------------------------------------------------------------------------------------


@each_scene
@pytest.mark.parametrize("after", [False, True])
def test_a_vacuum_that_is_killed_does_no_harm_and_the_next_finishes(scene: Scene, after: bool) -> None:
    for number, world in each_call(scene):
        Killer(world.store, number, after)
        with pytest.raises(Killed):
            run(world)
        check_the_end(world)


@each_scene
def test_vacuums_that_are_all_killed_come_to_the_end_at_last(scene: Scene) -> None:
    for after in (False, True):
        world = scene()
        for number in range(calls_of(scene)):
            Killer(world.store, number, after)
            with suppress(Killed):
                run(world)
            heal(world.store)
            assert world.visible() == LIVE
            world.clock.advance(20 * SECOND)
        check_the_end(world)


@each_scene
@pytest.mark.parametrize("applied", [False, True])
def test_a_call_that_fails_is_told_and_does_no_harm(scene: Scene, applied: bool) -> None:
    for number, world in each_call(scene):
        numbers = count()

        def fail(operation: str, path: str, number: int = number, numbers: Iterator[int] = numbers) -> None:
            if next(numbers) == number:
                raise LOST

        if applied:
            world.store.after = fail
        else:
            world.store.before = fail
        told = True
        with suppress(StoreError):
            told = not run(world).ok
        assert told or next(numbers) <= number  # pages have no answers of their own
        check_the_end(world)


@each_scene
def test_failed_deletions_are_reported_one_by_one_and_do_not_stop_the_rest(scene: Scene) -> None:
    world = scene()
    tried = {it.path for it in run(world).deleted if it.reason not in (Reason.DIRECTORY, Reason.UPLOAD)}
    for path in tried:
        world = scene()
        world.store.before = fail_with(LOST, "delete", path, times=None)
        report = run(world)
        heal(world.store)
        assert {it.path for it in report.failed} == {path}
        assert path in world.paths
        check_the_end(world)


@pytest.mark.parametrize(
    ("file", "markers"),
    [
        (file_of(A, attempt=3), {f"_committed_{A}"}),
        (f"day=1/{file_of(B)}", {f"day=1/_committed_{C}"}),
        (f"day=3/{file_of(D, attempt=1)}", {f"day=3/_started_{D}"}),
        (f"day=2/{file_of(B)}", {f"day=2/_committed_{B}"}),
    ],
)
def test_a_file_that_cannot_be_deleted_keeps_the_markers_that_hide_it(file: str, markers: set[str]) -> None:
    world = garbage()
    for _ in range(5):
        world.store.before = fail_with(LOST, "delete", file, times=None)
        report = run(world)
        heal(world.store)
        assert [it.path for it in report.failed] == [file]
        assert {file, *markers} <= world.paths
        assert not markers & set(report.queued)
        assert world.visible() == LIVE
        world.clock.advance(EVER)
    others = {path for path in world.paths if path.rpartition("/")[2].startswith(("_started_", "_committed_"))}
    assert others == {*markers, f"_tmp/_started_{B}"}  # all else has gone
    check_the_end(world)


@each_scene
def test_a_vacuum_that_may_delete_nothing_does_no_harm(scene: Scene) -> None:
    world = scene()
    for _ in range(3):
        world.store.before = fail_with(LOST, "delete", "*", times=None)
        run(world)
        heal(world.store)
        assert world.visible() == LIVE
        world.clock.advance(HOUR)
    check_the_end(world)


# --- others at work ----------------------------------------------------------------------------------------------


@each_scene
@pytest.mark.parametrize("pause", [timedelta(0), *long(HOUR, EVER)])
def test_two_vacuums_at_once_do_no_harm(scene: Scene, pause: timedelta) -> None:
    """The second, and its successors, run inside of the first, which sleeps in the meantime."""

    def others() -> None:
        for _ in range(3):
            run(world)
            world.clock.advance(pause)

    for number, world in each_call(scene):
        act_before_call(world.store, number, others)
        report = run(world)
        assert report.ok
        check_the_end(world)


def late_call(scene: Scene, marker: str) -> int:
    """The number of the call that looks for the commit marker once more."""
    world = scene()
    calls: list[tuple[str, str]] = []
    world.store.before = lambda operation, path: calls.append((operation, path))
    run(world)
    return calls.index(("stat", marker))


@pytest.mark.parametrize(("scene", "directory"), [(garbage, "day=1"), (garbage, "day=3"), (queued, "day=1")])
def test_a_writer_that_commits_before_its_files_are_deleted_keeps_them(scene: Scene, directory: str) -> None:
    """Even if it was silent for longer than the retention: up to the last look for its marker."""
    marker, file = f"{directory}/_committed_{D}", f"{directory}/{file_of(D)}"
    failed = f"{directory}/{file_of(D, attempt=1)}"
    last = late_call(scene, marker)
    for number, world in each_call(scene):

        def commit_late(world: World = world) -> None:
            world.put(marker, commit([file_of(D)]), age=timedelta(0))

        act_before_call(world.store, number, commit_late)
        run(world)
        heal(world.store)
        if number <= last:
            assert file in world.visible()
            assert failed not in world.visible()
            check_the_end(world, LIVE | {file})
        else:
            assert world.visible() - {file} == LIVE  # the known limit: it names files that are gone


def test_a_directory_that_becomes_a_table_under_a_vacuum_keeps_its_files() -> None:
    def scene() -> World:
        world = World(PagedStore)
        for day in ("day=1", "day=2"):
            world.put(at(day, file_of(A)))
            world.put(at(day, file_of(A, attempt=1)))
            world.put(at(day, file_of(B)))
            world.put(at(day, f"_started_{A}"), b"")
            world.put(at(day, f"_committed_{A}"), commit([file_of(A)]))
            world.put(at(day, f"_committed_{C}"), commit(removed=[file_of(B)]))
        return world

    adopted = 0
    for number, world in each_call(scene):
        live = world.visible()

        def adopt(world: World = world) -> None:
            with suppress(DbioError):
                world.table.adopt()

        act_before_call(world.store, number, adopt)
        run(world)
        heal(world.store)
        adopted += "_dbio_table" in world.paths
        for _ in range(3):
            assert {file.path for file in world.table.snapshot().files} == live
            assert live <= world.paths
            world.clock.advance(EVER)
            run(world)
    assert adopted


# --- random company ----------------------------------------------------------------------------------------------

PLACES = ["", "day=1", "day=9"]
TIDS = [f"800000000000000000{n}" for n in range(3)]
actions = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from(["write", "write", "commit", "commit", "overwrite", "abort", "vacuum", "wait", "sleep"]),
        st.sampled_from(TIDS),
        st.sampled_from(PLACES),
    ),
    max_size=8,
)


class Company:
    """Writers that keep to DBIO's protocol, and other vacuums, at work while a vacuum runs."""

    def __init__(self, world: World, todo: list[tuple[int, str, str, str]]) -> None:
        self.world = world
        self.calls = count()
        self.todo = sorted(todo, key=lambda it: it[0])
        self.expected = visible(world.store.objects)

    def step(self, operation: str, path: str) -> None:
        """Before and after each call: vacuum has changed nothing for readers; then somebody may."""
        assert visible(self.world.store.objects) == self.expected
        number = next(self.calls)
        while self.todo and self.todo[0][0] <= number:
            _, action, tid, place = self.todo.pop(0)
            heal(self.world.store)
            self.act(action, tid, place)
            self.watch()
            self.expected = visible(self.world.store.objects)

    def watch(self) -> None:
        self.world.store.before = self.world.store.after = self.step

    def act(self, action: str, tid: str, place: str) -> None:
        world, file = self.world, at(place, file_of(tid))
        start, marker = at(place, f"_started_{tid}"), at(place, f"_committed_{tid}")
        now = world.clock.now()
        began = world.store.objects.get(start, (b"", now))[1]
        is_undecided = start in world.paths and marker not in world.paths
        if action == "write" and marker not in world.paths and start not in world.paths and file not in world.paths:
            world.put(start, b"", age=timedelta(0))
            world.put(file, age=timedelta(0))
            world.put(at(place, file_of(tid, attempt=1)), age=timedelta(0))
        elif action in ("commit", "overwrite", "abort") and is_undecided and now - began < 47 * HOUR:
            removed = [it.rpartition("/")[2] for it in visible(world.store.objects) if it.rpartition("/")[0] == place]
            bodies = {"commit": commit([file_of(tid)]), "overwrite": commit([file_of(tid)], removed), "abort": ABORT}
            world.put(marker, bodies[action], age=timedelta(0))
        elif action == "vacuum":
            world.vacuum()
        elif action in ("wait", "sleep"):
            world.clock.advance(HOUR if action == "wait" else 20 * DAY)


@settings(max_examples=150)
@given(st.sampled_from(sorted(SCENES)), actions, actions)
def test_a_vacuum_changes_nothing_for_readers_whatever_others_do(
    scene: str, earlier: list[tuple[int, str, str, str]], meanwhile: list[tuple[int, str, str, str]]
) -> None:
    world = SCENES[scene]()
    company = Company(world, meanwhile)
    for _, action, tid, place in earlier:
        company.act(action, tid, place)
    company.expected = visible(world.store.objects)
    company.watch()
    report = run(world)
    heal(world.store)
    assert report.ok
    assert world.visible() == company.expected
    end = left_in_the_end(world.store.objects)
    assert world.settle().keys() == end
