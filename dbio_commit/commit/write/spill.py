"""Rows that wait on the local disk until there are enough of them for a row group."""

import os
import tempfile
from collections.abc import Iterator
from typing import Self

import pyarrow as pa

from dbio_commit.data import encoding


class Spill:
    """Rows on the local disk that wait for more rows of their partition; in an unnamed file, which no crash leaves."""

    def __enter__(self) -> Self:
        directory = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]  # as Spark's own Python code does
        self._file = tempfile.TemporaryFile(dir=directory or None)
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Writes the batch, and returns its offset and length."""
        message = batch.serialize()
        offset = self._file.seek(0, os.SEEK_END)
        self._file.write(message)
        return offset, message.size

    def read(self, offset: int, length: int, schema: pa.Schema) -> pa.RecordBatch:
        self._file.seek(offset)
        return pa.ipc.read_record_batch(pa.py_buffer(self._file.read(length)), schema)


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
