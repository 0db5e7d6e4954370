"""Empty places for stores, and callers in several processes who all start at once. The fixtures are in conftest.py."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing import get_context
from threading import Barrier, BrokenBarrierError
from typing import Any, Literal, NamedTuple

from dbio_commit.store import Store, open_store, parse_location
from dbio_commit.testing import MemoryStore

PROCESSES, THREADS = 4, 6
CONTENDERS = PROCESSES * THREADS

CREATE = {"s3": "PUT", "azure": "PUT", "gcs": "POST"}
"""The method of the request that creates an object, by the kind of the place."""

Fill = Callable[[Store, Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class Place:
    """An empty root, and what it takes to open it."""

    kind: Literal["memory", "local", "s3", "azure", "gcs"]
    url: str
    storage_options: dict[str, Any] = field(default_factory=dict)

    def open(self, suffix: str = "", **options: Any) -> Store:
        """A store at the root; `suffix` goes to the end of its URL, `options` replace storage options."""
        if self.kind == "memory":
            return MemoryStore(url=self.url)
        return open_store(parse_location(self.url + suffix), {**self.storage_options, **options})


class Outcome(NamedTuple):
    """What one contender saw: whether it won, what it wrote, what it read right after (digests)."""

    won: bool
    wrote: str
    read: str


class Race:
    """CONTENDERS callers of `put_if_absent`, in PROCESSES processes that stay for many races."""

    def __init__(self, pool: ProcessPoolExecutor, barrier: Any) -> None:
        self._pool, self._barrier = pool, barrier

    def run(self, store: Store, *, rounds: int, size: int) -> list[list[Outcome]]:
        """The outcomes of each round."""
        self._barrier.reset()
        jobs: list[Future[list[list[Outcome]]]] = [
            self._pool.submit(_contend_in_process, store, rounds, size) for _ in range(PROCESSES)
        ]
        contenders = [contender for job in jobs for contender in job.result()]
        return [list(outcomes) for outcomes in zip(*contenders, strict=True)]


@contextmanager
def racing_processes() -> Iterator[Race]:
    context = get_context("spawn")
    barrier = context.Barrier(CONTENDERS)
    with ProcessPoolExecutor(PROCESSES, context, initializer=_join, initargs=(barrier,)) as pool:
        yield Race(pool, barrier)


def contend(store: Store, barrier: Barrier, *, contenders: int, rounds: int, size: int) -> list[list[Outcome]]:
    """The outcomes of each contender, all of them in this process."""

    def contender(_: int) -> list[Outcome]:
        try:
            return [_put_and_read(store, barrier, f"_race_{number}", size) for number in range(rounds)]
        except BrokenBarrierError:
            raise
        except BaseException:
            barrier.abort()  # the others would wait for us
            raise

    with ThreadPoolExecutor(contenders) as pool:
        return list(pool.map(contender, range(contenders)))


def _put_and_read(store: Store, barrier: Barrier, path: str, size: int) -> Outcome:
    body = secrets.token_bytes(16) * (size // 16)
    barrier.wait(60)
    won = store.put_if_absent(path, body)
    return Outcome(won, _digest(body), _digest(store.get(path)))


def _digest(body: bytes) -> str:
    return f"{len(body)} bytes {sha256(body).hexdigest()}"


_barrier: Any = None


def _join(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _contend_in_process(store: Store, rounds: int, size: int) -> list[list[Outcome]]:
    return contend(store, _barrier, contenders=THREADS, rounds=rounds, size=size)
