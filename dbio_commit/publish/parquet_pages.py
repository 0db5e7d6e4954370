"""How much the pages of a column in a Parquet file hold, as their headers say, which its reader goes by. Pure.

A footer may say anything of that, and few bytes unpack to gigabytes. Headers are structs of Thrift's compact protocol,
in parquet-format's public specification.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

_UNCOMPRESSED, _COMPRESSED = 2, 3
_OF_VALUES = (5, 7, 8)
"""The headers of a data page, of a dictionary, of a data page of version 2: the first field of each counts values."""

_BOOLEANS, _BYTE, _NUMBERS, _STRUCT = (1, 2), 3, (4, 5, 6), 12
_DEEPEST = 8


class Pages(NamedTuple):
    """What the pages of one column chunk hold together."""

    unpacked_bytes: int
    values: int
    """Those that are null included."""


def measure(body: bytes, start: int, end: int) -> Pages:
    """Of the pages from `start` to `end`. Raises ValueError where these are none."""
    if not 0 <= start <= end <= len(body):
        raise ValueError("a column that lies outside of the file")
    unpacked = values = 0
    at = start
    while at < end:
        header = _Header(body, at, end)
        header.read()
        if min(header.uncompressed, header.compressed, header.values) < 0 or header.at + header.compressed > end:
            raise ValueError("a page that goes beyond its column")
        unpacked, values, at = unpacked + header.uncompressed, values + header.values, header.at + header.compressed
    return Pages(unpacked, values)


class _Header:
    """Reads one page header."""

    def __init__(self, body: bytes, at: int, end: int) -> None:
        self._body, self.at, self._end = body, at, end
        self.uncompressed = self.compressed = -1
        self.values = 0

    def read(self) -> None:
        for field, kind in self._fields():
            if field == _UNCOMPRESSED and kind in _NUMBERS:
                self.uncompressed = self._number()
            elif field == _COMPRESSED and kind in _NUMBERS:
                self.compressed = self._number()
            elif field in _OF_VALUES and kind == _STRUCT:
                self._read_values()
            else:
                self._skip(kind, 1)

    def _read_values(self) -> None:
        for field, kind in self._fields():
            if field == 1 and kind in _NUMBERS:
                self.values = max(self.values, self._number())
            else:
                self._skip(kind, 2)

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Number and kind of each; who takes it reads what it holds."""
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._number()
            yield field, head & 15

    def _byte(self) -> int:
        if self.at >= self._end:
            raise ValueError("a page header that breaks off")
        self.at += 1
        return self._body[self.at - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number of a page header that does not end")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _forward(self, by: int) -> None:
        self.at += by
        if self.at > self._end:
            raise ValueError("a page header that breaks off")

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise ValueError("a page header that is nested too deeply")
        match kind:
            case 1 | 2:
                pass
            case 3:
                self._forward(1)
            case 4 | 5 | 6:
                self._varint()
            case 7:
                self._forward(8)
            case 8:
                self._forward(self._varint())
            case 9 | 10:
                head = self._byte()
                self._skip_items(self._varint() if head >> 4 == 15 else head >> 4, [head & 15], depth)
            case 11:
                if count := self._varint():
                    kinds = self._byte()
                    self._skip_items(count, [kinds >> 4, kinds & 15], depth)
            case 12:
                for _, inner in self._fields():
                    self._skip(inner, depth + 1)
            case _:
                raise ValueError("a page header with a field of no kind")

    def _skip_items(self, count: int, kinds: Sequence[int], depth: int) -> None:
        for _ in range(count):
            for kind in kinds:
                self._skip(_BYTE if kind in _BOOLEANS else kind, depth + 1)
