"""Variants in Parquet files: structs of two binaries, which only Spark's schema in the file declares as variants. Pure.

Spark's own writer may store parts of a variant in columns of their own, or annotate it. Other readers of a table do not
read such files, so these variants are refused.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dbio_commit.protocol.types import BY_NAME

if TYPE_CHECKING:
    import pyarrow as pa

_VARIANT = "variant"


def has_variants(recorded: bytes | None) -> bool:
    """Whether Spark's schema in a file may declare a variant."""
    return recorded is not None and f'"{_VARIANT}"'.encode() in recorded


def with_variants(columns: Mapping[str, Any], schema: "pa.Schema", recorded: bytes | None) -> Mapping[str, Any]:
    """The columns of a file by its types in Parquet, with the variants that `recorded`, Spark's schema in it, declares.

    `columns` are Spark's JSON for `schema`. Raises ValueError if a declared variant is another type in the file, or if
    `recorded` cannot be read.
    """
    if recorded is None or not has_variants(recorded):
        return columns
    import pyarrow as pa

    try:
        found = _overlaid(columns, json.loads(recorded), pa.struct(list(schema)))
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the schema that Spark recorded cannot be read: {error!r:.100}") from None
    assert isinstance(found, Mapping)
    return found


def _overlaid(found: Any, declared: Any, arrow: Any) -> Any:
    """`found`, a type in Spark's JSON that is `arrow` in Arrow, with the variants that `declared` has."""
    if declared == _VARIANT:
        inside = [] if isinstance(found, str) else [(it.name, str(it.type)) for it in arrow if not it.nullable]
        if sorted(inside) != _FIELDS or arrow.num_fields != len(_FIELDS):
            raise ValueError("a variant is not just a struct of two binaries that are never null")
        return _VARIANT
    match found, declared:
        case {"type": "struct", "fields": [*fields]}, {"type": "struct", "fields": [*others]}:
            kinds = {other["name"]: other["type"] for other in others}
            own = (
                {**it, "type": _overlaid(it["type"], kinds.get(it["name"], it["type"]), arrow.field(i).type)}
                for i, it in enumerate(fields)
            )
            return {**found, "fields": [*own]}
        case {"type": "array"}, {"type": "array"}:
            element = _overlaid(found["elementType"], declared["elementType"], arrow.field(0).type)
            return {**found, "elementType": element}
        case {"type": "map"}, {"type": "map"}:
            key = _overlaid(found["keyType"], declared["keyType"], arrow.key_type)
            value = _overlaid(found["valueType"], declared["valueType"], arrow.item_type)
            return {**found, "keyType": key, "valueType": value}
    if not isinstance(declared, str) and declared != found:
        raise ValueError("the schema that Spark recorded is not that of the file")
    return found


_FIELDS = sorted(BY_NAME[_VARIANT].arrow_fields)


# --- rows to write ------------------------------------------------------------------------------------------------


def without_nulls_inside(table: "pa.Table") -> "pa.Table":
    """The table, with empty binaries in variants that are null: Parquet's writer takes no nulls in required fields."""
    import pyarrow as pa

    lacking = [_has_required(kind) for kind in table.schema.types]
    if not any(lacking):
        return table
    columns = [_filled_chunks(it) if lacks else it for it, lacks in zip(table.columns, lacking, strict=True)]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _has_required(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_map(kind):
        return _has_required(kind.key_type) or _has_required(kind.item_type)
    if types.is_struct(kind):
        return any(not field.nullable or _has_required(field.type) for field in kind)
    return types.is_list(kind) and _has_required(kind.value_type)


def _filled_chunks(values: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([_filled(chunk) for chunk in values.chunks], values.type)


def _filled(values: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    kind = values.type
    if not _has_required(kind):
        return values
    if values.offset:  # otherwise the children would not begin at the same place as the array
        values = values.take(pa.array(range(len(values)), pa.int64()))
    nulls = values.is_null() if values.null_count else None
    if types.is_map(kind):
        make: Any = pa.MapArray.from_arrays  # its stubs have no parameter `type`
        return make(values.offsets, _filled(values.keys), _filled(values.items), type=kind, mask=nulls)
    if types.is_list(kind):
        return pa.ListArray.from_arrays(values.offsets, _filled(values.values), type=kind, mask=nulls)
    children = [
        _filled(child) if field.nullable or not child.null_count else pc.fill_null(child, b"")
        for field, child in zip(kind, map(values.field, range(kind.num_fields)), strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)
