"""Case `idle`: what the vacuum service takes for many tables in which there is nothing to do."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

import dbio_commit as dbio
from bench import report
from bench.cases_requests import kinds
from bench.cases_vacuum import Moto, Objects, Place, moto_here
from bench.measure import Bench
from dbio_commit.protocol import names
from dbio_commit.testing import MemoryStore

TABLES = 2000
MINUTES = 3.0
"""The target, on two cores."""

_ROUNDS = ("first, each table whole", "second, nothing has changed")


_STATE = "idle-state"
"""The directory of configurations and state files."""


@dataclass(frozen=True, slots=True)
class _Used:
    """What a run of the service used, with its processes."""

    wall_s: float
    cpu_s: float
    service_mb: float
    """The peak of the service itself."""
    peak_mb: float
    """The peak of the largest process in which tables are vacuumed."""


def idle(bench: Bench) -> report.Section:
    tables = max(8, round(TABLES * min(bench.scale, 1)))
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    for place in _places(bench):
        used: dict[int, _Used] = {}
        for count in (tables // 4, tables):
            lake = f"idle-{count}"
            place.put(lake, _tables(count))
            place.requests()
            for name in _ROUNDS:
                used[count] = now = _once(bench, place, lake)
                requests = place.requests()
                asked = [f"{len(requests) / count:.1f}", kinds(requests)] if place.options else ["", ""]
                numbers = [f"{now.wall_s / 60:.2f}", f"{now.cpu_s:.1f}", *asked]
                rows.append([place.name, f"{count:,}", name, *numbers, f"{now.service_mb:.0f}", f"{now.peak_mb:.0f}"])
        what = f"{tables:,} idle tables, {place.name}"
        targets.append(report.Target(what=f"{what}, unchanged", found=now.wall_s / 60, at_most=MINUTES, unit="minutes"))
        few = used[tables // 4]
        growth, grown_mb = now.peak_mb / few.peak_mb, now.service_mb - few.service_mb
        targets += [
            report.Target(what=f"memory of a process for {what}", found=growth, at_most=1.2, unit=_TIMES),
            report.Target(
                what=f"memory of the service for each of {what}",
                found=grown_mb * 1024 / (tables - tables // 4),
                at_most=50,
                unit="kB",
            ),
        ]
        if place.options:
            found = len(requests) / tables
            targets.append(report.Target(what=f"{what}, unchanged", found=found, at_most=3, unit="requests a table"))
    header = ["store", "tables", "round", "minutes", "CPU s", "requests a table", "requests", "service MB", "peak MB"]
    return report.Section(
        title="the vacuum service, for tables with nothing to do",
        how=_HOW,
        tables=[report.table(header, rows)],
        targets=targets,
    )


_TIMES = "times that of a quarter of the tables"

_HOW = """\
`python -m vacuum once` with `state_file`, for all tables that match a pattern, each with a commit of one file. In the
first round each table has a whole vacuum, which finds nothing to do; in the second, a listing of its log shows that
nothing has changed. CPU is that of the service with its four processes. Memory is the peak of the service, which keeps
the metrics and the health of each table, and that of the largest of the processes (MB of 2^20 bytes). Requests include
those that find the tables. moto, in another process on the same two cores, answers one request at a time and looks
through all keys for each listing: most of the time on S3 is its own."""


def _tables(count: int) -> Objects:
    """The objects of so many tables."""
    store = MemoryStore()
    transaction = dbio.Table.over(store).begin()
    name = names.format_data_file(
        tid=transaction.tid, job=transaction.terms.job, task=0, attempt=0, number=0, suffix=".parquet"
    )
    transaction.add([dbio.FileInfo(path=name, size=4, rows=1)])
    transaction.commit()
    objects = {path: body for path, (body, _) in store.objects.items()} | {name: b"rows"}
    return {f"t{number:05d}/{path}": body for number in range(count) for path, body in objects.items()}


def _places(bench: Bench) -> Iterator[Place]:
    root = bench.directory / "idle"
    for old in (root, bench.directory / _STATE):
        shutil.rmtree(old, ignore_errors=True)
    yield Place(str(root), 1)
    shutil.rmtree(root)
    with moto_here() as server:
        yield Moto(server, 1)


def _once(bench: Bench, place: Place, lake: str) -> _Used:
    directory = bench.directory / _STATE
    directory.mkdir(exist_ok=True)
    config, state = directory / f"{lake}.toml", directory / f"{place.name}-{lake}.json"
    options = "".join(f'{name} = {{ env = "BENCH_{name.upper()}" }}\n' for name in place.options)
    config.write_text(
        f'state_file = "{state}"\n[[tables]]\npath = "{place.root}/{lake}/*"\n[tables.storage_options]\n{options}'
    )
    env: Mapping[str, str] = {f"BENCH_{name.upper()}": value for name, value in place.options.items()}
    command = [sys.executable, "-m", "vacuum", "once", "--config", str(config)]
    began_s = perf_counter()
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], env=os.environ | env, stdout=subprocess.DEVNULL, stderr=log
        )
        ended, own_kb, peak_kb = 0, 0, 0
        while not ended:
            own_kb = max(own_kb, _peak_kb(process.pid))
            peak_kb = max([peak_kb, *map(_peak_kb, _children(process.pid))])
            sleep(0.05)
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"the service failed: {(directory / 'log').read_text()[-3000:]}")
    return _Used(perf_counter() - began_s, used.ru_utime + used.ru_stime, own_kb / 1024, peak_kb / 1024)


def _children(pid: int) -> list[int]:
    """The processes in which tables are vacuumed, without those that still have the memory of the service."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            children = map(int, path.read_text().split())
            found += [it for it in children if b"vacuum.worker" in Path(f"/proc/{it}/cmdline").read_bytes()]
    return found


def _peak_kb(pid: int) -> int:
    """0 if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        if found := re.search(r"^VmHWM:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M):
            return int(found[1])
    return 0
