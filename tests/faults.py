"""Faults for stores in memory: calls that fail or that others join, killed processes, stores that misbehave.

A fault at a call is a `Step`: set it as `before` or `after` of a `MemoryStore`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count
from typing import TypeVar

from dbio_commit.protocol.entry import Entry
from dbio_commit.testing import MemoryStore, Step

_T = TypeVar("_T")
_A = TypeVar("_A")


# --- at a call ----------------------------------------------------------------------------------------------------


def fail_with(error: BaseException, operation: str, pattern: str, *, times: int | None = 1) -> Step:
    """A step that raises at calls of the operation on such paths; `times` None is always."""
    left = [times]

    def step(called: str, path: str) -> None:
        if called == operation and fnmatchcase(path, pattern) and left[0] != 0:
            left[0] = None if left[0] is None else left[0] - 1
            raise error

    return step


def once(operation: str, pattern: str, action: Callable[[], object], *, nth: int = 1) -> Step:
    """A step that does something at the nth call of the operation on such a path, from 1; what it does is not
    intercepted."""
    calls = count(1)

    def step(called: str, path: str) -> None:
        if called == operation and fnmatchcase(path, pattern) and next(calls) == nth:
            action()

    return step


def give_up_after(calls: int) -> Step:
    """A step that ends what never ends by itself, or makes far more calls than it needs."""
    numbers = count()

    def step(operation: str, path: str) -> None:
        assert next(numbers) < calls, f"more than {calls} calls, and this is {operation} {path}"

    return step


def act_before_call(store: MemoryStore, number: int, act: Callable[[], object]) -> None:
    """Somebody else acts before the store's call of that number, from 0. Nobody acts while they do."""
    numbers = count()

    def step(operation: str, path: str) -> None:
        if next(numbers) == number:
            act()

    store.before = step


def heal(store: MemoryStore) -> None:
    """No more faults."""
    store.before = store.after = lambda operation, path: None


@contextmanager
def unwatched(store: MemoryStore) -> Iterator[None]:
    """What is done within is not counted, watched or failed."""
    steps = store.before, store.after
    heal(store)
    try:
        yield
    finally:
        store.before, store.after = steps


@contextmanager
def calls_to(store: MemoryStore) -> Iterator[list[tuple[str, str]]]:
    """Collects the calls to the store: (operation, path)."""
    calls: list[tuple[str, str]] = []
    before, store.before = store.before, lambda operation, path: calls.append((operation, path))
    try:
        yield calls
    finally:
        store.before = before


def count_calls(store: MemoryStore, work: Callable[[], object]) -> int:
    """How many calls to the store the work makes."""
    with calls_to(store) as calls:
        work()
    return len(calls)


# --- a process that is killed -------------------------------------------------------------------------------------


class Killed(BaseException):
    """SIGKILL: no handler of whom it hits runs to any effect."""


@dataclass
class Killer:
    """Lets so many calls through, then kills before or after the next, and refuses all that come later."""

    store: MemoryStore
    calls: int
    after: bool
    dead: bool = False

    def __post_init__(self) -> None:
        self.store.before, self.store.after = self._before, self._after

    def _before(self, operation: str, path: str) -> None:
        self.calls -= 1
        if self.dead or (self.calls < 0 and not self.after):
            self._die()

    def _after(self, operation: str, path: str) -> None:
        if self.calls < 0:
            self._die()

    def _die(self) -> None:
        self.dead = True
        raise Killed


# --- stores that are otherwise ------------------------------------------------------------------------------------


class OneByOne(MemoryStore):
    """Deletes one object a request."""

    delete_batch = 1


class FlatStore(MemoryStore):
    """As S3: directories are prefixes of keys."""

    has_directories = False


class KeyStore(FlatStore, MemoryStore):
    """Both."""


class PagedStore(MemoryStore):
    """Lists a few objects at a time, as object stores do: what happens in between may be seen by half.

    `before` is called between two pages, with the operation "page".
    """

    page = 3

    def _entries(self, prefix: str) -> list[Entry]:
        found: list[Entry] = []
        while True:
            last = found[-1].path if found else ""
            page = [entry for entry in super()._entries(prefix) if entry.path > last][: self.page]
            found += page
            if len(page) < self.page:
                return found
            self.before("page", prefix)


class RootFirstStore(MemoryStore):
    """Lists files in two pages, the markers at the root first; something may happen between the pages."""

    between: Callable[[], object] = staticmethod(lambda: None)

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        first = [entry for entry in super().list_files(under) if entry.path.startswith("_")]
        happen, self.between = self.between, lambda: None
        happen()
        return first + [entry for entry in super().list_files(under) if not entry.path.startswith("_")]


class PagedLog(MemoryStore):
    """Lists the log an object a page, as S3 does a thousand; others act after a page of a listing."""

    def __init__(self, of: MemoryStore, act: dict[tuple[int, int], Callable[[], None]]) -> None:
        super().__init__()
        self.objects, self.act, self.listings = of.objects, act, 0

    def list_log(self, *prefixes: str) -> list[Entry]:
        self.listings += 1
        found: list[Entry] = []
        while page := [entry for entry in super().list_log(*prefixes) if not found or entry.path > found[-1].path][:1]:
            found += page
            self.act.pop((self.listings, len(found)), lambda: None)()
        return found


class ForgetfulStore(MemoryStore):
    """Listings of the log show no turns, as many times as it is told."""

    blind = 0

    def list_log(self, *prefixes: str) -> list[Entry]:
        entries = super().list_log(*prefixes)
        self.blind -= 1
        return [e for e in entries if not (self.blind >= 0 and e.path.startswith("_serial_"))]


class DurableStore(MemoryStore):
    """Notes when it is asked to make files durable."""

    def make_durable(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._apply("make_durable", path, lambda: None)


class WithoutPutIfAbsent(MemoryStore):
    """Ignores If-None-Match, as some gateways to S3 do."""

    def put_if_absent(self, path: str, body: bytes) -> bool:
        def put() -> bool:
            self.put(path, body)
            return True

        return self._apply("put_if_absent", path, put)


class Retrying(MemoryStore):
    """The first answer about a checkpoint is lost; the client tries again by itself, and is told that it is there."""

    def put_if_absent(self, path: str, body: bytes) -> bool:
        return super().put_if_absent(path, body) and not path.startswith("_checkpoint_")
