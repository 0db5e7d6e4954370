"""Measures how well a table is clustered: the share of its bytes in which a value of a column lies, and loose files."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.texts import label
from dbio_commit.data.clustering import fitted_columns
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.compact.placed import placed_files
from dbio_commit.maintenance.compact.runs import Edge, Range
from dbio_commit.maintenance.figures import files_text
from dbio_commit.protocol.settings import Settings, cluster_columns

MOST_FILES = 20_000
"""If there are more files, shares are computed from a sample of at most so many."""

USELESS = 0.9
"""If values of a column lie in a larger share of the bytes although nothing is loose, conditions on it leave out hardly
any file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """How well a table with `cluster_by` is clustered. Sizes are in bytes."""

    columns: Sequence[str]
    """The columns of `cluster_by`."""
    shares: Sequence[float]
    """For each of them: in what share of the bytes a value lies, on average. 1 is all bytes."""
    runs: int
    """How many compactions, in how many partitions, wrote the clustered files. Each more makes the shares larger."""
    loose_files: int
    """Files that the next compaction rewrites."""
    loose_size: int
    """Their size."""
    other_files: int
    """Files that are clustered by other columns. They stay so until a compaction with `full`."""
    other_size: int
    """Their size."""
    problem: str = ""
    """Why the table cannot be clustered by these columns; then nothing else is known."""

    @property
    def useless(self) -> Sequence[str]:
        """The columns by which conditions leave out hardly any file, although nothing is loose."""
        if self.loose_files or self.other_files:
            return ()
        return [name for name, share in zip(self.columns, self.shares, strict=True) if share > USELESS]

    def sentences(self) -> list[str]:
        """The measurements in words."""
        if self.problem:
            return [self.problem]
        loose, other = files_text(self.loose_files, self.loose_size), files_text(self.other_files, self.other_size)
        return [
            *(
                f"a value of {label(name)} is in {share:.0%} of the bytes"
                for name, share in zip(self.columns, self.shares, strict=True)
            ),
            *([f"loose: {loose}, which the next compaction rewrites"] if self.loose_files else ()),
            *(
                [f"clustered by other columns: {other}, which stay until a compaction with `full`"]
                if self.other_files
                else ()
            ),
            *(
                f"conditions on {label(name)} leave out hardly any file: name another column in cluster_by"
                for name in self.useless
            ),
        ]


class SpreadCount:
    """Counts the files of a table, slice by slice."""

    def __init__(
        self, settings: Settings | None, schema: Mapping[str, Any] | None, layout: Sequence[str], *, where: str
    ) -> None:
        self._schema, self._problem = schema, ""
        self._columns: tuple[str, ...] = ()
        try:
            self._columns = cluster_columns(settings)
            if self._columns and schema is not None:
                self._columns = fitted_columns(settings, schema, layout, where=where)
        except InvalidInputError as error:
            self._problem = str(error)
        self._each = [_Column() for _ in self._columns]
        self._runs = set[tuple[str | None, str]]()
        self._files = self._loose_files = self._loose_size = self._other_files = self._other_size = 0
        self._every = 1

    @property
    def is_wanted(self) -> bool:
        """Whether the table is clustered by columns that it has."""
        return bool(self._columns) and not self._problem and self._schema is not None

    def add(self, some: Snapshot) -> None:
        """A slice of the table."""
        if not self.is_wanted or self._schema is None:
            return
        for it in placed_files(some, self._schema, self._columns):
            if it.is_other:
                self._other_files, self._other_size = self._other_files + 1, self._other_size + it.size
            elif it.run is None:
                self._loose_files, self._loose_size = self._loose_files + 1, self._loose_size + it.size
            else:
                self._runs.add((it.run, it.file.path.rpartition("/")[0]))
            self._keep(it.size, it.ranges)

    def _keep(self, size: int, ranges: Sequence[Range | None]) -> None:
        self._files += 1
        if self._files % self._every:
            return
        for column, own in zip(self._each, ranges, strict=True):
            column.files.append((own, size))
        if self._each and len(self._each[0].files) > MOST_FILES:
            self._every *= 2
            for column in self._each:
                del column.files[::2]

    def result(self) -> Clustering | None:
        """The measurements; None if the table is not clustered."""
        if not self._columns and not self._problem:
            return None
        return Clustering(
            columns=self._columns,
            shares=[column.share() for column in self._each],
            runs=len(self._runs),
            loose_files=self._loose_files,
            loose_size=self._loose_size,
            other_files=self._other_files,
            other_size=self._other_size,
            problem=self._problem,
        )


class _Column:
    """The ranges of a column in some files, with the sizes of these files."""

    def __init__(self) -> None:
        self.files: list[tuple[Range | None, int]] = []

    def share(self) -> float:
        """The mean over files of the share of the bytes whose range has the least value of the file."""
        total = sum(size for _, size in self.files)
        if not total:
            return 0.0
        known = [(own, size) for own, size in self.files if own is not None]
        lows, below = _sums([(own.low, size) for own, size in known])
        highs, ended = _sums([(own.high, size) for own, size in known])
        unknown = total - sum(size for _, size in known)
        held = sum(below[bisect_right(lows, own.low)] - ended[bisect_left(highs, own.low)] for own, _ in known)
        return (held + unknown * len(known) + total * (len(self.files) - len(known))) / total / len(self.files)


def _sums(edges: Sequence[tuple[Edge, int]]) -> tuple[list[Edge], list[int]]:
    """The edges in order, and the bytes of the first n of them, for n from 0 on."""
    ordered = sorted(edges)
    return [edge for edge, _ in ordered], [0, *accumulate(size for _, size in ordered)]
