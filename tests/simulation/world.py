"""A world in which real code runs one store call at a time, in an order that a seed decides.

Actors are greenlets: each call to the store, and each sleep, is a point where one may be suspended, overtaken or
killed, or where its call fails. Nothing here knows the protocol; `actors` act, `model` says what must be true.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from typing import Any, Protocol, TypeVar

from greenlet import getcurrent, greenlet

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import AccessDeniedError, DbioError, ObjectNotFoundError, StoreError
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import Kind
from dbio_commit.store.contract import Listing
from dbio_commit.testing import MemoryStore

EPOCH = datetime(2026, 11, 20, tzinfo=UTC)

_T = TypeVar("_T")
_A = TypeVar("_A")

MUTATIONS = ("put_if_absent", "write", "delete")

HOUR_S, DAY_S = 3600.0, 86400.0

ROW_BYTES = 4
"""Of each row, which is unlike all others."""

SLOWEST_PUT_S = 0.9
"""From the time of an object until it appears: less than readers wait for it."""


class Killed(BaseException):
    """The process of the actor is dead; what its handlers still try does not happen."""


class Violation(AssertionError):
    """Something that must be true is not."""


class Watcher(Protocol):
    """What looks on: told of each change of the store just after it happened."""

    def on_put(self, path: str, body: bytes) -> None: ...

    def on_delete(self, path: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Risks:
    """How likely what is, for each step of an actor."""

    stall: float = 0.0
    stalls_s: tuple[float, ...] = (1, 60, 120, HOUR_S, 20 * HOUR_S, 50 * HOUR_S, 5 * DAY_S)
    kill: float = 0.0
    most_kills: int = 100
    lost_answer: float = 0.0
    """Applied, and an error reported."""
    not_applied: float = 0.0
    late: float = 0.0
    """Of a change: reported as timed out, and applied some time later, while the client goes on."""
    late_s: tuple[float, ...] = (0.5, 30.0, 600.0, 4000.0)
    own_conflict: float = 0.0
    """Of a put_if_absent that succeeded: the client's own retry reports a conflict with it."""
    torn_listings: bool = True
    disk: float = 0.5
    """Of those listings: how many are in any order, as a disk gives them."""
    whole_seconds: bool = False
    """As S3 gives modification times."""
    slow: float = 0.0
    """Of a put_if_absent: the object appears some time after its modification time."""
    commit_s: float = 0.0
    """How long the PUT of a commit marker takes."""
    steps: bool = False
    """The store's clock is set, by seconds, again and again."""
    skew: timedelta = timedelta()
    """Clocks of actors differ from the store's by up to so much."""


@dataclass(eq=False)
class Actor:
    """Something that runs: a job, a reader, a vacuum, a task."""

    name: str
    clock: "SimClock"
    stalls_s: tuple[float, ...]
    immortal: bool = False
    """Neither stalls, nor dies, nor do its calls fail."""
    wake_s: float = 0.0
    is_putting: bool = False
    """A slow PUT of its is under way: the store ends it in time, whatever the actor does."""
    doomed: bool = False
    suffered: bool = False
    """A call of its failed on purpose, since it last gave something up."""
    failures: int = 0
    """How many of its calls failed on purpose."""
    body: greenlet = field(init=False)
    error: BaseException | None = None
    at: str = ""
    """The operation that it makes next."""
    listed: Counter[str] = field(default_factory=Counter)
    """How often it has listed the log, by prefix."""
    settled_after: int = 0
    """After which of its listings of the whole log, counted from 1, it listed the commits once more before it read a
    checkpoint: it should have waited for what was still to appear."""
    checkpoint_after: int = 0
    """After which of these listings it read a checkpoint last."""
    looked: int = 0
    """The step of its last listing of the log."""
    stood_still: int = -1
    """The step in which it stood still for more than a minute, last."""
    seen: int | None = None
    """Where somebody asks for it: a digest of all that it has seen of the store."""


