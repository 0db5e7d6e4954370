"""A simulation of several tables with joint transactions. Each table has the model and the actors of `run`.

A ledger says of each joint transaction what its home has decided. It checks that all tables follow, and what readers of
several tables see. `make simulate SCENARIO=joint SEED=0` prints a run.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast
from unittest.mock import patch

from dbio_commit.base.errors import (
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    TableNotFoundError,
    TransactionStateError,
)
from dbio_commit.commit import begin
from dbio_commit.commit.probe import _PROBED
from dbio_commit.commit.request import Terms
from dbio_commit.joint import JointTransaction
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.vacuum import plan
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.names import Kind
from dbio_commit.table import Table, snapshots
from dbio_commit.testing import MemoryStore

from . import actors, erasures
from .actors import OPERATIONS, Act, Job, Stage, tolerant
from .ending import settle
from .model import Asked, Decision, Model
from .world import DAY_S, HOUR_S, Actor, Risks, SimClock, SimStore, Violation, World

SCENARIO = "joint"

PURGE_AFTER = timedelta(seconds=1800)

MAX_STEPS = 60_000

_Files = frozenset[str]
_T = TypeVar("_T")


# --- what must be true --------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Deed:
    """A joint transaction."""

    tid: str
    home: str
    """The id of the table that decides it."""
    is_committed: bool | None = None
    """What the home decided first; None before that."""
    step: int = 0
    """Of that decision."""
    told: str = ""
    """What its writer was told: "committed" or "failed"."""
    tables: set[str] = field(default_factory=set)
    """The ids of those in which it began."""
    parts: dict[str, tuple[_Files, _Files]] = field(default_factory=dict)
    """Of one that is committed: what it adds and removes, by the ids of its tables."""


@dataclass(frozen=True)
class Cut:
    """What a reader of several tables has seen: tids by the ids of the tables."""

    until: int
    """The step after which it ended."""
    tables: frozenset[str]
    """The ids of all that it read. A cut without the home of a transaction need not show what waits for that home."""
    seen: Mapping[str, frozenset[str]]
    """Without the tables that were dropped meanwhile."""


@dataclass
class Ledger:
    """All joint transactions, and the tables."""

    world: World
    places: list["Place"] = field(default_factory=list)
    deeds: dict[str, Deed] = field(default_factory=dict)
    models: dict[str, "TableModel"] = field(default_factory=dict)
    """Of all tables that there ever were, by their ids."""
    cuts: list[Cut] = field(default_factory=list)
    trouble: float = 0.0
    """How likely a writer dies, or stands still, when its home has just decided."""

    def on_start(self, table: str, tid: str, body: bytes) -> None:
        home = json.loads(body)["home"]
        deed = self.deeds.setdefault(tid, Deed(tid, home["id"]))
        if deed.home != home["id"] or (home["path"] == ".") != (table == deed.home):
            raise Violation(f"J0: {tid} has the home {deed.home}, and its start marker in {table} says {home}")
        deed.tables.add(table)

    def on_decision(self, model: "TableModel", tid: str, decision: Decision) -> None:
        """J1: a table follows the home. J2: a home that was dropped has committed nothing that is left undone."""
        deed = self.deeds.get(tid)
        if deed is None or model.id not in deed.tables:
            return  # its request came after the table was dropped and another one was made
        if model.id == deed.home:
            deed.is_committed, deed.step = not decision.is_abort, self.world.steps
            if deed.is_committed and deed.told == "failed":
                raise Violation(f"J3: the writer of {tid} was told that nothing is committed, and its home commits it")
            if deed.is_committed:
                deed.parts[model.id] = decision.added, decision.removed
                for part in decision.info["joint"]["parts"]:
                    deed.parts[part["id"]] = self._files_of(part["id"], part["marker"])
                self._make_trouble()
        elif not decision.is_abort:
            if not deed.is_committed:
                raise Violation(f"J1: {tid} is committed in {model.id}, and its home decided {deed.is_committed}")
            if deed.parts.get(model.id) != (decision.added, decision.removed):
                raise Violation(f"J1: {tid} commits {decision} in {model.id}, and its home decided {deed.parts}")
            if self._who() != "":
                self.world.happened("a part was committed by " + self._who())
        elif deed.is_committed or (deed.is_committed is None and not self.models[deed.home].dropped):
            raise Violation(f"J1: {tid} is aborted in {model.id}, and its home decided {deed.is_committed}")

    def is_needed(self, home: "TableModel") -> bool:
        """Whether another table does not have yet what this one has decided."""
        return any(
            deed.is_committed
            and deed.home == home.id
            and any(deed.tid not in self.models[it].decided for it in deed.parts)
            for deed in self.deeds.values()
        )

    def _make_trouble(self) -> None:
        actor, chance = self.world.current(), self.world.random
        if actor is None or actor.immortal or chance.random() >= self.trouble:
            return
        if chance.random() < 0.5:
            actor.doomed = True
            self.world.faults["kill between a home and the others"] += 1
        else:
            actor.wake_s = self.world.time_s + chance.choice((60.0, 300.0, HOUR_S, 3 * DAY_S))
            self.world.faults["stall between a home and the others"] += 1

    def on_skip(self, table: str, tid: str) -> None:
        """A table has forgotten an attempt that nobody could commit."""
        if (deed := self.deeds.get(tid)) and deed.home == table and deed.is_committed is None:
            deed.is_committed = False

    def _files_of(self, table: str, marker: Mapping[str, Any]) -> tuple[_Files, _Files]:
        """What a part adds and removes."""
        model = self.models[table]
        referred = (model.decided[tid].added for tid in (marker.get("dbio_commit") or {}).get("removed_tids") or ())
        removed = frozenset(marker["removed"]).union(*(it & model.live for it in referred))
        return frozenset(marker["added"]), removed

    def _who(self) -> str:
        actor = self.world.current()
        return actor.name.removeprefix("of ").rstrip("0123456789@-") if actor else ""

    # --- what actors are told -------------------------------------------------------------------------------------

    def committed(self, tid: str) -> None:
        deed = self.deeds[tid]
        deed.told = "committed"
        if not deed.is_committed:
            raise Violation(f"J3: {tid} was reported as committed, and its home decided {deed.is_committed}")

    def failed(self, tid: str | None) -> None:
        if tid is None or (deed := self.deeds.get(tid)) is None:
            return
        deed.told = "failed"
        if deed.is_committed and any(self.models[it].dropped is None for it in deed.parts):
            raise Violation(f"J3: {tid} was reported as not committed, and is")

    def seen_in(self, found: Mapping["TableModel", Snapshot]) -> dict[str, frozenset[str]]:
        """The commits that each of the snapshots has."""
        return {model.id: model.seen_in(snapshot) for model, snapshot in found.items()}

    def check_cut(self, found: Mapping["TableModel", Snapshot], *, since: int, tables: frozenset[str]) -> None:
        """Several tables at one moment, by a reader that began in step `since` and read these `tables`."""
        for model, snapshot in found.items():
            self._check_files(model, snapshot)
        seen = self.seen_in(found)
        self._check_whole(seen)
        for model in found:
            old = {tid for tid, it in model.decided.items() if it.step <= since and not it.is_abort}
            if lost := old - seen[model.id]:
                raise Violation(f"R1: a cut since {since} missed {sorted(lost)} in {model.id}")
        for deed in self.deeds.values():
            if deed.is_committed and deed.step <= since and deed.home in seen and deed.tid not in seen[deed.home]:
                raise Violation(f"R1: a cut since {since} missed {deed.tid}, which its home had decided")
        for cut in self.cuts:
            for table in cut.seen.keys() & seen.keys() if cut.until <= since and cut.tables <= tables else ():
                if gone := cut.seen[table] - seen[table]:
                    raise Violation(f"J5: a cut since {since} lost {sorted(gone)} in {table}, which was seen before")
        self.cuts.append(Cut(self.world.steps, tables, seen))

    def check_past(self, found: Mapping["TableModel", Snapshot], at: datetime) -> None:
        """As of a time. A transaction that is pending in a table may be there since its home committed it."""
        for model, snapshot in found.items():
            self._check_files(model, snapshot)
            seen = model.seen_in(snapshot)
            then = {tid for tid, it in model.decided.items() if not it.is_abort and it.modified <= at}
            homes = {tid: self.models[it.home] for tid in seen - then if (it := self.deeds.get(tid))}
            known = {tid for tid, home in homes.items() if tid in home.decided and home.decided[tid].modified <= at}
            if wrong := seen ^ (then | known):
                raise Violation(f"I6: as of {at} a cut has {sorted(wrong)} of {model.id} wrong")
        self._check_whole(self.seen_in(found))
        self.world.happened("several tables were read as of a time")

    def check_as_of(self, found: Mapping["TableModel", Snapshot], tid: str) -> None:
        """As of a joint transaction: it is in all of its tables, and nothing has changed since in any."""
        for model, snapshot in found.items():
            part = self.deeds[tid].parts.get(model.id)
            if part is None:
                continue
            files = {it.path for it in snapshot.files}
            if tid not in snapshot.tids or part[0] - files or part[1] & files:
                raise Violation(f"J6: as of {tid}, {model.id} has {sorted(files)}, and it committed {part}")
        self.world.happened("several tables were read as of a joint transaction")

    def _check_whole(self, seen: Mapping[str, frozenset[str]]) -> None:
        for deed in self.deeds.values():
            had = {table: deed.tid in seen[table] for table in deed.parts if table in seen}
            if len({*had.values()}) > 1:
                raise Violation(f"J4: a cut has a part of {deed.tid}: {had}; its home is {deed.home}")
            if had and all(had.values()):
                pending = [it for it in had if deed.tid not in self.models[it].decided]
                self.world.happened(
                    "a cut has a joint transaction" + (" that is pending in a table" if pending else "")
                )

    def _check_files(self, model: "TableModel", snapshot: Snapshot) -> None:
        added, removed = set[str](), set[str]()
        for tid in model.seen_in(snapshot):
            decision, deed = model.decided.get(tid), self.deeds.get(tid)
            if decision is not None and not decision.is_abort:
                files = decision.added, decision.removed
            elif deed and deed.is_committed and model.id in deed.parts:
                files = deed.parts[model.id]
            else:
                raise Violation(f"J4: a cut has {tid} in {model.id}, which is {decision}, {deed}")
            added |= files[0]
            removed |= files[1]
        if (got := {it.path for it in snapshot.files}) != added - removed:
            raise Violation(f"I6: {model.id} was read in a cut with {sorted(got ^ (added - removed))} wrong")

    def check_end(self) -> None:
        """When nothing is pending any more: each joint transaction is in all its tables, or in none."""
        for deed in self.deeds.values():
            for table, model in self.models.items():
                if model.dropped or deed.tid not in model.started:
                    continue
                decision = model.decided.get(deed.tid)
                is_here = decision is not None and not decision.is_abort
                if is_here != bool(deed.is_committed and table in deed.parts):
                    raise Violation(f"J1: at the end {deed} is {decision} in {table}")
            if deed.told == "committed":
                self.world.happened("a joint transaction was reported as committed")


class TableModel(Model):
    """One table of several. It may be dropped, after which nothing is checked."""

    def __init__(self, view: World, promised: timedelta, ledger: Ledger, *, id: str, untracked: bool, is_dbio: bool):
        super().__init__(view, promised, is_dbio=is_dbio, untracked=untracked)
        self.id, self.ledger = id, ledger
        self.dropped: int | None = None
        """The step in which it was."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def on_put(self, path: str, body: bytes) -> None:
        if path == names.DROPPED and json.loads(body)["table_id"] != self.id:
            self.world.happened("a tombstone came that belongs to a table that was dropped")
        elif path == names.DROPPED:
            self.dropped = self.world.steps
            self.world.happened("a table was dropped")
        elif self.dropped is None and self._is_of_another(path, body):
            self.world.happened("a marker came that belongs to a table that was dropped")
            self.strangers.add(path)
            self._check_later(f"{path} was created, which belongs to another table")
        elif self.dropped is None:
            super().on_put(path, body)
        elif (tid := _committed_tid(path)) and body and names.started(tid) in self.world.store.objects:
            self._on_decision(tid, json.loads(body))

    def _check_store(self, change: str) -> None:
        if self.dropped is None:
            super()._check_store(change)

    def _is_of_another(self, path: str, body: bytes) -> bool:
        marker = names.parse_log_name(path)
        if marker is None or marker.kind not in (Kind.STARTED, Kind.COMMITTED, Kind.TURN) or not body:
            return False
        info = json.loads(body)
        if marker.kind is Kind.COMMITTED:
            info = info.get("dbio_commit") or {}
        return info.get("table_id") not in (None, self.id)

    def on_delete(self, path: str) -> None:
        self.strangers.discard(path)
        if self.dropped is None:
            super().on_delete(path)
            if path.startswith(Kind.STARTED) and (tid := path.removeprefix(Kind.STARTED)) in self.skipped:
                self.ledger.on_skip(self.id, tid)

    def _on_start(self, tid: str, body: bytes) -> None:
        super()._on_start(tid, body)
        if names.is_joint(tid):
            self.ledger.on_start(self.id, tid, body)

    def _on_turn(self, tid: str = "", table_id: str | None = None, *, holder: str = "", **more: Any) -> None:
        more.pop("version", None)
        if more.pop("tables", 1) > 1:
            self.world.happened("a joint transaction took a turn")
        super()._on_turn(holder or tid, table_id, **more)

    def _on_decision(self, tid: str, body: Mapping[str, Any]) -> None:
        is_first = tid not in self.decided
        if self.dropped is None:
            super()._on_decision(tid, body)
        elif is_first:
            modified = self.world.store.objects[names.committed(tid)][1]
            added, removed = frozenset(body["added"]), frozenset(body["removed"])
            self.decided[tid] = Decision(self.world.steps, modified, added, removed, body.get("dbio_commit") or {})
        if is_first and names.is_joint(tid):
            self.ledger.on_decision(self, tid, self.decided[tid])

    def _check_abort(self, tid: str) -> None:
        if not names.is_joint(tid):  # whoever waits in another table may abort it
            super()._check_abort(tid)

    def seen_in(self, snapshot: Snapshot) -> frozenset[str]:
        """The commits in the snapshot, with those that its checkpoint has forgotten."""
        told = {it.tid for it in snapshot.decided if not it.marker.is_abort}
        forgotten = {tid for tid, it in self.decided.items() if not it.is_abort and not self.must_be_told(tid)}
        return frozenset(told | (forgotten & {*snapshot.checkpoint.covered}))

    # --- what actors see of a table that may be gone ----------------------------------------------------------------

    def check_read(self, snapshot: Snapshot, *, since: int, waited: bool) -> None:
        if self.dropped is None and snapshot.table_id == self.id:
            super().check_read(snapshot, since=since, waited=waited)

    def check_past(self, snapshot: Snapshot, at: datetime) -> None:
        if self.dropped is None and snapshot.table_id == self.id:
            super().check_past(snapshot, at)

    def check_pinned(self, snapshot: Snapshot, *, age: timedelta) -> None:
        if self.dropped is None and snapshot.table_id == self.id:
            super().check_pinned(snapshot, age=age)

    def check_absent(self, *, since: int) -> None:
        if self.dropped is None:
            super().check_absent(since=since)

    def check_aborted(self, tid: str) -> None:
        if self.dropped is None:
            super().check_aborted(tid)

    def check_committed(self, tid: str, commit: Commit | None = None) -> None:
        if self.dropped is None:
            super().check_committed(tid, commit)

    def check_too_late(self, tid: str) -> None:
        if self.dropped is None:
            super().check_too_late(tid)

    def check_first(self, tid: str) -> None:
        if self.dropped is None:
            super().check_first(tid)

    def check_skipped(self, app: App) -> None:
        if self.dropped is None:
            super().check_skipped(app)

    def check_too_low(self, app: App) -> None:
        if self.dropped is None:
            super().check_too_low(app)


