"""Rows of a table as a DataFrame of pandas, with exactly the values of the table.

pyarrow alone would convert whole numbers beside nulls to floating-point numbers, also inside lists, maps and structs.
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
    import pandas as pd

    own: dict[str, Any] = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        is_mapped = types_mapper is not None and types_mapper(field.type) is not None
        if not is_mapped and (found := _exact(column)) is not None:
            own[field.name] = found
    others = rows.select([name for name in rows.column_names if name not in own])
    frame: pandas.DataFrame = others.to_pandas(types_mapper=types_mapper)
    if not own:
        return frame
    # At once: each column that is replaced or inserted afterwards takes as long as there are columns.
    columns = {name: own[name] if name in own else frame[name].array for name in rows.column_names}
    return pd.DataFrame(columns, index=pd.RangeIndex(len(rows)), copy=False)


def _exact(column: Any) -> Any:
    """The values of a column that pyarrow would change; None for all other columns."""
    import pandas as pd

    if types.is_integer(column.type) and column.null_count:
        return getattr(pd, f"Int{column.type.bit_width}Dtype")().__from_arrow__(column)
    if types.is_nested(column.type):
        return column.to_pandas(integer_object_nulls=True, timestamp_as_object=True)
    return None
