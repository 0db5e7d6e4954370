"""How much columns of a Parquet file hold, as the headers of their pages say, which its reader goes by. Pure.

A footer may say anything of that, and few bytes unpack to gigabytes. pyarrow is not asked where pages are: it ends the
process where a footer contradicts itself. Footer and headers are structs of Thrift's compact protocol, whose fields are
those of parquet-format's public specification.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

_BYTE, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 3, 5, 6, 7, 8, 9, 10, 11, 12
_BOOLEANS, _INTEGERS = (1, 2), (4, _I32, _I64)
_DEEPEST = 16

_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3
_COMPRESSED_SIZE, _DATA_OFFSET, _DICTIONARY_OFFSET = 7, 9, 11
_PAGE_UNCOMPRESSED, _PAGE_COMPRESSED, _VALUES = 2, 3, 1
_OF_VALUES = (5, 7, 8)
"""The headers of a data page, of a dictionary, of a data page of version 2."""

_TAIL_BYTES = 8
"""The length of the footer, and `PAR1`."""


class Pages(NamedTuple):
    """What the pages of columns hold together."""

    unpacked_bytes: int
    values: int
    """Those that are null included."""


def footer_bytes(body: bytes) -> int:
    return int.from_bytes(body[-_TAIL_BYTES : -_TAIL_BYTES // 2], "little")


def measure(body: bytes, columns: Collection[int]) -> Pages:
    """Of the columns with these indices, in all row groups. Raises ValueError where it is no file that can be read."""
    end = len(body) - _TAIL_BYTES
    footer, _ = _read_struct(body, end - footer_bytes(body), end, depth=0)
    unpacked = values = 0
    for group in _value(footer, _ROW_GROUPS, _LIST):
        chunks = _value(group, _COLUMNS, _LIST)
        for column in columns:
            told = _value(chunks[column] if column < len(chunks) else {}, _METADATA, _STRUCT)
            start = _value(told, _DATA_OFFSET, _I64)
            if _DICTIONARY_OFFSET in told and 0 < (first := _value(told, _DICTIONARY_OFFSET, _I64)) < start:
                start = first
            pages = _measure_pages(body, start, start + _value(told, _COMPRESSED_SIZE, _I64))
            unpacked, values = unpacked + pages.unpacked_bytes, values + pages.values
    return Pages(unpacked, values)


def _measure_pages(body: bytes, at: int, end: int) -> Pages:
    if not 0 <= at <= end <= len(body):
        raise ValueError("a column lies outside of the file")
    unpacked = values = 0
    while at < end:
        header, at = _read_struct(body, at, end, depth=0)
        sizes = [_value(header, field, _I32) for field in (_PAGE_UNCOMPRESSED, _PAGE_COMPRESSED)]
        counts = [_value(_value(header, field, _STRUCT), _VALUES, _I32) for field in _OF_VALUES if field in header]
        if min(*sizes, *counts, 0) < 0 or at + sizes[1] > end:
            raise ValueError("a page goes beyond its column")
        unpacked, values, at = unpacked + sizes[0], values + sum(counts), at + sizes[1]
    return Pages(unpacked, values)


_Struct = Mapping[int, tuple[int, Any]]
"""Kind and value of each field, by number."""


def _value(struct: _Struct, field: int, kind: int) -> Any:
    """Of this very kind: a reader passes over a field that has another."""
    if field not in struct or struct[field][0] != kind:
        raise ValueError(f"a struct lacks its field {field}")
    return struct[field][1]


def _read_struct(body: bytes, at: int, end: int, *, depth: int) -> tuple[_Struct, int]:
    found: dict[int, tuple[int, Any]] = {}
    number = 0
    while True:
        head, at = _read_byte(body, at, end)
        if not head:
            return found, at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_integer(body, at, end)
        kind = head & 15
        if number in found:
            raise ValueError("a struct has a field twice")
        value: Any = None
        if kind not in _BOOLEANS:
            value, at = _read_value(body, at, end, kind, depth + 1)
        found[number] = kind, value


def _read_value(body: bytes, at: int, end: int, kind: int, depth: int) -> tuple[Any, int]:
    """The value, where it matters here, and where it ends."""
    if depth > _DEEPEST:
        raise ValueError("structs are nested too deeply")
    if kind in _INTEGERS:
        return _read_integer(body, at, end)
    if kind == _STRUCT:
        return _read_struct(body, at, end, depth=depth)
    if kind in (_LIST, _SET):
        head, at = _read_byte(body, at, end)
        count, at = _read_varint(body, at, end) if head >> 4 == 15 else (head >> 4, at)
        return _read_items(body, at, end, count, [head & 15], depth)
    if kind == _MAP:
        count, at = _read_varint(body, at, end)
        kinds, at = _read_byte(body, at, end) if count else (0, at)
        return _read_items(body, at, end, count, [kinds >> 4, kinds & 15], depth)
    length = {_BYTE: 1, _DOUBLE: 8}.get(kind)
    if kind == _BINARY:
        length, at = _read_varint(body, at, end)
    if length is None or at + length > end:
        raise ValueError("a value has no kind, or breaks off")
    return None, at + length


def _read_items(body: bytes, at: int, end: int, count: int, kinds: list[int], depth: int) -> tuple[Any, int]:
    items = []
    for _ in range(count):  # each takes a byte at least: what breaks off ends it
        for kind in kinds:
            item, at = _read_value(body, at, end, _BYTE if kind in _BOOLEANS else kind, depth + 1)
            items.append(item)
    return items, at


def _read_byte(body: bytes, at: int, end: int) -> tuple[int, int]:
    if not 0 <= at < end:
        raise ValueError("a struct breaks off")
    return body[at], at + 1


def _read_varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte, at = _read_byte(body, at, end)
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number does not end")


def _read_integer(body: bytes, at: int, end: int) -> tuple[int, int]:
    value, at = _read_varint(body, at, end)
    return (value >> 1) ^ -(value & 1), at
