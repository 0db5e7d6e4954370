"""Which files may hold rows that fulfil a condition, by their partitions and the statistics in markers? Pure.

Conservative: if nothing is known of a file, a row may be there. `tree` says what a condition asks.
"""

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from dbio_commit.data.conditions.tree import NOTHING_KNOWN, Condition, Facts, FactsOf
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import CommitMarker, bounds_in
from dbio_commit.protocol.markers.files import Bounds, ColumnBounds, FileInfo, bounds_of
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.partition_values import read
from dbio_commit.protocol.state import (
    TOGETHER,
    Added,
    DataFile,
    FilesInParts,
    LiveFiles,
    MayMatch,
    MayMatchEach,
    in_slices,
)
from dbio_commit.protocol.types import is_integer, type_of

# --- values -------------------------------------------------------------------------------------------------------


def column_types(schema: Mapping[str, Any]) -> dict[str, str]:
    """The table's columns whose type has a name in Spark's JSON, such as `long`. Others cannot be compared here."""
    return {
        field["name"]: field["type"]
        for field in schema.get("fields", ())
        if isinstance(field["type"], str) and field.get("metadata", {}).keys().isdisjoint(_NOT_COMPARED_BY_BYTES)
    }


_NOT_COMPARED_BY_BYTES = ("__COLLATIONS", "__CHAR_VARCHAR_TYPE_STRING")
"""Keys in the metadata of columns of text that have another order, or whose blanks at the end do not count."""


def value_of(bound: Any, kind: str) -> Any:
    """A bound from a marker as a value that can be compared; None if it is no value of the column's type."""
    return _reader(kind)(bound)


@lru_cache(maxsize=1 << 10)
def _reader(kind: str) -> Callable[[Any], Any]:
    """`value_of` for many bounds of one type."""
    row = type_of(kind)
    return row.bound.value if row and row.bound else lambda bound: None


def _partition_value(text: str, kind: str) -> Any:
    """The value in a directory's name; None if it is no value of the column's type, or cannot be compared."""
    try:
        value = read(text, kind)
    except ValueError:  # other readers may find null, an error, or another value
        return None
    is_odd = isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value))
    return None if is_odd else value


# --- files --------------------------------------------------------------------------------------------------------


def prune(
    files: Sequence[DataFile], commits: Iterable[Decided], condition: Condition, types: Mapping[str, str]
) -> LiveFiles:
    """The files that may hold a row which fulfils the condition. `types` are those of `column_types`."""
    columns = [column for column in dict.fromkeys(condition.columns()) if column in types]

    def may(partition: Partition) -> bool:
        return condition.may_hold(_getter(_partition_facts(partition, columns, types)))

    if isinstance(files, FilesInParts):
        lower = {column.lower() for column in columns}
        return files.choose(may, lower, _holds(condition, columns, types), _holds_each(condition, columns, types))
    kept = LiveFiles.of(files).in_partitions(may)
    told = {commit.tid: commit.marker for commit in commits if commit.marker.dbio_commit}
    return kept.select(lambda it: _hopeful(it, told.get(it.tid or ""), condition, columns, types, kept.partition_of))


def judge_partition(condition: Condition, types: Mapping[str, str]) -> Callable[[Partition], bool | None]:
    """Whether a condition on partition columns is true for the rows of a partition. None if that is not known."""
    columns = [column for column in dict.fromkeys(condition.columns()) if column in types]

    def judge(partition: Partition) -> bool | None:
        facts = _getter(_partition_facts(partition, columns, types))
        return False if not condition.may_hold(facts) else condition.must_hold(facts) or None

    return judge


def _holds(condition: Condition, columns: Sequence[str], types: Mapping[str, str]) -> MayMatch | None:
    """Whether a file may hold such a row, by its partition and its bounds. None if there is nothing to ask."""
    if not columns:
        return None

    def holds(partition: Partition, bounds: Mapping[str, Bounds], rows: int | None) -> bool:
        told = {name.lower(): it for name, it in bounds.items()}
        own = {it: facts_of_bounds(told[it.lower()], rows, types[it]) for it in columns if it.lower() in told}
        return condition.may_hold(_getter(own | _partition_facts(partition, columns, types)))

    return holds


def _holds_each(condition: Condition, columns: Sequence[str], types: Mapping[str, str]) -> MayMatchEach:
    def holds(bounds: Mapping[str, tuple[Any, Any]], count: int) -> Any:
        from dbio_commit.data.conditions.arrays import Ends, Spread, may_hold_each  # imports pyarrow

        spread: dict[str, Spread] = {}
        for column in columns:
            if column.lower() in bounds:
                low, high = bounds[column.lower()]
                are_values = is_integer(types[column]) and str(low.type) == str(high.type) == "int64"
                read = None if are_values else _reader(types[column])
                spread[column] = Spread(Ends(low, read), Ends(high, read))
        return may_hold_each(condition, spread, count)

    return holds


