"""Who writes checkpoints: killed, two at once, too late, with lost answers. Numbers I1 to I10: PROTOCOL.md 5.

Rules: PROTOCOL.md 9.7.
"""

from collections.abc import Callable

import pytest

from dbio_commit.base.errors import InvalidInputError, StoreError
from dbio_commit.base.options import CHECKPOINT_EVERY
from dbio_commit.commit import probe as probe_module
from dbio_commit.commit.checkpoints import write_checkpoint
from dbio_commit.protocol import names
from dbio_commit.protocol.log import parse_log
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import Killed, Killer, Retrying, calls_to, fail_with, heal, once
from tests.unit.checkpointed import (
    Interruptions,
    busy_table,
    checkpointed,
    count_calls,
    later,
    memory,
    outcome,
    purge,
    tid_of,
)
from tests.writers import contents, write, write_days

# --- who writes checkpoints ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("already", [False, True])
def test_a_checkpoint_that_is_killed_at_any_call_changes_nothing_and_is_written_the_next_time(
    after: bool, already: bool
) -> None:  # I9
    def make() -> Table:
        table = busy_table()
        if already:
            checkpointed(table)
            write_days(table, d9=b"9")
        return table

    expected = outcome(make())
    calls = count_calls(make, Table.checkpoint)
    assert calls >= 6
    for call in range(calls):
        probe_module._PROBED.clear()
        table = make()
        Killer(memory(table), call, after=after)
        with pytest.raises(Killed):
            table.checkpoint()
        heal(memory(table))
        assert outcome(table) == expected
        is_written = parse_log(table.store.list_log()).last_checkpoint == 1 + already
        assert is_written == (call + after >= calls - 1)  # the last call looks whether an erasure came meanwhile
        assert table.checkpoint() == (None if is_written else names.checkpoint(1 + already))
        purge(memory(table))
        assert outcome(table) == expected
        assert table.check().ok


def test_of_two_that_write_a_checkpoint_at_once_one_wins_and_both_do_no_harm() -> None:
    for between in (lambda table: None, lambda table: write_days(table, d9=b"9")):
        for call in range(count_calls(busy_table, Table.checkpoint) - 1):  # the last one comes after the creation
            table = busy_table()
            written: list[str | None] = []

            def other(
                table: Table = table,
                written: list[str | None] = written,
                between: Callable[[Table], object] = between,
            ) -> None:
                between(table)
                later(table)  # so that their bodies differ
                written.append(table.checkpoint())
                later(table)

            Interruptions(memory(table), [(call, other)])
            mine = table.checkpoint()
            heal(memory(table))
            assert (written, mine) == ([names.checkpoint(1)], None)
            expected = busy_table()
            between(expected)
            assert outcome(table) == outcome(expected)
            purge(memory(table))
            assert outcome(table) == outcome(expected)
            assert table.check().ok


def test_a_checkpoint_of_an_old_snapshot_loses_or_is_ignored() -> None:  # I6
    """Its writer was suspended for so long that its number was used, or even used and purged."""
    table = busy_table()
    stale = table.snapshot()
    write_days(table, "overwrite", d1=b"new")
    assert table.checkpoint() == names.checkpoint(1)
    assert write_checkpoint(table.store, table.clock, stale) is None
    purge(memory(table))
    write_days(table, d2=b"more")
    assert table.checkpoint() == names.checkpoint(2)
    purge(memory(table))
    before = outcome(table)
    assert write_checkpoint(table.store, table.clock, stale) == names.checkpoint(1)
    assert outcome(table) == before
    assert table.check().ok
    write_days(table, d3=b"last")
    assert table.checkpoint() == names.checkpoint(3)
    purge(memory(table))
    assert sorted(it for it in memory(table).objects if it.startswith("_checkpoint")) == [names.checkpoint(3)]
    assert contents(table) == [b"last", b"more", b"new"]


