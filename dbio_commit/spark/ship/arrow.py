"""What a task does to Arrow data in memory: plain types, partitions. Pure.

Where the data comes from, when it is written and to which files, is in `task`.
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
from dbio_commit.data.widen import fit
from dbio_commit.protocol import partition_values
from dbio_commit.protocol.types import is_partition

Key = tuple[str | None, ...]
"""The values of a row's partition columns, as in the directory's name but unescaped; None is SQL null."""

# --- types --------------------------------------------------------------------------------------------------------


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with each type as our files have it: no views, no metadata, and nothing in it that is never null.

    Spark says of fields that they are never null where their struct is not, which Arrow would hold against those of a
    null one.
    """
    return _plain_schema(tuple(schema))


@lru_cache(maxsize=64)  # the same for all batches of a task
def _plain_schema(fields: tuple[Any, ...]) -> pa.Schema:
    """By its fields: a schema that has metadata has no hash before pyarrow 22."""
    return pa.schema(map(_plain_field, fields))


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in its `plain_schema`; copies nothing where the types are plain already."""
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

FILLER = "filler"
"""The column that is true in rows which are there to make a batch full, and hold no data; see `batches`."""


def without_fillers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that hold data; nothing is copied where all do."""
    index = batch.schema.get_field_index(FILLER)
    if index < 0 or not pc.any(batch.column(index)).as_py():
        return batch
    return batch.filter(pc.invert(batch.column(index)))


def with_decimals(batch: pa.RecordBatch, kinds: Mapping[int, pa.DataType]) -> pa.RecordBatch:
    """The batch with the whole numbers at these positions as decimals of these types, which have the same digits."""
    columns = [scaled(column, kinds[i]) if i in kinds else column for i, column in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if kinds else batch


def scaled(column: Any, kind: pa.DataType) -> Any:
    """Whole numbers of 64 bits as decimals of this type, with the same digits: where the point is, only the type says.

    Arrow's cast takes five times as long, as it looks whether each of them fits.
    """
    nulls, numbers = column.buffers()
    low = np.frombuffer(numbers, np.int64, column.offset + len(column))
    both = np.empty((len(low), 2), np.int64)
    both[:, 0] = low
    np.right_shift(low, 63, out=both[:, 1])
    return pa.Array.from_buffers(kind, len(column), [nulls, pa.py_buffer(both.data)], column.null_count, column.offset)


def sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch; where Arrow's Java left out the offsets of what has no values, those columns are made anew.

    Spark 4.0 does so for what is nested below a null. The format allows it, but pyarrow asks such an array for its size
    by reading them, and the process dies.
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
    """Whether offsets are missing somewhere in a nested array."""
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
    """The columns at these positions, under these names, or null; nothing is copied, but for what is cast."""
    arrays = [_column(batch, position, casts.get(name)) for position, name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[name for _, name in columns])


def _column(batch: pa.RecordBatch, position: int | None, kind: Any) -> Any:
    if position is None:
        return pa.nulls(batch.num_rows, kind)
    return batch.column(position) if kind is None else fit(batch.column(position), kind)


# --- partitions ---------------------------------------------------------------------------------------------------

_COMPLETING = {b"dbio_commit": b"completing"}


def completing(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, marked: no rows of its partitions come after it. What is made of it by a filter is marked, too."""
    return batch.replace_schema_metadata(_COMPLETING)


def is_completing(batch: pa.RecordBatch) -> bool:
    return batch.schema.metadata == _COMPLETING


def group(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Key, pa.Table]]:
    """The rows of each partition, in their order, without the partition columns.

    Raises InvalidInputError for a value that no directory can be named after.
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


def keys(batch: pa.RecordBatch, columns: Sequence[str]) -> list[Key]:
    """The partitions of the rows, each once. Raises InvalidInputError as `group` does."""
    return _codes(pa.Table.from_batches([batch]), columns)[1]


def _codes(table: pa.Table, columns: Sequence[str]) -> tuple[Any, list[Key]]:
    """A number for the partition of each row, in order of appearance, and the partition of each number.

    None in place of the numbers where all rows are of one partition.
    """
    codes: Any = None
    keys: list[Key] = [()]
    for name in columns:
        column: Any = table.column(name)
        _formatter(name, column.type)  # refuses types that cannot be encoded either
        if types.is_decimal(column.type) and column.type.bit_width == 64:  # which Arrow does not hash
            column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
        if _is_constant(column):  # as where rows come by partitions
            [text] = format_values(name, column.slice(0, 1))
            keys = [(*key, text) for key in keys]
            continue
        values = column.combine_chunks().dictionary_encode(null_encoding="encode")
        texts = format_values(name, values.dictionary)
        before = pa.repeat(pa.scalar(0, pa.int32()), table.num_rows) if codes is None else codes
        wide = pc.add(pc.multiply(before.cast(pa.int64()), len(texts)), values.indices.cast(pa.int64()))
        pairs: Any = wide.dictionary_encode()
        keys = [(*keys[pair // len(texts)], texts[pair % len(texts)]) for pair in pairs.dictionary.to_pylist()]
        codes = pairs.indices
    return codes, keys


def _is_constant(column: Any) -> bool:
    """Whether it has one value, or null, in all rows, of which there are some."""
    if column.null_count or not len(column):
        return bool(len(column)) and len(column) == column.null_count
    first = column[0]
    is_same: bool = first == column[-1] and pc.all(pc.equal(column, first)).as_py()
    return is_same


def _ascending(codes: Any) -> bool:
    return pc.all(pc.greater_equal(codes.slice(1), codes.slice(0, len(codes) - 1))).as_py() is not False


def format_values(column: str, values: Any) -> list[str | None]:
    """The texts of a partition column's values, as Spark's cast to string makes them in a session in UTC.

    Raises InvalidInputError for a type or value that has no such text.
    """
    formatter = _formatter(column, values.type)
    if types.is_timestamp(values.type):  # from here on an instant is what a clock in UTC shows
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
