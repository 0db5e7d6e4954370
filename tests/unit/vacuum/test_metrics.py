"""The metrics about the state of tables: what they say, one series for each table, and that they are forgotten."""

from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dbio_commit import Table
from dbio_commit.feed.streams import StreamLag
from dbio_commit.maintenance.publish import published_at
from dbio_commit.maintenance.report.health import look
from dbio_commit.maintenance.vacuum.report import RunSummary, in_short
from dbio_commit.protocol.settings import Format
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import World
from tests.unit.vacuum.test_schedule import FakeVacuum, config, report, scrape, value
from tests.writers import stage, write, write_days
from vacuum import Deletion, Reason, VacuumOptions
from vacuum import vacuum_table as vacuum_one
from vacuum.metrics import Metrics
from vacuum.process import Job, Task, _read, written
from vacuum.schedule import Service
from vacuum.worker import do

NAME = "/data/a"


def after_vacuum(table: Table, *, dry_run: bool = False, **facts: Any) -> Metrics:
    """The metrics after a vacuum of the table, as the service's process looks at it then."""
    metrics = Metrics()
    metrics.reported(NAME, summary(table, dry_run=dry_run, **facts))
    return metrics


def summary(table: Table, *, dry_run: bool = False, **facts: Any) -> RunSummary:
    done = vacuum_one(table, VacuumOptions(), dry_run=dry_run)
    health = look(table.snapshot(), at=table.clock.now(), vacuumed=in_short(done), **facts)
    return replace(RunSummary.of(done), health=health)


def of(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"dbio_vacuum_{name}", {"table": NAME, **labels})


def test_live_and_small_files_are_counted(table: Table) -> None:
    write_days(table, "append", **{"1": bytes(10), "2": bytes(20)})
    write_days(table, "append", **{"1": bytes(30)})
    metrics = after_vacuum(table)
    assert [of(metrics, f"live_{what}") for what in ("files", "bytes")] == [3, 60]
    assert [of(metrics, f"small_{what}") for what in ("files", "bytes")] == [2, 40], "day=2 has one file only"
    metrics = after_vacuum(table, target_size=20)
    assert [of(metrics, f"small_{what}") for what in ("files", "bytes")] == [0, 0]


def test_pending_transactions_are_counted_and_the_oldest_has_an_age(table: Table, clock: ManualClock) -> None:
    write(table)
    assert [of(after_vacuum(table), f"pending_{it}") for it in ("transactions", "oldest_seconds")] == [0, 0]
    for _ in range(25):
        stage(table, table.begin())
    clock.advance(timedelta(hours=1))
    table.begin()
    clock.advance(timedelta(hours=1))
    assert [of(after_vacuum(table), f"pending_{it}") for it in ("transactions", "oldest_seconds")] == [26, 7200]


def test_a_checkpoint_has_a_time_and_the_commits_since_are_counted(table: Table, clock: ManualClock) -> None:
    write(table)
    metrics = after_vacuum(table, dry_run=True)
    assert of(metrics, "checkpoint_timestamp_seconds") is None
    assert of(metrics, "commits_since_checkpoint") == 1
    clock.advance(timedelta(hours=1))
    table.checkpoint()
    written = clock.now()
    clock.advance(timedelta(hours=1))
    write(table)
    write(table)
    metrics = after_vacuum(table, dry_run=True)
    assert of(metrics, "checkpoint_timestamp_seconds") == written.timestamp()
    assert of(metrics, "commits_since_checkpoint") == 2
    assert of(metrics, "last_commit_timestamp_seconds") == clock.now().timestamp()


def test_garbage_that_waits_for_the_retention_is_counted(table: Table, clock: ManualClock) -> None:
    write(table, bodies=[bytes(100), bytes(50)])
    write(table, "overwrite", bodies=[bytes(7)])
    clock.advance(timedelta(hours=1))
    metrics = after_vacuum(table)
    assert [of(metrics, f"garbage_{what}") for what in ("files", "bytes")] == [2, 150]
    assert of(metrics, "oldest_garbage_seconds") == 3600
    clock.advance(timedelta(hours=48))
    metrics = after_vacuum(table)
    assert [of(metrics, f"garbage_{what}") for what in ("files", "bytes")] == [0, 0]


def test_garbage_that_is_never_deleted_does_not_count_and_what_could_not_be_deleted_does() -> None:
    metrics = Metrics()
    old = timedelta(days=9)
    kept = [Deletion(path="notes.txt", size=5, age=old, reason=Reason.NOT_DATA)]
    undeleted = [Deletion(path="part-1", size=7, age=old, reason=Reason.REMOVED)]
    metrics.reported(NAME, RunSummary.of(report(kept=kept, undeleted=undeleted)))
    assert [of(metrics, f"garbage_{what}") for what in ("files", "bytes")] == [1, 7]
    assert of(metrics, "oldest_garbage_seconds") == old.total_seconds()


@pytest.fixture
def published(clock: ManualClock) -> Table:
    """A table whose URL can be published."""
    return Table.over(MemoryStore(clock, url="s3://lake/t"), clock)


