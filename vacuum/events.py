"""Logs the service's lines about runs, and decides how they name tables."""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import Any

import structlog

from dbio_commit.base.errors import DbioError
from dbio_commit.base.redaction import redact
from dbio_commit.base.texts import label, visible
from dbio_commit.maintenance.figures import iso_text
from dbio_commit.maintenance.vacuum.report import RunSummary
from vacuum.compaction import CompactionSummary
from vacuum.config import ConfigEntry
from vacuum.discovery import FoundTable
from vacuum.process import RunFailed

KINDS = ("table", "pattern")
"""The keys by which log lines name what they are about."""


class Outcome(StrEnum):
    """How a run ended. A run that was stopped has not failed: the next run does the rest."""

    OK = "ok"
    FAILED = "failed"
    STOPPED = "stopped"


def named(it: ConfigEntry | FoundTable) -> dict[str, str]:
    """The name for log lines, with the key "table" or "pattern"."""
    if isinstance(it, FoundTable):
        return {"table": label(it.url)}
    return {"pattern" if it.is_pattern else "table": label(it.name)}


def log_run(log: structlog.stdlib.BoundLogger, run: RunSummary, outcome: Outcome, duration_s: float) -> None:
    for failure in run.failures:
        log.warning("not deleted", path=failure.path, message=failure.message)
    for warning in run.warnings:
        log.warning("run warning", message=warning)
    log.info(
        "run finished",
        outcome=outcome,
        dry_run=run.dry_run,
        seconds=round(duration_s, 3),
        files=sum(total.objects for total in run.deleted.values()),
        bytes=sum(total.size for total in run.deleted.values()),
        reasons={reason.name.lower(): total.objects for reason, total in run.deleted.items()},
        failed=run.failed,
        aborted=run.aborted,
        postponed=run.postponed,
        checkpoint=run.checkpoint,
        kept=run.kept,
    )


def log_idle(log: structlog.stdlib.BoundLogger, due: datetime, duration_s: float) -> None:
    log.info("nothing due", seconds=round(duration_s, 3), next_due=iso_text(due))


def log_compaction(
    log: structlog.stdlib.BoundLogger, done: CompactionSummary, outcome: Outcome, duration_s: float
) -> None:
    for left in done.left:
        log.warning("not compacted", path=left.first, files=left.files, message=left.reason)
    log.info(
        "compaction finished",
        outcome=outcome,
        dry_run=done.dry_run,
        seconds=round(duration_s, 3),
        files=done.files,
        bytes=done.size,
        new_files=done.new_files,
        new_bytes=done.new_size,
        commits=done.commits,
        left=done.left_files,
    )


def log_failure(log: structlog.stdlib.BoundLogger, error: Exception, event: str = "run failed", **facts: Any) -> None:
    """Logs an error, with a traceback if it is not a DbioError and may thus be a bug."""
    if isinstance(error, RunFailed):
        where = {"exception": error.traceback} if error.traceback else {}
        log.error(event, error=error.error, message=error.message, **where, **facts)
        return
    is_bug = not isinstance(error, DbioError)
    log.error(event, error=type(error).__name__, message=str(error), exc_info=is_bug, **facts)


def failure_text(error: Exception) -> str:
    name = error.error if isinstance(error, RunFailed) else type(error).__name__
    return f"failed: {name}: {error}"


MOST_CAUSE = 600
"""The most characters of a cause on the page."""


def cause_of(error: Exception, secrets: Collection[str]) -> str:
    """Why a run failed, for the page: the error and its message, without secrets, on one line of bounded length.

    The text of an error that is not a DbioError may come from anywhere, so only its name is shown.
    """
    if isinstance(error, RunFailed):
        name, is_bug = error.error, bool(error.traceback)
    else:
        name, is_bug = type(error).__name__, not isinstance(error, DbioError)
    return cause_text(name if is_bug else f"{name}: {error}", secrets)


def cause_text(text: str, secrets: Collection[str]) -> str:
    """The text without secrets, on one line of bounded length."""
    line = visible("; ".join(redact(text, secrets).splitlines()))
    return line if len(line) <= MOST_CAUSE else f"{line[:MOST_CAUSE]}…"
