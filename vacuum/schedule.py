"""The service: vacuums each table at the times of its cron expression, or all tables once. May compact a table before.

Each vacuum and each compaction runs in a process beside the service (`process`). A failure of one table stops no other
table. `commands` handles signals and the exit code.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from functools import partial
from threading import Event, Lock
from typing import Any, NamedTuple

import structlog
from apscheduler.events import (  # type: ignore[import-untyped]
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_SUBMITTED,
    JobSubmissionEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor as TickPool  # type: ignore[import-untyped]
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]

from dbio_commit.base.clock import SYSTEM_CLOCK, Clock
from dbio_commit.base.texts import label
from dbio_commit.maintenance.figures import iso_text
from dbio_commit.maintenance.report.health import TableHealth
from dbio_commit.maintenance.report.page import Subject, render_index, render_page, rendered
from vacuum.config import Config, ConfigEntry, secrets
from vacuum.discovery import FoundTable, Matches, find_tables
from vacuum.events import (
    KINDS,
    Outcome,
    cause_of,
    cause_text,
    failure_text,
    log_compaction,
    log_failure,
    log_idle,
    log_run,
    named,
)
from vacuum.metrics import Metrics
from vacuum.process import Compact, Job, Look, Processes, Vacuum
from vacuum.states import State, facts_of, link_to, pattern_of, read_idle, subject_of, write_idle

_log: structlog.stdlib.BoundLogger = structlog.get_logger("vacuum")

_LATE_S = 60.0

_REMEMBER_S = 60.0
"""The least time between two writes of the state file while the service runs."""

NO_TABLE = "no table matches"


class _Compaction(NamedTuple):
    """How the compaction before a vacuum ended."""

    result: str = ""
    """In words, to stand before the result of the vacuum."""
    cause: str = ""
    """Why it failed; "" if it did not."""
    found_nothing: bool = True


class Service:
    """Runs the vacuums. Once `stop` is set, no run begins, and each run under way ends after its current batch."""

    def __init__(
        self,
        config: Config,
        *,
        vacuum: Vacuum | None = None,
        compact: Compact | None = None,
        look: Look | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config, self.entries = config, config.entries
        self.metrics = Metrics()
        self.stop = Event()
        self.scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": TickPool(len(config.tables))},  # a slow listing of one entry delays no other entry
            # A run that could not begin in time begins late, once for all times that were missed.
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._processes = Processes()
        self._vacuum, self._compact = vacuum or self._processes.vacuum, compact or self._processes.compact
        self._look = look or self._processes.is_idle
        self._clock, self._secrets = clock, secrets(config)
        self._pool = ThreadPoolExecutor(config.concurrency, thread_name_prefix="vacuum")
        self._lock = Lock()
        self._remembered = read_idle(config.state_file) if config.state_file else {}
        """The runs in the state file whose tables have not been found yet."""
        self._remembered_s = -_REMEMBER_S
        self._busy = 0
        """How many tables have a run that is under way, or waits for a thread."""
        self._tables: dict[str, State] = {}
        self._patterns: dict[str, State] = {}
        self._unfinished: list[ConfigEntry | FoundTable] = []
        for entry in self.entries:
            if entry.is_pattern:
                self._patterns[entry.name] = State(entry=entry, since=clock.now())
                self.metrics.expect_pattern(entry.name)
            else:
                self._know(entry.name, entry)

    def once(self) -> bool:
        """Vacuums each table now. Returns whether nothing failed. A run prevented by `stop` has not failed."""
        for entry in self.entries:
            self.tick(entry)
        self.finish()
        states = (*self._tables.values(), *self._patterns.values())
        return all(Outcome.FAILED not in (state.outcome, state.compaction) for state in states)

    def results(self) -> Mapping[str, str]:
        """How the last run of each table ended, in words, by its label. For a pattern, why it gave no table."""
        found: dict[str, list[str]] = {}
        for name, state in (*self._patterns.items(), *self._tables.items()):  # a table can be named like a pattern
            if state.result:
                found.setdefault(label(name), []).append(state.result)
        return {name: "; ".join(results) for name, results in sorted(found.items())}

    def serve(self) -> None:
        """Vacuums at the times of the cron expressions, until `stop`."""
        for entry in self.entries:
            self.scheduler.add_job(self.tick, entry.trigger(), args=[entry], id=entry.name)
        self.scheduler.add_listener(self._tick_skipped, EVENT_JOB_MAX_INSTANCES)
        self.scheduler.add_listener(self._tick_began, EVENT_JOB_SUBMITTED)
        self.scheduler.start()
        for entry in self.entries:
            _log.info("scheduled", **named(entry), next_run=self.scheduler.get_job(entry.name).next_run_time)
        self.stop.wait()
        self.scheduler.shutdown()
        self.finish()

    def tick(self, entry: ConfigEntry) -> None:
        """Begins a run for each table of the entry, without waiting."""
        if self.stop.is_set():
            self._unfinished.append(entry)
            return
        try:
            found = find_tables(entry, self.entries)
        except Exception as error:  # any error is logged here: nothing above would
            log_failure(_log.bind(**named(entry)), error)
            if entry.is_pattern:
                self._not_expanded(entry, error)
            else:
                self._ended(entry.name, Outcome.FAILED, 0.0, failure_text(error), cause=self._cause(error))
            return
        if entry.is_pattern:
            self._expanded(entry, found)
        for table in found.tables:
            self._begin(table)

    def finish(self) -> None:
        """Waits for the runs that have begun. No run can begin afterwards."""
        self._pool.shutdown()
        self._remember()
        left = {kind: sorted(it[kind] for it in map(named, self._unfinished) if kind in it) for kind in KINDS}
        facts = {"unfinished": left["table"]} | ({"unfinished_patterns": left["pattern"]} if left["pattern"] else {})
        _log.info("stopped" if self.stop.is_set() else "done", **facts)

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the scheduler runs and no table is overdue, and the details for JSON."""
        now = self._clock.now()
        with self._lock:
            tables = {label(name): facts_of(state, now) for name, state in sorted(self._tables.items())}
            patterns = {label(name): facts_of(state, now) for name, state in sorted(self._patterns.items())}
        if self.stop.is_set() or not self.scheduler.running:
            status = "stopped"
        else:
            overdue = any(facts["overdue"] for facts in (*tables.values(), *patterns.values()))
            status = "overdue" if overdue else "ok"
        return status == "ok", {"status": status, "tables": tables, "patterns": patterns}

    def report(self, table: str | None = None) -> str | None:
        """A page about the health of a table, by its label, or an index of all. None if there is no such table."""
        now = self._clock.now()
        with self._lock:
            states = {label(name): state for name, state in sorted(self._tables.items())}
            shown = {name: state for name, state in states.items() if table in (None, name)}
            subjects = [subject_of(name, state, now) for name, state in shown.items()]
            patterns = [
                pattern_of(label(name), state, now)
                for name, state in sorted(self._patterns.items())
                if state.outcome is Outcome.FAILED
            ]
        if table is None:
            return rendered([*patterns, *subjects], lambda its: render_index(its, at=now, link=link_to), _not_shown)[0]
        page = partial(render_page, at=now, back="/report")
        return rendered(subjects, page, _not_shown)[0] if subjects else None

    # --- one table ------------------------------------------------------------------------------------------------

    def _begin(self, table: FoundTable) -> None:
        with self._lock:
            state = self._know(table.url, table.entry)
            begins, state.busy = not state.busy, True
            self._busy += begins
        if begins:
            self._pool.submit(self._run, table)
        else:
            self._skip(table.url)

    def _run(self, table: FoundTable) -> None:
        try:
            if not self.stop.is_set() and self._is_idle(table):
                return
            if self.stop.is_set():
                self._unfinished.append(table)
            else:
                job = table.job(self._secrets)
                before = self._run_compaction(job) if job.compact else _Compaction()
                self._run_vacuum(table, job, before)
        except Exception as error:  # an error outside of the run, which the pool would not show
            log_failure(_log.bind(**named(table)), error)
            self._ended(table.url, Outcome.FAILED, 0.0, failure_text(error), cause=self._cause(error))
        finally:
            with self._lock:
                self._tables[table.url].busy = False
                self._busy -= 1
                is_last = not self._busy
            if is_last:
                self._processes.rest()
                self._remember(least_s=_REMEMBER_S)

    def _is_idle(self, table: FoundTable) -> bool:
        """Whether the last whole run found nothing to do, the table is as it was then, and nothing is due. If so, this
        check counts as the run."""
        with self._lock:
            state = self._tables[table.url]
            last, state.idle = state.idle, None  # if the look fails, the next run is a whole one
        if last is None or last.last_look is None:
            return False
        started = self._clock.monotonic()
        if not self._look(table.job(self._secrets, last_look=last.last_look), stop=self.stop):
            return False
        duration_s, due = self._clock.monotonic() - started, last.last_look.due
        self.metrics.is_idle(table.url, last, self._clock.now())
        log_idle(_log.bind(**named(table)), due, duration_s)
        with self._lock:
            state.idle = last
        self._ended(table.url, Outcome.OK, duration_s, f"nothing due before {iso_text(due)}", last.health)
        return True

    def _run_compaction(self, job: Job) -> _Compaction:
        """Compacts. Raises nothing, so that the vacuum runs in any case."""
        log, started = _log.bind(table=label(job.url)), self._clock.monotonic()
        outcome, done, cause, found_nothing = Outcome.FAILED, None, "", False
        try:
            done = self._compact(job, stop=self.stop)
        except Exception as error:
            log_failure(log, error, "compaction failed", seconds=round(self._clock.monotonic() - started, 3))
            text, cause = f"compaction {failure_text(error)}", f"Compaction: {self._cause(error)}"
        else:
            outcome, text = Outcome.STOPPED if done.stopped else Outcome.OK, done.text
            found_nothing = not (done.stopped or done.files or done.left_files)
            log_compaction(log, done, outcome, self._clock.monotonic() - started)
        self.metrics.compacted(job.url, done)
        with self._lock:
            self._tables[job.url].compaction = outcome
        return _Compaction(f"{text}; ", cause, found_nothing)

    def _run_vacuum(self, table: FoundTable, job: Job, before: _Compaction) -> None:
        entry, log, cause = table.entry, _log.bind(**named(table)), before.cause
        log.info("run started", retention_hours=entry.options.retention_hours, dry_run=entry.dry_run)
        outcome, health, started = Outcome.FAILED, None, self._clock.monotonic()
        try:
            run = self._vacuum(job, stop=self.stop)
        except Exception as error:  # any error is a failure of this table only
            duration_s = self._clock.monotonic() - started
            log_failure(log, error, seconds=round(duration_s, 3))
            result, cause = failure_text(error), self._cause(error)
        else:
            duration_s = self._clock.monotonic() - started
            outcome = Outcome.FAILED if run.failed else Outcome.STOPPED if run.stopped else Outcome.OK
            self.metrics.reported(table.url, run)
            log_run(log, run, outcome, duration_s)
            result, health = run.text, run.health
            if run.failures:
                first = run.failures[0]
                cause = cause_text(f"{run.failed:,} things failed, first {first.path}: {first.message}", self._secrets)
            if run.stopped:
                self._unfinished.append(table)
            elif before.found_nothing and run.last_look:
                with self._lock:
                    self._tables[table.url].idle = run
        self._ended(table.url, outcome, duration_s, before.result + result, health, cause=cause)

    def _cause(self, error: Exception) -> str:
        return cause_of(error, self._secrets)

    def _ended(
        self,
        name: str,
        outcome: Outcome,
        duration_s: float,
        result: str,
        health: TableHealth | None = None,
        *,
        cause: str = "",
    ) -> None:
        now = self._clock.now()
        self.metrics.ended(name, duration_s, failed=outcome is Outcome.FAILED)
        with self._lock:
            state = self._tables[name]
            state.last_run, state.outcome, state.result, state.cause = now, outcome, result, cause
            self.metrics.set_failed(name, Outcome.FAILED in (outcome, state.compaction))
            state.health = health or state.health
            if outcome is Outcome.OK:
                state.last_success = now
                self.metrics.succeeded(name, now)

    def _skip(self, table: str) -> None:
        self.metrics.skipped(table)
        _log.warning("run skipped", table=label(table), reason="the run before it is not done")

    def _remember(self, *, least_s: float = 0.0) -> None:
        """Writes the state file, unless it was written less than `least_s` ago."""
        now_s = self._clock.monotonic()
        if self.config.state_file and now_s - self._remembered_s >= least_s:
            with self._lock:
                self._remembered_s = now_s
                runs = self._remembered | {label(name): it.idle for name, it in self._tables.items() if it.idle}
            now = self._clock.now()
            kept = {name: run for name, run in runs.items() if run.last_look and run.last_look.due > now}
            write_idle(self.config.state_file, kept)

    # --- what is known --------------------------------------------------------------------------------------------

    def _know(self, name: str, entry: ConfigEntry) -> State:
        if name not in self._tables:
            idle = self._remembered.pop(label(name), None)
            health = idle.health if idle else None
            self._tables[name] = State(entry=entry, since=self._clock.now(), idle=idle, health=health)
            self.metrics.expect(name)
        return self._tables[name]

    def _expanded(self, entry: ConfigEntry, found: Matches) -> None:
        self.metrics.matched(entry.name, found.count)
        if not found.count:
            _log.warning("no table matches", **named(entry))
        urls, now = {table.url for table in found.tables}, self._clock.now()
        with self._lock:
            pattern = self._patterns[entry.name]
            pattern.last_run = now
            if found.count:
                pattern.last_success, pattern.outcome, pattern.result, pattern.cause = now, Outcome.OK, "", ""
            else:
                pattern.outcome, pattern.result, pattern.cause = Outcome.FAILED, NO_TABLE, NO_TABLE
            known = {name for name, state in self._tables.items() if state.entry == entry and not state.busy}
            for name in known - urls:
                del self._tables[name]
                self.metrics.forget(name)

    def _not_expanded(self, entry: ConfigEntry, error: Exception) -> None:
        self.metrics.pattern_failed(entry.name)
        with self._lock:
            pattern = self._patterns[entry.name]
            pattern.last_run, pattern.outcome, pattern.result = self._clock.now(), Outcome.FAILED, failure_text(error)
            pattern.cause = self._cause(error)

    def _entry(self, name: str) -> ConfigEntry:
        return next(entry for entry in self.entries if entry.name == name)

    def _tick_skipped(self, event: JobSubmissionEvent) -> None:
        entry = self._entry(event.job_id)
        if not entry.is_pattern:
            return self._skip(entry.name)
        self.metrics.pattern_failed(entry.name)
        _log.warning("run skipped", **named(entry), reason="its directories are still being listed")
        return None

    def _tick_began(self, event: JobSubmissionEvent) -> None:
        late_s = (self._clock.now() - event.scheduled_run_times[-1]).total_seconds()
        if late_s > _LATE_S:
            _log.warning("run late", **named(self._entry(event.job_id)), seconds=round(late_s))


def _not_shown(it: Subject, error: Exception) -> None:
    log_failure(_log.bind(table=it.name), error, "table not shown")
