"""A vacuum of a table of ours, between any two calls of which others act, on a store in memory.

Numbers I1 to I10: PROTOCOL.md 5. Rules: PROTOCOL.md 10.2.
"""

from collections.abc import Callable
from functools import partial

import pytest

from dbio_commit import (
    StoreError,
    Table,
    TransactionAbortedError,
)
from dbio_commit.protocol.scope import Scope
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import as_dbio_sees
from tests.faults import act_before_call, count_calls, fail_with, heal
from tests.garbage import (
    ALL,
    AT_ONCE,
    DAY,
    LATE,
    LIVE,
    YOUNG,
    Scene,
    abort_with_leftovers,
    begin_writing,
    begin_writing_to,
    empty,
    everything,
    file_of,
    leave,
    run,
)
from tests.writers import contents, write, write_days
from vacuum import VacuumOptions, vacuum_table

# --- others act between any two calls of a vacuum -----------------------------------------------------------------

Act = Callable[[Scene], object]


def commit_late(scene: Scene) -> None:
    """The writer that is pending for too long: all of it, or an error and nothing (I5)."""
    before = contents(scene.table)
    try:
        scene.late_writer().commit()
    except TransactionAbortedError:
        assert contents(scene.table) == before
    else:
        assert contents(scene.table) == sorted([*before, LATE])


def commit_young(scene: Scene) -> None:
    before = contents(scene.table)
    scene.young_writer().commit()
    assert contents(scene.table) == sorted([*before, YOUNG])


def write_on(scene: Scene) -> None:
    """Some who begin now, some of whom are done."""
    write_days(scene.table, a=b"a3", new=b"new")
    write_days(scene.table, "overwrite_partitions", c=b"c2")
    abort_with_leftovers(scene, {"day": "a"})
    begin_writing(scene.table, b"not yet", "other")


def stall(scene: Scene) -> None:
    """The vacuum hangs for days, in which others work on and vacuum, until all that it knows is purged."""
    commit_late(scene)
    for _ in range(2):
        write_on(scene)
        scene.clock.advance(2 * DAY)
        assert run(scene, VacuumOptions(checkpoint_after=0)).ok
    assert run(scene, VacuumOptions(retention_hours=0, force=True, checkpoint_after=0)).ok


ACTS: dict[str, Act] = {
    "append": lambda scene: write_days(scene.table, new=b"new"),
    "overwrite": lambda scene: write_days(scene.table, "overwrite", a=b"new"),
    "write on": write_on,
    "commit late": commit_late,
    "commit young": commit_young,
    "abort": lambda scene: scene.table.abort(scene.young_writer().tid),
    "vacuum": lambda scene: run(scene, ALL),
    "checkpoint": lambda scene: scene.table.checkpoint(),
    "stall": stall,
}


@pytest.mark.long_for("append", "abort", "checkpoint")
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_whoever_acts_between_two_calls_of_a_vacuum_loses_nothing(act: Act) -> None:  # I4, I5, I6, I9
    scene = everything()
    calls = count_calls(scene.store, partial(run, scene, ALL))
    assert calls > 50
    for number in range(calls):
        scene = everything()
        seen: list[list[bytes]] = []

        def act_and_look(scene: Scene = scene, seen: list[list[bytes]] = seen) -> None:
            act(scene)
            seen.append(contents(scene.table))

        act_before_call(scene.store, number, act_and_look)
        assert run(scene, ALL).ok
        heal(scene.store)
        assert [contents(scene.table)] == seen
        assert scene.table.check().ok
        scene.clock.advance(3 * DAY)
        assert run(scene, ALL).ok
        assert [contents(scene.table)] == seen
        assert scene.table.check().ok


def test_a_vacuum_whose_clock_is_days_ahead_deletes_no_file_that_is_live_or_will_be() -> None:  # I4, I5
    def ahead(scene: Scene) -> Table:
        clock = ManualClock(scene.clock.now() + 10 * DAY)
        return Table.over(scene.store, clock)

    scene = everything(busy=False)
    calls = count_calls(scene.store, partial(vacuum_table, ahead(scene), ALL))
    for number in range(calls):
        scene = everything(busy=False)
        new: list[Callable[[], object]] = []

        def act(scene: Scene = scene, new: list[Callable[[], object]] = new) -> None:
            write_days(scene.table, new=b"new")
            new.append(begin_writing(scene.table, YOUNG, "y").transaction(scene.table).commit)

        act_before_call(scene.store, number, act)
        vacuum_table(ahead(scene), ALL)
        heal(scene.store)
        assert contents(scene.table) == sorted([*LIVE, b"new"])
        try:
            new[0]()
        except TransactionAbortedError:
            assert contents(scene.table) == sorted([*LIVE, b"new"])
        else:
            assert contents(scene.table) == sorted([*LIVE, b"new", YOUNG])
        assert scene.table.check().ok


def test_databricks_readers_of_an_unpartitioned_table_see_the_same_at_every_moment() -> None:
    """They know the markers, and neither descriptor nor checkpoints."""
    scene = empty()
    write(scene.table, bodies=[b"1", b"2"])
    failed = write(scene.table, bodies=[b"3"])
    leave(scene, file_of(failed.tid))
    write(scene.table, "overwrite", bodies=[b"4"])
    scene.table.checkpoint()
    scene.clock.advance(40 * DAY)
    abort_with_leftovers(scene, {})
    begin_writing_to(scene)
    write(scene.table, "overwrite", bodies=[b"5"])
    scene.table.checkpoint()
    scene.clock.advance(3 * DAY)
    write(scene.table, "overwrite", bodies=[b"6"])
    begin_writing_to(scene)
    scene.clock.advance(DAY)
    looks: list[list[bytes]] = []

    def look(operation: str, path: str) -> None:
        theirs = Scene(Table.over(MemoryStore(scene.clock), scene.clock))
        theirs.store.objects = as_dbio_sees(scene.store.objects)
        assert theirs.table.snapshot().scope is Scope.DIRECTORY
        looks.append(contents(theirs.table))

    scene.store.before = scene.store.after = look
    for pattern in ("_started_*", "part-*", "_committed_*", ""):
        heal(scene.store)
        failures = fail_with(StoreError("no"), "delete", pattern, times=None)

        def step(operation: str, path: str, failures: Callable[[str, str], None] = failures) -> None:
            look(operation, path)
            failures(operation, path)

        scene.store.before, scene.store.after = step, look
        run(scene, AT_ONCE)
    assert len(looks) > 100
    assert all(seen == [b"6"] for seen in looks)
