"""The commit marker, `_committed_<tid>`: which files a transaction adds and removes, and what else it changes. Pure.

What all commits of a table add up to is in `state`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, Final, Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr, replace

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import (
    INSPECT,
    JOINT,
    MAX_BYTES,
    REFERRING,
    VERSION,
    Body,
    Count,
    TableId,
    decode_as,
    decode_body,
    encode,
    in_utc_of_a_clock,
    pack_json,
    written,
)
from dbio_commit.protocol.markers.files import AddedFiles, ColumnBounds, FileInfo, bounds_of, without_statistics
from dbio_commit.protocol.markers.joint import HERE, Joint, check_other
from dbio_commit.protocol.markers.provenance import Provenance
from dbio_commit.protocol.markers.schema import NO_SCHEMA, Schemas, check_schema, decode_schema
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import check_recorded

Operation = Literal["append", "overwrite", "overwrite_partitions", "rewrite", "abort", "adopt"]
"""What a transaction does. "adopt" and "abort" are in markers only."""

RecordedOperation = Literal["append", "overwrite", "replace_partitions", "rewrite", "abort", "adopt"]
"""The same as bodies record it (PROTOCOL.md 7.2): `replace_partitions` is an older word."""

_RECORDED: Final[Mapping[Operation, RecordedOperation]] = {
    "append": "append",
    "overwrite": "overwrite",
    "overwrite_partitions": "replace_partitions",
    "rewrite": "rewrite",
    "abort": "abort",
    "adopt": "adopt",
}
_OPERATIONS: Final[Mapping[RecordedOperation, Operation]] = {word: it for it, word in _RECORDED.items()}


def as_recorded(operation: Operation) -> RecordedOperation:
    """The word for the operation in a marker's body; `CommitInfo.operation` translates it back."""
    return _RECORDED[operation]


class CommitInfo(Body, frozen=True, kw_only=True):
    """What dbio writes into a commit marker besides DBIO's keys."""

    version: Literal[1, 2, 3] = written(VERSION)
    recorded: RecordedOperation = msgspec.field(name="operation")
    """The operation, in the word of the body: `as_recorded`."""
    commit_id: str
    """Random: a writer recognises its own marker by it."""
    timestamp: datetime
    """When the marker was made, by the writer's clock."""
    table_id: TableId | None = None
    """The id in the descriptor of the writer's table; None if an earlier version wrote it."""
    dated: datetime | None = None
    """The descriptor's time on the store, as the writer saw it. In a copy of the table it differs."""
    turn: Count | None = None
    """The turn under which it was committed; None for a blind append."""
    app: App | None = None
    provenance: Provenance | None = None
    """Who made the transaction."""
    metrics: Mapping[str, int] = written({})
    schema: Raw = NO_SCHEMA
    """The JSON of `table_schema`. Thousands of markers share it."""
    schema_turn: Count | None = None
    """The last decided turn as of which the writer knew this schema, and these settings, of the table."""
    settings: dict[str, str] | None = None
    """The table's settings after this commit; None if the table has never had any, as far as its writer knew."""
    data_change: bool | None = None
    """False if the commit does not change rows: the files that it adds have the rows of those that it removes."""
    files: AddedFiles | None = None
    whole: list[str] | None = None
    """If the commit has change files: the other paths that it adds or removes, all of whose rows came or went."""
    clustered: list[str] | None = None
    """The columns by whose values it has divided its rows among its files. Only a compaction of this table reads it."""
    removed_tids: list[str] | None = None
    """Transactions instead of paths: the commit removes all live files that these added (`references`)."""

    joint: Joint | None = None
    """Of a joint transaction: its tables."""

    def __post_init__(self) -> None:
        in_utc_of_a_clock(self, "timestamp", "dated")
        check_recorded(self.settings)
        if self.version == JOINT:
            self._leave_out_parts()
        if not self.schema:
            force_setattr(
                self, "schema", NO_SCHEMA
            )  # for a copy: msgspec leaves out a default only if it is this object

    def _leave_out_parts(self) -> None:
        """Only who carries out the parts reads them (`read_parts`). To all others this is a marker of an earlier
        version."""
        if self.joint is None or self.joint.parts is None:
            raise ValueError(f"a marker of version {JOINT} has joint.parts")
        force_setattr(self, "joint", replace(self.joint, parts=None))
        force_setattr(self, "version", REFERRING if self.removed_tids else VERSION)

    @property
    def operation(self) -> Operation:
        """The operation, in the word that users know."""
        return _OPERATIONS[self.recorded]

    @property
    def table_schema(self) -> dict[str, Any] | None:
        """The table's columns after this commit, as Spark's JSON."""
        return decode_schema(self.schema)


