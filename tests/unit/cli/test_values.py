"""Ages and times as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from dbio_commit.base.figures import age_text, time_text


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=-3), "0 s"),
        (timedelta(seconds=59.9), "59 s"),
        (timedelta(minutes=3, seconds=20), "3 min"),
        (timedelta(hours=47, minutes=59), "47 h"),
        (timedelta(days=2), "2 days"),
    ],
)
def test_ages_are_in_the_largest_unit_that_says_enough(age: timedelta, text: str) -> None:
    assert age_text(age) == text


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC), "2026-11-20 10:00:00Z"),
        (datetime(2026, 11, 20, 10, 59, 59, 1, tzinfo=UTC), "2026-11-20 11:00:00Z"),
    ],
)
def test_a_time_that_is_shown_is_never_before_what_happened_at_it(at: datetime, text: str) -> None:
    assert time_text(at) == text
    assert datetime.fromisoformat(text) >= at
