"""A turn that was free when a transaction began is taken without another look (PROTOCOL.md 9.5)."""

import pytest

from dbio_commit import CommitConflictError, Table
from dbio_commit.base.errors import StoreError
from dbio_commit.commit.turns import TRUST_S
from dbio_commit.protocol import names
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import calls_to, fail_with, heal, once
from tests.writers import contents, stage, write


@pytest.fixture
def table(store: MemoryStore, clock: ManualClock) -> Table:
    """A table whose last turn was the second."""
    table = Table.over(store, clock)
    write(table, schema=columns("a"))
    clock.sleep(60)
    write(table, "overwrite", bodies=[b"old"])
    return table


def calls_before_the_turn(table: Table, store: MemoryStore, *, sleep_s: float) -> list[tuple[str, str]]:
    """What the commit of an overwrite asks the store for before it takes its turn."""
    transaction = table.begin("overwrite")
    stage(table, transaction, b"new")
    table.clock.sleep(sleep_s)
    with calls_to(store) as calls:
        transaction.commit()
    return calls[: [operation for operation, _ in calls].index("put_if_absent")]


def test_a_commit_soon_after_its_begin_takes_its_turn_at_once(table: Table, store: MemoryStore) -> None:
    assert {operation for operation, _ in calls_before_the_turn(table, store, sleep_s=1)} == {"stat"}  # of its file
    assert contents(table) == [b"new"]


def test_a_commit_long_after_its_begin_looks_at_the_turns_first(table: Table, store: MemoryStore) -> None:
    calls = calls_before_the_turn(table, store, sleep_s=TRUST_S + 1)
    assert ("list_log", "_checkpoint_ _committed_ _d _serial_") in calls


def test_a_first_write_takes_the_first_turn_at_once(store: MemoryStore, clock: ManualClock) -> None:
    table = Table.over(store, clock)
    transaction = table.begin()
    stage(table, transaction)
    with calls_to(store) as calls:
        transaction.commit(columns("a"))
    assert [operation for operation, _ in calls[:2]] == ["stat", "put_if_absent"]


def test_who_began_while_a_turn_was_undecided_waits_for_it(table: Table, store: MemoryStore) -> None:
    first, second = table.begin("overwrite"), table.begin("overwrite")
    stage(table, first, b"first")
    stage(table, second, b"second")
    third = None

    def begin_another() -> None:
        nonlocal third
        third = table.begin("overwrite")
        stage(table, third, b"third")

    store.before = once("put_if_absent", names.committed(first.tid), begin_another)
    first.commit()
    heal(store)
    assert third is not None
    with calls_to(store) as calls:
        third.commit()
    assert next(path for operation, path in calls if operation == "put_if_absent") == names.turn(4)
    second.commit()
    assert contents(table) == [b"second"]


def test_a_turn_that_another_has_taken_since_is_not_taken_twice(table: Table, store: MemoryStore) -> None:
    transaction = table.begin("overwrite")
    stage(table, transaction, b"new")
    write(table, "overwrite", bodies=[b"other"])
    removed = transaction.commit()
    assert removed.removed_files == 1
    assert contents(table) == [b"new"]
    assert names.turn(4) in store.objects


def test_a_turn_whose_answer_was_lost_is_the_writers_own(table: Table, store: MemoryStore) -> None:
    transaction = table.begin("overwrite")
    stage(table, transaction, b"new")
    store.after = fail_with(StoreError("no answer"), "put_if_absent", "_serial_*")
    transaction.commit()
    assert contents(table) == [b"new"]
    assert names.turn(4) not in store.objects


@pytest.mark.parametrize("operation", ["overwrite", "append"])
def test_a_turn_in_a_table_that_somebody_removed_is_removed_again(
    table: Table, store: MemoryStore, operation: str
) -> None:
    """Alone, it would show that a table has lost its descriptor, and nobody could write there."""
    transaction = table.begin(operation, app=("job", 1))  # type: ignore[arg-type]
    stage(table, transaction)
    store.before = once("put_if_absent", "_serial_*", store.objects.clear)
    with pytest.raises(CommitConflictError, match="removed, moved or replaced"):
        transaction.commit()
    assert not [path for path in store.objects if path.startswith("_serial_")]
    write(table, bodies=[b"anew"])
    assert contents(table) == [b"anew"]
