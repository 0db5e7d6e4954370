"""Which columns a table has, as cheaply as its log tells it: for transactions that begin."""

from collections.abc import Callable
from contextlib import suppress

from dbio_commit.errors import ObjectNotFoundError
from dbio_commit.listing import read_last_turn, read_marker, read_turn
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.markers import decode_commit, decode_turn
from dbio_commit.protocol.state import NO_SCHEMA, TableSchema
from dbio_commit.snapshot import Snapshot
from dbio_commit.store import Store

_NEWEST = 3


def find_schema(store: Store, log: Log, read_snapshot: Callable[[], Snapshot]) -> TableSchema:
    """The table's columns as of the log in hand, with as few requests as will do.

    The newest commit markers nearly always tell: each records the schema, and the last turn as of which it was so.
    While the last turn is undecided, the one before it tells: it is decided, and none has changed the schema since.
    A snapshot tells in any case.
    """
    newest = sorted(log.committed.values(), key=lambda entry: (entry.modified, entry.path), reverse=True)[:_NEWEST]
    if not newest and not log.checkpoints:
        return NO_SCHEMA
    last_turn = read_last_turn(store, log)
    holder: str | None = None
    if log.pending and last_turn:
        holder = read_turn(store, log)
    decided = last_turn - 1 if holder in log.pending else last_turn
    told: list[TableSchema] = []
    for entry in newest:
        told += _recorded_schema(store, entry)
        if told and told[-1].turn == decided:
            return told[-1]
    if last_turn and (found := _schema_of_turn(store, log, decided)):
        return found
    snapshot = read_snapshot()
    schema = snapshot.table_schema
    if schema.turn < last_turn and read_turn(store, log) in {commit.tid for commit in snapshot.decided}:
        return schema._replace(turn=last_turn)  # that turn ended without a change
    return schema


def _schema_of_turn(store: Store, log: Log, turn: int) -> TableSchema | None:
    """What the holder of a decided turn recorded, or where that was aborted, of the turn before; None where vacuum has
    purged it.
    """
    for earlier in range(turn, 0, -1):
        if earlier not in log.turns:
            return None
        with suppress(ObjectNotFoundError):
            tid = decode_turn(read_marker(store, log.turns[earlier]), where=names.turn(earlier)).tid
            entry = log.committed.get(tid)
            if entry is None:
                return None
            if recorded := _recorded_schema(store, entry):
                return recorded[0]._replace(turn=turn)
            if tid in log.started and decode_commit(read_marker(store, entry), where=store.url_of(entry.path)).is_abort:
                continue
        return None
    return NO_SCHEMA


def _recorded_schema(store: Store, entry: Entry) -> list[TableSchema]:
    """What a commit marker says of the schema; nothing where it does not, or where vacuum has purged it."""
    with suppress(ObjectNotFoundError):
        info = decode_commit(read_marker(store, entry), where=store.url_of(entry.path)).dbio_commit
        if info and info.schema_turn is not None:
            return [TableSchema(info.table_schema, info.schema_turn)]
    return []
