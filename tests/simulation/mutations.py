"""Ways to get the protocol wrong, each switched on by itself in the real code: the simulation must find every one.

A mutation says which check it fails, by the beginning of the Violation's message.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from msgspec import structs

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    HistoryLostError,
    ObjectNotFoundError,
    StoreError,
    TableNotFoundError,
    TransactionAbortedError,
)
from dbio_commit.commit import applications, checkpoints, decision, isolation, parts, root, state_after, turns
from dbio_commit.commit import directory_root as directory
from dbio_commit.commit import table_root as table
from dbio_commit.commit.begin import Intent, begin
from dbio_commit.commit.context import WriteContext
from dbio_commit.commit.directory_root import DirectoryRoot
from dbio_commit.commit.operations import RULES, TableState
from dbio_commit.commit.request import CommitRequest, Terms
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.commit.tids import new_tid
from dbio_commit.commit.transaction import Transaction
from dbio_commit.feed import feed, position
from dbio_commit.feed.feed import Feed
from dbio_commit.feed.position import Position, Start
from dbio_commit.log import directory_log, listing, metadata, opening, settled, snapshot, together
from dbio_commit.log import joint as joint_log
from dbio_commit.log import seen as memory
from dbio_commit.log.joint import ABORTED, Home, get_if_there
from dbio_commit.log.parts import merging, rows
from dbio_commit.log.seen import Seen
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance import copy as copies
from dbio_commit.maintenance import drop, restore, staged_copies
from dbio_commit.maintenance.erase import run as erasing
from dbio_commit.maintenance.publish import lookout
from dbio_commit.maintenance.vacuum import directory_plan, table_plan
from dbio_commit.maintenance.vacuum import table as vacuum_table
from dbio_commit.maintenance.vacuum.executor import Executor
from dbio_commit.maintenance.vacuum.plan import Candidate, Horizons
from dbio_commit.maintenance.vacuum.table import TableVacuum
from dbio_commit.maintenance.vacuum.table_plan import Judge, NeededMarkers
from dbio_commit.protocol import names, versions
from dbio_commit.protocol import parts as merge_plans
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint, encode_root
from dbio_commit.protocol.commits import AsOf, Commit, Decided
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.files_in_order import FilesInOrder
from dbio_commit.protocol.garbage import FileStates, UselessPart, useless_parts
from dbio_commit.protocol.history import FileChange
from dbio_commit.protocol.log import Log, newest_of, parse_log, settle
from dbio_commit.protocol.markers.commit import CommitMarker, Operation, read_parts
from dbio_commit.protocol.markers.descriptor import Origin
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.parts import Part
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import layout_of
from dbio_commit.protocol.state import DataFile, Metadata, current_metadata
from dbio_commit.protocol.timeline import Had
from dbio_commit.protocol.versions import VersionOutcome, Versions
from dbio_commit.store import Store
from dbio_commit.table import Table

from . import streams
from .world import World

Switch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    name: str
    what: str
    switch: Switch
    scenario: str
    breaks: tuple[str, ...]


MUTATIONS: list[Mutation] = []


def mutation(scenario: str, *breaks: str) -> Callable[[Callable[[], Iterator[None]]], Switch]:
    def register(function: Callable[[], Iterator[None]]) -> Switch:
        switch = contextmanager(function)
        MUTATIONS.append(
            Mutation(
                name=function.__name__,
                what=(function.__doc__ or "").strip().removesuffix("."),
                switch=switch,
                scenario=scenario,
                breaks=breaks,
            )
        )
        return switch

    return register


def _overwrite(store: Store, path: str, body: bytes) -> None:
    with store.open_write(path) as stream:
        stream.write(body)


# --- writers ------------------------------------------------------------------------------------------------------


@mutation("late", "I5", "I7", "DBIO")
def skip_the_start_marker() -> Iterator[None]:
    """A transaction begins without a start marker."""
    with patch.object(table, "_claim_tid", lambda store, clock, begun: new_tid(clock)):
        yield


@contextmanager
def _decide(decide: Callable[..., None]) -> Iterator[None]:
    with patch.object(decision, "decide", decide), patch.object(directory, "decide", decide):
        yield


@mutation("late", "I3")
def commit_with_a_plain_put() -> Iterator[None]:
    """The commit marker replaces one that is there."""

    def decide(store: Store, path: str, body: bytes, *, commit_id: str) -> None:
        _overwrite(store, path, body)

    with _decide(decide):
        yield


@mutation("late", "I8", "I9")
def report_a_conflict_as_success() -> Iterator[None]:
    """A writer whose marker was there already believes that it is its own."""

    def decide(store: Store, path: str, body: bytes, *, commit_id: str) -> None:
        store.put_if_absent(path, body)

    with _decide(decide):
        yield


@mutation("rough", "I3")
def report_an_own_marker_as_a_conflict() -> Iterator[None]:
    """A writer whose marker was there already believes that it is another's."""

    def decide(store: Store, path: str, body: bytes, *, commit_id: str) -> None:
        if not store.put_if_absent(path, body):
            raise TransactionAbortedError("somebody else was faster")

    with _decide(decide):
        yield


@mutation("rough", "I4", "I5")
def take_an_unknown_outcome_for_a_failure() -> Iterator[None]:
    """A writer that does not know whether it has committed deletes its files."""
    commit = Transaction.commit

    def mutated(self: Transaction, schema: Any = None) -> Commit:
        try:
            return commit(self, schema)
        except CommitStateUnknownError:
            self._root.delete(self.tid, self._staged)
            raise

    with patch.object(Transaction, "commit", mutated):
        yield


@mutation("mixed", "I5")
def delete_the_files_before_the_abort() -> Iterator[None]:
    """A writer that aborts deletes its files first."""
    abort = Transaction.abort

    def mutated(self: Transaction) -> None:
        if self.terms.scope is Scope.TABLE:
            self._root.delete(self.tid, self._staged)
        abort(self)

    with patch.object(Transaction, "abort", mutated):
        yield


@mutation("late", "I3", "I5")
def let_transactions_live_for_ever() -> Iterator[None]:
    """No bound on the life of a transaction, and no look at its start marker; abort markers stay for 30 days."""
    ever = float("inf")
    with patch.object(root, "MAX_LIFE_S", ever), patch.object(table, "MAX_LIFE_S", ever), _every_transaction_is_young():
        yield


def _every_transaction_is_young() -> AbstractContextManager[object]:
    return patch.object(TableRoot, "_is_young", lambda self, terms: True)


@mutation("late", "I3", "I5")
def look_for_no_start_marker() -> Iterator[None]:
    """A transaction is as old as its monotonic clock says, which stands still while its machine is paused."""
    with _every_transaction_is_young():
        yield


@mutation("late", "I3", "I5")
def purge_abort_markers_early() -> Iterator[None]:
    """Abort markers are purged as any other; transactions live for 7 days."""
    with patch.object(table_plan, "ABORTS_KEPT", timedelta(0)):
        yield


# --- what is asked for, and what is told --------------------------------------------------------------------------


