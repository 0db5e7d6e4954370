"""Small cases, exhaustively: two or three actors, every interleaving of their store calls, and one fault anywhere.

Running code cannot be copied: a state is reached by replaying the choices that lead there. Where the store, what each
actor has seen of it, and the order of decisions are the same, the future is the same: it is explored once.
`python -m tests.simulation.exhaustive` explores all cases. Those with two vacuums, with an overwrite beside a vacuum,
or with two overwrites and an append have not been explored to their ends: they are there to find mutations.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple, TypeVar
from unittest.mock import patch

import typer

from dbio_commit.commit import turns
from dbio_commit.commit.probe import _PROBED
from dbio_commit.commit.turns import LEASE_S
from dbio_commit.maintenance.vacuum.executor import Executor
from dbio_commit.protocol.markers.commit import Operation

from . import actors
from .actors import Act, Job, Stage
from .ending import settle
from .model import Model
from .run import workers
from .world import DAY_S, HOUR_S, MUTATIONS, Actor, Risks, SimClock, Violation, World

RETENTION_HOURS = 12.0

_T = TypeVar("_T")

GO, CRASH, LOST, REFUSED = "goes on", "is killed", "time-out, applied", "503"
FAULTS = (CRASH, LOST, REFUSED)


class Choice(NamedTuple):
    actor: str
    what: str


Cast = Callable[[Stage], dict[str, Act]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Who acts, after what has happened before."""

    cast: Cast
    past: Cast = lambda stage: {}
    """They come one after the other, a day between."""
    pages: bool = False
    """Listings come in pages of four, and others may act in between."""
    faults: tuple[str, ...] = FAULTS
    """One of these comes once, at any moment."""
    partitioned: bool = False


# --- who acts -----------------------------------------------------------------------------------------------------


def write(
    stage: Stage,
    operation: Operation,
    *,
    app: tuple[str, int] | None = None,
    must_be_empty: bool = False,
    ahead: timedelta = timedelta(),
) -> Act:
    """One transaction of one file, by a clock that is ahead."""

    def act(world: World, actor: Actor) -> None:
        actor.clock.offset = ahead
        Job(stage, world, actor).run(operation, app=app, must_be_empty=must_be_empty)

    return act


def die(stage: Stage) -> Act:
    """A writer that leaves its file, and is never heard of again."""

    def act(world: World, actor: Actor) -> None:
        transaction = actors.table_of(world, actor).begin("append")
        actors.write_as_task(world, transaction, 0, {})

    return act


def read(stage: Stage) -> Act:
    return actors.reader(stage, reads=1, naps_s=(1.0,))


def vacuum(stage: Stage, *, runs: int = 1, after_s: float = 0) -> Act:
    return actors.vacuumer(stage, runs=runs, naps_s=(after_s,), checkpoint_after=(0,))


def abort_all(stage: Stage) -> Act:
    """An operator who runs `dbio abort` on whatever is pending."""

    def act(world: World, actor: Actor) -> None:
        table = actors.table_of(world, actor)
        for pending in table.check().pending:
            table.abort(pending.tid)

    return actors.tolerant(act)


def _writes(*operations: Operation, app: tuple[str, int] | None = None, must_be_empty: bool = False) -> Cast:
    def cast(stage: Stage) -> dict[str, Act]:
        return {
            f"writer{i}": write(stage, operation, app=app, must_be_empty=must_be_empty)
            for i, operation in enumerate(operations)
        }

    return cast


def _and(*casts: Cast) -> Cast:
    def cast(stage: Stage) -> dict[str, Act]:
        return {name: act for cast in casts for name, act in cast(stage).items()}

    return cast


def _reader(stage: Stage) -> dict[str, Act]:
    return {"reader": read(stage)}


def _vacuum(*, runs: int = 1, after_s: float = 0) -> Cast:
    return lambda stage: {"vacuum": vacuum(stage, runs=runs, after_s=after_s)}


def _vacuums(stage: Stage) -> dict[str, Act]:
    return {f"vacuum{i}": vacuum(stage) for i in range(2)}


def _operator(stage: Stage) -> dict[str, Act]:
    return {"operator": abort_all(stage)}


_TABLE = _writes("append")


