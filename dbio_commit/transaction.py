"""A transaction from begin to its decision: claim a tid, stage files, take a turn where needed, commit or abort.

Follows PROTOCOL.md 3.2 and 3.3 in the table scope, and section 2 in the directory scope. What is read of the table
comes from `snapshot`, what a marker says is in `markers`; Spark is nowhere in here.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC
from enum import Enum
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from dbio_commit.clock import Clock, Moment
from dbio_commit.data.fitting import fit
from dbio_commit.data.footers import Footer, Inspector
from dbio_commit.decision import abort_transaction, decide, find_purged, has_start, read_decided, read_own, take_turn
from dbio_commit.errors import (
    AccessDeniedError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StoreError,
    TableExistsError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedStoreError,
)
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.directory import is_empty, parse_directories
from dbio_commit.protocol.garbage import is_foreign
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers import (
    App,
    CommitInfo,
    CommitMarker,
    Descriptor,
    FileInfo,
    Operation,
    decode_descriptor,
    encode,
    encode_commit,
    pack_files,
)
from dbio_commit.protocol.partitions import partition_types, replaced_files
from dbio_commit.protocol.state import NO_SCHEMA, TableSchema
from dbio_commit.snapshot import (
    Scope,
    Snapshot,
    check_directories,
    read_descriptor,
    read_schema,
    read_snapshot,
    refuse_dropped,
)
from dbio_commit.store import Store

MAX_LIFE_S = 7 * 24 * 3600.0
"""No transaction commits after this: abort markers are kept longer, so that a late writer always finds its own."""

_YOUNG_S = 60.0
"""Vacuum purges the markers of none that is younger: it would be another copy that has committed."""

_TIDS_TO_TRY = 10

_log = logging.getLogger(__name__)


class _State(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "of unknown outcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a transaction is about; settled when it begins, so it may be pickled and resumed in another process."""

    tid: str
    operation: Operation
    scope: Scope
    partition_columns: tuple[str, ...]
    app: App | None
    must_create: bool
    commit_id: str
    job: str
    """Random, in the name of each data file, as DBIO has it."""
    began: Moment
    schema: TableSchema
    """The table's columns when it began."""
    creates: bool = False
    """Whether it created the table."""


