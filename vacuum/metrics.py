"""The metrics for Prometheus, in a registry of their own. `schedule` reports the events."""

from datetime import datetime
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary
from prometheus_client.metrics import MetricWrapperBase

from dbio_commit.base.texts import label
from dbio_commit.upkeep.vacuum.report import RunSummary
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
        self._skipped = self._counter("skipped_runs", "Vacuums that were skipped: the one before was not done")
        self._files = self._counter("deleted_files", "Files deleted, markers included", "reason")
        self._bytes = self._counter("deleted_bytes", "Bytes deleted", "reason")
        self._aborted = self._counter("aborted_transactions", "Pending transactions that vacuum aborted")
        self._checkpoints = self._counter("checkpoints", "Checkpoints written")
        self._compacted_files = self._counter("compacted_files", "Small files that compactions put together")
        self._compacted_bytes = self._counter(
            "compacted_bytes", "Bytes of the small files that compactions put together"
        )
        self._compaction_failures = self._counter("compaction_failures", "Compactions that failed as a whole")
        self._seconds = Summary(_PREFIX + "run_seconds", "How long vacuums took", ["table"], registry=self.registry)
        self._oldest = self._gauge("oldest_garbage_seconds", "Age of the oldest garbage that is left; 0 without any")
        self._success = self._gauge("last_success_timestamp_seconds", "When a vacuum last ended without a failure")
        self._behind = {
            what: Gauge(
                f"{_PREFIX}stream_behind_{what}",
                f"The {what} of commits that a stream has not read, as of the last vacuum",
                ["table", "query"],
                registry=self.registry,
            )
            for what in ("commits", "files", "bytes")
        }
        self._patterns = Counter(
            _PREFIX + "pattern_failures",
            "Times that a pattern's directories could not be listed, or that the listing before was not done",
            ["pattern"],
            registry=self.registry,
        )
        self._plain = (
            self._runs,
            self._failures,
            self._skipped,
            self._aborted,
            self._checkpoints,
            self._seconds,
            self._compacted_files,
            self._compacted_bytes,
            self._compaction_failures,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, text, ["table", *labels], registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(_PREFIX + name, text, ["table"], registry=self.registry)

    def expect(self, table: str) -> None:
        """Shows the table's counters as 0 until something happens: an alert on an increase needs the 0."""
        for metric in self._plain:
            _of(metric, table)

    def expect_pattern(self, pattern: str) -> None:
        _of(self._patterns, pattern)

    def pattern_failed(self, pattern: str) -> None:
        _of(self._patterns, pattern).inc()

    def skipped(self, table: str) -> None:
        _of(self._skipped, table).inc()

    def ended(self, table: str, duration_s: float, *, failed: bool) -> None:
        _of(self._runs, table).inc()
        _of(self._failures, table).inc(failed)
        _of(self._seconds, table).observe(duration_s)

    def succeeded(self, table: str, at: datetime) -> None:
        _of(self._success, table).set(at.timestamp())

    def compacted(self, table: str, done: CompactionSummary | None) -> None:
        """`done` is None if the compaction failed. A dry run has compacted nothing."""
        if done is None:
            _of(self._compaction_failures, table).inc()
        elif not done.dry_run:
            _of(self._compacted_files, table).inc(done.files)
            _of(self._compacted_bytes, table).inc(done.size)

    def reported(self, table: str, run: RunSummary) -> None:
        """A dry run has deleted nothing."""
        for lag in run.health.streams if run.health else ():
            for what, count in (("commits", lag.commits), ("files", lag.files), ("bytes", lag.size_bytes)):
                _of(self._behind[what], table, lag.query).set(count)
        if not run.stopped:  # else it has not seen all garbage
            _of(self._oldest, table).set(run.oldest_garbage_s or 0)
        if run.dry_run:
            return
        for reason, total in run.deleted.items():
            _of(self._files, table, reason.name.lower()).inc(total.objects)
            _of(self._bytes, table, reason.name.lower()).inc(total.size)
        _of(self._aborted, table).inc(run.aborted)
        _of(self._checkpoints, table).inc(run.checkpoint is not None)

    def forget(self, table: str) -> None:
        """Removes the metrics of a table that is gone: its ages would raise alarms for ever."""
        for metric in (*self._plain, self._files, self._bytes, self._oldest, self._success, *self._behind.values()):
            metric.remove_by_labels({"table": label(table)})
