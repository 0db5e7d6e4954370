"""Limits on the size of publications that dbio reads and writes. Pure.

They bound the memory and time that the objects of other writers can take.

dbio's own publications keep to the same limits. For comparison, one checkpoint can name about six million files. A
version of a table with so many has 1.4 GB without statistics, and its paths take 1.4 GB of memory.
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
"""The most bytes of one object."""

MOST_BYTES_TOGETHER: Final = 2 * MOST_BYTES
"""The most bytes of all versions of a Delta log since its last checkpoint."""

MOST_LINE_BYTES: Final = 16 * 1024**2
"""The most bytes of one line. The longest line of a publication has the columns of the table."""

MOST_PATHS_BYTES: Final = 2 * 1024**3
"""The most memory for all paths of one state: about ten million paths."""

_SLOT_BYTES: Final = 50
"""The memory for a path besides its text, in a growing set. A row of a checkpoint without a path counts as much."""

LINE_BYTES: Final = 100
"""The memory for a line besides its text, in a growing set."""

_RATIO: Final = 100
"""The most memory for the paths of a Delta checkpoint, as a multiple of its size. dbio's own have 4 to 20."""

_AT_ONCE, _LONG = 10_000, 1000
"""This many paths are checked together. A longer path, which may be one that no marker has, is checked at once."""


def most_unpacked(packed_bytes: int) -> int:
    """The most memory that the paths of a Delta checkpoint of this size may take."""
    return min(MOST_PATHS_BYTES, 1024**2 + _RATIO * packed_bytes)


class NamedPaths:
    """Collects and checks the paths that one object names: each is inside the table, and there are not too many."""

    def __init__(self, where: str, most: int | None = None) -> None:
        """`where` is the URL of the object."""
        self._where, self._left = where, MOST_PATHS_BYTES if most is None else most
        self._new: list[str] = []
        self._found: set[str] = set()

    def add(self, path: str) -> None:
        """Raises CorruptMarkerError if there are too many paths, or for a path outside the table."""
        self._take(getsizeof(path) + _SLOT_BYTES)
        self._new.append(path)
        if len(self._new) >= _AT_ONCE or len(path) > _LONG:
            self._check()

    def pass_over(self, rows: int) -> None:
        """Counts rows without a path: they take time, too."""
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
    """Decodes each line that is not empty. Raises CorruptMarkerError with the texts `what_is_wrong` and `next_step`."""
    try:
        for line in lines:
            if not line.isspace():
                yield decoder.decode(str(line, "utf-8"))  # msgspec does not check text that it skips
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptMarkerError(f"{what_is_wrong} ({error!s:.200}); {next_step}") from None


def memory_of(paths: Collection[str]) -> int:
    """The memory that these paths take in a set."""
    return sum(map(getsizeof, paths)) + _SLOT_BYTES * len(paths)


def too_much(where: str) -> CorruptMarkerError:
    return CorruptMarkerError(
        f"{where} has more than any publisher writes, and is not read to its end; find out who wrote it, and publish "
        "again once it is gone"
    )


def refuse_large(entries: Iterable[Entry], *, most: int, where: str) -> None:
    """Raises CorruptMarkerError if objects together have more bytes than are read. `where` names them."""
    if (size := sum(entry.size for entry in entries)) > most:
        raise CorruptMarkerError(
            f"{where} has {size} bytes, and {most} are read at most; find out who wrote so much, and publish again "
            "once these objects are gone"
        )


def refuse_unreadable(body: bytes, *, beside: int = 0, where: str) -> None:
    """Raises InvalidInputError for the body of a publication that is too large to be read back.

    `beside` is how many bytes are read together with it.
    """
    if len(body) > MOST_BYTES or len(body) + beside > MOST_BYTES_TOGETHER:
        raise InvalidInputError(
            f"nothing was published: {where} would have {len(body)} bytes, and would be read together with {beside} "
            f"bytes of others; dbio reads at most {MOST_BYTES} bytes of one object, and {MOST_BYTES_TOGETHER} of all "
            "together: compact the table into fewer files, or publish it in another format"
        )
