"""What partitions and statistics prove of a new file's rows, and how settings say what rows must be like.

Rules: PROTOCOL.md 6.2, 7.3, 9.8.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.conditions.proof import find_unproven, refuse_unprovable
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.protocol.settings import MAX_NAME, check_changes

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("n", "integer"), ("kind", "string"), ("x", "double"), ("day", "date"))
    ],
}
Values = Sequence[int | None]


def a_file(values: Values, **others: Any) -> FileInfo:
    """With these values in its column `n`, and what a writer tells of them."""
    known = [value for value in values if value is not None]
    nulls = len(values) - len(known)
    statistics = {"n": Bounds(min(known, default=None), max(known, default=None), nulls)}
    return FileInfo(path="f", size=1, rows=len(values), statistics=statistics, **others)


def proves(file: FileInfo, **settings: str) -> bool:
    named = {name.replace("__", "."): text for name, text in settings.items()}
    return not find_unproven([file], Constraints.of(named), SCHEMA)


def holds(condition: str, value: int | None) -> bool:
    """As SQL has it, where null is not true."""
    n: Any = value
    match condition:
        case "n IS NULL":
            return n is None
        case "n IS NOT NULL":
            return n is not None
        case "n IS NULL OR n > 2":
            return n is None or n > 2
        case "NOT (n <= 2 OR n = 5)":
            return n is not None and n > 2 and n != 5
        case "n IN (1, 2)":
            return n in (1, 2)
        case "n NOT IN (1, 2)":
            return n is not None and n not in (1, 2)
        case "n BETWEEN 1 AND 3":
            return n is not None and 1 <= n <= 3
    operator, bound = condition.split()[1:]
    compared = {"<": n is not None and n < int(bound), ">=": n is not None and n >= int(bound), "<>": n != int(bound)}
    return n is not None and bool(compared[operator])


CONDITIONS = st.sampled_from(
    [
        *("n IS NULL", "n IS NOT NULL", "n IS NULL OR n > 2", "NOT (n <= 2 OR n = 5)"),
        *("n IN (1, 2)", "n NOT IN (1, 2)", "n BETWEEN 1 AND 3", "n < 3", "n >= 3", "n <> 3"),
    ]
)


@given(st.lists(st.none() | st.integers(0, 6), max_size=4), CONDITIONS)
def test_what_is_proven_holds_in_every_row(values: Values, condition: str) -> None:
    if proves(a_file(values), check__it=condition):
        assert all(holds(condition, value) for value in values)


@given(st.lists(st.none() | st.integers(0, 6), min_size=1, max_size=4))
def test_a_column_without_nulls_is_proven_to_be_so_and_no_other(values: Values) -> None:
    assert proves(a_file(values), not_null__N="true") == (None not in values)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 6))
def test_a_bound_that_all_values_keep_is_proven(values: Sequence[int], bound: int) -> None:
    assert proves(a_file(values), check__it=f"n >= {bound}") == (min(values) >= bound)
    assert proves(a_file(values), check__it=f"n >= {bound} AND n < 9") == (min(values) >= bound)


def test_a_file_without_rows_keeps_everything() -> None:
    assert proves(a_file([]), check__it="n > 100", not_null__kind="true", generated__n="1 + 1")


@pytest.mark.parametrize("told", [None, {}, {"kind": Bounds("a", "b", 0)}])
def test_nothing_is_proven_of_what_nobody_told(told: Any) -> None:
    file = FileInfo(path="f", size=1, rows=3, statistics=told)
    assert not proves(file, not_null__n="true")
    assert not proves(file, check__it="n > 0")


def test_bounds_alone_do_not_prove_that_there_is_no_null() -> None:
    file = FileInfo(path="f", size=1, rows=3, statistics={"n": Bounds(1, 5, None)})
    assert not proves(file, check__it="n > 0")
    assert proves(FileInfo(path="f", size=1, rows=3, statistics={"n": Bounds(1, 5, 0)}), check__it="n > 0")


def test_the_value_of_a_partition_counts_for_all_of_its_rows() -> None:
    file = a_file([1], partition={"day": "2026-11-20"})
    assert proves(file, check__it="day >= DATE'2026-11-01'", not_null__day="true")
    assert not proves(file, check__it="day >= DATE'2026-12-01'")
    assert not proves(a_file([1], partition={"day": None}), not_null__day="true")


@pytest.mark.parametrize(
    "settings",
    [
        {"generated.n": "1 + 1"},
        *({"check.a": sql} for sql in ("n % 2 = 0", "n > x", "nope >", "nope > 1", "n > 0 AND length(kind) > 3")),
    ],
)
def test_what_statistics_never_tell_is_refused_before_anything_is_written(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="which the statistics of files do not show; nothing was written"):
        refuse_unprovable(Constraints.of(settings), SCHEMA, where="it")


def test_what_statistics_may_tell_is_not_refused() -> None:
    settings = {"not_null.n": "true", "check.a": "n > 0", "check.b": "kind = 'a' OR kind LIKE 'b%'", "default.n": "1"}
    refuse_unprovable(Constraints.of(settings), SCHEMA, where="it")


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_say_what_rows_must_be_like() -> None:
    settings = {
        "check.a": "n > 0",
        "not_null.n": "true",
        "generated.day": "x",
        "default.kind": "'a'",
        "publish": "delta",
    }
    found = Constraints.of(settings)
    assert [it.says for it in found.each] == ["not_null.n", "generated.day (x)", "check.a (n > 0)"]
    assert found.filled == {"day", "kind"}
    assert Constraints.of({"generated.day": "x", "default.DAY": "y"}).defaults == {}
    assert not Constraints.of({"publish": "delta", "check": "n", "of_a_later_version.x": "1"})
    assert not Constraints.of(None)


def test_a_column_may_have_dots_in_its_name() -> None:
    assert Constraints.of({"not_null.a.b": "true"}).not_null == ("a.b",)


@pytest.mark.parametrize("name", ["check.", "check", "not_null.", "checks.a", ".a", f"check.{'x' * MAX_NAME}"])
def test_a_name_that_no_setting_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"no setting|at most 100 characters"):
        check_changes({name: "true"})


def test_what_a_setting_of_a_column_may_say() -> None:
    assert check_changes({"not_null.n": " True ", "check.a": " n > 0 "}) == {"not_null.n": "true", "check.a": "n > 0"}
    with pytest.raises(InvalidInputError, match="is true, or empty"):
        check_changes({"not_null.n": "no"})
    with pytest.raises(InvalidInputError, match="it has 4097 characters, and may have 4096"):
        check_changes({"check.a": "x" * 4097})
