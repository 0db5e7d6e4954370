"""How many rows, and values that are not null, the files of a table have, by what their writers recorded. Pure.

Bounds of values are not used: a bound need not be a value of the file (PROTOCOL.md 7.3).
"""

from collections.abc import Iterable, Sequence

from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import bounds_in
from dbio_commit.protocol.state import DataFile, FilesInParts, LiveFiles

CountsByPartition = dict[tuple[str | None, ...], list[int]]
"""By the values of the partition columns: the number of rows, then of values of each column that are not null."""


def count_rows(
    files: Sequence[DataFile], commits: Iterable[Decided], columns: Sequence[str]
) -> CountsByPartition | None:
    """The counts of all files. None if a writer did not record one of them.

    `columns` have the table's spelling, and none is a partition column.
    """
    lower = [column.lower() for column in columns]
    return _in_parts(files, lower) if isinstance(files, FilesInParts) else _in_markers(files, commits, lower)


def _in_parts(files: FilesInParts, lower: Sequence[str]) -> CountsByPartition | None:
    told = files.counts(lower)
    if told is None:
        return None
    found: CountsByPartition = {}
    for directory, (rows, *nulls) in told.items():
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
    """Adds the counts of a file, or of several. Whether they are known, and can be true."""
    values = [None if rows is None or it is None or not 0 <= it <= rows else rows - it for it in nulls]
    if rows is None or rows < 0 or None in values:
        return False
    so_far = found.setdefault(partition, [0] * (1 + len(nulls)))
    for i, count in enumerate([rows, *values]):
        so_far[i] += count or 0
    return True
