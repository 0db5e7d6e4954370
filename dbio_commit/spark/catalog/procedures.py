"""CALL dbio.system.…: procedures, which do what methods of `Table` do, and return rows. Spark has CALL since 4.0."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.maintenance.compact.options import TARGET_BYTES, CompactOptions
from dbio_commit.maintenance.vacuum.report import HISTORY_DAYS, RunSummary
from dbio_commit.protocol import names
from dbio_commit.spark.catalog.changes import changed_rows, moment
from dbio_commit.spark.catalog.roots import path_of
from dbio_commit.spark.committer.writes import note_of
from dbio_commit.spark.functions import HISTORY_COLUMNS, history_row
from dbio_commit.spark.read.scan import scan
from dbio_commit.spark.rewrite.compaction import compact_in_tasks
from dbio_commit.spark.session.conf import java_class, open_table
from dbio_commit.spark.session.schema import quoted
from dbio_commit.spark.versions import as_java, local_rows
from dbio_commit.table import Table, snapshots

MOST_ROWS = 10_000
"""The most rows that `changes` returns: Spark takes the rows of a procedure into the driver's memory."""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str
    """As in CREATE TABLE."""
    comment: str
    default: str = ""
    """In SQL; "" if an argument must be given."""


_TABLE = Parameter("table", "STRING", "the name of the table in SQL, or its path")
_TABLES = Parameter("tables", "ARRAY<STRING>", "the names of the tables in SQL, or their paths")


@dataclass(frozen=True, slots=True)
class Procedure:
    comment: str
    run: Callable[..., DataFrame]
    """Gets the session, the table or the tables, and an argument for each parameter, by its name."""
    more: Sequence[Parameter] = field(default=())
    """The parameters after the table."""
    first: Parameter = _TABLE

    def call(
        self, spark: SparkSession, find: Callable[[str | None], Table], given: Any, arguments: Sequence[Any]
    ) -> DataFrame:
        """Its rows. `find` finds a table by its name. Raises what it raises, InvalidInputError for a NULL that means
        nothing, and what the method of `Table` raises."""
        options = dict(zip((it.name for it in self.more), arguments, strict=True))
        for it in self.more:
            if options[it.name] is None and it.default != "NULL":
                raise InvalidInputError(f"{it.name} is NULL; give a value: {it.comment}")
        own = find(given) if self.first is _TABLE else [find(it) for it in given or ()]
        return self.run(spark, own, **options)

    def described(self) -> str:
        """As `Procedure.java` reads it."""
        parameters = [self.first, *self.more]
        each = [text for it in parameters for text in (it.name, it.type, it.default, it.comment)]
        return "\0".join([self.comment, *each])


def named(name: str) -> Procedure:
    """The procedure with this name. Raises InvalidInputError if there is none."""
    found = PROCEDURES.get(name.lower())
    if found is None:
        known = ", ".join(f"dbio.system.{it}" for it in PROCEDURES)
        raise InvalidInputError(f"the catalog dbio has no procedure {name!r:.100}; it has {known}")
    return found


def table_of(spark: SparkSession, roots: Mapping[str, str], catalog: str, text: str | None) -> Table:
    """The table with a name as in SQL, such as `dbio.lake.events`, or at a path.

    Raises InvalidInputError if it is no dbio table, and Spark's error if there is no such name.
    """
    if not text:
        raise InvalidInputError(
            "a procedure needs a table: the name of one in SQL, such as dbio.lake.events, or a path"
        )
    if "/" in text and "`" not in text:
        return open_table(spark, text, None)
    session: Any = spark._jsparkSession
    parser: Any = session.sessionState().sqlParser()
    parts = [str(part) for part in as_java(spark._jvm, parser.parseMultipartIdentifier(text))]
    if parts[0] == catalog and (path := path_of(roots, parts[1:])) is not None:
        return open_table(spark, path, None)
    found: Any = spark.table(text)  # by the current catalog and namespace; or Spark's error
    location = java_class(spark._jvm, "dbio_commit.SqlTable").locationOf(found._jdf.queryExecution().analyzed())
    if location is None:
        raise InvalidInputError(f"{text!r:.200} is no dbio table; name one as in SELECT, or give its path")
    return open_table(spark, location, None)


