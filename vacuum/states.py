"""Keeps the state of each table and pattern, for /health, for the pages of /report, and in the `state_file`."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import quote

import structlog
from pydantic import TypeAdapter, ValidationError

from dbio_commit.base.figures import time_text
from dbio_commit.base.texts import plain
from dbio_commit.maintenance.figures import moment_text
from dbio_commit.maintenance.report.health import TableHealth
from dbio_commit.maintenance.report.page import Subject
from dbio_commit.maintenance.vacuum.report import RunSummary
from vacuum.config import ConfigEntry
from vacuum.events import Outcome


@dataclass(slots=True, kw_only=True)
class State:
    """The state of a table, or of a pattern. A run of a pattern is a listing of its directories."""

    entry: ConfigEntry
    since: datetime
    """When the service first found the table or pattern."""
    busy: bool = False
    """A run is under way, or waits for a thread."""
    last_run: datetime | None = None
    outcome: Outcome | None = None
    last_success: datetime | None = None
    result: str = ""
    """How the last run ended, in words."""
    cause: str = ""
    """Why the last run failed, or the compaction before it, for the page; "" if neither did."""
    compaction: Outcome | None = None
    """How the compaction before the last vacuum ended; None without one."""
    health: TableHealth | None = None
    """The health of the table after the last run that found it out."""
    idle: RunSummary | None = None
    """The last whole run, if neither it nor the compaction before it found anything to do."""

    @property
    def next_due(self) -> datetime | None:
        """The time until which nothing becomes due as long as nobody changes the table, if that is known."""
        return self.idle.last_look.due if self.idle and self.idle.last_look else None


def facts_of(state: State, now: datetime) -> dict[str, Any]:
    """The state as JSON shows it in /health."""
    return {
        "busy": state.busy,
        "last_run": state.last_run,
        "outcome": state.outcome,
        "last_success": state.last_success,
        "overdue": is_overdue(state, now),
        **({"next_due": state.next_due} if state.next_due else {}),
        **({"compaction": state.compaction} if state.compaction else {}),
    }


def is_overdue(state: State, now: datetime) -> bool:
    """Whether three times of its cron expression have passed since its last success, or since it is known."""
    third = next(islice(state.entry.fire_times(state.last_success or state.since), 2, None), None)
    return third is not None and third + timedelta(seconds=state.entry.jitter_s) < now


def link_to(table: str) -> str:
    """The path of the page about a table."""
    return f"/report?table={quote(table, safe='')}"


def subject_of(name: str, state: State, now: datetime) -> Subject:
    """A table as the page about health shows it."""
    failed, overdue = state.outcome is Outcome.FAILED, is_overdue(state, now)
    uncompacted = state.compaction is Outcome.FAILED
    troubles = {"vacuum failed": failed, "overdue": overdue, "compaction failed": uncompacted}
    fine = "vacuumed" if state.health else "not vacuumed yet"
    said = next((trouble for trouble, is_true in troubles.items() if is_true), fine)
    ran = f"Last vacuum: {state.outcome}, {moment_text(state.last_run, now)}" if state.last_run else ""
    ran += "; compaction failed" if ran and uncompacted else ""
    ran += f"; nothing due before {time_text(state.next_due)} if nothing changes" if ran and state.next_due else ""
    return Subject(
        name=name, health=state.health, note=ran, cause=state.cause, said=said, failed=any(troubles.values())
    )


def pattern_of(name: str, state: State, now: datetime) -> Subject:
    """A pattern for the page, if it has no table or could not be listed."""
    note = f"Last listing: {state.outcome}, {moment_text(state.last_run, now)}" if state.last_run else ""
    return Subject(name=name, note=note, cause=state.cause, said="pattern failed", failed=True, has_page=False)


_log: structlog.stdlib.BoundLogger = structlog.get_logger("vacuum")

_LINE = TypeAdapter(tuple[str, RunSummary])
"""A line of the file, as JSON: the label of a table, and the run."""


# --- the file -----------------------------------------------------------------------------------------------------
# The file has, for each table, the last whole run that found nothing to do, so that a new process knows it. A vacuum is
# left out only if the log of the table is the same as then. Without the file, each table gets a vacuum.


def read_idle(path: str) -> dict[str, RunSummary]:
    """The runs by the labels of their tables. Leaves out lines that cannot be read, and logs their number."""
    found: dict[str, RunSummary] = {}
    wrong = 0
    try:
        with Path(path).open("rb") as file:
            for line in file:
                try:
                    name, run = _LINE.validate_json(line)
                    found[name] = run
                except ValidationError:
                    wrong += 1
    except FileNotFoundError:
        return {}
    except OSError as error:
        _log.warning("state file not read", path=path, message=str(error))
    if wrong:
        _log.warning("state file not read", path=path, message=f"{wrong:,} lines have mistakes")
    return found


def write_idle(path: str, runs: Mapping[str, RunSummary]) -> None:
    """Replaces the file as a whole. An error is only logged: the runs themselves have ended."""
    try:
        with NamedTemporaryFile(dir=Path(path).absolute().parent, prefix=f".{Path(path).name}.", delete=False) as file:
            try:
                for line in runs.items():
                    file.write(json.dumps(plain(_LINE.dump_python(line, mode="json"))).encode() + b"\n")
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        _log.warning("state file not written", path=path, message=str(error))