class World:
    """Time, the store, and who acts on it. The same seed gives the same history."""

    def __init__(self, seed: int, risks: Risks, *, trace: bool = False) -> None:
        self.random = random.Random(seed)
        self.risks = risks
        self.time_s = 0.0
        self.step_s = 0.0
        """By how much the store's clock is off."""
        self.steps = 0
        self.faults: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        """What happened that is worth happening: a simulation in which nothing does proves nothing."""
        self.trace: list[str] | None = [] if trace else None
        self.store = SimStore(self)
        self.watcher: Watcher | None = None
        self.violation: Violation | None = None
        """What it found first: the actor may be handling it as it does any error."""
        self._actors: dict[greenlet, Actor] = {}
        self._hub = getcurrent()
        self._rows = count()

    @property
    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.time_s)

    @property
    def stamp(self) -> datetime:
        """What the store gives an object that is created now as its modification time."""
        at = self.now + timedelta(seconds=self.step_s)
        return at.replace(microsecond=0) if self.risks.whole_seconds else at

    def spawn(
        self,
        name: str,
        function: Callable[["World", Actor], None],
        *,
        after_s: float = 0.0,
        immortal: bool = False,
        stalls_s: tuple[float, ...] | None = None,
        clock: "SimClock | None" = None,
    ) -> Actor:
        skew_s = self.risks.skew.total_seconds()
        clock = clock or SimClock(self, timedelta(seconds=self.random.uniform(-skew_s, skew_s)))
        actor = clock.actor = Actor(name, clock, stalls_s or self.risks.stalls_s, immortal)
        actor.wake_s = self.time_s + after_s

        def run() -> None:
            try:
                function(self, actor)
            except Killed:
                pass
            except BaseException as error:  # handed to whoever runs the world
                actor.error = error

        actor.body = greenlet(run, parent=self._hub)
        self._actors[actor.body] = actor
        return actor

    def run(self, *, max_steps: int = 20_000) -> None:
        """Until all actors are done. Raises what an actor raised, and Violation."""
        max_steps += self.steps
        try:
            while alive := self.alive():
                awake = [actor for actor in alive if actor.wake_s <= self.time_s]
                if not awake:
                    self.time_s = min(actor.wake_s for actor in alive)
                    continue
                self._step(self.random.choice(awake))
                if self.steps > max_steps:
                    raise Violation(f"no end after {self.steps} steps: {[actor.name for actor in alive]}")
        finally:
            self.end()

    def alive(self) -> list[Actor]:
        return [actor for actor in self._actors.values() if not actor.body.dead]

    def end(self) -> None:
        """Kills who is left: a greenlet that is forgotten would run its handlers some day."""
        for actor in self.alive():
            self.kill(actor)
        self._actors.clear()

    def kill(self, actor: Actor) -> None:
        actor.doomed = True
        if actor.body:  # else it has not begun
            actor.body.throw(Killed)

    def resume(self, actor: Actor) -> None:
        """Lets the actor make the call that it is at, and go on to its next one."""
        actor.body.switch()
        if (error := self.violation or actor.error) is not None:
            raise error

    def _step(self, actor: Actor) -> None:
        self.steps += 1
        self.time_s += self.random.expovariate(1 / 0.02)
        if not actor.immortal and self._happens(self.risks.stall) and not actor.is_putting:
            actor.wake_s = self.time_s + self.random.choice(actor.stalls_s)
            if actor.wake_s - self.time_s > 60:
                actor.stood_still = self.steps
            self.note(actor.name, f"stalls for {actor.wake_s - self.time_s:.0f} s")
            self.faults["stall"] += 1
            return
        may_die = not actor.immortal and self.faults["kill"] < self.risks.most_kills
        if may_die and self._happens(self.risks.kill):
            actor.doomed = True
            self.faults["kill"] += 1
            self.note(actor.name, "is killed")
        self.resume(actor)

    def hold_up(self, spared: Actor, duration_s: float, *, share: float) -> None:
        """Lets a share of the other actors stand still, whatever they are doing."""
        for actor in self.alive():
            if not (actor is spared or actor.immortal or actor.is_putting) and self.random.random() < share:
                actor.wake_s = max(actor.wake_s, self.time_s + duration_s)
                actor.stood_still = self.steps
                self.faults["stall"] += 1

    def current(self) -> Actor | None:
        return self._actors.get(getcurrent())

    def pause(self, actor: Actor) -> None:
        """Lets others go on."""
        if actor.doomed:
            raise Killed
        self._hub.switch()
        if actor.doomed:
            raise Killed

    def fault(self, actor: Actor, operation: str) -> str | None:
        """What goes wrong with the call that the actor makes now."""
        if actor.immortal:
            return None
        if self._happens(self.risks.not_applied):
            kinds = ["503", "403", "time-out, not applied", *(["409"] if operation == "put_if_absent" else [])]
            return self.random.choice(kinds)
        if self._happens(self.risks.lost_answer):
            return self.random.choice(["time-out, applied", "applied, then 403"])
        if operation in MUTATIONS and self._happens(self.risks.late):
            return "time-out, applied later"
        if operation == "put_if_absent" and self._happens(self.risks.own_conflict):
            return "own conflict"
        return None

    def new_row(self) -> bytes:
        """What is in a new file: nobody else writes the same, but for who copies it."""
        return f"{next(self._rows):0{ROW_BYTES}x}".encode()

    @contextmanager
    def keeping_violation(self) -> Iterator[None]:
        """Keeps a Violation, since the actor in whose call it is raised may handle it."""
        try:
            yield
        except Violation as violation:
            self.violation = violation
            raise

    def is_slow(self, operation: str) -> bool:
        return operation == "put_if_absent" and self._happens(self.risks.slow)

    def note(self, name: str, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.steps:6d} {timedelta(seconds=round(self.time_s, 3))!s:>22.18} {name:<14} {text}")

    def happened(self, event: str) -> None:
        self.events[event] += 1

    def _happens(self, likely: float) -> bool:
        return likely > 0 and self.random.random() < likely


