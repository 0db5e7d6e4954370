"""The commit marker, `_committed_<tid>`: which files a transaction adds and removes, and what else it changes. Pure.

What all commits of a table add up to is in `state`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Raw, Struct
from msgspec.structs import force_setattr, replace

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import (
    INSPECT,
    MAX_BYTES,
    REFERRING,
    VERSION,
    Body,
    Count,
    TableId,
    decode_as,
    decode_body,
    encode,
    in_utc,
    written,
)
from dbio_commit.protocol.markers.files import AddedFiles, ColumnBounds, FileInfo, bounds_of, select, without_statistics
from dbio_commit.protocol.markers.schema import NO_SCHEMA, Schemas, check_schema, decode_schema
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import check_told

Operation = Literal["append", "overwrite", "replace_partitions", "rewrite", "abort", "adopt"]


class CommitInfo(Body, frozen=True, kw_only=True):
    """What we write into a commit marker beyond DBIO's keys."""

    version: Literal[1, 2] = written(VERSION)
    operation: Operation
    commit_id: str
    """Random: tells our own marker from a stranger's."""
    timestamp: datetime
    """By the writer's clock."""
    table_id: TableId | None = None
    """The descriptor's of the table for which it was made; None where an earlier version wrote it."""
    dated: datetime | None = None
    """The descriptor's time on the store, as the writer saw it: a copy of the table has another."""
    turn: Count | None = None
    """The turn under which it was committed; None for a blind append."""
    app: App | None = None
    metrics: Mapping[str, int] = written({})
    schema: Raw = NO_SCHEMA
    """The text of `table_schema`: thousands of markers have the same."""
    schema_turn: Count | None = None
    """The last decided turn as of which the writer knew the table to have this schema, and these settings."""
    settings: dict[str, str] | None = None
    """The table's settings after this commit; None where its writer knew of none that the table has or had."""
    data_change: bool | None = None
    """False where the rows after it are those before it: what it adds holds what it removes."""
    files: AddedFiles | None = None
    whole: list[str] | None = None
    """Where change files tell what came and went: other added and removed paths, all of whose rows did."""
    removed_tids: list[str] | None = None
    """Transactions, in the place of the paths of all files that they added and that are live (`references`)."""

    def __post_init__(self) -> None:
        in_utc(self, "timestamp", "dated")
        check_told(self.settings)
        if not self.schema:
            force_setattr(self, "schema", NO_SCHEMA)  # for a copy: what is left out is told by identity

    @property
    def table_schema(self) -> dict[str, Any] | None:
        """The table's columns after this commit, as Spark's JSON."""
        return decode_schema(self.schema)


class CommitMarker(Body, frozen=True, kw_only=True):
    """The body of `_committed_<tid>`, of ours or of any DBIO writer (then without `dbio_commit`)."""

    NEWEST: ClassVar[int] = REFERRING

    added: list[str]
    removed: list[str]
    dbio_commit: CommitInfo | None = None

    @classmethod
    def version_in(cls, body: bytes) -> int | float | str:
        info = decode_as(_Versioned, body).dbio_commit
        return info.version if info else VERSION

    def __post_init__(self) -> None:
        info = self.dbio_commit
        if info is not None and info.files is not None and info.files.lengths() - {len(self.added)}:
            raise ValueError("dbio_commit.files does not describe the added paths one by one")
        if self.is_abort and (self.added or self.removed or self.removed_tids):
            raise ValueError("an abort adds and removes nothing")
        if info is not None and bool(info.removed_tids) != (info.version == REFERRING):
            raise ValueError(f"version {REFERRING} is that of markers with removed_tids, and of no others")

    @property
    def removed_tids(self) -> Sequence[str]:
        """See `CommitInfo`."""
        return (self.dbio_commit.removed_tids if self.dbio_commit else None) or ()

    @property
    def change_files(self) -> list[str]:
        """The paths that it adds and removes: they tell which rows it changed."""
        if not self.is_recorded:
            return []
        removed = set(self.removed)
        return [path for path in self.added if path in removed]

    @property
    def data_files(self) -> list[str]:
        """The other paths that it adds, which hold rows of the table."""
        return self._without_changes(self.added)

    @property
    def removed_data_files(self) -> list[str]:
        """The other paths that it removes."""
        return self._without_changes(self.removed)

    def _without_changes(self, paths: list[str]) -> list[str]:
        own = set(self.change_files)
        return [path for path in paths if path not in own] if own else paths

    @property
    def is_recorded(self) -> bool:
        """Whether change files, and `whole`, tell what came and went."""
        return self.dbio_commit is not None and self.dbio_commit.whole is not None

    @property
    def is_data_change(self) -> bool:
        """Whether the rows after it may be others than before it."""
        return self.dbio_commit is None or self.dbio_commit.data_change is not False

    @property
    def is_abort(self) -> bool:
        return self.dbio_commit is not None and self.dbio_commit.operation == "abort"

    def is_of(self, files: Collection[str]) -> bool:
        """Whether it adds these files. A checkpoint forgets some, and knows how many there were."""
        count = self.dbio_commit.metrics.get("numFiles") if self.dbio_commit else None
        return count == len(files) and set(self.data_files) <= set(files)


