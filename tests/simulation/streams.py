"""Streaming queries in the simulation: those that write a table, those that read it, and what outlives their processes.

Spark is not here: what it does is done by hand, as it does it. A query's checkpoint is outside of the store. Who writes
logs what a batch is made of, makes it, and notes that it is done; who reads logs the end offset, reads, hands the rows
to a sink that knows each batch by its number, and notes that it is done. A process of either may die at any point, and
another makes its batch again; or begins while it still lives.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from msgspec import structs

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CommitConflictError,
    DbioError,
    HistoryLostError,
    InvalidInputError,
    StoreError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.commit.begin import Intent, begin
from dbio_commit.commit.request import Terms
from dbio_commit.commit.roots import KINDS
from dbio_commit.commit.transaction import Transaction
from dbio_commit.feed.feed import BatchLimits, Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Position, Start, decode_position, encode_position
from dbio_commit.maintenance.publish import context_of
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.history import FileChange
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.names import Partition

from .actors import COLUMN, Act, Stage, give_up, table_of, tolerant
from .model import Asked, Model
from .world import DAY_S, EPOCH, HOUR_S, ROW_BYTES, Actor, Violation, World

FROM_THE_FIRST = Start(begin="time", time=EPOCH - timedelta(days=400))
NOTHING = CommitMarker(added=[], removed=[])
WANTED = (FeedOptions(ignore_changes=True), FeedOptions(changes=True))
LIVES = 12
"""After so many deaths a query is left alone until all others have gone."""


# --- who writes ---------------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class Query:
    """A query that writes: its checkpoint, and what its tasks wrote."""

    id: str
    batches: int
    tasks: dict[int, int] = field(default_factory=dict)
    """Of each batch that was planned, how many there are; each has one row."""
    done: int = -1
    """The last batch that is known to be committed."""
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Path -> the batch, and the task, whose row is in it."""
    lives: int = 0

    def check(self, model: Model) -> None:
        """I8, I9: the row of each task of each batch is in the table, once."""
        committed = [path for it in model.decided.values() if not it.is_abort for path in it.added if path in self.rows]
        there = Counter(self.rows[path] for path in committed)
        for batch in range(self.batches):
            for task in range(self.tasks.get(batch, 1)):
                if there[batch, task] != 1:
                    raise Violation(f"I8: row {task} of batch {batch} of {self.id} is {there[batch, task]} times there")


def driver(stage: Stage, query: Query, naps_s: Sequence[float] = (0, 0.1, 60.0, HOUR_S)) -> Act:
    """A process of a query that writes; the next begins when it has died."""

    def act(world: World, actor: Actor) -> None:
        query.lives += 1
        try:
            for batch in range(query.done + 1, query.batches):
                _Batch(stage, world, actor, query, batch).make()
                query.done = max(query.done, batch)
                actor.clock.sleep(world.random.choice(naps_s))
        except InvalidInputError as error:
            raise Violation(f"I9: {actor.name} cannot commit what its own tasks wrote: {error!r}") from error
        except DbioError as error:
            give_up(world, actor, "the query fails", error)
        finally:
            if query.done + 1 < query.batches and query.lives < LIVES:
                world.happened("a query that writes was started again")
                world.spawn(f"{query.id}-{query.lives}", act, after_s=world.random.choice((0.1, 60.0, HOUR_S)))

    return act


def app_of(query: Query, batch: int) -> App:
    return App(id=query.id, version=batch)


def terms_of_task(terms: Terms, world: World, clock: Clock) -> Terms:
    """What a task hears of the transaction: the same as all others."""
    return terms


