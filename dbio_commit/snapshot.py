"""Reading a table: the log is listed, its markers are read, and `state` says what they add up to.

Follows PROTOCOL.md 3.4 where there is a descriptor, and section 2 where there is none. Writes nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from dbio_commit.clock import Clock
from dbio_commit.data.parquet import not_parquet
from dbio_commit.errors import (
    CorruptMarkerError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
    TableNotFoundError,
    UnsupportedStoreError,
    UnsupportedTableError,
)
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint, decode_checkpoint
from dbio_commit.protocol.commits import AsOf, Commit, Decided, committed_by
from dbio_commit.protocol.directory import (
    Directory,
    is_empty,
    is_used,
    looks_torn,
    merge_directories,
    parse_directories,
    settle,
    visible_files,
)
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers import (
    INSPECT,
    MAX_BYTES,
    CommitMarker,
    Descriptor,
    decode_commit,
    decode_descriptor,
    decode_turn,
)
from dbio_commit.protocol.state import (
    NO_SCHEMA,
    UNKNOWN_SIZE,
    DataFile,
    TableSchema,
    app_versions,
    current_schema,
    live_files,
)
from dbio_commit.store import Store

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow

    from dbio_commit.data.frames import Filter

_T = TypeVar("_T")

_ATTEMPTS = 100
"""How often a read starts again because commits or vacuum overtook it, before it gives up."""

_VACUUM_S = 1.0
"""No two vacuums come and go in less: the first to make a checkpoint, the second to purge what it covers."""


MAX_TOTAL_BYTES = 1024**3
"""Of the commit markers that one state is read from. Vacuum's checkpoints keep it at some twenty markers."""


class Scope(StrEnum):
    """Where the markers that decide are (PROTOCOL.md section 3)."""

    TABLE = "table"
    """At the root, for the whole table: it carries a descriptor."""
    DIRECTORY = "directory"
    """In each directory, for that directory, as DBIO has it."""


