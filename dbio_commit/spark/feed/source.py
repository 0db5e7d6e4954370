"""The stream source: what `spark.readStream.format("dbio")` calls. Needs Spark 4.2, whose sources can limit a batch.

Spark keeps a reader in a process of its own while a query runs. Only `read` runs in the workers. `batches` decides what
a batch has.
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

from dbio_commit.feed.position import Position, Start, decode_position, encode_position
from dbio_commit.protocol.history import FileChange
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.feed import columns as feeds
from dbio_commit.spark.feed.batches import Batches
from dbio_commit.spark.feed.options import StreamOptions
from dbio_commit.spark.read.scan import ReadSpec, group_files, read_files
from dbio_commit.spark.session.worker import Travels
from dbio_commit.table import Table

_GROUP_BYTES, _MOST_GROUPS, _FEW = 32 * 1024 * 1024, 64, 8


@dataclass(frozen=True, slots=True)
class FileGroup(InputPartition):
    """The files that one task reads."""

    files: Sequence[DataFile]


class DbioStreamReader(Travels, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Where a stream is, and what it reads next. Spark's offsets are `Position`s as JSON."""

    def __init__(
        self, table: Table, spec: ReadSpec, options: StreamOptions, *, columns: Mapping[str, Any] | None
    ) -> None:
        """`columns` are as in `Batches`."""
        self._spec, self._options = spec, options
        self._batches = Batches(table, options, columns=columns)
        self._target: Position | None = None
        self._end: Position | Start = options.start

    def __getstate__(self) -> dict[str, Any]:
        """What the workers need."""
        return {"_spec": self._spec}

    def initialOffset(self) -> dict[str, Any]:
        return encode_position(self._options.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.most
        return ReadMaxFiles(most.files) if most.files else ReadMaxBytes(most.size_bytes or 0)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._batches.newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at = decode_position(start)
        self._end = self._batches.next_end(at, unlimited=isinstance(limit, ReadAllAvailable), target=self._target)
        return start if self._end == at else encode_position(self._end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._batches.behind(self._end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        changes = self._batches.changes(decode_position(start), decode_position(end))
        return [FileGroup(group) for group in _groups([self._file_of(change) for change in changes])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FileGroup)
        return read_files(self._spec, partition.files)

    def _file_of(self, change: FileChange) -> DataFile:
        return feeds.as_partition(change) if self._options.wanted.changes else change.file

    def commit(self, end: dict[str, Any]) -> None:
        """Spark keeps the offset: nothing to do."""

    def stop(self) -> None:
        """Nothing is open: nothing to do."""


class FileLister(DbioStreamReader):
    """Gives each file as a `DataFile` in JSON, instead of its rows."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FileGroup)
        yield pa.record_batch([pa.array([json.dumps(file) for file in partition.files])], names=["file"])

    def _file_of(self, change: FileChange) -> DataFile:
        return feeds.as_partition(change)


def _groups(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """The files of each task."""
    if not files:
        return []
    size = sum(max(file.size, 0) for file in files)
    return group_files(files, min(_MOST_GROUPS, max(size // _GROUP_BYTES, min(len(files), _FEW))))
