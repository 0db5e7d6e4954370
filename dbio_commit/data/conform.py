"""Converts a file's columns to a table's, for reads in Python: names, order, types, absent columns."""

from typing import Any

import pyarrow as pa

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.texts import Cause
from dbio_commit.data.columns import type_name
from dbio_commit.data.constants import scalar
from dbio_commit.data.widen import fit
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.partition_values import read, unread


def conform(batch: pa.RecordBatch, target: pa.Schema, *, partition: Partition, where: str) -> pa.RecordBatch:
    """The batch with the target's columns. Absent columns are null, partition columns are filled in. `where` is the
    file's URL.

    Columns are matched by name without regard to case, as Spark does. Raises InvalidInputError for types that do not
    fit, and for a partition that names no value of its column.
    """
    position = {name.lower(): i for i, name in enumerate(batch.schema.names)}
    partition = {name.lower(): value for name, value in partition.items()}
    columns: list[Any] = []
    for field in target:
        try:
            if field.name.lower() in partition:
                value = partition_value(partition[field.name.lower()], field, where)
                columns.append(pa.repeat(scalar(value, field.type), batch.num_rows))
            elif field.name.lower() in position:
                columns.append(fit(batch.column(position[field.name.lower()]), field.type))
            else:
                columns.append(pa.nulls(batch.num_rows, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise InvalidInputError(
                f"column {field.name!r} of {where} does not fit the table's {field.type}: {error!s:.200}"
            ) from Cause.of(error)
    return pa.RecordBatch.from_arrays(columns, schema=target)


def partition_value(text: str | None, field: Any, where: str) -> Any:
    """The column's value in all rows of a file, from its directory's name. Raises InvalidInputError, with the URL."""
    try:
        return parse_value(text, field.type)
    except ValueError as error:
        raise unread(where, field.name, str(error)) from None


def parse_value(text: str | None, kind: pa.DataType) -> Any:
    """The value of a partition column, from its directory's name; the inverse of `arrow.format_values`.

    Raises ValueError, with the reason, if not all readers take the text for the same value.
    """
    return None if text is None else read(text, type_name(kind))
