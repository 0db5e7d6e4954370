"""Columns change: narrower data is cast up, `merge_schema` widens types and adds and omits columns, at any depth.

What fits what is in tests/unit/spark/session/test_schema.py. Here: what is written so is read right, by Spark's own
reader in both of its ways and by Python workers, on every version of Spark. Rules: PROTOCOL.md 9.6.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

import dbio_commit as dbio
from tests.spark_tables import SPARK_ERRORS, ids, objects, rows

Save = Callable[[DataFrame, str, dict[str, Any]], object]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def _save(frame: DataFrame, path: str, options: dict[str, Any]) -> None:
    dbio.enable(frame.sparkSession)
    writer = frame.write.format("dbio").mode(options.get("mode", "append"))
    if options.get("merge_schema"):
        writer = writer.option("mergeSchema", "true")
    if "partition_by" in options:
        writer = writer.option("partitionBy", options["partition_by"])
    writer.save(path)


@pytest.fixture(params=["write", "data source"])
def save(request: pytest.FixtureRequest) -> Save:
    return _save if request.param == "data source" else lambda frame, path, options: dbio.write(frame, path, **options)


def reads(spark: SparkSession, path: str) -> Iterator[DataFrame]:
    """By Spark's vectorised reader, by its other one, and by Python workers."""
    for vectorised in ("true", "false"):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
        try:
            yield dbio.read(spark, path)
        finally:
            spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
    dbio.enable(spark)
    yield spark.read.format("dbio").load(path)


WIDER = [
    ("tinyint", "bigint", "-128", "127"),
    ("int", "bigint", "-2147483648", "2147483647"),
    ("decimal(20,2)", "decimal(38,10)", "-999999999999999999.99", "0.01"),
]
MORE = [
    ("float", "double", "-1.5", "3.25"),
    ("decimal(5,2)", "decimal(18,4)", "-999.99", "0.01"),
    ("tinyint", "smallint", "-128", "127"),
    ("smallint", "int", "-32768", "32767"),
    ("decimal(5,2)", "decimal(9,4)", "-999.99", "0.01"),
    ("decimal(10,2)", "decimal(38,10)", "-99999999.99", "0.01"),
]
SHAPES = "c {0}, s struct<a:{0},b:array<{0}>>, l array<{0}>, m map<string,{0}>, k map<{0},int>, n array<struct<a:{0}>>"


def shaped(spark: SparkSession, kind: str, *values: str) -> DataFrame:
    """Rows of one value each, in every nested place."""
    cast, table = f"CAST(v AS {kind})", ", ".join(f"('{value}')" for value in values)
    return spark.sql(
        f"SELECT {cast} AS c, named_struct('a', {cast}, 'b', array({cast})) AS s, array({cast}, NULL) AS l, "
        f"map('k', {cast}) AS m, map({cast}, 1) AS k, array(named_struct('a', {cast}), NULL) AS n "
        f"FROM VALUES {table} AS (v)"
    )


@pytest.mark.parametrize(
    ("narrow", "wide", "low", "high"), [*WIDER, *(pytest.param(*pair, marks=pytest.mark.long) for pair in MORE)]
)
def test_files_of_narrower_types_are_read_as_the_wider_one_flat_and_nested(
    spark: SparkSession, path: str, narrow: str, wide: str, low: str, high: str
) -> None:
    dbio.write(shaped(spark, narrow, low), path)
    with pytest.raises(dbio.SchemaMismatchError, match="merge_schema=True"):
        dbio.write(shaped(spark, wide, high), path)
    dbio.write(shaped(spark, wide, high), path, merge_schema=True)  # the table is wide now
    dbio.write(shaped(spark, narrow, high), path)  # cast as it is written
    expected = shaped(spark, wide, low, high, high)
    for read in reads(spark, path):
        assert read.dtypes == expected.dtypes == spark.createDataFrame([], SHAPES.format(wide)).dtypes
        assert rows(read) == rows(expected)
        conditions = [f"c = CAST('{high}' AS {wide})", f"c > CAST('{low}' AS {wide})", f"s.a = CAST('{low}' AS {wide})"]
        found = [read.where(condition).selectExpr(f"{number} AS n") for number, condition in enumerate(conditions)]
        assert sorted(row.n for row in reduce(DataFrame.union, found).collect()) == [0, 0, 1, 1, 2]
    schemas = [pq.read_schema(url) for url in dbio.Table(path).snapshot().urls()]
    assert len({str(schema.field("c").type) for schema in schemas if schema.field("c").type != schemas[0]}) == 2
    bounds = [(file.statistics or {})["c"] for commit in dbio.Table(path).history() for file in commit.files]
    assert {Decimal(str(bound.min)) for bound in bounds} == {Decimal(low), Decimal(high)}


