"""A small simulation of the life of parts: writers of checkpoints, vacuums, and readers that read a snapshot late.

Its actors run the package's code on the store of `world`, as those of `run` do. Commits take no step, and only parts
are checked, so that a seed takes a quarter of a second. `make simulate SCENARIO=checkpoints SEED=0` prints one.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

from dbio_commit.base.errors import CheckpointLostError, DbioError, ObjectNotFoundError
from dbio_commit.commit import begin, checkpoints, parts
from dbio_commit.commit.probe import _PROBED
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.parts import parquet, reader
from dbio_commit.maintenance.vacuum import plan
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.maintenance.vacuum.run import run_vacuum
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint, decode_checkpoint
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.parts import Part
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore
from tests.tiny_parts import tiny_parts as parts_of_a_few_rows
from tests.writers import write

from .actors import Act, give_up
from .world import DAY_S, HOUR_S, Actor, Risks, SimClock, SimStore, Violation, World

SCENARIO = "checkpoints"

RETENTION_HOURS = 1.0

PROMISED = timedelta(hours=RETENTION_HOURS) - timedelta(seconds=5)
"""How long a snapshot can be read, whatever happens meanwhile."""

PURGE_AFTER = timedelta(seconds=30)
"""Old checkpoints go long before the parts that they name."""

OPERATIONS: Sequence[Operation] = ("append", "overwrite")

WAVE_S = 2 * HOUR_S
"""The actors act together at the beginning of each wave, and rest until the next one. So parts get old between two
merges."""

SOON_S = 60.0
"""After the beginning of a wave, when its checkpoints are new."""

LATE_S = 1.3 * HOUR_S
"""After the beginning of a wave, when the parts that were written then are older than the retention."""

DOZE_S = 1.6 * HOUR_S
"""How long a writer may sleep between the parts and their checkpoint. It wakes before the next wave."""


@dataclass
class Deeds:
    """What happened in one run, and what must be true of it."""

    world: World
    newest: Checkpoint = NO_CHECKPOINT
    live: list[tuple[int, frozenset[str]]] = field(default_factory=lambda: [(0, frozenset())])
    """The live files after each commit, and the step from which they were."""

    def on_put(self, path: str, body: bytes) -> None:
        marker = names.parse_log_name(path)
        if marker is None or marker.kind is not Kind.CHECKPOINT or int(marker.id) <= self.newest.number:
            return
        self.newest = decode_checkpoint(body, number=int(marker.id), where=path)
        self.world.happened("checkpoint")
        if lost := self.needed - self.world.store.objects.keys():
            raise Violation(f"I4: {path} names parts that are not there: {sorted(lost)}")

    def on_delete(self, path: str) -> None:
        if path in self.needed:
            raise Violation(f"I4: {path} was deleted, which checkpoint {self.newest.number} names")
        if path.startswith(Kind.PART):
            actor = self.world.current()
            if actor and not actor.name.startswith("vacuum"):
                self.world.happened("a writer withdrew a part")
            elif path in self.dropped:
                self.world.happened("vacuum deleted a dropped part")
            else:
                self.world.happened("vacuum deleted a part that no checkpoint had named")

    @property
    def needed(self) -> set[str]:
        """The objects of the newest checkpoint's parts."""
        return {name for part in self.newest.parts for name in part.objects}

    @property
    def dropped(self) -> set[str]:
        """The objects of the parts that the newest checkpoint lists as dropped."""
        return {name for it in self.newest.dropped for name in it.part.objects}

    def commit(self, chance: random.Random) -> None:
        """Commits one transaction in no step. Most transactions append."""
        world = self.world
        store = MemoryStore(SimClock(world), url=world.store.url)
        store.objects = world.store.objects
        table = Table.over(store, SimClock(world))
        operation = chance.choices(OPERATIONS, (5, 1))[0]
        _PROBED.add(store.identity)
        try:
            added = write(table, operation, bodies=[b"rows"] * chance.choice((1, 1, 4))).marker.added
        finally:
            _PROBED.discard(store.identity)
        before = self.live[-1][1] if operation == "append" else frozenset()
        self.live.append((world.steps, before.union(added)))
        world.note("somebody", f"commits an {operation}")

    def check(self, found: frozenset[str], *, since: int, until: int) -> None:
        """These files were live at some step of that time."""
        first = max(i for i, (step, _) in enumerate(self.live) if step <= since)
        if not any(found == live for step, live in self.live[first:] if step <= until):
            raise Violation(f"R1: a snapshot of the steps {since} to {until} has the files {sorted(found)}")


