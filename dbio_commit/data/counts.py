"""Counts rows and values by what writers recorded, and reads what they recorded of each file. Pure.

A bound need not be a value of the file (PROTOCOL.md 7.3). So counts use no bounds, and the least and the greatest
values are read from the files.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dbio_commit.data.conditions.pruning import facts_of_bounds
from dbio_commit.data.conditions.tree import Facts
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import bounds_in
from dbio_commit.protocol.markers.files import Bounds, bounds_of
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.state import Added, DataFile, FilesInParts, LiveFiles

CountsByPartition = dict[tuple[str | None, ...], list[int]]
"""For each partition: the number of rows, then for each column the number of values that are not null."""


def count_rows(
    files: Sequence[DataFile], commits: Iterable[Decided], columns: Sequence[str]
) -> CountsByPartition | None:
    """The counts of all files. None if a writer did not record one of them.

    `columns` have the table's spelling, and none is a partition column.
    """
    lower = [column.lower() for column in columns]
    return _in_parts(files, lower) if isinstance(files, FilesInParts) else _in_markers(files, commits, lower)


def _in_parts(files: FilesInParts, lower: Sequence[str]) -> CountsByPartition | None:
    counts = files.counts(lower)
    if counts is None:
        return None
    found: CountsByPartition = {}
    for directory, (rows, *nulls) in counts.items():
        if not _add(found, tuple(names.parse_partition(directory).values()), rows, nulls):
            return None
    return found


def _in_markers(
    files: Sequence[DataFile], commits: Iterable[Decided], lower: Sequence[str]
) -> CountsByPartition | None:
    found: CountsByPartition = {}
    markers = {commit.tid: commit.marker for commit in commits}
    live = LiveFiles.of(files)
    for added in live.by_transaction:
        marker = markers.get(added.tid or "")
        info = marker.dbio_commit.files if marker and marker.dbio_commit else None
        if marker is None or info is None:
            return None
        bounds = {name.lower(): it.nulls for name, it in bounds_in(marker, lower={*lower}).items()}
        if not bounds.keys() >= {*lower}:
            return None
        number = {path: i for i, path in enumerate(marker.added)}
        for path in added.paths:
            i = number.get(path)
            if i is None:
                return None
            nulls = [bounds[column][i] for column in lower]
            if not _add(found, tuple(live.partition_of(path).values()), info.rows[i], nulls):
                return None
    return found


def _add(
    found: CountsByPartition, partition: tuple[str | None, ...], rows: int | None, nulls: Sequence[int | None]
) -> bool:
    """Adds the counts of a file, or of several. Returns whether they are known, and can be true."""
    values = [None if rows is None or it is None or not 0 <= it <= rows else rows - it for it in nulls]
    if rows is None or rows < 0 or None in values:
        return False
    so_far = found.setdefault(partition, [0] * (1 + len(nulls)))
    for i, count in enumerate([rows, *values]):
        so_far[i] += count or 0
    return True


# --- where extremes may be --------------------------------------------------------------------------------------------


class Extreme(NamedTuple):
    """The least or the greatest value of a column."""

    column: str
    kind: str
    """The type, as in `column_types`."""
    is_greatest: bool


def may_hold_extremes(
    files: Sequence[DataFile], commits: Iterable[Decided], wanted: Sequence[Extreme]
) -> Sequence[DataFile]:
    """The files that may hold one of these values. No column is a partition column."""
    best: list[Any] = [None] * len(wanted)

    def look(facts: Sequence[Facts]) -> bool:
        for i, (extreme, it) in enumerate(zip(wanted, facts, strict=True)):
            # The file has a value, which is at this bound or beyond it. So the extreme is, too.
            sure = None if it.nulls is None or it.rows is None or it.nulls >= it.rows else _sure(extreme, it)
            if sure is not None and (best[i] is None or _is_beyond(extreme, sure, best[i])):
                best[i] = sure
        return False

    def may_hold(facts: Sequence[Facts]) -> bool:
        return any(map(_may_hold, wanted, facts, best))

    if isinstance(files, FilesInParts):
        columns = {extreme.column.lower() for extreme in wanted}
        files.choose(lambda _: True, columns, _of_bounds(look, wanted))
        return files.choose(lambda _: True, columns, _of_bounds(may_hold, wanted))
    markers = {commit.tid: commit for commit in commits}
    live, kinds = LiveFiles.of(files), [(it.column, it.kind) for it in wanted]
    for added in live.by_transaction:
        for _, facts in facts_in(added, markers, kinds):
            look(facts)
    return live.select(lambda added: [path for path, facts in facts_in(added, markers, kinds) if may_hold(facts)])


def _sure(extreme: Extreme, facts: Facts) -> Any:
    """The bound on the other side: all values of the file are at it, or beyond it towards the extreme."""
    return facts.low if extreme.is_greatest else facts.high


def _is_beyond(extreme: Extreme, value: Any, other: Any) -> bool:
    return bool(value > other if extreme.is_greatest else value < other)


def _may_hold(extreme: Extreme, facts: Facts, best: Any) -> bool:
    bound = facts.high if extreme.is_greatest else facts.low
    return facts.has_values and (best is None or bound is None or not _is_beyond(extreme, best, bound))


def _of_bounds(
    function: Callable[[Sequence[Facts]], bool], wanted: Sequence[Extreme]
) -> Callable[[Partition, Mapping[str, Bounds], int | None], bool]:
    def of(partition: Partition, bounds: Mapping[str, Bounds], rows: int | None) -> bool:
        by_lower = {name.lower(): it for name, it in bounds.items()}
        return function([facts_of_bounds(by_lower.get(it.column.lower()), rows, it.kind) for it in wanted])

    return of


# --- facts of files -------------------------------------------------------------------------------------------------


def facts_in(
    added: Added, markers: Mapping[str, Decided], columns: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, list[Facts]]]:
    """The path of each file that a transaction added, with the facts of these columns. They are given as name and type,
    and none is a partition column."""
    commit = markers.get(added.tid or "")
    info = commit.marker.dbio_commit.files if commit and commit.marker.dbio_commit else None
    if commit is None or info is None:
        yield from ((path, [Facts()] * len(columns)) for path in added.paths)
        return
    bounds = bounds_in(commit.marker, lower={name.lower() for name, _ in columns})
    by_lower = {name.lower(): it for name, it in bounds.items()}
    number = {path: i for i, path in enumerate(commit.marker.added)}
    for path in added.paths:
        i = number.get(path)
        rows = None if i is None else info.rows[i]
        each = [None if i is None or name.lower() not in by_lower else bounds_of(by_lower[name.lower()], i)
                for name, _ in columns]  # fmt: skip
        yield path, [facts_of_bounds(it, rows, kind) for it, (_, kind) in zip(each, columns, strict=True)]
