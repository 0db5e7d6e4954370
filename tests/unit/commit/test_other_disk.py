"""Files that a task wrote to the disk of another machine: no commit names them, whatever wrote them, and however.

Rules: PROTOCOL.md 9.2.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dbio_commit import FileInfo, Table, Transaction, TransactionAbortedError, UnsupportedStoreError
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.names import split
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import calls_to
from tests.writers import contents, stage, write, write_days


def elsewhere(
    table: Table, transaction: Transaction, away: Callable[[Path], object], body: bytes = b"rows"
) -> FileInfo:
    """A file as a task tells of it; on this machine's disk, `away` was done to it."""
    path = stage(table, transaction, body)
    del transaction._staged[path]
    away(Path(table.url) / path)
    return FileInfo(path=path, size=len(body))


AWAY: dict[str, Callable[[Path], object]] = {
    "is not there": Path.unlink,
    "has 3 bytes there, not 4": lambda path: path.write_bytes(b"row"),
    "has 5 bytes there, not 4": lambda path: path.write_bytes(b"rows."),
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "table")
    write(table, bodies=[b"before"])
    return table


@pytest.mark.parametrize("what", AWAY)
@pytest.mark.parametrize("operation", ["append", "overwrite", "overwrite_partitions", "rewrite"])
def test_a_commit_of_files_on_another_disk_is_refused_and_aborted(
    table: Table, operation: Operation, what: str
) -> None:
    transaction = table.begin(operation)
    stage(table, transaction, b"mine")
    file = elsewhere(table, transaction, AWAY[what])
    transaction.add([file])
    with pytest.raises(
        UnsupportedStoreError, match=r"1 of 2 new files of .*executors' disk is not the driver's"
    ) as refusal:
        transaction.commit()
    assert f"first {table.url}/{file.path}, which {what}:" in str(refusal.value)
    assert contents(table) == [b"before"]
    assert not table.check().pending
    assert not [entry for entry in table.store.list_files() if "part-" in entry.path and transaction.tid in entry.path]


@pytest.mark.parametrize("what", AWAY)
def test_so_it_is_in_a_directory_without_a_descriptor(tmp_path: Path, what: str) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1before PAR1")
    table = Table(tmp_path)
    with pytest.raises(UnsupportedStoreError, match="1 of 1 new files"), table.begin() as transaction:
        transaction.add([elsewhere(table, transaction, AWAY[what])])
    assert contents(table) == [b"PAR1before PAR1"]


def test_a_transaction_that_is_resumed_on_another_machine_finds_out(table: Table) -> None:
    transaction = table.begin()
    file = elsewhere(table, transaction, Path.unlink)
    with pytest.raises(UnsupportedStoreError), table.resume(transaction.terms) as copy:
        copy.add([file])
    assert contents(table) == [b"before"]


def test_who_asks_before_the_commit_is_told_the_same_and_may_still_abort(table: Table) -> None:
    transaction = table.begin()
    transaction.add([elsewhere(table, transaction, Path.unlink)])
    with pytest.raises(UnsupportedStoreError):
        transaction.require_files()
    transaction.abort()
    assert contents(table) == [b"before"]


def test_an_abort_of_files_on_another_disk_is_no_error(table: Table) -> None:
    transaction = table.begin()
    transaction.add([elsewhere(table, transaction, Path.unlink)])
    transaction.abort()
    assert contents(table) == [b"before"]


def test_files_that_went_with_an_abort_by_somebody_else_are_not_taken_for_those_of_another_disk(table: Table) -> None:
    transaction = table.begin()
    path = stage(table, transaction, b"mine")
    del transaction._staged[path]
    transaction.add([FileInfo(path=path, size=4)])
    table.abort(transaction.tid)
    (Path(table.url) / path).unlink()
    with pytest.raises(TransactionAbortedError):
        transaction.commit()


def test_a_file_that_lies_where_it_was_written_is_committed(table: Table) -> None:
    transaction = table.begin()
    path = stage(table, transaction, b"mine")
    del transaction._staged[path]
    transaction.add([FileInfo(path=path, size=4)])
    transaction.commit()
    assert contents(table) == [b"before", b"mine"]


def test_partitions_are_looked_at_too(tmp_path: Path) -> None:
    table = Table(tmp_path)
    write_days(table, a=b"before")
    transaction = table.begin(partition_by=["day"])
    path = stage(table, transaction, b"mine", {"day": "b"})
    del transaction._staged[path]
    shutil.rmtree(tmp_path / split(path)[0])
    transaction.add([FileInfo(path=path, size=4, partition={"day": "b"})])
    with pytest.raises(UnsupportedStoreError, match="which is not there"):
        transaction.commit()
    assert contents(table) == [b"before"]


def test_a_store_that_all_machines_share_is_not_asked(store: MemoryStore, clock: ManualClock) -> None:
    table = Table.over(store, clock)
    transaction = table.begin()
    path = stage(table, transaction)
    del transaction._staged[path]
    transaction.add([FileInfo(path=path, size=4)])
    with calls_to(store) as calls:
        transaction.commit()
    assert ("stat", path) not in calls