def _garbage(stage: Stage) -> dict[str, Act]:
    """Something of everything that vacuum deletes, aborts, puts into a checkpoint or purges."""
    return {
        "first": write(stage, "append"),
        "second": write(stage, "overwrite"),
        "died": die(stage),
        "past vacuum": vacuum(stage),
        "third": write(stage, "overwrite"),
        "died too": die(stage),
    }


def _page(stage: Stage) -> dict[str, Act]:
    """Of four markers that fill a page, the last is of a clock that was ahead: others will come in the page before."""
    ahead = write(stage, "append", ahead=timedelta(days=10))
    return {**{f"past{i}": write(stage, "append") for i in range(3)}, "past ahead": ahead}


def _two_pages(stage: Stage) -> dict[str, Act]:
    return {"writer0": write(stage, "append"), "writer1": write(stage, "append", ahead=timedelta(days=20))}


_LATE = _vacuum(after_s=10 * DAY_S)  # when whoever is pending has timed out

CASES = {
    "append, append": Case(cast=_writes("append", "append")),
    "create, create": Case(cast=_writes("append", "append", must_be_empty=True), faults=(CRASH,)),
    "append, overwrite": Case(past=_TABLE, cast=_writes("append", "overwrite")),
    "append, overwrite, reader": Case(past=_TABLE, cast=_and(_writes("append", "overwrite"), _reader), faults=(CRASH,)),
    "overwrite, overwrite": Case(past=_TABLE, cast=_writes("overwrite", "overwrite")),
    "overwrite, overwrite, append": Case(past=_TABLE, cast=_writes("overwrite", "overwrite", "append"), faults=()),
    "overwrite, rewrite": Case(past=_TABLE, cast=_writes("overwrite", "rewrite")),
    "partitions, partitions": Case(
        past=_TABLE, cast=_writes("overwrite_partitions", "overwrite_partitions"), partitioned=True
    ),
    "idempotent, idempotent": Case(past=_TABLE, cast=_writes("append", "append", app=("nightly", 1))),
    "append, operator": Case(past=_TABLE, cast=_and(_writes("append"), _operator)),
    "overwrite, operator": Case(past=_TABLE, cast=_and(_writes("overwrite"), _operator)),
    "overwrite, reader by pages": Case(past=_garbage, cast=_and(_writes("overwrite"), _reader), pages=True),
    "append, append, reader by pages": Case(past=_page, cast=_and(_two_pages, _reader), pages=True, faults=(CRASH,)),
    "append, vacuum": Case(past=_garbage, cast=_and(_writes("append"), _LATE), faults=(CRASH,)),
    "overwrite, vacuum": Case(past=_garbage, cast=_and(_writes("overwrite"), _LATE), faults=()),
    "reader, vacuum": Case(past=_garbage, cast=_and(_reader, _vacuum()), faults=(CRASH,)),
    "reader, vacuum twice": Case(past=_page, cast=_and(_reader, _vacuum(runs=2, after_s=HOUR_S)), faults=(CRASH,)),
    "vacuum, vacuum": Case(past=_garbage, cast=_vacuums, faults=(CRASH,)),
}


# --- a world that is told what happens next -----------------------------------------------------------------------


class Steady(random.Random):
    """Chance without a state, in which nothing rare happens."""

    def random(self) -> float:
        return 0.55

    def randint(self, a: int, b: int) -> int:
        return (a + b) // 2

    def choice(self, seq: Any) -> Any:
        return seq[0]


class OwnClock(SimClock):
    """Of a machine of its own: its chance comes from nobody else, and its monotonic clock is the actor's patience.

    Everything that it tells is noted, as what the store tells is.
    """

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world)
        self._chance = random.Random(name)
        self._slept_s = 0.0

    def now(self) -> datetime:
        return self._told(super().now())

    def monotonic(self) -> float:
        return self._told(super().monotonic() + self._slept_s)

    def sleep(self, duration_s: float) -> None:
        """As long as the scheduler likes: who waits for others has been patient for long enough then.

        Only naps of minutes are of the whole world, since states that differ in milliseconds are too many.
        """
        assert self.actor is not None
        awake_s = self._world.time_s + duration_s
        self._world.pause(self.actor)
        if duration_s > LEASE_S:
            self._world.time_s = max(self._world.time_s, awake_s)
        else:
            self._slept_s += LEASE_S

    def random_bits(self, bits: int) -> int:
        return self._chance.getrandbits(bits)

    def _told(self, value: _T) -> _T:
        if self.actor is not None and self.actor.seen is not None:
            self.actor.seen = hash((self.actor.seen, value))
        return value


