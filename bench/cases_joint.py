"""Case `joint`: appends to two tables in one transaction, beside DuckLake, whose catalog is a database."""

import json
import shutil
import statistics
import subprocess
import sys

from bench import report
from bench.duels import ROOT, home_of
from bench.measure import Bench, Timing, rotated

APPENDS = 100
WAYS = {
    "dbio": "dbio.transaction()",
    "dbio_alone": "two appends of dbio, one after the other",
    "ducklake_on_sqlite": "DuckLake on SQLite",
    "ducklake_on_postgres": "DuckLake on PostgreSQL",
}


def joint(bench: Bench) -> report.Section:
    ducklake = str(home_of("ducklake") / "bin/python")
    appends = max(5, round(APPENDS * min(bench.scale, 1)))
    target = bench.directory / "joint"
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    measuring = bench.progress.add_task("joint", total=len(WAYS) * bench.rounds)
    for round_ in range(bench.rounds):
        for way in rotated(WAYS, round_):
            bench.progress.update(measuring, description=f"joint: {WAYS[way]}")
            shutil.rmtree(target, ignore_errors=True)
            python = ducklake if "ducklake" in way else sys.executable
            command = [python, "-m", "bench.joint_job", way, str(target), str(appends)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found[way].append(statistics.median(json.loads(done.stdout.splitlines()[-1])))
            bench.progress.advance(measuring)
    shutil.rmtree(target)
    taken = {way: Timing(tuple(1000 * it for it in each)) for way, each in found.items()}
    return report.Section(
        title="appends to two tables in one transaction",
        how=f"Each append writes 100 rows to each of two tables on a local disk. A fresh process does {appends} in "
        "turn, after three that are not counted. Ways take turns, and cells are about the medians of these processes, "
        "in ms. DuckLake 1.5.5 keeps its catalog in SQLite, in the same process, or in PostgreSQL, a server on this "
        "machine. dbio makes all files durable (fsync); DuckLake does so with its catalog, and not with its files of "
        "Parquet.",
        tables=[report.table(["what", "median", "min", "max"], [[WAYS[it], *taken[it].cells()] for it in WAYS])],
        targets=[],
    )
