"""Signs that the vacuum of a DBIO writer ran on a dbio table. It purges markers that are in no checkpoint.

Then files of unknown transactions may have been committed. Readers miss them already, but vacuum must not delete them.
Rules: PROTOCOL.md 10.3.
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
"""How long a checkpoint has a transaction at least, even if none of its paths is left."""


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs that were found. After some time, all signs may be gone."""

    queues: Sequence[Entry] = ()
    """DBIO's lists of markers to delete that are newer than the table's descriptor."""
    lost_turn: int | None = None
    """The last turn, if its transaction has no marker and is in no checkpoint."""

    def __bool__(self) -> bool:
        return bool(self.queues or self.lost_turn)

    def in_words(self) -> list[str]:
        words: list[str] = []
        if self.queues:
            first = min(self.queues, key=lambda entry: entry.modified)
            words.append(
                f"lists of markers to delete that are newer than the table: {len(self.queues)}, first {first.path} "
                f"of {first.modified.isoformat(timespec='seconds')}"
            )
        if self.lost_turn:
            words.append(f"the transaction of turn {self.lost_turn} has no marker, and is in no checkpoint")
        return words


def find_signs(
    store: Store, log: Log, covered: Collection[str], *, table_id: str | None = None, now: datetime
) -> Signs:
    """Looks for signs. `covered` are the transactions in the newest checkpoint. Reads only the last turn."""
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