@dataclass
class ThriftyModel(Model):
    """A model that looks at each state of the store once, and not while known choices are made again."""

    trusting: bool = True
    looked_at: set[int] = field(default_factory=set)

    def _check_later(self, change: str) -> None:
        self._check_store(change)  # later, the world may be a copy

    def _check_store(self, change: str) -> None:
        if self.trusting:
            return
        state = hash((frozenset(self.world.store.objects.items()), self.live, *self.decided, *self._late))
        if state not in self.looked_at:
            super()._check_store(change)
            self.looked_at.add(state)

    def copied(self, world: World) -> "ThriftyModel":
        """For another world with the same past."""
        other = copy(self)
        other.world = world
        for name, value in vars(self).items():
            if isinstance(value, dict | list | set) and name != "looked_at":
                setattr(other, name, copy(value))
        return other


class ChosenWorld(World):
    """A case from its beginning: one choice after the other. Time stands still unless it is chosen to pass."""

    def __init__(self, past: "Past", *, trace: bool = False) -> None:
        super().__init__(0, Risks(torn_listings=past.case.pages, disk=0), trace=trace)
        self.random = Steady()
        self.time_s, self.steps = past.world.time_s, past.world.steps
        self.store.objects = dict(past.world.store.objects)
        self.model = self.watcher = past.model.copied(self)
        self.stage = replace(past.stage, model=self.model, failed=[])
        self._planned: str | None = None
        self._faults = past.case.faults
        self._reads: dict[str, tuple[int, float]] = {}
        """Who reads -> when it began: step and time."""
        self.cast = {
            name: self.spawn(name, act, clock=OwnClock(self, name)) for name, act in past.case.cast(self.stage).items()
        }
        for actor in self.cast.values():
            actor.seen = 0
        _PROBED.add(self.store.identity)

    def choices(self) -> Iterator[Choice]:
        for actor in self.alive():
            yield Choice(actor.name, GO)
            if actor.body:
                yield from (Choice(actor.name, fault) for fault in self._faults if _applies(fault, actor))

    def take(self, choice: Choice) -> None:
        self.steps += 1
        actor = self.cast[choice.actor]
        if not actor.body and "reader" in actor.name:
            self._reads[actor.name] = (self.steps, self.time_s)
        if choice.what != GO:
            self._faults = ()  # one is enough
        if choice.what == CRASH:
            self.note(actor.name, CRASH)
            actor.doomed = True
        self._planned = choice.what if choice.what in (LOST, REFUSED) else None
        self.resume(actor)

    def fault(self, actor: Actor, operation: str) -> str | None:
        planned, self._planned = self._planned, None
        return planned

    def state(self) -> int:
        """The same for two worlds that cannot be told apart from here on."""
        model, alive = self.model, self.alive()
        reads = {name: self._reads[name] for actor in alive if (name := actor.name) in self._reads}
        order = [(step, f"{name} begins to read") for name, (step, _) in reads.items()]
        order += ((it.step, f"{tid} is decided") for tid, it in model.decided.items())
        order += ((step, f"{tid} has the turn") for tid, step in model.turns.items())
        return hash(
            (
                self.time_s,
                frozenset(self.store.objects.items()),
                tuple((actor.name, actor.seen, bool(actor.body)) for actor in alive),
                tuple(event for _, event in sorted(order)),
                tuple(since_s for _, since_s in reads.values()),
                frozenset(self.stage.failed),
                self._faults,
            )
        )

    def close(self) -> None:
        _PROBED.discard(self.store.identity)
        self.end()


def _applies(fault: str, actor: Actor) -> bool:
    return fault == CRASH or (actor.at != "" and (fault == REFUSED or actor.at in MUTATIONS))


