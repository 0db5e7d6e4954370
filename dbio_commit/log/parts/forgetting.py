"""Finds the rows that a checkpoint adds to parts if it forgets paths, or resolves references.

Reads the parts one slice (a range of keys) after the other, so that a table of any size takes the same memory.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from dbio_commit.log.parts import rows
from dbio_commit.log.parts.commits import StoredCommits, without_files
from dbio_commit.log.parts.news import Changes, changes, places
from dbio_commit.log.parts.slices import Placed, SlicedNews
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import in_order
from dbio_commit.protocol.checkpoint import lossy_until, may_be_forgotten, without_gone
from dbio_commit.protocol.commits import Decided, Forgotten, latest
from dbio_commit.protocol.markers.bodies import MOST
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker
from dbio_commit.protocol.parts import State
from dbio_commit.protocol.references import resolve
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import UNKNOWN_SIZE, live_files

_BY_REFERENCE = 1 << 30
"""The place of all paths that a marker removes by reference: after the paths that it names."""


class NewRows(NamedTuple):
    """Rows of files, in the order of their keys, with their statistics."""

    files: pa.Table
    statistics: pa.Table | None


class ChangedCommits(NamedTuple):
    """The new rows of transactions, and since when all states are known."""

    table: pa.Table
    known_since: datetime | None


class Forgetting:
    """The next state of a table with parts. Read all `slices` before the other methods are called."""

    def __init__(
        self, old: StoredCommits, news: Sequence[Decided], transactions: Sequence[Decided], gone: Container[str]
    ) -> None:
        """`transactions` has all transactions in their order; those of `old` are outlines, without paths. `gone` has
        the removed files that are deleted: only removed files are looked up in it."""
        self._old, self._news, self._transactions, self._gone = old, news, transactions, gone
        self._new = {commit.tid: commit for commit in news}
        referring = [commit for commit in transactions if commit.marker.removed_tids]
        self._infos: dict[str, CommitInfo | None] = {it.tid: it.marker.dbio_commit for it in referring}
        """What each transaction with references records, as far as the slices have resolved it."""
        self._named = {it.tid: frozenset(it.marker.removed_tids) for it in referring}
        self._referenced = frozenset[str]().union(*self._named.values())
        self._left: set[str] = set()
        """The transactions that still have paths."""
        self._counts: defaultdict[str, _Sums] = defaultdict(_Sums)
        self._removed: set[tuple[str, str]] = set()
        """Pairs of tids: the first transaction removes files of the second by reference."""
        self._lossy: datetime | None = None
        self._files = self._bytes = self._unknown = 0
        self._hides = False

    @property
    def loses(self) -> bool:
        """Whether any path is forgotten."""
        return self._lossy is not None

    def slices(self) -> Iterator[NewRows]:
        """The new rows of files."""
        sliced = SlicedNews(self._news)
        for window in self._old.files.windows():
            yield self._slice(window.table, sliced.placed_within(window.low, window.high))

    def commits(
        self, number: int, *, noted: Collection[str], keep_since: datetime, known_since: datetime | None
    ) -> ChangedCommits:
        """The rows of transactions for the checkpoint with this number, and since when all states are known."""
        old = self._old
        known_since = latest(known_since, self._lossy)
        kept = [
            commit
            for commit in map(self._resolved, self._in_order())
            if commit.tid in self._left
            or not may_be_forgotten(commit, noted=noted, keep_since=keep_since, known_since=known_since)
        ]
        placed = places(kept, old.keys)
        new: list[tuple[Decided, rows.Key, rows.Counts]] = []
        moved = {it.tid: placed[it.tid] for it in kept if it.tid in old.tids and placed[it.tid] != old.keys[it.tid]}
        for commit in kept:
            sums = self._counts[commit.tid]
            if commit.tid not in old.tids:
                lost = Forgotten(commit.forgotten.added + sums.lost_added, commit.forgotten.removed + sums.lost_removed)
                counts = rows.Counts(sums.added, sums.removed)
                new.append((commit._replace(forgotten=lost), placed[commit.tid], counts))
        table = pa.concat_tables(
            [
                rows.commits_table(new, number, {}),
                self._changed([it for it in kept if it.tid in old.tids], placed, number),
                rows.moved_commits(
                    old.table, {tid: key for tid, key in moved.items() if not self._is_changed(tid)}, number
                ),
                rows.forgotten_commits(sorted(old.tids - {commit.tid for commit in kept}), number),
            ]
        )
        return ChangedCommits(table, known_since)

    def state(self, layouts: Collection[Layout]) -> State:
        """The numbers and sizes of all files, as the root records them."""
        return State(
            files=self._files,
            bytes=min(self._bytes, MOST),
            unknown=self._unknown,
            layouts=sorted(map(list, layouts)),
            absent=sorted({tid for info in self._infos.values() if info for tid in info.removed_tids or ()}),
            hides=self._hides,
        )

    # --- slices ---------------------------------------------------------------------------------------------------

    def _slice(self, table: pa.Table, news: Sequence[Placed]) -> NewRows:
        touched = self._touched(table, news)
        self._count_live(table.filter(pc.invert(touched)))
        table = table.filter(touched)
        before = self._old.some(table) if self._infos else self._old.named(table)
        resolved = resolve([*before, *(it.commit for it in news)])
        gone = {path for commit in resolved for path in commit.marker.removed if path in self._gone}
        self._lossy = latest(self._lossy, lossy_until(resolved, gone))
        adders = self._find_adders(resolved)
        known = {commit.tid: commit for commit in before}
        files: list[rows.FileRow] = []
        described: list[Decided] = []
        after: list[Decided] = []
        for whole in resolved:
            commit, was = without_gone(whole, gone), known.get(whole.tid)
            if commit.marker.added or commit.marker.removed:
                self._left.add(commit.tid)
                after.append(commit)
            if commit.tid in self._infos:
                self._infos[commit.tid] = commit.marker.dbio_commit
                named = self._named[commit.tid]
                self._removed.update(
                    (commit.tid, of) for path in whole.marker.removed for of in adders.get(path, ()) if of in named
                )
            if was is not None and was.marker is commit.marker:
                continue
            change = changes(was, commit)
            files += [*change.gone, *change.new]
            described.append(commit)
            self._counts[commit.tid].add(was, commit, change, self._new.get(commit.tid))
        self._add_up(after)
        found = rows.files_table(files)
        return NewRows(_Places(news).put_right(found), rows.statistics_table(found, described))

    def _touched(self, table: pa.Table, news: Sequence[Placed]) -> Any:
        """For each row whether a path of its name may be removed or added twice, by parts or by the news.

        Each other row adds a live path, and stays.
        """
        paths = (path for it in news for path in (*it.commit.marker.added, *it.commit.marker.removed))
        wanted = [rows.texts({names.split(path)[1] for path in paths})]
        special = pc.or_(pc.is_valid(table["removed"]), pc.is_valid(table["writer"]))
        special = pc.or_(special, rows.is_among(table["tid"], self._referenced))
        wanted += table["name"].filter(special).chunks
        return pc.is_in(table["name"], value_set=pa.concat_arrays(wanted))

    def _count_live(self, live: pa.Table) -> None:
        self._files += live.num_rows
        self._bytes += pc.sum(live["size"]).as_py() or 0
        self._unknown += live["size"].null_count
        self._left.update(rows.listed(rows.dictionary(live["tid"]).unique()))

    def _add_up(self, commits: Sequence[Decided]) -> None:
        live = live_files(commits)
        self._files += len(live)
        self._bytes += sum(max(file.size, 0) for file in live)
        self._unknown += sum(file.size == UNKNOWN_SIZE for file in live)
        added = {path for commit in commits for path in commit.marker.added}
        self._hides = self._hides or any(path not in added for commit in commits for path in commit.marker.removed)

    def _find_adders(self, commits: Sequence[Decided]) -> Mapping[str, Sequence[str]]:
        """For each path the transactions that added it, among those to which others refer."""
        found: dict[str, list[str]] = {}
        for commit in commits:
            for path in commit.marker.added if commit.tid in self._referenced else ():
                found.setdefault(path, []).append(commit.tid)
        return found

    # --- transactions ---------------------------------------------------------------------------------------------

    def _resolved(self, commit: Decided) -> Decided:
        if commit.tid not in self._infos:
            return commit
        own, resolved = commit.marker.dbio_commit, self._infos[commit.tid]
        assert own
        assert resolved
        info = replace(own, version=resolved.version, removed_tids=resolved.removed_tids)
        return commit._replace(marker=replace(commit.marker, dbio_commit=info))

    def _in_order(self) -> Sequence[Decided]:
        """All transactions. A transaction that removes files by reference comes after the one that added them."""
        if not self._removed:
            return self._transactions
        order = {commit.tid: commit for commit in self._transactions}
        added, removed = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for one, other in sorted(self._removed):
            removed[one].append(f"{one}/{other}")
            added[other].append(f"{one}/{other}")
        linked = [
            it._replace(
                marker=CommitMarker(
                    added=[*it.marker.added, *added[it.tid]],
                    removed=[*it.marker.removed, *removed[it.tid]],
                    dbio_commit=without_files(it.marker.dbio_commit),
                )
            )
            if it.tid in added or it.tid in removed
            else it
            for it in self._transactions
        ]
        return [order[commit.tid] for commit in in_order(linked)]

    def _is_changed(self, tid: str) -> bool:
        sums = self._counts[tid]
        return tid in self._infos and (bool(sums.removed or sums.lost_removed) or self._infos[tid] != self._told[tid])

    @property
    def _told(self) -> Mapping[str, CommitInfo | None]:
        return {it.tid: it.marker.dbio_commit for it in self._transactions if it.tid in self._infos}

    def _changed(self, commits: Sequence[Decided], placed: Mapping[str, rows.Key], number: int) -> pa.Table:
        """The new rows of known transactions whose references have removed more paths."""
        changed = {commit.tid: commit for commit in commits if self._is_changed(commit.tid)}
        table = rows.moved_commits(self._old.table, {tid: placed[tid] for tid in changed}, number)
        found = []
        for row in rows.listed(table):
            sums = self._counts[row["tid"]]
            more = {"removed": row["removed"] + sums.removed}
            more["forgotten_removed"] = row["forgotten_removed"] + sums.lost_removed
            found.append({**row, **more, "info": rows.info_text(changed[row["tid"]])})
        return pa.Table.from_pylist(found, rows.COMMITS)


class _Sums:
    """The numbers of paths of one transaction: all of a new one, and those that references add to a known one."""

    def __init__(self) -> None:
        self.added = self.removed = self.lost_added = self.lost_removed = 0

    def add(self, before: Decided | None, after: Decided, change: Changes, new: Decided | None) -> None:
        if new is not None:
            counts = rows.counts_of(after, change.now)
            self.added += counts.added
            self.removed += counts.removed
            self.lost_added += after.forgotten.added - new.forgotten.added
            self.lost_removed += after.forgotten.removed - new.forgotten.removed
        elif before is not None:
            known = rows.file_rows(before)
            had = sum(row.removed is not None for path, row in known.items() if path not in change.now)
            self.removed += sum(row.removed is not None for row in change.new)
            self.lost_removed += after.forgotten.removed - before.forgotten.removed - had


class _Places:
    """The places of paths in the markers of new transactions."""

    def __init__(self, news: Sequence[Placed]) -> None:
        self._added = {it.commit.tid: _first(it.commit.marker.added, it.added) for it in news}
        self._removed = {it.commit.tid: _first(it.commit.marker.removed, it.removed) for it in news}

    def put_right(self, files: pa.Table) -> pa.Table:
        """The new rows, with places in the whole markers instead of places in the slice."""
        if not files.num_rows:
            return files
        columns = [rows.listed(files[name]) for name in ("tid", "added", "removed")]
        added: list[int | None] = []
        removed: list[int | None] = []
        for path, tid, adds, removes in zip(rows.listed(rows.paths_of(files)), *columns, strict=True):
            added.append(None if adds is None else self._added[tid][path])
            removed.append(None if removes is None else self._removed.get(tid, {}).get(path, _BY_REFERENCE))
        for name, values in (("added", added), ("removed", removed)):
            column = pa.chunked_array([pa.array(values, pa.int32())])
            files = files.set_column(files.column_names.index(name), rows.FILES.field(name), column)
        return files


def _first(paths: Sequence[str], places: Sequence[int]) -> dict[str, int]:
    """The place of each path; of a repeated path, the first."""
    return dict(zip(reversed(paths), reversed(places), strict=True))
