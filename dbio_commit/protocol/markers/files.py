"""The files that a commit adds, column by column, with the bounds of their values (PROTOCOL.md 7.3). Pure."""

import math
from abc import abstractmethod
from array import array
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, cast

from msgspec import Raw
from msgspec.structs import force_setattr, replace

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import Body, Count, Deferred, decode_as, pack_json, written
from dbio_commit.protocol.types.bounds import Scalar


class Bounds(NamedTuple):
    """The bounds of one column in one file. Texts longer than 64 characters are shortened, and a shortened max is
    rounded up."""

    min: Scalar = None
    """Not greater than any value except null; None if no bound is known."""
    max: Scalar = None
    """Not less than any value except null; None if no bound is known."""
    nulls: int | None = None
    """How many values are null; None if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """What a writer records about a data file that it adds."""

    path: str
    """Relative to the root of the table."""
    size: int
    """In bytes."""
    rows: int | None = None
    """How many rows it has; None if that is not known."""
    partition: names.Partition = field(default_factory=dict)
    """The values of the partition columns, as texts; None is null."""
    statistics: Mapping[str, Bounds] | None = None
    """Bounds by top-level column of the table; None if there are none."""


_MANY = 16
"""Lists of at least this many values are made compact."""


def _compact_texts(texts: Sequence[str | None]) -> Sequence[str | None]:
    """The same texts in less memory: equal texts become one object, since a million files have many."""
    if len(texts) < _MANY:
        return texts
    if texts.count(texts[0]) == len(texts):  # mostly a partition column
        return list(texts[:1]) * len(texts)
    one_of = {text: text for text in {*texts}}
    return [*map(one_of.__getitem__, texts)]


def _compact_numbers(numbers: Sequence[Any]) -> Sequence[Any]:
    """The numbers in eight bytes each, if all are whole and none is null."""
    if len(numbers) < _MANY:
        return numbers
    try:
        return array("q", numbers)
    except (TypeError, OverflowError):
        return numbers


def _compact_bounds(values: Sequence[Any]) -> Sequence[Any]:
    kinds: set[Any] = {*map(type, values)}
    if kinds == {int}:
        return _compact_numbers(values)
    return _compact_texts(values) if kinds <= {str, type(None)} else values


class ColumnBounds(Body, frozen=True, kw_only=True):
    """`Bounds` of one column, a value for each added file."""

    min: Sequence[Any]
    max: Sequence[Any]
    nulls: Sequence[Count | None]

    def __post_init__(self) -> None:
        force_setattr(self, "min", _compact_bounds(self.min))
        force_setattr(self, "max", _compact_bounds(self.max))
        force_setattr(self, "nulls", _compact_numbers(self.nulls))

    def lengths(self) -> set[int]:
        return {len(self.min), len(self.max), len(self.nulls)}


class StoredBounds(Deferred):
    """Statistics of added files that are read when they are needed, such as those in a part of a checkpoint."""

    @abstractmethod
    def columns(self) -> Collection[str]:
        """As `AddedFiles.columns`."""

    @abstractmethod
    def bounds(self, lower: Collection[str] | None = None) -> dict[str, ColumnBounds]:
        """As `AddedFiles.bounds`."""

    @abstractmethod
    def select(self, kept: Sequence[int]) -> "StoredBounds":
        """The statistics of the files with these indices."""

    def raw(self) -> Raw:
        return pack_bounds(self.bounds())

    def copy(self) -> Self:
        return self


class AddedFiles(Body, frozen=True, kw_only=True):
    """`FileInfo` of all added files, column by column: each list has a value for each added path, in that order.

    Columns, not rows, since a reader decodes tens of thousands of files before it can start.
    """

    size: Sequence[Count]
    rows: Sequence[Count | None]
    partition: Mapping[str, Sequence[str | None]] = written({})
    statistics: Raw = written(Raw(b"{}"))
    """`ColumnBounds` by column, as JSON or as `StoredBounds`, which `bounds` decodes.

    A million files have tens of millions of bounds. Most readers of a marker need none of them, others those of one
    column.
    """
    statistics_left_out: bool = False
    """Whether there were statistics, and a marker or checkpoint left them out."""

    def __post_init__(self) -> None:
        force_setattr(self, "size", _compact_numbers(self.size))
        force_setattr(self, "rows", _compact_numbers(self.rows))
        force_setattr(self, "partition", {name: _compact_texts(texts) for name, texts in self.partition.items()})
        force_setattr(self, "statistics", self.statistics.copy())  # otherwise the whole body stays in memory

    def lengths(self) -> set[int]:
        return {len(self.size), len(self.rows), *map(len, self.partition.values())}

    def columns(self) -> Collection[str]:
        """The columns that have statistics, as the files spell them. Raises ValueError for what cannot be read."""
        stored = self._stored
        return stored.columns() if stored else decode_as(dict[str, Raw], self.statistics)

    def bounds(self, lower: Collection[str] | None = None) -> dict[str, ColumnBounds]:
        """The bounds by column. `lower` limits them to columns with these names in lower case.

        Raises ValueError for what cannot be read.
        """
        if lower is not None and not lower:
            return {}
        if stored := self._stored:
            return stored.bounds(lower)
        by_column = decode_as(dict[str, Raw], self.statistics)
        wanted = [column for column in by_column if lower is None or column.lower() in lower]
        found = {column: decode_as(ColumnBounds, by_column[column]) for column in wanted}
        if wrong := next((column for column, it in found.items() if it.lengths() != {len(self.size)}), None):
            raise ValueError(f"the bounds of {wrong!r:.60} are not one for each file")
        return found

    def select(self, kept: Sequence[int]) -> "AddedFiles":
        """Only the files with these indices. Statistics that cannot be read are left out."""

        def of(values: Sequence[Any]) -> list[Any]:
            return [values[i] for i in kept]

        statistics: Any
        if stored := self._stored:
            statistics = stored.select(kept)
        else:
            found: dict[str, ColumnBounds] = {}
            with suppress(ValueError):
                found = self.bounds()
            statistics = pack_bounds(
                {column: ColumnBounds(min=of(b.min), max=of(b.max), nulls=of(b.nulls)) for column, b in found.items()}
            )
        return AddedFiles(
            size=of(self.size),
            rows=of(self.rows),
            partition={column: of(values) for column, values in self.partition.items()},
            statistics=statistics,
            statistics_left_out=self.statistics_left_out,
        )

    @property
    def _stored(self) -> StoredBounds | None:
        statistics: Any = self.statistics
        return statistics if isinstance(statistics, StoredBounds) else None


def with_later_bounds(files: AddedFiles) -> AddedFiles:
    """The same files. Their statistics, and those of a selection of them, are decoded when they are asked for."""
    statistics: Any = files.statistics
    return files if isinstance(statistics, StoredBounds) else replace(files, statistics=_LaterBounds(files))


class _LaterBounds(StoredBounds):
    def __init__(self, files: AddedFiles, kept: Sequence[int] | None = None) -> None:
        self._files, self._kept = files, kept

    def columns(self) -> Collection[str]:
        return self._files.columns()

    def bounds(self, lower: Collection[str] | None = None) -> dict[str, ColumnBounds]:
        found, kept = self._files.bounds(lower), self._kept
        if kept is None:
            return found
        return {
            column: ColumnBounds(
                min=[it.min[i] for i in kept], max=[it.max[i] for i in kept], nulls=[it.nulls[i] for i in kept]
            )
            for column, it in found.items()
        }

    def select(self, kept: Sequence[int]) -> StoredBounds:
        return _LaterBounds(self._files, kept if self._kept is None else [self._kept[i] for i in kept])


def pack_files(files: Sequence[FileInfo]) -> AddedFiles:
    """The files, column by column. Raises InvalidInputError if partition columns differ, or bounds are no JSON."""
    partition_columns = list(files[0].partition) if files else []
    for file in files:
        if list(file.partition) != partition_columns:
            raise InvalidInputError(
                f"{file.path} has the partition columns {list(file.partition)}, another file has {partition_columns}"
            )
    columns = list(dict.fromkeys(column for file in files for column in file.statistics or ()))
    unknown = Bounds()

    def bounds(column: str) -> ColumnBounds:
        each = [(file.statistics or {}).get(column, unknown) for file in files]
        return ColumnBounds(min=[b.min for b in each], max=[b.max for b in each], nulls=[b.nulls for b in each])

    return AddedFiles(
        size=[file.size for file in files],
        rows=[file.rows for file in files],
        partition={column: [file.partition[column] for file in files] for column in partition_columns},
        statistics=pack_bounds({column: bounds(column) for column in columns}),
    )


def without_statistics(files: AddedFiles) -> AddedFiles:
    """The same files without statistics. If there were any, `statistics_left_out` is true."""
    empty, before = pack_bounds({}), cast(Any, files.statistics)
    had_some = isinstance(before, StoredBounds) or memoryview(before).nbytes > memoryview(empty).nbytes
    return replace(files, statistics=empty, statistics_left_out=files.statistics_left_out or had_some)


def pack_bounds(bounds: Mapping[str, ColumnBounds]) -> Raw:
    """The bounds as JSON. Raises InvalidInputError for what is no JSON."""
    return pack_json(bounds, what="statistics")


def bounds_of(bounds: ColumnBounds, i: int) -> Bounds:
    """The bounds of the added file with this index."""
    return Bounds(_scalar(bounds.min[i]), _scalar(bounds.max[i]), bounds.nulls[i])


def _scalar(value: Any) -> Scalar:
    """The bound; None for NaN, infinity, and what is not a single value, since these bound nothing."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str) else None
