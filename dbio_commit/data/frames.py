"""Converts frames of pandas, Polars, Arrow and DuckDB to Arrow batches with a table's columns, in bounded memory.

`columns` converts types, and `mapping` decides which columns fit a table. pandas, Polars and DuckDB are never imported
here: the program that made a frame has imported its package.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.texts import Cause
from dbio_commit.data.columns import spark_schema
from dbio_commit.data.data_file import cut
from dbio_commit.data.encoding import leaves, maps, problem_of_values
from dbio_commit.data.mapping import ColumnMapping, Schema
from dbio_commit.data.widen import cut_out, fit

BATCH_ROWS = 64 * 1024
BATCH_BYTES = 32 * 1024 * 1024
MOST_LEVELS = 64

WHAT = (
    "a DataFrame of pandas, Polars or PySpark, a LazyFrame, a table, a batch or a RecordBatchReader of Arrow, a "
    "relation of DuckDB, or anything with __arrow_c_stream__"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Rows that a user wants to write."""

    columns: Schema
    """Its columns, as Spark's JSON."""
    batches: Callable[[], Iterator[pa.RecordBatch]]
    """Reads the rows, in their order."""
    is_stream: bool = False
    """Whether the rows can be read only once."""
    typed: str = "table[{0!r}].cast(pyarrow.string())"
    """Code that casts a column to text in the tool that made the frame, with {0} for the column's name."""


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def read_frame(frame: Any) -> Frame:
    """The frame's columns and rows. Reads no rows yet, except for types that only values show, in pandas.

    Raises InvalidInputError if `frame` is no frame, and for a column whose type a table cannot have, with its name.
    """
    kinds = {(_package(kind), kind.__name__) for kind in type(frame).__mro__}
    if ("pandas", "DataFrame") in kinds:
        return replace(_of_pandas(frame), typed="frame.astype({{{0!r}: 'string'}})")
    if ("polars", "LazyFrame") in kinds:
        return replace(_of_lazy(frame), typed=_TYPED_IN_POLARS)
    if ("duckdb", "DuckDBPyRelation") in kinds or ("_duckdb", "DuckDBPyRelation") in kinds:
        return replace(_of_relation(frame), typed="CAST({0} AS VARCHAR)")
    if isinstance(frame, pa.RecordBatchReader):
        return _frame(frame.schema, _once(frame), is_stream=True)
    if isinstance(frame, pa.Table):
        return _frame(frame.schema, lambda: iter(frame.to_batches(max_chunksize=BATCH_ROWS)))
    if isinstance(frame, pa.RecordBatch):
        return _frame(frame.schema, lambda: iter([frame]))
    if ("polars", "DataFrame") in kinds:
        _refuse_odd(frame.schema.items(), _inside_polars, _NOT_ARROWS)
        return replace(_of_capsule(frame, is_stream=False), typed=_TYPED_IN_POLARS)
    if hasattr(frame, "__arrow_c_stream__"):
        return _of_capsule(frame, is_stream=True)
    name = f"{_package(type(frame))}.{type(frame).__name__}".removeprefix("builtins.")
    raise InvalidInputError(
        f"a {name} is no frame of rows: give {WHAT}; of rows as dictionaries, pyarrow.Table.from_pylist(rows) makes one"
    )


_TYPED_IN_POLARS = "polars.col({0!r}).cast(polars.String)"


def _frame(schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]], *, is_stream: bool = False) -> Frame:
    if not schema.names:
        raise InvalidInputError(
            "the frame has no columns, and a table needs some: give it those of the table, even if it has no rows"
        )
    for column in schema:
        if _levels(column.type) > MOST_LEVELS:
            raise InvalidInputError(
                f"column {column.name!r} is nested in more than {MOST_LEVELS} levels, which not all readers read: make "
                "it a text, such as JSON, or several columns"
            )
    columns = spark_schema(schema.remove_metadata(), where="the data")
    return Frame(columns=columns, batches=batches, is_stream=is_stream)


def _levels(kind: Any) -> int:
    """The levels of nesting, counted up to MOST_LEVELS + 1."""
    found, inside = 0, [kind]
    while inside and found <= MOST_LEVELS:
        found += 1
        inside = [it.field(number).type for it in inside for number in range(it.num_fields)]
    return found


