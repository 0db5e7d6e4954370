"""Directories with all that is below them."""

from bisect import bisect_right
from collections.abc import Collection


class Subtrees:
    """Some directories and all directories below them; or, if `is_rest`, all others. Paths are from the root."""

    def __init__(self, tops: Collection[str], *, is_rest: bool = False) -> None:
        """`tops` must all have the same number of components, at least one."""
        self._tops, self._is_rest = frozenset(tops), is_rest
        self._depth = next(iter(tops)).count("/") + 1 if tops else 1
        # In the order of texts, what is below `a` is from `a/` on, and before `a0`.
        ranges = sorted(it for top in self._tops for it in ((top, f"{top}\0"), (f"{top}/", f"{top}0")))
        self._starts, self._ends = [start for start, _ in ranges], [end for _, end in ranges]

    def __contains__(self, directory: str) -> bool:
        top = "/".join(directory.split("/", self._depth)[: self._depth])
        return (top in self._tops) != self._is_rest

    def may_have(self, first: str, last: str) -> bool:
        """Whether any of these directories may come between two directories, inclusive, in the order of texts."""
        i = bisect_right(self._ends, first)
        return self._is_rest or (i < len(self._starts) and self._starts[i] <= last)
