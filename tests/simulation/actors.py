"""Who acts in the simulation, with the package's own code: jobs that write, late tasks, readers, vacuum, operators.

Those who write by DBIO's rules alone have code of their own, since the package has none for it.
"""

import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from dbio_commit.base.clock import SYSTEM_CLOCK
from dbio_commit.base.errors import (
    AppVersionError,
    CheckpointLostError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    HistoryLostError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedStoreError,
    UnsupportedTableError,
)
from dbio_commit.base.options import Isolation
from dbio_commit.commit.begin import Intent, begin, check_app, look
from dbio_commit.commit.isolation import Read
from dbio_commit.commit.request import Terms
from dbio_commit.commit.roots import KINDS
from dbio_commit.commit.transaction import Transaction
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish import context_of
from dbio_commit.maintenance.vacuum.report import Control, VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf, Commit
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.names import Kind, Partition
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import DataFile
from dbio_commit.protocol.versions import AppVersion
from dbio_commit.table import Table, vacuum_table

from .directories import DirectoryModel
from .model import Asked, Model, columns_in
from .world import DAY_S, HOUR_S, ROW_BYTES, Actor, Violation, World

if TYPE_CHECKING:
    from .streams import Query, Reading

COLUMN = "p"
OPERATIONS: Sequence[Operation] = ("append", "append", "overwrite", "overwrite_partitions", "rewrite")
MOST_STEP_S = 5.0
NAPS_S = (0.1, 1900.0, 10 * HOUR_S, 3 * DAY_S, 20 * DAY_S)


@dataclass(kw_only=True)
class Stage:
    """What the actors of one run share."""

    model: Model | DirectoryModel
    partitioned: bool
    retention_hours: float
    moves: bool = False
    """Overwrites change the partition columns, and others take those that are there."""
    untracked: bool = False
    """Vacuum deletes what no transaction wrote."""
    failed: list[str] = field(default_factory=list)
    """Tids of which a writer was told that nothing was committed."""
    broken: list[str] = field(default_factory=list)
    """Tids whose commit markers are empty."""
    before: DirectoryModel | None = None
    """Of a directory that was adopted."""
    queries: list["Query"] = field(default_factory=list)
    """Those that write, by streams."""
    readings: list["Reading"] = field(default_factory=list)
    """And those that read."""

    def columns(self, operation: Operation, chance: random.Random) -> Sequence[str] | None:
        """Those that a writer asks for."""
        if self.moves:
            return chance.choice((None, [], ["p"], ["q"], ["q", "p"])) if operation == "overwrite" else None
        return [COLUMN] if self.partitioned else []

    def on_put(self, path: str, body: bytes) -> None:
        self.model.on_put(path, body)
        if path == names.DESCRIPTOR and isinstance(self.model, DirectoryModel):
            self.before = before = self.model
            world = before.world
            self.model = Model(
                world,
                before.promised,
                is_dbio=not self.partitioned,
                adopted=before.live,
                untracked=self.untracked,
                asked=before.asked,
            )
            self.model.created = world.steps
            world.happened("a directory was adopted")

    def on_delete(self, path: str) -> None:
        self.model.on_delete(path)

    def model_of(self, terms: Terms) -> Model | DirectoryModel:
        """Who knows of the transaction: one that began before an adoption may have come to its end before, too."""
        if self.before and any(tid == terms.tid for _, tid in self.before.decided):
            return self.before
        return self.model

    def fail(self, terms: Terms, staged: Collection[str]) -> None:
        """A writer was told that nothing was committed, or nothing of what this copy of it had staged."""
        model = self.model_of(terms)
        decision = model.decided.get(terms.tid) if isinstance(model, Model) else None
        if decision and not decision.is_abort and decision.added != staged:
            model.world.happened("a copy of a transaction had committed other files")
        else:
            self.failed.append(terms.tid)


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
    copies: float = 0,
) -> Act:
    """Jobs of one kind and another, one after the other. `work_s`: how long they take from begin to commit.

    With `copies`, other processes resume them meanwhile, and after so many failures.
    """

    def act(world: World, actor: Actor) -> None:
        for number in range(transactions):
            by_day, version = world.random.randint(0, 1), world.random.randint(0, 4)
            app: AppVersion = ("days", date(2026, 1, 1 + version)) if by_day else ("counter", version)
            Job(stage, world, actor, work_s=world.random.choice(work_s), copies=copies).run(
                world.random.choice(operations),
                app=app if world.random.random() < apps else None,
                must_be_empty=world.random.random() < 0.05,
            )
            if number + 1 < transactions and (nap_s := world.random.choice(naps_s)):
                actor.clock.sleep(nap_s)

    return act


