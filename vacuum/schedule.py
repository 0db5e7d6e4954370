"""The service: vacuums every table when its cron expression says so, or all of them once; before, it may compact it.

What a vacuum does is `run`'s, what a compaction does `compaction`'s; signals, and the process, are `__main__`'s. One
table's failure stops no other.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from threading import Event, Lock
from typing import Any, Protocol
from urllib.parse import quote

import structlog
from apscheduler.events import (  # type: ignore[import-untyped]
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_SUBMITTED,
    JobSubmissionEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor as TickPool  # type: ignore[import-untyped]
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]

from dbio_commit.base.clock import SYSTEM_CLOCK, Clock
from dbio_commit.base.errors import DbioError
from dbio_commit.base.texts import label
from dbio_commit.upkeep.figures import moment_text
from dbio_commit.upkeep.report.health import TableHealth
from dbio_commit.upkeep.report.page import Subject, render_index, render_page
from dbio_commit.upkeep.vacuum.report import RunSummary
from vacuum.compaction import CompactionSummary
from vacuum.config import Config, ConfigEntry, secrets
from vacuum.discovery import FoundTable, find_tables
from vacuum.metrics import Metrics
from vacuum.process import Job, RunFailed, compact_in_process, vacuum_in_process

_log: structlog.stdlib.BoundLogger = structlog.get_logger("vacuum")

_LATE_S = 60.0


class Vacuum(Protocol):
    """What is run for each table: `vacuum_in_process`, but for tests."""

    def __call__(self, job: Job, /, *, stop: Event) -> RunSummary: ...


class Compact(Protocol):
    """What is run before, where it is asked for: `compact_in_process`, but for tests."""

    def __call__(self, job: Job, /, *, stop: Event) -> CompactionSummary: ...


class Outcome(StrEnum):
    """How a run ended. What was stopped is no failure: the next run does the rest."""

    OK = "ok"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True, kw_only=True)
class _State:
    """What is known of a table; or of a pattern, whose runs are its expansions."""

    entry: ConfigEntry
    since: datetime
    busy: bool = False
    """A run is under way, or waits for a thread."""
    last_run: datetime | None = None
    outcome: Outcome | None = None
    last_success: datetime | None = None
    result: str = ""
    """How the last run ended, in words."""
    compaction: Outcome | None = None
    """How the compaction ended that came before; None where there was none."""
    health: TableHealth | None = None
    """As the last run that told it left the table."""


class Service:
    """One process's vacuums. `stop` ends it in good order: no run begins, and those under way end after a batch."""

    def __init__(
        self,
        config: Config,
        *,
        vacuum: Vacuum = vacuum_in_process,
        compact: Compact = compact_in_process,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config, self.entries = config, config.entries
        self.metrics = Metrics()
        self.stop = Event()
        self.scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": TickPool(len(config.tables))},  # so that no slow listing holds up another entry
            # A run that could not begin in time begins late, and once for all that were missed.
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._vacuum, self._compact, self._clock, self._secrets = vacuum, compact, clock, secrets(config)
        self._pool = ThreadPoolExecutor(config.concurrency, thread_name_prefix="vacuum")
        self._lock = Lock()
        self._tables: dict[str, _State] = {}
        self._patterns: dict[str, _State] = {}
        self._unfinished: list[ConfigEntry | FoundTable] = []
        for entry in self.entries:
            if entry.is_pattern:
                self._patterns[entry.name] = _State(entry=entry, since=clock.now())
                self.metrics.expect_pattern(entry.name)
            else:
                self._know(entry.name, entry)

    def once(self) -> bool:
        """Vacuums every table now. Whether nothing failed; what `stop` kept from running did not."""
        for entry in self.entries:
            self.tick(entry)
        self.finish()
        states = (*self._tables.values(), *self._patterns.values())
        return all(Outcome.FAILED not in (state.outcome, state.compaction) for state in states)

    def results(self) -> Mapping[str, str]:
        """How the last run of each table ended, in words, by its label; and what kept a pattern from being one's."""
        found: dict[str, list[str]] = {}
        for name, state in (*self._patterns.items(), *self._tables.items()):  # a table can be named like a pattern
            if state.result:
                found.setdefault(label(name), []).append(state.result)
        return {name: "; ".join(results) for name, results in sorted(found.items())}

    def serve(self) -> None:
        """Vacuums by the clock, until `stop`."""
        for entry in self.entries:
            self.scheduler.add_job(self.tick, entry.trigger(), args=[entry], id=entry.name)
        self.scheduler.add_listener(self._tick_skipped, EVENT_JOB_MAX_INSTANCES)
        self.scheduler.add_listener(self._tick_began, EVENT_JOB_SUBMITTED)
        self.scheduler.start()
        for entry in self.entries:
            _log.info("scheduled", **_named(entry), next_run=self.scheduler.get_job(entry.name).next_run_time)
        self.stop.wait()
        self.scheduler.shutdown()
        self.finish()

    def tick(self, entry: ConfigEntry) -> None:
        """Begins a run for each of the entry's tables, and waits for none."""
        if self.stop.is_set():
            self._unfinished.append(entry)
            return
        try:
            tables = find_tables(entry, self.entries)
        except Exception as error:  # whatever it is: the other entries have their own ticks
            _log_failure(_log.bind(**_named(entry)), error)
            if entry.is_pattern:
                self._not_expanded(entry, error)
            else:
                self._ended(entry.name, Outcome.FAILED, 0.0, _failure(error))
            return
        if entry.is_pattern:
            self._expanded(entry, {table.url for table in tables})
        for table in tables:
            self._begin(table)

    def finish(self) -> None:
        """Waits for the runs that have begun; there can be none afterwards."""
        self._pool.shutdown()
        left = {kind: sorted(it[kind] for it in map(_named, self._unfinished) if kind in it) for kind in _KINDS}
        facts = {"unfinished": left["table"]} | ({"unfinished_patterns": left["pattern"]} if left["pattern"] else {})
        _log.info("stopped" if self.stop.is_set() else "done", **facts)

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the scheduler runs and every table succeeded lately; and the same in detail, for JSON."""
        now = self._clock.now()
        with self._lock:
            tables = {label(name): _facts(state, now) for name, state in sorted(self._tables.items())}
            patterns = {label(name): _facts(state, now) for name, state in sorted(self._patterns.items())}
        if self.stop.is_set() or not self.scheduler.running:
            status = "stopped"
        else:
            overdue = any(facts["overdue"] for facts in (*tables.values(), *patterns.values()))
            status = "overdue" if overdue else "ok"
        return status == "ok", {"status": status, "tables": tables, "patterns": patterns}

    def report(self, table: str | None = None) -> str | None:
        """A page about the health of a table, by its label, or an index of all; None where there is no such table."""
        now = self._clock.now()
        with self._lock:
            states = {label(name): state for name, state in sorted(self._tables.items())}
            shown = {name: state for name, state in states.items() if table in (None, name)}
            subjects = [_subject(name, state, now) for name, state in shown.items()]
        if table is None:
            return _rendered(subjects, lambda its: render_index(its, at=now, link=_link))
        return _rendered(subjects, lambda its: render_page(its, at=now, back="/report")) if subjects else None

    # --- one table ------------------------------------------------------------------------------------------------

    def _begin(self, table: FoundTable) -> None:
        with self._lock:
            state = self._know(table.url, table.entry)
            begins, state.busy = not state.busy, True
        if begins:
            self._pool.submit(self._run, table)
        else:
            self._skip(table.url)

    def _run(self, table: FoundTable) -> None:
        try:
            if self.stop.is_set():
                self._unfinished.append(table)
            else:
                job = table.job(self._secrets)
                self._run_vacuum(table, job, said=self._run_compaction(job) if job.compact else "")
        except Exception as error:  # of what surrounds a run: the pool would keep it to itself
            _log_failure(_log.bind(**_named(table)), error)
            self._ended(table.url, Outcome.FAILED, 0.0, _failure(error))
        finally:
            with self._lock:
                self._tables[table.url].busy = False

    def _run_compaction(self, job: Job) -> str:
        """What came of it, in words, for the vacuum's to follow: whatever it is, that goes on."""
        log, started = _log.bind(table=label(job.url)), self._clock.monotonic()
        outcome, done = Outcome.FAILED, None
        try:
            done = self._compact(job, stop=self.stop)
        except Exception as error:
            _log_failure(log, error, "compaction failed", seconds=round(self._clock.monotonic() - started, 3))
            text = f"compaction {_failure(error)}"
        else:
            outcome, text = Outcome.STOPPED if done.stopped else Outcome.OK, done.text
            _log_compaction(log, done, outcome, self._clock.monotonic() - started)
        self.metrics.compacted(job.url, done)
        with self._lock:
            self._tables[job.url].compaction = outcome
        return f"{text}; "

    def _run_vacuum(self, table: FoundTable, job: Job, *, said: str) -> None:
        entry, log = table.entry, _log.bind(**_named(table))
        log.info("run started", retention_hours=entry.options.retention_hours, dry_run=entry.dry_run)
        outcome, health, started = Outcome.FAILED, None, self._clock.monotonic()
        try:
            run = self._vacuum(job, stop=self.stop)
        except Exception as error:  # whatever it is: it is this table's, and the others go on
            duration_s = self._clock.monotonic() - started
            _log_failure(log, error, seconds=round(duration_s, 3))
            result = _failure(error)
        else:
            duration_s = self._clock.monotonic() - started
            outcome = Outcome.FAILED if run.failed else Outcome.STOPPED if run.stopped else Outcome.OK
            self.metrics.reported(table.url, run)
            _log_run(log, run, outcome, duration_s)
            result, health = run.text, run.health
            if run.stopped:
                self._unfinished.append(table)
        self._ended(table.url, outcome, duration_s, said + result, health)

    def _ended(
        self, name: str, outcome: Outcome, duration_s: float, result: str, health: TableHealth | None = None
    ) -> None:
        now = self._clock.now()
        self.metrics.ended(name, duration_s, failed=outcome is Outcome.FAILED)
        with self._lock:
            state = self._tables[name]
            state.last_run, state.outcome, state.result = now, outcome, result
            state.health = health or state.health
            if outcome is Outcome.OK:
                state.last_success = now
                self.metrics.succeeded(name, now)

    def _skip(self, table: str) -> None:
        self.metrics.skipped(table)
        _log.warning("run skipped", table=label(table), reason="the one before is not done")

    # --- what is known --------------------------------------------------------------------------------------------

    def _know(self, name: str, entry: ConfigEntry) -> _State:
        if name not in self._tables:
            self._tables[name] = _State(entry=entry, since=self._clock.now())
            self.metrics.expect(name)
        return self._tables[name]

    def _expanded(self, entry: ConfigEntry, found: set[str]) -> None:
        if not found:
            _log.warning("no table matches", **_named(entry))
        with self._lock:
            pattern = self._patterns[entry.name]
            pattern.last_run = pattern.last_success = self._clock.now()
            pattern.outcome, pattern.result = Outcome.OK, "" if found else "no table matches"
            known = {name for name, state in self._tables.items() if state.entry == entry and not state.busy}
            for name in known - found:
                del self._tables[name]
                self.metrics.forget(name)

    def _not_expanded(self, entry: ConfigEntry, error: Exception) -> None:
        self.metrics.pattern_failed(entry.name)
        with self._lock:
            pattern = self._patterns[entry.name]
            pattern.last_run, pattern.outcome, pattern.result = self._clock.now(), Outcome.FAILED, _failure(error)

    def _entry(self, name: str) -> ConfigEntry:
        return next(entry for entry in self.entries if entry.name == name)

    def _tick_skipped(self, event: JobSubmissionEvent) -> None:
        entry = self._entry(event.job_id)
        if not entry.is_pattern:
            return self._skip(entry.name)
        self.metrics.pattern_failed(entry.name)
        _log.warning("run skipped", **_named(entry), reason="its directories are still being listed")
        return None

    def _tick_began(self, event: JobSubmissionEvent) -> None:
        late_s = (self._clock.now() - event.scheduled_run_times[-1]).total_seconds()
        if late_s > _LATE_S:
            _log.warning("run late", **_named(self._entry(event.job_id)), seconds=round(late_s))


_KINDS = ("table", "pattern")


def _named(it: ConfigEntry | FoundTable) -> dict[str, str]:
    """As log lines name it: what has the key "table" is one."""
    if isinstance(it, FoundTable):
        return {"table": label(it.url)}
    return {"pattern" if it.is_pattern else "table": label(it.name)}


def _facts(state: _State, now: datetime) -> dict[str, Any]:
    return {
        "busy": state.busy,
        "last_run": state.last_run,
        "outcome": state.outcome,
        "last_success": state.last_success,
        "overdue": _is_overdue(state, now),
        **({"compaction": state.compaction} if state.compaction else {}),
    }


def _link(table: str) -> str:
    return f"/report?table={quote(table, safe='')}"


def _subject(name: str, state: _State, now: datetime) -> Subject:
    """What a page says of a table. Why something failed is in the log: not all who may see this page may read that."""
    failed, overdue = state.outcome is Outcome.FAILED, _is_overdue(state, now)
    uncompacted = state.compaction is Outcome.FAILED
    troubles = {"vacuum failed": failed, "overdue": overdue, "compaction failed": uncompacted}
    fine = "vacuumed" if state.health else "not vacuumed yet"
    said = next((trouble for trouble, is_so in troubles.items() if is_so), fine)
    ran = f"Last vacuum: {state.outcome}, {moment_text(state.last_run, now)}" if state.last_run else ""
    ran += "; compaction failed" if ran and uncompacted else ""
    note = f"{ran}; the log says why" if failed or uncompacted else ran
    return Subject(name=name, health=state.health, note=note, said=said, failed=any(troubles.values()))


def _rendered(subjects: Sequence[Subject], render: Callable[[Sequence[Subject]], str]) -> str:
    """The page; a table that cannot be shown costs what is said of it, and not the page."""
    try:
        return render(subjects)
    except Exception:  # which of them it is, each alone tells

        def shown(it: Subject) -> Subject:
            try:
                render([it])
            except Exception as error:
                _log_failure(_log.bind(table=it.name), error, "table not shown")
                return Subject(name=it.name, note="It cannot be shown; the log says why", failed=True)
            return it

        return render([shown(it) for it in subjects])


def _is_overdue(state: _State, now: datetime) -> bool:
    """Whether three times have come since it last succeeded; or since it is known, where it never did."""
    third = next(islice(state.entry.fire_times(state.last_success or state.since), 2, None), None)
    return third is not None and third + timedelta(seconds=state.entry.jitter_s) < now


def _log_run(log: structlog.stdlib.BoundLogger, run: RunSummary, outcome: Outcome, duration_s: float) -> None:
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


def _log_compaction(
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


def _log_failure(log: structlog.stdlib.BoundLogger, error: Exception, event: str = "run failed", **facts: Any) -> None:
    """What is no error of ours may be a bug, and is shown with where it came from."""
    if isinstance(error, RunFailed):
        where = {"exception": error.traceback} if error.traceback else {}
        log.error(event, error=error.error, message=error.message, **where, **facts)
        return
    ours = isinstance(error, DbioError)
    log.error(event, error=type(error).__name__, message=str(error), exc_info=not ours, **facts)


def _failure(error: Exception) -> str:
    name = error.error if isinstance(error, RunFailed) else type(error).__name__
    return f"failed: {name}: {error}"