def _once(reader: pa.RecordBatchReader) -> Callable[[], Iterator[pa.RecordBatch]]:
    left = [reader]

    def read() -> Iterator[pa.RecordBatch]:
        if not left:
            raise InvalidInputError("the rows come from a stream that was read already: give a new one, or a table")
        return iter(left.pop())

    return read


def _of_capsule(frame: Any, *, is_stream: bool) -> Frame:
    try:
        reader = pa.RecordBatchReader.from_stream(frame)
    except pa.ArrowInvalid as error:  # it has single values, as a Series has
        raise InvalidInputError(f"a {type(frame).__name__} is no frame of rows with columns: {error!s:.200}") from None
    if is_stream:  # it may yield its rows only once
        return _frame(reader.schema, _once(reader), is_stream=True)
    return _frame(reader.schema, lambda: iter(pa.RecordBatchReader.from_stream(frame)))


def _of_lazy(frame: Any) -> Frame:
    """Polars runs the query while its rows are written, if it is new enough to give them in batches."""
    schema = frame.collect_schema()
    _refuse_odd(schema.items(), _inside_polars, _NOT_ARROWS)
    empty = schema.to_frame()

    def read() -> Iterator[pa.RecordBatch]:
        if hasattr(frame, "collect_batches"):
            parts: Iterable[Any] = frame.collect_batches(maintain_order=True)
        else:
            parts = [frame.collect()]
        for part in parts:
            yield from pa.RecordBatchReader.from_stream(part)

    return _frame(empty.to_arrow().schema, read)


def _of_relation(relation: Any) -> Frame:
    """DuckDB runs the query while its rows are written, and again each time they are read."""
    _refuse_odd(zip(relation.columns, relation.types, strict=True), _inside_duckdb, _NOT_DUCKDBS)
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    return _frame(read(BATCH_ROWS).schema, lambda: iter(read(BATCH_ROWS)))


_NOT_ARROWS = {"object", "int128", "uint128"}
"""Types of Polars without one of Arrow. Polars gives addresses in memory for objects."""

_NOT_DUCKDBS = {"uhugeint", "bit"}
"""Types that DuckDB passes to Arrow as its own bytes: large numbers become negative, bits get a byte in front."""


def _refuse_odd(
    columns: Iterable[tuple[str, Any]], inside: Callable[[Any], tuple[str, Sequence[Any]]], odd: Collection[str]
) -> None:
    """Raises InvalidInputError for a column with one of these types, also inside another type."""
    for name, whole in columns:
        waiting = [whole]
        while waiting:
            kind, more = inside(waiting.pop())
            if kind in odd:
                raise InvalidInputError(f"column {name!r} has the type {kind}, which Spark lacks: cast it first")
            waiting += more


def _inside_polars(kind: Any) -> tuple[str, Sequence[Any]]:
    """The name of a type, and the types inside it."""
    fields = [field.dtype for field in getattr(kind, "fields", ())]
    return kind.base_type().__name__.lower(), [*fields, *filter(None, [getattr(kind, "inner", None)])]


def _inside_duckdb(kind: Any) -> tuple[str, Sequence[Any]]:
    nested = kind.id in ("list", "array", "struct", "map", "union")
    return kind.id, [it for _, it in kind.children if hasattr(it, "id")] if nested else ()


def _of_pandas(frame: Any) -> Frame:
    """The index is dropped unless it has a name. A missing value, such as NaN in a column of floats, is null."""
    for name in (*filter(lambda it: it is not None, frame.index.names), *frame.columns):
        if not isinstance(name, str):
            raise InvalidInputError(
                f"column {name!r:.100} has no text as its name: rename it, such as with frame.rename(columns=str)"
            )
    if kept := [name for name in frame.index.names if name is not None]:
        if clash := [name for name in kept if name in frame.columns or kept.count(name) > 1]:
            raise InvalidInputError(f"two columns or levels of the index are named {clash[0]!r}: rename one")
        frame = frame.reset_index(level=kept)
    fields = []
    for name, column in zip(frame.columns, (frame.iloc[:, i] for i in range(frame.shape[1])), strict=True):
        if type(column.dtype).__name__ == "SparseDtype":
            raise InvalidInputError(
                f"column {name!r} is sparse, which a table cannot hold: make it dense, with "
                f"frame[{name!r}].sparse.to_dense()"
            )
        with _named(name):
            given = getattr(column.dtype, "categories", column)  # those of a categorical column
            if given.dtype == object:
                refuse_mixed(given)
            fields.append(pa.Schema.from_pandas(column.to_frame("it"), preserve_index=False).field(0).with_name(name))
    schema = pa.schema(fields)

    def read() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(frame), BATCH_ROWS):
            part = frame.iloc[start : start + BATCH_ROWS]
            arrays = []
            for i, field in enumerate(schema):
                with _named(field.name):
                    found: Any = pa.Array.from_pandas(part.iloc[:, i], type=field.type)
                    arrays.append(found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found)
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return _frame(schema, read)


