"""The seam of scope: what a table of ours and a directory of the directory scope can both do, each in its way."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.errors import InvalidInputError, TableExistsError, TransactionAbortedError, UnsupportedStoreError
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.draft import Draft, Terms
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint
from dbio_commit.protocol.commits import AsOf, Commit
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.origin import Origin
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import NO_METADATA, Metadata
from dbio_commit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a transaction is about to write to."""

    scope: Scope | None
    """None where nothing is there yet."""
    origin: Origin | None = None
    """Which table it is; None where it is none, or not yet."""
    partition_columns: Layout | None = None
    """None where nothing says what they are."""
    metadata: Metadata = NO_METADATA
    looked: Moment | None = None
    """It was so then, or later."""

    @property
    def is_table(self) -> bool:
        """Whether it is, or becomes, a table of ours, whose commits tell its columns."""
        return self.scope is not Scope.DIRECTORY


MAX_LIFE_S = 7 * 24 * 3600.0
"""No transaction commits after this: abort markers are kept longer, so that a late writer always finds its own."""

_log = get_logger(__name__)


class Root(ABC):
    """Where the markers that decide are. `open_root` says which; a transaction keeps to the kind it began with."""

    scope: ClassVar[Scope]

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock

    # --- read -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def snapshot(self, *, as_of: AsOf = None, ignore_corrupt: bool = False) -> Snapshot:
        """The state now, or then. Raises ObjectNotFoundError where vacuum overtook it: open the root again."""

    @abstractmethod
    def target(self, *, must_be_empty: bool, looked: Moment) -> Target:
        """What a transaction would write to. Raises TableExistsError where `must_be_empty` and there are commits."""

    @abstractmethod
    def logs(self) -> tuple[Mapping[str, Log], Checkpoint]:
        """The logs that decide, by the directory that they decide about, and what a checkpoint covers of them."""

    @abstractmethod
    def abort_pending(self, tid: str) -> None:
        """Aborts a transaction of anybody.

        Raises InvalidInputError where nothing is known of the tid, TransactionStateError where it is committed.
        """

    # --- write: these list nothing that was not asked for, and need no look before them -----------------------------

    @abstractmethod
    def claim(self, target: Target, layout: Layout | None, begun: bytes) -> str:
        """A tid that nobody else has; `begun` is the body of a start marker, and any `layout` will do for None.

        Raises CommitConflictError where the target is not what it was any more.
        """

    @abstractmethod
    def mark(self, terms: Terms, directory: str) -> None:
        """Comes before the first data file in each directory; done already is fine.

        Raises CommitConflictError where the table is not what it was any more.
        """

    @abstractmethod
    def check_place(self, file: FileInfo, terms: Terms) -> None:
        """Raises InvalidInputError for a new file where readers would expect none."""

    def confirm(self, terms: Terms) -> None:  # noqa: B027  (the directory scope has no drop)
        """Comes after the last data file of a task: a drop may have overlooked it.

        Raises TransactionAbortedError where the transaction was given up meanwhile: then the task's files are to go.
        """

    @abstractmethod
    def raise_if_aborted(self, terms: Terms, directory: str) -> None:
        """Raises TransactionAbortedError where somebody has aborted it, and so deleted its files there."""

    @abstractmethod
    def commit(self, draft: Draft) -> Commit:
        """Decides the transaction. The result may be `skipped`, or what another copy of it has committed.

        Raises CommitConflictError, TransactionAbortedError, CommitStateUnknownError, StoreError.
        """

    @abstractmethod
    def abort(self, terms: Terms, paths: Iterable[str]) -> None:
        """Decides against the transaction, then deletes its files, as far as that works.

        Raises TransactionStateError where it is committed.
        """

    # --- both -----------------------------------------------------------------------------------------------------

    def age_s(self, terms: Terms) -> float:
        return self.clock.seconds_since(terms.began)

    def require_files(self, terms: Terms, files: Sequence[FileInfo]) -> None:
        """Before a marker names new files: on a disk, they are here, as they were written.

        Raises UnsupportedStoreError where they are not: executors have disks of their own. TransactionAbortedError
        where they are gone because somebody has aborted the transaction.
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

    def unknown_transaction(self, tid: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self.store.url} has no marker of a transaction {tid!r}; `dbio check` lists what is pending"
        )
