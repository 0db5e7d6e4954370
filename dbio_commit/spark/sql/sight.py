"""Texts in Spark's SQL, as columns of rows that have more columns than those who wrote the texts see.

A text means what it means beside the columns that are seen, `*` included. What rows have besides (where they are, what
becomes of them, the other side of a merge) it neither names nor counts, whatever it is called.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.spark.session.conf import is_connect, java_class


def read_as(rows: DataFrame, seen: Sequence[Column | str], texts: Sequence[str]) -> list[Column]:
    """The texts as columns of the rows, as they mean beside the columns `seen`, which are given as `select` takes them.

    On classic sessions, Spark resolves them there once, and what it finds are those columns of `rows` themselves. Over
    Connect, a text goes by its names: raises InvalidInputError where these mean something else among all columns.
    """
    if not texts:
        return []
    shown = rows.select(*seen)
    if is_connect(rows.sparkSession):
        return _by_names(rows, shown, texts)
    found = _resolved(shown, texts)
    if found is not None:
        return found
    # One by one, so that none goes by its names because of others, nor by what these are called.
    return [column for text in texts for column in _resolved(shown, [text]) or _by_names(rows, shown, [text])]


def _by_names(rows: DataFrame, shown: DataFrame, texts: Sequence[str]) -> list[Column]:
    """The texts as they are, where all columns in them are the same beside those that are shown, and among all."""
    columns = [f.expr(text) for text in texts]
    # Of a value that its text gives a name, Spark tells no more than that; and of a field, its last name.
    unnamed = [f.struct(column) for column in columns]
    fields = shown.select(*unnamed).schema.fields
    for text, own, among_all in zip(texts, fields, rows.select(*unnamed).columns, strict=True):
        if own.name != among_all:
            meant, found = (it.removeprefix("struct(").removesuffix(")") for it in (own.name, among_all))
            raise InvalidInputError(
                f"{text!r:.200} would stand for {found:.200} here, and not for {meant:.200}: name the columns that are "
                "meant, each by its side, in the place of *, and fields of structs by side, too (source.a.b); nothing "
                "was written"
            )
        _refuse_many([text], len(own.dataType.fields) if isinstance(own.dataType, t.StructType) else 0)
    return columns


def _refuse_many(texts: Sequence[str], values: int) -> None:
    if values != len(texts):
        raise InvalidInputError(f"{', '.join(texts)!r:.200} stands for {values} values; give one for each column")


def _resolved(shown: DataFrame, texts: Sequence[str]) -> list[Column] | None:
    """What Spark makes of the texts; None where it needs more than one look at a row for them."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = shown.sparkSession._jvm
    plan: Any = shown.select(*map(f.expr, texts))._jdf.queryExecution().analyzed()
    base, looks = shown._jdf.queryExecution().analyzed(), []
    while plan.getClass().getSimpleName() == "Project" and not plan.equals(base):
        looks.append(plan.projectList())
        plan = plan.child()
    if not looks or not plan.equals(base):
        return None
    found, *inner = looks
    if inner and len(texts) > 1:  # one of them may go by another
        return None
    for look in inner:  # the arguments of functions in SQL
        if not all(look.apply(i).deterministic() for i in range(look.size())):
            return None
        collapse = java_class(jvm, "org.apache.spark.sql.catalyst.optimizer.CollapseProject$")
        found = getattr(collapse, "MODULE$").buildCleanedProjectList(found, look)
    _refuse_many(texts, found.size())
    utils = java_class(jvm, "org.apache.spark.sql.classic.ExpressionUtils")
    named = [found.apply(i) for i in range(found.size())]
    bare = [it.child() if it.getClass().getSimpleName() == "Alias" else it for it in named]
    return [ClassicColumn(utils.column(it)) for it in bare]
