"""Checks a write before anything is written (`plan_write`), and begins its transaction (`WritePlan.begin`).

`dbio.write`, the data source, the stream sink, rewrites and the commit protocol all begin here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructField, StructType, TimestampType

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.options import Mode
from dbio_commit.commit.begin import begin, choose_partition_columns, has_free_layout, look
from dbio_commit.commit.draft import Terms
from dbio_commit.commit.roots import Target
from dbio_commit.commit.transaction import Transaction
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.data.proof import refuse_unprovable
from dbio_commit.protocol import names
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.etag import check_etag
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.settings import CHANGE_DATA, Settings, change, check_changes
from dbio_commit.spark.read.infer import infer_schema
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.versions import READS_WIDENED, SPARK
from dbio_commit.spark.write.options import CommitOptions, WriteOptions
from dbio_commit.spark.write.task import TaskSpec
from dbio_commit.table import Table
from dbio_commit.upkeep.publish import publish_as_set

_OPERATIONS: Mapping[Mode, Operation] = {
    "append": "append",
    "overwrite": "overwrite",
    "overwrite_partitions": "overwrite_partitions",
    "error": "append",
    "ignore": "append",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """A checked write that has not begun: nothing is written yet, and no tid is claimed."""

    table: Table
    target: Target
    """What the path held when the write was checked."""
    operation: Operation
    must_be_empty: bool
    mapping: schemas.ColumnMapping
    filled: tuple[str, ...]
    """Columns that the data lacks and that the table fills in. In `mapping`, they follow the data's columns."""
    options: WriteOptions
    commit: CommitOptions
    sets: Settings = field(default_factory=dict)
    """The settings that the write changes."""
    commented: StructType
    """The columns of `mapping.schema` with their comments."""

    @property
    def constraints(self) -> Constraints:
        """The constraints of the table after the write."""
        return Constraints.of(change(self.target.metadata.settings, self.sets))

    @property
    def records_changes(self) -> bool:
        """Whether a rewrite of this table must record the rows that it changes (the setting `change_data`)."""
        return (self.target.metadata.settings or {}).get(CHANGE_DATA) == "true"

    @property
    def changes_layout(self) -> bool:
        """Whether the write changes the partition columns of an existing table."""
        return self.target.partition_columns not in (None, self.mapping.partition_columns)

    @property
    def casts_rows(self) -> bool:
        """Whether the data has narrower types than the table."""
        given = {name for position, name in self.mapping.columns if position is not None}
        return not given.isdisjoint(self.mapping.casts)

    @property
    def schema_to_record(self) -> Mapping[str, Any] | None:
        """The table's columns after the write, as Spark's JSON; None in the directory scope, which records none."""
        return _recorded(self.commented, self.target) if self.target.is_table else None

    def refuse_unchecked(self) -> None:
        """For a writer that takes rows as they come, and can check them by the statistics of their files only.

        Raises InvalidInputError for constraints that statistics cannot prove, and for columns that the table fills in.
        """
        if self.filled:
            raise InvalidInputError(
                f"the data lacks the column {self.filled[0]!r}, which {self.table.url} fills in, but not for this "
                "writer; nothing was written: give it, or use dbio.write, dbio.write_stream or dbio.batch_writer"
            )
        if self.constraints:
            refuse_unprovable(self.constraints, self.mapping.schema.jsonValue(), where=self.table.url)

    def begin(self, *, claims: bool = True, skipped: bool = False) -> Transaction:
        """Begins the transaction. If it is `skipped`, it commits nothing. Without `claims`, its tasks claim the tid.

        Raises SchemaMismatchError or TableExistsError if the table has changed since the plan was made.
        """
        return begin(
            self.table.store,
            self.table.clock,
            follow_up=publish_as_set,
            operation=self.operation,
            partition_by=self.mapping.partition_columns,
            app=self.commit.app,
            must_be_empty=self.must_be_empty,
            if_match=self.commit.if_match,
            target=self.target,
            inspector=self.table.inspector,
            skipped=skipped,
            claims=claims,
            sets=self.sets,
            note=self.table.note(self.commit.message, self.commit.labels),
        )

    def task_spec(self, terms: Terms) -> TaskSpec:
        """What the tasks of the transaction with these terms need."""
        mapping = self.mapping
        return TaskSpec(
            table=self.table,
            terms=terms,
            options=self.options,
            columns=mapping.columns,
            casts={name: schemas.arrow_type(mapping.schema[name].dataType) for name in mapping.casts},
            variants={mapping.schema.names[i]: kind for i, kind in schemas.variants_of(mapping.schema).items()},
            limits=_path_limits(self.table),
            spark_metadata={
                "org.apache.spark.version": SPARK,
                ROW_METADATA: mapping.data_schema.json(),
            },
        )