class Transaction:
    """One write: decided exactly once, committed or aborted.

    As a context manager it commits when the block ends, and aborts when the block raises.
    """

    def __init__(self, store: Store, clock: Clock, terms: Terms, *, inspector: Inspector | None = None) -> None:
        self.terms = terms
        self.inspector = inspector
        """Looks at files that were taken by `new_file`, when they are committed; None takes them as they are."""
        self._footers: dict[str, Footer] = {}
        self._store = store
        self._clock = clock
        self._state = _State.OPEN
        self._staged: dict[str, FileInfo | None] = {}  # None: a new file whose size is not known yet
        self._removed: set[str] = set()
        self._replaced: list[names.Partition] = []
        self._marked: set[str] = set()  # in the directory scope: with a start marker
        self._refused: AccessDeniedError | None = None  # the answer to its commit
        self._attempt = clock.random_bits(31)  # so that copies which are resumed elsewhere take other names

    def __repr__(self) -> str:
        terms = self.terms
        return (
            f"<Transaction {terms.tid}: {terms.operation} on {self._store.url}, {self._state.value}, "
            f"{len(self._staged)} files staged>"
        )

    @property
    def tid(self) -> str:
        return self.terms.tid

    # --- stage ----------------------------------------------------------------------------------------------------

    def new_file(self, suffix: str = ".parquet", partition: Mapping[str, str | None] | None = None) -> str:
        """Where to write a new data file: a URL or plain path. Write it before `commit`, and nothing else there.

        `partition` has a value for every partition column of the table, as text; None is null. Raises
        InvalidInputError for other columns and for values that a directory's name cannot hold.
        """
        self._require_open("take a new file")
        values = self._check_partition(partition or {})
        name = names.format_data_file(
            tid=self.tid, job=self.terms.job, task=0, attempt=self._attempt, number=len(self._staged), suffix=suffix
        )
        path = _check_new(names.join(names.format_partition(values), name), self.tid)
        self._mark(names.split(path)[0])
        url = self._store.prepare(path)
        self._staged[path] = None
        return url

    def add(self, files: Iterable[FileInfo]) -> None:
        """Takes data files that are written, durable and named in this transaction's way, by a task or anybody."""
        self._require_open("add files")
        for file in files:
            directory = names.split(_check_new(file.path, self.tid))[0]
            if names.parse_partition(directory) != file.partition:
                raise InvalidInputError(f"{file.path!r} does not lie in the partition {dict(file.partition)}")
            if self.terms.scope is Scope.TABLE and tuple(file.partition) != self.terms.partition_columns:
                raise InvalidInputError(
                    f"{file.path!r} lies in no partition of {self._store.url}, which is partitioned by "
                    f"{list(self.terms.partition_columns)}; readers would refuse the whole table"
                )
            self._staged[file.path] = file

    def remove(self, paths: Iterable[str]) -> None:
        """Of a rewrite: these live files go when it commits. Paths are relative to the root of the table."""
        self._require_open("remove files")
        if self.terms.operation != "rewrite":
            raise TransactionStateError(f"a transaction of operation {self.terms.operation!r} names no files to remove")
        self._removed.update([paths] if isinstance(paths, str) else paths)

    def replace_partition(self, partition: Mapping[str, str | None]) -> None:
        """Of a partition replacement: what is live in this partition goes, even if nothing is written there.

        Fewer than all partition columns name all partitions below. Without a call of this, a replacement replaces
        the partitions that it writes to.
        """
        self._require_open("replace partitions")
        if self.terms.operation != "replace_partitions":
            raise TransactionStateError(f"a transaction of operation {self.terms.operation!r} replaces no partitions")
        if not partition or not partition.keys() <= set(self.terms.partition_columns):
            raise InvalidInputError(
                f"{dict(partition)} is no partition of a table partitioned by {list(self.terms.partition_columns)}"
            )
        self._replaced.append(dict(partition))

    def _check_partition(self, partition: Mapping[str, str | None]) -> names.Partition:
        columns = self.terms.partition_columns
        if not all(value is None or isinstance(value, str) for value in partition.values()):
            raise InvalidInputError(f"the values of partition {dict(partition)} must be text, or None for null")
        if partition.keys() != set(columns):
            raise InvalidInputError(f"the partition columns are {list(columns)}, but got values for {list(partition)}")
        return {column: partition[column] for column in columns}

    # --- decide ---------------------------------------------------------------------------------------------------

    def commit(self, schema: Mapping[str, Any] | None = None) -> Commit:
        """Makes all staged files live, and the removed ones not, at once. `schema`: the table's columns after it.

        Raises CommitConflictError or TransactionAbortedError (nothing was committed, begin again),
        CommitStateUnknownError (commit again: it reads back first), StoreError (still open: commit again, or abort).
        """
        if self._state is not _State.UNKNOWN:
            self._require_open("commit")
        began_s = self._clock.monotonic()
        try:
            files = self._complete_files()
            schema = self._fitted(schema)
            write = self._commit_table if self.terms.scope is Scope.TABLE else self._commit_directories
            commit = self._decided_before(files) or write(files, schema, began_s)
        except StoreError as error:
            if self._state is _State.UNKNOWN:
                raise CommitStateUnknownError(
                    f"whether {self.tid} is committed to {self._store.url} is still not known: {error}; commit again "
                    "once the store answers, or look for the tid with `dbio log`"
                ) from error
            self._refused = error if isinstance(error, AccessDeniedError) else None
            raise  # nothing is decided
        except CommitStateUnknownError:
            self._state = _State.UNKNOWN
            raise
        except Exception:
            self._try_abort()
            raise
        if commit.skipped:
            self._try_abort()
            self._state = _State.ABORTED  # also where that failed: there is nothing to commit any more
        else:
            self._state = _State.COMMITTED
            commit = self._timed(commit, began_s)
        _log.info("%s: %s %s: %d files added, %d removed", self._store.url, commit.operation, self.tid,
                  commit.added_files, commit.removed_files)  # fmt: skip
        return commit

    def abort(self) -> None:
        """Decides that nothing is committed, then deletes the staged files, as far as that works.

        Raises TransactionStateError where it is committed already.
        """
        if self._state is _State.ABORTED:
            return
        if self._state is _State.COMMITTED:
            raise TransactionStateError(
                f"transaction {self.tid} of {self._store.url} is committed; it cannot be aborted"
            )
        if self.terms.scope is Scope.TABLE:
            self._abort_table()
            self._delete(self._staged)
        else:
            self._abort_directories()
        self._state = _State.ABORTED
        _log.info("%s: aborted %s", self._store.url, self.tid)
        if self.terms.creates:
            columns = f"partitioned by {list(self.terms.partition_columns)}, " if self.terms.partition_columns else ""
            _log.warning("%s is a table now, %swithout any rows: the write that created it was aborted. Write again, "
                         "or remove it with `dbio drop`", self._store.url, columns)  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            if self._state is _State.OPEN:
                try:
                    self.commit()
                except StoreError:  # or nobody could take a turn before the lease ends
                    self._give_up()
                    raise
        elif self._state is _State.OPEN:
            self._give_up()

    def _give_up(self) -> None:
        """Aborts. Where the store refused the commit, and the abort too, a request of the commit may still land.

        Raises CommitStateUnknownError then.
        """
        if not self._try_abort() and self._refused:
            self._state = _State.UNKNOWN
            raise CommitStateUnknownError(
                f"the commit of {self.tid} to {self._store.url} was refused, and so was its abort; a request that is "
                f"still under way may land: with credentials that are valid, run `dbio abort {self._store.url} "
                f"{self.tid}` before you write the same data again. {self._refused}"
            ) from self._refused

    def _try_abort(self) -> bool:
        """Where there is an error to raise already, or nothing to lose: vacuum aborts what we could not; False."""
        try:
            self.abort()
        except DbioError as failure:
            _log.warning("%s: could not abort %s, vacuum will: %s", self._store.url, self.tid, failure)
            return False
        return True

    def _require_open(self, action: str) -> None:
        if self._state is not _State.OPEN:
            raise TransactionStateError(
                f"cannot {action}: transaction {self.tid} of {self._store.url} is {self._state.value}; begin a new one"
            )

    @property
    def _age_s(self) -> float:
        return self._clock.seconds_since(self.terms.began)

    @property
    def _is_young(self) -> bool:
        """Whether vacuum cannot have purged any of its markers."""
        return self._clock.is_within(self.terms.began, _YOUNG_S)

    def _check_life(self) -> None:
        if (age_s := self._age_s) > MAX_LIFE_S:
            raise TransactionAbortedError(
                f"transaction {self.tid} of {self._store.url} began {age_s / 86400:.1f} days ago, and none may commit "
                f"after {MAX_LIFE_S / 86400:.0f} days, because vacuum may have deleted its files; begin again"
            )

    def _complete_files(self) -> list[FileInfo]:
        """The staged files with their sizes; the data is durable before a marker names it (I2)."""
        self._store.check_spelling({names.split(path)[0] for path in self._staged})
        new = [path for path, info in self._staged.items() if info is None]
        if new:
            found = self._store.stat_many(new)
            if missing := [path for path, entry in zip(new, found, strict=True) if entry is None]:
                self._raise_if_decided(names.split(missing[0])[0])
                raise TransactionStateError(
                    f"{len(missing)} of the files that transaction {self.tid} took by new_file were not written, "
                    f"first {self._store.url_of(missing[0])}; write each one before commit"
                )
            self._store.make_durable(new)
            written = [entry for entry in found if entry is not None]
            if self.inspector:
                self._footers |= {footer.path: footer for footer in self.inspector(self._store, written)}
            for entry in written:
                footer = self._footers.get(entry.path, Footer(path=entry.path))
                self._staged[entry.path] = FileInfo(
                    path=entry.path,
                    size=entry.size,
                    rows=footer.rows,
                    partition=names.parse_partition(names.split(entry.path)[0]),
                    statistics=footer.statistics,
                )
        return [info for info in self._staged.values() if info is not None]

    def _fitted(self, schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The table's columns after the commit, where files that we looked at have a say in it."""
        footers = [footer for footer in self._footers.values() if footer.columns is not None]
        if self.terms.scope is Scope.DIRECTORY or not footers:
            return schema
        columns, where = self.terms.partition_columns, self._store.url
        if schema is None and self.terms.operation == "overwrite":
            with suppress(SchemaMismatchError):
                return fit(footers, self.terms.schema.json, partition_columns=columns, where=where)
            return fit(footers, None, partition_columns=columns, where=where)  # an overwrite may set its own
        known = self.terms.schema.json if schema is None else schema
        return fit(footers, known, partition_columns=columns, where=where)

    def _raise_if_decided(self, directory: str) -> None:
        """Files that are missing were deleted, rather than never written, where somebody aborted us before."""
        marker = names.join("" if self.terms.scope is Scope.TABLE else directory, names.committed(self.tid))
        with suppress(ObjectNotFoundError):
            read_own(self._store, marker, commit_id=self.terms.commit_id)

    def _delete(self, paths: Iterable[str]) -> None:
        failures = self._store.delete_many(list(paths))
        if failures:
            _log.warning("%s: %d files of %s stay for vacuum", self._store.url, len(failures), self.tid)

    def _metrics(self, files: Sequence[FileInfo], began_s: float) -> dict[str, int]:
        rows = [file.rows for file in files]
        metrics = {
            "numFiles": len(files),
            "numOutputBytes": sum(file.size for file in files),
            "numParts": len({names.split(file.path)[0] for file in files} - {""}),
            "jobCommitTime": self._elapsed_ms(began_s),
        }
        known = [count for count in rows if count is not None]
        return {**metrics, "numOutputRows": sum(known)} if len(known) == len(rows) else metrics

    def _timed(self, commit: Commit, began_s: float) -> Commit:
        """The result with the time of the whole commit; its marker cannot know how long its own PUT took."""
        info = commit.marker.dbio_commit
        if info is None:
            return commit
        metrics = {**info.metrics, "jobCommitTime": self._elapsed_ms(began_s)}
        timed = info.model_copy(update={"metrics": metrics})
        return replace(commit, marker=commit.marker.model_copy(update={"dbio_commit": timed}))

    def _elapsed_ms(self, began_s: float) -> int:
        return round((self._clock.monotonic() - began_s) * 1000)

    def _commit(self, marker: CommitMarker, *, skipped: bool = False) -> Commit:
        return Commit(tid=self.tid, timestamp=self._clock.now(), marker=marker, skipped=skipped)

    # --- table scope ----------------------------------------------------------------------------------------------

    def _commit_table(self, files: list[FileInfo], schema: Mapping[str, Any] | None, began_s: float) -> Commit:
        terms = self.terms
        turn: int | None = None
        removed: Sequence[str] = ()
        seen = terms.schema
        changes_schema = schema is not None and schema != seen.json
        if terms.operation != "append" or terms.app or terms.must_create or changes_schema:
            turn, snapshot = self._take_turn()
            if snapshot is None:  # decided already; by ourselves, where an earlier call of commit was interrupted
                return self._committed_before(read_decided(self._store, self.tid, commit_id=terms.commit_id), files)
            if own := next((it for it in snapshot.commits if it.tid == self.tid and not it.marker.is_abort), None):
                return self._committed_before(own.marker, files)  # and vacuum has purged its marker since
            if terms.app and is_committed(snapshot, terms.app):
                return self._commit(self._marker([], (), self._metrics([], began_s), turn, seen), skipped=True)  # I8
            if terms.must_create and snapshot.tids:
                raise TableExistsError(table_exists(self._store))
            removed = self._to_remove(snapshot, files, schema)
            seen = self._schema_after(snapshot.schema, turn, schema, changes=changes_schema)
        marker = self._marker(files, removed, self._metrics(files, began_s), turn, seen)
        body = encode_commit(marker)
        self._check_life()
        before = decide(self._store, names.committed(self.tid), body, commit_id=terms.commit_id)
        if not self._is_young:
            before = find_purged(self._store, self.tid, before) or before
        return self._commit(marker) if before is None else self._committed_before(before, files)

    def _decided_before(self, files: Sequence[FileInfo]) -> Commit | None:
        """What another copy of it has committed, where this one comes too late; None while it may commit."""
        if self.terms.scope is Scope.DIRECTORY:
            self._check_life()
            return None
        if self._age_s <= MAX_LIFE_S and (self._is_young or has_start(self._store, self.tid)):
            return None
        try:
            found = read_decided(self._store, self.tid, commit_id=self.terms.commit_id)
        except TransactionAbortedError:
            self._check_life()
            raise
        return self._committed_before(found, files)

    def _committed_before(self, found: CommitMarker, files: Sequence[FileInfo]) -> Commit:
        """By an earlier call of commit, or by another copy of this transaction that staged the same files.

        Raises CommitConflictError where it staged others.
        """
        if found.is_of([file.path for file in files]):
            return self._commit(found)
        self._state = _State.COMMITTED
        raise CommitConflictError(
            f"transaction {self.tid} of {self._store.url} is committed already, by another copy of it, "
            f"with other files than those that were staged here; see `dbio show {self.tid}`"
        )

    def _take_turn(self) -> tuple[int, Snapshot | None]:
        """Our turn, and the table as it stands in it; no snapshot where our transaction is decided already."""
        while (turn := take_turn(self._store, self._clock, self.tid)) is not None:
            snapshot = read_snapshot(self._store, self._clock)
            if snapshot.log.last_turn <= turn:
                return turn, snapshot
            # A listing that vacuum overtook showed no turn where there were many: ours is one long past.
        return 0, None

    def _schema_after(
        self, current: Mapping[str, Any] | None, turn: int, schema: Mapping[str, Any] | None, *, changes: bool
    ) -> TableSchema:
        """The table's schema after this commit. An overwrite sets its own; others change only what they have seen."""
        if schema is not None and self.terms.operation == "overwrite":
            return TableSchema(schema, turn)
        if schema is None or not changes:
            return TableSchema(current, turn)
        if current not in (None, self.terms.schema.json, schema):
            raise CommitConflictError(
                f"the schema of {self._store.url} was changed by another commit since transaction {self.tid} "
                "began; nothing was committed: read the table again and write anew"
            )
        return TableSchema(schema, turn)

    def _to_remove(
        self, snapshot: Snapshot, files: Sequence[FileInfo], schema: Mapping[str, Any] | None = None
    ) -> list[str]:
        match self.terms.operation:
            case "overwrite":
                return [file.path for file in snapshot.files]
            case "replace_partitions":
                replaced = self._replaced or [file.partition for file in files]
                types = partition_types(schema or snapshot.schema, snapshot.partition_columns)
                return [file.path for file in replaced_files(snapshot.files, replaced, types)]
            case "rewrite":
                live = {file.path for file in snapshot.files}
                if gone := self._removed - live:
                    raise CommitConflictError(
                        f"{len(gone)} of the {len(self._removed)} files that transaction {self.tid} rewrites are not "
                        f"live any more in {snapshot.url}, first {min(gone)}; read the table again and begin again"
                    )
                return sorted(self._removed)
        return []

    def _marker(
        self,
        files: Sequence[FileInfo],
        removed: Sequence[str],
        metrics: dict[str, int],
        turn: int | None = None,
        schema: TableSchema | None = None,
    ) -> CommitMarker:
        return CommitMarker(
            added=[file.path for file in files],
            removed=list(removed),
            dbio_commit=CommitInfo(
                operation=self.terms.operation,
                commit_id=self.terms.commit_id,
                timestamp=self._clock.now(),
                turn=turn,
                app=self.terms.app,
                metrics=metrics,
                table_schema=dict(schema.json) if schema and schema.json is not None else None,
                schema_turn=schema.turn if schema else None,
                files=pack_files(files),
            ),
        )

    def _abort_table(self) -> None:
        """Leaves no marker where there is nothing to decide any more: the table may be gone (`drop`), or another."""
        if self._is_young or has_start(self._store, self.tid):
            abort_transaction(self._store, self._clock, self.tid)
            return
        with suppress(TransactionAbortedError):
            read_decided(self._store, self.tid, commit_id=self.terms.commit_id)
            raise TransactionStateError(f"transaction {self.tid} of {self._store.url} was committed long ago")

    # --- directory scope ------------------------------------------------------------------------------------------

    def _commit_directories(self, files: list[FileInfo], schema: Mapping[str, Any] | None, began_s: float) -> Commit:
        """A marker in each directory, as DBIO has it: what is added first, so that a crash loses nothing."""
        needs_snapshot = self.terms.operation != "append"
        snapshot = read_snapshot(self._store, self._clock) if needs_snapshot else None
        removed = self._to_remove(snapshot, files, schema) if snapshot else []
        metrics = self._metrics(files, began_s)  # of the whole transaction, in each of its markers
        bodies: dict[str, bytes] = {}  # all of them, before the first one decides anything
        for directory, (added, gone) in _by_directory(files, removed).items():
            local = [replace(file, path=names.split(file.path)[1]) for file in added]
            bodies[directory] = encode_commit(self._marker(local, [names.split(path)[1] for path in gone], metrics))
        self._check_life()
        for directory in bodies:  # before the look at the descriptor: who adopts the directory now sees us at work
            self._mark(directory)
        log = parse_log(self._store.list_log())
        if log.descriptor is not None:  # or nobody would ever see what we commit
            raise CommitConflictError(
                f"{self._store.url} was made a table (`dbio adopt`) since transaction {self.tid} began; nothing was "
                "committed: begin again"
            )
        if log.is_being_adopted:  # the descriptor may come at any moment, and what we commit is not in the checkpoint
            raise CommitConflictError(_being_adopted(self._store, log))
        done: list[str] = []
        for directory, body in bodies.items():
            path = names.join(directory, names.committed(self.tid))
            try:
                decide(self._store, path, body, commit_id=self.terms.commit_id)
            except DbioError as error:
                if not done:
                    raise
                raise CommitStateUnknownError(
                    f"{self.tid} is committed in {len(done)} of {len(bodies)} directories of {self._store.url}, not "
                    f"yet in {directory or 'the root'}: {error}; without {names.DESCRIPTOR} commits are atomic for "
                    "each directory only. See `dbio show` for what is committed"
                ) from error
            done.append(directory)
        if self._age_s > MAX_LIFE_S:
            raise CommitStateUnknownError(
                f"the commit of {self.tid} to {self._store.url} took so long that vacuum may have deleted its files; "
                "run `dbio check` on the table before anything else"
            )
        foreign = snapshot.foreign if snapshot else ()
        if foreign:
            _log.warning("%s: %s", self._store.url, left_alone(foreign))
        return replace(self._commit(self._marker(files, removed, metrics)), foreign=foreign)

    def _mark(self, directory: str) -> None:
        if self.terms.scope is Scope.DIRECTORY and directory not in self._marked:
            mark_directory(self._store, self.terms, directory)
            self._marked.add(directory)

    def _abort_directories(self) -> None:
        """Directory by directory; where it is committed, its files stay. Raises TransactionStateError for those."""
        committed: list[str] = []
        for directory in sorted(self._marked | {names.split(path)[0] for path in self._staged}):
            try:
                abort_transaction(self._store, self._clock, self.tid, directory=directory)
            except TransactionStateError:
                committed.append(directory)
            else:
                self._delete(path for path in self._staged if names.split(path)[0] == directory)
        if committed:
            raise TransactionStateError(
                f"transaction {self.tid} is committed in {len(committed)} directories of {self._store.url}, first "
                f"{committed[0] or 'the root'}, and aborted in the others; see `dbio show`"
            )


def _check_new(path: str, tid: str) -> str:
    """The path of a data file that the transaction adds, and deletes when it aborts: so it must be its own."""
    try:
        names.check_path(path, where="a new file")
    except CorruptMarkerError:
        raise InvalidInputError(f"{path[:200]!r} is no path inside the table; give another name") from None
    if names.is_pattern(path):
        raise InvalidInputError(f"{path[:200]!r} holds one of * ? [ ] {{, a pattern to other tools; give another name")
    if not names.is_data_file(path) or names.parse_data_file(names.split(path)[1]) != tid:
        raise InvalidInputError(f"{path!r} cannot be a data file of transaction {tid}: its name must hold that tid")
    return path


def left_alone(foreign: Sequence[str]) -> str:
    """What is said of files that are no Parquet: they are no part of a table."""
    return f"{len(foreign)} files are no Parquet, first {foreign[0]!r:.200}; they are left alone, and nobody reads them"


def _by_directory(files: Iterable[FileInfo], removed: Iterable[str]) -> dict[str, tuple[list[FileInfo], list[str]]]:
    """What each directory gains and loses; those that gain come first."""
    parts: dict[str, tuple[list[FileInfo], list[str]]] = {}
    for file in files:
        parts.setdefault(names.split(file.path)[0], ([], []))[0].append(file)
    for path in removed:
        parts.setdefault(names.split(path)[0], ([], []))[1].append(path)
    return parts


def is_committed(snapshot: Snapshot, app: App) -> bool:
    """Whether the application has committed this version, or a later one: then nothing may be written (I8).

    A WARNING says by which commit: a version that somebody made up would stop a job for good, and in silence.
    """
    latest = snapshot.app_versions.get(app.id, -1)
    if latest < app.version:
        return False
    has_it = App(id=app.id, version=latest)
    infos = ((commit.tid, commit.marker.dbio_commit) for commit in snapshot.commits)
    tids = [tid for tid, info in infos if info and info.app == has_it]
    by = f"by transaction {tids[-1]}" if tids else "by a transaction of which a checkpoint knows no more than that"
    _log.warning("%s: version %d of application %r is skipped: version %d is committed, %s; where no job of yours has "
                 "come that far, see `dbio check`", snapshot.url, app.version, app.id, latest, by)  # fmt: skip
    return True


# --- begin --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a transaction is about to write to."""

    scope: Scope | None
    """None where nothing is there yet."""
    partition_columns: tuple[str, ...] | None = None
    """None where nothing says what they are."""
    schema: TableSchema = NO_SCHEMA
    looked: Moment | None = None
    """It was so then, or later."""


LOOK_S = 50.0
"""How long a transaction trusts what it saw of the table before it claimed its tid."""


def look(store: Store, clock: Clock, *, must_create: bool = False) -> Target:
    """What is at the root now; writes nothing. Raises TableExistsError where `must_create` and there are commits."""
    looked = clock.moment()
    log = parse_log(store.list_log())
    refuse_dropped(store, log)
    if log.descriptor is not None:
        if must_create and (log.committed or log.checkpoints) and read_snapshot(store, clock).tids:
            raise TableExistsError(table_exists(store))
        columns = tuple(read_descriptor(store, log).partition_columns)
        schema = read_schema(store, clock, log)
        return Target(scope=Scope.TABLE, partition_columns=columns, schema=schema, looked=looked)
    entries = store.list_files()
    check_directories(store, (entry.path for entry in entries))
    if is_empty(parse_directories(entries)):
        if foreign := [entry.path for entry in entries if is_foreign(entry.path)]:
            _log.warning("%s: %s", store.url, left_alone(foreign))
        if log.checkpoints:
            raise InvalidInputError(
                f"{store.url} holds nothing but the checkpoint of an adoption that did not come to its end; it would "
                f"count in a new table: remove {names.checkpoint(log.last_checkpoint)}, then write again"
            )
        return Target(scope=None, looked=looked)
    if parse_log(store.list_log()).descriptor is not None:  # created since the log was listed
        return look(store, clock, must_create=must_create)
    if log.is_being_adopted:
        raise CommitConflictError(_being_adopted(store, log))
    if must_create:
        raise TableExistsError(table_exists(store))
    snapshot = read_snapshot(store, clock)
    settled = snapshot.files or snapshot.partition_columns
    return Target(scope=Scope.DIRECTORY, partition_columns=snapshot.partition_columns if settled else None)


def _being_adopted(store: Store, log: Log) -> str:
    return (
        f"an adoption of {store.url} has begun and not come to its end; nothing was committed: end it with "
        f"`dbio adopt`, or remove {names.checkpoint(log.last_checkpoint)} where nobody is at it, then write again"
    )


def begin(
    store: Store,
    clock: Clock,
    *,
    operation: Operation = "append",
    partition_by: Sequence[str] = (),
    app: tuple[str, int] | None = None,
    must_create: bool = False,
    target: Target | None = None,
    inspector: Inspector | None = None,
) -> Transaction:
    """Creates the table where there is none, and claims a tid.

    `must_create` asks for a table without commits so far; `target` is what `look` found, if it was asked before.
    Raises SchemaMismatchError for other partition columns than the table's, TableExistsError, UnsupportedStoreError
    where the store has no put-if-absent.
    """
    application = check_app(app)
    target = target or look(store, clock, must_create=must_create)
    columns = choose_partition_columns(target, partition_by, where=store.url)
    creates, looked = target.scope is None, target.looked
    if target.scope is None:
        target = _create(store, clock, columns)
        if target.partition_columns != columns:  # somebody else was faster; our tasks may be planned already
            raise SchemaMismatchError(
                f"{store.url} was created by somebody else just now, partitioned by "
                f"{list(target.partition_columns or ())}, not by {list(columns)}; nothing was written: try again"
            )
    if target.scope is Scope.DIRECTORY and application:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}: its markers cannot tell which versions of an application are "
            "committed; write to a table of its own"
        )
    tid = _claim_tid(store, clock) if target.scope is Scope.TABLE else new_tid(clock)
    if target.scope is Scope.TABLE and not (looked and clock.is_within(looked, LOOK_S)):
        _refuse_changed(store, tid, columns)
    terms = Terms(
        tid=tid,
        operation=operation,
        scope=target.scope or Scope.TABLE,
        partition_columns=columns,
        app=application,
        must_create=must_create,
        commit_id=new_uuid(clock),
        job=new_uuid(clock),
        began=clock.moment(),
        schema=target.schema,
        creates=creates,
    )
    return Transaction(store, clock, terms, inspector=inspector)


