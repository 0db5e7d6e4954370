"""Finds the files and markers that may have values of rows which fulfil a condition. Reads, and changes nothing."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError
from dbio_commit.base.packages import require
from dbio_commit.base.progress import Progress
from dbio_commit.base.texts import command
from dbio_commit.data.conditions.pruning import column_types, prune
from dbio_commit.data.conditions.tree import Condition
from dbio_commit.log.listing import read_markers
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.vacuum.packed import Paths
from dbio_commit.maintenance.vacuum.plan import Candidate
from dbio_commit.maintenance.vacuum.table_plan import Judge
from dbio_commit.maintenance.vacuum.workers import chunks
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason, Why
from dbio_commit.protocol.markers.schema import decode_schema
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import UNKNOWN_SIZE, DataFile, added_sizes
from dbio_commit.store import Store

_FILES_AT_ONCE = 64
"""How many files are read before the search may stop because one was found."""

_MARKERS_AT_ONCE = 500


class Finder:
    """Finds files that may hold rows which fulfil a condition, by partitions and statistics, and then by the rows."""

    def __init__(self, store: Store, schema: Mapping[str, Any], where: str, time_zone: str | None) -> None:
        """Raises InvalidInputError if this is no condition on columns of the table; MissingPackageError."""
        require("sqlglot", what="erase")
        from dbio_commit.data.conditions.sql import parse_where

        self._store, self._schema, self._types = store, schema, column_types(schema)
        self._condition: Condition = parse_where(where, schema, zone=time_zone)
        self.columns = [it for it in dict.fromkeys(self._condition.columns()) if it in self._types]
        """The columns that the condition uses; none of a part that is not understood."""

    def by_facts(self, files: Sequence[DataFile], commits: Iterable[Decided]) -> Sequence[DataFile]:
        """The files that may hold such rows, by their partitions and by the statistics in these commits."""
        return prune(files, commits, self._condition, self._types)

    def by_rows(self, files: Sequence[DataFile]) -> list[DataFile]:
        """The files that may hold such rows, by their rows. A file that is gone, or cannot be read, is among them."""
        from dbio_commit.data.rows import WHOLE_BYTES, held_bytes

        held = self._store.ahead(self._may_hold, files, held_bytes(files), size_bytes=WHOLE_BYTES)
        return [file for file, holds in zip(files, held, strict=True) if holds]

    def _may_hold(self, file: DataFile) -> bool:
        from dbio_commit.data.columns import arrow_schema
        from dbio_commit.data.conditions.expressions import may_match
        from dbio_commit.data.rows import open_file, open_parquet, read_rows

        if not self.columns or not self._types.keys() >= {*self._condition.columns()}:
            return True
        wanted = {**self._schema, "fields": [it for it in self._schema["fields"] if it["name"] in self.columns]}
        where = self._store.url_of(file.path)
        try:
            target = arrow_schema(wanted, where=where)
            with open_file(self._store, file) as source:
                rows = read_rows(open_parquet(source, where), target, partition=file.partition, where=where)
                return any(may_match(batch, self._condition) for batch in rows)
        except (ObjectNotFoundError, InvalidInputError):
            return True

    def names_values(self, layouts: Iterable[Sequence[str]]) -> bool:
        """Whether the names of directories have values of the condition's columns."""
        used = {column.lower() for column in self.columns}
        return not self.columns or any(column.lower() in used for layout in layouts for column in layout)


def refuse_dropped(snapshot: Snapshot, where: str, time_zone: str | None) -> None:
    """Raises InvalidInputError if the condition is one on columns of the table, some of which it has no more.

    Only an overwrite may drop a column (PROTOCOL.md 9.6). It replaces all rows, so no live file has values of it. But
    other commits of dbio that were given a schema have dropped columns, too.
    """
    now = (snapshot.schema or {}).get("fields", ())
    known = {field["name"].lower() for field in now}
    dropped: dict[str, Mapping[str, Any]] = {}
    writers: dict[bytes, set[str]] = {}
    for commit in snapshot.transactions:
        if (info := commit.marker.dbio_commit) and info.schema and not commit.marker.is_abort:
            writers.setdefault(bytes(info.schema), set()).add(commit.tid)
    columns = {schema: _fields_by_name(schema) for schema in writers}
    for own in columns.values():
        dropped |= {name: it for name, it in own.items() if name not in known}
    if not dropped or not _fits(where, [*now, *dropped.values()], time_zone):
        return
    used = {it for it in dropped if not _fits(where, [*now, *(dropped[o] for o in dropped if o != it)], time_zone)}
    named = f"{snapshot.url} has no column {', '.join(repr(dropped[it]['name'])[:100] for it in sorted(used))} any more"
    before = {tid for schema, fields in columns.items() if used & fields.keys() for tid in writers[schema]}
    if any(file.tid in before for file in snapshot.files):
        raise InvalidInputError(
            f"{named}, but live files may have its values: a commit that was no overwrite dropped it. Give the table "
            "the column again, with the type that it had, by an append of no rows with merge_schema=True; erase again"
        )
    raise InvalidInputError(
        f"{named}, since an earlier overwrite dropped it. No live file has its values; removed files have them until "
        "vacuum deletes these files after its retention. To delete the files now, end all readers and writers of the "
        f"table, and run `{command('dbio', 'vacuum', snapshot.url, '--retention-hours', '0', '--force')}`. Minima and "
        "maxima stay longer, in the log and in publications: docs/CHANGE_ROWS.md says what erases these"
    )