class _SleepyStore(SimStore):
    """A writer may fall asleep between the parts and their checkpoint."""

    doze = 0.0
    """How likely that is."""

    def put_if_absent(self, path: str, body: bytes) -> bool:
        world = self._world
        if path.startswith(Kind.CHECKPOINT) and (actor := world.current()) and actor.name.startswith("checkpointer"):
            actor.clock.sleep(DOZE_S if world.random.random() < self.doze else 0.0)
        return super().put_if_absent(path, body)


# --- who acts -----------------------------------------------------------------------------------------------------


def _nap(world: World, actor: Actor, *, likely: float, until_s: float = 0.0) -> None:
    """Sleeps for up to a minute, or, as often as `likely`, until `until_s` after the beginning of the next wave."""
    if world.random.random() >= likely:
        actor.clock.sleep(world.random.choice((0.1, 1.0, 60.0)))
    else:
        left_s = WAVE_S - (world.time_s - until_s) % WAVE_S
        actor.clock.sleep(left_s + world.random.uniform(0, 60.0))


def _checkpointer(deeds: Deeds, *, runs: int, nap: float) -> Act:
    """Commits, and writes a checkpoint as writers do after a commit."""

    def act(world: World, actor: Actor) -> None:
        store = world.store.seen_by(actor.name)
        for _ in range(runs):
            _nap(world, actor, likely=nap)
            deeds.commit(world.random)
            began = world.now
            gone = world.random.choice((None, None, ()))
            try:
                written = checkpoints.write_checkpoint(store, actor.clock, read_snapshot(store, actor.clock), gone=gone)
            except ObjectNotFoundError as error:
                _is_too_late(world, began, error)
            except DbioError as error:
                give_up(world, actor, "no checkpoint", error)
            else:
                world.happened("a checkpoint was written" if written else "a checkpoint came too late")

    return act


def _vacuum(deeds: Deeds, *, runs: int, late_s: float) -> Act:
    def act(world: World, actor: Actor) -> None:
        store = world.store.seen_by(actor.name)
        for _ in range(runs):
            _nap(world, actor, likely=0.8, until_s=late_s)
            options = VacuumOptions(retention_hours=RETENTION_HOURS, checkpoint_after=world.random.choice((0, 20, 20)))
            began = world.now
            try:
                report = run_vacuum(store, actor.clock, options)
            except ObjectNotFoundError as error:
                _is_too_late(world, began, error)
            except DbioError as error:
                give_up(world, actor, "vacuum failed", error)
            else:
                world.note(actor.name, f"vacuumed: {len(report.deleted)} deleted, checkpoint {report.checkpoint}")

    return act


def _slow_reader(deeds: Deeds, *, runs: int) -> Act:
    """Takes a snapshot, and reads what is in it later, request by request."""

    def act(world: World, actor: Actor) -> None:
        for run in range(runs):
            _nap(world, actor, likely=0.7)
            store = world.store.seen_by(f"{actor.name} {run}")  # which remembers nothing of other runs
            since, began = world.steps, world.now
            try:
                snapshot = read_snapshot(store, actor.clock)
                until = world.steps
                actor.clock.sleep(world.random.choice(_HELD_S))
                files = frozenset(file.path for file in snapshot.files)
                actor.clock.sleep(world.random.choice(_HELD_S))
                world.note(actor.name, f"sees {len(files)} files, {len(snapshot.decided)} transactions late")
            except (CheckpointLostError, ObjectNotFoundError) as error:
                _is_too_late(world, began, error)
            except DbioError as error:
                give_up(world, actor, "cannot read", error)
            else:
                deeds.check(files, since=since, until=until)
                world.happened("a snapshot was read late")

    return act