class Source:
    """Where the files of a snapshot are. It is not pickled: a store holds credentials."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store

    def __reduce__(self) -> tuple[type["Source"], tuple[()]]:
        return Source, ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The live files of a table at one instant, and what decided them."""

    url: str
    scope: Scope
    files: tuple[DataFile, ...]
    partition_columns: tuple[str, ...]
    commits: tuple[Decided, ...] = field(repr=False)
    """Every decided transaction that counted, oldest first, aborted ones included."""
    checkpoint: Checkpoint = field(default=NO_CHECKPOINT, repr=False)
    """The newest, of what it was read from; none in the directory scope, nor of a state in the past."""
    log: Log = field(default_factory=Log, repr=False)
    """The root's, as it was listed last; empty in the directory scope."""
    foreign: tuple[str, ...] = field(default=(), repr=False)
    """In the directory scope: the paths of what lies there in the open and is no Parquet; no part of the table."""
    source: Source = field(default_factory=Source, repr=False, compare=False)

    def __repr__(self) -> str:
        size = sum(max(file.size, 0) for file in self.files)
        by = f", partitioned by {', '.join(self.partition_columns)}" if self.partition_columns else ""
        return f"<Snapshot of {self.url}: {len(self.files):,} files, {size:,} bytes, {len(self.tids):,} commits{by}>"

    @property
    def tids(self) -> tuple[str, ...]:
        """The committed transactions, in the order of their commits."""
        return tuple(commit.tid for commit in self.commits if not commit.marker.is_abort)

    def urls(self) -> list[str]:
        """The live files as other tools take them: plain paths on a local disk, else URLs as fsspec writes them.

        DuckDB and Polars take the list as it is; pandas and pyarrow take a list of URLs with `filesystem=` only. Raises
        InvalidInputError for a name that some tools take for a pattern; only an untracked file can have one.
        """
        self.refuse_patterns()
        return [f"{self.url}/{file.path}" for file in self.files]

    def refuse_patterns(self) -> None:
        """Raises InvalidInputError for a live file that is not safe to name to tools which expand patterns."""
        for file in self.files:
            if names.is_pattern(file.path):
                raise InvalidInputError(
                    f"{self.url}/{file.path} has one of * ? [ ] {{ in its name, which other tools take for a pattern: "
                    "they might read other files; rename it, or take its path from `files` and open it yourself"
                )

    def to_arrow(self, columns: Sequence[str] | None = None, filter: "Filter | None" = None) -> "pyarrow.Table":
        """The rows, as an Arrow table: with partition columns, and the types that the table records.

        `columns` are those to read, in this order; all by default. `filter` is a list of (column, operator, value),
        all of which must hold, or a list of such lists, of which one must; operators are =, ==, !=, <, <=, >, >=, in
        and not in, and None is null. Files of other partitions are not read. Columns are matched by name without
        regard to case; where a file lacks one, it is null. Raises InvalidInputError, UnsupportedStoreError without
        pyarrow, ObjectNotFoundError where vacuum has deleted a file since.
        """
        from dbio_commit.data import frames

        if self.source.store is None:
            raise InvalidInputError(f"this snapshot of {self.url} comes from another process; take one here")
        return frames.to_arrow(self, self.source.store, columns=columns, filter=filter)

    def to_pandas(self, columns: Sequence[str] | None = None, filter: "Filter | None" = None) -> "pandas.DataFrame":
        """As `to_arrow`, as a pandas DataFrame."""
        _require("pandas", what="to_pandas")
        return self.to_arrow(columns, filter).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None, filter: "Filter | None" = None) -> "polars.DataFrame":
        """As `to_arrow`, as a Polars DataFrame."""
        library = _require("polars", what="to_polars")
        frame: polars.DataFrame = library.from_arrow(self.to_arrow(columns, filter))
        return frame

    def to_duckdb(
        self,
        connection: "duckdb.DuckDBPyConnection | None" = None,
        columns: Sequence[str] | None = None,
        filter: "Filter | None" = None,
    ) -> "duckdb.DuckDBPyRelation":
        """As `to_arrow`, as a relation of the DuckDB connection, or of DuckDB's default one."""
        library = _require("duckdb", what="to_duckdb")
        relation: duckdb.DuckDBPyRelation = (connection or library).from_arrow(self.to_arrow(columns, filter))
        return relation

    def history(self) -> list[Commit]:
        """The commits, newest first, without the aborted transactions."""
        committed = (commit for commit in reversed(self.commits) if not commit.marker.is_abort)
        return [
            Commit(tid=tid, timestamp=modified, marker=marker, forgotten=forgotten)
            for modified, tid, marker, forgotten, _ in committed
        ]

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The table's columns as Spark's JSON; None where no writer recorded them."""
        return self.table_schema.json

    @property
    def table_schema(self) -> TableSchema:
        """The same, with the turn as of which it is known."""
        told = current_schema(commit.marker for commit in self.commits)
        return max(told, self.checkpoint.schema, key=lambda schema: schema.turn)

    @property
    def app_versions(self) -> Mapping[str, int]:
        """The highest version that each application has committed."""
        return app_versions((commit.marker for commit in self.commits), before=self.checkpoint.apps)


def _require(package: str, *, what: str) -> Any:
    """The package, imported. Raises UnsupportedStoreError where it is not installed."""
    try:
        return import_module(package)
    except ImportError as error:
        raise UnsupportedStoreError(f"{what} needs the package {package}; run `pip install {package}`") from error


def read_snapshot(
    store: Store, clock: Clock, *, as_of: AsOf = None, ignore_corrupt_markers: bool = False, even_dropped: bool = False
) -> Snapshot:
    """The table's state now, or as of a time or tid; `even_dropped` is for whoever drops it.

    Raises TableNotFoundError where there is nothing, CorruptMarkerError (unless told to ignore corrupt markers, whose
    transactions then count as pending), UnsupportedTableError, InvalidInputError for an impossible `as_of`.
    """

    def read() -> Snapshot:
        log = parse_log(store.list_log())
        if not even_dropped:
            refuse_dropped(store, log)
        if log.descriptor is None:
            return _read_directories(store, clock, as_of=as_of, ignore_corrupt=ignore_corrupt_markers)
        return _read_table(store, clock, log, as_of=as_of, ignore_corrupt=ignore_corrupt_markers)

    return replace(until_quiet(store, read), source=Source(store))


def refuse_dropped(store: Store, log: Log) -> None:
    """Raises TableNotFoundError where there is a tombstone: what is left of the table is no table."""
    if log.dropped is not None:
        raise TableNotFoundError(
            f"the table at {store.url} was dropped, and what is left of it is still to be deleted; end that with "
            "`dbio drop`, by whoever may delete there"
        )


def until_quiet(store: Store, read: Callable[[], _T]) -> _T:
    """What `read` returns once it finds every marker that it had listed: vacuum may purge one in between."""
    for _ in range(_ATTEMPTS):
        with suppress(ObjectNotFoundError):
            return read()
    raise StoreError(f"{store.url} changed under each of {_ATTEMPTS} attempts to read it; try again when it is quieter")


# --- table scope --------------------------------------------------------------------------------------------------


def _read_table(store: Store, clock: Clock, log: Log, *, as_of: AsOf, ignore_corrupt: bool) -> Snapshot:
    log, checkpoint = agreed_log(store, log, clock)
    descriptor = read_descriptor(store, log)
    new = log.uncovered(checkpoint.covered)
    markers = _read_valid(store, new.values(), scope=Scope.TABLE, ignore_corrupt=ignore_corrupt)
    told = [Decided(entry.modified, tid, markers[entry.path]) for tid, entry in new.items() if entry.path in markers]
    decided = [*checkpoint.commits, *told]
    commits = committed_by(decided, as_of, known_since=checkpoint.known_since)
    files = live_files(commits)
    columns = tuple(descriptor.partition_columns)
    check_partitions(store, files, columns)
    if as_of is not None:
        _check_past(store, files, decided, as_of)
    return Snapshot(
        url=store.url,
        scope=Scope.TABLE,
        files=_with_sizes(store, files),
        partition_columns=columns,
        commits=tuple(commits),
        checkpoint=NO_CHECKPOINT if as_of else checkpoint,
        log=log,
    )


def _check_past(store: Store, files: Iterable[DataFile], commits: Iterable[Decided], as_of: AsOf) -> None:
    """What was removed since then may be vacuumed; a checkpoint says so, but need not have come yet."""
    removed = {path for commit in commits for path in commit.marker.removed}
    doubtful = [file.path for file in files if file.path in removed]
    gone = [path for path, entry in zip(doubtful, store.stat_many(doubtful), strict=True) if entry is None]
    if gone:
        raise InvalidInputError(
            f"{store.url} as of {as_of} cannot be read: {len(gone)} files that were live then were removed, and "
            f"vacuumed since, first {gone[0]}; ask for a later time"
        )


def check_partitions(store: Store, files: Iterable[DataFile], columns: tuple[str, ...]) -> None:
    """Raises CorruptMarkerError: a DBIO writer may commit at our root without knowing of our partition columns."""
    for file in files:
        if tuple(file.partition) != columns:
            raise CorruptMarkerError(
                f"{store.url_of(names.committed(str(file.tid)))} adds {file.path!r} to a table that is partitioned by "
                f"{list(columns)}, but the file lies in no such partition; inspect it with `dbio show`, and remove the "
                "marker if that commit was a mistake"
            )


def agreed_log(store: Store, log: Log, clock: Clock) -> tuple[Log, Checkpoint]:
    """Lists until two listings in a row agree: the state is then the one between the two (I6).

    It is what the newest checkpoint covers, and the commit markers that it does not cover.
    """
    checkpoint = read_checkpoint(store, log)
    for _ in range(_ATTEMPTS):
        since_s = clock.monotonic()
        again = parse_log(store.list_log())
        if again.agrees_with(log, covered=checkpoint.covered):
            if clock.monotonic() - since_s < _VACUUM_S:
                return again, checkpoint
            # Long enough for vacuum to make a checkpoint and to purge by it: both listings may have missed a commit.
            log, again = again, parse_log(store.list_log())
            if again.last_checkpoint == checkpoint.number:
                return log, checkpoint
        if again.last_checkpoint != checkpoint.number:
            checkpoint = read_checkpoint(store, again)
        log = again
    raise StoreError(f"{store.url} had new commits in each of {_ATTEMPTS} listings; try again when it is quieter")


def read_checkpoint(store: Store, log: Log, number: int | None = None) -> Checkpoint:
    """The newest checkpoint of the log, or one of its others; 0 is none.

    Raises ObjectNotFoundError where vacuum has purged it since.
    """
    if number is None:
        number = log.last_checkpoint
    if not number:
        return NO_CHECKPOINT
    entry = log.checkpoints[number]
    where = store.url_of(entry.path)
    if number >= names.LAST_NUMBER:
        raise CorruptMarkerError(f"{where} is a checkpoint that no writer reaches; {INSPECT}")
    checkpoint = decode_checkpoint(read_marker(store, entry), number=number, where=where)
    for commit in checkpoint.commits:
        _check_visible(commit.marker, where=where)
    return checkpoint


def read_descriptor(store: Store, log: Log) -> Descriptor:
    """The table's descriptor. Raises UnsupportedTableError where a later version wrote it."""
    if log.descriptor is None:
        raise ObjectNotFoundError(f"{store.url_of(names.DESCRIPTOR)} has gone; somebody deleted the table")
    return decode_descriptor(read_marker(store, log.descriptor), where=store.url_of(names.DESCRIPTOR))


