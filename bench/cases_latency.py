"""Case `latency`: how many requests each way to read or change a table on S3 sends in sequence, by its files."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, NamedTuple

from bench import latency_ways as ways
from bench import report
from bench.latency_ways import DBIO, DELTA, Place
from bench.measure import Bench
from dbio_commit.base.options import CHECKPOINT_EVERY
from tests.servers import S3Server, moto_server

SIZES = (20, 40, 80)
FIRST = "append, the first of a process"

GOALS: Mapping[str, int] = {
    **{what: 12 for what in ways.READS if what != "snapshot"},
    "delete in all files": 30,
    "update in all files": 30,
    "merge in all files": 30,
    "replace_where": 30,
    "overwrite": 8,
    "delete in one file": 12,
    "first write": 10,
    "append with app": 10,
    "append": 6,
    **{f"append, published for {form}": 10 for form in ways.PUBLISHED},
}
"""At most so many requests in sequence, of the largest table."""


class Counted(NamedTuple):
    in_sequence: int
    in_all: int


Counts = dict[tuple[str, str], dict[int, Counted]]
"""By what is done, and by whom: the counts by the number of files."""


def latency(bench: Bench) -> report.Section:
    found: Counts = {}
    total = len(SIZES) * (len(ways.READS) + len(ways.OF_DELTA) + len(ways.OWN) + len(ways.CHANGES) + 6)
    counting = bench.progress.add_task("latency", total=total)
    with moto_server() as server:
        server.create_bucket("bench")
        for files in SIZES:
            with _worker() as run:

                def count(what: str, who: str, files: int, function: Callable[..., None], *arguments: Any) -> None:
                    bench.progress.update(counting, advance=1, description=f"latency: {what}, {who}, {files} files")
                    found.setdefault((what, who), {})[files] = _count(server, run, function, *arguments)

                _reads(server, run, count, files)
                _changes(server, run, count, files)
    return report.Section(title="requests in sequence on S3", how=_HOW, tables=_tables(found), targets=_targets(found))


_HOW = f"""\
Requests that wait for the answers of others, counted exactly: moto answers no request until the process can send no
more without an answer, and then answers all that wait. This is a round. The number of rounds times the latency of a
store is the least time that an operation takes. It depends neither on the machine nor on its load. Tables have
{SIZES[0]}, {SIZES[1]} and {SIZES[2]} files of two rows, each in a partition of its own. The process has written to the
bucket, and the table is 3 s old. A read, and the first append, are by a process that knows nothing of the table; a read
includes the snapshot. Other changes follow an append by the same `Table` or `DeltaTable`. The tools' own scans get a
list of the files, so that what finds these is not counted. DuckDB has no extension for S3 here. Two things are not
counted: that connections are opened, and the answer to `Expect: 100-continue`, for which clients of S3 wait before they
send the body of a PUT."""


def _tables(found: Counts) -> list[str]:
    header = ["what", *(f"{files} files" for files in SIZES), f"requests of {SIZES[-1]}"]
    rows = [
        [what if who == DBIO else f"{what}: {who}", *(by[files].in_sequence for files in SIZES), by[SIZES[-1]].in_all]
        for (what, who), by in sorted(found.items(), key=lambda it: _ORDER.index(it[0][0]))
    ]
    return [report.table(header, rows)]


_ORDER = [*ways.READS, FIRST, *ways.CHANGES, *(f"append, published for {form}" for form in ways.PUBLISHED)]


def _targets(found: Counts) -> list[report.Target]:
    return [
        report.Target(what=what, found=found[what, DBIO][SIZES[-1]].in_sequence, at_most=goal, unit=_UNIT)
        for what, goal in GOALS.items()
    ]


_UNIT = f"requests in sequence, {SIZES[-1]} files"

# --- counts ---------------------------------------------------------------------------------------------------------

_Run = Callable[..., Any]


@contextmanager
def _worker() -> Iterator[_Run]:
    """Runs calls in a new process, which warms up."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=_start) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def _start() -> None:
    os.environ[CHECKPOINT_EVERY] = "0"


def _count(server: S3Server, run: _Run, function: Callable[..., None], *arguments: Any) -> Counted:
    client = run(os.getpid)
    server.reset()
    with server.in_rounds(client):
        run(function, *arguments)
    seen = server.requests()
    return Counted(max((it.round for it in seen), default=0), len(seen))


def _reads(server: S3Server, run: _Run, count: Callable[..., None], files: int) -> None:
    tables = {who: Place(f"s3://bench/read-{who}-{files}", server.storage_options, files) for who in (DBIO, DELTA)}
    for who, at in tables.items():
        run(ways.make, at, who)
    urls = run(ways.urls_of, tables[DBIO])
    time.sleep(_SETTLED_S)
    for what in ways.READS:
        count(what, DBIO, files, ways.run_first, tables[DBIO], DBIO, what)
        if what in ways.OF_DELTA:
            count(what, DELTA, files, ways.run_first, tables[DELTA], DELTA, what)
        if what in ways.OWN:
            count(what, "the tool's own scan", files, ways.run_own, tables[DBIO], what, urls)


def _changes(server: S3Server, run: _Run, count: Callable[..., None], files: int) -> None:
    tables: dict[tuple[str, str], Place] = {}
    for what in (*ways.CHANGES, *ways.PUBLISHED):
        for who in (DBIO, DELTA) if what in ways.OF_DELTA else (DBIO,):
            name = f"{who}-{files}-{what.replace(' ', '-')}"
            tables[what, who] = at = Place(f"s3://bench/{name}", server.storage_options, files)
            run(ways.make, at, who, what if what in ways.PUBLISHED else "")
    time.sleep(_SETTLED_S)
    for who in (DBIO, DELTA):
        count(FIRST, who, files, ways.run_first, tables["append", who], who, "append")
    for (what, who), at in tables.items():
        run(ways.run, at, who, "append")
        is_published = what in ways.PUBLISHED
        shown = f"append, published for {what}" if is_published else what
        count(shown, who, files, ways.run, at, who, "append" if is_published else what)


_SETTLED_S = 3
"""Until then, a process reads markers again, and none ahead, since their times are in whole seconds."""
