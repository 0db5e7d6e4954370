"""Chooses the kind of `Root` by scope, and aborts a transaction of any writer."""

from collections.abc import Mapping

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.decision import abort_in_directory, abort_many, decided_long_ago
from dbio_commit.commit.directory_root import DirectoryRoot
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.log.directory_log import DirectoryLog
from dbio_commit.log.listing import until_quiet
from dbio_commit.log.opening import open_log
from dbio_commit.log.table_log import TableLog
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

KINDS: Mapping[Scope, type[TableRoot] | type[DirectoryRoot]] = {
    Scope.TABLE: TableRoot,
    Scope.DIRECTORY: DirectoryRoot,
}


def abort_pending(store: Store, clock: Clock, tid: str, *, alone: bool = False) -> None:
    """Aborts a transaction of any writer, also in a table that was dropped. `alone`: see `abort_many`.

    Raises InvalidInputError if no marker has this tid, TransactionStateError if the transaction is committed.
    """

    def abort() -> None:
        found = open_log(store, clock, even_dropped=True)
        if isinstance(found, TableLog):
            _abort_in_table(found, tid, alone=alone)
        else:
            _abort_in_directories(found, tid)

    until_quiet(store, abort)


def _abort_in_table(table: TableLog, tid: str, *, alone: bool) -> None:
    if tid in table.checkpoint().covered and tid not in table.log.committed:
        raise decided_long_ago(table.store, tid)
    if tid not in table.log.started and tid not in table.log.committed:
        raise _unknown(table.store, tid)
    if failure := abort_many(table.store, table.clock, [tid], alone=alone)[tid]:
        raise failure


def _abort_in_directories(root: DirectoryLog, tid: str) -> None:
    logs, _ = root.logs()
    known = {path: log for path, log in logs.items() if tid in log.started or tid in log.committed}
    if not known:
        raise _unknown(root.store, tid)
    pending = [path for path, log in known.items() if tid not in log.committed]
    for directory in pending or known:
        abort_in_directory(root.store, root.clock, tid, directory)


def _unknown(store: Store, tid: str) -> InvalidInputError:
    return InvalidInputError(f"{store.url} has no marker of a transaction {tid!r}; `dbio check` lists what is pending")
