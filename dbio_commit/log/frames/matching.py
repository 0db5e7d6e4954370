"""Finds the files that other tools can read by themselves with the table's columns, by their footers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from dbio_commit.base.forks import ProcessLock
from dbio_commit.data.conditions.pruning import column_types
from dbio_commit.data.conform import partition_value
from dbio_commit.data.rows import naming_vacuum, open_end
from dbio_commit.data.widen import fit
from dbio_commit.log.frames.request import Request
from dbio_commit.protocol import names
from dbio_commit.protocol.state import DataFile
from dbio_commit.store.contract import Tail


class Match(Enum):
    """How a file's columns are read as those of a table."""

    SAME = auto()
    """The file has all columns, with the table's names and types."""
    CAST = auto()
    """Some columns are absent, or of a type that Arrow casts to the table's, as `conform` does."""
    OTHER = auto()
    """Only `conform` converts the file's columns to the table's."""


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
    variants = {name for name, kind in column_types(request.columns).items() if kind == "variant"}
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


# --- a file's columns beside a table's -------------------------------------------------------------------------------


def match(parquet: pq.ParquetFile, target: pa.Schema, *, partition: Collection[str]) -> tuple[Match, str]:
    """How the file matches the target without the partition columns, and a text: why pyarrow's own reader would not
    find the table's rows in it. The text is empty if it would.
    """
    leaves = parquet.schema
    is_old = any(leaves.column(leaf).physical_type == "INT96" for leaf in range(len(leaves)))
    own = {field.name: field.type for field in parquet.schema_arrow}
    spelled = {name.lower(): name for name in own}
    outside = {name.lower() for name in partition}
    found, why = Match.CAST if is_old else Match.SAME, ""
    for field in target:
        lower = field.name.lower()
        if lower in outside:
            why = f"it has the partition column {field.name!r:.100}, too" if lower in spelled else why
        elif lower not in spelled:
            found = Match.CAST
        elif spelled[lower] != field.name:
            return Match.OTHER, f"it spells the column {field.name!r:.100} as {spelled[lower]!r:.100}"
        elif not is_same(own[field.name], field.type):
            if not _is_cast(own[field.name], field.type):
                return Match.OTHER, f"its column {field.name!r:.100} is {own[field.name]}, not {field.type}"
            found = Match.CAST
    return found, why


def is_same(own: Any, wanted: Any) -> bool:
    """Whether all readers find the same values of the same type. Nullability does not count, nor do large offsets."""
    if types.is_struct(own) and types.is_struct(wanted):
        return [field.name for field in own] == [field.name for field in wanted] and all(
            is_same(one.type, other.type) for one, other in zip(own, wanted, strict=True)
        )
    if types.is_map(own) and types.is_map(wanted):
        return is_same(own.key_type, wanted.key_type) and is_same(own.item_type, wanted.item_type)
    if (types.is_list(own) or types.is_large_list(own)) and types.is_list(wanted):
        return is_same(own.value_type, wanted.value_type)
    return bool(_PLAIN.get(own, own) == wanted)


_PLAIN: Mapping[Any, Any] = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def _is_cast(own: Any, wanted: Any) -> bool:
    """Whether Arrow's own cast gives what `fit` gives."""
    if types.is_nested(own) or types.is_nested(wanted):
        return False
    try:
        fit(pa.array([], own), wanted)
        pa.array([], own).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        return False
    return True
