"""Runs the vacuum or compaction of a table in a process beside the service, with bounds on time and memory.

Anyone who may write to a table's prefix can make its vacuum slow or large. The process is then killed, which is safe at
any moment, and other tables are not affected. A process that has served a table well serves others, as its start takes
longer than most vacuums (docs/adr/0017, 0101). This is the side of the service; `worker` is that of the process.
"""

import json
import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.connection import Pipe
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from threading import Event, Lock
from time import monotonic
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from dbio_commit.base.texts import plain
from dbio_commit.maintenance.compact.options import TARGET_BYTES, CompactOptions
from dbio_commit.maintenance.vacuum.idle import LastLook
from dbio_commit.maintenance.vacuum.report import RunSummary, VacuumOptions
from vacuum.compaction import CompactionSummary

STOP_S = 45.0
"""The most time for the current batch after a stop. Then the process is killed."""

MOST_JOBS = 500
"""The most jobs of one process."""

KEPT_BYTES = 256 * 2**20
"""If a process uses more memory than this after a job, it is ended."""

_CHILD = "import json, sys; sys.path = json.loads(sys.argv[1]); from vacuum.worker import main; main(int(sys.argv[2]))"
"""Uses the search path of this process, so that a `vacuum.py` in the current directory is not imported."""

_POLL_S = 0.1
_EXIT_S = 5.0
"""How long a process may take to end after it has closed its side of the pipe."""

_MOST_BYTES = 4 * 1024 * 1024
"""The most bytes of an answer, which has numbers and a few messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A table, and what to do with it. Sent through a pipe, as it may have secrets."""

    url: str
    storage_options: Mapping[str, Any] = field(repr=False)
    options: VacuumOptions
    dry_run: bool
    memory_mb: int
    deadline_s: float
    compact: CompactOptions | None = None
    """The options for `Processes.compact`."""
    streams: Sequence[str] = ()
    """The checkpoints of streams that read the table."""
    target_size: int = TARGET_BYTES
    """Files that are small beside this size, in bytes, are counted."""
    last_look: LastLook | None = None
    """The last vacuum that found nothing to do, for `Processes.is_idle`."""
    secrets: Collection[str] = field(repr=False)
    """Texts that its log must not show."""


class Task(StrEnum):
    """The tasks that a process can do with the table of a job."""

    LOOK = "look"
    COMPACT = "compact"
    VACUUM = "vacuum"


TIME_LIMIT = "TimeLimit"

STOP = "stop"
"""Is sent instead of a job, and ends the job under way after its current batch."""


@dataclass(eq=False)  # not frozen: context managers set the traceback of an exception
class RunFailed(Exception):
    """A vacuum or a compaction ended without a report: it failed, or its process was killed or died."""

    error: str
    """The name of the exception, or TIME_LIMIT, "MemoryLimit", "ProcessDied"."""
    message: str
    traceback: str = ""
    """Empty for a DbioError, whose message is enough."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a process sends back for a job: the summary of its task, or the error."""

    summary: RunSummary | None = None
    compaction: CompactionSummary | None = None
    is_idle: bool | None = None
    error: str = ""
    message: str = ""
    traceback: str = ""
    ends: bool = False
    """Whether the process ends now: it was signalled."""


_ANSWER = TypeAdapter(Answer)


def written(answer: Answer) -> bytes:
    """The answer for the pipe. Names that are not UTF-8 are escaped: the texts are only for people."""
    return json.dumps(plain(_ANSWER.dump_python(answer, mode="json"))).encode()


class Vacuum(Protocol):
    """Vacuums a table: `Processes.vacuum`, except in tests."""

    def __call__(self, job: Job, /, *, stop: Event) -> RunSummary: ...


class Compact(Protocol):
    """Compacts a table: `Processes.compact`, except in tests."""

    def __call__(self, job: Job, /, *, stop: Event) -> CompactionSummary: ...


class Look(Protocol):
    """Whether a table needs no vacuum: `Processes.is_idle`, except in tests."""

    def __call__(self, job: Job, /, *, stop: Event) -> bool: ...


