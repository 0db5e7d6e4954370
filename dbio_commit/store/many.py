"""Many calls of a store at once."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, overload

from dbio_commit.store.ahead import CallsAhead

CONCURRENCY = 32
"""Requests in flight at once for one call."""

_T = TypeVar("_T")
_A = TypeVar("_A")
_B = TypeVar("_B")


class ManyCalls:
    """What a store does with calls that do not wait for one another."""

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
        """The results of all, which do not wait for one another. Raises the first error."""
        return tuple(self.ask_each(lambda ask: ask(), asks))