def facts_of_file(file: FileInfo, columns: Iterable[str], types: Mapping[str, str]) -> FactsOf:
    """What the writer of a new file knows of these columns of it."""
    columns = list(columns)
    told = {name.lower(): bounds for name, bounds in (file.statistics or {}).items()}
    own = {it: facts_of_bounds(told[it.lower()], file.rows, types.get(it, "")) for it in columns if it.lower() in told}
    return _getter(own | _partition_facts(file.partition, columns, types))


def _hopeful(
    added: Added,
    marker: CommitMarker | None,
    condition: Condition,
    columns: Sequence[str],
    types: Mapping[str, str],
    partition_of: Callable[[str], Partition],
) -> Collection[str]:
    """The paths of a transaction's files that may hold such a row, by the statistics and the partitions."""
    info = marker.dbio_commit.files if marker and marker.dbio_commit else None
    if marker is None or info is None:
        return added.paths
    parts = {name.lower() for path in added.paths[:1] for name in partition_of(path)}  # the paths have their values
    bounds = bounds_in(marker, lower={column.lower() for column in columns} - parts)
    by_name = {name.lower(): it for name, it in bounds.items()}
    if not by_name:
        return added.paths
    told = {column: by_name[column.lower()] for column in columns if column.lower() in by_name}
    if not _may_hold_in(condition, told, info.rows, types):
        return ()
    number = {path: i for i, path in enumerate(marker.added)}
    may = {i: _may_hold_in(condition, told, info.rows, types, some) for i, some in in_slices(len(marker.added))}
    kept: list[str] = []
    for path in added.paths:
        i = number.get(path)
        if i is not None and not may[i - i % TOGETHER]:
            continue
        if i is not None:
            own = {
                column: facts_of_bounds(bounds_of(it, i), info.rows[i], types[column]) for column, it in told.items()
            }
            if not condition.may_hold(_getter(own | _partition_facts(partition_of(path), columns, types))):
                continue
        kept.append(path)
    return kept


def facts_of_bounds(bounds: Bounds | None, rows: int | None, kind: str) -> Facts:
    """What the bounds of a column of this type say; without bounds, only how many rows there are."""
    if bounds is None:
        return Facts(rows=rows)
    return Facts(value_of(bounds.min, kind), value_of(bounds.max, kind), bounds.nulls, rows)


def _may_hold_in(
    condition: Condition,
    bounds: Mapping[str, ColumnBounds],
    rows: Sequence[int | None],
    types: Mapping[str, str],
    some: slice = slice(None),
) -> bool:
    """Whether it may hold in one of these files. `bounds` are by the table's spelling of the columns."""
    facts = {column: _facts_of_all(it, rows, types[column], some) for column, it in bounds.items()}
    return condition.may_hold(_getter(facts))


def _facts_of_all(told: ColumnBounds, rows: Sequence[int | None], kind: str, some: slice = slice(None)) -> Facts:
    """The facts of all files of a commit together, or of some of them. For most commits they suffice; a million single
    files would take seconds."""
    low, high = _extreme(min, told.min[some], kind), _extreme(max, told.max[some], kind)
    return Facts(low, high, _sum(told.nulls[some]), _sum(rows[some]))


def _extreme(of: Callable[[Iterable[Any]], Any], bounds: Sequence[Any], kind: str) -> Any:
    values = bounds if isinstance(bounds, array) and is_integer(kind) else [*map(_reader(kind), bounds)]
    return None if not values or None in values else of(values)


def _sum(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(count for count in counts if count is not None)


def _partition_facts(
    partition: Mapping[str, str | None], columns: Sequence[str], types: Mapping[str, str]
) -> dict[str, Facts]:
    values = {name.lower(): value for name, value in partition.items()}
    facts: dict[str, Facts] = {}
    for column in columns:
        if column.lower() in values:
            text = values[column.lower()]
            value = None if text is None else _partition_value(text, types.get(column, ""))
            if text is None:
                facts[column] = Facts(nulls=1, rows=1)
            elif value is not None:
                facts[column] = Facts(value, value, nulls=0)
    return facts


def _getter(facts: Mapping[str, Facts]) -> FactsOf:
    return lambda column: facts.get(column, NOTHING_KNOWN)
