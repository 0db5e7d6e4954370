"""Writes a frame of pandas, Polars, Arrow or DuckDB as one transaction, without Spark: `Table.write`."""

from collections.abc import Sequence
from typing import Any

from dbio_commit.base.errors import InvalidInputError, TableExistsError
from dbio_commit.base.options import Mode
from dbio_commit.commit.begin import look
from dbio_commit.commit.context import WriteContext
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.write.options import WriteOptions, no_commit, with_retries
from dbio_commit.commit.write.parallel import write_rows
from dbio_commit.commit.write.plan import WritePlan, plan_write
from dbio_commit.commit.write.rewrite import replace_rows
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.conditions.terms import Where
from dbio_commit.data.frames import Frame, fitted, read_frame
from dbio_commit.data.mapping import field_names, has_void
from dbio_commit.data.row_checks import RowChecks
from dbio_commit.protocol.commits import Commit


def write_frame(
    context: WriteContext,
    frame: Any,
    *,
    mode: Mode,
    partition_by: str | Sequence[str] | None,
    options: WriteOptions,
    commit: CommitOptions,
    replaced: Where | None = None,
) -> Commit:
    """Writes the rows in this mode. With `replaced`, a condition, they replace the rows for which it holds.

    Raises what `Table.write` raises.
    """
    rows = read_frame(frame)
    if rows.is_stream and commit.retries:
        raise InvalidInputError(
            f"retries={commit.retries} needs rows that can be read again, and a stream of Arrow gives them once: give "
            "a table or a DataFrame, or leave retries out"
        )

    def attempt() -> Commit:
        _refuse_untyped(context, rows)
        plan = plan_write(
            context,
            rows.columns,
            mode=mode if replaced is None else "append",
            partition_by=partition_by,
            options=options,
            commit=commit,
            rewrites=replaced is not None,
            may_lack=True,
            by_value=True,
        )
        return _write(plan, rows) if replaced is None else replace_rows(plan, replaced, rows)

    try:
        return with_retries(commit, context.store, context.clock, attempt)
    except TableExistsError:
        if mode != "ignore":
            raise
        return no_commit(context.store, context.clock, None)


def _refuse_untyped(context: WriteContext, frame: Frame) -> None:
    """Raises InvalidInputError for a column of only missing values that has no type, neither here nor in the table."""
    untyped = [it["name"] for it in frame.columns["fields"] if has_void(it["type"])]
    if not untyped:
        return
    target = look(context.store, context.clock)
    known = target.metadata.schema if target.scope else {"fields": ()}
    own = {name.lower() for name in field_names(known)} if known else {name.lower() for name in untyped}
    if odd := [name for name in untyped if name.lower() not in own]:
        raise InvalidInputError(
            f"column {odd[0]!r} has no type, since all its values are missing, and the table has no such column to "
            f"take it from: give it one, such as with {frame.typed.format(odd[0])}"
        )


def _write(plan: WritePlan, frame: Frame) -> Commit:
    target = arrow_schema(plan.mapping.schema, where=plan.context.url)
    checks = RowChecks.of(
        plan.constraints, plan.mapping.schema, lacks=plan.filled, where=plan.context.url, now=plan.context.clock.now()
    )
    with plan.begin() as transaction:
        batches = checks.apply(fitted(frame.batches(), plan.mapping, target))
        transaction.add(write_rows(plan, transaction, batches), looked_at=True)
        transaction.vouch_for_rows()
        return transaction.commit(schema=plan.schema_to_record)
