"""Keeps a copy of a table up to date, by one commit each time: `Table.copy(incremental=True)` (NOTES.md, Copies).

The copy is a table of its own. What its commits record, and the names of its files, show which table it copies and
which files it has. A run that was interrupted leaves its transaction pending, and the next run continues it.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CommitConflictError,
    TableExistsError,
    TableNotFoundError,
    TransactionStateError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.begin import Intent, begin
from dbio_commit.commit.decision import abort_transaction
from dbio_commit.commit.isolation import last_erasure_of
from dbio_commit.commit.provenance import Note
from dbio_commit.commit.request import Terms
from dbio_commit.commit.transaction import Transaction
from dbio_commit.log.listing import read_start
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.copy import CopyReport, refuse_copy_of_erased, refuse_source
from dbio_commit.maintenance.publish import context_of
from dbio_commit.maintenance.staged_copies import Copied, doubtful_among, refuse_before_first, stage_copies, suffix_of
from dbio_commit.maintenance.walk import groups_of, list_levels
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf, recorded_files
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.markers.start import App, StartMarker
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import PARTITION_COLUMNS
from dbio_commit.protocol.state import DataFile
from dbio_commit.protocol.subtrees import Subtrees
from dbio_commit.store import Store
from dbio_commit.store.copying import QUEUED

_log = get_logger(__name__)

_APP = "dbio copy of "
"""The beginning of the application id of the copy's commits. The id of the original follows."""

_TAKEN_UP = timedelta(days=3)
"""An interrupted transaction that is older is aborted, as vacuum would do. No transaction lives for long."""

_KEY = re.compile(r"part-00000-tid-[0-9]+-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9]+-0-c000\.")


class _Changes(NamedTuple):
    """How the copy differs from the original."""

    came: list[tuple[DataFile, FileInfo | None]]
    """Files of the original that the copy lacks, each with what its writer recorded."""
    gone: list[str]
    """Paths of files in the copy that the original does not have any more."""
    files: int
    """How many files the original has."""
    size: int
    """Their size, in bytes."""


def update_copy(source: Store, target: Store, clock: Clock, as_of: AsOf = None) -> CopyReport:
    """Brings the copy to this state of the original by one commit; by none if nothing differs.

    At an empty place it makes the copy: a table with an id of its own. After an error, another call keeps the files
    that were copied. Raises InvalidInputError if the original has no history, or no commit as of `as_of`, or if the
    state is not known any more;
    TableExistsError if the target is no such copy, or has commits of its own; HistoryLostError if vacuum deletes a file
    meanwhile; CommitConflictError if anything else is committed to the copy; StoreError.
    """
    now = read_snapshot(source, clock)
    last_erasure = last_erasure_of(now)
    if as_of is not None:
        now = read_snapshot(source, clock, as_of=as_of)
    refuse_source(source, now, target)
    refuse_before_first(now, as_of, why="a copy of that would have no rows any more; nothing was copied")
    had = _find_copy(target, clock)
    app_id = f"{_APP}{now.table_id}"
    if had:
        _refuse_others(had, app_id, source)
    changes = _compare(source, now, had)
    sets = _changed_settings(now, had)
    if had and had.tids and not (changes.came or changes.gone or sets) and _columns(had) == _columns(now):
        return _report(target, changes, had.tid, len(had.tids), Copied())
    app = App(id=app_id, version=had.app_versions[app_id].highest + 1 if had and app_id in had.app_versions else 1)
    transaction, done = _begin(target, clock, now, had, app, sets)
    copied = _stage(source, target, clock, transaction, changes.came, done)
    if transaction.terms.operation == "rewrite":
        transaction.remove(changes.gone)
    transaction.vouch_for_rows()  # they are rows of the original
    doubtful = doubtful_among([file for file, _ in changes.came], now)
    refuse_copy_of_erased(source, now.table_id, last_erasure, "nothing was committed: copy again")
    transaction.record_copies(doubtful=doubtful)
    commit = transaction.commit(now.schema)
    if commit.skipped:
        raise CommitConflictError(f"another process has copied to {target.url} meanwhile; copy again")
    commits = len(had.tids) + 1 if had else 1
    return _report(target, changes, commit.tid, commits, copied, removed=len(changes.gone), is_new=True)


def _columns(state: Snapshot) -> tuple[object, object]:
    return state.schema, state.partition_columns


