"""A transaction from its first staged file to its decision: stage, commit, abort.

How it begins is in `begin`; how it is decided in its root, `roots.table` or `roots.directory`. No Spark in here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from types import TracebackType
from typing import Any, Self

from msgspec import structs

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    AccessDeniedError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    SchemaMismatchError,
    StoreError,
    TransactionStateError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.base.texts import command
from dbio_commit.commit.checkpoints import checkpoint_by_chance
from dbio_commit.commit.draft import Draft, Terms
from dbio_commit.commit.isolation import Read
from dbio_commit.commit.operations import RULES
from dbio_commit.commit.roots import KINDS
from dbio_commit.data.fitting import fit
from dbio_commit.data.footers import Footer, Inspector
from dbio_commit.data.inside import refuse_inside
from dbio_commit.data.proof import refuse_unproven
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.footprint import marker_bytes
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.markers.schema import decode_schema, pack_schema
from dbio_commit.protocol.partition_values import Given, kind_of, spell
from dbio_commit.protocol.partitions import Types, find_problem, partition_types, widest_types
from dbio_commit.protocol.settings import Settings
from dbio_commit.protocol.types import is_partition
from dbio_commit.store import Store

_log = get_logger(__name__)


FollowUp = Callable[[Store, Clock, Settings | None], None]
"""What follows a commit, given the settings of the table: it logs what fails, for the commit stands."""


class _State(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "of unknown outcome"


class Transaction:
    """One write: decided exactly once, committed or aborted.

    As a context manager it commits when the block ends, and aborts when the block raises.
    """

    def __init__(
        self, store: Store, clock: Clock, terms: Terms, *, follow_up: FollowUp, inspector: Inspector | None = None
    ) -> None:
        self.terms = terms
        self._follow_up = follow_up
        self.inspector = inspector
        """Looks at files that were taken by `new_file`, when they are committed; None takes them as they are."""
        self._footers: dict[str, Footer] = {}
        self._store = store
        self._clock = clock
        self._root = KINDS[terms.scope](store, clock)
        self._state = _State.OPEN
        self._staged: dict[str, FileInfo | None] = {}  # None: a new file whose size is not known yet
        self._taken: set[str] = set()  # of those: by new_file
        self._unseen: set[str] = set()  # of those that were added
        self._removed: set[str] = set()
        self._whole: set[str] | None = None
        self._read: Read | None = None
        self._rows_are_checked = False
        self._replaced: list[names.Partition] = []
        self._refused: AccessDeniedError | None = None  # the answer to its commit
        self._copies = False  # whether its files lie in partitions that the table has, or had, named as they are
        self._given: dict[str, set[str]] = {}  # of partition columns: the types of the values that were given
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

    @property
    def url(self) -> str:
        """Of the table's root."""
        return self._store.url

    # --- stage ----------------------------------------------------------------------------------------------------

    def new_file(self, suffix: str = ".parquet", partition: Mapping[str, Given | None] | None = None) -> str:
        """Where to write a new data file: a URL or plain path. Write it before `commit`, and nothing else there.

        `partition` has a value for every partition column of the table: a date, a number, ..., or its canonical text;
        None is null. Leave the partition columns out of the file. Raises InvalidInputError for other columns, for what
        is no value of the column's type, and for values that a directory's name cannot hold.
        """
        self._require_open("take a new file")
        values = self._spell_partition(partition or {})
        name = names.format_data_file(
            tid=self.tid, job=self.terms.job, task=0, attempt=self._attempt, number=len(self._staged), suffix=suffix
        )
        path = _check_new(names.join(names.format_partition(values), name), self.tid)
        self._root.mark(self.terms, names.split(path)[0])
        url = self._store.prepare(path)
        self._staged[path] = None
        self._taken.add(path)
        return url

    def add(self, files: Iterable[FileInfo], *, looked_at: bool = False) -> None:
        """Takes data files that are written, durable and named in this transaction's way, by a task or anybody.

        The commit looks at them, as at those of `new_file`, unless their writer has made them to fit the table.
        """
        self._require_open("add files")
        files = list(files)
        for file in files:
            directory = names.split(_check_new(file.path, self.tid))[0]
            if names.parse_partition(directory) != file.partition:
                raise InvalidInputError(f"{file.path!r} does not lie in the partition {dict(file.partition)}")
            self._root.check_place(file, self.terms)
        if not self._copies and not self._sets_schema:
            self._refuse_texts(files, widest_types(self._partition_types(None)))
        self._staged |= {file.path: file for file in files}
        if not looked_at:
            self._unseen |= {file.path for file in files}

    def require_files(self) -> None:
        """What `commit` does, too: on a disk, the files that were added are here. Raises UnsupportedStoreError."""
        self._root.require_files(self.terms, [file for file in self._staged.values() if file is not None])

    def remove(self, paths: Iterable[str]) -> None:
        """Of a rewrite: these live files go when it commits. Paths are relative to the root of the table."""
        self._require_open("remove files")
        if self.terms.operation != "rewrite":
            raise TransactionStateError(f"a transaction of operation {self.terms.operation!r} names no files to remove")
        self._removed.update([paths] if isinstance(paths, str) else paths)

    def tell_changes(self, whole: Iterable[str]) -> None:
        """Of a rewrite: files of changes (`names.is_change_file`) among those added tell which rows came and went.

        `whole` are the other files, added and removed, all of whose rows did; a file that is none holds also what it
        only carried over.
        """
        self._require_open("tell changes")
        if self.terms.operation != "rewrite":
            raise TransactionStateError(f"a transaction of operation {self.terms.operation!r} tells no changes")
        self._whole = (self._whole or set()) | set(whole)

    def vouch_for_rows(self) -> None:
        """Whoever staged the files has looked at their rows: they keep the table's constraints.

        Else the commit goes by the statistics of the files, and refuses what these do not tell.
        """
        self._require_open("vouch for rows")
        self._rows_are_checked = True

    def goes_by(self, read: Read) -> None:
        """Of a rewrite: it commits only where what it read has not changed, as far as its isolation asks for that."""
        self._require_open("say what was read")
        if self.terms.operation != "rewrite":
            raise TransactionStateError(f"a transaction of operation {self.terms.operation!r} goes by no rows")
        self._read = read

    def replace_partition(self, partition: Mapping[str, Given | None]) -> None:
        """Of a partition replacement: what is live in this partition goes, even if nothing is written there.

        Fewer than all partition columns name all partitions below. Without a call of this, a replacement replaces
        the partitions that it writes to. A text may also be that of a directory as it is, whatever the column's type.
        """
        self._require_open("replace partitions")
        if self.terms.operation != "replace_partitions":
            raise TransactionStateError(f"a transaction of operation {self.terms.operation!r} replaces no partitions")
        if not partition or not partition.keys() <= set(self.terms.partition_columns):
            raise InvalidInputError(
                f"{dict(partition)} is no partition of a table partitioned by {list(self.terms.partition_columns)}"
            )
        types = self._partition_types(None)
        self._replaced.append(
            {
                column: value if isinstance(value, str) else self._spell(column, value, types.get(column))
                for column, value in partition.items()
            }
        )

    def keep_partitions(self) -> None:
        """The files hold rows of files that the table has, or had, in the same partitions: those are named as they are.

        Else each must be named in canonical texts. Of a restore, and of a compaction.
        """
        self._require_open("keep partitions")
        self._copies = True

    def _spell_partition(self, partition: Mapping[str, Given | None]) -> names.Partition:
        columns = self.terms.partition_columns
        if partition.keys() != set(columns):
            raise InvalidInputError(f"the partition columns are {list(columns)}, but got values for {list(partition)}")
        types = self._partition_types(None)
        return {column: self._spell(column, partition[column], types.get(column)) for column in columns}

    def _spell(self, column: str, value: Given | None, kind: str | None) -> str | None:
        """The text of a value. What an overwrite writes may be of another type than the column has now."""
        if value is None or (isinstance(value, str) and (self._copies or self._sets_schema)):
            self._given.setdefault(column, set()).update([] if value is None else ["string"])
            return value
        try:
            if kind is None and not self.terms.is_table and kind_of(value) in ("timestamp", "timestamp_ntz"):
                raise ValueError(
                    f"{value!r:.200} has a time, and nothing says in which zone this directory names times"
                )
            text = self._spell_as(value, kind)
            self._given.setdefault(column, set()).add(kind_of(value))
        except ValueError as error:
            raise InvalidInputError(f"partition column {column!r} of {self._store.url}: {error}") from None
        return text

    def _spell_as(self, value: Given, kind: str | None) -> str:
        if self._sets_schema and kind is not None:
            with suppress(ValueError):
                return spell(value, kind)
            return spell(value, None)
        return spell(value, kind)

    @property
    def _sets_schema(self) -> bool:
        """Whether the table's columns after the commit may be others than now, whatever they are."""
        return RULES[self.terms.operation].sets_schema

    def _partition_types(self, schema: Mapping[str, Any] | None) -> Types:
        """Of the partition columns by this schema, or by that of when it began; none is known of a directory."""
        known = (schema or self.terms.metadata.schema) if self.terms.is_table else None
        return partition_types(known, self.terms.partition_columns)

    # --- decide ---------------------------------------------------------------------------------------------------

    def commit(self, schema: Mapping[str, Any] | None = None, *, metrics: Mapping[str, int] | None = None) -> Commit:
        """Makes all staged files live, and the removed ones not, at once. `schema`: the table's columns after it.

        `metrics` are kept with those of the commit.

        Raises CommitConflictError or TransactionAbortedError (nothing was committed, begin again),
        CommitStateUnknownError (commit again: it reads back first), StoreError (still open: commit again, or abort).
        """
        if self._state is not _State.UNKNOWN:
            self._require_open("commit")
        began_s = self._clock.monotonic()
        try:
            files = self._complete_files()
            schema = self._fitted(decode_schema(pack_schema(schema)))
            self._check_partitions(files, schema)
            self._check_rows(files, schema)
            draft = Draft(
                terms=self.terms,
                files=files,
                schema=schema,
                rewritten=self._removed,
                whole=self._whole,
                read=self._read,
                replaced=self._replaced,
                counted=metrics or {},
                began_s=began_s,
            )
            commit = self._root.commit(draft)
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
            self._refuse_other_files(commit, draft)
            commit = _timed(commit, draft.commit_ms(self._clock.monotonic()))
            if self.terms.is_table:
                written = marker_bytes(commit.marker)
                checkpoint_by_chance(self._store, self._clock, every=self.terms.checkpoint_every, written=written)
                self._follow_up(self._store, self._clock, commit.settings)
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
        self._root.abort(self.terms, self._staged)
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
                "still under way may land: with credentials that are valid, run "
                f"`{command('dbio', 'abort', self._store.url, self.tid)}` before you write the same data again. "
                f"{self._refused}"
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

    def _complete_files(self) -> list[FileInfo]:
        """The staged files with their sizes; the data is durable before a marker names it (I2)."""
        self._store.check_spelling({names.split(path)[0] for path in self._staged})
        new = [path for path, info in self._staged.items() if info is None]
        if new:
            found = self._look_at(new)
            if missing := [path for path, footer in zip(new, found, strict=True) if footer is None]:
                self._root.raise_if_aborted(self.terms, names.split(missing[0])[0])
                raise TransactionStateError(
                    f"{len(missing)} of the files that transaction {self.tid} took by new_file were not written, "
                    f"first {self._store.url_of(missing[0])}; write each one before commit"
                )
            self._store.make_durable(new)
            for footer in filter(None, found):
                self._footers[footer.path] = footer
                self._staged[footer.path] = FileInfo(
                    path=footer.path,
                    size=footer.size,
                    rows=footer.rows,
                    partition=names.parse_partition(names.split(footer.path)[0]),
                    statistics=footer.statistics,
                )
        if self.inspector and self._unseen:
            seen = [it for it in self.inspector(self._store, sorted(self._unseen)) if it is not None]
            for footer in seen:
                self._refuse_other_facts(footer)
            self._footers |= {it.path: it for it in seen}  # `require_files` says which is missing
            self._unseen.clear()
        return [info for info in self._staged.values() if info is not None]

    def _refuse_other_facts(self, footer: Footer) -> None:
        """Raises InvalidInputError for a file that was added with other facts than its footer has."""
        told = self._staged[footer.path]
        for what, found, given in ("bytes", footer.size, told and told.size), ("rows", footer.rows, told and told.rows):
            if found is not None and given is not None and found != given:
                raise InvalidInputError(
                    f"{self._store.url_of(footer.path)} holds {found} {what}, not {given} as was said when it was "
                    "added. Nothing was committed, and the transaction is aborted: add each file as it was written"
                )

    def _look_at(self, paths: list[str]) -> list[Footer | None]:
        """None for a file that is not there."""
        if self.inspector:
            return self.inspector(self._store, paths)
        return [it and Footer(path=it.path, size=it.size) for it in self._store.stat_many(paths)]

    def _check_partitions(self, files: list[FileInfo], schema: Mapping[str, Any] | None) -> None:
        """All readers find the same values in the partition columns of new files. Raises InvalidInputError."""
        if not self.terms.is_table or not self.terms.partition_columns or self._copies:
            return
        types, before = self._partition_types(schema), self._partition_types(None)
        for column, kind in types.items():
            if kind is not None and not is_partition(kind) and before.get(column) != kind:
                raise InvalidInputError(
                    f"partition column {column!r} of {self._store.url} cannot be {kind}, whose values tools write in "
                    "different ways: partition by text, whole numbers, decimals, booleans, dates or timestamps"
                )
            if {kind, *self._given.get(column, ())} >= {"timestamp", "timestamp_ntz"}:  # which have the same texts
                raise InvalidInputError(
                    f"partition column {column!r} of {self._store.url} is {kind}, and new_file was given a datetime "
                    f"{'without' if kind == 'timestamp' else 'with'} a zone; give one that is of the column's type"
                )
        self._refuse_texts(files, types)
        refuse_inside(files, self._footers, self.terms.partition_columns, url=self._store.url)

    def _refuse_texts(self, files: Sequence[FileInfo], types: Types) -> None:
        found = find_problem((file.partition for file in files), types)
        if found is not None:
            partition, why = found
            path = next(file.path for file in files if file.partition == partition)
            step = (
                "Give new_file(partition=…) a value of that type, or the column another type by commit(schema=…)"
                if path in self._taken
                else "Take its path from new_file(partition=…), which also takes dates and numbers as they are"
            )
            raise InvalidInputError(
                f"{self._store.url_of(path)} lies in a partition that not all readers would find: {why}. {step}"
            )

    def _check_rows(self, files: list[FileInfo], schema: Mapping[str, Any] | None) -> None:
        metadata = self.terms.metadata
        constraints = Constraints.of(metadata.settings)
        if files and constraints and self.terms.changes_rows and not self._rows_are_checked:
            constraints.refuse_unsafe(where=self._store.url)
            refuse_unproven(files, constraints, schema or metadata.schema, where=self._store.url)

    def _fitted(self, schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The table's columns after the commit, where files that we looked at have a say in it."""
        footers = [footer for footer in self._footers.values() if footer.columns is not None]
        if not self.terms.is_table or not footers:
            return schema
        columns, where = self.terms.partition_columns, self._store.url
        if schema is None and self._sets_schema:
            try:
                found = fit(footers, self.terms.metadata.schema, partition_columns=columns, where=where)
            except SchemaMismatchError:
                found = fit(footers, None, partition_columns=columns, where=where)  # an overwrite may set its own
            return self._with_partition_types(found)
        known = self.terms.metadata.schema if schema is None else schema
        found = fit(footers, known, partition_columns=columns, where=where)
        return found if known is not None else self._with_partition_types(found)

    def _with_partition_types(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Columns that `fit` took from files: of which types partition columns are, these do not say.

        They stay as they are where all values fit; else the values that were given tell, and nothing says texts.
        """
        types: dict[str, str] = {}
        before, partitions = self._partition_types(None), [file.partition for file in self._staged.values() if file]
        for column in self.terms.partition_columns:
            own, kinds = before.get(column), self._given.get(column, set())
            if own is not None and find_problem(partitions, {column: own}) is None:
                types[column.lower()] = own
            elif len(kinds) > 1:
                raise InvalidInputError(
                    f"the values of partition column {column!r} of {self._store.url} are of several types, "
                    f"{', '.join(sorted(kinds))}; give values of one type, or pass the columns as commit(schema=…)"
                )
            elif own is not None or kinds:
                types[column.lower()] = next(iter(kinds), "string")
        fields = [{**field, "type": types.get(field["name"].lower(), field["type"])} for field in schema["fields"]]
        return {**schema, "fields": fields}

    def _refuse_other_files(self, commit: Commit, draft: Draft) -> None:
        """Another copy of this transaction may have committed before us, and what it staged."""
        if not commit.marker.is_of([file.path for file in draft.data_files]):
            raise CommitConflictError(
                f"transaction {self.tid} of {self._store.url} is committed already, by another copy of it, "
                "with other files than those that were staged here; see "
                f"`{command('dbio', 'show', self._store.url, self.tid)}`"
            )


def _timed(commit: Commit, commit_ms: int) -> Commit:
    """The result with the time of the whole commit; its marker cannot know how long its own PUT took."""
    info = commit.marker.dbio_commit
    if info is None:
        return commit
    timed = structs.replace(info, metrics={**info.metrics, "jobCommitTime": commit_ms})
    return replace(commit, marker=structs.replace(commit.marker, dbio_commit=timed))


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
