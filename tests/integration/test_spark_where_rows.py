"""`where` in SQL without Spark keeps exactly the rows that Spark's own WHERE keeps, on odd values of all types."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import dbio_commit as dbio
from tests.spark_tables import configured, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {
    "id": "int", "b": "tinyint", "i": "int", "l": "bigint", "f": "float", "d": "double", "p": "decimal(10,2)",
    "s": "string", "day": "date", "ts": "timestamp", "n": "timestamp_ntz", "flag": "boolean",
}  # fmt: skip
ROWS = f"""
SELECT {", ".join(f"CAST({column} AS {kind}) AS {column}" for column, kind in TYPES.items())} FROM (
    SELECT *, f AS d, ts AS n FROM VALUES
    (0, 1, 5, 16777217, '0.1', '1.50', 'a', '2026-11-20', '2026-11-20 07:00:00', true),
    (1, -128, -1, -1, 'NaN', '-0.01', 'B', '1969-12-31', '1969-12-31 23:59:59.999999', false),
    (2, 127, 2147483647, 9223372036854775807, '-0.0', '99999999.99', '', '0001-01-01', '2026-10-25 00:30:00', true),
    (3, null, null, null, null, null, null, null, null, null),
    (4, 0, 0, 0, '0.0', '0', 'ä', '9999-12-31', '2026-11-20 07:00:00.000001', false),
    (5, 7, 7, 7, 'Infinity', '7', 'a ', '2026-11-21', '2026-11-20', true),
    (6, 5, 33, 33, '-1.5', '33.5', 'aa', '2026-01-01', '2026-10-25 01:30:00', null)
    AS v(id, b, i, l, f, p, s, day, ts, flag))
"""

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
LITERALS = {
    "b": ["5", "300", "-1.5", "'5'", "5L", "127.5"],
    "i": ["5", "33.0", "2147483648", "-0.5", "'7'", "33D"],
    "l": ["7", "16777216", "16777217L", "9223372036854775807", "33.5BD"],
    "f": ["0", "0.1", "0.1F", "0.1D", "1e300", "-1.5", "1e-6"],
    "d": ["0", "0.1", "-0.0", "0.1D", "1e300", "5", "0.1F"],
    "p": ["0", "1.5", "33.501", "-0.01", "7L", "100000000"],
    "s": ["'a'", "'a '", "''", "'ä'", "'Z'"],
    "day": ["'2026-11-20'", "DATE '2026-11-21'", "DATE '1970-01-01'"],
    "ts": ["'2026-11-20 07:00:00'", "TIMESTAMP '2026-11-20 07:00:00Z'", "DATE '2026-11-20'", "'2026-11-20'"],
    "n": ["'2026-11-20 07:00:00'", "TIMESTAMP_NTZ '2026-11-20 07:00:00'", "DATE '2026-11-20'"],
    "flag": ["true", "false"],
}
MORE = [
    "true", "false", "flag", "NOT flag", "flag IS NULL", "NOT (i = 5)", "NOT (i = 5 OR d > 0)", "i IN (5, 7, 8)",
    "i NOT IN (5, 7)", "d IN (0, 0.1)", "d IN (0.1, 7)", "f IN (0.5, 0.1F)", "p IN (7, 1.50)", "s IN ('a', 'ä')",
    "day IN ('2026-11-20', '1970-01-01')", "day NOT IN (DATE '2026-11-20')", "i BETWEEN 0 AND 33.5",
    "p NOT BETWEEN 0 AND 7", "(d > 0 OR i IS NULL) AND NOT (s = 'a' AND flag)", "5 < i", "NOT (d <= 0)",
    "l = 7 OR false",
    "NOT (f > 1e30) AND NOT (b IS NULL)", "n > '2026-11-20' AND ts >= '2026-11-20'", "NOT (NOT (flag))",
]  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "ansi", "each"),
    [
        ("Europe/Berlin", "false", 7),
        pytest.param("Europe/Berlin", "false", 1, marks=pytest.mark.long),
        pytest.param("UTC", "true", 1, marks=pytest.mark.long),
    ],
)
def test_spark_finds_the_same_rows(spark: "SparkSession", tmp_path: Path, zone: str, ansi: str, each: int) -> None:
    asked = [f"{column} {it} {value}" for column, values in LITERALS.items() for value in values for it in OPERATORS]
    asked = [*asked[::each], *(f"NOT ({where})" for where in asked[:: 7 * each]), *MORE]
    with configured(spark, {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": ansi}):
        rows_of_spark = to_arrow(spark.sql(ROWS))
        spark.sql(ROWS).createOrReplaceTempView("odd_rows")
        of_spark: dict[str, set[int]] = {}
        for start in range(0, len(asked), 50):
            some = asked[start : start + 50]
            rows = spark.table("odd_rows").selectExpr("id", *[f"({it}) AS c{i}" for i, it in enumerate(some)]).collect()
            of_spark |= {it: {row["id"] for row in rows if row[f"c{i}"]} for i, it in enumerate(some)}
    with dbio.Table(tmp_path).begin() as transaction:
        pq.write_table(rows_of_spark, transaction.new_file())
    snapshot = dbio.Table(tmp_path).snapshot()
    refused: list[str] = []
    for where, expected in of_spark.items():
        try:
            found: Any = snapshot.to_arrow(["id"], where=where, time_zone=zone)["id"].to_pylist()
        except dbio.InvalidInputError:
            refused.append(where)
            continue
        assert set(found) == expected, where
    assert len(refused) < 0.1 * len(asked), refused
