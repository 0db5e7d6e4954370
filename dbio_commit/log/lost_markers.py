"""Finds transactions that look pending although they were decided: somebody has deleted their commit markers.

Readers take them for pending, since vacuum alone deletes markers, the start marker first (PROTOCOL.md 10.4). What other
objects record of such a transaction shows that it was decided. The search costs no request, except for turns whose
holders are not known.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.log.listing import is_of_table, read_last_turn, read_turn
from dbio_commit.log.object_cache import remembered
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided, latest
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.markers.provenance import Provenance
from dbio_commit.protocol.markers.start import StartMarker
from dbio_commit.store import Store

_MOST_TURNS = 100
"""The most turns that are read to find unknown holders, the newest first. Holders that were aborted are among them."""

BRING_BACK = (
    "bring it back, from a version of the bucket or from a backup, before anything aborts the transaction, since an "
    "abort is final; see docs/OPERATIONS.md"
)
"""What to do about a deleted commit marker."""


def find_decided(store: Store, snapshot: Snapshot, tids: Collection[str]) -> dict[str, str]:
    """The pending transactions that were certainly decided: by tid, the evidence in words.

    Of a large table, only commits that its checkpoint does not cover are searched for removed files: see `removers`.
    """
    if not tids:
        return {}
    decided = snapshot.news if snapshot.checkpoint.is_root else snapshot.decided
    found = {tid: f"transaction {by} removed a file of it" for tid, by in removers(decided, tids).items()}
    found |= dict.fromkeys(_read_before(store, snapshot, tids), "this process has read its commit marker")
    return _ended_turns(store, snapshot, {*tids} - found.keys()) | found


def removers(commits: Iterable[Decided], tids: Collection[str]) -> dict[str, str]:
    """The transactions whose files a commit removed, so that they were committed: by tid, the tid of that commit."""
    found: dict[str, str] = {}
    for commit in commits if tids else ():
        info = commit.marker.dbio_commit
        if info is None or info.operation == "adopt":
            continue  # an adoption names what it found in the directory
        writers = (names.parse_data_file(names.split(path)[1]) for path in commit.marker.removed)
        for tid in (*writers, *commit.marker.removed_tids):
            if tid in tids and tid != commit.tid:
                found.setdefault(str(tid), commit.tid)
    return found


def _read_before(store: Store, snapshot: Snapshot, tids: Collection[str]) -> set[str]:
    """The tids whose commit markers this process remembers."""
    wanted = {names.committed(tid): tid for tid in tids}
    kept = remembered(store, snapshot.table_id or "", wanted)
    return {
        wanted[path]
        for path, it in kept.items()
        if isinstance(it, CommitMarker) and not it.is_abort and it.dbio_commit
        and is_of_table(it.dbio_commit.table_id, snapshot.table_id)
    }  # fmt: skip


def _ended_turns(store: Store, snapshot: Snapshot, tids: Collection[str]) -> dict[str, str]:
    """The transactions whose turn is over: by tid, the evidence. A later turn was taken, or a commit records their turn
    as known."""
    turns = snapshot.log.turns
    last = read_last_turn(store, snapshot.log, snapshot.table_id) if tids else 0
    infos = [(it.tid, it.marker.dbio_commit) for it in snapshot.transactions if it.marker.dbio_commit]
    held = {info.turn for _, info in infos if info}
    unknown = sorted((number for number in turns if number not in held), reverse=True)[:_MOST_TURNS] if tids else []
    found: dict[str, str] = {}
    for number in unknown:
        with suppress(CorruptMarkerError):
            turn = read_turn(store, snapshot.log, number, table_id=snapshot.table_id)
            # A late task may put a purged start marker again, which is younger than the turn (PROTOCOL.md 9.1).
            if turn is None or turn.tid not in tids or snapshot.log.started[turn.tid].modified > turns[number].modified:
                continue
            if snapshot.log.is_taken_again(number):
                continue
            if number < last:
                found[turn.tid] = f"its turn {number} is over, since turn {last} was taken"
            elif by := next((tid for tid, info in infos if info and (info.schema_turn or 0) >= number), None):
                found[turn.tid] = f"its turn {number} is over, as transaction {by} records"
    return found


def find_probable(
    snapshot: Snapshot, begun: Mapping[str, StartMarker], newest: Mapping[str, datetime | None] | None = None
) -> dict[str, str]:
    """The pending transactions whose processes went on after them: by tid, the evidence. `begun` has their start
    markers.

    `newest` has the times of the newest files of the transactions. Without it, their beginnings count instead.
    """
    found: dict[str, str] = {}
    later: dict[tuple[object, ...], list[datetime]] = {}
    for commit in snapshot.transactions if begun else ():
        info = commit.marker.dbio_commit
        began = names.parse_tid_time(commit.tid)
        if info and not commit.marker.is_abort and info.provenance and began:
            later.setdefault(_process(info.provenance), []).append(began)
    for tid, it in begun.items():
        if it.provenance and it.provenance.process is not None:
            done = latest(names.parse_tid_time(tid), (newest or {}).get(tid))
            count = sum(done < began for began in later.get(_process(it.provenance), ())) if done else 0
            if count >= _GONE_ON:
                found[tid] = f"its process has committed {count} transactions that began after it"
    return found


_GONE_ON = 2
"""So many later commits of one process show that it is done with an earlier transaction, unless its threads write at
the same time."""


def _process(by: Provenance) -> tuple[object, ...]:
    return by.host, by.user, by.process, by.spark_application