# --- the procedures -----------------------------------------------------------------------------------------------


def _history(spark: SparkSession, table: Table) -> DataFrame:
    return _frame(spark, HISTORY_COLUMNS, map(history_row, table.history()))


def _vacuum(spark: SparkSession, table: Table, **options: Any) -> DataFrame:
    report = table.vacuum(spark=spark, **options)
    short = RunSummary.of(report)
    row = (
        short.dry_run,
        len(report.deleted),
        sum(it.size for it in report.deleted),
        short.aborted,
        short.failed,
        short.kept,
        short.checkpoint,
        [*(f"{it.path}: {it.message}" for it in short.failures), *short.warnings],
    )
    columns = (
        "dry_run boolean, deleted bigint, deleted_bytes bigint, aborted bigint, failed bigint, kept bigint, "
        "checkpoint string, notes array<string>"
    )
    return _frame(spark, columns, [row])


def _compact(
    spark: SparkSession, table: Table, dry_run: bool, sort_by: Sequence[str], z_order: Sequence[str], **options: Any
) -> DataFrame:
    compact_options = CompactOptions(sort_by=tuple(sort_by), z_order=tuple(z_order), **options)
    report = compact_in_tasks(spark, table, compact_options, dry_run=dry_run, note=table.note(**note_of(spark)))
    columns = (
        "dry_run boolean, files_before bigint, bytes_before bigint, files_after bigint, bytes_after bigint, "
        "left_files bigint, commits array<string>, notes array<string>"
    )
    told = "{} files had columns of other types than the table"
    row = (
        report.dry_run,
        report.files_before,
        report.bytes_before,
        report.files_after,
        report.bytes_after,
        sum(len(it.paths) for it in report.left),
        [*report.commits],
        [
            *dict.fromkeys(it.reason for it in report.left),
            *([] if report.other_types is None else [told.format(report.other_types)]),
        ],
    )
    return _frame(spark, columns, [row])


def _restore(spark: SparkSession, table: Table, as_of: str | None) -> DataFrame:
    return _frame(spark, HISTORY_COLUMNS, [history_row(table.restore(moment(spark, as_of, "as_of"), **note_of(spark)))])


def _checkpoint(spark: SparkSession, table: Table, rebuild: bool) -> DataFrame:
    return _frame(spark, "checkpoint string", [(table.checkpoint(rebuild),)])


def _publish(spark: SparkSession, table: Table, to: Sequence[str]) -> DataFrame:
    columns = "format string, number bigint, tid string, files bigint, added bigint, removed bigint, is_new boolean"
    published = table.publish([*to])
    return _frame(
        spark,
        columns,
        [(str(it.format), it.number, it.tid, it.files, it.added, it.removed, it.is_new) for it in published],
    )


def _changes(spark: SparkSession, table: Table, start: str | None, end: str | None, net: bool) -> DataFrame:
    some: Any = changed_rows(spark, table, start, end, net).limit(MOST_ROWS + 1)
    found = DataFrame(java_class(spark._jvm, "dbio_commit.Frames").collected(spark._jsparkSession, some._jdf), spark)
    if found.count() > MOST_ROWS:
        raise InvalidInputError(
            f"there are more than {MOST_ROWS:,} rows, and CALL keeps its rows in memory; use SELECT * FROM "
            f"dbio_changes({table.url!r}, …), or a smaller range"
        )
    return found


def _read_together(spark: SparkSession, tables: Sequence[Table], views: Sequence[str], as_of: str | None) -> DataFrame:
    """Makes a temporary view of each table, all of one moment."""
    views = views or [names.split(table.url)[1] for table in tables]
    if len(views) != len(tables) or len({it.lower() for it in views}) < len(views):
        raise InvalidInputError(f"views has {[*views]}; give {len(tables)} names that differ, one for each table")
    found = snapshots(tables, None if as_of is None else moment(spark, as_of, "as_of"))
    frames = [scan(spark, *it, is_now=as_of is None) for it in zip(tables, found, strict=True)]
    for view, frame in zip(views, frames, strict=True):
        frame.createOrReplaceTempView(quoted(view))
    rows = [(view, it.url, it.tid, len(it.files)) for view, it in zip(views, found, strict=True)]
    return _frame(spark, "view string, table string, tid string, files bigint", rows)


