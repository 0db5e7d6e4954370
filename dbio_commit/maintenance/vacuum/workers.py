"""Lists a table's directories and deletes its garbage: many requests, in threads, or spread over other machines.

`table_plan` and `directory_plan` decide what is garbage.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from functools import partial
from itertools import groupby
from typing import NamedTuple, Protocol, TypeVar

from dbio_commit.base.errors import StoreError
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.vacuum.report import Control
from dbio_commit.maintenance.walk import FEWEST_RANGES, Levels, Share, list_levels, ranges_of
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.store import Store
from dbio_commit.store.many import CONCURRENCY

_T = TypeVar("_T")
_R = TypeVar("_R")

_BATCHES_AT_ONCE = 16
"""Batches of deletions between two checks whether to stop."""

_UNITS_AT_ONCE = 8 * CONCURRENCY
"""Units of directories to list between two checks whether to stop."""


class Listed(NamedTuple):
    """The content of a directory, without live files."""

    directory: str
    entries: Sequence[Entry]
    live: int
    """The number of live files that were left out."""
    directories: Sequence[str]
    """The directories directly below. Empty in a store without real directories."""


class Stopped(Exception):
    """The caller stopped the vacuum between two batches."""


class Spread(Protocol):
    """Calls a function for each item, on other machines, and returns the results in the order of the items."""

    def __call__(self, function: Callable[[_T], _R], items: Sequence[_T], /) -> Iterable[_R]: ...


class Workers:
    """Lists and deletes: with `spread` if it is given, else in threads of this process."""

    def __init__(self, store: Store, control: Control, spread: Spread | None) -> None:
        self._store, self._control, self._spread = store, control, spread
        self._listed = 0

    def list_levels(self, snapshot: Snapshot | None = None) -> Levels:
        """The top levels of the directories, except those that readers skip."""
        return list_levels(
            self._store, snapshot, enough=1 if self._spread else None, report=partial(self._count, since=self._listed)
        )

    def list_share(self, levels: Levels, share: Share, *, live: Set[str], files: int) -> Iterator[Listed]:
        """All directories of a share of a table with so many live files: the top levels first, then whole subtrees in
        parallel. Leaves out `live` files."""
        yield from self._list(levels, share.has_top, ranges_of(self._store, share, files=files), live)

    def list_tree(self) -> Iterator[Listed]:
        """All directories except those that readers skip."""
        levels = self.list_levels()
        yield from self._list(levels, True, self._store.neighbours(levels.below, FEWEST_RANGES), frozenset())

    def _list(self, levels: Levels, has_top: bool, groups: Sequence[Sequence[str]], live: Set[str]) -> Iterator[Listed]:
        keep = _LeaveOut(live)
        for directory, listing in levels.listed.items() if has_top else ():
            yield keep(directory, listing.entries, listing.directories)
        units = [(unit, [path for top in unit for path in keep.below(top)]) for unit in groups]
        for found in self._on_workers(partial(list_below, self._store), units):
            yield from found
            self._count(sum(len(it.entries) + it.live for it in found), since=self._listed)

    def _count(self, listed: int, *, since: int) -> None:
        self._listed = since + listed
        self.report("listing", self._listed, None)

    def delete(self, paths: Sequence[str]) -> Iterator[tuple[Sequence[str], dict[str, StoreError]]]:
        """Deletes in batches. After each group of batches, yields its paths and the failures among them."""
        size, done = self._store.delete_batch, 0
        for group in chunks(paths, size * _BATCHES_AT_ONCE):
            if self._spread is None:
                failures = self._store.delete_many(group)
            else:
                parts = self._on_workers(partial(delete, self._store), chunks(group, size))
                failures = {path: error for part in parts for path, error in part.items()}
            yield group, failures
            done += len(group)
            self.report("deleting", done, len(paths))

    def _on_workers(self, function: Callable[[_T], _R], items: Sequence[_T]) -> Iterator[_R]:
        """The function's results in order; between groups of them the caller may stop it."""
        if self._spread is not None:
            yield from self._spread(function, items)
            return
        for group in chunks(items, _UNITS_AT_ONCE):
            yield from self._store.ask_each(function, group)

    def report(self, phase: str, done: int, total: int | None) -> None:
        """Reports progress between two batches. Raises Stopped if the caller stops the vacuum."""
        self._control.progress(phase, done, total)
        if self._control.stop():
            raise Stopped


class _LeaveOut:
    """Live files by directory, so that each worker gets only those of its directories."""

    def __init__(self, live: Collection[str]) -> None:
        self._live = live
        self._by_top: dict[tuple[str, ...], list[str]] = {}
        self._depth = -1

    def __call__(self, directory: str, entries: Sequence[Entry], directories: Sequence[str]) -> Listed:
        return leave_out(directory, entries, directories, self._live)

    def below(self, unit: str) -> list[str]:
        """The live files below a directory. Calls are fast if their directories have the same depth."""
        depth = unit.count("/") + 1
        if depth != self._depth:
            self._by_top, self._depth = {}, depth
            for path in self._live:
                self._by_top.setdefault(tuple(path.split("/", depth)[:depth]), []).append(path)
        return self._by_top.get(tuple(unit.split("/")), [])


def leave_out(directory: str, entries: Sequence[Entry], directories: Sequence[str], live: Collection[str]) -> Listed:
    kept = [entry for entry in entries if entry.path not in live]
    return Listed(directory, kept, len(entries) - len(kept), directories)


def list_below(store: Store, unit: tuple[Sequence[str], Collection[str]]) -> list[Listed]:
    """The contents of some directories and all below them. `unit` has these directories, and the live files below."""
    tops, live = unit[0], frozenset(unit[1])
    if not store.has_directories:
        entries = [e for e in store.list_below(tops) if _is_readable(names.split(e.path)[0])]
        entries.sort(key=_directory)
        return [leave_out(path, list(found), (), live) for path, found in groupby(entries, key=_directory)]
    listed: list[Listed] = []
    level = [*tops]
    while level:
        directory = level.pop()
        listing = store.list_directory(directory)
        listed.append(leave_out(directory, listing.entries, listing.directories, live))
        level += filter(names.is_data_file, listing.directories)
    return listed


def _is_readable(directory: str) -> bool:
    return not directory or names.is_data_file(directory)


def _directory(entry: Entry) -> str:
    return names.split(entry.path)[0]


def chunks(items: Sequence[_T], size: int) -> list[Sequence[_T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def delete(store: Store, paths: Sequence[str]) -> dict[str, StoreError]:
    return store.delete_many(paths)
