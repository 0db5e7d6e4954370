"""A write job from its first check to its commit, whoever runs the tasks: `write` or the data source "dbio".

The transaction is in `transaction`, what a task does in `task`, what fits which columns in `schema`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, get_args

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType, TimestampType

import dbio_commit.base.errors as errors
from dbio_commit.base.clock import SYSTEM_CLOCK
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.options import Compression, Mode
from dbio_commit.commit.begin import begin, check_app, choose_partition_columns, look
from dbio_commit.commit.draft import Terms
from dbio_commit.commit.roots import KINDS, Target
from dbio_commit.commit.transaction import Transaction
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.data.proof import refuse_unprovable
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.etag import check_if_tid
from dbio_commit.protocol.markers.commit import CommitMarker, Operation
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.settings import CHANGE_DATA
from dbio_commit.protocol.versions import AppVersion, parse_version
from dbio_commit.spark.read.infer import infer_schema
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.session.python import explain
from dbio_commit.spark.write.task import TaskSpec, decode_file_info
from dbio_commit.store import Store
from dbio_commit.table import Table
from dbio_commit.upkeep.publish import publish_as_set

_OPERATIONS: Mapping[Mode, Operation] = {
    "append": "append",
    "overwrite": "overwrite",
    "overwrite_partitions": "replace_partitions",
    "error": "append",
    "ignore": "append",
}


_LARGEST_FILE = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How the files are written, and whether they may bring new columns."""

    compression: Compression = "snappy"
    max_records_per_file: int = 0
    """0: no bound."""
    merge_schema: bool = False
    target_file_size: int | None = None
    """In bytes; None leaves the rows with the tasks that have them."""

    def __post_init__(self) -> None:
        if self.compression not in get_args(Compression):
            raise InvalidInputError(f"compression {self.compression!r} is none of {', '.join(get_args(Compression))}")
        if type(self.max_records_per_file) is not int or self.max_records_per_file < 0:
            raise InvalidInputError(f"max_records_per_file is {self.max_records_per_file!r}, not a number from 0 on")
        size = self.target_file_size
        if size is not None and (type(size) is not int or not 1 <= size <= _LARGEST_FILE):
            raise InvalidInputError(f"target_file_size is {size!r:.100}, not a number of bytes, such as 128_000_000")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """The table as it travels to the tasks: where it is, and how to open it there."""

    path: str
    storage_options: Mapping[str, Any] = field(repr=False)  # secrets
    terms: Terms

    def open_sink(self, tid: str) -> "StoreSink":
        return StoreSink(Table(self.path, self.storage_options).store, self.terms)


