"""One run of the simulation from a seed, and many: `python -m tests.simulation.run --seed N` prints one."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Annotated

import typer

from dbio_commit import names
from dbio_commit.names import Kind
from dbio_commit.table import Table
from dbio_commit.transaction import _PROBED
from vacuum.report import VacuumOptions
from vacuum.run import vacuum_table

from . import actors
from .actors import Stage
from .model import Model
from .world import Risks, SimClock, Violation, World


@dataclass
class Outcome:
    """What one or more runs did."""

    runs: int = 0
    steps: int = 0
    commits: int = 0
    aborts: int = 0
    deletions: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, world: World, model: Model) -> None:
        self.runs += 1
        self.steps += world.steps
        self.aborts += sum(decision.is_abort for decision in model.decided.values())
        self.commits += sum(not decision.is_abort for decision in model.decided.values())
        self.deletions += model.deletions
        self.faults += world.faults


def simulate(seed: int, *, outcome: Outcome | None = None, trace: bool = False) -> World:
    """Runs the world of a seed to its end, then vacuums until nothing is left to do. Raises Violation."""
    chance = random.Random(f"plan {seed}")
    risks = choose_risks(chance)
    world = World(seed, risks, trace=trace)
    _PROBED.add(world.store.identity)
    model = world.watcher = Model(world)
    skew = max(risks.skew, timedelta())
    retention = chance.choice((1.0, 48.0)) if not skew else 60.0
    stage = Stage(
        model=model,
        partitioned=chance.random() < 0.5,
        retention_hours=retention,
        promised=timedelta(hours=retention) - skew - timedelta(seconds=2),
    )
    try:
        _people(world, stage, chance)
        world.run()
        model.check_not_committed(stage.failed)
        _settle(world, stage)
    except Violation as violation:
        violation.add_note(f"seed {seed}, step {world.steps}: replay it with `make simulate SEED={seed}`")
        if world.trace is not None:
            violation.add_note("\n".join(world.trace[-60:]))
        raise
    if outcome is not None:
        outcome.add(world, model)
    return world


def choose_risks(chance: random.Random) -> Risks:
    rough = chance.random() < 0.7
    return Risks(
        stall=0.02 if chance.random() < 0.6 else 0,
        kill=0.004 if chance.random() < 0.5 else 0,
        lost_answer=0.02 if rough else 0,
        not_applied=0.02 if rough else 0,
        own_conflict=0.05 if rough else 0,
        torn_listings=chance.random() < 0.8,
        whole_seconds=chance.random() < 0.4,
        skew=timedelta(days=1) if chance.random() < 0.3 else timedelta(),
    )


def _people(world: World, stage: Stage, chance: random.Random) -> None:
    cast = [
        world.spawn(f"writer{i}", actors.writer(stage, transactions=chance.randint(1, 3)))
        for i in range(chance.randint(1, 4))
    ]
    cast += [world.spawn(f"vacuum{i}", actors.vacuumer(stage, runs=chance.randint(1, 4))) for i in range(chance.randint(0, 2))]
    cast += [world.spawn(f"reader{i}", actors.reader(stage, reads=chance.randint(1, 4))) for i in range(chance.randint(1, 2))]
    if chance.random() < 0.3:
        cast.append(world.spawn("operator", actors.operator(stage)))
    if not stage.partitioned and chance.random() < 0.3:
        cast.append(world.spawn("stranger", actors.stranger(stage), after_s=1.0, immortal=True))
    if world.risks.skew:
        world.spawn("clocks", actors.clock_setter(stage, cast), immortal=True)


def _settle(world: World, stage: Stage) -> None:
    """When everybody has gone, vacuum leaves the live files and a short log, and nothing else."""
    clock = SimClock(world, timedelta())
    table = Table.over(world.store, clock)
    if names.DESCRIPTOR not in world.store.objects:
        return
    for _ in range(3):
        world.time_s += 40 * 86400
        report = vacuum_table(table, VacuumOptions(checkpoint_after=0))
        if report.failed:
            raise Violation(f"an undisturbed vacuum failed: {report.failed}")
    world.time_s += 86400
    if again := vacuum_table(table, VacuumOptions()).deleted:
        raise Violation(f"vacuum did not finish at once: {again}")
    data = {path for path in world.store.objects if not path.startswith("_")}
    if data != stage.model.live:
        raise Violation(f"vacuum left {sorted(data - stage.model.live)}, and lost {sorted(stage.model.live - data)}")
    allowed = (Kind.CHECKPOINT, Kind.TURN)
    log = {path for path in world.store.objects if path.startswith("_") and path != names.DESCRIPTOR}
    left = {path for path in log if (it := names.parse_log_name(path)) is None or it.kind not in allowed}
    if left or len(log) > 3:
        raise Violation(f"vacuum left the markers {sorted(log)}")
    if not table.check().ok:
        raise Violation("check finds something wrong")


def seeds(first: int, runs: int) -> Iterator[int]:
    return iter(range(first, first + runs))


def main(
    seed: Annotated[int | None, typer.Option(help="Replay this one, and print what happens.")] = None,
    runs: Annotated[int, typer.Option(help="How many seeds.")] = 1000,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
) -> None:
    """Runs the protocol's simulation."""
    if seed is not None:
        try:
            world = simulate(seed, trace=True)
        except Violation as violation:
            typer.echo("\n".join([*violation.__notes__, "", f"VIOLATION: {violation}"]))
            raise typer.Exit(1) from None
        typer.echo("\n".join(world.trace or ()))
        return
    outcome, began_s = Outcome(), monotonic()
    for number in seeds(first, runs):
        try:
            simulate(number, outcome=outcome)
        except Violation as violation:
            typer.echo("\n".join([str(violation), *violation.__notes__]))
            raise typer.Exit(1) from None
    typer.echo(
        f"{outcome.runs} runs, {outcome.steps} steps, {outcome.commits} commits, {outcome.aborts} aborts, "
        f"{outcome.deletions} deletions, {monotonic() - began_s:.0f} s; no invariant was violated"
    )
    for fault, count in sorted(outcome.faults.items()):
        typer.echo(f"  {count:8d} {fault}")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
