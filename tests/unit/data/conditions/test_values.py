"""Values in Spark's SQL that are evaluated without Spark, and those that are left to it."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dbio_commit.data.conditions.values import Unsure, read_value

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
COLUMNS: Any = {
    "id": pa.array([1, -7, None], pa.int32()),
    "big": pa.array([1, 2**63 - 1, None], pa.int64()),
    "x": pa.array([0.5, 1.5, None]),
    "text": pa.array(["aä€", "", None]),
    "day": pa.array([date(2026, 11, 20), date(1, 1, 31), None]),
    "local": pa.array([datetime(2026, 11, 20, 23, 59), datetime(1969, 12, 31, 23), None], pa.timestamp("us")),
}
ROWS = pa.record_batch(COLUMNS)
KINDS = {"id": "integer", "big": "long", "x": "double", "text": "string", "day": "date", "local": "timestamp_ntz",
         "at": "timestamp", "nested": {"type": "array", "elementType": "long"}}  # fmt: skip

OF_NOW = ("current_timestamp()", "now()")


@pytest.mark.parametrize(
    ("sql", "kind", "values"),
    [
        ("1", "integer", [1, 1, 1]),
        ("-3000000000", "long", [-3_000_000_000] * 3),
        ("1.50", "decimal(3,2)", [Decimal("1.50")] * 3),
        ("0.05", "decimal(2,2)", [Decimal("0.05")] * 3),
        ("'it'", "string", ["it"] * 3),
        ("true", "boolean", [True] * 3),
        ("NULL", "void", [None] * 3),
        ("DATE '2026-11-20'", "date", [date(2026, 11, 20)] * 3),
        ("''", "string", [""] * 3),
        ("1.5D", "double", [1.5] * 3),
        ("1.5F", "float", [1.5] * 3),
        ("CAST(1 AS DECIMAL(9,2))", "decimal(9,2)", [Decimal("1.00")] * 3),
        ("CAST('2026-11-20' AS DATE)", "date", [date(2026, 11, 20)] * 3),
        ("TIMESTAMP_NTZ '2026-11-20 07:00:00'", "timestamp_ntz", [datetime(2026, 11, 20, 7)] * 3),
        ("x * 2D", "double", [1.0, 3.0, None]),
        ("current_timestamp()", "timestamp", [NOW] * 3),
        ("now()", "timestamp", [NOW] * 3),
        ("ID", "integer", [1, -7, None]),
        ("id + 1", "integer", [2, -6, None]),
        ("id * 2 - 1", "integer", [1, -15, None]),
        ("id + big", "long", None),
        ("x + id", "double", [1.5, -5.5, None]),
        ("id % 4", "integer", [1, -3, None]),
        ("pmod(id, 4)", "integer", [1, 1, None]),
        ("CAST(id AS BIGINT)", "long", [1, -7, None]),
        ("CAST(id AS STRING)", "string", ["1", "-7", None]),
        ("to_date(local)", "date", [date(2026, 11, 20), date(1969, 12, 31), None]),
        ("CAST(local AS DATE)", "date", [date(2026, 11, 20), date(1969, 12, 31), None]),
        ("year(day)", "integer", [2026, 1, None]),
        ("month(local)", "integer", [11, 12, None]),
        ("day(day)", "integer", [20, 31, None]),
        ("text || '!'", "string", ["aä€!", "!", None]),
        ("concat(text, text)", "string", ["aä€aä€", "", None]),
        ("coalesce(text, 'none')", "string", ["aä€", "", "none"]),
        ("length(text)", "integer", [3, 0, None]),
        ("substring(text, 2, 2)", "string", ["ä€", "", None]),
        ("left(text, 1)", "string", ["a", "", None]),
    ],
)
def test_a_value_is_the_one_of_spark_with_its_type(sql: str, kind: str, values: list[Any] | None) -> None:
    found = read_value(sql, KINDS, now=NOW)
    assert found.kind == kind
    if values is None:
        with pytest.raises(pa.ArrowInvalid, match="overflow"):
            found.of(ROWS.slice(1).set_column(0, "id", pa.array([1, None], pa.int32())))
    else:
        assert found.of(ROWS).to_pylist() == values


@pytest.mark.parametrize(
    "sql",
    ["upper(text)", "id / 2", "id div 2", "id % 0", "id % big", "year(at)", "to_date(at)", "to_date(text)", "1e3",
     "current_date()", "rand()", "uuid()", "text || id", "other", "t.id", "CAST(text AS INT)", "CAST(x AS INT)",
     "'a''b'", '"a"', "x + big", "1.5 + id", "substring(text, -1, 2)", "coalesce(id, 'a')", "if(id > 1, 1, 2)",
     "id > 1", "nested + 1", "(SELECT 1)", "DATE '2026-02-30'", "TIMESTAMP '2026-11-20 00:00:00'",
     "'a' || 'b' + 1", "trim(text)",
     "id +", ""],
)  # fmt: skip
def test_what_may_be_another_value_in_spark_is_refused(sql: str) -> None:
    with pytest.raises(Unsure):
        read_value(sql, KINDS, now=NOW)


def test_without_a_time_there_is_no_current_time() -> None:
    with pytest.raises(Unsure):
        read_value("current_timestamp()", KINDS, now=None)


@pytest.mark.parametrize(
    ("sql", "kind", "values"),
    [
        ("id", "long", [1, -7, None]),
        ("id", "short", [1, -7, None]),
        ("id", "double", [1.0, -7.0, None]),
        ("id", "decimal(12,2)", [Decimal("1.00"), Decimal("-7.00"), None]),
        ("1.5", "decimal(10,2)", [Decimal("1.50")] * 3),
        ("NULL", "date", [None] * 3),
        ("big", "integer", None),
        ("300", "byte", None),
    ],
)
def test_a_value_fits_its_column_or_fails(sql: str, kind: str, values: list[Any] | None) -> None:
    found = read_value(sql, KINDS, now=NOW, kind=kind)
    if values is None:
        with pytest.raises(pa.ArrowInvalid):
            found.of(ROWS)
    else:
        assert found.of(ROWS).to_pylist() == values


@pytest.mark.parametrize(
    ("sql", "kind"),
    [("id", "string"), ("text", "integer"), ("1.55", "decimal(10,1)"), ("day", "timestamp"), ("big", "double"),
     ("1", {"type": "array", "elementType": "long"}), ("nested", "string")],
)  # fmt: skip
def test_how_spark_would_convert_a_value_is_not_guessed(sql: str, kind: Any) -> None:
    with pytest.raises(Unsure):
        read_value(sql, KINDS, now=NOW, kind=kind)
