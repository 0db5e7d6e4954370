"""What a reader gets: the live files of a table at one instant, and what decided them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cachetools import LRUCache
from msgspec.structs import replace as with_fields

from dbio_commit.base import shown
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.forks import ProcessLock
from dbio_commit.base.internal import internal
from dbio_commit.base.packages import require
from dbio_commit.log.lazy import Lazy, Wholes
from dbio_commit.log.listing import with_sizes
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import Doubt
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint, CommitsInParts
from dbio_commit.protocol.commits import Commit, CommitList, Decided, Forgotten, LateCommits, recorded_rows
from dbio_commit.protocol.etag import etag_of
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.markers.commit import CommitInfo, columns_in
from dbio_commit.protocol.markers.descriptor import Origin
from dbio_commit.protocol.references import resolve
from dbio_commit.protocol.settings import Layout, Settings
from dbio_commit.protocol.state import (
    DataFile,
    FilesInParts,
    Metadata,
    current_metadata,
    known_layouts,
    live_files,
    total_size,
)
from dbio_commit.protocol.subtrees import Subtrees
from dbio_commit.protocol.versions import Versions, add_up
from dbio_commit.store import Store

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow
    import pyarrow.dataset

    from dbio_commit.data.conditions.terms import Filter, Where
    from dbio_commit.log.frames.pandas_frame import TypesMapper
    from dbio_commit.log.frames.scan import Scan
from dbio_commit.protocol.scope import Scope


class Source:
    """The store that holds the files of a snapshot. A pickle has only a name of it, since a store holds credentials.

    The name means something only in the process that made the pickle.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store

    def __reduce__(self) -> tuple[Callable[[str], "Source"], tuple[str]]:
        return _source, (_stores.name(self.store) if self.store else "",)


