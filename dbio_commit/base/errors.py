"""One tree of errors. What you do about an error decides where it hangs.

    DbioError
    ├── CommitConflictError        somebody else won: begin again
    ├── TransactionAbortedError    decided against us: begin again
    ├── CommitStateUnknownError    may have landed: read back first
    ├── TransactionStateError      misuse of a transaction: fix the program
    ├── InvalidInputError          arguments, data or a schema that cannot be written: fix the input
    │   ├── SchemaMismatchError    the table's columns are others; both schemas are in the message
    │   └── AppVersionError        a version of an application that comes too late: look whether its rows are there
    ├── TableNotFoundError         nothing is there: check the path
    ├── TableExistsError           something is there already (modes "error" and "ignore")
    ├── CorruptMarkerError         a marker that cannot be what a writer wrote: inspect it
    │   └── CheckpointLostError    what alone tells which files are live is gone, or unreadable: bring it back
    ├── HistoryLostError           vacuum has deleted what was asked of the past: ask for less, or begin anew
    ├── ChangedRowsError           a stream of appends met a commit that took rows away: say what becomes of those
    ├── RetentionError             a retention that could hurt readers or writers
    ├── UnsupportedStoreError      the store cannot do it safely, or a package is missing: another store, or install it
    ├── UnsupportedTableError      of a newer version, or another format: upgrade, or use that format's tools
    └── StoreError                 the store failed or refused: check access, try again
        ├── ObjectNotFoundError
        └── AccessDeniedError

Every message carries the facts (path, tid, sizes) and the next step; none carries a credential.
"""

from dbio_commit.base.texts import visible


class DbioError(Exception):
    """Everything that this package raises on purpose.

    Each argument is a line of the message. What a line quotes may come from a table: a line break or an escape sequence
    in it is escaped.
    """

    def __init__(self, *lines: object) -> None:
        super().__init__(*(visible(str(line)) for line in lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


class CommitConflictError(DbioError):
    """Somebody else changed what this transaction depends on. Nothing was committed; begin again."""


class TransactionAbortedError(DbioError):
    """Somebody decided this transaction against us (vacuum, `dbio abort`, a waiter's lease). Begin again."""


class CommitStateUnknownError(DbioError):
    """The commit may or may not have landed. Read the table's history for the tid before anything else."""


class TransactionStateError(DbioError):
    """A transaction was used in a way that its state does not allow."""


class InvalidInputError(DbioError):
    """The caller's input cannot be written or understood. Nothing was written."""


class SchemaMismatchError(InvalidInputError):
    """The data's columns do not fit the table's."""


class AppVersionError(InvalidInputError):
    """The version of an application is lower than a committed one, and it is not known to be committed itself."""


class TableNotFoundError(DbioError):
    """There is no table, and no file, at the path."""


class TableExistsError(DbioError):
    """There is a table at the path already, and the caller asked for a new one."""


class CorruptMarkerError(DbioError):
    """A marker's name or body is not what any writer of the protocol writes."""


class CheckpointLostError(CorruptMarkerError):
    """A checkpoint that is needed is gone or cannot be read. Nobody can tell which files are live until it is back."""


class HistoryLostError(DbioError):
    """What was asked of a table's past cannot be told completely any more."""


class ChangedRowsError(DbioError):
    """A stream that reads what was appended has come to a commit that took rows away."""


class RetentionError(DbioError):
    """The retention asked for could delete what a reader or writer still needs."""


class UnsupportedStoreError(DbioError):
    """The store cannot do what the protocol rests on, or what it takes to use it is not installed."""


class UnsupportedTableError(DbioError):
    """The table is of a later version of the protocol, or of another format. Another store would not help."""


class StoreError(DbioError):
    """The store failed, or the outcome of a request to it is unknown."""


class ObjectNotFoundError(StoreError):
    """The object is not there (any more)."""


class AccessDeniedError(StoreError):
    """The store refused the credentials, or the credentials lack a permission. The request was not applied."""


def _name_as_imported() -> None:
    """Tracebacks and pickles name the module from which users import errors."""
    for it in globals().values():
        if isinstance(it, type) and issubclass(it, DbioError):
            it.__module__ = "dbio_commit"


_name_as_imported()
