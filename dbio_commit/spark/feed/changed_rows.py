"""Reads a change feed as a DataFrame: the rows that commits added and removed.

Spark's own reader reads the files of many commits in one scan, if it reaches the store. The path of a row's file
identifies the commit of the row.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Start
from dbio_commit.protocol.history import ChangeKind, FileChange, History
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.feed import columns as feeds
from dbio_commit.spark.read.located import FILE, metadata_root, number_files, with_file
from dbio_commit.spark.read.scan import ReadSpec, by_layout, files_in_workers, files_natively, union
from dbio_commit.spark.read.states import mark
from dbio_commit.spark.session import schema as schemas
from dbio_commit.table import Table


def changes_between(
    spark: SparkSession, table: Table, start: Start, end: datetime | str | None, *, net: bool
) -> DataFrame:
    """The changes by the commits from `start` to `end`, both included.

    With `net`, rows that a commit both deleted and inserted, as it wrote their file again, are left out.
    """
    history, changes = Follower(table.store, table.clock).changes(start, end)
    feeds.refuse_other_types(history, changes, feeds.columns_until(history, end))
    rows = frame_of(spark, table, columns_of(history, end), changes, net=net)
    if end is None:  # later changes would be among these rows
        mark(spark, rows, history)
    return rows


def frame_of(
    spark: SparkSession, table: Table, columns: StructType, changes: Sequence[FileChange], *, net: bool = False
) -> DataFrame:
    """The rows of these changes, with the columns of the table and of a feed. `net`: see `changes_between`."""
    schema = feeds.with_change_columns(columns, where=table.url)
    both = _both_ways(changes) if net else set[str]()
    carried = [change for change in changes if change.tid in both]
    plain = [change for change in changes if change.tid not in both]
    frames = [_frame(spark, table, columns, some) for some in _by_kind(plain) if some]
    if carried:
        *two, recorded = _by_kind(carried)
        came, went = (_frame(spark, table, columns, some) for some in two)
        frames += [_net(came, went, "insert"), _net(went, came, "delete")]
        frames += [_frame(spark, table, columns, recorded)] if recorded else []
    if not frames:
        return spark.createDataFrame([], schema)
    return union(frames).select(*map(schemas.quoted, schema.fieldNames()))


def columns_of(history: History, end: datetime | str | None = None) -> StructType:
    """The columns that the table has now, or had at the end of a feed.

    Raises InvalidInputError if no writer recorded columns.
    """
    recorded = feeds.columns_until(history, end)
    if recorded is None:
        raise InvalidInputError(
            f"no writer recorded the columns of {history.url}, which a read of its changes needs; write to the table "
            "with dbio first"
        )
    return schemas.from_json(recorded, where=history.url)


def _by_kind(changes: Sequence[FileChange]) -> list[list[FileChange]]:
    """The changes of each kind. Within a kind, no file occurs twice."""
    return [[change for change in changes if change.kind == kind] for kind in get_args(ChangeKind)]


def _both_ways(changes: Sequence[FileChange]) -> set[str]:
    """The tids of commits that may have carried rows over, as they both added and removed files."""
    came, went, _ = ({change.tid for change in some} for some in _by_kind(changes))
    return came & went


def _frame(spark: SparkSession, table: Table, columns: StructType, changes: Sequence[FileChange]) -> DataFrame:
    """The rows of changes of one kind, with the columns of a feed. No two changes are of the same file."""
    files = [change.file for change in changes]
    root = metadata_root(spark, table, files, columns)
    if root is None:
        spec = ReadSpec(table, feeds.with_change_columns(columns, where=table.url))
        return files_in_workers(spark, [feeds.as_partition(change) for change in changes], spec)
    of = {change.file.path: change for change in changes}
    return union([_natively(spark, root, table, columns, some, of) for some in by_layout(files)])


def _natively(
    spark: SparkSession,
    root: str,
    table: Table,
    columns: StructType,
    files: Sequence[DataFile],
    changes: Mapping[str, FileChange],
) -> DataFrame:
    """As `_frame`, for files with the same partition columns. `changes` has the change of each file, by its path."""
    is_recorded = changes[files[0].path].kind == "recorded"  # all changes are of the same kind
    schema = StructType([*columns.fields, *([feeds.TYPE_FIELD] if is_recorded else [])])
    frame = with_file(files_natively(spark, root, table, files, schema))
    numbered = {number: changes[file.path] for number, file in number_files(frame, root, files).items()}
    of_files = [(number, it.kind, it.tid, it.committed.astimezone(UTC)) for number, it in numbered.items()]
    commits = f.broadcast(spark.createDataFrame(of_files, f"{FILE} long, {_KIND} string, {feeds.DDL_OF_COMMIT}"))
    rows = frame.join(commits, FILE, "left")
    unknown = f.raise_error(f.concat(f.lit("bug in dbio_commit: no commit is known for the file "), f.col(FILE)))
    known = f.coalesce(f.col(_KIND), unknown.cast("string"))  # an error, so that no row is lost silently
    kind = f.when(known == "recorded", f.col(feeds.TYPE)) if is_recorded else known
    names = map(schemas.quoted, columns.fieldNames())
    return rows.select(*names, kind.alias(feeds.TYPE), feeds.TID, feeds.TIMESTAMP)


_KIND = "_dbio_kind"


def _net(rows: DataFrame, others: DataFrame, kind: ChangeKind) -> DataFrame:
    """The rows, all of this kind, without those that `others` has with the same commit (by count, as EXCEPT ALL)."""
    return rows.drop(feeds.TYPE).exceptAll(others.drop(feeds.TYPE)).withColumn(feeds.TYPE, f.lit(kind))
