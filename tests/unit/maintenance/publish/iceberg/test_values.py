"""Bounds and partition values in Iceberg's form are what PyIceberg makes of the same values, and leave no value out."""

import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.maintenance.publish.iceberg.schema import iceberg_type
from dbio_commit.maintenance.publish.iceberg.values import (
    bound_bytes,
    partition_value,
    plain,
    scale_of,
    summarize,
    to_bytes,
)
from dbio_commit.protocol.partition_values import write
from dbio_commit.protocol.types import type_of
from dbio_commit.protocol.types.bounds import shorten_max, shorten_min

pytest.importorskip("pyiceberg", reason="the lowest versions do not go together with it")
from pyiceberg.conversions import from_bytes
from pyiceberg.conversions import to_bytes as theirs
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

THEIRS: dict[str, PrimitiveType] = {
    "boolean": BooleanType(),
    "byte": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "decimal(5,2)": DecimalType(5, 2),
    "decimal(38,10)": DecimalType(38, 10),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}

_TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=90)
_TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": st.integers(-128, 127),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "decimal(5,2)": st.integers(-99999, 99999).map(lambda it: Decimal(it).scaleb(-2)),
    "decimal(38,10)": st.integers(-(10**28) + 1, 10**28 - 1).map(lambda it: Decimal(f"{it}E-10")),
    "string": _TEXTS,
    "date": st.dates(),
    "timestamp": _TIMES.map(lambda it: it.replace(tzinfo=UTC)),
    "timestamp_ntz": _TIMES,
}


def as_recorded(values: list[Any], kind: str, *, up: bool) -> Any:
    """The bound that a marker has of these values."""
    value = (max if up else min)(values)
    match value:
        case bool() | int() | float():
            return value
        case Decimal():
            return f"{value:f}"
        case str():
            return (shorten_max if up else shorten_min)(value.encode())
        case datetime() as moment:
            return moment.replace(tzinfo=None).isoformat() + ("Z" if moment.tzinfo else "")
    return value.isoformat()


each_kind = pytest.mark.parametrize("kind", VALUES)


@each_kind
@given(data=st.data())
def test_no_value_is_outside_of_its_bounds(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=5))
    own = iceberg_type(kind)
    assert own
    low = bound_bytes(as_recorded(values, kind, up=False), own, kind, up=False)
    high = bound_bytes(as_recorded(values, kind, up=True), own, kind, up=True)
    assert low is not None
    assert all(from_bytes(THEIRS[kind], low) <= plain(it) for it in values)
    assert high is None or all(plain(it) <= from_bytes(THEIRS[kind], high) for it in values)
    assert high is not None or kind == "string"


@each_kind
@given(data=st.data())
def test_values_are_the_bytes_that_pyiceberg_makes_and_as_partitions_what_their_text_says(
    kind: str, data: st.DataObject
) -> None:
    value = data.draw(VALUES[kind])
    own = iceberg_type(kind)
    assert own == str(THEIRS[kind])
    assert to_bytes(plain(value), own) == theirs(THEIRS[kind], plain(value))
    if kind not in ("string",) or value:
        assert partition_value(write(value, kind), kind) == plain(value)


_STRANGE = ["1e999999", "NaN", "2026-13-01", "2026-11-20T00:00:00", "-0.0", "1.005", "0001-01-01T00:00:00+23:59"]
_ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from([*_STRANGE, "\ud800"])
)


@given(st.sampled_from(sorted(THEIRS)), st.booleans(), _ANYTHING)
def test_any_bound_of_a_marker_is_a_value_or_none(kind: str, up: bool, bound: Any) -> None:
    own = iceberg_type(kind)
    assert own
    found = bound_bytes(bound, own, kind, up=up)
    if found is not None:
        value = from_bytes(THEIRS[kind], found)
        row = type_of(kind)
        assert row
        assert row.bound
        assert value == plain(row.bound.value(bound))


def test_zeros_have_the_sign_that_leaves_neither_out() -> None:
    low, high = (bound_bytes(zero, "double", "double", up=up) for zero, up in ((0.0, False), (-0.0, True)))
    assert low is not None
    assert high is not None
    signs = [math.copysign(1, struct.unpack("<d", it)[0]) for it in (low, high)]
    assert signs == [-1, 1]


@pytest.mark.parametrize(("bound", "scale"), [("1.50", 2), ("-0.000", 3), ("7", 0), (None, None), (1.5, None)])
def test_a_bound_shows_the_scale_of_the_file(bound: Any, scale: int | None) -> None:
    assert scale_of(bound) == scale


def test_a_summary_has_the_least_and_the_greatest_value_and_says_what_is_null() -> None:
    found = summarize([3, None, -2], "int")
    read: Callable[[Any], Any] = lambda it: from_bytes(IntegerType(), it)  # noqa: E731
    assert (found.contains_null, found.contains_nan) == (True, False)
    assert (read(found.lower_bound), read(found.upper_bound)) == (-2, 3)
    assert summarize([float("nan")], "double") == (False, True, None, None)
    assert summarize([None], "date") == (True, False, None, None)
    assert plain(date(1970, 1, 2)) == 1
