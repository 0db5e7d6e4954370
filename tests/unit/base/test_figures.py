"""Sizes and times as texts: the same as the library that the command line uses."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.filesize import decimal

from dbio_commit.base.figures import age_text, count_text, size_text, time_text


@given(st.integers(0, 10**21))
@example(1)
@example(999)
@example(1000)
@example(999_999)
@example(10**6)
def test_a_size_is_written_as_the_library_of_the_terminal_writes_it(size: int) -> None:
    assert size_text(size) == decimal(size)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (3600, "1 h"), (47 * 3600, "47 h"), (48 * 3600, "2 days")],
)
def test_an_age_has_one_unit(seconds: int, text: str) -> None:
    assert age_text(timedelta(seconds=seconds)) == text


def test_a_time_is_rounded_up_so_that_it_includes_what_happened_then() -> None:
    assert time_text(datetime(2026, 11, 20, 1, 2, 3, 1, tzinfo=UTC)) == "2026-11-20 01:02:04Z"
    assert time_text(datetime(2026, 11, 20, 1, 2, 3, tzinfo=UTC)) == "2026-11-20 01:02:03Z"


def test_a_count_has_its_plural() -> None:
    assert [count_text(number, "entry", "entries") for number in (0, 1, 1234)] == [
        "0 entries",
        "1 entry",
        "1,234 entries",
    ]
    assert count_text(2, "file") == "2 files"
