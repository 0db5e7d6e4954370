"""Who acts in the simulation, with the package's own code: jobs that write, late tasks, readers, vacuum, operators."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from dbio_commit import names
from dbio_commit.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DbioError,
    InvalidInputError,
    TableNotFoundError,
    TransactionAbortedError,
)
from dbio_commit.markers import Operation
from dbio_commit.table import Table
from dbio_commit.transaction import Transaction
from vacuum.report import VacuumOptions
from vacuum.run import vacuum_table

from .model import Model
from .world import Actor, World

COLUMN = "p"
SCHEMA = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}


@dataclass
class Stage:
    """What the actors of one run share."""

    model: Model
    partitioned: bool
    retention_hours: float
    promised: timedelta
    """How long a reader's files stay, whatever the clocks say."""
    failed: list[str] = field(default_factory=list)
    """Tids of which a writer was told that nothing was committed."""


Act = Callable[[World, Actor], None]


def table_of(world: World, actor: Actor) -> Table:
    return Table.over(world.store, actor.clock)


def writer(stage: Stage, *, transactions: int) -> Act:
    """A job: some transactions, retried as their errors say."""

    def act(world: World, actor: Actor) -> None:
        for number in range(transactions):
            operation: Operation = world.random.choice(
                ("append", "append", "overwrite", "replace_partitions", "rewrite")
            )
            app = (f"app{world.random.randint(0, 1)}", world.random.randint(0, 4))
            _write(stage, world, actor, operation, app if world.random.random() < 0.3 else None)
            if number + 1 < transactions and world.random.random() < 0.5:
                actor.clock.sleep(world.random.choice((0.1, 60.0, 7200.0, 86400.0)))

    return act


def _write(stage: Stage, world: World, actor: Actor, operation: Operation, app: tuple[str, int] | None) -> None:
    table = table_of(world, actor)
    try:
        transaction = table.begin(operation, [COLUMN] if stage.partitioned else [], app=app)
    except DbioError as error:
        world.note(actor.name, f"cannot begin: {type(error).__name__}")
        return
    world.note(actor.name, f"begins {operation} {transaction.tid} {app or ''}")
    try:
        with transaction:
            for _ in range(world.random.randint(1, 2)):
                _write_file(stage, world, transaction)
            if operation == "rewrite":
                _choose_removed(world, table, transaction)
            if world.random.random() < 0.2:
                world.spawn(f"{actor.name}-late", late_task(stage, transaction), after_s=world.random.choice((1, 4000)))
            if world.random.random() < 0.1:
                transaction.abort()
                stage.failed.append(transaction.tid)
                return
            commit = transaction.commit(SCHEMA if world.random.random() < 0.3 else None)
    except (CommitConflictError, TransactionAbortedError) as error:
        world.note(actor.name, f"{transaction.tid}: {type(error).__name__}")
        stage.failed.append(transaction.tid)
    except CommitStateUnknownError:
        world.note(actor.name, f"{transaction.tid}: outcome unknown")
    except DbioError as error:
        world.note(actor.name, f"{transaction.tid}: {type(error).__name__}: {error}")
    else:
        if commit.skipped:
            stage.failed.append(transaction.tid)
        else:
            stage.model.check_committed(transaction.tid)
        world.note(actor.name, f"{transaction.tid}: {'skipped' if commit.skipped else 'committed'}")


def _write_file(stage: Stage, world: World, transaction: Transaction) -> None:
    partition = {COLUMN: str(world.random.randint(0, 2))} if stage.partitioned else {}
    url = transaction.new_file(partition=partition)
    with world.store.open_write(url.removeprefix(world.store.url + "/")) as stream:
        stream.write(b"rows")


def _choose_removed(world: World, table: Table, transaction: Transaction) -> None:
    live = [file.path for file in table.snapshot().files]
    transaction.remove(world.random.sample(live, min(len(live), world.random.randint(0, 2))))


def late_task(stage: Stage, transaction: Transaction) -> Act:
    """A task attempt that writes its file after its job has ended: a zombie."""

    def act(world: World, actor: Actor) -> None:
        name = names.format_data_file(
            tid=transaction.tid, job=transaction.terms.job, task=9, attempt=world.random.getrandbits(31), number=0,
            suffix=".parquet",
        )  # fmt: skip
        directory = f"{COLUMN}={world.random.randint(0, 2)}" if stage.partitioned else ""
        with world.store.open_write(names.join(directory, name)) as stream:
            stream.write(b"rows")

    return _tolerant(act)


