"""One table's vacuum, or compaction, in a process of its own, with bounds on its time and memory: both ends of it.

Anybody who may write to a table's prefix can make its vacuum slow or large. Then this process is ended, which vacuum
may be at any moment, and the service's other tables know nothing of it. (docs/adr/0017)
"""

import json
import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from dbio_commit.base.texts import plain
from dbio_commit.feed.streams import StreamLag
from dbio_commit.spark.vacuum import vacuum_table
from dbio_commit.table import Table
from dbio_commit.upkeep.report.health import TableHealth, look
from dbio_commit.upkeep.vacuum.report import Control, RunSummary, VacuumOptions, VacuumReport, in_short
from vacuum.compaction import CompactionSummary, CompactOptions, compact_table

STOP_S = 45.0
"""How long what is told to stop may go on with the batch that it is at."""

_CHILD = "import json, sys; sys.path = json.loads(sys.argv[1]); from vacuum.process import main; main(int(sys.argv[2]))"
"""Looks for modules where this process does: a `vacuum.py` where it happens to run is not ours."""

_POLL_S = 0.1
_log = get_logger(__name__)
_STOP = b"stop"
_MOST_BYTES = 4 * 1024 * 1024
"""No answer is larger: it has numbers, and a few messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the process is told. Goes through a pipe, since it may hold secrets."""

    url: str
    storage_options: Mapping[str, Any] = field(repr=False)
    options: VacuumOptions
    dry_run: bool
    memory_mb: int
    deadline_s: float
    compact: CompactOptions | None = None
    """What `compact_in_process` goes by."""
    streams: Sequence[str] = ()
    """The checkpoints of streams that read the table."""
    secrets: Collection[str] = field(repr=False)
    """What its log must not show."""


@dataclass(frozen=True, slots=True)
class RunFailed(Exception):
    """A vacuum or a compaction that came to no report: an error of its own, or the end that it was put to."""

    error: str
    """What kind: the name of the exception, or "TimeLimit", "MemoryLimit", "ProcessDied"."""
    message: str
    traceback: str = ""
    """Where a bug came from; empty for errors of ours, which say all themselves."""

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
    """Runs the job in a new process, and ends that at its bounds. Raises RunFailed.

    `stop` ends it in good order, as `Control.stop` does; where that takes too long, the process is killed too.
    """
    answer = _in_process(replace(job, compact=None), stop)
    return answer.summary or RunSummary(dry_run=job.dry_run, stopped=True)


def compact_in_process(job: Job, *, stop: Event) -> CompactionSummary:
    """The same for the job's compaction, in another process: whatever ends that, the vacuum can still run."""
    answer = _in_process(job, stop)
    return answer.compaction or CompactionSummary(dry_run=job.dry_run, stopped=True)


def _in_process(job: Job, stop: Event) -> _Answer:
    """An answer without content where the process did not stop, and was killed. Raises RunFailed."""
    ours, theirs = Pipe()
    with ours:
        with theirs:
            command = [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), str(theirs.fileno())]
            # In a session of its own: a signal from the terminal is for the service, which tells us.
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
    """Until there is an answer, or none will come. Raises RunFailed, _WouldNotStop."""
    began_s = monotonic()
    told_s: float | None = None
    while not connection.poll(_POLL_S):
        now_s = monotonic()
        if stop.is_set() and told_s is None:
            connection.send_bytes(_STOP)
            told_s = now_s
        if told_s is not None and now_s - told_s > STOP_S:
            raise _WouldNotStop
        if now_s - began_s > job.deadline_s:
            raise RunFailed(
                "TimeLimit",
                f"was not done after {job.deadline_s:g} s (deadline_s), and was ended; what it did is done, and the "
                "next run goes on. Give it more time; or look at its store, and at who wrote what to its prefix",
            )
        if (used := _resident_bytes(child.pid)) > job.memory_mb * 2**20:
            raise RunFailed(
                "MemoryLimit",
                f"needed {used / 2**20:,.0f} MB, more than {job.memory_mb:,} (memory_mb), and was ended. Give it more "
                "where the table is that large; else look who wrote what to its prefix",
            )


class _WouldNotStop(Exception):
    pass


def _read(answer: bytes) -> _Answer:
    try:
        found = _ANSWER.validate_json(answer)
    except ValidationError as error:
        message = f"its process answered what cannot be read, with {error.error_count()} mistakes"
        raise RunFailed("ProcessDied", message) from None
    if found.summary is None and found.compaction is None:
        raise RunFailed(found.error, found.message, found.traceback)
    return found


def _died(child: "Popen[bytes]") -> RunFailed:
    code = child.wait()
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
    return RunFailed("ProcessDied", f"its process ended {how}, and said nothing; the system may have run out of memory")


def _resident_bytes(pid: int) -> int:
    """What it has in memory; 0 where the system does not tell (Linux does)."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


# --- the process --------------------------------------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Does the one job that comes through the connection, and answers."""
    from vacuum.log import log_as_json

    connection, stop = Connection(descriptor), Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    job: Job = connection.recv()
    log_as_json(job.secrets)
    Thread(target=_listen, args=(connection, stop), daemon=True).start()
    connection.send_bytes(_written(_do(job, stop)))


def _written(answer: _Answer) -> bytes:
    """For `_read`. A name that is no UTF-8 comes as people are shown it; all that is said here is for them."""
    return json.dumps(plain(_ANSWER.dump_python(answer, mode="json"))).encode()


def _listen(connection: Connection, stop: Event) -> None:
    try:
        while connection.recv_bytes():
            stop.set()
    except (EOFError, OSError):
        os._exit(1)  # the service is gone: nobody will hear of this run, and another may begin


def _do(job: Job, stop: Event) -> _Answer:
    try:
        table, control = Table(job.url, job.storage_options), Control(stop=stop.is_set)
        if job.compact:
            return _Answer(compaction=compact_table(table, job.compact, dry_run=job.dry_run, stop=stop.is_set))
        report = vacuum_table(table, job.options, dry_run=job.dry_run, control=control)
        health = None if report.stopped else _look(table, report, job.streams)
    except Exception as error:  # whatever it is: the service says so, and goes on with the others
        trace = "" if isinstance(error, DbioError) else format_exc(limit=-20)
        return _Answer(error=type(error).__name__, message=str(error)[:10_000], traceback=trace[:100_000])
    return _Answer(summary=replace(RunSummary.of(report), health=health))


def _look(table: Table, report: VacuumReport, checkpoints: Sequence[str]) -> TableHealth | None:
    """For the service's page: what one more look at the log tells. What comes of it is no matter of the run, which is
    done."""
    try:
        return look(
            table.snapshot(),
            at=table.clock.now(),
            vacuumed=in_short(report),
            streams=[lag for checkpoint in checkpoints if (lag := _lag(table, checkpoint))],
        )
    except Exception as error:
        ours = isinstance(error, DbioError)
        _log.warning("%s: its health is not known: %s", table.url, error, exc_info=not ours)
        return None


def _lag(table: Table, checkpoint: str) -> StreamLag | None:
    """None where that cannot be told, such as of a stream that has not begun: the rest of the page can."""
    try:
        return table.lag(checkpoint)
    except DbioError as error:
        _log.warning("%s: how far the stream of %s is behind is not known: %s", table.url, checkpoint, error)
        return None
