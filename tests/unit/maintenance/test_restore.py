"""`Table.restore`: a table as it was, by one commit; all or nothing. Rules: PROTOCOL.md 9.10; NOTES.md, Restores."""

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from dbio_commit import CommitConflictError, HistoryLostError, InvalidInputError, Table
from dbio_commit.commit import probe as probe_module
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import Killed, Killer, heal, once
from tests.garbage import AT_ONCE, DAY, empty, run
from tests.writers import contents, data_files, live, stage, write, write_days


def columns(*named: str) -> dict[str, Any]:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in named]
    return {"type": "struct", "fields": fields}


def test_what_was_added_goes_and_what_was_removed_comes_back_as_a_copy(table: Table, clock: ManualClock) -> None:
    write_days(table, a=b"a", b=b"b", c=b"c")
    before, then = contents(table), live(table)
    clock.sleep(10)
    at = clock.now()
    clock.sleep(10)
    write_days(table, "overwrite_partitions", b=b"new")
    write_days(table, d=b"d")
    commit = table.restore(at)
    assert contents(table) == before
    assert len(live(table) & then) == 2
    (copy,) = commit.added
    assert copy.startswith("day=b/")
    assert commit.tid in copy
    assert (len(commit.removed), commit.operation) == (2, "rewrite")
    assert commit.metrics["numRestoredFiles"] == 1


def test_what_is_before_the_first_commit_is_no_state_to_restore(table: Table, clock: ManualClock) -> None:
    before = clock.now() - DAY
    clock.sleep(10)
    write(table, bodies=[b"all"])
    clock.sleep(10)
    with pytest.raises(InvalidInputError, match=r"had no commit as of .*would remove all rows"):
        table.restore(before)
    assert contents(table) == [b"all"]


def test_a_plan_says_what_a_restore_does_and_holds_as_long_as_nothing_is_committed(
    table: Table, clock: ManualClock
) -> None:
    first = write(table, bodies=[b"old"])
    clock.sleep(10)
    second = write(table, "overwrite", bodies=[b"new", b"newer"])
    clock.sleep(10)
    plan = table.plan_restore(first.tid)
    assert ([file.path for file in plan.back], {file.path for file in plan.goes}) == (first.added, set(second.added))
    assert contents(table) == [b"new", b"newer"]
    write(table, bodies=[b"later"])
    with pytest.raises(CommitConflictError, match="for a restore, make a new plan"):
        table.restore(plan)
    assert contents(table) == [b"later", b"new", b"newer"]
    clock.sleep(10)
    commit = table.restore(table.plan_restore(first.tid))
    assert (contents(table), commit.added_files, commit.removed_files) == ([b"old"], 1, 3)


def test_a_restore_can_be_taken_back(table: Table, clock: ManualClock) -> None:
    first = write(table, bodies=[b"old"]).tid
    clock.sleep(10)
    second = write(table, "overwrite", bodies=[b"new"]).tid
    clock.sleep(10)
    table.restore(first)
    assert contents(table) == [b"old"]
    clock.sleep(10)
    table.restore(second)
    assert contents(table) == [b"new"]
    assert len(table.history()) == 4


def test_what_writers_said_of_a_file_holds_for_its_copy(table: Table, clock: ManualClock) -> None:
    first = write(table, bodies=[b"rows"])
    clock.sleep(10)
    write(table, "overwrite", bodies=[])
    (info,), (copied,) = first.files, table.restore(first.tid).files
    assert (copied.size, copied.rows, copied.statistics) == (info.size, info.rows, info.statistics)


def test_the_columns_come_back_too(table: Table, clock: ManualClock) -> None:
    first = write(table, bodies=[b"old"], schema=columns("id")).tid
    clock.sleep(10)
    write(table, bodies=[b"wider"], schema=columns("id", "v"))
    table.set({"publish": "symlink"})
    commit = table.restore(first)
    assert (contents(table), commit.operation) == ([b"old"], "overwrite")
    assert commit.metrics["numRestoredFiles"] == 1
    assert table.snapshot().schema == columns("id")
    assert table.settings() == {"publish": "symlink"}


def test_what_vacuum_has_deleted_is_said_up_front_and_nothing_changes() -> None:
    scene = empty()
    first = write(scene.table, bodies=[b"old"]).tid
    scene.clock.sleep(10)
    write(scene.table, "overwrite", bodies=[b"new"])
    scene.clock.advance(5 * DAY)
    run(scene, AT_ONCE)
    before = dict(scene.store.objects)
    with pytest.raises(InvalidInputError, match="vacuumed since"):
        scene.table.restore(first)
    assert scene.store.objects.keys() == before.keys()


def test_what_vacuum_deletes_meanwhile_ends_it(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    first = write(table, bodies=[b"old"])
    clock.sleep(10)
    write(table, "overwrite", bodies=[b"new"])
    files = data_files(store)
    store.before = once("get", first.added[0], lambda: store.objects.pop(first.added[0]))
    with pytest.raises(HistoryLostError):
        table.restore(first.tid)
    assert contents(table) == [b"new"]
    assert data_files(store) < files


def test_what_is_committed_meanwhile_is_not_undone(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    first = write(table, bodies=[b"old"])
    clock.sleep(10)
    write(table, "overwrite", bodies=[b"new"])
    clock.sleep(10)
    store.before = once("get", first.added[0], lambda: write(table, bodies=[b"other"]))
    with pytest.raises(CommitConflictError):
        table.restore(first.tid)
    assert contents(table) == [b"new", b"other"]


@pytest.mark.parametrize("as_of", [None, "42", "yesterday", 7])
def test_what_is_no_earlier_state_is_refused(table: Table, as_of: Any) -> None:
    write(table)
    with pytest.raises(InvalidInputError):
        table.restore(as_of)
    assert len(table.history()) == 1


def test_a_directory_without_a_descriptor_is_to_be_adopted_first(table: Table, store: MemoryStore) -> None:
    with store.open_write("part-0.parquet") as stream:
        stream.write(b"PAR1")
    with pytest.raises(InvalidInputError, match="dbio adopt"):
        table.restore("42")


def test_pending_files_are_no_part_of_it(table: Table, clock: ManualClock) -> None:
    first = write(table).tid
    clock.sleep(10)
    stage(table, table.begin(), b"pending")
    table.restore(first)
    assert contents(table) == [b"rows"]


def test_a_restore_that_is_killed_at_any_call_is_done_or_not_and_can_be_done_again() -> None:  # I2, I9
    seen = []
    for at in range(100):
        for after in (False, True):
            probe_module._PROBED.clear()
            clock = ManualClock()
            store = MemoryStore(clock)
            table = Table.over(store, clock)
            first = write(table, bodies=[b"old 1", b"old 2"]).tid
            clock.sleep(10)
            write(table, "overwrite", bodies=[b"new"])
            clock.sleep(10)
            killer = Killer(store, at, after)
            with suppress(Killed):
                table.restore(first)
            heal(store)
            seen.append(contents(table))
            assert seen[-1] in ([b"new"], [b"old 1", b"old 2"])
            assert table.check().ok
            clock.sleep(10)
            table.restore(first)
            assert contents(table) == [b"old 1", b"old 2"]
            if not killer.dead:
                assert sum(a != b for a, b in pairwise(seen)) == 1
                return
    raise AssertionError("over 100 calls")
