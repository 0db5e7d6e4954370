"""`dbio files`, `schema` and `diff`: prints the live files and the columns of a table, and how two states differ."""

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from dbio_commit.base.figures import count_text, number_text, size_text
from dbio_commit.cli.output import Column, document, in_pipe, print_facts, print_lines, print_list, print_part, say
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.diff import Change, Difference, Total
from dbio_commit.maintenance.figures import files_text, known_size, partition_text, total_json, total_text
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


# --- dbio diff ------------------------------------------------------------------------------------------------------


_Partition = tuple[str, tuple[Total, Total]]


def print_diff(found: Difference) -> None:
    """In a pipe, only the files."""
    if in_pipe():
        both = ("removed", found.removed), ("added", found.added)
        print_lines(_MOVED_FILE, [(did, file) for did, files in both for file in files])
        return
    say(found.url, style="bold")
    one, other = found.total_before, found.total_after
    layouts = [", ".join(layout) or "none" for layout in found.layouts]
    print_facts(
        {
            "from": found.before or "before the first commit",
            "to": found.after or "before the first commit",
            "commits": number_text(len(found.commits)),
            "rows": _rows_text(one, other),
            "files": f"{files_text(one.files, one.size)} -> {files_text(other.files, other.size)}",
            "removed": total_text(found.removed),
            "added": total_text(found.added),
            "partitioned by": " -> ".join(layouts) if layouts[0] != layouts[1] else "",
        }
    )
    print_part("columns", _CHANGE, found.columns)
    print_part("settings", _CHANGE, found.settings)
    print_part("partitions", _PARTITION, [it for it in found.partitions.items() if it[0]])
    if found.is_empty:
        say("")
        say("the states do not differ", style="bold")


def diff_json(found: Difference) -> dict[str, Any]:
    return document(
        found,
        "url from to commits before after partition_columns columns settings partitions removed added",
        **{"from": found.before, "to": found.after},
        before=found.total_before,
        after=found.total_after,
        partition_columns={"before": found.layouts[0], "after": found.layouts[1]},
        partitions=[
            {"directory": directory, "removed": gone, "added": came}
            for directory, (gone, came) in found.partitions.items()
        ],
        removed=[_file_json(file) for file in found.removed],
        added=[_file_json(file) for file in found.added],
    )


def _rows_text(one: Total, other: Total) -> str:
    if one.rows is None or other.rows is None:
        return ""
    return f"{one.rows:,} -> {other.rows:,} ({other.rows - one.rows:+,})"


def _file_json(file: DataFile) -> dict[str, Any]:
    return document(file, "path size partition", size=known_size(file.size))


def _text(total: Total) -> str:
    if not total.files:
        return ""
    return count_text(total.files, "file") + (f", {count_text(total.rows, 'row')}" if total.rows is not None else "")


_CHANGE: list[Column[Change]] = [
    Column("name", lambda it: it.name, fold=True),
    Column("before", lambda it: it.before, fold=True),
    Column("after", lambda it: it.after, fold=True),
]

_PARTITION: list[Column[_Partition]] = [
    Column("directory", lambda it: it[0], fold=True),
    Column("removed", lambda it: it[1][0], _text, fold=True),
    Column("added", lambda it: it[1][1], _text, fold=True),
]

_MOVED_FILE: list[Column[tuple[str, DataFile]]] = [
    Column("did", lambda it: it[0]),
    Column("path", lambda it: it[1].path),
    Column("size", lambda it: known_size(it[1].size), size_text),
]
