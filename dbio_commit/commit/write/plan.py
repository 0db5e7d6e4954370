"""Checks a write before anything is written (`plan_write`), and begins its transaction (`WritePlan.begin`).

Every write begins here: with Spark by `spark/write/plan`, which knows PySpark's types, and without Spark by `frames`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.base.options import Mode
from dbio_commit.commit.begin import Intent, begin, look
from dbio_commit.commit.context import WriteContext
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.root import Target
from dbio_commit.commit.state_after import refuse_change_type
from dbio_commit.commit.transaction import Transaction
from dbio_commit.commit.write.options import WriteOptions
from dbio_commit.data import mapping as rules
from dbio_commit.data.clustering import with_own_spelling
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.conditions.proof import refuse_unprovable
from dbio_commit.data.mapping import ColumnMapping, Schema
from dbio_commit.log.found_columns import find_columns
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import CHANGE_DATA, Settings, change, check_changes

OPERATIONS: Mapping[Mode, Operation] = {
    "append": "append",
    "overwrite": "overwrite",
    "overwrite_partitions": "overwrite_partitions",
    "error": "append",
    "ignore": "append",
}


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """A checked write that has not begun: nothing is written yet, and no tid is claimed."""

    context: WriteContext
    target: Target
    """What the path held when the write was checked."""
    intent: Intent
    """Also has the partition columns, as `mapping` has them, and the settings that the write changes."""
    mapping: ColumnMapping
    filled: tuple[str, ...]
    """Columns that the data lacks and that the table fills in. In `mapping`, they follow the data's columns."""
    options: WriteOptions
    commit: CommitOptions
    commented: Schema
    """The columns of `mapping.schema` with their comments."""

    @property
    def constraints(self) -> Constraints:
        """The constraints of the table after the write."""
        return Constraints.of(change(self.target.metadata.settings, self.intent.sets))

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
        """The table's columns after the write, as Spark's JSON; None in the directory scope, which records none.

        If the columns stay the same, this is exactly the recorded JSON, so that the commit records no change.
        """
        if not self.target.records_columns:
            return None
        own = self.target.metadata.schema
        return own if own is not None and rules.same_schema(own, self.commented) else self.commented

    def refuse_unchecked(self) -> None:
        """Refuses a plan whose rows the writer cannot check except by the statistics of their files.

        Raises InvalidInputError for constraints that statistics cannot prove, and for columns that the table fills in.
        """
        if self.filled:
            raise InvalidInputError(
                f"the data lacks the column {self.filled[0]!r}, which {self.context.url} fills in, but not for this "
                "writer; nothing was written: add the column, or use dbio.write, dbio.write_stream or dbio.batch_writer"
            )
        if self.constraints:
            refuse_unprovable(self.constraints, self.mapping.schema, where=self.context.url)

    def begin(self, *, claims: bool = True, skipped: bool = False) -> Transaction:
        """Begins the transaction. If it is `skipped`, it commits nothing. Without `claims`, its tasks claim the tid.

        Raises SchemaMismatchError or TableExistsError if the table has changed since the plan was made.
        """
        return begin(self.context, self.intent, target=self.target, claims=claims, skipped=skipped)


