"""The process in which tables are vacuumed and compacted for the service: does the jobs that `process` sends."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Event, Thread
from traceback import format_exc

from dbio_commit import __version__
from dbio_commit.base.errors import DbioError
from dbio_commit.base.logs import get_logger
from dbio_commit.base.redaction import redact
from dbio_commit.feed.streams import StreamLag
from dbio_commit.log.object_cache import CACHE
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish import published_at
from dbio_commit.maintenance.report.health import TableHealth, look
from dbio_commit.maintenance.vacuum.idle import Idle, LastLook, digest_of
from dbio_commit.maintenance.vacuum.report import Control, RunSummary, VacuumReport, in_short
from dbio_commit.protocol.log import parse_log
from dbio_commit.table import Table, vacuum_table
from vacuum.compaction import CompactionSummary, compact_table
from vacuum.process import STOP, Answer, Job, Task, written

_MOST_MESSAGE, _MOST_TRACE = 10_000, 100_000
"""The most characters of an error's message, and of its traceback."""

_log = get_logger(__name__)

_Jobs = SimpleQueue[tuple[Task, Job, Event] | None]
"""The next tasks, each with the event that stops it. None ends the process."""


def main(descriptor: int) -> None:
    """Does the jobs that come through the connection, and sends an answer for each, until it closes or a SIGTERM."""
    from vacuum.log import log_as_json

    connection, ending, jobs = Connection(descriptor), Event(), _Jobs()

    def end(number: int, frame: object) -> None:
        ending.set()
        jobs.put(None)

    signal.signal(signal.SIGTERM, end)
    Thread(target=_listen, args=(connection, jobs), daemon=True).start()
    while (found := jobs.get()) is not None and not ending.is_set():
        task, job, stop = found
        log_as_json(job.secrets)
        answer = do(task, job, partial(_any_set, stop, ending))
        CACHE.forget()  # other tables need nothing of it
        connection.send_bytes(written(replace(answer, ends=ending.is_set())))


def _any_set(*events: Event) -> bool:
    return any(event.is_set() for event in events)


def _listen(connection: Connection, jobs: _Jobs) -> None:
    stop = Event()
    try:
        while found := connection.recv():
            if found == STOP:
                stop.set()
            else:
                stop = Event()
                jobs.put((*found, stop))
    except (EOFError, OSError):
        os._exit(1)  # the service has ended: a new one may begin another run


def do(task: Task, job: Job, stop: Callable[[], bool]) -> Answer:
    """The answer to a job. Raises nothing: the service logs an error, and continues with other tables."""
    clean = partial(redact, secrets=job.secrets)  # before any text is cut: half a secret would not be found
    try:
        table = Table(job.url, job.storage_options)
        if task is Task.LOOK:
            return Answer(is_idle=_is_idle(table, job))
        if task is Task.COMPACT and job.compact:
            done = compact_table(table, job.compact, dry_run=job.dry_run, stop=stop)
            return Answer(compaction=CompactionSummary.of(done, clean=clean))
        idle, at = list[Idle](), table.clock.now()
        control = Control(stop=stop, idle=idle.append)
        report = vacuum_table(table, job.options, dry_run=job.dry_run, control=control)
        snapshot = (lambda: idle[0].snapshot) if idle else table.snapshot
        health = None if report.stopped else _look(table, snapshot, report, job, clean)
        # The lag of a stream changes even if the table does not.
        is_kept = idle and health and not job.streams
        last_look = LastLook.of(idle[0], key=_key(table, job), at=at) if is_kept else None
    except Exception as error:
        trace = "" if isinstance(error, DbioError) else clean(format_exc(limit=-20))
        return Answer(
            error=type(error).__name__, message=clean(str(error))[:_MOST_MESSAGE], traceback=trace[:_MOST_TRACE]
        )
    return Answer(summary=replace(RunSummary.of(report, clean=clean), health=health, last_look=last_look))


def _is_idle(table: Table, job: Job) -> bool:
    last = job.last_look
    if last is None or not last.may_hold(key=_key(table, job), now=table.clock.now()):
        return False
    return digest_of(parse_log(table.store.list_log())) == last.log


def _key(table: Table, job: Job) -> str:
    """A digest of all that a vacuum, and the compaction before it, depend on besides the state of the table."""
    depends_on = (__version__, table.store.identity, table.url, job.options, job.dry_run, job.compact, job.target_size)
    return sha256(repr(depends_on).encode(errors="surrogatepass")).hexdigest()


def _look(
    table: Table, snapshot: Callable[[], Snapshot], report: VacuumReport, job: Job, clean: Callable[[str], str]
) -> TableHealth | None:
    """The health of the table for the page and the metrics, from the snapshot of a vacuum that changed nothing, or from
    a new one. An error is only logged, since the run has ended."""
    try:
        return look(
            snapshot(),
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
    """The lag of a stream; None if it cannot be found out, for example because the stream has not begun."""
    try:
        return table.lag(checkpoint)
    except DbioError as error:
        _log.warning("%s: the lag of the stream of %s could not be found out: %s", table.url, checkpoint, error)
        return None
