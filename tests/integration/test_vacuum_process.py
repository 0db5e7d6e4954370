"""A table's vacuum in a process of its own: what comes back from it, and how it is ended at its bounds."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from shutil import copytree
from threading import Event, Thread
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from dbio_commit import Table
from dbio_commit.maintenance.compact.options import CompactOptions
from dbio_commit.maintenance.report.health import Amount, Vacuumed
from dbio_commit.maintenance.vacuum.report import ObjectTotal, RunSummary
from tests.builders import QUERY, stream_checkpoint
from tests.command_line import append
from tests.histories import columns
from tests.writers import contents, write
from vacuum import Reason, VacuumOptions
from vacuum import process as process_module
from vacuum.compaction import CompactionSummary
from vacuum.config import Config
from vacuum.process import Job, Processes, RunFailed
from vacuum.schedule import Service

# The real program, but for tables whose names say that their vacuum goes wrong.
PATCH = """
import os, signal, sys, threading, warnings
from dbio_commit.log.snapshot import Scope
from dbio_commit import table as run
from dbio_commit.maintenance.vacuum.report import VacuumReport

real = run.vacuum_table
spoiled = []

def vacuum_table(table, options, *, dry_run, control, spark=None):
    def started():
        with open(os.environ["TEST_STARTED"], "w") as pipe:
            pipe.write(str(os.getpid()))
    match table.url.rpartition("/")[2]:
        case "hungry":
            eaten = []
            while True:
                eaten.append(b"x" * 2**20)
        case "hangs":
            started()
            while True:
                threading.Event().wait()
        case "slow":
            started()
            while not control.stop():
                threading.Event().wait(0.01)
            return VacuumReport(url=table.url, scope=Scope.TABLE, dry_run=dry_run, retention_hours=1, stopped=True)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            os._exit(7)
        case "bug":
            print("stray output", flush=True)
            raise ZeroDivisionError("a bug")
        case "blind":
            table.snapshot = None
        case "names-its-process":
            return VacuumReport(
                url=table.url, scope=Scope.TABLE, dry_run=dry_run, retention_hours=1, warnings=[str(os.getpid())]
            )
        case "spoils":
            spoiled.append(True)
        case "grows":
            spoiled.append(b"x" * 2**29)
        case "suffers" if spoiled:
            os._exit(7)
        case "errs" if spoiled:
            raise ZeroDivisionError("of the table before")
    return real(table, options, dry_run=dry_run, control=control)

run.vacuum_table = vacuum_table

from vacuum import compaction

really = compaction.compact_table

def compact_table(table, options, *, dry_run, stop):
    if options.where == "hungry":
        vacuum_table(type("", (), {"url": "/hungry"}), None, dry_run=dry_run, control=None)
    if options.where == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if options.where == "slow":
        with open(os.environ["TEST_STARTED"], "w") as pipe:
            pipe.write(str(os.getpid()))
        while not stop():
            threading.Event().wait(0.01)
        options = compaction.CompactOptions()
    return really(table, options, dry_run=dry_run, stop=stop)

compaction.compact_table = compact_table
"""


pytestmark = pytest.mark.timeout(90)
"""A patch that fails is ignored by Python, and a test would wait for its pipe. Each test takes seconds."""


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipe to which a vacuum that hangs, or is slow, writes the number of its process."""
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch/sitecustomize.py").write_text(PATCH)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/patch:{os.environ.get('PYTHONPATH', '')}")
    pipe = tmp_path / "started"
    os.mkfifo(pipe)
    monkeypatch.setenv("TEST_STARTED", str(pipe))
    return pipe


def job(url: object, *, dry_run: bool = False, memory_mb: int = 2048, deadline_s: float = 60) -> Job:
    return Job(
        url=str(url),
        storage_options={},
        options=VacuumOptions(untracked=True),
        dry_run=dry_run,
        memory_mb=memory_mb,
        deadline_s=deadline_s,
        secrets=(),
    )


