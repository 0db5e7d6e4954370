"""Writes one new file with the rows of small ones, in a thread of this process or in a Spark task.

Rows are read and written by row groups, so that memory is bounded. If rows are sorted, all rows of a new file are in
memory together. `plan` chooses the files, and `run` commits the new ones.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError, StoreError
from dbio_commit.base.options import Compression
from dbio_commit.base.texts import Cause
from dbio_commit.data import encoding
from dbio_commit.data.chunks import first_codec
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.data_file import (
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    SUFFIXES,
    DataFileWriter,
    collect,
    parquet_options,
)
from dbio_commit.data.field_ids import with_field_ids
from dbio_commit.data.footers import SPARK_VERSION, has_old_calendar, parse_version, spark_version
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.data.parquet_file import parquet_file
from dbio_commit.data.rows import open_parquet, opened_ahead, read_footer, read_rows, refuse_loss
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.store import Store
from dbio_commit.upkeep.compact.plan import Bin
from dbio_commit.upkeep.compact.z_order import z_order

Z_PARTS = 4
"""Files along a Z-curve have so many times as many row groups, as several columns share what readers can skip. Costs 3%
in size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a rewrite of a bin needs besides the files."""

    tid: str
    job: str
    columns: str
    """The table's columns without partition columns, as Spark's JSON."""
    sort_by: tuple[str, ...] = ()
    z_order: tuple[str, ...] = ()
    bare: frozenset[str] = frozenset()
    """The columns, in lower case, that get no statistics."""
    has_ids: bool = False
    """Whether new files get field ids, for readers of Iceberg."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BinOutcome:
    """The new file of a bin, or the reason why there is none."""

    number: int
    """The number of the bin in its commit."""
    file: FileInfo | None = None
    problem: str = ""
    missing: bool = False
    """Whether one of its files does not exist any more: another commit removed it, and vacuum deleted it."""


def encode_outcome(outcome: BinOutcome) -> str:
    return msgspec.json.encode(outcome).decode()


def decode_outcome(text: str) -> BinOutcome:
    return msgspec.json.decode(text, type=BinOutcome)


def rewrite(store: Store, work: Work, bin: Bin, *, number: int, attempt: int) -> BinOutcome:
    """Writes the rows of the bin's files to one new file, durably, and checks the number of rows in it.

    A file that cannot be read is a problem of this bin only. Raises StoreError.
    """
    try:
        return BinOutcome(number=number, file=_Rewriting(store, work, bin).run(number, attempt))
    except InvalidInputError as error:
        return BinOutcome(number=number, problem=str(error))
    except ObjectNotFoundError as error:
        return BinOutcome(number=number, problem=str(error), missing=True)


