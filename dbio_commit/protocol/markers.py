"""The bodies of markers: descriptor, commit marker and turn, encoded and decoded. Pure.

Bytes that come from outside are validated here, once; what passes is safe to act on. What the markers of a table add
up to is in `state`. Formats: PROTOCOL.md section 7.
"""

import math
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import force_setattr, replace

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, UnsupportedTableError
from dbio_commit.protocol import names
from dbio_commit.protocol.column_metadata import keep_known
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import check_told
from dbio_commit.protocol.types.bounds import Scalar

MAX_BYTES = 64 * 1024 * 1024
"""A marker fits in one PUT (PROTOCOL.md 7.5); a larger one was not written by any writer."""

VERSION: Final = 1
"""The version of the table scope's protocol that this software writes."""

REFERRING: Final = 2
"""That of a commit marker with `removed_tids`: who knows no such key must not take its files for live."""

Operation = Literal["append", "overwrite", "replace_partitions", "rewrite", "abort", "adopt"]


class Bounds(NamedTuple):
    """Of one column in one file: min <= every value that is not null <= max; None where no bound is known.

    Text longer than 64 characters is shortened, and a shortened max rounded up.
    """

    min: Scalar = None
    max: Scalar = None
    nulls: int | None = None
    """How many values are null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """What a writer knows about a data file that it adds."""

    path: str
    """Relative to the root of the table."""
    size: int
    """In bytes."""
    rows: int | None = None
    partition: names.Partition = field(default_factory=dict)
    statistics: Mapping[str, Bounds] | None = None
    """By column of the table (top level)."""


# --- bodies -------------------------------------------------------------------------------------------------------

_T = TypeVar("_T")
TableId = Annotated[str, Meta(max_length=100)]
"""A descriptor's `id`, as other objects repeat it: a UUID."""
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


def written(value: _T) -> _T:
    """The default of a key that is written even where it says no more than that."""
    default: _T = msgspec.field(default_factory=lambda: copy(value))
    return default


