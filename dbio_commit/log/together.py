"""Reads the states of several tables at one moment, in the requests of a read of each one alone (PROTOCOL.md 8.5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.errors import ObjectNotFoundError
from dbio_commit.log.joint import complete
from dbio_commit.log.listing import read_checkpoint, read_markers
from dbio_commit.log.settled import (
    Settled,
    list_committed,
    look_again,
    pause_s,
    read_in_brief,
    with_earlier_turns,
)
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, newest_of, parse_log, settle
from dbio_commit.protocol.markers.descriptor import Descriptor
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

SURE_S = 30.0
"""A marker is never purged within so many seconds after it has appeared: an erasure waits for 61 s, and vacuum longer
(PROTOCOL.md 10.4, 10.6). Older ones may be purged while the log is listed, which the second listing shows."""

_MOST_S = 86_400.0
"""A read that takes longer begins again: checkpoints forget transactions after 30 days."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What the listings of one table have shown."""

    store: Store
    first: Log
    descriptor: Descriptor
    second: Log
    third: Mapping[str, Entry]
    """Empty if there was no third listing."""

    @property
    def base(self) -> Mapping[str, Entry]:
        """The markers that were listed before the pause."""
        return {**self.second.committed, **self.first.committed}

    @property
    def has_news(self) -> bool:
        return not self.second.committed.keys() <= self.first.committed.keys()


def read_together(clock: Clock, began: Moment, listed: Sequence[tuple[Store, Log]]) -> list[Settled]:
    """The states of all these tables at one moment. `began` was before any of the logs was listed.

    If no second listing shows a commit that the first one lacks, the moment is between the two: after the last of the
    first listings, and before the first of the second ones. Otherwise it is the time of the newest commit marker that
    was listed. Each table is read by the newest checkpoint of its first listing: a later one may cover commits after
    the moment.

    Raises ObjectNotFoundError if others have deleted what was listed: list the logs again.
    """
    ask_each = listed[0][0].ask_each
    looks = ask_each(lambda it: _look(clock, began, *it), listed)
    logs = [it.first for it in looks]
    if any(it.has_news for it in looks):
        clock.sleep(max(pause_s(it.store, it.base) for it in looks if it.base))
        looks = ask_each(lambda it: replace(it, third=list_committed(it.store)), looks)
        logs = _counted(looks)
    newest = [it.second for it in looks]
    if not clock.is_within(began, SURE_S):  # markers may have come and have been purged meanwhile
        newest = ask_each(lambda it: parse_log(it.store.list_log(Kind.CHECKPOINT)), looks)
        if not clock.is_within(began, _MOST_S):
            raise ObjectNotFoundError(f"a day has passed since {listed[0][0].url} was listed; look again")
    states = ask_each(lambda it: _read(*it), [*zip(looks, logs, newest, strict=True)])
    return complete([it.store for it in looks], states, is_sure=lambda: clock.is_within(began, SURE_S))


def _look(clock: Clock, began: Moment, store: Store, first: Log) -> _Look:
    descriptor, second = look_again(store, clock, first, began)
    return _Look(store, first, descriptor, second, {})


def _counted(looks: Sequence[_Look]) -> list[Log]:
    """The logs with the markers that are not younger than the newest one, of any table, that was listed before."""
    newest = newest_of(*(it.base for it in looks))
    settled = [settle(it.base, it.third, newest) for it in looks]
    return [replace(it.first, committed=some, later=later) for it, (some, later) in zip(looks, settled, strict=True)]


def _read(look: _Look, log: Log, newest: Log) -> Settled:
    """The state of one table. `newest` has later checkpoints. They cover all that was purged since the first listing
    began."""
    store, table_id = look.store, look.descriptor.id
    checkpoint = read_checkpoint(store, log, table_id=table_id)
    log = with_earlier_turns(log, checkpoint, partial(read_in_brief, store, table_id=table_id))
    new = log.uncovered(checkpoint.covered)
    seen = look.second.committed.keys() | look.third.keys()  # listed after the checkpoint: it has not forgotten them
    if not new.keys() <= seen:
        raise ObjectNotFoundError(f"a commit marker of {store.url} was deleted after it was listed; look again")
    if newest.last_checkpoint > log.last_checkpoint:
        covered = read_checkpoint(store, replace(log, checkpoints=newest.checkpoints), table_id=table_id).covered
        if not covered <= {*checkpoint.covered, *look.first.committed, *seen}:
            raise ObjectNotFoundError(f"commit markers of {store.url} may have been purged since; look again")
    markers = read_markers(store, new.values(), scope=Scope.TABLE, table_id=table_id).refuse_gone()
    return Settled(log, look.descriptor, checkpoint, markers.warn_of_unkept(store, Scope.TABLE))
