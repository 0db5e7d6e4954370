"""Converts Arrow data to a wider type. Pure.

One rule for both directions: data that is written to a table with wider columns, and older files of a table whose
columns were widened since. It allows what Spark's own Parquet reader reads without loss, at each level of nesting.
"""

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dbio_commit.data.columns import is_list, own_name
from dbio_commit.protocol.types import widens as types_widen


def widens(narrow: Any, wide: Any) -> bool:
    """`types.widens` for two types of Arrow that are not nested."""
    one, other = own_name(narrow), own_name(wide)
    return one is not None and other is not None and types_widen(one, other)


def fit(values: Any, kind: Any, *, by_value: bool = False) -> Any:
    """The array converted to the type. Fields of structs are matched by name without regard to case; absent fields are
    null. With `by_value`, whole numbers also become numbers of any type that are equal to them.

    Raises ArrowInvalid for types that do not fit, and for values that do not.
    """
    inside = partial(fit, by_value=by_value)
    found = values.type
    if found.equals(kind):
        return values
    if types.is_null(found):
        return pa.nulls(len(values), kind)
    if types.is_dictionary(found):
        return inside(_with_known_takes(values.dictionary).take(values.indices), kind)
    if not types.is_nested(kind):
        return _fit_leaf(values, kind, by_value)
    if types.is_list_view(found) or types.is_large_list_view(found):
        return inside(_without_view(values), kind)
    if values.offset:  # otherwise the children would not begin at the same place as the array
        values = cut_out(values)
    nulls = values.is_null() if values.null_count else None
    if types.is_struct(kind) and types.is_struct(found):
        position = {field.name.lower(): index for index, field in enumerate(found)}
        children = [
            inside(values.field(position[field.name.lower()]), field.type)
            if field.name.lower() in position
            else pa.nulls(len(values), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)
    if types.is_map(kind) and types.is_map(found):
        keys, items = inside(values.keys, kind.key_type), inside(values.items, kind.item_type)
        make: Any = pa.MapArray.from_arrays  # its stubs have no parameter `type`
        return make(values.offsets, keys, items, type=kind, mask=nulls)
    if types.is_list(kind) and is_list(found):
        if not types.is_list(found):
            values = values.cast(pa.list_(found.value_field))
        return pa.ListArray.from_arrays(values.offsets, inside(values.values, kind.value_type), type=kind, mask=nulls)
    raise _does_not_fit(found, kind)


def cut_out(values: Any) -> Any:
    """A copy of a slice without the values around it. Arrow's `take` knows no views, also inside other types."""
    return pa.concat_arrays([values.slice(0, 0), values])


def _fit_leaf(values: Any, kind: pa.DataType, by_value: bool) -> Any:
    if by_value and types.is_integer(values.type) and types.is_floating(kind):
        return _as_float(values, kind)
    is_known = (by_value and types.is_integer(values.type) and types.is_integer(kind)) or any(
        is_old(values.type) and is_new(kind) for is_old, is_new in _READ_AS
    )
    if not (is_known or widens(values.type, kind) or _is_same_decimal(values.type, kind)):
        raise _does_not_fit(values.type, kind)
    if types.is_integer(values.type) and types.is_decimal(
        kind
    ):  # its digits may suffice for the values, even if not for all of the type
        values = values.cast(pa.decimal256(20 + max(kind.scale, 0), kind.scale))
    return values.cast(kind)


def _as_float(values: Any, kind: Any) -> Any:
    """Arrow refuses numbers beyond those that are all exact, such as 2^53. Some of them are exact, too."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        found = values.cast(kind, safe=False)
        if [None if it is None else int(it) for it in found.to_pylist()] != values.to_pylist():
            raise
        return found


def _is_same_decimal(found: Any, kind: Any) -> bool:
    """Arrow has several widths of the same decimal type."""
    are_decimals = types.is_decimal(found) and types.is_decimal(kind)
    return are_decimals and (found.precision, found.scale) == (kind.precision, kind.scale)


def _does_not_fit(found: pa.DataType, kind: pa.DataType) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"{found} is not read as {kind}; neither does Spark's own reader")


def _with_known_takes(values: Any) -> Any:
    """The array, as a type that Arrow's `take` supports. It does not support all views."""
    if types.is_string_view(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if types.is_binary_view(values.type) else values


def _without_view(values: Any) -> Any:
    """A list view as a list. Arrow's own cast forgets that lists have one offset more than rows."""
    ends: Any = pc.cumulative_sum(pc.fill_null(pc.list_value_length(values), 0).cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    mask = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(offsets, values.flatten(), type=pa.list_(values.type.value_field), mask=mask)


def _is_text(kind: pa.DataType) -> bool:
    return (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _is_small_integer(kind: pa.DataType) -> bool:
    return types.is_integer(kind) and kind.bit_width <= 32


_READ_AS = (
    (_is_text, _is_text),
    (types.is_unsigned_integer, types.is_integer),  # checked value by value
    (types.is_float16, types.is_floating),
    (types.is_integer, types.is_decimal),
    (_is_small_integer, types.is_float64),
    (types.is_date, types.is_date32),
    (types.is_date32, lambda kind: types.is_timestamp(kind) and kind.tz is None),
    (types.is_timestamp, types.is_timestamp),
)
"""Types in files of other writers that Spark reads as another type with the same meaning."""
