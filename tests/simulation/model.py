"""What must be true of a table, whatever happens: the invariants I1 to I9, checked after every change of the store.

It sees objects appear and disappear, and reads commit markers by itself; of the package's code it uses the names, and
a reader on a copy of the store that nothing disturbs. The directory scope has its own model, in `directories`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dbio_commit import names
from dbio_commit.clock import Clock
from dbio_commit.errors import TableNotFoundError
from dbio_commit.names import Kind
from dbio_commit.snapshot import Snapshot, read_snapshot

from .world import EPOCH, SerialStore, Violation, World

ADOPTED = "adopted"
"""Stands for the transaction that added what was there before the table."""

LEASE_ENDED = "a writer that waited aborted the holder of the turn"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a commit marker says, and when it was created."""

    step: int
    modified: datetime
    added: frozenset[str]
    removed: frozenset[str]
    info: Mapping[str, Any]

    @property
    def is_abort(self) -> bool:
        return self.info.get("operation") == "abort"

    @property
    def is_blind(self) -> bool:
        """Whether it depends on nothing that others do."""
        return self.info.get("operation", "append") == "append" and "turn" not in self.info


@dataclass
class Model:
    """What has been decided so far, and every state that there was."""

    world: World
    promised: timedelta
    """How long what was removed stays for readers, whatever the clocks say."""
    is_dbio: bool = False
    """Unpartitioned, and so still a valid directory for DBIO's own readers."""
    adopted: frozenset[str] = frozenset()
    live: frozenset[str] = field(init=False)
    states: list[tuple[int, frozenset[str]]] = field(init=False)
    """(the step from which it held, live files)"""
    decided: dict[str, Decision] = field(default_factory=dict)
    """In the order of decisions."""
    started: dict[str, int] = field(default_factory=dict)
    """Tid -> the step in which it began."""
    turns: dict[str, int] = field(default_factory=dict)
    """Tid -> the step in which it took its last turn."""
    replaced: dict[str, frozenset[str]] = field(default_factory=dict)
    """Tid -> the partitions that its writer asked it to replace."""
    apps: dict[str, int] = field(default_factory=dict)
    schemas: list[tuple[int, frozenset[str] | None]] = field(default_factory=lambda: [(0, None)])
    """(the turn from which it held, the columns)"""
    deletions: int = 0
    _removed_at: dict[str, datetime] = field(default_factory=dict)
    _late: set[str] = field(default_factory=set)
    """Files that were written after their transaction was decided."""
    _redecided: set[str] = field(default_factory=set)
    _owners: dict[str, str] = field(default_factory=dict)
    """Tid -> the name of who began it."""

    def __post_init__(self) -> None:
        self.live = self.adopted
        self.states = [(0, self.adopted)]
        if self.adopted:
            self.decided[ADOPTED] = Decision(0, EPOCH, self.adopted, frozenset(), {"operation": "adopt"})

    # --- what happens ---------------------------------------------------------------------------------------------

    def on_put(self, path: str, body: bytes) -> None:
        marker = names.parse_log_name(path) if "/" not in path else None
        if marker is None:
            if names.parse_data_file(names.split(path)[1]) in self.decided:
                self._late.add(path)
                self.world.happened("a file came after its transaction was decided")
            return
        if marker.kind is Kind.STARTED:
            self.started[marker.id] = self.world.steps
            self._owners[marker.id] = self._who()
        elif marker.kind is Kind.TURN:
            self._on_turn(json.loads(body)["tid"])
        elif marker.kind is Kind.CHECKPOINT:
            self.world.happened("checkpoint")
        elif marker.kind is Kind.COMMITTED and body:
            self._on_decision(marker.id, json.loads(body))
        self._check_store(f"{path} was created")

    def on_delete(self, path: str) -> None:
        self.deletions += 1
        if path in self.live:
            raise Violation(f"I4: the live file {path} was deleted")
        if (at := self._removed_at.get(path)) is not None and self.world.now - at < self.promised:
            raise Violation(f"I4: {path} was deleted {self.world.now - at} after it was removed")
        tid = names.parse_data_file(names.split(path)[1])
        if tid in self.started and tid not in self.decided:
            raise Violation(f"I5: {path} was deleted, and its transaction is not decided")
        if path.startswith("_"):
            self.world.happened(f"purge of {path.rstrip('0123456789')}")
            self._check_store(f"{path} was deleted")

    def _on_turn(self, tid: str) -> None:
        if tid in self.turns:
            self.world.happened("a turn was taken again")
        self.turns[tid] = self.world.steps

    def _on_decision(self, tid: str, body: Mapping[str, Any]) -> None:
        decision = Decision(
            self.world.steps,
            self.world.store.objects[names.committed(tid)][1],
            frozenset(body["added"]),
            frozenset(body["removed"]),
            body.get("dbio_commit") or {},
        )
        if (before := self.decided.get(tid)) is not None:
            if before.info.get("commit_id") != decision.info.get("commit_id"):
                self._check_redecision(tid, before, decision)
            return
        self.decided[tid] = decision
        if decision.is_abort and tid in self.turns and self._who().startswith(("writer", "job")):
            self.world.happened("a writer gave up its turn" if self._who() == self._owners.get(tid) else LEASE_ENDED)
        if missing := decision.added - self.world.store.objects.keys():
            raise Violation(f"I5: {tid} commits files that are not there: {sorted(missing)}")
        before_it, self.live = self.live, (self.live | decision.added) - decision.removed
        self._removed_at |= dict.fromkeys(decision.removed - self._removed_at.keys(), decision.modified)
        if self.live != before_it:
            self.states.append((self.world.steps, self.live))
        if not decision.is_abort:
            self._check_order(tid, decision, before_it)
            self._check_app(tid, decision)
            self._check_schema(tid, decision)

    def _who(self) -> str:
        actor = self.world.current()
        return actor.name.removeprefix("of ") if actor else ""

    def _check_redecision(self, tid: str, before: Decision, decision: Decision) -> None:
        """Who believed for long that it was pending may still abort it, where a checkpoint says what it was."""
        if before.is_abort and decision.is_abort:
            self.world.happened("an abort came once more, after a purge")
            return
        if not decision.is_abort or tid not in self.undisturbed().checkpoint.covered:
            raise Violation(f"I3: {tid} was decided twice: {before} and {decision}")
        self._redecided.add(tid)
        self.world.happened("an abort came after a commit was purged, and said nothing")

    def _check_order(self, tid: str, decision: Decision, before: frozenset[str]) -> None:
        """I7: a commit that depends on the table's state has seen all that came before its turn."""
        operation = decision.info.get("operation")
        if operation == "rewrite" and not decision.removed <= before:
            raise Violation(f"I7: {tid} rewrites files that were not live: {sorted(decision.removed - before)}")
        if operation not in ("overwrite", "replace_partitions"):
            return
        replaced: frozenset[str] | None = None
        if operation == "replace_partitions":
            replaced = self.replaced.get(tid) or frozenset(names.split(path)[0] for path in decision.added)
        taken = self.turns.get(tid, self.started.get(tid, 0))
        for path in self.live - decision.added:
            if replaced is not None and names.split(path)[0] not in replaced:
                continue
            writer = self._adder(path)
            if self.decided[writer].step <= taken or not self.decided[writer].is_blind:
                raise Violation(f"I7: {tid} overwrites, and {path} of {writer}, committed before its turn, is left")

    def _adder(self, path: str) -> str:
        return next(tid for tid, decision in self.decided.items() if path in decision.added)

    def _check_app(self, tid: str, decision: Decision) -> None:
        if app := decision.info.get("app"):
            if app["version"] <= self.apps.get(app["id"], -1):
                raise Violation(f"I8: {tid} commits version {app['version']} of {app['id']} after {self.apps}")
            self.apps[app["id"]] = app["version"]

    def _check_schema(self, tid: str, decision: Decision) -> None:
        """I7: changes of schema come one after the other, and all others record what they saw."""
        columns, turn = _columns(decision.info.get("schema")), decision.info.get("turn")
        last_turn, current = self.schemas[-1]
        if turn is None:
            as_of = decision.info.get("schema_turn")
            then = next((was for since, was in reversed(self.schemas) if as_of is not None and since <= as_of), columns)
            if columns != then:
                raise Violation(f"I7: {tid} says that the columns were {columns} as of turn {as_of}, not {then}")
            return
        if turn <= last_turn:
            raise Violation(f"I7: {tid} commits in turn {turn}, after turn {last_turn}")
        if decision.info.get("operation") != "overwrite" and not (current or set()) <= (columns or set()):
            raise Violation(f"I7: {tid} adds columns to {current}, and leaves {columns}")
        if columns != current:
            self.world.happened("the schema was changed")
        self.schemas.append((turn, columns))

    # --- the store at this instant --------------------------------------------------------------------------------

    def _check_store(self, change: str) -> None:
        """What a reader that nothing disturbs makes of it."""
        if names.DESCRIPTOR not in self.world.store.objects:
            return
        snapshot = self.undisturbed()
        found = {file.path for file in snapshot.files}
        if found != self.live:
            raise Violation(
                f"I9: {change}, and the store shows {len(found)} files instead of {len(self.live)}; "
                f"lost {sorted(self.live - found)}, too many {sorted(found - self.live)}"
            )
        if dict(snapshot.app_versions) != self.apps:
            raise Violation(f"I8: {change}, and the store shows {dict(snapshot.app_versions)} instead of {self.apps}")
        if _columns(snapshot.schema) != self.schemas[-1][1]:
            raise Violation(f"I7: {change}, and the store shows the columns {_columns(snapshot.schema)}")
        if self.is_dbio:
            self._check_dbio(change)

    def _check_dbio(self, change: str) -> None:
        """What DBIO's own reader makes of an unpartitioned table; late files are the known limit of its protocol."""
        objects = {path: body for path, body in self.world.store.objects.items() if path != names.DESCRIPTOR}
        try:
            found = {file.path for file in read_snapshot(SerialStore(objects), Clock()).files}
        except TableNotFoundError:
            found = set()
        redecided = _union(self.decided[tid].added for tid in self._redecided)
        lost, more = self.live - found - redecided, found - self.live - self._late
        if lost or more:
            raise Violation(f"DBIO: {change}, and its readers lose {sorted(lost)}, and see {sorted(more)} too many")

    def undisturbed(self) -> Snapshot:
        return read_snapshot(SerialStore(self.world.store.objects), Clock())

    # --- what actors see ------------------------------------------------------------------------------------------

    def check_read(self, snapshot: Snapshot, *, since: int) -> None:
        """I1, I6: what a reader got that began in step `since` is the state at one instant of its read."""
        got = frozenset(file.path for file in snapshot.files)
        began = max(i for i, (step, _) in enumerate(self.states) if step <= since)
        if got not in (state for _, state in self.states[began:]):
            last = self.states[-1][1]
            raise Violation(
                f"I6: a reader saw {sorted(got)}, which is no state since step {since}; the last is {sorted(last)}"
            )
        if len(self.states) - began > 1:
            self.world.happened("a commit came during a read")

    def check_past(self, snapshot: Snapshot, at: datetime) -> None:
        """What a reader got as of a time."""
        then = [decision for decision in self.decided.values() if decision.modified <= at]
        added, removed = _union(d.added for d in then), _union(d.removed for d in then)
        got = {file.path for file in snapshot.files}
        if got != added - removed:
            raise Violation(f"as of {at} a reader saw {sorted(got)} instead of {sorted(added - removed)}")
        self.world.happened("a state of the past was read")

    def check_pinned(self, snapshot: Snapshot, *, age: timedelta) -> None:
        """I4: what a reader has pinned is there for as long as the retention says."""
        gone = {file.path for file in snapshot.files} - self.world.store.objects.keys()
        if gone and age < self.promised:
            raise Violation(f"I4: a reader's files were deleted {age} after its snapshot: {sorted(gone)}")

    def check_committed(self, tid: str) -> None:
        decision = self.decided.get(tid)
        if decision is None or decision.is_abort:
            raise Violation(f"I9: the commit of {tid} was reported, and is {decision}")

    def check_first(self, tid: str) -> None:
        """I7: it was to be the first commit of its table; those that depend on nothing may slip in."""
        for other, decision in self.decided.items():
            if other == tid:
                return
            if not decision.is_abort and (decision.step <= self.turns.get(tid, 0) or not decision.is_blind):
                raise Violation(f"I7: {tid} was to be the first commit, and comes after {other}")

    def check_skipped(self, app: tuple[str, int]) -> None:
        if self.apps.get(app[0], -1) < app[1]:
            raise Violation(f"I8: {app} was skipped, and only {self.apps} are committed")

    def check_not_committed(self, tids: Iterable[str]) -> None:
        """At the end: what was reported as failed for good."""
        for tid in tids:
            decision = self.decided.get(tid)
            if decision is not None and not decision.is_abort:
                raise Violation(f"I3: {tid} was reported as not committed, and is")


def _columns(schema: Mapping[str, Any] | None) -> frozenset[str] | None:
    return None if schema is None else frozenset(field["name"] for field in schema["fields"])


def _union(sets: Iterable[frozenset[str]]) -> set[str]:
    return set().union(*sets)
