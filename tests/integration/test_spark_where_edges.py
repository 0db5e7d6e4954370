"""Conditions for which `dbio.read(where=…)` once gave other rows than Spark's own filter, or an error of our own."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

import dbio_commit as dbio
from dbio_commit.base.errors import InvalidInputError
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
    """A file of another writer, at which nobody looks, as an earlier version may have committed it."""
    schema, table = how.pop("schema", None), dbio.Table(path)
    table.inspector = None
    with table.begin("append") as transaction:
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
    found: dict[str, list[int]] = {}
    for start in range(0, len(asked), 4):  # Spark gets some of 32 flags wrong, in any DataFrame of a file
        some = [*asked][start : start + 4]
        flags = [f.expr(where).alias(where) for where in some]
        all_rows = dbio.read(spark, path).select("id", *flags).collect()
        found |= {where: sorted(row["id"] for row in all_rows if row[where]) for where in some}
    snapshot = dbio.Table(path).snapshot()
    for where, (column, operator, value) in asked.items():
        expected = found[where]
        filtered = snapshot.to_arrow(["id"], [(column, operator, [value] if operator.endswith("in") else value)])
        found_ids: list[Any] = filtered.column("id").to_pylist()
        assert sorted(found_ids) == expected, where
        if where in ("d = 0.0D", "f >= double('NaN')", "d in (-0.0D)"):
            assert ids(dbio.read(spark, path, where=where)) == expected, where
    assert dbio.update(spark, path, {"id": "-1"}, "d = 0").metrics["numUpdatedRows"] == 22
    assert dbio.delete(spark, path, "d > 1 AND f = double('NaN')").metrics["numDeletedRows"] == 2
    assert dbio.read(spark, path, where="d IN (-0.0D) AND id = -1").count() == 22


FLOAT_CONDITIONS = {
    "{d} <=> 0": 4, "0.0D <=> {d}": 4, "{d} = 0": 4, "NOT ({d} <> 0)": 4, "NOT (NOT ({d} <=> 0))": 4,
    "{d} IN (0, 7)": 4,
    "{d} BETWEEN 0 AND 7": 4, "{d} >= 0 AND {d} < 7": 4, "({d} = 0) IS TRUE": 4, "{d} <=> 0 AND {id} > 0": 3,
    "{f} <=> 0": 4, "double({f}) <=> 0": 4, "{f} <= 0": 4, "{st}.d <=> 0": 4, "{st}.in.f <=> 0": 4, "{st}.d IN (0)": 4,
    "{n} <=> double('NaN')": 4, "({n} > 1) IS TRUE": 4, "{n} >= 1 AND {n} <=> 'NaN'": 4, "NOT ({n} <=> 1)": 4,
    "if({d} = 0, true, false)": 4, "CASE WHEN {d} = 0 THEN true ELSE false END": 4, "{d} <=> 0 OR {id} = 77": 4,
}  # fmt: skip
"""And for how many rows of id (0 to 3), d, f, n and st they hold, where all numbers are -0.0 or, in n, NaN."""


def conditions(side: str = "") -> list[str]:
    names = {name: f"{side}{name}" for name in ("id", "d", "f", "n", "st")}
    return [text.format(**names) for text in FLOAT_CONDITIONS]


@pytest.fixture
def signs(spark: "SparkSession", tmp_path: Path) -> str:
    """A file whose dictionaries hold -0.0 alone, and NaN alone."""
    path = str(tmp_path / "signs")
    zero = "double('-0.0') AS d, float('-0.0') AS f"
    nested = "named_struct('d', double('-0.0'), 'in', named_struct('f', float('-0.0'), 'i', 1)) AS st"
    rows = spark.sql(f"SELECT int(id) AS id, {zero}, double('NaN') AS n, {nested}, 0 AS seen FROM range(4)")
    dbio.write(rows.coalesce(1), path)
    return path


def test_no_comparison_of_floats_passes_over_rows(spark: "SparkSession", signs: str) -> None:
    """However it is put: each row that fulfils it is read, updated (here by every sixth of them) and deleted."""
    wanted = dict(zip(conditions(), FLOAT_CONDITIONS.values(), strict=True))
    assert {where: dbio.read(spark, signs, where=where).count() for where in wanted} == wanted
    for i, where in enumerate([*wanted][::6], 1):
        assert dbio.update(spark, signs, {"seen": str(i)}, where).metrics["numUpdatedRows"] == wanted[where], where
        assert dbio.read(spark, signs, where=f"seen = {i} AND ({where})").count() == wanted[where], where
    assert dbio.delete(spark, signs, "d <=> 0 AND n <=> double('NaN')").metrics["numDeletedRows"] == 4


def test_no_comparison_of_floats_in_a_merge_passes_over_rows(spark: "SparkSession", signs: str) -> None:
    """Nor where Spark finds it in the source."""
    source = spark.sql("SELECT 1 AS id, double('0.0') AS d, 1 AS seen")
    upsert = [dbio.when_matched().update({"seen": "source.seen"}), dbio.when_not_matched().insert({"id": "source.id"})]
    found = {}
    some = ["target.d <=> 0", "target.st.d <=> 0", "NOT (target.n <= 1)"]
    for on in [*some, "target.d = source.d AND source.d = 0", "target.f <=> source.d AND source.d <=> 0"]:
        counts = dbio.merge(spark, signs, source, f"target.id = source.id AND {on}", upsert).metrics
        found[on] = counts["numTargetRowsUpdated"], counts["numTargetRowsInserted"]
    assert {*found.values()} == {(1, 0)}, found
    assert dbio.read(spark, signs).count() == 4
    for where, wanted in [*zip(conditions("target."), FLOAT_CONDITIONS.values(), strict=True)][1::6]:
        counts = dbio.merge(
            spark, signs, spark.range(1).selectExpr("id AS one"), where, [dbio.when_matched().update({"seen": "one"})]
        ).metrics
        assert counts["numTargetRowsUpdated"] == wanted, where


def test_sparks_reader_is_asked_for_no_floats_and_for_all_else(spark: "SparkSession", signs: str) -> None:
    for where in conditions():
        asked = dbio.read(spark, signs, where=where)._jdf.queryExecution().executedPlan().toString()
        assert not re.search(r"\b(EqualTo|EqualNullSafe|In|Greater\w*|Less\w*)\((d|f|n|st\b[^,]*),", asked), (
            where,
            asked,
        )
    rows = dbio.read(spark, signs, where="d <=> 0 AND id > 0")
    assert "GreaterThan(id,0)" in rows._jdf.queryExecution().executedPlan().toString()
    plain = dbio.read(spark, signs)
    assert rows.schema == plain.schema
    assert str(rows.collect()) == str(plain.where("id > 0").collect())
    assert "EqualTo(d,0.0)" in plain.where("d = 0")._jdf.queryExecution().executedPlan().toString()


def test_a_constraint_on_floats_is_asked_of_all_rows(spark: "SparkSession", signs: str) -> None:
    with pytest.raises(InvalidInputError, match="4 rows"):
        dbio.constrain(spark, signs, {"check.not_zero": "NOT (d <=> 0)"})
