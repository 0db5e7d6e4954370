"""A file's columns become the table's, for reads in Python workers. Pure. Rules: PROTOCOL.md 8.2."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit import InvalidInputError
from dbio_commit.data.arrow import format_values
from dbio_commit.data.conform import conform, parse_value
from dbio_commit.data.widen import fit


def read(
    columns: Mapping[str, Any], target: Mapping[str, pa.DataType], partition: Mapping[str, str | None] | None = None
) -> dict[str, list[Any]]:
    schema = pa.schema(list(target.items()))
    batch = conform(pa.record_batch(dict(columns)), schema, partition=partition or {}, where="s3://lake/part-0")
    assert batch.schema.equals(schema)
    batch.validate(full=True)
    return batch.to_pydict()


def test_columns_take_the_tables_order_and_spelling() -> None:
    assert read({"B": ["x"], "a": [1]}, {"A": pa.int64(), "b": pa.string()}) == {"A": [1], "b": ["x"]}


def test_absent_columns_are_null_and_others_are_left_out() -> None:
    assert read({"a": [1, 2], "old": [3, 4]}, {"a": pa.int64(), "new": pa.list_(pa.string())}) == {
        "a": [1, 2],
        "new": [None, None],
    }


def test_a_partition_column_has_its_value_in_every_row() -> None:
    assert (
        read({"a": [1, 2]}, {"a": pa.int64(), "day": pa.date32()}, {"day": "2026-11-20"})["day"]
        == [date(2026, 11, 20)] * 2
    )
    assert read({"a": [1, 2]}, {"a": pa.int64(), "day": pa.date32()}, {"day": None})["day"] == [None, None]


def test_a_partition_column_goes_before_a_column_of_the_file() -> None:
    assert read({"day": ["wrong"], "a": [1]}, {"a": pa.int64(), "day": pa.int32()}, {"day": "7"})["day"] == [7]


def test_a_partition_column_is_found_without_regard_to_case() -> None:
    """Spark may ask for the columns in a spelling of the user's."""
    assert read({"a": [1]}, {"A": pa.int64(), "DAY": pa.int32()}, {"day": "7"}) == {"A": [1], "DAY": [7]}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1], pa.int32()), pa.int64()),
        (pa.array([1.5], pa.float32()), pa.float64()),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), pa.decimal128(10, 2)),
        (pa.array(["a"], pa.large_string()), pa.string()),
        (pa.array([[1]], pa.list_(pa.int32())), pa.list_(pa.field("element", pa.int64()))),
        (pa.array([{"a": 1}], pa.struct([("a", pa.int32())])), pa.struct([("a", pa.int64())])),
        (pa.array([0], pa.timestamp("ms", "Asia/Tokyo")), pa.timestamp("us", "UTC")),
        (pa.array(["a"]).dictionary_encode(), pa.string()),
    ],
    ids=str,
)
def test_narrower_types_of_older_files_are_widened(values: Any, kind: pa.DataType) -> None:
    (read_back,) = read({"a": values}, {"a": kind})["a"]
    assert read_back == values.cast(kind).to_pylist()[0]


NESTED: list[tuple[Any, pa.DataType, list[Any]]] = [
    (
        pa.array([{"A": 1, "old": 2}, None, {"A": None, "old": 3}]),
        pa.struct([("b", pa.string()), ("a", pa.int64())]),
        [{"b": None, "a": 1}, None, {"b": None, "a": None}],
    ),
    (
        pa.array([[{"a": 1}, None], None, [], [{"a": 2}]], pa.list_(pa.struct([("a", pa.int8())]))),
        pa.list_(pa.field("element", pa.struct([("a", pa.int64()), ("new", pa.list_(pa.int32()))]))),
        [[{"a": 1, "new": None}, None], None, [], [{"a": 2, "new": None}]],
    ),
    (
        pa.array([[("k", Decimal("1.50"))], None, []], pa.map_(pa.string(), pa.decimal128(3, 2))),
        pa.map_(pa.large_string(), pa.decimal128(9, 4)),
        [[("k", Decimal("1.5000"))], None, []],
    ),
    (
        pa.array([[[1], None], None, [[2, None], []]], pa.large_list(pa.list_(pa.float32()))),
        pa.list_(pa.field("element", pa.list_(pa.float64()))),
        [[[1.0], None], None, [[2.0, None], []]],
    ),
    (pa.nulls(3), pa.list_(pa.struct([("a", pa.int32())])), [None, None, None]),
    (pa.array([[None], [], None], pa.list_(pa.null())), pa.list_(pa.field("e", pa.date32())), [[None], [], None]),
]


