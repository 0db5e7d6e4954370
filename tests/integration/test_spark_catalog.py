"""Tables of Spark's catalog over tables of ours: `dbio.register`, and SQL in a session with `enable(parquet=True)`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests.spark_tables import SPARK_ERRORS, numbers

LAYOUTS: dict[str, tuple[str, ...]] = {"flat": (), "partitioned": ("day",)}


@pytest.fixture
def path(enabled: SparkSession, tmp_path: Path) -> str:
    dbio.enable(enabled, parquet=True, roots=tmp_path)
    return str(tmp_path / "it's a table")


@pytest.fixture
def name(spark: SparkSession) -> Iterator[str]:
    yield "registered"
    spark.sql("DROP TABLE IF EXISTS registered")


def selected(spark: SparkSession, name: str) -> list[int]:
    return sorted(row.id for row in spark.sql(f"SELECT id FROM {name}").collect())


@pytest.mark.long_for("flat")
@pytest.mark.parametrize("columns", LAYOUTS.values(), ids=LAYOUTS)
def test_select_sees_what_sql_of_the_session_has_committed_and_nothing_else(
    spark: SparkSession, path: str, name: str, columns: tuple[str, ...]
) -> None:
    dbio.write(numbers(spark, 0, 4), path, partition_by=columns)
    dbio.register(spark, name, path)
    assert selected(spark, name) == [0, 1, 2, 3]
    spark.sql(f"INSERT INTO {name} VALUES (4, 'd0'), (5, 'd7')")
    assert selected(spark, name) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(SPARK_ERRORS):
        spark.sql(f"INSERT INTO {name} SELECT id + assert_true(id < 8) IS NULL, 'd0' FROM range(6, 9, 1, 2)")
    assert selected(spark, name) == [0, 1, 2, 3, 4, 5]
    spark.sql(f"INSERT OVERWRITE {name} VALUES (9, 'd9')")
    assert selected(spark, name) == [9]
    assert [row.day for row in spark.sql(f"SELECT day FROM {name} WHERE day = 'd9'").collect()] == ["d9"]


def test_what_others_have_committed_is_there_after_a_refresh(spark: SparkSession, path: str, name: str) -> None:
    dbio.write(numbers(spark, 0, 2), path)
    dbio.register(spark, name, path)
    assert selected(spark, name) == [0, 1]
    dbio.write(numbers(spark, 2, 4), path)
    spark.sql(f"REFRESH TABLE {name}")
    assert selected(spark, name) == [0, 1, 2, 3]


def test_a_table_that_sql_has_made_and_that_is_set_to_be_published_is_read_right(
    spark: SparkSession, path: str, name: str
) -> None:
    place = path.replace("'", "\\'")
    spark.sql(f"CREATE TABLE {name} (id bigint, day string) USING parquet PARTITIONED BY (day) LOCATION '{place}'")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    dbio.Table(path).set({"publish": "spark"})
    spark.sql(f"INSERT OVERWRITE {name} VALUES (2, 'a'), (3, 'b')")
    assert selected(spark, name) == [2, 3]


def test_columns_of_all_types_are_registered(spark: SparkSession, path: str, name: str) -> None:
    frame = spark.sql(
        "SELECT 1 AS id, named_struct('a b', array(1)) AS nested, map('k', 1.50BD) AS decimals, DATE'2026-11-20' AS "
        "`odd ``name`, TIMESTAMP_NTZ'2026-11-20 10:00:00' AS local, X'00' AS bytes"
    )
    dbio.write(frame, path)
    dbio.register(spark, name, path)
    assert spark.table(name).collect() == frame.collect()
    assert spark.table(name).schema.simpleString() == frame.schema.simpleString()


def test_partition_columns_have_the_types_of_the_table_also_where_it_is_published_already(
    spark: SparkSession, path: str, name: str
) -> None:
    dbio.write(spark.sql("SELECT 1L AS id, '2026-11-20' AS day, '007' AS agent"), path, partition_by=["day", "agent"])
    dbio.Table(path).set({"publish": "spark"})
    dbio.register(spark, name, path)
    assert spark.table(name).schema.simpleString() == "struct<id:bigint,day:string,agent:string>"
    assert [tuple(row) for row in spark.table(name).collect()] == [(1, "2026-11-20", "007")]
    spark.sql(f"INSERT INTO {name} VALUES (2, '2026-11-21', '008')")
    assert selected(spark, name) == [1, 2]


def test_a_name_that_is_taken_is_spark_error_and_a_table_that_is_not_there_is_ours(
    spark: SparkSession, path: str, name: str
) -> None:
    with pytest.raises(dbio.TableNotFoundError):
        dbio.register(spark, name, path)
    dbio.write(numbers(spark, 0, 2), path)
    dbio.register(spark, name, path)
    with pytest.raises(SPARK_ERRORS, match="ALREADY_EXISTS"):
        dbio.register(spark, name, path)


def test_what_else_is_published_stays_so(spark: SparkSession, path: str, name: str) -> None:
    dbio.write(numbers(spark, 0, 2), path)
    dbio.Table(path).set({"publish": "delta"})
    dbio.register(spark, name, path)
    assert dbio.Table(path).settings() == {"publish": "delta,spark"}
