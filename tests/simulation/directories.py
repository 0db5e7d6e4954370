"""What must be true in the directory scope: of each directory by itself, within the limits of DBIO's protocol.

No writer stalls past vacuum's horizon, no late task comes after the markers of its transaction are purged, no listing
takes longer than the 5 minutes for which DBIO's readers doubt it: whoever sets up a run sees to that.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, combinations

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import DbioError, TableNotFoundError
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.names import Kind

from .model import Asked
from .world import SerialStore, Violation, World


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit marker, or an untracked file, did to a directory. Paths are from the root."""

    step: int
    added: frozenset[str]
    removed: frozenset[str]


@dataclass
class DirectoryModel:
    """What each directory has become, transaction by transaction."""

    world: World
    promised: timedelta
    """How long what was removed, or never committed, stays."""
    changes: defaultdict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    """By directory."""
    started: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """(directory, tid) -> when it began there."""
    decided: dict[tuple[str, str], Change] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    deletions: int = 0
    _removed_at: dict[str, datetime] = field(default_factory=dict)

    @property
    def live(self) -> frozenset[str]:
        return frozenset(chain.from_iterable(_visible(changes) for changes in self.changes.values()))

    # --- what happens ---------------------------------------------------------------------------------------------

    def on_put(self, path: str, body: bytes) -> None:
        directory, name = names.split(path)
        marker = names.parse_log_name(name)
        if marker is None:
            if name != names.DESCRIPTOR and names.parse_data_file(name) is None:
                self._change(directory, [path], [])
        elif marker.kind is Kind.STARTED:
            self.started[directory, marker.id] = self.world.now
        elif marker.kind is Kind.COMMITTED:
            self._on_decision(directory, marker.id, body)
        elif marker.kind is Kind.VACUUM:
            self.world.happened("markers were queued")
        self._check_later(f"{path} was created")

    def _on_decision(self, directory: str, tid: str, body: bytes) -> None:
        if (directory, tid) in self.decided:
            raise Violation(f"I3: {tid} was decided twice in {directory or 'the root'}")
        marker = json.loads(body)
        added, removed = ([names.join(directory, name) for name in marker[key]] for key in ("added", "removed"))
        if missing := set(added) - self.world.store.objects.keys():
            raise Violation(f"{tid} commits files that are not there: {sorted(missing)}")
        self._change(directory, added, removed)
        change = self.decided[directory, tid] = self.changes[directory][-1]
        asked = self.asked.get(tid)  # a stranger asks for nothing
        if asked and change.added and change.added != {it for it in asked.added if names.split(it)[0] == directory}:
            raise Violation(f"I9: {tid} adds {added} in {directory or 'the root'}, and its writer wanted {asked}")
        self._removed_at |= {path: self.world.now for path in removed if path not in self._removed_at}

    def _change(self, directory: str, added: Iterable[str], removed: Iterable[str]) -> None:
        self.changes[directory].append(Change(self.world.steps, frozenset(added), frozenset(removed)))

    def on_delete(self, path: str) -> None:
        self.deletions += 1
        directory, name = names.split(path)
        if path in self.live:
            raise Violation(f"I4: {path}, which is visible, was deleted")
        if (at := self._removed_at.get(path)) is not None and self.world.now - at < self.promised:
            raise Violation(f"I4: {path} was deleted {self.world.now - at} after it was removed")
        tid = names.parse_data_file(name)
        if tid and (directory, tid) not in self.decided:
            began = self.started.get((directory, tid), self.world.now)
            if self.world.now - began < self.promised:
                raise Violation(f"{path} was deleted {self.world.now - began} after its transaction began")
            self.world.happened("a file of a pending transaction was deleted past its horizon")
        if marker := names.parse_log_name(name):
            self.world.happened(f"purge of {marker.kind}, in a directory")
        self._check_later(f"{path} was deleted")

    def _check_later(self, change: str) -> None:
        self.world.store.check_before_others(partial(self._check_store, change))

    def _check_store(self, change: str) -> None:
        """What a reader that nothing disturbs makes of it at this instant."""
        try:
            found = {file.path for file in read_snapshot(SerialStore(self.world.store.objects), Clock()).files}
        except TableNotFoundError:
            found = set()
        except DbioError as error:
            raise Violation(f"I9: nobody can read the directories any more: {error!r}") from error
        live = self.live
        if found != live:
            lost, more = sorted(live - found), sorted(found - live)
            raise Violation(f"I9: {change}, and the directories lose {lost}, and show {more} too many")

    # --- what actors see ------------------------------------------------------------------------------------------

    def check_read(self, snapshot: Snapshot, *, since: int, waited: bool) -> None:
        """I1, I2, for each directory: all that was committed before, and some of what came meanwhile, each whole."""
        got: defaultdict[str, set[str]] = defaultdict(set)
        for file in snapshot.files:
            got[names.split(file.path)[0]].add(file.path)
        for directory in self.changes.keys() | got.keys():
            changes = self.changes[directory]
            before = [change for change in changes if change.step <= since]
            meanwhile = [change for change in changes if change.step > since]
            if not any(_visible([*before, *some]) == got[directory] for some in _subsets(meanwhile)):
                raise Violation(
                    f"I1: a reader that began in step {since} saw {sorted(got[directory])} in {directory or 'the root'}"
                    f", which shows {sorted(_visible(before))} then, and {sorted(_visible(changes))} now"
                )
            if meanwhile:
                self.world.happened("a commit came during a read of its directory")

    def check_aborted(self, tid: str) -> None:
        committed = sorted(directory for (directory, other), it in self.decided.items() if other == tid and it.added)
        if committed:
            raise Violation(f"I3: {tid} was reported as aborted, and is committed in {committed}")

    def check_too_late(self, tid: str) -> None:
        if not any(other == tid for _, other in self.decided):
            raise Violation(f"I3: {tid} was reported as decided long ago, and is not")

    def check_pinned(self, snapshot: Snapshot, *, age: timedelta) -> None:
        gone = {file.path for file in snapshot.files} - self.world.store.objects.keys()
        if gone and age < self.promised:
            raise Violation(f"I4: a reader's files were deleted {age} after its snapshot: {sorted(gone)}")

    def check_committed(self, tid: str, commit: Commit | None = None) -> None:
        changes = [change for (_, decided), change in self.decided.items() if decided == tid]
        added = frozenset[str]().union(*(change.added for change in changes))
        removed = frozenset[str]().union(*(change.removed for change in changes))
        if added != self.asked[tid].added:
            raise Violation(f"I9: the commit of {tid} was reported, and adds {sorted(added)}, not {self.asked[tid]}")
        if commit and (frozenset(commit.added), frozenset(commit.removed)) != (added, removed):
            raise Violation(f"I9: {tid} was reported as {commit.added}, {commit.removed}, and is {changes}")


def _visible(changes: Iterable[Change]) -> frozenset[str]:
    changes = list(changes)
    added = frozenset(chain.from_iterable(change.added for change in changes))
    return added - frozenset(chain.from_iterable(change.removed for change in changes))


def _subsets(changes: list[Change]) -> Iterator[tuple[Change, ...]]:
    """The whole first: it is what most readers see."""
    return chain.from_iterable(combinations(changes, size) for size in range(len(changes), -1, -1))
