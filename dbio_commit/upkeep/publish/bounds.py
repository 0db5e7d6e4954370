"""How much of a publication is read, and written: who may write there must not take a reader's memory or time. Pure.

What the package writes keeps to the same bounds. The version of a table of six million files, about as many as a
checkpoint of its markers can name, has 1.4 GB without statistics, and its paths take 1.4 GB of memory.
"""

from collections.abc import Collection, Iterable, Iterator
from sys import getsizeof
from typing import Final, TypeVar

from msgspec import MsgspecError, json

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry

_T = TypeVar("_T")

MOST_BYTES: Final = 2 * 1024**3
"""Of one object."""

MOST_BYTES_TOGETHER: Final = 2 * MOST_BYTES
"""Of the versions of a Delta log since its last checkpoint."""

MOST_LINE_BYTES: Final = 16 * 1024**2
"""Of one line; the longest of an honest publication has the columns of the table."""

MOST_PATHS_BYTES: Final = 2 * 1024**3
"""Of memory, of all paths that one state has: about ten million."""

_SLOT_BYTES: Final = 50
"""What a path takes beside its text, in a set that grows; what a row of a checkpoint without one counts for."""

LINE_BYTES: Final = 100
"""What a line takes beside its text, in a set that grows."""

_RATIO: Final = 100
"""Of what the paths of a Delta checkpoint take to its size: 4 to 20 in those that the package writes."""

_AT_ONCE, _LONG = 10_000, 1000
"""So many paths are checked together; a long one, which may be one that no marker has, without delay."""


def most_unpacked(packed_bytes: int) -> int:
    """How much memory the paths of a Delta checkpoint of this size may take."""
    return min(MOST_PATHS_BYTES, 1024**2 + _RATIO * packed_bytes)


class Paths:
    """Collects the paths that one object names, checked: all stay inside the table, and there are not too many."""

    def __init__(self, where: str, most: int | None = None) -> None:
        """`where` is the URL of the object."""
        self._where, self._left = where, MOST_PATHS_BYTES if most is None else most
        self._new: list[str] = []
        self._found: set[str] = set()

    def add(self, path: str) -> None:
        """Raises CorruptMarkerError where it is too much, or no path inside the table."""
        self._take(getsizeof(path) + _SLOT_BYTES)
        self._new.append(path)
        if len(self._new) >= _AT_ONCE or len(path) > _LONG:
            self._check()

    def pass_over(self, rows: int) -> None:
        """Counts rows that have no path, too: they take time."""
        self._take(_SLOT_BYTES * rows)

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise too_much(self._where)

    def found(self) -> frozenset[str]:
        self._check()
        return frozenset(self._found)

    def _check(self) -> None:
        names.check_paths(self._new, where=self._where)
        self._found.update(self._new)
        self._new = []


def decode_lines(decoder: json.Decoder[_T], lines: Iterable[bytes], what_is_wrong: str, next_step: str) -> Iterator[_T]:
    """What each line says that is not empty. Raises CorruptMarkerError, in these words."""
    try:
        for line in lines:
            if not line.isspace():
                yield decoder.decode(str(line, "utf-8"))  # msgspec looks into no text that it passes over
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptMarkerError(f"{what_is_wrong} ({error!s:.200}); {next_step}") from None


def memory_of(paths: Collection[str]) -> int:
    """What they take in memory, in a set."""
    return sum(map(getsizeof, paths)) + _SLOT_BYTES * len(paths)


def too_much(where: str) -> CorruptMarkerError:
    return CorruptMarkerError(
        f"{where} says more than any publisher writes, and is not read to its end; find out who wrote it, and publish "
        "again once it is gone"
    )


def refuse_large(entries: Iterable[Entry], *, most: int, where: str) -> None:
    """Raises CorruptMarkerError where objects have more bytes together than are read; `where` says what they are."""
    if (size := sum(entry.size for entry in entries)) > most:
        raise CorruptMarkerError(
            f"{where} has {size} bytes, and {most} are read at most; find out who wrote that, and publish again once "
            "it is gone"
        )


def refuse_unreadable(body: bytes, *, beside: int = 0, where: str) -> None:
    """Raises InvalidInputError for the body of a publication that nobody would read back.

    `beside` is how many bytes are read together with it.
    """
    if len(body) > MOST_BYTES or len(body) + beside > MOST_BYTES_TOGETHER:
        raise InvalidInputError(
            f"{where} would have {len(body)} bytes beside {beside}, and nothing was published: {MOST_BYTES} are read "
            f"at most, {MOST_BYTES_TOGETHER} together; compact the table into fewer files, or publish it in another "
            "format"
        )
