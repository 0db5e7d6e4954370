"""What `dbio_commit` exports: what users call, and what they meet in its signatures and results.

The functions for Spark are imported when they are first used, and so is `vacuum`: everything else works where Spark is
not installed. What the report of a vacuum consists of is in the package `vacuum`.
"""

from typing import TYPE_CHECKING, Any

from dbio_commit.base.errors import (
    AccessDeniedError,
    AppVersionError,
    ChangedRowsError,
    CheckpointLostError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    HistoryLostError,
    InvalidInputError,
    ObjectNotFoundError,
    RetentionError,
    SchemaMismatchError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedStoreError,
    UnsupportedTableError,
)
from dbio_commit.base.options import Compression, Mode
from dbio_commit.commit.draft import Terms
from dbio_commit.commit.isolation import Isolation, Read
from dbio_commit.commit.transaction import Transaction
from dbio_commit.feed.streams import CommitChanges, StreamLag
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.applications import Application
from dbio_commit.protocol.commits import AsOf, Commit
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import DataFile
from dbio_commit.table import Table
from dbio_commit.upkeep.check import CheckReport, PendingTransaction, WrongSize
from dbio_commit.upkeep.compact.report import Compacted, CompactReport, LeftFiles
from dbio_commit.upkeep.copy import CopyReport
from dbio_commit.upkeep.drop import DropReport
from dbio_commit.upkeep.inspect import TransactionReport, TransactionState
from dbio_commit.upkeep.publish import Format, Published
from dbio_commit.upkeep.restore import RestorePlan

if TYPE_CHECKING:
    from dbio_commit.spark.api import (
        Clause,
        Matched,
        NotMatched,
        NotMatchedBySource,
        batch_writer,
        changes,
        compact,
        constrain,
        delete,
        enable,
        for_each_batch,
        merge,
        read,
        register,
        update,
        when_matched,
        when_not_matched,
        when_not_matched_by_source,
        write,
        write_stream,
    )
    from dbio_commit.upkeep.vacuum.run import vacuum

__all__ = [
    "AccessDeniedError",
    "AppVersionError",
    "Application",
    "AsOf",
    "Bounds",
    "ChangedRowsError",
    "CheckReport",
    "CheckpointLostError",
    "Clause",
    "Commit",
    "CommitChanges",
    "CommitConflictError",
    "CommitStateUnknownError",
    "CompactReport",
    "Compacted",
    "Compression",
    "CopyReport",
    "CorruptMarkerError",
    "DataFile",
    "DbioError",
    "DropReport",
    "Entry",
    "FileInfo",
    "Format",
    "HistoryLostError",
    "InvalidInputError",
    "Isolation",
    "LeftFiles",
    "Matched",
    "Mode",
    "NotMatched",
    "NotMatchedBySource",
    "ObjectNotFoundError",
    "Operation",
    "PendingTransaction",
    "Published",
    "Read",
    "Reason",
    "RestorePlan",
    "RetentionError",
    "SchemaMismatchError",
    "Scope",
    "Snapshot",
    "StoreError",
    "StreamLag",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "Terms",
    "Transaction",
    "TransactionAbortedError",
    "TransactionReport",
    "TransactionState",
    "TransactionStateError",
    "UnsupportedStoreError",
    "UnsupportedTableError",
    "WrongSize",
    "batch_writer",
    "changes",
    "compact",
    "constrain",
    "delete",
    "enable",
    "for_each_batch",
    "merge",
    "read",
    "register",
    "update",
    "vacuum",
    "when_matched",
    "when_not_matched",
    "when_not_matched_by_source",
    "write",
    "write_stream",
]


def __getattr__(name: str) -> Any:
    if name == "vacuum":
        from dbio_commit.upkeep.vacuum.run import vacuum

        return vacuum
    if name in __all__:  # and is not here yet
        from dbio_commit.spark import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
