"""What unit tests put into a store by hand: names, schemas, markers, and a table of them at times to choose."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from dbio_commit.feed.feed import Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import encode_position
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import Body, encode
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker, as_recorded
from dbio_commit.protocol.markers.schema import pack_schema
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.versions import Versions, add_up
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import once

_T = TypeVar("_T")

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OLD = NOW - timedelta(days=1)
DESCRIPTOR = {"version": 1, "id": "t", "created": "2026-11-20T00:00:00Z", "partition_columns": []}


def data(tid: str, number: int = 0) -> str:
    """The name of a data file."""
    return f"part-{number:05d}-tid-{tid}-job-0-{number}-c000.parquet"


def columns(*named: str) -> dict[str, Any]:
    """A schema."""
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {"comment": "of a test"}} for name in named]
    return {"type": "struct", "fields": fields}


def marker(added: Sequence[str] = (), removed: Sequence[str] = (), **info: Any) -> CommitMarker:
    """Ours where it says more than DBIO does; `schema` as a dict, `operation` in the word that users know."""
    if "schema" in info:
        info["schema"] = pack_schema(info["schema"])
    if info:
        info["recorded"] = as_recorded(info.pop("operation", "append"))
    ours = CommitInfo(**{"commit_id": "c", "timestamp": NOW, **info}) if info else None
    return CommitMarker(added=list(added), removed=list(removed), dbio_commit=ours)


def versions_of(*numbers: int) -> Versions:
    """That these are committed, and no others."""
    return add_up([marker(app=App(id="a", version=it)) for it in numbers], before={})["a"]


class World(MemoryStore):
    """A store to which others write, outside of any call of whoever is tested."""

    def __init__(self, *, descriptor: bool = True, at: datetime = OLD) -> None:
        self.clock = ManualClock(NOW)
        super().__init__(self.clock)
        if descriptor:
            self.put_json("_dbio_table", DESCRIPTOR, at=at)

    def put_json(self, path: str, body: dict[str, Any], *, at: datetime = OLD) -> None:
        self.put(path, json.dumps(body).encode(), modified=at)

    def put_body(self, path: str, body: Body, *, at: datetime = OLD) -> None:
        self.put(path, encode(body), modified=at)

    def data(self, path: str, size: int = 5, *, at: datetime = OLD) -> str:
        self.put(path, b"x" * size, modified=at)
        return path

    def delete(self, *paths: str) -> None:
        for path in paths:
            del self.objects[path]

    def start(self, tid: str, *, at: datetime = OLD) -> None:
        self.put(f"_started_{tid}", modified=at)

    def files(self, *paths: str, at: datetime = OLD) -> None:
        for path in paths:
            self.data(path, at=at)

    def mark(
        self, tid: str, added: Sequence[str] = (), removed: Sequence[str] = (), *, at: datetime = OLD, **info: Any
    ) -> None:
        """A commit marker at the root, and no file; ours where it says more than DBIO does."""
        body: dict[str, Any] = {"added": list(added), "removed": list(removed)}
        if info:
            ours = {"version": 1, "operation": "append", "commit_id": tid, "timestamp": at.isoformat()}
            body["dbio_commit"] = {**ours, **info}
        self.put_json(f"_committed_{tid}", body, at=at)

    def commit(
        self, tid: str, added: Sequence[str] = (), removed: Sequence[str] = (), *, at: datetime = OLD, **info: Any
    ) -> None:
        """A commit marker, and the files that it adds."""
        self.files(*(path for path in added if path not in self.objects), at=at)
        self.mark(tid, added, removed, at=at, **info)

    def when(self, operation: str, path: str, action: Callable[[], object], *, nth: int = 1) -> None:
        """Somebody does `action` right before the nth call of the operation on the path."""
        self.before = once(operation, path, action, nth=nth)

    def table(self) -> Table:
        return Table.over(self, self.clock)

    def snapshot(self, **how: Any) -> Snapshot:
        return self.table().snapshot(**how)

    def seen(self, **how: Any) -> set[str]:
        return {file.path for file in self.snapshot(**how).files}


QUERY = "9322bbc0-12c8-4cd1-90e7-39562172de73"


def stream_checkpoint(path: Path, table: Table) -> Path:
    """As Spark writes it for a query, of that id, that has read all of the table."""
    position = Feed(Follower(table.store, table.clock).history(), FeedOptions()).newest()
    offsets = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(encode_position(position))]
    for directory, body in (("offsets", "\n".join(offsets)), ("commits", "v1\n{}")):
        (path / directory).mkdir(parents=True)
        (path / directory / "7").write_text(body)
    (path / "metadata").write_text(json.dumps({"id": QUERY}))
    return path


def as_dbio_sees(objects: Mapping[str, _T]) -> dict[str, _T]:
    """What of a table counts for DBIO's own readers and vacuum, which know no descriptor, turns and checkpoints."""
    ours = (names.DESCRIPTOR, Kind.TURN, Kind.CHECKPOINT)
    return {path: body for path, body in objects.items() if not path.startswith(ours)}
