"""What tasks do to the Python worker that they share."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql.types import LongType, StructType

from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read import scan
from dbio_commit.spark.read.scan import ReadSpec, read_files
from dbio_commit.spark.write import task
from dbio_commit.table import Table
from tests.streams import needs_source
from tests.task_sink import batch, spec

PROGRAM = """
import gc

import dbio_commit.spark.write.task
from dbio_commit.spark.session.worker import spare_imports

spare_imports("write")
left = len(gc.get_objects())
first = gc.get_freeze_count()
kept = [[] for _ in range(10_000)]
spare_imports("write")
print(left, first > 30_000, gc.get_freeze_count() <= first)
"""


def test_the_collector_has_nothing_to_do_with_what_was_imported_and_with_all_that_comes_later() -> None:
    """Rows of later tasks must not stay for ever."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    left, *told = ran.stdout.split()
    assert int(left) < 100
    assert told == ["True", "True"]


MODULES = ["write.task", "read.scan", "datasource", pytest.param("feed.source", marks=needs_source)]


@pytest.mark.parametrize("room", MODULES)
def test_it_imports_no_parser_of_sql_and_nothing_of_rewrites(room: str) -> None:
    """Each worker of Spark's begins with its imports, and so does each look at the data source."""
    program = f"import sys, dbio_commit.spark.{room}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = {*ran.stdout.split()}
    assert f"dbio_commit.spark.{room}" in imported
    assert not {"sqlglot", "dbio_commit.spark.api", "dbio_commit.spark.rewrite"} & imported


@pytest.fixture
def spared(monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """The kinds of tasks at whose end this process would have spared what was imported."""
    kinds: list[str] = []
    for module in (scan, task):
        monkeypatch.setattr(module, "spare_imports", kinds.append)
    return kinds


def test_a_task_that_writes_ends_so(spared: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = TaskContext._getOrCreate()
    monkeypatch.setattr(TaskContext, "_taskContext", context)
    for name, value in {"_partitionId": 0, "_taskAttemptId": 1}.items():
        monkeypatch.setattr(context, name, value)
    begun = replace(spec(tmp_path, columns=((0, "value"),)), terms=Table(tmp_path).begin().terms)
    [info] = task.run_task(begun, [batch(value=[1])])
    assert (info.rows, spared) == (1, ["write"])


def test_a_task_that_reads_ends_so(spared: Sequence[str], tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": [1, 2]}), tmp_path / "a.parquet")
    file = DataFile("a.parquet", (tmp_path / "a.parquet").stat().st_size, None, {})
    reading = ReadSpec(Table(tmp_path), StructType().add("value", LongType()))
    batches = read_files(reading, [file])
    assert (next(batches).num_rows, spared) == (2, [])
    assert (list(batches), spared) == ([], ["read"])
