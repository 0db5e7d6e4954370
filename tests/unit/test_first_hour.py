"""The tasks of the first hour: what users of pandas and Polars type first works, or a message says what to type."""

import inspect
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dbio_commit as dbio

FRAME = pd.DataFrame({"id": [1, 2], "v": [1.0, 2.5], "s": ["a", "zz"]})
CHANGES = pl.DataFrame({"id": [2, 3], "v": [9.0, 8.0]})
ANY: Any = dbio
M, N = dbio.when_matched, dbio.when_not_matched


@pytest.fixture
def table(tmp_path: Path) -> dbio.Table:
    table = dbio.Table(tmp_path / "t")
    table.write(FRAME)
    return table


def ids(table: dbio.Table) -> list[Any]:
    return sorted(table.to_arrow()["id"].to_pylist())


def values(table: dbio.Table, column: str = "v") -> dict[int, Any]:
    return {row["id"]: row[column] for row in table.to_arrow().to_pylist()}


TASKS: dict[str, tuple[Callable[[dbio.Table], Any], Callable[[dbio.Table, Any], bool]]] = {
    "read into Polars": (lambda t: t.to_polars(["id"]), lambda t, it: it.equals(pl.DataFrame({"id": [1, 2]}))),
    "read into Arrow": (lambda t: t.to_arrow(where=("id", "=", 1)), lambda t, it: it.num_rows == 1),
    "count rows": (lambda t: (t.count(), t.count("v > 2"), t.count([("s", "=", "q")])), lambda t, it: it == (2, 1, 0)),
    "one term": (lambda t: t.to_pandas(where=("id", "=", 1)), lambda t, it: len(it) == 1),
    "delete by a list": (lambda t: t.delete([("id", "in", np.array([2]))]), lambda t, it: ids(t) == [1]),
    "delete by a pattern": (lambda t: t.delete("s LIKE 'z%'"), lambda t, it: ids(t) == [1]),
    "update by a list": (lambda t: t.update({"v": "v * 2"}, [("id", "=", 2)]), lambda t, it: values(t) == {1: 1, 2: 5}),
    "update with a number": (lambda t: t.update({"v": 2.25}), lambda t, it: values(t) == {1: 2.25, 2: 2.25}),
    "update with a text": (
        lambda t: t.update(values={"s": "it's", "v": np.float32(1)}, where=("id", "=", 1)),
        lambda t, it: values(t, "s") == {1: "it's", 2: "zz"},
    ),
    "replace some rows": (
        lambda t: t.write(FRAME.head(1), mode="overwrite", replace_where="id = 1"),
        lambda t, it: ids(t) == [1, 2] and it.metrics["numDeletedRows"] == 1,
    ),
    "merge on a column": (
        lambda t: t.merge(FRAME.assign(v=[7, 8]), on="id"), lambda t, it: values(t) == {1: 7, 2: 8}
    ),
    "merge by a condition": (
        lambda t: t.merge(CHANGES, "target.id = source.id", [M("source.v > target.v").update({"v": "source.v"})]),
        lambda t, it: values(t) == {1: 1, 2: 9},
    ),
    "merge some columns": (
        lambda t: t.merge(CHANGES, "id", [M().update({"v": "source.v"}), N().insert({"id": "id", "s": "'new'"})]),
        lambda t, it: values(t) == {1: 1, 2: 9, 3: None},
    ),
    "only insert": (
        lambda t: t.merge(FRAME.assign(id=[2, 3]), "id", [N().insert()]),
        lambda t, it: values(t) == {1: 1, 2: 2.5, 3: 2.5},
    ),
    "write a new table only": (
        lambda t: dbio.write(FRAME, f"{t.url}2", mode="errorifexists"), lambda t, it: it.added_files == 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_the_tasks_of_the_first_hour(table: dbio.Table, task: str) -> None:
    do, holds = TASKS[task]
    assert holds(table, do(table))


def test_the_home_directory_is_where_it_is_for_other_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert dbio.Table("~/lake").url == dbio.Table(Path("~/lake")).url == str(tmp_path / "lake")
    assert dbio.Table("./~/lake").url.endswith("/~/lake")


MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no columns": (lambda t: t.write(pd.DataFrame()), "the frame has no columns"),
    "a column without a name": (lambda t: t.write(pd.DataFrame([[1]], columns=[None])), r"rename\(columns=str\)"),
    "a number as a name": (lambda t: t.write(pd.DataFrame([[1]])), r"frame\.rename\(columns=str\)"),
    "sparse": (
        lambda t: t.write(pd.DataFrame({"x": pd.arrays.SparseArray(np.array([0, 1]))})),
        r"frame\['x'\]\.sparse\.to_dense\(\)",
    ),
    "only nulls in pandas": (
        lambda t: t.write(pd.DataFrame({"x": [None]})), r"no type, .* frame\.astype\(\{'x': 'string'\}\)"
    ),
    "only nulls in Polars": (
        lambda t: t.write(pl.LazyFrame({"x": [None]})), r"polars\.col\('x'\)\.cast\(polars\.String\)"
    ),
    "only nulls in Arrow": (lambda t: t.write(pa.table({"x": pa.nulls(1)})), r"table\['x'\]\.cast\("),
    "a condition as columns": (lambda t: t.to_pandas("id = 1"), r"a condition is given as where=…"),
    "a text as a list": (lambda t: t.to_pandas(where=("s", "in", "zz")), "a list of values is expected"),
    "a missing value in a filter": (lambda t: t.to_pandas(filter=[("id", "=", pd.NA)]), "None is null"),
    "NaN for a whole number": (lambda t: t.update({"id": float("nan")}), "None is null"),
    "a text that is no expression": (lambda t: t.update({"s": "Ann Lee"}), r"give values=\{'s': …\}"),
    "update, swapped": (lambda t: t.update("id = 1", {"v": "2"}), "takes the new values first"),
    "merge, swapped": (lambda t: t.merge(["id"], FRAME), "merge takes the rows first"),
    "write, swapped": (lambda t: ANY.write(t.url, FRAME), r"dbio\.write\(frame, path\)"),
    "read without a session": (lambda t: ANY.read(t.url), r"read\(spark, path, …\);.*Table\(path\)\.to_pandas"),
    "delete without a session": (lambda t: ANY.delete(t.url, "id = 1"), r"dbio\.Table\(path\)\.delete\(where\)"),
    "merge with more columns": (lambda t: t.merge(FRAME.assign(op="d"), "id"), r"the column 'op'.*when_matched\("),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_first_hour_is_answered_in_the_words_of_its_tool(table: dbio.Table, mistake: str) -> None:
    call, said = MISTAKES[mistake]
    with pytest.raises(dbio.InvalidInputError, match=said):
        call(table)
    assert len(table.history()) == 1


def test_a_mode_in_capitals_takes_a_condition(table: dbio.Table) -> None:
    mode: Any = "Overwrite"
    table.write(FRAME[:1].assign(v=7.0), mode=mode, replace_where="id = 1")
    assert values(table) == {1: 7.0, 2: 2.5}


def test_a_column_of_only_nulls_takes_the_type_of_the_table(table: dbio.Table) -> None:
    table.write(pd.DataFrame({"id": [5], "s": [None]}))
    assert values(table, "s")[5] is None
    table.merge(pd.DataFrame({"id": [5], "v": [None], "s": [None]}), "id")
    assert ids(table) == [1, 2, 5]


def test_help_shows_the_arguments_of_functions_that_take_a_session() -> None:
    assert list(inspect.signature(dbio.read).parameters) == ["spark", "path", "as_of", "where", "storage_options"]
    assert list(inspect.signature(dbio.update).parameters)[:5] == ["spark", "path", "updates", "where", "values"]


@pytest.mark.parametrize(
    ("kind", "many"),
    [
        (pa.int64(), 12_000), (pa.string(), 3_000), (pa.decimal128(12, 2), 3_000), (pa.float32(), 3_000),
        *(pytest.param(kind, 200_000, marks=pytest.mark.long) for kind in (pa.int64(), pa.string(), pa.float32())),
    ],
)  # fmt: skip
def test_a_condition_may_have_a_list_of_many_values(tmp_path: Path, kind: pa.DataType, many: int) -> None:
    table = dbio.Table(tmp_path / "t")
    table.write(pa.table({"id": pa.array(range(many + 2), pa.int32()).cast(kind)}))
    quote = "'" if kind == pa.string() else ""
    listed = ", ".join(f"{quote}{number}{quote}" for number in range(0, many, 2))
    assert table.update({"id": "id"}, f"id IN ({listed})").metrics["numUpdatedRows"] == many // 2
    assert table.delete(f"id IN ({listed})").metrics["numDeletedRows"] == many // 2
    odd = [str(it) if quote else Decimal(it) if kind == pa.decimal128(12, 2) else it for it in range(1, many, 2)]
    assert table.delete([("id", "in", odd)]).metrics["numDeletedRows"] == many // 2
    assert table.count() == 2