class _Batch:
    """One attempt at a batch."""

    def __init__(self, stage: Stage, world: World, actor: Actor, query: Query, batch: int) -> None:
        self._stage, self._world, self._actor, self._query, self._batch = stage, world, actor, query, batch
        self._table = table_of(world, actor)

    def make(self) -> None:
        store, clock, chance = self._table.store, self._table.clock, self._world.random
        tasks = self._query.tasks.setdefault(self._batch, chance.randint(1, 2))
        columns = [COLUMN] if self._stage.partitioned else []
        terms = begin(context_of(store, clock), Intent(partition_by=columns), claims=False).terms
        terms = replace(terms, app=app_of(self._query, self._batch))
        self._world.note(self._actor.name, f"makes batch {self._batch} as {terms.tid}")
        asked = self._stage.model.asked[terms.tid] = Asked("append")
        files = list[FileInfo]()
        try:
            for task in range(tasks):
                files.append(self._run_task(terms, task))
        except DbioError:
            if files:
                self._abort(terms, files)
            raise
        asked.added |= {file.path for file in files}
        if chance.random() < 0.2:
            clock.sleep(chance.choice((1.0, 70.0, 2 * HOUR_S)))
        self._commit(terms, files)

    def _run_task(self, terms: Terms, task: int) -> FileInfo:
        """The first of its attempts that succeeds; another may go on for long."""
        chance = self._world.random
        if chance.random() < 0.25:
            after_s = chance.choice((0, 1.0, 70.0, 2 * HOUR_S, 30 * HOUR_S))
            self._world.spawn(f"{self._actor.name}-task{task}", self._late_attempt(terms, task), after_s=after_s)
        for _ in range(2):
            try:
                return self._attempt(self._actor, terms, task)
            except StoreError as error:
                give_up(self._world, self._actor, f"task {task} fails", error)
        return self._attempt(self._actor, terms, task)

    def _late_attempt(self, terms: Terms, task: int) -> Act:
        def act(world: World, actor: Actor) -> None:
            self._attempt(actor, terms, task)

        return tolerant(act)

    def _attempt(self, actor: Actor, terms: Terms, task: int) -> FileInfo:
        world = self._world
        terms = terms_of_task(terms, world, actor.clock)
        partition: Partition = {COLUMN: str(task)} if self._stage.partitioned else {}
        name = names.format_data_file(
            tid=terms.tid,
            job=terms.job,
            task=task,
            attempt=world.random.getrandbits(31),
            number=0,
            suffix=".parquet",
        )
        path = names.join(names.format_partition(partition), name)
        self._query.rows[path] = self._batch, task
        KINDS[terms.scope](world.store, actor.clock).mark(terms, names.split(path)[0])
        with world.store.open_write(path) as stream:
            stream.write(self._world.new_row())
        self._world.store.make_durable([path])
        return FileInfo(path=path, size=ROW_BYTES, partition=partition)

    def _abort(self, terms: Terms, files: Iterable[FileInfo]) -> None:
        """As Spark asks for it: of tasks that failed nothing is known."""
        transaction = self._table.resume(terms)
        transaction.add(files)
        with suppress(DbioError):
            transaction.abort()
        self._world.happened("a batch failed, since a task did")

    def _commit(self, terms: Terms, files: Iterable[FileInfo]) -> None:
        model = self._stage.model
        assert isinstance(model, Model)
        transaction = self._table.resume(terms)
        try:
            with transaction:
                transaction.add(files)
                commit = transaction.commit()
        except (CommitConflictError, TransactionAbortedError):
            self._stage.fail(terms, {file.path for file in files})
            raise
        except TransactionStateError as error:
            raise Violation(f"I9: a batch is neither committed nor aborted: {error!r}") from error
        if commit.skipped:
            self._stage.failed.append(terms.tid)
            model.check_skipped(App(id=self._query.id, version=self._batch))
            self._world.happened("a batch that was committed already was skipped")
        else:
            model.check_committed(terms.tid, commit)
            self._world.happened("a batch was committed")


