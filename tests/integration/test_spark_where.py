"""`dbio.read(where=…)`: Spark's own filter is the truth, and no file that holds one of its rows is left out."""

import logging
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dbio_commit as dbio
from dbio_commit.base.errors import InvalidInputError
from tests import spark35
from tests.spark_tables import configured, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {
    "b": "byte", "i": "int", "l": "long", "f": "float", "d": "double", "n": "decimal(10,2)", "w": "decimal(38,20)",
    "s": "string", "o": "boolean", "day": "date", "ts": "timestamp", "tn": "timestamp_ntz", "bin": "binary",
    "pi": "int", "ps": "string", "pt": "timestamp",
}  # fmt: skip
PARTITION = ("pi", "ps", "pt")
WHOLE = ["-128", "-1", "0", "1", "2", "5", "9", "127"]
LONG = "x" * 70
TEXTS = ["", "a", "B", "ab", "Zebra", "é", "😀", "5", f"{LONG}a", f"{LONG}b", "\uffff", "x" * 64, "\x7f~"]
DAYS = ["1900-01-01", "2026-03-29", "2026-10-25", "2026-11-20", "2026-11-21", "0001-01-01", "9999-12-31"]
TIMES = [
    "1899-12-31 12:00:00", "2026-03-29 01:59:59", "2026-03-29 02:30:00", "2026-03-29 03:00:00", "2026-10-25 02:30:00",
    "2026-10-25 03:30:00", "2026-11-20 00:00:00", "2026-11-20 07:30:00.5", "2026-11-20 23:59:59.999999",
]  # fmt: skip
VALUES = {
    "b": WHOLE, "i": [*WHOLE, "16777217", "-2147483648"], "l": [*WHOLE, "9223372036854775807", "9007199254740993"],
    "f": [*WHOLE, "0.1", "-0.0", "16777217"], "d": [*WHOLE, "0.1", "1e300", "-0.0"],
    "n": [*WHOLE, "0.01", "1.50", "99999999.99"], "w": [*WHOLE, "0.00000000000000000001", "123456789012345678.5"],
    "s": TEXTS, "ps": [text for text in TEXTS if text], "day": DAYS, "ts": TIMES, "tn": TIMES, "pi": ["-1", "0", "5"],
    "pt": TIMES, "o": ["true", "false"], "bin": ["a", "b"],
}  # fmt: skip
FAMILIES = [["b", "i", "l", "f", "d", "n", "w", "pi"], ["day", "ts", "tn", "pt"], ["s", "ps"], ["o"], ["bin"]]
"""Of columns that Spark compares with each other's values."""
OPERATORS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]
ZONE = "Europe/Berlin"


def quoted(text: str) -> str:
    return f"'{text}'"


