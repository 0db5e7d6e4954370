"""What vacuum remembers of many objects, in little memory: a million of them take some 50 MB."""

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import eq
from typing import Any, overload

from dbio_commit.protocol.garbage import Reason
from dbio_commit.upkeep.vacuum.report import Deletion

_CHUNK = 4096
"""How many objects are packed together."""

_REASONS = [*Reason]
_MICROSECOND = timedelta(microseconds=1)


class Deletions(Sequence[Deletion]):
    """Deletions, of which each is made when it is asked for. Equal to any sequence of the same ones."""

    def __init__(self, items: Iterable[Deletion] = ()) -> None:
        self._packed: list[bytes] = []
        self._last: list[Deletion] = []
        self.extend(items)

    def extend(self, items: Iterable[Deletion]) -> None:
        for it in items:
            self._last.append(it)
            if len(self._last) == _CHUNK:
                self._packed.append(_pack(self._last))
                self._last = []

    def __len__(self) -> int:
        return len(self._packed) * _CHUNK + len(self._last)

    def __iter__(self) -> Iterator[Deletion]:
        for packed in self._packed:
            yield from _unpack(packed)
        yield from self._last

    @overload
    def __getitem__(self, index: int) -> Deletion: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Deletion]: ...
    def __getitem__(self, index: int | slice) -> Deletion | Sequence[Deletion]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        chunk, place = divmod(range(len(self))[index], _CHUNK)  # or IndexError
        return _lately_unpacked(self._packed[chunk])[place] if chunk < len(self._packed) else self._last[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])


def _pack(items: Sequence[Deletion]) -> bytes:
    texts = [it.path.encode("utf-8", "surrogatepass") for it in items]
    columns = (
        array("q", (len(text) for text in texts)),
        array("q", (it.size for it in items)),
        array("q", (it.age // _MICROSECOND for it in items)),
        array("q", (_REASONS.index(it.reason) for it in items)),
    )
    return zlib.compress(b"".join([*(column.tobytes() for column in columns), *texts]), 3)


def _unpack(packed: bytes) -> list[Deletion]:
    body = zlib.decompress(packed)
    numbers: Any = memoryview(body)[: 4 * 8 * _CHUNK].cast("q")
    lengths, sizes, ages, reasons = (numbers[i * _CHUNK : (i + 1) * _CHUNK] for i in range(4))
    ends = accumulate(lengths, initial=4 * 8 * _CHUNK)
    return [
        Deletion(
            path=body[start:end].decode("utf-8", "surrogatepass"),
            size=size,
            age=age * _MICROSECOND,
            reason=_REASONS[reason],
        )
        for (start, end), size, age, reason in zip(pairwise(ends), sizes, ages, reasons, strict=True)
    ]


@lru_cache(maxsize=2)
def _lately_unpacked(packed: bytes) -> list[Deletion]:
    return _unpack(packed)


class Paths:
    """Many paths, of which only short codes are kept. Rarely, another path counts as one of them."""

    def __init__(self) -> None:
        self._sorted = array("q")
        self._new: set[int] = set()

    def update(self, paths: Iterable[str]) -> None:
        self._new.update(map(hash, paths))
        if len(self._new) > len(self._sorted) // 4 + _CHUNK:
            self._sorted = array("q", sorted([*self._sorted, *self._new]))
            self._new = set()

    def __contains__(self, path: object) -> bool:
        code = hash(path)
        if code in self._new:
            return True
        i = bisect_left(self._sorted, code)
        return i < len(self._sorted) and self._sorted[i] == code
