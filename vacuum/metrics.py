"""What Prometheus is told, in a registry of its own. What happened is `schedule`'s to say."""

from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary

from vacuum.compaction import CompactionSummary
from vacuum.report import RunSummary

_PREFIX = "dbio_vacuum_"


class Metrics:
    """Of every table by its URL; a pattern is no table."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._runs = self._counter("runs", "Vacuums that ended, well or not")
        self._failures = self._counter("failures", "Vacuums that failed, as a whole or for some file")
        self._skipped = self._counter("skipped_runs", "Vacuums that were skipped: the one before was not done")
        self._files = self._counter("deleted_files", "Files deleted, markers included", "reason")
        self._bytes = self._counter("deleted_bytes", "Bytes deleted", "reason")
        self._aborted = self._counter("aborted_transactions", "Pending transactions decided against their writers")
        self._checkpoints = self._counter("checkpoints", "Checkpoints written")
        self._compacted_files = self._counter("compacted_files", "Small files that compactions put together")
        self._compacted_bytes = self._counter("compacted_bytes", "Their bytes")
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
            metric.labels(table)

    def expect_pattern(self, pattern: str) -> None:
        self._patterns.labels(pattern)

    def pattern_failed(self, pattern: str) -> None:
        self._patterns.labels(pattern).inc()

    def skipped(self, table: str) -> None:
        self._skipped.labels(table).inc()

    def ended(self, table: str, duration_s: float, *, failed: bool) -> None:
        self._runs.labels(table).inc()
        self._failures.labels(table).inc(failed)
        self._seconds.labels(table).observe(duration_s)

    def succeeded(self, table: str, at: datetime) -> None:
        self._success.labels(table).set(at.timestamp())

    def compacted(self, table: str, done: CompactionSummary | None) -> None:
        """None is one that failed. A dry run has compacted nothing."""
        if done is None:
            self._compaction_failures.labels(table).inc()
        elif not done.dry_run:
            self._compacted_files.labels(table).inc(done.files)
            self._compacted_bytes.labels(table).inc(done.size)

    def reported(self, table: str, run: RunSummary) -> None:
        """A dry run has deleted nothing."""
        for lag in run.health.streams if run.health else ():
            for what, count in (("commits", lag.commits), ("files", lag.files), ("bytes", lag.size_bytes)):
                self._behind[what].labels(table, lag.query).set(count)
        if not run.stopped:  # else it has not seen all
            self._oldest.labels(table).set(run.oldest_garbage_s or 0)
        if run.dry_run:
            return
        for reason, total in run.deleted.items():
            self._files.labels(table, reason.name.lower()).inc(total.objects)
            self._bytes.labels(table, reason.name.lower()).inc(total.size)
        self._aborted.labels(table).inc(run.aborted)
        self._checkpoints.labels(table).inc(run.checkpoint is not None)

    def forget(self, table: str) -> None:
        """The table is gone: what it says of age and success would raise alarms for ever."""
        for metric in (*self._plain, self._files, self._bytes, self._oldest, self._success, *self._behind.values()):
            metric.remove_by_labels({"table": table})
