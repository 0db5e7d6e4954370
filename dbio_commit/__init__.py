"""Transactional writes to plain Parquet directories, and committed reads of them.

The public names are the functions, the classes that programs work with, and the errors; `help()` shows each. The
page API of the site that `make docs` makes has all of them, and the types of results and of options, with the modules
that they are imported from for annotations. Everything else is private, and may change.

A name is imported when it is first used, so that commands and Spark's workers begin with what they need.
"""

from importlib import import_module

TYPE_CHECKING = False  # without an import of `typing`
if TYPE_CHECKING:
    from dbio_commit.base.errors import AccessDeniedError as AccessDeniedError
    from dbio_commit.base.errors import AppVersionError as AppVersionError
    from dbio_commit.base.errors import ChangedRowsError as ChangedRowsError
    from dbio_commit.base.errors import CheckpointLostError as CheckpointLostError
    from dbio_commit.base.errors import CommitConflictError as CommitConflictError
    from dbio_commit.base.errors import CommitStateUnknownError as CommitStateUnknownError
    from dbio_commit.base.errors import CorruptMarkerError as CorruptMarkerError
    from dbio_commit.base.errors import DbioError as DbioError
    from dbio_commit.base.errors import HistoryLostError as HistoryLostError
    from dbio_commit.base.errors import InvalidInputError as InvalidInputError
    from dbio_commit.base.errors import MissingPackageError as MissingPackageError
    from dbio_commit.base.errors import ObjectNotFoundError as ObjectNotFoundError
    from dbio_commit.base.errors import RetentionError as RetentionError
    from dbio_commit.base.errors import RowsLostError as RowsLostError
    from dbio_commit.base.errors import SchemaMismatchError as SchemaMismatchError
    from dbio_commit.base.errors import StoreError as StoreError
    from dbio_commit.base.errors import TableExistsError as TableExistsError
    from dbio_commit.base.errors import TableNotFoundError as TableNotFoundError
    from dbio_commit.base.errors import TransactionAbortedError as TransactionAbortedError
    from dbio_commit.base.errors import TransactionStateError as TransactionStateError
    from dbio_commit.base.errors import UnsupportedStoreError as UnsupportedStoreError
    from dbio_commit.base.errors import UnsupportedTableError as UnsupportedTableError
    from dbio_commit.commit.isolation import Read as Read
    from dbio_commit.commit.transaction import Transaction as Transaction
    from dbio_commit.commit.write.clauses import when_matched as when_matched
    from dbio_commit.commit.write.clauses import when_not_matched as when_not_matched
    from dbio_commit.commit.write.clauses import when_not_matched_by_source as when_not_matched_by_source
    from dbio_commit.joint import JointTransaction as JointTransaction
    from dbio_commit.joint import transact as transact
    from dbio_commit.joint import transaction as transaction
    from dbio_commit.log.snapshot import Snapshot as Snapshot
    from dbio_commit.protocol.commits import Commit as Commit
    from dbio_commit.protocol.markers.files import FileInfo as FileInfo
    from dbio_commit.protocol.state import DataFile as DataFile
    from dbio_commit.spark.api import batch_writer as batch_writer
    from dbio_commit.spark.api import changes as changes
    from dbio_commit.spark.api import compact as compact
    from dbio_commit.spark.api import constrain as constrain
    from dbio_commit.spark.api import delete as delete
    from dbio_commit.spark.api import enable as enable
    from dbio_commit.spark.api import erase as erase
    from dbio_commit.spark.api import for_each_batch as for_each_batch
    from dbio_commit.spark.api import merge as merge
    from dbio_commit.spark.api import read as read
    from dbio_commit.spark.api import read_together as read_together
    from dbio_commit.spark.api import register as register
    from dbio_commit.spark.api import update as update
    from dbio_commit.spark.api import write as write
    from dbio_commit.spark.api import write_stream as write_stream
    from dbio_commit.table import Table as Table
    from dbio_commit.table import snapshots as snapshots
    from dbio_commit.table import vacuum as vacuum

__version__ = "0.1.0"

_HOMES = {
    name: home
    for home, names in {
        "dbio_commit.base.errors": """
            AccessDeniedError AppVersionError ChangedRowsError CheckpointLostError CommitConflictError
            CommitStateUnknownError CorruptMarkerError DbioError HistoryLostError InvalidInputError
            MissingPackageError ObjectNotFoundError RetentionError RowsLostError SchemaMismatchError StoreError
            TableExistsError TableNotFoundError TransactionAbortedError TransactionStateError
            UnsupportedStoreError UnsupportedTableError
        """,
        "dbio_commit.commit.isolation": "Read",
        "dbio_commit.commit.transaction": "Transaction",
        "dbio_commit.joint": "JointTransaction transact transaction",
        "dbio_commit.log.snapshot": "Snapshot",
        "dbio_commit.protocol.commits": "Commit",
        "dbio_commit.protocol.markers.files": "FileInfo",
        "dbio_commit.protocol.state": "DataFile",
        "dbio_commit.spark.api": """
            batch_writer changes compact constrain delete enable erase for_each_batch merge read
            read_together register update write write_stream
        """,
        "dbio_commit.commit.write.clauses": "when_matched when_not_matched when_not_matched_by_source",
        "dbio_commit.table": "Table snapshots vacuum",
    }.items()
    for name in names.split()
}
"""Of each public name the module that defines it; the same as for type checkers above."""

__all__ = sorted(_HOMES)


if not TYPE_CHECKING:  # else every name would pass

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            value = globals()[name] = getattr(import_module(_HOMES[name]), name)
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", *__all__]