def test_a_checkpoint_whose_answer_was_lost_is_there_and_is_found() -> None:
    table = busy_table()
    before = outcome(table)
    memory(table).after = fail_with(StoreError("the answer was lost"), "put_if_absent", "_checkpoint_*")
    with pytest.raises(StoreError, match="lost"):
        table.checkpoint()
    heal(memory(table))
    assert table.checkpoint() is None
    purge(memory(table))
    assert outcome(table) == before


def test_a_checkpoint_that_the_clients_own_retry_reports_as_there_already_is_ours() -> None:
    assert busy_table(Retrying()).checkpoint() == names.checkpoint(1)


def test_only_a_table_of_ours_has_checkpoints() -> None:
    store = MemoryStore()
    store.put("a.parquet", b"rows")
    with pytest.raises(InvalidInputError, match="adopt"):
        Table.over(store).checkpoint()
    assert set(store.objects) == {"a.parquet"}
    table = Table.over(MemoryStore(), ManualClock())
    table.begin()
    assert table.checkpoint() is None  # nothing is decided yet


def test_a_checkpoint_leaves_out_the_pending_and_what_commits_meanwhile() -> None:  # I1
    table = busy_table()
    pending = tid_of(table, "pending")
    committed: list[str] = []
    memory(table).before = once(
        "put_if_absent", "_checkpoint_*", lambda: committed.append(write_days(table, d7=b"7").tid)
    )
    assert table.checkpoint()
    heal(memory(table))
    covered = table.snapshot().checkpoint.covered
    assert covered
    assert not {pending, *committed} & covered
    purge(memory(table))
    assert b"7" in contents(table)
    assert b"pending" not in contents(table)


# --- writers, after their commits ---------------------------------------------------------------------------------


@pytest.fixture
def every_third(monkeypatch: pytest.MonkeyPatch) -> None:
    """After more than three commits, each writer makes a checkpoint: chance always says so."""
    monkeypatch.setenv(CHECKPOINT_EVERY, "3")
    monkeypatch.setattr(ManualClock, "random_bits", _Counter().next_multiple_of_three)


class _Counter:
    def __init__(self) -> None:
        self._value = 0

    def next_multiple_of_three(self, bits: int) -> int:
        self._value += 3
        return self._value


@pytest.mark.usefixtures("every_third")
def test_a_table_that_nobody_vacuums_is_read_in_few_requests_since_its_writers_make_checkpoints(
    table: Table, store: MemoryStore
) -> None:
    for number in range(40):
        write(table, bodies=[str(number).encode()])
    log = parse_log(store.list_log())
    assert len(log.committed) == 40  # only vacuum purges
    assert log.last_checkpoint >= 3
    fresh = MemoryStore()
    fresh.objects = store.objects
    with calls_to(fresh) as calls:
        assert len(Table.over(fresh).snapshot().files) == 40
    assert sum(operation == "get" for operation, _ in calls) < 12


@pytest.mark.parametrize("error", [StoreError("the store is full"), RuntimeError("can't start new thread")], ids=str)
@pytest.mark.usefixtures("every_third")
def test_a_commit_stands_where_its_checkpoint_fails(table: Table, store: MemoryStore, error: Exception) -> None:
    for number in range(5):
        write(table, bodies=[str(number).encode()])

    def fail(operation: str, path: str) -> None:
        if path.startswith("_checkpoint_"):
            raise error

    store.before = fail
    for number in range(5, 9):
        assert write(table, bodies=[str(number).encode()]).added
    store.before = lambda operation, path: None
    assert contents(table) == [str(number).encode() for number in range(9)]


@pytest.mark.parametrize("every", ["0", "64"])
def test_a_writer_makes_none_where_none_is_due(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, every: str
) -> None:
    monkeypatch.setenv(CHECKPOINT_EVERY, every)
    for _ in range(50):
        write(table)
    assert not parse_log(store.list_log()).checkpoints


def test_a_setting_that_is_no_number_is_refused_before_anything_is_written(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKPOINT_EVERY, "often")
    with pytest.raises(InvalidInputError, match="DBIO_CHECKPOINT_EVERY='often' is no number of commits"):
        table.begin()
    assert not store.objects