class StoreSink:
    """Where the files of a task go: straight to their final names."""

    def __init__(self, store: Store, terms: Terms) -> None:
        self._store, self._terms = store, terms
        self._root = KINDS[terms.scope](store, SYSTEM_CLOCK)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        self._root.mark(self._terms, names.split(path)[0])
        with self._store.open_write(path) as stream:
            yield stream
        self._store.make_durable([path])  # before the marker that names it (I2)

    def confirm(self) -> None:
        self._root.confirm(self._terms)

    def delete(self, paths: Sequence[str]) -> None:
        self._store.delete_many(paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A write that has begun: all that its tasks and its commit need, in whichever process they run."""

    spec: TaskSpec
    sink: TableSink
    schema: Mapping[str, Any] | None
    """The table's columns after it, as Spark's JSON; None where no one records them (directory scope)."""

    def transaction(self) -> Transaction:
        return Table(self.sink.path, self.sink.storage_options).resume(self.sink.terms)

    def for_app(self, app: App) -> "Job":
        """The same in the name of an application, of which only its tasks hear."""
        sink = replace(self.sink, terms=replace(self.sink.terms, app=app))
        return replace(self, sink=sink, spec=replace(self.spec, table=sink))

    def commit(self, transaction: Transaction, files: Iterable[str]) -> Commit:
        """Commits the files of the winning attempts, as `task.encode_file_info` wrote them."""
        return commit_files(transaction, files, self.schema)

    def abort(self, transaction: Transaction, files: Iterable[str]) -> None:
        """Commits nothing, and deletes the files that are known; others may still be written, for vacuum to find."""
        transaction.add(map(decode_file_info, files), looked_at=True)
        transaction.abort()


def commit_files(
    transaction: Transaction,
    files: Iterable[str],
    schema: Mapping[str, Any] | None,
    *,
    metrics: Mapping[str, int] | None = None,
) -> Commit:
    """As `Job.commit`, for who has not the whole job."""
    transaction.add(map(decode_file_info, files), looked_at=True)
    return transaction.commit(schema=schema, metrics=metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """A write that was checked, and has not begun: nothing is written yet, and no tid is claimed."""

    table: Table
    target: Target
    layout: schemas.Layout
    operation: Operation
    app: AppVersion | None
    must_be_empty: bool
    if_tid: str | None
    limits: names.PathLimits
    options: WriteOptions
    constraints: Constraints
    filled: tuple[str, ...]
    """Columns that the data lacks, and the table fills in; they count as its last ones."""

    @property
    def tells_changes(self) -> bool:
        """Whether the table wants to have told which rows a rewrite changes."""
        return (self.target.metadata.settings or {}).get(CHANGE_DATA) == "true"

    @property
    def changes_layout(self) -> bool:
        """Whether the table's partition columns are others so far."""
        return self.target.partition_columns not in (None, self.layout.partition_columns)

    @property
    def casts_rows(self) -> bool:
        """Whether rows come with narrower types than the table has."""
        given = {name for position, name in self.layout.columns if position is not None}
        return not given.isdisjoint(self.layout.casts)

    def refuse_unchecked(self) -> None:
        """For who hands over rows as they come: what the table asks of them must show in the statistics of files.

        Raises InvalidInputError for what cannot, and for columns that the table would fill in.
        """
        if self.filled:
            raise InvalidInputError(
                f"the data lacks the column {self.filled[0]!r}, which {self.table.url} fills in where its writer can; "
                "nothing was written: give the column, or use dbio.write, dbio.write_stream or dbio.batch_writer"
            )
        if self.constraints:
            refuse_unprovable(self.constraints, self.layout.schema.jsonValue(), where=self.table.url)

    def begin(self, *, claims: bool = True, skipped: bool = False) -> Job:
        """Begins its transaction; of one that is `skipped`, nothing will be committed.

        Raises SchemaMismatchError, TableExistsError where the table changed meanwhile.
        """
        table, layout = self.table, self.layout
        transaction = begin(
            table.store,
            table.clock,
            follow_up=publish_as_set,
            operation=self.operation,
            partition_by=layout.partition_columns,
            app=self.app,
            must_be_empty=self.must_be_empty,
            if_tid=self.if_tid,
            target=self.target,
            skipped=skipped,
            claims=claims,
        )
        sink = TableSink(path=table.url, storage_options=table.storage_options, terms=transaction.terms)
        return Job(
            spec=TaskSpec(
                table=sink,
                tid=transaction.tid,
                job=transaction.terms.job,
                columns=layout.columns,
                casts={name: schemas.arrow_type(layout.schema[name].dataType) for name in layout.casts},
                partition_columns=layout.partition_columns,
                limits=self.limits,
                compression=self.options.compression,
                max_records_per_file=self.options.max_records_per_file,
                target_file_size=self.options.target_file_size,
                spark_metadata={
                    "org.apache.spark.version": pyspark.__version__,
                    ROW_METADATA: layout.data_schema.json(),
                },
            ),
            sink=sink,
            schema=_recorded(layout.schema, self.target) if self.target.is_table else None,
        )


def plan_write(
    table: Table,
    schema: StructType,
    *,
    mode: Mode,
    partition_by: str | Sequence[str] | None,
    app: AppVersion | None,
    options: WriteOptions,
    if_tid: str | None = None,
) -> WritePlan:
    """Checks everything that can be checked, and how the columns fit the table's; writes nothing.

    Raises InvalidInputError, SchemaMismatchError, TableExistsError.
    """
    if mode not in _OPERATIONS:
        raise InvalidInputError(f"mode {mode!r} is none of {', '.join(_OPERATIONS)}")
    partition_by = None if partition_by is None else names.check_partition_columns(partition_by)
    schema = schemas.plain_schema(schema)
    schemas.check_writable(schema, (), allow_void=True)
    table.refuse_partition()
    must_be_empty = mode in ("error", "ignore")
    target = look(table.store, table.clock, must_be_empty=must_be_empty)
    sets_columns = mode == "overwrite"
    constraints = Constraints.of(target.metadata.settings)
    constraints.refuse_unsafe(where=table.url)
    is_asked = not sets_columns or schemas.has_void(schema) or bool(constraints.filled)
    current = _current(table, target) if is_asked else None
    filled = _filled(schema, current, constraints)
    schema = StructType([*schema.fields, *filled])
    schemas.check_writable(schema, partition_by or (), allow_void=True)
    asked = None if partition_by is None else schemas.respell(partition_by, schema)
    columns = choose_partition_columns(target, asked, where=table.url, overwrites=sets_columns)
    if current is None or sets_columns:
        schemas.check_writable(schema, columns, allow_void=True)
    layout = schemas.layout(
        schema,
        partition_columns=columns,
        table=None if sets_columns else current,
        merge=options.merge_schema,
        widen=target.is_table,  # elsewhere no one records that a column is wider than in some files
        replaced=current,
        where=table.url,
    )
    schemas.check_writable(layout.schema, columns)
    constraints.refuse_lost(layout.schema.fieldNames(), where=table.url)
    if not target.is_table:
        _refuse_timestamps(layout.schema, columns, table.url)
    limits = _limits(table)
    names.check_length(dict.fromkeys(layout.partition_columns, "0"), limits)  # before anything is there
    return WritePlan(
        table=table,
        target=target,
        layout=layout,
        operation=_OPERATIONS[mode],
        app=app,
        must_be_empty=must_be_empty,
        if_tid=check_if_tid(if_tid),
        limits=limits,
        options=options,
        constraints=constraints,
        filled=tuple(field.name for field in filled),
    )


def _filled(schema: StructType, table: StructType | None, constraints: Constraints) -> list[StructField]:
    """The columns that such data lacks, and the table fills in."""
    given = {name.lower() for name in schema.fieldNames()}
    missing = constraints.filled - given
    return [field for field in table.fields if field.name.lower() in missing] if table else []


_LONGEST_FILE_NAME = 160
"""Of a data file, in bytes; guessed high."""


def _limits(table: Table) -> names.PathLimits:
    """How long partitions may be: by the limits of Linux's file systems, and of keys in object stores."""
    is_disk = table.location is not None and table.location.scheme == "file"
    name, path = (255, 4095) if is_disk else (1024, 1024)
    root = table.location.prefix if table.location else ""
    return names.PathLimits(component=name, path=path - len(f"{root}/".encode()) - _LONGEST_FILE_NAME)


def _current(table: Table, target: Target) -> StructType | None:
    """The columns to fit; None where there are none yet."""
    if target.metadata.schema is not None:
        return schemas.from_json(target.metadata.schema, where=table.url)
    return infer_schema(table.store, table.snapshot()) if target.scope else None


def _recorded(schema: StructType, target: Target) -> Mapping[str, Any]:
    """The schema as JSON: the very one that the table has, where it is the same, so that nothing changes."""
    own = target.metadata.schema
    if own is not None and schemas.from_json(own, where="the table") == schema:
        return own
    json_schema: dict[str, Any] = json.loads(schema.json())
    return json_schema


def _refuse_timestamps(schema: StructType, columns: Sequence[str], url: str) -> None:
    """Our tables name timestamp partitions in UTC; what writers of other directories meant, no one knows."""
    lower = {column.lower() for column in columns}
    for column in schema.fields:
        if column.name.lower() in lower and isinstance(column.dataType, TimestampType):
            raise InvalidInputError(
                f"{url} is partitioned by the timestamp {column.name!r} and has no {names.DESCRIPTOR}: the time zone "
                "of its directory names is not known; write to a table of its own, or partition by a date"
            )


def number_option(options: Mapping[str, str], name: str) -> int | None:
    """The option as a number, from options whose names are in lower case or do not care. Raises InvalidInputError."""
    text = options.get(name.lower())
    if text is None or (text.isascii() and text.isdigit()):
        return None if text is None else int(text)
    raise InvalidInputError(f"option {name} is {text!r}, not a number from 0")


def flag_option(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """The option as a truth value, from options as `number_option` takes them. Raises InvalidInputError."""
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"option {name} is {text!r:.100}, not one of true, false")
    return text == "true"


def app_option(options: Mapping[str, str]) -> AppVersion | None:
    """The application and its version, which is committed at most once. Raises InvalidInputError for half of it."""
    id, version = options.get("txnappid"), options.get("txnversion")
    if (id is None) != (version is None):
        raise InvalidInputError("options txnAppId and txnVersion go together")
    if id is None or version is None:
        return None
    try:
        return id, parse_version(version)
    except ValueError:
        raise InvalidInputError(
            f"option txnVersion is {version!r:.100}, not a number from 0, a day such as 2026-11-20, or a time such as "
            "2026-11-20T13:00:00"
        ) from None


def no_commit(table: Table, app: AppVersion | None) -> Commit:
    """The result of a write that had nothing to do: the commit that was there already, marked as skipped."""
    wanted = check_app(app)
    for commit in table.history():
        if wanted is None or commit.app == (wanted.id, wanted.version):
            return Commit(tid=commit.tid, timestamp=commit.timestamp, marker=commit.marker, skipped=True)
    nothing = CommitMarker(added=[], removed=[])  # of files without markers
    return Commit(tid="", timestamp=table.clock.now(), marker=nothing, skipped=True)


@contextmanager
def errors_of_workers() -> Iterator[None]:
    """An error of ours that a task raised comes out of Spark as itself, without the traceback of the worker."""
    try:
        yield
    except PySparkException as error:
        if found := find_error(str(error)) or explain(error):
            raise found from error
        raise


def find_error(text: str) -> errors.DbioError | None:
    """The error of ours that a text of Spark's names, with its message: all of the text, or a line in it."""
    found = _ERROR.fullmatch(text) or _ERROR_LINE.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found and isinstance(kind, type) and issubclass(kind, errors.DbioError):
        return kind(*found[2].split("\n"))
    return None


_ERROR = re.compile(r"dbio_commit\.(\w+): (.+)", re.DOTALL)
_ERROR_LINE = re.compile(r"dbio_commit\.(\w+): (.+)")
