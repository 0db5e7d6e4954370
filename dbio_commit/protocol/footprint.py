"""Estimates how much memory markers and checkpoints take. Pure.

Texts and numbers may take nearly all of it, and their memory is measured. That of the objects around them is estimated
from counts.
"""

from collections.abc import Iterable, Mapping
from sys import getsizeof
from typing import Any

from msgspec import Raw

from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.bodies import Deferred
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker
from dbio_commit.protocol.markers.files import AddedFiles
from dbio_commit.protocol.markers.provenance import Provenance, texts_of
from dbio_commit.protocol.markers.start import StartMarker

_OBJECTS_BYTES = 500
"""Bytes of one marker, with its id, its times and the names of its metrics."""

_RANGE_BYTES = 120
"""Bytes of a range of committed versions: a pair of numbers."""

_COMMIT_BYTES = 250
"""Bytes of one commit of a checkpoint without its marker, and of its tid among those that are covered."""


def marker_bytes(marker: CommitMarker) -> int:
    """The memory that a marker takes, estimated. Its schema counts in full, though other markers may share it."""
    return _without_schema(marker) + _schema_bytes(marker)


def start_bytes(begun: StartMarker | None) -> int:
    """The memory that the texts of a start marker take."""
    if begun is None:
        return 0
    size = getsizeof(begun.app.id) if begun.app else 0
    return size + _provenance_bytes(begun.provenance)


def commits_bytes(commits: Iterable[Decided]) -> int:
    """The memory that transactions take, estimated."""
    commits = [*commits]
    schemas = {id(info.schema): info.schema for it in commits if (info := it.marker.dbio_commit)}
    each = (_without_schema(commit.marker) + getsizeof(commit.tid) + _COMMIT_BYTES for commit in commits)
    return sum(each) + sum(map(_raw_bytes, schemas.values()))


def checkpoint_bytes(checkpoint: Checkpoint) -> int:
    """The memory that a checkpoint takes, estimated. What is in parts does not count."""
    return (
        commits_bytes(checkpoint.commits)
        + _mapping_bytes(checkpoint.apps)
        + sum(len(it.ranges) for it in checkpoint.apps.values()) * _RANGE_BYTES
        + _mapping_bytes(checkpoint.metadata.settings or {})
        + _deep_bytes(checkpoint.metadata.schema)
    )


def _without_schema(marker: CommitMarker) -> int:
    info = marker.dbio_commit
    return _list_bytes(marker.added) + _list_bytes(marker.removed) + (_info_bytes(info) if info else 0)


def _info_bytes(info: CommitInfo) -> int:
    size = _OBJECTS_BYTES + getsizeof(info.commit_id) + _mapping_bytes(info.metrics)
    size += getsizeof(info.app.id) if info.app else 0
    size += _mapping_bytes(info.settings) if info.settings else 0
    size += _provenance_bytes(info.provenance)
    size += _list_bytes(info.whole) if info.whole else 0
    size += _list_bytes(info.removed_tids) if info.removed_tids else 0
    size += _list_bytes(info.clustered) if info.clustered else 0
    return size + (_files_bytes(info.files) if info.files else 0)


def _provenance_bytes(by: Provenance | None) -> int:
    return getsizeof(by) + sum(map(getsizeof, texts_of(by))) if by else 0


def _files_bytes(files: AddedFiles) -> int:
    size = _raw_bytes(files.statistics) + _mapping_bytes(files.partition)  # with its lists, without their items
    for texts in files.partition.values():
        size += sum(map(getsizeof, {*texts}))  # equal texts are one object
    for numbers in (files.size, files.rows):
        size += _list_bytes(numbers) if isinstance(numbers, list) else getsizeof(numbers)
    return size


def _list_bytes(values: Any) -> int:
    return getsizeof(values) + sum(map(getsizeof, values))


def _mapping_bytes(values: Mapping[str, Any]) -> int:
    return getsizeof(values) + sum(map(getsizeof, values)) + sum(map(getsizeof, values.values()))


def _schema_bytes(marker: CommitMarker) -> int:
    return _raw_bytes(marker.dbio_commit.schema) if marker.dbio_commit else 0


def _raw_bytes(raw: Raw | Deferred) -> int:
    """The bytes of the JSON; 0 for a `Deferred`, which is read later, and counts for its reader."""
    return 0 if isinstance(raw, Deferred) else memoryview(raw).nbytes


def _deep_bytes(value: Any) -> int:
    """The memory that the JSON of the table's columns takes as objects."""
    size, waiting = 0, [value]
    while waiting:
        it = waiting.pop()
        size += getsizeof(it)
        inner: Iterable[Any] = it.values() if isinstance(it, dict) else it if isinstance(it, list) else ()
        waiting += inner
    return size