class Conditions:
    """Random ones, mostly of the kinds that can leave files out."""

    def __init__(self, seed: int, *, mixed: bool) -> None:
        self.random, self.mixed = random.Random(seed), mixed

    def condition(self, depth: int = 2) -> str:
        if depth and self.random.random() < 0.6:
            one, other = self.condition(depth - 1), self.condition(depth - 1)
            return self.random.choice(
                [f"{one} AND {other}", f"({one}) OR ({other})", f"NOT ({one})", f"NOT {one}", f"({one} AND {other})"]
            )
        column = self.random.choice(list(TYPES))
        value = self.random.choice
        match self.random.randrange(8):
            case 0:
                return f"{column} IS {value(['', 'NOT '])}NULL"
            case 1:
                low, high = self.literal(column), self.literal(column)
                return f"{column} {value(['', 'NOT '])}BETWEEN {low} AND {high}"
            case 2:
                listed = ", ".join(self.literal(column) for _ in range(self.random.randint(1, 3)))
                return f"{column} {value(['', 'NOT '])}IN ({listed})"
            case 3 if TYPES[column] == "boolean":
                return value([column, f"NOT {column}", f"{column} = true", f"false <> {column}"])
            case 4:
                return f"{self.literal(column)} {value(OPERATORS)} {column.upper()}"
            case 5 if self.mixed:
                kin = next(family for family in FAMILIES if column in family)
                return f"`{column}` {value(OPERATORS)} {self.literal(value(kin))}"
        return f"{column} {value(OPERATORS)} {self.literal(column)}"

    def literal(self, column: str) -> str:
        kind, text = TYPES[column], self.random.choice(VALUES[column])
        if self.random.random() < 0.05:
            return "NULL"
        match kind:
            case "string":
                return quoted(text)
            case "binary":
                return f"X'{text.encode().hex()}'"
            case "boolean":
                return text
            case "date":
                return self.random.choice([quoted(text), f"DATE '{text}'", f"CAST('{text}' AS DATE)"])
            case "timestamp" | "timestamp_ntz":
                day, forms = text[:10], [quoted(text), f"TIMESTAMP '{text}'", f"TIMESTAMP_NTZ '{text}'"]
                forms += [f"'{text}+01:00'", f"'{text}Z'", f"'{text[:16].replace(' ', 'T')}'", f"DATE '{day}'"]
                return self.random.choice([*forms, quoted(day)])
        plain = [text, text, text, f"{text}L" if re.fullmatch(r"-?\d{1,10}", text) else text]
        if re.fullmatch(r"-?[\d.]{1,10}", text):
            plain += [f"{text}{suffix}" for suffix in ("D", "F", "BD")]
            plain += [f"CAST({text} AS {cast})" for cast in ("DECIMAL(25,10)", "DOUBLE", "FLOAT")]
        if re.fullmatch(r"-?\d{1,2}", text):
            plain += [f"{text}Y", f"CAST({text} AS BIGINT)", f"CAST('{text}' AS INT)"]
            plain += [f"CAST({text} AS smallint)" if spark35.IS_USED else f"{text}::smallint"]
        in_quotes = [quoted(text)] if kind in ("byte", "int", "long") and self.mixed else []
        return self.random.choice([*plain, *in_quotes, "-2.5", "1e1", "3.00000000000000000001"])


def value(column: str, text: str | None) -> str:
    if text is None:
        return f"CAST(NULL AS {TYPES[column]}) AS {column}"
    return f"CAST('{text}' AS {TYPES[column]}) AS {column}"