def test_a_run_tells_how_far_the_streams_of_a_table_are_behind_and_warns_of_those_that_it_cannot(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path / "table")
    append(table, {"1": 10})
    checkpoint = stream_checkpoint(tmp_path / "checkpoint", table)
    append(table, {"2": 20})
    streams = (str(checkpoint), str(tmp_path / "nothing"))
    summary = vacuum_in_process(replace(job(table.url), streams=streams), stop=Event())
    assert not summary.failed
    assert summary.health is not None
    assert [(it.query, it.commits, it.files) for it in summary.health.streams] == [(QUERY, 1, 1)]


def failure(of: Job) -> RunFailed:
    with pytest.raises(RunFailed) as raised:
        vacuum_in_process(of, stop=Event())
    return raised.value


@contextmanager
def new_process() -> Iterator[Processes]:
    workers = Processes()
    try:
        yield workers
    finally:
        workers.rest()


def vacuum_in_process(of: Job, *, stop: Event) -> RunSummary:
    with new_process() as workers:
        return workers.vacuum(of, stop=stop)


def compact_in_process(of: Job, *, stop: Event) -> CompactionSummary:
    with new_process() as workers:
        return workers.compact(of, stop=stop)


class Running:
    """A vacuum under way in a thread."""

    def __init__(self, of: Job) -> None:
        self.stop = Event()
        self._results: SimpleQueue[RunSummary | Exception] = SimpleQueue()
        Thread(target=self._run, args=(of,), daemon=True).start()

    def _run(self, of: Job) -> None:
        try:
            self._results.put(vacuum_in_process(of, stop=self.stop))
        except Exception as error:
            self._results.put(error)

    def result(self) -> RunSummary | Exception:
        return self._results.get(timeout=60)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """With a live file, and one of 7 bytes that nobody wrote, three days old."""
    table = Table(tmp_path / "lake/good")
    write(table, bodies=[b"live"])
    stray = Path(table.url, "stray")
    stray.write_bytes(b"x" * 7)
    os.utime(stray, (0, 0))
    return table


def test_what_a_vacuum_did_comes_back_from_its_process(table: Table) -> None:
    summary = vacuum_in_process(job(table.url, dry_run=True), stop=Event())
    assert replace(summary, health=None) == RunSummary(
        dry_run=True, deleted={Reason.UNTRACKED: ObjectTotal(objects=1, size=7)}
    )
    assert Path(table.url, "stray").exists()
    assert vacuum_in_process(job(table.url), stop=Event()).deleted == {Reason.UNTRACKED: ObjectTotal(objects=1, size=7)}
    assert not Path(table.url, "stray").exists()
    assert contents(table) == [b"live"]


@pytest.fixture
def small(tmp_path: Path) -> Table:
    """With four small files of rows, in two partitions."""
    table = Table(tmp_path / "lake/small")
    for number in range(4):
        with table.begin(partition_by=["day"]) as transaction:
            path = transaction.new_file(partition={"day": str(number % 2)})
            pq.write_table(pa.table({"id": [number]}), path)
            transaction.commit(columns(id="long", day="integer"))
    return table


def test_what_a_compaction_did_comes_back_from_its_process(small: Table) -> None:
    compacting = replace(job(small.url), compact=CompactOptions())
    would = compact_in_process(replace(compacting, dry_run=True), stop=Event())
    assert (would.dry_run, would.files, would.new_files, would.commits) == (True, 4, 2, 0)
    assert len(small.snapshot().files) == 4
    done = compact_in_process(compacting, stop=Event())
    assert (done.files, done.new_files, done.commits, done.left, done.stopped) == (4, 2, 1, (), False)
    assert done.size == would.size > done.new_size == sum(file.size for file in small.snapshot().files)
    assert compact_in_process(compacting, stop=Event()).text == "nothing to compact"
    vacuumed = vacuum_in_process(compacting, stop=Event())  # which compacts nothing
    assert vacuumed.health is not None
    assert vacuumed.health.live_files == 2


