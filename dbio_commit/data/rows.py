"""Reads the rows of a data file, batch by batch, with the columns of a table."""

import io
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError, StoreError
from dbio_commit.base.forks import ProcessLock
from dbio_commit.base.texts import Cause
from dbio_commit.data.columns import file_schema, refuse_variants, spark_schema
from dbio_commit.data.conform import conform
from dbio_commit.data.fitting import lost
from dbio_commit.data.footers import TAIL_BYTES, read_end, rows_at_once
from dbio_commit.data.parquet import footer_bytes
from dbio_commit.data.parquet_file import parquet_file
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store
from dbio_commit.store.contract import Tail

WHOLE_BYTES = 64 * 1024 * 1024
"""A file up to this size is fetched with one request: most of the time is spent waiting."""


def open_file(store: Store, file: DataFile, *, whole_bytes: int = WHOLE_BYTES) -> Any:
    """The bytes of the file, as a context that closes them. A file up to `whole_bytes` is fetched whole.

    Raises ObjectNotFoundError, StoreError.
    """
    small = 0 <= file.size <= whole_bytes
    return pa.BufferReader(store.get(file.path)) if small else store.open_read(file.path)


@contextmanager
def naming_vacuum() -> Iterator[None]:
    """Adds to an ObjectNotFoundError about a file of a snapshot why the file may be gone, and what to do."""
    try:
        yield
    except ObjectNotFoundError as error:
        raise ObjectNotFoundError(
            f"{error}; vacuum may have deleted the file since the snapshot was taken: take a new snapshot and read "
            "again, and if reads take longer than vacuum's retention, make the retention longer. If a new snapshot "
            "has the file, run `dbio check`"
        ) from error


def opened_ahead(
    store: Store, files: Sequence[DataFile], open: Callable[[Store, DataFile], Any] = open_file
) -> Generator[Any, None, None]:
    """The files in their order, as `open` opens them. Small ones are fetched ahead of the caller (`Store.ahead`).

    Those that are fetched have at most WHOLE_BYTES together, or are a single file.
    """
    return store.ahead(partial(open, store), files, held_bytes(files), size_bytes=WHOLE_BYTES)


class ReadTwice:
    """Opens files that are looked at first, and read again soon. Threads may share it.

    What the first look has fetched from an object store is kept for the second one, up to WHOLE_BYTES of all files.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._left_bytes = WHOLE_BYTES
        self._lock = ProcessLock()

    def first(self, store: Store, file: DataFile) -> Any:
        """As `open_file`."""
        found = open_file(store, file)
        if not store.is_disk and isinstance(found, pa.BufferReader):
            with self._lock:
                if file.size <= self._left_bytes:
                    self._kept[file.path] = found.read_buffer()
                    self._left_bytes -= file.size
            found.seek(0)
        return found

    def again(self, store: Store, file: DataFile) -> Any:
        """As `open_file`. The file is kept no longer."""
        with self._lock:
            kept = self._kept.pop(file.path, None)
        return open_file(store, file) if kept is None else pa.BufferReader(kept)


def held_bytes(files: Iterable[DataFile]) -> list[int]:
    """The bytes of memory that each file takes once `open_file` has opened it, before its rows are decoded."""
    return [min(max(file.size, 0), WHOLE_BYTES) for file in files]


def open_parquet(source: Any, where: str) -> pq.ParquetFile:
    """Opens a Parquet file. Instants of the old INT96 get microseconds, as in Spark: nanoseconds cover fewer years.

    Raises InvalidInputError, with the file's URL.
    """
    try:
        file = parquet_file(source, coerce_int96_timestamp_unit="us")
    except _UNREADABLE as error:
        raise _unreadable(where, error) from Cause.of(error)
    refuse_variants(file, where=where)
    return file


def open_footer(store: Store, path: str) -> pq.ParquetFile:
    """Opens a Parquet file of which only the footer is needed: its columns and its number of rows.

    Raises InvalidInputError, with the file's URL; ObjectNotFoundError, StoreError.
    """
    return open_end(store, path)[0]


def open_end(store: Store, path: str) -> tuple[pq.ParquetFile, Tail]:
    """As `open_footer`, also with the size of the file and its last bytes, which have the footer."""
    where = store.url_of(path)
    try:
        end = read_end(store, path)
    except ValueError as error:
        raise _unreadable(where, error) from Cause.of(error)
    return open_parquet(pa.BufferReader(end.body), where), end


_UNREADABLE = (pa.ArrowException, OSError, ValueError)
"""The errors that pyarrow raises for a file that is damaged, encrypted, or has an unknown codec."""


def _unreadable(where: str, error: BaseException) -> InvalidInputError:
    return InvalidInputError(f"{where} cannot be read as Parquet: {error!s:.200}; `dbio check --files` looks further")


def read_footer(source: Any) -> bytes:
    """The last bytes of a file, with its footer. `chunks` checks them, since some footers crash pyarrow."""
    size = source.seek(0, io.SEEK_END)
    source.seek(max(0, size - TAIL_BYTES))
    end: bytes = source.read()
    wanted = footer_bytes(size, end)
    if wanted > len(end):
        source.seek(size - wanted)
        end = source.read()
    return end


def refuse_loss(parquet: pq.ParquetFile, target: pa.Schema, *, partition: Partition, where: str) -> None:
    """Raises InvalidInputError for a file with a column that the target lacks. A rewrite of its rows would lose that
    column.
    """
    columns = spark_schema(file_schema(parquet), where=where)
    if column := lost(columns, spark_schema(target, where=where), partition):
        raise InvalidInputError(
            f"{where} has the column {column!r:.200}, which the table does not have, so that its rows cannot be "
            "written anew without a loss; nothing was committed: add the column to the table, by a write that has it, "
            "with merge_schema=True, and try again"
        )


def refuse_other_rows(where: str, recorded: int | None, found: int) -> None:
    """Raises StoreError if the file at this URL has not the recorded number of rows."""
    if recorded not in (None, found):
        raise StoreError(
            f"{found} rows were read from {where}, but its writer recorded {recorded}: somebody changed the file, or "
            "it was not read completely; nothing was committed. Run `dbio check`"
        )


def read_rows(
    parquet: pq.ParquetFile,
    target: pa.Schema,
    *,
    partition: Partition,
    where: str,
    groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """All rows, in their order, with the target's columns, as `conform` makes them. `where` is the file's URL.

    With `groups`, only the rows of these row groups. Raises InvalidInputError for what cannot be read.
    """
    outside = {name.lower() for name in partition}
    wanted = {name.lower() for name in target.names} - outside
    inside = [name for name in parquet.schema_arrow.names if name.lower() in wanted]
    if not inside:  # in some versions of pyarrow, batches without columns have no rows either
        inside = parquet.schema_arrow.names[:1]
    numbers = list(range(parquet.num_row_groups) if groups is None else groups)
    if not numbers:
        return  # pyarrow 18 fails if there are no row groups
    for batch in _batches(parquet, inside, numbers, where):
        yield conform(batch, target, partition=partition, where=where)


def _batches(parquet: pq.ParquetFile, columns: list[str], groups: list[int], where: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from parquet.iter_batches(rows_at_once(parquet.metadata), row_groups=groups, columns=columns)
    except _UNREADABLE as error:
        raise _unreadable(where, error) from Cause.of(error)
