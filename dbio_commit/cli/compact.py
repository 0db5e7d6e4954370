"""`dbio compact`: prints which files were compacted, or would be."""

from collections.abc import Mapping
from typing import Any

from dbio_commit.cli.output import Column, in_pipe, print_facts, print_lines, print_part, say, say_facts
from dbio_commit.upkeep.compact.report import Compacted, CompactReport, LeftFiles
from dbio_commit.upkeep.figures import count_text, files_text, number_text, size_text


def print_compaction(report: CompactReport) -> None:
    columns = [*_COMPACTED, *([_NEW_FILES] if report.cluster_by else [])]
    if in_pipe():
        print_lines(columns, report.compacted)
        say_facts(report.url, _facts(report), dry_run=report.dry_run)
        return
    say(report.url, style="bold")
    print_facts(_facts(report))
    if report.dry_run:
        become = "be clustered" if report.cluster_by else "become one file each"
        print_part(f"would {become}", columns, report.compacted)
    print_part("left as they are", _LEFT, report.left)


def compaction_json(report: CompactReport) -> dict[str, Any]:
    return {
        "url": report.url,
        "dry_run": report.dry_run,
        "before": {"files": report.files_before, "size": report.bytes_before},
        "after": {"files": report.files_after, "size": report.bytes_after},
        "commits": report.commits,
        "other_types": report.other_types,
        "cluster_by": report.cluster_by,
        "compacted": [_compacted_json(it) for it in report.compacted],
        "left": [{"files": it.paths, "size": it.size, "reason": it.reason} for it in report.left],
    }


def _compacted_json(it: Compacted) -> dict[str, Any]:
    return {
        "directory": it.directory,
        "files": it.files,
        "size": it.size,
        "path": it.path,
        "new_size": it.new_size,
        "rows": it.rows,
        "new_files": it.new_files,
    }


def _facts(report: CompactReport) -> Mapping[str, str]:
    would, most = ("would be ", "at most ") if report.dry_run else ("", "")
    other = "" if report.other_types is None else count_text(report.other_types, "file")
    nothing = "nothing: all files are clustered" if report.cluster_by else "nothing: no two small files fit into one"
    if not report.compacted and not report.left:
        return {"compacted": nothing, "of other types": other}
    left = sum(len(it.paths) for it in report.left)
    return {
        f"{would}compacted": files_text(report.files_before, report.bytes_before),
        "into": f"{count_text(report.files_after, 'file')}, {most}{size_text(report.bytes_after)}",
        "of other types": f"{other}, of all that were looked at" if other else "",
        "in": count_text(len(report.commits), "commit") if report.commits else "",
        "left": f"{count_text(left, 'file')} for the next time" if left else "",
    }


_COMPACTED: list[Column[Compacted]] = [
    Column("directory", lambda it: it.directory, lambda text: text or "the root", fold=True),
    Column("files", lambda it: it.files, number_text, right=True),
    Column("size", lambda it: it.size, size_text, right=True),
    Column("path", lambda it: it.path, fold=True),
    Column("new size", lambda it: it.new_size, size_text, right=True),
    Column("rows", lambda it: it.rows, number_text, right=True),
]

_NEW_FILES: Column[Compacted] = Column("new files", lambda it: it.new_files, number_text, right=True)

_LEFT: list[Column[LeftFiles]] = [
    Column("first", lambda it: it.paths[0], fold=True),
    Column("files", lambda it: len(it.paths), number_text, right=True),
    Column("size", lambda it: it.size, size_text, right=True),
    Column("why", lambda it: it.reason, fold=True),
]
