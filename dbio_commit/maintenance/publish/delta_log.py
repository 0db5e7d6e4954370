"""Encodes and decodes the versions of a Delta log that dbio writes, and adds them up to a state. Pure.

This module also decides which versions are not needed any more. It follows Delta's public protocol specification.
Columns and values are in `delta_schema`, the Parquet of checkpoints in `delta_checkpoint`. Rules: NOTES.md,
Publications.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from io import BytesIO
from itertools import chain
from json import JSONEncoder
from typing import Any, NamedTuple, Self
from urllib.parse import quote, unquote

from msgspec import Struct, convert, json, to_builtins
from msgspec import field as struct_field

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.maintenance.publish.bounds import (
    MOST_BYTES,
    MOST_BYTES_TOGETHER,
    MOST_LINE_BYTES,
    MOST_PATHS_BYTES,
    NamedPaths,
    decode_lines,
    memory_of,
    too_much,
)
from dbio_commit.maintenance.publish.delta_schema import DeltaSchema
from dbio_commit.maintenance.publish.difference import ShownCommits, digest_of
from dbio_commit.maintenance.publish.places import DIRECTORIES, by_number
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import split
from dbio_commit.protocol.settings import Format

DIRECTORY = DIRECTORIES[Format.DELTA]
LAST_CHECKPOINT = f"{DIRECTORY}/_last_checkpoint"

_VERSION = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet")


def version_path(number: int) -> str:
    return f"{DIRECTORY}/{number:020d}.json"


def checkpoint_path(number: int) -> str:
    return f"{DIRECTORY}/{number:020d}.checkpoint.parquet"


def file_path(path: str) -> str:
    """A path in the table as a Delta log names it: URL-encoded, on top of Hive's escapes."""
    return quote(path, safe="/=-._~")


@dataclass(frozen=True, slots=True)
class DeltaListing:
    """The versions and checkpoints in a Delta log, by number. Other objects are ignored."""

    versions: Mapping[int, Entry]
    checkpoints: Mapping[int, Entry]

    @classmethod
    def of(cls, entries: Iterable[Entry], *, root: str) -> Self:
        """From all files of the table at `root`, or only those of its log. Raises CorruptMarkerError as `by_number`."""
        inside = [entry for entry in entries if split(entry.path)[0] == DIRECTORY]
        return cls(by_number(inside, _VERSION, root=root), by_number(inside, _CHECKPOINT, root=root))

    @property
    def last(self) -> int:
        """The last version; -1 if there is none."""
        return max([*self.versions, *self.checkpoints], default=-1)

    @property
    def last_checkpoint(self) -> int:
        """The last checkpoint's version; -1 if there is none."""
        return max(self.checkpoints, default=-1)

    def lacks_before(self, number: int) -> bool:
        """Whether the version before this number was deleted, since a checkpoint after it has its contents: then no
        reader can use this version."""
        return self.last_checkpoint > number and number - 1 not in self.versions

    @property
    def since_checkpoint(self) -> list[Entry]:
        """The versions after the last checkpoint."""
        return [entry for number, entry in self.versions.items() if number > self.last_checkpoint]


_FEWEST, _MOST = 10, 100
"""A checkpoint is written after `_FEWEST` versions if they have enough bytes, and at the latest after `_MOST`."""


def checkpoint_is_due(listing: DeltaListing, number: int, size: int) -> bool:
    """Whether to write a checkpoint after version `number`, which has `size` bytes.

    A checkpoint is due when the versions since the last one have more bytes than it, or when the next version could not
    be read together with them.
    """
    last = listing.last_checkpoint
    since = number - max(last, 0)
    written = sum(entry.size for entry in listing.since_checkpoint) + size
    before = listing.checkpoints[last].size if last >= 0 else 0
    return since >= _MOST or (since >= _FEWEST and written >= before) or written > MOST_BYTES_TOGETHER - MOST_BYTES


class Superseded(NamedTuple):
    """The versions and checkpoints that a later checkpoint has replaced."""

    checkpoint: int
    entries: list[Entry]


