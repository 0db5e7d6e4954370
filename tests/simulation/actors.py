"""Who acts in the simulation, with the package's own code: jobs that write, late tasks, readers, vacuum, operators.

Those who write by DBIO's rules alone have code of their own, since the package has none for it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from dbio_commit import names
from dbio_commit.errors import (
    CommitConflictError,
    DbioError,
    InvalidInputError,
    TableExistsError,
    TableNotFoundError,
    TransactionAbortedError,
)
from dbio_commit.markers import FileInfo, Operation
from dbio_commit.names import Partition
from dbio_commit.snapshot import Scope, Snapshot
from dbio_commit.table import Table
from dbio_commit.transaction import Transaction, mark_directory
from vacuum.report import VacuumOptions
from vacuum.run import vacuum_table

from .directories import DirectoryModel
from .model import Model
from .world import DAY_S, HOUR_S, Actor, Violation, World

COLUMN = "p"
OPERATIONS: Sequence[Operation] = ("append", "append", "overwrite", "replace_partitions", "rewrite")
NAPS_S = (0.1, 1900.0, 10 * HOUR_S, 3 * DAY_S, 20 * DAY_S)


@dataclass(kw_only=True)
class Stage:
    """What the actors of one run share."""

    model: Model | DirectoryModel
    partitioned: bool
    retention_hours: float
    failed: list[str] = field(default_factory=list)
    """Tids of which a writer was told that nothing was committed."""


Act = Callable[[World, Actor], None]


def table_of(world: World, actor: Actor) -> Table:
    return Table.over(world.store, actor.clock)


# --- jobs ---------------------------------------------------------------------------------------------------------


def writer(
    stage: Stage,
    *,
    transactions: int,
    operations: Sequence[Operation] = OPERATIONS,
    apps: float = 0.2,
    work_s: Sequence[float] = (0,),
    naps_s: Sequence[float] = (0, 0, 0, 0, 0.1, 60.0, 7200.0, DAY_S),
) -> Act:
    """Jobs of one kind and another, one after the other. `work_s`: how long they take from begin to commit."""

    def act(world: World, actor: Actor) -> None:
        for number in range(transactions):
            app = (f"app{world.random.randint(0, 1)}", world.random.randint(0, 4))
            Job(stage, world, actor, work_s=world.random.choice(work_s)).run(
                world.random.choice(operations),
                app=app if world.random.random() < apps else None,
                must_create=world.random.random() < 0.05,
            )
            if number + 1 < transactions and (nap_s := world.random.choice(naps_s)):
                actor.clock.sleep(nap_s)

    return act


def scheduled_job(stage: Stage, *, versions: int, naps_s: Sequence[float] = (0.1, 60.0, DAY_S)) -> Act:
    """A job that runs under one application id, each version until it is told that it is done."""

    def act(world: World, actor: Actor) -> None:
        for version in range(versions):
            for _ in range(5):
                if Job(stage, world, actor).run("append", app=("nightly", version)) in ("committed", "skipped"):
                    break
                actor.clock.sleep(world.random.choice((0.1, 60.0)))
            actor.clock.sleep(world.random.choice(naps_s))

    return act


class Job:
    """One transaction, from begin to its end; the model hears what the writer is told."""

    def __init__(self, stage: Stage, world: World, actor: Actor, *, work_s: float = 0) -> None:
        self._stage, self._world, self._actor, self._chance = stage, world, actor, world.random
        self._work_s = work_s
        self._table = table_of(world, actor)

    def run(self, operation: Operation, *, app: tuple[str, int] | None = None, must_create: bool = False) -> str:
        columns = [COLUMN] if self._stage.partitioned else []
        try:
            transaction = self._table.begin(operation, columns, app=app, must_create=must_create)
        except DbioError as error:
            self._world.note(self._actor.name, f"cannot begin: {type(error).__name__}")
            return "failed"
        self._world.note(self._actor.name, f"begins {operation} {transaction.tid} {app or ''}")
        try:
            with transaction:
                self._write(transaction)
                if self._work_s:
                    self._actor.clock.sleep(self._work_s)
                return self._end(transaction, app=app, must_create=must_create)
        except (CommitConflictError, TransactionAbortedError, TableExistsError) as error:
            self._stage.failed.append(transaction.tid)
            return self._told(transaction, error)
        except DbioError as error:
            return self._told(transaction, error)

    def _write(self, transaction: Transaction) -> None:
        chance = self._chance
        by_tasks = chance.random() < 0.5
        for number in range(chance.randint(1, 2)):
            if by_tasks:
                transaction.add([write_as_task(self._world, transaction, number, self._partition())])
            else:
                self._write_file(transaction.new_file(partition=self._partition()))
        if transaction.terms.operation == "rewrite":
            live = [file.path for file in self._table.snapshot().files]
            transaction.remove(chance.sample(live, min(len(live), chance.randint(0, 2))))
        if transaction.terms.operation == "replace_partitions" and self._stage.partitioned and chance.random() < 0.3:
            partition = self._partition()
            transaction.replace_partition(partition)
            if isinstance(self._stage.model, Model):
                self._stage.model.replaced[transaction.tid] = frozenset([names.format_partition(partition)])
        if chance.random() < 0.15:
            after_s = chance.choice((1.0, 300.0, 4000.0) if transaction.terms.scope is Scope.TABLE else (1.0, 300.0))
            self._world.spawn(f"{self._actor.name}-late", late_task(self._stage, transaction), after_s=after_s)

    def _write_file(self, url: str) -> None:
        with self._world.store.open_write(url.removeprefix(self._world.store.url + "/")) as stream:
            stream.write(b"rows")

    def _end(self, transaction: Transaction, *, app: tuple[str, int] | None, must_create: bool) -> str:
        model = self._stage.model
        if self._chance.random() < 0.07:
            transaction.abort()
            self._stage.failed.append(transaction.tid)
            return "failed"
        commit = transaction.commit(self._schema(transaction))
        self._world.note(self._actor.name, f"{transaction.tid}: {'skipped' if commit.skipped else 'committed'}")
        if isinstance(model, DirectoryModel):
            model.check_committed(transaction.tid, commit.added, commit.removed)
            return "committed"
        if commit.skipped and app:
            self._stage.failed.append(transaction.tid)
            model.check_skipped(app)
            self._world.happened("a version that was committed already was skipped")
            return "skipped"
        model.check_committed(transaction.tid)
        if must_create:
            model.check_first(transaction.tid)
            self._world.happened("a commit was to be the first, and was")
        return "committed"

    def _told(self, transaction: Transaction, error: DbioError) -> str:
        self._world.note(self._actor.name, f"{transaction.tid}: {type(error).__name__}: {error}")
        if "days ago" in str(error):
            self._world.happened("a transaction was too old to commit")
        elif not isinstance(error, InvalidInputError):
            self._world.happened(f"a writer got {type(error).__name__}")
        return "failed"

    def _partition(self) -> Partition:
        return {COLUMN: str(self._chance.randint(0, 2))} if self._stage.partitioned else {}

    def _schema(self, transaction: Transaction) -> dict[str, Any] | None:
        if self._chance.random() < 0.6 or transaction.terms.scope is Scope.DIRECTORY:
            return None
        columns = {self._chance.choice("abcd")}
        if transaction.terms.operation != "overwrite":
            columns |= {column["name"] for column in (transaction.terms.schema.json or {"fields": []})["fields"]}
        fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in sorted(columns)]
        return {"type": "struct", "fields": fields}


def write_as_task(world: World, transaction: Transaction, task: int, partition: Partition) -> FileInfo:
    """As a task attempt on an executor does it: the transaction hears of the file when it is there."""
    name = names.format_data_file(
        tid=transaction.tid,
        job=transaction.terms.job,
        task=task,
        attempt=world.random.getrandbits(31),
        number=0,
        suffix=".parquet",
    )
    path = names.join(names.format_partition(partition), name)
    mark_directory(world.store, transaction.terms, names.split(path)[0])
    with world.store.open_write(path) as stream:
        stream.write(b"rows")
    return FileInfo(path=path, size=4, partition=partition)


def late_task(stage: Stage, transaction: Transaction) -> Act:
    """A task attempt that writes its file after its job has ended: a zombie."""

    def act(world: World, actor: Actor) -> None:
        partition = {COLUMN: str(world.random.randint(0, 2))} if stage.partitioned else {}
        write_as_task(world, transaction, 9, partition)

    return tolerant(act)


# --- other tools --------------------------------------------------------------------------------------------------


def stranger(stage: Stage) -> Act:
    """Another DBIO writer that appends at the root of an unpartitioned table, and knows nothing of ours."""

    def act(world: World, actor: Actor) -> None:
        while names.DESCRIPTOR not in world.store.objects:  # else it would make a directory of the directory scope
            actor.clock.sleep(0.5)
            if world.steps > 2000:
                return
        _write_as_dbio(world, world.random.choice([[""], ["", ""]]), removed={})

    return tolerant(act)


def dbio_writer(stage: Stage, *, transactions: int, naps_s: Sequence[float] = (0.1, 60.0, 2 * HOUR_S, DAY_S)) -> Act:
    """A job of Databricks Runtime: markers in each directory, and nothing of ours."""

    def act(world: World, actor: Actor) -> None:
        chance = world.random
        for _ in range(transactions):
            directories = [f"{COLUMN}={chance.randint(0, 2)}" for _ in range(2)] if stage.partitioned else [""]
            removed: dict[str, list[str]] = {}
            if chance.random() < 0.3:
                for file in _visible(table_of(world, actor)):
                    directory, name = names.split(file)
                    removed.setdefault(directory, []).append(name)
            _write_as_dbio(world, directories, removed=removed)
            actor.clock.sleep(chance.choice(naps_s))

    return tolerant(act)


def _visible(table: Table) -> list[str]:
    try:
        return [file.path for file in table.snapshot().files]
    except TableNotFoundError:
        return []


def _write_as_dbio(world: World, directories: Sequence[str], *, removed: dict[str, list[str]]) -> None:
    """A file in each of the directories, some left by failed attempts; then the markers, one by one."""
    tid = str(world.random.randint(10**6, 10**9))
    added: dict[str, list[str]] = {}
    for number, directory in enumerate(directories):
        world.store.put_if_absent(names.join(directory, names.started(tid)), b"")
        name = names.format_data_file(tid=tid, job="j", task=number, attempt=1, number=0, suffix=".parquet")
        with world.store.open_write(names.join(directory, name)) as stream:
            stream.write(b"rows")
        if world.random.random() < 0.8:
            added.setdefault(directory, []).append(name)
    for directory in sorted({*directories, *removed}, key=lambda it: it not in directories):
        body = json.dumps({"added": added.get(directory, []), "removed": removed.get(directory, [])})
        world.store.put_if_absent(names.join(directory, names.committed(tid)), body.encode())


def plain_writer(stage: Stage) -> Act:
    """A tool that knows of no transactions."""

    def act(world: World, actor: Actor) -> None:
        for number in range(2):
            directory = f"{COLUMN}={world.random.randint(0, 2)}" if stage.partitioned else ""
            with world.store.open_write(names.join(directory, f"{actor.name}-{number}.parquet")) as stream:
                stream.write(b"rows")
            actor.clock.sleep(world.random.choice((0.1, 60.0, DAY_S)))

    return tolerant(act)


# --- readers ------------------------------------------------------------------------------------------------------


def reader(stage: Stage, *, reads: int, naps_s: Sequence[float] = (0.05, 30.0, HOUR_S, 20 * HOUR_S)) -> Act:
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
            if isinstance(stage.model, Model) and world.random.random() < 0.5:
                _travel(world, actor, table, stage.model, snapshot)
            actor.clock.sleep(world.random.choice(naps_s))
            stage.model.check_pinned(snapshot, age=world.now - at)

    return tolerant(act)


def _travel(world: World, actor: Actor, table: Table, model: Model, snapshot: Snapshot) -> None:
    """Reads the state as of a time, or as of a commit; of commits within the same second only the code knows which."""
    past = world.now - timedelta(seconds=world.random.choice((2, 100, 10_000, 200_000)))
    as_of: Any = past
    if snapshot.tids and not world.risks.whole_seconds and world.random.random() < 0.5:
        as_of = world.random.choice(snapshot.tids)
        past = next(commit.modified for commit in snapshot.commits if commit.tid == as_of)
    try:
        found = table.snapshot(as_of)
    except InvalidInputError:
        world.note(actor.name, f"cannot see {past} any more")
        world.happened("a state was past telling")
    else:
        model.check_past(found, past)


# --- vacuum and operators -----------------------------------------------------------------------------------------


def vacuumer(
    stage: Stage, *, runs: int, naps_s: Sequence[float] = NAPS_S, checkpoint_after: Sequence[int] = (0, 1, 3)
) -> Act:
    def act(world: World, actor: Actor) -> None:
        for _ in range(runs):
            actor.clock.sleep(world.random.choice(naps_s))
            options = VacuumOptions(
                retention_hours=stage.retention_hours, checkpoint_after=world.random.choice(checkpoint_after)
            )
            is_dry = world.random.random() < 0.1
            try:
                report = vacuum_table(table_of(world, actor), options, dry_run=is_dry)
            except TableNotFoundError:
                continue
            except DbioError as error:
                world.note(actor.name, f"vacuum failed: {type(error).__name__}: {error}")
                continue
            world.note(
                actor.name,
                f"vacuumed: {len(report.deleted)} deleted, {len(report.failed)} failed, {len(report.aborted)} aborted, "
                f"checkpoint {report.checkpoint}{', all of it dry' if is_dry else ''}",
            )
            for _ in [] if is_dry else report.aborted:
                world.happened("vacuum aborted a transaction")

    return act


def operator(stage: Stage, *, actions: int = 2) -> Act:
    """Somebody who runs `dbio abort` and `dbio checkpoint`."""

    def act(world: World, actor: Actor) -> None:
        table = table_of(world, actor)
        for _ in range(actions):
            actor.clock.sleep(world.random.choice((0.2, 5.0, 4000.0)))
            if world.random.random() < 0.5 and isinstance(stage.model, Model):
                table.checkpoint()
            elif pending := [it.tid for it in table.check().pending]:
                table.abort(world.random.choice(pending))
                world.happened("an operator aborted a transaction")

    return tolerant(act)


def adopter(stage: Stage) -> Act:
    """Somebody who makes a table of a directory."""

    def act(world: World, actor: Actor) -> None:
        table_of(world, actor).adopt()

    return tolerant(act)


def clock_setter(stage: Stage, victims: Sequence[Actor]) -> Act:
    """Somebody who sets the clocks of machines."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(3):
            actor.clock.sleep(world.random.choice((1.0, 5000.0)))
            victim = world.random.choice(victims)
            limit_s = world.risks.skew.total_seconds()
            victim.clock.offset = timedelta(seconds=world.random.uniform(-limit_s, limit_s))
            world.faults["clock set"] += 1
            world.note(victim.name, f"has its clock set to {victim.clock.offset} off")

    return act


def tolerant(act: Act) -> Act:
    """An actor that gives up when the store fails it, or when there is nothing to act on yet."""

    def tolerant(world: World, actor: Actor) -> None:
        try:
            act(world, actor)
        except Violation:
            raise
        except DbioError as error:
            world.note(actor.name, f"gives up: {type(error).__name__}: {error}")

    return tolerant
