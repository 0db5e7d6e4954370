"""A part of a checkpoint that is gone or damaged: what can be rebuilt, from what, and what is refused."""

import random
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from dbio_commit.base.errors import CheckpointLostError, InvalidInputError
from dbio_commit.commit import checkpoints
from dbio_commit.commit import parts as writers
from dbio_commit.log.listing import read_numbered_checkpoint
from dbio_commit.log.parts import parquet
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import recorded_files
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.protocol.parts import Limits, Part
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from dbio_commit.upkeep.rebuild import Rebuilt, rebuild_checkpoint
from dbio_commit.upkeep.vacuum.report import VacuumOptions
from dbio_commit.upkeep.vacuum.run import run_vacuum
from tests.builders import columns

HOUR = timedelta(hours=1)
DAYS = ("1", "2", "3")


@pytest.fixture(autouse=True)
def tiny_parts() -> Iterator[None]:
    with (
        patch.object(checkpoints, "LARGE_FILES", 0),
        patch.object(writers, "LIMITS", Limits(split=12, budget=8, most=6)),
        patch.object(parquet, "GROUP_ROWS", 3),
        patch.object(parquet, "STATISTICS_ROWS", 2),
    ):
        yield


class Writer:
    """Makes a table with statistics, without Parquet files."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = ManualClock(seed=seed)
        self.store = MemoryStore(self.clock)
        self.table = Table.over(self.store, self.clock)
        self.chance = random.Random(seed)
        self.count = 0

    def commit(self, operation: Any = "append", *, files: int = 1, removed: int = 0, **more: Any) -> str:
        live = sorted(file.path for file in self.table.snapshot().files) if operation == "rewrite" else []
        transaction = self.table.begin(operation, partition_by=["day"], **more)
        transaction.inspector = None
        if live:
            transaction.remove(self.chance.sample(live, min(removed, len(live))))
        for _ in range(files):
            self.count += 1
            day = self.chance.choice(DAYS)
            path = transaction.new_file(partition={"day": day}).removeprefix(f"{self.table.url}/")
            body = b"x" * (10 + self.count)
            with self.store.open_write(path) as stream:
                stream.write(body)
            bounds = {"a": Bounds(self.count, self.count + 5, 0)} if self.chance.random() < 0.8 else None
            info = FileInfo(path=path, size=len(body), rows=self.count, partition={"day": day}, statistics=bounds)
            transaction.add([info], looked_at=True)
        self.clock.advance(timedelta(seconds=7))
        return transaction.commit(columns("a") | {"fields": [*columns("a")["fields"], *_day()]}).tid

    def step(self) -> None:
        match self.chance.choice(["append", "append", "append", "rewrite", "overwrite_partitions", "abort", "app"]):
            case "append":
                self.commit(files=self.chance.randint(1, 4))
            case "rewrite":
                self.commit("rewrite", files=self.chance.randint(0, 2), removed=self.chance.randint(1, 3))
            case "overwrite_partitions":
                self.commit("overwrite_partitions", files=self.chance.randint(1, 2))
            case "abort":
                self.table.begin("append", partition_by=["day"]).abort()
            case "app":
                self.commit(app=("nightly", self.count))

    def vacuum(self, retention: timedelta = HOUR) -> None:
        options = VacuumOptions(retention_hours=retention / HOUR, checkpoint_after=1, force=True)
        assert run_vacuum(self.store, self.clock, options).ok

    # --- what readers see -----------------------------------------------------------------------------------------

    def state(self) -> Mapping[str, Any]:
        snapshot = self.table.snapshot()
        told = recorded_files(snapshot.decided)
        commits = [it for it in snapshot.history() if it.added_files or it.removed_files]
        return {
            "files": {(file.path, file.size) for file in snapshot.files},
            "commits": [(it.tid, it.timestamp, it.operation, it.added_files, it.removed_files) for it in commits],
            "metadata": snapshot.metadata,
            "apps": snapshot.app_versions,
            "recorded": {file.path: told[file.path] for file in snapshot.files},
        }

    @property
    def root(self) -> Checkpoint:
        log = parse_log(self.store.list_log())
        return read_numbered_checkpoint(self.store, log, log.last_checkpoint)

    def newest(self, kind: str) -> Part:
        return max((part for part in self.root.parts if part.kind == kind), key=lambda part: part.until)

    def rebuild(self) -> Rebuilt:
        return rebuild_checkpoint(self.store, self.clock)


def _day() -> list[dict[str, Any]]:
    return [{"name": "day", "type": "string", "nullable": True, "metadata": {}}]


def lose(store: MemoryStore, path: str) -> None:
    del store.objects[path]


def flip(store: MemoryStore, path: str) -> None:
    body, modified = store.objects[path]
    place = len(body) // 2
    store.put(path, body[:place] + bytes([body[place] ^ 0xFF]) + body[place + 1 :], modified=modified)


def cut(store: MemoryStore, path: str) -> None:
    body, modified = store.objects[path]
    store.put(path, body[:-9], modified=modified)


Harm = Callable[[MemoryStore, str], None]
ALL_HARM = pytest.mark.parametrize("harm", [lose, flip, cut])


# --- any object of random tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(16))
def test_a_rebuild_gives_the_same_state_or_refuses_whichever_object_is_lost(seed: int) -> None:
    writer = Writer(seed)
    writer.commit(files=3)
    for _ in range(writer.chance.randint(1, 9)):
        for _ in range(writer.chance.randint(1, 3)):
            writer.step()
        writer.table.checkpoint()
        writer.clock.advance(timedelta(minutes=writer.chance.choice([1, 20, 50])))
        if writer.chance.random() < 0.4:
            writer.vacuum(timedelta(minutes=writer.chance.choice([30, 300])))
    if writer.chance.random() < 0.5:
        writer.commit()
    assert _lose_each(writer)["rebuilt"]


def _lose_each(writer: Writer) -> dict[str, int]:
    store, before, found = writer.store, dict(writer.store.objects), {"rebuilt": 0, "refused": 0}
    state, top, root = writer.state(), max(parse_log(store.list_log()).checkpoints), writer.root
    harms = (lose, flip, cut)
    parts = [name for part in root.parts for name in part.objects]
    single = [[name] for name in (*parts, names.checkpoint(top))]
    pairs = [writer.chance.sample(parts, 2) for _ in range(2) if len(parts) > 1]
    for lost in (*single, *pairs):
        store.objects = dict(before)
        if writer.chance.random() < 0.3:  # what vacuum deletes some day
            oldest = min(parse_log(store.list_log()).checkpoints)
            free = [name for it in root.dropped if it.by <= oldest for name in it.part.objects if name in store.objects]
            for name in writer.chance.sample(free, writer.chance.randint(0, len(free))):
                lose(store, name)
        for name in lost:
            writer.chance.choice(harms)(store, name)
        harmed = dict(store.objects)
        try:
            done = writer.rebuild()
        except CheckpointLostError as error:
            found["refused"] += 1
            assert store.objects == harmed
            assert "bring" in str(error).lower()
            assert lost[0] in str(error) or names.checkpoint(top) in str(error)
            continue
        except InvalidInputError as error:  # an older checkpoint is there, or the bits are in a byte that nobody reads
            assert "nothing to rebuild" in str(error)
            assert {*(part.statistics.name for part in root.parts if part.statistics), names.checkpoint(top)} >= {*lost}
            assert writer.state() == state
            continue
        found["rebuilt"] += 1
        assert harmed.items() <= store.objects.items()
        again = writer.state()
        assert {**again, "recorded": None} == {**state, "recorded": None}, (lost, done)
        assert done.loses or again["recorded"] == state["recorded"]
        with pytest.raises(InvalidInputError, match="nothing to rebuild"):
            writer.rebuild()
        writer.table.check()
        writer.commit()
        writer.table.checkpoint()
        assert {path for path, _ in again["files"]} < {file.path for file in writer.table.snapshot().files}
    store.objects = before
    return found
