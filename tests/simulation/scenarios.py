"""Who meets whom, and at which risks. Each is drawn from a seed; some are there to make rare things happen often."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from dbio_commit.feed.feed import BatchLimits
from dbio_commit.feed.position import Start
from dbio_commit.protocol.markers.commit import Operation

from . import actors, erasures, streams
from .actors import Stage
from .world import DAY_S, HOUR_S, Actor, Risks, SimClock, World

SKEW = timedelta(days=1)

Cast = Callable[[World, Stage, random.Random], list[Actor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    risks: Callable[[random.Random], Risks]
    cast: Cast
    share: int
    """How often it is drawn, in relation to the others."""
    retentions_hours: tuple[float, ...] = (1, 48, 60)
    in_directories: bool = False
    """Begins in the directory scope."""
    moves: bool = False
    """Overwrites change the partition columns."""
    tiny_parts: bool = False
    """Each checkpoint puts its state into parts, a few rows in each."""
    purge_after_s: float = 1800.0
    """As a measure of how long a listing may take: vacuum purges by a checkpoint that is older."""


# --- risks --------------------------------------------------------------------------------------------------------


def any_risks(chance: random.Random) -> Risks:
    rough = chance.random() < 0.7
    return Risks(
        stall=0.02 if chance.random() < 0.6 else 0,
        kill=0.004 if chance.random() < 0.5 else 0,
        lost_answer=0.02 if rough else 0,
        not_applied=0.02 if rough else 0,
        late=0.02 if rough else 0,
        own_conflict=0.05 if rough else 0,
        torn_listings=chance.random() < 0.8,
        whole_seconds=chance.random() < 0.4,
        skew=SKEW if chance.random() < 0.3 else timedelta(),
    )


def directory_risks(chance: random.Random) -> Risks:
    """Within the limits of DBIO's protocol; but vacuum may stall for as long as it likes."""
    return replace(any_risks(chance), stalls_s=(1, 20, 60), late_s=(0.5, 30.0, 600.0), skew=timedelta())


def rough_risks(chance: random.Random) -> Risks:
    """Of the store's answers, many are lost."""
    return Risks(stall=0.01, kill=0.001, lost_answer=0.08, not_applied=0.05, late=0.08, own_conflict=0.2)


def copied_risks(chance: random.Random) -> Risks:
    """Of commits, many have an outcome that is not known."""
    return replace(any_risks(chance), lost_answer=chance.choice((0.02, 0.1)), late=chance.choice((0.02, 0.1)))


def adoption_risks(chance: random.Random) -> Risks:
    """In the moment of an adoption anybody may be late, or die."""
    return Risks(
        stall=chance.choice((0.05, 0.15)),
        stalls_s=(20, 60, 200),
        kill=chance.choice((0, 0.003, 0.01)),
        lost_answer=chance.choice((0, 0.03)),
        not_applied=chance.choice((0, 0.03)),
        late=chance.choice((0.02, 0.1)),
        late_s=(0.5, 30.0, 600.0),
        own_conflict=chance.choice((0, 0.1)),
    )


def busy_risks(chance: random.Random) -> Risks:
    """Times that tell little: of whole seconds, of objects that come later, of a clock that is set."""
    return Risks(
        stall=0.002,
        stalls_s=(0.5, 3.0),
        lost_answer=chance.choice((0, 0.01)),
        not_applied=chance.choice((0, 0.01)),
        whole_seconds=chance.random() < 0.5,
        slow=chance.choice((0, 0.2, 0.6)),
        steps=chance.random() < 0.4,
    )


def streaming_risks(chance: random.Random) -> Risks:
    """Processes die often."""
    return replace(any_risks(chance), kill=chance.choice((0, 0.003, 0.01)), slow=chance.choice((0, 0, 0.2)))


def restoring_risks(chance: random.Random) -> Risks:
    """Whoever restores may take hours."""
    return replace(any_risks(chance), stall=chance.choice((0, 0.02, 0.08)), stalls_s=(1, 60, 120, HOUR_S))


def erasing_risks(chance: random.Random) -> Risks:
    """No request is on its way for longer than an erasure waits for markers."""
    return replace(any_risks(chance), late_s=(0.5, 30.0), stalls_s=(1, 60, 120, HOUR_S), skew=timedelta())


def clock_risks(chance: random.Random) -> Risks:
    """The store's clock is set far back."""
    return Risks(stall=0.002, stalls_s=(0.5, 60.0), kill=chance.choice((0, 0.01)), steps=True)