def _report(
    target: Store,
    changes: _Changes,
    tid: str | None,
    commits: int,
    copied: Copied,
    *,
    removed: int = 0,
    is_new: bool = False,
) -> CopyReport:
    return CopyReport(
        url=target.url,
        tid=tid,
        commits=commits,
        files=changes.files,
        size=changes.size,
        copied_files=copied.files,
        copied_size=copied.size,
        resumed_files=copied.resumed,
        removed_files=removed,
        is_new=is_new,
    )


# --- is it a copy? --------------------------------------------------------------------------------------------------


def _find_copy(target: Store, clock: Clock) -> Snapshot | None:
    """The state of the table at the target; None if the target is empty."""
    try:
        found = read_snapshot(target, clock)
    except TableNotFoundError:
        if target.list_files():
            raise TableExistsError(
                f"{target.url} is not empty, and no table; copy to another path, or drop what is there first"
            ) from None
        return None
    if found.scope is not Scope.TABLE:
        raise TableExistsError(f"{target.url} is no copy, but a directory without {names.DESCRIPTOR}; {_ELSEWHERE}")
    return found


_ELSEWHERE = "nothing was copied: give another path"


def _refuse_others(had: Snapshot, app_id: str, source: Store) -> None:
    """Raises TableExistsError if the table has a commit that is not one of these copies."""
    for commit in had.transactions:
        info = commit.marker.dbio_commit
        if commit.marker.is_abort or (info and info.app and info.app.id == app_id):
            continue
        if info and info.app and info.app.id.startswith(_APP):
            raise TableExistsError(
                f"{had.url} is a copy of another table than {source.url}: of {info.app.id[len(_APP) :]}; {_ELSEWHERE}"
            )
        if app_id in had.app_versions:
            raise TableExistsError(
                f"{had.url} is a copy of {source.url}, and has a commit of its own, {commit.tid}, so that it would not "
                "be a copy afterwards; nothing was copied: begin another copy at another path"
            )
        raise TableExistsError(
            f"{had.url} has the commit {commit.tid}, which no incremental copy of {source.url} made; {_ELSEWHERE}. A "
            "copy with the history of the original cannot be brought up to date"
        )


# --- what differs ---------------------------------------------------------------------------------------------------


def key_of(file: DataFile) -> str:
    """A UUID that stands for the file in the name of its copy. No path of a table is used twice."""
    return str(UUID(bytes=sha256(f"{file.size} {file.path}".encode()).digest()[:16]))


def key_in(path: str) -> str | None:
    """The UUID in the name of a copy."""
    found = _KEY.match(names.split(path)[1])
    return found[1] if found else None


def _compare(source: Store, now: Snapshot, had: Snapshot | None) -> _Changes:
    came, gone, files, size = list[tuple[DataFile, FileInfo | None]](), list[str](), 0, 0
    is_moved = had is not None and had.partition_columns != now.partition_columns
    for original, copy in _shares(source, now, had):
        has = {key_in(file.path): file.path for file in (copy.files if copy else ())}
        if is_moved:
            gone += has.values()
            has = {}
        new = list[DataFile]()
        for file in original.files:
            files, size = files + 1, size + max(file.size, 0)
            if has.pop(key_of(file), None) is None:
                new.append(file)
        gone += has.values()
        known = recorded_files(original.decided) if new else {}
        came += ((file, known.get(file.path)) for file in new)
    return _Changes(came, gone, files, size)


def _shares(source: Store, now: Snapshot, had: Snapshot | None) -> Iterator[tuple[Snapshot, Snapshot | None]]:
    """Both states, in shares of the same directories if they are large."""
    if had is None:
        yield from ((share, None) for share in now.slices())
        return
    if not (now.checkpoint.is_root or had.checkpoint.is_root):
        yield now, had
        return
    below = list_levels(source, now).below
    groups = groups_of(now, below) if now.checkpoint.is_root and had.checkpoint.is_root else []
    if len(groups) <= 1:
        groups, below = [], []
    within = [Subtrees(below, is_rest=True), *map(Subtrees, groups)]
    yield from zip(now.each_below(within), had.each_below(within), strict=True)


