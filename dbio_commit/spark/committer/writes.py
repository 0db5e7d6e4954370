"""The Parquet writes of a session with `enable(parquet=True)`: which are transactions, and how these run."""

import base64
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType, TimestampType

from dbio_commit.base.errors import DbioError, InvalidInputError, SchemaMismatchError, UnsupportedTableError
from dbio_commit.base.logs import get_logger
from dbio_commit.base.options import Mode
from dbio_commit.commit.begin import has_committed
from dbio_commit.commit.options import NOTE_OPTIONS, CommitOptions, NoteKeywords, app_option, note_options
from dbio_commit.commit.transaction import Transaction
from dbio_commit.commit.write.options import WriteOptions
from dbio_commit.data.footers import parse_footer, refuse
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.versions import AppVersion, parse_version
from dbio_commit.spark.committer.command import Command
from dbio_commit.spark.read.states import Reads, explained
from dbio_commit.spark.session.conf import open_table
from dbio_commit.spark.session.schema import has_variant
from dbio_commit.spark.versions import read_texts_as
from dbio_commit.spark.write.constraints import check_files
from dbio_commit.spark.write.plan import WritePlan, plan_write
from dbio_commit.store import Location, parse_location
from dbio_commit.table import Table

_log = get_logger(__name__)

APP = "spark.dbio.app"
"""The setting with an application and its version, such as "nightly:2026-11-20": a table commits it at most once."""

SETTINGS = "spark.dbio."
"""The settings `spark.dbio.message` and `spark.dbio.labels` are as the options of these names (`NOTE_OPTIONS`)."""

_SETTING = re.compile(r"(.+?):(\d{4}-\d\d-\d\d(?:T[\d:]+(?:Z|[+-][\d:]+)?)?)|(.+):(\d+)", re.ASCII | re.DOTALL)
"""An id may contain colons, and end like a day. A number after the last colon is the version then."""

# --- is it a transaction? -----------------------------------------------------------------------------------------


def is_transaction(path: str, table: str, roots: Iterable[Location], *, deletes: bool = False) -> bool:
    """Whether the write to the path is a transaction. `table` is the table at the path or above it, "" if none.

    Raises InvalidInputError if the path is inside a table, and if the write `deletes` everything below the path, and
    that includes a root.
    """
    place, roots = _location(path), [_resolved(root) for root in roots]
    if table and _location(table) != place:
        if _HIVE_STAGING in path:
            raise InvalidInputError(
                f"Hive's own writer would move files into the table {table}; let Spark write it: set "
                "spark.sql.hive.convertMetastoreParquet to true"
            )
        raise InvalidInputError(
            f"{path} is a partition of the table {table}; write to the table, with partitionBy or INSERT … PARTITION"
        )
    if table or place is None:
        return bool(table)
    resolved = _resolved(place)
    if any(_contains(root, resolved) for root in roots):
        return True
    if deletes and (below := [root.url for root in roots if _contains(resolved, root)]):
        raise InvalidInputError(
            f"an overwrite of {path} would delete {below[0]}, a root for dbio tables; write to another path"
        )
    return False


_HIVE_STAGING = "/.hive-staging"
"""Hive writes files below such a directory, and then moves them up."""


def _location(path: str) -> Location | None:
    """The location; None for a file system that cannot hold a table, such as hdfs:."""
    try:
        return parse_location(path)
    except InvalidInputError:
        return None


def _resolved(place: Location) -> Location:
    """The place; on a disk, with symbolic links resolved."""
    return replace(place, prefix=os.path.realpath(place.prefix)) if place.scheme == "file" else place


def _contains(root: Location, place: Location) -> bool:
    same = (root.scheme, root.container) == (place.scheme, place.container)
    above = f"{root.prefix.rstrip('/')}/" if root.prefix else ""
    return same and (root.account in (None, place.account)) and place.key_prefix.startswith(above)


