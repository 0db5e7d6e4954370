"""A small simulation of several tables in one store, and of readers that read all of them at one moment.

Its actors run the package's code on stores of `world`, as those of `run` do. Loaders commit a fact after its dimension;
vacuums purge markers while readers sleep. `make simulate SCENARIO=moments SEED=0` prints one.
"""

import json
import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from unittest.mock import patch

from dbio_commit.base.errors import DbioError, InvalidInputError, ObjectNotFoundError
from dbio_commit.commit import begin
from dbio_commit.commit.checkpoints import write_checkpoint
from dbio_commit.commit.probe import _PROBED
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.vacuum import plan
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.names import Kind
from dbio_commit.table import Table, snapshots, vacuum_table
from tests.writers import write

from .actors import Act, give_up
from .world import HOUR_S, Actor, Risks, SimClock, SimStore, Violation, World

SCENARIO = "moments"

DIMENSIONS, FACTS, OTHERS = range(3)

PURGE_AFTER = timedelta(seconds=40)
"""Markers go soon: readers trust listings for 30 s."""

_SLEEPS_S = (0.5, 3.0, 60.0, 200.0, 600.0, HOUR_S)

SETTLED_S = 10.0
"""All objects of a time have appeared so long after it."""


@dataclass(slots=True)
class Put:
    """The PUT of a commit marker. Times are ticks of `Deeds`."""

    began: int
    refers: tuple[int, str] | None
    """The table and tid of the dimension that its rows name."""
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    modified: datetime | None = None
    """None until it appears."""
    reported: int | None = None
    """When it was acknowledged, if it was."""