@contextmanager
def _marker(mutated: Callable[[Sequence[FileInfo]], Sequence[FileInfo]]) -> Iterator[None]:
    marker = CommitRequest.marker

    def replacement(self: CommitRequest, files: Sequence[FileInfo], *others: Any, **options: Any) -> CommitMarker:
        return marker(self, mutated(files), *others, **options)

    with patch.object(CommitRequest, "marker", replacement):
        yield


@mutation("mixed", "I9")
def lose_a_staged_file() -> Iterator[None]:
    """The last of several staged files is not committed."""
    with _marker(lambda files: files[:-1] or files):
        yield


@mutation("mixed", "I9")
def lose_all_staged_files() -> Iterator[None]:
    """A commit adds nothing."""
    with _marker(lambda files: []):
        yield


@contextmanager
def _removed(operation: Operation, mutated: Callable[[list[str], list[str]], list[str]]) -> Iterator[None]:
    """Of an operation; from what it should remove, and all that is live."""
    rules = RULES[operation]

    def replacement(request: CommitRequest, found: TableState) -> list[str]:
        return mutated(rules.removes(request, found), [it.path for it in found.files])

    with patch.dict(RULES, {operation: replace(rules, removes=replacement)}):
        yield


@mutation("mixed", "I9")
def replace_the_whole_table() -> Iterator[None]:
    """A partition replacement removes all that is live."""
    with _removed("overwrite_partitions", lambda removed, live: live):
        yield


@mutation("mixed", "I7", "I9")
def replace_nothing() -> Iterator[None]:
    """A partition replacement removes nothing."""
    with _removed("overwrite_partitions", lambda removed, live: []):
        yield


@mutation("mixed", "I9")
def rewrite_one_file_more() -> Iterator[None]:
    """A rewrite removes one file that its writer did not name."""
    with _removed("rewrite", lambda removed, live: sorted({*removed, *live[:1]})):
        yield


@mutation("mixed", "I9")
def rewrite_and_remove_nothing() -> Iterator[None]:
    """A rewrite leaves what it rewrites."""
    with _removed("rewrite", lambda removed, live: []):
        yield


@mutation("mixed", "I9")
def remove_a_file_by_an_append() -> Iterator[None]:
    """An append that takes a turn removes a live file."""
    with _removed("append", lambda removed, live: live[:1]):
        yield


@mutation("mixed", "I9")
def report_other_files() -> Iterator[None]:
    """The result of a commit says that it removed nothing."""
    result = TableRoot.result

    def mutated(self: TableRoot, tid: str, marker: CommitMarker, **options: Any) -> Commit:
        return result(self, tid, structs.replace(marker, removed=[]), **options)

    with patch.object(TableRoot, "result", mutated):
        yield


@mutation("mixed", "I9", "I7")
def believe_no_references() -> Iterator[None]:
    """What an overwrite removes by the names of transactions stays live."""
    with patch.object(settled, "resolve", lambda commits: [_without_references(commit) for commit in commits]):
        yield


def _without_references(commit: Decided) -> Decided:
    info = commit.marker.dbio_commit
    if info is None or not info.removed_tids:
        return commit
    info = structs.replace(info, version=1, removed_tids=None)
    return commit._replace(marker=structs.replace(commit.marker, dbio_commit=info))


# --- turns --------------------------------------------------------------------------------------------------------


@mutation("turns", "I7", "I8")
def leave_out_the_turn() -> Iterator[None]:
    """Commits that depend on the table's state take no turn."""

    def take_turn(self: TableRoot, request: CommitRequest) -> tuple[int, Snapshot]:
        found = self._snapshot_now()
        return found.metadata.turn + 1, found

    with patch.object(TableRoot, "_take_turn", take_turn):
        yield


@mutation("turns", "I7", "I8")
def take_the_turn_without_waiting() -> Iterator[None]:
    """The turn is taken while its holder is undecided."""
    with patch.object(turns, "read_turn", lambda store, log, number, table_id: None):
        yield


@mutation("turns", "I7", "I8")
def take_the_turn_after_an_undecided_one_without_a_look() -> Iterator[None]:
    """Who saw that a turn was taken, when it began, takes the one after that at once."""
    free = memory.free_turn

    def mutated(store: Store, clock: Clock, origin: Origin | None, *, within_s: float) -> int | None:
        seen = memory.find_seen(store, clock)
        return seen.metadata.turn + 2 if seen and seen.holder else free(store, clock, origin, within_s=within_s)

    with patch.object(table, "free_turn", mutated):
        yield


@mutation("turns", "no end")
def wait_for_ever() -> Iterator[None]:
    """Who waits for the holder of the turn knows of no lease."""
    with patch.object(turns, "LEASE_S", float("inf")):
        yield


@mutation("slow", "no end")
def give_each_holder_the_same_time() -> Iterator[None]:
    """A lease is no longer where the turns before it were given up."""
    with patch.object(turns, "MOST_LEASES", 1):
        yield


@mutation("turns", "I7", "I8")
def end_a_lease_without_an_abort() -> Iterator[None]:
    """Who has waited for long enough takes the next turn, and does not decide the holder of the last."""
    with patch.object(turns, "_end_lease", lambda store, clock, holder, lease_s: None):
        yield


@mutation("turns", "I7", "I8")
def look_at_the_table_before_the_turn() -> Iterator[None]:
    """The removed files, and what is committed for an application, come from a snapshot before the turn."""

    def take_turn(self: TableRoot, request: CommitRequest) -> tuple[int, Snapshot] | CommitMarker:
        found = self._snapshot_now()
        turn = turns.take_turn(self.store, self.clock, request.terms.tid)
        return (turn, found) if turn is not None else _decided(self, request.terms)

    with patch.object(TableRoot, "_take_turn", take_turn):
        yield


def _decided(root: TableRoot, terms: Terms) -> CommitMarker:
    found = decision.find_decision(root.store, terms.tid, commit_id=terms.commit_id, is_known=True)
    assert found is not None
    return found


@mutation("purges", "I7", "I8")
def believe_an_overtaken_listing_of_turns() -> Iterator[None]:
    """A turn is not checked to be the highest once it is held."""

    def take_turn(self: TableRoot, request: CommitRequest) -> tuple[int, Snapshot] | CommitMarker:
        turn = turns.take_turn(self.store, self.clock, request.terms.tid)
        return (turn, self._snapshot_now()) if turn is not None else _decided(self, request.terms)

    with patch.object(TableRoot, "_take_turn", take_turn):
        yield


@mutation("mixed", "I7")
def change_the_schema_unseen() -> Iterator[None]:
    """A change of schema does not look at the one that is there."""

    def schema_after(request: CommitRequest, current: Any, *, where: str) -> Any:
        return current if request.schema is None else request.schema

    with patch.object(state_after, "_schema_after", schema_after):
        yield