class Body(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Unknown keys are ignored, so that later versions and other writers may add some.

    Types are checked where a body is decoded, not where one is made. None is no key, but for what says otherwise.
    """


def in_utc(body: Body, *fields: str) -> None:
    """Puts these times of a new body into UTC. Raises ValueError for one without a zone, or that UTC does not have."""
    for name in fields:
        time: datetime | None = getattr(body, name)
        if time is not None and time.tzinfo is not UTC:
            if time.tzinfo is None:
                raise ValueError(f"{name} has no time zone")
            try:
                force_setattr(body, name, time.astimezone(UTC))
            except OverflowError:
                raise ValueError(f"{name} does not exist in UTC") from None


_MANY = 16
"""Values, for which less memory is worth while."""


def _compact_texts(texts: Sequence[str | None]) -> Sequence[str | None]:
    """The same in less memory, of which a million files take much: equal texts once."""
    if len(texts) < _MANY:
        return texts
    if texts.count(texts[0]) == len(texts):  # the column of a table's partitions, mostly
        return list(texts[:1]) * len(texts)
    one_of = {text: text for text in {*texts}}
    return [*map(one_of.__getitem__, texts)]


def _compact_numbers(numbers: Sequence[Any]) -> Sequence[Any]:
    """In eight bytes each, where all are whole and none is unknown."""
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


class AddedFiles(Body, frozen=True, kw_only=True):
    """`FileInfo` of all added files, column by column: each list has a value for each added path, in that order.

    Columns rather than rows, because a reader decodes tens of thousands of them before it can start.
    """

    size: Sequence[Count]
    rows: Sequence[Count | None]
    partition: Mapping[str, Sequence[str | None]] = written({})
    statistics: Raw = written(Raw(b"{}"))
    """`ColumnBounds` by column, as JSON; `bounds_in` decodes them.

    A million files have tens of millions of bounds: most who read a marker need none, others those of a column.
    """

    def __post_init__(self) -> None:
        force_setattr(self, "size", _compact_numbers(self.size))
        force_setattr(self, "rows", _compact_numbers(self.rows))
        force_setattr(self, "partition", {name: _compact_texts(texts) for name, texts in self.partition.items()})
        force_setattr(self, "statistics", self.statistics.copy())  # else all of the body stays in memory

    def lengths(self) -> set[int]:
        return {len(self.size), len(self.rows), *map(len, self.partition.values())}


class App(Body, frozen=True, kw_only=True):
    """The application's own name and version of a write: committed at most once (I8)."""

    id: Annotated[str, Meta(min_length=1, max_length=1000)]
    version: Count
    any_order: bool = False
    """Whether it may come after a higher one: it names a run, and does not count up."""

    def is_run_of(self, other: "App") -> bool:
        """Whether both are the same version of the same application."""
        return (self.id, self.version) == (other.id, other.version)


NO_SCHEMA: Final = Raw()

Schemas = dict[bytes, Raw]
"""Those of the markers that are read together: tens of thousands share few, and each takes some kilobytes."""


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

    added: list[str]
    removed: list[str]
    dbio_commit: CommitInfo | None = None

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


ADOPTED = "adopted"
"""The property of a descriptor whose table has had columns from the first; its value is the tid of the adoption."""


class Descriptor(Body, frozen=True, kw_only=True):
    """The body of `_dbio_table`: what makes a directory a table of ours. Never changes."""

    version: Literal[1] = written(VERSION)
    id: str
    """Random: tells a table from one that was deleted and created again at the same path."""
    created: datetime
    partition_columns: Sequence[str] = written([])
    properties: Mapping[str, str] = written({})

    def __post_init__(self) -> None:
        in_utc(self, "created")

    @property
    def tells_columns(self) -> bool:
        """Whether an adoption has recorded the columns: they are in its checkpoint, before any turn was taken."""
        return ADOPTED in self.properties


class Begun(Body, frozen=True, kw_only=True):
    """The body of `_started_<tid>`; in the directory scope, and of earlier versions, it may be empty."""

    version: Literal[1] = written(VERSION)
    table_id: TableId | None = None
    """The descriptor's of the table in which it began."""
    app: App | None = None
    """In whose name the transaction is to commit."""
    job: str
    """The transaction's own; tells it from another that drew the same tid."""


class Turn(Body, frozen=True, kw_only=True):
    """The body of `_serial_<number>`: the transaction that holds the turn."""

    tid: str
    table_id: TableId | None = None
    """The descriptor's of the table in which it was taken; None where an earlier version took it."""
    new_layout: bool = False
    """Whether it changes the partition columns: then nobody begins before it is decided."""


class Tombstone(Body, frozen=True, kw_only=True):
    """The body of `_dropped`: while it is there, there is no table."""

    version: Literal[1] = written(VERSION)
    everything: bool
    """Whether commits may be deleted; else the table must have none."""
    created: datetime

    def __post_init__(self) -> None:
        in_utc(self, "created")


class Purge(Body, frozen=True, kw_only=True):
    """The body of `_purged_<number>`: only checkpoints from this number on tell what purged markers did."""

    version: Literal[1] = written(VERSION)
    table_id: TableId
    """The descriptor's of the table that was purged."""
    created: datetime

    def __post_init__(self) -> None:
        in_utc(self, "created")


def abort_marker(*, commit_id: str, timestamp: datetime) -> CommitMarker:
    """A commit of nothing, which decides a transaction against its writer (I3)."""
    info = CommitInfo(operation="abort", commit_id=commit_id, timestamp=timestamp)
    return CommitMarker(added=[], removed=[], dbio_commit=info)


def pack_files(files: Sequence[FileInfo]) -> AddedFiles:
    """Raises InvalidInputError where the files have not all the same partition columns, or bounds that are no JSON."""
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
    return replace(files, statistics=pack_bounds({}))


def pack_bounds(told: Mapping[str, ColumnBounds]) -> Raw:
    """Raises InvalidInputError for what is no JSON."""
    return _pack(told, what="statistics")


def _pack(value: Any, *, what: str) -> Raw:
    try:
        return Raw(_ENCODER.encode(value))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"these {what} cannot be committed: {error!s:.200}") from None


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
        info = replace(info, files=_select(info.files, added, bounds_in(marker)))
    return CommitMarker(
        added=[marker.added[i] for i in added], removed=[marker.removed[i] for i in removed], dbio_commit=info
    )


