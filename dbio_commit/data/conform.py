"""From a file's columns to a table's, for reads in Python: names, order, types, what is absent."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from dbio_commit.data.widen import fit
from dbio_commit.errors import InvalidInputError
from dbio_commit.protocol.names import Partition
from dbio_commit.texts import Cause


def conform(batch: pa.RecordBatch, target: pa.Schema, *, partition: Partition, where: str) -> pa.RecordBatch:
    """The batch with the target's columns: absent ones null, partition columns filled in. `where` is the file's URL.

    Columns are matched by name without regard to case, as Spark does. Raises InvalidInputError for types that do not
    fit.
    """
    position = {name.lower(): i for i, name in enumerate(batch.schema.names)}
    partition = {name.lower(): value for name, value in partition.items()}
    columns: list[Any] = []
    for field in target:
        try:
            if field.name.lower() in partition:
                value = parse_value(partition[field.name.lower()], field.type)
                columns.append(pa.repeat(pa.scalar(value, field.type), batch.num_rows))
            elif field.name.lower() in position:
                columns.append(fit(batch.column(position[field.name.lower()]), field.type))
            else:
                columns.append(pa.nulls(batch.num_rows, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, InvalidOperation, KeyError) as error:
            raise InvalidInputError(
                f"column {field.name!r} of {where} does not fit the table's {field.type}: {error!s:.200}"
            ) from Cause.of(error)
    return pa.RecordBatch.from_arrays(columns, schema=target)


def parse_value(text: str | None, kind: pa.DataType) -> Any:
    """The value of a partition column, from its directory's name; the inverse of `arrow.format_values`."""
    if text is None:
        return None
    return next((parse(text) for is_kind, parse in _PARSERS if is_kind(kind)), text)


_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}
_PARSERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]], ...] = (
    (pa.types.is_boolean, lambda text: _BOOLEANS[text.lower()]),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_date, date.fromisoformat),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is None, datetime.fromisoformat),
    (pa.types.is_timestamp, lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC)),
)