class Past:
    """What was there before: made once, and the same for each world."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.world = World(0, Risks())
        self.world.random = Steady()
        promised = timedelta(hours=RETENTION_HOURS)
        self.model = self.world.watcher = ThriftyModel(self.world, promised, is_dbio=not case.partitioned)
        self.stage = Stage(model=self.model, partitioned=case.partitioned, retention_hours=RETENTION_HOURS)
        for name, act in case.past(self.stage).items():
            self.world.spawn(name, act, immortal=True, clock=OwnClock(self.world, name))
            self.world.run()
            self.world.time_s += DAY_S


# --- all of its futures -------------------------------------------------------------------------------------------


@dataclass
class Explored:
    states: int = 0
    ends: int = 0
    """States in which everybody is done or dead."""
    deepest: int = 0
    """Steps of the longest way to a state that was new."""
    calls: int = 0
    """With those that were made again."""


def explore(past: Past) -> Explored:
    """Visits all states that can be reached. Raises Violation, with the way to it."""
    with _few_states():
        return _explore(past)


@contextmanager
def _few_states() -> Iterator[None]:
    """What changes nothing but the number of states: a look at the turn counts in full, vacuum knows the time."""
    with (
        patch.object(turns, "LOOK_S", LEASE_S),
        patch.object(Executor, "_ask_for_the_time", lambda self: self.clock.now()),
    ):
        yield


def _explore(past: Past) -> Explored:
    found = Explored()
    known: set[int] = set()
    settled: set[int] = set()
    open_ways: list[tuple[Choice, ...]] = [()]
    while open_ways:
        way = open_ways.pop()
        world = ChosenWorld(past)
        try:
            for choice in way[:-1]:
                world.take(choice)
            world.model.trusting = False
            for choice in way[-1:]:
                world.take(choice)
            while (state := world.state()) not in known:
                known.add(state)
                found.deepest = max(found.deepest, len(way))
                if not (choices := list(world.choices())):
                    found.ends += 1
                    _settle(world, settled)
                    break
                first, *others = choices
                open_ways += ((*way, other) for other in others)
                way = (*way, first)
                world.take(first)
        except Exception as error:
            violation = error if isinstance(error, Violation) else Violation(f"an error that nobody expects: {error!r}")
            violation.add_note("\n".join(retrace(past, way)))
            raise violation from error
        finally:
            found.calls += world.steps - past.world.steps
            world.close()
    found.states = len(known)
    return found


def _settle(world: ChosenWorld, settled: set[int]) -> None:
    end = hash((frozenset(world.store.objects.items()), *world.model.decided, *sorted(world.stage.failed)))
    if end not in settled:
        settle(world, world.stage)
        settled.add(end)


def retrace(past: Past, way: Sequence[Choice]) -> list[str]:
    """What happens on the way, readably."""
    world = ChosenWorld(past, trace=True)
    with suppress(Exception):  # that is what it is about
        for choice in way:
            world.take(choice)
    world.close()
    return world.trace or []


def explore_case(name: str, faults: Sequence[str] = FAULTS) -> Explored:
    """The case, with those of its faults."""
    case = CASES[name]
    return explore(Past(replace(case, faults=tuple(fault for fault in case.faults if fault in faults))))


def main(
    case: Annotated[list[str] | None, typer.Option(help="Only this one; may come several times.")] = None,
    processes: Annotated[int, typer.Option(help="On how many cores.")] = 1,
) -> None:
    """Explores small cases of the protocol exhaustively."""
    names = case or list(CASES)
    if unknown := sorted(set(names) - CASES.keys()):
        raise typer.BadParameter(f"there is no case {unknown[0]!r}; the cases are: {'; '.join(CASES)}")
    typer.echo(f"{'states':>9} {'ends':>7} {'deepest':>7} {'calls':>9}  case")
    try:
        with workers(processes) as pool:
            for name, found in zip(names, pool.map(explore_case, names), strict=True):
                typer.echo(f"{found.states:9} {found.ends:7} {found.deepest:7} {found.calls:9}  {name}")
    except Violation as violation:
        typer.echo("\n".join([*violation.__notes__, "", f"VIOLATION: {violation}"]))
        raise typer.Exit(1) from None


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
