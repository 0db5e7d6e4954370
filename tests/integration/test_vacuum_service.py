"""`python -m vacuum` as a process: its signals, exit codes and logs; and patterns on object stores."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from dbio_commit import Table
from dbio_commit.maintenance.vacuum.report import RunSummary
from tests.conftest import Root
from tests.servers import S3Server
from tests.tiers import long
from tests.writers import contents, write
from vacuum.config import Config
from vacuum.discovery import find_tables
from vacuum.process import Job, Task
from vacuum.schedule import Service
from vacuum.worker import do

WAIT_S = 60

# The real program, but for a vacuum that takes its time, and a cron expression that is true every second. Each table
# has a process of its own: what Python runs when it starts comes to all of them.
SLOW = """
import threading
from dbio_commit.log.snapshot import Scope
from dbio_commit import table as run
from vacuum import VacuumReport

def slow(table, options, *, dry_run, control):
    while not (OBEYS and control.stop()):
        threading.Event().wait(0.01)
    return VacuumReport(url=table.url, scope=Scope.TABLE, dry_run=dry_run, retention_hours=1, stopped=True)

run.vacuum_table = slow
from vacuum import config, cron
from apscheduler.triggers.cron import CronTrigger
config.cron_trigger = cron.cron_trigger = lambda cron, timezone, jitter_s=0: CronTrigger(second="*", timezone="UTC")
"""


class Process:
    """The program under way, and the lines that it has logged."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self.popen = popen
        self.lines: list[dict[str, Any]] = []
        self._queue: SimpleQueue[str] = SimpleQueue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self._queue.put(line)
        self._queue.put("")

    def line(self, event: str) -> dict[str, Any]:
        """The next line of the event; every line on the way must be JSON."""
        while text := self._queue.get(timeout=WAIT_S):
            self.lines.append(json.loads(text))
            if self.lines[-1]["event"] == event:
                return self.lines[-1]
        raise AssertionError(f"the process has ended, and said {self.lines}")

    def end(self) -> int:
        code = self.popen.wait(WAIT_S)
        while text := self._queue.get(timeout=WAIT_S):
            self.lines.append(json.loads(text))
        return code


@contextmanager
def process(*arguments: object) -> Iterator[Process]:
    command = [sys.executable, "-m", "vacuum", *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as popen:
        try:
            yield Process(popen)
        finally:
            popen.kill()


Slow = Callable[[bool], None]


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Makes vacuums slow; those that do not obey end with their service only."""

    def make(obeys: bool) -> None:
        (tmp_path / "patch").mkdir()
        (tmp_path / "patch/sitecustomize.py").write_text(f"OBEYS = {obeys}\n{SLOW}")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/patch:{os.environ.get('PYTHONPATH', '')}")

    return make


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "vacuum", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of two tables, one at a time."""
    path = tmp_path / "vacuum.toml"
    tables = "".join(f'[[tables]]\npath = "{tmp_path}/{name}"\n' for name in "ab")
    path.write_text(f"concurrency = 1\n[http]\nport = 0\n{tables}")
    return path


def health(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"{url}/health", timeout=WAIT_S) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


# --- serve --------------------------------------------------------------------------------------------------------


def test_serve_answers_on_the_loopback_and_a_signal_ends_it(config: Path) -> None:
    with process("serve", "--config", config) as service:
        url = service.line("listening")["url"]
        assert url.startswith("http://127.0.0.1:")
        for _ in range(2):
            service.line("scheduled")
        status, document = health(url)
        assert (status, document["status"]) == (200, "ok")
        assert set(document["tables"]) == {f"{config.parent}/a", f"{config.parent}/b"}
        with urlopen(f"{url}/metrics", timeout=WAIT_S) as answer:
            assert b"dbio_vacuum_runs_total" in answer.read()
        service.popen.send_signal(signal.SIGINT)
        assert service.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, *long(signal.SIGINT)])
