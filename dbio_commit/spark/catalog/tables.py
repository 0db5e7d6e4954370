"""Snapshots of tables for queries in SQL: how Spark reads one, and which files a condition leaves out.

Spark keeps a `SqlTable` for each table in a plan, and this process keeps the snapshots of the last few of them. If
Spark asks for another one, its snapshot is read again.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from cachetools import LRUCache
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from dbio_commit.base.errors import HistoryLostError, InvalidInputError, TableNotFoundError
from dbio_commit.base.forks import ProcessLock
from dbio_commit.data.conditions.pruning import column_types
from dbio_commit.data.counts import Extreme, count_rows, may_hold_extremes
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import time_at
from dbio_commit.protocol.commits import AsOf
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.names import is_tid
from dbio_commit.protocol.partitions import partition_types, refuse_unread
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import DataFile, FilesInParts, LiveFiles, total_size
from dbio_commit.protocol.subtrees import Subtrees
from dbio_commit.protocol.types import type_of
from dbio_commit.spark.catalog.creation import FACTS
from dbio_commit.spark.committer.writes import note_of
from dbio_commit.spark.read.file_index import index_of, nullable, relation_by_index
from dbio_commit.spark.read.infer import table_schema
from dbio_commit.spark.read.scan import ReadSpec, files_in_workers, files_root, known_schema, prune, sized
from dbio_commit.spark.read.states import identity_of, refresh_cached, state_text
from dbio_commit.spark.session.conf import java_class, open_table
from dbio_commit.table import Table

_MOST_FILES = 2_000_000
"""At most so many files are kept in snapshots, unless the last snapshot alone has more."""
_FILES_OF_ALL = 20_000
"""What each snapshot counts in addition to its files, so that there are at most 100 snapshots."""


@dataclass(frozen=True, slots=True)
class SqlSnapshot:
    """A snapshot that a query reads."""

    table: Table
    snapshot: Snapshot
    schema: StructType
    root: str | None = None
    """The URL of the table, as the query spells it for Spark's connectors. If it is None, dbio chooses one."""

    @property
    def weight(self) -> int:
        return min(_MOST_FILES, _FILES_OF_ALL + len(self.snapshot.files))


