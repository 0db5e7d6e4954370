"""Selects paths of transactions that no part has: those in a range of keys, or in some directories. Pure."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import select_files
from dbio_commit.protocol.markers.files import with_later_bounds
from dbio_commit.protocol.parts import Key


class Placed(NamedTuple):
    """A transaction with some of its paths, and their places in `added` and `removed` of its marker."""

    commit: Decided
    added: Sequence[int]
    removed: Sequence[int]


class SlicedNews:
    """Transactions that no part has (`news`), indexed by the directories of their paths."""

    def __init__(self, news: Sequence[Decided]) -> None:
        self._news = [*map(_with_later_bounds, news)]
        self._places: dict[str, array[int]] = {}
        """For each directory its paths, each packed into one number: place in the marker, commit, and `is_removed`."""
        for i, commit in enumerate(news):
            for is_removed, paths in enumerate((commit.marker.added, commit.marker.removed)):
                for j, path in enumerate(paths):
                    self._places.setdefault(names.split(path)[0], array("q")).append((j << 32 | i) << 1 | is_removed)
        self._directories = sorted(self._places)

    def within(self, low: Key | None, high: Key | None) -> list[Decided]:
        """All transactions, each with its paths whose keys are from `low` on and below `high`. None is no bound."""
        return [it.commit for it in self.placed_within(low, high)]

    def placed_within(self, low: Key | None, high: Key | None) -> "list[Placed]":
        """As `within`, with the places of these paths."""
        start = 0 if low is None else bisect_left(self._directories, low[0])
        some = self._directories[start : None if high is None else bisect_left(self._directories, high[0] + "\0")]

        def is_inside(path: str) -> bool:
            directory, name = names.split(path)
            key = [directory, names.parse_data_file(name) or ""]
            return (low is None or low <= key) and (high is None or key < high)

        return self._choose(some, is_inside)

    def inside(self, may: Callable[[str], bool]) -> list[Decided]:
        """All transactions, each with its paths in directories for which the function is true."""
        return [it.commit for it in self._choose(filter(may, self._directories), lambda path: True)]

    def among(self, paths: Collection[str]) -> list[Decided]:
        """All transactions, each with those of its paths that are among these."""
        directories = {names.split(path)[0] for path in paths}
        return [it.commit for it in self._choose(directories & self._places.keys(), paths.__contains__)]

    def _choose(self, directories: Iterable[str], is_inside: Callable[[str], bool]) -> "list[Placed]":
        added: dict[int, list[int]] = {}
        removed: dict[int, list[int]] = {}
        for place in self._in(directories):
            i, j, is_removed = (place >> 1) & 0xFFFFFFFF, place >> 33, place & 1
            marker = self._news[i].marker
            if is_inside((marker.removed if is_removed else marker.added)[j]):
                (removed if is_removed else added).setdefault(i, []).append(j)
        found: list[Placed] = []
        for i, commit in enumerate(self._news):
            places = sorted(added.get(i, ())), sorted(removed.get(i, ()))
            marker = select_files(commit.marker, added=places[0], removed=places[1])
            found.append(Placed(commit._replace(marker=marker), *places))
        return found

    def _in(self, directories: Iterable[str]) -> Iterator[int]:
        for directory in directories:
            yield from self._places[directory]


def _with_later_bounds(commit: Decided) -> Decided:
    """The commit, whose statistics are decoded on demand: otherwise each slice would decode all of them."""
    info = commit.marker.dbio_commit
    if info is None or info.files is None:
        return commit
    return commit._replace(
        marker=replace(commit.marker, dbio_commit=replace(info, files=with_later_bounds(info.files)))
    )
