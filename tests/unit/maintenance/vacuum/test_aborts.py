"""Many pending transactions at once: how vacuum aborts them in batches, how many in one run, what it says of the rest.

Anybody who may write to a table's prefix can leave start markers there, as many as he likes.
"""

from datetime import timedelta

import pytest

from dbio_commit import CorruptMarkerError, DbioError, StoreError, Table, TransactionStateError
from dbio_commit.commit.decision import abort_many
from dbio_commit.maintenance.vacuum import table as vacuum_table_module
from dbio_commit.maintenance.vacuum import workers
from dbio_commit.protocol import names
from dbio_commit.testing import MemoryStore
from tests.faults import calls_to, fail_with, heal, once
from tests.garbage import DAY, Scene, empty, leave
from tests.writers import stage, write
from vacuum import Control, Reason, VacuumOptions, vacuum_table

AT_ONCE = VacuumOptions(checkpoint_after=0)


def with_old_starts(number: int) -> tuple[Scene, list[str]]:
    """A table with a live file, a removed one, and so many transactions that began long ago, the oldest first."""
    scene = empty()
    write(scene.table)
    write(scene.table, "overwrite", bodies=[b"live"])
    tids = [f"{it:05d}" for it in range(number)]
    for tid in tids:
        leave(scene, names.started(tid), b"")
    scene.clock.advance(3 * DAY)
    return scene, tids


def listings(store: MemoryStore, number: int) -> int:
    scene, tids = with_old_starts(number)
    with calls_to(scene.store) as calls:
        assert sorted(vacuum_table(scene.table, AT_ONCE).aborted) == tids
    return sum(operation == "list_log" for operation, _ in calls)


def test_the_log_is_listed_as_often_for_many_old_transactions_as_for_one() -> None:
    few, many = listings(empty().store, 1), listings(empty().store, 200)
    assert few == many


def test_all_abort_markers_are_put_before_the_one_look_that_tells_whether_they_count() -> None:  # PROTOCOL.md 10.2
    scene, tids = with_old_starts(20)
    with calls_to(scene.store) as calls:
        assert abort_many(scene.store, scene.clock, tids) == dict.fromkeys(tids)
    operations = [operation for operation, _ in calls]
    last_put = max(index for index, operation in enumerate(operations) if operation == "put_if_absent")
    assert operations.index("list_log") > last_put


# --- what comes of each -------------------------------------------------------------------------------------------


def purged(table: Table, scene: Scene) -> str:
    """A transaction of which a checkpoint alone tells that it is committed."""
    tid = write(table).tid
    for _ in range(3):
        vacuum_table(table, AT_ONCE)
        scene.clock.advance(timedelta(hours=1))
    assert names.committed(tid) not in scene.store.objects
    return tid


def test_each_of_a_batch_gets_its_own_answer() -> None:
    scene = empty()
    gone = purged(scene.table, scene)
    committed = write(scene.table).tid
    aborted = scene.table.begin()
    aborted.abort()
    pending, cut_off, corrupt = (scene.table.begin().tid for _ in range(3))
    leave(scene, names.committed(cut_off), b"")
    leave(scene, names.committed(corrupt), b"{")

    outcomes = abort_many(scene.store, scene.clock, [gone, committed, aborted.tid, pending, cut_off, corrupt])

    kinds = {tid: type(outcome) for tid, outcome in outcomes.items()}
    assert kinds == {
        gone: TransactionStateError,
        committed: TransactionStateError,
        aborted.tid: type(None),
        pending: type(None),
        cut_off: type(None),
        corrupt: CorruptMarkerError,
    }
    assert names.committed(gone) not in scene.store.objects  # DBIO's readers would believe it
    snapshot = scene.table.snapshot(ignore_corrupt_markers=True)
    assert {commit.tid for commit in snapshot.decided if commit.marker.is_abort} == {aborted.tid, pending, cut_off}
    assert {gone, committed} <= set(snapshot.tids)


