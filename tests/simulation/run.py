"""One run of the simulation from a seed, and many: `python -m tests.simulation.run --seed N` prints one."""

import logging
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from time import monotonic
from typing import Annotated, Protocol
from unittest.mock import patch
from uuid import UUID

import typer

from dbio_commit.base.errors import DbioError
from dbio_commit.commit import begin, parts
from dbio_commit.commit.probe import _PROBED
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.log import listing, seen
from dbio_commit.log.object_cache import CACHE
from dbio_commit.maintenance.erase import run as erase
from dbio_commit.maintenance.vacuum import plan
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.table import Table
from tests.tiny_parts import tiny_parts

from . import actors, erasures, joint, life_of_parts, moments, streams
from .actors import Stage
from .directories import DirectoryModel
from .ending import settle
from .model import Model
from .scenarios import SCENARIOS, draw
from .world import SimClock, Violation, World


class Play(Protocol):
    """A simulation that shares only the world with the others."""

    def new_world(self, seed: int, *, trace: bool = False) -> World: ...
    def play(self, world: World, seed: int) -> None: ...


ALONE: Mapping[str, Play] = {
    life_of_parts.SCENARIO: life_of_parts,
    moments.SCENARIO: moments,
    joint.SCENARIO: joint,
}
"""By scenario. No seed draws them."""


