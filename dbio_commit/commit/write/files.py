"""Writes rows to the new data files of a transaction: Arrow batches -> Parquet files in their final place.

Spark's tasks (`spark/write/task`) and writers without Spark (`parallel`) use it. It does not decide what is committed:
the caller commits the files that it returns.

Its memory is bounded in three ways. Rows are grouped by partition BUFFER_BYTES at a time. Rows that are too few for a
row group wait on the local disk, as in Spark's own sort: small row groups and small files would make later reads
slower. At most MAX_OPEN files are open. If the rows arrive partition by partition (`data/arrow.completing`), none wait.
"""

import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Protocol

import pyarrow as pa

from dbio_commit.base.clock import Clock
from dbio_commit.commit.request import Terms
from dbio_commit.commit.roots import KINDS
from dbio_commit.commit.write.options import WriteOptions
from dbio_commit.commit.write.spill import Spill, Waiting
from dbio_commit.data import arrow, encoding
from dbio_commit.data.data_file import (
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    SUFFIXES,
    DataFileWriter,
    collect,
    cut,
    parquet_options,
)
from dbio_commit.data.field_ids import with_field_ids
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.settings import bare_columns, gives_field_ids
from dbio_commit.store import Store
from dbio_commit.store.many import CallsAhead

BUFFER_ROWS = 4 * 1024 * 1024
BUFFER_BYTES = 64 * 1024 * 1024
MAX_OPEN = 16
CLOSING, CLOSING_SMALL = 8, 16
"""How many files are closed at the same time, and how many if they have at most BUFFER_BYTES together. On an object
store, closing a small file is mostly waiting."""


class FileSink(Protocol):
    """Where the files of a write go. Paths are relative to the root of the table."""

    def confirm(self) -> None:
        """Is called after the last file. Raises TransactionAbortedError if the transaction cannot commit any more."""

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A stream to a new file. The file is durable when the block ends; if the block raises, it may not exist."""

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes the files as far as possible; a file that does not exist counts as deleted."""


