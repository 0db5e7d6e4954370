"""Rows that may fulfil a condition, by their values."""

import pyarrow as pa
import pytest

from dbio_commit.data.conditions.expressions import may_match
from dbio_commit.data.conditions.sql import parse_where
from dbio_commit.data.conditions.tree import Comparison
from tests.erasing import COLUMNS

BATCH = pa.RecordBatch.from_pylist(
    [{"user_id": 1, "who": "a"}, {"user_id": None, "who": "b"}, {"user_id": 7, "who": None}]
)


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("user_id = 7", True),
        ("user_id = 2", False),
        ("user_id < 1", False),
        ("user_id <= 1", True),
        ("user_id > 7", False),
        ("user_id >= 7", True),
        ("who IS NULL AND user_id > 6", True),
        ("who IS NULL AND user_id = 1", False),
        ("who IS NOT NULL AND user_id = 7", False),
        ("user_id IN (2, 3)", False),
        ("NOT user_id IN (1, 7)", False),
        ("user_id != 1 AND user_id != 7", False),
        ("user_id = 2 OR who = 'b'", True),
        ("upper(who) = 'X'", True),
        ("upper(who) = 'X' AND user_id = 2", False),
    ],
)
def test_some_row_may_fulfil_the_condition(where: str, wanted: bool) -> None:
    assert may_match(BATCH, parse_where(where, COLUMNS, zone=None)) is wanted


def test_not_a_number_may_be_beyond_any_number() -> None:
    columns = {"fields": [{"name": "x", "type": "double", "metadata": {}}]}
    batch = pa.record_batch({"x": [1.0, float("nan")]})
    assert may_match(batch, parse_where("x > 5.5", columns, zone=None))
    assert not may_match(batch.slice(0, 1), parse_where("x > 5.5", columns, zone=None))


def test_a_value_that_the_type_does_not_have_may_be_in_any_row() -> None:
    columns = {"fields": [{"name": "x", "type": "integer", "metadata": {}}]}
    batch = pa.record_batch({"x": pa.array([1, None], pa.int32())})
    assert may_match(batch, parse_where("x < 9999999999", columns, zone=None))


def test_any_row_may_fulfil_a_condition_with_a_value_that_the_column_cannot_have() -> None:
    condition = Comparison("user_id", "=", "seven", "seven")
    assert may_match(BATCH, condition)
    assert not may_match(BATCH.slice(0, 0), condition)
