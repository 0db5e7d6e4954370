"""`dbio files` and `dbio schema`: prints the live files and the columns of a table."""

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from dbio_commit.cli.output import Column, document, in_pipe, print_list, say
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.figures import count_text, known_size, partition_text, size_text, total_json, total_text
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.protocol.markers.schema import type_text
from dbio_commit.protocol.state import DataFile


def print_files(snapshot: Snapshot, left_out: int = 0) -> None:
    """`left_out`: the number of live files that a condition left out."""
    print_list(_FILE, snapshot.files)
    if in_pipe():
        return
    partitions = len({partition_text(file.partition) for file in snapshot.files} - {""})
    in_partitions = f" in {count_text(partitions, 'partition')}" if partitions else ""
    others = f"; {count_text(left_out, 'file')} left out" if left_out else ""
    say(total_text(snapshot.files) + in_partitions + others, style="bold")


def snapshot_json(snapshot: Snapshot, left_out: int = 0) -> dict[str, Any]:
    files = [
        document(it, "path url size tid partition", url=_url(snapshot, it), size=known_size(it.size))
        for it in snapshot.files
    ]
    total = total_json(snapshot.files)
    names = "url scope partition_columns total left_out files"
    return document(snapshot, names, total=total, left_out=left_out, files=files)


def _url(snapshot: Snapshot, file: DataFile) -> str | None:
    """None if a program might read the path as a pattern."""
    return None if names.is_pattern(file.path) else f"{snapshot.url}/{file.path}"


_FILE: list[Column[DataFile]] = [
    Column("path", lambda file: file.path, fold=True),
    Column("size", lambda file: known_size(file.size), size_text, right=True),
    Column("tid", lambda file: file.tid, least_width=140),
    Column("partition", lambda file: partition_text(file.partition), fold=True, least_width=160),
]


# --- dbio schema ------------------------------------------------------------------------------------------------------


def print_schema(schema: Mapping[str, Any], snapshot: Snapshot) -> None:
    columns = [
        (name, kind, "partition" if name in snapshot.partition_columns else "") for name, kind, _ in summarise(schema)
    ]
    print_list(_SCHEMA, columns)


def schema_json(schema: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any]:
    recorded = snapshot.schema is not None
    return document(snapshot, "url recorded partition_columns schema", recorded=recorded, schema=without_nan(schema))


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
