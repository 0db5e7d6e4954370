"""Computes with paths for stores: common prefixes, what lies below directories, directories from the deepest up."""

import os.path
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from dbio_commit.base.errors import InvalidInputError, StoreError
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import split

_NO_NAMES = {"", ".", ".."}


def common_start(names: Sequence[str]) -> str:
    """The longest text that all of the names start with."""
    return os.path.commonprefix(names)  # noqa: RUF071  (of characters: names are no paths of directories here)


def within(entries: Sequence[Entry], directories: Collection[str]) -> list[Entry]:
    """The entries that lie below one of the directories."""
    wanted, depths = set(directories), {directory.count("/") + 1 for directory in directories}
    return [it for it in entries if any("/".join(it.path.split("/", depth)[:depth]) in wanted for depth in depths)]


def remove_upwards(paths: Iterable[str], remove: Callable[[str], bool]) -> list[str]:
    """Calls `remove` for the directories, the deepest first, and for the parent of each that it returned True for.

    Returns the directories for which it returned True. Never calls it for the root or a directory above. Raises the
    first StoreError of `remove` after it has called it for all. Raises InvalidInputError for a path with an empty
    component, "." or "..".
    """
    by_depth: defaultdict[int, set[str]] = defaultdict(set)
    for path in filter(None, paths):
        components = path.split("/")
        if not _NO_NAMES.isdisjoint(components):
            raise InvalidInputError(f"{path!r} is not the path of a directory below the root; nothing was removed")
        by_depth[len(components)].add(path)
    removed: list[str] = []
    errors: list[StoreError] = []
    for depth in range(max(by_depth, default=0), 0, -1):
        for path in sorted(by_depth[depth]):
            try:
                if remove(path):
                    removed.append(path)
                    by_depth[depth - 1].add(split(path)[0])
            except StoreError as error:
                errors.append(error)
    if errors:
        raise errors[0]
    return removed