class SqlTables:
    """The snapshots that queries read, by their tokens. A token names the table and its state."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._kept: LRUCache[str, SqlSnapshot] = LRUCache(_MOST_FILES, getsizeof=lambda it: it.weight)

    def load(self, spark: SparkSession, name: str, path: str, as_of: AsOf) -> Any:
        """The table as a `SqlTable` of the JVM. Raises TableNotFoundError, InvalidInputError, StoreError."""
        found = _read(open_table(spark, path, None), as_of)
        return self._as_table(spark, name, self._keep(path, found), found, found.schema.fields)

    def load_for_files(self, spark: SparkSession, root: str) -> Any:
        """As `load`, for reads of Parquet at this URL: with partition columns last, as Spark's reader has them.

        A table without a commit has no rows; and no columns, unless some are recorded. None if the table is being
        dropped.
        """
        table = open_table(spark, root, None)
        try:
            snapshot = table.snapshot()
        except TableNotFoundError:
            return None
        found = SqlSnapshot(table, snapshot, table_schema(table.store, snapshot) or StructType(), root)
        by = {column.lower() for column in snapshot.partition_columns}
        fields = sorted(found.schema.fields, key=lambda it: it.name.lower() in by)
        return self._as_table(spark, f"parquet.`{root}`", self._keep(root, found), found, fields)

    def _keep(self, path: str, found: SqlSnapshot) -> str:
        """Remembers the snapshot. Returns its token."""
        token = state_text(path, found.snapshot, found.root)
        with self._lock:
            self._kept[token] = found
        return token

    def _as_table(
        self, spark: SparkSession, name: str, token: str, found: SqlSnapshot, fields: Sequence[StructField]
    ) -> Any:
        snapshot = found.snapshot
        properties = {**snapshot.settings, "provider": "dbio", "location": snapshot.url, "external": "true"}
        by = {field.name.lower(): field.name for field in found.schema.fields}
        columns = [by[column.lower()] for column in snapshot.partition_columns if column.lower() in by]
        schema = nullable(spark, _with_defaults(fields, Constraints.of(snapshot.settings).defaults).fields)
        kind = java_class(spark._jvm, "dbio_commit.SqlTable")
        return kind(name, identity_of(snapshot), token, schema, "\0".join(columns), properties)

    def find(self, spark: SparkSession, token: str) -> SqlSnapshot:
        """The snapshot with this token. Raises HistoryLostError if it is not known any more."""
        with self._lock:
            if found := self._kept.get(token):
                return found
        path, tid, etag, _, root = json.loads(token)
        found = replace(_read(open_table(spark, path, None), tid), root=root)
        if found.snapshot.etag != etag:
            raise HistoryLostError(
                f"the state of {found.snapshot.url} that this query began with is not known any more; make the "
                "DataFrame again, or run the query again"
            )
        with self._lock:
            self._kept[token] = found
        return found

    def rows(self, spark: SparkSession, token: str) -> Any:
        """A HadoopFsRelation with the snapshot's files; or a Dataset, if Spark itself cannot read them."""
        found = self.find(spark, token)
        table, snapshot = found.table, found.snapshot
        root = found.root or files_root(spark, table, snapshot.files)
        if root is None and not snapshot.files and table.location is not None:
            root = table.location.hadoop_url()
        relation = None if root is None else self._relation(spark, token, found, root, found.schema)
        if relation is not None:
            return relation
        frame: Any = files_in_workers(spark, snapshot.files, ReadSpec(table, found.schema))
        return frame._jdf

    def rows_as(self, spark: SparkSession, token: str, schema: str, options: Mapping[str, str]) -> Any:
        """As `rows`, for a snapshot of `load_for_files`, with these columns as JSON instead of the table's.

        Partition columns that are missing among them are added, as Spark's reader does. `options` are those of the
        reader.
        """
        found = self.find(spark, token)
        given: StructType = StructType.fromJson(json.loads(schema))
        own = {field.name.lower(): field for field in found.schema.fields}
        named = {field.name.lower() for field in given.fields}
        by = [column.lower() for column in found.snapshot.partition_columns]
        columns = StructType([*given.fields, *(own[it] for it in by if it in own and it not in named)])
        # A condition on a column of another type means something else to the statistics.
        skips = all(own.get(it.name.lower(), it).dataType == it.dataType for it in columns.fields)
        assert found.root is not None
        relation = self._relation(spark, token, found, found.root, columns, options, skips=skips)
        if relation is None:
            raise InvalidInputError(
                f"{found.snapshot.url} is partitioned by {', '.join(by)}, and its columns are not known; read it with "
                "dbio.read"
            )
        return relation

    def _relation(
        self,
        spark: SparkSession,
        token: str,
        found: SqlSnapshot,
        root: str,
        schema: StructType,
        options: Mapping[str, str] = MappingProxyType({}),
        *,
        skips: bool = True,
    ) -> Any:
        """A HadoopFsRelation with these columns; None if one of the partition columns is missing."""
        table, snapshot = found.table, found.snapshot
        refuse_unread(snapshot.files, partition_types(snapshot.schema, snapshot.partition_columns), where=table.url)
        listed = replace(snapshot, files=sized(table, snapshot.files))

        def skipping(index: Any) -> Any:
            return java_class(spark._jvm, "dbio_commit.SkippingIndex")(index, spark._jsparkSession, token, skips)

        return relation_by_index(spark, root, listed, schema, options, skipping)

    def files(self, spark: SparkSession, token: str, below: Sequence[str]) -> Any:
        """An index, without partition columns, of the files of a snapshot of `load_for_files` below these directories.

        They are relative to the root, which is "".
        """
        found = self.find(spark, token)
        assert found.root is not None
        return _unpartitioned(spark, found.root, _below(found, below))

    def directory(self, spark: SparkSession, root: str) -> Any:
        """Such an index of the visible Parquet files of a directory of DBIO, at this URL; None if it is dropped."""
        table = open_table(spark, root, None)
        try:
            return _unpartitioned(spark, root, sized(table, table.snapshot().files))
        except TableNotFoundError:
            return None

    def counts(self, spark: SparkSession, token: str, columns: str) -> Any:
        """An index with a directory for each partition that has rows, or None if the counts are not known.

        In a directory, the size of the first file is the number of rows plus 1. For each of the columns there is one
        more file, whose size is the number of values that are not null, plus 1. So Spark reads the values of partition
        columns as those of a scan.
        """
        found = self.find(spark, token)
        snapshot, wanted = found.snapshot, columns.split("\0") if columns else []
        types = column_types(snapshot.schema or {})
        if snapshot.scope is not Scope.TABLE or not all(_is_one_value(types.get(column, "")) for column in wanted):
            return None
        counted = count_rows(snapshot.files, snapshot.of_files, wanted)
        if counted is None:
            return None
        refuse_unread(snapshot.files, partition_types(snapshot.schema, snapshot.partition_columns), where=snapshot.url)
        files = [
            DataFile(f"{i}/{j}", count + 1, None, dict(zip(snapshot.partition_columns, values, strict=True)))
            for i, (values, counts) in enumerate(counted.items())
            if counts[0]
            for j, count in enumerate(counts)
        ]
        return index_of(spark, "file:/", files, _fields(found.schema, snapshot.partition_columns), "UTC")

    def skip(self, spark: SparkSession, token: str, condition: str) -> str:
        """Which files cannot hold rows that fulfil the condition: "leave" and their paths, or "keep" and the others."""
        snapshot = self.find(spark, token).snapshot
        return _chosen(snapshot, prune(spark, snapshot, condition).files)

    def extremes(self, spark: SparkSession, token: str, wanted: str) -> str:
        """Which files may hold these values, as `skip` answers: "min" or "max", and a column, in turns. "" for all."""
        snapshot = self.find(spark, token).snapshot
        each, types = iter(wanted.split("\0")), column_types(snapshot.schema or {})
        given = [
            Extreme(column, types.get(column, ""), which == "max") for which, column in zip(each, each, strict=True)
        ]
        if snapshot.scope is not Scope.TABLE or not all(it.kind for it in given):
            return ""
        kept = may_hold_extremes(snapshot.files, snapshot.of_files, given)
        return _chosen(snapshot, kept) if len(kept) < len(snapshot.files) else ""

    def partitions(self, spark: SparkSession, token: str) -> str:
        """The values of the partition columns of each partition that has files, as in names of directories."""
        snapshot = self.find(spark, token).snapshot
        columns = snapshot.partition_columns
        return "\0".join(
            names.HIVE_NULL if partition[column] is None else names.escape(str(partition[column]))
            for partition in _partitions(snapshot)
            for column in columns
        )

    def drop_partitions(self, spark: SparkSession, token: str, values: str) -> None:
        """Removes the rows of these partitions, whose values are as `partitions` gives them, in one commit."""
        found = self.find(spark, token)
        columns, texts = found.snapshot.partition_columns, values.split("\0")
        with found.table.begin("overwrite_partitions", **note_of(spark)) as transaction:
            for start in range(0, len(texts), len(columns)):
                given = zip(columns, texts[start : start + len(columns)], strict=True)
                transaction.overwrite_partition(
                    {column: None if text == names.HIVE_NULL else names.unescape(text) for column, text in given}
                )
        refresh_cached(spark, found.table)

    def facts(self, spark: SparkSession, token: str) -> str:
        """How large the snapshot is, and of which commit, for DESCRIBE EXTENDED."""
        snapshot = self.find(spark, token).snapshot
        facts = {"tid": snapshot.tid or "", "files": len(snapshot.files), "bytes": total_size(snapshot.files)}
        if snapshot.partition_columns:
            facts["partitions"] = len(_partitions(snapshot))
        return "\0".join(text for name, value in facts.items() for text in (f"{FACTS}{name}", str(value)))