def test_a_signal_during_a_run_lets_it_end_and_exits_with_0(config: Path, number: signal.Signals, slow: Slow) -> None:
    slow(True)
    with process("serve", "--config", config) as service:
        running = service.line("run started")["table"]
        service.line("run skipped")  # the next second has come
        service.popen.send_signal(number)
        assert service.line("stopping")["signal"] == number.name
        finished = service.line("run finished")
        assert (finished["table"], finished["outcome"]) == (running, "stopped")
        assert service.line("stopped")["unfinished"] == [f"{config.parent}/a", f"{config.parent}/b"]
        assert service.end() == 0
    assert [line["table"] for line in service.lines if line["event"] == "run started"] == [running]


def test_a_second_signal_exits_at_once_with_1(config: Path, slow: Slow) -> None:
    slow(False)
    with process("serve", "--config", config) as service:
        service.line("run started")
        service.popen.send_signal(signal.SIGTERM)
        service.line("stopping")
        while service.popen.poll() is None:  # those within a second of the first count as its echo
            service.popen.send_signal(signal.SIGTERM)
            try:
                service.popen.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        assert service.end() == 1
        assert service.lines[-1]["event"] == "killed"


def test_two_signals_at_once_are_one_wish(config: Path, slow: Slow) -> None:
    slow(True)
    with process("serve", "--config", config) as service:
        service.line("run started")
        service.popen.send_signal(signal.SIGTERM)
        service.popen.send_signal(signal.SIGINT)
        assert service.end() == 0


def test_a_port_that_is_taken_is_said(config: Path) -> None:
    with process("serve", "--config", config) as first:
        port = first.line("listening")["url"].rpartition(":")[2]
        config.write_text(config.read_text().replace("port = 0", f"port = {port}"))
        second = run("serve", "--config", config)
        assert second.returncode == 1
        assert json.loads(second.stderr)["event"] == "cannot listen"


# --- once ---------------------------------------------------------------------------------------------------------


def test_once_vacuums_every_table_and_exits_with_0(config: Path, tmp_path: Path) -> None:
    for name in "ab":
        write(Table(tmp_path / name))
    done = run("once", "--config", config, "--metrics-file", tmp_path / "vacuum.prom")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 0, done.stderr
    assert {line["table"] for line in lines if line["event"] == "run finished"} == {f"{tmp_path}/a", f"{tmp_path}/b"}
    assert f'dbio_vacuum_runs_total{{table="{tmp_path}/a"}} 1.0' in (tmp_path / "vacuum.prom").read_text()


def test_once_prints_what_it_did_and_whether_it_was_a_dry_run(config: Path, tmp_path: Path) -> None:
    write(Table(tmp_path / "a"))
    config.write_text("dry_run = true\n" + config.read_text())
    done = run("once", "--config", config)
    assert done.stdout.splitlines() == [
        f"{tmp_path}/a: dry run, nothing was changed: 0 objects would be deleted, 0 bytes",
        f"{tmp_path}/b: failed: TableNotFoundError: there is no table at {tmp_path}/b; check the path",
    ]


def test_the_log_has_one_line_for_what_a_run_did(config: Path, tmp_path: Path) -> None:
    """The functions that users call log it too."""
    for name in "ab":
        write(Table(tmp_path / name))
    lines = [json.loads(line) for line in run("once", "--config", config).stderr.splitlines()]
    assert sorted(line["event"] for line in lines) == ["done", *["run finished"] * 2, *["run started"] * 2]


def test_once_exits_with_1_where_a_table_failed_and_vacuums_the_others(config: Path, tmp_path: Path) -> None:
    write(Table(tmp_path / "b"))
    done = run("once", "--config", config)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    (failed,) = (line for line in lines if line["event"] == "run failed")
    assert (failed["table"], failed["error"]) == (f"{tmp_path}/a", "TableNotFoundError")
    assert [line["table"] for line in lines if line["event"] == "run finished"] == [f"{tmp_path}/b"]


