"""Which rows keep the constraints of a table, and what is filled in, without Spark."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from dbio_commit import InvalidInputError
from dbio_commit.data.columns import spark_schema
from dbio_commit.data.row_checks import RowChecks
from dbio_commit.protocol.constraints import Constraints

FIELDS: Any = {"Id": pa.int64(), "twice": pa.int64(), "text": pa.string()}
SCHEMA = pa.schema(FIELDS)


def checks(settings: dict[str, str], *lacks: str) -> RowChecks:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    schema = spark_schema(SCHEMA, where="it")
    return RowChecks.of(Constraints.of(settings), schema, lacks=lacks, where="s3://lake/t", now=now)


def batch(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def test_without_constraints_rows_pass_as_they_are() -> None:
    rows = batch((1, None, None))
    assert checks({}).checked(rows) is rows


def test_defaults_come_before_generated_columns_which_use_them() -> None:
    settings = {"default.id": "7", "generated.twice": "id * 2"}
    assert checks(settings, "Id", "twice").checked(batch((None, None, "a"))).to_pylist() == [
        {"Id": 7, "twice": 14, "text": "a"}
    ]


@pytest.mark.parametrize(
    ("settings", "row", "said"),
    [
        (
            {"not_null.ID": "true"},
            (None, 1, "a"),
            r"at least 1 row violates not_null\.ID of .*Id=null",
        ),
        ({"check.a": "id > 1"}, (1, 1, "a"), r"violates check\.a \(id > 1\) of .*such as Id=1; nothing was committed"),
        ({"check.a": "id > 1"}, (None, 1, "a"), r"violates check\.a"),
        ({"generated.twice": "id * 2"}, (1, 3, "a"), r"violates generated\.twice"),
        ({"generated.twice": "id * 2"}, (1, None, "a"), r"violates generated\.twice"),
        ({"check.b": "id > 1", "check.a": "id > 2", "not_null.text": "true"}, (1, 1, None), r"violates not_null\.text"),
    ],
)
def test_a_row_that_violates_a_constraint_is_named(settings: dict[str, str], row: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        checks(settings).checked(batch((5, 10, "x"), row))
    checks(settings).checked(batch((5, 10, "x"), row), pa.array([True, False]))  # the other row is an old one


def test_a_value_that_a_column_cannot_hold_is_an_error_with_the_setting() -> None:
    with pytest.raises(InvalidInputError, match=r"'twice' .* cannot hold a value of the setting generated\.twice"):
        checks({"generated.twice": "id * 2"}, "twice").checked(batch((2**62, None, "a")))


@pytest.mark.parametrize(
    "settings",
    [{"check.a": "id > length(text)"}, {"check.a": "length(text) > 1"}, {"generated.text": "upper('a')"},
     {"generated.twice": "twice + 1"}, {"default.text": "1"}, {"default.text": "current_user()"}],
)  # fmt: skip
def test_what_only_spark_evaluates_is_refused_with_its_setting_and_a_way_out(settings: dict[str, str]) -> None:
    [setting] = settings
    with pytest.raises(InvalidInputError, match=rf"{setting}=.*by Spark only: .*`dbio set s3://lake/t {setting}=`"):
        checks(settings, "text")
