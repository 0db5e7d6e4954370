"""The table scope: one descriptor and one log at the root decide about the whole table (PROTOCOL.md 8 and 9)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.errors import (
    AppVersionError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
    TableNotFoundError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedStoreError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.courtesies import courtesy
from dbio_commit.commit.decision import (
    PUT_ATTEMPTS,
    abort_transaction,
    commit_once,
    decided_long_ago,
    find_decision,
    read_own,
    unknown,
    withdraw,
)
from dbio_commit.commit.draft import Draft, Terms
from dbio_commit.commit.isolation import refuse_news
from dbio_commit.commit.metadata import Seen, forget_holder, look_at_table, remember_metadata, remembered_id
from dbio_commit.commit.operations import RULES
from dbio_commit.commit.probe import create
from dbio_commit.commit.root import MAX_LIFE_S, Root, Target
from dbio_commit.commit.tids import new_tid
from dbio_commit.commit.turns import TRUST_S, end_others, take_turn, wait_for_layout
from dbio_commit.log.listing import (
    read_begun,
    read_checkpoint,
    read_descriptor,
    refuse_dropped,
    refuse_other_table,
    unread,
    until_quiet,
    with_sizes,
)
from dbio_commit.log.recall import holding
from dbio_commit.log.settled import Settled, read_settled
from dbio_commit.log.snapshot import Snapshot, Source
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint
from dbio_commit.protocol.commits import AsOf, Commit, Decided, committed_by, in_order
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.etag import refuse_changed
from dbio_commit.protocol.history import History
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.markers.commit import CommitMarker, encode_commit
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.origin import Origin
from dbio_commit.protocol.partitions import find_unread, partition_types
from dbio_commit.protocol.references import refer
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Layout, change
from dbio_commit.protocol.state import NO_METADATA, DataFile, LiveFiles, Metadata, current_metadata, live_files
from dbio_commit.protocol.versions import fate_of, why_refused
from dbio_commit.store import Store

YOUNG_S = 60.0
"""Vacuum purges the markers of none that is younger: it would be another copy that has committed."""

AHEAD_BYTES, AHEAD_MARKERS = 8 * 1024**2, 200
"""Of checkpoint and markers that it has not read, a writer reads more than these before it has its turn, not in it."""

_TIDS_TO_TRY = 10

_T = TypeVar("_T")

_logger = get_logger(__name__)


class TableRoot(Root):
    """A table of ours. Reading goes by the log as it was listed when the root was opened, or lists it."""

    scope = Scope.TABLE
    refer_above = MAX_BYTES
    """From how many bytes on a marker names transactions instead of the paths that it removes; tests have less."""

    def __init__(
        self, store: Store, clock: Clock, log: Log | None = None, *, passing_over: Collection[int] = ()
    ) -> None:
        """`passing_over` are the numbers of checkpoints that do not count, since they cannot be read."""
        super().__init__(store, clock)
        self._listed, self._passing_over = log, passing_over
        self._claimed: str | None = None
        self._in_doubt = False

    # --- read -----------------------------------------------------------------------------------------------------

    def snapshot(self, *, as_of: AsOf = None, ignore_corrupt: bool = False) -> Snapshot:
        store, settled = self.store, self.settled()
        checkpoint, decided, redated = settled.checkpoint, settled.decided, settled.redated_until
        settled.markers.only_valid(ignore_corrupt=ignore_corrupt)
        commits = committed_by(decided, as_of, known_since=checkpoint.known_since, redated_until=redated)
        files = live_files(commits)
        before = NO_METADATA if as_of else checkpoint.metadata
        layout = settled.layout(current_metadata((it.marker for it in commits), before=before))
        check_partitions(store, files, layout)
        if as_of is not None:
            _check_past(store, files, decided, as_of)
        return Snapshot(
            url=store.url,
            scope=self.scope,
            files=with_sizes(store, files),
            partition_columns=layout,
            first_layout=tuple(settled.descriptor.partition_columns),
            decided=tuple(commits),
            checkpoint=NO_CHECKPOINT if as_of else checkpoint,
            log=settled.log,
            origin=settled.origin,
            redated_until=redated,
            strange=tuple(settled.strange),
            source=Source(store),
        )

    def target(self, *, must_be_empty: bool, looked: Moment) -> Target:
        target = self.find_target(must_be_empty=must_be_empty, looked=looked)
        if target is None:
            raise ObjectNotFoundError(f"{self.store.url_of(names.DESCRIPTOR)} has gone; somebody deleted the table")
        return target

    def find_target(self, *, must_be_empty: bool, looked: Moment) -> Target | None:
        """As `target`; None where there is no table."""
        seen = self._look()
        while seen and seen.new_layout_by:
            wait_for_layout(self.store, self.clock, seen.new_layout_by)
            forget_holder(self.store, self.clock)
            looked = self.clock.moment()
            seen = self._look()
        if seen is None:
            return None
        if must_be_empty and self._snapshot_now().tids:
            raise self.table_exists()
        return Target(
            scope=self.scope,
            origin=seen.origin,
            partition_columns=seen.layout,
            metadata=seen.metadata,
            looked=looked,
        )

    def logs(self) -> tuple[Mapping[str, Log], Checkpoint]:
        log = self._log()
        return {"": log}, self._read_checkpoint(log)

    def abort_pending(self, tid: str) -> None:
        log = self._log()
        if tid in self._read_checkpoint(log).covered and tid not in log.committed:
            raise decided_long_ago(self.store, tid)
        if tid not in log.started and tid not in log.committed:
            raise self.unknown_transaction(tid)
        abort_transaction(self.store, self.clock, tid)

    def _read_checkpoint(self, log: Log) -> Checkpoint:
        return read_checkpoint(self.store, log, table_id=read_descriptor(self.store, log).id)

    def history(self) -> History:
        """Every commit that the table still tells, for who reads them one by one."""
        settled = self.settled()
        settled.markers.only_valid(ignore_corrupt=False)
        decided = settled.decided
        return History(
            url=self.store.url,
            origin=settled.origin,
            layouts=settled.layouts(decided),
            commits=[commit for commit in in_order(decided) if not commit.marker.is_abort],
            known_since=settled.checkpoint.known_since,
            redated_until=settled.redated_until,
            metadata=settled.metadata(decided),
            now=self.clock.now(),
        )

    def settled(self) -> Settled:
        """The whole log as one state, for a snapshot and for whoever looks at all of it."""
        return read_settled(self.store, self.clock, self._log(), passing_over=self._passing_over)

    def _log(self) -> Log:
        return self._listed or parse_log(self.store.list_log())

    def _look(self) -> Seen | None:
        return look_at_table(self.store, self.clock, self._snapshot_now)

    def _snapshot_now(self) -> Snapshot:
        return self._read_now(TableRoot.snapshot)

    def _read_now(self, what: Callable[["TableRoot"], _T]) -> _T:
        def read() -> _T:
            log = parse_log(self.store.list_log())
            refuse_dropped(self.store, log)
            if log.descriptor is None:
                raise TableNotFoundError(
                    f"{self.store.url_of(names.DESCRIPTOR)} has gone; somebody deleted the table: begin again"
                )
            return what(TableRoot(self.store, self.clock, log))

        return until_quiet(self.store, read)

    # --- write ----------------------------------------------------------------------------------------------------

    def claim(self, target: Target, layout: Layout | None, begun: bytes) -> str:
        tid = _claim_tid(self.store, self.clock, begun)
        if not (target.looked and self.clock.is_within(target.looked, TRUST_S)):
            self._refuse_changed(tid, layout, target.origin)
        return tid

    def _refuse_changed(self, tid: str, layout: Layout | None, origin: Origin | None) -> None:
        """Where the table that we looked at was dropped, or its layout changed, before our start marker came."""
        seen = None
        with suppress(TableNotFoundError):
            seen = self._look()
        if seen and _is_same_table(origin, seen.descriptor.id) and _is_by(layout, seen):
            return
        self.store.delete_many([names.started(tid)])
        raise CommitConflictError(
            f"{self.store.url} was dropped since this write looked at it, or its partition columns changed; nothing "
            "was written: begin again"
        )

    def mark(self, terms: Terms, directory: str) -> None:
        """Its start marker is at the root, since it was claimed; or comes now, from whichever task is the first."""
        if terms.unclaimed is None or self._claimed == terms.tid:
            return
        if not any(self._put_start(terms) for _ in range(PUT_ATTEMPTS)):
            raise StoreError(f"{self.store.url_of(names.started(terms.tid))} comes and goes; write again")
        if not self.clock.is_within(terms.unclaimed, TRUST_S):
            layout = None if terms.changes_layout else terms.partition_columns
            self._refuse_changed(terms.tid, layout, terms.origin)
        self._claimed = terms.tid

    def _put_start(self, terms: Terms) -> bool:
        """False where it was there, and vacuum purged it before we could see whose it was."""
        self.check_life(terms)
        path, body = names.started(terms.tid), terms.begun
        if create(self.store, path, body):
            return True
        try:
            found = self.store.get(path)
        except ObjectNotFoundError:
            return False
        if found != body:
            raise StoreError(f"{self.store.url_of(path)} is there already, of another writer; write again")
        return True

    def check_place(self, file: FileInfo, terms: Terms) -> None:
        if tuple(file.partition) != terms.partition_columns:
            raise InvalidInputError(
                f"{file.path!r} lies in no partition of {self.store.url}, which is partitioned by "
                f"{list(terms.partition_columns)}; readers would refuse the whole table"
            )

    def confirm(self, terms: Terms) -> None:
        """A drop lists files no earlier than a minute after it has aborted who is pending."""
        if self._is_young(terms):
            return
        started, decided = self.store.stat_many([names.started(terms.tid), names.committed(terms.tid)])
        if started is None or (decided is not None and decided.size):
            raise TransactionAbortedError(
                f"transaction {terms.tid} of {self.store.url} was decided while this task wrote, or its table dropped; "
                "the task's files were deleted"
            )

    def raise_if_aborted(self, terms: Terms, directory: str) -> None:
        with suppress(ObjectNotFoundError):
            read_own(self.store, names.committed(terms.tid), commit_id=terms.commit_id)

    def commit(self, draft: Draft) -> Commit:
        """Was it decided already? Else its turn, if it needs one; then the commit marker decides."""
        app = draft.terms.app
        try:
            with holding(self.store):
                return self._commit(draft)
        except TransactionAbortedError:
            if app and fate_of(app, self._snapshot_now().app_versions) == "committed":
                return self._skip(draft)  # who committed it has aborted all others, which would be skipped
            raise

    def _commit(self, draft: Draft) -> Commit:
        terms = draft.terms
        if terms.skipped:
            return self._skip(draft)
        if not draft.files:
            self.mark(terms, "")
        if found := self._find_earlier(terms):
            return self._result_as_found(terms.tid, found)
        try:
            self.require_files(terms, draft.files)
        except UnsupportedStoreError:
            if self._in_doubt:
                raise self._gone(terms.tid) from None
            self._look_at_descriptor(terms)  # which says so where the files are gone with their table
            raise
        rules = RULES[terms.operation]
        turn, removed, metadata, shorten = None, list[str](), terms.metadata, None
        origin = terms.origin
        if rules.needs_state or terms.app or terms.is_conditional or terms.sets or draft.changes_schema:
            taken = self._take_turn(terms)
            if isinstance(taken, CommitMarker):
                return self._result_as_found(terms.tid, taken)
            turn, table = taken
            if self._comes_too_late(terms, table):
                return self._skip(draft, turn)
            if terms.changes_layout:
                end_others(self.store, self.clock, terms.tid)
                table = self._snapshot_now()
                if self._comes_too_late(terms, table):
                    return self._skip(draft, turn)
            removed, origin = rules.removes(draft, table), table.origin
            if draft.read:
                refuse_news(table, draft.read, tid=terms.tid)
            shorten = partial(refer, live=table.files, commits=table.decided)
            metadata = self._metadata_after(draft, table.metadata, turn, sets_schema=rules.sets_schema)
            self._refuse_other_values(table, removed, metadata, layout=terms.partition_columns)
        if origin is None or origin.dated is None:
            origin = self._look_at_descriptor(terms)
        marker = self._marker(draft, removed, turn, metadata, origin)
        body = encode_commit(marker, shorten=shorten, shorten_above=self.refer_above)
        self.check_life(terms)
        found = commit_once(
            self.store, terms.tid, body, commit_id=terms.commit_id, is_young=lambda: self._is_young(terms)
        )
        self._refuse_gone(terms.tid, origin)
        if turn is not None and not found:
            remember_metadata(self.store, self.clock, metadata, table.log)
            if terms.app:
                self._abort_superseded(terms.tid, terms.app, table)
        return self._result_as_found(terms.tid, found) if found else self.result(terms.tid, marker)

    def _look_at_descriptor(self, terms: Terms) -> Origin | None:
        """Of a table that this transaction created, with its time. Raises CommitConflictError where it has gone."""
        log = parse_log(self.store.stat_log(names.DESCRIPTOR).values())
        refuse_other_table(self.store, log, terms.origin)
        return terms.origin and log.descriptor and terms.origin._replace(dated=log.descriptor.modified)

    def _refuse_gone(self, tid: str, origin: Origin | None) -> None:
        """After the commit marker was put: somebody may have moved or removed the table before that, and it not counts.

        Raises CommitConflictError, CommitStateUnknownError where the marker is not there, either, or nobody can tell.
        """
        path = names.committed(tid)
        try:
            log = parse_log(self.store.stat_log(names.DESCRIPTOR).values())
            refuse_other_table(self.store, log, origin)
        except CommitConflictError:
            if self._is_nowhere(path, log) and withdraw(self.store, path):
                raise
            self._in_doubt = True
            raise self._gone(tid) from None
        except StoreError as error:
            raise unknown(self.store, path, error) from error

    def _is_nowhere(self, path: str, log: Log) -> bool:
        """Whether the commit marker at this path is that of no table, since its table is not here."""
        if self._in_doubt or self.store.stat_many([path]) == [None]:
            return False  # it may have moved along with its table
        left = [] if log.descriptor else [entry.path for entry in self.store.list_log()]
        # Of a log that is left, the descriptor alone is gone, and may come back.
        return not any(other != path and names.parse_log_name(other) for other in left)

    def _gone(self, tid: str) -> CommitStateUnknownError:
        return CommitStateUnknownError(
            f"the table at {self.store.url}, or its descriptor, was removed or moved while transaction {tid} "
            "committed; where the table is now, `dbio show` tells whether it has the commit"
        )

    def _comes_too_late(self, terms: Terms, table: Snapshot) -> bool:
        """Whether the version of its application is committed already (I8).

        Raises AppVersionError as `is_committed` does; TableExistsError, CommitConflictError where the table is not what
        was asked for.
        """
        if terms.app and is_committed(table, terms.app):
            return True
        if terms.must_be_empty and table.tids:
            raise self.table_exists()
        if terms.if_tid is not None:
            since, settle_s = table.checkpoint.known_since, self.store.settle_s
            refuse_changed(table.decided, terms.if_tid, moment_s=settle_s, known_since=since, where=self.store.url)
        return False

    def _abort_superseded(self, tid: str, app: App, table: Snapshot) -> None:
        """What other attempts at committed versions of the application have left pending: they would be skipped (I8).

        It is a courtesy, to whom they would else lie there for a vacuum's retention: where it fails, vacuum does it.
        """
        started = table.log.started
        for other in table.log.pending:
            if other == tid or not started[other].size or other in table.checkpoint.covered:
                continue
            with courtesy(_logger, "%s: could not tell whether %s is an earlier attempt", self.store.url, other):
                theirs = read_begun(self.store, started[other], table_id=table.table_id)
                if (
                    theirs
                    and theirs.id == app.id
                    and (theirs.version == app.version or fate_of(theirs, table.app_versions) == "committed")
                ):
                    abort_transaction(self.store, self.clock, other)
                    _logger.info("%s: aborted %s, an attempt at version %d of application %r that came to nothing",
                                 self.store.url, other, theirs.version, app.id)  # fmt: skip

    def _result_as_found(self, tid: str, marker: CommitMarker) -> Commit:
        """Of a transaction that was committed already; with the paths that it removed, if the table can be read."""
        if marker.removed_tids:
            with suppress(DbioError):  # it is committed, whatever happens now
                told = {commit.tid: commit.marker for commit in self._snapshot_now().decided}
                return self.result(tid, told.get(tid, marker))
        return self.result(tid, marker)

    def _skip(self, draft: Draft, turn: int | None = None) -> Commit:
        nothing = self._marker(replace(draft, files=()), [], turn, draft.terms.metadata, draft.terms.origin)
        return self.result(draft.terms.tid, nothing, skipped=True)

    def _marker(
        self, draft: Draft, removed: list[str], turn: int | None, metadata: Metadata, origin: Origin | None
    ) -> CommitMarker:
        metrics, now = draft.metrics(self.clock.monotonic()), self.clock.now()
        return draft.marker(draft.files, removed, metrics, now=now, origin=origin, turn=turn, metadata=metadata)

    def _is_young(self, terms: Terms) -> bool:
        """Whether vacuum cannot have purged any of its markers."""
        return self.clock.is_within(terms.began, YOUNG_S)

    def _find_earlier(self, terms: Terms) -> CommitMarker | None:
        """What another copy of it has committed, where this one comes too late; None while it may commit."""
        is_over = self.age_s(terms) > MAX_LIFE_S
        if self._is_young(terms) and not is_over:
            return None
        try:
            return find_decision(self.store, terms.tid, commit_id=terms.commit_id, is_known=is_over)
        except TransactionAbortedError:
            self.check_life(terms)
            raise

    def _take_turn(self, terms: Terms) -> tuple[int, Snapshot] | CommitMarker:
        """Our turn, and the table as it stands in it; or what the transaction was decided to meanwhile.

        That was an earlier call of commit that was interrupted, or another copy of the transaction.
        """
        read_ahead = self._reader_ahead()
        while True:
            try:
                turn = take_turn(
                    self.store,
                    self.clock,
                    terms.tid,
                    origin=terms.origin,
                    new_layout=terms.changes_layout,
                    read_ahead=read_ahead,
                )
            except CommitConflictError:
                if self._in_doubt:
                    raise self._gone(terms.tid) from None
                raise
            if turn is not None:
                table = self._snapshot_now()
                if not _is_same_table(terms.origin, table.table_id):
                    raise CommitConflictError(
                        f"the table at {self.store.url} was removed since transaction {terms.tid} began, and another "
                        "one is there now; nothing was committed: begin again"
                    )
                if not any(it.tid == terms.tid and not it.marker.is_abort for it in table.decided):
                    if table.log.last_turn <= turn:
                        return turn, table
                    continue  # a listing that vacuum overtook showed no turn where there were many: ours is long past
            if found := find_decision(self.store, terms.tid, commit_id=terms.commit_id, is_known=True):
                return found

    def _reader_ahead(self) -> Callable[[Log], None]:
        """Reads what a snapshot would have to, where that is much: whoever has the turn keeps all others waiting."""
        had = set[Entry]()

        def read_ahead(log: Log) -> None:
            nonlocal had
            new = unread(self.store, log, remembered_id(self.store, self.clock)) - had
            if len(new) > AHEAD_MARKERS or sum(entry.size for entry in new) > AHEAD_BYTES:
                self._read_now(TableRoot.settled)
                had |= new

        return read_ahead

    def _metadata_after(self, draft: Draft, before: Metadata, turn: int, *, sets_schema: bool) -> Metadata:
        """What the commit makes of the table as it stands in its turn."""
        self._refuse_other_constraints(draft, before)
        schema = self._schema_after(draft, before.schema, sets=sets_schema)
        return Metadata(schema, turn, change(before.settings, draft.terms.sets))

    def _refuse_other_values(
        self, table: Snapshot, removed: Collection[str], after: Metadata, *, layout: Layout
    ) -> None:
        """Raises InvalidInputError where a partition column gets a type of which the files that stay have no values."""
        types = partition_types(after.schema, layout)
        if types == partition_types(table.schema, layout) or len(removed) == len(table.files):
            return
        gone = set(removed)
        for it in find_unread(table.files, types):
            if it.path not in gone:
                raise InvalidInputError(
                    f"partition column {it.column!r} of {self.store.url} cannot be {types[it.column]} after this "
                    f"commit: {it.path!r} would stay, and {it.why}; nothing was committed"
                )

    def _refuse_other_constraints(self, draft: Draft, current: Metadata) -> None:
        """Raises CommitConflictError where its rows were checked against others than the table's."""
        terms = draft.terms
        is_checked = terms.changes_rows and draft.files
        if is_checked and Constraints.of(current.settings) != Constraints.of(terms.metadata.settings):
            raise CommitConflictError(
                f"the constraints of {self.store.url} were changed by another commit since transaction {terms.tid} "
                "began; nothing was committed: write again"
            )

    def _schema_after(self, draft: Draft, current: Mapping[str, Any] | None, *, sets: bool) -> Mapping[str, Any] | None:
        """The table's schema after this commit: operations that set their own do, others change what they have seen."""
        if draft.schema is not None and sets:
            return draft.schema
        if draft.schema is None or not draft.changes_schema:
            return current
        if current not in (None, draft.terms.metadata.schema, draft.schema):
            raise CommitConflictError(
                f"the schema of {self.store.url} was changed by another commit since transaction {draft.terms.tid} "
                "began; nothing was committed: read the table again and write anew"
            )
        return draft.schema

    def abort(self, terms: Terms, paths: Iterable[str]) -> None:
        if not terms.skipped:
            self._decide_against(terms)
        self.delete(terms.tid, paths)
        if terms.skipped:  # nobody can commit it, so that no marker need say so; until now its start hid its files
            self.delete(terms.tid, [names.started(terms.tid)])

    def _decide_against(self, terms: Terms) -> None:
        """Leaves no marker where there is nothing to decide any more: the table may be gone (`drop`), or another."""
        descriptor, started = self.store.stat_many([names.DESCRIPTOR, names.started(terms.tid)])
        if started or (terms.unclaimed and descriptor and self._is_young(terms)):  # a late task may put one
            abort_transaction(self.store, self.clock, terms.tid)
            return
        with suppress(TransactionAbortedError):
            find_decision(self.store, terms.tid, commit_id=terms.commit_id, is_known=True)
            raise TransactionStateError(f"transaction {terms.tid} of {self.store.url} was committed long ago")