def patient_writer(stage: Stage) -> Act:
    """A job that overwrites the table, and is started again until it has."""

    def act(world: World, actor: Actor) -> None:
        while Job(stage, world, actor).run("overwrite") != "committed":
            world.happened("an overwrite was started again")

    return act


def setter(stage: Stage, *, changes: int, naps_s: Sequence[float] = (0, 0.1, 60.0, DAY_S)) -> Act:
    """Somebody who runs `dbio set`, with settings of some later version."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(changes):
            sets = {world.random.choice("xyz"): world.random.choice(("", "1", "2", "3"))}
            Job(stage, world, actor).run("rewrite", sets=sets)
            actor.clock.sleep(world.random.choice(naps_s))

    return act


def upserter(stage: Stage, *, upserts: int, naps_s: Sequence[float] = (0, 0.1, 1.0, 60.0)) -> Act:
    """Somebody who merges rows with few keys: replaces the file of a row that is there, inserts one that is not."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(upserts):
            Upsert(stage, world, actor, work_s=world.random.choice((0, 0, 1.0, 300.0))).run("rewrite")
            actor.clock.sleep(world.random.choice(naps_s))

    return act


def restorer(stage: Stage, *, restores: int, naps_s: Sequence[float] = (0.5, 60.0, HOUR_S, DAY_S)) -> Act:
    """Somebody who brings back a state that they have seen in the history, of a time or of a commit."""

    def act(world: World, actor: Actor) -> None:
        table, chance, model = table_of(world, actor), world.random, stage.model
        assert isinstance(model, Model)
        for _ in range(restores):
            actor.clock.sleep(chance.choice(naps_s))
            try:
                commits = [it for it in table.snapshot().decided if not it.marker.is_abort]
            except DbioError as error:
                give_up(world, actor, "cannot see what to restore", error)
                continue
            if commits:
                commit = chance.choice(commits if chance.random() < 0.5 else commits[-4:])
                is_clear = commit.modified <= world.now - timedelta(seconds=2) and not world.risks.whole_seconds
                at = commit.modified if is_clear else world.now - timedelta(seconds=chance.choice((2, 60, 4000)))
                _restore(stage, model, world, actor, commit.tid if is_clear else at, at)

    return act


def _restore(stage: Stage, model: Model, world: World, actor: Actor, as_of: AsOf, at: datetime) -> None:
    """`at` is the time of `as_of`."""
    since, asked = world.steps, Asked("restore", restores=at)
    model.restoring[actor.name] = asked
    world.note(actor.name, f"restores the state as of {as_of}")
    try:
        commit = table_of(world, actor).restore(as_of)
        model.check_committed(commit.tid, commit)
    except (HistoryLostError, InvalidInputError, CommitConflictError, TransactionAbortedError) as error:
        give_up(world, actor, "cannot restore", error)
        stage.failed += [tid for tid, it in model.asked.items() if it is asked]
        if not isinstance(error, TransactionAbortedError):
            model.check_refused(asked, error, since=since)
    except (StoreError, CommitStateUnknownError, TransactionStateError, TableNotFoundError) as error:
        give_up(world, actor, "cannot restore", error)
    finally:
        del model.restoring[actor.name]