def read_marker(store: Store, entry: Entry) -> bytes:
    """The body of a marker that was listed; none that could not be a marker's takes our memory."""
    if entry.size > MAX_BYTES:
        raise CorruptMarkerError(
            f"{store.url_of(entry.path)} has {entry.size} bytes, and no writer writes over {MAX_BYTES}; {INSPECT}"
        )
    return store.get(entry.path)


def read_markers(
    store: Store, entries: Iterable[Entry], *, scope: Scope
) -> tuple[dict[str, CommitMarker], dict[str, CorruptMarkerError]]:
    """The commit markers, and what is wrong with those that are corrupt, by path; read in parallel."""
    entries = list(entries)
    check_scope = _check_visible if scope is Scope.TABLE else _check_local
    if (size := sum(min(entry.size, MAX_BYTES) for entry in entries)) > MAX_TOTAL_BYTES:
        raise CorruptMarkerError(
            f"the {len(entries)} commit markers of {store.url} have {size} bytes together, and {MAX_TOTAL_BYTES} are "
            "read at most; inspect the largest, and remove those that no writer wrote"
        )

    def read(entry: Entry) -> CommitMarker | CorruptMarkerError:
        where = store.url_of(entry.path)
        try:
            marker = decode_commit(read_marker(store, entry), where=where)
            check_scope(marker, where=where)
        except CorruptMarkerError as error:
            return error
        return marker

    found = dict(zip((entry.path for entry in entries), store.in_parallel(read, entries), strict=True))
    return (
        {path: marker for path, marker in found.items() if isinstance(marker, CommitMarker)},
        {path: error for path, error in found.items() if isinstance(error, CorruptMarkerError)},
    )