class SimClock(Clock):
    """An actor's clock: off by something, and made to jump; its monotonic clock is that of a machine of its own."""

    def __init__(self, world: World, offset: timedelta = timedelta()) -> None:
        self._world, self.offset = world, offset
        self._paused_s = 0.0
        """How long the machine was paused, and its monotonic clock with it."""
        self.actor: Actor | None = None

    def boot(self) -> str:
        return self.actor.name if self.actor else ""

    def now(self) -> datetime:
        return self._world.now + self.offset

    def monotonic(self) -> float:
        return self._world.time_s - self._paused_s

    def sleep(self, duration_s: float) -> None:
        if self.actor is not None:
            if duration_s > DAY_S and self._world.random.random() < 0.3:
                self._paused_s += duration_s
                self._world.faults["machine paused"] += 1
            self.actor.wake_s = self._world.time_s + duration_s
            self._world.pause(self.actor)

    def random_bits(self, bits: int) -> int:
        return self._world.random.getrandbits(bits)


class SerialStore(MemoryStore):
    """A MemoryStore that may hold what another one does."""

    def __init__(self, objects: dict[str, tuple[bytes, datetime]] | None = None) -> None:
        super().__init__(Clock(), url="s3://sim/table")
        self.objects = {} if objects is None else objects


class SimStore(SerialStore):
    """MemoryStore, but every call of an actor is a point where anything may happen, and listings are not atomic."""

    settle_s = 1.0

    def __init__(self, world: World) -> None:
        super().__init__()
        self.changes = 0
        self.durable = set[str]()
        """The files that are to survive a power cut, as far as somebody asked for it."""
        self._world = world
        self._stamp: datetime | None = None
        """Of an object that is about to appear, since some time."""
        self._due: tuple[Actor | None, Callable[[], None]] | None = None
        """Who made the last change, and the check of what others find after it."""

    # --- calls ----------------------------------------------------------------------------------------------------

    def ask_each(self, function: Callable[[_A], _T], items: Sequence[_A]) -> list[_T]:
        """Calls that do not wait for one another come in any order."""
        order = self._world.random.sample(range(len(items)), len(items)) if self._world.current() else range(len(items))
        answers = {place: function(items[place]) for place in order}
        return [answers[place] for place in range(len(items))]

    def put_if_absent(self, path: str, body: bytes) -> bool:
        actor, commit_s = self._world.current(), self._world.risks.commit_s
        if actor and commit_s and path.startswith(Kind.COMMITTED) and b'"abort"' not in body:
            actor.clock.sleep(commit_s)
        return super().put_if_absent(path, body)

    def _apply(self, operation: str, path: str, function: Callable[[], _T]) -> _T:
        world = self._world
        actor = world.current()
        if actor is None:
            return self._perform("somebody", operation, path, function)
        actor.at = operation
        world.pause(actor)
        actor.at = ""
        fault = world.fault(actor, operation)
        actor.suffered |= fault is not None
        actor.failures += fault is not None
        stamp: datetime | None = None
        if fault is None and world.is_slow(operation):
            stamp = world.stamp
            world.faults["slow PUT"] += 1
            actor.wake_s = world.time_s + world.random.uniform(0, SLOWEST_PUT_S)
            actor.is_putting = True
            world.pause(actor)
            actor.is_putting = False
        self._stamp = stamp
        try:
            result = self._with_fault(actor, fault, operation, path, function)
        except DbioError as error:
            if actor.seen is not None:
                actor.seen = hash((actor.seen, operation, path, type(error)))
            raise
        finally:
            self._stamp = None
        if actor.seen is not None:
            actor.seen = hash((actor.seen, operation, path, repr(result)))
        return result

    def _with_fault(self, actor: Actor, fault: str | None, operation: str, path: str, function: Callable[[], _T]) -> _T:
        world = self._world
        if fault in ("503", "403", "409", "time-out, not applied"):
            world.faults[fault] += 1
            world.note(actor.name, f"{operation} {path}: {fault}" + ("" if "applied" in fault else ", not applied"))
            raise (AccessDeniedError if fault == "403" else StoreError)(f"cannot {operation} {path}: {fault}")
        if fault == "time-out, applied later":
            world.faults[fault] += 1
            delay_s = world.random.choice(world.risks.late_s)
            world.note(actor.name, f"{operation} {path}: time-out; the request arrives {delay_s} s later")
            sender = f"of {actor.name}"

            def arrive(world: World, actor: Actor) -> None:
                self._perform(sender, operation, path, function)

            world.spawn(sender, arrive, after_s=delay_s, immortal=True)
            raise StoreError(f"cannot {operation} {path}: timed out")
        result = self._perform(actor.name, operation, path, function)
        if fault == "time-out, applied":
            world.faults[fault] += 1
            world.note(actor.name, "  and the answer is lost")
            raise StoreError(f"cannot {operation} {path}: timed out")
        if fault == "applied, then 403":
            world.faults[fault] += 1
            world.note(actor.name, "  and its own retry is refused")
            raise AccessDeniedError(f"cannot {operation} {path}: 403")
        if fault == "own conflict" and result is True:
            world.faults[fault] += 1
            world.note(actor.name, "  and its own retry reports a conflict")
            return False  # type: ignore[return-value]
        return result

    def _perform(self, name: str, operation: str, path: str, function: Callable[[], _T]) -> _T:
        world = self._world
        if self._due and self._due[0] is not world.current():
            self.check_now()
        before = self.objects.get(path)
        try:
            result = function()
        except DbioError as error:
            world.note(name, f"{operation} {path}: {type(error).__name__}")
            marker = names.parse_log_name(names.split(path)[1])
            if isinstance(error, ObjectNotFoundError) and marker and operation == "get":
                world.happened(f"{marker.kind} was gone when it was read")
            raise
        world.note(name, f"{operation} {path}" + ("" if result is None else f": {_short(result)}"))
        if operation == "get" and path.startswith(Kind.CHECKPOINT) and (actor := world.current()) is not None:
            actor.checkpoint_after = actor.listed[""]
        if operation in MUTATIONS and self.objects.get(path) is not before:
            self._changed(path)
        return result

    def _changed(self, path: str) -> None:
        self.changes += 1
        body: bytes | None = None
        if path in self.objects:
            body = self.objects[path][0]
            self.objects[path] = (body, self._stamp or self._world.stamp)
        if (watcher := self._world.watcher) is None:
            return
        with self._world.keeping_violation():
            watcher.on_delete(path) if body is None else watcher.on_put(path, body)

    def check_before_others(self, check: Callable[[], None]) -> None:
        """Calls `check` before anybody else sees the store, unless who acts now has changed it again by then."""
        self._due = self._world.current(), check

    def check_now(self) -> None:
        """Makes the check that is due."""
        due, self._due = self._due, None
        if due:
            with self._world.keeping_violation():
                due[1]()

    def make_durable(self, paths: Iterable[str]) -> None:
        self.durable.update(paths)

    # --- listings -------------------------------------------------------------------------------------------------

    def list_log(self, *prefixes: str) -> list[Entry]:
        wanted = prefixes or ("_",)
        if (actor := self._world.current()) is not None:
            actor.listed[" ".join(prefixes)] += 1
            actor.looked = self._world.steps
            if prefixes == (Kind.COMMITTED,) and actor.checkpoint_after != actor.listed[""]:
                actor.settled_after = actor.listed[""]
        return self._pages("list_log", " ".join(prefixes), lambda path: path.startswith(wanted) and "/" not in path)

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        prefix = f"{under}/" if under else ""
        return self._pages("list_files", under, lambda path: path.startswith(prefix))

    def list_directory(self, under: str = "") -> Listing:
        prefix = f"{under}/" if under else ""
        entries = self._pages("list_directory", under, lambda path: path.startswith(prefix))
        below = {
            prefix + entry.path.removeprefix(prefix).partition("/")[0]
            for entry in entries
            if "/" in entry.path.removeprefix(prefix)
        }
        return Listing([entry for entry in entries if names.split(entry.path)[0] == under], sorted(below))

    def _pages(self, operation: str, under: str, wanted: Callable[[str], bool]) -> list[Entry]:
        """As S3 lists: page by page in order. Or as a disk does: in any order, what changes meanwhile at random."""
        world = self._world
        if world.current() is None or not world.risks.torn_listings:
            return self._apply(operation, under, lambda: self._of(filter(wanted, self.objects)))
        pages = self._in_any_order if world.random.random() < world.risks.disk else self._in_order
        listing = pages(operation, under, wanted)
        found = [*islice(listing, 1)]  # so the first page has come
        changes = self.changes
        found += listing
        if changes != self.changes:
            world.faults["listing overtaken"] += 1
        return found

    def _in_order(self, operation: str, under: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
        last = ""
        while True:
            size = self._world.random.randint(1, 8)
            page = self._apply(operation, under, lambda last=last, size=size: self._page(wanted, last, size))  # type: ignore[misc]
            yield from page
            if len(page) < size:
                return
            last = page[-1].path

    def _page(self, wanted: Callable[[str], bool], last: str, size: int) -> list[Entry]:
        return self._of(sorted(path for path in self.objects if wanted(path) and path > last)[:size])

    def _in_any_order(self, operation: str, under: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
        chance = self._world.random
        there = self._apply(operation, under, lambda: {e.path: e for e in self._of(filter(wanted, self.objects))})
        order = sorted(there)
        chance.shuffle(order)
        size = chance.randint(1, 6)
        for start in range(0, len(order), size):
            if start:
                self._apply(operation, under, lambda: None)
            for path in order[start : start + size]:
                if path in self.objects or chance.random() < 0.5:
                    yield self._of([path])[0] if path in self.objects else there[path]
        new = [path for path in self.objects if wanted(path) and path not in there]
        yield from self._of(path for path in sorted(new) if chance.random() < 0.5)

    def _of(self, paths: Any) -> list[Entry]:
        return [Entry(path, len(self.objects[path][0]), self.objects[path][1]) for path in sorted(paths)]


def _short(result: Any) -> str:
    if isinstance(result, list | dict):
        return f"{len(result)} entries"
    if isinstance(result, bytes):
        return f"{len(result)} bytes"
    return str(result)[:60]
