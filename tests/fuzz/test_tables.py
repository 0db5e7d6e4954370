"""Whole tables whose log and publications somebody has changed: each operation ends in a result or a DbioError."""

from collections.abc import Callable
from typing import Any

import pytest

from dbio_commit.log.parts import parquet
from tests.fuzz import tables


@pytest.mark.parametrize("form", tables.FORMS)
def test_a_table_that_nobody_has_changed_fails_nowhere(form: str) -> None:
    objects = tables.good(form)
    for what, call in {**tables.READS, **tables.WRITES}.items():
        assert tables.attempt(what, call, objects) is not None, what
    assert tables.check_objects(objects)


@pytest.mark.slow("32 tables that somebody has changed, with all that a user does with them")
def test_a_table_that_somebody_has_changed_is_read_or_refused() -> None:
    results = [tables.check(b"%d" % number) for number in range(32)]
    assert any(it is None for it in results)
    assert any(it is not None for it in results)


@pytest.mark.long
@pytest.mark.parametrize("start", range(100, 1300, 100))
def test_more_tables_that_somebody_has_changed_are_read_or_refused(start: int) -> None:
    for number in range(start, start + 100):
        tables.check(b"%d" % number)


def nothing(*args: Any) -> None:
    pass


HOLES: dict[str, tuple[object, str, Callable[..., object], int]] = {
    "rows of parts without a check": (parquet, "check_rows", nothing, 100),
}
"""What is put back, and the first number of a table that finds it."""


@pytest.mark.parametrize("hole", HOLES)
def test_the_changes_find(hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, name, old, number = HOLES[hole]
    monkeypatch.setattr(target, name, old)
    with pytest.raises(AssertionError, match=r"after changes of"):
        [tables.check(b"%d" % it) for it in range(number, number + 40)]
