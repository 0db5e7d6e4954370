"""Writing to a table whose log is checkpointed and purged, meanwhile or before: commits, turns, late writers.

Numbers I1 to I10: PROTOCOL.md section 5. Rules: PROTOCOL.md 9.3, 9.5, 9.7.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from dbio_commit.base.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    StoreError,
    TableExistsError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.commit.checkpoints import write_checkpoint
from dbio_commit.commit.transaction import Transaction
from dbio_commit.protocol import names
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns, data
from tests.faults import ForgetfulStore, fail_with, heal, once, unwatched
from tests.unit.checkpointed import (
    Interruptions,
    append_once,
    busy_table,
    checkpointed,
    count_calls,
    later,
    line,
    memory,
    outcome,
    pairs,
    purge,
    tid_of,
)
from tests.writers import contents, data_files, live, stage, write, write_days

# --- who writes meanwhile -----------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[Table], object]] = {
    "append": lambda table: write_days(table, d1=b"new"),
    "append once": lambda table: append_once(table, 8),
    "append again": lambda table: append_once(table, 7),
    "append with another schema": lambda table: append_once(table, 8, columns("a", "b", "c")),
    "overwrite": lambda table: write_days(table, "overwrite", d1=b"new"),
    "replace partitions": lambda table: write_days(table, "overwrite_partitions", d2=b"new", d4=b"new"),
    "rewrite": lambda table: rewrite(table),
    "begin and abort": lambda table: table.begin().abort(),
}
every_write = pytest.mark.parametrize("work", WRITES.values(), ids=WRITES)


def rewrite(table: Table) -> None:
    transaction = table.begin("rewrite")
    transaction.remove(path for path in live(table) if "day=d1" in path)
    stage(table, transaction, b"rewritten", {"day": "d1"})
    transaction.commit()


def settled(table: Table) -> Table:
    """Without the transaction that is pending: nobody has to wait for it, but turns would be held by it."""
    table.abort(tid_of(table, "pending"))
    return table


@pytest.mark.long_for("append once", "append with another schema")
@every_write
def test_a_writer_that_a_checkpoint_and_a_purge_overtake_writes_the_same(work: Callable[[Table], object]) -> None:
    plain = busy_table()
    work(plain)
    expected = outcome(plain)  # I2, I7, I8
    for first, second in pairs(count_calls(busy_table, work)):
        table = busy_table()
        Interruptions(memory(table), [(first, table.checkpoint), (second, partial(purge, memory(table)))])
        work(table)
        heal(memory(table))
        assert outcome(table) == expected
        assert table.check().ok
        table.checkpoint()
        purge(memory(table))
        assert outcome(table) == expected


@every_write
def test_a_table_whose_log_is_purged_is_written_to_like_any_other(work: Callable[[Table], object]) -> None:
    plain, table = busy_table(), busy_table()
    for _ in range(2):
        table.checkpoint()
        purge(memory(table))
        for it in (plain, table):
            if work is not WRITES["append once"] and work is not WRITES["append with another schema"]:
                work(it)
        assert outcome(table) == outcome(plain)
        assert table.check().ok


def test_a_version_of_an_application_commits_once_however_long_ago_that_was() -> None:  # I8
    clock = ManualClock()
    table = Table.over(MemoryStore(clock), clock)
    write(table, app=("job", 5))
    write(table, "overwrite", app=("other", 1))
    for _ in range(3):  # the commit itself is forgotten; its version is not
        later(table)
        memory(table).delete_many([path for path in data_files(memory(table)) if path not in live(table)])
        snapshot = table.snapshot()
        gone = [path for commit in snapshot.decided for path in commit.marker.removed]
        write_checkpoint(table.store, table.clock, snapshot, gone=gone, history=timedelta())
        purge(memory(table))
        write(table, "overwrite", app=("other", len(snapshot.decided) + 2))
    assert "job" not in {commit.app[0] for commit in table.history() if commit.app}
    assert write(table, app=("job", 5)).skipped
    assert not write(table, app=("job", 6)).skipped


def test_a_table_whose_commits_are_purged_is_still_not_empty() -> None:
    table = busy_table()
    checkpointed(table)
    with pytest.raises(TableExistsError):
        table.begin(must_be_empty=True)


def test_a_table_that_is_created_checkpointed_and_purged_meanwhile_is_not_created_twice() -> None:
    first, second = (Table.over(store, ManualClock(seed=seed)) for store in [MemoryStore()] for seed in (1, 2))
    transaction = first.begin(must_be_empty=True)
    stage(first, transaction)
    write(second)
    checkpointed(second)
    with pytest.raises(TableExistsError):
        transaction.commit()
    assert contents(second) == [b"rows"]


def test_a_change_of_schema_is_known_when_its_commit_is_purged() -> None:
    table = busy_table()
    stale = table.begin()
    stage(table, stale, b"stale", {"day": "d1"})
    append_once(table, 8, columns("a", "b", "c"))
    checkpointed(table)
    assert table.snapshot().schema == columns("a", "b", "c")
    with pytest.raises(CommitConflictError, match="schema"):
        stale.commit(columns("x"))
    append = table.begin()
    assert append.terms.metadata.schema == columns("a", "b", "c")
    append.commit(columns("a", "b", "c"))
    write_days(table, "overwrite", d1=b"1")
    assert table.snapshot().schema == columns("a", "b", "c")


# --- turns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("work", ["overwrite", "overwrite_partitions"])
def test_a_writer_that_was_shown_no_turns_still_comes_after_the_last(work: Any) -> None:  # I7
    """Its first listing in the turn was overtaken by the purge of all turns but the last, and missed that too."""
    store = ForgetfulStore()
    table = busy_table(store)
    checkpointed(table)
    transaction = table.begin(work)
    stage(table, transaction, b"new", {"day": "d1"})
    store.blind = 1
    commit = transaction.commit()
    assert commit.marker.dbio_commit is not None
    assert commit.marker.dbio_commit.turn == 4  # 3 was the last
    assert b"new" in contents(table)
    assert table.check().ok
    assert not set(commit.removed) & live(table)


def test_the_first_turn_after_a_purge_is_the_next_one() -> None:  # I7
    table = busy_table()
    for turn in range(4, 8):
        checkpointed(table)
        assert [path for path in memory(table).objects if path.startswith("_serial_")] == [names.turn(turn - 1)]
        write_days(table, "overwrite_partitions", d1=b"%d" % turn)
        assert names.turn(turn) in memory(table).objects


def test_a_turn_whose_holder_is_purged_is_not_waited_for() -> None:  # I7
    table = busy_table()
    checkpointed(table)
    before_s = table.clock.monotonic()
    write_days(table, "overwrite", d1=b"new")
    assert table.clock.monotonic() == before_s


# --- late writers -------------------------------------------------------------------------------------------------


def test_a_commit_whose_answer_was_lost_and_whose_marker_was_purged_is_committed_once() -> None:  # I3, I9
    """Its writer finds no marker, and puts it again: that changes nothing, then or later."""
    table = busy_table()
    transaction = table.begin()
    stage(table, transaction, b"new", {"day": "d1"})

    def purge_then_fail(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path == names.committed(transaction.tid):
            with unwatched(memory(table)):
                heal(memory(table))
                checkpointed(table)
            heal(memory(table))
            raise StoreError("the answer was lost")

    memory(table).after = purge_then_fail
    transaction.commit()
    heal(memory(table))
    assert names.committed(transaction.tid) in memory(table).objects
    assert contents(table).count(b"new") == 1
    assert table.snapshot().tids.count(transaction.tid) == 1
    write_days(table, "overwrite", d1=b"newer")
    checkpointed(table)
    assert names.committed(transaction.tid) not in memory(table).objects
    assert contents(table) == [b"newer"]


@pytest.mark.parametrize("body", [b"", b"no JSON", json.dumps(line([data("7")], [data("8")])["marker"]).encode()])
def test_a_marker_of_a_purged_transaction_that_turns_up_again_is_not_even_read(body: bytes) -> None:  # I3
    table = busy_table()
    before = outcome(table)
    tids = table.snapshot().tids
    checkpointed(table)
    for tid in tids:
        memory(table).put(names.started(tid))
        memory(table).put(names.committed(tid), body)
    assert outcome(table) == before
    assert table.check().ok


def test_a_transaction_that_is_decided_and_purged_cannot_be_aborted() -> None:  # I3
    table = busy_table()
    tids = table.snapshot().tids
    checkpointed(table)
    before = outcome(table)
    for tid in (*tids, tid_of(table, "abort")):
        with pytest.raises(TransactionStateError, match="cannot be aborted"):
            table.abort(tid)
    assert outcome(table) == before
    table.abort(tid_of(table, "pending"))
    assert outcome(table) == before


def test_a_transaction_that_was_aborted_is_never_committed_whatever_was_checkpointed() -> None:  # I3, I5
    """Vacuum keeps the abort marker: only then can its writer know."""
    table = busy_table()
    late = table.begin()
    stage(table, late, b"late", {"day": "d1"})
    table.abort(late.tid)
    table.checkpoint()
    with pytest.raises(TransactionAbortedError):
        late.commit()
    assert b"late" not in contents(table)


def unknown_commit(table: Table) -> Transaction:
    """It has landed, but its writer has been told neither so nor otherwise."""
    transaction = table.begin()
    stage(table, transaction, b"new", {"day": "d1"})
    path = names.committed(transaction.tid)
    memory(table).before = fail_with(StoreError("unreachable"), "get", path, times=None)
    memory(table).after = fail_with(StoreError("the answer was lost"), "put_if_absent", path)
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    heal(memory(table))
    assert b"new" in contents(table)
    return transaction


def test_a_writer_that_does_not_know_and_aborts_after_a_purge_deletes_no_live_file() -> None:  # I3, I4
    table = busy_table()
    transaction = unknown_commit(table)
    checkpointed(table)
    with pytest.raises(TransactionStateError):
        transaction.abort()
    assert b"new" in contents(table)
    assert table.check().ok


def test_a_writer_that_does_not_know_and_aborts_before_a_purge_is_told_that_it_is_committed() -> None:  # I3, I4
    table = busy_table()
    transaction = unknown_commit(table)
    table.checkpoint()
    with pytest.raises(TransactionStateError, match="committed"):
        transaction.abort()
    assert b"new" in contents(table)


def test_an_abort_that_a_newer_checkpoint_overtakes_goes_on() -> None:
    table = busy_table()
    checkpointed(table)
    write_days(table, d1=b"new")
    tid = tid_of(table, "pending")
    memory(table).before = once("get", "_checkpoint_*", lambda: checkpointed(table))
    table.abort(tid)
