"""Where time and chance come from, so that tests can bring their own."""

import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from uuid import uuid4


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point in time that another process, or another machine, can measure from."""

    wall: datetime
    """The time of day, aware."""
    monotonic_s: float
    """By the machine's monotonic clock: says something on that machine only, until it is started again."""
    boot: str
    """Which machine that was, since which start."""


class Clock:
    """The machine's own."""

    def now(self) -> datetime:
        """The time of day, aware UTC. May jump."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment; never jumps, and is the same in all processes of this machine."""
        # CLOCK_BOOTTIME goes on while the machine is suspended: a transaction must not outlive its bound asleep.
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def boot(self) -> str:
        """Tells this start of this machine from all others."""
        return _boot()

    def moment(self) -> Moment:
        """Now, for `seconds_since`."""
        return Moment(wall=self.now(), monotonic_s=self.monotonic(), boot=self.boot())

    def seconds_since(self, moment: Moment) -> float:
        """How long ago that was, by the monotonic clock.

        Where it was before this machine was started, or on another, only the time of day tells.
        """
        if self.boot() == moment.boot:
            return self.monotonic() - moment.monotonic_s
        return (self.now() - moment.wall).total_seconds()

    def is_within(self, moment: Moment, duration_s: float) -> bool:
        """Whether it was surely less than so long ago: both clocks say so, of which either may have stood still."""
        wall_s = (self.now() - moment.wall).total_seconds()
        return self.boot() == moment.boot and abs(wall_s) <= duration_s and self.seconds_since(moment) <= duration_s

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)

    def random_bits(self, bits: int) -> int:
        return secrets.randbits(bits)


@cache
def _boot() -> str:
    """Where the system does not tell, each process counts as a machine of its own."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return uuid4().hex


SYSTEM_CLOCK = Clock()
