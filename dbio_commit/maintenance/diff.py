"""Compares two states of a table: `Table.diff`. One slice of a large table is in memory at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CommitConflictError
from dbio_commit.base.shown import Shown
from dbio_commit.log.listing import with_sizes
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf, Decided, recorded_rows
from dbio_commit.protocol.markers.schema import type_text
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import DataFile, LiveFiles, live_files
from dbio_commit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The number, size and rows of some files."""

    files: int = 0
    """How many files."""
    size: int = 0
    """Their size in bytes."""
    rows: int | None = 0
    """Their rows; None if a writer did not record how many rows a file has."""

    def plus(self, file: DataFile, rows: int | None) -> "Total":
        """The total with one more file."""
        both = None if self.rows is None or rows is None else self.rows + rows
        return Total(files=self.files + 1, size=self.size + max(file.size, 0), rows=both)


class Change(NamedTuple):
    """A column or a setting by which two states differ."""

    name: str
    """The name of the column or setting."""
    before: str | None
    """In the first state, as text; None if there was none."""
    after: str | None
    """In the second state, as text; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Difference(Shown):
    """How two states of a table differ."""

    url: str
    """The root of the table."""
    before: str | None
    """The tid of the last commit of the first state; None if it has none."""
    after: str | None
    """The tid of the last commit of the second state; None if it has none."""
    total_before: Total
    """All files of the first state."""
    total_after: Total
    """All files of the second state."""
    removed: Sequence[DataFile]
    """The files that only the first state has."""
    added: Sequence[DataFile]
    """The files that only the second state has."""
    partitions: Mapping[str, tuple[Total, Total]]
    """For each directory in which files differ: the files that only the first state has there, and those that only the
    second has."""
    columns: Sequence[Change]
    """The columns that differ, with their types in Spark's words."""
    settings: Sequence[Change]
    """The settings that differ."""
    layouts: tuple[Layout, Layout]
    """The partition columns of both."""
    commits: Sequence[str] = field(repr=False)
    """The tids of the commits that only one of the states has, oldest first."""

    @property
    def is_empty(self) -> bool:
        """Whether the states have the same files, columns and settings."""
        return not (self.removed or self.added or self.columns or self.settings)


class Slice(NamedTuple):
    """Some of the files of two states of a table."""

    earlier: LiveFiles
    later: Sequence[DataFile]
    decided: Sequence[Decided]
    """The transactions of the later state, with their paths in this slice."""

    @property
    def gone(self) -> Iterator[DataFile]:
        """The files that only the earlier state has."""
        live = {file.path for file in self.later}
        return (file for file in self.earlier if file.path not in live)

    @property
    def came(self) -> Iterator[DataFile]:
        """The files that only the later state has."""
        had = {*self.earlier.paths()}
        return (file for file in self.later if file.path not in had)


def slices_of_both(store: Store, earlier: Snapshot, later: Snapshot) -> Iterator[Slice]:
    """The files of two states, slice by slice. The later state has all commits of the earlier one."""
    tids = {*earlier.tids}
    for part in later.slices():
        had = with_sizes(store, live_files(commit for commit in part.decided if commit.tid in tids))
        yield Slice(had, part.files, part.decided)


def compare_states(store: Store, clock: Clock, first: AsOf, second: AsOf) -> Difference:
    """See `Table.diff`."""
    before, after = read_snapshot(store, clock, as_of=first), read_snapshot(store, clock, as_of=second)
    is_forward = {*before.tids} <= {*after.tids}
    earlier, later = (before, after) if is_forward else (after, before)
    if not {*earlier.tids} <= {*later.tids}:
        raise CommitConflictError(f"{store.url} was changed while its states were read; compare them again")
    totals, each = [Total(), Total()], dict[str, list[Total]]()
    ways: tuple[list[DataFile], list[DataFile]] = [], []
    for part in slices_of_both(store, earlier, later):
        rows = recorded_rows(part.decided)
        for way, files in enumerate((part.earlier, part.later)):
            for file in files:
                totals[way] = totals[way].plus(file, rows.get(file.path))
        for way, some in enumerate((part.gone, part.came)):
            for file in some:
                ways[way].append(file)
                both = each.setdefault(names.split(file.path)[0], [Total(), Total()])
                both[way] = both[way].plus(file, rows.get(file.path))
    one, other = (0, 1) if is_forward else (1, 0)
    known = {*earlier.tids}
    return Difference(
        url=store.url,
        before=before.tid,
        after=after.tid,
        total_before=totals[one],
        total_after=totals[other],
        removed=ways[one],
        added=ways[other],
        partitions={directory: (both[one], both[other]) for directory, both in sorted(each.items())},
        columns=_changes(_types(before.schema), _types(after.schema)),
        settings=_changes(before.settings, after.settings),
        layouts=(before.partition_columns, after.partition_columns),
        commits=[tid for tid in later.tids if tid not in known],
    )


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    both = dict.fromkeys([*before, *after])
    return [Change(it, before.get(it), after.get(it)) for it in both if before.get(it) != after.get(it)]


def _types(schema: Mapping[str, Any] | None) -> Mapping[str, str]:
    return {field["name"]: type_text(field["type"]) for field in (schema or {}).get("fields", ())}
