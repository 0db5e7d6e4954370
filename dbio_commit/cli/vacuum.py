"""`dbio vacuum` and `dbio erase`: prints what was deleted and why, or would be, and what remains elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from dbio_commit.base.figures import age_text, count_text, number_text, size_text
from dbio_commit.cli.check import KEEPS_VERSIONS
from dbio_commit.cli.output import (
    Column,
    document,
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
from dbio_commit.maintenance.erase.report import EraseReport
from dbio_commit.maintenance.figures import iso_text
from dbio_commit.maintenance.report.health import Amount
from dbio_commit.maintenance.vacuum.report import Deletion, Failure, VacuumReport, by_reason
from dbio_commit.protocol.garbage import Reason


def print_vacuum(report: VacuumReport) -> None:
    _print_deletions(report, _vacuum_facts(report))
    if not in_pipe():
        print_part("kept", _REASON, _amounts(report.kept))
    _say_failures(report.url, report.failed)


def _print_deletions(report: VacuumReport | EraseReport, facts: Mapping[str, str]) -> None:
    if in_pipe():
        print_lines(_DELETION, report.deleted)
        say_facts(report.url, facts, dry_run=report.dry_run)
        return
    say(report.url, style="bold")
    if report.dry_run and report.deleted:
        print_pages(_DELETION, report.deleted)
        say("")
    print_facts(facts)
    print_part("would be deleted" if report.dry_run else "deleted", _REASON, _amounts(report.deleted))


def vacuum_json(report: VacuumReport) -> dict[str, Any]:
    names = "url scope dry_run retention_hours ok stopped deleted failed aborted postponed warnings keeps_versions"
    return document(report, f"{names} checkpoint queued kept")


def _say_failures(url: str, failures: Iterable[Failure]) -> None:
    for failure in failures:
        say_error(f"{failure.path or url}: {' '.join(failure.message.split())}")


def _vacuum_facts(report: VacuumReport) -> Mapping[str, str]:
    would = "would be " if report.dry_run else ""
    freed = f"{count_text(len(report.deleted), 'object')}, {size_text(sum(it.size for it in report.deleted))}"
    failed, postponed, queued = len(report.failed), len(report.postponed), len(report.queued)
    return {
        f"{would}deleted": freed,
        "failed": f"{count_text(failed, 'object')}; run it again" if failed else "",
        f"{would}aborted": _some(report.aborted),
        "postponed": f"{count_text(postponed, 'transaction')} for the next vacuum" if postponed else "",
        "checkpoint": f"{report.checkpoint} {would}written" if report.checkpoint else "",
        "queued": f"{count_text(queued, 'marker')} for the next vacuum" if queued else "",
        "stopped": "early; the next vacuum does the rest" if report.stopped else "",
        "versions": KEEPS_VERSIONS if report.keeps_versions else "",
    }


def _some(texts: Sequence[str], most: int = 5) -> str:
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _amounts(deletions: Iterable[Deletion]) -> list[tuple[Reason, Amount]]:
    return sorted(by_reason(deletions).items(), key=lambda it: list(Reason).index(it[0]))


_DELETION: list[Column[Deletion]] = [
    Column("path", lambda it: it.path, fold=True),
    Column("size", lambda it: it.size, size_text, right=True),
    Column("age", lambda it: int(it.age.total_seconds()), lambda s: age_text(timedelta(seconds=s)), right=True),
    Column("why", lambda it: it.reason, fold=True),
]

_REASON: list[Column[tuple[Reason, Amount]]] = [
    Column("why", lambda it: it[0], fold=True),
    Column("objects", lambda it: it[1].objects, number_text, right=True),
    Column("size", lambda it: it[1].size, size_text, right=True),
    Column("oldest", lambda it: it[1].oldest, age_text, right=True, least_width=70),
]


# --- dbio erase -------------------------------------------------------------------------------------------------------


def print_erasure(report: EraseReport) -> None:
    _print_deletions(report, _erasure_facts(report))
    if in_pipe():
        for sentence in report.remains:
            say_error(f"not erased here: {sentence}")
    else:
        print_part("not erased here", text_column("what"), report.remains)
    _say_failures(report.url, report.failed)
    for it in report.pending:
        say_error(
            f"{it.tid} is pending since {iso_text(it.since)}, and may hold such rows: run erase again once it has "
            f"ended, or abort it with `dbio abort`; a vacuum aborts it after {iso_text(it.until)}"
        )


def erasure_json(report: EraseReport) -> dict[str, Any]:
    return document(report, "url where dry_run ok tid rows files deleted failed pending published remains")


def _erasure_facts(report: EraseReport) -> Mapping[str, str]:
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
