"""Resolves texts in Spark's SQL for rows that have more columns than the author of the text sees.

A name or a `*` in the text means only columns that the author sees. The other columns of the rows (FILE and PLACE,
ACTION, the other side of a merge) are invisible to the text, whatever their names are.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.spark.session.conf import is_connect, java_class
from dbio_commit.spark.versions import column_of


def read_as(rows: DataFrame, seen: Sequence[Column | str], texts: Sequence[str]) -> list[Column]:
    """The texts as columns of `rows`, resolved against the columns `seen` (as `DataFrame.select` takes them).

    On classic sessions, Spark resolves the texts once, to columns of `rows`. Over Connect, the server resolves names
    again, among all columns: raises InvalidInputError if a name then means something else.
    """
    if not texts:
        return []
    shown = rows.select(*seen)
    if is_connect(rows.sparkSession):
        return _by_names(rows, shown, texts)
    found = _resolved(shown, texts)
    if found is not None:
        return found
    # One by one, so that a text which must be resolved by names does not affect the others.
    return [column for text in texts for column in _resolved(shown, [text]) or _by_names(rows, shown, [text])]


def _by_names(rows: DataFrame, shown: DataFrame, texts: Sequence[str]) -> list[Column]:
    """The texts as columns that Spark resolves by name. Each must mean the same in `rows` as in `shown`."""
    columns = [f.expr(text) for text in texts]
    # In a struct: else Spark shows only the alias of a value, and only the last name of a field.
    unnamed = [f.struct(column) for column in columns]
    fields = shown.select(*unnamed).schema.fields
    for text, own, among_all in zip(texts, fields, rows.select(*unnamed).columns, strict=True):
        if own.name != among_all:
            meant, found = (it.removeprefix("struct(").removesuffix(")") for it in (own.name, among_all))
            raise InvalidInputError(
                f"{text!r:.200} would mean {found:.200} here, and not {meant:.200}: name the columns, each with its "
                "side, instead of *, and write fields of structs with their side, too (source.a.b); nothing was written"
            )
        _refuse_many([text], len(own.dataType.fields) if isinstance(own.dataType, t.StructType) else 0)
    return columns


def _refuse_many(texts: Sequence[str], values: int) -> None:
    if values != len(texts):
        raise InvalidInputError(f"{', '.join(texts)!r:.200} stands for {values} values; give one for each column")


def _resolved(shown: DataFrame, texts: Sequence[str]) -> list[Column] | None:
    """The texts as Spark resolves them; None if they cannot be written as one projection of `shown`."""
    jvm: Any = shown.sparkSession._jvm
    plan: Any = shown.select(*map(f.expr, texts))._jdf.queryExecution().analyzed()
    base, looks = shown._jdf.queryExecution().analyzed(), []
    while plan.getClass().getSimpleName() == "Project" and not plan.equals(base):
        looks.append(plan.projectList())
        plan = plan.child()
    if not looks or not plan.equals(base):
        return None
    found, *inner = looks
    if inner and len(texts) > 1:  # one text may use the result of another
        return None
    for look in inner:  # projections that compute arguments of functions in SQL
        if not all(look.apply(i).deterministic() for i in range(look.size())):
            return None
        collapse = java_class(jvm, "org.apache.spark.sql.catalyst.optimizer.CollapseProject$")
        found = getattr(collapse, "MODULE$").buildCleanedProjectList(found, look)
    _refuse_many(texts, found.size())
    named = [found.apply(i) for i in range(found.size())]
    bare = [it.child() if it.getClass().getSimpleName() == "Alias" else it for it in named]
    return [column_of(shown.sparkSession, it) for it in bare]
