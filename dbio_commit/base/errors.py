"""The errors, in one tree: the class of an error says what to do about it.

    DbioError
    ├── CommitConflictError        another commit was faster: begin again
    ├── TransactionAbortedError    another process aborted the transaction: begin again
    ├── CommitStateUnknownError    it may be committed: look for the tid first
    ├── TransactionStateError      misuse of a transaction: correct the program
    ├── InvalidInputError          arguments, data or a schema that cannot be written: correct the input
    │   ├── SchemaMismatchError    the table has other columns; both schemas are in the message
    │   └── AppVersionError        a version of an application that comes too late: look whether its rows are there
    ├── TableNotFoundError         there is nothing at the path: check the path
    ├── TableExistsError           there is a table already (modes "error" and "ignore")
    ├── CorruptMarkerError         a marker that no writer can have written: inspect it
    │   └── CheckpointLostError    a checkpoint that is needed is missing or unreadable: bring it back
    ├── HistoryLostError           vacuum has deleted this part of the history: ask for less, or begin anew
    ├── ChangedRowsError           a stream of appends met a commit that changes rows: choose an option for these
    ├── RowsLostError              executors died with rows that Spark kept: see why they died, and begin again
    ├── RetentionError             a retention that could hurt readers or writers: give a longer one
    ├── UnsupportedStoreError      the store, or this Spark, lacks what a safe commit needs: use another one
    ├── UnsupportedTableError      a later version, or another format: upgrade, or use that format's tools
    ├── MissingPackageError        an optional package is not installed: install it; also an ImportError
    └── StoreError                 the store failed or refused: check access, try again
        ├── ObjectNotFoundError
        └── AccessDeniedError

Every message has the facts (path, tid, sizes) and the next step. No message has a credential.
"""

from dbio_commit.base.redaction import redact, secrets_of_clients
from dbio_commit.base.texts import shortened, visible


class DbioError(Exception):
    """Every error that dbio raises on purpose.

    Each argument is a line of the message. Texts from a table may be part of it: line breaks and escape sequences in
    them are escaped. A message that names very many things is cut in the middle, so that it fits a log or a notebook.
    """

    def __init__(self, *lines: object) -> None:
        super().__init__(*_bounded([visible(str(line)) for line in lines]))

    def __str__(self) -> str:
        return "\n".join(self.args)


_MOST_LINES = 60
_MOST_CHARACTERS = 4000
"""The most lines of a message, and the most characters of a line."""
_LOOKED_AT = 16_000
"""So many characters at each end of a line are searched for secrets: more than a cut keeps, and a secret has."""


def _bounded(lines: list[str]) -> list[str]:
    """The lines, with a bound on their number and on their length. The end of each stays: it has the next step."""
    if len(lines) > _MOST_LINES:
        left_out = len(lines) - _MOST_LINES + 1
        lines = [*lines[: _MOST_LINES - 11], f"… {left_out:,} lines left out …", *lines[-10:]]
    return [line if len(line) <= _MOST_CHARACTERS else _short(line) for line in lines]


def _short(line: str) -> str:
    """Removes secrets before the cut: those who show the message find only whole ones."""
    secrets, middle = secrets_of_clients(), line[_LOOKED_AT:-_LOOKED_AT]
    ends = (line[:_LOOKED_AT], line[-_LOOKED_AT:]) if middle else (line, "")
    return shortened(middle.join(redact(it, secrets) for it in ends), _MOST_CHARACTERS)


class CommitConflictError(DbioError):
    """Another commit changed what this transaction depends on. Nothing was committed: begin again."""


class TransactionAbortedError(DbioError):
    """Another process aborted this transaction: vacuum, `dbio abort`, or a writer that waited for it. Begin again."""


class CommitStateUnknownError(DbioError):
    """The commit may or may not have happened. Look for the tid in the history before you write again."""


class TransactionStateError(DbioError):
    """A transaction was used in a way that its state does not allow. Correct the program."""


class InvalidInputError(DbioError):
    """The arguments, the data or the schema cannot be written or understood. Nothing was written."""


class SchemaMismatchError(InvalidInputError):
    """The columns of the data do not fit those of the table."""


class AppVersionError(InvalidInputError):
    """The version of an application is lower than a committed one, and is not known to be committed itself."""


class TableNotFoundError(DbioError):
    """There is no table, and no file, at the path."""


class TableExistsError(DbioError):
    """There is a table at the path already, and the caller asked for a new one."""


class CorruptMarkerError(DbioError):
    """The name or the body of a marker is not what a writer of the protocol writes."""


class CheckpointLostError(CorruptMarkerError):
    """A checkpoint that is needed is missing or unreadable. Until it is back, it is not known which files are live."""


class HistoryLostError(DbioError):
    """Vacuum has deleted a part of the history that the stream or the caller needs."""


class ChangedRowsError(DbioError):
    """A stream that reads appended rows has reached a commit that removed or changed rows."""


class RowsLostError(DbioError):
    """Executors of Spark died with rows that they kept for a statement, in each of its attempts. Begin it again."""


class RetentionError(DbioError):
    """The retention could delete files that a reader or a writer still needs."""


class UnsupportedStoreError(DbioError):
    """The store, or this version of Spark, cannot do what the protocol needs."""


class UnsupportedTableError(DbioError):
    """The table has a later version of the protocol, or another format. Another store would not help."""


class MissingPackageError(DbioError, ImportError):
    """An optional package is not installed. The message says which one, and how to install it; `name` is its name."""


class StoreError(DbioError):
    """The store failed, or it is not known whether a request to it was applied."""


class ObjectNotFoundError(StoreError):
    """The object does not exist, or not any more."""


class AccessDeniedError(StoreError):
    """The store refused the credentials, or they lack a permission. The request was not applied."""


def _name_as_imported() -> None:
    """Tracebacks and pickles name the module from which users import errors."""
    for it in globals().values():
        if isinstance(it, type) and issubclass(it, DbioError):
            it.__module__ = "dbio_commit"


_name_as_imported()
