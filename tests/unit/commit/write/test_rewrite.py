"""Rows are deleted and changed without Spark: which files are written again, conflicts, changes, constraints."""

from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbio_commit as dbio
from dbio_commit.testing import ManualClock, MemoryStore

DAYS = [date(2026, 11, 20), date(2026, 11, 21), None]


def rows_from(first: int, count: int = 6) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "text": [f"t{i}" for i in ids], "day": [DAYS[i % 3] for i in ids]})


@pytest.fixture
def table() -> dbio.Table:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    table.write(rows_from(0), partition_by="day")
    table.write(rows_from(6))
    return table


def ids(table: dbio.Table) -> list[Any]:
    found: list[Any] = table.snapshot().to_arrow().column("id").to_pylist()
    return sorted(found)


def texts(table: dbio.Table) -> dict[int, str]:
    return {row["id"]: row["text"] for row in table.snapshot().to_arrow().to_pylist()}


def metrics(commit: dbio.Commit) -> dict[str, int]:
    info = commit.marker.dbio_commit
    assert info is not None
    return {name: number for name, number in info.metrics.items() if "Rows" in name and name != "numOutputRows"}


# --- delete -------------------------------------------------------------------------------------------------------


def test_only_files_with_some_matching_rows_are_written_again(table: dbio.Table) -> None:
    before = {file.path for file in table.snapshot().files}
    commit = table.delete("id IN (0, 6) OR id = 100")
    assert ids(table) == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    after = {file.path for file in table.snapshot().files}
    assert (commit.operation, len(before - after), len(after - before)) == ("rewrite", 2, 1)
    assert metrics(commit) == {"numDeletedRows": 2}
    assert not table.check().pending


def test_a_condition_on_partitions_reads_no_file(table: dbio.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbio_commit.data.rows.open_file", None)
    assert metrics(table.delete("day = '2026-11-20'")) == {"numDeletedRows": 4}
    assert ids(table) == [1, 2, 4, 5, 7, 8, 10, 11]
    assert metrics(table.delete("day IS NULL")) == {"numDeletedRows": 4}
    assert metrics(table.delete(where="true")) == {"numDeletedRows": 4}
    assert ids(table) == []


def test_rows_for_which_the_condition_is_null_stay(table: dbio.Table) -> None:
    table.delete("day != '2026-11-20'")
    assert ids(table) == [0, 2, 3, 5, 6, 8, 9, 11]
    assert metrics(table.delete("id > 100")) == {"numDeletedRows": 0}


def test_times_without_a_zone_are_in_the_zone_that_is_given() -> None:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    times = [datetime(2026, 11, 20, 9, tzinfo=UTC), datetime(2026, 11, 20, 11, tzinfo=UTC)]
    table.write(pa.table({"id": [1, 2], "at": pa.array(times, pa.timestamp("us", "UTC"))}))
    with pytest.raises(dbio.InvalidInputError, match="a time without a zone needs time_zone="):
        table.delete("at > '2026-11-20 11:00:00'")
    table.delete("at > '2026-11-20 11:00:00'", time_zone="Europe/Berlin")  # 10:00 in UTC
    assert table.snapshot().to_arrow().column("id").to_pylist() == [1]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("upper(text) = 'T1'", "is not evaluated row by row without Spark.*do this with Spark"),
        ("other = 1", "names 'other', which is no column"),
        ("id >", "cannot be read as a condition"),
        (17, "is no filter"),
        ([("id", "is", 1)], "is no filter"),
        ([("other", "=", 1)], "'other' is no column of the table"),
        ([("id", "=", 1.5)], "does not fit column 'id'"),
        ([("text", "in", "t1")], "a list of values is expected"),
        ([[]], "has an empty list, which would hold for every row"),
        ([[("id", "=", 1)], []], "has an empty list, which would hold for every row"),
    ],
)
def test_a_condition_for_spark_alone_is_refused_and_changes_nothing(table: dbio.Table, where: Any, said: str) -> None:
    with pytest.raises(dbio.InvalidInputError, match=said):
        table.delete(where)
    assert len(table.history()) == 2


