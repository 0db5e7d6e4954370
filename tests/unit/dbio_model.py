"""The directory scope, without the package (PROTOCOL.md 11.2 and 11.4): what readers see, and what one vacuum does.

Works on objects as a MemoryStore holds them. Also builds such directories as Databricks' DBIO would have left them.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dbio_commit import Table
from dbio_commit.testing import ManualClock, MemoryStore
from vacuum import Reason, VacuumOptions, VacuumReport, vacuum_table

Objects = Mapping[str, tuple[bytes, datetime]]
"""By path: body and modification time."""

HALF_HOUR = timedelta(minutes=30)
DECISION = re.compile(r"_(started|committed)_(?!vacuum)[a-z0-9]+")
MARKER = re.compile(r"_(started_|committed_(vacuum)?+)[a-z0-9]+")
MONTH = timedelta(days=30)
EVER = timedelta(days=32)
"""Longer than anything is kept."""


SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NOW = timedelta(0)
OLD = timedelta(days=10)

A, B, C = "7000000000000000001", "7000000000000000002", "7000000000000000003"


# --- one directory ------------------------------------------------------------------------------------------------


class Commit(NamedTuple):
    at: datetime
    added: set[str]
    removed: set[str]
    is_abort: bool


@dataclass
class Directory:
    """What lies in it, by name or tid."""

    files: dict[str, datetime] = field(default_factory=dict)
    started: dict[str, datetime] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    queues: dict[str, tuple[datetime, set[str]]] = field(default_factory=dict)
    empty: dict[str, datetime] = field(default_factory=dict)
    """Commit markers and queues of zero length."""
    checksums: dict[str, datetime] = field(default_factory=dict)
    """Hadoop's, of files and markers that are part of a transaction."""
    others: set[str] = field(default_factory=set)
    """What is no data: never deleted, and hidden by the commits that removed it, for as long as it is there."""
    names: set[str] = field(default_factory=set)

    def put(self, name: str, body: bytes, modified: datetime) -> None:
        self.names.add(name)
        if not is_skipped(name):
            if tid_of(name) or name.lower().endswith(".parquet"):
                self.files[name] = modified
            else:
                self.others.add(name)
        elif match := re.fullmatch(r"_started_([a-z0-9]+)", name):
            self.started[match[1]] = modified
        elif match := re.fullmatch(r"\.(.+)\.crc", name):
            if tid_of(match[1]) or MARKER.fullmatch(match[1]):
                self.checksums[name] = modified
        elif match := re.fullmatch(r"_committed_(vacuum)?+([a-z0-9]+)", name):
            if not body:
                self.empty[name] = modified
                return
            said = json.loads(body)
            if match[1]:
                self.queues[name] = modified, set(said["removed"])
            else:
                is_abort = said.get("dbio_commit", {}).get("operation") == "abort"
                self.commits[match[2]] = Commit(modified, set(said["added"]), set(said["removed"]), is_abort)

    def is_visible(self, name: str) -> bool:
        tid = tid_of(name)
        if any(name in commit.removed for commit in self.commits.values()):
            return False
        if tid in self.commits:
            return name in self.commits[tid].added
        return tid not in self.started

    def shown_without(self, tid: str, files: Iterable[str]) -> set[str]:
        """Those of the files that this commit marker hides."""
        commit = self.commits[tid]
        return {name for name in files if name in commit.removed or (tid_of(name) == tid and name not in commit.added)}


def is_skipped(component: str) -> bool:
    return component[0] == "." or (component[0] == "_" and "=" not in component) or component.endswith("._COPYING_")


def tid_of(name: str) -> str:
    """The tid in a file's name; "" where there is none."""
    match = re.fullmatch(r"[^_].*-tid-([a-z0-9]+)-.*", name)
    return match[1] if match else ""


def directories(objects: Objects) -> dict[str, Directory]:
    """Those that readers look into, by path."""
    found: defaultdict[str, Directory] = defaultdict(Directory)
    for path, (body, modified) in objects.items():
        directory, _, name = path.rpartition("/")
        if not directory or not any(map(is_skipped, directory.split("/"))):
            found[directory].put(name, body, modified)
    return found