def _committed_tid(path: str) -> str | None:
    marker = names.parse_log_name(path)
    return marker.id if marker and marker.kind is Kind.COMMITTED else None


# --- tables -------------------------------------------------------------------------------------------------------


class View:
    """The world as those see it who know of one table: its store is that of the table."""

    def __init__(self, world: World, store: "LakeStore") -> None:
        self.__dict__.update(world=world, store=store)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.world, name, value)

    def spawn(self, name: str, function: Callable[[World, Actor], None], **options: Any) -> Actor:
        spawned: Actor = self.world.spawn(name, lambda _, actor: function(cast(World, self), actor), **options)
        return spawned


class Place(Stage):
    """A path where a table is, or was, or is again: what the actors of the table share."""

    model: TableModel

    def __init__(self, ledger: Ledger, lake: dict[str, MemoryStore], *, promised: timedelta, **options: Any) -> None:
        self.ledger, self.promised = ledger, promised
        self.store = LakeStore(ledger.world, self, lake)
        self.view = cast(World, View(ledger.world, self.store))
        super().__init__(model=cast(Model, None), **options)
        ledger.places.append(self)

    @property
    def is_there(self) -> bool:
        return names.DESCRIPTOR in self.store.objects and not self.is_dropped

    @property
    def is_dropped(self) -> bool:
        """Whether there is a tombstone, and not one of an earlier table beside the descriptor of this one."""
        objects = self.store.objects
        if names.DROPPED not in objects or names.DESCRIPTOR not in objects:
            return names.DROPPED in objects
        return bool(json.loads(objects[names.DROPPED][0])["table_id"] == json.loads(objects[names.DESCRIPTOR][0])["id"])

    def on_put(self, path: str, body: bytes) -> None:
        if path == names.DESCRIPTOR:
            id = json.loads(body)["id"]
            is_first = self.model is None  # else DBIO's readers may see files of the one before
            self.model = TableModel(
                self.view,
                self.promised,
                self.ledger,
                id=id,
                untracked=self.untracked,
                is_dbio=is_first and not self.partitioned,
            )
            self.ledger.models[id] = self.model
        self.model.on_put(path, body)
        if path == names.DESCRIPTOR and any(map(self._is_of_directory, self.store.objects)):
            # Its maker stood still, and somebody wrote to the directory: their commits are the table's, too.
            self.model.dropped = self.ledger.world.steps
            self.ledger.world.happened("a directory with commits became a table")

    def _is_of_directory(self, path: str) -> bool:
        """Whether this is a commit that was made while there was no table."""
        body = self.store.objects[path][0] if path.startswith(Kind.COMMITTED) else b""
        info: dict[str, Any] = json.loads(body or b"{}").get("dbio_commit") or {"operation": "abort"}
        return info["operation"] != "abort" and "table_id" not in info

    def model_of(self, terms: Terms) -> Model:
        """Of a directory that is left of a table, nothing is checked."""
        found = self.ledger.models.get(terms.origin.table_id if terms.origin else "")
        return found or next(it for it in self.ledger.models.values() if it.dropped)

    def create(self, clock: SimClock) -> None:
        with Table.over(self.store, clock).begin("append", self.columns("append", self.ledger.world.random)) as made:
            self.model.asked[made.tid] = Asked("append")
            made.commit()


