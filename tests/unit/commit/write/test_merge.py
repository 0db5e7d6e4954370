"""Rows of a frame are merged into a table without Spark: clauses, keys, counts, and what is refused."""

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbio_commit as dbio
from dbio_commit.commit.write.merge_sides import KeyIndex
from dbio_commit.commit.write.parallel import write_rows
from dbio_commit.testing import ManualClock, MemoryStore
from tests.unit.commit.write.test_rewrite import metrics, recorded, rows_from, texts

DAY = date(2026, 11, 20)
UPDATE, INSERT = dbio.when_matched().update(), dbio.when_not_matched().insert()


@pytest.fixture
def table() -> dbio.Table:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    table.write(rows_from(0), partition_by="day")
    table.write(rows_from(6))
    return table


def changes(*ids: int | None, **more: Any) -> pa.Table:
    texts = [f"new{i}" for i in ids]
    return pa.table({"ID": pa.array(ids, pa.int32()), "day": [DAY] * len(ids), "text": texts, **more})


def counts(commit: dbio.Commit) -> tuple[int, ...]:
    found = metrics(commit)
    return tuple(found[f"numTargetRows{what}"] for what in ("Inserted", "Updated", "Deleted", "Copied"))


def test_by_default_rows_that_match_are_updated_and_others_are_inserted(table: dbio.Table) -> None:
    before = {file.path for file in table.snapshot().files}
    commit = table.merge(changes(0, 6, 50), on=["id"])
    assert texts(table) == {**{i: f"t{i}" for i in range(12)}, 0: "new0", 6: "new6", 50: "new50"}
    assert (commit.operation, counts(commit)) == ("rewrite", (1, 2, 0, 2))
    assert len(before & {file.path for file in table.snapshot().files}) == 4
    assert {file.partition["day"] for file in table.snapshot().files} == {"2026-11-20", "2026-11-21", None}


@pytest.mark.parametrize(
    ("when", "left", "counted"),
    [
        ([UPDATE], {0: "new0", 1: "t1"}, (0, 1, 0, 1)),
        ([INSERT], {0: "t0", 1: "t1", 9: "new9"}, (1, 0, 0, 0)),
        ([dbio.when_matched().delete()], {1: "t1"}, (0, 0, 1, 1)),
        ([dbio.when_not_matched_by_source().delete()], {0: "t0"}, (0, 0, 1, 1)),
        ([UPDATE, dbio.when_not_matched_by_source().update({"text": "'gone'"})], {0: "new0", 1: "gone"}, (0, 2, 0, 0)),
        ([UPDATE, INSERT, dbio.when_not_matched_by_source().delete()], {0: "new0", 9: "new9"}, (1, 1, 1, 0)),
    ],
)  # fmt: skip
def test_each_clause_does_what_it_does_with_spark(when: Any, left: dict[int, str], counted: tuple[int, ...]) -> None:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    table.write(rows_from(0, 2))
    commit = table.merge(changes(0, 9), ["id"], when)
    assert (texts(table), counts(commit)) == (left, counted)


def test_null_keys_match_nothing_and_are_inserted(table: dbio.Table) -> None:
    table.write(pa.table({"id": pa.array([None], pa.int64()), "text": ["null"], "day": [DAY]}))
    assert counts(table.merge(changes(None, 0), on=["id"])) == (1, 1, 0, 1)
    found = [row["text"] for row in table.snapshot().to_arrow().to_pylist() if row["id"] is None]
    assert sorted(found) == ["newNone", "null"]


def test_a_row_that_matches_two_rows_of_the_source_is_refused_and_two_new_rows_are_not(table: dbio.Table) -> None:
    with pytest.raises(dbio.InvalidInputError, match=r"match more than one row of the source by .*one row for each"):
        table.merge(changes(0, 0), on=["id"])
    assert counts(table.merge(changes(70, 70), on=["id"])) == (2, 0, 0, 0)
    assert len(table.history()) == 3


