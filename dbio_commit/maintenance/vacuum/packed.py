"""Keeps what a vacuum records of many objects, in little memory."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import timedelta

from dbio_commit.maintenance.packed import CHUNK, Packed
from dbio_commit.maintenance.vacuum.report import Deletion
from dbio_commit.protocol.garbage import Reason

_REASONS = [*Reason]
_MICROSECOND = timedelta(microseconds=1)


class Deletions(Packed[Deletion]):
    """A packed sequence of deletions."""

    numbers = 3

    def take(self, item: Deletion) -> tuple[str, Sequence[int]]:
        return item.path, (item.size, item.age // _MICROSECOND, _REASONS.index(item.reason))

    def make(self, path: str, *numbers: int) -> Deletion:
        size, age, reason = numbers
        return Deletion(path=path, size=size, age=age * _MICROSECOND, reason=_REASONS[reason])


class Paths:
    """A set of many paths that keeps only their hashes. Rarely, another path counts as one of them."""

    def __init__(self) -> None:
        self._sorted = array("q")
        self._new: set[int] = set()

    def update(self, paths: Iterable[str]) -> None:
        self._new.update(map(hash, paths))
        if len(self._new) > len(self._sorted) // 4 + CHUNK:
            self._sorted = array("q", sorted([*self._sorted, *self._new]))
            self._new = set()

    def __contains__(self, path: object) -> bool:
        code = hash(path)
        if code in self._new:
            return True
        i = bisect_left(self._sorted, code)
        return i < len(self._sorted) and self._sorted[i] == code