@mutation("settings", "I7")
def change_settings_as_of_the_beginning() -> Iterator[None]:
    """A change of settings is based on those that its writer saw when it began."""
    metadata_after = state_after.metadata_after

    def as_of_the_beginning(request: CommitRequest, before: Metadata, turn: int, *, where: str) -> Metadata:
        seen = before._replace(settings=request.terms.metadata.settings)
        return metadata_after(request, seen if request.terms.sets else before, turn, where=where)

    with patch.object(table, "metadata_after", as_of_the_beginning):
        yield


@mutation("settings", "I7")
def believe_whoever_told_settings_last() -> Iterator[None]:
    """The settings are those of the last commit, not those of the highest turn."""

    def current(markers: Iterable[CommitMarker], *, before: Metadata) -> Metadata:
        told = [it for it in markers if it.dbio_commit and not it.is_abort]
        last = [it.dbio_commit.settings for it in told if it.dbio_commit and it.dbio_commit.settings is not None]
        found = current_metadata(told, before=before)
        return found._replace(settings=last[-1]) if last else found

    with patch.object(snapshot, "current_metadata", current):
        yield


@mutation("settings", "I7")
def overwrite_settings() -> Iterator[None]:
    """An overwrite sets its own settings, which are none."""
    metadata_after = state_after.metadata_after

    def of_its_own(request: CommitRequest, before: Metadata, turn: int, *, where: str) -> Metadata:
        after = metadata_after(request, before, turn, where=where)
        return after._replace(settings={}) if before.settings and request.terms.operation == "overwrite" else after

    with patch.object(table, "metadata_after", of_its_own):
        yield


# --- readers ------------------------------------------------------------------------------------------------------


def _committed(store: Store) -> Mapping[str, Entry]:
    return parse_log(store.list_log(names.Kind.COMMITTED)).committed


@mutation("busy", "R2", "R3")
def read_the_log_once() -> Iterator[None]:
    """One listing of the log is believed."""
    with patch.object(settled, "_list_commits", lambda store, clock, first, second: (first, _ALL_SEEN)):
        yield


_ALL_SEEN = SimpleNamespace(shows=lambda newest, uncovered: True)


@mutation("sleepers", "R1", "I6", "I9", "I4")
def believe_what_is_remembered_of_a_marker() -> Iterator[None]:
    """A marker that a listing showed counts for who remembers what is in it, though it was purged and forgotten."""
    with patch.object(settled._Seen, "shows", lambda self, newest, uncovered: True):
        yield


@mutation("busy", "R2", "R3", "I6")
def believe_all_of_a_second_listing() -> Iterator[None]:
    """Whatever a second listing shows counts."""

    def list_commits(store: Store, clock: Clock, first: Log, second: Mapping[str, Entry]) -> tuple[Log, object]:
        return replace(first, committed={**first.committed, **second}), _ALL_SEEN

    with patch.object(settled, "_list_commits", list_commits):
        yield


@mutation("busy", "R2", "R3", "I7")
def list_again_without_a_wait() -> Iterator[None]:
    """The last listing comes at once, when objects of the time of those before it are still to appear."""

    def list_commits(store: Store, clock: Clock, first: Log, second: Mapping[str, Entry]) -> tuple[Log, object]:
        if second.keys() <= first.committed.keys():
            return first, _ALL_SEEN
        base = {**second, **first.committed}
        committed, later = settle(base, _committed(store), newest_of(base))
        return replace(first, committed=committed, later=later), _ALL_SEEN

    with patch.object(settled, "_list_commits", list_commits):
        yield


@mutation("readers", "R1", "R2", "R3", "I6", "I9", "I7")
def list_checkpoints_first() -> Iterator[None]:
    """A read goes by the checkpoints that it has listed first."""
    with patch.object(settled, "_with_checkpoints", lambda log, found, passing_over: log):
        yield


# --- readers of several tables ------------------------------------------------------------------------------------


@mutation("moments", "R2", "R1", "R3")
def read_one_table_after_the_other() -> Iterator[None]:
    """Each table is read by itself."""

    def read(clock: Clock, began: object, listed: Sequence[tuple[Store, Log]]) -> list[settled.Settled]:
        return [settled.read_settled(store, clock, first) for store, first in listed]

    with patch.object(opening, "read_together", read):
        yield


@mutation("moments", "R2", "R1", "R3")
def look_again_before_all_tables_were_listed() -> Iterator[None]:
    """The second listing of a table begins before the first one of another table has ended."""
    look = together._look
    with patch.object(
        together, "_look", lambda clock, began, store, _: look(clock, began, store, parse_log(store.list_log()))
    ):
        yield


@mutation("moments", "R2", "R1", "R3")
def read_several_tables_by_their_newest_checkpoints() -> Iterator[None]:
    """A later checkpoint than that of the first listing counts, with all that it covers."""

    def read_checkpoint(store: Store, log: Log, *, table_id: str) -> Checkpoint:
        newest = parse_log(store.list_log(names.Kind.CHECKPOINT)).checkpoints
        return listing.read_checkpoint(store, replace(log, checkpoints=newest), table_id=table_id)

    with patch.object(together, "read_checkpoint", read_checkpoint):
        yield


@mutation("moments", "R2", "R1", "R3")
def end_each_table_with_its_own_newest_commit() -> Iterator[None]:
    """The newest marker of a table decides what counts there, and not that of all tables."""

    def counted(looks: Sequence[together._Look]) -> list[Log]:
        return [one for look in looks for one in (_COUNTED([look]) if look.base else [look.first])]

    with patch.object(together, "_counted", counted):
        yield


_COUNTED = together._counted


@mutation("moments", "R2", "R1", "R3")
def look_a_third_time_only_where_something_came() -> Iterator[None]:
    """A table whose second listing shows nothing new counts as its first one shows it."""

    def counted(looks: Sequence[together._Look]) -> list[Log]:
        logs = _COUNTED(looks)
        return [log if look.has_news else look.first for look, log in zip(looks, logs, strict=True)]

    with patch.object(together, "_counted", counted):
        yield


@mutation("moments", "R3")
def look_a_third_time_at_once() -> Iterator[None]:
    """The third listings come without a pause, when objects of the time of those before are still to appear."""
    with patch.object(together, "pause_s", lambda store, listed: 0.0):
        yield


@mutation("moments", "R2", "R1", "R3", "I6")
def trust_listings_for_hours() -> Iterator[None]:
    """A reader that slept between its listings does not look whether markers have come and were purged meanwhile."""
    with patch.object(together, "SURE_S", 7 * 86_400.0):
        yield


# --- what came too late -------------------------------------------------------------------------------------------


@mutation("busy", "I4", "I5")
def give_up_what_was_decided_too_late() -> Iterator[None]:
    """Vacuum takes a commit that came too late to count in its snapshot for one that was aborted."""
    of = FileStates.of

    def mutated(commits: Iterable[Decided], *, log: Log, **options: Any) -> FileStates:
        return of(commits, log=log, **{**options, "assume_aborted": [*options.get("assume_aborted", ()), *log.later]})

    with patch.object(FileStates, "of", mutated):
        yield


