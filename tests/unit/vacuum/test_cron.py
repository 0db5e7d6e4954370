"""When a cron expression is true."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vacuum.cron import fire_times

FRIDAY = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


def fires(cron: str, timezone: str = "UTC", *, after: datetime = FRIDAY) -> list[datetime]:
    return [*islice(fire_times(cron, timezone, after), 5)]


def weekdays(field: str) -> set[int]:
    """On which days of the week it fires; Sunday is 0, as in cron."""
    return {time.isoweekday() % 7 for time in islice(fire_times(f"0 0 * * {field}", "UTC", FRIDAY), 14)}


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("0", {0}),
        ("7", {0}),
        ("1-5", {1, 2, 3, 4, 5}),
        ("5-7", {5, 6, 0}),
        ("sun", {0}),
        ("Mon-Fri", {1, 2, 3, 4, 5}),
        ("fri-mon", {5, 6, 0, 1}),
        ("sat,1", {6, 1}),
        ("*/2", {0, 2, 4, 6}),
        ("1-5/2", {1, 3, 5}),
        ("3/2", {3, 5}),
        ("*", {0, 1, 2, 3, 4, 5, 6}),
    ],
)
def test_days_of_the_week_are_those_of_cron(field: str, days: set[int]) -> None:
    assert weekdays(field) == days


@given(st.sets(st.integers(0, 6), min_size=1))
def test_any_days_of_the_week_by_number(days: set[int]) -> None:
    assert weekdays(",".join(map(str, days))) == days


def test_an_expression_is_true_when_cron_says_so() -> None:
    assert fires("15,45 12-13 * * *")[:3] == [
        FRIDAY.replace(minute=45),
        FRIDAY.replace(hour=13, minute=15),
        FRIDAY.replace(hour=13, minute=45),
    ]
    assert fires("0 0 1 1 *")[0] == datetime(2027, 1, 1, tzinfo=UTC)


def test_an_expression_is_in_the_time_zone_over_the_change_of_the_clocks() -> None:
    zone = ZoneInfo("Europe/Berlin")
    found = fires("30 3 * * *", "Europe/Berlin", after=datetime(2026, 10, 24, tzinfo=zone))
    assert {time.astimezone(zone).strftime("%H:%M") for time in found} == {"03:30"}
    assert found[1] - found[0] == timedelta(hours=25)
