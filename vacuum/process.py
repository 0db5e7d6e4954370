"""Runs the vacuum or compaction of one table in a process of its own, with bounds on time and memory.

Anyone who may write to a table's prefix can make its vacuum slow or large. The process is then killed, which is safe at
any moment, and other tables are not affected. (docs/adr/0017) Both the side of the service and that of the process are
here.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from subprocess import DEVNULL, Popen
from threading import Event, Thread
from time import monotonic
from traceback import format_exc
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dbio_commit.base.errors import DbioError
from dbio_commit.base.logs import get_logger
from dbio_commit.base.redaction import redact
from dbio_commit.base.texts import plain
from dbio_commit.feed.streams import StreamLag
from dbio_commit.spark.vacuum import vacuum_table
from dbio_commit.table import Table
from dbio_commit.upkeep.compact.options import TARGET_BYTES, CompactOptions
from dbio_commit.upkeep.publish import published_at
from dbio_commit.upkeep.report.health import TableHealth, look
from dbio_commit.upkeep.vacuum.report import Control, RunSummary, VacuumOptions, VacuumReport, in_short
from vacuum.compaction import CompactionSummary, compact_table

STOP_S = 45.0
"""The most time for the current batch after a stop. Then the process is killed."""

_CHILD = "import json, sys; sys.path = json.loads(sys.argv[1]); from vacuum.process import main; main(int(sys.argv[2]))"
"""Uses the search path of this process, so that a `vacuum.py` in the current directory is not imported."""

_POLL_S = 0.1
_log = get_logger(__name__)
_STOP = b"stop"
_MOST_BYTES = 4 * 1024 * 1024
"""The most bytes of an answer, which has numbers and a few messages."""

_MOST_MESSAGE, _MOST_TRACE = 10_000, 100_000
"""The most characters of an error's message, and of its traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the process must do. Sent through a pipe, as it may have secrets."""

    url: str
    storage_options: Mapping[str, Any] = field(repr=False)
    options: VacuumOptions
    dry_run: bool
    memory_mb: int
    deadline_s: float
    compact: CompactOptions | None = None
    """The options for `compact_in_process`."""
    streams: Sequence[str] = ()
    """The checkpoints of streams that read the table."""
    target_size: int = TARGET_BYTES
    """Files that are small beside this size, in bytes, are counted."""
    secrets: Collection[str] = field(repr=False)
    """Texts that its log must not show."""


@dataclass(frozen=True, slots=True)
class RunFailed(Exception):
    """A vacuum or a compaction ended without a report: it failed, or its process was killed or died."""

    error: str
    """The name of the exception, or "TimeLimit", "MemoryLimit", "ProcessDied"."""
    message: str
    traceback: str = ""
    """Empty for a DbioError, whose message is enough."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    summary: RunSummary | None = None
    compaction: CompactionSummary | None = None
    error: str = ""
    message: str = ""
    traceback: str = ""


_ANSWER = TypeAdapter(_Answer)


def vacuum_in_process(job: Job, *, stop: Event) -> RunSummary:
    """Runs the job in a new process, and kills the process if it exceeds its bounds. Raises RunFailed.

    `stop` ends the run after the current batch, as `Control.stop` does. If that takes too long, the process is killed.
    """
    answer = _in_process(replace(job, compact=None), stop)
    return answer.summary or RunSummary(dry_run=job.dry_run, stopped=True)


def compact_in_process(job: Job, *, stop: Event) -> CompactionSummary:
    """As `vacuum_in_process`, for the job's compaction. In another process, so that the vacuum can run in any case."""
    answer = _in_process(job, stop)
    return answer.compaction or CompactionSummary(dry_run=job.dry_run, stopped=True)


def _in_process(job: Job, stop: Event) -> _Answer:
    """The answer of the process; empty if it was stopped but had to be killed. Raises RunFailed."""
    ours, theirs = Pipe()
    with ours:
        with theirs:
            command = [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), str(theirs.fileno())]
            # In a session of its own, as signals from the terminal are for the service, which then sets `stop`.
            child = Popen(command, pass_fds=[theirs.fileno()], stdin=DEVNULL, stdout=DEVNULL, start_new_session=True)
        with child:
            try:
                ours.send(job)
                _wait(ours, child, job, stop)
                return _read(ours.recv_bytes(_MOST_BYTES))
            except (EOFError, OSError):
                raise _died(child) from None
            except _WouldNotStop:
                return _Answer()
            finally:
                child.kill()