@mutation("busy", "R3", "I7")
def tell_turns_by_the_clock() -> Iterator[None]:
    """A turn that the store's clock has after a later one is left out."""
    with patch.object(settled, "with_earlier_turns", lambda log, checkpoint, read: log):
        yield


@mutation("readers", "I6", "I7", "I9")
def pass_over_a_purged_marker() -> Iterator[None]:
    """A commit marker that is gone when it is read counts as one that says nothing."""

    def read_marker(store: Store, entry: Entry) -> bytes:
        try:
            return store.get(entry.path)
        except ObjectNotFoundError:
            if entry.path.startswith(names.Kind.COMMITTED):
                return b'{"added":[],"removed":[]}'
            raise

    with patch.object(listing, "read_marker", read_marker):
        yield


@mutation("crowd", "I4", "I6")
def believe_that_there_is_no_descriptor() -> Iterator[None]:
    """Who saw no descriptor, to read or to write, does not look again after listing the files."""
    with patch.object(opening, "_look_again", lambda store, log, *, even_dropped: log):
        yield


@contextmanager
def _seen(mutated: Callable[[Snapshot], Snapshot]) -> Iterator[None]:
    read = Table.snapshot
    with patch.object(Table, "snapshot", lambda self, *arguments: mutated(read(self, *arguments))):
        yield


@mutation("mixed", "I6")
def show_the_history_in_the_wrong_order() -> Iterator[None]:
    """Readers see the newest commit first."""
    with _seen(lambda found: replace(found, decided=found.decided[::-1])):
        yield


@mutation("mixed", "I6", "R1")
def show_no_history() -> Iterator[None]:
    """Readers see the live files, and nothing else."""
    with _seen(lambda found: replace(found, decided=(), checkpoint=NO_CHECKPOINT)):
        yield


@mutation("mixed", "I6", "I7")
def show_no_schema() -> Iterator[None]:
    """Readers see no columns."""
    with patch.object(Snapshot, "schema", None):
        yield


@mutation("mixed", "I9")
def find_every_third_snapshot_corrupt() -> Iterator[None]:
    """Readers take valid markers for corrupt ones, now and then."""
    reads = count(1)

    def mutated(found: Snapshot) -> Snapshot:
        if next(reads) % 3 == 0:
            raise CorruptMarkerError("made up")
        return found

    with _seen(mutated):
        yield


@contextmanager
def _fail_to_read(error: DbioError) -> Iterator[None]:
    def mutated(found: Snapshot) -> Snapshot:
        raise error

    with _seen(mutated):
        yield


@mutation("mixed", "I9")
def fail_each_read() -> Iterator[None]:
    """No reader ever comes to its end."""
    with _fail_to_read(StoreError("made up")):
        yield


@mutation("mixed", "I9")
def find_no_table() -> Iterator[None]:
    """Readers overlook the table."""
    with _fail_to_read(TableNotFoundError("made up")):
        yield


@mutation("mixed", "I9")
def never_begin() -> Iterator[None]:
    """No writer claims a tid."""

    def claim(store: Store, clock: Clock, begun: bytes) -> str:
        raise StoreError("made up")

    with patch.object(table, "_claim_tid", claim):
        yield


# --- streams ------------------------------------------------------------------------------------------------------


@mutation("feeds", "I9")
def go_by_the_newest_tid() -> Iterator[None]:
    """A stream has had all whose tids are not higher than the highest that it has had."""

    had_of = Feed._had

    def of(had: Had, *, table_id: str, part: Any = None, **options: Any) -> Position:
        return Position(table=table_id, part=part, tids=[max(it.tid for it in had.commits())] if len(had) else [])

    def mutated(self: Feed, at: Position | Start) -> Had:
        if not isinstance(at, Position):
            return had_of(self, at)
        timeline, newest = self._history.timeline, max(at.tids, default="")
        return Had.of(timeline, 0, {tid for tid in timeline.places if tid <= newest})

    with (
        patch.object(feed, "position_of", of),
        patch.object(Feed, "_had", mutated),
        patch.object(Position, "had", lambda self, commit: commit.tid <= max(self.tids, default="")),
    ):
        yield


@mutation("feeds", "I9")
def leave_no_margin() -> Iterator[None]:
    """A stream has had all whose times are not later than that of the newest that it has had."""
    with patch.object(position, "MARGIN", timedelta(0)), patch.object(position, "LEAST_MARGIN", timedelta(0)):
        yield


@mutation("clocks", "I9")
def count_nothing() -> Iterator[None]:
    """A stream does not look whether commits came with times before its position."""
    with patch.object(feed, "_late", lambda at, times: 0):
        yield


@mutation("laggards", "I9", "R1")
def count_no_files_of_a_part() -> Iterator[None]:
    """What a stream has had a part of is not looked at whether it still has all its files."""
    done = feed._done

    def state(self: Feed, at: Position) -> FilesInOrder:
        return self._history.state(self._had(at))

    with patch.object(feed, "_done", lambda at, tid, files=None: done(at, tid)), patch.object(Feed, "_state", state):
        yield


@mutation("feeds", "I9")
def plan_a_batch_anew() -> Iterator[None]:
    """A batch that is made again has all that has come since."""
    between = Feed.between

    def mutated(self: Feed, start: Position | Start, end: Position) -> list[FileChange]:
        return between(self, start, self.newest())

    with patch.object(Feed, "between", mutated):
        yield


@mutation("streams", "I3", "I9")
def begin_in_each_task() -> Iterator[None]:
    """Each task of a batch has a transaction of its own."""

    def of_its_own(terms: Terms, world: World, clock: Clock) -> Terms:
        return replace(terms, tid=new_tid(clock))

    with patch.object(streams, "terms_of_task", of_its_own):
        yield


@mutation("streams", "I8")
def commit_for_the_query_alone() -> Iterator[None]:
    """The version of a batch's application is not the batch's."""
    with patch.object(streams, "app_of", lambda query, batch: App(id=query.id, version=0)):
        yield


@mutation("streams", "I8")
def commit_for_no_application() -> Iterator[None]:
    """A batch is a transaction as any other."""
    with patch.object(streams, "app_of", lambda query, batch: None):
        yield


@mutation("mixed", "I8")
def skip_versions_that_were_passed_over() -> Iterator[None]:
    """What is lower than the highest version counts as committed."""
    right = versions.outcome_of

    def mutated(app: App, committed: Mapping[str, Versions]) -> VersionOutcome:
        outcome = right(app, committed)
        return "committed" if outcome == "passed" else outcome

    with patch.object(applications, "outcome_of", mutated):
        yield


@mutation("mixed", "I8")
def commit_numbers_in_any_order() -> Iterator[None]:
    """Numbers come in any order, as days do."""
    right = versions.outcome_of

    def mutated(app: App, committed: Mapping[str, Versions]) -> VersionOutcome:
        return right(structs.replace(app, any_order=True), committed)

    with patch.object(applications, "outcome_of", mutated):
        yield


