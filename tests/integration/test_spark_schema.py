"""Columns and types: what comes back equal, what is refused before anything is written, what an append may bring.

Rules: PROTOCOL.md 6.4.
"""

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

import dbio_commit as dbio
from dbio_commit.spark.versions import HAS_STREAM_SOURCES
from tests import spark35
from tests.spark_tables import SPARK_ERRORS, configured, ids, numbers, objects, rows


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


# --- types --------------------------------------------------------------------------------------------------------

COLUMNS: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "tinyint": [-128, 127, None],
    "smallint": [-32768, 32767, None],
    "int": [-(2**31), 2**31 - 1, None],
    "bigint": [-(2**63), 2**63 - 1, None],
    "float": [-0.0, float("nan"), float("inf"), 1.5, None],
    "double": [-0.0, float("nan"), float("-inf"), 5e-324, None],
    "decimal(5,2)": [Decimal("-999.99"), Decimal("0.01"), None],
    "decimal(18,4)": [Decimal("99999999999999.9999"), None],
    "decimal(38,10)": [Decimal("-" + "9" * 28 + "." + "9" * 10), None],
    "string": ["", "a\0b", "é漢😀", "null", None],
    "binary": [b"", b"\x00\xff", None],
    "date": [date(1, 1, 1), date(1582, 10, 4), date(9999, 12, 31), None],
    "timestamp": [datetime(1900, 1, 1), datetime(2026, 3, 29, 2, 30, 0, 1), datetime(2262, 4, 12), None],
    "timestamp_ntz": [datetime(1, 1, 1), datetime(2026, 3, 29, 2, 30), datetime(9999, 12, 31, 23, 59, 59, 9), None],
    "array<int>": [[], [None], [1, None], None],
    "array<array<string>>": [[], [None], [[]], [["a", None]], None],
    "map<string,double>": [{}, {"a": None, "b": 0.5}, None],
    "map<int,array<struct<x:decimal(20,3),y:binary>>>": [{}, {1: [], 2: None, 3: [None, (None, b"")]}, None],
    "struct<a:int,`b.c d`:struct<e:date,f:array<timestamp>>>": [
        (None, None),
        (1, (None, None)),
        (1, (date(2026, 1, 1), [None, datetime(2026, 1, 1)])),
        None,
    ],
}  # fmt: skip


def test_all_types_of_parquet_come_back_equal_nested_and_null(spark: SparkSession, path: str) -> None:
    length = max(map(len, COLUMNS.values()))
    values = [[column[row % len(column)] for column in COLUMNS.values()] for row in range(length)]
    schema = ", ".join(f"c{number} {kind}" for number, kind in enumerate(COLUMNS))
    frame = spark.createDataFrame([tuple(row) for row in values], schema)
    dbio.write(frame, path)
    read = dbio.read(spark, path)
    assert read.schema == frame.schema
    assert rows(read) == rows(frame)
    urls = dbio.Table(path).snapshot().urls()
    assert rows(spark.read.parquet(*urls)) == rows(frame)
    assert spark.read.parquet(*urls).schema == frame.schema
    if not spark35.IS_USED:  # which makes no DataFrame of Arrow's tables
        assert rows(spark.createDataFrame(pq.read_table(urls), frame.schema)) == rows(frame)
    for file in urls:
        assert pq.read_schema(file).names == frame.columns


def test_columns_that_are_not_nullable_are_written_and_read_as_nullable(spark: SparkSession, path: str) -> None:
    frame = spark.sql("SELECT id, array(id) list, named_struct('a', id) struct, map('k', id) map FROM range(3)")
    assert not any(field.nullable for field in frame.schema.fields)
    dbio.write(frame, path)
    dbio.write(spark.createDataFrame([(None, [None], (None,), {"k": None})], SCHEMA), path)
    read = dbio.read(spark, path)
    assert all(field.nullable for field in read.schema.fields)
    assert read.count() == 4
    assert read.where("id IS NULL AND list[0] IS NULL AND struct.a IS NULL AND map['k'] IS NULL").count() == 1


SCHEMA = "id bigint, list array<bigint>, struct struct<a: bigint>, map map<string, bigint>"

REFUSED: Mapping[str, str] = {
    "year-month interval": "INTERVAL '1-2' YEAR TO MONTH",
    "day-time interval": "INTERVAL '1 2:3:4' DAY TO SECOND",
    "calendar interval": "make_interval(1, 2, 3)",
    "interval in a struct": "named_struct('a', INTERVAL '1-2' YEAR TO MONTH)",
    "collated string": "'a' COLLATE UTF8_LCASE",
    "collated key of a map": "map('a' COLLATE UNICODE_CI, 1)",
    "struct with the same field twice": "named_struct('a', 1, 'A', 2)",
} | {
    kind: sql
    for kind, sql, name in (
        ("time", "TIME'12:34:56'", "TimeType"),
        ("geography", "st_geogfromwkb(X'0101000000000000000000F03F0000000000000040')", "GeographyType"),
        ("geometry", "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')", "GeometryType"),
    )
    if hasattr(t, name)  # Spark 4.0 has none of them
}


