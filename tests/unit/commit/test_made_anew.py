"""A table is dropped and made anew while somebody sleeps who began with the one before: nothing of theirs counts in it.

So each object says whose it is (PROTOCOL.md 7): turns, start markers, commit markers, checkpoints, what a vacuum says
that it purged. Rules: PROTOCOL.md 7.1.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import pyarrow
import pytest

from dbio_commit.base.errors import (
    AccessDeniedError,
    CommitConflictError,
    CommitStateUnknownError,
    DbioError,
    InvalidInputError,
    TableNotFoundError,
    TransactionAbortedError,
)
from dbio_commit.base.options import checkpoint_every
from dbio_commit.commit.write.files import StoreSink, write_files
from dbio_commit.log.object_cache import CACHE
from dbio_commit.log.seen import _begin_anew
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.commit import decode_commit
from dbio_commit.protocol.markers.start import decode_start
from dbio_commit.protocol.markers.turn import decode_turn
from dbio_commit.spark.write.task import TaskSpec
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import Killed, calls_to, fail_with, heal, once
from tests.writers import contents, data_files, live, stage, write

MINUTE = timedelta(minutes=1)


@pytest.fixture
def anew(table: Table, store: MemoryStore, clock: ManualClock) -> Callable[[], None]:
    """Drops the table, and makes another one of three files."""

    def make() -> None:
        heal(store)
        clock.advance(MINUTE)
        Table.over(store, clock).drop(everything=True)
        clock.advance(MINUTE)
        for _ in range(3):
            write(Table.over(store, clock), bodies=[b"new"])
        clock.advance(10 * MINUTE)

    return make


def test_every_marker_says_of_which_table_it_is(table: Table, store: MemoryStore) -> None:
    commit = write(table, "overwrite", schema=columns("a"))
    table.checkpoint()
    own = table.snapshot().table_id
    assert decode_turn(store.get(names.turn(1)), where="").table_id == own
    begun = decode_start(store.get(names.started(commit.tid)), where="")
    assert begun is not None
    assert begun.table_id == own
    info = decode_commit(store.get(names.committed(commit.tid)), where="").dbio_commit
    assert info is not None
    assert info.table_id == own
    assert table.snapshot().checkpoint.table_id == own


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("put_if_absent", "_serial_*"),
        ("list_log", ""),
        ("list_log", "_checkpoint_ _committed_"),
        ("put_if_absent", "_committed_*"),
    ],
)
@pytest.mark.parametrize("operation", ["overwrite", "append"])
def test_a_commit_that_sleeps_while_its_table_is_made_anew_fails_and_changes_nothing(
    table: Table, store: MemoryStore, anew: Callable[[], None], call: str, path: str, operation: Any
) -> None:
    write(table, schema=columns("a"))
    table.clock.sleep(300)
    transaction = table.begin(operation, app=("job", 1))
    stage(table, transaction)
    store.before = once(call, path, anew)
    with pytest.raises(DbioError, match=r"removed|aborted"):
        transaction.commit(columns("a"))
    heal(store)
    assert contents(table) == [b"new"] * 3
    table.clock.sleep(3600)
    assert contents(table) == [b"new"] * 3
    write(table, "overwrite", bodies=[b"later"])
    assert contents(table) == [b"later"]


@pytest.mark.parametrize("operation", ["overwrite", "append"])
def test_a_commit_after_which_its_writer_sleeps_while_the_table_is_made_anew_is_not_called_aborted(
    table: Table, store: MemoryStore, anew: Callable[[], None], operation: Any
) -> None:
    """It was committed, and the drop deleted its markers, too. The other tables of a joint transaction have it."""
    write(table, schema=columns("a"))
    table.clock.sleep(300)
    transaction = table.begin(operation)
    stage(table, transaction)
    store.after = once("put_if_absent", "_committed_*", anew)
    with pytest.raises(CommitStateUnknownError, match="was removed or moved while transaction"):
        transaction.commit(columns("a"))
    heal(store)
    assert contents(table) == [b"new"] * 3


@pytest.mark.parametrize("operation", ["overwrite", "append"])
def test_a_commit_that_is_refused_at_its_second_attempt_may_have_been_dropped_since(
    table: Table, store: MemoryStore, anew: Callable[[], None], operation: Any
) -> None:
    """The first attempt succeeded. That its marker is gone does not show that it failed."""
    write(table, schema=columns("a"))
    transaction = table.begin(operation)
    stage(table, transaction)

    def sleep() -> None:
        anew()
        raise AccessDeniedError("its own second attempt")

    store.after = once("put_if_absent", names.committed(transaction.tid), sleep)
    with pytest.raises(CommitStateUnknownError):
        transaction.commit(columns("a"))
    heal(store)
    assert contents(table) == [b"new"] * 3


def test_a_commit_marker_that_came_to_another_table_is_none_of_its_commits_though_its_writer_died(
    table: Table, store: MemoryStore, clock: ManualClock, anew: Callable[[], None]
) -> None:
    write(table)
    clock.advance(5 * MINUTE)
    late = table.begin("overwrite")
    stage(table, late)
    path = names.committed(late.tid)

    def sleep() -> None:
        anew()
        store.after = fail_with(Killed(), "put_if_absent", path)

    store.before = once("put_if_absent", path, sleep)
    with pytest.raises(Killed):
        late.commit()
    heal(store)
    assert path in store.objects
    assert contents(table) == [b"new"] * 3
    assert late.tid not in table.snapshot().tids
    clock.advance(timedelta(days=3))
    report = vacuum_table(table, VacuumOptions(checkpoint_after=0))
    assert report.ok
    assert contents(table) == [b"new"] * 3
    assert list(table.check().strange) == [path]
    with pytest.raises(InvalidInputError, match="of another table"):
        table.show(late.tid)


def test_the_files_of_a_commit_to_another_table_are_not_deleted(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    """If the descriptor is a wrong one, they are rows that somebody wants back."""
    write(table, bodies=[b"rows"])
    files = data_files(store)
    own = str(table.snapshot().table_id).encode()
    body = store.get(names.DESCRIPTOR)
    store.put(names.DESCRIPTOR, body.replace(own, b"0871d97c-6616-410e-8932-f4421b82696e"))
    assert live(table) == set()
    clock.advance(timedelta(days=30))
    vacuum_table(table, VacuumOptions(checkpoint_after=0))
    assert data_files(store) == files
    assert not table.check().ok


def test_with_a_wrong_descriptor_vacuum_deletes_nothing_that_a_checkpoint_told(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    for _ in range(30):
        write(table)
    for _ in range(2):
        vacuum_table(table, VacuumOptions())
        clock.advance(timedelta(hours=1))
    kept, files = store.objects[names.DESCRIPTOR], live(table)
    own = str(table.snapshot().table_id).encode()
    store.put(names.DESCRIPTOR, kept[0].replace(own, b"0871d97c-6616-410e-8932-f4421b82696e"))
    clock.advance(timedelta(days=30))
    report = vacuum_table(table, VacuumOptions())
    assert any("belong to another table" in warning for warning in report.warnings)
    assert table.check().strange
    store.objects[names.DESCRIPTOR] = kept
    assert live(table) == files == data_files(store)


def test_vacuum_counts_a_strange_checkpoint_for_no_commit(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    other = Table.over(MemoryStore(clock), clock)
    write(other)
    other.checkpoint()
    write(table)
    store.put(names.checkpoint(1), other.store.get(names.checkpoint(1)))
    assert vacuum_table(table, VacuumOptions(checkpoint_after=1)).checkpoint == names.checkpoint(2)
    assert table.check().ok


def test_a_strange_turn_is_no_sign_of_another_vacuum(table: Table, store: MemoryStore) -> None:
    write(table, "overwrite")
    store.put(names.turn(5), b'{"tid": "3764747161343079266", "table_id": "another"}')
    assert table.check().ok


def test_a_checkpoint_of_the_table_before_hides_nothing_and_skips_nobody(
    table: Table, store: MemoryStore, anew: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBIO_CHECKPOINT_EVERY", "1")
    assert checkpoint_every() == 1
    write(table)
    for version in (5, 6):
        write(table, app=("etl", version))

    def sleep() -> None:
        monkeypatch.setenv("DBIO_CHECKPOINT_EVERY", "0")
        anew()

    store.before = once("put_if_absent", "_checkpoint_*", sleep)
    for path in [path for path in store.objects if path.startswith("_checkpoint_")]:
        del store.objects[path]
    write(table, app=("etl", 8))
    heal(store)
    assert names.checkpoint(1) in store.objects, "the late one"
    assert contents(table) == [b"new"] * 3
    assert not write(table, app=("etl", 1)).skipped
    assert table.checkpoint() == names.checkpoint(2), "its number is taken"
    assert contents(table) == [b"new"] * 3 + [b"rows"]


def test_what_a_vacuum_of_the_table_before_says_that_it_purged_is_not_said_of_the_new_one(
    table: Table, store: MemoryStore, clock: ManualClock, anew: Callable[[], None]
) -> None:
    write(table)
    vacuum_table(table, VacuumOptions(checkpoint_after=0))
    clock.advance(60 * MINUTE)
    store.before = once("put_if_absent", "_purged_*", anew)
    vacuum_table(table, VacuumOptions())
    heal(store)
    assert names.purge(1) in store.objects
    assert contents(table) == [b"new"] * 3


def test_a_turn_that_a_writer_of_the_table_before_takes_is_held_by_nobody(
    table: Table, store: MemoryStore, clock: ManualClock, anew: Callable[[], None]
) -> None:
    write(table, schema=columns("a"))
    for _ in range(5):
        write(table, "overwrite")
    late = table.begin("overwrite")
    store.before = once("put_if_absent", "_serial_*", anew)
    with pytest.raises(CommitConflictError, match="another one is there now"):
        late.commit()
    heal(store)
    assert names.turn(7) in store.objects, "far above the turns of the new table"
    remembers = table.begin()
    write(table, "overwrite", schema=columns("b"))
    assert table.begin().terms.metadata.schema == columns("b")
    remembers.abort()
    begun = clock.monotonic()
    write(table, "overwrite", schema=columns("c"))
    assert clock.monotonic() - begun < 1, "nobody waits for it"


@pytest.mark.parametrize("disturb", ["drops and makes it anew", "aborts", "neither"])
def test_a_task_leaves_no_file_where_its_table_was_dropped_while_it_wrote(
    table: Table, store: MemoryStore, anew: Callable[[], None], disturb: str
) -> None:
    write(table)
    transaction = table.begin()

    def act() -> None:
        table.clock.sleep(3600)
        if disturb == "drops and makes it anew":
            anew()
        elif disturb == "aborts":
            table.abort(transaction.tid)

    store.before = once("write", f"part-*{transaction.tid}*", act)
    spec = TaskSpec(table=table, terms=transaction.terms, columns=((0, "a"),))
    batches = [pyarrow.record_batch({"a": [1, 2]})]
    write_it = partial(
        write_files, spec, batches, task=0, attempt=0, files=StoreSink(table.store, table.clock, transaction.terms)
    )
    if disturb == "neither":
        assert len(write_it()) == 1
        return
    with pytest.raises(TransactionAbortedError, match="the task's files were deleted"):
        write_it()
    assert not [path for path in data_files(store) if transaction.tid in path]


def test_a_drop_that_sleeps_while_another_ends_leaves_the_new_table_alone(
    table: Table, store: MemoryStore, anew: Callable[[], None]
) -> None:
    write(table, schema=columns("a"))
    table.clock.sleep(3600)
    store.before = once("delete", names.DESCRIPTOR, anew)
    with pytest.raises(CommitConflictError, match="another drop"):
        table.drop(everything=True)
    heal(store)
    assert contents(table) == [b"new"] * 3


def test_a_drop_that_sleeps_leaves_the_tombstone_of_another_alone(
    table: Table, store: MemoryStore, anew: Callable[[], None], clock: ManualClock
) -> None:
    write(table)

    def bury_again() -> None:
        anew()
        clock.advance(MINUTE)
        store.before = fail_with(Killed(), "delete", "*", times=None)
        with pytest.raises(Killed):
            Table.over(store, clock).drop(everything=True)
        heal(store)

    store.before = once("delete", names.DROPPED, bury_again)
    with pytest.raises(CommitConflictError, match="another drop"):
        table.drop(everything=True)
    assert names.DROPPED in store.objects


def test_an_append_looks_once_more_and_no_other_request_is_made(table: Table, store: MemoryStore) -> None:
    write(table, schema=columns("a"))
    with calls_to(store) as calls:
        write(table, schema=columns("a"))
    assert calls[-1] == ("stat_log", names.DESCRIPTOR)


@pytest.mark.parametrize("operation", ["overwrite", "append"])
def test_a_writer_that_sleeps_in_its_first_look_records_the_time_of_the_new_descriptor(
    table: Table, store: MemoryStore, clock: ManualClock, anew: Callable[[], None], operation: Any
) -> None:
    """Readers would take the commits for those of a copy otherwise, and their times for lost."""
    write(table)
    _begin_anew()
    store.before = once("get", names.DESCRIPTOR, anew)
    now = Table.over(store, clock)
    write(now, operation)
    assert now.snapshot().redated_until is None
    assert now.snapshot(clock.now()).tids == now.snapshot().tids


def test_a_reader_that_sleeps_in_its_look_sees_no_commits_of_a_copy(
    table: Table, store: MemoryStore, anew: Callable[[], None]
) -> None:
    write(table)
    CACHE.forget()
    store.before = once("get", names.DESCRIPTOR, anew)
    assert table.snapshot().redated_until is None
    assert contents(table) == [b"new"] * 3


# --- turns of the table before ------------------------------------------------------------------------------------


STRANGE = b'{"tid": "3764747161343079266", "table_id": "another"}'


def late_turn(store: MemoryStore, number: int) -> None:
    """A writer of the table before takes this turn, which its request reaches only now."""
    store.put(names.turn(number), STRANGE)


def test_a_strange_turn_ends_no_turn_below_it(table: Table, store: MemoryStore) -> None:
    """Both writers would commit otherwise, the first one without the rows of the second."""
    write(table)
    first, second = table.begin("overwrite"), table.begin("overwrite")
    stage(table, first)
    stage(table, second, b"second")

    def disturb() -> None:
        late_turn(store, 5)
        second.commit()

    store.before = once("put_if_absent", names.committed(first.tid), disturb)
    with pytest.raises(TransactionAbortedError):
        first.commit()
    assert contents(table) == [b"second"]


def test_a_strange_turn_does_not_make_its_holder_take_another(table: Table, store: MemoryStore) -> None:
    write(table)
    store.after = once("put_if_absent", names.turn(1), lambda: late_turn(store, 5))
    with calls_to(store) as calls:
        write(table, "overwrite")
    assert [path for call, path in calls if call == "put_if_absent" and path.startswith("_serial_")] == [names.turn(1)]


def test_turns_are_numbered_without_gaps_beside_strange_ones(table: Table, store: MemoryStore) -> None:
    """A process that remembers a turn looks for the next one by its name, where that is cheaper than a listing."""
    write(table, "overwrite", schema=columns("a"))
    late_turn(store, 3)
    late_turn(store, 7)
    for number in (2, 4, 5, 6, 8):
        write(table, "overwrite", schema=columns(f"c{number}"))
        assert names.turn(number) in store.objects
        assert table.begin().terms.metadata.turn == number


@pytest.mark.parametrize("lists_all_names", [False, True])
def test_a_process_that_remembers_a_turn_sees_the_next_one_behind_a_strange_one(
    store: MemoryStore, clock: ManualClock, lists_all_names: bool
) -> None:
    one, other = (Table.over(store.seen_by(name), clock) for name in ("one", "other"))
    with patch.object(MemoryStore, "lists_all_names", lists_all_names):
        write(one, "overwrite", schema=columns("a"))
        clock.advance(MINUTE)
        assert one.begin().terms.metadata.turn == 1
        late_turn(store, 2)
        assert one.begin().terms.metadata.turn == 1
        write(other, "overwrite", schema=columns("b"))
        assert names.turn(3) in store.objects
        assert one.begin().terms.metadata.schema == columns("b")


def test_a_blind_append_waits_for_a_change_of_columns_below_a_strange_turn(table: Table, store: MemoryStore) -> None:
    write(table, schema=columns("a"))
    append, change = table.begin(), table.begin("overwrite")
    stage(table, append)
    stage(table, change)

    def disturb() -> None:
        late_turn(store, 5)
        with pytest.raises(DbioError):
            append.commit()

    store.before = once("put_if_absent", names.committed(change.tid), disturb)
    change.commit(columns("b"))
    assert table.snapshot().schema == columns("b")


def test_vacuum_keeps_the_last_turn_below_a_strange_one(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    """Its number would be taken again otherwise, and later commits would count as earlier ones."""
    for name in ("a", "b", "c"):
        write(table, "overwrite", schema=columns(name))
    late_turn(store, 9)
    for _ in range(2):
        clock.advance(timedelta(days=40))
        vacuum_table(table, VacuumOptions(checkpoint_after=0))
    assert sorted(path for path in store.objects if path.startswith("_serial_")) == [names.turn(3), names.turn(9)]
    write(table, "overwrite", schema=columns("d"))
    assert names.turn(4) in store.objects
    assert table.snapshot().schema == columns("d")


def test_a_strange_turn_hides_no_vacuum_of_another_tool(table: Table, store: MemoryStore) -> None:
    commit = write(table, "overwrite")
    late_turn(store, 5)
    assert table.check().ok
    for path in (names.started(commit.tid), names.committed(commit.tid)):
        del store.objects[path]
    assert not table.check().ok


def test_a_transaction_that_holds_a_turn_below_a_strange_one_is_not_called_decided(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table)
    holder = table.begin("overwrite")
    stage(table, holder)

    def disturb() -> None:
        late_turn(store, 5)
        heal(store)
        clock.advance(timedelta(days=8))
        assert vacuum_table(table, VacuumOptions(checkpoint_after=0)).aborted == [holder.tid]

    store.before = once("put_if_absent", names.committed(holder.tid), disturb)
    with pytest.raises(TransactionAbortedError):
        holder.commit()


# --- the tombstone of the table before ----------------------------------------------------------------------------


@pytest.fixture
def late_tombstone(table: Table, store: MemoryStore, anew: Callable[[], None]) -> bytes:
    """A request for a tombstone fails, and arrives when the table was dropped and made anew."""
    write(table)
    bodies: list[bytes] = []

    def lose() -> None:
        bodies.append(store.get(names.DROPPED))
        anew()

    store.after = once("put_if_absent", names.DROPPED, lose)
    with pytest.raises(CommitConflictError, match="another drop"):
        table.drop(everything=True)
    heal(store)
    store.put(names.DROPPED, bodies[0])
    return bodies[0]


def test_a_tombstone_of_the_table_before_drops_nothing(
    table: Table, store: MemoryStore, clock: ManualClock, late_tombstone: bytes
) -> None:
    now = Table.over(store, clock)
    assert contents(now) == [b"new"] * 3
    write(now)
    write(now, "overwrite", bodies=[b"later"])
    assert contents(now) == [b"later"]
    assert now.check().ok
    assert store.get(names.DROPPED) == late_tombstone


def test_vacuum_removes_a_tombstone_of_the_table_before(
    store: MemoryStore, clock: ManualClock, late_tombstone: bytes
) -> None:
    now = Table.over(store, clock)
    vacuum_table(now, VacuumOptions(), dry_run=True)
    assert store.get(names.DROPPED) == late_tombstone
    assert vacuum_table(now, VacuumOptions()).ok
    assert names.DROPPED not in store.objects
    assert contents(now) == [b"new"] * 3


def test_a_drop_without_everything_deletes_no_commit_because_of_an_earlier_tombstone(
    store: MemoryStore, clock: ManualClock, late_tombstone: bytes
) -> None:
    now = Table.over(store, clock)
    with pytest.raises(InvalidInputError, match="has commits"):
        now.drop()
    assert contents(now) == [b"new"] * 3
    now.drop(everything=True)
    assert not store.objects


def test_a_drop_ends_when_a_descriptor_of_another_table_comes(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    """Its table cannot be read otherwise, and the drop deletes what is written there."""
    other = Table.over(MemoryStore(clock), clock)
    write(other)
    write(table)
    store.after = once(
        "delete", names.DESCRIPTOR, lambda: store.put(names.DESCRIPTOR, other.store.get(names.DESCRIPTOR))
    )
    with pytest.raises(CommitConflictError, match="check what is there now"):
        table.drop(everything=True)
    heal(store)
    assert store.get(names.DESCRIPTOR) == other.store.get(names.DESCRIPTOR)


def test_a_tombstone_is_not_strange_beside_a_descriptor_that_came_since(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    """The listing is of the table before, and what was read is of the next one."""
    write(table)
    store.after = fail_with(Killed(), "put_if_absent", names.DROPPED)
    with pytest.raises(Killed):
        table.drop(everything=True)
    heal(store)

    def end() -> None:
        clock.advance(timedelta(seconds=5))
        store.objects.clear()
        write(Table.over(store, clock), bodies=[b"new"])

    CACHE.forget()
    store.before = once("get", names.DESCRIPTOR, end)
    with pytest.raises(TableNotFoundError, match="was dropped"):
        table.snapshot()
    heal(store)
    assert contents(table) == [b"new"]
    assert table.snapshot().redated_until is None


def test_a_tombstone_of_an_earlier_version_counts_for_any_table(table: Table, store: MemoryStore) -> None:
    write(table)
    store.put(names.DROPPED, b'{"version": 1, "everything": true, "created": "2026-11-20T12:00:00Z"}')
    with pytest.raises(TableNotFoundError, match="was dropped"):
        table.snapshot()
