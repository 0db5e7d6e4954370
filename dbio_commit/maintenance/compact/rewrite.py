"""Writes one new file with the rows of small ones, in a thread of this process or in a Spark task.

Rows are written by row groups, so that memory is bounded. If rows are sorted, all rows of a new file are in memory
together. `plan` chooses the files, `reading` reads them, and `run` commits the new ones. `cluster` divides rows among
several new files.
"""

import json
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError, StoreError
from dbio_commit.base.options import Compression
from dbio_commit.data import encoding
from dbio_commit.data.data_file import (
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    SUFFIXES,
    DataFileWriter,
    collect,
    parquet_options,
)
from dbio_commit.data.field_ids import with_field_ids
from dbio_commit.data.parquet_file import parquet_file
from dbio_commit.maintenance.compact.plan import Bin
from dbio_commit.maintenance.compact.reading import Reading, SourceFacts, Work
from dbio_commit.maintenance.compact.z_order import z_order
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.store import Store

Z_PARTS = 4
"""Files along a Z-curve have so many times as many row groups, as several columns share what readers can skip. Costs 3%
in size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BinOutcome:
    """The new files of a bin, or the reason why there are none."""

    number: int
    """The number of the bin in its commit."""
    files: tuple[FileInfo, ...] = ()
    problem: str = ""
    missing: bool = False
    """Whether one of its files does not exist any more: another commit removed it, and vacuum deleted it."""

    @property
    def rows(self) -> int:
        """How many rows the new files have."""
        return sum(file.rows or 0 for file in self.files)


def encode_outcome(outcome: BinOutcome) -> str:
    return msgspec.json.encode(outcome).decode()


def decode_outcome(text: str) -> BinOutcome:
    return msgspec.json.decode(text, type=BinOutcome)


def outcome_of(number: int, write: Callable[[], Sequence[FileInfo]]) -> BinOutcome:
    """The outcome of a bin whose new files the function writes. A file that cannot be read is a problem of this bin
    only. Raises StoreError."""
    try:
        return BinOutcome(number=number, files=tuple(write()))
    except InvalidInputError as error:
        return BinOutcome(number=number, problem=str(error))
    except ObjectNotFoundError as error:
        return BinOutcome(number=number, problem=str(error), missing=True)


def rewrite(store: Store, work: Work, bin: Bin, *, number: int, attempt: int) -> BinOutcome:
    """Writes the rows of the bin's files to one new file, durably, and checks the number of rows in it.

    A file that cannot be read is a problem of this bin only. Raises StoreError.
    """
    return outcome_of(number, lambda: [_rewrite(store, work, bin, number, attempt)])


def _rewrite(store: Store, work: Work, bin: Bin, number: int, attempt: int) -> FileInfo:
    target = work.schema(store.url)
    reading = Reading(store, target, bin.files)
    with_nan = _columns_with_nan(reading, target)
    batches: Iterator[pa.RecordBatch] = (batch for _, batch in reading.batches(target))
    if work.is_ordered:
        batches = in_order(pa.Table.from_batches(batches, schema=target), work)
    name = partial(file_name, work, bin.directory, task=number, attempt=attempt, number=0)
    info = write_file(store, work, name, batches, no_statistics=with_nan, known=lambda: reading.known)
    check_rows(store, bin, [info], reading.known.rows)
    return info


def file_name(work: Work, directory: str, codec: Compression, *, task: int, attempt: int, number: int) -> str:
    """The path of a new file."""
    name = names.format_data_file(
        tid=work.tid, job=work.job, task=task, attempt=attempt, number=number, suffix=SUFFIXES[codec]
    )
    return names.join(directory, name)


def write_file(
    store: Store,
    work: Work,
    name: Callable[[Compression], str],
    batches: Iterator[pa.RecordBatch],
    *,
    no_statistics: Set[str],
    known: Callable[[], SourceFacts],
) -> FileInfo:
    """Writes the rows to a new file, durably, and checks its footer.

    The columns `no_statistics` have NaN. `known` is called after the first rows were read, and again after the last.
    """
    target = work.schema(store.url)
    bare = frozenset(no_statistics) | {column for column in target.names if column.lower() in work.bare}
    parts = Z_PARTS if work.z_order else 1
    tables = collect(batches, rows=ROW_GROUP_ROWS // parts, size_bytes=ROW_GROUP_BYTES // parts)
    first = next(tables, target.empty_table())
    codec = known().codec or "snappy"
    path = name(codec)
    options = parquet_options(first, codec, encoding.dictionary_columns(first), no_statistics=bare)
    schema = with_field_ids(target, json.loads(work.columns)) if work.has_ids else target
    try:
        partition = names.parse_partition(names.split(path)[0])
        file = DataFileWriter(store.open_write(path), path, partition, schema, bare, options)
        try:
            for table in chain([first], tables):
                if table.num_rows:
                    file.write(table)
        except BaseException as error:
            file.discard(error)
            raise
        info = file.close(known().footer(work.columns))
        store.make_durable([path])  # before the marker that names it (I2)
        with store.open_read(path) as stream:
            written = parquet_file(stream).metadata.num_rows
        if written != info.rows:
            raise StoreError(
                f"{store.url_of(path)} has {written} rows, but {info.rows} were written; nothing was committed: try "
                "again"
            )
    except BaseException:
        store.delete_many([path])
        raise
    return info


def check_rows(store: Store, bin: Bin, files: Sequence[FileInfo], rows: int) -> None:
    """Raises StoreError, and deletes the new files, if they have not as many rows as the bin's files."""
    written = sum(file.rows or 0 for file in files)
    if written != rows:
        store.delete_many([file.path for file in files])
        raise StoreError(
            f"the {len(bin.files)} files to compact in {store.url_of(bin.directory)} have {rows} rows by their "
            f"footers, but {written} were written; nothing was committed: run `dbio check`"
        )


def in_order(table: pa.Table, work: Work) -> Iterator[pa.RecordBatch]:
    """The rows in the order of new files. Raises InvalidInputError if they cannot be sorted."""
    by, along = work.sort_by, work.z_order
    try:
        order: Any = pc.sort_indices(table, [(name, "ascending") for name in by]) if by else z_order(table, along)
        for start in range(0, len(order), ROW_GROUP_ROWS):
            yield from table.take(order.slice(start, ROW_GROUP_ROWS)).to_batches()
    except pa.ArrowException as error:  # for example, more bytes of text than an Arrow array may have
        raise InvalidInputError(f"the rows cannot be sorted: {error!s:.200}; give a smaller target size") from error


def _columns_with_nan(reading: Reading, target: pa.Schema) -> Set[str]:
    """The columns with NaN, which are written without statistics. They must be known before the first row group is
    written. Footers do not record NaN, so this reads all columns of floats."""
    floats = pa.schema([field for field in target if pa.types.is_floating(field.type)])
    found = set[str]()
    if floats:
        for _, batch in reading.batches(floats):
            found |= encoding.columns_with_nan(pa.Table.from_batches([batch]))
    return found