def test_a_directory_without_a_descriptor_is_refused() -> None:
    store = MemoryStore()
    table = dbio.Table.over(store, ManualClock())
    with pytest.raises(dbio.TableNotFoundError):
        table.delete("id = 1")


def test_an_application_and_an_etag_hold_as_in_a_write(table: dbio.Table) -> None:
    seen = table.snapshot().etag
    assert not table.delete("id = 1", app=("cleaner", 1)).skipped
    assert table.delete("id = 2", app=("cleaner", 1)).skipped
    with pytest.raises(dbio.CommitConflictError):
        table.delete("id = 3", if_match=seen)
    assert len(ids(table)) == 11


def interrupted(table: dbio.Table, monkeypatch: pytest.MonkeyPatch, action: Any) -> None:
    """Calls `action` once, after the rewrite has read the table, and before it commits."""
    rewrite: Any = import_module("dbio_commit.commit.write.rewrite")

    real, calls = rewrite.write_rows, list[int]()

    def write_rows(*args: Any) -> Any:
        found = real(*args)
        if not calls:
            calls.append(1)
            action()
        return found

    monkeypatch.setattr(rewrite, "write_rows", write_rows)


def test_another_rewrite_of_the_same_file_is_a_conflict_and_is_tried_again(
    table: dbio.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(table, monkeypatch, lambda: table.delete("id = 3"))
    with pytest.raises(dbio.CommitConflictError):
        table.delete("id = 0")
    assert ids(table) == [0, 1, 2, *range(4, 12)]
    assert not table.check().pending
    interrupted(table, monkeypatch, lambda: table.delete("id = 6"))
    table.delete("id = 9", retries=1)
    assert ids(table) == [0, 1, 2, 4, 5, 7, 8, 10, 11]


@pytest.mark.parametrize("isolation", ["write_serializable", "serializable"])
def test_matching_rows_that_others_append_meanwhile_stay_or_conflict(
    table: dbio.Table, monkeypatch: pytest.MonkeyPatch, isolation: Any
) -> None:
    interrupted(table, monkeypatch, lambda: table.write(rows_from(0, 1)))
    if isolation == "serializable":
        with pytest.raises(dbio.CommitConflictError):
            table.delete("id < 2", isolation=isolation)
    else:
        table.delete("id < 2", isolation=isolation)
    assert ids(table)[:2] == ([0, 0] if isolation == "serializable" else [0, 2])


@settings(max_examples=20)
@given(
    values=st.lists(st.integers(0, 9) | st.none(), min_size=1, max_size=30),
    low=st.integers(0, 9),
    sizes=st.lists(st.integers(1, 10), min_size=3, max_size=3),
)
def test_a_delete_leaves_the_rows_that_it_does_not_match_in_any_files(
    values: list[int | None], low: int, sizes: list[int]
) -> None:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    left = list(values)
    for size in [*sizes, 30]:
        part, left = left[:size], left[size:]
        if part:
            table.write(pa.table({"id": pa.array(part, pa.int64())}))
    found = table.delete(f"id >= {low}")
    kept = [value for value in values if value is None or value < low]
    assert sorted(map(str, table.snapshot().to_arrow().column("id").to_pylist())) == sorted(map(str, kept))
    assert metrics(found) == {"numDeletedRows": len(values) - len(kept)}


# --- update -------------------------------------------------------------------------------------------------------


def test_an_update_changes_rows_that_match_and_keeps_the_others(table: dbio.Table) -> None:
    commit = table.update({"TEXT": "concat(text, '!')", "id": "id + 100"}, "id IN (1, 2)")
    assert texts(table) == {**{i: f"t{i}" for i in range(12) if i not in (1, 2)}, 101: "t1!", 102: "t2!"}
    assert metrics(commit) == {"numUpdatedRows": 2, "numCopiedRows": 2}
    table.update({"day": "DATE '2027-01-01'"}, where="id = 0")
    assert "day=2027-01-01" in {file.path.partition("/")[0] for file in table.snapshot().files}
    assert metrics(table.update({"text": "NULL"})) == {"numUpdatedRows": 12, "numCopiedRows": 0}
    assert set(texts(table).values()) == {None}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"text": "upper(text)"}, "is evaluated by Spark only"),
        ({"other": "1"}, "which is no column of the table"),
        ({"id": "1", "ID": "2"}, "twice"),
        ({"id": 1.5}, "the value 1.5 of column 'id' does not fit it"),
        ({"day": "2026-11-20"}, r"give values=\{'day': …\}"),
        ({"text": "ann"}, r"'ann' is no column of the table.*give values=\{'text': …\}"),
        ({"text": "Ann Lee"}, r"give values=\{'text': …\}"),
        ({}, "gives no column a value"),
        ("id = 1", "update takes the new values first|gives no column a value"),
        ({"id": "'a'"}, "is evaluated by Spark only"),
    ],
)
def test_impossible_values_are_refused_before_anything_is_written(table: dbio.Table, values: Any, said: str) -> None:
    with pytest.raises(dbio.InvalidInputError, match=said):
        table.update(values, "id = 1")
    assert len(table.history()) == 2


