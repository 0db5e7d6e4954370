"""The ranges of a merge's keys: they hold all values, in whatever batches and tasks these come. It needs no session."""

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from dbio_commit.spark.rewrite.ranges import KeySummary, Ranges, add_up, summarize

MOST = 32


def batch(*columns: Any) -> pa.RecordBatch:
    """Rows of 7 bytes each."""
    arrays = [pa.array([7] * len(columns[0]), pa.int64()), *columns]
    return pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])


def of_tasks(tasks: Sequence[Sequence[pa.RecordBatch]], *kinds: Any) -> KeySummary:
    lines = [Row(**line) for batches in tasks for it in summarize(batches, len(kinds)) for line in it.to_pylist()]
    return add_up(lines, kinds, most=MOST)


NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-50, 50))
TASKS = st.lists(st.lists(st.lists(NUMBERS), max_size=3), max_size=4)


@given(TASKS)
def test_the_ranges_of_numbers_hold_all_of_them_and_nothing_beside_them(tasks: list[list[list[int | None]]]) -> None:
    found = of_tasks([[batch(pa.array(it, pa.int64())) for it in each] for each in tasks], int)
    every = [it for each in tasks for some in each for it in some]
    values = {it for it in every if it is not None}
    (key,) = found.keys
    assert (found.rows, found.size) == (len(every), 7 * len(every))
    pairs: list[Any] = [*key.pairs]
    assert len(pairs) <= MOST
    assert not key.is_unbounded
    assert all(any(low <= it <= high for low, high in pairs) for it in values)
    assert {bound for pair in pairs for bound in pair} <= values
    assert all(before[1] < after[0] for before, after in pairwise(pairs))


def test_numbers_are_divided_where_the_gaps_are_widest() -> None:
    clusters = [cluster * 10_000 + i for cluster in range(40) for i in range(3)]
    far = [*clusters, 2**62]
    (key,) = of_tasks([[batch(pa.array(far[i::5], pa.int64()))] for i in range(5)], int).keys
    assert len(key.pairs) == 2  # beside the widest gap, the others are nothing
    (key,) = of_tasks([[batch(pa.array(clusters[i::5], pa.int64()))] for i in range(5)], int).keys
    assert len(key.pairs) == MOST


def test_numbers_side_by_side_are_one_range() -> None:
    assert Ranges.of(pa.array([3, 1, 2, 5, 2], pa.int8())).pairs == [(1, 3), (5, 5)]


@pytest.mark.parametrize(
    ("values", "kind", "pairs"),
    [
        (pa.array([date(1970, 1, 3), None, date(1969, 12, 31)]), int, [(-1, -1), (2, 2)]),
        (pa.array([Decimal("2.50"), Decimal("-0.01"), None]), Decimal, [(Decimal("-0.01"), Decimal("2.50"))]),
        (pa.array(["b", "ü", "a", None]), str, [("a", "ü")]),
        (pa.array(["ü", "a"], pa.large_string()), str, [("a", "ü")]),
        (pa.array(["ü", "a", None]).dictionary_encode(), str, [("a", "ü")]),
        (pa.array([None], pa.string()), str, []),
    ],
    ids=["dates", "decimals", "texts", "long texts", "dictionaries", "nulls"],
)
def test_other_types_have_bounds_too(values: Any, kind: Any, pairs: Any) -> None:
    (key,) = of_tasks([[batch(values)], []], kind).keys
    assert list(key.pairs) == pairs


def test_texts_that_are_no_utf8_have_no_bounds() -> None:
    """Such a text would change on its way, and be another bound."""
    odd: Any = pa.array([b"\xff", b"a"])
    broken = pa.StringArray.from_buffers(2, *odd.buffers()[1:])
    (key,) = of_tasks([[batch(broken)], [batch(pa.array(["b"]))]], str).keys
    assert key.is_unbounded


def test_each_key_has_its_own_ranges() -> None:
    each = [batch(pa.array([1, 2]), pa.array(["x", "y"])), batch(pa.array([9]), pa.array(["a"]))]
    assert [it.pairs for it in of_tasks([each], int, str).keys] == [[(1, 2), (9, 9)], [("a", "y")]]