def abort_marker(*, commit_id: str, timestamp: datetime) -> CommitMarker:
    """A commit of nothing, which decides a transaction against its writer (I3)."""
    info = CommitInfo(operation="abort", commit_id=commit_id, timestamp=timestamp)
    return CommitMarker(added=[], removed=[], dbio_commit=info)


def unpack_files(marker: CommitMarker) -> list[FileInfo]:
    """What the marker says about each file that it adds; empty where it says nothing (another DBIO writer's)."""
    files = marker.dbio_commit.files if marker.dbio_commit else None
    if files is None:
        return []
    told = bounds_in(marker)
    return [
        FileInfo(
            path=path,
            size=files.size[i],
            rows=files.rows[i],
            partition={column: values[i] for column, values in files.partition.items()},
            statistics={column: bounds_of(bounds, i) for column, bounds in told.items()} or None,
        )
        for i, path in enumerate(marker.added)
    ]


def bounds_in(marker: CommitMarker, *, lower: Collection[str] | None = None) -> dict[str, ColumnBounds]:
    """What the marker says of each column that its files have; of columns whose names in lower case are `lower`.

    They are hints: what cannot be read says nothing (PROTOCOL.md 7.3). `check_statistics` tells.
    """
    with suppress(ValueError):
        return _decode_bounds(marker, lower)
    return {}


def columns_in(marker: CommitMarker) -> Collection[str]:
    """The columns of which the marker has statistics, as its files spell them; none where they cannot be read."""
    files = marker.dbio_commit.files if marker.dbio_commit else None
    with suppress(ValueError):
        return decode_as(dict[str, Raw], files.statistics) if files else ()
    return ()


def _decode_bounds(marker: CommitMarker, lower: Collection[str] | None = None) -> dict[str, ColumnBounds]:
    files = marker.dbio_commit.files if marker.dbio_commit else None
    if files is None or lower == set():
        return {}
    told = decode_as(dict[str, Raw], files.statistics)
    wanted = [column for column in told if lower is None or column.lower() in lower]
    found = {column: decode_as(ColumnBounds, told[column]) for column in wanted}
    if wrong := next((column for column, it in found.items() if it.lengths() != {len(marker.added)}), None):
        raise ValueError(f"there is not one bound of {wrong!r:.60} for each file")
    return found


def check_statistics(marker: CommitMarker, *, where: str) -> None:
    """Raises CorruptMarkerError where they cannot be read; nobody skips files by them."""
    try:
        _decode_bounds(marker)
    except ValueError as error:
        raise CorruptMarkerError(
            f"the statistics in {where} cannot be read: {error}; its files are read, and none is skipped by them"
        ) from None