def _below(found: SqlSnapshot, below: Sequence[str]) -> Iterable[DataFile]:
    """The files in these directories, with their sizes."""
    snapshot = found.snapshot
    if not all(below):
        return sized(found.table, snapshot.files)
    if len({it.count("/") for it in below}) == 1:  # of a large table, only what may have them is read
        snapshot = snapshot.below(Subtrees(below))
    starts = tuple(f"{it}/" for it in below)
    return sized(found.table, LiveFiles.of([file for file in snapshot.files if file.path.startswith(starts)]))


def _unpartitioned(spark: SparkSession, root: str, files: Iterable[DataFile]) -> Any:
    if isinstance(files, FilesInParts):
        files = files.whole()
    return index_of(spark, root, (file._replace(partition={}) for file in files), (), "UTC")


def _chosen(snapshot: Snapshot, kept: Sequence[DataFile]) -> str:
    """These files of the snapshot: "keep" and their paths, or "leave" and the others, whatever are fewer."""
    if 2 * len(kept) < len(snapshot.files):
        return _texts("keep", [file.path for file in kept])
    if len(kept) == len(snapshot.files):
        return "leave"
    paths = {file.path for file in kept}
    return _texts("leave", [file.path for file in snapshot.files if file.path not in paths])


def _is_one_value(kind: str) -> bool:
    """Whether a value of this type is one value in Parquet, so that its nulls are those that Parquet counts."""
    known = type_of(kind)
    return known is not None and known.bound is not None


