"""Six processes write to one table on a local disk at once, another reads; the history is then replayed.

Bounded by the number of writes, not by time. Invariants: PROTOCOL.md 5.
"""

import multiprocessing
import random
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from dbio_commit import (
    Commit,
    CommitConflictError,
    StoreError,
    Table,
    TableExistsError,
    TableNotFoundError,
    TransactionAbortedError,
)
from dbio_commit.protocol.markers.commit import Operation
from tests.tiers import long

WRITERS = 6
WRITES = 15
DAYS = ("1", "2", "3")
SEED = 20261120


class Write(NamedTuple):
    """What a writer says of one of its writes, by the clock that all processes of the machine share."""

    app: tuple[str, int]
    operation: Operation
    tid: str
    commit_called_s: float
    commit_returned_s: float


def write_once(table: Table, operation: Operation, app: tuple[str, int] | None) -> tuple[Commit, float, float]:
    """A file in each of two days, in one transaction."""
    transaction = table.begin(operation, partition_by=["day"], app=app)
    transaction.inspector = None  # no Parquet
    for day in DAYS[:2] if operation != "overwrite_partitions" else DAYS[1:]:
        url = transaction.new_file(partition={"day": day})
        Path(url).write_text(f"{transaction.tid} {app}")
    called_s = time.monotonic()
    commit = transaction.commit()
    return commit, called_s, time.monotonic()


def write_many(root: str, writer: int) -> list[Write]:
    """Its writes, one after the other; each is done again until it is committed, and now and then once more."""
    chance = random.Random(SEED + writer)
    table = Table(root)
    done = []
    for version in range(WRITES):
        operation: Operation = chance.choice(["append", "append", "overwrite", "overwrite_partitions"])
        app = None if operation == "append" and chance.random() < 0.5 else (f"writer-{writer}", version)
        while True:
            try:
                commit, called_s, returned_s = write_once(table, operation, app)
            except (CommitConflictError, TransactionAbortedError, StoreError):
                continue
            break
        assert not commit.skipped
        done.append(Write((f"writer-{writer}", version), operation, commit.tid, called_s, returned_s))
        if app and chance.random() < 0.3:  # as if the answer had been lost
            assert write_once(table, operation, app)[0].skipped
    return done


def read_many(root: str, stop: str) -> int:
    """Reads until the file `stop` is there; every snapshot has all files of a transaction, or those that are left."""
    table, reads = Table(root), 0
    while not Path(stop).exists():
        try:
            snapshot = table.snapshot()
        except TableNotFoundError:
            continue
        check_replayed(snapshot.history(), {file.path for file in snapshot.files})
        reads += 1
    return reads


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def turn_of(commit: Commit) -> int | None:
    assert commit.marker.dbio_commit
    return commit.marker.dbio_commit.turn


def check_replayed(history: list[Commit], live: set[str]) -> None:
    """The live files are those that the turns, one by one, leave of what was added (I2, I6, I7)."""
    added = [path for commit in history for path in commit.added]
    removed = [path for commit in history for path in commit.removed]
    assert len(set(added)) == len(added)
    assert len(set(removed)) == len(removed)  # each turn removed only what the one before it had left
    assert set(removed) <= set(added)
    assert live == set(added) - set(removed)
    turns = {turn: commit for commit in history if (turn := turn_of(commit)) is not None}
    assert len(turns) == sum(turn_of(commit) is not None for commit in history)
    left: set[str] = set()  # of what was committed in turns; blind appends come between at any moment
    blind = {path for commit in history if turn_of(commit) is None for path in commit.added}
    for _, commit in sorted(turns.items()):
        days = {path.partition("/")[0] for path in commit.added}
        match commit.operation:
            case "overwrite":
                expected = left
            case "overwrite_partitions":
                expected = {path for path in left if path.partition("/")[0] in days}
            case _:
                expected = set()
        assert set(commit.removed) - blind == expected
        left = left - expected | set(commit.added)


def test_nothing_is_lost_or_doubled_and_overwrites_come_one_after_the_other(tmp_path: Path) -> None:  # I2, I6, I7, I8
    root, stop = str(tmp_path / "table"), tmp_path / "stop"
    with processes(WRITERS + 1) as pool:
        reader: Future[int] = pool.submit(read_many, root, str(stop))
        writers = [pool.submit(write_many, root, writer) for writer in range(WRITERS)]
        try:
            writes = [write for writer in writers for write in writer.result()]
        finally:
            stop.touch()
        assert reader.result() > 0
    table = Table(root)
    snapshot, report = table.snapshot(), table.check()
    history = snapshot.history()
    check_replayed(history, {file.path for file in snapshot.files})
    assert report.ok
    assert not report.pending
    assert len(writes) == WRITERS * WRITES
    assert sorted(write.tid for write in writes) == sorted(commit.tid for commit in history)
    check_order(writes, {commit.tid: commit for commit in history})


def check_order(writes: list[Write], commits: dict[str, Commit]) -> None:
    """What had returned before an overwrite was called is gone after it; what was called after it returned is not."""
    removed_by = {path: commit.tid for commit in commits.values() for path in commit.removed}
    for overwrite in (write for write in writes if write.operation == "overwrite"):
        removed = set(commits[overwrite.tid].removed)
        for write in writes:
            added = set(commits[write.tid].added)
            if write.commit_called_s > overwrite.commit_returned_s:
                assert not added & removed
            elif write.commit_returned_s < overwrite.commit_called_s:
                for path in added - removed:  # gone before: by somebody who had begun to commit before this one ended
                    assert path in removed_by
                    other = next(w for w in writes if w.tid == removed_by[path])
                    assert other.commit_called_s < overwrite.commit_returned_s


def create_table(root: str, writer: int) -> str | None:
    """The tid of the writer that created the table; None for one that came too late."""
    try:
        with Table(root).begin(partition_by=["day"], must_be_empty=True) as transaction:
            transaction.inspector = None  # no Parquet
            Path(transaction.new_file(partition={"day": str(writer)})).write_text("rows")
        return transaction.tid
    except TableExistsError:
        return None


@pytest.mark.parametrize("number", [0, 1, *long(2)])
def test_of_many_processes_that_create_one_table_exactly_one_wins(tmp_path: Path, number: int) -> None:
    root = str(tmp_path / "table")
    with processes(WRITERS) as pool:
        tids = [tid for tid in pool.map(create_table, [root] * WRITERS, range(WRITERS)) if tid]
    snapshot = Table(root).snapshot()
    assert list(snapshot.tids) == tids
    assert len(tids) == len(snapshot.files) == 1


def append_first(root: str, writer: int) -> str:
    """The first append to a table that is not there yet, by one of many at once."""
    return write_once(Table(root), "append", None)[0].tid


@pytest.mark.parametrize("number", [0, 1, *long(2)])
def test_many_processes_that_append_to_a_table_which_is_not_there_yet_all_write_to_the_same(
    tmp_path: Path, number: int
) -> None:  # I2: none of them takes the new table for a directory of DBIO
    root = str(tmp_path / "table")
    with processes(WRITERS) as pool:
        tids = list(pool.map(append_first, [root] * WRITERS, range(WRITERS)))
    snapshot = Table(root).snapshot()
    assert sorted(snapshot.tids) == sorted(tids)
    assert len(snapshot.files) == 2 * WRITERS