class LakeStore(SimStore):
    """The store of one of the tables."""

    def __init__(self, world: World, place: Place, lake: dict[str, MemoryStore]) -> None:
        super().__init__(world)
        self.url, self.lake = f"s3://sim/table{len(lake)}", lake
        lake[self.url] = self
        self.place = place

    def _with_fault(self, actor: Actor, fault: str | None, operation: str, path: str, function: Callable[[], _T]) -> _T:
        """A drop's late deletion may meet the same name in the next table (PROTOCOL.md 12): that is not looked at."""
        if operation == "delete" and path.startswith((Kind.TURN, Kind.CHECKPOINT, Kind.PURGE)):
            fault = "time-out, not applied" if fault == "time-out, applied later" else fault
        return super()._with_fault(actor, fault, operation, path, function)

    def _changed(self, path: str) -> None:
        super()._changed(path)
        with self._world.keeping_violation():
            if path in self.objects:
                self.place.on_put(path, self.objects[path][0])
            else:
                self.place.on_delete(path)


# --- who acts -----------------------------------------------------------------------------------------------------


class _Part(Job):
    """What a joint transaction does in one table."""

    def do(self, table: Table, keywords: Mapping[str, Any]) -> Commit:
        operation = self._chance.choice(OPERATIONS)
        with table.begin(operation, self._stage.columns(operation, self._chance), **keywords) as transaction:
            self._world.note(self._actor.name, f"begins {operation} {transaction.tid} in {table.url}")
            if transaction.terms.skipped:
                cast(Model, self._stage.model).skipped.add(transaction.tid)
            self._layout = transaction.terms.partition_columns
            self._asked = cast(Model, self._stage.model).asked[transaction.tid] = Asked(operation)
            self._write_for(transaction.terms.metadata.schema)
            self._write(transaction)
            schema = self._schema(transaction)
            self._asked.written.clear()
            self._write_for(schema or transaction.terms.metadata.schema)
            return transaction.commit(schema)