# --- who reads ----------------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class Reading:
    """A query that reads: its checkpoint, and the sink that it fills."""

    name: str
    start: Start
    wanted: FeedOptions
    most: BatchLimits
    left: int
    """How often it still looks for something new."""
    offsets: dict[int, str] = field(default_factory=dict)
    """Of each batch that was planned, where it ends; as text."""
    done: int = 0
    """How many batches are."""
    sink: dict[int, Sequence[FileChange]] = field(default_factory=dict)
    """By the number of the batch."""
    began: frozenset[str] = frozenset()
    """The commits whose state it has begun with."""
    lost: str = ""
    """Why it failed for good."""
    lives: int = 0

    def step(self, model: Model, actor: Actor, follower: Follower) -> bool:
        """Makes the next batch, which may have been made before; whether there was one."""
        world, batch = model.world, self.done
        at = decode_position(json.loads(self.offsets[batch - 1])) if batch else self.start
        if batch not in self.offsets:
            since = world.steps
            feed = Feed(follower.history(), self.wanted)
            end = feed.after(at, self.most)
            if end == at:
                self._check_had(model, at, since)
                return False
            if batch not in self.offsets:  # nobody else has planned it meanwhile
                if not batch and self.start.begin == "state":
                    self.began = frozenset(commit.tid for commit in feed._history.commits)
                self.offsets[batch] = json.dumps(encode_position(end))
        actor.clock.sleep(world.random.choice((0, 0, 1.0, 60.0, 2 * HOUR_S)))
        end = decode_position(json.loads(self.offsets[batch]))
        assert isinstance(end, Position)
        feed = Feed(follower.history(), self.wanted)
        changes = follower.without_deleted(feed, feed.between(at, end))
        actor.clock.sleep(0)
        if self.sink.get(batch, changes) != changes:
            raise Violation(f"I9: batch {batch} of {self.name} was made again, and is another")
        if batch in self.sink:
            world.happened("a batch was read again")
        self.sink[batch] = changes
        actor.clock.sleep(0)
        self.done = max(self.done, batch + 1)
        world.note(actor.name, f"has read batch {batch}, of {len(changes)} files")
        return True

    def _check_had(self, model: Model, at: Position | Start, since: int) -> None:
        """R1: it was told in step `since`, or later, that nothing is new."""
        for tid, it in model.decided.items():
            if it.is_abort or it.step > since or not model.must_be_told(tid):
                continue
            if not isinstance(at, Position) or not at.had(Decided(it.modified, tid, NOTHING)):
                raise Violation(f"R1: {self.name} was told in step {since} that nothing is new, and has not had {tid}")

    def check(self, model: Model) -> None:
        """I9: each file of each commit was delivered once, and what came first, first."""
        told = [change for batch in sorted(self.sink) for change in self.sink[batch]]
        times = Counter((it.kind, it.file.path) for it in told)
        if twice := [it for it, count in times.items() if count > 1]:
            raise Violation(f"I9: {self.name} was given twice: {sorted(twice)}")
        self._check_order(model, told)
        if self.lost:
            return
        expected = self._expected(model)
        if times.keys() != expected:
            missed, more = expected - times.keys(), times.keys() - expected
            raise Violation(f"I9: {self.name} was never given {sorted(missed)}, and {sorted(more)} too many")
        model.world.happened("a stream has had every commit")

    def _expected(self, model: Model) -> set[tuple[str, str]]:
        decided = {tid: it for tid, it in model.decided.items() if not it.is_abort}
        first = [decided[tid] for tid in self.began]
        added = {path for it in first for path in it.added}
        expected = {("insert", path) for path in added - {path for it in first for path in it.removed}}
        for tid, it in decided.items():
            if tid not in self.began and it.info.get("data_change") is not False:
                expected |= {("insert", path) for path in it.added}
                expected |= {("delete", path) for path in it.removed} if self.wanted.changes else set()
        return expected

    def _check_order(self, model: Model, told: Sequence[FileChange]) -> None:
        """Of two commits of which the first was acknowledged before the other began, as far as times tell."""
        if model.world.risks.steps:
            return
        places: dict[str, list[int]] = {}
        for place, change in enumerate(told):
            places.setdefault(change.tid, []).append(place)
        for tid, first in places.items():
            for other, second in places.items():
                one, two = model.decided[tid], model.decided[other]
                if one.step < model.started.get(other, 0) and one.modified < two.modified and max(first) > min(second):
                    raise Violation(f"I9: {self.name} was given {other} before {tid}, on which it may rest")


def stream_reader(stage: Stage, reading: Reading, naps_s: Sequence[float] = (0.05, 1.0, 60.0, HOUR_S)) -> Act:
    """A process of a query that reads; the next begins when it has died."""

    def act(world: World, actor: Actor) -> None:
        reading.lives += 1
        try:
            _read_on(stage, reading, world, actor, naps_s)
        finally:
            if reading.left > 0 and not reading.lost and reading.lives < LIVES:
                world.happened("a query that reads was started again")
                world.spawn(f"{reading.name}-{reading.lives}", act, after_s=world.random.choice((0.1, 60.0, HOUR_S)))

    return act


def _read_on(stage: Stage, reading: Reading, world: World, actor: Actor, naps_s: Sequence[float]) -> None:
    follower, model = Follower(world.store, actor.clock), stage.model
    assert isinstance(model, Model)
    try:
        while reading.left > 0 and not reading.lost:
            reading.left -= 1
            reading.step(model, actor, follower)
            actor.clock.sleep(world.random.choice(naps_s))
    except HistoryLostError as error:
        _lose(stage, reading, world, error)
    except DbioError as error:
        give_up(world, actor, "the stream fails", error)


def _lose(stage: Stage, reading: Reading, world: World, error: HistoryLostError) -> None:
    """It may fail only where vacuum has taken what it would read, or where the store's clock was set far back."""
    reading.lost = str(error)
    world.note(reading.name, f"is lost: {error}")
    model = stage.model
    assert isinstance(model, Model)
    is_vacuumed = any(path not in world.store.objects for path in model.removed)
    if not is_vacuumed and not world.faults["store's clock set far back"]:
        raise Violation(f"I9: {reading.name} failed for nothing: {error}")
    world.happened("a stream was told that it has lost something")


