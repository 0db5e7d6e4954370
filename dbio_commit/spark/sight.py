"""Texts in Spark's SQL, as columns of rows that have more columns than those who wrote the texts see.

A text means what it means beside the columns that are seen, `*` included. What rows have besides (where they are, what
becomes of them, the other side of a merge) it neither names nor counts, whatever it is called.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from dbio_commit.errors import InvalidInputError
from dbio_commit.spark.session import is_connect, java_class


def read_as(rows: DataFrame, seen: Sequence[Column | str], texts: Sequence[str]) -> list[Column]:
    """The texts as columns of the rows, as they mean beside the columns `seen`, which are given as `select` takes them.

    On classic sessions, Spark resolves them there once, and what it finds are those columns of `rows` themselves. Over
    Connect, a text goes by its names: raises InvalidInputError where these mean something else among all columns.
    """
    if not texts:
        return []
    shown = rows.select(*seen)
    resolved = None if is_connect(rows.sparkSession) else _resolved(shown, texts)
    if resolved is not None:
        return resolved
    columns = [f.expr(text) for text in texts]
    for text, own, among_all in zip(texts, shown.select(*columns).columns, rows.select(*columns).columns, strict=True):
        if own != among_all:
            raise InvalidInputError(
                f"{text!r:.200} would stand for {among_all:.200} here, and not for {own:.200}: name the columns that "
                "are meant, each by its side, in the place of *; nothing was written"
            )
    return columns


def _resolved(shown: DataFrame, texts: Sequence[str]) -> list[Column] | None:
    """What Spark makes of the texts; None where it needs more than one look at a row for them."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    project: Any = shown.select(*map(f.expr, texts))._jdf.queryExecution().analyzed()
    plain = project.getClass().getSimpleName() == "Project" and project.child().equals(
        shown._jdf.queryExecution().analyzed()
    )
    if not plain:
        return None
    found = project.projectList()
    if found.size() != len(texts):
        raise InvalidInputError(f"{', '.join(texts)!r:.200} stands for {found.size()} values; give one for each column")
    utils = java_class(shown.sparkSession._jvm, "org.apache.spark.sql.classic.ExpressionUtils")
    named = [found.apply(i) for i in range(found.size())]
    bare = [it.child() if it.getClass().getSimpleName() == "Alias" else it for it in named]
    return [ClassicColumn(utils.column(it)) for it in bare]