def test_values_of_python_are_set_as_they_are_and_in_values_texts_are_values() -> None:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    kinds = {
        "id": pa.int64(), "s": pa.string(), "v": pa.float64(), "f": pa.float32(), "money": pa.decimal128(9, 2),
        "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "day": pa.date32(), "flag": pa.bool_(),
        "raw": pa.binary(), "tags": pa.list_(pa.string()),
    }  # fmt: skip
    row: dict[str, Any] = {
        "id": 2, "s": "n + 1", "v": 2.25, "f": 0.5, "money": Decimal("1.50"), "at": datetime(2026, 1, 1, tzinfo=UTC),
        "local": datetime(2026, 1, 1), "day": DAYS[0], "flag": False, "raw": b"a", "tags": None,
    }  # fmt: skip
    table.write(pa.table({name: pa.array([None], kind) for name, kind in kinds.items()}))
    table.update({name: value for name, value in row.items() if name != "s"})
    table.update(values={"s": "n + 1"}, where=[("id", "=", 2)])
    assert table.snapshot().to_arrow().to_pylist() == [row]
    other = {"s": "", "v": np.float64(1), "f": 1, "money": 2, "day": "2026-11-21", "id": np.int8(3), "flag": pd.NA,
             "at": pd.Timestamp("2026-01-02", tz="UTC"), "local": pd.NaT}  # fmt: skip
    table.update({"tags": "NULL"}, "id = 2", values=other)
    assert table.snapshot().to_arrow().to_pylist() == [
        row | other | {"day": DAYS[1], "flag": None, "local": None, "money": Decimal(2)}
    ]
    with pytest.raises(dbio.InvalidInputError, match="'id' gets an expression and a value"):
        table.update({"id": "1"}, values={"ID": 1})
    with pytest.raises(dbio.InvalidInputError, match="give a value of the column's type, timestamp"):
        table.update({"at": datetime(2026, 1, 1)})
    with pytest.raises(dbio.InvalidInputError, match="single values of such a type"):
        table.update({"tags": ["a"]})


