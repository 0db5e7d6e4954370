"""A vacuum that is killed, or whose store fails, at each of its calls, one by one; and readers and writers beside one.

I1, I4, I5, I6, I9 of PROTOCOL.md 5, in the table scope. A killed vacuum makes no call any more.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from itertools import count

import pytest

from dbio_commit import InvalidInputError, StoreError, Table, Transaction, TransactionAbortedError
from dbio_commit.base.errors import AccessDeniedError
from dbio_commit.commit.begin import look
from dbio_commit.testing import MemoryStore
from tests.faults import Killed, Killer, act_before_call, count_calls, fail_with, heal
from tests.garbage import ALL, HOUR, LIVE, YOUNG, Scene, empty, everything
from tests.writers import contents, live, stage, write, write_days
from vacuum import Reason, VacuumOptions, VacuumReport, vacuum_table

MOST_CALLS = 200
DONE = {
    Reason.REMOVED,
    Reason.FAILED_ATTEMPT,
    Reason.ABORTED,
    Reason.UNKNOWN,
    Reason.UNTRACKED,
    Reason.START_MARKER,
    Reason.COMMIT_MARKER,
    Reason.ABORT_MARKER,
    Reason.CHECKPOINT,
    Reason.TURN,
    Reason.UPLOAD,
    Reason.DIRECTORY,
}
"""All that a vacuum of a table deletes."""

both = pytest.mark.parametrize("busy", [False, True], ids=["quiet", "busy"])
moments = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])


def vacuum_all(scene: Scene) -> VacuumReport:
    return vacuum_table(scene.table, ALL)


@cache
def undisturbed(busy: bool) -> tuple[set[str], int]:
    """What a vacuum leaves that nobody disturbs, and how many calls it makes."""
    scene = everything(busy=busy)
    calls = count_calls(scene.store, lambda: vacuum_all(scene))
    assert contents(scene.table) == LIVE
    return scene.names, calls


def check_reader(scene: Scene) -> None:
    assert contents(scene.table) == LIVE
    assert scene.table.check().ok


def check_second_vacuum(scene: Scene, *, busy: bool) -> None:
    """It does what the first has left, and no more."""
    report, names = vacuum_all(scene), undisturbed(busy)[0]
    assert report.ok
    # Where the first could abort nothing, and wrote a checkpoint, the aborts make one more due.
    assert names <= scene.names <= (names | {report.checkpoint} if report.aborted else names)
    assert [it.path for it in scene.store.unfinished] == ["day=d/large.parquet"]
    check_reader(scene)
    again = vacuum_all(scene)
    assert not again.deleted
    assert not again.aborted
    assert not again.checkpoint


def test_the_table_of_these_tests_gives_vacuum_everything_to_do() -> None:
    scene = everything(busy=False)
    report = vacuum_all(scene)
    assert {it.reason for it in report.deleted} == DONE
    assert len(report.aborted) == 2
    assert report.checkpoint
    check_second_vacuum(scene, busy=False)


# --- killed -------------------------------------------------------------------------------------------------------


def killed_scenes(*, busy: bool, after: bool) -> Iterator[Scene]:
    """A scene of its own for a kill at each call that a vacuum makes."""
    for at in range(MOST_CALLS):
        scene = everything(busy=busy)
        killer = Killer(scene.store, at, after)
        try:
            vacuum_all(scene)
        except Killed:
            heal(scene.store)
            yield scene
        else:
            assert not killer.dead
            assert at >= undisturbed(busy)[1] > 60
            return
    raise AssertionError(f"a vacuum has over {MOST_CALLS} calls")


@moments
@both
def test_after_a_kill_readers_see_the_same_and_the_next_vacuum_finishes(busy: bool, after: bool) -> None:  # I4, I9
    for scene in killed_scenes(busy=busy, after=after):
        check_reader(scene)
        check_second_vacuum(scene, busy=busy)


@moments
def test_after_a_kill_a_young_writer_commits_and_a_late_one_does_or_gets_an_error(after: bool) -> None:  # I5
    outcomes: list[bool] = []
    for scene in killed_scenes(busy=True, after=after):
        scene.young_writer().commit()
        assert contents(scene.table) == sorted([*LIVE, YOUNG])
        outcomes.append(late_writer_commits(scene))
        assert scene.table.check().ok
        write_days(scene.table, "overwrite", z=b"z")
        assert contents(scene.table) == [b"z"]
    first_abort = outcomes.index(False)
    assert first_abort > 0
    assert not any(outcomes[first_abort:])  # aborted once, and for good


def late_writer_commits(scene: Scene) -> bool:
    """Whether it does. If so its file is there, else nothing has changed."""
    before = live(scene.table)
    assert scene.late
    try:
        scene.late_writer().commit()
    except TransactionAbortedError:
        assert live(scene.table) == before
        return False
    assert live(scene.table) == {*before, scene.late.staged.path}
    assert scene.late.staged.path in scene.store.objects
    return True


# --- a store that fails -------------------------------------------------------------------------------------------


FAULTS = {
    "refused": (False, AccessDeniedError("denied")),
    "failed": (False, StoreError("no answer")),
    "done, but the answer is lost": (True, StoreError("no answer")),
}
READS = {"list_log", "list_directory", "get", "stat"}


@pytest.mark.parametrize(("after", "error"), FAULTS.values(), ids=FAULTS.keys())
def test_a_call_that_fails_is_reported_or_raised_and_the_next_vacuum_finishes(after: bool, error: StoreError) -> None:
    names, calls = undisturbed(True)
    raised: set[str] = set()
    reported: set[str] = set()
    for number in range(calls):
        scene = everything()
        failed = fail_at_call(scene.store, number, error, after=after)
        try:
            report = vacuum_all(scene)
        except StoreError:
            raised |= failed
        else:
            if report.ok:
                assert after or failed <= READS  # an answer that it can do without
                assert scene.names == names
            else:
                reported |= failed
                assert all(str(error) in it.message for it in report.failed)
        heal(scene.store)
        check_reader(scene)
        check_second_vacuum(scene, busy=True)
    assert "list_log" in raised <= READS  # what cannot be read stops a vacuum, what cannot be done does not
    assert reported >= {"delete", "put_if_absent", "list_unfinished", "abort_unfinished"}


def fail_at_call(store: MemoryStore, number: int, error: StoreError, *, after: bool) -> set[str]:
    """Returns a set that will have the operation that it was."""
    failed: set[str] = set()
    numbers = count()

    def step(operation: str, path: str) -> None:
        if next(numbers) == number:
            failed.add(operation)
            raise error

    if after:
        store.after = step
    else:
        store.before = step
    return failed


@pytest.mark.parametrize("operation", ["delete", "put_if_absent", "list_unfinished", "abort_unfinished"])
@pytest.mark.parametrize("pattern", ["*", "_*", "day=*", "_started_*", "_committed_*", "_checkpoint_*"])
def test_without_a_right_vacuum_does_what_it_may_and_hurts_nobody(operation: str, pattern: str) -> None:  # I4, I5
    scene = everything()
    scene.store.before = fail_with(AccessDeniedError("denied"), operation, pattern, times=None)
    report = vacuum_all(scene)
    heal(scene.store)
    check_reader(scene)
    assert all(it.message.endswith("denied") for it in report.failed)
    done = {it.path for it in report.deleted if it.reason not in (Reason.UPLOAD, Reason.DIRECTORY)}
    assert not done & scene.names
    scene.young_writer().commit()
    assert contents(scene.table) == sorted([*LIVE, YOUNG])
    late_writer_commits(scene)
    assert vacuum_all(scene).ok
    assert scene.table.check().ok


# --- readers and writers beside a vacuum --------------------------------------------------------------------------


def states(table: Table) -> dict[str, frozenset[str] | None]:
    """The live files as of each commit, as of each time, and now; None where they cannot be told."""
    commits = table.history()
    moments = [commit.tid for commit in commits] + [commit.timestamp.isoformat() for commit in commits]
    found: dict[str, frozenset[str] | None] = {"now": frozenset(live(table))}
    for moment in moments:
        try:
            found[moment] = frozenset(file.path for file in table.snapshot(as_of=moment).files)
        except InvalidInputError:
            found[moment] = None
    return found


@both
def test_a_reader_sees_the_same_at_every_moment_of_a_vacuum(busy: bool) -> None:  # I4, I6
    scene = everything(busy=busy)
    before = states(scene.table)
    history = [commit.tid for commit in scene.table.history()]
    within = scene.clock.now() - timedelta(hours=ALL.retention_hours)
    kept = {commit.tid for commit in scene.table.history() if commit.timestamp >= within}
    assert kept
    looks = 0

    def look(operation: str, path: str) -> None:
        nonlocal looks
        scene.store.before = lambda operation, path: None
        looks += 1
        now = states(scene.table)
        assert [commit.tid for commit in scene.table.history()] == history
        for moment, files in now.items():
            assert files == before[moment] or (files is None and moment != "now" and moment not in kept)
            for path in files or () if moment in kept or moment == "now" else ():
                assert path in scene.store.objects
        scene.store.before = look

    scene.store.before = look
    vacuum_all(scene)
    assert looks > 50


NOW = VacuumOptions(retention_hours=0, force=True, checkpoint_after=0)
"""Deletes all that is not live by now, and purges all that a checkpoint covers."""


PURGE = VacuumOptions(retention_hours=1, checkpoint_after=0)
"""The same of what is older than an hour, as far as a checkpoint is older than the metadata horizon."""


def settled() -> Scene:
    """With garbage, turns, and a checkpoint that covers all but the last commit; all more than an hour old."""
    scene = empty()
    write(scene.table, "overwrite", bodies=[b"0"])
    write(scene.table, "overwrite", bodies=[b"1"], schema=schema(0))
    write(scene.table, "overwrite", bodies=[b"2"], app=("job", 0))
    scene.clock.advance(HOUR)
    scene.table.checkpoint()
    write(scene.table, bodies=[b"3"])
    scene.clock.advance(2 * HOUR)
    return scene


READERS: dict[str, Callable[[Table], object]] = {
    "files": live,
    "history": lambda table: [commit.tid for commit in table.history()],
    "applications": lambda table: table.snapshot().app_versions,
    "schema before a write": lambda table: look(table.store, table.clock).metadata.schema,
}


def overtake(scene: Scene, read: Callable[[Table], object], vacuums: int) -> list[object]:
    """An overwrite, and then vacuums. Returns what there was to be read.

    After the first no file is left that was there before, after the second no marker.
    """
    there = [read(scene.table)]
    number = len(scene.table.history())
    write(scene.table, "overwrite", bodies=[b"new"], app=("job", number), schema=schema(number))
    there.append(read(scene.table))
    assert there[0] != there[1]
    for _ in range(vacuums):
        scene.clock.advance(timedelta(minutes=31))
        assert vacuum_table(scene.table, NOW).ok
        assert read(scene.table) == there[1]
    assert vacuums == 1 or not [name for name in scene.names if name.startswith("_committed_")]
    return there


def schema(number: int) -> dict[str, object]:
    """Each later one has the columns of the earlier ones."""
    return {"type": "struct", "fields": [{"name": f"column {it}", "type": "long"} for it in range(number + 1)]}


def overtake_at_calls(
    scene: Scene, numbers: range, read: Callable[[Table], object], vacuums: int, there: list[object]
) -> None:
    """Before each of these calls of somebody else. Adds to what there was to be read."""
    calls = count()

    def step(operation: str, path: str) -> None:
        if next(calls) in numbers:
            scene.store.before = lambda operation, path: None
            there.extend(overtake(scene, read, vacuums))
            scene.store.before = step

    scene.store.before = step


@pytest.mark.parametrize("vacuums", [1, 2])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_a_reader_that_a_vacuum_overtakes_sees_one_state_that_there_was(
    read: Callable[[Table], object], times: int, vacuums: int
) -> None:  # I6
    quiet = settled()
    for number in range(count_calls(quiet.store, lambda: read(quiet.table))):
        scene, there = settled(), list[object]()
        overtake_at_calls(scene, range(number, number + times), read, vacuums, there)
        found = read(scene.table)
        heal(scene.store)
        assert there
        assert found in there


# --- writers that a vacuum overtakes ------------------------------------------------------------------------------


def append(table: Table) -> Transaction:
    transaction = table.begin()
    stage(table, transaction, b"new")
    return transaction


def append_once(table: Table) -> Transaction:
    transaction = table.begin(app=("job", 9))
    stage(table, transaction, b"new")
    return transaction


def overwrite(table: Table) -> Transaction:
    transaction = table.begin("overwrite")
    stage(table, transaction, b"new")
    return transaction


def rewrite(table: Table) -> Transaction:
    transaction = table.begin("rewrite")
    transaction.remove(live(table))
    stage(table, transaction, b"new")
    return transaction


WRITERS = {
    append: [b"2", b"3", b"new"],
    append_once: [b"2", b"3", b"new"],
    overwrite: [b"new"],
    rewrite: [b"new"],
}


@pytest.mark.parametrize(("begin", "after"), WRITERS.items())
def test_a_writer_that_a_vacuum_overtakes_commits_all_the_same(
    begin: Callable[[Table], Transaction], after: list[bytes]
) -> None:  # I4, I7, I8
    quiet = settled()
    calls = count_calls(quiet.store, lambda: begin(quiet.table).commit(schema(9)))
    purged = 0
    for number in range(calls):
        scene = settled()
        before = scene.names
        act_before_call(scene.store, number, lambda scene=scene: vacuum_table(scene.table, PURGE))  # type: ignore[misc]
        commit = begin(scene.table).commit(schema(9))
        heal(scene.store)
        purged += not scene.names >= before
        assert not commit.skipped
        assert contents(scene.table) == after
        assert scene.table.snapshot().schema == schema(9)
        assert scene.table.check().ok
    assert purged == calls
