"""Prepares Arrow data in memory for a writer: plain types, groups of rows by partition. Pure.

`commit/write/files` writes the data to files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.columns import type_name
from dbio_commit.data.constants import scalar
from dbio_commit.data.widen import fit
from dbio_commit.protocol import partition_values
from dbio_commit.protocol.types import is_partition

PartitionKey = tuple[str | None, ...]
"""The values of a row's partition columns as texts, unescaped. None is SQL null."""

# --- types --------------------------------------------------------------------------------------------------------


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with the types of data files: without views, without metadata, and with all fields nullable.

    Spark marks a field as not nullable if it is never null in a struct that is not null itself. Arrow would refuse such
    a field in a null struct.
    """
    return _plain_schema(tuple(schema))


@lru_cache(maxsize=64)  # the same for all batches of a task
def _plain_schema(fields: tuple[Any, ...]) -> pa.Schema:
    """Takes the fields, as a schema with metadata cannot be hashed before pyarrow 22."""
    return pa.schema(map(_plain_field, fields))


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in its `plain_schema`. Copies nothing if the types are plain already."""
    schema = plain_schema(batch.schema)
    return batch if batch.schema.equals(schema, check_metadata=True) else batch.cast(schema)


def _plain_field(field: Any) -> Any:
    return pa.field(field.name, _plain_type(field.type))


def _plain_type(kind: Any) -> Any:
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if types.is_list(kind) or types.is_list_view(kind):
        return pa.list_(_plain_field(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field).with_nullable(False), _plain_field(kind.item_field))
    return kind


# --- batches ------------------------------------------------------------------------------------------------------


def fitted(batch: pa.RecordBatch, kinds: Mapping[int, pa.DataType]) -> pa.RecordBatch:
    """The batch with the columns at these positions as these types."""
    if not kinds:
        return batch
    columns = [fit(column, kinds[i]) if i in kinds else column for i, column in enumerate(batch.columns)]
    fields = [pa.field(it.name, kinds.get(i, it.type)) for i, it in enumerate(batch.schema)]  # also with their marks
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)).replace_schema_metadata(batch.schema.metadata)


def sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, with new arrays for nested columns that lack offsets.

    In Spark 4.0, Arrow's Java library leaves out the offsets of empty arrays below a null. The format allows that, but
    pyarrow reads the offsets to find the size of the array, and the process crashes.
    """
    if not any(map(types.is_nested, batch.schema.types)):
        return batch
    hollow = [is_hollow(column) for column in batch.columns]
    if not any(hollow):
        return batch
    rows = pa.array(range(batch.num_rows), pa.int64())
    columns = [column.take(rows) if bad else column for column, bad in zip(batch.columns, hollow, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def is_hollow(array: "pa.Array[Any]") -> bool:
    """Whether a nested array, or one inside it, lacks offsets."""
    if isinstance(array, pa.StructArray):
        return any(is_hollow(array.field(number)) for number in range(array.type.num_fields))
    if isinstance(array, pa.MapArray):
        return _lacks_offsets(array) or is_hollow(array.keys) or is_hollow(array.items)
    if isinstance(array, pa.ListArray):
        return _lacks_offsets(array) or is_hollow(array.values)
    return False


def _lacks_offsets(array: "pa.Array[Any]") -> bool:
    offsets = array.buffers()[1]
    return offsets is None or offsets.size < 4 * (array.offset + len(array) + 1)


def project(
    batch: pa.RecordBatch, columns: Sequence[tuple[int | None, str]], casts: Mapping[str, pa.DataType]
) -> pa.RecordBatch:
    """The columns at these positions, under these names; null where the position is None. Only casts copy."""
    arrays = [_column(batch, position, casts.get(name)) for position, name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[name for _, name in columns])


def _column(batch: pa.RecordBatch, position: int | None, kind: Any) -> Any:
    if position is None:
        return pa.nulls(batch.num_rows, kind)
    return batch.column(position) if kind is None else fit(batch.column(position), kind)


def replaced(values: Any, mask: Any, new: Any) -> Any:
    """The values, with those under the mask replaced by the new ones, in order."""
    if not (pa.types.is_nested(values.type) or pa.types.is_duration(values.type)):
        return pc.replace_with_mask(values, mask, new)
    order = np.arange(len(values))
    order[mask.to_numpy(zero_copy_only=False)] = len(values) + np.arange(len(new))
    return pa.concat_arrays([values, new]).take(pa.array(order))


# --- partitions ---------------------------------------------------------------------------------------------------

_COMPLETING = {b"dbio_commit": b"completing"}


def completing(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, marked as the last with rows of its partitions. A filter of the batch keeps the mark."""
    return batch.replace_schema_metadata(_COMPLETING)


