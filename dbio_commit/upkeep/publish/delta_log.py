"""A Delta log as far as we write it: names and bodies of versions, what they add up to, what is not needed any more.

Pure. By Delta's protocol, in its public specification; columns and values are in `delta_schema`, the Parquet of its
checkpoints in `delta_checkpoint`. Rules: PROTOCOL.md section 14.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from json import JSONEncoder
from typing import Any, NamedTuple, Self
from urllib.parse import quote, unquote

from msgspec import Struct, json, to_builtins
from msgspec import field as struct_field

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import split
from dbio_commit.protocol.settings import Format
from dbio_commit.upkeep.publish.bounds import (
    MOST_BYTES,
    MOST_BYTES_TOGETHER,
    MOST_LINE_BYTES,
    MOST_PATHS_BYTES,
    Paths,
    decode_lines,
    memory_of,
    too_much,
)
from dbio_commit.upkeep.publish.delta_schema import DeltaSchema
from dbio_commit.upkeep.publish.places import DIRECTORIES, by_number

DIRECTORY = DIRECTORIES[Format.DELTA]
LAST_CHECKPOINT = f"{DIRECTORY}/_last_checkpoint"

_VERSION = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet")


def version_path(number: int) -> str:
    return f"{DIRECTORY}/{number:020d}.json"


def checkpoint_path(number: int) -> str:
    return f"{DIRECTORY}/{number:020d}.checkpoint.parquet"


def file_path(path: str) -> str:
    """A path in the table as a Delta log names it: URL-encoded once more, on top of Hive's escapes."""
    return quote(path, safe="/=-._~")


@dataclass(frozen=True, slots=True)
class DeltaListing:
    """What lies in a Delta log, by number. Whatever else lies there is left alone."""

    versions: Mapping[int, Entry]
    checkpoints: Mapping[int, Entry]

    @classmethod
    def of(cls, entries: Iterable[Entry], *, root: str) -> Self:
        """Of all files of the table at `root`, or of those in its log. Raises CorruptMarkerError as `by_number`."""
        inside = [entry for entry in entries if split(entry.path)[0] == DIRECTORY]
        return cls(by_number(inside, _VERSION, root=root), by_number(inside, _CHECKPOINT, root=root))

    @property
    def last(self) -> int:
        """The last version; -1 where there is none."""
        return max([*self.versions, *self.checkpoints], default=-1)

    @property
    def last_checkpoint(self) -> int:
        """The last checkpoint's version; -1 where there is none."""
        return max(self.checkpoints, default=-1)

    @property
    def since_checkpoint(self) -> list[Entry]:
        """The versions that tell what came after the last checkpoint."""
        return [entry for number, entry in self.versions.items() if number > self.last_checkpoint]


_FEWEST, _MOST = 10, 100
"""Versions between two checkpoints."""


def checkpoint_is_due(listing: DeltaListing, number: int, size: int) -> bool:
    """Whether to write one after version `number`, of `size` bytes.

    Not before the versions outweigh the last one; but before the next version could not be read together with them.
    """
    last = listing.last_checkpoint
    since = number - max(last, 0)
    written = sum(entry.size for entry in listing.since_checkpoint) + size
    before = listing.checkpoints[last].size if last >= 0 else 0
    return since >= _MOST or (since >= _FEWEST and written >= before) or written > MOST_BYTES_TOGETHER - MOST_BYTES


class Superseded(NamedTuple):
    """What a checkpoint has made useless."""

    checkpoint: int
    entries: list[Entry]


def superseded(listing: DeltaListing, horizon: datetime) -> Superseded:
    """The versions and checkpoints before the last checkpoint that is older than the horizon, if they are, too.

    What they say, that checkpoint says, and so it did at the horizon already: who began to read since needs none.
    """
    last = max((number for number, entry in listing.checkpoints.items() if entry.modified < horizon), default=0)
    parts = [*listing.versions.items(), *listing.checkpoints.items()]
    return Superseded(last, [entry for number, entry in sorted(parts) if number < last and entry.modified < horizon])


