"""Reads the files that a compaction rewrites, and refuses those whose rows would not stay the same.

Rows are read by row groups. `rewrite` and `cluster` write them.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.options import Compression
from dbio_commit.base.texts import Cause
from dbio_commit.data.chunks import first_codec
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.footers import SPARK_VERSION, has_old_calendar, parse_version, spark_version
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.data.rows import open_file, open_parquet, opened_ahead, read_footer, read_rows, refuse_loss
from dbio_commit.protocol import names
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The facts and options that a rewrite of a bin needs besides the files."""

    tid: str
    job: str
    columns: str
    """The table's columns without partition columns, as Spark's JSON."""
    sort_by: tuple[str, ...] = ()
    z_order: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    """The columns by which rows are divided among new files. Then `z_order` has the same."""
    bare: frozenset[str] = frozenset()
    """The columns, in lower case, that get no statistics."""
    has_ids: bool = False
    """Whether new files get field ids, for readers of Iceberg."""
    spill: str | None = None
    """The directory in which rows wait; None for that of the system."""

    @property
    def is_ordered(self) -> bool:
        """Whether the rows of new files are sorted."""
        return bool(self.sort_by or self.z_order)

    def schema(self, where: str) -> pa.Schema:
        """The columns of new files."""
        return arrow_schema(json.loads(self.columns), where=where)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """Facts from the footers of files, which decide the form of new files with their rows."""

    rows: int = 0
    codec: Compression | None = None
    """The codec of the first file with rows."""
    is_of_spark: bool = True
    """Whether all footers have a version of Spark."""
    version: str | None = None
    """The lowest of these versions."""

    def __add__(self, other: "SourceFacts") -> "SourceFacts":
        versions = [it for it in (self.version, other.version) if it]
        return SourceFacts(
            rows=self.rows + other.rows,
            codec=self.codec or other.codec,
            is_of_spark=self.is_of_spark and other.is_of_spark,
            version=min(versions, key=parse_version, default=None),
        )

    def footer(self, columns: str) -> dict[str, str]:
        """The metadata that Spark writes, too. Spark's version, from which Spark's readers conclude the calendar of old
        dates, is set only if all files have it."""
        known = {SPARK_VERSION: self.version} if self.version and self.is_of_spark else {}
        return {ROW_METADATA: columns, **known}


class Reading:
    """Reads the rows of files of one directory. `known` is about the files that were opened so far."""

    def __init__(self, store: Store, schema: pa.Schema, files: Sequence[DataFile]) -> None:
        """`schema` has the table's columns without partition columns."""
        self._store, self._schema, self._files = store, schema, files
        self._partition = names.parse_partition(names.split(files[0].path)[0])
        self.known = SourceFacts()

    def batches(
        self, target: pa.Schema, open: Callable[[Store, DataFile], Any] = open_file
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows with some of the columns, each batch with the place of its file. Resets `known` first.

        Raises InvalidInputError, ObjectNotFoundError, StoreError.
        """
        self.known = SourceFacts()
        with closing(opened_ahead(self._store, self._files, open)) as opened:
            for place, (file, source) in enumerate(zip(self._files, opened, strict=True)):
                with source:
                    for batch in self._read(source, target, where=self._store.url_of(file.path)):
                        yield place, batch

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
        if has_old_calendar(footer):
            raise InvalidInputError(f"{where} was written by an old Spark version with another calendar")
        refuse_loss(parquet, self._schema, partition=self._partition, where=where)
        codec, version = None, spark_version(footer)
        if self.known.codec is None and footer.num_row_groups and footer.num_columns:
            codec = _CODECS.get(first_codec(read_footer(source)) or "", "snappy")
        self.known += SourceFacts(rows=footer.num_rows, codec=codec, is_of_spark=bool(version), version=version)


_CODECS: Mapping[str, Compression] = {"SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip", "UNCOMPRESSED": "none"}
