"""Reads structs of Thrift's compact protocol, the format of Parquet's footers and page headers. Pure.

Field numbers are those of parquet-format's public specification. Each step reads at least one byte, so that any data
ends a read. Truncated data is an error.
"""

from collections.abc import Mapping
from typing import Any

INT16, INT32, INT64, BINARY, LIST, STRUCT = 4, 5, 6, 8, 9, 12
_TRUE, _FALSE, _BYTE, _DOUBLE, _SET, _MAP = 1, 2, 3, 7, 10, 11
NUMBERS, BOOLEANS = (INT64, INT32), (_TRUE, _FALSE)
_DEEPEST = 16
_MOST_ITEMS = 1_000_000
"""pyarrow has the same limit."""

Struct = Mapping[int, tuple[int, Any]]
"""The kind and value of each field, by field number."""


def read_struct(body: bytes, at: int, end: int) -> tuple[Struct, int]:
    """The struct at this offset, and the offset of its end. Raises ValueError."""
    if not 0 <= at < end <= len(body):
        raise ValueError("a struct breaks off")
    try:
        found, at = _read_struct(body, at, 0)
    except IndexError as error:
        raise ValueError("a struct breaks off") from error
    if at > end:
        raise ValueError("a struct breaks off")
    return found, at


def value(struct: Struct, field: int, kind: int) -> Any:
    """The value of a field of this kind; a field of another kind is ignored, as readers do. Raises ValueError."""
    if field not in struct or struct[field][0] != kind:
        raise ValueError(f"a struct lacks its field {field}")
    return struct[field][1]


def structs(struct: Struct, field: int) -> list[Struct]:
    """The value of a field that is a list of structs. Raises ValueError."""
    items: list[Struct] = value(struct, field, LIST)
    if items and not isinstance(items[0], dict):  # all items of a list have one kind
        raise ValueError(f"the field {field} holds no structs")
    return items


def _read_struct(body: bytes, at: int, depth: int) -> tuple[Struct, int]:
    """Short numbers and texts, the most frequent values, are read here without a call. If a text is truncated, the end
    of the struct is missing, too, which is an error.
    """
    found: dict[int, tuple[int, Any]] = {}
    number = 0
    item: Any
    while True:
        head = body[at]
        at += 1
        if not head:
            return found, at
        if head > 15:
            number += head >> 4
        else:
            number, at = read_integer(body, at)
        if number in found:
            raise ValueError("a struct has a field twice")
        kind = head & 15
        if kind in NUMBERS:
            item = body[at]
            if item < 128:
                item, at = (item >> 1) ^ -(item & 1), at + 1
            else:
                item, at = read_integer(body, at)
        elif kind == BINARY and body[at] < 128:
            start = at + 1
            at = start + body[at]
            item = body[start:at]
        elif kind in BOOLEANS:
            item = kind == _TRUE
        else:
            item, at = read_value(body, at, kind, depth + 1)
        found[number] = kind, item


def read_value(body: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise ValueError("structs are nested too deeply")
    if kind == BINARY:
        length, at = read_varint(body, at)
        return _slice(body, at, length)
    if kind == STRUCT:
        return _read_struct(body, at, depth)
    if kind in (LIST, _SET):
        head = body[at]
        at += 1
        count, at = read_varint(body, at) if head > 239 else (head >> 4, at)
        return _read_items(body, at, count, (head & 15,), depth)
    if kind == _MAP:
        count, at = read_varint(body, at)
        if not count:
            return [], at
        return _read_items(body, at + 1, count, (body[at] >> 4, body[at] & 15), depth)
    if kind in NUMBERS or kind == INT16:
        return read_integer(body, at)
    if kind == _DOUBLE:
        return _slice(body, at, 8)
    if kind == _BYTE or kind in BOOLEANS:  # a boolean in a list takes a byte
        return body[at], at + 1
    raise ValueError("a value has no kind")


def _read_items(body: bytes, at: int, count: int, kinds: tuple[int, ...], depth: int) -> tuple[list[Any], int]:
    if count > _MOST_ITEMS:
        raise ValueError(f"a list has {count} items")
    items: list[Any] = []
    item: Any
    if kinds == (STRUCT,) and depth < _DEEPEST:
        for _ in range(count):
            item, at = _read_struct(body, at, depth + 1)
            items.append(item)
        return items, at
    if len(kinds) == 1 and kinds[0] in NUMBERS and depth < _DEEPEST:  # short numbers are read here without a call
        for _ in range(count):
            item = body[at]
            if item < 128:
                item, at = (item >> 1) ^ -(item & 1), at + 1
            else:
                item, at = read_integer(body, at)
            items.append(item)
        return items, at
    for _ in range(count):  # each item takes at least a byte, so that data which breaks off ends the loop
        for kind in kinds:
            item, at = read_value(body, at, kind, depth + 1)
            items.append(item)
    return items, at


def _slice(body: bytes, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(body):
        raise ValueError("a value breaks off")
    return body[at : at + length], at + length


def read_varint(body: bytes, at: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, 70, 7):
        byte = body[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
    raise ValueError("a number does not end")


def read_integer(body: bytes, at: int) -> tuple[int, int]:
    found, at = read_varint(body, at)
    return (found >> 1) ^ -(found & 1), at