def test_a_signal_ends_once_in_good_order(config: Path, slow: Slow) -> None:
    slow(True)
    with process("once", "--config", config) as service:
        service.line("run started")
        service.popen.send_signal(signal.SIGTERM)
        assert service.line("stopped")["unfinished"] == [f"{config.parent}/a", f"{config.parent}/b"]
        assert service.end() == 0


def test_what_a_signal_left_the_next_run_deletes_and_nothing_live_is_lost(config: Path, tmp_path: Path) -> None:
    tables = [Table(tmp_path / name) for name in "ab"]
    for table in tables:
        write(table, bodies=[b"live"] * 3)
        for number in range(2000):
            path = Path(table.url, f"stray-{number}")
            path.touch()
            os.utime(path, (0, 0))
    config.write_text(config.read_text().replace("[[tables]]", "[[tables]]\nuntracked = true"))
    with process("once", "--config", config) as service:
        service.line("run started")
        service.popen.send_signal(signal.SIGTERM)  # it may be done already: what follows holds all the same
        assert service.end() == 0
    assert [contents(table) for table in tables] == [[b"live"] * 3] * 2
    done = run("once", "--config", config)
    assert done.returncode == 0, done.stderr
    assert [contents(table) for table in tables] == [[b"live"] * 3] * 2
    assert [*tmp_path.glob("*/stray-*")] == []