def test_a_variant_comes_back_whatever_writes_and_reads_it(spark: SparkSession, path: str, tmp_path: Path) -> None:
    """By functions, SQL, the data source, streams and compaction, also in structs, arrays and maps, and null."""
    dbio.enable(spark)
    name = f"dbio.`{path}`"

    def by_id(frame: DataFrame) -> dict[int, tuple[Any, ...]]:
        values = ("id", "to_json(v)", "to_json(l)", "to_json(s.w)", "to_json(m['k'])")
        return {row[0]: tuple(row[1:]) for row in frame.selectExpr(*values).collect()}

    whole = """SELECT id, IF(id = 2, NULL, parse_json(concat('{"a": [', id, ', "x"]}'))) AS v,
        array(parse_json('1'), NULL) AS l, named_struct('w', parse_json('"q"')) AS s, map('k', parse_json('[]')) AS m
        FROM range(4)"""
    dbio.write(spark.sql(whole), path)
    rest = ("[1,null]", '"q"', "[]")
    first = {id: (None if id == 2 else f'{{"a":[{id},"x"]}}', *rest) for id in range(4)}
    in_workers = spark.read.format("dbio").load(path)
    assert by_id(dbio.read(spark, path)) == by_id(spark.table(name)) == by_id(in_workers) == first
    spark.sql(f"INSERT INTO {name} SELECT id + 10, v, l, s, m FROM {name} WHERE id = 0")
    spark.sql(f"UPDATE {name} SET v = parse_json('7') WHERE id = 1")
    spark.sql(f"DELETE FROM {name} WHERE variant_get(v, '$.a[0]', 'int') = 3")
    spark.sql(
        f"""MERGE INTO {name} t USING (SELECT id, parse_json('true') AS v FROM VALUES (2L), (20L) AS it(id)) s
        ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"""
    )
    expected: dict[int, tuple[Any, ...]] = {0: first[0], 10: first[0], 1: ("7", *rest), 2: ("true", *rest)}
    expected[20] = ("true", None, None, None)
    assert by_id(spark.table(name)) == expected
    assert len(dbio.Table(path).compact(min_files=2).compacted) == 1
    assert by_id(spark.table(name)) == expected
    assert dbio.Table(path).check(files=True).misread == {}
    other = str(tmp_path / "other")
    dbio.write(dbio.read(spark, path), other)
    if HAS_STREAM_SOURCES:
        stream = spark.readStream.format("dbio").load(other).writeStream.format("dbio")
        stream = stream.option("checkpointLocation", str(tmp_path / "place")).trigger(availableNow=True)
        stream.start(f"{other}2").awaitTermination(120)
        assert by_id(dbio.read(spark, f"{other}2")) == expected
    (found,) = dbio.Table(other).snapshot().to_arrow(["v"], [("id", "=", 1)])["v"].to_pylist()
    assert found == {"value": b"\x0c\x07", "metadata": b"\x01\x00\x00"}
    with pytest.raises(dbio.InvalidInputError, match="which Delta has no type for"):
        dbio.Table(path).publish("delta")


@pytest.mark.parametrize("kind", REFUSED)
def test_a_type_that_would_not_come_back_equal_is_refused_before_anything_is_written(
    spark: SparkSession, path: str, kind: str
) -> None:
    with configured(spark, {"spark.sql.geospatial.enabled": "true"}):  # as Spark 4.1 wants to be asked for
        frame = spark.sql(f"SELECT 1 AS id, {REFUSED[kind]} AS odd")
    for mode in ("append", "overwrite", "error"):
        with pytest.raises(dbio.InvalidInputError, match="'odd"):
            dbio.write(frame, path, mode=mode)
    assert not Path(path).exists()


def test_a_struct_without_fields_is_refused(spark: SparkSession, path: str) -> None:
    schema = t.StructType().add("id", t.IntegerType()).add("odd", t.ArrayType(t.StructType([])))
    with pytest.raises(dbio.InvalidInputError, match="'odd"):
        dbio.write(spark.createDataFrame([], schema), path)
    assert not Path(path).exists()


@pytest.mark.parametrize("columns", ["1 AS id, 2 AS ID", "1 AS id, 2 AS id"])
def test_the_same_column_twice_is_refused(spark: SparkSession, path: str, columns: str) -> None:
    with pytest.raises(dbio.InvalidInputError, match=r"(?i)'id'"):
        dbio.write(spark.sql(f"SELECT {columns}"), path)
    assert not Path(path).exists()


