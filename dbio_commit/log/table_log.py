"""Reads the states and the history of a table by its log, as it was listed (PROTOCOL.md 8)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.errors import TableNotFoundError
from dbio_commit.log.listing import DecodeCheckpoint, read_checkpoint, read_descriptor, refuse_dropped, until_quiet
from dbio_commit.log.seen import remember_state
from dbio_commit.log.settled import Settled, read_settled
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.table_state import table_history, table_snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import AsOf
from dbio_commit.protocol.history import History
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TableLog:
    """A table with a descriptor, by its log as it was listed."""

    scope: ClassVar[Scope] = Scope.TABLE

    store: Store
    clock: Clock
    log: Log
    looked: Moment | None = None
    """A moment before the log was listed."""
    passing_over: Collection[int] = ()
    """The numbers of checkpoints that are left out, since they cannot be read."""
    base: Checkpoint | None = None
    """Takes the place of the newest checkpoint."""

    def snapshot(self, *, as_of: AsOf = None, ignore_corrupt: bool = False) -> Snapshot:
        """The state now, or an earlier one. Raises ObjectNotFoundError if vacuum purged what was listed: list it
        again."""
        settled = self.settled()
        found = table_snapshot(self.store, settled, as_of=as_of, ignore_corrupt=ignore_corrupt)
        if self.looked and as_of is None and not ignore_corrupt:
            remember_state(self.store, self.clock, settled, found.metadata, self.looked)
        return found

    def settled(self, decode: DecodeCheckpoint | None = None) -> Settled:
        """The whole log as one state, for a snapshot and for callers that need all of it. `decode`: see
        `read_checkpoint`."""
        passing_over, base = self.passing_over, self.base
        return read_settled(
            self.store,
            self.clock,
            self.log,
            passing_over=passing_over,
            base=base,
            decode=decode,
            looked=self.looked,
        )

    def history(self, *, before: History | None = None) -> History:
        """Every commit that the log and its checkpoint still hold, for readers that go through them one by one.

        `before` is an earlier history: what it has read of a large table need not be read again.
        """
        return table_history(self.store, self.settled(), now=self.clock.now(), before=before)

    def checkpoint(self) -> Checkpoint:
        return read_checkpoint(self.store, self.log, table_id=read_descriptor(self.store, self.log).id)

    def logs(self) -> tuple[Mapping[str, Log], Checkpoint]:
        """The log, by the directory that it decides about, and the checkpoint that covers a part of it."""
        return {"": self.log}, self.checkpoint()


def table_now(store: Store, clock: Clock, read: Callable[[TableLog], _T]) -> _T:
    """The result of `read` for the log of the table as it is listed now. Raises TableNotFoundError."""

    def once() -> _T:
        looked = clock.moment()
        log = parse_log(store.list_log())
        refuse_dropped(store, log)
        if log.descriptor is None:
            raise TableNotFoundError(f"{store.url_of(names.DESCRIPTOR)} has gone: the table was deleted; begin again")
        return read(TableLog(store, clock, log, looked))

    return until_quiet(store, once)
