"""Chooses partitions of a table, by their values or by a condition, for operations on whole partitions. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from dbio_commit.base.arguments import check_partition
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.packages import require
from dbio_commit.protocol.names import Partition, format_partition, parse_partition
from dbio_commit.protocol.partition_values import Given, spell
from dbio_commit.protocol.partitions import agreed_text, partition_types
from dbio_commit.protocol.settings import Layout

Chooses = Callable[[Partition], bool]
"""Whether a partition is chosen. May raise InvalidInputError."""


def by_values(
    values: Mapping[str, Given | None], layout: Layout, schema: Mapping[str, Any] | None, *, where: str
) -> Chooses:
    """The partitions with these values; values for some of the partition columns choose all partitions that have them.

    A text is one as in a directory's name. All directories are chosen whose texts stand for the same value, such as
    month=01 and month=1 for a number. Raises InvalidInputError if there is no such partition column, or for a value
    that is not of the column's type.
    """
    check_partition(values)
    own = {column.lower(): column for column in layout}
    if not values or not {name.lower() for name in values} <= own.keys():
        raise InvalidInputError(
            f"{dict(values)!r:.200} is no partition of {where}, which is partitioned by {list(layout)}"
        )
    types = partition_types(schema, layout) if schema else {}
    wanted: dict[str, str | None] = {}
    for name, value in values.items():
        column = own[name.lower()]
        try:
            is_text = value is None or isinstance(value, str)
            wanted[column] = value if is_text else spell(value, types.get(column))
        except ValueError as error:
            raise InvalidInputError(f"partition column {column!r} of {where}: {error}") from None
    agreed = {column: agreed_text(text, types.get(column)) for column, text in wanted.items()}
    return lambda partition: all(
        agreed_text(partition.get(column), types.get(column)) == text for column, text in agreed.items()
    )


def by_condition(
    condition: str, layout: Layout, schema: Mapping[str, Any] | None, *, where: str, time_zone: str | None = None
) -> Chooses:
    """The partitions whose rows all fulfil a condition, in Spark's SQL, on partition columns alone.

    The returned function raises InvalidInputError if dbio cannot decide for a partition. Raises InvalidInputError for a
    condition that uses other columns, MissingPackageError without sqlglot.
    """
    require("sqlglot", what="a condition")
    from dbio_commit.data.conditions.pruning import column_types, judge_partition
    from dbio_commit.data.conditions.sql import parse_where

    if schema is None:
        raise InvalidInputError(f"no writer has recorded the columns of {where}, so it has no partitions to choose")
    parsed = parse_where(condition, schema, zone=time_zone)
    own = {column.lower() for column in layout}
    if others := [column for column in parsed.columns() if column.lower() not in own]:
        raise InvalidInputError(
            f"the condition {condition!r:.200} uses {others[0]!r:.100}, and may use only the partition columns "
            f"{list(layout)}, since files are taken whole"
        )
    judge = judge_partition(parsed, column_types(schema))

    def chooses(partition: Partition) -> bool:
        if (answer := judge(partition)) is not None:
            return answer
        raise InvalidInputError(
            f"dbio cannot tell whether {condition!r:.200} holds for all rows of the partition "
            f"{format_partition(partition)!r:.300}; compare the partition columns {list(layout)} with values, or name "
            "the partition"
        )

    return chooses


def parse_values(texts: list[str]) -> dict[str, str | None]:
    """The values in texts such as "day=2026-11-20", as in the names of directories. Raises InvalidInputError."""
    found: dict[str, str | None] = {}
    for text in texts:
        for part in text.strip("/").split("/"):
            value = parse_partition(part)
            if len(value) != 1 or value.keys() <= found.keys():
                raise InvalidInputError(
                    f"{text!r:.200} is no partition: give each column once, such as day=2026-11-20, or day=2026-11-20/"
                    "country=de"
                )
            found |= value
    return found