@dataclass
class Deeds:
    """What happened in one run, and what must be true of it."""

    world: World
    stores: list["TableStore"] = field(default_factory=list)
    puts: dict[tuple[int, str], Put] = field(default_factory=dict)
    """By table and tid."""
    refers: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By the name of a loader: what the fact that it commits next names."""
    _ticks: Iterator[int] = field(default_factory=count)

    def tick(self) -> int:
        return next(self._ticks)

    def check(self, found: Mapping[int, Snapshot], *, since: int, waited: bool) -> None:
        """One moment: no commit is left out that was reported before another was begun, or before the read was.

        `waited`: for what was still to appear, of the time of what it had listed.
        """
        seen = {(place, it.tid) for place, snapshot in found.items() for it in snapshot.decided}
        seen = {key for key in seen if key in self.puts}
        missed = {key: it for key, it in self.puts.items() if key[0] in found and key not in seen and it.modified}
        reported = {key: it.reported for key, it in missed.items() if it.reported is not None}
        if lost := [key for key, at in reported.items() if at < since]:
            raise Violation(f"R1: a read since {since} missed {sorted(lost)}")
        for key in seen:
            put = self.puts[key]
            if before := [it for it, at in reported.items() if at < put.began]:
                raise Violation(f"R2: a reader saw {key}, and missed {sorted(before)}, which was reported before")
            if put.refers and put.refers[0] in found and put.refers not in seen:
                raise Violation(f"R2: a reader saw the fact {key}, and missed its dimension {put.refers}")
        newest = max(at for key in seen if (at := self.puts[key].modified))
        if waited and (older := [key for key, it in missed.items() if it.modified and it.modified < newest]):
            raise Violation(f"R3: a reader saw a commit of {newest}, and missed {sorted(older)}, which are older")
        self._check_files(found, seen)
        if missed:
            self.world.happened("a commit came during a read of several tables")

    def check_past(self, found: Mapping[int, Snapshot], at: datetime) -> None:
        """All tables as of one time."""
        seen = {key for key, it in self.puts.items() if key[0] in found and it.modified and it.modified <= at}
        self._check_files(found, seen)
        self.world.happened("several tables were read as of a time")

    def _check_files(self, found: Mapping[int, Snapshot], seen: Collection[tuple[int, str]]) -> None:
        for place, snapshot in found.items():
            own = [self.puts[key] for key in seen if key[0] == place]
            live = frozenset().union(*(it.added for it in own)) - frozenset().union(*(it.removed for it in own))
            if (files := {it.path for it in snapshot.files}) != live:
                raise Violation(f"I6: table {place} was read with {sorted(files ^ live)} wrong")


class TableStore(SimStore):
    """The store of one of the tables."""

    def __init__(self, world: World, deeds: Deeds) -> None:
        super().__init__(world)
        self.url = f"s3://sim/table{len(deeds.stores)}"
        self.place, self.deeds = len(deeds.stores), deeds
        deeds.stores.append(self)

    def put_if_absent(self, path: str, body: bytes) -> bool:
        marker = names.parse_log_name(path)
        if marker is None or marker.kind is not Kind.COMMITTED or b'"abort"' in body:
            return super().put_if_absent(path, body)
        actor = self._world.current()
        key, refers = (self.place, marker.id), self.deeds.refers.get(actor.name) if actor else None
        put = self.deeds.puts.setdefault(key, Put(self.deeds.tick(), refers))
        done = super().put_if_absent(path, body)
        if done and put.reported is None:
            put.reported = self.deeds.tick()
        return done

    def _changed(self, path: str) -> None:
        super()._changed(path)
        marker = names.parse_log_name(path)
        if path not in self.objects:
            self._world.happened(f"purge of {path.rstrip('0123456789')}")
        elif marker and (put := self.deeds.puts.get((self.place, marker.id))) and marker.kind is Kind.COMMITTED:
            body = json.loads(self.objects[path][0])
            is_abort = (body.get("dbio_commit") or {}).get("operation") == "abort"
            if put.modified is None and not is_abort:  # else a request that was late brings back what was purged
                put.added, put.removed = frozenset(body["added"]), frozenset(body["removed"])
                put.modified = self.objects[path][1]


# --- who acts -----------------------------------------------------------------------------------------------------


WAVE_S = 60.0
"""The actors act together at the beginning of each wave, and rest until the next one: so commits come during reads,
and markers get old between two waves."""


def _nap(world: World, actor: Actor) -> None:
    left_s = WAVE_S - world.time_s % WAVE_S
    actor.clock.sleep(world.random.choice((0.0, 0.0, 0.0, 0.1, left_s + world.random.uniform(0, 0.5))))


def _loader(deeds: Deeds, *, loads: int) -> Act:
    """Commits a dimension and then a fact that names it, again and again."""

    def act(world: World, actor: Actor) -> None:
        dimensions, facts = (Table.over(deeds.stores[it], actor.clock) for it in (DIMENSIONS, FACTS))
        for _ in range(loads):
            _nap(world, actor)
            operation: Operation = "overwrite" if world.random.random() < 0.1 else "append"
            deeds.refers.pop(actor.name, None)
            try:
                commit = write(dimensions, operation)
                deeds.refers[actor.name] = DIMENSIONS, commit.tid
                write(facts)
            except DbioError as error:
                give_up(world, actor, "no commit", error)

    return act


def _writer(deeds: Deeds, *, writes: int) -> Act:
    """Commits to a table that nothing depends on, so that times of all tables are compared."""

    def act(world: World, actor: Actor) -> None:
        table = Table.over(deeds.stores[OTHERS], actor.clock)
        for _ in range(writes):
            _nap(world, actor)
            try:
                write(table)
            except DbioError as error:
                give_up(world, actor, "no commit", error)

    return act


def _vacuum(deeds: Deeds, *, waves: int) -> Act:
    def act(world: World, actor: Actor) -> None:
        for _ in range(waves):
            actor.clock.sleep(WAVE_S - world.time_s % WAVE_S)
            table = Table.over(world.random.choice(deeds.stores), actor.clock)
            try:
                vacuum_table(table, VacuumOptions(checkpoint_after=0))
            except DbioError as error:
                give_up(world, actor, "vacuum failed", error)

    return act


def _eraser(deeds: Deeds, *, runs: int) -> Act:
    """Purges markers of any age by new checkpoints, as an erasure does: sooner than vacuum."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(runs):
            actor.clock.sleep(WAVE_S - world.time_s % WAVE_S + world.random.uniform(0, 1.0))
            store = world.random.choice(deeds.stores)
            old = world.stamp - timedelta(seconds=61)
            try:
                snapshot = read_snapshot(store, actor.clock)
                names_of = [write_checkpoint(store, actor.clock, snapshot, again=True) for _ in range(2)]
                if all(names_of):
                    purged = [tid for tid, it in snapshot.log.committed.items() if it.modified < old]
                    store.delete_many([names.started(tid) for tid in purged])
                    store.delete_many([names.committed(tid) for tid in purged])
            except ObjectNotFoundError:
                world.note(actor.name, "others have purged what it wants to purge")
            except DbioError as error:
                give_up(world, actor, "no erasure", error)

    return act