@pytest.fixture(scope="module")
def table(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> str:
    """Sixteen files of few rows, some with nulls only, with NaN, or without statistics."""
    path = str(tmp_path_factory.mktemp("where") / "table")
    rng = random.Random(7)
    with configured(spark, {"spark.sql.session.timeZone": ZONE}):
        for number in range(16):
            partition = {column: rng.choice([*VALUES[column], None]) for column in PARTITION}
            rows = []
            nulls = {column for column in TYPES if rng.random() < 0.2}
            near = {column: rng.sample(VALUES[column], min(2, len(VALUES[column]))) for column in TYPES}
            for _ in range(rng.randint(1, 4)):
                row: dict[str, Any] = {
                    column: None if column in nulls or rng.random() < 0.1 else rng.choice(near[column])
                    for column in TYPES
                }
                row |= partition
                if number % 5 == 0:
                    row["d"] = rng.choice(["NaN", "1"])
                rows.append("SELECT " + ", ".join(value(column, row[column]) for column in TYPES))
            frame = spark.sql(" UNION ALL ".join(rows)).coalesce(1)
            dbio.write(frame, path, partition_by=PARTITION)
    return path


def check(spark: "SparkSession", path: str, conditions: list[str]) -> int:
    """How many files were left out, over all conditions."""
    from pyspark.sql.functions import expr

    snapshot = dbio.Table(path).snapshot()
    frame = dbio.read(spark, path)
    flags = [f"coalesce(max({condition}), false) AS c{i}" for i, condition in enumerate(conditions)]
    holds: dict[str, set[int]] = {}
    by_file = frame.selectExpr("*", "_metadata.file_name AS file").groupBy("file")
    for row in by_file.agg(*map(expr, flags)).collect():
        holds[row.file] = {i for i in range(len(conditions)) if row[f"c{i}"]}
    left_out = 0
    for i, condition in enumerate(conditions):
        for zone in (spark.conf.get("spark.sql.session.timeZone"), None):
            kept = {file.path.rpartition("/")[2] for file in snapshot.where(condition, time_zone=zone).files}
            wrong = [file for file, matching in holds.items() if i in matching and file not in kept]
            assert not wrong, f"{condition} ({zone}): {wrong[0]} was left out"
        left_out += len(snapshot.files) - len(kept)
    return left_out


@pytest.mark.parametrize(("ansi", "zone"), [("true", "UTC"), ("false", ZONE)])
def test_no_file_is_left_out_in_which_sparks_own_filter_finds_a_row(
    spark: "SparkSession", table: str, ansi: str, zone: str
) -> None:
    made = Conditions(1, mixed=ansi == "false")
    with configured(spark, {"spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": zone}):
        left_out = sum(check(spark, table, [made.condition() for _ in range(60)]) for _ in range(2))
    assert left_out > 150  # of 1,920: else the test shows nothing


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_no_file_is_left_out_in_which_sparks_own_filter_finds_a_row_of_many_conditions(
    spark: "SparkSession", table: str, seed: int
) -> None:
    made = Conditions(seed, mixed=True)
    with configured(spark, {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": ZONE}):
        for _ in range(5):
            check(spark, table, [made.condition(3) for _ in range(60)])


@pytest.fixture(scope="module")
def days(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three days, and in each two files: of the ids 0 to 9 and 10 to 19 and so on."""
    path = str(tmp_path_factory.mktemp("days") / "table")
    for number in range(6):
        frame = spark.range(number * 10, number * 10 + 10).selectExpr("id", f"'2026-11-{20 + number // 2}' AS day")
        dbio.write(frame.coalesce(1), path, partition_by="day")
    return path


def test_the_rows_are_those_of_the_condition_and_other_files_are_not_planned(
    spark: "SparkSession", days: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="dbio_commit"):
        frame = dbio.read(spark, days, where="day = '2026-11-21' AND id BETWEEN 25 AND 29")
    assert ids(frame) == [25, 26, 27, 28, 29]
    assert len(frame.inputFiles()) == 1
    assert "1 of 6 files may hold such rows" in caplog.text
    assert "5 files were left out" in caplog.text


def test_a_condition_that_no_file_can_fulfil_gives_no_rows_with_the_tables_columns(
    spark: "SparkSession", days: str
) -> None:
    frame = dbio.read(spark, days, where="id > 1000")
    assert frame.columns == ["id", "day"]
    assert frame.count() == 0


def test_what_only_spark_understands_leaves_no_file_out(spark: "SparkSession", days: str) -> None:
    frame = dbio.read(spark, days, where="id % 7 = 0 OR upper(day) LIKE '%22'")
    assert ids(frame) == sorted({*range(0, 60, 7), *range(40, 60)})
    assert len(frame.inputFiles()) == 6


def test_a_condition_is_the_same_with_an_earlier_state(spark: "SparkSession", days: str) -> None:
    third = dbio.Table(days).history()[-3].tid
    assert ids(dbio.read(spark, days, third, where="id >= 19")) == list(range(19, 30))


def test_dates_that_an_old_setting_compares_as_texts_leave_no_file_out(spark: "SparkSession", days: str) -> None:
    with configured(spark, {"spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true"}):
        assert len(dbio.read(spark, days, where="id = 5").inputFiles()) == 6


@pytest.mark.parametrize("where", ["", "  ", 5])
def test_what_is_no_condition_is_refused(spark: "SparkSession", days: str, where: Any) -> None:
    with pytest.raises(InvalidInputError, match="is no condition"):
        dbio.read(spark, days, where=where)


def test_spark_says_what_is_wrong_in_a_condition(spark: "SparkSession", days: str) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="nonsense"):
        dbio.read(spark, days, where="nonsense = 5")


def test_a_plain_directory_is_filtered_by_spark_alone(spark: "SparkSession", tmp_path: Path) -> None:
    spark.range(10).write.parquet(str(tmp_path / "plain"))
    assert ids(dbio.read(spark, str(tmp_path / "plain"), where="id < 3")) == [0, 1, 2]
