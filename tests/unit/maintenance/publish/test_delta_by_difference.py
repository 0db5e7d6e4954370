"""A Delta version that is made of the commits since the last one is the version that a comparison of everything makes.

Histories are random, with commits that come late, are withdrawn, remove by reference or are forgotten, and with tables
in one body and in tiny parts.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.log.parts import windows
from dbio_commit.maintenance.publish import delta, delta_replay, difference
from dbio_commit.maintenance.publish.delta_log import DeltaShown, version_path
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.tiers import long
from tests.tiny_parts import in_both_forms
from tests.unit.remembering import forget, memory  # noqa: F401  (a fixture)
from tests.writers import live, stage

pytestmark = in_both_forms

URL = "s3://lake/table"


@contextmanager
def comparing_all() -> Iterator[None]:
    with patch.object(DeltaShown, "unseen", lambda self, tids: None):
        yield


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_ROWS", 2)


class History:
    """A table that changes by chance."""

    def __init__(self, seed: int) -> None:
        self.chance, self.clock = random.Random(seed), ManualClock(seed=seed)
        self.store = MemoryStore(self.clock, url=URL)
        self.table = Table.over(self.store, self.clock)
        self.partition_by = self.chance.choice([[], ["day"]])
        self.is_whole = Counter[bool]()
        self.append()

    def file(self, transaction: Any) -> None:
        day = {"day": str(self.chance.randrange(3))} if self.partition_by else None
        least = self.chance.randrange(9)
        statistics = {"id": Bounds(least, least + 1, 0)} if self.chance.random() < 0.7 else None
        stage(self.table, transaction, b"rows" * self.chance.randrange(1, 4), day, statistics)

    def commit(self, operation: Any, *, remove: list[str] | None = None, files: int | None = None, **more: Any) -> str:
        transaction = self.table.begin(operation, partition_by=self.partition_by, **more)
        for _ in range(self.chance.randrange(4) if files is None else files):
            self.file(transaction)
        if remove:
            transaction.remove(remove)
        transaction.vouch_for_rows()
        self.clock.advance(timedelta(seconds=1))
        return transaction.commit(columns("id", *self.partition_by)).tid

    # --- steps ----------------------------------------------------------------------------------------------------

    def append(self) -> None:
        self.commit("append")

    def overwrite(self) -> None:
        self.commit("overwrite")

    def overwrite_by_reference(self) -> None:
        with patch.object(TableRoot, "refer_above", 1):
            self.commit("overwrite")

    def overwrite_partitions(self) -> None:
        self.commit("overwrite_partitions")

    def some(self) -> list[str]:
        paths = sorted(live(self.table))
        return self.chance.sample(paths, self.chance.randint(1, len(paths))) if paths else []

    def rewrite(self) -> None:
        if paths := self.some():
            self.commit("rewrite", remove=paths)

    def compact(self) -> None:
        if paths := self.some():
            self.commit("rewrite", remove=paths, files=1, data_change=False)

    def add_and_remove(self) -> None:
        """Between two publications."""
        self.append()
        self.rewrite()

    def come_late(self) -> None:
        """An append whose marker gets an earlier time than commits that are published already."""
        for _ in range(3):
            self.commit("append", files=1)
        self.publish()
        tid = self.commit("append", files=1)
        path = names.committed(tid)
        body, at = self.store.objects[path]
        self.store.objects[path] = body, at - timedelta(seconds=self.chance.choice([1, 2, 3, 4, 60]))

    def withdraw(self) -> None:
        """The newest marker goes again, if no checkpoint covers it."""
        if self.chance.random() < 0.5:
            self.publish()
        markers = sorted((at, path) for path, (_, at) in self.store.objects.items() if path.startswith("_committed_"))
        if len(markers) > 1 and self.table.snapshot().news:
            covered = self.table.snapshot().checkpoint.covered
            if markers[-1][1].removeprefix("_committed_") not in covered:
                del self.store.objects[markers[-1][1]]

    def remove_blindly(self) -> None:
        """A marker of another DBIO writer, which removes a file that is not live any more, or that nobody has added."""
        removed = sorted({path for it in self.table.snapshot().decided for path in it.marker.removed})
        tid = str(self.chance.randrange(10**18, 10**19))
        unknown = f"part-0-tid-{tid}-x-1-1-c000.snappy.parquet"
        path = self.chance.choice([*removed, unknown])
        self.store.put(names.committed(tid), encode(CommitMarker(added=[], removed=[path])))
        self.clock.advance(timedelta(seconds=1))

    def abort(self) -> None:
        transaction = self.table.begin("append", partition_by=self.partition_by)
        self.file(transaction)
        transaction.abort()

    def set(self) -> None:
        self.table.set({"check.c": f"id > {self.chance.randrange(9)}"})

    def checkpoint(self) -> None:
        self.clock.advance(timedelta(hours=1))
        self.table.checkpoint()

    def vacuum(self) -> None:
        self.clock.advance(timedelta(days=self.chance.choice([1, 3, 40])))
        self.table.vacuum()

    def restore(self) -> None:
        if tids := self.table.snapshot().tids:
            with suppress(InvalidInputError, CommitConflictError):
                self.table.restore(self.chance.choice(tids))

    def forget_mark(self) -> None:
        """As if an earlier version of dbio had published."""
        last = self.last_version()
        if last >= 0:
            first, _, rest = self.store.objects[version_path(last)][0].partition(b"\n")
            action = json.loads(first)
            action["commitInfo"]["dbio_commit"].pop("shows", None)
            self.store.put(version_path(last), json.dumps(action).encode() + b"\n" + rest)

    # --- publications ---------------------------------------------------------------------------------------------

    def last_version(self) -> int:
        listing = delta.look(self.store)
        return listing.last

    def publish(self) -> None:
        """In both ways, with the same result."""
        other = MemoryStore(self.clock, url=URL)
        other.objects = dict(self.store.objects)
        before = self.last_version()
        with comparing_all():
            (whole,) = Table.over(other, self.clock).publish("delta")
        if self.chance.random() < 0.3:
            forget()
        with patch.object(delta, "replay", wraps=delta_replay.replay) as replay:
            (done,) = self.table.publish("delta")
        if before >= 0:
            self.is_whole[replay.called] += 1
        assert done == whole
        assert said(self.store, done.number) == said(other, done.number)
        assert shown(self.store) == shown(other) == live(self.table)
        for path in other.objects:
            if path.endswith(".checkpoint.parquet"):
                assert path in self.store.objects

    def run(self, steps: int) -> None:
        for _ in range(steps):
            for _ in range(self.chance.choice([0, 1, 1, 1, 2, 3])):
                with suppress(CommitConflictError):  # if what it has seen was withdrawn
                    self.chance.choice(STEPS)(self)
            self.publish()


STEPS = [
    *[History.append, History.rewrite, History.checkpoint] * 2,
    *[History.overwrite, History.overwrite_by_reference, History.overwrite_partitions, History.compact],
    *[History.add_and_remove, History.come_late, History.withdraw, History.remove_blindly, History.abort],
    *[History.set, History.vacuum, History.restore, History.forget_mark],
]


def said(store: MemoryStore, number: int) -> Any:
    """The actions of a version without the times of its making, and without their order."""
    found = []
    for line in store.objects[version_path(number)][0].decode().splitlines():
        action = json.loads(line)
        action.get("remove", {}).pop("deletionTimestamp", None)
        action.get("commitInfo", {}).pop("timestamp", None)
        action.get("commitInfo", {}).get("dbio_commit", {}).pop("shows", None)
        found.append(json.dumps(action, sort_keys=True))
    return sorted(found)


def shown(store: MemoryStore) -> set[str]:
    """What the versions add up to from the first one on, or from a checkpoint if the first ones are deleted."""
    with patch.object(delta_replay, "find", lambda place, entry: None):
        return {*delta_replay.replay(store, delta.look(store), Table.over(store).snapshot().table_id or "").paths}


@pytest.mark.parametrize("seed", [*range(6), *long(*range(6, 16))])
def test_versions_by_the_commits_since_are_those_of_comparisons_as_a_whole(seed: int) -> None:
    history = History(seed)
    history.publish()
    with patch.object(difference, "_NEWEST", history.chance.choice([1, 3, 100])):
        history.run(12)