def is_completing(batch: pa.RecordBatch) -> bool:
    return batch.schema.metadata == _COMPLETING


def group(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[PartitionKey, pa.Table]]:
    """The rows of each partition, in their order and without the partition columns.

    Raises InvalidInputError for a value that cannot be in the name of a directory.
    """
    codes, keys = _codes(table, columns)
    data = table.drop_columns(list(columns))
    if codes is None:
        yield keys[0], data
        return
    if not _ascending(codes):  # one copy of the data; slices of a sorted table cost nothing
        order = pc.array_sort_indices(codes)  # stable
        data = data.take(order)
        codes = codes.take(order)
    runs: Any = pc.call_function("run_end_encode", [codes])
    start = 0
    for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield keys[code], data.slice(start, end - start)
        start = end


def keys(batch: pa.RecordBatch, columns: Sequence[str]) -> list[PartitionKey]:
    """The partitions of the rows, without duplicates. Raises InvalidInputError as `group` does."""
    return _codes(pa.Table.from_batches([batch]), columns)[1]


def _codes(table: pa.Table, columns: Sequence[str]) -> tuple[Any, list[PartitionKey]]:
    """The partition of each row as a number, and the partitions by their numbers, in order of appearance.

    The numbers are None if all rows are in one partition.
    """
    codes: Any = None
    keys: list[PartitionKey] = [()]
    for name in columns:
        column: Any = table.column(name)
        _formatter(name, column.type)  # raises for a type that the lines below cannot encode
        if types.is_decimal(column.type) and column.type.bit_width == 64:  # which Arrow does not hash
            column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
        if _is_constant(column):  # frequent, as rows often arrive partition by partition
            [text] = format_values(name, column.slice(0, 1))
            keys = [(*key, text) for key in keys]
            continue
        values = column.combine_chunks().dictionary_encode(null_encoding="encode")
        texts = format_values(name, values.dictionary)
        before = pa.repeat(scalar(0, pa.int64()), table.num_rows) if codes is None else codes.cast(pa.int64())
        wide = pc.add(pc.multiply(before, scalar(len(texts), pa.int64())), values.indices.cast(pa.int64()))
        pairs: Any = wide.dictionary_encode()
        keys = [(*keys[pair // len(texts)], texts[pair % len(texts)]) for pair in pairs.dictionary.to_pylist()]
        codes = pairs.indices
    return codes, keys


def _is_constant(column: Any) -> bool:
    """Whether all rows have the same value, or null. False without rows."""
    if column.null_count or not len(column):
        return bool(len(column)) and len(column) == column.null_count
    first = column[0]
    is_same: bool = first == column[-1] and pc.all(pc.equal(column, first)).as_py()
    return is_same


def _ascending(codes: Any) -> bool:
    return pc.all(pc.greater_equal(codes.slice(1), codes.slice(0, len(codes) - 1))).as_py() is not False


def format_values(column: str, values: Any) -> list[str | None]:
    """The values of a partition column as texts: those of Spark's cast to string in a session in UTC.

    Raises InvalidInputError for a type or value without such a text.
    """
    formatter = _formatter(column, values.type)
    if types.is_timestamp(values.type):  # instants become local times in UTC
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.timestamp("us"))
    try:
        return [None if value is None else formatter(value) for value in values.to_pylist()]
    except (OverflowError, ValueError) as error:
        raise InvalidInputError(
            f"partition column {column!r} ({values.type}) holds a value that cannot name a directory: {error}; only "
            "the years 1 to 9999 and text in UTF-8 can. Replace it by null or by another value before writing"
        ) from error


def _formatter(column: str, kind: Any) -> Callable[[Any], str]:
    try:
        name = type_name(kind)
    except ValueError:
        name = ""
    if not is_partition(name):
        raise InvalidInputError(
            f"partition column {column!r} has the type {kind}, whose values cannot name directories; partition by a "
            "string, boolean, integer, decimal, date or timestamp"
        )
    return partition_values.writer("timestamp_ntz" if name == "timestamp" else name)
