"""Variants in Parquet files: structs of two binaries, which only Spark's schema in the file declares as variants. Pure.

Spark's own writer may store parts of a variant in columns of their own, or annotate it. Other readers of a table do not
read such files, so these variants are refused.
"""

import json
from collections.abc import Mapping
from typing import Any

from dbio_commit.protocol.types import BY_NAME

VARIANT = "variant"


def with_variants(columns: Mapping[str, Any], recorded: bytes | None) -> Mapping[str, Any]:
    """The columns of a file by Parquet's types, with the variants that `recorded`, Spark's schema in it, declares.

    Raises ValueError if a declared variant is another type in the file, or if `recorded` cannot be read.
    """
    if not recorded or not has_variants(recorded):
        return columns
    try:
        found = _overlaid(columns, json.loads(recorded))
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the schema that Spark recorded cannot be read: {error!r:.100}") from None
    assert isinstance(found, Mapping)
    return found


def has_variants(recorded: bytes | None) -> bool:
    """Whether Spark's schema in a file may declare a variant."""
    return recorded is not None and f'"{VARIANT}"'.encode() in recorded


def _overlaid(found: Any, declared: Any) -> Any:
    """The type that was found, with the variants of the declared one."""
    if declared == VARIANT:
        if not _is_plain(found):
            raise ValueError("a variant is not just a struct of two binaries")
        return VARIANT
    match found, declared:
        case {"type": "struct", "fields": [*fields]}, {"type": "struct", "fields": [*others]}:
            kinds = {other["name"]: other["type"] for other in others}
            own = ({**it, "type": _overlaid(it["type"], kinds.get(it["name"], it["type"]))} for it in fields)
            return {**found, "fields": [*own]}
        case {"type": "array"}, {"type": "array"}:
            return {**found, "elementType": _overlaid(found["elementType"], declared["elementType"])}
        case {"type": "map"}, {"type": "map"}:
            parts = {part: _overlaid(found[part], declared[part]) for part in ("keyType", "valueType")}
            return {**found, **parts}
    if not isinstance(declared, str):
        raise ValueError("the schema that Spark recorded is not that of the file")
    return found


def _is_plain(kind: Any) -> bool:
    match kind:
        case {"type": "struct", "fields": [*fields]}:
            return sorted((it["name"], str(it["type"])) for it in fields) == _FIELDS
    return False


_FIELDS = sorted(BY_NAME[VARIANT].arrow_fields)