class _ChangedMindError(Exception):
    """Of a writer."""


def joint_writer(
    ledger: Ledger,
    *,
    transactions: int,
    naps_s: Sequence[float] = (0, 0, 0, 0.1, 60.0, 7200.0, DAY_S),
    work_s: Sequence[float] = (0, 0, 0, 1.0, 100.0),
) -> Act:
    def act(world: World, actor: Actor) -> None:
        for _ in range(transactions):
            _write_jointly(ledger, world, actor, work_s)
            actor.clock.sleep(world.random.choice(naps_s))

    return act


def _write_jointly(ledger: Ledger, world: World, actor: Actor, work_s: Sequence[float]) -> None:
    chance = world.random
    places = chance.sample(ledger.places, chance.randint(2, len(ledger.places)))
    joint = JointTransaction(app=("joint", chance.randint(0, 4)) if chance.random() < 0.2 else None)
    tid: str | None = None
    try:
        with joint:
            for place in places:
                joint._do(Table.over(place.store, actor.clock), _Part(place, place.view, actor).do)
                assert joint._joint
                tid = joint._joint.tid
                actor.clock.sleep(chance.choice(work_s))
            if chance.random() < 0.05:
                raise _ChangedMindError
    except _ChangedMindError:
        ledger.failed(tid)
    except CommitStateUnknownError as error:
        world.happened("the outcome of a joint transaction was not known")
        actors.give_up(world, actor, f"joint {tid}", error)
    except DbioError as error:
        if isinstance(error, TransactionStateError):
            raise Violation(f"J3: {tid}: {error!r}") from error
        tid = joint._joint.tid if joint._joint else None
        world.happened(f"a joint writer got {type(error).__name__}")
        ledger.failed(tid)
        actors.give_up(world, actor, f"joint {tid}", error)
    else:
        assert tid
        if joint.commits:
            ledger.committed(tid)
        else:
            world.happened("a joint transaction was skipped")
            ledger.failed(tid)


