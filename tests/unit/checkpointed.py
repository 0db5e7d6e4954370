"""Tables with checkpoints, and bodies of checkpoints, for the tests of them; and others that act meanwhile.

Here a purge is done by hand, in the order of PROTOCOL.md 10.4; what vacuum purges, and when, is in its own tests.
"""

import gzip
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dbio_commit.commit.checkpoints import write_checkpoint
from dbio_commit.log.listing import read_checkpoint
from dbio_commit.protocol.log import parse_log
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests import builders
from tests.builders import NOW, columns, data
from tests.faults import calls_to, unwatched
from tests.writers import contents, live, stage, write_days

OLD = NOW - timedelta(days=90)


HEADER: dict[str, Any] = {
    "version": 1,
    "number": 7,
    "created": "2026-11-20T00:00:00Z",
    "commits": 1,
    "apps": {},
    "schemas": [],
    "schema_turn": 0,
}


LINE: dict[str, Any] = {"tid": "1", "modified": "2026-11-20T00:00:00Z", "marker": {"added": ["a"], "removed": []}}


def packed(*lines: Mapping[str, Any] | bytes) -> bytes:
    return gzip.compress(b"".join(it if isinstance(it, bytes) else json.dumps(it).encode() + b"\n" for it in lines))


def ours(**info: Any) -> dict[str, Any]:
    return {"version": 1, "operation": "append", "commit_id": "c", "timestamp": "2026-11-20T00:00:00Z", **info}


def line(added: Sequence[str] = (), removed: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {**LINE, "marker": {"added": list(added), "removed": list(removed)}, **more}


GOOD = packed(HEADER, LINE)


class World(builders.World):
    """A table to which commits are put by hand, long ago, and which is checkpointed and purged."""

    def __init__(self) -> None:
        super().__init__(at=OLD)

    def commit(
        self, tid: str, added: Sequence[str] = (), removed: Sequence[str] = (), *, at: datetime = OLD, **info: Any
    ) -> None:
        """All that a writer leaves."""
        self.start(tid, at=at)
        if info and info.get("operation") != "abort":
            info = {"files": {"size": [5] * len(added), "rows": [1] * len(added)}, **info}
        super().commit(tid, added, removed, at=at, **info)

    def checkpoint(self, gone: Collection[str] = (), history: timedelta = timedelta(days=30)) -> str | None:
        self.delete_many(list(gone))
        return write_checkpoint(self, self.clock, self.table().snapshot(), gone=gone, history=history)

    def purge(self) -> None:
        purge(self)


def purge(store: MemoryStore) -> None:
    """All that vacuum may ever take because of the newest checkpoint, in its order."""
    with unwatched(store):
        log = parse_log(store.list_log())
        covered = read_checkpoint(store, log).covered
        store.delete_many([entry.path for tid, entry in log.started.items() if tid in covered])
        store.delete_many([entry.path for tid, entry in log.committed.items() if tid in covered])
        store.delete_many([entry.path for number, entry in log.checkpoints.items() if number < log.last_checkpoint])
        store.delete_many([entry.path for number, entry in log.turns.items() if number < log.last_turn])


def busy_table(store: MemoryStore | None = None) -> Table:
    """All kinds of commits to a table that is partitioned by day, an hour apart; an abort, and a pending one."""
    clock = ManualClock()
    store = store or MemoryStore()
    store._clock = clock
    table = Table.over(store, clock)
    write_days(table, d1=b"1", d2=b"2")
    later(table)
    with table.begin(app=("job", 7)) as transaction:
        stage(table, transaction, b"app", {"day": "d3"})
        transaction.commit(columns("a", "b"))
    later(table)
    aborted = table.begin()
    stage(table, aborted, b"aborted", {"day": "d1"})
    aborted.abort()
    store.put(f"day=d1/{data(aborted.tid)}", b"zombie")
    later(table)
    write_days(table, "overwrite_partitions", d1=b"1 again")
    later(table)
    rewrite = table.begin("rewrite")
    rewrite.remove(path for path in live(table) if "day=d3" in path)
    stage(table, rewrite, b"app, rewritten", {"day": "d3"})
    rewrite.commit()
    later(table)
    stage(table, table.begin(), b"pending", {"day": "d2"})
    later(table)
    return table


def later(table: Table) -> None:
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(timedelta(hours=1))


def memory(table: Table) -> MemoryStore:
    assert isinstance(table.store, MemoryStore)
    return table.store


def tid_of(table: Table, operation: str) -> str:
    """Of the only transaction of the kind; looked up unwatched."""
    with unwatched(memory(table)):
        snapshot = table.snapshot()
        told: dict[str, str] = {c.tid: c.marker.dbio_commit.operation for c in snapshot.decided if c.marker.dbio_commit}
        told |= {tid: "pending" for tid in snapshot.log.started if tid not in told}
    [tid] = [tid for tid, told_operation in told.items() if told_operation == operation]
    return tid


def outcome(table: Table) -> tuple[object, ...]:
    snapshot = table.snapshot()
    history = [(commit.operation, commit.added_files, commit.removed_files) for commit in snapshot.history()]
    return contents(table), history, snapshot.schema, dict(snapshot.app_versions)


def checkpointed(table: Table) -> None:
    """All of the log that can be is in a checkpoint, and nowhere else."""
    table.checkpoint()
    purge(memory(table))


def append_once(table: Table, version: int, schema: Mapping[str, Any] | None = None) -> None:
    transaction = table.begin(app=("job", version))
    stage(table, transaction, b"once", {"day": "d5"})
    assert transaction.commit(schema or columns("a", "b")).skipped == (version <= 7)


@dataclass
class Interruptions:
    """Before its nth call to the store, the one at work is overtaken by others."""

    store: MemoryStore
    actions: Sequence[tuple[int, Callable[[], object]]]
    calls: int = 0

    def __post_init__(self) -> None:
        self.store.before = self._before

    def _before(self, operation: str, path: str) -> None:
        call, self.calls = self.calls, self.calls + 1
        for at, action in self.actions:
            if at == call:
                with unwatched(self.store):
                    action()


def pairs(calls: int) -> Iterator[tuple[int, int]]:
    """Of (first, second): at the same call, and ever further apart."""
    return ((first, first + apart) for apart in (0, 1, 2, 3, 5, 8, 13) for first in range(calls - apart))


def count_calls(make: Callable[[], Table], work: Callable[[Table], object]) -> int:
    table = make()
    with calls_to(memory(table)) as calls:
        work(table)
    return len(calls)
