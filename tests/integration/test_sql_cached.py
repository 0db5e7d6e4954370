"""CACHE TABLE: a SELECT shows the stored rows until a refresh, and a write reads the rows of now."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests.spark_tables import SPARK, SPARK_ERRORS

Made = tuple[str, str]


def ids_of(given: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(given, pa.int64())})


def ids(spark: SparkSession, name: str) -> list[int]:
    return sorted(row.id for row in spark.table(name).collect())


@pytest.fixture
def cached(spark: SparkSession, tmp_path: Path) -> Iterator[Made]:
    """A table with the ids 1 and 2, which is cached, and with the id 3 of a writer without Spark; and its path."""
    dbio.enable(spark, roots={"cached": tmp_path})
    path = str(tmp_path / "t")
    dbio.Table(path).write(ids_of([1, 2]))
    spark.sql("CACHE TABLE dbio.cached.t")
    dbio.Table(path).write(ids_of([3]))
    yield "dbio.cached.t", path
    spark.catalog.clearCache()


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("INSERT INTO {t} SELECT id + 10 FROM {t}", [1, 2, 3, 11, 12, 13]),
        ("INSERT OVERWRITE {t} SELECT id + 10 FROM {t}", [11, 12, 13]),
        ("CREATE OR REPLACE TABLE {t} AS SELECT id + 10 AS id FROM {t}", [11, 12, 13]),
        ("DELETE FROM {t} WHERE id <> 2", [2]),
        ("UPDATE {t} SET id = (SELECT max(id) + 10 FROM {t}) WHERE id = 3", [1, 2, 13]),
        ("MERGE INTO {t} t USING {t} s ON t.id = s.id + 1 WHEN MATCHED THEN DELETE", [1]),
        ("INSERT INTO dbio.`{path}` SELECT id + 10 FROM {t}", [1, 2, 3, 11, 12, 13]),
        (
            "MERGE INTO {t} t USING (SELECT id + 1 AS id FROM {t}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
            [1, 2, 3, 4],
        ),
    ],
)
def test_a_statement_that_writes_reads_the_rows_of_now_and_not_those_of_the_cache(
    spark: SparkSession, cached: Made, statement: str, left: list[int]
) -> None:
    name, path = cached
    assert ids(spark, name) == [1, 2]
    spark.sql(statement.format(t=name, path=path))
    assert ids(spark, name) == left == ids(spark, f"dbio.`{path}`")


def test_rows_of_now_come_from_other_cached_tables_too(spark: SparkSession, cached: Made, tmp_path: Path) -> None:
    name, _ = cached
    spark.sql(f"CREATE TABLE dbio.cached.copy AS SELECT * FROM {name}")
    assert ids(spark, "dbio.cached.copy") == [1, 2, 3]
    assert ids(spark, name) == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda spark, path: dbio.delete(spark, path, "id = 1"),
        lambda spark, path: spark.sql(f"DELETE FROM dbio.`{path}` WHERE id = 1"),
        lambda spark, path: spark.sql(f"INSERT OVERWRITE dbio.`file://{path}` VALUES (2L), (3L)"),
        lambda spark, path: dbio.write(spark.sql("SELECT id FROM VALUES (2L), (3L) AS it(id)"), path, "overwrite"),
    ],
)
def test_a_commit_refreshes_the_table_under_each_of_its_names(
    spark: SparkSession, cached: Made, change: Callable[[SparkSession, str], object]
) -> None:
    name, path = cached
    spark.sql(f"CACHE TABLE dbio.`{path}`")
    assert (ids(spark, name), ids(spark, f"dbio.`{path}`")) == ([1, 2], [1, 2, 3])
    change(spark, path)
    assert (ids(spark, name), ids(spark, f"dbio.`{path}`")) == ([2, 3], [2, 3])


def test_a_write_of_stored_rows_into_their_table_says_that_a_refresh_helps(spark: SparkSession, cached: Made) -> None:
    name, path = cached
    for _ in range(2):
        with pytest.raises(dbio.CommitConflictError, match="REFRESH TABLE"):
            dbio.write(spark.table(name), path, "overwrite")
    spark.sql(f"REFRESH TABLE {name}")
    dbio.write(spark.table(name), path, "overwrite")
    assert ids(spark, name) == [1, 2, 3]


@pytest.mark.skipif(SPARK < (4, 1), reason="before Spark 4.1, a name means the table of now, even if it is cached")
def test_a_stored_table_whose_columns_have_changed_is_refused_until_it_is_refreshed(
    spark: SparkSession, cached: Made
) -> None:
    name, path = cached
    dbio.Table(path).write(ids_of([4]).append_column("n", pa.array([4], pa.int64())), merge_schema=True)
    for _ in range(2):
        with pytest.raises(SPARK_ERRORS, match="after DataFrame/Dataset has been resolved") as raised:
            spark.sql(f"DELETE FROM {name} WHERE id = (SELECT max(id) FROM {name})")
        assert "REFRESH TABLE" in "".join(raised.value.__notes__)
    spark.sql(f"REFRESH TABLE {name}")
    spark.sql(f"DELETE FROM {name} WHERE id = (SELECT max(id) FROM {name})")
    assert ids(spark, name) == [1, 2, 3]


def test_a_name_that_is_gone_hinders_no_commit(spark: SparkSession, cached: Made) -> None:
    name, path = cached
    spark.sql(f"CREATE TABLE gone USING dbio LOCATION '{path}'")
    assert ids(spark, "gone") == [1, 2, 3]
    frame = spark.table("gone")
    spark.sql("DROP TABLE gone")
    spark.sql(f"DELETE FROM {name} WHERE id = 1")
    assert ids(spark, name) == [2, 3]
    assert frame.columns == ["id"]
