"""Writes a new data file: takes rows, makes row groups of some size, and returns statistics.

Tasks of Spark and compactions use it. The caller gives a stream to write to. How columns are encoded is in `encoding`.
"""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit.base.options import Compression
from dbio_commit.data import encoding
from dbio_commit.data.statistics import bounds
from dbio_commit.data.variants import without_nulls_inside
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo

_Data = TypeVar("_Data", pa.RecordBatch, pa.Table)

ROW_GROUP_ROWS = 256 * 1024
ROW_GROUP_BYTES = 64 * 1024 * 1024

SUFFIXES: Mapping[Compression, str] = {
    "snappy": ".snappy.parquet", "zstd": ".zstd.parquet", "gzip": ".gz.parquet", "none": ".parquet",
}  # fmt: skip
_LEVELS: Mapping[Compression, int] = {"zstd": 3, "gzip": 6}
"""Spark's compression levels; pyarrow's own are 1 and 9."""


def collect(batches: Iterable[pa.RecordBatch], *, rows: int, size_bytes: int) -> Iterator[pa.Table]:
    """Joins batches to tables of about this many rows or bytes, whichever limit comes first."""
    kept: list[pa.RecordBatch] = []
    kept_rows = kept_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        size = batch.nbytes  # this takes as long as all else here
        is_large = batch.num_rows >= 2 * rows or size >= 2 * size_bytes
        pieces = cut(batch, rows=rows, size_bytes=size_bytes) if is_large else [batch]
        for piece in pieces:
            kept.append(piece)
            kept_rows, kept_bytes = kept_rows + piece.num_rows, kept_bytes + size // len(pieces)
            if kept_rows >= rows or kept_bytes >= size_bytes:
                table, kept, kept_rows, kept_bytes = pa.Table.from_batches(kept), [], 0, 0
                yield table
                del table
    if kept:
        yield pa.Table.from_batches(kept)


def cut(data: _Data, *, rows: int, size_bytes: int) -> list[_Data]:
    """The data in even slices of at least this many rows or bytes, and less than twice as many."""
    parts = max(data.num_rows // rows, data.nbytes // size_bytes, 1)
    step = max(-(-data.num_rows // parts), 1)
    return [data.slice(start, step) for start in range(0, data.num_rows, step)]


def parquet_options(
    table: pa.Table, compression: Compression, dictionaries: Sequence[str], *, no_statistics: Set[str]
) -> dict[str, Any]:
    """The writer's options for a file that begins with this table. The named leaf columns get a dictionary, and the
    other named columns get no statistics."""
    return {
        "version": "2.6",
        "compression": compression,
        "compression_level": _LEVELS.get(compression),
        "use_dictionary": list(dictionaries),
        "write_batch_size": encoding.values_at_once(table),
        "write_statistics": encoding.statistics_columns(table.schema, no_statistics),
        "store_schema": False,  # other tools read Parquet's own types, and Spark its own metadata
        "store_decimal_as_integer": True,  # as Spark writes them
        "write_page_index": True,  # also as Spark writes it; filters skip pages with it
    }


class DataFileWriter:
    """One Parquet file while it is written. Each `write` makes a row group."""

    def __init__(
        self,
        stream: AbstractContextManager[BinaryIO],
        path: str,
        partition: names.Partition,
        schema: pa.Schema,
        no_statistics: frozenset[str],
        options: Mapping[str, Any],
    ) -> None:
        self._path, self._partition, self._schema = path, partition, encoding.decoded(schema)
        self._footers: list[pq.FileMetaData] = []
        with ExitStack() as stack:
            self._stream = stack.enter_context(stream)
            self._writer = pq.ParquetWriter(self._stream, schema, metadata_collector=self._footers, **options)
            self._context = stack.pop_all()
        self._nulls = [0] * len(schema)
        self.no_statistics = no_statistics
        self.rows = 0

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._stream.tell()

    def write(self, table: pa.Table) -> None:
        complete = without_nulls_inside(encoding.with_own_texts(table))
        self._writer.write_table(complete, row_group_size=table.num_rows)
        self._nulls = list(map(operator.add, self._nulls, encoding.count_nulls(table)))
        self.rows += table.num_rows

    def close(self, metadata: Mapping[str, str]) -> FileInfo:
        with self._context:
            self._writer.add_key_value_metadata(dict(metadata))
            self._writer.close()
            size = self.size
        statistics = bounds(self._schema, self._footers[0], nulls=self._nulls)
        return FileInfo(path=self._path, size=size, rows=self.rows, partition=self._partition, statistics=statistics)

    def discard(self, error: BaseException) -> None:
        self._writer.is_open = False  # otherwise it would write a footer when it is garbage-collected
        self._context.__exit__(type(error), error, error.__traceback__)
