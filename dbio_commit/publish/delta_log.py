"""A Delta log as far as we write it: names and bodies of versions, what they add up to, what is not needed any more.

Pure. By Delta's protocol, in its public specification; columns and values are in `delta_schema`, the Parquet of its
checkpoints in `delta_checkpoint`. Rules: PROTOCOL.md section 14.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Self
from urllib.parse import quote, unquote

from dbio_commit.errors import CorruptMarkerError
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import split
from dbio_commit.protocol.settings import Format
from dbio_commit.publish.delta_schema import DeltaSchema
from dbio_commit.publish.places import DIRECTORIES, by_number

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
    def of(cls, entries: Iterable[Entry]) -> Self:
        """Of all files of a table, or of those in its log."""
        inside = [entry for entry in entries if split(entry.path)[0] == DIRECTORY]
        return cls(by_number(inside, _VERSION), by_number(inside, _CHECKPOINT))

    @property
    def last(self) -> int:
        """The last version; -1 where there is none."""
        return max([*self.versions, *self.checkpoints], default=-1)

    @property
    def last_checkpoint(self) -> int:
        """The last checkpoint's version; -1 where there is none."""
        return max(self.checkpoints, default=-1)


_FEWEST, _MOST = 10, 100
"""Versions between two checkpoints."""


def checkpoint_is_due(listing: DeltaListing, number: int, size: int) -> bool:
    """Whether to write one after version `number`, of `size` bytes: not before the versions outweigh the last one."""
    last = listing.last_checkpoint
    since = number - max(last, 0)
    written = sum(entry.size for version, entry in listing.versions.items() if version > last) + size
    before = listing.checkpoints[last].size if last >= 0 else 0
    return since >= _MOST or (since >= _FEWEST and written >= before)


def superseded(entries: Iterable[Entry], horizon: datetime) -> list[Entry]:
    """Of the entries of a log, the versions and checkpoints before a checkpoint that is older than the horizon.

    What they say, the checkpoint says, and so it did at the horizon already: readers who began since need none of them.
    """
    listing = DeltaListing.of(entries)
    old = (number for number, entry in listing.checkpoints.items() if entry.modified < horizon)
    last = max(old, default=0)
    parts = [*listing.versions.items(), *listing.checkpoints.items()]
    return [entry for number, entry in sorted(parts) if number < last and entry.modified < horizon]


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
    """None where somebody else wrote it."""
    engine: str
    """Who says that it wrote it."""
    added: Sequence[str] = ()
    """Paths relative to the root, as our markers name them."""
    removed: Sequence[str] = ()
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

    def then(self, version: Version) -> "DeltaState":
        return DeltaState(
            (self.paths - frozenset(version.removed)) | frozenset(version.added),
            version.metadata or self.metadata,
            version.protocol or self.protocol,
            version.mark,
        )


def decode_version(body: bytes, *, where: str) -> Version:
    """Raises CorruptMarkerError for what is no version of a Delta log; `where` is its URL."""
    kinds: dict[str, list[Any]] = {}
    try:
        for line in body.splitlines():
            for kind, action in json.loads(line).items() if line.strip() else ():
                kinds.setdefault(kind, []).append(action)
        info = (kinds.get("commitInfo") or [{}])[0]
        ours = info.get("dbio_commit")
        return Version(
            mark=Mark(str(ours["table_id"]), ours.get("tid")) if ours else None,
            engine=str(info.get("engineInfo", "an engine that does not say its name")),
            added=[unquote(action["path"]) for action in kinds.get("add", ())],
            removed=[unquote(action["path"]) for action in kinds.get("remove", ())],
            metadata=_last_object(kinds.get("metaData", ())),
            protocol=_last_object(kinds.get("protocol", ())),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptMarkerError(
            f"{where} is no version of a Delta log ({error!r:.200}); save what you need of {DIRECTORY}, delete it, and "
            "publish again"
        ) from None


def _last_object(actions: Sequence[Any]) -> Mapping[str, Any] | None:
    if not all(isinstance(action, dict) for action in actions):
        raise TypeError("an action that is no object")
    return actions[-1] if actions else None


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
    keys = [*_PLAIN, "readerFeatures", "writerFeatures"]
    return all(_as_set(one.get(key)) == _as_set(other.get(key)) for key in keys)


def _as_set(value: Any) -> Any:
    return frozenset(value or ()) if value is None or isinstance(value, list) else value


_PLAIN = {"minReaderVersion": 1, "minWriterVersion": 2}


def protocol_of(features: Iterable[str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The lowest that does; a log never goes back to a lower one."""
    wanted = sorted({*features, *map(str, before.get("readerFeatures") or ())})
    if not wanted:
        return dict(_PLAIN)
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": wanted, "writerFeatures": wanted}


def encode_version(change: Change, mark: Mark, *, tids: Sequence[str], engine: str, now: datetime) -> bytes:
    """The body of a version. `tids` are commits that it shows and the one before did not; information only."""
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
    return "".join(f"{_ENCODER.encode(action)}\n" for action in actions).encode()


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


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