# --- others -------------------------------------------------------------------------------------------------------


def compactor(stage: Stage, *, runs: int, naps_s: Sequence[float] = (1.0, 60.0, 2 * HOUR_S)) -> Act:
    """Somebody who writes the rows of several files into one, and changes none."""

    def act(world: World, actor: Actor) -> None:
        table, clustered = table_of(world, actor), set[str]()
        for _ in range(runs):
            actor.clock.sleep(world.random.choice(naps_s))
            snapshot = table.snapshot()
            live = [file.path for file in snapshot.files]
            lost = [it.tid for it in snapshot.transactions if it.tid in clustered and not _is_clustered(it.marker)]
            if lost:
                raise Violation(f"the state of the rows that {lost[0]} has clustered is lost")
            if not live:
                continue
            with table.begin("rewrite") as transaction:
                partition: Partition = dict.fromkeys(transaction.terms.partition_columns, "0")
                path = transaction.new_file(partition=partition).removeprefix(f"{world.store.url}/")
                removed = frozenset(world.random.sample(live, min(len(live), 2)))
                with world.store.open_write(path) as stream:
                    stream.write(b"".join(world.store.objects[it][0] for it in removed if it in world.store.objects))
                if isinstance(stage.model, Model):
                    keys = (stage.model.keys.get(it, frozenset()) for it in removed)
                    stage.model.keys[path] = frozenset[str]().union(*keys)
                transaction.remove(removed)
                stage.model.asked[transaction.tid] = Asked("rewrite", added={path}, removed=removed)
                _without_change(transaction)
                transaction.record_clustering(_CLUSTERED)
                clustered.add(transaction.tid)
                transaction.commit()
            world.happened("files were compacted")

    return tolerant(act)


_CLUSTERED = ("id", "day")


def _is_clustered(marker: CommitMarker) -> bool:
    """Whether it has the columns by which it has clustered rows, or is an abort."""
    info = marker.dbio_commit
    return marker.is_abort or (info is not None and tuple(info.clustered or ()) == _CLUSTERED)


def _without_change(transaction: Transaction) -> None:
    """What it commits says that the rows stay the same."""
    root: Any = transaction._root
    marker = root._marker

    def mutated(*arguments: Any) -> CommitMarker:
        found: CommitMarker = marker(*arguments)
        assert found.dbio_commit
        return structs.replace(found, dbio_commit=structs.replace(found.dbio_commit, data_change=False))

    root._marker = mutated


def set_back(stage: Stage, *, after_s: Sequence[float] = (5.0, HOUR_S, DAY_S)) -> Act:
    """Somebody who sets the store's clock back, by more than what streams allow for; later it is right again."""

    def act(world: World, actor: Actor) -> None:
        actor.clock.sleep(world.random.choice(after_s))
        world.step_s = -world.random.choice((2 * HOUR_S, 30 * HOUR_S, 9 * DAY_S))
        world.faults["store's clock set far back"] += 1
        actor.clock.sleep(world.random.choice((5.0, HOUR_S)))
        world.step_s = 0.0

    return act


# --- the end ------------------------------------------------------------------------------------------------------


def finish(world: World, stage: Stage) -> None:
    """When all others have gone, each query comes to its end; then what it did is looked at."""
    queries, readings, model = stage.queries, stage.readings, stage.model
    if not (queries or readings) or not isinstance(model, Model):
        return
    for query in queries:
        query.lives = 0
        world.spawn(query.id, driver(stage, query, naps_s=(0.1,)), immortal=True)
    world.run()
    for reading in readings:
        reading.left, reading.lives = 200, LIVES
        if not reading.lost and names.DESCRIPTOR in world.store.objects:
            world.spawn(reading.name, _drain(stage, reading), immortal=True)
    world.run()
    for query in queries:
        query.check(model)
    for reading in readings:
        reading.check(model)


def _drain(stage: Stage, reading: Reading) -> Act:
    def act(world: World, actor: Actor) -> None:
        follower, model = Follower(world.store, actor.clock), stage.model
        assert isinstance(model, Model)
        try:
            while reading.step(model, actor, follower):
                reading.left -= 1
                if reading.left < 0:
                    raise Violation(f"I9: {reading.name} comes to no end")
        except HistoryLostError as error:
            _lose(stage, reading, world, error)
        except DbioError as error:
            raise Violation(f"I9: nothing disturbs {reading.name}, and it fails: {error!r}") from error

    return act
