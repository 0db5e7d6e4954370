"""The bodies of markers: descriptor, commit marker and turn, encoded and decoded. Pure.

Bytes that come from outside are validated here, once; what passes is safe to act on. What the markers of a table add
up to is in `state`. Formats: PROTOCOL.md section 7.
"""

import math
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    SkipValidation,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticSerializationError, to_json

from dbio_commit.errors import CorruptMarkerError, InvalidInputError, UnsupportedTableError
from dbio_commit.protocol import names
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import check_told

MAX_BYTES = 64 * 1024 * 1024
"""A marker fits in one PUT (PROTOCOL.md 7.5); a larger one was not written by any writer."""

VERSION: Final = 1
"""The version of the table scope's protocol that this software writes."""

REFERRING: Final = 2
"""That of a commit marker with `removed_tids`: who knows no such key must not take its files for live."""

Operation = Literal["append", "overwrite", "replace_partitions", "rewrite", "abort", "adopt"]

Scalar = bool | int | float | str | None
"""A value as JSON holds it: dates and timestamps in ISO 8601, decimals as text."""


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
_END_OF_COUNTS = 1 << 63
Count = Annotated[StrictInt, Field(ge=0, lt=_END_OF_COUNTS)]
FailFastList = Annotated[list[_T], FailFast()]  # or a hostile list makes gigabytes of error messages


def values_of(kind: Any) -> AfterValidator:
    """Validates the values of an object one by one: pydantic would collect an error for each that is wrong."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return AfterValidator(lambda values: {key: adapter.validate_python(value) for key, value in values.items()})


_MANY = 16
"""Values, for which it is worth while."""


def _compact(values: list[_T]) -> Sequence[_T]:
    """The same in less memory, of which a million files take much: equal texts once, whole numbers in eight bytes."""
    if len(values) < _MANY:
        return values
    if type(values[0]) is str and values.count(values[0]) == len(values):  # the column of a table's partitions, mostly
        return values[:1] * len(values)
    kinds: set[Any] = {*map(type, values)}
    if kinds == {int}:
        with suppress(OverflowError):
            return cast(Sequence[_T], array("q", cast(list[int], values)))
    if not kinds <= {str, type(None)}:
        return values
    one_of = {text: text for text in {*values}}
    return [*map(one_of.__getitem__, values)]


def _compact_counts(values: list[int | None]) -> Sequence[int | None]:
    """Checks them, too: pydantic would take longer for one by one than to read them."""
    numbers = _as_numbers(values)
    if numbers is not None:
        return numbers if len(values) >= _MANY else values
    _as_numbers([value for value in values if value is not None])
    return values


def _as_numbers(values: list[Any]) -> "array[int] | None":
    """None where some are not known."""
    try:
        numbers = array("Q", values)
    except TypeError:
        return None
    except OverflowError:
        raise ValueError(_NO_COUNT) from None
    if values and max(values) >= _END_OF_COUNTS:
        raise ValueError(_NO_COUNT)
    return numbers


_NO_COUNT = "a number is below 0, or too large for eight bytes"
_AS_LISTS = PlainSerializer(list)

Compact = Annotated[FailFastList[_T], AfterValidator(_compact), _AS_LISTS]
Counts = Annotated[FailFastList[_T], AfterValidator(_compact_counts), _AS_LISTS]


def _check_texts(columns: dict[str, Any]) -> dict[str, Sequence[str | None]]:
    """As pydantic would, which makes each of them anew."""
    for column, values in columns.items():
        if type(values) is not list or not {*map(type, values)} <= {str, type(None)}:
            raise ValueError(f"{column!r:.60} is no list of texts and nulls")
    return {column: _compact(values) for column, values in columns.items()}


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time does not exist in UTC") from None


Time = Annotated[AwareDatetime, AfterValidator(_in_utc)]


class Body(BaseModel):
    """Unknown keys are ignored, so that later versions and other writers may add some."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, populate_by_name=True)


# Of these two there are as many as commits: as models they would take half as much memory again.


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """`Bounds` of one column, a value for each added file."""

    min: Compact[Any]
    max: Compact[Any]
    nulls: Counts[StrictInt | None]


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """`FileInfo` of all added files, column by column: each list has a value for each added path, in that order.

    Columns rather than rows, because a reader decodes tens of thousands of them before it can start.
    """

    size: Counts[StrictInt]
    rows: Counts[StrictInt | None]
    partition: Annotated[dict[str, SkipValidation[list[str | None]]], AfterValidator(_check_texts)] = field(
        default_factory=dict
    )
    statistics: Annotated[dict[str, SkipValidation[ColumnBounds]], values_of(ColumnBounds)] = field(
        default_factory=dict
    )

    def lengths(self) -> set[int]:
        lists: list[Sequence[object]] = [self.size, self.rows, *self.partition.values()]
        for bounds in self.statistics.values():
            lists += [bounds.min, bounds.max, bounds.nulls]
        return set(map(len, lists))


