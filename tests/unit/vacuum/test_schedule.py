"""The service on vacuums that the tests hold in their hands: what runs, what is skipped, what is said and counted."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from apscheduler.events import (  # type: ignore[import-untyped]
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_SCHEDULER_STARTED,
    JobSubmissionEvent,
)
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from dbio_commit import AccessDeniedError, StoreError, Table
from dbio_commit.maintenance.compact.options import CompactOptions
from dbio_commit.maintenance.report.health import look
from dbio_commit.maintenance.vacuum.report import RunSummary, in_short
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.scope import Scope
from dbio_commit.store.local import LocalStore
from dbio_commit.testing import ManualClock
from tests.builders import World, data, marker
from tests.reports import Page
from vacuum import Control, Deletion, Failure, Reason, VacuumOptions, VacuumReport
from vacuum.compaction import CompactionSummary, Left
from vacuum.config import Config
from vacuum.events import MOST_CAUSE
from vacuum.listener import listening
from vacuum.process import Job, RunFailed
from vacuum.schedule import Service

WAIT_S = 60
"""How long a test waits for what must happen; nothing is slow on purpose."""


class FakeVacuum:
    """Says what it was called with, and does for each table what the test wants: by default nothing, and well."""

    def __init__(self) -> None:
        self.started: SimpleQueue[str] = SimpleQueue()
        self.calls: dict[str, tuple[VacuumOptions, bool]] = {}
        self.jobs: dict[str, Job] = {}
        self.does: dict[str, Callable[[Control], VacuumReport | RunSummary | None]] = {}
        self.at_once = self.peak = 0
        self._lock = Lock()

    def __call__(self, job: Job, /, *, stop: Event) -> RunSummary:
        with self._lock:
            self.at_once += 1
            self.peak = max(self.peak, self.at_once)
            self.calls[job.url] = job.options, job.dry_run
            self.jobs[job.url] = job
        self.started.put(job.url)
        try:
            does = self.does.get(job.url, _nothing)
            done = does(Control(stop=stop.is_set)) or report(job.url, dry_run=job.dry_run)
            return done if isinstance(done, RunSummary) else RunSummary.of(done)
        finally:
            with self._lock:
                self.at_once -= 1

    def next_started(self) -> str:
        return self.started.get(timeout=WAIT_S)


class FakeCompaction:
    """The same for compactions."""

    def __init__(self, *does: CompactionSummary | Exception) -> None:
        self.jobs: list[Job] = []
        self._does = list(does)

    def __call__(self, job: Job, /, *, stop: Event) -> CompactionSummary:
        self.jobs.append(job)
        does = self._does.pop(0) if self._does else CompactionSummary(dry_run=job.dry_run)
        if isinstance(does, Exception):
            raise does
        return does


def _nothing(control: Control) -> None:
    pass


def report(url: str = "/t", **facts: Any) -> VacuumReport:
    return VacuumReport(**{"url": url, "scope": Scope.TABLE, "dry_run": False, "retention_hours": 48.0, **facts})


def until(event: Event) -> Callable[[Control], None]:
    """A vacuum that goes on until the test lets it end."""

    def wait(control: Control) -> None:
        assert event.wait(WAIT_S)

    return wait


def config(*paths: str | Path, **settings: Any) -> Config:
    return Config.model_validate({"tables": [{"path": str(path)} for path in paths], **settings})


def value(service: Service, name: str, table: str, **labels: str) -> float | None:
    return service.metrics.registry.get_sample_value(f"dbio_vacuum_{name}", {"table": table, **labels})


@contextmanager
def serving(service: Service) -> Iterator[None]:
    """The service in a thread, until the end of the block; all its runs have ended then."""
    thread = Thread(target=service.serve)
    began = Event()
    service.scheduler.add_listener(lambda event: began.set(), EVENT_SCHEDULER_STARTED)
    thread.start()
    assert began.wait(WAIT_S)
    try:
        yield
    finally:
        service.stop.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def fire(service: Service, name: str, *, time: datetime | None = None) -> None:
    """Lets the entry's time come now, or have come; returns when its tick is over. Its runs go on."""
    over = Event()

    def listener(event: Any) -> None:
        if event.job_id == name:
            over.set()

    service.scheduler.add_listener(listener, EVENT_JOB_EXECUTED)
    service.scheduler.modify_job(name, next_run_time=time or datetime.now(UTC))
    assert over.wait(WAIT_S)
    service.scheduler.remove_listener(listener)


Logs = list[Any]


@pytest.fixture
def logs() -> Iterator[Logs]:
    with capture_logs() as found:
        yield found


def said(logs: Logs, event: str) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == event]


# --- runs ---------------------------------------------------------------------------------------------------------


def test_a_table_is_vacuumed_as_its_entry_says(logs: Logs) -> None:
    fake = FakeVacuum()
    tables = [{"path": "/data/a", "retention_hours": 5.0, "untracked": True}, {"path": "/data/b", "dry_run": True}]
    assert Service(Config.model_validate({"tables": tables, "history_days": 40.0}), vacuum=fake).once()
    assert fake.calls == {
        "/data/a": (VacuumOptions(retention_hours=5, untracked=True, history_days=40), False),
        "/data/b": (VacuumOptions(history_days=40), True),
    }
    assert {line["table"] for line in said(logs, "run finished")} == {"/data/a", "/data/b"}