def failing_job(stage: Stage, *, after_s: float) -> Act:
    """A job that fails once it has begun, so that there is something new to tell, and nothing that tells it."""

    def act(world: World, actor: Actor) -> None:
        actor.clock.sleep(after_s)
        table_of(world, actor).begin(partition_by=[COLUMN] if stage.partitioned else []).abort()

    return tolerant(act)


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

    def __init__(self, stage: Stage, world: World, actor: Actor, *, work_s: float = 0, copies: float = 0) -> None:
        self._stage, self._world, self._actor, self._chance = stage, world, actor, world.random
        self._work_s, self._copies = work_s, copies
        self._table = table_of(world, actor)

    def run(
        self,
        operation: Operation,
        *,
        app: AppVersion | None = None,
        must_be_empty: bool = False,
        sets: Mapping[str, str] | None = None,
    ) -> str:
        columns = self._stage.columns(operation, self._chance)
        try:
            if sets:
                store, clock = self._table.store, self._table.clock
                transaction = begin(
                    context_of(store, clock), Intent(operation=operation, partition_by=columns, sets=sets)
                )
            elif self._stage.moves and app is None and not must_be_empty:
                transaction = self._begin_later(operation, columns)
            else:
                transaction = self._table.begin(operation, columns, app=app, must_be_empty=must_be_empty)
        except DbioError as error:
            give_up(self._world, self._actor, "cannot begin", error)
            self._refused(error, check_app(app))
            return "failed"
        self._world.note(self._actor.name, f"begins {operation} {transaction.tid} {app or ''}")
        if transaction.terms.skipped and isinstance(self._stage.model, Model):
            self._stage.model.skipped.add(transaction.tid)
            self._world.happened("a version was known to be committed when its writer began")
        self._layout = transaction.terms.partition_columns
        self._asked = self._stage.model.asked[transaction.tid] = Asked(operation, sets=transaction.terms.sets)
        self._write_for(transaction.terms.metadata.schema)
        try:
            with transaction:
                if not sets:
                    self._write(transaction)
                if self._work_s:
                    self._actor.clock.sleep(self._work_s)
                if self._copies:
                    self._copy(transaction)
                commit = self._end(transaction)
            if commit is None:
                self._world.happened("a transaction was committed by leaving its block")
            return self._committed(transaction, commit)
        except (CommitConflictError, TransactionAbortedError, TableExistsError) as error:
            self._stage.fail(transaction.terms, self._asked.added)
            return self._told(transaction, error)
        except DbioError as error:
            told = self._told(transaction, error)
            if isinstance(error, CommitStateUnknownError | StoreError) and self._chance.random() < self._copies:
                self._world.happened("a transaction was resumed")
                _resumed(self._stage, transaction.terms, self._asked)(self._world, self._actor)
            return told

    def _begin_later(self, operation: Operation, columns: Sequence[str] | None) -> Transaction:
        """As Spark's writers do, who plan in between."""
        store, clock = self._table.store, self._table.clock
        target = look(store, clock)
        clock.sleep(self._chance.choice((0, 0, 3.0, 20.0, 45.0, 55.0, 300.0)))
        return begin(context_of(store, clock), Intent(operation=operation, partition_by=columns), target=target)

    def _write(self, transaction: Transaction) -> None:
        chance = self._chance
        by_tasks = chance.random() < 0.5
        for number in range(chance.randint(1, 2)):
            if by_tasks:
                info = write_as_task(self._world, transaction, number, self._partition())
                transaction.add([info])
                self._asked.added.add(info.path)
            else:
                self._asked.added.add(self._write_file(transaction.new_file(partition=self._partition())))
        if transaction.terms.operation == "rewrite":
            live = [file.path for file in self._table.snapshot().files]
            self._asked.removed = frozenset(chance.sample(live, min(len(live), chance.randint(0, 2))))
            transaction.remove(self._asked.removed)
        if transaction.terms.operation == "overwrite_partitions" and self._layout and chance.random() < 0.3:
            partition = self._partition()
            transaction.overwrite_partition(partition)
            self._asked.replaced = frozenset([names.format_partition(partition)])
        if chance.random() < 0.15:
            after_s = chance.choice((1.0, 300.0, 4000.0) if transaction.terms.scope is Scope.TABLE else (1.0, 300.0))
            self._world.spawn(f"{self._actor.name}-late", late_task(self._stage, transaction), after_s=after_s)

    def _write_file(self, url: str) -> str:
        path = url.removeprefix(self._world.store.url + "/")
        with self._world.store.open_write(path) as stream:
            stream.write(self._world.new_row())
        return path

    def _copy(self, transaction: Transaction) -> None:
        """Other processes that resume it, and end it as well; one may have run its tasks again."""
        for number in range(self._chance.choice((0, 0, 0, 1, 2))):
            other: set[str] | None = None
            if transaction.terms.scope is Scope.TABLE and self._chance.random() < 0.4:
                other = {write_as_task(self._world, transaction, 8, self._partition()).path}
                self._asked.copies.append(other)
            copy = _resumed(self._stage, transaction.terms, self._asked, other)
            after_s = self._chance.choice((0, 0.1, 3.0, 4000.0))
            self._world.spawn(f"{self._actor.name}-copy{number}", copy, after_s=after_s)

    def _end(self, transaction: Transaction) -> Commit | None:
        """The commit; None where the end of the block is to make it."""
        if (chance := self._chance.random()) < 0.07:
            transaction.abort()
            raise TransactionAbortedError("by its writer")
        if chance > 0.9:
            return None
        schema = self._schema(transaction)
        if not self._copies:
            self._asked.written.clear()
        self._write_for(schema or transaction.terms.metadata.schema)
        return transaction.commit(schema)

    def _write_for(self, schema: Mapping[str, Any] | None) -> None:
        self._asked.written.add(columns_in(schema))

    def _committed(self, transaction: Transaction, commit: Commit | None) -> str:
        terms, tid, model = transaction.terms, transaction.tid, self._stage.model_of(transaction.terms)
        decision = model.decided.get(tid) if isinstance(model, Model) else None
        is_skipped = commit.skipped if commit else terms.app is not None and (decision is None or decision.is_abort)
        self._world.note(self._actor.name, f"{tid}: {'skipped' if is_skipped else 'committed'}")
        if is_skipped and terms.app and isinstance(model, Model):
            self._stage.failed.append(tid)
            model.check_skipped(terms.app)
            self._world.happened("a version that was committed already was skipped")
            return "skipped"
        model.check_committed(tid, commit)
        if terms.must_be_empty and isinstance(model, Model):
            model.check_first(tid)
            self._world.happened("a commit was to be the first, and was")
        return "committed"

    def _refused(self, error: DbioError, app: App | None) -> None:
        if isinstance(error, AppVersionError) and app and isinstance(self._stage.model, Model):
            self._world.happened("a version that came too late was refused")
            self._stage.model.check_too_low(app)

    def _told(self, transaction: Transaction, error: DbioError) -> str:
        give_up(self._world, self._actor, transaction.tid, error)
        self._refused(error, transaction.terms.app)
        if "days ago" in str(error):
            self._world.happened("a transaction was too old to commit")
        elif isinstance(error, TransactionStateError) and "aborted" in str(error):
            self._stage.model_of(transaction.terms).check_too_late(transaction.tid)
            self._world.happened("an abort came too late")
        elif not isinstance(error, InvalidInputError):
            self._world.happened(f"a writer got {type(error).__name__}")
        return "failed"

    def _partition(self) -> Partition:
        return {column: self._chance.choice(("0", "1", None)) for column in self._layout}

    def _schema(self, transaction: Transaction) -> dict[str, Any] | None:
        if self._chance.random() < 0.6 or transaction.terms.scope is Scope.DIRECTORY:
            return None
        columns = {self._chance.choice("abcd")}
        if transaction.terms.operation != "overwrite":
            columns |= {column["name"] for column in (transaction.terms.metadata.schema or {"fields": []})["fields"]}
        fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in sorted(columns)]
        return {"type": "struct", "fields": fields}