def _reader(deeds: Deeds, *, reads: int) -> Act:
    def act(world: World, actor: Actor) -> None:
        for _ in range(reads):
            _nap(world, actor)
            places = world.random.sample(range(3), world.random.choice((2, 3)))
            tables = [Table.over(deeds.stores[it], actor.clock) for it in places]
            at = world.stamp - timedelta(seconds=SETTLED_S) if world.random.random() < 0.2 else None
            since, before = deeds.tick(), actor.listed.copy()
            try:
                found = dict(zip(places, snapshots(tables, at), strict=True))
            except InvalidInputError as error:
                if at is None:
                    raise Violation(f"I9: {actor.name} got {error!r}") from error
                world.happened("a state of several tables was past telling")
            except DbioError as error:
                give_up(world, actor, "cannot read", error)
            else:
                listed = actor.listed - before
                waited = listed[""] == listed[Kind.COMMITTED] == len(tables)  # or it began again
                deeds.check(found, since=since, waited=waited) if at is None else deeds.check_past(found, at)

    return act


# --- one run ------------------------------------------------------------------------------------------------------


def new_world(seed: int, *, trace: bool = False) -> World:
    """The world of a seed, in which nobody acts yet."""
    chance = random.Random(f"{SCENARIO} {seed}")
    slow = chance.choice((0, 0.8))
    risks = Risks(
        stall=chance.choice((0.002, 0.02)),
        stalls_s=(0.05,) if slow else _SLEEPS_S,  # what is slow takes no longer than readers wait
        kill=chance.choice((0, 0.001)),
        lost_answer=chance.choice((0, 0.01)),
        not_applied=chance.choice((0, 0.005)),
        late=chance.choice((0, 0.01)),
        whole_seconds=chance.random() < 0.5,
        slow=slow,
    )
    return World(seed, risks, trace=trace)


def play(world: World, seed: int) -> None:
    """Runs it to its end. Raises Violation."""
    deeds = Deeds(world)
    chance = random.Random(f"cast {SCENARIO} {seed}")
    with _quick_purges(chance), ExitStack() as proofs:
        for _ in range(3):
            store = TableStore(world, deeds)
            _PROBED.add(store.identity)
            proofs.callback(_PROBED.discard, store.identity)
            write(Table.over(store, SimClock(world)))
        world.time_s += 60.0
        for i in range(3):
            world.spawn(f"loader{i}", _loader(deeds, loads=6))
        for i in range(2):
            world.spawn(f"reader{i}", _reader(deeds, reads=12), stalls_s=_SLEEPS_S)
            world.spawn(f"vacuum{i}", _vacuum(deeds, waves=6))
        world.spawn("eraser", _eraser(deeds, runs=8))
        world.spawn("writer", _writer(deeds, writes=10))
        world.run()
    last = dict(enumerate(snapshots([Table.over(it, SimClock(world)) for it in deeds.stores])))
    deeds.check(last, since=deeds.tick(), waited=False)


@contextmanager
def _quick_purges(chance: random.Random) -> Iterator[None]:
    every = chance.choice((0, 2, 5))
    with patch.object(plan, "METADATA_RETENTION", PURGE_AFTER), patch.object(begin, "checkpoint_every", lambda: every):
        yield
