"""Restores Arrow batches from the JVM: drops filler rows, and makes decimals of integers again. Pure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FILLER = "filler"
"""The column that is true in filler rows, which hold no data; see `batches`."""


def without_fillers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that hold data. Copies nothing if all do."""
    index = batch.schema.get_field_index(FILLER)
    if index < 0 or not pc.any(batch.column(index)).as_py():
        return batch
    return batch.filter(pc.invert(batch.column(index)))


def with_decimals(batch: pa.RecordBatch, kinds: Mapping[int, pa.DataType]) -> pa.RecordBatch:
    """The batch with the integers at these positions as decimals of these types, with the same digits."""
    columns = [scaled(column, kinds[i]) if i in kinds else column for i, column in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if kinds else batch


def scaled(column: Any, kind: pa.DataType) -> Any:
    """Integers of 64 bits as decimals of this type, with the same digits.

    Arrow's cast takes five times as long, as it checks whether each value fits.
    """
    nulls, numbers = column.buffers()
    low = np.frombuffer(numbers, np.int64, column.offset + len(column))
    both = np.empty((len(low), 2), np.int64)
    both[:, 0] = low
    np.right_shift(low, 63, out=both[:, 1])
    return pa.Array.from_buffers(kind, len(column), [nulls, pa.py_buffer(both.data)], column.null_count, column.offset)
