"""Finds the files that other tools can read by themselves with the table's columns, by their footers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit.base.forks import ProcessLock
from dbio_commit.data.alike import Match, match
from dbio_commit.data.conditions.pruning import column_types
from dbio_commit.data.conform import partition_value
from dbio_commit.data.rows import naming_vacuum, open_end
from dbio_commit.log.frames.request import Request
from dbio_commit.protocol import names
from dbio_commit.protocol.state import DataFile
from dbio_commit.store.contract import Tail


class MatchedFile(NamedTuple):
    """A file, with what its footer says."""

    file: DataFile
    match: Match
    why: str
    """Why pyarrow's own reader would not find the table's rows in it; empty if it would."""
    end: Tail
    """Its size, and its last bytes with the footer; no bytes on a disk, or if other files fill `_ENDS_BYTES`."""

    def is_native(self, request: Request) -> bool:
        """Whether Polars and DuckDB themselves read the table's rows from this file, which must be on a disk."""
        is_found = request.store.is_disk and not names.is_pattern(f"{request.store.url}/{self.file.path}")
        in_layout = {*self.file.partition} == {*request.snapshot.partition_columns}
        return self.match is Match.SAME and is_found and in_layout

    def value_of(self, field: Any, request: Request) -> Any:
        """The value of a partition column in all rows, by the directory's name. Raises InvalidInputError."""
        values = {name.lower(): text for name, text in self.file.partition.items()}
        return partition_value(values[field.name.lower()], field, request.store.url_of(self.file.path))


def unused_name(name: str, names: Iterable[str]) -> str:
    """The name, with more characters if some column has it, in any case."""
    lower = {column.lower() for column in names}
    while name in lower:
        name += "_"
    return name


_ENDS_BYTES = 16 * 1024 * 1024
"""The most bytes of ends of files that are kept for an object store, so that a reader need not fetch them again."""


def match_files(request: Request, files: Sequence[DataFile], target: pa.Schema) -> list[MatchedFile]:
    """The files in order. Raises InvalidInputError for a file that cannot be read, ObjectNotFoundError."""
    store = request.store
    room = _Room(0 if store.is_disk else _ENDS_BYTES)
    variants = _variants(request.columns)
    matching = _Matching(target)

    def look(file: DataFile) -> MatchedFile:
        parquet, end = open_end(store, file.path)
        found, why = matching.match(parquet, file.partition)
        if found is Match.SAME and variants.intersection(target.names):
            found = Match.CAST  # `open_end` looks at variants
        return MatchedFile(file, found, why, end if room.take(len(end.body)) else Tail(end.size, b""))

    with naming_vacuum():
        return store.ask_each(look, files)


class _Room:
    """A budget of bytes. Threads share it."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = ProcessLock()

    def take(self, size: int) -> bool:
        with self._lock:
            fits = size <= self._left
            self._left -= size if fits else 0
            return fits


class _Matching:
    """Matches files. A file with the same columns as the file before, as most have, gets the same answer."""

    def __init__(self, target: pa.Schema) -> None:
        self._target = target
        self._before: tuple[pq.ParquetSchema, Mapping[bytes, bytes] | None, names.Partition, tuple[Match, str]] | None
        self._before = None

    def match(self, parquet: pq.ParquetFile, partition: names.Partition) -> tuple[Match, str]:
        leaves, recorded = parquet.schema, parquet.metadata.metadata  # pyarrow makes Arrow's types of these two
        if self._before is not None:
            other_leaves, other, other_partition, answer = self._before
            if leaves.equals(other_leaves) and recorded == other and partition.keys() == other_partition.keys():
                return answer
        answer = match(parquet, self._target, partition=partition)
        self._before = leaves, recorded, partition, answer
        return answer


def _variants(columns: Mapping[str, object]) -> frozenset[str]:
    return frozenset(name for name, kind in column_types(columns).items() if kind == "variant")
