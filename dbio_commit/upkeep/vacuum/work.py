"""Lists a table's directories and deletes its garbage: many requests, in threads, or spread over other machines.

Nothing is decided here: `table_plan` and `directory_plan` say what is garbage.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, Protocol, TypeVar

from dbio_commit.base.errors import StoreError
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.store import Store
from dbio_commit.store.contract import CONCURRENCY
from dbio_commit.upkeep.vacuum.report import Control

_T = TypeVar("_T")
_R = TypeVar("_R")

_BATCHES_AT_ONCE = 16
"""Batches of deletions between two checks whether to stop."""

_FEWEST_RANGES, _IN_A_RANGE = 8, 5000
"""For a store that lists ranges: the fewest ranges of directories into which a table is divided, and how many live
files add one more. Each range begins a page of its own, of 1,000 objects."""

_FEW = 5
"""With fewer directories than this, the directories below them are divided."""

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
    """Does the work: with `spread` if it is given, else in threads of this process."""

    def __init__(self, store: Store, control: Control, spread: Spread | None) -> None:
        self._store, self._control, self._spread = store, control, spread

    def list_tree(self, live: Collection[str] = ()) -> Iterator[Listed]:
        """All directories except those that readers skip: the top levels first, then whole subtrees in parallel."""
        keep = _LeaveOut(live)
        level, listed = [""], 0
        enough = 1 if self._spread else _FEW if self._store.lists_ranges else CONCURRENCY
        while level == [""] or 0 < len(level) < enough:
            listings = self._store.ask_each(self._store.list_directory, level)
            below: list[str] = []
            for directory, listing in zip(level, listings, strict=True):
                yield keep(directory, listing.entries, listing.directories)
                below += filter(names.is_data_file, listing.directories)
                listed += len(listing.entries)
            level = below
            self.report("listing", listed, None)
        in_order = sorted(level, key=lambda directory: f"{directory}/")
        ranges = max(_FEWEST_RANGES, min(CONCURRENCY, len(live) // _IN_A_RANGE))
        groups = self._store.neighbours(in_order, ranges)
        units = [(unit, [path for top in unit for path in keep.below(top)]) for unit in groups]
        for found in self._on_workers(partial(list_below, self._store), units):
            yield from found
            listed += sum(len(it.entries) + it.live for it in found)
            self.report("listing", listed, None)

    def delete(self, paths: Sequence[str]) -> Iterator[tuple[Sequence[str], dict[str, StoreError]]]:
        """Deletes in batches. After each group of batches, gives the paths and the failures among them."""
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
        """The live files below a directory. Fast if all directories that are asked for have the same depth."""
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
