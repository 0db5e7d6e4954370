"""What the commits of a table add up to: live files, columns, versions of applications (PROTOCOL.md 8)."""

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers import CommitMarker
from dbio_commit.protocol.names import Partition

UNKNOWN_SIZE = -1
"""Of a file whose writer recorded no size: another DBIO writer's in a table of ours."""


class DataFile(NamedTuple):
    """A live file."""

    path: str
    """Relative to the root of the table."""
    size: int
    """In bytes; UNKNOWN_SIZE where no marker says."""
    tid: str | None
    """The transaction that wrote it; None for an untracked file."""
    partition: Partition


def live_files(commits: Iterable[Decided]) -> tuple[DataFile, ...]:
    """All that was added less all that was removed, in the order of time."""
    commits = sorted(commits, key=itemgetter(0, 1))
    removed = {path for commit in commits for path in commit.marker.removed}
    live: dict[str, DataFile] = {}
    partition_of = cache(names.parse_partition)
    for _, tid, marker, *_ in commits:
        files = marker.dbio_commit.files if marker.dbio_commit else None
        for path, size in zip(marker.added, files.size if files else repeat(UNKNOWN_SIZE), strict=False):
            if path not in removed:
                live[path] = DataFile(path, size, tid, partition_of(path.rpartition("/")[0]))
    return tuple(live.values())


class TableSchema(NamedTuple):
    """The columns of a table, as Spark's JSON, and the last decided turn as of which they are known to be these."""

    json: Mapping[str, Any] | None
    """None where no writer recorded any."""
    turn: int


NO_SCHEMA = TableSchema(None, 0)


def current_schema(markers: Iterable[CommitMarker]) -> TableSchema:
    """The schema that was set last. Changes of schema take turns, so the highest turn is the last."""
    schemas = (
        TableSchema(info.table_schema, info.schema_turn)
        for marker in markers
        if (info := marker.dbio_commit) and not marker.is_abort and info.schema_turn is not None
    )
    return max(schemas, key=lambda schema: schema.turn, default=NO_SCHEMA)


def app_versions(markers: Iterable[CommitMarker], *, before: Mapping[str, int] | None = None) -> dict[str, int]:
    """The highest version that each application has committed (I8); `before` is what a checkpoint remembers."""
    versions = dict(before or {})
    for marker in markers:
        if not marker.is_abort and marker.dbio_commit and (app := marker.dbio_commit.app):
            versions[app.id] = max(app.version, versions.get(app.id, app.version))
    return versions
