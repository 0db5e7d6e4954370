"""Case `large`: a table of a million live files, as its log tells it. The files themselves are not there.

On a local disk. What is timed, and what memory it takes, is that of a process of its own, which has read nothing yet.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dbio_commit as dbio
from bench import report
from bench.measure import Bench, Timing, spark_session, take_turns
from dbio_commit.protocol import names
from dbio_commit.protocol.markers import Bounds, CommitInfo, CommitMarker, FileInfo, encode, pack_files

FILES = 1_000_000
COMMITS = (1_000, 10_000)
DAYS = 336
DAY = "day = '2026-03-03'"
COLUMNS: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("kind", "string"), ("day", "date"))
    ],
}


def large(bench: Bench) -> report.Section:
    files = round(FILES * min(bench.scale, 1))
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    tables = {f"{count:,} commits": _make(bench, files, min(count, files)) for count in COMMITS}
    packed = bench.directory / "large" / "packed"
    shutil.copytree(list(tables.values())[-1], packed)
    dbio.Table(packed).checkpoint()
    tables |= {"a checkpoint": packed}
    turns = bench.progress.add_task("large", total=len(tables) * len(_ACTS))
    for told_by, path in tables.items():
        for what, act in _ACTS.items():
            found = [_in_a_process(act, path) for _ in range(bench.rounds)]
            seconds, peak = Timing(tuple(took_s for took_s, _ in found)), max(peak_mb for _, peak_mb in found)
            rows.append([told_by, what, *seconds.cells(), peak])
            if what == "snapshot":
                name = f"a snapshot of {files:,} files, from {told_by}"
                targets += [
                    report.Target(what=name, found=seconds.median, at_most=2.5, unit="s"),
                    report.Target(what=name, found=peak, at_most=400, unit="MB"),
                ]
            bench.progress.advance(turns)
    spark_rows, spark_targets = _with_spark(bench, tables[f"{COMMITS[0]:,} commits"], files)
    shutil.rmtree(bench.directory / "large")
    return report.Section(
        title="a table of a million files",
        how=_HOW,
        tables=[
            report.table(["told by", "what", "median", "min", "max", "peak, MB"], rows),
            report.table(["with Spark", "median", "min", "max"], spark_rows),
        ],
        targets=[*targets, *spark_targets],
    )


_HOW = f"""\
The log tells of {FILES:,} files in {DAYS} partitions, with statistics of two columns; the files are not there. A
condition leaves out all but a hundredth by the bounds of a column. The overwrite puts nothing in their place; its
marker names transactions, since the paths would not fit into one PUT. With Spark, the DataFrame is made in a session
with a heap of 4 GB, whose process remembers as much of the log as 128 MB hold."""


_ACTS = {
    "snapshot": "snapshot",
    "two snapshots, one with a condition": "condition",
    "overwrite, and a snapshot": "overwrite",
}
"""What `large_job` does."""


def _in_a_process(act: str, path: Path) -> tuple[float, int]:
    """Seconds, and the most memory that it took, in MB."""
    command = [sys.executable, "-m", "bench.large_job", act, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    took_s, peak_mb = done.stdout.split()
    return float(took_s), int(peak_mb)


def _with_spark(bench: Bench, path: Path, files: int) -> tuple[list[list[object]], list[report.Target]]:
    snapshot, whole, partition = "Table.snapshot", "dbio.read", f'dbio.read, where="{DAY}"'
    with spark_session(bench.directory) as spark:
        ways: dict[str, Callable[[], object]] = {
            snapshot: dbio.Table(path).snapshot,
            whole: partial(dbio.read, spark, path),
            partition: partial(dbio.read, spark, path, where=DAY),
        }
        timings = take_turns(bench, "large, with Spark", ways)
    over = timings[partition].median - timings[snapshot].median
    return [[way, *timing.cells()] for way, timing in timings.items()], [
        report.Target(what=f"dbio.read of {files:,} files", found=timings[whole].median, at_most=10, unit="s"),
        report.Target(what=f"dbio.read of one of {DAYS} days, over a snapshot", found=over, at_most=1, unit="s"),
    ]


def _make(bench: Bench, files: int, commits: int) -> Path:
    root = bench.directory / "large" / str(commits)
    shutil.rmtree(root, ignore_errors=True)
    with dbio.Table(root).begin(partition_by=["day"]) as transaction:
        transaction.commit(COLUMNS)
    began, each = datetime(2026, 1, 1, tzinfo=UTC), files // commits
    for number in range(commits):
        at = began + timedelta(minutes=number)
        tid = f"{(int(at.timestamp() * 1000) << 21) + random.getrandbits(20):019d}"
        day = f"2026-{1 + number % 12:02}-{1 + number // 12 % 28:02}"
        added = [_file(tid, day, number * each + i, i) for i in range(each)]
        info = CommitInfo(operation="append", commit_id=tid, timestamp=at, schema_turn=1, table_schema=COLUMNS,
                          files=pack_files(added))  # fmt: skip
        marker = root / names.committed(tid)
        marker.write_bytes(encode(CommitMarker(added=[file.path for file in added], removed=[], dbio_commit=info)))
        os.utime(marker, (at.timestamp(), at.timestamp()))
    return root


def _file(tid: str, day: str, number: int, task: int) -> FileInfo:
    name = f"part-{task:05d}-tid-{tid}-6def5b7b-0608-4299-b0fd-163011e8c988-{task}-0-c000.snappy.parquet"
    statistics = {"id": Bounds(number * 10, number * 10 + 9, 0), "kind": Bounds("click", "view", 0)}
    return FileInfo(
        path=f"day={day}/{name}", size=1000 + number % 977, rows=10, partition={"day": day}, statistics=statistics
    )