def plan_write(
    table: Table,
    schema: StructType,
    *,
    mode: Mode,
    partition_by: str | Sequence[str] | None,
    options: WriteOptions,
    commit: CommitOptions,
    sets: Settings | None = None,
) -> WritePlan:
    """Checks the options, and how columns of this schema fit the table's columns; writes nothing.

    `sets` are changes of settings, for a mode after which all rows are new. Raises InvalidInputError,
    SchemaMismatchError, TableExistsError.
    """
    if mode not in _OPERATIONS:
        raise InvalidInputError(f"mode {mode!r} is none of {', '.join(_OPERATIONS)}")
    partition_by = None if partition_by is None else names.check_partition_columns(partition_by)
    given, schema = schema, schemas.plain_schema(schema)
    schemas.check_writable(schema, (), allow_void=True)
    table.refuse_partition()
    must_be_empty = mode in ("error", "ignore")
    target = look(table.store, table.clock, must_be_empty=must_be_empty)
    sets_columns = mode == "overwrite"
    sets = check_changes(sets or {})
    assert not sets or must_be_empty or sets_columns, "older rows would not be checked"
    constraints = Constraints.of(change(target.metadata.settings, sets))
    constraints.refuse_unsafe(where=table.url)
    needs_current = not sets_columns or schemas.has_void(schema) or bool(constraints.filled)
    current = _current(table, target) if needs_current else None
    filled = _filled(schema, current, constraints)
    schema = StructType([*schema.fields, *filled])
    schemas.check_writable(schema, partition_by or (), allow_void=True)
    asked = None if partition_by is None else schemas.respell(partition_by, schema)
    operation = _OPERATIONS[mode]
    if operation == "append" and has_free_layout(table.store, table.clock, target, asked, must_be_empty=must_be_empty):
        operation, must_be_empty = "overwrite", True
    columns = choose_partition_columns(target, asked, where=table.url, overwrites=operation == "overwrite")
    if current is None or sets_columns:
        schemas.check_writable(schema, columns, allow_void=True)
    mapping = schemas.map_columns(
        schema,
        partition_columns=columns,
        table=None if sets_columns else current,
        merge=options.merge_schema,
        # A plain directory has no record of a column that is wider than in some files.
        widen=target.is_table and READS_WIDENED,
        replaced=current,
        where=table.url,
    )
    schemas.check_writable(mapping.schema, columns)
    constraints.refuse_lost(mapping.schema.fieldNames(), where=table.url)
    if not target.is_table:
        _refuse_timestamps(mapping.schema, columns, table.url)
    names.check_length(dict.fromkeys(mapping.partition_columns, "0"), _path_limits(table))  # before anything exists
    check_etag(commit.if_match)
    return WritePlan(
        table=table,
        target=target,
        operation=operation,
        must_be_empty=must_be_empty,
        mapping=mapping,
        filled=tuple(field.name for field in filled),
        options=options,
        commit=commit,
        sets=sets,
        commented=schemas.with_comments(mapping.schema, given, _recorded_columns(target, table.url), new=sets_columns),
    )


def _filled(schema: StructType, table: StructType | None, constraints: Constraints) -> list[StructField]:
    """The table's columns that data of this schema lacks and that the table fills in."""
    given = {name.lower() for name in schema.fieldNames()}
    missing = constraints.filled - given
    return [field for field in table.fields if field.name.lower() in missing] if table else []


_LONGEST_FILE_NAME = 160
"""Of a data file, in bytes; a high estimate."""


def _path_limits(table: Table) -> names.PathLimits:
    """How long the path of a partition may be, by the limits of Linux file systems and of keys in object stores."""
    is_disk = table.location is not None and table.location.scheme == "file"
    name, path = (255, 4095) if is_disk else (1024, 1024)
    root = table.location.prefix if table.location else ""
    return names.PathLimits(component=name, path=path - len(f"{root}/".encode()) - _LONGEST_FILE_NAME)


def _current(table: Table, target: Target) -> StructType | None:
    """The table's columns that the data must fit; None if there are none yet."""
    if (recorded := _recorded_columns(target, table.url)) is not None:
        return recorded
    return infer_schema(table.store, table.snapshot()) if target.scope else None


def _recorded_columns(target: Target, url: str) -> StructType | None:
    recorded = target.metadata.schema
    return None if recorded is None else schemas.from_json(recorded, where=url)


def _recorded(schema: StructType, target: Target) -> Mapping[str, Any]:
    """The schema as JSON: exactly the recorded JSON if the schema is the same, so that the commit records no change."""
    own = target.metadata.schema
    if own is not None and schemas.from_json(own, where="the table") == schema:
        return own
    json_schema: dict[str, Any] = json.loads(schema.json())
    return json_schema


def _refuse_timestamps(schema: StructType, columns: Sequence[str], url: str) -> None:
    """A dbio table names timestamp partitions in UTC; in other directories, the time zone is unknown."""
    lower = {column.lower() for column in columns}
    for column in schema.fields:
        if column.name.lower() in lower and isinstance(column.dataType, TimestampType):
            raise InvalidInputError(
                f"{url} is partitioned by the timestamp {column.name!r} and has no {names.DESCRIPTOR}: the time zone "
                "of its directory names is not known; write to a dbio table, or partition by a date"
            )
