"""The service: vacuums every table when its cron expression says so, or all of them once.

What a vacuum does is `run`'s; signals, and the process, are `__main__`'s. One table's failure stops no other.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from threading import Event, Lock
from typing import Any, Protocol

import structlog
from apscheduler.events import (  # type: ignore[import-untyped]
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_SUBMITTED,
    JobSubmissionEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor as TickPool  # type: ignore[import-untyped]
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]

from dbio_commit.clock import SYSTEM_CLOCK, Clock
from dbio_commit.errors import DbioError
from dbio_commit.table import Table
from vacuum.config import Config, Entry
from vacuum.discovery import Target, find_targets
from vacuum.metrics import Metrics
from vacuum.report import Control, VacuumOptions, VacuumReport
from vacuum.run import vacuum_table

_log: structlog.stdlib.BoundLogger = structlog.get_logger("vacuum")

_LATE_S = 60.0


class Vacuum(Protocol):
    """What is run for each table; `vacuum_table`, but for tests."""

    def __call__(self, table: Table, options: VacuumOptions, /, *, dry_run: bool, control: Control) -> VacuumReport: ...


class Outcome(StrEnum):
    """How a run ended. What was stopped is no failure: the next run does the rest."""

    OK = "ok"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True, kw_only=True)
class _State:
    """What is known of a table; or of a pattern, whose runs are its expansions."""

    entry: Entry
    since: datetime
    busy: bool = False
    """A run is under way, or waits for a thread."""
    last_run: datetime | None = None
    outcome: Outcome | None = None
    last_success: datetime | None = None


class Service:
    """One process's vacuums. `stop` ends it in good order: no run begins, and those under way end after a batch."""

    def __init__(self, config: Config, *, vacuum: Vacuum = vacuum_table, clock: Clock = SYSTEM_CLOCK) -> None:
        self.config, self.entries = config, config.entries
        self.metrics = Metrics()
        self.stop = Event()
        self.scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": TickPool(len(config.tables))},  # so that no slow listing holds up another entry
            # A run that could not begin in time begins late, and once for all that were missed.
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._vacuum, self._clock = vacuum, clock
        self._pool = ThreadPoolExecutor(config.concurrency, thread_name_prefix="vacuum")
        self._lock = Lock()
        self._states: dict[str, _State] = {}
        self._unfinished: list[str] = []
        for entry in self.entries:
            self._know(entry.name, entry)

    def once(self) -> bool:
        """Vacuums every table now. Whether none failed; one that `stop` kept from it did not."""
        for entry in self.entries:
            self.tick(entry)
        self.finish()
        return all(state.outcome is not Outcome.FAILED for state in self._states.values())

    def serve(self) -> None:
        """Vacuums by the clock, until `stop`."""
        for entry in self.entries:
            self.scheduler.add_job(self.tick, entry.trigger(), args=[entry], id=entry.name)
        self.scheduler.add_listener(self._tick_skipped, EVENT_JOB_MAX_INSTANCES)
        self.scheduler.add_listener(self._tick_began, EVENT_JOB_SUBMITTED)
        self.scheduler.start()
        for job in self.scheduler.get_jobs():
            _log.info("scheduled", table=job.id, next_run=job.next_run_time)
        self.stop.wait()
        self.scheduler.shutdown()
        self.finish()

    def tick(self, entry: Entry) -> None:
        """Begins a run for each of the entry's tables, and waits for none."""
        if self.stop.is_set():
            self._unfinished.append(entry.name)
            return
        try:
            targets = find_targets(entry, self.entries)
        except Exception as error:  # whatever it is: the other entries have their own ticks
            _log_failure(_log.bind(table=entry.name), error, pattern=entry.path)
            self._ended(entry.name, Outcome.FAILED, 0.0)
            return
        if entry.is_pattern:
            self._expanded(entry, {target.url for target in targets})
        for target in targets:
            self._begin(target)

    def finish(self) -> None:
        """Waits for the runs that have begun; there can be none afterwards."""
        self._pool.shutdown()
        _log.info("stopped" if self.stop.is_set() else "done", unfinished=sorted(self._unfinished))

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the scheduler runs and every table succeeded lately; and the same in detail, for JSON."""
        now = self._clock.now()
        with self._lock:
            tables = {
                name: {
                    "busy": state.busy,
                    "last_run": state.last_run,
                    "outcome": state.outcome,
                    "last_success": state.last_success,
                    "overdue": _is_overdue(state, now),
                }
                for name, state in sorted(self._states.items())
            }
        if self.stop.is_set() or not self.scheduler.running:
            status = "stopped"
        else:
            status = "overdue" if any(table["overdue"] for table in tables.values()) else "ok"
        return status == "ok", {"status": status, "tables": tables}

    # --- one table ------------------------------------------------------------------------------------------------

    def _begin(self, target: Target) -> None:
        with self._lock:
            state = self._know(target.url, target.entry)
            begins, state.busy = not state.busy, True
        if begins:
            self._pool.submit(self._run, target)
        else:
            self._skip(target.url)

    def _run(self, target: Target) -> None:
        try:
            if self.stop.is_set():
                self._unfinished.append(target.url)
            else:
                self._run_vacuum(target)
        finally:
            with self._lock:
                self._states[target.url].busy = False

    def _run_vacuum(self, target: Target) -> None:
        entry, log = target.entry, _log.bind(table=target.url)
        log.info("run started", retention_hours=entry.options.retention_hours, dry_run=entry.dry_run)
        outcome, started = Outcome.FAILED, self._clock.monotonic()
        try:
            control = Control(stop=self.stop.is_set)
            report = self._vacuum(target.open(), entry.options, dry_run=entry.dry_run, control=control)
        except Exception as error:  # whatever it is: it is this table's, and the others go on
            duration_s = self._clock.monotonic() - started
            _log_failure(log, error, seconds=round(duration_s, 3))
        else:
            duration_s = self._clock.monotonic() - started
            outcome = Outcome.FAILED if report.failed else Outcome.STOPPED if report.stopped else Outcome.OK
            self.metrics.reported(target.url, report)
            _log_report(log, report, outcome, duration_s)
            if report.stopped:
                self._unfinished.append(target.url)
        self._ended(target.url, outcome, duration_s)

    def _ended(self, name: str, outcome: Outcome, duration_s: float) -> None:
        now = self._clock.now()
        self.metrics.ended(name, duration_s, failed=outcome is Outcome.FAILED)
        with self._lock:
            state = self._states[name]
            state.last_run, state.outcome = now, outcome
            if outcome is Outcome.OK:
                state.last_success = now
                self.metrics.succeeded(name, now)

    def _skip(self, name: str) -> None:
        self.metrics.skipped(name)
        _log.warning("run skipped", table=name, reason="the one before is not done")

    # --- what is known --------------------------------------------------------------------------------------------

    def _know(self, name: str, entry: Entry) -> _State:
        if name not in self._states:
            self._states[name] = _State(entry=entry, since=self._clock.now())
            self.metrics.expect(name)
        return self._states[name]

    def _expanded(self, entry: Entry, found: set[str]) -> None:
        if not found:
            _log.warning("no table matches", table=entry.name)
        with self._lock:
            pattern = self._states[entry.name]
            pattern.last_run = pattern.last_success = self._clock.now()
            pattern.outcome = Outcome.OK
            known = {name for name, state in self._states.items() if state.entry == entry and not state.busy}
            for name in known - found - {entry.name}:
                del self._states[name]
                self.metrics.forget(name)

    def _tick_skipped(self, event: JobSubmissionEvent) -> None:
        self._skip(event.job_id)

    def _tick_began(self, event: JobSubmissionEvent) -> None:
        late_s = (self._clock.now() - event.scheduled_run_times[-1]).total_seconds()
        if late_s > _LATE_S:
            _log.warning("run late", table=event.job_id, seconds=round(late_s))


def _is_overdue(state: _State, now: datetime) -> bool:
    """Whether three times have come since it last succeeded; or since it is known, where it never did."""
    third = next(islice(state.entry.fire_times(state.last_success or state.since), 2, None), None)
    return third is not None and third + timedelta(seconds=state.entry.jitter_s) < now


def _log_report(log: structlog.stdlib.BoundLogger, report: VacuumReport, outcome: Outcome, duration_s: float) -> None:
    for failure in report.failed:
        log.warning("not deleted", path=failure.path, message=failure.message)
    reasons = Counter(deletion.reason for deletion in report.deleted)
    log.info(
        "run finished",
        outcome=outcome,
        dry_run=report.dry_run,
        seconds=round(duration_s, 3),
        files=len(report.deleted),
        bytes=sum(deletion.size for deletion in report.deleted),
        reasons={reason.name.lower(): count for reason, count in sorted(reasons.items())},
        failed=len(report.failed),
        aborted=len(report.aborted),
        checkpoint=report.checkpoint,
        kept=len(report.kept),
    )


def _log_failure(log: structlog.stdlib.BoundLogger, error: Exception, **facts: Any) -> None:
    """What is no error of ours may be a bug, and is shown with where it came from."""
    ours = isinstance(error, DbioError)
    log.error("run failed", error=type(error).__name__, message=str(error), exc_info=not ours, **facts)
