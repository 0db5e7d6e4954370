"""Commits in the directory scope: each directory's markers decide about it alone, as in DBIO (PROTOCOL.md 11)."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DbioError,
    ObjectNotFoundError,
    TransactionStateError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.decision import abort_in_directory, decide, read_own
from dbio_commit.commit.operations import RULES
from dbio_commit.commit.probe import create
from dbio_commit.commit.request import CommitRequest, Terms
from dbio_commit.commit.root import MAX_LIFE_S, Root, Target
from dbio_commit.commit.tids import new_tid
from dbio_commit.log.directory_log import DirectoryLog
from dbio_commit.log.listing import until_quiet
from dbio_commit.log.opening import check_directories
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.commit import encode_commit
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Layout
from dbio_commit.store import Store

_logger = get_logger(__name__)


class DirectoryRoot(Root):
    """A directory without a descriptor."""

    scope = Scope.DIRECTORY

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self._marked: set[str] = set()

    def target_in(self, found: DirectoryLog, *, must_be_empty: bool) -> Target:
        """What a transaction would write to. Raises TableExistsError if `must_be_empty`."""
        if found.root.is_being_adopted:
            raise CommitConflictError(being_adopted(self.store, found.root))
        if must_be_empty:
            raise self.table_exists()
        snapshot = found.snapshot()
        settled = snapshot.files or snapshot.partition_columns
        return Target(scope=self.scope, partition_columns=snapshot.partition_columns if settled else None)

    def claim(self, target: Target, layout: Layout | None, begun: bytes, *, tid: str | None = None) -> str:
        """A new tid. Each directory gets its start marker before the first file in it."""
        return new_tid(self.clock)

    def mark(self, terms: Terms, directory: str) -> None:
        if directory not in self._marked:
            marker = names.join(directory, names.started(terms.tid))
            create(self.store, marker, b"")
            self._marked.add(directory)

    def check_place(self, file: FileInfo, terms: Terms) -> None:
        """Any partition is allowed."""

    def raise_if_aborted(self, terms: Terms, directory: str) -> None:
        with suppress(ObjectNotFoundError):
            read_own(self.store, names.join(directory, names.committed(terms.tid)), commit_id=terms.commit_id)

    def commit(self, request: CommitRequest) -> Commit:
        """Puts a marker into each directory, as DBIO does. Directories that gain files come first, so that a crash
        loses nothing."""
        terms, rules = request.terms, RULES[request.terms.operation]
        self.check_life(terms)
        self.require_files(terms, request.files)
        snapshot = self._snapshot_now(terms.tid) if rules.needs_state else None
        removed = rules.removes(request, snapshot) if snapshot else []
        metrics, now = request.metrics(self.clock.monotonic()), self.clock.now()  # of the whole commit
        bodies: dict[str, bytes] = {}  # encoded before the first one decides anything
        for directory, (added, gone) in _by_directory(request.files, removed).items():
            local = [replace(file, path=names.split(file.path)[1]) for file in added]
            marker = request.marker(local, [names.split(path)[1] for path in gone], metrics, now=now)
            bodies[directory] = encode_commit(marker, warn=partial(self.warn_lean, terms))
        self.check_life(terms)
        # Before the check for a descriptor, so that an adoption under way sees a pending writer.
        for directory in bodies:
            self.mark(terms, directory)
        self._refuse_table(terms.tid)
        self._put(terms, bodies)
        self._refuse_gone(terms, request.files)
        if self.age_s(terms) > MAX_LIFE_S:
            raise CommitStateUnknownError(
                f"the commit of {terms.tid} to {self.store.url} took so long that vacuum may have deleted its files; "
                "run `dbio check` on the table before anything else"
            )
        foreign = snapshot.foreign if snapshot else ()
        if foreign:
            _logger.warning("%s: %s", self.store.url, left_alone(foreign))
        whole = request.marker(request.files, removed, metrics, now=now)
        return self.result(terms.tid, whole, foreign=foreign)

    def _snapshot_now(self, tid: str) -> Snapshot:
        def read() -> Snapshot:
            entries = self.store.list_files()
            self._refuse_table(tid)
            check_directories(self.store, (entry.path for entry in entries))
            return DirectoryLog(self.store, self.clock, entries).snapshot()

        return until_quiet(self.store, read)

    def _refuse_table(self, tid: str) -> None:
        log = parse_log(self.store.list_log())
        if log.descriptor is not None:  # nobody would ever see this commit
            raise CommitConflictError(
                f"{self.store.url} was made a table (`dbio adopt`) since transaction {tid} began; nothing was "
                "committed: begin again"
            )
        if log.is_being_adopted:  # the descriptor may come at any moment, and its checkpoint lacks this commit
            raise CommitConflictError(being_adopted(self.store, log))

    def _put(self, terms: Terms, bodies: Mapping[str, bytes]) -> None:
        for done, (directory, body) in enumerate(bodies.items()):
            try:
                decide(self.store, names.join(directory, names.committed(terms.tid)), body, commit_id=terms.commit_id)
            except DbioError as error:
                if not done:
                    raise
                raise CommitStateUnknownError(
                    f"{terms.tid} is committed in {done} of {len(bodies)} directories of {self.store.url}, not "
                    f"yet in {directory or 'the root'}: {error}; without {names.DESCRIPTOR} commits are atomic for "
                    "each directory only. See `dbio show` for what is committed"
                ) from error

    def _refuse_gone(self, terms: Terms, files: Iterable[FileInfo]) -> None:
        """Checks one new file in each directory: the directory may have been moved or removed before its marker came.

        Raises CommitStateUnknownError.
        """
        one = [*{names.split(file.path)[0]: file.path for file in files}.values()]
        gone = [path for path, entry in zip(one, self.store.stat_many(one), strict=True) if entry is None]
        if gone:
            raise CommitStateUnknownError(
                f"the markers of {terms.tid} are in {self.store.url}, but files that they add are not there, first "
                f"{gone[0]}: the directory was removed, or moved, meanwhile. If it is elsewhere now, `dbio show` shows "
                "there whether it has the commit"
            )

    def abort(self, terms: Terms, paths: Iterable[str]) -> None:
        """Aborts directory by directory. In directories where the transaction is committed, its files stay."""
        paths = list(paths)
        committed: list[str] = []
        for directory in sorted(self._marked | {names.split(path)[0] for path in paths}):
            try:
                abort_in_directory(self.store, self.clock, terms.tid, directory)
            except TransactionStateError:
                committed.append(directory)
            else:
                self.delete(terms.tid, [path for path in paths if names.split(path)[0] == directory])
        if committed:
            raise TransactionStateError(
                f"transaction {terms.tid} is committed in {len(committed)} directories of {self.store.url}, first "
                f"{committed[0] or 'the root'}, and aborted in the others; see `dbio show`"
            )


def being_adopted(store: Store, log: Log) -> str:
    return (
        f"an adoption of {store.url} has begun with {names.checkpoint(log.last_checkpoint)} and is not finished; "
        "nothing was committed: finish it with `dbio adopt`, then write again"
    )


def left_alone(foreign: Sequence[str]) -> str:
    """The message about files that are not Parquet, and so no part of a table."""
    return f"{len(foreign)} files are not Parquet, first {foreign[0]!r:.200}; they are left alone, and not read"


def _by_directory(files: Iterable[FileInfo], removed: Iterable[str]) -> dict[str, tuple[list[FileInfo], list[str]]]:
    """The files that each directory gains and loses, by directory. Directories that gain files come first."""
    parts: dict[str, tuple[list[FileInfo], list[str]]] = {}
    for file in files:
        parts.setdefault(names.split(file.path)[0], ([], []))[0].append(file)
    for path in removed:
        parts.setdefault(names.split(path)[0], ([], []))[1].append(path)
    return parts