def test_a_compaction_that_cannot_be_says_why(small: Table, table: Table) -> None:
    for of, options, said in [
        (small, CompactOptions(sort_by=("nothing",)), "no column"),
        (small, CompactOptions(where="nothing = 1"), "nothing"),
        (table, CompactOptions(where="id = 1"), "recorded"),
    ]:
        with pytest.raises(RunFailed, match=said) as raised:
            compact_in_process(replace(job(of.url), compact=options), stop=Event())
        assert (raised.value.error, raised.value.traceback) == ("InvalidInputError", "")


def test_a_compaction_that_is_told_to_stop_ends_in_good_order(small: Table, started: Path) -> None:
    stop, results = Event(), SimpleQueue[CompactionSummary]()
    slow = replace(job(small.url), compact=CompactOptions(where="slow"))
    Thread(target=lambda: results.put(compact_in_process(slow, stop=stop)), daemon=True).start()
    started.read_text()
    stop.set()
    done = results.get(timeout=60)
    assert (done.stopped, done.files, done.left_files) == (True, 0, 4)
    assert not small.check().pending


def test_how_a_vacuum_left_the_table_comes_back_from_its_process(table: Table) -> None:
    dead = table.begin().tid
    health = vacuum_in_process(job(table.url), stop=Event()).health
    assert health
    assert (health.url, health.ok, health.live_files, health.live_size, health.commits) == (table.url, None, 1, 4, 1)
    assert health.pending
    assert [it.tid for it in health.pending] == [dead]
    freed = Amount(objects=1, size=7, oldest=ANY)
    assert health.vacuumed == Vacuumed(retention_hours=48, dry_run=False, freed={Reason.UNTRACKED: freed})


def test_a_vacuum_after_which_nobody_could_look_at_the_table_has_succeeded(table: Table) -> None:
    blind = Path(table.url).rename(Path(table.url).parent / "blind")
    assert vacuum_in_process(job(blind), stop=Event()) == RunSummary(
        deleted={Reason.UNTRACKED: ObjectTotal(objects=1, size=7)}
    )


def test_an_error_of_ours_says_all_itself_and_a_bug_where_it_came_from(tmp_path: Path) -> None:
    ours, bug = failure(job(tmp_path / "nothing")), failure(job(tmp_path / "bug"))
    assert (ours.error, ours.traceback) == ("TableNotFoundError", "")
    assert str(tmp_path / "nothing") in ours.message
    assert (bug.error, bug.message) == ("ZeroDivisionError", "a bug")
    assert "in vacuum_table" in bug.traceback


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell what a process uses")
def test_a_vacuum_that_needs_too_much_memory_is_ended(tmp_path: Path) -> None:
    error = failure(job(tmp_path / "hungry", memory_mb=300))
    assert error.error == "MemoryLimit"
    assert "more than 300 (memory_mb)" in error.message


def test_a_vacuum_that_hangs_is_ended_at_its_deadline(tmp_path: Path) -> None:
    error = failure(job(tmp_path / "hangs", deadline_s=0.5))
    assert error.error == "TimeLimit"
    assert "after 0.5 s (deadline_s)" in error.message


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(("name", "how"), [("killed", "by SIGKILL"), ("exits", "with code 7")])
def test_a_process_that_dies_is_a_failure_that_says_how(tmp_path: Path, name: str, how: str) -> None:
    error = failure(job(tmp_path / name))
    assert error.error == "ProcessDied"
    assert f"its process ended {how}" in error.message


def test_a_vacuum_that_is_told_to_stop_ends_in_good_order(tmp_path: Path, started: Path) -> None:
    running = Running(job(tmp_path / "slow"))
    started.read_text()
    running.stop.set()
    assert running.result() == RunSummary(stopped=True)


def test_sigterm_to_the_process_itself_stops_it_too(tmp_path: Path, started: Path) -> None:
    running = Running(job(tmp_path / "slow"))
    os.kill(int(started.read_text()), signal.SIGTERM)  # as systemd does to all of a service's processes
    assert running.result() == RunSummary(stopped=True)


