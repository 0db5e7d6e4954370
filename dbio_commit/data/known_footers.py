"""Recognizes Parquet footers that differ from a known one only in numbers, texts and bounds, as most do. Pure.

An intact footer that was read becomes patterns: a regular expression for each kind of column chunk, and the bytes
before and after the row groups. Bytes may differ only if `chunks` and pyarrow would come to the same result. So a
footer that matches is intact, too, and has the same columns. A match takes a tenth of the time of a read.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dbio_commit.data.chunks import ROW_GROUPS, ROWS, SCHEMA, Leaf, footer_in, leaves_in, problems_of_bounds
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.data.thrift import (
    BINARY,
    BOOLEANS,
    INT16,
    LIST,
    NUMBERS,
    STRUCT,
    Struct,
    read_integer,
    read_struct,
    read_value,
    read_varint,
    structs,
)
from dbio_commit.protocol.field_ids import FieldIds

_MOST_FRAMES, _MOST_BYTES, _MOST_PATTERNS = 16, 1024 * 1024, 16
"""How many frames are kept, how large their footers may be, and how many patterns are kept for each kind of chunk."""

_NUMBER = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
_LONGEST = 127
"""Bytes of a name. A longer one takes two bytes for its length, is rare, and matches no pattern."""
_TEXT = b"(?>%s)" % b"|".join(re.escape(bytes([length])) + b".{%d}" % length for length in range(_LONGEST + 1))
_CUT = b"(?#text)"
"""Marks where a pattern is cut, because a bound that is a text of any length follows."""

_EXACT = {(3, 1), (3, 2), (3, 4)}
"""The fields of a column chunk of which no byte may differ, by Thrift's numbers: type, encodings and codec."""
_STATISTICS = (3, 12)
"""The field with the statistics of a column chunk, by Thrift's numbers."""

_KEY_VALUES, _KEY, _VALUE = 5, 1, 2
_ARROW_SCHEMA = b"ARROW:schema"

_NEXT_LIST = 16 | LIST
"""The head of a field that is a list and has the next number, as row groups after the number of rows."""


class Recognized(NamedTuple):
    """The content of a recognized footer."""

    rows: int
    columns: Mapping[str, Any]
    ids: FieldIds


class _Kind(NamedTuple):
    """The facts about a column that decide which bytes its chunks may have. Equal kinds share patterns."""

    type: int
    width: int
    has_range: bool
    definitions: int
    repetitions: int


class _Frame(NamedTuple):
    """A footer without its number of rows and its row groups, and the columns that follow from it."""

    head: bytes
    """Up to the number of rows, with the head of that field."""
    tail: bytes
    essence: Sequence[Any]
    """The parts of the tail that decide something: see `_essence`."""
    leaves: Sequence[tuple[_Kind | None, Leaf]]
    columns: Mapping[str, Any]
    ids: FieldIds


_Pattern = tuple[re.Pattern[bytes], ...]
"""The pieces of a pattern. Between each two is a text of any length."""


class _Field(NamedTuple):
    number: int
    kind: int
    start: int
    """Where its head starts."""
    content: int
    """Where its content starts."""
    stop: int