class Upsert(Job):
    """A merge of one row."""

    def _write(self, transaction: Transaction) -> None:
        model, chance = self._stage.model, self._chance
        assert isinstance(model, Model)
        key, keys = chance.choice("kl"), model.keys
        seen = self._table.snapshot()

        def of_it(snapshot: Snapshot) -> list[DataFile]:
            return [file for file in snapshot.files if key in keys.get(file.path, ())]

        path = self._write_file(transaction.new_file(partition=self._partition()))
        self._asked.added.add(path)
        self._asked.removed = frozenset(file.path for file in of_it(seen))
        transaction.remove(self._asked.removed)
        # What it removes may hold rows with other keys, which it writes again.
        keys[path] = frozenset([key]).union(*(keys[file] for file in self._asked.removed))
        isolation = chance.choice(get_args(Isolation))
        transaction.depends_on(Read(tids=frozenset(seen.tids), may_match=of_it, isolation=isolation))
        self._world.happened("a row was merged" if self._asked.removed else "a row was merged that was not there")


def _resumed(stage: Stage, terms: Terms, asked: Asked, staged: Collection[str] | None = None) -> Act:
    """Another process, which ends a transaction that one began: commits, or aborts, until it is told how it is."""

    def act(world: World, actor: Actor) -> None:
        paths = asked.added if staged is None else staged
        for _ in range(4):
            transaction = table_of(world, actor).resume(terms)
            world.store.make_durable(paths)  # who hands them over sees to it
            transaction.add(
                FileInfo(path=path, size=ROW_BYTES, partition=names.parse_partition(names.split(path)[0]))
                for path in paths
            )
            if terms.operation == "rewrite":
                transaction.remove(asked.removed)
            for directory in asked.replaced:
                transaction.overwrite_partition(names.parse_partition(directory))
            try:
                if world.random.random() < 0.25:
                    transaction.abort()
                    stage.failed.append(terms.tid)
                    return stage.model_of(terms).check_aborted(terms.tid)
                commit = transaction.commit()
            except (CommitConflictError, TransactionAbortedError, TableExistsError) as error:
                give_up(world, actor, terms.tid, error)
                return stage.fail(terms, paths)
            except TransactionStateError as error:
                give_up(world, actor, terms.tid, error)
                world.happened("an abort came too late")
                return stage.model_of(terms).check_too_late(terms.tid)
            except DbioError as error:
                give_up(world, actor, terms.tid, error)
                actor.clock.sleep(world.random.choice((0.1, 60.0, 1900.0, 2 * HOUR_S)))
                continue
            if commit.skipped:
                return stage.failed.append(terms.tid)
            world.happened("a copy of a transaction was told of its commit")
            return stage.model_of(terms).check_committed(terms.tid, commit)
        return None

    return act


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
    KINDS[transaction.terms.scope](world.store, SYSTEM_CLOCK).mark(transaction.terms, names.split(path)[0])
    with world.store.open_write(path) as stream:
        stream.write(world.new_row())
    world.store.make_durable([path])
    return FileInfo(path=path, size=ROW_BYTES, partition=partition)


