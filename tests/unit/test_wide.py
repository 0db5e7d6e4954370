"""The work of each operation grows with the columns of a table, and not with their square: calls are counted."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dbio_commit as dbio
from tests.wide_tables import OPERATIONS, made

FEW, MANY = 8, 40
PACKAGE = str(Path(dbio.__file__).parent)


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
    few, many = ((n, made(n, tmp_path / str(n))) for n in (FEW, MANY))
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
