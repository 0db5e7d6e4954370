"""Schemas of transactions: who changes one takes a turn, and of two changes at once one is a conflict.

Numbers I1 to I10: PROTOCOL.md 5. Rules: PROTOCOL.md 9.6.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dbio_commit.base.errors import AccessDeniedError, CommitConflictError, InvalidInputError, TransactionAbortedError
from dbio_commit.commit.transaction import Transaction
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.state import Metadata
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import calls_to, fail_with, heal, once
from tests.writers import contents, live, stage, write

# --- schemas -----------------------------------------------------------------------------------------------------


def schema_of(table: Table) -> Any:
    return table.snapshot().schema


def turns(store: MemoryStore) -> int:
    return sum(path.startswith("_serial_") for path in store.objects)


def test_the_first_schema_takes_a_turn_and_appends_with_the_same_take_none(table: Table, store: MemoryStore) -> None:
    write(table, schema=columns("a"))
    assert turns(store) == 1
    write(table, schema=columns("a"))
    write(table)
    assert turns(store) == 1
    assert schema_of(table) == columns("a")
    assert all(commit.schema == columns("a") for commit in table.history())


def test_a_write_without_schema_takes_no_turn(table: Table, store: MemoryStore) -> None:
    write(table)
    assert turns(store) == 0
    assert schema_of(table) is None


def test_of_two_first_writers_with_different_schemas_the_second_has_a_conflict(table: Table) -> None:
    first, second = table.begin(), table.begin()
    stage(table, first, b"first")
    stage(table, second, b"second")
    first.commit(columns("a"))
    with pytest.raises(CommitConflictError, match="schema"):
        second.commit(columns("b"))
    assert contents(table) == [b"first"]
    assert schema_of(table) == columns("a")


@pytest.mark.parametrize("operation", ["append", "rewrite", "overwrite_partitions"])
def test_only_an_overwrite_drops_a_column(table: Table, operation: Operation) -> None:
    write(table, schema=columns("a", "b"))
    transaction = table.begin(operation)
    with pytest.raises(InvalidInputError, match="the table lacks b"):
        transaction.commit(columns("a"))
    assert schema_of(table) == columns("a", "b")
    write(table, "overwrite", schema=columns("a"))
    assert schema_of(table) == columns("a")


def test_two_first_writers_with_one_schema_both_commit(table: Table) -> None:
    first, second = table.begin(), table.begin()
    stage(table, first, b"first")
    stage(table, second, b"second")
    second.commit(columns("a"))
    first.commit(columns("a"))
    assert contents(table) == [b"first", b"second"]
    assert schema_of(table) == columns("a")


def test_two_changes_of_schema_at_once_are_a_conflict_for_the_second(table: Table) -> None:
    write(table, schema=columns("a"))
    first, second = table.begin(), table.begin()
    first.commit(columns("a", "b"))
    with pytest.raises(CommitConflictError, match="schema"):
        second.commit(columns("a", "c"))
    assert schema_of(table) == columns("a", "b")


def test_two_equal_changes_of_schema_at_once_agree(table: Table) -> None:
    write(table, schema=columns("a"))
    first, second = table.begin(), table.begin()
    first.commit(columns("a", "b"))
    second.commit(columns("a", "b"))
    assert schema_of(table) == columns("a", "b")


def hold_a_turn(table: Table, *, at: str) -> Transaction:
    """An overwrite that stops when it has taken its turn."""
    holder = table.begin("overwrite")
    stage(table, holder)
    store = table.store
    assert isinstance(store, MemoryStore)
    store.before = fail_with(AccessDeniedError("stop"), "put_if_absent", names.committed(holder.tid))
    with pytest.raises(AccessDeniedError):
        holder.commit(columns(*at))
    heal(store)
    return holder


def test_to_begin_beside_a_turn_at_work_where_the_one_before_it_was_purged_takes_the_schema_of_the_snapshot(
    table: Table, store: MemoryStore
) -> None:
    write(table, schema=columns("a"))
    table.abort(hold_a_turn(table, at="b").tid)
    hold_a_turn(table, at="c")
    store.delete_many([names.turn(2)])
    assert table.begin().terms.metadata.schema == columns("a")


@pytest.mark.parametrize("appends", ["none", "with this schema", "with the schema before it"])
def test_to_begin_beside_a_turn_at_work_takes_few_requests_and_the_schema_of_the_turn_before(
    table: Table, store: MemoryStore, clock: ManualClock, appends: str
) -> None:
    write(table, schema=columns("a"))
    before = [table.begin() for _ in range(5)]
    for _ in range(30):
        clock.advance(timedelta(seconds=1))
        write(table, schema=columns("a"))
    clock.advance(timedelta(seconds=1))
    write(table, "overwrite", schema=columns("a", "b"))
    clock.advance(timedelta(seconds=1))
    if appends == "with this schema":
        write(table, schema=columns("a", "b"))
    elif appends == "with the schema before it":
        for transaction in before:
            stage(table, transaction)
            transaction.commit(columns("a"))
    holder = hold_a_turn(table, at="ab")
    with calls_to(store) as calls:
        transaction = table.begin()
    assert transaction.terms.metadata == Metadata(columns("a", "b"), 2)
    assert "list_log" not in {operation for operation, _ in calls}
    assert len([path for operation, path in calls if operation == "get"]) == 2  # the turn, and its holder's decision
    stage(table, transaction)
    assert transaction.commit(columns("a", "b")).marker.dbio_commit.turn is None  # type: ignore[union-attr]
    holder.commit(columns("a", "b"))
    assert schema_of(table) == columns("a", "b")


def test_a_change_of_schema_loses_against_an_overwrite_with_another(table: Table) -> None:
    write(table, schema=columns("a"))
    merging = table.begin()
    write(table, "overwrite", schema=columns("z"))
    with pytest.raises(CommitConflictError, match="schema"):
        merging.commit(columns("a", "b"))
    assert schema_of(table) == columns("z")


def test_an_overwrite_that_changes_columns_sets_them_whatever_was_changed_meanwhile(table: Table) -> None:
    write(table, schema=columns("a"))
    overwriting = table.begin("overwrite")
    write(table, "overwrite", schema=columns("c"))
    overwriting.commit(columns("b"))
    assert schema_of(table) == columns("b")
    assert live(table) == set()


def test_an_overwrite_with_the_columns_that_it_saw_does_not_undo_a_change_of_columns(table: Table) -> None:
    write(table, schema=columns("a"))
    overwriting = table.begin("overwrite")
    write(table, schema=columns("a", "b"))
    blind = table.begin()
    with pytest.raises(CommitConflictError, match="schema"):
        overwriting.commit(columns("a"))
    assert schema_of(table) == columns("a", "b")
    assert [it.tid for it in table.check().pending] == [blind.tid]  # it is not aborted in vain


def test_a_blind_append_records_the_schema_as_it_is_before_its_marker(table: Table) -> None:
    write(table, schema=columns("a"))
    append = table.begin()
    stage(table, append, b"older")
    write(table, "overwrite", bodies=[b"new"], schema=columns("a", "b"))
    commit = append.commit(columns("a"))
    assert commit.schema == columns("a", "b")
    assert contents(table) == [b"new", b"older"]
    assert table.begin().terms.metadata.schema == table.snapshot().schema


@pytest.mark.parametrize("operation", ["append", "overwrite_partitions"])
@pytest.mark.parametrize("app", [None, ("job", 1)])
def test_files_that_do_not_fit_the_columns_of_an_overwrite_meanwhile_are_refused_by_name(
    table: Table, operation: Operation, app: Any
) -> None:
    write(table, schema=columns("a"))
    late = table.begin(operation, app=app)
    stage(table, late, b"older")
    write(table, "overwrite", bodies=[b"new"], schema=columns("b"))
    with pytest.raises(CommitConflictError, match="do not fit any more: the table lacks a"):
        late.commit(columns("a"))
    assert contents(table) == [b"new"]


def test_an_overwrite_that_gives_the_table_other_columns_aborts_blind_appends_only(table: Table) -> None:
    write(table, schema=columns("a"))
    blind, once, other = table.begin(), table.begin(app=("job", 1)), table.begin("overwrite")
    write(table, "overwrite", schema=columns("b"))
    assert [it.tid for it in table.check().pending] == sorted([once.tid, other.tid])
    stage(table, blind)
    with pytest.raises(CommitConflictError, match="schema"):
        blind.commit(columns("a"))


@pytest.mark.parametrize("after", [columns("a", "b"), columns("a")])
def test_an_overwrite_that_files_of_before_still_fit_aborts_nobody(table: Table, after: Any) -> None:
    write(table, schema=columns("a"))
    blind = table.begin()
    stage(table, blind, b"older")
    write(table, "overwrite", bodies=[b"new"], schema=after)
    blind.commit()
    assert contents(table) == [b"new", b"older"]


def test_a_blind_append_waits_for_an_overwrite_that_gives_the_table_other_columns(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table, schema=columns("a"))
    holder = hold_a_turn(table, at="b")
    append = table.begin()
    stage(table, append, b"older")
    decided = list[str]()

    def decide(operation: str, path: str) -> None:
        if not decided and path == names.started(holder.tid):
            decided.append(holder.tid)
            holder.commit(columns("b"))

    store.before = decide
    with pytest.raises(CommitConflictError, match="do not fit any more"):
        append.commit(columns("a"))
    assert decided
    assert schema_of(table) == columns("b")


def test_an_idempotent_append_beside_a_change_keeps_the_change(table: Table) -> None:
    write(table, schema=columns("a"))
    append = table.begin(app=("job", 1))
    write(table, "overwrite", schema=columns("b"))
    append.commit(columns("a"))
    assert schema_of(table) == columns("b")


def test_an_overwrite_without_schema_keeps_the_tables(table: Table) -> None:
    write(table, schema=columns("a"))
    write(table, "overwrite")
    assert schema_of(table) == columns("a")


def test_a_beginner_sees_the_last_schema_whatever_came_after_it(table: Table) -> None:
    write(table, schema=columns("a"))
    steps: list[Callable[[], object]] = [
        lambda: write(table),
        lambda: write(table, "overwrite"),
        lambda: table.begin("overwrite").abort(),
        lambda: write(table, app=("job", 1)),
        lambda: write(table, app=("job", 1)),  # skipped: a turn that ends with an abort
        *[lambda: table.begin().abort()] * 5,
        lambda: write(table),
    ]
    for step in steps:
        step()
        seen = table.begin().terms.metadata
        assert seen.schema == columns("a")
    write(table, schema=columns("a", "b"))
    seen = table.begin().terms.metadata
    assert seen.schema == columns("a", "b")


def test_a_beginner_beside_an_undecided_change_sees_the_schema_before_it(table: Table, store: MemoryStore) -> None:
    write(table, schema=columns("a"))
    changing, seen = table.begin("overwrite"), []
    store.after = once("put_if_absent", "_serial_*", lambda: seen.append(table.begin().terms.metadata))
    changing.commit(columns("b"))
    assert (seen[0].schema, seen[0].turn) == (columns("a"), 1)


def test_where_the_change_before_was_aborted_it_is_that_of_the_change_before_that_and_needs_no_quiet(
    table: Table, store: MemoryStore
) -> None:
    write(table, schema=columns("a"))
    write(table, "overwrite", schema=columns("a", "b"))
    aborted = table.begin("overwrite")
    store.after = once("put_if_absent", "_serial_*", lambda: table.abort(aborted.tid))
    with pytest.raises(TransactionAbortedError):
        aborted.commit(columns("c"))
    changing = table.begin("overwrite")
    seen: list[tuple[Metadata, list[tuple[str, str]]]] = []

    def begin_beside() -> None:
        with calls_to(store) as calls:
            found = table.begin().terms.metadata
        seen.append((found, [call for call in calls if call[0] == "list_log"]))

    store.after = once("put_if_absent", "_serial_*", begin_beside)
    changing.commit(columns("d"))
    ((found, listings),) = seen
    assert found == Metadata(columns("a", "b"), 3)
    assert len(listings) == 1
