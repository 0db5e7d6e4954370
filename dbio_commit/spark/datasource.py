"""The data source "dbio", for `df.write.format("dbio")` and `spark.read.format("dbio")`.

`write.plan` plans its writes, and `read.scan` reads its files. Spark calls each method in another process, and passes
objects from one to the next by pickle.
"""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.options import Mode
from dbio_commit.commit.begin import check_app, has_committed
from dbio_commit.commit.options import BEGIN_OPTIONS, CommitOptions, begin_options, note_options
from dbio_commit.commit.write.options import flag_option, write_options
from dbio_commit.feed.follow import Follower
from dbio_commit.log.found_columns import no_columns
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark import feed as streaming
from dbio_commit.spark.feed import columns as feeds
from dbio_commit.spark.feed.changed_rows import columns_of
from dbio_commit.spark.feed.options import OPTIONS, StreamOptions
from dbio_commit.spark.functions import explained, open_in_worker, with_settings
from dbio_commit.spark.read.infer import infer_schema
from dbio_commit.spark.read.scan import ReadSpec, group_files, read_files
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.session.conf import StoreSettings, settle_workers
from dbio_commit.spark.session.other_formats import advice_for_option
from dbio_commit.spark.session.worker import Travels
from dbio_commit.spark.transfer.batches import Packing
from dbio_commit.spark.write.plan import WritePlan, plan_write
from dbio_commit.spark.write.task import TaskSpec, abort_files, commit_files, encode_file_info, run_task
from dbio_commit.table import Table

_READ_OPTIONS = {"path", "asof", "readchangefeed", "secretstorageoptions"}
_FEED_OPTIONS = {
    "path",
    "readchangefeed",
    "startingtid",
    "startingtime",
    "endingtid",
    "endingtime",
    "secretstorageoptions",
}
_WRITE_OPTIONS = BEGIN_OPTIONS | {
    "path",
    "partitionby",
    "compression",
    "maxrecordsperfile",
    "mergeschema",
    "partitionoverwritemode",
    "secretstorageoptions",
}
_GROUPS = 64


def register_source(spark: SparkSession, kind: "type[DbioDataSource]", settings: StoreSettings) -> None:
    settle_workers(spark, plans_here=True)
    spark.createDataFrame([], "id int")  # makes it the active session of this thread, where Spark looks for the source
    spark.dataSource.register(with_settings(kind, settings))