def _refuse_changed(store: Store, tid: str, columns: tuple[str, ...]) -> None:
    """Raises CommitConflictError where the table that we looked at was dropped before our start marker came."""
    log = parse_log(store.list_log())
    there = log.dropped is None and log.descriptor is not None
    if there and tuple(read_descriptor(store, log).partition_columns) == columns:
        return
    store.delete_many([names.started(tid)])
    raise CommitConflictError(
        f"{store.url} was dropped since this write looked at it; nothing was written: begin again"
    )


def choose_partition_columns(target: Target, partition_by: Sequence[str], *, where: str) -> tuple[str, ...]:
    """The table's own partition columns, or those asked for where it has none yet. Case makes no difference.

    Raises SchemaMismatchError where both are given and differ, InvalidInputError for impossible columns.
    """
    asked = names.check_partition_columns(partition_by)
    own = target.partition_columns
    if own is None:
        return asked
    if asked and [column.lower() for column in asked] != [column.lower() for column in own]:
        remove = ", or remove the table with `dbio drop`" if target.scope is Scope.TABLE else ""
        raise SchemaMismatchError(
            f"{where} is partitioned by {list(own)}, not by {list(asked)}; "
            f"leave partition_by out, or write to another path{remove}"
        )
    return own


def table_exists(store: Store) -> str:
    return f"there is a table at {store.url} already; use mode append or overwrite, or another path"