def _frame(spark: SparkSession, columns: str, rows: Iterator[tuple[Any, ...]] | Sequence[tuple[Any, ...]]) -> DataFrame:
    """A DataFrame of rows that are in memory, for which no job runs."""
    from pyspark.sql.pandas.types import to_arrow_schema

    own = to_arrow_schema(cast(StructType, StructType.fromDDL(columns)), timezone="UTC")
    each = [*rows]
    arrays = [pa.array([row[i] for row in each], it.type) for i, it in enumerate(own)]
    return local_rows(spark, pa.table(arrays, schema=own))


_DRY_RUN = Parameter("dry_run", "BOOLEAN", "whether nothing is changed", "false")

PROCEDURES: Mapping[str, Procedure] = {
    "history": Procedure("the commits of a table, newest first", _history),
    "vacuum": Procedure(
        "deletes what no reader needs any more",
        _vacuum,
        (
            Parameter("retention_hours", "DOUBLE", "how long removed files stay", "48.0D"),
            _DRY_RUN,
            Parameter("force", "BOOLEAN", "allows a retention of less than 1 hour", "false"),
            Parameter("untracked", "BOOLEAN", "also deletes old files that no transaction wrote", "false"),
            Parameter("checkpoint_after", "INT", "after so many commits, a checkpoint is written", "20"),
            Parameter("history_days", "DOUBLE", "how long the history remembers commits", f"{HISTORY_DAYS}D"),
        ),
    ),
    "compact": Procedure(
        "makes large files of small ones, with the same rows",
        _compact,
        (
            Parameter("target_size", "BIGINT", "about how large the new files are, in bytes", f"{TARGET_BYTES}L"),
            Parameter("where", "STRING", "a condition that chooses files", "NULL"),
            Parameter("sort_by", "ARRAY<STRING>", "columns by which rows are sorted in a file", "array()"),
            _DRY_RUN,
            Parameter("z_order", "ARRAY<STRING>", "columns along whose Z-curve the rows lie", "array()"),
            Parameter("min_files", "INT", "fewer files than this stay as they are", "1"),
            Parameter("rewrite_types", "BOOLEAN", "also rewrites files of narrower types than the table", "false"),
            Parameter("full", "BOOLEAN", "of a clustered table: rewrites all files", "false"),
            Parameter("most", "BIGINT", "of a clustered table: bytes that are rewritten together", "NULL"),
        ),
    ),
    "restore": Procedure(
        "brings back an earlier state",
        _restore,
        (Parameter("as_of", "STRING", "the tid of a commit, or a time"),),
    ),
    "checkpoint": Procedure(
        "writes the state of the log into one object",
        _checkpoint,
        (Parameter("rebuild", "BOOLEAN", "replaces a checkpoint that cannot be read", "false"),),
    ),
    "publish": Procedure(
        "publishes the table for other engines",
        _publish,
        (Parameter("to", "ARRAY<STRING>", "one or more of delta, iceberg, spark and symlink"),),
    ),
    "read_together": Procedure(
        "makes temporary views of several tables at one moment",
        _read_together,
        (
            Parameter("views", "ARRAY<STRING>", "the names of the views; by default those of the tables", "array()"),
            Parameter("as_of", "STRING", "a time", "NULL"),
        ),
        _TABLES,
    ),
    "changes": Procedure(
        "the rows that commits inserted and deleted, if they are few; dbio_changes has no limit",
        _changes,
        (
            Parameter("start", "STRING", "the tid of the first commit, or a time"),
            Parameter("end", "STRING", "the tid of the last commit, or a time", "NULL"),
            Parameter("net", "BOOLEAN", "leaves out rows that a commit only carried over", "false"),
        ),
    ),
}
