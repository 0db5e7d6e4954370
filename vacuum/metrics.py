"""The metrics for Prometheus, in a registry of their own. `schedule` reports the events."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary
from prometheus_client.metrics import MetricWrapperBase

from dbio_commit.base.texts import label
from dbio_commit.maintenance.report.health import TableHealth
from dbio_commit.maintenance.vacuum.report import RunSummary
from vacuum.compaction import CompactionSummary

_PREFIX = "dbio_vacuum_"

_Metric = TypeVar("_Metric", bound=MetricWrapperBase)


def _of(metric: _Metric, *names: str) -> _Metric:
    """The metric with these label values, escaped: a value that Prometheus refuses would break all metrics."""
    return metric.labels(*map(label, names))


class Metrics:
    """The metrics of each table, labelled by its URL, and of each pattern."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._runs = self._counter("runs", "Vacuums that ended, well or not")
        self._failures = self._counter("failures", "Vacuums that failed, as a whole or for some file")
        self._idle = self._counter("idle_runs", "Vacuums that found an unchanged table in which nothing was due")
        self._skipped = self._counter("skipped_runs", "Vacuums that were skipped: the one before was not done")
        self._files = self._counter("deleted_files", "Files deleted, markers included", "table", "reason")
        self._bytes = self._counter("deleted_bytes", "Bytes deleted", "table", "reason")
        self._aborted = self._counter("aborted_transactions", "Pending transactions that vacuum aborted")
        self._checkpoints = self._counter("checkpoints", "Checkpoints written")
        self._compacted_files = self._counter("compacted_files", "Small files that compactions put together")
        self._compacted_bytes = self._counter(
            "compacted_bytes", "Bytes of the small files that compactions put together"
        )
        self._compaction_failures = self._counter("compaction_failures", "Compactions that failed as a whole")
        self._seconds = Summary(_PREFIX + "run_seconds", "How long vacuums took", ["table"], registry=self.registry)
        self._failed = self._gauge("last_run_failed", "Whether the last vacuum, or the compaction before it, failed")
        self._success = self._gauge("last_success_timestamp_seconds", "When a vacuum last ended without a failure")
        self._garbage = self._gauge("garbage_files", "Files, markers included, that are left and will be deleted")
        self._garbage_bytes = self._gauge("garbage_bytes", "Bytes of these files")
        self._oldest = self._gauge("oldest_garbage_seconds", "Age of the oldest garbage that is left; 0 without any")
        self._state = {
            name: self._gauge(name, f"{text}, as of the last vacuum")
            for name, text in {
                "live_files": "Live files",
                "live_bytes": "Bytes of live files",
                "small_files": "Live files that a compaction could join",
                "small_bytes": "Bytes of live files that a compaction could join",
                "pending_transactions": "Transactions that are neither committed nor aborted",
                "pending_oldest_seconds": "Age of the oldest pending transaction; 0 without any",
                "last_commit_timestamp_seconds": "When the newest commit came",
                "checkpoint_timestamp_seconds": "When the newest checkpoint was written",
                "commits_since_checkpoint": "Commits that no checkpoint covers",
            }.items()
        }
        shows = "Age of the oldest commit that the publication in a format does not show; 0 if it shows all"
        self._lag = self._gauge("publication_lag_seconds", shows, "table", "format")
        unread = "that a stream has not read, as of the last vacuum"
        self._behind = {
            what: self._gauge(f"stream_behind_{what}", f"The {what} of commits {unread}", "table", "query")
            for what in ("commits", "files", "bytes")
        }
        unlisted = "Times that a pattern's directories could not be listed, or that the listing before was not done"
        self._patterns = self._counter("pattern_failures", unlisted, "pattern")
        matched = "Tables that matched a pattern when its directories were last listed"
        self._matched = self._gauge("pattern_tables", matched, "pattern")
        self._plain = (
            *(self._runs, self._idle, self._failures, self._skipped, self._aborted, self._checkpoints, self._seconds),
            *(self._compacted_files, self._compacted_bytes, self._compaction_failures),
        )
        gauges = (self._failed, self._success, self._garbage, self._garbage_bytes, self._oldest, self._lag)
        self._of_tables: Sequence[MetricWrapperBase] = (
            *(*self._plain, self._files, self._bytes, *gauges),
            *(*self._state.values(), *self._behind.values()),
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, text, labels or ["table"], registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, text, labels or ["table"], registry=self.registry)

    def expect(self, table: str) -> None:
        """Shows the table's counters as 0 until something happens: an alert on an increase needs the 0."""
        for metric in self._plain:
            _of(metric, table)

    def expect_pattern(self, pattern: str) -> None:
        _of(self._patterns, pattern)

    def matched(self, pattern: str, tables: int) -> None:
        _of(self._matched, pattern).set(tables)

    def pattern_failed(self, pattern: str) -> None:
        _of(self._patterns, pattern).inc()

    def skipped(self, table: str) -> None:
        _of(self._skipped, table).inc()

    def ended(self, table: str, duration_s: float, *, failed: bool) -> None:
        _of(self._runs, table).inc()
        _of(self._failures, table).inc(failed)
        _of(self._seconds, table).observe(duration_s)

    def set_failed(self, table: str, failed: bool) -> None:
        _of(self._failed, table).set(failed)

    def succeeded(self, table: str, at: datetime) -> None:
        _of(self._success, table).set(at.timestamp())

    def compacted(self, table: str, done: CompactionSummary | None) -> None:
        """`done` is None if the compaction failed. A dry run has compacted nothing."""
        if done is None:
            _of(self._compaction_failures, table).inc()
        elif not done.dry_run:
            _of(self._compacted_files, table).inc(done.files)
            _of(self._compacted_bytes, table).inc(done.size)

    def is_idle(self, table: str, last: RunSummary, now: datetime) -> None:
        """Records that the table is as that run left it, and that its garbage is older now."""
        _of(self._idle, table).inc()
        if last.health and last.last_look:
            self._saw(table, replace(last.health, at=now), is_published=not last.dry_run)
            self._left(table, last, older_s=max(0.0, (now - last.last_look.at).total_seconds()))

    def _left(self, table: str, run: RunSummary, *, older_s: float = 0.0) -> None:
        _of(self._garbage, table).set(run.left.objects)
        _of(self._garbage_bytes, table).set(run.left.size)
        _of(self._oldest, table).set(0 if run.oldest_garbage_s is None else run.oldest_garbage_s + older_s)

    def reported(self, table: str, run: RunSummary) -> None:
        """Records a run. A dry run has deleted nothing."""
        if run.health:
            self._saw(table, run.health, is_published=not run.dry_run)
        if not run.stopped:  # else it has not seen all garbage
            self._left(table, run)
        if run.dry_run:
            return
        for reason, total in run.deleted.items():
            _of(self._files, table, reason.name.lower()).inc(total.objects)
            _of(self._bytes, table, reason.name.lower()).inc(total.size)
        _of(self._aborted, table).inc(run.aborted)
        _of(self._checkpoints, table).inc(run.checkpoint is not None)

    def _saw(self, table: str, health: TableHealth, *, is_published: bool) -> None:
        """`is_published`: whether the vacuum has tried to publish, so that it is known which publications lag."""
        pending, oldest = health.pending, max(((health.at - it.started) for it in health.pending or ()), default=None)
        facts: dict[str, float | None] = {
            "live_files": health.live_files,
            "live_bytes": health.live_size,
            "small_files": health.small.objects,
            "small_bytes": health.small.size,
            "pending_transactions": None if pending is None else len(pending) + health.other_pending,
            "pending_oldest_seconds": None if pending is None else max(0.0, oldest.total_seconds() if oldest else 0.0),
            "last_commit_timestamp_seconds": health.last_commit.at.timestamp() if health.last_commit else None,
            "checkpoint_timestamp_seconds": health.checkpoint.timestamp() if health.checkpoint else None,
            "commits_since_checkpoint": health.commits_since_checkpoint,
        }
        for name, fact in facts.items():
            if fact is None:
                self._state[name].remove_by_labels({"table": label(table)})
            else:
                _of(self._state[name], table).set(fact)
        for lag in health.streams:
            for what, count in (("commits", lag.commits), ("files", lag.files), ("bytes", lag.size_bytes)):
                _of(self._behind[what], table, lag.query).set(count)
        if is_published:
            self._lag.remove_by_labels({"table": label(table)})
            since = {it.format: it.since or health.at for it in health.behind}
            for name in health.publications:
                _of(self._lag, table, name).set(max(0.0, (health.at - since.get(name, health.at)).total_seconds()))

    def forget(self, table: str) -> None:
        """Removes the metrics of a table that is gone: its ages would raise alarms for ever."""
        for metric in self._of_tables:
            metric.remove_by_labels({"table": label(table)})
