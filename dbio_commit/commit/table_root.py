"""Commits in the table scope: one descriptor and one log at the root decide about the table (PROTOCOL.md 8 and 9)."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DbioError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
    TableNotFoundError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedStoreError,
)
from dbio_commit.commit.applications import abort_superseded, has_version, is_committed
from dbio_commit.commit.decision import (
    PUT_ATTEMPTS,
    abort_transaction,
    commit_once,
    find_decision,
    read_own,
    unknown,
    withdraw,
)
from dbio_commit.commit.isolation import last_erasure_of, refuse_erased, refuse_unread_rows
from dbio_commit.commit.operations import RULES
from dbio_commit.commit.probe import create
from dbio_commit.commit.request import CommitRequest, Terms
from dbio_commit.commit.root import MAX_LIFE_S, Root, Target
from dbio_commit.commit.state_after import ends_appends, has_new_columns, metadata_after, refuse_unread
from dbio_commit.commit.tids import new_tid
from dbio_commit.commit.turns import TRUST_S, end_blind, end_others, take_turn, wait_for_layout
from dbio_commit.log.listing import read_last_turn, refuse_dropped, refuse_other_table, unread
from dbio_commit.log.metadata import look_at_table, look_at_turns
from dbio_commit.log.object_cache import holding
from dbio_commit.log.seen import Seen, forget_holder, free_turn, remember_metadata, remembered_id
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.table_log import TableLog, table_now
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.etag import refuse_changed
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.markers.commit import CommitMarker, encode_commit
from dbio_commit.protocol.markers.descriptor import Origin
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.references import refer
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Layout, published_forms
from dbio_commit.protocol.state import Metadata
from dbio_commit.store import Store

YOUNG_S = 60.0
"""Vacuum purges no markers of a transaction that is younger, in s, even if another copy of it has committed."""

AHEAD_BYTES, AHEAD_MARKERS = 8 * 1024**2, 200
"""A writer that has more bytes or markers to read than this reads them before it has its turn."""

_TIDS_TO_TRY = 10

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Draft:
    """A commit that is checked and not decided yet. If it depends on the table's state, its turn is taken."""

    request: CommitRequest
    marker: CommitMarker
    origin: Origin | None
    metadata: Metadata
    """The table's after the commit."""
    turn: int | None
    table: Snapshot | None
    """The table in the turn."""