def _select(files: AddedFiles, kept: Sequence[int], told: Mapping[str, ColumnBounds]) -> AddedFiles:
    def of(values: Sequence[Any]) -> list[Any]:
        return [values[i] for i in kept]

    return AddedFiles(
        size=of(files.size),
        rows=of(files.rows),
        partition={column: of(values) for column, values in files.partition.items()},
        statistics=pack_bounds(
            {column: ColumnBounds(min=of(b.min), max=of(b.max), nulls=of(b.nulls)) for column, b in told.items()}
        ),
    )


def bounds_of(bounds: ColumnBounds, i: int) -> Bounds:
    """Of the added file with this index."""
    return Bounds(_scalar(bounds.min[i]), _scalar(bounds.max[i]), bounds.nulls[i])


def _scalar(value: Any) -> Scalar:
    """The bound, or None for what bounds nothing: NaN and infinity, and what is no single value."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str) else None


# --- encode and decode --------------------------------------------------------------------------------------------


def encode(body: Body) -> bytes:
    """Compact JSON, without the keys that say nothing."""
    return _ENCODER.encode(body)


def _as_list(values: Any) -> Any:
    if isinstance(values, array):
        return values.tolist()
    raise TypeError(f"{type(values).__name__} is no JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_as_list)


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


MOST_NESTED = 190
"""Levels of a schema's JSON that are written."""

MOST_NESTED_READ = 200
"""Such as are read; earlier versions wrote some more, since they read so many of a body."""


def pack_schema(schema: Mapping[str, Any] | None) -> Raw:
    """The text of a `CommitInfo`'s schema. Raises InvalidInputError for what is no JSON, or is nested too deeply."""
    if schema is None:
        return NO_SCHEMA
    if _is_nested_deeper(schema, MOST_NESTED):
        raise InvalidInputError(f"a schema that is nested deeper than {MOST_NESTED} levels of JSON cannot be recorded")
    return _pack(schema, what="columns")


def _is_nested_deeper(value: Any, levels: int) -> bool:
    """Level by level, since a caller's stack may be deep already."""
    level = [value]
    for _ in range(levels + 1):
        level = [inner for it in level for inner in _values_in(it)]
    return bool(level)


