"""Case `frames`: writes of Arrow's tables without Spark, beside deltalake and PyIceberg."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import data, report
from bench.duels import ROOT
from bench.measure import Bench, Timing, parquet_size, rotated

APPENDS = 200
OURS, DELTA, KEPT, ICEBERG = "dbio_commit", "deltalake", "deltalake, table kept", "PyIceberg"
WHATS = {
    "flat": ("lineitem into one directory", [OURS, DELTA, ICEBERG]),
    "by month": ("lineitem by ship month", [OURS, DELTA, ICEBERG]),
    "small": ("appends of 100 rows", [OURS, DELTA, KEPT, ICEBERG]),
    "small in memory": ("the same on a disk in memory", [OURS, DELTA, KEPT]),
}
CACHE = Path("/dev/shm")


def frames(bench: Bench) -> report.Section:
    source = str(data.make_lineitem(bench.directory, bench.scale))
    peers = ROOT / ".venv-peers" / "iceberg" / "bin" / "python"  # it has PyIceberg beside deltalake
    python, has_iceberg = (str(peers), True) if peers.exists() else (sys.executable, False)
    appends = max(5, round(APPENDS * min(bench.scale, 1)))
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    whats = {what: it for what, it in WHATS.items() if what != "small in memory" or CACHE.is_dir()}
    count = sum(len(ways) - (ICEBERG in ways and not has_iceberg) for _, ways in whats.values())
    measuring = bench.progress.add_task("frames", total=count * bench.rounds)
    for what, (title, all_ways) in whats.items():
        ways = [way for way in all_ways if way != ICEBERG or has_iceberg]
        times = {way: (max(5, appends // 5) if way == ICEBERG else appends) if "small" in what else 1 for way in ways}
        found: dict[str, list[Any]] = {way: [] for way in ways}
        files: dict[str, tuple[int, float]] = {}
        place = tempfile.mkdtemp(dir=CACHE) if what == "small in memory" else str(bench.directory)
        target = Path(place) / "frames"
        for round_ in range(bench.rounds):
            for way in rotated(ways, round_):
                bench.progress.update(measuring, description=f"frames: {what}: {way}")
                found[way].append(_run(python, way, what, source, target, times[way]))
                files[way] = parquet_size(target)
                bench.progress.advance(measuring)
        for path in (target, target.with_name("frames-warm")):
            shutil.rmtree(path, ignore_errors=True)
        if place != str(bench.directory):
            shutil.rmtree(place)
        taken = {way: Timing(tuple(it["seconds"] / times[way] for it in each)) for way, each in found.items()}
        more = {way: statistics.median(it["more_mb"] for it in each) for way, each in found.items()}
        for way in ways:
            rate = f"{1 / taken[way].median:.0f}" if "small" in what else ""
            number, size = files[way]
            rows.append([f"{title}, {way}", *taken[way].cells(), rate, f"{more[way]:.0f}", number, f"{size:.0f}"])
        if what == "small in memory":
            continue
        others = [way for way in ways if way not in (OURS, KEPT)]
        fastest, leanest = min(others, key=lambda way: taken[way].median), min(others, key=lambda way: more[way])
        for way in [fastest, *({KEPT} & {*ways})]:
            ratio = taken[OURS].median / taken[way].median
            at_most = 0.25 if what == "small" else 0.9
            targets.append(report.Target(what=f"time of {title}", found=ratio, at_most=at_most, unit=f"× {way}"))
        if what != "small":
            memory = more[OURS] / max(more[leanest], 1)
            targets.append(report.Target(what=f"memory of {title}", found=memory, at_most=1.0, unit=f"× {leanest}"))
    return report.Section(
        title="frames without Spark",
        how=_HOW.format(appends=appends, without="" if has_iceberg else _WITHOUT),
        tables=[
            report.table(["what", "median", "min", "max", "a second", "MB more", "files", "MB written"], rows),
        ],
        targets=targets,
    )


_HOW = """\
Each write is done by a fresh process, which has the rows as a table of Arrow in memory, and has made a small write
before; so all rounds count. "MB more" is how much its peak of resident memory is above what it had before the write.
Small appends are {appends} in turn to one table by one process, of PyIceberg a fifth of that; times are those of one
append. `deltalake` gets the path each time, as `write_deltalake` is mostly called, and "table kept" one DeltaTable.
dbio_commit makes all of its files durable (fsync, 6 of an append), PyIceberg its catalog, and deltalake nothing; on a
disk in memory that costs nothing.{without}"""

_WITHOUT = " PyIceberg is not measured: its environment is not there (`make bench-peers` installs it)."


def _run(python: str, way: str, what: str, source: str, target: Path, times: int) -> Any:
    os.sync()  # what the way before has left to write
    command = [python, "-m", "bench.frames_job", way, what, source, str(target), str(times)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-3000:]}")
    return json.loads(done.stdout)