@pytest.mark.long_for("write")
def test_new_fields_and_absent_columns_are_null_where_they_are_not(spark: SparkSession, path: str, save: Save) -> None:
    old = spark.sql(
        "SELECT 1 AS id, 'x' AS old, named_struct('a', 1) AS s, array(named_struct('a', 1)) AS l, 'p' AS day"
    )
    new = spark.sql(
        "SELECT 'p' AS day, array(named_struct('b', 'y', 'A', 2L), NULL) AS L, named_struct('B', 'y') AS s, 2L AS ID, "
        "0.5D AS more"
    )
    save(old, path, {"partition_by": "day"})
    before = objects(path)
    with pytest.raises((dbio.SchemaMismatchError, *SPARK_ERRORS), match="merge_schema=True"):
        save(new, path, {})
    assert objects(path) == before
    save(new, path, {"merge_schema": True})
    for read in reads(spark, path):
        assert read.columns == ["id", "old", "s", "l", "more", "day"]
        assert read.schema["s"].dataType.simpleString() == "struct<a:int,B:string>"
        assert read.schema["l"].dataType.simpleString() == "array<struct<a:bigint,b:string>>"
        first, second = sorted(read.collect())
        assert first == (1, "x", (1, None), [(1, None)], None, "p")
        assert second == (2, None, (None, "y"), [(2, "y"), None], 0.5, "p")
        assert ids(read.where("s.B IS NULL")) == [1]
        assert ids(read.where("s.a IS NULL")) == [2]
        found = [row.B for row in read.where("s IS NOT NULL").select("id", "s.B").orderBy("id").collect()]
        # Spark 4.0 takes a struct for null where a query asks only for fields that the file lacks (see COLUMNS.md).
        assert found == [None, "y"] or (found == ["y"] and pyspark.__version__.startswith("4.0."))


def test_a_partition_column_cannot_be_absent(spark: SparkSession, path: str) -> None:
    dbio.write(spark.sql("SELECT 1 AS id, 'p' AS day"), path, partition_by="day")
    with pytest.raises(dbio.SchemaMismatchError, match="day is missing"):
        dbio.write(spark.sql("SELECT 1 AS id"), path, merge_schema=True)


def test_a_partition_column_is_widened_and_its_directories_keep_their_names(spark: SparkSession, path: str) -> None:
    dbio.write(spark.sql("SELECT 1 AS id, 7 AS month"), path, partition_by="month")
    dbio.write(spark.sql("SELECT 2 AS id, 5000000000 AS month"), path, merge_schema=True)
    dbio.write(spark.sql("SELECT 3 AS id, 7Y AS month"), path, mode="overwrite_partitions")
    for read in reads(spark, path):
        assert read.dtypes == [("id", "int"), ("month", "bigint")]
        assert sorted(map(tuple, read.collect())) == [(2, 5000000000), (3, 7)]
        assert ids(read.where("month = 7")) == [3]
    assert {file.partition["month"] for file in dbio.Table(path).snapshot().files} == {"7", "5000000000"}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_void_is_cast_to_what_the_table_has(spark: SparkSession, path: str, save: Save, mode: str) -> None:
    columns = "'x' AS text, array(1.5D) AS list, named_struct('a', date'2026-01-01') AS struct, 'p' AS day"
    save(spark.sql(f"SELECT 1 AS id, {columns}"), path, {"partition_by": "day"})
    void = "NULL AS text, array(NULL) AS list, named_struct('a', NULL) AS struct, NULL AS day"
    save(spark.sql(f"SELECT 2 AS id, {void}"), path, {"mode": mode})
    assert dbio.Table(path).snapshot().partition_columns == ("day",)
    for read in reads(spark, path):
        assert read.dtypes == spark.sql(f"SELECT 1 AS id, {columns}").dtypes
        assert max(map(tuple, read.collect())) == (2, None, [None], (None,), None)
        assert read.count() == (1 if mode == "overwrite" else 2)


@pytest.mark.parametrize("void", ["NULL", "array(NULL)", "named_struct('a', NULL)", "map('a', NULL)"])
def test_void_is_refused_where_nothing_says_of_which_type_it_is(
    spark: SparkSession, path: str, save: Save, void: str
) -> None:
    frame = spark.sql(f"SELECT 1 AS id, {void} AS odd")
    with pytest.raises((dbio.InvalidInputError, *SPARK_ERRORS), match=r"'odd.* is void: it has only NULLs"):
        save(frame, path, {})
    assert not Path(path).exists()
    save(spark.sql("SELECT 1 AS id"), path, {})
    before = objects(path)
    with pytest.raises((dbio.InvalidInputError, *SPARK_ERRORS), match=r"'odd.* is void: it has only NULLs"):
        save(frame, path, {"merge_schema": True})
    assert objects(path) == before


def test_char_and_varchar_are_written_as_strings(spark: SparkSession, path: str, save: Save) -> None:
    """By default, a DataFrame has strings in their place; Spark 4.1 and later can be told to keep them."""
    spark.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    try:
        frame = spark.sql("SELECT CAST('ab' AS char(3)) AS c, array(CAST('ab' AS varchar(3))) AS v")
        save(frame, path, {})
    finally:
        spark.conf.unset("spark.sql.preserveCharVarcharTypeInfo")
    for read in reads(spark, path):
        assert read.schema == t.StructType().add("c", t.StringType()).add("v", t.ArrayType(t.StringType()))
        assert [(c.rstrip(), v) for c, v in read.collect()] == [("ab", ["ab"])]
    save(spark.sql("SELECT 'abcd' AS c, array('abcd') AS v"), path, {})


def test_a_plain_directory_keeps_its_types_for_nobody_records_them(spark: SparkSession, path: str) -> None:
    spark.sql("SELECT 1 AS id, 1L AS n").write.parquet(path)
    dbio.write(spark.sql("SELECT 2 AS id, 2 AS n"), path)  # cast up
    assert rows(dbio.read(spark, path)) == rows(
        spark.sql("SELECT id, id AS n FROM (SELECT explode(array(1, 2)) AS id)")
    )
    with pytest.raises(dbio.SchemaMismatchError, match="id is bigint, not int"):
        dbio.write(spark.sql("SELECT 3L AS id, 3L AS n"), path, merge_schema=True)
    assert {str(pq.read_schema(url).field("n").type) for url in dbio.Table(path).snapshot().urls()} == {"int64"}