def test_a_row_that_matches_two_rows_of_the_source_is_deleted_once(table: dbio.Table) -> None:
    before = len(texts(table))
    assert counts(table.merge(changes(0, 0), ["id"], [dbio.when_matched().delete()]))[2] == 1
    assert len(texts(table)) == before - 1


@pytest.mark.parametrize(
    ("source", "on", "when", "said"),
    [
        (changes(1), ["other"], None, "the table has no column 'other'"),
        (changes(1), "zz", None, "on=.'zz'.: the table has no column 'zz'"),
        (changes(1), "id = 1", None, "names 'id', which target and source have"),
        (changes(1), "target.id = 1", None, "has no columns that must be equal"),
        (changes(1), "target.id = source.id AND target.text < source.text", None, "by more than = of single columns"),
        (changes(1), "target.id = source.other", None, "names 'other', which is no column"),
        (changes(1, op=["d"]), "id", None, r"the source has the column 'op', which .* lacks.*when_matched"),
        (changes(1).append_column("id", pa.array([1])), "id", None, "two columns of the source"),
        (
            changes(1).set_column(0, "id", pa.array(["a"])),
            ["id"],
            [UPDATE],
            "'id' is long in the table, and string",
        ),
        (changes(1), "id", [dbio.when_matched().update({"text": "upper(source.text)"})], "by Spark only"),
        (changes(1), "id", [dbio.when_matched().update({"text": "source.more"})], "by Spark only"),
        (changes(1), [], None, "is no list of columns"),
        (changes(1).drop_columns("text"), ["id"], None, "the source has no column 'text', so update"),
        (changes(1), ["id"], [dbio.when_matched("source.extra > 1").delete()], "names 'extra', which is no"),
        (changes(1), ["id"], [UPDATE, UPDATE], "can never apply"),
        (changes(1).set_column(0, "id", pa.array([1.5])), ["id"], None, "the key 'id' of the source is double"),
        ([1], ["id"], None, "is no frame of rows"),
    ],
)
def test_what_cannot_be_merged_is_refused_before_anything_is_written(
    table: dbio.Table, source: Any, on: Any, when: Any, said: str
) -> None:
    with pytest.raises(dbio.InvalidInputError, match=said):
        table.merge(source, on, when)
    assert len(table.history()) == 2


def rows_of(table: dbio.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.snapshot().to_arrow().to_pylist())


def small_table() -> dbio.Table:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    table.write(pa.table({"id": [1, 2, 3], "n": [10, 20, None], "s": ["a", "b", "c"]}))
    table.write(pa.table({"id": [4], "n": [40], "s": ["d"]}))
    return table


M, N, S = dbio.when_matched, dbio.when_not_matched, dbio.when_not_matched_by_source


@pytest.mark.parametrize(
    ("when", "left", "counted"),
    [
        ([M("source.op = 'd'").delete(), M().update({"n": "source.n"}), N("op != 'd'").insert({"id": "id", "n": "n"})],
         [(1, 10, "a"), (3, 31, "c"), (4, 40, "d"), (9, 90, None)], (1, 1, 1, 1)),
        ([M("source.n > target.n").update({"n": "target.n + source.n", "s": "concat(target.s, source.op)"})],
         [(1, 10, "a"), (2, 41, "bd"), (3, None, "c"), (4, 40, "d")], (0, 1, 0, 2)),
        ([M("NOT (source.n > target.n) OR s = 'c'").update({"s": "'x'"})],
         [(1, 10, "a"), (2, 20, "b"), (3, None, "x"), (4, 40, "d")], (0, 1, 0, 2)),
        ([M("target.id > 100").delete(), N("source.id > 100").insert({"id": "source.id"})],
         [(1, 10, "a"), (2, 20, "b"), (3, None, "c"), (4, 40, "d")], (0, 0, 0, 0)),
        ([S("n < 40").update({"n": 0, "s": "concat(target.s, '!')"}), S().delete()],
         [(1, 0, "a!"), (2, 20, "b"), (3, None, "c")], (0, 1, 1, 2)),
        ([N().insert({"id": "source.id", "n": 5, "s": "'new'"})],
         [(1, 10, "a"), (2, 20, "b"), (3, None, "c"), (4, 40, "d"), (9, 5, "new")], (1, 0, 0, 0)),
        ([M("source.op LIKE '_'").update({"s": "source.op"}), S("target.id IN (4)").delete()],
         [(1, 10, "a"), (2, 20, "d"), (3, None, "u")], (0, 2, 1, 1)),
    ],
)  # fmt: skip
def test_conditions_and_values_of_clauses_see_both_sides(when: Any, left: Any, counted: tuple[int, ...]) -> None:
    table = small_table()
    before = {file.path for file in table.snapshot().files}
    commit = table.merge(pa.table({"ID": [2, 3, 9], "n": [21, 31, 90], "op": ["d", "u", "i"]}), "id", when)
    assert (rows_of(table), counts(commit)) == (sorted(left), counted)
    if counted[1:3] == (0, 0):
        assert before <= {file.path for file in table.snapshot().files}


