"""Checks the write of a DataFrame before anything is written: `commit/write/plan` for PySpark's types.

`dbio.write`, the data source, the stream sink, rewrites and the commit protocol all begin here.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from pyspark.sql.types import StructType

from dbio_commit.base.options import Mode
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.request import Terms
from dbio_commit.commit.write import plan as plans
from dbio_commit.commit.write.options import WriteOptions
from dbio_commit.data.footers import SPARK_VERSION
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.protocol.settings import Settings
from dbio_commit.spark.read.states import only_state
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.versions import READS_WIDENED, SPARK
from dbio_commit.spark.write.task import TaskSpec
from dbio_commit.table import Table


@dataclass(frozen=True, kw_only=True)
class WritePlan(plans.WritePlan):
    """A checked write that has not begun, with PySpark's types."""

    table: Table
    schema: StructType
    """The table's columns after the write: nullable, partition columns last."""

    @property
    def table_id(self) -> str:
        """The id of the table, as `states.identity_of` has it; "" if there is none yet."""
        if self.target.scope is None:
            return ""
        return self.target.origin.table_id if self.target.origin else self.table.url

    def based_on(self, etags: frozenset[str]) -> "WritePlan":
        """This plan, to commit only if the table is still in the state that its rows were read from.

        `etags` has the etags of such states. The caller's own `if_match` counts instead, if there is one. Raises
        CommitConflictError for several etags.
        """
        if not etags or self.commit.if_match is not None:
            return self
        etag = only_state(etags, where=self.table.url)
        intent = replace(self.intent, if_match=etag)
        return replace(self, commit=replace(self.commit, retries=0, if_match=etag), intent=intent)

    def task_spec(self, terms: Terms) -> TaskSpec:
        """What the tasks of the transaction with these terms need."""
        mapping, schema = self.mapping, self.schema
        return TaskSpec(
            table=self.table,
            terms=terms,
            options=self.options,
            columns=mapping.columns,
            casts={name: schemas.arrow_type(schema[name].dataType) for name in mapping.casts},
            variants={schema.names[i]: kind for i, kind in schemas.variants_of(schema).items()},
            limits=self.context.limits,
            spark_metadata={SPARK_VERSION: SPARK, ROW_METADATA: json.dumps(mapping.data_schema)},
        )


def plan_write(
    table: Table,
    schema: StructType,
    *,
    mode: Mode,
    partition_by: str | Sequence[str] | None,
    options: WriteOptions,
    commit: CommitOptions,
    rewrites: bool = False,
    sets: Settings | None = None,
) -> WritePlan:
    """`plans.plan_write` for a DataFrame with these columns. Raises what that raises."""
    table.refuse_partition()
    plan = plans.plan_write(
        table.context,
        schemas.to_json(schema),
        mode=mode,
        partition_by=partition_by,
        options=options,
        commit=commit,
        rewrites=rewrites,
        sets=sets,
        widens=READS_WIDENED,
    )
    known = {it.name: getattr(plan, it.name) for it in fields(plan)}
    return WritePlan(**known, table=table, schema=schemas.from_json(plan.mapping.schema, where=table.url))
