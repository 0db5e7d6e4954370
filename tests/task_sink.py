"""A FileSink on a directory, which keeps account of what a task opens; and what the tests of the task writer share."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit.base.clock import SYSTEM_CLOCK
from dbio_commit.commit.request import Terms
from dbio_commit.commit.write.files import write_files
from dbio_commit.commit.write.options import WriteOptions
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import NO_METADATA
from dbio_commit.spark.write.task import TaskSpec
from dbio_commit.table import Table

TID = "0000000000000000042"
JOB = "7a3f1c52-9a0e-4c0b-8f5e-2d6f6a1f0c11"


@dataclass
class DirectorySink:
    root: Path
    open_now: int = 0
    most_open: int = 0
    opened: list[str] = field(default_factory=list)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        self.opened.append(path)
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            with target.open("wb") as stream:
                yield stream
        finally:
            self.open_now -= 1

    def confirm(self) -> None:
        """Nobody has dropped the directory."""

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                os.unlink(self.root / path)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())

    def read(self, info: FileInfo) -> pa.Table:
        """The file itself, without what its directory says."""
        return pq.ParquetFile(self.root / info.path).read()


def spec(root: Path, *, partition_columns: tuple[str, ...] = (), **changes: Any) -> TaskSpec:
    """A task of a write to a table at this path. `changes` are fields of it, or of its options."""
    terms = Terms(
        tid=TID,
        operation="append",
        scope=Scope.TABLE,
        partition_columns=partition_columns,
        app=None,
        must_be_empty=False,
        commit_id="",
        job=JOB,
        began=SYSTEM_CLOCK.moment(),
        metadata=NO_METADATA,
    )
    names = [field.name for field in fields(WriteOptions) if field.name in changes]
    options = WriteOptions(**{name: changes.pop(name) for name in names})
    return TaskSpec(**{"table": Table(root), "terms": terms, "columns": (), "options": options, **changes})


def write(sink: DirectorySink, *batches: pa.RecordBatch, **changes: Any) -> list[FileInfo]:
    """By task 3, attempt 17; the columns as they come."""
    columns = tuple(enumerate(batches[0].schema.names)) if batches else ()
    return write_files(spec(sink.root, columns=columns, **changes), iter(batches), task=3, attempt=17, files=sink)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)