def superseded(listing: DeltaListing, horizon: datetime) -> Superseded:
    """The versions and checkpoints before the last checkpoint that is older than the horizon, if they are older, too.

    That checkpoint has their contents, and had them at the horizon already. A reader that began since then needs none
    of them.
    """
    last = max((number for number, entry in listing.checkpoints.items() if entry.modified < horizon), default=0)
    parts = [*listing.versions.items(), *listing.checkpoints.items()]
    return Superseded(last, [entry for number, entry in sorted(parts) if number < last and entry.modified < horizon])


def is_version(path: str) -> bool:
    return split(path)[0] == DIRECTORY and _VERSION.fullmatch(split(path)[1]) is not None


def version_of_checkpoint(path: str) -> str | None:
    """The path of the version that a checkpoint belongs to; None for an object that is no checkpoint of dbio."""
    match = _CHECKPOINT.fullmatch(split(path)[1]) if split(path)[0] == DIRECTORY else None
    return version_path(int(match[1])) if match else None


# --- what a version says ------------------------------------------------------------------------------------------


class Mark(NamedTuple):
    """The record by which a version of dbio differs from a version of another tool."""

    table_id: str
    """The id in the table's descriptor."""
    tid: str | None
    """The newest commit of the snapshot that was published."""
    shown: "DeltaShown | None" = None
    """The record of what it shows; None if an earlier version of dbio wrote it."""


class DeltaShown(ShownCommits, frozen=True):
    """A record of what the log shows as of a version. The next version can be made of it and the commits since."""

    metadata: str
    """The SHA-256 of the metadata."""
    protocol: "_Protocol"
    bounded: list[str] | None = None
    """The columns of which each file has bounds; None if an earlier version of dbio wrote the statistics."""

    @classmethod
    def of(
        cls, tids: Sequence[str], metadata: Mapping[str, Any], protocol: Mapping[str, Any], bounded: Iterable[str]
    ) -> Self:
        """`tids` are those of all commits, oldest first."""
        commits = ShownCommits.of_tids(tids)
        converted = convert({key: value for key, value in protocol.items() if value is not None}, _Protocol)
        return cls(
            commits.newest, commits.older, commits.digest, digest_of_metadata(metadata), converted, sorted(bounded)
        )


def digest_of_metadata(metadata: Mapping[str, Any]) -> str:
    """A digest, which is equal for two values if `is_same_metadata` is true of them."""
    return digest_of([json.encode([metadata.get(key) for key in _COMPARED], order="sorted").decode()])


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a log."""

    mark: Mark | None
    """None if another tool wrote the version: then the other fields are empty."""
    engine: str
    """The tool that wrote it, as it calls itself."""
    added: frozenset[str] = frozenset()
    """Paths relative to the root, as markers name them."""
    removed: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DeltaState:
    """The state that versions add up to."""

    paths: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    mark: Mark | None = None
    """The mark of the last version."""

    def then(self, versions: Iterable[Version], *, where: str) -> "DeltaState":
        """The state after these versions. Raises CorruptMarkerError for too many paths. `where` is the log's URL."""
        paths, metadata, protocol, mark = set(self.paths), self.metadata, self.protocol, self.mark
        taken = memory_of(paths)
        for version in versions:
            paths -= version.removed
            paths |= version.added
            metadata, protocol = version.metadata or metadata, version.protocol or protocol
            mark = version.mark
            taken += memory_of(version.added)
            if taken > MOST_PATHS_BYTES:  # unless removed paths make up for it
                taken = memory_of(paths)
            if taken > MOST_PATHS_BYTES:
                raise too_much(where)
        return DeltaState(frozenset(paths), metadata, protocol, mark)

    @property
    def memory_bytes(self) -> int:
        """The memory that the state takes."""
        texts = [text for it in (self.metadata, self.protocol) for value in it.values() for text in _texts_in(value)]
        return memory_of(self.paths) + memory_of(texts)


