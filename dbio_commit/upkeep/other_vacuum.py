"""Signs that a DBIO writer's own vacuum has been at a table of ours, where it purges markers that no checkpoint tells.

Then files of transactions that nobody knows may have been committed. Readers miss them already; vacuum must not delete
them. Rules: PROTOCOL.md 10.3.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from dbio_commit.log.listing import read_turn
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import HISTORY
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log
from dbio_commit.store import Store

_REMEMBERED = HISTORY
"""How long a checkpoint tells of a transaction at least, also where no path of it is left."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What shows it. None may be left after a while, and then nothing does."""

    queues: Sequence[Entry] = ()
    """Lists of markers to delete, as DBIO's vacuum puts them, that came after the table's descriptor."""
    lost_turn: int | None = None
    """The last turn, if its transaction left no marker, and no checkpoint tells of it."""

    def __bool__(self) -> bool:
        return bool(self.queues or self.lost_turn)

    def in_words(self) -> list[str]:
        said: list[str] = []
        if self.queues:
            first = min(self.queues, key=lambda entry: entry.modified)
            said.append(
                f"lists of markers to delete that are younger than the table: {len(self.queues)}, first {first.path} "
                f"of {first.modified.isoformat(timespec='seconds')}"
            )
        if self.lost_turn:
            said.append(f"no marker is left of the transaction of turn {self.lost_turn}, and no checkpoint tells of it")
        return said


def find_signs(
    store: Store, log: Log, covered: Collection[str], *, table_id: str | None = None, now: datetime
) -> Signs:
    """Of a table whose newest checkpoint covers those transactions. Reads the last turn, and nothing else."""
    if log.descriptor is None:
        return Signs()
    since = log.descriptor.modified
    queues = [entry for entry in log.queues.values() if entry.modified > since]
    return Signs(queues, _lost_turn(store, log, covered, table_id, now))


def _lost_turn(store: Store, log: Log, covered: Collection[str], table_id: str | None, now: datetime) -> int | None:
    if not log.turns or log.turns[log.last_turn].modified < now - _REMEMBERED:
        return None
    turn = read_turn(store, log, table_id=table_id)
    if turn is None or any(turn.tid in it for it in (covered, log.started, log.committed)):
        return None
    came_since = any(store.stat_many([names.started(turn.tid), names.committed(turn.tid)]))
    return None if came_since else log.last_turn