@pytest.mark.parametrize(
    ("on", "changed"),
    [
        ("target.id = source.key", [2, 3]),
        ("source.key = target.id AND target.s = source.s", [2]),
        ("(target.id = source.key AND (target.s <> 'b'))", [3]),
        ("target.id = source.key AND source.s IN ('x', 'b') AND target.n IS NULL", [3]),
        ("target.id = key AND source.s = 'nothing'", []),
        ("source.s = target.s", [2]),
    ],
)
def test_rows_match_by_a_condition_with_equal_columns_of_both_sides(on: str, changed: list[int]) -> None:
    table = small_table()
    source = pa.table({"key": pa.array([2, 3, None, 9], pa.int32()), "s": ["b", "x", "a2", "b2"]})
    commit = table.merge(source, on, [M().update({"n": "-1"}), N().insert({"id": "source.key"})])
    assert sorted(row["id"] for row in table.snapshot().to_arrow().to_pylist() if row["n"] == -1) == changed
    assert counts(commit)[0] == 4 - len(changed)


def test_a_source_that_matches_a_row_twice_is_refused_even_if_a_condition_might_choose() -> None:
    table = small_table()
    source = pa.table({"id": [1, 1], "gone": [False, True]})
    with pytest.raises(dbio.InvalidInputError, match="match more than one row of the source"):
        table.merge(source, "id", [M("source.gone").delete()])


def test_a_merge_with_conditions_finds_what_others_write_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    def merge(id: int) -> None:
        table = small_table()

        def beside(*args: Any) -> Any:
            monkeypatch.undo()
            table.delete(f"id = {id}")
            return write_rows(*args)

        monkeypatch.setattr("dbio_commit.commit.write.rewrite.write_rows", beside)
        table.merge(pa.table({"id": [2], "n": [9]}), "id", [M("target.n > 5").update({"n": "source.n"})])

    merge(4)
    with pytest.raises(dbio.CommitConflictError):
        merge(1)


def test_an_insert_with_values_fills_in_defaults_and_checks_constraints() -> None:
    table = small_table()
    table.set({"default.s": "'none'", "check.n": "n < 1000"})
    table.merge(pa.table({"k": [7, 8], "n": [1, 2]}), "target.id = source.k", [N().insert({"id": "k", "n": "n + 1"})])
    assert rows_of(table)[-2:] == [(7, 2, "none"), (8, 3, "none")]
    with pytest.raises(dbio.InvalidInputError, match=r"violates check\.n"):
        table.merge(pa.table({"id": [7]}), "id", [M().update({"n": 1000})])


def test_defaults_and_generated_columns_are_filled_in_and_constraints_hold(table: dbio.Table) -> None:
    table.set({"default.text": "'none'", "check.small": "id < 100"})
    lacking = changes(0, 50).drop_columns("text")
    with pytest.raises(dbio.SchemaMismatchError, match="no column 'text', so update"):
        table.merge(lacking, on=["id"])
    assert counts(table.merge(lacking, on=["id"], when=[INSERT])) == (1, 0, 0, 0)
    assert texts(table)[50] == "none"
    with pytest.raises(dbio.InvalidInputError, match=r"violates check\.small"):
        table.merge(changes(100), on=["id"])
    table.set({"generated.text": "CAST(id AS STRING)", "default.text": ""})
    table.merge(lacking, on=["id"])
    assert (texts(table)[0], texts(table)[50]) == ("0", "50")