def _wait(connection: Connection, child: "Popen[bytes]", job: Job, stop: Event) -> None:
    """Waits until there is an answer, or the process has ended. Raises RunFailed, _WouldNotStop."""
    began_s = monotonic()
    stopped_s: float | None = None
    while not connection.poll(_POLL_S):
        now_s = monotonic()
        if stop.is_set() and stopped_s is None:
            connection.send_bytes(_STOP)
            stopped_s = now_s
        if stopped_s is not None and now_s - stopped_s > STOP_S:
            raise _WouldNotStop
        if now_s - began_s > job.deadline_s:
            raise RunFailed(
                "TimeLimit",
                f"was not done after {job.deadline_s:g} s (deadline_s), and was ended; what it did is kept, and the "
                "next run continues. Raise deadline_s; or look for a slow store, or for foreign files below the table",
            )
        if (used := _resident_bytes(child.pid)) > job.memory_mb * 2**20:
            raise RunFailed(
                "MemoryLimit",
                f"needed {used / 2**20:,.0f} MB, more than {job.memory_mb:,} (memory_mb), and was ended. Raise "
                "memory_mb if the table is that large; else look for foreign files below the table",
            )


class _WouldNotStop(Exception):
    pass


def _read(answer: bytes) -> _Answer:
    try:
        found = _ANSWER.validate_json(answer)
    except ValidationError as error:
        message = f"the answer of its process cannot be read: {error.error_count()} mistakes"
        raise RunFailed("ProcessDied", message) from None
    if found.summary is None and found.compaction is None:
        raise RunFailed(found.error, found.message, found.traceback)
    return found


def _died(child: "Popen[bytes]") -> RunFailed:
    code = child.wait()
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
    return RunFailed("ProcessDied", f"its process ended {how} without an answer; the system may have run out of memory")


def _resident_bytes(pid: int) -> int:
    """The resident memory of the process. Known on Linux only, else 0."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


# --- the process --------------------------------------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Runs the job that comes through the connection, and sends the answer."""
    from vacuum.log import log_as_json

    connection, stop = Connection(descriptor), Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    job: Job = connection.recv()
    log_as_json(job.secrets)
    Thread(target=_listen, args=(connection, stop), daemon=True).start()
    connection.send_bytes(_written(_do(job, stop)))


def _written(answer: _Answer) -> bytes:
    """The answer for `_read`. Names that are not UTF-8 are escaped: the texts are only for people."""
    return json.dumps(plain(_ANSWER.dump_python(answer, mode="json"))).encode()


def _listen(connection: Connection, stop: Event) -> None:
    try:
        while connection.recv_bytes():
            stop.set()
    except (EOFError, OSError):
        os._exit(1)  # the service has ended: a new one may begin another run


def _do(job: Job, stop: Event) -> _Answer:
    clean = partial(redact, secrets=job.secrets)  # before any text is cut: half a secret would not be found
    try:
        table, control = Table(job.url, job.storage_options), Control(stop=stop.is_set)
        if job.compact:
            done = compact_table(table, job.compact, dry_run=job.dry_run, stop=stop.is_set)
            return _Answer(compaction=CompactionSummary.of(done, clean=clean))
        report = vacuum_table(table, job.options, dry_run=job.dry_run, control=control)
        health = None if report.stopped else _look(table, report, job, clean)
    except Exception as error:  # any error: the service logs it, and continues with other tables
        trace = "" if isinstance(error, DbioError) else clean(format_exc(limit=-20))
        return _Answer(
            error=type(error).__name__, message=clean(str(error))[:_MOST_MESSAGE], traceback=trace[:_MOST_TRACE]
        )
    return _Answer(summary=replace(RunSummary.of(report, clean=clean), health=health))


def _look(table: Table, report: VacuumReport, job: Job, clean: Callable[[str], str]) -> TableHealth | None:
    """The health of the table for the page and the metrics, from another read of the log. An error is only logged, as
    the run is done."""
    try:
        return look(
            table.snapshot(),
            at=table.clock.now(),
            vacuumed=in_short(report),
            streams=[lag for checkpoint in job.streams if (lag := _lag(table, checkpoint))],
            behind={it: (published_at(table.store, it), clean(why)) for it, why in report.behind.items()},
            target_size=job.target_size,
        )
    except Exception as error:
        is_bug = not isinstance(error, DbioError)
        _log.warning("%s: its health could not be found out: %s", table.url, error, exc_info=is_bug)
        return None


def _lag(table: Table, checkpoint: str) -> StreamLag | None:
    """None if it cannot be found out, for example as the stream has not begun: the page then shows the rest."""
    try:
        return table.lag(checkpoint)
    except DbioError as error:
        _log.warning("%s: the lag of the stream of %s could not be found out: %s", table.url, checkpoint, error)
        return None