class App(Body):
    """The application's own name and version of a write: committed at most once (I8)."""

    id: Annotated[str, Field(min_length=1, max_length=1000)]
    version: Count


_NAMES: TypeAdapter[list[str]] = TypeAdapter(FailFastList[StrictStr])


def _names_or_none(values: Any) -> list[str] | None:
    return None if values is None else _NAMES.validate_python(values)


Schemas = dict[bytes, dict[str, Any]]
"""Those of the markers that are read together: tens of thousands share few, and each takes some kilobytes."""


def _share(schema: dict[str, Any] | None, context: ValidationInfo) -> dict[str, Any] | None:
    known: Schemas | None = context.context
    return schema if known is None or schema is None else known.setdefault(to_json(schema), schema)


ToldSettings = Annotated[SkipValidation[dict[str, str] | None], AfterValidator(check_told)]


class CommitInfo(Body):
    """What we write into a commit marker beyond DBIO's keys."""

    version: Literal[1, 2] = VERSION
    operation: Operation
    commit_id: str
    """Random: tells our own marker from a stranger's."""
    timestamp: Time
    """By the writer's clock."""
    turn: Count | None = None
    """The turn under which it was committed; None for a blind append."""
    app: App | None = None
    metrics: Annotated[dict[str, SkipValidation[int]], values_of(StrictInt)] = Field(default_factory=dict)
    table_schema: Annotated[dict[str, Any] | None, AfterValidator(_share)] = Field(default=None, alias="schema")
    """The table's columns after this commit, as Spark's JSON."""
    schema_turn: Count | None = None
    """The last decided turn as of which the writer knew the table to have this schema, and these settings."""
    settings: ToldSettings = None
    """The table's settings after this commit; None where its writer knew of none that the table has or had."""
    data_change: bool | None = None
    """False where the rows after it are those before it: what it adds holds what it removes."""
    files: AddedFiles | None = None
    whole: Annotated[SkipValidation[list[str] | None], AfterValidator(_names_or_none)] = None
    """Where change files tell what came and went: other added and removed paths, all of whose rows did."""
    removed_tids: Annotated[SkipValidation[list[str] | None], AfterValidator(_names_or_none)] = None
    """Transactions, in the place of the paths of all files that they added and that are live (`references`)."""


class CommitMarker(Body):
    """The body of `_committed_<tid>`, of ours or of any DBIO writer (then without `dbio_commit`)."""

    added: FailFastList[str] = Field(default_factory=list)
    removed: FailFastList[str] = Field(default_factory=list)
    dbio_commit: CommitInfo | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        info = self.dbio_commit
        if info is not None and info.files is not None and info.files.lengths() - {len(self.added)}:
            raise ValueError("dbio_commit.files does not describe the added paths one by one")
        if self.is_abort and (self.added or self.removed or self.removed_tids):
            raise ValueError("an abort adds and removes nothing")
        if info is not None and bool(info.removed_tids) != (info.version == REFERRING):
            raise ValueError(f"version {REFERRING} is that of markers with removed_tids, and of no others")
        return self

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


class Descriptor(Body):
    """The body of `_dbio_table`: what makes a directory a table of ours. Never changes."""

    version: Literal[1] = VERSION
    id: str
    """Random: tells a table from one that was deleted and created again at the same path."""
    created: Time
    partition_columns: FailFastList[str] = Field(default_factory=list)
    properties: Annotated[dict[str, SkipValidation[str]], values_of(StrictStr)] = Field(default_factory=dict)


class Begun(Body):
    """The body of `_started_<tid>`, which is empty where there is no application."""

    version: Literal[1] = VERSION
    app: App
    """In whose name the transaction is to commit."""
    job: str
    """The transaction's own; tells it from another that drew the same tid."""


class Turn(Body):
    """The body of `_serial_<number>`: the transaction that holds the turn."""

    tid: str
    new_layout: Literal[True] | None = None
    """Whether it changes the partition columns: then nobody begins before it is decided."""


class Tombstone(Body):
    """The body of `_dropped`: while it is there, there is no table."""

    version: Literal[1] = VERSION
    everything: bool
    """Whether commits may be deleted; else the table must have none."""
    created: Time


def abort_marker(*, commit_id: str, timestamp: datetime) -> CommitMarker:
    """A commit of nothing, which decides a transaction against its writer (I3)."""
    info = CommitInfo(operation="abort", commit_id=commit_id, timestamp=timestamp)
    return CommitMarker(added=[], removed=[], dbio_commit=info)


