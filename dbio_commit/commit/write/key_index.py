"""Numbers the keys of a merge's source, and finds them in rows of the table. Pure."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types


@dataclass(frozen=True, slots=True)
class _Column:
    values: Any
    """The distinct values of a key column, without null."""

    def codes(self, column: Any) -> Any:
        """For each value its place among the distinct ones; -1 if it is none of them, or null."""
        found = pc.index_in(column, value_set=self.values, skip_nulls=True)
        return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)


class KeyIndex:
    """The keys of a source: numbers each distinct key, and finds the numbers for rows of the table.

    A key with a null is equal to no other, and has the number -1.
    """

    def __init__(self, keys: pa.Table) -> None:
        self._columns = [_Column(_hashed(column).unique().drop_null()) for column in keys.columns]
        self._steps: list[Any] = []
        """For each column after the first: its distinct pairs, as one number each. A pair has the number of the columns
        before, and the place of the value."""
        codes = self._columns[0].codes(_whole(keys.column(0))) if keys.num_rows else np.zeros(0, np.int64)
        for column, values in zip(self._columns[1:], keys.columns[1:], strict=True):
            pairs = self._paired(codes, column, _whole(values))
            self._steps.append(np.unique(pairs[pairs >= 0]))
            codes = self._placed(pairs, self._steps[-1])
        self.own = codes
        """For each row of the source, the number of its key."""
        self.count = int(codes.max()) + 1 if len(codes) else 0
        known = np.nonzero(codes >= 0)[0]
        self.first = np.zeros(self.count, np.int64)
        self.first[codes[known][::-1]] = known[::-1]
        self._times = np.bincount(codes[known], minlength=self.count)

    def find(self, rows: pa.RecordBatch) -> Any:
        codes = self._columns[0].codes(_whole(rows.column(0)))
        for column, values, step in zip(self._columns[1:], rows.columns[1:], self._steps, strict=True):
            codes = self._placed(self._paired(codes, column, _whole(values)), step)
        return codes

    def has_twice(self, codes: Any) -> bool:
        """Whether several rows of the source have one of these keys."""
        return bool((self._times[codes] > 1).any())

    @staticmethod
    def _paired(codes: Any, column: _Column, values: Any) -> Any:
        places = column.codes(values)
        return np.where((codes >= 0) & (places >= 0), codes * max(len(column.values), 1) + places, -1)

    @staticmethod
    def _placed(pairs: Any, step: Any) -> Any:
        if not len(step):
            return np.full(len(pairs), -1, np.int64)
        at = np.minimum(np.searchsorted(step, pairs), len(step) - 1)
        return np.where(step[at] == pairs, at, -1)


def _whole(column: Any) -> Any:
    return _hashed(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def _hashed(column: Any) -> Any:
    """The column, with a type that Arrow hashes; one type for all whole numbers."""
    kind = column.type
    if types.is_integer(kind):
        return column.cast(pa.int64())
    if types.is_decimal(kind) and kind.bit_width != 128:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column
