"""Reads data when it is first needed: the items of a sequence, or the paths of transactions in parts."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar, overload

from dbio_commit.protocol import history
from dbio_commit.protocol.commits import Decided

_T = TypeVar("_T")


class Lazy(Sequence[_T]):
    """The items that `read` returns. `read` is called once, when an item is first needed."""

    def __init__(self, read: Callable[[], Sequence[_T]]) -> None:
        self._read = read

    @cached_property
    def _items(self) -> tuple[_T, ...]:
        return tuple(self._read())

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[_T]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_T, ...]: ...
    def __getitem__(self, index: int | slice) -> _T | tuple[_T, ...]:
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._items == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._items,)


class Wholes:
    """Transactions in parts with all of their paths, which are read when they are needed.

    A transaction is read together with those after it in `order`. So a caller that goes through all of them reads the
    parts few times. Only the last that were read stay in memory.
    """

    def __init__(self, order: Sequence[Decided], read: Callable[[Collection[str]], Sequence[Decided]]) -> None:
        """`order` has outlines: transactions without paths. `read` returns the transactions with these tids, with their
        paths."""
        self._order, self._read = order, read
        self._kept: dict[str, Decided] = {}

    def take_over(self, other: "Wholes") -> None:
        """Keeps what `other` has read, except transactions with references: what these refer to may have come since."""
        referring = {commit.tid for commit in self._order if commit.marker.removed_tids}
        self._kept = {tid: commit for tid, commit in other._kept.items() if tid not in referring}

    def __contains__(self, tid: str) -> bool:
        """Whether the transaction is in memory."""
        return tid in self._kept

    def __getitem__(self, tid: str) -> Decided:
        found = self._kept.get(tid)
        if found is None:
            self._kept = {commit.tid: commit for commit in self._read(self._from(tid))}
            found = self._kept[tid]
        return found

    @cached_property
    def _places(self) -> dict[str, int]:
        return {commit.tid: place for place, commit in enumerate(self._order)}

    def _from(self, tid: str) -> list[str]:
        """The tids that are read together. A transaction with references to others is read alone, since it takes
        more."""
        chosen: list[str] = []
        count = 0
        for place in range(self._places[tid], len(self._order)):
            commit = self._order[place]
            count += sum(commit.forgotten)
            if chosen and (count > history.PATHS_AT_ONCE or commit.marker.removed_tids):
                break
            chosen.append(commit.tid)
            if commit.marker.removed_tids:
                break
        return chosen