class KnownFooters:
    """The patterns of intact footers. Threads may share it."""

    def __init__(self) -> None:
        self._frames: tuple[_Frame, ...] = ()
        self._patterns: dict[_Kind | None, tuple[_Pattern, ...]] = {}
        """The patterns of chunks by kind; at None, those of the fields that follow the chunks of a row group."""

    def find(self, end: bytes) -> Recognized | None:
        """The content of the footer in the last bytes of a file; None if it is not recognized."""
        start, stop = footer_in(end)
        for frame in self._frames if start >= 0 else ():
            if end.startswith(frame.head, start):
                try:
                    rows, at = read_integer(end, start + len(frame.head))
                    at = self._skip_groups(frame.leaves, end, at)
                    is_same = end[at:stop] == frame.tail or _essence(end, at, stop) == frame.essence
                except (IndexError, ValueError):
                    continue
                if rows >= 0 and is_same:
                    return Recognized(rows, frame.columns, frame.ids)
        return None

    def learn(self, end: bytes, columns: Mapping[str, Any], ids: FieldIds) -> None:
        """Remembers an intact footer that was read. Ignores a footer with an unusual order of fields."""
        start, stop = footer_in(end)
        fields = [*_fields(end, start)]
        if [it.number for it in fields[:4]] != [1, SCHEMA, ROWS, ROW_GROUPS] or stop - start > _MOST_BYTES:
            return
        schema = read_struct(end, start, stop)[0]
        leaves = [(_kind_of(leaf), leaf) for leaf in leaves_in(structs(schema, SCHEMA))]
        _, _, rows, groups = fields[:4]
        try:
            self._skip_groups(leaves, end, groups.start, learns=True)
            essence = _essence(end, groups.stop, stop)
        except (IndexError, ValueError):
            return
        frame = _Frame(end[start : rows.content], end[groups.stop : stop], essence, leaves, columns, ids)
        others = [it for it in self._frames if (it.head, it.essence) != (frame.head, essence)]
        self._frames = (frame, *others[: _MOST_FRAMES - 1])

    def _skip_groups(
        self, leaves: Sequence[tuple[_Kind | None, Leaf]], body: bytes, at: int, *, learns: bool = False
    ) -> int:
        """The offset at which the row groups end. Raises ValueError or IndexError if one matches no pattern."""
        groups, at = _list_of_structs(body, at)
        for _ in range(groups):
            chunks, at = _list_of_structs(body, at)
            if chunks != len(leaves):
                raise ValueError("a row group has other columns")
            for kind, leaf in leaves:
                at = self._skip(kind, leaf, body, at, learns=learns)
            at = self._skip(None, None, body, at, learns=learns)
        return at

    def _skip(self, kind: _Kind | None, leaf: Leaf | None, body: bytes, at: int, *, learns: bool) -> int:
        known = self._patterns.get(kind, ())
        for pattern in known:
            if (stop := _stop_of(pattern, leaf, body, at)) is not None:
                return stop
        if not learns:
            raise ValueError("no pattern matches")
        after = 0 if kind else 1
        if len(known) < _MOST_PATTERNS:
            pieces = _struct(body, at, kind, after=after).split(_CUT)
            self._patterns[kind] = (*known, tuple(re.compile(piece, re.DOTALL) for piece in pieces))
        *_, last = _fields(body, at, after=after)
        return last.stop + 1


def _stop_of(pattern: _Pattern, leaf: Leaf | None, body: bytes, at: int) -> int | None:
    """The offset at which the struct ends, if the pattern matches it; else None."""
    first, *others = pattern
    match = first.match(body, at)
    if match and leaf and leaf.range and match.lastindex and _are_odd(leaf, body, *match.span(1)):
        return None
    for piece in others:
        if match is None:
            return None
        length, at = read_varint(body, match.end())
        match = piece.match(body, min(at + length, len(body)))
    return None if match is None else match.end()


def _are_odd(leaf: Leaf, body: bytes, at: int, stop: int) -> bool:
    """Whether the statistics at this place have bounds that some reader cannot hold."""
    return any(problems_of_bounds(leaf, read_struct(body, at, stop)[0]))


def _kind_of(leaf: Leaf) -> _Kind:
    return _Kind(leaf.type, leaf.width, leaf.range is not None, leaf.node.definitions, leaf.node.repetitions)


def _list_of_structs(body: bytes, at: int) -> tuple[int, int]:
    """The number of structs in the next field, a list, and their offset. Raises ValueError for another field."""
    head = body[at + 1]
    if body[at] != _NEXT_LIST or head & 15 != STRUCT:
        raise ValueError("the next field is no list of structs")
    return read_varint(body, at + 2) if head > 239 else (head >> 4, at + 2)


