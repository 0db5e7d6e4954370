"""`dbio schema`: prints the columns of a table. `summarise` adds bounds from statistics, for `dbio show`."""

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from dbio_commit.cli.output import Column, in_pipe, print_lines, print_pages
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.protocol.markers.schema import type_text


def print_schema(schema: Mapping[str, Any], snapshot: Snapshot) -> None:
    columns = [
        (name, kind, "partition" if name in snapshot.partition_columns else "") for name, kind, _ in summarise(schema)
    ]
    if in_pipe():
        print_lines(_SCHEMA, columns)
    else:
        print_pages(_SCHEMA, columns)


def schema_json(schema: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any]:
    return {
        "url": snapshot.url,
        "recorded": snapshot.schema is not None,
        "partition_columns": snapshot.partition_columns,
        "schema": without_nan(schema),
    }


def without_nan(schema: Mapping[str, Any] | None) -> Any:
    """The schema with NaN as text. Another tool may have written NaN, which is not allowed in JSON."""
    return json.loads(json.dumps(schema), parse_constant=str)


def summarise(schema: Mapping[str, Any] | None, added: Sequence[FileInfo] = ()) -> list[tuple[str, str, Bounds]]:
    """For each column in the schema or in statistics: name, type, and bounds over all files."""
    fields = schema.get("fields") if schema else None
    types = {
        str(field["name"]): type_text(field.get("type")) + ("" if field.get("nullable", True) else " not null")
        for field in (fields if isinstance(fields, list) else ())
        if isinstance(field, dict) and "name" in field
    }
    types |= {column: types.get(column, "") for file in added for column in file.statistics or ()}
    return [(name, kind, _overall(added, name, kind)) for name, kind in types.items()]


def _overall(files: Sequence[FileInfo], column: str, kind: str) -> Bounds:
    """The bounds of a column over all files. A bound is None if a file does not have it."""
    each = [((file.statistics or {}).get(column, Bounds()), file.rows) for file in files]
    filled = [bounds for bounds, rows in each if bounds.nulls is None or bounds.nulls != rows]
    nulls = [bounds.nulls for bounds, _ in each if bounds.nulls is not None]
    return Bounds(
        min=_extreme(min, [bounds.min for bounds in filled], kind),
        max=_extreme(max, [bounds.max for bounds in filled], kind),
        nulls=sum(nulls) if each and len(nulls) == len(each) else None,
    )


def _extreme(choose: Callable[..., Any], values: Sequence[Any], kind: str) -> Any:
    if not values or None in values:
        return None
    try:
        return choose(values, key=Decimal if kind.startswith("decimal") else None)
    except (TypeError, ValueError, ArithmeticError):  # values that do not compare, as no dbio writer writes them
        return None


_SCHEMA: list[Column[tuple[str, str, str]]] = [
    Column("column", lambda column: column[0], fold=True),
    Column("type", lambda column: column[1], fold=True),
    Column("", lambda column: column[2]),
]