@pytest.mark.parametrize("kind", ["double", "float", "binary", "array<int>", "struct<a:int>", "map<int,int>"])
def test_a_partition_column_of_a_type_that_no_directory_name_gives_back_is_refused(
    spark: SparkSession, path: str, kind: str
) -> None:
    with pytest.raises(dbio.InvalidInputError, match="'odd'"):
        dbio.write(spark.createDataFrame([], f"id int, odd {kind}"), path, partition_by="odd")
    assert not Path(path).exists()


def test_a_dataframe_without_columns_is_refused(spark: SparkSession, path: str) -> None:
    with pytest.raises(dbio.InvalidInputError, match="column"):
        dbio.write(spark.range(1).select(), path)
    assert not Path(path).exists()


# --- appends are checked ------------------------------------------------------------------------------------------

TABLE = "id bigint, Name string, nested struct<a:int,b:array<double>>, day date"


def make_table(spark: SparkSession, path: str) -> None:
    row = (1, "x", (1, [0.5]), date(2026, 1, 1))
    dbio.write(spark.createDataFrame([row], TABLE), path, partition_by="day")


def test_columns_are_matched_by_name_without_case_and_take_the_tables_spelling_and_order(
    spark: SparkSession, path: str
) -> None:
    make_table(spark, path)
    columns = "DAY date, nested struct<a:int,b:array<double>>, NAME string, ID bigint"
    commit = dbio.write(spark.createDataFrame([(date(2026, 1, 2), (2, [1.5]), "y", 2)], columns), path)
    read = dbio.read(spark, path)
    assert read.columns == ["id", "Name", "nested", "day"]
    assert rows(read) == rows(spark.createDataFrame(
        [(1, "x", (1, [0.5]), date(2026, 1, 1)), (2, "y", (2, [1.5]), date(2026, 1, 2))], TABLE
    ))  # fmt: skip
    assert pq.read_schema(Path(path, commit.added[0])).names == ["id", "Name", "nested"]
    assert commit.added[0].startswith("day=2026-01-02/")


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("id bigint, nested struct<a:int,b:array<double>>, day date", "Name is missing"),
        ("id bigint, Name string, nested struct<a:int,b:array<double>>", "day is missing"),
        ("day date", "id is missing"),
        (f"{TABLE}, extra int", "extra is not in the table"),
        (TABLE.replace("a:int", "a:bigint"), "nested is struct<a:bigint"),
        (TABLE.replace("bigint", "decimal(20,0)"), "id is decimal"),
        (TABLE.replace("string", "binary"), "Name is binary, not string"),
        (TABLE.replace("day date", "day string"), "day is string, not date"),
        (TABLE.replace("day date", "day timestamp"), "day is timestamp, not date"),
        (TABLE.replace("array<double>", "array<decimal(5,2)>"), "nested is struct<a:int,b:array<decimal(5,2)>>"),
        (TABLE.replace("<a:int,", "<a:int,c:int,"), "nested is struct<a:int,c:int"),
        (TABLE.replace("<a:int,b:array<double>>", "<b:array<double>>"), "nested is struct<b"),
        ("other string", "id is missing"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_schemas_and_nothing_is_written(
    spark: SparkSession, path: str, mode: Any, columns: str, problem: str
) -> None:
    make_table(spark, path)
    before = objects(path)
    frame = spark.createDataFrame([], columns)
    with pytest.raises(dbio.SchemaMismatchError) as caught:
        dbio.write(frame, path, mode=mode)
    message = str(caught.value)
    assert problem in message
    assert spark.createDataFrame([], TABLE).schema.simpleString() in message
    assert frame.schema.simpleString() in message
    assert path in message
    assert objects(path) == before


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
def test_merge_schema_lets_new_columns_in_and_nothing_else(spark: SparkSession, path: str, mode: Any) -> None:
    make_table(spark, path)
    new = spark.createDataFrame([("new", 2, "y", (2, [1.5]), date(2026, 1, 2))], f"extra string, {TABLE}")
    before = objects(path)
    for wrong in (new.drop("day"), new.withColumn("id", new.id.cast("string"))):
        with pytest.raises(dbio.SchemaMismatchError):
            dbio.write(wrong, path, mode=mode, merge_schema=True)
    assert objects(path) == before
    dbio.write(new, path, mode=mode, merge_schema=True)
    read = dbio.read(spark, path)
    assert read.columns == ["id", "Name", "nested", "extra", "day"]
    assert sorted(map(tuple, read.select("id", "extra").collect())) == [(1, None), (2, "new")]
    with pytest.raises(dbio.SchemaMismatchError, match="extra is missing"):
        make_table(spark, path)


def test_an_overwrite_may_bring_other_columns(spark: SparkSession, path: str) -> None:
    make_table(spark, path)
    frame = spark.sql("SELECT 'one' AS id, date'2026-01-01' AS Day, 2.5D AS amount")
    dbio.write(frame, path, mode="overwrite")
    read = dbio.read(spark, path)
    assert read.dtypes == [("id", "string"), ("amount", "double"), ("day", "date")]  # the directories are named already
    assert read.collect() == [("one", 2.5, date(2026, 1, 1))]
    dbio.write(frame, path)
    assert dbio.read(spark, path).count() == 2


def test_an_overwrite_needs_the_partition_columns_of_the_table(spark: SparkSession, path: str) -> None:
    make_table(spark, path)
    before = objects(path)
    for columns in ("id bigint", "id bigint, day double"):
        with pytest.raises(dbio.InvalidInputError, match="day"):
            dbio.write(spark.createDataFrame([], columns), path, mode="overwrite")
    assert objects(path) == before


def test_an_append_without_a_change_keeps_no_turn(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 2), path)
    dbio.write(numbers(spark, 2, 4), path)
    dbio.write(numbers(spark, 4, 6), path, merge_schema=True)
    assert len([name for name in objects(path) if name.startswith("_serial_")]) == 1  # of the first: it set the schema