def test_a_run_begins_when_its_time_comes_and_says_how_it_ended(logs: Logs) -> None:
    fake = FakeVacuum()
    deletions = [
        Deletion(path="a", size=10, age=timedelta(3), reason=Reason.REMOVED),
        Deletion(path="b", size=5, age=timedelta(3), reason=Reason.REMOVED),
        Deletion(path="_started_1", size=0, age=timedelta(3), reason=Reason.START_MARKER),
    ]
    fake.does["/data/a"] = lambda control: report(deleted=deletions, aborted=["1"], checkpoint="_checkpoint_3")
    service = Service(config("/data/a"), vacuum=fake)
    with serving(service):
        fire(service, "/data/a")
        assert fake.next_started() == "/data/a"
    (line,) = said(logs, "run finished")
    assert line["seconds"] >= 0
    assert {key: line[key] for key in ("table", "outcome", "files", "bytes", "reasons", "failed", "aborted")} == {
        "table": "/data/a",
        "outcome": "ok",
        "files": 3,
        "bytes": 15,
        "reasons": {"removed": 2, "start_marker": 1},
        "failed": 0,
        "aborted": 1,
    }


def test_a_run_that_overlaps_the_one_before_is_skipped_and_said_and_counted(logs: Logs) -> None:
    fake, go = FakeVacuum(), Event()
    fake.does["/data/a"] = until(go)
    service = Service(config("/data/a", "/data/b"), vacuum=fake)
    with serving(service):
        fire(service, "/data/a")
        assert fake.next_started() == "/data/a"
        fire(service, "/data/a")
        assert value(service, "skipped_runs_total", "/data/a") == 1
        assert [line["table"] for line in said(logs, "run skipped")] == ["/data/a"]
        fire(service, "/data/b")
        assert fake.next_started() == "/data/b"  # the other table has nothing to do with it
        go.set()
    assert value(service, "runs_total", "/data/a") == 1
    assert value(service, "skipped_runs_total", "/data/b") == 0


def test_a_table_can_run_again_after_a_run_that_failed(logs: Logs) -> None:
    fake = FakeVacuum()
    fake.does["/data/a"] = fail(StoreError("the store is away"))
    service = Service(config("/data/a"), vacuum=fake)
    for _ in range(2):
        service.tick(service.entries[0])
        assert fake.next_started() == "/data/a"
        wait_until(lambda: not service.health()[1]["tables"]["/data/a"]["busy"])
    service.finish()
    assert value(service, "failures_total", "/data/a") == 2


def test_no_more_runs_at_once_than_allowed() -> None:
    fake, paths = FakeVacuum(), [f"/data/{n}" for n in range(5)]
    gates = {path: Event() for path in paths}
    fake.does |= {path: until(gate) for path, gate in gates.items()}
    service = Service(config(*paths, concurrency=2), vacuum=fake)
    for entry in service.entries:
        service.tick(entry)
    running = {fake.next_started(), fake.next_started()}
    for _ in range(3):
        assert fake.at_once == 2
        gates[running.pop()].set()
        running.add(fake.next_started())
    for gate in gates.values():
        gate.set()
    service.finish()
    assert len(fake.calls) == 5
    assert fake.peak == 2


def fail(error: Exception) -> Callable[[Control], None]:
    def function(control: Control) -> None:
        raise error

    return function


@pytest.mark.parametrize("error", [StoreError("the store is away"), ZeroDivisionError("a bug")])
def test_a_table_that_fails_stops_no_other(logs: Logs, error: Exception) -> None:
    fake = FakeVacuum()
    fake.does["/data/a"] = fail(error)
    service = Service(config("/data/a", "/data/b", concurrency=1), vacuum=fake)
    assert not service.once()
    assert set(fake.calls) == {"/data/a", "/data/b"}
    (line,) = said(logs, "run failed")
    assert (line["table"], line["error"], line["message"]) == ("/data/a", type(error).__name__, str(error))
    assert line["exc_info"] is isinstance(error, ZeroDivisionError)  # where a bug came from is worth knowing
    assert [value(service, "failures_total", f"/data/{name}") for name in "ab"] == [1, 0]
    assert [value(service, "runs_total", f"/data/{name}") for name in "ab"] == [1, 1]
    assert value(service, "last_success_timestamp_seconds", "/data/a") is None


def test_each_file_that_was_not_deleted_is_said_and_makes_the_run_a_failure(logs: Logs) -> None:
    fake = FakeVacuum()
    fake.does["/data/a"] = lambda control: report(failed=[Failure(path=f"f{n}", message="no access") for n in (1, 2)])
    service = Service(config("/data/a"), vacuum=fake)
    assert not service.once()
    assert [(line["table"], line["path"], line["message"]) for line in said(logs, "not deleted")] == [
        ("/data/a", "f1", "no access"),
        ("/data/a", "f2", "no access"),
    ]
    assert said(logs, "run finished")[0]["outcome"] == "failed"
    assert value(service, "failures_total", "/data/a") == 1


