"""Transactions that go on after vacuum has purged their markers: nothing that is live goes, and nobody is told a lie.

A commit of unknown outcome has landed, or a copy is resumed in another process; its writer aborts, or commits again.
Rules: PROTOCOL.md 9.3, 9.4.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from dbio_commit.base.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    StoreError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.commit.transaction import Transaction
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import as_dbio_sees
from tests.faults import fail_with, heal, once
from tests.tiny_parts import in_both_forms
from tests.writers import live, stage, write
from vacuum import VacuumOptions, vacuum_table

pytestmark = in_both_forms

AT_ONCE = VacuumOptions(checkpoint_after=0)


def purge(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    """What is decided is in a checkpoint then, or needs no marker, and the markers are gone."""
    for _ in range(4):
        vacuum_table(table, AT_ONCE)
        clock.advance(timedelta(minutes=31))


def commit_without_an_answer(table: Table, store: MemoryStore, partition: dict[str, str | None] | None) -> Transaction:
    """It has landed, and nothing was heard of the store since."""
    transaction = table.begin()
    stage(table, transaction, partition=partition)
    is_down = False

    def after(operation: str, path: str) -> None:
        nonlocal is_down
        is_down = is_down or names.split(path)[1] == names.committed(transaction.tid)
        if is_down:
            raise StoreError("timed out")

    store.after = after
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    heal(store)
    return transaction


def in_a_table(table: Table, store: MemoryStore) -> Transaction:
    return commit_without_an_answer(table, store, None)


def in_a_directory(table: Table, store: MemoryStore) -> Transaction:
    store.put("day=1/old.parquet", b"rows")
    return commit_without_an_answer(table, store, {"day": "1"})


def resumed(table: Table, transaction: Transaction, files: list[FileInfo] | None = None) -> Transaction:
    """A copy in another process."""
    copy = table.resume(transaction.terms)
    copy.add(files or transaction._complete_files())
    return copy


def begin_overwrite_with_a_copy(table: Table) -> tuple[Transaction, Transaction]:
    """Of one file; the copy is in another process."""
    transaction = table.begin("overwrite")
    stage(table, transaction)
    return transaction, resumed(table, transaction)


def seen_by_dbio(store: MemoryStore, clock: ManualClock) -> set[str]:
    plain = MemoryStore(clock)
    plain.objects = as_dbio_sees(store.objects)
    return live(Table.over(plain, clock))


# --- abort --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", [in_a_table, in_a_directory])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_an_abort_deletes_no_live_file_however_often(
    table: Table,
    store: MemoryStore,
    clock: ManualClock,
    begin: Callable[[Table, MemoryStore], Transaction],
    is_resumed: bool,
) -> None:
    transaction = begin(table, store)
    purge(table, store, clock)
    before = live(table)
    if is_resumed:
        transaction = resumed(table, transaction)
    for _ in range(3):
        with pytest.raises(TransactionStateError):
            transaction.abort()
        assert live(table) == before <= store.objects.keys()
        assert seen_by_dbio(store, clock) == before


@pytest.mark.parametrize("begin", [in_a_table, in_a_directory])
def test_an_abort_that_fails_at_any_call_and_is_tried_again_deletes_no_live_file(
    begin: Callable[[Table, MemoryStore], Transaction],
) -> None:
    for is_applied in (False, True):
        for fails_at in range(1, 8):
            clock = ManualClock()
            store = MemoryStore(clock)
            table = Table.over(store, clock)
            transaction = begin(table, store)
            purge(table, store, clock)
            before, calls = live(table), iter(range(1, 100))

            def fail(operation: str, path: str, calls=calls, fails_at=fails_at) -> None:  # type: ignore[no-untyped-def]
                if next(calls) == fails_at:
                    raise StoreError("503")

            setattr(store, "after" if is_applied else "before", fail)
            with pytest.raises((StoreError, TransactionStateError)):
                transaction.abort()
            heal(store)
            with pytest.raises(TransactionStateError):
                transaction.abort()
            assert live(table) == before <= store.objects.keys(), (is_applied, fails_at)


def test_an_abort_in_a_directory_whose_own_retry_conflicts_with_it_after_a_purge_deletes_no_live_file(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    store.put("day=1/old.parquet", b"rows")
    transaction = table.begin()
    path = stage(table, transaction, partition={"day": "1"})
    copy = resumed(table, transaction)
    transaction.commit()
    marker = names.join("day=1", names.committed(transaction.tid))
    store.before = once("put_if_absent", marker, lambda: purge(table, store, clock))  # it has looked, and slept
    put_if_absent = store.put_if_absent
    # The client's first attempt lands, its answer is lost, and the second conflicts with it.
    store.put_if_absent = lambda path, body: put_if_absent(path, body) and path != marker  # type: ignore[method-assign]
    with pytest.raises(TransactionStateError, match="is committed"):
        copy.abort()
    assert path in live(table) <= store.objects.keys()
    assert marker not in store.objects


def test_an_abort_beside_a_listing_that_two_checkpoints_overtook_deletes_no_live_file(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    transaction = in_a_table(table, store)
    purge(table, store, clock)
    before = live(table)
    list_log = store.list_log

    def torn(*prefixes: str) -> list[Entry]:
        """As a disk may list: nothing of what goes or comes meanwhile."""
        store.list_log = list_log  # type: ignore[method-assign]
        first = {entry.path for entry in list_log(*prefixes)}
        write(table)
        purge(table, store, clock)
        return [entry for entry in list_log(*prefixes) if entry.path in first]

    store.list_log = torn  # type: ignore[method-assign]
    with pytest.raises(TransactionStateError):
        transaction.abort()
    assert before <= store.objects.keys()


def test_an_operator_who_aborts_what_commits_and_is_purged_in_that_moment_leaves_nothing_behind(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    transaction = table.begin()
    stage(table, transaction)

    def before(operation: str, path: str) -> None:
        if path == names.committed(transaction.tid):
            heal(store)
            transaction.commit()
            purge(table, store, clock)

    store.before = before
    with pytest.raises(TransactionStateError, match="long ago"):
        table.abort(transaction.tid)
    assert seen_by_dbio(store, clock) == live(table) != set()


# --- commit again -------------------------------------------------------------------------------------------------


def test_a_commit_beside_an_abort_that_came_too_late_is_told_that_it_had_committed(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    transaction = in_a_table(table, store)
    purge(table, store, clock)
    abort = b'{"added":[],"removed":[],"dbio_commit":{"version":1,"operation":"abort","commit_id":"x",'
    store.put(names.committed(transaction.tid), abort + b'"timestamp":"2026-11-20T00:00:00Z"}}')
    before = live(table)
    assert resumed(table, transaction).commit().tid == transaction.tid
    assert live(table) == before <= store.objects.keys()


@pytest.mark.parametrize(("operation", "must_be_empty"), [("rewrite", False), ("overwrite", False), ("append", True)])
def test_a_commit_that_is_tried_again_is_told_that_it_had_committed(
    table: Table, store: MemoryStore, clock: ManualClock, operation: Operation, must_be_empty: bool
) -> None:
    if not must_be_empty:
        write(table)
    transaction = table.begin(operation, must_be_empty=must_be_empty)
    stage(table, transaction)
    if operation == "rewrite":
        transaction.remove(live(table))
    copy = resumed(table, transaction)
    copy._removed = set(transaction._removed)
    transaction.commit()
    clock.advance(timedelta(days=3))
    purge(table, store, clock)
    assert names.committed(transaction.tid) not in store.objects
    before = live(table)
    assert copy.commit().tid == transaction.tid
    assert live(table) == before == seen_by_dbio(store, clock)


def test_a_copy_that_staged_other_files_is_not_told_that_it_committed_them(table: Table, store: MemoryStore) -> None:
    transaction = table.begin()
    paths = [stage(table, transaction), stage(table, transaction)]
    first, second = transaction._complete_files()
    resumed(table, transaction, [first]).commit()
    with pytest.raises(CommitConflictError, match="another copy"):
        resumed(table, transaction, [second]).commit()
    assert live(table) == {paths[0]}
    assert resumed(table, transaction, [first]).commit().added == [first.path]


def test_a_copy_that_staged_other_files_is_told_so_also_after_the_purge(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    transaction = table.begin()
    paths = [stage(table, transaction), stage(table, transaction)]
    first, second = transaction._complete_files()
    resumed(table, transaction, [first]).commit()
    again, other = resumed(table, transaction, [first]), resumed(table, transaction, [second])
    late = resumed(table, transaction, [second])
    clock.advance(timedelta(minutes=2))
    store.after = fail_with(StoreError("timed out"), "put_if_absent", names.committed(transaction.tid), times=5)

    def before(operation: str, path: str) -> None:
        if (operation, path) == ("put_if_absent", names.committed(transaction.tid)):
            store.before = lambda operation, path: None
            purge(table, store, clock)  # between the look at its start marker and the commit
            store.before = fail_with(StoreError("timed out"), "get", names.committed(transaction.tid))

    store.before = before
    with pytest.raises(CommitStateUnknownError):
        late.commit()  # which put its marker all the same
    heal(store)
    with pytest.raises(CommitConflictError, match="another copy"):
        other.commit()
    assert live(table) == {paths[0]} == seen_by_dbio(store, clock)
    assert again.commit().added == [first.path]


def test_a_copy_that_comes_late_leaves_the_marker_that_vacuum_has_kept_for_dbios_readers(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table)
    transaction, copy = begin_overwrite_with_a_copy(table)
    transaction.commit()
    purge(table, store, clock)  # but for what hides the file that was removed, and is still there
    assert names.started(transaction.tid) not in store.objects
    assert names.committed(transaction.tid) in store.objects
    assert copy.commit().tid == transaction.tid
    assert seen_by_dbio(store, clock) == live(table)


def test_a_writer_that_sleeps_after_its_commit_leaves_the_marker_that_vacuum_has_kept_for_dbios_readers(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table)
    transaction, _ = begin_overwrite_with_a_copy(table)
    store.after = once("put_if_absent", names.committed(transaction.tid), lambda: purge(table, store, clock))
    assert transaction.commit().tid == transaction.tid
    assert names.started(transaction.tid) not in store.objects
    assert names.committed(transaction.tid) in store.objects
    assert seen_by_dbio(store, clock) == live(table)


def test_a_commit_that_has_landed_is_never_called_failed_because_of_the_look_after_it(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    transaction = table.begin()
    path = stage(table, transaction)
    clock.advance(timedelta(minutes=2))

    def after(operation: str, path: str) -> None:
        if path == names.committed(transaction.tid):
            store.before = fail_with(StoreError("503"), "stat", names.started(transaction.tid))

    store.after = after
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    assert live(table) == {path}


def test_a_copy_whose_own_marker_is_purged_as_it_looks_is_told_that_it_had_committed(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    transaction, copy = begin_overwrite_with_a_copy(table)
    transaction.commit()
    store.before = once("get", names.committed(transaction.tid), lambda: purge(table, store, clock))
    assert copy.commit().tid == transaction.tid
    assert names.committed(transaction.tid) not in store.objects


def test_a_copy_whose_abort_is_purged_as_it_looks_is_told_that_nothing_was_committed(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table)
    transaction, copy = begin_overwrite_with_a_copy(table)
    transaction.abort()
    store.before = once("get", names.committed(transaction.tid), lambda: store.objects.pop(names.committed(copy.tid)))
    with pytest.raises(TransactionAbortedError, match="long ago"):
        copy.commit()


@pytest.mark.parametrize("is_purged", [True, False])
def test_a_copy_that_is_resumed_after_a_week_is_told_that_it_had_committed(
    table: Table, store: MemoryStore, clock: ManualClock, is_purged: bool
) -> None:
    transaction = table.begin()
    path = stage(table, transaction)
    copy = resumed(table, transaction)
    transaction.commit()
    if is_purged:
        purge(table, store, clock)
    clock.advance(timedelta(days=8))
    assert copy.commit().added == [path]


# --- an abort that is purged, too ---------------------------------------------------------------------------------


class AnotherBoot(ManualClock):
    """Of a machine that was started a minute ago, or of another one; its time of day is right, or behind."""

    def __init__(self, clock: ManualClock, *, name: str = "another", behind: timedelta = timedelta()) -> None:
        super().__init__(clock.now() - behind, seed=7)
        self._name = name

    def boot(self) -> str:
        return self._name


def forget_the_abort(table: Table, clock: ManualClock) -> None:
    """Vacuum runs for longer than abort markers are kept, beside a writer."""
    for _ in range(80):
        clock.advance(timedelta(hours=12))
        write(table)
        vacuum_table(table, AT_ONCE)


ALMOST = timedelta(days=39, hours=23, minutes=59, seconds=30)


@pytest.mark.long_for("tiny-parts")
@pytest.mark.parametrize(
    ("boot", "behind"),
    [("manual", timedelta()), ("another", timedelta()), ("another", ALMOST), ("another", timedelta(days=90))],
    ids=["paused", "started again", "started again, clock behind", "clock far behind"],
)
def test_a_commit_that_comes_after_its_abort_was_purged_is_refused_whatever_the_clocks_say(
    table: Table, store: MemoryStore, clock: ManualClock, boot: str, behind: timedelta
) -> None:
    """The machine was started again, or paused with its clocks: its writer seems to have begun a minute ago."""
    write(table)
    transaction = table.begin()
    path = stage(table, transaction)
    files = transaction._complete_files()
    forget_the_abort(table, clock)
    assert not any(transaction.tid in path for path in store.objects)
    again = Table.over(store, AnotherBoot(clock, name=boot, behind=behind)).resume(transaction.terms)
    again.add(files)
    with pytest.raises(TransactionAbortedError):
        again.commit()
    assert transaction.tid not in table.snapshot().tids
    assert path not in live(table)
    assert table.check().ok


@pytest.mark.long_for("tiny-parts")
def test_a_commit_whose_abort_is_purged_between_the_look_and_the_put_is_withdrawn(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table)
    transaction = table.begin()
    stage(table, transaction)
    transaction._complete_files()
    clock.advance(timedelta(minutes=2))
    marker = names.committed(transaction.tid)
    store.before = once("put_if_absent", marker, lambda: forget_the_abort(table, clock))
    with pytest.raises(TransactionAbortedError, match="long ago"):
        transaction.commit()
    assert transaction.tid not in table.snapshot().tids
    assert table.check().ok


@pytest.mark.long_for("tiny-parts")
def test_a_commit_that_can_not_be_withdrawn_is_no_success_and_the_error_says_what_to_do(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table)
    transaction = table.begin()
    stage(table, transaction)
    transaction._complete_files()
    clock.advance(timedelta(minutes=2))
    marker = names.committed(transaction.tid)

    def before(operation: str, path: str) -> None:
        if (operation, path) == ("put_if_absent", marker):
            heal(store)
            forget_the_abort(table, clock)
            store.before = fail_with(StoreError("503"), "delete", marker, times=None)

    store.before = before
    with pytest.raises(CommitStateUnknownError, match="delete it"):
        transaction.commit()


def test_a_transaction_that_is_resumed_on_another_machine_commits(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    transaction = table.begin()
    path = stage(table, transaction)
    files = transaction._complete_files()
    again = Table.over(store, AnotherBoot(clock, behind=timedelta(hours=1))).resume(transaction.terms)
    again.add(files)
    assert again.commit().added == [path]


@pytest.mark.parametrize("apart", [timedelta(seconds=20), timedelta(seconds=40), timedelta(minutes=29)])
def test_a_vacuum_whose_clock_is_ahead_does_not_end_a_transaction_that_is_at_work(
    table: Table, store: MemoryStore, clock: ManualClock, apart: timedelta
) -> None:
    for _ in range(25):
        write(table)
    transaction = table.begin()
    path = stage(table, transaction)
    ahead = Table.over(store, ManualClock(clock.now() + timedelta(days=40), seed=9))
    for _ in range(3):
        clock.advance(apart)
        vacuum_table(ahead, VacuumOptions())
    transaction.commit()
    assert path in live(table) <= store.objects.keys()