class _named:
    """Raises pyarrow's errors as InvalidInputError with the name of the column."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, pa.ArrowException | TypeError | ValueError | OverflowError):
            raise InvalidInputError(
                f"column {self._name!r} cannot be written as it is: {error!s:.300}; convert it to one type first"
            ) from Cause.of(error)


# --- the table's columns ------------------------------------------------------------------------------------------


def fitted(batches: Iterable[pa.RecordBatch], mapping: ColumnMapping, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows with the columns of `target`, which is `mapping.schema` in Arrow's types, in small batches.

    A column that the data lacks is null. Raises InvalidInputError, with the name of the column, for a value that would
    change, and for days that not all readers have. For example, nanoseconds change if they are no whole microseconds.
    """
    fields = [(at, target.field(name)) for at, name in mapping.columns]
    schema = pa.schema([field for _, field in fields])
    for large in batches:
        if not large.num_rows:
            continue
        is_large = large.num_rows > BATCH_ROWS
        for batch in cut(large, rows=BATCH_ROWS, size_bytes=BATCH_BYTES) if is_large else [large]:
            given = batch.columns
            arrays = [
                _fitted(given[at], field)
                if at is not None and at < len(given)
                else pa.nulls(batch.num_rows, field.type)
                for at, field in fields
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fitted(values: Any, field: Any) -> Any:
    try:
        try:
            found = fit(values, field.type, by_value=True)
        except pa.ArrowInvalid:
            if not values.offset:
                raise
            # Of a slice, Arrow counts the texts before it, too, and takes it for too large.
            found = fit(cut_out(values), field.type, by_value=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        advice = "; round it first, such as with .dt.floor('us')" if _is_fine(values.type) else ""
        raise InvalidInputError(
            f"column {field.name!r} is {values.type}, and some value does not fit the table's {field.type}: "
            f"{error!s:.200}; nothing was committed{advice}"
        ) from Cause.of(error)
    for path, leaf in leaves(field.name, found) if _has_checked(field.type) else ():
        _refuse_far(path, leaf)
        _refuse_unsound(path, leaf)
    for path, rows in maps(field.name, found):
        _refuse_double_keys(path, rows)
    return found


def _is_fine(kind: Any) -> bool:
    return types.is_timestamp(kind) and kind.unit == "ns"


def _has_checked(kind: Any) -> bool:
    if types.is_nested(kind):
        return any(_has_checked(kind.field(i).type) for i in range(kind.num_fields))
    return types.is_date32(kind) or types.is_timestamp(kind) or types.is_string(kind) or types.is_decimal(kind)


_FIRST, _LAST = (date.min - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days
_DAY_US = 86_400_000_000


def _refuse_far(path: str, values: Any) -> None:
    """Raises InvalidInputError for days outside of the years 1 to 9999, which not all readers have."""
    if types.is_date32(values.type):
        numbers, first, last = values.view(pa.int32()), _FIRST, _LAST
    elif types.is_timestamp(values.type):
        numbers, first, last = values.view(pa.int64()), _FIRST * _DAY_US, (_LAST + 1) * _DAY_US - 1
    else:
        return
    bounds: Any = pc.min_max(numbers)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and not first <= low <= high <= last:
        raise InvalidInputError(
            f"column {path!r} has days outside of the years 1 to 9999, which not all readers have; nothing was "
            "committed: write null, or another day"
        )


def _refuse_unsound(path: str, values: Any) -> None:
    """Raises InvalidInputError for texts that are not UTF-8 and decimals of too many digits."""
    if why := problem_of_values(values):
        raise InvalidInputError(
            f"column {path!r} holds a value that is no {values.type}: {why:.200}; nothing was committed"
        )


def _refuse_double_keys(path: str, rows: Any) -> None:
    """Raises InvalidInputError for a map that has a key twice: some readers keep one of its values, others both."""
    offsets = rows.offsets.to_numpy()
    keys = rows.keys.slice(offsets[0], offsets[-1] - offsets[0]) if len(rows) else rows.keys
    if not len(keys) or types.is_nested(keys.type):
        return
    if types.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0.0, keys.type))  # makes 0.0 of -0.0
    pairs = pa.table({"row": pa.array(np.repeat(np.arange(len(rows)), np.diff(offsets))), "key": keys})
    if len(pairs.group_by(["row", "key"]).aggregate([])) < len(keys):
        raise InvalidInputError(
            f"column {path!r} has a map with the same key twice, and readers do not agree on its value; nothing was "
            "committed"
        )


# --- objects in one column of pandas ---------------------------------------------------------------------------------
# Arrow silently converts other values to the first value's type: the number 45292 beside a day becomes a day in 2094.


def refuse_mixed(values: Iterable[Any]) -> None:
    """Raises ValueError, with the first two that differ, for values of two kinds, also inside lists and dictionaries.

    Missing values, such as None, NaN and pandas' NA, are ignored. Whole numbers are of one kind with floating-point
    numbers, and with decimals: Arrow refuses those that it would change.
    """
    values = list(values)
    first: Any = None
    known: str | None = None
    seen: set[type] = set()
    for value in values:
        if type(value) in seen:
            continue
        kind = _kind(value)
        if kind is None:
            continue
        if not isinstance(value, datetime):  # of which each may have a zone or none
            seen.add(type(value))
        if kind == known:
            continue
        if known is None or (known == _WHOLE and kind in _WITH_WHOLE):
            first, known = value, kind
        elif not (kind == _WHOLE and known in _WITH_WHOLE):
            raise ValueError(f"{_shown(first)} is {known}, and {_shown(value)} is {kind}")
    if known == _LIST:
        refuse_mixed(_elements(it for it in values if _kind(it)))
    elif known == _DICTIONARY:
        rows = [it for it in values if _kind(it)]
        for key in dict.fromkeys(key for row in rows for key in row):
            refuse_mixed(row.get(key) for row in rows)


_WHOLE, _FLOAT, _DECIMAL, _LIST, _DICTIONARY = (
    "a whole number", "a floating-point number", "a decimal", "a list", "a dictionary",
)  # fmt: skip
_WITH_WHOLE = (_FLOAT, _DECIMAL)
_KINDS: tuple[tuple[Any, str], ...] = (
    (bool | np.bool_, "a boolean"),
    (int | np.integer, _WHOLE),
    (float | np.floating, _FLOAT),
    (Decimal, _DECIMAL),
    (str, "a text"),
    (bytes | bytearray | memoryview, "bytes"),
    (date, "a day"),
    (time, "a time of day"),
    (timedelta | np.timedelta64, "a duration"),
    (Mapping, _DICTIONARY),
    (Iterable, _LIST),
)


def _kind(value: Any) -> str | None:
    """The kind in words; None for a missing value. Raises ValueError for a time that is finer than microseconds."""
    if value is None or _is_missing(value):
        return None
    if isinstance(value, datetime):
        if getattr(value, "nanosecond", 0):
            raise ValueError(f"{_shown(value)} is finer than microseconds; round it first")
        return "a time with a zone" if value.tzinfo else "a time without a zone"
    return next((kind for types, kind in _KINDS if isinstance(value, types)), f"a {type(value).__name__}")


def _is_missing(value: Any) -> bool:
    try:
        return bool(value != value)  # NaN, NaT
    except (TypeError, ValueError):  # pandas' NA, arrays
        return type(value).__name__ == "NAType"


def _elements(lists: Iterable[Any]) -> Iterator[Any]:
    """The elements of the lists; for an array of one type, one value of the type."""
    for it in lists:
        is_array = isinstance(it, np.ndarray) and it.dtype != object
        yield from it[:0] if is_array and not len(it) else np.zeros(1, it.dtype) if is_array else it


def _shown(value: Any) -> str:
    return f"{value!r:.60}"