class Processes:
    """Processes that each do one job after the other. As many run at once as there are callers.

    Only a process that has done all its jobs well, in little memory, gets another one. A job that fails in a used
    process is done again in a new one. So no table waits for another, or fails because of it.
    """

    def __init__(self) -> None:
        self._lock, self._idle = Lock(), list[_Worker]()

    def is_idle(self, job: Job, /, *, stop: Event) -> bool:
        """Whether the table is unchanged since a vacuum that found nothing to do, and nothing is due yet.

        Takes one listing of the log. False if there was no such vacuum, or if it was stopped. Raises as `vacuum`.
        """
        return job.last_look is not None and bool(self._do(Task.LOOK, job, stop).is_idle)

    def vacuum(self, job: Job, /, *, stop: Event) -> RunSummary:
        """Vacuums the table. Its process is killed if it exceeds the bounds of the job. Raises RunFailed.

        `stop` ends the run after the current batch, as `Control.stop` does. If that takes too long, the process is
        killed.
        """
        answer = self._do(Task.VACUUM, job, stop)
        return answer.summary or RunSummary(dry_run=job.dry_run, stopped=True)

    def compact(self, job: Job, /, *, stop: Event) -> CompactionSummary:
        """Compacts the table, as `vacuum`. The vacuum after it runs in any case."""
        answer = self._do(Task.COMPACT, job, stop)
        return answer.compaction or CompactionSummary(dry_run=job.dry_run, stopped=True)

    def rest(self) -> None:
        """Ends the processes that have nothing to do."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _do(self, task: Task, job: Job, stop: Event) -> Answer:
        """The answer of the process; empty if it was stopped but had to be killed. Raises RunFailed."""
        worker = self._take(job)
        is_new = not worker.jobs
        try:
            return self._ask(worker, task, job, stop)
        except RunFailed as error:
            if is_new or stop.is_set() or error.error == TIME_LIMIT:  # its time is over
                raise
        return self._ask(_Worker(), task, job, stop)

    def _ask(self, worker: "_Worker", task: Task, job: Job, stop: Event) -> Answer:
        is_fit = False
        try:
            answer = worker.do(task, job, stop)
            is_fit = worker.is_fit and not answer.ends
            return answer
        except _WouldNotStop:
            return Answer()
        finally:
            if is_fit:
                with self._lock:
                    self._idle.append(worker)
            else:
                worker.end()

    def _take(self, job: Job) -> "_Worker":
        while True:
            with self._lock:
                if not self._idle:
                    break
                worker = self._idle.pop()
            if worker.has_room_for(job):
                return worker
            worker.end()
        return _Worker()


class _Worker:
    """A process, and how many jobs it has begun."""

    def __init__(self) -> None:
        self.jobs = 0
        self._connection, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), str(theirs.fileno())]
            # In a session of its own, as signals from the terminal are for the service, which then sets `stop`.
            self._process = Popen(
                command, pass_fds=[theirs.fileno()], stdin=DEVNULL, stdout=DEVNULL, start_new_session=True
            )

    @property
    def is_fit(self) -> bool:
        """Whether the process may do another job, after one that went well."""
        return self.jobs < MOST_JOBS and _resident_bytes(self._process.pid) <= KEPT_BYTES

    def has_room_for(self, job: Job) -> bool:
        """Whether the process runs, and uses at most half of the memory that the job may use."""
        return self._process.poll() is None and _resident_bytes(self._process.pid) <= job.memory_mb * 2**20 // 2

    def do(self, task: Task, job: Job, stop: Event) -> Answer:
        """Sends the job, and returns the answer. Raises RunFailed, _WouldNotStop."""
        self.jobs += 1
        try:
            self._connection.send((task, job))
            self._wait(job, stop)
            return _read(self._connection.recv_bytes(_MOST_BYTES))
        except (EOFError, OSError):
            raise self._died() from None

    def end(self) -> None:
        """Kills the process, which is safe at any moment."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _wait(self, job: Job, stop: Event) -> None:
        """Waits until there is an answer, or the process has ended. Raises RunFailed, _WouldNotStop."""
        began_s = monotonic()
        stopped_s: float | None = None
        while not self._connection.poll(_POLL_S):
            now_s = monotonic()
            if stop.is_set() and stopped_s is None:
                self._connection.send(STOP)
                stopped_s = now_s
            if stopped_s is not None and now_s - stopped_s > STOP_S:
                raise _WouldNotStop
            if now_s - began_s > job.deadline_s:
                raise RunFailed(
                    TIME_LIMIT,
                    f"was not done after {job.deadline_s:g} s (deadline_s), and was ended; what it did is kept, and "
                    "the next run continues. Raise deadline_s; or look for a slow store, or for foreign files below "
                    "the table",
                )
            if (used := _resident_bytes(self._process.pid)) > job.memory_mb * 2**20:
                raise RunFailed(
                    "MemoryLimit",
                    f"needed {used / 2**20:,.0f} MB, more than {job.memory_mb:,} (memory_mb), and was ended. Raise "
                    "memory_mb if the table is that large; else look for foreign files below the table",
                )

    def _died(self) -> RunFailed:
        try:
            code = self._process.wait(_EXIT_S)
        except TimeoutExpired:
            message = f"its process sent an answer of more than {_MOST_BYTES:,} bytes, or none, and was ended"
            return RunFailed("ProcessDied", message)
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        return RunFailed(
            "ProcessDied", f"its process ended {how} without an answer; the system may have run out of memory"
        )


class _WouldNotStop(Exception):
    pass


def _read(answer: bytes) -> Answer:
    try:
        found = _ANSWER.validate_json(answer)
    except ValidationError as error:
        message = f"the answer of its process cannot be read: {error.error_count()} mistakes"
        raise RunFailed("ProcessDied", message) from None
    if (found.summary, found.compaction, found.is_idle) == (None, None, None):
        raise RunFailed(found.error, found.message, found.traceback)
    return found


def _resident_bytes(pid: int) -> int:
    """The resident memory of the process. Known on Linux only, else 0."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