def _values_in(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()


def share_schema(info: CommitInfo, schemas: Schemas, *, where: str) -> None:
    """Puts an equal one of these into its place, or adds it to them. Raises CorruptMarkerError for what is none."""
    text = bytes(info.schema)
    if text not in schemas:
        if text != b"null":
            check_schema(text, where=where)
        schemas[text] = NO_SCHEMA if text == b"null" else Raw(text)
    force_setattr(info, "schema", schemas[text])


def decode_schema(schema: bytes | Raw | None) -> dict[str, Any] | None:
    """The columns as Spark's JSON, with the metadata that is known; None where there are none."""
    return keep_known(decode_as(dict[str, Any], schema)) if schema else None


def check_schema(schema: bytes | Raw, *, where: str) -> None:
    """Raises CorruptMarkerError."""
    try:
        if _is_nested_deeper(decode_as(dict[str, Any], schema), MOST_NESTED_READ):
            raise ValueError(f"it has more than {MOST_NESTED_READ} levels")
    except ValueError as error:
        raise CorruptMarkerError(f"{where} has a schema that cannot be read: {error}; {INSPECT}") from None


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


def decode_descriptor(body: bytes, *, where: str) -> Descriptor:
    """Raises CorruptMarkerError, and UnsupportedTableError for a later version of the protocol."""
    descriptor = decode_body(Descriptor, body, where=where, mend=_MEND_DESCRIPTOR)
    try:
        names.check_partition_columns(descriptor.partition_columns)
    except InvalidInputError as error:
        raise CorruptMarkerError(f"{where}: {error!s:.500}; {_MEND_DESCRIPTOR}") from None
    return descriptor


def decode_begun(body: bytes, *, where: str) -> Begun | None:
    """None where it is empty. Raises CorruptMarkerError, and UnsupportedTableError for a later version."""
    return decode_body(Begun, body, where=where) if body else None


def decode_turn(body: bytes, *, where: str) -> Turn:
    """Raises CorruptMarkerError."""
    turn = decode_body(Turn, body, where=where)
    if not names.is_tid(turn.tid):
        raise CorruptMarkerError(f"{where} names no tid but {turn.tid[:100]!r}; {INSPECT}")
    return turn


def decode_purge(body: bytes, *, where: str) -> Purge:
    """Raises CorruptMarkerError, and UnsupportedTableError for a later version of the protocol."""
    return decode_body(Purge, body, where=where)


def decode_tombstone(body: bytes, *, where: str) -> Tombstone:
    """Raises CorruptMarkerError, and UnsupportedTableError for a later version of the protocol."""
    return decode_body(Tombstone, body, where=where)


INSPECT = "inspect it: bring back what its writer wrote, or remove it if no writer can have made it"

_MEND_DESCRIPTOR = (
    "bring back what its writer wrote, from where the table was copied or from a backup. Do not remove it: all else of "
    "the table is there, and without it nothing tells what that is"
)

_B = TypeVar("_B", bound=Body)


class _Version(Struct):
    """Just enough of a body to see that a later version wrote it."""

    version: int | float | str = VERSION


class _CommitVersion(Struct):
    dbio_commit: _Version | None = None


def decode_body(model: type[_B], body: bytes, *, where: str, mend: str = INSPECT) -> _B:
    """Raises CorruptMarkerError, and UnsupportedTableError for a later version of the protocol."""
    if len(body) > MAX_BYTES:
        raise CorruptMarkerError(f"{where} has {len(body)} bytes, and no writer writes over {MAX_BYTES}; {mend}")
    try:
        return decode_as(model, body)
    except ValueError as error:
        reason = str(error)
    version, known = _version(model, body), REFERRING if model is CommitMarker else VERSION
    if version > known:
        raise UnsupportedTableError(
            f"{where} was written by version {version!s:.20} of the protocol, and this software knows {known}; "
            "upgrade dbio-commit"
        )
    name = model.__name__.strip("_")
    raise CorruptMarkerError(f"{where} ({len(body)} bytes) cannot be read as a {name}: {reason}; {mend}")


def _version(model: type[Body], body: bytes) -> float:
    with suppress(ValueError):
        told = decode_as(_CommitVersion, body).dbio_commit if model is CommitMarker else decode_as(_Version, body)
        version = told.version if told else VERSION
        return float(version) if isinstance(version, str) else version
    return VERSION


def decode_as(kind: type[_T], text: bytes | Raw) -> _T:
    """Raises ValueError, in few words that repeat no value, where the text is not JSON of that type."""
    key: Any = kind
    try:
        # msgspec looks into no text that it passes over: keys that are unknown, and what it leaves as `Raw`.
        found: _T = _decoder(key).decode(str(text, "utf-8"))
        return found
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{_ENUM_VALUE.sub('Invalid value', str(error)):.300}") from None


_ENUM_VALUE = re.compile(r"Invalid enum value .*?(?=$| - at `[^`]*`$)", re.DOTALL)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
