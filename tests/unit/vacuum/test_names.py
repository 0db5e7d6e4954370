"""The service on tables with any names: one of them blinds neither metrics, pages and log, nor the other tables."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from dbio_commit import Table
from dbio_commit.base.texts import label
from dbio_commit.feed.streams import StreamLag
from dbio_commit.maintenance.report import page as page_module
from dbio_commit.maintenance.report.health import TableHealth, look
from dbio_commit.maintenance.vacuum.report import RunSummary, in_short
from dbio_commit.protocol import names
from tests.unit.vacuum.test_schedule import FakeCompaction, FakeVacuum, Logs, config, endpoint, get, report, said, value
from vacuum import Failure
from vacuum import process as process_module
from vacuum.compaction import CompactionSummary
from vacuum.config import Config
from vacuum.discovery import find_tables
from vacuum.listener import listening
from vacuum.metrics import Metrics
from vacuum.process import Answer, _read, written
from vacuum.schedule import Service

NAMES = [
    b"good",
    b"bad\xff\xfename",
    b"new\nline",
    rb"new\nline",
    b"esc\x1b]0;owned\x07",
    b"star*",
    b"*",
    b"q?x",
    b"hash#1",
    b"pct%2e%2e%2fgood",
    b"quote\"'><script>alert(1)<",
    b"a&b",
    "\u202ertl".encode(),
    "line\u2028sep".encode(),
    b" lead",
    b"trail ",
    b"x" * 255,
    b"{{7*7}}",
    b"{a,b}",
]


@pytest.fixture
def logs() -> Iterator[Logs]:
    with capture_logs() as found:
        yield found


@pytest.fixture
def lake(tmp_path: Path) -> dict[bytes, str]:
    """Tables of these names, by name: their URLs."""
    place = tmp_path / "lake"
    for name in NAMES:
        directory = place / os.fsdecode(name)
        directory.mkdir(parents=True)
        (directory / names.DESCRIPTOR).write_bytes(b"{}")
    return {name: str(place / os.fsdecode(name)) for name in NAMES}


def health(tmp_path: Path) -> TableHealth:
    table = Table(tmp_path / "other")
    table.begin().commit()
    return look(table.snapshot(), at=table.clock.now(), vacuumed=in_short(report(table.url)))


def samples(text: str) -> set[str]:
    families = text_string_to_metric_families(text)
    return {it.labels["table"] for family in families for it in family.samples if it.name == "dbio_vacuum_runs_total"}


def test_every_table_is_told_in_metrics_health_and_pages_by_one_label(
    lake: dict[bytes, str], tmp_path: Path, logs: Logs
) -> None:
    fake = FakeVacuum()
    known = RunSummary(health=replace(health(tmp_path), url=lake[b"bad\xff\xfename"]))
    fake.does = dict.fromkeys(lake.values(), lambda control: known)
    service = Service(config(tmp_path / "lake/*"), vacuum=fake)
    assert service.once()
    labels = {label(url) for url in lake.values()}
    assert len(labels) == len(NAMES)
    with endpoint(service) as url:
        status, text = get(f"{url}/metrics")
        assert (status, samples(text)) == (200, labels)
        assert {*json.loads(get(f"{url}/health")[1])["tables"]} == labels
        status, index = get(f"{url}/report")
        assert status == 200
        assert index.count("report?table=") == len(NAMES)
        for table in labels:
            status, page = get(f"{url}/report?table={quote(table)}")
            assert (status, "<script>" in page) == (200, False)
            assert table in unescape(page)
    assert {line["table"] for line in said(logs, "run finished")} == labels
    assert {*service.results()} == labels


def test_a_stream_s_name_and_the_table_s_are_labels_too(tmp_path: Path) -> None:
    lag = StreamLag(query="q\udcff\n", batch=None, commits=1, files=2, size_bytes=3, oldest=None)
    metrics = Metrics()
    metrics.reported("/t", RunSummary(health=replace(health(tmp_path), streams=[lag])))
    assert rb'query="q\\udcff\\n"' in generate_latest(metrics.registry)


def test_what_a_table_was_is_forgotten_by_its_label(lake: dict[bytes, str], tmp_path: Path) -> None:
    service = Service(config(tmp_path / "lake/*"), vacuum=FakeVacuum())
    (entry,) = service.entries
    service.tick(entry)
    service._pool.shutdown()
    assert value(service, "runs_total", label(lake[b"bad\xff\xfename"])) == 1
    Path(lake[b"bad\xff\xfename"], names.DESCRIPTOR).unlink()
    service._expanded(entry, find_tables(entry, service.entries))
    assert value(service, "runs_total", label(lake[b"bad\xff\xfename"])) is None


def test_a_table_named_like_the_pattern_hides_nothing_of_it(lake: dict[bytes, str], tmp_path: Path) -> None:
    service = Service(config(tmp_path / "lake/*"), vacuum=FakeVacuum())
    assert service.once()
    (entry,) = service.entries
    service._not_expanded(entry, OSError("cannot list"))
    assert service.results()[entry.name] == "failed: OSError: cannot list; 0 objects deleted, 0 bytes"


# --- what fails for one table -------------------------------------------------------------------------------------


def test_a_figure_that_no_metric_can_hold_is_a_failed_run_of_its_table_alone(logs: Logs) -> None:
    fake = FakeVacuum()
    fake.does["/a"] = lambda control: RunSummary(oldest_garbage_s=10**400)
    service = Service(config("/a", "/b"), vacuum=fake)
    assert not service.once()
    (line,) = said(logs, "run failed")
    assert (line["table"], line["error"]) == ("/a", "OverflowError")
    assert [value(service, "failures_total", it) for it in ("/a", "/b")] == [1, 0]
    assert service.health()[1]["tables"]["/a"]["outcome"] == "failed"
    assert not service.health()[1]["tables"]["/a"]["busy"]


def test_a_variable_that_has_gone_is_a_failed_run_of_its_table_alone(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "a-secret-key")
    tables = [{"path": "s3://a/t", "storage_options": {"key": {"env": "TEST_KEY"}}}, {"path": "/b"}]
    service = Service(Config.model_validate({"tables": tables}), vacuum=FakeVacuum())
    monkeypatch.delenv("TEST_KEY")
    assert not service.once()
    assert [line["table"] for line in said(logs, "run failed")] == ["s3://a/t"]
    assert value(service, "runs_total", "/b") == 1


def test_a_table_that_no_page_can_show_costs_its_part_of_the_page_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    fake = FakeVacuum()
    told = health(tmp_path)
    fake.does = {it: lambda control: RunSummary(health=told) for it in ("/a", "/b")}
    service = Service(config("/a", "/b"), vacuum=fake)
    assert service.once()
    render = page_module._render

    def fails(subjects: Any, **options: Any) -> str:
        if any(it.name == "/a" and it.health for it in subjects):
            raise OverflowError("a number of it")
        return render(subjects, **options)

    monkeypatch.setattr(page_module, "_render", fails)
    for table, shown in ((None, True), ("/a", True), ("/b", False)):
        page = service.report(table)
        assert page is not None
        assert ("It cannot be shown" in page) == shown
        assert table is not None or "/b" in page
    assert {(line["table"], line["error"]) for line in said(logs, "table not shown")} == {("/a", "OverflowError")}


def test_a_failed_compaction_with_a_hostile_name_keeps_no_vacuum_from_running(logs: Logs) -> None:
    url = "/t\udcff\n"
    service = Service(
        Config.model_validate({"tables": [{"path": "/t", "compact": True}]}),
        vacuum=FakeVacuum(),
        compact=FakeCompaction(OSError(url)),
    )
    assert not service.once()
    assert said(logs, "run finished")


# --- the process of a table ---------------------------------------------------------------------------------------


def test_an_answer_with_names_that_are_no_utf_8_comes_back(tmp_path: Path) -> None:
    hostile = "bad\udcff\n"
    failure = Failure(path=hostile, message=hostile)
    summary = RunSummary(failures=(failure,), failed=1, health=replace(health(tmp_path), url=hostile))
    answer = _read(written(Answer(summary=summary)))
    assert answer.summary is not None
    assert answer.summary.failures == (Failure(path=r"bad\udcff\n", message=r"bad\udcff\n"),)
    assert answer.summary.health is not None
    assert answer.summary.health.url == r"bad\udcff\n"


def test_an_answer_without_such_names_comes_back_as_it_was(tmp_path: Path) -> None:
    answer = Answer(summary=RunSummary(health=health(tmp_path), oldest_garbage_s=1.5), compaction=CompactionSummary())
    assert written(_read(written(answer))) == written(answer)
    assert json.loads(written(answer)) == json.loads(process_module._ANSWER.dump_json(answer))


def test_an_error_with_such_a_name_comes_back() -> None:
    with pytest.raises(process_module.RunFailed, match=r"bad\\udcff") as failed:
        _read(written(Answer(error="StoreError", message="bad\udcff", traceback="bad\udcff\n")))
    assert failed.value.error == "StoreError"


# --- the log ------------------------------------------------------------------------------------------------------

PROGRAM = r"""
import logging, sys, threading
import structlog
from vacuum.log import log_as_json
hostile = "bad\udcff\n\x1b[2J\u2028\u202e"
log_as_json({"hunter2hunter2"})
log = structlog.get_logger("vacuum")
log.info("event" + hostile, table=hostile, **{"key" + hostile: [{hostile: hostile}, (hostile,), {hostile}]})
log.info("secret", path="hunter2%68unter2 hunter2hunter2", deep=[{"hunter2hunter2": "Authorization: Bearer abc.def.1"}])
log.info("object", at=Exception("hunter2hunter2" + hostile))
logging.getLogger("elsewhere").warning("%s", hostile)
try:
    raise ValueError(hostile)
