"""Where time and chance come from, so that tests can bring their own."""

import secrets
import time
from datetime import UTC, datetime


class Clock:
    """The machine's own."""

    def now(self) -> datetime:
        """The time of day, aware UTC. May jump."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment; never jumps, and is the same in all processes of this machine."""
        # CLOCK_BOOTTIME goes on while the machine is suspended: a transaction must not outlive its bound asleep.
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)

    def random_bits(self, bits: int) -> int:
        return secrets.randbits(bits)


SYSTEM_CLOCK = Clock()
