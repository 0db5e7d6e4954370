"""Compares listings with what the markers of a table, or of a directory, record: for `dbio check`.

A large table is compared some directories (a share) at a time. Memory is bounded: only what is wrong, pending or
garbage is kept.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.packed import Entries
from dbio_commit.maintenance.publish.places import DIRECTORIES, is_published
from dbio_commit.maintenance.walk import walk
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided, latest
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import FileStates, Reason, find_markers_below, is_foreign, removed_files
from dbio_commit.protocol.state import UNKNOWN_SIZE, LiveFiles, live_among
from dbio_commit.store import Store

_BRIEFLY = (Reason.PENDING, Reason.UNKNOWN, Reason.UNTRACKED)
"""The reasons of garbage that may be wrong: a transaction may have committed the file while the table was listed."""


CHECKED_AT_ONCE = 100_000
"""How many files are looked up at once in a later state."""


class OtherSize(NamedTuple):
    """A live file of another size than recorded."""

    path: str
    expected: int
    found: int


class Written(NamedTuple):
    """The files that a pending transaction has written."""

    files: int = 0
    size: int = 0
    newest: datetime | None = None
    """The time of its newest file."""
    some: tuple[str, ...] = ()
    """The paths of the first MOST_LOOKED_AT of them that were listed."""

    def plus(self, entry: Entry) -> "Written":
        some = (*self.some, entry.path) if len(self.some) < MOST_LOOKED_AT else self.some
        return Written(self.files + 1, self.size + entry.size, latest(self.newest, entry.modified), some)


MOST_LOOKED_AT = 20
"""How many files of each pending transaction have their footers read."""


@dataclass(slots=True)
class FoundFiles:
    """What the listings show so far."""

    live: int = 0
    size: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    """Live files that do not exist, with the sizes that their markers record."""
    wrong_size: list[OtherSize] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    """Live files without a byte."""
    foreign: Entries = field(default_factory=Entries)
    garbage: dict[Reason, Entries] = field(default_factory=dict)
    published: list[Entry] = field(default_factory=list)
    """The objects in the directories of publications."""
    written: dict[str, Written] = field(default_factory=dict)
    """The files of each pending transaction, by its tid."""

    @classmethod
    def of(cls, pending: Iterable[str]) -> "FoundFiles":
        """The result before any listing. `pending` are the tids of the pending transactions."""
        return cls(written=dict.fromkeys(pending, Written()))

    def compare(
        self, store: Store, entries: Iterable[Entry], *, expected: Mapping[str, int], live: Set[str], foreign: Set[str]
    ) -> None:
        """Compares a listing with the live files of the same directories.

        `expected` are the live files by the markers, with their sizes. `foreign` are the paths that are no data.
        """
        sizes: dict[str, int] = {}
        for entry in entries:
            sizes[entry.path] = entry.size
            if entry.path in foreign and entry.path not in live:
                self.foreign.append(entry)
            writer = names.parse_data_file(names.split(entry.path)[1])
            if writer in self.written and names.is_data_file(entry.path):  # not Hadoop's checksum of a data file
                self.written[writer] = self.written[writer].plus(entry)
        overlooked = store.stat_many([path for path in expected if path not in sizes])  # committed since that listing
        sizes |= {entry.path: entry.size for entry in overlooked if entry}
        self.live += len(live)
        self.size += sum(sizes.get(path, 0) for path in live)
        self.empty += (path for path in live if sizes.get(path) == 0)
        for path, size in expected.items():
            if path not in sizes:
                self.missing[path] = size
            elif size not in (UNKNOWN_SIZE, sizes[path]):
                self.wrong_size.append(OtherSize(path, size, sizes[path]))

    def judge(
        self,
        known: FileStates,
        files: Iterable[Entry],
        *,
        foreign: Set[str] = frozenset(),
        strangers: Collection[tuple[str, str]] = (),
    ) -> None:
        """Finds the garbage among these data files."""
        for entry in files:
            if entry.path not in foreign and (why := known.why_not_live(entry, strangers)):
                self.garbage.setdefault(why.reason, Entries()).append(entry)

    def is_doubtful(self) -> bool:
        """Whether a later state of the table may correct the findings."""
        return bool(self.missing) or not self.garbage.keys().isdisjoint(_BRIEFLY)

    def judge_again(self, later: Snapshot) -> None:
        """Corrects the findings by a state of the table that was read after the listings.

        A file that was committed meanwhile is no garbage, and one that was removed meanwhile is not missing.
        """
        self.missing = {path: self.missing[path] for path in live_among(later.files, self.missing)}
        known, order = _known(later, live=frozenset(), removing=later.news), [*self.garbage]
        for found in [self.garbage.pop(reason, ()) for reason in _BRIEFLY]:
            for start in range(0, len(found), CHECKED_AT_ONCE):
                some = found[start : start + CHECKED_AT_ONCE]
                live = live_among(later.files, {entry.path for entry in some})
                self.judge(replace(known, live=live), some)
        self.garbage = {it: self.garbage[it] for it in dict.fromkeys((*order, *self.garbage)) if it in self.garbage}


def compare_table(store: Store, snapshot: Snapshot, found: FoundFiles) -> Iterator[Snapshot]:
    """Compares a table with the listings of its directories. Yields each slice of the state that it has compared."""
    base = _known(snapshot, live=frozenset())
    for some, entries in _list_shares(store, snapshot):
        expected = {file.path: file.size for file in some.files}
        foreign = {entry.path for entry in entries if is_foreign(entry.path)}
        found.compare(store, entries, expected=expected, live=expected.keys(), foreign=foreign)
        known = replace(base, live=expected.keys(), removed=removed_files(some.decided))
        files = (entry for entry in entries if names.is_data_file(entry.path))
        found.judge(known, files, foreign=foreign, strangers=find_markers_below(entries))
        found.published += (entry for entry in entries if is_published(entry.path))
        yield some


def live_paths(snapshot: Snapshot, without: Set[str]) -> Iterator[str]:
    """The live files except these, slice by slice."""
    for some in snapshot.slices():
        yield from sorted(path for path in LiveFiles.of(some.files).paths() if path not in without)


def _known(snapshot: Snapshot, *, live: Set[str], removing: Sequence[Decided] = ()) -> FileStates:
    """The facts by which a state judges files, of which these are live."""
    found = FileStates.of(snapshot.transactions, live=live, log=snapshot.log, layouts=snapshot.layouts)
    return replace(found, removed=removed_files(removing))


def _list_shares(store: Store, snapshot: Snapshot) -> Iterator[tuple[Snapshot, Sequence[Entry]]]:
    """All files, share by share, with the state of their directories. A small table is one share.

    In a large table on a disk, files behind symbolic links are left out, as vacuum leaves them out.
    """
    if not snapshot.checkpoint.is_root:
        yield snapshot, store.list_files()
        return
    for share, entries in walk(store, snapshot):
        if share.has_top:  # readers skip the directories of publications, and so does the walk
            entries += (entry for some in store.ask_each(store.list_files, [*DIRECTORIES.values()]) for entry in some)
        yield share.snapshot, entries