@mutation("mixed", "I8")
def remember_the_highest_version_alone() -> Iterator[None]:
    """A version counts as new where it is not the highest."""
    right = versions.add_up

    def mutated(markers: Iterable[CommitMarker], *, before: Mapping[str, Versions]) -> dict[str, Versions]:
        told = right(markers, before=before)
        return {id: Versions(ranges=((it.highest, it.highest),)) for id, it in told.items()}

    with patch.object(snapshot, "add_up", mutated):
        yield


@mutation("streams", "I3")
def abort_attempts_of_all_applications() -> Iterator[None]:
    """Who commits for an application aborts what is pending of any."""

    def mutated(store: Store, clock: Clock, found: Snapshot, app: App, *, tid: str) -> None:
        for other in found.log.pending:
            if other != tid and found.log.started[other].size:
                with suppress(DbioError):
                    decision.abort_transaction(store, clock, other)

    with patch.object(table, "abort_superseded", mutated):
        yield


@mutation("streams", "DBIO", "I3", "I5", "I9")
def write_before_the_claim() -> Iterator[None]:
    """Tasks claim no tid."""
    with patch.object(TableRoot, "mark", lambda self, terms, directory: None):
        yield


# --- vacuum -------------------------------------------------------------------------------------------------------


@contextmanager
def _late_taken_for_aborted() -> Iterator[None]:
    of = Judge.of

    def mutated(found: Snapshot, horizons: Horizons, *, assume_aborted: Any = (), **others: Any) -> Judge:
        late = table_plan.timed_out(found, horizons)
        return of(found, horizons, assume_aborted=[*assume_aborted, *late], **others)

    with patch.object(Judge, "of", mutated):
        yield


@mutation("late", "I5")
def delete_before_the_abort() -> Iterator[None]:
    """Vacuum deletes the files of a pending transaction, and then aborts it."""
    abort, delete = TableVacuum._abort, Executor.delete

    def later(self: Any, tids: Sequence[str]) -> None:
        self._executor.later = self, tids

    def mutated(self: Any, due: Sequence[Candidate]) -> set[str]:
        gone = delete(self, due)
        if "later" in self.__dict__:
            abort(*self.__dict__.pop("later"))
        return gone

    with (
        _late_taken_for_aborted(),
        patch.object(TableVacuum, "_abort", later),
        patch.object(Executor, "delete", mutated),
    ):
        yield


@mutation("late", "I5", "vacuum left")
def delete_without_an_abort() -> Iterator[None]:
    """Vacuum deletes the files of a pending transaction that is old enough, and decides nothing."""
    with _late_taken_for_aborted(), patch.object(TableVacuum, "_abort", lambda self, tids: None):
        yield


@mutation("young", "I4", "I5")
def look_at_the_table_before_the_aborts() -> Iterator[None]:
    """Vacuum takes no second snapshot: what it was about to abort counts as aborted."""
    abort, read = TableVacuum._abort, opening.read_snapshot
    first: dict[Clock, Snapshot] = {}
    aborted: set[Clock] = set()

    def mutated_abort(self: Any, tids: Sequence[str]) -> None:
        abort(self, tids)
        aborted.add(self._clock)

    def mutated_read(store: Store, clock: Clock) -> Snapshot:
        if clock in aborted:
            aborted.remove(clock)
            return first[clock]
        first[clock] = read(store, clock)
        return first[clock]

    with (
        _late_taken_for_aborted(),
        patch.object(TableVacuum, "_abort", mutated_abort),
        patch.object(vacuum_table, "read_snapshot", mutated_read),
    ):
        yield


@mutation("mixed", "I4", "I5")
def go_by_the_age_of_files() -> Iterator[None]:
    """What is not live and older than the retention is deleted, whatever its transaction."""
    judge = Judge._judge

    def mutated(self: Judge, entry: Entry, strangers: Any) -> Candidate | None:
        found = judge(self, entry, strangers)
        return found._replace(due=entry.modified < self.horizons.data) if found else None

    with patch.object(Judge, "_judge", mutated):
        yield


@mutation("young", "I4", "I5")
def believe_that_an_unknown_file_is_old() -> Iterator[None]:
    """Files of unknown transactions are not looked at again; and vacuum's clock, which may be ahead, is believed."""
    with (
        patch.object(Executor, "now", lambda self: self.clock.now()),
        patch.object(TableVacuum, "_without_newborn", lambda self, due: (list(due), [])),
    ):
        yield


@mutation("young", "I4", "I5")
def read_the_clock_after_the_listing() -> Iterator[None]:
    """Horizons count from the moment of each look, and files of unknown transactions are not looked at again."""
    moving = property(lambda self: _MovingHorizons(self.clock, self.options), lambda self, fixed: None)
    with (
        patch.object(Executor, "horizons", moving, create=True),
        patch.object(TableVacuum, "_without_newborn", lambda self, due: (list(due), [])),
    ):
        yield


class _MovingHorizons:
    def __init__(self, clock: Clock, options: Any) -> None:
        self._clock, self._options = clock, options

    def __getattr__(self, name: str) -> datetime:
        found: datetime = getattr(Horizons.at(self._clock.now(), self._options), name)
        return found


# --- checkpoints and purges ---------------------------------------------------------------------------------------


@contextmanager
def _purge(mutated: Callable[[Any, Log, Any], list[list[Candidate]]]) -> Iterator[None]:
    purge = table_plan.purge

    def replacement(log: Log, checkpoint: Checkpoint, *arguments: Any, **options: Any) -> list[list[Candidate]]:
        return mutated(lambda it: purge(log, it, *arguments, **options), log, checkpoint)

    with patch.object(table_plan, "purge", replacement):
        yield


@mutation("readers", "DBIO")
def purge_start_markers_last() -> Iterator[None]:
    """Start markers are purged after commit markers, so that decided transactions look pending."""

    def mutated(purge: Any, log: Log, checkpoint: Checkpoint) -> list[list[Candidate]]:
        starts, decisions, rest = purge(checkpoint)
        return [decisions, rest, starts]

    with _purge(mutated):
        yield


@mutation("readers", "DBIO")
def purge_markers_before_data() -> Iterator[None]:
    """Commit markers are purged while the files are left that they remove."""
    with patch.object(NeededMarkers, "among", lambda self, commits: set()):
        yield


@mutation("vacuums", "I6", "I8", "I9", "DBIO", "vacuum left")
def purge_what_no_checkpoint_covers() -> Iterator[None]:
    """Every commit marker is purged once there is a checkpoint."""

    def mutated(purge: Any, log: Log, checkpoint: Checkpoint) -> list[list[Candidate]]:
        steps: list[list[Candidate]] = purge(SimpleNamespace(number=checkpoint.number, covered=set(log.committed)))
        return steps

    with _purge(mutated):
        yield


@contextmanager
def _checkpoints_of(mutated: Callable[[Store, Snapshot], Snapshot]) -> Iterator[None]:
    write = checkpoints.write_checkpoint

    def replacement(store: Store, clock: Clock, found: Snapshot, **options: Any) -> str | None:
        return write(store, clock, mutated(store, found), **options)

    with (
        patch.object(vacuum_table, "write_checkpoint", replacement),
        patch.object(checkpoints, "write_checkpoint", replacement),
    ):
        yield


