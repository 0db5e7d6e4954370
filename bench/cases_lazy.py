"""Case `lazy`: what lazy reads without Spark take, beside each tool's own scan of the same files."""

import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dbio_commit as dbio
from bench import data, report
from bench.frames_job import without_views
from bench.lazy_job import WAYS
from bench.measure import Bench

FILE_ROWS = 500_000
MORE = 4
"""So many times as many rounds: a query takes a fifth of a second, and varies by as much as the goals allow."""


def lazy(bench: Bench) -> report.Section:
    directory = bench.directory / "lazy"
    shutil.rmtree(directory, ignore_errors=True)
    source = without_views(pq.read_table(data.make_lineitem(bench.directory, bench.scale)))
    layouts = {"one directory": directory / "flat", "by ship month": directory / "by_month"}
    _write(source, layouts["one directory"], by_month=False)
    _write(source, layouts["by ship month"], by_month=True)
    _write(source.slice(0, 1000), directory / "small", by_month=False)
    versions = f"{source.num_rows:,} rows"
    del source
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    work = bench.progress.add_task("lazy", total=len(layouts) * len(WAYS) * bench.rounds * MORE)
    for layout, path in layouts.items():
        found: dict[str, list[tuple[float, int]]] = {way: [] for way in WAYS}
        for _ in range(bench.rounds * MORE):
            for way in WAYS:  # in turns, so that all meet the same neighbours
                bench.progress.update(work, description=f"lazy: {way}, {layout}")
                found[way].append(_measure(way, directory / "small", path))
                bench.progress.advance(work)
        medians = {way: (median(it[0] for it in each), median(it[1] for it in each)) for way, each in found.items()}
        for way, (took_s, peak_mb) in medians.items():
            own_s, own_mb = medians[way.partition(",")[0]]
            times, memory = took_s / own_s, peak_mb / max(own_mb, 1)
            is_own = "," not in way
            rows.append(
                [
                    f"{way}, {layout}", f"{took_s:.2f}", "" if is_own else f"{times:.2f}", round(peak_mb),
                    "" if is_own else f"{memory:.2f}",
                ]
            )  # fmt: skip
            if not is_own:
                unit = "× the tool's own scan"
                targets += [
                    report.Target(what=f"time of {way}, {layout}", found=times, at_most=1.1, unit=unit),
                    report.Target(what=f"memory of {way}, {layout}", found=memory, at_most=1.2, unit=unit),
                ]
    shutil.rmtree(directory)
    return report.Section(
        title="lazy reads without Spark",
        how=f"An aggregate over six columns of lineitem ({versions}, files of {FILE_ROWS:,} rows or fewer) by Polars "
        f"and DuckDB; all batches of these columns by pyarrow; {bench.rounds * MORE} rounds. Each run has a process of "
        "its own, which has run the same query on a small table before. Memory is the peak above that of the process "
        "before the query, in MB of 2^20 bytes. Each tool's own scan gets the list of the same files.",
        tables=[report.table(["what", "seconds", "× own", "MB", "× own"], rows)],
        targets=targets,
    )


def _write(rows: pa.Table, path: Path, *, by_month: bool) -> None:
    with dbio.Table(path).begin(partition_by=[data.MONTH] if by_month else []) as transaction:
        if not by_month:
            for start in range(0, rows.num_rows, FILE_ROWS):
                pq.write_table(rows.slice(start, FILE_ROWS), transaction.new_file(), row_group_size=FILE_ROWS // 4)
            return
        months = pc.floor_temporal(rows["l_shipdate"], unit="month").cast(pa.date32())
        for month in pc.unique(months):
            kept = rows.filter(pc.equal(months, month))
            pq.write_table(kept, transaction.new_file(partition={data.MONTH: month.as_py()}))


def _measure(way: str, small: Path, path: Path) -> tuple[float, int]:
    command = [sys.executable, "-m", "bench.lazy_job", way, str(small), str(path)]
    took_s, peak_mb = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(took_s), int(peak_mb)
