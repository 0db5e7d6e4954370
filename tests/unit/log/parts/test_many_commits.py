"""Commits that record so much together that Arrow cannot take their rows as a whole are put in order all the same."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from dbio_commit.log.parts import rows


def commits(count: int) -> pa.Table:
    """Every other transaction came late, so that few rows have their neighbours beside them."""
    at = [datetime(2026, 11, 20, tzinfo=UTC) + timedelta(seconds=i) for i in range(count)]
    order = [*range(0, count, 2), *range(1, count, 2)]
    each = [
        {"tid": str(i), "at": at[i], "rank": 0, "number": 1, "forgotten": False, "columns": ["a", "b"]} for i in order
    ]
    return pa.Table.from_pylist(each, rows.COMMITS)


def test_large_rows_are_put_in_order_without_taking_them(monkeypatch: pytest.MonkeyPatch) -> None:
    table = commits(600)
    want = rows.latest_commits(table, keep_forgotten=False)
    assert want["tid"].num_chunks == 1
    monkeypatch.setattr(rows, "_MOST_TAKEN_BYTES", 1)
    found = rows.latest_commits(table, keep_forgotten=False)
    assert found["tid"].num_chunks == 600
    assert found.equals(want)
    assert [it.as_py() for it in found["tid"]] == [str(i) for i in range(600)]
