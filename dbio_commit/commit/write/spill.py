"""Keeps rows on the local disk until there are enough of them for a row group."""

import os
import tempfile
from collections.abc import Iterator
from typing import Self

import pyarrow as pa

from dbio_commit.base.forks import ProcessLock
from dbio_commit.data import encoding

_SIZE_BYTES = 8


def pack_batch(batch: pa.RecordBatch) -> bytes:
    """The batch in few bytes, without its schema."""
    message = batch.serialize()
    packed: bytes = pa.compress(message, "zstd", asbytes=True)
    return message.size.to_bytes(_SIZE_BYTES, "little") + packed


def unpack_batch(packed: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The batch that `pack_batch` was given."""
    size = int.from_bytes(packed[:_SIZE_BYTES], "little")
    return pa.ipc.read_record_batch(pa.decompress(packed[_SIZE_BYTES:], size, "zstd"), schema)


def spill_directory(named: str | None) -> str:
    """The directory for waiting rows: the one that the caller names, Spark's, or the system's."""
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]  # as Spark's own Python code does
    return named or directory or tempfile.gettempdir()


class Spill:
    """An unnamed file on the local disk, for rows that wait for more rows of their file or partition. No crash leaves
    it. Threads may read it side by side. `packs`: the rows are compressed, which takes time."""

    def __init__(self, directory: str | None = None, *, packs: bool = False) -> None:
        self._directory, self._packs, self._lock = spill_directory(directory), packs, ProcessLock()

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile(dir=self._directory)
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Writes the batch, and returns its offset and length."""
        message = pack_batch(batch) if self._packs else batch.serialize()
        offset = self._file.seek(0, os.SEEK_END)
        self._file.write(message)
        return offset, len(message)

    def read(self, offset: int, length: int, schema: pa.Schema) -> pa.RecordBatch:
        with self._lock:
            self._file.seek(offset)
            message = self._file.read(length)
        return unpack_batch(message, schema) if self._packs else pa.ipc.read_record_batch(pa.py_buffer(message), schema)


class Waiting:
    """The rows of one partition that wait on the disk."""

    def __init__(self) -> None:
        self.rows = self.size = 0
        self._places: list[tuple[int, int]] = []
        self._schema = pa.schema([])

    def add(self, table: pa.Table, spill: Spill) -> None:
        if not table.num_rows:
            return
        plain = encoding.coded_as(table, encoding.decoded(table.schema))  # one message holds no dictionary
        self.rows, self.size, self._schema = self.rows + plain.num_rows, self.size + plain.nbytes, table.schema
        self._places += [spill.write(batch) for batch in plain.to_batches()]

    def batches(self, spill: Spill) -> Iterator[pa.RecordBatch]:
        """The rows, not dictionary-encoded."""
        schema = encoding.decoded(self._schema)
        return (spill.read(offset, length, schema) for offset, length in self._places)

    def read(self, spill: Spill) -> list[pa.Table]:
        batches = [*self.batches(spill)]
        return [encoding.coded_as(pa.Table.from_batches(batches), self._schema)] if batches else []