@pytest.mark.parametrize(
    ("kind", "sql", "value"),
    [
        (pa.float64(), "1.5", 1.5), (pa.float64(), "1.5D", 1.5), (pa.float64(), "CAST(1.5 AS DOUBLE)", 1.5),
        (pa.float64(), "-1e3", -1000.0), (pa.float64(), "3", 3.0), (pa.float32(), "1.5F", 1.5),
        (pa.float32(), "1.5", 1.5), (pa.decimal128(9, 2), "1", Decimal(1)),
        (pa.decimal128(9, 2), "CAST(1 AS DECIMAL(9,2))", Decimal(1)), (pa.decimal128(9, 2), "1.5", Decimal("1.5")),
        (pa.string(), "''", ""), (pa.string(), "'a \"b\" -- c'", 'a "b" -- c'), (pa.int8(), "7L", 7),
        (pa.timestamp("us", "UTC"), "TIMESTAMP_LTZ '2026-01-01T00:00:00Z'", datetime(2026, 1, 1, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "TIMESTAMP_LTZ '2026-01-01 01:00:00'", datetime(2026, 1, 1, tzinfo=UTC)),
        (pa.timestamp("us"), "TIMESTAMP_NTZ '2026-01-01 00:00:00'", datetime(2026, 1, 1)),
        (pa.date32(), "DATE '2026-11-20'", DAYS[0]),
    ],
)  # fmt: skip
def test_literals_in_new_values_are_those_of_conditions(kind: pa.DataType, sql: str, value: Any) -> None:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    table.write(pa.table({"v": pa.array([None], kind)}))
    table.update({"v": sql}, time_zone="Europe/Berlin")
    assert table.snapshot().to_arrow().to_pylist() == [{"v": value}]
    zone = "Europe/Berlin" if "TIMESTAMP" in sql else None
    assert table.snapshot().to_arrow(where=f"v = {sql}", time_zone=zone).num_rows == 1


@pytest.mark.parametrize("sql", ["1.05", "'1'", "300", "DATE '2026-11-20'"])
def test_a_literal_that_the_column_does_not_have_is_refused(sql: str) -> None:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    table.write(pa.table({"v": pa.array([None], pa.int8())}))
    with pytest.raises(dbio.InvalidInputError):
        table.update({"v": sql})


def test_a_value_that_is_too_large_in_a_row_that_matches_aborts_and_in_other_rows_does_no_harm() -> None:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    table.write(pa.table({"n": pa.array([1, 127], pa.int8())}))
    with pytest.raises(dbio.InvalidInputError, match="the value 'n \\+ 1' does not fit column 'n'"):
        table.update({"n": "n + 1"})
    table.update({"n": "n + 1"}, "n < 100")
    assert table.snapshot().to_arrow().column("n").to_pylist() == [2, 127]


def test_constraints_hold_for_rows_that_change_and_generated_columns_follow(table: dbio.Table) -> None:
    table.set({"check.positive": "id >= 0", "generated.text": "CAST(id AS STRING)"})
    with pytest.raises(dbio.InvalidInputError, match=r"violates check\.positive"):
        table.update({"id": "-1"}, "id = 3")
    table.update({"id": "50"}, "id = 3")
    assert texts(table)[50] == "50"
    assert texts(table)[0] == "t0"
    with pytest.raises(dbio.InvalidInputError, match=r"violates generated\.text"):
        table.update({"text": "'other'"}, "id = 4")


# --- recorded changes ---------------------------------------------------------------------------------------------


def recorded(table: dbio.Table, commit: dbio.Commit) -> list[tuple[Any, ...]]:
    """The rows of the change files of a commit: id, text, type."""
    import io

    import pyarrow.parquet as pq

    found: list[tuple[Any, ...]] = []
    for entry in table.store.list_files():
        name = entry.path.rpartition("/")[2]
        if name.startswith("cdc-") and commit.tid in name:
            read = pq.read_table(io.BytesIO(table.store.get(entry.path)))
            found += [(row["id"], row.get("text"), row["_change_type"]) for row in read.to_pylist()]
    return sorted(found)


def test_a_table_that_records_changes_gets_change_files(table: dbio.Table) -> None:
    table.set({"change_data": "true"})
    commit = table.delete("id = 0")
    assert recorded(table, commit) == [(0, "t0", "delete")]
    commit = table.update({"text": "'new'"}, "id = 3")
    assert recorded(table, commit) == [(3, "new", "update_postimage"), (3, "t3", "update_preimage")]
    assert commit.marker.is_recorded
    for where in ("day = '2026-11-21'", "id IN (2, 5)"):  # by the partition, and by all rows of a file
        commit = table.delete(where)
        info = commit.marker.dbio_commit
        assert info is not None
        assert (recorded(table, commit), info.whole) == ([], list(commit.marker.removed))
    assert not table.check().corrupt


def test_conditions_that_only_a_call_without_a_session_takes_are_refused_with_one(table: dbio.Table) -> None:
    session: Any = object()
    with pytest.raises(dbio.InvalidInputError, match="time_zone= is for a call without a Spark session"):
        table.delete("id = 1", time_zone="UTC", spark=session)
    with pytest.raises(dbio.InvalidInputError, match="give a condition in Spark's SQL"):
        table.update({"id": "1"}, ("id", "=", 1), spark=session)