def test_jitter_puts_a_run_off_by_less_than_it_says() -> None:
    (entry,) = config("/data/a", cron="0 3 * * *", jitter_s=600).entries
    trigger, now = entry.trigger(), datetime(2026, 11, 20, tzinfo=UTC)
    late = {trigger.get_next_fire_time(None, now) - datetime(2026, 11, 20, 3, tzinfo=UTC) for _ in range(50)}
    assert all(timedelta(0) <= it <= timedelta(minutes=10) for it in late)
    assert len(late) > 1


def test_runs_whose_times_were_missed_become_one_that_begins_late(logs: Logs) -> None:
    fake = FakeVacuum()
    service = Service(config("/data/a", cron="0 * 29 2 *"), vacuum=fake)  # the next is years away
    with serving(service):
        fire(service, "/data/a", time=datetime(2024, 2, 29, tzinfo=UTC))
        assert fake.next_started() == "/data/a"
    assert value(service, "runs_total", "/data/a") == 1
    assert value(service, "skipped_runs_total", "/data/a") == 0
    assert [line["table"] for line in said(logs, "run late")] == ["/data/a"]


def test_a_run_that_was_put_to_an_end_is_a_failure_with_its_reason(logs: Logs) -> None:
    fake = FakeVacuum()
    fake.does["/data/a"] = fail(RunFailed("TimeLimit", "was not done after 7 s"))
    fake.does["/data/b"] = fail(RunFailed("ValueError", "a bug", "Traceback …"))
    service = Service(config("/data/a", "/data/b"), vacuum=fake)
    assert not service.once()
    ended, bug = sorted(said(logs, "run failed"), key=lambda line: str(line["table"]))
    assert (ended["error"], ended["message"]) == ("TimeLimit", "was not done after 7 s")
    assert "exception" not in ended
    assert (bug["error"], bug["exception"]) == ("ValueError", "Traceback …")
    assert service.results()["/data/a"] == "failed: TimeLimit: was not done after 7 s"


def test_the_bounds_of_a_run_are_those_of_its_entry_else_those_for_all() -> None:
    fake = FakeVacuum()
    tables = [{"path": "/data/a"}, {"path": "/data/b", "memory_mb": 4096, "deadline_s": 60}]
    assert Service(Config.model_validate({"tables": tables, "deadline_s": 600}), vacuum=fake).once()
    bounds = {url: (job.memory_mb, job.deadline_s) for url, job in fake.jobs.items()}
    assert bounds == {"/data/a": (2048, 600), "/data/b": (4096, 60)}


def test_what_a_run_warns_of_is_said(logs: Logs) -> None:
    fake = FakeVacuum()
    fake.does["/data/a"] = lambda control: report(warnings=["somebody was here"])
    assert Service(config("/data/a"), vacuum=fake).once()
    (line,) = said(logs, "run warning")
    assert (line["table"], line["message"]) == ("/data/a", "somebody was here")


# --- compaction ---------------------------------------------------------------------------------------------------


SOME = CompactionSummary(files=6, size=6000, new_files=2, new_size=5000, commits=1)


def test_a_table_is_compacted_as_its_entry_says_before_its_vacuum_and_no_other_is(logs: Logs) -> None:
    vacuum, compaction = FakeVacuum(), FakeCompaction(SOME)
    order: list[str] = []
    vacuum.does = {"/a": lambda control: order.append(f"vacuum after {len(compaction.jobs)}")}
    tables = [{"path": "/a", "compact": {"sort_by": "id", "min_files": 5}}, {"path": "/b"}]
    service = Service(Config.model_validate({"tables": tables}), vacuum=vacuum, compact=compaction)
    assert service.once()
    assert [(job.url, job.compact) for job in compaction.jobs] == [("/a", CompactOptions(sort_by=("id",), min_files=5))]
    assert order == ["vacuum after 1"]
    (line,) = said(logs, "compaction finished")
    told = {name: line[name] for name in ("table", "outcome", "files", "bytes", "new_files", "new_bytes", "commits")}
    assert told == {"table": "/a", "outcome": "ok", "files": 6, "bytes": 6000, "new_files": 2, "new_bytes": 5000,
                    "commits": 1}  # fmt: skip
    assert service.results() == {
        "/a": "6 files, 6.0 kB, compacted into 2 files; 0 objects deleted, 0 bytes",
        "/b": "0 objects deleted, 0 bytes",
    }
    assert [value(service, "compacted_files_total", it) for it in ("/a", "/b")] == [6, 0]
    assert value(service, "compacted_bytes_total", "/a") == 6000
    tables_now = service.health()[1]["tables"]
    assert tables_now["/a"]["compaction"] == "ok"
    assert "compaction" not in tables_now["/b"]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (StoreError("refused"), "StoreError"),
        (ZeroDivisionError("a bug"), "ZeroDivisionError"),
        (RunFailed("MemoryLimit", "too much"), "MemoryLimit"),
    ],
)
def test_a_compaction_that_fails_is_told_and_the_table_is_vacuumed_all_the_same(
    logs: Logs, error: Exception, name: str
) -> None:
    vacuum, compaction = FakeVacuum(), FakeCompaction(error)
    service = Service(config("/a", compact=True), vacuum=vacuum, compact=compaction)
    assert not service.once()
    assert vacuum.calls.keys() == {"/a"}
    assert [(line["table"], line["error"], line["log_level"]) for line in said(logs, "compaction failed")] == [
        ("/a", name, "error")
    ]
    assert [line["outcome"] for line in said(logs, "run finished")] == ["ok"]
    assert not said(logs, "run failed")
    counted = [value(service, f"{it}_total", "/a") for it in ("compaction_failures", "failures", "runs")]
    assert counted == [1, 0, 1]
    assert service.results()["/a"].startswith(f"compaction failed: {name}: {error}; 0 objects deleted")
    facts = service.health()[1]["tables"]["/a"]
    assert (facts["outcome"], facts["compaction"], facts["overdue"]) == ("ok", "failed", False)
    page = service.report("/a")
    assert page is not None
    assert "compaction failed" in page
    assert f"Compaction: {name}" in page
    assert (str(error) in page) is (name != "ZeroDivisionError"), "the text of a bug may come from anywhere"