def _fields(schema: StructType, columns: Iterable[str]) -> list[StructField]:
    by_name = {field.name.lower(): field for field in schema.fields}
    return [by_name[column.lower()] for column in columns]


def rows_as_table(spark: SparkSession, name: str, id: str, rows: DataFrame) -> Any:
    """Rows as a `SqlTable` of the JVM, which keeps them. No other one is equal, and later ones have the same id."""
    kind = java_class(spark._jvm, "dbio_commit.SqlTable")
    table = kind(name, id, f"{name} {uuid4()}", nullable(spark, rows.schema.fields), "", {"provider": "dbio"})
    made: Any = rows
    table.setRows(made._jdf)
    return table


def _partitions(snapshot: Snapshot) -> Collection[names.Partition]:
    return {names.split(file.path)[0]: file.partition for file in snapshot.files}.values()


def as_of(version: str | None, micros: int | None) -> AsOf:
    """The state that a query asks for, by VERSION AS OF or TIMESTAMP AS OF."""
    if version is not None and not is_tid(version):
        raise InvalidInputError(
            f"VERSION AS OF {version!r:.200} is no tid of a commit; `dbio log` lists the tids of a table, and "
            "TIMESTAMP AS OF takes a time"
        )
    return version if micros is None else time_at(micros, what="TIMESTAMP AS OF")


def _read(table: Table, as_of: AsOf) -> SqlSnapshot:
    snapshot = table.snapshot(as_of)
    if as_of is None and snapshot.tid is None and not snapshot.files:
        raise TableNotFoundError(f"{snapshot.url} has no commit: its first write has failed, or is not done yet")
    return SqlSnapshot(table, snapshot, known_schema(table_schema(table.store, snapshot), snapshot))


def _with_defaults(fields: Sequence[StructField], defaults: Mapping[str, str]) -> StructType:
    """The columns, with the defaults in the metadata by which Spark knows them. Existing rows keep their nulls."""
    sql = {column.lower(): text for column, text in defaults.items()}
    return StructType(
        [
            StructField(
                it.name,
                it.dataType,
                it.nullable,
                {**(it.metadata or {}), "CURRENT_DEFAULT": sql[it.name.lower()], "EXISTS_DEFAULT": "NULL"},
            )
            if it.name.lower() in sql
            else it
            for it in fields
        ]
    )


def _texts(first: str, more: Sequence[str]) -> str:
    return "\0".join((first, *more))