def cutter(ledger: Ledger, *, cuts: int, naps_s: Sequence[float] = (0.05, 0.5, 1.0, 60.0, HOUR_S)) -> Act:
    """Reads several tables at one moment."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(cuts):
            actor.clock.sleep(world.random.choice(naps_s))
            places = world.random.sample(ledger.places, world.random.randint(2, len(ledger.places)))
            _cut(ledger, world, actor, places)

    return act


def _cut(ledger: Ledger, world: World, actor: Actor, places: Sequence[Place]) -> None:
    chance, since, models = world.random, world.steps, [it.model for it in places]
    committed = [it.tid for it in ledger.deeds.values() if it.is_committed]
    at: datetime | str | None = None
    if chance.random() < 0.2:
        at = world.stamp - timedelta(seconds=chance.choice((3, 30, 1000, 100_000)))
    elif committed and chance.random() < 0.2:
        at = chance.choice(committed)
        models = [ledger.models[it] for it in ledger.deeds[at].parts]
        places = [it for it in ledger.places if it.model in models]
        if len(places) < len(models):
            return
        models = [it.model for it in places]
    try:
        found = snapshots([Table.over(it.store, actor.clock) for it in places], at)
    except InvalidInputError as error:
        if any(it.dropped for it in models):
            return actors.give_up(world, actor, "a table is gone", error)
        if at is None:
            raise Violation(f"I9: {actor.name} got {error!r}") from error
        is_half = "was being committed" in str(error)
        world.happened("a time was within a joint transaction" if is_half else "a past was past telling")
        world.note(actor.name, f"cannot read as of {at}: {error}")
        return
    except DbioError as error:
        return actors.give_up(world, actor, "cannot read", error)
    known = {
        model: it for model, it in zip(models, found, strict=True) if not model.dropped and it.table_id == model.id
    }
    if at is None:
        ledger.check_cut(known, since=since, tables=frozenset(it.table_id or "" for it in found))
    elif isinstance(at, str):
        ledger.check_as_of(known, at)
    else:
        ledger.check_past(known, at)


def dropper(ledger: Ledger, *, drops: int) -> Act:
    """Drops a table, and makes another one there."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(drops):
            actor.clock.sleep(world.random.choice((1.0, 5.0, 100.0, HOUR_S)))
            needed = [it for it in ledger.places if ledger.is_needed(it.model)]
            place = world.random.choice(needed if needed and world.random.random() < 0.7 else ledger.places)
            table = Table.over(place.store, actor.clock)
            if world.risks.stall and world.random.random() < 0.5:  # those who were at work find another table then
                world.hold_up(actor, world.random.choice((100.0, 200.0, HOUR_S)), share=0.5)
            for _ in range(5):
                try:
                    table.drop(everything=True)
                    break
                except TableNotFoundError:
                    break
                except DbioError as error:
                    actors.give_up(world, actor, "cannot drop", error)
            else:
                return
            actor.clock.sleep(world.random.choice((0, 0.5, 100.0)))
            if not place.is_there:
                tolerant(partial(_create, place))(world, actor)

    return act


