"""Values of Python are the same values of Arrow as pyarrow makes of them."""

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.data import constants

KINDS = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(9, 2), pa.decimal128(38, 38),
]  # fmt: skip
ZONES: Any = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))])
VALUES = [
    st.booleans(), st.integers(-(1 << 64), 1 << 64), st.integers(-200, 200), st.floats(allow_nan=False), st.text(),
    st.binary(), st.dates(), st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=ZONES),
    st.decimals(allow_nan=False), st.decimals(allow_nan=False, allow_infinity=False, places=2), st.just("\ud800"),
]  # fmt: skip


@given(st.sampled_from(KINDS), st.one_of([st.lists(values, max_size=20) for values in VALUES]))
def test_values_are_converted_and_refused_as_pyarrow_does(kind: pa.DataType, values: list[Any]) -> None:
    try:
        expected = pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        with pytest.raises(type(error)):
            constants.array(values, kind)
        return
    found = constants.array(values, kind)
    found.validate(full=True)
    assert found.equals(expected)
    assert found.type == expected.type
    for value, scalar in zip(values, expected, strict=True):
        assert constants.scalar(value, kind).equals(scalar)


@pytest.mark.parametrize("kind", KINDS)
def test_none_is_null(kind: pa.DataType) -> None:
    assert constants.scalar(None, kind).equals(pa.scalar(None, kind))


def test_common_values_need_no_pandas() -> None:
    values = [True, 1, 1.5, "é", date(2026, 11, 20), datetime(2026, 11, 20, tzinfo=UTC), Decimal("1.50")]
    kinds = ["bool_()", "int16()", "float64()", "string()", "date32()", "timestamp('us','UTC')", "decimal128(9,2)"]
    code = (
        "import datetime, sys, pyarrow as pa; from decimal import Decimal; from dbio_commit.data import constants\n"
        f"for value, kind in zip({values!r}, [{', '.join(f'pa.{it}' for it in kinds)}]):\n"
        "  constants.scalar(value, kind), constants.array([value] * 3, kind)\n"
        "assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