def late_task(stage: Stage, transaction: Transaction) -> Act:
    """A task attempt that writes its file after its job has ended: a zombie."""

    def act(world: World, actor: Actor) -> None:
        partition = {column: str(world.random.randint(0, 2)) for column in transaction.terms.partition_columns}
        write_as_task(world, transaction, 9, partition)

    return tolerant(act)


# --- other tools --------------------------------------------------------------------------------------------------


def stranger(stage: Stage) -> Act:
    """Another DBIO writer, which knows nothing of our tables.

    What it appends at the root of an unpartitioned one is committed; in a partition, it is a stranger's for good.
    """

    def act(world: World, actor: Actor) -> None:
        while names.DESCRIPTOR not in world.store.objects:  # else it would make a directory of the directory scope
            actor.clock.sleep(0.5)
            if world.steps > 2000:
                return
        directories = [f"{COLUMN}=0", f"{COLUMN}=1"] if stage.partitioned else [""]
        _write_as_dbio(world, world.random.choices(directories, k=world.random.randint(1, 2)), removed={})

    return tolerant(act)


def untidy(stage: Stage) -> Act:
    """A tool that leaves a file in a table, and a disk that fails as a commit marker is written."""

    def act(world: World, actor: Actor) -> None:
        table = table_of(world, actor)
        transaction = table.begin("append", [COLUMN] if stage.partitioned else [])
        write_as_task(world, transaction, 0, {COLUMN: "0"} if stage.partitioned else {})
        directory = f"{COLUMN}=1" if stage.partitioned else ""
        write_by_hand(world, directory, "by-hand.parquet")
        stage.broken.append(transaction.tid)
        world.store.put_if_absent(names.committed(transaction.tid), b"")

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
            stream.write(world.new_row())
        if world.random.random() < 0.8:
            added.setdefault(directory, []).append(name)
    for directory in sorted({*directories, *removed}, key=lambda it: it not in directories):
        body = json.dumps({"added": added.get(directory, []), "removed": removed.get(directory, [])})
        world.store.put_if_absent(names.join(directory, names.committed(tid)), body.encode())