def at(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


# --- readers and vacuum -------------------------------------------------------------------------------------------


def visible(objects: Objects) -> set[str]:
    """The files that a reader must see."""
    found = directories(objects)
    shown = {at(path, name): name for path, it in found.items() for name in it.files if it.is_visible(name)}
    return {path for path, name in shown.items() if is_parquet(name, objects[path][0])}


def is_parquet(name: str, body: bytes) -> bool:
    """By its suffix; with a tid and another suffix, by its content."""
    by_content = tid_of(name) != "" and len(body) >= 12 and body[:4] == body[-4:] == b"PAR1"
    return name.lower().endswith(".parquet") or by_content


class Plan(NamedTuple):
    """What one vacuum does."""

    deleted: set[str]
    queued: set[str]


def plan(objects: Objects, now: datetime, retention: timedelta) -> Plan:
    deleted: set[str] = set()
    queued: set[str] = set()
    for path, it in directories(objects).items():
        one = _plan(it, now, now - retention)
        deleted |= {at(path, name) for name in one.deleted}
        queued |= {at(path, name) for name in one.queued}
    return Plan(deleted, queued)


def _plan(it: Directory, now: datetime, data: datetime) -> Plan:
    metadata = max(now - HALF_HOUR, data)
    gone = {name for name in it.files if not it.is_visible(name) and _is_due(it, name, data)}
    left = it.files.keys() - gone
    gone |= {name for name, modified in it.empty.items() if modified < data}
    gone |= {f"_started_{tid}" for tid, started in it.started.items() if tid in it.commits and started < metadata}

    def may_go(marker: str) -> bool:
        """Whether readers see the same without it."""
        _, kind, tid = marker.split("_")
        if kind == "started":
            return tid in it.commits or (it.started[tid] < data and tid not in map(tid_of, left))
        if it.commits[tid].is_abort and not it.commits[tid].at < now - MONTH:
            return False
        return is_gone(f"_started_{tid}") and not it.shown_without(tid, left | it.others)

    def is_gone(name: str) -> bool:
        return name not in it.names or name in gone

    markers = {f"_started_{tid}" for tid in it.started} | {f"_committed_{tid}" for tid in it.commits}
    due_queues = {name: listed for name, (modified, listed) in it.queues.items() if modified < metadata}
    gone |= {marker for listed in due_queues.values() for marker in listed & markers if may_go(marker)}
    gone |= {f".{name}.crc" for name in gone} & it.names
    gone |= {name for name, modified in it.checksums.items() if name[1:-4] not in it.names and modified < data}
    gone |= {
        name
        for name, listed in due_queues.items()
        if all(is_gone(other) for other in listed if DECISION.fullmatch(other))
    }

    waiting = {marker for name, (_, listed) in it.queues.items() if name not in gone for marker in listed}
    late = {f"_started_{tid}" for tid, started in it.started.items() if tid not in it.commits and started < data}
    for tid, commit in it.commits.items():
        removes_data = not all(map(is_skipped, commit.removed))
        if commit.at < (data if removes_data else metadata):
            late.add(f"_committed_{tid}")
    return Plan(gone, {marker for marker in late - gone - waiting if may_go(marker)})


def _is_due(it: Directory, name: str, data: datetime) -> bool:
    """Of a hidden file. What a commit removed waits for that commit, whatever else hides it."""
    tid = tid_of(name)
    if removed := [commit.at for commit in it.commits.values() if name in commit.removed]:
        return min(removed) < data
    return tid in it.commits or it.started[tid] < data


def left_in_the_end(objects: Objects) -> set[str]:
    """What no vacuum ever deletes while nobody writes: what readers see, and what no transaction is about."""
    found = directories(objects)

    def stays(path: str) -> bool:
        directory, _, name = path.rpartition("/")
        it = found.get(directory)
        if it is None:
            return True
        about = name[1:-4] if re.fullmatch(r"\..+\.crc", name) else name
        if about in it.files:
            return it.is_visible(about)
        if match := re.fullmatch(r"_committed_([a-z0-9]+)", about):
            commit = it.commits.get(match[1])
            return commit is not None and not commit.removed.isdisjoint(it.others)
        return name not in it.checksums and not MARKER.fullmatch(name)

    return set(filter(stays, objects))


# --- a directory to work on ---------------------------------------------------------------------------------------


def file_of(tid: str, attempt: int = 0) -> str:
    return f"part-00000-tid-{tid}-5f8a2c1e-0000-4000-8000-000000000000-{attempt}-1-c000.snappy.parquet"


def commit(added: Iterable[str] = (), removed: Iterable[str] = ()) -> bytes:
    return json.dumps({"added": [*added], "removed": [*removed]}).encode()


def queue(*names: str) -> bytes:
    return commit(removed=names)


_TIME = datetime(2026, 11, 1, tzinfo=UTC).isoformat()
_ABORT = {"version": 1, "operation": "abort", "commit_id": "c", "timestamp": _TIME}
ABORT = json.dumps({"added": [], "removed": [], "dbio_commit": _ABORT}).encode()


class World:
    """A directory in memory, a clock, and vacuums of which each is checked against what readers see."""

    def __init__(self, store: type[MemoryStore] = MemoryStore) -> None:
        self.clock = ManualClock()
        self.store = store(self.clock)
        self.table = Table.over(self.store, self.clock)

    def put(self, path: str, body: bytes = b"rows", *, age: timedelta = timedelta(days=10)) -> None:
        self.store.put(path, body, modified=self.clock.now() - age)

    @property
    def paths(self) -> set[str]:
        return set(self.store.objects)

    def visible(self) -> set[str]:
        """By the model and by the package, which must agree."""
        seen = visible(self.store.objects)
        assert {file.path for file in self.table.snapshot().files} == seen
        return seen

    def vacuum(self, retention_hours: float = 48.0, *, dry_run: bool = False) -> VacuumReport:
        before = self.visible()
        options = VacuumOptions(retention_hours=retention_hours, force=True)
        report = vacuum_table(self.table, options, dry_run=dry_run)
        assert self.visible() == before
        assert report.ok
        return report

    def settle(self) -> Objects:
        """What is left when vacuums, each long after the other, find nothing more to do."""
        for _ in range(10):
            before = dict(self.store.objects)
            self.clock.advance(EVER)
            self.vacuum()
            if self.store.objects == before:
                return before
        raise AssertionError("vacuum never comes to an end")


def committed(world: World, tid: str = A, directory: str = "", *, age: timedelta = OLD) -> str:
    """A committed append, of which the start marker has gone; returns its file."""
    path = at(directory, file_of(tid))
    world.put(path, age=age)
    world.put(at(directory, f"_committed_{tid}"), commit([file_of(tid)]), age=age)
    return path


def pending(world: World, tid: str = B, directory: str = "", *, age: timedelta = OLD) -> str:
    path = at(directory, file_of(tid))
    world.put(path, age=age)
    world.put(at(directory, f"_started_{tid}"), b"", age=age)
    return path


def queues(paths: Iterable[str]) -> set[str]:
    return {path for path in paths if path.rpartition("/")[2].startswith("_committed_vacuum")}


def deleted(report: VacuumReport) -> set[str]:
    """The objects, without the emptied directories."""
    return {it.path for it in report.deleted if it.reason is not Reason.DIRECTORY}