def is_version(path: str) -> bool:
    return split(path)[0] == DIRECTORY and _VERSION.fullmatch(split(path)[1]) is not None


def version_of_checkpoint(path: str) -> str | None:
    """The path of the version that the checkpoint is of; None for what is no checkpoint of ours."""
    match = _CHECKPOINT.fullmatch(split(path)[1]) if split(path)[0] == DIRECTORY else None
    return version_path(int(match[1])) if match else None


# --- what a version says ------------------------------------------------------------------------------------------


class Mark(NamedTuple):
    """What tells a version of ours from a stranger's."""

    table_id: str
    """Its descriptor's."""
    tid: str | None
    """The newest commit of the snapshot that was published."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a log."""

    mark: Mark | None
    """None where somebody else wrote it: then nothing of the rest is told."""
    engine: str
    """Who says that it wrote it."""
    added: frozenset[str] = frozenset()
    """Paths relative to the root, as our markers name them."""
    removed: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DeltaState:
    """What versions add up to."""

    paths: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    mark: Mark | None = None
    """Of the last of them."""

    def then(self, versions: Iterable[Version], *, where: str) -> "DeltaState":
        """After these, one after the other. Raises CorruptMarkerError for too many paths; `where` is the log."""
        paths, metadata, protocol, mark = set(self.paths), self.metadata, self.protocol, self.mark
        taken = memory_of(paths)
        for version in versions:
            paths -= version.removed
            paths |= version.added
            metadata, protocol = version.metadata or metadata, version.protocol or protocol
            mark = version.mark
            taken += memory_of(version.added)
            if taken > MOST_PATHS_BYTES:  # unless what was removed makes up for it
                taken = memory_of(paths)
            if taken > MOST_PATHS_BYTES:
                raise too_much(where)
        return DeltaState(frozenset(paths), metadata, protocol, mark)

    @property
    def memory_bytes(self) -> int:
        """What it takes."""
        texts = [text for it in (self.metadata, self.protocol) for value in it.values() for text in _texts_in(value)]
        return memory_of(self.paths) + memory_of(texts)


def _texts_in(value: Any) -> Iterable[str]:
    return [value] if isinstance(value, str) else value if isinstance(value, list) else ()


class _Path(Struct):
    path: str


class _Mark(Struct):
    table_id: str
    tid: str | None = None


class _Info(Struct):
    engine: str | None = struct_field(name="engineInfo", default=None)
    mark: _Mark | None = struct_field(name="dbio_commit", default=None)


class _Metadata(Struct, rename="camel", omit_defaults=True):
    """As much of it as is compared."""

    id: str | None = None
    schema_string: str | None = None
    partition_columns: list[str] | None = None


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
    """Raises CorruptMarkerError for what is no version of a Delta log; `where` is its URL.

    The first line of a version of ours says so. Of others, only who wrote them is looked for.
    """
    actions = decode_lines(_ACTIONS, lines, f"{where} is no version of a Delta log", SAVE)
    first = next(actions, _Actions())
    info = first.commit_info or _Info()
    if info.mark is None:
        engines = (it.commit_info.engine for it in chain([first], actions) if it.commit_info)
        engine = next(filter(None, engines), "an engine that does not say its name")
        return Version(None, engine[:_ENGINE_CHARACTERS])
    added, removed = Paths(where), Paths(where)
    metadata: _Metadata | None = None
    protocol: _Protocol | None = None
    for it in chain([first], actions):
        if it.add is not None:
            added.add(unquote(it.add.path))
        if it.remove is not None:
            removed.add(unquote(it.remove.path))
        metadata, protocol = it.meta_data or metadata, it.protocol or protocol
    return Version(
        Mark(info.mark.table_id, info.mark.tid),
        (info.engine or "")[:_ENGINE_CHARACTERS],
        added=added.found(),
        removed=removed.found(),
        metadata=None if metadata is None else to_builtins(metadata),
        protocol=None if protocol is None else to_builtins(protocol),
    )


