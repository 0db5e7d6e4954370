"""Reading across checkpoints, and while somebody checkpoints and purges. Numbers I1 to I10: PROTOCOL.md section 5.

Rules: PROTOCOL.md 8.1, 10.4.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from dbio_commit.table import Table
from tests.builders import data
from tests.faults import calls_to, heal
from tests.unit.checkpointed import Interruptions, World, busy_table, count_calls, later, memory, pairs, purge, tid_of
from tests.writers import contents, write_days

# --- read across checkpoints --------------------------------------------------------------------------------------


OPENED = datetime(2026, 11, 20, tzinfo=UTC)
READS: dict[str, Callable[[Table], object]] = {
    "snapshot": lambda table: (
        (it := table.snapshot()).files, it.partition_columns, it.metadata, it.app_versions, it.tids,
        [commit._replace(place=None) for commit in it.decided],
    ),
    "history": lambda table: [(commit, commit.added_files) for commit in table.history()],
    "check": lambda table: table.check(),
    "as of a time": lambda table: table.snapshot(as_of=OPENED + timedelta(hours=1)).files,
    "as of a tid": lambda table: table.snapshot(as_of=tid_of(table, "overwrite_partitions")).files,
    "inspect a commit": lambda table: inspected(table, "rewrite"),
    "inspect an abort": lambda table: inspected(table, "abort"),
    "inspect a pending transaction": lambda table: inspected(table, "pending"),
}  # fmt: skip


def inspected(table: Table, operation: str) -> tuple[object, ...]:
    report = table.show(tid_of(table, operation))
    commit = report.commit and (report.commit.timestamp, report.commit.added, report.commit.removed_files)
    return report.state, report.started, report.decided, report.files, list(report.undecided), commit


every_read = pytest.mark.parametrize("read", READS.values(), ids=READS)


@every_read
def test_a_table_reads_the_same_after_a_checkpoint_and_after_a_purge(read: Callable[[Table], object]) -> None:  # I6
    table = busy_table()
    before = read(table)
    assert table.checkpoint() == f"_checkpoint_{1:020d}"
    assert read(table) == before
    purge(memory(table))
    assert read(table) == before
    assert sorted(path for path in memory(table).objects if "/" not in path) == [
        f"_checkpoint_{1:020d}", "_dbio_table", f"_serial_{3:020d}", f"_started_{tid_of(table, 'pending')}",
    ]  # fmt: skip
    assert table.checkpoint() is None


def test_a_second_checkpoint_takes_over_what_the_first_covers() -> None:
    table, plain = busy_table(), busy_table()
    for _ in range(3):
        assert table.checkpoint()
        purge(memory(table))
        for it in (table, plain):
            write_days(it, "overwrite_partitions", d2=b"2 again")
            later(it)
        assert contents(table) == contents(plain)
        assert [commit.operation for commit in table.history()] == [commit.operation for commit in plain.history()]
        assert table.check().ok


def test_reading_a_thousand_commits_after_a_checkpoint_takes_two_calls_and_one_more_the_first_time() -> None:
    world = World()
    for number in range(1000):
        world.commit(f"{number:019d}", [data(f"{number:019d}")], operation="append")
    table = world.table()
    before = table.snapshot()
    world.checkpoint()
    for reads in ([("get", f"_checkpoint_{1:020d}")], []):
        with calls_to(world) as calls:
            assert table.snapshot().files == before.files
        assert calls == [("list_log", ""), ("list_log", "_checkpoint_ _committed_"), *reads]
        purge(world)
    with calls_to(world) as calls:
        table.begin()
    assert [call for call in calls if call[0] != "put_if_absent"] == [
        ("list_log", "_d _serial_"), ("get", "_dbio_table"),
    ]  # fmt: skip


# --- who reads while somebody checkpoints and purges --------------------------------------------------------------


@every_read
def test_a_reader_that_a_checkpoint_and_a_purge_overtake_reads_the_same(read: Callable[[Table], object]) -> None:
    """The checkpoint before any of its calls, the purge before the same or any later one."""  # I6
    expected = read(busy_table())
    for first, second in pairs(count_calls(busy_table, read) + 3):
        table = busy_table()
        Interruptions(memory(table), [(first, table.checkpoint), (second, partial(purge, memory(table)))])
        assert read(table) == expected


@every_read
def test_a_reader_that_a_newer_checkpoint_overtakes_reads_the_same(read: Callable[[Table], object]) -> None:  # I6
    def older() -> Table:
        table = busy_table()
        table.checkpoint()
        purge(memory(table))
        write_days(table, d9=b"9")
        return table

    expected = read(older())
    for first, second in pairs(count_calls(older, read) + 3):
        table = older()
        Interruptions(memory(table), [(first, table.checkpoint), (second, partial(purge, memory(table)))])
        assert read(table) == expected


def test_a_reader_that_commits_and_checkpoints_overtake_again_and_again_sees_a_state_that_was() -> None:  # I6
    for start in range(10):
        table = busy_table()
        states = [contents(table)]

        def overtake(table: Table = table, states: list[list[bytes]] = states) -> None:
            write_days(table, "overwrite", d1=b"%d" % len(states))
            states.append(contents(table))
            table.checkpoint()
            purge(memory(table))

        Interruptions(memory(table), [(start + 2 * i, overtake) for i in range(5)])
        snapshot = table.snapshot()
        heal(memory(table))
        assert sorted(table.store.get(file.path) for file in snapshot.files) in states