def test_changes_are_recorded_if_the_table_says_so(table: dbio.Table) -> None:
    table.set({"change_data": "true"})
    commit = table.merge(changes(0, 50), on=["id"])
    assert recorded(table, commit) == [
        (0, "new0", "update_postimage"), (0, "t0", "update_preimage"), (50, "new50", "insert"),
    ]  # fmt: skip


def test_an_empty_source_commits_nothing_and_a_stream_is_read_once(table: dbio.Table) -> None:
    assert table.merge(changes(), on=["id"]).skipped
    assert counts(table.merge(changes(0).to_reader(), on=["id"], retries=2)) == (0, 1, 0, 1)
    assert counts(table.merge(pd.DataFrame({"id": [1], "text": ["p"], "day": [DAY]}), on=["id", "day"])) == (1, 0, 0, 0)


KEYS = st.tuples(st.integers(0, 3) | st.none(), st.sampled_from(["a", "b", None]))


@given(source=st.lists(KEYS, max_size=8), rows=st.lists(KEYS, max_size=8))
def test_keys_of_several_columns_match_as_tuples_of_values_that_are_not_null(
    source: list[Any], rows: list[Any]
) -> None:
    def batch(keys: list[Any]) -> pa.RecordBatch:
        columns: list[Any] = [
            pa.array([it[0] for it in keys], pa.int64()),
            pa.array([it[1] for it in keys], pa.string()),
        ]
        return pa.RecordBatch.from_arrays(columns, names=["a", "b"])

    index = KeyIndex(pa.Table.from_batches([batch(source)]))
    for key, code in zip(rows, index.find(batch(rows)), strict=True):
        same = [i for i, it in enumerate(source) if it == key and None not in key]
        assert (code >= 0) == bool(same)
        if same:
            assert index.first[code] == same[0]
            assert index.has_twice(np.array([code])) == (len(same) > 1)


@pytest.mark.parametrize(
    "values",
    [[Decimal("1.50"), Decimal("2.00")], ["a", "ä"], [DAY, date(2026, 11, 21)], [True, False], [1, 2**62]],
    ids=str,
)
def test_keys_of_all_types_that_compare_exactly_are_found(values: list[Any]) -> None:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    table.write(pa.table({"k": values, "n": [1, 2]}))
    assert counts(table.merge(pa.table({"k": values[:1], "n": [7]}), on=["k"])) == (0, 1, 0, 1)
    found: list[Any] = table.snapshot().to_arrow().column("n").to_pylist()
    assert sorted(found) == [2, 7]


@settings(max_examples=30)
@given(
    old=st.dictionaries(st.integers(0, 9), st.integers(), max_size=8),
    new=st.dictionaries(st.integers(0, 9), st.integers(), max_size=8),
    cut=st.integers(0, 8),
)
def test_an_upsert_is_a_dictionarys_update(old: dict[int, int], new: dict[int, int], cut: int) -> None:
    table = dbio.Table.over(MemoryStore(), ManualClock())
    fields: Any = {"k": pa.int64(), "v": pa.float64()}
    schema = pa.schema(fields)
    items = [(key, value % 1000) for key, value in old.items()]
    for part in (items[:cut], items[cut:]):
        table.write(pa.table({"k": [it[0] for it in part], "v": [float(it[1]) for it in part]}, schema=schema))
    table.merge(pa.table({"k": [*new], "v": [float(it % 1000) for it in new.values()]}, schema=schema), on=["k"])
    found = {row["k"]: row["v"] for row in table.snapshot().to_arrow().to_pylist()}
    assert found == {key: float(value % 1000) for key, value in {**old, **new}.items()}
