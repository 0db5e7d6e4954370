"""A task of a write: writes its rows to new data files in a Python worker of Spark (`commit/write/files`).

A task does not decide which attempts win: the driver commits the files of the attempts whose results arrive.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from dbio_commit.commit.transaction import Transaction
from dbio_commit.commit.write.files import FilesSpec, StoreSink, write_files
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.spark.session.worker import spare_imports
from dbio_commit.table import Table

RESULT_SCHEMA = "file string"
"""The schema of the result of `map_in_arrow`: a row for each file, as `encode_file_info` writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec(FilesSpec):
    """What every task of a write needs. It travels to the workers by pickle, with the credentials of the table."""

    table: Table

    def resume(self) -> Transaction:
        """The transaction, in another process than the one that began it."""
        return self.table.resume(self.terms)


def run_task(spec: TaskSpec, batches: Iterable[pa.RecordBatch]) -> list[FileInfo]:
    """`write_files` in a worker, with the numbers of the task attempt that Spark runs there."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "runs in Spark's workers only"
    task, attempt = context.partitionId(), context.taskAttemptId()
    sink = StoreSink(spec.table.store, spec.table.clock, spec.terms)
    files = write_files(spec, batches, task=task, attempt=attempt, files=sink)
    spare_imports("write")
    return files


def map_in_arrow(
    spec: TaskSpec, unpack: Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`run_task` for DataFrame.mapInArrow: writes the batches that `unpack` yields; the result has RESULT_SCHEMA."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        infos = run_task(spec, unpack(batches))
        yield pa.record_batch([pa.array(map(encode_file_info, infos), pa.string())], names=["file"])

    return write


def encode_file_info(info: FileInfo) -> str:
    return msgspec.json.encode(info).decode()


def decode_file_info(text: str) -> FileInfo:
    return msgspec.json.decode(text, type=FileInfo)


def commit_files(
    transaction: Transaction,
    files: Iterable[str],
    schema: Mapping[str, Any] | None,
    *,
    metrics: Mapping[str, int] | None = None,
) -> Commit:
    """Commits the files of the winning attempts, given as `encode_file_info` writes them.

    `schema`: the table's columns after the commit.
    """
    transaction.add(map(decode_file_info, files), looked_at=True)
    return transaction.commit(schema=schema, metrics=metrics)


def abort_files(transaction: Transaction, files: Iterable[str]) -> None:
    """Aborts the transaction and deletes these files. Vacuum deletes files of tasks that are still running."""
    transaction.add(map(decode_file_info, files), looked_at=True)
    transaction.abort()
