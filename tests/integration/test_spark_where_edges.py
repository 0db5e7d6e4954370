"""Conditions for which `dbio.read(where=…)` once gave other rows than Spark's own filter, or an error of our own."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

import dbio_commit as dbio
from tests.spark_tables import configured, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = {"spark.sql.session.timeZone": "UTC"}
MANY = " OR ".join(f"id = {number}" for number in range(600))
LATE = "'2026-11-20 07:00:00+05:00'"


@pytest.fixture(scope="module")
def table(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("break") / "table")
    with configured(spark, UTC):
        frame = spark.sql(
            "SELECT 5 AS id, 5L AS l, 'b' AS kind, TIMESTAMP '2026-11-20 07:00:00' AS ts, "
            "CAST('5.000000000000000000000000000001' AS decimal(38,30)) AS w, CAST(5 AS decimal(10,2)) AS n, "
            "CAST('12345678901.00000000000000000001' AS decimal(38,20)) AS v"
        )
        dbio.write(frame.coalesce(1), path)
    return path


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        (MANY, {}),
        ("id = " + "0" * 5000 + "5", {}),
        ("kind = '${spark.dbio.some}'", {"spark.dbio.some": "b"}),
        (f"ts = CAST({LATE} AS TIMESTAMP_NTZ)", {}),
        (f"ts = TIMESTAMP_NTZ {LATE}", {}),
        (f"ts = CAST({LATE} AS TIMESTAMP)", {"spark.sql.timestampType": "TIMESTAMP_NTZ"}),
        ("w IN (5)", {}),
        ("v IN (12345678901)", {}),
        ("l IN (5.000000000000000001, 123456789012345678901234567890)", {}),
        ("n IN (5.001, 123456789012345678901234567890123456)", {}),
        ("w = 5", {"spark.sql.legacy.literal.pickMinimumPrecision": "false"}),
    ],
)
def test_the_row_is_found(spark: "SparkSession", table: str, where: str, settings: dict[str, str]) -> None:
    with configured(spark, UTC | settings):
        assert dbio.read(spark, table).where(where).count() == 1
        assert dbio.read(spark, table, where=where).count() == 1


def put(path: str, columns: dict[str, Any], **how: Any) -> None:
    """A file of another writer."""
    schema = how.pop("schema", None)
    with dbio.Table(path).begin("append") as transaction:
        file = transaction.new_file(**how)
        full = Path(file) if file.startswith("/") else Path(path) / file
        full.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), full)
        if schema:
            transaction.commit(schema=schema)


def test_a_partition_column_that_is_in_the_file_too(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    dbio.write(spark.sql("SELECT 1 AS id, 7 AS hour"), path, partition_by="hour")
    put(path, {"id": pa.array([2], pa.int32()), "hour": pa.array([0], pa.int32())}, partition={"hour": "9"})
    assert dbio.read(spark, path).where("hour = 9").count() == 1
    assert dbio.read(spark, path, where="hour = 9").count() == 1


def test_a_file_that_spells_a_column_otherwise(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    dbio.write(spark.sql("SELECT 1 AS id"), path)
    put(path, {"ID": pa.array([2], pa.int32())})
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        assert dbio.read(spark, path).where("id IS NULL").count() == 0  # a table's columns have no case
        assert dbio.read(spark, path, where="id IS NULL").count() == 0


def test_a_column_that_was_recorded_as_padded_text_is_plain_text(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    kind = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    field = {"name": "c", "type": "string", "nullable": True, "metadata": kind}
    put(path, {"c": ["a    "]}, schema={"type": "struct", "fields": [field]})
    for text, rows in (("a", 0), ("a    ", 1)):
        assert dbio.read(spark, path).where(f"c = '{text}'").count() == rows
        assert dbio.read(spark, path, where=f"c = '{text}'").count() == rows


def test_a_partition_that_is_no_value_of_its_type(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    dbio.write(spark.sql("SELECT 1 AS id, DATE '2026-11-20' AS day"), path, partition_by="day")
    put(path, {"id": pa.array([2], pa.int32())}, partition={"day": "20261121"})
    settings = {"spark.sql.ansi.enabled": "false", "spark.sql.sources.validatePartitionColumns": "false"}
    with configured(spark, settings):
        assert dbio.read(spark, path).where("day IS NULL").count() == 1
        assert dbio.read(spark, path, where="day IS NULL").count() == 1


def test_nan_and_both_zeros_are_the_same_to_all_that_compare(spark: "SparkSession", tmp_path: Path) -> None:
    """Also in a file of others, whose bounds leave out NaN, and in one whose dictionary holds -0.0 alone."""
    path = str(tmp_path / "table")
    values = ["-0.0", "0.0", "NaN", "1.0", "-1.0", "Infinity", None]
    listed = ", ".join(f"({i}, {'NULL' if text is None else repr(text)})" for i, text in enumerate(values))
    all_of_them = spark.sql(f"SELECT id, float(t) f, double(t) d FROM VALUES {listed} AS v(id, t)")
    dbio.write(all_of_them.coalesce(1), path)
    dbio.write(spark.sql("SELECT int(id + 10) id, float('-0.0') f, double('-0.0') d FROM range(20)").coalesce(1), path)
    floats = [0.5, float("nan")]
    with dbio.Table(path).begin() as transaction:
        rows = pa.table({"id": pa.array([30, 31], pa.int32()), "f": pa.array(floats, pa.float32()), "d": floats})
        pq.write_table(rows, transaction.new_file())
    given = {"0.0D": 0.0, "-0.0D": -0.0, "double('NaN')": float("nan"), "0.5D": 0.5}
    asked = {
        f"{column} {operator} {f'({text})' if operator.endswith('in') else text}": (column, operator, value)
        for column in ("f", "d")
        for operator in ("=", "!=", "<", "<=", ">", ">=", "in", "not in")
        for text, value in given.items()
    }
    flags = [f.expr(where).alias(where) for where in asked]
    found = [row.asDict() for row in dbio.read(spark, path).select("id", *flags).collect()]
    snapshot = dbio.Table(path).snapshot()
    for where, (column, operator, value) in asked.items():
        expected = sorted(row["id"] for row in found if row[where])
        filtered = snapshot.to_arrow(["id"], [(column, operator, [value] if operator.endswith("in") else value)])
        found_ids: list[Any] = filtered.column("id").to_pylist()
        assert sorted(found_ids) == expected, where
        if where in ("d = 0.0D", "f >= double('NaN')", "d in (-0.0D)"):
            assert ids(dbio.read(spark, path, where=where)) == expected, where
    assert dbio.update(spark, path, {"id": "-1"}, "d = 0").metrics["numUpdatedRows"] == 22
    assert dbio.delete(spark, path, "d > 1 AND f = double('NaN')").metrics["numDeletedRows"] == 2
    assert dbio.read(spark, path, where="d IN (-0.0D) AND id = -1").count() == 22
