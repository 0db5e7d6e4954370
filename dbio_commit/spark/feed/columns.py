"""The columns of a change feed in Spark, and the options for where it begins and ends."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.data.fitting import is_read, misfit
from dbio_commit.feed.position import Start
from dbio_commit.protocol.as_of import parse_time, parse_utc_time
from dbio_commit.protocol.history import ChangeKind, FileChange, History
from dbio_commit.protocol.settings import CHANGE_TYPE
from dbio_commit.protocol.state import DataFile, current_metadata

TYPE, TID, TIMESTAMP = CHANGE_TYPE, "_commit_tid", "_commit_timestamp"
"""The columns that a feed adds, with Delta's names. Delta has a version in the place of the tid."""

_FIELDS = (
    StructField(TYPE, StringType()),
    StructField(TID, StringType()),
    StructField(TIMESTAMP, TimestampType()),
)

TYPE_FIELD = _FIELDS[0]

COLUMNS = tuple(field.name for field in _FIELDS)

DDL_OF_COMMIT = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in _FIELDS[1:])
"""The feed's columns about a commit, in Spark's DDL."""


def with_change_columns(schema: StructType, *, where: str) -> StructType:
    """The table's columns, and those of a feed. Raises SchemaMismatchError if the table has a column of such a name."""
    taken = {name.lower() for name in schema.fieldNames()}
    if both := [name for name in COLUMNS if name in taken]:
        raise SchemaMismatchError(
            f"{where} has a column {both[0]!r}, and a change feed adds a column of this name; rename the column of "
            "the table, or read without readChangeFeed"
        )
    return StructType([*schema.fields, *_FIELDS])


def as_partition(change: FileChange) -> DataFile:
    """The file with the values of the feed's columns as partition values, which a reader in Python fills in."""
    committed = change.committed.astimezone(UTC).replace(tzinfo=None)
    values = {TID: change.tid, TIMESTAMP: committed.isoformat()}
    if change.kind != "recorded":  # else the rows of the file have the type
        values[TYPE] = change.kind
    return change.file._replace(partition={**change.file.partition, **values})


def from_partition(file: DataFile) -> FileChange:
    """The reverse of `as_partition`: the change from which that function made the file."""
    values = {name: str(file.partition[name]) for name in COLUMNS if name in file.partition}
    partition = {name: value for name, value in file.partition.items() if name not in COLUMNS}
    committed = datetime.fromisoformat(values[TIMESTAMP]).replace(tzinfo=UTC)
    kind: ChangeKind = "recorded" if TYPE not in values else "insert" if values[TYPE] == "insert" else "delete"
    return FileChange(file._replace(partition=partition), kind, values[TID], committed)


def columns_until(history: History, end: datetime | str | None) -> Mapping[str, Any] | None:
    """The recorded columns of the table at `end` (None: now), as an overwrite may have changed them since."""
    commits = history.commits
    if isinstance(end, datetime):
        commits = [commit for commit in commits if commit.modified <= end]
    elif end is not None:
        tids = [commit.tid for commit in commits]
        commits = commits[: tids.index(end) + 1 if end in tids else None]
    else:
        return history.metadata.schema
    return current_metadata(commit.marker for commit in commits).schema or history.metadata.schema


def refuse_other_types(history: History, changes: Iterable[FileChange], columns: Mapping[str, Any] | None) -> None:
    """Raises InvalidInputError if a file has a column of a type that cannot be read as the type in `columns`.

    Only an overwrite can change a type in such a way. Spark's own reader would cut off numbers, and raise no error.
    """
    if columns is None:
        return
    infos = {it.tid: it.marker.dbio_commit for it in history.commits}
    for tid in dict.fromkeys(change.file.tid for change in changes):
        info = infos.get(tid) if tid else None
        found = info.table_schema if info else None
        if found is not None and found != columns and (wrong := misfit(found, columns, is_read)):
            raise InvalidInputError(
                f"transaction {tid} of {history.url} wrote column {wrong}: an overwrite has changed the type between "
                "this transaction and the end of the feed; end the feed before that overwrite, or begin the feed after "
                "it (`dbio log` lists the commits)"
            )


def start_of(tid: str | None, time: str | datetime | None, *, default: Start | None = None) -> Start:
    """Where a stream or a feed begins. Raises InvalidInputError."""
    if tid is not None and time is not None:
        raise InvalidInputError("startingTid and startingTime are both given; set only one of them")
    if tid is not None:
        return Start(begin="tid", tid=tid)
    if time is not None:
        return Start(begin="time", time=parse_utc_time(time, what="startingTime"))
    if default is None:
        raise InvalidInputError("a change feed needs a start: the tid of its first commit, or a time; see `dbio log`")
    return default


def end_of(tid: str | None, time: str | datetime | None) -> datetime | str | None:
    """Where a feed ends; None is now. Raises InvalidInputError."""
    if tid is not None and time is not None:
        raise InvalidInputError("endingTid and endingTime are both given; set only one of them")
    return tid if tid is not None else None if time is None else parse_time(time, what="endingTime")
