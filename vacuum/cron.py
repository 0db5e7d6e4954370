"""Parses cron expressions of five fields, as cron(8) reads them. Pure."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger  # type: ignore[import-untyped]

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAY_RANGE = re.compile(rf"(\*|[0-7]|{'|'.join(_DAYS)})(?:-([0-7]|{'|'.join(_DAYS)}))?(?:/([1-7]))?")


def cron_trigger(cron: str, timezone: str, jitter_s: int = 0) -> CronTrigger:
    """The trigger of an expression. Raises ValueError if it is not a cron expression of five fields."""
    fields = cron.split()
    if len(fields) != 5:
        raise ValueError(f"{cron!r} has {len(fields)} fields; give minute, hour, day, month and day of the week")
    minute, hour, day, month, weekday = fields
    if day != "*" and weekday != "*":
        raise ValueError(
            f"{cron!r} restricts both the day and the day of the week, which crons read differently; "
            "write * for one of them"
        )
    return CronTrigger(
        minute=minute,
        hour=hour,
        day=day,
        month=month,
        day_of_week=_weekdays(weekday),
        timezone=ZoneInfo(timezone),
        jitter=jitter_s,
    )


def fire_times(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """The times of an expression from `after` on, without jitter, in UTC."""
    trigger = cron_trigger(cron, timezone)
    time = trigger.get_next_fire_time(None, after)
    while time:
        yield time.astimezone(UTC)
        time = trigger.get_next_fire_time(time, time)


def _weekdays(field: str) -> str:
    """The days by their names: APScheduler counts the days of the week from Monday, cron from Sunday."""
    if field == "*":
        return field
    days: set[int] = set()
    for part in field.lower().split(","):
        match = _DAY_RANGE.fullmatch(part)
        if not match:
            raise ValueError(f"{part!r} is no day of the week; give 0-7 (0 and 7 are Sunday) or sun-sat")
        first = 0 if match[1] == "*" else _weekday(match[1])
        last = 6 if match[1] == "*" or (match[3] and not match[2]) else _weekday(match[2] or match[1])
        days |= {day % 7 for day in range(first, last + (7 if last < first else 0) + 1, int(match[3] or 1))}
    return ",".join(_DAYS[day] for day in sorted(days))


def _weekday(text: str) -> int:
    return int(text) if text.isdigit() else _DAYS.index(text)