def test_the_next_compaction_that_succeeds_ends_the_alarm() -> None:
    compaction = FakeCompaction(StoreError("refused"))
    service = Service(config("/a", compact=True), vacuum=FakeVacuum(), compact=compaction)
    with serving(service):
        for _ in range(2):
            fire(service, "/a")
            while service.health()[1]["tables"]["/a"]["busy"]:
                Event().wait(0.01)
        assert len(compaction.jobs) == 2
        assert service.health()[1]["tables"]["/a"]["compaction"] == "ok"
    page = service.report("/a")
    assert page is not None
    assert "compaction failed" not in page


def test_a_dry_run_compacts_nothing_and_counts_nothing() -> None:
    compaction = FakeCompaction(replace(SOME, dry_run=True))
    service = Service(config("/a", compact=True, dry_run=True), vacuum=FakeVacuum(), compact=compaction)
    assert service.once()
    assert compaction.jobs[0].dry_run
    assert value(service, "compacted_files_total", "/a") == 0
    assert service.results()["/a"].startswith("6 files, 6.0 kB, would be compacted into 2 files; dry run")


def test_what_a_compaction_left_is_said_and_is_no_failure(logs: Logs) -> None:
    left = Left(first="day=1/part-0.parquet", files=3, reason="cannot be read")
    compaction = FakeCompaction(replace(SOME, left=(left,), left_files=3))
    service = Service(config("/a", compact=True), vacuum=FakeVacuum(), compact=compaction)
    assert service.once()
    (line,) = said(logs, "not compacted")
    assert (line["table"], line["path"], line["files"]) == ("/a", "day=1/part-0.parquet", 3)
    assert line["message"] == "cannot be read"
    assert said(logs, "compaction finished")[0]["left"] == 3


def test_the_results_are_a_line_for_each_table() -> None:
    fake = FakeVacuum()
    deletion = Deletion(path="a", size=1234, age=timedelta(3), reason=Reason.REMOVED)
    fake.does["/data/a"] = lambda control: report(deleted=[deletion], aborted=["1"], checkpoint="_checkpoint_3")
    fake.does["/data/b"] = lambda control: report(dry_run=True, deleted=[deletion] * 2, kept=[deletion])
    fake.does["/data/c"] = fail(StoreError("the store is away"))
    service = Service(config("/data/a", "/data/b", "/data/c", "/data/d"), vacuum=fake)
    service.once()
    assert service.results() == {
        "/data/a": "1 object deleted, 1,234 bytes; 1 transaction aborted; _checkpoint_3 written",
        "/data/b": "dry run, nothing was changed: 2 objects would be deleted, 2,468 bytes; 1 kept",
        "/data/c": "failed: StoreError: the store is away",
        "/data/d": "0 objects deleted, 0 bytes",
    }


# --- the end ------------------------------------------------------------------------------------------------------


def stopped_by(control: Control) -> VacuumReport:
    """A vacuum that works until it is told to stop."""
    while not control.stop():
        Event().wait(0.001)
    return report(stopped=True)


def test_stop_ends_what_runs_and_begins_nothing_more_and_says_what_is_left(logs: Logs) -> None:
    fake = FakeVacuum()
    fake.does["/data/a"] = stopped_by
    service = Service(config("/data/a", "/data/b", concurrency=1), vacuum=fake)
    results: list[bool] = []
    thread = Thread(target=lambda: results.append(service.once()))
    thread.start()
    assert fake.next_started() == "/data/a"
    service.stop.set()
    thread.join(WAIT_S)
    assert results == [True]
    assert set(fake.calls) == {"/data/a"}
    assert said(logs, "run finished")[0]["outcome"] == "stopped"
    assert said(logs, "stopped") == [{"event": "stopped", "log_level": "info", "unfinished": ["/data/a", "/data/b"]}]
    assert value(service, "failures_total", "/data/a") == 0
    assert value(service, "last_success_timestamp_seconds", "/data/a") is None
    service.tick(service.entries[1])
    assert set(fake.calls) == {"/data/a"}


# --- patterns -----------------------------------------------------------------------------------------------------


def make_table(*places: Path, marker: str = "_dbio_table") -> None:
    for place in places:
        place.mkdir(parents=True)
        (place / marker).touch()


