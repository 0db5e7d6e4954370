"""Makes the rows of lost parts again: from commit markers, or from a listing of the table.

A source is used only if it certainly has all of the lost rows. Otherwise CannotRebuild says what is in doubt.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from dbio_commit.commit.parts import new_name
from dbio_commit.log.listing import in_parts, read_markers
from dbio_commit.log.parts import merging, news, parquet, rows
from dbio_commit.log.parts.rows import FileRow, listed
from dbio_commit.maintenance.lost_parts import CannotRebuild, Parts, RebuildReader
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import in_order
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import Decided, Forgotten, latest
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.markers.files import ColumnBounds, StoredBounds
from dbio_commit.protocol.parts import Cut, Part, PartKind
from dbio_commit.protocol.references import resolve
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store


@dataclass(frozen=True)
class Evidence:
    """What is known of the table besides the parts."""

    store: Store
    log: Log
    table_id: str
    root: Checkpoint
    """The checkpoint whose parts are lost."""
    entries: Sequence[Entry]
    """The files of the table. They were listed before the log."""
    reader: RebuildReader

    @property
    def number(self) -> int:
        """The number of the checkpoint that is to be written."""
        return self.log.checkpoint_after(self.root.number)

    def decided(self, tids: Collection[str]) -> dict[str, Decided]:
        """These transactions as their commit markers record them. Removals by reference are not resolved."""
        listed = self.log.committed
        absent = sorted(tid for tid in tids if tid not in listed)
        if absent:
            raise CannotRebuild(
                f"{len(absent)} transactions that may have rows in the lost parts have no commit marker any more, "
                f"first {absent[0]}"
            )
        entries = {tid: listed[tid] for tid in sorted(tids)}
        valid: dict[str, CommitMarker] = {}
        for some in in_parts(entries):  # so that their statistics are kept
            valid |= (
                read_markers(self.store, some.values(), scope=Scope.TABLE, table_id=self.table_id).refuse_gone().valid
            )
        if unread := sorted(entry.path for entry in entries.values() if entry.path not in valid):
            raise CannotRebuild(f"the commit marker {unread[0]} cannot be read, or is of another table")
        until = self.root.redated_until
        return {
            tid: Decided(latest(entry.modified, until) or entry.modified, tid, valid[entry.path])
            for tid, entry in entries.items()
        }


class _Unread(StoredBounds):
    """Statistics of which only the columns are known."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns

    def columns(self) -> Collection[str]:
        return self._columns

    def bounds(self, lower: Collection[str] | None = None) -> dict[str, ColumnBounds]:
        return {}

    def select(self, kept: Sequence[int]) -> StoredBounds:
        return self


class _Rows:
    """The rows of intact parts."""

    def __init__(self, reader: RebuildReader, parts: Iterable[Part]) -> None:
        tables: dict[PartKind, list[pa.Table]] = {
            "files": [rows.FILES.empty_table()],
            "commits": [rows.COMMITS.empty_table()],
        }
        for part in parts:
            tables[part.kind].append(reader.table(part))
        self.files = pa.concat_tables(tables["files"])
        self._commits = rows.latest_commits(pa.concat_tables(tables["commits"]), keep_forgotten=True)

    @cached_property
    def commits(self) -> pa.Table:
        """A row for each transaction."""
        return self._commits.filter(pc.invert(self._commits["forgotten"]))

    @cached_property
    def tids(self) -> frozenset[str]:
        """The transactions, also those that were left out later."""
        return frozenset(listed(self._commits["tid"]))

    @cached_property
    def slices(self) -> rows.Slices:
        return rows.slices(rows.located(self.files, 0))

    @cached_property
    def decided(self) -> list[Decided]:
        """The transactions with the paths that are known, without statistics."""
        try:
            commits = rows.commit_rows(self.commits)
            return rows.decode_commits(commits, self.slices, bounds=lambda columns, *_: _Unread(columns))
        except ValueError as error:
            raise CannotRebuild(f"the intact parts contradict each other: {error}") from None

    def paths_of(self, tids: Collection[str]) -> dict[str, set[str]]:
        """All paths of these transactions, also forgotten ones."""
        some = self.files.filter(pc.is_in(self.files["tid"].cast(pa.string()), pa.array(sorted(tids), pa.string())))
        found: dict[str, set[str]] = {tid: set() for tid in tids}
        for tid, directory, name in zip(*(listed(some[it]) for it in ("tid", "directory", "name")), strict=True):
            found[tid].add(names.join(directory, name))
        return found

    def keys(self) -> dict[str, rows.Key]:
        at = listed(self.commits["at"].cast(pa.int64()))
        each = zip(listed(self.commits["tid"]), at, listed(self.commits["rank"]), strict=True)
        return {tid: rows.Key(at, rank) for tid, at, rank in each}


