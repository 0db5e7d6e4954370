"""What a condition in Spark's SQL asks, and whether a rewrite may go by it."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlglot
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dbio_commit.errors import InvalidInputError
from dbio_commit.spark.scan import PATH

TARGET, SOURCE = "target", "source"
"""What a merge calls the rows of the table, and those that come."""

NOTHING = "1 = 0"
"""A condition that holds for no row."""


def holds(where: str) -> Column:
    """True, or false: a condition that is null does not hold."""
    return f.coalesce(f.expr(where), f.lit(False))


def parse(where: str) -> Any:
    """The condition as a tree; None where Spark knows more of its SQL than sqlglot does."""
    try:
        return sqlglot.parse_one(where, dialect="spark")
    except (SqlglotError, RecursionError):
        return None


def check(rows: DataFrame, where: str, *, name: str = "where") -> None:
    """Whether a condition goes by these rows alone, of which there are none.

    Raises InvalidInputError for what holds for other rows each time, and Spark's errors for what is wrong.
    """
    if not isinstance(where, str) or not where.strip():
        raise InvalidInputError(f'{name}={where!r:.200} is no condition; give one as text, in Spark\'s SQL: "id > 5"')
    if (tree := parse(where)) is not None and tree.find(exp.Query):
        raise InvalidInputError(
            f"{name}={where!r:.200} asks other tables, which may change while rows are replaced; look there first, and "
            "give the values"
        )
    rows.where(where).schema  # noqa: B018  (over Connect, asking for it is what looks for errors)
    try:
        rows.join(rows.sparkSession.createDataFrame([], f"{PATH} string"), f.expr(where)).schema  # noqa: B018
    except AnalysisException as error:
        if "NON_DETERMINISTIC" not in str(error.getCondition()):
            raise
        raise InvalidInputError(
            f"{name}={where!r:.200} does not go by the rows alone: it holds for others each time; nothing was written"
        ) from None


def asked_columns(where: str) -> list[str] | None:
    """The columns that it asks, in lower case; None where that is not clear."""
    tree = parse(where)
    if tree is None or tree.find(exp.Lambda):
        return None
    found = [*tree.find_all(exp.Column)]
    return None if any(it.table for it in found) else [it.name.lower() for it in found]


def target_part(on: str, columns: Collection[str], source: Collection[str]) -> str | None:
    """What a merge's condition asks of the table's rows alone, in the table's own terms; None where that is nothing."""
    known, others = {name.lower() for name in columns}, {name.lower() for name in source}
    parts = []
    for part in _conjuncts(on):
        asked = [*part.find_all(exp.Column)]
        if asked and all(_side(it, known, others) == TARGET for it in asked) and not part.find(exp.Lambda):
            parts.append(_bare(part))
    return all_of(parts)


def key_pairs(on: str, columns: Collection[str], source: Collection[str]) -> list[tuple[str, str]]:
    """The columns of the table that a merge's condition wants to be equal to something of the source, and to what."""
    known, others = {name.lower() for name in columns}, {name.lower() for name in source}
    spelling = {name.lower(): name for name in columns}
    pairs = []
    for part in _conjuncts(on):
        if not isinstance(part, exp.EQ):
            continue
        for own, other in ((part.this, part.expression), (part.expression, part.this)):
            asked = [*other.find_all(exp.Column)]
            is_own = isinstance(own, exp.Column) and len(own.parts) <= 2 and _side(own, known, others) == TARGET
            if is_own and asked and all(_side(it, known, others) == SOURCE for it in asked):
                pairs.append((spelling[own.name.lower()], other.sql(dialect="spark")))
    return pairs


def all_of(conditions: Iterable[str]) -> str | None:
    return " AND ".join(f"({it})" for it in conditions) or None


def any_of(conditions: Sequence[str | None]) -> str | None:
    """None where one of them, which is None, holds always; and where there are none."""
    given = [it for it in conditions if it is not None]
    return " OR ".join(f"({it})" for it in given) if given and len(given) == len(conditions) else None


def _conjuncts(on: str) -> list[Any]:
    tree = parse(on)
    if tree is None:
        return []
    return [part.unnest() for part in (tree.flatten() if isinstance(tree, exp.And) else [tree.unnest()])]


def _side(column: Any, known: Collection[str], others: Collection[str]) -> str | None:
    """Whose column it is; None where that is not sure."""
    name, table = column.name.lower(), column.table.lower()
    if table == TARGET and name in known:
        return TARGET
    if table == SOURCE and name in others:
        return SOURCE
    if not table and (name in known) != (name in others):
        return TARGET if name in known else SOURCE
    return None


def _bare(part: Any) -> str:
    bare = part.copy()
    for column in [*bare.find_all(exp.Column)]:
        column.set("table", None)
    return str(bare.sql(dialect="spark"))
