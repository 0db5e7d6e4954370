"""For tests of this project and of its users: an atomic store in memory, faults on purpose, and a manual clock."""

import io
import random
from collections.abc import Callable, Generator, Iterable, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from os.path import normpath, relpath
from threading import RLock
from typing import BinaryIO, TypeVar, cast
from uuid import uuid4

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import ObjectNotFoundError, StoreError
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.names import join, split
from dbio_commit.store.contract import Listing, Store, Unfinished, too_large
from dbio_commit.store.paths import remove_upwards

_A = TypeVar("_A")
_T = TypeVar("_T")


class ManualClock(Clock):
    """Time passes only when `advance` is called, or when code sleeps. Random numbers come from a seed."""

    def __init__(self, now: datetime = datetime(2026, 11, 20, tzinfo=UTC), *, seed: int = 0) -> None:
        self._now = now
        self._monotonic = 0.0
        self._random = random.Random(seed)

    def now(self) -> datetime:
        return self._now

    def boot(self) -> str:
        return "manual"

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, duration_s: float) -> None:
        self.advance(timedelta(seconds=duration_s))

    def advance(self, by: timedelta) -> None:
        self._now += by
        self._monotonic += by.total_seconds()

    def jump(self, by: timedelta) -> None:
        """Moves the time of day, as if the machine's clock were set; the monotonic time stays."""
        self._now += by

    def random_bits(self, bits: int) -> int:
        return self._random.getrandbits(bits)


Step = Callable[[str, str], None]
"""Called with an operation ("get", "put_if_absent", ...) and a path. What it raises reaches the store's caller."""


