"""Reports for users: how far a stream is behind, by its checkpoint, and which files each commit added and removed."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError
from dbio_commit.base.shown import Shown
from dbio_commit.feed.feed import Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Position, Start, decode_position
from dbio_commit.protocol.as_of import parse_time, parse_utc_time
from dbio_commit.protocol.commits import Decided, count_rows
from dbio_commit.protocol.history import FileChange, History
from dbio_commit.protocol.names import is_tid
from dbio_commit.store import Store

# --- changes by commit --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommitChanges(Shown):
    """What one commit added and removed."""

    tid: str
    """The id of its transaction."""
    timestamp: datetime
    """When it was committed, by the store's clock."""
    operation: str
    """What it did, as `Commit.operation`."""
    inserted: Sequence[str]
    """The files whose rows were added; paths relative to the root of the table."""
    deleted: Sequence[str]
    """The files whose rows were removed; paths relative to the root of the table."""
    inserted_rows: int | None
    """How many rows were added; None if a writer did not record it."""
    deleted_rows: int | None
    """How many rows were removed; None if a writer did not record it."""
    recorded: Sequence[str] = ()
    """The files that record, row by row, what the commit changed. Such a commit may also have updated rows."""
    updated_rows: int | None = 0
    """How many rows were updated; None if a writer did not record it."""


def list_changes(
    store: Store, clock: Clock, start: datetime | str, end: datetime | str | None = None
) -> list[CommitChanges]:
    """The changes of the commits from `start` to `end`, inclusive, oldest first. Both are times or tids.

    Raises HistoryLostError if vacuum has deleted what is needed, and InvalidInputError.
    """
    history = Follower(store, clock).history()
    span = Feed(history, FeedOptions(is_stream=False, changes=True)).span(start_at(start), end_at(end))
    return [_changes(history, commit, changes) for commit, changes in span]


def start_at(start: datetime | str) -> Start:
    """The start: a time, or the commit with a tid. Raises InvalidInputError."""
    if isinstance(start, str) and is_tid(start):
        return Start(begin="tid", tid=start)
    return Start(begin="time", time=parse_utc_time(start, what="start"))


def end_at(end: datetime | str | None) -> datetime | str | None:
    """The end: a time, or the commit with a tid; None is now. Raises InvalidInputError."""
    return end if end is None or (isinstance(end, str) and is_tid(end)) else parse_time(end, what="end")


def _changes(history: History, commit: Decided, changes: Sequence[FileChange]) -> CommitChanges:
    came = [change.file.path for change in changes if change.kind == "insert"]
    went = [change.file.path for change in changes if change.kind == "delete"]
    info = commit.marker.dbio_commit
    counts = info.metrics if info and commit.marker.is_recorded else None
    known = history.rows(commit, changes) if counts is None else {}
    return CommitChanges(
        tid=commit.tid,
        timestamp=commit.modified,
        operation=info.operation if info else "unknown",
        inserted=came,
        deleted=went,
        inserted_rows=count_rows(came, known) if counts is None else _rows_of(counts, "Inserted"),
        deleted_rows=count_rows(went, known) if counts is None else _rows_of(counts, "Deleted"),
        recorded=[change.file.path for change in changes if change.kind == "recorded"],
        updated_rows=0 if counts is None else _rows_of(counts, "Updated"),
    )


def _rows_of(metrics: Mapping[str, int], what: str) -> int:
    """The rows in the metrics of a merge or of another rewrite."""
    return metrics.get(f"numTargetRows{what}", metrics.get(f"num{what}Rows", 0))


# --- how far a stream is behind -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StreamLag(Shown):
    """How far a stream that reads a table is behind it."""

    query: str
    """The id of the query, from its checkpoint."""
    batch: int | None
    """The number of the last batch that it has finished; None before the first."""
    commits: int
    """How many commits it has not read."""
    files: int
    """How many files it has not read."""
    size_bytes: int
    """The size of these files, in bytes."""
    oldest: datetime | None
    """When the oldest commit that it has not read was committed; None if there is none."""


def find_lag(store: Store, clock: Clock, checkpoint: Store) -> StreamLag:
    """How far the stream with this checkpoint of Spark is behind the table.

    Raises InvalidInputError if it is no checkpoint of a stream of this table, and HistoryLostError.
    """
    history = Follower(store, clock).history()
    query = _read_query(checkpoint)
    batch = max(_numbers(checkpoint, "commits"), default=None)
    at = Start() if batch is None else _read_offset(checkpoint, batch, history)
    lag = Feed(history, FeedOptions(fail_on_data_loss=False)).lag(at)
    return StreamLag(
        query=query,
        batch=batch,
        commits=lag.commits,
        files=lag.files,
        size_bytes=lag.size_bytes,
        oldest=lag.oldest,
    )


def _read_query(checkpoint: Store) -> str:
    with suppress(ObjectNotFoundError, ValueError, TypeError, KeyError):
        return str(json.loads(checkpoint.get("metadata"))["id"])
    raise InvalidInputError(
        f"{checkpoint.url} is no checkpoint of a query of Spark's: it has no metadata; give the checkpointLocation"
    )


def _numbers(checkpoint: Store, directory: str) -> list[int]:
    names = (entry.path.rpartition("/")[2] for entry in checkpoint.list_directory(directory).entries)
    return [int(name) for name in names if name.isascii() and name.isdigit()]


def _read_offset(checkpoint: Store, batch: int, history: History) -> Position | Start:
    for line in checkpoint.get(f"offsets/{batch}").decode().splitlines():
        offset: Any = None
        with suppress(ValueError):
            offset = json.loads(line)
        if isinstance(offset, dict) and offset.get("table") == history.origin.table_id:
            return decode_position(offset)
    raise InvalidInputError(
        f"batch {batch} of {checkpoint.url} has read nothing of {history.url}: it is the checkpoint of another stream, "
        "or the table was made anew since"
    )