def _is_too_late(world: World, began: datetime, error: DbioError) -> None:
    """A snapshot that is older than the retention may miss parts."""
    if world.now - began < PROMISED:
        raise Violation(f"I4: a snapshot cannot be read {world.now - began} later: {error!r}") from error
    world.happened("a snapshot was read too late")


_HELD_S = (0.1, 60.0, 900.0, 1700.0)


# --- one run ------------------------------------------------------------------------------------------------------


def new_world(seed: int, *, trace: bool = False) -> World:
    """The world of a seed, in which nobody acts yet."""
    chance = random.Random(f"{SCENARIO} {seed}")
    risks = Risks(
        stall=0.02,
        stalls_s=(60.0, 900.0, 2 * HOUR_S),
        kill=0.002,
        lost_answer=0.004,
        not_applied=0.002,
        late=0.004,
        own_conflict=0.02,
        torn_listings=chance.random() < 0.5,
        disk=0.2,
    )
    world = World(seed, risks, trace=trace)
    world.store = _SleepyStore(world)
    return world


def play(world: World, seed: int) -> None:
    """Runs it to its end, then vacuums until nothing is left to do. Raises Violation.

    In worlds with an even seed, two writers often fall asleep, and vacuum comes late. In the others, three writers
    and vacuum act at once.
    """
    deeds = world.watcher = Deeds(world)
    assert isinstance(world.store, _SleepyStore)
    sleepy = seed % 2 == 0
    world.store.doze = 0.7 if sleepy else 0.1
    with _few_rows(seed):
        deeds.commit(world.random)
        for i in range(2 if sleepy else 3):
            world.spawn(f"checkpointer{i}", _checkpointer(deeds, runs=4, nap=0.7 if sleepy else 0.4))
        for i in range(2):
            world.spawn(f"vacuum{i}", _vacuum(deeds, runs=4, late_s=LATE_S if sleepy else SOON_S))
        for i in range(3):
            world.spawn(f"reader{i}", _slow_reader(deeds, runs=3), stalls_s=(1.0, 60.0))
        world.run()
        _settle(deeds)


@contextmanager
def _few_rows(seed: int) -> Iterator[None]:
    """Parts have a few rows and the names of the seed. Vacuum purges by checkpoints that are PURGE_AFTER old."""
    chance = random.Random(f"parts {seed}")
    decode, decoded = parquet.decode_groups, dict[Any, Any]()

    def decode_once(part: Part, footer: bytes, bodies: Mapping[int, bytes | memoryview], schema: Any) -> Any:
        """Decoding would take most of the time. The same bytes give the same rows."""
        key = part.name, footer, *((i, bytes(body)) for i, body in bodies.items())
        if key not in decoded:
            decoded[key] = decode(part, footer, bodies, schema)
        return decoded[key]

    with (
        parts_of_a_few_rows(),
        patch.object(parquet, "GROUP_ROWS", 100),
        patch.object(parts, "uuid4", lambda: UUID(int=chance.getrandbits(128))),
        patch.object(reader, "decode_groups", decode_once),
        patch.object(begin, "checkpoint_every", lambda: 0),
        patch.object(plan, "METADATA_RETENTION", PURGE_AFTER),
    ):
        yield


def _settle(deeds: Deeds) -> None:
    """When everybody has gone, the table is as it was committed, and vacuum leaves the parts that are needed."""
    world = deeds.world
    clock = SimClock(world)
    for _ in range(2):
        world.time_s += DAY_S
        store = world.store.seen_by("afterwards")
        if failed := run_vacuum(store, clock, VacuumOptions(retention_hours=RETENTION_HOURS)).failed:
            raise Violation(f"an undisturbed vacuum failed: {failed}")
    found = frozenset(file.path for file in read_snapshot(world.store.seen_by("the last"), clock).files)
    deeds.check(found, since=world.steps, until=world.steps)
    there = {path for path in world.store.objects if path.startswith(Kind.PART)}
    if left := there - deeds.needed - deeds.dropped:
        raise Violation(f"vacuum left the parts {sorted(left)}")
