"""Changes the rows for which a condition holds: `delete`, `update`, and `write` with `replace_where`."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.commits import Commit
from dbio_commit.spark.read.located import FILE, PLACE
from dbio_commit.spark.rewrite.base import Rewrite
from dbio_commit.spark.rewrite.find import Found, find
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.sql.conditions import check, holds
from dbio_commit.spark.sql.planned import Planned, Sql, text_of
from dbio_commit.spark.sql.values import InFields, SqlValue, assign, refuse_no_texts
from dbio_commit.spark.transfer.kept import Keep, keeping
from dbio_commit.spark.write.actions import ACTION, RowAction, row_action
from dbio_commit.spark.write.constraints import rows_to_write


def replace_rows(rewrite: Rewrite, where: Sql, data: DataFrame | None, *, fills_nulls: bool = False) -> Commit:
    """Replaces the rows for which the condition holds by those of `data`; None: deletes them.

    `fills_nulls` is as in `rows_to_write`. Raises InvalidInputError for an impossible condition, and if the condition
    does not hold for rows of `data` (the message has their number); CommitConflictError, and as a write does.
    """
    _check(rewrite.no_rows, where)
    return keeping(lambda keep: _replace(rewrite, where, data, find(rewrite, where, keep), fills_nulls))


def _replace(rewrite: Rewrite, where: Sql, data: DataFrame | None, found: Found, fills_nulls: bool) -> Commit:
    metrics = {} if found.rows is None else {"numDeletedRows": found.rows}
    changes = bool(found.whole or found.partial)
    with rewrite.begin(depends_on(where), whole=found.whole, changes=changes) as rewriting:
        if found.partial:
            rows = found.matching().select(row_action(RowAction.DELETED).alias(ACTION), FILE, PLACE)
            if rewriting.write_over(rows, found.partial, ())[RowAction.KEPT] != found.kept_rows:
                rewriting.refuse(
                    f"where={where!r:.200} was true for other rows of {rewrite.table.url} when they were read again: "
                    "give a condition that depends on the rows alone"
                )
        if data is not None:
            condition = where.column if isinstance(where, Planned) else where
            actions = row_action(f.when(holds(condition), int(RowAction.INSERTED)).otherwise(int(RowAction.WRONG)))
            new = rows_to_write(data, rewrite.plan, actions, rewrite.named, fills_nulls=fills_nulls)
            counts = rewriting.write(new, comes_whole=True)
            metrics["numInsertedRows"] = counts[RowAction.INSERTED]
            if wrong := counts[RowAction.WRONG]:
                rewriting.refuse(
                    f"replace_where={where!r:.200} does not hold for {wrong} rows of the data: leave these rows out, "
                    "or widen the condition"
                )
        return rewriting.commit(metrics)


def update_rows(rewrite: Rewrite, values: Mapping[str, SqlValue], where: Sql) -> Commit:
    """Gives columns new values, in the rows for which the condition holds.

    Raises InvalidInputError, also for values that do not fit their column (the message has the number of rows);
    SchemaMismatchError, CommitConflictError, and as a write does.
    """
    return keeping(lambda keep: _update(rewrite, values, where, keep))


def _update(rewrite: Rewrite, values: Mapping[str, SqlValue], where: Sql, keep: Keep) -> Commit:
    nothing = cache(rewrite.no_rows)
    _check(nothing, where)
    fields = columns_named(rewrite.schema, values)
    refuse_no_texts(values)
    new = assign(nothing, [(values[given], field) for given, field in fields.items()])
    files = rewrite.files(text_of(where))
    with rewrite.begin(depends_on(where, *values.values()), changes=bool(files)) as rewriting:
        counts = Counter[RowAction]()
        if files:
            located = rewrite.locate(files)
            texts = {name: it.value for name, it in new.items() if isinstance(it.value, str)}
            condition, *read = located.read(where, *texts.values())
            columns_of = dict(zip(texts, read, strict=True))
            fitted = {name: it.fitted(columns_of.get(name)) for name, it in new.items()}
            wrong = f.lit(False)
            for _, misfit in fitted.values():
                wrong = wrong if misfit is None else wrong | misfit
            actions = f.when(wrong, int(RowAction.WRONG)).otherwise(int(RowAction.UPDATED))
            matching = located.frame.where(condition if isinstance(where, Planned) else holds(condition))
            # Not by a list of all columns: each would take a dozen calls to the JVM.
            rows = matching.withColumns(
                {**{name: value for name, (value, _) in fitted.items()}, ACTION: row_action(actions)}
            )
            if reads_tables(where, *values.values()):
                rows = keep(rows)  # a second job may read them, and other tables may have changed by then
            computed = {name: f.lit(True) for name in rewrite.generated if name not in new}
            sets = {*new, *computed}
            counts = rewriting.write_over(
                rewrite.checked(rows, computed).select(*map(schemas.quoted, sets), ACTION, FILE, PLACE), located, sets
            )
        if bad := counts[RowAction.WRONG]:
            rewriting.refuse(misfits(bad, {name for name, it in new.items() if it.can_misfit}))
        return rewriting.commit({"numUpdatedRows": counts[RowAction.UPDATED], "numCopiedRows": counts[RowAction.KEPT]})


def depends_on(where: Sql, *more: SqlValue) -> str | None:
    """A condition for the rows on which a rewrite depends; None for all: a subquery may read any row of the table."""
    return None if reads_tables(where, *more) else text_of(where)


def reads_tables(*given: SqlValue | None) -> bool:
    """Whether one of these has a subquery."""
    fields = [value for it in given if isinstance(it, InFields) for value in it.values.values()]
    return any(isinstance(it, Planned) and it.reads_tables for it in (*given, *fields))


def _check(nothing: Callable[[], DataFrame], where: Sql) -> None:
    if isinstance(where, Planned):
        where.check(name="where")
    else:
        check(nothing(), where)


def columns_named(schema: t.StructType, given: Mapping[str, Any]) -> dict[str, t.StructField]:
    """The columns with these names, by the name as given. Raises InvalidInputError for unknown names."""
    fields = {field.name.lower(): field for field in schema.fields}
    if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
        raise InvalidInputError(
            f"{given!r:.200} gives no values for columns; give a dict from columns to expressions in Spark's SQL, such "
            'as {"n": "n + 1"}'
        )
    if unknown := [name for name in given if name.lower() not in fields]:
        raise InvalidInputError(f"the table has no column {unknown[0]!r:.100}; it has {', '.join(schema.fieldNames())}")
    if len({name.lower() for name in given}) < len(given):
        raise InvalidInputError(f"{list(given)!r:.300} names a column twice")
    return {name: fields[name.lower()] for name in given}


def misfits(rows: int, columns: set[str]) -> str:
    """The message for rows of the action WRONG."""
    return (
        f"{rows} rows get values that their columns ({', '.join(sorted(columns))}) cannot hold, such as numbers that "
        "are too large, or a key that a cast would change: change the expression, or the rows"
    )
