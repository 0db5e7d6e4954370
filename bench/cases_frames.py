"""Case `frames`: writes of Arrow's tables without Spark, beside deltalake and PyIceberg."""

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import data, report
from bench.duels import ROOT
from bench.measure import Bench, Timing, parquet_size

APPENDS = 200
WHATS = {"flat": "lineitem into one directory", "by month": "lineitem by ship month", "small": "appends of 100 rows"}


def frames(bench: Bench) -> report.Section:
    source = str(data.make_lineitem(bench.directory, bench.scale))
    peers = ROOT / ".venv-peers" / "iceberg" / "bin" / "python"  # it has PyIceberg beside deltalake
    python, ways = (str(peers), ["dbio_commit", "deltalake", "PyIceberg"])
    if not peers.exists():
        python, ways = sys.executable, ["dbio_commit", "deltalake"]
    appends = max(5, round(APPENDS * min(bench.scale, 1)))
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    measuring = bench.progress.add_task("frames", total=len(WHATS) * len(ways) * (bench.rounds + 1))
    for what, title in WHATS.items():
        times = appends if what == "small" else 1
        found: dict[str, list[Any]] = {way: [] for way in ways}
        files: dict[str, tuple[int, float]] = {}
        for round_ in range(bench.rounds + 1):
            first = round_ % len(ways)
            for way in ways[first:] + ways[:first]:
                bench.progress.update(measuring, description=f"frames: {what}: {way}")
                target = bench.directory / "frames"
                found[way].append(_run(python, way, what, source, target, times))
                files[way] = parquet_size(target)
                bench.progress.advance(measuring)
        taken = {way: Timing(tuple(it["seconds"] for it in each[1:])) for way, each in found.items()}
        more = {way: statistics.median(it["more_mb"] for it in each[1:]) for way, each in found.items()}
        fastest = min((way for way in ways[1:]), key=lambda way: taken[way].median)
        leanest = min(ways[1:], key=lambda way: more[way])
        for way in ways:
            rate = f"{times / taken[way].median:.0f}" if what == "small" else ""
            count, size = files[way]
            rows.append([f"{title}, {way}", *taken[way].cells(), rate, f"{more[way]:.0f}", count, f"{size:.0f}"])
        ratio = taken["dbio_commit"].median / taken[fastest].median
        at_most = 0.25 if what == "small" else 0.9
        targets.append(report.Target(what=f"time of {title}", found=ratio, at_most=at_most, unit=f"× {fastest}"))
        if what != "small":
            memory = more["dbio_commit"] / max(more[leanest], 1)
            targets.append(report.Target(what=f"memory of {title}", found=memory, at_most=1.0, unit=f"× {leanest}"))
    for name in ("frames", "frames-warm"):
        shutil.rmtree(bench.directory / name, ignore_errors=True)
    return report.Section(
        title="frames without Spark",
        how=_HOW.format(appends=appends, without="" if len(ways) == 3 else _WITHOUT),
        tables=[
            report.table(["what", "median", "min", "max", "a second", "MB more", "files", "MB written"], rows),
        ],
        targets=targets,
    )


_HOW = """\
Each write is done by a fresh process, which has the rows as a table of Arrow in memory. "MB more" is how much its peak
of resident memory is above what it had before the write. Small appends are {appends} in turn to one table by one
process; dbio_commit makes all of its files durable (fsync), and the others do not.{without}"""

_WITHOUT = " PyIceberg is not measured: its environment is not there (`make bench-peers` installs it)."


def _run(python: str, way: str, what: str, source: str, target: Path, times: int) -> Any:
    os.sync()  # what the way before has left to write
    command = [python, "-m", "bench.frames_job", way, what, source, str(target), str(times)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-3000:]}")
    return json.loads(done.stdout)