_ENGINE_CHARACTERS = 200

SAVE = f"save what you need of {DIRECTORY}, delete it, and publish again"


class DeltaFile(NamedTuple):
    """A live file as a Delta log has it."""

    path: str
    size: int
    modified_ms: int
    """When the commit that added it was made, in ms since 1970."""
    partition: Mapping[str, str | None]
    statistics: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one version adds to those before it."""

    added: Sequence[DeltaFile]
    removed: Sequence[str]
    metadata: Mapping[str, Any] | None
    """None where it stays as it is; so does `protocol`."""
    protocol: Mapping[str, Any] | None
    data_change: bool = True
    """False where what is added has the rows of what is removed, and no others: Delta's streams pass over it."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.metadata or self.protocol)


def metadata_of(table_id: str, schema: DeltaSchema) -> dict[str, Any]:
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.text,
        "partitionColumns": list(schema.partition_columns),
        "configuration": {},
    }


def is_same_metadata(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(key) == other.get(key) for key in ("id", "schemaString", "partitionColumns"))


def is_same_protocol(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """A checkpoint of somebody else may spell out what is not there."""
    keys = ["minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"]
    return all(_as_set(one.get(key)) == _as_set(other.get(key)) for key in keys)


def _as_set(value: Any) -> Any:
    return frozenset(value or ()) if value is None or isinstance(value, list) else value


GUARD = "dbioCommit"
"""A feature of writers that only we have: all others refuse to write here, and to vacuum; readers need not know it."""

_LEGACY = ("appendOnly", "invariants")
"""What writer version 2, which earlier versions of ours asked for, stood for: version 7 names each feature."""


def protocol_of(features: Iterable[str], before: Mapping[str, Any]) -> dict[str, Any]:
    """What readers and writers must know; a log never goes back to less. `features` are of both."""
    of_readers = {*features, *map(str, before.get("readerFeatures") or ())}
    of_writers = {GUARD, *_LEGACY, *of_readers, *map(str, before.get("writerFeatures") or ())}
    writers = {"minWriterVersion": 7, "writerFeatures": sorted(of_writers)}
    if not of_readers:
        return {"minReaderVersion": 1, **writers}
    return {"minReaderVersion": 3, "readerFeatures": sorted(of_readers), **writers}


def encode_version(change: Change, mark: Mark, *, tids: Sequence[str], engine: str, now: datetime) -> bytes:
    """The body of a version. `tids` are commits that it shows and the one before did not; information only.

    Raises InvalidInputError for columns that nobody would read back.
    """
    now_ms = to_ms(now)
    ours = {"version": 1, "table_id": mark.table_id, "tid": mark.tid, "tids": list(tids)}
    info = {"timestamp": now_ms, "operation": "WRITE", "operationParameters": {}, "engineInfo": engine}
    actions: list[dict[str, Any]] = [{"commitInfo": {**info, "dbio_commit": ours}}]
    if change.protocol:
        actions.append({"protocol": change.protocol})
    if change.metadata:
        actions.append({"metaData": change.metadata})
    data_change = change.data_change
    actions += [{"remove": removal(path, now_ms, data_change=data_change)} for path in change.removed]
    actions += [{"add": addition(file, data_change=data_change)} for file in change.added]
    lines = [f"{_ENCODER.encode(action)}\n" for action in actions]
    if (longest := max(map(len, lines))) > MOST_LINE_BYTES:
        raise InvalidInputError(
            f"one action of a version would have {longest} bytes, and {MOST_LINE_BYTES} are read at most; overwrite "
            "the table with fewer columns, or publish it in another format"
        )
    return "".join(lines).encode()


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
