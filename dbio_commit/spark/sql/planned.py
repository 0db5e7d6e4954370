"""Expressions of a statement that Spark has analysed: they are resolved already, and may hold what no text can say."""

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.spark.sql.name_resolution import read_as
from dbio_commit.spark.versions import column_of


class Planned:
    """An expression that uses columns by their ids. Only rows whose columns have these ids can evaluate it."""

    def __init__(self, spark: SparkSession, piece: JavaObject) -> None:
        """`piece` is a `Piece` of the JVM."""
        self.spark, self.piece = spark, piece

    @cached_property
    def column(self) -> Column:
        return column_of(self.spark, self.piece.expression())

    @cached_property
    def text(self) -> str | None:
        """What follows from it as a condition, in Spark's SQL, to choose files by; None: nothing that can be said."""
        return self.piece.text() or None

    @cached_property
    def id(self) -> str | None:
        """The id of the column that it is; None if it is another expression."""
        return self.piece.id() or None

    @cached_property
    def columns(self) -> frozenset[str]:
        """The names of the columns that it uses."""
        return frozenset(filter(None, self.piece.columns().split("\0")))

    @cached_property
    def type(self) -> t.DataType:
        kind: Any = t.StructType.fromJson({"type": "struct", "fields": [_field(json.loads(self.piece.type()))]})
        found: t.DataType = kind[0].dataType
        return found

    @cached_property
    def is_deterministic(self) -> bool:
        return bool(self.piece.isDeterministic())

    @cached_property
    def reads_tables(self) -> bool:
        """Whether it has a subquery. Then its value may differ each time, and must be computed once."""
        return bool(self.piece.readsTables())

    def __repr__(self) -> str:
        """As in error messages."""
        return repr(str(self.piece.sql()))

    def check(self, *, name: str) -> None:
        """Raises InvalidInputError if it is not deterministic."""
        if not self.is_deterministic:
            raise InvalidInputError(
                f"{name}={self!r:.200} is not deterministic: it can hold for other rows each time; nothing was written:"
                " give a condition that depends on the rows alone"
            )


Named = Callable[[DataFrame], DataFrame]
"""Gives the columns of rows the ids that expressions of a statement use for them."""


def as_they_are(rows: DataFrame) -> DataFrame:
    """A `Named` for texts, which use columns by their names."""
    return rows


Sql = str | Planned
"""An expression of the caller: in Spark's SQL, or analysed."""


def text_of(condition: Sql | None) -> str | None:
    """A condition in Spark's SQL that holds wherever this one holds; None if none is known."""
    return condition.text if isinstance(condition, Planned) else condition


def read(rows: DataFrame, seen: Sequence[Column | str], given: Sequence[Sql]) -> list[Column]:
    """The expressions as columns of `rows`; texts are resolved as by `read_as`."""
    texts = iter(read_as(rows, seen, [it for it in given if isinstance(it, str)]))
    return [it.column if isinstance(it, Planned) else next(texts) for it in given]


def _field(kind: Any) -> dict[str, Any]:
    return {"name": "it", "type": kind, "nullable": True, "metadata": {}}
