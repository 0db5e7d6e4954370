"""Somebody has deleted a commit marker: `check` says what shows it, and vacuum aborts nothing that was decided."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from typer.testing import CliRunner

from dbio_commit import Table
from dbio_commit.cli import commands
from dbio_commit.cli.check import advice
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.table import vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.tiny_parts import in_both_forms
from tests.unit.remembering import forget
from tests.writers import stage, write

pytestmark = in_both_forms

DAY = timedelta(days=1)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def lose(table: Table, tid: str, *, remembers: bool = False) -> None:
    """Deletes the commit marker, as a lifecycle rule or a slip of the hand does."""
    assert isinstance(table.store, MemoryStore)
    table.snapshot()
    del table.store.objects[names.committed(tid)]
    if not remembers:
        forget()


def lost(table: Table) -> dict[str, str]:
    return {it.tid: it.lost_marker for it in table.check().pending if it.lost_marker}


def test_a_writer_that_went_on_shows_that_it_had_committed(table: Table) -> None:
    tids = []
    for number in range(4):
        tids.append(table.write(rows(number)).tid)
        table.clock.sleep(10)
    lose(table, tids[1])
    report = table.check()
    assert not report.ok
    assert [(it.tid, it.whole) for it in report.pending] == [(tids[1], True)]
    assert lost(table) == {tids[1]: "its process has committed 2 transactions that began after it"}
    said = advice(report)
    assert said.startswith(
        f"Readers probably miss 1 commit, whose markers somebody has deleted, first _committed_{tids[1]}: bring it back"
    )
    assert "dbio abort" not in said


def test_a_transaction_that_writes_beside_others_of_its_process_is_only_pending(table: Table) -> None:
    table.write(rows(0))
    transaction = table.begin()
    for _ in range(3):
        table.clock.sleep(10)
        write(table)
    stage(table, transaction)
    report = table.check()
    assert report.ok
    assert [it.lost_marker for it in report.pending] == [""]


def test_files_that_are_no_parquet_files_show_no_commit(table: Table) -> None:
    tids = [write(table).tid for _ in range(4)]
    for tid in tids[1:2]:
        lose(table, tid)
    report = table.check()
    assert report.ok
    assert [it.lost_marker for it in report.pending] == [""]


def test_a_turn_that_is_over_shows_that_its_holder_was_decided(table: Table) -> None:
    write(table)
    tid = write(table, "overwrite").tid
    later = write(table, "overwrite").tid
    lose(table, tid)
    assert lost(table)[tid] in (
        f"transaction {later} removed a file of it",
        "its turn 1 is over, since turn 2 was taken",
    )


def test_a_commit_that_knew_of_the_last_turn_shows_that_its_holder_was_decided(table: Table) -> None:
    write(table)
    tid = write(table, "overwrite").tid
    later = write(table).tid
    lose(table, tid)
    assert lost(table) == {tid: f"its turn 1 is over, as transaction {later} records"}


def test_a_commit_that_removed_its_files_shows_that_it_was_committed(table: Table) -> None:
    tid = write(table).tid
    later = write(table, "overwrite").tid
    lose(table, tid)
    assert lost(table) == {tid: f"transaction {later} removed a file of it"}


def test_what_this_process_has_read_shows_that_it_was_committed(table: Table) -> None:
    tid = write(table).tid
    lose(table, tid, remembers=True)
    assert lost(table) == {tid: "this process has read its commit marker"}


def test_a_late_task_that_put_a_start_marker_again_shows_nothing(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table)
    tid = write(table, "overwrite").tid
    lose(table, tid)
    clock.advance(timedelta(minutes=1))
    write(table)  # it knows of turn 0 only, as long as the holder of turn 1 looks undecided
    begun, _ = store.objects.pop(names.started(tid))
    store.put(names.started(tid), begun)
    assert lost(table) == {}


def test_vacuum_neither_aborts_nor_deletes_what_was_surely_decided_and_the_marker_brings_it_back(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table)
    tid = write(table, "overwrite").tid
    write(table)
    files, marker = {it.path for it in table.snapshot().files}, store.objects[names.committed(tid)]
    lose(table, tid)
    for _ in range(3):
        clock.advance(10 * DAY)
        report = vacuum_table(table, VacuumOptions(checkpoint_after=1))
        assert report.aborted == []
        [warning] = report.warnings
        assert warning.startswith(f"_committed_{tid} is gone, and the transaction was decided: its turn 1 is over")
        assert "It is not aborted, and its files stay. Bring it back" in warning
    store.objects[names.committed(tid)] = marker
    assert {it.path for it in table.snapshot().files} == files
    assert table.check().ok


def test_vacuum_names_what_it_aborts_although_its_writer_went_on(table: Table, clock: ManualClock) -> None:
    tids = []
    for _ in range(4):
        tids.append(write(table).tid)
        clock.advance(timedelta(minutes=1))
    lose(table, tids[1])
    clock.advance(3 * DAY)
    report = vacuum_table(table, VacuumOptions())
    assert report.aborted == [tids[1]]
    [warning] = report.warnings
    assert warning.startswith(f"{tids[1]} is pending since ")
    assert f"somebody has deleted _committed_{tids[1]}: bring it and the files back" in warning


def test_whole_files_of_a_writer_that_is_not_at_work_are_pointed_out(table: Table, clock: ManualClock) -> None:
    tid = table.write(rows(1)).tid
    lose(table, tid)
    assert [it.whole for it in table.check().pending] == [None]
    clock.advance(timedelta(hours=1))
    report = table.check()
    assert report.ok
    assert [it.whole for it in report.pending] == [True]
    assert "If the writer of a pending transaction has reported a commit" in advice(report)


def test_the_command_fails_and_says_what_to_do(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    tids = [table.write(rows(number)).tid for number in range(4)]
    (tmp_path / "t" / names.committed(tids[1])).unlink()
    forget()
    done = CliRunner().invoke(commands.app, ["check", str(tmp_path / "t")])
    assert done.exit_code == 1
    assert f"_committed_{tids[1]}: its process has committed 2 transactions" in done.output.replace("\n", " ")
    done = CliRunner().invoke(commands.app, ["check", str(tmp_path / "t"), "--json"])
    assert '"lost_marker": "its process has committed 2 transactions that began after it"' in done.output


def test_a_killed_writer_is_only_pending(table: Table, clock: ManualClock) -> None:
    write(table)
    stage(table, table.begin())
    clock.advance(timedelta(minutes=5))
    report = table.check()
    assert report.ok
    assert "if the writer of a pending transaction is dead, abort it" in advice(report)