class _Stores:
    """The stores of the last few snapshots that this process has pickled, by random names."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._by_name: LRUCache[str, Store] = LRUCache(16)

    def name(self, store: Store) -> str:
        with self._lock:
            known = next((name for name, it in self._by_name.items() if it is store), None) or uuid4().hex
            self._by_name[known] = store
        return known

    def find(self, name: str) -> Store | None:
        with self._lock:
            found: Store | None = self._by_name.get(name)
        return found


_stores = _Stores()


def _source(name: str) -> Source:
    return Source(_stores.find(name))


@internal(
    *(
        "among",
        "app_versions",
        "below",
        "checkpoint",
        "columns_of",
        "decided",
        "doubts",
        "each_below",
        "entries",
        "first_layout",
        "foreign",
        "layouts",
        "log",
        "metadata",
        "news",
        "of_files",
        "outlines",
    ),
    *("origin", "past", "redated_until", "refuse_patterns", "rows_of", "slices", "source", "strange", "transactions"),
    *("too_early", "weigh", "whole"),
)
@dataclass(frozen=True)
class Snapshot:
    """The committed state of a table at one instant: its live files, columns, settings and history.

    A snapshot does not change; take a new one to see later commits. `Table.snapshot` returns it.

        snapshot = dbio.Table("s3://lake/events").snapshot()
        frame = snapshot.to_pandas(["id", "day"], filter=[("day", ">=", "2026-11-01")])
    """

    url: str
    """The root of the table: a plain path on a local disk, else scheme://container/prefix."""
    scope: Scope
    """`table` for a dbio table; `directory` for a directory without a descriptor."""
    files: Sequence[DataFile]
    """The live files, oldest first. The files of a large table are read when they are needed, and are in the order of
    their directories. A snapshot can read them for the retention of vacuum; after that, take a new one."""
    partition_columns: Layout
    """The names of the partition columns, in the order of the directories; () if there are none."""

    # Internal, for other modules of dbio. These may change.

    decided: Sequence[Decided] = field(repr=False)
    """Every decided transaction that counted, oldest first, aborted ones included. If the checkpoint has parts, they
    are read from these when they are first needed."""
    news: tuple[Decided, ...] = field(default=(), repr=False)
    """Of these, the transactions that the checkpoint does not cover."""
    outlines: Sequence[Decided] | None = field(default=None, repr=False)
    """The same transactions, without the paths of those in parts; None if the checkpoint has no parts."""
    checkpoint: Checkpoint = field(default=NO_CHECKPOINT, repr=False)
    """The newest checkpoint that it was read from; none in the directory scope, nor of a state in the past."""
    past: CommitsInParts | None = field(default=None, repr=False, compare=False)
    """Of a state in the past of a large table: the transactions in parts that counted then."""
    log: Log = field(default_factory=Log, repr=False)
    """The root's log, as it was listed last; empty in the directory scope."""
    foreign: tuple[str, ...] = field(default=(), repr=False)
    """In the directory scope: the paths of visible files that are no Parquet, and so no part of the table."""
    origin: Origin | None = field(default=None, repr=False)
    """The identity of the table; None in the directory scope."""
    redated_until: datetime | None = field(default=None, repr=False)
    """A copy of the table has given its commits new times until then, so their order is not known; None: no copy."""
    doubts: tuple[Doubt, ...] = field(default=(), repr=False)
    """When it is not known whether some commit had been made yet, since its marker was brought back."""
    first_layout: Layout = field(default=(), repr=False)
    """The descriptor's partition columns, before any overwrite changed them."""
    strange: tuple[str, ...] = field(default=(), repr=False)
    """Paths of commit markers, checkpoints and purge records of another table, which say nothing of this one."""
    too_early: str = field(default="", repr=False, compare=False)
    """If it is as of a time before the first commit: these two times in words, as the end of a sentence."""
    source: Source = field(default_factory=Source, repr=False, compare=False)

    def __repr__(self) -> str:
        size = total_size(self.files)
        by = f", partitioned by {', '.join(self.partition_columns)}" if self.partition_columns else ""
        return f"<Snapshot of {self.url}: {len(self.files):,} files, {size:,} bytes, {len(self.tids):,} commits{by}>"

    def _repr_html_(self) -> str:
        """Tables of its facts and columns, for notebooks. Reads nothing: of a large table, it counts no commits."""
        fields = (self.schema or {}).get("fields", ())
        told = {
            "root": self.url,
            "scope": self.scope,
            "files": len(self.files),
            "size": total_size(self.files),
            "partition columns": self.partition_columns,
            "commits": len(self.tids) if self._in_parts is None else "not counted",
        }
        columns = ((it["name"], it["type"] if isinstance(it["type"], str) else it["type"]["type"]) for it in fields)
        return (
            shown.facts("Snapshot", told)
            + (shown.rows("Columns", ("column", "type"), columns, count=len(fields)) if fields else "")
            + (shown.facts("Settings", self.settings) if self.settings else "")
        )

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without what was computed from them. A pickle has all files and paths, and needs no parts."""
        return {it.name: getattr(self, it.name) for it in fields(self)} | {"past": None}

    @property
    def tids(self) -> tuple[str, ...]:
        """The tids of the committed transactions, oldest first."""
        return tuple(commit.tid for commit in self.transactions if not commit.marker.is_abort)

    @property
    def tid(self) -> str | None:
        """The tid of the newest commit; None if there is none. `Table.snapshot(as_of=…)` takes it.

        For a conditional write, give `etag`: another commit may have come in the same moment as the newest.
        """
        return next((commit.tid for commit in reversed(self.transactions) if not commit.marker.is_abort), None)

    @property
    def etag(self) -> str:
        """A token of this state for `if_match` of a write, which then commits only if no data has changed since.

        Its text means nothing to a program: pass it on as it is.

            seen = table.snapshot()
            dbio.write(result, path, mode="overwrite", if_match=seen.etag)
        """
        return etag_of(self.transactions)

    def urls(self) -> list[str]:
        """The live files as other tools take them: plain paths on a local disk, else URLs as fsspec writes them.

        DuckDB and Polars take the list as it is; pandas and pyarrow take a list of URLs only with `filesystem=`. Raises
        InvalidInputError if a name looks like a pattern to some tools; only an untracked file can have such a name.
        """
        self.refuse_patterns()
        return [f"{self.url}/{file.path}" for file in self.files]

    def refuse_patterns(self) -> None:
        """Raises InvalidInputError for a live file whose name other tools would expand as a pattern."""
        for file in self.files:
            if names.is_pattern(file.path):
                raise InvalidInputError(
                    f"{self.url}/{file.path} has one of * ? [ ] {{ in its name, which other tools take for a pattern: "
                    "they might read other files; rename it, or take its path from `files` and open it yourself"
                )

    def where(self, condition: str, *, time_zone: str | None = None) -> "Snapshot":
        """The same state with only those files that may hold rows which fulfil the condition, in Spark's SQL.

        Files are left out by their partitions and by their recorded statistics. The files that stay may also hold other
        rows. Times without a zone are in `time_zone`; without one, in any zone. A part of the condition that dbio does
        not understand leaves no file out, and neither does any condition if no writer recorded the columns. Raises
        InvalidInputError if this is no condition on columns of the table, MissingPackageError without sqlglot.
        """
        require("sqlglot", what="where")
        from dbio_commit.data.conditions.pruning import column_types, prune
        from dbio_commit.data.conditions.sql import parse_where, refuse_no_text, refusing_depth

        refuse_no_text(condition)
        if self.schema is None:
            return self
        outline = parse_where(condition, self.schema, zone=time_zone)
        with refusing_depth(condition):
            return replace(self, files=prune(self.files, self.of_files, outline, column_types(self.schema)))

    def count(self, where: "Where | None" = None, *, time_zone: str | None = None) -> int:
        """How many rows there are, or how many of them fulfil the condition, as for `scan`.

        Without a condition, this reads footers only of files whose writer did not record its number of rows. A state
        before the first commit has 0 rows, but no columns to `scan`. Raises what `scan` and its methods raise.
        """
        return self.scan(None, where, time_zone=time_zone).count() if self.files else 0

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: "Where | None" = None,
        *,
        time_zone: str | None = None,
    ) -> "Scan":
        """Some rows and columns: what `to_arrow`, `to_lazy`, `to_batches` and the other methods read.

        `columns` are the columns, in this order; by default all. Names match in any case. `where` is a condition in
        Spark's SQL; or (column, operator, value); or a list of these, all of which must hold; or a list of such lists,
        of which one must hold. The operators are =, ==, !=, <, <=, >, >=, in and not in; None is null. `time_zone` is
        for times without a zone in the SQL.

        The rows are exactly those that Spark's WHERE keeps. A part of the SQL for which that is not certain without
        Spark is refused. Files and row groups are left out by partitions and statistics. Raises InvalidInputError, also
        for a state without columns, such as one before the first commit; MissingPackageError without sqlglot if `where`
        is SQL. The methods of a scan raise ObjectNotFoundError if vacuum has deleted a file since, StoreError, and
        InvalidInputError for a file that cannot be read.
        """
        from dbio_commit.log.frames.request import make_request
        from dbio_commit.log.frames.scan import Scan

        if self.source.store is None:
            raise InvalidInputError(
                f"this snapshot of {self.url} comes from another process, or was pickled long ago, and a pickle has no "
                "credentials; take one here"
            )
        return Scan(make_request(self, self.source.store, columns=columns, where=where, time_zone=time_zone))

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: "Filter | None" = None,
        *,
        where: "Where | None" = None,
        time_zone: str | None = None,
    ) -> "pyarrow.Table":
        """The rows as an Arrow table, with the partition columns, and with the types that the table records.

        `columns`, `where` and `time_zone` are those of `scan`, which says what is raised. `filter` is another name of
        `where`, for lists. A column that a file lacks is null.
        """
        return self._scan(columns, filter, where, time_zone).to_arrow()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: "Filter | None" = None,
        *,
        where: "Where | None" = None,
        time_zone: str | None = None,
        types_mapper: "TypesMapper | None" = None,
    ) -> "pandas.DataFrame":
        """As `to_arrow`, as a pandas DataFrame: see `Scan.to_pandas`, which explains `types_mapper`.

        Raises MissingPackageError without pandas.
        """
        return self._scan(columns, filter, where, time_zone).to_pandas(types_mapper=types_mapper)

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        filter: "Filter | None" = None,
        *,
        where: "Where | None" = None,
        time_zone: str | None = None,
    ) -> "polars.DataFrame":
        """As `to_arrow`, as a Polars DataFrame. Raises MissingPackageError without Polars."""
        return self._scan(columns, filter, where, time_zone).to_polars()

    def to_lazy(
        self, columns: Sequence[str] | None = None, *, where: "Where | None" = None, time_zone: str | None = None
    ) -> "polars.LazyFrame":
        """The rows of `scan(columns, where)` as a Polars LazyFrame: see `Scan.to_lazy`."""
        return self.scan(columns, where, time_zone=time_zone).to_lazy()

    def to_batches(
        self, columns: Sequence[str] | None = None, *, where: "Where | None" = None, time_zone: str | None = None
    ) -> "pyarrow.RecordBatchReader":
        """The rows of `scan(columns, where)` batch by batch: see `Scan.to_batches`."""
        return self.scan(columns, where, time_zone=time_zone).to_batches()

    def to_dataset(
        self, columns: Sequence[str] | None = None, *, where: "Where | None" = None, time_zone: str | None = None
    ) -> "pyarrow.dataset.Dataset":
        """The rows of `scan(columns, where)` as a Dataset of pyarrow: see `Scan.to_dataset`."""
        return self.scan(columns, where, time_zone=time_zone).to_dataset()

    def to_duckdb(
        self,
        connection: "duckdb.DuckDBPyConnection | None" = None,
        columns: Sequence[str] | None = None,
        filter: "Filter | None" = None,
        *,
        where: "Where | None" = None,
        time_zone: str | None = None,
    ) -> "duckdb.DuckDBPyRelation":
        """As `to_arrow`, as a relation of the DuckDB connection, or of DuckDB's default connection: see
        `Scan.to_duckdb`. Raises MissingPackageError without DuckDB.
        """
        return self._scan(columns, filter, where, time_zone).to_duckdb(connection)

    def _scan(
        self,
        columns: Sequence[str] | None,
        filter: "Filter | None",
        where: "Where | None",
        time_zone: str | None,
    ) -> "Scan":
        if filter is not None and where is not None:
            raise InvalidInputError("`filter` is another name of `where`; give one of them")
        if isinstance(filter, str):
            raise InvalidInputError(f"{filter!r:.200} is no filter: a condition in SQL is given as where=…")
        return self.scan(columns, where if filter is None else filter, time_zone=time_zone)

    def history(self) -> list[Commit]:
        """The commits, newest first, without the aborted transactions."""
        known = self.decided if self._in_parts is None else self.transactions
        return self.entries([commit for commit in reversed(known) if not commit.marker.is_abort])

    def entries(self, committed: Sequence[Decided]) -> CommitList:
        """The entries of the history for these transactions. Of a large table, they may be outlines."""
        late = None if self._in_parts is None else _Late(self, committed)
        return CommitList(late.commit(it) if late else commit_of(it) for it in committed)

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The table's columns as Spark's JSON; None if no writer recorded them. Do not change it."""
        return self.metadata.schema

    @property
    def table_id(self) -> str | None:
        """The id of the table: another table at the same path has another one. None in the directory scope."""
        return self.origin.table_id if self.origin else None

    @property
    def settings(self) -> Settings:
        """The table's settings, by name, also those that this version does not know. Directories have none."""
        return (self.metadata.settings or {}) if self.scope is Scope.TABLE else {}

    # --- internal, for other modules of dbio --------------------------------------------------------------------------

    @property
    def transactions(self) -> Sequence[Decided]:
        """As `decided`, but the paths of those in parts are left out, and are not read."""
        return self.decided if self.outlines is None else self.outlines

    def whole(self, tids: Collection[str]) -> list[Decided]:
        """These transactions with all of their paths, oldest first. Of a large table, reads only what may have them."""
        tids = {*tids}
        if self._in_parts is None:
            return [commit for commit in self.decided if commit.tid in tids]
        news = [commit for commit in self.news if commit.tid in tids]
        return self._resolved(self._in_order([*self._in_parts.whole(tids), *news]))

    def _resolved(self, some: list[Decided]) -> list[Decided]:
        """Some of the transactions as `resolve` returns them among all."""
        referring = {it.tid for it in some if not self._rank.keys().isdisjoint(it.marker.removed_tids)}
        if not referring:
            return some
        removed: dict[str, set[str]] = {}
        infos: dict[str, CommitInfo | None] = {}
        for part in self.slices():
            for it in part.decided:
                if it.tid in referring:
                    removed.setdefault(it.tid, set()).update(it.marker.removed)
                    infos[it.tid] = it.marker.dbio_commit

        def resolved(it: Decided) -> Decided:
            info, told = it.marker.dbio_commit, infos[it.tid]
            assert info
            assert told
            info = with_fields(info, version=told.version, removed_tids=told.removed_tids)
            found = sorted(removed[it.tid].difference(it.marker.removed))
            marker = with_fields(it.marker, removed=[*it.marker.removed, *found], dbio_commit=info)
            return it._replace(marker=marker, referred=(*it.referred, *it.marker.removed_tids))

        return [resolved(it) if it.tid in referring else it for it in some]

    def slices(self) -> Iterator["Snapshot"]:
        """The same state in slices, so that a table of any size takes the same memory. A small table is one slice.

        Each slice has other paths: `files` has those that are live, and `decided` has all transactions, with those of
        their paths that are in the slice. All others are as if they had been forgotten, so `forgotten` means nothing.
        """
        if self._in_parts is None:
            yield self
        else:
            yield from map(self._slice, self._in_parts.slices(self.news))

    def below(self, within: Subtrees) -> "Snapshot":
        """One such slice: with the paths in these directories. A small table stays whole."""
        return next(self.each_below([within]))

    def each_below(self, each: Iterable[Subtrees]) -> Iterator["Snapshot"]:
        """Several such slices, one after the other."""
        if self._in_parts is None:
            yield from (self for _ in each)
        else:
            yield from map(self._slice, self._in_parts.below(self.news, each))

    def weigh(self, tops: Sequence[str]) -> Sequence[float]:
        """About how many rows of files the state of a large table has in each of these directories, and below.

        They are sorted by prefix. What no part has, and the files of a small table, count nothing.
        """
        return [0.0] * len(tops) if self._in_parts is None else self._in_parts.weigh(tops)

    def among(self, paths: Collection[str]) -> "Snapshot":
        """One such slice: with these paths. A small table stays whole. Reads only what may have them."""
        if self._in_parts is None:
            return self
        state = self.checkpoint.state
        return self._slice(self._in_parts.among(self.news, paths, hides=state is None or state.hides))

    @property
    def of_files(self) -> Sequence[Decided]:
        """The transactions with at least the paths of `files`, if these are some of a large table's."""
        if self._in_parts is None or isinstance(self.files, FilesInParts) or not isinstance(self.decided, Lazy):
            return self.decided
        return self.among({file.path for file in self.files}).decided

    def rows_of(self, files: Collection[DataFile]) -> Mapping[str, int | None]:
        """How many rows some of the live files have, by path; None if it is not known. There may be more."""
        if isinstance(self.files, FilesInParts):
            return self.files.find({file.path for file in files})
        tids = {file.tid for file in files}
        return recorded_rows(commit for commit in self.of_files if commit.tid in tids)

    def columns_of(self, tid: str) -> Collection[str]:
        """The columns of which the transaction has statistics, as its files spell them."""
        if self._in_parts is not None and tid in self._in_parts.columns:
            return self._in_parts.columns[tid]
        return columns_in(self.transactions[self._rank[tid]].marker)

    @property
    def _in_parts(self) -> CommitsInParts | None:
        return self.checkpoint.commits if isinstance(self.checkpoint.commits, CommitsInParts) else self.past

    def _slice(self, commits: Sequence[Decided]) -> "Snapshot":
        assert self.source.store
        decided = self._in_order(resolve(commits))
        return replace(self, decided=decided, files=with_sizes(self.source.store, live_files(decided)))

    def _in_order(self, commits: Sequence[Decided]) -> list[Decided]:
        ranks = map(self._rank.__getitem__, map(attrgetter("tid"), commits))
        return [it for _, it in sorted(zip(ranks, commits, strict=True), key=itemgetter(0))]

    @cached_property
    def _rank(self) -> Mapping[str, int]:
        """The place of each transaction in the history."""
        return {commit.tid: i for i, commit in enumerate(self.transactions)}

    @cached_property
    def metadata(self) -> Metadata:
        """The columns and the settings, with the turn as of which they are known."""
        return current_metadata((commit.marker for commit in self._recorded), before=self.checkpoint.metadata)

    @property
    def layouts(self) -> frozenset[Layout]:
        """The partition columns now, and before they changed."""
        markers = (commit.marker for commit in self._recorded)
        found = known_layouts(markers, self.first_layout, before=self.checkpoint.metadata)
        state = self.checkpoint.state
        return found | {tuple(layout) for layout in state.layouts} if state else found

    @property
    def app_versions(self) -> Mapping[str, Versions]:
        """The versions that each application has committed (I8)."""
        return add_up((commit.marker for commit in self._recorded), before=self.checkpoint.apps)

    @property
    def _recorded(self) -> Sequence[Decided]:
        """The transactions that record what the checkpoint does not."""
        return self.news if self.checkpoint.is_root else self.transactions