# --- the transaction ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """A write that has begun."""

    spark: SparkSession
    plan: WritePlan
    transaction: Transaction
    etags: frozenset[str]
    """The states of its own table that it reads to replace rows."""

    @property
    def table(self) -> Table:
        return self.plan.table

    @property
    def mark(self) -> str:
        """A text that is in the names of its files, and in those of no other write."""
        return f"tid-{self.transaction.tid}-{self.transaction.terms.job}"


MICROS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Settings of Spark for the files. INT96, its default type of timestamps, has no statistics that readers can use."""


def begin(spark: SparkSession, command: Command, path: str, *, dynamic: bool, replaces: bool) -> Write:
    """Checks the write as `dbio.write` does, and begins its transaction.

    `dynamic`: it overwrites the partitions that it writes to. `replaces`: without dbio, Spark would delete what exists.
    """
    if command.format != "parquet":
        raise InvalidInputError(
            f"{path} is a table, or below a root for tables, and tables hold Parquet; write {command.format} elsewhere"
        )
    _refuse_settings(spark, command.schema, command.partition_columns, path)
    table = open_table(spark, path, None)
    app = app_of(spark, command.options)
    mode, static = _mode(command, dynamic=dynamic, replaces=replaces), dict(command.static_partition)
    plan = plan_write(
        table,
        command.schema,
        mode=mode,
        partition_by=command.partition_columns or None,
        options=WriteOptions(merge_schema=command.options.get("mergeschema", "").lower() == "true"),
        commit=CommitOptions(app=app, **note_of(spark, command.options)),
    )
    _check_native(plan, command)
    etags = frozenset[str]()
    if mode != "append":
        etags = Reads.of_statement(spark, command.query, None).of_table(plan.table_id)
    transaction = plan.based_on(etags).begin(skipped=has_committed(table.store, table.clock, app))
    if mode == "overwrite_partitions" and static and not dynamic:
        transaction.overwrite_partition(static)
    return Write(spark, plan, transaction, etags)


def commit(write: Write, lines: Iterable[str]) -> None:
    """Commits the files that the winning attempts reported, each as a line with its size, footer and path.

    Raises InvalidInputError, before anything is deleted, if one of them is no file of this write.
    """
    store = write.table.store
    files = [_file_info(line, write) for line in lines]
    empty = [file.path for file in files if file.rows == 0]  # Spark writes an empty file if there are no rows
    store.delete_many(empty)
    full = [file for file in files if file.rows != 0]
    write.transaction.add(full, looked_at=True)
    write.transaction.require_files()
    store.make_durable([file.path for file in full])
    if write.plan.constraints:
        read_texts_as(write.spark)
        check_files(write.spark, write.plan, full)
        write.transaction.vouch_for_rows()
    with explained(write.etags):
        write.transaction.commit(schema=write.plan.schema_to_record)


def abort(write: Write) -> None:
    """Aborts the transaction, if it is not committed. A failure is only logged: Spark raises another error already.

    Vacuum deletes the files: only attempts that ended have reported theirs.
    """
    try:
        write.transaction.abort()
    except DbioError as error:
        _log.warning("%s: could not abort %s, vacuum will: %s", write.table.url, write.transaction.tid, error)


def _file_info(line: str, write: Write) -> FileInfo:
    size, footer, path = line.split("\t", 2)
    where = write.table.store.url_of(path)
    directory, name = names.split(path)
    if not names.is_data_file(path) or f"-{write.mark}-" not in name:
        raise InvalidInputError(f"{where!r:.500} is no file of this write, {write.mark}; nothing was committed")
    read = parse_footer(base64.b64decode(footer), path, size=int(size))
    refuse(read, where)
    partition = names.parse_partition(directory)
    return FileInfo(path=path, size=read.size, rows=read.rows, partition=partition, statistics=read.statistics)


def _mode(command: Command, *, dynamic: bool, replaces: bool) -> Mode:
    match command.mode:
        case "Append":
            return "append"
        case "Overwrite" if dynamic or command.static_partition:
            return "overwrite_partitions"
        case "Overwrite":
            return "overwrite"
        case _:  # Spark has checked that nothing is there, unless it deletes what is there
            return "overwrite" if replaces else "error"


def app_of(spark: SparkSession, options: Mapping[str, str]) -> AppVersion | None:
    """The application and its version, from the write's options, or else from the session's setting."""
    setting = spark.conf.get(APP, None)
    if (app := app_option(options)) is not None or not setting:
        return app
    if found := _SETTING.fullmatch(setting):
        with suppress(ValueError):
            return found[1] or found[3], parse_version(found[2] or found[4])
    raise InvalidInputError(
        f'{APP} is {setting!r:.200}, not an application and its version, such as "orders:17", "nightly:2026-11-20" or '
        '"hourly:2026-11-20T13:00:00"'
    )


def note_of(spark: SparkSession, options: Mapping[str, str] | None = None) -> NoteKeywords:
    """The message and the labels of the commit, by the write's options, or else by the session's settings."""
    settings = {name: text for it in NOTE_OPTIONS if (text := spark.conf.get(name := f"{SETTINGS}{it}", None))}
    return {**note_options(settings, prefix=SETTINGS), **note_options(options or {})}


def _refuse_settings(spark: SparkSession, schema: StructType, columns: Sequence[str], path: str) -> None:
    """Raises InvalidInputError for settings with which Spark would write values that readers misread."""
    lower = {column.lower() for column in columns}
    zone = spark.conf.get("spark.sql.session.timeZone")
    for field in schema.fields:
        if field.name.lower() in lower and isinstance(field.dataType, TimestampType) and zone not in _UTC:
            raise InvalidInputError(
                f"the table {path} names the partitions of {field.name!r} in UTC, and this session would name them in "
                f"{zone}; set spark.sql.session.timeZone to UTC, or use dbio.write"
            )
    if str(spark.conf.get(_REBASE)).upper() == "LEGACY":
        raise InvalidInputError(f"{_REBASE} is LEGACY: most readers would misread dates before 1582; unset it")


_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")
_REBASE = "spark.sql.parquet.datetimeRebaseModeInWrite"


def _check_native(plan: WritePlan, command: Command) -> None:
    """Raises SchemaMismatchError for data that `dbio.write` would convert: Spark's own writer converts nothing."""
    mapping, where = plan.mapping, plan.table.url
    if has_variant(command.schema):
        raise InvalidInputError(
            f"the data for {where} has a variant, of which Spark's own writer makes columns that other readers do not "
            "read: use dbio.write, INSERT into the catalog dbio, or to_json"
        )
    if plan.filled:
        raise SchemaMismatchError(
            f"the data lacks the column {plan.filled[0]!r} of {where}, which dbio.write fills in, and Spark's own "
            "writer does not: give the column, or use dbio.write"
        )
    if not plan.target.records_columns:
        raise UnsupportedTableError(
            f"{where} has files, and no {names.DESCRIPTOR}: in this session, Spark's own writer can write to dbio "
            "tables only. Make it one with `dbio adopt`, or use dbio.write"
        )
    if plan.changes_layout or command.partition_columns != mapping.partition_columns:
        own = plan.target.partition_columns or ()
        raise SchemaMismatchError(
            f"{where} is partitioned by {list(own)}, and this write by {list(command.partition_columns)}; write with "
            f"partitionBy({', '.join(map(repr, own))}), or change them: dbio.write(…, mode='overwrite', partition_by=…)"
        )
    given = command.schema.fieldNames()
    respelled = [name for position, name in mapping.columns if position is not None and given[position] != name]
    lacking = {name for position, name in mapping.columns if position is None}  # readers take them for null
    if others := [*respelled, *(name for name in mapping.casts if name not in lacking)]:
        types = ", ".join(f"{name} {plan.schema[name].dataType.simpleString()}" for name in dict.fromkeys(others))
        raise SchemaMismatchError(
            f"{where} has the columns {types}; this write spells them differently, or has other types, and Spark would "
            "write them as they are. Rename or cast them, or use dbio.write, which does this"
        )