except ValueError:
    log.error("failed", exc_info=True)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start(); thread.join()
raise ValueError(hostile)
"""


def test_each_line_of_the_log_is_json_of_utf_8_whatever_is_said_in_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=False)
    text = done.stderr.decode()
    assert "hunter2hunter2" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["event"] for line in lines[:3]] == [r"eventbad\udcff\n\x1b[2J\u2028\u202e", "secret", "object"]
    assert [line["event"] for line in lines[4:]] == ["failed", "uncaught", "uncaught"]
    for line in lines:
        trace = line.pop("exception", "")
        assert all(it.isprintable() for it in trace.split("\n"))
        shown = json.dumps(line, ensure_ascii=False)
        assert shown.isprintable()
        shown.encode()
    assert lines[1]["deep"] == [{"***": "Authorization: ***"}]
    assert "ValueError" in lines[-1]["error"]


# --- the listener -------------------------------------------------------------------------------------------------


def test_what_is_said_of_health_is_json_that_any_program_reads() -> None:
    registry = Metrics().registry
    with listening("127.0.0.1", 0, registry, lambda: (True, {"t\udcff": ["\ud800"]}), lambda table: None) as url:
        status, text = get(f"{url}/health")
    assert status == 200
    assert json.dumps(json.loads(text), ensure_ascii=False).encode() == rb'{"t\\udcff": ["\\ud800"]}'
