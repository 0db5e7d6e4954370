"""Cases `begin` and `busy`: what a long log, and a steady stream of commits, cost those who work beside them.

On a local disk, without Spark. The log is made of copies of one commit marker under other names.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import dbio_commit as dbio
from bench import report
from bench.measure import Bench, Timing
from dbio_commit.log import object_cache
from dbio_commit.log import seen as memory
from dbio_commit.protocol import names
from dbio_commit.store.local import LocalStore

LOGS = (0, 5_000, 50_000)
RATES = (1, 5, 20, 50)
COLUMNS: Mapping[str, Any] = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


# --- begin --------------------------------------------------------------------------------------------------------


def begin(bench: Bench) -> report.Section:
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    turns = bench.progress.add_task("begin", total=len(LOGS) * 3)
    for commits in LOGS:
        table = long_log(bench.directory / "begin", round(commits * min(bench.scale, 1)))
        for what in ("first in a process", "again", "beside an undecided turn"):
            if what.startswith("beside"):
                holder = table.begin("overwrite")
                table.store.put_if_absent(names.turn(2), b'{"tid": "%s"}' % holder.tid.encode())
                append(table)
            seconds: list[float] = []
            for _ in range(bench.rounds * 4 + 1):
                if what.startswith("first"):
                    forget()
                with counted() as calls:
                    seconds.append(timed(partial(append, table)))
            asked = sum(calls.values())
            rows.append([f"{commits:,}", what, _said(calls), *Timing(tuple(seconds[1:])).cells()])
            at_most = 6 if what.startswith("first") else 4
            what = f"an append to a log of {commits:,} commits, {what}"
            targets.append(report.Target(what=what, found=asked, at_most=at_most, unit="calls of the store"))
            bench.progress.advance(turns)
    shutil.rmtree(bench.directory / "begin")
    header = ["commits in the log", "append", "calls of the store", "median", "min", "max"]
    return report.Section(title="begin at any length of the log", how=_BEGIN, tables=[report.table(header, rows)],
                          targets=targets)  # fmt: skip


_BEGIN = """\
One blind append of one file, from `Table.begin` to the end of `commit`, to a table on a local disk without vacuum.
Calls are calls of the store, without the data file. On S3 each call is one request."""


def append(table: dbio.Table) -> None:
    with table.begin() as transaction:
        Path(transaction.new_file()).write_bytes(b"rows")


# --- busy ---------------------------------------------------------------------------------------------------------


def busy(bench: Bench) -> report.Section:
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    turns = bench.progress.add_task("busy", total=len(LOGS) * len(RATES))
    for commits in LOGS:
        for rate in RATES:
            table = long_log(bench.directory / "busy", round(commits * min(bench.scale, 1)))
            table.checkpoint()
            with stream(table, rate):
                for what, act in _ACTS.items():
                    seconds: list[float] = []
                    for _ in range(bench.rounds + 1):
                        with counted() as calls:
                            seconds.append(timed(partial(act, table)))
                    rows.append([f"{commits:,}", rate, what, calls["list_log"], *Timing(tuple(seconds[1:])).cells()])
                    if what == "snapshot":
                        name = f"listings of a read beside {rate} commits a second, log of {commits:,}"
                        targets.append(report.Target(what=name, found=calls["list_log"], at_most=4, unit="listings"))
            bench.progress.advance(turns)
    shutil.rmtree(bench.directory / "busy")
    header = ["commits in the log", "a second", "beside them", "listings", "median", "min", "max"]
    return report.Section(title="beside a steady stream of commits", how=_BUSY, tables=[report.table(header, rows)],
                          targets=targets)  # fmt: skip


_BUSY = """\
Another process appends to the table at the given rate (at random moments). Meanwhile this process reads snapshots,
overwrites, and vacuums, with a checkpoint if there are new commits. The table is on a local disk. Nothing was purged,
and a checkpoint covers the log from before. Times are of the whole operation; listings are of the log."""


def _overwrite(table: dbio.Table) -> None:
    with table.begin("overwrite") as transaction:
        Path(transaction.new_file()).write_bytes(b"rows")


def _vacuum(table: dbio.Table) -> None:
    report = dbio.vacuum(table.url, checkpoint_after=0)
    assert not report.failed, report.failed


_ACTS: Mapping[str, Callable[[dbio.Table], object]] = {
    "snapshot": lambda table: table.snapshot(),
    "overwrite": _overwrite,
    "vacuum": _vacuum,
}


@contextmanager
def stream(table: dbio.Table, rate: float) -> Iterator[None]:
    """Commits from elsewhere, as long as the block runs."""
    body = _marker(table)
    process = get_context("spawn").Process(target=_stream, args=(Path(table.url), body, rate), daemon=True)
    process.start()
    sleep(1)
    try:
        yield
        assert process.is_alive()
    finally:
        process.terminate()
        process.join()


def _stream(root: Path, body: tuple[str, bytes], rate: float) -> None:
    tid, due = int(body[0]) + (1 << 40), monotonic()
    while True:
        tid += random.getrandbits(21)
        _put(root, body, f"{tid:019d}")
        due += random.expovariate(rate)
        sleep(max(0.0, due - monotonic()))


# --- a table with a long log --------------------------------------------------------------------------------------


def long_log(root: Path, commits: int) -> dbio.Table:
    shutil.rmtree(root, ignore_errors=True)
    forget()
    table = dbio.Table(root)
    table.inspector = None  # its files are no Parquet
    transaction = table.begin()
    Path(transaction.new_file()).write_bytes(b"rows")
    transaction.commit(COLUMNS)
    body = _marker(table)
    for number in range(commits):
        _put(root, body, f"{int(body[0]) - ((number + 1) << 21):019d}")
    sleep(2.1)  # a younger descriptor is read again each time
    return table


def _marker(table: dbio.Table) -> tuple[str, bytes]:
    """The first commit: its tid, and its marker, without the turn."""
    tid = table.snapshot().tids[0]
    return tid, (Path(table.url) / names.committed(tid)).read_bytes().replace(b'"turn":1,', b"")


def _put(root: Path, body: tuple[str, bytes], tid: str) -> None:
    """What a commit of one file leaves, but for the file."""
    (root / names.started(tid)).touch()
    temporary = root / f"._bench-{tid}"
    temporary.write_bytes(body[1].replace(body[0].encode(), tid.encode()))
    temporary.rename(root / names.committed(tid))


def forget() -> None:
    """As if this process had read nothing."""
    memory._SEEN.clear()
    object_cache.CACHE = object_cache.ObjectCache()


def timed(act: Callable[[], object]) -> float:
    began_s = perf_counter()
    act()
    return perf_counter() - began_s


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The calls of local stores to their logs while the block runs."""
    calls: Counter[str] = Counter()
    kept = {name: getattr(LocalStore, name) for name in ("list_log", "stat_log", "get", "put_if_absent")}

    def counting(name: str) -> Callable[..., Any]:
        def call(self: LocalStore, *arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return kept[name](self, *arguments, **options)

        return call

    for name in kept:
        setattr(LocalStore, name, counting(name))
    try:
        yield calls
    finally:
        for name, method in kept.items():
            setattr(LocalStore, name, method)


def _said(calls: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in calls.items())