def _check_visible(marker: CommitMarker, *, where: str) -> None:
    """In the table scope, markers add only what readers take for data, and for one file."""
    if names.is_pattern("\n".join(marker.added)):
        pattern = next(filter(names.is_pattern, marker.added))
        raise CorruptMarkerError(f"{where} adds {pattern[:200]!r}, which other tools take for a pattern. Inspect it")
    visible = cache(names.is_data_file)
    for path in marker.added:
        directory, _, name = path.rpartition("/")
        if (name[0] in "._" and names.is_hidden(name)) or (directory and not visible(directory)):
            raise CorruptMarkerError(f"{where} adds {path[:200]!r}, which readers skip by its name. Inspect it")


def _check_local(marker: CommitMarker, *, where: str) -> None:
    """In the directory scope, markers name files of their own directory only."""
    for name in (*marker.added, *marker.removed):
        if "/" in name:
            raise CorruptMarkerError(
                f"{where} names {name[:200]!r}, which lies in another directory; without a {names.DESCRIPTOR} at the "
                "root a marker speaks of its own directory only. Inspect it"
            )


def _read_valid(
    store: Store, entries: Iterable[Entry], *, scope: Scope, ignore_corrupt: bool
) -> dict[str, CommitMarker]:
    markers, corrupt = read_markers(store, entries, scope=scope)
    if corrupt and not ignore_corrupt:
        raise next(iter(corrupt.values()))
    return markers