@pytest.mark.parametrize(("values", "kind", "expected"), NESTED, ids=lambda value: str(getattr(value, "type", "")))
def test_nested_types_are_widened_inside_and_keep_their_nulls_also_where_they_are_slices(
    values: Any, kind: pa.DataType, expected: list[Any]
) -> None:
    assert read({"a": values}, {"a": kind})["a"] == expected
    twice = pa.concat_arrays([values, values])
    for start in range(len(values)):
        assert fit(twice.slice(start, len(values)), kind).to_pylist() == (expected * 2)[start : start + len(values)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["x"], pa.int64()),
        ([2**40], pa.int32()),
        ([1.5], pa.int64()),
        ([b"\xff"], pa.string()),
        ([[1]], pa.int64()),
        ([{"a": 1}], pa.map_(pa.string(), pa.int64())),
        ([Decimal("1.25")], pa.decimal128(3, 1)),
        ([1], pa.int32()),
        ([1], pa.string()),
        (["1"], pa.int64()),
        ([1.0], pa.float32()),
        ([Decimal("1.00")], pa.decimal128(4, 0)),
        ([date(2026, 1, 1)], pa.int32()),
        ([datetime(2026, 1, 1)], pa.date32()),
        ([True], pa.int64()),
    ],
)
def test_what_does_not_fit_is_a_clear_error(values: list[Any], kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="column 'amount' of s3://lake/part-0 does not fit"):
        read({"amount": values}, {"amount": kind})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", pa.int32()),
        ("3000000000", pa.int32()),
        ("yes", pa.bool_()),
        ("2026-02-30", pa.date32()),
        ("x", pa.decimal128(5, 2)),
        ("1.255", pa.decimal128(5, 2)),
        ("1000000", pa.decimal128(5, 2)),
        ("noon", pa.timestamp("us")),
        ("noon", pa.timestamp("us", "UTC")),
        ("", pa.float64()),
    ],
)
def test_a_directorys_name_that_is_no_value_of_the_type_is_a_clear_error(text: str, kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match=r"directory of s3://lake/part-0 names no value of the column 'p'"):
        read({"a": [1]}, {"a": pa.int64(), "p": kind}, {"p": text})


VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.decimal128(38, 10), st.decimals(-(10**20), 10**20, places=10)),
    (pa.decimal128(5, 5), st.decimals(0, 0, places=5) | st.just(Decimal("0.00001"))),
    (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), min_size=1)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_parse_value_is_the_inverse_of_format_values(kind: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @given(values)
    def check(value: Any) -> None:
        (text,) = format_values("p", pa.array([value], kind))
        assert parse_value(text, kind) == value

    check()
    assert parse_value(None, kind) is None


def test_timestamps_of_other_writers_are_taken_as_spark_wrote_them() -> None:
    assert parse_value("2026-11-20 10:00:00.5", pa.timestamp("us")) == datetime(2026, 11, 20, 10, 0, 0, 500_000)
    assert parse_value("2026-11-20", pa.timestamp("us", "UTC")) == datetime(2026, 11, 20, tzinfo=UTC)
    assert parse_value("TRUE", pa.bool_()) is True
