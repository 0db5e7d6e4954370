"""Lists of terms: a value is one that its column has, or the filter is refused. Otherwise other rows would be found."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dbio_commit import InvalidInputError, Table
from dbio_commit.testing import MemoryStore

NOON = datetime(2026, 11, 20, 12)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int8()),
        "big": pa.array([2**53 + 1, 2**63 - 1, None]),
        "x": [0.5, math.nan, None],
        "price": pa.array([Decimal("1.50"), Decimal("2.00"), None], pa.decimal128(5, 2)),
        "flag": [True, False, None],
        "day": [date(2026, 11, 20), date(1, 1, 1), None],
        "at": pa.array([NOON, NOON.replace(year=1), None], pa.timestamp("us", "UTC")),
        "local": pa.array([NOON, NOON.replace(year=1), None], pa.timestamp("us")),
        "text": ["1", "a", None],
    }
)


@pytest.fixture(scope="module")
def table() -> Table:
    table = Table.over(MemoryStore())
    table.write(ROWS)
    return table


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", 1), ("id", 1.0), ("id", Decimal(1)), ("id", np.int64(1)), ("id", "1"), ("big", 2**53 + 1), ("x", 0.5),
        ("x", np.float32(0.5)), ("price", Decimal("1.5")), ("price", np.int64(2)), ("flag", True),
        ("flag", np.bool_(1)), ("day", date(2026, 11, 20)), ("day", datetime(2026, 11, 20)),
        ("day", np.datetime64("2026-11-20")),
        ("at", NOON.replace(tzinfo=UTC)), ("at", NOON.replace(hour=14, tzinfo=timezone(timedelta(hours=2)))),
        ("at", "2026-11-20 12:00:00"), ("local", NOON), ("local", pd.Timestamp(NOON)), ("text", "1"),
        *((column, None) for column in ROWS.column_names),
    ],
)  # fmt: skip
def test_a_value_that_the_column_has_is_found(table: Table, column: str, value: Any) -> None:
    for term in ((column, "=", value), (column, "in", [value])):
        assert table.scan(where=[term]).to_arrow().num_rows == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", 1.5), ("id", Decimal("1.5")), ("id", 300), ("id", True), ("id", np.bool_(1)), ("id", math.nan),
        ("id", math.inf), ("id", Decimal("1e999")), ("x", 2**53 + 1), ("x", True), ("price", Decimal("1.505")),
        ("price", 1.5), ("flag", 1), ("day", NOON), ("day", NOON.replace(hour=0, tzinfo=UTC)), ("day", pd.NaT),
        ("at", NOON), ("at", pd.Timestamp("2026-11-20 12:00:00.000000001", tz="UTC")), ("at", pd.NaT),
        ("local", NOON.replace(tzinfo=UTC)), ("local", pd.Timestamp("2026-11-20 12:00:00.000000001")), ("text", 1),
        ("text", "\ud800"), ("id", pd.NA), ("id", [1]), ("day", 7),
    ],
)  # fmt: skip
@pytest.mark.parametrize("operator", ["=", "<", "in"])
def test_a_value_that_would_be_rounded_is_refused(table: Table, column: str, value: Any, operator: Any) -> None:
    given = [value] if operator == "in" else value
    with pytest.raises(InvalidInputError, match=f"does not fit column '{column}', which is .*: "):
        table.scan(where=[(column, operator, given)])