def check_app(app: tuple[str, int] | None) -> App | None:
    if app is None:
        return None
    try:
        if isinstance(app, str):
            raise ValueError("a text alone")
        id, version = app
        return App(id=id, version=version)
    except (ValueError, TypeError):
        raise InvalidInputError(
            f"app={app!r:.200} is not (application id, version): give a text and a whole number from 0, which counts "
            "up, such as app=('nightly', 20261120)"
        ) from None


def new_tid(clock: Clock) -> str:
    millis = int(clock.now().astimezone(UTC).timestamp() * 1000)
    return names.format_tid(millis, clock.random_bits(names.RANDOM_BITS))


def _claim_tid(store: Store, clock: Clock) -> str:
    """A tid that nobody else has; the store proves here, once a process, that it can tell a winner."""
    for _ in range(_TIDS_TO_TRY):
        tid = new_tid(clock)
        if store.put_if_absent(names.started(tid), b""):
            probe(store, names.started(tid), b"")
            return tid
    raise StoreError(f"{store.url} refused {_TIDS_TO_TRY} new tids as taken; check the machine's clock and try again")


_PROBED: set[str] = set()


def probe(store: Store, path: str, body: bytes, *, created: bool = True) -> None:
    """Raises UnsupportedStoreError if the store creates once more what is there, with the same body.

    `created` says that we have created it just now; then it is deleted.
    """
    if store.identity in _PROBED:
        return
    try:
        is_created_twice = store.put_if_absent(path, body)
    except StoreError as error:
        raise type(error)(
            f"cannot try out whether {store.url} refuses to create {path} twice, which stays as it is: {error}"
        ) from error
    if is_created_twice:
        if created:
            store.delete_many([path])
        raise UnsupportedStoreError(
            f"the store of {store.url} created {path} twice: it ignores If-None-Match, so two writers could both win. "
            "Nothing was written; use a store with conditional writes (S3, Azure, MinIO, Ceph, a local disk)"
        )
    _PROBED.add(store.identity)