class DbioDataSource(DataSource):
    """The data source "dbio" of batches.

    Options of a read: path, asOf, secretStorageOptions (fsspec's, as JSON; Spark redacts options with this name).

    Options of a read of changes: path, readChangeFeed=true, startingTid or startingTime, endingTid or endingTime, and
    secretStorageOptions. Both ends are included; without an end, the changes go up to now. The options of a stream
    that reads are in `feed.options`.

    Options of a write: path, partitionBy (columns, comma-separated), compression, maxRecordsPerFile, mergeSchema,
    partitionOverwriteMode (static or dynamic), txnAppId and txnVersion (committed at most once), ifMatch (the
    `Snapshot.etag` since which no data may have changed), message, labels (a JSON object of texts),
    secretStorageOptions. The options of a stream that writes are in `feed.sink`.
    """

    settings: StoreSettings = StoreSettings()
    """The session's settings of all stores, in a class that `with_settings` makes."""

    plain: "ClassVar[type[DbioDataSource] | None]" = None
    """The class from which `with_settings` made this one."""

    @classmethod
    def name(cls) -> str:
        return "dbio"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the table with the options of its own store, and not the class with the settings of all stores."""
        own = {"_table": self._table, "settings": StoreSettings(withheld=self.settings.withheld)}
        left = {name: value for name, value in self.__dict__.items() if name != "_snapshot"}  # it has all commits
        return _restored, (self.plain or type(self), {**left, **own})

    def schema(self) -> StructType:
        with explained(self._table, self.settings):
            if self._reads_changes and self._end is not None:
                schema: StructType | None = columns_of(
                    Follower(self._table.store, self._table.clock).history(), self._end
                )
            else:
                schema = self._columns()
        if schema is None:
            raise no_columns(self._snapshot)
        return feeds.with_change_columns(schema, where=self._table.url) if self._reads_changes else schema

    def _columns(self) -> StructType | None:
        recorded = self._planned.columns
        if recorded is None:
            return infer_schema(self._table.store, self._snapshot)
        return schemas.from_json(recorded, where=self._table.url)

    def reader(self, schema: StructType) -> "DbioReader":
        self._check_options(_FEED_OPTIONS if self._reads_changes else _READ_OPTIONS)
        with explained(self._table, self.settings):
            if self._reads_changes:
                return self._change_reader(schema)
            return DbioReader(ReadSpec(self._table, schema), self._planned.files)

    def _change_reader(self, schema: StructType) -> "DbioReader":
        start = feeds.start_of(self.options.get("startingTid"), self.options.get("startingTime"))
        history, changes = Follower(self._table.store, self._table.clock).changes(start, self._end)
        feeds.refuse_other_types(history, changes, feeds.columns_until(history, self._end))
        return DbioReader(ReadSpec(self._table, schema), [feeds.as_partition(change) for change in changes])

    def streamReader(self, schema: StructType) -> Any:
        """A `feed.source.DbioStreamReader`."""
        streaming.require_source(self._table.url)
        from dbio_commit.spark.feed.source import DbioStreamReader

        return self._stream_reader(DbioStreamReader, schema)

    def _stream_reader(self, kind: Any, schema: StructType) -> Any:
        self._check_options(OPTIONS)
        options = StreamOptions.parse(self.options)
        with explained(self._table, self.settings):
            recorded = self._planned.columns
            spec = ReadSpec(self._table, schema)
            is_own = recorded is not None and schema == self.schema()
            return kind(self._table, spec, options, columns=recorded if is_own else None)

    def writer(self, schema: StructType, overwrite: bool) -> "DbioWriter":
        self._check_options(_WRITE_OPTIONS | self._needless(overwrite))
        with explained(self._table, self.settings):
            commit = CommitOptions(**begin_options(self.options))
            plan = self._plan(schema, self._mode(overwrite), commit)
            plan.refuse_unchecked()
            is_done = has_committed(self._table.store, self._table.clock, commit.app)
            return DbioWriter(plan.task_spec(plan.begin(skipped=is_done).terms), plan.schema_to_record)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """A `feed.sink.DbioStreamWriter`."""
        streaming.require_sink(self._table.url)
        from dbio_commit.spark.feed.sink import OPTIONS as SINK_OPTIONS
        from dbio_commit.spark.feed.sink import DbioStreamWriter

        self._check_options(SINK_OPTIONS)
        packed = self.options.get(Packing.OPTION)
        packing = Packing.parse(packed) if packed else Packing()

        def plan() -> WritePlan:
            given = packing.schema or schema
            if packing.settings is not None:
                given = StructType(given.fields[:-1])  # the last field holds the actions of rows
            with explained(self._table, self.settings):
                commit = CommitOptions(**note_options(self.options))
                return self._plan(given, "overwrite" if overwrite else "append", commit)

        app_id = self.options.get("txnAppId")
        check_app(None if app_id is None else (app_id, 0))
        return DbioStreamWriter(self._table, plan, app_id=app_id, overwrite=overwrite, packing=packing)

    def _plan(self, schema: StructType, mode: Mode, commit: CommitOptions) -> WritePlan:
        options = write_options(self.options)
        text = self.options.get("partitionBy")
        columns = None if text is None else [column.strip() for column in text.split(",") if column.strip()]
        if columns == []:
            raise InvalidInputError(
                "the option partitionBy names no column; leave it out to keep the table's partition columns, or to "
                "create a table without any. To remove them, use dbio.write(df, path, 'overwrite', partition_by=[])"
            )
        return plan_write(self._table, schema, mode=mode, partition_by=columns, options=options, commit=commit)

    @property
    def _reads_changes(self) -> bool:
        return flag_option(self.options, "readChangeFeed")

    @cached_property
    def _table(self) -> Table:
        path = self.options.get("path")
        if not path:
            raise InvalidInputError(
                'the data source "dbio" needs a path: .save(path), .load(path) or option("path", path)'
            )
        try:
            explicit = json.loads(self.options.get("secretStorageOptions", "{}"))
        except ValueError:
            explicit = None
        if not isinstance(explicit, dict):
            raise InvalidInputError("option secretStorageOptions is not a JSON object of fsspec's storage options")
        return open_in_worker(path, self.settings, explicit)

    @property
    def _end(self) -> datetime | str | None:
        """The end of the changes to read, a time or a tid; None is now."""
        return feeds.end_of(self.options.get("endingTid"), self.options.get("endingTime"))

    @cached_property
    def _planned(self) -> "_Planned":
        """What a read needs, taken from the snapshot once. Spark pickles it between `schema` and `reader`."""
        return _Planned(self._snapshot.schema, () if self._reads_changes else self._snapshot.files)

    @cached_property
    def _snapshot(self) -> Snapshot:
        return self._table.snapshot(self.options.get("asOf"))

    def _check_options(self, known: Set[str]) -> None:
        if unknown := sorted(set(map(str.lower, self.options)) - known):
            if advice := advice_for_option(unknown[0]):
                raise InvalidInputError(f'the data source "dbio" has no option {advice}')
            raise InvalidInputError(
                f'the data source "dbio" knows no option {", ".join(unknown)} here; it knows {", ".join(sorted(known))}'
            )

    def _needless(self, overwrite: bool) -> set[str]:
        """Options of other formats that ask for what dbio does anyway."""
        takes_columns = self._mode(overwrite) == "overwrite" and flag_option(self.options, "overwriteSchema")
        return {"overwriteschema"} if takes_columns else set()

    def _mode(self, overwrite: bool) -> Mode:
        dynamic = self._one_of("partitionOverwriteMode", ("static", "dynamic")) == "dynamic"
        return "append" if not overwrite else "overwrite_partitions" if dynamic else "overwrite"

    def _one_of(self, name: str, values: Sequence[str]) -> str:
        """The option's value in lower case; the first of `values` if the option is not given."""
        text = self.options.get(name, values[0])
        if text.lower() not in values:
            raise InvalidInputError(f"option {name} is {text!r}, not one of {', '.join(values)}")
        return text.lower()