class CommitMarker(Body, frozen=True, kw_only=True):
    """The body of `_committed_<tid>`, by dbio or by any DBIO writer (then without `dbio_commit`)."""

    NEWEST: ClassVar[int] = JOINT

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
            raise ValueError(f"a marker with removed_tids has version {REFERRING}, and no other marker has")

    @property
    def removed_tids(self) -> Sequence[str]:
        """`CommitInfo.removed_tids`."""
        return (self.dbio_commit.removed_tids if self.dbio_commit else None) or ()

    @property
    def change_files(self) -> list[str]:
        """The paths that it both adds and removes: change files, with the rows that it changed."""
        if not self.is_recorded:
            return []
        removed = set(self.removed)
        return [path for path in self.added if path in removed]

    @property
    def data_files(self) -> list[str]:
        """The paths that it adds except change files: data files."""
        return self._without_changes(self.added)

    @property
    def removed_data_files(self) -> list[str]:
        """The paths that it removes except change files."""
        return self._without_changes(self.removed)

    def _without_changes(self, paths: list[str]) -> list[str]:
        own = set(self.change_files)
        return [path for path in paths if path not in own] if own else paths

    @property
    def is_recorded(self) -> bool:
        """Whether change files, and `whole`, record the rows that came and went."""
        return self.dbio_commit is not None and self.dbio_commit.whole is not None

    @property
    def is_data_change(self) -> bool:
        """Whether the commit may have changed the rows of the table."""
        return self.dbio_commit is None or self.dbio_commit.data_change is not False

    @property
    def is_abort(self) -> bool:
        return self.dbio_commit is not None and self.dbio_commit.operation == "abort"

    @property
    def joint_with(self) -> list[str]:
        """The other tables of its joint transaction, by the paths of their roots from this one; else empty."""
        joint = self.dbio_commit.joint if self.dbio_commit else None
        return [it.path for it in joint.tables if it.path != HERE] if joint else []

    def is_of(self, files: Collection[str]) -> bool:
        """Whether it adds exactly these files. A checkpoint may have forgotten some, but records their number."""
        count = self.dbio_commit.metrics.get("numFiles") if self.dbio_commit else None
        return count == len(files) and set(self.data_files) <= set(files)


def abort_marker(*, commit_id: str, timestamp: datetime) -> CommitMarker:
    """A marker that commits nothing, and decides a transaction against its writer (I3)."""
    info = CommitInfo(recorded="abort", commit_id=commit_id, timestamp=timestamp)
    return CommitMarker(added=[], removed=[], dbio_commit=info)


def unpack_files(marker: CommitMarker) -> list[FileInfo]:
    """What the marker records about each file that it adds; empty if it is another DBIO writer's, which records
    nothing."""
    files = marker.dbio_commit.files if marker.dbio_commit else None
    if files is None:
        return []
    by_column = bounds_in(marker)
    return [
        FileInfo(
            path=path,
            size=files.size[i],
            rows=files.rows[i],
            partition={column: values[i] for column, values in files.partition.items()},
            statistics={column: bounds_of(bounds, i) for column, bounds in by_column.items()} or None,
        )
        for i, path in enumerate(marker.added)
    ]


def bounds_in(marker: CommitMarker, *, lower: Collection[str] | None = None) -> dict[str, ColumnBounds]:
    """The bounds in the marker by column. `lower` limits them to columns with these names in lower case.

    Bounds are hints. Those that cannot be read are ignored (PROTOCOL.md 7.3); `check_statistics` reports them.
    """
    files = marker.dbio_commit.files if marker.dbio_commit else None
    with suppress(ValueError):
        return files.bounds(lower) if files else {}
    return {}