def _with_sizes(store: Store, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
    """The files with the sizes that their writers left out (another DBIO writer's, in a table of ours)."""
    unknown = [file.path for file in files if file.size == UNKNOWN_SIZE]
    if not unknown:
        return files
    sizes = {entry.path: entry.size for entry in store.stat_many(unknown) if entry}
    return tuple(file._replace(size=sizes[file.path]) if file.path in sizes else file for file in files)


def read_schema(store: Store, clock: Clock, log: Log) -> TableSchema:
    """The table's columns as of the log in hand, with as few requests as will do.

    The newest commit markers nearly always tell: each records the schema, and the last turn as of which it was so.
    While the last turn is undecided, the one before it tells: it is decided, and none has changed the schema since.
    """
    newest = sorted(log.committed.values(), key=lambda entry: (entry.modified, entry.path), reverse=True)[:_NEWEST]
    if not newest and not log.checkpoints:
        return NO_SCHEMA
    last_turn = read_last_turn(store, log)
    holder: str | None = None
    if log.pending and last_turn:
        holder = read_turn(store, log)
    decided = last_turn - 1 if holder in log.pending else last_turn
    told: list[TableSchema] = []
    for entry in newest:
        told += _recorded_schema(store, entry)
        if told and told[-1].turn == decided:
            return told[-1]
    if found := _schema_of_turn(store, log, decided):
        return found
    snapshot = read_snapshot(store, clock)
    schema = snapshot.table_schema
    if schema.turn < last_turn and read_turn(store, log) in {commit.tid for commit in snapshot.commits}:
        return schema._replace(turn=last_turn)  # that turn ended without a change
    return schema


def _schema_of_turn(store: Store, log: Log, turn: int) -> TableSchema | None:
    """What the holder of a decided turn recorded, or where that was aborted, of the turn before; None where vacuum has
    purged it.
    """
    for earlier in range(turn, 0, -1):
        if earlier not in log.turns:
            return None
        with suppress(ObjectNotFoundError):
            tid = decode_turn(read_marker(store, log.turns[earlier]), where=names.turn(earlier)).tid
            entry = log.committed.get(tid)
            if entry is None:
                return None
            if recorded := _recorded_schema(store, entry):
                return recorded[0]._replace(turn=turn)
            if tid in log.started and decode_commit(read_marker(store, entry), where=store.url_of(entry.path)).is_abort:
                continue
        return None
    return NO_SCHEMA


def _recorded_schema(store: Store, entry: Entry) -> list[TableSchema]:
    """What a commit marker says of the schema; nothing where it does not, or where vacuum has purged it."""
    with suppress(ObjectNotFoundError):
        info = decode_commit(read_marker(store, entry), where=store.url_of(entry.path)).dbio_commit
        if info and info.schema_turn is not None:
            return [TableSchema(info.table_schema, info.schema_turn)]
    return []


_NEWEST = 3


def read_last_turn(store: Store, log: Log) -> int:
    """The highest turn that was taken. Raises CorruptMarkerError for one that no writer reaches."""
    if log.last_turn >= names.LAST_NUMBER:
        raise CorruptMarkerError(
            f"{store.url_of(names.turn(log.last_turn))} is a turn that no writer reaches; inspect it"
        )
    return log.last_turn


def read_turn(store: Store, log: Log) -> str | None:
    """The tid that holds the last turn; None where vacuum has purged it since it was listed."""
    entry = log.turns[log.last_turn]
    with suppress(ObjectNotFoundError):
        return decode_turn(read_marker(store, entry), where=store.url_of(entry.path)).tid
    return None


# --- directory scope ----------------------------------------------------------------------------------------------


def _read_directories(store: Store, clock: Clock, *, as_of: AsOf, ignore_corrupt: bool) -> Snapshot:
    entries = store.list_files()
    directories = parse_directories(entries)
    check_directories(store, (entry.path for entry in entries))
    if is_empty(directories):
        raise TableNotFoundError(
            f"there is no table at {store.url}: no descriptor, no Parquet file and no marker; check the path"
        )
    log = parse_log(store.list_log())
    refuse_dropped(store, log)
    if log.descriptor is not None:  # created meanwhile: a table's descriptor comes before its files, so this tells (I1)
        return _read_table(store, clock, log, as_of=as_of, ignore_corrupt=ignore_corrupt)
    committed = [entry for directory in directories.values() for entry in directory.log.committed.values()]
    markers = _read_valid(store, committed, scope=Scope.DIRECTORY, ignore_corrupt=ignore_corrupt)
    commits = committed_by(_decided(directories, markers), as_of)
    counted = {commit.tid for commit in commits}
    files: list[DataFile] = []
    for directory in directories.values():
        own = {tid: markers[entry.path] for tid, entry in directory.log.committed.items() if entry.path in markers}
        if looks_torn(directory, own, now=clock.now()):
            directory = settle(directory, parse_directories(store.list_files(directory.path)).get(directory.path))
        if as_of is not None:
            directory = replace(directory, uncommitted=directory.uncommitted | (own.keys() - counted))
        files += visible_files(directory, {tid: marker for tid, marker in own.items() if tid in counted})
    other = set(not_parquet(store, ((file.path, file.size) for file in files)))
    files = [file for file in files if file.path not in other]
    used = {names.split(file.path)[0] for file in files}
    written = used or {path for path, directory in directories.items() if is_used(directory)}
    return Snapshot(
        url=store.url,
        scope=Scope.DIRECTORY,
        files=tuple(files),
        partition_columns=names.common_partition_columns(written) or (),
        commits=tuple(commits),
        foreign=tuple(sorted({*other, *(entry.path for it in directories.values() for entry in it.foreign)})),
    )


_FOREIGN = {
    "_delta_log": "a Delta table",
    ".hoodie": "a Hudi table",
    "_spark_metadata": "the output of a Spark stream",
}


def check_directories(store: Store, paths: Iterable[str]) -> None:
    """Raises UnsupportedTableError where the rules of another format say which files are live, or InvalidInputError
    where a table of ours lies further down. Paths of directories end with "/".
    """
    for path in paths:
        first, slash, _ = path.partition("/")
        if slash and first in _FOREIGN:
            raise UnsupportedTableError(
                f"{store.url} holds {first}/, so it is {_FOREIGN[first]}, whose own log says which files are live; "
                "read and write it with the tool that it belongs to"
            )
        refuse_nested(store, path)


def refuse_nested(store: Store, path: str) -> None:
    """Raises InvalidInputError where the path, below the root, is that of a table's descriptor."""
    directory, name = names.split(path)
    if directory and name == names.DESCRIPTOR:
        raise InvalidInputError(
            f"{store.url} holds another table, {store.url_of(directory)}; name that by its own path, and keep tables "
            "apart from one another"
        )


def _decided(directories: Mapping[str, Directory], markers: Mapping[str, CommitMarker]) -> Sequence[Decided]:
    """The transactions with a commit marker anywhere, as of the last of their markers."""
    parts: dict[str, dict[str, Entry]] = {}
    for path, directory in directories.items():
        for tid, entry in directory.log.committed.items():
            if entry.path in markers:
                parts.setdefault(tid, {})[path] = entry
    return [
        Decided(
            max(entry.modified for entry in entries.values()),
            tid,
            merge_directories({path: markers[entry.path] for path, entry in entries.items()}),
        )
        for tid, entries in parts.items()
    ]
