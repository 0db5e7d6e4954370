"""Recognizes footers that differ from others only in numbers, texts and bounds, as most in a directory do. Pure.

A footer that was read, and is whole, becomes patterns: one for each kind of column chunk, and the bytes before and
after the row groups. Where a pattern lets bytes differ, neither `chunks` nor pyarrow would come to another result. So a
footer that matches is whole, too, and has the same columns. Regular expressions find that in a tenth of the time.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dbio_commit.data.chunks import ROW_GROUPS, ROWS, SCHEMA, Leaf, footer_in, leaves_in, problems_of_bounds
from dbio_commit.data.thrift import (
    BINARY,
    BOOLEANS,
    INT16,
    LIST,
    NUMBERS,
    STRUCT,
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
"""Bytes. A longer text takes two bytes for its length, is rare, and matches no pattern."""
_TEXT = b"(?>%s)" % b"|".join(re.escape(bytes([length])) + b".{%d}" % length for length in range(_LONGEST + 1))

_EXACT = {(3, 1), (3, 2), (3, 4)}
"""Where no byte may differ: Thrift's numbers of the type, the encodings and the codec in a column chunk."""
_STATISTICS = (3, 12)
"""The same numbers of the statistics."""

_NEXT_LIST = 16 | LIST
"""The head of a field that is a list and has the next number, as row groups after the number of rows."""


class Recognized(NamedTuple):
    """What a footer says that was recognized."""

    rows: int
    columns: Mapping[str, Any]
    ids: FieldIds


class _Kind(NamedTuple):
    """What decides how a column chunk may look. Equal kinds share patterns."""

    type: int
    width: int
    has_range: bool
    definitions: int
    repetitions: int


class _Frame(NamedTuple):
    """A footer without its number of rows and its row groups, and what follows from it."""

    head: bytes
    """Up to the number of rows, with the head of that field."""
    tail: bytes
    leaves: Sequence[tuple[_Kind | None, Leaf]]
    columns: Mapping[str, Any]
    ids: FieldIds


class _Field(NamedTuple):
    number: int
    kind: int
    start: int
    """Where its head starts."""
    content: int
    """Where its content starts."""
    stop: int


class KnownFooters:
    """The patterns of footers that were whole. Threads may share it."""

    def __init__(self) -> None:
        self._frames: tuple[_Frame, ...] = ()
        self._patterns: dict[_Kind | None, tuple[re.Pattern[bytes], ...]] = {}
        """Of chunks by kind; with None, of what row groups have after their chunks."""

    def find(self, end: bytes) -> Recognized | None:
        """What a footer says, in the last bytes of a file; None if it is not recognized."""
        start, stop = footer_in(end)
        for frame in self._frames if start >= 0 else ():
            if end.startswith(frame.head, start):
                try:
                    rows, at = read_integer(end, start + len(frame.head))
                    at = self._skip_groups(frame.leaves, end, at)
                except (IndexError, ValueError):
                    continue
                if rows >= 0 and end[at:stop] == frame.tail:
                    return Recognized(rows, frame.columns, frame.ids)
        return None

    def learn(self, end: bytes, columns: Mapping[str, Any], ids: FieldIds) -> None:
        """Remembers a footer that was read, and is whole; not one that has its fields in an order of its own."""
        start, stop = footer_in(end)
        fields = [*_fields(end, start)]
        if [it.number for it in fields[:4]] != [1, SCHEMA, ROWS, ROW_GROUPS] or stop - start > _MOST_BYTES:
            return
        schema = read_struct(end, start, stop)[0]
        leaves = [(_kind_of(leaf), leaf) for leaf in leaves_in(structs(schema, SCHEMA))]
        _, _, rows, groups = fields[:4]
        try:
            self._skip_groups(leaves, end, groups.start, learns=True)
        except (IndexError, ValueError):
            return
        frame = _Frame(end[start : rows.content], end[groups.stop : stop], leaves, columns, ids)
        others = [it for it in self._frames if (it.head, it.tail) != (frame.head, frame.tail)]
        self._frames = (frame, *others[: _MOST_FRAMES - 1])

    def _skip_groups(
        self, leaves: Sequence[tuple[_Kind | None, Leaf]], body: bytes, at: int, *, learns: bool = False
    ) -> int:
        """Where the row groups end. Raises ValueError or IndexError for some that match no pattern."""
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
            if (match := pattern.match(body, at)) is not None:
                if leaf is not None and leaf.range and match.lastindex:
                    told = read_struct(body, *match.span(1))[0]
                    if any(problems_of_bounds(leaf, told)):
                        continue
                return match.end()
        if not learns:
            raise ValueError("no pattern matches")
        after = 0 if kind else 1
        if len(known) < _MOST_PATTERNS:
            self._patterns[kind] = (*known, re.compile(_struct(body, at, kind, after=after), re.DOTALL))
        *_, last = _fields(body, at, after=after)
        return last.stop + 1


def _kind_of(leaf: Leaf) -> _Kind:
    return _Kind(leaf.type, leaf.width, leaf.range is not None, leaf.node.definitions, leaf.node.repetitions)


def _list_of_structs(body: bytes, at: int) -> tuple[int, int]:
    """How many structs a list has, which is the next field, and where they start. Raises ValueError if it is none."""
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


# --- patterns -----------------------------------------------------------------------------------------------------


def _struct(body: bytes, at: int, chunk: _Kind | None, *, path: tuple[int, ...] = (), after: int = 0) -> bytes:
    """A pattern for structs like the one that is read from this place on. `path` has the numbers of the fields that it
    is in."""
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
        return _bound(chunk.width) if chunk and chunk.width and path[:-1] == _STATISTICS else _TEXT
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
    """No bound, or one of this many bytes."""
    return rb"(?>\x00|%s.{%d})" % (re.escape(bytes([width])), width) if width <= _LONGEST else rb"\x00"
