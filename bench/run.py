"""`make bench`: measures dbio_commit against Spark's own writer and reader, and writes bench/RESULTS.md.

`bench/run.py [case ...]` runs some cases only, and updates their sections. What each measures is in cases_*.py.
"""

import argparse
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import (
    cases_busy,
    cases_cluster,
    cases_compact,
    cases_frames,
    cases_idle,
    cases_joint,
    cases_large,
    cases_latency,
    cases_lazy,
    cases_memory,
    cases_peers,
    cases_read,
    cases_requests,
    cases_rewrites,
    cases_sql,
    cases_state,
    cases_stream,
    cases_unchanged,
    cases_vacuum,
    cases_wide,
    cases_write,
    report,
)
from bench.measure import Bench, java_version

CASES: dict[str, Callable[[Bench], report.Section]] = {
    "write-flat": cases_write.flat,
    "write-by-month": cases_write.by_month,
    "stream": cases_stream.stream,
    "read": cases_read.read,
    "plan": cases_read.plan,
    "unchanged": cases_unchanged.unchanged,
    "requests": cases_requests.requests,
    "latency": cases_latency.latency,
    "begin": cases_busy.begin,
    "busy": cases_busy.busy,
    "memory": cases_memory.memory,
    "lazy": cases_lazy.lazy,
    "vacuum": cases_vacuum.vacuum,
    "idle": cases_idle.idle,
    "read-10000": cases_vacuum.long_history,
    "frames": cases_frames.frames,
    "joint": cases_joint.joint,
    "wide": cases_wide.wide,
    "large": cases_large.large,
    "largest": cases_large.largest,
    "state": cases_state.state,
    "peers": cases_peers.peers,
    "rewrites": cases_rewrites.rewrites,
    "compact": cases_compact.compact,
    "cluster": cases_cluster.cluster,
    "sql": cases_sql.sql,
}
BY_NAME = {"largest"}
"""Cases that take an hour, 10 GB of disk and 16 GB of memory: only if they are named."""


_CASES_HELP = f"of {', '.join(CASES)}; all but {', '.join(BY_NAME)} if none is given"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures dbio_commit; writes bench/RESULTS.md.")
    parser.add_argument("cases", nargs="*", metavar="case", help=_CASES_HELP)
    parser.add_argument("--scale", type=float, default=1, help="of TPC-H (default 1: 6 million rows)")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of what is timed (default 5)")
    parser.add_argument(
        "--largest",
        type=int,
        choices=(1, 10, 100),
        default=1,
        help="the largest table of case `state`, in millions of files (default 1; more take many minutes, 10 GB of "
        "disk and 16 GB of memory)",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the large tables of cases `state` and `largest` in the directory, for the next run with this option",
    )
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="for data (default build/bench)")
    options = parser.parse_args()
    if unknown := sorted(set(options.cases) - set(CASES)):
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    directory = options.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    lock = (directory / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # two runs would delete, and slow down, each other's tables
    except BlockingIOError:
        parser.error(f"another run is at work in {options.directory}; wait for its end")
    console, began_s = Console(), monotonic()
    setting = report.describe_setting(scale=options.scale, rounds=options.rounds, java=java_version())
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        bench = Bench(
            directory=directory,
            scale=options.scale,
            rounds=options.rounds,
            largest=options.largest,
            keep=options.keep,
            progress=progress,
        )
        for name in [name for name in CASES if name in (options.cases or {*CASES} - BY_NAME)]:
            section = CASES[name](bench)
            report.update(name, section, order=list(CASES), setting=setting)
            for target in section.targets:
                console.print(str(target), markup=False, highlight=False, soft_wrap=True)
    console.print(f"{os.path.relpath(report.PATH)} is written; that took {(monotonic() - began_s) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
