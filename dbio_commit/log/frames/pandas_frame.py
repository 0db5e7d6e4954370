"""Rows of a table as a DataFrame of pandas, with exactly the values of the table.

pyarrow makes floating-point numbers of whole numbers beside nulls, also inside lists, maps and structs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as types

if TYPE_CHECKING:
    import pandas

TypesMapper = Callable[[Any], Any]
"""From a type of Arrow to a type of pandas, or None for the usual one."""


def pandas_frame(rows: pa.Table, types_mapper: TypesMapper | None) -> "pandas.DataFrame":
    """See `Snapshot.to_pandas`."""
    own: dict[str, Any] = {}
    for at, field in enumerate(rows.schema):
        is_mapped = types_mapper is not None and types_mapper(field.type) is not None
        if not is_mapped and (found := _exact(rows.column(at))) is not None:
            own[field.name] = found
            rows = rows.set_column(at, field.name, pa.nulls(len(rows)))
    frame: pandas.DataFrame = rows.to_pandas(types_mapper=types_mapper)
    for name, values in own.items():
        frame[name] = values
    return frame


def _exact(column: Any) -> Any:
    """The values of a column that pyarrow would change; None for all other columns."""
    import pandas as pd

    if types.is_integer(column.type) and column.null_count:
        return getattr(pd, f"Int{column.type.bit_width}Dtype")().__from_arrow__(column)
    if types.is_nested(column.type):
        return column.to_pandas(integer_object_nulls=True, timestamp_as_object=True)
    return None
