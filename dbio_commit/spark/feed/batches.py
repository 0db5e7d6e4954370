"""Plans what each batch of a stream reads with `dbio_commit.feed.feed`, for the data source and for the catalog."""

from collections.abc import Mapping, Sequence
from typing import Any

from dbio_commit.base.errors import SchemaMismatchError
from dbio_commit.base.logs import get_logger
from dbio_commit.feed.feed import ALL, Feed
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Position, Start
from dbio_commit.protocol.history import FileChange
from dbio_commit.spark.feed import columns as feeds
from dbio_commit.spark.feed.options import StreamOptions
from dbio_commit.table import Table

_log = get_logger(__name__)


class Batches:
    """The batches of one stream."""

    def __init__(self, table: Table, options: StreamOptions, *, columns: Mapping[str, Any] | None) -> None:
        """`columns`: the table's columns when the query was planned; None if the query was planned with others."""
        self.options, self.columns = options, columns
        self._url = table.url
        self._follower = Follower(table.store, table.clock)
        self._last: Feed | None = None
        self._warned: set[str] = set()

    def recorded_columns(self) -> Mapping[str, Any] | None:
        """The columns that the table has now; None if no writer recorded them."""
        return self._follower.history().metadata.schema

    def newest(self) -> Position:
        """The position of a stream that has read everything."""
        return self._feed().newest()

    def next_end(
        self, at: Position | Start, *, unlimited: bool = False, target: Position | None = None
    ) -> Position | Start:
        """The position at which the next batch ends; `at` itself if nothing is new. Raises as `Feed.after` does.

        `unlimited`: the batch has all that is new. Only commits that a stream at `target` has read count as new.
        """
        self._last = feed = self._feed()
        end = feed.after(at, ALL if unlimited else self.options.most, target=target)
        self._warn(feed)
        return end

    def behind(self, end: Position | Start) -> dict[str, Any]:
        """The commits, files and bytes after this position that were known when the last batch was planned.

        Spark asks for this at each trigger. Listing the table again would double the requests of an idle stream.
        """
        lag = (self._last or self._feed()).lag(end)
        return {"behind": {"commits": lag.commits, "files": lag.files, "bytes": lag.size_bytes}}

    def changes(self, start: Position | Start, end: Position | Start) -> Sequence[FileChange]:
        """What the batch between two positions reads. Raises HistoryLostError, ChangedRowsError, InvalidInputError."""
        feed = self._feed()
        if isinstance(end, Start):
            return []
        changes = self._follower.without_deleted(feed, feed.between(start, end))
        feeds.refuse_other_types(self._follower.history(), changes, self.columns)
        self._warn(feed)
        return changes

    def _feed(self) -> Feed:
        history = self._follower.history()
        if self.columns is not None and history.metadata.schema != self.columns:
            raise columns_changed(self._url)
        return Feed(history, self.options.wanted)

    def _warn(self, feed: Feed) -> None:
        for sentence in feed.warnings:
            if sentence not in self._warned:
                self._warned.add(sentence)
                _log.warning("%s; failOnDataLoss is false, so the stream continues without them", sentence)


def columns_changed(url: str) -> SchemaMismatchError:
    """The error for a stream if the columns of the table have changed since the stream was planned."""
    return SchemaMismatchError(
        f"the columns of {url} have changed since this stream was planned; nothing is lost: load it again with "
        "spark.readStream, and start it with the same checkpoint to continue with the new columns"
    )
