"""`dbio publish`: prints what was published."""

from collections.abc import Sequence
from typing import Any

from dbio_commit.cli.output import Column, in_pipe, print_lines, print_pages
from dbio_commit.upkeep.figures import number_text
from dbio_commit.upkeep.publish import Published


def print_published(done: Sequence[Published]) -> None:
    if in_pipe():
        print_lines(_COLUMNS, done)
    else:
        print_pages(_COLUMNS, done)


def published_json(url: str, done: Sequence[Published]) -> dict[str, Any]:
    return {"url": url, "published": [_json(it) for it in done]}


def _json(it: Published) -> dict[str, Any]:
    return {
        "format": it.format,
        "number": it.number,
        "tid": it.tid,
        "files": it.files,
        "added_files": it.added,
        "removed_files": it.removed,
        "new": it.is_new,
    }


_COLUMNS: list[Column[Published]] = [
    Column("format", lambda it: it.format),
    Column("number", lambda it: it.number, right=True),
    Column("tid", lambda it: it.tid),
    Column("files", lambda it: it.files, number_text, right=True),
    Column("added", lambda it: it.added, number_text, right=True, least_width=60),
    Column("removed", lambda it: it.removed, number_text, right=True, least_width=60),
    Column("what", lambda it: "published" if it.is_new else "nothing was new", fold=True),
]