def select_files(marker: CommitMarker, *, added: Sequence[int], removed: Sequence[int]) -> CommitMarker:
    """The marker with these of its added and removed paths only, given by their indices."""
    info = marker.dbio_commit
    if info is not None and info.files is not None:
        info = replace(info, files=select(info.files, added, bounds_in(marker)))
    return CommitMarker(
        added=[marker.added[i] for i in added], removed=[marker.removed[i] for i in removed], dbio_commit=info
    )


def encode_commit(
    marker: CommitMarker,
    *,
    shorten: Callable[[CommitMarker], CommitMarker] | None = None,
    shorten_above: int = MAX_BYTES,
    limit_bytes: int = MAX_BYTES,
) -> bytes:
    """The marker's body; where that is too long, of what `shorten` makes of it, and then without its statistics.

    Raises InvalidInputError where it does not fit even so, or where no reader could read it back.
    """
    try:
        body = encode(marker)
        if len(body) > shorten_above and shorten:
            marker = shorten(marker)
            body = encode(marker)
        info = marker.dbio_commit
        if len(body) > limit_bytes and info is not None and info.files is not None:
            body = encode(replace(marker, dbio_commit=replace(info, files=without_statistics(info.files))))
        if len(body) <= limit_bytes:
            check_statistics(decode_commit(body, where="the commit marker"), where="the commit marker")
            return body
    except (TypeError, ValueError, CorruptMarkerError) as error:
        raise InvalidInputError(f"this cannot be committed, because no reader could read it: {error}") from None
    raise InvalidInputError(
        f"the commit marker would have {len(body)} bytes for {len(marker.added)} added and {len(marker.removed)} "
        f"removed files, and one PUT holds {limit_bytes}; write fewer and larger files, or in several transactions"
    )


def decode_commit(
    body: bytes, *, where: str, scope: Scope | None = None, schemas: Schemas | None = None
) -> CommitMarker:
    """The marker in the body; `where` is its URL. Every path in it stays inside the table.

    It has the same schema, in one object, as others that are read with these `schemas`. Raises CorruptMarkerError, also
    for what no marker of the `scope` says, and UnsupportedTableError for a later version of the protocol.
    """
    marker = decode_body(CommitMarker, body, where=where)
    if marker.dbio_commit and marker.dbio_commit.schema:
        share_schema(marker.dbio_commit, {} if schemas is None else schemas, where=where)
    check_marker(marker, where=where, scope=scope)
    return marker


def share_schema(info: CommitInfo, schemas: Schemas, *, where: str) -> None:
    """Puts an equal one of these into its place, or adds it to them. Raises CorruptMarkerError for what is none."""
    text = bytes(info.schema)
    if text not in schemas:
        if text != b"null":
            check_schema(text, where=where)
        schemas[text] = NO_SCHEMA if text == b"null" else Raw(text)
    force_setattr(info, "schema", schemas[text])


def check_marker(marker: CommitMarker, *, where: str, scope: Scope | None) -> None:
    """Raises CorruptMarkerError where it says too little, or names a path outside the table, or of another scope."""
    if scope is Scope.TABLE:
        names.check_visible(marker.added, where=where)
    else:
        names.check_paths(marker.added, where=where)
    names.check_paths(marker.removed, where=where)
    if wrong := next((tid for tid in marker.removed_tids if not names.is_tid(tid)), None):
        raise CorruptMarkerError(f"{where} removes the files of no tid but {wrong[:100]!r}; {INSPECT}")
    if scope is Scope.DIRECTORY:
        _check_local(marker, where=where)


def _check_local(marker: CommitMarker, *, where: str) -> None:
    """In the directory scope, markers name files of their own directory only, and each of them."""
    if marker.removed_tids:
        raise CorruptMarkerError(
            f"{where} names transactions whose files go, which only a table's markers may. {INSPECT}"
        )
    for name in (*marker.added, *marker.removed):
        if "/" in name:
            raise CorruptMarkerError(
                f"{where} names {name[:200]!r}, which lies in another directory; without a {names.DESCRIPTOR} at the "
                "root a marker speaks of its own directory only. Inspect it"
            )


class _Info(Struct):
    version: int | float | str = VERSION


class _Versioned(Struct):
    dbio_commit: _Info | None = None
