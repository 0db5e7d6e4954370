"""Sequences that keep many objects in little memory: a million take some 50 MB."""

import zlib
from abc import abstractmethod
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from operator import eq
from typing import Any, ClassVar, Generic, TypeVar, overload

from dbio_commit.protocol.entry import Entry

_T = TypeVar("_T")

CHUNK = 4096
"""How many objects are packed together."""


class Packed(Sequence[_T], Generic[_T]):
    """Objects with a path and some numbers each. An object is made when it is read. The sequence equals any other one
    of equal objects."""

    numbers: ClassVar[int]
    """How many numbers each object has."""

    def __init__(self, items: Iterable[_T] = ()) -> None:
        self._packed: list[bytes] = []
        self._last: list[_T] = []
        self._unpacked: deque[tuple[bytes, list[_T]]] = deque(maxlen=1)
        self.extend(items)

    @abstractmethod
    def take(self, item: _T) -> tuple[str, Sequence[int]]:
        """The path and the numbers of an object."""

    @abstractmethod
    def make(self, path: str, *numbers: int) -> _T:
        """The object with this path and these numbers."""

    def extend(self, items: Iterable[_T]) -> None:
        for it in items:
            self.append(it)

    def append(self, item: _T) -> None:
        self._last.append(item)
        if len(self._last) == CHUNK:
            self._packed.append(self._pack(self._last))
            self._last = []

    def __len__(self) -> int:
        return len(self._packed) * CHUNK + len(self._last)

    def __iter__(self) -> Iterator[_T]:
        for packed in self._packed:
            yield from self._unpack(packed)
        yield from self._last

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | Sequence[_T]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        chunk, place = divmod(range(len(self))[index], CHUNK)  # or IndexError
        return self._chunk(chunk)[place] if chunk < len(self._packed) else self._last[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])

    def _chunk(self, number: int) -> list[_T]:
        packed = self._packed[number]
        if not self._unpacked or self._unpacked[0][0] is not packed:
            self._unpacked.append((packed, self._unpack(packed)))
        return self._unpacked[0][1]

    def _pack(self, items: Sequence[_T]) -> bytes:
        paths, numbers = zip(*map(self.take, items), strict=True)
        texts = [path.encode("utf-8", "surrogatepass") for path in paths]
        columns = [map(len, texts), *zip(*numbers, strict=True)]
        return zlib.compress(b"".join([*(array("q", column).tobytes() for column in columns), *texts]), 3)

    def _unpack(self, packed: bytes) -> list[_T]:
        body = zlib.decompress(packed)
        start = (1 + self.numbers) * 8 * CHUNK
        numbers: Any = memoryview(body)[:start].cast("q")
        lengths, *columns = (numbers[i * CHUNK : (i + 1) * CHUNK] for i in range(1 + self.numbers))
        ends = pairwise(accumulate(lengths, initial=start))
        paths = (body[start:end].decode("utf-8", "surrogatepass") for start, end in ends)
        return [*map(self.make, paths, *columns)]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Entries(Packed[Entry]):
    """Objects of a store."""

    numbers = 2

    def take(self, item: Entry) -> tuple[str, Sequence[int]]:
        return item.path, (item.size, (item.modified - _EPOCH) // _MICROSECOND)

    def make(self, path: str, *numbers: int) -> Entry:
        size, modified = numbers
        return Entry(path, size, _EPOCH + modified * _MICROSECOND)