def test_files_of_an_older_schema_are_read_by_column_name(spark: SparkSession, path: str) -> None:
    dbio.write(spark.sql("SELECT 1 AS a, 'x' AS b"), path)
    dbio.write(spark.sql("SELECT 'y' AS b, 2 AS a, 0.5D AS c"), path, merge_schema=True)
    assert sorted(map(tuple, dbio.read(spark, path).select("a", "b", "c").collect())) == [(1, "x", None), (2, "y", 0.5)]


def test_an_adopted_directory_of_another_writer_takes_its_own_rows_back(spark: SparkSession, path: str) -> None:
    """With INT96, as Hive and Impala write, which only Spark takes for instants."""
    at = pa.array([datetime(1960, 1, 1, 12, 0, 0, 5), None, datetime(2026, 11, 23)], pa.timestamp("us"))
    Path(path).mkdir()
    pq.write_table(pa.table({"id": range(3), "at": at}), f"{path}/0.parquet", use_deprecated_int96_timestamps=True)
    dbio.Table(path).adopt()
    before = dbio.read(spark, path).collect()
    dbio.write(dbio.read(spark, path), path)
    assert sorted(dbio.read(spark, path).collect()) == sorted([*before, *before])
    dbio.delete(spark, path, "at > timestamp'2026-11-22'")
    assert dbio.read(spark, path).where("at IS NOT NULL").distinct().collect() == [before[0]]


def test_a_comment_or_default_of_a_column_makes_no_difference(spark: SparkSession, path: str) -> None:
    frame = numbers(spark, 0, 2)
    dbio.write(frame.withMetadata("id", {"comment": "a number"}), path)
    dbio.write(frame, path)
    assert dbio.read(spark, path).count() == 4


def test_the_columns_of_an_overwrite_that_failed_are_not_the_tables(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 2), path)
    with pytest.raises(SPARK_ERRORS):
        dbio.write(spark.sql("SELECT int(raise_error('no')) AS other"), path, mode="overwrite")
    dbio.write(numbers(spark, 2, 4), path)
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 3]


@pytest.mark.long
def test_rows_without_a_struct_are_written_where_its_fields_are_never_null(spark: SparkSession, tmp_path: Path) -> None:
    dbio.enable(spark)
    path = str(tmp_path / "table")
    made = spark.range(3, numPartitions=1).selectExpr(
        "id", "IF(id > 1, named_struct('n', id, 'in', array(struct(id))), NULL) AS c"
    )
    assert "(nullable = false)" in made._jdf.schema().treeString().partition("c:")[2]
    dbio.write(made, path)
    dbio.write(made.selectExpr("id + 3 AS id", "c"), path)
    made.selectExpr("id + 6 AS id", "c").write.format("dbio").mode("append").save(path)
    dbio.write(made, path, "overwrite", replace_where="id < 3")
    dbio.update(
        spark, path, {"c": "CASE WHEN id = 4 THEN named_struct('n', 7L, 'in', array(struct(id))) END"}, "id < 5"
    )
    dbio.merge(spark, path, made.where("id = 2"), ["id"])
    found = [(row.id, row.c and row.c.n) for row in dbio.read(spark, path).orderBy("id").collect()]
    assert found == [(0, None), (1, None), (2, 2), (3, None), (4, 7), (5, 2), (6, None), (7, None), (8, 2)]