def write_by_hand(world: World, directory: str, name: str) -> None:
    with world.store.open_write(names.join(directory, name)) as stream:
        stream.write(world.new_row())


def plain_writer(stage: Stage) -> Act:
    """A tool that knows of no transactions."""

    def act(world: World, actor: Actor) -> None:
        for number in range(2):
            directory = f"{COLUMN}={world.random.randint(0, 2)}" if stage.partitioned else ""
            write_by_hand(world, directory, f"{actor.name}-{number}.parquet")
            actor.clock.sleep(world.random.choice((0.1, 60.0, DAY_S)))

    return tolerant(act)


# --- readers ------------------------------------------------------------------------------------------------------


def reader(stage: Stage, *, reads: int, naps_s: Sequence[float] = (0.05, 30.0, HOUR_S, 20 * HOUR_S)) -> Act:
    def act(world: World, actor: Actor) -> None:
        table = table_of(world, actor)
        for _ in range(reads):
            since, at, model = world.steps, world.now, stage.model
            try:
                snapshot = table.snapshot()
            except TableNotFoundError:
                if isinstance(model, Model):
                    model.check_absent(since=since)
                actor.clock.sleep(1.0)
                continue
            if model is stage.model:
                model.check_read(snapshot, since=since, waited=actor.settled_after == actor.listed[""])
            else:
                world.happened("a directory was adopted during a read")
            world.note(actor.name, f"sees {len(snapshot.files)} files")
            if isinstance(stage.model, Model) and not world.risks.steps and world.random.random() < 0.5:
                _travel(world, actor, table, stage.model, snapshot)
            actor.clock.sleep(world.random.choice(naps_s))
            stage.model.check_pinned(snapshot, age=world.now - at)

    return tolerant(act)