def lean(marker: CommitMarker) -> CommitMarker:
    """The marker without statistics."""
    info = marker.dbio_commit
    if info is None or info.files is None:
        return marker
    return replace(marker, dbio_commit=replace(info, files=without_statistics(info.files)))


def is_lean(marker: CommitMarker) -> bool:
    """Whether the marker had statistics that were left out."""
    files = marker.dbio_commit.files if marker.dbio_commit else None
    return files is not None and files.statistics_left_out


def columns_in(marker: CommitMarker) -> Collection[str]:
    """The columns that have statistics in the marker, as its files spell them; none if these cannot be read."""
    files = marker.dbio_commit.files if marker.dbio_commit else None
    with suppress(ValueError):
        return files.columns() if files else ()
    return ()


def check_statistics(marker: CommitMarker, *, where: str) -> None:
    """Raises CorruptMarkerError if the statistics cannot be read. Then readers skip no files by them."""
    files = marker.dbio_commit.files if marker.dbio_commit else None
    try:
        if files:
            files.bounds()
    except ValueError as error:
        raise CorruptMarkerError(
            f"the statistics in {where} cannot be read: {error}; its files are read, and none is skipped by them"
        ) from None


def select_files(marker: CommitMarker, *, added: Sequence[int], removed: Sequence[int]) -> CommitMarker:
    """The marker with only these of its added and removed paths, given by their indices."""
    info = marker.dbio_commit
    if info is not None and info.files is not None:
        info = replace(info, files=info.files.select(added))
    return CommitMarker(
        added=[marker.added[i] for i in added], removed=[marker.removed[i] for i in removed], dbio_commit=info
    )


def encode_commit(
    marker: CommitMarker,
    *,
    shorten: Callable[[CommitMarker], CommitMarker] | None = None,
    shorten_above: int = MAX_BYTES,
    limit_bytes: int = MAX_BYTES,
    warn: Callable[[str], None] | None = None,
) -> bytes:
    """The marker's body. If it is longer than `shorten_above`, that of what `shorten` returns. If that exceeds
    `limit_bytes`, without statistics.

    `warn` is called with a sentence if the statistics were left out. Raises InvalidInputError if the marker does not
    fit even so, or if no reader could read it back.
    """
    note = None
    try:
        body = encode(marker)
        if len(body) > shorten_above and shorten:
            marker = shorten(marker)
            body = encode(marker)
        if len(body) > limit_bytes and marker.dbio_commit is not None and marker.dbio_commit.files is not None:
            note = _left_out(marker, len(body), limit_bytes)
            body = encode(lean(marker))
        if len(body) <= limit_bytes:
            check_statistics(decode_commit(body, where="the commit marker"), where="the commit marker")
            if note and warn:
                warn(note)
            return body
    except (TypeError, ValueError, CorruptMarkerError) as error:
        why = str(error).removesuffix(f"; {INSPECT}")
        raise InvalidInputError(f"this cannot be committed, because no reader could read it: {why}") from None
    raise InvalidInputError(
        f"the commit marker would have {len(body)} bytes for {len(marker.added)} added and {len(marker.removed)} "
        f"removed files, and one PUT holds {limit_bytes}; write fewer and larger files, or in several transactions"
    )


def _left_out(marker: CommitMarker, size: int, limit_bytes: int) -> str:
    return (
        f"the statistics of {len(columns_in(marker))} columns in {len(marker.added)} files are not recorded, because "
        f"the commit marker would have {size} bytes with them, and one PUT holds {limit_bytes}. Readers skip none of "
        "these files by their values: write fewer and larger files, or in several transactions; `dbio compact` "
        "rewrites small files, and records statistics of the new ones"
    )


