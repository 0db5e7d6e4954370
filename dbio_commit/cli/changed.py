"""`dbio set`, `publish`, `copy`, `drop` and `compact`: prints what was done, or would be."""

from collections.abc import Mapping, Sequence
from typing import Any

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.figures import count_text, number_text, size_text
from dbio_commit.cli.output import (
    Column,
    document,
    in_pipe,
    print_facts,
    print_lines,
    print_list,
    print_part,
    say,
    say_facts,
    text_column,
)
from dbio_commit.maintenance.compact.report import Compacted, CompactReport, LeftFiles
from dbio_commit.maintenance.copy import CopyReport
from dbio_commit.maintenance.drop import DropReport
from dbio_commit.maintenance.figures import files_text
from dbio_commit.maintenance.publish.places import Published


def parse_changes(words: Sequence[str]) -> dict[str, str]:
    """Parses words such as NAME=TEXT. An empty text removes the setting.

    Raises InvalidInputError for a word of another form, and for a name that occurs twice.
    """
    changes: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name or name in changes:
            why = "repeats a setting" if name in changes else "is not NAME=TEXT"
            raise InvalidInputError(f"{word!r:.200} {why}; give each setting once, such as publish=delta,spark")
        changes[name] = text
    return changes


def print_settings(settings: Mapping[str, str]) -> None:
    print_list(_SETTINGS, sorted(settings.items()), "no settings")


_SETTINGS: list[Column[tuple[str, str]]] = [
    Column("setting", lambda setting: setting[0], fold=True),
    Column("value", lambda setting: setting[1], fold=True),
]


# --- dbio publish -----------------------------------------------------------------------------------------------------


def print_published(done: Sequence[Published]) -> None:
    print_list(_PUBLISHED, done)


def published_json(url: str, done: Sequence[Published]) -> dict[str, Any]:
    names = "format number tid files added_files removed_files new"
    each = [document(it, names, added_files=it.added, removed_files=it.removed, new=it.is_new) for it in done]
    return {"url": url, "published": each}


_PUBLISHED: list[Column[Published]] = [
    Column("format", lambda it: it.format),
    Column("number", lambda it: it.number, right=True),
    Column("tid", lambda it: it.tid),
    Column("files", lambda it: it.files, number_text, right=True),
    Column("added", lambda it: it.added, number_text, right=True, least_width=60),
    Column("removed", lambda it: it.removed, number_text, right=True, least_width=60),
    Column("what", lambda it: "published" if it.is_new else "nothing was new", fold=True),
]


# --- dbio copy --------------------------------------------------------------------------------------------------------


def print_copy(source: str, report: CopyReport, *, incremental: bool) -> None:
    what = files_text(report.files, report.size)
    if not report.is_new:
        say(f"nothing is new: {report.url} has the state of {source}, {what}")
    elif incremental:
        new = f"{files_text(report.copied_files, report.copied_size)} copied, {report.removed_files:,} removed"
        say(f"copied what is new in {source} to {report.url}: {new}; it has {what}")
    else:
        say(f"copied {source} to {report.url}: {what}, {count_text(report.commits, 'commit')}")
    if report.resumed_files:
        say(f"{count_text(report.resumed_files, 'file')} had been copied by a run that was interrupted")


def copy_json(source: str, report: CopyReport) -> dict[str, Any]:
    names = "url tid commits files size copied_files copied_size resumed_files removed_files new copied_from"
    return document(report, names, new=report.is_new, copied_from=source)


# --- dbio drop --------------------------------------------------------------------------------------------------------


def print_drop(report: DropReport) -> None:
    say(f"removed {report.url}: {count_text(report.deleted, 'object')}, {size_text(report.size)}")
    print_part("aborted", text_column("tid"), report.aborted)
    print_part("left, as no transaction wrote them", text_column("path"), report.left)


def drop_json(report: DropReport) -> dict[str, Any]:
    return document(report, "url deleted aborted left", deleted={"objects": report.deleted, "size": report.size})


# --- dbio compact -----------------------------------------------------------------------------------------------------


def print_compaction(report: CompactReport) -> None:
    columns = [*_COMPACTED, *([_NEW_FILES] if report.cluster_by else [])]
    if in_pipe():
        print_lines(columns, report.compacted)
        say_facts(report.url, _compaction_facts(report), dry_run=report.dry_run)
        return
    say(report.url, style="bold")
    print_facts(_compaction_facts(report))
    if report.dry_run:
        become = "be clustered" if report.cluster_by else "become one file each"
        print_part(f"would {become}", columns, report.compacted)
    print_part("left as they are", _LEFT, report.left)


def compaction_json(report: CompactReport) -> dict[str, Any]:
    return document(
        report,
        "url dry_run before after commits other_types cluster_by compacted left",
        before={"files": report.files_before, "size": report.bytes_before},
        after={"files": report.files_after, "size": report.bytes_after},
        left=[{"files": it.paths, "size": it.size, "reason": it.reason} for it in report.left],
    )


def _compaction_facts(report: CompactReport) -> Mapping[str, str]:
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
