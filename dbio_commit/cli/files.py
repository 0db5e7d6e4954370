"""`dbio files`: prints the live files of a snapshot."""

from typing import Any

from dbio_commit.cli.output import Column, in_pipe, print_lines, print_pages, say
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.state import DataFile
from dbio_commit.upkeep.figures import count_text, known_size, partition_text, size_text, total_json, total_text


def print_files(snapshot: Snapshot, *, left_out: int = 0) -> None:
    """`left_out`: the number of live files that a condition left out."""
    if in_pipe():
        print_lines(_FILE, snapshot.files)
        return
    print_pages(_FILE, snapshot.files)
    partitions = len({partition_text(file.partition) for file in snapshot.files} - {""})
    in_partitions = f" in {count_text(partitions, 'partition')}" if partitions else ""
    others = f"; {count_text(left_out, 'file')} left out" if left_out else ""
    say(total_text(snapshot.files) + in_partitions + others, style="bold")


def snapshot_json(snapshot: Snapshot, *, left_out: int = 0) -> dict[str, Any]:
    described = [
        {
            "path": file.path,
            "url": _url(snapshot, file),
            "size": known_size(file.size),
            "tid": file.tid,
            "partition": file.partition,
        }
        for file in snapshot.files
    ]
    return {
        "url": snapshot.url,
        "scope": snapshot.scope,
        "partition_columns": snapshot.partition_columns,
        "total": total_json(snapshot.files),
        "left_out": left_out,
        "files": described,
    }


def _url(snapshot: Snapshot, file: DataFile) -> str | None:
    """None if a program might read the path as a pattern."""
    return None if names.is_pattern(file.path) else f"{snapshot.url}/{file.path}"


_FILE: list[Column[DataFile]] = [
    Column("path", lambda file: file.path, fold=True),
    Column("size", lambda file: known_size(file.size), size_text, right=True),
    Column("tid", lambda file: file.tid, least_width=140),
    Column("partition", lambda file: partition_text(file.partition), fold=True, least_width=160),
]
