"""The directory scope: the markers of each directory decide about that directory, as in DBIO (PROTOCOL.md 11)."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.errors import (
    AccessDeniedError,
    CommitConflictError,
    CommitStateUnknownError,
    DbioError,
    InvalidInputError,
    ObjectNotFoundError,
    TransactionStateError,
    UnsupportedTableError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.base.texts import command
from dbio_commit.commit.decision import abort_in_directory, decide, read_own
from dbio_commit.commit.draft import Draft, Terms
from dbio_commit.commit.operations import RULES
from dbio_commit.commit.probe import create
from dbio_commit.commit.root import MAX_LIFE_S, Root, Target
from dbio_commit.commit.tids import new_tid
from dbio_commit.data.parquet import not_parquet
from dbio_commit.log.listing import read_markers, until_quiet
from dbio_commit.log.snapshot import Snapshot, Source
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import committed_by
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint
from dbio_commit.protocol.commits import AsOf, Commit, Decided
from dbio_commit.protocol.directory import (
    Directory,
    is_used,
    looks_torn,
    merge_directories,
    parse_directories,
    settle,
    visible_files,
)
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.commit import CommitMarker, encode_commit
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store

_logger = get_logger(__name__)


class DirectoryRoot(Root):
    """A directory without a descriptor. Reads use the files as they were listed when the root was opened."""

    scope = Scope.DIRECTORY

    def __init__(self, store: Store, clock: Clock, entries: Sequence[Entry] = (), log: Log | None = None) -> None:
        super().__init__(store, clock)
        self._log = log or Log()  # of the root, as it was listed after the files
        self.directories: Mapping[str, Directory] = parse_directories(entries)
        """By path."""
        self._marked: set[str] = set()

    # --- read -----------------------------------------------------------------------------------------------------

    def snapshot(self, *, as_of: AsOf = None, ignore_corrupt: bool = False) -> Snapshot:
        store, directories = self.store, self.directories
        committed = [entry for directory in directories.values() for entry in directory.log.committed.values()]
        read = read_markers(store, committed, scope=self.scope)
        markers = read.only_valid(ignore_corrupt=ignore_corrupt)
        read.warn_of_unkept(store, self.scope)
        commits = committed_by(_decided(directories, markers), as_of)
        counted = {commit.tid for commit in commits}
        files: list[DataFile] = []
        for directory in directories.values():
            own = {tid: markers[entry.path] for tid, entry in directory.log.committed.items() if entry.path in markers}
            if looks_torn(directory, own, now=self.clock.now()):
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
            scope=self.scope,
            files=tuple(files),
            partition_columns=names.common_partition_columns(written) or (),
            decided=tuple(commits),
            foreign=tuple(sorted({*other, *(entry.path for it in directories.values() for entry in it.foreign)})),
            source=Source(store),
        )

    def target(self, *, must_be_empty: bool, looked: Moment) -> Target:
        if self._log.is_being_adopted:
            raise CommitConflictError(being_adopted(self.store, self._log))
        if must_be_empty:
            raise self.table_exists()
        snapshot = self.snapshot()
        settled = snapshot.files or snapshot.partition_columns
        return Target(scope=self.scope, partition_columns=snapshot.partition_columns if settled else None)

    def logs(self) -> tuple[Mapping[str, Log], Checkpoint]:
        return {path: directory.log for path, directory in self.directories.items()}, NO_CHECKPOINT

    def abort_pending(self, tid: str) -> None:
        logs, _ = self.logs()
        known = {path: log for path, log in logs.items() if tid in log.started or tid in log.committed}
        if not known:
            raise self.unknown_transaction(tid)
        pending = [path for path, log in known.items() if tid not in log.committed]
        for directory in pending or known:
            abort_in_directory(self.store, self.clock, tid, directory)

    # --- write ----------------------------------------------------------------------------------------------------

    def claim(self, target: Target, layout: Layout | None, begun: bytes) -> str:
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

    def commit(self, draft: Draft) -> Commit:
        """Puts a marker into each directory, as DBIO does, additions first, so that a crash loses nothing."""
        terms, rules = draft.terms, RULES[draft.terms.operation]
        self.check_life(terms)
        self.require_files(terms, draft.files)
        snapshot = self._snapshot_now(terms.tid) if rules.needs_state else None
        removed = rules.removes(draft, snapshot) if snapshot else []
        metrics, now = draft.metrics(self.clock.monotonic()), self.clock.now()  # of the whole commit
        bodies: dict[str, bytes] = {}  # encoded before the first one decides anything
        for directory, (added, gone) in _by_directory(draft.files, removed).items():
            local = [replace(file, path=names.split(file.path)[1]) for file in added]
            marker = draft.marker(local, [names.split(path)[1] for path in gone], metrics, now=now)
            bodies[directory] = encode_commit(marker, warn=partial(self.warn_lean, terms))
        self.check_life(terms)
        for directory in bodies:  # before the check for a descriptor, so that an adoption of now sees a pending writer
            self.mark(terms, directory)
        self._refuse_table(terms.tid)
        self._put(terms, bodies)
        self._refuse_gone(terms, draft.files)
        if self.age_s(terms) > MAX_LIFE_S:
            raise CommitStateUnknownError(
                f"the commit of {terms.tid} to {self.store.url} took so long that vacuum may have deleted its files; "
                "run `dbio check` on the table before anything else"
            )
        foreign = snapshot.foreign if snapshot else ()
        if foreign:
            _logger.warning("%s: %s", self.store.url, left_alone(foreign))
        whole = draft.marker(draft.files, removed, metrics, now=now)
        return self.result(terms.tid, whole, foreign=foreign)

    def _snapshot_now(self, tid: str) -> Snapshot:
        def read() -> Snapshot:
            entries = self.store.list_files()
            self._refuse_table(tid)
            check_directories(self.store, (entry.path for entry in entries))
            return DirectoryRoot(self.store, self.clock, entries).snapshot()

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
        """Aborts directory by directory. In directories where it is committed, its files stay."""
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
    """By directory, the files that it gains and loses. Directories that gain files come first."""
    parts: dict[str, tuple[list[FileInfo], list[str]]] = {}
    for file in files:
        parts.setdefault(names.split(file.path)[0], ([], []))[0].append(file)
    for path in removed:
        parts.setdefault(names.split(path)[0], ([], []))[1].append(path)
    return parts


_FOREIGN = {
    "_delta_log": "a Delta table",
    ".hoodie": "a Hudi table",
    "_spark_metadata": "the output of a Spark stream",
}


def check_directories(store: Store, paths: Iterable[str]) -> None:
    """Raises UnsupportedTableError for a table of another format, InvalidInputError if a dbio table lies further down.

    Paths of directories end with "/".
    """
    for path in paths:
        first, slash, _ = path.partition("/")
        if slash and first in _FOREIGN:
            raise UnsupportedTableError(
                f"{store.url} holds {first}/, so it is {_FOREIGN[first]}, whose own log decides which files are live; "
                "read and write it with the tool that it belongs to"
            )
        refuse_nested(store, path)


def refuse_nested(store: Store, path: str) -> None:
    """Raises InvalidInputError if the path is that of a table's descriptor below the root."""
    directory, name = names.split(path)
    if directory and name == names.DESCRIPTOR:
        inner = store.url_of(directory)
        raise InvalidInputError(
            f"{store.url} holds another table, {inner}; use that table's own path, and keep tables apart from one "
            f"another: `{command('dbio', 'copy', inner, 'PATH')}` and then `{command('dbio', 'drop', inner)}` move it"
        )


def outer_table(store: Store) -> Store | None:
    """The table in which the root lies, if any. A directory that may not be read counts as no table."""

    def is_table(outer: Store) -> bool:
        with suppress(ObjectNotFoundError, AccessDeniedError):
            return bool(outer.stat(names.DESCRIPTOR))
        return False

    around = store.around()
    found = store.in_parallel(is_table, around)
    return next((outer for outer, is_one in zip(around, found, strict=True) if is_one), None)


def refuse_inside(store: Store, outer: Store | None) -> None:
    """Raises InvalidInputError if there is an outer table."""
    if outer is not None:
        raise InvalidInputError(
            f"{store.url} lies in the table {outer.url}, whose vacuum would delete files that it does not know; "
            "nothing was written: write to that table, or give a path outside of it"
        )


def _decided(directories: Mapping[str, Directory], markers: Mapping[str, CommitMarker]) -> Sequence[Decided]:
    """The transactions with a commit marker in any directory, with the time of the last of their markers."""
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
