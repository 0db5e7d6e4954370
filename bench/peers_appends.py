"""Blind appends without Spark, by processes that append to one table at once: dbio_commit, deltalake and PyIceberg.

Part of peers_job.py, in the environment of PyIceberg.
"""

import shutil
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dbio_commit as dbio

PROCESSES = 4
ROWS = pa.table({"id": list(range(100)), "x": [0.5] * 100, "s": ["text"] * 100})


class Appender:
    """How one contender appends ROWS to a table in a local directory."""

    def create(self, table: Path) -> None:
        raise NotImplementedError

    def append(self, table: Path, times: int) -> None:
        raise NotImplementedError

    def count(self, table: Path) -> int:
        """Its rows."""
        raise NotImplementedError


class Ours(Appender):
    def create(self, table: Path) -> None:
        self.append(table, 1)

    def append(self, table: Path, times: int) -> None:
        ours = dbio.Table(table)
        for _ in range(times):
            with ours.begin() as transaction:
                pq.write_table(ROWS, transaction.new_file())

    def count(self, table: Path) -> int:
        return dbio.Table(table).snapshot().to_arrow().num_rows - ROWS.num_rows


class DeltaLake(Appender):
    def create(self, table: Path) -> None:
        from deltalake import write_deltalake

        write_deltalake(table, ROWS)

    def append(self, table: Path, times: int) -> None:
        from deltalake import DeltaTable, write_deltalake
        from deltalake.exceptions import CommitFailedError

        delta, left = DeltaTable(table), times
        while left:
            try:
                write_deltalake(delta, ROWS, mode="append")
                left -= 1
            except CommitFailedError:  # it has tried 15 times
                delta.update_incremental()

    def count(self, table: Path) -> int:
        from deltalake import DeltaTable

        return DeltaTable(table).to_pyarrow_table().num_rows - ROWS.num_rows


class PyIceberg(Appender):
    def create(self, table: Path) -> None:
        table.mkdir(parents=True)
        catalog = self._catalog(table)
        catalog.create_namespace("bench")
        catalog.create_table("bench.appends", schema=ROWS.schema).append(ROWS)

    def append(self, table: Path, times: int) -> None:
        from pyiceberg.exceptions import CommitFailedException

        iceberg, left = self._catalog(table).load_table("bench.appends"), times
        while left:
            try:
                iceberg.append(ROWS)
                left -= 1
            except CommitFailedException:  # it has tried 5 times
                iceberg.refresh()

    def count(self, table: Path) -> int:
        rows: int = self._catalog(table).load_table("bench.appends").scan().count()
        return rows - ROWS.num_rows

    def _catalog(self, table: Path) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        # SQLite gives up after 5 s elsewise, with an error that PyIceberg does not expect.
        return SqlCatalog("bench", uri=f"sqlite:///{table}/catalog.db?timeout=60", warehouse=f"file://{table}")


_APPENDERS: Mapping[str, Appender] = {"dbio": Ours(), "deltalake": DeltaLake(), "pyiceberg": PyIceberg()}


class Appends:
    """The processes that append. They stay, so that no time has their start in it, after an uncounted round."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @cached_property
    def _pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(PROCESSES, get_context("spawn"))

    def renew(self, way: str) -> None:
        """A new table, which has one commit."""
        shutil.rmtree(self._root / way, ignore_errors=True)
        _APPENDERS[way].create(self._root / way)

    def append(self, way: str, times: int) -> None:
        """So many times in each process."""
        for done in [self._pool.submit(_append, way, self._root / way, times) for _ in range(PROCESSES)]:
            done.result()

    def check(self, way: str, times: int) -> None:
        rows, expected = _APPENDERS[way].count(self._root / way), PROCESSES * times * ROWS.num_rows
        assert rows == expected, f"{way} has {rows} rows of appends, not {expected}"


def _append(way: str, table: Path, times: int) -> None:
    _APPENDERS[way].append(table, times)