def encode_home(body: bytes, joint: Joint) -> bytes:
    """The body of the marker in the home of a joint transaction: that of the home's own part, with the parts of the
    other tables. Raises InvalidInputError if it does not fit into one PUT."""
    marker = decode_as(dict[str, Raw], body)
    info = decode_as(dict[str, Raw], marker["dbio_commit"])
    info |= {"version": Raw(str(JOINT).encode()), "joint": Raw(encode(joint))}
    found = bytes(pack_json({**marker, "dbio_commit": info}, what="markers"))
    if len(found) > MAX_BYTES:
        raise InvalidInputError(
            f"the commit marker of the joint transaction would have {len(found)} bytes, and one PUT holds {MAX_BYTES}; "
            "write fewer and larger files"
        )
    return found


def read_parts(body: bytes, *, where: str) -> Mapping[str, bytes]:
    """The bodies of commit markers for the other tables of a joint transaction, by the ids of these tables, in the
    marker of its home. Raises CorruptMarkerError."""
    try:
        parts = decode_as(_Home, body).dbio_commit.joint.parts
    except ValueError as error:
        raise CorruptMarkerError(f"the parts in {where} cannot be read: {error}; {INSPECT}") from None
    return {part.id: bytes(part.marker) for part in parts or ()}


def decode_commit(
    body: bytes, *, where: str, scope: Scope | None = None, schemas: Schemas | None = None
) -> CommitMarker:
    """The marker in the body. `where` is its URL. Every path in it stays inside the table.

    Markers that are read with the same `schemas` share equal schemas. Raises CorruptMarkerError, also for a marker that
    its `scope` does not allow, and UnsupportedTableError for a later version of the protocol.
    """
    marker = decode_body(CommitMarker, body, where=where)
    if marker.dbio_commit and marker.dbio_commit.schema:
        share_schema(marker.dbio_commit, {} if schemas is None else schemas, where=where)
    check_marker(marker, where=where, scope=scope)
    return marker


def share_schema(info: CommitInfo, schemas: Schemas, *, where: str) -> None:
    """Replaces the marker's schema by an equal one of `schemas`, or adds it to them. Raises CorruptMarkerError for a
    schema that cannot be read."""
    text = bytes(info.schema)
    if text not in schemas:
        if text != b"null":
            check_schema(text, where=where)
        schemas[text] = NO_SCHEMA if text == b"null" else Raw(text)
    force_setattr(info, "schema", schemas[text])


def check_marker(marker: CommitMarker, *, where: str, scope: Scope | None) -> None:
    """Raises CorruptMarkerError for a path outside the table or its scope, and for a removed tid that is no tid."""
    if scope is Scope.TABLE:
        names.check_visible(marker.added, where=where)
    else:
        names.check_paths(marker.added, where=where)
    names.check_paths(marker.removed, where=where)
    if marker.dbio_commit and (joint := marker.dbio_commit.joint):
        for table in (joint.home, *joint.tables):
            check_other(table.path, where=where)
    if wrong := next((tid for tid in marker.removed_tids if not names.is_tid(tid)), None):
        raise CorruptMarkerError(f"{where} removes the files of {wrong[:100]!r}, which is not a tid; {INSPECT}")
    if scope is Scope.DIRECTORY:
        _check_local(marker, where=where)


def _check_local(marker: CommitMarker, *, where: str) -> None:
    """In the directory scope, markers name only files of their own directory, and each by its path."""
    if marker.removed_tids:
        raise CorruptMarkerError(
            f"{where} removes all files of whole transactions, which only the markers of a dbio table may do. "
            f"{_MAY_BE_TABLE}; otherwise {INSPECT}"
        )
    for name in (*marker.added, *marker.removed):
        if "/" in name:
            raise CorruptMarkerError(
                f"{where} names {name[:200]!r}, which lies in another directory; without a {names.DESCRIPTOR} at the "
                f"root a marker counts for its own directory only. {_MAY_BE_TABLE}; otherwise {INSPECT}"
            )


_MAY_BE_TABLE = f"If this was a dbio table, bring its {names.DESCRIPTOR} back, from a copy or from a backup"


class _Info(Struct):
    version: int | float | str = VERSION


class _Versioned(Struct):
    dbio_commit: _Info | None = None


class _HomeInfo(Struct):
    joint: Joint


class _Home(Struct):
    dbio_commit: _HomeInfo
