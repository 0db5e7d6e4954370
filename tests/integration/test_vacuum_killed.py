"""Real processes on a local disk: a vacuum that is killed after each of its calls, and vacuums beside writers.

A kill here is SIGKILL. The same in memory, before and after every call, is
tests/unit/maintenance/vacuum/test_crash_points.py. Invariants: PROTOCOL.md 5.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from dbio_commit import CommitConflictError, FileInfo, StoreError, Table, TransactionAbortedError
from dbio_commit.commit.request import Terms
from dbio_commit.maintenance.vacuum import plan
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.store import parse_location
from dbio_commit.store.contract import Unfinished
from dbio_commit.store.local import LocalStore
from tests.integration.test_concurrent_writers import processes
from tests.later import vacuum_later
from tests.tiers import long
from tests.writers import contents, live, stage
from vacuum import Reason, VacuumOptions, VacuumReport, vacuum_table

OLD_S = 3 * 24 * 3600


# --- tables with garbage, made old --------------------------------------------------------------------------------


class Late(NamedTuple):
    """A writer that has begun, and will commit some day."""

    terms: Terms
    file: FileInfo


def write(table: Table, operation: Any, *days: str) -> None:
    transaction = table.begin(operation, partition_by=["day"])
    attempt = table.resume(transaction.terms)
    for day in days:
        stage(table, transaction, f"{transaction.tid} {day}".encode(), {"day": day})
        stage(table, attempt, b"garbage", {"day": day})
    transaction.commit()


def begin_late(table: Table) -> Late:
    transaction = table.begin(partition_by=["day"])
    path = stage(table, transaction, b"late", {"day": "late"})
    return Late(transaction.terms, FileInfo(path=path, size=4, partition={"day": "late"}))


def make_table(root: Path) -> Late:
    table = Table(root)
    write(table, "append", "1", "2", "3")
    write(table, "overwrite", "1", "2")
    table.abort(begin_late(table).terms.tid)
    table.checkpoint()
    write(table, "overwrite_partitions", "2")
    late = begin_late(table)
    make_old(root)
    write(table, "overwrite_partitions", "1")  # what it removes is young, and stays
    return late


def make_directory(root: Path) -> None:
    """Here a late writer commits what is deleted: a limit of the directory scope."""
    for day in "123":
        (root / f"day={day}").mkdir(parents=True)
        (root / f"day={day}" / "plain.parquet").write_bytes(b"plain")
    table = Table(root)
    write(table, "append", "1", "2", "3")
    write(table, "overwrite", "1", "2")
    begin_late(table)
    make_old(root)
    vacuum_table(table, VacuumOptions())  # which leaves queues
    write(table, "overwrite", "1", "2")
    begin_late(table)
    make_old(root)
    write(table, "append", "1")


def make_old(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        modified = path.stat().st_mtime - OLD_S
        os.utime(path, (modified, modified))


def sweep(root: Path, *, by_s: float = 0) -> VacuumReport:
    """A vacuum so much later."""
    report = vacuum_later(Table(root), VacuumOptions(checkpoint_after=1), by=timedelta(seconds=by_s))
    assert report.failed == []
    return report


def everything(root: Path) -> list[str]:
    """Every object and directory but what a killed vacuum leaves to a later one; the ids of queues are random."""
    found = {
        str(path.relative_to(root)) for path in root.rglob("*") if not path.name.startswith(("._dbio-", "_clock_"))
    }
    return sorted(re.sub(r"(_committed_vacuum)\d+", r"\1", path) for path in found)


# --- killed -------------------------------------------------------------------------------------------------------


class Mortal(LocalStore):
    """Kills its process after so many calls. Deletions count one by one, and within a creation there are two moments.

    No other process is to be killed: a store that is pickled, or a fork of this process, is on its own.
    """

    def __init__(self, table: Table, calls: int) -> None:
        super().__init__(parse_location(table.store.url), {})
        self._left, self._lock = calls, Lock()
        link = os.link

        def linking(*paths: Any, **options: Any) -> None:
            self._spend()  # the temporary file is there, its name is not
            link(*paths, **options)
            self._spend()  # both are

        os.link = linking

    def _spend(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def delete_many(self, paths: Any) -> dict[str, StoreError]:
        return self._one_by_one(super().delete_many, paths)

    def abort_unfinished(self, items: Iterable[Unfinished]) -> dict[str, StoreError]:
        return self._one_by_one(super().abort_unfinished, items)

    def _one_by_one(
        self, delete: Callable[[Any], dict[str, StoreError]], items: Iterable[Any]
    ) -> dict[str, StoreError]:
        failures: dict[str, StoreError] = {}
        for item in items:
            failures |= delete([item])
            self._spend()
        return failures

    def remove_directories(self, paths: Iterable[str]) -> list[str]:
        removed: list[str] = []
        for path in paths:
            removed += super().remove_directories([path])
            self._spend()
        return removed

    def list_log(self, *prefixes: str) -> Any:
        return self._counted(super().list_log)

    def list_files(self, *args: Any, **options: Any) -> Any:
        return self._counted(super().list_files, *args, **options)

    def list_directory(self, under: str = "") -> Any:
        return self._counted(super().list_directory, under)

    def list_unfinished(self) -> Any:
        return self._counted(super().list_unfinished)

    def get(self, path: str, *, limit_bytes: int = MAX_BYTES) -> Any:
        return self._counted(super().get, path, limit_bytes=limit_bytes)

    def stat(self, path: str) -> Any:
        return self._counted(super().stat, path)

    def _counted(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        result = call(*args, **options)
        self._spend()
        return result


def kill_one_after_another(template: str, copies: str) -> None:
    """Vacuums copies of the directory, each in a fork that is killed after one call more than the one before.

    Prints how many were killed before one came to its end. Runs in a process of its own, which has no threads.
    """
    number = 0
    while True:
        number += 1
        root = Path(copies, str(number))
        shutil.copytree(template, root)
        pid = os.fork()
        if not pid:
            try:
                store = Mortal(Table(root), number)
                report = vacuum_table(Table.over(store), VacuumOptions(checkpoint_after=1))
                os._exit(0 if report.ok and report.deleted else 1)
            finally:
                os._exit(2)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status != -signal.SIGKILL:
            assert status == 0, f"vacuum {number} ended with {status}"
            print(json.dumps(number - 1))
            return


@pytest.mark.parametrize("make", [make_table, *long(make_directory)])
def test_a_vacuum_that_is_killed_hurts_nobody_and_the_next_does_the_rest(
    tmp_path: Path, make: Callable[[Path], Late | None]
) -> None:  # I1, I4, I5, I9
    template, copies, undisturbed = tmp_path / "template", tmp_path / "copies", tmp_path / "undisturbed"
    copies.mkdir()
    late = make(template)
    table = Table(template)
    visible, rows = live(table), contents(table)
    shutil.copytree(template, undisturbed)
    done = sweep(undisturbed)
    assert {Reason.REMOVED, Reason.FAILED_ATTEMPT, Reason.START_MARKER, Reason.DIRECTORY} <= {
        it.reason for it in done.deleted
    }
    after_one = everything(undisturbed)
    sweep(undisturbed, by_s=OLD_S)
    after_two = everything(undisturbed)

    code = (
        "import sys\nfrom tests.integration.test_vacuum_killed import kill_one_after_another as run\nrun(*sys.argv[1:])"
    )
    killing = subprocess.run(
        [sys.executable, "-c", code, template, copies],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert killing.returncode == 0, killing.stderr[-3000:]
    killed = json.loads(killing.stdout)

    assert killed > len(done.deleted)
    half_written = 0
    for number in range(1, killed + 1):
        root = copies / str(number)
        copy = Table(root)
        assert (live(copy), contents(copy)) == (visible, rows)
        assert copy.check().ok
        if late:
            assert_late_writer_is_told(root, late, tmp_path / "with late")
        half_written += len(copy.store.list_unfinished())
        sweep(root)
        assert everything(root) == after_one
        assert (live(copy), contents(copy)) == (visible, rows)
        sweep(root, by_s=OLD_S)
        assert everything(root) == after_two
        assert (live(copy), contents(copy)) == (visible, rows)
        assert not copy.store.list_unfinished()
        shutil.rmtree(root)
    assert half_written > 0  # or the moments within a creation were missed


def assert_late_writer_is_told(root: Path, late: Late, copy: Path) -> None:
    """It commits all that it wrote, or learns that it cannot (I5). In a copy, so that the table stays as it is."""
    shutil.copytree(root, copy)
    table = Table(copy)
    before = live(table)
    transaction = table.resume(late.terms)
    transaction.add([late.file], looked_at=True)
    try:
        transaction.commit()
    except TransactionAbortedError:
        assert live(table) == before
    else:
        assert live(table) == before | {late.file.path}
        assert table.store.get(late.file.path) == b"late"
    shutil.rmtree(copy)


# --- beside writers -----------------------------------------------------------------------------------------------

WRITES = 60
RETENTION_S = 0.4
"""So that vacuums meet writers at work, and abort those that pause."""
SEED = 20261120


def write_many(root: str, writer: int) -> list[str]:
    """Appends rows, and now and then rewrites what is there into one file; each again until it is done."""
    chance = random.Random(SEED + writer)
    table = Table(root)
    done: list[str] = []
    while len(done) < WRITES:
        try:
            if chance.random() < 0.2:
                rewrite(table)
                continue
            row = f"{writer}-{len(done)}"
            with table.begin(partition_by=["day"]) as transaction:
                transaction.inspector = None  # no Parquet
                url = transaction.new_file(partition={"day": str(chance.randrange(5))})
                Path(url).write_text(f"{row}\n")
                if chance.random() < 0.1:
                    time.sleep(2 * RETENTION_S)
        except (TransactionAbortedError, CommitConflictError, StoreError, FileNotFoundError):
            continue
        done.append(row)
    return done


def rewrite(table: Table) -> None:
    """All files of a day into one; another that removes one of them first makes it a conflict."""
    files = table.snapshot().files
    day = files[0].partition["day"] if files else "0"
    old = [file.path for file in files if file.partition["day"] == day]
    with table.begin("rewrite", partition_by=["day"]) as transaction:
        transaction.inspector = None  # no Parquet
        rows = "".join(Path(table.url, path).read_text() for path in old)
        Path(transaction.new_file(partition={"day": day})).write_text(rows)
        transaction.remove(old)


def vacuum_many(root: str, stop: str) -> dict[str, int]:
    """Vacuums until the file `stop` is there; how much it did."""
    options = VacuumOptions(retention_hours=RETENTION_S / 3600, force=True, checkpoint_after=5)
    did = {"deleted": 0, "aborted": 0, "checkpoints": 0, "purged": 0}
    while not Path(stop).exists():
        with patch.object(plan, "METADATA_RETENTION", timedelta(seconds=RETENTION_S)):  # it purges, too
            report = vacuum_table(Table(root), options)
        assert report.failed == []
        did["deleted"] += sum(it.reason is Reason.REMOVED for it in report.deleted)
        did["aborted"] += len(report.aborted)
        did["checkpoints"] += report.checkpoint is not None
        did["purged"] += sum(it.reason is Reason.COMMIT_MARKER for it in report.deleted)
    return did


@pytest.mark.long
def test_two_vacuums_and_two_writers_lose_and_double_no_row(tmp_path: Path) -> None:  # I1, I2, I3, I4, I5
    root, stop = tmp_path / "table", tmp_path / "stop"
    table = Table(root)
    with table.begin(partition_by=["day"]) as transaction:  # so that there is a table
        stage(table, transaction, b"first\n", {"day": "0"})
    with processes(4) as pool:
        vacuums: list[Future[dict[str, int]]] = [pool.submit(vacuum_many, str(root), str(stop)) for _ in range(2)]
        writers = [pool.submit(write_many, str(root), writer) for writer in range(2)]
        try:
            expected = [row for writer in writers for row in writer.result()]
        finally:
            stop.touch()
        did = [vacuum.result() for vacuum in vacuums]
    for what in ("deleted", "aborted", "checkpoints", "purged"):
        assert sum(each[what] for each in did) > 0, did
    rows = b"".join(contents(table)).decode().split()
    assert sorted(rows) == sorted(["first", *expected])
    report = table.check()
    assert report.ok
    assert not report.missing
    sweep(root, by_s=OLD_S)
    assert {path for path in everything(root) if names.is_data_file(path) and "/" in path} == live(table)