def test_a_vacuum_that_does_not_stop_is_ended(tmp_path: Path, started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "STOP_S", 0.2)
    running = Running(job(tmp_path / "hangs"))
    pid = int(started.read_text())
    running.stop.set()
    assert running.result() == RunSummary(stopped=True)
    assert_gone(pid)


def test_secrets_travel_neither_on_the_command_line_nor_in_the_environment(tmp_path: Path, started: Path) -> None:
    secret = Job(
        url=str(tmp_path / "slow"),
        storage_options={},
        options=VacuumOptions(),
        dry_run=False,
        memory_mb=2048,
        deadline_s=60,
        secrets=["hunter2hunter2"],
    )
    assert "hunter2" not in repr(secret)
    running = Running(secret)
    process = Path("/proc", started.read_text())
    if process.exists():
        assert b"hunter2" not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    running.stop.set()
    running.result()


# --- one process for many tables ----------------------------------------------------------------------------------


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    found.rest()


def process_of_the_next(processes: Processes, **bounds: int) -> int:
    (pid,) = processes.vacuum(job("/names-its-process", **bounds), stop=Event()).warnings  # type: ignore[arg-type]
    return int(pid)


def test_a_process_does_one_job_after_the_other_until_it_rests(processes: Processes, table: Table) -> None:
    pid = process_of_the_next(processes)
    assert processes.vacuum(job(table.url), stop=Event()).deleted
    assert process_of_the_next(processes) == pid
    processes.rest()
    assert_gone(pid)
    assert process_of_the_next(processes) != pid


def test_a_process_that_failed_does_no_other_job(processes: Processes, tmp_path: Path) -> None:
    pid = process_of_the_next(processes)
    with pytest.raises(RunFailed, match="no table"):
        processes.vacuum(job(tmp_path / "nothing"), stop=Event())
    assert_gone(pid)
    assert process_of_the_next(processes) != pid


def test_an_answer_that_is_too_long_is_a_failure_and_holds_up_nothing(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "_MOST_BYTES", 100)
    monkeypatch.setattr(process_module, "_EXIT_S", 0.1)
    with pytest.raises(RunFailed, match="more than 100 bytes"):
        process_of_the_next(processes)


@pytest.mark.parametrize("name", ["suffers", pytest.param("errs", marks=pytest.mark.long)])
def test_a_table_does_not_fail_because_of_the_one_before(processes: Processes, tmp_path: Path, name: str) -> None:
    for each in ("spoils", name):
        Table(tmp_path / each).begin().commit()
        pid = process_of_the_next(processes)
        assert not processes.vacuum(job(tmp_path / each), stop=Event()).failed
    assert_gone(pid)


@pytest.mark.long
def test_a_process_with_little_room_left_does_no_job_of_few_bytes(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "_resident_bytes", lambda pid: 100 * 2**20)
    pid = process_of_the_next(processes)
    assert process_of_the_next(processes, memory_mb=200) == pid
    assert process_of_the_next(processes, memory_mb=150) != pid
    assert_gone(pid)


def test_a_process_that_grew_is_replaced(processes: Processes, tmp_path: Path) -> None:
    Table(tmp_path / "grows").begin().commit()
    pid = process_of_the_next(processes)
    processes.vacuum(job(tmp_path / "grows"), stop=Event())
    assert_gone(pid)