class _Late(LateCommits):
    """Makes the entries of a history from outlines, and reads the rest of them when it is asked for."""

    def __init__(self, snapshot: Snapshot, committed: Sequence[Decided]) -> None:
        self._snapshot = snapshot
        self._news = {commit.tid for commit in snapshot.news}
        self._outlines = {commit.tid: commit for commit in committed}
        self._wholes = Wholes(committed, snapshot.whole)

    def commit(self, outline: Decided) -> Commit:
        if outline.tid not in self._news:
            return replace(commit_of(outline), late=self)
        if not outline.marker.removed_tids:
            return commit_of(outline)
        added = Forgotten(len(outline.marker.data_files))
        return replace(commit_of(outline), late=self, forgotten=added)

    def whole(self, tid: str) -> Decided:
        return self._wholes[tid]

    def removed_files(self, tid: str) -> int:
        outline = self._outlines[tid]
        if outline.marker.removed_tids:
            return self._referring[tid] + (self.whole(tid).forgotten.removed if tid not in self._news else 0)
        return outline.forgotten.removed - self._change_files.get(tid, 0)

    @cached_property
    def _change_files(self) -> Mapping[str, int]:
        parts = self._snapshot._in_parts
        recorded = {tid for tid, it in self._outlines.items() if it.marker.is_recorded}
        return parts.change_files(recorded) if parts and recorded else {}

    @cached_property
    def _referring(self) -> Mapping[str, int]:
        """How many paths those commits remove that name transactions in the place of paths."""
        found = {tid: 0 for tid, commit in self._outlines.items() if commit.marker.removed_tids}
        for some in self._snapshot.slices():
            for commit in some.decided:
                if commit.tid in found:
                    found[commit.tid] += len(commit.marker.removed_data_files)
        return found


def commit_of(decided: Decided) -> Commit:
    return Commit(tid=decided.tid, timestamp=decided.modified, marker=decided.marker, forgotten=decided.forgotten)