def plan_write(
    context: WriteContext,
    schema: Schema,
    *,
    mode: Mode,
    partition_by: str | Sequence[str] | None,
    options: WriteOptions,
    commit: CommitOptions,
    rewrites: bool = False,
    sets: Settings | None = None,
    widens: bool = True,
    may_lack: bool = False,
    by_value: bool = False,
) -> WritePlan:
    """Checks the options, and how columns of this schema fit the table's columns; writes nothing.

    - `rewrites`: the write also replaces single rows. Then the mode, "append", is that of its new rows.
    - `sets`: changes of settings, for a mode after which all rows are new.
    - `widens`: `merge_schema` may make a column wider.
    - `may_lack`: the data may lack columns, which are null then.
    - `by_value`: the caller refuses whole numbers that would change in the table's column.

    Raises InvalidInputError, SchemaMismatchError, TableExistsError.
    """
    if mode not in OPERATIONS:
        raise InvalidInputError(f"mode {mode!r} is none of {', '.join(OPERATIONS)}")
    partition_by = None if partition_by is None else names.check_partition_columns(partition_by)
    store, clock, url = context.store, context.clock, context.url
    given = schema
    rules.check_writable(schema, (), allow_void=True)
    must_be_empty = mode in ("error", "ignore")
    target = look(store, clock, must_be_empty=must_be_empty)
    sets_columns = mode == "overwrite"
    sets = check_changes(sets or {})
    assert not sets or must_be_empty or sets_columns, "older rows would not be checked"
    constraints = Constraints.of(change(target.metadata.settings, sets))
    constraints.refuse_unsafe(where=url)
    recorded = target.metadata.schema
    if recorded is not None:
        arrow_schema(recorded, where=url)  # may raise InvalidInputError
    needs_current = not sets_columns or rules.has_void(schema) or bool(constraints.filled)
    current = _current(context, target) if needs_current else None
    filled = _filled(schema, current, constraints)
    schema = {**schema, "fields": [*schema["fields"], *filled]}
    rules.check_writable(schema, partition_by or (), allow_void=True)
    asked = None if partition_by is None else rules.respell(partition_by, schema)
    intent = Intent(
        operation="rewrite" if rewrites else OPERATIONS[mode],
        partition_by=asked,
        app=commit.app,
        must_be_empty=must_be_empty,
        if_match=commit.if_match,
        note=commit.note(context.run),
    ).at(context, target)
    columns = tuple(intent.partition_by or ())
    if current is None or sets_columns:
        rules.check_writable(schema, columns, allow_void=True)
    mapping = rules.map_columns(
        schema,
        partition_columns=columns,
        table=None if sets_columns else current,
        merge=options.merge_schema,
        # A plain directory has no record of a column that is wider than in some files.
        widen=target.records_columns and widens,
        replaced=current,
        may_lack=may_lack,
        by_value=by_value,
        where=url,
    )
    rules.check_writable(mapping.schema, columns)
    constraints.refuse_lost(rules.field_names(mapping.schema), where=url)
    sets = with_own_spelling(sets, target.metadata.settings, mapping.schema, mapping.partition_columns, where=url)
    refuse_change_type(mapping.schema, change(target.metadata.settings, sets), before=target.metadata, where=url)
    if not target.records_columns:
        _refuse_timestamps(mapping.schema, columns, url)
    if context.limits:
        names.check_length(dict.fromkeys(mapping.partition_columns, "0"), context.limits)  # before anything is written
    return WritePlan(
        context=context,
        target=target,
        intent=replace(intent, partition_by=mapping.partition_columns, sets=sets),
        mapping=mapping,
        filled=tuple(it["name"] for it in filled),
        options=options,
        commit=commit,
        commented=rules.with_comments(mapping.schema, given, recorded, new=sets_columns),
    )


def _filled(schema: Schema, table: Schema | None, constraints: Constraints) -> list[Schema]:
    """The table's columns that data of this schema lacks and that the table fills in."""
    missing = constraints.filled - {name.lower() for name in rules.field_names(schema)}
    return [it for it in table["fields"] if it["name"].lower() in missing] if table else []


def _current(context: WriteContext, target: Target) -> Schema | None:
    """The table's columns that the data must fit; None if there are none yet."""
    if target.metadata.schema is not None:
        return target.metadata.schema
    if not target.scope:
        return None
    found = find_columns(context.store, read_snapshot(context.store, context.clock))
    return None if found is None else rules.plain_schema(found)


def _refuse_timestamps(schema: Schema, columns: Sequence[str], url: str) -> None:
    """Raises InvalidInputError for a timestamp column: only a dbio table names the zone of such partitions, UTC."""
    lower = {column.lower() for column in columns}
    for column in schema["fields"]:
        if column["name"].lower() in lower and column["type"] == "timestamp":
            name = column["name"]
            raise InvalidInputError(
                f"{url} is partitioned by the timestamp {name!r} and has no {names.DESCRIPTOR}: the time zone "
                "of its directory names is not known; write to a dbio table, or partition by a date"
            )


# --- rewrites -----------------------------------------------------------------------------------------------------


def refuse_directory(scope: Scope | None, url: str) -> None:
    """Raises InvalidInputError for a rewrite in a directory that is no dbio table."""
    if scope is Scope.DIRECTORY:
        raise InvalidInputError(
            f"{url} has no {names.DESCRIPTOR}: single rows of such a directory cannot be replaced; make it "
            "a table with `dbio adopt` first"
        )


def refuse_other_columns(plan: WritePlan, snapshot: Snapshot) -> None:
    """Raises an error if a rewrite would read a snapshot with other columns than it writes: values would be lost."""
    if snapshot.schema is None and snapshot.files:
        raise InvalidInputError(
            f"no writer recorded the columns of {plan.context.url}, so single rows cannot be replaced; append to it "
            "with dbio first"
        )
    if snapshot.schema != plan.target.metadata.schema:
        raise CommitConflictError(
            f"the schema of {plan.context.url} was changed by another commit just now; nothing was written: try again"
        )