@dataclass
class Outcome:
    """What one or more runs did."""

    runs: int = 0
    steps: int = 0
    commits: int = 0
    aborts: int = 0
    deletions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)

    def add(self, world: World, *models: Model | DirectoryModel) -> None:
        self.runs += 1
        self.steps += world.steps
        self.faults += world.faults
        self.events += world.events
        for model in models:
            self.deletions += model.deletions
            if isinstance(model, Model):
                self.aborts += sum(decision.is_abort for decision in model.decided.values())
                self.commits += sum(not decision.is_abort for decision in model.decided.values())
            else:
                self.commits += len({tid for _, tid in model.decided})

    def __iadd__(self, other: "Outcome") -> "Outcome":
        for name in ("runs", "steps", "commits", "aborts", "deletions", "faults", "events"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def __str__(self) -> str:
        lines = [
            f"{self.runs} runs, {self.steps} steps, {self.commits} commits, {self.aborts} aborts, "
            f"{self.deletions} deletions; no invariant was violated"
        ]
        for title, counts in (("faults", self.faults), ("events", self.events)):
            lines += [f"{title}:", *(f"{count:10d}  {what}" for what, count in sorted(counts.items()))]
        return "\n".join(lines)


def simulate(seed: int, *, scenario: str | None = None, outcome: Outcome | None = None, trace: bool = False) -> World:
    """Runs the world of a seed to its end, then vacuums until nothing is left to do. Raises Violation."""
    if alone := ALONE.get(scenario or ""):
        world = alone.new_world(seed, trace=trace)
        with _replayable(world, seed, scenario):
            alone.play(world, seed)
        if outcome is not None:
            outcome.add(world)
        return world
    chance = random.Random(f"plan {seed}")
    cast = SCENARIOS[scenario or draw(chance)]
    risks = cast.risks(chance)
    world = World(seed, risks, trace=trace)
    retention_hours = chance.choice(cast.retentions_hours)
    promised = timedelta(hours=retention_hours) - risks.skew - timedelta(seconds=2 + 2 * actors.MOST_STEP_S)
    partitioned, untracked = chance.random() < 0.5 or cast.moves, chance.random() < 0.5
    table_model = Model(world, promised, is_dbio=not partitioned, untracked=untracked)
    model = DirectoryModel(world, promised) if cast.in_directories else table_model
    stage = Stage(
        model=model,
        partitioned=partitioned,
        retention_hours=retention_hours,
        moves=cast.moves,
        untracked=untracked,
    )
    world.watcher = stage
    with _replayable(world, seed, scenario):
        every = chance.choice((0, 0, 2, 5))
        # A DBIO reader, which knows of no partitions, knows of no references either.
        refer_above = random.Random(f"refer {seed}").choice((0, MAX_BYTES)) if partitioned else MAX_BYTES
        # If it is small, vacuum and writers cover the markers part by part, and readers keep no statistics.
        statistics_bytes = random.Random(f"statistics {seed}").choice((1500, listing.STATISTICS_BYTES))
        with _tiny_parts(seed) if cast.tiny_parts else nullcontext():
            with (
                patch.object(TableRoot, "refer_above", refer_above),
                patch.object(listing, "STATISTICS_BYTES", statistics_bytes),
                patch.object(plan, "METADATA_RETENTION", timedelta(seconds=cast.purge_after_s)),
                patch.object(begin, "checkpoint_every", lambda: every),
                patch.object(erase, "Finder", erasures.RowFinder),
            ):
                cast.cast(world, stage, chance)
                world.run()
                streams.finish(world, stage)
                if isinstance(stage.model, Model):
                    stage.model.check_late()
            if isinstance(stage.model, DirectoryModel) and chance.random() < 0.5:
                _adopt(world, stage, chance)
            settle(world, stage)
    if outcome is not None:
        outcome.add(world, *{id(it): it for it in (model, stage.model)}.values())
    return world


@contextmanager
def _replayable(world: World, seed: int, scenario: str | None) -> Iterator[None]:
    """Whatever is raised becomes a Violation that says how to see it again.

    The process remembers nothing of an earlier run, which may have had the same seed, and so the same tables.
    """
    CACHE.forget()
    seen._begin_anew()
    _PROBED.add(world.store.identity)
    try:
        yield
    except Exception as error:
        violation = error if isinstance(error, Violation) else Violation(f"an error that nobody expects: {error!r}")
        replay = f"make simulate SEED={seed}" + (f" SCENARIO={scenario}" if scenario else "")
        violation.add_note(f"step {world.steps}: replay it with `{replay}`")
        if world.trace is not None:
            violation.add_note("\n".join(world.trace))
        raise violation from error
    finally:
        _PROBED.discard(world.store.identity)


@contextmanager
def _tiny_parts(seed: int) -> Iterator[None]:
    """Parts of a few rows, whose names are those of the seed."""
    chance = random.Random(f"parts {seed}")
    with tiny_parts(), patch.object(parts, "uuid4", lambda: UUID(int=chance.getrandbits(128))):
        yield


def _adopt(world: World, stage: Stage, chance: random.Random) -> None:
    """The directory is made a table while some read it and nobody writes; then writers of tables come."""
    table = Table.over(world.store, SimClock(world))
    if not stage.model.live:
        return
    for tid in {it.tid for it in table.check().pending}:
        table.abort(tid)
    for i in range(2):
        world.spawn(f"adopter{i}", actors.adopter(stage), after_s=chance.choice((0.1, 1.0)))
        world.spawn(f"reader{i}", actors.reader(stage, reads=3, naps_s=(0.05, 0.5)))
    world.run()
    if names.DESCRIPTOR not in world.store.objects:
        try:
            table.adopt()
        except DbioError as error:
            raise Violation(f"nobody writes, and the directory cannot be adopted: {error!r}") from error
    SCENARIOS["mixed"].cast(world, stage, chance)
    world.run()


def simulate_all(seeds: Iterable[int], scenario: str | None = None) -> Outcome:
    outcome = Outcome()
    for seed in seeds:
        simulate(seed, scenario=scenario, outcome=outcome)
    return outcome


def in_processes(seeds: range, scenario: str | None = None, *, processes: int) -> Outcome:
    """The same, on several cores. Raises the first Violation, with its seed."""
    parts = [seeds[start : start + 100] for start in range(0, len(seeds), 100)]
    outcome = Outcome()
    with workers(processes) as pool:
        for part in pool.map(partial(simulate_all, scenario=scenario), parts):
            outcome += part
    return outcome


def workers(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=be_quiet)


def be_quiet() -> None:
    """The package warns of each failure that it is made to suffer."""
    logging.disable(logging.WARNING)


def main(
    seed: Annotated[int | None, typer.Option(help="Replay this one, and print what happens.")] = None,
    runs: Annotated[int, typer.Option(help="How many seeds.")] = 1000,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
    processes: Annotated[int, typer.Option(help="On how many cores.")] = 1,
    scenario: Annotated[str | None, typer.Option(help="Who meets whom; else each seed draws it.")] = None,
) -> None:
    """Runs the protocol's simulation."""
    be_quiet()
    known = (*SCENARIOS, *ALONE)
    if scenario not in (None, *known):
        raise typer.BadParameter(f"there is no scenario {scenario!r}; the scenarios are: {', '.join(known)}")
    if seed is not None:
        try:
            world = simulate(seed, scenario=scenario, trace=True)
        except Violation as violation:
            typer.echo("\n".join([*violation.__notes__, "", f"VIOLATION: {violation}"]))
            raise typer.Exit(1) from None
        typer.echo("\n".join(world.trace or ()))
        return
    began_s = monotonic()
    seeds = range(first, first + runs)
    try:
        outcome = (
            simulate_all(seeds, scenario) if processes == 1 else in_processes(seeds, scenario, processes=processes)
        )
    except Violation as violation:
        typer.echo("\n".join([str(violation), *violation.__notes__]))
        raise typer.Exit(1) from None
    typer.echo(f"{outcome}\nin {monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