def pack_files(files: Sequence[FileInfo]) -> AddedFiles:
    """Raises InvalidInputError where the files have not all the same partition columns."""
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
        statistics={column: bounds(column) for column in columns},
    )


def unpack_files(marker: CommitMarker) -> list[FileInfo]:
    """What the marker says about each file that it adds; empty where it says nothing (another DBIO writer's)."""
    files = marker.dbio_commit.files if marker.dbio_commit else None
    if files is None:
        return []
    return [
        FileInfo(
            path=path,
            size=files.size[i],
            rows=files.rows[i],
            partition={column: values[i] for column, values in files.partition.items()},
            statistics={c: bounds_of(b, i) for c, b in files.statistics.items()} or None,
        )
        for i, path in enumerate(marker.added)
    ]


def select_files(marker: CommitMarker, *, added: Sequence[int], removed: Sequence[int]) -> CommitMarker:
    """The marker with these of its added and removed paths only, given by their indices."""
    info = marker.dbio_commit
    if info is not None and info.files is not None:
        info = info.model_copy(update={"files": _select(info.files, added)})
    return CommitMarker(
        added=[marker.added[i] for i in added], removed=[marker.removed[i] for i in removed], dbio_commit=info
    )


def _select(files: AddedFiles, kept: Sequence[int]) -> AddedFiles:
    def of(values: Sequence[Any]) -> list[Any]:
        return [values[i] for i in kept]

    return AddedFiles(
        size=of(files.size),
        rows=of(files.rows),
        partition={column: of(values) for column, values in files.partition.items()},
        statistics={
            column: ColumnBounds(min=of(b.min), max=of(b.max), nulls=of(b.nulls))
            for column, b in files.statistics.items()
        },
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
    return body.model_dump_json(by_alias=True, exclude_none=True).encode()


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
            info = info.model_copy(update={"files": replace(info.files, statistics={})})
            body = encode(marker.model_copy(update={"dbio_commit": info}))
        if len(body) <= limit_bytes:
            decode_commit(body, where="the commit marker")
            return body
    except (PydanticSerializationError, CorruptMarkerError) as error:
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
    marker = decode_body(CommitMarker, body, where=where, context=schemas)
    check_marker(marker, where=where, scope=scope)
    return marker


def check_marker(marker: CommitMarker, *, where: str, scope: Scope | None) -> None:
    """Raises CorruptMarkerError where it says too little, or names a path outside the table, or of another scope."""
    if not {"added", "removed"} <= marker.model_fields_set:  # or vacuum would take its files for failed attempts
        raise CorruptMarkerError(f"{where} does not say what it added and removed; {INSPECT}")
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
    descriptor = decode_body(Descriptor, body, where=where)
    try:
        names.check_partition_columns(descriptor.partition_columns)
    except InvalidInputError as error:
        raise CorruptMarkerError(f"{where}: {error!s:.500}; {INSPECT}") from None
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


def decode_tombstone(body: bytes, *, where: str) -> Tombstone:
    """Raises CorruptMarkerError, and UnsupportedTableError for a later version of the protocol."""
    return decode_body(Tombstone, body, where=where)


INSPECT = "inspect it, and remove it only if you know that no writer is at work"

_B = TypeVar("_B", bound=Body)


class _Version(BaseModel):
    """Just enough of a body to see that a later version wrote it."""

    version: int = VERSION


class _CommitVersion(BaseModel):
    dbio_commit: _Version = _Version()


def decode_body(model: type[_B], body: bytes, *, where: str, context: object = None) -> _B:
    if len(body) > MAX_BYTES:
        raise CorruptMarkerError(f"{where} has {len(body)} bytes, and no writer writes over {MAX_BYTES}; {INSPECT}")
    try:
        return model.model_validate_json(body, context=context)
    except ValidationError as error:
        version = _version(model, body)
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    known = REFERRING if model is CommitMarker else VERSION
    if version > known:
        raise UnsupportedTableError(
            f"{where} was written by version {version!s:.20} of the protocol, and this software knows {known}; "
            "upgrade dbio-commit"
        )
    place = "".join(f"{str(part)!r:.60}: " for part in first["loc"][:4])
    raise CorruptMarkerError(
        f"{where} ({len(body)} bytes) cannot be read as a {model.__name__}: {place}{first['msg']:.200}; {INSPECT}"
    )


def _version(model: type[Body], body: bytes) -> int:
    try:
        if model is CommitMarker:
            return _CommitVersion.model_validate_json(body).dbio_commit.version
        return _Version.model_validate_json(body).version
    except ValidationError:
        return VERSION
