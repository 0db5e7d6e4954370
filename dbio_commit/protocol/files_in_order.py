"""The live files of a state, in the order of the times of their commits, and totals of files. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from dbio_commit.protocol.state import DataFile, LiveFiles


class Totals(NamedTuple):
    """The number and size of some files."""

    files: int = 0
    bytes: int = 0
    """In bytes, without files of unknown size."""

    def plus(self, other: "Totals") -> "Totals":
        return Totals(self.files + other.files, self.bytes + other.bytes)

    def less(self, other: "Totals") -> "Totals":
        return Totals(self.files - other.files, self.bytes - other.bytes)


class FilesInOrder(ABC):
    """The live files of a state, in the order of the times of their commits."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def some(self, start: int, stop: int | None = None) -> Iterator[DataFile]:
        """The files from place `start` to before `stop`."""

    @abstractmethod
    def bytes_from(self, start: int) -> int:
        """The size of the files from a place on, in bytes."""


class FilesInMemory(FilesInOrder):
    def __init__(self, files: LiveFiles) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def some(self, start: int, stop: int | None = None) -> Iterator[DataFile]:
        return (self._files[place] for place in range(*slice(start, stop).indices(len(self))))

    def bytes_from(self, start: int) -> int:
        return self._sizes[-1] - self._sizes[start]

    @cached_property
    def _sizes(self) -> Sequence[int]:
        """For each place the size of all files before it, and at last that of all files."""
        return [*accumulate((max(file.size, 0) for file in self._files), initial=0)]
