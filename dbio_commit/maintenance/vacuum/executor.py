"""Executes the actions of a vacuum on a store, in either scope, and records them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import StoreError
from dbio_commit.commit.tids import new_tid
from dbio_commit.log.listing import until_quiet
from dbio_commit.maintenance.vacuum import plan
from dbio_commit.maintenance.vacuum.packed import Deletions
from dbio_commit.maintenance.vacuum.plan import Candidate, Contents, Horizons
from dbio_commit.maintenance.vacuum.report import Control, Deletion, Failure, VacuumOptions, VacuumReport
from dbio_commit.maintenance.vacuum.workers import Listed, Spread, Workers
from dbio_commit.protocol import names
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Format
from dbio_commit.store import Store
from dbio_commit.store.contract import Listing, Unfinished

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Executor:
    """The actions of a vacuum, in either scope, and the record of them. In a dry run they change nothing."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        options: VacuumOptions,
        *,
        dry_run: bool,
        control: Control,
        spread: Spread | None,
    ) -> None:
        self.store, self.clock, self.options, self.dry_run = store, clock, options, dry_run
        self.control, self.workers = control, Workers(store, control, spread)
        self.horizons = Horizons.at(clock.now(), options)
        self.scope = Scope.TABLE
        self.deleted = Deletions()
        self.failed: dict[str, str] = {}
        self.undeleted = Deletions()
        self.kept = Deletions()
        self.aborted: list[str] = []
        self.postponed: list[str] = []
        self.checkpoint: str | None = None
        self.queued: list[str] = []
        self.warnings: list[str] = []
        self.behind: Mapping[Format, str] = {}
        self.stopped = False
        self._uploads: list[Unfinished] = []

    def set_time(self) -> None:
        """Sets the horizons from now. A dry run writes nothing, so it does not ask the store for its time."""
        if not self.dry_run:
            self.horizons = Horizons.at(self.now(), self.options)

    def now(self) -> datetime:
        """The earlier of this machine's time and the store's: a clock that is ahead would make all objects look old."""
        if self.store.list_directory() == Listing([], []):
            return self.clock.now()  # the root is empty, and must stay empty
        try:
            return min(self.clock.now(), until_quiet(self.store, self._ask_for_the_time))
        except StoreError as error:
            self.failed["time of the store"] = str(error)
            # The store's time is at least this. With it, most of the garbage is not old enough yet.
            return max((entry.modified for entry in self.store.list_log()), default=_LONG_AGO)

    def _ask_for_the_time(self) -> datetime:
        """Raises ObjectNotFoundError if this process slept, and another vacuum deleted the object."""
        path = names.clock(new_tid(self.clock))
        self.store.put_if_absent(path, b"")
        try:
            return self.store.stat(path).modified
        finally:
            for failure in self.store.delete_many([path]).values():
                self.failed[path] = str(failure)

    @property
    def has_changed(self) -> bool:
        return bool(self.deleted or self.aborted or self.failed) and not self.dry_run

    def fail(self, error: StoreError) -> None:
        self.failed[""] = str(error)

    def report(self) -> VacuumReport:
        return VacuumReport(
            url=self.store.url,
            scope=self.scope,
            dry_run=self.dry_run,
            retention_hours=self.options.retention_hours,
            deleted=self.deleted,
            failed=[Failure(path=path, message=message) for path, message in self.failed.items()],
            aborted=self.aborted,
            postponed=self.postponed,
            checkpoint=self.checkpoint,
            queued=self.queued,
            kept=self.kept,
            undeleted=self.undeleted,
            stopped=self.stopped,
            behind=self.behind,
            warnings=[*self.warnings, *([_too_many(self.postponed)] if self.postponed else [])],
        )

    def note(self, tree: dict[str, Contents], listed: Listed) -> None:
        if self.store.has_directories:
            tree[listed.directory] = Contents(len(listed.entries) + listed.live, listed.directories)

    def keep(self, garbage: Iterable[Candidate]) -> None:
        """Records garbage that stays."""
        self.kept.extend(it.deletion(self.horizons.now) for it in garbage)

    def delete(self, due: Sequence[Candidate]) -> set[str]:
        """Deletes the candidates and records it. Returns the paths that are gone, or in a dry run would be."""
        by_path = {garbage.path: garbage for garbage in due}
        if self.dry_run:
            self.deleted.extend(garbage.deletion(self.horizons.now) for garbage in due)
            return set(by_path)
        gone: set[str] = set()
        for tried, failures in self.workers.delete(list(by_path)):
            self.failed |= {path: str(error) for path, error in failures.items()}
            self.undeleted.extend(by_path[path].deletion(self.horizons.now) for path in failures)
            done = [path for path in tried if path not in failures]
            self.deleted.extend(by_path[path].deletion(self.horizons.now) for path in done)
            gone.update(done)
        return gone

    def abort_unfinished(self) -> None:
        try:
            self._uploads = self.store.list_unfinished()
            late = [it for it in self._uploads if it.started < self.horizons.data]
            failures = {} if self.dry_run else self.store.abort_unfinished(late)
        except StoreError as error:  # vacuum works without this right
            self.failed["unfinished uploads"] = str(error)
            return
        self.failed |= {path: str(error) for path, error in failures.items()}
        self.deleted.extend(_unfinished(it, self.horizons) for it in late if it.path not in failures)

    def waiting(self) -> Iterator[datetime]:
        """The times since which kept objects and unfinished uploads wait for the retention."""
        yield from (self.horizons.now - it.age for it in self.kept)
        yield from (it.started for it in self._uploads)

    def remove_directories(self, tree: Mapping[str, Contents], lost: Mapping[str, int]) -> None:
        """Removes the directories that are empty now. `lost` has how many objects were deleted in each."""
        empty = plan.emptied(tree, lost)
        if empty and not self.dry_run:
            try:
                empty = self.store.remove_directories(empty)
            except StoreError as error:
                self.failed[empty[0]] = str(error)
                return
        self.deleted.extend(Deletion(path=path, size=0, age=timedelta(0), reason=Reason.DIRECTORY) for path in empty)


def _too_many(postponed: Sequence[str]) -> str:
    return (
        f"{len(postponed):,} transactions are pending for longer than the retention, first {postponed[0]}, and one run "
        "aborts only so many: the next run continues. Find the jobs that left so many start markers: `dbio check` "
        "shows their times"
    )


def _unfinished(it: Unfinished, horizons: Horizons) -> Deletion:
    return Deletion(path=it.path, size=it.size, age=horizons.now - it.started, reason=Reason.UPLOAD)