# --- usage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [*long("serve"), "once", "check"])
def test_a_bad_configuration_exits_with_2_and_says_all_that_is_wrong(command: str, tmp_path: Path) -> None:
    path = tmp_path / "vacuum.toml"
    path.write_text('cron = "x"\n[[tables]]\nsecret = "hunter2hunter2"\n')
    done = run(command, "--config", path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 3
    assert all(line.startswith(f"{path}: ") for line in done.stderr.splitlines())
    assert "hunter2" not in done.stderr
    assert done.stdout == ""


def test_wrong_usage_exits_with_2() -> None:
    assert run("once").returncode == 2
    assert run("sweep").returncode == 2


def test_check_lists_the_tables_that_are_meant(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(Table(tmp_path / "lake" / name))
    path = tmp_path / "vacuum.toml"
    write(Table(tmp_path / "other"))
    path.write_text(f'[[tables]]\npath = "{tmp_path}/lake/*"\n[[tables]]\npath = "{tmp_path}/other"\n')
    done = run("check", "--config", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{tmp_path}/lake/a", f"{tmp_path}/lake/b", f"{tmp_path}/other"]


def test_a_path_or_pattern_without_a_table_is_an_error_of_check_and_of_once(tmp_path: Path) -> None:
    write(Table(tmp_path / "lake/a"))
    entries = (tmp_path / "lake/*", tmp_path / "typo/*", tmp_path / "typo/a")
    path = tmp_path / "vacuum.toml"
    path.write_text("".join(f'[[tables]]\npath = "{it}"\n' for it in entries))
    done = run("check", "--config", path)
    assert (done.returncode, done.stdout.split()) == (1, [f"{tmp_path}/lake/a"])
    assert [line.partition(" no ")[0] for line in done.stderr.splitlines()] == [
        f"vacuum: {tmp_path}/typo/*:",
        f"vacuum: {tmp_path}/typo/a: there is",
    ]
    done = run("once", "--config", path, "--metrics-file", tmp_path / "metrics")
    assert done.returncode == 1
    assert f"{tmp_path}/typo/*: no table matches" in done.stdout.splitlines()
    metrics = (tmp_path / "metrics").read_text().splitlines()
    assert f'dbio_vacuum_pattern_tables{{pattern="{tmp_path}/typo/*"}} 0.0' in metrics
    assert f'dbio_vacuum_last_run_failed{{table="{tmp_path}/typo/a"}} 1.0' in metrics


def test_check_shows_names_that_would_steer_a_terminal_escaped_a_line_each(tmp_path: Path) -> None:
    for name in ("ok", "\x1b]0;PWNED\x07red", "two\nlines"):
        (tmp_path / "lake" / name).mkdir(parents=True)
        (tmp_path / "lake" / name / "_dbio_table").touch()
    path = tmp_path / "vacuum.toml"
    path.write_text(f'[[tables]]\npath = "{tmp_path}/lake/*"\n')
    done = run("check", "--config", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.splitlines()) == {
        f"{tmp_path}/lake/ok",
        f"{tmp_path}/lake/\\x1b]0;PWNED\\x07red",
        f"{tmp_path}/lake/two\\nlines",
    }


def test_no_log_line_shows_a_secret(tmp_path: Path) -> None:
    program = """
import logging, os
import structlog
from vacuum.config import read_config, secrets
from vacuum.log import log_as_json
log_as_json(secrets(read_config(os.environ["CONFIG"])))
try:
    raise ValueError("refused " + os.environ["LAKE_SECRET"])
except ValueError:
    structlog.get_logger("vacuum").exception("run failed", facts={"inner": os.environ["LAKE_SECRET"]})
logging.getLogger("botocore").warning("sent %s", os.environ["LAKE_SECRET"])
import warnings
warnings.warn("beware of " + os.environ["LAKE_SECRET"])
"""
    path = tmp_path / "vacuum.toml"
    options = 'endpoint_url = "http://127.0.0.1:1"\nsecret = { env = "LAKE_SECRET" }\n'
    path.write_text(f'[[tables]]\npath = "s3://lake/t"\n[tables.storage_options]\n{options}')
    env = os.environ | {"LAKE_SECRET": 'se"cret\\text', "CONFIG": str(path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(lines) == 3
    assert all("***" in line and "cret" not in line.replace("LAKE_SECRET", "") for line in done.stderr.splitlines())


# --- patterns on object stores ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["s3_root", "azure_root"])
def test_a_pattern_finds_tables_on_an_object_store(place: str, request: pytest.FixtureRequest) -> None:
    root: Root = request.getfixturevalue(place)
    for name in ("eu/events", "us/events", "us/orders"):
        write(Table(f"{root.url}/{name}", root.storage_options))
    with Table(f"{root.url}/plain/events", root.storage_options).store.open_write("part-0.parquet") as stream:
        stream.write(b"rows")
    options, names = in_environment(root.storage_options)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in names.items():
            environment.setenv(name, value)
        tables = [{"path": f"{root.url}/*/events", "storage_options": options}]
        entries = Config.model_validate({"tables": tables}).entries
        found = [table.url for table in find_tables(entries[0], entries).tables]
    assert found == [f"{root.url}/eu/events", f"{root.url}/us/events"]


def test_an_idle_table_on_s3_costs_three_requests_at_most(
    s3_root: Root, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With those that find it by its pattern; the listing of the pattern's directories is one for all tables."""
    for number in range(5):
        write(Table(f"{s3_root.url}/{number}", s3_root.storage_options))
    options, names = in_environment(s3_root.storage_options)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    tables = [{"path": f"{s3_root.url}/*", "storage_options": options}]
    config = Config.model_validate({"concurrency": 1, "state_file": f"{tmp_path}/state", "tables": tables})
    asked = []
    for _ in range(2):
        s3_server.reset()
        service = Service(config, vacuum=vacuum_here, look=look_here)
        assert service.once()
        asked.append(len(s3_server.requests()))
    assert {it.partition(" before")[0] for it in service.results().values()} == {"nothing due"}
    assert asked[0] <= 5 * 16 + 1
    assert asked[1] <= 5 * 2 + 1


def vacuum_here(job: Job, /, *, stop: Event) -> RunSummary:
    summary = do(Task.VACUUM, job, stop.is_set).summary
    assert summary
    return summary


def look_here(job: Job, /, *, stop: Event) -> bool:
    return bool(do(Task.LOOK, job, stop.is_set).is_idle)


def in_environment(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The options with every text from a variable, and the variables."""
    texts = {key: value for key, value in options.items() if isinstance(value, str)}
    return (
        options | {key: {"env": f"TEST_{key.upper()}"} for key in texts},
        {f"TEST_{key.upper()}": value for key, value in texts.items()},
    )
