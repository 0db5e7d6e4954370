"""Reads of several tables at one moment, by Spark, SQL, pandas and DuckDB, beside a writer (PROTOCOL.md 8.5)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests import spark35
from tests.spark_tables import ids

LAKE = "moments"


@pytest.fixture
def paths(spark: SparkSession, tmp_path: Path) -> tuple[Path, Path]:
    """A table of dimensions and one of facts, with a row each."""
    dbio.enable(spark, roots={LAKE: tmp_path})
    found = tmp_path / "dims", tmp_path / "facts"
    _load(found, 0)
    return found


def _load(paths: tuple[Path, Path], number: int) -> None:
    """A fact after its dimension."""
    dims, facts = paths
    dbio.Table(dims).write(pa.table({"id": [number], "name": [f"name {number}"]}))
    dbio.Table(facts).write(pa.table({"fact": [number], "dim": [number]}))


@contextmanager
def _loading(paths: tuple[Path, Path]) -> Iterator[None]:
    """Somebody loads meanwhile."""
    ended, failed = Event(), list[BaseException]()

    def load() -> None:
        number = 1
        try:
            while not ended.is_set():
                _load(paths, number)
                number += 1
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=load)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert not failed


def test_no_fact_is_without_its_dimension_while_somebody_loads(spark: SparkSession, paths: tuple[Path, Path]) -> None:
    dims, facts = paths
    with _loading(paths):
        for _ in range(4):
            now, then = dbio.snapshots([facts, dims])
            assert {*now.to_pandas()["dim"]} <= {*then.to_pandas()["id"]}
            left, right = dbio.read_together(spark, [facts, dims])
            assert left.join(right, left.dim == right.id, "left_anti").count() == 0


def test_frames_are_pinned_to_the_moment(spark: SparkSession, paths: tuple[Path, Path]) -> None:
    facts, dims = dbio.read_together(spark, [*reversed(paths)])
    of_facts, of_dims = dbio.snapshots([paths[1], dbio.Table(paths[0])])
    assert of_facts.tid
    then = dbio.Table(paths[1]).history()[0].timestamp
    _load(paths, 1)
    assert [facts.count(), dims.count(), of_facts.count(), of_dims.count()] == [1, 1, 1, 1]
    assert [it.count() for it in dbio.read_together(spark, paths)] == [2, 2]
    assert [it.count() for it in dbio.read_together(spark, paths, then)] == [1, 1]
    connection = duckdb.connect()
    of_facts.to_duckdb(connection).create_view("facts")
    of_dims.to_duckdb(connection).create_view("dims")
    assert connection.sql("SELECT name FROM facts JOIN dims ON dim = id").fetchall() == [("name 0",)]
    assert dbio.read_together(spark, []) == []
    with pytest.raises(dbio.InvalidInputError, match="takes a list of paths"):
        dbio.read_together(spark, str(paths[0]))
    with pytest.raises(dbio.TableNotFoundError):
        dbio.read_together(spark, [paths[0], paths[0] / "none"])


@pytest.mark.skipif(spark35.IS_USED, reason="CALL is there since Spark 4.0")
def test_views_in_sql_read_one_moment(spark: SparkSession, paths: tuple[Path, Path]) -> None:
    tables = f"array('dbio.{LAKE}.facts', '{paths[0]}')"
    try:
        rows = spark.sql(f"CALL dbio.system.read_together({tables})").collect()
        assert [(it.view, it.table, it.files) for it in rows] == [
            ("facts", str(paths[1]), 1),
            ("dims", str(paths[0]), 1),
        ]
        assert [it.tid for it in rows] == [dbio.Table(path).snapshot().tid for path in reversed(paths)]
        _load(paths, 1)
        assert spark.sql("SELECT name FROM facts JOIN dims ON dim = id").collect() == [("name 0",)]
        spark.sql(f"CALL dbio.system.read_together(tables => {tables}, views => array('facts', 'two words'))")
        assert spark.sql("SELECT id FROM facts JOIN `two words` ON dim = id").count() == 2
        assert ids(spark.table("dims")) == [0]
        spark.sql(f"CALL dbio.system.read_together({tables}, as_of => '2100-01-01')")
        assert ids(spark.table("dims")) == [0, 1]
        for wrong, message in (
            (f"{tables}, array('one')", "give 2 names that differ"),
            (f"{tables}, array('one', 'ONE')", "give 2 names that differ"),
            (f"{tables}, as_of => 'soon'", "is no time"),
            (f"{tables}, as_of => '{rows[0].tid}'", "a tid belongs to one table"),
        ):
            with pytest.raises(dbio.InvalidInputError, match=message):
                spark.sql(f"CALL dbio.system.read_together({wrong})")
    finally:
        for view in ("facts", "dims", "two words"):
            spark.catalog.dropTempView(view)
