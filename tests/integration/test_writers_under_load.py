"""Ten processes write to one table for a while, eight that append and two that overwrite, and two read: no lost or
doubled row.

Every row has a number of its own. Each writer keeps a journal of what it was told, and in the end the table must hold
what the journals and the order of the turns say. Invariants: PROTOCOL.md 5. A listing that is not repeated is not
found here; `tests/simulation` finds it.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from io import BytesIO
from itertools import accumulate, count
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import (
    Commit,
    CommitConflictError,
    CommitStateUnknownError,
    Snapshot,
    StoreError,
    Table,
    TableNotFoundError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.protocol.markers.commit import Operation
from tests.conftest import Root
from tests.integration.test_concurrent_writers import check_replayed, turn_of
from tests.integration.test_processes_killed import SEED, check_vacuum
from tests.writers import contents, live, stage

DURATIONS_S = [5, pytest.param(60, marks=pytest.mark.long)]
APPENDERS, OVERWRITERS = range(8), range(8, 10)
WRITERS, READERS = 10, 2
DAYS = ("1", "2", "3", "4")
MOST_ROWS = 1000
"""Of a batch; its number is that of its rows without the last three digits."""
MOST_BATCHES = 1_000_000
"""Of a writer."""


@pytest.fixture(params=["local", "s3", "gcs"])
def root(request: pytest.FixtureRequest) -> Root:
    found: Root = request.getfixturevalue(f"{request.param}_root")
    return found


# --- rows ---------------------------------------------------------------------------------------------------------


def make_batch(number: int, chance: random.Random) -> dict[str, list[int]]:
    """The rows of a batch for each of its days."""
    rows = range(number * MOST_ROWS, number * MOST_ROWS + chance.randint(3, 40))
    return {day: list(rows[index::3]) for index, day in enumerate(chance.sample(DAYS, 3))}


def encode(ids: list[int], size: int) -> bytes:
    """A Parquet file of these rows; each tells the size of its batch."""
    file = BytesIO()
    pq.write_table(pa.table({"id": ids, "size": [size] * len(ids)}), file)
    return file.getvalue()


def read_rows(table: Table, snapshot: Snapshot) -> dict[str, list[int]]:
    """The rows of each transaction that the snapshot shows: each batch whole, no row twice."""
    rows: dict[str, list[int]] = {}
    sizes: dict[int, int] = {}
    bodies = table.store.in_parallel(table.store.get, [file.path for file in snapshot.files])
    for file, body in zip(snapshot.files, bodies, strict=True):
        columns = pq.read_table(BytesIO(body)).to_pydict()
        rows.setdefault(str(file.tid), []).extend(columns["id"])
        sizes |= {id // MOST_ROWS: size for id, size in zip(columns["id"], columns["size"], strict=True)}
    ids = [id for found in rows.values() for id in found]
    assert len(set(ids)) == len(ids)
    assert Counter(id // MOST_ROWS for id in ids) == sizes
    return rows


# --- writers, each a process --------------------------------------------------------------------------------------

Outcome = Literal["committed", "failed", "unknown"]


class Told(NamedTuple):
    """What a writer was told of a transaction, and when, by the clock that all processes of the machine share."""

    tid: str
    outcome: Outcome
    rows: int
    sum: int
    commit_called_s: float
    commit_returned_s: float


def write_many(root: Root, writer: int, directory: Path) -> None:
    """Writes batches until it is told to stop, each again until it is committed; keeps a journal of it all."""
    chance, table = random.Random(SEED + writer), Table(*root)
    operation: Operation = "append" if writer in APPENDERS else "overwrite"
    with (directory / f"journal {writer}").open("w", buffering=1) as journal:
        for number in count(writer * MOST_BATCHES):
            batch = make_batch(number, chance)
            for told in write_batch(table, operation, batch):
                print(json.dumps(told), file=journal)
            if (directory / f"stop {operation}").exists():
                return
            if operation == "overwrite" and chance.random() < 0.5:
                time.sleep(chance.uniform(0, 4))  # or there would hardly be an append that is not overwritten at once


def write_batch(table: Table, operation: Operation, batch: dict[str, list[int]]) -> Iterator[Told]:
    """What is told of each transaction that it takes to commit the batch, as it is told."""
    ids = [id for part in batch.values() for id in part]
    outcome: Outcome = "failed"
    while outcome != "committed":
        transaction = table.begin(operation, partition_by=["day"])
        for day, part in batch.items():
            stage(table, transaction, encode(part, len(ids)), {"day": day})
        called_s = time.monotonic()
        try:
            with transaction:
                transaction.commit()
            outcome = "committed"
        except (CommitConflictError, TransactionAbortedError, StoreError):
            outcome = "failed"
        except CommitStateUnknownError:
            yield Told(transaction.tid, "unknown", len(ids), sum(ids), called_s, time.monotonic())
            outcome = settle(table, transaction.tid)
        yield Told(transaction.tid, outcome, len(ids), sum(ids), called_s, time.monotonic())


def settle(table: Table, tid: str) -> Outcome:
    """Decides a transaction of unknown outcome."""
    try:
        table.abort(tid)
    except TransactionStateError:
        return "committed"
    return "failed"


# --- readers, each a process --------------------------------------------------------------------------------------


class Read(NamedTuple):
    called_s: float
    new: list[str]
    """The transactions that the read before it did not see."""
    rows: int


def read_many(root: Root, directory: Path) -> list[Read]:
    """Reads until writers are told to stop; each read sees one state that the table was in, and none goes back."""
    table, reads, seen = Table(*root), list[Read](), set[str]()
    oldest = dict.fromkeys(range(WRITERS), 0)
    while not (reads and (directory / "stop append").exists()):
        called_s = time.monotonic()
        try:
            snapshot = table.snapshot()
        except (TableNotFoundError, StoreError):  # not there yet; or there was something new in each listing
            continue
        rows = read_rows(table, snapshot)
        check_replayed(snapshot.history(), {file.path for file in snapshot.files})
        batches: dict[int, list[int]] = {}
        for number in sorted(ids[0] // MOST_ROWS for ids in rows.values()):
            batches.setdefault(number // MOST_BATCHES, []).append(number)
        assert sum(len(batches.get(writer, [])) for writer in OVERWRITERS) <= 1
        for writer, numbers in batches.items():
            assert numbers == list(range(numbers[0], numbers[-1] + 1))  # an overwrite removes all that came before it
            assert oldest[writer] <= numbers[0]
            oldest[writer] = numbers[0]
        assert seen <= set(snapshot.tids)
        reads.append(Read(called_s, sorted(set(snapshot.tids) - seen), sum(map(len, rows.values()))))
        seen.update(snapshot.tids)
    return reads


# --- the work, and the reckoning ----------------------------------------------------------------------------------


@pytest.mark.slow("ten processes write for 5 s on each store; nothing smaller finds real races")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("duration_s", DURATIONS_S)
def test_ten_processes_write_at_once_and_no_row_is_lost_or_doubled(
    root: Root, tmp_path: Path, duration_s: float
) -> None:  # I1, I2, I6, I7
    table = Table(*root)
    readers = work(root, tmp_path, duration_s)
    journals = [read_journal(tmp_path / f"journal {writer}") for writer in range(WRITERS)]
    assert all(any(entry.outcome == "committed" for entry in journal) for journal in journals)
    told = [entry for journal in journals for entry in journal]
    committed = {entry.tid: entry for entry in told if entry.outcome == "committed"}
    history = table.history()
    assert sorted(commit.tid for commit in history) == sorted(committed)  # so none that failed, and none twice
    check_replayed(history, live(table))
    check_order(history, committed)
    for reads in readers:
        check_reads(reads, committed)
    removed = {path for commit in history for path in commit.removed}
    left = [committed[commit.tid] for commit in history if not removed.intersection(commit.added)]
    check_sums(table, left)
    check_vacuum(table, contents(table))
    check_sums(table, left)
    print(
        f"DBIO_TEST_SEED={SEED}: {dict(Counter(commit.operation for commit in history))}, "
        f"{dict(Counter(entry.outcome for entry in told))}, {sum(entry.rows for entry in committed.values())} rows, "
        f"{sum(entry.rows for entry in left)} of {len(left)} commits live; "
        f"{[len(reads) for reads in readers]} reads of {sum(read.rows for reads in readers for read in reads)} rows"
    )


def work(root: Root, directory: Path, duration_s: float) -> list[list[Read]]:
    """All processes at once, for so long from when each writer has written."""
    table = Table(*root)
    with ProcessPoolExecutor(WRITERS + READERS, get_context("spawn"), initializer=end_with_parent) as pool:
        overwriting = [pool.submit(write_many, root, writer, directory) for writer in OVERWRITERS]
        appending = [pool.submit(write_many, root, writer, directory) for writer in APPENDERS]
        reading = [pool.submit(read_many, root, directory) for _ in range(READERS)]
        working: list[Future[Any]] = [*overwriting, *appending, *reading]

        def go_on(pause_s: float) -> bool:
            return not wait(working, pause_s, FIRST_EXCEPTION).done

        try:
            while sum(journal.stat().st_size > 0 for journal in directory.glob("journal *")) < WRITERS:
                if not go_on(0.1):
                    break
            until_s = time.monotonic() + duration_s
            while time.monotonic() < until_s and go_on(1):
                with suppress(StoreError):  # too busy
                    table.checkpoint()  # as vacuum does, or a read would read the marker of each commit
        finally:
            (directory / "stop overwrite").touch()
            wait(overwriting)  # while others append, so that there is something left to sum
            (directory / "stop append").touch()
        for writer in [*overwriting, *appending]:
            writer.result()
        return [reader.result() for reader in reading]


def end_with_parent() -> None:
    """However it ends: else they would write for ever."""

    def end() -> None:
        parent = parent_process()
        assert parent
        parent.join()
        os._exit(1)

    Thread(target=end, daemon=True).start()


def read_journal(path: Path) -> list[Told]:
    return [Told(*json.loads(line)) for line in path.read_text().splitlines()]


def check_order(history: list[Commit], told: Mapping[str, Told]) -> None:
    """What had returned before an overwrite was called is gone after it; what was called after it returned is not."""
    overwrites = [commit for commit in history if commit.operation == "overwrite"]
    overwrites.sort(key=lambda commit: turn_of(commit) or 0)
    removed_in = {path: place for place, commit in enumerate(overwrites) for path in commit.removed}
    last_call_s = list(accumulate((told[commit.tid].commit_called_s for commit in overwrites), max, initial=0.0))
    for commit in history:
        (place,) = {removed_in.get(path, len(overwrites)) for path in commit.added}
        assert last_call_s[place] <= told[commit.tid].commit_returned_s
        if place < len(overwrites):
            assert told[commit.tid].commit_called_s <= told[overwrites[place].tid].commit_returned_s


def check_reads(reads: list[Read], told: Mapping[str, Told]) -> None:
    """Each sees all that had returned when it was called, and when anything that it sees was called."""
    seen: set[str] = set()
    last_s = 0.0
    for read in reads:
        seen.update(read.new)
        last_s = max([last_s, read.called_s, *(told[tid].commit_called_s for tid in read.new)])
        assert seen.issuperset(tid for tid, entry in told.items() if entry.commit_returned_s < last_s)


def check_sums(table: Table, left: list[Told]) -> None:
    """The rows are those of these transactions, as their writers have counted and summed them."""
    rows = read_rows(table, table.snapshot())
    assert {tid: (len(ids), sum(ids)) for tid, ids in rows.items()} == {it.tid: (it.rows, it.sum) for it in left}
