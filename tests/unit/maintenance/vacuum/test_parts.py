"""What becomes of the parts of checkpoints: merged ones, and those of killed, slow and beaten writers. Parts are tiny.

I1, I4, I6 of PROTOCOL.md 5; rules: PROTOCOL.md 10.5.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from unittest.mock import patch

import pytest

from dbio_commit import Table
from dbio_commit.base.errors import AccessDeniedError, ObjectNotFoundError
from dbio_commit.log.listing import read_checkpoint
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint, decode_checkpoint, encode_root
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.names import Kind
from tests.faults import Killed, Killer, act_before_call, calls_to, count_calls, fail_with, heal, once, unwatched
from tests.garbage import (
    ALL,
    AT_ONCE,
    DAY,
    HOUR,
    LIVE,
    Scene,
    _everything,
    empty,
    kept,
    paths,
    run,
)
from tests.tiers import long
from tests.writers import contents, live, write
from vacuum import Reason, VacuumOptions, vacuum_table

pytestmark = pytest.mark.usefixtures("with_tiny_parts")

RETENTION = timedelta(hours=AT_ONCE.retention_hours)
MOST_CALLS = 400
EACH_STRIDE = pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.long)])
"""Every third call is tried, and in `make test-long` each."""


def everything() -> Scene:
    """As `garbage.everything`, with tiny parts, and parts that two killed writers have left: three days ago, and now.

    Its writers have timed out.
    """
    return _with_leftovers().copy()


@cache
def _with_leftovers() -> Scene:
    scene = _everything.__wrapped__(busy=True)  # not the one that other tests use, which has no parts
    leave_parts(scene)
    scene.clock.advance(3 * DAY)
    scene.late = scene.young = None
    leave_parts(scene)
    return scene


# --- what lies on the store ----------------------------------------------------------------------------------------


def log_of(scene: Scene) -> Log:
    return parse_log(scene.store.list_log())


def roots(scene: Scene) -> dict[int, Checkpoint]:
    """The checkpoints that are listed."""
    with unwatched(scene.store):
        bodies = {it: scene.store.objects[entry.path][0] for it, entry in log_of(scene).checkpoints.items()}
    return {it: decode_checkpoint(body, number=it, where="") for it, body in bodies.items()}


def objects_of(root: Checkpoint) -> set[str]:
    return {name for part in root.parts for name in part.objects}


def parts_of(scene: Scene) -> set[str]:
    return {path for path in scene.store.objects if path.startswith(Kind.PART)}


def needed(scene: Scene) -> set[str]:
    """The parts that listed checkpoints name."""
    return set().union(*map(objects_of, roots(scene).values()))


def check_promises(scene: Scene) -> None:
    """Listed checkpoints can be read, and whoever holds one may read on for the retention."""
    found, there, log = roots(scene), parts_of(scene), log_of(scene)
    if not found:
        return
    for root in found.values():
        assert objects_of(root) <= there
    newest = found[max(found)]
    for it in newest.dropped:
        at = it.at or log.checkpoints[newest.number].modified
        if at >= scene.clock.now() - RETENTION:
            assert {*it.part.objects} <= there


def settle(scene: Scene) -> None:
    """Vacuums until all is gone that nobody needs, and looks after each."""
    for _ in range(2):
        scene.clock.advance(RETENTION + HOUR)
        assert run(scene, ALL).ok
        check_promises(scene)
    assert parts_of(scene) == needed(scene)
    assert scene.table.check().ok


# --- writers of checkpoints that do not end -------------------------------------------------------------------------


def before_the_root(scene: Scene, act: Callable[[], object]) -> None:
    """Before the next checkpoint is created, after its parts were written."""
    scene.store.before = once("put_if_absent", "_checkpoint_*", act)


def kill() -> None:
    raise Killed


def leave_parts(scene: Scene) -> set[str]:
    """Writes the parts of a checkpoint, and is killed before the checkpoint. Returns their names."""
    before = parts_of(scene)
    change_nothing(scene)
    before_the_root(scene, kill)
    with pytest.raises(Killed):
        scene.table.checkpoint()
    heal(scene.store)
    return parts_of(scene) - before


def sleeping_writer(scene: Scene) -> Callable[[], bool]:
    """A writer that has written the parts of a checkpoint, and sleeps. Call it to wake it: whether it succeeds."""
    held: list[tuple[str, bytes]] = []
    put = scene.store.put_if_absent

    def sleep(path: str, body: bytes) -> bool:
        if path.startswith(Kind.CHECKPOINT):
            held.append((path, body))
            raise Killed
        return put(path, body)

    with patch.object(scene.store, "put_if_absent", sleep), pytest.raises(Killed):
        scene.table.checkpoint()
    [(path, body)] = held
    return lambda: put(path, body)


def change_nothing(scene: Scene) -> None:
    """A transaction that no checkpoint covers yet, and that changes no row."""
    scene.table.begin().abort()


# --- merged parts --------------------------------------------------------------------------------------------------


def grow(scene: Scene, checkpoints: int) -> None:
    for _ in range(checkpoints):
        write(scene.table, bodies=[b"a", b"b"])
        scene.table.checkpoint()
        scene.clock.advance(timedelta(minutes=1))


def quiet() -> Scene:
    """A table of four files, of which a vacuum has purged all markers, and one more file that no checkpoint covers."""
    scene = empty()
    grow(scene, 2)
    scene.clock.advance(HOUR)
    assert run(scene).checkpoint == names.checkpoint(3)
    write(scene.table)
    return scene


FOUR_AND_ONE = [b"a", b"a", b"b", b"b", b"rows"]


def test_a_merged_part_stays_for_the_retention_and_then_goes() -> None:
    scene = empty()
    grow(scene, 6)
    merged = {name for it in roots(scene)[6].dropped for name in it.part.objects}
    assert merged
    assert merged <= parts_of(scene)
    since = scene.clock.now()
    scene.clock.advance(HOUR)
    while True:
        report = run(scene)
        assert report.ok
        check_promises(scene)
        if scene.clock.now() - since > RETENTION:
            break
        assert not paths(report, Reason.PART)
        assert kept(report, Reason.PART) >= merged
        scene.clock.advance(6 * HOUR)
    assert paths(report, Reason.PART) >= merged
    assert sum(it.size for it in report.deleted if it.reason is Reason.PART) > 0
    assert len(contents(scene.table)) == 12
    settle(scene)


def test_the_number_of_parts_stays_small_over_weeks() -> None:
    scene, most = empty(), 0
    for _ in range(15):
        grow(scene, 2)
        scene.clock.advance(DAY)
        assert run(scene, AT_ONCE).ok
        check_promises(scene)
        most = max(most, len(parts_of(scene)))
    assert most < 80
    assert len(contents(scene.table)) == 60
    settle(scene)


def test_while_an_older_checkpoint_is_left_its_parts_are_no_garbage() -> None:
    """Two checkpoints stay in a table at rest. What the older one needs makes no alarm about old garbage."""
    scene = empty()
    grow(scene, 3)
    scene.clock.advance(30 * DAY)
    old = roots(scene)
    with patch("dbio_commit.maintenance.vacuum.table_plan.checkpoints_to_purge_by", return_value=[]):
        report = run(scene, VacuumOptions(checkpoint_after=1000))
    assert roots(scene).keys() == old.keys() == {1, 2, 3}
    assert not paths(report, Reason.PART) & needed(scene)
    assert not kept(report, Reason.PART) & needed(scene)
    check_promises(scene)


def test_a_slow_reader_reads_within_the_retention_what_it_began_with() -> None:
    """It has the checkpoint, and none of its parts yet: others write checkpoints, merge, vacuum and purge."""
    scene = empty()
    grow(scene, 5)
    with unwatched(scene.store):
        log = log_of(scene)
        held = [read_checkpoint(scene.store, log), read_checkpoint(scene.store, log)]
    files = live(scene.table)
    snapshots = [scene.table.snapshot(), scene.table.snapshot()]
    began = scene.clock.now()
    while scene.clock.now() - began < RETENTION - 4 * HOUR:
        scene.clock.advance(3 * HOUR)
        grow(scene, 1)
        assert run(scene, AT_ONCE).ok
    assert held[0].number not in roots(scene)
    assert {path for commit in held[0].commits for path in commit.marker.added} == files
    assert {file.path for file in snapshots[0].files} == files
    for _ in range(2):
        scene.clock.advance(RETENTION)
        assert run(scene, AT_ONCE).ok
    for read in (lambda: list(held[1].commits), lambda: list(snapshots[1].files)):
        with pytest.raises(ObjectNotFoundError, match="newer checkpoint"):
            read()
    assert files < live(scene.table)


# --- losers and killed writers --------------------------------------------------------------------------------------


def test_a_writer_that_loses_the_race_deletes_its_parts_at_once() -> None:
    scene = empty()
    grow(scene, 2)
    write(scene.table)
    other = Table.over(scene.store, scene.clock)
    before_the_root(scene, lambda: other.checkpoint())
    assert scene.table.checkpoint() is None
    assert parts_of(scene) == needed(scene) | {
        name for it in roots(scene)[3].dropped for name in it.part.objects if name in parts_of(scene)
    }
    assert not [it for it in parts_of(scene) if names.part_number(it) == 3 and it not in known_to(scene)]
    assert len(contents(scene.table)) == 5


def known_to(scene: Scene) -> set[str]:
    found = roots(scene)
    dropped = {name for it in found[max(found)].dropped for name in it.part.objects}
    return dropped | needed(scene)


def test_the_parts_of_a_loser_that_was_killed_go_after_the_retention() -> None:
    scene = quiet()
    wake = sleeping_writer(scene)
    lost = parts_of(scene) - known_to(scene)
    assert lost
    scene.table.checkpoint()
    assert not wake()
    scene.clock.advance(HOUR)
    assert kept(run(scene), Reason.PART) >= lost
    scene.clock.advance(RETENTION)
    assert paths(run(scene), Reason.PART) >= lost
    settle(scene)
    assert contents(scene.table) == FOUR_AND_ONE


def test_the_parts_of_a_killed_writer_go_once_their_number_is_taken() -> None:
    scene = quiet()
    left = leave_parts(scene)
    assert left
    assert contents(scene.table) == FOUR_AND_ONE
    assert {it.path for it in scene.table.check().garbage[Reason.PART]} >= left
    scene.clock.advance(HOUR)
    report = run(scene)
    assert not report.checkpoint
    assert kept(report, Reason.PART) >= left
    scene.clock.advance(RETENTION)
    report = run(scene)
    assert report.checkpoint == names.checkpoint(4)
    assert paths(report, Reason.PART) >= left
    assert contents(scene.table) == FOUR_AND_ONE
    assert scene.table.check().ok
    settle(scene)


def test_the_number_is_taken_also_if_no_checkpoint_has_anything_to_add() -> None:
    scene = empty()
    grow(scene, 1)
    scene.clock.advance(HOUR)
    assert run(scene).checkpoint == names.checkpoint(2)
    left = names.part(3, "0" * 32)
    scene.store.put(left, b"of a vacuum that was killed")
    scene.clock.advance(RETENTION + HOUR)
    assert scene.table.checkpoint() is None
    report = run(scene)
    assert report.checkpoint == names.checkpoint(3)
    assert left in paths(report, Reason.PART)
    settle(scene)


def test_the_parts_of_the_first_checkpoint_go_too_if_its_writer_was_killed() -> None:
    scene = empty()
    write(scene.table)
    left = leave_parts(scene)
    scene.clock.advance(RETENTION + HOUR)
    report = run(scene)
    assert report.checkpoint == names.checkpoint(1)
    assert paths(report, Reason.PART) == left
    check_promises(scene)
    assert contents(scene.table) == [b"rows"]


@pytest.mark.parametrize("sleeps", [HOUR, RETENTION - HOUR, RETENTION + HOUR, 10 * DAY])
def test_a_writer_that_sleeps_before_the_root_creates_it_or_finds_its_number_taken(sleeps: timedelta) -> None:
    scene = quiet()
    wake = sleeping_writer(scene)
    vacuums = 0
    began = scene.clock.now()
    while scene.clock.now() - began < sleeps:
        scene.clock.advance(min(sleeps, 12 * HOUR))
        vacuums += bool(run(scene).checkpoint)
    assert bool(vacuums) is (sleeps > RETENTION)
    assert wake() is (sleeps < RETENTION)
    check_promises(scene)
    assert contents(scene.table) == FOUR_AND_ONE
    assert scene.table.check().ok
    settle(scene)
    assert contents(scene.table) == FOUR_AND_ONE


def test_a_writer_that_sleeps_before_a_merge_does_not_take_its_own_part_for_lost() -> None:
    """Meanwhile vacuum has taken the number of its checkpoint, and deleted the part."""
    scene = quiet()
    write(scene.table, bodies=[b"more"] * 6)  # so many that older parts are merged with them
    number = max(roots(scene)) + 1
    own: list[str] = []

    def sleep(operation: str, path: str) -> None:
        if operation == "get" and names.part_number(path) == number:
            heal(scene.store)
            own.append(path)
            scene.clock.advance(RETENTION + HOUR)
            report = run(scene)
            assert report.checkpoint == names.checkpoint(number)
            assert path in paths(report, Reason.PART)

    scene.store.before = sleep
    assert scene.table.checkpoint() is None
    assert len(own) == 1
    check_promises(scene)
    settle(scene)
    assert contents(scene.table) == sorted([*FOUR_AND_ONE, *[b"more"] * 6])


@pytest.mark.parametrize("again", [False, *long(True)], ids=["first", "again"])
def test_a_writer_that_wakes_at_any_call_of_a_vacuum_hurts_nobody(again: bool) -> None:
    """Its parts are older than the retention."""

    def prepared() -> tuple[Scene, Callable[[], bool]]:
        scene = empty()
        grow(scene, 2)
        write(scene.table)
        wake = sleeping_writer(scene)
        scene.clock.advance(RETENTION + HOUR)
        if again:
            scene.table.checkpoint()
        return scene, wake

    scene, _ = prepared()
    calls = count_calls(scene.store, lambda: run(scene))
    won: list[bool] = []
    for number in range(calls):
        scene, wake = prepared()
        act_before_call(scene.store, number, lambda wake=wake: won.append(wake()))  # type: ignore[misc]
        report = run(scene)
        heal(scene.store)
        assert report.ok or "checkpoint" in str(report.failed)
        check_promises(scene)
        assert len(contents(scene.table)) == 5
        assert scene.table.check().ok
        settle(scene)
    assert len(won) == calls
    assert any(won) is not again
    assert not all(won)


def test_a_late_writer_whose_number_was_purged_disturbs_no_reader_and_no_vacuum() -> None:
    """It creates a checkpoint whose parts are gone. Its number is lower than the newest one, so nobody reads it."""
    scene = empty()
    grow(scene, 2)
    write(scene.table)
    wake = sleeping_writer(scene)
    for _ in range(4):
        scene.clock.advance(RETENTION)
        grow(scene, 1)
        scene.clock.advance(HOUR)
        assert run(scene).ok
    assert 3 not in roots(scene)
    assert wake()
    files = contents(scene.table)
    write(scene.table)
    scene.clock.advance(RETENTION)
    report = run(scene)
    assert (report.failed, report.warnings) == ([], [])
    assert len(contents(scene.table)) == len(files) + 1
    grow(scene, 1)
    scene.clock.advance(HOUR)
    run(scene)
    assert 3 not in roots(scene)
    settle(scene)


def test_an_older_checkpoint_without_its_parts_is_passed_over_and_the_purge_goes_on() -> None:
    scene = empty()
    grow(scene, 1)
    for _ in range(2):
        write(scene.table, "overwrite", bodies=[b"turn"])
    scene.clock.advance(HOUR)
    scene.table.checkpoint()
    [first, second] = roots(scene).values()
    scene.store.delete_many(sorted(objects_of(first) - objects_of(second)))
    report = run(scene)
    assert (report.failed, report.warnings) == ([], [])
    assert paths(report, Reason.TURN) == {names.turn(1)}
    assert contents(scene.table) == [b"turn"]


# --- killed, beside readers, and dry ----------------------------------------------------------------------------------


@EACH_STRIDE
def test_after_a_kill_readers_see_the_same_and_later_vacuums_leave_no_useless_part(stride: int) -> None:
    killed = 0
    for at in range(0, MOST_CALLS, stride):
        scene = everything()
        killer = Killer(scene.store, at, after=True)
        try:
            vacuum_table(scene.table, ALL)
        except Killed:
            killed += 1
        heal(scene.store)
        check_promises(scene)
        assert contents(scene.table) == LIVE
        assert scene.table.check().ok
        if at % (6 * stride) == 0 or not killer.dead:
            settle(scene)
            assert contents(scene.table) == LIVE
        if not killer.dead:
            break
    assert MOST_CALLS > killed * stride > 60


def test_readers_see_the_same_at_every_moment_of_a_vacuum_and_no_promise_is_broken() -> None:
    scene = everything()
    looks = 0

    def look(operation: str, path: str) -> None:
        nonlocal looks
        with unwatched(scene.store):
            check_promises(scene)
            assert contents(scene.table) == LIVE
        looks += 1

    scene.store.before = look
    report = vacuum_table(scene.table, ALL)
    heal(scene.store)
    assert paths(report, Reason.PART)
    assert kept(report, Reason.PART)
    assert looks > 60


def test_parts_go_after_all_that_needs_them() -> None:
    scene = everything()
    with calls_to(scene.store) as calls:
        vacuum_table(scene.table, ALL)
    deleted = [path for operation, path in calls if operation == "delete" and path.startswith("_")]
    kinds = [marker.kind for path in deleted if (marker := names.parse_log_name(path)) and marker.kind != Kind.CLOCK]
    assert kinds[-1] is Kind.PART
    first = kinds.index(Kind.PART)
    assert {*kinds[first:]} == {Kind.PART}
    assert Kind.CHECKPOINT in kinds[:first]


def test_a_dry_run_tells_which_parts_would_go() -> None:
    scene = everything()
    before = dict(scene.store.objects)
    dry = run(scene, ALL, dry_run=True)
    assert scene.store.objects == before
    real = run(scene, ALL)
    assert paths(dry, Reason.PART) == paths(real, Reason.PART) != set()
    assert kept(dry, Reason.PART) <= kept(real, Reason.PART)


def test_checkpoints_are_listed_once_more_only_if_a_part_may_go() -> None:
    scene = empty()
    grow(scene, 6)
    scene.clock.advance(HOUR)
    run(scene)

    def looks() -> int:
        with calls_to(scene.store) as calls:
            report = run(scene)
        assert bool(paths(report, Reason.PART)) == is_due
        return len(calls)

    is_due = False
    few = looks()
    scene.clock.advance(RETENTION)
    is_due = True
    with calls_to(scene.store) as calls:
        deleted = len(run(scene).deleted)
    is_due = False
    assert len(calls) - deleted <= few + 3, "the descriptor, the checkpoints, and the newest one"
    assert looks() <= few


def test_nothing_is_deleted_by_a_checkpoint_of_another_table_that_was_made_meanwhile() -> None:
    scene = empty()
    grow(scene, 6)
    scene.clock.advance(HOUR)
    run(scene)
    scene.clock.advance(RETENTION)
    there = parts_of(scene)

    def make_anew() -> None:
        body = scene.store.objects[names.DESCRIPTOR][0]
        scene.clock.advance(timedelta(seconds=1))
        scene.store.put(names.DESCRIPTOR, body)

    scene.store.before = once("stat_log", names.DESCRIPTOR, make_anew)
    report = run(scene)
    heal(scene.store)
    assert "another table created" in report.failed[0].message
    assert parts_of(scene) == there


def test_a_part_that_a_checkpoint_of_meanwhile_names_stays() -> None:
    """The number of the parts is free in the snapshot, and a writer takes it while the vacuum is at work."""
    scene = empty()
    grow(scene, 2)
    write(scene.table)
    wake = sleeping_writer(scene)
    scene.clock.advance(RETENTION + HOUR)
    scene.store.before = once("put_if_absent", names.checkpoint(3), wake)
    report = run(scene)
    heal(scene.store)
    assert not report.checkpoint
    assert not paths(report, Reason.PART) & objects_of(roots(scene)[3])
    check_promises(scene)
    assert len(contents(scene.table)) == 5


def test_a_dropped_part_that_a_checkpoint_of_meanwhile_names_again_stays() -> None:
    """A rebuild may go back to parts that were merged."""
    scene = empty()
    grow(scene, 6)
    scene.clock.advance(HOUR)
    run(scene)
    scene.clock.advance(RETENTION)
    newest = roots(scene)[7]
    [again, *dropped] = newest.dropped

    def rebuild() -> None:
        rebuilt = replace(newest, number=8, parts=(again.part, *newest.parts), dropped=tuple(dropped))
        scene.store.put(names.checkpoint(8), encode_root(rebuilt, created=scene.clock.now()))

    scene.store.before = once("stat_log", names.DESCRIPTOR, rebuild)
    report = run(scene)
    heal(scene.store)
    assert 8 in roots(scene)
    assert paths(report, Reason.PART)
    check_promises(scene)
    assert len(contents(scene.table)) == 12


def test_parts_that_cannot_be_deleted_are_reported_and_go_with_the_next() -> None:
    scene = everything()
    scene.store.before = fail_with(AccessDeniedError("denied"), "delete", "_part_*", times=None)
    report = run(scene, ALL)
    heal(scene.store)
    assert {it.path for it in report.failed} == {it.path for it in report.undeleted}
    assert {names.parse_log_name(it.path).kind for it in report.undeleted} == {Kind.PART}  # type: ignore[union-attr]
    check_promises(scene)
    assert run(scene, ALL).ok
    settle(scene)
