"""`dbio vacuum`: prints what was deleted and why, or would be."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from dbio_commit.cli.check import KEEPS_VERSIONS
from dbio_commit.cli.output import (
    Column,
    in_pipe,
    print_facts,
    print_lines,
    print_pages,
    print_part,
    say,
    say_error,
    say_facts,
)
from dbio_commit.protocol.garbage import Reason
from dbio_commit.upkeep.figures import age_text, count_text, number_text, size_text
from dbio_commit.upkeep.report.health import Amount
from dbio_commit.upkeep.vacuum.report import Deletion, Failure, VacuumReport, by_reason


def print_vacuum(report: VacuumReport) -> None:
    if in_pipe():
        print_lines(DELETION, report.deleted)
        say_facts(report.url, _facts(report), dry_run=report.dry_run)
    else:
        say(report.url, style="bold")
        if report.dry_run and report.deleted:
            print_pages(DELETION, report.deleted)
            say("")
        print_facts(_facts(report))
        print_part("would be deleted" if report.dry_run else "deleted", REASON, amounts(report.deleted))
        print_part("kept", REASON, amounts(report.kept))
    say_failures(report.url, report.failed)


def vacuum_json(report: VacuumReport) -> dict[str, Any]:
    return {
        "url": report.url,
        "scope": report.scope,
        "dry_run": report.dry_run,
        "retention_hours": report.retention_hours,
        "ok": report.ok,
        "stopped": report.stopped,
        "deleted": [deletion_json(it) for it in report.deleted],
        "failed": [{"path": it.path, "message": it.message} for it in report.failed],
        "aborted": report.aborted,
        "postponed": report.postponed,
        "warnings": report.warnings,
        "keeps_versions": report.keeps_versions,
        "checkpoint": report.checkpoint,
        "queued": report.queued,
        "kept": [deletion_json(it) for it in report.kept],
    }


def say_failures(url: str, failures: Iterable[Failure]) -> None:
    for failure in failures:
        say_error(f"{failure.path or url}: {' '.join(failure.message.split())}")


def deletion_json(it: Deletion) -> dict[str, Any]:
    return {"path": it.path, "size": it.size, "age_s": int(it.age.total_seconds()), "reason": it.reason}


def _facts(report: VacuumReport) -> Mapping[str, str]:
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


def amounts(deletions: Iterable[Deletion]) -> list[tuple[Reason, Amount]]:
    return sorted(by_reason(deletions).items(), key=lambda it: list(Reason).index(it[0]))


DELETION: list[Column[Deletion]] = [
    Column("path", lambda it: it.path, fold=True),
    Column("size", lambda it: it.size, size_text, right=True),
    Column("age", lambda it: int(it.age.total_seconds()), lambda s: age_text(timedelta(seconds=s)), right=True),
    Column("why", lambda it: it.reason, fold=True),
]

REASON: list[Column[tuple[Reason, Amount]]] = [
    Column("why", lambda it: it[0], fold=True),
    Column("objects", lambda it: it[1].objects, number_text, right=True),
    Column("size", lambda it: it[1].size, size_text, right=True),
    Column("oldest", lambda it: it[1].oldest, age_text, right=True, least_width=70),
]