def vacuumed(fake: FakeVacuum) -> set[str]:
    found, fake.calls = set(fake.calls), {}
    return found


def run_once(fake: FakeVacuum, *paths: str | Path) -> set[str]:
    Service(config(*paths), vacuum=fake).once()
    return vacuumed(fake)


def test_a_pattern_means_the_directories_that_are_tables(tmp_path: Path) -> None:
    make_table(tmp_path / "ours")
    make_table(tmp_path / "theirs", marker="_started_3764748902973012795")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/part-0.parquet").touch()
    (tmp_path / "_dbio_table").touch()
    assert run_once(FakeVacuum(), tmp_path / "*") == {f"{tmp_path}/ours", f"{tmp_path}/theirs"}


def test_to_find_a_table_its_log_is_not_listed_by_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may have put millions of objects there."""
    make_table(tmp_path / "a")

    def list_log(self: LocalStore, *prefixes: str) -> list[Entry]:
        raise AssertionError(f"{self.url} was listed")

    monkeypatch.setattr(LocalStore, "list_log", list_log)
    assert run_once(FakeVacuum(), tmp_path / "*") == {f"{tmp_path}/a"}


def test_a_directory_that_cannot_be_looked_into_fails_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(tmp_path / "a")
    (tmp_path / "secret").mkdir()
    list_log = LocalStore.list_log

    def refuse(self: LocalStore, *prefixes: str) -> list[Entry]:
        if self.url.endswith("secret"):
            raise AccessDeniedError("denied")
        return list_log(self, *prefixes)

    monkeypatch.setattr(LocalStore, "list_log", refuse)
    assert run_once(FakeVacuum(), tmp_path / "*") == {f"{tmp_path}/a", f"{tmp_path}/secret"}


def test_a_star_stands_for_one_level_or_a_part_of_a_name(tmp_path: Path) -> None:
    make_table(tmp_path / "eu/events", tmp_path / "us/events", tmp_path / "us/orders", tmp_path / "us/deep/events")
    make_table(tmp_path / "events")
    assert run_once(FakeVacuum(), tmp_path / "*/events") == {f"{tmp_path}/eu/events", f"{tmp_path}/us/events"}
    assert run_once(FakeVacuum(), tmp_path / "u*/*s") == {f"{tmp_path}/us/events", f"{tmp_path}/us/orders"}


def test_a_star_stands_for_no_partition_and_nothing_hidden_or_linked(tmp_path: Path) -> None:
    make_table(tmp_path / "t/day=1", tmp_path / "t/_temporary", tmp_path / "t/.hidden", tmp_path / "t/real")
    (tmp_path / "t/linked").symlink_to(tmp_path / "t/real")
    assert run_once(FakeVacuum(), tmp_path / "t/*") == {f"{tmp_path}/t/real"}


def test_a_name_with_signs_of_other_patterns_is_taken_as_it_is(tmp_path: Path) -> None:
    make_table(tmp_path / "a[1].b", tmp_path / "a1xb")
    assert run_once(FakeVacuum(), tmp_path / "a[1].*") == {f"{tmp_path}/a[1].b"}


def test_a_table_belongs_to_the_entry_that_names_it_else_to_the_first_that_matches(tmp_path: Path) -> None:
    make_table(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    paths = {"*": 10.0, "a": 20.0, "b*": 30.0}
    tables = [{"path": f"{tmp_path}/{path}", "retention_hours": hours} for path, hours in paths.items()]
    fake = FakeVacuum()
    service = Service(Config.model_validate({"tables": tables}), vacuum=fake)
    service.once()
    hours = {url: options.retention_hours for url, (options, _) in fake.calls.items()}
    assert hours == {f"{tmp_path}/a": 20.0, f"{tmp_path}/b": 10.0, f"{tmp_path}/c": 10.0}
    assert all(value(service, "runs_total", url) == 1 for url in hours)


def test_a_pattern_is_expanded_anew_at_each_run(tmp_path: Path) -> None:
    make_table(tmp_path / "a")
    fake = FakeVacuum()
    service = Service(config(tmp_path / "*"), vacuum=fake)
    with serving(service):
        fire(service, f"{tmp_path}/*")
        assert fake.next_started() == f"{tmp_path}/a"
        make_table(tmp_path / "b")
        (tmp_path / "a/_dbio_table").unlink()
        fire(service, f"{tmp_path}/*")
        assert fake.next_started() == f"{tmp_path}/b"


def test_a_table_that_has_gone_is_forgotten(tmp_path: Path) -> None:
    make_table(tmp_path / "a", tmp_path / "b")
    service = Service(config(tmp_path / "*"), vacuum=FakeVacuum())
    (entry,) = service.entries
    service.tick(entry)
    wait_until(lambda: value(service, "last_success_timestamp_seconds", f"{tmp_path}/a") is not None)
    wait_until(lambda: not service.health()[1]["tables"][f"{tmp_path}/a"]["busy"])
    (tmp_path / "a/_dbio_table").unlink()
    service.tick(entry)
    service.finish()
    assert set(service.health()[1]["tables"]) == {f"{tmp_path}/b"}
    assert set(service.health()[1]["patterns"]) == {f"{tmp_path}/*"}
    assert {labels["table"] for labels in scrape(service) if "table" in labels} == {f"{tmp_path}/b"}


def matched(service: Service, pattern: str) -> float | None:
    return service.metrics.registry.get_sample_value("dbio_vacuum_pattern_tables", {"pattern": pattern})


def test_a_pattern_that_matches_nothing_is_a_failure_a_metric_and_a_row_of_the_page(logs: Logs, tmp_path: Path) -> None:
    pattern = f"{tmp_path}/nowhere/*"
    service = Service(config(pattern, "/data/a"), vacuum=FakeVacuum())
    assert not service.once()
    (line,) = said(logs, "no table matches")
    assert line["pattern"] == pattern
    assert matched(service, pattern) == 0
    assert service.health()[1]["patterns"][pattern]["outcome"] == "failed"
    assert service.results()[pattern] == "no table matches"
    page = Page(service.report() or "")
    assert page.text.index(pattern) < page.text.index("no table matches") < page.text.index("/data/a")
    assert [link["href"] for link in page.all("a")] == ["/report?table=%2Fdata%2Fa"]


def test_a_pattern_whose_tables_all_have_entries_of_their_own_is_no_failure(tmp_path: Path) -> None:
    make_table(tmp_path / "a")
    service = Service(config(tmp_path / "*", tmp_path / "a"), vacuum=FakeVacuum())
    assert service.once()
    assert matched(service, f"{tmp_path}/*") == 1


def test_a_pattern_that_matches_again_has_failed_no_more(tmp_path: Path) -> None:
    service = Service(config(tmp_path / "*"), vacuum=FakeVacuum())
    (entry,) = service.entries
    service.tick(entry)
    assert "no table matches" in (service.report() or "")
    make_table(tmp_path / "a", tmp_path / "b")
    service.tick(entry)
    service.finish()
    assert matched(service, f"{tmp_path}/*") == 2
    assert "no table matches" not in (service.report() or "")
    assert service.health()[1]["patterns"][f"{tmp_path}/*"]["outcome"] == "ok"


def test_a_pattern_that_cannot_be_listed_is_a_failure_and_stops_no_other(logs: Logs, tmp_path: Path) -> None:
    pattern = f"{tmp_path}/{'too-long-a-name' * 20}/*"
    fake = FakeVacuum()
    service = Service(config(pattern, "/data/a"), vacuum=fake)
    assert not service.once()
    assert set(fake.calls) == {"/data/a"}
    assert service.metrics.registry.get_sample_value("dbio_vacuum_pattern_failures_total", {"pattern": pattern}) == 1
    (line,) = said(logs, "run failed")
    assert (line["pattern"], line["error"]) == (pattern, "StoreError")
    assert service.health()[1]["patterns"][pattern]["outcome"] == "failed"


def test_no_log_line_and_no_metric_calls_a_pattern_a_table(logs: Logs, tmp_path: Path) -> None:
    make_table(tmp_path / "a")
    pattern, broken = f"{tmp_path}/*", f"{tmp_path}/{'too-long-a-name' * 20}/*"
    service = Service(config(pattern, broken), vacuum=FakeVacuum())
    with serving(service):
        fire(service, pattern, time=datetime(2026, 1, 1, tzinfo=UTC))  # late, too
        fire(service, broken)
        event = JobSubmissionEvent(EVENT_JOB_MAX_INSTANCES, pattern, "default", [])
        service.scheduler._dispatch_event(event)
        wait_until(lambda: said(logs, "run finished") != [])
        labels = scrape(service)
    service.tick(service.entries[0])
    service.finish()
    assert {line["table"] for line in logs if "table" in line} == {f"{tmp_path}/a"}
    assert {label["table"] for label in labels if "table" in label} == {f"{tmp_path}/a"}
    assert {label["pattern"] for label in labels if "pattern" in label} == {pattern, broken}
    patterns = {"scheduled", "run late", "run failed", "run skipped"}
    assert {line["event"] for line in logs if "pattern" in line} == patterns
    assert said(logs, "stopped")[-1] == {
        "event": "stopped",
        "log_level": "info",
        "unfinished": [],
        "unfinished_patterns": [pattern],
    }


# --- metrics and health -------------------------------------------------------------------------------------------


def scrape(service: Service) -> list[dict[str, str]]:
    """The labels of all samples, as a scrape shows them."""
    with endpoint(service) as url:
        text = urlopen(f"{url}/metrics", timeout=WAIT_S).read().decode()
    return [sample.labels for family in text_string_to_metric_families(text) for sample in family.samples]


def endpoint(service: Service) -> AbstractContextManager[str]:
    return listening("127.0.0.1", 0, service.metrics.registry, service.health, service.report)


def get(url: str, method: str = "GET") -> tuple[int, str]:
    try:
        with urlopen(Request(url, method=method), timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def wait_until(condition: Callable[[], bool]) -> None:
    """For what no event tells of: looks again until it is true."""
    for _ in range(WAIT_S * 100):
        if condition():
            return
        Event().wait(0.01)
    raise AssertionError("it did not come true")


def test_metrics_say_what_was_done() -> None:
    fake, clock = FakeVacuum(), ManualClock()
    fake.does["/data/a"] = lambda control: report(
        deleted=[
            Deletion(path="a", size=10, age=timedelta(3), reason=Reason.REMOVED),
            Deletion(path="b", size=5, age=timedelta(3), reason=Reason.REMOVED),
            Deletion(path="c", size=7, age=timedelta(3), reason=Reason.FAILED_ATTEMPT),
        ],
        kept=[
            Deletion(path="d", size=1, age=timedelta(hours=4), reason=Reason.ABORTED),
            Deletion(path="e", size=1, age=timedelta(days=9), reason=Reason.UNTRACKED),
        ],
        aborted=["1", "2"],
        checkpoint="_checkpoint_3",
    )
    service = Service(config("/data/a"), vacuum=fake, clock=clock)
    assert service.once()
    assert value(service, "deleted_files_total", "/data/a", reason="removed") == 2
    assert value(service, "deleted_bytes_total", "/data/a", reason="removed") == 15
    assert value(service, "deleted_bytes_total", "/data/a", reason="failed_attempt") == 7
    assert value(service, "aborted_transactions_total", "/data/a") == 2
    assert value(service, "checkpoints_total", "/data/a") == 1
    assert value(service, "oldest_garbage_seconds", "/data/a") == 4 * 3600
    assert value(service, "last_success_timestamp_seconds", "/data/a") == clock.now().timestamp()
    assert value(service, "run_seconds_count", "/data/a") == 1
    assert value(service, "runs_total", "/data/a") == 1


def test_a_dry_run_counts_nothing_as_deleted() -> None:
    fake = FakeVacuum()
    deletion = Deletion(path="a", size=10, age=timedelta(3), reason=Reason.REMOVED)
    fake.does["/data/a"] = lambda control: report(dry_run=True, deleted=[deletion], aborted=["1"], checkpoint="c")
    service = Service(config("/data/a", dry_run=True), vacuum=fake)
    assert service.once()
    assert value(service, "deleted_files_total", "/data/a", reason="removed") is None
    assert value(service, "aborted_transactions_total", "/data/a") == 0
    assert value(service, "checkpoints_total", "/data/a") == 0
    assert value(service, "runs_total", "/data/a") == 1


def test_counters_are_there_before_anything_happens() -> None:
    service = Service(config("/data/a"), vacuum=FakeVacuum())
    for name in ("runs", "failures", "skipped_runs", "aborted_transactions", "checkpoints"):
        assert value(service, f"{name}_total", "/data/a") == 0


def test_health_and_metrics_are_served_and_nothing_else() -> None:
    service = Service(config("/data/a"), vacuum=FakeVacuum())
    with serving(service), endpoint(service) as url:
        status, body = get(f"{url}/health")
        assert (status, json.loads(body)["status"]) == (200, "ok")
        status, body = get(f"{url}/metrics")
        assert status == 200
        assert 'dbio_vacuum_runs_total{table="/data/a"} 0.0' in body
        assert get(f"{url}/other") == (404, "not found; see /metrics, /health, or /report\n")
        assert get(f"{url}/health", "POST")[0] == 405
        assert get(f"{url}/report", "POST")[0] == 405
        assert get(f"{url}/metrics", "POST")[0] == 405


def healthy(url: str, *, files: int = 1) -> Callable[[Control], RunSummary]:
    """A vacuum that tells how it left the table."""
    world = World()
    world.put_body("_committed_1", marker([data("1", number) for number in range(files)]))
    vacuumed = in_short(report(url))
    health = look(Table.over(world, world.clock).snapshot(), at=world.clock.now(), vacuumed=vacuumed)
    return lambda control: RunSummary(health=health)


def test_the_endpoint_leads_to_a_page_about_each_table(logs: Logs) -> None:
    name = "/data/<b>&a=é"
    fake = FakeVacuum()
    fake.does[name] = healthy(name, files=3)
    service = Service(config(name, "/data/c"), vacuum=fake)
    with endpoint(service) as url:
        assert '<a href="/report">' in get(f"{url}/")[1]
        assert "not vacuumed yet" in Page(get(f"{url}/report")[1]).text
        assert service.once()
        index = Page(get(f"{url}/report")[1])
        assert index.text.count("Last vacuum: ok, 0 s ago") == 2
        links = [str(link["href"]) for link in index.all("a")]
        assert links == ["/report?table=%2Fdata%2F%3Cb%3E%26a%3D%C3%A9", "/report?table=%2Fdata%2Fc"]
        page = Page(get(f"{url}{links[0]}")[1])
        assert page.text.count("3 files") > 0
        assert [link["href"] for link in page.all("a")] == ["/report"]
        assert name in page.text
        assert get(f"{url}{links[1]}")[0] == 200
        assert get(f"{url}/report?table=/data/other") == (404, "no such table; /report lists all\n")
        assert get(f"{url}/report?table=%FF%00&table=x")[0] == 404
    assert said(logs, "request failed") == []


def test_an_answer_for_browsers_forbids_them_to_load_anything() -> None:
    with endpoint(Service(config("/data/a"), vacuum=FakeVacuum())) as url, urlopen(f"{url}/report") as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"


def test_a_request_for_a_page_reaches_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeVacuum()
    service = Service(config("/data/a", "/data/*"), vacuum=fake)
    monkeypatch.setattr(LocalStore, "list_directory", lambda *arguments: pytest.fail("a request listed something"))
    with endpoint(service) as url:
        for path in ("/", "/report", "/report?table=/data/a", "/report?table=/etc"):
            get(f"{url}{path}")
    assert fake.calls == {}


def test_a_table_that_failed_comes_first_with_the_cause_and_as_it_was_left_before(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SECRET", "open-sesame")
    fake = FakeVacuum()
    fake.does |= {name: healthy(name) for name in ("/data/a", "/data/b")}
    service = Service(config("/data/a", "/data/b"), vacuum=fake)
    with serving(service), endpoint(service) as url:
        fire(service, "/data/b")
        wait_until(lambda: value(service, "runs_total", "/data/b") == 1)
        fake.does["/data/b"] = fail(AccessDeniedError("the store refused open-sesame\nask for <b>rights</b>"))
        fire(service, "/data/b")
        wait_until(lambda: value(service, "failures_total", "/data/b") == 1)
        wait_until(lambda: "vacuum failed" in get(f"{url}/report")[1])
        index, page = (Page(get(f"{url}/report{query}")[1]) for query in ("", "?table=/data/b"))
    cause = "AccessDeniedError: the store refused ***\\nask for <b>rights</b>"
    assert cause in index.text
    assert cause in page.text
    assert index.text.index("/data/b") < index.text.index("/data/a")
    assert "Failing 1" in index.text
    assert "1 file" in page.text
    assert value(service, "last_run_failed", "/data/b") == 1


def test_the_cause_of_a_bug_is_its_name_alone_and_a_long_cause_is_cut(logs: Logs) -> None:
    fake = FakeVacuum()
    fake.does |= {
        "/data/a": fail(ZeroDivisionError("a text from anywhere")),
        "/data/b": fail(RunFailed("ValueError", "another text", "Traceback …")),
        "/data/c": fail(StoreError("x" * 100_000)),
        "/data/d": lambda control: report(failed=[Failure(path="part-1", message="no access")] * 2),
    }
    service = Service(config(*fake.does), vacuum=fake)
    service.once()
    pages = [service.report(name) or "" for name in fake.does]
    assert "ZeroDivisionError" in pages[0]
    assert "ValueError" in pages[1]
    assert not any("text" in Page(page).text for page in pages[:2])
    assert MOST_CAUSE < pages[2].count("x") < 2 * MOST_CAUSE
    assert "2 things failed, first part-1: no access" in pages[3]


def test_the_cause_goes_with_the_next_success(logs: Logs) -> None:
    fake = FakeVacuum()
    fake.does["/data/a"] = fail(StoreError("the store is away"))
    service = Service(config("/data/a"), vacuum=fake)
    service.tick(service.entries[0])
    wait_until(lambda: "the store is away" in (service.report() or ""))
    wait_until(lambda: not service.health()[1]["tables"]["/data/a"]["busy"])
    fake.does.clear()
    service.tick(service.entries[0])
    service.finish()
    assert "the store is away" not in (service.report() or "")
    assert value(service, "last_run_failed", "/data/a") == 0


def test_health_shows_the_last_runs() -> None:
    clock = ManualClock()
    service = Service(config("/data/a"), vacuum=FakeVacuum(), clock=clock)
    assert service.once()
    (state,) = service.health()[1]["tables"].values()
    assert state == {
        "busy": False,
        "last_run": clock.now(),
        "outcome": "ok",
        "last_success": clock.now(),
        "overdue": False,
    }


def test_health_is_bad_where_the_scheduler_does_not_run() -> None:
    service = Service(config("/data/a"), vacuum=FakeVacuum())
    with endpoint(service) as url:
        assert get(f"{url}/health")[0] == 503
        with serving(service):
            assert get(f"{url}/health")[0] == 200
            service.stop.set()
            assert get(f"{url}/health")[0] == 503


def test_health_is_bad_when_a_table_has_not_succeeded_for_three_of_its_periods() -> None:
    fake, clock = FakeVacuum(), ManualClock(datetime(2026, 11, 20, 12, tzinfo=UTC))
    fake.does["/data/a"] = fail(StoreError("the store is away"))
    service = Service(config("/data/a", "/data/b", cron="0 3 * * *", jitter_s=60), vacuum=fake, clock=clock)
    with serving(service):
        clock.advance(timedelta(days=2, hours=15))  # three o'clock has come three times, and jitter may be
        assert service.health()[0]
        fire(service, "/data/a")
        fire(service, "/data/b")
        wait_until(lambda: value(service, "last_success_timestamp_seconds", "/data/b") is not None)
        clock.advance(timedelta(minutes=2))
        well, document = service.health()
        assert not well
        assert document["status"] == "overdue"
        assert {name: state["overdue"] for name, state in document["tables"].items()} == {
            "/data/a": True,
            "/data/b": False,
        }
        wait_until(lambda: not service.health()[1]["tables"]["/data/a"]["busy"])
        fake.does.clear()
        fire(service, "/data/a")
        wait_until(lambda: service.health()[0])