def stranger(stage: Stage) -> Act:
    """Another DBIO writer that appends at the root of an unpartitioned table, and knows nothing of ours."""

    def act(world: World, actor: Actor) -> None:
        while names.DESCRIPTOR not in world.store.objects:  # else it would make a directory of the directory scope
            actor.clock.sleep(0.5)
            if world.steps > 2000:
                return
        tid = str(world.random.randint(10**6, 10**9))
        if not world.store.put_if_absent(names.started(tid), b""):
            return
        name = names.format_data_file(tid=tid, job="j", task=0, attempt=1, number=0, suffix=".parquet")
        with world.store.open_write(name) as stream:
            stream.write(b"rows")
        world.store.put_if_absent(names.committed(tid), f'{{"added":["{name}"],"removed":[]}}'.encode())

    return _tolerant(act)


def reader(stage: Stage, *, reads: int) -> Act:
    def act(world: World, actor: Actor) -> None:
        table = table_of(world, actor)
        for _ in range(reads):
            since, at = world.steps, world.now
            try:
                snapshot = table.snapshot()
            except TableNotFoundError:
                actor.clock.sleep(1.0)
                continue
            stage.model.check_read(snapshot, since=since)
            world.note(actor.name, f"sees {len(snapshot.files)} files")
            past = at - timedelta(seconds=world.random.choice((2, 100, 10_000, 200_000)))
            if world.random.random() < 0.5:
                try:
                    stage.model.check_past(table.snapshot(past), past)
                except InvalidInputError:
                    world.note(actor.name, f"cannot see {past} any more")
            actor.clock.sleep(world.random.choice((0.05, 30.0, 3600.0, 20 * 3600.0)))
            stage.model.check_pinned(snapshot, age=world.now - at, promised=stage.promised)

    return _tolerant(act)


def vacuumer(stage: Stage, *, runs: int) -> Act:
    def act(world: World, actor: Actor) -> None:
        for _ in range(runs):
            actor.clock.sleep(world.random.choice((0.1, 1900.0, 10 * 3600.0, 3 * 86400.0, 20 * 86400.0)))
            options = VacuumOptions(
                retention_hours=stage.retention_hours, checkpoint_after=world.random.choice((0, 1, 3))
            )
            try:
                report = vacuum_table(table_of(world, actor), options, dry_run=world.random.random() < 0.1)
            except TableNotFoundError:
                continue
            except DbioError as error:
                world.note(actor.name, f"vacuum failed: {type(error).__name__}: {error}")
                continue
            world.note(
                actor.name,
                f"vacuumed: {len(report.deleted)} deleted, {len(report.failed)} failed, {len(report.aborted)} aborted, "
                f"checkpoint {report.checkpoint}",
            )

    return act


def operator(stage: Stage) -> Act:
    """Somebody who runs `dbio abort` and `dbio checkpoint`."""

    def act(world: World, actor: Actor) -> None:
        table = table_of(world, actor)
        for _ in range(2):
            actor.clock.sleep(world.random.choice((0.2, 5.0, 4000.0)))
            if world.random.random() < 0.5:
                table.checkpoint()
            elif pending := [it.tid for it in table.check().pending]:
                table.abort(world.random.choice(pending))

    return _tolerant(act)


def clock_setter(stage: Stage, victims: list[Actor]) -> Act:
    """Somebody who sets the clocks of machines."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(3):
            actor.clock.sleep(world.random.choice((1.0, 5000.0)))
            victim = world.random.choice(victims)
            limit_s = world.risks.skew.total_seconds()
            victim.clock.offset = timedelta(seconds=world.random.uniform(-limit_s, limit_s))
            world.note(victim.name, f"has its clock set to {victim.clock.offset} off")

    return act


def _tolerant(act: Act) -> Act:
    """An actor that gives up when the store fails it, or when there is nothing to act on yet."""

    def tolerant(world: World, actor: Actor) -> None:
        try:
            act(world, actor)
        except DbioError as error:
            world.note(actor.name, f"gives up: {type(error).__name__}: {error}")

    return tolerant
