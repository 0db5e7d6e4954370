"""Expressions of a statement that Spark has analysed: their columns are resolved, and some have no form as text."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.spark.sql.name_resolution import read_as
from dbio_commit.spark.versions import column_of


@dataclass(frozen=True)
class Planned:
    """An expression that uses columns by their ids. Only rows whose columns have these ids can evaluate it."""

    spark: SparkSession
    piece: Any
    """A `Piece` of the JVM."""

    @cached_property
    def column(self) -> Column:
        return column_of(self.spark, self.piece.expression())

    @cached_property
    def text(self) -> str | None:
        """A condition in Spark's SQL that holds wherever this one holds, to choose files; None if none is known."""
        return self.piece.text() or None

    @cached_property
    def id(self) -> str | None:
        """The column's id if the expression is a column; else None."""
        return self.piece.id() or None

    @cached_property
    def columns(self) -> frozenset[str]:
        """The names of the columns that the expression uses."""
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
        """Whether the expression has a subquery. Its value may then differ each time, so compute it only once."""
        return bool(self.piece.readsTables())

    def __repr__(self) -> str:
        """The expression in SQL, for error messages."""
        return repr(str(self.piece.sql()))

    def check(self, *, name: str) -> None:
        """Raises InvalidInputError if the expression is not deterministic."""
        if not self.is_deterministic:
            raise InvalidInputError(
                f"{name}={self!r:.200} is not deterministic: it can hold for other rows each time; nothing was written:"
                " give a condition that depends on the rows alone"
            )


Named = Callable[[DataFrame], DataFrame]
"""Returns the rows with the column ids that `Planned` expressions of a statement use."""


def as_they_are(rows: DataFrame) -> DataFrame:
    """A `Named` that changes nothing: for texts, which use columns by their names."""
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
