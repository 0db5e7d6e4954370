"""`dbio erase`: prints what was erased, or would be, and what remains elsewhere."""

from collections.abc import Mapping
from typing import Any

from dbio_commit.cli.output import (
    in_pipe,
    print_facts,
    print_lines,
    print_pages,
    print_part,
    say,
    say_error,
    say_facts,
    text_column,
)
from dbio_commit.cli.vacuum import DELETION, REASON, amounts, deletion_json, say_failures
from dbio_commit.upkeep.erase.report import EraseReport
from dbio_commit.upkeep.figures import count_text, size_text


def print_erasure(report: EraseReport) -> None:
    if in_pipe():
        print_lines(DELETION, report.deleted)
        say_facts(report.url, _facts(report), dry_run=report.dry_run)
        for sentence in report.remains:
            say_error(f"not erased here: {sentence}")
    else:
        say(report.url, style="bold")
        if report.dry_run and report.deleted:
            print_pages(DELETION, report.deleted)
            say("")
        print_facts(_facts(report))
        print_part("would be deleted" if report.dry_run else "deleted", REASON, amounts(report.deleted))
        print_part("not erased here", text_column("what"), report.remains)
    say_failures(report.url, report.failed)
    for it in report.pending:
        say_error(
            f"{it.tid} is pending since {it.since.isoformat()}, and may hold such rows: run erase again once it has "
            f"ended, or abort it with `dbio abort`; a vacuum aborts it after {it.until.isoformat()}"
        )


def erasure_json(report: EraseReport) -> dict[str, Any]:
    return {
        "url": report.url,
        "where": report.where,
        "dry_run": report.dry_run,
        "ok": report.ok,
        "tid": report.tid,
        "rows": report.rows,
        "files": report.files,
        "deleted": [deletion_json(it) for it in report.deleted],
        "failed": [{"path": it.path, "message": it.message} for it in report.failed],
        "pending": [
            {"tid": it.tid, "since": it.since.isoformat(), "until": it.until.isoformat()} for it in report.pending
        ],
        "published": report.published,
        "remains": report.remains,
    }


def _facts(report: EraseReport) -> Mapping[str, str]:
    rows = "" if report.rows is None else f", {count_text(report.rows, 'row')}"
    if report.dry_run:
        what = f"{count_text(report.files, 'live file')} may hold such rows"
    elif report.tid is None:
        what = "no live file held such rows"
    else:
        what = f"{report.tid}: {count_text(report.files, 'file')} written anew or removed{rows}"
    gone = f"{count_text(len(report.deleted), 'object')}, {size_text(sum(it.size for it in report.deleted))}"
    return {
        "rows": what,
        "would be deleted" if report.dry_run else "deleted": gone,
        "published anew": ", ".join(report.published),
        "pending": count_text(len(report.pending), "transaction") if report.pending else "",
        "failed": f"{count_text(len(report.failed), 'object')}; run it again" if report.failed else "",
    }