def _texts_in(value: Any) -> Iterable[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [*value, *value.values()]
    return value if isinstance(value, list) else ()


class _Path(Struct):
    path: str


class _Mark(Struct):
    table_id: str
    tid: str | None = None
    shows: DeltaShown | None = None


class _Info(Struct):
    engine: str | None = struct_field(name="engineInfo", default=None)
    mark: _Mark | None = struct_field(name="dbio_commit", default=None)


class _Metadata(Struct, rename="camel", omit_defaults=True):
    """The parts of Delta's metadata action that are compared."""

    id: str | None = None
    schema_string: str | None = None
    partition_columns: list[str] | None = None
    configuration: dict[str, str] | None = None


class _Protocol(Struct, rename="camel", omit_defaults=True):
    min_reader_version: int | None = None
    min_writer_version: int | None = None
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class _Actions(Struct, rename="camel"):
    """One line: one action, or several."""

    commit_info: _Info | None = None
    protocol: _Protocol | None = None
    meta_data: _Metadata | None = None
    add: _Path | None = None
    remove: _Path | None = None


_ACTIONS = json.Decoder(_Actions)


def decode_version(lines: Iterable[bytes], *, where: str) -> Version:
    """Decodes a version. Raises CorruptMarkerError for a body that is no version of a Delta log. `where` is its URL.

    The first line of a version of dbio records that dbio wrote it. Of other versions, only the name of the writer is
    read.
    """
    actions = decode_lines(_ACTIONS, lines, f"{where} is no version of a Delta log", SAVE)
    first = next(actions, _Actions())
    info = first.commit_info or _Info()
    if info.mark is None:
        engines = (it.commit_info.engine for it in chain([first], actions) if it.commit_info)
        engine = next(filter(None, engines), "an engine that does not say its name")
        return Version(None, engine[:_ENGINE_CHARACTERS])
    added, removed = NamedPaths(where), NamedPaths(where)
    metadata: _Metadata | None = None
    protocol: _Protocol | None = None
    for it in chain([first], actions):
        if it.add is not None:
            added.add(unquote(it.add.path))
        if it.remove is not None:
            removed.add(unquote(it.remove.path))
        metadata, protocol = it.meta_data or metadata, it.protocol or protocol
    return Version(
        Mark(info.mark.table_id, info.mark.tid, info.mark.shows),
        (info.engine or "")[:_ENGINE_CHARACTERS],
        added=added.found(),
        removed=removed.found(),
        metadata=None if metadata is None else to_builtins(metadata),
        protocol=None if protocol is None else to_builtins(protocol),
    )


_ENGINE_CHARACTERS = 200

SAVE = f"keep what you need of {DIRECTORY}: move it elsewhere, and publish again"


class DeltaFile(NamedTuple):
    """A live file as a Delta log has it."""

    path: str
    size: int
    modified_ms: int
    """The time of the commit that added it, in ms since 1970."""
    partition: Mapping[str, str | None]
    statistics: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaChange:
    """What one version changes in the state of those before it."""

    added: Sequence[DeltaFile]
    removed: Sequence[str]
    metadata: Mapping[str, Any] | None
    """None if it has not changed. The same holds for `protocol`."""
    protocol: Mapping[str, Any] | None
    data_change: bool = True
    """False if the added files have exactly the rows of the removed ones. Delta's streams skip such a version."""
    again: Sequence[DeltaFile] = ()
    """Files that the log has with other statistics."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.metadata or self.protocol or self.again)

    def without_statistics(self) -> "DeltaChange":
        """The change without statistics, which takes fewer bytes."""
        added, again = ([it._replace(statistics=None) for it in files] for files in (self.added, self.again))
        return replace(self, added=added, again=again)


_KEPT = {"delta.deletedFileRetentionDuration": "interval 36500 days"}
"""Another tool's vacuum deletes older files that the log lacks. Files of commits that are not published yet may have
any age, so this interval is long."""


def metadata_of(table_id: str, schema: DeltaSchema, bounded: Collection[str]) -> dict[str, Any]:
    """Delta's metadata of a table. `bounded` are the columns of which each file has both bounds, or only nulls.

    delta-rs takes a bound that is missing beside others for one that no value fulfils, so all other columns are
    withheld from it.
    """
    named = [name for name in schema.kinds if name in bounded]
    skipping = {"delta.dataSkippingStatsColumns": ",".join(named)} if named else {_NONE_SKIPPED: "0"}
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.text,
        "partitionColumns": list(schema.partition_columns),
        "configuration": {**_KEPT, **skipping},
    }


_NONE_SKIPPED = "delta.dataSkippingNumIndexedCols"


def is_same_metadata(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(key) == other.get(key) for key in _COMPARED)


_COMPARED = ("id", "schemaString", "partitionColumns", "configuration")


def is_same_protocol(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the protocols are equal. An absent value equals an empty list, which another tool may write instead."""
    keys = ["minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"]
    return all(_as_set(one.get(key)) == _as_set(other.get(key)) for key in keys)


def _as_set(value: Any) -> Any:
    return frozenset(value or ()) if value is None or isinstance(value, list) else value


GUARD = "dbioCommit"
"""A writer feature that only dbio has: other tools refuse to write, and to vacuum. Readers need not know it."""

_LEGACY = ("appendOnly", "invariants")
"""The features of writer version 2, which earlier versions of dbio required. Version 7 names each feature."""


def protocol_of(features: Iterable[str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The features that readers and writers must know, never less than before. `features` are for both."""
    of_readers = {*features, *map(str, before.get("readerFeatures") or ())}
    of_writers = {GUARD, *_LEGACY, *of_readers, *map(str, before.get("writerFeatures") or ())}
    writers = {"minWriterVersion": 7, "writerFeatures": sorted(of_writers)}
    if not of_readers:
        return {"minReaderVersion": 1, **writers}
    return {"minReaderVersion": 3, "readerFeatures": sorted(of_readers), **writers}


def encode_version(change: DeltaChange, mark: Mark, *, tids: Sequence[str], engine: str, now: datetime) -> bytes:
    """The body of a version. `tids` are commits that it shows and the version before did not, for information only.

    Raises InvalidInputError for columns that are too large to be read back.
    """
    now_ms = to_ms(now)
    ours = {"version": 1, "table_id": mark.table_id, "tid": mark.tid, "tids": list(tids)}
    if mark.shown:
        ours["shows"] = to_builtins(mark.shown)
    info = {"timestamp": now_ms, "operation": "WRITE", "operationParameters": {}, "engineInfo": engine}
    first: list[dict[str, Any]] = [{"commitInfo": {**info, "dbio_commit": ours}}]
    if change.protocol:
        first.append({"protocol": change.protocol})
    if change.metadata:
        first.append({"metaData": change.metadata})
    data_change, body = change.data_change, BytesIO()
    removes = ({"remove": removal(path, now_ms, data_change=data_change)} for path in change.removed)
    adds = ({"add": addition(file, data_change=data_change)} for file in change.added)
    again = ({"add": addition(file, data_change=False)} for file in change.again)
    for action in chain(first, removes, adds, again):  # a million of them take a gigabyte
        line = f"{_ENCODER.encode(action)}\n".encode()
        if len(line) > MOST_LINE_BYTES:
            raise InvalidInputError(
                f"a line of the Delta log would have {len(line)} bytes, and dbio reads at most {MOST_LINE_BYTES} bytes "
                "of a line; overwrite the table with fewer columns, or publish it in another format"
            )
        body.write(line)
    return body.getvalue()


_ENCODER = JSONEncoder(separators=(",", ":"), allow_nan=False)


def addition(file: DeltaFile, *, data_change: bool) -> dict[str, Any]:
    action = {
        "path": file_path(file.path),
        "partitionValues": file.partition,
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": data_change,
    }
    return {**action, "stats": file.statistics} if file.statistics else action


def removal(path: str, at_ms: int, *, data_change: bool) -> dict[str, Any]:
    return {"path": file_path(path), "deletionTimestamp": at_ms, "dataChange": data_change}


def to_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
