"""Checks whether readers can read the column chunks that a file's footer describes. Pure.

This check comes before pyarrow. If a chunk is encrypted, has an unknown codec or contradicts the schema, pyarrow throws
an exception that nothing catches, and the process ends.
"""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import NamedTuple

from dbio_commit.data.thrift import BINARY, INT32, LIST, STRUCT, Struct, read_struct, structs, value

_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
"""Parquet's codecs, by number."""

_NOT_SPARKS = {"BROTLI", "LZO"}
"""Codecs that Spark does not have. All readers know Hadoop's own LZ4, for which pyarrow has no name."""

_ENCODINGS = {0, *range(2, 10)}

SCHEMA, ROWS, ROW_GROUPS = 2, 3, 4
"""Thrift's numbers of these fields of a footer."""
_COLUMNS, _METADATA, _CRYPTO, _ENCRYPTED = 1, 3, 8, 9
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 2, 3, 4, 5, 6, 10
_CHUNK_TYPE, _CHUNK_ENCODINGS, _CODEC, _STATISTICS, _SIZES = 1, 2, 4, 12, 16
_BOUNDS = (1, 2, 5, 6)
"""Thrift's numbers of these fields: the old max and min, then the new ones."""
_BYTE_LENGTHS, _REPETITIONS, _DEFINITIONS = 1, 2, 3

_BYTE_ARRAY, _FIXED = 6, 7
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""The bytes of a bound, by Parquet's type: boolean, int32, int64, int96, float and double."""

_REQUIRED, _REPEATED = 0, 2
_DEEPEST = 1000
_MOST = 1000
"""At most this many problems of one file are collected."""

