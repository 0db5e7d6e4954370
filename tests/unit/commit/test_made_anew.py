"""A table is dropped and made anew while somebody sleeps who began with the one before: nothing of theirs counts in it.

So each object says whose it is (PROTOCOL.md 7): turns, start markers, commit markers, checkpoints, what a vacuum says
that it purged. Rules: PROTOCOL.md 7.1.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow
import pytest

from dbio_commit.base.errors import CommitConflictError, DbioError, InvalidInputError, TransactionAbortedError
from dbio_commit.base.options import checkpoint_every
from dbio_commit.commit.write.files import StoreSink, write_files
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
