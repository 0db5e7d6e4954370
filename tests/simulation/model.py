"""What must be true of a table, whatever happens: the invariants I1 to I9, checked after every change of the store.

It sees objects appear and disappear, and reads commit markers by itself; of the package's code it uses the names, and
a reader on a copy of the store that nothing disturbs.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dbio_commit import names
from dbio_commit.clock import Clock
from dbio_commit.names import Kind
from dbio_commit.snapshot import Snapshot, read_snapshot
from dbio_commit.testing import MemoryStore

from .world import Violation, World


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


@dataclass
class Model:
    """What has been decided so far, and every state that there was."""

    world: World
    decided: dict[str, Decision] = field(default_factory=dict)
    live: frozenset[str] = frozenset()
    states: list[tuple[int, frozenset[str]]] = field(default_factory=lambda: [(0, frozenset())])
    """(the step from which it held, live files)"""
    started: set[str] = field(default_factory=set)
    ever_written: set[str] = field(default_factory=set)
    turns: dict[str, int] = field(default_factory=dict)
    """Tid -> the step in which it took its last turn."""
    apps: dict[str, int] = field(default_factory=dict)
    deletions: int = 0

    # --- what happens ---------------------------------------------------------------------------------------------

    def on_put(self, path: str, body: bytes) -> None:
        marker = names.parse_log_name(path) if "/" not in path else None
        if marker is None:
            self.ever_written.add(path)
        elif marker.kind is Kind.STARTED:
            self.started.add(marker.id)
        elif marker.kind is Kind.TURN:
            self.turns[json.loads(body)["tid"]] = self.world.steps
        elif marker.kind is Kind.COMMITTED and body:
            self._on_decision(marker.id, json.loads(body))
        if marker is not None:
            self._check_store(f"{path} was created")

    def on_delete(self, path: str) -> None:
        self.deletions += 1
        if path in self.live:
            raise Violation(f"I4: the live file {path} was deleted")
        tid = names.parse_data_file(names.split(path)[1])
        if tid in self.started and tid not in self.decided:
            raise Violation(f"I5: {path} was deleted, and its transaction is not decided")
        if path.startswith("_"):
            self._check_store(f"{path} was deleted")

    def _on_decision(self, tid: str, body: Mapping[str, Any]) -> None:
        decision = Decision(
            self.world.steps,
            self.world.store.objects[names.committed(tid)][1],
            frozenset(body["added"]),
            frozenset(body["removed"]),
            body.get("dbio_commit") or {},
        )
        if (before := self.decided.get(tid)) is not None:
            if before.info.get("commit_id") != decision.info.get("commit_id") and not self._is_covered(tid):
                raise Violation(f"I3: {tid} was decided twice: {before} and {decision}")
            return
        self.decided[tid] = decision
        if missing := decision.added - self.world.store.objects.keys():
            raise Violation(f"I5: {tid} commits files that are not there: {sorted(missing)}")
        before_it, self.live = self.live, (self.live | decision.added) - decision.removed
        if self.live != before_it:
            self.states.append((self.world.steps, self.live))
        if not decision.is_abort:
            self._check_order(tid, decision, before_it)
            self._check_app(tid, decision)

    def _check_order(self, tid: str, decision: Decision, before: frozenset[str]) -> None:
        """I7: a commit that depends on the table's state has seen all that came before its turn."""
        operation = decision.info.get("operation")
        if operation == "rewrite" and not decision.removed <= before:
            raise Violation(f"I7: {tid} rewrites files that were not live: {sorted(decision.removed - before)}")
        if operation not in ("overwrite", "replace_partitions"):
            return
        replaced = {names.split(path)[0] for path in decision.added} if operation == "replace_partitions" else None
        taken = self.turns.get(tid)
        if taken is None:
            raise Violation(f"I7: {tid} overwrites without a turn")
        for path in self.live - decision.added:
            if replaced is not None and names.split(path)[0] not in replaced:
                continue
            writer = self._adder(path)
            if self.decided[writer].step <= taken or writer in self.turns:
                raise Violation(f"I7: {tid} overwrites, and {path} of {writer}, committed before its turn, is left")

    def _adder(self, path: str) -> str:
        return next(tid for tid, decision in self.decided.items() if path in decision.added)

    def _check_app(self, tid: str, decision: Decision) -> None:
        if app := decision.info.get("app"):
            if app["version"] <= self.apps.get(app["id"], -1):
                raise Violation(f"I8: {tid} commits version {app['version']} of {app['id']} after {self.apps}")
            self.apps[app["id"]] = app["version"]

    def _check_store(self, change: str) -> None:
        """What a reader that nothing disturbs makes of the store at this instant."""
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

    def undisturbed(self) -> Snapshot:
        plain = MemoryStore(url="plain://table")
        plain.objects = self.world.store.objects
        return read_snapshot(plain, Clock())

    def _is_covered(self, tid: str) -> bool:
        return tid in self.undisturbed().checkpoint.covered

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

    def check_past(self, snapshot: Snapshot, at: datetime) -> None:
        """What a reader got as of a time."""
        then = [decision for decision in self.decided.values() if decision.modified <= at]
        added, removed = _union(d.added for d in then), _union(d.removed for d in then)
        got = {file.path for file in snapshot.files}
        if got != added - removed:
            raise Violation(f"as of {at} a reader saw {sorted(got)} instead of {sorted(added - removed)}")

    def check_pinned(self, snapshot: Snapshot, *, age: timedelta, promised: timedelta) -> None:
        """I4: what a reader has pinned is there for as long as the retention says."""
        gone = {file.path for file in snapshot.files} - self.world.store.objects.keys()
        if gone and age < promised:
            raise Violation(f"I4: a reader's files were deleted {age} after its snapshot: {sorted(gone)}")

    def check_committed(self, tid: str) -> None:
        decision = self.decided.get(tid)
        if decision is None or decision.is_abort:
            raise Violation(f"I9: the commit of {tid} was reported, and is {decision}")

    def check_not_committed(self, tids: Iterable[str]) -> None:
        """At the end: what was reported as failed for good."""
        for tid in tids:
            decision = self.decided.get(tid)
            if decision is not None and not decision.is_abort:
                raise Violation(f"I3: {tid} was reported as not committed, and is")


def _union(sets: Iterable[frozenset[str]]) -> set[str]:
    return set().union(*sets)
