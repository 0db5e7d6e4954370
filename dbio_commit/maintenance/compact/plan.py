"""Decides which small files become one new file, and which new files are committed together. Pure.

`runs` decides which files of a table with `cluster_by` are rewritten.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dbio_commit.maintenance.compact.options import is_small
from dbio_commit.protocol import names
from dbio_commit.protocol.state import DataFile

COMMIT_BYTES = 16 * 1000**3
COMMIT_FILES = 50_000
"""The most that one commit replaces. It bounds the work that is lost if a process dies, and the paths in the marker."""

CLUSTERED_BYTES = 1000**3
"""The most bytes of groups that share a commit, in a table with `cluster_by`. A larger group has its own commit, so a
conflict costs no work of others."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one directory that become one file, or several among which their rows are divided."""

    files: tuple[DataFile, ...]
    pieces: int = 1
    """The number of new files."""
    rows: tuple[int, ...] = ()
    """About how many rows each of the files has, if there are several new ones."""

    @property
    def directory(self) -> str:
        """The directory of the partition, relative to the root."""
        return names.split(self.files[0].path)[0]

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]

    @property
    def size(self) -> int:
        """In bytes. Files of unknown size count as 0."""
        return sum(_size(file) for file in self.files)


def plan_bins(
    files: Iterable[DataFile],
    *,
    target_size: int,
    in_order: bool = False,
    min_files: int = 1,
    anew: Collection[str] = frozenset(),
) -> list[Bin]:
    """The files to merge, for each directory. A file of at least three quarters of `target_size` stays as it is.

    First fit, in the order given: no two files that stay would fit into one, so that a second plan finds nothing to do.
    Fewer than `min_files` files are not merged. A single file stays, unless rows are to be sorted (`in_order`). The
    files with the paths `anew` are rewritten in any case.
    """
    by_directory: dict[str, list[DataFile]] = {}
    large: dict[str, list[DataFile]] = {}
    for file in files:
        if is_small(file.size, target_size):
            by_directory.setdefault(names.split(file.path)[0], []).append(file)
        elif file.path in anew:
            large.setdefault(names.split(file.path)[0], []).append(file)
    least = max(min_files, 1 if in_order else 2)
    return [
        Bin(tuple(bin))
        for directory in sorted(by_directory.keys() | large.keys())
        for bin in [
            *_first_fit(by_directory.get(directory, ()), target_size),
            *([it] for it in large.get(directory, ())),
        ]
        if len(bin) >= least or any(file.path in anew for file in bin)
    ]


def _first_fit(files: Sequence[DataFile], target_size: int) -> list[list[DataFile]]:
    smallest = min(map(_size, files), default=0)
    bins: list[list[DataFile]] = []
    open_bins: list[tuple[list[DataFile], int]] = []  # bins with room for the smallest file, and their room
    for file in files:
        size = _size(file)
        at = next((i for i, (_, room) in enumerate(open_bins) if size <= room), None)
        if at is None:
            bins.append([])
            open_bins.append((bins[-1], target_size))
            at = len(open_bins) - 1
        bin, room = open_bins[at]
        bin.append(file)
        open_bins[at] = (bin, room - size)
        if room - size < smallest:
            del open_bins[at]
    return bins


def _size(file: DataFile) -> int:
    return max(file.size, 0)


def in_commits(
    bins: Sequence[Bin], *, most_bytes: int = COMMIT_BYTES, most_files: int = COMMIT_FILES
) -> Iterator[list[Bin]]:
    """The bins of each commit, in order: as many as the bounds allow, and at least one."""
    together: list[Bin] = []
    size = count = 0
    for bin in bins:
        if together and (size + bin.size > most_bytes or count + len(bin.files) > most_files):
            yield together
            together, size, count = [], 0, 0
        together.append(bin)
        size, count = size + bin.size, count + len(bin.files)
    if together:
        yield together