class _Rewriting:
    def __init__(self, store: Store, work: Work, bin: Bin) -> None:
        self._store, self._work, self._bin = store, work, bin
        self._target = arrow_schema(json.loads(work.columns), where=store.url)
        self._codec: Compression | None = None
        self._versions: list[str | None] = []
        self._rows = 0

    def run(self, number: int, attempt: int) -> FileInfo:
        bare = {name for name in self._target.names if name.lower() in self._work.bare}
        no_statistics = self._columns_with_nan() | bare
        self._rows, self._versions = 0, []
        batches = self._batches(self._target)
        if self._work.sort_by or self._work.z_order:
            batches = self._in_order(batches)
        parts = Z_PARTS if self._work.z_order else 1
        tables = collect(batches, rows=ROW_GROUP_ROWS // parts, size_bytes=ROW_GROUP_BYTES // parts)
        first = next(tables, self._target.empty_table())
        codec = self._codec or "snappy"
        name = names.format_data_file(
            tid=self._work.tid, job=self._work.job, task=number, attempt=attempt, number=0, suffix=SUFFIXES[codec]
        )
        path = names.join(self._bin.directory, name)
        try:
            info = self._write(path, first, chain([first], tables), codec, no_statistics)
            self._store.make_durable([path])  # before the marker that names it (I2)
            self._check(info)
        except BaseException:
            self._store.delete_many([path])
            raise
        return info

    def _write(
        self, path: str, first: pa.Table, tables: Iterator[pa.Table], codec: Compression, no_statistics: frozenset[str]
    ) -> FileInfo:
        options = parquet_options(first, codec, encoding.dictionary_columns(first), no_statistics=no_statistics)
        partition = names.parse_partition(self._bin.directory)
        schema = with_field_ids(self._target, json.loads(self._work.columns)) if self._work.has_ids else self._target
        file = DataFileWriter(self._store.open_write(path), path, partition, schema, no_statistics, options)
        try:
            for table in tables:
                if table.num_rows:
                    file.write(table)
        except BaseException as error:
            file.discard(error)
            raise
        return file.close(self._footer())

    def _footer(self) -> dict[str, str]:
        """The metadata that Spark writes, too. Spark's version, from which Spark's readers conclude the calendar of old
        dates, is set only if all files have it."""
        versions = [version for version in self._versions if version]
        known = {SPARK_VERSION: min(versions, key=parse_version)} if len(versions) == len(self._versions) else {}
        return {ROW_METADATA: self._work.columns, **known}

    def _check(self, info: FileInfo) -> None:
        with self._store.open_read(info.path) as stream:
            written = parquet_file(stream).metadata.num_rows
        if not self._rows == info.rows == written:
            raise StoreError(
                f"the {len(self._bin.files)} files to compact in {self._store.url_of(self._bin.directory)} have "
                f"{self._rows} rows by their footers, but {written} were written; nothing was committed: run "
                "`dbio check`"
            )

    # --- read -----------------------------------------------------------------------------------------------------

    def _columns_with_nan(self) -> frozenset[str]:
        """The columns with NaN, which are written without statistics. They must be known before the first row group is
        written. Footers do not have them, so this reads all columns of floats."""
        floats = pa.schema([field for field in self._target if pa.types.is_floating(field.type)])
        found = set[str]()
        if floats:
            for batch in self._batches(floats):
                found |= encoding.columns_with_nan(pa.Table.from_batches([batch]))
        return frozenset(found)

    def _in_order(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches, schema=self._target)
        by, along = self._work.sort_by, self._work.z_order
        try:
            order: Any = pc.sort_indices(table, [(name, "ascending") for name in by]) if by else z_order(table, along)
            for start in range(0, len(order), ROW_GROUP_ROWS):
                yield from table.take(order.slice(start, ROW_GROUP_ROWS)).to_batches()
        except pa.ArrowException as error:  # for example, more bytes of text than an Arrow array may have
            raise InvalidInputError(f"the rows cannot be sorted: {error!s:.200}; give a smaller target size") from error

    def _batches(self, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        with closing(opened_ahead(self._store, self._bin.files)) as opened:
            for file, source in zip(self._bin.files, opened, strict=True):
                with source:
                    yield from self._read(source, target, where=self._store.url_of(file.path))

    def _read(self, source: Any, target: pa.Schema, *, where: str) -> Iterator[pa.RecordBatch]:
        try:
            parquet = open_parquet(source, where)
            self._look(parquet, source, where)
            yield from read_rows(parquet, target, partition={}, where=where)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidInputError(f"{where} cannot be read as Parquet: {error!s:.200}") from Cause.of(error)

    def _look(self, parquet: pq.ParquetFile, source: Any, where: str) -> None:
        """Raises InvalidInputError if other readers would read values differently from the new file."""
        footer = parquet.metadata
        self._rows += footer.num_rows
        if has_old_calendar(footer):
            raise InvalidInputError(f"{where} was written by an old Spark version with another calendar")
        self._versions.append(spark_version(footer))
        refuse_loss(parquet, self._target, partition=names.parse_partition(self._bin.directory), where=where)
        if self._codec is None and footer.num_row_groups and footer.num_columns:
            self._codec = _CODECS.get(first_codec(read_footer(source)) or "", "snappy")


_CODECS: Mapping[str, Compression] = {"SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip", "UNCOMPRESSED": "none"}
