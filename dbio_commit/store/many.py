"""Many calls of a store at once, in threads."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar, overload

CONCURRENCY = 32
"""Requests in flight at once for one call."""

_T = TypeVar("_T")
_A = TypeVar("_A")
_B = TypeVar("_B")


class CallsAhead(Generic[_T]):
    """Calls in threads whose results are taken in the order of the calls.

    Up to `few` calls run, or have results that were not taken. Up to `most` do while they hold at most `size_bytes`
    together. For one thread.
    """

    def __init__(self, *, few: int, most: int, size_bytes: int, name: str) -> None:
        self._few, self._most, self._size_bytes, self._name = few, most, size_bytes, name
        self._pool: ThreadPoolExecutor | None = None  # a caller with one call needs none
        self._calls: deque[tuple[int, Future[_T]]] = deque()
        self._held_bytes = 0

    def __bool__(self) -> bool:
        """Whether results are left."""
        return bool(self._calls)

    def has_room(self, size: int) -> bool:
        """Whether another call may begin, if it holds `size` bytes."""
        count = len(self._calls)
        return count < self._few or (count < self._most and self._held_bytes + size <= self._size_bytes)

    def call(self, function: Callable[[], _T], size: int) -> None:
        self._pool = self._pool or ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
        self._calls.append((size, self._pool.submit(function)))
        self._held_bytes += size

    def take(self) -> _T:
        """The result of the oldest call that is left. Raises the error of the call."""
        size, call = self._calls.popleft()
        self._held_bytes -= size
        return call.result()

    def results(
        self, function: Callable[[_A], _T], items: Sequence[_A], sizes: Sequence[int]
    ) -> Generator[_T, None, None]:
        """The function's results, as `ManyCalls.ahead`. Closes this at the end."""
        if len(items) <= 1:
            yield from map(function, items)
            return
        try:
            for item, size in zip(items, sizes, strict=True):
                while not self.has_room(size):
                    yield self.take()
                self.call(partial(function, item), size)
            while self:
                yield self.take()
        finally:
            self.close()

    def close(self) -> None:
        """Begins no more calls, and waits for those that run."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)


class ManyCalls:
    """Runs calls of a store that do not depend on one another."""

    @staticmethod
    def in_parallel(function: Callable[[_A], _T], items: Sequence[_A], *, at_once: int = CONCURRENCY) -> list[_T]:
        """The function's results in the order of the items, with `at_once` calls at a time. Raises the first error."""
        if len(items) <= 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(min(at_once, len(items)), thread_name_prefix="dbio") as pool:
            return list(pool.map(function, items))

    @staticmethod
    def ahead(
        function: Callable[[_A], _T], items: Sequence[_A], sizes: Sequence[int], *, size_bytes: int, at_once: int = 1
    ) -> Generator[_T, None, None]:
        """The function's results in the order of the items, from threads that run ahead of the caller.

        A call holds as many bytes as `sizes` says. `at_once` calls run, and up to CONCURRENCY while they hold at most
        `size_bytes` together. Raises the first error. If you stop early, close the generator: no call begins any more.
        """
        calls = CallsAhead[_T](few=at_once, most=CONCURRENCY, size_bytes=size_bytes, name="dbio-ahead")
        return calls.results(function, items, sizes)

    def ask_each(self, function: Callable[[_A], _T], items: Sequence[_A]) -> list[_T]:
        """As `in_parallel`, for calls that take little time besides waiting for the store."""
        return self.in_parallel(function, items)

    @overload
    def together(self, first: Callable[[], _A], second: Callable[[], _B], /) -> tuple[_A, _B]: ...

    @overload
    def together(
        self, first: Callable[[], _A], second: Callable[[], _B], third: Callable[[], _T], /
    ) -> tuple[_A, _B, _T]: ...

    def together(self, *asks: Callable[[], object]) -> tuple[object, ...]:
        """The results of these calls, which do not depend on one another. Raises the first error."""
        return tuple(self.ask_each(lambda ask: ask(), asks))
