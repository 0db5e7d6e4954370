"""Reads the rows of files in parts, one range of keys (a window) after the other, so that memory is bounded."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

import pyarrow as pa

from dbio_commit.log.parts import rows
from dbio_commit.log.parts.parquet import release
from dbio_commit.log.parts.reader import Fetched, PartReader
from dbio_commit.protocol import names
from dbio_commit.protocol.parts import Key, Part
from dbio_commit.protocol.subtrees import Subtrees

WINDOW_ROWS = 60_000
"""About how many rows are in memory at once."""


class _Groups(NamedTuple):
    """Neighbouring row groups of a part."""

    part: Part
    first: int
    last: int

    @property
    def keys(self) -> list[tuple[str, int]]:
        """The name of the part, with the number of each row group."""
        return [(self.part.name, i) for i in range(self.first, self.last + 1)]

    def without(self, kept: Collection[tuple[str, int]]) -> "list[_Groups]":
        """The row groups whose keys are not in `kept`, in runs of neighbours."""
        found: list[_Groups] = []
        for name, i in self.keys:
            if (name, i) not in kept:
                _add(found, self.part, i)
        return found


def _add(runs: list[_Groups], part: Part, i: int) -> None:
    """Adds a row group to the last run, if it is the neighbour of that run, or else as a run of its own."""
    last = runs[-1] if runs else None
    if last and last.part is part and last.last == i - 1:
        runs[-1] = last._replace(last=i)
    else:
        runs.append(_Groups(part, i, i))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The row groups that may have rows of a window."""

    low: Key | None
    high: Key | None
    groups: list[_Groups] = field(default_factory=list)


_AT_ONCE = 4
"""How many runs of row groups are read at once, if few of their rows are kept."""


def _runs(part: Part) -> list[_Groups]:
    """The row groups of a part, in runs of about `WINDOW_ROWS` rows."""
    found: list[_Groups] = []
    count = 0
    for i, group in enumerate(part.groups):
        if found and count < WINDOW_ROWS:
            found[-1] = found[-1]._replace(last=i)
        else:
            found.append(_Groups(part, i, i))
            count = 0
        count += group.rows
    return found


class Window(NamedTuple):
    """The rows whose keys are from `low` on and below `high`; None is no bound."""

    low: Key | None
    high: Key | None
    table: pa.Table


