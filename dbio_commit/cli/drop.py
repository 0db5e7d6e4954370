"""`dbio drop`: prints what was removed."""

from typing import Any

from dbio_commit.cli.output import print_part, say, text_column
from dbio_commit.upkeep.drop import DropReport
from dbio_commit.upkeep.figures import count_text, size_text


def print_drop(report: DropReport) -> None:
    say(f"removed {report.url}: {count_text(report.deleted, 'object')}, {size_text(report.size)}")
    print_part("aborted", text_column("tid"), report.aborted)
    print_part("left, as no transaction wrote them", text_column("path"), report.left)


def drop_json(report: DropReport) -> dict[str, Any]:
    return {
        "url": report.url,
        "deleted": {"objects": report.deleted, "size": report.size},
        "aborted": report.aborted,
        "left": report.left,
    }