class StoreSink:
    """Writes files straight to their final names, below the root of a table."""

    def __init__(self, store: Store, clock: Clock, terms: Terms) -> None:
        self._store, self._terms = store, terms
        self._root = KINDS[terms.scope](store, clock)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        self._root.mark(self._terms, names.split(path)[0])
        with self._store.open_write(path) as stream:
            yield stream
        self._store.make_durable([path])  # before the marker that names it (I2)

    def confirm(self) -> None:
        self._root.confirm(self._terms)

    def delete(self, paths: Sequence[str]) -> None:
        self._store.delete_many(paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSpec:
    """How the files of a write are made. It can be pickled."""

    terms: Terms
    columns: tuple[tuple[int | None, str], ...]
    """For each column of the table: its position in the batches (None: it is null), and its name in the table."""
    casts: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The types of those columns that the batches lack or have with a narrower type."""
    variants: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The types of those columns that have variants. In files, the fields of a variant are never null."""
    options: WriteOptions = field(default_factory=WriteOptions)
    limits: names.PathLimits | None = None
    spark_metadata: Mapping[str, str] = field(default_factory=dict)
    """For the footers: the columns as Spark's JSON, and a version of Spark whose calendar and types they have."""
    changes: bool = False
    """Whether the files are change files: they record changed rows, and are not part of the table."""

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.terms.partition_columns

    @property
    def partition_positions(self) -> list[int]:
        """The positions of the partition columns in the batches, except for those that are null."""
        return [at for at, name in self.columns if at is not None and name in self.partition_columns]


def write_files(
    spec: FilesSpec, batches: Iterable[pa.RecordBatch], *, task: int, attempt: int, files: FileSink
) -> list[FileInfo]:
    """Writes the rows, and returns the files, whose names have these numbers. Without rows, it writes no file.

    The rows of a partition keep their order. On any error, it deletes the files of this call.
    """
    output = Output(spec, task=task, attempt=attempt, files=files)
    try:
        for run in runs(batches, spec):
            output.write(run)
            del run  # it is a slice, and would keep its whole table in memory
        return output.finish()
    except BaseException as error:  # a cancelled task must leave no files either
        output.discard(error)
        raise


# --- from batches to row groups -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows of one partition."""

    partition: names.Partition
    table: pa.Table
    last: bool
    """Whether no more rows of the partition follow."""


def runs(batches: Iterable[pa.RecordBatch], spec: FilesSpec) -> Iterator[Run]:
    """The rows in runs that are large enough for row groups, except for the last ones of a partition."""
    return (_by_partition if spec.partition_columns else _whole)(batches, spec)


def _plain(batch: pa.RecordBatch, spec: FilesSpec) -> pa.RecordBatch:
    plain = arrow.plain_batch(arrow.project(arrow.sound(batch), spec.columns, spec.casts))
    variants = {i: spec.variants[name] for i, (_, name) in enumerate(spec.columns) if name in spec.variants}
    return arrow.fitted(plain, variants)


def _whole(batches: Iterable[pa.RecordBatch], spec: FilesSpec) -> Iterator[Run]:
    plain = (_plain(batch, spec) for batch in batches)
    for table in collect(plain, rows=ROW_GROUP_ROWS, size_bytes=ROW_GROUP_BYTES):
        yield Run({}, table, last=False)


def _by_partition(batches: Iterable[pa.RecordBatch], spec: FilesSpec) -> Iterator[Run]:
    waiting: dict[arrow.PartitionKey, Waiting] = {}  # on the disk
    held: dict[arrow.PartitionKey, pa.Table] = {}  # slices of the last table that was grouped
    with Spill() as spill:
        for table, complete in _buffered(batches, spec):
            while held:
                key, part = held.popitem()
                waiting.setdefault(key, Waiting()).add(part, spill)
            for key, part in arrow.group(table, spec.partition_columns):
                partition = _partition(spec, key)
                before = waiting.get(key, Waiting())
                is_long = key in complete or before.rows + part.num_rows >= ROW_GROUP_ROWS
                if is_long or before.size + part.nbytes >= ROW_GROUP_BYTES:
                    yield Run(partition, pa.concat_tables([*before.read(spill), part]), last=key in complete)
                    waiting.pop(key, None)
                else:
                    held[key] = part
            del table, part  # else they would stay in memory until the next table is complete
        for key in list(dict.fromkeys((*waiting, *held))):
            tables = waiting.pop(key, Waiting()).read(spill)
            tables += [held.pop(key)] if key in held else []
            yield Run(_partition(spec, key), pa.concat_tables(tables), last=True)


def _buffered(batches: Iterable[pa.RecordBatch], spec: FilesSpec) -> Iterator[tuple[pa.Table, Set[arrow.PartitionKey]]]:
    """Tables of about BUFFER_BYTES, each with the partitions that are complete: no rows of them follow.

    A table also ends after a batch that completes partitions.
    """
    follow, complete, is_over = iter(batches), set[arrow.PartitionKey](), False

    def up_to_completion() -> Iterator[pa.RecordBatch]:
        nonlocal is_over
        for batch in follow:
            plain = _plain(batch, spec)
            completes = arrow.is_completing(batch) and batch.num_rows > 0
            if completes:
                complete.update(arrow.keys(plain, spec.partition_columns))
            del batch  # it is a slice, and would keep the memory of a much larger batch
            yield plain
            if completes:
                return
            del plain
        is_over = True

    while not is_over:
        complete.clear()
        for table in collect(up_to_completion(), rows=BUFFER_ROWS, size_bytes=BUFFER_BYTES):
            yield table, complete
            del table


def _partition(spec: FilesSpec, key: arrow.PartitionKey) -> names.Partition:
    """The partition with these values.

    Raises InvalidInputError if no directory can have its name: so this comes before its rows are buffered.
    """
    partition = dict(zip(spec.partition_columns, key, strict=True))
    names.format_partition(partition)
    if spec.limits:
        names.check_length(partition, spec.limits)
    return partition


# --- from row groups to files -------------------------------------------------------------------------------------


class Output:
    """The files of one task attempt, or of one thread."""

    def __init__(self, spec: FilesSpec, *, task: int, attempt: int, files: FileSink) -> None:
        self._spec, self._task, self._attempt, self._files = spec, task, attempt, files
        self._open: OrderedDict[str, DataFileWriter] = OrderedDict()  # by directory, the least recently used first
        self._paths: list[str] = []
        self._closing = CallsAhead[FileInfo](
            few=CLOSING, most=CLOSING_SMALL, size_bytes=BUFFER_BYTES, name="dbio-close"
        )
        self._done: list[FileInfo] = []
        self._dictionaries: list[str] = []
        self._sampled_rows = 0
        settings = spec.terms.metadata.settings
        has_ids = gives_field_ids(settings) and not spec.changes
        self._columns_with_ids = json.loads(spec.spark_metadata[ROW_METADATA]) if has_ids else None
        self._schemas: tuple[pa.Schema, pa.Schema] | None = None
        bare = bare_columns(settings)
        self._no_statistics = frozenset(name for _, name in spec.columns if name.lower() in bare)

    def write(self, run: Run) -> None:
        directory = names.format_partition(run.partition)
        target = self._spec.options.target_file_size or sys.maxsize
        for group in cut(run.table, rows=ROW_GROUP_ROWS, size_bytes=min(ROW_GROUP_BYTES, -(-target // 2))):
            self._keep_nan_out_of_statistics(directory, group)
            start, bound = 0, self._spec.options.max_records_per_file or sys.maxsize
            while start < group.num_rows:
                file = self._file(directory, run.partition, group)
                part = group.slice(start, bound - file.rows)
                file.write(part)
                start += part.num_rows
                if file.rows == bound or file.size >= target:
                    self._close(directory)
        if run.last and directory in self._open:
            self._close(directory)

    def _keep_nan_out_of_statistics(self, directory: str, table: pa.Table) -> None:
        """Closes the open file when a column gets its first NaN: which columns have statistics is fixed on opening."""
        nan = encoding.columns_with_nan(table)
        self._no_statistics |= nan
        if directory in self._open and not nan <= self._open[directory].no_statistics:
            self._close(directory)

    def finish(self) -> list[FileInfo]:
        while len(self._open) > 1:
            self._close(next(iter(self._open)))
        # In this thread: most writes have one small file, and starting another thread takes as long.
        last = [file.close(self._spec.spark_metadata) for file in self._open.values()]
        self._open.clear()
        while self._closing:
            self._done.append(self._closing.take())
        self._done += last
        self._closing.close()
        if self._paths:
            self._files.confirm()
        return self._done

    def discard(self, error: BaseException) -> None:
        """Closes and deletes all files. Failures of this are noted on the error, and do not replace it."""
        self._closing.close()  # else a file could appear after it was deleted
        for file in self._open.values():
            _attempt_to(file.discard, error)
        _attempt_to(lambda _: self._files.delete(self._paths), error)

    def _file(self, directory: str, partition: names.Partition, table: pa.Table) -> DataFileWriter:
        if directory in self._open:
            self._open.move_to_end(directory)
            return self._open[directory]
        if len(self._open) >= MAX_OPEN:
            self._close(next(iter(self._open)))
        path = names.join(directory, self._next_name())
        self._paths.append(path)  # before opening it: a file that fails to open may exist nevertheless
        options = parquet_options(
            table, self._spec.options.compression, self._dictionaries_for(table), no_statistics=self._no_statistics
        )
        schema = self._schema_of(table)
        file = DataFileWriter(self._files.open(path), path, partition, schema, self._no_statistics, options)
        self._open[directory] = file
        return file

    def _schema_of(self, table: pa.Table) -> pa.Schema:
        """The schema of a file with these rows."""
        if self._columns_with_ids is None:
            return table.schema
        if self._schemas is None or not self._schemas[0].equals(table.schema):
            self._schemas = table.schema, with_field_ids(table.schema, self._columns_with_ids)
        return self._schemas[1]

    def _next_name(self) -> str:
        return names.format_data_file(
            tid=self._spec.terms.tid,
            job=self._spec.terms.job,
            task=self._task,
            attempt=self._attempt,
            number=len(self._paths),
            suffix=SUFFIXES[self._spec.options.compression],
            changes=self._spec.changes,
        )

    def _dictionaries_for(self, table: pa.Table) -> list[str]:
        """The columns to dictionary-encode in a file that begins with this table."""
        if self._sampled_rows < encoding.SAMPLE_ROWS and table.num_rows >= 2 * self._sampled_rows:
            # Sampling thousands of small files would take longer than writing them; one full sample serves all.
            self._dictionaries, self._sampled_rows = encoding.dictionary_columns(table), table.num_rows
        return self._dictionaries

    def _close(self, directory: str) -> None:
        file = self._open.pop(directory)
        while not self._closing.has_room(size := file.size):
            self._done.append(self._closing.take())
        self._closing.call(partial(file.close, self._spec.spark_metadata), size)


def _attempt_to(clean_up: Callable[[BaseException], object], error: BaseException) -> None:
    try:
        clean_up(error)
    except Exception as second:
        error.add_note(f"cleaning up after this also failed: {type(second).__name__}: {second}")