@mutation("mixed", "I5", "I6", "I9")
def cover_what_was_not_read() -> Iterator[None]:
    """A checkpoint also covers what is pending, as if it had been decided to be nothing."""

    def mutated(store: Store, found: Snapshot) -> Snapshot:
        pending = set(found.log.pending) - found.checkpoint.covered
        nothing = CommitMarker(added=[], removed=[])
        more = [Decided(found.log.started[tid].modified, tid, nothing) for tid in sorted(pending)]
        return replace(found, decided=(*found.decided, *more))

    with _checkpoints_of(mutated):
        yield


@mutation("vacuums", "I6", "I8", "I9")
def number_checkpoints_by_time() -> Iterator[None]:
    """A checkpoint takes the next number that is free, however old what it says is."""

    def mutated(store: Store, found: Snapshot) -> Snapshot:
        last = parse_log(store.list_log()).last_checkpoint
        return replace(found, checkpoint=replace(found.checkpoint, number=last))

    with _checkpoints_of(mutated):
        yield


@mutation("losses", "I6", "I8", "I9", "I4", "R1", "vacuum left")
def purge_by_the_only_checkpoint() -> Iterator[None]:
    """Markers go that one checkpoint tells alone."""

    def mutated(self: TableVacuum, snapshot: Snapshot, checkpoint: Checkpoint, left: Any) -> bool:
        return True

    with patch.object(TableVacuum, "_prepare_purge", mutated):
        yield


@mutation("history", "I8")
def forget_versions_of_applications() -> Iterator[None]:
    """A checkpoint does not remember the versions of forgotten commits."""
    with patch.object(checkpoints, "Checkpoint", lambda **fields: Checkpoint(**{**fields, "apps": {}})):
        yield


@mutation("settings", "I7")
def forget_settings() -> Iterator[None]:
    """A checkpoint does not remember the settings that forgotten commits told."""

    def forgetful(**fields: Any) -> Checkpoint:
        return Checkpoint(**{**fields, "metadata": fields["metadata"]._replace(settings=None)})

    with patch.object(checkpoints, "Checkpoint", forgetful):
        yield


# --- parts --------------------------------------------------------------------------------------------------------


@mutation("checkpoints", "R1")
def take_each_merge_for_the_whole() -> Iterator[None]:
    """A merge leaves out what says that paths are forgotten, though other parts have these paths."""
    with patch.object(merge_plans, "_is_whole", lambda merged, parts: True):
        yield


@mutation("checkpoints", "I4: a snapshot", "I9")
def lose_a_transaction_in_a_merge() -> Iterator[None]:
    """A merge of commits loses the last one."""
    right = rows.latest_commits

    def mutated(commits: Any, *, keep_forgotten: bool) -> Any:
        found = right(commits, keep_forgotten=keep_forgotten)
        return found.slice(0, max(found.num_rows - 1, 1))

    with patch.object(merging, "rows", SimpleNamespace(**{**vars(rows), "latest_commits": mutated})):
        yield


@mutation("checkpoints", "I4: a snapshot")
def delete_dropped_parts_at_once() -> Iterator[None]:
    """A part goes as soon as the newest checkpoint says that it is dropped."""

    def mutated(log: Log, newest: Checkpoint) -> Iterator[UselessPart]:
        dropped = {name for it in newest.dropped for name in it.part.objects}
        for it in useless_parts(log, newest):
            yield it._replace(since=datetime.min.replace(tzinfo=UTC)) if it.entry.path in dropped else it

    with patch.object(table_plan, "useless_parts", mutated):
        yield


@mutation("checkpoints", "I4: _checkpoint_")
def delete_parts_of_a_checkpoint_at_work() -> Iterator[None]:
    """Parts with a number above the newest checkpoint go by their age, and nobody takes the number first."""

    def mutated(log: Log, newest: Checkpoint) -> Iterator[UselessPart]:
        return (it._replace(number=None) for it in useless_parts(log, newest))

    with patch.object(table_plan, "useless_parts", mutated):
        yield


@mutation("checkpoints", "I4: _checkpoint_", "I4: a snapshot", "I9")
def name_parts_of_a_lost_checkpoint() -> Iterator[None]:
    """A writer that came too late leaves its parts, and names them in its next checkpoint."""
    right, lost = parts._merged, dict[str, list[Part]]()

    def leave(store: Store, root: Checkpoint) -> None:
        own = [it for it in root.parts if names.part_number(it.name) == root.number]
        lost.setdefault(store.identity + store.principal, []).extend(own)

    def mutated(writer: parts.PartWriter, *arguments: Any, **options: Any) -> Checkpoint:
        root, store = right(writer, *arguments, **options), writer.store
        return replace(root, parts=(*root.parts, *lost.pop(store.identity + store.principal, ())))

    with patch.object(checkpoints, "withdraw_parts", leave), patch.object(parts, "_merged", mutated):
        yield


@mutation("checkpoints", "I4: a snapshot")
def forget_dropped_parts() -> Iterator[None]:
    """A checkpoint says only of the parts that it drops itself that they are dropped."""
    with patch.object(parts, "_still_there", lambda before, log: []):
        yield


@mutation("checkpoints", "I4: _part_")
def withdraw_all_parts_of_a_number() -> Iterator[None]:
    """A writer that came too late deletes the parts of the one that was faster."""

    def mutated(store: Store, lost: Checkpoint) -> None:
        store.delete_many([it for it in parse_log(store.list_log()).parts if names.part_number(it) == lost.number])

    with patch.object(checkpoints, "withdraw_parts", mutated):
        yield


@mutation("checkpoints", "I4: _part_")
def take_an_own_checkpoint_for_anothers() -> Iterator[None]:
    """A writer whose answer was lost does not look whose checkpoint is there, and deletes its parts."""

    class Unlike(bytes):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return False

    right = encode_root

    def mutated(*arguments: Any, **options: Any) -> bytes:
        return Unlike(right(*arguments, **options))

    with patch.object(checkpoints, "encode_root", mutated):
        yield


# --- rewrites -----------------------------------------------------------------------------------------------------


@mutation("merges", "I7")
def merge_without_a_look_at_what_came() -> Iterator[None]:
    """A merge goes by the files alone that it removes."""
    with patch.object(table, "refuse_unread_rows", lambda *arguments, **more: None):
        yield


@mutation("merges", "I7")
def take_other_merges_for_appends() -> Iterator[None]:
    """Whatever others commit beside a merge stands as if it had come after."""
    with patch.object(isolation, "only_appends", lambda commit: True):
        yield


@mutation("merges", "I7")
def take_the_rows_of_a_compaction_for_old() -> Iterator[None]:
    """A merge does not ask whose rows a compaction has brought elsewhere."""
    with patch.object(isolation, "_writer_of", lambda path: None):
        yield


