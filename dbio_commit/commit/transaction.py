"""Stages the files of a transaction, and commits or aborts it.

`begin` makes the transaction, and `table_root` or `directory_root` decides it. `file_checks` checks its files. No Spark
in here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from msgspec import structs

from dbio_commit.base.arguments import check_partition
from dbio_commit.base.errors import (
    AccessDeniedError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    StoreError,
    TransactionStateError,
)
from dbio_commit.base.internal import internal
from dbio_commit.base.logs import get_logger
from dbio_commit.base.texts import command
from dbio_commit.commit.checkpoints import checkpoint_by_chance
from dbio_commit.commit.context import WriteContext
from dbio_commit.commit.decision import refused
from dbio_commit.commit.file_checks import FileChecks, check_new_path
from dbio_commit.commit.isolation import Read
from dbio_commit.commit.joint import JointCommit, Member
from dbio_commit.commit.options import NoteKeywords, takes_options
from dbio_commit.commit.provenance import Note, amended
from dbio_commit.commit.request import CommitRequest, Terms
from dbio_commit.commit.roots import KINDS
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.data.footers import Footer
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.doubtful import (
    DECIDING,
    DOUBTFUL_FILES,
    FILES_WITH_IDS,
    FILES_WITH_OWN_IDS,
    RESTORED_FILES,
)
from dbio_commit.protocol.field_ids import FieldIds
from dbio_commit.protocol.footprint import marker_bytes
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.markers.provenance import Provenance
from dbio_commit.protocol.markers.schema import decode_schema, pack_schema
from dbio_commit.protocol.partition_values import Given
from dbio_commit.protocol.settings import Settings, gives_field_ids

_log = get_logger(__name__)


class _State(Enum):
    OPEN = "open"
    JOINED = "part of a joint transaction, which decides it"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "of unknown outcome"


@internal("__init__", "inspector", "record_clustering", "record_copies", "require_files")
class Transaction:
    """One write: it is decided exactly once, committed or aborted. `Table.begin` makes it.

    As a context manager, it commits when the block ends, and aborts when the block raises.

        with table.begin(app=("nightly", 17)) as transaction:
            frame.to_parquet(transaction.new_file())
    """

    terms: Terms
    """What was settled when it began. Can be pickled, for `Table.resume` in another process of this machine."""

    def __init__(self, context: WriteContext, terms: Terms, *, joint: JointCommit | None = None) -> None:
        self.terms = terms
        self._joint = joint
        self._context = context
        self.inspector = context.inspector
        """As in `WriteContext`."""
        self._footers: dict[str, Footer] = {}
        self._store, self._clock = context.store, context.clock
        self._root = KINDS[terms.scope](context.store, context.clock)
        self._state = _State.OPEN
        self._checks = FileChecks(terms, context.url)
        self._staged: dict[str, FileInfo | None] = {}  # None: a new file whose size is not known yet
        self._unseen: set[str] = set()  # files that were added, whose footers are to be read
        self._removed: set[str] = set()
        self._whole: set[str] | None = None
        self._clustered: Sequence[str] = ()
        self._copies: Mapping[str, int] = {}
        self._read: Read | None = None
        self._rows_are_checked = False
        self._replaced: list[names.Partition] = []
        self._refused: AccessDeniedError | None = None  # the store's answer to the commit
        self._attempt = context.clock.random_bits(31)  # so that copies that are resumed elsewhere take other names

    def __repr__(self) -> str:
        terms = self.terms
        return (
            f"<Transaction {terms.tid}: {terms.operation} on {self._store.url}, {self._state.value}, "
            f"{len(self._staged)} files staged>"
        )

    @property
    def tid(self) -> str:
        """The id of the transaction, with which the commit can be found in the history."""
        return self.terms.tid

    @property
    def url(self) -> str:
        """The root of the table: a plain path on a local disk, else scheme://container/prefix."""
        return self._store.url

    # --- stage ----------------------------------------------------------------------------------------------------

    def new_file(self, suffix: str = ".parquet", partition: Mapping[str, Given | None] | None = None) -> str:
        """Where to write a new data file: a URL or a plain path. Write one file there, before `commit`.

        `partition` has a value for every partition column of the table: a date, a number, ..., or its canonical text;
        None is null. Leave the partition columns out of the file. Raises InvalidInputError for other columns, for a
        value that is not of the column's type, and for a value that a directory's name cannot hold.
        """
        self._require_open("take a new file")
        values = self._checks.spell_partition({} if partition is None else partition)
        name = names.format_data_file(
            tid=self.tid, job=self.terms.job, task=0, attempt=self._attempt, number=len(self._staged), suffix=suffix
        )
        path = check_new_path(names.join(names.format_partition(values), name), self.tid)
        self._root.mark(self.terms, names.split(path)[0])
        url = self._store.prepare(path)
        self._staged[path] = None
        self._checks.taken.add(path)
        return url

    def add(self, files: Iterable[FileInfo], *, looked_at: bool = False) -> None:
        """Adds data files that exist already, are durable, and have names that hold this transaction's tid.

        The commit reads their footers, as those of `new_file`. With `looked_at`, it does not: then their writer has
        checked that they fit the table. Raises InvalidInputError, TransactionStateError.
        """
        self._require_open("add files")
        files = list(files)
        for file in files:
            directory = names.split(check_new_path(file.path, self.tid))[0]
            if names.parse_partition(directory) != file.partition:
                raise InvalidInputError(f"{file.path!r} does not lie in the partition {dict(file.partition)}")
            self._root.check_place(file, self.terms)
        self._checks.check_added(files)
        self._staged |= {file.path: file for file in files}
        if not looked_at:
            self._unseen |= {file.path for file in files}

    def require_files(self) -> None:
        """Checks, as `commit` does, that the added files are on this machine's disk. Raises UnsupportedStoreError."""
        self._root.require_files(self.terms, [file for file in self._staged.values() if file is not None])

    def remove(self, paths: Iterable[str]) -> None:
        """In a "rewrite": the commit removes these live files. Paths are relative to the root of the table."""
        self._require_open("remove files")
        if self.terms.operation != "rewrite":
            raise TransactionStateError(f"a transaction of operation {self.terms.operation!r} names no files to remove")
        self._removed.update([paths] if isinstance(paths, str) else paths)

    def record_changes(self, whole: Iterable[str]) -> None:
        """In a "rewrite": change files among the added files record which rows were added and removed.

        `whole` are the paths of the other files whose rows were all added, or all removed. Each file that is not named
        also has rows that did not change. Change files have names that begin with `cdc-`.
        """
        self._require_open("record changes")
        if self.terms.operation != "rewrite":
            raise TransactionStateError(f"a transaction of operation {self.terms.operation!r} records no changes")
        self._whole = (self._whole or set()) | set(whole)

    def record_clustering(self, columns: Sequence[str]) -> None:
        """In a "rewrite": its rows are divided among the added files by the values of these columns."""
        self._require_open("record columns")
        self._clustered = columns

    def record_copies(self, *, restored: int | None = None, doubtful: int = 0) -> None:
        """Records how many of the new files a restore has copied, and how many are copies of doubtful files
        (`doubtful`)."""
        self._require_open("record copies")
        self._copies = {
            **({} if restored is None else {RESTORED_FILES: restored}),
            **({DOUBTFUL_FILES: doubtful} if doubtful else {}),
        }

    def vouch_for_rows(self) -> None:
        """Says that the caller has checked the rows of its files: they keep the table's constraints.

        Without this, the commit looks at the statistics of the files, and refuses files whose statistics prove nothing.
        """
        self._require_open("vouch for rows")
        self._rows_are_checked = True

    def depends_on(self, read: Read) -> None:
        """In a "rewrite": it commits only if the rows that it depends on, given by `read`, have not changed."""
        self._require_open("say what was read")
        if self.terms.operation != "rewrite":
            raise TransactionStateError(f"a transaction of operation {self.terms.operation!r} reads no rows")
        self._read = read

    def overwrite_partition(self, partition: Mapping[str, Given | None]) -> None:
        """In an "overwrite_partitions": the commit removes the live files in this partition, even if no file is written
        there.

        Values for fewer than all partition columns name all partitions below. Without a call of this, the partitions
        that get new files are overwritten. A text may also be the text in a directory's name, whatever the column's
        type.
        """
        self._require_open("overwrite a partition")
        if self.terms.operation != "overwrite_partitions":
            raise TransactionStateError(
                f"a transaction of operation {self.terms.operation!r} overwrites no partitions: begin one with "
                '"overwrite_partitions"'
            )
        check_partition(partition)
        if not partition or not partition.keys() <= set(self.terms.partition_columns):
            raise InvalidInputError(
                f"{dict(partition)} is no partition of a table partitioned by {list(self.terms.partition_columns)}"
            )
        self._replaced.append(
            {
                column: value if isinstance(value, str) else self._checks.spell(column, value)
                for column, value in partition.items()
            }
        )

    def keep_partitions(self) -> None:
        """Says that the new files copy rows of files that the table has, or had, in the same partitions.

        Then their directories may keep the names of those partitions. Without this, the names must have canonical
        texts.
        """
        self._require_open("keep partitions")
        self._checks.keeps_partitions = True

    # --- decide ---------------------------------------------------------------------------------------------------

    @takes_options
    def commit(
        self,
        schema: Mapping[str, Any] | None = None,
        *,
        metrics: Mapping[str, int] | None = None,
        **note: Unpack[NoteKeywords],
    ) -> Commit:
        """Makes all new files live, and removes the removed ones, at once.

        `schema` are the table's columns after the commit, as Spark's JSON; without it, they come from the footers of
        the new files. `metrics` are recorded beside the commit's own; those on which readers rely are refused.
        The message replaces the one that was given when the transaction began, and the labels add to its labels.

        Options of the commit: `NoteKeywords`.

        Raises CommitConflictError or TransactionAbortedError if nothing was committed: begin again;
        CommitStateUnknownError: commit again, which reads the table first; StoreError: the transaction is still open,
        commit again, or abort; InvalidInputError, SchemaMismatchError.
        """
        if self._state is not _State.UNKNOWN:
            self._require_open("commit")
        if own := next((name for name in DECIDING if name in (metrics or {})), None):
            raise InvalidInputError(f"the metric {own} is counted by dbio itself, and readers rely on it; leave it out")
        after, began_s = _After(self._context), self._clock.monotonic()
        provenance = amended(self.terms.provenance, Note(**note))
        with self._deciding():
            request = self._checked_request(schema, metrics or {}, provenance, began_s, after)
            if self._joint is not None:
                assert isinstance(self._root, TableRoot)  # `home_for` refuses directories
                self._state = _State.JOINED
                return self._joint.add(Member(self._root, request, self.abort, partial(self._conclude, request, after)))
            commit = self._root.commit(request)
        return self._conclude(request, after, commit)

    def _conclude(self, request: CommitRequest, after: "_After", commit: Commit) -> Commit:
        """What follows the decision. Returns the commit with its time."""
        if commit.skipped:
            self._try_abort()
            self._state = _State.ABORTED  # even if the abort failed: there is nothing left to commit
        else:
            self._state = _State.COMMITTED
            self._refuse_other_files(commit, request)
            commit = _timed(commit, request.commit_ms(self._clock.monotonic()))
            if self.terms.is_table:
                written = marker_bytes(commit.marker)
                checkpoint_by_chance(self._store, self._clock, every=self.terms.checkpoint_every, written=written)
                after.go_on(commit.settings)
        _log.info("%s: %s %s: %d files added, %d removed", self._store.url, commit.operation, self.tid,
                  commit.added_files, commit.removed_files)  # fmt: skip
        return commit

    def _checked_request(
        self,
        schema: Mapping[str, Any] | None,
        metrics: Mapping[str, int],
        provenance: Provenance | None,
        began_s: float,
        after: "_After",
    ) -> CommitRequest:
        """The request to commit, with all files complete and checked."""
        files = self._complete_files()
        schema = self._checks.schema_after(decode_schema(pack_schema(schema)), self._footers.values(), files)
        self._checks.check_partitions(files, schema, self._footers)
        if not self._rows_are_checked:
            self._checks.check_rows(files, schema)
        return CommitRequest(
            terms=self.terms,
            files=files,
            schema=schema,
            rewritten=self._removed,
            whole=self._whole,
            clustered=self._clustered,
            read=self._read,
            replaced=self._replaced,
            counted={**metrics, **self._copies, **self._with_ids()},
            provenance=provenance,
            began_s=began_s,
            beside=after.step,
        )

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Handles an error of the commit: records an unknown outcome, leaves the transaction open after a StoreError,
        or aborts."""
        try:
            yield
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
        except CorruptMarkerError:  # another writer has the tid
            self._try_abort()
            raise
        except Exception as error:
            self._end_after(error)
            raise

    def _end_after(self, error: Exception) -> None:
        """Aborts. Raises CommitStateUnknownError if a copy has committed the transaction, so that the error, which says
        that nothing was committed, is wrong."""
        try:
            self.abort()
        except TransactionStateError:
            self._state = _State.UNKNOWN
            raise CommitStateUnknownError(
                f"another process that resumed transaction {self.tid} has committed it, and this one failed: {error}. "
                f"Look at `{command('dbio', 'show', self._store.url, self.tid)}` before you write the same data again"
            ) from error
        except DbioError as failure:
            self._say_left(failure)

    def abort(self) -> None:
        """Decides that nothing is committed, and deletes the new files as far as possible.

        Raises TransactionStateError if it is committed already.
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
                except StoreError:  # without an abort, others would wait for the lease to end
                    self._give_up()
                    raise
        elif self._state is _State.OPEN:
            self._give_up()

    def _give_up(self) -> None:
        """Aborts. Raises CommitStateUnknownError if the store refused the commit and the abort.

        Then a request of the commit may still be applied.
        """
        if not self._try_abort() and self._refused:
            self._state = _State.UNKNOWN
            raise refused(self._store, self.tid, self._refused) from self._refused

    def _try_abort(self) -> bool:
        """Aborts, and logs a failure instead of raising it: then vacuum aborts. Returns whether it is aborted."""
        try:
            self.abort()
        except DbioError as failure:
            self._say_left(failure)
            return False
        return True

    def _say_left(self, failure: DbioError) -> None:
        _log.warning("%s: could not abort %s, vacuum will: %s", self._store.url, self.tid, failure)

    def _require_open(self, action: str) -> None:
        if self._state is not _State.OPEN:
            raise TransactionStateError(
                f"cannot {action}: transaction {self.tid} of {self._store.url} is {self._state.value}; begin a new one"
            )

    def _complete_files(self) -> list[FileInfo]:
        """The staged files with their sizes. Their data is durable before a marker names it (I2)."""
        self._store.check_spelling({names.split(path)[0] for path in self._staged})
        new = [path for path, info in self._staged.items() if info is None]
        if new:
            found = self._look_at(new)
            if missing := [path for path, footer in zip(new, found, strict=True) if footer is None]:
                self._root.raise_if_aborted(self.terms, names.split(missing[0])[0])
                self._root.raise_if_gone(self.terms)
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
                self._checks.check_facts(self._staged[footer.path], footer)
            self._footers |= {it.path: it for it in seen}  # `require_files` reports missing files
            self._unseen.clear()
        return [info for info in self._staged.values() if info is not None]

    def _with_ids(self) -> dict[str, int]:
        """The metrics that count new files with field ids, by which readers of Iceberg find columns.

        Files whose footers were not read are those of dbio's writers, which give them ids if the table is published as
        Iceberg.
        """
        found = Counter(footer.ids for footer in self._footers.values())
        if gives_field_ids(self.terms.metadata.settings):
            found[FieldIds.OWN] += len(self._staged.keys() - self._footers.keys())
        own, other = found[FieldIds.OWN], found[FieldIds.OTHER]
        return {FILES_WITH_IDS: own + other, FILES_WITH_OWN_IDS: own} if own + other else {}

    def _look_at(self, paths: list[str]) -> list[Footer | None]:
        """The footers or sizes of the files. None for a file that is not there."""
        if self.inspector:
            return self.inspector(self._store, paths)
        return [it and Footer(path=it.path, size=it.size) for it in self._store.stat_many(paths)]

    def _refuse_other_files(self, commit: Commit, request: CommitRequest) -> None:
        """Raises CommitConflictError if another copy of this transaction has committed first, with other files."""
        if not commit.marker.is_of([file.path for file in request.data_files]):
            raise CommitConflictError(
                f"transaction {self.tid} of {self._store.url} is committed already, by another copy of it, "
                "with other files than those that were staged here; see "
                f"`{command('dbio', 'show', self._store.url, self.tid)}`"
            )


class _After:
    """The work after the commit (`FollowUp`)."""

    def __init__(self, context: WriteContext) -> None:
        self._context = context
        self._steps: Iterator[None] | None = None

    def step(self, settings: Settings | None) -> None:
        """Does the next step. The settings count for the first one."""
        next(self._begun(settings), None)

    def go_on(self, settings: Settings | None) -> None:
        """Does the steps that are left. The settings count if there was none."""
        for _ in self._begun(settings):
            pass

    def _begun(self, settings: Settings | None) -> Iterator[None]:
        if self._steps is None:
            self._steps = self._context.follow_up(self._context.store, self._context.clock, settings)
        return self._steps


def _timed(commit: Commit, commit_ms: int) -> Commit:
    """The result with the time of the whole commit. The marker itself cannot hold how long its own PUT took."""
    info = commit.marker.dbio_commit
    if info is None:
        return commit
    timed = structs.replace(info, metrics={**info.metrics, "jobCommitTime": commit_ms})
    return replace(commit, marker=structs.replace(commit.marker, dbio_commit=timed))
