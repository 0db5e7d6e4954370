"""What CREATE TABLE says of columns: a table keeps it, and evaluates it alike without Spark, or it is refused."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import dbio_commit as dbio
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.conditions import expressions
from dbio_commit.data.conditions.sql import parse_exactly
from dbio_commit.data.conditions.values import Unsure, read_value
from tests.spark_tables import SPARK

DEFAULTS: Sequence[tuple[str, str, Any]] = [
    ("boolean", "true", True),
    ("boolean", "FALSE", False),
    ("boolean", "NOT true", False),
    ("string", "NULL", None),
    ("array<string>", "NULL", None),
    ("int", "-5", -5),
    ("int", "coalesce(NULL, 3)", 3),
    ("int", "CASE WHEN true THEN 1 ELSE NULL END", 1),
    ("bigint", "5L", 5),
    ("smallint", "1S", 1),
    ("double", "1e3", 1000.0),
    ("double", "-1.5D", -1.5),
    ("decimal(10,2)", "-1.25", Decimal("-1.25")),
    ("date", "DATE '2026-01-01'", date(2026, 1, 1)),
    ("date", "DATE'2026-01-01' + INTERVAL 1 DAY", date(2026, 1, 2)),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2026-01-01 10:00:00'", datetime(2026, 1, 1, 10)),
    ("binary", "X'1F'", b"\x1f"),
    ("string", "'it''s'", "it's"),
    ("string", "''", ""),
    ("string", "concat('a', 'ü')", "aü"),
    ("array<int>", "array(1, 2)", [1, 2]),
    ("struct<a:int>", "named_struct('a', 1)", {"a": 1}),
]

CHECKS = [
    *("b = true", "b <> FALSE", "b IS TRUE", "b IS NOT FALSE", "b IS UNKNOWN OR b", "b IS NULL OR b", "b", "NOT b"),
    *("n IS NULL", "n IS NOT NULL", "n IS DISTINCT FROM 1", "n IS NOT DISTINCT FROM NULL", "n <=> 1", "n = NULL OR b"),
    *("n BETWEEN -5 AND 1", "n NOT BETWEEN 1 AND 5", "n IN (1, 2)", "n IN (1, NULL)", "n NOT IN (1, 2)"),
    *("s LIKE 'a%'", "s NOT LIKE 'a%'", "s ILIKE 'A%'", "s RLIKE '^a'", "length(s) <= 1", "s <> ''", "s || 'x' = 'ax'"),
    *("CASE WHEN n > 0 THEN true ELSE NULL END", "CASE n WHEN 1 THEN TRUE ELSE false END", "coalesce(b, FALSE)"),
    *("CAST(n AS STRING) = '1'", "n > -1", "n >= +1", "n % 2 = 1", "n DIV 2 = 0", "n != 5", "n == 1", "!(n > 5)"),
    *("d > DATE'2020-01-01'", "d BETWEEN DATE '2020-01-01' AND DATE '2030-01-01'", "d > '2020-01-01'", "TRUE"),
    *("x = X'61'", "d + INTERVAL 1 DAY > DATE'2026-01-01'", "EXTRACT(YEAR FROM d) = 2026", "n > 0 AND (s = 'a' OR b)"),
]


def plain(value: Any) -> Any:
    return value.asDict() if hasattr(value, "asDict") else bytes(value) if isinstance(value, bytearray) else value


def without_spark(text: str, kind: Any) -> Any:
    """The default without Spark; `Unsure` itself if only Spark evaluates it."""
    try:
        value = read_value(text, {}, now=datetime(2026, 11, 20, tzinfo=UTC), kind=kind)
    except Unsure:
        return Unsure
    return value.of(pa.RecordBatch.from_pydict({"one": [1]})).to_pylist()[0]


def test_defaults_of_all_forms_of_literals_are_kept_and_have_the_same_values_without_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    dbio.enable(spark)
    name = f"dbio.`{tmp_path / 't'}`"
    columns = [f"c{i} {kind} DEFAULT {text}" for i, (kind, text, _) in enumerate(DEFAULTS)]
    spark.sql(f"CREATE TABLE {name} (id INT, {', '.join(columns)})")
    empty = ", ".join(["1", *["DEFAULT"] * len(DEFAULTS)])
    spark.sql(f"INSERT INTO {name} VALUES ({empty})")
    (row,) = spark.table(name).collect()
    assert [plain(value) for value in row[1:]] == [value for _, _, value in DEFAULTS]
    schema = dbio.Table(tmp_path / "t").snapshot().schema
    assert schema is not None
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    found = {text: without_spark(text, kinds[f"c{i}"]) for i, (_, text, _) in enumerate(DEFAULTS)}
    assert {text: it for text, it in found.items() if it is not Unsure} == {
        text: value for _, text, value in DEFAULTS if found[text] is not Unsure
    }
    assert {"true", "FALSE", "NULL", "-5", "coalesce(NULL, 3)", "-1.25"} <= {
        text for text, it in found.items() if it is not Unsure
    }


ROWS: list[dict[str, Any]] = [
    {"n": 1, "b": True, "s": "a", "d": date(2026, 1, 1), "x": b"a"},
    {"n": 2, "b": False, "s": "bb", "d": date(2019, 1, 1), "x": b"b"},
    {"n": None, "b": None, "s": None, "d": None, "x": None},
]
COLUMNS = "n INT, b BOOLEAN, s STRING, d DATE, x BINARY"


def test_checks_of_all_forms_are_kept_and_hold_for_the_same_rows_without_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    dbio.enable(spark)
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE dbio.`{path}` ({COLUMNS})")
    for start in range(0, len(CHECKS), 20):
        dbio.constrain(spark, path, {f"check.c{i}": sql for i, sql in enumerate(CHECKS[start : start + 20], start)})
    table = dbio.Table(path)
    schema = table.snapshot().schema
    assert schema is not None
    rows = spark.createDataFrame([tuple(row.values()) for row in ROWS], COLUMNS)
    held = rows.selectExpr(*(f"coalesce({sql}, false) AS c{i}" for i, sql in enumerate(CHECKS))).collect()
    batch = pa.RecordBatch.from_pylist(ROWS, schema=table.snapshot().to_arrow().schema)
    evaluated = {}
    for i, sql in enumerate(CHECKS):
        try:
            condition = parse_exactly(sql, schema, zone=None, instead="")
        except InvalidInputError:
            continue
        evaluated[sql] = expressions.holds(condition, batch).to_pylist(), [row[f"c{i}"] for row in held]
    assert {sql: it for sql, it in evaluated.items() if it[0] != it[1]} == {}
    assert {"b = true", "b <> FALSE", "n BETWEEN -5 AND 1", "n NOT IN (1, 2)", "b IS UNKNOWN OR b"} <= evaluated.keys()


REFUSED: Mapping[str, str] = {
    "c INTERVAL DAY DEFAULT INTERVAL '1' DAY": "which would not come back equal from Parquet",
    "c DATE DEFAULT '2026-01-01'": "cast it in the expression",
    "c STRING DEFAULT 'a' 'b'": "is not expected there",
    "c INT DEFAULT '5'::int": "':', at character 4",
    "c STRING, s STRUCT<a: INT NOT NULL, b: STRING>": "the field 'a' of column 's' is NOT NULL",
    "c STRING, s ARRAY<STRUCT<a: STRUCT<b: INT NOT NULL>>>": "the field 'b' of column 's' is NOT NULL",
    "c STRING, s MAP<STRING, STRUCT<a: INT NOT NULL>>": "the field 'a' of column 's' is NOT NULL",
    "c STRING, s STRUCT<a: CHAR(3)>": r"column 's' has the type char\(3\)",
    "c STRING COLLATE UTF8_LCASE": "would not come back equal from Parquet",
}
"""What a table cannot keep, or that dbio takes in another form; and what the message says."""


def test_what_a_table_cannot_keep_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    dbio.enable(spark)
    name = f"dbio.`{tmp_path / 't'}`"
    for columns, message in REFUSED.items():
        if "COLLATE" not in columns or SPARK >= (4, 0):
            with pytest.raises((dbio.DbioError, PySparkException), match=message):
                spark.sql(f"CREATE TABLE {name} ({columns})")
    spark.sql(f"CREATE TABLE {name} (id INT)")
    nested = "s STRUCT<a: INT NOT NULL>"
    for statement in (f"ALTER TABLE {name} ADD COLUMNS ({nested})", f"CREATE OR REPLACE TABLE {name} ({nested})"):
        with pytest.raises(dbio.InvalidInputError, match="the field 'a' of column 's' is NOT NULL"):
            spark.sql(statement)
    assert len(dbio.Table(tmp_path / "t").history()) == 1


def test_a_frame_whose_fields_are_never_null_makes_a_table_without_that_promise(
    spark: SparkSession, tmp_path: Path
) -> None:
    dbio.enable(spark)
    frame = spark.range(1).selectExpr("id", "named_struct('a', 1) AS s", "array(1) AS l")
    assert not frame.schema["s"].dataType["a"].nullable  # type: ignore[index]
    frame.writeTo(f"dbio.`{tmp_path / 'v2'}`").create()
    spark.sql(f"CREATE TABLE dbio.`{tmp_path / 'ctas'}` AS SELECT 1L AS id, named_struct('a', 1) AS s, array(1) AS l")
    dbio.write(frame, tmp_path / "function")
    for name in ("v2", "ctas", "function"):
        spark.sql(f"INSERT INTO dbio.`{tmp_path / name}` SELECT 2L, named_struct('a', CAST(NULL AS INT)), array(NULL)")
        assert spark.table(f"dbio.`{tmp_path / name}`").where("s.a IS NULL AND l[0] IS NULL").count() == 1