def _create(place: Place, world: World, actor: Actor) -> None:
    place.create(actor.clock)


def alone(ledger: Ledger, *, runs: int) -> Act:
    """Somebody who aborts what waits for a home that was dropped."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(runs):
            actor.clock.sleep(world.random.choice((60.0, 300.0, HOUR_S)))
            for place in ledger.places:
                abort_alone(ledger, place, actor.clock)

    return tolerant(act)


def abort_alone(ledger: Ledger, place: Place, clock: SimClock) -> None:
    table = Table.over(place.store, clock)
    for tid in filter(names.is_joint, parse_log(place.store.list_log()).pending):
        deed = ledger.deeds.get(tid)  # there is none if a table was dropped before its request came
        if deed is None or ledger.models[deed.home].dropped is None:
            continue
        try:
            table.abort(tid)
        except TransactionStateError:
            continue
        except CorruptMarkerError:
            ledger.world.happened("a transaction was aborted without its home")
            table.abort(tid, alone=True)


def _give_up(ledger: Ledger, original: Callable[..., None]) -> Callable[..., None]:
    """A home may be gone."""

    def give_up(world: World, actor: Actor, what: str, error: DbioError) -> None:
        dropped = any(it.dropped for it in ledger.models.values())
        text = str(error)
        if dropped and isinstance(error, CorruptMarkerError) and "belongs to a joint transaction" in text:
            world.note(actor.name, f"{what}: {text}")
            world.happened("a home was gone")
        elif dropped and isinstance(error, CorruptMarkerError) and "_dbio_table is missing" in text:
            world.note(actor.name, f"{what}: {text}")  # it was listed on a disk during a drop
        elif dropped and isinstance(error, CorruptMarkerError) and "without a _dbio_table at the root" in text:
            world.note(actor.name, f"{what}: {text}")  # a commit marker came after the drop
        else:
            original(world, actor, what, error)

    return give_up


# --- one run ------------------------------------------------------------------------------------------------------


def new_world(seed: int, *, trace: bool = False) -> World:
    """The world of a seed, in which nobody acts yet."""
    chance = random.Random(f"{SCENARIO} {seed}")
    fault = chance.choice((0, 0.002, 0.01))
    risks = Risks(
        stall=chance.choice((0, 0.005, 0.02)),
        stalls_s=(0.5, 60, 200, HOUR_S, 20 * HOUR_S),
        kill=chance.choice((0, 0, 0.003)),
        lost_answer=fault,
        not_applied=fault,
        late=fault,
        own_conflict=5 * fault,
        torn_listings=chance.random() < 0.7,
        whole_seconds=chance.random() < 0.4,
        slow=chance.choice((0, 0, 0.3)),
    )
    return World(seed, risks, trace=trace)


def play(world: World, seed: int) -> None:
    """Runs it to its end. Raises Violation."""
    chance = random.Random(f"cast {SCENARIO} {seed}")
    ledger, lake = Ledger(world, trouble=chance.choice((0, 0.3, 0.8))), dict[str, MemoryStore]()
    hours = chance.choice((1, 1, 48))
    promised = timedelta(hours=hours) - timedelta(seconds=2)
    with _settings(chance), ExitStack() as stack:
        for _ in range(chance.choice((2, 3))):
            place = Place(
                ledger,
                lake,
                promised=promised,
                partitioned=chance.random() < 0.5,
                retention_hours=hours,
                untracked=chance.random() < 0.3,
            )
            _PROBED.add(place.store.identity)
            stack.callback(_PROBED.discard, place.store.identity)
            place.create(SimClock(world))
        give_up = _give_up(ledger, actors.give_up)
        stack.enter_context(patch.object(actors, "give_up", give_up))
        stack.enter_context(patch.object(erasures, "give_up", give_up))
        world.time_s += 60.0
        _cast(world, ledger, chance)
        world.run(max_steps=MAX_STEPS)
        for place in ledger.places:
            abort_alone(ledger, place, SimClock(world))
            was_a_directory = place.model.dropped is not None and place.is_there
            if place.is_dropped or was_a_directory:  # who dropped it was killed, or gave up
                Table.over(place.store, SimClock(world)).drop(everything=True)
        for place in ledger.places:  # once more, since another home may have gone
            abort_alone(ledger, place, SimClock(world))
        for place in ledger.places:
            settle(place.view, place)
    ledger.check_end()


def _cast(world: World, ledger: Ledger, chance: random.Random) -> None:
    for i in range(chance.randint(2, 3)):
        world.spawn(f"joint{i}", joint_writer(ledger, transactions=chance.randint(2, 4)))
    for i, place in enumerate(ledger.places):
        spawn = place.view.spawn
        for j in range(chance.randint(0, 2)):
            spawn(f"writer{j}@{i}", actors.writer(place, transactions=chance.randint(1, 3)))
        spawn(f"vacuum@{i}", actors.vacuumer(place, runs=chance.randint(1, 4)))
        if chance.random() < 0.5:
            spawn(f"reader@{i}", actors.reader(place, reads=3))
        if chance.random() < 0.3:
            spawn(f"operator@{i}", actors.operator(place))
        if chance.random() < 0.3:
            spawn(f"checkpoints@{i}", erasures.checkpointer(place, checkpoints=3))
    for i in range(2):
        world.spawn(f"cutter{i}", cutter(ledger, cuts=chance.randint(4, 12)))
    if chance.random() < 0.4:
        world.spawn("dropper", dropper(ledger, drops=chance.randint(1, 3)))
        world.spawn("alone", alone(ledger, runs=6))


@contextmanager
def _settings(chance: random.Random) -> Iterator[None]:
    every = chance.choice((0, 0, 2, 5))
    with patch.object(plan, "METADATA_RETENTION", PURGE_AFTER), patch.object(begin, "checkpoint_every", lambda: every):
        yield
