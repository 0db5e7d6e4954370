"""A table that is as the last vacuum left it, and in which nothing is due, costs the service one listing of its log."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
from structlog.testing import capture_logs

from dbio_commit import StoreError, Table
from dbio_commit.maintenance.vacuum.report import RunSummary
from dbio_commit.protocol import names
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import once
from tests.writers import stage, write
from vacuum import worker as worker_module
from vacuum.compaction import CompactionSummary
from vacuum.config import Config
from vacuum.process import Answer, Job, RunFailed, Task
from vacuum.schedule import Service
from vacuum.worker import do

DAY = timedelta(days=1)


class Lake:
    """Tables in memory, and services that vacuum them in this process: one table at a time."""

    def __init__(self, state_file: Path) -> None:
        self.clock = ManualClock()
        self.state_file = state_file
        self.stores: dict[str, MemoryStore] = {}
        self.calls = Counter[str]()
        self.tasks = Counter[Task]()
        self.compacted = CompactionSummary()

    def table(self, url: str, options: object = None) -> Table:
        return Table.over(self.stores[url], self.clock)

    def add(self, *urls: str) -> None:
        for url in urls:
            self.stores[url] = MemoryStore(self.clock, url=url)
            self.stores[url].before = lambda operation, path, url=url: self.calls.update([url])  # type: ignore[misc]
            write(self.table(url))

    def service(self, **settings: object) -> Service:
        tables = [{"path": url} for url in self.stores]
        config = Config.model_validate(
            {"concurrency": 1, "state_file": str(self.state_file), "tables": tables, **settings}
        )
        return Service(
            config,
            vacuum=lambda job, stop: self._ask(Task.VACUUM, job).summary or RunSummary(),
            compact=lambda job, stop: self.compacted,
            look=lambda job, stop: bool(self._ask(Task.LOOK, job).is_idle),
            clock=self.clock,
        )

    def _ask(self, task: Task, job: Job) -> Answer:
        self.tasks[task] += 1
        answer = do(task, job, Event().is_set)
        if answer.error:
            raise RunFailed(answer.error, answer.message, answer.traceback)
        return answer

    def round(self, service: Service) -> Counter[Task]:
        """What the runs of all tables did."""
        self.calls.clear()
        self.tasks.clear()
        begun = Event()
        service._pool.submit(begun.wait)  # else a first run might end as the last one, and write the state file
        for entry in service.entries:
            service.tick(entry)
        begun.set()
        service._pool.submit(lambda: None).result()
        return Counter(self.tasks)


WHOLE, LEFT_OUT = Counter({Task.VACUUM: 1}), Counter({Task.LOOK: 1})
LOOKED_IN_VAIN = WHOLE + LEFT_OUT


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """With a table "/t", three days old, which a service has vacuumed and found in order."""
    found = Lake(tmp_path / "state.json")
    monkeypatch.setattr(worker_module, "Table", found.table)
    found.add("/t")
    found.clock.advance(3 * DAY)
    return found


def value(service: Service, name: str) -> float | None:
    return service.metrics.registry.get_sample_value(f"dbio_vacuum_{name}", {"table": "/t"})


def test_200_idle_tables_cost_a_request_each_in_the_second_round(lake: Lake) -> None:
    lake.add(*(f"/t{number}" for number in range(199)))
    lake.clock.advance(3 * DAY)
    service = lake.service()
    assert lake.round(service) == {Task.VACUUM: 200}
    assert len(set(lake.calls.values())) == 1
    lake.clock.advance(DAY)
    assert lake.round(service) == {Task.LOOK: 200}
    assert set(lake.calls.values()) == {1}
    assert all("nothing due before" in it for it in service.results().values())
    again = lake.service()  # another process, which has only the state file
    lake.clock.advance(DAY)
    assert lake.round(again) == {Task.LOOK: 200}
    assert lake.state_file.stat().st_size < 200 * 4000


def test_an_idle_table_is_shown_as_well_with_the_time_of_the_next_whole_vacuum(lake: Lake) -> None:
    began, _ = lake.clock.now(), lake.table("/t").begin()
    lake.clock.advance(timedelta(hours=1))
    first = lake.service()
    lake.round(first)
    gauges = [value(first, it) for it in ("live_files", "live_bytes", "garbage_files")]
    for service in (first, lake.service()):
        lake.clock.advance(timedelta(hours=10))
        with capture_logs() as logs:
            assert lake.round(service) == LEFT_OUT
        facts = service.health()[1]["tables"]["/t"]
        assert (facts["outcome"], facts["last_success"]) == ("ok", lake.clock.now())
        assert facts["next_due"] == began + timedelta(hours=48)
        assert [it["event"] for it in logs] == ["nothing due"]
        assert logs[0]["next_due"] == facts["next_due"].isoformat().replace("+00:00", "Z")
        assert "nothing due before" in str(service.report("/t"))
        assert "nothing due before" in str(service.results()["/t"])
        assert (value(service, "idle_runs_total"), value(service, "last_run_failed")) == (1, 0)
        assert value(service, "last_success_timestamp_seconds") == lake.clock.now().timestamp()
        assert [value(service, it) for it in ("live_files", "live_bytes", "garbage_files")] == gauges
        assert value(service, "pending_transactions") == 1
    assert value(service, "pending_oldest_seconds") == timedelta(hours=21).total_seconds()
    assert value(service, "runs_total") == 1


def commit(lake: Lake) -> None:
    write(lake.table("/t"))


def make_anew(lake: Lake) -> None:
    lake.stores["/t"].objects.clear()
    write(lake.table("/t"))


def lose(lake: Lake) -> None:
    lake.state_file.unlink()


def damage(lake: Lake) -> None:
    lake.state_file.write_text('["/t", {"last_look": 5}]\n[')


def wait_a_week(lake: Lake) -> None:
    lake.clock.advance(7 * DAY)


def set_back(lake: Lake) -> None:
    lake.clock.jump(-DAY)


@pytest.mark.parametrize(
    ("change", "does"),
    [
        (commit, LOOKED_IN_VAIN),
        (lambda lake: lake.table("/t").begin(), LOOKED_IN_VAIN),
        (lambda lake: lake.table("/t").checkpoint(), LOOKED_IN_VAIN),
        (make_anew, LOOKED_IN_VAIN),
        (lambda lake: lake.stores["/t"].put_if_absent(names.purge(7), b"x"), LOOKED_IN_VAIN),
        (wait_a_week, LOOKED_IN_VAIN),
        (set_back, LOOKED_IN_VAIN),
        (lose, WHOLE),
        (damage, WHOLE),
    ],
)
def test_a_table_that_may_have_changed_gets_a_whole_vacuum(
    lake: Lake, change: Callable[[Lake], object], does: Counter[Task]
) -> None:
    assert lake.round(lake.service()) == WHOLE
    assert lake.round(lake.service()) == LEFT_OUT
    change(lake)
    service = lake.service()
    assert lake.round(service)[Task.VACUUM] == 1
    assert lake.tasks == does


@pytest.mark.parametrize(
    "settings",
    [{"retention_hours": 24}, {"dry_run": True}, {"checkpoint_after": 5}, {"history_days": 60}, {"compact": True}],
    ids=str,
)
def test_so_does_one_that_is_vacuumed_with_other_options(lake: Lake, settings: dict[str, object]) -> None:
    lake.round(lake.service())
    assert lake.round(lake.service(**settings)) == LOOKED_IN_VAIN
    assert lake.round(lake.service(**settings)) == LEFT_OUT


def test_other_bounds_of_the_process_change_nothing(lake: Lake) -> None:
    lake.round(lake.service())
    assert lake.round(lake.service(memory_mb=512, deadline_s=60, cron="1 1 * * *")) == LEFT_OUT


def test_what_becomes_due_is_deleted_in_the_round_after(lake: Lake) -> None:
    table = lake.table("/t")
    (removed,) = (it.path for it in table.snapshot().files)
    overwrite = table.begin("overwrite")
    stage(table, overwrite)
    overwrite.commit()
    lake.clock.advance(timedelta(hours=1))
    service = lake.service()
    assert lake.round(service) == WHOLE
    lake.clock.advance(timedelta(hours=46))
    assert lake.round(service) == LEFT_OUT
    assert value(service, "garbage_files") == 1
    assert value(service, "oldest_garbage_seconds") == timedelta(hours=47).total_seconds()
    lake.clock.advance(timedelta(hours=1, seconds=1))
    lake.round(service)
    assert lake.tasks == LOOKED_IN_VAIN
    assert removed not in lake.stores["/t"].objects
    assert value(service, "garbage_files") == 0
    assert lake.round(service) == WHOLE  # it has deleted something, so another one looks whether that was all
    assert lake.round(service) == LEFT_OUT


def test_a_file_that_no_transaction_wrote_is_found_within_a_week(lake: Lake) -> None:
    service = lake.service(tables=[{"path": "/t", "untracked": True}])
    lake.round(service)
    lake.stores["/t"].put_if_absent("stray.parquet", b"")
    found = Counter[Task]()
    for _ in range(8):
        lake.clock.advance(DAY)
        found += lake.round(service)
    assert found == {Task.LOOK: 7, Task.VACUUM: 2}
    assert "stray.parquet" not in lake.stores["/t"].objects


def test_a_look_that_fails_is_a_failed_run_and_the_next_one_is_whole(lake: Lake) -> None:
    service = lake.service()
    lake.round(service)

    def refuse() -> None:
        raise StoreError("the store does not answer")

    lake.stores["/t"].before = once("list_log", "", refuse)
    assert lake.round(service) == LEFT_OUT
    assert "the store does not answer" in service.results()["/t"]
    assert value(service, "last_run_failed") == 1
    assert lake.round(service) == WHOLE
    assert value(service, "last_run_failed") == 0


def test_a_vacuum_that_follows_a_compaction_of_files_is_followed_by_a_whole_one(lake: Lake) -> None:
    service = lake.service(compact=True)
    lake.compacted = CompactionSummary(files=2, new_files=1)
    assert lake.round(service) == WHOLE
    assert lake.round(service) == WHOLE
    lake.compacted = CompactionSummary(left_files=2)
    assert lake.round(service) == WHOLE
    lake.compacted = CompactionSummary()
    assert lake.round(service) == WHOLE
    assert lake.round(service) == LEFT_OUT


def test_a_table_that_streams_read_gets_a_whole_vacuum_each_time(lake: Lake) -> None:
    """They get behind, or catch up, while the table stays as it is."""
    service = lake.service(tables=[{"path": "/t", "streams": ["/checkpoint"]}])
    for _ in range(2):
        assert lake.round(service) == WHOLE


def test_a_state_file_that_cannot_be_used_is_said_in_the_log(lake: Lake) -> None:
    damage(lake)
    with capture_logs() as logs:
        service = lake.service()
        lake.state_file.unlink()
        lake.state_file.mkdir()
        lake.round(service)
    said = {it["event"]: it["log_level"] for it in logs if it["log_level"] == "warning"}
    assert said == {"state file not read": "warning", "state file not written": "warning"}
    assert [path.name for path in lake.state_file.parent.iterdir()] == [lake.state_file.name]


def tables_in(state_file: Path) -> set[str]:
    return {json.loads(line)[0] for line in state_file.read_text().splitlines()}


def test_the_state_file_is_written_once_a_minute_at_most_and_at_the_end(lake: Lake) -> None:
    service = lake.service()
    lake.round(service)
    lake.state_file.unlink()
    lake.clock.advance(timedelta(seconds=59))
    lake.round(service)
    assert not lake.state_file.exists()
    lake.clock.advance(timedelta(seconds=1))
    lake.round(service)
    assert tables_in(lake.state_file) == {"/t"}
    lake.state_file.unlink()
    service.finish()
    assert tables_in(lake.state_file) == {"/t"}


def test_the_state_file_forgets_tables_that_are_gone(lake: Lake) -> None:
    lake.add("/gone")
    lake.clock.advance(3 * DAY)
    lake.round(lake.service())
    del lake.stores["/gone"]
    lake.round(lake.service())
    assert tables_in(lake.state_file) == {"/t", "/gone"}  # its pattern may not have been listed yet
    lake.clock.advance(8 * DAY)
    lake.round(lake.service())
    assert tables_in(lake.state_file) == {"/t"}
