"""What is kept of the snapshots of queries."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import dbio_commit as dbio
from dbio_commit.spark.catalog import tables
from dbio_commit.spark.catalog.tables import SqlSnapshot, SqlTables, as_of


def fake(files: int, etag: str) -> SqlSnapshot:
    snapshot: Any = SimpleNamespace(
        files=range(files), tid=etag, etag=etag, settings={}, url="/t", table_id="1", partition_columns=()
    )
    return SqlSnapshot(cast(Any, None), snapshot, StructType())


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loads a table with so many files, in a state with this etag."""
    states: list[SqlSnapshot] = []
    kept = SqlTables()
    monkeypatch.setattr(tables, "open_table", lambda *_: None)
    monkeypatch.setattr(tables, "_read", lambda *_: states[-1])
    monkeypatch.setattr(tables, "nullable", lambda *_: None)
    monkeypatch.setattr(tables, "java_class", lambda *_: lambda name, id, token, *more: token)
    spark = cast(SparkSession, SimpleNamespace(_jvm=None))

    def load(files: int, etag: str) -> str:
        states.append(fake(files, etag))
        return str(kept.load(spark, "dbio.t", "/t", None))

    load.kept = kept._kept  # type: ignore[attr-defined]
    load.find = lambda token: kept.find(spark, token)  # type: ignore[attr-defined]
    return load


def test_thousands_of_statements_keep_at_most_a_hundred_snapshots(load: Any) -> None:
    for i in range(5_000):
        load(3, str(i))
    assert 50 < len(load.kept) <= 100


def test_snapshots_of_many_files_leave_no_room_for_others_but_the_last_one_is_kept(load: Any) -> None:
    few = [load(3, str(i)) for i in range(10)]
    large = load(100_000_000, "large")
    assert [*load.kept] == [large]
    assert load.find(large).snapshot.etag == "large"
    load(3, "0")
    assert load.find(few[0]).snapshot.etag == "0"


def test_a_state_that_cannot_be_read_again_is_refused(load: Any) -> None:
    token = load(3, "1")
    load.kept.clear()
    assert load.find(token).snapshot.etag == "1"
    load.kept.clear()
    load(3, "2")
    with pytest.raises(dbio.HistoryLostError, match="run the query again"):
        load.find(token)


def test_a_version_is_a_tid_and_a_time_has_microseconds() -> None:
    assert as_of("3765977726528482562", None) == "3765977726528482562"
    assert as_of(None, None) is None
    assert str(as_of(None, 1_763_600_000_000_001)) == "2025-11-20 00:53:20.000001+00:00"
    with pytest.raises(dbio.InvalidInputError, match="is no tid"):
        as_of("2026-11-20", None)
