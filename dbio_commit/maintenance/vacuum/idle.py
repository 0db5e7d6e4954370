"""Decides when a table needs no vacuum: its log is as the last vacuum found it, and nothing is due since. Pure.

A vacuum that changes nothing would change nothing again, until the log changes or an object becomes old enough. That
time follows from what the vacuum saw. The next whole vacuum, at most `WHOLE_LOOK` later, finds what appears outside of
the log (docs/adr/0101).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log

if TYPE_CHECKING:
    from dbio_commit.log.snapshot import Snapshot

WHOLE_LOOK = timedelta(days=7)
"""How long after a vacuum that found nothing to do the next one lists the whole table, in any case."""


class Idle(NamedTuple):
    """A table in which a vacuum found nothing to do."""

    snapshot: "Snapshot"
    due: datetime | None
    """The time until which nothing becomes due in this state. May be too early. None if nothing waits for its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLook:
    """What is kept of a vacuum that found nothing to do, to see whether the next one would."""

    key: str
    """Identifies the table and all that the vacuum depended on besides the table, such as its options."""
    log: str
    """The digest of the log."""
    at: datetime
    """When the vacuum began, by the clock of its machine."""
    due: datetime
    """When the next whole vacuum is due, even if the log stays as it is."""

    @classmethod
    def of(cls, idle: Idle, *, key: str, at: datetime) -> "LastLook":
        latest = at + WHOLE_LOOK
        return cls(key=key, log=digest_of(idle.snapshot.log), at=at, due=min(idle.due or latest, latest))

    def may_hold(self, *, key: str, now: datetime) -> bool:
        """Whether no vacuum is due if the log is the same. False if the clock was set back."""
        return self.key == key and self.at <= now < self.due


def digest_of(log: Log) -> str:
    """A digest that is equal for logs whose objects have the same names, sizes and times."""
    found = sorted((entry.path, entry.size, entry.modified.isoformat()) for entry in each_entry(log))
    return sha256(repr(found).encode(errors="surrogatepass")).hexdigest()


def each_entry(log: Log) -> Iterator[Entry]:
    """All objects of the log."""
    yield from filter(None, (log.descriptor, log.dropped))
    for numbered in (log.checkpoints, log.refusals, log.turns, log.purges):
        yield from numbered.values()
    for named in (log.started, log.committed, log.later, log.queues, log.clocks, log.parts):
        yield from named.values()