class TableRoot(Root):
    """A table with a descriptor."""

    scope = Scope.TABLE
    refer_above = MAX_BYTES
    """A marker that is larger, in bytes, names transactions instead of the paths that it removes. Tests set less."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self._claimed: str | None = None
        self._in_doubt = False

    def find_target(self, *, must_be_empty: bool, looked: Moment) -> Target | None:
        """What a transaction would write to; None if there is no table.

        Raises TableExistsError if `must_be_empty` and there are commits.
        """
        seen = look_at_table(self.store, self.clock)
        while seen and seen.new_layout_by:
            wait_for_layout(self.store, self.clock, seen.new_layout_by)
            forget_holder(self.store, self.clock)
            looked = self.clock.moment()
            seen = look_at_table(self.store, self.clock)
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

    def _snapshot_now(self) -> Snapshot:
        return table_now(self.store, self.clock, TableLog.snapshot)

    # --- write ----------------------------------------------------------------------------------------------------

    def claim(self, target: Target, layout: Layout | None, begun: bytes, *, tid: str | None = None) -> str:
        if tid is None:
            tid = _claim_tid(self.store, self.clock, begun)
        else:
            _put_start(self.store, tid, begun)
        if not (target.looked and self.clock.is_within(target.looked, TRUST_S)):
            self._refuse_changed(tid, layout, target.origin)
        return tid

    def _refuse_changed(self, tid: str, layout: Layout | None, origin: Origin | None) -> None:
        """Raises CommitConflictError if the table was dropped, or its layout changed, before the start marker came.

        Then it deletes the start marker.
        """
        seen = None
        with suppress(TableNotFoundError):
            seen = look_at_table(self.store, self.clock)
        if seen and _is_same_table(origin, seen.descriptor.id) and _is_by(layout, seen):
            return
        self.store.delete_many([names.started(tid)])
        raise CommitConflictError(
            f"{self.store.url} was dropped since this write looked at it, or its partition columns changed; nothing "
            "was written: begin again"
        )

    def mark(self, terms: Terms, directory: str) -> None:
        """Puts the start marker at the root, unless `claim` or an earlier call did."""
        if terms.unclaimed is None or self._claimed == terms.tid:
            return
        _put_start(self.store, terms.tid, terms.begun, may_put=partial(self.check_life, terms))
        if not self.clock.is_within(terms.unclaimed, TRUST_S):
            layout = None if terms.changes_layout else terms.partition_columns
            self._refuse_changed(terms.tid, layout, terms.origin)
        self._claimed = terms.tid

    def check_place(self, file: FileInfo, terms: Terms) -> None:
        if tuple(file.partition) != terms.partition_columns:
            raise InvalidInputError(
                f"{file.path!r} lies in no partition of {self.store.url}, which is partitioned by "
                f"{list(terms.partition_columns)}; readers would refuse the whole table"
            )

    def confirm(self, terms: Terms) -> None:
        """Needs no look if the transaction is young: a drop lists files a minute after it aborted pending
        transactions."""
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

    def raise_if_gone(self, terms: Terms) -> None:
        log = parse_log(self.store.stat_log(names.DESCRIPTOR, names.DROPPED).values())
        refuse_dropped(self.store, log)
        refuse_other_table(self.store, log, terms.origin)

    def commit(self, request: CommitRequest) -> Commit:
        """Returns an earlier decision if there is one. Otherwise takes a turn if needed, and puts the commit marker."""
        app = request.terms.app
        try:
            with holding(self.store):
                return self._commit(request)
        except TransactionAbortedError:
            if app and has_version(self._snapshot_now(), app):
                return self._skip(request)  # the writer that committed the version has aborted its other attempts
            with suppress(StoreError):
                self._refuse_outdated(request)  # an overwrite with other columns aborts appends
            raise

    def _commit(self, request: CommitRequest) -> Commit:
        draft = self.draft(request)
        return draft if isinstance(draft, Commit) else self.decide(draft, self.encode(draft))

    def draft(self, request: CommitRequest) -> "Commit | Draft":
        """What the transaction commits, with its turn taken if it needs one; or an earlier decision. Nothing is decided
        yet."""
        terms = request.terms
        if terms.skipped:
            return self._skip(request)
        if not request.files:
            self.mark(terms, "")
        if found := self._find_earlier(terms):
            return self._result_as_found(terms.tid, found)
        try:
            self.require_files(terms, request.files)
        except UnsupportedStoreError:
            if self._in_doubt:
                raise self._gone(terms.tid) from None
            self.raise_if_gone(terms)  # a clearer error if the files are gone with their table
            raise
        turn, removed, table = None, list[str](), None
        origin, metadata = terms.origin, self._metadata_if_blind(request)
        if metadata is None:
            taken = self._take_turn(request)
            if isinstance(taken, CommitMarker):
                return self._result_as_found(terms.tid, taken)
            turn, table = taken
            if self._comes_too_late(terms, table):
                return self._skip(request, turn)
            if terms.changes_layout:
                end_others(self.store, self.clock, terms.tid)
                table = self._snapshot_now()
                if self._comes_too_late(terms, table):
                    return self._skip(request, turn)
            elif ends_appends(request, table.schema) and end_blind(self.store, self.clock, terms.tid, table):
                table = self._snapshot_now()
            removed, origin = RULES[terms.operation].removes(request, table), table.origin
            if request.read:
                refuse_unread_rows(table, request.read, tid=terms.tid)
            metadata = metadata_after(request, table.metadata, turn, where=self.store.url)
            refuse_unread(table, removed, metadata, layout=terms.partition_columns)
        if origin is None or origin.dated is None:
            origin = self._look_at_descriptor(terms)
        marker = self._marker(request, removed, turn, metadata, origin)
        return Draft(request, marker, origin=origin, metadata=metadata, turn=turn, table=table)

    def encode(self, draft: "Draft") -> bytes:
        table, terms = draft.table, draft.request.terms
        shorten = partial(refer, live=table.files, whole=table.whole) if table else None
        return encode_commit(
            draft.marker, shorten=shorten, shorten_above=self.refer_above, warn=partial(self.warn_lean, terms)
        )

    def decide(self, draft: "Draft", body: bytes) -> Commit:
        """Puts the commit marker, with this body."""
        request, metadata, terms = draft.request, draft.metadata, draft.request.terms
        if self.age_s(terms) > MAX_LIFE_S and (earlier := self._find_earlier(terms)):
            return self._result_as_found(terms.tid, earlier)  # a copy has committed it while this one stood still
        put = partial(self._put, draft, body)
        if request.beside and published_forms(metadata.settings):
            beside = partial(request.beside, metadata.settings)
            found, _ = self.store.together(put, beside)
            self.store.together(partial(self._refuse_gone, terms.tid, draft.origin), beside)
        else:
            found = put()
            self._refuse_gone(terms.tid, draft.origin)
        if draft.table is not None and not found:
            remember_metadata(self.store, self.clock, metadata, draft.table.log)
            if terms.app:
                abort_superseded(self.store, self.clock, draft.table, terms.app, tid=terms.tid)
        return self._result_as_found(terms.tid, found) if found else self.result(terms.tid, draft.marker)

    def _put(self, draft: "Draft", body: bytes) -> CommitMarker | None:
        terms, is_young = draft.request.terms, lambda: self._is_young(draft.request.terms)
        try:
            return commit_once(self.store, terms.tid, body, commit_id=terms.commit_id, is_young=is_young)
        except TransactionAbortedError:
            if self.store.stat_many([names.committed(terms.tid)]) == [None]:
                self._refuse_gone(terms.tid, draft.origin)  # a drop has deleted the markers, whatever they decided
            raise

    def _metadata_if_blind(self, request: CommitRequest) -> Metadata | None:
        """The table's current columns and settings, for a blind append to record. None for a commit that takes a turn.

        The look comes after the start marker. So either it shows the turn of an overwrite, or the overwrite finds the
        start marker, and aborts the transaction before it gives the table other columns. Raises CommitConflictError if
        the files do not fit the table any more.
        """
        terms = request.terms
        if terms.takes_turn or request.changes_schema:
            return None
        seen = self._seen_now(terms)
        if seen is None:
            self._look_at_descriptor(terms)
            return terms.metadata
        if seen.holder and seen.holder.new_columns:
            return None  # the commit waits for this holder
        return metadata_after(request, seen.metadata, seen.metadata.turn, where=self.store.url)

    def _refuse_outdated(self, request: CommitRequest) -> None:
        """Raises CommitConflictError if what the transaction saw of the table when it began does not hold any more."""
        if seen := self._seen_now(request.terms):
            metadata_after(request, seen.metadata, seen.metadata.turn, where=self.store.url)

    def _seen_now(self, terms: Terms) -> Seen | None:
        """The table now. None if it has gone: the transaction is or will be aborted."""
        with suppress(TableNotFoundError):
            return look_at_turns(self.store, self.clock, terms.origin) if terms.origin else None
        return None

    def _look_at_descriptor(self, terms: Terms) -> Origin | None:
        """The transaction's origin, with the descriptor's time. Raises CommitConflictError if the table has gone."""
        log = parse_log(self.store.stat_log(names.DESCRIPTOR).values())
        refuse_other_table(self.store, log, terms.origin)
        return terms.origin and log.descriptor and terms.origin._replace(dated=log.descriptor.modified)

    def _refuse_gone(self, tid: str, origin: Origin | None) -> None:
        """Checks that the table was not moved or removed before the commit marker was put, so that the marker counts.

        Raises CommitConflictError if the table has gone and the marker was withdrawn. Raises CommitStateUnknownError if
        the marker is not there, either, or if it is not known whether it counts.
        """
        path = names.committed(tid)
        try:
            log = parse_log(self.store.stat_log(names.DESCRIPTOR).values())
            try:
                refuse_other_table(self.store, log, origin)
            except CommitConflictError:
                if self._is_nowhere(path, log) and withdraw(self.store, path):
                    raise
                self._in_doubt = True
                raise self._gone(tid) from None
        except StoreError as error:
            raise unknown(self.store, path, error) from error

    def _is_nowhere(self, path: str, log: Log) -> bool:
        """Whether the commit marker is at this path, and no table is here to which it belongs."""
        if self._in_doubt or self.store.stat_many([path]) == [None]:
            return False  # it may have moved along with its table
        left = [] if log.descriptor else [entry.path for entry in self.store.list_log()]
        # If other markers are left, only the descriptor is gone, and it may come back.
        return not any(other != path and names.parse_log_name(other) for other in left)

    def _gone(self, tid: str) -> CommitStateUnknownError:
        return CommitStateUnknownError(
            f"the table at {self.store.url}, or its descriptor, was removed or moved while transaction {tid} "
            "committed; where the table is now, `dbio show` shows whether it has the commit"
        )

    def _comes_too_late(self, terms: Terms, table: Snapshot) -> bool:
        """Whether the version of its application is committed already (I8).

        Raises AppVersionError as `is_committed` does. Raises TableExistsError or CommitConflictError if the table does
        not meet the conditions of the transaction.
        """
        if terms.app and is_committed(table, terms.app):
            return True
        if terms.must_be_empty and table.tids:
            raise self.table_exists()
        if terms.last_erasure is not None:
            then = "nothing was committed: begin again"
            refuse_erased(last_erasure_of(table), since=terms.last_erasure, where=self.store.url, then=then)
        if terms.if_match is not None:
            since, settle_s = table.checkpoint.known_since, self.store.settle_s
            refuse_changed(
                table.transactions, terms.if_match, moment_s=settle_s, known_since=since, where=self.store.url
            )
        return False

    def _result_as_found(self, tid: str, marker: CommitMarker) -> Commit:
        """The result of a transaction that was committed before, with the paths that it removed if they can be read."""
        if marker.removed_tids:
            with suppress(DbioError):  # it is committed, whatever fails now
                known = self._snapshot_now().whole({tid})
                return self.result(tid, known[0].marker if known else marker)
        return self.result(tid, marker)

    def _skip(self, request: CommitRequest, turn: int | None = None) -> Commit:
        nothing = self._marker(replace(request, files=()), [], turn, request.terms.metadata, request.terms.origin)
        return self.result(request.terms.tid, nothing, skipped=True)

    def _marker(
        self, request: CommitRequest, removed: list[str], turn: int | None, metadata: Metadata, origin: Origin | None
    ) -> CommitMarker:
        metrics, now = request.metrics(self.clock.monotonic()), self.clock.now()
        return request.marker(request.files, removed, metrics, now=now, origin=origin, turn=turn, metadata=metadata)

    def _is_young(self, terms: Terms) -> bool:
        """Whether the transaction is so young that vacuum cannot have purged any of its markers."""
        return self.clock.is_within(terms.began, YOUNG_S)

    def _find_earlier(self, terms: Terms) -> CommitMarker | None:
        """The commit marker of another copy of the transaction that committed before. None if this one may still
        commit."""
        is_over = self.age_s(terms) > MAX_LIFE_S
        if self._is_young(terms) and not is_over:
            return None
        try:
            return find_decision(self.store, terms.tid, commit_id=terms.commit_id, is_known=is_over)
        except TransactionAbortedError:
            self.check_life(terms)
            raise

    def _take_turn(self, request: CommitRequest) -> tuple[int, Snapshot] | CommitMarker:
        """The turn and the table as it is in that turn, or the marker if the transaction was committed meanwhile.

        An earlier call of `commit` that was interrupted may have committed it, or another copy of the transaction.
        """
        terms, read_ahead = request.terms, self._reader_ahead()
        while True:
            try:
                turn = take_turn(
                    self.store,
                    self.clock,
                    terms.tid,
                    origin=terms.origin,
                    new_layout=terms.changes_layout,
                    new_columns=has_new_columns(request),
                    tables=len(request.joint.tables) if request.joint else 1,
                    free=self._free_turn(terms),
                    read_ahead=read_ahead,
                )
                table = turn and self._table_in(turn, terms)
            except CommitConflictError:
                if self._in_doubt:
                    raise self._gone(terms.tid) from None
                raise
            if turn and table:
                if not _is_same_table(terms.origin, table.table_id):
                    raise CommitConflictError(
                        f"the table at {self.store.url} was removed since transaction {terms.tid} began, and another "
                        "one is there now; nothing was committed: begin again"
                    )
                if not any(it.tid == terms.tid and not it.marker.is_abort for it in table.transactions):
                    if read_last_turn(self.store, table.log, table.table_id, above=turn) == turn:
                        return turn, table
                    continue  # vacuum overtook the listing, which showed too few turns: this one is long past
            if found := find_decision(self.store, terms.tid, commit_id=terms.commit_id, is_known=True):
                return found

    def _free_turn(self, terms: Terms) -> int | None:
        """The next turn, if it was free within the last TRUST_S; None if that is not known."""
        if terms.creates and self.clock.is_within(terms.began, TRUST_S):
            return 1
        return free_turn(self.store, self.clock, terms.origin, within_s=TRUST_S)

    def _table_in(self, turn: int, terms: Terms) -> Snapshot:
        """The table in this turn, which was just taken. Raises CommitConflictError if it has gone."""
        try:
            return self._snapshot_now()
        except TableNotFoundError:
            withdraw(self.store, names.turn(turn))  # a turn alone would show that a table has lost its descriptor
            self._look_at_descriptor(terms)
            raise

    def _reader_ahead(self) -> Callable[[Log], None]:
        """Returns a function that reads checkpoint and markers before the turn, if they are large: others wait for a
        held turn."""
        had = set[Entry]()

        def read_ahead(log: Log) -> None:
            nonlocal had
            new = unread(self.store, log, remembered_id(self.store, self.clock)) - had
            if len(new) > AHEAD_MARKERS or sum(entry.size for entry in new) > AHEAD_BYTES:
                table_now(self.store, self.clock, TableLog.settled)
                had |= new

        return read_ahead

    def abort(self, terms: Terms, paths: Iterable[str]) -> None:
        if not terms.skipped:
            self._decide_against(terms)
        self.delete(terms.tid, paths)
        if terms.skipped:  # nobody can commit it, so no marker is needed; until now its start marker hid its files
            self.delete(terms.tid, [names.started(terms.tid)])

    def _decide_against(self, terms: Terms) -> None:
        """Aborts, but leaves no marker if nothing is left to decide: the table may be dropped, or be another one."""
        descriptor, started = self.store.stat_many([names.DESCRIPTOR, names.started(terms.tid)])
        if started or (terms.unclaimed and descriptor and self._is_young(terms)):  # a late task may put a start marker
            abort_transaction(self.store, self.clock, terms.tid)
            return
        with suppress(TransactionAbortedError):
            find_decision(self.store, terms.tid, commit_id=terms.commit_id, is_known=True)
            raise TransactionStateError(f"transaction {terms.tid} of {self.store.url} was committed long ago")


def _is_same_table(origin: Origin | None, table_id: str | None) -> bool:
    return origin is None or origin.table_id == table_id


def _is_by(layout: Layout | None, seen: Seen) -> bool:
    """Whether the table has, and keeps, these partition columns. None stands for any."""
    return layout is None or (seen.layout == layout and not seen.new_layout_by)


def _claim_tid(store: Store, clock: Clock, begun: bytes) -> str:
    """A tid that nobody else has. Once in each process, this also proves that the store has put-if-absent."""
    for _ in range(_TIDS_TO_TRY):
        tid = new_tid(clock)
        if create(store, names.started(tid), begun):
            return tid
    raise StoreError(f"{store.url} refused {_TIDS_TO_TRY} new tids as taken; check the machine's clock and try again")


def _put_start(store: Store, tid: str, begun: bytes, *, may_put: Callable[[], None] = lambda: None) -> None:
    """Puts the start marker of this tid, unless an earlier request did. Raises StoreError if another writer has it, and
    what `may_put` raises, which is called before each attempt."""
    path = names.started(tid)
    for _ in range(PUT_ATTEMPTS):
        may_put()
        if create(store, path, begun):
            return
        with suppress(ObjectNotFoundError):  # vacuum purged it before it could be read
            if store.get(path) == begun:
                return
            raise StoreError(f"{store.url_of(path)} exists already, from another writer; write again")
    raise StoreError(f"{store.url_of(path)} appears and disappears; write again")
