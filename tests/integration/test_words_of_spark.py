"""The words of Spark users: modes, arguments in another order, tables that are not there, and new sessions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import dbio_commit as dbio

ANY: Any = ["id"]
MISSING = "there is no table at {}: no descriptor, no Parquet file and no marker; check the path"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    dbio.enable(spark)
    return spark


@pytest.mark.parametrize("mode", ["errorifexists", pytest.param("ErrorIfExists", marks=pytest.mark.long)])
def test_a_write_that_refuses_a_table_says_so_in_one_line(spark: SparkSession, tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "table"
    assert dbio.write(spark.range(2), path, mode).metrics["numOutputRows"] == 2
    with pytest.raises(dbio.TableExistsError) as caught:
        dbio.write(spark.range(2), path, mode)
    assert len(str(caught.value).splitlines()) == 1


WAYS: dict[str, Callable[[SparkSession, str], Any]] = {
    "read": lambda spark, path: spark.read.format("dbio").load(path),
    "stream": lambda spark, path: spark.readStream.format("dbio").load(path),
    "with columns": lambda spark, path: spark.read.format("dbio").schema("id bigint").load(path).collect(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_missing_table_is_named_in_one_line(session: SparkSession, tmp_path: Path, way: str) -> None:
    path = str(tmp_path / "none")
    with pytest.raises(AnalysisException) as caught:
        WAYS[way](session, path)
    assert str(caught.value) == f"dbio_commit.TableNotFoundError: {MISSING.format(path)}"


@pytest.mark.parametrize("function", ["dbio_files", "dbio_history"])
def test_a_function_on_a_missing_table_raises_the_error_of_dbio(
    session: SparkSession, tmp_path: Path, function: str
) -> None:
    with pytest.raises(dbio.TableNotFoundError) as caught:
        session.sql(f"SELECT * FROM {function}('{tmp_path}/none')").collect()
    assert str(caught.value) == MISSING.format(tmp_path / "none")


def test_what_a_data_source_in_python_cannot_do_has_a_next_step(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException) as caught:
        session.range(1).write.format("dbio").mode("errorifexists").save(str(tmp_path / "table"))
    (note,) = caught.value.__notes__
    assert "dbio.write(df, path, mode='errorifexists')" in note
    dbio.write(session.range(1), tmp_path / "table")
    with pytest.raises(Exception, match="partitioning") as refused:
        session.range(1).write.format("dbio").mode("append").partitionBy("id").save(str(tmp_path / "table"))
    assert '.option("partitionBy", ' in refused.value.__notes__[0]


def test_an_error_of_another_data_source_keeps_its_traceback(session: SparkSession, tmp_path: Path) -> None:
    def fail(rows: Any) -> Any:
        raise dbio.TableNotFoundError("mine")

    with pytest.raises(Exception, match="Traceback"):
        session.range(1).mapInArrow(fail, "id bigint").collect()


SWAPPED: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "write, of a session": (lambda spark, df, path: dbio.write(spark, path), r"dbio\.write\(df, path\)"),
    "write, columns as the mode": (lambda spark, df, path: dbio.write(df, path, ANY), "partition_by="),
    "read, of a frame": (lambda spark, df, path: dbio.read(df, path), r"dbio\.read\(spark, path, …\)"),
    "read, swapped": (lambda spark, df, path: dbio.read(path, spark), r"dbio\.read\(spark, path, …\)"),
    "merge, swapped": (lambda spark, df, path: dbio.merge(spark, df, path, "id"), r"dbio\.merge\(spark, path, …\)"),
    "enable, of a path": (lambda spark, df, path: dbio.enable(path), r"dbio\.enable\(spark\)"),
    "register, of a path": (lambda spark, df, path: dbio.register(path, path, path), r"\.register\(spark, name, …\)"),
}  # fmt: skip


@pytest.mark.parametrize("call", SWAPPED)
def test_arguments_in_another_order_are_refused_with_the_right_call(
    spark: SparkSession, tmp_path: Path, call: str
) -> None:
    do, said = SWAPPED[call]
    with pytest.raises(dbio.InvalidInputError, match=said) as caught:
        do(spark, spark.range(1), str(tmp_path / "table"))
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_later_session_has_the_data_source_and_the_functions(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    active = SparkSession.getActiveSession()
    later = session.newSession().newSession()
    assert active is not None
    assert active is SparkSession.getActiveSession()
    later.range(3).write.format("dbio").mode("append").save(path)
    assert later.read.format("dbio").load(path).count() == 3
    assert later.sql(f"SELECT * FROM dbio_history('{path}')").count() == 1
    assert later.sql(f"SELECT * FROM dbio_files('{path}')").count() == len(dbio.Table(path).snapshot().files)
