"""Follows a table's history, for callers that read it repeatedly: streams, change feeds, and reports on their lag."""

from collections.abc import Sequence
from datetime import datetime

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.feed.feed import Feed, FeedOptions
from dbio_commit.feed.position import Start
from dbio_commit.log.listing import refuse_dropped, until_quiet
from dbio_commit.log.opening import open_log
from dbio_commit.log.table_log import TableLog
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.history import FileChange, History
from dbio_commit.protocol.log import parse_log
from dbio_commit.store import Store

_FOLLOWED = "_c", "_d"
"""Prefixes of the names that show whether the history has changed: commit markers, checkpoints, descriptor and
tombstone."""


class Follower:
    """Reads the history of a table repeatedly. A call that finds nothing new takes one LIST, or two on Azure."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._seen: tuple[tuple[Entry | None, frozenset[str], int], History] | None = None

    def history(self) -> History:
        """The history. Raises TableNotFoundError, InvalidInputError if it is no dbio table, CorruptMarkerError,
        StoreError."""
        log = parse_log(self._store.list_log(*_FOLLOWED))
        refuse_dropped(self._store, log)
        # A marker that came and was purged meanwhile is covered by a newer checkpoint.
        listed = log.descriptor, frozenset(log.committed), log.last_checkpoint
        if self._seen is None or self._seen[0] != listed:
            self._seen = listed, until_quiet(self._store, self._read)  # has all that was listed
        return self._seen[1]

    def _read(self) -> History:
        found = open_log(self._store, self._clock)
        if isinstance(found, TableLog):
            return found.history(before=self._seen[1] if self._seen else None)
        raise InvalidInputError(
            f"{self._store.url} is no dbio table, and its markers record no history that can be followed; make it one "
            "with `dbio adopt`"
        )

    def changes(self, start: Start, end: datetime | str | None) -> tuple[History, list[FileChange]]:
        """The history, and what its commits changed, from a first to a last commit, inclusive.

        Raises HistoryLostError if one of their files does not exist any more, InvalidInputError, and as `history`.
        """
        history = self.history()
        feed = Feed(history, FeedOptions(is_stream=False, changes=True))
        found = [change for _, changes in feed.span(start, end) for change in changes]
        return history, self.without_deleted(feed, found)

    def without_deleted(self, feed: Feed, changes: Sequence[FileChange]) -> list[FileChange]:
        """The changes whose files still exist. Raises HistoryLostError for the others, as `Feed.lose` does."""
        doubtful = feed.doubtful(changes)
        found = self._store.stat_many(doubtful)
        gone = {path for path, entry in zip(doubtful, found, strict=True) if entry is None}
        if gone:
            feed.lose(
                f"{len(gone)} files of {self._store.url} were removed, and vacuumed, before they were read, first "
                f"{min(gone)}"
            )
        return [change for change in changes if change.file.path not in gone]