@pytest.mark.long
def test_so_is_one_that_did_many_jobs(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "MOST_JOBS", 2)
    pids = [process_of_the_next(processes) for _ in range(4)]
    assert pids == [pids[0], pids[0], pids[2], pids[2]]
    assert pids[0] != pids[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_a_process_that_ended_while_it_had_nothing_to_do_harms_no_table(processes: Processes, number: int) -> None:
    pid = process_of_the_next(processes)
    os.kill(pid, number)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert process_of_the_next(processes) != pid


def test_200_idle_tables_take_one_process_whose_memory_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Table(tmp_path / "lake/t0").begin().commit()
    for number in range(1, 200):
        copytree(tmp_path / "lake/t0", tmp_path / f"lake/t{number}")
    used: dict[int, list[int]] = {}
    resident = process_module._resident_bytes

    def note(pid: int) -> int:
        used.setdefault(pid, []).append(resident(pid))
        return used[pid][-1]

    monkeypatch.setattr(process_module, "_resident_bytes", note)
    settings = {"concurrency": 1, "tables": [{"path": f"{tmp_path}/lake/*"}], "state_file": f"{tmp_path}/state"}
    for round_ in range(2):
        used.clear()
        service = Service(Config.model_validate(settings))
        assert service.once()
        assert {it.startswith("nothing due") for it in service.results().values()} == {round_ == 1}
        (sizes,) = used.values()
        assert len(sizes) >= 200
        assert sizes[-1] - sizes[-150] < 16 * 2**20


# --- the service --------------------------------------------------------------------------------------------------


@pytest.fixture
def logs() -> Iterator[Callable[[str], list[dict[str, object]]]]:
    with capture_logs() as found:
        yield lambda event: [dict(line) for line in found if line["event"] == event]


def test_a_hostile_table_takes_no_other_with_it(
    tmp_path: Path, table: Table, logs: Callable[[str], list[dict[str, object]]]
) -> None:
    """One at a time, so that what hangs would hold up the rest."""
    bad = ("bug", "exits", "hangs", "hungry", "killed")
    for name in bad:
        Path(tmp_path, "lake", name).mkdir()
        Path(tmp_path, "lake", name, "_dbio_table").touch()
    tables = [{"path": f"{tmp_path}/lake/*"}, {"path": f"{tmp_path}/lake/hangs", "deadline_s": 1}]
    settings = {"concurrency": 1, "memory_mb": 300, "tables": tables}
    assert not Service(Config.model_validate(settings)).once()
    failed = {str(line["table"]).rpartition("/")[2]: line["error"] for line in logs("run failed")}
    assert failed == {
        "bug": "ZeroDivisionError",
        "exits": "ProcessDied",
        "hangs": "TimeLimit",
        "hungry": "MemoryLimit",
        "killed": "ProcessDied",
    }
    assert [line["table"] for line in logs("run finished")] == [table.url]


@pytest.mark.parametrize(("how", "error"), [("killed", "ProcessDied"), ("hungry", "MemoryLimit")])
def test_a_compaction_that_is_put_to_an_end_keeps_no_vacuum_from_running(
    small: Table, logs: Callable[[str], list[dict[str, object]]], how: str, error: str
) -> None:
    tables = [{"path": small.url, "compact": {"where": how}}]
    service = Service(Config.model_validate({"memory_mb": 300, "tables": tables}))
    assert not service.once()
    assert [line["error"] for line in logs("compaction failed")] == [error]
    assert [line["outcome"] for line in logs("run finished")] == ["ok"]


def test_the_service_compacts_and_then_vacuums(small: Table, logs: Callable[[str], list[dict[str, object]]]) -> None:
    tables = [{"path": small.url, "compact": {"z_order": ["id"], "min_files": 2}, "checkpoint_after": 0}]
    assert Service(Config.model_validate({"tables": tables})).once()
    assert [(line["files"], line["new_files"]) for line in logs("compaction finished")] == [(4, 2)]
    assert [line["checkpoint"] is not None for line in logs("run finished")] == [True]
    assert len(small.snapshot().files) == 2


def test_the_log_of_a_process_is_the_service_s(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """JSON lines on stderr; what a run did, the service says."""
    table = Table(tmp_path / "linked")
    with table.store.open_write("part-0.parquet") as stream:
        stream.write(b"rows")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/part-1.parquet").touch()
    Path(table.url, "day=1").symlink_to(tmp_path / "elsewhere")
    summary = vacuum_in_process(job(table.url), stop=Event())
    assert summary.warnings == ("directories that hold symbolic links are left alone: 1",)
    assert [json.loads(line) for line in capfd.readouterr().err.splitlines()] == []
