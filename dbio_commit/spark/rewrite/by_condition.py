"""Rows for which a condition holds: `delete`, `update`, and what `replace_where` replaces."""

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.errors import InvalidInputError
from dbio_commit.protocol.commits import Commit
from dbio_commit.spark import schema as schemas
from dbio_commit.spark.conditions import check, holds
from dbio_commit.spark.constraints import rows_to_write
from dbio_commit.spark.rewrite.base import Rewrite
from dbio_commit.spark.rewrite.find import find
from dbio_commit.spark.values import assign
from dbio_commit.spark.written import FATE, Fate, Writing, fate, with_images


def replace_rows(rewrite: Rewrite, where: str, data: DataFrame | None) -> Commit:
    """Replaces the rows that fulfil the condition by those of `data`, which must fulfil it, too; None is no rows.

    Raises InvalidInputError for a condition that cannot be, and with their number for rows that do not fulfil it;
    CommitConflictError, and as a write does.
    """
    check(rewrite.no_rows(), where)
    found = find(rewrite, where)
    metrics = {} if found.rows is None else {"numDeletedRows": found.rows}
    with rewrite.begin([*found.whole, *found.partial], where, whole=found.whole) as rewriting:
        if found.partial:
            rows = rewrite.scan(found.partial)
            if rewrite.plan.tells_changes:
                fates: Column = f.when(holds(where), int(Fate.DELETED)).otherwise(int(Fate.KEPT))
            else:
                rows, fates = rows.where(~holds(where)), f.lit(int(Fate.KEPT))
            counts = rewriting.write(rows.withColumn(FATE, fate(fates)))
            if counts[Fate.KEPT] != found.kept_rows:
                _refuse_other_rows(rewriting, where, rewrite)
        if data is not None:
            fates = fate(f.when(holds(where), int(Fate.INSERTED)).otherwise(int(Fate.WRONG)))
            counts = rewriting.write(rows_to_write(data, rewrite.plan, fates), comes_whole=True)
            metrics["numInsertedRows"] = counts[Fate.INSERTED]
            if wrong := counts[Fate.WRONG]:
                rewriting.refuse(
                    f"{wrong} rows do not fulfil replace_where={where!r:.200}: leave them out, or widen the condition"
                )
        return rewriting.commit(metrics)


def update_rows(rewrite: Rewrite, values: Mapping[str, str], where: str) -> Commit:
    """Gives columns other values, in the rows that fulfil the condition.

    Raises InvalidInputError, with their number for rows whose values do not fit; SchemaMismatchError,
    CommitConflictError, and as a write does.
    """
    nothing = rewrite.no_rows()
    check(nothing, where)
    fields = columns_named(rewrite.schema, values)
    new = assign(nothing, [(values[given], field) for given, field in fields.items()])
    found = find(rewrite, where)
    touched = [*found.whole, *found.partial]
    with rewrite.begin(touched, where) as rewriting:
        counts = Counter[Fate]()
        if touched:
            wrong = f.lit(False)
            for _, misfit in new.values():
                wrong = wrong if misfit is None else wrong | misfit
            changed = f.when(wrong, int(Fate.WRONG)).otherwise(int(Fate.UPDATED))
            rows = rewrite.scan(touched).withColumn(FATE, fate(f.when(holds(where), changed).otherwise(int(Fate.KEPT))))
            if rewrite.plan.tells_changes:
                rows = with_images(rows)
            is_new = f.col(FATE) == int(Fate.UPDATED)
            columns = [
                f.when(is_new, new[name][0]).otherwise(own).alias(name) if name in new else own
                for name, own in ((name, f.col(schemas.quoted(name))) for name in rewrite.schema.fieldNames())
            ]
            computed = {name: f.lit(True) for name in rewrite.generated if name not in new}
            counts = rewriting.write(rewrite.checked(rows.select(*columns, FATE), computed))
        if bad := counts[Fate.WRONG]:
            rewriting.refuse(misfits(bad, {name for name, (_, misfit) in new.items() if misfit is not None}))
        if counts[Fate.KEPT] != found.kept_rows or found.rows not in (None, counts[Fate.UPDATED]):
            _refuse_other_rows(rewriting, where, rewrite)
        return rewriting.commit({"numUpdatedRows": counts[Fate.UPDATED], "numCopiedRows": counts[Fate.KEPT]})


def columns_named(schema: t.StructType, given: Mapping[str, str]) -> dict[str, t.StructField]:
    """The columns that are meant by these names, by them. Raises InvalidInputError for other names."""
    fields = {field.name.lower(): field for field in schema.fields}
    if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
        raise InvalidInputError(
            f"{given!r:.200} names no values for columns; give a dict of columns and of expressions in Spark's SQL, "
            'such as {"n": "n + 1"}'
        )
    if unknown := [name for name in given if name.lower() not in fields]:
        raise InvalidInputError(f"the table has no column {unknown[0]!r:.100}; it has {', '.join(schema.fieldNames())}")
    if len({name.lower() for name in given}) < len(given):
        raise InvalidInputError(f"{list(given)!r:.300} names a column twice")
    return {name: fields[name.lower()] for name in given}


def misfits(rows: int, columns: set[str]) -> str:
    """What is wrong with rows of the fate WRONG."""
    return (
        f"{rows} rows get values that their columns ({', '.join(sorted(columns))}) cannot hold, such as numbers that "
        "are too large: change the expression, or the rows"
    )


def _refuse_other_rows(rewriting: Writing, where: str, rewrite: Rewrite) -> None:
    rewriting.refuse(
        f"where={where!r:.200} held for other rows of {rewrite.table.url} when they were read again: give a condition "
        "that goes by the rows alone"
    )
