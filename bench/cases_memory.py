"""Case `memory`: the most memory that a Python worker takes while it writes."""

import shutil
from collections.abc import Callable, Sequence
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from bench import data, report
from bench.measure import Bench, parquet_size, spark_session, worker_peaks_mb

WIDE_ROWS = 40_000


def memory(bench: Bench) -> report.Section:
    source = str(data.make_lineitem(bench.directory, bench.scale))
    wide_rows = round(WIDE_ROWS * min(bench.scale, 1))
    writes: dict[str, tuple[Callable[[SparkSession], DataFrame], Sequence[str]]] = {
        "lineitem into one directory": (lambda spark: spark.read.parquet(source), ()),
        "lineitem by ship month": (lambda spark: data.with_month(spark.read.parquet(source)), [data.MONTH]),
        f"{wide_rows:,} rows of 100 texts of 1 KB": (lambda spark: data.wide(spark, rows=wide_rows), ()),
    }
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    writing = bench.progress.add_task("memory", total=len(writes))
    for what, (frame, partition_by) in writes.items():
        bench.progress.update(writing, description=f"memory: {what}")
        path = bench.directory / "memory"
        shutil.rmtree(path, ignore_errors=True)
        with spark_session(bench.directory) as spark:  # fresh workers: a peak is one of all that they ever did
            began_s = perf_counter()
            dbio.write(frame(spark), path, partition_by=partition_by)
            took_s = perf_counter() - began_s
            peaks = worker_peaks_mb()
        assert len(peaks) == 2, f"two workers write, but {len(peaks)} were found"
        rows.append([what, *sorted(peaks), f"{took_s:.1f}", f"{parquet_size(path)[1]:.0f}"])
        targets.append(report.Target(what=f"a worker that writes {what}", found=max(peaks), at_most=1024, unit="MB"))
        bench.progress.advance(writing)
    shutil.rmtree(path)
    return report.Section(
        title="peak memory of Python workers",
        how="The peak resident memory (VmHWM of /proc/PID/status, in MB of 2^20 bytes) of both workers of a fresh "
        "session after one write in two tasks. About 200 MB of it are Python, Spark and Arrow themselves.",
        tables=[report.table(["what", "a worker", "the other", "seconds", "MB written"], rows)],
        targets=targets,
    )
