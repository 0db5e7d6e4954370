"""The work of each operation grows with the columns of a table, and not with their square: calls are counted."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dbio_commit as dbio

FEW, MANY = 8, 40
PACKAGE = str(Path(dbio.__file__).parent)


def _rows(columns: int, *, start: int = 0) -> pa.Table:
    return pa.table({"c0": list(range(start, start + 9)), **{f"c{i}": [1, None, 2] * 3 for i in range(1, columns)}})


def _made(columns: int, root: Path) -> dbio.Table:
    table = dbio.Table(root)
    for start in (0, 100):
        table.write(_rows(columns, start=start))
    return table


def _adopt(table: dbio.Table, columns: int) -> object:
    for path in Path(table.url).glob("_*"):
        path.unlink()
    return table.adopt()


def _values(columns: int, text: str) -> dict[str, str]:
    return {f"c{i}": text.format(i) for i in range(1, columns)}


def _upsert(columns: int) -> list[Any]:
    return [dbio.when_matched().update(_values(columns, "source.c{0} + 1")), dbio.when_not_matched().insert()]


OPERATIONS: Mapping[str, Callable[[dbio.Table, int], object]] = {
    "append": lambda table, n: table.write(_rows(n)),
    "append with new columns": lambda table, n: table.write(_rows(2 * n), merge_schema=True),
    "overwrite": lambda table, n: table.write(_rows(n), mode="overwrite"),
    "replace": lambda table, n: table.write(_rows(n), mode="overwrite", replace_where=[("c0", "<", 9)]),
    "delete": lambda table, n: table.delete([("c0", "<", 5)]),
    "update": lambda table, n: table.update(values=dict.fromkeys(_values(n, ""), 7), where=[("c0", "<", 5)]),
    "update in SQL": lambda table, n: table.update(_values(n, "c{0} + 1"), where="c0 < 5"),
    "merge": lambda table, n: table.merge(_rows(n, start=5), on=["c0"]),
    "merge by clauses": lambda table, n: table.merge(_rows(n, start=5), ["c0"], _upsert(n)),
    "to_arrow": lambda table, n: table.snapshot().to_arrow(),
    "to_pandas, and append of it": lambda table, n: table.write(table.snapshot().to_pandas()),
    "to_polars": lambda table, n: table.snapshot().to_polars(),
    "to_dataset": lambda table, n: table.snapshot().to_dataset().to_table(),
    "to_duckdb": lambda table, n: table.snapshot().to_duckdb().fetchall(),
    "compact": lambda table, n: table.compact(),
    "vacuum": lambda table, n: table.vacuum(),
    "check": lambda table, n: table.check(files=True),
    "checkpoint": lambda table, n: table.checkpoint(),
    "adopt": _adopt,
    "publish for Delta": lambda table, n: table.publish("delta"),
    "publish for Iceberg": lambda table, n: table.publish("iceberg"),
}


def _calls(run: Callable[[], object]) -> Counter[str]:
    """How often code of the package calls each function, and each method that is not of Python."""
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, function: Any) -> None:
        if event in ("call", "c_call") and (code := frame.f_code).co_filename.startswith(PACKAGE):
            called = f" calls {function.__name__}" if event == "c_call" else ""
            calls[f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_firstlineno} {code.co_name}{called}"] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def _few_and_many(operation: str, tmp_path: Path) -> tuple[Counter[str], Counter[str]]:
    run = OPERATIONS[operation]
    few, many = ((n, _made(n, tmp_path / str(n))) for n in (FEW, MANY))
    return _calls(lambda: run(few[1], few[0])), _calls(lambda: run(many[1], many[0]))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_part_of_an_operation_grows_with_the_square_of_the_columns(operation: str, tmp_path: Path) -> None:
    few, many = _few_and_many(operation, tmp_path)
    bound = {name: 1.5 * MANY / FEW * (few[name] + 20) for name in many}
    assert {name: (few[name], count) for name, count in many.items() if count > bound[name]} == {}


def test_a_merge_makes_a_schema_as_often_for_any_number_of_columns(tmp_path: Path) -> None:
    few, many = _few_and_many("merge by clauses", tmp_path)
    for name in ("arrow_schema", "column_types", "target", "sets"):
        found = [(few[it], count) for it, count in many.items() if it.endswith(f" {name}")]
        assert found
        assert all(one == other for one, other in found)
    assert [count for it, count in many.items() if it.startswith("/commit/write") and it.endswith(" target")] == [1]
