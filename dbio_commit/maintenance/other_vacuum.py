"""Finds signs that another tool's vacuum, that of a DBIO writer, has run on a dbio table.

Such a vacuum purges markers that no checkpoint covers. Then files of unknown transactions may have been committed.
Readers miss these files already, and dbio's vacuum must not delete them.
Rules: PROTOCOL.md 10.3.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from dbio_commit.log.listing import read_last_turn, read_turn
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import HISTORY
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log
from dbio_commit.store import Store

_REMEMBERED = HISTORY
"""How long a checkpoint keeps a transaction at least, even if none of its files is left."""


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs. They can disappear with time. Then nothing shows that another vacuum has run."""

    queues: Sequence[Entry] = ()
    """Lists of markers to delete, as DBIO's vacuum writes them, that are newer than the table's descriptor."""
    lost_turn: int | None = None
    """The last turn, if its transaction has no marker, and no checkpoint covers it."""

    def __bool__(self) -> bool:
        return bool(self.queues or self.lost_turn)

    def in_words(self) -> list[str]:
        found: list[str] = []
        if self.queues:
            first = min(self.queues, key=lambda entry: entry.modified)
            found.append(
                f"lists of markers to delete that are newer than the table: {len(self.queues)}, first {first.path} "
                f"of {first.modified.isoformat(timespec='seconds')}"
            )
        if self.lost_turn:
            found.append(f"no marker is left of the transaction of turn {self.lost_turn}, and no checkpoint covers it")
        return found


def find_signs(
    store: Store, log: Log, covered: Collection[str], *, table_id: str | None = None, now: datetime
) -> Signs:
    """The signs in a table whose newest checkpoint covers the given transactions. Reads only the last turn."""
    if log.descriptor is None:
        return Signs()
    since = log.descriptor.modified
    queues = [entry for entry in log.queues.values() if entry.modified > since]
    return Signs(queues, _lost_turn(store, log, covered, table_id, now))


def _lost_turn(store: Store, log: Log, covered: Collection[str], table_id: str | None, now: datetime) -> int | None:
    since = now - _REMEMBERED
    if not any(entry.modified >= since for entry in log.turns.values()):
        return None
    last = read_last_turn(store, log, table_id)
    turn = read_turn(store, log, last, table_id=table_id) if last and log.turns[last].modified >= since else None
    if turn is None or any(turn.tid in it for it in (covered, log.started, log.committed)):
        return None
    came_since = any(store.stat_many([names.started(turn.tid), names.committed(turn.tid)]))
    return None if came_since else last
