"""Holds the place of an unfinished copy by a tombstone, which the next process takes over (NOTES.md, Copies)."""

from collections.abc import Mapping

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import TableExistsError
from dbio_commit.commit.begin import look
from dbio_commit.commit.probe import create
from dbio_commit.commit.tids import new_uuid
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.tombstone import Tombstone, decode_tombstone
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.state import UNKNOWN_SIZE
from dbio_commit.store import Store


def claim(target: Store, clock: Clock, snapshot: Snapshot) -> bytes:
    """Creates the tombstone at an empty place, and returns its body."""
    if look(target, clock).scope is not None or target.list_files():
        raise TableExistsError(f"{target.url} is not empty; copy to another path, or drop the table there first")
    tombstone = _tombstone(clock, snapshot)
    if not create(target, names.DROPPED, tombstone):
        raise TableExistsError(f"another process copies to {target.url}, or drops a table there; copy to another path")
    if [entry.path for entry in target.list_files()] != [names.DROPPED]:
        target.delete_same(names.DROPPED, tombstone)
        raise TableExistsError(f"another process has begun to write to {target.url}; copy to another path")
    return tombstone


def _tombstone(clock: Clock, snapshot: Snapshot) -> bytes:
    return encode(Tombstone(everything=True, created=clock.now(), copy_of=snapshot.table_id, run=new_uuid(clock)))


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
