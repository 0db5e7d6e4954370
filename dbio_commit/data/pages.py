"""Measures how much the columns of a Parquet file contain, by the headers of their pages. Pure.

A footer may record wrong sizes, and few bytes may unpack to gigabytes. Readers use the headers of pages. This module
does without pyarrow, which crashes if a footer contradicts itself.
"""

from collections.abc import Collection
from typing import NamedTuple

from dbio_commit.data.thrift import INT32, INT64, STRUCT, Struct, read_struct, structs, value

_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3
_COMPRESSED_SIZE, _DATA_OFFSET, _DICTIONARY_OFFSET = 7, 9, 11
_PAGE_UNCOMPRESSED, _PAGE_COMPRESSED, _VALUES = 2, 3, 1
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8
_OF_VALUES = (_DATA, _DICTIONARY, _DATA_V2)
"""The fields with the header of a data page, a dictionary page, and a data page of version 2."""

_ENCODING = {_DATA: 2, _DATA_V2: 4}
"""The field with the encoding of the values."""

_TAIL_BYTES = 8
"""The length of the footer, and `PAR1`."""


class Pages(NamedTuple):
    """The contents of the pages of some columns together."""

    unpacked_bytes: int
    values: int
    """All values, with nulls, and those of dictionaries."""
    encodings: frozenset[int] = frozenset()
    """Parquet's numbers of the encodings of data pages."""


def footer_bytes(body: bytes) -> int:
    return int.from_bytes(body[-_TAIL_BYTES : -_TAIL_BYTES // 2], "little")


def measure(body: bytes, columns: Collection[int]) -> Pages:
    """The contents of the columns with these indices, in all row groups. Raises ValueError for a file that cannot be
    read."""
    end = len(body) - _TAIL_BYTES
    footer, _ = read_struct(body, end - footer_bytes(body), end)
    unpacked, values, encodings = 0, 0, frozenset[int]()
    for group in structs(footer, _ROW_GROUPS):
        chunks = structs(group, _COLUMNS)
        for column in columns:
            pages = measure_pages(body, *_place(chunks[column] if column < len(chunks) else {}))
            unpacked, values = unpacked + pages.unpacked_bytes, values + pages.values
            encodings |= pages.encodings
    return Pages(unpacked, values, encodings)


def places(end: bytes) -> list[list[tuple[int, int]]]:
    """The offsets at which each column chunk of each row group begins and ends. `end` has the last bytes of the file,
    with the whole footer. Raises ValueError."""
    stop = len(end) - _TAIL_BYTES
    return places_in(read_struct(end, stop - footer_bytes(end), stop)[0])


def places_in(footer: Struct) -> list[list[tuple[int, int]]]:
    """As `places`, for a footer that is decoded already."""
    return [[*map(_place, structs(group, _COLUMNS))] for group in structs(footer, _ROW_GROUPS)]


def _place(chunk: Struct) -> tuple[int, int]:
    metadata = value(chunk, _METADATA, STRUCT)
    start: int = value(metadata, _DATA_OFFSET, INT64)
    if _DICTIONARY_OFFSET in metadata and 0 < (first := value(metadata, _DICTIONARY_OFFSET, INT64)) < start:
        start = first
    return start, start + value(metadata, _COMPRESSED_SIZE, INT64)


def measure_pages(body: bytes | memoryview, at: int, end: int) -> Pages:
    """The contents of the pages between two places. Raises ValueError."""
    if not 0 <= at <= end <= len(body):
        raise ValueError("a column lies outside of the file")
    body = body if isinstance(body, bytes) else bytes(body)
    unpacked, values, encodings = 0, 0, set[int]()
    while at < end:
        header, at = read_struct(body, at, end)
        sizes = [value(header, field, INT32) for field in (_PAGE_UNCOMPRESSED, _PAGE_COMPRESSED)]
        counts = [value(value(header, field, STRUCT), _VALUES, INT32) for field in _OF_VALUES if field in header]
        if min(*sizes, *counts, 0) < 0 or at + sizes[1] > end:
            raise ValueError("a page goes beyond its column")
        encodings |= {value(value(header, it, STRUCT), _ENCODING[it], INT32) for it in _ENCODING if it in header}
        unpacked, values, at = unpacked + sizes[0], values + sum(counts), at + sizes[1]
    return Pages(unpacked, values, frozenset(encodings))