def slow_reader(stage: Stage, *, reads: int, naps_s: Sequence[float]) -> Act:
    """Takes a snapshot, and reads the files and the history in it only later."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(reads):
            actor.clock.sleep(world.random.choice(naps_s))
            at, model = world.now, stage.model
            assert isinstance(model, Model)
            snapshot = table_of(world, actor).snapshot()
            actor.clock.sleep(world.random.choice(naps_s))
            try:
                found = {file.path for file in snapshot.files}, len(snapshot.decided)
            except (CheckpointLostError, ObjectNotFoundError) as error:
                if world.now - at < model.promised:
                    raise Violation(f"I4: a snapshot cannot be read {world.now - at} later: {error!r}") from error
                world.happened("a snapshot was read too late")
                continue
            world.note(actor.name, f"sees {len(found[0])} files late")
            model.check_held(snapshot)
            world.happened("a snapshot was read late")

    return tolerant(act)


def _travel(world: World, actor: Actor, table: Table, model: Model, snapshot: Snapshot) -> None:
    """Reads the state as of a time, or as of a commit; of commits within the same second only the code knows which."""
    past = world.now - timedelta(seconds=world.random.choice((2, 100, 10_000, 200_000)))
    as_of: Any = past
    if snapshot.tids and not world.risks.whole_seconds and world.random.random() < 0.5:
        as_of = world.random.choice(snapshot.tids)
        past = next(commit.modified for commit in snapshot.decided if commit.tid == as_of)
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
                retention_hours=stage.retention_hours,
                checkpoint_after=world.random.choice(checkpoint_after),
                untracked=stage.untracked,
            )
            is_dry = world.random.random() < 0.1
            haste = world.random.choice((0, 0, 0, 0, 0, 0, 0, 0, 0.9))
            control = Control(stop=partial(_stop, world, haste))
            try:
                report = vacuum_table(table_of(world, actor), options, dry_run=is_dry, control=control)
            except TableNotFoundError:
                continue
            except DbioError as error:
                give_up(world, actor, "vacuum failed", error)
                continue
            world.note(
                actor.name,
                f"vacuumed: {len(report.deleted)} deleted, {len(report.failed)} failed, {len(report.aborted)} aborted, "
                f"checkpoint {report.checkpoint}{', all of it dry' if is_dry else ''}",
            )
            if report.stopped:
                world.happened("a vacuum was stopped")
            for _ in [] if is_dry else report.aborted:
                world.happened("vacuum aborted a transaction")

    return act


def _stop(world: World, haste: float) -> bool:
    return world.random.random() < haste


def loser(stage: Stage) -> Act:
    """Somebody who removes a checkpoint by mistake, once: any, and mostly the newest."""

    def act(world: World, actor: Actor) -> None:
        while True:
            actor.clock.sleep(world.random.choice((600.0, HOUR_S, 3 * HOUR_S)))
            there = sorted(path for path in world.store.objects if path.startswith(Kind.CHECKPOINT))
            if there and world.random.random() < 0.5:
                path = there[-1] if world.random.random() < 0.7 else world.random.choice(there)
                world.happened("a checkpoint was removed by mistake")
                world.store.delete_many([path])
                return
            if world.time_s > 3 * DAY_S:
                return

    return tolerant(act)


def operator(stage: Stage, *, actions: int = 2) -> Act:
    """Somebody who runs `dbio abort` and `dbio checkpoint`."""

    def act(world: World, actor: Actor) -> None:
        table = table_of(world, actor)
        for _ in range(actions):
            actor.clock.sleep(world.random.choice((0.2, 5.0, 4000.0)))
            if world.random.random() < 0.5 and isinstance(stage.model, Model):
                table.checkpoint()
            elif pending := [it.tid for it in table.check().pending if it.tid not in stage.broken]:
                table.abort(world.random.choice(pending))
                world.happened("an operator aborted a transaction")

    return tolerant(act)


def adopter(stage: Stage, *, attempts: int = 1) -> Act:
    """Somebody who makes a table of a directory."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(attempts):
            try:
                table_of(world, actor).adopt()
                return
            except DbioError as error:
                if "is a table now" in str(error):  # some writer's markers came late; it was refused, or killed
                    world.happened("an adopter was told of late writers")
                    return
                give_up(world, actor, "cannot adopt", error)
            actor.clock.sleep(world.random.choice((0.1, 1.0, 30.0)))

    return act


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


def store_clock_setter(stage: Stage, *, steps: int = 40) -> Act:
    """Somebody who sets the store's clock, to and fro."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(steps):
            actor.clock.sleep(world.random.choice((0.1, 0.5, 3.0)))
            world.step_s = world.random.uniform(-MOST_STEP_S, MOST_STEP_S)
            world.faults["store's clock set"] += 1

    return act


def tolerant(act: Act) -> Act:
    """An actor that gives up when the store fails it, or when there is nothing to act on yet."""

    def tolerant(world: World, actor: Actor) -> None:
        try:
            act(world, actor)
        except Violation:
            raise
        except DbioError as error:
            give_up(world, actor, "gives up", error)

    return tolerant


def give_up(world: World, actor: Actor, what: str, error: DbioError) -> None:
    """Nobody corrupts a marker here; and a store that did not fail the actor is no reason to give up."""
    world.note(actor.name, f"{what}: {type(error).__name__}: {error}")
    if isinstance(error, CorruptMarkerError | UnsupportedStoreError | UnsupportedTableError):
        raise Violation(f"I9: {actor.name} got {error!r}")
    if isinstance(error, StoreError) and not actor.suffered:
        raise Violation(f"I9: {actor.name} suffered no fault, and got {error!r}")
    actor.suffered = False