class MemoryStore(Store):
    """Objects in a dictionary under one lock: `put_if_absent` is atomic, and listings are consistent.

    A directory exists as long as an object lies below it. Tests fill `unfinished`. Parallel calls run one after the
    other, so that tests can count them. `before` and `after` are called around every operation. If `before` raises, the
    operation is not applied. If `after` raises, it was applied, and its answer is lost.
    """

    def __init__(
        self, clock: Clock | None = None, *, url: str = "memory://table", lake: "dict[str, MemoryStore] | None" = None
    ) -> None:
        """`lake` has the stores of all tables of one lake by their URLs, and gets this one, too."""
        self.url = url
        self.lake = {} if lake is None else lake
        self.lake[url] = self
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.unfinished: list[Unfinished] = []
        self.before: Step = lambda operation, path: None
        self.after: Step = lambda operation, path: None
        self._clock = clock or Clock()
        self._identity = f"memory:{uuid4().hex}"  # Python may use an id() again
        self._principal = ""
        self._lock = RLock()

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def principal(self) -> str:
        return self._principal

    def beside(self, path: str) -> "MemoryStore":
        scheme, _, here = self.url.partition("://")
        url = f"{scheme}://{normpath(join(here, path))}"
        if url not in self.lake:
            MemoryStore(self._clock, url=url, lake=self.lake)
        return self.lake[url]

    def _path_to(self, other: Store) -> str | None:
        if not isinstance(other, MemoryStore) or other.lake is not self.lake:
            return None
        return relpath(f"/{other.url.partition('://')[2]}", f"/{self.url.partition('://')[2]}")

    def shares_clock(self, other: Store) -> bool:
        return isinstance(other, MemoryStore)

    def seen_by(self, principal: str) -> "MemoryStore":
        """The same objects for another principal, whose `before` and `after` may refuse other operations."""
        other = copy(self)
        other._principal = principal
        return other

    @staticmethod
    def in_parallel(function: Callable[[_A], _T], items: Sequence[_A], *, at_once: int = 1) -> list[_T]:
        return [function(item) for item in items]

    @staticmethod
    def ahead(
        function: Callable[[_A], _T], items: Sequence[_A], sizes: Sequence[int], *, size_bytes: int, at_once: int = 1
    ) -> Generator[_T, None, None]:
        yield from map(function, items)

    settle_s = 0.01

    def list_log(self, *prefixes: str) -> list[Entry]:
        def listing() -> list[Entry]:
            return [entry for prefix in prefixes or ("_",) for entry in self._entries(prefix) if "/" not in entry.path]

        return self._apply("list_log", " ".join(prefixes), listing)

    def list_log_from(self, name: str, prefix: str) -> list[Entry]:
        def listing() -> list[Entry]:
            return [entry for entry in self._entries(prefix) if "/" not in entry.path and entry.path >= name]

        return self._apply("list_log_from", name, listing)

    def stat_log(self, *names: str) -> dict[str, Entry]:
        def look() -> dict[str, Entry]:
            return {entry.path: entry for entry in self._entries("_") if entry.path in names}

        return self._apply("stat_log", " ".join(names), look)

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        return self._apply("list_files", under, lambda: self._entries(f"{under}/" if under else ""))

    def list_directory(self, under: str = "") -> Listing:
        def listing() -> Listing:
            prefix = f"{under}/" if under else ""
            entries = self._entries(prefix)
            direct = [entry for entry in entries if entry.path == join(under, split(entry.path)[1])]
            names = {entry.path.removeprefix(prefix).partition("/")[0] for entry in entries if entry not in direct}
            return Listing(direct, sorted(prefix + name for name in names if name))  # no directory lacks a name

        return self._apply("list_directory", under, listing)

    def list_unfinished(self) -> list[Unfinished]:
        return self._apply("list_unfinished", "", lambda: list(self.unfinished))

    def _entries(self, prefix: str) -> list[Entry]:
        found = sorted((path, *content) for path, content in self.objects.items() if path.startswith(prefix))
        return [Entry(path, len(body), modified) for path, body, modified in found]

    def get(self, path: str, *, limit_bytes: int = MAX_BYTES) -> bytes:
        body = self._apply("get", path, lambda: self._find(path)[0])
        if len(body) > limit_bytes:
            raise too_large(self.url_of(path), limit_bytes)
        return body

    def stat(self, path: str) -> Entry:
        def stat() -> Entry:
            body, modified = self._find(path)
            return Entry(path, len(body), modified)

        return self._apply("stat", path, stat)

    def _find(self, path: str) -> tuple[bytes, datetime]:
        try:
            return self.objects[path]
        except KeyError:
            raise ObjectNotFoundError(f"cannot read {self.url_of(path)}: not found") from None

    def open_read(self, path: str) -> BinaryIO:
        return io.BytesIO(self._apply("get", path, lambda: self._find(path)[0]))

    def put_if_absent(self, path: str, body: bytes) -> bool:
        def put() -> bool:
            if path in self.objects:
                return False
            self.objects[path] = (bytes(body), self._clock.now())
            return True

        return self._apply("put_if_absent", path, put)

    def put(self, path: str, body: bytes = b"", *, modified: datetime | None = None) -> None:
        """Creates or replaces the object, as a tool does that does not know the protocol."""
        with self._lock:
            self.objects[path] = (body, modified or self._clock.now())

    def open_write(self, path: str) -> BinaryIO:
        return cast(BinaryIO, _Upload(lambda body: self._apply("write", path, lambda: self.put(path, body))))

    def prepare(self, path: str) -> str:
        return self.url_of(path)

    def make_durable(self, paths: Iterable[str]) -> None:
        """Does nothing: memory needs no sync."""

    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        failures: dict[str, StoreError] = {}
        for path in paths:
            try:
                self._apply("delete", path, lambda path=path: self.objects.pop(path, None))  # type: ignore[misc]
            except StoreError as error:
                failures[path] = error
        return failures

    def delete_same(self, path: str, body: bytes) -> bool:
        def delete() -> bool:
            is_same = path not in self.objects or self.objects[path][0] == body
            if is_same:
                self.objects.pop(path, None)
            return is_same

        return self._apply("delete", path, delete)

    def abort_unfinished(self, items: Sequence[Unfinished]) -> dict[str, StoreError]:
        def abort(item: Unfinished) -> None:
            self.unfinished = [other for other in self.unfinished if other != item]

        failures: dict[str, StoreError] = {}
        for item in items:
            try:
                self._apply("abort_unfinished", item.path, lambda item=item: abort(item))  # type: ignore[misc]
            except StoreError as error:
                failures[item.path] = error
        return failures

    def remove_directories(self, paths: Iterable[str]) -> list[str]:
        """Directories that hold no object count as removed, since they exist only as long as objects do."""

        def is_empty(path: str) -> bool:
            return self._apply("remove_directory", path, lambda: not self._entries(f"{path}/"))

        return remove_upwards(paths, is_empty)

    def _apply(self, operation: str, path: str, function: Callable[[], _T]) -> _T:
        self.before(operation, path)
        with self._lock:
            result = function()
        self.after(operation, path)
        return result


class _Upload(io.BytesIO):
    def __init__(self, done: Callable[[bytes], None]) -> None:
        super().__init__()
        self._done = done

    def close(self) -> None:
        if not self.closed:
            body = self.getvalue()
            super().close()
            self._done(body)
