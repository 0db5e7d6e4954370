"""Packed objects are those that were put in, in their order, and take little memory."""

import pickle
from datetime import UTC, datetime, timedelta, timezone
from sys import getsizeof
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.maintenance import packed
from dbio_commit.maintenance.packed import Entries
from dbio_commit.maintenance.vacuum.packed import Deletions
from dbio_commit.maintenance.vacuum.report import Deletion
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason

PATHS = st.text(max_size=5) | st.sampled_from(["a/b", "\udc80", "é" * 9])
TIMES = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5))]))
SIZES = st.integers(0, (1 << 63) - 1)
ENTRIES = st.lists(st.builds(Entry, PATHS, SIZES, TIMES), max_size=12)
DELETIONS = st.lists(
    st.builds(
        Deletion,
        path=PATHS,
        size=SIZES,
        age=st.timedeltas(timedelta(-9999), timedelta(3_652_058)),
        reason=st.sampled_from(Reason),
    ),
    max_size=12,
)


@given(st.data())
def test_packed_objects_are_a_sequence_of_those_that_were_put_in(choice: st.DataObject) -> None:
    with patch.object(packed, "CHUNK", 3):
        kind, items = choice.draw(st.tuples(st.just(Entries), ENTRIES) | st.tuples(st.just(Deletions), DELETIONS))
        found = kind(items)  # type: ignore[arg-type]
        assert [*found] == items
        assert len(found) == len(items)
        assert found == items
        assert items == found
        assert found != [*items, *items, 1]
        assert [found[i] for i in range(-len(items), len(items))] == [*items, *items]
        assert found[1:9:2] == items[1:9:2]
        assert pickle.loads(pickle.dumps(found)) == items
        with pytest.raises(IndexError):
            found[len(items)]


def test_many_objects_take_little_memory() -> None:
    at = datetime(2026, 11, 20, tzinfo=UTC)
    name = "region={}/part-{}-tid-{}-5f8a2c1e-0000-4000-8000-000000000000-1-1-c000.snappy.parquet".format
    found = Entries(
        Entry(name(i % 10, i, i * 7919 % 10**15), i, at + timedelta(seconds=i)) for i in range(5 * packed.CHUNK)
    )
    assert not found._last
    assert sum(map(getsizeof, found._packed)) < 60 * len(found)