class FileRows:
    """The rows of files in some parts of a root."""

    def __init__(self, reader: PartReader, parts: Sequence[Part]) -> None:
        self._reader, self.parts = reader, parts
        self._numbers = {part.name: i for i, part in enumerate(parts)}

    def since(self, number: int) -> "FileRows":
        """The rows of only those parts that may have transactions which no checkpoint before this number covered.

        The result has all rows of these transactions. Its parts are numbered anew.
        """
        return FileRows(self._reader, [part for part in self.parts if part.until >= number])

    def tables(
        self, may: Callable[[str], bool] | None = None, *, overlaps: Callable[[Key, Key], bool] | None = None
    ) -> Iterator[pa.Table]:
        """The rows in directories for which `may` is true, without forgotten ones, in windows of keys.

        `overlaps` is false if no wanted row is between two keys, inclusive. All rows of a path are in one table. The
        tables also have the columns of `rows.located`.
        """
        return (it.table for it in self.windows(may, overlaps=overlaps) if it.table.num_rows)

    def below(self, within: Subtrees) -> Iterator[pa.Table]:
        """The rows in these directories, as `tables`."""
        return self.tables(within.__contains__, overlaps=lambda first, last: within.may_have(first[0], last[0]))

    def windows(
        self,
        may: Callable[[str], bool] | None = None,
        *,
        overlaps: Callable[[Key, Key], bool] | None = None,
        keep_gone: bool = False,
    ) -> Iterator[Window]:
        """As `tables`. The windows cover all keys, also those without rows. `keep_gone` keeps the rows that mark paths
        as forgotten.
        """
        judged: dict[str, bool] = {}

        def is_hopeful(directory: str) -> bool:
            if may is not None and directory not in judged:
                judged[directory] = may(directory)
            return may is None or judged[directory]

        kept: dict[tuple[str, int], pa.Table] = {}
        for window in self._windows(is_hopeful, overlaps):
            wanted = {key for it in window.groups for key in it.keys}
            kept = {key: table for key, table in kept.items() if key in wanted}
            missing = [some for it in window.groups for some in it.without(kept.keys())]
            for it, table in zip(missing, self._read_all(missing), strict=True):
                ends = [*accumulate(it.part.groups[i].rows for _, i in it.keys)]
                starts = [0, *ends[:-1]]
                kept |= {key: table.slice(start, end - start)
                         for key, start, end in zip(it.keys, starts, ends, strict=True)}  # fmt: skip
            tables = (_within(kept[key], window) for it in window.groups for key in it.keys)
            table = rows.without_gone(rows.together(tables), keep_gone=keep_gone)
            if may is not None:
                table = _in_directories(table, is_hopeful)
            yield Window(window.low, window.high, table)
            del table, tables
            release()

    def of_paths(self, paths: Collection[str]) -> Iterator[pa.Table]:
        """As `tables`: all rows of these paths, and some others. Reads only row groups that may have these paths."""
        keys, directories = _keys_of(paths)

        def overlaps(first: Key, last: Key) -> bool:
            i = bisect_left(keys, (*first,))
            return i < len(keys) and keys[i] <= (*last,)

        return self.tables(directories.__contains__, overlaps=overlaps)

    def of_transactions(self, tids: Mapping[str, int]) -> pa.Table:
        """The rows of transactions, without forgotten ones. `tids` has the first checkpoint that covered each.

        Parts with only older transactions are not read.
        """
        first = min(tids.values(), default=0)
        wanted = [it for part in self.parts if tids and part.until >= first for it in _runs(part)]

        def read(groups: _Groups) -> pa.Table:
            table = self._decode(groups, self._fetch(groups))
            return table.filter(rows.is_among(table["tid"], tids.keys()))

        found = self._reader.store.in_parallel(read, wanted, at_once=_AT_ONCE)
        return rows.without_gone(rows.together(found), keep_gone=False)

    def weigh(self, tops: Sequence[str]) -> list[float]:
        """About how many rows are in each of these directories, and below. The directories are sorted by prefix.

        The rows of a row group are divided among the directories that it may have.
        """
        found = [0.0] * len(tops)
        prefixes = [f"{top}/" for top in tops]
        for part in self.parts if tops else ():
            for group, (first, last) in zip(
                part.groups, pairwise([*(it.first for it in part.groups), part.last]), strict=True
            ):
                ends = sorted(max(bisect_right(prefixes, f"{key[0]}/") - 1, 0) for key in (first, last))
                for i in range(ends[0], ends[1] + 1):
                    found[i] += group.rows / (ends[1] - ends[0] + 1)
        return found

    def _read_all(self, groups: Sequence[_Groups]) -> Iterable[pa.Table]:
        """The rows of each run. This thread decodes them, because memory of other threads is freed late."""
        return map(self._decode, groups, self._reader.store.in_parallel(self._fetch, groups))

    def _fetch(self, groups: _Groups) -> Fetched:
        return self._reader.fetch(groups.part, range(groups.first, groups.last + 1))

    def _decode(self, groups: _Groups, fetched: Fetched) -> pa.Table:
        part = groups.part
        table = self._reader.decode(part, fetched)
        first = sum(group.rows for group in part.groups[: groups.first])
        return rows.located(table, self._numbers[part.name], first=first)

    def _windows(self, is_hopeful: Callable[[str], bool], overlaps: Callable[[Key, Key], bool] | None) -> list[_Wanted]:
        chosen: list[tuple[Part, int]] = []
        for part in self.parts:
            ends = [*(group.first for group in part.groups[1:]), part.last]
            for i, (group, end) in enumerate(zip(part.groups, ends, strict=True)):
                if overlaps is not None and not overlaps(group.first, end):
                    continue
                if group.directories is None or any(map(is_hopeful, group.directories)):
                    chosen.append((part, i))
        bounds = _bounds(chosen)
        windows = [_Wanted(low, high) for low, high in pairwise([None, *bounds, None])]
        for part, i in chosen:
            first, end = _ends(part, i)
            for window in windows[bisect_right(bounds, first) : bisect_right(bounds, end) + 1]:
                _add(window.groups, part, i)
        return windows


def _ends(part: Part, group: int) -> tuple[Key, Key]:
    """The first key of a row group, and the first key of the next one, or the last key of the part."""
    groups = part.groups
    return groups[group].first, groups[group + 1].first if group + 1 < len(groups) else part.last


def _bounds(chosen: Sequence[tuple[Part, int]]) -> list[Key]:
    """The keys between windows. A window ends as soon as row groups with half of `WINDOW_ROWS` rows have ended in it.

    Row groups that end later have about as many rows in the window.
    """
    firsts = sorted({(*part.groups[i].first,) for part, i in chosen})
    ends = sorted(((*_ends(part, i)[1],), part.groups[i].rows) for part, i in chosen)
    found: list[Key] = []
    count = ended = 0
    for first in firsts:
        while ended < len(ends) and ends[ended][0] <= first:
            count += ends[ended][1]
            ended += 1
        if 2 * count >= WINDOW_ROWS:
            found.append([*first])
            count = 0
    return found


def _keys_of(paths: Iterable[str]) -> tuple[list[tuple[str, str]], set[str]]:
    """The keys of the paths, sorted, and their directories. Equal texts are the same object, since there are many."""
    directories: dict[str, str] = {}
    writers: dict[str, str] = {}
    found: set[tuple[str, str]] = set()
    for path in paths:
        directory, name = names.split(path)
        writer = names.parse_data_file(name) or ""
        found.add((directories.setdefault(directory, directory), writers.setdefault(writer, writer)))
    return sorted(found), {*directories}


def _in_directories(table: pa.Table, is_hopeful: Callable[[str], bool]) -> pa.Table:
    directory = rows.dictionary(table["directory"])
    wanted = rows.numbers(map(is_hopeful, rows.listed(directory.dictionary))).cast(pa.bool_())
    return table.filter(wanted.take(directory.indices))


def _within(table: pa.Table, window: _Wanted) -> pa.Table:
    """The rows whose keys are in the window."""
    keys = rows.KeysOf(table)
    start = 0 if window.low is None else keys.first_from(window.low)
    stop = table.num_rows if window.high is None else keys.first_from(window.high)
    return table.slice(start, stop - start)