def _fields_by_name(schema: bytes) -> dict[str, Mapping[str, Any]]:
    return {field["name"].lower(): field for field in (decode_schema(schema) or {}).get("fields", ())}


def _fits(where: str, fields: Sequence[Mapping[str, Any]], time_zone: str | None) -> bool:
    """Whether this is a condition on some of these columns."""
    from dbio_commit.data.conditions.sql import parse_where

    try:
        parse_where(where, {"type": "struct", "fields": fields}, zone=time_zone)
    except InvalidInputError:
        return False
    return True


def look_into(finder: Finder, files: Sequence[DataFile], progress: Progress, phase: str) -> Iterator[DataFile]:
    """The files that may hold such rows, by their rows. Reads some files at a time."""
    left, done = iter(files), 0
    while some := [*islice(left, _FILES_AT_ONCE)]:
        progress(phase, done, len(files))
        yield from finder.by_rows(some)
        done += len(some)
    progress(phase, done, len(files))


def removed_files(commits: Iterable[Decided], live: Collection[str]) -> list[DataFile]:
    """The files of a slice that commits removed, each with the transaction that added it."""
    commits = list(commits)
    removed = {path for commit in commits for path in commit.marker.removed if path not in live}
    found: dict[str, DataFile] = {}
    for commit in commits:
        for path, size in zip(commit.marker.added, added_sizes(commit.marker), strict=True):
            if path in removed:
                found[path] = _file(path, size, commit.tid)
    return [found.get(path) or _file(path, UNKNOWN_SIZE, None) for path in sorted(removed)]


def _file(path: str, size: int, tid: str | None) -> DataFile:
    return DataFile(path, size, tid, names.parse_partition(names.split(path)[0]))


def forgetful_markers(
    store: Store, snapshot: Snapshot, finder: Finder, *, among: Collection[str] | None = None
) -> set[str]:
    """The covered transactions whose commit markers still name files that may have held such rows, but that the
    checkpoint has forgotten. Only the markers still have the statistics and the names of these files.

    `among` limits them to some transactions.
    """
    covered = snapshot.log.committed.keys() & snapshot.checkpoint.covered
    marked = sorted(covered if among is None else covered.intersection(among))
    names_values = finder.names_values(snapshot.layouts)
    found: set[str] = set()
    for tids in chunks(marked, _MARKERS_AT_ONCE):
        known = {it.tid: it.marker for it in snapshot.whole({*tids})}
        entries = [snapshot.log.committed[tid] for tid in tids]
        markers = read_markers(store, entries, scope=Scope.TABLE).valid
        for tid, entry in zip(tids, entries, strict=True):
            if (marker := markers.get(entry.path)) is None:
                continue
            added, removed = ({*known[tid].added}, {*known[tid].removed}) if tid in known else (set(), set())
            lost = [_file(path, UNKNOWN_SIZE, tid) for path in marker.added if path not in added]
            if names_values:
                lost += [_file(path, UNKNOWN_SIZE, None) for path in marker.removed if path not in removed]
            if lost and finder.by_facts(lost, [Decided(entry.modified, tid, marker)]):
                found.add(tid)
    return found


# --- which files are deleted at once --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Doomed:
    """The removed files that may have held rows to erase."""

    paths: Paths = field(default_factory=Paths)
    flagged: frozenset[str] = frozenset()
    """The transactions whose commit markers have statistics or names of such files. A marker can be deleted only if no
    file is left whose removal it records, so these files are deleted, too."""


@dataclass(frozen=True, slots=True)
class ErasureJudge(Judge):
    """Decides for each file that is not live whether it is deleted at once."""

    doomed: Doomed = field(default_factory=Doomed)
    also: frozenset[str] = frozenset()
    """The files of this share that flagged transactions removed."""
    below: list[str] = field(default_factory=list)
    """The markers below the root are added to these. The judges of all shares have one list."""

    @classmethod
    def made_of(cls, judge: Judge, doomed: Doomed, share: Snapshot, below: list[str]) -> "ErasureJudge":
        values = {it.name: getattr(judge, it.name) for it in fields(Judge)}
        return cls(**values, doomed=doomed, also=_removed_by(doomed.flagged, share), below=below)

    def within(self, share: Snapshot) -> "ErasureJudge":
        return ErasureJudge.made_of(Judge.within(self, share), self.doomed, share, self.below)

    def garbage(self, entries: Sequence[Entry]) -> list[Candidate]:
        inside = (entry for entry in entries if entry.size and "/" in entry.path)
        self.below.extend(it.path for it in inside if names.parse_log_name(names.split(it.path)[1]))
        return Judge.garbage(self, entries)

    def _is_due(self, entry: Entry, why: Why) -> bool:
        if why.reason is not Reason.REMOVED:
            return Judge._is_due(self, entry, why)
        return entry.path in self.doomed.paths or entry.path in self.also or why.tid in self.doomed.flagged


def _removed_by(tids: Collection[str], share: Snapshot) -> frozenset[str]:
    return frozenset(path for commit in share.decided if commit.tid in tids for path in commit.marker.removed)
