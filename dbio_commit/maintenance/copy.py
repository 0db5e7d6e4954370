"""Copies a table to another place, with its history and the times of its commits: `Table.copy`, `dbio copy`.

A tool that only copies objects gives them new times, and so the copy loses the order of its commits. Here a checkpoint
at the new place holds the whole history. Until the copy is complete, a tombstone there says that there is no table. If
a copy was killed, the next one continues it, or `dbio drop` removes it.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CommitConflictError,
    HistoryLostError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
    TableExistsError,
)
from dbio_commit.base.shown import Shown
from dbio_commit.commit.begin import Intent, begin, look
from dbio_commit.commit.checkpoints import put_parts
from dbio_commit.commit.isolation import last_erasure_of, refuse_erased
from dbio_commit.commit.probe import create
from dbio_commit.commit.tids import new_uuid
from dbio_commit.log.listing import read_descriptor, read_last_erasure, read_last_turn
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish import context_of, try_to_publish
from dbio_commit.maintenance.staged_copies import Copied, doubtful_among, refuse_before_first, stage_copies
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint, condense, encode_checkpoint, encode_root
from dbio_commit.protocol.commits import AsOf, recorded_files
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.purge import Purge
from dbio_commit.protocol.markers.tombstone import Tombstone, decode_tombstone
from dbio_commit.protocol.markers.turn import Turn
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import PARTITION_COLUMNS, Settings
from dbio_commit.protocol.state import UNKNOWN_SIZE, added_sizes
from dbio_commit.store import Store
from dbio_commit.store.copying import COPIES, QUEUED, copy_object

_DROP_IT = "remove the unfinished copy with `dbio drop`, and copy again"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CopyReport(Shown):
    """The result of `Table.copy`."""

    url: str
    """The root of the copy."""
    tid: str | None
    """The tid of its newest commit, None if it has none; the copy lacks later commits of the original."""
    commits: int
    """How many commits it has."""
    files: int
    """How many data files it has, also removed ones that vacuum has not deleted yet."""
    size: int
    """The size of these files, in bytes."""
    copied_files: int
    """How many files this call has copied."""
    copied_size: int
    """The size of the files that this call has copied, in bytes."""
    resumed_files: int = 0
    """How many more files an earlier call had copied, which was interrupted."""
    removed_files: int = 0
    """How many files an incremental copy has removed."""
    is_new: bool = True
    """Whether this call has committed: False if an incremental copy has found nothing new."""


def copy_table(source: Store, target: Store, clock: Clock) -> CopyReport:
    """Copies the table as it is now. The copy has the id of the original.

    Raises InvalidInputError if the source is not a dbio table, TableExistsError if anything is at the target,
    HistoryLostError if vacuum deletes a live file meanwhile, StoreError.
    """
    snapshot = read_snapshot(source, clock)
    refuse_source(source, snapshot, target)
    if names.DROPPED in target.stat_log(names.DROPPED):
        tombstone = take_over(target, clock, snapshot)
        if has_all(target, read_last_turn(source, snapshot.log, snapshot.table_id)):
            return _finish(source, target, clock, tombstone)
        has = clear(target)
    else:
        tombstone, has = claim(target, clock, snapshot), {}
    target.check_spelling({names.split(file.path)[0] for file in snapshot.files})
    try:
        copied = _copy_files(source, target, snapshot, has)
        _write_history(source, target, clock, snapshot, gone=copied.gone)
    except ObjectNotFoundError as error:  # a part of the checkpoint
        raise HistoryLostError(
            f"{source.url} was vacuumed while it was copied, and the copy is incomplete: {error}. Copy again"
        ) from error
    refuse_copy_of_erased(source, snapshot.table_id, last_erasure_of(snapshot), _DROP_IT)
    _reveal(target, clock, tombstone, snapshot.settings)
    return CopyReport(
        url=target.url,
        tid=snapshot.tid,
        commits=len(snapshot.tids),
        files=copied.files,
        size=copied.size,
        copied_files=copied.files - copied.resumed,
        copied_size=copied.size - copied.resumed_size,
        resumed_files=copied.resumed,
    )


# --- the end --------------------------------------------------------------------------------------------------------


def _finish(source: Store, target: Store, clock: Clock, tombstone: bytes) -> CopyReport:
    """Ends a copy that another process has written but not ended. Checks the live files."""
    copy = read_snapshot(target, clock, even_dropped=True)
    refuse_copy_of_erased(source, copy.table_id, last_erasure_of(copy), _DROP_IT)
    files = size = 0
    for some in copy.slices():
        live = [*some.files]
        for file, entry in zip(live, target.stat_many([file.path for file in live]), strict=True):
            if entry is None or file.size not in (UNKNOWN_SIZE, entry.size):
                raise HistoryLostError(
                    f"{target.url_of(file.path)} of the unfinished copy is missing, or has another size than the "
                    "original; remove the copy with `dbio drop`, and copy again"
                )
        sizes = [max(size, 0) for commit in some.decided for size in added_sizes(commit.marker)]
        files, size = files + len(sizes), size + sum(sizes)
    _reveal(target, clock, tombstone, copy.settings)
    return CopyReport(
        url=target.url,
        tid=copy.tid,
        commits=len(copy.tids),
        files=files,
        size=size,
        copied_files=0,
        copied_size=0,
        resumed_files=files,
    )


def _reveal(target: Store, clock: Clock, tombstone: bytes, settings: Settings) -> None:
    """Deletes the tombstone, so that the table exists for readers and writers."""
    if not target.delete_same(names.DROPPED, tombstone):
        raise CommitConflictError(
            f"another process has begun to copy to {target.url}, too, or to drop the copy; check what is there, and "
            "copy again"
        )
    try_to_publish(target, clock, settings)


# --- an earlier state -----------------------------------------------------------------------------------------------


def copy_state(source: Store, target: Store, clock: Clock, as_of: AsOf) -> CopyReport:
    """Makes a new table of the rows, columns and settings of an earlier state, by one commit. It has its own id.

    Raises as `copy_table`, and InvalidInputError for a state before the first commit, or one that is not known any
    more. A copy that was killed leaves
    a table without commits, which `dbio drop` removes.
    """
    last_erasure = last_erasure_of(read_snapshot(source, clock))
    then = read_snapshot(source, clock, as_of=as_of)
    refuse_source(source, then, target)
    refuse_before_first(then, as_of, why="a copy of that would have no rows; nothing was copied")
    _refuse_used(target, clock)
    settings = {name: text for name, text in then.settings.items() if name != PARTITION_COLUMNS}
    copied, doubtful = Copied(), 0
    intent = Intent(partition_by=then.partition_columns, must_be_empty=True, sets=settings)
    with begin(context_of(target, clock), intent) as transaction:
        for some in then.slices():
            copied = copied.plus(stage_copies(source, target, transaction, some.files, recorded_files(some.decided)))
            doubtful += doubtful_among(some.files, then)
        transaction.vouch_for_rows()  # they are the rows of that state
        refuse_copy_of_erased(source, then.table_id, last_erasure, "nothing was committed: copy again")
        transaction.record_copies(doubtful=doubtful)
        commit = transaction.commit(then.schema)
    return CopyReport(
        url=target.url,
        tid=commit.tid,
        commits=1,
        files=copied.files,
        size=copied.size,
        copied_files=copied.files,
        copied_size=copied.size,
    )


def refuse_source(source: Store, snapshot: Snapshot, target: Store) -> None:
    """Raises InvalidInputError if the source has no history, or if the target lies in it."""
    if snapshot.scope is not Scope.TABLE:
        raise InvalidInputError(
            f"{source.url} has no {names.DESCRIPTOR}, and so no history to copy; `dbio adopt` makes it a table"
        )
    if _lies_in(target, source):
        raise InvalidInputError(f"{target.url} lies in the table {source.url}; copy it to a path outside of it")


def refuse_copy_of_erased(source: Store, table_id: str | None, since: str, then: str) -> None:
    """Raises CommitConflictError if rows were erased from the source since a state whose last erasure was this one."""
    refuse_erased(read_last_erasure(source, table_id), since=since, where=source.url, then=then)


def _lies_in(inner: Store, outer: Store) -> bool:
    """Whether the inner root is the outer one, or lies below it, in the same service; on a disk also through links."""
    if inner.is_disk and outer.is_disk:
        return f"{os.path.realpath(inner.url)}/".startswith(f"{os.path.realpath(outer.url)}/")
    return inner.identity == outer.identity and f"{inner.url}/".startswith(f"{outer.url}/")


class _Copied(NamedTuple):
    """The numbers and sizes of copied files, in bytes."""

    files: int
    size: int
    gone: Collection[str]
    """The removed files that were not copied, since vacuum has deleted them."""
    resumed: int
    """How many of the files were there already."""
    resumed_size: int


# --- files and history ----------------------------------------------------------------------------------------------


def _copy_files(source: Store, target: Store, snapshot: Snapshot, has: Mapping[str, int]) -> _Copied:
    """Copies every file that a commit added and that still exists.

    `has` has the sizes of files that were copied before: a file of the recorded size is not copied again.
    """
    files = size = resumed = resumed_size = 0
    gone: set[str] = set()
    useless = {*has}  # an erasure, or a vacuum, has come since the interrupted copy
    for some in snapshot.slices():
        sizes, before = _copy_some(source, target, some, has)
        useless -= sizes.keys()
        files, size = files + len(sizes), size + sum(sizes.values())
        resumed, resumed_size = resumed + len(before), resumed_size + sum(sizes[path] for path in before)
        gone.update(path for commit in some.decided for path in commit.marker.removed if path not in sizes)
    for error in target.delete_many(sorted(useless)).values():
        raise error
    return _Copied(files, size, gone, resumed, resumed_size)


def _copy_some(
    source: Store, target: Store, some: Snapshot, has: Mapping[str, int]
) -> tuple[dict[str, int], Collection[str]]:
    """Copies the files of a slice. Returns their sizes by path, and the paths of those that existed already."""
    recorded = {
        path: size
        for commit in some.decided
        for path, size in zip(commit.marker.added, added_sizes(commit.marker), strict=True)
    }
    live = {file.path for file in some.files}
    whole = {path for path, size in recorded.items() if size != UNKNOWN_SIZE and has.get(path) == size}

    def copy(path: str) -> tuple[str, int] | None:
        if path in whole:
            return path, recorded[path]
        if path in has:
            for error in target.delete_many([path]).values():
                raise error
        try:
            return path, _copy_file(source, target, path, recorded[path])
        except ObjectNotFoundError as error:
            if path not in live:
                return None  # vacuum has deleted it
            raise HistoryLostError(
                f"the live file {source.url_of(path)} does not exist (any more); the copy is incomplete, and does not "
                "count as a table. Look at `dbio check` of the original, and copy again"
            ) from error

    found: dict[str, int] = {}
    paths = sorted(recorded)
    for start in range(0, len(paths), QUEUED):
        copies = source.in_parallel(copy, paths[start : start + QUEUED], at_once=COPIES)
        found.update(filter(None, copies))
    target.make_durable(found)
    return found, whole


def _copy_file(source: Store, target: Store, path: str, recorded: int) -> int:
    target.prepare(path)
    copy_object(source, path, target, path)
    size = target.stat(path).size
    if recorded not in (UNKNOWN_SIZE, size):
        raise StoreError(
            f"the marker of {source.url_of(path)} records {recorded} bytes, but its copy has {size}; see `dbio check` "
            "of the original, and copy again"
        )
    return size


def _write_history(source: Store, target: Store, clock: Clock, snapshot: Snapshot, *, gone: Collection[str]) -> None:
    """Writes two checkpoints with the history, a purge record (no markers hold it), the last turn, the descriptor."""
    before = snapshot.checkpoint
    checkpoint = Checkpoint(
        number=snapshot.log.checkpoint_after(before.number) if before.is_root else 1,
        apps=snapshot.app_versions,
        metadata=snapshot.metadata,
        known_since=before.known_since,
        erased_until=before.erased_until,
        last_erasure=before.last_erasure,
        redated_until=snapshot.redated_until,
        doubts=snapshot.doubts,
        table_id=snapshot.table_id,
    )
    keep_since = datetime.min.replace(tzinfo=clock.now().tzinfo)
    if before.is_root:
        first = _copy_parts(source, target, snapshot, checkpoint, gone=gone, keep_since=keep_since)
        body = encode_root(first, created=clock.now())
    else:
        commits, known_since = condense(
            snapshot.decided, gone=gone, noted=(), keep_since=keep_since, known_since=before.known_since
        )
        checkpoint = replace(checkpoint, commits=tuple(commits), known_since=known_since)
        first, body = put_parts(target, snapshot, checkpoint, created=clock.now(), is_first=True)
    number = first.number
    _create(target, names.checkpoint(number), body)
    encode_second = encode_root if first.is_root else encode_checkpoint  # it names the same parts
    second = encode_second(replace(first, number=number + 1), created=clock.now())
    _create(target, names.checkpoint(number + 1), second)
    _create(target, names.purge(number), encode(Purge(table_id=str(snapshot.table_id), created=clock.now())))
    last = read_last_turn(source, snapshot.log, snapshot.table_id)
    if last and snapshot.transactions:  # later turns have higher numbers
        _create(target, names.turn(last), encode(Turn(tid=snapshot.transactions[-1].tid, table_id=snapshot.table_id)))
    descriptor = read_descriptor(source, snapshot.log)
    if descriptor.id != snapshot.table_id:
        raise CommitConflictError(
            f"{source.url} was dropped, and another table created, while it was copied; remove what was copied with "
            "`dbio drop`, and copy again"
        )
    _create(target, names.DESCRIPTOR, encode(descriptor))


def _copy_parts(
    source: Store,
    target: Store,
    snapshot: Snapshot,
    checkpoint: Checkpoint,
    *,
    gone: Collection[str],
    keep_since: datetime,
) -> Checkpoint:
    """Copies the parts of a large table, and writes new ones with what they lack. Returns the first root.

    Its number follows that of the original's root, since parts record numbers.
    """
    from dbio_commit.commit.parts import write_changes  # imports pyarrow, which small tables do without

    objects = [name for part in snapshot.checkpoint.parts for name in part.objects]
    source.in_parallel(lambda name: copy_object(source, name, target, name), objects, at_once=COPIES)
    target.make_durable(objects)
    here = replace(snapshot, log=Log())  # the parts that are not needed any more are not copied
    root = write_changes(target, here, checkpoint, gone=gone, noted=(), keep_since=keep_since, is_due=True)
    assert root, "due"
    return root


def _create(target: Store, path: str, body: bytes) -> None:
    if not target.put_if_absent(path, body) and target.get(path) != body:
        raise CommitConflictError(f"another process writes to {target.url} during the copy; copy to another path")


# --- the place of an unfinished copy --------------------------------------------------------------------------------

# A tombstone holds it, which the next process takes over (NOTES.md, Copies).


def claim(target: Store, clock: Clock, snapshot: Snapshot) -> bytes:
    """Creates the tombstone at an empty place, and returns its body."""
    _refuse_used(target, clock)
    tombstone = _tombstone(clock, snapshot)
    if not create(target, names.DROPPED, tombstone):
        raise TableExistsError(f"another process copies to {target.url}, or drops a table there; copy to another path")
    if [entry.path for entry in target.list_files()] != [names.DROPPED]:
        target.delete_same(names.DROPPED, tombstone)
        raise TableExistsError(f"another process has begun to write to {target.url}; copy to another path")
    return tombstone


def _refuse_used(target: Store, clock: Clock) -> None:
    if look(target, clock).scope is not None or target.list_files():
        raise TableExistsError(f"{target.url} is not empty; copy to another path, or drop the table there first")


def _tombstone(clock: Clock, snapshot: Snapshot) -> bytes:
    id, created = snapshot.table_id, clock.now()
    return encode(Tombstone(everything=True, created=created, table_id=id, copy_of=id, run=new_uuid(clock)))


def take_over(target: Store, clock: Clock, snapshot: Snapshot) -> bytes:
    """Replaces the tombstone of an interrupted copy, and returns its body. If the other process lives, it fails."""
    found = decode_tombstone(target.get(names.DROPPED), where=target.url_of(names.DROPPED))
    if found.copy_of is None or found.copy_of != snapshot.table_id:
        what = f"unfinished copy of the table {found.copy_of}" if found.copy_of else "table that was dropped"
        raise TableExistsError(
            f"{target.url} holds what is left of a {what}; end that with `dbio drop`, or copy to another path"
        )
    tombstone = _tombstone(clock, snapshot)
    target.replace(names.DROPPED, tombstone)
    return tombstone


def has_all(target: Store, last_turn: int) -> bool:
    """Whether an interrupted copy has written everything but its end.

    The descriptor alone does not prove it: a process that others took for dead may write it late.
    """
    log = parse_log(target.list_log())
    first = max(log.purges, default=None)
    has_history = first is not None and {first, first + 1} <= log.checkpoints.keys()
    return log.descriptor is not None and has_history and (log.last_turn > 0 or not last_turn)


def clear(target: Store) -> Mapping[str, int]:
    """Deletes what an interrupted copy wrote of the history. Returns the sizes of the files that it copied, by path.

    The size of a file whose copy is not whole is UNKNOWN_SIZE.
    """
    entries = target.list_files()
    markers = [it.path for it in entries if it.path == names.DESCRIPTOR or names.parse_log_name(it.path)]
    for some in (_FIRST, (Kind.CHECKPOINT,), ("",)):  # in this order, so that `has_all` sees it if this is killed
        for error in target.delete_many([path for path in markers if path.startswith(some)]).values():
            raise error
    unfinished = target.unfinished_copies()  # after the sizes, which a copy may change
    return {
        it.path: UNKNOWN_SIZE if it.path in unfinished else it.size for it in entries if names.is_data_file(it.path)
    }


_FIRST = (names.DESCRIPTOR, Kind.PURGE)