def _fields(body: bytes, at: int, *, after: int = 0) -> Iterator[_Field]:
    """The fields of a struct that was read before, from this place on. `after` is the number of the field before."""
    number = after
    while head := body[at]:
        start = at
        number, at = (number + (head >> 4), at + 1) if head > 15 else read_integer(body, at + 1)
        kind, content = head & 15, at
        if kind not in BOOLEANS:
            at = read_value(body, at, kind, 0)[1]
        yield _Field(number, kind, start, content, at)


def _essence(body: bytes, at: int, stop: int) -> list[Any]:
    """The fields after the row groups, without metadata that decides nothing. Raises ValueError.

    For example, the metadata that pandas writes has the number of rows.
    """
    found: list[Any] = []
    for it in _fields(body, at, after=ROW_GROUPS):
        if (it.number, it.kind) == (_KEY_VALUES, LIST):
            found += map(_pair, structs({_KEY_VALUES: (LIST, read_value(body, it.content, LIST, 0)[0])}, _KEY_VALUES))
        else:
            found.append(body[it.start : it.stop])
        at = it.stop
    if at + 1 != stop:
        raise ValueError("a footer has more bytes after its end")
    return found


def _pair(pair: Struct) -> Struct:
    """A key with the part of its value that decides something."""
    key, text = pair.get(_KEY), pair.get(_VALUE)
    if text is None or key == (BINARY, ROW_METADATA.encode()):
        return pair
    matters = _plain_arrow(text[1]) if key == (BINARY, _ARROW_SCHEMA) and text[0] == BINARY else None
    return {**pair, _VALUE: (text[0], matters)}


def _plain_arrow(text: bytes) -> bytes:
    """Arrow's schema in a footer, without the schema's metadata; the text itself if it is no schema."""
    import pyarrow as pa

    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).remove_metadata().serialize().to_pybytes()
    except (ValueError, OSError, pa.ArrowException):
        return text


# --- patterns -----------------------------------------------------------------------------------------------------


def _struct(body: bytes, at: int, chunk: _Kind | None, *, path: tuple[int, ...] = (), after: int = 0) -> bytes:
    """A pattern for structs like the one at this offset. `path` has the numbers of the fields around it."""
    parts: list[bytes] = []
    for it in _fields(body, at, after=after):
        head, here = body[it.start : it.content], (*path, it.number)
        if chunk and here in _EXACT:
            parts.append(re.escape(body[it.start : it.stop]))
        elif it.kind in BOOLEANS and len(head) == 1:
            parts.append(b"[%s]" % b"".join(re.escape(bytes([head[0] & 240 | boolean])) for boolean in BOOLEANS))
        else:
            pattern = _content(body, it.content, it.stop, it.kind, chunk, here)
            grouped = b"(%s)" if chunk and chunk.has_range and here == _STATISTICS else b"%s"
            parts.append(re.escape(head) + grouped % pattern)
    return b"".join([*parts, rb"\x00"])


def _content(body: bytes, at: int, stop: int, kind: int, chunk: _Kind | None, path: tuple[int, ...]) -> bytes:
    if kind in (*NUMBERS, INT16):
        return _NUMBER
    if kind == BINARY:
        if chunk is None or path[:-1] != _STATISTICS:
            return _TEXT
        return _bound(chunk.width) if chunk.width else _CUT
    if kind == STRUCT:
        return _struct(body, at, chunk, path=path)
    if kind == LIST:
        head = body[at]
        items, inside = head & 15, read_varint(body, at + 1)[1] if head > 239 else at + 1
        parts = [re.escape(body[at:inside])]
        while inside < stop:
            after = read_value(body, inside, items, 0)[1]
            parts.append(_content(body, inside, after, items, chunk, path))
            inside = after
        return b"".join(parts)
    return re.escape(body[at:stop])


def _bound(width: int) -> bytes:
    """A pattern for no bound, or for a bound of this many bytes."""
    return rb"(?>\x00|%s.{%d})" % (re.escape(bytes([width])), width) if width <= _LONGEST else rb"\x00"
