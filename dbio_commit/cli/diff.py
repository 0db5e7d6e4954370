"""`dbio diff`: prints how two states of a table differ."""

from typing import Any

from dbio_commit.cli.output import Column, document, in_pipe, print_facts, print_lines, print_part, say
from dbio_commit.maintenance.diff import Change, Difference, Total
from dbio_commit.maintenance.figures import count_text, files_text, known_size, number_text, size_text, total_text
from dbio_commit.protocol.state import DataFile

_Partition = tuple[str, tuple[Total, Total]]


def print_diff(found: Difference) -> None:
    """In a pipe, only the files."""
    if in_pipe():
        both = ("removed", found.removed), ("added", found.added)
        print_lines(_FILE, [(did, file) for did, files in both for file in files])
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

_FILE: list[Column[tuple[str, DataFile]]] = [
    Column("did", lambda it: it[0]),
    Column("path", lambda it: it[1].path),
    Column("size", lambda it: known_size(it[1].size), size_text),
]