_DAY = 86_400
_FIRST, _LAST = (date.min - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days
_UNITS = {1: 1_000, 2: 1_000_000, 3: 1_000_000_000}
"""How many of a time unit are in a second, by the unit's number."""
_DATE, _TIMESTAMP, _TIMESTAMP_UNIT = 6, 8, 2
_CONVERTED_DATE, _CONVERTED_TIMESTAMPS = 6, {9: 1_000, 10: 1_000_000}


class _Node(NamedTuple):
    """A node of the schema's tree, with its Parquet levels."""

    name: bytes
    above: "_Node | None"
    depth: int
    definitions: int
    repetitions: int


class Leaf(NamedTuple):
    """A column without fields."""

    node: _Node
    type: int
    width: int
    """The length of a bound in bytes; 0 if it has no fixed length."""
    range: tuple[int, int] | None
    """The first and the last value in the years 1 to 9999 of a date or timestamp."""


def check_chunks(end: bytes) -> list[str]:
    """Problems in words, with the column: what some reader cannot read. `end` has the last bytes of a file, with the
    whole footer.

    Raises ValueError if the footer is damaged.
    """
    return check_footer(decode_footer(end))


def check_footer(footer: Struct) -> list[str]:
    """As `check_chunks`, for a footer that is decoded already."""
    leaves = list(leaves_in(structs(footer, SCHEMA)))
    found: dict[str, None] = {}
    for group in structs(footer, ROW_GROUPS):
        chunks = structs(group, _COLUMNS)
        if len(chunks) != len(leaves):
            raise ValueError(f"a row group has {len(chunks)} columns, and the schema {len(leaves)}")
        for leaf, chunk in zip(leaves, chunks, strict=True):
            for problem in _of_chunk(leaf, chunk):
                found[problem] = None
        if len(found) > _MOST:
            break
    return list(found)


def first_codec(end: bytes) -> str | None:
    """Parquet's name of the codec of the first column chunk; None if there is no chunk. Raises ValueError."""
    for group in structs(decode_footer(end), ROW_GROUPS)[:1]:
        for chunk in structs(group, _COLUMNS)[:1]:
            codec = value(value(chunk, _METADATA, STRUCT), _CODEC, INT32)
            return _CODECS[codec] if 0 <= codec < len(_CODECS) else None
    return None


def decode_footer(end: bytes) -> Struct:
    """The footer in the last bytes of a file. Raises ValueError."""
    start, stop = footer_in(end)
    return read_struct(end, start, stop)[0]


def footer_in(end: bytes) -> tuple[int, int]:
    """The offsets of the footer's start and end in the last bytes of a file. A negative start: a part is missing."""
    stop = len(end) - 8
    return stop - int.from_bytes(end[-8:-4], "little"), stop


def _of_chunk(leaf: Leaf, chunk: Struct) -> Iterator[str]:
    """The problems of a chunk. Raises ValueError if it contradicts itself or the schema."""
    if _CRYPTO in chunk or _ENCRYPTED in chunk or _METADATA not in chunk:
        yield f"column {_path(leaf)!r:.200} is encrypted, and readers have no key: write it without encryption"
        return
    metadata = value(chunk, _METADATA, STRUCT)
    if value(metadata, _CHUNK_TYPE, INT32) != leaf.type:
        raise ValueError(f"column {_path(leaf)!r:.200} is of another type than the schema says")
    codec = value(metadata, _CODEC, INT32)
    if not 0 <= codec < len(_CODECS):
        yield f"column {_path(leaf)!r:.200} is compressed by codec {codec}, which is unknown to readers: {_OTHER_CODEC}"
    elif _CODECS[codec] in _NOT_SPARKS:
        yield f"it is compressed by {_CODECS[codec]}, which Spark does not read: {_OTHER_CODEC}"
    for encoding in value(metadata, _CHUNK_ENCODINGS, LIST):
        if not isinstance(encoding, int):
            raise ValueError(f"column {_path(leaf)!r:.200} has encodings that are no numbers")
        if encoding not in _ENCODINGS:
            yield f"column {_path(leaf)!r:.200} has an encoding that is unknown to readers: write it plain"
            break
    if _STATISTICS in metadata:
        yield from problems_of_bounds(leaf, value(metadata, _STATISTICS, STRUCT))
    if _SIZES in metadata:
        _check_sizes(leaf, value(metadata, _SIZES, STRUCT))


_OTHER_CODEC = "write it with snappy, zstd, gzip or lz4"


def problems_of_bounds(leaf: Leaf, statistics: Struct) -> Iterator[str]:
    if not leaf.width:
        return
    for field in _BOUNDS:
        raw = value(statistics, field, BINARY) if field in statistics else b""
        if not raw:
            continue
        if len(raw) < leaf.width:
            raise ValueError(f"column {_path(leaf)!r:.200} has bounds that break off")
        if leaf.range is not None:
            first, last = leaf.range
            if not first <= int.from_bytes(raw[: leaf.width], "little", signed=True) <= last:
                yield (
                    f"column {_path(leaf)!r:.200} holds days outside of the years 1 to 9999, such as infinity, which "
                    "not all readers have: write null, or another day"
                )
                return


def _check_sizes(leaf: Leaf, sizes: Struct) -> None:
    """Raises ValueError if the size statistics have not as many counts as the column has levels."""
    node = leaf.node
    for field, levels in ((_REPETITIONS, node.repetitions), (_DEFINITIONS, node.definitions)):
        if field in sizes and len(value(sizes, field, LIST)) not in (0, levels + 1):
            raise ValueError(f"column {_path(leaf)!r:.200} has counts for other levels of nesting than the schema has")
    if _BYTE_LENGTHS in sizes and leaf.type != _BYTE_ARRAY:
        raise ValueError(f"column {_path(leaf)!r:.200} has lengths of texts, and is no column of texts")


# --- the schema ---------------------------------------------------------------------------------------------------


def leaves_in(elements: Sequence[Struct]) -> Iterator[Leaf]:
    """The leaves, in order. Raises ValueError if the elements are no tree."""
    if not elements:
        raise ValueError("it has no schema")
    rest = [(_Node(b"", None, 0, 0, 0), _children(elements[0]))]
    """Nodes whose children are still to come, the innermost last."""
    for element in elements[1:]:
        while rest and not rest[-1][1]:
            rest.pop()
        if not rest:
            raise ValueError("its schema has more columns than it says")
        above, count = rest[-1]
        rest[-1] = above, count - 1
        kind = value(element, _REPETITION, INT32) if _REPETITION in element else _REQUIRED
        node = _Node(
            value(element, _NAME, BINARY), above, above.depth + 1,
            above.definitions + (kind != _REQUIRED), above.repetitions + (kind == _REPEATED),
        )  # fmt: skip
        if not _REQUIRED <= kind <= _REPEATED or node.depth > _DEEPEST:
            raise ValueError("its schema is of no known kind, or nested too deeply")
        if children := _children(element):
            rest.append((node, children))
        elif _TYPE in element:
            yield _leaf(node, element)
    if any(count for _, count in rest):
        raise ValueError("its schema breaks off")


def _children(element: Struct) -> int:
    count: int = value(element, _CHILDREN, INT32) if _CHILDREN in element else 0
    if count < 0:
        raise ValueError("its schema breaks off")
    return count


def _leaf(node: _Node, element: Struct) -> Leaf:
    kind = value(element, _TYPE, INT32)
    if kind not in _WIDTHS and kind not in (_BYTE_ARRAY, _FIXED):
        raise ValueError(f"its schema has a type {kind}, which is unknown to readers")
    width = value(element, _LENGTH, INT32) if kind == _FIXED else _WIDTHS.get(kind, 0)
    return Leaf(node, kind, width, _range(element) if kind in (1, 2) else None)


def _range(element: Struct) -> tuple[int, int] | None:
    logical = value(element, _LOGICAL, STRUCT) if _LOGICAL in element else {}
    converted = value(element, _CONVERTED, INT32) if _CONVERTED in element else None
    if _DATE in logical or (not logical and converted == _CONVERTED_DATE):
        return _FIRST, _LAST
    parts = None if logical else _CONVERTED_TIMESTAMPS.get(converted or 0)
    if _TIMESTAMP in logical:
        unit = value(value(logical, _TIMESTAMP, STRUCT), _TIMESTAMP_UNIT, STRUCT)
        parts = next((_UNITS.get(number) for number in unit), None)
    return None if parts is None else ((_FIRST - 1) * _DAY * parts, (_LAST + 2) * _DAY * parts - 1)  # in any zone


def _path(leaf: Leaf) -> str:
    names: list[str] = []
    node: _Node | None = leaf.node
    while node is not None and node.above is not None:
        names.append(node.name[:100].decode(errors="replace"))
        node = node.above
    return ".".join(reversed(names))