# --- partition columns --------------------------------------------------------------------------------------------


@mutation("layouts", "I3", "I10")
def change_the_layout_without_a_word() -> Iterator[None]:
    """The turn of an overwrite that changes the partition columns looks like any other."""
    taken = turns.take_turn
    with patch.object(table, "take_turn", lambda store, clock, tid, **options: taken(store, clock, tid)):
        yield


@mutation("layouts", "I10")
def change_the_layout_at_once() -> Iterator[None]:
    """It does not wait for those to show who looked at the table before its turn."""
    with patch.object(turns, "SETTLE_S", 0.0):
        yield


@mutation("layouts", "I10")
def leave_alone_who_began_in_another_layout() -> Iterator[None]:
    """It waits, and aborts nobody."""
    with patch.object(table, "end_others", lambda store, clock, tid: clock.sleep(turns.SETTLE_S)):
        yield


@mutation("layouts", "I9", "I10")
def believe_what_was_seen_of_the_layout_for_ever() -> Iterator[None]:
    """Who claims a tid long after a look does not look again."""
    with patch.object(TableRoot, "_refuse_changed", lambda self, tid, layout, origin: None):
        yield


@mutation("layouts", "I7", "I9", "I10")
def take_a_table_without_turns_for_one_that_never_had_any() -> Iterator[None]:
    """Who remembers that there was no turn looks for the first one only, though it may be purged."""
    gone_on = metadata._go_on

    def mutated(store: Store, clock: Clock, seen: Seen, **turns: Any) -> Seen:
        if not seen.metadata.turn and seen.holder is None and not store.stat_log(names.turn(1)):
            return seen
        return gone_on(store, clock, seen, **turns)

    with patch.object(metadata, "_go_on", mutated):
        yield


@mutation("layouts", "vacuum left")
def know_the_present_layout_alone() -> Iterator[None]:
    """Vacuum takes what was left in partitions of before for what no transaction wrote."""
    known = FileStates.of

    def mutated(commits: Iterable[Decided], *, layouts: Any, **more: Any) -> FileStates:
        commits = list(commits)
        now = current_metadata(it.marker for it in commits).settings
        return known(commits, layouts=layouts and frozenset({layout_of(now, min(layouts))}), **more)

    with patch.object(FileStates, "of", mutated):
        yield


# --- columns ------------------------------------------------------------------------------------------------------


@mutation("columns", "6.4")
def commit_files_of_columns_that_are_gone() -> Iterator[None]:
    """A commit under a turn does not compare the columns of its files with those of the table."""
    with patch.object(state_after, "_refuse_misfit", lambda request, after, *, where: None):
        yield


@mutation("columns", "6.4")
def append_without_a_look_before_the_marker() -> Iterator[None]:
    """A blind append does not look at the turns after its start marker."""

    def mutated(self: TableRoot, request: CommitRequest) -> Metadata | None:
        return None if request.terms.takes_turn or request.changes_schema else request.terms.metadata

    with patch.object(TableRoot, "_metadata_if_blind", mutated):
        yield


@mutation("columns", "6.4")
def abort_no_append_when_columns_change() -> Iterator[None]:
    """An overwrite that gives the table other columns leaves appends alone that looked before its turn."""
    with patch.object(table, "end_blind", lambda store, clock, tid, table: False):
        yield


@mutation("columns", "6.4", "I3")
def change_columns_in_a_turn_that_does_not_say_so() -> Iterator[None]:
    """No append waits for an overwrite that gives the table other columns."""
    with patch.object(table, "has_new_columns", lambda request: False):
        yield


# --- restores -----------------------------------------------------------------------------------------------------


@mutation("restores", "I7")
def restore_whatever_was_committed_meanwhile() -> Iterator[None]:
    """A restore does not ask for a table without commits since it looked."""

    def mutated(context: WriteContext, intent: Intent, **more: Any) -> Transaction:
        return begin(context, replace(intent, if_match=None), **more)

    with patch.object(restore, "begin", mutated):
        yield


@mutation("restores", "I7")
def restore_by_a_later_look() -> Iterator[None]:
    """A restore asks for a table without commits since it began, though it had looked before."""

    def mutated(context: WriteContext, intent: Intent, **more: Any) -> Transaction:
        etag = opening.read_snapshot(context.store, context.clock).etag
        return begin(context, replace(intent, if_match=etag), **more)

    with patch.object(restore, "begin", mutated):
        yield


@mutation("restores", "I9")
def take_a_file_that_is_gone_for_an_empty_one() -> Iterator[None]:
    """What vacuum deletes before it is copied comes back without its rows."""
    copied = staged_copies._copy_file

    def mutated(source: Store, file: DataFile, target: Store, copy: str) -> int:
        try:
            return copied(source, file, target, copy)
        except HistoryLostError:
            _overwrite(target, copy, b"")
            return 0

    with patch.object(staged_copies, "_copy_file", mutated):
        yield


@mutation("restores", "I2")
def commit_copies_that_a_power_cut_may_take() -> Iterator[None]:
    """A restore does not make durable what it has copied."""
    copied = staged_copies.stage_copies

    def mutated(source: Store, target: Store, *arguments: Any, **options: Any) -> staged_copies.Copied:
        careless: Any = copy(target)
        careless.make_durable = lambda paths: None
        return copied(source, careless, *arguments, **options)

    with patch.object(restore, "stage_copies", mutated):
        yield


@mutation("restores", "I7")
def restore_no_columns() -> Iterator[None]:
    """A restore brings back rows, and leaves the columns as they are."""

    def mutated(store: Store, clock: Clock, *, as_of: AsOf = None) -> Any:
        found = opening.read_snapshot(store, clock, as_of=as_of)
        if as_of is None:
            return found
        return SimpleNamespace(
            url=found.url,
            schema=None,
            tids=found.tids,
            files=found.files,
            decided=found.decided,
            partition_columns=found.partition_columns,
        )

    with patch.object(restore, "read_snapshot", mutated):
        yield


# --- directory scope ----------------------------------------------------------------------------------------------


@mutation("directories", "I9")
def write_before_the_start_marker() -> Iterator[None]:
    """In the directory scope, the first data file of a directory comes before its start marker."""
    with patch.object(DirectoryRoot, "mark", lambda self, tid, directory: None):
        yield


@mutation("torn", "I1")
def believe_a_torn_listing() -> Iterator[None]:
    """In the directory scope, a directory that looks torn is not listed again."""
    with patch.object(directory_log, "looks_torn", lambda directory, markers, *, now: False):
        yield


@mutation("directories", "I9")
def purge_markers_that_hide_files() -> Iterator[None]:
    """In the directory scope, markers go whether or not the files are left that they hide."""
    with patch.object(directory_plan, "_may_go", lambda *arguments: True):
        yield


# --- erasures -----------------------------------------------------------------------------------------------------


@mutation("erasures", "an erasure left")
def erase_nothing_that_was_removed_before() -> Iterator[None]:
    """An erasure looks for the rows only in what it removes itself, and in what its snapshot shows as live."""
    with patch.object(erasing, "removed_files", lambda commits, live: []):
        yield


