"""Tables with parts as they come about by chance, and the same state as if one body held it, to compare with."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random
from unittest.mock import patch

from dbio_commit import Table, Transaction
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.log.parts import windows
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.settled import Settled
from dbio_commit.log.table_log import TableLog, table_now
from dbio_commit.protocol import history, names
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.testing import ManualClock, MemoryStore
from tests.tiny_parts import tiny_parts
from tests.writers import stage
from vacuum import VacuumOptions, vacuum_table

DAYS = ["d0", "d1", "d2", "d3"]
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    ],
}


class ByChance:
    """A table to which one thing after the other happens, by chance."""

    def __init__(self, seed: int) -> None:
        self.chance, self.clock = Random(seed), ManualClock()
        self.store = MemoryStore(self.clock)
        self.table = Table.over(self.store, self.clock)
        self.tids: list[str] = []

    def run(self, steps: int) -> None:
        self.append()
        deeds = [self.append] * 5 + [self.overwrite, self.rewrite, self.compact, self.record, self.refer, self.abort]
        deeds += [self.checkpoint] * 3 + [self.vacuum]
        for _ in range(steps):
            self.chance.choice(deeds)()

    def append(self) -> None:
        self._write("append", self.chance.randint(1, 4))

    def overwrite(self) -> None:
        self._write("overwrite", self.chance.randint(0, 2))

    def refer(self) -> None:
        """An overwrite that removes by references."""
        with patch.object(TableRoot, "refer_above", self.chance.choice([0, MAX_BYTES])):
            self._write("overwrite", self.chance.randint(0, 2))

    def rewrite(self) -> None:
        self._rewrite(changes_rows=True)

    def compact(self) -> None:
        self._rewrite(changes_rows=False)

    def record(self) -> None:
        """A rewrite with change files."""
        self._rewrite(changes_rows=True, records=True)

    def abort(self) -> None:
        self.table.begin().abort()

    def checkpoint(self) -> None:
        self.table.checkpoint()

    def vacuum(self) -> None:
        self.clock.advance(timedelta(hours=self.chance.choice([0, 2, 30, 24 * 40])))
        vacuum_table(self.table, VacuumOptions(retention_hours=1, checkpoint_after=self.chance.randint(0, 3)))

    def _write(self, operation: str, count: int) -> None:
        self._later()
        transaction = self.table.begin(operation, partition_by=["day"])  # type: ignore[arg-type]
        for _ in range(count):
            stage(self.table, transaction, b"x" * self.chance.randint(1, 9), {"day": self.chance.choice(DAYS)})
        self.tids.append(transaction.commit(SCHEMA).tid)

    def _rewrite(self, *, changes_rows: bool, records: bool = False) -> None:
        live = sorted(file.path for file in self.table.snapshot().files)
        if not live:
            return
        self._later()
        transaction = self.table.begin("rewrite", data_change=changes_rows)
        gone = self.chance.sample(live, self.chance.randint(1, min(len(live), 4)))
        transaction.remove(gone)
        for _ in range(self.chance.randint(0, 2)):
            stage(self.table, transaction, b"y" * self.chance.randint(1, 9), {"day": self.chance.choice(DAYS)})
        if records:
            transaction.record_changes(self.chance.sample(gone, self.chance.randint(0, len(gone))))
            self._stage_changes(transaction)
        self.tids.append(transaction.commit().tid)

    def _stage_changes(self, transaction: Transaction) -> None:
        terms, day = transaction.terms, self.chance.choice(DAYS)
        name = names.format_data_file(
            tid=terms.tid, job=terms.job, task=0, attempt=0, number=0, suffix=".parquet", changes=True
        )
        path = f"day={day}/{name}"
        self.store.put_if_absent(path, b"changes")
        transaction.add([FileInfo(path=path, size=7, rows=2, partition={"day": day})])

    def _later(self) -> None:
        self.clock.advance(timedelta(seconds=self.chance.choice([0, 1, 60, 4000])))

    def settled(self) -> Settled:
        return table_now(self.store, self.clock, TableLog.settled)


def flat(settled: Settled) -> Settled:
    """The same, as if one body held all transactions of the checkpoint."""
    told = settled.checkpoint
    return replace(settled, checkpoint=replace(told, commits=tuple(told.commits), parts=(), state=None))


@contextmanager
def unread() -> Iterator[None]:
    """Nobody may read all transactions meanwhile."""

    def refuse(self: StoredCommits) -> None:
        raise AssertionError("all transactions are read")

    with patch.object(StoredCommits, "all", property(refuse)), patch.object(StoredCommits, "_read_all", refuse):
        yield


@contextmanager
def several_slices() -> Iterator[None]:
    """Tables have parts meanwhile, of a few rows each, and few rows are in memory at once."""
    with tiny_parts(), patch.object(windows, "WINDOW_ROWS", 3), patch.object(history, "PATHS_AT_ONCE", 5):
        yield
