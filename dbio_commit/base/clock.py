"""The source of time and of random numbers, which tests replace."""

import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from uuid import uuid4

FIRST_YEAR, LAST_YEAR = 1900, 8999


def is_of_a_clock(time: datetime) -> bool:
    """Whether a clock can show this time: a year from FIRST_YEAR to LAST_YEAR. A century may be added or subtracted."""
    return FIRST_YEAR <= time.year <= LAST_YEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point in time from which another process, or another machine, can measure."""

    wall: datetime
    """The time of day, aware."""
    monotonic_s: float
    """By the machine's monotonic clock: valid only on that machine, until it is started again."""
    boot: str
    """Identifies the machine, and its last start."""


class Clock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """The time of day, aware UTC. May jump."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment; never jumps, and is the same in all processes of this machine."""
        # CLOCK_BOOTTIME counts while the machine is suspended, so that a transaction's time limit includes that time.
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def boot(self) -> str:
        """Identifies this start of this machine."""
        return _boot()

    def moment(self) -> Moment:
        """Now, for `seconds_since` and `is_within`."""
        return Moment(wall=self.now(), monotonic_s=self.monotonic(), boot=self.boot())

    def seconds_since(self, moment: Moment) -> float:
        """How long ago the moment was, by the monotonic clock.

        A moment on another machine, or before this machine was started, is compared by the time of day.
        """
        if self.boot() == moment.boot:
            return self.monotonic() - moment.monotonic_s
        return (self.now() - moment.wall).total_seconds()

    def is_within(self, moment: Moment, duration_s: float) -> bool:
        """Whether at most `duration_s` have passed, by both clocks: one may have stopped. False after a restart."""
        wall_s = (self.now() - moment.wall).total_seconds()
        return self.boot() == moment.boot and abs(wall_s) <= duration_s and self.seconds_since(moment) <= duration_s

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)

    def random_bits(self, bits: int) -> int:
        return secrets.randbits(bits)


@cache
def _boot() -> str:
    """This start's id. Without one, each process counts as a machine of its own."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return uuid4().hex


SYSTEM_CLOCK = Clock()
