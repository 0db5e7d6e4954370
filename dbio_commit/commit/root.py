"""Defines `Root`, by which a transaction writes to a table, or to a directory without a descriptor."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.errors import TableExistsError, TransactionAbortedError, UnsupportedStoreError
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.request import CommitRequest, Terms
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.markers.descriptor import Origin
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import NO_METADATA, Metadata
from dbio_commit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a transaction will write to."""

    scope: Scope | None
    """The scope; None if nothing is there yet."""
    origin: Origin | None = None
    """Which table this is. None in the directory scope, and if nothing is there yet."""
    partition_columns: Layout | None = None
    """The partition columns; None if nothing determines them yet."""
    metadata: Metadata = NO_METADATA
    looked: Moment | None = None
    """A moment before these facts were read. None in the directory scope."""

    @property
    def records_columns(self) -> bool:
        """Whether the target is, or becomes, a table with a descriptor, whose commits record its columns."""
        return self.scope is not Scope.DIRECTORY


MAX_LIFE_S = 7 * 24 * 3600.0
"""No transaction commits at a greater age, in s. Abort markers are kept longer, so a late writer always finds the one
of its transaction."""

_log = get_logger(__name__)


class Root(ABC):
    """The place of the markers that decide. A transaction keeps the kind of root with which it began (`roots.KINDS`).

    The caller need not read anything before a call.
    """

    scope: ClassVar[Scope]

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock

    @abstractmethod
    def claim(self, target: Target, layout: Layout | None, begun: bytes, *, tid: str | None = None) -> str:
        """Returns a tid that no other transaction has: the given one, or a new one. `begun` is the body of its start
        marker.

        Raises CommitConflictError if the target has changed. A `layout` of None accepts any partition columns.
        """

    @abstractmethod
    def mark(self, terms: Terms, directory: str) -> None:
        """Puts the start marker. Called before the first data file in each directory, and may be repeated.

        Raises CommitConflictError if the table has changed.
        """

    @abstractmethod
    def check_place(self, file: FileInfo, terms: Terms) -> None:
        """Raises InvalidInputError for a new file in a directory where readers expect none."""

    def confirm(self, terms: Terms) -> None:  # noqa: B027  (the directory scope has no drop)
        """Called after the last data file of a task, which a drop may have overlooked.

        Raises TransactionAbortedError if the transaction was aborted meanwhile. Then the task deletes its files.
        """

    @abstractmethod
    def raise_if_aborted(self, terms: Terms, directory: str) -> None:
        """Raises TransactionAbortedError if the transaction was aborted, so that its files in the directory may be
        deleted."""

    def raise_if_gone(self, terms: Terms) -> None:  # noqa: B027  (the directory scope has no drop)
        """Raises CommitConflictError if the table was dropped or moved, and its files with it.

        Raises TableNotFoundError if a drop has not ended.
        """

    @abstractmethod
    def commit(self, request: CommitRequest) -> Commit:
        """Decides the transaction. The result may be `skipped`, or the commit of another copy of the transaction.

        Raises CommitConflictError, TransactionAbortedError, CommitStateUnknownError, StoreError.
        """

    @abstractmethod
    def abort(self, terms: Terms, paths: Iterable[str]) -> None:
        """Aborts the transaction, then deletes its files. Files that cannot be deleted stay for vacuum.

        Raises TransactionStateError if it is committed.
        """

    # --- both scopes ----------------------------------------------------------------------------------------------

    def age_s(self, terms: Terms) -> float:
        return self.clock.seconds_since(terms.began)

    def require_files(self, terms: Terms, files: Sequence[FileInfo]) -> None:
        """Checks, on a disk, that new files are there as they were written. Called before a marker names them.

        Raises UnsupportedStoreError if they are not: executors may have other disks. Raises TransactionAbortedError if
        they are gone because the transaction was aborted.
        """
        if not (self.store.is_disk and files):
            return
        found = self.store.stat_many([file.path for file in files])
        sizes = [entry and entry.size for entry in found]
        other = [(file, size) for file, size in zip(files, sizes, strict=True) if size != file.size]
        if not other:
            return
        file, size = other[0]
        self.raise_if_aborted(terms, names.split(file.path)[0])
        here = "is not there" if size is None else f"has {size} bytes there, not {file.size}"
        raise UnsupportedStoreError(
            f"{len(other)} of {len(files)} new files of transaction {terms.tid} are not on the disk of this process as "
            f"they were written, first {self.store.url_of(file.path)}, which {here}: the executors' disk is not the "
            "driver's. Nothing was committed; use a store that all machines see, such as s3://…, abfss://… or a mount "
            "that they share"
        )

    def warn_lean(self, terms: Terms, why: str) -> None:
        """Logs that a commit marker has no statistics."""
        _log.warning("%s: transaction %s: %s", self.store.url, terms.tid, why)

    def check_life(self, terms: Terms) -> None:
        if (age_s := self.age_s(terms)) > MAX_LIFE_S:
            raise TransactionAbortedError(
                f"transaction {terms.tid} of {self.store.url} began {age_s / 86400:.1f} days ago, and none may commit "
                f"after {MAX_LIFE_S / 86400:.0f} days, because vacuum may have deleted its files; begin again"
            )

    def delete(self, tid: str, paths: Iterable[str]) -> None:
        failures = self.store.delete_many(list(paths))
        if failures:
            _log.warning("%s: %d files of %s stay for vacuum", self.store.url, len(failures), tid)

    def result(self, tid: str, marker: CommitMarker, *, skipped: bool = False, foreign: Sequence[str] = ()) -> Commit:
        return Commit(tid=tid, timestamp=self.clock.now(), marker=marker, skipped=skipped, foreign=foreign)

    def table_exists(self) -> TableExistsError:
        return TableExistsError(
            f"there is a table at {self.store.url} already; use mode append or overwrite, or another path"
        )