@mutation("erasures", "an erasure left")
def keep_the_paths_of_erased_files() -> Iterator[None]:
    """The checkpoints of an erasure forget nothing."""

    def write(*arguments: Any, gone: object = None, **how: Any) -> str | None:
        return checkpoints.write_checkpoint(*arguments, **how)

    with patch.object(erasing, "write_checkpoint", write):
        yield


@mutation("latecomers", "an erasure left")
def erase_beside_what_began_since() -> Iterator[None]:
    """An erasure reports only what had begun when it began itself."""
    publish, still_pending = erasing._Erasure._publish, erasing._Erasure._still_pending

    def first(self: Any) -> None:
        log = parse_log(self._store.list_log())
        self.begun_before = log.started.keys() | log.committed.keys()
        publish(self)

    def blind(self: Any, log: Log) -> Any:
        self._begun = self.begun_before
        return still_pending(self, log)

    with (
        patch.object(erasing._Erasure, "_publish", first),
        patch.object(erasing._Erasure, "_still_pending", blind),
    ):
        yield


@mutation("latecomers", "erased paths came back")
def keep_a_checkpoint_that_came_late() -> Iterator[None]:
    """A checkpoint stays whose number an erasure had purged."""
    with patch.object(checkpoints, "_withdrawn_as_late", lambda store, written: False):
        yield


@mutation("latecomers", "an erasure left", "erased paths came back")
def publish_without_another_look() -> Iterator[None]:
    """A publisher that has stood still goes on as if it had not, and leaves what it creates then."""

    @contextmanager
    def creating(*arguments: Any, **how: Any) -> Iterator[None]:
        yield

    with (
        patch.object(lookout.Lookout, "look", lambda self, is_overtaken: None),
        patch.object(lookout.Lookout, "creating", creating),
    ):
        yield


@mutation("latecomers", "erased rows came back")
def copy_whatever_was_erased() -> Iterator[None]:
    """A copy does not ask whether rows were erased meanwhile."""
    with patch.object(copies, "refuse_erased", lambda *arguments, **how: None):
        yield


@mutation("latecomers", "an erasure left", "erased rows came back")
def trust_what_others_commit_meanwhile() -> Iterator[None]:
    """An erasure does not ask what others committed while it deleted."""
    with patch.object(erasing._Erasure, "look_for_late_rows", lambda self, known: None):
        yield


# --- joint transactions -------------------------------------------------------------------------------------------


@mutation("joint", "J1")
def abort_without_the_home() -> Iterator[None]:
    """Who aborts a joint transaction in a table does not ask its home."""
    with patch.object(decision, "_end_at_home", lambda store, tid, abort: None):
        yield


@mutation("joint", "J1")
def abort_here_before_the_home() -> Iterator[None]:
    """Who aborts a joint transaction in a table does so before its home has."""
    end = decision._end_at_home

    def end_late(store: Store, tid: str, abort: CommitMarker) -> None:
        decision._put_abort(store, names.committed(tid), tid, abort)
        end(store, tid, abort)

    with patch.object(decision, "_end_at_home", end_late):
        yield


@mutation("joint", "J1")
def take_the_undecided_for_aborted() -> Iterator[None]:
    """A home that has not decided yet counts as one that has aborted."""
    ask = Home.decision
    with patch.object(Home, "decision", lambda self: ask(self) or ABORTED):
        yield


@mutation("joint", "vacuum left", "an undisturbed vacuum failed", "I9")
def take_what_a_home_has_forgotten_for_undecided() -> Iterator[None]:
    """A home without both markers counts as one that has not decided yet."""
    ask = Home.decision

    def asked(self: Home) -> bytes | None:
        found = ask(self)
        return None if found == ABORTED and get_if_there(self.store, names.committed(self.tid)) is None else found

    with patch.object(Home, "decision", asked):
        yield


@mutation("joint", "an undisturbed vacuum failed", "J1")
def purge_a_home_that_others_need() -> Iterator[None]:
    """Vacuum purges the markers of a home whose other tables have no commit yet."""
    with patch.object(vacuum_table, "carry_out_everywhere", lambda store, tid: None):
        yield


@mutation("joint", "J1")
def drop_a_home_that_others_need() -> Iterator[None]:
    """A drop of a home leaves its decisions to nobody."""
    with patch.object(drop, "carry_out_everywhere", lambda store, tid: None):
        yield


@mutation("joint", "J1")
def put_the_parts_before_the_home() -> Iterator[None]:
    """A writer commits to the other tables before the home has decided."""
    decide = TableRoot.decide

    def decide_last(self: TableRoot, draft: table.Draft, body: bytes) -> Commit:
        tid, info = draft.request.terms.tid, draft.marker.dbio_commit
        parts = read_parts(body, where="") if info and info.joint and info.joint.home.path == "." else {}
        for other in info.joint.tables if info and info.joint else ():
            if other.id in parts:
                self.store.beside(other.path).put_if_absent(names.committed(tid), parts[other.id])
        return decide(self, draft, body)

    with patch.object(TableRoot, "decide", decide_last):
        yield


@mutation("joint", "J4", "J5")
def cut_through_joint_transactions() -> Iterator[None]:
    """A read of several tables takes what each one has."""
    with patch.object(together, "complete", lambda stores, states, is_sure: states):
        yield


@mutation("joint", "I9")
def look_for_parts_of_what_was_aborted() -> Iterator[None]:
    """A read of several tables waits for the commit of what was aborted in one of them."""
    with patch.object(joint_log, "_has_commit", lambda state, tid: True):
        yield


@mutation("joint", "I7")
def let_a_strange_turn_end_others() -> Iterator[None]:
    """The highest turn counts, though a writer of the table before took it."""

    def highest(store: Store, log: Log, table_id: str | None, *, above: int = 0) -> int:
        return log.last_turn

    with (
        patch.object(turns, "read_last_turn", highest),
        patch.object(table, "read_last_turn", highest),
        patch.object(metadata, "read_last_turn", highest),
    ):
        yield


@mutation("joint", "I9", "vacuum left")
def let_a_strange_tombstone_drop() -> Iterator[None]:
    """A tombstone of the table before, which came late, drops the one that is here now."""

    def has_tombstone(store: Store, log: Log) -> bool:
        return log.dropped is not None

    with patch.object(listing, "is_dropped", has_tombstone), patch.object(drop, "is_dropped", has_tombstone):
        yield


@mutation("joint", "J3")
def call_a_commit_aborted_whose_home_was_dropped() -> Iterator[None]:
    """A writer that finds no markers any more believes that others have aborted its transaction."""

    def put(self: TableRoot, draft: Any, body: bytes) -> CommitMarker | None:
        terms = draft.request.terms
        young = partial(self._is_young, terms)
        return decision.commit_once(self.store, terms.tid, body, commit_id=terms.commit_id, is_young=young)

    with patch.object(TableRoot, "_put", put):
        yield