def _with_part(known: Evidence, state: Parts, lost: Sequence[Part], used: str, made: "_Made") -> Parts:
    """The parts with a new one in the place of lost ones. A new part without rows is left out."""
    new: list[Part] = []
    objects = dict(state.objects)
    if made.table.num_rows:
        name = new_name(known.number)
        body, part = parquet.encode_part(made.table, kind=made.kind, name=name, since=made.since, until=made.until)
        objects[name] = body
        [piece], _ = merging.pieces_of_news(made.table, made.statistics, Cut(pieces=1, cuts=()))
        if piece.statistics:
            name = new_name(known.number)
            objects[name], statistics = parquet.encode_statistics(piece.statistics(), name=name)
            part = structs.replace(part, statistics=statistics)
        known.reader.put(part, made.table)
        new = [part]
    gone = {part.name for part in lost}
    return replace(
        state,
        parts=state.replaced(lost, new),
        losses=tuple(loss for loss in state.losses if loss.part.name not in gone),
        objects=objects,
        used=(*state.used, used),
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """The rows of a new part."""

    kind: PartKind
    table: pa.Table
    since: int
    until: int
    statistics: pa.Table | None = None


# --- from markers -----------------------------------------------------------------------------------------------------


def rows_from_markers(known: Evidence, state: Parts) -> Parts:
    """The parts, with new ones made from commit markers in the place of all lost ones."""
    lost = {loss.part.name: loss.part for loss in state.losses if not loss.is_statistics}
    bare = [loss.part for loss in state.losses if loss.part.name not in lost]
    commits = [part for part in lost.values() if part.kind == "commits"]
    files = [part for part in lost.values() if part.kind == "files"]
    if commits:
        state = _with_part(known, state, commits, *_commits_from_markers(known, _intact(known, state), commits))
    if files:
        state = _with_part(known, state, files, *_files_from_markers(known, _intact(known, state), files))
    for part in bare:
        state = _with_part(known, state, [part], *_statistics_from_markers(known, _intact(known, state), part))
    return state


def _intact(known: Evidence, state: Parts) -> _Rows:
    lost = {loss.part.name for loss in state.losses if not loss.is_statistics}
    return _Rows(known.reader, (part for part in state.parts if part.name not in lost))


def _commits_from_markers(known: Evidence, intact: _Rows, lost: Sequence[Part]) -> tuple[str, _Made]:
    """The rows of transactions that the lost parts may have had. Their rows of files are in other parts.

    A transaction without files is in no other part. If it has a marker, readers read that.
    """
    since = min(part.since for part in lost)
    if (purged := max(known.log.purges, default=0)) >= since:
        raise CannotRebuild(
            f"vacuum has purged commit markers that {names.checkpoint(purged)} covers, and their transactions may have "
            f"been in the lost part, which has those since {names.checkpoint(since)}"
        )
    unknown = intact.slices.ranges.keys() - intact.tids
    found = resolve([*intact.decided, *known.decided(unknown).values()])
    if referring := [commit.tid for commit in found if commit.marker.removed_tids]:
        raise CannotRebuild(f"transaction {referring[0]} removes files of transactions that are not known")
    own = {commit.tid: commit for commit in found if commit.tid in unknown}
    for tid, paths in intact.paths_of(unknown).items():
        _refuse_other_paths(tid, paths, rows.file_rows(own[tid]))
    firsts = dict.fromkeys((*intact.tids, *unknown))  # their rows of files may be older
    what = news.find_news(intact.decided, in_order(found), intact.keys(), number=known.number, firsts=firsts)
    table = pa.concat_tables([what.commits, rows.moved_commits(intact.commits, what.moved, known.number)])
    return f"the commit markers of {len(unknown)} transactions", _Made("commits", table, since, known.number)


def _files_from_markers(known: Evidence, intact: _Rows, lost: Sequence[Part]) -> tuple[str, _Made]:
    """The rows of files that the lost parts had. All rows of commits are in intact parts.

    A lost part has rows of those transactions only whose row of commits has a number since the part's first news.
    A transaction is complete if the intact parts have as many rows of files as it had when its row of commits was
    written, and if none was forgotten before. All others need their markers.
    """
    since = min(part.since for part in lost)
    present = Counter(listed(intact.files.filter(pc.invert(intact.files["gone"]))["tid"]))
    counts: dict[str, tuple[int, int]] = {}
    for row in intact.commits.select(
        ["tid", "number", "added", "removed", "forgotten_added", "forgotten_removed"]
    ).to_pylist():
        forgotten = row["forgotten_added"] + row["forgotten_removed"]
        is_complete = not forgotten and present[row["tid"]] == row["added"] + row["removed"]
        if row["number"] >= since and not is_complete:
            counts[row["tid"]] = (
                row["added"] + row["forgotten_added"],
                row["removed"] + row["forgotten_removed"],
            )
    own = known.decided(counts.keys())
    found = resolve(
        [
            it._replace(marker=own[it.tid].marker, forgotten=Forgotten()) if it.tid in own else it
            for it in intact.decided
        ]
    )
    marked = [commit for commit in found if commit.tid in own]
    paths = intact.paths_of(counts)
    made: list[FileRow] = []
    for commit in marked:
        each = rows.file_rows(commit)
        _refuse_other_paths(commit.tid, paths[commit.tid], each)
        if commit.marker.removed_tids:
            raise CannotRebuild(f"transaction {commit.tid} removes files of transactions that are not known")
        if not own[commit.tid].marker.removed_tids:
            added = sum(row.added is not None and row.removed is None for row in each.values())
            removed = sum(row.removed is not None for row in each.values())
            if (added, removed) != counts[commit.tid]:
                raise CannotRebuild(f"the commit marker of transaction {commit.tid} has other paths than its row")
        made += (row for path, row in each.items() if path not in paths[commit.tid])
    table = rows.files_table(made)
    until = max(part.until for part in lost)
    return (
        f"the commit markers of {len(marked)} transactions",
        _Made("files", table, since, until, rows.statistics_table(table, marked)),
    )


def _refuse_other_paths(tid: str, paths: Collection[str], marked: Mapping[str, FileRow]) -> None:
    if other := sorted(path for path in paths if path not in marked):
        raise CannotRebuild(f"the commit marker of transaction {tid} does not name {other[0]}, and an intact part does")


def _statistics_from_markers(known: Evidence, intact: _Rows, part: Part) -> tuple[str, _Made]:
    """The rows of the part, with the statistics in the commit markers of all transactions that have some."""
    table = known.reader.table(part)
    columns = dict(zip(listed(intact.commits["tid"]), listed(intact.commits["columns"]), strict=True))
    adding = table.filter(pc.is_valid(table["added"]))
    own = known.decided({tid for tid in listed(adding["tid"]) if columns.get(tid)})
    # The places of paths in a marker differ from those in the rows once paths were forgotten.
    places = {tid: {path: i for i, path in enumerate(commit.marker.added)} for tid, commit in own.items()}
    at = [
        places[tid].get(names.join(directory, name)) if added is not None and tid in places else None
        for tid, directory, name, added in zip(
            *(listed(table[it]) for it in ("tid", "directory", "name", "added")), strict=True
        )
    ]
    added = table.column_names.index("added")
    placed = table.set_column(added, rows.FILES.field("added"), pa.array(at, pa.int32()))
    statistics = rows.statistics_table(placed, own.values())
    return (
        f"the statistics in the commit markers of {len(own)} transactions",
        _Made("files", table, part.since, part.until, statistics),
    )


# --- from a listing ---------------------------------------------------------------------------------------------------


def rows_from_listing(known: Evidence, state: Parts) -> tuple[Parts, datetime | None]:
    """The parts with a new one in the place of lost parts of files, and the new `known_since`.

    The rows of commits count how many paths each transaction added and removed. A live file exists, so the live files
    are among those that exist. If these are as many as the counts leave, then they are the live files. Their sizes are
    from the listing. Which paths the lost rows removed stays unknown.
    """
    lost = {loss.part.name: loss.part for loss in state.losses}
    if any(part.kind == "commits" for part in lost.values()):
        raise CannotRebuild("a part with rows of commits is lost, and no other object has their counts")
    if known.root.known_since:
        raise CannotRebuild(
            "vacuum has deleted removed files, and the checkpoint has forgotten their paths, so counts prove nothing"
        )
    intact = _intact(known, state)
    later = known.decided(known.log.committed.keys() - intact.tids).values()
    if any(commit.marker.removed_tids for commit in later):
        raise CannotRebuild("a commit since the checkpoint removes all files of whole transactions")
    found = _Listing(known, intact, {path for commit in later for path in commit.marker.removed})
    found.check()
    since, until = min(it.since for it in lost.values()), max(it.until for it in lost.values())
    used = f"a listing of the table, in which {len(found.new)} files are as many as the commits left"
    made = _Made("files", rows.files_table([*found.new.values(), *found.gone]), since, until)
    done = _with_part(known, state, list(lost.values()), used, made)
    loses = [f"the numbers of rows and the statistics of {len(found.new)} files"] if found.new else []
    if found.removed_at:
        loses.append(f"which files were removed until {found.removed_at.isoformat()}: earlier states cannot be read")
    return replace(done, loses=(*done.loses, *loses)), found.removed_at


class _Listing:
    """Derives lost rows from the files that exist."""

    def __init__(self, known: Evidence, intact: _Rows, removed_later: Collection[str]) -> None:
        self._known = known
        exist = {entry.path: entry.size for entry in known.entries if names.is_data_file(entry.path)}
        removed = {path for commit in intact.decided for path in commit.marker.removed}
        added = {path: commit.tid for commit in intact.decided for path in commit.marker.data_files}
        self._absent = {commit.tid: commit for commit in intact.decided if sum(commit.forgotten)}
        """The transactions that lack rows."""
        apparent = {path: tid for path, tid in added.items() if path not in removed}
        there = {path for path in apparent if path in exist or path in removed_later}
        self.gone = [rows.gone_row(path, apparent[path]) for path in sorted(apparent.keys() - there)]
        """Rows that mark paths as forgotten which lost rows removed."""
        self.new: dict[str, FileRow] = {}
        """The rows of live files that were lost."""
        place: Counter[str] = Counter()
        for path in sorted({*exist, *removed_later}):
            tid = names.parse_data_file(names.split(path)[1])
            commit = self._absent.get(tid or "")
            if commit and path not in added and path not in removed:
                at = len(commit.marker.added) + place[commit.tid]
                directory, name = names.split(path)
                self.new[path] = FileRow(directory, name, commit.tid, commit.tid, added=at, size=exist.get(path))
                place[commit.tid] += 1
        lost = [it.forgotten for it in self._absent.values()]
        hidden = {path for it in intact.decided for path in it.marker.removed_data_files} - added.keys()
        # A path that an intact row removes, and a lost row adds, is among the lost added ones.
        self._expected = len(apparent) - len(hidden) + sum(it.added - it.removed for it in lost)
        self._found = len(there) + len(self.new)
        self._sizes = exist

    def check(self) -> None:
        """Raises CannotRebuild unless the counts prove which files are live."""
        for commit in self._absent.values():
            info = commit.marker.dbio_commit
            if info is None or info.operation == "adopt":
                raise CannotRebuild(f"the files of transaction {commit.tid} need not have its tid in their names")
            if commit.marker.is_recorded:
                raise CannotRebuild(f"transaction {commit.tid} has change files, which a listing does not tell apart")
        if self._found != self._expected:
            raise CannotRebuild(
                f"{self._found} files exist that may be live, and by the counts of the commits {self._expected} are: "
                "files of failed task attempts, or removed files, may be among them"
            )
        for commit in self._absent.values():
            self._check_bytes(commit)

    def _check_bytes(self, commit: Decided) -> None:
        """Compares the bytes that the transaction has written, if all its files exist."""
        info = commit.marker.dbio_commit
        recorded = info.metrics.get("numOutputBytes") if info else None
        own = [*commit.marker.added, *(path for path, row in self.new.items() if row.tid == commit.tid)]
        is_whole = len(own) == len(commit.marker.added) + commit.forgotten.added
        if recorded is None or not is_whole or any(path not in self._sizes for path in own):
            return
        if (found := sum(self._sizes[path] for path in own)) != recorded:
            raise CannotRebuild(f"transaction {commit.tid} wrote {recorded} bytes, and its files have {found}")

    @property
    def removed_at(self) -> datetime | None:
        """The time of the last commit whose removed paths are not known."""
        return max((it.modified for it in self._absent.values() if it.forgotten.removed), default=None)
