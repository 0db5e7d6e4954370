"""Decides which columns of a new file get a dictionary, and which get statistics. Pure.

Columns may come as Arrow dictionaries: the file's dictionaries are made from them without hashing the texts again.
`statistics` reads the statistics of a written file, and `data_file` writes the file.
"""

from collections.abc import Iterator, Set
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dbio_commit.data.statistics import leaf_types

SAMPLE_ROWS = 8192
SAMPLE_BYTES = 8 * 1024 * 1024
DISTINCT_RATIO = 0.7
"""A column gets a dictionary if at most this share of a sample of 8192 values is distinct, as in a column with about
10,000 distinct values. Up to there a dictionary is smaller than plain values and no slower. Beyond, hashing every value
costs more than all the rest."""


def dictionary_columns(table: pa.Table) -> list[str]:
    """The leaf columns, by their Parquet paths, whose values repeat enough for a dictionary to pay."""
    rows = min(SAMPLE_ROWS, max(SAMPLE_BYTES * table.num_rows // max(table.nbytes, 1), 1))
    step = max(-(-table.num_rows // rows), 1)  # in a sample of neighbours, sorted values would look like repeated ones
    some = table if step == 1 else table.take(pa.array(range(0, table.num_rows, step), pa.int64()))
    sample = some.combine_chunks()
    chunks = [(name, chunk) for name in sample.schema.names for chunk in sample.column(name).chunks]
    return [path for name, chunk in chunks for path, values in leaves(name, chunk) if _repeats(values)]


def decoded(schema: pa.Schema) -> pa.Schema:
    """The schema with the types of the values instead of dictionaries."""
    plain = [field.with_type(field.type.value_type) if types.is_dictionary(field.type) else field for field in schema]
    return pa.schema(plain)


def coded_as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table, with dictionaries for exactly those columns that are dictionaries in the schema."""
    columns = [_coded_as(column, field.type) for column, field in zip(table.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _coded_as(column: Any, kind: Any) -> Any:
    if types.is_dictionary(kind) == types.is_dictionary(column.type):
        return column
    return column.dictionary_encode() if types.is_dictionary(kind) else column.cast(kind)


def with_own_texts(table: pa.Table) -> pa.Table:
    """The table with one dictionary for each column that has any, and only texts of these rows in it.

    A file must not contain texts of other rows: somebody may delete those rows to get rid of the texts.
    """
    coded = [types.is_dictionary(kind) for kind in table.schema.types]
    if not any(coded):
        return table
    columns = [_with_own_texts(it) if is_coded else it for it, is_coded in zip(table.columns, coded, strict=True)]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _with_own_texts(column: Any) -> Any:
    whole: Any = pa.concat_arrays(column.unify_dictionaries().chunks)
    used = whole.indices.unique().drop_null()
    if len(used) == len(whole.dictionary):
        return whole
    return pa.DictionaryArray.from_arrays(pc.index_in(whole.indices, value_set=used), whole.dictionary.take(used))


def values_at_once(table: pa.Table) -> int:
    """How many values of a column to encode before the size of its page is checked. A page grows by this much in
    memory."""
    widest = max((column.nbytes for column in table.columns), default=0)
    return max(1, min(1024, _PAGE_BYTES * table.num_rows // max(widest, 1)))


_PAGE_BYTES = 1024 * 1024


def leaves(path: str, values: Any) -> Iterator[tuple[str, Any]]:
    """The arrays of values inside an array, which may be nested, each with its Parquet path."""
    return ((at, it) for at, it in _arrays(path, values) if not types.is_nested(it.type))


def maps(path: str, values: Any) -> Iterator[tuple[str, Any]]:
    """The arrays of maps inside an array, each with its Parquet path."""
    return ((at, it) for at, it in _arrays(path, values) if types.is_map(it.type))


def _arrays(path: str, values: Any) -> Iterator[tuple[str, Any]]:
    """The array, and all arrays inside it, each with its Parquet path."""
    yield path, values
    kind = values.type
    if types.is_struct(kind):
        for index, field in enumerate(kind):
            yield from _arrays(f"{path}.{field.name}", values.field(index))
    elif types.is_map(kind):
        yield from _arrays(f"{path}.key_value.key", values.keys)
        yield from _arrays(f"{path}.key_value.value", values.items)
    elif types.is_nested(kind):
        yield from _arrays(f"{path}.list.element", values.flatten())


def problem_of_values(values: Any) -> str | None:
    """Why some texts are not UTF-8, or some decimals have too many digits; None for all other values.

    Arrow takes such values as they are. Other readers fail, or find other values.
    """
    if types.is_decimal(values.type) or (types.is_string(values.type) and not _is_ascii(values)):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            return str(error)
    return None


def _is_ascii(texts: Any) -> bool:
    """Whether all bytes of the texts are ASCII. This check is faster than one for UTF-8."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return True
    places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return not (np.frombuffer(data, np.int8)[places[0] : places[-1]] < 0).any()


def _repeats(values: Any) -> bool:
    known = values.slice(0, SAMPLE_ROWS).drop_null()
    if types.is_decimal(known.type) and known.type.bit_width == 64:  # Arrow does not hash these
        known = known.view(pa.int64())
    return len(known.unique()) <= DISTINCT_RATIO * len(known)


# --- statistics ---------------------------------------------------------------------------------------------------


def count_nulls(table: pa.Table) -> list[int]:
    """How many values of each column are null."""
    return [column.null_count for column in table.columns]


def columns_with_nan(table: pa.Table) -> set[str]:
    """The top-level columns that hold a NaN.

    Spark orders NaN as the largest value, and Arrow leaves NaN out of the min and max that it writes. A reader that
    used these bounds would skip rows. Such columns must be written without statistics.
    """
    floats = [field.name for field in table.schema if types.is_floating(field.type)]
    return {name for name in floats if pc.any(pc.is_nan(table.column(name))).as_py()}


def statistics_columns(schema: pa.Schema, without: Set[str]) -> list[str]:
    """The leaf columns, by their Parquet paths, that get statistics: not those in `without`, and no nested float."""
    each = [(field.name, path, kind) for field in schema for path, kind in leaf_types(field.name, field.type)]
    barred = {path for name, path, kind in each if name in without or (types.is_floating(kind) and path != name)}
    return [path for _, path, _ in each if path not in barred]