def _is_same_table(origin: Origin | None, table_id: str | None) -> bool:
    return origin is None or origin.table_id == table_id


def _is_by(layout: Layout | None, seen: Seen) -> bool:
    """Whether the table has, and keeps, these partition columns; any will do for None."""
    return layout is None or (seen.layout == layout and not seen.new_layout_by)


def is_committed(snapshot: Snapshot, app: App) -> bool:
    """Whether the application has committed this version: then nothing may be written (I8).

    A WARNING says by which commit: a version that somebody made up would stop a job for good, and in silence. Raises
    AppVersionError for one that comes after a higher one, and does not say that it may; or if nobody knows.
    """
    committed = snapshot.app_versions
    fate = fate_of(app, committed)
    if fate in ("passed", "unknown"):
        raise AppVersionError(why_refused(app, committed[app.id], where=snapshot.url))
    if fate == "committed":
        infos = ((commit.tid, commit.marker.dbio_commit) for commit in snapshot.decided)
        tids = [tid for tid, info in infos if info and info.app and info.app.is_run_of(app)]
        by = f"by transaction {tids[-1]}" if tids else "by a transaction of which a checkpoint knows no more than that"
        _logger.warning("%s: version %d of application %r is skipped: it is committed, %s; if none of your jobs did "
                        "that, see `dbio check`", snapshot.url, app.version, app.id, by)  # fmt: skip
    return fate == "committed"


def _claim_tid(store: Store, clock: Clock, begun: bytes) -> str:
    """A tid that nobody else has; the store proves here, once a process, that it can tell a winner."""
    for _ in range(_TIDS_TO_TRY):
        tid = new_tid(clock)
        if create(store, names.started(tid), begun):
            return tid
    raise StoreError(f"{store.url} refused {_TIDS_TO_TRY} new tids as taken; check the machine's clock and try again")


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


def check_partitions(store: Store, files: LiveFiles, columns: Layout) -> None:
    """Raises CorruptMarkerError: a DBIO writer may commit at our root without knowing of our partition columns."""
    if file := files.outside(columns):
        raise CorruptMarkerError(
            f"{store.url_of(names.committed(str(file.tid)))} adds {file.path!r} to a table that is partitioned by "
            f"{list(columns)}, but the file lies in no such partition; inspect it with `dbio show`, and remove the "
            "marker if that commit was a mistake"
        )