def _changed_settings(now: Snapshot, had: Snapshot | None) -> Mapping[str, str]:
    """The changes that make the copy's settings those of the original. An empty text removes a setting."""
    ours, own = now.settings, had.settings if had else {}
    changes = {name: ours.get(name, "") for name in {**own, **ours} if name != PARTITION_COLUMNS}
    # All or none: a change replaces other spellings of the setting, and earlier versions may have left several.
    return changes if any(own.get(name, "") != text for name, text in changes.items()) else {}


# --- the transaction ------------------------------------------------------------------------------------------------


def _begin(
    target: Store, clock: Clock, now: Snapshot, had: Snapshot | None, app: App, sets: Mapping[str, str]
) -> tuple[Transaction, Mapping[str, tuple[str, int]]]:
    """The transaction, which an earlier run may have begun; and what that run has copied: paths and sizes by UUID."""
    is_first = had is None or not had.tids
    operation: Operation = "append" if is_first else "rewrite"
    if had and had.partition_columns != now.partition_columns:
        operation = "overwrite"

    context = context_of(target, clock)
    intent = Intent(
        operation=operation,
        partition_by=now.partition_columns,
        app=(app.id, app.version),
        must_be_empty=is_first,
        if_match=had.etag if had and not is_first else None,
        sets=sets,
        note=Note(message=f"copy of the state {now.tid}"),
    )

    def start(*, claims: bool) -> Terms:
        return begin(context, intent, claims=claims).terms

    terms, is_taken_up = None, False
    if left := _find_interrupted(target, clock, had, app) if had else None:
        tid, begun = left
        terms = replace(start(claims=False), tid=tid, job=begun.job, unclaimed=None)
        # After `start` has looked at the table:
        started, decided = target.stat_many([names.started(tid), names.committed(tid)])
        is_taken_up = started is not None and decided is None
    if terms is None or not is_taken_up:
        terms = start(claims=True)
    # If the interrupted run is still alive, each of the two recognizes what the other has committed
    terms = replace(terms, commit_id=terms.job)
    transaction = Transaction(context, terms)
    transaction.keep_partitions()
    return transaction, _copied_by(target, terms.tid) if is_taken_up else {}


def _find_interrupted(target: Store, clock: Clock, had: Snapshot, app: App) -> tuple[str, StartMarker] | None:
    """The pending transaction of an earlier run at the same version. Aborts one that is too old to go on with."""
    for tid in sorted(had.log.pending, reverse=True):
        entry = had.log.started[tid]
        begun = read_start(target, entry, table_id=had.table_id) if entry.size else None
        if begun is None or begun.app is None or not begun.app.is_run_of(app):
            continue
        if clock.now() - entry.modified < _TAKEN_UP:
            return tid, begun
        with suppress(TransactionStateError):
            abort_transaction(target, clock, tid)
    return None


def _copied_by(target: Store, tid: str) -> dict[str, tuple[str, int]]:
    """The path and the size of each whole copy that the transaction has made, by the UUID in its name."""
    found = [(key, it) for it in target.each_file() if names.is_of(it.path, tid) and (key := key_in(it.path))]
    unfinished = target.unfinished_copies() if found else ()  # after the sizes, which a copy may change
    return {key: (it.path, it.size) for key, it in found if it.path not in unfinished}


def _stage(
    source: Store,
    target: Store,
    clock: Clock,
    transaction: Transaction,
    came: list[tuple[DataFile, FileInfo | None]],
    done: Mapping[str, tuple[str, int]],
) -> Copied:
    attempt = clock.random_bits(31)  # a file of an interrupted run may be incomplete, and is not written again

    def name(file: DataFile) -> str:
        directory, key = names.split(file.path)[0], key_of(file)
        path, size = done.get(key, ("", -1))
        if size == file.size and names.split(path)[0] == directory:
            return path
        named = names.format_data_file(
            tid=transaction.tid, job=key, task=0, attempt=attempt, number=0, suffix=suffix_of(file.path)
        )
        path = names.join(directory, named)
        target.prepare(path)
        return path

    has = {path for path, _ in done.values()}
    copied = Copied()
    try:
        for start in range(0, len(came), QUEUED):
            some = came[start : start + QUEUED]
            known = {file.path: info for file, info in some if info}
            files = [file for file, _ in some]
            copied = copied.plus(stage_copies(source, target, transaction, files, known, name=name, has=has))
    except BaseException:
        _log.warning("%s: the copy was interrupted, with %d of %d files; copy again within three days, and it goes on",
                     target.url, copied.files + copied.resumed, len(came))  # fmt: skip
        raise
    return copied
