"""Finds a few ranges that hold all values of a column and leave out the widest gaps between them, batch by batch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.data import arrow

SCHEMA = "rows long, bytes long, key int, low string, high string"
"""The columns of the lines that `summarize` makes, for Spark."""
_COLUMNS = ["rows", "bytes", "key", "low", "high"]

_MOST_OF_TASK = 64
"""At most so many ranges of a key in one task, which sends a line for each of them to the driver."""
_NARROW = 1024
"""A gap below 1/_NARROW of the whole is not left out: one more range means one more comparison for each file."""

KeyValue = int | Decimal | str
"""Dates are days since 1970."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Pairs of the least and the greatest value of a range, in order. No pairs: there are no values."""

    pairs: Sequence[tuple[KeyValue, KeyValue]] = ()
    is_unbounded: bool = False
    """Whether there are values with unknown bounds: texts that are no valid UTF-8."""

    @classmethod
    def of(cls, column: "pa.Array[Any]") -> Self:
        """Ranges of the values but nulls. Integers and dates are divided at gaps, and other values are one range."""
        values = column.drop_null()
        if not len(values):
            return cls()
        if pa.types.is_date32(values.type):
            values = values.cast(pa.int32())
        if pa.types.is_integer(values.type):
            numbers = np.unique(values.cast(pa.int64()).to_numpy())
            return cls(_divided(numbers, numbers, _MOST_OF_TASK))
        is_text = not pa.types.is_decimal(values.type)
        bounds: Any = pc.min_max(values.cast(pa.large_binary()) if is_text else values)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        try:
            return cls([(low.decode(), high.decode()) if is_text else (low, high)])
        except UnicodeDecodeError:
            return cls(is_unbounded=True)

    def united(self, others: Iterable["Ranges"], most: int = _MOST_OF_TASK) -> "Ranges":
        """At most `most` ranges, which hold all of these values."""
        each = [self, *others]
        if any(it.is_unbounded for it in each):
            return Ranges(is_unbounded=True)
        pairs = [pair for it in each for pair in it.pairs]
        if not pairs:
            return Ranges()
        if isinstance(pairs[0][0], int):
            bounds = np.array(pairs, np.int64)
            return Ranges(_divided(bounds[:, 0], bounds[:, 1], most))
        lows, highs = zip(*pairs, strict=True)
        return Ranges([(min(lows), max(highs))])


def _divided(lows: Any, highs: Any, most: int) -> list[tuple[KeyValue, KeyValue]]:
    """Up to `most` ranges that hold these ranges: divided where the gaps are widest."""
    order = np.argsort(lows, kind="stable")
    lows, highs = lows[order], np.maximum.accumulate(highs[order])
    # Without signs, so that the difference of any two numbers has a value.
    gaps = np.where(lows[1:] > highs[:-1], lows[1:].astype(np.uint64) - highs[:-1].astype(np.uint64), np.uint64(0))
    least = max(2, (int(highs[-1]) - int(lows[0])) // _NARROW)
    cuts = np.flatnonzero(gaps >= np.uint64(least))
    if len(cuts) >= most:
        cuts = np.sort(cuts[np.argsort(gaps[cuts], kind="stable")[len(cuts) - most + 1 :]])
    return [*zip(lows[[0, *(cuts + 1)]].tolist(), highs[[*cuts, -1]].tolist(), strict=True)]


# --- between tasks and the driver ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeySummary:
    """What a merge needs about the rows of its source."""

    rows: int
    size: int
    """About how many bytes the keys take."""
    keys: Sequence[Ranges]
    """The ranges of each key, by its position."""


def summarize(batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """In a task: a line for all rows, and a line for each range of each key. Unknown bounds are null.

    The first column of the batches has the bytes of each row, and the next ones are the keys, `count` of them.
    """
    rows = size = 0
    keys = [Ranges()] * count
    for batch in (arrow.plain_batch(arrow.sound(it)) for it in batches):
        rows += batch.num_rows
        size += pc.sum(batch.column(0)).as_py() or 0
        keys = [key.united([Ranges.of(batch.column(1 + i))]) for i, key in enumerate(keys)]
    lines: list[tuple[Any, ...]] = [(rows, size, None, None, None)]
    for key, it in enumerate(keys):
        pairs = [(None, None)] if it.is_unbounded else [(_text(low), _text(high)) for low, high in it.pairs]
        lines += [(None, None, key, low, high) for low, high in pairs]
    kinds = (pa.int64(), pa.int64(), pa.int32(), pa.string(), pa.string())
    columns = [pa.array(values, kind) for values, kind in zip(zip(*lines, strict=True), kinds, strict=True)]
    yield pa.RecordBatch.from_arrays(columns, names=_COLUMNS)


def _text(value: KeyValue) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def add_up(lines: Iterable[Any], kinds: Sequence[type[int] | type[Decimal] | type[str]], *, most: int) -> KeySummary:
    """Adds up the lines of all tasks. `kinds`: the types of the keys' values; `most`: how many ranges for a key."""
    rows = size = 0
    keys: list[list[Ranges]] = [[] for _ in kinds]
    for line in lines:
        if line.key is None:
            rows, size = rows + line.rows, size + line.bytes
        elif line.low is None:
            keys[line.key].append(Ranges(is_unbounded=True))
        else:
            kind = kinds[line.key]
            keys[line.key].append(Ranges([(kind(line.low), kind(line.high))]))
    return KeySummary(rows, size, [Ranges().united(each, most) for each in keys])