class ChangedFiles(DbioDataSource):
    """A stream for `for_each_batch`: each row is a `DataFile` as JSON. The options are those of other streams."""

    @classmethod
    def name(cls) -> str:
        return "dbio_changed_files"

    def schema(self) -> StructType:
        _ = super().schema()  # plans with the columns of the stream
        return StructType().add("file", "string")

    def streamReader(self, schema: StructType) -> Any:
        from dbio_commit.spark.feed.source import FileLister

        return self._stream_reader(FileLister, schema)


@dataclass(frozen=True, slots=True)
class _Planned:
    """What a read needs of its snapshot."""

    columns: Mapping[str, Any] | None
    """The recorded columns, as Spark's JSON."""
    files: Sequence[DataFile]
    """The live files; () for a read of changes."""


def _restored(kind: type[DbioDataSource], state: dict[str, Any]) -> DbioDataSource:
    source = kind.__new__(kind)
    source.__dict__.update(state)
    return source


@dataclass(frozen=True, slots=True)
class _Written(WriterCommitMessage):
    files: Sequence[str]


class DbioWriter(Travels, DataSourceArrowWriter):
    """One write, whose transaction has begun. Spark calls each method in another process."""

    def __init__(self, spec: TaskSpec, schema: Mapping[str, Any] | None) -> None:
        """`schema`: the table's columns after the write, for its commit."""
        self._spec, self._schema = spec, schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        return _Written([encode_file_info(info) for info in run_task(self._spec, iterator)])

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with self._spec.resume() as transaction:
            commit_files(transaction, _files(messages), self._schema)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abort_files(self._spec.resume(), _files(messages))


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    """The files that the tasks wrote; None is the message of a task that did not finish."""
    return [file for message in messages if isinstance(message, _Written) for file in message.files]


@dataclass(frozen=True, slots=True)
class _Group(InputPartition):
    files: Sequence[DataFile]


class DbioReader(Travels, DataSourceReader):
    """Reads files in Python workers. Has no `pushFilters`, because Spark would share its answer among queries."""

    def __init__(self, spec: ReadSpec, files: Sequence[DataFile]) -> None:
        self._spec, self._files = spec, files

    def partitions(self) -> Sequence[InputPartition]:
        return [_Group(group) for group in group_files(self._files, _GROUPS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Group)
        return read_files(self._spec, partition.files)