def slow_risks(chance: random.Random) -> Risks:
    """What is done in a turn takes longer than a lease."""
    return Risks(commit_s=chance.choice((70.0, 200.0)), torn_listings=False)


def stalls(
    *seconds: float,
    likely: float,
    skew: timedelta = timedelta(),
    disk: float = 0.5,
    kill: float = 0,
    faults: float = 0.002,
) -> Callable[[random.Random], Risks]:
    """Long ones, and hardly a fault besides."""

    def risks(chance: random.Random) -> Risks:
        return Risks(
            stall=likely,
            stalls_s=seconds,
            kill=kill,
            most_kills=1,
            disk=disk,
            lost_answer=faults,
            not_applied=faults,
            late=5 * faults,
            whole_seconds=chance.random() < 0.4,
            skew=skew if chance.random() < 0.5 or disk == 1 else timedelta(),
        )

    return risks


# --- casts --------------------------------------------------------------------------------------------------------


def _mixed(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    cast = _writers(world, stage, chance.randint(1, 4), chance=chance)
    cast += [
        world.spawn(f"vacuum{i}", actors.vacuumer(stage, runs=chance.randint(1, 4)))
        for i in range(chance.randint(0, 2))
    ]
    cast += [
        world.spawn(f"reader{i}", actors.reader(stage, reads=chance.randint(1, 4))) for i in range(chance.randint(1, 2))
    ]
    if chance.random() < 0.4:
        cast += [world.spawn(f"job{i}", actors.scheduled_job(stage, versions=2)) for i in range(2)]
    if chance.random() < 0.3:
        cast.append(world.spawn("operator", actors.operator(stage)))
    if chance.random() < 0.3:
        cast.append(world.spawn("stranger", actors.stranger(stage), after_s=1.0, immortal=True))
    if chance.random() < 0.2:
        cast.append(world.spawn("untidy", actors.untidy(stage)))
    if world.risks.skew:
        world.spawn("clocks", actors.clock_setter(stage, cast), immortal=True)
    return cast


def _writers(world: World, stage: Stage, count: int, *, chance: random.Random) -> list[Actor]:
    return [world.spawn(f"writer{i}", actors.writer(stage, transactions=chance.randint(1, 3))) for i in range(count)]


def _turns(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Who depends on one another."""
    writer = actors.writer(stage, transactions=4, operations=("overwrite", "append"), apps=0.5)
    cast = [world.spawn(f"writer{i}", writer) for i in range(4)]
    return [*cast, world.spawn("reader", actors.reader(stage, reads=4))]


def _slow(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Who depends on one another, and all of whom come to their end."""
    return [world.spawn(f"writer{i}", actors.patient_writer(stage)) for i in range(3)]


def _purges(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """The same, beside a vacuum that purges turns while listings are under way, and whose clock is ahead."""
    writer = actors.writer(stage, transactions=4, operations=("overwrite", "append"), apps=0.5, naps_s=(0, 1, 30))
    cast = [world.spawn(f"writer{i}", writer) for i in range(3)]
    vacuum = actors.vacuumer(stage, runs=12, naps_s=(0.5, 5.0, 20.0), checkpoint_after=(3,))
    return [*cast, world.spawn("vacuum", vacuum, clock=SimClock(world, SKEW), stalls_s=(1.0,))]


def _columns(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Appends beside overwrites with other columns. Some begin long before they commit."""
    writer = actors.writer(
        stage,
        transactions=4,
        operations=("append", "append", "overwrite"),
        apps=0.1,
        work_s=(0, 0, 2.0),
        naps_s=(0, 1.0),
    )
    cast = [world.spawn(f"writer{i}", writer) for i in range(3)]
    return [*cast, world.spawn("reader", actors.reader(stage, reads=2))]


def _crowd(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Many commits, and readers whose listings they overtake."""
    writer = actors.writer(stage, transactions=3, operations=("append", "append", "append", "overwrite"), apps=0)
    cast = [world.spawn(f"writer{i}", writer) for i in range(4)]
    reader = actors.reader(stage, reads=8, naps_s=(0.01, 0.1))
    return [*cast, *(world.spawn(f"reader{i}", reader) for i in range(2))]


def _busy(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Commits during every read: of snapshots, overwrites and vacuums."""
    writer = actors.writer(stage, transactions=8, operations=("append",), apps=0, naps_s=(0, 0, 0.3))
    cast = [world.spawn(f"writer{i}", writer, after_s=0.3 * i) for i in range(4)]
    turns = actors.writer(stage, transactions=4, operations=("overwrite", "append"), apps=0.3, naps_s=(0, 0.3))
    cast.append(world.spawn("writer-in-turn", turns, after_s=1.0))
    reader = actors.reader(stage, reads=6, naps_s=(0.01, 0.2))
    cast += [world.spawn(f"reader{i}", reader, after_s=0.5) for i in range(2)]
    vacuum = actors.vacuumer(stage, runs=4, naps_s=(0.1, 1.0, 3.0), checkpoint_after=(0, 3))
    cast += [world.spawn(f"vacuum{i}", vacuum) for i in range(chance.randint(1, 2))]
    if world.risks.steps:
        world.spawn("store's clock", actors.store_clock_setter(stage), immortal=True)
    return cast


def _readers(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Readers that fall asleep while vacuum purges what they are about to read."""
    writer = actors.writer(stage, transactions=3, naps_s=(0.1, 1900.0))
    cast = [world.spawn(f"writer{i}", writer, stalls_s=(1,)) for i in range(2)]
    reader = actors.reader(stage, reads=8, naps_s=(0.05, 30.0, 1900.0))
    cast += [world.spawn(f"reader{i}", reader) for i in range(2)]
    vacuum = actors.vacuumer(stage, runs=8, naps_s=(60.0, 1900.0), checkpoint_after=(0,))
    return [*cast, world.spawn("vacuum", vacuum, stalls_s=(1.0,))]


def _sleepers(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Processes that remember every marker fall asleep between two requests, while vacuums purge and forget."""
    operations: Sequence[Operation] = ("append", "append", "overwrite", "overwrite_partitions", "rewrite")
    early = actors.writer(stage, transactions=4, operations=operations, naps_s=(0.1, 1900.0, DAY_S))
    cast = [world.spawn("writer0", early, stalls_s=(1,))]
    world.spawn("reader-that-remembers", actors.reader(stage, reads=8, naps_s=(HOUR_S, DAY_S)), immortal=True)
    old_s = chance.choice((0.0, DAY_S, 31 * DAY_S, 33 * DAY_S))
    writer = actors.writer(stage, transactions=6, operations=operations, naps_s=(1.0, 1900.0, DAY_S))
    cast.append(world.spawn("writer1", writer, after_s=old_s, stalls_s=(1,)))
    vacuum = actors.vacuumer(stage, runs=10, naps_s=(1900.0, HOUR_S, 3 * DAY_S), checkpoint_after=(0,))
    cast.append(world.spawn("vacuum", vacuum, after_s=old_s, stalls_s=(1.0,)))
    naps_s = (60.0, HOUR_S, DAY_S)
    for i in range(2):
        cast.append(world.spawn(f"reader{i}", actors.reader(stage, reads=5, naps_s=naps_s), after_s=old_s))
    cast.append(world.spawn("vacuum-asleep", actors.vacuumer(stage, runs=3, naps_s=naps_s), after_s=old_s))
    return [*cast, world.spawn("operator", actors.operator(stage, actions=4), after_s=old_s)]


def _vacuums(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Vacuums that overtake one another."""
    writer = actors.writer(stage, transactions=5, operations=("append", "append", "overwrite"), naps_s=(60.0, 1900.0))
    cast = [world.spawn(f"writer{i}", writer, stalls_s=(1,)) for i in range(2)]
    vacuum = actors.vacuumer(stage, runs=6, naps_s=(60.0, 1900.0), checkpoint_after=(0,))
    return [*cast, *(world.spawn(f"vacuum{i}", vacuum) for i in range(3))]


def _losses(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """A checkpoint is removed by mistake, beside vacuums that purge what it tells."""
    writer = actors.writer(stage, transactions=6, operations=("append", "append", "overwrite"), naps_s=(60.0, 1900.0))
    cast = [world.spawn(f"writer{i}", writer, stalls_s=(1,)) for i in range(2)]
    vacuum = actors.vacuumer(stage, runs=8, naps_s=(60.0, 1900.0), checkpoint_after=(0, 3))
    cast += [world.spawn(f"vacuum{i}", vacuum) for i in range(2)]
    cast.append(world.spawn("reader", actors.reader(stage, reads=6, naps_s=(60.0, 1900.0))))
    return [*cast, world.spawn("loser", actors.loser(stage))]


def _late(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Writers that sleep for days and weeks, and vacuums that give them up."""
    cast = [
        world.spawn(f"writer{i}", actors.writer(stage, transactions=2, work_s=(0, 50 * HOUR_S, 9 * DAY_S, 40 * DAY_S)))
        for i in range(3)
    ]
    vacuum = actors.vacuumer(stage, runs=10, naps_s=(0.5, 10 * HOUR_S, 3 * DAY_S, 16 * DAY_S))
    return [*cast, world.spawn("vacuum", vacuum, stalls_s=(1.0, HOUR_S))]


def _history(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """A job that runs for months, beside overwrites: what it has committed is forgotten but for its versions."""
    cast = [
        world.spawn(f"job{i}", actors.scheduled_job(stage, versions=4, naps_s=(1.0, 3 * DAY_S, 50 * DAY_S)))
        for i in range(2)
    ]
    cast.append(world.spawn("writer0", actors.writer(stage, transactions=4, operations=("overwrite",), apps=0)))
    vacuum = actors.vacuumer(stage, runs=10, naps_s=(0.5, 3 * DAY_S, 20 * DAY_S, 35 * DAY_S))
    return [*cast, world.spawn("vacuum", vacuum, stalls_s=(1.0,))]


def _settings(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Settings that change beside appends, overwrites and checkpoints, some of which outlive all that told them."""
    operations: Sequence[Operation] = ("append", "append", "overwrite", "overwrite_partitions")
    writer = actors.writer(stage, transactions=3, operations=operations, apps=0.1, work_s=(0, 1.0, 60.0, DAY_S))
    cast = [world.spawn(f"writer{i}", writer) for i in range(2)]
    setter = actors.setter(stage, changes=3)
    cast += [world.spawn(f"setter{i}", setter, after_s=chance.choice((0, 0.5, 60.0))) for i in range(2)]
    vacuum = actors.vacuumer(stage, runs=4, naps_s=(0.5, 60.0, 3 * DAY_S, 35 * DAY_S), checkpoint_after=(0,))
    cast.append(world.spawn("vacuum", vacuum, stalls_s=(1.0,)))
    cast.append(world.spawn("job", actors.failing_job(stage, after_s=100 * DAY_S)))
    return [*cast, world.spawn("reader", actors.reader(stage, reads=4))]


def _young(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Vacuums that fall asleep between two requests, and files that are written meanwhile."""
    cast = [
        world.spawn(f"writer{i}", actors.writer(stage, transactions=2, work_s=(0, 3 * HOUR_S)), after_s=i * HOUR_S)
        for i in range(3)
    ]
    vacuum = actors.vacuumer(stage, runs=6, naps_s=(0.5, 60.0, HOUR_S))
    cast += [world.spawn(f"vacuum{i}", vacuum, stalls_s=(60, 2 * HOUR_S)) for i in range(2)]
    return cast


def _copies(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Writers that are resumed in other processes, commit again and abort, beside vacuums that purge their markers."""
    writer = actors.writer(stage, transactions=3, apps=0.3, naps_s=(0, 0.1, 60.0, 2 * HOUR_S), copies=0.8)
    cast = [world.spawn(f"writer{i}", writer) for i in range(chance.randint(1, 3))]
    vacuum = actors.vacuumer(stage, runs=8, naps_s=(0.5, 60.0, 1900.0), checkpoint_after=(0,))
    cast += [world.spawn(f"vacuum{i}", vacuum, stalls_s=(1.0,)) for i in range(chance.randint(1, 2))]
    return [*cast, world.spawn("reader", actors.reader(stage, reads=4))]


def _adoptions(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """A directory is made a table while our own writers are at work: they commit before it, or not at all."""
    for number in range(2):
        directory = f"{actors.COLUMN}={number}" if stage.partitioned else ""
        actors.write_by_hand(world, directory, f"old-{number}.parquet")
    operations: Sequence[Operation] = ("append", "append", "overwrite")
    writer = actors.writer(stage, transactions=5, operations=operations, apps=0, naps_s=(1.0, 20.0, 60.0))
    cast = [world.spawn(f"writer{i}", writer, stalls_s=(0.1,)) for i in range(2)]
    for i in range(chance.randint(1, 2)):
        adopter = actors.adopter(stage, attempts=chance.choice((1, 2, 8)))
        cast.append(world.spawn(f"adopter{i}", adopter, after_s=chance.choice((0.5, 10.0, 60.0))))
    return [*cast, world.spawn("reader", actors.reader(stage, reads=4, naps_s=(0.05, 1.0)))]


def _parts(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Writers, vacuums and operators that write checkpoints at once, and readers that read what they hold late."""
    operations: Sequence[Operation] = ("append", "append", "append", "overwrite_partitions", "rewrite")
    writer = actors.writer(stage, transactions=10, operations=operations, apps=0.1, naps_s=(0.1, 60.0, 1900.0))
    cast = [world.spawn(f"writer{i}", writer, stalls_s=(1,)) for i in range(2)]
    naps_s = (0.5, 60.0, 1900.0, HOUR_S)
    vacuum = actors.vacuumer(stage, runs=4, naps_s=naps_s, checkpoint_after=(0,))
    cast += [world.spawn(f"vacuum{i}", vacuum) for i in range(2)]
    cast.append(world.spawn("operator", actors.operator(stage, actions=3)))
    cast.append(world.spawn("reader", actors.reader(stage, reads=3, naps_s=naps_s)))
    slow = actors.slow_reader(stage, reads=4, naps_s=(0.1, 60.0, 1900.0, 0.9 * HOUR_S))
    return [*cast, *(world.spawn(f"slow-reader{i}", slow, stalls_s=(1,)) for i in range(2))]


def _erasures(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Rows are erased beside writers, compactions and vacuums, of which some die, and so does who erases."""
    operations: Sequence[Operation] = ("append", "append", "overwrite", "rewrite")
    writer = actors.writer(stage, transactions=4, operations=operations, apps=0.1, naps_s=(0, 1.0, 60.0, 1900.0))
    cast = [world.spawn(f"writer{i}", writer) for i in range(2)]
    cast.append(world.spawn("compactor", streams.compactor(stage, runs=2)))
    for i in range(chance.randint(1, 2)):
        cast.append(world.spawn(f"eraser{i}", erasures.eraser(stage, erasures=3), after_s=chance.choice((5.0, 600.0))))
    naps_s = (0.5, 60.0, 300.0, 1900.0)
    slow_s = (90.0, HOUR_S, 3 * HOUR_S)
    for name, act in (
        ("restorer", actors.restorer(stage, restores=3, naps_s=naps_s)),
        ("publisher", erasures.publisher(stage, publications=4)),
        ("checkpointer", erasures.checkpointer(stage, checkpoints=4)),
        ("copier", erasures.copier(stage, copies=2)),
    ):
        if chance.random() < 0.6:
            cast.append(world.spawn(name, act, stalls_s=slow_s))
    vacuum = actors.vacuumer(stage, runs=3, naps_s=(0.5, 60.0, 1900.0), checkpoint_after=(0, 3))
    cast.append(world.spawn("vacuum", vacuum))
    return [*cast, world.spawn("reader", actors.reader(stage, reads=4))]


def _latecomers(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Publishers, and those who write checkpoints, restore and copy, stand still for hours, while rows are erased again
    and again."""
    writer = actors.writer(stage, transactions=8, operations=("append", "rewrite"), apps=0, naps_s=(1.0, 600.0))
    cast = [world.spawn("writer", writer, stalls_s=(1.0,))]
    for i in range(2):
        act = erasures.eraser(stage, erasures=6, naps_s=(0.5, 300.0))
        cast.append(world.spawn(f"eraser{i}", act, after_s=60.0, stalls_s=(1.0,)))
    naps_s, slow_s = (0.5, 60.0, 300.0), (600.0, HOUR_S, 3 * HOUR_S)
    for i in range(2):
        act = erasures.checkpointer(stage, checkpoints=6, naps_s=naps_s)
        cast.append(world.spawn(f"checkpointer{i}", act, stalls_s=slow_s))
        act = erasures.publisher(stage, publications=6, naps_s=naps_s)
        cast.append(world.spawn(f"publisher{i}", act, stalls_s=slow_s))
    if chance.random() < 0.5:
        return cast
    cast.append(world.spawn("restorer", actors.restorer(stage, restores=8, naps_s=naps_s), stalls_s=slow_s))
    cast.append(world.spawn("copier", erasures.copier(stage, copies=4, naps_s=naps_s), stalls_s=slow_s))
    return cast


def _streams(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Queries that write, some by two drivers at once, and such that read, beside all that others do to a table."""
    cast = list[Actor]()
    for i in range(chance.randint(1, 2)):
        query = streams.Query(id=f"query{i}", batches=chance.randint(2, 4))
        stage.queries.append(query)
        for j in range(chance.choice((1, 1, 2))):
            cast.append(world.spawn(f"{query.id}-driver{j}", streams.driver(stage, query)))
    operations = chance.choice(((*actors.OPERATIONS,), ("append",)))
    writer = actors.writer(stage, transactions=3, operations=operations, work_s=(0, 0, 60.0, DAY_S))
    cast += [world.spawn(f"writer{i}", writer) for i in range(chance.randint(1, 2))]
    if chance.random() < 0.5 and "overwrite" in operations:
        cast.append(world.spawn("compactor", streams.compactor(stage, runs=2)))
    _spawn_readings(world, stage, chance, naps_s=(0.05, 1.0, 60.0, HOUR_S))
    vacuum = actors.vacuumer(stage, runs=4, naps_s=(60.0, 1900.0, 3 * HOUR_S, 3 * DAY_S), checkpoint_after=(0, 3))
    cast.append(world.spawn("vacuum", vacuum, stalls_s=(1.0,)))
    if world.risks.skew:
        world.spawn("clocks", actors.clock_setter(stage, cast), immortal=True)
    return cast


def _merges(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Merges of the same rows, beside appends, overwrites and compactions."""
    upserter = actors.upserter(stage, upserts=4)
    cast = [world.spawn(f"writer-merging{i}", upserter, after_s=0.2 * i) for i in range(chance.randint(2, 4))]
    operations: Sequence[Operation] = chance.choice((("append",), ("append", "append", "overwrite")))
    cast.append(world.spawn("writer", actors.writer(stage, transactions=3, operations=operations, naps_s=(0, 0.3))))
    compactor = streams.compactor(stage, runs=4, naps_s=(0.3, 1.0, 60.0))
    cast += [world.spawn(f"compactor{i}", compactor) for i in range(chance.randint(0, 2))]
    vacuum = actors.vacuumer(stage, runs=3, naps_s=(0.5, 60.0, 1900.0), checkpoint_after=(0, 3))
    return [*cast, world.spawn("vacuum", vacuum, stalls_s=(1.0,))]


def _restores(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """States that are brought back beside all that others do to a table, and beside a vacuum of what they were of."""
    restorer = actors.restorer(stage, restores=4, naps_s=(0.5, 60.0, HOUR_S))
    stalls_s = (0.5, HOUR_S, 3 * HOUR_S)  # long enough for vacuum to take what it is about to copy
    cast = [world.spawn(f"restorer{i}", restorer, after_s=2.0, stalls_s=stalls_s) for i in range(chance.randint(1, 2))]
    naps_s = (0.3, 30.0, 1200.0)
    cast += [world.spawn(f"writer{i}", actors.writer(stage, transactions=4, apps=0.1, naps_s=naps_s)) for i in range(2)]
    if chance.random() < 0.5:
        cast.append(world.spawn("writer-merging", actors.upserter(stage, upserts=3, naps_s=naps_s)))
    cast.append(world.spawn("compactor", streams.compactor(stage, runs=3, naps_s=(0.3, 60.0, HOUR_S))))
    cast.append(world.spawn("reader", actors.reader(stage, reads=4)))
    if chance.random() < 0.3:
        _spawn_readings(world, stage, chance, naps_s=(0.5, 60.0, HOUR_S))
    vacuum = actors.vacuumer(stage, runs=12, naps_s=(600.0, HOUR_S), checkpoint_after=(0, 3))
    return [*cast, world.spawn("vacuum", vacuum, stalls_s=(1.0,))]


def _layouts(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Overwrites that change the partition columns, and others that fall asleep before they claim, or in their work."""
    naps_s = (0.1, 30.0, 60.0, 1900.0)
    operations: Sequence[Operation] = ("overwrite", "overwrite", "append", "append", "overwrite_partitions", "rewrite")
    writer = actors.writer(
        stage, transactions=4, operations=operations, apps=0.1, work_s=(0, 0, 40.0, 90.0, HOUR_S), naps_s=naps_s
    )
    cast = [world.spawn(f"writer{i}", writer, after_s=2.0 * i) for i in range(chance.randint(2, 3))]
    appender = actors.writer(stage, transactions=10, operations=("append",), apps=0, naps_s=(0.1, 5.0, 30.0))
    cast += [world.spawn(f"writer-appending{i}", appender, after_s=1.0) for i in range(2)]
    if chance.random() < 0.5:
        cast.append(world.spawn("restorer", actors.restorer(stage, restores=2, naps_s=(60.0, HOUR_S)), after_s=60.0))
    cast.append(world.spawn("compactor", streams.compactor(stage, runs=3, naps_s=(0.3, 60.0, HOUR_S))))
    cast.append(world.spawn("reader", actors.reader(stage, reads=4)))
    vacuum = actors.vacuumer(stage, runs=4, naps_s=(60.0, HOUR_S), checkpoint_after=(0, 3))
    return [*cast, world.spawn("vacuum", vacuum, stalls_s=(1.0,))]


def _laggards(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Streams so slow that what they have begun with is overwritten, vacuumed and forgotten."""
    cast = [world.spawn("writer0", actors.writer(stage, transactions=3, operations=("append",), apps=0, naps_s=(0,)))]
    _spawn_readings(world, stage, chance, naps_s=(HOUR_S, 3 * HOUR_S), files=(1,))
    writer = actors.writer(stage, transactions=2, operations=("overwrite", "append"), apps=0, naps_s=(3 * HOUR_S,))
    cast.append(world.spawn("writer1", writer, after_s=chance.choice((3, 6)) * HOUR_S))
    vacuum = actors.vacuumer(stage, runs=12, naps_s=(HOUR_S, 2 * HOUR_S), checkpoint_after=(0,))
    return [*cast, world.spawn("vacuum", vacuum)]


def _feeds(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Streams that read while many commit, and markers are purged: nothing is removed, so nothing may be lost."""
    writer = actors.writer(stage, transactions=8, operations=("append",), apps=0.1, naps_s=(0, 0, 0.3), work_s=(0, 2.0))
    cast = [world.spawn(f"writer{i}", writer, after_s=0.3 * i) for i in range(3)]
    _spawn_readings(world, stage, chance, naps_s=(0.05, 0.5))
    vacuum = actors.vacuumer(stage, runs=4, naps_s=(0.1, 3.0, 10.0), checkpoint_after=(0, 3))
    cast.append(world.spawn("vacuum", vacuum))
    if world.risks.steps:
        world.spawn("store's clock", actors.store_clock_setter(stage), immortal=True)
    return cast


def _clocks(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """The same, beside a store whose clock is set far back, and no vacuum: what came behind a stream's back is told."""
    writer = actors.writer(stage, transactions=4, operations=("append",), apps=0, naps_s=(0.3, 60.0, HOUR_S, DAY_S))
    cast = [world.spawn(f"writer{i}", writer) for i in range(3)]
    _spawn_readings(world, stage, chance, naps_s=(0.5, 60.0, HOUR_S))
    world.spawn("store's clock", streams.set_back(stage), immortal=True)
    return cast


def _spawn_readings(
    world: World,
    stage: Stage,
    chance: random.Random,
    *,
    naps_s: Sequence[float],
    files: Sequence[int | None] = (None, 1, 2),
) -> None:
    for i in range(2):
        reading = streams.Reading(
            name=f"stream{i}",
            start=chance.choice((Start(), streams.FROM_THE_FIRST)),
            wanted=chance.choice(streams.WANTED),
            most=BatchLimits(files=chance.choice(files), size_bytes=chance.choice((None, 4, 9))),
            left=chance.randint(3, 12),
        )
        stage.readings.append(reading)
        act = streams.stream_reader(stage, reading, naps_s)
        world.spawn(reading.name, act, after_s=chance.choice((0.5, 2.0, 60.0)))


def _directories(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """Databricks' writers and ours, in one directory."""
    world.spawn("plain", actors.plain_writer(stage), immortal=True)
    cast = [
        world.spawn(f"dbio{i}", actors.dbio_writer(stage, transactions=chance.randint(1, 3)), after_s=5.0)
        for i in range(chance.randint(1, 2))
    ]
    cast += [
        world.spawn(f"writer{i}", actors.writer(stage, transactions=chance.randint(1, 3), apps=0), after_s=5.0)
        for i in range(chance.randint(0, 2))
    ]
    reader = actors.reader(stage, reads=6, naps_s=(0.05, 30.0, 1900.0))
    cast += [world.spawn(f"reader{i}", reader, clock=_any_clock(world, chance)) for i in range(2)]
    cast += [
        world.spawn(
            f"vacuum{i}",
            actors.vacuumer(stage, runs=5, naps_s=(0.5, 1900.0, 10 * HOUR_S, 3 * DAY_S)),
            stalls_s=(1, 120, HOUR_S, 50 * HOUR_S),
        )
        for i in range(chance.randint(0, 2))
    ]
    if chance.random() < 0.3:
        cast.append(world.spawn("operator", actors.operator(stage)))
    return cast


def _torn(world: World, stage: Stage, chance: random.Random) -> list[Actor]:
    """The same in a hurry: listings that writers overtake."""
    dbio = actors.dbio_writer(stage, transactions=4, naps_s=(0.1, 1.0))
    cast = [world.spawn(f"dbio{i}", dbio, after_s=1.0) for i in range(2)]
    cast.append(world.spawn("writer", actors.writer(stage, transactions=3, apps=0), after_s=2.0))
    reader = actors.reader(stage, reads=10, naps_s=(0.01, 0.1))
    cast += [world.spawn(f"reader{i}", reader, after_s=1.0, clock=_any_clock(world, chance)) for i in range(2)]
    return cast


def _any_clock(world: World, chance: random.Random) -> SimClock:
    """Of a reader: those of writers and vacuums in the directory scope are right."""
    return SimClock(world, chance.choice((-SKEW, timedelta(), SKEW)))


SCENARIOS = {
    "mixed": Scenario(risks=any_risks, cast=_mixed, share=8),
    "rough": Scenario(risks=rough_risks, cast=_mixed, share=1),
    "turns": Scenario(risks=stalls(1, 120, HOUR_S, likely=0.02, kill=0.01, faults=0), cast=_turns, share=3),
    "disks": Scenario(risks=stalls(5, 50, likely=0.05, skew=SKEW, disk=1), cast=_turns, share=1),
    "purges": Scenario(
        risks=stalls(5, 50, likely=0.05, skew=SKEW, disk=1),
        cast=_purges,
        share=3,
        retentions_hours=(48,),
        purge_after_s=2.0,
    ),
    "columns": Scenario(risks=stalls(1, 70, HOUR_S, likely=0.03, kill=0.004), cast=_columns, share=2),
    "crowd": Scenario(risks=stalls(1, likely=0.01), cast=_crowd, share=1),
    "busy": Scenario(risks=busy_risks, cast=_busy, share=2, purge_after_s=8.0),
    "readers": Scenario(
        risks=stalls(60, HOUR_S, likely=0.05, skew=SKEW), cast=_readers, share=2, retentions_hours=(1,)
    ),
    "vacuums": Scenario(
        risks=stalls(1900, 2 * HOUR_S, likely=0.03, skew=SKEW), cast=_vacuums, share=2, retentions_hours=(1,)
    ),
    "sleepers": Scenario(
        risks=stalls(HOUR_S, 3 * HOUR_S, DAY_S, 20 * DAY_S, likely=0.06),
        cast=_sleepers,
        share=1,
        retentions_hours=(1,),
    ),
    "losses": Scenario(
        risks=stalls(60, 2 * HOUR_S, likely=0.02, skew=SKEW), cast=_losses, share=1, retentions_hours=(1,)
    ),
    "late": Scenario(risks=stalls(60, 50 * HOUR_S, 5 * DAY_S, likely=0.03), cast=_late, share=2),
    "young": Scenario(risks=stalls(1, likely=0.1, skew=SKEW), cast=_young, share=1, retentions_hours=(1,)),
    "history": Scenario(risks=stalls(60, likely=0.01), cast=_history, share=1),
    "settings": Scenario(risks=any_risks, cast=_settings, share=2),
    "copies": Scenario(risks=copied_risks, cast=_copies, share=4, retentions_hours=(1, 48)),
    "streams": Scenario(risks=streaming_risks, cast=_streams, share=2, retentions_hours=(1, 48)),
    "merges": Scenario(risks=any_risks, cast=_merges, share=2, retentions_hours=(1, 48)),
    "restores": Scenario(risks=restoring_risks, cast=_restores, share=6, retentions_hours=(1, 48)),
    "layouts": Scenario(risks=stalls(5, 55, 70, HOUR_S, likely=0.03, kill=0.004), cast=_layouts, share=3, moves=True),
    "laggards": Scenario(risks=stalls(60, likely=0.01), cast=_laggards, share=1, retentions_hours=(1,)),
    "feeds": Scenario(risks=busy_risks, cast=_feeds, share=1, purge_after_s=8.0),
    "clocks": Scenario(risks=clock_risks, cast=_clocks, share=1, retentions_hours=(48,)),
    "adoptions": Scenario(risks=adoption_risks, cast=_adoptions, share=2, in_directories=True),
    "directories": Scenario(risks=directory_risks, cast=_directories, share=4, in_directories=True),
    "torn": Scenario(risks=stalls(1, likely=0.02), cast=_torn, share=1, in_directories=True),
    "erasures": Scenario(risks=erasing_risks, cast=_erasures, share=0, retentions_hours=(48,)),
    "latecomers": Scenario(risks=stalls(1, likely=0.03, faults=0), cast=_latecomers, share=0, retentions_hours=(48,)),
    "slow": Scenario(risks=slow_risks, cast=_slow, share=0),
    "parts": Scenario(
        risks=stalls(60, 1900, 2 * HOUR_S, likely=0.02, kill=0.002, faults=0.005),
        cast=_parts,
        share=0,
        retentions_hours=(1,),
        tiny_parts=True,
    ),
}


def draw(chance: random.Random) -> str:
    return chance.choices(list(SCENARIOS), [it.share for it in SCENARIOS.values()])[0]
