"""The two sides of a merge: their columns by name, and when a row of the table matches a row of the source."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.sql.conditions import SOURCE, TARGET


def name_of(side: str, column: str) -> str:
    """The column in Spark's SQL."""
    return f"{side}.{schemas.quoted(column)}"


def of_side(side: str, column: str) -> Column:
    return f.col(name_of(side, column))


def matching(on: str | Sequence[str], schema: t.StructType, source: DataFrame) -> tuple[str, Column | None]:
    """`on` as a text; and, if `on` is a list of columns, the condition that they are equal, else None."""
    if isinstance(on, str):
        if on.strip().lower() in {*map(str.lower, schema.fieldNames())} & {*map(str.lower, source.columns)}:
            raise InvalidInputError(
                f"on={on!r:.100} is a column, not a condition; to match rows by this column, give [{on!r:.100}]"
            )
        return on, None
    if not isinstance(on, Sequence) or not on or not all(isinstance(name, str) for name in on):
        raise InvalidInputError(
            f'on={on!r:.200} is neither a condition, such as "target.id = source.id", nor a list of columns'
        )
    named: list[list[str]] = []
    for columns, whose in ((schema.fieldNames(), "table"), (source.columns, "source")):
        own = by_name(columns)
        if missing := [name for name in on if not own.keys() & {name, name.lower()}]:
            raise InvalidInputError(f"on={list(on)!r:.200}: the {whose} has no column {missing[0]!r}")
        named.append([own.get(name) or own[name.lower()] for name in on])
    pairs = [*zip(*named, strict=True)]
    text = " AND ".join(f"{name_of(TARGET, it)} = {name_of(SOURCE, other)}" for it, other in pairs)
    return text, reduce(and_, (of_side(TARGET, it) == of_side(SOURCE, other) for it, other in pairs))


def by_name(columns: Iterable[str]) -> Mapping[str, str]:
    """The columns by their exact names and by their names in lower case: a session may tell names apart by case."""
    columns = [*columns]
    return {name.lower(): name for name in columns} | {name: name for name in columns}