def test_a_commit_that_is_purged_before_its_abort_is_put_counts_and_the_others_are_aborted() -> None:  # I3
    scene = empty()
    write(scene.table)
    transaction = scene.table.begin()
    path = stage(scene.table, transaction, b"late")
    other = scene.table.begin().tid

    def commit_and_purge() -> None:
        heal(scene.store)
        transaction.commit()
        for _ in range(2):
            vacuum_table(scene.table, AT_ONCE)
            scene.clock.advance(timedelta(hours=1))
        assert names.committed(transaction.tid) not in scene.store.objects

    scene.store.before = once("put_if_absent", names.committed(transaction.tid), commit_and_purge)
    outcomes = abort_many(scene.store, scene.clock, [transaction.tid, other])
    assert isinstance(outcomes[transaction.tid], TransactionStateError)
    assert outcomes[other] is None
    assert path in {file.path for file in scene.table.snapshot().files}
    assert names.committed(transaction.tid) not in scene.store.objects


@pytest.mark.parametrize("operation", ["put_if_absent", "list_log"])
def test_a_store_that_fails_leaves_those_transactions_undecided_for_us_and_says_so(operation: str) -> None:
    scene, tids = with_old_starts(3)
    error = StoreError("no answer")
    scene.store.before = fail_with(error, operation, names.committed(tids[1]) if operation == "put_if_absent" else "*")
    outcomes: dict[str, DbioError | None] = abort_many(scene.store, scene.clock, tids)
    failed = [tid for tid, outcome in outcomes.items() if outcome is not None]
    assert failed == ([tids[1]] if operation == "put_if_absent" else tids)
    heal(scene.store)
    assert abort_many(scene.store, scene.clock, tids) == dict.fromkeys(tids)


# --- bounds of one run --------------------------------------------------------------------------------------------


def test_between_batches_of_aborts_the_caller_may_stop_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum_table_module, "ABORT_BATCH", 10)
    scene, tids = with_old_starts(35)
    phases: list[tuple[str, int, int | None]] = []
    control = Control(stop=lambda: len(phases) == 2, progress=lambda *it: phases.append(it))
    report = vacuum_table(scene.table, AT_ONCE, control=control)
    assert report.stopped
    assert phases == [("aborting", 10, 35), ("aborting", 20, 35)]
    assert (report.aborted, report.postponed) == (tids[:20], tids[20:])
    assert vacuum_table(scene.table, AT_ONCE).aborted == tids[20:]


def test_a_run_aborts_so_many_says_what_is_left_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum_table_module, "MOST_ABORTS", 20)
    scene, tids = with_old_starts(35)
    left = leave(scene, f"part-00000-tid-{tids[30]}-x-0-0-c000.parquet")

    dry = vacuum_table(scene.table, AT_ONCE, dry_run=True)
    first = vacuum_table(scene.table, AT_ONCE)

    assert (dry.aborted, dry.postponed) == (first.aborted, first.postponed) == (tids[:20], tids[20:])
    assert [it.path for it in dry.deleted] == [it.path for it in first.deleted]
    assert first.ok
    assert not first.stopped
    assert Reason.REMOVED in {it.reason for it in first.deleted}  # the rest is done all the same
    assert left in scene.store.objects  # I5: its transaction is not decided yet
    assert any("15 transactions" in warning for warning in first.warnings)

    second = vacuum_table(scene.table, AT_ONCE)

    assert (second.aborted, second.postponed) == (tids[20:], [])
    assert left not in scene.store.objects
    assert not second.warnings


def test_no_batch_of_aborts_begins_when_a_run_has_spent_its_time_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum_table_module, "ABORT_BATCH", 10)
    scene, tids = with_old_starts(35)
    scene.store.before = lambda operation, path: scene.clock.sleep(40.0 if operation == "put_if_absent" else 0.0)
    report = vacuum_table(scene.table, AT_ONCE)
    assert (report.aborted, report.postponed) == (tids[:10], tids[10:])
    assert report.ok


def test_work_is_cut_into_parts_of_at_most_a_size() -> None:
    assert workers.chunks([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