def prove_store(store: Store) -> None:
    """`probe` for those who decide about others' transactions, in a table that is there. Changes nothing.

    The descriptor never changes, so creating it once more is refused, or makes no difference. Raises
    UnsupportedStoreError, ObjectNotFoundError where there is no table.
    """
    if store.identity not in _PROBED:
        body = store.get(names.DESCRIPTOR)
        decode_descriptor(body, where=store.url_of(names.DESCRIPTOR))
        probe(store, names.DESCRIPTOR, body, created=False)


def _create(store: Store, clock: Clock, partition_by: tuple[str, ...]) -> Target:
    """The new table, or what somebody else has created since we looked."""
    if create_descriptor(store, clock, partition_by):
        return Target(scope=Scope.TABLE, partition_columns=partition_by)
    found = decode_descriptor(store.get(names.DESCRIPTOR), where=store.url_of(names.DESCRIPTOR))
    return Target(scope=Scope.TABLE, partition_columns=tuple(found.partition_columns))


def create_descriptor(store: Store, clock: Clock, partition_by: Sequence[str]) -> bool:
    """Makes the root a table; False where it was one already."""
    body = encode(Descriptor(id=new_uuid(clock), created=clock.now(), partition_columns=list(partition_by)))
    if not store.put_if_absent(names.DESCRIPTOR, body):
        return False
    probe(store, names.DESCRIPTOR, body)
    return True


def new_uuid(clock: Clock) -> str:
    return str(UUID(int=clock.random_bits(128), version=4))


def mark_directory(store: Store, terms: Terms, directory: str) -> None:
    """In the directory scope: the start marker that comes before the first data file of each directory."""
    if terms.scope is Scope.DIRECTORY:
        marker = names.join(directory, names.started(terms.tid))
        if store.put_if_absent(marker, b""):
            probe(store, marker, b"")
