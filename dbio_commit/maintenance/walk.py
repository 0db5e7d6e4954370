"""Walks a table's directories, some (a share) at a time, each share with the paths that a snapshot has in it.

So a table of any size takes the same memory, if no directory is large by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.subtrees import Subtrees
from dbio_commit.store import Store
from dbio_commit.store.contract import Listing
from dbio_commit.store.many import CONCURRENCY

SHARE_ROWS = 100_000
"""About how many rows of files are in memory at once. There are a few for each file: that it was added, removed, …"""

_PAGE = 1000
"""How many objects one request lists."""

_FEW = 5
"""If ranges can be listed, and there are fewer directories than this, those below them are divided."""

FEWEST_RANGES, _IN_A_RANGE, _IN_A_LARGE_RANGE = 8, 5000, 12_500
"""For a store that lists ranges: the fewest ranges of directories into which a table is divided, and how many more live
files add one range, if the table has few files, and if it has many. Each range begins a page of its own."""


class Levels(NamedTuple):
    """The top levels of a table's directories, which are listed, and the level below them, which is not."""

    listed: Mapping[str, Listing]
    """The objects and directories directly in each directory of the top levels."""
    below: Sequence[str]
    """The directories of the next level, in the order of their prefixes. Without those that readers skip."""


class Share(NamedTuple):
    """Some directories with all that is below them."""

    directories: Sequence[str]
    """The directories: all of one level, neighbours in the order of their prefixes."""
    has_top: bool
    """Whether the share also has the objects in the top levels, and paths in no directory that was listed."""
    snapshot: Snapshot
    """The state, with the paths in this share. The state of a small table has all paths."""


def list_levels(
    store: Store,
    snapshot: Snapshot | None = None,
    *,
    enough: int | None = None,
    report: Callable[[int], None] = lambda listed: None,
) -> Levels:
    """Lists the top levels, until there are `enough` directories to divide: by default one for each parallel request,
    or `_FEW` if the store lists ranges.

    If the snapshot has too many files below one of the directories, it lists one more level. `report` is called after
    each level with the number of objects so far.
    """
    enough = enough or (_FEW if store.lists_ranges else CONCURRENCY)
    level = [""]
    listed: dict[str, Listing] = {}
    count = 0
    while level == [""] or 0 < len(level) < enough or (snapshot is not None and _are_too_large(level, snapshot)):
        listings = store.ask_each(store.list_directory, level)
        below: list[str] = []
        for directory, listing in zip(level, listings, strict=True):
            listed[directory] = listing
            below += filter(names.is_data_file, listing.directories)
            count += len(listing.entries)
        level = below
        report(count)
    return Levels(listed, sorted(level, key=_prefix))


def groups_of(snapshot: Snapshot, directories: Sequence[str]) -> list[Sequence[str]]:
    """The directories in groups of about `SHARE_ROWS`. They are sorted by prefix, and so are the groups."""
    weights = snapshot.weigh(directories) if directories else []
    if sum(weights) <= SHARE_ROWS:
        return [directories] if directories else []
    starts, total = [0], 0.0
    for i, weight in enumerate(weights):
        if total and total + weight > SHARE_ROWS:
            starts.append(i)
            total = 0.0
        total += weight
    return [directories[start:stop] for start, stop in pairwise([*starts, len(directories)])]


def divide(snapshot: Snapshot, below: Sequence[str]) -> Iterator[Share]:
    """Divides a table with these directories below its top levels. A small table is one share.

    Each path of the table is in one share. The first share has the objects in the top levels.
    """
    groups = groups_of(snapshot, below)
    if len(groups) <= 1:
        yield Share(below, True, snapshot.below(Subtrees((), is_rest=True)))
        return
    within = [Subtrees(below, is_rest=True), *map(Subtrees, groups)]
    each = snapshot.each_below(within)  # no reference to a share stays while the next one is read
    for i, directories in enumerate([(), *groups]):
        yield Share(directories, i == 0, next(each))


def ranges_of(store: Store, share: Share, *, files: int) -> list[Sequence[str]]:
    """The directories of a share in groups, each of which `Store.list_below` lists at once.

    `files` is the number of live files of the whole table.
    """
    in_a_range = min(max(_IN_A_RANGE, files // CONCURRENCY), _IN_A_LARGE_RANGE)
    here = len(share.snapshot.files)
    fewest = FEWEST_RANGES if share.has_top else 1
    return store.neighbours(share.directories, max(fewest, min(CONCURRENCY, here // in_a_range)))


def walk(store: Store, snapshot: Snapshot) -> Iterator[tuple[Share, list[Entry]]]:
    """Each share of a table, with all objects in its directories and below.

    Leaves out objects behind symbolic links, and directories of the top levels that readers skip.
    """
    levels = list_levels(store, snapshot)
    files = len(snapshot.files)
    for share in divide(snapshot, levels.below):
        entries = [entry for it in levels.listed.values() for entry in it.entries] if share.has_top else []
        for found in store.ask_each(store.list_below, ranges_of(store, share, files=files)):
            entries += found
        yield share, entries
        del share, entries  # before the next share is read


def each_object(store: Store, snapshot: Snapshot) -> Iterator[Entry]:
    """All objects of a table, one after the other, also those in directories that readers skip."""
    if store.has_directories or not snapshot.checkpoint.is_root:
        yield from store.each_file()  # on a disk, also what is behind symbolic links
        return
    levels = list_levels(store, snapshot)
    for listing in levels.listed.values():
        yield from listing.entries
        for directory in listing.directories:
            if not names.is_data_file(directory):
                yield from store.list_files(directory)
    for directories in groups_of(snapshot, levels.below):
        for found in store.ask_each(store.list_below, store.neighbours(directories, CONCURRENCY)):
            yield from found


def _are_too_large(level: Sequence[str], snapshot: Snapshot) -> bool:
    """Whether a directory has too many rows, which the level below divides, at the cost of few requests."""
    depth = level[0].count("/") + 1 if level else 0
    if not 0 < depth < len(snapshot.partition_columns):
        return False
    weights = snapshot.weigh(sorted(level, key=_prefix))
    return max(weights) > 2 * SHARE_ROWS and len(level) * _PAGE * 10 < sum(weights)


def _prefix(directory: str) -> str:
    return f"{directory}/"