def test_a_publication_lags_since_the_first_commit_that_it_does_not_show(published: Table, clock: ManualClock) -> None:
    table, store = published, published.store
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    write(table, schema=schema)
    table.set({"publish": "delta, symlink"})
    assert [lag(after_vacuum(table), it) for it in ("delta", "symlink", "spark")] == [0, 0, None]
    number = len(store.list_directory("_delta_log").entries)
    store.put_if_absent(f"_delta_log/{number:020d}.json", b'{"commitInfo": {"engineInfo": "another"}}\n')
    clock.advance(timedelta(minutes=5))
    write(table)
    clock.advance(timedelta(hours=2))
    write(table)
    clock.advance(timedelta(hours=1))
    done = vacuum_one(table, VacuumOptions())
    assert list(done.behind) == [Format.DELTA]
    assert "another" in done.behind[Format.DELTA]
    behind = {str(it): (published_at(store, it), why) for it, why in done.behind.items()}
    health = look(table.snapshot(), at=clock.now(), vacuumed=in_short(done), behind=behind)
    metrics = Metrics()
    metrics.reported(NAME, replace(RunSummary.of(done), health=health))
    assert [lag(metrics, it) for it in ("delta", "symlink")] == [3 * 3600, 0]


def test_the_process_of_a_vacuum_says_which_publication_is_behind_since_when_and_why(tmp_path: Path) -> None:
    table = Table(tmp_path)
    write(table)
    table.set({"publish": "spark"})
    (tmp_path / "_spark_metadata/9").write_text("of another tool")
    write(table)
    job = Job(url=str(tmp_path), storage_options={}, options=VacuumOptions(), dry_run=False, memory_mb=2048,
              deadline_s=60, target_size=2, secrets=())  # fmt: skip
    answer = do(Task.VACUUM, job, Event().is_set)
    assert answer.summary
    health = answer.summary.health
    assert health
    (behind,) = health.behind
    assert (behind.format, behind.since) == ("spark", table.snapshot().transactions[-1].modified)
    assert "_spark_metadata holds '9' of a Spark stream" in behind.why
    assert health.small.objects == 0, "two bytes are the target"
    sent = _read(written(answer)).summary
    assert sent
    assert sent.health
    assert [it.why for it in sent.health.behind] == [behind.why]


def lag(metrics: Metrics, format: str) -> float | None:
    return of(metrics, "publication_lag_seconds", format=format)


@pytest.mark.parametrize("format", Format)
def test_it_is_found_out_when_a_table_was_last_published(format: Format, published: Table, clock: ManualClock) -> None:
    body = BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"id": [1]}), body)
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    write(published, bodies=[body.getvalue()], schema=schema)
    assert published_at(published.store, format) is None
    published.publish(format)
    at = clock.now()
    clock.advance(timedelta(hours=1))
    write(published)
    assert published_at(published.store, format) == at


def test_a_dry_run_says_nothing_about_publications(published: Table) -> None:
    table = published
    write(table)
    table.set({"publish": "symlink"})
    assert lag(after_vacuum(table, dry_run=True), "symlink") is None


def test_a_format_that_is_no_longer_published_has_no_lag_any_more(published: Table) -> None:
    table = published
    write(table)
    table.set({"publish": "symlink"})
    metrics = after_vacuum(table)
    assert lag(metrics, "symlink") == 0
    table.set({"publish": ""})
    metrics.reported(NAME, summary(table))
    assert lag(metrics, "symlink") is None


def test_a_table_has_one_series_of_each_metric_about_its_state_whatever_its_size(table: Table) -> None:
    for day in range(60):
        write_days(table, "append", **{str(day): bytes(10)})
    fake = FakeVacuum()
    fake.does[NAME] = lambda control: summary(table)
    service = Service(config(NAME), vacuum=fake)
    service.once()
    labels = [it for it in scrape(service) if it.get("table") == NAME]
    assert all(it.keys() <= {"table", "reason"} for it in labels)
    assert len(labels) < 50


def test_metrics_have_names_in_prometheus_style(table: Table) -> None:
    write(table)
    metrics = after_vacuum(table)
    units = ("_total", "_seconds", "_bytes", "_files", "_commits", "_tables", "_transactions", "_failed", "_checkpoint")
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        if family.name.endswith("_created"):  # the client's own
            continue
        assert family.name.startswith("dbio_vacuum_")
        assert family.documentation
        name = family.name if family.type != "counter" else f"{family.name}_total"
        assert name.endswith(units), name


def test_metrics_say_how_far_streams_are_behind_and_forget_it_with_the_table() -> None:
    world = World()
    found = StreamLag(query="q1", batch=3, commits=2, files=5, size_bytes=700, oldest=world.clock.now())
    snapshot = Table.over(world, world.clock).snapshot()
    health = look(snapshot, at=world.clock.now(), vacuumed="nobody asked", streams=[found])
    fake = FakeVacuum()
    fake.does["/data/a"] = lambda control: replace(RunSummary.of(report()), health=health)
    service = Service(config("/data/a"), vacuum=fake, clock=ManualClock())
    assert service.once()

    def behind() -> list[float | None]:
        return [
            value(service, f"stream_behind_{what}", "/data/a", query="q1") for what in ("commits", "files", "bytes")
        ]

    assert behind() == [2, 5, 700]
    assert value(service, "live_files", "/data/a") == 0
    service.metrics.forget("/data/a")
    assert behind() == [None] * 3
    assert not [labels for labels in scrape(service) if labels.get("table") == "/data/a"]
