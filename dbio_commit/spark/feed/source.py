"""The stream source: what `spark.readStream.format("dbio")` calls. Needs Spark 4.2, whose sources can limit a batch.

A process of Spark's keeps a reader while a query runs. Only `read` runs in the workers. What a batch has is decided by
`dbio_commit.feed.feed`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from dbio_commit.base.errors import SchemaMismatchError
from dbio_commit.base.logs import get_logger
from dbio_commit.feed.feed import ALL, Feed
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Position, Start, decode_position, encode_position
from dbio_commit.protocol.history import Change
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.feed import columns as feeds
from dbio_commit.spark.feed.options import StreamOptions
from dbio_commit.spark.read.scan import ReadSpec, group_files, read_files
from dbio_commit.table import Table

_GROUP_BYTES, _MOST_GROUPS, _FEW = 32 * 1024 * 1024, 64, 8

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Group(InputPartition):
    """The files that one task reads."""

    files: Sequence[DataFile]


class DbioStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Where a stream is, and what it reads next. Spark's offsets are `Position`s as JSON."""

    def __init__(
        self, table: Table, spec: ReadSpec, options: StreamOptions, *, columns: Mapping[str, Any] | None
    ) -> None:
        """`columns`: those of the table when the query was planned; None if the query was planned with others."""
        self._spec, self._options, self._columns = spec, options, columns
        self._url = table.url
        self._follower = Follower(table.store, table.clock)
        self._target: Position | None = None
        self._end: Position | Start = options.start
        self._last: Feed | None = None
        self._warned: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """What the workers need."""
        return {"_spec": self._spec}

    def initialOffset(self) -> dict[str, Any]:
        return encode_position(self._options.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.most
        return ReadMaxFiles(most.files) if most.files else ReadMaxBytes(most.size_bytes or 0)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._feed().newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._last = feed = self._feed()
        at = decode_position(start)
        most = ALL if isinstance(limit, ReadAllAvailable) else self._options.most
        self._end = feed.after(at, most, target=self._target)
        self._warn(feed)
        return start if self._end == at else encode_position(self._end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the stream will be behind after the planned batch, by what was known when the batch was planned.

        Spark calls this at each trigger: to list the table again would double the requests of an idle stream.
        """
        lag = (self._last or self._feed()).lag(self._end)
        return {"behind": {"commits": lag.commits, "files": lag.files, "bytes": lag.size_bytes}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        feed, stop = self._feed(), decode_position(end)
        if isinstance(stop, Start):
            return []
        changes = feed.between(decode_position(start), stop)
        changes = self._follower.without_deleted(feed, changes)
        feeds.refuse_other_types(self._follower.history(), changes, self._columns)
        self._warn(feed)
        return [Group(group) for group in _groups([self._file_of(change) for change in changes])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Group)
        return read_files(self._spec, partition.files)

    def _file_of(self, change: Change) -> DataFile:
        return feeds.as_partition(change) if self._options.wanted.changes else change.file

    def commit(self, end: dict[str, Any]) -> None:
        """Spark keeps the offset: nothing to do."""

    def stop(self) -> None:
        """Nothing is open: nothing to do."""

    def _feed(self) -> Feed:
        history = self._follower.history()
        if self._columns is not None and history.metadata.schema != self._columns:
            raise SchemaMismatchError(
                f"the columns of {self._url} have changed since this stream was planned; nothing is lost: load it "
                "again with spark.readStream, and start it with the same checkpoint to continue with the new columns"
            )
        return Feed(history, self._options.wanted)

    def _warn(self, feed: Feed) -> None:
        for sentence in feed.warnings:
            if sentence not in self._warned:
                self._warned.add(sentence)
                _log.warning("%s; failOnDataLoss is false, so the stream continues without them", sentence)


class FileLister(DbioStreamReader):
    """Gives the names of the files in the place of their rows."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Group)
        yield pa.record_batch([pa.array([json.dumps(file) for file in partition.files])], names=["file"])

    def _file_of(self, change: Change) -> DataFile:
        return feeds.as_partition(change)


def _groups(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """The files of each task."""
    if not files:
        return []
    size = sum(max(file.size, 0) for file in files)
    return group_files(files, min(_MOST_GROUPS, max(size // _GROUP_BYTES, min(len(files), _FEW))))
